//! Producing through a proxy that offloads: what the client hears, what lies on the broker, what lies in the store.
//!
//! Values come back by [`sizegate::claim::redeem`] from the objects' own bytes, so that what is compared is what the
//! client sent.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use sizegate::claim::{Digest, Found, Key, Keys, Namespace, OpenBatch, redeem, tickets};
use sizegate::codec::{Decoders, Encoding};
use sizegate::vocabulary::Codec;

use crate::support::admin::{fetch_stored, init_producer_id};
use crate::support::process::new_dir;
use crate::support::{
    Connection, Kafka, Part, Record, Sizegate, Topic, batch, eventually, number_from,
};

const SECRET: &str = "a secret of thirty-two bytes, yes";
const PATIENCE: Duration = Duration::from_secs(120);
/// As the issue has it: a record of 64 KiB, a batch of 1 MiB.
const ABOVE: usize = 64 * 1024;

/// The store's folder, gone afterwards.
pub struct Folder(pub PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0).or_else(|_| fs::remove_file(&self.0));
    }
}

impl Folder {
    pub fn new() -> Self {
        Self(new_dir("claims"))
    }

    pub fn yaml(&self, more: &str) -> String {
        let store = self.0.display();
        format!(
            "claim_check:\n  store: file://{store}\n  keys: [{{id: k1, secret: '{SECRET}'}}]\n\
             rules:\n- name: large\n  topics: ['*']\n  limits: {{record_bytes: 64KiB, batch_bytes: 1MiB, key_bytes: 1KiB}}\n  \
             action: offload\n  offload: {{redeem: false{more}}}\n"
        )
    }

    pub fn start(&self, kafka: &Kafka, more: &str) -> Sizegate {
        Sizegate::start(kafka, &self.yaml(more))
    }

    /// All objects, by their keys.
    pub fn objects(&self) -> BTreeMap<String, Bytes> {
        let mut objects = BTreeMap::new();
        let mut folders = vec![self.0.clone()];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = fs::read_dir(folder) else {
                continue;
            };
            for entry in entries {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if !path.to_string_lossy().contains('#') {
                    // What has a `#` is being written.
                    objects.insert(self.key_of(&path), fs::read(&path).unwrap().into());
                }
            }
        }
        objects
    }

    fn key_of(&self, path: &Path) -> String {
        let key = path.strip_prefix(&self.0).unwrap();
        key.to_string_lossy().into_owned()
    }
}

/// One batch as stored, opened.
pub struct Stored {
    bytes: Bytes,
    pub batch: OpenBatch,
}

pub fn open(bytes: &Bytes) -> OpenBatch {
    OpenBatch::open(bytes, u64::MAX, &mut Decoders::new()).unwrap()
}

pub fn stored(kafka: &Kafka, topic: &Topic, partition: i32) -> Vec<Stored> {
    let mut left = fetch_stored(&kafka.bootstrap(), &topic.name, partition, 64 << 20);
    let mut batches = Vec::new();
    while left.len() > 12 {
        let length = i32::from_be_bytes(left[8..12].try_into().unwrap());
        let bytes = left.split_to(12 + length as usize);
        let control = bytes[22] & 0x20 != 0;
        if !control {
            let batch = open(&bytes);
            batches.push(Stored { bytes, batch });
        }
    }
    batches
}

/// The tickets of a batch; all of them valid.
fn found(kafka: &Kafka, folder: &Folder, topic: &Topic, batch: &OpenBatch) -> Vec<Found> {
    let keys = Keys::new([Key::new("k1", SECRET.as_bytes()).unwrap()]).unwrap();
    let cluster = cluster_id(kafka);
    let namespace = Namespace::new(&format!("file://{}", folder.0.display()), &cluster);
    tickets(batch, &topic.name, &namespace, &keys).collect()
}

fn cluster_id(kafka: &Kafka) -> String {
    let metadata = crate::support::admin::metadata(&mut Connection::open(kafka.bootstrap()), &[]);
    metadata.cluster_id.unwrap().to_string()
}

