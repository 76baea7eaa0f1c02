//! Brokers' settings, and our own frame limit, against the limits that topics have.

use std::collections::BTreeMap;

use super::{
    BrokerFacts, Comparison, Finding, FindingRule, MAX_MESSAGE_BYTES, SEGMENT_BYTES, Setting,
    Severity, Value,
};
use crate::policy::Limit;
use crate::text::grouped;
use crate::vocabulary::Source;

/// What a Produce request has beside its one batch: header, names, counts. A topic's name is at most 249 bytes, a
/// client id seldom more.
const REQUEST_OVERHEAD_BYTES: u64 = 1024;

/// By so much Kafka's own defaults differ: `message.max.bytes` is 1 MiB + 12, `replica.fetch.max.bytes` 1 MiB.
const DEFAULTS_DIFFER_BYTES: u64 = 12;

pub(super) fn find(comparison: &Comparison<'_>, found: &mut Vec<Finding>) {
    brokers_differ(comparison, found);
    let largest = largest(comparison);
    if let Some(largest) = &largest {
        socket_below_limit(comparison, largest, found);
        fetch_below_limit(comparison, largest, found);
    }
    let least = largest.map_or(0, |largest| needs(largest.bytes));
    frame(comparison, least, found);
}

/// The largest batch that a topic's own setting, or the default of topics to come, allows.
struct Largest {
    bytes: u64,
    value: Value,
}

fn largest(comparison: &Comparison<'_>) -> Option<Largest> {
    let of_topics = comparison.facts.topics.iter().filter_map(|topic| {
        let (bytes, source) = topic.batch_limit()?;
        let key = if source == Source::Segment {
            SEGMENT_BYTES
        } else {
            MAX_MESSAGE_BYTES
        };
        let value = Value::new(&*topic.name, key, bytes, source.label());
        Some(Largest { bytes, value })
    });
    let of_brokers = comparison.facts.brokers.iter().filter_map(|broker| {
        let setting = broker.message_max_bytes.as_ref()?;
        Some(Largest {
            bytes: setting.value(),
            value: Value::setting(name(broker), "message.max.bytes", setting),
        })
    });
    // The first of equals: a broker's default before the topics that inherit it.
    of_brokers
        .chain(of_topics)
        .reduce(|a, b| if b.bytes > a.bytes { b } else { a })
}

fn name(broker: &BrokerFacts) -> String {
    format!("broker {}", broker.node_id)
}

/// The request around a batch.
const fn needs(batch_bytes: u64) -> u64 {
    batch_bytes.saturating_add(REQUEST_OVERHEAD_BYTES)
}

type Of = fn(&BrokerFacts) -> Option<&Setting<u64>>;

/// Brokers by the value they have, where it is below what is needed.
fn below<'a>(
    comparison: &'a Comparison<'_>,
    of: Of,
    needed: u64,
) -> BTreeMap<u64, Vec<&'a BrokerFacts>> {
    let mut by_value: BTreeMap<u64, Vec<&BrokerFacts>> = BTreeMap::new();
    for broker in &comparison.facts.brokers {
        if let Some(setting) = of(broker).filter(|setting| setting.value() < needed) {
            by_value.entry(setting.value()).or_default().push(broker);
        }
    }
    by_value
}

fn values(brokers: &[&BrokerFacts], key: &str, of: Of) -> Vec<Value> {
    let values = brokers.iter().filter_map(|broker| {
        let setting = of(broker)?;
        Some(Value::setting(name(broker), key, setting))
    });
    values.collect()
}

fn brokers_differ(comparison: &Comparison<'_>, found: &mut Vec<Finding>) {
    const KEY: &str = "message.max.bytes";
    let of: Of = |broker| broker.message_max_bytes.as_ref();
    let all: Vec<&BrokerFacts> = comparison.facts.brokers.iter().collect();
    let values = values(&all, KEY, of);
    let most = all
        .iter()
        .filter_map(|broker| of(broker))
        .map(Setting::value)
        .max();
    let least = all
        .iter()
        .filter_map(|broker| of(broker))
        .map(Setting::value)
        .min();
    let (Some(most), Some(least)) = (most, least) else {
        return;
    };
    if most == least {
        return;
    }
    found.push(Finding {
        severity: Severity::Error,
        rule: FindingRule::BrokersDiffer,
        topics: Vec::new(),
        values,
        why: format!(
            "A topic that inherits its limit has the one of whichever broker leads the partition: between {} and {} bytes \
             the same record passes today and is refused after the next election.",
            grouped(least),
            grouped(most)
        ),
        fix: format!(
            "Take the brokers' own values back (--entity-type brokers --entity-name ID --delete-config {KEY}), then: {}",
            comparison.commands().set_brokers(KEY, most)
        ),
        also: None,
    });
}

