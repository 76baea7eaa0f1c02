//! Produce: sound, too large, and wrong in every way that a broker tells apart.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{FindCoordinatorRequest, InitProducerIdRequest, TransactionalId};
use uuid::Uuid;

use super::raw::{RawPartition, RawProduce, RawTopic};
use super::ways::{Intended, Ways, ways};
use crate::support::batch::{Batch, random};
use crate::support::client::text;
use crate::support::{Connection, Record, Topic, batch, batch_of_bytes, eventually, unique};
use sizegate::policy::Codec;

const VERSIONS: std::ops::RangeInclusive<i16> = 0..=13;
/// The limit of a topic where the case does not choose its own.
pub const LIMIT: usize = 2_000;
pub const LIMIT_TEXT: &str = "2000";

pub fn small() -> Bytes {
    batch_of_bytes(500).build()
}

pub fn large() -> Bytes {
    batch_of_bytes(LIMIT + 1).build()
}

pub fn sizes_around_the_limit_at_every_version_acks_and_codec(version: &str) {
    let ways = ways(version);
    for codec in Codec::ALL {
        let records = (0..3).map(|n| {
            Record::value(random(700, n))
                .key(*b"key")
                .header("h", *b"v")
        });
        let batch = batch(records).codec(*codec).build();
        // Limits around this batch, not batches around a limit: no codec hits a size to the byte.
        let limits = [batch.len() + 1, batch.len(), batch.len() - 1].map(|limit| limit.to_string());
        let configs = limits
            .each_ref()
            .map(|limit| [("max.message.bytes", limit.as_str())]);
        let topics = ways.mirrored(&configs.each_ref().map(|config| (1, config.as_slice())));
        for api_version in VERSIONS {
            for acks in [-1, 1, 0, 2, -2] {
                for place in 0..limits.len() {
                    let case = format!(
                        "v{api_version} acks={acks} {codec} limit {} size {}",
                        limits[place],
                        batch.len()
                    );
                    let answers = ways.compare(&topics, &case, Intended::TextOnly, |topics| {
                        RawProduce::one(api_version, acks, &topics[place], 0, batch.clone()).frame()
                    });
                    let code = answers.first().map(|answer| answer.code);
                    let too_large = place == 2;
                    let expected = match (api_version, acks) {
                        (0..=2, _) | (_, 0) => None,
                        (..7, _) if *codec == Codec::Zstd => Some(76),
                        (_, 2 | -2) => Some(21),
                        _ if too_large => Some(10),
                        _ => Some(0),
                    };
                    assert_eq!(code, expected, "{case}");
                }
            }
        }
    }
}

