//! What a refusal says to do: it names the right part, in the words of the client's own settings, and whoever follows it has
//! the problem no more. And what a client cannot bear to be told, it is not told.

use std::sync::OnceLock;
use std::time::Duration;

use crate::support::kafka::{PLAIN_USER, SCRAM_256_USER};
use crate::support::{
    Connection, Kafka, KafkaOptions, Part, Program, Record, Sizegate, Topic, batch, eventually,
    http,
};
use serde_json::{Value, json};
use sizegate::vocabulary::Codec;

const PATIENCE: Duration = Duration::from_secs(120);

fn pair() -> (&'static Kafka, &'static Sizegate) {
    static SIZEGATE: OnceLock<Sizegate> = OnceLock::new();
    let kafka = Kafka::shared("4.4.0");
    let start = || {
        Sizegate::before(&kafka.bootstrap())
            .yaml(
                "rules:\n\
                 - {name: r10, topics: ['r10-*'], limits: {record_bytes: 2000}}\n\
                 - {name: r44, topics: ['r44-*'], limits: {record_bytes: 2000}, error_code: POLICY_VIOLATION}\n\
                 - {name: r87, topics: ['r87-*'], limits: {record_bytes: 2000}, error_code: INVALID_RECORD}\n\
                 - {name: left, topics: ['left-*'], limits: {batch_bytes: none}}\n",
            )
            .listener("frame_bytes: 9MiB")
            .start()
    };
    (kafka, SIZEGATE.get_or_init(start))
}

/// The text of the last refusal of a topic: what client, log and API share.
fn told(sizegate: &Sizegate, topic: &str) -> String {
    let listed = sizegate.json(&format!("/api/v1/refusals?topic={topic}"));
    let first = &listed["refusals"][0]["text"];
    first
        .as_str()
        .unwrap_or_else(|| panic!("{topic}: {listed}"))
        .to_owned()
}

fn field(text: &str, name: &str) -> Option<u64> {
    let (_, rest) = text.split_once(&format!(" {name}="))?;
    rest.split([' ', ']']).next()?.parse().ok()
}

/// Applications of librdkafka read this pointer for each record that failed: 2.16.0 and before keep it into a response that
/// is freed, so any text but the broker's empty one becomes garbage.
#[test]
fn librdkafka_has_its_own_words_for_every_refusal() {
    let (kafka, sizegate) = pair();
    let own = |stem: &str, configs: &[(&str, &str)]| kafka.topic(stem, 1, configs);
    let topics: Vec<(Topic, usize, i64)> = vec![
        (own("r10", &[]), 3_000, 10),
        (own("r44", &[]), 3_000, 44),
        (own("r87", &[]), 3_000, 87),
        (own("learned", &[("max.message.bytes", "2000")]), 3_000, 10),
        (own("left", &[("max.message.bytes", "2000")]), 3_000, 10),
        (own("frame", &[]), 9_600_000, 10),
    ];
    let sends = topics
        .iter()
        .map(|(topic, bytes, _)| format!("{}:{bytes}", topic.name));
    let sends = sends.collect::<Vec<_>>().join(",");
    let learned = &topics[3].0.name;
    let control = Program::python("errstr.py")
        .arg("bootstrap", kafka.bootstrap())
        .arg("sends", format!("{learned}:3000"))
        .arg("rounds", 1)
        .run();
    let control = &control.lines[0];
    assert_eq!(
        (&control["code"], &control["errstr"]),
        (&json!(10), &Value::Null)
    );
    for software in [
        vec![],
        vec![
            ("c.client.software.name", "confluent-kafka-dotnet"),
            ("c.client.software.version", "2.16.0"),
        ],
        vec![
            ("c.client.software.name", "orders-service"),
            ("c.client.software.version", "1.0-librdkafka-2.16.0"),
        ],
    ] {
        let mut program = Program::python("errstr.py")
            .arg("bootstrap", sizegate.bootstrap())
            .arg("sends", &sends)
            .arg("rounds", 12);
        for (name, value) in &software {
            program = program.arg(name, value);
        }
        let seen = program.run();
        assert_eq!(seen.lines.len(), 12 * topics.len(), "{seen:?}");
        for (topic, _, code) in &topics {
            for line in seen.where_is("topic", topic.name.as_str()) {
                assert_eq!(line["code"], *code, "{line}");
                // As with the broker itself, and then the application asks for librdkafka's own words.
                assert_eq!(line["errstr"], Value::Null, "{software:?}: {line}");
            }
        }
    }
    // Whoever looks for the text finds it.
    for (topic, _, _) in &topics {
        let whole = if topic.name.starts_with("left") {
            sizegate.log_line(&["sizegate let", &topic.name])
        } else {
            sizegate.log_line(&[&topic.name, "id="]);
            told(sizegate, &topic.name)
        };
        assert!(whole.contains(&topic.name), "{whole}");
    }
}

