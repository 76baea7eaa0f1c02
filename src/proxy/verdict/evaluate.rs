//! Evaluates one partition's batch: first the batch gate, by the header alone, then what is inside.

use std::ops::Range;
use std::sync::Arc;

use super::measure::with_scratch;
use super::{Gathered, Measured, Outcome, TopicHandle};
use crate::batch::{
    BATCH_HEADER_BYTES, BatchHeader, Prefix, as_one_batch, largest_message, prefix,
};
use crate::config::Decode;
use crate::inspect::{
    DeepLimits, Effort, Inspection, Judgement, Measures, NearGates, Over, Scratch, inspect,
    inspect_message_set,
};
use crate::policy::{BatchFacts, Learned, Size, Violation};
use crate::vocabulary::{Action, Codec};
use crate::wire::produce::Layout;
use crate::wire::record_batch::ATTRIBUTES_LOW_AT;

/// Before this version the broker looks at the codec before it looks at sizes.
const FIRST_ZSTD_VERSION: i16 = 7;

/// The bit of a magic-2 batch's attributes for a transaction.
const TRANSACTIONAL: u8 = 0x10;

/// From this version on, Produce carries exactly one magic-2 batch per partition.
pub(super) const FIRST_BATCH_VERSION: i16 = 3;

/// Bytes that may be decompressed for one request on its session's own turn: a millisecond of gzip, less of every
/// other codec.
const DECODE_ON_TURN_BYTES: u64 = 400 * 1024;

/// Bytes that may be decompressed for one request in all: gzip takes 2.5 s.
const DECODE_IN_ALL_BYTES: u64 = 1024 * 1024 * 1024;

/// How often a request is decoded off its session's turn: once for what is judged first, and once more for what a
/// learned limit kept from that and then does not count; each once more for the codec.
const MOST_DECODES: u8 = 5;

/// A batch whose verdict needs a decode too long for a session's turn.
#[derive(Debug)]
pub(crate) struct LongDecode {
    /// As [`Evaluation::known`] counts.
    pub(super) partition_entry: usize,
    pub(super) records: Range<usize>,
    pub(super) header: BatchHeader,
    pub(super) limits: DeepLimits,
    pub(super) look: Look,
}

/// What is looked for inside a batch, beside the first violation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Look {
    /// `near_limit`, where what is near is counted.
    near_share: Option<f64>,
    /// A violation does not end it: every gate that would refuse is told of.
    all_gates: bool,
    /// It is over by its header already.
    is_over: bool,
}

impl Look {
    /// For the first violation alone.
    pub(super) const VERDICT: Self = Self {
        near_share: None,
        all_gates: false,
        is_over: false,
    };

    fn effort(self) -> Effort {
        self.near_share.map_or(Effort::VERDICT, |share| {
            Effort::VERDICT.noticing_near(share)
        })
    }
}

/// What was found inside a batch.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(super) inspection: Inspection,
    /// One violation for every gate, where all were looked at.
    overs: Vec<Over>,
}

/// What was found off the session's turn, by partition entry, in ascending order.
pub(crate) type Inspected = Vec<(usize, Seen)>;

/// Inspects what was too long for the session's turn. Runs where nobody waits for the thread.
pub(crate) fn inspect_long(frame: &[u8], decodes: &[LongDecode]) -> Inspected {
    let mut left = DECODE_IN_ALL_BYTES;
    let inspect_one = |decode: &LongDecode| {
        let records = frame.get(decode.records.clone())?;
        let seen = see(
            &decode.header,
            records,
            &decode.limits,
            decode.look,
            &mut left,
        );
        Some((decode.partition_entry, seen))
    };
    decodes.iter().filter_map(inspect_one).collect()
}

