//! What `/api/v1/claims` says: the counters as one answer, and what is wrong at the moment.
//!
//! Invariant: a time is told as seconds until now, so that clocks need not agree.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use super::{CLASSES, ClaimCounts, ClaimMetrics, Counter, OPERATIONS, OUTCOMES, locked};

/// Held partitions that are told one by one.
const MOST_TOLD: usize = 100;

/// The claim check since the start of the process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClaimsView {
    /// By name.
    pub topics: Vec<ClaimTopicView>,
    /// Where consumers wait now, the longest first; of more than 100 the rest is left out.
    pub held: Vec<HeldView>,
    /// By operation.
    pub store: Vec<StoreView>,
    /// Bytes of originals that are kept for whoever asks next.
    pub cache_bytes: u64,
    /// Tickets whose original was here already.
    pub cache_hits: u64,
}

/// One topic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClaimTopicView {
    /// Its name.
    pub topic: String,
    /// Records whose value went to the store.
    pub offloaded_records: u64,
    /// Bytes that are not in the log for it.
    pub offloaded_bytes: u64,
    /// Wire bytes that are in the log, tickets among them; `None`: the topic has no label of its own.
    pub log_bytes: Option<u64>,
    /// Records that came back.
    pub redeemed_records: u64,
    /// Bytes of their values.
    pub redeemed_bytes: u64,
    /// Records that went to the fallback topic, by class; those that came at all.
    pub fallback_records: BTreeMap<&'static str, u64>,
    /// Seconds since the last of them.
    pub fallback_age_seconds: Option<u64>,
    /// Attempts to write one that failed.
    pub fallback_failures: u64,
    /// Attempts to redeem that failed, by class.
    pub redeem_failures: BTreeMap<&'static str, u64>,
    /// Tickets that were none of ours.
    pub forged: u64,
    /// Objects whose ticket never arrived.
    pub orphans: u64,
}

/// A partition whose consumers wait for a ticket that cannot be redeemed now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HeldView {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// The offset that they wait for.
    pub offset: i64,
    /// How long.
    pub seconds: u64,
}

/// One kind of request to the store.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StoreView {
    /// What was asked.
    pub operation: &'static str,
    /// What came of it; those that came at all.
    pub outcomes: BTreeMap<&'static str, u64>,
    /// How long it took, retries included.
    pub mean_seconds: f64,
    /// The class of the last failure, where no request has succeeded since.
    pub failing: Option<&'static str>,
    /// How long none has.
    pub failing_seconds: Option<u64>,
    /// Seconds since the last one failed.
    pub failed_age_seconds: Option<u64>,
}

impl ClaimTopicView {
    fn of(topic: &str, counts: &ClaimCounts) -> Self {
        let fell_back = *locked(&counts.last_fell_back);
        Self {
            topic: topic.to_owned(),
            offloaded_records: counts.offloaded_records.get(),
            offloaded_bytes: counts.offloaded_bytes.get(),
            log_bytes: None,
            redeemed_records: counts.redeemed_records.get(),
            redeemed_bytes: counts.redeemed_bytes.get(),
            fallback_records: used(&CLASSES, &counts.fallback_records),
            fallback_age_seconds: fell_back.map(age),
            fallback_failures: counts.fallback_failures.get(),
            redeem_failures: used(&CLASSES, &counts.redeem_failures),
            forged: counts.forged.get(),
            orphans: counts.orphans.get(),
        }
    }
}

impl ClaimMetrics {
    /// Topics by name, the store's operations, and who waits. `log_bytes`: what went on to the broker of a topic.
    pub fn view(&self, log_bytes: impl Fn(&str) -> Option<u64>) -> ClaimsView {
        let mut topics: Vec<ClaimTopicView> = locked(&self.topics)
            .iter()
            .map(|(name, counts)| ClaimTopicView {
                log_bytes: log_bytes(name),
                ..ClaimTopicView::of(name, counts)
            })
            .collect();
        topics.sort_by(|a, b| a.topic.cmp(&b.topic));
        ClaimsView {
            topics,
            held: self.held_views(),
            store: self.store_views(),
            cache_bytes: self.cache_bytes.get(),
            cache_hits: self.cache_hits.get(),
        }
    }

    fn held_views(&self) -> Vec<HeldView> {
        let mut held: Vec<HeldView> = locked(&self.held)
            .iter()
            .filter(|(_, held)| !held.is_over())
            .map(|((topic, partition, offset), held)| HeldView {
                topic: topic.to_string(),
                partition: *partition,
                offset: *offset,
                seconds: age(held.since),
            })
            .collect();
        held.sort_by(|a, b| {
            let by = |held: &HeldView| {
                (
                    std::cmp::Reverse(held.seconds),
                    held.topic.clone(),
                    held.partition,
                )
            };
            by(a).cmp(&by(b))
        });
        held.truncate(MOST_TOLD);
        held
    }

    fn store_views(&self) -> Vec<StoreView> {
        let cells = self.requests.iter().zip(&self.seconds).zip(&self.failing);
        OPERATIONS
            .iter()
            .zip(cells)
            .filter_map(|(operation, ((outcomes, seconds), failing))| {
                let outcomes = used(&OUTCOMES, outcomes);
                let (snapshot, failing) = (seconds.snapshot(), *locked(failing));
                (!outcomes.is_empty()).then(|| StoreView {
                    operation,
                    outcomes,
                    mean_seconds: snapshot.sum / snapshot.count.max(1) as f64,
                    failing: failing.map(|failing| failing.class),
                    failing_seconds: failing.map(|failing| age(failing.since)),
                    failed_age_seconds: failing.map(|failing| age(failing.seen)),
                })
            })
            .collect()
    }
}

fn age(since: Instant) -> u64 {
    since.elapsed().as_secs()
}

/// The counts that are not zero, by word.
fn used<const N: usize>(
    words: &[&'static str; N],
    counters: &[Counter; N],
) -> BTreeMap<&'static str, u64> {
    let counts = words.iter().zip(counters);
    counts
        .map(|(word, counter)| (*word, counter.get()))
        .filter(|(_, count)| *count > 0)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_waits_and_what_the_store_does_not_do_is_told_until_it_is_over() {
        let metrics = ClaimMetrics::new(10);
        let asked = |outcome| metrics.store_request("get", outcome, Duration::from_millis(3));
        let at = ("loans".into(), 2, 7);
        assert!(metrics.hold(at.clone()) && !metrics.hold(at.clone()));
        asked("transient");
        metrics.topic("loans").fell_back("missing");
        let view = metrics.view(|_| None);
        assert_eq!((view.held[0].partition, view.held[0].offset), (2, 7));
        assert_eq!(view.store[0].failing, Some("transient"));
        assert_eq!(view.topics[0].fallback_records, [("missing", 1)].into());
        assert!(view.topics[0].fallback_age_seconds.is_some());
        assert!(metrics.let_go(&at));
        // The store has answered, and that nothing is there is an answer.
        asked("missing");
        let view = metrics.view(|_| None);
        assert!(view.held.is_empty() && view.store[0].failing.is_none());
        assert_eq!(
            view.store[0].outcomes,
            [("missing", 1), ("transient", 1)].into()
        );
    }
}
