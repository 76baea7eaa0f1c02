//! Tickets and Fetch responses that lie: nothing panics, nothing grows beyond the budget, and what is not sound is never
//! taken for an original. And originals that are many times the memory there is.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::{
    FetchResponse, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::{ApiKey, BrokerId, FetchRequest, ResponseHeader, TopicName};
use kafka_protocol::protocol::Encodable;
use sizegate::batch::BatchHeader;
use sizegate::claim::{
    Digest, Key, Keys, Layout, Namespace, ObjectForm, OpenBatch, Ticket, offset_delta,
};
use sizegate::codec::Decoders;
use sizegate::vocabulary::Codec;

use crate::claim_consume::batches;
use crate::claim_elsewhere::redeems;
use crate::support::client::text;
use crate::support::process::new_dir;
use crate::support::scripted::{Broker, Step};
use crate::support::{
    Connection, Inside, Kafka, Part, Program, Record, Sizegate, batch, eventually, number_from,
};

pub const SECRET: &str = "a secret of thirty-two bytes, yes";
const PATIENCE: Duration = Duration::from_secs(120);
pub const TOPIC: &str = "claims-scripted";
const VERSION: i16 = 12;

/// Of the proxy's memory: 64 MiB, or what somebody wants to see who has the time.
fn budget() -> u64 {
    number_from("CLAIM_BUDGET_MIB", 64) << 20
}

fn yaml(folder: &std::path::Path) -> String {
    let (store, budget) = (folder.display(), budget());
    format!(
        "memory: {{budget: {budget}}}\nclaim_check:\n  store: file://{store}\n  keys: [{{id: k1, secret: '{SECRET}'}}]\n  grace: 10ms\n\
         rules:\n- name: large\n  topics: ['claims*']\n  limits: {{record_bytes: 64KiB, batch_bytes: 1MiB}}\n  action: offload\n"
    )
}

fn sizegate(bootstrap: &str, folder: &std::path::Path) -> Sizegate {
    Sizegate::before(bootstrap)
        .listener("frame_bytes: 32MiB")
        .yaml(&yaml(folder))
        .start()
}

/// A store with one object, and tickets for it.
pub struct Issued {
    pub folder: PathBuf,
    namespace: Namespace,
    keys: Keys,
    pub value: Vec<u8>,
}

impl Issued {
    pub fn new() -> Self {
        let folder = new_dir("claims");
        let issued = Self {
            namespace: Namespace::new(&format!("file://{}", folder.display()), "scripted"),
            keys: Keys::new([Key::new("k1", SECRET.as_bytes()).unwrap()]).unwrap(),
            value: crate::support::batch::random(200_000, 1),
            folder,
        };
        let ticket = issued.ticket();
        let path = issued.folder.join(
            issued
                .namespace
                .find(TOPIC, &ticket.uri, ticket.form, &ticket.sha256)
                .unwrap()
                .key(),
        );
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, &issued.value).unwrap();
        issued
    }

    pub fn ticket(&self) -> Ticket {
        let sha256 = Digest::of(&self.value);
        let place = self.namespace.place(
            TOPIC,
            Layout::Content,
            ObjectForm::Plain,
            &sha256,
            SystemTime::now(),
        );
        Ticket {
            uri: self.namespace.uri(&place),
            sha256,
            size: self.value.len() as u64,
            content_type: "image/png".to_owned(),
            at_ms: Some(1),
            form: ObjectForm::Plain,
            object_bytes: None,
        }
    }

    pub fn record(&self, ticket: &Ticket) -> Record {
        let mark = self.keys.sign("scripted", TOPIC, ticket);
        Record::value(ticket.to_json()).header("x-claim-check", mark)
    }
}

/// A response to Fetch, its correlation id still 0.
fn response(records: Bytes) -> Vec<u8> {
    let partition = PartitionData::default()
        .with_high_watermark(1_000)
        .with_last_stable_offset(1_000)
        .with_records(Some(records));
    let topic = FetchableTopicResponse::default()
        .with_topic(TopicName(text(TOPIC)))
        .with_partitions(vec![partition]);
    let response = FetchResponse::default().with_responses(vec![topic]);
    let mut body = BytesMut::new();
    let header_version = ApiKey::Fetch.response_header_version(VERSION);
    ResponseHeader::default()
        .encode(&mut body, header_version)
        .unwrap();
    response.encode(&mut body, VERSION).unwrap();
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(&body);
    frame
}

