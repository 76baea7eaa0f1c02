//! Record batches (magic 2) built by hand, so that every byte and every lie in them is the test's own.

use std::io::Write;

use bytes::Bytes;
pub use sizegate::vocabulary::Codec;

/// Bytes of a batch before its records.
pub const HEADER_BYTES: usize = 61;

/// One record of a batch.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// `None` is a null key.
    pub key: Option<Vec<u8>>,
    /// `None` is a null value.
    pub value: Option<Vec<u8>>,
    /// Name and value.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
    /// Milliseconds after the batch's base timestamp.
    pub timestamp_delta: i64,
}

impl Record {
    /// A record with a null key.
    pub fn value(value: impl Into<Vec<u8>>) -> Self {
        Self {
            value: Some(value.into()),
            ..Self::default()
        }
    }

    /// A record of so many 'A's, null key.
    pub fn of_a(value_bytes: usize) -> Self {
        Self::value(vec![b'A'; value_bytes])
    }

    /// A record of so many seeded random bytes, null key: nothing compresses it.
    pub fn of_random(value_bytes: usize, seed: u64) -> Self {
        Self::value(random(value_bytes, seed))
    }

    /// With a key.
    pub fn key(mut self, key: impl Into<Vec<u8>>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// With one more header.
    pub fn header(mut self, name: &str, value: impl Into<Vec<u8>>) -> Self {
        self.headers.push((name.to_string(), Some(value.into())));
        self
    }

    /// As encoded at `offset_delta`, its length varint included: what the record gate measures.
    pub fn encode(&self, offset_delta: i32) -> Vec<u8> {
        let mut body = vec![0];
        put_varint(&mut body, self.timestamp_delta);
        put_varint(&mut body, i64::from(offset_delta));
        put_bytes(&mut body, self.key.as_deref());
        put_bytes(&mut body, self.value.as_deref());
        put_varint(&mut body, self.headers.len() as i64);
        for (name, value) in &self.headers {
            put_bytes(&mut body, Some(name.as_bytes()));
            put_bytes(&mut body, value.as_deref());
        }
        let mut record = Vec::with_capacity(body.len() + 5);
        put_varint(&mut record, body.len() as i64);
        record.extend_from_slice(&body);
        record
    }
}

/// Seeded noise (xorshift*): the same bytes for the same seed, everywhere.
pub fn random(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        out.extend_from_slice(&state.wrapping_mul(0x2545_F491_4F6C_DD1D).to_le_bytes());
    }
    out.truncate(len);
    out
}

/// A batch in the making: sound unless told otherwise.
#[derive(Debug, Clone)]
pub struct Batch {
    records: Vec<Record>,
    codec: Codec,
    base_offset: i64,
    magic: i8,
    attributes: i16,
    producer_id: i64,
    producer_epoch: i16,
    base_sequence: i32,
    base_timestamp: i64,
    count: Option<i32>,
    payload: Option<Vec<u8>>,
    length: Option<i32>,
    crc_wrong: bool,
    trailing: Vec<u8>,
}

/// A sound batch of these records: codec none, no producer id.
pub fn batch(records: impl IntoIterator<Item = Record>) -> Batch {
    Batch {
        records: records.into_iter().collect(),
        codec: Codec::None,
        base_offset: 0,
        magic: 2,
        attributes: 0,
        producer_id: -1,
        producer_epoch: -1,
        base_sequence: -1,
        base_timestamp: 1_700_000_000_000,
        count: None,
        payload: None,
        length: None,
        crc_wrong: false,
        trailing: Vec::new(),
    }
}

/// An uncompressed batch with exactly so many wire bytes (69 at least): one record, or two where the length
/// varints leave a hole (no record has 8,194 bytes: a body of 8,191 makes 8,193, one of 8,192 makes 8,195).
pub fn batch_of_bytes(wire_bytes: usize) -> Batch {
    for first in [vec![], vec![Record::of_a(1)]] {
        for overhead in HEADER_BYTES + 7..HEADER_BYTES + 32 {
            let Some(value_bytes) = wire_bytes.checked_sub(overhead) else {
                continue;
            };
            let mut records = first.clone();
            records.push(Record::of_a(value_bytes));
            let batch = batch(records);
            if batch.uncompressed_bytes() == wire_bytes {
                return batch;
            }
        }
    }
    panic!("no batch of {wire_bytes} bytes");
}

