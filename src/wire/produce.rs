//! A Produce request as a layout over its own bytes: where each topic and partition stands, so that a request
//! with some of them left out can be spliced from the original bytes.
//!
//! Versions 0–13. Version 13 names topics by id instead of by name (KIP-516).

mod ahead;

use std::ops::Range;

use bytes::Bytes;

pub use self::ahead::Ahead;
use super::splice::{Piece, Pieces, chain_bytes};
use super::{Malformed, Reader, Reason, api};

/// From this version on arrays are compact and sections end in tagged fields.
pub const FIRST_FLEXIBLE_VERSION: i16 = 9;
/// From this version on topics are named by id.
pub const FIRST_TOPIC_ID_VERSION: i16 = 13;

/// Topics and partitions of one request, together. Kafka has no bound, but what is remembered of an entry is ten
/// times the bytes of the shortest one; no cluster leads so many partitions on one broker.
pub const MOST_ENTRIES: usize = 128 * 1024;

/// Bytes of `index`, in front of a partition's records.
const INDEX_BYTES: usize = 4;

/// Tagged fields that Kafka 4.4 takes in one section.
const MOST_TAGS: u32 = 10_000;

/// How a request names a topic. Borrowed from the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopicKey<'a> {
    /// Up to version 12.
    Name(&'a [u8]),
    /// From version 13 on.
    Id([u8; 16]),
}

/// One topic entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicEntry {
    /// The name or the id, as encoded (length included).
    pub key: Range<usize>,
    /// Its partitions in [`Layout::partitions`].
    pub partitions: Range<usize>,
    /// The entry's tagged fields; empty before version 9.
    pub tags: Range<usize>,
}

/// One partition entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionEntry {
    /// `index`
    pub index: i32,
    /// The whole entry: index, records, tagged fields.
    pub entry: Range<usize>,
    /// The bytes of `records`; `None` is null.
    pub records: Option<Range<usize>>,
}

impl PartitionEntry {
    /// Index and tagged fields as they are, with other records between them.
    fn splice_records(
        &self,
        pieces: &mut Pieces,
        flexible: bool,
        replaced: &Range<usize>,
        chain: &[Bytes],
    ) {
        let records_at = self.entry.start.saturating_add(INDEX_BYTES);
        pieces.original(self.entry.start..records_at);
        pieces.made(|w| w.count(flexible, chain_bytes(chain)));
        for bytes in chain {
            pieces.brought(bytes.clone());
        }
        pieces.original(replaced.end..self.entry.end);
    }
}

/// Where everything stands in one request frame. Reused from request to request.
#[derive(Debug, Default)]
pub struct Layout {
    /// `api_version`
    pub version: i16,
    /// `client_id`
    pub client_id: Option<Range<usize>>,
    /// A section has more tagged fields than Kafka 4.4 takes: it closes the connection, Kafka 4.3 does not.
    pub has_many_tags: bool,
    /// A transactional id is present.
    pub is_transactional: bool,
    /// `acks`
    pub acks: i16,
    /// `timeout_ms`
    pub timeout_ms: i32,
    /// Where the count of topics begins.
    topics_at: usize,
    /// The request's own tagged fields; what may stand behind them is ignored, as the broker does.
    tags: Range<usize>,
    /// All topic entries, in their order.
    pub topics: Vec<TopicEntry>,
    /// All partition entries, in their order.
    pub partitions: Vec<PartitionEntry>,
}

impl Layout {
    /// Reads a whole frame, length prefix included, into this layout.
    ///
    /// # Errors
    /// [`Malformed`] where Kafka itself would close the connection.
    pub fn read(&mut self, frame: &[u8], version: i16) -> Result<(), Malformed> {
        let flexible = version >= FIRST_FLEXIBLE_VERSION;
        let r = &mut Reader::new(frame);
        self.read_start(r, version)?;
        let topics = self.count(r, flexible, "topic_data")?;
        for _ in 0..topics {
            self.read_topic(r, flexible)?;
        }
        let tags_at = r.position();
        if flexible {
            self.pass_tags(r, "produce_tags")?;
        }
        self.tags = tags_at..r.position();
        Ok(())
    }

