//! What consumers are served: sizes by topic, batches above a consumer's own settings, and consumers that do not get
//! past a large one. Requests and answers pass unchanged.

use std::time::Duration;

use crate::support::admin::metadata;
use crate::support::client::{frame, text};
use crate::support::{
    Connection, KAFKA_VERSIONS, Kafka, Part, Program, Record, Sizegate, Topic, batch,
    batch_of_bytes, eventually,
};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use kafka_protocol::messages::fetch_response::{
    FetchResponse, FetchableTopicResponse, NodeEndpoint, PartitionData,
};
use kafka_protocol::messages::{BrokerId, ResponseHeader, TopicName};
use kafka_protocol::protocol::{Encodable, HeaderVersion};
use serde_json::Value;
use sizegate::wire::fetch::{Ask, Asked, FetchAnswer, FetchRequest as Reader, Served, VERSIONS};
use sizegate::wire::produce::TopicKey;
use sizegate::wire::walk::{FETCH_ANSWER, Walker};
use uuid::Uuid;

fn topic(n: u128) -> Topic {
    Topic {
        name: format!("topic-{n}"),
        id: Uuid::from_u128(n),
    }
}

/// All partitions of these topics, from these offsets.
fn asks(topics: &[(Topic, Vec<Ask>)], max_bytes: i32) -> FetchRequest {
    let entry = |(topic, asks): &(Topic, Vec<Ask>)| {
        let partitions = asks.iter().map(|ask| {
            FetchPartition::default()
                .with_partition(ask.partition)
                .with_fetch_offset(ask.offset)
                .with_partition_max_bytes(ask.max_bytes)
        });
        FetchTopic::default()
            .with_topic(TopicName(text(&topic.name)))
            .with_topic_id(topic.id)
            .with_partitions(partitions.collect())
    };
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(200)
        .with_min_bytes(1)
        .with_max_bytes(max_bytes)
        .with_session_epoch(-1)
        .with_topics(topics.iter().map(entry).collect())
}

fn ask(partition: i32, offset: i64, max_bytes: i32) -> Ask {
    Ask {
        partition,
        offset,
        max_bytes,
    }
}

fn name_of(key: TopicKey<'_>) -> String {
    match key {
        TopicKey::Name(name) => String::from_utf8(name.to_vec()).unwrap(),
        TopicKey::Id(id) => format!("topic-{}", Uuid::from_bytes(id).as_u128()),
    }
}

#[derive(Debug, Default, PartialEq)]
struct Told(Vec<String>);

impl Asked for Told {
    fn client_id(&mut self, client_id: Option<&[u8]>) {
        self.0.push(format!("client {client_id:?}"));
    }

    fn begins(&mut self, max_bytes: i32, starts_anew: bool) {
        self.0.push(format!("{max_bytes} anew {starts_anew}"));
    }

    fn partition(&mut self, topic: TopicKey<'_>, ask: Ask) {
        self.0.push(format!("{} {ask:?}", name_of(topic)));
    }
}

impl Served for Told {
    fn topic(&mut self, topic: TopicKey<'_>) {
        self.0.push(format!("topic {}", name_of(topic)));
    }

    fn first(&mut self, topic: TopicKey<'_>, partition: i32, wire_bytes: u64) {
        self.0
            .push(format!("first {}-{partition} {wire_bytes}", name_of(topic)));
    }

    fn batch(&mut self, wire_bytes: u64) {
        self.0.push(format!("batch {wire_bytes}"));
    }
}

#[test]
fn a_request_is_understood_in_every_version_in_whatever_pieces_it_comes() {
    let topics = [
        (
            topic(1),
            vec![ask(0, 17, 1_000), ask(3, i64::MAX, i32::MAX)],
        ),
        (topic(2), vec![]),
        (topic(3), vec![ask(7, 0, 1)]),
    ];
    for version in VERSIONS {
        for (epoch, starts_anew) in [(-1, true), (0, true), (5, false)] {
            if version < 7 && epoch != -1 {
                continue; // no sessions yet
            }
            let request = asks(&topics, 50_000).with_session_epoch(epoch);
            let bytes = frame(&request, version, 9, Some("checkout"));
            let mut expected = vec![
                format!("client {:?}", Some(b"checkout")),
                format!("50000 anew {starts_anew}"),
            ];
            for (topic, asks) in &topics {
                expected.extend(asks.iter().map(|ask| format!("{} {ask:?}", topic.name)));
            }
            for size in [1, 2, 3, 7, 50, bytes.len()] {
                let (mut reader, mut told) = (Reader::new(version, bytes.len()), Told::default());
                for piece in bytes.chunks(size) {
                    reader.read(piece, &mut told).unwrap();
                }
                assert_eq!(told.0, expected, "v{version} in pieces of {size}");
            }
        }
    }
}