/// The same bytes from different software.
#[test]
fn a_text_goes_to_those_that_bear_it() {
    let (kafka, sizegate) = pair();
    let topic = kafka.topic("r87", 1, &[]);
    for (software, version, has_text) in [
        ("apache-kafka-java", "4.3.0", true),
        ("librdkafka", "2.16.0", false),
        ("confluent-kafka-python", "2.16.1-rdkafka-2.16.0", false),
        ("kgo", "v1.22.0", true),
    ] {
        let mut connection = Connection::open(sizegate.bootstrap());
        connection.api_versions(software, version);
        let records = batch([Record::of_random(3_000, 1)]).build();
        let responses = connection.produce(9, -1, &[Part::new(&topic, records)]);
        assert_eq!(responses[0].code, 87, "{software}");
        assert_eq!(
            responses[0].text.is_some(),
            has_text,
            "{software}: {responses:?}"
        );
        assert_eq!(responses[0].record_errors, [(0, None)], "{software}");
    }
}

fn produce(
    sizegate: &Sizegate,
    topic: &Topic,
    client_id: &str,
    records: impl Into<bytes::Bytes>,
) -> String {
    let mut connection = Connection::open(sizegate.bootstrap());
    connection.client_id = Some(client_id.to_owned());
    let responses = connection.produce(9, -1, &[Part::new(topic, records.into())]);
    assert_eq!(responses[0].code, 10, "{responses:?}");
    let text = told(sizegate, &topic.name);
    assert_eq!(responses[0].text.as_ref(), Some(&text), "the same for all");
    text
}

fn hex(bytes: usize) -> Vec<u8> {
    let noise = crate::support::batch::random(bytes, 7);
    noise
        .iter()
        .map(|byte| b"0123456789abcdef"[usize::from(byte & 15)])
        .collect()
}

#[test]
fn remedies_go_by_what_compression_did() {
    let (kafka, sizegate) = pair();
    let topic = kafka.topic("codec", 1, &[]);
    // A value that shrinks by half, and still does not fit.
    for codec in [Codec::Gzip, Codec::Lz4, Codec::Zstd, Codec::Snappy] {
        let built = batch([Record::value(hex(2_600_000))]).codec(codec);
        let uncompressed = built.uncompressed_bytes() as u64;
        let records = built.build();
        let wire = records.len() as u64;
        assert!(wire > 1_048_588, "{codec}: {wire}");
        let text = produce(sizegate, &topic, "app", records);
        let known = field(&text, "uncompressed_bytes");
        assert!(known.is_none_or(|bytes| bytes == uncompressed), "{text}");
        let least = field(&text, "uncompressed_at_least_bytes");
        assert!(
            least.is_none_or(|bytes| bytes >= wire && bytes <= uncompressed),
            "{text}"
        );
        assert!(text.contains("compressed, it is still above"), "{text}");
        assert!(!text.contains("compress it"), "it is: {text}");
        assert!(
            text.contains("Send less in one record, or set max.message.bytes on the topic."),
            "{text}"
        );
    }
    // Noise grows: as it is, it would fit.
    for (codec, bytes) in [
        (Codec::Gzip, 1_048_450),
        (Codec::Lz4, 1_048_512),
        (Codec::Zstd, 1_048_512),
        (Codec::Snappy, 1_048_512),
    ] {
        let built = batch([Record::of_random(bytes, 3)]).codec(codec);
        let uncompressed = built.uncompressed_bytes();
        let records = built.build();
        assert!(
            records.len() > 1_048_588 && uncompressed <= 1_048_588,
            "{codec}"
        );
        let text = produce(sizegate, &topic, "app", records);
        let said = format!(
            "{codec} made it larger: uncompressed it is {} bytes, which fits.",
            grouped(uncompressed)
        );
        assert!(text.contains(&said), "{said}: {text}");
        assert!(
            text.contains("Leave compression out in the producer: it fits without"),
            "{text}"
        );
    }
    // Not compressed.
    let text = produce(
        sizegate,
        &topic,
        "app",
        batch([Record::of_random(1_100_000, 3)]).build(),
    );
    assert!(
        text.contains("It is not compressed (codec=none).") && text.contains("compress it"),
        "{text}"
    );
    let text = produce(
        sizegate,
        &topic,
        "kgo",
        batch([Record::of_random(1_100_000, 3)]).build(),
    );
    assert!(
        text.contains("or did not gain by it: franz-go then sends it uncompressed"),
        "{text}"
    );
}

