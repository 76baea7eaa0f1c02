//! `refusals.topic`: each refusal as a JSON record, summarised under a storm; what cannot be written is counted, and no
//! client waits for it. `refusals.record_key`: which record it was.

use std::time::Duration;

use crate::support::batch::{Codec, Record};
use crate::support::{Connection, Kafka, Part, Sizegate, Topic, admin, batch, eventually, unique};
use kafka_protocol::records::RecordBatchDecoder;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(90);
const KAFKA: &str = "4.4.0";

/// Key and value of each record of a topic.
fn records(kafka: &Kafka, topic: &str) -> Vec<(String, Value)> {
    let mut bytes = admin::fetch_stored(&kafka.bootstrap(), topic, 0, 64 << 20);
    let batches = RecordBatchDecoder::decode_all(&mut bytes).unwrap();
    let records = batches.into_iter().flat_map(|batch| batch.records);
    let told = records.map(|record| {
        let key = record
            .key
            .map(|key| String::from_utf8(key.to_vec()).unwrap());
        let value = serde_json::from_slice(&record.value.unwrap()).unwrap();
        (key.unwrap_or_default(), value)
    });
    told.collect()
}

fn wait_for(kafka: &Kafka, topic: &str, count: usize) -> Vec<(String, Value)> {
    eventually(PATIENCE, &format!("{count} records in {topic}"), || {
        let records = records(kafka, topic);
        (records.len() >= count).then_some(records)
    })
}

fn yaml(refusals: &str, record_key: &str) -> String {
    format!(
        "refusals: {{topic: {refusals}, record_key: {record_key}}}\n\
         rules:\n\
         - {{name: looked-at, topics: ['told-looked-*'], limits: {{record_bytes: 1000}}, action: observe}}\n\
         - {{name: small, topics: ['told-*'], limits: {{record_bytes: 1000}}}}"
    )
}

fn send(
    connection: &mut Connection,
    topic: &Topic,
    codec: Codec,
    records: Vec<Record>,
) -> (i16, String) {
    let part = Part::new(topic, batch(records).codec(codec).build());
    let response = connection.produce(9, -1, &[part]).remove(0);
    (response.code, response.text.unwrap_or_default())
}

/// Each another batch: one that comes again and again is a loop, and told as such.
fn refused_once(connection: &mut Connection, topic: &Topic, n: usize) {
    let record = Record::of_a(1_500 + n);
    assert_eq!(send(connection, topic, Codec::None, vec![record]).0, 10);
}

#[test]
fn each_refusal_is_a_record_with_the_fields_of_the_api_and_the_key_that_was_asked_for() {
    let kafka = Kafka::shared(KAFKA);
    for (record_key, shown) in [
        // printf %s customer-4711 | sha256sum
        ("hash", json!("sha256:85d0c1e318151f3b")),
        ("prefix", json!("customer…")),
        ("full", json!("customer-4711")),
        ("none", Value::Null),
    ] {
        let refusals = kafka.topic("refusals", 1, &[]).name;
        let sizegate = Sizegate::start(kafka, &yaml(&refusals, record_key));
        let refused = kafka.topic("told", 1, &[]);
        let looked_at = kafka.topic("told-looked", 1, &[]);
        let mut connection = Connection::open(sizegate.bootstrap());
        for codec in [
            Codec::None,
            Codec::Gzip,
            Codec::Zstd,
            Codec::Lz4,
            Codec::Snappy,
        ] {
            let records = vec![
                Record::of_a(10).key("first"),
                Record::of_random(1_500, 7).key("customer-4711"),
                Record::of_a(20).key("last"),
            ];
            let (code, text) = send(&mut connection, &refused, codec, records.clone());
            assert_eq!(code, 10);
            // Whoever reads the client's log has no right to a key by that.
            assert!(
                !text.contains("customer") && !text.contains("sha256"),
                "{text}"
            );
            assert_eq!(send(&mut connection, &looked_at, codec, records).0, 0);
        }
        let told = wait_for(kafka, &refusals, 10);
        assert_eq!(told.len(), 10);
        let kept = sizegate.json("/api/v1/refusals")["refusals"].clone();
        for (key, json) in &told {
            assert_eq!(json["topic"], **key);
            let is_observed = *key == looked_at.name;
            assert_eq!(
                json["action"],
                if is_observed { "observe" } else { "reject" }
            );
            assert_eq!(
                (&json["kind"], &json["refused_by"]),
                (&json!("refusal"), &json!("sizegate"))
            );
            assert_eq!(json["record_key"], shown, "{record_key}");
            let in_api = kept
                .as_array()
                .unwrap()
                .iter()
                .find(|kept| kept["id"] == json["id"]);
            let in_api = in_api.unwrap_or_else(|| panic!("{json}"));
            for field in [
                "gate",
                "size_bytes",
                "limit_bytes",
                "source",
                "rule",
                "partition",
                "batch_bytes",
                "codec",
                "records",
                "record",
                "record_key",
                "client_id",
                "address",
            ] {
                let told = json.get(field).cloned().unwrap_or_default();
                assert_eq!(told, in_api[field], "{field}: {json}");
            }
            assert_eq!(json["record"], 2);
            let text = in_api["text"].as_str().unwrap();
            assert!(text.starts_with(json["message"].as_str().unwrap()));
            assert!(!json.to_string().contains("aaaaaaaaaa"), "no content");
        }
        if record_key != "none" {
            sizegate.log_line(&["record_key=", shown.as_str().unwrap()]);
        }
    }
}

