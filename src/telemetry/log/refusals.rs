//! One line per refusal, and repeated ones summarised: a client in a loop must not fill a disk.
//!
//! Invariant: as for [`Repeats`]; between two summaries at most as many refusals are logged one by one as it has keys.

use std::net::SocketAddr;

use tracing::{info, warn};

use super::repeats::{Repeats, Summary, WORD};
use crate::telemetry::RefusalRecord;
use crate::text::first_chars;
use crate::vocabulary::{Action, Gate};

/// Logs refusals: the first of a topic, gate and client at once, its repetitions as counts per minute.
#[derive(Debug, Default)]
pub struct RefusalLog {
    ours: Repeats<Key, Repeated>,
    brokers: Repeats<BrokerKey, ()>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    topic: String,
    gate: Gate,
    action: Action,
    /// The first refusal that ends a loop deserves its line.
    is_loop: bool,
    /// As does the first of a gate that was told of beside another one's.
    is_beside: bool,
    client_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BrokerKey {
    topic: String,
    error_code: i16,
    client_id: String,
}

/// What came after the first, since the last summary.
#[derive(Debug, Default)]
struct Repeated {
    largest_bytes: u64,
    last: Last,
}

#[derive(Debug, Default)]
struct Last {
    id: String,
    limit_bytes: u64,
    software: String,
    address: String,
}

impl RefusalLog {
    /// Logs a refusal, or counts it if the same topic, gate and client was logged since the last quiet minute.
    pub fn log_refusal(&self, refusal: &RefusalRecord) {
        self.log(Key::of(refusal, false), refusal);
    }

    /// Likewise what a batch is over beside another gate, which was logged before.
    pub fn log_beside(&self, refusal: &RefusalRecord) {
        self.log(Key::of(refusal, true), refusal);
    }

    fn log(&self, key: Key, refusal: &RefusalRecord) {
        if self.ours.is_first(key, |repeated| repeated.add(refusal)) {
            write(refusal);
        }
    }

    /// Logs what the broker refused and why, or counts it likewise. `error_code` is Kafka's.
    pub fn log_broker_refusal(
        &self,
        topic: &str,
        error_code: i16,
        client: SocketAddr,
        client_id: &str,
        text: &str,
    ) {
        let key = BrokerKey {
            topic: first_chars(topic, TOPIC).into(),
            error_code,
            client_id: first_chars(client_id, WORD).into(),
        };
        if self.brokers.is_first(key, |()| ()) {
            warn!(target: "sizegate::refusal", refused_by = "broker", topic, %client, client_id, code = error_code, "{text}");
        }
    }

