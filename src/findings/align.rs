//! The changes at the broker that align families: what `sizegate align` plans and makes.
//!
//! Invariant: a change only ever raises, and never above the ceiling; what a limit of our own keeps small is not the
//! broker's to change.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    Comparison, MAX_DECOMPRESSED_MESSAGE_BYTES, MAX_MESSAGE_BYTES, SEGMENT_BYTES, Setting,
    TopicFacts,
};
use crate::policy::families::Membership;
use crate::policy::grouped;

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
    /// Members that a limit could not be read of: nothing is planned for them.
    pub unread: Vec<String>,
    /// Members known by their names alone that lack something: planned only on request.
    pub detected: Vec<String>,
}

/// Plans for every configured family; for detected ones too with `detected`.
pub fn plan(comparison: &Comparison<'_>, ceiling: Option<u64>, detected: bool) -> Plan {
    let mut plan = Plan::default();
    let mut wanted: BTreeMap<(String, usize), Change> = BTreeMap::new();
    for family in comparison.policy.families().all() {
        for member in &family.members {
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
            for (order, change) in changes.into_iter().enumerate() {
                // A dead-letter topic of several families needs what the largest needs.
                let place = wanted.entry((change.topic.clone(), key_order(change.key, order)));
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
    for list in [&mut plan.unread, &mut plan.detected] {
        list.sort();
        list.dedup();
    }
    plan
}

fn key_order(key: &str, otherwise: usize) -> usize {
    [
        SEGMENT_BYTES,
        MAX_MESSAGE_BYTES,
        MAX_DECOMPRESSED_MESSAGE_BYTES,
    ]
    .iter()
    .position(|known| *known == key)
    .unwrap_or(otherwise)
}

/// What a member needs; `None` where a limit is not readable.
fn changes(comparison: &Comparison<'_>, main: &str, member: &str) -> Option<Vec<Change>> {
    let limit = comparison.own_batch_limit(main)?;
    let facts = comparison.topic(member)?;
    let declared = facts.max_message_bytes.as_ref()?;
    let headroom = comparison.policy.families().headroom_bytes();
    let needed = limit.value.saturating_add(headroom);
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
