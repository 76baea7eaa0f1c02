//! Produce requests written by hand, so that every field can be a lie.

use bytes::Bytes;

use crate::support::Topic;

/// Tagged fields: tag and content, in the order in which they are written.
pub type Tags = Vec<(u32, Vec<u8>)>;

/// A Produce request. `Default` is a sound and empty one of version 0.
#[derive(Debug, Clone)]
pub struct RawProduce {
    pub version: i16,
    pub correlation_id: i32,
    pub client_id: Option<Vec<u8>>,
    pub header_tags: Tags,
    pub transactional_id: Option<String>,
    pub acks: i16,
    pub topics: Vec<RawTopic>,
    pub tags: Tags,
    /// Bytes behind the body, within the frame.
    pub behind: Vec<u8>,
}

/// A topic entry.
#[derive(Debug, Clone)]
pub struct RawTopic {
    pub topic: Topic,
    pub partitions: Vec<RawPartition>,
    pub tags: Tags,
}

/// A partition entry.
#[derive(Debug, Clone)]
pub struct RawPartition {
    pub index: i32,
    pub records: Option<Bytes>,
    pub tags: Tags,
}

impl RawProduce {
    /// A request of `version` and `acks` for these topic entries, each with its partitions and their batches.
    pub fn new(version: i16, acks: i16, topics: &[(&Topic, &[(i32, Bytes)])]) -> Self {
        let partition = |(index, records): &(i32, Bytes)| RawPartition {
            index: *index,
            records: Some(records.clone()),
            tags: Vec::new(),
        };
        let entry = |(topic, partitions): &(&Topic, &[(i32, Bytes)])| RawTopic {
            topic: (*topic).clone(),
            partitions: partitions.iter().map(partition).collect(),
            tags: Vec::new(),
        };
        Self {
            version,
            correlation_id: 7,
            client_id: Some(b"raw".to_vec()),
            header_tags: Vec::new(),
            transactional_id: None,
            acks,
            topics: topics.iter().map(entry).collect(),
            tags: Vec::new(),
            behind: Vec::new(),
        }
    }

    /// One batch for one partition.
    pub fn one(version: i16, acks: i16, topic: &Topic, partition: i32, records: Bytes) -> Self {
        Self::new(version, acks, &[(topic, &[(partition, records)])])
    }

    /// The whole frame.
    pub fn frame(&self) -> Vec<u8> {
        let flexible = self.version >= 9;
        let mut out = head(
            0,
            self.version,
            self.correlation_id,
            self.client_id.as_deref(),
        );
        if flexible {
            put_tags(&mut out, &self.header_tags);
        }
        if self.version >= 3 {
            put_string(
                &mut out,
                flexible,
                self.transactional_id.as_ref().map(String::as_bytes),
            );
        }
        out.extend(self.acks.to_be_bytes());
        out.extend(30_000_i32.to_be_bytes());
        put_count(&mut out, flexible, self.topics.len());
        for topic in &self.topics {
            if self.version >= 13 {
                out.extend(topic.topic.id.as_bytes());
            } else {
                put_string(&mut out, flexible, Some(topic.topic.name.as_bytes()));
            }
            put_count(&mut out, flexible, topic.partitions.len());
            for partition in &topic.partitions {
                out.extend(partition.index.to_be_bytes());
                put_bytes(&mut out, flexible, partition.records.as_deref());
                if flexible {
                    put_tags(&mut out, &partition.tags);
                }
            }
            if flexible {
                put_tags(&mut out, &topic.tags);
            }
        }
        if flexible {
            put_tags(&mut out, &self.tags);
        }
        out.extend(&self.behind);
        finish(out)
    }
}

/// A frame with any header and body; the tagged fields of a flexible header are the body's business.
pub fn any_frame(api_key: i16, version: i16, correlation_id: i32, body: &[u8]) -> Vec<u8> {
    let mut out = head(api_key, version, correlation_id, Some(b"raw"));
    out.extend(body);
    finish(out)
}

/// A header up to its client id, behind room for the length.
pub fn head(api_key: i16, version: i16, correlation_id: i32, client_id: Option<&[u8]>) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(api_key.to_be_bytes());
    out.extend(version.to_be_bytes());
    out.extend(correlation_id.to_be_bytes());
    put_string(&mut out, false, client_id);
    out
}

/// Fills in the length.
pub fn finish(mut frame: Vec<u8>) -> Vec<u8> {
    let length = (frame.len() as i32 - 4).to_be_bytes();
    frame[..4].copy_from_slice(&length);
    frame
}

pub fn put_tags(out: &mut Vec<u8>, tags: &Tags) {
    put_unsigned(out, tags.len() as u32);
    for (tag, content) in tags {
        put_unsigned(out, *tag);
        put_unsigned(out, content.len() as u32);
        out.extend(content);
    }
}

pub fn put_string(out: &mut Vec<u8>, flexible: bool, bytes: Option<&[u8]>) {
    match (flexible, bytes) {
        (true, None) => out.push(0),
        (false, None) => out.extend((-1_i16).to_be_bytes()),
        (true, Some(bytes)) => {
            put_unsigned(out, bytes.len() as u32 + 1);
            out.extend(bytes);
        }
        (false, Some(bytes)) => {
            out.extend((bytes.len() as i16).to_be_bytes());
            out.extend(bytes);
        }
    }
}

fn put_bytes(out: &mut Vec<u8>, flexible: bool, bytes: Option<&[u8]>) {
    match (flexible, bytes) {
        (true, None) => out.push(0),
        (false, None) => out.extend((-1_i32).to_be_bytes()),
        (true, Some(bytes)) => {
            put_unsigned(out, bytes.len() as u32 + 1);
            out.extend(bytes);
        }
        (false, Some(bytes)) => {
            out.extend((bytes.len() as i32).to_be_bytes());
            out.extend(bytes);
        }
    }
}

fn put_count(out: &mut Vec<u8>, flexible: bool, count: usize) {
    if flexible {
        put_unsigned(out, count as u32 + 1)
    } else {
        out.extend((count as i32).to_be_bytes())
    }
}

pub fn put_unsigned(out: &mut Vec<u8>, mut value: u32) {
    while value > 0x7f {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}