/// An answer's body, from behind its correlation id.
fn answer_bytes(response: &FetchResponse, version: i16) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    let header = ResponseHeader::default().with_correlation_id(9);
    header
        .encode(&mut bytes, FetchResponse::header_version(version))
        .unwrap();
    response.encode(&mut bytes, version).unwrap();
    bytes[4..].to_vec()
}

/// Partitions and their records.
type Partitions = Vec<(i32, Option<Bytes>)>;

fn serves(topics: Vec<(Topic, Partitions)>) -> FetchResponse {
    let responses = topics.into_iter().map(|(topic, partitions)| {
        let partitions = partitions.into_iter().map(|(index, records)| {
            PartitionData::default()
                .with_partition_index(index)
                .with_records(records)
        });
        FetchableTopicResponse::default()
            .with_topic(TopicName(text(&topic.name)))
            .with_topic_id(topic.id)
            .with_partitions(partitions.collect())
    });
    FetchResponse::default().with_responses(responses.collect())
}

fn told_of(bytes: &[u8], version: i16, size: usize) -> Told {
    let (mut answer, mut told) = (FetchAnswer::default(), Told::default());
    let mut walker = Walker::new(&FETCH_ANSWER, version, bytes.len() as u64);
    for piece in bytes.chunks(size) {
        walker
            .advance(piece, &mut answer.seen_by(&mut told))
            .unwrap();
    }
    assert!(walker.is_at_tail());
    told
}

#[test]
fn the_batches_of_an_answer_are_counted_in_every_version_in_whatever_pieces_it_comes() {
    let batches = [100, 5_000, 70].map(|bytes| batch_of_bytes(bytes).build());
    let all = batches.concat();
    let cut = [&all[..], &batch_of_bytes(9_000).build()[..8_999]].concat();
    let old = [&[0; 8][..], &14_i32.to_be_bytes(), &[0; 4], &[1], &[0; 9]].concat();
    let topics = vec![
        (
            topic(1),
            vec![(0, Some(all.into())), (1, None), (2, Some(Bytes::new()))],
        ),
        (topic(2), vec![(5, Some(cut.into())), (6, Some(old.into()))]),
        (topic(3), vec![]),
    ];
    let endpoint = NodeEndpoint::default()
        .with_node_id(BrokerId(1))
        .with_host(text("b1"))
        .with_port(9092);
    let expected = [
        "topic topic-1",
        "first topic-1-0 100",
        "batch 100",
        "batch 5000",
        "batch 70",
        "topic topic-2",
        "first topic-2-5 100",
        "batch 100",
        "batch 5000",
        "batch 70",
        "first topic-2-6 26",
        "batch 26",
        "topic topic-3",
    ];
    for version in VERSIONS {
        let mut response = serves(topics.clone());
        if version >= 16 {
            response = response.with_node_endpoints(vec![endpoint.clone()]);
        }
        let bytes = answer_bytes(&response, version);
        for size in [1, 2, 5, 16, 17, 18, 61, 1_000, bytes.len()] {
            assert_eq!(
                told_of(&bytes, version, size).0,
                expected,
                "v{version} in pieces of {size}: the batch that was cut is not served"
            );
        }
    }
}

#[test]
fn records_that_are_no_batches_are_passed_over() {
    for (length, magic) in [(-1_i32, 2), (13, 2), (i32::MIN, 0), (100, 3), (100, 255)] {
        let head = [&[0; 8][..], &length.to_be_bytes(), &[0; 4], &[magic]].concat();
        let junk = [head, batch_of_bytes(500).build().to_vec()].concat();
        let topics = vec![(
            topic(1),
            vec![
                (0, Some(junk.into())),
                (1, Some(batch_of_bytes(80).build())),
            ],
        )];
        let bytes = answer_bytes(&serves(topics), 12);
        assert_eq!(
            told_of(&bytes, 12, 10).0,
            ["topic topic-1", "first topic-1-1 80", "batch 80"],
            "length {length}, magic {magic}"
        );
    }
}

