//! The atomics that the data path counts in: plain integers, no floats, no compare-and-swap loop.
//!
//! Why not the `prometheus` crate's types here: a topic's series must appear only once used and vanish with the
//! topic, and a histogram of integers costs about half of its float histogram (`benches/telemetry.rs`: 15 against
//! 28 ns of CPU time; with two threads on one histogram the difference is lost in the spread).

use crate::count::Count as _;
use crate::inspect::{SIZE_BOUNDS_BYTES, SizesTally};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde::Serialize;

/// Nanoseconds: 10 µs (a hop's own share) to 30 s (a broker that is stuck).
const TIME_BOUNDS_NANOS: &[u64] = &[
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

/// The bounds as `le` labels, in base units.
static SIZE_LABELS: LazyLock<Vec<Box<str>>> = LazyLock::new(|| labels(&SIZE_BOUNDS_BYTES, 1.0));
static TIME_LABELS: LazyLock<Vec<Box<str>>> =
    LazyLock::new(|| labels(TIME_BOUNDS_NANOS, NANOS_PER_SECOND));

const NANOS_PER_SECOND: f64 = 1e9;

fn labels(bounds: &[u64], units_per_base: f64) -> Vec<Box<str>> {
    let label = |&bound: &u64| (bound as f64 / units_per_base).to_string().into();
    bounds.iter().map(label).collect()
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.inc_by(1);
    }

    /// Adds `n`.
    pub fn inc_by(&self, n: u64) {
        self.0.fetch_add(n, Relaxed);
    }

    /// The value now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How many sizes fell below each bound. Shapes: bounds in bytes, inclusive above.
#[derive(Debug)]
pub struct SizeHistogram {
    buckets: Buckets,
    last: AtomicU64,
    largest: AtomicU64,
}

impl Default for SizeHistogram {
    fn default() -> Self {
        Self {
            buckets: Buckets::new(&SIZE_BOUNDS_BYTES),
            last: AtomicU64::new(0),
            largest: AtomicU64::new(0),
        }
    }
}

impl SizeHistogram {
    /// Counts one size.
    pub fn observe(&self, bytes: u64) {
        self.buckets.add(bytes);
        self.last.store(bytes, Relaxed);
        self.saw(bytes);
    }

    /// Counts the sizes of one batch's records at once.
    pub fn observe_tally(&self, tally: &SizesTally) {
        if tally.count() > 0 {
            for (bound, count) in tally.by_bound().filter(|(_, count)| *count > 0) {
                self.buckets.count_at(bound.unwrap_or(u64::MAX), count);
            }
            self.buckets.sum.fetch_add(tally.sum_bytes(), Relaxed);
            self.last.store(tally.last_bytes(), Relaxed);
            self.saw(tally.largest_bytes());
        }
    }

    /// A new largest size is rare: most calls only read.
    fn saw(&self, bytes: u64) {
        if bytes > self.largest.load(Relaxed) {
            self.largest.fetch_max(bytes, Relaxed);
        }
    }

    /// The size counted last; `None` before the first.
    pub fn last(&self) -> Option<u64> {
        above_zero(&self.last)
    }

    /// The largest size counted since the start; `None` before the first.
    pub fn largest(&self) -> Option<u64> {
        above_zero(&self.largest)
    }

    /// How many sizes fell between each bound and the one before.
    pub fn distribution(&self) -> SizeDistribution {
        let snapshot = self.snapshot();
        let mut below = 0;
        let buckets = SIZE_BOUNDS_BYTES
            .iter()
            .map(|&bound| Some(bound))
            .chain([None])
            .zip(
                snapshot
                    .cumulative
                    .iter()
                    .map(|(_, count)| *count)
                    .chain([snapshot.count]),
            )
            .map(|(le_bytes, cumulative)| {
                let count = cumulative.saturating_sub(below);
                below = cumulative;
                SizeBucket { le_bytes, count }
            })
            .collect();
        SizeDistribution {
            count: snapshot.count,
            sum_bytes: self.buckets.sum.load(Relaxed),
            last_bytes: self.last(),
            largest_bytes: self.largest(),
            buckets,
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.buckets.snapshot(1.0, &SIZE_LABELS)
    }
}

fn above_zero(bytes: &AtomicU64) -> Option<u64> {
    Some(bytes.load(Relaxed)).filter(|&bytes| bytes > 0)
}

/// What was counted of one kind of size since the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SizeDistribution {
    /// All that were counted.
    pub count: u64,
    /// Their sum.
    pub sum_bytes: u64,
    /// The one counted last.
    pub last_bytes: Option<u64>,
    /// The largest.
    pub largest_bytes: Option<u64>,
    /// In ascending order; each size is in one of them.
    pub buckets: Vec<SizeBucket>,
}

/// Sizes above the bound before and at most this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SizeBucket {
    /// The bound; `None`: no bound.
    pub le_bytes: Option<u64>,
    /// How many.
    pub count: u64,
}

/// How many durations fell below each bound.
#[derive(Debug)]
pub struct TimeHistogram(Buckets);

impl Default for TimeHistogram {
    fn default() -> Self {
        Self(Buckets::new(TIME_BOUNDS_NANOS))
    }
}

