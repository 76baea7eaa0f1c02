//! Producing through a proxy whose store is a real server: moto and s3s-fs for S3, Azurite for Azure. What lies there is
//! looked at by another client, and what lies on the broker is a ticket for it. Then what a producer sees of each thing
//! that can go wrong at a store: the table of docs/claim-check.md, row by row.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use sizegate::claim::{Digest, Key, Keys, Namespace, OpenBatch, Ticket, tickets};
use sizegate::codec::Decoders;

use crate::claim_store::{Fault, S3};
use crate::support::admin::{fetch_stored, metadata};
use crate::support::batch::random;
use crate::support::stores::{Azurite, Bucket, Object, Server};
use crate::support::{
    Connection, Kafka, Part, Program, Record, Sizegate, Topic, batch, eventually,
};

const PATIENCE: Duration = Duration::from_secs(120);
const SECRET: &str = "a secret of thirty-two bytes, yes";

fn yaml(store: &str, more: &str) -> String {
    format!(
        "claim_check:\n{store}  keys: [{{id: k1, secret: '{SECRET}'}}]\n{more}\
         rules:\n- name: large\n  topics: ['inline-*']\n  limits: {{record_bytes: 64KiB}}\n  action: offload\n  \
         offload: {{redeem: false, above: 16KiB, on_store_failure: inline_if_fits}}\n\
         - name: rest\n  topics: ['*']\n  limits: {{record_bytes: 64KiB}}\n  action: offload\n  \
         offload: {{redeem: false, above: 16KiB}}\n"
    )
}

/// The batches that are stored.
fn stored(kafka: &Kafka, topic: &Topic) -> Vec<OpenBatch> {
    let mut left = fetch_stored(&kafka.bootstrap(), &topic.name, 0, 64 << 20);
    let mut batches = Vec::new();
    while left.len() > 12 {
        let length = i32::from_be_bytes(left[8..12].try_into().unwrap());
        let bytes = left.split_to(12 + length as usize);
        batches.push(OpenBatch::open(&bytes, u64::MAX, &mut Decoders::new()).unwrap());
    }
    batches
}

/// The tickets on a topic, all of them valid, each with the key of its object.
fn stored_tickets(kafka: &Kafka, base: &str, topic: &Topic) -> Vec<(Ticket, String)> {
    let keys = Keys::new([Key::new("k1", SECRET.as_bytes()).unwrap()]).unwrap();
    let cluster = metadata(&mut Connection::open(kafka.bootstrap()), &[]).cluster_id;
    let namespace = Namespace::new(base, &cluster.unwrap());
    let mut all = Vec::new();
    for batch in stored(kafka, topic) {
        for found in tickets(&batch, &topic.name, &namespace, &keys) {
            let (ticket, place) = found.ticket.expect("a valid ticket");
            all.push((ticket, format!("all/{}", place.key())));
        }
    }
    all
}

fn assert_is(object: &Object, ticket: &Ticket, value: &Bytes) {
    let digest = Digest::of(value);
    assert_eq!(object.size, value.len() as u64);
    assert_eq!(object.sha256, digest.hex());
    assert_eq!((ticket.sha256, ticket.size), (digest, value.len() as u64));
}

/// What `layout` says of a key below its topic's prefix.
fn assert_layout(layout: &str, key: &str, digest: &Digest) {
    let parts: Vec<&str> = key.split('/').collect();
    match (layout, &parts[3..]) {
        ("day", [day, name]) => {
            assert!(day.starts_with("dt=20") && day.len() == 13, "{key}");
            assert_eq!(*name, digest.hex());
        }
        ("content", [name]) => assert_eq!(*name, digest.hex()),
        ("event", [name]) => assert!(uuid::Uuid::parse_str(name).is_ok(), "{key}"),
        _ => panic!("{layout}: {key}"),
    }
}

