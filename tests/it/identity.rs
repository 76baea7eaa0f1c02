//! Who a client is: names learned from SASL as it passes by, authentication that is renewed, rules for some clients.

use std::collections::BTreeSet;
use std::sync::OnceLock;
use std::time::Duration;

use crate::support::kafka::{PLAIN_USER, SCRAM_256_USER, SCRAM_512_USER};
use crate::support::{
    Connection, KAFKA_VERSIONS, Kafka, KafkaOptions, Part, Program, Sizegate, Topic, batch_of_bytes,
};
use serde_json::Value;

/// Whoever a token without a signature says; it has no password.
const DORA: (&str, &str) = ("dora", "");

/// Sessions end after this unless they authenticate again (KIP-368).
const REAUTHENTICATE: Duration = Duration::from_secs(3);

/// A broker that asks for SASL, OAUTHBEARER (unsecured tokens) included.
fn guarded() -> &'static Kafka {
    static GUARDED: OnceLock<Kafka> = OnceLock::new();
    GUARDED.get_or_init(|| {
        let options = KafkaOptions {
            sasl: true,
            ..KafkaOptions::default()
        }
        .property(
            "sasl.enabled.mechanisms",
            "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        )
        .property(
            "listener.name.sasl.oauthbearer.sasl.jaas.config",
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required \
             unsecuredLoginStringClaim_sub=\"broker\";",
        )
        .property(
            "connections.max.reauth.ms",
            &REAUTHENTICATE.as_millis().to_string(),
        );
        Kafka::start(KAFKA_VERSIONS[1], options)
    })
}

fn start(rules: &str) -> Sizegate {
    let (user, password) = SCRAM_512_USER;
    Sizegate::before(&guarded().sasl_bootstrap())
        .cluster(&format!(
            "admin: {{sasl: {{mechanism: SCRAM-SHA-512, username: {user}, password: {password}}}}}"
        ))
        .yaml(rules)
        .start()
}

fn sizegate() -> &'static Sizegate {
    static SIZEGATE: OnceLock<Sizegate> = OnceLock::new();
    SIZEGATE.get_or_init(|| start(""))
}

fn java(
    class: &str,
    sizegate: &Sizegate,
    topic: &Topic,
    mechanism: &str,
    (user, password): (&str, &str),
) -> Program {
    let module = match mechanism {
        "PLAIN" => "plain.Plain",
        "OAUTHBEARER" => "oauthbearer.OAuthBearer",
        _ => "scram.Scram",
    };
    let who = match mechanism {
        "OAUTHBEARER" => format!("unsecuredLoginStringClaim_sub=\"{user}\""),
        _ => format!("username=\"{user}\" password=\"{password}\""),
    };
    let program = match mechanism {
        "OAUTHBEARER" => Program::java_beside_broker(class, KAFKA_VERSIONS[1]),
        _ => Program::java(class, "4.3.0"),
    };
    program
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("p.security.protocol", "SASL_PLAINTEXT")
        .arg("p.sasl.mechanism", mechanism)
        .arg(
            "p.sasl.jaas.config",
            format!("org.apache.kafka.common.security.{module}LoginModule required {who};"),
        )
}

fn refusals(sizegate: &Sizegate, topic: &Topic) -> Vec<Value> {
    let found = sizegate.json(&format!("/api/v1/refusals?topic={}", topic.name));
    found["refusals"].as_array().unwrap().clone()
}

