//! What consumers are served: sizes by topic, batches above a consumer's own settings, and consumers that do not get
//! past a large one. Requests and responses pass unchanged.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::admin::metadata;
use crate::support::client::{frame, text};
use crate::support::programs::properties;
use crate::support::{
    Connection, KAFKA_VERSIONS, Kafka, Part, Program, Record, Sizegate, Topic, batch,
    batch_of_bytes, eventually,
};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use kafka_protocol::messages::fetch_response::{
    FetchResponse, FetchableTopicResponse, NodeEndpoint, PartitionData,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_fetch_request::OffsetFetchRequestGroup;
use kafka_protocol::messages::{
    BrokerId, ConsumerGroupHeartbeatRequest, GroupId, JoinGroupRequest, ListOffsetsRequest,
    OffsetFetchRequest, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Encodable, HeaderVersion, Request};
use serde_json::Value;
use sizegate::wire::consumer::{ConsumerRequest, Positioned};
use sizegate::wire::fetch::{
    PartitionRequest, RequestReader, RequestVisitor, ResponseReader, ResponseVisitor, VERSIONS,
};
use sizegate::wire::produce::TopicKey;
use sizegate::wire::walk::{FETCH_RESPONSE, Walker};
use uuid::Uuid;

fn topic(n: u128) -> Topic {
    Topic {
        name: format!("topic-{n}"),
        id: Uuid::from_u128(n),
    }
}

/// All partitions of these topics, from these offsets.
fn asks(topics: &[(Topic, Vec<PartitionRequest>)], max_bytes: i32) -> FetchRequest {
    let entry = |(topic, asks): &(Topic, Vec<PartitionRequest>)| {
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

fn ask(partition: i32, offset: i64, max_bytes: i32) -> PartitionRequest {
    PartitionRequest {
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

impl RequestVisitor for Told {
    fn client_id(&mut self, client_id: Option<&[u8]>) {
        self.0.push(format!("client {client_id:?}"));
    }

    fn begins(&mut self, max_bytes: i32, starts_anew: bool) {
        self.0.push(format!("{max_bytes} anew {starts_anew}"));
    }

    fn partition(&mut self, topic: TopicKey<'_>, ask: PartitionRequest) {
        self.0.push(format!("{} {ask:?}", name_of(topic)));
    }
}

impl ResponseVisitor for Told {
    fn topic(&mut self, topic: TopicKey<'_>) {
        self.0.push(format!("topic {}", name_of(topic)));
    }

    fn first(&mut self, topic: TopicKey<'_>, partition: i32, wire_bytes: u64) -> bool {
        self.0
            .push(format!("first {}-{partition} {wire_bytes}", name_of(topic)));
        true
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
                let (mut reader, mut told) =
                    (RequestReader::new(version, bytes.len()), Told::default());
                for piece in bytes.chunks(size) {
                    reader.read(piece, &mut told).unwrap();
                }
                assert_eq!(told.0, expected, "v{version} in pieces of {size}");
            }
        }
    }
}

#[derive(Debug, Default, PartialEq)]
struct Position(Vec<String>);

impl Positioned for Position {
    fn client_id(&mut self, client_id: Option<&[u8]>) {
        self.0.push(format!("client {client_id:?}"));
    }

    fn group(&mut self, group_id: &[u8]) {
        self.0
            .push(format!("group {}", String::from_utf8_lossy(group_id)));
    }

    fn joins(&mut self, has_member_id: bool) {
        self.0.push(format!("joins {has_member_id}"));
    }

    fn is_in(&mut self, member_id: &[u8], epoch: i32) {
        self.0
            .push(format!("{} in {epoch}", String::from_utf8_lossy(member_id)));
    }

    fn resets(&mut self, topic: &[u8], partition: i32) {
        self.0.push(format!(
            "resets {}-{partition}",
            String::from_utf8_lossy(topic)
        ));
    }
}

/// What is seen of a request in every version of it, in whatever pieces it comes.
fn position_of<R: Request>(requests: impl Fn(i16) -> R, expected: &[&str]) {
    let versions = R::VERSIONS;
    for version in versions.min..=versions.max {
        let bytes = frame(&requests(version), version, 9, Some("checkout"));
        let client = format!("client {:?}", Some(b"checkout"));
        for size in [1, 2, 7, bytes.len()] {
            let mut seen = Position::default();
            let mut reader = ConsumerRequest::new(R::KEY, version, bytes.len()).unwrap();
            for piece in bytes.chunks(size) {
                reader.read(piece, &mut seen).unwrap();
            }
            assert_eq!(seen.0[0], client);
            assert_eq!(seen.0[1..], *expected, "{} v{version}", R::KEY);
        }
        // Whatever else it is: no more than an error.
        for at in 0..bytes.len() {
            let mut broken = bytes.clone();
            broken[at] ^= 0xff;
            let mut reader = ConsumerRequest::new(R::KEY, version, broken.len()).unwrap();
            let _ = reader.read(&broken, &mut Position::default());
        }
        let unknown = versions.max + 20;
        assert!(ConsumerRequest::new(R::KEY, unknown, bytes.len()).is_none());
    }
}

#[test]
fn how_a_consumer_came_to_an_offset_is_understood_in_every_version() {
    for (member_id, expected) in [("", "joins false"), ("importer-1", "joins true")] {
        let join = JoinGroupRequest::default()
            .with_group_id(GroupId(text("importers")))
            .with_member_id(text(member_id))
            .with_protocol_type(text("consumer"));
        position_of(|_| join.clone(), &["group importers", expected]);
    }
    let heartbeat = ConsumerGroupHeartbeatRequest::default()
        .with_group_id(GroupId(text("importers")))
        .with_member_id(text("importer-1"))
        .with_member_epoch(7);
    let expected = ["group importers", "importer-1 in 7"];
    position_of(|_| heartbeat.clone(), &expected);
    let committed = |version: i16| {
        let request = OffsetFetchRequest::default();
        if version < 8 {
            return request.with_group_id(GroupId(text("importers")));
        }
        let groups = ["importers", "others"]
            .map(|name| OffsetFetchRequestGroup::default().with_group_id(GroupId(text(name))));
        request.with_groups(groups.to_vec())
    };
    position_of(committed, &["group importers"]);
    let list = |_| {
        // The beginning, the end, a time.
        let partitions = [(0, -2), (1, -1), (2, 1_790_000_000_000)].map(|(index, timestamp)| {
            ListOffsetsPartition::default()
                .with_partition_index(index)
                .with_timestamp(timestamp)
        });
        let topic = ListOffsetsTopic::default()
            .with_name(TopicName(text("orders")))
            .with_partitions(partitions.to_vec());
        ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_topics(vec![topic])
    };
    position_of(list, &["resets orders-0", "resets orders-2"]);
}

/// A response's body, from behind its correlation id.
fn response_bytes(response: &FetchResponse, version: i16) -> Vec<u8> {
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
    let (mut response, mut told) = (ResponseReader::default(), Told::default());
    let mut walker = Walker::new(&FETCH_RESPONSE, version, bytes.len() as u64);
    for piece in bytes.chunks(size) {
        walker
            .advance(piece, &mut response.seen_by(&mut told))
            .unwrap();
    }
    assert!(walker.is_at_tail());
    told
}

#[test]
fn the_batches_of_a_response_are_counted_in_every_version_in_whatever_pieces_it_comes() {
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
        let bytes = response_bytes(&response, version);
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
        let bytes = response_bytes(&serves(topics), 12);
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
    let response = connection.ask(&asks(&topics, max_bytes), version);
    served(&response)
}

fn served(response: &FetchResponse) -> usize {
    let partitions = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions);
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

/// Waits until so many connections are open.
fn gone(sizegate: &Sizegate, left: f64) {
    eventually(Duration::from_secs(60), "connections gone", || {
        (sizegate.metrics().sum("connections", &[]) == left).then_some(())
    });
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
        // All of the second in the first response alone: what follows is a sample (`passing.rs`).
        let topic = filled(kafka, &sizegate, "served", &[1_000, 20_000, 70]);
        let large = filled(kafka, &sizegate, "large", &[1_000, LARGE, 70]);
        let mut direct = Connection::open(kafka.bootstrap().as_str());
        let mut connection = Connection::open(sizegate.bootstrap());
        let mut times = 0.0;
        for version in VERSIONS {
            for (topic, bytes) in [(&topic, 21_070), (&large, 1_070 + LARGE)] {
                let topics = [(topic.clone(), vec![ask(0, 0, ENOUGH.0)])];
                let request = asks(&topics, ENOUGH.1);
                let (ours, theirs) = (
                    connection.ask(&request, version),
                    direct.ask(&request, version),
                );
                assert_eq!(ours, theirs, "v{version}");
                assert_eq!(served(&ours), bytes);
            }
            times += 1.0;
            assert_eq!(
                metric(&sizegate, "fetch_batch_bytes_count", &topic),
                3.0 * times
            );
        }
        assert_eq!(
            metric(&sizegate, "fetch_batch_bytes_sum", &topic),
            times * 21_070.0
        );
        assert_eq!(metric(&sizegate, "fetch_batch_bytes_count", &large), 3.0);
        assert!(of(&sizegate, "oversized", &large).is_empty());
        assert_eq!(metric(&sizegate, "fetch_oversized_total", &large), 0.0);
        // The first batch at the offset is small: whatever it is that comes again, it is not a large batch.
        assert!(of(&sizegate, "stuck", &large).is_empty());
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
        // On its way: twice may be chance.
        for offset in [0, 1, 2, 1, 2] {
            fetch(&mut connection, version, &topic, offset, ENOUGH);
        }
        assert_eq!(stuck(), None, "v{version}");
        // Others that read beside it are none of its business.
        let mut beside = [connect(), connect(), connect()];
        for offset in [1, 2] {
            for other in &mut beside {
                fetch(other, version, &topic, offset, ENOUGH);
            }
        }
        assert_eq!(stuck(), None, "v{version}");
        // Restarted: another connection, once the proxy has seen the end of the first.
        drop(connection);
        gone(&sizegate, 3.0);
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
        // What was asked for beyond it says nothing: clients fetch ahead of their application.
        fetch(&mut connection, version, &topic, 2, ENOUGH);
        fetch(&mut connection, version, &topic, 1, ENOUGH);
        assert_eq!(stuck().unwrap()["served"], 4);
        drop((connection, beside));
        gone(&sizegate, 0.0);
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
        // The session goes on behind it, and another connection is another consumer.
        let topics = [(topic.clone(), vec![ask(0, 1, 1_024)])];
        let past = asks(&topics, 50 << 20)
            .with_session_id(first.session_id)
            .with_session_epoch(4);
        assert_eq!(served(&connection.ask(&past, version)), 0);
        let mut other = Connection::open(sizegate.bootstrap());
        assert_eq!(fetch(&mut other, version, &topic, 0, ENOUGH), LARGE);
        assert_eq!(metric(&sizegate, "fetch_stuck_total", &topic), 2.0);
        // And comes back.
        assert_eq!(fetch(&mut connection, version, &topic, 0, ENOUGH), LARGE);
        assert_eq!(of(&sizegate, "stuck", &topic)[0]["served"], 5, "v{version}");
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

/// A topic of a small record, a large one and a small one, each in a batch of its own.
fn with_a_large_record(kafka: &Kafka, stem: &str) -> Topic {
    let topic = kafka.topic(stem, 1, LARGE_TOPIC);
    let mut connection = Connection::open(kafka.bootstrap().as_str());
    for value_bytes in [100, LARGE, 100] {
        let records = batch([Record::of_a(value_bytes)]).build();
        assert_eq!(
            connection.produce(9, -1, &[Part::new(&topic, records)])[0].code,
            0
        );
    }
    topic
}

/// Which clients are found stuck at a topic's large record: client id, the offset they come back to, the batch's.
fn found(sizegate: &Sizegate, topic: &Topic) -> Vec<(String, i64, i64)> {
    let all = of(sizegate, "stuck", topic);
    let found = all.iter().map(|seen| {
        assert!(
            seen["batch_bytes"].as_u64().unwrap() > LARGE as u64,
            "{seen}"
        );
        assert!(seen["served"].as_u64().unwrap() >= 3, "{seen}");
        (
            seen["client_id"].as_str().unwrap().to_owned(),
            seen["offset"].as_i64().unwrap(),
            seen["batch_offset"].as_i64().unwrap(),
        )
    });
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}

fn stuck_at(client_id: &str, offset: i64) -> (String, i64, i64) {
    (client_id.to_owned(), offset, 1)
}

#[test]
fn java_consumers_that_come_back_to_a_large_record_are_found_whatever_brings_them_back() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    for (version, protocol) in [
        ("4.4.0", "classic"),
        ("4.4.0", "consumer"),
        ("3.9.1", "classic"),
    ] {
        let topic = with_a_large_record(kafka, "returning");
        Program::java("Returning", version)
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .arg("modes", "seek,rewind,restart,fresh,deserialize")
            .arg("p.group.protocol", protocol)
            .run();
        assert_eq!(
            found(&sizegate, &topic),
            [
                stuck_at("deserialize", 1),
                stuck_at("fresh", 0),
                stuck_at("restart", 1),
                stuck_at("rewind", 0),
                stuck_at("seek", 1)
            ],
            "{version} {protocol}"
        );
    }
}

#[test]
fn a_java_consumer_that_is_thrown_out_of_its_group_over_a_large_record_is_found() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    let topic = with_a_large_record(kafka, "slow");
    Program::java("Returning", "4.4.0")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("modes", "slow")
        .arg("p.max.poll.interval.ms", 1_000)
        .run();
    assert_eq!(found(&sizegate, &topic), [stuck_at("slow", 0)]);
}

#[test]
fn a_java_consumer_that_keeps_what_it_cannot_deserialise_asks_for_nothing_again() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    let topic = with_a_large_record(kafka, "keeps");
    let output = Program::java("Returning", "4.4.0")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("modes", "keeps")
        .run();
    assert_eq!(output.only("did", "keeps")["failed"], 80);
    assert_eq!(metric(&sizegate, "fetch_batch_bytes_count", &topic), 3.0);
    assert_eq!(found(&sizegate, &topic), []);
}

#[test]
fn java_consumers_that_read_again_for_other_reasons_are_not() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    for (version, protocol, more) in [
        ("4.4.0", "classic", ",rebalances"),
        ("4.4.0", "consumer", ""),
        ("3.9.1", "classic", ",rebalances"),
    ] {
        let topic = with_a_large_record(kafka, "innocent");
        Program::java("Returning", version)
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            // Where only the broker says how often members are heard, rebalances take half a minute.
            .arg("modes", format!("groups,mirrors,beginning,table{more}"))
            .arg("p.heartbeat.interval.ms", 200)
            .arg("p.group.protocol", protocol)
            .run();
        assert_eq!(found(&sizegate, &topic), [], "{version} {protocol}");
        let served = metric(&sizegate, "fetch_batch_bytes_count", &topic);
        assert!(served >= 30.0, "they read through the proxy: {served}");
    }
}

