//! What a fallback record says of itself: the headers that it has beside the record's own.
//!
//! One place for who writes them, who reads them back after a restart, and who shows them.

use uuid::Uuid;

use super::open::OpenBatch;
use super::ticket::{Digest, Ticket};
use crate::batch::{Headers, RecordParts};

/// Why the record is there.
pub const ERROR: &str = "x-claim-error";
/// The same, for people.
pub const ERROR_MESSAGE: &str = "x-claim-error-message";
/// Where it was.
pub const ORIGINAL_TOPIC: &str = "x-original-topic";
/// The same topic's id, which tells its lives apart; absent on a cluster without topic ids.
pub const ORIGINAL_TOPIC_ID: &str = "x-original-topic-id";
/// Where it was.
pub const ORIGINAL_PARTITION: &str = "x-original-partition";
/// Where it was.
pub const ORIGINAL_OFFSET: &str = "x-original-offset";

/// All of them.
pub const FALLEN_HEADERS: [&str; 6] = [
    ERROR,
    ERROR_MESSAGE,
    ORIGINAL_TOPIC,
    ORIGINAL_TOPIC_ID,
    ORIGINAL_PARTITION,
    ORIGINAL_OFFSET,
];

/// Where a record was that lies in a fallback topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// Its topic.
    pub topic: String,
    /// Its topic's id; nil: not told.
    pub topic_id: Uuid,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its value's, as the ticket says.
    pub sha256: Digest,
}

impl Origin {
    /// Of one record; `None`: it is no fallback record.
    pub fn read(batch: &OpenBatch, parts: &RecordParts) -> Option<Self> {
        let records = batch.records();
        let headers = Headers::of(parts, records);
        let bytes = headers.clone();
        let (mut topic, mut topic_id, mut partition, mut offset) = (None, Uuid::nil(), None, None);
        for header in headers {
            let value = header.value.map(|value| bytes.bytes(&value).to_vec());
            let Some(value) = value.and_then(|value| String::from_utf8(value).ok()) else {
                continue;
            };
            match bytes.bytes(&header.name) {
                name if name == ORIGINAL_TOPIC.as_bytes() => topic = Some(value),
                name if name == ORIGINAL_TOPIC_ID.as_bytes() => {
                    topic_id = value.parse().unwrap_or_default();
                }
                name if name == ORIGINAL_PARTITION.as_bytes() => partition = value.parse().ok(),
                name if name == ORIGINAL_OFFSET.as_bytes() => offset = value.parse().ok(),
                _ => {}
            }
        }
        let value = records.get(parts.value.clone()?)?;
        Some(Self {
            topic: topic?,
            topic_id,
            partition: partition?,
            offset: offset?,
            sha256: Ticket::from_json(value).ok()?.sha256,
        })
    }
}
