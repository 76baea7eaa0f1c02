//! The answer to Produce, versions 0–13: made here, or a broker's with refusals merged into it.
//!
//! Clients match partitions by name or id; the broker keeps no order of topics. What is not understood
//! (tagged fields) is kept as it came.

use std::collections::{HashMap, HashSet};

use super::addresses::{self, AddressBook};
use super::produce::{FIRST_FLEXIBLE_VERSION, FIRST_TOPIC_ID_VERSION};
use super::{Malformed, Reader, Writer};

/// First version with `record_errors` and `error_message` (KIP-467).
pub const FIRST_MESSAGE_VERSION: i16 = 8;

/// `batch_index` and `batch_index_error_message`.
pub type RecordError = (i32, Option<Vec<u8>>);

/// One partition's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionResult {
    /// `index`
    pub index: i32,
    /// `error_code`; 0 is success.
    pub error_code: i16,
    /// −1 in a refusal.
    pub base_offset: i64,
    /// −1 unless the topic stamps records itself.
    pub log_append_time_ms: i64,
    /// −1 in a refusal.
    pub log_start_offset: i64,
    /// `batch_index` and message of each record at fault; sorted.
    pub record_errors: Vec<RecordError>,
    /// The text a person reads.
    pub error_message: Option<Vec<u8>>,
    /// Tagged fields as encoded, their count included.
    pub tags: Vec<u8>,
}

impl PartitionResult {
    /// About the memory it takes beyond its own size.
    pub fn remembered_bytes(&self) -> usize {
        let errors = self.record_errors.len();
        let text = self.error_message.as_ref().map_or(0, Vec::len);
        errors
            .saturating_mul(size_of::<RecordError>())
            .saturating_add(text)
            .saturating_add(self.tags.len())
    }

    /// A refusal with a text; `record_errors` names records at fault.
    pub fn refused(index: i32, error_code: i16, message: String, record_errors: Vec<i32>) -> Self {
        Self {
            index,
            error_code,
            base_offset: -1,
            log_append_time_ms: -1,
            log_start_offset: -1,
            record_errors: record_errors.into_iter().map(|at| (at, None)).collect(),
            error_message: Some(message.into_bytes()),
            tags: vec![0],
        }
    }
}

/// One topic's results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicResult {
    /// The name or id, as encoded in the request (length included): the response uses the same encoding.
    pub key: Vec<u8>,
    /// Its partitions.
    pub partitions: Vec<PartitionResult>,
    /// Tagged fields as encoded, their count included.
    pub tags: Vec<u8>,
}

/// A whole response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProduceResponse {
    /// Of the request.
    pub correlation_id: i32,
    /// Results by topic.
    pub topics: Vec<TopicResult>,
    /// `throttle_time_ms`
    pub throttle_time_ms: i32,
    /// Tagged fields as encoded, their count included.
    pub tags: Vec<u8>,
}

/// The broker's response needs no second look: no error and no addresses in it. Allocates nothing.
pub fn is_plain(frame: &[u8], version: i16) -> Result<bool, Malformed> {
    plain_throttle_ms(frame, version).map(|throttle_ms| throttle_ms.is_some())
}

/// `throttle_time_ms` of a response that needs no second look; `None` of one that does.
pub fn plain_throttle_ms(frame: &[u8], version: i16) -> Result<Option<i32>, Malformed> {
    let flexible = version >= FIRST_FLEXIBLE_VERSION;
    let r = &mut Reader::new(frame);
    r.take(8, "response_header")?;
    if flexible {
        r.skip_tags("response_header_tags")?;
    }
    for _ in 0..r.count(flexible, "responses")?.unwrap_or(0) {
        pass_key(r, version)?;
        for _ in 0..r.count(flexible, "partition_responses")?.unwrap_or(0) {
            r.int32("index")?;
            if r.int16("error_code")? != 0 {
                return Ok(None);
            }
            r.take(offsets_bytes(version), "offsets")?;
            if version >= FIRST_MESSAGE_VERSION {
                read_record_errors(r, flexible)?;
                r.string(flexible, "error_message")?;
            }
            if flexible {
                r.skip_tags("partition_tags")?;
            }
        }
        if flexible {
            r.skip_tags("topic_tags")?;
        }
    }
    let mut throttle_ms = 0;
    if version >= 1 {
        throttle_ms = r.int32("throttle_time_ms")?;
    }
    let is_plain = !flexible || r.unsigned_varint("produce_tags")? == 0;
    Ok(is_plain.then_some(throttle_ms))
}

impl ProduceResponse {
    /// A response with these results and nothing else.
    pub fn new(correlation_id: i32, topics: Vec<TopicResult>) -> Self {
        Self {
            correlation_id,
            topics,
            throttle_time_ms: 0,
            tags: vec![0],
        }
    }

    /// Reads a whole frame, length prefix included.
    pub fn read(frame: &[u8], version: i16) -> Result<Self, Malformed> {
        let flexible = version >= FIRST_FLEXIBLE_VERSION;
        let r = &mut Reader::new(frame);
        r.int32("response_length")?;
        let correlation_id = r.int32("correlation_id")?;
        if flexible {
            r.skip_tags("response_header_tags")?;
        }
        let mut topics = Vec::new();
        for _ in 0..r.count(flexible, "responses")?.unwrap_or(0) {
            let key = passed(r, |r| pass_key(r, version))?;
            let mut partitions = Vec::new();
            for _ in 0..r.count(flexible, "partition_responses")?.unwrap_or(0) {
                partitions.push(read_partition(r, version, flexible)?);
            }
            topics.push(TopicResult {
                key,
                partitions,
                tags: read_tags(r, flexible)?,
            });
        }
        let throttle_time_ms = if version >= 1 {
            r.int32("throttle_time_ms")?
        } else {
            0
        };
        Ok(Self {
            correlation_id,
            topics,
            throttle_time_ms,
            tags: read_tags(r, flexible)?,
        })
    }

