//! `sizegate probe`: who refuses what, through the proxy and past it, as independent arithmetic says; with and without
//! rights, and nothing left behind.

use crate::cluster_security::{WRITE, allow, guarded};
use crate::support::command::{self, Ran};
use crate::support::kafka::SCRAM_256_USER;
use crate::support::{Connection, Kafka, KafkaOptions, Sizegate, admin, eventually};
use serde_json::Value;
use std::time::Duration;

const RULES: &str = "rules: [{name: small, topics: ['*probe*'], limits: {record_bytes: 50000, value_bytes: 40000, key_bytes: 300, headers_bytes: 500}}]";
const PATIENCE: Duration = Duration::from_secs(60);

fn probe(bootstrap: &str, sizegate: &Sizegate, cluster: &str, more: &[&str]) -> Ran {
    let yaml = format!("cluster: {{bootstrap_servers: [{bootstrap:?}]{cluster}}}\n{RULES}\n");
    let through = sizegate.bootstrap();
    let arguments: Vec<&str> = ["probe", "--through", &through, "--output", "json"]
        .iter()
        .chain(more)
        .copied()
        .collect();
    command::sizegate(&arguments, &yaml)
}

/// Who refused each rung is what the limits say: by the rule through sizegate, and past it by the broker alone.
fn assert_rungs(json: &Value, broker_limit: u64) {
    let rungs = json["rungs"].as_array().unwrap();
    let gates: std::collections::BTreeSet<_> = rungs
        .iter()
        .map(|rung| rung["gate"].as_str().unwrap())
        .collect();
    assert_eq!(
        gates.into_iter().collect::<Vec<_>>(),
        ["batch", "headers", "key", "record", "value"]
    );
    for rung in rungs {
        let size = rung["size_bytes"].as_u64().unwrap();
        let is_over = size > rung["limit_bytes"].as_u64().unwrap();
        let (gate, codec) = (
            rung["gate"].as_str().unwrap(),
            rung["codec"].as_str().unwrap(),
        );
        // What the gates' other limits make of a record of this size.
        let is_refused_here = match gate {
            "batch" | "record" => true,
            _ => is_over,
        };
        let expected = if is_refused_here {
            "sizegate"
        } else {
            "nobody"
        };
        assert_eq!(rung["through"]["refused_by"], expected, "{rung}");
        let is_over_broker = gate == "batch" && codec == "none" && size > broker_limit;
        let expected = if is_over_broker { "broker" } else { "nobody" };
        assert_eq!(rung["past"]["refused_by"], expected, "{rung}");
        if is_refused_here {
            let text = rung["through"]["text"].as_str().unwrap();
            assert!(text.starts_with("sizegate refused "), "{text}");
        }
    }
}

fn topics(kafka: &Kafka) -> Vec<String> {
    let request = kafka_protocol::messages::MetadataRequest::default().with_topics(None);
    let response = Connection::open(kafka.bootstrap().split(',').next().unwrap()).ask(&request, 12);
    let names = response.topics.into_iter().filter_map(|topic| topic.name);
    names.map(|name| name.0.to_string()).collect()
}

#[test]
fn each_rung_is_refused_by_whom_the_limits_say_and_the_topic_is_gone_afterwards() {
    let old = Kafka::start("3.9.1", KafkaOptions::default());
    for kafka in [&old, Kafka::shared("4.3.0"), Kafka::shared("4.4.0")] {
        let sizegate = Sizegate::start(kafka, RULES);
        let ran = probe(&kafka.bootstrap(), &sizegate, "", &[]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let json = ran.json();
        let name = json["topic"].as_str().unwrap().to_owned();
        assert!(name.starts_with("sizegate-probe-"));
        assert_eq!(json["is_deleted"], true);
        assert_rungs(&json, 1_048_588);
        eventually(PATIENCE, "the topic is gone", || {
            (!topics(kafka).contains(&name)).then_some(())
        });
    }
    // One that is named stays, with what was stored in it; the table says the same in words.
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, RULES);
    let topic = kafka
        .topic(
            "my-probe",
            1,
            &[("max.message.bytes", "100000"), ("retention.ms", "-1")],
        )
        .name;
    let ran = probe(&kafka.bootstrap(), &sizegate, "", &[&topic]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_rungs(&ran.json(), 100_000);
    assert!(admin::latest_offset(&kafka.bootstrap(), &topic, 0) > 10);
}

#[test]
fn past_the_proxy_need_not_be_reachable_and_a_proxy_that_is_not_there_is_said() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(kafka, RULES);
    let closed = crate::support::ports::free_ports(1);
    let nowhere = format!("127.0.0.1:{closed}");
    let ran = probe(&nowhere, &sizegate, "", &[]);
    assert_eq!(ran.code, 0, "{ran:?}");
    for rung in ran.json()["rungs"].as_array().unwrap() {
        assert_eq!(rung["past"]["refused_by"], "unreachable", "{rung}");
        assert_ne!(rung["through"]["refused_by"], "unreachable", "{rung}");
    }
    let yaml = format!(
        "cluster: {{bootstrap_servers: [{:?}]}}
{RULES}
",
        kafka.bootstrap()
    );
    let ran = command::sizegate(&["probe", "--through", &nowhere], &yaml);
    assert_eq!(ran.code, 2, "{ran:?}");
    assert!(ran.err.contains(&nowhere), "{ran:?}");
    let ran = command::sizegate(&["probe", "--through", "nonsense"], &yaml);
    assert_eq!(ran.code, 64, "{ran:?}");
}

#[test]
fn who_may_not_create_a_topic_is_told_to_name_one() {
    let kafka = guarded();
    let (user, password) = SCRAM_256_USER;
    let sasl = format!(
        ", admin: {{sasl: {{mechanism: SCRAM-SHA-256, username: {user}, password: {password}}}}}"
    );
    let sizegate = Sizegate::before(&kafka.sasl_bootstrap())
        .cluster("admin: {refresh_interval: 300ms}")
        .yaml(RULES)
        .start_unready();
    let ran = probe(&kafka.sasl_bootstrap(), &sizegate, &sasl, &[]);
    assert_eq!(ran.code, 2, "{ran:?}");
    let error = ran.json()["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains("AUTHORIZATION_FAILED") && error.contains("sizegate probe TOPIC"),
        "{error}"
    );
    assert!(
        !topics(kafka)
            .iter()
            .any(|name| name.starts_with("sizegate-probe-"))
    );
    // With Write on one, that one is probed by the rules alone: its own limit may not be read.
    let topic = kafka.topic("guarded-probe", 1, &[]).name;
    allow(kafka, &format!("User:{user}"), &topic, WRITE);
    let ran = eventually(PATIENCE, "it may write", || {
        let ran = probe(&kafka.sasl_bootstrap(), &sizegate, &sasl, &[&topic]);
        (ran.code == 0).then_some(ran)
    });
    let json = ran.json();
    let rungs = json["rungs"].as_array().unwrap();
    assert!(
        rungs
            .iter()
            .any(|rung| rung["through"]["refused_by"] == "sizegate"),
        "{json}"
    );
    assert!(
        rungs
            .iter()
            .any(|rung| rung["through"]["refused_by"] == "nobody"),
        "{json}"
    );
}
