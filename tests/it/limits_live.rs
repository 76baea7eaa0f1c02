//! Limits that change at the broker while producers run: in force within a second, and no refusal by a limit that
//! is no longer true.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Duration, Instant};

use crate::support::{
    Connection, KAFKA_VERSIONS, Kafka, KafkaOptions, Part, Record, Response, Sizegate, Topic,
    admin, batch, batch_of_bytes, eventually, unique,
};
use bytes::Bytes;
use sizegate::vocabulary::Codec;

const PATIENCE: Duration = Duration::from_secs(60);
/// How soon a change must be in force: after so many batches, which take a second. Not by the clock: a busy machine has
/// another second than an idle one.
const SOON: usize = 100;

/// No two batches alike: the same one again and again would be taken for a loop.
fn fresh(bytes: usize) -> Bytes {
    static TIME: AtomicI64 = AtomicI64::new(1_700_000_000_000);
    batch_of_bytes(bytes)
        .base_timestamp(TIME.fetch_add(1, Ordering::Relaxed))
        .build()
}

fn produce(connection: &mut Connection, version: i16, topic: &Topic, bytes: usize) -> Response {
    connection
        .produce(version, -1, &[Part::new(topic, fresh(bytes))])
        .remove(0)
}

/// Waits until the broker itself applies a limit: AlterConfigs is answered before.
fn applies(kafka: &Kafka, topic: &Topic, limit: usize) {
    applies_at(&kafka.bootstrap(), topic, 0, limit);
}

fn applies_at(broker: &str, topic: &Topic, partition: i32, limit: usize) {
    let mut connection = Connection::open(broker);
    eventually(PATIENCE, &format!("the broker applies {limit}"), || {
        let [fits, not] = [limit, limit + 1].map(|bytes| {
            let part = Part::at(topic, partition, fresh(bytes));
            connection.produce(8, -1, &[part]).remove(0).code
        });
        ((fits, not) == (0, 10)).then_some(())
    });
}

/// The text of a refusal by the proxy itself.
fn text(response: &Response) -> &str {
    let text = response.text.as_deref().unwrap_or_default();
    assert!(
        response.code == 10 && text.starts_with("sizegate refused "),
        "{response:?}"
    );
    text
}

/// What came of one batch: when it was sent and answered, and how.
type Seen = (Instant, Instant, Response);

/// Sends 2,500 bytes again and again until it is over.
fn keep_producing(
    sizegate: &Sizegate,
    version: i16,
    topic: &Topic,
    seen: &Mutex<Vec<Seen>>,
    is_over: &AtomicBool,
) {
    let mut connection = Connection::open(sizegate.bootstrap());
    while !is_over.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let response = produce(&mut connection, version, topic, 2_500);
        seen.lock().unwrap().push((sent, Instant::now(), response));
        std::thread::sleep(Duration::from_millis(3));
    }
}

/// Whether a batch of 2,500 bytes was judged by this limit: what the broker judges is not judged yet.
fn is_judged_by(limit: usize, response: &Response) -> bool {
    if limit >= 2_500 {
        return response.code == 0;
    }
    let text = response.text.as_deref().unwrap_or_default();
    response.code == 10
        && text.starts_with("sizegate refused ")
        && text.contains(&format!("limit_bytes={limit} source=topic"))
}

