//! The verdict on one Produce request: what is forwarded, what is refused, what must be asked first.
//!
//! Judging has two halves. [`Judge::weigh`] only looks; if it needs to know more (a topic id, whether a learned
//! limit still holds), the session asks the control plane and weighs again. [`Judge::settle`] then counts, logs
//! and writes refusals, once. Only what the broker itself would judge by size is judged here: a batch that is
//! wrong in a way the broker checks earlier is forwarded, and the broker answers it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::topics::{Resolved, TopicCache, TopicHandle};
use super::{ClientInfo, Shared};
use crate::batch::BatchHeader;
use crate::policy::{
    Action, BatchFacts, Blame, ErrorCode, Gate, LoopDetector, ResendKey, Source, Violation,
};
use crate::wire::Malformed;
use crate::wire::produce::{Layout, TopicKey};
use crate::wire::produce_answer::{PartitionResult, TopicResult};

/// MESSAGE_TOO_LARGE
pub const MESSAGE_TOO_LARGE: i16 = 10;
/// POLICY_VIOLATION
const POLICY_VIOLATION: i16 = 44;
/// INVALID_RECORD
pub const INVALID_RECORD: i16 = 87;
/// UNKNOWN_TOPIC_ID: retriable.
const UNKNOWN_TOPIC_ID: i16 = 100;

/// A learned limit this young refuses without being read again: about as long as the brokers of a cluster take
/// to agree on a change themselves.
pub const CURRENT: Duration = Duration::from_millis(100);
/// A learned limit that was just asked for and is older than this was not read: it refuses nothing.
const STALE: Duration = Duration::from_secs(5);

/// Bytes behind a batch that the broker accepts and does not store (`RecordBatch.HEADER_SIZE_UP_TO_MAGIC` − 1).
const TRAILING_BYTES: usize = 16;

/// Partitions for which a session keeps room between requests.
const KEPT_PARTITIONS: usize = 256;

/// Records flagged in one `record_errors`: the count is the peer's own claim.
const MOST_FLAGGED: i32 = 65_536;

/// A partition that was forwarded.
#[derive(Debug)]
pub struct Sent {
    /// Its topic.
    pub topic: Arc<TopicHandle>,
    /// `index`
    pub partition: i32,
    /// What was measured.
    pub facts: BatchFacts,
}

/// A partition that was not.
#[derive(Debug)]
pub struct Refused {
    /// The topic as the request encodes it.
    pub topic_key: Vec<u8>,
    /// Its result.
    pub result: PartitionResult,
}

/// What has been asked for this request already: nothing is asked twice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Asked {
    /// Unknown topic ids were looked up.
    pub ids: bool,
    /// Topics and learned limits were confirmed.
    pub limits: bool,
}

/// What the control plane must say before the verdict.
#[derive(Debug)]
pub enum Question {
    /// The names of these topic ids.
    Ids(Vec<Uuid>),
    /// Whether these topics exist, and their limits as they are now.
    Topics(Vec<Arc<str>>),
}

/// A verdict.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Entries to forward, as [`Layout::splice`] takes them; `None`: the whole frame as it came.
    pub kept: Option<Vec<(usize, Vec<usize>)>>,
    /// What is forwarded and was measured.
    pub sent: Vec<Sent>,
    /// What is refused.
    pub refused: Vec<Refused>,
}

/// One partition's batch on the scales.
#[derive(Debug)]
struct Weighed {
    /// Entry in [`Layout::topics`].
    topic_entry: usize,
    /// Entry in [`Layout::partitions`].
    partition_entry: usize,
    outcome: Outcome,
}

