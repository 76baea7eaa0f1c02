//! `explain` beside real clients: what it foretells of a record, size by size at every gate and every row of its tables, is
//! what the client then meets. Half of the cases lie at a limit, or one byte off it.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{Kafka, KafkaOptions, Lent, Program, Sizegate, command, http, unique};
use serde_json::{Value, json};

const MIB: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(120);
/// `socket.request.max.bytes` of the broker here.
const SOCKET: usize = 3_000_000;
/// `listener.frame_bytes` of the first sizegate here.
const FRAME: usize = 2_500_000;

/// One record, or a batch of records alike, and who refuses it by what: `None` is nobody.
struct Case {
    topic: String,
    value: usize,
    key: Option<usize>,
    /// Count, name, value.
    headers: Option<(usize, usize, usize)>,
    records: usize,
    content: &'static str,
    /// The producer's settings.
    settings: String,
    /// What explain is told of them.
    asked: Value,
    /// By whom, and by what.
    refused: Option<(&'static str, &'static str)>,
    /// It cannot know for sure: it must say that it may be refused, or say the truth.
    may: bool,
}

fn case(topic: &str, value: usize, refused: Option<(&'static str, &'static str)>) -> Case {
    Case {
        topic: topic.to_owned(),
        value,
        key: None,
        headers: None,
        records: 1,
        content: "random",
        settings: "max.request.size=8388608".to_owned(),
        asked: json!({"max_request_size": 8 * MIB}),
        refused,
        may: false,
    }
}

impl Case {
    fn key(mut self, bytes: usize) -> Self {
        self.key = Some(bytes);
        self
    }

    fn headers(mut self, count: usize, name: usize, value: usize) -> Self {
        self.headers = Some((count, name, value));
        self
    }

    fn records(mut self, records: usize) -> Self {
        self.records = records;
        self.set("linger.ms=20000")
    }

    fn content(mut self, content: &'static str, codec: &str) -> Self {
        self.content = content;
        self.set(&format!("compression.type={codec}"))
    }

    fn set(mut self, setting: &str) -> Self {
        self.settings = format!("{},{setting}", self.settings);
        self
    }

    /// These settings alone, and what explain is told of them.
    fn only(mut self, settings: &str, asked: Value) -> Self {
        self.settings = settings.to_owned();
        self.asked = asked;
        self
    }

    fn id(mut self) -> Self {
        self.asked["client_id"] = json!("cases");
        self.set("client.id=cases")
    }

    fn may(mut self) -> Self {
        self.may = true;
        self
    }

    fn argument(&self) -> String {
        let headers = self
            .headers
            .map(|(count, name, value)| format!("{count}x{name}:{value}"));
        format!(
            "{}|{}|{}|{}|{}|{}|{}",
            self.topic,
            self.value,
            self.key.map(|key| key.to_string()).unwrap_or_default(),
            headers.unwrap_or_default(),
            self.records,
            self.content,
            self.settings
        )
    }

    /// As explain is asked, knowing what the producer sent where that is compressed.
    fn question(&self, wire_bytes: usize) -> Value {
        let mut question = self.asked.clone();
        question["topic"] = json!(self.topic);
        question["value_bytes"] = json!(self.value);
        question["records"] = json!(self.records);
        if let Some(key) = self.key {
            question["key_bytes"] = json!(key);
        }
        if let Some((count, name, value)) = self.headers {
            question["headers"] = json!(count);
            question["headers_bytes"] = json!(count * (name + value));
        }
        if self.settings.contains("compression.type") {
            question["compressed_bytes"] = json!(wire_bytes);
        }
        question
    }
}

struct Ground {
    kafka: Kafka,
    sizegate: Sizegate,
    /// The same with the default `frame_bytes`.
    wide: Sizegate,
    stem: String,
}

impl Ground {
    fn topic(&self, name: &str) -> String {
        format!("{}-{name}", self.stem)
    }
}

