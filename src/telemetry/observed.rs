//! Tells what the observing gates notice: records that linger, batches larger than a consumer asked for, consumers that
//! do not get past a large batch. Each with what helps.

use std::time::Duration;

use serde::Serialize;
use tracing::{info, warn};

use super::observations::{Observation, Observations, word};

/// What the observing gates noticed.
#[derive(Debug, Default)]
pub struct Observed {
    /// Records that lingered.
    pub lingering: Observations<Lingering>,
    /// Batches larger than the consumer's own fetch settings.
    pub oversized: Observations<OversizedFetch>,
    /// Consumers that ask for a large batch again and again.
    pub stuck: Observations<Stuck>,
}

impl Observed {
    /// Logs the counts of what was seen again.
    pub fn summarise(&self) {
        self.lingering.summarise();
        self.oversized.summarise();
        self.stuck.summarise();
    }
}

/// Who a client says it is, and where it connects from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Peer {
    /// `client_id`; empty if it sends none.
    pub client_id: String,
    /// The client library, `name/version`; empty if it does not say.
    pub software: String,
    /// Its address and port.
    pub address: String,
}

impl Peer {
    /// The words cut to a length that is kept.
    pub fn new(client_id: &str, software: &str, address: &str) -> Self {
        Self {
            client_id: word(client_id),
            software: word(software),
            address: word(address),
        }
    }
}

/// A record that most likely waited in its producer although nothing could join it (KAFKA-21068).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lingering {
    /// The topic.
    pub topic: String,
    /// The producer.
    #[serde(flatten)]
    pub producer: Peer,
    /// How long it seems to have been kept: about the producer's `linger.ms`.
    pub linger_seconds: f64,
    /// Wire bytes of its batch, as last seen.
    pub batch_bytes: u64,
    /// The largest seen.
    pub largest_bytes: u64,
    /// What helps.
    pub suggestion: &'static str,
}

/// What helps against lingering.
const LINGER_SUGGESTION: &str = "The record is larger than the usual batch.size, so nothing can join it, and it came as \
    late as if it had waited for the whole linger.ms all the same (KAFKA-21068). If linger.ms is about as long: lower it, \
    raise batch.size above the record, use a producer of its own with linger.ms=0 for large records, or send the value by \
    reference (claim check). If it is not, nothing waited: the application gave the record a timestamp that long before it \
    sent it.";

impl Lingering {
    /// One record of a batch of `batch_bytes`.
    pub fn new(topic: &str, producer: Peer, lingered: Duration, batch_bytes: u64) -> Self {
        Self {
            topic: topic.to_owned(),
            producer,
            linger_seconds: lingered.as_secs_f64(),
            batch_bytes,
            largest_bytes: batch_bytes,
            suggestion: LINGER_SUGGESTION,
        }
    }
}

impl Observation for Lingering {
    type Key = (String, String, String);

    fn key(&self) -> Self::Key {
        let Peer {
            client_id,
            software,
            ..
        } = self.producer.clone();
        (self.topic.clone(), client_id, software)
    }

    fn again(&mut self, newer: Self) {
        let largest_bytes = self.largest_bytes.max(newer.largest_bytes);
        *self = Self {
            largest_bytes,
            ..newer
        };
    }

    fn log(&self, more: u64) {
        info!(
            target: "sizegate::linger",
            count = (more > 0).then_some(more),
            topic = self.topic,
            linger_seconds = self.linger_seconds,
            batch_bytes = self.batch_bytes,
            largest_bytes = (more > 0).then_some(self.largest_bytes),
            client_id = self.producer.client_id,
            software = self.producer.software,
            address = self.producer.address,
            "{}", if more > 0 { "more records lingered in the same producer" } else { LINGER_SUGGESTION }
        );
    }

    fn log_rest(count: u64) {
        info!(target: "sizegate::linger", count, "more records lingered, of too many topics and clients to be told apart");
    }
}

