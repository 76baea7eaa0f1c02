//! Batches whose values are offloaded and redeemed: spliced, never built again. Byte for byte what they were without
//! compression; with it, record for record; and readable to Kafka's own reader on the way.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::cell::Cell;
use std::collections::HashMap;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::support::batch::{Record, batch, compress, random};
use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};
use sizegate::batch::BatchHeader;
use sizegate::claim::{
    ContentType, Digest, Fit, Issuer, Key, Keys, Layout, Namespace, OpenBatch, Plan, Planned,
    Refuted, RewriteError, SignedTicket, Ticket, Unopened, allowance, offload, plan_offload,
    redeem, tickets,
};
use sizegate::codec::Decoders;
use sizegate::vocabulary::Codec;

const TOPIC: &str = "library.loan.created";
const ANY_SIZE: u64 = u64::MAX;
const NONE: [u32; 0] = [];

fn keys(id: &str) -> Keys {
    Keys::new([Key::new(id, b"a secret of thirty-two bytes, yes").unwrap()]).unwrap()
}

fn issuer(layout: Layout) -> Issuer {
    Issuer {
        topic: TOPIC.into(),
        namespace: Arc::new(Namespace::new("s3://bucket/claims", "cluster-1")),
        keys: Arc::new(keys("k1")),
        layout,
    }
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_793_275_200)
}

fn open(batch: &Bytes) -> OpenBatch {
    OpenBatch::open(batch, ANY_SIZE, &mut Decoders::new()).unwrap()
}

fn joined(chain: Vec<Bytes>) -> Bytes {
    chain.concat().into()
}

/// Stores every value of a plan in a map, and gives the tickets.
fn store(
    batch: &OpenBatch,
    plan: &Plan,
    issuer: &Issuer,
    objects: &mut HashMap<String, Bytes>,
) -> Vec<SignedTicket> {
    let mut put = |record: u32, value: Bytes, content_type: &ContentType| {
        // One after the other.
        let now = now() + Duration::from_millis(u64::from(record) * 13);
        let digest = Digest::of(&value);
        let place = issuer.place(&digest, plan.form, now);
        let ticket = issuer.ticket(
            &place,
            digest,
            value.len() as u64,
            content_type,
            (plan.form, value.len() as u64),
            now,
        );
        objects.insert(place.key().to_owned(), value);
        issuer.sign(&ticket)
    };
    plan.claims
        .iter()
        .map(|claim| {
            put(
                claim.record,
                batch.records().slice(claim.value.clone()),
                &claim.content_type,
            )
        })
        .collect()
}

/// A batch as a broker may have kept it.
#[derive(Debug, Clone)]
struct Kept {
    /// Each with the gap in offsets in front of it.
    records: Vec<(Record, i32)>,
    /// Of records behind the last one that a compaction took.
    gone: i32,
    codec: Codec,
    is_xerial: bool,
    attributes: i16,
    base_offset: i64,
    leader_epoch: i32,
    producer: (i64, i16, i32),
}

impl Kept {
    fn build(&self) -> Bytes {
        let mut plain = Vec::new();
        let mut offset = -1;
        for (record, gap) in &self.records {
            offset += 1 + gap;
            plain.extend(record.encode(offset));
        }
        let payload = if self.is_xerial && self.codec == Codec::Snappy {
            let block = compress(Codec::Snappy, &plain);
            let mut payload = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
            payload.extend((block.len() as u32).to_be_bytes());
            payload.extend(block);
            payload
        } else {
            compress(self.codec, &plain)
        };
        let (id, epoch, sequence) = self.producer;
        let built = batch(self.records.iter().map(|(record, _)| record.clone()))
            .codec(self.codec)
            .payload(payload)
            .attributes(self.attributes)
            .producer(id, epoch, sequence)
            .base_offset(self.base_offset)
            .build();
        let mut built = built.to_vec();
        built[12..16].copy_from_slice(&self.leader_epoch.to_be_bytes());
        built[23..27].copy_from_slice(&(offset + self.gone).to_be_bytes());
        seal(&mut built);
        built.into()
    }
}

