//! What sizegate writes itself: every record once, in order, at the offset that it was told, whatever the brokers do;
//! and whoever writes is never kept waiting.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster_security::{WRITE, allow, guarded, sasl};
use crate::control_plane::{PATIENCE, Running};
use crate::support::kafka::PLAIN_USER;
use crate::support::{KAFKA_VERSIONS, Kafka, KafkaOptions, admin, eventually, unique};
use bytes::Bytes;
use kafka_protocol::records::{Record, RecordBatchDecoder};
use sizegate::cluster::{NewRecord, NotWritten, Outcome, Producer, Written};

const ROOM: u32 = 1 << 20;
const ALL: i32 = 64 << 20;

fn running(kafka: &Kafka) -> Running {
    Running::start(&kafka.bootstrap(), &[])
}

fn numbered(topic: &str, n: usize) -> NewRecord {
    NewRecord {
        topic: Arc::from(topic),
        value: Some(Bytes::from(format!("record {n}"))),
        ..NewRecord::default()
    }
}

fn outcomes(running: &Running, offered: Vec<Outcome>) -> Vec<Result<Written, NotWritten>> {
    let each = offered
        .into_iter()
        .map(|outcome| running.wait(outcome.wait()));
    each.collect()
}

/// By offset, as another decoder reads them.
fn stored(address: &str, topic: &str, partition: i32) -> BTreeMap<i64, Record> {
    let mut bytes = admin::fetch_stored(address, topic, partition, ALL);
    let batches = RecordBatchDecoder::decode_all(&mut bytes).unwrap();
    let records = batches.into_iter().flat_map(|batch| batch.records);
    records.map(|record| (record.offset, record)).collect()
}

fn text(value: Option<&Bytes>) -> String {
    String::from_utf8(value.unwrap().to_vec()).unwrap()
}

#[test]
fn what_is_written_is_stored_whole_at_the_offset_that_is_acknowledged() {
    for version in KAFKA_VERSIONS {
        let kafka = Kafka::shared(version);
        let topic = kafka.topic("own", 3, &[]).name;
        let running = running(kafka);
        let producer = running.cluster.producer(ROOM);
        let records: Vec<NewRecord> = (0..300)
            .map(|n| NewRecord {
                key: (n % 3 != 0).then(|| Bytes::from(format!("key {}", n % 10))),
                headers: vec![
                    ("n".to_owned(), Some(Bytes::from(n.to_string()))),
                    ("empty".to_owned(), None),
                ],
                ..numbered(&topic, n)
            })
            .collect();
        let offered = records.iter().map(|r| producer.offer(r.clone()).unwrap());
        let written = outcomes(&running, offered.collect());
        let parts = [0, 1, 2].map(|partition| stored(&kafka.bootstrap(), &topic, partition));
        assert_eq!(parts.iter().map(BTreeMap::len).sum::<usize>(), 300);
        let mut by_key = BTreeMap::new();
        for (record, written) in records.iter().zip(written) {
            let Written { partition, offset } = written.unwrap();
            let found = &parts[partition as usize][&offset.unwrap()];
            assert_eq!((&found.key, &found.value), (&record.key, &record.value));
            let headers = found
                .headers
                .iter()
                .map(|(k, v)| (k.to_string(), v.clone()));
            assert_eq!(headers.collect::<Vec<_>>(), record.headers);
            if let Some(key) = &record.key {
                let known = by_key.insert(key.clone(), partition);
                assert_eq!(
                    known.unwrap_or(partition),
                    partition,
                    "a key has one partition"
                );
            }
        }
        // In each partition in the order in which they were offered.
        for part in &parts {
            let numbers = part.values().map(|record| {
                let text = text(record.value.as_ref());
                text["record ".len()..].parse::<u32>().unwrap()
            });
            assert!(numbers.is_sorted());
        }
    }
}

#[test]
fn a_topic_that_is_created_late_gets_what_waited_for_it() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let running = running(kafka);
    let producer = running.cluster.producer(ROOM);
    let (late, here) = (unique("own-late"), kafka.topic("own-here", 1, &[]).name);
    let waiting: Vec<Outcome> = (0..10)
        .map(|n| producer.offer(numbered(&late, n)).unwrap())
        .collect();
    // Nobody else waits for it.
    assert!(running.wait(producer.write(numbered(&here, 0))).is_ok());
    kafka.create_topic(&late, 1, 1, &[]);
    for (n, written) in (0..).zip(outcomes(&running, waiting)) {
        assert_eq!(
            written,
            Ok(Written {
                partition: 0,
                offset: Some(n)
            })
        );
    }
}