#[test]
fn in_a_real_s3_lies_what_was_sent_and_the_ticket_names_it() {
    let kafka = Kafka::shared("4.4.0");
    let value = Bytes::from(random(1_500_000, 7));
    for server in Server::ALL {
        for layout in ["day", "content", "event"] {
            let bucket = Bucket::new(server);
            let config = yaml(&bucket.yaml(), &format!("  layout: {layout}\n"));
            let sizegate = Sizegate::start(kafka, &config);
            let topic = kafka.topic("s3", 1, &[]);
            let mut connection = Connection::open(sizegate.bootstrap());
            for _ in 0..2 {
                let record = Record::value(value.clone()).key("key").header("h", "v");
                let sent = [Part::new(&topic, batch([record]).build())];
                let response = connection.produce(9, -1, &sent);
                assert_eq!(response[0].code, 0, "{server:?}: {:?}", response[0].text);
            }
            let objects = bucket.objects();
            let base = format!("s3://{}/all", bucket.name);
            let tickets = stored_tickets(kafka, &base, &topic);
            assert_eq!(tickets.len(), 2);
            // The same value twice is one object, but for the layout that keeps one for each event.
            let is_shared = layout != "event";
            assert_eq!(
                objects.len(),
                if is_shared { 1 } else { 2 },
                "{server:?} {layout}"
            );
            for (ticket, key) in &tickets {
                let object = objects.iter().find(|object| object.key == *key);
                let object = object.unwrap_or_else(|| panic!("{server:?}: no {key}: {objects:?}"));
                assert_is(object, ticket, &value);
                assert_layout(layout, key, &ticket.sha256);
            }
            let outcome = |outcome| {
                let labels = [("operation", "put"), ("outcome", outcome)];
                sizegate
                    .metrics()
                    .sum("claim_store_requests_total", &labels)
            };
            let expected = if is_shared { (1.0, 1.0) } else { (2.0, 0.0) };
            assert_eq!(
                (outcome("created"), outcome("there")),
                expected,
                "{server:?} {layout}"
            );
        }
    }
}

#[test]
fn a_real_producer_offloads_into_each_s3() {
    let kafka = Kafka::shared("4.4.0");
    for server in Server::ALL {
        let bucket = Bucket::new(server);
        let sizegate = Sizegate::start(kafka, &yaml(&bucket.yaml(), ""));
        let topic = kafka.topic("s3", 1, &[]);
        let output = Program::python("produce.py")
            .arg("client", "confluent")
            .arg("max", 20_000_000)
            .arg("bootstrap", sizegate.bootstrap())
            .arg("topic", &topic.name)
            .arg("values", "300000,100,5000000")
            .run();
        assert_eq!(
            output.where_is("ok", true).len(),
            3,
            "{server:?}: {:?}",
            output.lines
        );
        let mut sizes: Vec<u64> = bucket.objects().iter().map(|object| object.size).collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [300_000, 5_000_000], "{server:?}");
        let base = format!("s3://{}/all", bucket.name);
        assert_eq!(stored_tickets(kafka, &base, &topic).len(), 2);
    }
}

#[test]
fn a_wrong_credential_is_told_again_and_nothing_is_stored() {
    let kafka = Kafka::shared("4.4.0");
    let bucket = Bucket::new(Server::S3sFs);
    let sizegate = Sizegate::start(kafka, &yaml(&bucket.yaml_as("another", "secret"), ""));
    let topic = kafka.topic("s3", 1, &[]);
    let sent = [Part::new(
        &topic,
        batch([Record::of_random(100_000, 1)]).build(),
    )];
    let response = Connection::open(sizegate.bootstrap()).produce(9, -1, &sent);
    assert_eq!(response[0].code, 19, "{:?}", response[0].text);
    assert_eq!(stored(kafka, &topic).len(), 0);
    sizegate.log_line(&["NotSignedUp"]);
}

