//! `sizegate check --cluster` against real brokers: every rule finds its misfit, says why and what mends it, and the
//! commands it gives mend it.

use crate::support::command::{self, Ran, kafka_tool};
use crate::support::{Connection, Kafka, KafkaOptions, Part, Record, Sizegate, batch};
use serde_json::Value;

const EXIT_FINE: i32 = 0;
const EXIT_FINDINGS: i32 = 1;
const EXIT_FAILED: i32 = 2;
const EXIT_USAGE: i32 = 64;

fn yaml(kafka: &Kafka, more: &str) -> String {
    let servers: Vec<String> = kafka
        .bootstrap()
        .split(',')
        .map(|server| format!("'{server}'"))
        .collect();
    format!(
        "cluster: {{bootstrap_servers: [{}]}}\n{more}\n",
        servers.join(", ")
    )
}

fn check(kafka: &Kafka, more: &str, arguments: &[&str]) -> Ran {
    let arguments = [&["check", "--cluster"], arguments].concat();
    command::sizegate(&arguments, &yaml(kafka, more))
}

fn findings(ran: &Ran) -> Vec<Value> {
    ran.json()["findings"]
        .as_array()
        .unwrap_or_else(|| panic!("{ran:?}"))
        .clone()
}

/// The findings of one rule about one topic; `topic` empty: about none.
fn of<'a>(findings: &'a [Value], rule: &str, topic: &str) -> Vec<&'a Value> {
    let about = |finding: &&Value| {
        let topics = finding["topics"].as_array().unwrap();
        finding["rule"] == rule
            && if topic.is_empty() {
                topics.is_empty()
            } else {
                topics.iter().any(|known| known == topic)
            }
    };
    findings.iter().filter(about).collect()
}

fn only<'a>(findings: &'a [Value], rule: &str, topic: &str) -> &'a Value {
    let found = of(findings, rule, topic);
    assert_eq!(found.len(), 1, "{rule} {topic}: {findings:#?}");
    found[0]
}

fn fix(finding: &Value) -> &str {
    finding["fix"].as_str().unwrap()
}

/// The value of a key that a finding compared.
fn value<'a>(finding: &'a Value, of: &str, key: &str) -> &'a Value {
    let values = finding["values"].as_array().unwrap();
    values
        .iter()
        .find(|value| value["of"] == of && value["key"] == key)
        .unwrap_or_else(|| panic!("no {of} {key}: {finding:#}"))
}