/// Makes the checksum right.
fn seal(batch: &mut [u8]) {
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
}

fn value() -> impl Strategy<Value = Option<Vec<u8>>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(Vec::new())),
        3 => prop::collection::vec(any::<u8>(), 0..400).prop_map(Some),
        2 => (500..70_000usize).prop_map(|len| Some(vec![b'a'; len])),
        2 => (500..5_000usize, any::<u64>()).prop_map(|(len, seed)| Some(random(len, seed))),
    ]
}

fn header() -> impl Strategy<Value = (String, Option<Vec<u8>>)> {
    prop_oneof![
        (
            "[a-z-]{0,9}",
            prop::option::of(prop::collection::vec(any::<u8>(), 0..90))
        ),
        Just((
            "content-type".to_owned(),
            Some(b"application/json".to_vec())
        )),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    (
        prop::option::of(prop::collection::vec(any::<u8>(), 0..80)),
        value(),
        prop::collection::vec(header(), 0..4),
        any::<i64>(),
    )
        .prop_map(|(key, value, headers, timestamp_delta)| Record {
            key,
            value,
            headers,
            timestamp_delta: timestamp_delta >> 24,
        })
}

fn kept() -> impl Strategy<Value = Kept> {
    let numbers = (
        0..1i64 << 40,
        -1..9i32,
        (any::<i64>(), any::<i16>(), any::<i32>()),
    );
    let bits = prop::sample::subsequence(vec![0x08i16, 0x10, 0x40], 0..=3);
    (
        prop::collection::vec((record(), prop_oneof![3 => Just(0), 1 => 0..9i32]), 1..7),
        prop_oneof![Just(0), 0..99i32],
        prop::sample::select(Codec::ALL.to_vec()),
        any::<bool>(),
        bits,
        numbers,
    )
        .prop_map(|(records, gone, codec, is_xerial, bits, numbers)| Kept {
            records,
            gone,
            codec,
            is_xerial,
            attributes: bits.iter().sum(),
            base_offset: numbers.0,
            leader_epoch: numbers.1,
            producer: numbers.2,
        })
}

/// All of a header but length and checksum.
fn without_length(batch: &[u8]) -> BatchHeader {
    let mut header = BatchHeader::read(batch).unwrap();
    assert_eq!(header.write(), batch[..61]);
    assert_eq!(header.crc, crc32c::crc32c(&batch[21..]));
    assert_eq!(header.batch_length as usize, batch.len() - 12);
    (header.batch_length, header.crc) = (0, 0);
    header
}

/// Key, value and headers of each record, and the bytes of its head.
type Content = Vec<(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>, Vec<u8>)>;

fn content(batch: &OpenBatch) -> Content {
    let bytes = |range: std::ops::Range<usize>| batch.records()[range].to_vec();
    batch
        .parts()
        .map(|(_, parts)| {
            (
                bytes(parts.head),
                parts.key.map(bytes),
                parts.value.map(bytes),
                bytes(parts.headers),
            )
        })
        .collect()
}

#[test]
fn redeeming_is_the_inverse_of_offloading() {
    let mut runner = TestRunner::new(Config {
        cases: 400,
        failure_persistence: None,
        ..Config::default()
    });
    let offloaded = Cell::new(0);
    let ran = runner.run(
        &(kept(), prop::sample::select(Layout::ALL.to_vec())),
        |(kept, layout)| {
            let is_offloaded = there_and_back(&kept, layout);
            offloaded.set(offloaded.get() + u32::from(is_offloaded));
            Ok(())
        },
    );
    ran.unwrap();
    let offloaded = offloaded.get();
    assert!(
        offloaded > 200,
        "{offloaded} of 400 had something to offload"
    );
}

/// False: nothing was to be offloaded.
fn there_and_back(kept: &Kept, layout: Layout) -> bool {
    let issuer = issuer(layout);
    let original = kept.build();
    let opened = open(&original);
    let planned = plan_offload(&opened, 450, &Fit::default(), &issuer);
    let above =
        |(record, _): &(Record, i32)| record.value.as_ref().is_some_and(|value| value.len() > 450);
    let expected = kept.records.iter().filter(|record| above(record)).count();
    let Planned::Offload(plan) = planned else {
        assert_eq!((planned, expected), (Planned::Nothing, 0));
        return false;
    };
    assert_eq!(plan.claims.len(), expected);

    let mut objects = HashMap::new();
    let signed = store(&opened, &plan, &issuer, &mut objects);
    let small = joined(offload(&opened, &plan, &signed).unwrap());
    assert_eq!(without_length(&small), without_length(&original));
    let reopened = open(&small);
    assert_eq!(reopened.encoding(), opened.encoding());
    for ((record, before), after) in content(&opened)
        .into_iter()
        .enumerate()
        .zip(content(&reopened))
    {
        if plan
            .claims
            .iter()
            .any(|claim| claim.record as usize == record)
        {
            assert_eq!((&before.0, &before.1), (&after.0, &after.1));
            // Ours is the last: the others stand where they stood.
            assert_eq!(after.3[..before.3.len()], before.3);
            let header = &after.3[before.3.len()..];
            assert_eq!(&header[..15], b"\x1ax-claim-check\x36");
            assert_eq!(header.len(), 42);
            let ticket = Ticket::from_json(after.2.as_deref().unwrap()).unwrap();
            let value = before.2.unwrap();
            assert_eq!(
                (ticket.size, ticket.sha256),
                (value.len() as u64, Digest::of(&value))
            );
        } else {
            assert_eq!(before, after);
        }
    }

    // A second proxy, or the same one when the client asks again: what is a ticket already stays one.
    let again = plan_offload(&reopened, 100, &Fit::default(), &issuer);
    if let Planned::Offload(again) = again {
        let marked = |record| plan.claims.iter().any(|claim| claim.record == record);
        assert!(!again.claims.iter().any(|claim| marked(claim.record)));
    }

    let originals: Vec<(u32, Bytes)> = tickets(&reopened, TOPIC, &issuer.namespace, &issuer.keys)
        .map(|found| (found.record, objects[found.ticket.unwrap().1.key()].clone()))
        .collect();
    assert_eq!(originals.len(), expected);
    let redeemed = joined(redeem(&reopened, &originals).unwrap());
    if kept.codec == Codec::None {
        assert_eq!(redeemed, original);
    }
    assert_eq!(without_length(&redeemed), without_length(&original));
    let redeemed = open(&redeemed);
    assert_eq!(redeemed.records(), opened.records());
    assert_eq!(redeemed.encoding(), opened.encoding());
    true
}

/// What `Reference.java` prints of one batch.
#[derive(Debug, serde::Deserialize)]
struct Kafka {
    broker: Option<String>,
    records: Option<Vec<[u64; 4]>>,
}

#[test]
fn kafka_reads_a_batch_with_tickets() {
    let issuer = issuer(Layout::Day);
    let mut runner = TestRunner::deterministic();
    let mut corpus: Vec<(Kept, Bytes)> = Vec::new();
    while corpus.len() < 300 {
        let mut kept = kept().new_tree(&mut runner).unwrap().current();
        // Every second one as a producer sends it, so that a broker takes it.
        if corpus.len().is_multiple_of(2) {
            kept.records.iter_mut().for_each(|(record, gap)| {
                *gap = 0;
                record.timestamp_delta = 0;
            });
            (kept.gone, kept.base_offset, kept.leader_epoch) = (0, 0, -1);
            kept.attributes &= 0x10;
            kept.producer = (7, 1, 3);
        }
        let opened = open(&kept.build());
        if let Planned::Offload(plan) = plan_offload(&opened, 450, &Fit::default(), &issuer) {
            let signed = store(&opened, &plan, &issuer, &mut HashMap::new());
            corpus.push((kept, joined(offload(&opened, &plan, &signed).unwrap())));
        }
    }
    let mut framed = Vec::new();
    for (_, batch) in &corpus {
        framed.extend((batch.len() as u32).to_be_bytes());
        framed.extend(batch);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), framed).unwrap();
    for version in crate::support::KAFKA_VERSIONS {
        let libs = crate::support::programs::script("kafka-libs.sh", &[version, "broker"]);
        let program =
            crate::support::programs::repo().join("tests/clients/reference/Reference.java");
        let output = Command::new("java")
            .args(["-Xmx1g", "-XX:TieredStopAtLevel=1", "-cp"])
            .arg(format!("{}/*", libs.display()))
            .arg(program)
            .arg(file.path())
            .output()
            .expect("java");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let lines: Vec<Kafka> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect();
        assert_eq!(lines.len(), corpus.len());
        for (at, (kafka, (kept, batch))) in lines.iter().zip(&corpus).enumerate() {
            if at.is_multiple_of(2) {
                assert_eq!(kafka.broker, None, "Kafka {version}: {kept:?}");
            }
            let sizes: Vec<[u64; 4]> = open(batch)
                .parts()
                .map(|(_, parts)| {
                    let sizes = parts.sizes;
                    [
                        sizes.record_bytes,
                        sizes.key_bytes,
                        sizes.value_bytes,
                        sizes.headers_bytes,
                    ]
                })
                .collect();
            assert_eq!(
                kafka.records.as_ref(),
                Some(&sizes),
                "Kafka {version}: {kept:?}"
            );
        }
    }
}

