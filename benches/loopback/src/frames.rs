//! Owns the requests a client sends: real, well-formed Produce frames, encoded once, sent many times.
//!
//! A frame is a whole request with its length prefix. Batches are magic 2 with a right CRC, uncompressed but where a
//! codec is named.

use std::io::Write as _;

use bytes::BytesMut;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::protocol::Encodable;
use uuid::Uuid;

/// The topic every frame is for.
pub const TOPIC: &str = "bench";

/// Its id.
pub const TOPIC_ID: Uuid = Uuid::from_u128(0x6265_6e63_6800_4000_8000_0000_0000_0001);

/// The topic whose large values are carried as tickets.
pub const CLAIMS_TOPIC: &str = "large";

/// Its id.
pub const CLAIMS_TOPIC_ID: Uuid = Uuid::from_u128(0x6265_6e63_6800_4000_8000_0000_0000_0002);

/// Partitions of each topic.
pub const PARTITIONS: i32 = 1024;

/// Partitions that requests for one of them are for in turn.
const TURNS: usize = 8;

/// How large a record's value is where the batch has room: a usual event.
const VALUE_BYTES: usize = 1000;

const BATCH_HEADER_BYTES: usize = 61;

/// `SnappyOutputStream`'s block, as the Java client sets it.
const XERIAL_CHUNK_BYTES: usize = 32 << 10;

/// Version of Fetch: topics by id, brokers' addresses in the tail.
pub const FETCH_VERSION: i16 = 17;

/// 2024-01-01; any time does.
const TIMESTAMP_MS: i64 = 1_704_067_200_000;

/// What the records' values hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Content {
    /// Bytes that do not compress.
    Random,
    /// JSON lines.
    Json,
}

/// How a batch's records are compressed: each as the Java client does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    None,
    Gzip,
    /// In xerial's chunks.
    Snappy,
    /// Independent blocks of 64 KiB, no checksums.
    Lz4,
    /// Without a content size.
    Zstd,
}

impl Codec {
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    pub const fn label(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    #[allow(clippy::disallowed_types, clippy::disallowed_methods)]
    fn compress(self, records: &[u8]) -> Vec<u8> {
        match self {
            Self::None => records.to_vec(),
            Self::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
                encoder.write_all(records).expect("memory takes all");
                encoder.finish().expect("memory takes all")
            }
            Self::Snappy => {
                let mut out = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
                for chunk in records.chunks(XERIAL_CHUNK_BYTES) {
                    let chunk = snap::raw::Encoder::new().compress_vec(chunk);
                    let chunk = chunk.expect("a chunk is far below 4 GiB");
                    out.extend_from_slice(&(chunk.len() as u32).to_be_bytes());
                    out.extend_from_slice(&chunk);
                }
                out
            }
            Self::Lz4 => {
                let info = lz4_flex::frame::FrameInfo::new()
                    .block_size(lz4_flex::frame::BlockSize::Max64KB)
                    .block_mode(lz4_flex::frame::BlockMode::Independent);
                let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
                encoder.write_all(records).expect("memory takes all");
                encoder.finish().expect("memory takes all")
            }
            Self::Zstd => {
                let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("a zstd encoder");
                encoder.write_all(records).expect("memory takes all");
                encoder.finish().expect("memory takes all")
            }
        }
    }
}

/// How a Produce names its topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Version {
    /// By name.
    #[value(name = "9")]
    V9,
    /// By topic id.
    #[value(name = "13")]
    V13,
}

impl Version {
    const fn number(self) -> i16 {
        match self {
            Self::V9 => 9,
            Self::V13 => 13,
        }
    }
}

/// Frames in a row, correlation ids 0, 1, 2, …, so that many of them are one slice.
pub struct Ring {
    bytes: Vec<u8>,
    frame_bytes: usize,
    count: usize,
    version: Version,
    /// Fetch, not Produce: what counts is what comes back.
    is_fetch: bool,
}

