//! Families against real brokers: what a retry or dead-letter topic cannot take is refused at its main topic, as the
//! limits are now and as topics come and go.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use crate::support::{
    Connection, KAFKA_VERSIONS, Kafka, KafkaOptions, Part, Record, Response, Sizegate, Topic,
    batch, batch_of_bytes, command, eventually, unique,
};
use bytes::Bytes;
use serde_json::{Value, json};
use sizegate::vocabulary::Codec;

const PATIENCE: Duration = Duration::from_secs(60);
/// How soon a change must be in force: after so many batches, which take a second. Not by the clock: a busy machine has
/// another second than an idle one.
const SOON: usize = 100;
const HEADROOM: usize = 65_536;

/// A main topic and its dead-letter topic, with the limit of the latter.
struct Pair {
    main: Topic,
    dlt: Topic,
}

impl Pair {
    fn new(kafka: &Kafka, dlt_bytes: &str) -> Self {
        let main = kafka.topic("family", 1, &[]);
        let dlt = format!("{}-dlt", main.name);
        let dlt = kafka.create_topic(&dlt, 1, 1, &[("max.message.bytes", dlt_bytes)]);
        Self { main, dlt }
    }
}

fn config(main: &str, more: &str) -> String {
    format!(
        "families:\n  members:\n    - {{main: {main}, dead_letter: [\"{{main}}-dlt\"], retry: [\"{{main}}-retry-*\"]{more}}}\n"
    )
}

/// No two batches alike: the same one again and again would be taken for a loop.
fn time() -> i64 {
    static TIME: AtomicI64 = AtomicI64::new(1_700_000_000_000);
    TIME.fetch_add(1, Ordering::Relaxed)
}

fn fresh(bytes: usize) -> Bytes {
    batch_of_bytes(bytes).base_timestamp(time()).build()
}

fn send(connection: &mut Connection, version: i16, topic: &Topic, batch: Bytes) -> Response {
    let parts = [Part::new(topic, batch)];
    connection.produce(version, -1, &parts).remove(0)
}

fn produce(connection: &mut Connection, version: i16, topic: &Topic, bytes: usize) -> Response {
    send(connection, version, topic, fresh(bytes))
}

/// The text of a refusal by the proxy itself.
fn text(response: &Response) -> &str {
    let text = response.text.as_deref().unwrap_or_default();
    assert!(
        response.code == 10 && text.starts_with("sizegate refused "),
        "{response:?}"
    );
    text
}

fn family(sizegate: &Sizegate, main: &str) -> Option<Value> {
    let families = sizegate.json("/api/v1/families");
    let mut families = families["families"]
        .as_array()
        .cloned()
        .unwrap()
        .into_iter();
    families.find(|family| family["main"] == main)
}

/// Waits until a member is known with its limits.
fn known(sizegate: &Sizegate, main: &str, member: &str) -> Value {
    eventually(PATIENCE, "the family is known", || {
        let family = family(sizegate, main)?;
        let members = family["members"].as_array()?;
        let found = members.iter().find(|found| found["topic"] == member)?;
        (!found["aligned"].is_null()).then(|| found.clone())
    })
}

/// Waits until the broker itself applies a limit: AlterConfigs is answered before.
fn applies(kafka: &Kafka, topic: &Topic, limit: usize) {
    let mut connection = Connection::open(kafka.bootstrap());
    eventually(PATIENCE, &format!("the broker applies {limit}"), || {
        let [fits, not] =
            [limit, limit + 1].map(|bytes| produce(&mut connection, 8, topic, bytes).code);
        ((fits, not) == (0, 10)).then_some(())
    });
}