impl TimeHistogram {
    /// Counts one duration.
    pub fn observe(&self, took: Duration) {
        self.observe_times(took, 1);
    }

    /// Counts the same duration several times.
    pub fn observe_times(&self, took: Duration, times: u32) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0.count_at(nanos, times);
        self.0
            .sum
            .fetch_add(nanos.saturating_mul(times.into()), Relaxed);
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        self.0.snapshot(NANOS_PER_SECOND, &TIME_LABELS)
    }
}

/// A histogram at one moment, in base units (bytes or seconds).
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Snapshot {
    /// Upper bound and how many were at most that, without `+Inf`.
    pub cumulative: Vec<(f64, u64)>,
    /// The same bounds as text.
    pub labels: &'static [Box<str>],
    /// All that were counted.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

#[derive(Debug)]
struct Buckets {
    bounds: &'static [u64],
    /// One for each bound, and one for what is above the last.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Buckets {
    fn new(bounds: &'static [u64]) -> Self {
        Self {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    fn count_at(&self, value: u64, count: u32) {
        let bucket = self.bounds.partition_point(|&bound| bound < value);
        if let Some(counted) = self.counts.get(bucket) {
            counted.fetch_add(count.into(), Relaxed);
        }
    }

    fn add(&self, value: u64) {
        self.count_at(value, 1);
        self.sum.fetch_add(value, Relaxed);
    }

    /// The count is taken from the buckets, so that `_count` and `le="+Inf"` agree whatever is counted meanwhile.
    fn snapshot(&self, units_per_base: f64, labels: &'static [Box<str>]) -> Snapshot {
        let mut count = 0u64;
        let cumulative = self
            .bounds
            .iter()
            .zip(&self.counts)
            .map(|(&bound, bucket)| {
                count.increase_by(bucket.load(Relaxed));
                (bound as f64 / units_per_base, count)
            })
            .collect();
        let above = self.counts.last();
        count.increase_by(above.map_or(0, |above| above.load(Relaxed)));
        Snapshot {
            cumulative,
            labels,
            count,
            sum: self.sum.load(Relaxed) as f64 / units_per_base,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket_of(bytes: u64) -> f64 {
        let histogram = SizeHistogram::default();
        histogram.observe(bytes);
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.count, 1);
        snapshot
            .cumulative
            .iter()
            .find(|(_, count)| *count == 1)
            .map_or(f64::INFINITY, |(bound, _)| *bound)
    }

    #[test]
    fn one_mebibyte_and_the_brokers_default_limit_are_told_apart() {
        assert_eq!(bucket_of(1_048_575), 1_048_576.0);
        assert_eq!(bucket_of(1_048_576), 1_048_576.0);
        assert_eq!(bucket_of(1_048_577), 1_048_588.0);
        assert_eq!(bucket_of(1_048_588), 1_048_588.0);
        assert_eq!(bucket_of(1_048_589), 2_097_152.0);
    }

    #[test]
    fn sizes_beyond_every_bound_are_counted() {
        assert_eq!(bucket_of(0), 256.0);
        assert_eq!(bucket_of(256), 256.0);
        assert_eq!(bucket_of(257), 512.0);
        assert_eq!(bucket_of(1 << 30), 1_073_741_824.0);
        assert_eq!(bucket_of((1 << 30) + 1), f64::INFINITY);
        assert_eq!(bucket_of(u64::MAX), f64::INFINITY);
    }

    #[test]
    fn every_bound_is_above_the_one_before() {
        for bounds in [SIZE_BOUNDS_BYTES.as_slice(), TIME_BOUNDS_NANOS] {
            assert!(bounds.is_sorted_by(|a, b| a < b));
        }
    }

    #[test]
    fn durations_come_out_in_seconds() {
        let histogram = TimeHistogram::default();
        histogram.observe(Duration::from_micros(10));
        histogram.observe(Duration::from_millis(1500));
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.cumulative[0], (0.00001, 1));
        assert_eq!(snapshot.cumulative[16], (2.5, 2));
        assert_eq!((snapshot.count, snapshot.sum), (2, 1.50001));
    }

    #[test]
    fn the_last_size_is_known_only_after_the_first() {
        let histogram = SizeHistogram::default();
        assert_eq!(histogram.last(), None);
        assert_eq!(histogram.largest(), None);
        histogram.observe(7);
        histogram.observe(5);
        assert_eq!((histogram.last(), histogram.largest()), (Some(5), Some(7)));
    }

    #[test]
    fn a_distribution_has_every_size_in_one_bucket() {
        let histogram = SizeHistogram::default();
        for bytes in [1, 256, 257, 1_048_577, u64::MAX >> 1] {
            histogram.observe(bytes);
        }
        let distribution = histogram.distribution();
        let used: Vec<_> = distribution
            .buckets
            .iter()
            .filter(|bucket| bucket.count > 0)
            .map(|bucket| (bucket.le_bytes, bucket.count))
            .collect();
        assert_eq!(
            used,
            [
                (Some(256), 2),
                (Some(512), 1),
                (Some(1_048_588), 1),
                (None, 1)
            ]
        );
        assert_eq!(distribution.count, 5);
    }
}
