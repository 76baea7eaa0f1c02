//! One partition's batch on the scales: first the batch gate, by the header alone, then what is inside.

use std::ops::Range;
use std::sync::Arc;

use super::measure::with_scratch;
use super::{Asked, Measured, Outcome, TopicHandle};
use crate::batch::{BATCH_HEADER_BYTES, BatchHeader, Front, front, largest_message};
use crate::config::Decode;
use crate::inspect::{
    DeepLimits, Effort, Finding, Inspection, Scratch, inspect, inspect_message_set,
};
use crate::policy::{BatchFacts, Codec, Size};
use crate::wire::produce::Layout;

/// Before this version the broker looks at the codec before it looks at sizes.
const FIRST_ZSTD_VERSION: i16 = 7;

/// Where the lower byte of a magic-2 batch's attributes stands, and its bit for a transaction.
const ATTRIBUTES_LOW_AT: usize = 22;
const TRANSACTIONAL: u8 = 0x10;

/// From this version on, Produce carries exactly one magic-2 batch per partition.
const FIRST_BATCH_VERSION: i16 = 3;

/// Bytes that may be decompressed for one request on its session's own turn: a millisecond of gzip, less of every
/// other codec.
const DECODE_ON_TURN_BYTES: u64 = 400 * 1024;

/// Bytes that may be decompressed for one request in all: gzip takes 2.5 s.
const DECODE_IN_ALL_BYTES: u64 = 1024 * 1024 * 1024;

/// A batch whose verdict needs a decode too long for a session's turn.
#[derive(Debug)]
pub struct LongDecode {
    /// As [`Scales::known`] counts.
    pub(super) partition_entry: usize,
    pub(super) records: Range<usize>,
    pub(super) header: BatchHeader,
    pub(super) limits: DeepLimits,
}

/// What was found off the session's turn, by partition entry, in ascending order.
pub type Inspected = Vec<(usize, Inspection)>;

/// Inspects what was too long for the session's turn. Runs where nobody waits for the thread.
pub fn inspect_long(frame: &[u8], decodes: &[LongDecode]) -> Inspected {
    let mut left = DECODE_IN_ALL_BYTES;
    let inspect_one = |decode: &LongDecode| {
        let records = frame.get(decode.records.clone())?;
        let effort = Effort::VERDICT.decode_at_most(left);
        let inspection =
            with_scratch(|scratch| look(&decode.header, records, &decode.limits, effort, scratch));
        left = left.saturating_sub(inspection.spent_bytes());
        Some((decode.partition_entry, inspection))
    };
    let mut inspected: Inspected = decodes.iter().filter_map(inspect_one).collect();
    inspected.sort_unstable_by_key(|(entry, _)| *entry);
    inspected
}

/// Inspects a batch, or an old message set where the header only stands for one.
pub(super) fn look(
    header: &BatchHeader,
    records: &[u8],
    limits: &DeepLimits,
    effort: Effort,
    scratch: &mut Scratch,
) -> Inspection {
    if header.magic < 2 {
        inspect_message_set(records, limits, effort, scratch)
    } else {
        inspect(header, records, limits, effort, scratch)
    }
}

/// The scales for the partitions of one request.
pub(super) struct Scales<'a> {
    frame: &'a [u8],
    layout: &'a Layout,
    pub(super) decode: Decode,
    /// Bytes that may still be decompressed on this turn.
    pub(super) decode_left: u64,
    asked: &'a Asked,
    long: Vec<LongDecode>,
}

impl<'a> Scales<'a> {
    /// Scales for one request; `asked` is what is known already.
    pub(super) fn new(
        frame: &'a [u8],
        layout: &'a Layout,
        decode: Decode,
        asked: &'a Asked,
    ) -> Self {
        Self {
            frame,
            layout,
            decode,
            decode_left: DECODE_ON_TURN_BYTES,
            asked,
            long: Vec::new(),
        }
    }

    /// What must be decoded off this turn.
    pub(super) fn into_long(self) -> Vec<LongDecode> {
        self.long
    }