/// Each mechanism's user, in refusals and in the log; never a password.
#[test]
fn a_refusal_names_the_user_that_the_broker_accepted() {
    for (mechanism, user) in [
        ("PLAIN", PLAIN_USER),
        ("SCRAM-SHA-256", SCRAM_256_USER),
        ("SCRAM-SHA-512", SCRAM_512_USER),
    ] {
        let topic = guarded().topic("named", 1, &[("max.message.bytes", "5000")]);
        let output = java("SendSizes", sizegate(), &topic, mechanism, user)
            .arg("values", "100,6000,100")
            .run();
        let fates: Vec<_> = output.lines[..3].iter().map(|line| &line["ok"]).collect();
        assert_eq!(fates, [true, false, true], "{mechanism}: {output:?}");
        let found = refusals(sizegate(), &topic);
        let refusal = found
            .first()
            .unwrap_or_else(|| panic!("{output:?}\n{}", sizegate().log()));
        assert_eq!(refusal["principal"], user.0, "{mechanism}: {refusal}");
        let principal = format!("principal={}", user.0);
        sizegate().log_line(&["refused", &topic.name, &principal]);
    }
    let log = sizegate().log();
    for (_, password) in [PLAIN_USER, SCRAM_256_USER, SCRAM_512_USER] {
        assert!(!log.contains(password), "{log}");
    }
}

/// A token says who its bearer is to those who can verify it; sizegate cannot.
#[test]
fn librdkafka_is_served_with_a_password_by_name_and_with_a_token_without() {
    let send = |more: &[(&str, &str)]| {
        let topic = guarded().topic("librdkafka", 1, &[("max.message.bytes", "5000")]);
        let program = Program::python("produce.py")
            .arg("client", "confluent")
            .arg("bootstrap", sizegate().bootstrap())
            .arg("topic", &topic.name)
            .arg("values", "100,6000")
            .arg("c.security.protocol", "SASL_PLAINTEXT");
        let with = |program: Program, (key, value): &(&str, &str)| program.arg(key, value);
        let output = more.iter().fold(program, with).run();
        let fates = [&output.lines[0]["ok"], &output.lines[1]["ok"]];
        assert_eq!(fates, [true, false], "{output:?}");
        refusals(sizegate(), &topic)[0]["principal"].clone()
    };
    let (user, password) = SCRAM_256_USER;
    let by_name = send(&[
        ("c.sasl.mechanism", "SCRAM-SHA-256"),
        ("c.sasl.username", user),
        ("c.sasl.password", password),
    ]);
    assert_eq!(by_name, user);
    let by_token = send(&[
        ("c.sasl.mechanism", "OAUTHBEARER"),
        ("c.enable.sasl.oauthbearer.unsecure.jwt", "true"),
        ("c.sasl.oauthbearer.config", "principal=dora"),
    ]);
    assert_eq!(by_token, Value::Null);
}

#[test]
fn java_is_served_with_a_token_and_no_name_is_believed_of_it() {
    let topic = guarded().topic("token", 1, &[("max.message.bytes", "5000")]);
    let output = java("SendSizes", sizegate(), &topic, "OAUTHBEARER", DORA)
        .arg("values", "100,6000,100")
        .run();
    let fates: Vec<_> = output.lines[..3].iter().map(|line| &line["ok"]).collect();
    assert_eq!(fates, [true, false, true], "{output:?}");
    let found = refusals(sizegate(), &topic);
    assert_eq!(found[0]["principal"], Value::Null, "{found:?}");
}

#[test]
fn a_user_the_broker_turns_away_is_never_believed() {
    let topic = guarded().topic("turned-away", 1, &[]);
    let output = java(
        "SendSizes",
        sizegate(),
        &topic,
        "PLAIN",
        (PLAIN_USER.0, "wrong"),
    )
    .arg("values", "100")
    .run_any();
    assert!(
        output.stderr.contains("SaslAuthenticationException"),
        "{}",
        output.stderr
    );
    assert!(refusals(sizegate(), &topic).is_empty());
}

