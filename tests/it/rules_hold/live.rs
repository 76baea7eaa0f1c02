//! The same against real brokers: what is stored is asked of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use sizegate::vocabulary::Codec;

use super::behind::value;
use crate::support::admin::{self, TopicAcl};
use crate::support::batch::compress;
use crate::support::client::produce_request;
use crate::support::kafka::{PLAIN_USER, SCRAM_512_USER};
use crate::support::{
    Connection, KAFKA_VERSIONS, Kafka, KafkaOptions, Part, Record, Response, Sizegate, Topic,
    batch, eventually, unique,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// AclOperation
pub const READ: i8 = 3;
pub const WRITE: i8 = 4;
pub const DESCRIBE: i8 = 8;
pub const DESCRIBE_CONFIGS: i8 = 10;

/// A cluster that guards itself: ANONYMOUS, on the plain listener, may do anything; alice produces, and the proxy asks as
/// carol.
pub fn guarded(nodes: i32) -> Kafka {
    let options = KafkaOptions {
        nodes,
        sasl: true,
        ..KafkaOptions::default()
    }
    .property(
        "authorizer.class.name",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    )
    .property("super.users", "User:ANONYMOUS");
    let kafka = Kafka::start(KAFKA_VERSIONS[1], options);
    for (principal, operations) in [
        ("User:alice", [READ, WRITE, DESCRIBE]),
        ("User:carol", [DESCRIBE, DESCRIBE_CONFIGS, DESCRIBE]),
    ] {
        for operation in operations {
            let acl = TopicAcl {
                principal,
                topic: "*",
                operation,
                allows: true,
            };
            acl.create(&kafka.node(1));
        }
    }
    kafka
}

/// In front of it, with these rules.
pub fn proxy(kafka: &Kafka, refresh: &str, rules: &str) -> Sizegate {
    let (user, password) = SCRAM_512_USER;
    Sizegate::before(&kafka.sasl_bootstrap())
        .cluster(&format!(
            "admin: {{sasl: {{mechanism: SCRAM-SHA-512, username: {user}, password: {password}}}, refresh_interval: {refresh}}}"
        ))
        .yaml(rules)
        .start()
}

/// A connection as alice.
pub fn session(address: String) -> Connection {
    let mut connection = Connection::open(address);
    connection.sasl_plain(PLAIN_USER.0, PLAIN_USER.1);
    connection
}

/// Takes Describe on everything from the control plane, or gives it back.
pub fn deny_describe(kafka: &Kafka, is_denied: bool) {
    let acl = TopicAcl {
        principal: "User:carol",
        topic: "*",
        operation: DESCRIBE,
        allows: false,
    };
    if is_denied {
        acl.create(&kafka.node(1));
    } else {
        acl.delete(&kafka.node(1));
    }
}

/// Sends until the broker takes what is within the rule; what is above it is refused, or retried, and never stored.
/// `true` once both are as they will stay.
fn holds(connection: &mut Connection, version: i16, topic: &Topic, partition: i32) -> bool {
    let sent = [Part::at(topic, partition, value(2_000))];
    let refused = connection.produce(version, -1, &sent).remove(0);
    assert!(
        matches!(refused.code, 3 | 10 | 100) && refused.text.is_some(),
        "v{version} {topic:?}-{partition}: {refused:?}"
    );
    let sent = [Part::at(topic, partition, value(500))];
    let taken = connection.produce(version, -1, &sent).remove(0);
    assert!(
        matches!(taken.code, 0 | 3 | 6 | 100),
        "v{version} {topic:?}-{partition}: {taken:?}"
    );
    (refused.code, taken.code) == (10, 0)
}

/// W1
#[test]
fn partitions_that_are_added_are_under_the_rule_from_their_first_batch_on() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::before(&kafka.bootstrap())
            .cluster("admin: {refresh_interval: 10m}")
            .yaml("rules: [{name: small, topics: ['added-*'], limits: {record_bytes: 1000}}]")
            .start();
        let topic = kafka.topic("added", 1, &[]);
        let mut sessions = [9, 13].map(|version| (version, Connection::open(sizegate.node(1))));
        for (version, connection) in &mut sessions {
            eventually(PATIENCE, "the first partition", || {
                holds(connection, *version, &topic, 0).then_some(())
            });
        }
        for count in 2..=4 {
            admin::create_partitions(&kafka.bootstrap(), &topic.name, count);
            for (version, connection) in &mut sessions {
                eventually(PATIENCE, "the new partition", || {
                    holds(connection, *version, &topic, count - 1).then_some(())
                });
            }
        }
        for partition in 0..4 {
            let stored = admin::fetch_stored(&kafka.bootstrap(), &topic.name, partition, 1 << 20);
            assert!(!stored.is_empty());
            for batch in batches(&stored) {
                assert!(batch.len() < 1_000, "{} bytes", batch.len());
            }
        }
    }
}