#[test]
fn a_limit_raised_and_lowered_under_load_is_in_force_within_a_second_of_batches() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        // What the proxy learns, it learns because it asks.
        let sizegate = Sizegate::before(&kafka.bootstrap())
            .cluster("admin: {refresh_interval: 10m}")
            .start();
        let topic = kafka.topic("live", 1, &[("max.message.bytes", "2000")]);
        let is_over = AtomicBool::new(false);
        let producers = [8, 13].map(|version| (version, Mutex::new(Vec::new())));
        let changes = std::thread::scope(|scope| {
            let is_over = OverWhenDropped(&is_over);
            for (version, seen) in &producers {
                let (sizegate, topic, is_over) = (&sizegate, &topic, is_over.0);
                scope.spawn(move || keep_producing(sizegate, *version, topic, seen, is_over));
            }
            let mut changes = Vec::new();
            for limit in [3_000, 2_000, 4_000, 2_499, 2_500, 1_000] {
                let asked = Instant::now();
                let value = limit.to_string();
                kafka.alter_topic_config(&topic.name, &[("max.message.bytes", Some(&value))]);
                applies(kafka, &topic, limit);
                let applied = Instant::now();
                for (version, seen) in &producers {
                    eventually(
                        PATIENCE,
                        &format!("{limit} in force for v{version}"),
                        || {
                            let seen = seen.lock().unwrap();
                            let after = seen.iter().rev().take_while(|(sent, ..)| *sent > applied);
                            let judged =
                                after.filter(|(.., response)| is_judged_by(limit, response));
                            (judged.count() >= 5).then_some(())
                        },
                    );
                }
                changes.push((asked, applied, limit));
            }
            changes
        });
        for (n, (_, applied, limit)) in changes.iter().enumerate() {
            let until = changes.get(n + 1).map(|(asked, ..)| *asked);
            for (version, seen) in &producers {
                let seen = seen.lock().unwrap();
                let since: Vec<&Response> = seen
                    .iter()
                    .filter(|(sent, answered, _)| {
                        sent > applied && until.is_none_or(|until| *answered < until)
                    })
                    .map(|(.., response)| response)
                    .collect();
                let first = since
                    .iter()
                    .position(|response| is_judged_by(*limit, response))
                    .expect("waited for above");
                // Never a refusal by a limit that is no longer true; the broker itself refuses by a lower one.
                assert!(
                    first == 0 || *limit < 2_500,
                    "limit {limit} v{version}: {:?}",
                    since[0]
                );
                assert!(
                    first <= SOON && since[..first].iter().all(|response| response.code == 10),
                    "limit {limit} v{version}: after {first} batches"
                );
                for response in &since[first..] {
                    // A broker that is too busy to be asked judges for itself.
                    let is_brokers = *limit < 2_500
                        && response.code == 10
                        && response
                            .text
                            .as_deref()
                            .is_some_and(|text| text.starts_with("sizegate let "));
                    assert!(
                        is_brokers || is_judged_by(*limit, response),
                        "limit {limit} v{version}: {response:?}"
                    );
                }
            }
        }
    }
}

/// Ends the producers also where an assertion fails.
struct OverWhenDropped<'a>(&'a AtomicBool);

impl Drop for OverWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_limit_just_raised_refuses_nothing() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(kafka, "");
        let topic = kafka.topic("raised", 1, &[("max.message.bytes", "1000")]);
        let mut connection = Connection::open(sizegate.bootstrap());
        for n in 1..=10_usize {
            let limit = 1_000 * n;
            assert!(
                text(&produce(&mut connection, 8, &topic, limit + 1))
                    .contains(&format!("limit_bytes={limit} "))
            );
            kafka.alter_topic_config(
                &topic.name,
                &[("max.message.bytes", Some(&(limit + 1_000).to_string()))],
            );
            applies(kafka, &topic, limit + 1_000);
            let response = produce(&mut connection, 13, &topic, limit + 1);
            assert_eq!(response.code, 0, "{response:?}");
        }
    }
}

