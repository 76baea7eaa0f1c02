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
use kafka_protocol::messages::share_fetch_request::{
    FetchPartition as ShareFetchPartition, FetchTopic as ShareFetchTopic,
};
use kafka_protocol::messages::{BrokerId, FetchRequest, GroupId, ShareFetchRequest, TopicName};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use sizegate::batch::{BatchHeader, Headers};
use sizegate::claim::{OpenBatch, offset_delta};
use sizegate::codec::Decoders;
use sizegate::vocabulary::Codec;

use crate::support::admin::fetch_stored;
use crate::support::client::text;
use crate::support::process::new_dir;
use crate::support::{
    Connection, KAFKA_VERSIONS, Kafka, Part, Program, Record, Sizegate, Topic, batch, eventually,
    number_from,
};

const SECRET: &str = "a secret of thirty-two bytes, yes";
const PATIENCE: Duration = Duration::from_secs(120);

/// The store's folder.
pub struct Folder(pub PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0).or_else(|_| fs::remove_file(&self.0));
    }
}

impl Folder {
    pub fn new() -> Self {
        Self(new_dir("claims"))
    }

    pub fn yaml(&self, claim: &str) -> String {
        let store = self.0.display();
        format!(
            "claim_check:\n  store: file://{store}\n  keys: [{{id: k1, secret: '{SECRET}'}}]\n{claim}\
             rules:\n- name: large\n  topics: ['claims*']\n  limits: {{record_bytes: 64KiB, batch_bytes: 1MiB}}\n  \
             action: offload\n"
        )
    }

    pub fn start(&self, kafka: &Kafka, claim: &str) -> Sizegate {
        Sizegate::start(kafka, &self.yaml(claim))
    }

    /// All objects.
    pub fn objects(&self) -> BTreeMap<PathBuf, Bytes> {
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
    pub fn object_of(&self, value: &[u8]) -> PathBuf {
        let name = sha256(value);
        let mut objects = self.objects().into_keys();
        objects
            .find(|path| file_name(path) == name)
            .expect("an object")
    }
}

pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A value of which every byte counts.
pub fn value(bytes: usize, seed: u64) -> Vec<u8> {
    crate::support::batch::random(bytes, seed)
}

pub fn large(bytes: usize, seed: u64) -> Record {
    Record::value(value(bytes, seed))
        .key(format!("key-{seed}"))
        .header("content-type", "image/png")
}

/// What one fetch asks.
#[derive(Clone, Copy)]
pub struct Ask {
    version: i16,
    offset: i64,
    partition_bytes: i32,
    max_bytes: i32,
}

impl Ask {
    pub fn at(version: i16, offset: i64) -> Self {
        Self {
            version,
            offset,
            partition_bytes: 50 << 20,
            max_bytes: 50 << 20,
        }
    }