impl Ring {
    /// `count` Produce frames (acks all), each with one batch of `batch_bytes` wire bytes; partitions take turns.
    pub fn produce(count: usize, batch_bytes: usize, version: Version, content: Content) -> Self {
        Self::of(count, version, |n| batch(batch_bytes, content, n as u64))
    }

    /// As [`Ring::produce`], with these batches, which must be of one size.
    pub fn of(count: usize, version: Version, batch: impl Fn(usize) -> Vec<u8>) -> Self {
        Self::in_a_row(count, version, |n| {
            let partition = (n % TURNS) as i32;
            produce(n as i32, version, &[(partition, batch(n))])
        })
    }

    /// `count` Produce frames, each with a batch of `batch_bytes` for every one of `partitions` partitions.
    pub fn produce_to_many(
        count: usize,
        partitions: i32,
        batch_bytes: usize,
        version: Version,
        content: Content,
    ) -> Self {
        Self::in_a_row(count, version, |n| {
            let batches = (0..partitions).map(|at| (at, batch(batch_bytes, content, at as u64)));
            produce(n as i32, version, &batches.collect::<Vec<_>>())
        })
    }

    /// `count` Fetch frames, each for `records_bytes` of each of `partitions` partitions, in batches of `batch_bytes`.
    pub fn fetch(count: usize, partitions: i32, records_bytes: usize, batch_bytes: usize) -> Self {
        let one = |n| fetch(n as i32, partitions, records_bytes, batch_bytes);
        Self {
            is_fetch: true,
            ..Self::in_a_row(count, Version::V13, one)
        }
    }

    fn in_a_row(count: usize, version: Version, frame: impl Fn(usize) -> Vec<u8>) -> Self {
        let bytes = (0..count).flat_map(frame).collect::<Vec<u8>>();
        let frame_bytes = bytes.len() / count;
        assert_eq!(frame_bytes * count, bytes.len(), "frames differ in size");
        Self {
            bytes,
            frame_bytes,
            count,
            version,
            is_fetch: false,
        }
    }

    /// Its responses are what counts.
    pub const fn is_fetch(&self) -> bool {
        self.is_fetch
    }

    /// Bytes of one frame, prefix included.
    pub const fn frame_bytes(&self) -> usize {
        self.frame_bytes
    }

    /// How they name the topic.
    pub const fn version(&self) -> Version {
        self.version
    }

    /// Frames before the ids begin again.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// At most `wanted` frames from the n-th on, in one slice; fewer where the ring ends.
    pub fn frames(&self, nth: usize, wanted: usize) -> &[u8] {
        let end = (nth + wanted).min(self.count);
        &self.bytes[nth * self.frame_bytes..end * self.frame_bytes]
    }
}

/// ApiVersions v3, as a client says hello.
pub fn api_versions() -> Vec<u8> {
    let mut body = header(18, 3, 0);
    compact_string(&mut body, "loopback");
    compact_string(&mut body, "1.0.0");
    body.push(0);
    framed(&body)
}

/// Produce with one batch for each of these partitions, acks −1.
pub fn produce(correlation_id: i32, version: Version, batches: &[(i32, Vec<u8>)]) -> Vec<u8> {
    produce_to((TOPIC, TOPIC_ID), correlation_id, version, batches)
}

/// The same for any topic.
fn produce_to(
    (topic, topic_id): (&str, Uuid),
    correlation_id: i32,
    version: Version,
    batches: &[(i32, Vec<u8>)],
) -> Vec<u8> {
    let mut body = header(0, version.number(), correlation_id);
    body.push(0); // transactional_id: null
    body.extend_from_slice(&(-1i16).to_be_bytes());
    body.extend_from_slice(&30_000i32.to_be_bytes());
    body.push(2); // one topic
    match version {
        Version::V9 => compact_string(&mut body, topic),
        Version::V13 => body.extend_from_slice(topic_id.as_bytes()),
    }
    unsigned_varint(&mut body, batches.len() as u64 + 1);
    for (partition, batch) in batches {
        body.extend_from_slice(&partition.to_be_bytes());
        unsigned_varint(&mut body, batch.len() as u64 + 1);
        body.extend_from_slice(batch);
        body.push(0); // tags
    }
    body.extend_from_slice(&[0, 0]); // tags: topic, request
    framed(&body)
}

