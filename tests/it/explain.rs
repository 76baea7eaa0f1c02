//! `sizegate explain`: twenty cases of "why was this refused, why did it pass" from public reports, answered from its
//! output alone; several of them beside a real broker and a real Java client; and the same over HTTP.

use std::sync::Arc;

use crate::support::command::{self, Ran};
use crate::support::{Kafka, Program, Sizegate, http};
use serde_json::{Value, json};
use sizegate::config::{self, Config, Overrides};
use sizegate::explain::{BadQuestion, Explanation, Facts, Party, Question, State, explain};
use sizegate::findings::{
    BrokerFacts, ClusterFacts, Comparison, Setting, SettingSource, Step, TopicFacts,
};
use sizegate::policy::Policy;
use sizegate::vocabulary::{Codec, CompressionType, Gate};

const MIB: u64 = 1 << 20;

fn configured(yaml: &str) -> Config {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sizegate.yaml");
    std::fs::write(
        &file,
        format!("cluster: {{bootstrap_servers: [kafka:9092]}}\n{yaml}\n"),
    )
    .unwrap();
    config::load(Some(&file), &Overrides::default(), &Default::default())
        .unwrap_or_else(|errors| panic!("{errors}"))
}

/// A topic as a default broker has it.
fn topic(name: &str) -> TopicFacts {
    TopicFacts {
        max_message_bytes: Some(Setting::of(1_048_588, SettingSource::Default)),
        segment_bytes: Some(Setting::of(1 << 30, SettingSource::Default)),
        compression_type: Some(Setting::of(
            CompressionType::Producer,
            SettingSource::Default,
        )),
        ..TopicFacts::unknown(Arc::from(name), false)
    }
}

/// With `max.message.bytes` of its own.
fn own(name: &str, bytes: u64) -> TopicFacts {
    let chain = vec![
        Step {
            value: bytes,
            source: SettingSource::Topic,
        },
        Step {
            value: 1_048_588,
            source: SettingSource::Default,
        },
    ];
    TopicFacts {
        max_message_bytes: Setting::new(chain),
        ..topic(name)
    }
}

fn broker(socket: u64) -> BrokerFacts {
    BrokerFacts {
        node_id: 1,
        socket_request_max_bytes: Some(Setting::of(socket, SettingSource::Static)),
        ..BrokerFacts::default()
    }
}

fn response(yaml: &str, topics: Vec<TopicFacts>, socket: u64, question: &Question) -> Explanation {
    let config = configured(yaml);
    let mut facts = ClusterFacts {
        brokers: vec![broker(socket)],
        topics,
        ..ClusterFacts::default()
    };
    facts.topics.sort_by(|a, b| a.name.cmp(&b.name));
    let comparison = Comparison::new(&config, &facts).unwrap();
    let ground = Facts {
        config: &config,
        policy: &comparison.policy,
        topic: facts.topic(&question.topic),
        brokers: &facts.brokers,
        batch_limit_of: &|name| Some(facts.topic(name)?.batch_limit()?.0),
        unseen: Vec::new(),
    };
    explain(question, &ground).unwrap()
}

/// Of `orders`: value, and what else is asked.
fn ask(value_bytes: u64) -> Question {
    Question {
        topic: "orders".to_owned(),
        value_bytes: Some(value_bytes),
        ..Question::default()
    }
}

struct Case {
    /// The report, and who had it.
    report: &'static str,
    yaml: &'static str,
    topics: Vec<TopicFacts>,
    question: Question,
    refused_by: Option<Party>,
    /// In the verdict.
    verdict: &'static [&'static str],
    /// State of each step of the triage: client, topic, broker, compression, side topics.
    triage: [State; 5],
    /// Somewhere in what a person reads.
    words: &'static [&'static str],
}

fn with(question: Question, change: impl FnOnce(&mut Question)) -> Question {
    let mut question = question;
    change(&mut question);
    question
}

