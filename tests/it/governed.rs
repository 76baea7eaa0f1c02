//! Gate `config` in front of real brokers: what a rule forbids is not set, by whichever request, and what would open a
//! gap in a family neither; everything else goes on as it came.

use std::time::Duration;

use crate::support::client::text;
use crate::support::process::new_dir;
use crate::support::scripted::{Broker, Step};
use crate::support::{
    Connection, KAFKA_VERSIONS, Kafka, KafkaOptions, Sizegate, eventually, unique,
};
use kafka_protocol::messages::alter_configs_request::{
    AlterConfigsResource as Replaced, AlterableConfig as ReplacedConfig,
};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource as Changed, AlterableConfig as ChangedConfig,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, ApiKey, CreateTopicsRequest, CreateTopicsResponse, DescribeConfigsRequest,
    IncrementalAlterConfigsRequest, TopicName,
};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(60);

const RULE: &str = "\
rules:
  - name: bounded
    topics: ['gov-*']
    topic_config:
      max_message_bytes: {min: 64KiB, max: 10MiB}
      segment_bytes: {min: 16MiB}
      compression_type: [producer, zstd]
";

/// Error code and text of one entry.
type Told = (i16, String);

type Configs<'a> = &'a [(&'a str, Option<&'a str>)];

fn create_request(topics: &[(&str, Configs<'_>)], validate_only: bool) -> CreateTopicsRequest {
    let topics = topics.iter().map(|(name, configs)| {
        let configs = configs.iter().map(|(key, value)| {
            CreatableTopicConfig::default()
                .with_name(text(key))
                .with_value(value.map(text))
        });
        CreatableTopic::default()
            .with_name(TopicName(text(name)))
            .with_num_partitions(1)
            .with_replication_factor(1)
            .with_configs(configs.collect())
    });
    CreateTopicsRequest::default()
        .with_topics(topics.collect())
        .with_timeout_ms(30_000)
        .with_validate_only(validate_only)
}

fn create(connection: &mut Connection, version: i16, topics: &[(&str, Configs<'_>)]) -> Vec<Told> {
    let response = connection.ask(&create_request(topics, false), version);
    let told = topics.iter().map(|(name, _)| {
        let found: Vec<_> = response
            .topics
            .iter()
            .filter(|topic| &*topic.name.0 == *name)
            .collect();
        assert_eq!(found.len(), 1, "one answer for {name}: {response:?}");
        let message = found[0].error_message.as_deref().unwrap_or_default();
        (found[0].error_code, message.to_owned())
    });
    let told: Vec<Told> = told.collect();
    assert_eq!(response.topics.len(), topics.len());
    told
}

/// Operation, key, value.
type Ops<'a> = &'a [(i8, &'a str, Option<&'a str>)];

fn change(
    connection: &mut Connection,
    version: i16,
    resources: &[(i8, &str, Ops<'_>)],
    validate_only: bool,
) -> Vec<Told> {
    let all = resources.iter().map(|(kind, name, ops)| {
        let configs = ops.iter().map(|(operation, key, value)| {
            ChangedConfig::default()
                .with_name(text(key))
                .with_config_operation(*operation)
                .with_value(value.map(text))
        });
        Changed::default()
            .with_resource_type(*kind)
            .with_resource_name(text(name))
            .with_configs(configs.collect())
    });
    let request = IncrementalAlterConfigsRequest::default()
        .with_resources(all.collect())
        .with_validate_only(validate_only);
    let response = connection.ask(&request, version);
    assert_eq!(response.responses.len(), resources.len(), "{response:?}");
    let told = resources.iter().map(|(kind, name, _)| {
        let mut found = response.responses.iter();
        let found = found.find(|one| one.resource_type == *kind && &*one.resource_name == *name);
        let found = found.unwrap_or_else(|| panic!("no response for {name}: {response:?}"));
        let message = found.error_message.as_deref().unwrap_or_default();
        (found.error_code, message.to_owned())
    });
    told.collect()
}

/// One topic by IncrementalAlterConfigs.
fn set(connection: &mut Connection, topic: &str, ops: Ops<'_>) -> Told {
    change(connection, 1, &[(2, topic, ops)], false).remove(0)
}

fn replace(connection: &mut Connection, version: i16, topic: &str, configs: Configs<'_>) -> Told {
    let configs = configs.iter().map(|(key, value)| {
        ReplacedConfig::default()
            .with_name(text(key))
            .with_value(value.map(text))
    });
    let resource = Replaced::default()
        .with_resource_type(2)
        .with_resource_name(text(topic))
        .with_configs(configs.collect());
    let request = AlterConfigsRequest::default().with_resources(vec![resource]);
    let response = connection.ask(&request, version);
    assert_eq!(response.responses.len(), 1);
    let found = &response.responses[0];
    let message = found.error_message.as_deref().unwrap_or_default();
    (found.error_code, message.to_owned())
}

/// What the broker itself says of a config, and whether it is the topic's own.
fn value(kafka: &Kafka, topic: &str, key: &str) -> (String, bool) {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(text(topic))
        .with_configuration_keys(Some(vec![text(key)]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let response = Connection::open(kafka.bootstrap()).ask(&request, 4);
    let config = &response.results[0].configs[0];
    let value = config.value.as_deref().unwrap_or_default().to_owned();
    (value, config.config_source == 1)
}

fn exists(kafka: &Kafka, topic: &str) -> bool {
    let mut connection = Connection::open(kafka.bootstrap());
    crate::support::admin::metadata(&mut connection, &[topic]).topics[0].error_code == 0
}

fn is_refused((code, text): &Told, parts: &[&str]) {
    assert_eq!(*code, 44, "{text}");
    for part in parts {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.len() <= 1024 && text.ends_with(']'), "{text}");
}

#[test]
fn a_topic_is_not_created_against_its_rule_and_its_neighbours_are() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(kafka, RULE);
        let mut connection = Connection::open(sizegate.bootstrap());
        for version in 2..=7 {
            let names: Vec<String> = ["gov-a", "gov-b", "gov-c", "free", "gov-d"]
                .map(unique)
                .into();
            let told = create(
                &mut connection,
                version,
                &[
                    (&names[0], &[("max.message.bytes", Some("10485761"))]),
                    (
                        &names[1],
                        &[
                            ("max.message.bytes", Some("10485760")),
                            ("retention.ms", Some("1000")),
                        ],
                    ),
                    (
                        &names[2],
                        &[
                            ("segment.bytes", Some("16777215")),
                            ("compression.type", Some("gzip")),
                        ],
                    ),
                    (&names[3], &[("max.message.bytes", Some("10485761"))]),
                    // It inherits what the rule allows.
                    (&names[4], &[]),
                ],
            );
            is_refused(
                &told[0],
                &[
                    &format!(
                        "sizegate refused to create {}: max.message.bytes=10,485,761 is more than the 10,485,760 that rule \"bounded\" allows (by 1).",
                        names[0]
                    ),
                    "Set max.message.bytes to 10485760 at most",
                    "[gate=config key=max.message.bytes size_bytes=10485761 limit_bytes=10485760 source=rule bound=max rule=bounded topic=gov-a",
                ],
            );
            is_refused(
                &told[2],
                &[
                    "segment.bytes=16,777,215 is less than the 16,777,216 that rule \"bounded\" asks for",
                    "And compression.type=gzip is none of what rule \"bounded\" allows: producer, zstd.",
                ],
            );
            let codes: Vec<i16> = told.iter().map(|(code, _)| *code).collect();
            assert_eq!(codes, [44, 0, 44, 0, 0], "{version}: {told:?}");
            for (name, is_there) in names.iter().zip([false, true, false, true, true]) {
                let settled = || (exists(kafka, name) == is_there).then_some(());
                eventually(PATIENCE, &format!("{name}: {is_there}"), settled);
            }
        }
        // All refused: nothing is asked of the broker.
        let name = unique("gov");
        let told = create(
            &mut connection,
            7,
            &[(&name, &[("segment.bytes", Some("14"))])],
        );
        is_refused(&told[0], &["segment.bytes=14"]);
        assert!(!exists(kafka, &name));
        sizegate.log_line(&["gate=config", "error_code=44", &name]);
        let listed = sizegate.json(&format!("/api/v1/refusals?topic={name}&gate=config"));
        assert_eq!(listed["refusals"][0]["limit_bytes"], 16_777_216, "{listed}");
        let metrics = sizegate.metrics();
        let requests = |verdict| metrics.sum("config_requests_total", &[("verdict", verdict)]);
        assert_eq!((requests("partial"), requests("refused")), (6.0, 1.0));
    }
}

#[test]
fn the_api_shows_what_a_topics_rule_lets_requests_set() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[0]);
    let name = kafka.topic("gov-shown", 1, &[]).name;
    let codecs = "    codecs: {allow: [zstd, snappy], above: 100KiB}\n";
    let sizegate = Sizegate::start(kafka, &format!("{RULE}{codecs}"));
    let shown = eventually(PATIENCE, "the topic is known", || {
        let listed = sizegate.json(&format!("/api/v1/topics?topic={name}"));
        listed["topics"].get(0).cloned()
    });
    assert_eq!(
        shown["topic_config"],
        json!({
            "max_message_bytes": {"min": "64KiB", "max": "10MiB"}, "segment_bytes": {"min": "16MiB"},
            "compression_type": ["producer", "zstd"], "brokers": false,
        })
    );
    assert_eq!(
        shown["codecs"],
        json!({"allow": ["zstd", "snappy"], "above": "100KiB", "unless_incompressible": true})
    );
    let free = sizegate.json("/api/v1/topics");
    let free = free["topics"].as_array().unwrap().iter();
    let mut free = free.filter(|topic| topic["rule"].is_null());
    assert!(free.all(|topic| topic["topic_config"].is_null() && topic["codecs"].is_null()));
}

#[test]
fn a_config_is_not_altered_against_its_rule_by_any_operation() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(kafka, RULE);
        let topic = kafka
            .topic("gov", 1, &[("max.message.bytes", "2000000")])
            .name;
        let mut connection = Connection::open(sizegate.bootstrap());
        let c = &mut connection;
        let max = "max.message.bytes";
        for version in [0, 1] {
            for (operation, key, value, code) in [
                (0, max, Some("65535"), 44),
                (0, max, Some(" +10485761 "), 44),
                (0, max, Some("65536"), 0),
                // The broker's default is within the rule.
                (1, max, None, 0),
                (0, "compression.type", Some("lz4"), 44),
                (0, "compression.type", Some("zstd"), 0),
                (0, "retention.ms", Some("60000"), 0),
                (2, "cleanup.policy", Some("compact"), 0),
                (3, "cleanup.policy", Some("compact"), 0),
                (0, "no.such.config", Some("1"), 40),
                (0, max, Some("much"), 40),
                (0, max, Some("-1"), 40),
                // Brokers take these for lists alone.
                (2, max, Some("20000000"), 40),
                (3, max, Some("20000000"), 40),
            ] {
                let ops = [(operation, key, value)];
                let told = change(c, version, &[(2, &topic, &ops)], false).remove(0);
                assert_eq!(told.0, code, "{operation} {key} {value:?}: {told:?}");
                assert_eq!(told.1.contains("sizegate"), code == 44, "{told:?}");
            }
        }
        assert_eq!(value(kafka, &topic, "compression.type").0, "zstd");
        // What replaces everything drops what it does not name.
        for version in 0..=2 {
            let told = replace(c, version, &topic, &[(max, Some("20000000"))]);
            is_refused(&told, &["max.message.bytes=20,000,000"]);
            assert_eq!(replace(c, version, &topic, &[(max, Some("3000000"))]).0, 0);
        }
        let settled = || (value(kafka, &topic, max).0 == "3000000").then_some(());
        eventually(PATIENCE, "the last one is in force", settled);
        // A rehearsal is answered as the performance would be.
        let ops = [(0, max, Some("20000000"))];
        let told = change(c, 1, &[(2, &topic, &ops)], true).remove(0);
        is_refused(&told, &["max.message.bytes=20,000,000"]);
        let told = change(c, 1, &[(2, &topic, &[(0, max, Some("4000000"))])], true).remove(0);
        assert_eq!(told.0, 0);
        assert_eq!(value(kafka, &topic, max).0, "3000000");
        // Of several, the guilty one alone; and what is nobody's is the broker's.
        let other = kafka.topic("free", 1, &[]).name;
        let told = change(
            c,
            1,
            &[
                (2, &other, &[(0, max, Some("20000000"))]),
                (
                    2,
                    &topic,
                    &[(0, "retention.ms", Some("1")), (0, max, Some("20000000"))],
                ),
                (2, "no-such-topic", &[(0, max, Some("20000000"))]),
            ],
            false,
        );
        assert_eq!((told[0].0, told[1].0, told[2].0), (0, 44, 3), "{told:?}");
        eventually(PATIENCE, "it is in force", || {
            (value(kafka, &other, max).0 == "20000000").then_some(())
        });
        assert_ne!(value(kafka, &topic, "retention.ms").0, "1");
        // Named twice, a resource is refused by the broker: none of its entries gets past the gate alone.
        let request = IncrementalAlterConfigsRequest::default().with_resources(
            [Some("3000001"), Some("20000000")]
                .map(|bytes| {
                    Changed::default()
                        .with_resource_type(2)
                        .with_resource_name(text(&topic))
                        .with_configs(vec![
                            ChangedConfig::default()
                                .with_name(text(max))
                                .with_value(bytes.map(text)),
                        ])
                })
                .to_vec(),
        );
        let response = c.ask(&request, 1);
        assert_eq!(response.responses.len(), 1);
        assert_eq!(response.responses[0].error_code, 44);
        assert_eq!(value(kafka, &topic, max).0, "3000000");
    }
}

/// The broker's defaults are what a topic has without an override: brokers of their own, as these are changed.
#[test]
fn what_is_inherited_counts_for_deletions_and_new_topics() {
    let options = KafkaOptions::default().property("message.max.bytes", "50000");
    let kafka = &Kafka::start(KAFKA_VERSIONS[1], options);
    let sizegate = Sizegate::start(kafka, RULE);
    let mut connection = Connection::open(sizegate.bootstrap());
    let c = &mut connection;
    let max = "max.message.bytes";
    let inherits = "max.message.bytes=50,000, which it would inherit, is less than the 65,536";
    let name = unique("gov");
    // On a cluster without a topic, too.
    is_refused(
        &create(c, 7, &[(&name, &[])])[0],
        &[inherits, "size_bytes=50000"],
    );
    is_refused(&create(c, 7, &[(&name, &[(max, None)])])[0], &[inherits]);
    assert_eq!(create(c, 7, &[(&name, &[(max, Some("70000"))])])[0].0, 0);
    // It exists: no rule is broken by a topic that is not created.
    let again = create(c, 7, &[(&name, &[(max, Some("1"))])]).remove(0);
    assert_eq!(again, (36, format!("Topic '{name}' already exists.")));
    for (operation, value) in [(1, None), (0, None)] {
        let told = set(c, &name, &[(operation, max, value)]);
        is_refused(
            &told,
            &["which would be inherited without the override, is less than"],
        );
    }
    is_refused(
        &replace(c, 2, &name, &[("retention.ms", Some("60000"))]),
        &["max.message.bytes=50,000, which would be inherited without the override"],
    );
    assert_eq!(value(kafka, &name, max), ("70000".to_owned(), true));
    // The default of all brokers counts as it is now.
    kafka.alter_broker_config("", &[("message.max.bytes", Some("80000"))]);
    eventually(PATIENCE, "the new default is inherited", || {
        let told = set(c, &name, &[(1, max, None)]);
        (told.0 == 0).then_some(())
    });
    let settled = || (value(kafka, &name, max) == ("80000".to_owned(), false)).then_some(());
    eventually(PATIENCE, "the override is gone", settled);
    // Nothing that the request does not touch is judged.
    assert_eq!(set(c, &name, &[(0, "retention.ms", Some("60000"))]).0, 0);
}

#[test]
fn brokers_are_held_to_a_rule_that_says_so() {
    let kafka = &Kafka::start(KAFKA_VERSIONS[1], KafkaOptions::default());
    let free = Sizegate::start(kafka, RULE);
    let held = Sizegate::start(kafka, &format!("{RULE}      brokers: true\n"));
    let max = "message.max.bytes";
    let mut connection = Connection::open(held.bootstrap());
    let c = &mut connection;
    let mut alter = |name: &str, ops: Ops<'_>| change(c, 1, &[(4, name, ops)], false).remove(0);
    for name in ["", "1"] {
        is_refused(
            &alter(name, &[(0, max, Some("20000000"))]),
            &[
                "message.max.bytes=20,000,000 is more than the 10,485,760 that rule \"bounded\" allows",
                if name.is_empty() {
                    "sizegate refused the configs of all brokers: "
                } else {
                    "sizegate refused the configs of broker 1: "
                },
                "[gate=config key=message.max.bytes size_bytes=20000000 limit_bytes=10485760 source=rule",
            ],
        );
        assert_eq!(alter(name, &[(0, max, Some("2000000"))]).0, 0);
        is_refused(
            &alter(name, &[(0, "compression.type", Some("gzip"))]),
            &["compression.type=gzip"],
        );
        is_refused(
            &alter(name, &[(0, "log.segment.bytes", Some("1048576"))]),
            &["log.segment.bytes=1,048,576"],
        );
    }
    // Broker 1's own stands over the default of all; below both is the built-in one.
    assert_eq!(alter("1", &[(1, max, None)]).0, 0);
    let mut past = Connection::open(free.bootstrap());
    let told = change(
        &mut past,
        1,
        &[(4, "", &[(0, max, Some("20000000"))])],
        false,
    );
    assert_eq!(told[0].0, 0, "where no rule says so, brokers are nobody's");
    let mut other = Connection::open(free.bootstrap());
    let told = change(
        &mut other,
        1,
        &[(4, "1", &[(0, max, Some("3000000"))])],
        false,
    );
    assert_eq!(told[0].0, 0);
    eventually(
        PATIENCE,
        "the deletion would let 20,000,000 through",
        || {
            let told = alter("1", &[(1, max, None)]);
            (told.0 == 44
                && told
                    .1
                    .contains("message.max.bytes=20,000,000, which would be inherited"))
            .then_some(())
        },
    );
}

#[test]
fn observing_passes_and_tells() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[0]);
    let rule = RULE.replace("    topics:", "    action: observe\n    topics:");
    let mode = format!("mode: observe\n{RULE}");
    for yaml in [rule, mode] {
        let sizegate = Sizegate::start(kafka, &yaml);
        let mut connection = Connection::open(sizegate.bootstrap());
        let name = unique("gov");
        let told = create(
            &mut connection,
            7,
            &[(&name, &[("max.message.bytes", Some("20000000"))])],
        );
        assert_eq!(told[0].0, 0);
        sizegate.log_line(&["sizegate would refuse to create", &name, "action=observe"]);
        let metrics = sizegate.metrics();
        let observed = metrics.sum("config_requests_total", &[("verdict", "observed")]);
        assert_eq!(observed, 1.0);
    }
}