    pub fn request(self, topic: &Topic) -> FetchRequest {
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

    pub fn send(self, connection: &mut Connection, topic: &Topic) -> Bytes {
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
pub fn batches(records: &Bytes) -> Vec<Bytes> {
    let mut left = records.clone();
    let mut batches = Vec::new();
    while !left.is_empty() {
        let length = i32::from_be_bytes(left[8..12].try_into().unwrap());
        batches.push(left.split_to(12 + length as usize));
    }
    batches
}

pub fn open(bytes: &Bytes) -> OpenBatch {
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
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        comes_back(kafka);
    }
}

fn comes_back(kafka: &Kafka) {
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let mut connection = Connection::open(sizegate.bootstrap());
    let newest = if kafka.version().starts_with('3') {
        17
    } else {
        18
    };
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
        for version in 4..=newest {
            let fetched = eventually(PATIENCE, "all of it", || {
                // On a busy machine a response may leave before all originals have come.
                let fetched = batches(&Ask::at(version, 0).send(&mut connection, &topic));
                let last = fetched
                    .first()
                    .map(|bytes| open(bytes).header().last_offset_delta);
                (last == Some(3)).then_some(fetched)
            });
            if codec == Codec::None {
                let fetched = without_brokers_own(&fetched[0]);
                assert!(fetched == without_brokers_own(&sent), "{version}");
            } else {
                let (fetched, sent) = (open(&fetched[0]), open(&sent));
                assert!(fetched.records() == sent.records(), "{version} {codec}");
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
pub fn seen(lines: &[Value]) -> Vec<(i64, String)> {
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

/// A fallback record: key, class, original topic, partition and offset.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fallen {
    pub key: String,
    pub class: String,
    pub at: (String, i32, i64),
}

/// What lies in a topic's fallback topic. Each has its ticket and its mark.
pub fn fallen(kafka: &Kafka, topic: &Topic) -> Vec<Fallen> {
    let name = format!("{}.claim.missing", topic.name);
    let mut all = Vec::new();
    for stored in batches(&fetch_stored(&kafka.bootstrap(), &name, 0, 16 << 20)) {
        let batch = open(&stored);
        for (_, parts) in batch.parts() {
            let of = |range: std::ops::Range<usize>| {
                String::from_utf8(batch.records()[range].to_vec()).unwrap()
            };
            let headers = Headers::of(&parts, batch.records());
            let headers: BTreeMap<String, String> = headers
                .map(|header| (of(header.name), of(header.value.unwrap())))
                .collect();
            assert!(headers["x-claim-check"].starts_with("1;k1;"));
            assert!(!headers["x-claim-error-message"].is_empty());
            assert!(of(parts.value.unwrap()).starts_with("{\"claimUri\":\""));
            all.push(Fallen {
                key: of(parts.key.unwrap()),
                class: headers["x-claim-error"].clone(),
                at: (
                    headers["x-original-topic"].clone(),
                    headers["x-original-partition"].parse().unwrap(),
                    headers["x-original-offset"].parse().unwrap(),
                ),
            });
        }
    }
    all.sort_unstable();
    all
}

/// A topic with its fallback topic.
pub fn with_fallback(kafka: &Kafka, configs: &[(&str, &str)]) -> Topic {
    let topic = kafka.topic("claims", 1, &[]);
    kafka.create_topic(&format!("{}.claim.missing", topic.name), 1, 1, configs);
    topic
}

/// So that a missing object is called lost soon.
pub const SOON: &str = "  grace: 1s\n";

/// Five events of 307,206 bytes, of which the second's object is deleted and the fourth's is another.
fn five_events(
    kafka: &Kafka,
    folder: &Folder,
    sizegate: &Sizegate,
    together: bool,
) -> (Topic, Vec<Vec<u8>>) {
    let topic = with_fallback(kafka, &[]);
    let before = folder.objects().len();
    let seed = u64::from(together) * 10;
    let events: Vec<Vec<u8>> = (1..=5).map(|n| value(307_206, seed + n)).collect();
    let record = |n: usize| Record::value(events[n].clone()).key(format!("event-{}", n + 1));
    let sent = match together {
        true => vec![batch((0..5).map(record)).build()],
        false => (0..5).map(|n| batch([record(n)]).build()).collect(),
    };
    let mut connection = Connection::open(sizegate.bootstrap());
    for batch in sent {
        let response = connection.produce(9, -1, &[Part::new(&topic, batch)]);
        assert_eq!(response[0].code, 0, "{:?}", response[0].text);
    }
    assert_eq!(folder.objects().len() - before, 5);
    fs::remove_file(folder.object_of(&events[1])).unwrap();
    fs::write(folder.object_of(&events[3]), "{\"tampered\":true}").unwrap();
    (topic, events)
}

#[test]
fn of_five_events_one_missing_and_one_tampered_three_arrive_and_two_are_in_the_fallback_topic() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, SOON);
    for together in [false, true] {
        let (topic, events) = five_events(kafka, &folder, &sizegate, together);
        let expected: Vec<(i64, String)> =
            [0, 2, 4].map(|n| (n as i64, sha256(&events[n]))).to_vec();
        for (name, program) in [
            ("Java", Program::java("Originals", "4.4.0")),
            ("librdkafka", Program::python("originals.py")),
        ] {
            let output = program
                .arg("bootstrap", sizegate.bootstrap())
                .arg("topic", &topic.name)
                .arg("group", crate::support::unique("g"))
                .arg("records", 3)
                .run();
            assert_eq!(seen(&output.lines), expected, "{name}");
            // The group's lag is 0.
            let end = output.only("end", true);
            assert_eq!(end["committed"], 5, "{name}: {end}");
        }
        let at = |offset| (topic.name.clone(), 0, offset);
        let expected = [("event-2", "missing", 1), ("event-4", "corrupt", 3)];
        let expected = expected.map(|(key, class, offset)| Fallen {
            key: key.to_owned(),
            class: class.to_owned(),
            at: at(offset),
        });
        assert_eq!(fallen(kafka, &topic), expected);
        let metrics = sizegate.metrics();
        let count = |name, class| {
            let labels = [("topic", topic.name.as_str()), ("class", class)];
            metrics.sum(name, &labels)
        };
        assert!(count("claim_redeem_failures_total", "missing") >= 2.0);
        assert_eq!(count("claim_redeem_failures_total", "corrupt"), 1.0);
        assert_eq!(count("claim_fallback_records_total", "missing"), 1.0);
        assert_eq!(count("claim_fallback_records_total", "corrupt"), 1.0);
        sizegate.log_line(&["a record's value is lost", "missing"]);
    }
}

/// Fetches a partition from `from` to `end` as a consumer does: what it has seen, by offset, and how far it came.
pub fn consume(
    connection: &mut Connection,
    topic: &Topic,
    from: i64,
    responses: usize,
    seen: &mut BTreeMap<i64, String>,
) -> Option<i64> {
    consume_at(12, connection, topic, from, responses, seen)
}

/// The same in another version; from 13 on by the topic's id, which a broker may not know yet.
pub fn consume_at(
    version: i16,
    connection: &mut Connection,
    topic: &Topic,
    from: i64,
    responses: usize,
    seen: &mut BTreeMap<i64, String>,
) -> Option<i64> {
    let mut next = from;
    for _ in 0..responses {
        let fetched = Ask::at(version, next).request(topic);
        connection.send(&fetched, version);
        let (_, response) = connection.try_receive::<FetchResponse>(version).ok()?;
        if version >= 13 && response.responses[0].partitions[0].error_code == 100 {
            continue;
        }
        for bytes in batches(&records(&response)) {
            let batch = OpenBatch::open(&bytes, u64::MAX, &mut Decoders::new());
            let header = BatchHeader::read(&bytes).unwrap();
            if let Ok(batch) = batch {
                for (_, parts) in batch.parts() {
                    let delta = offset_delta(batch.records(), &parts).unwrap();
                    let offset = header.base_offset + i64::from(delta);
                    if offset >= next {
                        let value = &batch.records()[parts.value.unwrap()];
                        seen.insert(offset, sha256(value));
                    }
                }
            }
            next = next.max(header.base_offset + i64::from(header.last_offset_delta) + 1);
        }
    }
    Some(next)
}

#[test]
fn while_the_fallback_topic_takes_nothing_nothing_is_skipped() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, SOON);
    // No ticket fits into it.
    let topic = with_fallback(kafka, &[("max.message.bytes", "100")]);
    let mut connection = Connection::open(sizegate.bootstrap());
    let values: Vec<Vec<u8>> = (1..=3).map(|n| value(100_000, 50 + n)).collect();
    for value in &values {
        let sent = batch([Record::value(value.clone()).key("k")]).build();
        let response = connection.produce(9, -1, &[Part::new(&topic, sent)]);
        assert_eq!(response[0].code, 0);
    }
    fs::remove_file(folder.object_of(&values[1])).unwrap();
    let mut seen = BTreeMap::new();
    let of = [("topic", topic.name.as_str())];
    eventually(PATIENCE, "the fallback topic refuses", || {
        let next = consume(&mut connection, &topic, 0, 1, &mut seen);
        assert!(next <= Some(1), "{next:?}");
        let metrics = sizegate.metrics();
        (metrics.sum("claim_fallback_failures_total", &of) >= 2.0
            && metrics.sum("claim_held_partitions", &of) == 1.0)
            .then_some(())
    });
    sizegate.log_line(&["consumers of the partition wait"]);
    kafka.alter_topic_config(
        &format!("{}.claim.missing", topic.name),
        &[("max.message.bytes", Some("1000000"))],
    );
    let mut next = 1;
    eventually(PATIENCE, "it goes on", || {
        next = consume(&mut connection, &topic, next, 1, &mut seen)?;
        (next == 3).then_some(())
    });
    assert_eq!(seen[&0], sha256(&values[0]));
    assert_eq!(seen[&2], sha256(&values[2]));
    assert!(!seen.contains_key(&1));
    assert_eq!(fallen(kafka, &topic).len(), 1);
    assert_eq!(sizegate.metrics().sum("claim_held_partitions", &of), 0.0);
}

#[test]
fn a_store_that_comes_and_goes_holds_its_consumers_and_lets_them_go() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let topic = with_fallback(kafka, &[]);
    let mut connection = Connection::open(sizegate.bootstrap());
    let values: Vec<Vec<u8>> = (1..=4).map(|n| value(100_000, 70 + n)).collect();
    for value in &values {
        let sent = batch([Record::value(value.clone())]).build();
        let response = connection.produce(9, -1, &[Part::new(&topic, sent)]);
        assert_eq!(response[0].code, 0);
    }
    // Another's file in the folder's place: nothing below it can be read, and nobody says that it is missing.
    let aside = folder.0.with_extension("aside");
    fs::rename(&folder.0, &aside).unwrap();
    fs::write(&folder.0, "not a folder").unwrap();
    let mut seen = BTreeMap::new();
    let of = [("topic", topic.name.as_str())];
    eventually(PATIENCE, "it is held", || {
        let next = consume(&mut connection, &topic, 0, 1, &mut seen);
        assert_eq!(next, Some(0));
        (sizegate.metrics().sum("claim_held_partitions", &of) == 1.0).then_some(())
    });
    fs::remove_file(&folder.0).unwrap();
    fs::rename(&aside, &folder.0).unwrap();
    let mut next = 0;
    eventually(PATIENCE, "it goes on by itself", || {
        next = consume(&mut connection, &topic, next, 1, &mut seen)?;
        (next == 4).then_some(())
    });
    let seen: Vec<String> = seen.into_values().collect();
    assert_eq!(
        seen,
        values.iter().map(|value| sha256(value)).collect::<Vec<_>>()
    );
    assert_eq!(fallen(kafka, &topic).len(), 0);
}

/// Rounds of the test below: a hundred where somebody has the time.
fn rounds() -> u64 {
    number_from("CLAIM_KILLS", 5)
}

#[test]
fn killed_at_any_moment_it_has_skipped_nothing_that_is_not_in_the_fallback_topic() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let topic = with_fallback(kafka, &[]);
    let values: Vec<Vec<u8>> = (0..40).map(|n| value(100_000, 200 + n)).collect();
    {
        let sizegate = folder.start(kafka, SOON);
        let mut connection = Connection::open(sizegate.bootstrap());
        for value in &values {
            let sent = batch([Record::value(value.clone()).key("k")]).build();
            let response = connection.produce(9, -1, &[Part::new(&topic, sent)]);
            assert_eq!(response[0].code, 0);
        }
    }
    for lost in values.iter().skip(1).step_by(3) {
        fs::remove_file(folder.object_of(lost)).unwrap();
    }
    let mut seen = BTreeMap::new();
    let mut next = 0;
    let end = values.len() as i64;
    for round in 0..rounds() {
        let mut sizegate = folder.start(kafka, "  grace: 10ms\n");
        let bootstrap = sizegate.bootstrap();
        std::thread::scope(|scope| {
            let from = next;
            let (seen, topic) = (&mut seen, &topic);
            let reading = scope.spawn(move || {
                let mut connection = Connection::open(bootstrap.as_str());
                let mut reached = from;
                while reached < end {
                    match consume(&mut connection, topic, reached, 1, seen) {
                        Some(further) => reached = further,
                        None => break,
                    }
                }
                reached
            });
            // In each round at another moment.
            std::thread::sleep(Duration::from_millis(37 * (1 + round)));
            sizegate.process().signal("KILL");
            sizegate.process().wait(PATIENCE);
            next = reading.join().unwrap();
        });
        let lost: Vec<i64> = fallen(kafka, &topic).iter().map(|of| of.at.2).collect();
        for offset in 0..next {
            let is_lost = offset % 3 == 1;
            assert_eq!(
                lost.contains(&offset),
                is_lost,
                "{offset} of {next}: {lost:?}"
            );
            let right = (!is_lost).then(|| sha256(&values[offset as usize]));
            assert_eq!(seen.get(&offset), right.as_ref(), "{offset}");
        }
        if next == end {
            // From the start again: what is there already is written again, and never not.
            next = 0;
        }
    }
}

