//! The control plane against a real Kafka that guards itself: SASL, TLS, rights.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::control_plane::{PATIENCE, Running};
use crate::support::kafka::{PLAIN_USER, SCRAM_256_USER, SCRAM_512_USER};
use crate::support::{
    Connection, KAFKA_VERSIONS, Kafka, KafkaOptions, Part, Record, Sizegate, batch, eventually,
};
use kafka_protocol::messages::CreateAclsRequest;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::protocol::StrBytes;
use sizegate::cluster::{LimitsUnread, Lookup, ReadError};
use sizegate::vocabulary::Source;

/// `connections.max.reauth.ms`
const SESSION: Duration = Duration::from_secs(6);
const ATTEMPTS: usize = 8;

/// The broker for authentication and rights: only ANONYMOUS, on the plain listener, may do anything.
pub fn guarded() -> &'static Kafka {
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
        .property(
            "connections.max.reauth.ms",
            &SESSION.as_millis().to_string(),
        );
        Kafka::start(KAFKA_VERSIONS[1], options)
    })
}

pub fn sasl<'a>(
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
fn every_sasl_mechanism_authenticates_and_stays_so_beyond_its_session() {
    let kafka = guarded();
    let running = MECHANISMS.map(|(mechanism, user)| {
        Running::start(&kafka.sasl_bootstrap(), &sasl(mechanism, user)).up()
    });
    // Whoever does not authenticate again is thrown out in every session; a machine that was too busy, in one.
    let is_any = (0..ATTEMPTS).any(|_| stay_up(kafka, &running, SESSION + SESSION / 3));
    assert!(is_any, "{:?}", running.map(|one| one.cluster.status()));
}

