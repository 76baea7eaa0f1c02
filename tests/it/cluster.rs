//! The control plane against a real Kafka: limits and their sources, changes, look-ups, and brokers that differ or
//! go away.

use crate::control_plane::{PATIENCE, Running};
use crate::support::{KAFKA_VERSIONS, Kafka, KafkaOptions, eventually};
use sizegate::cluster::{LearnedLimit, LimitsUnread, Lookup, Origin};
use sizegate::vocabulary::{Codec, CompressionType, Source};
use uuid::Uuid;

/// With so rare refreshes that only questions can learn anything.
const NO_REFRESH: (&str, &str) = ("CLUSTER__ADMIN__REFRESH_INTERVAL", "1h");

#[test]
fn limits_come_with_their_sources() {
    for version in KAFKA_VERSIONS {
        let kafka = Kafka::shared(version);
        let plain = kafka.topic("plain", 3, &[]);
        let own = kafka.topic(
            "own",
            1,
            &[("max.message.bytes", "65536"), ("compression.type", "zstd")],
        );
        let segment = kafka.topic(
            "segment",
            1,
            &[
                ("max.message.bytes", "2097152"),
                ("segment.bytes", "1048576"),
            ],
        );
        let running = Running::start(&kafka.bootstrap(), &[]).up();
        let of = |topic: &crate::support::Topic| {
            let found = running.find(&topic.name);
            assert_eq!(found.id, topic.id);
            let limits = running.read(&found, 1).unwrap();
            assert_eq!(found.batch_limit(), limits.batch_limit());
            (found, limits)
        };

        let (topic, limits) = of(&plain);
        assert_eq!(topic.partitions(), Some(3));
        assert_eq!(limits.batch_limit(), Some((1_048_588, Source::Broker)));
        assert_eq!(limits.compression_type, Some(CompressionType::Producer));
        let decompressed = (version == "4.4.0").then_some(LearnedLimit {
            bytes: 2_147_483_639,
            origin: Origin::BrokerDefault,
        });
        assert_eq!(
            limits.max_decompressed_message_bytes, decompressed,
            "{version}"
        );

        let (_, limits) = of(&own);
        assert_eq!(limits.batch_limit(), Some((65_536, Source::Topic)));
        assert_eq!(
            limits.compression_type,
            Some(CompressionType::Stored(Codec::Zstd))
        );

        let (_, limits) = of(&segment);
        assert_eq!(limits.batch_limit(), Some((1_048_576, Source::Segment)));
        let declared = LearnedLimit {
            bytes: 2_097_152,
            origin: Origin::TopicOverride,
        };
        assert_eq!(limits.max_message_bytes, Some(declared));
    }
}

#[test]
fn a_changed_limit_is_seen_by_the_next_reading_and_by_a_refresh() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let name = kafka.topic("changes", 1, &[]).name;
    let running = Running::start(&kafka.bootstrap(), &[NO_REFRESH]).up();
    let refreshing = Running::start(&kafka.bootstrap(), &[]).up();
    let topic = running.find(&name);
    // The largest is above segment.bytes by default, which is 1 GiB.
    for (limit, in_force) in [
        (0, (0, Source::Topic)),
        (1_000, (1_000, Source::Topic)),
        (2_147_483_647, (1 << 30, Source::Segment)),
    ] {
        kafka.alter_topic_config(&name, &[("max.message.bytes", Some(&limit.to_string()))]);
        // The broker answers AlterConfigs a moment before it has taken the change over itself.
        eventually(PATIENCE, "a reading sees it", || {
            (running.read(&topic, 1).unwrap().batch_limit()? == in_force).then_some(())
        });
        assert_eq!(topic.batch_limit(), Some(in_force));
        let refreshed = refreshing.find(&name);
        eventually(PATIENCE, "a refresh sees it", || {
            (refreshed.batch_limit()? == in_force).then_some(())
        });
    }
    kafka.alter_topic_config(&name, &[("max.message.bytes", None)]);
    eventually(PATIENCE, "the broker's default is back", || {
        (running.read(&topic, 1).unwrap().batch_limit()? == (1_048_588, Source::Broker))
            .then_some(())
    });
}

