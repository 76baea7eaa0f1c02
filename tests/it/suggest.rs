//! `sizegate suggest`: from a file and from a running proxy, to rules that `check` accepts.

use std::path::Path;
use std::process::{Command, Output};

use crate::support::{
    Connection, Kafka, Part, Record, Sizegate, batch, batch_of_bytes, eventually,
};
use serde_json::Value;

fn sizegate(args: &[&str]) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_sizegate"))
        .args(args)
        .output();
    output.unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// `check` takes it as it is.
fn check(yaml: &str) -> Value {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("suggested.yaml");
    std::fs::write(&file, yaml).unwrap();
    let output = sizegate(&[
        "check",
        "--output",
        "json",
        "--config",
        file.to_str().unwrap(),
    ]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["ok"], true, "{yaml}\n{found:#}");
    found
}

/// One histogram of a topic: sizes below each bound.
fn histogram(name: &str, topic: &str, buckets: &[(u64, u64)]) -> String {
    let mut text = String::new();
    for (bound, count) in buckets {
        text += &format!("sizegate_{name}_bucket{{topic=\"{topic}\",le=\"{bound}\"}} {count}\n");
    }
    let (_, count) = buckets.last().unwrap();
    text + &format!("sizegate_{name}_bucket{{topic=\"{topic}\",le=\"+Inf\"}} {count}\n")
}