/// The values of a batch's tickets, by record, each from its own object and each with its own sha256.
pub fn originals(
    kafka: &Kafka,
    folder: &Folder,
    topic: &Topic,
    batch: &OpenBatch,
) -> Vec<(u32, Bytes)> {
    let objects = folder.objects();
    let found = found(kafka, folder, topic, batch);
    found
        .into_iter()
        .map(|found| {
            let (ticket, place) = found.ticket.expect("a valid ticket");
            let object = objects
                .get(place.key())
                .unwrap_or_else(|| panic!("no object for {place:?}: {:?}", objects.keys()));
            let value = match ticket.object_bytes {
                Some(bytes) => {
                    assert_eq!(bytes, object.len() as u64);
                    Bytes::from(zstd::decode_all(&object[..]).unwrap())
                }
                None => object.clone(),
            };
            assert_eq!(ticket.size, value.len() as u64);
            assert_eq!(ticket.sha256, Digest::of(&value));
            (found.record, value)
        })
        .collect()
}

/// What the broker sets in front of the checksum: base offset, and the leader's epoch.
fn without_brokers_own(batch: &[u8]) -> Vec<u8> {
    let mut batch = batch.to_vec();
    batch[..8].fill(0);
    batch[12..16].fill(0);
    batch
}

pub fn values(batch: &OpenBatch) -> Vec<Bytes> {
    let records = batch.records();
    let parts = batch.parts();
    parts
        .map(|(_, parts)| records.slice(parts.value.unwrap()))
        .collect()
}

/// Redeemed, a stored batch is the one that was sent: byte for byte without compression, else record for record.
fn assert_is_sent(kafka: &Kafka, folder: &Folder, topic: &Topic, stored: &Stored, sent: &Bytes) {
    let originals = originals(kafka, folder, topic, &stored.batch);
    let redeemed: Bytes = redeem(&stored.batch, &originals).unwrap().concat().into();
    if stored.batch.encoding() == Encoding::None {
        assert_eq!(without_brokers_own(&redeemed), without_brokers_own(sent));
    } else {
        let (redeemed, sent) = (open(&redeemed), open(sent));
        assert_eq!(redeemed.records(), sent.records());
        assert_eq!(redeemed.header().producer_id, sent.header().producer_id);
        assert_eq!(
            redeemed.header().max_timestamp_ms,
            sent.header().max_timestamp_ms
        );
    }
}

fn large(bytes: usize, seed: u64) -> Record {
    Record::of_random(bytes, seed)
        .key(format!("key-{seed}"))
        .header("content-type", "image/png")
}

#[test]
fn with_every_codec_the_ticket_travels_and_the_object_is_what_was_sent() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let mut connection = Connection::open(sizegate.bootstrap());
    for &codec in Codec::ALL {
        let topic = kafka.topic("offload", 1, &[]);
        let records = [
            Record::value("small"),
            large(300_000, 1),
            large(1_500_000, 2),
        ];
        let sent = batch(records).codec(codec).build();
        let response = connection.produce(9, -1, &[Part::new(&topic, sent.clone())]);
        assert_eq!(response[0].code, 0, "{codec}: {:?}", response[0].text);
        let stored = stored(kafka, &topic, 0);
        assert_eq!(stored.len(), 1);
        assert!(stored[0].bytes.len() < 4_000, "{}", stored[0].bytes.len());
        let tickets = found(kafka, &folder, &topic, &stored[0].batch);
        let records: Vec<u32> = tickets.iter().map(|found| found.record).collect();
        assert_eq!(records, [1, 2], "{codec}");
        let (ticket, _) = tickets[0].ticket.as_ref().unwrap();
        assert_eq!(ticket.content_type, "image/png");
        assert_is_sent(kafka, &folder, &topic, &stored[0], &sent);

        let metrics = sizegate.metrics();
        let of = [("topic", topic.name.as_str())];
        assert_eq!(metrics.sum("claim_offloaded_records_total", &of), 2.0);
        assert_eq!(metrics.sum("claim_offloaded_bytes_total", &of), 1_800_000.0);
        let verdict = |verdict| {
            let labels = [("topic", topic.name.as_str()), ("verdict", verdict)];
            metrics.sum("produce_batches_total", &labels)
        };
        assert_eq!(verdict("offloaded"), 1.0);
        assert_eq!(verdict("refused") + verdict("forwarded"), 0.0);
    }
    sizegate.log_line(&["values went to the object store", "offload"]);
    let seen = sizegate.json("/api/v1/claims");
    let topics = seen["topics"].as_array().unwrap();
    assert_eq!(topics.len(), Codec::ALL.len());
    for topic in topics {
        let counts = (&topic["offloaded_records"], &topic["offloaded_bytes"]);
        assert_eq!(counts, (&2.into(), &1_800_000.into()));
    }
    let store = &seen["store"][0];
    let puts = 2 * Codec::ALL.len() as u64;
    assert_eq!(store["operation"], "put");
    assert_eq!(store["outcomes"]["created"], puts, "{seen:#}");
}

