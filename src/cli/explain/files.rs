//! A record out of files: `--value-file`, `--key-file`, and what a codec makes of it.

use std::path::Path;

use crate::batch::put_varint;
use crate::codec::{Encoder, Encoding};
use crate::policy::Library;
use crate::vocabulary::Codec;
use crate::wire::record_batch::BATCH_HEADER_BYTES;

/// No record is larger, and a mistyped device never ends.
const MOST_BYTES: u64 = i32::MAX as u64;

/// What a record holds.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) key: Option<Vec<u8>>,
    pub(super) value: Option<Vec<u8>>,
}

/// All of a file.
///
/// # Errors
/// In words.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read;
    let named = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(named)?;
    file.take(MOST_BYTES.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(named)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(format!("{}: no record is that large", path.display()));
    }
    Ok(bytes)
}

/// Bytes of a batch of so many such records, compressed as the library's producer does it: snappy's framing differs, and
/// some send uncompressed what does not shrink.
///
/// # Errors
/// In words.
pub(super) fn compressed_bytes(
    content: &Content,
    records: u32,
    codec: Codec,
    library: Library,
) -> Result<Option<u64>, String> {
    let encoding = match (codec, library) {
        (Codec::None, _) => return Ok(None),
        (
            Codec::Snappy,
            Library::Java | Library::KafkaPython | Library::Aiokafka | Library::Kafkajs,
        ) => Encoding::SnappyXerial,
        (codec, _) => Encoding::of(codec, &[]),
    };
    let failed = |_| format!("{codec} cannot compress that");
    let mut encoder = Encoder::new(encoding).map_err(failed)?;
    let mut plain = 0u64;
    for delta in 0..records {
        let record = encoded(content, delta);
        plain = plain.saturating_add(record.len() as u64);
        encoder.write(&record).map_err(failed)?;
    }
    let compressed = encoder.finish().map_err(failed)?.len() as u64;
    if library.compresses_what_shrinks() && compressed >= plain {
        return Ok(None);
    }
    Ok(Some(compressed.saturating_add(BATCH_HEADER_BYTES as u64)))
}

/// A record without headers.
fn encoded(content: &Content, delta: u32) -> Vec<u8> {
    let int32 = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    // Attributes, a timestamp delta of 0.
    let mut body = vec![0, 0];
    put_varint(&mut body, i32::try_from(delta).unwrap_or(i32::MAX));
    for part in [&content.key, &content.value] {
        match part {
            None => put_varint(&mut body, -1),
            Some(bytes) => {
                put_varint(&mut body, int32(bytes.len()));
                body.extend_from_slice(bytes);
            }
        }
    }
    put_varint(&mut body, 0);
    let mut record = Vec::new();
    put_varint(&mut record, int32(body.len()));
    record.extend_from_slice(&body);
    record
}