fn grouped(number: usize) -> String {
    let digits: Vec<char> = number.to_string().chars().rev().collect();
    let groups: Vec<String> = digits
        .chunks(3)
        .map(|group| group.iter().collect())
        .collect();
    groups.join(",").chars().rev().collect()
}

#[test]
fn a_large_record_among_small_ones_is_named_and_what_was_not_measured_is_not_called_small() {
    let (kafka, sizegate) = pair();
    let topic = kafka.topic("among", 1, &[]);
    let small = |n: usize| (0..n).map(|seed| Record::of_random(900, seed as u64));
    for codec in [
        Codec::None,
        Codec::Gzip,
        Codec::Zstd,
        Codec::Lz4,
        Codec::Snappy,
    ] {
        let records = small(20)
            .chain([Record::of_random(1_100_000, 99)])
            .chain(small(5));
        let text = produce(sizegate, &topic, "app", batch(records).codec(codec).build());
        assert!(text.contains("number 21 of 26: 1,100,0"), "{codec}: {text}");
        assert!(
            text.contains("Send less in one record") && !text.contains("batch.size"),
            "{text}"
        );
        // The batch is too large, no record is.
        let text = produce(
            sizegate,
            &topic,
            "app",
            batch(small(1_300)).codec(codec).build(),
        );
        assert!(
            text.contains("No single record is too large (the largest of 1,300 is 91"),
            "{text}"
        );
        assert!(text.contains("Lower the producer's batch.size"), "{text}");
        // Far more than is looked at for a text.
        if codec != Codec::None {
            let text = produce(
                sizegate,
                &topic,
                "app",
                batch(small(8_000)).codec(codec).build(),
            );
            assert!(
                text.contains("Not all of its records were measured"),
                "{text}"
            );
            assert!(
                text.contains("Lower the producer's batch.size")
                    && text.contains("or send less in one record where one is too large alone"),
                "{text}"
            );
        }
    }
    // Of a record that is not read to its end, its length is known.
    let huge = [Record::of_random(900, 1), Record::of_random(6_000_000, 2)];
    let text = produce(
        sizegate,
        &topic,
        "app",
        batch(huge).codec(Codec::Gzip).build(),
    );
    assert!(
        text.contains("the largest so far is number 2 of 2: 6,000,0"),
        "{text}"
    );
}

#[test]
fn headers_are_named_where_it_would_fit_without_them() {
    let (kafka, sizegate) = pair();
    let topic = kafka.topic("traced", 1, &[]);
    // Over by some 3,900 of a million, by headers of 4,000.
    let record = Record::of_random(1_048_400, 1).header("trace", vec![b'x'; 3_995]);
    let text = produce(sizegate, &topic, "app", batch([record]).build());
    assert!(
        text.contains("Its headers are 4,000 bytes of that."),
        "{text}"
    );
    assert!(text.contains("Send fewer or shorter headers"), "{text}");
    let record = Record::of_random(1_060_000, 1).header("trace", vec![b'x'; 3_995]);
    let text = produce(sizegate, &topic, "app", batch([record]).build());
    assert!(
        !text.contains("headers"),
        "less of them is not enough: {text}"
    );
    // By a rule on records too.
    let guarded = kafka.topic("r10", 1, &[]);
    let record = Record::of_random(1_960, 1).header("t", vec![b'x'; 38]);
    let text = produce(sizegate, &guarded, "app", batch([record]).build());
    assert!(
        text.contains("Its headers are 39 bytes of that.")
            && text.contains("Send fewer or shorter headers"),
        "{text}"
    );
}

#[test]
fn settings_are_called_as_the_client_calls_them() {
    let (kafka, sizegate) = pair();
    let topic = kafka.topic("called", 1, &[("max.message.bytes", "5000")]);
    let many = || batch((0..10).map(|seed| Record::of_random(900, seed))).build();
    for (client_id, words) in [
        (
            "kafkajs",
            "Split the messages over more send() calls, compress it, or raise",
        ),
        ("aiokafka-producer-1", "Lower the producer's max_batch_size"),
        ("sarama", "Set the producer's Flush.MaxMessages"),
        ("kgo", "Lower the producer's ProducerBatchMaxBytes"),
        (
            "orders",
            "Lower the producer's batch.size (kafkajs: split the messages over more send() calls)",
        ),
    ] {
        let text = produce(sizegate, &topic, client_id, many());
        assert!(text.contains(words), "{client_id}: {text}");
    }
}

