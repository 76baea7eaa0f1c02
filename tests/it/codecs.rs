//! Gate `codec` in front of real brokers: large batches come in one of a rule's codecs, and what would not gain by one
//! is not punished.

use std::time::Duration;

use crate::support::batch::{Batch, random};
use crate::support::{
    Connection, KAFKA_VERSIONS, Kafka, Part, Program, Record, Response, Sizegate, Topic, batch,
    batch_of_bytes,
};
use serde_json::json;
use sizegate::vocabulary::Codec;

const ABOVE: usize = 10_000;
const PATIENCE: Duration = Duration::from_secs(60);

fn rule(more: &str) -> String {
    format!(
        "rules: [{{name: packed, topics: ['codec-*'], codecs: {{allow: [zstd, lz4], above: {ABOVE}{more}}}}}]\n"
    )
}

/// A batch of exactly so many uncompressed bytes, which compress well.
fn of_bytes(bytes: usize, codec: Codec) -> Batch {
    batch_of_bytes(bytes).codec(codec)
}

fn produce(connection: &mut Connection, version: i16, topic: &Topic, batch: Batch) -> Response {
    let parts = [Part::new(topic, batch.build())];
    connection.produce(version, -1, &parts).remove(0)
}

#[test]
fn what_is_above_must_come_in_an_allowed_codec_to_the_byte() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(kafka, &rule(""));
        let topic = kafka.topic("codec", 1, &[]);
        let mut connection = Connection::open(sizegate.bootstrap());
        for version in [8, 12, 13] {
            for codec in Codec::ALL.iter().copied() {
                for (bytes, is_above) in [(ABOVE - 1, false), (ABOVE, false), (ABOVE + 1, true)] {
                    let response =
                        produce(&mut connection, version, &topic, of_bytes(bytes, codec));
                    let is_allowed = matches!(codec, Codec::Zstd | Codec::Lz4);
                    let expected = if is_above && !is_allowed { 44 } else { 0 };
                    assert_eq!(response.code, expected, "{codec} {bytes}: {response:?}");
                    if expected == 44 {
                        let text = response.text.as_deref().unwrap();
                        let size = if codec == Codec::None {
                            "size_bytes=10001"
                        } else {
                            "at_least_bytes=10001"
                        };
                        for part in [
                            format!(
                                "sizegate refused {}-0: the batch of 1 record is ",
                                topic.name
                            ),
                            format!(
                                "comes with codec={codec}; above 10,000 rule \"packed\" takes zstd, lz4 (codecs)."
                            ),
                            "Set compression.type=zstd".to_owned(),
                            format!(
                                "[gate=codec {size} limit_bytes=10000 source=rule rule=packed allow=zstd,lz4 topic="
                            ),
                        ] {
                            assert!(text.contains(&part), "{part}: {text}");
                        }
                        assert!(response.record_errors.is_empty(), "{response:?}");
                    }
                }
            }
        }
        let refused = sizegate.metrics().sum(
            "violations_total",
            &[
                ("topic", &topic.name),
                ("gate", "codec"),
                ("action", "reject"),
            ],
        );
        assert_eq!(refused, 9.0);
        let listed = sizegate.json(&format!("/api/v1/refusals?topic={}&gate=codec", topic.name));
        let listed = listed["refusals"].as_array().unwrap();
        assert_eq!(listed.len(), 9);
        assert_eq!(listed[0]["error_code"], json!(44));
        sizegate.log_line(&["gate=codec", "error_code=44", &topic.name]);
    }
}

