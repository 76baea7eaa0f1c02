//! The test support itself, against real brokers: what every other integration test relies on.

use std::time::Duration;

use crate::support::batch::{Codec, Record, batch, batch_of_bytes};
use crate::support::{Connection, KAFKA_VERSIONS, Kafka, KafkaOptions, Part, admin};

#[test]
fn a_batch_has_exactly_the_wire_bytes_asked_for() {
    for bytes in [
        69, 70, 127, 132, 133, 134, 190, 512, 8_253, 8_254, 8_255, 65_536, 1_048_588, 2_097_230,
    ] {
        assert_eq!(batch_of_bytes(bytes).build().len(), bytes);
    }
}

#[test]
fn a_broker_takes_a_batch_of_its_limit_in_every_produce_version_and_refuses_one_byte_more() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let topic = kafka.topic("limit", 1, &[("max.message.bytes", "20000")]);
        let mut connection = Connection::open(kafka.bootstrap());
        for version in 3..=13 {
            let codes = [19_999, 20_000, 20_001].map(|bytes| {
                connection.produce(
                    version,
                    -1,
                    &[Part::new(&topic, batch_of_bytes(bytes).build())],
                )[0]
                .code
            });
            assert_eq!(codes, [0, 0, 10], "Produce v{version}");
        }
        assert_eq!(kafka.latest_offset(&topic.name, 0), 22);
    }
}

#[test]
fn a_broker_stores_batches_of_every_codec() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let topic = kafka.topic("codecs", 1, &[]);
        let mut connection = Connection::open(kafka.bootstrap());
        for codec in Codec::ALL {
            let records = (0..5).map(|seed| Record::of_random(300, seed).key("k").header("h", "v"));
            let answer = connection.produce(
                9,
                1,
                &[Part::new(&topic, batch(records).codec(*codec).build())],
            );
            assert_eq!(answer[0].code, 0, "{codec}: {answer:?}");
        }
        assert_eq!(kafka.latest_offset(&topic.name, 0), 25);
    }
}

#[test]
fn a_wrong_crc_an_idempotent_repeat_and_a_changed_limit_are_judged_as_kafka_does() {
    let kafka = Kafka::shared("4.3.0");
    let topic = kafka.topic("judged", 1, &[]);
    let mut connection = Connection::open(kafka.bootstrap());
    let mut code = |records| connection.produce(11, -1, &[Part::new(&topic, records)])[0].code;

    assert_eq!(code(batch_of_bytes(200).crc_wrong().build()), 2);
    let (id, epoch) = admin::init_producer_id(&kafka.bootstrap());
    let first = || batch([Record::of_a(10)]).producer(id, epoch, 0).build();
    assert_eq!((code(first()), code(first())), (0, 0));
    assert_eq!(kafka.latest_offset(&topic.name, 0), 1, "stored once");

    kafka.alter_topic_config(&topic.name, &[("max.message.bytes", Some("100"))]);
    assert_eq!(code(batch_of_bytes(101).build()), 10);
    kafka.alter_topic_config(&topic.name, &[("max.message.bytes", None)]);
    assert_eq!(code(batch_of_bytes(101).build()), 0);
    kafka.delete_topic(&topic.name);
}

#[test]
fn nothing_answers_acks_0_and_a_closed_connection_is_told_from_a_silent_one() {
    let kafka = Kafka::shared("4.4.0");
    let topic = kafka.topic("acks0", 1, &[("max.message.bytes", "1000")]);
    let mut connection = Connection::open(kafka.bootstrap());
    connection.send_produce(9, 0, &[Part::new(&topic, batch_of_bytes(1_000).build())]);
    assert!(!connection.is_closed_within(Duration::from_millis(300)));
    connection.send_produce(9, 0, &[Part::new(&topic, batch_of_bytes(1_001).build())]);
    assert!(connection.is_closed_within(Duration::from_secs(20)));
}

#[test]
fn a_killed_broker_comes_back_with_what_it_stored_and_another_can_join() {
    let mut kafka = Kafka::start(
        "4.3.0",
        KafkaOptions {
            sasl: true,
            tls: true,
            ..KafkaOptions::nodes(3)
        },
    );
    let topic = kafka.create_topic("kept", 3, 3, &[("min.insync.replicas", "2")]);
    for partition in 0..3 {
        let leader = admin::leader(&kafka.bootstrap(), "kept", partition);
        let part = Part::at(&topic, partition, batch_of_bytes(500).build());
        assert_eq!(
            Connection::open(leader.as_str()).produce(13, -1, &[part])[0].code,
            0
        );
    }
    kafka.kill(2);
    for partition in 0..3 {
        assert_eq!(kafka.latest_offset("kept", partition), 1);
    }
    kafka.restart(2);
    let id = kafka.add_broker();
    let seen =
        crate::support::eventually(Duration::from_secs(60), "four brokers in Metadata", || {
            let brokers = admin::metadata(&mut Connection::open(kafka.node(2)), &["kept"]).brokers;
            (brokers.len() == 4).then_some(brokers)
        });
    assert!(seen.iter().any(|broker| broker.node_id.0 == id));

    let sasl = kafka.sasl_bootstrap();
    let mut connection = Connection::open(sasl.split(',').next().unwrap());
    connection.sasl_plain(
        crate::support::kafka::PLAIN_USER.0,
        crate::support::kafka::PLAIN_USER.1,
    );
    assert_eq!(
        admin::metadata(&mut connection, &["kept"]).topics[0].error_code,
        0
    );
}
