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

    command::docs_show(&table.out.replace(&kafka.bootstrap(), "localhost:9092"));

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

    what_is_aligned_is_not_found_again_and_what_is_left_can_be_acknowledged(&kafka);
    a_chain_of_families_is_aligned_in_one_go(&kafka);
    families_in_a_circle_are_a_mistake_where_topics_close_it(&kafka);
    the_command_that_explain_prints_aligns(&kafka);
    what_offloads_is_planned_for_tickets(&kafka);

    // The dead letter fits now: the largest that the main topic takes, with all of its headroom.
    let sizegate = Sizegate::start(&kafka, &format!("families: {families}"));
    let mut connection = Connection::open(sizegate.bootstrap());
    let response = connection.produce(
        8,
        -1,
        &[Part::new(&dead_letters, batch_of_bytes(10_065_536).build())],
    );
    assert_eq!(response[0].code, 0, "{response:?}");
}

/// A ticket is small, whatever its main topic's own limit; an original has any size.
fn what_offloads_is_planned_for_tickets(kafka: &Kafka) {
    kafka.create_topic("loans", 1, 1, &[("max.message.bytes", "20000000")]);
    kafka.create_topic("loans-dlt", 1, 1, &[("max.message.bytes", "100000")]);
    let yaml = |topics: &str, redeem: bool| {
        format!(
            "cluster: {{bootstrap_servers: ['{}']}}\nfamilies: {{detect: false, members: [{{main: loans, dead_letter: [loans-dlt]}}]}}\n\
             claim_check: {{store: 'file:///nowhere', keys: [{{id: k1, secret: 'a secret of thirty-two bytes, yes'}}]}}\n\
             rules: [{{name: loans, topics: {topics}, action: offload, offload: {{above: 64KiB, redeem: {redeem}}}}}]\n",
            kafka.bootstrap()
        )
    };
    let align = |yaml: &str| command::sizegate(&["align", "--output", "json"], yaml);
    // 65,536, as much for key and headers of its own, 36 around these, a batch's head, and headroom.
    let ticket = 65_536 + 65_536 + 36 + 61 + 65_536;
    let expected = [(
        "loans-dlt".to_owned(),
        "max.message.bytes".to_owned(),
        100_000,
        ticket,
    )];
    for yaml in [yaml("[loans, loans-dlt]", true), yaml("[loans]", false)] {
        let planned = align(&yaml);
        assert_eq!(changes(&planned), expected, "{planned:?}");
        let reason = planned.json()["changes"][0]["reason"].to_string();
        assert!(reason.contains("comes here as a ticket"), "{reason}");
        let found = command::sizegate(&["check", "--cluster", "--output", "json"], &yaml);
        let too_small = (
            "family_member_too_small".to_owned(),
            vec!["loans-dlt".to_owned()],
        );
        let found = findings(&found);
        assert!(found.contains(&too_small), "{found:?}");
    }
    let originals = align(&yaml("[loans]", true));
    assert_eq!(changes(&originals), [], "{originals:?}");
    assert_eq!(
        originals.json()["not_planned"]["inline"],
        json!(["loans-dlt"])
    );
    assert_eq!(originals.code, FINDINGS);
    let found = findings(&command::sizegate(
        &["check", "--cluster", "--output", "json"],
        &yaml("[loans]", true),
    ));
    let inline = (
        "claim_member_inline".to_owned(),
        vec!["loans-dlt".to_owned()],
    );
    assert!(found.contains(&inline), "{found:?}");
}

fn findings(ran: &Ran) -> Vec<(String, Vec<String>)> {
    let json = ran.json();
    let findings = json["findings"]
        .as_array()
        .unwrap_or_else(|| panic!("{ran:?}"));
    let topics = |finding: &Value| {
        let topics = finding["topics"].as_array().unwrap().iter();
        topics
            .map(|topic| topic.as_str().unwrap().to_owned())
            .collect()
    };
    findings
        .iter()
        .map(|finding| {
            (
                finding["rule"].as_str().unwrap().to_owned(),
                topics(finding),
            )
        })
        .collect()
}