#[test]
fn a_share_group_is_refused_where_it_would_lose_records() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    for (topic, expected) in [
        (kafka.topic("claims", 1, &[]), true),
        (kafka.topic("others", 1, &[]), false),
    ] {
        let partition = ShareFetchPartition::default().with_partition_index(0);
        let entry = ShareFetchTopic::default()
            .with_topic_id(topic.id)
            .with_partitions(vec![partition]);
        let request = ShareFetchRequest::default()
            .with_group_id(Some(GroupId(text(&crate::support::unique("share")))))
            .with_member_id(Some(text(&uuid::Uuid::new_v4().to_string())))
            .with_max_wait_ms(100)
            .with_max_bytes(1 << 20)
            .with_max_records(10)
            .with_batch_size(10)
            .with_topics(vec![entry]);
        let mut connection = Connection::open(sizegate.bootstrap());
        // Which topic has the id is looked up first.
        let response = eventually(PATIENCE, "the topic is known", || {
            let response = connection.ask(&request, 1);
            let is_known = |code| code != 100;
            let mut partitions = response.responses.iter().flat_map(|of| &of.partitions);
            partitions
                .all(|of| is_known(of.error_code))
                .then_some(response)
        });
        let partitions = response.responses.iter().flat_map(|of| &of.partitions);
        let refused: Vec<i16> = partitions
            .filter(|of| {
                let text = of.error_message.as_ref();
                text.is_some_and(|text| text.contains("share groups cannot"))
            })
            .map(|of| of.error_code)
            .collect();
        assert_eq!(refused, if expected { vec![29] } else { vec![] });
    }
}