#[test]
fn what_has_no_room_is_refused_at_once_and_takes_no_other_writers_room() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let running = running(kafka);
    let (absent, here) = (unique("own-absent"), kafka.topic("own-room", 1, &[]).name);
    let producer = running.cluster.producer(10_000);
    let mut waiting = Vec::new();
    let refused = loop {
        match producer.offer(numbered(&absent, waiting.len())) {
            Ok(outcome) => waiting.push(outcome),
            Err(refused) => break refused,
        }
        assert!(waiting.len() < 10_000);
    };
    assert_eq!(refused, NotWritten::NoRoom);
    assert!(waiting.len() > 10);
    let other = running.cluster.producer(ROOM);
    assert!(running.wait(other.write(numbered(&here, 0))).is_ok());
    // Each ends some day, and its room is given back.
    for outcome in outcomes(&running, waiting) {
        let Err(NotWritten::Expired(why)) = outcome else {
            panic!("{outcome:?}")
        };
        assert!(why.contains("UNKNOWN_TOPIC_OR_PARTITION"), "{why}");
    }
    running.wait(producer.finished());
    assert!(running.wait(producer.write(numbered(&here, 1))).is_ok());
}

#[test]
fn a_record_over_the_topics_limit_is_refused_alone() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let topic = kafka
        .topic("own-large", 1, &[("max.message.bytes", "5000")])
        .name;
    let running = running(kafka);
    let producer = running.cluster.producer(ROOM);
    let large = |n: usize| NewRecord {
        value: Some(Bytes::from(vec![b'x'; if n == 30 { 6_000 } else { 300 }])),
        ..numbered(&topic, n)
    };
    let offered = (0..60).map(|n| producer.offer(large(n)).unwrap()).collect();
    for (n, outcome) in outcomes(&running, offered).into_iter().enumerate() {
        match outcome {
            Ok(_) => assert_ne!(n, 30),
            Err(NotWritten::Refused(why)) => {
                assert!(n == 30 && why.contains("MESSAGE_TOO_LARGE"), "{n}: {why}");
            }
            Err(other) => panic!("{n}: {other}"),
        }
    }
    assert_eq!(stored(&kafka.bootstrap(), &topic, 0).len(), 59);
}

#[test]
fn who_may_not_write_is_told_so_and_writes_once_it_may() {
    let kafka = guarded();
    let topic = kafka.topic("own-guarded", 1, &[]).name;
    let ca = kafka.certs().ca().display().to_string();
    let own = kafka.certs().cert("client").display().to_string();
    let key = kafka.certs().key("client").display().to_string();
    let mut settings = sasl("PLAIN", PLAIN_USER);
    settings.extend([
        ("CLUSTER__TLS__CA_FILE", ca.as_str()),
        ("CLUSTER__TLS__CERT_FILE", own.as_str()),
        ("CLUSTER__TLS__KEY_FILE", key.as_str()),
    ]);
    let running = Running::start(&kafka.sasl_tls_bootstrap(), &settings);
    let producer = running.cluster.producer(ROOM);
    let refused = running.wait(producer.write(numbered(&topic, 0)));
    let Err(NotWritten::Refused(why)) = refused else {
        panic!("{refused:?}")
    };
    assert!(why.contains("TOPIC_AUTHORIZATION_FAILED"), "{why}");
    allow(kafka, "User:alice", &topic, WRITE);
    // Right after CreateAcls the broker may not know of it.
    let written = eventually(PATIENCE, "alice may write", || {
        running.wait(producer.write(numbered(&topic, 1))).ok()
    });
    assert_eq!(written.offset, Some(0));
}

fn write_on(producer: &Producer, topic: &str, from: usize, count: usize) -> Vec<Outcome> {
    let mut offered = Vec::new();
    for n in from..from + count {
        offered.push(producer.offer(numbered(topic, n)).unwrap());
        std::thread::sleep(Duration::from_millis(2));
    }
    offered
}

#[test]
fn a_leader_that_is_killed_or_paused_costs_no_record_and_doubles_none() {
    let kafka = Kafka::start(KAFKA_VERSIONS[1], KafkaOptions::nodes(3));
    let topic = unique("own-moved");
    kafka.create_topic(&topic, 1, 3, &[("min.insync.replicas", "2")]);
    let running = running(&kafka).up();
    let producer = running.cluster.producer(ROOM);
    let leader = || {
        let address = admin::leader(&kafka.bootstrap(), &topic, 0);
        let led = kafka
            .node_ids()
            .into_iter()
            .find(|id| kafka.node(*id) == address);
        led.unwrap()
    };
    let mut offered = write_on(&producer, &topic, 0, 100);
    let killed = leader();
    kafka.kill(killed);
    offered.extend(write_on(&producer, &topic, 100, 300));
    let written = outcomes(&running, std::mem::take(&mut offered));
    kafka.restart(killed);
    let paused = leader();
    kafka.pause(paused);
    offered.extend(write_on(&producer, &topic, 400, 100));
    kafka.resume(paused);
    let written: Vec<_> = written
        .into_iter()
        .chain(outcomes(&running, offered))
        .collect();
    let stored = stored(&kafka.bootstrap(), &topic, 0);
    assert_eq!((written.len(), stored.len()), (500, 500));
    for (n, outcome) in written.into_iter().enumerate() {
        let Some(offset) = outcome.unwrap().offset else {
            continue;
        };
        assert_eq!(text(stored[&offset].value.as_ref()), format!("record {n}"));
    }
    let in_order: Vec<String> = stored.values().map(|r| text(r.value.as_ref())).collect();
    assert!(
        in_order
            .iter()
            .enumerate()
            .all(|(n, text)| *text == format!("record {n}"))
    );
}
