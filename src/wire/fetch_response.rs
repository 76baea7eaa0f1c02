//! A Fetch response as a layout over its own bytes, so that partitions can be given other records: spliced from the
//! original bytes, with nothing copied that stays.
//!
//! Versions 4–18.

use std::ops::Range;

use bytes::Bytes;

use super::addresses::{self, AddressBook, TailKind};
use super::fetch_request::{FIRST_FLEXIBLE_VERSION, FIRST_SESSION_VERSION, TopicEntry, read_key};
use super::produce::{MOST_ENTRIES, TopicKey};
use super::splice::{Piece, Pieces, chain_bytes};
use super::{Malformed, Reader, Reason, Writer, api};

/// From this version on the response names the brokers of new leaders (KIP-951).
const FIRST_ENDPOINTS_VERSION: i16 = 16;

/// A transaction that was aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted {
    /// `producer_id`
    pub producer_id: i64,
    /// `first_offset`
    pub first_offset: i64,
}

/// One partition entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionEntry {
    /// `partition_index`
    pub index: i32,
    /// `error_code`
    pub error_code: i16,
    /// Where that stands.
    error_code_at: usize,
    /// Its transactions in [`Layout::aborted`].
    pub aborted: Range<usize>,
    /// Where the length of `records` begins.
    records_at: usize,
    /// The bytes of `records`; `None` is null.
    pub records: Option<Range<usize>>,
    /// Where `records` ends.
    records_end: usize,
}

/// What a partition is given instead.
#[derive(Debug, Clone, Default)]
pub struct Replacement {
    /// Its records.
    pub records: Vec<Bytes>,
    /// Another error.
    pub error_code: Option<i16>,
}

/// Where everything stands in one response frame.
#[derive(Debug, Default)]
pub struct Layout {
    version: i16,
    /// `session_id`; 0 where there is none.
    pub session_id: i32,
    /// All topic entries, in their order.
    pub topics: Vec<TopicEntry>,
    /// All partition entries, in their order.
    pub partitions: Vec<PartitionEntry>,
    /// All aborted transactions.
    pub aborted: Vec<Aborted>,
    /// Where the response's own tagged fields begin.
    tail_at: usize,
}

impl Layout {
    /// Reads a whole frame, length prefix included.
    ///
    /// # Errors
    /// The broker's bytes are not the protocol.
    pub fn read(frame: &[u8], version: i16) -> Result<Self, Malformed> {
        let flexible = version >= FIRST_FLEXIBLE_VERSION;
        let mut layout = Self {
            version,
            ..Self::default()
        };
        let r = &mut Reader::new(frame);
        r.int32("response_length")?;
        r.int32("correlation_id")?;
        if flexible {
            r.skip_tags("response_header_tags")?;
        }
        r.int32("throttle_time_ms")?;
        if version >= FIRST_SESSION_VERSION {
            r.int16("error_code")?;
            layout.session_id = r.int32("session_id")?;
        }
        for _ in 0..layout.count(r, "responses")? {
            layout.read_topic(r)?;
        }
        layout.tail_at = r.position();
        if flexible {
            r.skip_tags("fetch_response_tags")?;
        }
        Ok(layout)
    }

    fn count(&self, r: &mut Reader<'_>, field: &'static str) -> Result<usize, Malformed> {
        let flexible = self.version >= FIRST_FLEXIBLE_VERSION;
        let count = r.count(flexible, field)?.unwrap_or(0);
        let so_far = [self.topics.len(), self.partitions.len(), self.aborted.len()];
        let so_far = so_far.into_iter().fold(0, usize::saturating_add);
        if so_far.saturating_add(count) > MOST_ENTRIES {
            return Err(Malformed::new(field, Reason::TooLong));
        }
        Ok(count)
    }

    fn read_topic(&mut self, r: &mut Reader<'_>) -> Result<(), Malformed> {
        let key_at = r.position();
        read_key(r, self.version)?;
        let key = key_at..r.position();
        let first = self.partitions.len();
        for _ in 0..self.count(r, "partitions")? {
            let partition = self.read_partition(r)?;
            self.partitions.push(partition);
        }
        if self.version >= FIRST_FLEXIBLE_VERSION {
            r.skip_tags("topic_tags")?;
        }
        self.topics.push(TopicEntry {
            key,
            partitions: first..self.partitions.len(),
        });
        Ok(())
    }