fn socket_below_limit(comparison: &Comparison<'_>, largest: &Largest, found: &mut Vec<Finding>) {
    const KEY: &str = "socket.request.max.bytes";
    let of: Of = |broker| broker.socket_request_max_bytes.as_ref();
    let needed = needs(largest.bytes);
    for brokers in below(comparison, of, needed).into_values() {
        let mut values = values(&brokers, KEY, of);
        values.push(largest.value.clone());
        found.push(Finding {
            severity: Severity::Error,
            rule: FindingRule::SocketBelowLimit,
            topics: Vec::new(),
            values,
            why: "A request above it is not answered: the broker closes the connection after reading its length, and the \
                  Java client tries again until delivery.timeout.ms (two minutes) without a word of size."
                .to_owned(),
            fix: format!(
                "{KEY}={needed} (or more) in server.properties of each broker, and restart them one by one; it cannot be \
                 changed while they run. Or lower the limit."
            ),
            also: None,
        });
    }
}

fn fetch_below_limit(comparison: &Comparison<'_>, largest: &Largest, found: &mut Vec<Finding>) {
    let needed = largest.bytes.saturating_sub(DEFAULTS_DIFFER_BYTES);
    let replicas: [(&str, Of); 2] = [
        ("replica.fetch.max.bytes", |broker| {
            broker.replica_fetch_max_bytes.as_ref()
        }),
        ("replica.fetch.response.max.bytes", |broker| {
            broker.replica_fetch_response_max_bytes.as_ref()
        }),
    ];
    for (key, of) in replicas {
        for brokers in below(comparison, of, needed).into_values() {
            let mut values = values(&brokers, key, of);
            values.push(largest.value.clone());
            found.push(Finding {
                severity: Severity::Warning,
                rule: FindingRule::ReplicaFetchBelowLimit,
                topics: Vec::new(),
                values,
                why: "Nothing is refused: since KIP-74 (Kafka 0.10.1) a fetch always returns its first batch whole. But \
                      followers then fetch such batches one at a time, and need memory nobody planned for."
                    .to_owned(),
                fix: format!(
                    "{key}={} in server.properties of each broker, and restart them one by one; or leave it",
                    largest.bytes
                ),
                also: None,
            });
        }
    }
    let key = "fetch.max.bytes";
    let of: Of = |broker| broker.fetch_max_bytes.as_ref();
    for brokers in below(comparison, of, needed).into_values() {
        let mut values = values(&brokers, key, of);
        values.push(largest.value.clone());
        found.push(Finding {
            severity: Severity::Warning,
            rule: FindingRule::FetchBelowLimit,
            topics: Vec::new(),
            values,
            why: "Nothing is refused: since KIP-74 a fetch always returns its first batch whole, so consumers get more \
                  than this and than their own fetch.max.bytes and max.partition.fetch.bytes, and must have the memory \
                  for it."
                .to_owned(),
            fix: format!(
                "{key}={} in server.properties of each broker, and give consumers memory for batches of this size; or \
                 lower the limit",
                largest.bytes
            ),
            also: None,
        });
    }
}

/// `listener.frame_bytes` against what it must let pass, and against what the brokers take.
/// `least`: what the brokers' sockets are to take, by what is found of them.
fn frame(comparison: &Comparison<'_>, least: u64, found: &mut Vec<Finding>) {
    const KEY: &str = "listener.frame_bytes";
    let frame = u64::from(comparison.config.listener.frame_bytes);
    let ours = || Value::new("sizegate", KEY, frame, "config");
    let limits = comparison
        .facts
        .topics
        .iter()
        .filter(|topic| !topic.is_internal);
    let limits = limits.filter_map(|topic| {
        let policy = comparison.policy.for_topic(&topic.name);
        Some((topic, comparison.batch_limit(&policy, &topic.name)?))
    });
    let largest: Option<(_, Limit)> = limits.max_by_key(|(_, limit)| limit.value);
    if let Some((topic, limit)) = largest {
        let needed = needs(limit.value);
        if frame < needed {
            found.push(Finding {
                severity: Severity::Error,
                rule: FindingRule::FrameBelowLimit,
                topics: vec![topic.name.to_string()],
                values: vec![ours(), Value::limit(&*topic.name, &limit)],
                why: "A batch within the topic's limit does not fit into a request that sizegate takes: its frame gate \
                      refuses it."
                    .to_owned(),
                fix: format!("{KEY}: {needed} (or more) in the configuration, and restart sizegate"),
                also: None,
            });
        }
    }
    let of: Of = |broker| broker.socket_request_max_bytes.as_ref();
    let key = "socket.request.max.bytes";
    for brokers in below(comparison, of, frame).into_values() {
        let socket = brokers
            .first()
            .and_then(|broker| of(broker))
            .map_or(0, Setting::value);
        let mut values = values(&brokers, key, of);
        values.push(ours());
        found.push(Finding {
            severity: Severity::Warning,
            rule: FindingRule::FrameAboveSocket,
            topics: Vec::new(),
            values,
            why: format!(
                "A request between {} and {} bytes passes sizegate, and the broker closes the connection for it without \
                 a response: the client retries for minutes and learns nothing.",
                grouped(socket),
                grouped(frame)
            ),
            fix: format!(
                "{KEY}: {} in the configuration, and restart sizegate",
                socket.max(least)
            ),
            also: None,
        });
    }
}
