//! Everything at once, at random: three brokers, topics that come, go and come again, partitions that are added, rights
//! that are taken from the control plane and given back, brokers that stop for a moment and are behind afterwards, by name
//! and by id, in old sessions and new. What is above the rule is never stored, and never reaches a broker; what is within it
//! is taken as soon as a client that retries can have it taken.
//!
//! `SIZEGATE_STRESS_SECONDS` says how long (20); `make stress` runs it for two minutes.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::{CreateTopicsRequest, TopicName};
use sizegate::vocabulary::Codec;

use super::live::{self, OverWhenDropped};
use crate::support::admin;
use crate::support::client::text;
use crate::support::{
    Connection, Kafka, Part, Random, Record, Sizegate, Topic, batch, lock, number_from, unique,
};

/// A guard against what is never taken; brokers that stop, elections and a busy machine take their time.
const PATIENCE: Duration = Duration::from_secs(60);
const BROKERS: i32 = 3;
const TOPICS: usize = 4;
const MOST_PARTITIONS: i32 = 6;
const WRITERS: u64 = 6;
/// `record_bytes` of the rule.
const LIMIT: usize = 1_000;

/// One life of a topic.
#[derive(Debug, Clone)]
struct Life {
    topic: Topic,
    partitions: i32,
}

/// What the test did to the cluster.
struct World {
    kafka: Kafka,
    sizegate: Sizegate,
    stem: String,
    /// The topics that exist, by name.
    lives: Mutex<BTreeMap<String, Life>>,
    /// Some that existed: clients go on producing to them.
    gone: Mutex<Vec<Life>>,
    is_over: AtomicBool,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    created: AtomicU64,
    deleted: AtomicU64,
    grown: AtomicU64,
    denied: AtomicU64,
    paused: AtomicU64,
    taken: AtomicU64,
    retries: AtomicU64,
    given_up: AtomicU64,
    refused: AtomicU64,
    unknown: AtomicU64,
    longest_ms: AtomicU64,
    read_back: AtomicU64,
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_rule_holds_while_topics_partitions_rights_and_brokers_come_and_go() {
    let seconds = number_from("SIZEGATE_STRESS_SECONDS", 20);
    let kafka = live::guarded(BROKERS);
    let stem = unique("stress");
    let rule = format!(
        "rules: [{{name: small, topics: ['{stem}-*'], limits: {{record_bytes: {LIMIT}}}}}]"
    );
    let sizegate = live::proxy(&kafka, "500ms", &rule);
    let world = World {
        kafka,
        sizegate,
        stem,
        lives: Mutex::default(),
        gone: Mutex::default(),
        is_over: AtomicBool::new(false),
        counts: Counts::default(),
    };
    std::thread::scope(|scope| {
        let is_over = OverWhenDropped(&world.is_over);
        let mut threads = vec![
            scope.spawn(|| until_over(&world, || world.change_topics(&mut Random(1)))),
            scope.spawn(|| until_over(&world, || world.change_rights())),
            scope.spawn(|| until_over(&world, || world.pause_brokers(&mut Random(2)))),
        ];
        for writer in 0..WRITERS {
            let world = &world;
            threads.push(scope.spawn(move || {
                until_over(world, || Writer::new(world, 10 + writer).write());
            }));
        }
        let begun = Instant::now();
        // An assertion that fails ends it for all.
        while begun.elapsed() < Duration::from_secs(seconds) && !world.is_over() {
            std::thread::sleep(Duration::from_millis(50));
        }
        drop(is_over);
        for thread in threads {
            thread.join().expect("what a thread asserts holds");
        }
    });
    let lives: Vec<Life> = lock(&world.lives).values().cloned().collect();
    for life in &lives {
        world.read_back(life);
    }
    let counts = &world.counts;
    println!("{seconds} s: {counts:?}");
    for counter in [
        &counts.created,
        &counts.grown,
        &counts.denied,
        &counts.paused,
        &counts.taken,
        &counts.refused,
        &counts.read_back,
    ] {
        assert!(counter.load(Ordering::Relaxed) > 0, "{counts:?}");
    }
}

/// Ends the others also where an assertion fails.
fn until_over(world: &World, act: impl FnOnce()) {
    let is_over = OverWhenDropped(&world.is_over);
    act();
    drop(is_over);
}

impl World {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Waits, but not beyond the end.
    fn pause(&self, ms: u64) {
        let until = Instant::now() + Duration::from_millis(ms);
        while Instant::now() < until && !self.is_over() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn names(&self) -> Vec<String> {
        (0..TOPICS).map(|n| format!("{}-{n}", self.stem)).collect()
    }

    /// Topics are created, deleted, created again at once, and get more partitions.
    fn change_topics(&self, random: &mut Random) {
        while !self.is_over() {
            let name = random.pick(&self.names()).unwrap();
            let life = lock(&self.lives).get(&name).cloned();
            match life {
                None => self.create(&name, 1 + random.below(2) as i32),
                Some(life) if random.one_in(3) => {
                    self.delete(&life);
                    if random.one_in(2) {
                        self.create(&name, 1 + random.below(3) as i32);
                    }
                }
                Some(life) if life.partitions < MOST_PARTITIONS => {
                    admin::create_partitions(&self.kafka.node(1), &name, life.partitions + 1);
                    add(&self.counts.grown);
                    if let Some(life) = lock(&self.lives).get_mut(&name) {
                        life.partitions += 1;
                    }
                }
                Some(_) => {}
            }
            self.pause(100 + random.below(500));
        }
    }

    /// Not waited for: brokers hear of it one after the other.
    fn create(&self, name: &str, partitions: i32) {
        let topic = CreatableTopic::default()
            .with_name(TopicName(text(name)))
            .with_num_partitions(partitions)
            .with_replication_factor(1);
        let request = CreateTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(30_000);
        let response = Connection::open(self.kafka.node(1)).ask(&request, 7);
        let created = &response.topics[0];
        assert!(matches!(created.error_code, 0 | 36), "{created:?}");
        if created.error_code == 0 {
            add(&self.counts.created);
            let topic = Topic {
                name: name.to_owned(),
                id: created.topic_id,
            };
            lock(&self.lives).insert(name.to_owned(), Life { topic, partitions });
        }
    }

    /// What was stored of it is read first.
    fn delete(&self, life: &Life) {
        self.read_back(life);
        lock(&self.lives).remove(&life.topic.name);
        let mut gone = lock(&self.gone);
        if gone.len() >= TOPICS {
            gone.remove(0);
        }
        gone.push(life.clone());
        drop(gone);
        admin::delete_topic(&self.kafka.node(1), &life.topic.name);
        add(&self.counts.deleted);
    }

    /// The control plane loses sight of all topics, for longer than it takes to list them again, or shorter.
    fn change_rights(&self) {
        let mut random = Random(3);
        while !self.is_over() {
            self.pause(500 + random.below(2_000));
            live::deny_describe(&self.kafka, true);
            add(&self.counts.denied);
            self.pause(200 + random.below(3_000));
            live::deny_describe(&self.kafka, false);
        }
    }

    /// Nodes 2 and 3 in turn: what is asked of the cluster here is asked of node 1.
    fn pause_brokers(&self, random: &mut Random) {
        while !self.is_over() {
            self.pause(1_500 + random.below(2_000));
            let id = 2 + random.below(2) as i32;
            self.kafka.pause(id);
            add(&self.counts.paused);
            self.pause(100 + random.below(900));
            self.kafka.resume(id);
        }
    }

    /// Every value in every batch is within the limit.
    fn read_back(&self, life: &Life) {
        for partition in 0..life.partitions {
            let address = self.kafka.node(1);
            // Which waits until its leader serves it.
            admin::latest_offset(&address, &life.topic.name, partition);
            let stored = admin::fetch_stored(&address, &life.topic.name, partition, 64 << 20);
            for batch in live::batches(&stored) {
                let plain = decoded(batch);
                let longest = plain.chunk_by(|a, b| a == b).map(<[u8]>::len).max();
                assert!(
                    longest.is_none_or(|longest| longest < LIMIT),
                    "{life:?}-{partition}: {longest:?} bytes are stored"
                );
                add(&self.counts.read_back);
            }
        }
    }
}

/// The records of a stored batch; values are of one letter each.
#[allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "what is read back is not the product's to decode"
)]
fn decoded(batch: &[u8]) -> Vec<u8> {
    let payload = &batch[61..];
    if batch[22] & 7 == 0 {
        return payload.to_vec();
    }
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(payload)
        .read_to_end(&mut plain)
        .expect("gzip");
    plain
}

