//! The changes at the broker that align families: what `sizegate align` plans and makes.
//!
//! Invariant: a change only ever raises, and never above the ceiling; what a limit of our own keeps small is not the
//! broker's to change.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    ClusterFacts, Comparison, MAX_DECOMPRESSED_MESSAGE_BYTES, MAX_MESSAGE_BYTES, SEGMENT_BYTES,
    Setting, SettingSource, TopicFacts,
};
use crate::families::Membership;
use crate::policy::families::Written;
use crate::text::grouped;

/// One config to be raised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The topic.
    pub topic: String,
    /// Its config.
    pub key: &'static str,
    /// In force now.
    pub from: u64,
    /// What it needs.
    pub to: u64,
    /// Why.
    pub reason: String,
}

/// What is to be done, and what is not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// By topic; of one topic, `segment.bytes` before `max.message.bytes`.
    pub changes: Vec<Change>,
    /// Needed, and above the ceiling.
    pub above_ceiling: Vec<Change>,
    /// Members that get originals of any size from a main topic that offloads, and do not offload themselves: no limit
    /// would be enough.
    pub inline: Vec<String>,
    /// Members that a limit could not be read of: nothing is planned for them.
    pub unread: Vec<String>,
    /// Members known by their names alone that lack something: planned only on request.
    pub detected: Vec<String>,
}

/// Plans for every configured family; for detected ones too with `detected`. What is planned for a member that is a
/// main topic itself is planned for: made as it is, nothing is left to do.
pub fn plan(comparison: &Comparison<'_>, ceiling: Option<u64>, detected: bool) -> Plan {
    let mut plan = once(comparison, ceiling, detected);
    let mut facts = comparison.facts.clone();
    // Along a chain of families; those in a circle would go on without end.
    for _ in 0..comparison.policy.families().all().len() {
        for change in &plan.changes {
            make(&mut facts, change);
        }
        let Ok(then) = Comparison::new(comparison.config, &facts) else {
            break;
        };
        let next = once(&then, ceiling, detected);
        let is_stable = next.changes.is_empty();
        plan.add(next);
        if is_stable {
            break;
        }
    }
    plan
}

/// As if a change were made.
fn make(facts: &mut ClusterFacts, change: &Change) {
    let mut topics = facts.topics.iter_mut();
    let Some(topic) = topics.find(|topic| *topic.name == *change.topic) else {
        return;
    };
    let setting = match change.key {
        SEGMENT_BYTES => &mut topic.segment_bytes,
        MAX_DECOMPRESSED_MESSAGE_BYTES => &mut topic.max_decompressed_message_bytes,
        _ => &mut topic.max_message_bytes,
    };
    *setting = Some(Setting::of(change.to, SettingSource::Topic));
}

impl Plan {
    /// Goes on with what is to be done once this plan is made.
    fn add(&mut self, next: Self) {
        let from_now = |mut change: Change, made: &[Change]| {
            let same = |known: &&Change| known.topic == change.topic && known.key == change.key;
            if let Some(known) = made.iter().find(same) {
                change.from = known.from;
            }
            change
        };
        self.above_ceiling = next
            .above_ceiling
            .into_iter()
            .map(|change| from_now(change, &self.changes))
            .collect();
        for change in next.changes {
            let change = from_now(change, &self.changes);
            self.changes
                .retain(|known| known.topic != change.topic || known.key != change.key);
            self.changes.push(change);
        }
        self.changes
            .sort_by(|a, b| (&a.topic, place_of(a.key)).cmp(&(&b.topic, place_of(b.key))));
        self.inline = next.inline;
        self.unread = next.unread;
        self.detected = next.detected;
    }
}