impl Batch {
    /// Compresses the records: one gzip member, raw snappy, one lz4 frame, one zstd frame.
    pub fn codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self
    }

    /// As an idempotent producer would send it.
    pub fn producer(mut self, id: i64, epoch: i16, base_sequence: i32) -> Self {
        (self.producer_id, self.producer_epoch, self.base_sequence) = (id, epoch, base_sequence);
        self
    }

    /// Part of a transaction.
    pub fn transactional(mut self) -> Self {
        self.attributes |= 1 << 4;
        self
    }

    /// The time of the first record, in milliseconds.
    pub fn base_timestamp(mut self, millis: i64) -> Self {
        self.base_timestamp = millis;
        self
    }

    /// A base offset other than 0, which a broker refuses.
    pub fn base_offset(mut self, base_offset: i64) -> Self {
        self.base_offset = base_offset;
        self
    }

    /// A magic other than 2.
    pub fn magic(mut self, magic: i8) -> Self {
        self.magic = magic;
        self
    }

    /// Attribute bits to set beside the codec's.
    pub fn attributes(mut self, bits: i16) -> Self {
        self.attributes |= bits;
        self
    }

    /// A record count that need not be true.
    pub fn count(mut self, count: i32) -> Self {
        self.count = Some(count);
        self
    }

    /// These bytes in place of the (compressed) records.
    pub fn payload(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = Some(payload.into());
        self
    }

    /// A batch length field that need not be true.
    pub fn length(mut self, length: i32) -> Self {
        self.length = Some(length);
        self
    }

    /// A CRC that does not match.
    pub fn crc_wrong(mut self) -> Self {
        self.crc_wrong = true;
        self
    }

    /// Bytes behind the batch, not counted by its length field.
    pub fn trailing(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.trailing = bytes.into();
        self
    }

    /// 61 + the records before compression.
    pub fn uncompressed_bytes(&self) -> usize {
        HEADER_BYTES + self.encoded_records().len()
    }

    /// The batch's bytes: the `records` field of a Produce partition.
    pub fn build(self) -> Bytes {
        let count = self.count.unwrap_or(self.records.len() as i32);
        let payload = match &self.payload {
            Some(payload) => payload.clone(),
            None => compress(self.codec, &self.encoded_records()),
        };
        let last_delta = self
            .records
            .iter()
            .map(|record| record.timestamp_delta)
            .max()
            .unwrap_or(0);
        let codec_bits = Codec::ALL
            .iter()
            .position(|codec| *codec == self.codec)
            .unwrap() as i16;

        let mut covered = Vec::with_capacity(HEADER_BYTES + payload.len());
        covered.extend((self.attributes | codec_bits).to_be_bytes());
        covered.extend((self.records.len() as i32 - 1).to_be_bytes());
        covered.extend(self.base_timestamp.to_be_bytes());
        covered.extend((self.base_timestamp + last_delta).to_be_bytes());
        covered.extend(self.producer_id.to_be_bytes());
        covered.extend(self.producer_epoch.to_be_bytes());
        covered.extend(self.base_sequence.to_be_bytes());
        covered.extend(count.to_be_bytes());
        covered.extend(payload);
        let crc = crc32c::crc32c(&covered) ^ u32::from(self.crc_wrong);

        let mut out = Vec::with_capacity(covered.len() + 21 + self.trailing.len());
        out.extend(self.base_offset.to_be_bytes());
        // Behind the length: leader epoch 4, magic 1, CRC 4.
        out.extend(
            self.length
                .unwrap_or(covered.len() as i32 + 9)
                .to_be_bytes(),
        );
        out.extend((-1_i32).to_be_bytes());
        out.extend(self.magic.to_be_bytes());
        out.extend(crc.to_be_bytes());
        out.extend(covered);
        out.extend(self.trailing);
        Bytes::from(out)
    }

    fn encoded_records(&self) -> Vec<u8> {
        let mut records = Vec::new();
        for (i, record) in self.records.iter().enumerate() {
            records.extend_from_slice(&record.encode(i as i32));
        }
        records
    }
}

/// The records of a batch as `codec` writes them.
#[allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "not by the product's own encoders"
)]
pub fn compress(codec: Codec, plain: &[u8]) -> Vec<u8> {
    match codec {
        Codec::None => plain.to_vec(),
        Codec::Gzip => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        }
        Codec::Snappy => snap::raw::Encoder::new().compress_vec(plain).unwrap(),
        Codec::Lz4 => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        }
        Codec::Zstd => zstd::encode_all(plain, 3).unwrap(),
    }
}

/// Appends a zig-zag varint.
pub fn put_varint(out: &mut Vec<u8>, value: i64) {
    let mut rest = ((value << 1) ^ (value >> 63)) as u64;
    while rest > 0x7F {
        out.push((rest & 0x7F) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
    }
}
