//! Gate `config` as the users of real clients meet it: each shows the text, by each request that it can send.

use std::process::Command;

use crate::support::programs::script;
use crate::support::{KAFKA_VERSIONS, Kafka, Program, Sizegate, unique};

const RULE: &str = "\
rules:
  - name: bounded
    topics: ['gov-*']
    topic_config: {max_message_bytes: {min: 64KiB, max: 10MiB}}
    remedy: Ask the platform team.
";
const SENTENCE: &str = "max.message.bytes=20,971,520 is more than the 10,485,760 that rule \"bounded\" allows (by 10,485,760). Ask the \
     platform team.";

#[test]
fn every_client_shows_why_a_config_was_not_set() {
    for version in KAFKA_VERSIONS {
        let kafka = Kafka::shared(version);
        let sizegate = Sizegate::start(kafka, RULE);
        let clients = [
            ("Java", Program::java("Configs", version), "create set"),
            (
                "librdkafka",
                Program::python("configs.py").arg("client", "confluent"),
                "create set replace",
            ),
            (
                "kafka-python",
                Program::python("configs.py").arg("client", "kafka-python"),
                "create set replace",
            ),
            ("franz-go", Program::go("franzadmin"), "create set replace"),
            ("sarama", Program::go("saramaadmin"), "create set replace"),
        ];
        for (client, program, verbs) in clients {
            let (topic, other) = (unique("gov"), unique("gov"));
            let step = |verb: &str, topic: &str, bytes: u32| {
                format!("{verb}:{topic}:max.message.bytes:{bytes}")
            };
            // Something that passes first: the topic that is altered.
            let mut steps = vec![step("create", &topic, 2_000_000)];
            for verb in verbs.split(' ') {
                let name = if verb == "create" { &other } else { &topic };
                steps.push(step(verb, name, 20_971_520));
                steps.push(step(verb, name, 3_000_000));
            }
            let output = program
                .arg("bootstrap", sizegate.bootstrap())
                .arg("steps", steps.join(","))
                .run();
            assert_eq!(output.lines.len(), steps.len(), "{client}: {output:?}");
            for line in &output.lines {
                let step = line["step"].as_str().unwrap();
                let is_refused = step.ends_with(":20971520");
                assert_eq!(line["ok"], !is_refused, "{client}: {line}");
                if is_refused {
                    let shown = line["text"]
                        .as_str()
                        .unwrap_or_default()
                        .replace("\\\"", "\"");
                    assert!(shown.contains(SENTENCE), "{client}: {line}");
                    assert!(shown.contains("[gate=config "), "{client}: {line}");
                }
            }
        }
    }
}

/// Terraform's provider for Kafka, by the calls that it makes: an update shows the text, a creation only the code.
#[test]
fn terraforms_provider_shows_the_text_where_it_shows_any() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let sizegate = Sizegate::start(kafka, RULE);
    let (topic, other) = (unique("gov"), unique("gov"));
    let step = |verb: &str, topic: &str, bytes: u32| {
        format!("terraform-{verb}:{topic}:max.message.bytes:{bytes}")
    };
    let steps = [
        step("create", &topic, 2_000_000),
        step("update", &topic, 3_000_000),
        step("create", &other, 20_971_520),
        step("update", &topic, 20_971_520),
    ];
    let output = Program::go("saramaadmin")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("steps", steps.join(","))
        .run();
    let is_done: Vec<bool> = output.lines.iter().map(|line| line["ok"] == true).collect();
    assert_eq!(is_done, [true, true, false, false], "{output:?}");
    let shown = |at: usize| output.lines[at]["text"].as_str().unwrap_or_default();
    assert_eq!(
        shown(2),
        "kafka server: Request parameters do not satisfy the configured policy"
    );
    assert!(
        shown(3).replace("\\\"", "\"").contains(SENTENCE),
        "{output:?}"
    );
    // Whoever gets no text finds it in the log.
    sizegate.log_line(&["gate=config", &other, "20,971,520"]);
}

/// What brokers close on, sizegate closes on: the request says it has configs, and they are not where they should be.
#[test]
fn a_client_that_miswrites_its_request_fares_as_with_the_broker() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let sizegate = Sizegate::start(kafka, RULE);
    let topic = kafka.topic("gov", 1, &[]).name;
    let told = [kafka.bootstrap(), sizegate.bootstrap()].map(|bootstrap| {
        let output = Program::go("saramaadmin")
            .arg("bootstrap", bootstrap)
            .arg("version", "new")
            .arg(
                "steps",
                format!("replace:{topic}:max.message.bytes:20971520"),
            )
            .run();
        output.lines[0]["text"].clone()
    });
    assert_eq!(told, ["EOF", "EOF"]);
}

/// Kafka's own tools, by their main classes.
#[test]
fn kafkas_own_tools_show_why_a_config_was_not_set() {
    let version = KAFKA_VERSIONS[1];
    let kafka = Kafka::shared(version);
    let sizegate = Sizegate::start(kafka, RULE);
    let jars = script("kafka-libs.sh", &[version, "tools"]);
    let tool = |main: &str, args: &[&str]| {
        let output = Command::new("java")
            .args([
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                "-Xshare:auto",
                "-cp",
            ])
            .arg(format!("{}/*", jars.display()))
            .arg(main)
            .args(["--bootstrap-server", &sizegate.bootstrap()])
            .args(args)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    };
    let (topics, configs) = (
        "org.apache.kafka.tools.TopicCommand",
        "org.apache.kafka.tools.ConfigCommand",
    );
    let topic = unique("gov");
    let create = |bytes: &str| {
        tool(
            topics,
            &[
                "--create",
                "--topic",
                &topic,
                "--config",
                &format!("max.message.bytes={bytes}"),
            ],
        )
    };
    let (is_done, said) = create("20971520");
    assert!(!is_done && said.contains(SENTENCE), "{said}");
    let (is_done, said) = create("2000000");
    assert!(is_done, "{said}");
    let alter = |more: &str| {
        tool(
            configs,
            &[
                "--alter",
                "--entity-type",
                "topics",
                "--entity-name",
                &topic,
                "--add-config",
                more,
            ],
        )
    };
    let (is_done, said) = alter("max.message.bytes=20971520");
    assert!(!is_done && said.contains(SENTENCE), "{said}");
    let (is_done, said) = alter("max.message.bytes=3000000,retention.ms=60000");
    assert!(is_done, "{said}");
    let (is_done, said) = tool(
        configs,
        &[
            "--alter",
            "--entity-type",
            "topics",
            "--entity-name",
            &topic,
            "--delete-config",
            "max.message.bytes",
        ],
    );
    assert!(is_done, "{said}");
}