/// Whether all stay up for so long, and the broker ends no session.
fn stay_up(kafka: &Kafka, running: &[Running], time: Duration) -> bool {
    let expired = || kafka.log(1).matches("expired").count();
    let (began, before) = (Instant::now(), expired());
    while began.elapsed() < time {
        if !running.iter().all(|one| one.cluster.status().is_up) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    expired() == before
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

const TOPIC_AUTHORIZATION_FAILED: i16 = 29;

/// AclOperation
const READ: i8 = 3;
pub const WRITE: i8 = 4;
const DESCRIBE: i8 = 8;
const DESCRIBE_CONFIGS: i8 = 10;

pub fn allow(kafka: &Kafka, principal: &str, topic: &str, operation: i8) {
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
    let response = Connection::open(kafka.bootstrap()).ask(&request, 3);
    assert_eq!(response.results[0].error_code, 0, "{response:?}");
}

/// README and the operations guide say where it shows; `carol` is whom the proxy asks as.
#[test]
fn a_proxy_that_may_not_read_limits_serves_by_its_rules_and_says_so_until_it_may() {
    let kafka = guarded();
    let topic = kafka.topic("denied", 1, &[("max.message.bytes", "5000")]);
    let (user, password) = SCRAM_512_USER;
    let sizegate = Sizegate::before(&kafka.sasl_bootstrap())
        .cluster(&format!(
            "admin: {{sasl: {{mechanism: SCRAM-SHA-512, username: {user}, password: {password}}}, refresh_interval: 300ms}}"
        ))
        .yaml("rules: [{name: small, topics: ['denied-*'], limits: {value_bytes: 2000}}]")
        .start();
    let up = |wanted: f64| {
        eventually(PATIENCE, &format!("control_plane_up {wanted}"), || {
            (sizegate.metrics().sum("control_plane_up", &[]) == wanted).then_some(())
        });
    };
    up(1.0);
    allow(kafka, "User:carol", &topic.name, DESCRIBE);
    up(0.0);
    let acl = "--allow-principal 'User:carol' --operation DescribeConfigs --topic '*'";
    let (status, body) = sizegate.get("/readyz");
    assert_eq!(status, 200, "clients are served: {body}");
    let said =
        "the limits of 1 of 1 topics cannot be read; rules still hold. Grant: kafka-acls.sh ";
    for words in ["ready\n", said, acl] {
        assert!(body.contains(words), "{words}: {body}");
    }
    sizegate.log_line(&[said, acl]);
    let told = sizegate.json("/api/v1/status")["control_plane"]["missing_rights"].clone();
    assert!(
        told.as_str().is_some_and(|told| told.contains(acl)),
        "{told}"
    );

    // The rule's own limit holds, and the topic's is the broker's to judge, with our words.
    allow(kafka, "User:alice", &topic.name, WRITE);
    let mut connection = Connection::open(sizegate.bootstrap());
    connection.sasl_plain(PLAIN_USER.0, PLAIN_USER.1);
    let mut send = |values: &[usize]| {
        let records = batch(values.iter().map(|bytes| Record::of_a(*bytes))).build();
        // Right after CreateAcls the broker may not know of it.
        eventually(PATIENCE, "alice may write", || {
            let sent = [Part::new(&topic, records.clone())];
            let response = connection.produce(9, -1, &sent).remove(0);
            (response.code != TOPIC_AUTHORIZATION_FAILED).then_some(response)
        })
    };
    assert_eq!(send(&[1_500]).code, 0);
    let refused = send(&[1_500, 2_001]);
    let text = refused.text.unwrap_or_default();
    assert!(
        refused.code == 10
            && text.contains("[gate=value size_bytes=2001 limit_bytes=2000 source=rule"),
        "{text}"
    );
    let refused = send(&[1_900; 3]);
    let text = refused.text.unwrap_or_default();
    assert!(
        refused.code == 10
            && text.starts_with("sizegate let ")
            && text.contains("refused_by=broker"),
        "{text}"
    );

    allow(kafka, "User:carol", &topic.name, DESCRIBE_CONFIGS);
    up(1.0);
    assert_eq!(sizegate.get("/readyz"), (200, "ready\n".to_owned()));
    sizegate.log_line(&["the limits of all topics can be read now"]);
    assert_eq!(sizegate.log().matches(said).count(), 1, "it is said once");
    let refused = send(&[1_900; 3]);
    let text = refused.text.unwrap_or_default();
    assert!(text.contains("limit_bytes=5000 source=topic"), "{text}");
}

#[test]
fn stored_batches_are_read_with_our_credentials_once_read_is_granted() {
    let kafka = guarded();
    let topic = kafka.topic("stored", 1, &[]);
    let sent = batch([Record::value("stored")]).build();
    let response =
        Connection::open(kafka.bootstrap()).produce(9, -1, &[Part::new(&topic, sent.clone())]);
    assert_eq!(response[0].code, 0);
    let path = |path: std::path::PathBuf| path.display().to_string();
    let (ca, cert, key) = (
        path(kafka.certs().ca()),
        path(kafka.certs().cert("client")),
        path(kafka.certs().key("client")),
    );
    // Not as carol: what she sees is counted above.
    let mut settings = sasl("SCRAM-SHA-256", SCRAM_256_USER);
    settings.extend([
        ("CLUSTER__TLS__CA_FILE", ca.as_str()),
        ("CLUSTER__TLS__CERT_FILE", &cert),
        ("CLUSTER__TLS__KEY_FILE", &key),
    ]);
    let running = Running::start(&kafka.sasl_tls_bootstrap(), &settings);
    let runtime = crate::control_plane::runtime();
    let read = || {
        runtime.block_on(async {
            let mut reader = running.cluster.reader(&topic.name).await?;
            let mut batches = reader.batches(0, 0, 1);
            Ok(batches.next().await?.map(|batch| batch.bytes.len()))
        })
    };
    let forbidden = |read: &Result<_, ReadError>| matches!(read, Err(ReadError::Forbidden(_)));
    assert!(forbidden(&read()), "{:?}", read());
    // Describe alone shows the topic; Read implies it. (Who sees a topic and may not read its limits is not up.)
    allow(kafka, "User:bob", &topic.name, DESCRIBE_CONFIGS);
    allow(kafka, "User:bob", &topic.name, DESCRIBE);
    assert!(forbidden(&read()), "{:?}", read());
    allow(kafka, "User:bob", &topic.name, READ);
    let bytes = eventually(PATIENCE, "bob may read", || match read() {
        Ok(bytes) => bytes,
        error => {
            assert!(forbidden(&error), "{error:?}");
            None
        }
    });
    assert_eq!(bytes, sent.len());
}