fn planned(built: &Bytes, above: u64, fit: &Fit) -> Vec<u32> {
    match plan_offload(&open(built), above, fit, &issuer(Layout::Day)) {
        Planned::Offload(plan) => plan.claims.iter().map(|claim| claim.record).collect(),
        Planned::Nothing => Vec::new(),
        forged => panic!("{forged:?}"),
    }
}

#[test]
fn a_value_above_the_threshold_is_offloaded_and_its_neighbours_are_not() {
    let built = batch([4_999, 5_000, 5_001, 100, 70_000].map(Record::of_a)).build();
    assert_eq!(planned(&built, 5_000, &Fit::default()), [2, 4]);
    assert_eq!(planned(&built, 70_000, &Fit::default()), NONE);
}

#[test]
fn what_a_ticket_would_not_make_shorter_stays() {
    // A ticket of this issuer for a value of three digits, and its header.
    let opened = open(&batch([Record::of_a(900)]).build());
    let issuer = issuer(Layout::Day);
    let Planned::Offload(plan) = plan_offload(&opened, 0, &Fit::default(), &issuer) else {
        panic!("not planned");
    };
    let tickets = plan.stand_ins(&issuer);
    let small = joined(offload(&opened, &plan, &tickets).unwrap());
    let grown = small.len() as u64 - 61;
    let record_of = |value_bytes| Record::of_a(value_bytes).encode(0).len() as u64;
    let value = (0..900).find(|bytes| record_of(*bytes) == grown).unwrap();
    let one = |bytes| batch([Record::of_a(bytes)]).build();
    assert_eq!(planned(&one(value), 0, &Fit::default()), NONE);
    assert_eq!(planned(&one(value + 1), 0, &Fit::default()), [0]);
    for never in [Record::default(), Record::value(""), Record::value("x")] {
        assert_eq!(planned(&batch([never]).build(), 0, &Fit::default()), NONE);
    }
}

