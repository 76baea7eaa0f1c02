//! Confirms what is about to be refused: would the broker have judged it by its size at all, and is the limit still
//! true?

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use uuid::Uuid;

use super::{
    CURRENT, Gathered, Judge, NO_RECORDS, Outcome, PLACE_UNKNOWN, Question, Step, TopicHandle,
};
use crate::error_code::{UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION};
use crate::policy::Limit;
use crate::vocabulary::{Action, Source};
use crate::wire::produce::FIRST_TOPIC_ID_VERSION;

/// What is asked of one topic before anything is refused.
#[derive(Debug)]
pub(crate) struct ToConfirm {
    /// Its name.
    pub topic: Arc<str>,
    /// Whether the session's own broker has a partition of it that nobody has told us of. Else only its limits.
    pub is_place_in_doubt: bool,
    /// Its id, where the request names it so.
    pub id: Option<Uuid>,
}

/// Whether a violation is reason to refuse.
enum Standing {
    Stands,
    /// A learned limit may be out of date.
    LimitDoubtful,
    /// The topic or its partition is not known here.
    PlaceDoubtful,
    /// The broker was asked and has no such topic or partition.
    Falls,
}

impl Judge {
    /// What must be confirmed before anything is refused: that the broker would have judged the batch by its
    /// size at all (topic and partition exist), and that a learned limit is still true.
    #[expect(
        clippy::wrong_self_convention,
        reason = "a list of what is to be confirmed, not a conversion"
    )]
    pub(super) fn to_confirm(&mut self, frame: &[u8], asked: &Gathered) -> Step {
        let mut outcomes = self.evaluated.iter().map(|evaluated| &evaluated.outcome);
        if outcomes.all(|outcome| outcome.to_confirm().is_none()) {
            return Step::Done;
        }
        let (to_confirm, fallen) = self.look_at_each(asked);
        if !to_confirm.is_empty() {
            return Step::Ask(Question::Topics(to_confirm));
        }
        if fallen.is_empty() {
            return Step::Done;
        }
        if let Some(work) = self.evaluate_by_rules(frame, &fallen, asked) {
            return Step::Do(work);
        }
        // Rules are all that is left, and for them everything was asked.
        self.look_at_each(asked);
        Step::Done
    }

    /// What is to be confirmed, and where in `evaluated` a learned limit no longer counts. A rule is never given up for a place
    /// that is not known: another broker, or this one a moment later, may know it and store the batch.
    fn look_at_each(&mut self, asked: &Gathered) -> (Vec<ToConfirm>, Vec<usize>) {
        let mut over: BTreeMap<Arc<str>, ToConfirm> = BTreeMap::new();
        let (mut is_doubtful, mut fallen) = (false, Vec::new());
        let is_by_id = self.layout.version >= FIRST_TOPIC_ID_VERSION;
        let mut evaluated = std::mem::take(&mut self.evaluated);
        for (at, evaluated) in evaluated.iter_mut().enumerate() {
            let Some((topic, limit)) = evaluated.outcome.to_confirm() else {
                continue;
            };
            let topic = Arc::clone(topic);
            let learned = limit.filter(|limit| !topic.policy.is_configured(limit));
            let Some(entry) = self.layout.partitions.get(evaluated.partition_entry) else {
                continue;
            };
            let partition = entry.index;
            let members = topic.policy.members.iter().map(|bound| &bound.topic);
            for name in members.chain([&topic.name]) {
                if let Entry::Vacant(entry) = over.entry(Arc::clone(name)) {
                    entry.insert(ToConfirm {
                        topic: Arc::clone(name),
                        is_place_in_doubt: false,
                        id: None,
                    });
                }
            }
            match self.standing(&topic, learned, partition, asked) {
                Standing::Stands => {}
                Standing::LimitDoubtful => is_doubtful = true,
                Standing::PlaceDoubtful => {
                    is_doubtful = true;
                    if let Some(topic_to_confirm) = over.get_mut(&topic.name) {
                        topic_to_confirm.is_place_in_doubt = true;
                        topic_to_confirm.id = topic.known.as_ref().map(|known| known.id);
                        topic_to_confirm.id = topic_to_confirm.id.filter(|_| is_by_id);
                    }
                }
                Standing::Falls if learned.is_some() => fallen.push(at),
                Standing::Falls => {
                    let is_gone = is_by_id && asked.is_absent(&topic.name);
                    evaluated.outcome.demote(if is_gone {
                        UNKNOWN_TOPIC_ID
                    } else {
                        UNKNOWN_TOPIC_OR_PARTITION
                    });
                }
            }
        }
        self.evaluated = evaluated;
        // All of them: what stands now may be too old when the others are confirmed.
        let to_confirm = is_doubtful.then(|| over.into_values().collect());
        (to_confirm.unwrap_or_default(), fallen)
    }

    /// `learned` is the limit that is exceeded; `None` where it is configured, or where no limit is needed.
    fn standing(
        &self,
        topic: &TopicHandle,
        learned: Option<&Limit>,
        partition: i32,
        asked: &Gathered,
    ) -> Standing {
        match topic.known.as_ref().and_then(|known| known.partitions()) {
            // Once asked, only what was read is judged by.
            Some(count) if (0..count).contains(&partition) => {
                if asked.limits || learned.is_none_or(|limit| self.is_current(topic, limit)) {
                    Standing::Stands
                } else {
                    Standing::LimitDoubtful
                }
            }
            // No broker has such a partition.
            _ if partition < 0 => Standing::Falls,
            _ if !asked.limits => Standing::PlaceDoubtful,
            // What the cluster does not let us see may well exist, and then a configured number counts.
            _ if learned.is_none() && asked.is_unseen(&topic.name) => Standing::Stands,
            _ => Standing::Falls,
        }
    }

    /// What was read last was read just now, and is what this session's broker applies.
    fn is_current(&self, topic: &TopicHandle, limit: &Limit) -> bool {
        let whose = match (limit.source, &limit.name) {
            (Source::Family, Some(member)) => topic.member(member),
            _ => topic.known.as_ref(),
        };
        let Some(whose) = whose else {
            return false;
        };
        let cluster = &self.shared.cluster;
        cluster
            .known_limits(whose, self.node_id, CURRENT)
            .and_then(|limits| limits.batch_limit())
            .is_some_and(|(bytes, _)| bytes == limit.value.saturating_add(limit.headroom_bytes))
    }
}