/// A broker that answers every Fetch with what the test puts here.
fn broker(answer: &Arc<Mutex<Vec<u8>>>) -> Broker {
    let answer = Arc::clone(answer);
    Broker::start(&[(TOPIC, 1, 1 << 20)], move |request, _| {
        if request.api_key != ApiKey::Fetch as i16 {
            return None;
        }
        let mut frame = answer.lock().unwrap().clone();
        if let Some(id) = frame.get_mut(4..8) {
            id.copy_from_slice(&request.correlation_id.to_be_bytes());
        }
        Some(vec![Step::Send(frame)])
    })
}

fn request(topic: &str, offset: i64) -> FetchRequest {
    let partition = FetchPartition::default()
        .with_partition(0)
        .with_fetch_offset(offset)
        .with_partition_max_bytes(50 << 20);
    let entry = FetchTopic::default()
        .with_topic(TopicName(text(topic)))
        .with_partitions(vec![partition]);
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(50 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![entry])
}

/// What a consumer is given; `None`: the connection was closed.
fn fetch(bootstrap: &str) -> Option<Bytes> {
    let mut connection = Connection::open(bootstrap);
    connection.send(&request(TOPIC, 0), VERSION);
    let (_, response) = connection.try_receive::<FetchResponse>(VERSION).ok()?;
    let partition = response.responses.first()?.partitions.first()?;
    Some(partition.records.clone().unwrap_or_default())
}

pub fn values(records: &Bytes) -> Vec<Bytes> {
    let mut left = records.clone();
    let mut values = Vec::new();
    while !left.is_empty() {
        let length = i32::from_be_bytes(left[8..12].try_into().unwrap());
        let bytes = left.split_to(12 + length as usize);
        let batch = OpenBatch::open(&bytes, u64::MAX, &mut Decoders::new()).unwrap();
        let parts = batch.parts();
        values.extend(parts.map(|(_, parts)| batch.records().slice(parts.value.unwrap())));
    }
    values
}

#[test]
fn a_ticket_that_lies_is_never_taken_for_an_original_and_costs_no_memory() {
    let issued = Issued::new();
    let answer = Arc::new(Mutex::new(Vec::new()));
    let broker = broker(&answer);
    let mut sizegate = sizegate(&broker.bootstrap(), &issued.folder);
    let bootstrap = sizegate.bootstrap();
    let ask = |records: Bytes| {
        *answer.lock().unwrap() = response(records);
        fetch(&bootstrap).expect("a response")
    };
    let sound = issued.ticket();
    let records = batch([issued.record(&sound)]).build();
    assert!(values(&ask(records)) == [&issued.value[..]]);

    // None of ours: it goes out as it is.
    let mut forged = issued.record(&sound);
    forged.headers[0].1 = Some(b"1;k1;AAAAAAAAAAAAAAAAAAAAAA".to_vec());
    let sent = batch([forged]).build();
    assert_eq!(values(&ask(sent)), [sound.to_json()]);

    // Signed, and not what is there. The fallback topic does not exist: the partition waits, with nothing in it.
    let huge = |size, object_bytes: Option<u64>| Ticket {
        size,
        object_bytes,
        form: match object_bytes {
            Some(_) => ObjectForm::Zstd,
            None => ObjectForm::Plain,
        },
        ..sound.clone()
    };
    let mut lies: Vec<Record> = [
        huge(1 << 40, None),
        huge(u64::MAX, None),
        huge(199_999, None),
        huge(0, None),
    ]
    .iter()
    .map(|ticket| issued.record(ticket))
    .collect();
    // Nobody's key, and a place of another topic.
    let mut unknown = issued.record(&sound);
    unknown.headers[0].1 = Some(b"1;k9;AAAAAAAAAAAAAAAAAAAAAA".to_vec());
    lies.push(unknown);
    let elsewhere = Ticket {
        uri: sound.uri.replace(TOPIC, "another"),
        ..sound.clone()
    };
    lies.push(issued.record(&elsewhere));
    for (at, lie) in lies.into_iter().enumerate() {
        let sent = batch([lie]).build();
        assert_eq!(ask(sent), Bytes::new(), "{at}");
    }

    // What would be gigabytes holds nothing that was offloaded.
    let bomb = batch([Record::of_a(200_000_000)])
        .codec(Codec::Zstd)
        .build();
    assert_eq!(ask(bomb.clone()), bomb);
    // Behind a record that may go out, what may not is cut off.
    let both = batch([Record::value("small"), issued.record(&huge(1 << 40, None))]).build();
    assert_eq!(values(&ask(both)), ["small"]);

    // Still alive, and sound. At an offset of its own: what lied at the first waits for the fallback topic.
    let later = batch([issued.record(&sound)]).base_offset(1).build();
    assert!(values(&ask(later)) == [&issued.value[..]]);
    assert_eq!(sizegate.log().matches("panicked").count(), 0);
    let peak = sizegate.process().peak_rss_bytes();
    assert!(peak <= 2 * budget(), "{} MiB at the peak", peak >> 20);
}