/// A client: sessions to every broker that it keeps, and now and then a new one.
struct Writer<'a> {
    world: &'a World,
    random: Random,
    kept: BTreeMap<i32, Connection>,
    sent: i64,
}

impl<'a> Writer<'a> {
    fn new(world: &'a World, seed: u64) -> Self {
        Self {
            world,
            random: Random(seed),
            kept: BTreeMap::new(),
            sent: 1_700_000_000_000 + (seed as i64) * 1_000_000_000,
        }
    }

    fn write(&mut self) {
        while !self.world.is_over() {
            let mut lives: Vec<Life> = lock(&self.world.lives).values().cloned().collect();
            if self.random.one_in(2) {
                self.violate(&mut lives);
            } else if let Some(life) = self.random.pick(&lives) {
                self.comply(&life);
            } else {
                self.world.pause(20);
            }
        }
    }

    /// Above the rule, to any broker, to partitions that exist, are about to or never will, to topics that are gone.
    fn violate(&mut self, lives: &mut Vec<Life>) {
        lives.extend(lock(&self.world.gone).iter().cloned());
        let Some(life) = self.random.pick(lives) else {
            return self.world.pause(20);
        };
        let partition = self.random.below(life.partitions as u64 + 2) as i32;
        let node = 1 + self.random.below(BROKERS as u64) as i32;
        let version = [9, 13][self.random.below(2) as usize];
        let records = self.records(1_500);
        let response = self.send(node, version, Part::at(&life.topic, partition, records));
        // Had a broker seen it, it might have said 6: it leads another partition.
        let text = response.1.as_deref().unwrap_or_default();
        assert!(
            matches!(response.0, 3 | 10 | 100) && text.starts_with("sizegate"),
            "v{version} at {node}, {life:?}-{partition}: {response:?}"
        );
        add(match response.0 {
            10 => &self.world.counts.refused,
            _ => &self.world.counts.unknown,
        });
    }