/// No advice undoes another's: what `align` set, `check --cluster` does not want back.
fn what_is_aligned_is_not_found_again_and_what_is_left_can_be_acknowledged(kafka: &Kafka) {
    let family = "{main: orders, retry: ['{main}-retry-*'], dead_letter: [orders-dlt]WRITER}";
    let yaml = |writer: &str, more: &str| {
        format!(
            "cluster: {{bootstrap_servers: ['{}']}}\nfamilies: {{detect: false, members: [{}]}}\n{more}",
            kafka.bootstrap(),
            family.replace("WRITER", writer)
        )
    };
    let check = |yaml: &str, arguments: &[&str]| {
        let arguments = [&["check", "--cluster"], arguments].concat();
        command::sizegate(&arguments, yaml)
    };
    // 10,000,014 of estimate, with headroom.
    let needed = "10065550";
    let found = check(&yaml("", ""), &["--output", "json"]);
    let json = found.json();
    let of_writer = json["findings"].as_array().unwrap().iter().find(|finding| {
        finding["rule"] == "family_writer_too_small" && finding["topics"][0] == "orders-dlt"
    });
    let fix = of_writer.unwrap_or_else(|| panic!("{json:#}"))["fix"]
        .as_str()
        .unwrap();
    assert!(
        fix.starts_with(&format!(
            "writer_max_request_size: {needed} (or none) in the family of orders"
        )),
        "{fix}"
    );
    let known = yaml(&format!(", writer_max_request_size: {needed}"), "");
    let left = findings(&check(&known, &["--output", "json"]));
    let of = |rule: &str| {
        let topics = left.iter().filter(|(found, _)| found == rule);
        topics
            .flat_map(|(_, topics)| topics.clone())
            .collect::<Vec<_>>()
    };
    for gone in ["family_member_too_small", "family_writer_too_small"] {
        assert!(of(gone).is_empty(), "{gone}: {left:?}");
    }
    // orders-dlt and orders-retry-1 are what their family needs; orders-retry-0 is twice that.
    assert_eq!(
        of("override_above_broker"),
        ["orders", "orders-retry-0", "payments", "payments-dlt"]
    );
    // A family by its names, aligned on request, is no surprise either.
    let detecting = known.replace("detect: false, ", "");
    let detected = findings(&check(&detecting, &["--output", "json"]));
    let about = |rule: &str| {
        let finding = (rule.to_owned(), vec!["payments-dlt".to_owned()]);
        detected.contains(&finding)
    };
    assert!(!about("override_above_broker") && !about("family_member_too_small"));
    assert!(about("family_writer_too_small"), "{detected:?}");
    assert_eq!(check(&known, &[]).code, FINDINGS);

    let rules: std::collections::BTreeSet<&str> = left.iter().map(|(rule, _)| &**rule).collect();
    let acknowledge = |wanted: &dyn Fn(&str) -> bool| -> Vec<String> {
        let wanted = rules.iter().filter(|rule| wanted(rule));
        wanted.map(|rule| format!("--ignore={rule}")).collect()
    };
    fn words(list: &[String]) -> Vec<&str> {
        list.iter().map(String::as_str).collect()
    }
    let ran = check(&known, &words(&acknowledge(&|_| true)));
    assert_eq!(ran.code, FINE, "{ran:?}");
    assert!(
        ran.out
            .contains("ignored override_above_broker  orders\n  reason --ignore\n")
            && ran.out.trim_end().ends_with(" ignored."),
        "{}",
        ran.out
    );
    // About one topic only: the others' still count.
    let mut some = acknowledge(&|rule| rule != "override_above_broker");
    some.push("--ignore=override_above_broker:orders*".to_owned());
    assert_eq!(check(&known, &words(&some)).code, FINDINGS);
    some.push("--ignore=override_above_broker:payments*".to_owned());
    assert_eq!(check(&known, &words(&some)).code, FINE);
    // The same in the configuration, with reasons; and what acknowledges nothing is told.
    let entries: Vec<String> = rules
        .iter()
        .map(|rule| format!("- {{finding: {rule}, reason: it is meant so}}"))
        .collect();
    let entries = format!(
        "ignore:\n{}\n- {{finding: family_circle, topic: orders, reason: once}}\n",
        entries.join("\n")
    );
    let ran = check(&format!("{known}{entries}"), &["--output", "json"]);
    let json = ran.json();
    assert_eq!(
        (ran.code, &json["ok"], &json["findings"]),
        (FINE, &json!(true), &json!([]))
    );
    assert_eq!(
        json["ignored"].as_array().unwrap().len(),
        left.len(),
        "{json:#}"
    );
    assert_eq!(json["ignored"][0]["reason"], "it is meant so");
    assert_eq!(
        json["advice"],
        json!([
            "ignore: there is no family_circle of orders to acknowledge any more (once): remove it"
        ])
    );
    let wrong = check(&known, &["--ignore", "override"]);
    assert_eq!(wrong.code, 64, "{wrong:?}");
    assert!(wrong.err.contains("`override_above_broker`"), "{wrong:?}");
}

/// A member that is a main topic itself: its own members need more, too.
fn a_chain_of_families_is_aligned_in_one_go(kafka: &Kafka) {
    kafka.create_topic("chain-a", 1, 1, &[("max.message.bytes", "3000000")]);
    kafka.create_topic("chain-b", 1, 1, &[]);
    kafka.create_topic("chain-c", 1, 1, &[("segment.bytes", "2000000")]);
    let families = "{detect: false, members: [{main: chain-b, dead_letter: [chain-c]}, {main: chain-a, retry: [chain-b]}]}";
    let applied = align(kafka, families, &["--apply", "--output", "json"]);
    let change = |topic: &str, key: &str, from, to| (topic.to_owned(), key.to_owned(), from, to);
    assert_eq!(
        (applied.code, changes(&applied)),
        (
            FINE,
            vec![
                change("chain-b", "max.message.bytes", 1_048_588, 3_065_536),
                change("chain-c", "segment.bytes", 2_000_000, 3_131_072),
                change("chain-c", "max.message.bytes", 1_048_588, 3_131_072),
            ]
        ),
        "{applied:?}"
    );
    let again = align(kafka, families, &["--apply"]);
    assert_eq!(
        (again.code, &*again.out),
        (FINE, "Every family is aligned: nothing to do.\n")
    );
    // Batches are left to the broker: that is no limit that could not be read.
    let left_alone = format!(
        "cluster: {{bootstrap_servers: ['{}']}}\nlimits: {{batch_bytes: none}}\nfamilies: {families}\n",
        kafka.bootstrap()
    );
    let ran = command::sizegate(&["align"], &left_alone);
    assert_eq!(ran.code, FINE, "{ran:?}");
}