    /// Up to the count of topics.
    fn read_start(&mut self, r: &mut Reader<'_>, version: i16) -> Result<(), Malformed> {
        self.topics.clear();
        self.partitions.clear();
        self.version = version;
        self.has_many_tags = false;
        let flexible = version >= FIRST_FLEXIBLE_VERSION;
        r.take(api::HEAD_BYTES, "request_header")?;
        self.client_id = api::client_id(r)?.map(|id| before(r, id.len()));
        if flexible {
            self.pass_tags(r, "request_header_tags")?;
        }
        self.is_transactional = version >= 3 && r.string(flexible, "transactional_id")?.is_some();
        self.acks = r.int16("acks")?;
        self.timeout_ms = r.int32("timeout_ms")?;
        self.topics_at = r.position();
        Ok(())
    }

    fn pass_tags(&mut self, r: &mut Reader<'_>, field: &'static str) -> Result<(), Malformed> {
        self.has_many_tags |= r.skip_tags(field)? > MOST_TAGS;
        Ok(())
    }

    /// A count of entries that may still be remembered.
    fn count(
        &self,
        r: &mut Reader<'_>,
        flexible: bool,
        field: &'static str,
    ) -> Result<usize, Malformed> {
        let count = r
            .count(flexible, field)?
            .ok_or(Malformed::new(field, Reason::NegativeLength))?;
        let so_far = self.topics.len().saturating_add(self.partitions.len());
        if so_far.saturating_add(count) > MOST_ENTRIES {
            return Err(Malformed::new(field, Reason::TooLong));
        }
        Ok(count)
    }

    fn read_topic(&mut self, r: &mut Reader<'_>, flexible: bool) -> Result<(), Malformed> {
        let key_at = r.position();
        read_key(r, self.version)?;
        let key = key_at..r.position();
        let first = self.partitions.len();
        let count = self.count(r, flexible, "partition_data")?;
        for _ in 0..count {
            let entry_at = r.position();
            let index = r.int32("index")?;
            let records = r
                .bytes(flexible, "records")?
                .map(|records| before(r, records.len()));
            self.end_partition(r, flexible, (index, entry_at, records))?;
        }
        self.end_topic(r, flexible, (key, first))
    }

    /// What is behind a partition's records, and the partition itself: its index, where it began, and its records.
    fn end_partition(
        &mut self,
        r: &mut Reader<'_>,
        flexible: bool,
        (index, entry_at, records): (i32, usize, Option<Range<usize>>),
    ) -> Result<(), Malformed> {
        if flexible {
            self.pass_tags(r, "partition_tags")?;
        }
        self.partitions.push(PartitionEntry {
            index,
            entry: entry_at..r.position(),
            records,
        });
        Ok(())
    }

    /// What is behind a topic's partitions, and the topic itself: its key and its first partition.
    fn end_topic(
        &mut self,
        r: &mut Reader<'_>,
        flexible: bool,
        (key, first): (Range<usize>, usize),
    ) -> Result<(), Malformed> {
        let tags_at = r.position();
        if flexible {
            self.pass_tags(r, "topic_tags")?;
        }
        self.topics.push(TopicEntry {
            key,
            partitions: first..self.partitions.len(),
            tags: tags_at..r.position(),
        });
        Ok(())
    }

    /// How the request names `topic`.
    pub fn topic_key<'a>(
        &self,
        frame: &'a [u8],
        topic: &TopicEntry,
    ) -> Result<TopicKey<'a>, Malformed> {
        let encoded = frame
            .get(topic.key.clone())
            .ok_or(Malformed::new("topic", Reason::Truncated))?;
        encoded_key(encoded, self.version)
    }

    /// The request with only these partitions, spliced: ranges of the original frame and what is new between
    /// them. `kept` names topic entries with the partition entries to keep, each by index into this layout; a
    /// topic named several times becomes one (a broker takes seconds over a topic repeated a thousand times).
    pub fn splice(&self, kept: &[(usize, Vec<usize>)]) -> Vec<Piece> {
        self.splice_with(kept, |_| None)
    }

    /// As [`Layout::splice`], with other records for the partition entries that have some in `records`.
    pub fn splice_with<'a>(
        &self,
        kept: &[(usize, Vec<usize>)],
        records: impl Fn(usize) -> Option<&'a [Bytes]>,
    ) -> Vec<Piece> {
        let flexible = self.version >= FIRST_FLEXIBLE_VERSION;
        let mut pieces = Pieces::default();
        pieces.original(api::PREFIX_BYTES..self.topics_at);
        pieces.made(|w| w.count(flexible, kept.len()));
        for (topic, partitions) in kept {
            let Some(topic) = self.topics.get(*topic) else {
                continue;
            };
            pieces.original(topic.key.clone());
            pieces.made(|w| w.count(flexible, partitions.len()));
            for &index in partitions {
                let Some(partition) = self.partitions.get(index) else {
                    continue;
                };
                match (records(index), &partition.records) {
                    (Some(chain), Some(replaced)) => {
                        partition.splice_records(&mut pieces, flexible, replaced, chain);
                    }
                    _ => pieces.original(partition.entry.clone()),
                }
            }
            pieces.original(topic.tags.clone());
        }
        pieces.original(self.tags.clone());
        pieces.finish()
    }
}