#[test]
fn the_neighbours_of_a_refused_batch_are_stored_and_acks_0_closes() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let sizegate = Sizegate::start(kafka, &rule(""));
    let (governed, free) = (kafka.topic("codec", 3, &[]), kafka.topic("free", 1, &[]));
    let large = || of_bytes(3 * ABOVE, Codec::None).build();
    let parts = [
        Part::at(&governed, 0, of_bytes(3 * ABOVE, Codec::Zstd).build()),
        Part::at(&governed, 1, large()),
        Part::at(&governed, 2, of_bytes(100, Codec::None).build()),
        Part::at(&free, 0, large()),
    ];
    let mut connection = Connection::open(sizegate.bootstrap());
    let responses = connection.produce(13, -1, &parts);
    let refused: Vec<_> = responses
        .iter()
        .filter(|response| response.code != 0)
        .collect();
    assert_eq!((responses.len(), refused.len()), (4, 1), "{responses:?}");
    assert_eq!((refused[0].partition, refused[0].code), (1, 44));
    connection.send_produce(13, 0, &parts);
    assert!(connection.is_closed_within(PATIENCE));
    let stored = |topic: &Topic, partition| kafka.latest_offset(&topic.name, partition);
    crate::support::eventually(PATIENCE, "what may pass is stored", || {
        let all = [stored(&governed, 0), stored(&governed, 2), stored(&free, 0)];
        (all == [2, 2, 2]).then_some(())
    });
    assert_eq!(stored(&governed, 1), 0);
}

#[test]
fn what_would_not_gain_passes_unless_the_rule_says_otherwise() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[0]);
    let lenient = Sizegate::start(kafka, &rule(""));
    let strict = Sizegate::start(kafka, &rule(", unless_incompressible: false"));
    let topic = kafka.topic("codec", 1, &[]);
    // A picture, as its sender puts it: some text before it.
    let picture = || {
        let mut value = b"{\"kind\":\"jpeg\"}".to_vec();
        value.extend(random(500_000, 7));
        batch([Record::value(value)])
    };
    for codec in [Codec::None, Codec::Gzip, Codec::Snappy] {
        let passes = |sizegate: &Sizegate| {
            let mut connection = Connection::open(sizegate.bootstrap());
            produce(&mut connection, 13, &topic, picture().codec(codec))
        };
        assert_eq!(passes(&lenient).code, 0, "{codec}");
        let refused = passes(&strict);
        assert_eq!(refused.code, 44, "{codec}");
        let text = refused.text.unwrap();
        assert!(
            text.contains(" A sample of it does not shrink with lz4."),
            "{text}"
        );
    }
    // Half of it text: it would gain.
    let mut value = vec![b' '; 250_000];
    value.extend(random(250_000, 8));
    let mut connection = Connection::open(lenient.bootstrap());
    let response = produce(&mut connection, 13, &topic, batch([Record::value(value)]));
    assert_eq!(response.code, 44, "{response:?}");
}

#[test]
fn lies_of_compressed_batches_do_not_pass_the_gate() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let sizegate = Sizegate::start(kafka, &rule(""));
    let topic = kafka.topic("codec", 1, &[]);
    let mut connection = Connection::open(sizegate.bootstrap());
    // Nothing passes because it cannot be read.
    let broken = batch([Record::of_a(100)])
        .codec(Codec::Gzip)
        .payload(random(200, 3));
    let response = produce(&mut connection, 13, &topic, broken);
    let text = response.text.as_deref().unwrap();
    assert!(
        response.code == 87 && text.contains("gate=codec reason="),
        "{response:?}"
    );
    // What the broker refuses for its checksum it refuses.
    let wrong = of_bytes(2 * ABOVE, Codec::None).crc_wrong();
    assert_eq!(produce(&mut connection, 13, &topic, wrong).code, 2);
    // A partition that does not exist.
    let parts = [Part::at(
        &topic,
        7,
        of_bytes(2 * ABOVE, Codec::None).build(),
    )];
    assert_eq!(connection.produce(12, -1, &parts)[0].code, 3);
    // Many at once: more than a session decodes on its turn.
    let topic = kafka.topic("codec", 60, &[]);
    let parts: Vec<Part> = (0..60)
        .map(|at| Part::at(&topic, at, of_bytes(100_000, Codec::Gzip).build()))
        .collect();
    let responses = connection.produce(13, -1, &parts);
    assert!(
        responses.iter().all(|response| response.code == 44),
        "{responses:?}"
    );
}

