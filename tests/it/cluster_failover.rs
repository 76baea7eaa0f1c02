//! Three brokers behind the proxy: whoever asks the wrong one is sent to the right one through the proxy, whatever
//! the request and however large the response; and a dead address in the bootstrap list is stepped over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::support::client::{produce_request, text};
use crate::support::{
    Connection, Kafka, KafkaOptions, Lent, Part, Record, Sizegate, Topic, admin, batch,
    batch_of_bytes, eventually, ports, unique,
};
use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{
    BrokerId, FetchRequest, FetchResponse, GroupId, ProduceResponse, ResponseHeader,
    ShareFetchRequest, TopicName, share_fetch_request,
};
use kafka_protocol::protocol::{Decodable, HeaderVersion};

/// A guard against hanging, no measure.
const PATIENCE: Duration = Duration::from_secs(60);

/// Three brokers, the proxy, and a topic of which each broker leads at least one partition.
struct Trio {
    kafka: Kafka,
    sizegate: Sizegate,
    topic: Topic,
    /// Partition to leader.
    leaders: BTreeMap<i32, i32>,
}

fn trio() -> Arc<Trio> {
    static TRIO: Lent<Trio> = Lent::to_tests(6);
    TRIO.get(|| {
        let kafka = Kafka::start("4.4.0", KafkaOptions::nodes(3));
        let sizegate = Sizegate::start(
            &kafka,
            "rules: [{name: small, topics: ['spread-*'], limits: {batch_bytes: 1000000}}]",
        );
        let topic = kafka.create_topic(&unique("spread"), 6, 1, &[("retention.ms", "-1")]);
        let metadata = admin::metadata(&mut Connection::open(sizegate.bootstrap()), &[&topic.name]);
        let leaders = metadata.topics[0]
            .partitions
            .iter()
            .map(|part| (part.partition_index, part.leader_id.0))
            .collect();
        Trio {
            kafka,
            sizegate,
            topic,
            leaders,
        }
    })
}

impl Trio {
    /// A broker that does not lead this partition.
    fn stranger(&self, partition: i32) -> i32 {
        self.leaders[&partition] % 3 + 1
    }

    fn led_by(&self, node_id: i32) -> i32 {
        *self
            .leaders
            .iter()
            .find(|(_, leader)| **leader == node_id)
            .unwrap()
            .0
    }

    /// No broker's own port, in any form in which a response holds one.
    fn assert_names_no_broker(&self, case: &str, frame: &[u8]) {
        for address in self.kafka.bootstrap().split(',') {
            let port: u16 = address.rsplit(':').next().unwrap().parse().unwrap();
            let said = [b"127.0.0.1", &i32::from(port).to_be_bytes()[..]].concat();
            let hosts = (0..frame.len())
                .filter(|at| frame[*at] == b'1' && frame[*at..].starts_with(b"127.0.0.1"));
            for at in hosts {
                assert!(!frame[at..].starts_with(&said), "{case} names {address}");
            }
        }
    }
}

fn assert_endpoint(trio: &Trio, case: &str, leader: i32, host: &str, port: i32) {
    assert_eq!(
        format!("{host}:{port}"),
        trio.sizegate.node(leader),
        "{case}"
    );
}

#[test]
fn a_produce_to_the_wrong_broker_is_pointed_through_the_proxy_also_beside_a_refusal() {
    let trio = trio();
    for version in 3..=13 {
        for refused in [false, true] {
            let case = format!("v{version}, a refusal beside it: {refused}");
            let (wrong, own) = (0, trio.led_by(trio.stranger(0)));
            let mut parts = vec![Part::at(&trio.topic, wrong, batch_of_bytes(200).build())];
            if refused {
                parts.push(Part::at(
                    &trio.topic,
                    own,
                    batch_of_bytes(1_000_001).build(),
                ));
            }
            let mut connection = Connection::open(trio.sizegate.node(trio.stranger(wrong)));
            let response: ProduceResponse =
                connection.ask(&produce_request(None, -1, &parts), version);
            let responses = crate::support::client::responses(&response, version);
            let codes: BTreeMap<i32, i16> = responses
                .iter()
                .map(|response| (response.partition, response.code))
                .collect();
            assert_eq!(codes.get(&wrong), Some(&6), "{case}");
            assert_eq!(codes.get(&own).copied(), refused.then_some(10), "{case}");
            if version >= 10 {
                let endpoint = &response.node_endpoints[0];
                assert_eq!(endpoint.node_id.0, trio.leaders[&wrong], "{case}");
                assert_endpoint(
                    &trio,
                    &case,
                    trio.leaders[&wrong],
                    &endpoint.host,
                    endpoint.port,
                );
            }
        }
    }
}