#[test]
fn a_storm_is_summarised_and_what_was_counted_is_written_before_it_ends() {
    let kafka = Kafka::shared(KAFKA);
    let refusals = kafka.topic("refusals", 1, &[]).name;
    let sizegate = Sizegate::start(kafka, &yaml(&refusals, "none"));
    let topic = kafka.topic("told", 1, &[]);
    let mut connection = Connection::open(sizegate.bootstrap());
    for n in 0..500 {
        refused_once(&mut connection, &topic, n);
    }
    drop(connection);
    let recent = sizegate.json("/api/v1/refusals/recent")["groups"].clone();
    assert_eq!(recent.as_array().unwrap().len(), 1);
    let group = &recent[0];
    assert_eq!(
        (&group["topic"], &group["gate"]),
        (&json!(topic.name), &json!("record"))
    );
    // On a slow machine some of them may be older than ten minutes, but none than an hour.
    assert_eq!(group["last_hour"], 500);
    let minutes = group["by_minute"].as_array().unwrap();
    assert_eq!(
        minutes
            .iter()
            .map(|minute| minute.as_u64().unwrap())
            .sum::<u64>(),
        500
    );
    let last = sizegate.json("/api/v1/refusals?limit=1")["refusals"][0]["id"].clone();
    assert_eq!(group["last_id"], last);
    assert_eq!(sizegate.terminate(), 0);
    let told = records(kafka, &refusals);
    let of_kind = |kind: &str| told.iter().filter(|(_, json)| json["kind"] == kind).count();
    // A minute may have passed on a slow machine: what was counted then came in a summary of its own.
    assert_eq!(of_kind("refusal"), 60);
    assert!(
        (1..5).contains(&of_kind("summary")),
        "{}",
        of_kind("summary")
    );
    let counted: u64 = told
        .iter()
        .filter_map(|(_, json)| json["count"].as_u64())
        .sum();
    assert_eq!(counted, 440);
}

#[test]
fn what_cannot_be_written_is_counted_and_delays_nobody() {
    let kafka = Kafka::shared(KAFKA);
    let absent = unique("refusals-absent");
    let sizegate = Sizegate::start(kafka, &yaml(&absent, "none"));
    let topic = kafka.topic("told", 1, &[]);
    let mut connection = Connection::open(sizegate.bootstrap());
    for n in 0..20 {
        refused_once(&mut connection, &topic, n);
    }
    let count = |outcome: &str| {
        let metrics = sizegate.metrics();
        metrics.sum("refusal_records_total", &[("outcome", outcome)])
    };
    // They were answered while all of them still waited for the topic.
    assert_eq!((count("written"), count("expired")), (0.0, 0.0));
    eventually(PATIENCE, "all are given up", || {
        (count("expired") == 20.0).then_some(())
    });
    sizegate.log_line(&[
        "is not in the topic of refusals.topic",
        "UNKNOWN_TOPIC_OR_PARTITION",
    ]);
    assert_eq!(count("written"), 0.0);
}
