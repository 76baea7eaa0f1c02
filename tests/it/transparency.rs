//! Everything Kafka does works through sizegate unchanged, with real clients against real brokers; only addresses
//! differ.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use crate::support::client::ErrorKind;
use crate::support::kafka::{PLAIN_USER, SCRAM_256_USER, SCRAM_512_USER};
use crate::support::programs::{properties, worker_properties};
use crate::support::{
    Connection, KAFKA_VERSIONS, Kafka, KafkaOptions, Part, Program, Sizegate, Topic, admin,
    batch_of_bytes, eventually, lock, unique,
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// The shared broker of a release with sizegate and no rules in front of it.
fn pair(version: &str) -> (&'static Kafka, &'static Sizegate) {
    static PROXIES: OnceLock<BTreeMap<&str, Sizegate>> = OnceLock::new();
    let kafka = Kafka::shared(version);
    let start = |version| (version, Sizegate::start(Kafka::shared(version), ""));
    let proxies = PROXIES.get_or_init(|| KAFKA_VERSIONS.map(start).into());
    (kafka, &proxies[version])
}

/// Three brokers with sizegate in front. Tests that stop or add brokers take turns.
fn trio() -> MutexGuard<'static, (Kafka, Sizegate)> {
    static TRIO: OnceLock<Mutex<(Kafka, Sizegate)>> = OnceLock::new();
    let start = || {
        let kafka = Kafka::start("4.4.0", KafkaOptions::nodes(3));
        let sizegate = Sizegate::start(&kafka, "");
        Mutex::new((kafka, sizegate))
    };
    lock(TRIO.get_or_init(start))
}

fn java(class: &str, version: &str, sizegate: &Sizegate) -> Program {
    Program::java(class, version).arg("bootstrap", sizegate.bootstrap())
}

fn values(output: &crate::support::programs::Output) -> Vec<String> {
    let values = output.lines[0]["values"].as_array().unwrap();
    values
        .iter()
        .map(|value| value.as_str().unwrap().to_string())
        .collect()
}

#[test]
fn members_of_a_group_share_a_topic_commit_and_resume_in_both_protocols() {
    for version in KAFKA_VERSIONS {
        let (kafka, sizegate) = pair(version);
        for protocol in ["classic", "consumer"] {
            let topic = kafka.topic("groups", 2, &[]);
            let output = java("Groups", version, sizegate)
                .arg("topic", &topic.name)
                .arg("protocol", protocol)
                .run();
            assert_eq!(
                output.where_is("assigned", 1).len(),
                2,
                "{protocol}: {output:?}"
            );
            output.only("read", 200);
            output.only("committed", 200);
            assert_eq!(output.only("resumed", 10)["repeated"], 0, "{protocol}");
        }
    }
}

#[test]
fn a_transaction_with_a_record_too_large_can_be_aborted_and_the_next_one_commits() {
    for version in KAFKA_VERSIONS {
        let (kafka, sizegate) = pair(version);
        let topic = kafka.topic("transactions", 1, &[]);
        let output = java("Transactions", version, sizegate)
            .arg("topic", &topic.name)
            .run();
        for fine in ["commit", "abort", "offsets", "after"] {
            assert_eq!(output.only("transaction", fine)["ok"], true);
        }
        let large = output.only("transaction", "large");
        assert_eq!(large["exception"], "RecordTooLargeException", "{large}");
        // Over a limit that was learned a transactional batch is the broker's to judge: it knows the transaction.
        let text = large["text"].as_str().unwrap();
        let judged = format!(
            "sizegate let {}-0 pass, the broker refused it: ",
            topic.name
        );
        assert!(text.starts_with(&judged), "{text}");

        let read = java("ReadAll", version, sizegate)
            .arg("topic", &topic.name)
            .arg("p.isolation.level", "read_committed")
            .run();
        assert_eq!(
            values(&read),
            [1, 2, 3, 4].map(|n| format!("committed-{n}"))
        );
    }
}

