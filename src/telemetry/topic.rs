//! Counts by topic, for a bounded set of topics.
//!
//! Invariant: at most `telemetry.topics` topics have a label of their own, and a forgotten topic is never exported
//! again, whoever still holds its handle.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use serde::Serialize;

use super::counters::{Counter, SizeHistogram, TimeHistogram};
use crate::count::Count as _;
use crate::error_code::error_name;
use crate::inspect::{LargestParts, SizesTally};
use crate::vocabulary::{Action, Codec, Gate, Source};

/// The label of every topic (or software) beyond the bound.
pub const OTHER: &str = "_other";

/// What is counted for one topic. Resolved once per session and topic; the fields are counted in without a lock.
///
/// A series appears in `/metrics` once it is above zero (`forwarded` and `refused` from the start, so that the first
/// refusal is an increase), and vanishes with the topic.
#[derive(Debug, Default)]
pub struct TopicMetrics {
    name: Box<str>,
    forgotten: AtomicBool,
    /// Batches forwarded within every limit.
    pub forwarded: Counter,
    /// Batches refused.
    pub refused: Counter,
    /// Batches forwarded that enforcing would have refused.
    pub observed: Counter,
    /// Batches of which at least one value went to the object store.
    pub offloaded: Counter,
    /// Refusals sent again and again unchanged, ended with `INVALID_RECORD`.
    pub loops: Counter,
    /// Wire bytes of each batch.
    pub wire_bytes: SizeHistogram,
    /// 61 + records after decompression, of the batches where that is known exactly.
    pub uncompressed_bytes: SizeHistogram,
    /// Each record of the batches whose records were walked.
    pub record_bytes: SizeHistogram,
    /// Each record's estimate, of the batches whose records were walked.
    pub estimate_bytes: SizeHistogram,
    /// Records that lingered in their producer.
    pub linger_suspects: Counter,
    /// For how long.
    pub linger_seconds: TimeHistogram,
    /// Wire bytes of each batch served to consumers.
    pub fetch_batch_bytes: SizeHistogram,
    /// Batches larger than their consumer asked for.
    pub fetch_oversized: Counter,
    /// Times a consumer did not get past a large batch.
    pub fetch_stuck: Counter,
    codecs: [CodecMetrics; Codec::ALL.len()],
    near_limit: [Counter; Gate::ALL.len()],
    /// By gate; only of key, value and headers, the other sizes have histograms.
    largest_parts: [AtomicU64; Gate::ALL.len()],
    rare: Mutex<Rare>,
}

/// What is counted for one topic and codec.
#[derive(Debug, Default)]
pub struct CodecMetrics {
    /// Batches.
    pub batches: Counter,
    /// Records, as the batches' headers declare them.
    pub records: Counter,
    /// Wire bytes.
    pub wire_bytes: Counter,
    /// Uncompressed bytes, of the batches where they are known exactly.
    pub uncompressed_bytes: Counter,
}

/// What moves only when something is wrong.
#[derive(Debug, Default, Clone)]
pub(super) struct Rare {
    pub violations: BTreeMap<(Gate, Source, Action), u64>,
    pub broker_refusals: BTreeMap<&'static str, u64>,
}

/// What became of a topic's batches since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BatchCounts {
    /// Forwarded within every limit.
    pub forwarded: u64,
    /// Refused.
    pub refused: u64,
    /// Forwarded although enforcing would have refused them.
    pub observed: u64,
    /// Offloaded.
    pub offloaded: u64,
}

/// The sizes measured last on one topic; `None`: not measured yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LastSizes {
    /// Wire bytes of a batch.
    pub batch_bytes: Option<u64>,
    /// 61 + records after decompression.
    pub uncompressed_bytes: Option<u64>,
    /// A record.
    pub record_bytes: Option<u64>,
    /// A record's estimate.
    pub estimate_bytes: Option<u64>,
}

/// The largest sizes of one topic since the start, refused ones left out; `None`: not measured yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LargestSizes {
    /// Wire bytes of a batch.
    pub batch_bytes: Option<u64>,
    /// 61 + records after decompression.
    pub uncompressed_bytes: Option<u64>,
    /// A record.
    pub record_bytes: Option<u64>,
    /// A record's estimate.
    pub estimate_bytes: Option<u64>,
    /// A key.
    pub key_bytes: Option<u64>,
    /// A value.
    pub value_bytes: Option<u64>,
    /// All header names and values of a record.
    pub headers_bytes: Option<u64>,
}

/// What was counted at one gate of one topic since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct GateCounts {
    /// The gate.
    pub gate: Gate,
    /// Sizes within the limit, but near it.
    pub near_limit: u64,
    /// Sizes above the limit, refused or not.
    pub violations: u64,
}

impl TopicMetrics {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// The label: the topic's name, or [`OTHER`].
    pub fn label(&self) -> &str {
        &self.name
    }