fn cases() -> Vec<Case> {
    use Party::{Broker, Client, Sizegate as Us};
    use State::{Change, Fine, Look};
    let none = || vec![topic("orders")];
    vec![
        Case {
            report: "\"The message is 2097243 bytes when serialized which is larger than 1048576\": the producer alone",
            yaml: "",
            topics: vec![own("orders", 10 * MIB)],
            question: with(ask(2_097_155), |q| q.max_request_size = None),
            refused_by: Some(Client),
            verdict: &[
                "The client refuses it first",
                "2,097,243 bytes for max.request.size, which allows 1,048,576",
                "Nothing reaches sizegate",
                "Nobody after it would",
            ],
            triage: [Change, Fine, Fine, Fine, Look],
            words: &[
                "The message is 2097243 bytes when serialized which is larger than 1048576",
                "max.request.size=2097243",
            ],
        },
        Case {
            report: "confluent-kafka-dotnet 1092: 1.88 MB, gzip, all defaults: the client judges before compression",
            yaml: "",
            topics: none(),
            question: with(ask(1_880_000), |q| q.compressed_bytes = Some(513_774)),
            refused_by: Some(Client),
            verdict: &["The client refuses it first", "Nobody after it would"],
            triage: [Change, Fine, Fine, Fine, Look],
            words: &[
                "max.request.size is compared before compression",
                "librdkafka: message.max.bytes",
            ],
        },
        Case {
            report: "the same with a larger client limit: it passes, because the broker judges the compressed batch",
            yaml: "",
            topics: none(),
            question: with(ask(1_880_000), |q| {
                q.compressed_bytes = Some(513_774);
                q.max_request_size = Some(8 * MIB);
            }),
            refused_by: None,
            verdict: &["Nobody refuses it"],
            triage: [Look, Fine, Fine, Fine, Look],
            words: &["513,774 bytes compressed, 1,880,074 uncompressed"],
        },
        Case {
            report: "confluent-kafka-dotnet 1232: topic limit 2 MiB, 2.052 MB, \"Broker: Message size too large\"",
            yaml: "",
            topics: vec![own("orders", 2 * MIB)],
            question: with(ask(2_151_677), |q| q.max_request_size = Some(8 * MIB)),
            refused_by: Some(Us),
            verdict: &[
                "sizegate refuses it first",
                "2,151,751 bytes for gate batch, which allows 2,097,152 (topic)",
                "After it would refuse: broker (max.message.bytes)",
            ],
            triage: [Fine, Change, Fine, Look, Look],
            words: &[
                "--entity-name orders --add-config max.message.bytes=2151751",
                "from a ratio of 1.0 : 1 on",
            ],
        },
        Case {
            report: "message.max.bytes lowered on the broker, \"but my topic takes 8 MB\": the override wins",
            yaml: "",
            topics: vec![own("orders", 8_000_000)],
            question: with(ask(5_000_000), |q| q.max_request_size = Some(8_000_000)),
            refused_by: None,
            verdict: &[
                "Nobody refuses it",
                "Consumers need memory for 5,000,074 bytes",
            ],
            triage: [Look, Fine, Fine, Fine, Look],
            words: &[
                "message.max.bytes (Kafka's default) = 1,048,588, overridden",
                "max.message.bytes (the topic's own) = 8,000,000, in force",
            ],
        },
        Case {
            report: "broker message.max.bytes raised, topic created earlier with an override of its own: still refused",
            yaml: "",
            topics: vec![TopicFacts {
                max_message_bytes: Setting::new(vec![
                    Step {
                        value: 1_000_012,
                        source: SettingSource::Topic,
                    },
                    Step {
                        value: 10 * MIB,
                        source: SettingSource::Static,
                    },
                ]),
                ..topic("orders")
            }],
            question: ask(1_000_000),
            refused_by: Some(Us),
            verdict: &["which allows 1,000,012 (topic)"],
            triage: [Fine, Change, Fine, Look, Look],
            words: &[
                "message.max.bytes (server.properties) = 10,485,760, overridden",
                "does not count here: the topic's own max.message.bytes stands over it",
            ],
        },
        Case {
            report: "1,048,500 bytes of value: legal at the broker, refused by a default Java producer (+87 of estimate)",
            yaml: "",
            topics: none(),
            question: ask(1_048_500),
            refused_by: Some(Client),
            verdict: &[
                "1,048,587 bytes for max.request.size",
                "Nobody after it would",
            ],
            triage: [Change, Fine, Fine, Fine, Look],
            words: &["max.request.size=1048587"],
        },
        Case {
            report: "franz-go 1129: 120 MB that zstd makes 7 MB: refused before compression",
            yaml: "",
            topics: vec![own("orders", 100_000_000)],
            question: with(ask(120_000_000), |q| {
                q.compressed_bytes = Some(7_000_000);
                q.max_request_size = Some(100_000_000);
                q.client = Some("franz-go".to_owned());
            }),
            refused_by: Some(Client),
            verdict: &["The client refuses it first", "Nobody after it would"],
            triage: [Change, Fine, Fine, Fine, Look],
            words: &[
                "MESSAGE_TOO_LARGE: The request included a message",
                "ProducerBatchMaxBytes=120000078",
            ],
        },
        Case {
            report: "sarama 2797: records of 6.5 kB refused with \"Message was too large\": the batch is",
            yaml: "",
            topics: vec![own("orders", 65_536)],
            question: with(ask(6_546), |q| q.records = Some(15)),
            refused_by: Some(Us),
            verdict: &[
                "the batch of 15 records is 98,",
                "No record is too large (6,555 bytes each); the batch of 15 is: lower the producer's batch.size",
            ],
            triage: [Fine, Look, Fine, Look, Look],
            words: &[
                "a batch of 15 98,",
                "so the producer is what to change: lower the producer's batch.size",
            ],
        },
        Case {
            report: "sarama 1045: headers count: the value alone would fit",
            yaml: "rules: [{name: orders, topics: [orders], limits: {headers_bytes: 16KiB}}]",
            topics: none(),
            question: with(ask(1_000), |q| q.headers_bytes = Some(20_000)),
            refused_by: Some(Us),
            verdict: &["20,000 bytes for gate headers, which allows 16,384 (rule orders)"],
            triage: [Fine, Change, Fine, Fine, Look],
            words: &["headers_bytes of rule \"orders\" = 16,384"],
        },
        Case {
            report: "spring-kafka 1994: the fifth stack trace makes the dead letter too large for a default topic",
            yaml: "",
            topics: vec![topic("orders"), topic("orders-dlt")],
            question: with(ask(1_000_000), |q| {
                q.topic = "orders-dlt".to_owned();
                q.key_bytes = Some(12);
                q.headers_bytes = Some(5 * 9_831);
                q.max_request_size = Some(8 * MIB);
            }),
            refused_by: Some(Us),
            verdict: &["for gate batch, which allows 1,048,588 (broker)"],
            triage: [Fine, Change, Fine, Look, Look],
            words: &[
                "orders-dlt is a retry or dead-letter topic of orders",
                "--entity-name orders-dlt --add-config max.message.bytes=1049",
            ],
        },
        Case {
            report: "the fourth passes",
            yaml: "",
            topics: vec![topic("orders"), topic("orders-dlt")],
            question: with(ask(1_000_000), |q| {
                q.topic = "orders-dlt".to_owned();
                q.key_bytes = Some(12);
                q.headers_bytes = Some(4 * 9_831);
                q.max_request_size = Some(8 * MIB);
            }),
            refused_by: None,
            verdict: &["Nobody refuses it"],
            triage: [Look, Fine, Fine, Fine, Look],
            words: &[
                "written by another producer with a max.request.size and a compression of its own",
            ],
        },
        Case {
            report: "kafkaflow-retry-extensions 73: compressed on the main topic, uncompressed to the retry topic",
            yaml: "",
            topics: vec![topic("orders"), topic("orders-retry")],
            question: with(ask(1_880_000), |q| {
                q.topic = "orders-retry".to_owned();
                q.max_request_size = Some(8 * MIB);
            }),
            refused_by: Some(Us),
            verdict: &["1,880,074 bytes for gate batch, which allows 1,048,588"],
            triage: [Fine, Change, Fine, Look, Look],
            words: &[
                "the setting does not reach this producer",
                "orders-retry is a retry or dead-letter topic of orders",
            ],
        },
        Case {
            report: "main topic and dead-letter topic at 10 MB, the dead-letter producer at its default: it was the client",
            yaml: "",
            topics: vec![own("orders", 10_000_000), own("orders-dlt", 10_000_000)],
            question: with(ask(2_000_000), |q| {
                q.topic = "orders-dlt".to_owned();
                q.max_request_size = Some(1_000_000);
            }),
            refused_by: Some(Client),
            verdict: &[
                "The client refuses it first",
                "Nothing reaches sizegate or the broker",
                "Nobody after it would",
            ],
            triage: [Change, Fine, Fine, Fine, Look],
            words: &["A dead-letter or Streams producer has a setting of its own"],
        },
        Case {
            report: "main topic at 10 MB, dead-letter topic unset: the record passes, its dead letter would not",
            yaml: "",
            topics: vec![own("orders", 10_000_000), topic("orders-dlt")],
            question: with(ask(2_000_000), |q| q.max_request_size = Some(10_000_000)),
            refused_by: None,
            verdict: &["Nobody refuses it"],
            triage: [Look, Fine, Fine, Fine, Change],
            words: &[
                "Its dead letter, 2,065,610 bytes with headroom, would not fit orders-dlt (1,048,588)",
                "Whoever writes orders-dlt refuses it by itself if its max.request.size is below 2,065,624 (1,048,576 here",
                "sizegate align",
                "--detected --apply",
            ],
        },
        Case {
            report: "compressed, it and its dead letter fit: but dead letters are usually written uncompressed",
            yaml: "",
            topics: vec![topic("orders"), topic("orders-dlt")],
            question: with(ask(1_880_000), |q| {
                q.max_request_size = Some(8 * MIB);
                q.compressed_bytes = Some(474_705);
            }),
            refused_by: None,
            verdict: &["Nobody refuses it"],
            triage: [Look, Fine, Fine, Fine, Look],
            words: &[
                "As it travels, 540,241 bytes with headroom, it fits orders-dlt, which takes 1,048,588",
                "that is 1,945,610 bytes with headroom, and does not fit",
            ],
        },
        Case {
            report: "aligned, and the writer of the dead letter at its default: it would refuse by itself",
            yaml: "families: {members: [{main: orders, dead_letter: [orders-dlt]}]}",
            topics: vec![topic("orders"), own("orders-dlt", 1_114_124)],
            question: with(ask(1_048_300), |q| q.max_request_size = Some(8 * MIB)),
            refused_by: Some(Us),
            verdict: &["for gate estimate, which allows 983,040 (family orders-dlt)"],
            triage: [Fine, Change, Fine, Fine, Look],
            words: &[
                "max.request.size of the producer that writes the family's member orders-dlt, less headroom (983,040)",
                "set it to 1113923 or more in that producer, and then writer_max_request_size: 1113923 in the family",
            ],
        },
        Case {
            report: "a rule keeps the dead-letter topic small: it is named, and align has nothing to do with it",
            yaml: "rules: [{name: dead, topics: [orders-dlt], limits: {record_bytes: 100KiB}}]\n\
                   families: {members: [{main: orders, dead_letter: [orders-dlt]}]}",
            topics: vec![topic("orders"), own("orders-dlt", 1_114_124)],
            question: ask(50_000),
            refused_by: Some(Us),
            verdict: &["for gate record, which allows 36,864 (family orders-dlt)"],
            triage: [Fine, Change, Fine, Fine, Change],
            words: &[
                "record_bytes of rule \"dead\" for the family's member orders-dlt, less headroom (36,864)",
                "rule \"dead\" gives record_bytes of 102,400: with headroom it needs record_bytes: 115547 there",
                "Rule \"dead\" gives orders-dlt record_bytes of 102,400, and this needs 115,547 there",
            ],
        },
        Case {
            report: "the same with alignment: enforce: told at the first send",
            yaml: "families: {members: [{main: orders, dead_letter: [orders-dlt], writer_max_request_size: none}]}",
            topics: vec![own("orders", 10_000_000), topic("orders-dlt")],
            question: with(ask(2_000_000), |q| q.max_request_size = Some(10_000_000)),
            refused_by: Some(Us),
            verdict: &[
                "for gate batch, which allows 983,052 (family orders-dlt)",
                "Nobody after it would",
            ],
            triage: [Fine, Change, Fine, Look, Change],
            words: &[
                "orders-dlt, a member of the family of orders: 1,048,588 less 65,536 of headroom = 983,052, in force",
                "It is kept for the retry or dead-letter topic orders-dlt",
            ],
        },
        Case {
            report: "redpanda 31362, KAFKA: gzip to a topic with compression.type=uncompressed is judged as stored",
            yaml: "",
            topics: vec![TopicFacts {
                compression_type: Some(Setting::of(
                    CompressionType::Stored(Codec::None),
                    SettingSource::Topic,
                )),
                ..topic("orders")
            }],
            question: with(ask(1_880_000), |q| {
                q.compressed_bytes = Some(513_774);
                q.max_request_size = Some(8 * MIB);
            }),
            refused_by: Some(Broker),
            verdict: &[
                "The broker refuses it first",
                "1,880,074 bytes for max.message.bytes, as stored, which allows 1,048,588 (compression.type=uncompressed)",
            ],
            triage: [Fine, Change, Fine, Fine, Look],
            words: &["sizegate let … pass, the broker refused it"],
        },
        Case {
            report: "max.message.bytes raised, RECORD_LIST_TOO_LARGE all the same: segment.bytes",
            yaml: "",
            topics: vec![TopicFacts {
                segment_bytes: Some(Setting::of(MIB, SettingSource::Topic)),
                ..own("orders", 2 * MIB)
            }],
            question: with(ask(1_500_000), |q| q.max_request_size = Some(8 * MIB)),
            refused_by: Some(Us),
            verdict: &["which allows 1,048,576 (segment)", "broker (segment.bytes)"],
            triage: [Fine, Change, Fine, Look, Look],
            words: &[
                "--add-config segment.bytes=1500074",
                "segment.bytes (the topic's own) = 1,048,576, in force",
            ],
        },
        Case {
            report: "TimeoutException after two minutes, no word of size: socket.request.max.bytes",
            yaml: "",
            topics: vec![own("orders", 200_000_000)],
            question: with(ask(60_000_000), |q| {
                q.max_request_size = Some(200_000_000);
                q.buffer_memory = Some(200_000_000);
            }),
            refused_by: Some(Us),
            verdict: &[
                "sizegate refuses it first",
                "for gate frame, which allows 50,000,000 (socket.request.max.bytes)",
                "After it would refuse: broker (socket.request.max.bytes)",
            ],
            triage: [Fine, Fine, Change, Fine, Look],
            words: &[
                "socket.request.max.bytes of 60,001,155 or more",
                "above it the broker closes the connection without a response",
            ],
        },
        Case {
            report: "a rule's remedy: 70,000 bytes to a topic with record_bytes 64 KiB",
            yaml: "rules: [{name: orders, topics: [orders], limits: {record_bytes: 64KiB}, remedy: 'Put the note elsewhere.'}]",
            topics: none(),
            question: ask(70_000),
            refused_by: Some(Us),
            verdict: &[
                "70,011 bytes for gate record, which allows 65,536 (rule orders)",
                "Nobody after it would",
            ],
            triage: [Fine, Change, Fine, Fine, Look],
            words: &[
                "Its remedy: Put the note elsewhere.",
                "compared with sizes before compression",
            ],
        },
        Case {
            report: "mode: observe: counted, and passes",
            yaml: "mode: observe\nrules: [{name: orders, topics: [orders], limits: {record_bytes: 64KiB}}]",
            topics: none(),
            question: ask(70_000),
            refused_by: None,
            verdict: &[
                "Nobody refuses it",
                "counts it as over the gate record limit and lets it pass",
            ],
            triage: [Look, Change, Fine, Fine, Look],
            words: &["action observe"],
        },
        Case {
            report: "consumers fall over after the limit was raised: nothing refuses, they need the memory",
            yaml: "",
            topics: vec![own("orders", 200_000_000)],
            question: with(ask(40_000_000), |q| {
                q.compressed_bytes = Some(4_000_000);
                q.max_request_size = Some(200_000_000);
                q.buffer_memory = Some(200_000_000);
            }),
            refused_by: None,
            verdict: &[
                "Consumers need memory for 40,000,074 bytes at once",
                "soft since KIP-74",
            ],
            triage: [Look, Fine, Fine, Fine, Look],
            words: &["max.partition.fetch.bytes"],
        },
    ]
}

