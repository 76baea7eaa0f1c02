//! Topics whose values are offloaded, and the topics that their tickets come into: how long each keeps a ticket, and
//! what does not go together. Pure.

use std::sync::Arc;
use std::time::Duration;

use super::{
    CLEANUP_POLICY, Comparison, Finding, FindingRule, Kept, RETENTION_MS, Severity, Stay, Value,
};
use crate::claim::{Cover, Need};
use crate::config::{ClaimCheck, Offload, Redeem, Unredeemed};
use crate::families::MemberKind;

/// What a topic that holds tickets is to the topic whose values they stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The topic itself.
    Own,
    /// Its fallback topic.
    Fallback,
    /// A retry or dead-letter topic, whose writer reads tickets.
    Member(MemberKind),
}

impl Role {
    /// For tables and JSON.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Own => "own",
            Self::Fallback => "fallback",
            Self::Member(kind) => kind.label(),
        }
    }
}

/// A topic that holds tickets.
#[derive(Debug, Clone)]
pub struct Holder<'a> {
    /// The topic whose values they stand for.
    pub topic: &'a str,
    /// Where they lie.
    pub holder: Arc<str>,
    /// What it is to the other.
    pub role: Role,
    /// How long it keeps records.
    pub kept: &'a Kept,
    /// What that asks of objects; `None`: its settings could not be read.
    pub need: Option<Need>,
}

impl Holder<'_> {
    /// Of one key the last record stays: a ticket may lie there for ever.
    pub fn is_compacted(&self) -> bool {
        let cleanup = self.kept.cleanup.as_ref();
        cleanup.is_some_and(|cleanup| cleanup.value().compacts)
    }
}

/// Every topic that may hold tickets, with a consumer that is `lag` late at most.
pub fn holders<'a>(comparison: &'a Comparison<'a>, lag: Duration) -> Vec<Holder<'a>> {
    let Some(claim) = &comparison.config.claim_check else {
        return Vec::new();
    };
    let mut holders = Vec::new();
    for facts in &comparison.facts.topics {
        let Some(offload) = comparison.policy.may_offload(&facts.name) else {
            continue;
        };
        let mut push = |name: &str, role: Role| {
            if let Some(holder) = comparison.topic(name) {
                holders.push(Holder {
                    topic: &facts.name,
                    holder: Arc::clone(&holder.name),
                    role,
                    kept: &holder.kept,
                    need: need(&holder.kept, lag, claim.retention),
                });
            }
        };
        push(&facts.name, Role::Own);
        push(&claim.fallback_of(&facts.name), Role::Fallback);
        let family = comparison.policy.families().of_main(&facts.name);
        if let Some(family) = family.filter(|_| gets_tickets(offload)) {
            for member in &family.members {
                push(&member.topic, Role::Member(member.kind));
            }
        }
    }
    holders
}

/// What a topic asks of the objects of its tickets, which are kept for `objects`; `None`: its settings could not be read.
pub fn need(kept: &Kept, lag: Duration, objects: Duration) -> Option<Need> {
    let stays = match kept.longest()? {
        Stay::AtMost(time) => Some(time),
        Stay::ForEver => None,
    };
    Some(Need::new(stays, lag, objects))
}

/// Some consumers get tickets, those that write retries and dead letters perhaps among them.
fn gets_tickets(offload: &Offload) -> bool {
    offload.redeem != Redeem::All
}

pub(super) fn find(comparison: &Comparison<'_>, found: &mut Vec<Finding>) {
    let Some(claim) = &comparison.config.claim_check else {
        return;
    };
    let held = holders(comparison, Duration::ZERO);
    for holder in &held {
        if holder.is_compacted() {
            found.push(compacted(comparison, holder));
            found.extend(left_out(claim, holder));
        } else if let Some(need) = holder.need
            && need.cover() == Cover::Short
        {
            found.push(short(claim, holder, &need));
        }
    }
    found.extend(fallbacks(comparison, claim, &held));
    dead_letters(comparison, found);
}

/// What a lost record becomes, by the keys of `claim_check.fallback`.
fn unredeemed(claim: &ClaimCheck) -> [(&'static str, Unredeemed); 2] {
    let fallback = &claim.fallback;
    [
        ("on_missing", fallback.on_missing),
        ("on_corrupt", fallback.on_corrupt),
    ]
}

/// Keys of `claim_check.fallback` that let records fall.
fn falls(claim: &ClaimCheck) -> Vec<&'static str> {
    let all = unredeemed(claim).into_iter();
    let falling = all.filter(|(_, then)| *then == Unredeemed::Fallback);
    falling.map(|(key, _)| key).collect()
}

/// Leaving a record out of a compacted topic changes what its key means, and nobody hears of it.
fn left_out(claim: &ClaimCheck, holder: &Holder<'_>) -> Option<Finding> {
    let falls = falls(claim);
    if holder.role != Role::Own || falls.is_empty() {
        return None;
    }
    Some(Finding {
        severity: Severity::Error,
        rule: FindingRule::ClaimCompactedFallback,
        topics: vec![holder.holder.to_string()],
        values: falls
            .iter()
            .map(|key| Value::new("claim_check.fallback", key, "fallback", "config"))
            .collect(),
        why: format!(
            "Consumers of {} would go on without a record whose object is lost, and take its key's last value for the one \
             before it. sizegate keeps them waiting instead.",
            holder.holder
        ),
        fix: format!(
            "claim_check: {{fallback: {{{}}}}} (or pass), or take {} out of the rule that offloads it",
            falls
                .iter()
                .map(|key| format!("{key}: hold"))
                .collect::<Vec<_>>()
                .join(", "),
            holder.topic
        ),
        also: None,
    })
}

