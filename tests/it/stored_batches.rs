//! Reading what is stored with the control plane's own credentials: every batch once and in order, whatever its size,
//! and whatever happens to the log and its leader meanwhile.

use std::time::Duration;

use bytes::Bytes;
use sizegate::cluster::{At, ReadError, StoredBatch, TopicReader};
use sizegate::vocabulary::Codec;

use crate::control_plane::{runtime, unpolled};
use crate::support::admin::{delete_records, fetch_stored, leader};
use crate::support::{Connection, KAFKA_VERSIONS, Kafka, Part, Record, Topic, batch};

async fn reader(bootstrap: &str, topic: &str) -> TopicReader {
    unpolled(bootstrap, &[]).reader(topic).await.unwrap()
}

/// All batches of a partition from `from` up to its end now.
async fn read(reader: &mut TopicReader, partition: i32, from: i64) -> Vec<StoredBatch> {
    let end = reader.offset(partition, At::End).await.unwrap();
    let mut batches = reader.batches(partition, from, end);
    let mut read = Vec::new();
    while let Some(batch) = batches.next().await.unwrap() {
        read.push(batch);
    }
    assert_eq!(batches.position(), end);
    assert_eq!(batches.deleted(), 0);
    read
}

fn bytes(batches: &[StoredBatch]) -> Bytes {
    let all: Vec<&[u8]> = batches.iter().map(|batch| &batch.bytes[..]).collect();
    all.concat().into()
}

fn produce(kafka: &Kafka, topic: &Topic, partition: i32, records: Bytes) {
    let to = leader(&kafka.bootstrap(), &topic.name, partition);
    let sent = [Part::at(topic, partition, records)];
    let response = Connection::open(to.as_str()).produce(9, -1, &sent);
    assert_eq!(response[0].code, 0, "{:?}", response[0].text);
}

/// Batches of one to three records, small and large ones in turn; offsets 0 to 15.
fn fill(kafka: &Kafka, topic: &Topic) {
    for (at, size) in [100, 70_000, 3_000_000, 200, 5, 900_000, 64_000, 64_001]
        .into_iter()
        .enumerate()
    {
        let records = (0..=at as u64 % 3).map(|seed| Record::of_random(size, seed));
        let codec = Codec::ALL[at % Codec::ALL.len()];
        produce(kafka, topic, 0, batch(records).codec(codec).build());
    }
}

const LARGE: &[(&str, &str)] = &[("max.message.bytes", "20000000")];

#[test]
fn every_batch_comes_once_in_order_and_as_it_is_stored() {
    for version in KAFKA_VERSIONS {
        let kafka = Kafka::shared(version);
        let topic = kafka.topic("read", 2, LARGE);
        fill(kafka, &topic);
        let stored = fetch_stored(&kafka.bootstrap(), &topic.name, 0, 64 << 20);
        runtime().block_on(async {
            for fetch_bytes in [1, 100_000, 64 << 20] {
                let mut reader = reader(&kafka.bootstrap(), &topic.name)
                    .await
                    .fetch_bytes(fetch_bytes);
                assert_eq!(reader.partitions(), [0, 1]);
                assert_eq!(reader.offset(0, At::Start).await.unwrap(), 0);
                assert_eq!(reader.offset(0, At::End).await.unwrap(), 15);
                let all = read(&mut reader, 0, 0).await;
                let first: Vec<i64> = all.iter().map(|batch| batch.base_offset).collect();
                let last: Vec<i64> = all.iter().map(|batch| batch.last_offset).collect();
                assert_eq!(first, [0, 1, 3, 6, 7, 9, 12, 13]);
                assert_eq!(last, [0, 2, 5, 6, 8, 11, 12, 14]);
                assert!(bytes(&all) == stored, "{version}, {fetch_bytes}");
                // From the middle of a batch to the middle of another: both come whole.
                let mut some = Vec::new();
                let mut batches = reader.batches(0, 4, 8);
                while let Some(batch) = batches.next().await.unwrap() {
                    some.push(batch.base_offset);
                }
                assert_eq!(some, [3, 6, 7]);
                assert_eq!(read(&mut reader, 1, 0).await.len(), 0);
            }
        });
    }
}

#[test]
fn an_offset_is_found_by_time() {
    let kafka = Kafka::shared("4.4.0");
    let topic = kafka.topic("times", 1, &[("retention.ms", "-1")]);
    for seconds in [10, 20, 30] {
        let records = batch([Record::value("a"), Record::value("b")]);
        produce(
            kafka,
            &topic,
            0,
            records.base_timestamp(seconds * 1_000).build(),
        );
    }
    runtime().block_on(async {
        let mut reader = reader(&kafka.bootstrap(), &topic.name).await;
        for (ms, offset) in [(0, 0), (10_000, 0), (15_000, 2), (29_999, 4), (40_000, 6)] {
            let found = reader.offset(0, At::Time(ms)).await.unwrap();
            assert_eq!(found, offset, "{ms}");
        }
    });
}

#[test]
fn what_cannot_be_read_is_said_with_its_place() {
    let kafka = Kafka::shared("4.4.0");
    let topic = kafka.topic("unread", 1, LARGE);
    fill(kafka, &topic);
    runtime().block_on(async {
        let cluster = unpolled(&kafka.bootstrap(), &[]);
        let error = cluster.reader("nowhere").await.err();
        assert!(matches!(error, Some(ReadError::NoTopic(_))), "{error:?}");
        let bootstrap = kafka.bootstrap();
        let reader = || reader(&bootstrap, &topic.name);
        let error = reader().await.offset(1, At::End).await;
        assert!(
            matches!(error, Err(ReadError::NoPartition { partition: 1, .. })),
            "{error:?}"
        );

        let mut small = reader().await.fetch_bytes(1).largest_batch(1_000_000);
        let mut batches = small.batches(0, 0, 15);
        let mut read = 0;
        let error = loop {
            match batches.next().await {
                Ok(_) => read += 1,
                Err(error) => break error.to_string(),
            }
        };
        let said = format!(
            "{}-0 at offset 3 holds a batch of more than 1000000 bytes",
            topic.name
        );
        assert_eq!((read, error), (2, said));

        // Beyond the end: a log that was cut off, or a topic that was made again.
        let mut impatient = reader().await.patience(Duration::from_millis(500));
        let error = impatient.batches(0, 20, 30).next().await.unwrap_err();
        let said = format!(
            "{}-0 at offset 20 cannot be read: the log ends there, and not at 30",
            topic.name
        );
        assert_eq!(error.to_string(), said);
    });
}

#[test]
fn what_is_deleted_meanwhile_is_passed_and_counted() {
    let kafka = Kafka::shared("4.4.0");
    let topic = kafka.topic("deleted", 1, LARGE);
    fill(kafka, &topic);
    runtime().block_on(async {
        let mut reader = reader(&kafka.bootstrap(), &topic.name).await.fetch_bytes(1);
        let mut batches = reader.batches(0, 0, 15);
        assert_eq!(batches.next().await.unwrap().unwrap().base_offset, 0);
        delete_records(&kafka.bootstrap(), &topic.name, 7);
        let mut read = Vec::new();
        while let Some(batch) = batches.next().await.unwrap() {
            read.push(batch.base_offset);
        }
        assert_eq!(read, [7, 9, 12, 13]);
        assert_eq!(batches.deleted(), 6);
    });
}
