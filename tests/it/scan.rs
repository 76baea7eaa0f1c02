//! `sizegate scan`: its verdicts on stored batches are those that producing the same batches through sizegate has.

use std::collections::BTreeMap;

use crate::support::batch::{Codec, Record};
use crate::support::command::{self, Ran};
use crate::support::{Connection, Kafka, Part, Sizegate, batch, batch_of_bytes, programs};
use bytes::Bytes;
use serde_json::Value;

const RULES: &str = "rules:\n\
     - {name: deep, topics: ['scan-deep-*'], limits: {batch_bytes: 60000, uncompressed_bytes: 100000, record_bytes: 19000, \
        value_bytes: 18000, key_bytes: 200, headers_bytes: 300}}\n\
     - {name: wire, topics: ['scan-wire-*'], limits: {batch_bytes: 20000}}\n\
     - {name: looked-at, topics: ['scan-looked-*'], limits: {batch_bytes: 20000, record_bytes: 5000}, action: observe}";

/// Batches of real clients, and some of our own at the edges of the rules.
fn batches() -> Vec<Bytes> {
    let folder = programs::repo().join("tests/data/batches");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "bin"))
        .collect();
    files.sort();
    let mut batches: Vec<Bytes> = files
        .into_iter()
        .map(|path| Bytes::from(std::fs::read(path).unwrap()))
        // Of an idempotent producer's the broker would ask for those before.
        .filter(|batch| batch[43..51] == (-1i64).to_be_bytes())
        .collect();
    for bytes in [19_999, 20_000, 20_001, 59_999, 60_000, 60_001] {
        batches.push(batch_of_bytes(bytes).build());
    }
    for codec in [
        Codec::None,
        Codec::Gzip,
        Codec::Snappy,
        Codec::Lz4,
        Codec::Zstd,
    ] {
        for records in [
            vec![Record::of_a(17_999), Record::of_a(18_001)],
            vec![Record::of_a(10).key(vec![b'k'; 201])],
            vec![Record::of_a(10).header("name", vec![b'h'; 300])],
            vec![Record::of_a(16_000); 7],
            // Near several limits.
            vec![
                Record::of_random(15_500, 3),
                Record::of_a(10).key(vec![b'k'; 190]),
            ],
        ] {
            batches.push(batch(records).codec(codec).build());
        }
    }
    batches
}

/// What is over at an offset: gate and size.
type Over = BTreeMap<i64, Vec<(String, Value)>>;

fn yaml(kafka: &Kafka) -> String {
    format!(
        "cluster: {{bootstrap_servers: [{:?}]}}\n{RULES}\n",
        kafka.bootstrap().split(',').next().unwrap()
    )
}

fn scanned(kafka: &Kafka, topic: &str) -> Ran {
    let arguments = ["scan", topic, "--examples", "100000", "--output", "json"];
    command::sizegate(&arguments, &yaml(kafka))
}

fn sampled(kafka: &Kafka, topic: &str, one_in: u64) -> Value {
    let one_in = one_in.to_string();
    let arguments = ["scan", topic, "--examples", "100000", "--output", "json"];
    let arguments = [&arguments[..], &["--sample", &one_in]].concat();
    command::sizegate(&arguments, &yaml(kafka)).json()
}

/// What was found does not depend on what was measured.
fn judges_all_and_measures_some(sampled: &Value, all: &Value, one_in: u64) {
    for same in ["found", "verdicts", "batches", "bytes", "records"] {
        assert_eq!(sampled[same], all[same], "{same}");
    }
    assert_eq!(sampled["sizes"]["batch"], all["sizes"]["batch"]);
    let measured = |tally: &Value| tally["sizes"]["uncompressed"]["count"].as_u64().unwrap();
    let batches = all["batches"].as_u64().unwrap();
    let unread = all["not_measured"].as_u64().unwrap();
    assert_eq!(measured(all) + unread, batches);
    assert!(measured(sampled) <= batches.div_ceil(one_in));
    assert!(measured(sampled) + unread >= batches / one_in, "{sampled}");
}

