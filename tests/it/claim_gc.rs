//! `sizegate claim gc`: what nothing names goes into the trash and then away, whatever the store; what is named stays or
//! comes back, beside producers that go on meanwhile.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::Value;
use sizegate::claim::{Namespace, OpenBatch, Ticket};
use sizegate::cluster::At;
use sizegate::codec::Decoders;
use tokio_util::sync::CancellationToken;

use crate::claim_store::{Fault, S3};
use crate::control_plane::{runtime, unpolled};
use crate::support::admin::{delete_records, fetch_stored};
use crate::support::batch::random;
use crate::support::command::{Ran, sizegate};
use crate::support::stores::{Server, Store};
use crate::support::{Connection, Kafka, Part, Record, Sizegate, Topic, batch, eventually, unique};

const SECRET: &str = "a secret of thirty-two bytes, yes";
const PATIENCE: Duration = Duration::from_secs(120);

struct Setup {
    kafka: &'static Kafka,
    store: Store,
    stem: String,
    retention: &'static str,
    /// In the store's place.
    s3: Option<S3>,
}

impl Setup {
    fn new(store: Store) -> Self {
        let kafka = Kafka::shared("4.4.0");
        let stem = unique("gc");
        Self {
            kafka,
            store,
            stem,
            retention: "2s",
            s3: None,
        }
    }

    /// An object is old after half of the retention, and the grace.
    fn claims(&self) -> String {
        format!(
            "claim_check:\n{}  keys: [{{id: k1, secret: '{SECRET}'}}]\n  retention: {}\n  grace: 2s\n\
             rules:\n- name: large\n  topics: ['{}*']\n  limits: {{record_bytes: 64KiB}}\n  action: offload\n",
            match &self.s3 {
                Some(s3) => s3.yaml(),
                None => self.store.yaml(),
            },
            self.retention,
            self.stem
        )
    }

    fn topic(&self) -> Topic {
        self.kafka.create_topic(&self.stem, 1, 1, &[])
    }

    fn start(&self) -> Sizegate {
        Sizegate::start(self.kafka, &self.claims())
    }

    fn run(&self, words: &[&str]) -> Ran {
        let servers = self.kafka.bootstrap();
        let claims = self.claims();
        let yaml = format!("cluster: {{bootstrap_servers: ['{servers}']}}\n{claims}");
        sizegate(&[&["claim"], words].concat(), &yaml)
    }

    fn gc(&self, words: &[&str], code: i32) -> Value {
        let ran = self.run(&[&["gc", "--output", "json"], words].concat());
        assert_eq!(ran.code, code, "{words:?}: {ran:?}");
        ran.json()
    }
}

fn produce(connection: &mut Connection, topic: &Topic, value: Vec<u8>) -> bool {
    let sent = batch([Record::value(value).key("k")]).build();
    connection.produce(9, -1, &[Part::new(topic, sent)])[0].code == 0
}

/// The numbers of the one topic that there is.
fn numbers(found: &Value, names: [&str; 5]) -> [u64; 5] {
    names.map(|name| found["topics"][0][name].as_u64().unwrap())
}

const NUMBERS: [&str; 5] = [
    "objects",
    "with_ticket",
    "into_trash",
    "in_trash",
    "removed",
];