pub fn batches_wrong_in_a_way_the_broker_checks_before_or_after_the_size(version: &str) {
    let ways = ways(version);
    let topics = ways.mirrored(&[(1, &[("max.message.bytes", LIMIT_TEXT)])]);
    let of = |bytes: usize| batch_of_bytes(bytes);
    let joined =
        |first: Batch, second: Batch| Bytes::from([first.build(), second.build()].concat());
    let mut flaws: Vec<(String, Bytes)> = Vec::new();
    for bytes in [500, LIMIT, LIMIT + 1, 3 * LIMIT] {
        let mut flaw =
            |name: &str, records: Bytes| flaws.push((format!("{name}, {bytes} bytes"), records));
        flaw("wrong CRC", of(bytes).crc_wrong().build());
        flaw("two batches", joined(of(bytes), of(bytes)));
        flaw(
            "two batches, the second one large",
            joined(of(100), of(bytes)),
        );
        for behind in [8, 16, 17, 61, 499] {
            flaw(
                &format!("a batch and {behind} bytes of another"),
                joined(of(bytes), of(500)).slice(..bytes + behind),
            );
            for magic in [-1, 0, 1, 3] {
                let another = of(500).magic(magic);
                flaw(
                    &format!("a batch and {behind} bytes of another of magic {magic}"),
                    joined(of(bytes), another).slice(..bytes + behind),
                );
            }
            for length in [-1, 13, 14, 48, 49, i32::MAX] {
                let another = of(500).length(length);
                flaw(
                    &format!("a batch and {behind} bytes of another of length {length}"),
                    joined(of(bytes), another).slice(..bytes + behind),
                );
            }
        }
        flaw("a cut batch", of(bytes).build().slice(..bytes - 1));
        flaw("a batch cut in its header", of(bytes).build().slice(..40));
        flaw(
            "a batch cut before its magic",
            of(bytes).build().slice(..16),
        );
        flaw("a few bytes", of(bytes).build().slice(..11));
        flaw(
            "a length one below",
            of(bytes).length(bytes as i32 - 13).build(),
        );
        flaw(
            "a length one above",
            of(bytes).length(bytes as i32 - 11).build(),
        );
        flaw("a length of a header only", of(bytes).length(49).build());
        flaw("a length below a header", of(bytes).length(13).build());
        flaw("a length of zero", of(bytes).length(0).build());
        flaw("a negative length", of(bytes).length(-1).build());
        flaw(
            "the most negative length",
            of(bytes).length(i32::MIN).build(),
        );
        flaw("the largest length", of(bytes).length(i32::MAX).build());
        for magic in [-1, 0, 1, 3, 127] {
            flaw(&format!("magic {magic}"), of(bytes).magic(magic).build());
        }
        for trailing in [1, 15, 16, 17, 18, 100] {
            flaw(
                &format!("{trailing} trailing bytes"),
                of(bytes).trailing(vec![0; trailing]).build(),
            );
            flaw(
                &format!("{trailing} trailing bytes of noise"),
                of(bytes).trailing(random(trailing, 9)).build(),
            );
        }
        flaw("base_offset 1", of(bytes).base_offset(1).build());
        flaw("base_offset -1", of(bytes).base_offset(-1).build());
        flaw("count 0", of(bytes).count(0).build());
        flaw("count -1", of(bytes).count(-1).build());
        flaw("count 2 of 1", of(bytes).count(2).build());
        flaw("count i32::MAX", of(bytes).count(i32::MAX).build());
        flaw("an unknown codec", of(bytes).attributes(5).build());
        flaw("codec 7", of(bytes).attributes(7).build());
        flaw("a control batch", of(bytes).attributes(1 << 5).build());
        flaw(
            "a transactional batch without an id",
            of(bytes).transactional().producer(7, 0, 0).build(),
        );
        flaw("log append time", of(bytes).attributes(1 << 3).build());
        flaw("unknown attributes", of(bytes).attributes(1 << 7).build());
        flaw(
            "a producer id without sequence",
            of(bytes).producer(5, 0, -1).build(),
        );
        flaw(
            "a producer nobody knows",
            of(bytes).producer(1 << 40, 0, 3).build(),
        );
        flaw("not gzip", of(bytes).attributes(1).build());
        flaw("not snappy", of(bytes).attributes(2).build());
        flaw("not lz4", of(bytes).attributes(3).build());
        flaw("not zstd", of(bytes).attributes(4).build());
    }
    flaws.push(("no bytes".into(), Bytes::new()));
    flaws.push(("a batch without records".into(), batch([]).build()));
    flaws.push((
        "a large batch without a payload".into(),
        batch([]).count(0).payload(vec![0; 3 * LIMIT]).build(),
    ));
    // Every flaw at the versions that differ in what is checked and answered; the rest of the versions take turns.
    for (n, (name, records)) in flaws.iter().enumerate() {
        let turn = n as i16 % 14;
        for api_version in
            VERSIONS.filter(|version| matches!(version, 3 | 8 | 13) || *version == turn)
        {
            for acks in if api_version == turn {
                [-1, 0].as_slice()
            } else {
                &[-1]
            } {
                let acks = *acks;
                let case = format!("v{api_version} acks={acks} {name}");
                ways.compare(&topics, &case, Intended::TextOnly, |topics| {
                    RawProduce::one(api_version, acks, &topics[0], 0, records.clone()).frame()
                });
            }
        }
    }
    for api_version in [3, 8, 9, 13] {
        let case = format!("v{api_version} null records");
        ways.compare(
            &topics,
            &case,
            Intended::AnsweredInsteadOfSilence,
            |topics| {
                let mut request = RawProduce::one(api_version, -1, &topics[0], 0, Bytes::new());
                request.topics[0].partitions[0].records = None;
                request.frame()
            },
        );
    }
}

