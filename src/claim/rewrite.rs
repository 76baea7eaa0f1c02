//! A batch with other values in some of its records: spliced, never built again.
//!
//! Copied as they are: base offset, leader epoch, magic, attributes, last offset delta, both timestamps, producer id and
//! epoch, base sequence, record count; and of each record attributes, timestamp delta, offset delta, key and headers.
//! New are the batch's length and checksum, and of a record that changes its length, its value and our own header.
//! Building again from records would lose what they do not say: the last offset of a compacted tail, for one, and a
//! consumer would fetch the same batch for ever.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

use super::chain::Chain;
use super::issue::SignedTicket;
use super::keys::{Keys, MARK_HEADER, Refuted};
use super::open::OpenBatch;
use super::place::{Namespace, Place};
use super::plan::Plan;
use super::ticket::Ticket;
use crate::batch::{BatchHeader, Checksum, Headers, RecordParts, put_varint};
use crate::codec::{EncodeError, Encoder, Encoding};
use crate::wire::record_batch::{ATTRIBUTES_AT, BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES};

/// Why a batch cannot be rewritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RewriteError {
    /// A record or the batch would have more bytes than its length can say.
    TooLarge,
    /// What is to be put in does not fit what is there: not as many tickets as planned, no ticket in that record.
    Mismatch,
    /// The encoder failed.
    Encode,
}

impl fmt::Display for RewriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLarge => "too large for a batch",
            Self::Mismatch => "not what was planned",
            Self::Encode => "cannot be compressed",
        })
    }
}

impl std::error::Error for RewriteError {}

impl From<EncodeError> for RewriteError {
    fn from(_: EncodeError) -> Self {
        Self::Encode
    }
}

/// A record that bears the mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its index in the batch.
    pub record: u32,
    /// Its ticket and where the object is, or why it is not one of ours.
    pub ticket: Result<(Ticket, Place), Refuted>,
}

/// All records that bear the mark, judged for their topic.
pub fn tickets<'a>(
    batch: &'a OpenBatch,
    topic: &'a str,
    namespace: &'a Namespace,
    keys: &'a Keys,
) -> impl Iterator<Item = Found> + 'a {
    tickets_from(0, batch, topic, namespace, keys)
}

/// The same, from this record on.
pub fn tickets_from<'a>(
    first: u32,
    batch: &'a OpenBatch,
    topic: &'a str,
    namespace: &'a Namespace,
    keys: &'a Keys,
) -> impl Iterator<Item = Found> + 'a {
    let parts = batch.parts().filter(move |(record, _)| *record >= first);
    parts.filter_map(move |(record, parts)| {
        let ticket = judge(batch.records(), &parts, topic, namespace, keys).transpose()?;
        Some(Found { record, ticket })
    })
}

/// `None`: the record does not bear the mark.
pub(super) fn judge(
    records: &[u8],
    parts: &RecordParts,
    topic: &str,
    namespace: &Namespace,
    keys: &Keys,
) -> Result<Option<(Ticket, Place)>, Refuted> {
    let Some(marked) = Marked::find(records, parts)? else {
        return Ok(None);
    };
    let bytes = |range: Range<usize>| records.get(range);
    let value = parts
        .value
        .clone()
        .and_then(bytes)
        .ok_or(Refuted::NotATicket)?;
    let ticket = Ticket::from_json(value).map_err(|_| Refuted::NotATicket)?;
    let mark = marked.mark.and_then(bytes).ok_or(Refuted::Malformed)?;
    keys.verify(namespace.cluster(), topic, &ticket, mark)?;
    let place = namespace
        .find(topic, &ticket.uri, ticket.form, &ticket.sha256)
        .map_err(|_| Refuted::ForeignUri)?;
    Ok(Some((ticket, place)))
}

/// Our header in a record.
struct Marked {
    header: Range<usize>,
    mark: Option<Range<usize>>,
}

impl Marked {
    /// # Errors
    /// There is more than one.
    fn find(records: &[u8], parts: &RecordParts) -> Result<Option<Self>, Refuted> {
        let headers = Headers::of(parts, records);
        let mut marked = headers
            .clone()
            .filter(|header| headers.bytes(&header.name) == MARK_HEADER.as_bytes());
        match (marked.next(), marked.next()) {
            (None, _) => Ok(None),
            (Some(header), None) => Ok(Some(Self {
                header: header.header,
                mark: header.value,
            })),
            _ => Err(Refuted::Malformed),
        }
    }
}

/// The batch with the planned records' tickets in place of their values; one ticket for each claim, in their order.
///
/// # Errors
/// See [`RewriteError`].
pub fn offload(
    batch: &OpenBatch,
    plan: &Plan,
    tickets: &[SignedTicket],
) -> Result<Vec<Bytes>, RewriteError> {
    if plan.claims.len() != tickets.len() {
        return Err(RewriteError::Mismatch);
    }
    let edits = plan.claims.iter().zip(tickets).map(|(claim, ticket)| Edit {
        record: claim.record,
        value: ticket.value.clone(),
        mark: Mark::Added(ticket.header.clone()),
    });
    rewrite(batch, edits)
}

/// The batch with original values in place of their tickets, and without our own header; by ascending record.
///
/// # Errors
/// See [`RewriteError`].
pub fn redeem(batch: &OpenBatch, originals: &[(u32, Bytes)]) -> Result<Vec<Bytes>, RewriteError> {
    let edits = originals.iter().map(|(record, value)| Edit {
        record: *record,
        value: value.clone(),
        mark: Mark::Removed,
    });
    rewrite(batch, edits)
}