#[test]
fn public_reports_are_answered_from_its_output_alone() {
    let cases = cases();
    assert!(cases.len() >= 20);
    for case in cases {
        let found = response(case.yaml, case.topics, 50_000_000, &case.question);
        let text = found.text();
        assert_eq!(found.refused_by, case.refused_by, "{}\n{text}", case.report);
        assert_eq!(
            found.passes,
            Some(case.refused_by.is_none()),
            "{}",
            case.report
        );
        for words in case.verdict {
            assert!(
                found.verdict.contains(words),
                "{}: {words}\n{text}",
                case.report
            );
        }
        let states: Vec<State> = found.remedy.iter().map(|advice| advice.state).collect();
        assert_eq!(states, case.triage, "{}\n{text}", case.report);
        for words in case.words {
            assert!(text.contains(words), "{}: {words}\n{text}", case.report);
        }
    }
}

/// A value that each service on its way encodes as base64 once more.
#[test]
fn a_value_that_grows_at_each_hop_is_refused_at_the_third() {
    let hop = |bytes: u64| bytes.div_ceil(3) * 4;
    let sizes = [700_000, hop(700_000), hop(hop(700_000))];
    assert_eq!(sizes, [700_000, 933_336, 1_244_448]);
    let told = |bytes, max_request_size| {
        let question = with(ask(bytes), |q| q.max_request_size = max_request_size);
        response("", vec![topic("orders")], 50_000_000, &question)
    };
    // By the producer itself as it comes out of the box; by us where it lets go what the topic does not take.
    for (max_request_size, by, words) in [
        (
            None,
            Party::Client,
            "1,244,536 bytes for max.request.size, which allows 1,048,576",
        ),
        (
            Some(8 * MIB),
            Party::Sizegate,
            "1,244,522 bytes for gate batch, which allows 1,048,588",
        ),
    ] {
        let found = sizes.map(|bytes| told(bytes, max_request_size));
        let refused_by = found.each_ref().map(|found| found.refused_by);
        assert_eq!(refused_by, [None, None, Some(by)], "{}", found[2].text());
        assert!(found[2].verdict.contains(words), "{}", found[2].text());
    }
}