impl Outcome {
    /// The topic that must be there before it is refused, and the limit that must still be true.
    const fn to_confirm(&self) -> Option<(&Arc<TopicHandle>, Option<&Limit>)> {
        match self {
            Self::Over(measured, violation) => Some((&measured.topic, Some(&violation.limit))),
            Self::NoRecords(topic) => Some((topic, None)),
            Self::Pass
            | Self::Invalid
            | Self::SpoilsRequest
            | Self::Within(_)
            | Self::Undone(..)
            | Self::Response(..) => None,
        }
    }

    /// What a rule forbids, or nobody can store, has no place at the broker: what the broker itself would say of that,
    /// a retriable error, is said here.
    fn demote(&mut self, error_code: i16) {
        *self = match std::mem::replace(self, Self::Pass) {
            Self::Over(measured, _) => match measured.topic.policy.action {
                Action::Observe => Self::Within(measured),
                Action::Reject | Action::Offload => Self::Response(error_code, PLACE_UNKNOWN),
            },
            Self::NoRecords(_) => Self::Response(error_code, NO_RECORDS),
            other @ (Self::Pass
            | Self::Invalid
            | Self::SpoilsRequest
            | Self::Within(_)
            | Self::Undone(..)
            | Self::Response(..)) => other,
        };
    }
}