/// A consumer's setting that a batch was larger than.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum FetchSetting {
    /// `partition_max_bytes` of the request.
    #[serde(rename = "max.partition.fetch.bytes")]
    Partition,
    /// `max_bytes` of the request.
    #[serde(rename = "fetch.max.bytes")]
    Whole,
}

impl FetchSetting {
    /// Its name in a Java consumer.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Partition => "max.partition.fetch.bytes",
            Self::Whole => "fetch.max.bytes",
        }
    }
}

/// A batch larger than its consumer asked for. It passes all the same (KIP-74).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OversizedFetch {
    /// The topic.
    pub topic: String,
    /// The partition where it was seen last.
    pub partition: i32,
    /// The offset asked for.
    pub offset: i64,
    /// The consumer.
    #[serde(flatten)]
    pub consumer: Peer,
    /// Wire bytes of the batch.
    pub batch_bytes: u64,
    /// The largest seen.
    pub largest_bytes: u64,
    /// The setting.
    pub setting: FetchSetting,
    /// Its value.
    pub setting_bytes: u64,
    /// Where the bytes land.
    pub note: &'static str,
}

/// Whose heap it is.
pub const OVERSIZED_NOTE: &str = "Kafka serves the first batch of a response whole, whatever the consumer's limit. It \
    lands in the heap of this consumer, all at once, and its records beside it once they are decompressed: size the \
    heap for the largest batch, not for the setting.";

impl Observation for OversizedFetch {
    type Key = (String, String, String, &'static str);

    fn key(&self) -> Self::Key {
        let Peer {
            client_id,
            software,
            ..
        } = self.consumer.clone();
        (self.topic.clone(), client_id, software, self.setting.name())
    }

    fn again(&mut self, newer: Self) {
        let largest_bytes = self.largest_bytes.max(newer.largest_bytes);
        *self = Self {
            largest_bytes,
            ..newer
        };
    }

    fn log(&self, more: u64) {
        info!(
            target: "sizegate::fetch",
            count = (more > 0).then_some(more),
            topic = self.topic,
            partition = self.partition,
            offset = self.offset,
            batch_bytes = self.batch_bytes,
            largest_bytes = (more > 0).then_some(self.largest_bytes),
            setting = self.setting.name(),
            setting_bytes = self.setting_bytes,
            client_id = self.consumer.client_id,
            software = self.consumer.software,
            address = self.consumer.address,
            "{}", if more > 0 { "more batches larger than the same consumer asked for" } else { OVERSIZED_NOTE }
        );
    }

    fn log_rest(count: u64) {
        info!(target: "sizegate::fetch", count, "more batches larger than consumers asked for, of too many topics and clients to be told apart");
    }
}

/// A consumer that was served the same large batch again and again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stuck {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset it comes back to.
    pub offset: i64,
    /// Where the large batch is: the same, or behind smaller batches.
    pub batch_offset: i64,
    /// The consumer.
    #[serde(flatten)]
    pub consumer: Peer,
    /// Wire bytes of the large batch.
    pub batch_bytes: u64,
    /// How often it was served.
    pub served: u64,
    /// What it may be.
    pub note: &'static str,
}

/// What may keep a consumer.
const STUCK_NOTE: &str = "The consumer asks for the same offset again and again after it was served a large batch \
    there. Most likely it runs out of memory, cannot deserialise a record of it, or fails while handling one and goes \
    back. Its own log says which; a larger heap, a dead-letter topic, or a seek behind the batch helps.";

/// The same, where the large batch is not the first one it is served.
const STUCK_BEFORE_NOTE: &str = "The consumer comes back to the same offset again and again, and a large batch is among \
    the first that it is served from there, at batch_offset. Most likely that batch, or a record before it, makes it run \
    out of memory, cannot be deserialised, or fails in its handler. Its own log says which; a larger heap, a dead-letter \
    topic, or a seek behind the batch helps.";

/// What may keep a consumer, by whether smaller batches come before the large one.
pub const fn stuck_note(is_behind: bool) -> &'static str {
    if is_behind {
        STUCK_BEFORE_NOTE
    } else {
        STUCK_NOTE
    }
}