#[test]
fn requests_wait_their_turn_and_nothing_is_lost_around_a_refusal() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let sizegate = Sizegate::start(kafka, RULE);
    let mut connection = Connection::open(sizegate.bootstrap());
    let names: Vec<String> = (0..30).map(|_| unique("gov")).collect();
    let mut ids = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let configs: Configs<'_> = match at % 3 {
            0 => &[("max.message.bytes", Some("1"))],
            1 => &[
                ("max.message.bytes", Some("70000")),
                ("segment.bytes", Some("20000000")),
                ("compression.type", Some("zstd")),
            ],
            // What it inherits must be read first.
            _ => &[],
        };
        ids.push(connection.send(
            &create_request(&[(name, configs)], false),
            5 + (at % 3) as i16,
        ));
    }
    for (at, name) in names.iter().enumerate() {
        let version = 5 + (at % 3) as i16;
        let (id, response) =
            connection.receive::<kafka_protocol::messages::CreateTopicsResponse>(version);
        let topic = &response.topics[0];
        let code = if at % 3 == 0 { 44 } else { 0 };
        assert_eq!(
            (id, topic.error_code, &*topic.name.0),
            (ids[at], code, name.as_str())
        );
    }
}

/// A main topic of 1 MiB and its dead-letter topic with room to spare.
struct Pair {
    main: String,
    dlt: String,
}

