//! What ten thousand rules and a hundred thousand topics cost: a verdict (nothing more than with ten rules), resolving
//! a topic (once per session and topic), and reloading a changed configuration, which must be done within a second.
//!
//!     cargo bench --bench rules
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

use std::fmt::Write;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use sizegate::config::{self, Config, Overrides};
use sizegate::policy::{BatchFacts, Learned, Policy, Size};
use sizegate::vocabulary::{Codec, Source};

const RULES: usize = 10_000;
const TOPICS: usize = 100_000;

/// Seven of ten rules name topics, two have a glob, one a regular expression.
fn text(rules: usize, record_bytes: usize) -> String {
    let mut text = String::from("cluster: {bootstrap_servers: [kafka:9092]}\nrules:\n");
    for n in 0..rules {
        let topics = match n % 10 {
            0..=6 => format!("[team-{n}.orders, team-{n}.payments]"),
            7 | 8 => format!("['team-{n}.*']"),
            _ => format!("['/team-{n}\\.(orders|payments)(-v[0-9])?/']"),
        };
        let _ = writeln!(
            text,
            "  - {{name: team-{n}, topics: {topics}, limits: {{batch_bytes: 1MiB, record_bytes: {record_bytes}}}}}"
        );
    }
    text
}

fn load(file: &Path) -> Config {
    config::load(Some(file), &Overrides::default(), &config::process_env())
        .unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn facts() -> BatchFacts {
    BatchFacts {
        wire_bytes: 16_000,
        uncompressed: Some(Size::Exact(16_000)),
        codec: Some(Codec::None),
        records: 12,
        largest: None,
        seen: None,
    }
}

fn rules(c: &mut Criterion) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sizegate.yaml");
    let mut group = c.benchmark_group("rules");
    for rules in [10, RULES] {
        std::fs::write(&file, text(rules, 65_536)).unwrap();
        let policy = Policy::compile(&load(&file)).unwrap();
        let topic = policy.for_topic("team-5.orders");
        let learned = Some(Learned::own((1_048_588, Source::Broker)));
        group.bench_function(format!("a verdict with {rules} rules"), |b| {
            b.iter(|| topic.judge_batch(black_box(&facts()), black_box(learned)))
        });
        group.bench_function(format!("a topic resolved with {rules} rules"), |b| {
            b.iter(|| policy.for_topic(black_box("team-7.orders")))
        });
    }
    let topics: Vec<Arc<str>> = (0..TOPICS)
        .map(|n| {
            format!(
                "team-{}.orders-{}",
                n / 10,
                ["a", "a-retry", "a-dlt", "b"][n % 4]
            )
            .into()
        })
        .collect();
    let before = load(&file);
    std::fs::write(&file, text(RULES, 32_768)).unwrap();
    let reload = || {
        let begun = Instant::now();
        let new = load(&file);
        let loaded = begun.elapsed();
        let reload = config::reload(&before, &new);
        let compared = begun.elapsed();
        let policy = Policy::compile(&reload.config).unwrap();
        let compiled = begun.elapsed();
        black_box(policy.among(&topics));
        let done = begun.elapsed();
        (
            done,
            [
                loaded,
                compared - loaded,
                compiled - compared,
                done - compiled,
            ],
        )
    };
    let (took, [loaded, compared, compiled, related]) = reload();
    println!(
        "a reload with {RULES} rules and {TOPICS} topics: {took:?} (read {loaded:?}, compared {compared:?}, compiled \
         {compiled:?}, families {related:?})"
    );
    assert!(took < Duration::from_secs(1), "{took:?}");
    group
        .sample_size(10)
        .bench_function("a reload", |b| b.iter(reload));
    group.finish();
}

criterion_group!(benches, rules);
criterion_main!(benches);
