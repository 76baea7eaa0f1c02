//! The verdict on one Produce request: what is forwarded, what is refused, what must be asked first.
//!
//! Judging has two halves. [`Judge::evaluate`] only looks; if it needs to know more (a topic id, whether a learned
//! limit still holds, what a long decode finds) or work is to be done first, that is a [`Step`]: the session takes it and
//! evaluates again. [`Judge::commit`] then counts, logs and writes refusals, once. Only what the broker itself would judge by size is judged here: a batch that is
//! wrong in a way the broker checks earlier is forwarded, and the broker answers it.

mod codec;
mod commit;
mod confirm;
mod evaluate;
mod foresee;
mod frame;
mod gathered;
mod measure;
mod offload;
mod outcome;
mod repeated;
mod sampling;
mod sent;
mod trial;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

pub(super) use self::confirm::ToConfirm;
use self::evaluate::Evaluation;
pub(super) use self::evaluate::{Inspected, LongDecode, inspect_long};
pub(super) use self::foresee::{Foresight, Passing};
pub(super) use self::gathered::{Confirmed, Gathered, Question, Step, Work};
pub(super) use self::offload::{Offload, Ready, Stage, ToOffload};
use self::outcome::{Evaluated, Measured, Outcome};
use self::repeated::Repeated;
pub(super) use self::sent::{Sent, SentBatches};
pub use self::trial::{Fate, SharedConfirmed, Trial, Tried};
use super::topics::{Resolved, TopicCache, TopicHandle};
use super::{ClientInfo, Shared};
use crate::count::total;
use crate::error_code::{UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION};
use crate::inspect::Measures;
use crate::policy::{LingerWatch, LoopDetector, Policy};
use crate::wire::produce::Layout;
use crate::wire::produce_response::{PartitionResult, TopicResult};
use crate::wire::{Malformed, Reason};

/// A rule is broken, for nobody yet.
const PLACE_UNKNOWN: &str =
    "sizegate: the batch breaks a rule, and the broker does not know the partition (yet)";

/// No records, and no such topic or partition.
const NO_RECORDS: &str = "sizegate: the request holds no records for this partition, and the cluster has no such partition";

/// A learned limit this young refuses without being read again: no broker changes a limit and tells of it in less,
/// and a client that resends what is refused without pause costs its broker at most 200 reads a second.
pub(super) const CURRENT: Duration = Duration::from_millis(5);

/// Unknown topics of one request that are looked up; more are answered as if the cluster had not been asked.
const MOST_ASKED: usize = 1000;

/// Partitions for which a session keeps room between requests.
const KEPT_PARTITIONS: usize = 256;

/// A partition that was not.
#[derive(Debug)]
pub(super) struct Refused {
    /// The topic as the request encodes it.
    pub topic_key: Vec<u8>,
    /// Its result.
    pub result: PartitionResult,
}

impl Refused {
    /// About the memory it takes.
    pub(super) fn remembered_bytes(&self) -> usize {
        total([
            size_of::<Self>(),
            self.topic_key.len(),
            self.result.remembered_bytes(),
        ])
    }
}

/// A verdict.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    /// What goes on to the broker.
    pub forward: Forward,
    /// What is forwarded and was measured.
    pub sent: SentBatches,
    /// What is refused.
    pub refused: Vec<Refused>,
}

/// What goes on to the broker.
#[derive(Debug, Default)]
pub(super) enum Forward {
    /// The frame as it is.
    #[default]
    Whole,
    /// These entries of it, as [`Layout::splice`] takes them.
    Spliced(Vec<(usize, Vec<usize>)>),
    /// Nothing: every partition is answered here.
    Nothing,
}

/// Judges the requests of one session.
pub(super) struct Judge {
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
    repeated: Repeated,
    /// Sizes of the one batch that is judged, where somebody measured it before; of a client's request nobody did.
    measures: Option<Measures>,
}

impl Judge {
    /// A judge for one session, which talks to this broker.
    pub(super) fn new(shared: Arc<Shared>, node_id: Option<i32>) -> Self {
        Self {
            shared,
            node_id,
            topics: TopicCache::new(node_id),
            loops: LoopDetector::default(),
            linger: LingerWatch::default(),
            layout: Layout::default(),
            evaluated: Vec::new(),
            repeated: Repeated::default(),
            measures: None,
        }
    }