/// Where a value of [`Large`] differs from every other.
const STAMP_BYTES: usize = 16;

/// Produces of one large value each, to [`CLAIMS_TOPIC`]: no two values are the same, and only the first bytes of a frame
/// are made anew for each, so that making them takes nothing from what is measured.
pub struct Large {
    /// Up to the end of the stamp, which begins the value.
    head: Vec<u8>,
    rest: Vec<u8>,
    /// Where the batch begins in the head.
    batch_at: usize,
    /// Of what is in the rest of the batch.
    rest_crc: u32,
    rest_in_batch: usize,
    value_bytes: usize,
}

impl Large {
    /// For values of so many random bytes, to this partition.
    pub fn new(value_bytes: usize, partition: i32) -> Self {
        let value = Source::new(Content::Random, partition as u64).value(value_bytes);
        let mut records = Vec::with_capacity(value_bytes + 32);
        record(&mut records, 0, &value);
        let batch = sealed(&records, 1, 0);
        let batch_bytes = batch.len();
        let topic = (CLAIMS_TOPIC, CLAIMS_TOPIC_ID);
        let frame = produce_to(topic, 0, Version::V13, &[(partition, batch)]);
        // Behind the batch: tags of partition, topic and request.
        let batch_at = frame.len() - 3 - batch_bytes;
        // Behind the value: no headers.
        let stamp_at = batch_at + batch_bytes - 1 - value_bytes;
        let (head, rest) = frame.split_at(stamp_at + STAMP_BYTES);
        let rest_in_batch = rest.len() - 3;
        Self {
            head: head.to_vec(),
            rest_crc: crc32c::crc32c(&rest[..rest_in_batch]),
            rest: rest.to_vec(),
            batch_at,
            rest_in_batch,
            value_bytes,
        }
    }

    /// A frame in two pieces, whose value no other number has.
    pub fn frame(&mut self, correlation_id: i32, number: u128) -> [&[u8]; 2] {
        self.head[8..12].copy_from_slice(&correlation_id.to_be_bytes());
        let stamp_at = self.head.len() - STAMP_BYTES;
        self.head[stamp_at..].copy_from_slice(&number.to_be_bytes());
        let crced = crc32c::crc32c(&self.head[self.batch_at + 21..]);
        let crc = crc32c::crc32c_combine(crced, self.rest_crc, self.rest_in_batch);
        self.head[self.batch_at + 17..self.batch_at + 21].copy_from_slice(&crc.to_be_bytes());
        [&self.head, &self.rest]
    }

    /// The value alone, in two pieces.
    pub fn value(&mut self, number: u128) -> [&[u8]; 2] {
        let stamp_at = self.head.len() - STAMP_BYTES;
        self.head[stamp_at..].copy_from_slice(&number.to_be_bytes());
        let rest = self.value_bytes - STAMP_BYTES;
        [&self.head[stamp_at..], &self.rest[..rest]]
    }
}

/// Fetch of one partition of [`CLAIMS_TOPIC`], of which so many bytes are wanted.
pub fn fetch_large(correlation_id: i32, partition: i32, offset: i64, most_bytes: i32) -> Vec<u8> {
    let partition = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(most_bytes);
    let request = FetchRequest::default()
        .with_min_bytes(1)
        .with_max_wait_ms(500)
        .with_max_bytes(50 << 20);
    fetch_of(correlation_id, request, CLAIMS_TOPIC_ID, vec![partition])
}