#[test]
fn observing_counts_and_forwards_and_the_codes_of_a_rule_hold() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[0]);
    let topic = kafka.topic("codec", 1, &[]);
    let large = || of_bytes(2 * ABOVE, Codec::None);
    for mode in ["observe", "enforce"] {
        let yaml =
            format!("mode: {mode}\n{}", rule("")).replace("codecs:", "action: observe, codecs:");
        let sizegate = Sizegate::start(kafka, &yaml);
        let mut connection = Connection::open(sizegate.bootstrap());
        assert_eq!(
            produce(&mut connection, 13, &topic, large()).code,
            0,
            "{mode}"
        );
        sizegate.log_line(&["would refuse", "gate=codec", &topic.name]);
        let observed = sizegate.metrics().sum(
            "violations_total",
            &[("gate", "codec"), ("action", "observe")],
        );
        assert_eq!(observed, 1.0, "{mode}");
    }
    for (code, number) in [
        ("MESSAGE_TOO_LARGE", 10),
        ("INVALID_RECORD", 87),
        ("POLICY_VIOLATION", 44),
    ] {
        let yaml = rule("").replace(
            "codecs:",
            &format!("error_code: {code}, remedy: Ask us., codecs:"),
        );
        let sizegate = Sizegate::start(kafka, &yaml);
        let mut connection = Connection::open(sizegate.bootstrap());
        let response = produce(&mut connection, 13, &topic, large());
        assert_eq!(response.code, number);
        assert!(response.text.unwrap().contains(" Ask us. [gate=codec "));
    }
}

/// The remedy is spelt as the client's own library spells it, whether or not the library shows it.
#[test]
fn real_clients_are_told_the_setting_by_its_own_name() {
    let version = KAFKA_VERSIONS[1];
    let kafka = Kafka::shared(version);
    // These programs send noise.
    let sizegate = Sizegate::start(kafka, &rule(", unless_incompressible: false"));
    let clients = [
        (
            "Java",
            Program::java("SendSizes", version),
            true,
            "compression.type=zstd",
        ),
        (
            "librdkafka",
            Program::python("produce.py").arg("client", "confluent"),
            false,
            "compression.type=zstd",
        ),
        (
            "kafka-python",
            Program::python("produce.py").arg("client", "kafka-python"),
            true,
            "compression_type='zstd'",
        ),
        (
            "franz-go",
            Program::go("franz"),
            false,
            "kgo.ProducerBatchCompression(kgo.ZstdCompression())",
        ),
        (
            "sarama",
            Program::go("sarama"),
            false,
            "Producer.Compression = sarama.CompressionZSTD",
        ),
    ];
    for (client, program, shows_text, setting) in clients {
        let topic = kafka.topic("codec", 1, &[]);
        let output = program
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .arg("values", "100,20000")
            .run();
        let refused = output.where_is("ok", false);
        let api = sizegate.json(&format!("/api/v1/refusals?topic={}", topic.name));
        let listed = api["refusals"].as_array().unwrap();
        assert!(
            listed.iter().all(|refusal| refusal["text"]
                .as_str()
                .unwrap()
                .contains(&format!("Set {setting} "))),
            "{client}: {api}"
        );
        assert!(
            !listed.is_empty() && !refused.is_empty(),
            "{client}: {output:?}"
        );
        let shown = refused[0]["text"].as_str().unwrap_or_default();
        assert_eq!(
            shown.contains("sizegate refused"),
            shows_text,
            "{client}: {shown}"
        );
    }
    let topic = kafka.topic("codec", 1, &[]);
    let helped = Program::java("SendSizes", version)
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("p.compression.type", "zstd")
        .arg("values", "100,20000")
        .run();
    assert!(helped.where_is("ok", false).is_empty(), "{helped:?}");
}