#[test]
fn each_boundary_is_passed_at_the_limit_and_refused_above_it() {
    let refused =
        |question: &Question| response("", vec![topic("orders")], 50_000_000, question).refused_by;
    for (question, by) in [
        (ask(1_048_489), None),
        (ask(1_048_490), Some(Party::Client)),
        (
            with(ask(1_048_516), |q| q.max_request_size = Some(8 * MIB)),
            None,
        ),
        (
            with(ask(1_048_517), |q| q.max_request_size = Some(8 * MIB)),
            Some(Party::Sizegate),
        ),
    ] {
        assert_eq!(refused(&question), by, "{question:?}");
    }
}

#[test]
fn the_docs_show_what_it_prints() {
    let families = "families: {members: [{main: orders, dead_letter: [orders-dlt]}]}";
    let topics = vec![own("orders", 2 * MIB), topic("orders-dlt")];
    let found = response(families, topics, 104_857_600, &ask(2_000_000));
    let text = found.text();
    let (above, _) = text.split_once("\n\nWhat to look at").unwrap();
    command::docs_show(above);
}

#[test]
fn without_sizes_only_the_limits_are_explained() {
    let question = Question {
        topic: "orders".to_owned(),
        ..Question::default()
    };
    let found = response("", vec![own("orders", 2 * MIB)], 50_000_000, &question);
    assert_eq!(
        (found.passes, found.checks.len(), found.remedy.len()),
        (None, 0, 0)
    );
    assert!(found.text().contains("in force") && !found.text().contains("What to look at"));
}