#[test]
fn what_a_dead_letter_topic_cannot_take_is_refused_at_its_main_topic_with_both_numbers() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let Pair { main, dlt } = Pair::new(kafka, "200000");
        let sizegate = Sizegate::start(kafka, &config(&main.name, ""));
        let member = known(&sizegate, &main.name, &dlt.name);
        assert_eq!(
            (&member["kind"], &member["membership"], &member["aligned"]),
            (&json!("dead_letter"), &json!("configured"), &json!(false))
        );
        let mut gates = member["gates"].clone();
        let fixes: Vec<_> = gates
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .map(|gap| gap["fix"].take())
            .collect();
        let raise = format!("raise {}'s max.message.bytes to 1114124", dlt.name);
        assert_eq!(fixes[0]["text"], raise.as_str());
        assert!(
            fixes[0]["command"]
                .as_str()
                .unwrap()
                .starts_with("sizegate align --config ")
        );
        assert!(
            fixes[1]["text"]
                .as_str()
                .unwrap()
                .starts_with("raise max.request.size to 1114139")
        );
        assert_eq!(
            gates,
            json!([{"gate": "batch", "holder": "member", "main_bytes": 1_048_588, "member_bytes": 200_000,
                    "headroom_bytes": HEADROOM, "gap_bytes": 914_124, "fix": null},
                   {"gate": "estimate", "holder": "writer", "main_bytes": 1_048_603, "member_bytes": 1_048_576,
                    "headroom_bytes": HEADROOM, "gap_bytes": 65_563, "fix": null}])
        );
        let limit = 200_000 - HEADROOM;
        let mut connection = Connection::open(sizegate.bootstrap());
        for version in [8, 13] {
            for (bytes, code) in [(limit - 1, 0), (limit, 0), (limit + 1, 10)] {
                let response = produce(&mut connection, version, &main, bytes);
                assert_eq!(response.code, code, "{bytes}: {response:?}");
                if code == 10 {
                    let text = text(&response);
                    let told = format!(
                        "more than the batch limit of 134,464 kept for the family member \"{}\", which takes 200,000 \
                         less 65,536 of headroom (by 1).",
                        dlt.name
                    );
                    assert!(text.contains(&told), "{text}");
                    let tail = format!(
                        "limit_bytes=134464 source=family member={} headroom_bytes=65536 ",
                        dlt.name
                    );
                    assert!(
                        text.contains(&tail) && text.contains("sizegate align"),
                        "{text}"
                    );
                }
            }
            // The member itself takes all that its broker takes.
            for (bytes, code) in [(200_000, 0), (200_001, 10)] {
                assert_eq!(produce(&mut connection, version, &dlt, bytes).code, code);
            }
        }
        let labels = [
            ("topic", &*main.name),
            ("gate", "batch"),
            ("source", "family"),
        ];
        let pair = [("main", &*main.name), ("member", &*dlt.name)];
        let metrics = sizegate.metrics();
        assert_eq!(metrics.sum("limit_bytes", &labels), limit as f64);
        assert_eq!(metrics.sum("violations_total", &labels), 2.0);
        assert_eq!(metrics.sum("family_gap_bytes", &pair), 914_124.0);
        assert!(metrics.has("family_aligned"));
        assert_eq!(metrics.sum("family_aligned", &pair), 0.0);
        let topics = sizegate.json(&format!("/api/v1/topics?topic={}", main.name));
        assert_eq!(
            topics["topics"][0]["limits"],
            json!([{"gate": "batch", "limit_bytes": limit, "source": "family", "name": dlt.name},
                   {"gate": "estimate", "limit_bytes": 983_040, "source": "family", "name": dlt.name}])
        );
        let line = sizegate.log_line(&["may not fit this member", &main.name]);
        assert!(line.contains("it lacks 914,124 bytes; raise"), "{line}");
        let refusals = sizegate.json(&format!("/api/v1/refusals?topic={}", main.name));
        let refusal = &refusals["refusals"][0];
        assert_eq!(
            (&refusal["source"], &refusal["member"], &refusal["rule"]),
            (&json!("family"), &json!(dlt.name), &Value::Null)
        );
    }
}

/// Before, the first records of a start could pass what their family forbids.
#[test]
fn ready_means_that_families_are_in_force() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let Pair { main, dlt } = Pair::new(kafka, "200000");
    let sizegate = Sizegate::start(kafka, &config(&main.name, ""));
    let found = family(&sizegate, &main.name).expect("the family");
    assert_eq!(found["members"][0]["topic"], dlt.name.as_str(), "{found}");
    let mut connection = Connection::open(sizegate.node(1));
    let response = produce(&mut connection, 8, &main, 200_000 - HEADROOM + 1);
    assert!(text(&response).contains("source=family"), "{response:?}");
}