#[test]
fn the_brokers_default_may_change_while_it_runs() {
    for version in KAFKA_VERSIONS {
        // A broker of its own: its default is everybody's.
        let kafka = Kafka::start(version, KafkaOptions::default());
        let sizegate = Sizegate::start(&kafka, "");
        let (inherits, own) = (
            kafka.topic("inherits", 1, &[]),
            kafka.topic("own", 1, &[("max.message.bytes", "6000")]),
        );
        let mut connection = Connection::open(sizegate.bootstrap());
        assert!(
            text(&produce(&mut connection, 8, &inherits, 1_048_589))
                .contains("limit_bytes=1048588 source=broker")
        );
        for (id, limit) in [("", 5_000), ("1", 4_000), ("1", 8_000)] {
            kafka.alter_broker_config(id, &[("message.max.bytes", Some(&limit.to_string()))]);
            applies(&kafka, &inherits, limit);
            let mut batches = 0;
            let words = format!("limit_bytes={limit} source=broker");
            eventually(PATIENCE, "the new default is in force", || {
                batches += 1;
                let response = produce(&mut connection, 13, &inherits, limit + 1);
                assert_eq!(response.code, 10, "whoever refuses it: {response:?}");
                response
                    .text
                    .as_deref()
                    .is_some_and(|text| text.contains(&words))
                    .then_some(())
            });
            assert!(batches <= SOON, "it took {batches} batches");
            assert_eq!(produce(&mut connection, 8, &inherits, limit).code, 0);
            assert!(
                text(&produce(&mut connection, 8, &own, 6_001))
                    .contains("limit_bytes=6000 source=topic")
            );
        }
        // Without any of these the built-in one is back.
        kafka.alter_broker_config("1", &[("message.max.bytes", None)]);
        kafka.alter_broker_config("", &[("message.max.bytes", None)]);
        eventually(PATIENCE, "the built-in default is in force", || {
            (produce(&mut connection, 8, &inherits, 1_000_000).code == 0).then_some(())
        });
    }
}

/// `message.max.bytes` may be set per broker, and the leader's counts: another's smaller number refuses nothing.
#[test]
fn where_brokers_have_different_defaults_the_leaders_counts() {
    let kafka = Kafka::start("4.4.0", KafkaOptions::nodes(2));
    let sizegate = Sizegate::start(&kafka, "");
    for (id, limit) in [("1", "3000"), ("2", "5000")] {
        let broker = kafka.node(id.parse().unwrap());
        admin::alter_broker_config(&broker, id, &[("message.max.bytes", Some(limit))]);
    }
    let topic = kafka.create_topic(&unique("apart"), 2, 1, &[]);
    let metadata = admin::metadata(&mut Connection::open(kafka.node(1)), &[&topic.name]);
    let leaders = metadata.topics[0].partitions.iter();
    let leaders: Vec<(i32, i32)> = leaders
        .map(|part| (part.partition_index, part.leader_id.0))
        .collect();
    let limit = |leader| if leader == 1 { 3_000 } else { 5_000 };
    for &(partition, leader) in &leaders {
        applies_at(&kafka.node(leader), &topic, partition, limit(leader));
    }
    std::thread::scope(|scope| {
        for (partition, leader) in leaders {
            let (sizegate, topic) = (&sizegate, &topic);
            scope.spawn(move || {
                let mut connection = Connection::open(sizegate.node(leader));
                for n in 0..60 {
                    let version = if n % 2 == 0 { 8 } else { 13 };
                    let mut send = |bytes| {
                        let part = Part::at(topic, partition, fresh(bytes));
                        connection.produce(version, -1, &[part]).remove(0)
                    };
                    let response = send(4_000);
                    if leader == 1 {
                        assert!(
                            text(&response).contains("limit_bytes=3000 source=broker"),
                            "{response:?}"
                        );
                    } else {
                        assert_eq!(response.code, 0, "{response:?}");
                    }
                    let response = send(5_001);
                    let words = format!("limit_bytes={} source=broker", limit(leader));
                    assert!(text(&response).contains(&words), "{response:?}");
                }
            });
        }
    });
}

#[test]
fn a_segment_smaller_than_the_limit_is_the_limit_and_no_client_sees_code_18() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(kafka, "");
        let topic = kafka.topic(
            "segment",
            1,
            &[
                ("max.message.bytes", "2097152"),
                ("segment.bytes", "1048576"),
            ],
        );
        let sent = [Part::new(&topic, fresh(1_048_577))];
        let direct = Connection::open(kafka.bootstrap())
            .produce(8, -1, &sent)
            .remove(0);
        assert_eq!(direct.code, 18, "the broker alone");
        for version in 3..=13 {
            let response = Connection::open(sizegate.bootstrap())
                .produce(version, -1, &sent)
                .remove(0);
            assert_eq!(response.code, 10, "v{version}: {response:?}");
            if version >= 8 {
                assert!(
                    text(&response)
                        .contains("size_bytes=1048577 limit_bytes=1048576 source=segment"),
                    "{response:?}"
                );
            }
        }
        let fits = produce(
            &mut Connection::open(sizegate.bootstrap()),
            8,
            &topic,
            1_048_576,
        );
        assert_eq!(fits.code, 0);
    }
}