#[test]
fn what_nothing_names_goes_into_the_trash_and_is_gone_a_while_later() {
    for store in [
        Store::folder(),
        Store::bucket(Server::S3sFs),
        Store::bucket(Server::Moto),
    ] {
        let setup = Setup::new(store);
        let topic = setup.topic();
        let proxy = setup.start();
        let mut connection = Connection::open(proxy.bootstrap());
        for n in 0..3 {
            assert!(produce(&mut connection, &topic, random(100_000, n)));
        }
        let keys = setup.store.keys();
        assert_eq!(keys.len(), 3);
        let (prefix, _) = keys[0].split_once("dt=").unwrap();
        setup
            .store
            .put(&format!("{prefix}readme.txt"), "somebody's own");
        delete_records(&setup.kafka.bootstrap(), &topic.name, 2);
        // A plan, which moves nothing.
        let plan = eventually(PATIENCE, "all are old enough", || {
            let ran = setup.run(&["gc", "--output", "json"]);
            let plan = ran.json();
            (numbers(&plan, NUMBERS) == [3, 1, 2, 0, 0]).then_some((ran.code, plan))
        });
        assert_eq!(plan.0, 1);
        assert_eq!(plan.1["foreign_objects"], 1);
        assert_eq!(setup.store.keys().len(), 4);
        let table = setup.run(&["gc"]);
        assert!(
            table.out.contains("To do it: the same with --apply"),
            "{table:?}"
        );
        // Into the trash; what lies there is young, and nothing else is left to do.
        let done = setup.gc(&["--apply"], 0);
        assert_eq!(numbers(&done, NUMBERS), [3, 1, 2, 0, 0]);
        let trash = |key: &String| key.starts_with(&format!("{prefix}trash/dt="));
        assert_eq!(
            setup.store.keys().iter().filter(|key| trash(key)).count(),
            2
        );
        let again = setup.gc(&["--apply"], 0);
        assert_eq!(numbers(&again, NUMBERS), [1, 1, 0, 2, 0]);
        // Back, and into it again.
        assert_eq!(setup.gc(&["--restore"], 1)["topics"][0]["restored"], 2);
        assert_eq!(
            setup.gc(&["--restore", "--apply"], 0)["topics"][0]["restored"],
            2
        );
        let back: Vec<String> = setup.store.keys();
        assert!(keys.iter().all(|key| back.contains(key)), "{back:?}");
        // Each is old enough in a second of its own.
        let (mut moved, mut gone) = (0, 0);
        eventually(PATIENCE, "they are old again", || {
            moved += numbers(&setup.gc(&["--apply"], 0), NUMBERS)[2];
            (moved == 2).then_some(())
        });
        // They have lain there for long enough.
        eventually(PATIENCE, "they are gone", || {
            let done = setup.gc(&["--apply", "--trash-for", "1s"], 0);
            gone += numbers(&done, NUMBERS)[4];
            (gone == 2).then_some(())
        });
        let left = setup.store.keys();
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(left.contains(&format!("{prefix}readme.txt")));
        assert_eq!(setup.run(&["verify", &topic.name]).code, 0);
    }
}

#[test]
fn what_is_named_after_all_is_read_from_the_trash_and_comes_back() {
    for store in [Store::folder(), Store::bucket(Server::S3sFs)] {
        let setup = Setup::new(store);
        let topic = setup.topic();
        let proxy = setup.start();
        let mut connection = Connection::open(proxy.bootstrap());
        assert!(produce(&mut connection, &topic, random(100_000, 7)));
        let key = setup.store.keys().remove(0);
        let trash = key.replacen("/dt=", "/trash/dt=", 1);
        setup.store.rename(&key, &trash);
        let read = fetch_stored(&proxy.bootstrap(), &topic.name, 0, 1 << 20);
        assert!(read.windows(100_000).any(|part| part == random(100_000, 7)));
        assert_eq!(setup.run(&["verify", &topic.name]).code, 0);
        assert_eq!(setup.run(&["verify", &topic.name, "--sizes-only"]).code, 0);
        // However long it has lain there.
        let plan = setup.gc(&["--trash-for", "0s"], 1);
        assert_eq!(plan["topics"][0]["restored"], 1, "{plan:#}");
        setup.gc(&["--apply", "--trash-for", "0s"], 0);
        assert_eq!(setup.store.keys(), [key]);
    }
}