    /// The request last evaluated.
    pub(super) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The `client_id` of the request last evaluated.
    pub(super) fn client_id<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        frame.get(self.layout.client_id.clone()?)
    }

    /// Gives back the memory of an unusually large request.
    pub(super) fn release(&mut self) {
        let room = self
            .layout
            .partitions
            .capacity()
            .max(self.layout.topics.capacity());
        if room.max(self.evaluated.capacity()) > KEPT_PARTITIONS {
            self.layout = Layout::default();
            self.evaluated = Vec::new();
            self.repeated = Repeated::default();
        }
        self.topics.release();
    }

    /// Looks at every partition of a whole frame by these rules, and tells what comes before [`Judge::commit`].
    pub(super) fn evaluate(
        &mut self,
        frame: &[u8],
        version: i16,
        policy: &Arc<Policy>,
        asked: &Gathered,
        client: &mut ClientInfo,
    ) -> Result<Step, Malformed> {
        self.layout.read(frame, version)?;
        client.learn_client_id(self.client_id(frame));
        self.topics.follow(policy, client);
        let mut evaluated = std::mem::take(&mut self.evaluated);
        evaluated.clear();
        // Nothing to drop where every topic is known.
        let mut unknown_ids: Option<BTreeSet<Uuid>> = None;
        let mut unknown_names: Option<BTreeSet<Arc<str>>> = None;
        let may_look_up = !asked.names && self.shared.cluster.is_reached();
        let mut evaluation = Evaluation::new(frame, &self.layout, policy.decode(), asked)
            .knowing(self.measures.as_ref());
        if self.layout.has_many_tags {
            evaluation.judge_by_rules_only();
        }
        for (topic_entry, topic) in self.layout.topics.iter().enumerate() {
            let resolved = self
                .topics
                .resolve(&self.shared, self.layout.topic_key(frame, topic)?);
            match &resolved {
                Resolved::UnknownId(id) if may_ask(&unknown_ids) => {
                    unknown_ids.get_or_insert_default().insert(*id);
                }
                Resolved::Topic(handle)
                    if may_look_up && handle.wants_looking_up() && may_ask(&unknown_names) =>
                {
                    let names = unknown_names.get_or_insert_default();
                    names.insert(Arc::clone(&handle.name));
                }
                Resolved::Topic(_) | Resolved::UnknownId(_) | Resolved::Impossible => {}
            }
            for partition_entry in topic.partitions.clone() {
                evaluated.push(Evaluated {
                    topic_entry,
                    partition_entry,
                    outcome: self.evaluate_partition(
                        &mut evaluation,
                        &resolved,
                        partition_entry,
                        policy,
                        asked,
                    ),
                });
                if let (Some(offload), Resolved::Topic(topic), Some(last)) =
                    (&asked.offload, &resolved, evaluated.last_mut())
                {
                    let outcome = std::mem::replace(&mut last.outcome, Outcome::Pass);
                    last.outcome = offload.adjust(partition_entry, topic, outcome);
                }
            }
        }
        let long = evaluation.into_long();
        self.evaluated = evaluated;
        self.leave_to_broker()?;
        if let Some(ids) = unknown_ids.filter(|_| !asked.ids) {
            let ids = ids.into_iter().collect();
            return Ok(Step::Ask(Question::Ids(ids)));
        }
        // Once per topic: a limit set by its creator is in force from the first batch on.
        if let Some(names) = unknown_names {
            let names = names.into_iter().collect();
            return Ok(Step::Ask(Question::Names(names)));
        }
        if !long.is_empty() {
            return Ok(Step::Do(Work::Decode(long)));
        }
        let mut outcomes = self.evaluated.iter().map(|evaluated| &evaluated.outcome);
        if outcomes.any(Outcome::spoils_request) {
            // Its error is the response. But what a rule forbids is kept from it all the same.
            let learned = self.over_learned();
            if let Some(work) = self.evaluate_by_rules(frame, &learned, asked) {
                return Ok(Step::Do(work));
            }
        }
        self.repeated.find(frame, &self.layout)?;
        if self.layout.partitions.len() > 1 {
            self.repeated.keep_last(&self.layout, &mut self.evaluated);
        }
        Ok(match self.to_confirm(frame, asked) {
            Step::Done => self.last_step(frame, asked),
            step => step,
        })
    }

    /// With everything confirmed: what is offloaded is first planned, then uploaded; and what is left has to fit into the
    /// broker's socket.
    fn last_step(&self, frame: &[u8], asked: &Gathered) -> Step {
        let to_offload = self.to_offload(asked);
        if !to_offload.is_empty() {
            return Step::Do(Work::Plan(to_offload));
        }
        let to_upload = self.to_upload(asked);
        if !to_upload.is_empty() {
            return Step::Do(Work::Upload(to_upload));
        }
        if !asked.frame && self.may_be_too_large(frame) {
            return Step::Ask(Question::FrameLimit);
        }
        Step::Done
    }

    /// Requests that brokers do not agree on: Kafka 4.4 closes on more than 10,000 tagged fields. Where only the
    /// broker's own limit speaks, it judges; what a rule forbids is closed on.
    fn leave_to_broker(&self) -> Result<(), Malformed> {
        if !self.layout.has_many_tags {
            return Ok(());
        }
        let is_forbidden = |evaluated: &Evaluated| {
            evaluated.outcome.violation().is_some() && evaluated.outcome.is_refused()
        };
        if self.evaluated.iter().any(is_forbidden) {
            return Err(Malformed::new("tagged_fields", Reason::UnsupportedVersion));
        }
        Ok(())
    }

    /// Where in `evaluated` a limit that was learned is what is exceeded.
    fn over_learned(&self) -> Vec<usize> {
        let is_over_learned = |evaluated: &Evaluated| {
            let violation = evaluated.outcome.violation();
            violation.is_some_and(|(measured, violation)| {
                !measured.topic.policy.is_configured(&violation.limit)
            })
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
    ) -> Option<Work> {
        let mut evaluation =
            Evaluation::new(frame, &self.layout, self.topics.decode(&self.shared), asked)
                .knowing(self.measures.as_ref());
        evaluation.judge_by_rules_only();
        for at in places {
            let Some(evaluated) = self.evaluated.get_mut(*at) else {
                continue;
            };
            let entry = evaluated.partition_entry;
            let records = records_of(&self.layout, entry);
            if let (Some((measured, _)), Some(records)) = (evaluated.outcome.violation(), records) {
                let topic = Arc::clone(&measured.topic);
                let outcome = evaluation.evaluate(&topic, entry, records);
                evaluated.outcome = match &asked.offload {
                    Some(offload) => offload.adjust(entry, &topic, outcome),
                    None => outcome,
                };
            }
        }
        let long = evaluation.into_long();
        (!long.is_empty()).then_some(Work::Decode(long))
    }

    fn evaluate_partition(
        &self,
        evaluation: &mut Evaluation<'_>,
        resolved: &Resolved,
        partition_entry: usize,
        policy: &Policy,
        asked: &Gathered,
    ) -> Outcome {
        let records = records_of(&self.layout, partition_entry);
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

    /// Kept partitions under one entry per topic, in the order in which topics first appear.
    fn grouped(&self, frame: &[u8], kept: &[(usize, usize)]) -> Vec<(usize, Vec<usize>)> {
        let mut order: Vec<(usize, Vec<usize>)> = Vec::new();
        let mut places: HashMap<Option<&[u8]>, usize> = HashMap::new();
        for &(topic_entry, partition_entry) in kept {
            let topic = self.layout.topics.get(topic_entry);
            let key = topic.and_then(|topic| frame.get(topic.key.clone()));
            let next = order.len();
            let place = *places.entry(key).or_insert(next);
            match order.get_mut(place) {
                Some((_, partitions)) => partitions.push(partition_entry),
                None => order.push((topic_entry, vec![partition_entry])),
            }
        }
        order
    }
}

/// One more may be looked up.
fn may_ask<T>(asked: &Option<BTreeSet<T>>) -> bool {
    asked.as_ref().is_none_or(|asked| asked.len() < MOST_ASKED)
}

/// Where a partition's records stand in the frame; `None`: they are null.
fn records_of(layout: &Layout, partition_entry: usize) -> Option<Range<usize>> {
    layout.partitions.get(partition_entry)?.records.clone()
}

/// Refusals as the response groups them: one entry per topic.
pub(super) fn by_topic(refused: Vec<Refused>) -> Vec<TopicResult> {
    let mut topics: Vec<TopicResult> = Vec::new();
    let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
    for Refused { topic_key, result } in refused {
        let next = topics.len();
        let place = *places.entry(topic_key).or_insert_with_key(|key| {
            topics.push(TopicResult {
                key: key.clone(),
                partitions: Vec::new(),
                tags: vec![0],
            });
            next
        });
        if let Some(topic) = topics.get_mut(place) {
            topic.partitions.push(result);
        }
    }
    topics
}