const MAX: &str = "max.message.bytes";

impl Pair {
    fn new(kafka: &Kafka) -> Self {
        let main = kafka.topic("fam", 1, &[(MAX, "1000000")]).name;
        let dlt = format!("{main}-dlt");
        kafka.create_topic(&dlt, 1, 1, &[(MAX, "1065536")]);
        Self { main, dlt }
    }
}

fn families(main: &str, alignment: &str) -> String {
    format!(
        "families:\n  members:\n    - {{main: '{main}', dead_letter: ['{{main}}-dlt'], retry: ['{{main}}-retry-*'], alignment: {alignment}}}\n"
    )
}

#[test]
fn a_change_that_would_open_a_gap_in_a_family_says_what_to_change_first() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let Pair { main, dlt } = Pair::new(kafka);
        let sizegate = Sizegate::start(kafka, &families(&main, "enforce"));
        let mut connection = Connection::open(sizegate.bootstrap());
        let c = &mut connection;
        // The main topic raised above what its member takes.
        let told = set(c, &main, &[(0, MAX, Some("2000000"))]);
        is_refused(
            &told,
            &[
                &format!(
                    "with max.message.bytes=2,000,000 it would take what {dlt}, a member of its family, does not: that takes 1,065,536, less 65,536 of headroom."
                ),
                &format!("First raise max.message.bytes of {dlt} to 2065536, then this topic"),
                &format!(
                    "[gate=config key=max.message.bytes size_bytes=2000000 limit_bytes=1000000 source=family member={dlt} headroom_bytes=65536 topic={main}"
                ),
            ],
        );
        // The member lowered, below what it needs by one byte; its segments likewise.
        let told = set(c, &dlt, &[(0, MAX, Some("1065535"))]);
        is_refused(
            &told,
            &[
                &format!(
                    "max.message.bytes=1,065,535 is less than its main topic {main} needs of it: 1,000,000 and 65,536 of headroom. Set max.message.bytes to 1065536 at least; or first lower max.message.bytes of {main} to 999999, then this."
                ),
                &format!("source=family main={main}"),
            ],
        );
        let told = set(c, &dlt, &[(0, "segment.bytes", Some("1048576"))]);
        is_refused(
            &told,
            &["segment.bytes=1,048,576 is less than its main topic"],
        );
        // Its override taken away.
        is_refused(
            &set(c, &dlt, &[(1, MAX, None)]),
            &["max.message.bytes=1,048,588 is less than"],
        );
        is_refused(
            &replace(c, 2, &dlt, &[]),
            &["max.message.bytes=1,048,588 is less than"],
        );
        // Another codec than its main topic.
        let told = set(c, &dlt, &[(0, "compression.type", Some("gzip"))]);
        is_refused(
            &told,
            &[
                "First set compression.type=gzip on ",
                "value=gzip source=family",
            ],
        );
        // In the order of the text it works: member, then main topic; and downwards the other way round.
        for (topic, bytes) in [
            (&dlt, "2065536"),
            (&main, "2000000"),
            (&main, "500000"),
            (&dlt, "565536"),
        ] {
            let told = set(c, topic, &[(0, MAX, Some(bytes))]);
            assert_eq!(told.0, 0, "{topic} {bytes}: {told:?}");
        }
        for topic in [&main, &dlt] {
            let told = set(c, topic, &[(0, "compression.type", Some("gzip"))]);
            assert_eq!(told.0, 0, "{topic}: {told:?}");
        }
        // Both in one request: what one would open the other closes.
        let told = change(
            c,
            1,
            &[
                (2, &main, &[(0, MAX, Some("900000"))]),
                (2, &dlt, &[(0, MAX, Some("965536"))]),
            ],
            false,
        );
        assert_eq!((told[0].0, told[1].0), (0, 0), "{told:?}");
        // A new member is judged by its name: beside its main topic, and with it.
        let retry = format!("{main}-retry-1");
        let told = create(
            c,
            7,
            &[(
                &retry,
                &[(MAX, Some("965535")), ("compression.type", Some("gzip"))],
            )],
        )
        .remove(0);
        is_refused(
            &told,
            &[&format!(
                "sizegate refused to create {retry}: max.message.bytes=965,535 is less than its main topic {main} needs of it: 900,000 and 65,536 of headroom. Create it with max.message.bytes=965536."
            )],
        );
        let told = create(
            c,
            7,
            &[(
                &retry,
                &[(MAX, Some("965536")), ("compression.type", Some("gzip"))],
            )],
        );
        assert_eq!(told[0].0, 0, "{told:?}");
        // What is wrong already may stay, and may get better; it may not get worse.
        kafka.alter_topic_config(&retry, &[(MAX, Some("100000"))]);
        eventually(PATIENCE, "the gap is there", || {
            (value(kafka, &retry, MAX).0 == "100000").then_some(())
        });
        assert_eq!(set(c, &retry, &[(0, MAX, Some("200000"))]).0, 0);
        assert_eq!(set(c, &retry, &[(0, MAX, Some("150000"))]).0, 44);
        assert_eq!(set(c, &main, &[(0, MAX, Some("800000"))]).0, 0);
        assert_eq!(set(c, &main, &[(0, "retention.ms", Some("60000"))]).0, 0);
    }
}

