//! The claim check's whole story, on a folder and on S3: five events, of which one object goes missing and one is tampered
//! with; three arrive, two are in the fallback topic; the objects come back, and so do the two.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use serde_json::Value;
use sizegate::claim::Digest;

use crate::support::batch::random;
use crate::support::command::{Ran, sizegate};
use crate::support::stores::{Server, Store};
use crate::support::{Connection, Kafka, Part, Program, Record, Sizegate, Topic, batch, unique};

const SECRET: &str = "a secret of thirty-two bytes, yes";
const TAMPERED: &str = "{\"tampered\":true}";

/// A `claim_check` over a store, and a rule.
fn yaml(store: &Store) -> String {
    format!(
        "claim_check:\n{}  keys: [{{id: k1, secret: '{SECRET}'}}]\n  grace: 1s\n\
         rules:\n- name: large\n  topics: ['claims*']\n  limits: {{record_bytes: 64KiB, batch_bytes: 1MiB}}\n  \
         action: offload\n",
        store.yaml()
    )
}

fn key_of(store: &Store, value: &[u8]) -> String {
    let name = Digest::of(value).hex();
    let mut keys = store.keys().into_iter();
    keys.find(|key| key.ends_with(&name)).expect("an object")
}

struct Story {
    kafka: &'static Kafka,
    store: Store,
    sizegate: Sizegate,
    topic: Topic,
    events: Vec<Vec<u8>>,
}

impl Story {
    fn begin(store: Store) -> Self {
        let kafka = Kafka::shared("4.4.0");
        let sizegate = Sizegate::start(kafka, &yaml(&store));
        let topic = kafka.topic("claims", 1, &[]);
        kafka.create_topic(&format!("{}.claim.missing", topic.name), 1, 1, &[]);
        let story = Self {
            kafka,
            store,
            sizegate,
            topic,
            events: (1..=5).map(|n| random(307_206, 900 + n)).collect(),
        };
        for n in 0..5 {
            story.produce(n);
        }
        assert_eq!(story.store.keys().len(), 5);
        story.store.delete(&key_of(&story.store, &story.events[1]));
        story
            .store
            .put(&key_of(&story.store, &story.events[3]), TAMPERED);
        story
    }

    fn produce(&self, n: usize) {
        let record = Record::value(self.events[n].clone()).key(format!("event-{}", n + 1));
        let parts = [Part::new(&self.topic, batch([record]).build())];
        let response = Connection::open(self.sizegate.bootstrap()).produce(9, -1, &parts);
        assert_eq!(response[0].code, 0, "{:?}", response[0].text);
    }

    /// What a group reads: key and sha256 of so many records; and what it committed.
    fn read(&self, program: Program, records: usize) -> (Vec<(String, String)>, i64) {
        let output = program
            .arg("bootstrap", self.sizegate.bootstrap())
            .arg("topic", &self.topic.name)
            .arg("group", unique("g"))
            .arg("records", records)
            .run();
        let text = |line: &Value, name: &str| line[name].as_str().unwrap().to_owned();
        let read = output
            .lines
            .iter()
            .filter(|line| line.get("sha256").is_some());
        let read = read
            .map(|line| (text(line, "key"), text(line, "sha256")))
            .collect();
        (
            read,
            output.only("end", true)["committed"].as_i64().unwrap(),
        )
    }

    fn event(&self, n: usize) -> (String, String) {
        let sha256 = Digest::of(&self.events[n - 1]).hex();
        (format!("event-{n}"), sha256)
    }

    fn command(&self, words: &[&str]) -> Ran {
        let servers = self.kafka.bootstrap();
        let yaml = format!(
            "cluster: {{bootstrap_servers: ['{servers}']}}\n{}",
            yaml(&self.store)
        );
        sizegate(&[&["claim"], words].concat(), &yaml)
    }

    fn failures(&self, class: &str) -> f64 {
        let labels = [("topic", self.topic.name.as_str()), ("class", class)];
        let metrics = self.sizegate.metrics();
        metrics.sum("claim_redeem_failures_total", &labels)
    }
}

fn readers() -> [(&'static str, Program); 2] {
    [
        ("Java", Program::java("Originals", "4.4.0")),
        ("librdkafka", Program::python("originals.py")),
    ]
}

fn tell(store: Store) {
    let story = Story::begin(store);
    let three = [1, 3, 5].map(|n| story.event(n));
    for (name, program) in readers() {
        let (read, committed) = story.read(program, 3);
        assert_eq!(read, three, "{name}");
        // The group's lag is 0.
        assert_eq!(committed, 5, "{name}");
    }
    assert!(story.failures("missing") >= 2.0);
    assert_eq!(story.failures("corrupt"), 1.0);

    let topic = story.topic.name.as_str();
    let lies = story.command(&["fallback", topic, "--output", "json"]);
    assert_eq!(lies.code, 1, "{lies:?}");
    let lies = lies.json();
    let records = lies["topics"][0]["records"].as_array().unwrap();
    let mut lost: Vec<(i64, &str)> = records
        .iter()
        .map(|of| {
            (
                of["original_offset"].as_i64().unwrap(),
                of["class"].as_str().unwrap(),
            )
        })
        .collect();
    lost.sort_unstable();
    assert_eq!(lost, [(1, "missing"), (3, "corrupt")]);
    // Nothing can come back yet.
    let plan = story.command(&["redrive", topic, "--apply", "--output", "json"]);
    assert_eq!(
        (plan.code, &plan.json()["not"]),
        (1, &Value::from(2)),
        "{plan:?}"
    );
    assert_eq!(story.kafka.latest_offset(topic, 0), 5);

    // The right objects are put back: the same values are produced once more.
    story.produce(1);
    story.produce(3);
    let plan = story.command(&["redrive", topic, "--output", "json"]);
    assert_eq!(
        (plan.code, &plan.json()["ready"]),
        (1, &Value::from(2)),
        "{plan:?}"
    );
    assert_eq!(story.kafka.latest_offset(topic, 0), 7);
    let done = story.command(&["redrive", topic, "--apply", "--output", "json"]);
    assert_eq!(
        (done.code, &done.json()["back"]),
        (0, &Value::from(2)),
        "{done:?}"
    );
    let again = story.command(&["redrive", topic, "--apply", "--output", "json"]);
    assert_eq!(
        (again.code, &again.json()["back_before"]),
        (0, &Value::from(2)),
        "{again:?}"
    );
    assert_eq!(story.kafka.latest_offset(topic, 0), 9);
    let mut expected = three.to_vec();
    expected.extend([2, 4].map(|n| story.event(n)));
    for (name, program) in readers() {
        let (mut read, committed) = story.read(program, 7);
        assert_eq!(read.split_off(5), [2, 4].map(|n| story.event(n)), "{name}");
        assert_eq!((read, committed), (expected.clone(), 9), "{name}");
    }
}

#[test]
fn on_a_folder_five_events_come_to_their_end() {
    tell(Store::folder());
}

#[test]
fn on_s3_five_events_come_to_their_end() {
    tell(Store::bucket(Server::S3sFs));
}
