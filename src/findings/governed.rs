//! Prepares a cluster's facts for the gate `config`: what is known of a topic's or broker's configs before a change,
//! and what the change would make of the topic. Pure; a running proxy and `explain --set` ask the same.

use super::{
    BrokerFacts, ClusterFacts, Comparison, Finding, FindingRule, Setting, SettingSource, Severity,
    TopicFacts,
};
use crate::policy::families::opening::{InForce, Step};
use crate::policy::topic_config::{After, Breach, Fault, Held, Known, Op, after, breaches};
use crate::policy::{Change, GovernedKey, Manner, Value};
use crate::vocabulary::CompressionType;
use crate::vocabulary::{Codec, Source};

/// Topics whose configs break their rule: they were set before it, or past sizegate.
pub(super) fn find(comparison: &Comparison<'_>, found: &mut Vec<Finding>) {
    for topic in &comparison.facts.topics {
        let Some(rule) = comparison.policy.rule_for(&topic.name) else {
            continue;
        };
        let Some(governed) = &rule.topic_config else {
            continue;
        };
        let known = known_topic(topic, Default::default());
        let as_it_is = |&key: &GovernedKey| {
            let text = match known.held.get(key as usize)?.now.clone()? {
                Value::Bytes(bytes) => bytes.to_string(),
                Value::Word(word) => word,
            };
            Some((key, Op::Set(text)))
        };
        let change = Change {
            name: std::sync::Arc::clone(&topic.name),
            is_broker: false,
            manner: Manner::Change,
            ops: GovernedKey::ALL.iter().filter_map(as_it_is).collect(),
        };
        for breach in breaches(&change, governed, None) {
            found.extend(broken(comparison, topic, &rule.name, &breach));
        }
    }
}

fn broken(
    comparison: &Comparison<'_>,
    topic: &TopicFacts,
    rule: &str,
    breach: &Breach,
) -> Option<Finding> {
    let key = breach.key.label();
    let commands = comparison.commands();
    let (bound, fix) = match &breach.fault {
        Fault::Above(most) => (
            super::Value::new(format!("rule {rule}"), "max", *most, "config"),
            commands.set_topic(&topic.name, &[(key, *most)]),
        ),
        Fault::Below(least) => (
            super::Value::new(format!("rule {rule}"), "min", *least, "config"),
            commands.set_topic(&topic.name, &[(key, *least)]),
        ),
        Fault::NotAmong(words) => {
            let first = words.split(", ").next().unwrap_or_default();
            (
                super::Value::new(format!("rule {rule}"), key, words.as_str(), "config"),
                commands.set_compression(&topic.name, first),
            )
        }
        Fault::Unread | Fault::Illegible => return None,
    };
    let source = match breach.key {
        GovernedKey::MaxMessageBytes => topic.max_message_bytes.as_ref().map(Setting::source),
        GovernedKey::SegmentBytes => topic.segment_bytes.as_ref().map(Setting::source),
        GovernedKey::CompressionType => topic.compression_type.as_ref().map(Setting::source),
    };
    let value: serde_json::Value = match breach.value.clone()? {
        Value::Bytes(bytes) => bytes.into(),
        Value::Word(word) => word.into(),
    };
    Some(Finding {
        severity: Severity::Warning,
        rule: FindingRule::TopicConfigBroken,
        topics: vec![topic.name.to_string()],
        values: vec![
            super::Value::new(&*topic.name, key, value, source?.label()),
            bound,
        ],
        why: format!(
            "Rule \"{rule}\" lets nobody set {key} to that through sizegate; it was set before, past it, or is inherited."
        ),
        fix,
        also: None,
    })
}

/// What is known of the configs that a change is for. Of a topic that does not exist: what it would inherit.
pub fn known(change: &Change, facts: &ClusterFacts) -> Known {
    if change.is_broker {
        return known_broker(&change.name, &facts.brokers);
    }
    let inherited = inherited(&facts.brokers);
    match facts.topic(&change.name) {
        Some(topic) => known_topic(topic, inherited),
        None => Known {
            held: inherited.map(|inherited| Held {
                inherited,
                ..Held::default()
            }),
        },
    }
}

