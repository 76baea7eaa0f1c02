//! What the users of real clients get: at a limit, one byte either side of it, and when one record of a batch is
//! too large. The brokers are real too.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use crate::support::programs::Output;
use crate::support::{KAFKA_VERSIONS, Kafka, Program, Sizegate, Topic};
use serde_json::{Value, json};

/// max.message.bytes of the boundary tests.
const LIMIT: usize = 20_000;
/// Wire bytes of a batch of one record with a null key and a value of some thousand bytes, beside the value.
const OVERHEAD: usize = 72;

fn pair(version: &str) -> (&'static Kafka, &'static Sizegate) {
    static PROXIES: OnceLock<BTreeMap<&str, Sizegate>> = OnceLock::new();
    let start = |version| (version, Sizegate::start(Kafka::shared(version), ""));
    let proxies = PROXIES.get_or_init(|| KAFKA_VERSIONS.map(start).into());
    (Kafka::shared(version), &proxies[version])
}

fn topic(kafka: &Kafka, limit: usize) -> Topic {
    kafka.topic("clients", 1, &[("max.message.bytes", &limit.to_string())])
}

/// Codes of the records, in their order: whether each was stored.
fn fates(output: &Output) -> Vec<bool> {
    let mut records: Vec<&Value> = output
        .lines
        .iter()
        .filter(|line| line.get("record").is_some())
        .collect();
    records.sort_by_key(|line| line["record"].as_i64());
    records
        .iter()
        .map(|line| line["ok"].as_bool().unwrap())
        .collect()
}

fn refusals(output: &Output) -> Vec<&str> {
    let refused = output.where_is("ok", false);
    refused
        .iter()
        .map(|line| line["text"].as_str().unwrap())
        .collect()
}

/// The four programs that take `values` and `together`.
fn senders(version: &str) -> Vec<(&'static str, Program)> {
    vec![
        ("Java", Program::java("SendSizes", version)),
        (
            "librdkafka",
            Program::python("produce.py").arg("client", "confluent"),
        ),
        (
            "kafka-python",
            Program::python("produce.py").arg("client", "kafka-python"),
        ),
        (
            "aiokafka",
            Program::python("produce.py").arg("client", "aiokafka"),
        ),
        ("franz-go", Program::go("franz")),
        ("sarama", Program::go("sarama")),
    ]
}

#[test]
fn every_client_is_stopped_at_the_limit_and_not_one_byte_before() {
    for version in KAFKA_VERSIONS {
        let (kafka, sizegate) = pair(version);
        let value = LIMIT - OVERHEAD;
        for (client, program) in senders(version) {
            let topic = topic(kafka, LIMIT);
            let output = program
                .arg("bootstrap", sizegate.bootstrap())
                .arg("topic", &topic.name)
                .arg("values", format!("{},{value},{},100", value - 1, value + 1))
                .run();
            assert_eq!(
                fates(&output),
                [true, true, false, true],
                "{client}: {output:?}"
            );
            assert_eq!(kafka.latest_offset(&topic.name, 0), 3, "{client}");
            let shown = refusals(&output)[0];
            if ["Java", "kafka-python"].contains(&client) {
                // The others drop the broker's text, whoever wrote it.
                assert!(
                    shown.contains(&format!("sizegate refused {}-0: ", topic.name)),
                    "{client}: {shown}"
                );
                assert!(
                    shown.contains("size_bytes=20001 limit_bytes=20000 source=topic"),
                    "{client}: {shown}"
                );
            }
            // For everyone: the log, the metric, the API.
            sizegate.log_line(&[&topic.name, "size_bytes=20001"]);
            let count = sizegate.metrics().sum(
                "violations_total",
                &[("topic", &topic.name), ("gate", "batch")],
            );
            assert_eq!(count, 1.0, "{client}");
            let listed = sizegate.json(&format!("/api/v1/refusals?topic={}", topic.name));
            assert!(
                listed.to_string().contains(&topic.name),
                "{client}: {listed}"
            );
        }
    }
}

#[test]
fn java_splits_a_refused_batch_and_only_the_guilty_records_fail() {
    for version in KAFKA_VERSIONS {
        let (kafka, sizegate) = pair(version);
        let topic = topic(kafka, 600);
        let output = Program::java("SendSizes", version)
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .arg("values", "100,1000,100,1000,100")
            .arg("together", true)
            .run();
        assert_eq!(
            fates(&output),
            [true, false, true, false, true],
            "{output:?}"
        );
        assert_eq!(kafka.latest_offset(&topic.name, 0), 3);
        for text in refusals(&output) {
            assert!(
                text.starts_with("sizegate refused") && text.contains("gate=batch"),
                "{text}"
            );
        }
        let splits = output.lines.last().unwrap()["splits"].as_f64().unwrap();
        assert!(splits >= 1.0, "{splits}");
    }
}