/// A batch that does not hold what it declares gets the broker's own response: its size is not why.
#[test]
fn the_brokers_refusal_of_a_broken_batch_is_not_called_a_size() {
    let (kafka, sizegate) = pair();
    let plain = kafka.topic("broken", 1, &[]);
    let limited = kafka.topic("broken", 1, &[("max.decompressed.message.bytes", "2000")]);
    for codec in [Codec::Gzip, Codec::Zstd, Codec::Lz4, Codec::Snappy] {
        let broken = || batch([Record::of_a(500)]).codec(codec).count(2).build();
        for topic in [&plain, &limited] {
            let told = |address: String| {
                let responses =
                    Connection::open(address).produce(9, -1, &[Part::new(topic, broken())]);
                (responses[0].code, responses[0].text.clone())
            };
            assert_eq!(
                told(sizegate.bootstrap()),
                told(kafka.bootstrap()),
                "{codec}"
            );
        }
        let large = batch([Record::of_a(3_000)]).codec(codec).build();
        let responses =
            Connection::open(sizegate.bootstrap()).produce(9, -1, &[Part::new(&limited, large)]);
        let text = responses[0].text.as_deref().unwrap_or_default();
        assert_eq!(responses[0].code, 87);
        assert!(
            text.contains("max.decompressed.message.bytes (2,000)"),
            "{codec}: {responses:?}"
        );
    }
}

fn java(sizegate: &Sizegate, cases: &[String]) -> crate::support::programs::Output {
    let mut program = Program::java("SendCases", "4.4.0").arg("bootstrap", sizegate.bootstrap());
    for (at, case) in cases.iter().enumerate() {
        program = program.arg(&format!("case.{at}"), case);
    }
    program.run()
}

/// What each text says to do is done, and then it passes.
#[test]
fn who_follows_a_refusals_remedy_is_not_refused_again() {
    let (kafka, sizegate) = pair();
    let topic = kafka.topic("followed", 1, &[]);
    let name = &topic.name;
    let guarded = kafka.topic("r10", 1, &[]);
    let larger = "max.request.size=8388608";
    // Refused, what the text must say, and the same with what it says done.
    let pairs = [
        (
            format!("{name}|1500000|||1|hex|{larger}"),
            "compress it",
            format!("{name}|1500000|||1|hex|{larger},compression.type=gzip"),
        ),
        (
            format!("{name}|1048450|||1|random|{larger},compression.type=gzip"),
            "Set compression.type=none in the producer: it fits without",
            format!("{name}|1048450|||1|random|{larger},compression.type=none"),
        ),
        (
            format!("{name}|1048400||1x5:3995|1|random|{larger}"),
            "Send fewer or shorter headers",
            format!("{name}|1048400|||1|random|{larger}"),
        ),
        (
            format!("{}|1960||1x1:38|1|random|", guarded.name),
            "Send fewer or shorter headers",
            format!("{}|1960|||1|random|", guarded.name),
        ),
        (
            format!("{}|3000|||1|random|", guarded.name),
            "Send less in one record",
            format!("{}|1500|||1|random|", guarded.name),
        ),
    ];
    let cases: Vec<String> = pairs
        .iter()
        .flat_map(|(refused, _, mended)| [refused.clone(), mended.clone()])
        .collect();
    let seen = java(sizegate, &cases);
    for (at, (refused, says, mended)) in pairs.iter().enumerate() {
        let line = seen.only("case", 2 * at);
        assert_eq!(line["ok"], false, "{refused}");
        assert!(
            line["text"].as_str().unwrap().contains(says),
            "{says}: {line}"
        );
        let line = seen.only("case", 2 * at + 1);
        assert_eq!(line["ok"], true, "{mended}: {line}");
    }
    // Fewer records: librdkafka and kafkajs never split a batch.
    let many = kafka.topic("followed", 1, &[("max.message.bytes", "10000")]);
    let confluent = |more: &[(&str, &str)]| {
        let mut program = Program::python("produce.py")
            .arg("client", "confluent")
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &many.name)
            .arg("values", ["1000"; 15].join(","))
            .arg("together", true);
        for (key, value) in more {
            program = program.arg(key, value);
        }
        program.run().where_is("ok", true).len()
    };
    assert_eq!(confluent(&[]), 0);
    let text = told(sizegate, &many.name);
    assert!(
        text.contains("Lower the producer's batch.size, compress it, or raise"),
        "{text}"
    );
    assert_eq!(confluent(&[("c.batch.size", "5000")]), 15);
    let kafkajs = |sends: &str| {
        let seen = Program::node("kafkajs.js")
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &many.name)
            .arg("sends", sends)
            .run();
        seen.where_is("ok", false).len()
    };
    assert_eq!(kafkajs("0:6000,0:6000"), 1);
    let text = told(sizegate, &many.name);
    assert!(
        text.contains("Split the messages over more send() calls") && !text.contains("batch.size"),
        "{text}"
    );
    assert_eq!(kafkajs("0:6000;0:6000"), 0);
    // Raise the topic's limit, as the text says by which name.
    kafka.alter_topic_config(&many.name, &[("max.message.bytes", Some("20000"))]);
    assert_eq!(kafkajs("0:6000,0:6000"), 0);
}

