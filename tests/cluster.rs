//! The control plane against a real Kafka: limits and their sources, changes, look-ups, authentication, rights,
//! and brokers that differ or go away.

mod support;

use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kafka_protocol::messages::CreateAclsRequest;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::protocol::StrBytes;
use sizegate::cluster::{
    Cluster, CompressionType, Learned, LearnedLimit, LimitsUnread, Lookup, Origin, Topic,
};
use sizegate::config::{self, Config, ENV_PREFIX, Overrides};
use sizegate::net::Connector;
use sizegate::policy::{Codec, Source};
use support::kafka::{PLAIN_USER, SCRAM_256_USER, SCRAM_512_USER};
use support::{Connection, KAFKA_VERSIONS, Kafka, KafkaOptions, eventually};
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::ZERO;

/// The control plane on a thread of its own, as in the product.
struct Running {
    cluster: Cluster,
    shutdown: CancellationToken,
    thread: Option<JoinHandle<()>>,
    /// Where this test asks from: another runtime, as sessions do.
    runtime: Runtime,
}

impl Running {
    fn start(bootstrap: &str, more: &[(&str, &str)]) -> Self {
        let config = configured(bootstrap, more);
        let connector = Connector::new(&config.cluster).unwrap();
        let cluster = Cluster::new(&config, connector);
        let shutdown = CancellationToken::new();
        let (running, until) = (cluster.clone(), shutdown.clone());
        let thread = std::thread::spawn(move || runtime().block_on(running.run(until)));
        Self {
            cluster,
            shutdown,
            thread: Some(thread),
            runtime: runtime(),
        }
    }

    /// Waits for the first refresh.
    fn up(self) -> Self {
        eventually(PATIENCE, "the control plane is up", || {
            self.cluster.status().is_up.then_some(())
        });
        self
    }

    fn error(&self) -> String {
        eventually(PATIENCE, "an error", || self.cluster.status().error)
    }

    fn look_up(&self, name: &str) -> Lookup {
        self.runtime.block_on(self.cluster.find_topic(name))
    }

    fn look_up_id(&self, id: Uuid) -> Lookup {
        self.runtime.block_on(self.cluster.find_topic_by_id(id))
    }