#[test]
fn producers_authenticate_anew_through_sizegate_and_lose_nothing() {
    let seconds = 3 * REAUTHENTICATE.as_secs();
    // Whether a connection authenticated again: where the machine was too busy for it, its session ended and another
    // connection took over. Nothing is lost in either way.
    let produce = |mechanism, user| {
        let topic = guarded().topic("anew", 1, &[]);
        let output = java("IdempotentLoad", sizegate(), &topic, mechanism, user)
            .arg("partitions", 1)
            .arg("records", seconds * 100)
            .arg("per_second", 100)
            .run();
        let end = output.lines.last().unwrap();
        let acked = end["acked"].as_array().unwrap().len() as u64;
        assert_eq!(acked, seconds * 100, "{mechanism}: {:?}", end["failed"]);
        let stored = guarded().latest_offset(&topic.name, 0) as u64;
        assert_eq!(stored, seconds * 100, "{mechanism}");
        end["reauthenticated"].as_f64().unwrap() >= 1.0
    };
    let at_last = |mechanism, user| {
        let is_any = (0..5).any(|_| produce(mechanism, user));
        assert!(is_any, "{mechanism}: no connection authenticated again");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| at_last("SCRAM-SHA-256", SCRAM_256_USER));
        scope.spawn(|| at_last("OAUTHBEARER", DORA));
    });
}

/// `vip-*` may send anything, bob a little more than others, Java 4 less.
const RULES: &str = r#"
rules:
  - {name: vip, topics: ["*"], clients: {client_ids: ["vip-*"]}, limits: {record_bytes: 100KiB}, action: observe}
  - {name: bob, topics: ["*"], clients: {principals: [bob], client_ids: ["/b.*/"]}, limits: {record_bytes: 3000}}
  - {name: java4, topics: ["*"], clients: {software: ["apache-kafka-java/4.*"]}, limits: {record_bytes: 500}}
  - {name: all, topics: ["*"], limits: {record_bytes: 1000}}
"#;

#[test]
fn a_rule_for_some_clients_is_for_them_alone_and_follows_what_becomes_known() {
    let sizegate = start(RULES);
    let topic = guarded().topic("some", 1, &[]);
    let send = |connection: &mut Connection, bytes| {
        let parts = [Part::new(&topic, batch_of_bytes(bytes).build())];
        connection.produce(13, -1, &parts)[0].clone()
    };
    let limit = |text: Option<String>| -> String {
        let text = text.expect("a refusal");
        let (_, tail) = text.split_once(" rule=").expect("a rule");
        tail.split_once(' ').expect("more fields").0.to_owned()
    };
    let mut connection = Connection::open(sizegate.node(1));
    connection.client_id = Some("orders".into());
    connection.sasl_plain(PLAIN_USER.0, PLAIN_USER.1);
    assert_eq!(send(&mut connection, 900).code, 0);
    assert_eq!(limit(send(&mut connection, 2000).text), "all");
    // The client id is each request's own.
    connection.client_id = Some("vip-7".into());
    assert_eq!(send(&mut connection, 2000).code, 0);
    // One list is not enough where a rule has two.
    connection.client_id = Some("bridge".into());
    assert_eq!(limit(send(&mut connection, 2000).text), "all");
    connection.client_id = None;
    assert_eq!(limit(send(&mut connection, 2000).text), "all");

    let mut java = Connection::open(sizegate.node(1));
    java.api_versions("apache-kafka-java", "4.3.0");
    java.sasl_plain(PLAIN_USER.0, PLAIN_USER.1);
    assert_eq!(limit(send(&mut java, 900).text), "java4");

    let bob = self::java(
        "SendSizes",
        &sizegate,
        &topic,
        "SCRAM-SHA-256",
        SCRAM_256_USER,
    )
    .arg("p.client.id", "bridge")
    .arg("values", "2000,3500")
    .run();
    assert_eq!(bob.lines[0]["ok"], true, "{bob:?}");
    assert_eq!(
        limit(bob.lines[1]["text"].as_str().map(str::to_owned)),
        "bob"
    );
    let seen: BTreeSet<String> = refusals(&sizegate, &topic)
        .iter()
        .map(|refusal| refusal["principal"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(seen, BTreeSet::from(["alice".to_owned(), "bob".to_owned()]));
}
