//! What a verdict waits for: the steps before it, and what they brought.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use uuid::Uuid;

use super::evaluate::{Inspected, LongDecode};
use super::offload::{Offload, ToOffload};
use super::{ToConfirm, TopicHandle};
use crate::policy::Learned;

/// What has been asked for this request already: nothing is asked twice. (One is made and dropped for every request: so
/// it is small, and has nothing to drop while nothing was asked.)
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    /// Unknown topic ids were looked up.
    pub ids: bool,
    /// Unknown topic names were looked up.
    pub names: bool,
    /// Topics and learned limits were confirmed.
    pub limits: bool,
    said: Option<Box<Said>>,
    /// The broker's limit of a whole request was read.
    pub frame: bool,
    /// What it is, where it may be read.
    pub frame_limit: Option<u64>,
    /// How often long decodes were done, and what they found.
    pub(super) decodes: u8,
    pub(super) inspected: Inspected,
    /// What is offloaded, once that is decided.
    pub offload: Option<Box<Offload>>,
}

/// What was said of topics that were asked for.
#[derive(Debug, Default)]
struct Said {
    /// Topics that could not be confirmed: the cluster did not answer, or does not let us see them.
    unseen: BTreeSet<Arc<str>>,
    /// Topics that the broker says it does not have.
    absent: BTreeSet<Arc<str>>,
    /// The limits that this session's broker applies to the topics, as read just now.
    confirmed: BTreeMap<Arc<str>, Learned>,
}

/// What a session's broker says of a topic when asked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Confirmed {
    /// Nothing: it did not answer, or does not let us see the topic.
    Unseen,
    /// There is no such topic.
    Absent,
    /// There is one; `None` where its limit cannot be read.
    Here(Option<Learned>),
}

impl Gathered {
    /// What the cluster said is older than it may be when something is refused: where it matters, it is asked again.
    pub(crate) fn confirm_again(&mut self) {
        self.limits = false;
        self.said = None;
    }

    /// Values above the threshold are looked for no more: what is offloaded has been decided.
    pub(super) fn is_offload_decided(&self) -> bool {
        self.offload.is_some()
    }

    /// What was found inside batches no longer holds: other bytes are in the frame.
    pub(crate) fn forget_inspected(&mut self) {
        self.decodes = 0;
        self.inspected.clear();
    }

    /// The topic could not be confirmed.
    pub(super) fn is_unseen(&self, topic: &str) -> bool {
        let said = self.said.as_ref();
        said.is_some_and(|said| said.unseen.contains(topic))
    }

    /// The broker says that it does not have the topic.
    pub(super) fn is_absent(&self, topic: &str) -> bool {
        let said = self.said.as_ref();
        said.is_some_and(|said| said.absent.contains(topic))
    }

    /// What was asked of a topic.
    pub(crate) fn confirm(&mut self, topic: Arc<str>, confirmed: Confirmed) {
        let said = self.said.get_or_insert_default();
        match confirmed {
            Confirmed::Unseen => drop(said.unseen.insert(topic)),
            Confirmed::Absent => drop(said.absent.insert(topic)),
            Confirmed::Here(Some(limit)) => drop(said.confirmed.insert(topic, limit)),
            Confirmed::Here(None) => {}
        }
    }

    /// What long decodes found; there may be more of them when a learned limit no longer counts.
    pub(crate) fn inspect(&mut self, inspected: Inspected) {
        self.decodes = self.decodes.saturating_add(1);
        self.inspected.extend(inspected);
        self.inspected.sort_by_key(|(entry, _)| *entry);
    }

    /// The learned limit to judge by: what was read for this request, else what was read last.
    pub(super) fn learned(&self, topic: &TopicHandle) -> Option<Learned> {
        if !self.limits {
            return topic.learned();
        }
        let said = self.said.as_ref();
        let confirmed = |name: &str| said.and_then(|said| said.confirmed.get(name).copied());
        let policy = &topic.policy;
        policy.tightest(confirmed(&topic.name), |at| {
            let member = policy.members.get(at)?;
            confirmed(&member.topic).map(|learned| learned.value)
        })
    }
}

/// What comes next for a request.
#[derive(Debug)]
pub(crate) enum Step {
    /// The cluster is asked.
    Ask(Question),
    /// Something is done that takes longer than a session's turn.
    Do(Work),
    /// Nothing: it can be committed.
    Done,
}

/// What the cluster must say before the verdict.
#[derive(Debug)]
pub(crate) enum Question {
    /// The names of these topic ids.
    Ids(Vec<Uuid>),
    /// Topics that nobody has heard of yet, by name.
    Names(Vec<Arc<str>>),
    /// Whether these topics and their partitions exist, and their limits as they are now.
    Topics(Vec<ToConfirm>),
    /// How large a request this session's broker takes.
    FrameLimit,
}

/// What must be done before the verdict.
#[derive(Debug)]
pub(crate) enum Work {
    /// These batches are decoded.
    Decode(Vec<LongDecode>),
    /// It is found out what tickets would make of these batches.
    Plan(Vec<ToOffload>),
    /// The values of these partition entries are put into the store.
    Upload(Vec<usize>),
}