    /// Weighs the batch of one partition entry.
    pub(super) fn weigh(
        &mut self,
        topic: &Arc<TopicHandle>,
        partition_entry: usize,
        records: Range<usize>,
    ) -> Outcome {
        let bytes = self.frame.get(records.clone()).unwrap_or_default();
        if self.layout.version < FIRST_BATCH_VERSION {
            return self.weigh_message_set(topic, partition_entry, records, bytes);
        }
        let Ok(header) = BatchHeader::read(bytes) else {
            return self.leave(records);
        };
        if !is_judged_by_size(self.layout, &header, bytes)
            || (header.is_transactional() && !self.layout.is_transactional)
        {
            return self.leave(records);
        }
        let measured = Measured::new(topic, header);
        match topic
            .policy
            .judge_batch(&measured.facts, self.asked.learned(topic))
        {
            Some(violation) => Outcome::Over(measured, violation),
            None => self.weigh_more(measured, partition_entry, records, bytes),
        }
    }

    /// What no header alone decides: the limits inside, then the codec.
    fn weigh_more(
        &mut self,
        measured: Measured,
        partition_entry: usize,
        records: Range<usize>,
        bytes: &[u8],
    ) -> Outcome {
        if measured.topic.policy.codecs.is_none() {
            return self.weigh_inside(measured, partition_entry, records, bytes);
        }
        match self.weigh_inside(measured, partition_entry, records.clone(), bytes) {
            Outcome::Within(measured) => {
                self.weigh_codec(measured, partition_entry, records, bytes)
            }
            outcome => outcome,
        }
    }

    /// Partition entries of the request.
    pub(super) const fn partitions(&self) -> usize {
        self.layout.partitions.len()
    }

    /// What was found off this turn: of a partition entry's limits under its number, of its codec under its number and
    /// that of all entries.
    pub(super) fn known(&self, entry: usize) -> Option<Inspection> {
        let inspected = &self.asked.inspected;
        let known = inspected.binary_search_by_key(&entry, |(entry, _)| *entry);
        let (_, inspection) = inspected.get(known.ok()?)?;
        Some(*inspection)
    }

    /// Everything too long for this turn was decoded.
    pub(super) const fn has_decoded(&self) -> bool {
        self.asked.decoded
    }

    /// Must be decoded off this turn.
    pub(super) fn decode_later(&mut self, long: LongDecode) {
        self.long.push(long);
    }

    /// What is not judged here. The broker looks at the first batch of every partition before anything else
    /// (`RequestUtils.hasTransactionalRecords`), then at the records of those partitions that exist
    /// (`ProduceRequest.validateRecords`).
    pub(super) fn leave(&self, records: Range<usize>) -> Outcome {
        let bytes = self.frame.get(records).unwrap_or_default();
        let version = self.layout.version;
        if version < FIRST_BATCH_VERSION {
            return Outcome::Pass;
        }
        let (magic, whole) = match front(bytes) {
            Front::Cut => return Outcome::Invalid,
            Front::Broken(_) | Front::Overflowing => return Outcome::SpoilsRequest,
            Front::Whole { magic, bytes } => (magic, bytes),
        };
        if magic != 2 {
            return Outcome::Invalid;
        }
        let low = bytes.get(ATTRIBUTES_LOW_AT).copied().unwrap_or_default();
        if low & TRANSACTIONAL != 0 && !self.layout.is_transactional {
            return Outcome::SpoilsRequest;
        }
        match (version, Codec::from_attributes(low.into())) {
            (..FIRST_ZSTD_VERSION, None) => return Outcome::SpoilsRequest,
            (..FIRST_ZSTD_VERSION, Some(Codec::Zstd)) => return Outcome::Invalid,
            _ => {}
        }
        match front(bytes.get(whole..).unwrap_or_default()) {
            Front::Cut => Outcome::Pass,
            Front::Broken(_) | Front::Whole { .. } => Outcome::Invalid,
            Front::Overflowing => Outcome::SpoilsRequest,
        }
    }