fn written(dir: &Path, text: &str) -> String {
    let file = dir.join("metrics.txt");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

#[test]
fn a_file_of_measurements_becomes_rules_that_check_accepts() {
    let dir = tempfile::tempdir().unwrap();
    let text = [
        histogram(
            "record_bytes",
            "orders",
            &[
                (1_024, 99_980),
                (2_048, 99_980),
                (65_536, 100_000),
                (131_072, 100_000),
            ],
        ),
        histogram(
            "batch_wire_bytes",
            "orders",
            &[(16_384, 9_000), (65_536, 9_100)],
        ),
        histogram(
            "batch_uncompressed_bytes",
            "orders",
            &[(16_384, 8_000), (4_194_304, 9_000)],
        ),
        histogram("record_bytes", "logs", &[(512, 1_000)]),
        histogram(
            "batch_wire_bytes",
            "logs",
            &[(1_048_576, 900), (1_048_588, 900), (2_097_152, 903)],
        ),
        histogram(
            "record_bytes",
            "scans",
            &[
                (1_024, 900),
                (65_536, 900),
                (262_144, 900),
                (524_288, 1_000),
            ],
        ),
        histogram("record_bytes", "quiet", &[(512, 7)]),
        histogram("record_bytes", "_other", &[(512, 70_000)]),
        histogram("record_bytes", "app-store-changelog", &[(512, 1_000)]),
        histogram(
            "record_bytes",
            "mm2-offset-syncs.west.internal",
            &[(512, 1_000)],
        ),
        histogram("record_bytes", "connect-offsets", &[(512, 7)]),
    ];
    let from = written(dir.path(), &text.concat());
    let yaml = stdout(&sizegate(&["suggest", "--from", &from]));
    let config = check(&yaml)["config"].clone();
    assert_eq!(config["rules"].as_array().unwrap().len(), 3, "{yaml}");
    let rule = |name: &str| {
        let rules = config["rules"].as_array().unwrap();
        rules
            .iter()
            .find(|rule| rule["name"] == name)
            .unwrap_or_else(|| panic!("{name}: {config:#}"))["limits"]
            .clone()
    };
    let orders = rule("orders");
    assert_eq!(
        (
            &orders["record_bytes"],
            &orders["uncompressed_bytes"],
            &orders["batch_bytes"]
        ),
        (&"128KiB".into(), &"8MiB".into(), &"inherit".into()),
        "{yaml}"
    );
    assert_eq!(rule("logs")["batch_bytes"], "4MiB", "{yaml}");
    assert_eq!(rule("logs")["record_bytes"], "16KiB", "{yaml}");
    for words in [
        "record_bytes: 128KiB   # refuses none of 100000 records; p99.9 + 25 %: 16KiB, refuses 20 of 100000 records (0.02 %)",
        "# app-store-changelog: left out, one of Kafka Streams' topics",
        "# mm2-offset-syncs.west.internal: left out, one of MirrorMaker's topics",
        "# connect-offsets: left out, one of Kafka Connect's topics",
        "# quiet: nothing to suggest: 7 records measured, fewer than 100",
        "# Some topics have no label of their own",
        "batch_bytes: inherit   # 9100 batches, none above 64KiB; a limit under 1MiB makes clients lose small records",
        "batch_bytes: 4MiB   # refuses none of 903 batches",
        "# a claim check would take 100 of 1000 records, and with them at least 96 % of its bytes (uncompressed), out of the log",
    ] {
        assert!(yaml.contains(words), "{words} in\n{yaml}");
    }
    let tight = stdout(&sizegate(&[
        "suggest",
        "--from",
        &from,
        "--keep",
        "p99.9",
        "--topic",
        "logs",
        "--at-least",
        "1",
    ]));
    check(&tight);
    assert!(
        tight.contains("record_bytes: 16KiB   # refuses none of 1000 records"),
        "{tight}"
    );
    assert!(
        !tight.contains("orders") && !tight.contains("claim check"),
        "{tight}"
    );

    let json = stdout(&sizegate(&["suggest", "--from", &from, "--output", "json"]));
    let json: Value = serde_json::from_str(&json).unwrap();
    let topics: Vec<_> = json["topics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|topic| &topic["topic"])
        .collect();
    assert_eq!(topics, ["logs", "orders", "quiet", "scans"]);
    assert_eq!(json["topics"][3]["offload"]["records"], 100.0);
    assert_eq!(json["topics"][0]["offload"], Value::Null);
    assert_eq!(
        json["left_out"],
        serde_json::json!([
            "app-store-changelog",
            "connect-offsets",
            "mm2-offset-syncs.west.internal"
        ])
    );
    assert_eq!(json["topics"][1]["record_bytes"]["refuses"], 0.0);
}

#[test]
fn what_cannot_be_read_is_said_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let empty = written(dir.path(), "up 1\n");
    for (from, words) in [
        ("/no/such/file", "No such file"),
        ("http://127.0.0.1:1", "refused"),
        ("https://127.0.0.1:9644", "only http:// addresses"),
        (empty.as_str(), "no topic has a size measured"),
    ] {
        let output = sizegate(&["suggest", "--from", from]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(from) && said.contains(words), "{said}");
    }
    assert_eq!(
        sizegate(&["suggest", "--keep", "most"]).status.code(),
        Some(64)
    );
}

#[test]
fn a_running_proxy_suggests_limits_that_would_have_refused_nothing_of_what_passed() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate_ = Sizegate::start(kafka, "inspection: {decode: always}");
    let topic = kafka.topic("suggested", 1, &[("retention.ms", "-1")]);
    let mut connection = Connection::open(sizegate_.bootstrap());
    let mut send = |records| connection.produce(12, -1, &[Part::new(&topic, records)])[0].code;
    for n in 0..200 {
        assert_eq!(
            send(batch((0..10).map(|_| Record::of_random(700, n))).build()),
            0
        );
    }
    assert_eq!(send(batch_of_bytes(40_000).build()), 0);
    let from = format!("http://{}", sizegate_.admin());
    let yaml = eventually(
        std::time::Duration::from_secs(60),
        "records measured",
        || {
            let output = sizegate(&["suggest", "--from", &from, "--topic", &topic.name]);
            output.status.success().then(|| stdout(&output))
        },
    );
    assert!(yaml.contains("record_bytes: 128KiB   # refuses none of 2001 records; p99.9 + 25 %: 16KiB, refuses 1 of 2001"), "{yaml}");
    assert!(
        yaml.contains("batch_bytes: inherit   # 201 batches, none above 64KiB"),
        "{yaml}"
    );
    check(&yaml);
    // In force, they let the same pass; one byte above, they do not.
    let rules = &yaml[yaml.find("rules:").unwrap()..];
    let enforced = Sizegate::start(kafka, rules);
    let mut connection = Connection::open(enforced.bootstrap());
    let mut send = |records| connection.produce(12, -1, &[Part::new(&topic, records)])[0].code;
    assert_eq!(send(batch_of_bytes(40_000).build()), 0);
    assert_eq!(send(batch([Record::of_a(65_530)]).build()), 0);
    // Nothing that was measured is near what is suggested.
    let near = [("topic", &*topic.name)];
    assert_eq!(enforced.metrics().sum("near_limit_total", &near), 0.0);
    assert_eq!(send(batch([Record::of_a(131_066)]).build()), 10);
}