#[test]
fn a_fetch_session_is_remembered_and_one_that_was_not_heard_begins_again() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let topics = [kafka.topic("claims", 1, &[]), kafka.topic("claims", 1, &[])];
    let values = [value(200_000, 91), value(200_000, 92)];
    let mut connection = Connection::open(sizegate.bootstrap());
    let produce = |connection: &mut Connection, n: usize| {
        let sent = batch([Record::value(values[n].clone())]).build();
        let response = connection.produce(9, -1, &[Part::new(&topics[n], sent)]);
        assert_eq!(response[0].code, 0);
    };
    let fetched = |response: &FetchResponse| -> Vec<String> {
        let partitions = response.responses.iter().flat_map(|of| &of.partitions);
        let records = partitions.filter_map(|of| of.records.clone());
        let batches = records.flat_map(|records| batches(&records));
        let values = batches.flat_map(|bytes| {
            let batch = open(&bytes);
            let parts: Vec<_> = batch.parts().collect();
            parts
                .into_iter()
                .map(move |(_, parts)| sha256(&batch.records()[parts.value.unwrap()]))
        });
        values.collect()
    };
    for version in [7, 12, 16, 18] {
        let ask = |offset| Ask::at(version, offset);
        // Everything is named: the first topic, of which nothing is new.
        let mut full = ask(kafka.latest_offset(&topics[0].name, 0)).request(&topics[0]);
        full.session_epoch = 0;
        let begun = connection.ask(&full, version);
        assert_eq!(begun.error_code, 0);
        assert_ne!(begun.session_id, 0);
        // The second is added, and the first is not named again.
        let mut more = ask(kafka.latest_offset(&topics[1].name, 0)).request(&topics[1]);
        (more.session_id, more.session_epoch) = (begun.session_id, 1);
        assert_eq!(connection.ask(&more, version).error_code, 0);
        produce(&mut connection, 0);
        produce(&mut connection, 1);
        let mut same = more.clone();
        same.topics.clear();
        let mut seen = Vec::new();
        for epoch in 2..40 {
            same.session_epoch = epoch;
            let response = connection.ask(&same, version);
            assert_eq!(response.error_code, 0);
            seen.extend(fetched(&response));
            seen.sort();
            seen.dedup();
            if seen.len() == 2 {
                break;
            }
        }
        let mut expected: Vec<String> = values.iter().map(|value| sha256(value)).collect();
        expected.sort();
        assert_eq!(seen, expected, "{version}");
        // Another connection has not heard of it.
        same.session_epoch += 1;
        let other = Connection::open(sizegate.bootstrap()).ask(&same, version);
        assert_eq!((other.error_code, other.session_id), (70, 0));
    }
}