#[test]
fn of_one_request_some_is_offloaded_some_refused_and_some_goes_as_it_came() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let mut connection = Connection::open(sizegate.bootstrap());
    let (first, second) = (kafka.topic("mixed", 4, &[]), kafka.topic("mixed", 1, &[]));
    let small = batch([Record::value("small")]).build();
    // A key that no ticket mends, beside a value that one would.
    let unmendable = batch([Record::of_a(200_000).key(vec![b'k'; 2_000])]).build();
    let [one, two] = [3, 4].map(|seed| batch([large(400_000, seed)]).build());
    // Nothing above the threshold, and too large together.
    let many = batch((0..30).map(|n| large(60_000, 100 + n))).build();
    let parts = [
        Part::at(&first, 0, small.clone()),
        Part::at(&first, 1, one.clone()),
        Part::at(&first, 2, unmendable),
        Part::at(&first, 3, many.clone()),
        Part::new(&second, two.clone()),
    ];
    for version in [7, 13] {
        let responses = connection.produce(version, -1, &parts);
        let by_place: BTreeMap<(String, i32), i16> = responses
            .iter()
            .map(|response| {
                (
                    (format!("{:?}", response.topic), response.partition),
                    response.code,
                )
            })
            .collect();
        let mut codes: Vec<i16> = by_place.into_values().collect();
        codes.sort_unstable();
        assert_eq!(codes, [0, 0, 0, 0, 10], "version {version}: {responses:?}");
    }
    for (topic, partition, sent, count) in [
        (&first, 0, small, 0),
        (&first, 1, one, 1),
        (&second, 0, two, 1),
    ] {
        let stored = stored(kafka, topic, partition);
        assert_eq!(stored.len(), 2);
        for stored in &stored {
            assert_eq!(found(kafka, &folder, topic, &stored.batch).len(), count);
            assert_is_sent(kafka, &folder, topic, stored, &sent);
        }
    }
    assert_eq!(stored(kafka, &first, 2).len(), 0);
    let together = stored(kafka, &first, 3);
    let offloaded = found(kafka, &folder, &first, &together[0].batch).len();
    // As few as it takes: 1.8 MB to 1 MiB.
    assert!((13..=14).contains(&offloaded), "{offloaded}");
    assert_is_sent(kafka, &folder, &first, &together[0], &many);
}

#[test]
fn a_batch_that_is_sent_again_finds_its_object_and_is_stored_once() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let topic = kafka.topic("again", 1, &[]);
    let (id, epoch) = init_producer_id(&kafka.bootstrap());
    let sent = batch([large(300_000, 7)]).producer(id, epoch, 0).build();
    let mut connection = Connection::open(sizegate.bootstrap());
    for _ in 0..2 {
        let response = connection.produce(9, -1, &[Part::new(&topic, sent.clone())]);
        assert_eq!(response[0].code, 0, "{:?}", response[0].text);
    }
    let stored = stored(kafka, &topic, 0);
    assert_eq!(stored.len(), 1);
    assert_is_sent(kafka, &folder, &topic, &stored[0], &sent);
    assert_eq!(folder.objects().len(), 1);
    let metrics = sizegate.metrics();
    let outcome = |outcome| {
        let labels = [("operation", "put"), ("outcome", outcome)];
        metrics.sum("claim_store_requests_total", &labels)
    };
    assert_eq!((outcome("created"), outcome("there")), (1.0, 1.0));
    assert!(!metrics.has("claim_orphans_total"));
}

/// Objects live 16 days unless said, of which a day is for clocks.
#[test]
fn how_much_longer_objects_live_than_their_tickets_is_shown() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let days = |days: u64| (days * 86_400_000).to_string();
    let topic = |retention: &str, policy: &str| {
        let segment = days(1);
        let configs = [
            ("retention.ms", retention),
            ("segment.ms", &segment),
            ("cleanup.policy", policy),
        ];
        kafka.topic("kept", 1, &configs).name
    };
    let topics = [
        (topic(&days(2), "delete"), 12.0 * 86_400.0),
        (topic(&days(20), "delete"), -6.0 * 86_400.0),
        (topic(&days(2), "compact"), f64::NEG_INFINITY),
    ];
    let names: Vec<&str> = topics.iter().map(|(name, _)| name.as_str()).collect();
    let yaml = folder.yaml("").replace("'*'", &names.join(", "));
    let sizegate = Sizegate::start(kafka, &yaml);
    for (topic, margin) in topics {
        let labels = [("topic", topic.as_str())];
        eventually(Duration::from_secs(60), "its margin is shown", || {
            let shown = sizegate
                .metrics()
                .sum("claim_retention_margin_seconds", &labels);
            (shown == margin).then_some(())
        });
    }
}

