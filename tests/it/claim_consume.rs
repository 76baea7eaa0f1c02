//! Consuming through a proxy that redeems: what a consumer gets is what the producer sent, byte for byte, as much as
//! fits, and nothing is skipped that is not in the fallback topic.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::FetchResponse;
use kafka_protocol::messages::{BrokerId, FetchRequest, TopicName};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sizegate::claim::OpenBatch;
use sizegate::codec::Decoders;
use sizegate::vocabulary::Codec;

use crate::support::client::text;
use crate::support::process::new_dir;
use crate::support::{
    Connection, Kafka, Part, Program, Record, Sizegate, Topic, batch, eventually,
};

const SECRET: &str = "a secret of thirty-two bytes, yes";
const PATIENCE: Duration = Duration::from_secs(120);

/// The store's folder.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        Self(new_dir("claims"))
    }

    fn yaml(&self, claim: &str) -> String {
        let store = self.0.display();
        format!(
            "claim_check:\n  store: file://{store}\n  keys: [{{id: k1, secret: '{SECRET}'}}]\n{claim}\
             rules:\n- name: large\n  topics: ['claims*']\n  limits: {{record_bytes: 64KiB, batch_bytes: 1MiB}}\n  \
             action: offload\n"
        )
    }

    fn start(&self, kafka: &Kafka, claim: &str) -> Sizegate {
        Sizegate::start(kafka, &self.yaml(claim))
    }

    /// All objects.
    fn objects(&self) -> BTreeMap<PathBuf, Bytes> {
        let mut objects = BTreeMap::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let object = fs::read(&path).unwrap().into();
                    objects.insert(path, object);
                }
            }
        }
        objects
    }

    /// Where the object of a value is.
    fn object_of(&self, value: &[u8]) -> PathBuf {
        let name = sha256(value);
        let mut objects = self.objects().into_keys();
        objects
            .find(|path| file_name(path) == name)
            .expect("an object")
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A value of which every byte counts.
fn value(bytes: usize, seed: u64) -> Vec<u8> {
    crate::support::batch::random(bytes, seed)
}

fn large(bytes: usize, seed: u64) -> Record {
    Record::value(value(bytes, seed))
        .key(format!("key-{seed}"))
        .header("content-type", "image/png")
}

/// What one fetch asks.
#[derive(Clone, Copy)]
struct Ask {
    version: i16,
    offset: i64,
    partition_bytes: i32,
    max_bytes: i32,
}

impl Ask {
    fn at(version: i16, offset: i64) -> Self {
        Self {
            version,
            offset,
            partition_bytes: 50 << 20,
            max_bytes: 50 << 20,
        }
    }

    fn request(self, topic: &Topic) -> FetchRequest {
        let partition = FetchPartition::default()
            .with_partition(0)
            .with_fetch_offset(self.offset)
            .with_partition_max_bytes(self.partition_bytes);
        let entry = FetchTopic::default().with_partitions(vec![partition]);
        let entry = if self.version >= 13 {
            entry.with_topic_id(topic.id)
        } else {
            entry.with_topic(TopicName(text(&topic.name)))
        };
        FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(500)
            .with_min_bytes(1)
            .with_max_bytes(self.max_bytes)
            .with_session_epoch(-1)
            .with_topics(vec![entry])
    }

    fn send(self, connection: &mut Connection, topic: &Topic) -> Bytes {
        let response = connection.ask(&self.request(topic), self.version);
        records(&response)
    }
}

fn records(response: &FetchResponse) -> Bytes {
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    partition.records.clone().unwrap_or_default()
}

/// The batches in what was fetched.
fn batches(records: &Bytes) -> Vec<Bytes> {
    let mut left = records.clone();
    let mut batches = Vec::new();
    while !left.is_empty() {
        let length = i32::from_be_bytes(left[8..12].try_into().unwrap());
        batches.push(left.split_to(12 + length as usize));
    }
    batches
}

fn open(bytes: &Bytes) -> OpenBatch {
    OpenBatch::open(bytes, u64::MAX, &mut Decoders::new()).unwrap()
}

/// What the broker sets in front of the checksum: base offset, and the leader's epoch.
fn without_brokers_own(batch: &[u8]) -> Vec<u8> {
    let mut batch = batch.to_vec();
    batch[..8].fill(0);
    batch[12..16].fill(0);
    batch
}

#[test]
fn in_every_version_what_was_sent_comes_back_byte_for_byte() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let mut connection = Connection::open(sizegate.bootstrap());
    for &codec in Codec::ALL {
        let topic = kafka.topic("claims", 1, &[]);
        let records = [
            Record::value("small"),
            large(300_000, 1),
            Record::value("").key("empty"),
            large(1_500_000, 2),
        ];
        let sent = batch(records).codec(codec).build();
        let response = connection.produce(9, -1, &[Part::new(&topic, sent.clone())]);
        assert_eq!(response[0].code, 0, "{codec}: {:?}", response[0].text);
        for version in 4..=18 {
            let fetched = eventually(PATIENCE, "all of it", || {
                let fetched = batches(&Ask::at(version, 0).send(&mut connection, &topic));
                (fetched.len() == 1).then_some(fetched)
            });
            if codec == Codec::None {
                let fetched = without_brokers_own(&fetched[0]);
                assert_eq!(fetched, without_brokers_own(&sent), "{version}");
            } else {
                let (fetched, sent) = (open(&fetched[0]), open(&sent));
                assert_eq!(fetched.records(), sent.records(), "{version} {codec}");
                let (fetched, sent) = (fetched.header(), sent.header());
                assert_eq!(fetched.max_timestamp_ms, sent.max_timestamp_ms);
                assert_eq!(fetched.last_offset_delta, sent.last_offset_delta);
            }
        }
        let metrics = sizegate.metrics();
        let of = [("topic", topic.name.as_str())];
        assert!(metrics.sum("claim_redeemed_records_total", &of) >= 30.0);
        assert_eq!(metrics.sum("claim_held_partitions", &of), 0.0);
    }
}

