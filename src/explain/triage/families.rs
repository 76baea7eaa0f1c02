//! A record as its own retry or dead letter: what of its family does not take it, and what raises what keeps it out.
//!
//! Invariant: who refuses here is who the limits in force are kept for.

use super::Triage;
use crate::families::Membership;
use crate::policy::families::Reach;
use crate::policy::{Limit, MemberLimit};
use crate::text::grouped;
use crate::vocabulary::{Gate, LIMITS, Source};

impl Triage<'_> {
    /// The limit of ours that is in force at a gate.
    pub(super) fn in_force(&self, gate: Gate) -> Option<&Limit> {
        let mut all = self.policy.inside_limits().iter().chain(&self.family_batch);
        all.find(|limit| limit.gate == gate && limit.source == Source::Family)
    }

    /// For whom a family's limit is kept, and what raises it.
    pub(super) fn kept_for(&self, limit: &Limit) -> (String, Option<String>) {
        let member = limit.name.as_deref().unwrap_or_default();
        let needed = self
            .record
            .at(limit.gate)
            .saturating_add(limit.headroom_bytes);
        let own = grouped(limit.value.saturating_add(limit.headroom_bytes));
        match &limit.member_limit {
            None => (
                format!(
                    " It is kept for the retry or dead-letter topic {member}: raise that topic's limit."
                ),
                Some(self.commands.align(false)),
            ),
            Some(MemberLimit::Rule(rule)) => {
                let (key, rule) = (limit.gate.limit_key(), rule_in_words(rule));
                (
                    format!(
                        " It is kept for the retry or dead-letter topic {member}, to which {rule} gives {key} of {own}: \
                         with headroom it needs {key}: {needed} there."
                    ),
                    None,
                )
            }
            Some(MemberLimit::Writer) => (
                format!(
                    " It is kept for whoever writes {member}, whose max.request.size is {own} unless families.members says \
                     more: set it to {needed} or more in that producer, and then writer_max_request_size: {needed} in the \
                     family."
                ),
                None,
            ),
        }
    }

    /// How a record of these sizes fares as a retry or dead letter.
    pub(super) fn fit(&self, reach: &Reach<'_>) -> Fit {
        let (record, member) = (self.record, &reach.member.topic);
        let headroom = reach.headroom_bytes;
        let taken = (self.ground.batch_limit_of)(member);
        let travels = record.batch_bytes.saturating_add(headroom);
        let is_small = taken.filter(|taken| *taken < travels);
        let own = self.ground.policy.own(member);
        let over = |limit: &&Limit| {
            let headroom = if limit.gate.grows() { headroom } else { 0 };
            limit.gate != Gate::Ratio
                && record.at(limit.gate).saturating_add(headroom) > limit.value
        };
        let rules = own.batch.iter().chain(own.inside_limits());
        let by_rule = joined(rules.filter(over).map(|limit| {
            let headroom = if limit.gate.grows() { headroom } else { 0 };
            let rule = rule_in_words(limit.name.as_deref().unwrap_or(LIMITS));
            let key = limit.gate.limit_key();
            format!(
                "{} gives {member} {key} of {}, and this needs {} there.",
                capitalised(&rule),
                grouped(limit.value),
                grouped(record.at(limit.gate).saturating_add(headroom))
            )
        }));
        let uncompressed = record.uncompressed_bytes.saturating_add(headroom);
        let grows = taken
            .filter(|taken| record.is_compressed && *taken >= travels && *taken < uncompressed);
        let estimate = record.estimate_bytes.saturating_add(headroom);
        let writer = reach
            .family
            .writer_max_bytes
            .filter(|writer| *writer < estimate);
        let depends = [
            grows.map(|taken| {
                format!(
                    "As it travels, {} bytes with headroom, it fits {member}, which takes {}. Dead letters are usually \
                     written uncompressed: that is {} bytes with headroom, and does not fit.",
                    grouped(travels),
                    grouped(taken),
                    grouped(uncompressed)
                )
            }),
            writer.map(|writer| {
                format!(
                    "Whoever writes {member} refuses it by itself if its max.request.size is below {} ({} here; \
                     writer_max_request_size in families.members says what it is).",
                    grouped(estimate),
                    grouped(writer)
                )
            }),
        ];
        Fit {
            is_detected: reach.member.membership == Membership::Detected,
            is_small: is_small.map(|taken| format!("{member} ({})", grouped(taken))),
            by_rule,
            depends: joined(depends.into_iter().flatten()),
        }
    }
}

/// What of a record does not fit one retry or dead-letter topic.
pub(super) struct Fit {
    /// Known by its name alone.
    pub(super) is_detected: bool,
    /// Its topic's limit at the broker.
    pub(super) is_small: Option<String>,
    /// Limits of ours.
    pub(super) by_rule: Option<String>,
    /// On how it is written.
    pub(super) depends: Option<String>,
}

pub(super) fn joined(parts: impl Iterator<Item = String>) -> Option<String> {
    parts.reduce(|all, part| {
        let between = if all.ends_with('.') { " " } else { ", " };
        all + between + &part
    })
}

fn rule_in_words(name: &str) -> String {
    if name == LIMITS {
        "the configuration's limits".to_owned()
    } else {
        format!("rule \"{name}\"")
    }
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}