#[test]
fn objects_of_topics_whose_tickets_were_not_read_are_left_alone() {
    let setup = Setup::new(Store::folder());
    let topic = setup.topic();
    let proxy = setup.start();
    let mut connection = Connection::open(proxy.bootstrap());
    assert!(produce(&mut connection, &topic, random(100_000, 8)));
    let other = setup.kafka.topic("others", 1, &[]);
    let key = setup.store.keys().remove(0);
    for name in [&other.name, "gone"] {
        setup
            .store
            .put(&key.replace(&topic.name, name), "of another topic");
    }
    let of = |found: &Value, name: &str, field: &str| {
        let topics = found["topics"].as_array().unwrap();
        let of = topics.iter().find(|of| of["topic"] == name);
        of.map(|of| of[field].as_u64().unwrap())
    };
    let gone = "gone (no such topic)";
    let left = setup.gc(&[], 0);
    assert_eq!(of(&left, &other.name, "left"), Some(1), "{left:#}");
    assert_eq!(of(&left, gone, "left"), Some(1));
    // Asked for by name, and by what is no more.
    eventually(PATIENCE, "it is old enough", || {
        let done = setup.gc(&[&other.name, "--apply"], 0);
        (of(&done, &other.name, "into_trash") == Some(1)).then_some(())
    });
    let done = setup.gc(&["--gone-topics", "--apply"], 0);
    assert_eq!(of(&done, gone, "into_trash"), Some(1), "{done:#}");
    assert_eq!(of(&done, &topic.name, "with_ticket"), Some(1));
}

/// A ticket for an object that nothing named when it looked.
#[test]
fn what_is_sent_again_while_it_stands_between_two_steps_keeps_its_object() {
    for (method, retention, outcome) in [
        // It has read the topics, and is about to look at the objects: this one is young, and given to a new ticket.
        ("GET", "10m", "young"),
        // It is about to move an object that is old, and written again for a new ticket.
        ("HEAD", "2s", "written_again"),
    ] {
        let s3 = S3::start();
        let setup = Setup {
            retention,
            s3: Some(s3.clone()),
            ..Setup::new(Store::folder())
        };
        let topic = setup.kafka.create_topic(&setup.stem, 2, 1, &[]);
        let proxy = setup.start();
        let mut connection = Connection::open(proxy.bootstrap());
        let mut send = |partition| {
            let sent = batch([Record::value(random(100_000, 9)).key("k")]).build();
            let response = connection.produce(9, -1, &[Part::at(&topic, partition, sent)]);
            assert_eq!(response[0].code, 0, "{:?}", response[0].text);
        };
        send(0);
        delete_records(&setup.kafka.bootstrap(), &topic.name, 1);
        // Older than `grace`, and than what goes under the short retention.
        std::thread::sleep(Duration::from_secs(4));
        let go_on = CancellationToken::new();
        s3.script(method, [Fault::Held(go_on.clone())]);
        let done = std::thread::scope(|scope| {
            let gc = scope.spawn(|| setup.gc(&["--apply"], 0));
            eventually(PATIENCE, "it stands there", || {
                (s3.seen("HELD") == 1).then_some(())
            });
            send(1);
            go_on.cancel();
            gc.join().unwrap()
        });
        let of = &done["topics"][0];
        let verified = setup.run(&["verify", &topic.name]);
        assert_eq!(verified.code, 0, "{method}: {verified:?}");
        assert_eq!(
            (&of[outcome], &of["into_trash"]),
            (&1.into(), &0.into()),
            "{done:#}"
        );
    }
}

/// Keys that tickets on a topic name.
fn named(kafka: &Kafka, store: &Store, topic: &Topic) -> BTreeSet<String> {
    let Store::Folder(folder) = store else {
        panic!("a folder");
    };
    let namespace = Namespace::new(&format!("file://{}", folder.display()), "any");
    let mut keys = BTreeSet::new();
    runtime().block_on(async {
        let mut reader = unpolled(&kafka.bootstrap(), &[])
            .reader(&topic.name)
            .await
            .unwrap();
        for partition in reader.partitions() {
            let start = reader.offset(partition, At::Start).await.unwrap();
            let end = reader.offset(partition, At::End).await.unwrap();
            let mut batches = reader.batches(partition, start, end);
            while let Some(stored) = batches.next().await.unwrap() {
                let batch = OpenBatch::open(&stored.bytes, u64::MAX, &mut Decoders::new()).unwrap();
                for (_, parts) in batch.parts() {
                    let ticket = Ticket::from_json(&batch.records()[parts.value.unwrap()]).unwrap();
                    keys.insert(namespace.key_of(&ticket.uri).unwrap().to_owned());
                }
            }
        }
    });
    keys
}