#[test]
fn a_console_consumer_run_thrice_from_the_beginning_is_not_stuck() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    let topic = with_a_large_record(kafka, "console");
    for _ in 0..3 {
        let main = "org.apache.kafka.tools.consumer.ConsoleConsumer";
        let mut console = Program::java_main(main, "4.4.0", "tools");
        for arg in [
            "--bootstrap-server",
            &sizegate.bootstrap(),
            "--topic",
            &topic.name,
            "--from-beginning",
            "--max-messages",
            "3",
            "--formatter-property",
            "print.value=false",
        ] {
            console = console.raw_arg(arg);
        }
        assert_eq!(console.spawn().end(), 0);
    }
    assert_eq!(metric(&sizegate, "fetch_batch_bytes_count", &topic), 9.0);
    assert_eq!(found(&sizegate, &topic), []);
}

#[test]
fn librdkafka_is_found_although_it_fetches_far_ahead() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    for mode in ["seek", "restart"] {
        let topic = with_a_large_record(kafka, "librdkafka");
        // More large ones behind it, which come before the application has failed.
        let mut connection = Connection::open(kafka.bootstrap().as_str());
        for _ in 0..20 {
            let records = batch_of_bytes(LARGE).build();
            let part = Part::new(&topic, records);
            assert_eq!(connection.produce(9, -1, &[part])[0].code, 0);
        }
        Program::python("returning.py")
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .arg("mode", mode)
            .run();
        assert_eq!(found(&sizegate, &topic), [stuck_at("rdkafka", 1)], "{mode}");
    }
}