    /// Weighs what Produce carried before version 3. Kafka 4 closes on it, older brokers judge each message by their
    /// own limit; so it is passed on where no rule forbids it. What a rule forbids is refused by its code: these
    /// versions have no room for a text.
    fn weigh_message_set(
        &mut self,
        topic: &Arc<TopicHandle>,
        partition_entry: usize,
        records: Range<usize>,
        bytes: &[u8],
    ) -> Outcome {
        let Ok((largest, count)) = largest_message(bytes) else {
            return Outcome::Pass;
        };
        let header =
            BatchHeader::of_message(largest.wire_bytes(), largest.crc, largest.attributes, count);
        let mut measured = Measured::new(topic, header);
        if measured.facts.codec != Some(Codec::None) {
            // How many records it wraps is not said.
            measured.facts.records = 0;
        }
        match topic.policy.judge_batch(&measured.facts, None) {
            Some(violation) => Outcome::Over(measured, violation),
            None => self.weigh_more(measured, partition_entry, records, bytes),
        }
    }

    /// Climbs the ladder where a limit lies inside the batch.
    fn weigh_inside(
        &mut self,
        mut measured: Measured,
        partition_entry: usize,
        records: Range<usize>,
        bytes: &[u8],
    ) -> Outcome {
        let (topic, header) = (Arc::clone(&measured.topic), measured.header);
        if topic.policy.inside.is_none() {
            return Outcome::Within(measured);
        }
        let inspection = self
            .known(partition_entry)
            .unwrap_or_else(|| self.inspect(&topic, &header, bytes));
        measured.proof = Some(inspection.proof);
        measured.facts.uncompressed = inspection.uncompressed.or(measured.facts.uncompressed);
        measured.facts.largest = inspection.largest;
        let violation = match inspection.finding {
            Finding::Within => return Outcome::Within(measured),
            // The broker refuses it for its checksum.
            Finding::BadCrc => None,
            Finding::Over(over) => topic.policy.violation(&over),
            Finding::Undecodable(why) => topic.policy.unreadable(why.label()),
            Finding::Unfinished if self.asked.decoded => {
                topic.policy.unreadable("too_much_to_decode")
            }
            Finding::Unfinished => {
                self.long.push(LongDecode {
                    partition_entry,
                    records,
                    header,
                    limits: topic.policy.inside,
                });
                None
            }
        };
        match violation {
            Some(violation) => Outcome::Over(measured, violation),
            None => Outcome::Pass,
        }
    }

    fn inspect(&mut self, topic: &TopicHandle, header: &BatchHeader, bytes: &[u8]) -> Inspection {
        let limits = &topic.policy.inside;
        // `never` keeps every limit that needs a decode out of the configuration; what a header proves is still used.
        let most = if self.decode == Decode::Never {
            0
        } else {
            self.decode_left
        };
        let effort = Effort::VERDICT.decode_at_most(most);
        let inspection = with_scratch(|scratch| look(header, bytes, limits, effort, scratch));
        self.decode_left = self.decode_left.saturating_sub(inspection.spent_bytes());
        inspection
    }
}

impl Measured {
    fn new(topic: &Arc<TopicHandle>, header: BatchHeader) -> Self {
        Self {
            topic: Arc::clone(topic),
            header,
            facts: facts(&header),
            proof: None,
            gain: None,
        }
    }
}

/// What the header alone says.
fn facts(header: &BatchHeader) -> BatchFacts {
    let codec = header.codec();
    let wire_bytes = header.wire_bytes();
    BatchFacts {
        wire_bytes,
        uncompressed: (codec == Some(Codec::None)).then_some(Size::Exact(wire_bytes)),
        codec,
        records: header.records_count,
        largest: None,
    }
}

/// The broker would come to judge this batch by its size: one whole magic-2 batch with base offset 0 and nothing
/// wrong that is checked earlier (`ProduceRequest.validateRecords`, `LogValidator`).
fn is_judged_by_size(layout: &Layout, header: &BatchHeader, records: &[u8]) -> bool {
    let wire_bytes = usize::try_from(header.wire_bytes()).unwrap_or(usize::MAX);
    header.magic == 2
        && header.base_offset == 0
        && wire_bytes >= BATCH_HEADER_BYTES
        && records.get(wire_bytes..).is_some_and(is_ignored)
        // Before version 7 the broker looks at the codec first: at zstd, and at one that nobody has.
        && (layout.version >= FIRST_ZSTD_VERSION || header.codec().is_some_and(|codec| codec != Codec::Zstd))
}

/// Whether the broker ignores what stands behind a batch: it reads it as a batch that was cut off.
fn is_ignored(behind: &[u8]) -> bool {
    matches!(front(behind), Front::Cut)
}