/// The last `n` bytes that `r` has read.
fn before(r: &Reader<'_>, n: usize) -> Range<usize> {
    r.position().saturating_sub(n)..r.position()
}

/// A topic as requests and responses of `version` encode it.
pub fn encoded_key(encoded: &[u8], version: i16) -> Result<TopicKey<'_>, Malformed> {
    read_key(&mut Reader::new(encoded), version)
}

fn read_key<'a>(r: &mut Reader<'a>, version: i16) -> Result<TopicKey<'a>, Malformed> {
    if version >= FIRST_TOPIC_ID_VERSION {
        return r.array("topic_id").map(TopicKey::Id);
    }
    r.string(version >= FIRST_FLEXIBLE_VERSION, "topic")?
        .map(TopicKey::Name)
        .ok_or(Malformed::new("topic", Reason::NegativeLength))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Writer;

    /// Two topics of two partitions each; records and tags that tell them apart.
    fn frame(version: i16) -> Vec<u8> {
        request(version, |topic, partition| {
            vec![topic * 16 + partition; usize::from(topic) * 100 + 3]
        })
    }

    fn request(version: i16, records: impl Fn(u8, u8) -> Vec<u8>) -> Vec<u8> {
        let flexible = version >= FIRST_FLEXIBLE_VERSION;
        let mut w = Writer::frame(0);
        w.int16(0);
        w.int16(version);
        w.int32(7);
        w.string(false, Some(b"client"));
        let tags = |w: &mut Writer, byte: u8| {
            if flexible {
                // One tagged field of one byte.
                w.raw(&[1, 90, 1, byte]);
            }
        };
        tags(&mut w, 1);
        w.string(flexible, None);
        w.int16(-1);
        w.int32(1_234);
        w.count(flexible, 2);
        for topic in 1..=2 {
            if version >= FIRST_TOPIC_ID_VERSION {
                w.raw(&[topic; 16]);
            } else {
                w.string(flexible, Some(&[b'a' + topic; 3]));
            }
            w.count(flexible, 2);
            for partition in 0..2 {
                w.int32(i32::from(partition));
                let records = records(topic, partition);
                w.count(flexible, records.len());
                w.raw(&records);
                tags(&mut w, 10 + topic * 2 + partition);
            }
            tags(&mut w, 20 + topic);
        }
        tags(&mut w, 2);
        w.into_frame()
    }

    fn joined(frame: &[u8], pieces: Vec<Piece>) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in pieces {
            match piece {
                Piece::Original(range) => out.extend_from_slice(&frame[range]),
                Piece::Made(bytes) => out.extend_from_slice(&bytes),
            }
        }
        out
    }

    #[test]
    fn a_partition_with_other_records_keeps_its_index_its_tags_and_its_neighbours() {
        for version in [3, 8, 9, 12, 13] {
            let frame = frame(version);
            let mut layout = Layout::default();
            layout.read(&frame, version).unwrap();
            assert_eq!(layout.timeout_ms, 1_234);
            let all = [(0, vec![0, 1]), (1, vec![2, 3])];
            assert_eq!(joined(&frame, layout.splice(&all)), frame, "{version}");
            for sizes in [[0, 0], [1, 126], [127, 70_000]] {
                let chain: Vec<Bytes> = sizes.map(|n| Bytes::from(vec![b'n'; n])).to_vec();
                let spliced = layout.splice_with(&all, |at| (at == 2).then_some(chain.as_slice()));
                let expected = request(version, |topic, partition| match (topic, partition) {
                    (2, 0) => chain.concat(),
                    _ => vec![topic * 16 + partition; usize::from(topic) * 100 + 3],
                });
                assert_eq!(joined(&frame, spliced), expected, "{version} {sizes:?}");
            }
        }
    }
}
