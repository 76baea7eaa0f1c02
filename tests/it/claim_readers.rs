//! Whoever reads, and however what they read was stored: frameworks, groups that rebalance and pause, topics with
//! LogAppendTime, tails that compaction took away, and clients that are too old.

use std::collections::BTreeMap;
use std::time::Duration;

use sizegate::batch::BatchHeader;

use crate::claim_consume::{Ask, Folder, batches, consume, open, sha256, value};
use crate::support::admin::fetch_stored;
use crate::support::programs::{properties, worker_properties};
use crate::support::{
    Connection, Kafka, Part, Program, Record, Sizegate, Topic, batch, eventually,
};

const PATIENCE: Duration = Duration::from_secs(180);
const VERSION: &str = "4.3.0";

fn produce(sizegate: &Sizegate, topic: &Topic, partition: i32, records: Vec<Record>) {
    let sent = Part::at(topic, partition, batch(records).build());
    let response = Connection::open(sizegate.bootstrap()).produce(9, -1, &[sent]);
    assert_eq!(response[0].code, 0, "{:?}", response[0].text);
}

#[test]
fn streams_counts_the_words_of_originals() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let input = kafka.topic("claims", 2, &[]);
    let output = kafka.topic("counts", 1, &[]);
    let program = Program::java_with("StreamsWordCount", VERSION, "streams");
    let state = program.dir().join("state");
    let done = program
        .arg("bootstrap", sizegate.bootstrap())
        .arg("input", &input.name)
        .arg("output", &output.name)
        .arg("state", state.display())
        .arg("lines", 20)
        .arg("pad", 100_000)
        .run();
    let counts = done.lines[0]["counts"].as_object().unwrap();
    let words = counts.values().map(|count| count.as_i64().unwrap());
    assert_eq!(words.sum::<i64>(), 60);
    let of = [("topic", input.name.as_str())];
    let metrics = sizegate.metrics();
    assert_eq!(metrics.sum("claim_offloaded_records_total", &of), 20.0);
    assert!(metrics.sum("claim_redeemed_records_total", &of) >= 20.0);
}

#[test]
fn a_connect_sink_writes_originals() {
    let kafka = Kafka::shared(VERSION);
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let topic = kafka.topic("claims", 1, &[]);
    let lines: Vec<String> = (0..6u8)
        .map(|n| format!("{n} {}", char::from(b'a' + n).to_string().repeat(100_000)))
        .collect();
    produce(
        &sizegate,
        &topic,
        0,
        lines
            .iter()
            .map(|line| Record::value(line.as_str()))
            .collect(),
    );
    let worker = Program::connect_worker(VERSION);
    let dir = worker.dir().to_path_buf();
    let file = dir.join("sink.txt");
    let strings = "org.apache.kafka.connect.storage.StringConverter";
    let config = worker_properties(&dir, VERSION, &sizegate.bootstrap(), strings);
    let sink = properties(
        &dir,
        "sink",
        &[
            "name=originals".into(),
            "connector.class=org.apache.kafka.connect.file.FileStreamSinkConnector".into(),
            "tasks.max=1".into(),
            format!("file={}", file.display()),
            format!("topics={}", topic.name),
            "consumer.override.auto.offset.reset=earliest".into(),
        ],
    );
    let running = worker.raw_arg(config).raw_arg(sink).spawn();
    let expected = lines.join("\n") + "\n";
    eventually(PATIENCE, "all lines are in the file", || {
        assert!(running.is_running(), "{}", running.last_words());
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        (written.len() >= expected.len()).then_some(())
    });
    assert!(std::fs::read_to_string(&file).unwrap() == expected);
}