pub fn topics_and_partitions_that_do_not_exist(version: &str) {
    let ways = ways(version);
    let mut topics = ways.mirrored(&[(2, &[("max.message.bytes", LIMIT_TEXT)])]);
    for side in &mut topics {
        side.push(Topic {
            name: unique("nobody"),
            id: Uuid::new_v4(),
        });
        side.push(Topic {
            name: "not a legal name".into(),
            id: Uuid::nil(),
        });
        side.push(Topic {
            name: String::new(),
            id: Uuid::max(),
        });
        side.push(Topic {
            name: "x".repeat(250),
            id: Uuid::from_u128(1),
        });
    }
    for api_version in VERSIONS {
        for acks in [-1, 1, 0] {
            for bytes in [500, LIMIT + 1, 1_100_000] {
                // Above every limit a topic inherits, too: once by name and once by id.
                if bytes > 1_000_000 && !(acks == -1 && matches!(api_version, 9 | 13)) {
                    continue;
                }
                let records = batch_of_bytes(bytes).build();
                for place in 1..topics[0].len() {
                    let case = format!(
                        "v{api_version} acks={acks} {bytes} bytes for unknown topic {place}"
                    );
                    let answers = ways.compare(&topics, &case, Intended::TextOnly, |topics| {
                        RawProduce::one(api_version, acks, &topics[place], 0, records.clone())
                            .frame()
                    });
                    assert!(
                        answers
                            .iter()
                            .all(|answer| matches!(answer.code, 3 | 17 | 100)),
                        "{case}: {answers:?}"
                    );
                }
                for partition in [2, 1000, -1, i32::MAX, i32::MIN] {
                    let case = format!(
                        "v{api_version} acks={acks} {bytes} bytes for partition {partition}"
                    );
                    let answers = ways.compare(&topics, &case, Intended::TextOnly, |topics| {
                        RawProduce::one(api_version, acks, &topics[0], partition, records.clone())
                            .frame()
                    });
                    assert!(
                        answers.iter().all(|answer| answer.code == 3),
                        "{case}: {answers:?}"
                    );
                }
            }
        }
    }
    // An unknown one beside a known one, and a large one beside a small one.
    for api_version in [3, 8, 12, 13] {
        for known in [small(), large()] {
            for unknown in [small(), large()] {
                let case = format!(
                    "v{api_version} unknown beside known, {} and {} bytes",
                    unknown.len(),
                    known.len()
                );
                let answers = ways.compare(&topics, &case, Intended::TextOnly, |topics| {
                    let sent: [(&Topic, &[(i32, Bytes)]); 2] = [
                        (&topics[1], &[(0, unknown.clone())]),
                        (&topics[0], &[(7, unknown.clone()), (1, known.clone())]),
                    ];
                    RawProduce::new(api_version, -1, &sent).frame()
                });
                assert_eq!(answers.len(), 3, "{case}");
            }
        }
    }
}