fn fetch(topic: &Topic, partitions: &[i32]) -> FetchRequest {
    let part = |partition: &i32| {
        FetchPartition::default()
            .with_partition(*partition)
            .with_current_leader_epoch(-1)
            .with_partition_max_bytes(i32::MAX)
    };
    let entry = FetchTopic::default()
        .with_topic(TopicName(text(&topic.name)))
        .with_topic_id(topic.id)
        .with_partitions(partitions.iter().map(part).collect());
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_bytes(i32::MAX)
        .with_session_epoch(-1)
        .with_topics(vec![entry])
}

fn decode(frame: Vec<u8>, version: i16) -> FetchResponse {
    let mut body = Bytes::from(frame);
    ResponseHeader::decode(&mut body, FetchResponse::header_version(version)).unwrap();
    FetchResponse::decode(&mut body, version).unwrap()
}

#[test]
fn a_fetch_from_the_wrong_broker_is_pointed_through_the_proxy_however_large_its_response() {
    let trio = trio();
    let wrong = 1;
    let node_id = trio.stranger(wrong);
    let own = trio.led_by(node_id);
    // From a response that fits into one read to one that streams past for a while.
    for (stored, batches) in [(0, 0), (300, 1), (400_000, 1), (400_000, 8)] {
        for _ in 0..batches {
            let records = batch([Record::of_random(stored, 1)]).build();
            let mut connection = Connection::open(trio.sizegate.node(node_id));
            assert_eq!(
                connection.produce(8, -1, &[Part::at(&trio.topic, own, records)])[0].code,
                0
            );
        }
        let versions = if stored > 1_000 {
            vec![12, 16, 18]
        } else {
            (4..=18).collect()
        };
        for version in versions {
            let case = format!("v{version} with {batches} more batches of {stored} bytes");
            let mut connection = Connection::open(trio.sizegate.node(node_id));
            let request = fetch(&trio.topic, &[own, wrong]);
            let mut direct = Connection::open(trio.kafka.node(node_id));
            let mut directly = || {
                direct.send(&request, version);
                direct.receive::<FetchResponse>(version).1
            };
            // Other tests write to the topic, too.
            let (response, original) = eventually(PATIENCE, "nobody writes meanwhile", || {
                let before = directly();
                connection.send(&request, version);
                let frame = connection.read_frame().unwrap();
                trio.assert_names_no_broker(&case, &frame);
                let original = directly();
                let is_stable = before.responses == original.responses;
                is_stable.then(|| (decode(frame, version), original))
            });
            let part = |index: i32| {
                response.responses[0]
                    .partitions
                    .iter()
                    .find(|part| part.partition_index == index)
                    .unwrap()
            };
            assert_eq!(part(wrong).error_code, 6, "{case}");
            assert_eq!(part(own).error_code, 0, "{case}");
            assert!(
                original.responses == response.responses,
                "{case}: what is fetched differs"
            );
            assert_eq!(
                original.node_endpoints.len(),
                usize::from(version >= 16),
                "{case}: the broker gives no hint"
            );
            for endpoint in &response.node_endpoints {
                assert_eq!(endpoint.node_id.0, trio.leaders[&wrong], "{case}");
                assert_endpoint(
                    &trio,
                    &case,
                    trio.leaders[&wrong],
                    &endpoint.host,
                    endpoint.port,
                );
            }
            assert!(
                response.node_endpoints.len() == original.node_endpoints.len() || batches > 0,
                "{case}: no hint left"
            );
            // The connection is in step.
            assert_eq!(
                connection.produce(
                    8,
                    -1,
                    &[Part::at(
                        &trio.topic,
                        trio.led_by(node_id),
                        batch_of_bytes(1_000_001).build()
                    )]
                )[0]
                .code,
                10
            );
        }
    }
}

#[test]
fn a_share_fetch_from_the_wrong_broker_names_no_broker() {
    let trio = trio();
    let wrong = 2;
    let part = share_fetch_request::FetchPartition::default()
        .with_partition_index(wrong)
        .with_partition_max_bytes(10_000);
    let entry = share_fetch_request::FetchTopic::default()
        .with_topic_id(trio.topic.id)
        .with_partitions(vec![part]);
    let request = ShareFetchRequest::default()
        .with_group_id(Some(GroupId(text(&unique("share")))))
        .with_member_id(Some(text("AAAAAAAAAAAAAAAAAAAAAQ")))
        .with_share_session_epoch(0)
        .with_max_bytes(10_000)
        .with_topics(vec![entry]);
    let [direct, proxied] = [
        trio.kafka.node(trio.stranger(wrong)),
        trio.sizegate.node(trio.stranger(wrong)),
    ]
    .map(|address| {
        let mut connection = Connection::open(address);
        connection.send(&request, 1);
        connection.read_frame().unwrap()
    });
    assert_eq!(direct.len(), proxied.len());
    trio.assert_names_no_broker("ShareFetch", &proxied);
}