#[test]
fn a_whole_family_is_created_at_once_and_only_what_does_not_fit_is_left_out() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let stem = unique("whole");
    let sizegate = Sizegate::start(kafka, &families(&format!("{stem}-?"), "enforce"));
    let mut connection = Connection::open(sizegate.bootstrap());
    let (main, dlt, retry) = (
        format!("{stem}-a"),
        format!("{stem}-a-dlt"),
        format!("{stem}-a-retry-1"),
    );
    let told = create(
        &mut connection,
        7,
        &[
            (&dlt, &[]),
            (&main, &[(MAX, Some("2000000"))]),
            (&retry, &[(MAX, Some("2065536"))]),
        ],
    );
    is_refused(
        &told[0],
        &[
            &format!("sizegate refused to create {dlt}: max.message.bytes=1,048,588"),
            "Create it with max.message.bytes=2065536.",
        ],
    );
    assert_eq!((told[1].0, told[2].0), (0, 0), "{told:?}");
}

#[test]
fn a_family_that_only_warns_lets_the_change_pass_and_tells() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let Pair { main, dlt } = Pair::new(kafka);
    let sizegate = Sizegate::start(kafka, &families(&main, "warn"));
    let mut connection = Connection::open(sizegate.bootstrap());
    assert_eq!(
        set(&mut connection, &main, &[(0, MAX, Some("2000000"))]).0,
        0
    );
    sizegate.log_line(&[
        "would refuse the configs of",
        &main,
        "source=family",
        "action=observe",
    ]);
    let listed = sizegate.json(&format!("/api/v1/refusals?topic={main}&gate=config"));
    assert!(
        listed["refusals"][0]["text"]
            .as_str()
            .unwrap()
            .contains(&dlt),
        "{listed}"
    );
}

