//! A Fetch request as a layout over its own bytes: what is asked of each partition, and where its limits stand, so that
//! they can be lowered in place.
//!
//! Versions 0–18. Version 13 names topics by id (KIP-516). Nothing changes its length: limits are of fixed width.

use std::ops::Range;

use super::produce::{MOST_ENTRIES, TopicKey};
use super::{Malformed, Reader, Reason, api};

/// From this version on arrays are compact and sections end in tagged fields.
pub const FIRST_FLEXIBLE_VERSION: i16 = 12;
/// From this version on topics are named by id.
pub const FIRST_TOPIC_ID_VERSION: i16 = 13;
/// From this version on there are fetch sessions (KIP-227).
pub const FIRST_SESSION_VERSION: i16 = 7;
/// From this version on a follower says who it is in a tagged field (KIP-903).
const FIRST_REPLICA_STATE_VERSION: i16 = 15;
/// The tag of that field.
const REPLICA_STATE_TAG: u32 = 1;

/// The session epoch of a request that names everything and begins a session (`FetchMetadata.INITIAL_EPOCH`).
pub const INITIAL_EPOCH: i32 = 0;

/// One topic entry of a request, or of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicEntry {
    /// The name or the id, as encoded (length included).
    pub(super) key: Range<usize>,
    /// Its partitions in its layout's `partitions`, or in [`Layout::forgotten_partitions`].
    pub partitions: Range<usize>,
}

impl TopicEntry {
    /// How `frame`, of this version, names it.
    ///
    /// # Errors
    /// `frame` is not the one that was read.
    pub fn key<'a>(&self, frame: &'a [u8], version: i16) -> Result<TopicKey<'a>, Malformed> {
        let encoded = frame
            .get(self.key.clone())
            .ok_or(Malformed::new("topic", Reason::Truncated))?;
        read_key(&mut Reader::new(encoded), version)
    }
}

/// What is asked of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionEntry {
    /// `partition`
    pub index: i32,
    /// `fetch_offset`
    pub fetch_offset: i64,
    /// `partition_max_bytes`
    pub max_bytes: i32,
    /// Where that stands.
    max_bytes_at: usize,
}

/// Where everything stands in one request frame.
#[derive(Debug, Default)]
pub struct Layout {
    version: i16,
    /// Who asks: −1 is a consumer, another id a follower, which replicates what is stored.
    pub replica_id: i32,
    /// `max_wait_ms`
    pub max_wait_ms: i32,
    /// `max_bytes`; before version 3 there is no such limit.
    pub max_bytes: i32,
    max_bytes_at: Option<usize>,
    /// `isolation_level`: 1 is `read_committed`.
    pub isolation_level: i8,
    /// `session_id`; 0 where there is none.
    pub session_id: i32,
    /// `session_epoch`: 0 begins a session, −1 ends it or goes without; both name everything.
    pub session_epoch: i32,
    /// All topic entries, in their order.
    pub topics: Vec<TopicEntry>,
    /// All partition entries, in their order.
    pub partitions: Vec<PartitionEntry>,
    /// Topics of which partitions are no longer asked for.
    pub forgotten: Vec<TopicEntry>,
    /// These partitions.
    pub forgotten_partitions: Vec<i32>,
}