/// Nothing is known of the cluster.
fn unseen<'a>(config: &'a Config, policy: &'a Policy) -> Facts<'a> {
    Facts {
        config,
        policy,
        topic: None,
        brokers: &[],
        batch_limit_of: &|_| None,
        unseen: Vec::new(),
    }
}

#[test]
fn what_is_not_known_is_never_a_pass_by_its_limit() {
    let config =
        configured("rules: [{name: orders, topics: [orders], limits: {record_bytes: 64KiB}}]");
    let policy = Policy::compile(&config).unwrap();
    let ground = unseen(&config, &policy);
    let found = explain(&ask(1_000), &ground).unwrap();
    assert!(
        found
            .verdict
            .contains("Whether the sizegate does is not known")
            || found
                .verdict
                .contains("Whether the broker does is not known"),
        "{}",
        found.verdict
    );
    assert!(found.text().contains("not known"));
    // The rule's own number still holds.
    assert_eq!(
        explain(&ask(70_000), &ground).unwrap().refused_by,
        Some(Party::Sizegate)
    );
}

#[test]
fn a_rules_none_lifts_what_limits_sets_and_the_response_shows_it() {
    let config = configured(
        "limits: {record_bytes: 64KiB, key_bytes: 100, ratio: 10}\n\
         rules: [{name: bulk, topics: [orders], limits: {batch_bytes: none, record_bytes: none, ratio: none}}]",
    );
    let policy = Policy::compile(&config).unwrap();
    let inside = |topic: &str| {
        let limits = policy.for_topic(topic).inside_limits().to_vec();
        let limits = limits.into_iter().map(|limit| (limit.gate, limit.value));
        limits.collect::<Vec<_>>()
    };
    assert_eq!(inside("orders"), [(Gate::Key, 100)]);
    assert_eq!(policy.for_topic("orders").inside.record_bytes, None);
    assert_eq!(policy.for_topic("orders").inside.ratio, None);
    let others = [(Gate::Record, 65_536), (Gate::Key, 100), (Gate::Ratio, 10)];
    assert_eq!(inside("others"), others);
    let ground = unseen(&config, &policy);
    let found = explain(&ask(70_000), &ground).unwrap();
    assert_ne!(found.refused_by, Some(Party::Sizegate), "{}", found.text());
    let text = found.text();
    let line = |gate: &str| {
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with(gate)).unwrap_or(&text);
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        line("record"),
        "record none rule bulk record_bytes in limits = 65,536, lifted"
    );
    assert_eq!(line("batch"), "batch none rule bulk nothing that is known");
    assert_eq!(
        line("key"),
        "key 100 limits key_bytes in limits = 100, in force"
    );
}

