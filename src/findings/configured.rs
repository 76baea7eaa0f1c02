//! The configuration's rules against the topics that exist.

use std::collections::BTreeMap;

use super::topics::{USUAL_BATCH_BYTES, small_batches_hurt};
use super::{Comparison, Finding, FindingRule, Severity, Value};
use crate::config::{BatchLimit, Config, Limits, Rule, TopicPattern};
use crate::policy::{Action, Policy};

pub(super) fn find(comparison: &Comparison<'_>, found: &mut Vec<Finding>) {
    let config = comparison.config;
    small_limits("limits", &config.limits, found);
    for rule in &config.rules {
        small_limits(&format!("rule {}", rule.name), &rule.limits, found);
    }
    reached(comparison, found);
    internal(comparison, found);
}

fn small_limits(of: &str, limits: &Limits, found: &mut Vec<Finding>) {
    let small = match limits.batch_bytes {
        Some(BatchLimit::Bytes(bytes)) if bytes < USUAL_BATCH_BYTES => bytes,
        _ => return,
    };
    found.push(Finding {
        severity: Severity::Warning,
        rule: FindingRule::SmallBatchLimit,
        topics: Vec::new(),
        values: vec![Value::new(of, "batch_bytes", small, "config")],
        why: small_batches_hurt(),
        fix: format!("record_bytes: {small} instead of batch_bytes in {of} of the configuration"),
        also: None,
    });
}

/// Rules that speak for no topic: none matches, or an earlier rule takes all that do.
fn reached(comparison: &Comparison<'_>, found: &mut Vec<Finding>) {
    let rules = &comparison.config.rules;
    if rules.is_empty() {
        return;
    }
    let mut governed: BTreeMap<&str, usize> = BTreeMap::new();
    for topic in &comparison.facts.topics {
        if let Some(rule) = comparison.policy.rule_for(&topic.name) {
            *governed.entry(&rule.name).or_default() += 1;
        }
    }
    let mut alone = Config {
        rules: Vec::new(),
        ..comparison.config.clone()
    };
    for rule in rules
        .iter()
        .filter(|rule| !governed.contains_key(&*rule.name))
    {
        alone.rules = vec![Rule {
            clients: None,
            ..rule.clone()
        }];
        let matching = matching(comparison, &alone);
        let patterns: Vec<String> = rule.topics.iter().map(TopicPattern::text).collect();
        let values = vec![Value::new(
            format!("rule {}", rule.name),
            "topics",
            patterns.join(" "),
            "config",
        )];
        // A topic that we may not see may be the one.
        let hidden = comparison.facts.hidden.iter();
        if matching.is_empty() && hidden.clone().any(|topic| speaks_for(&alone, topic)) {
            continue;
        }
        if matching.is_empty() {
            found.push(Finding {
                severity: Severity::Warning,
                rule: FindingRule::RuleMatchesNoTopic,
                topics: Vec::new(),
                values,
                why: "No topic has such a name: the rule governs nothing. Names are compared whole and by case.".to_owned(),
                fix: format!(
                    "Correct the topics of rule \"{}\", create the topic, or remove the rule",
                    rule.name
                ),
                also: None,
            });
            continue;
        }
        // It governs some clients of these topics, and nobody knows from here which there are.
        if rule.clients.is_some() {
            continue;
        }
        let mut takers: Vec<&str> = matching
            .iter()
            .filter_map(|topic| Some(&*comparison.policy.rule_for(topic)?.name))
            .collect();
        takers.sort_unstable();
        takers.dedup();
        let taker = takers.join("\", \"");
        found.push(Finding {
            severity: Severity::Error,
            rule: FindingRule::RuleNeverReached,
            why: format!(
                "The first rule that matches wins, and \"{taker}\" stands before it and takes every topic it matches: its \
                 limits are in force nowhere."
            ),
            fix: format!("Move rule \"{}\" before \"{taker}\" in the configuration", rule.name),
            topics: matching,
            values,
            also: None,
        });
    }
}

fn speaks_for(alone: &Config, topic: &str) -> bool {
    Policy::compile(alone).is_ok_and(|policy| policy.rule_for(topic).is_some())
}

/// The topics that the one rule of a configuration governs.
fn matching(comparison: &Comparison<'_>, alone: &Config) -> Vec<String> {
    let Ok(policy) = Policy::compile(alone) else {
        return Vec::new();
    };
    let topics = comparison.facts.topics.iter();
    topics
        .filter(|topic| policy.rule_for(&topic.name).is_some())
        .map(|topic| topic.name.to_string())
        .collect()
}

/// Rules with numbers of their own on topics that others keep for themselves.
fn internal(comparison: &Comparison<'_>, found: &mut Vec<Finding>) {
    let mut hit: BTreeMap<(&str, Side), Vec<String>> = BTreeMap::new();
    for topic in &comparison.facts.topics {
        let Some(side) = side_kind(&topic.name, topic.is_internal) else {
            continue;
        };
        let rule = comparison
            .policy
            .rule_for(&topic.name)
            .filter(|rule| refuses(rule));
        if let Some(rule) = rule {
            hit.entry((&rule.name, side))
                .or_default()
                .push(topic.name.to_string());
        }
    }
    for ((rule, side), topics) in hit {
        found.push(Finding {
            severity: Severity::Warning,
            rule: FindingRule::InternalTopic,
            values: vec![Value::new(format!("rule {rule}"), "topics", side.label(), "config")],
            why: side.why().to_owned(),
            fix: format!(
                "Narrow the topics of rule \"{rule}\", or put a rule without limits (limits: {}) for these topics before \
                 it",
                no_limits(&comparison.config.limits)
            ),
            topics,
            also: None,
        });
    }
}

