//! Records that linger in their producer (KAFKA-21068), with real producers: found where they are, and nowhere else.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use crate::support::programs::Output;
use crate::support::{Kafka, Program, Sizegate, Topic, eventually, lock};
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
    lock(&ALONE)
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

/// How long a real producer may take to be found: it sends until then.
const PATIENCE: Duration = Duration::from_secs(240);

/// How long its large records took, by the producer's own clock, from being made to being acknowledged.
fn took_ms(lines: &[Value]) -> Vec<f64> {
    lines
        .iter()
        .filter_map(|line| line["ms"].as_f64())
        .collect()
}

#[test]
fn a_mebibyte_above_batch_size_is_found_to_linger_for_linger_ms_whatever_its_producers_clock_says()
{
    let _alone = alone();
    let (kafka, sizegate) = pair();
    for shift_ms in [0, 300_000, -300_000] {
        let topic = kafka.topic("lingers", 1, &[("max.message.bytes", "2097152")]);
        let producer = java(sizegate, &topic)
            .arg("p.linger.ms", 1_000)
            .arg("p.batch.size", 16_384)
            .arg("shift_ms", shift_ms)
            .arg("small", 300)
            .arg("large", 2)
            .arg("rounds", 100)
            .spawn();
        // A machine that is busy keeps records itself, or delays all of them alike: those are not told, or told for
        // longer. So it sends until one is told that only its producer kept.
        let seen = eventually(PATIENCE, "a record that lingers for a second", || {
            assert!(producer.is_running(), "{}", producer.last_words());
            let seen = lingering(sizegate, &topic);
            let is_a_second =
                |seen: &Value| (0.9..=1.1).contains(&seen["linger_seconds"].as_f64().unwrap());
            seen.into_iter().find(is_a_second)
        });
        assert!((1_048_576..1_049_000).contains(&seen["batch_bytes"].as_u64().unwrap()));
        assert_eq!(seen["client_id"], format!("java-{}", topic.name));
        assert_eq!(seen["software"], format!("apache-kafka-java/{VERSION}"));
        let suggestion = seen["suggestion"].as_str().unwrap();
        for words in ["batch.size", "KAFKA-21068", "timestamp"] {
            assert!(suggestion.contains(words), "{suggestion}");
        }
        let line = sizegate.log_line(&["sizegate::linger", &topic.name]);
        assert!(line.contains("linger_seconds="), "{line}");
        // Whatever the machine does: no more of them than were sent, and none for longer than its producer waited.
        let suspects = suspects(sizegate, &topic);
        let told = sizegate
            .metrics()
            .sum("linger_seconds_sum", &[("topic", &topic.name)]);
        eventually(PATIENCE, "those that were told acknowledged", || {
            let took = took_ms(&producer.lines());
            let most: f64 = took.iter().sum();
            assert!(
                took.iter().all(|ms| *ms > 990.0),
                "the producer has the defect: {took:?}"
            );
            (took.len() as f64 >= suspects && most >= told * 1_000.0).then_some(())
        });
    }
}

#[test]
fn without_a_linger_nothing_is_found() {
    let _alone = alone();
    let (kafka, sizegate) = pair();
    let topic = kafka.topic("prompt", 1, &[("max.message.bytes", "2097152")]);
    let output = java(sizegate, &topic)
        .arg("p.linger.ms", 0)
        .arg("small", 300)
        .arg("large", 20)
        .run();
    // What a busy machine kept for so long that it looks like a linger, its producer knows.
    let kept = took_ms(&output.lines);
    let kept = kept.iter().filter(|ms| **ms >= 100.0).count();
    assert!(
        suspects(sizegate, &topic) <= kept as f64,
        "{:?}",
        output.lines
    );
}

#[test]
fn records_that_their_application_made_long_before_it_sent_them_did_not_linger() {
    let _alone = alone();
    let (kafka, sizegate) = pair();
    let topic = kafka.topic("stamped", 1, &[("max.message.bytes", "2097152")]);
    let output = java(sizegate, &topic)
        .arg("p.linger.ms", 0)
        .arg("small", 300)
        .arg("large", 3)
        .arg("large_shift_ms", -2_000)
        .arg("rounds", 10)
        .run();
    assert_eq!(took_ms(&output.lines).len(), 30);
    let seen = lingering(sizegate, &topic);
    assert_eq!(seen, [] as [Value; 0]);
    assert_eq!(suspects(sizegate, &topic), 0.0);
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