    fn read_partition(&mut self, r: &mut Reader<'_>) -> Result<PartitionEntry, Malformed> {
        let version = self.version;
        let flexible = version >= FIRST_FLEXIBLE_VERSION;
        let index = r.int32("partition_index")?;
        let error_code_at = r.position();
        let error_code = r.int16("error_code")?;
        r.int64("high_watermark")?;
        r.int64("last_stable_offset")?;
        if version >= 5 {
            r.int64("log_start_offset")?;
        }
        let aborted_at = self.aborted.len();
        for _ in 0..self.count(r, "aborted_transactions")? {
            self.aborted.push(Aborted {
                producer_id: r.int64("producer_id")?,
                first_offset: r.int64("first_offset")?,
            });
            if flexible {
                r.skip_tags("aborted_transaction_tags")?;
            }
        }
        if version >= 11 {
            r.int32("preferred_read_replica")?;
        }
        let records_at = r.position();
        let records = r.bytes(flexible, "records")?;
        let records_end = r.position();
        if flexible {
            r.skip_tags("partition_tags")?;
        }
        Ok(PartitionEntry {
            index,
            error_code,
            error_code_at,
            aborted: aborted_at..self.aborted.len(),
            records_at,
            records: records.map(|records| records_end.saturating_sub(records.len())..records_end),
            records_end,
        })
    }

    /// How the response names a topic.
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

    /// The response with what `replaced` gives to partition entries, and with the addresses that `book` has.
    ///
    /// # Errors
    /// The addresses cannot be read.
    pub fn splice(
        &self,
        frame: &Bytes,
        mut replaced: impl FnMut(usize) -> Option<Replacement>,
        book: &dyn AddressBook,
    ) -> Result<Vec<Bytes>, Malformed> {
        let flexible = self.version >= FIRST_FLEXIBLE_VERSION;
        let mut pieces = Pieces::default();
        let mut copied_to = api::PREFIX_BYTES;
        for (entry, partition) in self.partitions.iter().enumerate() {
            let Some(Replacement {
                records,
                error_code,
            }) = replaced(entry)
            else {
                continue;
            };
            if let Some(code) = error_code {
                pieces.original(copied_to..partition.error_code_at);
                pieces.made(|w| w.int16(code));
                copied_to = partition.error_code_at.saturating_add(2);
            }
            pieces.original(copied_to..partition.records_at);
            pieces.made(|w| w.count(flexible, chain_bytes(&records)));
            for bytes in records {
                pieces.brought(bytes);
            }
            copied_to = partition.records_end;
        }
        pieces.original(copied_to..self.tail_at);
        self.splice_tail(frame, &mut pieces, book)?;
        Ok(joined(frame, pieces.finish()))
    }

    fn splice_tail(
        &self,
        frame: &[u8],
        pieces: &mut Pieces,
        book: &dyn AddressBook,
    ) -> Result<(), Malformed> {
        let tail = frame.get(self.tail_at..).unwrap_or_default();
        let names_brokers = self.version >= FIRST_ENDPOINTS_VERSION
            && addresses::has_addresses(tail, TailKind::Fetch)?;
        if names_brokers {
            let tail = addresses::rewrite_tail(tail, TailKind::Fetch, book)?;
            pieces.brought(tail.into());
        } else {
            pieces.original(self.tail_at..frame.len());
        }
        Ok(())
    }
}

fn joined(frame: &Bytes, pieces: Vec<Piece>) -> Vec<Bytes> {
    let bytes = |piece| match piece {
        Piece::Original(range) => frame
            .get(range)
            .map(|part| frame.slice_ref(part))
            .unwrap_or_default(),
        Piece::Made(bytes) => bytes,
    };
    pieces.into_iter().map(bytes).collect()
}