impl Layout {
    /// Reads a whole frame, length prefix included.
    ///
    /// # Errors
    /// [`Malformed`] where Kafka itself would close the connection.
    pub fn read(frame: &[u8], version: i16) -> Result<Self, Malformed> {
        let flexible = version >= FIRST_FLEXIBLE_VERSION;
        let mut layout = Self {
            version,
            replica_id: -1,
            max_bytes: i32::MAX,
            session_epoch: -1,
            ..Self::default()
        };
        let r = &mut Reader::new(frame);
        r.take(api::HEAD_BYTES, "request_header")?;
        api::client_id(r)?;
        if flexible {
            r.skip_tags("request_header_tags")?;
        }
        if version < FIRST_REPLICA_STATE_VERSION {
            layout.replica_id = r.int32("replica_id")?;
        }
        layout.max_wait_ms = r.int32("max_wait_ms")?;
        r.int32("min_bytes")?;
        if version >= 3 {
            layout.max_bytes_at = Some(r.position());
            layout.max_bytes = r.int32("max_bytes")?;
        }
        if version >= 4 {
            layout.isolation_level = r.int8("isolation_level")?;
        }
        if version >= FIRST_SESSION_VERSION {
            layout.session_id = r.int32("session_id")?;
            layout.session_epoch = r.int32("session_epoch")?;
        }
        for _ in 0..layout.count(r, "topics")? {
            layout.read_topic(r)?;
        }
        if version >= FIRST_SESSION_VERSION {
            for _ in 0..layout.count(r, "forgotten_topics_data")? {
                layout.read_forgotten(r)?;
            }
        }
        if version >= 11 {
            r.string(flexible, "rack_id")?;
        }
        if flexible {
            layout.read_tags(r)?;
        }
        Ok(layout)
    }

    /// A count of entries that may still be remembered.
    fn count(&self, r: &mut Reader<'_>, field: &'static str) -> Result<usize, Malformed> {
        let flexible = self.version >= FIRST_FLEXIBLE_VERSION;
        let count = r
            .count(flexible, field)?
            .ok_or(Malformed::new(field, Reason::NegativeLength))?;
        let so_far = [
            self.topics.len(),
            self.partitions.len(),
            self.forgotten.len(),
            self.forgotten_partitions.len(),
        ];
        let so_far = so_far.into_iter().fold(0, usize::saturating_add);
        if so_far.saturating_add(count) > MOST_ENTRIES {
            return Err(Malformed::new(field, Reason::TooLong));
        }
        Ok(count)
    }

    fn read_topic(&mut self, r: &mut Reader<'_>) -> Result<(), Malformed> {
        let version = self.version;
        let flexible = version >= FIRST_FLEXIBLE_VERSION;
        let key_at = r.position();
        read_key(r, version)?;
        let key = key_at..r.position();
        let first = self.partitions.len();
        for _ in 0..self.count(r, "partitions")? {
            let index = r.int32("partition")?;
            if version >= 9 {
                r.int32("current_leader_epoch")?;
            }
            let fetch_offset = r.int64("fetch_offset")?;
            if version >= 12 {
                r.int32("last_fetched_epoch")?;
            }
            if version >= 5 {
                r.int64("log_start_offset")?;
            }
            let max_bytes_at = r.position();
            let max_bytes = r.int32("partition_max_bytes")?;
            if flexible {
                r.skip_tags("partition_tags")?;
            }
            self.partitions.push(PartitionEntry {
                index,
                fetch_offset,
                max_bytes,
                max_bytes_at,
            });
        }
        if flexible {
            r.skip_tags("topic_tags")?;
        }
        self.topics.push(TopicEntry {
            key,
            partitions: first..self.partitions.len(),
        });
        Ok(())
    }

    fn read_forgotten(&mut self, r: &mut Reader<'_>) -> Result<(), Malformed> {
        let key_at = r.position();
        read_key(r, self.version)?;
        let key = key_at..r.position();
        let first = self.forgotten_partitions.len();
        for _ in 0..self.count(r, "partitions")? {
            self.forgotten_partitions.push(r.int32("partition")?);
        }
        if self.version >= FIRST_FLEXIBLE_VERSION {
            r.skip_tags("forgotten_topic_tags")?;
        }
        self.forgotten.push(TopicEntry {
            key,
            partitions: first..self.forgotten_partitions.len(),
        });
        Ok(())
    }

    /// The request's own tagged fields: among them who replicates.
    fn read_tags(&mut self, r: &mut Reader<'_>) -> Result<(), Malformed> {
        for _ in 0..r.unsigned_varint("fetch_tags")? {
            let tag = r.unsigned_varint("tag")?;
            let size = r.unsigned_varint("tag_size")?;
            let content = r.take(size as usize, "tag_content")?;
            if tag == REPLICA_STATE_TAG && self.version >= FIRST_REPLICA_STATE_VERSION {
                self.replica_id = Reader::new(content).int32("replica_id")?;
            }
        }
        Ok(())
    }