/// `align --apply` through the proxy itself: it raises members, which never opens a gap.
#[test]
fn align_passes_the_gate() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[0]);
    let Pair { main, dlt } = Pair::new(kafka);
    kafka.alter_topic_config(&dlt, &[(MAX, Some("300000"))]);
    let yaml = families(&main, "enforce");
    let sizegate = Sizegate::start(kafka, &yaml);
    let file = file(sizegate.bootstrap(), &yaml);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sizegate"))
        .args(["align", "--apply", "--config"])
        .arg(&*file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let settled = || (value(kafka, &dlt, MAX).0 == "1065536").then_some(());
    eventually(PATIENCE, "it is raised", settled);
}

/// A configuration for commands, gone afterwards.
fn file(bootstrap: impl std::fmt::Display, yaml: &str) -> tempfile::TempPath {
    let config = format!("cluster: {{bootstrap_servers: ['{bootstrap}']}}\n{yaml}");
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    std::fs::write(file.path(), config).unwrap();
    file.into_temp_path()
}

/// Exit code and what it printed.
fn sizegate(args: &[&str], file: &std::path::Path) -> (Option<i32>, String) {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sizegate"))
        .args(args)
        .arg("--config")
        .arg(file)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn explain_tells_beforehand_what_the_proxy_would_say() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let Pair { main, dlt } = Pair::new(kafka);
    let governed = kafka.topic("gov", 1, &[(MAX, "2000000")]).name;
    let file = file(
        kafka.bootstrap(),
        &format!("{RULE}{}", families(&main, "enforce")),
    );
    let new = unique("gov");
    for (topic, set, code, parts) in [
        (
            &governed,
            "max.message.bytes=20971520",
            1,
            vec![
                "refused: sizegate refused the configs of ",
                "more than the 10,485,760",
            ],
        ),
        (&governed, "max.message.bytes=3000000", 0, vec!["passes: "]),
        (&governed, "max.message.bytes=", 0, vec!["passes: "]),
        (
            &governed,
            "retention.ms=1",
            0,
            vec!["not governed by anything: retention.ms"],
        ),
        (
            &new,
            "max.message.bytes=20971520",
            1,
            vec!["sizegate refused to create "],
        ),
        (&new, "max.message.bytes=2000000", 0, vec!["passes: "]),
        (
            &main,
            "max.message.bytes=2000000",
            1,
            vec!["First raise max.message.bytes of", "to 2065536"],
        ),
        (
            &dlt,
            "max.message.bytes=100",
            1,
            vec!["is less than its main topic"],
        ),
        (&dlt, "max.message.bytes=5000000", 0, vec!["passes: "]),
        (
            &governed,
            "max.message.bytes",
            64,
            vec!["--set max.message.bytes is not KEY=VALUE"],
        ),
    ] {
        let (exit, said) = sizegate(&["explain", topic, "--set", set], &file);
        assert_eq!(exit, Some(code), "{topic} {set}: {said}");
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
        }
    }
    let (_, said) = sizegate(
        &[
            "explain",
            &governed,
            "--output",
            "json",
            "--set",
            "segment.bytes=14",
        ],
        &file,
    );
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(json["verdict"], "refused");
    // And what is in force is explained.
    let (_, said) = sizegate(&["explain", &governed], &file);
    assert!(
        said.contains("topic_config.max_message_bytes.max of rule \"bounded\""),
        "{said}"
    );
}