#[test]
fn gates_of_one_record_offload_that_record() {
    let record = Record::of_a(2_000).key("k").header("a", "b");
    let sizes = open(&batch([record.clone()]).build())
        .parts()
        .next()
        .unwrap()
        .1
        .sizes;
    let built = batch([Record::of_a(1_500), record]).build();
    type Set = fn(&mut Fit) -> &mut Option<u64>;
    let gates: [(u64, Set); 3] = [
        (sizes.value_bytes, |fit| &mut fit.value_bytes),
        (sizes.record_bytes, |fit| &mut fit.record_bytes),
        (sizes.estimate_bytes, |fit| &mut fit.estimate_bytes),
    ];
    for (size, set) in gates {
        for (limit, expected) in [(size, vec![]), (size - 1, vec![1])] {
            let mut fit = Fit::default();
            *set(&mut fit) = Some(limit);
            assert_eq!(planned(&built, 1 << 20, &fit), expected);
        }
    }
}

#[test]
fn gates_of_the_batch_offload_the_largest_first_and_no_more_than_needed() {
    let built = batch([3_000, 9_000, 5_000, 7_000].map(Record::of_a)).build();
    let total = built.len() as u64;
    for set in [
        (|fit, limit| fit.batch_bytes = Some(limit)) as fn(&mut Fit, u64),
        |fit, limit| fit.uncompressed_bytes = Some(limit),
    ] {
        let with = |limit| {
            let mut fit = Fit::default();
            set(&mut fit, limit);
            planned(&built, 1 << 20, &fit)
        };
        assert_eq!(with(total), NONE);
        assert_eq!(with(total - 1), [1]);
        assert_eq!(with(total - 9_000), [1, 3]);
        assert_eq!(with(total - 16_000), [1, 2, 3]);
        assert_eq!(with(100), [0, 1, 2, 3]);
    }
}