/// `None`: the topic is not known yet.
fn explained(sizegate: &Sizegate, question: &Value) -> Option<Value> {
    let (status, body) = http::request(
        sizegate.admin(),
        "POST",
        "/api/v1/explain",
        &question.to_string(),
    )
    .unwrap();
    assert!([200, 404].contains(&status), "{body}");
    (status == 200).then(|| serde_json::from_str(&body).unwrap())
}

/// The settings that explain's commands say, taken at their word.
#[test]
fn who_follows_explain_is_not_refused_again() {
    let (kafka, sizegate) = pair();
    let command = |step: usize, question: &Value| {
        eventually(PATIENCE, "explain knows the topic", || {
            let response = explained(sizegate, question)?;
            response["remedy"][step]["command"]
                .as_str()
                .map(str::to_owned)
        })
    };
    let topic = kafka.topic("told", 1, &[("max.message.bytes", "9000000")]);
    let name = &topic.name;
    // The client's own limits: one byte less than it says is refused.
    let own = command(0, &json!({"topic": name, "value_bytes": 2_000_000}));
    let (setting, needed) = own.split_once('=').unwrap();
    assert_eq!(setting, "max.request.size");
    let needed: usize = needed.parse().unwrap();
    let memory = command(
        0,
        &json!({"topic": name, "value_bytes": 3_000_000, "max_request_size": 8_000_000, "buffer_memory": 2_000_000}),
    );
    assert!(memory.starts_with("buffer.memory="), "{memory}");
    let both = command(
        0,
        &json!({"topic": name, "value_bytes": 5_000_000, "buffer_memory": 4_000_000}),
    );
    assert_eq!(both.lines().count(), 2, "{both}");
    let seen = java(
        sizegate,
        &[
            format!("{name}|2000000|||1|random|max.request.size={}", needed - 1),
            format!("{name}|2000000|||1|random|{own}"),
            format!("{name}|3000000|||1|random|max.request.size=8000000,buffer.memory=2000000"),
            format!("{name}|3000000|||1|random|max.request.size=8000000,{memory}"),
            format!("{name}|5000000|||1|random|{}", both.replace('\n', ",")),
        ],
    );
    let fates: Vec<bool> = (0..4)
        .map(|at| seen.only("case", at)["ok"] == true)
        .collect();
    assert_eq!(fates, [false, true, false, true], "{seen:?}");
    let own = command(
        0,
        &json!({"topic": name, "value_bytes": 1_500_000, "client": "librdkafka"}),
    );
    let (setting, needed) = own.split_once('=').unwrap();
    assert_eq!(setting, "message.max.bytes");
    let needed: usize = needed.parse().unwrap();
    for (most, is_sent) in [(needed - 1, false), (needed, true)] {
        let seen = Program::python("produce.py")
            .arg("client", "confluent")
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", name)
            .arg("values", "1500000")
            .arg("max", most)
            .run();
        assert_eq!(seen.only("record", 0)["ok"], is_sent, "{seen:?}");
    }
    // The topic's: one byte less than the command says is refused. All in one process at a time.
    let keys = [
        (
            "max.message.bytes",
            vec![("max.message.bytes", "2000")],
            3_000,
            "random",
        ),
        (
            "segment.bytes",
            vec![
                ("max.message.bytes", "9000000"),
                ("segment.bytes", "1048576"),
            ],
            2_000_000,
            "random",
        ),
        (
            "max.decompressed.message.bytes",
            vec![("max.decompressed.message.bytes", "2000")],
            3_000,
            "a",
        ),
    ];
    let topics = keys
        .each_ref()
        .map(|(_, configs, ..)| kafka.topic("told", 1, configs));
    let codec = |content: &str| if content == "a" { "gzip" } else { "none" };
    let cases: Vec<String> = keys
        .iter()
        .zip(&topics)
        .map(|((_, _, value, content), topic)| {
            format!(
                "{}|{value}|||1|{content}|max.request.size=8000000,compression.type={}",
                topic.name,
                codec(content)
            )
        })
        .collect();
    let fates = || {
        let seen = java(sizegate, &cases);
        [0, 1, 2].map(|at| seen.only("case", at)["ok"] == true)
    };
    assert_eq!(fates(), [false; 3]);
    let needed: Vec<usize> = keys
        .iter()
        .zip(&topics)
        .map(|((key, _, value, content), topic)| {
            let mut question =
                json!({"topic": topic.name, "value_bytes": value, "max_request_size": 8_000_000});
            if *content == "a" {
                question["compressed_bytes"] = json!(150);
            }
            let line = command(1, &question);
            let (_, rest) = line
                .split_once(&format!("{key}="))
                .unwrap_or_else(|| panic!("{key}: {line}"));
            rest.split(|c: char| !c.is_ascii_digit())
                .next()
                .unwrap()
                .parse()
                .unwrap()
        })
        .collect();
    for (less, expected) in [(1, [false; 3]), (0, [true; 3])] {
        for (((key, ..), topic), needed) in keys.iter().zip(&topics).zip(&needed) {
            kafka.alter_topic_config(&topic.name, &[(key, Some(&(needed - less).to_string()))]);
        }
        assert_eq!(fates(), expected, "{needed:?} less {less}");
    }
    // A batch of many: the producer.
    let topic = kafka.topic("told", 1, &[("max.message.bytes", "10000")]);
    let question =
        json!({"topic": topic.name, "value_bytes": 1_000, "records": 15, "client": "librdkafka"});
    let response = eventually(PATIENCE, "explain knows the topic", || {
        let response = explained(sizegate, &question)?;
        (response["passes"] == false).then_some(response)
    });
    let (verdict, step) = (
        response["verdict"].as_str().unwrap(),
        &response["remedy"][1],
    );
    assert_eq!(step["state"], "look", "{step}");
    for text in [verdict, step["text"].as_str().unwrap()] {
        assert!(text.contains("lower the producer's batch.size"), "{text}");
    }
}

