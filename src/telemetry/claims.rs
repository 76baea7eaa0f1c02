//! Counts the claim check's work: its requests to the store, and by topic what was offloaded and redeemed.
//!
//! Kept apart from the topic's own cells: a process without a claim check has none of these.

mod view;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::counters::{Counter, TimeHistogram};
use super::text::{Family, Spec};
use super::topic::OTHER;
use crate::count::Count;

pub use view::{ClaimTopicView, ClaimsView, HeldView, StoreView};

const OFFLOADED_RECORDS: Spec = (
    "claim_offloaded_records_total",
    "Records whose value went to the object store and travels as a ticket.",
    &["topic"],
);
const OFFLOADED_BYTES: Spec = (
    "claim_offloaded_bytes_total",
    "Bytes of those values.",
    &["topic"],
);
const REDEEMED_RECORDS: Spec = (
    "claim_redeemed_records_total",
    "Records that a consumer got with their original value instead of the ticket.",
    &["topic"],
);
const REDEEMED_BYTES: Spec = (
    "claim_redeemed_bytes_total",
    "Bytes of those values.",
    &["topic"],
);
const FORGED: Spec = (
    "claim_forged_total",
    "Records that bear the header of a ticket and are none of ours: a wrong signature, another topic's, or no ticket at \
     all.",
    &["topic"],
);
const RETENTION_MARGIN: Spec = (
    "claim_retention_margin_seconds",
    "How much longer objects are kept (claim_check.retention) than tickets may lie in the topic (retention.ms, segment.ms \
     and a day). Negative: a ticket may outlive its object; -Inf: it may stay for ever.",
    &["topic"],
);
const ORPHANS: Spec = (
    "claim_orphans_total",
    "Objects that were written for a ticket that never arrived on the broker. They lie there until `claim gc` or the \
     store's own rule takes them.",
    &["topic"],
);
const FALLBACK_RECORDS: Spec = (
    "claim_fallback_records_total",
    "Records whose ticket could not be redeemed and that went to the fallback topic, by why.",
    &["topic", "class"],
);
const REDEEM_FAILURES: Spec = (
    "claim_redeem_failures_total",
    "Attempts to redeem a ticket that failed, by why: transient, missing, corrupt, config.",
    &["topic", "class"],
);
const HELD_PARTITIONS: Spec = (
    "claim_held_partitions",
    "Partitions whose consumers wait for a ticket that cannot be redeemed at the moment.",
    &["topic"],
);
const FALLBACK_FAILURES: Spec = (
    "claim_fallback_failures_total",
    "Attempts to write a record to the fallback topic that failed. Its partition waits meanwhile.",
    &["topic"],
);
const CACHE_BYTES: Spec = (
    "claim_cache_bytes",
    "Bytes of originals that are kept for whoever asks next.",
    &[],
);
const CACHE_HITS: Spec = (
    "claim_cache_hits_total",
    "Tickets whose original was here already.",
    &[],
);
const STORE_REQUESTS: Spec = (
    "claim_store_requests_total",
    "Operations on the object store, retries included in each, by what came of them: created, there (it was there \
     already), renewed, ok; or the class of the failure.",
    &["operation", "outcome"],
);
const STORE_SECONDS: Spec = (
    "claim_store_seconds",
    "Time of an operation on the object store, retries included.",
    &["operation"],
);

/// The classes of failures.
const CLASSES: [&str; 4] = ["transient", "missing", "corrupt", "config"];
const OPERATIONS: [&str; 5] = ["put", "get", "head", "list", "delete"];
const OUTCOMES: [&str; 8] = [
    "created",
    "there",
    "renewed",
    "ok",
    "transient",
    "missing",
    "corrupt",
    "config",
];

/// Counters of one topic, resolved once.
#[derive(Debug, Default)]
pub struct ClaimCounts {
    /// Records offloaded.
    pub offloaded_records: Counter,
    /// Bytes of their values.
    pub offloaded_bytes: Counter,
    /// Records redeemed.
    pub redeemed_records: Counter,
    /// Bytes of their values.
    pub redeemed_bytes: Counter,
    /// Records with a ticket that is not ours.
    pub forged: Counter,
    /// Objects whose ticket never arrived.
    pub orphans: Counter,
    fallback_records: [Counter; CLASSES.len()],
    redeem_failures: [Counter; CLASSES.len()],
    last_fell_back: Mutex<Option<Instant>>,
    /// Records that the fallback topic did not take.
    pub fallback_failures: Counter,
}

impl ClaimCounts {
    /// A record went to the fallback topic.
    pub fn fell_back(&self, class: &str) {
        *locked(&self.last_fell_back) = Some(Instant::now());
        count_at(&CLASSES, &self.fallback_records, class);
    }

    /// An attempt to redeem failed.
    pub fn redeem_failed(&self, class: &str) {
        count_at(&CLASSES, &self.redeem_failures, class);
    }
}