#[test]
fn a_topic_created_anew_has_its_new_limit() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(kafka, "");
        let first = kafka.topic("anew", 1, &[("max.message.bytes", "2000")]);
        let mut connection = Connection::open(sizegate.bootstrap());
        for version in [8, 13] {
            assert!(
                text(&produce(&mut connection, version, &first, 2_001))
                    .contains("limit_bytes=2000 ")
            );
        }
        kafka.delete_topic(&first.name);
        let second = eventually(PATIENCE, "the topic is created again", || {
            std::panic::catch_unwind(|| {
                kafka.create_topic(&first.name, 1, 1, &[("max.message.bytes", "5000")])
            })
            .ok()
        });
        assert_ne!(first.id, second.id);
        for (version, topic) in [(8, &second), (13, &second), (8, &second)] {
            let response = produce(&mut connection, version, topic, 4_000);
            assert_eq!(response.code, 0, "v{version}: {response:?}");
        }
        eventually(PATIENCE, "the new limit is in force", || {
            let responses =
                [8, 13].map(|version| produce(&mut connection, version, &second, 5_001));
            assert!(
                responses.iter().all(|response| response.code == 10),
                "{responses:?}"
            );
            let is_ours = |response: &Response| {
                response
                    .text
                    .as_deref()
                    .is_some_and(|text| text.contains("limit_bytes=5000 "))
            };
            responses.iter().all(is_ours).then_some(())
        });
        // The old id is the broker's business.
        let response = produce(&mut connection, 13, &first, 4_000);
        assert_eq!(response.code, 100, "{response:?}");
        assert_eq!(produce(&mut connection, 13, &first, 2_001).code, 100);
    }
}

#[test]
fn a_batch_that_grows_when_the_broker_rewrites_it_is_refused_with_our_words() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(kafka, "");
        let topic = kafka.topic("stored", 1, &[("compression.type", "uncompressed")]);
        let records = batch([Record::of_a(1_880_000)]).codec(Codec::Gzip).build();
        let mut connection = Connection::open(sizegate.bootstrap());
        for version in [3, 8, 12, 13] {
            let response = connection
                .produce(version, -1, &[Part::new(&topic, records.clone())])
                .remove(0);
            assert_eq!(response.code, 10, "v{version}: {response:?}");
            if version >= 8 {
                let text = response.text.unwrap();
                assert!(text.starts_with("sizegate let "), "{text}");
                assert!(text.contains("refused_by=broker code=10"), "{text}");
            }
        }
        // Once the topic is known, so is the reason.
        let text = eventually(PATIENCE, "the reason", || {
            let response = connection
                .produce(8, -1, &[Part::new(&topic, records.clone())])
                .remove(0);
            response
                .text
                .filter(|text| text.contains("compression.type="))
        });
        // One record is one record, and numbers for people are grouped, as in our own refusals.
        for words in [
            "the broker refused it: the batch of 1 record is ",
            " bytes on the wire (codec=gzip",
            "the topic stores batches uncompressed (compression.type=uncompressed)",
            "its max.message.bytes of 1,048,588. Send less in one record, or set compression.type=producer",
            " codec=gzip records=1]",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert_eq!(produce(&mut connection, 8, &topic, 1_000_000).code, 0);
    }
}

#[test]
fn a_record_too_large_after_decompression_is_refused_with_our_words() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    let topic = kafka.topic(
        "inflated",
        1,
        &[("max.decompressed.message.bytes", "10000")],
    );
    let mut connection = Connection::open(sizegate.bootstrap());
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let records = batch([Record::of_a(20_000)]).codec(codec).build();
        let direct = Connection::open(kafka.bootstrap())
            .produce(8, -1, &[Part::new(&topic, records.clone())])
            .remove(0);
        assert_eq!(
            (direct.code, &direct.text),
            (87, &None),
            "{codec}: the broker alone says nothing"
        );
        for version in [8, 13] {
            let response = connection
                .produce(version, -1, &[Part::new(&topic, records.clone())])
                .remove(0);
            assert_eq!(response.code, 87, "{codec} v{version}");
            let text = response.text.unwrap_or_default();
            assert!(
                text.starts_with("sizegate let ")
                    && text.contains("max.decompressed.message.bytes (10,000)"),
                "{codec} v{version}: {text}"
            );
        }
    }
    // The limit is for compressed batches only.
    assert_eq!(produce(&mut connection, 8, &topic, 20_000).code, 0);
}