/// Inspects a batch until the verdict is known, and then what else is wanted. Takes what it decodes off `left`.
fn see(
    header: &BatchHeader,
    records: &[u8],
    limits: &DeepLimits,
    wanted: Look,
    left: &mut u64,
) -> Seen {
    with_scratch(|scratch| {
        let mut inspect_with = |effort: Effort, scratch: &mut Scratch| {
            let effort = effort.decode_at_most(*left);
            let inspection = look(header, records, limits, effort, scratch);
            *left = left.saturating_sub(inspection.spent_bytes());
            inspection
        };
        let mut inspection = inspect_with(wanted.effort(), scratch);
        let is_over = wanted.is_over || matches!(inspection.finding, Judgement::Over(_));
        let mut overs = Vec::new();
        if wanted.all_gates && is_over && !inspection.is_cut {
            let all = inspect_with(Effort::VERDICT.of_all_gates(), scratch);
            inspection.is_cut = all.is_cut;
            overs = scratch.overs().to_vec();
        }
        Seen { inspection, overs }
    })
}

/// Inspects a batch, or an old message set where the header only stands for one.
fn look(
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

/// The evaluation for the partitions of one request.
pub(super) struct Evaluation<'a> {
    frame: &'a [u8],
    layout: &'a Layout,
    decode: Decode,
    /// Bytes that may still be decompressed on this turn.
    decode_left: u64,
    asked: &'a Gathered,
    /// What was learned for the topic in hand: its partitions follow each other.
    learned: Option<(Arc<TopicHandle>, Option<Learned>)>,
    /// What was learned of the cluster does not count.
    by_rules_only: bool,
    /// Of the one batch of the request, where somebody measured it before.
    measures: Option<&'a Measures>,
    long: Vec<LongDecode>,
}

impl<'a> Evaluation<'a> {
    /// Evaluation for one request; `asked` is what is known already.
    pub(super) fn new(
        frame: &'a [u8],
        layout: &'a Layout,
        decode: Decode,
        asked: &'a Gathered,
    ) -> Self {
        Self {
            frame,
            layout,
            decode,
            decode_left: DECODE_ON_TURN_BYTES,
            asked,
            learned: None,
            by_rules_only: false,
            measures: None,
            long: Vec::new(),
        }
    }

    /// The request is one batch, and its sizes are known.
    pub(super) const fn knowing(mut self, measures: Option<&'a Measures>) -> Self {
        self.measures = measures;
        self
    }

    /// From now on the broker judges by its own limits, or refuses all of the request: only what is configured counts.
    pub(super) fn judge_by_rules_only(&mut self) {
        self.by_rules_only = true;
    }

    /// What must be decoded off this turn.
    pub(super) fn into_long(self) -> Vec<LongDecode> {
        self.long
    }

    /// Evaluates the batch of one partition entry.
    pub(super) fn evaluate(
        &mut self,
        topic: &Arc<TopicHandle>,
        partition_entry: usize,
        records: Range<usize>,
    ) -> Outcome {
        let bytes = self.frame.get(records.clone()).unwrap_or_default();
        if self.layout.version < FIRST_BATCH_VERSION {
            return self.evaluate_message_set(topic, partition_entry, records, bytes);
        }
        let Ok(header) = BatchHeader::read(bytes) else {
            return self.leave(records);
        };
        let wire_bytes = usize::try_from(header.wire_bytes()).unwrap_or(usize::MAX);
        let is_alone = bytes.get(wire_bytes..).is_some_and(is_ignored);
        if !is_alone || !is_judged_by_size(self.layout, &header) {
            return self.leave(records);
        }
        let last = self.learned(topic);
        // Whether its transaction was begun, the broker asks before it looks at sizes, and only it knows.
        let learned = last.filter(|_| !self.by_rules_only && !header.is_transactional());
        let policy = &topic.policy;
        let limit = policy.batch_limit_bytes(learned);
        // Nearly all batches, and not moved about: what is measured has some hundreds of bytes.
        if limit.is_none_or(|limit| header.wire_bytes() <= limit)
            && policy.codecs.is_none()
            && self.limits_inside(topic).is_none()
        {
            return Outcome::Within(Measured::new(topic, header, last));
        }
        let measured = Measured::new(topic, header, last);
        match topic.policy.judge_batch(&measured.facts, learned) {
            Some(violation) => {
                self.over_batch(measured, violation, partition_entry, records, bytes)
            }
            None => self.evaluate_more(measured, partition_entry, records, bytes),
        }
    }

