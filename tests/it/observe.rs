//! Observing shows exactly what enforcing would do: the same traffic through two proxies, and their verdicts compared
//! in the log, the metrics and the API. And nobody is shown what is inside a record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::{
    Connection, Kafka, Part, Record, Sizegate, Topic, batch, batch_of_bytes, eventually,
};
use serde_json::Value;
use sizegate::policy::Codec;

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);
/// A limit of each kind.
const RULES: &str = "near_limit: 0.5\nlimits: {batch_bytes: 20000}\nrules:\n\
    - {name: plain, topics: ['plain-*'], limits: {batch_bytes: 3000}}\n\
    - {name: deep, topics: ['deep-*'], limits: {record_bytes: 2000, key_bytes: 100, headers_bytes: 200, value_bytes: 1500, uncompressed_bytes: 50000, estimate_bytes: 2000}, remedy: 'Less, please.'}\n\
    - {name: ratio, topics: ['ratio-*'], limits: {ratio: 100, batch_bytes: none}, error_code: POLICY_VIOLATION}\n";

fn topics(kafka: &Kafka) -> Vec<Topic> {
    let own = [("max.message.bytes", "9000")];
    vec![
        kafka.topic("plain", 3, &[]),
        kafka.topic("deep", 3, &[]),
        kafka.topic("ratio", 3, &[("max.message.bytes", "4194304")]),
        kafka.topic("own", 3, &own),
    ]
}

/// Requests of several partitions each, on both sides of every limit.
fn traffic(topics: &[Topic]) -> Vec<Vec<Part>> {
    let [plain, deep, ratio, own] = topics else {
        panic!("four topics");
    };
    let deep_records = [
        Record::of_a(100),
        Record::of_a(1_500),
        Record::of_a(1_501),
        Record::of_a(2_500),
        Record::of_a(10).key(vec![b'k'; 101]),
        Record::of_a(10).header("trace", vec![b'h'; 300]),
        Record::of_a(1_200).key(vec![b'k'; 90]),
    ];
    let mut requests = Vec::new();
    for bytes in [
        100, 2_999, 3_000, 3_001, 8_999, 9_000, 9_001, 20_000, 20_001,
    ] {
        requests.push(vec![
            Part::at(plain, 0, batch_of_bytes(bytes).build()),
            Part::at(plain, 1, batch_of_bytes(200).build()),
            Part::at(own, 0, batch_of_bytes(bytes).build()),
        ]);
    }
    for &codec in Codec::ALL {
        for record in &deep_records {
            let records = [Record::of_a(50), record.clone(), Record::of_a(60)];
            requests.push(vec![
                Part::at(deep, 0, batch(records).codec(codec).build()),
                Part::at(own, 1, batch([record.clone()]).codec(codec).build()),
            ]);
        }
        let many = (0..600).map(|_| Record::of_a(100));
        requests.push(vec![Part::at(deep, 2, batch(many).codec(codec).build())]);
        let zeros = batch([Record::of_a(3_000_000)]).codec(codec).build();
        requests.push(vec![Part::at(ratio, 0, zeros)]);
    }
    // What cannot be judged by size is left to the broker by both.
    requests.push(vec![Part::at(
        deep,
        0,
        batch([Record::of_a(5_000)]).base_offset(7).build(),
    )]);
    requests.push(vec![Part::at(
        deep,
        99,
        batch([Record::of_a(5_000)]).build(),
    )]);
    requests.push(vec![Part::at(
        deep,
        0,
        batch([Record::of_a(5_000)])
            .codec(Codec::Lz4)
            .payload(b"junk".to_vec())
            .build(),
    )]);
    requests
}

/// What is left of a refusal without what must differ: its number, its time, who sent it, what was done.
fn verdict(refusal: &Value) -> BTreeMap<String, Value> {
    let mut fields: BTreeMap<String, Value> = serde_json::from_value(refusal.clone()).unwrap();
    for different in [
        "id",
        "at",
        "time",
        "level",
        "address",
        "action",
        "error_code",
        "last_address",
        "last_id",
    ] {
        fields.remove(different);
    }
    for text in ["text", "message"] {
        if let Some(Value::String(said)) = fields.get_mut(text) {
            *said = said.replace("sizegate would refuse", "sizegate refused");
            if let Some(at) = said.rfind(" id=") {
                said.truncate(at);
            }
        }
    }
    fields
}