#[test]
fn what_only_warns_leaves_limits_alone_and_says_so() {
    // Of its own: of families found by their names twenty are told one by one, and others' tests make more.
    let kafka = &Kafka::start(KAFKA_VERSIONS[1], KafkaOptions::default());
    let Pair { main, dlt } = Pair::new(kafka, "200000");
    for (yaml, membership) in [
        (config(&main.name, ", alignment: warn"), "configured"),
        (String::new(), "detected"),
    ] {
        let sizegate = Sizegate::start(kafka, &yaml);
        let member = known(&sizegate, &main.name, &dlt.name);
        assert_eq!(
            (
                &member["membership"],
                &member["aligned"],
                &member["gap_bytes"]
            ),
            (&json!(membership), &json!(false), &json!(914_124))
        );
        assert_eq!(family(&sizegate, &main.name).unwrap()["alignment"], "warn");
        let mut connection = Connection::open(sizegate.bootstrap());
        assert_eq!(produce(&mut connection, 13, &main, 1_048_588).code, 0);
        let line = sizegate.log_line(&["may not fit this member", &main.name]);
        assert!(line.contains(membership), "{line}");
    }
    let sizegate = Sizegate::start(kafka, "families: {detect: false}");
    eventually(PATIENCE, "topics are known", || {
        let topics = sizegate.json(&format!("/api/v1/topics?topic={}", dlt.name));
        topics["topics"][0].is_object().then_some(())
    });
    assert_eq!(sizegate.json("/api/v1/families"), json!({"families": []}));
}

#[test]
fn a_member_raised_at_the_broker_is_no_reason_to_refuse_a_second_later() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let Pair { main, dlt } = Pair::new(kafka, "100000");
        // What the proxy learns, it learns when it asks.
        let sizegate = Sizegate::before(&kafka.bootstrap())
            .cluster("admin: {refresh_interval: 10m}")
            .yaml(&config(&main.name, ", writer_max_request_size: none"))
            .start();
        known(&sizegate, &main.name, &dlt.name);
        let mut connection = Connection::open(sizegate.bootstrap());
        let bytes = 150_000 - HEADROOM;
        assert!(text(&produce(&mut connection, 13, &main, bytes)).contains("limit_bytes=34464 "));
        kafka.alter_topic_config(&dlt.name, &[("max.message.bytes", Some("150000"))]);
        applies(kafka, &dlt, 150_000);
        let mut batches = 0;
        eventually(PATIENCE, "it passes", || {
            batches += 1;
            let response = produce(&mut connection, 13, &main, bytes);
            (response.code == 0).then_some(())
        });
        assert!(batches <= SOON, "it took {batches} batches");
        let refused = produce(&mut connection, 13, &main, bytes + 1);
        assert!(
            text(&refused).contains("which takes 150,000 less"),
            "{refused:?}"
        );
        // Raised beyond what the main topic takes: its own limit counts again.
        kafka.alter_topic_config(&dlt.name, &[("max.message.bytes", Some("2000000"))]);
        applies(kafka, &dlt, 2_000_000);
        let refused = produce(&mut connection, 13, &main, 1_048_589);
        assert!(
            text(&refused).contains("limit_bytes=1048588 source=broker"),
            "{refused:?}"
        );
        assert_eq!(produce(&mut connection, 13, &main, 1_048_588).code, 0);
    }
}