    /// The topic was deleted; what is counted here is no longer exported. Whoever holds this handle resolves the
    /// topic again when it is written to again.
    pub fn is_forgotten(&self) -> bool {
        self.forgotten.load(Relaxed)
    }

    /// What is counted by codec.
    pub fn codec(&self, codec: Codec) -> &CodecMetrics {
        codec.cell(&self.codecs)
    }

    /// Wire bytes of all batches that went on to the broker.
    pub fn log_bytes(&self) -> u64 {
        let bytes = Codec::ALL
            .iter()
            .map(|codec| self.codec(*codec).wire_bytes.get());
        bytes.fold(0, u64::saturating_add)
    }

    /// The codec that most of the topic's batches come with; `None` where most come uncompressed, or none came.
    pub fn usual_compression(&self) -> Option<Codec> {
        let count = |codec: Codec| self.codec(codec).batches.get();
        let usual = Codec::ALL
            .iter()
            .copied()
            .max_by_key(|codec| count(*codec))?;
        (usual != Codec::None && count(usual) > 0).then_some(usual)
    }

    /// One batch, counted where every batch is: wire bytes, codec and declared records.
    pub fn batch(&self, codec: Codec, wire_bytes: u64, records: u64) {
        self.wire_bytes.observe(wire_bytes);
        let codec = self.codec(codec);
        codec.batches.inc();
        codec.records.inc_by(records);
        codec.wire_bytes.inc_by(wire_bytes);
    }

    /// The same for several batches of one codec at once.
    pub fn batches(&self, codec: Codec, wire_bytes: &SizesTally, records: u64) {
        self.wire_bytes.observe_tally(wire_bytes);
        let codec = self.codec(codec);
        codec.batches.inc_by(wire_bytes.count().into());
        codec.records.inc_by(records);
        codec.wire_bytes.inc_by(wire_bytes.sum_bytes());
    }

    /// The exact uncompressed size of one batch.
    pub fn uncompressed(&self, codec: Codec, uncompressed_bytes: u64) {
        self.uncompressed_bytes.observe(uncompressed_bytes);
        self.codec(codec)
            .uncompressed_bytes
            .inc_by(uncompressed_bytes);
    }

    /// The largest parts of the records of one batch.
    pub fn largest_parts(&self, largest: &LargestParts) {
        for (gate, bytes) in [
            (Gate::Key, largest.key_bytes),
            (Gate::Value, largest.value_bytes),
            (Gate::Headers, largest.headers_bytes),
        ] {
            if let Some(part) = self.largest_parts.get(gate as usize) {
                part.fetch_max(bytes, Relaxed);
            }
        }
    }

    /// A size above `near_limit` of a limit, but within it. Of the gates inside a batch: at most once a batch, of the
    /// batches whose records were measured.
    pub fn near_limit(&self, gate: Gate) {
        if let Some(near) = self.near_limit.get(gate as usize) {
            near.inc();
        }
    }

    /// A size above a limit. Takes a lock.
    pub fn violation(&self, gate: Gate, source: Source, action: Action) {
        self.rare(|rare| {
            let violations = rare.violations.entry((gate, source, action));
            violations.or_default().increment();
        });
    }

    /// The broker refused a batch that we let through. Takes a lock.
    pub fn broker_refusal(&self, code: i16) {
        self.rare(|rare| {
            let refusals = rare.broker_refusals.entry(error_name(code));
            refusals.or_default().increment();
        });
    }

    /// What became of the batches.
    pub fn batch_counts(&self) -> BatchCounts {
        BatchCounts {
            forwarded: self.forwarded.get(),
            refused: self.refused.get(),
            observed: self.observed.get(),
            offloaded: self.offloaded.get(),
        }
    }

    /// The sizes measured last.
    pub fn last_sizes(&self) -> LastSizes {
        LastSizes {
            batch_bytes: self.wire_bytes.last(),
            uncompressed_bytes: self.uncompressed_bytes.last(),
            record_bytes: self.record_bytes.last(),
            estimate_bytes: self.estimate_bytes.last(),
        }
    }

    /// The largest sizes since the start.
    pub fn largest_sizes(&self) -> LargestSizes {
        let part = |gate: Gate| {
            let part = self.largest_parts.get(gate as usize);
            let bytes = part.map_or(0, |part| part.load(Relaxed));
            // Parts are known where records are, and a key may well be empty.
            self.record_bytes.largest().map(|_| bytes)
        };
        LargestSizes {
            batch_bytes: self.wire_bytes.largest(),
            uncompressed_bytes: self.uncompressed_bytes.largest(),
            record_bytes: self.record_bytes.largest(),
            estimate_bytes: self.estimate_bytes.largest(),
            key_bytes: part(Gate::Key),
            value_bytes: part(Gate::Value),
            headers_bytes: part(Gate::Headers),
        }
    }