#[test]
fn impossible_sizes_are_refused_with_what_is_wrong() {
    let config = configured("");
    let policy = Policy::compile(&config).unwrap();
    let ground = unseen(&config, &policy);
    let bad = |question: Question| explain(&question, &ground).unwrap_err();
    assert_eq!(bad(Question::default()), BadQuestion::NoTopic);
    assert_eq!(bad(ask(1 << 31)), BadQuestion::TooLarge("value_bytes"));
    let impossible = bad(with(ask(1), |q| q.compressed_bytes = Some(60))).to_string();
    assert!(impossible.contains("below 61"), "{impossible}");
    assert!(
        bad(with(ask(1), |q| q.records = Some(0)))
            .to_string()
            .contains("records is 0")
    );
}

/// The largest sizes are handled without overflow.
#[test]
fn the_largest_numbers_have_a_response() {
    let most = i32::MAX.unsigned_abs().into();
    let question = Question {
        topic: "orders".to_owned(),
        value_bytes: Some(most),
        key_bytes: Some(most),
        headers_bytes: Some(most),
        compressed_bytes: Some(most),
        max_request_size: Some(most),
        records: Some(u32::MAX),
        headers: Some(u32::MAX),
        buffer_memory: Some(most),
        ..Question::default()
    };
    let found = response(
        "limits: {ratio: 10, uncompressed_bytes: 1MiB}",
        vec![topic("orders")],
        50_000_000,
        &question,
    );
    assert_eq!(found.refused_by, Some(Party::Client));
}

fn yaml(kafka: &Kafka, more: &str) -> String {
    let servers: Vec<String> = kafka.bootstrap().split(',').map(str::to_owned).collect();
    format!(
        "cluster: {{bootstrap_servers: [{}]}}\n{more}\n",
        servers.join(", ")
    )
}

fn run(kafka: &Kafka, topic: &str, arguments: &[String]) -> Ran {
    let arguments: Vec<&str> = ["explain", topic]
        .into_iter()
        .chain(arguments.iter().map(String::as_str))
        .collect();
    command::sizegate(&arguments, &yaml(kafka, ""))
}

