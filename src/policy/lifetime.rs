//! Gate `config` for topics that hold tickets: a change that keeps tickets for longer than their objects. Pure.
//!
//! Invariant: judged is the least that is certain (what would be inherited and is not known counts as nothing), and a
//! change that leaves it as it was, or makes it shorter, is never held up.

use std::fmt::Write as _;
use std::time::Duration;

use super::refusal::{LONGEST_NAME, one_word};
use super::topic_config::{Fields, opening, written};
use super::{Blame, Change, Manner, Op, Refusal, Value};
use crate::claim::{Cover, Need};
use crate::vocabulary::{Source, labelled};

labelled! {
    /// A config that says how long a topic keeps records.
    LifeKey {
        /// How long; −1 is for ever.
        RetentionMs = "retention.ms",
        /// How long a segment is written to, which goes when its youngest record may.
        SegmentMs = "segment.ms",
        /// What becomes of old records.
        CleanupPolicy = "cleanup.policy",
    }
}

/// How long a topic keeps records; `None`: not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Life {
    /// `retention.ms`
    pub retention_ms: Option<i64>,
    /// `segment.ms`
    pub segment_ms: Option<i64>,
    /// `cleanup.policy`: old records go; of one key the last stays.
    pub cleanup: Option<(bool, bool)>,
}

/// Which of the topic's own settings a request that replaces all of them would take away.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `retention.ms`
    pub retention_ms: bool,
    /// `segment.ms`
    pub segment_ms: bool,
    /// `cleanup.policy`
    pub cleanup: bool,
}

impl Life {
    /// As `cleanup.policy` is written.
    pub fn cleanup(text: &str) -> Option<(bool, bool)> {
        let words = || text.split(',').map(str::trim);
        let known = words().all(|word| matches!(word, "delete" | "compact" | ""));
        known.then(|| {
            (
                words().any(|word| word == "delete"),
                words().any(|word| word == "compact"),
            )
        })
    }

    /// The `cleanup.policy` that matters after these words were appended, whatever it was: compacted, records stay for
    /// ever. `None`: none that keeps records for longer.
    pub fn with_cleanup(appended: &str) -> Option<String> {
        let (_, compacts) = Self::cleanup(appended)?;
        compacts.then(|| "compact,delete".to_owned())
    }

    /// The one that matters after these words were taken away: without `delete`, records stay for ever. `None`: none
    /// that keeps records for longer.
    pub fn without_cleanup(subtracted: &str) -> Option<String> {
        let (deletes, _) = Self::cleanup(subtracted)?;
        deletes.then(String::new)
    }

    /// At least so long; `None`: for ever.
    fn stays(&self) -> Option<Duration> {
        let is_endless = self
            .cleanup
            .is_some_and(|(deletes, compacts)| !deletes || compacts);
        let retention = self.retention_ms.unwrap_or(0);
        let retention = u64::try_from(retention).ok().filter(|_| !is_endless)?;
        let segment = u64::try_from(self.segment_ms.unwrap_or(0)).unwrap_or(0);
        Some(Duration::from_millis(retention.saturating_add(segment)))
    }

    /// What would be in force after a change.
    pub fn after(&self, manner: Manner, overrides: Overrides, ops: &[(LifeKey, Op)]) -> Self {
        let mut life = match manner {
            Manner::Create => Self::default(),
            Manner::Change => *self,
            Manner::Replace => Self {
                retention_ms: self.retention_ms.filter(|_| !overrides.retention_ms),
                segment_ms: self.segment_ms.filter(|_| !overrides.segment_ms),
                cleanup: self.cleanup.filter(|_| !overrides.cleanup),
            },
        };
        for (key, op) in ops {
            let text = match op {
                Op::Set(text) => Some(text.trim()),
                Op::Delete => None,
            };
            let number = || text.and_then(|text| text.parse().ok());
            match key {
                LifeKey::RetentionMs => life.retention_ms = number(),
                LifeKey::SegmentMs => life.segment_ms = number(),
                LifeKey::CleanupPolicy => life.cleanup = text.and_then(Self::cleanup),
            }
        }
        life
    }
}

/// What tickets would need of their objects, if that is more than they have and more than before.
pub fn outlives(before: Option<&Life>, after: &Life, kept: Duration) -> Option<Need> {
    let need = |life: &Life| Need::new(life.stays(), Duration::ZERO, kept);
    let now = need(after);
    let is_longer = before
        .map(need)
        .is_none_or(|before| match (now.needed, before.needed) {
            (Some(now), Some(before)) => now > before,
            (None, Some(_)) => true,
            (_, None) => false,
        });
    (is_longer && now.cover() == Cover::Short).then_some(now)
}