#[test]
fn an_object_whose_ticket_the_broker_refused_is_an_orphan() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let topic = kafka.topic("orphan", 1, &[]);
    let (id, epoch) = init_producer_id(&kafka.bootstrap());
    let mut connection = Connection::open(sizegate.bootstrap());
    // The second leaves out two sequence numbers.
    for (sequence, code) in [(0, 0), (3, 45)] {
        let records = [large(300_000, 1), large(300_000, 2 + sequence as u64)];
        let records = records.into_iter().take(1 + usize::from(sequence > 0));
        let sent = batch(records).producer(id, epoch, sequence).build();
        let response = connection.produce(9, -1, &[Part::new(&topic, sent)]);
        assert_eq!(response[0].code, code, "{:?}", response[0].text);
    }
    let labels = [("topic", topic.name.as_str())];
    // The first object of the second has a ticket: the first batch's.
    assert_eq!(sizegate.metrics().sum("claim_orphans_total", &labels), 1.0);
    assert_eq!(kafka.latest_offset(&topic.name, 0), 1);
}

#[test]
fn a_ticket_that_is_none_of_ours_is_refused() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let topic = kafka.topic("forged", 1, &[]);
    let forged =
        Record::value("{\"uri\":\"file:///etc/passwd\"}").header("x-claim-check", "k1 AAAA");
    let sent = batch([forged, large(300_000, 8)]).build();
    let mut connection = Connection::open(sizegate.bootstrap());
    let response = connection.produce(9, -1, &[Part::new(&topic, sent)]);
    assert_eq!(response[0].code, 87);
    let text = response[0].text.clone().unwrap();
    assert!(
        text.contains("record 0") && text.contains("source=claim"),
        "{text}"
    );
    assert_eq!(folder.objects().len(), 0);
    let of = [("topic", topic.name.as_str())];
    assert_eq!(sizegate.metrics().sum("claim_forged_total", &of), 1.0);
}

/// A store that refuses everything, at once: its folder has become a file.
fn broken(kafka: &Kafka, more: &str) -> (Sizegate, Folder) {
    let folder = Folder::new();
    let sizegate = folder.start(kafka, more);
    fs::remove_dir_all(&folder.0).unwrap();
    fs::write(&folder.0, "not a folder").unwrap();
    (sizegate, folder)
}

#[test]
fn without_a_store_a_client_is_told_to_send_again_and_nothing_is_on_the_broker() {
    let kafka = Kafka::shared("4.4.0");
    let (sizegate, _folder) = broken(kafka, "");
    let topic = kafka.topic("down", 2, &[]);
    let mut connection = Connection::open(sizegate.bootstrap());
    let small = batch([Record::value("small")]).build();
    let parts = [
        Part::at(&topic, 0, batch([large(300_000, 9)]).build()),
        Part::at(&topic, 1, small),
    ];
    let responses = connection.produce(9, -1, &parts);
    let codes: Vec<i16> = responses.iter().map(|response| response.code).collect();
    assert_eq!(codes, [19, 0], "{responses:?}");
    assert_eq!(stored(kafka, &topic, 0).len(), 0);
    assert_eq!(stored(kafka, &topic, 1).len(), 1);
    // Nobody waits for a response: what is too large is dropped, and the connection serves on.
    connection.send_produce(9, 0, &parts);
    let responses = connection.produce(9, -1, &parts[1..]);
    assert_eq!(responses[0].code, 0);
    assert_eq!(stored(kafka, &topic, 0).len(), 0);
    assert_eq!(stored(kafka, &topic, 1).len(), 3);
    sizegate.log_line(&["dropped: acks=0 has no response"]);
}