#[test]
fn admin_makes_changes_and_deletes_topics_and_is_told_no_address_but_the_proxys() {
    for version in KAFKA_VERSIONS {
        let (_, sizegate) = pair(version);
        let output = java("AdminOps", version, sizegate).run();
        assert_eq!(output.only("step", "describeCluster")["nodes"], json!([1]));
        assert_eq!(output.only("step", "createTopics")["listed"], true);
        assert_eq!(output.only("step", "describeTopics")["partitions"], 2);
        let created = output.only("step", "describeConfigs");
        assert_eq!(
            (created["value"].as_str(), created["source"].as_str()),
            (Some("5000"), Some("DYNAMIC_TOPIC_CONFIG"))
        );
        assert_eq!(
            output.only("step", "incrementalAlterConfigs")["value"],
            "6000"
        );
        assert_eq!(output.only("step", "createPartitions")["partitions"], 3);
        assert_eq!(output.only("step", "listOffsets")["offset"], 0);
        assert_eq!(output.only("step", "describeLogDirs")["nodes"], 1);
        assert_eq!(output.only("step", "describeMetadataQuorum")["leader"], 1);
        assert_eq!(output.only("step", "deleteTopics")["listed"], false);
        let addresses = output.lines.last().unwrap();
        assert_eq!(addresses["addresses"], json!([sizegate.node(1)]));
    }
}

#[test]
fn streams_counts_words_exactly_once() {
    for version in KAFKA_VERSIONS {
        let (kafka, sizegate) = pair(version);
        let input = kafka.topic("words-in", 2, &[]);
        let output = kafka.topic("words-out", 1, &[]);
        let program = Program::java_with("StreamsWordCount", "4.3.0", "streams");
        let state = program.dir().join("state");
        let done = program
            .arg("bootstrap", sizegate.bootstrap())
            .arg("input", &input.name)
            .arg("output", &output.name)
            .arg("state", state.display())
            .run();
        // 300 lines of three words each.
        let counts = done.lines[0]["counts"].as_object().unwrap();
        assert_eq!(
            counts
                .values()
                .map(|count| count.as_i64().unwrap())
                .sum::<i64>(),
            900
        );
    }
}

#[test]
fn a_share_group_accepts_every_record_and_gets_a_released_one_again() {
    for version in KAFKA_VERSIONS {
        let (kafka, sizegate) = pair(version);
        let topic = kafka.topic("shared", 2, &[]);
        let output = Program::java_with("ShareGroup", version, "kafka4")
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .run();
        assert_eq!(output.only("accepted", 50)["deliveries"], 2);
    }
}

#[test]
fn connect_carries_a_file_through_a_topic_into_another_file() {
    let (kafka, sizegate) = pair("4.3.0");
    let topic = kafka.topic("connect", 1, &[]);
    let worker = Program::java_main(
        "org.apache.kafka.connect.cli.ConnectStandalone",
        "4.3.0",
        "connect",
    );
    let dir = worker.dir().to_path_buf();
    let lines: Vec<String> = (0..100).map(|n| format!("line {n}")).collect();
    let (source, sink) = (dir.join("in.txt"), dir.join("out.txt"));
    std::fs::write(&source, lines.join("\n") + "\n").unwrap();
    let strings = "org.apache.kafka.connect.storage.StringConverter";
    let config = worker_properties(&dir, "4.3.0", &sizegate.bootstrap(), strings);
    let connector = |name: &str, class: &str, path: &std::path::Path, topics: &str| {
        properties(
            &dir,
            name,
            &[
                format!("name={name}"),
                format!("connector.class=org.apache.kafka.connect.file.{class}"),
                "tasks.max=1".into(),
                format!("file={}", path.display()),
                format!("{topics}={}", topic.name),
            ],
        )
    };
    let running = worker
        .raw_arg(config)
        .raw_arg(connector(
            "source",
            "FileStreamSourceConnector",
            &source,
            "topic",
        ))
        .raw_arg(connector(
            "sink",
            "FileStreamSinkConnector",
            &sink,
            "topics",
        ))
        .spawn();
    eventually(
        Duration::from_secs(300),
        "all lines in the sink's file",
        || {
            let arrived = std::fs::read_to_string(&sink).unwrap_or_default();
            assert!(running.is_running(), "{}", running.last_words());
            (arrived.lines().eq(lines.iter())).then_some(())
        },
    );
}