/// The refusal of such a change by the rule that offloads.
pub fn refusal(
    id: String,
    blame: Blame,
    change: &Change,
    ops: &[(LifeKey, Op)],
    need: &Need,
    rule: &str,
) -> Option<Refusal> {
    let (key, op) = ops.last()?;
    let value = match op {
        Op::Set(text) => Value::Word(text.clone()),
        Op::Delete => Value::Word("inherited".to_owned()),
    };
    let mut text = opening(blame, change);
    let days = |time: Duration| format!("{}d", time.as_secs().div_ceil(86_400));
    let kept = days(need.kept);
    let needed = match need.needed {
        Some(needed) => {
            let needed = days(needed);
            let _ = write!(
                text,
                "it holds tickets of rule \"{rule}\", and with retention.ms and segment.ms and a day their objects would be \
                 needed for {needed}, but are kept for {kept} (claim_check.retention). First raise claim_check.retention to \
                 {needed} and the store's lifecycle with it, then this; or keep retention.ms and segment.ms together a day \
                 below {kept}."
            );
            needed
        }
        None => {
            let _ = write!(
                text,
                "it holds tickets of rule \"{rule}\" and would keep them for ever, but their objects are kept for {kept} \
                 (claim_check.retention). Give it a retention.ms and cleanup.policy=delete, or take it out of the rule."
            );
            "forever".to_owned()
        }
    };
    let fields = Fields {
        key: key.label(),
        value: Some(&value),
        limit_bytes: None,
        source: Source::Rule,
        more: format!(
            "needed={needed} kept={kept} rule={}",
            one_word(rule, LONGEST_NAME)
        ),
    };
    Some(written(id, change, text, &fields, rule.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: i64 = 86_400_000;
    const KEPT: Duration = Duration::from_secs(16 * 86_400);

    fn life(retention_days: i64, segment_days: i64) -> Life {
        Life {
            retention_ms: Some(retention_days * DAY_MS),
            segment_ms: Some(segment_days * DAY_MS),
            cleanup: Some((true, false)),
        }
    }

    fn set(key: LifeKey, value: impl ToString) -> (LifeKey, Op) {
        (key, Op::Set(value.to_string()))
    }

    #[test]
    fn a_change_is_held_up_where_tickets_would_outlive_objects_and_did_not_before() {
        use LifeKey::{CleanupPolicy, RetentionMs, SegmentMs};
        let retention = |days: i64| set(RetentionMs, days * DAY_MS);
        let segment = |days: i64| set(SegmentMs, days * DAY_MS);
        for (before, ops, is_held_up) in [
            // 16 days: 8 and 7 and one.
            (life(7, 7), vec![retention(8)], false),
            (life(7, 7), vec![retention(9)], true),
            (life(7, 7), vec![segment(9)], true),
            (life(7, 7), vec![retention(9), segment(6)], false),
            (life(7, 7), vec![set(RetentionMs, -1)], true),
            (life(7, 7), vec![set(CleanupPolicy, "compact")], true),
            (life(7, 7), vec![set(CleanupPolicy, "compact,delete")], true),
            (life(7, 7), vec![set(CleanupPolicy, "delete")], false),
            // What is short already may come nearer, or stay.
            (life(30, 7), vec![retention(20)], false),
            (life(30, 7), vec![retention(30)], false),
            (life(30, 7), vec![retention(31)], true),
            (life(-1, 7), vec![retention(300)], false),
            // Inherited and not known: the least that is certain is nothing.
            (life(7, 7), vec![(RetentionMs, Op::Delete)], false),
            // What is no number the broker refuses.
            (life(7, 7), vec![set(RetentionMs, "long")], false),
        ] {
            let after = before.after(Manner::Change, Overrides::default(), &ops);
            let found = outlives(Some(&before), &after, KEPT);
            assert_eq!(found.is_some(), is_held_up, "{before:?} {ops:?}");
        }
    }

    #[test]
    fn words_that_are_appended_or_taken_away_matter_where_records_then_stay() {
        let with = |words| Life::with_cleanup(words);
        let without = |words| Life::without_cleanup(words);
        assert_eq!(with("compact").as_deref(), Some("compact,delete"));
        assert_eq!(with("delete, compact").as_deref(), Some("compact,delete"));
        assert_eq!(without("delete").as_deref(), Some(""));
        for harmless in [with("delete"), without("compact"), with("no word of it")] {
            assert_eq!(harmless, None);
        }
    }

    #[test]
    fn a_new_topic_is_judged_by_what_its_request_says() {
        for (ops, is_held_up) in [
            (vec![set(LifeKey::RetentionMs, 15 * DAY_MS)], false),
            (vec![set(LifeKey::RetentionMs, 16 * DAY_MS)], true),
            (vec![set(LifeKey::CleanupPolicy, "compact")], true),
            (vec![], false),
        ] {
            let after = Life::default().after(Manner::Create, Overrides::default(), &ops);
            assert_eq!(
                outlives(None, &after, KEPT).is_some(),
                is_held_up,
                "{ops:?}"
            );
        }
    }

    #[test]
    fn replacing_all_settings_takes_back_those_that_are_not_named() {
        let overrides = Overrides {
            segment_ms: true,
            ..Overrides::default()
        };
        let ops = [set(LifeKey::RetentionMs, 14 * DAY_MS)];
        let after = life(7, 7).after(Manner::Replace, overrides, &ops);
        assert_eq!(
            (after.segment_ms, after.retention_ms),
            (None, Some(14 * DAY_MS))
        );
        assert_eq!(outlives(Some(&life(7, 7)), &after, KEPT), None);
    }
}