#[test]
fn inline_if_fits_lets_through_what_is_within_the_limits_and_no_more() {
    let kafka = Kafka::shared("4.4.0");
    let (sizegate, _folder) = broken(kafka, ", above: 16KiB, on_store_failure: inline_if_fits");
    let topic = kafka.topic("inline", 2, &[]);
    let mut connection = Connection::open(sizegate.bootstrap());
    let fits = batch([large(ABOVE / 2, 10)]).build();
    let parts = [
        Part::at(&topic, 0, fits.clone()),
        Part::at(&topic, 1, batch([large(2 * ABOVE, 11)]).build()),
    ];
    let responses = connection.produce(9, -1, &parts);
    let codes: Vec<i16> = responses.iter().map(|response| response.code).collect();
    assert_eq!(codes, [0, 19], "{responses:?}");
    let stored = stored(kafka, &topic, 0);
    assert_eq!(
        without_brokers_own(&stored[0].bytes),
        without_brokers_own(&fits)
    );
}

/// Rounds of the test below: a hundred where somebody has the time.
fn rounds() -> u64 {
    number_from("CLAIM_KILLS", 6)
}

#[test]
fn killed_between_object_and_ticket_it_leaves_no_ticket_without_an_object() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let topic = kafka.topic("killed", 1, &[]);
    for round in 0..rounds() {
        let mut sizegate = folder.start(kafka, "");
        let mut connection = Connection::open(sizegate.bootstrap());
        let before = folder.objects().len();
        for n in 0..5 {
            let sent = batch([large(700_000, 1_000 * (round + 1) + n)]).build();
            connection.send_produce(9, -1, &[Part::new(&topic, sent)]);
        }
        // In every round at another object.
        let wanted = before + usize::try_from(round % 5).unwrap();
        eventually(PATIENCE, "so many objects", || {
            (folder.objects().len() >= wanted).then_some(())
        });
        sizegate.process().signal("KILL");
        sizegate.process().wait(PATIENCE);
        // `originals` demands each ticket's object.
        for stored in stored(kafka, &topic, 0) {
            let originals = originals(kafka, &folder, &topic, &stored.batch);
            assert_eq!(originals.len(), 1);
        }
    }
    assert!(folder.objects().len() >= stored(kafka, &topic, 0).len());
}

#[test]
fn more_than_the_budget_holds_is_offloaded_by_turns_within_twice_the_budget() {
    const CONNECTIONS: usize = 60;
    const BUDGET: u64 = 64 << 20;
    const VALUE: usize = 20 << 20;
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let yaml = format!("memory: {{budget: 64MiB}}\n{}", folder.yaml(""));
    let mut sizegate = Sizegate::before(&kafka.bootstrap())
        .listener("frame_bytes: 32MiB")
        .yaml(&yaml)
        .start();
    let topic = kafka.topic("budget", 1, &[]);
    let sent = batch([large(VALUE, 12)]).build();
    let bootstrap = sizegate.bootstrap();
    thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut connection = Connection::open(bootstrap.as_str());
                // Told to send again for want of memory, a client does.
                eventually(PATIENCE, "it is stored", || {
                    let response = connection.produce(9, -1, &[Part::new(&topic, sent.clone())]);
                    let code = response[0].code;
                    assert!(code == 0 || code == 19, "{:?}", response[0].text);
                    (code == 0).then_some(())
                });
            });
        }
    });
    assert_eq!(stored(kafka, &topic, 0).len(), CONNECTIONS);
    eventually(PATIENCE, "nothing is held", || {
        (sizegate.metrics().sum("held_bytes", &[]) == 0.0).then_some(())
    });
    let peak = sizegate.process().peak_rss_bytes();
    assert!(peak <= 2 * BUDGET, "{} MiB at the peak", peak >> 20);
}