/// What a real Java producer sees through sizegate is what `explain` says, size by size.
#[test]
fn a_real_producer_meets_what_explain_foretold() {
    let kafka = Kafka::shared("4.3.0");
    let sizegate = Sizegate::start(kafka, "");
    let wide = kafka.topic("foretold", 1, &[("max.message.bytes", "2097152")]);
    let plain = kafka.topic("foretold", 1, &[]);
    let segment = kafka.topic(
        "foretold",
        1,
        &[
            ("max.message.bytes", "2097152"),
            ("segment.bytes", "1048576"),
        ],
    );
    let unpacked = kafka.topic("foretold", 1, &[("compression.type", "uncompressed")]);
    for (topic, max_request_size, codec, sizes) in [
        (&plain, MIB, "none", vec![1_048_489, 1_048_490, 2_000_000]),
        (&plain, 8 * MIB, "none", vec![1_048_516, 1_048_517]),
        (&wide, 8 * MIB, "none", vec![2_097_078, 2_097_079]),
        (&segment, 8 * MIB, "none", vec![1_048_502, 1_048_505]),
        (&unpacked, 8 * MIB, "gzip", vec![900_000, 1_880_000]),
    ] {
        let values: Vec<String> = sizes.iter().map(u64::to_string).collect();
        let sent = Program::java("SendSizes", kafka.version())
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .arg("values", values.join(","))
            .arg("content", if codec == "none" { "random" } else { "a" })
            .arg("p.max.request.size", max_request_size)
            .arg("p.compression.type", codec)
            .run();
        for bytes in sizes {
            let mut arguments = vec![
                "--output=json".to_owned(),
                format!("--value-bytes={bytes}"),
                format!("--max-request-size={max_request_size}"),
            ];
            if codec != "none" {
                // A run of one letter takes next to nothing.
                arguments.push("--compressed-bytes=2000".to_owned());
            }
            let foretold = run(kafka, &topic.name, &arguments);
            let seen = sent.only("value_bytes", bytes);
            let text = seen["text"].as_str().unwrap_or_default();
            let by = match (seen["ok"].as_bool(), seen["local"].as_bool()) {
                (Some(true), _) => Value::Null,
                (_, Some(true)) => json!("client"),
                _ if text.starts_with("sizegate refused ") => json!("sizegate"),
                _ => json!("broker"),
            };
            assert_eq!(
                foretold.json()["refused_by"],
                by,
                "{} {bytes}: {seen}\n{foretold:?}",
                topic.name
            );
            assert_eq!(foretold.code, i32::from(by != Value::Null), "{foretold:?}");
        }
    }
}

#[test]
fn it_says_what_it_cannot_do() {
    let kafka = Kafka::shared("4.3.0");
    let absent = run(kafka, "no-such-topic", &[]);
    assert_eq!((absent.code, absent.out.as_str()), (2, ""));
    assert!(
        absent
            .err
            .contains("the cluster has no topic no-such-topic"),
        "{absent:?}"
    );
    let impossible = run(kafka, "orders", &["--value-bytes=3000000000".to_owned()]);
    assert_eq!(impossible.code, 64, "{impossible:?}");
    let nobody = "cluster: {bootstrap_servers: ['127.0.0.1:1']}\n";
    let down = command::sizegate(&["explain", "orders"], nobody);
    assert_eq!(down.code, 2, "{down:?}");
    assert!(
        down.err
            .contains("the cluster could not be read: connect 127.0.0.1:1"),
        "{down:?}"
    );
}