#[test]
fn topics_that_do_not_fit_are_found_and_mended_by_the_commands_given() {
    let kafka = Kafka::start("4.4.0", KafkaOptions::default());
    let create = |name: &str, configs: &[(&str, &str)]| {
        kafka.create_topic(name, 1, 1, configs);
    };
    create("plain", &[]);
    let clean = check(&kafka, "", &[]);
    assert_eq!(clean.code, EXIT_FINE, "{clean:?}");
    assert_eq!(
        clean.out,
        "1 topic and 1 broker looked at: 0 errors, 0 warnings.\n"
    );

    create("wide", &[("max.message.bytes", "4194304")]);
    create(
        "segment",
        &[
            ("max.message.bytes", "2097152"),
            ("segment.bytes", "1048576"),
        ],
    );
    create("packed", &[("compression.type", "gzip")]);
    create("inflated", &[("max.decompressed.message.bytes", "10000")]);
    create("small", &[("max.message.bytes", "65536")]);
    // Case 15: the dead letter's topic is at the default.
    create("orders", &[("max.message.bytes", "10000000")]);
    create("orders-dlt", &[]);
    create(
        "orders-retry-0",
        &[
            ("max.message.bytes", "10000000"),
            ("compression.type", "zstd"),
        ],
    );
    // By its name alone.
    create("payments", &[("max.message.bytes", "3000000")]);
    create("payments.DLT", &[]);
    let config = "families: {members: [{main: orders, retry: ['{main}-retry-*'], dead_letter: [orders-dlt], \
                  writer_max_request_size: none}]}";
    // What the writer of dead letters takes bounds what enters, however it is compressed: that is the warning then.
    let of_writers = config.replace(", writer_max_request_size: none", "");
    let found = findings(&check(&kafka, &of_writers, &["--output", "json"]));
    let writer = only(&found, "family_writer_too_small", "orders-dlt");
    assert_eq!(writer["severity"], "warning");
    assert_eq!(
        value(writer, "orders-dlt", "writer_max_request_size")["value"],
        1_048_576
    );
    assert!(
        of(&found, "family_uncompressed", "orders-dlt").is_empty(),
        "{found:#?}"
    );
    let ran = check(&kafka, config, &["--output", "json"]);
    assert_eq!(ran.code, EXIT_FINDINGS, "{ran:?}");
    let found = findings(&ran);

    let wide = only(&found, "override_above_broker", "wide");
    assert_eq!(wide["severity"], "warning");
    assert_eq!(value(wide, "wide", "max.message.bytes")["value"], 4_194_304);
    assert_eq!(
        value(wide, "brokers", "message.max.bytes")["value"],
        1_048_588
    );
    assert!(
        wide["why"]
            .as_str()
            .unwrap()
            .contains("wins over the broker's default"),
        "{wide}"
    );

    let segment = only(&found, "segment_below_limit", "segment");
    assert_eq!(segment["severity"], "error");
    assert_eq!(
        value(segment, "segment", "segment.bytes")["source"],
        "topic"
    );

    let packed = only(&found, "recompressed", "packed");
    assert_eq!(value(packed, "packed", "compression.type")["value"], "gzip");
    let inflated = only(&found, "decompressed_below_limit", "inflated");
    assert_eq!(
        value(inflated, "inflated", "batch limit")["value"],
        1_048_588
    );
    let small = only(&found, "small_batch_limit", "small");
    assert!(
        small["why"].as_str().unwrap().contains("record_bytes"),
        "{small}"
    );

    // The command can be pasted as it is.
    assert!(
        small["fix"].as_str().unwrap().ends_with("=1048588"),
        "{small}"
    );
    assert!(
        small["also"]
            .as_str()
            .is_some_and(|also| also.starts_with("and record_bytes: ")),
        "{small}"
    );

    let dead_letter = only(&found, "family_member_too_small", "orders-dlt");
    assert_eq!(dead_letter["severity"], "error");
    assert!(
        dead_letter["why"]
            .as_str()
            .unwrap()
            .contains("lacks 9,016,948 bytes"),
        "{dead_letter}"
    );
    assert_eq!(value(dead_letter, "families", "headroom")["value"], 65_536);
    assert!(
        fix(dead_letter)
            .ends_with("--entity-name orders-dlt --add-config max.message.bytes=10065536"),
        "{dead_letter}"
    );
    only(&found, "family_member_too_small", "orders-retry-0");
    let codec = only(&found, "family_codec", "orders-retry-0");
    assert_eq!(
        value(codec, "orders-retry-0", "compression.type")["value"],
        "zstd"
    );
    // Case 14: warned of beforehand.
    let unpacked = only(&found, "family_uncompressed", "orders-dlt");
    assert!(
        unpacked["why"]
            .as_str()
            .unwrap()
            .contains("983,052 bytes uncompressed"),
        "{unpacked}"
    );
    let detected = only(&found, "family_member_too_small", "payments.DLT");
    assert_eq!(
        detected["severity"], "warning",
        "a family by its name only warns"
    );
    assert!(
        detected["why"]
            .as_str()
            .unwrap()
            .contains("a family by its name"),
        "{detected}"
    );

    let table = check(&kafka, config, &[]);
    assert_eq!(table.code, EXIT_FINDINGS);
    assert!(table.out.contains("\nerror   segment_below_limit  segment\n  value  segment: segment.bytes = 1,048,576 (topic)\n"), "{}", table.out);
    assert!(table.out.trim_end().ends_with("warnings."), "{}", table.out);

    let shown = table
        .out
        .split("\n\n")
        .find(|shown| shown.contains("orders-dlt\n") && shown.starts_with("error"));
    command::docs_show(&shown.unwrap().replace(&kafka.bootstrap(), "localhost:9092"));

    // What is said to mend it is pasted into a shell.
    let commands: Vec<String> = [
        ("segment_below_limit", "segment"),
        ("recompressed", "packed"),
        ("small_batch_limit", "small"),
        ("family_member_too_small", "orders-dlt"),
        ("family_member_too_small", "orders-retry-0"),
        ("family_codec", "orders-retry-0"),
        ("decompressed_below_limit", "inflated"),
        ("override_above_broker", "wide"),
    ]
    .iter()
    .map(|(rule, topic)| {
        let fix = fix(only(&found, rule, topic));
        let from = fix
            .find("kafka-configs.sh")
            .unwrap_or_else(|| panic!("{rule}: {fix}"));
        // Advice beside a command stands behind three spaces.
        fix[from..].split("   ").next().unwrap().to_owned()
    })
    .collect();
    kafka_tool(&commands.join(" && "));
    let ran = check(&kafka, config, &["--output", "json"]);
    let after = findings(&ran);
    for (rule, topic) in [
        ("segment_below_limit", "segment"),
        ("recompressed", "packed"),
        ("small_batch_limit", "small"),
        ("family_member_too_small", "orders-dlt"),
        ("family_member_too_small", "orders-retry-0"),
        ("family_codec", "orders-retry-0"),
        ("decompressed_below_limit", "inflated"),
        ("override_above_broker", "wide"),
    ] {
        assert!(
            of(&after, rule, topic).is_empty(),
            "{rule} {topic}: {after:#?}"
        );
    }
    assert_eq!(ran.json()["unseen"], serde_json::json!([]));
    // Warnings are left, errors are not.
    assert_eq!(
        check(&kafka, config, &["--fail-on", "error"]).code,
        EXIT_FINE,
        "{after:#?}"
    );
    assert_eq!(
        check(&kafka, config, &["--fail-on", "warning"]).code,
        EXIT_FINDINGS
    );

    rules_are_compared_with_the_topics_there_are(&kafka);
    what_others_keep_for_themselves_is_found_by_the_limits_in_force_and_lifted(&kafka);
}