/// Topics that are redeemed, and whose fallback topic does not exist: a lost record keeps its consumers waiting.
fn fallbacks(comparison: &Comparison<'_>, claim: &ClaimCheck, held: &[Holder<'_>]) -> Vec<Finding> {
    let falls = falls(claim);
    let own = held.iter().filter(|holder| holder.role == Role::Own);
    own.filter_map(|holder| {
        let topic = holder.topic;
        let offload = comparison.policy.may_offload(topic)?;
        let fallback = claim.fallback_of(topic);
        let is_needed = offload.redeem != Redeem::Nobody && !falls.is_empty();
        if !is_needed || comparison.topic(&fallback).is_some() {
            return None;
        }
        Some(Finding {
            severity: Severity::Error,
            rule: FindingRule::ClaimFallbackMissing,
            topics: vec![topic.to_owned()],
            values: vec![Value::new(
                "claim_check.fallback",
                "topic",
                claim.fallback.topic.as_str(),
                "config",
            )],
            why: format!(
                "{topic}: its fallback topic {fallback} does not exist, or cluster.admin may not see it. A record whose object is \
                 lost keeps its consumers waiting."
            ),
            fix: comparison.commands().create_topic(
                &fallback,
                &[(CLEANUP_POLICY, "delete"), (RETENTION_MS, "2592000000")],
            ),
            also: None,
        })
    })
    .collect()
}

fn compacted(comparison: &Comparison<'_>, holder: &Holder<'_>) -> Finding {
    let why = match holder.role {
        Role::Fallback => {
            "The fallback topic keeps only the last record of a key: of two values lost under one key, one is forgotten."
                .to_owned()
        }
        _ => format!(
            "A compacted topic keeps the last record of each key without end, and objects of {} are kept for a time: \
             its oldest keys will be tickets without an object.",
            holder.topic
        ),
    };
    Finding {
        severity: Severity::Error,
        rule: FindingRule::ClaimCompacted,
        topics: vec![holder.holder.to_string()],
        values: vec![Value::new(
            &*holder.holder,
            CLEANUP_POLICY,
            "compact",
            "topic",
        )],
        why,
        fix: match holder.role {
            Role::Own => format!("Take {} out of the rule that offloads it", holder.topic),
            _ => comparison.commands().set_cleanup(&holder.holder, "delete"),
        },
        also: None,
    }
}

fn short(claim: &ClaimCheck, holder: &Holder<'_>, need: &Need) -> Finding {
    let retention = holder.kept.retention_ms.as_ref();
    let values = vec![
        Value::new(
            &*holder.holder,
            RETENTION_MS,
            retention.map_or_else(String::new, |setting| setting.value().to_string()),
            retention.map_or("", |setting| setting.source().label()),
        ),
        Value::new(
            "claim_check",
            "retention",
            crate::config::time_text(claim.retention),
            "config",
        ),
    ];
    let (why, fix) = match need.needed {
        Some(needed) => {
            let needed = days(needed);
            (
                format!(
                    "A ticket may lie in {} for retention.ms and segment.ms together; with a day for clocks its object is \
                     needed for {needed}, and is kept for {} at least.",
                    holder.holder,
                    days(claim.retention)
                ),
                format!(
                    "claim_check: {{retention: {needed}}}, and the store's lifecycle no shorter"
                ),
            )
        }
        None => (
            format!(
                "{} keeps records for ever, and objects of {} are kept for a time.",
                holder.holder, holder.topic
            ),
            format!(
                "Give {} a retention.ms, or take {} out of the rule that offloads it",
                holder.holder, holder.topic
            ),
        ),
    };
    Finding {
        severity: Severity::Error,
        rule: FindingRule::ClaimRetentionShort,
        topics: vec![holder.holder.to_string()],
        values,
        why,
        fix,
        also: None,
    }
}

/// Whole days, rounded up.
pub fn days(time: Duration) -> String {
    format!("{}d", time.as_secs().div_ceil(86_400))
}

/// Members of a family whose main topic offloads, and that do not.
fn dead_letters(comparison: &Comparison<'_>, found: &mut Vec<Finding>) {
    for family in comparison.policy.families().all() {
        let Some(main) = comparison.policy.may_offload(&family.main) else {
            continue;
        };
        let bare: Vec<String> = family
            .members
            .iter()
            .filter(|member| comparison.policy.may_offload(&member.topic).is_none())
            .map(|member| member.topic.to_string())
            .collect();
        if bare.is_empty() {
            continue;
        }
        found.push(Finding {
            severity: Severity::Warning,
            rule: FindingRule::ClaimMemberInline,
            values: vec![Value::new(
                &*family.main,
                "offload above",
                main.above_bytes,
                "config",
            )],
            why: format!(
                "Whoever has the original of a record of {} and writes it there again writes what was too large: a topic \
                 whose values are not offloaded refuses it, or takes it whole.",
                family.main
            ),
            fix: format!(
                "A rule with `action: offload` for {}, as {} has",
                bare.join(" "),
                family.main
            ),
            topics: bare,
            also: None,
        });
    }
}