    /// The gates at which anything was near or above the limit.
    pub fn gate_counts(&self) -> Vec<GateCounts> {
        let violations = self.rare_now().violations;
        let counts = |&gate: &Gate| GateCounts {
            gate,
            near_limit: self.near_limit_count(gate),
            violations: violations
                .iter()
                .filter(|((of, ..), _)| *of == gate)
                .map(|(_, count)| count)
                .sum(),
        };
        Gate::ALL
            .iter()
            .map(counts)
            .filter(|counts| counts.near_limit > 0 || counts.violations > 0)
            .collect()
    }

    pub(super) fn near_limit_count(&self, gate: Gate) -> u64 {
        self.near_limit.get(gate as usize).map_or(0, Counter::get)
    }

    pub(super) fn rare_now(&self) -> Rare {
        self.rare(|rare| rare.clone())
    }

    fn rare<T>(&self, act: impl FnOnce(&mut Rare) -> T) -> T {
        act(&mut self.rare.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The topics that have a label of their own, and the one that stands for the rest.
#[derive(Debug)]
pub(super) struct Topics {
    bound: usize,
    named: RwLock<HashMap<Box<str>, Arc<TopicMetrics>>>,
    other: Arc<TopicMetrics>,
}

impl Topics {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            bound,
            named: RwLock::default(),
            other: Arc::new(TopicMetrics::new(OTHER)),
        }
    }

    pub(super) fn resolve(&self, name: &str) -> Arc<TopicMetrics> {
        if name == OTHER {
            return Arc::clone(&self.other);
        }
        if let Some(known) = self.read().get(name) {
            return Arc::clone(known);
        }
        let mut named = self.named.write().unwrap_or_else(PoisonError::into_inner);
        // Someone else may have been first between the two locks.
        if let Some(known) = named.get(name) {
            return Arc::clone(known);
        }
        if named.len() >= self.bound {
            return Arc::clone(&self.other);
        }
        let topic = Arc::new(TopicMetrics::new(name));
        named.insert(name.into(), Arc::clone(&topic));
        topic
    }

    /// The topic's handle if it was ever resolved and has a label of its own.
    pub(super) fn find(&self, name: &str) -> Option<Arc<TopicMetrics>> {
        self.read().get(name).cloned()
    }

    pub(super) fn forget(&self, name: &str) {
        let removed = self
            .named
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
        if let Some(topic) = removed {
            topic.forgotten.store(true, Relaxed);
        }
    }

    /// All that are exported: the named ones, and `_other` once something was counted there.
    pub(super) fn exported(&self) -> Vec<Arc<TopicMetrics>> {
        let mut topics: Vec<_> = self.read().values().cloned().collect();
        if self.other_is_used() {
            topics.push(Arc::clone(&self.other));
        }
        topics
    }

    /// So many topics have a label of their own at most.
    pub(super) const fn bound(&self) -> usize {
        self.bound
    }

    fn other_is_used(&self) -> bool {
        let other = &self.other;
        let verdicts = [
            &other.forwarded,
            &other.refused,
            &other.observed,
            &other.offloaded,
        ];
        verdicts.iter().any(|counter| counter.get() > 0)
            || other.wire_bytes.last().is_some()
            || other.fetch_batch_bytes.last().is_some()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, HashMap<Box<str>, Arc<TopicMetrics>>> {
        self.named.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_is_resolved_to_the_same_handle_until_it_is_forgotten() {
        let topics = Topics::new(10);
        let first = topics.resolve("orders");
        assert!(Arc::ptr_eq(&first, &topics.resolve("orders")));
        topics.forget("orders");
        assert!(first.is_forgotten());
        assert!(topics.exported().is_empty());
        let again = topics.resolve("orders");
        assert!(!Arc::ptr_eq(&first, &again) && !again.is_forgotten());
    }

    #[test]
    fn topics_beyond_the_bound_share_one_label_and_forgetting_makes_room() {
        let topics = Topics::new(2);
        assert_eq!(topics.resolve("a").label(), "a");
        assert_eq!(topics.resolve("b").label(), "b");
        assert_eq!(topics.resolve("c").label(), OTHER);
        assert_eq!(topics.resolve("b").label(), "b");
        topics.forget("a");
        assert_eq!(topics.resolve("c").label(), "c");
    }

    #[test]
    fn a_topic_called_like_the_rest_is_counted_with_the_rest() {
        let topics = Topics::new(2);
        assert!(Arc::ptr_eq(&topics.resolve(OTHER), &topics.other));
        topics.forget(OTHER);
        assert!(!topics.other.is_forgotten());
    }

    #[test]
    fn a_broker_cannot_make_labels_with_invented_codes() {
        let topic = TopicMetrics::new("orders");
        for code in i16::MIN..=i16::MAX {
            topic.broker_refusal(code);
        }
        assert_eq!(topic.rare_now().broker_refusals.len(), 139);
    }
}