#[test]
fn a_compacted_topic_refuses_null_keys_in_the_brokers_own_words() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    let topic = kafka.topic("compacted", 1, &[("cleanup.policy", "compact")]);
    let sent = [Part::new(
        &topic,
        batch([Record::of_a(100)]).codec(Codec::Gzip).build(),
    )];
    let direct = Connection::open(kafka.bootstrap()).produce(8, -1, &sent);
    let proxied = Connection::open(sizegate.bootstrap()).produce(8, -1, &sent);
    assert_eq!(direct, proxied);
    assert_eq!(direct[0].code, 87);
    assert!(direct[0].text.is_some());
}

#[test]
fn what_was_counted_for_the_log_is_logged_at_sigterm() {
    let kafka = Kafka::shared("4.4.0");
    let topic = kafka.topic("last-words", 1, &[]);
    let mut sizegate = Sizegate::start(kafka, "limits: {batch_bytes: 2000}");
    let mut connection = Connection::open(sizegate.bootstrap());
    for _ in 0..5 {
        assert_eq!(produce(&mut connection, 8, &topic, 2_001).code, 10);
    }
    drop(connection);
    sizegate.process().signal("TERM");
    assert_eq!(sizegate.process().wait(PATIENCE), Some(0));
    sizegate.log_line(&["refus", "count=4", &topic.name]);
}

#[test]
fn a_broker_refusal_says_why_sizegate_knew_no_limit() {
    let kafka = Kafka::shared("4.4.0");
    let topic = kafka.topic("unguarded", 1, &[]);
    let rules = format!(
        "rules: [{{name: open, topics: [{}], limits: {{batch_bytes: none}}}}]",
        topic.name
    );
    for (yaml, why) in [
        (
            rules.as_str(),
            "rule \"open\" leaves batches to the broker (batch_bytes: none), and this one is most likely over",
        ),
        (
            "limits: {batch_bytes: none}",
            "the default leaves batches to the broker (batch_bytes: none), and this one is most likely over",
        ),
    ] {
        let sizegate = Sizegate::start(kafka, yaml);
        let mut connection = Connection::open(sizegate.bootstrap());
        let response = produce(&mut connection, 8, &topic, 1_048_589);
        let text = response.text.unwrap_or_default();
        assert!(
            response.code == 10 && text.starts_with("sizegate let "),
            "{text}"
        );
        assert!(text.contains(why), "{text}");
    }
}

#[test]
fn without_acks_a_refusal_closes_and_a_limit_just_raised_does_not() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(kafka, "");
        let topic = kafka.topic("silent", 1, &[("max.message.bytes", "2000")]);
        let send = |version: i16, bytes: usize| {
            let mut connection = Connection::open(sizegate.bootstrap());
            connection.send_produce(version, 0, &[Part::new(&topic, fresh(bytes))]);
            connection
        };
        for version in [3, 8, 13] {
            assert!(
                send(version, 2_001).is_closed_within(PATIENCE),
                "v{version}"
            );
        }
        kafka.alter_topic_config(&topic.name, &[("max.message.bytes", Some("3000"))]);
        applies(kafka, &topic, 3_000);
        std::thread::sleep(Duration::from_millis(110));
        let before = kafka.latest_offset(&topic.name, 0);
        for version in [3, 8, 13] {
            let mut connection = send(version, 2_001);
            assert_eq!(
                produce(&mut connection, version, &topic, 100).code,
                0,
                "v{version}: the connection lives"
            );
        }
        assert_eq!(kafka.latest_offset(&topic.name, 0), before + 6);
    }
}