fn refusals(sizegate: &Sizegate) -> Vec<BTreeMap<String, Value>> {
    let all = sizegate.json("/api/v1/refusals");
    all["refusals"]
        .as_array()
        .unwrap()
        .iter()
        .map(verdict)
        .collect()
}

/// The first line of the refusal log about each topic and gate: repeated ones are summarised by the minute, and what
/// was quiet for one is logged anew. (What the broker refuses after us is another line.)
fn log(sizegate: &mut Sizegate) -> Vec<BTreeMap<String, Value>> {
    let text = sizegate.log();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole
        .lines()
        .filter(|line| line.contains("sizegate::refusal"))
        .map(|line| verdict(&serde_json::from_str(line).unwrap()));
    let mut seen = BTreeSet::new();
    lines
        .filter(|line| !line.contains_key("count") && !line.contains_key("refused_by"))
        .filter(|line| seen.insert((line["topic"].to_string(), line["gate"].to_string())))
        .collect()
}

/// Counts by topic, and by gate and source where there are any.
fn counts(
    sizegate: &Sizegate,
    topics: &[Topic],
    refused: &str,
    action: &str,
) -> BTreeMap<String, f64> {
    let metrics = sizegate.metrics();
    let mut counts = BTreeMap::new();
    for topic in topics {
        let name = topic.name.as_str();
        let mut count = |what: &str, metric: &str, labels: &[(&str, &str)]| {
            let labels = [&[("topic", name)], labels].concat();
            counts.insert(format!("{name} {what}"), metrics.sum(metric, &labels));
        };
        count(
            "forwarded",
            "produce_batches_total",
            &[("verdict", "forwarded")],
        );
        count("over", "produce_batches_total", &[("verdict", refused)]);
        for gate in [
            "batch",
            "uncompressed",
            "record",
            "estimate",
            "key",
            "value",
            "headers",
            "ratio",
        ] {
            for source in ["rule", "topic", "broker"] {
                let labels = [("gate", gate), ("source", source), ("action", action)];
                count(&format!("{gate} {source}"), "violations_total", &labels);
            }
            count(
                &format!("near {gate}"),
                "near_limit_total",
                &[("gate", gate)],
            );
        }
        count("limits", "limit_bytes", &[]);
    }
    counts
}

#[test]
fn observing_a_proxy_or_a_rule_gives_the_verdicts_of_enforcing() {
    let kafka = Kafka::shared("4.4.0");
    // Every batch is measured: samples would differ.
    let json = "telemetry: {log: json}\ninspection: {decode: always}\n";
    let observed_rules = RULES.replace(
        "limits: {batch_bytes: 3000}}",
        "limits: {batch_bytes: 3000}, action: observe}",
    );
    let observed_rules = observed_rules
        .replace(
            "remedy: 'Less, please.'}",
            "remedy: 'Less, please.', action: observe}",
        )
        .replace(
            "error_code: POLICY_VIOLATION}",
            "error_code: POLICY_VIOLATION, action: observe}",
        );
    let mut proxies = [
        Sizegate::start(kafka, &format!("{json}{RULES}")),
        Sizegate::start(kafka, &format!("{json}mode: observe\n{RULES}")),
        Sizegate::start(kafka, &format!("{json}{observed_rules}")),
    ];
    let topics = topics(kafka);
    let requests = traffic(&topics);
    for sizegate in &proxies {
        let mut connection = Connection::open(sizegate.bootstrap());
        connection.client_id = Some("checkout".into());
        connection.api_versions("apache-kafka-java", "4.3.0");
        for request in &requests {
            connection.produce(12, -1, request);
        }
    }
    // By rule, only topics without a rule are still enforced.
    let by_rule = &topics[..3];
    let of_rules = |verdicts: Vec<BTreeMap<String, Value>>| -> Vec<_> {
        let has_rule = |verdict: &BTreeMap<String, Value>| {
            by_rule
                .iter()
                .any(|topic| verdict["topic"] == topic.name.as_str())
        };
        verdicts.into_iter().filter(has_rule).collect()
    };
    let [enforcing, observing, by_rules] = &mut proxies;
    let expected = refusals(enforcing);
    assert!(expected.len() > 30, "{}", expected.len());
    assert_eq!(refusals(observing), expected);
    assert_eq!(of_rules(refusals(by_rules)), of_rules(expected.clone()));

    let expected = counts(enforcing, &topics, "refused", "reject");
    let gates = expected
        .iter()
        .filter(|(what, count)| what.ends_with(" rule") && **count > 0.0);
    let gates: Vec<_> = gates
        .map(|(what, _)| what.split(' ').nth(1).unwrap())
        .collect();
    for gate in [
        "batch",
        "uncompressed",
        "record",
        "key",
        "value",
        "headers",
        "ratio",
    ] {
        assert!(gates.contains(&gate), "no batch breaks {gate}: {gates:?}");
    }
    assert_eq!(counts(observing, &topics, "observed", "observe"), expected);
    assert_eq!(
        counts(by_rules, by_rule, "observed", "observe"),
        counts(enforcing, by_rule, "refused", "reject")
    );

    eventually(PATIENCE, "the same log", || {
        let [ours, theirs] = [log(enforcing), log(observing)];
        (!ours.is_empty() && ours == theirs).then_some(())
    });
    assert_eq!(of_rules(log(by_rules)), of_rules(log(enforcing)));
}