#[test]
fn observing_says_what_would_be_offloaded_and_touches_nothing() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let yaml = format!("mode: observe\n{}", folder.yaml(", above: 16KiB"));
    let sizegate = Sizegate::start(kafka, &yaml);
    let mut connection = Connection::open(sizegate.bootstrap());
    // Over a limit; and within all limits, but above the threshold.
    for (bytes, words) in [
        (300_000, "more than the record limit of 65,536"),
        (
            30_000,
            "more than the value limit of 16,384 set by rule \"large\"",
        ),
    ] {
        let topic = kafka.topic("observed", 1, &[]);
        let sent = batch([Record::value("small"), large(bytes, 3)]).build();
        let response = connection.produce(9, -1, &[Part::new(&topic, sent.clone())]);
        assert_eq!(response[0].code, 0, "{:?}", response[0].text);
        let stored = stored(kafka, &topic, 0);
        assert_eq!(
            without_brokers_own(&stored[0].bytes),
            without_brokers_own(&sent)
        );
        let seen = sizegate.json(&format!("/api/v1/refusals?topic={}", topic.name));
        let all = seen["refusals"].as_array().unwrap().iter();
        let texts: Vec<&str> = all.map(|one| one["text"].as_str().unwrap()).collect();
        let told = format!("sizegate would offload {}-0: ", topic.name);
        for part in [
            &told,
            words,
            "Enforced, its large values go to the object store",
        ] {
            assert!(
                texts.iter().any(|text| text.contains(part)),
                "{part}: {texts:#?}"
            );
        }
        assert!(
            !texts.iter().any(|text| text.contains("refuse")),
            "{texts:#?}"
        );
        let labels = [("topic", topic.name.as_str()), ("verdict", "observed")];
        assert_eq!(
            sizegate.metrics().sum("produce_batches_total", &labels),
            1.0
        );
    }
    assert_eq!(folder.objects().len(), 0);
}

/// To the byte: what `explain` says of a record that is offloaded is what lies on the broker.
#[test]
fn explain_knows_what_a_record_becomes_and_who_refuses_that() {
    let kafka = Kafka::shared("4.4.0");
    let folder = Folder::new();
    let sizegate = folder.start(kafka, "");
    let topic = kafka.topic("explained", 1, &[]);
    let record = Record::of_random(2_000_000, 4).key("a key of 24 bytes, right");
    let sent = [Part::new(&topic, batch([record]).build())];
    let response = Connection::open(sizegate.bootstrap()).produce(9, -1, &sent);
    assert_eq!(response[0].code, 0, "{:?}", response[0].text);
    let yaml = format!(
        "cluster: {{bootstrap_servers: ['{}']}}\n{}",
        kafka.bootstrap(),
        folder.yaml("")
    );
    let explain = |value: &str, key: &str| {
        let sizes = ["--value-bytes", value, "--key-bytes", key];
        let more = ["--max-request-size", "8MiB", "--output", "json"];
        let asked = [&["explain", topic.name.as_str()][..], &sizes, &more].concat();
        let ran = crate::support::command::sizegate(&asked, &yaml);
        ran.json()
    };
    let said = explain("2000000", "24");
    let stored = stored(kafka, &topic, 0);
    assert_eq!(said["after_offload"]["batch_bytes"], stored[0].bytes.len());
    let record = stored[0].batch.parts().next().unwrap().1;
    assert_eq!(
        said["after_offload"]["record_bytes"],
        record.sizes.record_bytes
    );
    assert_eq!(
        (&said["passes"], &said["record"]["value_bytes"]),
        (&true.into(), &2_000_000.into())
    );
    let verdict = said["verdict"].as_str().unwrap();
    assert!(
        verdict.contains("puts its value into the object store"),
        "{verdict}"
    );
    // A ticket mends no key.
    let said = explain("2000000", "2000");
    assert_eq!(
        (&said["passes"], &said["refused_by"]),
        (&false.into(), &"sizegate".into())
    );
    // What is small stays.
    assert_eq!(
        explain("1000", "24")["after_offload"],
        serde_json::Value::Null
    );
    // Of a batch that is too large as few as it takes: to the byte what lies on the broker.
    let records =
        (0..30).map(|n| Record::of_random(60_000, 70 + n).key("a key of 24 bytes, right"));
    let sent = [Part::new(&topic, batch(records).build())];
    let response = Connection::open(sizegate.bootstrap()).produce(9, -1, &sent);
    assert_eq!(response[0].code, 0, "{:?}", response[0].text);
    let stored = &self::stored(kafka, &topic, 0)[1];
    let asked = [
        "explain",
        &topic.name,
        "--value-bytes",
        "60000",
        "--key-bytes",
        "24",
    ];
    let asked = [&asked[..], &["--records", "30", "--output", "json"]].concat();
    let said = crate::support::command::sizegate(&asked, &yaml).json();
    let tickets = stored
        .batch
        .parts()
        .filter(|(_, parts)| parts.headers_count == 1);
    assert_eq!(said["offloaded_records"], tickets.count());
    assert_eq!(said["after_offload"]["batch_bytes"], stored.bytes.len());
    assert_eq!(said["passes"], true);
}
