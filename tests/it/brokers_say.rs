//! What brokers refuse, and what clients that name no software are shown as.

use std::process::Command;

use crate::support::{Connection, Kafka, Part, Program, Record, Sizegate, batch, batch_of_bytes};
use serde_json::Value;
use sizegate::vocabulary::Codec;

fn refusals(sizegate: &Sizegate, query: &str) -> Vec<Value> {
    let listed = sizegate.json(&format!("/api/v1/refusals?{query}"));
    listed["refusals"].as_array().unwrap().clone()
}

#[test]
fn what_the_broker_refused_is_listed_as_its_own_and_is_no_measure() {
    let kafka = Kafka::shared("4.4.0");
    let topic = kafka.topic("stored", 1, &[("max.message.bytes", "3000")]);
    // The broker judges.
    let yaml = "limits: {batch_bytes: none, record_bytes: 8MiB}\ninspection: {decode: always}\n";
    let sizegate = Sizegate::start(kafka, yaml);
    let mut connection = Connection::open(sizegate.bootstrap());
    connection.client_id = Some("checkout".into());
    let mut send = |records: bytes::Bytes, code: i16| {
        let responses = connection.produce(9, -1, &[Part::new(&topic, records)]);
        assert_eq!(responses[0].code, code, "{:?}", responses[0].text);
    };
    send(batch_of_bytes(1_000).build(), 0);
    send(batch_of_bytes(50_000).build(), 10);
    // Two records declared, one there: INVALID_RECORD.
    let lie = batch([Record::of_a(700)]).codec(Codec::Gzip).count(2);
    send(lie.build(), 87);
    send(batch_of_bytes(1_200).build(), 0);

    let name = &topic.name;
    let listed = refusals(&sizegate, &format!("topic={name}"));
    let told: Vec<_> = listed
        .iter()
        .map(|refusal| {
            let word = |field: &str| refusal[field].as_str().unwrap_or("-").to_owned();
            (
                word("refused_by"),
                word("gate"),
                refusal["error_code"].as_i64().unwrap(),
                refusal["size_bytes"].as_u64().unwrap() > 10_000,
                word("client_id"),
            )
        })
        .collect();
    let of = |gate: &str, code, is_large| {
        (
            "broker".to_owned(),
            gate.to_owned(),
            code,
            is_large,
            "checkout".to_owned(),
        )
    };
    assert_eq!(told, [of("-", 87, false), of("batch", 10, true)]);
    assert_eq!(listed[1]["size_bytes"], 50_000);
    assert!(
        listed[1]["text"]
            .as_str()
            .unwrap()
            .contains("the broker refused it")
    );
    assert_eq!(
        refusals(&sizegate, &format!("topic={name}&gate=batch")).len(),
        1
    );

    // Neither the largest size nor what `suggest` reads is what nobody stored.
    let view = sizegate.json(&format!("/api/v1/topics?topic={name}"));
    let largest = &view["topics"][0]["largest"];
    assert_eq!(largest["batch_bytes"], 1_200, "{view}");
    assert!(largest["record_bytes"].as_u64().unwrap() < 1_200, "{view}");
    assert!(largest["value_bytes"].as_u64().unwrap() < 1_200, "{view}");
    let labels = [("topic", name.as_str())];
    let metrics = sizegate.metrics();
    for histogram in [
        "batch_wire_bytes",
        "record_bytes",
        "batch_uncompressed_bytes",
    ] {
        let count = metrics.sum(&format!("{histogram}_count"), &labels);
        assert_eq!(count, 2.0, "{histogram}");
    }
    let refused = metrics.sum("broker_refusals_total", &labels);
    assert_eq!(refused, 2.0);
    let suggested = Command::new(env!("CARGO_BIN_EXE_sizegate"))
        .args([
            "suggest",
            "--at-least",
            "1",
            "--output",
            "json",
            "--topic",
            name,
            "--from",
        ])
        .arg(format!("http://{}", sizegate.admin()))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&suggested.stdout).into_owned();
    let suggested: Value = serde_json::from_str(&said).unwrap();
    let record = &suggested["topics"][0]["record_bytes"];
    // The floor of what is suggested: of the 50,000 bytes that nobody stored it would be above them.
    assert_eq!(record["bytes"], 16_384, "{said}");
}

#[test]
fn clients_that_name_no_software_are_listed_by_their_ids() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, "");
    let topic = kafka.topic("unnamed", 1, &[]);
    let sent = Program::python("produce.py")
        .arg("client", "aiokafka")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("values", 100)
        .run();
    sent.only("ok", true);
    // As segmentio's and old ones: no ApiVersions at all.
    let mut connection = Connection::open(sizegate.bootstrap());
    connection.client_id = Some("tinyclient".into());
    let part = Part::new(&topic, batch([Record::of_a(10)]).build());
    assert_eq!(connection.produce(9, -1, &[part])[0].code, 0);

    let view = sizegate.json("/api/v1/clients");
    let clients = view["clients"].as_array().unwrap();
    let unknown = clients
        .iter()
        .find(|client| client["software"] == "unknown")
        .unwrap_or_else(|| panic!("{view}"));
    let ids = unknown["client_ids"].to_string();
    assert!(
        ids.contains("aiokafka") && ids.contains("tinyclient"),
        "{view}"
    );
    assert!(unknown["connections"].as_u64().unwrap() >= 1, "{view}");
}
