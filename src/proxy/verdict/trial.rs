//! What would become of a batch if it were produced now: the verdict of a session, without one.
//!
//! Invariant: the same code decides as for a client's request; nothing is counted, logged, stored or sent on. What was
//! confirmed of a topic once holds for the whole trial, whoever of those that share it asks next.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

use super::{
    Confirmed, Gathered, Judge, Offload, Outcome, Question, Stage, Step, ToOffload, Work,
    inspect_long,
};
use crate::codec::Decoders;
use crate::inspect::Measures;
use crate::policy::Violation;
use crate::proxy::session::{confirm, plan_one, rebuilt};
use crate::proxy::{ClientInfo, Shared};
use crate::vocabulary::{Action, Gate};
use crate::wire::Writer;
use crate::wire::record_batch::{ATTRIBUTES_LOW_AT, BATCH_LENGTH_AT};

/// The first version with a text and the last that is not flexible: names topics by their names.
const PRODUCE_VERSION: i16 = 8;
const PRODUCE_KEY: i16 = 0;
/// A batch that would go through this many questions is not judged to an end.
const MOST_QUESTIONS: usize = 16;
/// The bit of a batch's attributes for a transaction.
const TRANSACTIONAL: u8 = 0x10;
/// Uncompressed bytes that a plan for the object store may make, without a store to say.
const MOST_PLANNED_BYTES: u64 = 256 << 20;

/// What would become of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is within all limits, or none is known.
    Forwarded,
    /// It would be refused.
    Refused,
    /// It is over a limit that is only observed.
    Observed,
    /// Values of it would go to the object store.
    Offloaded,
    /// It is nothing that is judged by size: the broker would decide.
    LeftToBroker,
}

/// A batch's trial.
#[derive(Debug, Clone)]
pub struct Tried {
    /// What would become of it.
    pub fate: Fate,
    /// The limits that it is over: the first, and where nothing is refused all.
    pub over: Vec<Violation>,
    /// The gates at which it is within the limit and near it.
    pub near: Vec<Gate>,
    /// Records whose values would be offloaded.
    pub offloaded_records: u64,
    /// Bytes of these.
    pub offloaded_bytes: u64,
}

impl Tried {
    const fn of(fate: Fate) -> Self {
        Self {
            fate,
            over: Vec::new(),
            near: Vec::new(),
            offloaded_records: 0,
            offloaded_bytes: 0,
        }
    }
}

/// What was confirmed of topics; for all trials that judge by the same.
#[derive(Debug, Clone, Default)]
pub struct SharedConfirmed(Arc<Mutex<BTreeMap<Arc<str>, Confirmed>>>);

impl SharedConfirmed {
    fn get(&self, topic: &str) -> Option<Confirmed> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(topic).copied()
    }

    /// What was confirmed first stays.
    fn keep(&self, topic: &Arc<str>, confirmed: Confirmed) -> Confirmed {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *known.entry(Arc::clone(topic)).or_insert(confirmed)
    }
}

/// Judges batches as a session would.
pub struct Trial {
    shared: Arc<Shared>,
    judge: Judge,
    client: ClientInfo,
    confirmed: SharedConfirmed,
    decoders: Decoders,
}

impl Trial {
    /// For a client that says nothing of itself.
    pub fn new(shared: Arc<Shared>, confirmed: SharedConfirmed) -> Self {
        Self {
            judge: Judge::new(Arc::clone(&shared), None),
            shared,
            client: ClientInfo {
                address: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                client_id: None,
                software: None,
                principal: None,
                revision: 0,
            },
            confirmed,
            decoders: Decoders::default(),
        }
    }

    /// Judges a batch as the broker stores it, for a partition that exists. Where all of it was `measured`, it is decoded
    /// only to tell what is over.
    pub async fn judge(
        &mut self,
        topic: &str,
        partition: i32,
        stored: &[u8],
        measured: Option<Measures>,
    ) -> Tried {
        self.judge.measures = measured;
        let mut frame = frame(topic, partition, stored);
        let mut asked = Gathered::default();
        (asked.ids, asked.names, asked.frame) = (true, true, true);
        for _ in 0..MOST_QUESTIONS {
            let policy = self.shared.policy.load_full();
            let evaluated =
                self.judge
                    .evaluate(&frame, PRODUCE_VERSION, &policy, &asked, &mut self.client);
            match evaluated {
                Ok(Step::Do(Work::Decode(long))) => asked.inspect(inspect_long(&frame, &long)),
                Ok(Step::Ask(Question::Topics(to_confirm))) => {
                    for wanted in to_confirm {
                        let confirmed = match self.confirmed.get(&wanted.topic) {
                            Some(known) => known,
                            None => {
                                let said = confirm(&self.shared, &wanted, None).await;
                                self.confirmed.keep(&wanted.topic, said)
                            }
                        };
                        asked.confirm(wanted.topic, confirmed);
                    }
                    asked.limits = true;
                }
                Ok(Step::Do(Work::Plan(to_offload))) => {
                    frame = self.plan(&frame, to_offload, &mut asked);
                }
                // With stand-ins for its tickets it is within all limits.
                Ok(Step::Do(Work::Upload(_)) | Step::Done) => return self.tried(&asked),
                // Nothing else is asked of one batch that is named by its topic.
                Ok(Step::Ask(_)) | Err(_) => break,
            }
        }
        Tried::of(Fate::LeftToBroker)
    }