/// Fetches partition 0 from an offset and returns the bytes of its records.
fn fetch(
    connection: &mut Connection,
    version: i16,
    topic: &Topic,
    offset: i64,
    (partition_max_bytes, max_bytes): (i32, i32),
) -> usize {
    let topics = [(topic.clone(), vec![ask(0, offset, partition_max_bytes)])];
    let answer = connection.ask(&asks(&topics, max_bytes), version);
    served(&answer)
}

fn served(answer: &FetchResponse) -> usize {
    let partitions = answer.responses.iter().flat_map(|topic| &topic.partitions);
    partitions
        .map(|partition| {
            assert_eq!(partition.error_code, 0);
            partition.records.as_ref().map_or(0, Bytes::len)
        })
        .sum()
}

fn of(sizegate: &Sizegate, kind: &str, topic: &Topic) -> Vec<Value> {
    let all = sizegate.json("/api/v1/fetch");
    let all = all[kind].as_array().unwrap();
    let of_topic = |seen: &&Value| seen["topic"] == topic.name.as_str();
    all.iter().filter(of_topic).cloned().collect()
}

fn metric(sizegate: &Sizegate, name: &str, topic: &Topic) -> f64 {
    sizegate.metrics().sum(name, &[("topic", &topic.name)])
}

/// The batches here bear old timestamps: they must not be deleted for it.
const LARGE_TOPIC: &[(&str, &str)] = &[("max.message.bytes", "4194304"), ("retention.ms", "-1")];
const LARGE: usize = 300_000;
const ENOUGH: (i32, i32) = (1 << 20, 50 << 20);

/// A topic whose partition 0 holds batches of these sizes, written past the proxy and known to it.
fn filled(kafka: &Kafka, sizegate: &Sizegate, stem: &str, sizes: &[usize]) -> Topic {
    let topic = kafka.topic(stem, 1, LARGE_TOPIC);
    let mut connection = Connection::open(kafka.bootstrap().as_str());
    for &size in sizes {
        let records = batch_of_bytes(size).build();
        assert_eq!(
            connection.produce(9, -1, &[Part::new(&topic, records)])[0].code,
            0
        );
    }
    // As every consumer does before it fetches.
    metadata(&mut Connection::open(sizegate.bootstrap()), &[&topic.name]);
    let path = format!("/api/v1/topics?topic={}", topic.name);
    eventually(Duration::from_secs(60), "the topic known", || {
        let topics = sizegate.json(&path);
        (!topics["topics"].as_array().unwrap().is_empty()).then_some(())
    });
    topic
}

#[test]
fn what_is_served_is_counted_by_size_in_every_version_and_passes_unchanged() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(kafka, "");
        let topic = filled(kafka, &sizegate, "served", &[1_000, LARGE, 70]);
        let mut direct = Connection::open(kafka.bootstrap().as_str());
        let mut connection = Connection::open(sizegate.bootstrap());
        let mut times = 0.0;
        for version in VERSIONS {
            let topics = [(topic.clone(), vec![ask(0, 0, ENOUGH.0)])];
            let request = asks(&topics, ENOUGH.1);
            let (ours, theirs) = (
                connection.ask(&request, version),
                direct.ask(&request, version),
            );
            assert_eq!(ours, theirs, "v{version}");
            assert_eq!(served(&ours), 1_000 + LARGE + 70);
            times += 1.0;
            assert_eq!(
                metric(&sizegate, "fetch_batch_bytes_count", &topic),
                3.0 * times
            );
        }
        assert_eq!(
            metric(&sizegate, "fetch_batch_bytes_sum", &topic),
            times * (1_070 + LARGE) as f64
        );
        assert!(of(&sizegate, "oversized", &topic).is_empty());
        assert_eq!(metric(&sizegate, "fetch_oversized_total", &topic), 0.0);
        // The first batch at the offset is small: whatever it is that comes again, it is not a large batch.
        assert!(of(&sizegate, "stuck", &topic).is_empty());
    }
}

