//! The verdict on one Produce request: what is forwarded, what is refused, what must be asked first.
//!
//! Judging has two halves. [`Judge::evaluate`] only looks; if it needs to know more (a topic id, whether a learned
//! limit still holds, what a long decode finds), the session asks and evaluates again. [`Judge::commit`] then counts,
//! logs and writes refusals, once. Only what the broker itself would judge by size is judged here: a batch that is
//! wrong in a way the broker checks earlier is forwarded, and the broker answers it.

mod codec;
mod commit;
mod confirm;
mod evaluate;
mod frame;
mod measure;
mod offload;
mod trial;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use uuid::Uuid;

pub use self::confirm::ToConfirm;
use self::evaluate::Evaluation;
pub use self::evaluate::{Inspected, LongDecode, inspect_long};
use self::offload::Undone;
pub use self::offload::{Offload, Ready, Stage, ToOffload};
pub use self::trial::{Fate, Trial, Tried};
use super::topics::{Resolved, TopicCache, TopicHandle};
use super::{ClientInfo, Shared};
use crate::batch::BatchHeader;
use crate::error_code::{UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION};
use crate::inspect::{NearGates, Proof, Sizes};
use crate::policy::{BatchFacts, Learned, LingerWatch, LoopDetector, Policy, Size, Violation};
use crate::vocabulary::{Action, Codec};
use crate::wire::produce::{Layout, TopicKey};
use crate::wire::produce_response::{PartitionResult, TopicResult};
use crate::wire::{Malformed, Reason};

/// A rule is broken, for nobody yet.
const PLACE_UNKNOWN: &str =
    "sizegate: the batch breaks a rule, and the broker does not know the partition (yet)";

/// No records, and no such topic or partition.
const NO_RECORDS: &str = "sizegate: the request holds no records for this partition, and the cluster has no such partition";

/// A learned limit this young refuses without being read again: no broker changes a limit and tells of it in less,
/// and a client that resends what is refused without pause costs its broker at most 200 reads a second.
pub const CURRENT: Duration = Duration::from_millis(5);

/// Unknown topics of one request that are looked up; more are answered as if the cluster had not been asked.
const MOST_ASKED: usize = 1000;

/// Partitions for which a session keeps room between requests.
const KEPT_PARTITIONS: usize = 256;

/// A partition that was forwarded. Its sizes are counted when this is dropped, which is when the broker has answered,
/// unless the broker refused them: a size that nobody stored is no measure for a limit.
#[derive(Debug)]
pub struct Sent {
    /// Its topic.
    pub topic: Arc<TopicHandle>,
    /// `index`
    pub partition: i32,
    /// Its wire bytes.
    pub wire_bytes: u64,
    /// Its codec.
    pub codec: Option<Codec>,
    /// Its records, as declared.
    pub records: i32,
    /// 61 + records after decompression, where it was measured.
    pub uncompressed: Option<Size>,
    /// Those of its records, where they were measured.
    sizes: Option<Box<Sizes>>,
    /// And 61 + all of them.
    uncompressed_bytes: Option<u64>,
    /// The broker refused it for its size.
    is_refused: Cell<bool>,
}

impl Sent {
    /// About the memory it takes. Topics that exist are no more than the cluster has, and others hold them too; one
    /// that was invented may be held by this alone.
    pub fn remembered_bytes(&self) -> usize {
        let is_known = self.topic.known.is_some();
        let topic = (!is_known).then(|| self.topic.remembered_bytes());
        size_of::<Self>() + topic.unwrap_or_default()
    }
}

/// A partition that was not.
#[derive(Debug)]
pub struct Refused {
    /// The topic as the request encodes it.
    pub topic_key: Vec<u8>,
    /// Its result.
    pub result: PartitionResult,
}

impl Refused {
    /// About the memory it takes.
    pub fn remembered_bytes(&self) -> usize {
        size_of::<Self>() + self.topic_key.len() + self.result.remembered_bytes()
    }
}