#[test]
fn in_azurite_lies_what_was_sent_and_the_ticket_names_it() {
    let kafka = Kafka::shared("4.4.0");
    let azurite = Azurite::start();
    let sizegate = Sizegate::start(kafka, &yaml(&azurite.yaml(), ""));
    let topic = kafka.topic("azure", 1, &[]);
    let value = Bytes::from(random(1_500_000, 8));
    let sent = [Part::new(
        &topic,
        batch([Record::value(value.clone())]).build(),
    )];
    let mut connection = Connection::open(sizegate.bootstrap());
    for _ in 0..2 {
        let response = connection.produce(9, -1, &sent);
        assert_eq!(response[0].code, 0, "{:?}", response[0].text);
    }
    let objects = azurite.objects();
    let tickets = stored_tickets(kafka, "az://claims/all", &topic);
    assert_eq!((objects.len(), tickets.len()), (1, 2), "{objects:?}");
    for (ticket, key) in &tickets {
        assert_eq!(objects[0].key, *key);
        assert_is(&objects[0], ticket, &value);
    }
}

/// What a store does, and what becomes of a batch that would also fit as it is.
struct Row {
    /// As the table in the docs names it.
    name: &'static str,
    faults: Vec<Fault>,
    /// The code with `refuse`: 0 or 19.
    code: i16,
    /// The outcome label of the request to the store.
    outcome: &'static str,
}

fn rows() -> Vec<Row> {
    let error = |status, code, times| vec![Fault::Error(status, code); times];
    let row = |name, faults, code, outcome| Row {
        name,
        faults,
        code,
        outcome,
    };
    vec![
        row(
            "500 InternalError, twice",
            error(500, "InternalError", 2),
            0,
            "created",
        ),
        row(
            "503 SlowDown, twice",
            error(503, "SlowDown", 2),
            0,
            "created",
        ),
        row(
            "409 ConditionalRequestConflict",
            error(409, "ConditionalRequestConflict", 1),
            0,
            "created",
        ),
        row(
            "connection reset in the middle of the upload",
            vec![Fault::ResetInTheMiddle],
            0,
            "created",
        ),
        row(
            "stored, and its response lost",
            vec![Fault::DoneAndReset],
            0,
            "there",
        ),
        row(
            "503 SlowDown without end",
            error(503, "SlowDown", 1_000),
            19,
            "transient",
        ),
        row(
            "expired token without end",
            error(400, "ExpiredToken", 1_000),
            19,
            "transient",
        ),
        row(
            "403 AccessDenied",
            error(403, "AccessDenied", 1),
            19,
            "config",
        ),
        row(
            "404 NoSuchBucket",
            error(404, "NoSuchBucket", 1),
            19,
            "config",
        ),
        row(
            "301 PermanentRedirect without end",
            error(301, "PermanentRedirect", 1_000),
            19,
            "transient",
        ),
    ]
}

#[test]
fn what_a_producer_sees_of_a_store_that_fails_is_what_the_docs_say() {
    let kafka = Kafka::shared("4.4.0");
    let docs =
        std::fs::read_to_string(crate::support::programs::repo().join("docs/claim-check.md"));
    let docs = docs.unwrap();
    let (refuse, inline) = (kafka.topic("refuse", 1, &[]), kafka.topic("inline", 1, &[]));
    for Row {
        name,
        faults,
        code,
        outcome,
    } in rows()
    {
        // In the docs with the code that is asserted here.
        let seen = if code == 0 { "stored" } else { "code 19" };
        let line = docs
            .lines()
            .find(|line| line.starts_with(&format!("| {name} |")));
        assert!(
            line.is_some_and(|line| line.contains(seen)),
            "docs/claim-check.md has no row: | {name} | {seen}"
        );

        for topic in [&refuse, &inline] {
            let before = stored(kafka, topic).len();
            let s3 = S3::start();
            let sizegate = Sizegate::start(kafka, &yaml(&s3.yaml(), ""));
            s3.script("PUT", faults.clone());
            let sent = [Part::new(
                topic,
                batch([Record::of_random(40_000, 1)]).build(),
            )];
            let response = Connection::open(sizegate.bootstrap()).produce(9, -1, &sent);
            let is_inline = topic.name == inline.name && code != 0;
            let expected = if is_inline { 0 } else { code };
            assert_eq!(response[0].code, expected, "{name}: {:?}", response[0].text);
            let labels = [("operation", "put"), ("outcome", outcome)];
            let counted = sizegate
                .metrics()
                .sum("claim_store_requests_total", &labels);
            assert_eq!(counted, 1.0, "{name}: {outcome}");
            assert_eq!(s3.objects(), usize::from(code == 0), "{name}");
            let after = stored(kafka, topic);
            assert_eq!(after.len() - before, usize::from(expected == 0), "{name}");
            if let Some(last) = after.last().filter(|_| expected == 0) {
                assert_eq!(last.records().len() > 40_000, is_inline, "{name}");
            }
        }
    }
}