/// All of the claim check's counters.
#[derive(Debug)]
pub struct ClaimMetrics {
    most_topics: usize,
    topics: Mutex<HashMap<Arc<str>, Arc<ClaimCounts>>>,
    /// Seconds by topic.
    margins: Mutex<BTreeMap<String, f64>>,
    requests: [[Counter; OUTCOMES.len()]; OPERATIONS.len()],
    seconds: [TimeHistogram; OPERATIONS.len()],
    /// By operation; `None` while the store does as it is asked.
    failing: [Mutex<Option<Failing>>; OPERATIONS.len()],
    /// Tickets whose original was here already.
    pub cache_hits: Counter,
    /// Bytes of originals that are kept.
    pub cache_bytes: Level,
    /// Places where consumers wait.
    held: Mutex<HashMap<HeldAt, Held>>,
}

/// How long somebody has waited.
#[derive(Debug, Clone, Copy)]
struct Held {
    since: Instant,
    /// Asked for it the last time.
    seen: Instant,
}

impl Held {
    fn is_over(&self) -> bool {
        self.seen.elapsed() >= HELD
    }
}

/// A kind of request that the store does not do at the moment.
#[derive(Debug, Clone, Copy)]
struct Failing {
    since: Instant,
    /// The last failure.
    seen: Instant,
    class: &'static str,
}

/// A record that keeps consumers waiting: topic, partition, offset.
pub(super) type HeldAt = (Arc<str>, i32, i64);

/// Somebody who still waits has asked within this.
const HELD: Duration = Duration::from_secs(60);
/// Places that are remembered; of more, some are not counted.
const MOST_HELD: usize = 10_000;

/// A number that goes up and down.
#[derive(Debug, Default)]
pub struct Level(AtomicU64);

impl Level {
    /// It is this now.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl ClaimMetrics {
    /// At most so many topics get a label of their own (`telemetry.topics`).
    pub fn new(most_topics: usize) -> Self {
        Self {
            most_topics,
            topics: Mutex::default(),
            margins: Mutex::default(),
            requests: Default::default(),
            seconds: Default::default(),
            failing: Default::default(),
            cache_hits: Counter::default(),
            cache_bytes: Level::default(),
            held: Mutex::default(),
        }
    }

    /// A consumer waits for a record. `true`: nobody did before.
    pub fn hold(&self, at: HeldAt) -> bool {
        let mut held = locked(&self.held);
        if held.len() >= MOST_HELD {
            held.retain(|_, held| !held.is_over());
        }
        if held.len() >= MOST_HELD && !held.contains_key(&at) {
            return false;
        }
        let now = Instant::now();
        let before = held.get(&at).filter(|held| !held.is_over());
        let (since, is_new) = (before.map_or(now, |held| held.since), before.is_none());
        held.insert(at, Held { since, seen: now });
        is_new
    }

    /// Somebody held is there.
    pub fn is_any_held(&self) -> bool {
        !locked(&self.held).is_empty()
    }

    /// That record goes on. `true`: somebody waited for it.
    pub fn let_go(&self, at: &HeldAt) -> bool {
        locked(&self.held).remove(at).is_some()
    }

    fn held_partitions(&self) -> Family {
        let mut places: Vec<(Arc<str>, i32)> = {
            let mut held = locked(&self.held);
            held.retain(|_, held| !held.is_over());
            let places = held.keys();
            places
                .map(|(topic, partition, _)| (Arc::clone(topic), *partition))
                .collect()
        };
        places.sort_unstable();
        places.dedup();
        let mut by_topic: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for (topic, _) in places {
            by_topic.entry(topic).or_default().increment();
        }
        let mut family = Family::gauges(HELD_PARTITIONS);
        for (topic, partitions) in by_topic {
            family.gauge(&[&topic], partitions as f64);
        }
        family
    }

    /// A topic's counters; beyond the bound, those that all others share.
    pub fn topic(&self, name: &str) -> Arc<ClaimCounts> {
        let mut topics = locked(&self.topics);
        if let Some(counts) = topics.get(name) {
            return Arc::clone(counts);
        }
        let label = if topics.len() < self.most_topics {
            name
        } else {
            OTHER
        };
        Arc::clone(topics.entry(label.into()).or_default())
    }

    /// An operation on the store is over.
    pub fn store_request(&self, operation: &str, outcome: &str, took: Duration) {
        let cells = self.requests.iter().zip(&self.seconds).zip(&self.failing);
        if let Some((_, ((outcomes, seconds), failing))) = OPERATIONS
            .iter()
            .zip(cells)
            .find(|(word, _)| **word == operation)
        {
            count_at(&OUTCOMES, outcomes, outcome);
            seconds.observe(took);
            let mut failing = locked(failing);
            // That an object is missing, or another, is the store's word, and no failure of the store's.
            let class = ["transient", "config"]
                .into_iter()
                .find(|class| *class == outcome);
            let now = Instant::now();
            *failing = class.map(|class| Failing {
                since: failing.map_or(now, |failing| failing.since),
                seen: now,
                class,
            });
        }
    }