/// The programs that read, each with its name.
fn readers() -> Vec<(&'static str, Program)> {
    let java = || Program::java("Originals", "4.4.0");
    vec![
        ("Java", java().arg("group", crate::support::unique("g"))),
        (
            "Java, KIP-848",
            java()
                .arg("group", crate::support::unique("g"))
                .arg("p.group.protocol", "consumer"),
        ),
        (
            "Java, read_committed",
            java().arg("p.isolation.level", "read_committed"),
        ),
        (
            "librdkafka",
            Program::python("originals.py").arg("group", crate::support::unique("g")),
        ),
        (
            "kafka-python",
            Program::python("originals.py").arg("client", "kafka-python"),
        ),
        ("franz-go", Program::go("originals").arg("client", "franz")),
        ("sarama", Program::go("originals").arg("client", "sarama")),
        (
            "kafkajs",
            Program::node("originals.js").arg("group", crate::support::unique("g")),
        ),
    ]
}

/// Offset and sha256 of each record.
fn seen(lines: &[Value]) -> Vec<(i64, String)> {
    let records = lines.iter().filter(|line| line.get("sha256").is_some());
    records
        .map(|line| {
            let names = line["headers"].as_array().unwrap();
            assert!(!names.iter().any(|name| name == "x-claim-check"), "{line}");
            (
                line["offset"].as_i64().unwrap(),
                line["sha256"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

#[test]
fn real_consumers_unchanged_read_what_was_sent() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let topic = kafka.topic("claims", 1, &[]);
    let mut connection = Connection::open(sizegate.bootstrap());
    let mut expected = Vec::new();
    // Several records a batch, with and without compression; more in all than one response has room for.
    for round in 0..6u64 {
        let sizes = [300_000, 100, 2_000_000, 70_000, 1_000_000, 10];
        let values = sizes
            .iter()
            .zip(0..)
            .map(|(size, n)| (*size, 100 * round + n));
        let values: Vec<Vec<u8>> = values.map(|(size, seed)| value(size, seed)).collect();
        for value in &values {
            expected.push((expected.len() as i64, sha256(value)));
        }
        let codec = Codec::ALL[round as usize % Codec::ALL.len()];
        let sent = batch(values.into_iter().map(Record::value))
            .codec(codec)
            .build();
        let response = connection.produce(9, -1, &[Part::new(&topic, sent)]);
        assert_eq!(response[0].code, 0, "{:?}", response[0].text);
    }
    for (name, program) in readers() {
        let output = program
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .arg("records", expected.len())
            .run();
        assert_eq!(seen(&output.lines), expected, "{name}");
    }
    // From the middle of a batch, and back into the middle of another.
    for (name, program) in [
        ("Java", Program::java("Originals", "4.4.0")),
        ("librdkafka", Program::python("originals.py")),
    ] {
        let output = program
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .arg("from", 9)
            .arg("back", 2)
            .arg("records", expected.len() - 9)
            .run();
        let seen = seen(&output.lines);
        let (first, again) = seen.split_at(expected.len() - 9);
        assert_eq!(first, &expected[9..], "{name}");
        assert_eq!(again[0], expected[2], "{name}");
    }
}