    fn learned(&mut self, topic: &Arc<TopicHandle>) -> Option<Learned> {
        match &self.learned {
            Some((of, learned)) if Arc::ptr_eq(of, topic) => *learned,
            _ => {
                let learned = self.asked.learned(topic);
                self.learned = Some((Arc::clone(topic), learned));
                learned
            }
        }
    }

    /// What no header alone decides: the limits inside, then the codec.
    #[inline]
    fn evaluate_more(
        &mut self,
        measured: Measured,
        partition_entry: usize,
        records: Range<usize>,
        bytes: &[u8],
    ) -> Outcome {
        if measured.topic.policy.codecs.is_none() {
            return self.evaluate_inside(measured, partition_entry, records, bytes);
        }
        match self.evaluate_inside(measured, partition_entry, records.clone(), bytes) {
            Outcome::Within(measured) => {
                self.evaluate_codec(measured, partition_entry, records, bytes)
            }
            Outcome::Over(mut measured, violation) => {
                self.note_codec(&mut measured, partition_entry, records, bytes);
                Outcome::Over(measured, violation)
            }
            outcome @ (Outcome::Pass
            | Outcome::Invalid
            | Outcome::SpoilsRequest
            | Outcome::NoRecords(_)
            | Outcome::Undone(..)
            | Outcome::Response(..)) => outcome,
        }
    }

    /// Partition entries of the request.
    pub(super) const fn partitions(&self) -> usize {
        self.layout.partitions.len()
    }