#[test]
fn a_silent_store_costs_a_client_no_more_than_it_waits() {
    let kafka = Kafka::shared("4.4.0");
    let s3 = S3::start();
    let sizegate = Sizegate::start(kafka, &yaml(&s3.yaml(), ""));
    let topic = kafka.topic("silent", 1, &[]);
    // The raw client gives a request 30 s, of which the store gets 24 at most. Silent once: the next attempt stores it.
    s3.script("PUT", [Fault::Silence]);
    let sent = [Part::new(
        &topic,
        batch([Record::of_random(40_000, 1)]).build(),
    )];
    let mut connection = Connection::open(sizegate.bootstrap());
    let response = connection.produce(9, -1, &sent);
    assert_eq!(response[0].code, 0, "{:?}", response[0].text);
    assert_eq!(s3.seen("PUT"), 2);
    // Silent for as long as anybody waits: told to send again.
    s3.script("PUT", vec![Fault::Silence; 100]);
    let sent = [Part::new(
        &topic,
        batch([Record::of_random(40_000, 2)]).build(),
    )];
    let response = connection.produce(9, -1, &sent);
    assert_eq!(response[0].code, 19, "{:?}", response[0].text);
    assert_eq!(stored(kafka, &topic).len(), 1);
}

/// The store has the object, the proxy does not know it yet: killed there, it leaves an orphan and no ticket; and what is
/// sent again finds its object.
#[test]
fn killed_before_the_store_has_answered_it_leaves_an_object_and_no_ticket() {
    let kafka = Kafka::shared("4.4.0");
    let s3 = S3::start();
    let topic = kafka.topic("killed", 1, &[]);
    let sent = [Part::new(
        &topic,
        batch([Record::of_random(300_000, 1)]).build(),
    )];
    let mut sizegate = Sizegate::start(kafka, &yaml(&s3.yaml(), ""));
    s3.script("PUT", [Fault::DoneAndSilence]);
    let mut connection = Connection::open(sizegate.bootstrap());
    connection.send_produce(9, -1, &sent);
    eventually(PATIENCE, "the object is there", || {
        (s3.objects() == 1).then_some(())
    });
    sizegate.process().signal("KILL");
    sizegate.process().wait(PATIENCE);
    assert_eq!(stored(kafka, &topic).len(), 0);

    let sizegate = Sizegate::start(kafka, &yaml(&s3.yaml(), ""));
    let response = Connection::open(sizegate.bootstrap()).produce(9, -1, &sent);
    assert_eq!(response[0].code, 0, "{:?}", response[0].text);
    assert_eq!(s3.objects(), 1);
    let tickets = stored_tickets(kafka, "s3://bucket/claims", &topic);
    assert_eq!(tickets.len(), 1);
    // The store is told the checksum with every upload, so that it takes nothing else.
    let checksum = STANDARD.encode(tickets[0].0.sha256.0);
    assert_eq!(s3.checksums(), [checksum.clone(), checksum]);
}
