//! Refusals as JSON, for the topic that gets them (`refusals.topic`): the words of the log, one record each, and under
//! a storm counts.
//!
//! Invariant: as for [`Repeats`]; of one topic, gate and client at most [`EACH`] refusals between two summaries are told
//! one by one. No record's content, and of its key what `refusals.record_key` asks for.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Value, json};
use tracing::warn;

use super::repeats::{Repeats, Summary, WORD};
use crate::telemetry::{BrokerRefusal, RefusalRecord};
use crate::text::{first_chars, rfc3339};
use crate::vocabulary::{Action, Gate};

/// Kafka's longest topic name.
const TOPIC: usize = 249;
/// One a second, on average.
const EACH: u64 = 60;

/// What goes to the topic: the key is the topic that was refused.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusalJson {
    /// The topic that the refusal is about; `None` in a count of many.
    pub topic: Option<Arc<str>>,
    /// One object.
    pub json: Value,
}

/// Tells which refusals become records of their own, and counts the rest.
#[derive(Debug)]
pub struct RefusalRecords {
    instance: String,
    seen: Repeats<Key, Last>,
    /// Why records were not written.
    unwritten: Repeats<&'static str, ()>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    topic: String,
    /// The broker does not always say.
    gate: Option<Gate>,
    action: Action,
    is_loop: bool,
    refused_by: &'static str,
    client_id: String,
}

/// What a summary says of those that it counts.
#[derive(Debug, Default)]
struct Last {
    largest_bytes: u64,
    limit_bytes: Option<u64>,
    id: String,
}

impl RefusalRecords {
    /// `instance`: which sizegate tells.
    pub fn new(instance: String) -> Self {
        Self {
            instance,
            seen: Repeats::each(EACH),
            unwritten: Repeats::default(),
        }
    }

    /// A refusal here; `None`: it is counted, and told with the next summary.
    pub fn refusal(&self, refusal: &RefusalRecord) -> Option<RefusalJson> {
        let is_told = self.seen.is_first(Key::of(refusal), |last| {
            last.add(refusal.size_bytes, Some(refusal.limit_bytes), &refusal.id);
        });
        is_told.then(|| self.told(&refusal.topic, of_ours(refusal)))
    }

    /// Likewise one by the broker.
    pub fn broker_refusal(&self, refusal: &BrokerRefusal) -> Option<RefusalJson> {
        let is_told = self.seen.is_first(Key::of_broker(refusal), |last| {
            last.add(refusal.size_bytes, refusal.limit_bytes, &refusal.id);
        });
        is_told.then(|| self.told(&refusal.topic, of_broker(refusal)))
    }

    fn told(&self, topic: &str, json: Value) -> RefusalJson {
        let mut json = json;
        if let Value::Object(fields) = &mut json {
            fields.retain(|_, value| !value.is_null());
            fields.insert("instance".to_owned(), json!(self.instance));
        }
        RefusalJson {
            topic: Some(topic.into()),
            json,
        }
    }

    /// What was counted since the last call.
    pub fn summary(&self) -> Vec<RefusalJson> {
        let Summary { repeats, more } = self.seen.summary();
        let now = rfc3339(SystemTime::now());
        let mut told: Vec<RefusalJson> = repeats
            .into_iter()
            .map(|(key, count, last)| {
                let json = json!({
                    "time": now,
                    "kind": "summary",
                    "message": "more refusals of the same topic, gate and client",
                    "count": count,
                    "refused_by": key.refused_by,
                    "gate": key.gate.map(|gate| gate.label()),
                    "action": key.action.label(),
                    "topic": key.topic,
                    "client_id": key.client_id,
                    "largest_bytes": last.largest_bytes,
                    "limit_bytes": last.limit_bytes,
                    "last_id": last.id,
                });
                self.told(&key.topic, json)
            })
            .collect();
        if more > 0 {
            let json = json!({
                "time": now,
                "kind": "summary",
                "message": "more refusals, of too many topics and clients to be told apart",
                "count": more,
                "instance": self.instance,
            });
            told.push(RefusalJson { topic: None, json });
        }
        told
    }

    /// A record could not be written to `topic`. `label`: of a fixed set.
    pub fn not_written(&self, topic: &str, label: &'static str, why: &dyn std::fmt::Display) {
        if self.unwritten.is_first(label, |()| ()) {
            warn!(target: "sizegate::refusal", topic, outcome = label, "a refusal is not in the topic of refusals.topic: {why}");
        }
    }

    /// Logs how many more could not be written since the last call.
    pub fn summarise_unwritten(&self) {
        for (label, count, ()) in self.unwritten.summary().repeats {
            warn!(target: "sizegate::refusal", count, outcome = label, "more refusals are not in the topic of refusals.topic");
        }
    }
}

impl Key {
    fn of(refusal: &RefusalRecord) -> Self {
        Self {
            topic: first_chars(&refusal.topic, TOPIC).into(),
            gate: Some(refusal.gate),
            action: refusal.action,
            is_loop: refusal.is_loop,
            refused_by: "sizegate",
            client_id: first_chars(&refusal.client_id, WORD).into(),
        }
    }

