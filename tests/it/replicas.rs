//! Two sizegates before one cluster, shown together by `admin.peers`: what they count is added up, rows say whose they
//! are, and one that is gone is named.

use std::time::Duration;

use crate::support::{
    Connection, Kafka, Part, Program, Record, Sizegate, Topic, batch, eventually,
};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

fn refused(sizegate: &Sizegate, client_id: &str, topic: &Topic, times: usize) {
    let mut connection = Connection::open(sizegate.node(1).as_str());
    connection.client_id = Some(client_id.into());
    connection.api_versions("apache-kafka-java", "4.3.0");
    for seed in 0..times {
        let records = batch([Record::of_random(70_000, seed as u64)]).base_timestamp(-1);
        let responses = connection.produce(9, 1, &[Part::new(topic, records.build())]);
        assert_eq!(responses[0].code, 10, "{:?}", responses[0].text);
    }
}

/// Says whom to ask in a changed configuration, which a running process takes over.
fn name_peers(sizegate: &mut Sizegate, peers: &[String]) {
    let file = sizegate.process().dir().join("sizegate.yaml");
    let bind = format!("admin: {{bind: {}", sizegate.admin());
    let config = std::fs::read_to_string(&file).unwrap();
    let named = config.replace(&bind, &format!("{bind}, peers: [{}]", peers.join(", ")));
    assert_ne!(named, config);
    std::fs::write(&file, named).unwrap();
    sizegate.process().signal("HUP");
}

fn rows<'a>(body: &'a Value, list: &str, topic: &str) -> Vec<&'a Value> {
    let rows = body[list].as_array().unwrap().iter();
    rows.filter(|row| row["topic"] == topic).collect()
}

/// Every check of a browser program passed.
fn look(sizegate: &Sizegate, topic: &str, phase: &str, gone: &str) {
    let output = Program::browser("replicas.mjs")
        .arg("url", format!("http://{}", sizegate.admin()))
        .arg("topic", topic)
        .arg("phase", phase)
        .arg("gone", gone)
        .run();
    for line in &output.lines {
        assert!(line.get("error").is_none(), "{line}");
    }
    assert!(!output.lines.is_empty());
}

#[test]
fn two_replicas_are_shown_as_one_and_one_that_is_killed_is_named() {
    let kafka = Kafka::shared("4.4.0");
    let topic = kafka.topic("replicated", 1, &[]);
    let yaml = format!(
        "rules:\n  - name: small\n    topics: [{}]\n    limits: {{record_bytes: 64KiB}}",
        topic.name
    );
    let mut here = Sizegate::start(kafka, &yaml);
    let mut there = Sizegate::start(kafka, &yaml);
    let alone = here.json("/api/v1/status?peers=1");
    assert_eq!(alone["replicas"].as_array().unwrap().len(), 1);

    // One by a name, the same by its address, and this one itself.
    let peers = [
        format!("localhost:{}", there.admin().port()),
        there.admin().to_string(),
        here.admin().to_string(),
    ];
    name_peers(&mut here, &peers);
    eventually(PATIENCE, "both replicas", || {
        let status = here.json("/api/v1/status?peers=1");
        (status["replicas"].as_array()?.len() == 2).then_some(())
    });

    refused(&here, "app", &topic, 2);
    refused(&there, "app", &topic, 3);
    refused(&there, "job", &topic, 1);

    let recent = here.json("/api/v1/refusals/recent?peers=1");
    let groups = rows(&recent, "groups", &topic.name);
    let told: Vec<_> = groups
        .iter()
        .map(|group| {
            let replicas = group["replicas"].as_array().unwrap().len();
            (
                group["client_id"].as_str().unwrap(),
                group["last_hour"].as_u64().unwrap(),
                replicas,
            )
        })
        .collect();
    assert_eq!(told, [("app", 5, 2), ("job", 1, 1)]);
    let topics = here.json(&format!("/api/v1/topics?topic={}&peers=1", topic.name));
    assert_eq!(topics["topics"][0]["batches"]["refused"], 6, "{topics}");
    let refusals = here.json("/api/v1/refusals?peers=1");
    let all = rows(&refusals, "refusals", &topic.name);
    let of = |sizegate: &Sizegate| {
        let name = format!(":{}", sizegate.admin().port());
        let whose = |row: &&&Value| row["replica"].as_str().unwrap().ends_with(&name);
        all.iter().filter(whose).count()
    };
    assert_eq!((of(&here), of(&there)), (2, 4));
    // A refusal of the other one has an address here too.
    let id = all.iter().find(|row| row["client_id"] == "job").unwrap()["id"]
        .as_str()
        .unwrap();
    let one = here.json(&format!("/api/v1/refusals?id={id}&peers=1"));
    assert_eq!(one["refusals"].as_array().unwrap().len(), 1);
    // Whoever asks for this one alone gets this one alone.
    let own = here.json("/api/v1/refusals/recent");
    assert_eq!(rows(&own, "groups", &topic.name)[0]["last_hour"], 2);
    look(&here, &topic.name, "together", "");

    there.process().signal("KILL");
    let gone = there.admin().to_string();
    let status = eventually(PATIENCE, "one that is gone", || {
        let status = here.json("/api/v1/status?peers=1");
        status["replicas"][1]["error"].is_string().then_some(status)
    });
    assert_eq!(status["replicas"][1]["address"], gone.as_str(), "{status}");
    let recent = here.json("/api/v1/refusals/recent?peers=1");
    assert_eq!(rows(&recent, "groups", &topic.name)[0]["last_hour"], 2);
    look(&here, &topic.name, "killed", &gone);
}
