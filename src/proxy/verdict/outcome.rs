//! What evaluating finds of one partition.
//!
//! Invariant: no wildcard in a match on an [`Outcome`]: a new one is thought of at every place, or does not compile.

use std::sync::Arc;

use super::TopicHandle;
use super::offload::Undone;
use crate::batch::BatchHeader;
use crate::inspect::{NearGates, Proof, Sizes};
use crate::policy::{BatchFacts, Violation};
use crate::vocabulary::{Action, Codec};

/// One partition and what was found of it.
#[derive(Debug)]
pub(super) struct Evaluated {
    /// Entry in [`Layout::topics`].
    pub(super) topic_entry: usize,
    /// Entry in [`Layout::partitions`].
    pub(super) partition_entry: usize,
    pub(super) outcome: Outcome,
}

#[derive(Debug)]
pub(super) enum Outcome {
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
pub(super) struct Measured {
    pub(super) topic: Arc<TopicHandle>,
    pub(super) header: BatchHeader,
    pub(super) facts: BatchFacts,
    /// Its wire bytes are near the limit of the gate `batch`.
    pub(super) is_near: bool,
    /// What sufficed to judge what is inside, where a limit is inside.
    pub(super) proof: Option<Proof>,
    /// The gates inside it at which it is near the limit.
    pub(super) near: NearGates,
    /// The sizes of its records, where they were measured for the histograms.
    pub(super) sizes: Option<Box<Sizes>>,
    /// And 61 + all of them.
    pub(super) uncompressed_bytes: Option<u64>,
    /// Of a batch that is over a limit: what else it is over, as far as that was looked at.
    pub(super) also: Vec<Violation>,
    /// What a sample of it saved with an allowed codec, in hundredths, where the gate `codec` asked.
    pub(super) gain: Option<(Codec, u64)>,
}

impl Outcome {
    /// The partition is answered here.
    pub(super) fn is_refused(&self) -> bool {
        match self {
            Self::Pass | Self::Invalid | Self::SpoilsRequest | Self::Within(_) => false,
            Self::Over(measured, _) => match measured.topic.policy.action {
                Action::Observe => false,
                // Over even with tickets, or not to be mended by any.
                Action::Reject | Action::Offload => true,
            },
            Self::NoRecords(_) | Self::Response(..) | Self::Undone(..) => true,
        }
    }

    /// What it is over.
    pub(super) const fn violation(&self) -> Option<(&Measured, &Violation)> {
        match self {
            Self::Over(measured, violation) => Some((measured, violation)),
            Self::Pass
            | Self::Invalid
            | Self::SpoilsRequest
            | Self::Within(_)
            | Self::NoRecords(_)
            | Self::Undone(..)
            | Self::Response(..) => None,
        }
    }

    /// What was measured of a batch that is judged by its size.
    pub(super) const fn measured(&self) -> Option<&Measured> {
        match self {
            Self::Within(measured) | Self::Over(measured, _) => Some(measured),
            Self::Pass
            | Self::Invalid
            | Self::SpoilsRequest
            | Self::NoRecords(_)
            | Self::Undone(..)
            | Self::Response(..) => None,
        }
    }

    /// The broker refuses the whole request for it.
    pub(super) const fn spoils_request(&self) -> bool {
        match self {
            Self::SpoilsRequest => true,
            Self::Pass
            | Self::Invalid
            | Self::Within(_)
            | Self::Over(..)
            | Self::NoRecords(_)
            | Self::Undone(..)
            | Self::Response(..) => false,
        }
    }

    /// The broker's response is due to it even if it is not the partition's last batch.
    pub(super) const fn always_counts(&self) -> bool {
        match self {
            Self::Invalid | Self::SpoilsRequest => true,
            Self::Pass
            | Self::Within(_)
            | Self::Over(..)
            | Self::NoRecords(_)
            | Self::Undone(..)
            | Self::Response(..) => false,
        }
    }
}
