//! Real producers, unchanged but for their own limit, whose values are too large for the topic: what they send arrives as
//! tickets, and every object is the value.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use bytes::Bytes;
use sizegate::claim::redeem;

use crate::claim_produce::{Folder, open, originals, stored, values};
use crate::support::{Kafka, Program, Topic};

/// Lengths of what consumers would get, ascending; each ticket's object was compared with it.
fn redeemed(kafka: &Kafka, folder: &Folder, topic: &Topic) -> Vec<Bytes> {
    let mut all = Vec::new();
    for stored in stored(kafka, topic, 0) {
        let originals = originals(kafka, folder, topic, &stored.batch);
        let redeemed: Bytes = redeem(&stored.batch, &originals).unwrap().concat().into();
        all.extend(values(&open(&redeemed)));
    }
    all
}

fn list(sizes: &[usize], separator: &str, before: &str) -> String {
    let sizes: Vec<String> = sizes.iter().map(|size| format!("{before}{size}")).collect();
    sizes.join(separator)
}

#[test]
fn real_producers_unchanged_send_what_is_too_large() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let (usual, huge) = (
        &[300_000, 100, 5_000_000, 20_000_000][..],
        &[300_000, 100, 20_000_000][..],
    );
    let python = |client: &str| {
        let program = Program::python("produce.py").arg("client", client);
        program.arg("max", 24_000_000)
    };
    for (client, program, sizes) in [
        (
            "Java, idempotent",
            Program::java("SendSizes", "4.4.0")
                .arg("p.max.request.size", 24_000_000)
                .arg("p.buffer.memory", 64_000_000),
            huge,
        ),
        ("librdkafka", python("confluent"), huge),
        (
            "librdkafka, idempotent",
            python("confluent").arg("idempotent", "true"),
            usual,
        ),
        ("kafka-python", python("kafka-python"), usual),
        ("aiokafka", python("aiokafka"), usual),
        (
            "franz-go",
            Program::go("franz").arg("max", 24_000_000),
            usual,
        ),
        (
            "sarama",
            Program::go("sarama").arg("max", 24_000_000),
            usual,
        ),
        ("kafkajs", Program::node("kafkajs.js"), usual),
    ] {
        let topic = kafka.topic("real", 1, &[]);
        let program = match client {
            "kafkajs" => program.arg("sends", list(sizes, ";", "0:")),
            _ => program.arg("values", list(sizes, ",", "")),
        };
        let output = program
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .run();
        assert_eq!(
            output.where_is("ok", false).len(),
            0,
            "{client}: {:?}",
            output.lines
        );
        let mut lengths: Vec<usize> = redeemed(kafka, &folder, &topic)
            .iter()
            .map(Bytes::len)
            .collect();
        lengths.sort_unstable();
        let mut expected = sizes.to_vec();
        expected.sort_unstable();
        assert_eq!(lengths, expected, "{client}: {:?}", output.lines);
        let tickets: usize = stored(kafka, &topic, 0)
            .iter()
            .map(|stored| originals(kafka, &folder, &topic, &stored.batch).len())
            .sum();
        assert_eq!(tickets, sizes.len() - 1, "{client}: all but the small one");
    }
}

#[test]
fn a_transaction_commits_with_a_value_that_is_too_large() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let topic = kafka.topic("transactional", 1, &[]);
    let output = Program::java("Transactions", "4.4.0")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("large", 3_000_000)
        .run();
    for transaction in ["commit", "abort", "offsets", "large", "after"] {
        assert_eq!(
            output.only("transaction", transaction)["ok"],
            true,
            "{:?}",
            output.lines
        );
    }
    let values = redeemed(kafka, &folder, &topic);
    let large: Vec<&Bytes> = values.iter().filter(|value| value.len() > 100).collect();
    assert_eq!(large.len(), 1);
    assert!(*large[0] == "x".repeat(3_000_000));
    assert!(values.iter().any(|value| value == "committed-4"));
}
