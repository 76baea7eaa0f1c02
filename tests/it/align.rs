//! `sizegate align` against real brokers: it plans, raises, never lowers, stops at the ceiling, reads back, and says
//! which right is missing. And what a principal without rights sees of `check`, `explain` and the proxy itself.

use crate::support::command::{self, Ran, kafka_tool};
use crate::support::kafka::SCRAM_256_USER;
use crate::support::{Connection, Kafka, KafkaOptions, Part, Sizegate, batch_of_bytes, eventually};
use serde_json::{Value, json};

const FINE: i32 = 0;
const FINDINGS: i32 = 1;
const FAILED: i32 = 2;

fn align(kafka: &Kafka, families: &str, arguments: &[&str]) -> Ran {
    let yaml = format!(
        "cluster: {{bootstrap_servers: ['{}']}}\nfamilies: {families}\n",
        kafka.bootstrap()
    );
    command::sizegate(&[&["align"], arguments].concat(), &yaml)
}

fn changes(ran: &Ran) -> Vec<(String, String, u64, u64)> {
    let json = ran.json();
    let changes = json["changes"]
        .as_array()
        .unwrap_or_else(|| panic!("{ran:?}"))
        .clone();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    changes
        .iter()
        .map(|change| {
            let number = |key: &str| change[key].as_u64().unwrap();
            (
                text(&change["topic"]),
                text(&change["key"]),
                number("from"),
                number("to"),
            )
        })
        .collect()
}

#[test]
fn a_family_is_planned_aligned_and_found_aligned() {
    // Its own: what is detected must not be other tests' topics.
    let kafka = Kafka::start("4.3.0", KafkaOptions::default());
    let dead_letters = kafka.create_topic("orders-dlt", 1, 1, &[("segment.bytes", "2097152")]);
    for (topic, configs) in [
        ("orders", &[("max.message.bytes", "10000000")][..]),
        ("orders-retry-0", &[("max.message.bytes", "20000000")]),
        ("orders-retry-1", &[("max.message.bytes", "10000001")]),
        ("payments", &[("max.message.bytes", "3000000")]),
        ("payments-dlt", &[]),
    ] {
        kafka.create_topic(topic, 1, 1, configs);
    }
    let families =
        "{members: [{main: orders, retry: ['{main}-retry-*'], dead_letter: [orders-dlt]}]}";
    let planned = align(&kafka, families, &["--output", "json"]);
    assert_eq!(planned.code, FINDINGS, "{planned:?}");
    let change = |topic: &str, key: &str, from, to| (topic.to_owned(), key.to_owned(), from, to);
    let expected = [
        // A batch must fit into one segment.
        change("orders-dlt", "segment.bytes", 2_097_152, 10_065_536),
        change("orders-dlt", "max.message.bytes", 1_048_588, 10_065_536),
        change(
            "orders-retry-1",
            "max.message.bytes",
            10_000_001,
            10_065_536,
        ),
    ];
    assert_eq!(
        changes(&planned),
        expected,
        "orders-retry-0 is large enough and never lowered"
    );
    assert_eq!(
        planned.json()["not_planned"]["detected"],
        json!(["payments-dlt"])
    );
    // A plan changes nothing.
    assert_eq!(
        changes(&align(&kafka, families, &["--output", "json"])),
        expected
    );
    let table = align(&kafka, families, &[]);
    assert!(table.out.contains("orders takes 10,000,000 bytes (source=topic), and what fails there comes here with 65,536 bytes of headers"), "{table:?}");
    assert!(
        table.out.contains("Nothing was changed")
            && table.out.contains("--detected does it): payments-dlt"),
        "{table:?}"
    );

    command::readme_shows(&table.out.replace(&kafka.bootstrap(), "localhost:9092"));

    let held = align(
        &kafka,
        families,
        &["--ceiling", "8MiB", "--apply", "--output", "json"],
    );
    assert_eq!(
        (held.code, changes(&held)),
        (FINDINGS, Vec::new()),
        "nothing goes above the ceiling"
    );
    assert_eq!(held.json()["above_ceiling"].as_array().unwrap().len(), 3);

    let applied = align(
        &kafka,
        families,
        &["--ceiling", "16MiB", "--apply", "--output", "json"],
    );
    assert_eq!(
        (applied.code, changes(&applied)),
        (FINE, expected.to_vec()),
        "{applied:?}"
    );
    assert_eq!(
        applied.json()["in_force"],
        json!([10_065_536, 10_065_536, 10_065_536])
    );
    let aligned = align(&kafka, families, &["--apply"]);
    assert_eq!(aligned.code, FINE);
    assert!(
        aligned
            .out
            .starts_with("No configured family needs a change.\n"),
        "{aligned:?}"
    );

    let detected = align(
        &kafka,
        families,
        &["--apply", "--detected", "--output", "json"],
    );
    assert_eq!(
        changes(&detected),
        [change(
            "payments-dlt",
            "max.message.bytes",
            1_048_588,
            3_065_536
        )]
    );

    // The dead letter fits now: the largest that the main topic takes, with all of its headroom.
    let sizegate = Sizegate::start(&kafka, &format!("families: {families}"));
    let mut connection = Connection::open(sizegate.bootstrap());
    let answer = connection.produce(
        8,
        -1,
        &[Part::new(&dead_letters, batch_of_bytes(10_065_536).build())],
    );
    assert_eq!(answer[0].code, 0, "{answer:?}");
}