/// A topic before and after a change; `None`: nothing changes, or the broker refuses it (one that exists is not created,
/// one that does not is not changed).
pub fn step(change: &Change, facts: &ClusterFacts) -> Option<Step> {
    let topic = facts.topic(&change.name);
    if (change.manner == Manner::Create) == topic.is_some() {
        return None;
    }
    let known = known(change, facts);
    let before = topic.map(in_force);
    let then = |key: GovernedKey| match after(change, key, Some(&known)) {
        After::Set(value @ Value::Bytes(_)) => Some(value),
        After::Set(value) if key == GovernedKey::CompressionType => Some(value),
        After::Inherited(values) => values.into_iter().next(),
        // What is no number the broker refuses.
        After::Set(_) | After::Kept => known.held.get(key as usize)?.now.clone(),
    };
    let bytes = |key| match then(key) {
        Some(Value::Bytes(bytes)) => Some(bytes),
        _ => None,
    };
    let (max, segment) = (
        bytes(GovernedKey::MaxMessageBytes),
        bytes(GovernedKey::SegmentBytes),
    );
    let after = InForce {
        batch_bytes: max.into_iter().chain(segment).min(),
        by_segment: matches!((max, segment), (Some(max), Some(segment)) if segment < max),
        compression: match then(GovernedKey::CompressionType) {
            Some(Value::Word(word)) => Some(word),
            _ => None,
        },
    };
    (before.as_ref() != Some(&after)).then(|| Step {
        topic: std::sync::Arc::clone(&change.name),
        before,
        after,
    })
}

/// What is in force for a topic's batches.
pub fn in_force(facts: &TopicFacts) -> InForce {
    let limit = facts.batch_limit();
    InForce {
        batch_bytes: limit.map(|(bytes, _)| bytes),
        by_segment: matches!(limit, Some((_, Source::Segment))),
        compression: facts
            .compression_type
            .as_ref()
            .map(|setting| word(setting.value()).to_owned()),
    }
}

const fn word(compression: CompressionType) -> &'static str {
    match compression {
        CompressionType::Producer => "producer",
        CompressionType::Stored(Codec::None) => "uncompressed",
        CompressionType::Stored(codec) => codec.label(),
    }
}

fn bytes(value: u64) -> Value {
    Value::Bytes(value)
}

fn compression(value: CompressionType) -> Value {
    Value::Word(word(value).to_owned())
}

/// What topics inherit from each broker, by [`GovernedKey`].
fn inherited(brokers: &[BrokerFacts]) -> [Vec<Value>; 3] {
    let mut values: [Vec<Value>; 3] = Default::default();
    let [max, segment, codec] = &mut values;
    for broker in brokers {
        max.extend(
            broker
                .message_max_bytes
                .as_ref()
                .map(|set| bytes(set.value())),
        );
        segment.extend(
            broker
                .log_segment_bytes
                .as_ref()
                .map(|set| bytes(set.value())),
        );
        codec.extend(
            broker
                .compression_type
                .as_ref()
                .map(|set| compression(set.value())),
        );
    }
    values
}

fn known_topic(facts: &TopicFacts, inherited: [Vec<Value>; 3]) -> Known {
    fn held<T: Copy>(
        setting: Option<&Setting<T>>,
        value: fn(T) -> Value,
        mut inherited: Vec<Value>,
    ) -> Held {
        let Some(setting) = setting else {
            return Held {
                // It may well be one.
                is_override: true,
                inherited,
                now: None,
            };
        };
        let below = setting.inherited().map(|step| value(step.value));
        inherited.extend(below);
        Held {
            now: Some(value(setting.value())),
            is_override: setting.is_override(),
            inherited,
        }
    }
    let [max, segment, codec] = inherited;
    Known {
        held: [
            held(facts.max_message_bytes.as_ref(), bytes, max),
            held(facts.segment_bytes.as_ref(), bytes, segment),
            held(facts.compression_type.as_ref(), compression, codec),
        ],
    }
}

/// What a broker's own dynamic configs stand over; `name` is empty for the default of all.
fn known_broker(name: &str, brokers: &[BrokerFacts]) -> Known {
    fn held<'a, T: Copy + 'a>(
        settings: impl Iterator<Item = &'a Setting<T>>,
        level: SettingSource,
        value: fn(T) -> Value,
    ) -> Held {
        let mut held = Held::default();
        for setting in settings {
            held.is_override |= setting.steps().any(|step| step.source == level);
            let below = setting.steps().find(|step| step.source != level);
            held.inherited.extend(below.map(|step| value(step.value)));
        }
        held
    }
    let level = if name.is_empty() {
        SettingSource::Cluster
    } else {
        SettingSource::Node
    };
    let node_id = name.parse::<i32>().ok();
    let concerned: Vec<&BrokerFacts> = brokers
        .iter()
        .filter(|broker| name.is_empty() || Some(broker.node_id) == node_id)
        .collect();
    let each = || concerned.iter().copied();
    Known {
        held: [
            held(
                each().filter_map(|b| b.message_max_bytes.as_ref()),
                level,
                bytes,
            ),
            held(
                each().filter_map(|b| b.log_segment_bytes.as_ref()),
                level,
                bytes,
            ),
            held(
                each().filter_map(|b| b.compression_type.as_ref()),
                level,
                compression,
            ),
        ],
    }
}
