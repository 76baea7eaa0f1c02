//! `near_limit_total` at every gate, whatever the codec and whatever else is decoded: half of a limit, a byte more, the
//! limit itself. The sizes are made by arithmetic on Kafka's formats.

use std::collections::BTreeMap;

use crate::support::{Connection, Kafka, Part, Record, Sizegate, Topic, batch, batch_of_bytes};
use sizegate::vocabulary::{Codec, Gate};

/// Of each gate inside a batch.
const LIMIT: usize = 1_000;
const SIZES: [usize; 3] = [LIMIT / 2, LIMIT / 2 + 1, LIMIT];
/// The second and the third are near.
const NEAR: f64 = 2.0;
const GATES: [&str; 6] = [
    "uncompressed",
    "record",
    "estimate",
    "key",
    "value",
    "headers",
];
/// A record of which this gate measures so many bytes, 500 to 1,000, in the middle of a batch of three.
fn of_size(gate: &str, bytes: usize) -> Record {
    // Attributes, two deltas, no key, the value's length (2), no headers; the record's own length (2).
    let around_value = 1 + 1 + 1 + 1 + 2 + 1;
    match gate {
        "record" => Record::of_a(bytes - around_value - 2),
        // Two small records beside it: length, attributes, deltas, no key, length, 10 bytes, no headers.
        "uncompressed" => Record::of_a(bytes - 61 - 2 * 17 - around_value - 2),
        // DefaultRecordBatch.estimateBatchSizeUpperBound: header, 21 at most for a record, its parts.
        "estimate" => Record::of_a(bytes - 61 - 21 - 1 - 2 - 1),
        "key" => Record::of_a(10).key(vec![b'k'; bytes]),
        "value" => Record::of_a(bytes),
        "headers" => Record::of_a(10).header("h", vec![b'h'; bytes - 1]),
        _ => unreachable!(),
    }
}

fn near(sizegate: &Sizegate, topic: &Topic) -> BTreeMap<&'static str, f64> {
    let metrics = sizegate.metrics();
    let count = |gate: &Gate| {
        let gate = gate.label();
        let labels = [("topic", topic.name.as_str()), ("gate", gate)];
        (gate, metrics.sum("near_limit_total", &labels))
    };
    let counts = Gate::ALL.iter().map(count);
    counts.filter(|(_, count)| *count > 0.0).collect()
}

fn send(connection: &mut Connection, topic: &Topic, records: bytes::Bytes) {
    let responses = connection.produce(9, -1, &[Part::new(topic, records)]);
    assert_eq!(responses[0].code, 0, "{:?}", responses[0].text);
}

#[test]
fn sizes_near_a_limit_are_counted_at_every_gate_inside_a_batch() {
    let kafka = Kafka::shared("4.4.0");
    let rules: String = GATES
        .iter()
        .map(|gate| {
            format!("- {{name: {gate}, topics: ['{gate}-*'], limits: {{{gate}_bytes: {LIMIT}}}}}\n")
        })
        .collect();
    for decode in ["when_needed", "always"] {
        let yaml = format!("near_limit: 0.5\ninspection: {{decode: {decode}}}\nrules:\n{rules}");
        let sizegate = Sizegate::start(kafka, &yaml);
        let mut connection = Connection::open(sizegate.bootstrap());
        for gate in GATES {
            for &codec in Codec::ALL {
                let topic = kafka.topic(gate, 1, &[]);
                for bytes in SIZES {
                    let records = [Record::of_a(10), of_size(gate, bytes), Record::of_a(10)];
                    let records = batch(records).codec(codec).build();
                    send(&mut connection, &topic, records);
                }
                let expected = BTreeMap::from([(gate, NEAR)]);
                assert_eq!(near(&sizegate, &topic), expected, "{codec} {decode}");
            }
        }
    }
}

