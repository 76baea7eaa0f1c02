//! The configuration's rules against the topics that exist.

use std::collections::{BTreeMap, BTreeSet};

use super::topics::small_batches_hurt;
use super::{Comparison, Finding, FindingRule, MAX_MESSAGE_BYTES, Severity, TopicFacts, Value};
use crate::config::{BatchLimit, Config, Limits, Rule, TopicPattern};
use crate::count::Count as _;
use crate::policy::{Limit, Policy, TopicPolicy};
use crate::vocabulary::{Action, BATCHING_BYTES, Gate, LIMITS};

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
        Some(BatchLimit::Bytes(bytes)) if bytes < BATCHING_BYTES => bytes,
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
            governed.entry(&rule.name).or_default().increment();
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

/// A topic and the limits in force that refuse what it takes.
type Over<'a> = (&'a TopicFacts, Vec<Limit>);

/// Topics that others keep for themselves, and that take more than the limits in force, whatever sets these.
fn internal(comparison: &Comparison<'_>, found: &mut Vec<Finding>) {
    let mut hit: BTreeMap<(String, Side), Vec<Over<'_>>> = BTreeMap::new();
    for topic in &comparison.facts.topics {
        let Some(side) = side_kind(&topic.name, topic.is_internal) else {
            continue;
        };
        let policy = comparison.policy.for_topic(&topic.name);
        let over = refused(topic, &policy);
        if !over.is_empty() {
            let setter = comparison.policy.rule_for(&topic.name);
            let setter =
                setter.map_or_else(|| LIMITS.to_owned(), |rule| format!("rule {}", rule.name));
            hit.entry((setter, side)).or_default().push((topic, over));
        }
        for (rule, over) in for_some_clients(comparison.config, topic) {
            let setter = format!("rule {}", rule.name);
            hit.entry((setter, side)).or_default().push((topic, over));
        }
    }
    for ((setter, side), hit) in hit {
        let mut values = vec![Value::new(&setter, "topics", side.label(), "config")];
        for (topic, over) in &hit {
            values.extend(over.iter().map(|limit| Value::limit(&*topic.name, limit)));
            let taken = topic.max_message_bytes.as_ref();
            values
                .extend(taken.map(|taken| Value::setting(&*topic.name, MAX_MESSAGE_BYTES, taken)));
        }
        let gates: BTreeSet<Gate> = hit
            .iter()
            .flat_map(|(_, over)| over)
            .map(|limit| limit.gate)
            .collect();
        let topics: Vec<String> = hit
            .iter()
            .map(|(topic, _)| topic.name.to_string())
            .collect();
        found.push(Finding {
            severity: Severity::Warning,
            rule: FindingRule::InternalTopic,
            values,
            why: side.why().to_owned(),
            fix: lifted(comparison.config, &topics, &gates),
            topics,
            also: None,
        });
    }
}

/// The limits in force that refuse what the topic's broker takes. What is not known is taken for larger.
fn refused(topic: &TopicFacts, policy: &TopicPolicy) -> Vec<Limit> {
    if policy.action == Action::Observe {
        return Vec::new();
    }
    let taken = topic.batch_limit().map(|(bytes, _)| bytes);
    let is_below =
        |limit: &&Limit| limit.gate == Gate::Ratio || taken.is_none_or(|taken| limit.value < taken);
    let configured = policy.batch.iter().chain(policy.inside_limits());
    configured.filter(is_below).cloned().collect()
}

/// The same for rules that are for some clients only: whoever keeps the topic may be among them.
fn for_some_clients<'a>(config: &'a Config, topic: &TopicFacts) -> Vec<(&'a Rule, Vec<Limit>)> {
    let matches = |rule: &&Rule| {
        rule.topics
            .iter()
            .any(|pattern| pattern.matches(&topic.name))
    };
    let matching = config.rules.iter().filter(matches);
    // The first that is for everybody leaves nobody to those behind it.
    let of_some = matching.take_while(|rule| rule.clients.is_some());
    let alone = of_some.filter_map(|rule| {
        let config = Config {
            rules: vec![Rule {
                clients: None,
                ..rule.clone()
            }],
            ..config.clone()
        };
        let policy = Policy::compile(&config).ok()?.for_topic(&topic.name);
        Some((rule, refused(topic, &policy)))
    });
    alone.filter(|(_, over)| !over.is_empty()).collect()
}

/// A rule for these topics that comes first and sets nothing: what it says `none` to, `limits` no longer sets either.
fn lifted(config: &Config, topics: &[String], gates: &BTreeSet<Gate>) -> String {
    let by_default = config.limits.inside().map(|(gate, _)| gate);
    let gates: BTreeSet<Gate> = by_default.chain(gates.iter().copied()).collect();
    let inside = gates.iter().filter(|gate| **gate != Gate::Batch);
    let none: String = inside
        .map(|gate| format!(", {}: none", gate.limit_key()))
        .collect();
    let is_taken = |name: &String| config.rules.iter().any(|rule| rule.name == *name);
    let mut names =
        std::iter::once("internal".to_owned()).chain((2_u64..).map(|n| format!("internal-{n}")));
    let name = names.find(|name| !is_taken(name)).unwrap_or_default();
    format!(
        "As the first of the rules: {{name: {name}, topics: [{}], limits: {{batch_bytes: none{none}}}}}",
        topics.join(", ")
    )
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
    let joins = name.contains("-KTABLE-FK-JOIN-SUBSCRIPTION-") && name.ends_with("-topic");
    if name.ends_with("-changelog") || name.ends_with("-repartition") || joins {
        return Some(Side::Streams);
    }
    let mirrors = name == "heartbeats"
        || name.ends_with(".heartbeats")
        || name.ends_with(".checkpoints.internal")
        || name.starts_with("mm2-") && name.ends_with(".internal");
    if mirrors {
        return Some(Side::MirrorMaker);
    }
    if name == "_schemas" || name.starts_with("_schemas_") || name.starts_with("_schemas-") {
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
            ("_schemas_europe", false, Some(Side::Registry)),
            (
                "app-KTABLE-FK-JOIN-SUBSCRIPTION-REGISTRATION-0000000014-topic",
                false,
                Some(Side::Streams),
            ),
            ("orders", false, None),
        ] {
            assert_eq!(side_kind(name, internal), side, "{name}");
        }
    }
}