/// Fetch 17, as a consumer of Kafka 4 sends it outside a fetch session. How large the sink's batches are is told in
/// `min_bytes`.
fn fetch(
    correlation_id: i32,
    partitions: i32,
    records_bytes: usize,
    batch_bytes: usize,
) -> Vec<u8> {
    // A consumer goes on; one that comes back is looked at more closely.
    let offset = i64::from(correlation_id) * 1_000_000;
    let partition = |index| {
        FetchPartition::default()
            .with_partition(index)
            .with_fetch_offset(offset)
            .with_partition_max_bytes(records_bytes as i32)
    };
    let request = FetchRequest::default()
        .with_min_bytes(batch_bytes as i32)
        .with_max_bytes(i32::MAX);
    let partitions = (0..partitions).map(partition).collect();
    fetch_of(correlation_id, request, TOPIC_ID, partitions)
}

/// The frame of a Fetch of one topic, outside a fetch session.
fn fetch_of(
    correlation_id: i32,
    request: FetchRequest,
    topic_id: Uuid,
    partitions: Vec<FetchPartition>,
) -> Vec<u8> {
    let topic = FetchTopic::default()
        .with_topic_id(topic_id)
        .with_partitions(partitions);
    let request = request.with_session_epoch(-1).with_topics(vec![topic]);
    let mut body = BytesMut::from(&header(1, FETCH_VERSION, correlation_id)[..]);
    request
        .encode(&mut body, FETCH_VERSION)
        .expect("a request of this version");
    framed(&body)
}

/// A magic-2 batch of exactly `batch_bytes` wire bytes (one less where a varint's growth skips that size).
pub fn batch(batch_bytes: usize, content: Content, seed: u64) -> Vec<u8> {
    compressed_batch(batch_bytes, Codec::None, content, seed)
}

/// A batch of `batch_bytes` before it is compressed.
pub fn compressed_batch(batch_bytes: usize, codec: Codec, content: Content, seed: u64) -> Vec<u8> {
    let mut source = Source::new(content, seed);
    let mut records = Vec::with_capacity(batch_bytes);
    let room = batch_bytes.saturating_sub(BATCH_HEADER_BYTES);
    let mut count = 0i32;
    while records.len() < room {
        let left = room - records.len();
        // The last two share what is left, so that none gets a sliver.
        let value_bytes = if left > 2 * (VALUE_BYTES + 16) {
            VALUE_BYTES
        } else if left > VALUE_BYTES + 16 {
            left / 2
        } else {
            largest_value(left, count)
        };
        let is_last = left <= VALUE_BYTES + 16;
        record(&mut records, count, &source.value(value_bytes));
        count += 1;
        if is_last {
            break;
        }
    }
    sealed(&codec.compress(&records), count, codec as i16)
}

/// The largest value whose record fits into `left` bytes.
fn largest_value(left: usize, offset_delta: i32) -> usize {
    (0..=left)
        .rev()
        .find(|value_bytes| record_bytes(*value_bytes, offset_delta) <= left)
        .unwrap_or(0)
}

fn record_bytes(value_bytes: usize, offset_delta: i32) -> usize {
    let body = record_body_bytes(value_bytes, offset_delta);
    varint_bytes(body as i64) + body
}

fn record_body_bytes(value_bytes: usize, offset_delta: i32) -> usize {
    // attributes, timestamp delta 0, offset delta, null key, value, no headers
    1 + 1
        + varint_bytes(offset_delta.into())
        + 1
        + varint_bytes(value_bytes as i64)
        + value_bytes
        + 1
}

fn record(out: &mut Vec<u8>, offset_delta: i32, value: &[u8]) {
    varint(out, record_body_bytes(value.len(), offset_delta) as i64);
    out.push(0);
    out.push(0);
    varint(out, offset_delta.into());
    varint(out, -1);
    varint(out, value.len() as i64);
    out.extend_from_slice(value);
    varint(out, 0);
}