fn ground() -> Arc<Ground> {
    static GROUND: Lent<Ground> = Lent::to_tests(4);
    GROUND.get(|| {
        let options = KafkaOptions::default().property("socket.request.max.bytes", &SOCKET.to_string());
        let kafka = Kafka::start("4.4.0", options);
        let stem = unique("cases");
        let wide = ("max.message.bytes", "8000000");
        for (name, configs) in [
            ("plain", vec![]),
            ("own", vec![("max.message.bytes", "2000")]),
            ("wide", vec![wide]),
            ("segment", vec![wide, ("segment.bytes", "1048576")]),
            ("record", vec![]),
            ("estimate", vec![]),
            ("key", vec![]),
            ("value", vec![]),
            ("headers", vec![]),
            ("uncompressed", vec![]),
            ("batch", vec![]),
            ("ratio", vec![]),
            ("policy", vec![]),
            ("watched", vec![]),
            ("main", vec![wide]),
            ("main-dlt", vec![]),
            ("raised", vec![wide]),
            ("raised-dlt", vec![]),
            ("left", vec![("max.message.bytes", "2000")]),
            ("leftsegment", vec![wide, ("segment.bytes", "1048576")]),
            ("decompressed", vec![("max.decompressed.message.bytes", "2000")]),
            ("stored", vec![("compression.type", "uncompressed"), ("max.message.bytes", "5000")]),
            ("restored", vec![("compression.type", "gzip"), ("max.message.bytes", "5000")]),
        ] {
            kafka.create_topic(&format!("{stem}-{name}"), 1, 1, &configs);
        }
        let rule = |name: &str, limits: &str, more: &str| {
            format!("- {{name: {name}, topics: [{stem}-{name}], limits: {{{limits}}}{more}}}\n")
        };
        let rules = [
            rule("record", "record_bytes: 2000", ""),
            rule("estimate", "estimate_bytes: 2000", ""),
            rule("key", "key_bytes: 100", ""),
            rule("value", "value_bytes: 1500", ""),
            rule("headers", "headers_bytes: 300", ""),
            rule("uncompressed", "uncompressed_bytes: 5000", ""),
            rule("batch", "batch_bytes: 2000", ""),
            rule("ratio", "ratio: 10", ""),
            rule("policy", "record_bytes: 2000", ", error_code: POLICY_VIOLATION"),
            rule("watched", "record_bytes: 2000", ", action: observe"),
            rule("left", "batch_bytes: none", ""),
            rule("leftsegment", "batch_bytes: none", ""),
        ];
        let yaml = format!(
            "rules:\n{}families: {{headroom: 64KiB, members: [{{main: {stem}-main, dead_letter: [{stem}-main-dlt], \
             alignment: enforce}}, {{main: {stem}-raised, dead_letter: [{stem}-raised-dlt], alignment: enforce, \
             writer_max_request_size: none}}]}}\n",
            rules.concat()
        );
        let before = || Sizegate::before(&kafka.bootstrap()).yaml(&yaml);
        let sizegate = before().listener(&format!("frame_bytes: {FRAME}")).start();
        let wide = before().start();
        // The broker's own settings are read after its topics.
        for sizegate in [&sizegate, &wide] {
            let question = json!({"topic": format!("{stem}-plain"), "value_bytes": 1}).to_string();
            crate::support::eventually(PATIENCE, "the broker's socket limit is known", || {
                let response = ask(sizegate, &question);
                let checks = response["checks"].as_array().unwrap();
                let is_known = |check: &Value| check["what"] == "socket.request.max.bytes";
                checks.iter().any(is_known).then_some(())
            });
        }
        Ground {
            kafka,
            sizegate,
            wide,
            stem,
        }
    })
}

fn ask(sizegate: &Sizegate, question: &str) -> Value {
    let (status, body) =
        http::request(sizegate.admin(), "POST", "/api/v1/explain", question).unwrap();
    assert_eq!(status, 200, "{question}: {body}");
    serde_json::from_str(&body).unwrap()
}