/// What has been asked for this request already: nothing is asked twice. (One is made for every request: trees cost
/// nothing while they are empty, hash tables draw their seeds.)
#[derive(Debug, Default)]
pub struct Gathered {
    /// Unknown topic ids were looked up.
    pub ids: bool,
    /// Unknown topic names were looked up.
    pub names: bool,
    /// Topics and learned limits were confirmed.
    pub limits: bool,
    /// Topics that could not be confirmed: the cluster did not answer, or does not let us see them.
    unseen: BTreeSet<Arc<str>>,
    /// Topics that the broker says it does not have.
    absent: BTreeSet<Arc<str>>,
    /// The limits that this session's broker applies to the topics that were asked for, as read just now.
    confirmed: BTreeMap<Arc<str>, Learned>,
    /// The broker's limit of a whole request was read.
    pub frame: bool,
    /// What it is, where it may be read.
    pub frame_limit: Option<u64>,
    /// How often long decodes were done, and what they found.
    decodes: u8,
    inspected: Inspected,
    /// What is offloaded, once that is decided.
    pub offload: Option<Box<Offload>>,
}

/// What a session's broker says of a topic when asked.
#[derive(Debug, Clone, Copy)]
pub enum Confirmed {
    /// Nothing: it did not answer, or does not let us see the topic.
    Unseen,
    /// There is no such topic.
    Absent,
    /// There is one; `None` where its limit cannot be read.
    Here(Option<Learned>),
}

impl Gathered {
    /// What was asked of a topic.
    pub fn confirm(&mut self, topic: Arc<str>, confirmed: Confirmed) {
        match confirmed {
            Confirmed::Unseen => drop(self.unseen.insert(topic)),
            Confirmed::Absent => drop(self.absent.insert(topic)),
            Confirmed::Here(Some(limit)) => drop(self.confirmed.insert(topic, limit)),
            Confirmed::Here(None) => {}
        }
    }

    /// What long decodes found; there may be more of them when a learned limit no longer counts.
    pub fn inspect(&mut self, inspected: Inspected) {
        self.decodes = self.decodes.saturating_add(1);
        self.inspected.extend(inspected);
        self.inspected.sort_by_key(|(entry, _)| *entry);
    }

    /// The learned limit to judge by: what was read for this request, else what was read last.
    fn learned(&self, topic: &TopicHandle) -> Option<Learned> {
        if !self.limits {
            return topic.learned();
        }
        let confirmed = |name: &str| self.confirmed.get(name).copied();
        let policy = &topic.policy;
        policy.tightest(confirmed(&topic.name), |at| {
            let member = policy.members.get(at)?;
            confirmed(&member.topic).map(|learned| learned.value)
        })
    }
}

/// What must be known before the verdict.
#[derive(Debug)]
pub enum Question {
    /// The names of these topic ids.
    Ids(Vec<Uuid>),
    /// Topics that nobody has heard of yet, by name.
    Names(Vec<Arc<str>>),
    /// Whether these topics and their partitions exist, and their limits as they are now.
    Topics(Vec<ToConfirm>),
    /// What is inside these batches.
    Decode(Vec<LongDecode>),
    /// What tickets would make of these batches.
    Plan(Vec<ToOffload>),
    /// Whether the values of these partition entries are in the store.
    Upload(Vec<usize>),
    /// How large a request this session's broker takes.
    FrameLimit,
}

/// A verdict.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Entries to forward, as [`Layout::splice`] takes them; `None`: the whole frame as it came.
    pub kept: Option<Vec<(usize, Vec<usize>)>>,
    /// What is forwarded and was measured.
    pub sent: SmallVec<[Sent; 1]>,
    /// What is refused.
    pub refused: Vec<Refused>,
}