/// The producer that writes dead letters has a `max.request.size` of its own, which no topic's limit changes.
#[test]
fn what_the_writer_of_dead_letters_would_refuse_is_refused_at_the_main_topic_until_it_is_known_to_take_it()
 {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let Pair { main, dlt } = Pair::new(kafka, "2000000");
    // Null key, no headers: an estimate of 87 bytes more than the value.
    let most = 1_048_576 - HEADROOM - 87;
    let record = |value_bytes| batch([Record::of_random(value_bytes, 3)]).base_timestamp(time());
    let zeros = |value_bytes| {
        let records = batch([Record::of_a(value_bytes)]).base_timestamp(time());
        records.codec(Codec::Zstd).build()
    };
    let sizegate = Sizegate::start(kafka, &config(&main.name, ""));
    let member = known(&sizegate, &main.name, &dlt.name);
    assert_eq!(
        (&member["aligned"], &member["gap_bytes"]),
        (&json!(false), &json!(65_563)),
        "the topics fit, the writer does not"
    );
    let line = sizegate.log_line(&["may not fit this member", &main.name, "its writer takes"]);
    assert!(
        line.contains("writer_max_request_size") && line.contains("to 1114139"),
        "{line}"
    );
    let mut connection = Connection::open(sizegate.bootstrap());
    for version in [8, 13] {
        for (value_bytes, code) in [(most - 1, 0), (most, 0), (most + 1, 10)] {
            let response = send(&mut connection, version, &main, record(value_bytes).build());
            assert_eq!(response.code, code, "{value_bytes}: {response:?}");
            // Compressed to next to nothing, it is the same record for whoever writes its dead letter.
            let response = send(&mut connection, version, &main, zeros(value_bytes));
            assert_eq!(response.code, code, "{value_bytes}: {response:?}");
            if code == 10 {
                let told = format!(
                    "would be 983,041 bytes by a Java producer's estimate, more than the estimate limit of 983,040 kept for \
                     the family member \"{}\", whose writer takes 1,048,576 (max.request.size) less 65,536 of headroom (by 1).",
                    dlt.name
                );
                let text = text(&response);
                assert!(
                    text.contains(&told)
                        && text.contains("raise max.request.size in the producer that writes")
                        && text.contains(
                            "gate=estimate size_bytes=983041 limit_bytes=983040 source=family"
                        ),
                    "{text}"
                );
            }
        }
        // The member's own topic is not bounded by it: what arrives there, its writer took.
        let response = send(&mut connection, version, &dlt, record(1_500_000).build());
        assert_eq!(response.code, 0, "{response:?}");
    }
    drop(sizegate);
    for (more, value_bytes) in [
        (", writer_max_request_size: none", 1_048_516),
        (", writer_max_request_size: 1114139", 1_048_516),
    ] {
        let sizegate = Sizegate::start(kafka, &config(&main.name, more));
        let member = known(&sizegate, &main.name, &dlt.name);
        assert_eq!(member["aligned"], true, "{member}");
        let pair = [("main", &*main.name), ("member", &*dlt.name)];
        assert_eq!(sizegate.metrics().sum("family_aligned", &pair), 1.0);
        let mut connection = Connection::open(sizegate.bootstrap());
        let response = send(&mut connection, 13, &main, record(value_bytes).build());
        assert_eq!(response.code, 0, "{more}: {response:?}");
    }
}

/// F12: which rule keeps a member small is said where it is felt.
#[test]
fn a_members_own_rule_is_named_at_its_main_topic() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let Pair { main, dlt } = Pair::new(kafka, "2000000");
    let rules = format!(
        "rules: [{{name: dead, topics: [{}], limits: {{record_bytes: 100KiB, batch_bytes: 300KiB}}}}]\n",
        dlt.name
    );
    let sizegate = Sizegate::start(kafka, &format!("{rules}{}", config(&main.name, "")));
    known(&sizegate, &main.name, &dlt.name);
    let mut connection = Connection::open(sizegate.bootstrap());
    let refused = produce(&mut connection, 13, &main, 40_000);
    let told = format!(
        "more than the record limit of 36,864 kept for the family member \"{}\", which takes 102,400 (rule \"dead\") less \
         65,536 of headroom",
        dlt.name
    );
    let said = text(&refused);
    assert!(
        said.contains(&told)
            && said.contains("ask for a larger record_bytes in rule \"dead\"")
            && !said.contains("align"),
        "{said}"
    );
    let many = batch((0..100).map(|n| Record::of_random(3_000, n))).base_timestamp(time());
    let refused = send(&mut connection, 13, &main, many.build());
    let said = text(&refused);
    assert!(
        said.contains("larger batch_bytes in rule \"dead\"") && !said.contains("align"),
        "{said}"
    );
    drop(sizegate);

    // What `explain` says it takes is enough, there and here.
    let rule = |record_bytes: &str| {
        format!(
            "rules: [{{name: dead, topics: [{}], limits: {{record_bytes: {record_bytes}}}}}]\n{}",
            dlt.name,
            config(&main.name, "")
        )
    };
    let servers = format!(
        "cluster: {{bootstrap_servers: ['{}']}}\n",
        kafka.bootstrap()
    );
    let explained = command::sizegate(
        &[
            "explain",
            &main.name,
            "--value-bytes=50000",
            "--output=json",
        ],
        &format!("{servers}{}", rule("100KiB")),
    );
    let text = explained.json()["remedy"][1]["text"].clone();
    let (_, needed) = text
        .as_str()
        .unwrap()
        .split_once("it needs record_bytes: ")
        .unwrap();
    let needed = needed.split(' ').next().unwrap();
    assert_eq!(needed.parse(), Ok(50_011 + HEADROOM), "{text}");
    let sizegate = Sizegate::start(kafka, &rule(needed));
    known(&sizegate, &main.name, &dlt.name);
    let mut connection = Connection::open(sizegate.bootstrap());
    let record = || Record::of_random(50_000, 5);
    let sent = |record: Record| batch([record]).base_timestamp(time()).build();
    let response = send(&mut connection, 13, &main, sent(record()));
    assert_eq!(response.code, 0, "{response:?}");
    // Its dead letter, with all of its headroom: the header's name and lengths count too.
    let header = vec![b'x'; HEADROOM - 5];
    let response = send(
        &mut connection,
        13,
        &dlt,
        sent(record().header("h", header)),
    );
    assert_eq!(response.code, 0, "{response:?}");
}

