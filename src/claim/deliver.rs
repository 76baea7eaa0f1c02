//! A batch as a consumer gets it: originals in the place of tickets, without the records that went to the fallback topic,
//! cut behind a record.
//!
//! Spliced like everything else here. It goes out uncompressed whatever it was: what was offloaded is large, and its
//! reader waits. A batch that is not cut keeps its last offset even if its last record is gone, as on a compacted topic;
//! one that is cut ends with the last record that was dealt with.

use bytes::Bytes;

use super::chain::Chain;
use super::open::OpenBatch;
use super::rewrite::{Edit, Mark, RewriteError, part, seal_with, splice_record};
use crate::batch::{RecordParts, put_varint};
use crate::wire::Reader;

/// The attributes' bits for the codec.
const CODEC_BITS: i16 = 0x07;

/// What becomes of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// Its original value comes back, and our header goes.
    Redeemed(Bytes),
    /// It is left out: the fallback topic has it.
    LeftOut,
    /// Its ticket goes out, with this header behind all others (encoded, lengths included).
    Explained(Bytes),
}

/// A header as a record bears it.
pub fn encoded_header(name: &str, value: &str) -> Bytes {
    let mut out = Vec::new();
    for field in [name, value] {
        put_varint(&mut out, i32::try_from(field.len()).unwrap_or(i32::MAX));
        out.extend_from_slice(field.as_bytes());
    }
    out.into()
}

/// The first `records` records of a batch with these fates, by ascending record; what has none stays as it is.
///
/// # Errors
/// See [`RewriteError`].
pub fn deliver(
    batch: &OpenBatch,
    records: u32,
    fates: &[(u32, Fate)],
) -> Result<Vec<Bytes>, RewriteError> {
    let all = batch.records();
    let mut fates = fates.iter().peekable();
    let mut chain = Chain::default();
    let mut copied_to = 0;
    let mut header = *batch.header();
    let mut count = 0i32;
    for (record, parts) in batch.parts() {
        if record >= records {
            header.last_offset_delta = last_delta(batch, records)?;
            chain.share(part(all, copied_to..parts.record.start)?);
            copied_to = all.len();
            break;
        }
        let Some((_, fate)) = fates.next_if(|(of, _)| *of == record) else {
            count = count.saturating_add(1);
            continue;
        };
        chain.share(part(all, copied_to..parts.record.start)?);
        copied_to = parts.record.end;
        let edit = match fate {
            Fate::LeftOut => continue,
            Fate::Redeemed(value) => Edit {
                record,
                value: value.clone(),
                mark: Mark::Removed,
            },
            Fate::Explained(header) => Edit {
                record,
                value: part(all, parts.value.clone().ok_or(RewriteError::Mismatch)?)?,
                mark: Mark::Added(header.clone()),
            },
        };
        count = count.saturating_add(1);
        splice_record(&mut chain, all, &parts, edit)?;
    }
    if fates.peek().is_some() {
        return Err(RewriteError::Mismatch);
    }
    chain.share(part(all, copied_to..all.len())?);
    header.attributes &= !CODEC_BITS;
    header.records_count = count;
    seal_with(header, chain.finish())
}

/// The offset delta of the last of the first `records` records.
fn last_delta(batch: &OpenBatch, records: u32) -> Result<i32, RewriteError> {
    let last = records.checked_sub(1).ok_or(RewriteError::Mismatch)?;
    let (_, parts) = batch
        .parts()
        .find(|(record, _)| *record == last)
        .ok_or(RewriteError::Mismatch)?;
    offset_delta(batch.records(), &parts).ok_or(RewriteError::Mismatch)
}

/// A record's offset, relative to its batch's.
pub fn offset_delta(records: &[u8], parts: &RecordParts) -> Option<i32> {
    let head = records.get(parts.head.clone())?;
    // Attributes, and a VARLONG.
    let behind = head.get(1..)?;
    let timestamp_bytes = behind.iter().position(|byte| byte & 0x80 == 0)?;
    let delta = behind.get(timestamp_bytes.checked_add(1)?..)?;
    Reader::new(delta).varint("offset_delta").ok()
}