fn families_in_a_circle_are_a_mistake_where_topics_close_it(kafka: &Kafka) {
    for topic in ["circle-a1", "circle-b1"] {
        kafka.create_topic(topic, 1, 1, &[]);
    }
    let families = "{detect: false, members: [{main: 'circle-a*', retry: ['circle-b*']}, {main: 'circle-b*', dead_letter: \
                    ['circle-a*']}]}";
    for _ in 0..2 {
        let ran = align(kafka, families, &["--apply"]);
        assert_eq!(ran.code, 64, "{ran:?}");
        assert!(
            ran.err.contains("in a circle") && ran.err.contains("circle-a1, circle-b1"),
            "{ran:?}"
        );
    }
    let yaml = format!(
        "cluster: {{bootstrap_servers: ['{}']}}\nfamilies: {families}\n",
        kafka.bootstrap()
    );
    let ran = command::sizegate(&["check", "--cluster", "--output", "json"], &yaml);
    let circle = (
        "family_circle".to_owned(),
        vec!["circle-a1".to_owned(), "circle-b1".to_owned()],
    );
    assert!(findings(&ran).contains(&circle), "{ran:?}");
    for topic in ["circle-a1", "circle-b1"] {
        kafka.delete_topic(topic);
    }
}

/// Pasted into a shell, it does what it is said to do.
fn the_command_that_explain_prints_aligns(kafka: &Kafka) {
    kafka.create_topic("bills", 1, 1, &[("max.message.bytes", "4000000")]);
    kafka.create_topic("bills_dead_letter_queue", 1, 1, &[]);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("it's a folder");
    std::fs::create_dir(&dir).unwrap();
    let file = dir.join("size gate.yaml");
    let minimal = format!(
        "cluster: {{bootstrap_servers: ['{}']}}\n",
        kafka.bootstrap()
    );
    std::fs::write(&file, &minimal).unwrap();
    let explain = |arguments: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_sizegate"))
            .args([
                "explain",
                "bills",
                "--value-bytes=3900000",
                "--max-request-size=10000000",
                "--output=json",
            ])
            .args(arguments)
            .output()
            .unwrap();
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        found["remedy"][4].clone()
    };
    let paste = |line: &str| {
        let script = format!(
            "sizegate() {{ '{}' \"$@\"; }}\n{line}\n",
            env!("CARGO_BIN_EXE_sizegate")
        );
        let output = std::process::Command::new("bash")
            .args(["-c", &script])
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
    };
    let taken = |bytes: &str| {
        kafka.alter_topic_config(
            "bills_dead_letter_queue",
            &[("max.message.bytes", Some(bytes))],
        );
    };
    let servers = kafka.bootstrap();
    for arguments in [
        &["--config", file.to_str().unwrap()][..],
        &["--bootstrap-servers", &servers],
    ] {
        taken("1048588");
        let advice = eventually(std::time::Duration::from_secs(60), "it is small", || {
            let advice = explain(arguments);
            (advice["state"] == "change").then_some(advice)
        });
        let line = advice["command"].as_str().unwrap();
        assert!(line.ends_with(" --detected --apply"), "{line}");
        paste(line);
        let advice = explain(arguments);
        assert_eq!(
            (&advice["state"], &advice["command"]),
            (&json!("look"), &Value::Null),
            "what is left is its writer: {advice:#}"
        );
    }
    // A configured family needs no `--detected`, and the command does not have it.
    let family = "families: {members: [{main: bills, dead_letter: [bills_dead_letter_queue], writer_max_request_size: none}]}\n";
    std::fs::write(&file, format!("{minimal}{family}")).unwrap();
    taken("1048588");
    let arguments = ["--config", file.to_str().unwrap()];
    let advice = eventually(std::time::Duration::from_secs(60), "it is small", || {
        let advice = explain(&arguments);
        (advice["state"] == "change").then_some(advice)
    });
    let line = advice["command"].as_str().unwrap();
    assert!(line.ends_with(".yaml' --apply"), "{line}");
    paste(line);
    assert_eq!(explain(&arguments)["state"], "fine");
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
            .contains("nothing was changed: orders-dlt: TOPIC_AUTHORIZATION_FAILED"),
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