/// The batches in what was fetched.
pub fn batches(mut stored: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let Some(length) = stored.get(8..12) {
        let bytes = 12 + i32::from_be_bytes(length.try_into().unwrap()) as usize;
        let Some((batch, rest)) = stored.split_at_checked(bytes) else {
            break;
        };
        all.push(batch);
        stored = rest;
    }
    all
}

/// W3
#[test]
fn rights_taken_and_given_back_leave_the_rule_in_force_in_sessions_that_were_open() {
    let kafka = guarded(1);
    let sizegate = proxy(
        &kafka,
        "200ms",
        "rules: [{name: small, topics: ['hidden-*'], limits: {record_bytes: 1000}}]",
    );
    let topic = kafka.topic("hidden", 1, &[]);
    let mut sessions = [9, 13].map(|version| (version, session(sizegate.node(1))));
    let mut settle = |partition: i32| {
        for (version, connection) in &mut sessions {
            eventually(PATIENCE, "the rule and the broker", || {
                holds(connection, *version, &topic, partition).then_some(())
            });
        }
    };
    settle(0);
    let sees = |is_seen: bool| {
        eventually(
            PATIENCE,
            &format!("the control plane sees: {is_seen}"),
            || {
                let (_, body) = sizegate.get("/readyz");
                (body.contains("cannot be read") != is_seen).then_some(())
            },
        );
    };
    deny_describe(&kafka, true);
    // Describe implies nothing of DescribeConfigs: what tells is what the proxy asks next.
    settle(0);
    admin::create_partitions(&kafka.node(1), &topic.name, 2);
    settle(1);
    deny_describe(&kafka, false);
    settle(1);
    sees(true);
    admin::create_partitions(&kafka.node(1), &topic.name, 3);
    settle(2);
    for partition in 0..3 {
        let stored = admin::fetch_stored(&kafka.node(1), &topic.name, partition, 1 << 20);
        for batch in batches(&stored) {
            assert!(batch.len() < 1_000, "{} bytes", batch.len());
        }
    }
}

/// Many records without a key and with an empty value, as no usual client numbers them: every offset delta is 0, and the
/// first is 2^40 ms older than the others.
fn odd(codec: Codec, records: usize) -> Bytes {
    let mut plain = Vec::new();
    for at in 0..records {
        let record = Record {
            timestamp_delta: if at == 0 { -(1 << 40) } else { 0 },
            ..Record::of_a(0)
        };
        plain.extend(record.encode(0));
    }
    let count = i32::try_from(records).unwrap();
    batch((0..records).map(|_| Record::of_a(0)))
        .codec(codec)
        .count(count)
        .payload(compress(codec, &plain))
        .build()
}