/// One partition and what was found of it.
#[derive(Debug)]
struct Evaluated {
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
    /// The broker refuses the partition for it, whatever other batches of the same partition are in the request.
    Invalid,
    /// The broker refuses the whole request for it, before it looks at sizes: a transactional batch without a
    /// transactional id.
    SpoilsRequest,
    /// It is within all limits.
    Within(Measured),
    /// It is over a limit.
    Over(Measured, Violation),
    /// It has no records, where the broker would neither answer nor close.
    NoRecords(Arc<TopicHandle>),
    /// It was to be offloaded, and is not.
    Undone(Arc<TopicHandle>, Undone),
    /// It is answered here for another reason than size.
    Response(i16, &'static str),
}

/// A batch that was measured.
#[derive(Debug)]
struct Measured {
    topic: Arc<TopicHandle>,
    header: BatchHeader,
    facts: BatchFacts,
    /// What sufficed to judge what is inside, where a limit is inside.
    proof: Option<Proof>,
    /// The gates inside it at which it is near the limit.
    near: NearGates,
    /// The sizes of its records, where they were measured for the histograms.
    sizes: Option<Box<Sizes>>,
    /// And 61 + all of them.
    uncompressed_bytes: Option<u64>,
    /// Of a batch that is over a limit: what else it is over, as far as that was looked at.
    also: Vec<Violation>,
    /// What a sample of it saved with an allowed codec, in hundredths, where the gate `codec` asked.
    gain: Option<(Codec, u64)>,
}

impl Outcome {
    /// The partition is answered here.
    fn is_refused(&self) -> bool {
        match self {
            Self::Pass | Self::Invalid | Self::SpoilsRequest | Self::Within(_) => false,
            Self::Over(measured, _) => measured.topic.policy.action != Action::Observe,
            Self::NoRecords(_) | Self::Response(..) | Self::Undone(..) => true,
        }
    }

    /// The broker's response is due to it even if it is not the partition's last batch.
    const fn always_counts(&self) -> bool {
        matches!(self, Self::Invalid | Self::SpoilsRequest)
    }
}

/// Judges the requests of one session.
pub struct Judge {
    shared: Arc<Shared>,
    /// The broker whose limits count; `None` where it is not known which one this session talks to.
    node_id: Option<i32>,
    /// The topics of this session, whoever asks for them.
    pub topics: TopicCache,
    loops: LoopDetector,
    /// How old the connection's batches are when they arrive.
    pub linger: LingerWatch<Arc<TopicHandle>>,
    /// Where the request in hand keeps things; reused.
    layout: Layout,
    evaluated: Vec<Evaluated>,
}

impl Judge {
    /// A judge for one session, which talks to this broker.
    pub fn new(shared: Arc<Shared>, node_id: Option<i32>) -> Self {
        Self {
            shared,
            node_id,
            topics: TopicCache::new(node_id),
            loops: LoopDetector::default(),
            linger: LingerWatch::default(),
            layout: Layout::default(),
            evaluated: Vec::new(),
        }
    }

    /// The request last evaluated.
    pub const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The `client_id` of the request last evaluated.
    pub fn client_id<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        frame.get(self.layout.client_id.clone()?)
    }

    /// Gives back the memory of an unusually large request.
    pub fn release(&mut self) {
        let room = self
            .layout
            .partitions
            .capacity()
            .max(self.layout.topics.capacity());
        if room.max(self.evaluated.capacity()) > KEPT_PARTITIONS {
            self.layout = Layout::default();
            self.evaluated = Vec::new();
        }
        self.topics.release();
    }

