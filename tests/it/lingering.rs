//! Records that linger in their producer (KAFKA-21068), with real producers: found where they are, and nowhere else.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::support::programs::Output;
use crate::support::{Kafka, Program, Sizegate, Topic};
use serde_json::Value;

const VERSION: &str = "4.4.0";
/// Partitions of the topics for mixed traffic.
const PARTITIONS: i32 = 4;

fn pair() -> (&'static Kafka, &'static Sizegate) {
    static PROXY: OnceLock<Sizegate> = OnceLock::new();
    let kafka = Kafka::shared(VERSION);
    (kafka, PROXY.get_or_init(|| Sizegate::start(kafka, "")))
}

/// What the proxy says of a topic.
fn lingering(sizegate: &Sizegate, topic: &Topic) -> Vec<Value> {
    let all = sizegate.json("/api/v1/lingering");
    let all = all["lingering"].as_array().unwrap();
    let of_topic = |seen: &&Value| seen["topic"] == topic.name.as_str();
    all.iter().filter(of_topic).cloned().collect()
}

fn suspects(sizegate: &Sizegate, topic: &Topic) -> f64 {
    let labels = [("topic", topic.name.as_str())];
    sizegate.metrics().sum("linger_suspects_total", &labels)
}

fn java(sizegate: &Sizegate, topic: &Topic) -> Program {
    Program::java("TimedLoad", VERSION)
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("p.client.id", format!("java-{}", topic.name))
}

/// One test at a time: a machine that is busy with another one's traffic keeps records for reasons of its own.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn acknowledged(output: &Output) -> u64 {
    output.lines.last().unwrap()["acknowledged"]
        .as_u64()
        .unwrap()
}

/// Attempts at what depends on real time: a machine that is too busy keeps records itself, or delays all of them alike.
const ATTEMPTS: usize = 5;

/// Demands that one attempt succeeds. What is wrong with the proxy is wrong in all of them.
fn at_last(attempt: impl Fn() -> Result<(), String>) {
    let mut failures = Vec::new();
    while let Err(failure) = attempt() {
        println!("{failure}");
        failures.push(failure);
        assert!(failures.len() < ATTEMPTS, "{failures:#?}");
    }
}

/// `Err` with what was seen unless it is `true`.
fn holds(is_so: bool, what: &str, seen: impl std::fmt::Debug) -> Result<(), String> {
    is_so
        .then_some(())
        .ok_or_else(|| format!("{what}: {seen:?}"))
}

#[test]
fn a_mebibyte_above_batch_size_is_found_to_linger_for_linger_ms_whatever_its_producers_clock_says()
{
    let _alone = alone();
    // One is enough; more are counted.
    for (shift_ms, large) in [(0, 1), (300_000, 2), (-300_000, 2)] {
        at_last(|| lingers_for_a_second(shift_ms, large));
    }
}

/// Sends so many large records that linger for a second, by a clock that is off by `shift_ms`.
fn lingers_for_a_second(shift_ms: i32, large: u32) -> Result<(), String> {
    let (kafka, sizegate) = pair();
    let topic = kafka.topic("lingers", 1, &[("max.message.bytes", "2097152")]);
    let output = java(sizegate, &topic)
        .arg("p.linger.ms", 1_000)
        .arg("p.batch.size", 16_384)
        .arg("shift_ms", shift_ms)
        .arg("small", 300)
        .arg("large", large)
        .run();
    let acknowledged: Vec<f64> = output
        .lines
        .iter()
        .filter_map(|line| line["ms"].as_f64())
        .collect();
    assert!(
        acknowledged.iter().all(|ms| *ms > 990.0),
        "the producer has the defect: {acknowledged:?}"
    );
    let seen = lingering(sizegate, &topic);
    holds(seen.len() == 1, "seen", (shift_ms, &seen))?;
    let seen = &seen[0];
    let lingered = seen["linger_seconds"].as_f64().unwrap();
    holds((0.9..=1.1).contains(&lingered), "lingered", seen)?;
    let bytes = seen["batch_bytes"].as_u64().unwrap();
    let large = f64::from(large);
    holds(suspects(sizegate, &topic) == large, "suspects", seen)?;
    let sum = sizegate
        .metrics()
        .sum("linger_seconds_sum", &[("topic", &topic.name)]);
    holds((0.9..=1.1).contains(&(sum / large)), "sum", sum)?;

    // The rest is no matter of time.
    assert_eq!(seen["client_id"], format!("java-{}", topic.name));
    assert_eq!(seen["software"], format!("apache-kafka-java/{VERSION}"));
    assert!((1_048_576..1_049_000).contains(&bytes), "{seen}");
    assert!(seen["suggestion"].as_str().unwrap().contains("batch.size"));
    let line = sizegate.log_line(&["sizegate::linger", &topic.name]);
    assert!(line.contains("linger_seconds="), "{line}");
    Ok(())
}

#[test]
fn without_a_linger_nothing_is_found() {
    let _alone = alone();
    at_last(|| {
        let (kafka, sizegate) = pair();
        let topic = kafka.topic("prompt", 1, &[("max.message.bytes", "2097152")]);
        java(sizegate, &topic)
            .arg("p.linger.ms", 0)
            .arg("small", 300)
            .arg("large", 20)
            .run();
        let seen = suspects(sizegate, &topic);
        holds(seen == 0.0, "suspects", seen)
    });
}

#[test]
fn ten_thousand_mixed_batches_of_three_producers_raise_no_alarm_under_any_skew() {
    let _alone = alone();
    let batches = Cell::new(0.0);
    for shift_ms in [0, 300_000, -300_000] {
        at_last(|| {
            let (sent, suspects) = mixed(shift_ms);
            holds(suspects.is_empty(), "suspects", (shift_ms, &suspects))?;
            batches.set(batches.get() + sent);
            Ok(())
        });
    }
    let batches = batches.get();
    assert!(batches >= 10_000.0, "only {batches} batches");
}

/// Mixed traffic of three producers at once: its batches, and which of them are suspected.
fn mixed(shift_ms: i32) -> (f64, Vec<Value>) {
    let (kafka, sizegate) = pair();
    let topics: Vec<Topic> = (0..3)
        .map(|_| kafka.topic("mixed", PARTITIONS, &[]))
        .collect();
    let python = |client: &str, topic: &Topic, records: u32| {
        Program::python("timed_load.py")
            .arg("client", client)
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .arg("partitions", PARTITIONS)
            .arg("mixed", records)
            .arg("shift_ms", shift_ms)
    };
    let programs = [
        (
            java(sizegate, &topics[0])
                .arg("mixed", 4_000)
                .arg("shift_ms", shift_ms),
            4_000,
        ),
        (python("confluent", &topics[1], 6_000), 6_000),
        (python("kafka-python", &topics[2], 2_000), 2_000),
    ];
    let running: Vec<_> = programs
        .into_iter()
        .map(|(program, records)| (program.spawn(), records))
        .collect();
    for (program, records) in running {
        assert_eq!(acknowledged(&program.finish()), records);
    }
    let metrics = sizegate.metrics();
    let sent = topics.iter().map(|topic| {
        let labels = [("topic", topic.name.as_str()), ("verdict", "forwarded")];
        metrics.sum("produce_batches_total", &labels)
    });
    let suspected: Vec<Value> = topics
        .iter()
        .flat_map(|topic| {
            let seen = lingering(sizegate, topic);
            let counted = suspects(sizegate, topic);
            assert_eq!(seen.is_empty(), counted == 0.0, "{seen:?} {counted}");
            seen
        })
        .collect();
    (sent.sum(), suspected)
}