#[test]
fn a_running_proxy_answers_the_same_over_http() {
    let kafka = Kafka::shared("4.3.0");
    let topic = kafka.topic("http", 1, &[("max.message.bytes", "65536")]);
    let sizegate = Sizegate::start(kafka, "");
    let ask =
        |body: &str| http::request(sizegate.admin(), "POST", "/api/v1/explain", body).unwrap();
    let question = json!({"topic": topic.name, "value_bytes": 65_465}).to_string();
    let found = crate::support::eventually(
        std::time::Duration::from_secs(60),
        "the topic is known",
        || {
            let (status, body) = ask(&question);
            assert_eq!(status, 200, "{body}");
            let found: Value = serde_json::from_str(&body).unwrap();
            (found["limits"][0]["limit_bytes"] == 65_536).then_some(found)
        },
    );
    assert_eq!(found["refused_by"], "sizegate", "{found:#}");
    let chain = found["limits"][0]["chain"].as_array().unwrap();
    assert!(
        chain
            .iter()
            .any(|part| part["bytes"] == 65_536 && part["role"] == "in force"),
        "{chain:?}"
    );
    assert!(
        chain
            .iter()
            .any(|part| part["bytes"] == 1_048_588 && part["role"] == "overridden"),
        "{chain:?}"
    );
    let printed = run(
        kafka,
        &topic.name,
        &["--output=json".to_owned(), "--value-bytes=65465".to_owned()],
    );
    assert_eq!(printed.json()["verdict"], found["verdict"]);

    for (body, status, words) in [
        ("", 400, "EOF"),
        ("{", 400, "EOF"),
        ("{}", 400, "topic"),
        (
            r#"{"topic": "orders", "colour": 1}"#,
            400,
            "unknown field `colour`",
        ),
        (
            r#"{"topic": "orders", "value_bytes": -1}"#,
            400,
            "value_bytes",
        ),
        (
            r#"{"topic": "orders", "value_bytes": 3000000000}"#,
            400,
            "no record is that large",
        ),
    ] {
        let (found, response) = ask(body);
        assert_eq!(found, status, "{body}: {response}");
        assert!(response.contains(words), "{body}: {response}");
    }
    let (status, _) = ask(&format!(r#"{{"topic": "{}"}}"#, "a".repeat(10_000)));
    assert_eq!(status, 400);
    let (status, _) = sizegate.get("/api/v1/explain");
    assert_eq!(status, 405, "it takes a question");
    // A topic that does not exist is said not to.
    let (status, body) = ask(r#"{"topic": "no-such-topic", "value_bytes": 10}"#);
    assert_eq!(status, 404, "{body}");
    assert_eq!(
        serde_json::from_str::<Value>(&body).unwrap(),
        json!({"error": "the cluster has no topic no-such-topic"})
    );
}

/// A dead-letter topic with the broker's default keeps its main topic below that.
#[test]
fn a_running_proxy_and_the_command_allow_for_the_family_alike() {
    let kafka = Kafka::shared("4.3.0");
    let main = kafka.topic("kept", 1, &[("max.message.bytes", "5000000")]);
    let dead = kafka.topic("kept-dead", 1, &[]);
    let families = format!(
        "families: {{headroom: 64KiB, members: [{{main: {}, dead_letter: [{}], alignment: enforce}}]}}\n",
        main.name, dead.name
    );
    let sizegate = Sizegate::start(kafka, &families);
    let question = json!({"topic": main.name, "value_bytes": 1_000_000}).to_string();
    let printed = command::sizegate(
        &[
            "explain",
            &main.name,
            "--output=json",
            "--value-bytes=1000000",
        ],
        &yaml(kafka, &families),
    );
    let printed = printed.json();
    assert_eq!(printed["limits"][0]["limit_bytes"], 983_052, "{printed:#}");
    crate::support::eventually(
        std::time::Duration::from_secs(60),
        "the same verdict",
        || {
            let (_, body) =
                http::request(sizegate.admin(), "POST", "/api/v1/explain", &question).unwrap();
            let found: Value = serde_json::from_str(&body).unwrap();
            let is_same = found["limits"][0]["limit_bytes"] == 983_052
                && found["verdict"] == printed["verdict"];
            is_same.then_some(())
        },
    );
}

/// A record that Java's producer sent with every codec, its key and value given as files: the same codec makes what Java
/// made of it, to within what encoders differ by on 20 KB. The next codec's size is further away.
#[test]
fn a_record_in_files_is_compressed_as_its_producer_would() {
    use kafka_protocol::records::RecordBatchDecoder;
    let kafka = Kafka::shared("4.4.0");
    let topic = kafka.topic("explain-file", 1, &[]).name;
    let yaml = format!(
        "cluster: {{bootstrap_servers: [{:?}]}}\n",
        kafka.bootstrap()
    );
    let read = |codec: &str| {
        let file = format!("tests/data/batches/java-4.3.0-{codec}-one-json-20000.bin");
        std::fs::read(crate::support::programs::repo().join(file)).unwrap()
    };
    let mut plain = bytes::Bytes::from(read("none"));
    let record = RecordBatchDecoder::decode(&mut plain)
        .unwrap()
        .records
        .remove(0);
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (value, key) = (path("value"), path("key"));
    std::fs::write(&value, record.value.unwrap()).unwrap();
    std::fs::write(&key, record.key.unwrap()).unwrap();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let arguments = [
            "explain",
            &topic,
            "--value-file",
            &value,
            "--key-file",
            &key,
            "--compression",
            codec,
            "--output",
            "json",
        ];
        let ran = command::sizegate(&arguments, &yaml);
        assert_eq!(ran.code, 0, "{ran:?}");
        let found = ran.json()["record"]["batch_bytes"].as_u64().unwrap();
        let java = read(codec).len() as u64;
        let most = if codec == "none" { 0 } else { java / 5 };
        assert!(found.abs_diff(java) <= most, "{codec}: {found} for {java}");
    }
    let nowhere = ["explain", &topic, "--value-file", "/nowhere/at/all"];
    let missing = command::sizegate(&nowhere, &yaml);
    assert_eq!(missing.code, 64, "{missing:?}");
    assert!(missing.err.contains("/nowhere/at/all"), "{missing:?}");
}