    /// Looks at every partition of a whole frame by these rules. `Some` is what must be known before
    /// [`Judge::commit`].
    pub fn evaluate(
        &mut self,
        frame: &[u8],
        version: i16,
        policy: &Arc<Policy>,
        asked: &Gathered,
        client: &mut ClientInfo,
    ) -> Result<Option<Question>, Malformed> {
        self.layout.read(frame, version)?;
        client.learn_client_id(self.client_id(frame));
        self.topics.follow(policy, client);
        let mut evaluated = std::mem::take(&mut self.evaluated);
        evaluated.clear();
        let mut unknown_ids = BTreeSet::new();
        let mut unknown_names = BTreeSet::new();
        let may_look_up = !asked.names && self.shared.cluster.is_reached();
        let mut evaluation = Evaluation::new(frame, &self.layout, policy.decode(), asked);
        if self.layout.has_many_tags {
            evaluation.judge_by_rules_only();
        }
        for topic_entry in 0..self.layout.topics.len() {
            let topic = &self.layout.topics[topic_entry];
            let resolved = self
                .topics
                .resolve(&self.shared, self.layout.topic_key(frame, topic)?);
            match &resolved {
                Resolved::UnknownId(id) if unknown_ids.len() < MOST_ASKED => {
                    unknown_ids.insert(*id);
                }
                Resolved::Topic(handle)
                    if may_look_up
                        && handle.wants_looking_up()
                        && unknown_names.len() < MOST_ASKED =>
                {
                    unknown_names.insert(Arc::clone(&handle.name));
                }
                Resolved::Topic(_) | Resolved::UnknownId(_) | Resolved::Impossible => {}
            }
            for partition_entry in topic.partitions.clone() {
                let outcome = self.evaluate_partition(
                    &mut evaluation,
                    &resolved,
                    partition_entry,
                    policy,
                    asked,
                );
                let outcome = match (&asked.offload, &resolved) {
                    (Some(offload), Resolved::Topic(topic)) => {
                        offload.adjust(partition_entry, topic, outcome)
                    }
                    _ => outcome,
                };
                evaluated.push(Evaluated {
                    topic_entry,
                    partition_entry,
                    outcome,
                });
            }
        }
        let long = evaluation.into_long();
        self.evaluated = evaluated;
        self.leave_to_broker()?;
        if !unknown_ids.is_empty() && !asked.ids {
            return Ok(Some(Question::Ids(unknown_ids.into_iter().collect())));
        }
        // Once per topic: a limit set by its creator is in force from the first batch on.
        if !unknown_names.is_empty() {
            return Ok(Some(Question::Names(unknown_names.into_iter().collect())));
        }
        if !long.is_empty() {
            return Ok(Some(Question::Decode(long)));
        }
        if self
            .evaluated
            .iter()
            .any(|evaluated| matches!(evaluated.outcome, Outcome::SpoilsRequest))
        {
            // Its error is the response. But what a rule forbids is kept from it all the same.
            let learned = self.over_learned();
            if let Some(question) = self.evaluate_by_rules(frame, &learned, asked) {
                return Ok(Some(question));
            }
        }
        if self.layout.partitions.len() > 1 {
            self.keep_last_of_each_partition(frame)?;
        }
        Ok(self.to_confirm(frame, asked))
    }

    /// Requests that brokers do not agree on: Kafka 4.4 closes on more than 10,000 tagged fields. Where only the
    /// broker's own limit speaks, it judges; what a rule forbids is closed on.
    fn leave_to_broker(&self) -> Result<(), Malformed> {
        if !self.layout.has_many_tags {
            return Ok(());
        }
        let is_forbidden = |evaluated: &Evaluated| match &evaluated.outcome {
            Outcome::Over(measured, _) => measured.topic.policy.action != Action::Observe,
            _ => false,
        };
        if self.evaluated.iter().any(is_forbidden) {
            return Err(Malformed::new("tagged_fields", Reason::UnsupportedVersion));
        }
        Ok(())
    }

    /// Where in `evaluated` a limit that was learned is what is exceeded.
    fn over_learned(&self) -> Vec<usize> {
        let is_over_learned = |evaluated: &Evaluated| match &evaluated.outcome {
            Outcome::Over(measured, violation) => {
                !measured.topic.policy.is_configured(&violation.limit)
            }
            _ => false,
        };
        let all = self.evaluated.iter().enumerate();
        all.filter(|(_, evaluated)| is_over_learned(evaluated))
            .map(|(at, _)| at)
            .collect()
    }

    /// Evaluates these again by what is configured alone: a learned limit that does not count must not hide a rule that
    /// is broken inside the batch.
    fn evaluate_by_rules(
        &mut self,
        frame: &[u8],
        places: &[usize],
        asked: &Gathered,
    ) -> Option<Question> {
        let mut evaluation = Evaluation::new(frame, &self.layout, self.shared.decode(), asked);
        evaluation.judge_by_rules_only();
        for at in places {
            let Some(evaluated) = self.evaluated.get_mut(*at) else {
                continue;
            };
            let entry = evaluated.partition_entry;
            let records = self.layout.partitions[entry].records.clone();
            if let (Outcome::Over(measured, _), Some(records)) = (&evaluated.outcome, records) {
                let topic = Arc::clone(&measured.topic);
                let outcome = evaluation.evaluate(&topic, entry, records);
                evaluated.outcome = match &asked.offload {
                    Some(offload) => offload.adjust(entry, &topic, outcome),
                    None => outcome,
                };
            }
        }
        let long = evaluation.into_long();
        (!long.is_empty()).then_some(Question::Decode(long))
    }

