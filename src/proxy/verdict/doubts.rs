//! Before anything is refused: would the broker have judged it by its size at all, and is the limit still true?

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{
    Asked, CURRENT, Judge, NOTHING_FOR_NOBODY, Outcome, Question, TopicHandle,
    UNKNOWN_TOPIC_OR_PARTITION,
};
use crate::policy::{Limit, Source};

/// Whether a violation is reason to refuse.
enum Standing {
    Stands,
    /// The control plane has not confirmed it.
    Doubtful,
    /// The broker judges this one: there is no such partition.
    Falls,
}

impl Judge {
    /// What must be confirmed before anything is refused: that the broker would have judged the batch by its
    /// size at all (topic and partition exist), and that a learned limit is still true.
    pub(super) fn doubts(&mut self, asked: &Asked) -> Option<Question> {
        let mut over: BTreeSet<Arc<str>> = BTreeSet::new();
        let mut is_doubtful = false;
        let mut weighed = std::mem::take(&mut self.weighed);
        for weighed in &mut weighed {
            let (topic, limit) = match &weighed.outcome {
                Outcome::Over(measured, violation) => (&measured.topic, Some(&violation.limit)),
                Outcome::NoRecords(topic) => (topic, None),
                _ => continue,
            };
            let partition = self.layout.partitions[weighed.partition_entry].index;
            over.insert(Arc::clone(&topic.name));
            let members = topic.policy.members.iter();
            over.extend(members.map(|bound| Arc::clone(&bound.topic)));
            match self.standing(topic, limit, partition, asked) {
                Standing::Stands => {}
                Standing::Doubtful => is_doubtful = true,
                Standing::Falls => weighed.outcome.fall(),
            }
        }
        self.weighed = weighed;
        // All of them: what stands now may be too old when the others are confirmed.
        is_doubtful.then(|| Question::Topics(over.into_iter().collect()))
    }

    /// `limit` is what is exceeded; `None` where it is something that no limit is needed for.
    fn standing(
        &self,
        topic: &TopicHandle,
        limit: Option<&Limit>,
        partition: i32,
        asked: &Asked,
    ) -> Standing {
        let learned = limit.filter(|limit| !topic.policy.is_configured(limit));
        let is_configured = learned.is_none();
        match topic.known.as_ref().and_then(|known| known.partitions()) {
            // Once asked, only what was read is judged by.
            Some(count) if (0..count).contains(&partition) => {
                if asked.limits || learned.is_none_or(|limit| self.is_current(topic, limit)) {
                    Standing::Stands
                } else {
                    Standing::Doubtful
                }
            }
            _ if !asked.limits => Standing::Doubtful,
            // The cluster was asked and has no such topic or partition. What it does not let us see may well exist,
            // and then a configured number counts.
            None if is_configured && asked.unseen.contains(&topic.name) => Standing::Stands,
            None | Some(_) => Standing::Falls,
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
    /// A violation does not stand: a learned limit no longer counts, but a configured number does.
    pub(super) fn fall(&mut self) {
        *self = match std::mem::replace(self, Self::Pass) {
            Self::Over(mut measured, violation)
                if !measured.topic.policy.is_configured(&violation.limit) =>
            {
                match measured.topic.policy.judge_batch(&measured.facts, None) {
                    Some(configured) => Self::Over(measured, configured),
                    // What is inside was looked at already where it is observed only.
                    None if !measured.also.is_empty() => {
                        let first = measured.also.remove(0);
                        Self::Over(measured, first)
                    }
                    None => Self::Within(measured),
                }
            }
            Self::Over(measured, _) => Self::Within(measured),
            Self::NoRecords(_) => Self::Answer(UNKNOWN_TOPIC_OR_PARTITION, NOTHING_FOR_NOBODY),
            other => other,
        };
    }
}