    /// Writes what was counted since the last call. Those that were quiet meanwhile are first again.
    pub fn summarise(&self) {
        let Summary { repeats, more } = self.ours.summary();
        for (key, count, repeated) in &repeats {
            write_summary(key, *count, repeated);
        }
        let brokers = self.brokers.summary();
        for (key, count, ()) in brokers.repeats {
            warn!(
                target: "sizegate::refusal",
                count,
                refused_by = "broker",
                topic = key.topic,
                client_id = key.client_id,
                code = key.error_code,
                "more refusals by the broker of the same topic, code and client"
            );
        }
        let more = more.saturating_add(brokers.more);
        if more > 0 {
            warn!(target: "sizegate::refusal", count = more, "more refusals, of too many topics and clients to be told apart");
        }
    }
}

/// Kafka's longest topic name.
const TOPIC: usize = 249;

impl Key {
    fn of(refusal: &RefusalRecord, is_beside: bool) -> Self {
        Self {
            topic: first_chars(&refusal.topic, TOPIC).into(),
            gate: refusal.gate,
            action: refusal.action,
            is_loop: refusal.is_loop,
            is_beside,
            client_id: first_chars(&refusal.client_id, WORD).into(),
        }
    }
}

impl Repeated {
    fn add(&mut self, refusal: &RefusalRecord) {
        self.largest_bytes = self.largest_bytes.max(refusal.size_bytes);
        self.last = Last {
            id: first_chars(&refusal.id, WORD).into(),
            limit_bytes: refusal.limit_bytes,
            software: first_chars(&refusal.software, WORD).into(),
            address: first_chars(&refusal.address, WORD).into(),
        };
    }
}

/// At a level of its own for each action; `tracing` wants levels to be constant.
macro_rules! at_level_of {
    ($action:expr, $($rest:tt)+) => {
        match $action {
            Action::Observe => info!(target: "sizegate::refusal", $($rest)+),
            Action::Reject | Action::Offload => warn!(target: "sizegate::refusal", $($rest)+),
        }
    };
}

fn write(refusal: &RefusalRecord) {
    let size = (!refusal.at_least).then_some(refusal.size_bytes);
    let at_least = refusal.at_least.then_some(refusal.size_bytes);
    at_level_of!(
        refusal.action,
        gate = refusal.gate.label(),
        size_bytes = size,
        at_least_bytes = at_least,
        limit_bytes = refusal.limit_bytes,
        source = refusal.source.label(),
        rule = refusal.rule.as_deref(),
        member = refusal.member.as_deref(),
        action = refusal.action.label(),
        error_code = refusal.error_code,
        is_loop = refusal.is_loop.then_some(true),
        topic = refusal.topic,
        partition = refusal.partition,
        batch_bytes = refusal.batch_bytes,
        uncompressed_bytes = refusal.uncompressed_bytes,
        codec = refusal.codec.map(|codec| codec.label()),
        records = refusal.records,
        record = refusal.record,
        record_key = refusal.record_key.as_deref(),
        id = refusal.id,
        client_id = refusal.client_id,
        software = refusal.software,
        address = refusal.address,
        principal = refusal.principal.as_deref(),
        "{}{}",
        refusal.sentence(),
        if refusal.is_loop {
            " The client keeps sending it; this response is to end that."
        } else {
            ""
        }
    );
}

fn write_summary(key: &Key, count: u64, repeated: &Repeated) {
    at_level_of!(
        key.action,
        count,
        gate = key.gate.label(),
        action = key.action.label(),
        is_loop = key.is_loop.then_some(true),
        topic = key.topic,
        client_id = key.client_id,
        largest_bytes = repeated.largest_bytes,
        limit_bytes = repeated.last.limit_bytes,
        software = repeated.last.software,
        last_address = repeated.last.address,
        last_id = repeated.last.id,
        "more refusals of the same topic, gate and client"
    );
}

#[cfg(test)]
mod tests {
    use super::super::capture::json_lines;
    use super::super::repeats::KEYS;
    use super::*;
    use crate::telemetry::refusals::example;
    use serde_json::{Value, json};

    fn lines(act: impl FnOnce(&RefusalLog)) -> Vec<Value> {
        json_lines(|| act(&RefusalLog::default()))
    }

    fn from(client_id: &str, size_bytes: u64) -> RefusalRecord {
        RefusalRecord {
            client_id: client_id.into(),
            size_bytes,
            ..example()
        }
    }

    #[test]
    fn a_refusal_is_one_line_with_the_fields_of_its_tail_and_who_sent_it() {
        let mut lines = lines(|log| log.log_refusal(&example()));
        assert_eq!(lines.len(), 1);
        let line = lines[0].as_object_mut().unwrap();
        line.remove("time");
        let message = line.remove("message").unwrap();
        assert!(
            message
                .as_str()
                .unwrap()
                .ends_with("Smaller notes, please."),
            "{message}"
        );
        assert_eq!(
            lines[0],
            json!({
                "level": "warn", "target": "sizegate::refusal", "gate": "record", "size_bytes": 70112,
                "limit_bytes": 65536, "source": "rule", "rule": "orders", "action": "reject", "error_code": 10,
                "topic": "orders", "partition": 0, "batch_bytes": 71240, "uncompressed_bytes": 90331, "codec": "lz4",
                "records": 12, "record": 3, "id": "7f3a9c", "client_id": "checkout",
                "software": "apache-kafka-java/4.3.0", "address": "10.0.0.7:51234",
            })
        );
    }