/// By whom and by what a client was refused, from what it saw.
fn refused_by(seen: &Value) -> Option<(&'static str, String)> {
    if seen["ok"] == true {
        return None;
    }
    let text = seen["text"].as_str().unwrap_or_default();
    let field = |name: &str| {
        let (_, rest) = text
            .split_once(&format!("[{name}="))
            .or_else(|| text.split_once(&format!(" {name}=")))?;
        rest.split([' ', ']']).next().map(str::to_owned)
    };
    if text.starts_with("sizegate refused ") {
        return Some(("sizegate", format!("gate {}", field("gate").unwrap())));
    }
    if text.starts_with("sizegate let ") {
        return Some(("broker", field("code").unwrap()));
    }
    let what = if text.contains("buffer.memory") {
        "buffer.memory"
    } else {
        "max.request.size"
    };
    assert!(text.contains(what) && seen["wire_bytes"] == 0.0, "{seen}");
    Some(("client", what.to_owned()))
}

/// The first that refuses, and what may refuse.
fn foretold(response: &Value) -> (Option<(String, String)>, Vec<String>) {
    let checks = response["checks"].as_array().unwrap();
    let outcome = |check: &&Value, wanted: &str| check["outcome"] == wanted;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let first = checks.iter().find(|check| outcome(check, "refuses"));
    let may = checks.iter().filter(|check| outcome(check, "may refuse"));
    (
        first.map(|check| (text(&check["by"]), text(&check["what"]))),
        may.map(|check| text(&check["what"])).collect(),
    )
}