fn found(scan: &Value, verdict: &str) -> Over {
    let mut over = Over::new();
    for finding in scan["topics"][0]["found"].as_array().unwrap() {
        if finding["verdict"] != verdict {
            continue;
        }
        for example in finding["examples"].as_array().unwrap() {
            let size = match &example["size_bytes"] {
                Value::Null => example["at_least_bytes"].clone(),
                exact => exact.clone(),
            };
            let gate = finding["gate"].as_str().unwrap().to_owned();
            over.entry(example["offset"].as_i64().unwrap())
                .or_default()
                .push((gate, size));
        }
    }
    over.values_mut()
        .for_each(|gates| gates.sort_by_key(|(gate, _)| gate.clone()));
    over
}

#[test]
fn its_verdicts_are_those_of_producing_the_same_batches_through_sizegate() {
    for version in ["4.3.0", "4.4.0"] {
        let kafka = Kafka::shared(version);
        let sizegate = Sizegate::start(kafka, RULES);
        for (kind, verdict) in [
            ("deep", "refused"),
            ("wire", "refused"),
            ("looked", "observed"),
        ] {
            let topic = |what: &str| {
                kafka.topic(
                    &format!("scan-{kind}-{what}"),
                    1,
                    &[("retention.ms", "-1"), ("max.message.bytes", "10000000")],
                )
            };
            let (stored, live) = (topic("stored"), topic("live"));
            let mut direct = Connection::open(kafka.bootstrap());
            let mut through = Connection::open(sizegate.bootstrap());
            let (mut expected, mut offset, mut left) = (Over::new(), 0, 0);
            for batch in batches() {
                let records = i32::from_be_bytes(batch[57..61].try_into().unwrap());
                if direct.produce(9, -1, &[Part::new(&stored, batch.clone())])[0].code != 0 {
                    // What the broker takes from nobody is not stored.
                    left += 1;
                    continue;
                }
                let response = through.produce(9, -1, &[Part::new(&live, batch)]).remove(0);
                let told = match (verdict, response.code) {
                    ("observed", 0) => Vec::new(),
                    (_, 0) => Vec::new(),
                    (_, 10) => vec![tail(&response.text.unwrap())],
                    other => panic!("{other:?}"),
                };
                if !told.is_empty() {
                    expected.insert(offset, told);
                }
                offset += i64::from(records);
            }
            assert!(left < 20, "{left}");
            if verdict == "observed" {
                expected = observed(&sizegate, &live.name, &stored.name, kafka);
            }
            let ran = scanned(kafka, &stored.name);
            let sampled = sampled(kafka, &stored.name, 7);
            assert_eq!(ran.code, i32::from(verdict == "refused"), "{ran:?}");
            let scan = ran.json();
            let tally = &scan["topics"][0];
            assert_eq!(tally["records"].as_i64().unwrap(), offset);
            judges_all_and_measures_some(&sampled["topics"][0], tally, 7);
            if verdict == "refused" {
                assert!(expected.len() >= 8, "{kind}: {expected:?}");
                assert_eq!(found(&scan, "refused"), expected, "{kind}");
                assert_eq!(tally["verdicts"]["refused"], expected.len());
            } else {
                let metrics = sizegate.metrics();
                let observed = metrics.sum(
                    "produce_batches_total",
                    &[("topic", &live.name), ("verdict", "observed")],
                );
                assert_eq!(tally["verdicts"]["observed"].as_f64().unwrap(), observed);
                assert_eq!(
                    counts(&scan, "observed"),
                    expected
                        .into_iter()
                        .map(|(n, gates)| (gates[0].0.clone(), n))
                        .collect()
                );
            }
            let near = |gate: &str| {
                sizegate
                    .metrics()
                    .sum("near_limit_total", &[("topic", &live.name), ("gate", gate)])
            };
            for (gate, count) in counts(&scan, "near_limit") {
                assert_eq!(near(&gate), count as f64, "{kind}, near {gate}");
            }
            // Sizes are exact at the ends: the broker stores what it got.
            let sizes = &tally["sizes"]["batch"];
            assert_eq!(sizes["count"], tally["batches"]);
            assert!(sizes["p50"].as_u64() <= sizes["max"].as_u64());
        }
    }
}

/// Batches by gate.
fn counts(scan: &Value, verdict: &str) -> BTreeMap<String, i64> {
    let mut counts = BTreeMap::new();
    for finding in scan["topics"][0]["found"].as_array().unwrap() {
        if finding["verdict"] == verdict {
            let gate = finding["gate"].as_str().unwrap().to_owned();
            *counts.entry(gate).or_default() += finding["batches"].as_i64().unwrap();
        }
    }
    counts
}

