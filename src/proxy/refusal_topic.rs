//! The topic that gets each refusal (`refusals.topic`).
//!
//! Invariant: nobody waits for it. What has no room, or is not acknowledged, is counted by why.

use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest, Sha256};

use crate::cluster::{Cluster, NewRecord, Producer};
use crate::telemetry::log::{RefusalJson, RefusalRecords};
use crate::telemetry::{BrokerRefusal, Metrics, RefusalRecord};
use crate::text::printable;
use crate::vocabulary::RecordKey;

/// What may wait to be written: some 2,000 refusals.
const ROOM_BYTES: u32 = 4 << 20;

/// Bytes of a hash that are shown: enough to find a record by, and no more.
const HASH_BYTES: usize = 8;
/// Characters of a key that `prefix` shows.
const PREFIX_CHARS: usize = 8;

/// Writes refusals to their topic.
pub struct RefusalTopic {
    topic: Arc<str>,
    producer: Producer,
    records: Arc<RefusalRecords>,
    metrics: Arc<Metrics>,
}

impl RefusalTopic {
    /// Connects nowhere before the cluster's control plane runs. `instance`: which sizegate tells.
    pub fn new(topic: &str, instance: String, cluster: &Cluster, metrics: &Arc<Metrics>) -> Self {
        Self {
            topic: topic.into(),
            producer: cluster.producer(ROOM_BYTES),
            records: Arc::new(RefusalRecords::new(instance)),
            metrics: Arc::clone(metrics),
        }
    }

    pub(super) fn tell(&self, refusal: &RefusalRecord) {
        if let Some(json) = self.records.refusal(refusal) {
            self.write(json);
        }
    }

    pub(super) fn tell_broker(&self, refusal: &BrokerRefusal) {
        if let Some(json) = self.records.broker_refusal(refusal) {
            self.write(json);
        }
    }

    /// Writes what was counted since the last call.
    pub fn summarise(&self) {
        for json in self.records.summary() {
            self.write(json);
        }
        self.records.summarise_unwritten();
    }

    /// Waits until what was told so far is written, or is not to be.
    pub async fn finished(&self) {
        self.producer.finished().await;
    }

    fn write(&self, RefusalJson { topic, json }: RefusalJson) {
        let record = NewRecord {
            topic: Arc::clone(&self.topic),
            key: topic.map(|topic| Bytes::copy_from_slice(topic.as_bytes())),
            value: Some(Bytes::from(json.to_string())),
            headers: Vec::new(),
        };
        let (topic, records) = (Arc::clone(&self.topic), Arc::clone(&self.records));
        let metrics = Arc::clone(&self.metrics);
        let offered = self
            .producer
            .offer_then(record, move |outcome| match outcome {
                Ok(_) => metrics.refusal_record("written"),
                Err(error) => {
                    metrics.refusal_record(error.label());
                    records.not_written(&topic, error.label(), &error);
                }
            });
        if let Err(error) = offered {
            self.metrics.refusal_record(error.label());
            self.records.not_written(&self.topic, error.label(), &error);
        }
    }
}

/// What is told of a record's key.
pub(super) fn shown(how: RecordKey, key: &[u8]) -> Option<String> {
    match how {
        RecordKey::None => None,
        RecordKey::Hash => {
            let hash = Sha256::digest(key);
            let hex = hash
                .iter()
                .take(HASH_BYTES)
                .map(|byte| format!("{byte:02x}"));
            Some(format!("sha256:{}", hex.collect::<String>()))
        }
        RecordKey::Prefix => {
            let text = printable(key);
            let mut prefix: String = text.chars().take(PREFIX_CHARS).collect();
            if prefix.len() < text.len() {
                prefix.push('…');
            }
            Some(prefix)
        }
        RecordKey::Full => Some(printable(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_shown_as_the_configuration_asks() {
        let key = b"customer-4711";
        assert_eq!(shown(RecordKey::None, key), None);
        // printf %s customer-4711 | sha256sum
        assert_eq!(
            shown(RecordKey::Hash, key).unwrap(),
            "sha256:85d0c1e318151f3b"
        );
        assert_eq!(shown(RecordKey::Prefix, key).unwrap(), "customer…");
        assert_eq!(shown(RecordKey::Prefix, b"short").unwrap(), "short");
        assert_eq!(shown(RecordKey::Full, key).unwrap(), "customer-4711");
        assert_eq!(
            shown(RecordKey::Full, b"a\nb\xff").unwrap(),
            "a\u{fffd}b\u{fffd}"
        );
        assert_eq!(shown(RecordKey::Full, &[b'k'; 60_000]).unwrap().len(), 256);
    }
}