impl Observation for Stuck {
    type Key = (String, i32, String);

    fn key(&self) -> Self::Key {
        (
            self.topic.clone(),
            self.partition,
            self.consumer.client_id.clone(),
        )
    }

    fn again(&mut self, newer: Self) {
        *self = newer;
    }

    fn log(&self, more: u64) {
        warn!(
            target: "sizegate::fetch",
            count = (more > 0).then_some(more),
            topic = self.topic,
            partition = self.partition,
            offset = self.offset,
            batch_offset = (self.batch_offset != self.offset).then_some(self.batch_offset),
            batch_bytes = self.batch_bytes,
            served = self.served,
            client_id = self.consumer.client_id,
            software = self.consumer.software,
            address = self.consumer.address,
            "{}", if more > 0 { "the consumer is still stuck" } else { self.note }
        );
    }

    fn log_rest(count: u64) {
        warn!(target: "sizegate::fetch", count, "more stuck consumers than can be told apart");
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::capture::json_lines;
    use super::*;

    fn peer() -> Peer {
        Peer::new("checkout", "apache-kafka-java/4.3.0", "10.0.0.7:51234")
    }

    fn lines(act: impl FnOnce(&Observed)) -> Vec<serde_json::Value> {
        json_lines(|| act(&Observed::default()))
    }

    #[test]
    fn each_kind_says_who_where_how_much_and_what_helps() {
        let lines = lines(|observed| {
            let lingered = Duration::from_millis(1_003);
            observed
                .lingering
                .record(Lingering::new("orders", peer(), lingered, 1_048_650));
            observed.oversized.record(OversizedFetch {
                topic: "orders".into(),
                partition: 3,
                offset: 17,
                consumer: peer(),
                batch_bytes: 3_000_000,
                largest_bytes: 3_000_000,
                setting: FetchSetting::Partition,
                setting_bytes: 1_048_576,
                note: OVERSIZED_NOTE,
            });
            observed.stuck.record(Stuck {
                topic: "orders".into(),
                partition: 3,
                offset: 17,
                batch_offset: 17,
                consumer: peer(),
                batch_bytes: 3_000_000,
                served: 3,
                note: stuck_note(false),
            });
        });
        let said: Vec<_> = lines
            .iter()
            .map(|line| {
                (
                    line["target"].as_str().unwrap(),
                    line["level"].as_str().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            said,
            [
                ("sizegate::linger", "info"),
                ("sizegate::fetch", "info"),
                ("sizegate::fetch", "warn")
            ]
        );
        for (line, words) in lines.iter().zip(["linger.ms", "heap", "deserialise"]) {
            assert!(line["message"].as_str().unwrap().contains(words), "{line}");
            assert_eq!(
                (&line["topic"], &line["client_id"], &line["software"]),
                (
                    &"orders".into(),
                    &"checkout".into(),
                    &"apache-kafka-java/4.3.0".into()
                )
            );
        }
        assert_eq!(lines[0]["linger_seconds"], 1.003);
        assert_eq!(lines[1]["setting"], "max.partition.fetch.bytes");
        assert_eq!(lines[2]["served"], 3);
    }

    #[test]
    fn the_largest_is_kept_and_the_rest_is_as_last_seen() {
        let observed = Observed::default();
        for (ms, bytes) in [(1_000, 5_000_000), (1_010, 1_000_000)] {
            let lingered = Duration::from_millis(ms);
            observed
                .lingering
                .record(Lingering::new("orders", peer(), lingered, bytes));
        }
        let view = serde_json::to_value(observed.lingering.view()).unwrap();
        let view = &view[0];
        assert_eq!(
            (
                &view["count"],
                &view["batch_bytes"],
                &view["largest_bytes"],
                &view["linger_seconds"]
            ),
            (
                &2.into(),
                &1_000_000.into(),
                &5_000_000.into(),
                &1.01.into()
            )
        );
    }
}