/// One round of [`plan`]: what the limits as they are now ask for.
fn once(comparison: &Comparison<'_>, ceiling: Option<u64>, detected: bool) -> Plan {
    let mut plan = Plan::default();
    let mut wanted: BTreeMap<(String, Option<usize>), Change> = BTreeMap::new();
    for family in comparison.policy.families().all() {
        for member in &family.members {
            if comparison.policy.written(&family.main, &member.topic) == Written::Originals {
                if member.membership == Membership::Configured || detected {
                    plan.inline.push(member.topic.to_string());
                }
                continue;
            }
            let Some(changes) = changes(comparison, &family.main, &member.topic) else {
                plan.unread.push(member.topic.to_string());
                continue;
            };
            if member.membership == Membership::Detected && !detected {
                if !changes.is_empty() {
                    plan.detected.push(member.topic.to_string());
                }
                continue;
            }
            for change in changes {
                // A dead-letter topic of several families needs what the largest needs.
                let place = wanted.entry((change.topic.clone(), place_of(change.key)));
                let known = place.or_insert_with(|| change.clone());
                if change.to > known.to {
                    *known = change;
                }
            }
        }
    }
    for change in wanted.into_values() {
        if ceiling.is_some_and(|ceiling| change.to > ceiling) {
            plan.above_ceiling.push(change);
        } else {
            plan.changes.push(change);
        }
    }
    for list in [&mut plan.unread, &mut plan.detected, &mut plan.inline] {
        list.sort();
        list.dedup();
    }
    plan
}

/// In which order the configs of one topic are set.
fn place_of(key: &str) -> Option<usize> {
    [
        SEGMENT_BYTES,
        MAX_MESSAGE_BYTES,
        MAX_DECOMPRESSED_MESSAGE_BYTES,
    ]
    .iter()
    .position(|known| *known == key)
}

/// What a member needs; `None` where a limit is not readable.
fn changes(comparison: &Comparison<'_>, main: &str, member: &str) -> Option<Vec<Change>> {
    let limit = comparison.taken_batch_limit(main)?;
    let facts = comparison.topic(member)?;
    let declared = facts.max_message_bytes.as_ref()?;
    let headroom = comparison.policy.families().headroom_bytes();
    let needed = comparison.needed_of_member(main, member)?;
    let are_tickets = matches!(
        comparison.policy.written(main, member),
        Written::Tickets { .. }
    );
    let mut changes = Vec::new();
    if let Some(segment) = facts
        .segment_bytes
        .as_ref()
        .filter(|set| set.value() < needed)
    {
        changes.push(change(facts, SEGMENT_BYTES, segment, needed, || {
            format!(
                "a batch must fit into one segment, and {MAX_MESSAGE_BYTES} is to be {}",
                grouped(needed)
            )
        }));
    }
    if declared.value() < needed {
        changes.push(change(facts, MAX_MESSAGE_BYTES, declared, needed, || {
            if are_tickets {
                return format!(
                    "{main} offloads: what fails there comes here as a ticket, or as what is too small for one, with {} bytes of \
                     headers",
                    grouped(headroom)
                );
            }
            format!(
                "{main} takes {} bytes (source={}), and what fails there comes here with {} bytes of headers",
                grouped(limit.value),
                limit.source,
                grouped(headroom)
            )
        }));
    }
    let of_main = comparison
        .topic(main)?
        .max_decompressed_message_bytes
        .as_ref();
    if let (Some(of_main), Some(own)) = (of_main, &facts.max_decompressed_message_bytes) {
        let needed = of_main
            .value()
            .saturating_add(headroom)
            .min(MOST_DECOMPRESSED_BYTES);
        if own.value() < of_main.value() {
            changes.push(change(
                facts,
                MAX_DECOMPRESSED_MESSAGE_BYTES,
                own,
                needed,
                || {
                    format!(
                        "{main} takes records of {} bytes after decompression",
                        grouped(of_main.value())
                    )
                },
            ));
        }
    }
    Some(changes)
}

/// The default of `max.decompressed.message.bytes` (Kafka 4.4): nobody needs more.
const MOST_DECOMPRESSED_BYTES: u64 = 2_147_483_639;

fn change(
    facts: &TopicFacts,
    key: &'static str,
    from: &Setting<u64>,
    to: u64,
    reason: impl FnOnce() -> String,
) -> Change {
    Change {
        topic: facts.name.to_string(),
        key,
        from: from.value(),
        to,
        reason: reason(),
    }
}