fn cases(ground: &Ground) -> Vec<Case> {
    let topic = |name: &str| ground.topic(name);
    let default = |case: Case| case.only("", json!({}));
    let client = |what| Some(("client", what));
    let gate = |what| Some(("sizegate", what));
    let broker = |what| Some(("broker", what));
    let buffer = |case: Case| {
        case.only(
            "max.request.size=8388608,buffer.memory=2000000",
            json!({"max_request_size": 8 * MIB, "buffer_memory": 2_000_000}),
        )
    };
    let small = |case: Case| case.only("max.request.size=5000", json!({"max_request_size": 5000}));
    vec![
        // The client's own limits: estimate = value + 86 … 88.
        default(case(&topic("plain"), 1_000, None)),
        default(case(&topic("plain"), 1_048_489, None)),
        default(case(&topic("plain"), 1_048_490, client("max.request.size"))),
        default(case(&topic("plain"), 2_000_000, client("max.request.size"))),
        default(case(&topic("plain"), 1_048_482, None).key(7)),
        default(case(&topic("plain"), 1_048_483, client("max.request.size")).key(7)),
        small(case(&topic("plain"), 4_913, None)),
        small(case(&topic("plain"), 4_914, None)),
        small(case(&topic("plain"), 4_915, client("max.request.size"))),
        buffer(case(&topic("wide"), 1_999_912, None)),
        buffer(case(&topic("wide"), 1_999_913, client("buffer.memory"))),
        // The batch gate: the broker's default, the topic's own, the segment's, the family's, a rule's.
        case(&topic("plain"), 1_048_515, None),
        case(&topic("plain"), 1_048_516, None),
        case(&topic("plain"), 1_048_517, gate("gate batch")),
        case(&topic("plain"), 2_000_000, gate("gate batch")),
        case(&topic("plain"), 2_000_000, None).content("a", "gzip"),
        case(&topic("plain"), 2_000_000, None).content("a", "zstd"),
        case(&topic("plain"), 2_000_000, gate("gate batch")).content("random", "lz4"),
        case(&topic("plain"), 2_000_000, gate("gate batch")).content("hex", "gzip"),
        case(&topic("own"), 1_929, None),
        case(&topic("own"), 1_930, None),
        case(&topic("own"), 1_931, gate("gate batch")),
        case(&topic("own"), 500, None).records(3),
        case(&topic("own"), 1_800, None).headers(10, 3, 3),
        case(&topic("own"), 990, None).headers(10, 11, 80).may(),
        case(&topic("own"), 1_001, gate("gate batch")).headers(10, 11, 80),
        case(&topic("own"), 983, gate("gate batch")).headers(1, 5, 980),
        case(&topic("own"), 940, None).headers(1, 5, 975),
        case(&topic("segment"), 1_048_503, None),
        case(&topic("segment"), 1_048_504, None),
        case(&topic("segment"), 1_048_505, gate("gate batch")),
        case(&topic("raised"), 982_979, None),
        case(&topic("raised"), 982_980, None),
        case(&topic("raised"), 982_981, gate("gate batch")),
        // What the writer of its dead letters takes: 1,048,576 − 65,536 of estimate, of which 87 are not the value.
        case(&topic("main"), 982_952, None),
        case(&topic("main"), 982_953, None),
        case(&topic("main"), 982_954, gate("gate estimate")),
        case(&topic("main"), 982_981, gate("gate batch")),
        case(&topic("main-dlt"), 1_048_516, None),
        case(&topic("batch"), 1_930, None),
        case(&topic("batch"), 1_931, gate("gate batch")),
        case(&topic("batch"), 100_000, None).content("a", "lz4"),
        // Inside a batch.
        case(&topic("record"), 1_991, None),
        case(&topic("record"), 1_992, gate("gate record")),
        case(&topic("record"), 1_992, gate("gate record")).content("a", "gzip"),
        case(&topic("estimate"), 1_914, None),
        case(&topic("estimate"), 1_915, gate("gate estimate")),
        case(&topic("key"), 10, None).key(100),
        case(&topic("key"), 10, gate("gate key")).key(101),
        case(&topic("value"), 1_500, None),
        case(&topic("value"), 1_501, gate("gate value")),
        case(&topic("headers"), 10, None).headers(1, 4, 296),
        case(&topic("headers"), 10, gate("gate headers")).headers(1, 4, 297),
        case(&topic("headers"), 10, gate("gate headers")).headers(7, 4, 39),
        case(&topic("uncompressed"), 4_930, None).content("a", "gzip"),
        case(&topic("uncompressed"), 4_931, gate("gate uncompressed")).content("a", "gzip"),
        case(&topic("ratio"), 1_048_502, None).content("a", "gzip"),
        case(&topic("ratio"), 1_048_505, gate("gate ratio")).content("a", "gzip"),
        case(&topic("policy"), 1_991, None),
        case(&topic("policy"), 1_992, gate("gate record")),
        case(&topic("watched"), 1_992, None),
        // The whole request: ours, then the broker's (below).
        case(&topic("wide"), FRAME - 126, None).id(),
        case(&topic("wide"), FRAME - 125, gate("gate frame")).id(),
        case(&topic("wide"), FRAME - 127, None).may(),
        // The broker alone.
        case(&topic("left"), 1_930, None),
        case(&topic("left"), 1_931, broker("max.message.bytes")),
        case(&topic("leftsegment"), 1_048_504, None),
        case(&topic("leftsegment"), 1_048_505, broker("segment.bytes")),
        case(&topic("decompressed"), 1_993, None).content("a", "gzip"),
        case(
            &topic("decompressed"),
            1_994,
            broker("max.decompressed.message.bytes"),
        )
        .content("a", "gzip"),
        case(&topic("decompressed"), 1_994, None),
        case(&topic("stored"), 4_930, None).content("a", "gzip"),
        case(
            &topic("stored"),
            4_931,
            broker("max.message.bytes, as stored"),
        )
        .content("a", "gzip"),
        case(&topic("restored"), 4_925, None).may(),
        case(&topic("restored"), 100_000, gate("gate batch")),
        case(&topic("restored"), 4_000, None),
    ]
}

/// The codes by which the broker refuses, by the row that foretells them.
fn code(what: &str) -> &'static str {
    match what {
        "segment.bytes" => "18",
        "max.decompressed.message.bytes" => "87",
        _ => "10",
    }
}