    /// How the request names a topic of [`Layout::topics`] or [`Layout::forgotten`].
    ///
    /// # Errors
    /// `frame` is not the one that was read.
    pub fn topic_key<'a>(
        &self,
        frame: &'a [u8],
        topic: &TopicEntry,
    ) -> Result<TopicKey<'a>, Malformed> {
        topic.key(frame, self.version)
    }

    /// What is asked of a topic of [`Layout::topics`].
    pub fn partitions_of(&self, topic: &TopicEntry) -> &[PartitionEntry] {
        let partitions = self.partitions.get(topic.partitions.clone());
        partitions.unwrap_or_default()
    }

    /// Lowers in `frame` what all partitions together may have.
    pub fn lower_max_bytes(&self, frame: &mut [u8], most: i32) {
        if let Some(at) = self.max_bytes_at
            && self.max_bytes > most
        {
            put_int32(frame, at, most);
        }
    }
}

impl PartitionEntry {
    /// Lowers in `frame` what this partition may have.
    pub fn lower_max_bytes(&self, frame: &mut [u8], most: i32) {
        if self.max_bytes > most {
            put_int32(frame, self.max_bytes_at, most);
        }
    }
}

fn put_int32(frame: &mut [u8], at: usize, value: i32) {
    let place = frame.get_mut(at..).and_then(|rest| rest.first_chunk_mut());
    if let Some(place) = place {
        *place = value.to_be_bytes();
    }
}

/// A topic as requests and responses of `version` name it.
pub(super) fn read_key<'a>(r: &mut Reader<'a>, version: i16) -> Result<TopicKey<'a>, Malformed> {
    if version >= FIRST_TOPIC_ID_VERSION {
        return r.array("topic_id").map(TopicKey::Id);
    }
    r.string(version >= FIRST_FLEXIBLE_VERSION, "topic")?
        .map(TopicKey::Name)
        .ok_or(Malformed::new("topic", Reason::NegativeLength))
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
mod tests {
    use kafka_protocol::messages::fetch_request::{
        FetchPartition, FetchTopic, ForgottenTopic, ReplicaState,
    };
    use kafka_protocol::messages::{ApiKey, BrokerId, FetchRequest, RequestHeader, TopicName};
    use kafka_protocol::protocol::{Encodable, StrBytes};
    use uuid::Uuid;

    use super::*;

    fn id(n: u8) -> Uuid {
        Uuid::from_bytes([n; 16])
    }

    fn name(n: u8) -> TopicName {
        TopicName(StrBytes::from_string(format!("topic-{n}")))
    }

    fn request(version: i16, replica: i32) -> FetchRequest {
        let topic = |n: u8| {
            let partitions = (0..2).map(|p| {
                FetchPartition::default()
                    .with_partition(p)
                    .with_fetch_offset(1_000 * i64::from(n) + i64::from(p))
                    .with_partition_max_bytes(1 << 20)
            });
            let topic = FetchTopic::default().with_partitions(partitions.collect());
            if version >= 13 {
                topic.with_topic_id(id(n))
            } else {
                topic.with_topic(name(n))
            }
        };
        let mut request = FetchRequest::default()
            .with_max_wait_ms(500)
            .with_min_bytes(1)
            .with_max_bytes(50 << 20)
            .with_isolation_level(i8::from(version >= 4))
            .with_topics(vec![topic(1), topic(2)]);
        if version >= 7 {
            let forgotten = ForgottenTopic::default().with_partitions(vec![7, 8]);
            let forgotten = if version >= 13 {
                forgotten.with_topic_id(id(3))
            } else {
                forgotten.with_topic(name(3))
            };
            request = request
                .with_session_id(4_711)
                .with_session_epoch(5)
                .with_forgotten_topics_data(vec![forgotten]);
        }
        if version >= 11 {
            request = request.with_rack_id(StrBytes::from_static_str("rack"));
        }
        if version >= 15 {
            let state = ReplicaState::default().with_replica_id(BrokerId(replica));
            request.with_replica_state(state)
        } else {
            request.with_replica_id(BrokerId(replica))
        }
    }