/// Is in keys, values and headers, and may be nowhere else.
const MARKER: &str = "xyzzy7marker";

#[test]
fn no_content_and_no_key_of_a_record_is_ever_shown() {
    let kafka = Kafka::shared("4.4.0");
    let yaml = format!(
        "telemetry: {{log: json, log_level: trace}}\ninspection: {{decode: always}}\n{RULES}"
    );
    let sizegate = Sizegate::start(kafka, &yaml);
    let topics = topics(kafka);
    let mut connection = Connection::open(sizegate.bootstrap());
    let marked = |bytes: usize| {
        Record::value(MARKER.repeat(bytes / MARKER.len()))
            .key(MARKER)
            .header(MARKER, MARKER)
    };
    for &codec in Codec::ALL {
        for topic in &topics {
            for bytes in [100, 1_400, 5_000, 60_000, 2_000_000] {
                let records = [marked(40), marked(bytes).key(MARKER.repeat(20)), marked(30)];
                let sound = batch(records.clone()).codec(codec).build();
                let broken = batch(records.clone())
                    .codec(codec)
                    .payload(MARKER.repeat(700))
                    .build();
                let lying = batch(records).codec(codec).count(7).crc_wrong().build();
                for records in [sound, broken, lying] {
                    for answer in connection.produce(12, -1, &[Part::new(topic, records)]) {
                        assert!(!answer.text.unwrap_or_default().contains(MARKER));
                    }
                }
            }
        }
    }
    // Served to a consumer, too; and bytes that are no request.
    for topic in &topics {
        crate::support::admin::fetch_stored(&sizegate.bootstrap(), &topic.name, 0, 1_024);
    }
    let mut junk = Connection::open(sizegate.bootstrap());
    junk.send_bytes(&[&[0, 0, 0, 80][..], MARKER.repeat(10).as_bytes()].concat());
    assert!(junk.is_closed_within(PATIENCE));
    sizegate.log_line(&["sizegate::refusal"]);
    let paths = [
        "/metrics",
        "/api/v1/refusals",
        "/api/v1/topics",
        "/api/v1/clients",
        "/api/v1/config",
        "/api/v1/lingering",
        "/api/v1/fetch",
        "/",
        "/readyz",
    ];
    for path in paths {
        let (_, body) = sizegate.get(path);
        assert!(!body.contains(MARKER), "{path}: {body}");
    }
    let log = sizegate.log();
    assert!(log.lines().count() > 20, "{log}");
    for line in log.lines() {
        assert!(!line.contains(MARKER), "{line}");
    }
}