#[test]
fn springs_error_handler_is_found_seeking_back() {
    let kafka = Kafka::shared("4.3.0");
    let sizegate = Sizegate::start(kafka, "");
    for mode in ["record", "batch"] {
        let topic = with_a_large_record(kafka, "spring");
        Program::java_with("SpringReturns", "4.3.0", "spring")
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .arg("mode", mode)
            .run();
        let client_id = format!("spring-{mode}");
        assert_eq!(
            found(&sizegate, &topic),
            [stuck_at(&client_id, 1)],
            "{mode}"
        );
    }
}

#[test]
fn a_sink_task_of_connect_that_fails_and_is_restarted_or_rewinds_is_found() {
    let kafka = Kafka::shared("4.3.0");
    let sizegate = Sizegate::start(kafka, "");
    let worker = Program::connect_worker("4.3.0");
    let dir = worker.dir().to_path_buf();
    let file = |name: &str, lines: &[String]| properties(&dir, name, lines);
    let bytes = "org.apache.kafka.connect.converters.ByteArrayConverter";
    let rest = SocketAddr::from(([127, 0, 0, 1], crate::support::ports::free_ports(1)));
    let config = file(
        "worker",
        &[
            format!("bootstrap.servers={}", sizegate.bootstrap()),
            format!("key.converter={bytes}"),
            format!("value.converter={bytes}"),
            format!(
                "offset.storage.file.filename={}",
                dir.join("offsets").display()
            ),
            format!("listeners=http://{rest}"),
            "plugin.discovery=only_scan".into(),
        ],
    );
    let ways = ["fail", "rewind"];
    let topics = ways.map(|way| with_a_large_record(kafka, way));
    let sinks = ways.iter().zip(&topics).map(|(way, topic)| {
        let settings = [
            format!("name=sink-{way}"),
            "connector.class=FailingSink".into(),
            "tasks.max=1".into(),
            format!("way={way}"),
            format!("topics={}", topic.name),
        ];
        file(way, &settings)
    });
    let running = sinks.fold(worker.raw_arg(config), Program::raw_arg).spawn();
    let patience = Duration::from_secs(300);
    eventually(patience, "the one that rewinds found", || {
        assert!(running.is_running(), "{}", running.last_words());
        (!found(&sizegate, &topics[1]).is_empty()).then_some(())
    });
    // Nobody restarts the other one yet: it was served once.
    assert_eq!(found(&sizegate, &topics[0]), []);
    let task = "/connectors/sink-fail/tasks/0";
    for _ in 0..3 {
        eventually(patience, "the task failed", || {
            let status = crate::support::http::get(rest, &format!("{task}/status")).ok()?;
            status.1.contains("FAILED").then_some(())
        });
        let restarted = crate::support::http::request(rest, "POST", &format!("{task}/restart"), "");
        assert_eq!(restarted.unwrap().0, 204);
    }
    eventually(patience, "the one that is restarted found", || {
        (!found(&sizegate, &topics[0]).is_empty()).then_some(())
    });
    for (way, topic) in ways.iter().zip(&topics) {
        let (client_id, _, batch_offset) = &found(&sizegate, topic)[0];
        assert_eq!(*client_id, format!("connector-consumer-sink-{way}-0"));
        assert_eq!(*batch_offset, 1);
    }
}