    /// What was found off this turn: of a partition entry's limits under its number, of its codec under its number and
    /// that of all entries.
    pub(super) fn known(&self, entry: usize) -> Option<&'a Seen> {
        let inspected = &self.asked.inspected;
        let known = inspected.binary_search_by_key(&entry, |(entry, _)| *entry);
        let (_, seen) = inspected.get(known.ok()?)?;
        Some(seen)
    }

    /// Whatever was not decoded by now will not be.
    pub(super) const fn has_decoded(&self) -> bool {
        self.asked.decodes >= MOST_DECODES
    }

    /// Must be decoded off this turn.
    pub(super) fn decode_later(&mut self, long: LongDecode) {
        self.long.push(long);
    }

    /// Inspects on this turn, as far as it allows.
    pub(super) fn inspect_now(
        &mut self,
        header: &BatchHeader,
        bytes: &[u8],
        limits: &DeepLimits,
        wanted: Look,
    ) -> Seen {
        // `never` keeps every limit that needs a decode out of the configuration; what a header proves is still used.
        if self.decode == Decode::Never {
            see(header, bytes, limits, wanted, &mut 0)
        } else {
            see(header, bytes, limits, wanted, &mut self.decode_left)
        }
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
        let (magic, whole) = match prefix(bytes) {
            Prefix::Cut => return Outcome::Invalid,
            Prefix::Broken(_) | Prefix::Overflowing => return Outcome::SpoilsRequest,
            Prefix::Whole { magic, bytes } => (magic, bytes),
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
        match prefix(bytes.get(whole..).unwrap_or_default()) {
            Prefix::Cut => Outcome::Pass,
            Prefix::Broken(_) | Prefix::Whole { .. } => Outcome::Invalid,
            Prefix::Overflowing => Outcome::SpoilsRequest,
        }
    }

    /// Evaluates what Produce carried before version 3. Kafka 4 closes on it, older brokers judge each message by their
    /// own limit; so it is passed on where no rule forbids it. What a rule forbids is refused by its code: these
    /// versions have no room for a text.
    fn evaluate_message_set(
        &mut self,
        topic: &Arc<TopicHandle>,
        partition_entry: usize,
        records: Range<usize>,
        bytes: &[u8],
    ) -> Outcome {
        let Ok((largest, count)) = largest_message(bytes) else {
            return Outcome::Pass;
        };
        // Alone, or with the others as the one batch that the broker stores.
        let stored_bytes = as_one_batch(bytes).map_or(0, |batch| batch.batch_bytes());
        let mut header =
            BatchHeader::of_message(largest.wire_bytes(), largest.crc, largest.attributes, count);
        let is_over = |bytes: u64| {
            let limit = topic.policy.batch_limit_bytes(None);
            limit.is_some_and(|limit| bytes > limit)
        };
        if is_over(stored_bytes) && stored_bytes > largest.wire_bytes() {
            header = BatchHeader::of_message(stored_bytes, largest.crc, largest.attributes, count);
        }
        let mut measured = Measured::new(topic, header, self.learned(topic));
        if measured.facts.codec != Some(Codec::None) {
            // How many records it wraps is not said.
            measured.facts.records = 0;
        }
        match topic.policy.judge_batch(&measured.facts, None) {
            Some(violation) => {
                self.over_batch(measured, violation, partition_entry, records, bytes)
            }
            None => self.evaluate_more(measured, partition_entry, records, bytes),
        }
    }

    /// Over by its header. What is only observed is looked into all the same: whoever enforces later is to know of
    /// every gate that would refuse.
    fn over_batch(
        &mut self,
        mut measured: Measured,
        violation: Violation,
        partition_entry: usize,
        records: Range<usize>,
        bytes: &[u8],
    ) -> Outcome {
        let policy = &measured.topic.policy;
        if policy.action == Action::Observe && !policy.inside.is_none() {
            let records = records.clone();
            let (seen, _) = self.look_inside(&measured, partition_entry, records, bytes, true);
            measured.note_overs(&seen.overs, &violation);
        }
        self.note_codec(&mut measured, partition_entry, records, bytes);
        Outcome::Over(measured, violation)
    }

    /// Climbs the ladder where a limit lies inside the batch.
    #[inline]
    fn evaluate_inside(
        &mut self,
        mut measured: Measured,
        partition_entry: usize,
        records: Range<usize>,
        bytes: &[u8],
    ) -> Outcome {
        let topic = Arc::clone(&measured.topic);
        if self.limits_inside(&topic).is_none() {
            return Outcome::Within(measured);
        }
        let (seen, was_decoded) =
            self.look_inside(&measured, partition_entry, records, bytes, false);
        let inspection = seen.inspection;
        measured.inspected(&inspection);
        let violation = match inspection.finding {
            Judgement::Within => return Outcome::Within(measured),
            // The broker refuses it for its checksum.
            Judgement::BadCrc => None,
            Judgement::Over(over) => topic
                .policy
                .violation(&over)
                .or_else(|| topic.policy.above_threshold(&over)),
            Judgement::Undecodable(why) => topic.policy.unreadable(why.label()),
            // Decoded off this turn, and still not to its end; or that did not work out.
            Judgement::Unfinished if was_decoded || self.has_decoded() => {
                topic.policy.unreadable("too_much_to_decode")
            }
            Judgement::Unfinished => None,
        };
        match violation {
            Some(violation) => {
                measured.note_overs(&seen.overs, &violation);
                Outcome::Over(measured, violation)
            }
            None => Outcome::Pass,
        }
    }

    /// A value above the threshold is over until what is offloaded has been decided.
    fn limits_inside(&self, topic: &TopicHandle) -> DeepLimits {
        if self.asked.is_offload_decided() {
            topic.policy.inside
        } else {
            topic.policy.inside_before_offload()
        }
    }

    /// What is inside, as far as this turn allows; the rest of it is put down as a long decode.
    fn look_inside(
        &mut self,
        measured: &Measured,
        partition_entry: usize,
        records: Range<usize>,
        bytes: &[u8],
        is_over: bool,
    ) -> (Seen, bool) {
        if let Some(seen) = self.known(partition_entry) {
            return (seen.clone(), true);
        }
        let policy = &measured.topic.policy;
        let look = Look {
            near_share: Some(policy.near_limit),
            all_gates: policy.action == Action::Observe,
            is_over,
        };
        let header = measured.header;
        let limits = DeepLimits {
            is_rewritten: header.magic == 2 && measured.topic.is_rewritten(header.codec()),
            ..self.limits_inside(&measured.topic)
        };
        let by_measures = |measures: &Measures| measures.within(&header, &limits, look.effort());
        if let Some(inspection) = self.measures.and_then(by_measures) {
            let overs = Vec::new();
            return (Seen { inspection, overs }, true);
        }
        let seen = self.inspect_now(&header, bytes, &limits, look);
        let is_cut = seen.inspection.is_cut || seen.inspection.finding == Judgement::Unfinished;
        if is_cut && !self.has_decoded() && self.decode != Decode::Never {
            self.decode_later(LongDecode {
                partition_entry,
                records,
                header,
                limits,
                look,
            });
        }
        (seen, false)
    }
}