#[test]
fn clients_authenticate_through_the_proxy_with_plain_and_scram_and_a_wrong_password_is_the_brokers_no()
 {
    for version in KAFKA_VERSIONS {
        let kafka = Kafka::start(
            version,
            KafkaOptions {
                sasl: true,
                ..KafkaOptions::default()
            },
        );
        let topic = kafka.topic("sasl", 1, &[("max.message.bytes", "5000")]);
        let (user, password) = SCRAM_512_USER;
        let sizegate = Sizegate::before(&kafka.sasl_bootstrap())
            .cluster(&format!(
                "admin: {{sasl: {{mechanism: SCRAM-SHA-512, username: {user}, password: {password}}}}}"
            ))
            .start();
        let send = |sizegate: &Sizegate, mechanism: &str, user: &str, password: &str| {
            let login = if mechanism == "PLAIN" {
                "plain.Plain"
            } else {
                "scram.Scram"
            };
            let jaas = format!(
                "org.apache.kafka.common.security.{login}LoginModule required username=\"{user}\" \
                 password=\"{password}\";"
            );
            java("SendSizes", version, sizegate)
                .arg("topic", &topic.name)
                .arg("values", "100,6000,100")
                .arg("p.security.protocol", "SASL_PLAINTEXT")
                .arg("p.sasl.mechanism", mechanism)
                .arg("p.sasl.jaas.config", jaas)
                .run_any()
        };
        for (mechanism, (user, password)) in [
            ("PLAIN", PLAIN_USER),
            ("SCRAM-SHA-256", SCRAM_256_USER),
            ("SCRAM-SHA-512", SCRAM_512_USER),
        ] {
            let output = send(&sizegate, mechanism, user, password);
            assert_eq!(output.code, 0, "{mechanism}: {output:?}");
            let fates: Vec<&Value> = output.lines[..3].iter().map(|line| &line["ok"]).collect();
            assert_eq!(fates, [true, false, true], "{mechanism}: {output:?}");
            // The control plane learned the topic's limit with its own credentials.
            let text = output.only("ok", false)["text"].as_str().unwrap();
            assert!(text.contains("limit_bytes=5000 source=topic"), "{text}");
        }
        let output = send(&sizegate, "SCRAM-SHA-256", SCRAM_256_USER.0, "wrong");
        assert_ne!(output.code, 0);
        assert!(
            output.stderr.contains("SaslAuthenticationException"),
            "{}",
            output.stderr
        );
        // Without credentials of its own it learns the ids of topics from what clients are told, and its rules hold.
        let blind = Sizegate::before(&kafka.sasl_bootstrap())
            .yaml("rules: [{name: small, topics: [sasl-*], limits: {record_bytes: 3000}}]")
            .start_unready();
        let output = send(&blind, "PLAIN", PLAIN_USER.0, PLAIN_USER.1);
        let fates: Vec<&Value> = output.lines[..3].iter().map(|line| &line["ok"]).collect();
        assert_eq!(fates, [true, false, true], "{output:?}");
        let text = output.only("ok", false)["text"].as_str().unwrap();
        assert!(text.contains("limit_bytes=3000 source=rule"), "{text}");
    }
}

#[test]
fn every_broker_has_an_address_of_its_own_and_a_wrong_leader_points_to_the_right_ones() {
    let trio = trio();
    let (kafka, sizegate) = &*trio;
    let topic = kafka.create_topic(&unique("spread"), 3, 1, &[]);
    let mut connection = Connection::open(sizegate.bootstrap());
    let metadata = admin::metadata(&mut connection, &[&topic.name]);
    let brokers: BTreeMap<i32, String> = metadata
        .brokers
        .iter()
        .map(|broker| (broker.node_id.0, format!("{}:{}", broker.host, broker.port)))
        .collect();
    let ids = kafka.node_ids();
    let expected: BTreeMap<i32, String> = ids.iter().map(|id| (*id, sizegate.node(*id))).collect();
    assert_eq!(brokers, expected);

    let mut hinted = 0;
    for partition in &metadata.topics[0].partitions {
        let (index, leader) = (partition.partition_index, partition.leader_id.0);
        for &id in &ids {
            let mut connection = Connection::open(sizegate.node(id));
            let part = Part::at(&topic, index, batch_of_bytes(200).build());
            let request = crate::support::client::produce_request(None, -1, &[part]);
            let response = connection.ask(&request, 13);
            let code = response.responses[0].partition_responses[0].error_code;
            if id == leader {
                assert_eq!(code, 0);
            } else {
                assert_eq!(code, 6, "NOT_LEADER_OR_FOLLOWER");
                let endpoint = &response.node_endpoints[0];
                assert_eq!(endpoint.node_id.0, leader);
                assert_eq!(
                    format!("{}:{}", endpoint.host, endpoint.port),
                    sizegate.node(leader)
                );
                hinted += 1;
            }
        }
    }
    assert_eq!(hinted, 3 * (ids.len() - 1));
}