/// A batch of one record whose value is `bytes` zeros, in zstd. About one byte in 32,000 is left.
pub fn zstd_bomb(bytes: usize) -> Vec<u8> {
    let mut encoder = zstd::Encoder::new(Vec::new(), 3).expect("a zstd encoder");
    let mut head = Vec::new();
    varint(&mut head, record_body_bytes(bytes, 0) as i64);
    head.extend_from_slice(&[0, 0, 0]); // attributes, deltas
    varint(&mut head, -1);
    varint(&mut head, bytes as i64);
    let zeros = vec![0; 1 << 20];
    let pieces = std::iter::repeat_n(&zeros[..], bytes / zeros.len());
    for piece in std::iter::once(&head[..])
        .chain(pieces)
        .chain([&zeros[..bytes % zeros.len() + 1]])
    {
        encoder.write_all(piece).expect("memory takes all"); // the last zero: no headers
    }
    sealed(&encoder.finish().expect("memory takes all"), 1, 4)
}

/// Header and records (compressed already, where `attributes` says so), length and CRC right.
fn sealed(records: &[u8], count: i32, attributes: i16) -> Vec<u8> {
    let mut crced = Vec::with_capacity(records.len() + 40);
    crced.extend_from_slice(&attributes.to_be_bytes());
    crced.extend_from_slice(&(count - 1).to_be_bytes());
    crced.extend_from_slice(&TIMESTAMP_MS.to_be_bytes());
    crced.extend_from_slice(&TIMESTAMP_MS.to_be_bytes());
    crced.extend_from_slice(&(-1i64).to_be_bytes()); // producer_id
    crced.extend_from_slice(&(-1i16).to_be_bytes()); // producer_epoch
    crced.extend_from_slice(&(-1i32).to_be_bytes()); // base_sequence
    crced.extend_from_slice(&count.to_be_bytes());
    crced.extend_from_slice(records);
    let mut batch = Vec::with_capacity(crced.len() + 21);
    batch.extend_from_slice(&0i64.to_be_bytes());
    batch.extend_from_slice(&(crced.len() as i32 + 9).to_be_bytes());
    batch.extend_from_slice(&(-1i32).to_be_bytes()); // partition_leader_epoch
    batch.push(2);
    batch.extend_from_slice(&crc32c::crc32c(&crced).to_be_bytes());
    batch.extend_from_slice(&crced);
    batch
}

/// Request header v2.
fn header(api_key: i16, version: i16, correlation_id: i32) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&api_key.to_be_bytes());
    body.extend_from_slice(&version.to_be_bytes());
    body.extend_from_slice(&correlation_id.to_be_bytes());
    let client_id = "loopback";
    body.extend_from_slice(&(client_id.len() as i16).to_be_bytes());
    body.extend_from_slice(client_id.as_bytes());
    body.push(0);
    body
}

fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}

fn compact_string(out: &mut Vec<u8>, text: &str) {
    unsigned_varint(out, text.len() as u64 + 1);
    out.extend_from_slice(text.as_bytes());
}