#[test]
fn batches_above_the_consumers_own_settings_pass_and_are_told_with_the_consumer() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    for (version, limits, setting, bytes) in [
        (4, (1_024, 50 << 20), "max.partition.fetch.bytes", 1_024),
        (
            11,
            (LARGE as i32 - 1, 50 << 20),
            "max.partition.fetch.bytes",
            LARGE - 1,
        ),
        (12, (1 << 20, 2_000), "fetch.max.bytes", 2_000),
        (
            17,
            (LARGE as i32, LARGE as i32 - 1),
            "fetch.max.bytes",
            LARGE - 1,
        ),
    ] {
        let topic = filled(kafka, &sizegate, "oversized", &[LARGE]);
        let mut connection = Connection::open(sizegate.bootstrap());
        connection.client_id = Some(format!("reader-{version}"));
        connection.api_versions("apache-kafka-java", "4.3.0");
        assert_eq!(fetch(&mut connection, version, &topic, 0, limits), LARGE);
        assert_eq!(
            fetch(
                &mut connection,
                version,
                &topic,
                0,
                (LARGE as i32, LARGE as i32)
            ),
            LARGE
        );
        let seen = of(&sizegate, "oversized", &topic);
        assert_eq!(seen.len(), 1, "v{version}: {seen:?}");
        let seen = &seen[0];
        assert_eq!(
            (
                &seen["setting"],
                &seen["setting_bytes"],
                &seen["batch_bytes"],
                &seen["count"]
            ),
            (&setting.into(), &bytes.into(), &LARGE.into(), &1.into())
        );
        assert_eq!(
            (&seen["client_id"], &seen["software"], &seen["offset"]),
            (
                &format!("reader-{version}").into(),
                &"apache-kafka-java/4.3.0".into(),
                &0.into()
            )
        );
        assert!(
            seen["note"]
                .as_str()
                .unwrap()
                .contains("heap of this consumer")
        );
        assert_eq!(metric(&sizegate, "fetch_oversized_total", &topic), 1.0);
        let line = sizegate.log_line(&["sizegate::fetch", &topic.name]);
        assert!(
            line.contains(&format!("setting={setting} setting_bytes={bytes}")),
            "{line}"
        );
    }
}

#[test]
fn a_consumer_that_asks_for_a_large_batch_again_and_again_is_stuck() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    let topic = filled(kafka, &sizegate, "stuck", &[500, LARGE, 700]);
    for version in [4, 12, 13, 17] {
        let client_id = format!("stuck-{version}");
        let connect = || {
            let mut connection = Connection::open(sizegate.bootstrap());
            connection.client_id = Some(client_id.clone());
            connection
        };
        let stuck = || {
            let all = of(&sizegate, "stuck", &topic);
            all.into_iter()
                .find(|seen| seen["client_id"] == client_id.as_str())
        };
        let mut connection = connect();
        // On its way: twice may be chance, and whoever moves on is not stuck.
        for _ in 0..3 {
            for offset in [0, 1, 1, 2] {
                fetch(&mut connection, version, &topic, offset, ENOUGH);
            }
        }
        assert_eq!(stuck(), None, "v{version}");
        fetch(&mut connection, version, &topic, 1, ENOUGH);
        fetch(&mut connection, version, &topic, 1, ENOUGH);
        assert_eq!(stuck(), None, "v{version}");
        // Restarted: another connection.
        let mut connection = connect();
        fetch(&mut connection, version, &topic, 1, ENOUGH);
        let seen = stuck().expect("three times in a row");
        assert_eq!(
            (
                &seen["partition"],
                &seen["offset"],
                &seen["batch_bytes"],
                &seen["served"]
            ),
            (&0.into(), &1.into(), &LARGE.into(), &3.into())
        );
        fetch(&mut connection, version, &topic, 1, ENOUGH);
        assert_eq!(stuck().unwrap()["served"], 4);
    }
    assert_eq!(metric(&sizegate, "fetch_stuck_total", &topic), 8.0);
    let line = sizegate.log_line(&["sizegate::fetch", "level=warn", &topic.name, "stuck-12"]);
    assert!(
        line.contains("partition=0 offset=1") && line.contains("served=3"),
        "{line}"
    );
}