#[test]
fn members_that_come_and_go_are_followed() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let main = kafka.topic("family", 1, &[]);
    let sizegate = Sizegate::before(&kafka.bootstrap())
        .cluster("admin: {refresh_interval: 2s}")
        .yaml(&config(&main.name, ""))
        .start();
    let mut connection = Connection::open(sizegate.bootstrap());
    assert_eq!(produce(&mut connection, 13, &main, 100_000).code, 0);
    let name = format!("{}-retry-0", main.name);
    for limit in [70_000, 90_000] {
        kafka.create_topic(&name, 1, 1, &[("max.message.bytes", &limit.to_string())]);
        eventually(PATIENCE, "it is followed", || {
            let response = produce(&mut connection, 13, &main, 100_000);
            (response.code == 10).then(|| {
                let left = format!(
                    "limit_bytes={} source=family member={name} ",
                    limit - HEADROOM
                );
                assert!(text(&response).contains(&left), "{response:?}");
            })
        });
        kafka.delete_topic(&name);
        eventually(PATIENCE, "it is forgotten", || {
            (produce(&mut connection, 13, &main, 100_000).code == 0).then_some(())
        });
    }
}

#[test]
fn members_without_a_rule_take_what_their_main_topic_takes_and_headroom() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let Pair { main, dlt } = Pair::new(kafka, "2000000");
    let sizegate = Sizegate::start(
        kafka,
        &format!(
            "rules:\n  - {{name: notes, topics: [{}], limits: {{record_bytes: 20KiB, key_bytes: 8}}, remedy: Ask.}}\n{}",
            main.name,
            config(&main.name, "")
        ),
    );
    known(&sizegate, &main.name, &dlt.name);
    let mut connection = Connection::open(sizegate.bootstrap());
    let mut send = |topic, key: &str, value_bytes, headers_bytes| {
        let record = Record::of_random(value_bytes, 7)
            .key(key)
            .header("trace", vec![b'x'; headers_bytes]);
        let batch = batch([record]).base_timestamp(time()).build();
        send(&mut connection, 13, topic, batch)
    };
    assert_eq!(send(&main, "k", 20_000, 100).code, 0);
    let refused = send(&main, "k", 20_000, 1_000);
    assert!(text(&refused).contains("record limit of 20,480 set by rule \"notes\" (by"));
    // The same record with a stack trace is welcome at the dead-letter topic.
    assert_eq!(send(&dlt, "k", 20_000, 60_000).code, 0);
    let refused = send(&dlt, "k", 20_000, 70_000);
    let told = "record limit of 86,016 set by rule \"notes\" for its main topic, 65,536 of headroom included (by";
    assert!(text(&refused).contains(told), "{refused:?}");
    assert!(
        text(&refused).contains(" Ask. [gate=record "),
        "{refused:?}"
    );
    let refused = send(&dlt, "123456789", 10, 10);
    assert!(
        text(&refused).contains("key limit of 8 set by rule \"notes\" (by 1)"),
        "{refused:?}"
    );
}