#[test]
fn followers_are_given_what_is_stored_and_so_is_who_is_not_chosen() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let yaml = folder.yaml("").replace(
        "action: offload\n",
        "action: offload\n  offload: {redeem: {clients: {client_ids: ['reader-*']}}}\n",
    );
    let sizegate = Sizegate::start(kafka, &yaml);
    let topic = kafka.topic("claims", 1, &[]);
    let mut connection = Connection::open(sizegate.bootstrap());
    let sent = batch([large(300_000, 95)]).build();
    let response = connection.produce(9, -1, &[Part::new(&topic, sent.clone())]);
    assert_eq!(response[0].code, 0);
    for (client_id, replica, is_original) in [
        ("reader-1", -1, true),
        ("writer-1", -1, false),
        ("reader-1", 1, false),
    ] {
        let mut connection = Connection::open(sizegate.bootstrap());
        connection.client_id = Some(client_id.to_owned());
        let mut request = Ask::at(12, 0).request(&topic);
        request.replica_id = BrokerId(replica);
        let response = connection.ask(&request, 12);
        let fetched = response.responses[0].partitions[0].records.clone();
        let fetched = fetched.unwrap_or_default();
        if replica >= 0 {
            // Whatever the broker says to one that is none of its own: it is not an original.
            assert!(fetched.len() < 4_000);
        } else {
            assert_eq!(fetched.len() == sent.len(), is_original, "{client_id}");
        }
    }
}