/// By the metrics of the proxy: how often each gate was over, as `(count, [(gate, null)])`.
fn observed(sizegate: &Sizegate, live: &str, _stored: &str, _kafka: &Kafka) -> Over {
    let metrics = sizegate.metrics();
    let mut over = Over::new();
    for gate in ["batch", "record"] {
        let count = metrics.sum(
            "violations_total",
            &[("topic", live), ("gate", gate), ("action", "observe")],
        );
        over.insert(count as i64, vec![(gate.to_owned(), Value::Null)]);
    }
    assert_eq!(over.len(), 2, "the counts of both gates differ");
    over
}

/// Gate and size of a refusal's tail.
fn tail(text: &str) -> (String, Value) {
    let field = |name: &str| {
        let (_, rest) = text.split_once(&format!("{name}="))?;
        Some(rest.split([' ', ']']).next()?.to_owned())
    };
    let size = field(" size_bytes")
        .or_else(|| field("at_least_bytes"))
        .unwrap();
    (
        field("[gate").unwrap(),
        Value::from(size.parse::<u64>().unwrap()),
    )
}

#[test]
fn what_cannot_be_read_and_what_is_asked_wrongly_is_said() {
    let kafka = Kafka::shared("4.4.0");
    let ran = scanned(kafka, "scan-there-is-none");
    assert_eq!(ran.code, 2, "{ran:?}");
    assert_eq!(ran.json()["error"], "there is no topic scan-there-is-none");
    let usage = command::sizegate(&["scan", "x", "--last", "24h", "--from", "3"], "");
    assert_eq!(usage.code, 64, "{usage:?}");
}

#[test]
fn only_what_is_asked_for_is_read_and_a_table_names_places_but_no_content() {
    let kafka = Kafka::shared("4.4.0");
    let topic = kafka.topic("scan-wire-part", 1, &[("max.message.bytes", "10000000")]);
    let mut direct = Connection::open(kafka.bootstrap());
    let secret = "a-secret-of-somebody".repeat(1_100);
    for value in ["small".to_owned(), secret.clone(), "small".to_owned()] {
        let records = batch([Record::value(value).key("whose")]).build();
        assert_eq!(
            direct.produce(9, -1, &[Part::new(&topic, records)])[0].code,
            0
        );
    }
    let scan = |more: &[&str]| {
        let arguments: Vec<&str> = ["scan", &topic.name].iter().chain(more).copied().collect();
        command::sizegate(&arguments, &yaml(kafka))
    };
    let all = scan(&["--max-rate", "10MiB"]);
    assert_eq!(all.code, 1, "{all:?}");
    assert!(
        all.out
            .contains("would be refused: 1 batch at gate batch, limit 20,000 (rule \"wire\")"),
        "{}",
        all.out
    );
    assert!(all.out.contains("; at 0@1"), "{}", all.out);
    assert!(
        !all.out.contains("secret") && !all.out.contains("whose") && !all.err.contains("secret")
    );
    let from = scan(&["--from", "2"]);
    assert_eq!(from.code, 0, "{from:?}");
    assert!(from.out.contains(": 1 batch, 1 record, "), "{}", from.out);
    let none = scan(&["--last", "1ms"]);
    assert!(none.out.contains(": 0 batches, 0 records"), "{}", none.out);
    assert!(!all.out.contains("--at-least"), "{}", all.out);
}

#[test]
fn a_batch_is_never_held_uncompressed() {
    const UNCOMPRESSED_BYTES: usize = 160 << 20;
    const DATA_KIB: usize = 128 << 10;
    let kafka = Kafka::shared("4.4.0");
    let topic = kafka.topic("scan-deep-large", 1, &[("max.message.bytes", "10000000")]);
    let records = batch([Record::of_a(UNCOMPRESSED_BYTES)]).codec(Codec::Gzip);
    let uncompressed = records.uncompressed_bytes();
    let mut direct = Connection::open(kafka.bootstrap());
    let produced = direct.produce(9, -1, &[Part::new(&topic, records.build())]);
    assert_eq!(produced[0].code, 0);
    let ran = command::sizegate_within(
        DATA_KIB,
        &["scan", &topic.name, "--output", "json"],
        &yaml(kafka),
    );
    assert_eq!(ran.code, 1, "{ran:?}");
    let tally = &ran.json()["topics"][0];
    assert_eq!(tally["sizes"]["uncompressed"]["max"], uncompressed);
    assert_eq!(tally["verdicts"]["refused"], 1);
}