#[test]
fn a_broker_killed_under_load_loses_and_doubles_nothing_that_was_acknowledged() {
    let trio = trio();
    let (kafka, sizegate) = &*trio;
    let topic = kafka.create_topic(&unique("load"), 6, 3, &[("min.insync.replicas", "2")]);
    let load = java("IdempotentLoad", "4.4.0", sizegate)
        .arg("topic", &topic.name)
        .arg("partitions", 6)
        .arg("records", 20_000)
        .arg("per_second", 2_000)
        .limit(Duration::from_secs(300))
        .spawn();
    // A bystander at a broker that stays: its session must not notice.
    let mut bystander = Connection::open(sizegate.node(1));
    admin::metadata(&mut bystander, &[&topic.name]);
    let mut at_the_victim = Connection::open(sizegate.node(2));
    admin::metadata(&mut at_the_victim, &[&topic.name]);

    load.line("3,000 acknowledged", |line| {
        line["progress"].as_i64() >= Some(3_000)
    });
    kafka.kill(2);
    assert_eq!(at_the_victim.read_frame().err(), Some(ErrorKind::Closed));
    load.line("8,000 acknowledged", |line| {
        line["progress"].as_i64() >= Some(8_000)
    });
    kafka.restart(2);
    let output = load.finish();
    assert_eq!(output.code, 0, "{}", output.stderr);
    admin::metadata(&mut bystander, &[&topic.name]);

    let end = output.lines.last().unwrap();
    assert_eq!(end["failed"], json!([]));
    let acked: BTreeSet<String> = end["acked"]
        .as_array()
        .unwrap()
        .iter()
        .map(Value::to_string)
        .collect();
    assert_eq!(acked.len(), 20_000);
    let read = java("ReadAll", "4.4.0", sizegate)
        .arg("topic", &topic.name)
        .run();
    let stored = values(&read);
    assert_eq!(stored.len(), 20_000, "nothing doubled");
    let stored: HashSet<String> = stored.into_iter().collect();
    assert!(
        acked.iter().all(|number| stored.contains(number)),
        "nothing lost"
    );
}

#[test]
fn a_broker_that_joins_later_is_reached_through_the_proxy() {
    let mut trio = trio();
    let id = trio.0.add_broker();
    let (kafka, sizegate) = &*trio;
    let topic: Topic = kafka.create_topic(&unique("joined"), 8, 1, &[]);
    let metadata = admin::metadata(&mut Connection::open(sizegate.bootstrap()), &[&topic.name]);
    let partitions = &metadata.topics[0].partitions;
    let on_the_new = partitions
        .iter()
        .find(|partition| partition.leader_id.0 == id);
    let index = on_the_new
        .expect("eight partitions over four brokers")
        .partition_index;
    let leader = admin::leader(&sizegate.bootstrap(), &topic.name, index);
    assert_eq!(leader, sizegate.node(id));
    let part = Part::at(&topic, index, batch_of_bytes(300).build());
    assert_eq!(
        Connection::open(leader.as_str()).produce(11, -1, &[part])[0].code,
        0
    );
}

#[test]
fn two_proxies_with_the_same_configuration_tell_clients_the_same_addresses_apart_from_their_own_ports()
 {
    let kafka = Kafka::shared("4.3.0");
    let topic = kafka.topic("replicas", 1, &[]);
    let brokers = |sizegate: &Sizegate| {
        let metadata = admin::metadata(&mut Connection::open(sizegate.bootstrap()), &[&topic.name]);
        let first: u16 = sizegate
            .bootstrap()
            .rsplit_once(':')
            .unwrap()
            .1
            .parse()
            .unwrap();
        metadata
            .brokers
            .iter()
            .map(|broker| {
                (
                    broker.node_id.0,
                    broker.host.to_string(),
                    broker.port - i32::from(first),
                )
            })
            .collect::<Vec<_>>()
    };
    let (one, two) = (Sizegate::start(kafka, ""), Sizegate::start(kafka, ""));
    assert_eq!(brokers(&one), brokers(&two));
    assert_eq!(brokers(&one), [(1, "127.0.0.1".to_string(), 1)]);
}

#[test]
fn a_start_while_kafka_is_down_waits_says_so_and_becomes_ready_when_it_comes() {
    let kafka = Kafka::start("4.3.0", KafkaOptions::default());
    kafka.kill(1);
    let sizegate = Sizegate::before(&kafka.bootstrap()).start_unready();
    let said = eventually(PATIENCE, "/readyz says why not", || {
        crate::support::http::get(sizegate.admin(), "/readyz")
            .ok()
            .filter(|(status, body)| *status == 503 && body.contains(&kafka.bootstrap()))
    });
    assert_eq!(sizegate.get("/livez").0, 200, "{said:?}");
    sizegate.log_line(&[&kafka.bootstrap()]);
    kafka.restart(1);
    sizegate.wait_until_ready();
    let topic = kafka.topic("late", 1, &[]);
    let part = Part::new(&topic, batch_of_bytes(300).build());
    assert_eq!(
        Connection::open(sizegate.bootstrap()).produce(9, -1, &[part])[0].code,
        0
    );
}