#[test]
fn a_response_with_any_byte_changed_is_passed_closed_or_held() {
    let issued = Issued::new();
    let answer = Arc::new(Mutex::new(Vec::new()));
    let broker = broker(&answer);
    let mut sizegate = sizegate(&broker.bootstrap(), &issued.folder);
    let sound = issued.ticket();
    let plain = batch([Record::value("small"), issued.record(&sound)]).build();
    let packed = batch([issued.record(&sound), Record::value("small")])
        .codec(Codec::Lz4)
        .base_offset(2)
        .build();
    let whole = response([plain, packed].concat().into());
    let random = crate::support::batch::random(4 * 120, 7);
    for chunk in random.chunks_exact(4) {
        let mut changed = whole.clone();
        let at = 8 + usize::from(u16::from_be_bytes([chunk[0], chunk[1]])) % (changed.len() - 8);
        match chunk[2] % 4 {
            0 => changed[at] ^= 1 << (chunk[3] % 8),
            1 => changed[at] = chunk[3],
            2 => changed[at..].fill(0xff),
            // Its length is right, and what it says of itself is not.
            _ => {
                changed.truncate(at);
                let length = (changed.len() - 4) as u32;
                changed[..4].copy_from_slice(&length.to_be_bytes());
            }
        }
        *answer.lock().unwrap() = changed;
        let mut connection = Connection::open(sizegate.bootstrap());
        connection.send(&request(TOPIC, 0), VERSION);
        if let Ok(frame) = connection.read_frame() {
            assert!(frame.len() < 1 << 20);
        }
    }
    *answer.lock().unwrap() = whole;
    let records = fetch(&sizegate.bootstrap()).expect("a response");
    let expected: [&[u8]; 4] = [b"small", &issued.value, &issued.value, b"small"];
    assert!(values(&records) == expected);
    assert_eq!(sizegate.log().matches("panicked").count(), 0);
    let peak = sizegate.process().peak_rss_bytes();
    assert!(peak <= 2 * budget(), "{} MiB at the peak", peak >> 20);
}

