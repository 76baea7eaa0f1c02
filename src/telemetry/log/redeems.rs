//! Lines for tickets that cannot be redeemed: what went to the fallback topic, who waits, and who goes on.
//!
//! Invariant: as for [`Repeats`].

use tracing::{error, info, warn};

use super::repeats::{Repeats, Summary, WORD};
use crate::text::first_chars;

/// Logs what becomes of tickets: the first of a topic and reason at once, its repetitions as counts per minute.
#[derive(Debug, Default)]
pub struct RedeemLog {
    lost: Repeats<Key, ()>,
    held: Repeats<Key, ()>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    topic: String,
    code: String,
}

fn key(topic: &str, code: &str) -> Key {
    Key {
        topic: first_chars(topic, WORD).to_owned(),
        code: first_chars(code, WORD).to_owned(),
    }
}

/// Topic, partition, offset.
type At<'a> = (&'a str, i32, i64);

impl RedeemLog {
    /// A record is in the fallback topic, and consumers go on without it.
    pub fn log_fallback(
        &self,
        (topic, partition, offset): At<'_>,
        (class, code, text): (&str, &str, &str),
    ) {
        if self.lost.is_first(key(topic, code), |()| ()) {
            error!(target: "sizegate::redeem", topic, partition, offset, class, code, "a record's value is lost: its ticket went to the fallback topic, and consumers go on without it: {text}");
        }
    }

    /// Consumers wait for a record.
    pub fn log_held(
        &self,
        (topic, partition, offset): At<'_>,
        (class, code, text): (&str, &str, &str),
    ) {
        if self.held.is_first(key(topic, code), |()| ()) {
            warn!(target: "sizegate::redeem", topic, partition, offset, class, code, "consumers of the partition wait for a record's value: {text}");
        }
    }

    /// They wait no more.
    pub fn log_let_go(&self, (topic, partition, offset): At<'_>) {
        info!(target: "sizegate::redeem", topic, partition, offset, "consumers of the partition go on");
    }

    /// Writes what was counted since the last call.
    pub fn summarise(&self) {
        let lost = self.lost.summary();
        for (key, count, ()) in lost.repeats {
            error!(target: "sizegate::redeem", count, topic = key.topic, code = key.code, "more records' tickets went to the fallback topic");
        }
        let Summary { repeats, more } = self.held.summary();
        for (key, count, ()) in repeats {
            warn!(target: "sizegate::redeem", count, topic = key.topic, code = key.code, "more records that consumers wait for");
        }
        let more = more.saturating_add(lost.more);
        if more > 0 {
            warn!(target: "sizegate::redeem", count = more, "more tickets that cannot be redeemed, of too many topics to be told apart");
        }
    }
}