    /// Adds results under their topics' entries, or under new ones. A partition that the broker has answered, because
    /// another of its batches was forwarded, keeps the broker's result.
    pub fn merge(&mut self, refused: Vec<TopicResult>) {
        let mut refused: HashMap<Vec<u8>, TopicResult> = refused
            .into_iter()
            .map(|topic| (topic.key.clone(), topic))
            .collect();
        for present in &mut self.topics {
            if let Some(topic) = refused.remove(&present.key) {
                let answered: HashSet<i32> = present
                    .partitions
                    .iter()
                    .map(|result| result.index)
                    .collect();
                let missing = |result: &PartitionResult| !answered.contains(&result.index);
                present
                    .partitions
                    .extend(topic.partitions.into_iter().filter(missing));
            }
        }
        self.topics.extend(refused.into_values());
    }

    /// Rewrites the leaders' addresses (`NodeEndpoints`, version 10 and up).
    pub fn rewrite_addresses(&mut self, book: &dyn AddressBook) -> Result<(), Malformed> {
        self.tags = addresses::rewrite_endpoint_tags(&self.tags, book)?;
        Ok(())
    }

    /// The whole frame, length prefix included.
    pub fn encode(&self, version: i16) -> Vec<u8> {
        let flexible = version >= FIRST_FLEXIBLE_VERSION;
        let mut w = Writer::frame(256);
        w.int32(self.correlation_id);
        if flexible {
            w.unsigned_varint(0);
        }
        w.count(flexible, self.topics.len());
        for topic in &self.topics {
            w.raw(&topic.key);
            w.count(flexible, topic.partitions.len());
            for partition in &topic.partitions {
                write_partition(&mut w, partition, version, flexible);
            }
            write_tags(&mut w, &topic.tags, flexible);
        }
        if version >= 1 {
            w.int32(self.throttle_time_ms);
        }
        write_tags(&mut w, &self.tags, flexible);
        w.into_frame()
    }
}

/// Bytes of base offset, log append time (version 2) and log start offset (version 5).
const fn offsets_bytes(version: i16) -> usize {
    match version {
        ..=1 => 8,
        2..=4 => 16,
        _ => 24,
    }
}

fn pass_key(r: &mut Reader<'_>, version: i16) -> Result<(), Malformed> {
    if version >= FIRST_TOPIC_ID_VERSION {
        r.take(16, "topic_id").map(|_| ())
    } else {
        r.string(version >= FIRST_FLEXIBLE_VERSION, "topic")
            .map(|_| ())
    }
}

fn passed<'a>(
    r: &mut Reader<'a>,
    pass: impl FnOnce(&mut Reader<'a>) -> Result<(), Malformed>,
) -> Result<Vec<u8>, Malformed> {
    let mut w = Writer::part();
    w.copy(r, pass)?;
    Ok(w.into_part())
}

fn read_tags(r: &mut Reader<'_>, flexible: bool) -> Result<Vec<u8>, Malformed> {
    if flexible {
        passed(r, |r| r.skip_tags("tags").map(|_| ()))
    } else {
        Ok(Vec::new())
    }
}

fn write_tags(w: &mut Writer, tags: &[u8], flexible: bool) {
    match (flexible, tags.is_empty()) {
        (false, _) => {}
        (true, true) => w.unsigned_varint(0),
        (true, false) => w.raw(tags),
    }
}

fn read_record_errors(r: &mut Reader<'_>, flexible: bool) -> Result<Vec<RecordError>, Malformed> {
    let mut errors = Vec::new();
    for _ in 0..r.count(flexible, "record_errors")?.unwrap_or(0) {
        let at = r.int32("batch_index")?;
        let message = r
            .string(flexible, "batch_index_error_message")?
            .map(<[u8]>::to_vec);
        if flexible {
            r.skip_tags("record_error_tags")?;
        }
        errors.push((at, message));
    }
    Ok(errors)
}

fn read_partition(
    r: &mut Reader<'_>,
    version: i16,
    flexible: bool,
) -> Result<PartitionResult, Malformed> {
    Ok(PartitionResult {
        index: r.int32("index")?,
        error_code: r.int16("error_code")?,
        base_offset: r.int64("base_offset")?,
        log_append_time_ms: if version >= 2 {
            r.int64("log_append_time_ms")?
        } else {
            -1
        },
        log_start_offset: if version >= 5 {
            r.int64("log_start_offset")?
        } else {
            -1
        },
        record_errors: if version >= FIRST_MESSAGE_VERSION {
            read_record_errors(r, flexible)?
        } else {
            Vec::new()
        },
        error_message: match version {
            ..FIRST_MESSAGE_VERSION => None,
            _ => r.string(flexible, "error_message")?.map(<[u8]>::to_vec),
        },
        tags: read_tags(r, flexible)?,
    })
}

fn write_partition(w: &mut Writer, partition: &PartitionResult, version: i16, flexible: bool) {
    w.int32(partition.index);
    w.int16(partition.error_code);
    w.int64(partition.base_offset);
    if version >= 2 {
        w.int64(partition.log_append_time_ms);
    }
    if version >= 5 {
        w.int64(partition.log_start_offset);
    }
    if version >= FIRST_MESSAGE_VERSION {
        w.count(flexible, partition.record_errors.len());
        for (at, message) in &partition.record_errors {
            w.int32(*at);
            w.string(flexible, message.as_deref());
            write_tags(w, &[], flexible);
        }
        w.string(flexible, partition.error_message.as_deref());
    }
    write_tags(w, &partition.tags, flexible);
}