/// Only ANONYMOUS, on the plain listener, may do anything; `bob` comes by SASL.
fn guarded() -> Kafka {
    let options = KafkaOptions {
        sasl: true,
        ..KafkaOptions::default()
    }
    .property(
        "authorizer.class.name",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    )
    .property("super.users", "User:ANONYMOUS");
    Kafka::start("4.4.0", options)
}

/// Grants what a text says, as someone who may.
fn grant(kafka: &Kafka, line: &str) {
    let line = line
        .replace(&kafka.sasl_bootstrap(), &kafka.bootstrap())
        .replace(" --command-config admin.properties", "");
    kafka_tool(&line);
}

/// What follows `Grant:` or `grant` in a text.
fn grants(text: &str) -> Vec<String> {
    let commands = text
        .lines()
        .filter_map(|line| Some(line[line.find("kafka-acls.sh")?..].to_owned()));
    commands.collect()
}

#[test]
fn missing_rights_are_named_with_the_acl_that_is_then_enough() {
    let kafka = guarded();
    kafka.create_topic("orders", 1, 1, &[("max.message.bytes", "3000000")]);
    kafka.create_topic("orders-dlt", 1, 1, &[]);
    let (username, password) = SCRAM_256_USER;
    let config = format!(
        "cluster:\n  bootstrap_servers: ['{}']\n  admin: {{sasl: {{mechanism: SCRAM-SHA-256, username: {username}, password: \
         {password}}}, refresh_interval: 300ms}}\n\
         families: {{members: [{{main: orders, dead_letter: [orders-dlt]}}]}}\n\
         rules: [{{name: small, topics: [orders], limits: {{value_bytes: 2000}}}}]\n",
        kafka.sasl_bootstrap()
    );
    let run = |arguments: &[&str]| command::sizegate(arguments, &config);

    // Nothing may be seen: hidden, not absent.
    let check = run(&["check", "--cluster"]);
    assert_eq!(check.code, FAILED, "{check:?}");
    assert!(
        check.out.contains("topic orders is hidden")
            && check
                .out
                .contains("settings of brokers [1] may not be read"),
        "{check:?}"
    );
    assert!(
        !check.out.contains("rule_matches_no_topic"),
        "a hidden topic may be the one: {check:?}"
    );
    let explained = run(&["explain", "orders", "--value-bytes", "2001"]);
    assert_eq!(
        explained.code, FINDINGS,
        "the rule's own number holds: {explained:?}"
    );
    assert!(
        explained.out.contains("gate value")
            && explained.out.contains("not seen: topic orders is hidden"),
        "{explained:?}"
    );
    assert_eq!(
        run(&["explain", "orders", "--value-bytes", "10"]).code,
        FAILED,
        "whether it passes is not known"
    );

    // The proxy works on its rules alone, says once what it cannot see, and tells.
    let mut proxy = Sizegate::before(&kafka.sasl_bootstrap())
        .cluster(&format!("admin: {{sasl: {{mechanism: SCRAM-SHA-256, username: {username}, password: {password}}}, refresh_interval: 300ms}}"))
        .yaml("rules: [{name: small, topics: [orders], limits: {value_bytes: 2000}}]")
        .start();
    assert_eq!(proxy.get("/readyz").0, 200, "clients can be served");
    eventually(
        std::time::Duration::from_secs(60),
        "the control plane is up",
        || (proxy.metrics().sum("control_plane_up", &[]) == 1.0).then_some(()),
    );

    // What is said to be enough is enough, one after the other.
    grants(&check.out)
        .iter()
        .for_each(|line| grant(&kafka, line));
    let seen = eventually(
        std::time::Duration::from_secs(60),
        "rights are there",
        || {
            let seen = run(&["check", "--cluster", "--output", "json"]);
            (seen.json()["unseen"] == json!([])).then_some(seen)
        },
    );
    let rules: Vec<&str> = seen.out.matches("family_member_too_small").collect();
    assert_eq!((seen.code, rules.len()), (FINDINGS, 1), "{seen:?}");
    assert_eq!(
        run(&["explain", "orders", "--value-bytes", "10"]).code,
        FINE
    );

    let refused = run(&["align", "--apply"]);
    assert_eq!(refused.code, FAILED, "{refused:?}");
    assert!(
        refused
            .err
            .contains("nothing was changed: orders-dlt: TopicAuthorizationFailed"),
        "{refused:?}"
    );
    let lines = grants(&refused.err);
    assert_eq!(lines.len(), 1, "{refused:?}");
    assert!(
        lines[0].ends_with("--operation AlterConfigs --topic 'orders-dlt'"),
        "{lines:?}"
    );
    grant(&kafka, &lines[0]);
    let applied = eventually(
        std::time::Duration::from_secs(60),
        "the right is there",
        || {
            let applied = run(&["align", "--apply"]);
            (applied.code == FINE).then_some(applied)
        },
    );
    assert!(
        applied
            .out
            .contains("orders-dlt  max.message.bytes  1,048,588  3,065,536  3,065,536"),
        "{applied:?}"
    );
    // The value gate needs 2,061 bytes of batch, no more.
    assert!(proxy.process().is_running());
}

#[test]
fn what_is_not_there_cannot_be_aligned() {
    let nobody = "cluster: {bootstrap_servers: ['127.0.0.1:1']}\n";
    let down = command::sizegate(&["align"], nobody);
    assert_eq!((down.code, down.out.as_str()), (FAILED, ""));
    assert!(
        down.err
            .contains("the cluster could not be read: connect 127.0.0.1:1"),
        "{down:?}"
    );
    let usage = command::sizegate(&["align", "--ceiling", "lots"], nobody);
    assert_eq!(usage.code, 64, "{usage:?}");
}
