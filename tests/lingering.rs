//! Records that linger in their producer (KAFKA-21068), with real producers: found where they are, and nowhere else.

mod support;

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::Value;
use support::programs::Output;
use support::{Kafka, Program, Sizegate, Topic};

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

#[test]
fn a_mebibyte_above_batch_size_is_found_to_linger_for_linger_ms_whatever_its_producers_clock_says()
{
    let _alone = alone();
    let (kafka, sizegate) = pair();
    // One is enough; more are counted.
    for (shift_ms, large) in [(0, 1), (300_000, 2), (-300_000, 2)] {
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
        assert_eq!(seen.len(), 1, "shift {shift_ms}: {seen:?}");
        let seen = &seen[0];
        let lingered = seen["linger_seconds"].as_f64().unwrap();
        assert!((0.9..=1.1).contains(&lingered), "{seen}");
        assert_eq!(seen["client_id"], format!("java-{}", topic.name));
        assert_eq!(seen["software"], format!("apache-kafka-java/{VERSION}"));
        let bytes = seen["batch_bytes"].as_u64().unwrap();
        assert!((1_048_576..1_049_000).contains(&bytes), "{seen}");
        assert!(seen["suggestion"].as_str().unwrap().contains("batch.size"));
        let large = f64::from(large);
        assert_eq!(suspects(sizegate, &topic), large);
        let sum = sizegate
            .metrics()
            .sum("linger_seconds_sum", &[("topic", &topic.name)]);
        assert!((0.9..=1.1).contains(&(sum / large)), "{sum}");
        let line = sizegate.log_line(&["sizegate::linger", &topic.name]);
        assert!(
            line.contains("linger_seconds=1.0") || line.contains("linger_seconds=0.9"),
            "{line}"
        );
    }
}

#[test]
fn without_a_linger_nothing_is_found() {
    let _alone = alone();
    let (kafka, sizegate) = pair();
    let topic = kafka.topic("prompt", 1, &[("max.message.bytes", "2097152")]);
    java(sizegate, &topic)
        .arg("p.linger.ms", 0)
        .arg("small", 300)
        .arg("large", 20)
        .run();
    assert_eq!(suspects(sizegate, &topic), 0.0);
}

#[test]
fn ten_thousand_mixed_batches_of_three_producers_raise_no_alarm_under_any_skew() {
    let _alone = alone();
    let (kafka, sizegate) = pair();
    let mut batches = 0.0;
    for shift_ms in [0, 300_000, -300_000] {
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
        for topic in &topics {
            let labels = [("topic", topic.name.as_str()), ("verdict", "forwarded")];
            let sent = metrics.sum("produce_batches_total", &labels);
            batches += sent;
            assert!(
                lingering(sizegate, topic).is_empty(),
                "shift {shift_ms}: {:?}",
                lingering(sizegate, topic)
            );
            assert_eq!(suspects(sizegate, topic), 0.0);
        }
    }
    assert!(batches >= 10_000.0, "only {batches} batches");
}