fn varint(out: &mut Vec<u8>, value: i64) {
    unsigned_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

fn varint_bytes(value: i64) -> usize {
    let mut out = Vec::new();
    varint(&mut out, value);
    out.len()
}

fn unsigned_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Makes values. Seeded: the same frames in every run.
struct Source {
    content: Content,
    state: u64,
}

impl Source {
    const fn new(content: Content, seed: u64) -> Self {
        Self {
            content,
            state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1),
        }
    }

    /// splitmix64
    const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn value(&mut self, bytes: usize) -> Vec<u8> {
        let mut value = Vec::with_capacity(bytes + 128);
        while value.len() < bytes {
            match self.content {
                Content::Random => value.extend_from_slice(&self.next().to_le_bytes()),
                Content::Json => {
                    let (id, amount) = (self.next() % 1_000_000, self.next() % 100_000);
                    let line = format!(
                        "{{\"id\":{id},\"kind\":\"order_placed\",\"currency\":\"EUR\",\"amount_cents\":{amount},\"note\":\"thank you\"}}\n"
                    );
                    value.extend_from_slice(line.as_bytes());
                }
            }
        }
        value.truncate(bytes);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_has_the_bytes_it_was_asked_for() {
        for wanted in [1024, 16 << 10, 64 << 10, 1 << 20] {
            for content in [Content::Random, Content::Json] {
                let batch = batch(wanted, content, 7);
                assert!((wanted - 1..=wanted).contains(&batch.len()), "{wanted}");
                let declared = i32::from_be_bytes(batch[8..12].try_into().unwrap());
                assert_eq!(declared as usize + 12, batch.len());
            }
        }
    }

    #[test]
    fn a_decoder_of_others_reads_the_records_of_a_batch_in_every_codec() {
        use kafka_protocol::records::RecordBatchDecoder;
        for codec in Codec::ALL {
            let bytes = compressed_batch(64 << 10, codec, Content::Json, 3);
            let mut buffer = bytes::Bytes::from(bytes);
            // It checks the CRC, too.
            let set = RecordBatchDecoder::decode(&mut buffer).unwrap();
            assert!(set.records.len() > 60, "{codec:?}");
            let mut values = set.records.iter().map(|record| record.value.as_ref());
            assert!(values.all(|value| value.unwrap().len() > 300), "{codec:?}");
        }
    }

    #[test]
    fn a_decoder_of_others_reads_large_values_that_all_differ() {
        use kafka_protocol::messages::{ProduceRequest, RequestHeader};
        use kafka_protocol::protocol::Decodable;
        use kafka_protocol::records::RecordBatchDecoder;
        let mut large = Large::new(70_000, 3);
        let mut seen = Vec::new();
        for number in [7, 8] {
            let frame = large.frame(5, number).concat();
            let mut rest = bytes::Bytes::from(frame).slice(4..);
            let header = RequestHeader::decode(&mut rest, 2).unwrap();
            assert_eq!(header.correlation_id, 5);
            let request = ProduceRequest::decode(&mut rest, 13).unwrap();
            assert!(rest.is_empty());
            let partition = &request.topic_data[0].partition_data[0];
            assert_eq!(partition.index, 3);
            let mut records = partition.records.clone().unwrap();
            // It checks the CRC, too.
            let set = RecordBatchDecoder::decode(&mut records).unwrap();
            let value = set.records[0].value.clone().unwrap();
            assert_eq!(value, large.value(number).concat());
            assert_eq!(value.len(), 70_000);
            seen.push(value);
        }
        assert_ne!(seen[0], seen[1]);
    }

    #[test]
    fn a_decoder_of_others_reads_both_versions_of_the_request() {
        use kafka_protocol::messages::{ProduceRequest, RequestHeader};
        use kafka_protocol::protocol::Decodable;
        let batch = batch(1024, Content::Random, 1);
        for version in [Version::V9, Version::V13] {
            let frame = produce(41, version, &[(5, batch.clone())]);
            let mut rest = bytes::Bytes::from(frame).slice(4..);
            let header = RequestHeader::decode(&mut rest, 2).unwrap();
            assert_eq!(header.correlation_id, 41);
            let request = ProduceRequest::decode(&mut rest, version.number()).unwrap();
            assert!(rest.is_empty());
            let topic = &request.topic_data[0];
            match version {
                Version::V9 => assert_eq!(topic.name.as_str(), TOPIC),
                Version::V13 => assert_eq!(topic.topic_id, TOPIC_ID),
            }
            assert_eq!(topic.partition_data[0].index, 5);
            assert_eq!(
                topic.partition_data[0].records.as_ref().unwrap(),
                &batch[..]
            );
        }
    }
}