/// Each value is sent to partition 0, whose tickets go at once, and most of them once more, a while later, to partition 1,
/// whose tickets stay: when its object is young, old, about to be moved, in the trash, or gone. Nobody sends it again.
fn send_twice(
    setup: &Setup,
    proxy: &Sizegate,
    topic: &Topic,
    seeds: std::ops::Range<u64>,
    is_over: &AtomicBool,
) {
    let mut connection = Connection::open(proxy.bootstrap());
    let mut again: VecDeque<(Instant, u64)> = VecDeque::new();
    let send = |connection: &mut Connection, partition: i32, seed: u64| {
        let sent = batch([Record::value(random(70_000, seed)).key("k")]).build();
        eventually(PATIENCE, "it is stored", || {
            let response = connection.produce(9, -1, &[Part::at(topic, partition, sent.clone())]);
            (response[0].code == 0).then_some(())
        });
    };
    for seed in seeds {
        if is_over.load(Relaxed) {
            return;
        }
        send(&mut connection, 0, seed);
        if seed % 4 != 0 {
            // From one second to eleven: an object is old after seven.
            let due = Duration::from_millis(1_000 + seed * 997 % 10_000);
            let at = again.partition_point(|(other, _)| *other < Instant::now() + due);
            again.insert(at, (Instant::now() + due, seed));
        }
        while let Some((_, seed)) = again.pop_front_if(|(due, _)| *due <= Instant::now()) {
            send(&mut connection, 1, seed);
        }
        std::thread::sleep(Duration::from_millis(40));
    }
    panic!("{}: more time than values", setup.stem);
}

#[test]
fn beside_producers_no_ticket_loses_its_object() {
    let setup = Setup {
        retention: "10s",
        ..Setup::new(Store::folder())
    };
    let topic = setup.kafka.create_topic(&setup.stem, 2, 1, &[]);
    let proxy = setup.start();
    let is_over = AtomicBool::new(false);
    let mut moved = [0; 5];
    std::thread::scope(|scope| {
        for producer in 0..3 {
            let seeds = 100_000 * (producer + 1)..100_000 * (producer + 2);
            let (setup, proxy, topic, is_over) = (&setup, &proxy, &topic, &is_over);
            scope.spawn(move || send_twice(setup, proxy, topic, seeds, is_over));
        }
        let count = |found: &Value| numbers(found, NUMBERS);
        eventually(
            PATIENCE,
            "objects went into the trash and out of it",
            || {
                let end = setup.kafka.latest_offset(&topic.name, 0);
                delete_records(&setup.kafka.bootstrap(), &topic.name, end);
                let done = setup.gc(&["--apply", "--trash-for", "1s"], 0);
                let all = moved.iter_mut().zip(count(&done));
                all.for_each(|(sum, n)| *sum += n);
                // Where nothing comes out of it, what is lost is told below.
                (moved[2] >= 60 && (moved[4] >= 30 || moved[2] >= 200)).then_some(())
            },
        );
        is_over.store(true, Relaxed);
    });
    let named = named(setup.kafka, &setup.store, &topic);
    assert!(named.len() > 10, "{}", named.len());
    let verified = setup.run(&["verify", &topic.name]);
    assert_eq!(verified.code, 0, "{verified:?}");
    // What lies in the trash and is named after all comes back.
    setup.gc(&["--apply"], 0);
    let keys: BTreeSet<String> = setup.store.keys().into_iter().collect();
    let lost: Vec<&String> = named.difference(&keys).collect();
    assert!(lost.is_empty(), "{lost:?}");
    assert!(moved[4] >= 30, "{moved:?}");
}