    fn of_broker(refusal: &BrokerRefusal) -> Self {
        Self {
            topic: first_chars(&refusal.topic, TOPIC).into(),
            gate: refusal.gate,
            action: Action::Reject,
            is_loop: false,
            refused_by: "broker",
            client_id: first_chars(&refusal.client_id, WORD).into(),
        }
    }
}

impl Last {
    fn add(&mut self, size_bytes: u64, limit_bytes: Option<u64>, id: &str) {
        self.largest_bytes = self.largest_bytes.max(size_bytes);
        self.limit_bytes = limit_bytes;
        id.clone_into(&mut self.id);
    }
}

fn of_ours(refusal: &RefusalRecord) -> Value {
    json!({
        "time": rfc3339(refusal.at),
        "kind": "refusal",
        "message": refusal.sentence(),
        "refused_by": "sizegate",
        "gate": refusal.gate.label(),
        "size_bytes": (!refusal.at_least).then_some(refusal.size_bytes),
        "at_least_bytes": refusal.at_least.then_some(refusal.size_bytes),
        "limit_bytes": refusal.limit_bytes,
        "source": refusal.source.label(),
        "rule": refusal.rule,
        "member": refusal.member,
        "action": refusal.action.label(),
        "error_code": refusal.error_code,
        "is_loop": refusal.is_loop.then_some(true),
        "topic": refusal.topic,
        "partition": refusal.partition,
        "batch_bytes": refusal.batch_bytes,
        "uncompressed_bytes": refusal.uncompressed_bytes,
        "codec": refusal.codec.map(|codec| codec.label()),
        "records": refusal.records,
        "record": refusal.record,
        "record_key": refusal.record_key,
        "id": refusal.id,
        "client_id": refusal.client_id,
        "software": refusal.software,
        "address": refusal.address,
        "principal": refusal.principal,
    })
}

fn of_broker(refusal: &BrokerRefusal) -> Value {
    json!({
        "time": rfc3339(refusal.at),
        "kind": "refusal",
        "message": refusal.text,
        "refused_by": "broker",
        "gate": refusal.gate.map(|gate| gate.label()),
        "size_bytes": refusal.size_bytes,
        "limit_bytes": refusal.limit_bytes,
        "source": refusal.source.map(|source| source.label()),
        "action": "reject",
        "error_code": refusal.error_code,
        "topic": refusal.topic,
        "partition": refusal.partition,
        "batch_bytes": refusal.batch_bytes,
        "codec": refusal.codec.map(|codec| codec.label()),
        "records": refusal.records,
        "id": refusal.id,
        "client_id": refusal.client_id,
        "software": refusal.software,
        "address": refusal.address,
        "principal": refusal.principal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::refusals::example;

    fn records() -> RefusalRecords {
        RefusalRecords::new("pod-1".to_owned())
    }

    #[test]
    fn a_refusal_has_the_words_of_its_log_line() {
        let mut told = records().refusal(&example()).unwrap();
        assert_eq!(told.topic.as_deref(), Some("orders"));
        let fields = told.json.as_object_mut().unwrap();
        let message = fields.remove("message").unwrap();
        assert!(
            message
                .as_str()
                .unwrap()
                .ends_with("Smaller notes, please.")
        );
        assert_eq!(
            told.json,
            json!({
                "time": "1970-01-01T00:00:00.000Z", "kind": "refusal", "refused_by": "sizegate", "gate": "record",
                "size_bytes": 70112, "limit_bytes": 65536, "source": "rule", "rule": "orders", "action": "reject",
                "error_code": 10, "topic": "orders", "partition": 0, "batch_bytes": 71240, "uncompressed_bytes": 90331,
                "codec": "lz4", "records": 12, "record": 3, "id": "7f3a9c", "client_id": "checkout",
                "software": "apache-kafka-java/4.3.0", "address": "10.0.0.7:51234", "instance": "pod-1",
            })
        );
        let observed = RefusalRecord {
            action: Action::Observe,
            at_least: true,
            record_key: Some("sha256:00".into()),
            ..example()
        };
        let told = records().refusal(&observed).unwrap().json;
        assert_eq!(
            (
                &told["at_least_bytes"],
                told.get("size_bytes"),
                &told["action"],
                &told["record_key"]
            ),
            (&json!(70112), None, &json!("observe"), &json!("sha256:00"))
        );
    }

    #[test]
    fn a_storm_is_sixty_records_and_a_count_a_minute() {
        let records = records();
        let told = |n: u64| {
            let refusal = RefusalRecord {
                size_bytes: n,
                id: n.to_string(),
                ..example()
            };
            records.refusal(&refusal).is_some()
        };
        assert_eq!((0..5_000).filter(|n| told(*n)).count(), 60);
        let summary = records.summary();
        assert_eq!(summary.len(), 1);
        let json = &summary[0].json;
        assert_eq!(
            (
                &json["count"],
                &json["largest_bytes"],
                &json["last_id"],
                &json["kind"]
            ),
            (
                &json!(4_940),
                &json!(4_999),
                &json!("4999"),
                &json!("summary")
            )
        );
        // It goes on: nothing but counts, until a minute without any.
        assert_eq!((0..100).filter(|n| told(*n)).count(), 0);
        assert_eq!(records.summary()[0].json["count"], 100);
        assert!(records.summary().is_empty());
        assert!(told(0));
    }
}