/// W4: a topic with a `compression.type` of its own stores what its broker writes, not what came.
#[test]
fn what_the_broker_writes_again_is_measured_as_it_writes_it() {
    const RECORDS: usize = 702;
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let unique = unique("rewritten");
    let topic = |stem: &str, compression: &str| {
        kafka.create_topic(
            &format!("{unique}-{stem}"),
            1,
            1,
            &[("compression.type", compression)],
        )
    };
    let direct = topic("direct", "uncompressed");
    let bytes_stored = |at: usize| {
        let stored = admin::fetch_stored(&kafka.bootstrap(), &direct.name, 0, 1 << 24);
        batches(&stored)[at].len()
    };
    let compressed = [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd];
    let mut connection = Connection::open(kafka.bootstrap());
    for (at, codec) in compressed.into_iter().enumerate() {
        let sent = [Part::new(&direct, odd(codec, RECORDS))];
        assert_eq!(connection.produce(9, -1, &sent)[0].code, 0, "{codec}");
        assert_eq!(bytes_stored(at), bytes_stored(0), "{codec}");
    }
    let stored = bytes_stored(0);
    let came = odd(Codec::None, RECORDS).len();
    assert!(stored > came + 4_000, "{stored} of {came}");
    // 1 of attributes, 6 and 2 of deltas, 1 each of key, value and headers, and the length.
    let record = 13;
    let topics = [
        (
            "whole",
            "uncompressed",
            format!("uncompressed_bytes: {stored}"),
            0,
        ),
        (
            "short",
            "uncompressed",
            format!("uncompressed_bytes: {}", stored - 1),
            10,
        ),
        (
            "gzip",
            "gzip",
            format!("uncompressed_bytes: {}", stored - 1),
            10,
        ),
        (
            "record",
            "uncompressed",
            format!("record_bytes: {record}"),
            0,
        ),
        (
            "less",
            "uncompressed",
            format!("record_bytes: {}", record - 1),
            10,
        ),
        ("same", "producer", format!("uncompressed_bytes: {came}"), 0),
    ];
    let rules: Vec<String> = topics
        .iter()
        .map(|(stem, _, limits, _)| {
            format!("{{name: {stem}, topics: [{unique}-{stem}], limits: {{{limits}}}}}")
        })
        .collect();
    let topics = topics.map(|(stem, compression, _, code)| (topic(stem, compression), code));
    let sizegate = Sizegate::start(kafka, &format!("rules: [{}]", rules.join(", ")));
    let mut connection = Connection::open(sizegate.bootstrap());
    for (topic, code) in &topics {
        let is_same = topic.name.ends_with("same");
        let is_gzip = topic.name.ends_with("gzip");
        let codecs: Vec<Codec> = match () {
            // As it came: a broker counts no offsets there.
            () if is_same => vec![Codec::None],
            () if is_gzip => vec![Codec::None, Codec::Zstd],
            () => compressed.to_vec(),
        };
        for codec in codecs {
            for version in [9, 13] {
                let sent = [Part::new(topic, odd(codec, RECORDS))];
                let response: Response = connection.produce(version, -1, &sent).remove(0);
                assert_eq!(
                    response.code, *code,
                    "{} {codec} v{version}: {response:?}",
                    topic.name
                );
            }
        }
    }
}

/// W8: brokers say first whether a transaction was begun.
#[test]
fn a_transaction_that_was_never_begun_is_the_brokers_to_judge_and_a_rule_refuses_it() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(
            kafka,
            "rules: [{name: small, topics: ['ruled-*'], limits: {record_bytes: 1000}}]",
        );
        let limits = [("max.message.bytes", "3000")];
        let topics = [("free", 3_001), ("ruled", 2_000)]
            .map(|(stem, bytes)| (kafka.topic(stem, 1, &limits), bytes));
        for version in 9..=13 {
            let send = |address: String, topic: &Topic, bytes: usize| {
                let records = batch([Record::of_a(bytes)])
                    .producer(1 << 40, 0, 0)
                    .transactional()
                    .build();
                let mut connection = Connection::open(address);
                let sent = [Part::new(topic, records)];
                let request = produce_request(Some("never-begun"), -1, &sent);
                connection.send(&request, version);
                let (_, responses) = connection.receive_produce(version).unwrap();
                responses[0].code
            };
            let [(free, large), (ruled, above)] = &topics;
            let direct = send(kafka.bootstrap(), free, *large);
            assert!(direct != 0 && direct != 10, "v{version}: {direct}");
            assert_eq!(
                send(sizegate.bootstrap(), free, *large),
                direct,
                "v{version}"
            );
            assert_eq!(send(sizegate.bootstrap(), ruled, *above), 10, "v{version}");
        }
    }
}

/// Sets a flag when it goes: also where an assertion fails.
pub struct OverWhenDropped<'a>(pub &'a AtomicBool);

impl Drop for OverWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