/// A response with an error and without partitions, as a broker gives it to a request in a version with fetch sessions.
pub fn error_response(version: i16, correlation_id: i32, error_code: i16) -> Vec<u8> {
    let flexible = version >= FIRST_FLEXIBLE_VERSION;
    let mut w = Writer::frame(32);
    w.int32(correlation_id);
    if flexible {
        w.unsigned_varint(0);
    }
    w.int32(0);
    w.int16(error_code);
    w.int32(0);
    w.count(flexible, 0);
    if flexible {
        w.unsigned_varint(0);
    }
    w.into_frame()
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
mod tests {
    use bytes::BytesMut;
    use kafka_protocol::messages::fetch_response::{
        AbortedTransaction, FetchableTopicResponse, NodeEndpoint, PartitionData,
    };
    use kafka_protocol::messages::{
        ApiKey, BrokerId, FetchResponse, ProducerId, ResponseHeader, TopicName,
    };
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
    use uuid::Uuid;

    use super::*;

    struct Book;

    impl AddressBook for Book {
        fn address(&self, node_id: i32) -> (Vec<u8>, i32) {
            (b"proxy.example".to_vec(), 9_000 + node_id)
        }

        fn learn(&self, _: i32, _: &[u8], _: i32) {}
    }

    fn response(version: i16) -> FetchResponse {
        let topic = |n: u8| {
            let partitions = (0..3).map(|p| {
                let aborted = AbortedTransaction::default()
                    .with_producer_id(ProducerId(i64::from(p)))
                    .with_first_offset(10 * i64::from(n));
                PartitionData::default()
                    .with_partition_index(p)
                    .with_high_watermark(77)
                    .with_last_stable_offset(66)
                    .with_aborted_transactions((p > 0).then(|| vec![aborted; p as usize]))
                    .with_records(Some(vec![n * 16 + p as u8; 100 * p as usize].into()))
            });
            let topic = FetchableTopicResponse::default().with_partitions(partitions.collect());
            if version >= 13 {
                topic.with_topic_id(Uuid::from_bytes([n; 16]))
            } else {
                topic.with_topic(TopicName(StrBytes::from_string(format!("topic-{n}"))))
            }
        };
        let mut response = FetchResponse::default().with_responses(vec![topic(1), topic(2)]);
        if version >= 7 {
            response.session_id = 4_711;
        }
        if version >= 16 {
            let endpoint = NodeEndpoint::default()
                .with_node_id(BrokerId(3))
                .with_host(StrBytes::from_static_str("broker-3.internal.example.com"))
                .with_port(9_092);
            response = response.with_node_endpoints(vec![endpoint]);
        }
        response
    }

    fn frame(response: &FetchResponse, version: i16) -> Bytes {
        let mut body = BytesMut::new();
        ResponseHeader::default()
            .with_correlation_id(9)
            .encode(&mut body, ApiKey::Fetch.response_header_version(version))
            .unwrap();
        response.encode(&mut body, version).unwrap();
        let mut frame = BytesMut::from(&(body.len() as u32).to_be_bytes()[..]);
        frame.extend_from_slice(&body);
        frame.freeze()
    }

    fn decoded(frame: &Bytes, version: i16) -> FetchResponse {
        assert_eq!(
            frame.len(),
            4 + u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize
        );
        let mut body = frame.slice(4..);
        let header_version = ApiKey::Fetch.response_header_version(version);
        let header = ResponseHeader::decode(&mut body, header_version).unwrap();
        assert_eq!(header.correlation_id, 9);
        let response = FetchResponse::decode(&mut body, version).unwrap();
        assert!(body.is_empty());
        response
    }

    #[test]
    fn partitions_get_other_records_and_everything_else_stays() {
        for version in 4..=18 {
            let written = response(version);
            let original = frame(&written, version);
            let layout = Layout::read(&original, version).unwrap();
            assert_eq!(layout.partitions.len(), 6, "{version}");
            let aborted: Vec<i64> = layout.aborted[layout.partitions[2].aborted.clone()]
                .iter()
                .map(|aborted| aborted.producer_id)
                .collect();
            assert_eq!(aborted, [2, 2]);
            let records = layout.partitions[4].records.clone().unwrap();
            assert_eq!(&original[records], [33; 100]);
            let replaced = |entry| match entry {
                1 => Some(Replacement {
                    records: vec![
                        Bytes::from_static(b"other "),
                        Bytes::from(vec![b'x'; 40_000]),
                    ],
                    error_code: None,
                }),
                5 => Some(Replacement {
                    records: Vec::new(),
                    error_code: Some(100),
                }),
                _ => None,
            };
            let spliced = layout.splice(&original, replaced, &Book).unwrap();
            let mut expected = written;
            let other = [b"other ".to_vec(), vec![b'x'; 40_000]].concat();
            expected.responses[0].partitions[1].records = Some(other.into());
            expected.responses[1].partitions[2].records = Some(Bytes::new());
            expected.responses[1].partitions[2].error_code = 100;
            for endpoint in &mut expected.node_endpoints {
                endpoint.host = StrBytes::from_static_str("proxy.example");
                endpoint.port = 9_003;
            }
            let spliced: Bytes = spliced.concat().into();
            assert_eq!(decoded(&spliced, version), expected, "{version}");
        }
    }

    #[test]
    fn no_prefix_and_no_flipped_byte_panics() {
        for version in [4, 7, 12, 13, 18] {
            let frame = frame(&response(version), version);
            for end in 0..frame.len() {
                assert!(
                    Layout::read(&frame[..end], version).is_err(),
                    "{version} {end}"
                );
            }
            for at in 8..frame.len() {
                for bits in [0xff, 0x80, 0x01] {
                    let mut changed = BytesMut::from(&frame[..]);
                    changed[at] ^= bits;
                    let changed = changed.freeze();
                    if let Ok(layout) = Layout::read(&changed, version) {
                        let _ = layout.splice(&changed, |_| Some(Replacement::default()), &Book);
                    }
                }
            }
        }
    }

    #[test]
    fn an_error_is_read_as_one_by_whoever_asked() {
        for version in 7..=18 {
            let frame: Bytes = error_response(version, 9, 70).into();
            let response = decoded(&frame, version);
            assert_eq!((response.error_code, response.session_id), (70, 0));
            assert!(response.responses.is_empty());
        }
    }
}