#[test]
fn with_a_fetch_session_what_is_not_named_again_is_still_asked_for() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    for version in [7, 12, 13, 17] {
        let topic = filled(kafka, &sizegate, "session", &[LARGE]);
        let mut connection = Connection::open(sizegate.bootstrap());
        let topics = [(topic.clone(), vec![ask(0, 0, 1_024)])];
        let first = connection.ask(&asks(&topics, 50 << 20).with_session_epoch(0), version);
        assert_eq!(served(&first), LARGE);
        assert_ne!(first.session_id, 0);
        for epoch in 1..4 {
            // Nothing is named: the broker serves the same offset again.
            let next = asks(&[], 50 << 20)
                .with_session_id(first.session_id)
                .with_session_epoch(epoch);
            assert_eq!(served(&connection.ask(&next, version)), LARGE);
        }
        assert_eq!(
            metric(&sizegate, "fetch_oversized_total", &topic),
            4.0,
            "v{version}"
        );
        assert_eq!(of(&sizegate, "stuck", &topic)[0]["served"], 4, "v{version}");
        // The session goes on behind it.
        let topics = [(topic.clone(), vec![ask(0, 1, 1_024)])];
        let past = asks(&topics, 50 << 20)
            .with_session_id(first.session_id)
            .with_session_epoch(4);
        assert_eq!(served(&connection.ask(&past, version)), 0);
        assert_eq!(fetch(&mut connection, version, &topic, 0, ENOUGH), LARGE);
        assert_eq!(metric(&sizegate, "fetch_stuck_total", &topic), 2.0);
    }
}

#[test]
fn several_fetches_in_flight_are_counted_and_not_judged() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    let topic = filled(kafka, &sizegate, "pipelined", &[LARGE, LARGE]);
    let mut connection = Connection::open(sizegate.bootstrap());
    let at = |offset, max_bytes| {
        asks(
            &[(topic.clone(), vec![ask(0, offset, max_bytes)])],
            50 << 20,
        )
    };
    for _ in 0..5 {
        connection.send(&at(0, LARGE as i32), 12);
        connection.send(&at(1, 10), 12);
        for _ in 0..2 {
            assert_eq!(served(&connection.receive::<FetchResponse>(12).1), LARGE);
        }
    }
    assert_eq!(metric(&sizegate, "fetch_batch_bytes_count", &topic), 10.0);
    assert!(metric(&sizegate, "fetch_oversized_total", &topic) <= 5.0);
    assert!(
        of(&sizegate, "oversized", &topic)
            .iter()
            .all(|seen| seen["offset"] == 1)
    );
}

#[test]
fn a_java_consumer_that_cannot_deserialise_a_large_record_is_found_after_its_third_start() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    let topic = kafka.topic("failing", 1, LARGE_TOPIC);
    let mut connection = Connection::open(kafka.bootstrap().as_str());
    for value_bytes in [100, 2_000_000] {
        let records = batch([Record::of_a(value_bytes)]).build();
        assert_eq!(
            connection.produce(9, -1, &[Part::new(&topic, records)])[0].code,
            0
        );
    }
    let output = Program::java("FailingConsumer", "4.4.0")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("p.client.id", "importer")
        .arg("starts", 4)
        .run();
    for line in &output.lines {
        assert_eq!(line["ended"], "RecordDeserializationException", "{line}");
    }
    let seen = of(&sizegate, "oversized", &topic);
    assert_eq!(
        (
            &seen[0]["client_id"],
            &seen[0]["software"],
            &seen[0]["setting"]
        ),
        (
            &"importer".into(),
            &"apache-kafka-java/4.4.0".into(),
            &"max.partition.fetch.bytes".into()
        )
    );
    let stuck = of(&sizegate, "stuck", &topic);
    assert_eq!(stuck.len(), 1, "{stuck:?}");
    assert_eq!(
        (&stuck[0]["client_id"], &stuck[0]["offset"]),
        (&"importer".into(), &1.into())
    );
    assert!(stuck[0]["served"].as_u64().unwrap() >= 3, "{stuck:?}");
}