    #[test]
    fn a_lower_bound_is_not_called_a_size() {
        let refusal = RefusalRecord {
            at_least: true,
            action: Action::Observe,
            ..example()
        };
        let line = &lines(|log| log.log_refusal(&refusal))[0];
        assert_eq!(
            (&line["at_least_bytes"], line.get("size_bytes")),
            (&json!(70112), None)
        );
        assert_eq!(line["level"], "info");
    }

    #[test]
    fn repetitions_are_counted_and_come_once_a_minute() {
        let lines = lines(|log| {
            for n in 0..5_000 {
                log.log_refusal(&from("looping", 70_000 + n));
            }
            log.log_refusal(&from("once", 70_000));
            log.summarise();
        });
        assert_eq!(lines.len(), 3);
        assert_eq!(
            (&lines[0]["client_id"], &lines[1]["client_id"]),
            (&json!("looping"), &json!("once"))
        );
        assert_eq!(
            (
                &lines[2]["count"],
                &lines[2]["client_id"],
                &lines[2]["largest_bytes"]
            ),
            (&json!(4_999), &json!("looping"), &json!(74_999))
        );
    }

    #[test]
    fn what_the_broker_refuses_again_and_again_is_a_line_and_a_count() {
        let lines = lines(|log| {
            let client = SocketAddr::from(([10, 0, 0, 7], 1));
            for n in 0..100 {
                let text = format!("sizegate let orders-{n} pass, the broker refused it");
                log.log_broker_refusal("orders", 10, client, "checkout", &text);
            }
            log.log_broker_refusal("orders", 18, client, "checkout", "another code");
            log.summarise();
        });
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[0]["message"],
            "sizegate let orders-0 pass, the broker refused it"
        );
        assert_eq!(
            (
                &lines[2]["count"],
                &lines[2]["refused_by"],
                &lines[2]["topic"]
            ),
            (&json!(99), &json!("broker"), &json!("orders"))
        );
    }

    #[test]
    fn after_a_quiet_minute_the_next_is_a_first_again() {
        let lines = lines(|log| {
            log.log_refusal(&from("a", 1));
            log.log_refusal(&from("a", 2));
            log.summarise(); // 1 counted
            log.log_refusal(&from("a", 3));
            log.summarise(); // 1 counted: not quiet yet
            log.summarise(); // quiet
            log.log_refusal(&from("a", 4));
        });
        let sizes: Vec<_> = lines
            .iter()
            .map(|line| (&line["count"], &line["size_bytes"]))
            .collect();
        let (none, one) = (&Value::Null, &json!(1));
        assert_eq!(
            sizes,
            [
                (none, &json!(1)),
                (one, none),
                (one, none),
                (none, &json!(4))
            ]
        );
    }

    #[test]
    fn topics_gates_clients_and_loops_are_told_apart() {
        let lines = lines(|log| {
            log.log_refusal(&example());
            log.log_refusal(&RefusalRecord {
                topic: "other".into(),
                ..example()
            });
            log.log_refusal(&RefusalRecord {
                gate: Gate::Batch,
                ..example()
            });
            log.log_refusal(&RefusalRecord {
                client_id: "other".into(),
                ..example()
            });
            log.log_refusal(&RefusalRecord {
                is_loop: true,
                ..example()
            });
            log.log_refusal(&RefusalRecord {
                partition: 7,
                id: "other".into(),
                ..example()
            });
        });
        assert_eq!(lines.len(), 5);
    }

    #[test]
    fn invented_client_ids_do_not_fill_the_log_or_the_memory() {
        let lines = lines(|log| {
            for n in 0..20_000 {
                log.log_refusal(&from(&format!("{n}-{}", "x".repeat(5_000)), 1));
            }
            let keys = log.ours.keys();
            assert_eq!(keys.len(), KEYS);
            assert!(keys.iter().all(|key| key.client_id.len() <= 128));
            log.summarise();
            assert!(log.ours.keys().is_empty());
        });
        assert_eq!(lines.len(), KEYS + 1);
        assert_eq!(lines[KEYS]["count"], 19_000);
    }
}