#[test]
fn a_group_that_rebalances_reads_every_original() {
    const RECORDS: usize = 48;
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let topic = kafka.topic("claims", 4, &[]);
    let send = |numbers: std::ops::Range<usize>| {
        for n in numbers {
            let text = format!("{n} {}", "x".repeat(100_000));
            produce(&sizegate, &topic, n as i32 % 4, vec![Record::value(text)]);
        }
    };
    send(0..RECORDS / 2);
    let reading = Program::java("GroupRead", "4.4.0")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("group", crate::support::unique("g"))
        .arg("records", RECORDS)
        .spawn();
    // The second member has joined, and taken over partitions.
    reading.line("both read", |line| line["reading"] == true);
    send(RECORDS / 2..RECORDS);
    let output = reading.finish();
    let end = output.lines.last().unwrap();
    assert_eq!(
        (&end["read"], &end["errors"]),
        (&RECORDS.into(), &serde_json::json!([])),
        "{end}"
    );
}

#[test]
fn a_consumer_that_pauses_and_goes_on_reads_every_original() {
    // Nothing of it depends on the broker: here a real consumer reads from the oldest.
    let kafka = Kafka::shared("3.9.1");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let topic = kafka.topic("claims", 1, &[]);
    let values: Vec<Vec<u8>> = (0..12).map(|n| value(200_000, 600 + n)).collect();
    for some in values.chunks(3) {
        produce(
            &sizegate,
            &topic,
            0,
            some.iter().cloned().map(Record::value).collect(),
        );
    }
    let output = Program::java("Originals", "4.4.0")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("records", values.len())
        .arg("pause", 3)
        .arg("p.max.poll.records", 2)
        .run();
    let read: Vec<&str> = output
        .lines
        .iter()
        .filter_map(|line| line["sha256"].as_str())
        .collect();
    let expected: Vec<String> = values.iter().map(|value| sha256(value)).collect();
    assert_eq!(read, expected);
    assert!(output.only("end", true)["paused"].as_i64() > Some(0));
}

#[test]
fn with_the_brokers_own_time_a_batch_keeps_it() {
    for kafka in crate::support::KAFKA_VERSIONS.map(Kafka::shared) {
        let folder = Folder::new();
        let sizegate = folder.start(kafka, "");
        let topic = kafka.topic("claims", 1, &[("message.timestamp.type", "LogAppendTime")]);
        let content = value(100_000, 620);
        produce(
            &sizegate,
            &topic,
            0,
            vec![Record::value("small"), Record::value(content.clone())],
        );
        let stored = fetch_stored(&kafka.bootstrap(), &topic.name, 0, 1 << 20);
        let stored = BatchHeader::read(&stored).unwrap();
        let mut connection = Connection::open(sizegate.bootstrap());
        let fetched = eventually(PATIENCE, "all of it", || {
            let fetched = Ask::at(12, 0).send(&mut connection, &topic);
            (fetched.len() > 100_000).then_some(fetched)
        });
        let read = BatchHeader::read(&fetched).unwrap();
        // Bit 3 of the attributes: with it, the largest timestamp is every record's.
        assert_eq!(read.attributes & 0b1000, 0b1000);
        assert_eq!(read.attributes, stored.attributes);
        assert_eq!(read.max_timestamp_ms, stored.max_timestamp_ms);
        assert!(fetched.windows(content.len()).any(|part| part == content));
    }
}

