//! Observing shows exactly what enforcing would do: the same traffic through two proxies, and their verdicts compared
//! in the log, the metrics and the API. And nobody is shown what is inside a record.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::{
    Connection, Kafka, Part, Record, Sizegate, Topic, batch, batch_of_bytes, eventually,
};
use serde_json::Value;
use sizegate::vocabulary::Codec;

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

/// Enforcing stops at the first gate; observing tells of the others as well. What it lets pass the broker may refuse.
fn is_first(refusal: &Value) -> bool {
    let said = refusal.get("text").or_else(|| refusal.get("message"));
    !said.is_some_and(|said| said.as_str().unwrap().contains("would also refuse"))
}

fn refusals(sizegate: &Sizegate) -> Vec<BTreeMap<String, Value>> {
    let all = sizegate.json("/api/v1/refusals");
    let all = all["refusals"].as_array().unwrap().iter();
    all.filter(|refusal| refusal["refused_by"] == "sizegate" && is_first(refusal))
        .map(verdict)
        .collect()
}

/// What only observing tells of, by topic, gate and source.
fn also(sizegate: &Sizegate) -> BTreeMap<String, f64> {
    let all = sizegate.json("/api/v1/refusals");
    let mut also = BTreeMap::new();
    let all = all["refusals"].as_array().unwrap().iter();
    for refusal in all.filter(|refusal| !is_first(refusal)) {
        let [topic, gate, source] =
            ["topic", "gate", "source"].map(|field| refusal[field].as_str().unwrap());
        *also.entry(format!("{topic} {gate} {source}")).or_default() += 1.0;
    }
    also
}

/// The first line of the refusal log about each topic and gate: repeated ones are summarised by the minute, and what
/// was quiet for one is logged again. (What the broker refuses after us is another line.)
fn log(sizegate: &mut Sizegate) -> Vec<BTreeMap<String, Value>> {
    let text = sizegate.log();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let lines = whole
        .lines()
        .filter(|line| line.contains("sizegate::refusal"))
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(is_first)
        .map(|line: Value| verdict(&line));
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
    // With what it tells of beside.
    let with = |mut counts: BTreeMap<String, f64>, also: BTreeMap<String, f64>| {
        for (what, count) in also {
            *counts.get_mut(&what).unwrap() += count;
        }
        counts
    };
    let told = also(observing);
    assert!(told.len() > 2, "{told:?}");
    assert_eq!(
        counts(observing, &topics, "observed", "observe"),
        with(expected, told)
    );
    assert_eq!(
        counts(by_rules, by_rule, "observed", "observe"),
        with(
            counts(enforcing, by_rule, "refused", "reject"),
            also(by_rules)
        )
    );

    eventually(PATIENCE, "the same log", || {
        let [ours, theirs] = [log(enforcing), log(observing)];
        (!ours.is_empty() && ours == theirs).then_some(())
    });
    assert_eq!(of_rules(log(by_rules)), of_rules(log(enforcing)));
}