    /// The frame with stand-ins for tickets, where there are any.
    fn plan(&mut self, frame: &Bytes, wanted: Vec<ToOffload>, asked: &mut Gathered) -> Bytes {
        let mut progress = Offload::default();
        let mut chains = BTreeMap::new();
        let place = self.shared.claims.as_ref();
        let namespace = place.and_then(|claims| claims.namespace(&self.shared.cluster));
        for wanted in wanted {
            let Some(namespace) = &namespace else { break };
            let entry = wanted.partition_entry;
            let stage = plan_one(
                frame,
                wanted,
                namespace,
                MOST_PLANNED_BYTES,
                &mut self.decoders,
            );
            if let Stage::Planned(ready) = &stage {
                chains.insert(entry, ready.stand_in.clone());
            }
            progress.stages.insert(entry, stage);
        }
        let made = (!chains.is_empty())
            .then(|| rebuilt(frame, PRODUCE_VERSION, &chains))
            .flatten();
        asked.offload = Some(Box::new(progress));
        asked.forget_inspected();
        if made.is_some() {
            // Other records than were measured.
            self.judge.measures = None;
        }
        made.unwrap_or_else(|| frame.clone())
    }

    fn tried(&self, asked: &Gathered) -> Tried {
        let Some(evaluated) = self.judge.evaluated.first() else {
            return Tried::of(Fate::LeftToBroker);
        };
        match &evaluated.outcome {
            Outcome::Within(measured) => {
                let stages = asked.offload.as_ref().map(|offload| &offload.stages);
                let stage = stages.and_then(|stages| stages.get(&evaluated.partition_entry));
                let mut tried = Tried::of(Fate::Forwarded);
                if let Some(Stage::Planned(ready)) = stage {
                    tried.fate = Fate::Offloaded;
                    tried.offloaded_records = ready.plan.claims.len() as u64;
                    tried.offloaded_bytes = ready.plan.value_bytes();
                }
                tried.near = measured.near_gates().collect();
                tried
            }
            Outcome::Over(measured, violation) => {
                let fate = if measured.topic.policy.action == Action::Observe {
                    Fate::Observed
                } else {
                    Fate::Refused
                };
                Tried {
                    over: [violation]
                        .into_iter()
                        .chain(&measured.also)
                        .cloned()
                        .collect(),
                    ..Tried::of(fate)
                }
            }
            // A mark of a ticket that is none of ours; or what is answered for another reason than size.
            Outcome::Undone(..) => Tried::of(Fate::Refused),
            Outcome::Pass
            | Outcome::Invalid
            | Outcome::SpoilsRequest
            | Outcome::NoRecords(_)
            | Outcome::Response(..) => Tried::of(Fate::LeftToBroker),
        }
    }
}

/// A request of one batch, as its producer would send it: the broker has numbered its offsets since.
fn frame(topic: &str, partition: i32, stored: &[u8]) -> Bytes {
    let is_transactional = stored
        .get(ATTRIBUTES_LOW_AT)
        .is_some_and(|low| low & TRANSACTIONAL != 0);
    let mut w = Writer::frame(stored.len().saturating_add(topic.len()).saturating_add(64));
    w.int16(PRODUCE_KEY);
    w.int16(PRODUCE_VERSION);
    // Correlation id, no client id.
    w.int32(0);
    w.int16(-1);
    let transactional_id = if is_transactional { "scan" } else { "" };
    if is_transactional {
        put_string(&mut w, transactional_id);
    } else {
        w.int16(-1);
    }
    // acks, timeout
    w.int16(-1);
    w.int32(30_000);
    w.int32(1);
    put_string(&mut w, topic);
    w.int32(1);
    w.int32(partition);
    w.int32(i32::try_from(stored.len()).unwrap_or(i32::MAX));
    w.int64(0);
    w.raw(stored.get(BATCH_LENGTH_AT..).unwrap_or_default());
    w.into_frame().into()
}

fn put_string(w: &mut Writer, text: &str) {
    w.int16(i16::try_from(text.len()).unwrap_or(i16::MAX));
    w.raw(text.as_bytes());
}