/// What changes in one record.
pub(super) struct Edit {
    pub(super) record: u32,
    pub(super) value: Bytes,
    pub(super) mark: Mark,
}

/// What becomes of our header.
pub(super) enum Mark {
    /// It is added behind all others, encoded like this.
    Added(Bytes),
    /// It goes.
    Removed,
}

/// Edits must come in the order of their records.
fn rewrite(
    batch: &OpenBatch,
    edits: impl Iterator<Item = Edit>,
) -> Result<Vec<Bytes>, RewriteError> {
    let records = splice(batch, edits)?;
    let payload = match batch.encoding() {
        Encoding::None => records,
        encoding => {
            let mut encoder = Encoder::new(encoding)?;
            for piece in &records {
                encoder.write(piece)?;
            }
            vec![encoder.finish()?.into()]
        }
    };
    seal(batch, payload)
}

/// Puts the header in front: as it was, but for length and checksum.
fn seal(batch: &OpenBatch, payload: Vec<Bytes>) -> Result<Vec<Bytes>, RewriteError> {
    seal_with(*batch.header(), payload)
}

/// Puts this header in front, with the length and the checksum of what follows.
pub(super) fn seal_with(
    mut header: BatchHeader,
    mut payload: Vec<Bytes>,
) -> Result<Vec<Bytes>, RewriteError> {
    let payload_bytes = payload
        .iter()
        .fold(0usize, |sum, piece| sum.saturating_add(piece.len()));
    let behind_length = BATCH_HEADER_BYTES
        .saturating_sub(LOG_OVERHEAD_BYTES)
        .saturating_add(payload_bytes);
    header.batch_length = i32::try_from(behind_length).map_err(|_| RewriteError::TooLarge)?;
    let mut checksum = Checksum::new();
    checksum.add(header.write().get(ATTRIBUTES_AT..).unwrap_or_default());
    for piece in &payload {
        checksum.add(piece);
    }
    header.crc = checksum.value();
    payload.insert(0, Bytes::copy_from_slice(&header.write()));
    Ok(payload)
}

/// The records, uncompressed, with the edits in them.
fn splice(
    batch: &OpenBatch,
    edits: impl Iterator<Item = Edit>,
) -> Result<Vec<Bytes>, RewriteError> {
    let records = batch.records();
    let mut edits = edits.peekable();
    let mut chain = Chain::default();
    // What comes between two records that change is one piece.
    let mut copied_to = 0;
    for (record, parts) in batch.parts() {
        if edits.peek().is_none() {
            break;
        }
        let Some(edit) = edits.next_if(|edit| edit.record == record) else {
            continue;
        };
        chain.share(part(records, copied_to..parts.record.start)?);
        splice_record(&mut chain, records, &parts, edit)?;
        copied_to = parts.record.end;
    }
    if edits.peek().is_some() {
        return Err(RewriteError::Mismatch);
    }
    chain.share(part(records, copied_to..records.len())?);
    Ok(chain.finish())
}

pub(super) fn splice_record(
    chain: &mut Chain,
    records: &Bytes,
    parts: &RecordParts,
    edit: Edit,
) -> Result<(), RewriteError> {
    let Edit { value, mark, .. } = edit;
    let (kept, added) = match mark {
        Mark::Added(header) => ([parts.headers.clone(), 0..0], Some(header)),
        Mark::Removed => {
            let marked = Marked::find(records, parts).ok().flatten();
            let gone = marked.ok_or(RewriteError::Mismatch)?.header;
            (
                [parts.headers.start..gone.start, gone.end..parts.headers.end],
                None,
            )
        }
    };
    let headers_count = match &added {
        Some(_) => parts.headers_count.saturating_add(1),
        None => parts.headers_count.saturating_sub(1),
    };
    let mut value_length = Vec::with_capacity(5);
    put_varint(&mut value_length, int32(value.len())?);
    let mut count = Vec::with_capacity(5);
    put_varint(&mut count, int32(headers_count as usize)?);
    // Attributes, timestamp delta, offset delta and the key stand in one piece.
    let front = parts.head.start..parts.value_field.start;
    let body_bytes = [
        front.len(),
        value_length.len(),
        value.len(),
        count.len(),
        kept.iter()
            .fold(0, |sum, range| sum.saturating_add(range.len())),
        added.as_ref().map_or(0, Bytes::len),
    ]
    .into_iter()
    .fold(0usize, usize::saturating_add);
    let length = int32(body_bytes)?;
    chain.write(|out| put_varint(out, length));
    chain.share(part(records, front)?);
    chain.copy(&value_length);
    chain.share(value);
    chain.copy(&count);
    for range in kept {
        chain.share(part(records, range)?);
    }
    if let Some(header) = added {
        chain.share(header);
    }
    Ok(())
}

/// A range of the records, shared.
pub(super) fn part(records: &Bytes, range: Range<usize>) -> Result<Bytes, RewriteError> {
    let part = records.get(range).ok_or(RewriteError::Mismatch)?;
    Ok(records.slice_ref(part))
}

fn int32(n: usize) -> Result<i32, RewriteError> {
    i32::try_from(n).map_err(|_| RewriteError::TooLarge)
}