/// By arithmetic: a batch over several gates is counted at each, in the metric, the log and the API.
#[test]
fn observing_tells_of_every_gate_that_would_refuse() {
    let kafka = Kafka::shared("4.4.0");
    let mut sizegate = Sizegate::start(
        kafka,
        "telemetry: {log: json}\nrules:\n- {name: all, topics: ['all-*'], action: observe, limits: {batch_bytes: 1000, \
         uncompressed_bytes: 50000, record_bytes: 3000, value_bytes: 2000, key_bytes: 100, headers_bytes: 200}}\n",
    );
    let mut connection = Connection::open(sizegate.bootstrap());
    for &codec in Codec::ALL {
        for (what, records, expected) in [
            (
                "value and key",
                vec![
                    Record::of_random(2_500, 1),
                    Record::of_random(10, 2).key(vec![b'k'; 150]),
                ],
                vec!["batch", "key", "value"],
            ),
            (
                "behind the uncompressed limit",
                vec![
                    Record::of_random(60_000, 1),
                    Record::of_a(10).header("h", vec![b'h'; 250]),
                ],
                vec!["batch", "uncompressed", "record", "value", "headers"],
            ),
            (
                "too long for the session's turn",
                vec![
                    Record::of_random(900_000, 1),
                    Record::of_a(10).key(vec![b'k'; 101]),
                ],
                vec!["batch", "uncompressed", "record", "key", "value"],
            ),
            (
                "one alone",
                vec![Record::of_a(10).key(vec![b'k'; 101])],
                vec!["key"],
            ),
        ] {
            let topic = kafka.topic("all", 1, &[]);
            let records = batch(records).codec(codec).build();
            let responses = connection.produce(9, -1, &[Part::new(&topic, records)]);
            assert_eq!(
                responses[0].code, 0,
                "{codec} {what}: {:?}",
                responses[0].text
            );
            let metrics = sizegate.metrics();
            let of_gate = |gate: &str| {
                let labels = [("topic", topic.name.as_str()), ("gate", gate)];
                metrics.sum("violations_total", &labels)
            };
            let name = &topic.name;
            let listed = sizegate.json(&format!("/api/v1/refusals?topic={name}"));
            let mut listed: Vec<_> = listed["refusals"]
                .as_array()
                .unwrap()
                .iter()
                .map(|refusal| refusal["gate"].as_str().unwrap().to_owned())
                .collect();
            listed.reverse();
            assert_eq!(listed, expected, "{codec} {what}");
            for gate in ["batch", "uncompressed", "record", "key", "value", "headers"] {
                let count = f64::from(u8::from(expected.contains(&gate)));
                assert_eq!(of_gate(gate), count, "{codec} {what}: {gate}");
                if count > 0.0 {
                    let gate = format!("\"gate\":\"{gate}\"");
                    sizegate.log_line(&["sizegate::refusal", name, &gate]);
                }
            }
            let labels = [("topic", name.as_str()), ("verdict", "observed")];
            assert_eq!(metrics.sum("produce_batches_total", &labels), 1.0);
        }
    }
    assert!(sizegate.process().is_running());
}

/// The codec too: beside the header's gate, beside what is inside, and where a decode takes more than a turn.
#[test]
fn observing_tells_of_the_codec_beside_a_size() {
    let kafka = Kafka::shared("4.4.0");
    let codecs = "codecs: {allow: [lz4], above: 50000, unless_incompressible: false}";
    let yaml = format!(
        "rules:\n- {{name: wire, topics: ['wire-*'], action: observe, limits: {{batch_bytes: 1000}}, {codecs}}}\n\
         - {{name: value, topics: ['value-*'], action: observe, limits: {{value_bytes: 2000}}, {codecs}}}\n"
    );
    let sizegate = Sizegate::start(kafka, &yaml);
    let mut connection = Connection::open(sizegate.bootstrap());
    for &codec in Codec::ALL {
        for (stem, first) in [("wire", "batch"), ("value", "value")] {
            for (bytes, is_large) in [(40_000, false), (60_000, true), (900_000, true)] {
                let topic = kafka.topic(stem, 1, &[]);
                let records = batch([Record::of_random(bytes, 1)]).codec(codec).build();
                let responses = connection.produce(9, -1, &[Part::new(&topic, records)]);
                assert_eq!(
                    responses[0].code, 0,
                    "{codec} {stem} {bytes}: {:?}",
                    responses[0].text
                );
                let listed = sizegate.json(&format!("/api/v1/refusals?topic={}", topic.name));
                let listed = listed["refusals"].as_array().unwrap();
                let listed = listed
                    .iter()
                    .rev()
                    .map(|refusal| refusal["gate"].as_str().unwrap());
                let mut expected = vec![first];
                if is_large && codec != Codec::Lz4 {
                    expected.push("codec");
                }
                assert_eq!(
                    listed.collect::<Vec<_>>(),
                    expected,
                    "{codec} {stem} {bytes}"
                );
            }
        }
    }
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
                    for response in connection.produce(12, -1, &[Part::new(topic, records)]) {
                        assert!(!response.text.unwrap_or_default().contains(MARKER));
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