/// Who may not read the broker's settings is told how large the request was that the broker closed on.
#[test]
fn a_broker_that_closes_on_a_large_produce_is_a_warning_with_the_size() {
    let options = KafkaOptions {
        sasl: true,
        ..KafkaOptions::default()
    }
    .property(
        "authorizer.class.name",
        "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    )
    .property("super.users", "User:ANONYMOUS")
    .property("socket.request.max.bytes", "500000");
    let kafka = Kafka::start("4.4.0", options);
    let topic = kafka.create_topic("large", 1, 1, &[]);
    let (username, password) = SCRAM_256_USER;
    let sizegate = Sizegate::before(&kafka.sasl_bootstrap())
        .cluster(&format!(
            "admin: {{sasl: {{mechanism: SCRAM-SHA-256, username: {username}, password: {password}}}}}"
        ))
        .start();
    let close_on = |bytes: usize| {
        let mut connection = Connection::open(sizegate.bootstrap());
        connection.sasl_plain(PLAIN_USER.0, PLAIN_USER.1);
        let records = batch([Record::of_random(bytes, 1)]).build();
        connection.send_produce(9, -1, &[Part::new(&topic, records)]);
        assert!(connection.is_closed_within(PATIENCE));
    };
    for _ in 0..20 {
        close_on(600_000);
    }
    let line = sizegate.log_line(&["socket.request.max.bytes", "request_bytes="]);
    let bytes: u64 = field(&line, "request_bytes").unwrap();
    assert!((600_000..601_000).contains(&bytes), "{line}");
    let lines = sizegate.log();
    let lines = lines
        .lines()
        .filter(|line| line.contains("request_bytes="))
        .count();
    assert_eq!(lines, 1, "one a minute: {}", sizegate.log());
}