#[test]
fn what_bears_no_ticket_goes_out_as_it_came_between_what_does() {
    let issued = Issued::new();
    let answer = Arc::new(Mutex::new(Vec::new()));
    let broker = broker(&answer);
    let proxy = Inside::start(&broker, &[], &redeems(&issued, TOPIC));
    let ticket = || issued.record(&issued.ticket());
    let plain = || Record::value("small");
    // What compaction leaves of a producer's last batch: its offsets, and no record.
    let empty = batch((0..5).map(|_| plain())).payload([]).count(0);
    let commit = batch([Record::value([0; 6]).key([0, 0, 0, 1])])
        .producer(7, 0, -1)
        .transactional()
        .attributes(1 << 5);
    let others = [
        empty.base_offset(1).build(),
        commit.base_offset(6).build(),
        batch([ticket()]).magic(1).base_offset(7).build(),
        batch([ticket()]).crc_wrong().base_offset(8).build(),
        batch([plain()]).codec(Codec::Zstd).base_offset(9).build(),
    ];
    // Bit 6: the base timestamp is when its tombstones go.
    let deletes = batch([plain(), ticket()]).attributes(1 << 6);
    let bearing = [
        batch([ticket()]).build(),
        deletes.base_offset(10).build(),
        batch([ticket(), plain()]).base_offset(12).build(),
    ];
    let sent: Vec<Bytes> = [&bearing[..1], &others, &bearing[1..]].concat();
    *answer.lock().unwrap() = response(sent.concat().into());
    let fetched = batches(&fetch(&proxy.address().to_string()).expect("a response"));
    assert_eq!(fetched.len(), sent.len());
    for (fetched, sent) in fetched.iter().zip(&sent) {
        if others.contains(sent) {
            assert_eq!(fetched, sent);
            continue;
        }
        let (own, stored) = (
            BatchHeader::read(fetched).unwrap(),
            BatchHeader::read(sent).unwrap(),
        );
        assert_eq!(own.base_offset, stored.base_offset);
        assert_eq!(own.last_offset_delta, stored.last_offset_delta);
        assert_eq!(own.attributes, stored.attributes);
        assert_eq!(own.records_count, stored.records_count);
        assert!(values(fetched).contains(&issued.value.clone().into()));
    }
}

#[test]
fn a_response_is_no_larger_than_most_clients_take_whatever_they_say() {
    const MOST: usize = 48 << 20;
    let issued = Issued::new();
    let answer = Arc::new(Mutex::new(Vec::new()));
    let broker = broker(&answer);
    let proxy = Inside::start(&broker, &[], &redeems(&issued, TOPIC));
    let ticket = issued.record(&issued.ticket());
    let records = batch((0..400).map(|_| ticket.clone())).build();
    *answer.lock().unwrap() = response(records);
    let mut asked = request(TOPIC, 0);
    asked.max_bytes = i32::MAX;
    asked.topics[0].partitions[0].partition_max_bytes = i32::MAX;
    let mut connection = proxy.connect();
    let fetched = eventually(PATIENCE, "all there is room for", || {
        // On a busy machine a response may leave before its original has come.
        let response: FetchResponse = connection.ask(&asked, VERSION);
        let records = response.responses[0].partitions[0].records.clone()?;
        assert!(records.len() <= MOST, "{}", records.len());
        (records.len() > MOST - 2 * issued.value.len()).then_some(records)
    });
    assert!(
        values(&fetched)
            .iter()
            .all(|value| value[..] == issued.value[..])
    );
}

/// Values of 5 MiB of the test below: 2,000 where somebody has the time (with `CLAIM_BUDGET_MIB=256`, and `SIZEGATE_BIN`
/// a release build).
fn many() -> u64 {
    number_from("CLAIM_VALUES", 24)
}

#[test]
fn three_groups_read_many_times_the_memory_there_is_and_nobody_asks_in_vain() {
    const VALUE: usize = 5 << 20;
    let kafka = Kafka::shared("4.4.0");
    let folder = new_dir("claims");
    let mut sizegate = sizegate(&kafka.bootstrap(), &folder);
    let topic = kafka.topic("claims", 1, &[]);
    let mut connection = Connection::open(sizegate.bootstrap());
    let value = |n: u64| {
        // Each another, and quickly made.
        let mut value = vec![n as u8; VALUE];
        value[..8].copy_from_slice(&n.to_be_bytes());
        value
    };
    for n in 0..many() {
        let sent = batch([Record::value(value(n))]).build();
        eventually(PATIENCE, "it is stored", || {
            let response = connection.produce(9, -1, &[Part::new(&topic, sent.clone())]);
            (response[0].code == 0).then_some(())
        });
    }
    let bootstrap = sizegate.bootstrap();
    let read = || {
        let mut connection = Connection::open(bootstrap.as_str());
        let mut seen: BTreeMap<i64, u64> = BTreeMap::new();
        let mut next = 0;
        while next < many() as i64 {
            let asked = Instant::now();
            let response = connection.ask(&request(&topic.name, next), VERSION);
            let before = next;
            next = take(&response, next, VALUE, &mut seen);
            if next == before {
                // It was kept waiting, so that it does not ask in a loop.
                assert!(asked.elapsed() >= Duration::from_millis(900));
            }
        }
        let expected: BTreeMap<i64, u64> = (0..many()).map(|n| (n as i64, n)).collect();
        assert_eq!(seen, expected);
    };
    std::thread::scope(|scope| {
        let groups: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
        groups.into_iter().for_each(|group| group.join().unwrap());
    });
    let peak = sizegate.process().peak_rss_bytes();
    println!("{} values, {} MiB at the peak", many(), peak >> 20);
    assert!(peak <= 2 * budget(), "{} MiB at the peak", peak >> 20);
    let _ = fs::remove_dir_all(&folder);
}