#[test]
fn a_dead_letter_without_its_main_topics_compression_is_told_apart() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let Pair { main, dlt } = Pair::new(kafka, "1048588");
    kafka.alter_topic_config(&dlt.name, &[("compression.type", Some("lz4"))]);
    let sizegate = Sizegate::start(kafka, &config(&main.name, ", alignment: warn"));
    known(&sizegate, &main.name, &dlt.name);
    let mut connection = Connection::open(sizegate.bootstrap());
    let note = || batch([Record::of_a(1_880_000)]).base_timestamp(time());
    let sent = send(
        &mut connection,
        13,
        &main,
        note().codec(Codec::Gzip).build(),
    );
    assert_eq!(sent.code, 0, "{sent:?}");
    assert_eq!(send(&mut connection, 13, &dlt, fresh(1_000)).code, 0);
    let refused = send(&mut connection, 13, &dlt, note().build());
    let told = format!(
        "It is not compressed (codec=none). Batches on its main topic \"{}\" come with gzip: write here with that \
         compression.type too, or raise this topic's max.message.bytes.",
        main.name
    );
    assert!(text(&refused).contains(&told), "{refused:?}");
    let member = known(&sizegate, &main.name, &dlt.name);
    assert_eq!(
        member["warnings"],
        json!([
            "its compression.type is lz4, its main topic's is producer",
            "1 of its batches came uncompressed, and its main topic's come with gzip"
        ])
    );
    sizegate.log_line(&[
        "may not fit this member",
        &main.name,
        "its compression.type is lz4",
    ]);
}

#[test]
fn five_stack_traces_are_one_too_many() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let Pair { main, dlt } = Pair::new(kafka, "1048588");
    let sizegate = Sizegate::start(kafka, &config(&main.name, ", alignment: warn"));
    let mut connection = Connection::open(sizegate.bootstrap());
    for traces in 0..=5 {
        let mut record = Record::of_random(1_000_000, 13).key("k-0123456789");
        for _ in 0..traces {
            record = record.header(&"h".repeat(31), vec![b'x'; 9_800]);
        }
        let response = send(
            &mut connection,
            13,
            &dlt,
            batch([record]).base_timestamp(time()).build(),
        );
        if traces < 5 {
            assert_eq!(response.code, 0, "{traces}: {response:?}");
        } else {
            let text = text(&response);
            assert!(
                text.contains(
                    "1,049,260 bytes on the wire, more than the batch limit of 1,048,588"
                ) && text.contains(" Its headers are 49,155 bytes of that."),
                "{text}"
            );
        }
    }
}

#[test]
fn a_value_that_grows_at_each_hop_is_refused_where_it_no_longer_fits() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let main = kafka.topic("family", 1, &[]);
    let hops = [0, 1].map(|n| kafka.create_topic(&format!("{}-retry-{n}", main.name), 1, 1, &[]));
    let sizegate = Sizegate::start(kafka, &config(&main.name, ""));
    for hop in &hops {
        known(&sizegate, &main.name, &hop.name);
    }
    let mut connection = Connection::open(sizegate.bootstrap());
    let [first, second] = &hops;
    // Base64 of base64: four bytes for three.
    for (topic, value_bytes, code) in [
        (&main, 700_000, 0),
        (first, 933_336, 0),
        (second, 1_244_448, 10),
    ] {
        let record = Record::of_random(value_bytes, 17);
        let response = send(
            &mut connection,
            13,
            topic,
            batch([record]).base_timestamp(time()).build(),
        );
        assert_eq!(response.code, code, "{response:?}");
    }
}

#[test]
fn a_main_topic_raised_alone_leaves_its_dead_letters_behind_and_that_is_said() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let main = kafka.topic("family", 1, &[("max.message.bytes", "10000000")]);
    let dlt = kafka.create_topic(&format!("{}-dlt", main.name), 1, 1, &[]);
    let sizegate = Sizegate::start(kafka, &config(&main.name, ""));
    let member = known(&sizegate, &main.name, &dlt.name);
    assert_eq!(
        member["gates"][0]["gap_bytes"],
        10_000_000 + HEADROOM - 1_048_588
    );
    // A record that fills such a batch has an estimate of 14 bytes more: so much must its writer take.
    assert_eq!(
        member["gap_bytes"],
        10_000_014 + HEADROOM - 1_048_576,
        "the widest"
    );
    let mut connection = Connection::open(sizegate.bootstrap());
    let refused = produce(&mut connection, 13, &main, 2_000_000);
    assert!(
        text(&refused).contains("which takes 1,048,588 less 65,536 of headroom"),
        "{refused:?}"
    );
}

