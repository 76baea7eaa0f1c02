//! What counting costs: one batch (alone, and with a second thread on the same topic), beside the float histogram of
//! the `prometheus` crate; the API histogram; and a scrape of a thousand topics.
//!
//!     cargo bench --bench telemetry
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::string_slice,
    clippy::unreachable,
    clippy::todo,
    unreachable_pub,
    reason = "a bench"
)]
#![allow(missing_docs)] // criterion_group! makes a public function

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use prometheus::{Histogram, HistogramOpts};
use sizegate::policy::Limit;
use sizegate::telemetry::{Known, Metrics, RefusalRecord, Refusals, SizeHistogram, TopicMetrics};
use sizegate::vocabulary::{Codec, Gate, Source};

/// The same number of buckets as ours, so that only the kind differs.
fn float_histogram() -> Histogram {
    let mut bounds: Vec<f64> = (8..=30).map(|power| f64::from(1u32 << power)).collect();
    bounds.insert(13, 1_048_588.0);
    Histogram::with_opts(HistogramOpts::new("size", "help").buckets(bounds)).unwrap()
}

fn one_batch(topic: &TopicMetrics, wire_bytes: u64) {
    topic.batch(Codec::Lz4, wire_bytes, 12);
    topic.forwarded.inc();
}

/// Runs `act` on a second thread while `measure` runs on this one.
fn contended(act: impl Fn() + Sync, measure: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                act();
            }
        });
        measure();
        stop.store(true, Relaxed);
    });
}

fn batches(c: &mut Criterion) {
    let metrics = Metrics::new(10);
    let topic = metrics.topic("orders");
    let (ours, theirs) = (SizeHistogram::default(), float_histogram());
    let mut group = c.benchmark_group("count");
    group.bench_function("one batch", |b| {
        b.iter(|| one_batch(&topic, black_box(16_000)))
    });
    group.bench_function("one size, ours", |b| {
        b.iter(|| ours.observe(black_box(16_000)))
    });
    group.bench_function("one size, prometheus crate", |b| {
        b.iter(|| theirs.observe(black_box(16_000.0)))
    });
    group.bench_function("one request", |b| {
        let seconds = metrics.request_seconds(0);
        b.iter(|| seconds.observe(black_box(Duration::from_micros(900))));
    });
    contended(
        || one_batch(&topic, 16_000),
        || {
            group.bench_function("one batch, contended", |b| {
                b.iter(|| one_batch(&topic, black_box(16_000)))
            });
        },
    );
    contended(
        || ours.observe(16_000),
        || {
            group.bench_function("one size, ours, contended", |b| {
                b.iter(|| ours.observe(black_box(16_000)))
            });
        },
    );
    contended(
        || theirs.observe(16_000.0),
        || {
            group.bench_function("one size, prometheus crate, contended", |b| {
                b.iter(|| theirs.observe(black_box(16_000.0)));
            });
        },
    );
    group.finish();
}

struct Limits;

impl Known for Limits {
    fn has_topic(&self, _: &str) -> bool {
        true
    }

    fn limits(&self, _: &str) -> Vec<Limit> {
        vec![Limit {
            gate: Gate::Batch,
            value: 1_048_588,
            source: Source::Broker,
            name: None,
            headroom_bytes: 0,
            member_limit: None,
        }]
    }

    fn families(&self, _: usize) -> Vec<sizegate::telemetry::FamilyFit> {
        Vec::new()
    }

    fn is_control_plane_up(&self) -> bool {
        true
    }

    fn limits_age(&self) -> Option<Duration> {
        Some(Duration::from_secs(5))
    }
}

/// A thousand topics, each with its wire bytes or with every histogram and two codecs.
fn scraped(full: bool) -> (Arc<Metrics>, Arc<dyn Known>) {
    let metrics = Metrics::new(1_000);
    let known: Arc<dyn Known> = Arc::new(Limits);
    metrics.ask(Arc::downgrade(&known));
    for n in 0..1_000 {
        let topic = metrics.topic(&format!("team-{}.service.events-{n}", n % 40));
        one_batch(&topic, 16_000);
        if full {
            topic.uncompressed(Codec::Lz4, 64_000);
            topic.record_bytes.observe(2_000);
            topic.estimate_bytes.observe(2_100);
            topic.fetch_batch_bytes.observe(16_000);
            topic.linger_seconds.observe(Duration::from_secs(1));
            topic.batch(Codec::Zstd, 9_000, 10);
        }
    }
    (metrics, known)
}

fn scrapes(c: &mut Criterion) {
    let mut group = c.benchmark_group("scrape");
    group.sample_size(30);
    for (name, full) in [
        ("1,000 topics, wire bytes only", false),
        ("1,000 topics, all histograms", true),
    ] {
        let (metrics, _known) = scraped(full);
        let bytes = metrics.render().unwrap().len();
        group.bench_function(format!("{name} ({} KiB)", bytes / 1024), |b| {
            b.iter(|| metrics.render().unwrap())
        });
    }
    group.finish();
}

fn refusals(c: &mut Criterion) {
    let refusals = Refusals::default();
    let record = Arc::new(RefusalRecord {
        id: "7f3a9c".into(),
        at: std::time::SystemTime::UNIX_EPOCH,
        text: "sizegate refused orders-0: too large ".repeat(8),
        topic: "orders".into(),
        partition: 0,
        gate: Gate::Batch,
        size_bytes: 2_000_000,
        at_least: false,
        limit_bytes: 1_048_588,
        source: Source::Broker,
        rule: None,
        member: None,
        action: sizegate::vocabulary::Action::Reject,
        error_code: 10,
        is_loop: false,
        client_id: "checkout".into(),
        software: "apache-kafka-java/4.3.0".into(),
        address: "10.0.0.7:51234".into(),
        principal: None,
        batch_bytes: Some(2_000_000),
        uncompressed_bytes: None,
        codec: Some(Codec::None),
        records: Some(1),
        record: None,
        record_key: None,
    });
    c.bench_function("keep one refusal", |b| {
        b.iter(|| refusals.record(Arc::clone(&record)))
    });
}

criterion_group!(all, batches, scrapes, refusals);
criterion_main!(all);