/// The rule has numbers of its own and acts on them.
fn refuses(rule: &Rule) -> bool {
    let has_batch = matches!(rule.limits.batch_bytes, Some(BatchLimit::Bytes(_)));
    let mut inside = rule.limits.inside();
    let has_numbers = has_batch || inside.any(|(_, limit)| limit.number().is_some());
    rule.action != Action::Observe && has_numbers
}

/// What a rule that leaves all to the broker says: it lifts what `limits` sets.
fn no_limits(defaults: &Limits) -> String {
    let inside = defaults.inside();
    let lifted = inside.map(|(gate, _)| format!(", {}: none", gate.limit_key()));
    format!("{{batch_bytes: none{}}}", lifted.collect::<String>())
}

/// Who keeps a topic for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// Kafka.
    Kafka,
    /// Kafka Streams.
    Streams,
    /// Kafka Connect.
    Connect,
    /// MirrorMaker 2.
    MirrorMaker,
    /// A schema registry.
    Registry,
}

impl Side {
    /// Its name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Kafka => "Kafka's own",
            Self::Streams => "Kafka Streams'",
            Self::Connect => "Kafka Connect's",
            Self::MirrorMaker => "MirrorMaker's",
            Self::Registry => "a schema registry's",
        }
    }

    const fn why(self) -> &'static str {
        match self {
            Self::Kafka => {
                "Brokers write these topics themselves; what passes sizegate to them is an exception, and refusing it \
                 breaks consumer groups or transactions."
            }
            Self::Streams => {
                "State stores write their changelogs here: a refusal stops the Streams application, which cannot leave \
                 the record out."
            }
            Self::Connect => {
                "Connect keeps its connectors, offsets and status here: a refusal stops the workers or loses a \
                 connector's place."
            }
            Self::MirrorMaker => "MirrorMaker keeps its place here: a refusal stops replication.",
            Self::Registry => "The registry keeps its schemas here: a refusal loses a schema.",
        }
    }
}

/// Who keeps a topic of this name for itself; `None`: nobody known.
pub fn side_kind(name: &str, is_internal: bool) -> Option<Side> {
    const KAFKA: [&str; 5] = [
        "__consumer_offsets",
        "__transaction_state",
        "__share_group_state",
        "__remote_log_metadata",
        "__cluster_metadata",
    ];
    // `__GROUP__retry` is an application's.
    if is_internal || KAFKA.contains(&name) {
        return Some(Side::Kafka);
    }
    if name.ends_with("-changelog") || name.ends_with("-repartition") {
        return Some(Side::Streams);
    }
    let mirrors = name == "heartbeats"
        || name.ends_with(".heartbeats")
        || name.ends_with(".checkpoints.internal")
        || name.starts_with("mm2-") && name.ends_with(".internal");
    if mirrors {
        return Some(Side::MirrorMaker);
    }
    if name == "_schemas" {
        return Some(Side::Registry);
    }
    is_connects(name).then_some(Side::Connect)
}

/// `connect-configs`, `my-connect-offsets`, `connect-cluster-status`, `connect_statuses`: the last part is what is
/// kept, and `connect` is one before it.
fn is_connects(name: &str) -> bool {
    let parts: Vec<&str> = name.split(['-', '_', '.']).collect();
    let Some((last, before)) = parts.split_last() else {
        return false;
    };
    let kept = [
        "configs", "config", "offsets", "offset", "status", "statuses",
    ];
    kept.contains(last) && before.contains(&"connect")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_that_others_keep_for_themselves_are_known_by_their_names() {
        for (name, internal, side) in [
            ("__consumer_offsets", true, Some(Side::Kafka)),
            ("__consumer_offsets", false, Some(Side::Kafka)),
            ("__billing__retry", false, None),
            (
                "app-KSTREAM-AGGREGATE-STATE-STORE-0000000003-changelog",
                false,
                Some(Side::Streams),
            ),
            (
                "app-KSTREAM-KEY-SELECT-0000000002-repartition",
                false,
                Some(Side::Streams),
            ),
            ("changelog", false, None),
            ("connect-configs", false, Some(Side::Connect)),
            ("docker-connect-offsets", false, Some(Side::Connect)),
            ("connect-cluster-status", false, Some(Side::Connect)),
            ("my_connect_statuses", false, Some(Side::Connect)),
            ("connected-status", false, None),
            ("connect", false, None),
            ("heartbeats", false, Some(Side::MirrorMaker)),
            ("east.checkpoints.internal", false, Some(Side::MirrorMaker)),
            (
                "mm2-offset-syncs.west.internal",
                false,
                Some(Side::MirrorMaker),
            ),
            ("_schemas", false, Some(Side::Registry)),
            ("orders", false, None),
        ] {
            assert_eq!(side_kind(name, internal), side, "{name}");
        }
    }
}