/// All advice that is a command, followed round by round: what was mended is not asked back, and it ends.
#[test]
fn no_advice_undoes_another() {
    let kafka = Kafka::start("4.3.0", KafkaOptions::default());
    // Every topic inherits less than clients batch.
    kafka.alter_broker_config("", &[("message.max.bytes", Some("600000"))]);
    for (topic, configs) in [
        ("plain", &[][..]),
        ("wide", &[("max.message.bytes", "4194304")]),
        // Stored with a codec of their own, main and member.
        (
            "bills",
            &[
                ("compression.type", "gzip"),
                ("max.message.bytes", "3000000"),
            ],
        ),
        (
            "bills-dlt",
            &[("compression.type", "lz4"), ("segment.bytes", "1048576")],
        ),
        ("notes", &[("compression.type", "zstd")]),
        ("notes-retry-0", &[]),
        ("notes-dlt", &[("max.message.bytes", "9000000")]),
    ] {
        kafka.create_topic(topic, 1, 1, configs);
    }
    let families = "families: {members: [{main: bills, dead_letter: [bills-dlt], writer_max_request_size: none}]}";
    // A topic's key, and the value that advice gave it last; `None`: taken back.
    let mut given: Vec<(String, Option<String>)> = Vec::new();
    for round in 0.. {
        let ran = check(&kafka, families, &["--output", "json"]);
        let found = findings(&ran);
        let commands: Vec<&str> = found
            .iter()
            // Which only says that it may be taken back.
            .filter(|finding| finding["rule"] != "override_above_broker")
            .filter_map(|finding| Some(&fix(finding)[fix(finding).find("kafka-configs.sh")?..]))
            .flat_map(|commands| commands.split(" && "))
            .filter(|command| command.contains("--entity-name "))
            .collect();
        if commands.is_empty() {
            assert!(round > 0, "there was something to mend: {found:#?}");
            let own = ["bills", "notes-dlt", "wide"];
            let topics = found
                .iter()
                .filter(|finding| finding["rule"] == "override_above_broker")
                .map(|finding| finding["topics"][0].as_str().unwrap());
            assert!(
                topics.eq(own),
                "only what was there before is a surprise: {found:#?}"
            );
            for gone in [
                "small_batch_limit",
                "recompressed",
                "family_codec",
                "family_member_too_small",
                "segment_below_limit",
            ] {
                let is_gone = found.iter().all(|finding| finding["rule"] != gone);
                assert!(is_gone, "{gone}: {found:#?}");
            }
            return;
        }
        assert!(round < 6, "it does not end: {commands:#?}\n{given:#?}");
        for command in commands {
            let after = |word: &str| {
                let (_, rest) = command.split_once(word)?;
                rest.split_whitespace().next()
            };
            let topic = after("--entity-name ").unwrap();
            let changes = match (after("--add-config "), after("--delete-config ")) {
                (Some(configs), _) => configs
                    .split(',')
                    .map(|config| config.split_once('=').unwrap())
                    .map(|(key, value)| (key, Some(value)))
                    .collect(),
                (None, Some(key)) => vec![(key, None)],
                _ => panic!("{command}"),
            };
            for (key, value) in changes {
                let place = format!("{topic} {key}");
                let earlier = given.iter().filter(|(known, _)| *known == place);
                let number = |value: &Option<String>| {
                    value.as_ref().and_then(|value| value.parse::<u64>().ok())
                };
                for (_, earlier) in earlier {
                    // Once raised, only ever raised further: a chain of families grows from its beginning.
                    let value = value.map(str::to_owned);
                    assert!(
                        *earlier == value || number(earlier) < number(&value) && earlier.is_some(),
                        "{place} was advised to be {earlier:?}, and then {value:?}"
                    );
                }
                given.push((place, value.map(str::to_owned)));
                kafka.alter_topic_config(topic, &[(key, value)]);
            }
        }
        // A broker applies and tells a change a moment later.
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
}

/// F2: whatever sets the limit, and followed: what was refused is stored.
fn what_others_keep_for_themselves_is_found_by_the_limits_in_force_and_lifted(kafka: &Kafka) {
    const KEPT: [&str; 6] = [
        "_schemas",
        "connect-offsets",
        "connect-status",
        "mm2-offset-syncs.west.internal",
        "connect-configs",
        "app-KSTREAM-STORE-0000000001-changelog",
    ];
    let created: Vec<_> = KEPT
        .iter()
        .take(4)
        .map(|topic| kafka.create_topic(topic, 1, 1, &[]))
        .collect();
    kafka.create_topic("__consumer_offsets", 1, 1, &[]);
    // Takes no more than what is allowed.
    kafka.create_topic(
        "app-small-changelog",
        1,
        1,
        &[("max.message.bytes", "60000")],
    );
    for (limits, setter) in [
        ("limits: {record_bytes: 64KiB}\n", "limits"),
        (
            "limits: {batch_bytes: 64KiB, value_bytes: 60KiB}\n",
            "limits",
        ),
        (
            "rules: [{name: all, topics: ['*'], limits: {estimate_bytes: 64KiB, ratio: 100}}]\n",
            "rule all",
        ),
        (
            "limits: {uncompressed_bytes: 64KiB}\nrules: [{name: internal, topics: ['*', /_.*/], limits: {headers_bytes: 1KiB}}]\n",
            "rule internal",
        ),
        (
            "rules: [{name: some, topics: ['*'], clients: {client_ids: ['connect*']}, limits: {record_bytes: 64KiB}}]\n",
            "rule some",
        ),
    ] {
        let ran = check(kafka, limits, &["--output", "json"]);
        let found = findings(&ran);
        for topic in KEPT.iter().chain(&["__consumer_offsets"]) {
            let finding = only(&found, "internal_topic", topic);
            assert_eq!(finding["values"][0]["of"], setter, "{finding:#}");
        }
        if !limits.contains("ratio") && !limits.contains("headers") {
            assert!(of(&found, "internal_topic", "app-small-changelog").is_empty());
        }
        // All that is said is done: rules before the others.
        let fixes = found
            .iter()
            .filter(|finding| finding["rule"] == "internal_topic")
            .map(|finding| {
                fix(finding)
                    .strip_prefix("As the first of the rules: ")
                    .unwrap()
            });
        // Each of the fixes speaks of its own topics; two need two names.
        let rules: Vec<String> = fixes
            .enumerate()
            .map(|(n, rule)| rule.replacen("{name: internal", &format!("{{name: internal-{n}x"), 1))
            .collect();
        let lifted = match limits.split_once("rules: [") {
            Some((before, after)) => format!("{before}rules: [{}, {after}", rules.join(", ")),
            None => format!("{limits}rules: [{}]\n", rules.join(", ")),
        };
        let ran = check(kafka, &lifted, &["--output", "json"]);
        let found = findings(&ran);
        let left: Vec<_> = found
            .iter()
            .filter(|finding| finding["rule"] == "internal_topic")
            .collect();
        assert!(left.is_empty(), "{lifted}{left:#?}");
        if setter == "rule some" {
            continue;
        }
        for (yaml, code) in [(limits, 10), (&*lifted, 0)] {
            let sizegate = Sizegate::start(kafka, yaml);
            let mut connection = Connection::open(sizegate.bootstrap());
            for topic in &created {
                let record = Record::of_random(70_000, 1)
                    .key("k")
                    .header("h", vec![b'x'; 2_000]);
                let sent = connection.produce(8, -1, &[Part::new(topic, batch([record]).build())]);
                assert_eq!(sent[0].code, code, "{yaml}: {sent:?}");
            }
        }
    }
}

fn rules_are_compared_with_the_topics_there_are(kafka: &Kafka) {
    for internal in [
        "app-KSTREAM-STORE-0000000001-changelog",
        "connect-configs",
        "heartbeats",
    ] {
        kafka.create_topic(internal, 1, 1, &[]);
    }
    let config = "rules:\n\
        - {name: all-orders, topics: ['orders*'], limits: {record_bytes: 64KiB}}\n\
        - {name: late, topics: ['/orders-(dlt|retry-0)/'], limits: {record_bytes: 1MiB}}\n\
        - {name: nobody, topics: [no-such-topic, 'none-*'], limits: {record_bytes: 1MiB}}\n\
        - {name: tiny, topics: [plain], limits: {batch_bytes: 64KiB}}\n\
        - {name: watched, topics: [heartbeats], limits: {record_bytes: 1KiB}, action: observe}\n\
        - {name: rest, topics: ['*'], limits: {record_bytes: 256KiB}}";
    let ran = check(kafka, config, &["--output", "json"]);
    let found = findings(&ran);
    let rule = |finding: &Value| finding["values"][0]["of"].clone();
    assert_eq!(
        rule(only(&found, "rule_matches_no_topic", "")),
        "rule nobody"
    );
    let late = only(&found, "rule_never_reached", "orders-dlt");
    assert_eq!(
        (rule(late), &late["severity"]),
        ("rule late".into(), &"error".into())
    );
    assert!(fix(late).contains("before \"all-orders\""), "{late}");
    let tiny = of(&found, "small_batch_limit", "");
    assert!(
        tiny.iter()
            .any(|finding| rule(finding) == "rule tiny"
                && fix(finding).contains("record_bytes: 65536")),
        "{tiny:?}"
    );
    for internal in ["app-KSTREAM-STORE-0000000001-changelog", "connect-configs"] {
        assert_eq!(rule(only(&found, "internal_topic", internal)), "rule rest");
    }
    assert!(
        of(&found, "internal_topic", "heartbeats").is_empty(),
        "its rule only observes"
    );
}

#[test]
fn brokers_that_do_not_fit_are_found() {
    let options = KafkaOptions::nodes(2)
        .property("socket.request.max.bytes", "1048576")
        .property("replica.fetch.max.bytes", "500000")
        .property("replica.fetch.response.max.bytes", "900000")
        .property("fetch.max.bytes", "700000");
    let kafka = Kafka::start("4.3.0", options);
    kafka.topic("plain", 1, &[]);
    // Case 22, and our own frame limit above the socket's.
    let found = findings(&check(&kafka, "", &["--output", "json"]));
    let socket = only(&found, "socket_below_limit", "");
    assert_eq!(socket["severity"], "error");
    for broker in ["broker 1", "broker 2"] {
        let value = value(socket, broker, "socket.request.max.bytes");
        assert_eq!(
            (&value["value"], &value["source"]),
            (&1_048_576.into(), &"static".into())
        );
    }
    assert!(
        fix(socket).contains("socket.request.max.bytes=1049612"),
        "{socket}"
    );
    let frame = only(&found, "frame_above_socket", "");
    assert!(
        fix(frame).starts_with("listener.frame_bytes: 1049612"),
        "what the brokers are to take, or it would be too small in its turn: {frame}"
    );
    let replica = of(&found, "replica_fetch_below_limit", "");
    assert_eq!(replica.len(), 2, "{replica:#?}");
    for finding in replica {
        assert_eq!(finding["severity"], "warning");
        assert!(
            finding["why"].as_str().unwrap().contains("since KIP-74"),
            "{finding}"
        );
    }
    only(&found, "fetch_below_limit", "");
    assert!(of(&found, "brokers_differ", "").is_empty());

    let narrow = "listener: {frame_bytes: 1MiB}";
    let found = findings(&check(&kafka, narrow, &["--output", "json"]));
    let topics = found
        .iter()
        .find(|finding| finding["rule"] == "frame_below_limit");
    assert!(
        topics.is_some_and(|finding| fix(finding).contains("1049612")),
        "{found:#?}"
    );

    kafka.alter_broker_config("1", &[("message.max.bytes", Some("2000000"))]);
    let found = crate::support::eventually(
        std::time::Duration::from_secs(60),
        "the change is seen",
        || {
            let found = findings(&check(&kafka, "", &["--output", "json"]));
            (!of(&found, "brokers_differ", "").is_empty()).then_some(found)
        },
    );
    let differ = only(&found, "brokers_differ", "");
    assert_eq!(
        value(differ, "broker 1", "message.max.bytes")["source"],
        "node"
    );
    assert_eq!(
        value(differ, "broker 2", "message.max.bytes")["source"],
        "default"
    );

    // A broker that does not answer is named, and the pipeline is not green. Of two controllers one is left, and one is
    // no majority: the dead broker stays in the metadata.
    kafka.kill(2);
    let ran = check(&kafka, "", &["--fail-on", "error", "--output", "json"]);
    assert_eq!(ran.code, EXIT_FAILED, "{ran:?}");
    let unseen = ran.json()["unseen"].clone();
    let what = unseen[0]["what"].as_str().unwrap_or_default();
    assert!(what.contains("broker 2 was not reached"), "{unseen:#}");
    // What the other one says is compared all the same.
    only(&findings(&ran), "socket_below_limit", "");
    let table = check(&kafka, "", &[]);
    assert_eq!(table.code, EXIT_FAILED, "{table:?}");
    assert!(table.out.contains("broker 2 was not reached"), "{table:?}");
}

#[test]
fn what_cannot_be_done_is_said_and_exits_with_2_or_64() {
    let nobody = "cluster: {bootstrap_servers: ['127.0.0.1:1']}\n";
    let down = command::sizegate(&["check", "--cluster"], nobody);
    assert_eq!((down.code, down.out.as_str()), (EXIT_FAILED, ""));
    assert!(
        down.err
            .starts_with("sizegate: the cluster could not be read: connect 127.0.0.1:1"),
        "{down:?}"
    );
    let json = command::sizegate(&["check", "--cluster", "--output", "json"], nobody);
    assert_eq!(
        (json.code, json.json()["ok"].clone()),
        (EXIT_FAILED, false.into())
    );
    let mistake = command::sizegate(&["check", "--cluster"], "mode: on\n");
    assert_eq!(mistake.code, EXIT_USAGE, "{mistake:?}");
    let alone = command::sizegate(&["check", "--fail-on", "error"], nobody);
    assert_eq!(
        alone.code, EXIT_USAGE,
        "--fail-on is for --cluster: {alone:?}"
    );
}