#[test]
fn a_compressed_batch_is_measured_as_it_will_travel() {
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        let records = (0..6).map(|i| Record::of_random(20_000 + i, i as u64));
        let built = batch(records).codec(codec).build();
        let opened = open(&built);
        let issuer = issuer(Layout::Day);
        for limit in [built.len() as u64, 100_000, 62_000, 30_000, 4_000] {
            let fit = Fit {
                batch_bytes: Some(limit),
                ..Fit::default()
            };
            let claims = match plan_offload(&opened, 1 << 20, &fit, &issuer) {
                Planned::Nothing => {
                    assert!(built.len() as u64 <= limit);
                    continue;
                }
                Planned::Offload(plan) => {
                    let signed = store(&opened, &plan, &issuer, &mut HashMap::new());
                    let small = joined(offload(&opened, &plan, &signed).unwrap());
                    assert!(
                        small.len() as u64 <= limit,
                        "{codec:?} {} {limit}",
                        small.len()
                    );
                    plan.claims
                        .iter()
                        .map(|claim| claim.record)
                        .collect::<Vec<_>>()
                }
                forged => panic!("{forged:?}"),
            };
            // One value fewer would be too much: each takes 20,000 bytes, and a ticket below 400.
            let stay = limit as usize / 20_100;
            let largest: Vec<u32> = (stay as u32..6).collect();
            assert_eq!(claims, largest, "{codec:?} {limit}");
        }
    }
}