    fn frame(request: &FetchRequest, version: i16) -> Vec<u8> {
        let mut body = bytes::BytesMut::new();
        RequestHeader::default()
            .with_request_api_key(ApiKey::Fetch as i16)
            .with_request_api_version(version)
            .with_client_id(Some(StrBytes::from_static_str("consumer")))
            .encode(&mut body, ApiKey::Fetch.request_header_version(version))
            .unwrap();
        request.encode(&mut body, version).unwrap();
        let mut frame = (body.len() as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&body);
        frame
    }

    #[test]
    fn what_an_encoder_wrote_is_read_and_lowered_in_place_and_nothing_else_changes() {
        for version in 4..=18 {
            let written = request(version, -1);
            let original = frame(&written, version);
            let layout = Layout::read(&original, version).unwrap();
            assert_eq!(layout.replica_id, -1, "{version}");
            assert_eq!(layout.max_bytes, 50 << 20);
            assert_eq!(layout.isolation_level, 1);
            let of = |topic: &TopicEntry| layout.topic_key(&original, topic).unwrap();
            let expected = |n: u8| match version {
                13.. => TopicKey::Id([n; 16]),
                _ => TopicKey::Name(match n {
                    1 => b"topic-1",
                    2 => b"topic-2",
                    _ => b"topic-3",
                }),
            };
            let keys: Vec<_> = layout.topics.iter().map(of).collect();
            assert_eq!(keys, [expected(1), expected(2)], "{version}");
            let offsets: Vec<_> = layout
                .partitions
                .iter()
                .map(|entry| (entry.index, entry.fetch_offset, entry.max_bytes))
                .collect();
            let max = 1 << 20;
            assert_eq!(
                offsets,
                [
                    (0, 1_000, max),
                    (1, 1_001, max),
                    (0, 2_000, max),
                    (1, 2_001, max)
                ]
            );
            if version >= 7 {
                assert_eq!((layout.session_id, layout.session_epoch), (4_711, 5));
                assert_eq!(of(&layout.forgotten[0]), expected(3));
                assert_eq!(layout.forgotten_partitions, [7, 8]);
            }
            let mut lowered = original.clone();
            layout.lower_max_bytes(&mut lowered, 1_000_000);
            layout.partitions[2].lower_max_bytes(&mut lowered, 65_536);
            // Not raised.
            layout.partitions[3].lower_max_bytes(&mut lowered, i32::MAX);
            let mut expected = written.clone();
            expected.max_bytes = 1_000_000;
            expected.topics[1].partitions[0].partition_max_bytes = 65_536;
            assert_eq!(lowered, frame(&expected, version), "{version}");
        }
    }

    #[test]
    fn a_follower_is_told_from_a_consumer() {
        for version in 4..=18 {
            let frame = frame(&request(version, 2), version);
            assert_eq!(Layout::read(&frame, version).unwrap().replica_id, 2);
        }
    }

    #[test]
    fn no_prefix_and_no_flipped_byte_panics() {
        for version in [0, 4, 7, 12, 13, 18] {
            let mut written = request(version.max(4), -1);
            if version < 4 {
                written = written.with_isolation_level(0).with_max_bytes(0x7fff_ffff);
            }
            let frame = frame(&written, version.max(4));
            for end in 0..frame.len() {
                assert!(Layout::read(&frame[..end], version.max(4)).is_err());
            }
            for at in 12..frame.len() {
                for bits in [0xff, 0x80, 0x01] {
                    let mut changed = frame.clone();
                    changed[at] ^= bits;
                    let _ = Layout::read(&changed, version);
                }
            }
        }
    }

    #[test]
    fn a_count_that_lies_is_refused_without_memory_for_it() {
        let mut frame = frame(&request(4, -1), 4);
        // The count of topics stands behind header, four fields and the isolation level.
        let at = 12 + 2 + 8 + 4 * 4 + 1;
        frame[at..at + 4].copy_from_slice(&i32::MAX.to_be_bytes());
        assert_eq!(
            Layout::read(&frame, 4).unwrap_err().reason,
            Reason::ImpossibleCount
        );
    }
}