#[derive(Debug)]
enum Outcome {
    /// The broker judges it.
    Pass,
    /// The broker refuses the whole request for it, before it looks at sizes: a transactional batch without a
    /// transactional id.
    SpoilsRequest,
    /// It was measured and is within all limits.
    Within(Arc<TopicHandle>, BatchHeader, BatchFacts),
    /// It is over a limit.
    Over(Arc<TopicHandle>, BatchHeader, BatchFacts, Violation),
    /// It is answered here for another reason than size.
    Answer(i16, &'static str),
}

impl Outcome {
    /// The partition is answered here.
    fn is_refused(&self) -> bool {
        match self {
            Self::Pass | Self::SpoilsRequest | Self::Within(..) => false,
            Self::Over(topic, ..) => topic.policy.action != Action::Observe,
            Self::Answer(..) => true,
        }
    }
}

/// Judges the requests of one session.
pub struct Judge {
    shared: Arc<Shared>,
    topics: TopicCache,
    loops: LoopDetector,
    /// Where the request in hand keeps things; reused.
    layout: Layout,
    weighed: Vec<Weighed>,
}

impl Judge {
    /// A judge for one session.
    pub fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            topics: TopicCache::default(),
            loops: LoopDetector::default(),
            layout: Layout::default(),
            weighed: Vec::new(),
        }
    }

    /// The request last weighed.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Gives back the memory of an unusually large request.
    pub fn release(&mut self) {
        if self.layout.partitions.capacity() > KEPT_PARTITIONS {
            self.layout = Layout::default();
            self.weighed = Vec::new();
        }
    }

    /// The `client_id` of the request last weighed.
    pub fn client_id<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        frame.get(self.layout.client_id.clone()?)
    }

    /// Looks at every partition of a whole frame. `Some` is what must be known before [`Judge::settle`].
    pub fn weigh(&mut self, frame: &[u8], version: i16, asked: Asked) -> Result<Option<Question>, Malformed> {
        self.layout.read(frame, version)?;
        self.weighed.clear();
        self.topics.follow(&self.shared.policy.load());
        let mut unknown_ids = Vec::new();
        for at in 0..self.layout.topics.len() {
            self.weigh_topic(frame, at, asked, &mut unknown_ids)?;
        }
        if !unknown_ids.is_empty() && !asked.ids {
            return Ok(Some(Question::Ids(unknown_ids)));
        }
        if self.weighed.iter().any(|weighed| matches!(weighed.outcome, Outcome::SpoilsRequest)) {
            self.weighed.iter_mut().for_each(|weighed| weighed.outcome = Outcome::Pass);
        }
        if self.layout.partitions.len() > 1 {
            self.keep_last_of_each_partition(frame)?;
        }
        Ok(self.doubts(asked))
    }

    fn weigh_topic(
        &mut self,
        frame: &[u8],
        topic_entry: usize,
        asked: Asked,
        unknown_ids: &mut Vec<Uuid>,
    ) -> Result<(), Malformed> {
        let topic = self.layout.topics[topic_entry].clone();
        let key = self.layout.topic_key(frame, &topic)?;
        let resolved = self.topics.resolve(&self.shared, key);
        if let Resolved::UnknownId(id) = resolved {
            unknown_ids.push(id);
        }
        // acks other than these are refused by the broker before it looks at sizes.
        let is_sound = matches!(self.layout.acks, -1..=1);
        for partition_entry in topic.partitions.clone() {
            let records = self.layout.partitions[partition_entry].records.clone().and_then(|range| frame.get(range));
            let outcome = match (&resolved, records) {
                _ if !is_sound => Outcome::Pass,
                (_, None) => Outcome::Answer(INVALID_RECORD, "sizegate: the request holds no records for this partition"),
                (Resolved::Topic(handle), Some(records)) => weigh_batch(handle, &self.layout, records),
                (Resolved::UnknownId(_), _) if asked.ids && self.must_be_named() => {
                    Outcome::Answer(UNKNOWN_TOPIC_ID, "sizegate: the topic's name is not known yet, so its limits are not either")
                }
                _ => Outcome::Pass,
            };
            self.weighed.push(Weighed { topic_entry, partition_entry, outcome });
        }
        Ok(())
    }

    /// A topic id that nobody can name may not pass a rule unseen; but if the cluster answers and does not know
    /// the id either, the broker's own answer is the right one.
    fn must_be_named(&self) -> bool {
        self.shared.policy.load().is_governed() && !self.shared.cluster.is_reached()
    }

    /// A partition named twice counts once, with its last batch, as in the broker.
    fn keep_last_of_each_partition(&mut self, frame: &[u8]) -> Result<(), Malformed> {
        let mut last: HashMap<(TopicKey<'_>, i32), usize> = HashMap::with_capacity(self.weighed.len());
        for (at, weighed) in self.weighed.iter().enumerate() {
            let key = self.layout.topic_key(frame, &self.layout.topics[weighed.topic_entry])?;
            last.insert((key, self.layout.partitions[weighed.partition_entry].index), at);
        }
        if last.len() == self.weighed.len() {
            return Ok(());
        }
        let mut keep = vec![false; self.weighed.len()];
        for at in last.into_values() {
            keep[at] = true;
        }
        let mut at = 0;
        self.weighed.retain(|_| {
            at += 1;
            keep[at - 1]
        });
        Ok(())
    }

    /// What must be confirmed before anything is refused: that the broker would have judged the batch by its
    /// size at all (topic and partition exist), and that a learned limit is still true.
    fn doubts(&mut self, asked: Asked) -> Option<Question> {
        let mut names: Vec<Arc<str>> = Vec::new();
        for weighed in &mut self.weighed {
            let Outcome::Over(handle, header, facts, violation) = &weighed.outcome else { continue };
            let partition = self.layout.partitions[weighed.partition_entry].index;
            let exists = handle.known.as_ref().and_then(|known| known.partitions()).map(|count| (0..count).contains(&partition));
            let is_current = violation.limit.source == Source::Rule
                || handle.known.as_ref().and_then(|known| known.limits_age()).is_some_and(|age| age <= if asked.limits { STALE } else { CURRENT });
            if exists == Some(true) && is_current {
                continue;
            }
            if !asked.limits {
                if !names.contains(&handle.name) {
                    names.push(Arc::clone(&handle.name));
                }
                continue;
            }
            // Asked, and still in doubt. Where the cluster answers, the broker judges what does not exist; where it
            // does not, what was learned no longer counts, but a rule's number does.
            let stands = violation.limit.source == Source::Rule && exists != Some(false) && (exists.is_some() || !self.shared.cluster.is_reached());
            if stands {
                continue;
            }
            let by_rule = (exists == Some(true)).then(|| handle.policy.judge_batch(facts, None)).flatten();
            weighed.outcome = match by_rule {
                Some(violation) => Outcome::Over(Arc::clone(handle), *header, *facts, violation),
                None => Outcome::Within(Arc::clone(handle), *header, *facts),
            };
        }
        (!names.is_empty()).then_some(Question::Topics(names))
    }

    /// Counts, logs and refuses what [`Judge::weigh`] found.
    pub fn settle(&mut self, frame: &[u8], client: &ClientInfo) -> Verdict {
        let mut verdict = Verdict::default();
        let mut weighed = std::mem::take(&mut self.weighed);
        let is_whole = weighed.len() == self.layout.partitions.len()
            && !weighed.iter().any(|weighed| weighed.outcome.is_refused())
            && !self.has_repeated_topics(frame);
        let mut kept: Vec<(usize, usize)> = Vec::new();
        for Weighed { topic_entry, partition_entry, outcome } in weighed.drain(..) {
            let partition = self.layout.partitions[partition_entry].index;
            let result = match outcome {
                Outcome::Pass | Outcome::SpoilsRequest => None,
                Outcome::Within(topic, header, facts) => {
                    count_forwarded(&topic, &header, &facts);
                    verdict.sent.push(Sent { topic, partition, facts });
                    None
                }
                Outcome::Over(topic, header, facts, violation) if topic.policy.action == Action::Observe => {
                    self.observe(&topic, &header, facts, violation, partition, client);
                    verdict.sent.push(Sent { topic, partition, facts });
                    None
                }
                Outcome::Over(topic, header, facts, violation) => {
                    Some(self.refuse(&topic, &header, facts, violation, partition, client))
                }
                Outcome::Answer(code, text) => Some(PartitionResult::refused(partition, code, text.to_owned(), Vec::new())),
            };
            match result {
                Some(result) => verdict.refused.push(Refused { topic_key: self.encoded_key(frame, topic_entry), result }),
                None if !is_whole => kept.push((topic_entry, partition_entry)),
                None => {}
            }
        }
        self.weighed = weighed;
        if !is_whole {
            verdict.kept = Some(self.grouped(frame, &kept));
        }
        verdict
    }

    fn encoded_key(&self, frame: &[u8], topic_entry: usize) -> Vec<u8> {
        frame.get(self.layout.topics[topic_entry].key.clone()).unwrap_or_default().to_vec()
    }

    fn has_repeated_topics(&self, frame: &[u8]) -> bool {
        let topics = &self.layout.topics;
        if topics.len() < 2 {
            return false;
        }
        let mut seen = std::collections::HashSet::with_capacity(topics.len());
        !topics.iter().all(|topic| seen.insert(frame.get(topic.key.clone())))
    }

    /// Kept partitions under one entry per topic, in the order in which topics first appear.
    fn grouped(&self, frame: &[u8], kept: &[(usize, usize)]) -> Vec<(usize, Vec<usize>)> {
        let mut order: Vec<(usize, Vec<usize>)> = Vec::new();
        let mut places: HashMap<Option<&[u8]>, usize> = HashMap::new();
        for &(topic_entry, partition_entry) in kept {
            let key = frame.get(self.layout.topics[topic_entry].key.clone());
            let place = *places.entry(key).or_insert_with(|| {
                order.push((topic_entry, Vec::new()));
                order.len() - 1
            });
            order[place].1.push(partition_entry);
        }
        order
    }

    fn refuse(
        &mut self,
        topic: &TopicHandle,
        header: &BatchHeader,
        facts: BatchFacts,
        violation: Violation,
        partition: i32,
        client: &ClientInfo,
    ) -> PartitionResult {
        let is_loop = topic.policy.error_code == ErrorCode::Auto && self.is_loop(topic, header, partition, client);
        let error_code = match topic.policy.error_code {
            ErrorCode::Auto if is_loop => INVALID_RECORD,
            ErrorCode::Auto | ErrorCode::MessageTooLarge => MESSAGE_TOO_LARGE,
            ErrorCode::PolicyViolation => POLICY_VIOLATION,
            ErrorCode::InvalidRecord => INVALID_RECORD,
        };
        let flagged = flagged_records(error_code, is_loop, header, &violation, client);
        topic.metrics.refused.inc();
        if is_loop {
            topic.metrics.loops.inc();
        }
        topic.metrics.violation(violation.limit.gate, violation.limit.source, Action::Reject);
        let refusal = self.shared.refusal(topic, facts, violation, partition, Blame::Sizegate);
        self.shared.report(&refusal, error_code, is_loop, client);
        PartitionResult::refused(partition, error_code, refusal.text, flagged)
    }

    fn observe(
        &self,
        topic: &TopicHandle,
        header: &BatchHeader,
        facts: BatchFacts,
        violation: Violation,
        partition: i32,
        client: &ClientInfo,
    ) {
        count_measures(topic, header, &facts);
        topic.metrics.observed.inc();
        topic.metrics.violation(violation.limit.gate, violation.limit.source, Action::Observe);
        let refusal = self.shared.refusal(topic, facts, violation, partition, Blame::Observed);
        self.shared.report(&refusal, 0, false, client);
    }

    fn is_loop(&mut self, topic: &TopicHandle, header: &BatchHeader, partition: i32, client: &ClientInfo) -> bool {
        let bytes = if header.producer_id < 0 { header.crc } else { 0 };
        let key = ResendKey {
            topic: topic.name.to_string(),
            partition,
            identity: (header.producer_id, header.producer_epoch, header.base_sequence, bytes),
        };
        let is_old_java = header.records_count > 1
            && client.software.as_ref().is_some_and(|s| LoopDetector::is_old_java(&s.name, &s.version));
        self.loops.is_loop(key, Instant::now(), is_old_java)
    }
}