    /// By topic, how many seconds longer objects are kept than its tickets may lie there.
    pub fn set_margins(&self, seconds: BTreeMap<String, f64>) {
        *locked(&self.margins) = seconds;
    }

    /// Every family that has a sample, in Prometheus' text format.
    pub fn write(&self, text: &mut String) {
        let topics: Vec<_> = {
            let topics = locked(&self.topics);
            let mut topics: Vec<_> = topics
                .iter()
                .map(|(name, counts)| (Arc::clone(name), Arc::clone(counts)))
                .collect();
            topics.sort_by(|(a, _), (b, _)| a.cmp(b));
            topics
        };
        let plain = |spec, of: fn(&ClaimCounts) -> &Counter| {
            let mut family = Family::counters(spec);
            for (topic, counts) in &topics {
                family.counter_if_used(&[topic], of(counts).get());
            }
            family
        };
        let by_class = |spec, of: fn(&ClaimCounts) -> &[Counter; CLASSES.len()]| {
            let mut family = Family::counters(spec);
            for (topic, counts) in &topics {
                for (class, counter) in CLASSES.iter().zip(of(counts)) {
                    family.counter_if_used(&[topic, class], counter.get());
                }
            }
            family
        };
        let mut margins = Family::gauges(RETENTION_MARGIN);
        for (topic, seconds) in &*locked(&self.margins) {
            margins.gauge(&[topic], *seconds);
        }
        let families = [
            margins,
            plain(OFFLOADED_RECORDS, |counts| &counts.offloaded_records),
            plain(OFFLOADED_BYTES, |counts| &counts.offloaded_bytes),
            plain(REDEEMED_RECORDS, |counts| &counts.redeemed_records),
            plain(REDEEMED_BYTES, |counts| &counts.redeemed_bytes),
            plain(FORGED, |counts| &counts.forged),
            plain(ORPHANS, |counts| &counts.orphans),
            by_class(FALLBACK_RECORDS, |counts| &counts.fallback_records),
            by_class(REDEEM_FAILURES, |counts| &counts.redeem_failures),
            plain(FALLBACK_FAILURES, |counts| &counts.fallback_failures),
            self.held_partitions(),
            self.cache_hits(),
            self.cache_bytes(),
            self.store_requests(),
            self.store_seconds(),
        ];
        for family in families {
            family.write(text);
        }
    }

    fn cache_hits(&self) -> Family {
        let mut family = Family::counters(CACHE_HITS);
        family.counter_if_used(&[], self.cache_hits.get());
        family
    }

    fn cache_bytes(&self) -> Family {
        let mut family = Family::gauges(CACHE_BYTES);
        let bytes = self.cache_bytes.get();
        if bytes > 0 || self.cache_hits.get() > 0 {
            family.gauge(&[], bytes as f64);
        }
        family
    }

    fn store_requests(&self) -> Family {
        let mut family = Family::counters(STORE_REQUESTS);
        for (operation, outcomes) in OPERATIONS.iter().zip(&self.requests) {
            for (outcome, counter) in OUTCOMES.iter().zip(outcomes) {
                family.counter_if_used(&[operation, outcome], counter.get());
            }
        }
        family
    }

    fn store_seconds(&self) -> Family {
        let mut family = Family::histograms(STORE_SECONDS);
        for (operation, seconds) in OPERATIONS.iter().zip(&self.seconds) {
            family.histogram(&[operation], &seconds.snapshot());
        }
        family
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count_at<const N: usize>(words: &[&str; N], counters: &[Counter; N], word: &str) {
    if let Some((_, counter)) = words
        .iter()
        .zip(counters)
        .find(|(known, _)| **known == word)
    {
        counter.inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_is_shown_and_nothing_else() {
        let metrics = ClaimMetrics::new(1);
        let mut text = String::new();
        metrics.write(&mut text);
        assert_eq!(text, "");
        metrics.topic("a").offloaded_bytes.inc_by(307_206);
        metrics.topic("b").fell_back("missing");
        metrics.topic("c").fell_back("missing");
        metrics.store_request("put", "created", Duration::from_millis(3));
        metrics.write(&mut text);
        for line in [
            "sizegate_claim_offloaded_bytes_total{topic=\"a\"} 307206",
            "sizegate_claim_fallback_records_total{topic=\"_other\",class=\"missing\"} 2",
            "sizegate_claim_store_requests_total{operation=\"put\",outcome=\"created\"} 1",
            "sizegate_claim_store_seconds_count{operation=\"put\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
