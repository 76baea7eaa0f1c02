//! One line for a connection that was closed for a reason worth knowing, and repeated ones summarised: whoever reaches
//! the port may be turned away a thousand times a second, and must not fill a disk.
//!
//! Invariant: as for [`Repeats`]; a peer's own words are kept cut to [`WORD`] characters.

use std::net::{IpAddr, SocketAddr};

use tracing::warn;

use super::repeats::{Repeats, Summary, WORD};
use crate::text::first_chars;

/// Logs closed connections: the first of a client, reason and detail at once, its repetitions as counts per minute.
#[derive(Debug, Default)]
pub struct CloseLog(Repeats<Key, Option<SocketAddr>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    client: IpAddr,
    client_id: String,
    reason: &'static str,
    detail: String,
}

impl CloseLog {
    /// Calls `write` unless the same was written since the last quiet minute; then it is counted. `detail` tells apart
    /// what one reason has several of.
    pub fn log_close(
        &self,
        client: SocketAddr,
        client_id: &str,
        reason: &'static str,
        detail: &str,
        write: impl FnOnce(),
    ) {
        let key = Key {
            client: client.ip(),
            client_id: first_chars(client_id, WORD).into(),
            reason,
            detail: first_chars(detail, WORD).into(),
        };
        if self.0.is_first(key, |last| *last = Some(client)) {
            write();
        }
    }

    /// Writes what was counted since the last call.
    pub fn summarise(&self) {
        let Summary { repeats, more } = self.0.summary();
        for (key, count, last) in repeats {
            warn!(
                target: "sizegate::close",
                count,
                client = %key.client,
                client_id = key.client_id,
                reason = key.reason,
                detail = (!key.detail.is_empty()).then_some(key.detail),
                last_address = last.map(|address| address.to_string()),
                "more connections of the same client closed for the same reason"
            );
        }
        if more > 0 {
            warn!(target: "sizegate::close", count = more, "more connections closed, of too many clients and reasons to be told apart");
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::capture::json_lines;
    use super::super::repeats::KEYS;
    use super::*;

    fn lines(act: impl FnOnce(&CloseLog)) -> Vec<Value> {
        json_lines(|| act(&CloseLog::default()))
    }

    fn closed(log: &CloseLog, client: [u8; 4], port: u16, detail: &str) {
        let client = SocketAddr::from((client, port));
        log.log_close(client, "", "no_tls", detail, || warn!("{detail}"));
    }

    #[test]
    fn a_client_that_is_turned_away_again_and_again_is_one_line_and_a_count() {
        let lines = lines(|log| {
            for port in 1..=5_000 {
                closed(log, [10, 0, 0, 7], port, "expired");
            }
            closed(log, [10, 0, 0, 7], 1, "no certificate");
            closed(log, [10, 0, 0, 8], 1, "expired");
            log.summarise();
            log.summarise();
            closed(log, [10, 0, 0, 7], 9, "expired");
        });
        let told: Vec<&Value> = lines.iter().map(|line| &line["message"]).collect();
        let more = "more connections of the same client closed for the same reason";
        assert_eq!(
            told,
            ["expired", "no certificate", "expired", more, "expired"]
        );
        let summary = &lines[3];
        assert_eq!(
            [
                &summary["count"],
                &summary["client"],
                &summary["reason"],
                &summary["detail"],
                &summary["last_address"]
            ],
            [
                &json!(4_999),
                &json!("10.0.0.7"),
                &json!("no_tls"),
                &json!("expired"),
                &json!("10.0.0.7:5000")
            ]
        );
    }

    #[test]
    fn invented_names_do_not_fill_the_log_or_the_memory() {
        let lines = lines(|log| {
            for n in 0..20_000 {
                let name = format!("{n}{} is none of the names", "x".repeat(5_000));
                closed(log, [10, 0, 0, 7], 1, &name);
            }
            let keys = log.0.keys();
            assert_eq!(keys.len(), KEYS);
            assert!(keys.iter().all(|key| key.detail.len() <= WORD));
            log.summarise();
        });
        assert_eq!(lines.len(), KEYS + 1);
        assert_eq!(lines[KEYS]["count"], 19_000);
    }
}