    fn evaluate_partition(
        &self,
        evaluation: &mut Evaluation<'_>,
        resolved: &Resolved,
        partition_entry: usize,
        policy: &Policy,
        asked: &Gathered,
    ) -> Outcome {
        let records = self.layout.partitions[partition_entry].records.clone();
        let Some(records) = records else {
            return self.null_records(resolved, asked);
        };
        match resolved {
            // Other acks are refused by the broker before it looks at sizes.
            _ if !matches!(self.layout.acks, -1..=1) => evaluation.leave(records),
            Resolved::Topic(handle) => evaluation.evaluate(handle, partition_entry, records),
            // Retriable, and what the broker itself says of an id it does not know.
            Resolved::UnknownId(_) if asked.ids && policy.is_governed() => Outcome::Response(
                UNKNOWN_TOPIC_ID,
                "sizegate: the topic's name is not known yet, so its limits are not either",
            ),
            Resolved::UnknownId(_) | Resolved::Impossible => evaluation.leave(records),
        }
    }

    /// A partition whose records are null. A broker that has to do with another partition of the request stores that
    /// one and then neither answers nor closes, so this never reaches it.
    fn null_records(&self, resolved: &Resolved, asked: &Gathered) -> Outcome {
        match resolved {
            // Kafka 4 closes on these versions.
            _ if self.layout.version < 3 => Outcome::Pass,
            Resolved::Topic(handle) => Outcome::NoRecords(Arc::clone(handle)),
            Resolved::UnknownId(_) if !asked.ids => Outcome::Pass,
            Resolved::UnknownId(_) => Outcome::Response(UNKNOWN_TOPIC_ID, NO_RECORDS),
            Resolved::Impossible => Outcome::Response(UNKNOWN_TOPIC_OR_PARTITION, NO_RECORDS),
        }
    }

    /// Of a partition named twice only the last batch counts, as in the broker. But what its first look finds fault with
    /// is the response even so, and is left to it.
    fn keep_last_of_each_partition(&mut self, frame: &[u8]) -> Result<(), Malformed> {
        let mut last: HashMap<(TopicKey<'_>, i32), usize> =
            HashMap::with_capacity(self.evaluated.len());
        let mut always = 0;
        for (at, evaluated) in self.evaluated.iter().enumerate() {
            if evaluated.outcome.always_counts() {
                always += 1;
                continue;
            }
            let key = self
                .layout
                .topic_key(frame, &self.layout.topics[evaluated.topic_entry])?;
            last.insert(
                (key, self.layout.partitions[evaluated.partition_entry].index),
                at,
            );
        }
        if last.len() + always == self.evaluated.len() {
            return Ok(());
        }
        let keep: HashSet<usize> = last.into_values().collect();
        let mut at = 0;
        self.evaluated.retain(|evaluated| {
            at += 1;
            evaluated.outcome.always_counts() || keep.contains(&(at - 1))
        });
        Ok(())
    }

    fn has_repeated_topics(&self, frame: &[u8]) -> bool {
        let topics = &self.layout.topics;
        if topics.len() < 2 {
            return false;
        }
        let mut seen = HashSet::with_capacity(topics.len());
        !topics
            .iter()
            .all(|topic| seen.insert(frame.get(topic.key.clone())))
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
}

/// Refusals as the response groups them: one entry per topic.
pub fn by_topic(refused: Vec<Refused>) -> Vec<TopicResult> {
    let mut topics: Vec<TopicResult> = Vec::new();
    let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
    for Refused { topic_key, result } in refused {
        let place = *places.entry(topic_key).or_insert_with_key(|key| {
            topics.push(TopicResult {
                key: key.clone(),
                partitions: Vec::new(),
                tags: vec![0],
            });
            topics.len() - 1
        });
        topics[place].partitions.push(result);
    }
    topics
}