/// Stand-ins are as long as the tickets, but other digits: how much longer these compress is what the planner allows for.
#[test]
fn true_tickets_are_no_longer_than_their_stand_ins_and_what_is_allowed_for() {
    let compressing = Codec::ALL.iter().filter(|codec| **codec != Codec::None);
    for codec in compressing {
        for layout in [Layout::Day, Layout::Event] {
            let issuer = issuer(layout);
            for count in [1usize, 2, 3, 10, 50, 200] {
                for seed in 0..(2_000 / count as u64).min(200) {
                    let record = |n: usize| {
                        let seed = seed * 1_000 + n as u64;
                        Record::of_random(1_000 + n % 7, seed).key(format!("key-{n}"))
                    };
                    let built = batch((0..count).map(record)).codec(*codec).build();
                    let batch = open(&built);
                    let planned = plan_offload(&batch, 900, &Fit::default(), &issuer);
                    let Planned::Offload(plan) = planned else {
                        panic!("{planned:?}");
                    };
                    assert_eq!(plan.claims.len(), count);
                    let length = |tickets: &[SignedTicket]| {
                        joined(offload(&batch, &plan, tickets).unwrap()).len() as u64
                    };
                    let stand_in = length(&plan.stand_ins(&issuer));
                    let real = length(&store(&batch, &plan, &issuer, &mut HashMap::new()));
                    let allowed = allowance(count);
                    assert!(
                        real <= stand_in + allowed,
                        "{codec} {layout}, {count}, seed {seed}: {real} after {stand_in} + {allowed}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_record_with_a_ticket_that_is_not_ours_is_forged() {
    let issuer = issuer(Layout::Day);
    let opened = open(&batch([Record::of_a(9_000)]).build());
    let Planned::Offload(plan) = plan_offload(&opened, 0, &Fit::default(), &issuer) else {
        panic!("not planned");
    };
    let marked = |change: &dyn Fn(&mut Ticket), keys: &Keys, topic: &str| {
        let digest = Digest::of(b"value");
        let place = issuer.place(&digest, plan.form, now());
        let kind = ContentType::default();
        let mut ticket = issuer.ticket(&place, digest, 9_000, &kind, (plan.form, 9_000), now());
        change(&mut ticket);
        let mark = keys.sign("cluster-1", topic, &ticket);
        Record::value(ticket.to_json()).header("x-claim-check", mark)
    };
    let ours = keys("k1");
    let sound = marked(&|_| {}, &ours, TOPIC);
    let judge = |record: Record| {
        let opened = open(&batch([Record::of_a(10), record]).build());
        plan_offload(&opened, 0, &Fit::default(), &issuer)
    };
    assert_eq!(judge(sound.clone()), Planned::Nothing);
    // Headers that somebody added behind it are no forgery.
    assert_eq!(
        judge(sound.clone().header("x-retries", "1")),
        Planned::Nothing
    );
    let stranger = Keys::new([Key::new("k1", &[9; 32]).unwrap()]).unwrap();
    let plain = Record::value("hello");
    for (record, expected) in [
        (marked(&|_| {}, &stranger, TOPIC), Refuted::WrongMac),
        (marked(&|_| {}, &keys("k2"), TOPIC), Refuted::UnknownKey),
        (marked(&|_| {}, &ours, "another"), Refuted::WrongMac),
        (
            marked(
                &|ticket| ticket.uri = "s3://bucket/claims/cluster-1/x/y".into(),
                &ours,
                TOPIC,
            ),
            Refuted::ForeignUri,
        ),
        (
            plain
                .clone()
                .header("x-claim-check", "1;k1;AAAAAAAAAAAAAAAAAAAAAA"),
            Refuted::NotATicket,
        ),
        (
            Record::default().header("x-claim-check", "1"),
            Refuted::NotATicket,
        ),
        (
            sound.clone().header("x-claim-check", "1"),
            Refuted::Malformed,
        ),
    ] {
        let forged = Planned::Forged {
            record: 1,
            why: expected,
        };
        assert_eq!(judge(record), forged);
    }
    // The header alone says what is a ticket: JSON that looks like one is a value like any other.
    let mut bare = sound;
    bare.headers.clear();
    let judged = open(&batch([bare]).build());
    assert_eq!(
        tickets(&judged, TOPIC, &issuer.namespace, &issuer.keys).count(),
        0
    );
}

#[test]
fn what_cannot_be_trusted_stays_closed() {
    let sound = batch([Record::of_a(900), Record::of_a(5)]);
    let open = |batch: &Bytes| OpenBatch::open(batch, ANY_SIZE, &mut Decoders::new()).map(|_| ());
    let built = sound.clone().build();
    for cut in 0..built.len() {
        assert_eq!(open(&built.slice(..cut)), Err(Unopened::NotOneBatch));
    }
    assert_eq!(
        open(&[&built[..], b"x"].concat().into()),
        Err(Unopened::NotOneBatch)
    );
    assert_eq!(
        open(&[&built[..], &built].concat().into()),
        Err(Unopened::NotOneBatch)
    );
    for magic in [-1, 0, 1, 3] {
        assert_eq!(
            open(&sound.clone().magic(magic).build()),
            Err(Unopened::NotOneBatch)
        );
    }
    assert_eq!(
        open(&sound.clone().crc_wrong().build()),
        Err(Unopened::BadCrc)
    );
    for byte in 21..built.len() {
        let mut damaged = built.to_vec();
        damaged[byte] ^= 0x04;
        let opened = open(&damaged.into());
        assert!(
            matches!(opened, Err(Unopened::BadCrc | Unopened::UnknownCodec)),
            "{byte}"
        );
    }
    assert_eq!(
        open(&sound.clone().attributes(0x20).build()),
        Err(Unopened::Control)
    );
    for count in [-1, 0] {
        assert_eq!(
            open(&sound.clone().count(count).build()),
            Err(Unopened::NoRecords)
        );
    }
    for count in [1, 3, i32::MAX] {
        let opened = open(&sound.clone().count(count).build());
        assert!(
            matches!(opened, Err(Unopened::Records(_))),
            "{count}: {opened:?}"
        );
    }
    for (codec, count) in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd]
        .into_iter()
        .flat_map(|codec| [(codec, 1), (codec, 3)])
    {
        let opened = open(&sound.clone().codec(codec).count(count).build());
        assert!(
            matches!(opened, Err(Unopened::Records(_))),
            "{codec:?} {count}: {opened:?}"
        );
        let opened = open(
            &sound
                .clone()
                .codec(codec)
                .payload(b"rubbish".to_vec())
                .build(),
        );
        assert!(opened.is_err(), "{codec:?}");
    }
    for id in 5..8 {
        assert_eq!(
            open(&sound.clone().attributes(id).build()),
            Err(Unopened::UnknownCodec)
        );
    }
}

#[test]
fn no_more_is_uncompressed_than_may_be_held() {
    for codec in Codec::ALL {
        let sound = batch([Record::of_a(100_000)]).codec(*codec);
        let records_bytes = sound.uncompressed_bytes() as u64 - 61;
        let built = sound.build();
        let open = |most| OpenBatch::open(&built, most, &mut Decoders::new()).map(|_| ());
        assert_eq!(open(records_bytes), Ok(()), "{codec:?}");
        assert_eq!(
            open(records_bytes - 1),
            Err(Unopened::TooLarge),
            "{codec:?}"
        );
    }
}

#[test]
fn tickets_go_where_they_were_planned_and_originals_where_tickets_are() {
    let issuer = issuer(Layout::Day);
    let opened = open(&batch([900, 5, 900].map(Record::of_a)).build());
    let Planned::Offload(plan) = plan_offload(&opened, 800, &Fit::default(), &issuer) else {
        panic!("not planned");
    };
    let signed = plan.stand_ins(&issuer);
    let mismatch = Err(RewriteError::Mismatch);
    assert_eq!(offload(&opened, &plan, &signed[..1]), mismatch);
    let value = Bytes::from_static(b"value");
    for record in [0, 1, 3] {
        assert_eq!(
            redeem(&opened, &[(record, value.clone())]),
            mismatch,
            "{record}"
        );
    }
    let small = open(&joined(offload(&opened, &plan, &signed).unwrap()));
    assert_eq!(redeem(&small, &[(1, value.clone())]), mismatch);
    // One ticket may stay: what is not redeemed is passed on.
    let half = open(&joined(redeem(&small, &[(2, value.clone())]).unwrap()));
    let values: Vec<usize> = half
        .parts()
        .map(|(_, parts)| parts.value.unwrap().len())
        .collect();
    assert_eq!((values[1], values[2]), (5, 5));
    assert_eq!(
        tickets(&half, TOPIC, &issuer.namespace, &issuer.keys).count(),
        1
    );
}

proptest! {
    #![proptest_config(Config { cases: 300, failure_persistence: None, ..Config::default() })]

    #[test]
    fn arbitrary_records_behind_a_right_checksum_never_panic(
        payload in prop::collection::vec(any::<u8>(), 0..400),
        count in 0..9i32,
        codec in prop::sample::select(Codec::ALL.to_vec()),
        compressed in any::<bool>(),
    ) {
        let payload = if compressed { compress(codec, &payload) } else { payload };
        let built = batch([]).codec(codec).count(count).payload(payload).build();
        if let Ok(opened) = OpenBatch::open(&built, 1 << 20, &mut Decoders::new()) {
            let issuer = issuer(Layout::Event);
            let fit = Fit { batch_bytes: Some(100), ..Fit::default() };
            if let Planned::Offload(plan) = plan_offload(&opened, 0, &fit, &issuer) {
                let tickets = plan.stand_ins(&issuer);
                prop_assert!(offload(&opened, &plan, &tickets).is_ok());
            }
        }
    }
}