fn take(
    response: &FetchResponse,
    mut next: i64,
    value_bytes: usize,
    seen: &mut BTreeMap<i64, u64>,
) -> i64 {
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    let mut left = partition.records.clone().unwrap_or_default();
    while !left.is_empty() {
        let length = i32::from_be_bytes(left[8..12].try_into().unwrap());
        let bytes = left.split_to(12 + length as usize);
        let header = BatchHeader::read(&bytes).unwrap();
        let batch = OpenBatch::open(&bytes, u64::MAX, &mut Decoders::new()).unwrap();
        for (_, parts) in batch.parts() {
            let delta = offset_delta(batch.records(), &parts).unwrap();
            let value = &batch.records()[parts.value.unwrap()];
            let n = u64::from_be_bytes(value[..8].try_into().unwrap());
            assert!(value[8..] == vec![n as u8; value_bytes - 8]);
            seen.insert(header.base_offset + i64::from(delta), n);
        }
        next = header.base_offset + i64::from(header.last_offset_delta) + 1;
    }
    next
}

#[test]
fn of_an_aborted_transaction_nothing_is_asked_for_and_nothing_falls() {
    const PAD: usize = 100_000;
    let kafka = Kafka::shared("4.4.0");
    let folder = new_dir("claims");
    let sizegate = sizegate(&kafka.bootstrap(), &folder);
    let topic = kafka.topic("claims", 1, &[]);
    kafka.create_topic(&format!("{}.claim.missing", topic.name), 1, 1, &[]);
    Program::java("Transactions", "4.4.0")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("large", 100)
        .arg("pad", PAD)
        .run();
    let of = [("topic", topic.name.as_str())];
    assert!(sizegate.metrics().sum("claim_offloaded_records_total", &of) >= 6.0);
    // The object of what was aborted is gone.
    let aborted = format!("aborted-1 {}", "x".repeat(PAD));
    let aborted = Digest::of(aborted.as_bytes()).hex();
    let object = eventually(PATIENCE, "its object", || find(&folder, &aborted));
    fs::remove_file(object).unwrap();
    let output = Program::java("ReadAll", "4.4.0")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .arg("p.isolation.level", "read_committed")
        .run();
    let read = output.lines[0]["values"].to_string();
    for n in 1..=4 {
        assert!(read.contains(&format!("committed-{n}")), "{read}");
    }
    assert!(!read.contains("aborted-1"), "{read}");
    let metrics = sizegate.metrics();
    assert_eq!(metrics.sum("claim_redeem_failures_total", &of), 0.0);
    assert_eq!(
        kafka.latest_offset(&format!("{}.claim.missing", topic.name), 0),
        0
    );
    // Who reads what is not committed asks for it, and it falls.
    let output = Program::java("ReadAll", "4.4.0")
        .arg("bootstrap", sizegate.bootstrap())
        .arg("topic", &topic.name)
        .run();
    assert!(!output.lines[0]["values"].to_string().contains("aborted-1"));
    assert_eq!(
        kafka.latest_offset(&format!("{}.claim.missing", topic.name), 0),
        1
    );
}

fn find(folder: &std::path::Path, name: &str) -> Option<PathBuf> {
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().unwrap().to_string_lossy() == name {
                return Some(path);
            }
        }
    }
    None
}