/// `record_errors` go with code 87 only: with 10 and 44 they make librdkafka lose the code.
fn flagged_records(
    error_code: i16,
    is_loop: bool,
    header: &BatchHeader,
    violation: &Violation,
    client: &ClientInfo,
) -> Vec<i32> {
    if error_code != INVALID_RECORD {
        return Vec::new();
    }
    match violation.record {
        Some(record) if !is_loop => vec![i32::try_from(record.index).unwrap_or(0)],
        _ if header.records_count == 1 => vec![0],
        _ if is_loop && client.software.as_ref().is_some_and(|s| LoopDetector::is_java(&s.name)) => {
            (0..header.records_count.min(MOST_FLAGGED)).collect()
        }
        _ => Vec::new(),
    }
}

fn count_forwarded(topic: &TopicHandle, header: &BatchHeader, facts: &BatchFacts) {
    count_measures(topic, header, facts);
    topic.metrics.forwarded.inc();
    let limit = topic.policy.batch_limit_bytes(topic.learned());
    if limit.is_some_and(|limit| topic.policy.is_near(facts.wire_bytes, limit)) {
        topic.metrics.near_limit(Gate::Batch);
    }
}

fn count_measures(topic: &TopicHandle, header: &BatchHeader, facts: &BatchFacts) {
    if let Some(codec) = facts.codec {
        topic.metrics.batch(codec, facts.wire_bytes, u64::from(header.records_count.max(0).unsigned_abs()));
    }
}