#[test]
fn a_response_is_cut_at_a_record_within_the_clients_limits_and_all_of_it_arrives() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let topic = kafka.topic("claims", 1, &[]);
    let mut connection = Connection::open(sizegate.bootstrap());
    let values: Vec<Vec<u8>> = (0..20).map(|n| value(200_000, 300 + n)).collect();
    for some in values.chunks(5) {
        let sent = batch(some.iter().cloned().map(Record::value)).build();
        let response = connection.produce(9, -1, &[Part::new(&topic, sent)]);
        assert_eq!(response[0].code, 0);
    }
    // By the partition's limit, by that of all, and below the first record.
    for (partition_bytes, max_bytes, most) in [
        (500_000, 50 << 20, 2),
        (50 << 20, 700_000, 3),
        (100, 50 << 20, 1),
    ] {
        let mut next = 0;
        let mut seen = 0;
        while seen < values.len() {
            let ask = Ask {
                partition_bytes,
                max_bytes,
                ..Ask::at(12, next)
            };
            let mut here = 0;
            for bytes in batches(&ask.send(&mut connection, &topic)) {
                let batch = open(&bytes);
                let header = *batch.header();
                for (_, parts) in batch.parts() {
                    let delta = offset_delta(batch.records(), &parts).unwrap();
                    if header.base_offset + i64::from(delta) >= next {
                        let value = &batch.records()[parts.value.unwrap()];
                        assert!(value == &values[seen][..], "{seen}");
                        seen += 1;
                        here += 1;
                    }
                }
                next = header.base_offset + i64::from(header.last_offset_delta) + 1;
            }
            assert!(here <= most, "{here} of {most}");
        }
    }
}