#[test]
fn a_member_that_takes_less_than_the_headroom_leaves_nothing() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let Pair { main, dlt } = Pair::new(kafka, "60000");
    let sizegate = Sizegate::start(kafka, &config(&main.name, ""));
    known(&sizegate, &main.name, &dlt.name);
    let mut connection = Connection::open(sizegate.bootstrap());
    let refused = produce(&mut connection, 13, &main, 100);
    let told = "which takes no more than the headroom of 65,536 (by 100).";
    assert!(text(&refused).contains(told), "{refused:?}");
}

#[test]
fn where_nothing_is_refused_what_would_be_is_said_of_families_too() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let Pair { main, dlt } = Pair::new(kafka, "200000");
    let sizegate = Sizegate::start(kafka, &format!("mode: observe\n{}", config(&main.name, "")));
    known(&sizegate, &main.name, &dlt.name);
    let mut connection = Connection::open(sizegate.bootstrap());
    assert_eq!(produce(&mut connection, 13, &main, 150_000).code, 0);
    let labels = [
        ("topic", &*main.name),
        ("source", "family"),
        ("action", "observe"),
    ];
    assert_eq!(sizegate.metrics().sum("violations_total", &labels), 1.0);
    sizegate.log_line(&[
        "sizegate would refuse",
        &main.name,
        "kept for the family member",
    ]);
}

#[test]
fn a_reload_takes_families_too() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let Pair { main, dlt } = Pair::new(kafka, "200000");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sizegate.yaml");
    let minimal = "cluster: {bootstrap_servers: ['b:1']}\n";
    std::fs::write(&file, minimal).unwrap();
    let mut sizegate = Sizegate::before(&kafka.bootstrap())
        .file(file.to_str().unwrap())
        .start();
    known(&sizegate, &main.name, &dlt.name);
    let mut connection = Connection::open(sizegate.bootstrap());
    assert_eq!(produce(&mut connection, 13, &main, 150_000).code, 0);
    for (yaml, code) in [
        (config(&main.name, ""), 10),
        (config(&main.name, ", alignment: warn"), 0),
    ] {
        std::fs::write(&file, format!("{minimal}{yaml}")).unwrap();
        sizegate.process().signal("HUP");
        eventually(PATIENCE, "it is in force", || {
            let response = produce(&mut connection, 13, &main, 150_000);
            (response.code == code).then_some(())
        });
    }
    std::fs::write(&file, minimal).unwrap();
    sizegate.process().signal("HUP");
    eventually(PATIENCE, "it is a detected one again", || {
        let family = family(&sizegate, &main.name)?;
        (family["members"][0]["membership"] == "detected").then_some(())
    });
}

#[test]
fn a_member_of_a_topic_that_is_not_there_is_named_and_limits_nothing() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let main = kafka.topic("family", 1, &[]);
    let lost = unique("lost");
    let sizegate = Sizegate::start(
        kafka,
        &format!(
            "families: {{members: [{{main: {}, dead_letter: [{lost}]}}]}}",
            main.name
        ),
    );
    let family = eventually(PATIENCE, "the family is known", || {
        family(&sizegate, &main.name)
    });
    assert_eq!(
        (&family["members"], &family["absent"]),
        (&json!([]), &json!([lost]))
    );
    let mut connection = Connection::open(sizegate.bootstrap());
    assert_eq!(produce(&mut connection, 13, &main, 1_048_588).code, 0);
}

/// The log has a bound: of what is found by its name alone, much may stay untold, and what is configured does not.
#[test]
fn what_is_configured_is_told_however_many_families_are_found_by_their_names() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    // More than one look tells, and before it by name.
    for n in 0..25 {
        let main = unique(&format!("a{n}"));
        kafka.create_topic(&main, 1, 1, &[]);
        kafka.create_topic(&format!("{main}-dlt"), 1, 1, &[]);
    }
    let main = unique("zz");
    kafka.create_topic(&main, 1, 1, &[]);
    let member = format!("{main}-dlt");
    kafka.create_topic(&member, 1, 1, &[]);
    let sizegate = Sizegate::start(kafka, &config(&main, ", alignment: warn"));
    sizegate.log_line(&["more members fit or do not fit their families"]);
    sizegate.log_line(&["may not fit", &member, "configured"]);
}