/// Weighs one partition's records against the topic's limits.
fn weigh_batch(handle: &Arc<TopicHandle>, layout: &Layout, records: &[u8]) -> Outcome {
    if !layout.is_transactional && BatchHeader::read(records).is_ok_and(|header| header.magic == 2 && header.is_transactional()) {
        return Outcome::SpoilsRequest;
    }
    let Some(header) = judged_by_size(layout, records) else { return Outcome::Pass };
    let facts = BatchFacts {
        wire_bytes: header.wire_bytes(),
        uncompressed: None,
        codec: header.codec(),
        records: header.records_count,
        largest: None,
    };
    match handle.policy.judge_batch(&facts, handle.learned()) {
        Some(violation) => Outcome::Over(Arc::clone(handle), header, facts, violation),
        None => Outcome::Within(Arc::clone(handle), header, facts),
    }
}

/// The header of a batch that the broker would come to judge by its size: one whole magic-2 batch with base
/// offset 0 and nothing wrong that is checked earlier (`ProduceRequest.validateRecords`, `LogValidator`).
fn judged_by_size(layout: &Layout, records: &[u8]) -> Option<BatchHeader> {
    let header = BatchHeader::read(records).ok()?;
    let wire_bytes = usize::try_from(header.wire_bytes()).ok()?;
    let trailing = records.len().checked_sub(wire_bytes)?;
    let is_sound = layout.version >= 3
        && header.magic == 2
        && header.base_offset == 0
        && trailing <= TRAILING_BYTES
        && wire_bytes >= crate::batch::BATCH_HEADER_BYTES
        && (layout.version >= 7 || header.codec() != Some(crate::policy::Codec::Zstd));
    is_sound.then_some(header)
}

/// Refusals as the answer groups them: one entry per topic.
pub fn by_topic(refused: Vec<Refused>) -> Vec<TopicResult> {
    let mut topics: Vec<TopicResult> = Vec::new();
    let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
    for Refused { topic_key, result } in refused {
        let place = *places.entry(topic_key).or_insert_with_key(|key| {
            topics.push(TopicResult { key: key.clone(), partitions: Vec::new(), tags: vec![0] });
            topics.len() - 1
        });
        topics[place].partitions.push(result);
    }
    topics
}
