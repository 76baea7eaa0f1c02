//! Tells what of a request is offloaded, and what has become of it so far.
//!
//! A request is judged up to three times: as it came, with stand-ins for the tickets (so that nothing is uploaded for a
//! batch that is refused all the same), and with the tickets themselves. Invariant: a stand-in is never forwarded.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::evaluate::FIRST_BATCH_VERSION;
use super::{Gathered, Judge, Outcome, TopicHandle};
use crate::claim::{Failure, Fit, OpenBatch, Plan, Refuted};
use crate::config::StoreFailure;
use crate::vocabulary::Action;

/// A batch that may be offloaded.
#[derive(Debug)]
pub(crate) struct ToOffload {
    /// Entry in [`crate::wire::produce::Layout::partitions`].
    pub partition_entry: usize,
    /// Its bytes in the frame.
    pub records: Range<usize>,
    /// Its topic.
    pub topic: Arc<TopicHandle>,
    /// What a ticket has to mend.
    pub fit: Fit,
}

/// What was offloaded of one request.
#[derive(Debug, Default)]
pub(crate) struct Offload {
    /// By partition entry.
    pub stages: BTreeMap<usize, Stage>,
    /// Nothing more is uploaded.
    pub is_over: bool,
}

/// How far a batch has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Nothing in it is offloaded: it is judged as it came.
    Left,
    /// It has a record with our mark that is none of ours.
    Forged(u32, Refuted),
    /// Stand-ins are in the frame.
    Planned(Box<Ready>),
    /// Stand-ins are in the frame, and no tickets will be.
    GivenUp,
    /// It cannot be offloaded, and is sent again by its client.
    Failed(Failure),
    /// It cannot be offloaded, and goes as it came, if it fits.
    Inline(Failure),
    /// Its objects are there, and the tickets are in the frame.
    Done {
        /// Records with a ticket.
        records: u64,
        /// Bytes of their values.
        bytes: u64,
        /// Objects that were not there before.
        created: u64,
    },
}

impl Stage {
    /// Objects that were written for it, and were not there before.
    pub(super) const fn created(&self) -> u64 {
        match self {
            Self::Done { created, .. } => *created,
            Self::Left
            | Self::Forged(..)
            | Self::Planned(_)
            | Self::GivenUp
            | Self::Failed(_)
            | Self::Inline(_) => 0,
        }
    }

    /// What follows from a failure. A client that waits for no response cannot be told to send again.
    pub(crate) fn failed(failure: Failure, on_failure: StoreFailure, acks: i16) -> Self {
        match on_failure {
            StoreFailure::Refuse if acks != 0 => Self::Failed(failure),
            StoreFailure::Refuse | StoreFailure::InlineIfFits => Self::Inline(failure),
        }
    }
}

/// A batch that was planned.
#[derive(Debug)]
pub(crate) struct Ready {
    /// Its topic.
    pub topic: Arc<TopicHandle>,
    /// As it came.
    pub batch: OpenBatch,
    /// What is offloaded.
    pub plan: Plan,
    /// Who signs.
    pub issuer: Arc<crate::claim::Issuer>,
    /// With stand-ins.
    pub stand_in: Vec<Bytes>,
}

/// Why a batch is answered here that was to be offloaded.
#[derive(Debug)]
pub(super) enum Undone {
    Forged(u32, Refuted),
    Failed(Option<Failure>),
}

impl Offload {
    /// Gives back what was kept for uploads: there will be no more.
    pub(crate) fn end(&mut self) {
        self.is_over = true;
        for stage in self.stages.values_mut() {
            if matches!(stage, Stage::Planned(_)) {
                *stage = Stage::GivenUp;
            }
        }
    }

    /// The outcome for an entry, by how far it has come.
    pub(super) fn adjust(
        &self,
        partition_entry: usize,
        topic: &Arc<TopicHandle>,
        outcome: Outcome,
    ) -> Outcome {
        let undone = |undone| Outcome::Undone(Arc::clone(topic), undone);
        match (self.stages.get(&partition_entry), outcome) {
            (None | Some(Stage::Left | Stage::Done { .. }), outcome) => outcome,
            (Some(Stage::Forged(record, why)), _) => undone(Undone::Forged(*record, *why)),
            (Some(Stage::Planned(_)), outcome) if !self.is_over => outcome,
            (Some(Stage::Planned(_) | Stage::GivenUp), outcome) if outcome.is_refused() => outcome,
            (Some(Stage::Planned(_) | Stage::GivenUp), _) => undone(Undone::Failed(None)),
            (Some(Stage::Failed(failure)), _) => undone(Undone::Failed(Some(failure.clone()))),
            (Some(Stage::Inline(failure)), Outcome::Over(..)) => {
                undone(Undone::Failed(Some(failure.clone())))
            }
            (Some(Stage::Inline(_)), outcome) => outcome,
        }
    }
}

impl Judge {
    /// What is to be offloaded of the request last evaluated, with nothing left to ask.
    pub(super) fn to_offload(&self, asked: &Gathered) -> Vec<ToOffload> {
        let mut outcomes = self.evaluated.iter().map(|evaluated| &evaluated.outcome);
        let is_refused_whole = outcomes.any(Outcome::spoils_request);
        if asked.is_offload_decided()
            || is_refused_whole
            || self.layout.has_many_tags
            || self.layout.version < FIRST_BATCH_VERSION
        {
            return Vec::new();
        }
        let to_offload = self.evaluated.iter().filter_map(|evaluated| {
            let (measured, violation) = evaluated.outcome.violation()?;
            let topic = &measured.topic;
            topic.policy.offload.as_ref()?;
            if topic.policy.action == Action::Observe {
                return None;
            }
            if violation.unreadable.is_some() || !violation.limit.gate.is_mended_by_a_ticket() {
                return None;
            }
            let inside = &topic.policy.inside;
            let entry = self.layout.partitions.get(evaluated.partition_entry)?;
            Some(ToOffload {
                partition_entry: evaluated.partition_entry,
                records: entry.records.clone()?,
                topic: Arc::clone(topic),
                fit: Fit {
                    value_bytes: inside.value_bytes,
                    record_bytes: inside.record_bytes,
                    estimate_bytes: inside.estimate_bytes,
                    uncompressed_bytes: inside.uncompressed_bytes,
                    batch_bytes: topic.policy.batch_limit_bytes(asked.learned(topic)),
                },
            })
        });
        to_offload.collect()
    }

    /// The entries whose values are to be uploaded: those that are forwarded with a ticket.
    pub(super) fn to_upload(&self, asked: &Gathered) -> Vec<usize> {
        let Some(offload) = asked.offload.as_ref().filter(|offload| !offload.is_over) else {
            return Vec::new();
        };
        let is_planned =
            |entry: &usize| matches!(offload.stages.get(entry), Some(Stage::Planned(_)));
        self.evaluated
            .iter()
            .filter(|evaluated| !evaluated.outcome.is_refused())
            .map(|evaluated| evaluated.partition_entry)
            .filter(is_planned)
            .collect()
    }
}