#[test]
fn check_finds_topics_that_have_what_their_rule_forbids() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[0]);
    let stem = unique("checked");
    let configs = [(MAX, "20000000"), ("compression.type", "gzip")];
    kafka.create_topic(&format!("{stem}-wrong"), 1, 1, &configs);
    kafka.create_topic(&format!("{stem}-right"), 1, 1, &[]);
    let file = file(
        kafka.bootstrap(),
        &RULE.replace("gov-*", &format!("{stem}-*")),
    );
    let (exit, said) = sizegate(&["check", "--cluster", "--output", "json"], &file);
    assert_eq!(exit, Some(1), "{said}");
    let json: serde_json::Value = serde_json::from_str(&said).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let broken: Vec<_> = findings
        .iter()
        .filter(|finding| finding["rule"] == "topic_config_broken")
        .map(|finding| {
            (
                finding["topics"][0].as_str().unwrap(),
                finding["fix"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(broken.len(), 2, "{said}");
    assert!(
        broken
            .iter()
            .all(|(topic, _)| *topic == format!("{stem}-wrong"))
    );
    let fixes = format!("{broken:?}");
    assert!(
        fixes.contains("--add-config max.message.bytes=10485760"),
        "{fixes}"
    );
    assert!(
        fixes.contains("--add-config compression.type=producer"),
        "{fixes}"
    );
}

/// A frame of one of the three requests with these bytes behind its header; no client id, no tags.
fn raw(key: u8, version: u8, body: &[u8]) -> Vec<u8> {
    let mut request = vec![0, key, 0, version, 0, 0, 0, 7, 0xff, 0xff];
    request.extend_from_slice(body);
    let mut frame = (request.len() as u32).to_be_bytes().to_vec();
    frame.extend(request);
    frame
}

#[test]
fn hostile_requests_close_their_own_connection_and_nothing_else() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let sizegate = Sizegate::start(kafka, RULE);
    let counts = [i32::MAX, -1, 1_000_000];
    let mut frames: Vec<Vec<u8>> = Vec::new();
    for (key, version) in [(19, 2), (33, 0), (33, 1), (44, 0)] {
        // Counts of what is not there, and what ends in the middle.
        frames.extend(counts.map(|count| raw(key, version, &count.to_be_bytes())));
        frames.push(raw(key, version, &[0, 0, 0, 1, 2, 0, 5, b'g']));
    }
    // More resources than any controller takes, each as short as can be.
    let mut many = 40_000u32.to_be_bytes().to_vec();
    for _ in 0..40_000 {
        many.extend([2, 0, 1, b'g', 0, 0, 0, 0]);
    }
    many.push(0);
    frames.push(raw(44, 0, &many));
    for frame in frames {
        let mut connection = Connection::open(sizegate.bootstrap());
        connection.send_bytes(&frame);
        assert!(
            connection.is_closed_within(PATIENCE),
            "{:?}",
            &frame[..frame.len().min(40)]
        );
    }
    // As many as are taken, all against the rule: one response, in bounds, and the log is not flooded.
    let names: Vec<String> = (0..5_000).map(|at| format!("gov-{at}")).collect();
    let configs: Configs<'_> = &[(MAX, Some("1"))];
    let topics: Vec<(&str, Configs<'_>)> =
        names.iter().map(|name| (name.as_str(), configs)).collect();
    let mut connection = Connection::open(sizegate.bootstrap());
    let response = connection.ask(&create_request(&topics, false), 7);
    assert_eq!(response.topics.len(), 5_000);
    assert!(response.topics.iter().all(|topic| topic.error_code == 44));
    let texts = response
        .topics
        .iter()
        .map(|topic| topic.error_message.as_ref().unwrap().len());
    assert!(texts.sum::<usize>() < 1_000_000);
    sizegate.log_line(&["more=4900", "told one by one"]);
    // Half a request, and nothing more: others are served meanwhile.
    let mut half = Connection::open(sizegate.bootstrap());
    half.send_bytes(&raw(44, 0, &[0; 4_000])[..2_000]);
    let name = unique("gov");
    let told = create(&mut connection, 7, &[(&name, &[(MAX, Some("70000"))])]);
    assert_eq!(told[0].0, 0, "{told:?}");
}

/// A broker that tells nobody its own settings, as one does without the permission to describe configs.
#[test]
fn what_cannot_be_read_is_refused_and_what_passes_goes_on_byte_for_byte() {
    let broker = Broker::start(&[], |request, _| {
        let is_create = request.api_key == ApiKey::CreateTopics as i16;
        is_create.then(|| {
            vec![Step::Send(
                request.response(&CreateTopicsResponse::default()),
            )]
        })
    });
    let sizegate = Sizegate::before(&broker.bootstrap()).yaml(RULE).start();
    let mut connection = Connection::open(sizegate.bootstrap());
    let told = create(&mut connection, 7, &[("gov-a", &[])]);
    is_refused(
        &told[0],
        &[
            "max.message.bytes is not given, and what would be inherited could not be read; rule \"bounded\" governs it.",
            "Give max.message.bytes a value in the request",
            "reason=unread",
        ],
    );
    assert!(broker.received_of(ApiKey::CreateTopics).is_empty());
    // All of it is given: nothing needs to be known. Several of them in a row stay in their order.
    let given: Configs<'_> = &[
        (MAX, Some("70000")),
        ("segment.bytes", Some("20000000")),
        ("compression.type", Some("zstd")),
        ("x.y", Some("z")),
    ];
    for version in 2..=7 {
        let request = create_request(&[("gov-b", given), ("free", &[]), ("gov-c", given)], true);
        let sent = crate::support::client::frame(&request, version, 70 + i32::from(version), None);
        connection.send_bytes(&sent);
        connection.read_frame().unwrap();
        let received = broker.received_of(ApiKey::CreateTopics);
        assert_eq!(received.last().unwrap().body, sent[4..], "{version}");
    }
    // Of three the one in the middle is left out, and the others are as they were.
    let request = create_request(
        &[
            ("gov-b", given),
            ("gov-bad", &[(MAX, Some("1"))]),
            ("free", given),
        ],
        false,
    );
    let response = connection.ask(&request, 7);
    assert_eq!(
        (response.topics.len(), &*response.topics[0].name.0),
        (1, "gov-bad")
    );
    let received = broker.received_of(ApiKey::CreateTopics);
    let kept: CreateTopicsRequest = received.last().unwrap().decode();
    let names: Vec<&str> = kept.topics.iter().map(|topic| &*topic.name.0).collect();
    assert_eq!(names, ["gov-b", "free"]);
    assert_eq!(kept.topics[0], request.topics[0]);
}

#[test]
fn what_nothing_governs_is_the_brokers_alone() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let sizegate = Sizegate::start(
        kafka,
        "rules: [{name: sizes, topics: ['*'], limits: {record_bytes: 1MiB}}]\n",
    );
    let mut connection = Connection::open(sizegate.bootstrap());
    let name = unique("gov");
    let told = create(&mut connection, 7, &[(&name, &[(MAX, Some("1"))])]);
    assert_eq!(told[0].0, 0);
    assert_eq!(
        set(
            &mut connection,
            &name,
            &[(0, "compression.type", Some("gzip"))]
        )
        .0,
        0
    );
    assert!(!sizegate.metrics().has("config_requests_total"));
}

/// Objects live 16 days unless said; a day of that is for clocks.
#[test]
fn a_topic_does_not_keep_tickets_for_longer_than_their_objects_are_kept() {
    let kafka = Kafka::shared("4.4.0");
    let (stem, folder) = (unique("life"), new_dir("claims"));
    let rules = format!(
        "claim_check:\n  store: file://{}\n  keys: [{{id: k1, secret: 'a secret of thirty-two bytes, yes'}}]\n\
             rules:\n- name: large\n  topics: ['{stem}-*']\n  limits: {{record_bytes: 64KiB}}\n  action: offload\n  \
             offload: {{redeem: false}}\n",
        folder.display()
    );
    let sizegate = Sizegate::start(kafka, &rules);
    let mut connection = Connection::open(sizegate.bootstrap());
    let days = |days: i64| (days * 86_400_000).to_string();
    let week = days(7);
    let (own, other) = (format!("{stem}-own"), unique("other"));
    for topic in [&own, &other] {
        let configs = [("retention.ms", week.as_str()), ("segment.ms", &week)];
        kafka.create_topic(topic, 1, 1, &configs);
    }
    for (key, value, code) in [
        ("retention.ms", days(9), 44),
        ("retention.ms", "-1".to_owned(), 44),
        ("segment.ms", days(9), 44),
        ("cleanup.policy", "compact".to_owned(), 44),
        ("cleanup.policy", "delete".to_owned(), 0),
        ("retention.ms", days(8), 0),
        ("max.message.bytes", "2000000".to_owned(), 0),
        ("retention.ms", days(9), 44),
        ("retention.ms", days(3), 0),
    ] {
        let (told, said) = set(&mut connection, &own, &[(0, key, Some(&value))]);
        assert_eq!(told, code, "{key}={value}: {said}");
        if code != 0 {
            let tail = format!("[gate=config key={key} value={value} source=rule");
            for words in [&tail, "kept for 16d", "rule=large"] {
                assert!(said.contains(words), "{words}: {said}");
            }
        }
    }
    let held = value(kafka, &own, "retention.ms");
    assert_eq!(held, (days(3), true));
    // A list's words come and go one by one, too: APPEND and SUBTRACT.
    for (operation, word) in [(2, "compact"), (3, "delete")] {
        let change = [(operation, "cleanup.policy", Some(word))];
        let (told, said) = set(&mut connection, &own, &change);
        assert_eq!(told, 44, "{word}: {said}");
        assert!(said.contains("would keep them for ever"), "{said}");
    }
    assert_eq!(value(kafka, &own, "cleanup.policy").0, "delete");
    // A topic without tickets is nobody's concern.
    let (told, said) = set(&mut connection, &other, &[(0, "retention.ms", Some("-1"))]);
    assert_eq!(told, 0, "{said}");

    // Replacing all settings, and creating: by whichever request it comes.
    let long = days(20);
    let (told, said) = replace(&mut connection, 1, &own, &[("retention.ms", Some(&long))]);
    assert_eq!(told, 44, "{said}");
    let (new, fallback) = (format!("{stem}-new"), format!("{own}.claim.missing"));
    for topic in [&new, &fallback] {
        let refused = create(
            &mut connection,
            7,
            &[(topic, &[("retention.ms", Some(&long))])],
        );
        assert_eq!(refused[0].0, 44, "{topic}: {}", refused[0].1);
        assert!(refused[0].1.contains("needed for 21d"), "{}", refused[0].1);
        let made = create(
            &mut connection,
            7,
            &[(topic, &[("retention.ms", Some(&week))])],
        );
        assert_eq!(made[0].0, 0, "{topic}: {}", made[0].1);
    }
    let _ = std::fs::remove_dir_all(&folder);
}
