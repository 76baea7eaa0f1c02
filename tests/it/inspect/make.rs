//! Makes batches: sound ones, and ones that say whatever a test wants them to say.

use std::io::Write;

use sizegate::batch::BatchHeader;
use sizegate::inspect::{DeepLimits, Effort, Inspection, Scratch, inspect};
use sizegate::policy::Codec;

/// The codecs that compress.
pub const COMPRESSED: [Codec; 4] = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];

/// One record's content; `Default` is null key, null value, no headers.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A record with a null key and this value.
pub fn value(value: impl Into<Vec<u8>>) -> Record {
    Record {
        value: Some(value.into()),
        ..Record::default()
    }
}

/// A VARINT.
pub fn varint(n: i64) -> Vec<u8> {
    let mut raw = ((n << 1) ^ (n >> 63)) as u64;
    let mut out = Vec::new();
    while raw >= 0x80 {
        out.push(raw as u8 | 0x80);
        raw >>= 7;
    }
    out.push(raw as u8);
    out
}

fn bytes_field(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => out.extend(varint(-1)),
        Some(bytes) => {
            out.extend(varint(bytes.len() as i64));
            out.extend_from_slice(bytes);
        }
    }
}

/// A record's body: what its length counts.
pub fn body(record: &Record, offset_delta: usize) -> Vec<u8> {
    let mut out = vec![0];
    out.extend(varint(0));
    out.extend(varint(offset_delta as i64));
    bytes_field(&mut out, record.key.as_deref());
    bytes_field(&mut out, record.value.as_deref());
    out.extend(varint(record.headers.len() as i64));
    for (name, value) in &record.headers {
        bytes_field(&mut out, Some(name));
        bytes_field(&mut out, value.as_deref());
    }
    out
}

/// One record as encoded.
pub fn encode(record: &Record, offset_delta: usize) -> Vec<u8> {
    let body = body(record, offset_delta);
    let mut out = varint(body.len() as i64);
    out.extend(body);
    out
}

/// Records one behind the other.
pub fn records(records: &[Record]) -> Vec<u8> {
    records
        .iter()
        .enumerate()
        .flat_map(|(i, record)| encode(record, i))
        .collect()
}

/// A batch with a right checksum around a payload that is already compressed, or is not.
pub fn batch_of(codec: Codec, payload: &[u8], count: i32) -> Vec<u8> {
    let mut out = Vec::with_capacity(61 + payload.len());
    out.extend(0i64.to_be_bytes());
    out.extend((49 + payload.len() as i32).to_be_bytes());
    out.extend((-1i32).to_be_bytes());
    out.push(2);
    out.extend(0u32.to_be_bytes());
    let id: i16 = match codec {
        Codec::None => 0,
        Codec::Gzip => 1,
        Codec::Snappy => 2,
        Codec::Lz4 => 3,
        Codec::Zstd => 4,
    };
    out.extend(id.to_be_bytes());
    out.extend((count - 1).to_be_bytes());
    out.extend(1_700_000_000_000i64.to_be_bytes());
    out.extend(1_700_000_000_000i64.to_be_bytes());
    out.extend((-1i64).to_be_bytes());
    out.extend((-1i16).to_be_bytes());
    out.extend((-1i32).to_be_bytes());
    out.extend(count.to_be_bytes());
    out.extend_from_slice(payload);
    seal(&mut out);
    out
}

/// Makes the checksum right.
pub fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

/// A sound batch.
pub fn batch(codec: Codec, content: &[Record]) -> Vec<u8> {
    batch_of(
        codec,
        &compress(codec, &records(content)),
        content.len() as i32,
    )
}

pub fn compress(codec: Codec, bytes: &[u8]) -> Vec<u8> {
    match codec {
        Codec::None => bytes.to_vec(),
        Codec::Gzip => gzip(bytes),
        Codec::Snappy => snappy_raw(bytes),
        Codec::Lz4 => lz4(bytes),
        Codec::Zstd => zstd(bytes),
    }
}

pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

pub fn snappy_raw(bytes: &[u8]) -> Vec<u8> {
    snap::raw::Encoder::new().compress_vec(bytes).unwrap()
}

pub const XERIAL_HEADER: [u8; 16] = *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01";

pub fn xerial_chunk(bytes: &[u8]) -> Vec<u8> {
    let block = snappy_raw(bytes);
    let mut out = (block.len() as u32).to_be_bytes().to_vec();
    out.extend(block);
    out
}

pub fn xerial(bytes: &[u8]) -> Vec<u8> {
    let mut out = XERIAL_HEADER.to_vec();
    for chunk in bytes.chunks(32 * 1024) {
        out.extend(xerial_chunk(chunk));
    }
    out
}

pub fn lz4(bytes: &[u8]) -> Vec<u8> {
    lz4_with(
        bytes,
        lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max64KB),
    )
}

pub fn lz4_with(bytes: &[u8], info: lz4_flex::frame::FrameInfo) -> Vec<u8> {
    let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Without content size, as most clients stream it.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// With content size.
pub fn zstd_sized(bytes: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(bytes, 3).unwrap()
}

/// Bytes that compress to about a third: repeatable, no two seeds alike.
pub fn text(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 64);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        writeln!(
            out,
            "{{\"id\":{},\"state\":\"open\",\"amount\":{}}}",
            state % 100_000,
            state % 997
        )
        .unwrap();
    }
    out.truncate(len);
    out
}

/// Bytes that do not compress.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// Inspects with a scratch of its own.
pub fn look(batch: &[u8], limits: &DeepLimits, effort: Effort) -> Inspection {
    let header = BatchHeader::read(batch).unwrap();
    inspect(&header, batch, limits, effort, &mut Scratch::new())
}

/// Inspects for a verdict.
pub fn judge(batch: &[u8], limits: &DeepLimits) -> Inspection {
    look(batch, limits, Effort::VERDICT)
}

/// All measures, no limits.
pub fn measure(batch: &[u8]) -> Inspection {
    look(batch, &DeepLimits::NONE, Effort::MEASURES)
}

/// An lz4 frame whose declared content size is `claim`, its header checksum right.
pub fn lz4_claiming(bytes: &[u8], info: lz4_flex::frame::FrameInfo, claim: u64) -> Vec<u8> {
    let mut frame = lz4_with(bytes, info.content_size(Some(bytes.len() as u64)));
    frame[6..14].copy_from_slice(&claim.to_le_bytes());
    let mut hash = twox_hash::XxHash32::with_seed(0);
    std::hash::Hasher::write(&mut hash, &frame[4..14]);
    frame[14] = (hash.finish_32() >> 8) as u8;
    frame
}