    /// Within the rule, as a client does it: it asks for metadata, and tries again after what is retriable.
    fn comply(&mut self, life: &Life) {
        let partition = self.random.below(life.partitions as u64) as i32;
        let version = [9, 13][self.random.below(2) as usize];
        let begun = Instant::now();
        let mut node = 1 + self.random.below(BROKERS as u64) as i32;
        while !self.world.is_over() {
            let records = self.records(500);
            let (code, text) = self.send(node, version, Part::at(&life.topic, partition, records));
            let took = begun.elapsed();
            if code == 0 {
                let took = took.as_millis() as u64;
                self.world
                    .counts
                    .longest_ms
                    .fetch_max(took, Ordering::Relaxed);
                return add(&self.world.counts.taken);
            }
            assert!(
                matches!(code, 3 | 5 | 6 | 7 | 9 | 13 | 100),
                "v{version} {life:?}-{partition}: {code} {text:?}"
            );
            add(&self.world.counts.retries);
            let is_alive = || {
                let lives = lock(&self.world.lives);
                lives
                    .get(&life.topic.name)
                    .is_some_and(|now| now.topic == life.topic)
            };
            if !is_alive() {
                return add(&self.world.counts.given_up);
            }
            assert!(
                took < PATIENCE,
                "v{version} {life:?}-{partition}: {code} {text:?}"
            );
            self.world.pause(50);
            let asked = 1 + self.random.below(BROKERS as u64) as i32;
            node = self.leader(asked, life, partition).unwrap_or(node);
        }
    }

    /// Through the proxy, as clients ask.
    fn leader(&mut self, node: i32, life: &Life, partition: i32) -> Option<i32> {
        let mut connection = self.take(node);
        let metadata = admin::metadata(&mut connection, &[&life.topic.name]);
        self.kept.insert(node, connection);
        let topic = metadata.topics.first()?;
        let mut parts = topic.partitions.iter();
        let part = parts.find(|part| part.partition_index == partition)?;
        Some(part.leader_id.0).filter(|leader| *leader > 0)
    }

    /// Code and text of one batch's answer.
    fn send(&mut self, node: i32, version: i16, part: Part) -> (i16, Option<String>) {
        let mut connection = self.take(node);
        let response = connection.produce(version, -1, &[part]).remove(0);
        self.kept.insert(node, connection);
        (response.code, response.text)
    }

    /// One that was open before, or, one time in ten, a new one.
    fn take(&mut self, node: i32) -> Connection {
        let kept = self.kept.remove(&node).filter(|_| !self.random.one_in(10));
        kept.unwrap_or_else(|| live::session(self.world.sizegate.node(node)))
    }

    /// One record of so many bytes, unlike the last.
    fn records(&mut self, bytes: usize) -> Bytes {
        self.sent += 1;
        let codec = [Codec::None, Codec::Gzip][self.random.below(2) as usize];
        batch([Record::of_a(bytes)])
            .base_timestamp(self.sent)
            .codec(codec)
            .build()
    }
}
