//! One partition's batch on the scales: first the batch gate, by the header alone, then what is inside.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use super::sample::Sampler;
use super::{Outcome, TopicHandle};
use crate::batch::{BATCH_HEADER_BYTES, BatchHeader};
use crate::config::Decode;
use crate::inspect::{DeepLimits, Effort, Finding, Inspection, Proof, Scratch, inspect};
use crate::policy::{BatchFacts, Codec, Gate, Size};
use crate::wire::produce::Layout;

/// Bytes behind a batch that the broker accepts and does not store (`RecordBatch.HEADER_SIZE_UP_TO_MAGIC` − 1).
const TRAILING_BYTES: usize = 16;

/// Bytes that may be decompressed for one request on its session's own turn: a millisecond of gzip, less of every
/// other codec.
pub(super) const DECODE_ON_TURN_BYTES: u64 = 400 * 1024;

/// Bytes that may be decompressed for one request in all: gzip takes 2.5 s.
const DECODE_IN_ALL_BYTES: u64 = 1024 * 1024 * 1024;

thread_local! {
    /// Decoders and their buffers, kept from batch to batch.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
    static SAMPLER: RefCell<Sampler> = RefCell::new(Sampler::default());
}

/// A batch whose verdict needs a decode too long for a session's turn.
#[derive(Debug)]
pub struct LongDecode {
    /// Entry in [`Layout::partitions`].
    pub partition_entry: usize,
    records: Range<usize>,
    header: BatchHeader,
    limits: DeepLimits,
}

/// What is known of a request from inspections off the session's turn, by partition entry.
pub type Inspected = Vec<(usize, Inspection)>;

/// Inspects what was too long for the session's turn. Runs where nobody waits for the thread.
pub fn inspect_long(frame: &[u8], decodes: &[LongDecode]) -> Inspected {
    let mut left = DECODE_IN_ALL_BYTES;
    SCRATCH.with_borrow_mut(|scratch| {
        decodes
            .iter()
            .filter_map(|decode| {
                let records = frame.get(decode.records.clone())?;
                let effort = Effort::VERDICT.decode_at_most(left);
                let inspection = inspect(&decode.header, records, &decode.limits, effort, scratch);
                left = left.saturating_sub(inspection.decoded_bytes);
                Some((decode.partition_entry, inspection))
            })
            .collect()
    })
}

/// The scales for the partitions of one request.
pub(super) struct Scales<'a> {
    pub frame: &'a [u8],
    pub layout: &'a Layout,
    pub decode: Decode,
    /// Bytes that may still be decompressed on this turn.
    pub decode_left: u64,
    pub inspected: &'a Inspected,
    pub long: Vec<LongDecode>,
}

impl Scales<'_> {
    /// Weighs the batch of one partition entry that has records.
    pub(super) fn weigh(&mut self, handle: &Arc<TopicHandle>, partition_entry: usize, records: Range<usize>) -> Outcome {
        let bytes = self.frame.get(records.clone()).unwrap_or_default();
        let Ok(header) = BatchHeader::read(bytes) else { return Outcome::Pass };
        if !self.layout.is_transactional && header.magic == 2 && header.is_transactional() {
            return Outcome::SpoilsRequest;
        }
        if !is_judged_by_size(self.layout, &header, bytes.len()) {
            return Outcome::Pass;
        }
        let mut facts = facts_of(&header);
        if let Some(violation) = handle.policy.judge_batch(&facts, handle.learned()) {
            return Outcome::Over(Arc::clone(handle), header, facts, violation);
        }
        let inside = &handle.policy.inside;
        if inside.is_none() {
            return Outcome::Within(Arc::clone(handle), header, facts);
        }
        let known = self.inspected.iter().find(|(entry, _)| *entry == partition_entry);
        let inspection = match known {
            Some((_, inspection)) => *inspection,
            None => self.inspect(handle, &header, bytes),
        };
        if let Some(codec) = facts.codec {
            handle.metrics.inspected(inspection.proof.label(), codec);
        }
        facts.uncompressed = inspection.uncompressed;
        facts.largest = inspection.largest;
        let violation = match inspection.finding {
            Finding::Within => return Outcome::Within(Arc::clone(handle), header, facts),
            // The broker refuses it for its checksum.
            Finding::BadCrc => return Outcome::Pass,
            Finding::Over(over) => handle.policy.violation(&over),
            Finding::Undecodable(why) => handle.policy.unreadable(why.label()),
            Finding::Unfinished if known.is_some() => handle.policy.unreadable("too much to decode in one request"),
            Finding::Unfinished => {
                self.long.push(LongDecode { partition_entry, records, header, limits: *inside });
                None
            }
        };
        match violation {
            Some(violation) => Outcome::Over(Arc::clone(handle), header, facts, violation),
            None => Outcome::Pass,
        }
    }

    fn inspect(&mut self, handle: &TopicHandle, header: &BatchHeader, bytes: &[u8]) -> Inspection {
        let effort = if self.decode == Decode::Always { Effort::MEASURES } else { Effort::VERDICT };
        let effort = effort.decode_at_most(self.decode_left);
        SCRATCH.with_borrow_mut(|scratch| {
            let inspection = inspect(header, bytes, &handle.policy.inside, effort, scratch);
            self.decode_left = self.decode_left.saturating_sub(inspection.decoded_bytes);
            inspection
        })
    }
}