    fn find(&self, name: &str) -> Arc<Topic> {
        match self.look_up(name) {
            Lookup::Found(topic) => topic,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Reads the limits now, from this broker.
    fn read(&self, topic: &Arc<Topic>, node_id: i32) -> Result<Learned, LimitsUnread> {
        self.runtime
            .block_on(self.cluster.read_limits(topic, Some(node_id), NOW))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn configured(bootstrap: &str, more: &[(&str, &str)]) -> Config {
    let usual = [
        ("CLUSTER__BOOTSTRAP_SERVERS", bootstrap),
        ("CLUSTER__ADMIN__REFRESH_INTERVAL", "300ms"),
    ];
    let env = usual
        .iter()
        .chain(more)
        .map(|(key, value)| (format!("{ENV_PREFIX}{key}"), (*value).to_owned()))
        .collect();
    config::load(None, &Overrides::default(), &env).unwrap()
}

/// With so rare refreshes that only questions can learn anything.
const NO_REFRESH: (&str, &str) = ("CLUSTER__ADMIN__REFRESH_INTERVAL", "1h");

/// The broker for authentication and rights: only ANONYMOUS, on the plain listener, may do anything.
fn guarded() -> &'static Kafka {
    static GUARDED: OnceLock<Kafka> = OnceLock::new();
    GUARDED.get_or_init(|| {
        let options = KafkaOptions {
            sasl: true,
            tls: true,
            ..KafkaOptions::default()
        }
        .property(
            "authorizer.class.name",
            "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        )
        // SASL and a client's certificate on one listener; the TLS listener asks for neither.
        .property("listener.name.sasltls.ssl.client.auth", "required")
        .property("super.users", "User:ANONYMOUS")
        .property("connections.max.reauth.ms", "3000");
        Kafka::start(KAFKA_VERSIONS[1], options)
    })
}

fn sasl<'a>(
    mechanism: &'a str,
    (username, password): (&'a str, &'a str),
) -> Vec<(&'a str, &'a str)> {
    vec![
        ("CLUSTER__ADMIN__SASL__MECHANISM", mechanism),
        ("CLUSTER__ADMIN__SASL__USERNAME", username),
        ("CLUSTER__ADMIN__SASL__PASSWORD", password),
    ]
}

const MECHANISMS: [(&str, (&str, &str)); 3] = [
    ("PLAIN", PLAIN_USER),
    ("SCRAM-SHA-256", SCRAM_256_USER),
    ("SCRAM-SHA-512", SCRAM_512_USER),
];

#[test]
fn limits_come_with_their_sources() {
    for version in KAFKA_VERSIONS {
        let kafka = Kafka::shared(version);
        let plain = kafka.topic("plain", 3, &[]);
        let own = kafka.topic(
            "own",
            1,
            &[("max.message.bytes", "65536"), ("compression.type", "zstd")],
        );
        let segment = kafka.topic(
            "segment",
            1,
            &[
                ("max.message.bytes", "2097152"),
                ("segment.bytes", "1048576"),
            ],
        );
        let running = Running::start(&kafka.bootstrap(), &[]).up();
        let of = |topic: &support::Topic| {
            let found = running.find(&topic.name);
            assert_eq!(found.id, topic.id);
            let limits = running.read(&found, 1).unwrap();
            assert_eq!(found.batch_limit(), limits.batch_limit());
            (found, limits)
        };

        let (topic, limits) = of(&plain);
        assert_eq!(topic.partitions(), Some(3));
        assert_eq!(limits.batch_limit(), Some((1_048_588, Source::Broker)));
        assert_eq!(limits.compression_type, Some(CompressionType::Producer));
        let decompressed = (version == "4.4.0").then_some(LearnedLimit {
            bytes: 2_147_483_639,
            origin: Origin::BrokerDefault,
        });
        assert_eq!(
            limits.max_decompressed_message_bytes, decompressed,
            "{version}"
        );

        let (_, limits) = of(&own);
        assert_eq!(limits.batch_limit(), Some((65_536, Source::Topic)));
        assert_eq!(
            limits.compression_type,
            Some(CompressionType::Stored(Codec::Zstd))
        );

        let (_, limits) = of(&segment);
        assert_eq!(limits.batch_limit(), Some((1_048_576, Source::Segment)));
        let declared = LearnedLimit {
            bytes: 2_097_152,
            origin: Origin::TopicOverride,
        };
        assert_eq!(limits.max_message_bytes, Some(declared));
    }
}

#[test]
fn a_changed_limit_is_seen_by_the_next_reading_and_by_a_refresh() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[1]);
    let name = kafka.topic("changes", 1, &[]).name;
    let running = Running::start(&kafka.bootstrap(), &[NO_REFRESH]).up();
    let refreshing = Running::start(&kafka.bootstrap(), &[]).up();
    let topic = running.find(&name);
    // The largest is above segment.bytes by default, which is 1 GiB.
    for (limit, in_force) in [
        (0, (0, Source::Topic)),
        (1_000, (1_000, Source::Topic)),
        (2_147_483_647, (1 << 30, Source::Segment)),
    ] {
        kafka.alter_topic_config(&name, &[("max.message.bytes", Some(&limit.to_string()))]);
        assert_eq!(
            running.read(&topic, 1).unwrap().batch_limit(),
            Some(in_force)
        );
        assert_eq!(topic.batch_limit(), Some(in_force));
        let refreshed = refreshing.find(&name);
        eventually(PATIENCE, "a refresh sees it", || {
            (refreshed.batch_limit()? == in_force).then_some(())
        });
    }
    kafka.alter_topic_config(&name, &[("max.message.bytes", None)]);
    assert_eq!(
        running.read(&topic, 1).unwrap().batch_limit(),
        Some((1_048_588, Source::Broker))
    );
}

#[test]
fn a_topic_is_found_by_its_id_before_a_refresh_saw_it() {
    for version in KAFKA_VERSIONS {
        let kafka = Kafka::shared(version);
        let running = Running::start(&kafka.bootstrap(), &[NO_REFRESH]).up();
        let young = kafka.topic("young", 2, &[("max.message.bytes", "777")]);
        let Lookup::Found(topic) = running.look_up_id(young.id) else {
            panic!("not found")
        };
        assert_eq!((&*topic.name, topic.partitions()), (&*young.name, Some(2)));
        assert_eq!(topic.batch_limit(), Some((777, Source::Topic)));
        assert!(matches!(running.look_up_id(Uuid::new_v4()), Lookup::Absent));
        assert!(matches!(running.look_up("no-such-topic"), Lookup::Absent));
        assert!(matches!(
            running.look_up("not a topic's name"),
            Lookup::Absent
        ));
    }
}

#[test]
fn a_deleted_topic_leaves_and_one_created_again_is_another() {
    let kafka = Kafka::shared(KAFKA_VERSIONS[0]);
    let name = kafka.topic("again", 1, &[]).name;
    let running = Running::start(&kafka.bootstrap(), &[]).up();
    let first = running.find(&name);
    kafka.delete_topic(&name);
    eventually(PATIENCE, "it leaves", || {
        running.cluster.topic(&name).is_none().then_some(())
    });
    assert!(first.is_retired());
    kafka.create_topic(&name, 1, 1, &[]);
    let second = eventually(PATIENCE, "it comes back", || running.cluster.topic(&name));
    assert_ne!(first.id, second.id);
    assert!(!second.is_retired());
    assert!(matches!(running.look_up_id(first.id), Lookup::Absent));
}

#[test]
fn where_brokers_have_different_defaults_the_one_asked_counts() {
    let kafka = Kafka::start(KAFKA_VERSIONS[1], KafkaOptions::nodes(2));
    let name = kafka.create_topic("inherits", 2, 2, &[]).name;
    let running = Running::start(&kafka.bootstrap(), &[NO_REFRESH]).up();
    let topic = running.find(&name);
    // A broker answers AlterConfigs before it applies its own config.
    let becomes = |node_id, limit| {
        eventually(PATIENCE, "the broker's own default", || {
            let found = running.read(&topic, node_id).ok()?.batch_limit()?;
            (found == (limit, Source::Broker)).then_some(())
        });
    };
    kafka.alter_broker_config("", &[("message.max.bytes", Some("900000"))]);
    becomes(1, 900_000);
    becomes(2, 900_000);
    // A broker's own config is changed at that broker.
    support::admin::alter_broker_config(
        &kafka.node(2),
        "2",
        &[("message.max.bytes", Some("800000"))],
    );
    becomes(2, 800_000);
    becomes(1, 900_000);
    // Known now, one broker by one: no question more.
    for (node_id, limit) in [(1, 900_000), (2, 800_000)] {
        let known = running
            .cluster
            .known_limits(&topic, Some(node_id), PATIENCE)
            .unwrap();
        assert_eq!(known.batch_limit(), Some((limit, Source::Broker)));
    }
}

#[test]
fn a_broker_killed_takes_no_knowledge_with_it_and_is_met_again() {
    let kafka = Kafka::start(KAFKA_VERSIONS[0], KafkaOptions::default());
    let name = kafka.topic("orders", 1, &[]).name;
    let running = Running::start(&kafka.bootstrap(), &[]).up();
    let topic = running.find(&name);
    kafka.kill(1);
    let error = running.error();
    assert!(error.contains(&kafka.bootstrap()), "{error}");
    assert!(!running.cluster.status().is_up);
    assert_eq!(topic.batch_limit(), Some((1_048_588, Source::Broker)));
    let began = Instant::now();
    assert_eq!(running.read(&topic, 1), Err(LimitsUnread::Unreachable));
    assert!(matches!(running.look_up("another"), Lookup::Unreachable));
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    kafka.restart(1);
    let running = running.up();
    assert!(running.cluster.is_reached());
    assert!(!topic.is_retired());
    assert!(running.read(&topic, 1).is_ok());
}

#[test]
fn every_sasl_mechanism_authenticates_and_stays_so_beyond_its_session() {
    let kafka = guarded();
    let running = MECHANISMS.map(|(mechanism, user)| {
        Running::start(&kafka.sasl_bootstrap(), &sasl(mechanism, user)).up()
    });
    // Twice connections.max.reauth.ms.
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        for running in &running {
            assert!(
                running.cluster.status().is_up,
                "{:?}",
                running.cluster.status()
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let expired = kafka.log(1).matches("expired").count();
    assert_eq!(expired, 0);
}

#[test]
fn a_wrong_password_is_said_with_user_and_mechanism() {
    for (mechanism, (username, _)) in MECHANISMS {
        let credentials = sasl(mechanism, (username, "wrong"));
        let running = Running::start(&guarded().sasl_bootstrap(), &credentials);
        let error = running.error();
        assert!(
            error.contains(&format!("user \"{username}\" by {mechanism}")),
            "{error}"
        );
        assert!(running.cluster.is_reached() && !running.cluster.status().is_up);
        assert!(matches!(running.look_up("orders"), Lookup::Unreachable));
    }
}

#[test]
fn credentials_on_the_wrong_listener_are_said() {
    let kafka = guarded();
    let none = Running::start(&kafka.sasl_bootstrap(), &[]).error();
    assert!(none.contains("is cluster.admin.sasl missing?"), "{none}");
    let needless = Running::start(&kafka.bootstrap(), &sasl("PLAIN", PLAIN_USER)).error();
    assert!(needless.contains("asks for no SASL"), "{needless}");
    let plaintext = Running::start(&kafka.tls_bootstrap(), &[]).error();
    assert!(plaintext.contains("is cluster.tls missing?"), "{plaintext}");
}

#[test]
fn tls_is_verified() {
    let kafka = guarded();
    let ca = kafka.certs().ca().display().to_string();
    let ca = ("CLUSTER__TLS__CA_FILE", ca.as_str());
    Running::start(&kafka.tls_bootstrap(), &[ca]).up();
    let named = [ca, ("CLUSTER__TLS__SERVER_NAME", "b1.kafka.test")];
    Running::start(&kafka.tls_bootstrap(), &named).up();

    let elsewhere = [ca, ("CLUSTER__TLS__SERVER_NAME", "elsewhere.test")];
    let error = Running::start(&kafka.tls_bootstrap(), &elsewhere).error();
    assert!(error.contains("elsewhere.test"), "{error}");
    let error = Running::start(&kafka.bootstrap(), &[ca]).error();
    assert!(error.starts_with("TLS 127.0.0.1"), "{error}");
    let own = kafka.certs().cert("client").display().to_string();
    let stranger = [("CLUSTER__TLS__CA_FILE", own.as_str())];
    let error = Running::start(&kafka.tls_bootstrap(), &stranger).error();
    assert!(error.contains("invalid peer certificate"), "{error}");
}

#[test]
fn a_broker_that_asks_for_a_certificate_gets_ours() {
    let kafka = guarded();
    let path = |path: std::path::PathBuf| path.display().to_string();
    let (ca, cert, key) = (
        path(kafka.certs().ca()),
        path(kafka.certs().cert("client")),
        path(kafka.certs().key("client")),
    );
    let mut settings = sasl("SCRAM-SHA-512", SCRAM_512_USER);
    settings.push(("CLUSTER__TLS__CA_FILE", &ca));
    let error = Running::start(&kafka.sasl_tls_bootstrap(), &settings).error();
    assert!(error.to_lowercase().contains("certificate"), "{error}");
    settings.extend([
        ("CLUSTER__TLS__CERT_FILE", cert.as_str()),
        ("CLUSTER__TLS__KEY_FILE", key.as_str()),
    ]);
    Running::start(&kafka.sasl_tls_bootstrap(), &settings).up();
}

#[test]
fn missing_rights_are_named_with_the_acl_to_grant_and_end_when_it_is_granted() {
    let kafka = guarded();
    let topic = kafka.topic("guarded", 1, &[]);
    let running = Running::start(
        &kafka.sasl_bootstrap(),
        &sasl("SCRAM-SHA-256", SCRAM_256_USER),
    )
    .up();
    assert!(matches!(running.look_up(&topic.name), Lookup::Hidden));
    assert!(matches!(running.look_up_id(topic.id), Lookup::Hidden));

    allow(kafka, "User:bob", &topic.name, DESCRIBE);
    let found = eventually(PATIENCE, "the topic is seen", || {
        running.cluster.topic(&topic.name)
    });
    assert_eq!(found.id, topic.id);
    assert_eq!(running.read(&found, 1), Err(LimitsUnread::Forbidden));
    let missing = eventually(PATIENCE, "the right is missed", || {
        running
            .cluster
            .status()
            .missing_rights
            .filter(|text| text.contains("1 of 1 topics"))
    });
    assert!(
        missing.contains("--allow-principal 'User:bob' --operation DescribeConfigs"),
        "{missing}"
    );
    assert_eq!(found.batch_limit(), None);

    allow(kafka, "User:bob", &topic.name, DESCRIBE_CONFIGS);
    eventually(PATIENCE, "the right is there", || {
        running
            .cluster
            .status()
            .missing_rights
            .is_none()
            .then_some(())
    });
    assert_eq!(
        running.read(&found, 1).unwrap().batch_limit(),
        Some((1_048_588, Source::Broker))
    );
}

/// AclOperation
const DESCRIBE: i8 = 8;
const DESCRIBE_CONFIGS: i8 = 10;

fn allow(kafka: &Kafka, principal: &str, topic: &str, operation: i8) {
    let text = |value: &str| StrBytes::from_string(value.to_owned());
    // ResourceType TOPIC, PatternType LITERAL, AclPermissionType ALLOW.
    let acl = AclCreation::default()
        .with_resource_type(2)
        .with_resource_name(text(topic))
        .with_resource_pattern_type(3)
        .with_principal(text(principal))
        .with_host(text("*"))
        .with_operation(operation)
        .with_permission_type(3);
    let request = CreateAclsRequest::default().with_creations(vec![acl]);
    let answer = Connection::open(kafka.bootstrap()).ask(&request, 3);
    assert_eq!(answer.results[0].error_code, 0, "{answer:?}");
}