pub fn a_partition_named_twice_counts_once_with_its_last_batch(version: &str) {
    let ways = ways(version);
    let topics = ways.mirrored(&[(2, &[("max.message.bytes", LIMIT_TEXT)])]);
    for api_version in VERSIONS {
        for acks in [-1, 0] {
            for (first, last) in [
                (small(), small()),
                (small(), large()),
                (large(), small()),
                (large(), large()),
            ] {
                let sizes = format!(
                    "v{api_version} acks={acks} {} then {} bytes",
                    first.len(),
                    last.len()
                );
                let beside = (1, small());
                let one_entry = |topics: &[Topic]| {
                    let partitions = [(0, first.clone()), beside.clone(), (0, last.clone())];
                    RawProduce::new(api_version, acks, &[(&topics[0], &partitions)]).frame()
                };
                let two_entries = |topics: &[Topic]| {
                    let sent: [(&Topic, &[(i32, Bytes)]); 2] = [
                        (&topics[0], &[(0, first.clone()), beside.clone()]),
                        (&topics[0], &[(0, last.clone())]),
                    ];
                    RawProduce::new(api_version, acks, &sent).frame()
                };
                let answers = ways.compare(
                    &topics,
                    &format!("{sizes} in one entry"),
                    Intended::TextOnly,
                    one_entry,
                );
                let again = ways.compare(
                    &topics,
                    &format!("{sizes} in two entries"),
                    Intended::TextOnly,
                    two_entries,
                );
                let codes = |answers: &[crate::support::Answer]| {
                    answers.iter().map(|a| a.code).collect::<Vec<_>>()
                };
                if acks != 0 && api_version >= 3 {
                    let code = if last.len() > LIMIT { 10 } else { 0 };
                    assert_eq!(codes(&answers), [code, 0], "{sizes}");
                    assert_eq!(codes(&again), [code, 0], "{sizes}");
                }
            }
            if acks == 0 {
                ways.stored_the_same(&topics, &[2]);
            }
        }
    }
}

pub fn a_topic_repeated_in_many_entries_is_answered_once_per_partition(version: &str) {
    let ways = ways(version);
    let topics = ways.mirrored(&[(40, &[("max.message.bytes", LIMIT_TEXT)]), (1, &[])]);
    let request = |api_version: i16, acks: i16, times: i32, topics: &[Topic]| {
        let entry = |n: i32| RawTopic {
            topic: topics[usize::from(n % 50 == 49)].clone(),
            partitions: vec![RawPartition {
                index: if n % 50 == 49 { 0 } else { n % 40 },
                records: Some(if n % 7 == 0 { large() } else { small() }),
                tags: Vec::new(),
            }],
            tags: Vec::new(),
        };
        let mut request = RawProduce::new(api_version, acks, &[]);
        request.topics = (0..times).map(entry).collect();
        request.frame()
    };
    for (api_version, acks) in [(3, -1), (8, -1), (9, 1), (12, 0), (13, -1)] {
        for times in [0, 2, 41, 100] {
            let case = format!("v{api_version} acks={acks} {times} entries");
            ways.compare(&topics, &case, Intended::TextOnly, |topics| {
                request(api_version, acks, times, topics)
            });
        }
        if acks == 0 {
            ways.stored_the_same(&topics, &[40, 1]);
        }
    }
    // A broker alone takes seconds over this one.
    let heard = super::ways::talk(
        &ways.sizegate.bootstrap(),
        &[request(8, -1, 1_000, &topics[1])],
        Duration::from_secs(60),
    );
    assert_eq!(heard.frames.len(), 1);
}

pub fn refused_and_sound_partitions_in_one_request(version: &str) {
    let ways = ways(version);
    let topics = ways.mirrored(&[
        (3, &[("max.message.bytes", LIMIT_TEXT)]),
        (2, &[]),
        (1, &[("max.message.bytes", "100")]),
    ]);
    for api_version in VERSIONS {
        for acks in [-1, 1, 0] {
            for mask in 0..8_u32 {
                let of = |bit: u32| {
                    if mask & (1 << bit) == 0 {
                        small()
                    } else {
                        large()
                    }
                };
                let case = format!("v{api_version} acks={acks} mask {mask:03b}");
                let answers = ways.compare(&topics, &case, Intended::TextOnly, |topics| {
                    let sent: [(&Topic, &[(i32, Bytes)]); 3] = [
                        (&topics[0], &[(2, of(0)), (0, of(1)), (1, of(2))]),
                        (&topics[1], &[(1, large()), (0, small())]),
                        (&topics[2], &[(0, of(0))]),
                    ];
                    RawProduce::new(api_version, acks, &sent).frame()
                });
                if acks != 0 && api_version >= 3 {
                    let refused = answers.iter().filter(|answer| answer.code == 10).count();
                    assert_eq!(refused as u32, mask.count_ones() + 1, "{case}");
                }
            }
            if acks == 0 {
                ways.stored_the_same(&topics, &[3, 2, 1]);
            }
        }
    }
}