#[test]
fn a_topic_is_found_by_its_id_before_a_refresh_saw_it() {
    for version in KAFKA_VERSIONS {
        let kafka = Kafka::shared(version);
        let running = Running::start(&kafka.bootstrap(), &[NO_REFRESH]).up();
        let young = kafka.topic("young", 2, &[("max.message.bytes", "777")]);
        let Lookup::Found(topic) = running.look_up_id(young.id) else {
            panic!("not found")
        };
        assert_eq!((&*topic.name, topic.partitions()), (&*young.name, Some(2)));
        assert_eq!(topic.batch_limit(), Some((777, Source::Topic)));
        assert!(matches!(running.look_up_id(Uuid::new_v4()), Lookup::Absent));
        assert!(matches!(running.look_up("no-such-topic"), Lookup::Absent));
        assert!(matches!(
            running.look_up("not a topic's name"),
            Lookup::Absent
        ));
    }
}

#[test]
fn a_deleted_topic_leaves_and_one_created_again_is_another() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[0]);
    let name = kafka.topic("again", 1, &[]).name;
    let running = Running::start(&kafka.bootstrap(), &[]).up();
    let first = running.find(&name);
    kafka.delete_topic(&name);
    eventually(PATIENCE, "it leaves", || {
        running.cluster.topic(&name).is_none().then_some(())
    });
    assert!(first.is_retired());
    kafka.create_topic(&name, 1, 1, &[]);
    let second = eventually(PATIENCE, "it comes back", || running.cluster.topic(&name));
    assert_ne!(first.id, second.id);
    assert!(!second.is_retired());
    assert!(matches!(running.look_up_id(first.id), Lookup::Absent));
}

#[test]
fn where_brokers_have_different_defaults_the_one_asked_counts() {
    let kafka = Kafka::start(KAFKA_VERSIONS[1], KafkaOptions::nodes(2));
    let name = kafka.create_topic("inherits", 2, 2, &[]).name;
    let running = Running::start(&kafka.bootstrap(), &[NO_REFRESH]).up();
    let topic = running.find(&name);
    // A broker answers AlterConfigs before it applies its own config.
    let becomes = |node_id, limit| {
        eventually(PATIENCE, "the broker's own default", || {
            let found = running.read(&topic, node_id).ok()?.batch_limit()?;
            (found == (limit, Source::Broker)).then_some(())
        });
    };
    kafka.alter_broker_config("", &[("message.max.bytes", Some("900000"))]);
    becomes(1, 900_000);
    becomes(2, 900_000);
    // A broker's own config is changed at that broker.
    crate::support::admin::alter_broker_config(
        &kafka.node(2),
        "2",
        &[("message.max.bytes", Some("800000"))],
    );
    becomes(2, 800_000);
    becomes(1, 900_000);
    // Known now, one broker by one: no question more.
    for (node_id, limit) in [(1, 900_000), (2, 800_000)] {
        let known = running
            .cluster
            .known_limits(&topic, Some(node_id), PATIENCE)
            .unwrap();
        assert_eq!(known.batch_limit(), Some((limit, Source::Broker)));
    }
}

#[test]
fn a_broker_killed_takes_no_knowledge_with_it_and_is_met_again() {
    let kafka = Kafka::start(KAFKA_VERSIONS[0], KafkaOptions::default());
    let name = kafka.topic("orders", 1, &[]).name;
    let running = Running::start(&kafka.bootstrap(), &[]).up();
    let topic = running.find(&name);
    kafka.kill(1);
    let error = running.error();
    assert!(error.contains(&kafka.bootstrap()), "{error}");
    assert!(!running.cluster.status().is_up);
    assert_eq!(topic.batch_limit(), Some((1_048_588, Source::Broker)));
    assert_eq!(running.read(&topic, 1), Err(LimitsUnread::Unreachable));
    assert!(matches!(running.look_up("another"), Lookup::Unreachable));
    kafka.restart(1);
    let running = running.up();
    assert!(running.cluster.is_reached());
    assert!(!topic.is_retired());
    assert!(running.read(&topic, 1).is_ok());
}
