//! One line for what is offloaded, and repeated ones summarised; likewise for what could not be.
//!
//! Invariant: as for [`Repeats`].

use tracing::{info, warn};

use super::repeats::{Repeats, Summary, WORD};
use crate::text::first_chars;

/// Logs offloads: the first of a topic and client at once, its repetitions as counts per minute.
#[derive(Debug, Default)]
pub struct OffloadLog {
    done: Repeats<Key, Amount>,
    failed: Repeats<FailureKey, ()>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    topic: String,
    client_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FailureKey {
    topic: String,
    what: &'static str,
    code: String,
}

#[derive(Debug, Default)]
struct Amount {
    records: u64,
    bytes: u64,
}

impl OffloadLog {
    /// A batch was offloaded.
    pub fn log_offload(&self, topic: &str, client_id: &str, records: u64, bytes: u64) {
        let key = Key {
            topic: first_chars(topic, WORD).into(),
            client_id: first_chars(client_id, WORD).into(),
        };
        let add = |amount: &mut Amount| {
            amount.records = amount.records.saturating_add(records);
            amount.bytes = amount.bytes.saturating_add(bytes);
        };
        if self.done.is_first(key, add) {
            info!(target: "sizegate::offload", topic, client_id, records, bytes, "values went to the object store, and tickets travel in their place");
        }
    }

    /// A batch could not be offloaded; `what` became of it. Class, code and text of the failure say why.
    pub fn log_failure(
        &self,
        topic: &str,
        what: &'static str,
        (class, code, text): (&str, &str, &str),
    ) {
        let key = FailureKey {
            topic: first_chars(topic, WORD).into(),
            what,
            code: first_chars(code, WORD).into(),
        };
        if self.failed.is_first(key, |()| ()) {
            warn!(target: "sizegate::offload", topic, what, class, code, "not offloaded: {text}");
        }
    }

    /// Writes what was counted since the last call.
    pub fn summarise(&self) {
        let Summary { repeats, more } = self.done.summary();
        for (key, count, amount) in repeats {
            info!(
                target: "sizegate::offload",
                count,
                topic = key.topic,
                client_id = key.client_id,
                records = amount.records,
                bytes = amount.bytes,
                "more batches of the same topic and client offloaded"
            );
        }
        let failed = self.failed.summary();
        for (key, count, ()) in failed.repeats {
            warn!(
                target: "sizegate::offload",
                count,
                topic = key.topic,
                what = key.what,
                code = key.code,
                "more batches of the same topic not offloaded"
            );
        }
        let more = more.saturating_add(failed.more);
        if more > 0 {
            warn!(target: "sizegate::offload", count = more, "more offloads, of too many topics and clients to be told apart");
        }
    }
}