pub fn transactional_batches_out_of_order(version: &str) {
    let ways = ways(version);
    let topics = ways.mirrored(&[(2, &[("max.message.bytes", LIMIT_TEXT)])]);
    for api_version in 3..=13 {
        for acks in [-1, 1, 0] {
            // Whoever sends it, the whole request is spoilt by one such batch.
            for (spoilt, beside) in [
                (500, 500),
                (500, LIMIT + 1),
                (LIMIT + 1, 500),
                (LIMIT + 1, LIMIT + 1),
            ] {
                let case = format!(
                    "v{api_version} acks={acks} {spoilt} transactional without id, {beside} beside it"
                );
                ways.compare(&topics, &case, Intended::TextOnly, |topics| {
                    let transactional = batch_of_bytes(spoilt)
                        .transactional()
                        .producer(7, 0, 0)
                        .build();
                    let partitions = [(0, transactional), (1, batch_of_bytes(beside).build())];
                    RawProduce::new(api_version, acks, &[(&topics[0], &partitions)]).frame()
                });
            }
        }
    }
    let transactional_ids = [unique("tx"), unique("tx")];
    let producers = transactional_ids
        .each_ref()
        .map(|id| init_transactions(ways, id));
    for api_version in 3..=13 {
        let side =
            |topics: &[Topic], all: &[Vec<Topic>; 2]| usize::from(topics[0].id != all[0][0].id);
        let case = format!("v{api_version} in a transaction that was not begun");
        let answers = ways.compare(&topics, &case, Intended::TextOnly, |of| {
            let side = side(of, &topics);
            let (id, epoch) = producers[side];
            let records = batch_of_bytes(500)
                .transactional()
                .producer(id, epoch, 0)
                .build();
            let mut request = RawProduce::one(api_version, -1, &of[0], 0, records);
            request.transactional_id = Some(transactional_ids[side].clone());
            request.frame()
        });
        assert_eq!(answers.len(), 1, "{case}");
        let case = format!("v{api_version} a transactional id, but a batch without the bit");
        ways.compare(&topics, &case, Intended::TextOnly, |of| {
            let mut request = RawProduce::one(api_version, -1, &of[0], 1, small());
            request.transactional_id = Some(transactional_ids[side(of, &topics)].clone());
            request.frame()
        });
    }
}

/// A producer id and epoch for a transactional id, from the broker itself.
fn init_transactions(ways: &Ways, transactional_id: &str) -> (i64, i16) {
    let address = ways.kafka.bootstrap();
    eventually(
        Duration::from_secs(60),
        "a transactional producer id",
        || {
            // Makes the broker create the topic in which transactions are kept.
            let find = FindCoordinatorRequest::default()
                .with_key_type(1)
                .with_coordinator_keys(vec![text(transactional_id)]);
            Connection::open(address.as_str()).ask(&find, 4);
            let request = InitProducerIdRequest::default()
                .with_transactional_id(Some(TransactionalId(text(transactional_id))))
                .with_transaction_timeout_ms(60_000);
            let answer = Connection::open(address.as_str()).ask(&request, 4);
            (answer.error_code == 0).then_some((answer.producer_id.0, answer.producer_epoch))
        },
    )
}