impl Measured {
    pub(super) fn new(
        topic: &Arc<TopicHandle>,
        header: BatchHeader,
        learned: Option<Learned>,
    ) -> Self {
        let policy = &topic.policy;
        let limit = policy.batch_limit_bytes(learned);
        Self {
            topic: Arc::clone(topic),
            header,
            facts: facts(&header),
            is_near: limit.is_some_and(|limit| policy.is_near(header.wire_bytes(), limit)),
            proof: None,
            near: NearGates::NONE,
            sizes: None,
            uncompressed_bytes: None,
            also: Vec::new(),
            gain: None,
        }
    }

    /// What was found inside it.
    pub(super) fn inspected(&mut self, inspection: &Inspection) {
        self.proof = Some(inspection.proof);
        self.facts.uncompressed = inspection.uncompressed.or(self.facts.uncompressed);
        self.facts.largest = inspection.largest;
        self.facts.seen = inspection.seen;
        self.near = inspection.near;
    }

    /// What else the batch is over, beside `first`.
    pub(super) fn note_overs(&mut self, overs: &[Over], first: &Violation) {
        for over in overs {
            let is_noted = |noted: &Violation| noted.limit.gate == over.gate;
            if is_noted(first) || self.also.iter().any(is_noted) {
                continue;
            }
            self.also.extend(self.topic.policy.violation(over));
        }
        self.also.sort_by_key(|violation| violation.limit.gate);
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
        seen: None,
    }
}

/// The broker would come to judge this batch by its size, if nothing that counts stands behind it: one whole magic-2 batch
/// with base offset 0 and nothing wrong that is checked earlier (`RequestUtils.hasTransactionalRecords`,
/// `ProduceRequest.validateRecords`, `LogValidator`).
pub(super) fn is_judged_by_size(layout: &Layout, header: &BatchHeader) -> bool {
    header.magic == 2
        && header.base_offset == 0
        && header.wire_bytes() >= BATCH_HEADER_BYTES as u64
        // Before version 7 the broker looks at the codec first: at zstd, and at one that nobody has.
        && (layout.version >= FIRST_ZSTD_VERSION || header.codec().is_some_and(|codec| codec != Codec::Zstd))
        && (!header.is_transactional() || layout.is_transactional)
}

/// Whether the broker ignores what stands behind a batch: it reads it as a batch that was cut off.
fn is_ignored(behind: &[u8]) -> bool {
    matches!(prefix(behind), Prefix::Cut)
}