#[test]
fn every_response_about_the_cluster_names_each_broker_by_its_own_address_on_the_proxy() {
    use kafka_protocol::messages::{
        DescribeClusterRequest, FindCoordinatorRequest, MetadataRequest,
    };
    let trio = trio();
    let expected: BTreeMap<i32, String> = (1..=3).map(|id| (id, trio.sizegate.node(id))).collect();
    // Whichever listener is asked.
    for address in [
        trio.sizegate.bootstrap(),
        trio.sizegate.node(1),
        trio.sizegate.node(2),
        trio.sizegate.node(3),
    ] {
        let mut connection = Connection::open(address.as_str());
        // Version 0 says "all topics" in another way.
        for version in 1..=13 {
            let brokers = connection
                .ask(&MetadataRequest::default().with_topics(None), version)
                .brokers;
            let told: BTreeMap<i32, String> = brokers
                .iter()
                .map(|broker| (broker.node_id.0, format!("{}:{}", broker.host, broker.port)))
                .collect();
            assert_eq!(told, expected, "Metadata v{version} at {address}");
        }
        for version in 0..=2 {
            let brokers = connection
                .ask(
                    &DescribeClusterRequest::default().with_endpoint_type(1),
                    version,
                )
                .brokers;
            let told: BTreeMap<i32, String> = brokers
                .iter()
                .map(|broker| {
                    (
                        broker.broker_id.0,
                        format!("{}:{}", broker.host, broker.port),
                    )
                })
                .collect();
            assert_eq!(told, expected, "DescribeCluster v{version} at {address}");
        }
        for version in 4..=6 {
            let keys = (0..8).map(|n| text(&format!("group {n}"))).collect();
            let response = connection.ask(
                &FindCoordinatorRequest::default().with_coordinator_keys(keys),
                version,
            );
            for found in response
                .coordinators
                .iter()
                .filter(|found| found.error_code == 0)
            {
                assert_eq!(
                    format!("{}:{}", found.host, found.port),
                    trio.sizegate.node(found.node_id.0),
                    "v{version}"
                );
            }
        }
    }
}

#[test]
fn a_dead_bootstrap_address_is_stepped_over() {
    let trio = trio();
    let dead = format!("127.0.0.1:{}", ports::free_ports(1));
    let sizegate = Sizegate::before(&format!("{dead},{}", trio.kafka.node(2))).start();
    for version in [8, 13] {
        let mut connection = Connection::open(sizegate.bootstrap());
        let own = trio.led_by(2);
        assert_eq!(
            connection.produce(
                version,
                -1,
                &[Part::at(&trio.topic, own, batch_of_bytes(200).build())]
            )[0]
            .code,
            0
        );
    }
}

/// A partition moves to another broker while it is read.
#[test]
fn reading_stored_batches_follows_the_leader() {
    let trio = trio();
    let topic = trio.kafka.create_topic(&unique("moved"), 1, 1, &[]);
    let bootstrap = trio.kafka.bootstrap();
    let old = admin::leader(&bootstrap, &topic.name, 0);
    for at in 0..6 {
        let sent = [Part::new(
            &topic,
            batch([Record::of_random(5_000, at)]).build(),
        )];
        let response = Connection::open(old.as_str()).produce(9, -1, &sent);
        assert_eq!(response[0].code, 0, "{:?}", response[0].text);
    }
    let running = crate::control_plane::Running::start(&bootstrap, &[]);
    crate::control_plane::runtime().block_on(async {
        let reader = running.cluster.reader(&topic.name).await;
        let mut reader = reader.unwrap().fetch_bytes(1);
        let mut batches = reader.batches(0, 0, 6);
        let mut read = Vec::new();
        while let Some(batch) = batches.next().await.unwrap() {
            read.push(batch.base_offset);
            if read.len() == 2 {
                let ids = trio.kafka.node_ids();
                let other = ids.iter().find(|id| trio.kafka.node(**id) != old);
                admin::move_partition(&bootstrap, &topic.name, 0, *other.unwrap());
                assert_ne!(admin::leader(&bootstrap, &topic.name, 0), old);
            }
        }
        assert_eq!(read, [0, 1, 2, 3, 4, 5]);
    });
}