#[test]
fn past_a_tail_that_compaction_took_away_consumers_go_on() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let configs = [
        ("cleanup.policy", "compact"),
        ("min.cleanable.dirty.ratio", "0.001"),
        // By the broker's clock: segments are rolled by their records' time.
        ("segment.ms", "100"),
        ("message.timestamp.type", "LogAppendTime"),
    ];
    let topic = kafka.topic("claims", 1, &configs);
    let large = |key: &str, seed: u64| Record::value(value(100_000, seed)).key(key);
    produce(
        &sizegate,
        &topic,
        0,
        vec![large("a", 641), large("b", 642), large("c", 643)],
    );
    produce(&sizegate, &topic, 0, vec![large("c", 644)]);
    // Each begins a new segment; what is before the last of them is cleaned.
    let first = eventually(PATIENCE, "the first batch has lost its last record", || {
        produce(&sizegate, &topic, 0, vec![Record::value("small").key("d")]);
        let stored = fetch_stored(&kafka.bootstrap(), &topic.name, 0, 1 << 20);
        let first = batches(&stored).remove(0);
        let header = BatchHeader::read(&first).unwrap();
        (header.records_count == 2).then_some(header)
    });
    assert_eq!((first.base_offset, first.last_offset_delta), (0, 2));
    let mut connection = Connection::open(sizegate.bootstrap());
    let fetched = eventually(PATIENCE, "both originals", || {
        let fetched = Ask::at(12, 0).send(&mut connection, &topic);
        let first = batches(&fetched).into_iter().next()?;
        (open(&first).parts().count() == 2).then_some(first)
    });
    assert_eq!(BatchHeader::read(&fetched).unwrap().last_offset_delta, 2);
    // By themselves, and as a real consumer, which would otherwise ask for the same batch for ever.
    let end = kafka.latest_offset(&topic.name, 0);
    let (mut next, mut seen) = (0, BTreeMap::new());
    eventually(PATIENCE, "the end", || {
        next = consume(&mut connection, &topic, next, 1, &mut seen)?;
        (next == end).then_some(())
    });
    assert_eq!(seen[&0], sha256(&value(100_000, 641)));
    assert_eq!(seen[&3], sha256(&value(100_000, 644)));
    assert!(!seen.contains_key(&2));
    let output = Program::java("Originals", "4.4.0")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("records", 4)
        .run();
    // What is behind these is cleaned meanwhile.
    let mut read = output
        .lines
        .iter()
        .filter_map(|line| line["sha256"].as_str());
    for seed in [641, 642, 644] {
        assert_eq!(read.next(), Some(sha256(&value(100_000, seed)).as_str()));
    }
}

/// A Fetch of partition 0 in version 3, which has neither sessions nor isolation.
fn fetch_3(topic: &Topic) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(1i16.to_be_bytes()); // Fetch
    body.extend(3i16.to_be_bytes());
    body.extend(7i32.to_be_bytes()); // correlation id
    body.extend((-1i16).to_be_bytes()); // client id
    body.extend((-1i32).to_be_bytes()); // replica id
    body.extend(100i32.to_be_bytes()); // max wait
    body.extend(1i32.to_be_bytes()); // min bytes
    body.extend((1i32 << 20).to_be_bytes()); // max bytes
    body.extend(1i32.to_be_bytes()); // topics
    body.extend((topic.name.len() as i16).to_be_bytes());
    body.extend(topic.name.as_bytes());
    body.extend(1i32.to_be_bytes()); // partitions
    body.extend(0i32.to_be_bytes());
    body.extend(0i64.to_be_bytes());
    body.extend((1i32 << 20).to_be_bytes());
    let mut frame = (body.len() as i32).to_be_bytes().to_vec();
    frame.extend(body);
    frame
}

#[test]
fn a_fetch_too_old_to_be_redeemed_ends_its_connection_and_elsewhere_goes_as_ever() {
    // Kafka 4 has no such versions; 3.9 still does.
    let kafka = Kafka::shared("3.9.1");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let (claims, others) = (kafka.topic("claims", 1, &[]), kafka.topic("others", 1, &[]));
    produce(
        &sizegate,
        &claims,
        0,
        vec![Record::value(value(100_000, 660))],
    );
    produce(&sizegate, &others, 0, vec![Record::value("other")]);
    let mut connection = Connection::open(sizegate.bootstrap());
    connection.send_bytes(&fetch_3(&others));
    let response = connection.read_frame().unwrap();
    assert!(response.windows(5).any(|part| part == b"other"));
    connection.send_bytes(&fetch_3(&claims));
    assert!(
        connection.is_closed_within(PATIENCE),
        "neither a ticket nor half an original"
    );
    let closed = sizegate.metrics();
    assert!(closed.sum("connections_closed_total", &[]) >= 1.0);
    // Others of that client go on.
    let mut connection = Connection::open(sizegate.bootstrap());
    connection.send_bytes(&fetch_3(&others));
    assert!(connection.read_frame().is_ok());
}