/// What was found from outside: large limits, one record, codecs that hide it.
#[test]
fn one_large_record_is_near_its_limit_whatever_hides_it() {
    let kafka = Kafka::shared("4.4.0");
    let yaml = "rules:\n- {name: record, topics: ['record-*'], limits: {record_bytes: 64KiB}}\n\
                - {name: large, topics: ['large-*'], limits: {record_bytes: 1MiB}}\n\
                - {name: uncompressed, topics: ['uncompressed-*'], limits: {uncompressed_bytes: 4MiB}}\n";
    let sizegate = Sizegate::start(kafka, yaml);
    let mut connection = Connection::open(sizegate.bootstrap());
    for &codec in Codec::ALL {
        for (stem, gate, value_bytes) in [
            ("record", "record", 60_000),
            ("large", "record", 1_020_000),
            ("uncompressed", "uncompressed", 4_194_304 / 100 * 98),
        ] {
            let topic = kafka.topic(stem, 1, &[("max.message.bytes", "5242880")]);
            let records = batch([Record::of_a(value_bytes)]).codec(codec).build();
            send(&mut connection, &topic, records);
            let expected = BTreeMap::from([(gate, 1.0)]);
            assert_eq!(near(&sizegate, &topic), expected, "{codec} {stem}");
        }
    }
}

#[test]
fn sizes_near_a_limit_are_counted_for_batches_requests_and_ratios() {
    let kafka = Kafka::shared("4.4.0");
    for decode in ["when_needed", "always", "never"] {
        let yaml = format!(
            "near_limit: 0.5\ninspection: {{decode: {decode}}}\nrules:\n\
             - {{name: batch, topics: ['batch-*'], limits: {{batch_bytes: 20000}}}}\n"
        );
        let sizegate = Sizegate::before(&kafka.bootstrap())
            .listener("frame_bytes: 3MiB")
            .yaml(&yaml)
            .start();
        let mut connection = Connection::open(sizegate.bootstrap());
        let topic = kafka.topic("batch", 1, &[]);
        for bytes in [10_000, 10_001, 20_000] {
            send(&mut connection, &topic, batch_of_bytes(bytes).build());
        }
        let expected = BTreeMap::from([("batch", NEAR)]);
        assert_eq!(near(&sizegate, &topic), expected, "{decode}");
        let topic = kafka.topic("frame", 1, &[("max.message.bytes", "10485760")]);
        // The request around the batch is some hundred bytes.
        for bytes in [1_572_000, 1_572_864, 3_145_000] {
            send(&mut connection, &topic, batch_of_bytes(bytes).build());
        }
        let expected = BTreeMap::from([("frame", NEAR)]);
        assert_eq!(near(&sizegate, &topic), expected, "{decode}");
    }
    // Uncompressed as it comes: the ratio is 1, and below 1 MiB a batch may have that whatever it is.
    let yaml =
        "near_limit: 0.5\nrules:\n- {name: ratio, topics: ['ratio-*'], limits: {ratio: 1.5}}\n";
    let sizegate = Sizegate::start(kafka, yaml);
    let mut connection = Connection::open(sizegate.bootstrap());
    let topic = kafka.topic("ratio", 1, &[("max.message.bytes", "10485760")]);
    for bytes in [524_288, 524_289, 900_000] {
        send(&mut connection, &topic, batch_of_bytes(bytes).build());
    }
    assert_eq!(near(&sizegate, &topic), BTreeMap::from([("ratio", NEAR)]));
}

#[test]
fn a_codec_is_never_near() {
    let kafka = Kafka::shared("4.4.0");
    let yaml = "near_limit: 0.5\nrules:\n- {name: codec, topics: ['codec-*'], codecs: {allow: [zstd], above: 20000}}\n";
    let sizegate = Sizegate::start(kafka, yaml);
    let mut connection = Connection::open(sizegate.bootstrap());
    let topic = kafka.topic("codec", 1, &[]);
    for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
        for bytes in [10_001, 19_000] {
            send(
                &mut connection,
                &topic,
                batch([Record::of_a(bytes)]).codec(codec).build(),
            );
        }
    }
    assert_eq!(near(&sizegate, &topic), BTreeMap::new());
}