fn agree(sizegate: &Sizegate, cases: &[Case]) {
    let mut program = Program::java("SendCases", "4.4.0").arg("bootstrap", sizegate.bootstrap());
    for (at, case) in cases.iter().enumerate() {
        program = program.arg(&format!("case.{at}"), case.argument());
    }
    let sent = program.run();
    let mut wrong = Vec::new();
    for (at, case) in cases.iter().enumerate() {
        let seen = sent.only("case", at);
        let wire = seen["wire_bytes"].as_f64().unwrap() as usize;
        let question = case.question(wire).to_string();
        let response = ask(sizegate, &question);
        let met = refused_by(seen);
        let expected = case.refused.map(|(by, what)| match by {
            "broker" => (by, code(what).to_owned()),
            _ => (by, what.to_owned()),
        });
        let (first, may) = foretold(&response);
        let first = first
            .as_ref()
            .map(|(by, what)| (by.as_str(), what.as_str()));
        let is_foretold = first == case.refused || case.may && first.is_none() && !may.is_empty();
        // Where nothing is near, nothing is left open.
        let is_sure = case.may || first.is_some() || may.is_empty();
        if met != expected && !case.may || !is_foretold || !is_sure {
            wrong.push(format!(
                "{}\n  met {met:?}: {seen}\n  foretold {first:?}, may {may:?}: {question}",
                case.argument()
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n")
    );
}

#[test]
fn a_java_producer_meets_what_explain_foretells_at_every_gate_and_row() {
    let ground = ground();
    let cases = cases(&ground);
    assert!(cases.len() >= 60, "{}", cases.len());
    agree(&ground.sizegate, &cases);
}

#[test]
fn a_request_above_the_brokers_socket_limit_is_refused_as_foretold_and_not_one_byte_before() {
    let ground = ground();
    let topic = ground.topic("wide");
    agree(
        &ground.wide,
        &[
            case(&topic, SOCKET - 126, None).id(),
            case(&topic, SOCKET - 125, Some(("sizegate", "gate frame"))).id(),
            case(&topic, SOCKET + 500_000, Some(("sizegate", "gate frame"))),
        ],
    );
    assert_eq!(ground.kafka.version(), "4.4.0");
}

/// Every other client at its own limit, and at the topic's: its arithmetic, its default, its words.
#[test]
fn other_clients_meet_what_explain_foretells_by_their_own_arithmetic() {
    let ground = ground();
    let python = |client: &str, most: usize| {
        Program::python("produce.py")
            .arg("client", client)
            .arg("max", most)
    };
    let own = ground.topic("own");
    let plain = ground.topic("plain");
    for (client, most, largest, program) in [
        (
            "librdkafka",
            1_000_000,
            999_964,
            python("confluent", 1_000_000),
        ),
        ("kafka-python", MIB, 1_048_489, python("kafka-python", MIB)),
        ("aiokafka", MIB, 1_048_489, python("aiokafka", MIB)),
        (
            "franz-go",
            1_000_012,
            999_936,
            Program::go("franz").arg("max", 1_000_012),
        ),
        (
            "sarama",
            MIB,
            1_048_540,
            Program::go("sarama").arg("max", MIB),
        ),
    ] {
        // franz-go takes three bytes more once it knows the broker's version.
        let above = largest + if client == "franz-go" { 4 } else { 1 };
        let sizes = [largest - 1, largest, above, 1_200_000];
        let values = sizes.map(|size| size.to_string()).join(",");
        let sent = program
            .arg("bootstrap", ground.sizegate.bootstrap())
            .arg("topic", &plain)
            .arg("values", values)
            .run();
        for size in sizes {
            let question =
                json!({"topic": plain, "value_bytes": size, "client": client}).to_string();
            let response = ask(&ground.sizegate, &question);
            let seen = sent.only("value_bytes", size);
            // sarama's limit is above what the topic takes.
            let by_topic = size > 1_048_516 && size <= largest;
            let expected = match (size > largest, by_topic) {
                (true, _) => json!("client"),
                (_, true) => json!("sizegate"),
                _ => Value::Null,
            };
            assert_eq!(
                response["refused_by"], expected,
                "{client} {size}: {response:#}"
            );
            assert_eq!(seen["ok"], expected.is_null(), "{client} {size}: {seen}");
            let row = &response["checks"][0];
            assert_eq!(row["limit_bytes"], most, "{client}: {row}");
            if expected == "client" {
                shows(&response, seen, client);
            }
        }
    }
    // By the topic: the words for the code.
    for (client, program) in [
        ("librdkafka", python("confluent", MIB)),
        ("aiokafka", python("aiokafka", MIB)),
        ("franz-go", Program::go("franz")),
        ("sarama", Program::go("sarama")),
    ] {
        let sent = program
            .arg("bootstrap", ground.sizegate.bootstrap())
            .arg("topic", &own)
            .arg("values", "1930,1931")
            .run();
        let ask = |size: usize| {
            let question = json!({"topic": own, "value_bytes": size, "client": client}).to_string();
            ask(&ground.sizegate, &question)
        };
        assert_eq!(
            (
                &ask(1_930)["passes"],
                &sent.only("value_bytes", 1_930)["ok"]
            ),
            (&json!(true), &json!(true))
        );
        let response = ask(1_931);
        assert_eq!(response["refused_by"], "sizegate", "{response:#}");
        shows(&response, sent.only("value_bytes", 1_931), client);
    }
    let sent = Program::node("kafkajs.js")
        .arg("bootstrap", ground.sizegate.bootstrap())
        .arg("topic", &plain)
        .arg("sends", "0:1048516;0:1048517")
        .run();
    for (send, size, expected) in [
        (0, 1_048_516, Value::Null),
        (1, 1_048_517, json!("sizegate")),
    ] {
        let question =
            json!({"topic": plain, "value_bytes": size, "client": "kafkajs"}).to_string();
        let response = ask(&ground.sizegate, &question);
        assert_eq!(response["refused_by"], expected, "{response:#}");
        let seen = sent.only("send", send);
        assert_eq!(seen["ok"], expected.is_null(), "{seen}");
        if !expected.is_null() {
            shows(&response, seen, "kafkajs");
        }
    }
}

/// The broker alone closes on a request above its socket limit, and no client says a word of size.
#[test]
fn what_clients_show_of_a_connection_that_the_broker_closes_is_what_explain_quotes() {
    let ground = ground();
    let topic = ground.topic("wide");
    let yaml = format!(
        "cluster: {{bootstrap_servers: ['{}']}}\nmode: observe\n",
        ground.kafka.bootstrap()
    );
    let size = SOCKET + 100_000;
    for (client, program) in [
        (
            "java",
            Program::java("SendSizes", "4.4.0")
                .arg("values", size)
                .arg("p.max.request.size", 8 * MIB)
                // A connection that closes after that has words of its own: a busy machine takes seconds for the first.
                .arg("p.delivery.timeout.ms", 15_000)
                .arg("p.request.timeout.ms", 5_000),
        ),
        (
            "librdkafka",
            Program::python("produce.py")
                .arg("client", "confluent")
                .arg("values", size)
                .arg("c.message.timeout.ms", 4_000),
        ),
        ("sarama", Program::go("sarama").arg("values", size)),
        (
            "kafkajs",
            Program::node("kafkajs.js").arg("sends", format!("0:{size}")),
        ),
    ] {
        let value = format!("--value-bytes={size}");
        let client_of = format!("--client={client}");
        let arguments = [
            "explain",
            &topic,
            "--output=json",
            "--max-request-size=8000000",
            &value,
            &client_of,
        ];
        let response = command::sizegate(&arguments, &yaml).json();
        assert_eq!(response["refused_by"], "broker", "{response:#}");
        let sent = program
            .arg("bootstrap", ground.kafka.bootstrap())
            .arg("topic", &topic)
            .run();
        let refused = sent.where_is("ok", false);
        shows(&response, refused[0], client);
    }
}

/// What the first step quotes is what the client showed.
fn shows(response: &Value, seen: &Value, client: &str) {
    let step = response["remedy"][0]["text"].as_str().unwrap();
    let shown = seen["text"].as_str().unwrap();
    let quotes: Vec<&str> = step
        .split('“')
        .skip(1)
        .filter_map(|part| part.split('”').next())
        .collect();
    let is_shown = |quote: &&str| {
        shown.contains(
            quote
                .trim_start_matches("[Error 10] ")
                .trim_start_matches("… "),
        ) || shown.contains(*quote)
    };
    assert!(
        quotes.iter().any(is_shown),
        "{client} showed {shown}\nforetold {step}"
    );
}