#[test]
fn java_heals_a_batch_in_which_no_record_is_too_large() {
    for version in KAFKA_VERSIONS {
        let (kafka, sizegate) = pair(version);
        let topic = topic(kafka, 10_000);
        let output = Program::java("SendSizes", version)
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .arg("values", ["1000"; 15].join(","))
            .arg("together", true)
            .arg("p.batch.size", 16_384)
            .run();
        assert_eq!(fates(&output), [true; 15], "{output:?}");
        assert_eq!(kafka.latest_offset(&topic.name, 0), 15);
    }
}

#[test]
fn an_older_java_that_would_split_for_ever_is_ended_at_once() {
    let (kafka, sizegate) = pair("4.3.0");
    let topic = topic(kafka, 10_000);
    let output = Program::java("SendSizes", "3.9.1")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("values", ["1000"; 15].join(","))
        .arg("together", true)
        .arg("p.batch.size", 16_384)
        .run();
    assert_eq!(fates(&output), [false; 15], "{output:?}");
    // Straight at the broker it sends thousands of batches until delivery.timeout.ms (60 s here) ends it.
    let refused = sizegate.metrics().sum(
        "produce_batches_total",
        &[("topic", &topic.name), ("verdict", "refused")],
    );
    assert!((1.0..=3.0).contains(&refused), "{refused} refusals");
}

#[test]
fn a_python_producer_works_on_after_a_batch_of_its_was_refused() {
    let (kafka, sizegate) = pair("4.4.0");
    for client in ["confluent", "kafka-python", "aiokafka"] {
        let topic = topic(kafka, 2_000);
        let output = Program::python("produce.py")
            .arg("client", client)
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .arg("values", "100,100,3000,100,100")
            .arg("together", true)
            .arg("then", "100")
            .run();
        let fates = fates(&output);
        assert_eq!((fates[2], fates[5]), (false, true), "{client}: {output:?}");
        let stored = fates.iter().filter(|ok| **ok).count() as i64;
        assert_eq!(
            kafka.latest_offset(&topic.name, 0),
            stored,
            "{client}: what it was told is true"
        );
    }
}

#[test]
fn kafkajs_sends_to_other_partitions_and_goes_on_after_a_refusal() {
    let (kafka, sizegate) = pair("4.3.0");
    let topic = kafka.topic("kafkajs", 2, &[("max.message.bytes", "2000")]);
    let output = Program::node("kafkajs.js")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("sends", "0:100,1:100;1:3000;0:100,1:100")
        .run();
    assert_eq!(output.only("send", 0)["ok"], true);
    let refused = output.only("send", 1);
    assert_eq!(
        (&refused["ok"], refused["text"].is_string()),
        (&json!(false), true)
    );
    assert_eq!(output.only("send", 2)["ok"], true);
    assert_eq!(
        output.lines.last().unwrap()["stored"],
        json!({"0": 2, "1": 2})
    );
}

#[test]
fn in_one_request_the_guilty_topic_is_refused_and_its_neighbour_stored() {
    for version in KAFKA_VERSIONS {
        let (kafka, sizegate) = pair(version);
        let small = kafka.topic("small", 1, &[("max.message.bytes", "1048588")]);
        let large = kafka.topic("large", 1, &[("max.message.bytes", "10485760")]);
        let record =
            || crate::support::batch([crate::support::Record::of_random(2_000_000, 1)]).build();
        let parts = [
            crate::support::Part::new(&small, record()),
            crate::support::Part::new(&large, record()),
        ];
        let mut connection = crate::support::Connection::open(sizegate.bootstrap());
        let answers = connection.produce(12, -1, &parts);
        let codes: BTreeMap<&str, i16> = answers
            .iter()
            .map(|answer| (answer.topic.as_str(), answer.code))
            .collect();
        assert_eq!(
            (codes[small.name.as_str()], codes[large.name.as_str()]),
            (10, 0)
        );
        assert_eq!(kafka.latest_offset(&small.name, 0), 0);
        assert_eq!(kafka.latest_offset(&large.name, 0), 1);
    }
}
