//! What holds for requests of every kind: headers, tagged fields, lengths, versions, order.

use std::time::Duration;

use bytes::Bytes;

use super::raw::{RawProduce, any_frame, finish, head, put_string, put_tags};
use super::ways::{End, Heard, Intended, assert_same, talk, ways};
use crate::support::{Topic, batch_of_bytes};

const PATIENCE: Duration = Duration::from_secs(30);

fn both(ways: &super::ways::Ways, frames: &[Vec<u8>]) -> [Heard; 2] {
    [
        talk(&ways.kafka.bootstrap(), frames, PATIENCE),
        talk(&ways.sizegate.bootstrap(), frames, PATIENCE),
    ]
}

/// As [`both`], when the broker says the same before and after: the epoch in ApiVersions grows with every topic that
/// other tests create.
fn both_at_rest(ways: &super::ways::Ways, frames: &[Vec<u8>]) -> [Heard; 2] {
    crate::support::eventually(PATIENCE, "the broker says the same twice", || {
        let [before, proxied] = both(ways, frames);
        let after = talk(&ways.kafka.bootstrap(), frames, PATIENCE);
        (before == after).then_some([before, proxied])
    })
}

pub fn tagged_fields_nobody_knows(version: &str) {
    let ways = ways(version);
    let topics = ways.mirrored(&[(2, &[("max.message.bytes", "2000")])]);
    let many = |count: u32| {
        (0..count)
            .map(|tag| (tag + 100, vec![7; 3]))
            .collect::<Vec<_>>()
    };
    for api_version in 9..=13 {
        for bytes in [500, 2_001] {
            let base = |topics: &[Topic]| {
                let partitions = [
                    (0, batch_of_bytes(bytes).build()),
                    (1, batch_of_bytes(400).build()),
                ];
                RawProduce::new(api_version, -1, &[(&topics[0], &partitions)])
            };
            let case = |place: &str| format!("v{api_version} {bytes} bytes, {place}");
            for tags in [
                many(1),
                many(3),
                many(10_000),
                many(10_001),
                vec![(u32::MAX, vec![])],
                vec![(5, vec![]), (5, vec![])],
                vec![(9, vec![1]), (8, vec![2])],
            ] {
                let count = tags.len();
                ways.compare(
                    &topics,
                    &case(&format!("{count} tags in the header")),
                    Intended::TextOnly,
                    |topics| {
                        RawProduce {
                            header_tags: tags.clone(),
                            ..base(topics)
                        }
                        .frame()
                    },
                );
                ways.compare(
                    &topics,
                    &case(&format!("{count} tags in the body")),
                    Intended::TextOnly,
                    |topics| {
                        RawProduce {
                            tags: tags.clone(),
                            ..base(topics)
                        }
                        .frame()
                    },
                );
                ways.compare(
                    &topics,
                    &case(&format!("{count} tags in the topic")),
                    Intended::TextOnly,
                    |topics| {
                        let mut request = base(topics);
                        request.topics[0].tags = tags.clone();
                        request.frame()
                    },
                );
                ways.compare(
                    &topics,
                    &case(&format!("{count} tags in the first partition")),
                    Intended::TextOnly,
                    |topics| {
                        let mut request = base(topics);
                        request.topics[0].partitions[0].tags = tags.clone();
                        request.frame()
                    },
                );
                ways.compare(
                    &topics,
                    &case(&format!("{count} tags in the last partition")),
                    Intended::TextOnly,
                    |topics| {
                        let mut request = base(topics);
                        request.topics[0].partitions[1].tags = tags.clone();
                        request.frame()
                    },
                );
            }
        }
    }
    for api_version in 3..=13 {
        for bytes in [500, 2_001] {
            for behind in [1, 2, 1_000] {
                let case = format!("v{api_version} {bytes} bytes, {behind} bytes behind the body");
                ways.compare(&topics, &case, Intended::TextOnly, |topics| {
                    RawProduce {
                        behind: vec![0xab; behind],
                        ..RawProduce::one(
                            api_version,
                            -1,
                            &topics[0],
                            0,
                            batch_of_bytes(bytes).build(),
                        )
                    }
                    .frame()
                });
            }
        }
    }
}

pub fn client_ids_of_every_kind(version: &str) {
    let ways = ways(version);
    let topics = ways.mirrored(&[(1, &[("max.message.bytes", "2000")])]);
    let ids = [
        None,
        Some(Vec::new()),
        Some(vec![0xff, 0xfe, 0x80]),
        Some(vec![b'x'; 32_767]),
        Some(b"a\n\"b\x00".to_vec()),
    ];
    for api_version in 3..=13 {
        for bytes in [500, 2_001] {
            for client_id in &ids {
                let length = client_id.as_ref().map_or(-1, |id| id.len() as i64);
                let case = format!("v{api_version} {bytes} bytes, a client id of {length} bytes");
                ways.compare(&topics, &case, Intended::TextOnly, |topics| {
                    RawProduce {
                        client_id: client_id.clone(),
                        ..RawProduce::one(
                            api_version,
                            -1,
                            &topics[0],
                            0,
                            batch_of_bytes(bytes).build(),
                        )
                    }
                    .frame()
                });
            }
        }
    }
    // Every negative length is null.
    for (api_version, length) in [(3, -2_i16), (8, i16::MIN), (13, -2)] {
        let case = format!("v{api_version} a client id of {length} bytes");
        ways.compare(&topics, &case, Intended::TextOnly, |topics| {
            let records = batch_of_bytes(2_001).build();
            let mut frame = RawProduce {
                client_id: None,
                ..RawProduce::one(api_version, -1, &topics[0], 0, records)
            }
            .frame();
            frame[12..14].copy_from_slice(&length.to_be_bytes());
            if api_version < 9 {
                // The transactional id.
                frame[14..16].copy_from_slice(&length.to_be_bytes());
            }
            frame
        });
    }
    // A client id whose length lies.
    for length in [-2_i16, i16::MIN, 100, i16::MAX] {
        for (api_key, api_version) in [(0, 3), (0, 9), (18, 0), (18, 3), (3, 1), (3, 9)] {
            let mut frame = head(api_key, api_version, 7, Some(b"raw"));
            frame[12..14].copy_from_slice(&length.to_be_bytes());
            frame.extend([0; 20]);
            let [direct, proxied] = both(ways, &[finish(frame)]);
            assert_same(
                &format!(
                    "key {api_key} v{api_version}, a client id of {length} bytes that is not there"
                ),
                &direct,
                &proxied,
            );
        }
    }
}

pub fn keys_and_versions_nobody_knows(version: &str) {
    let ways = ways(version);
    let keys = (-3..=100).chain([127, 128, 999, i16::MAX, i16::MIN]);
    for api_key in keys.filter(|key| *key != 18) {
        for api_version in [-1, i16::MIN, 14, 19, 99, 100, i16::MAX] {
            let [direct, proxied] = both(ways, &[any_frame(api_key, api_version, 7, &[0; 40])]);
            let case = format!("key {api_key} v{api_version}");
            assert_same(&case, &direct, &proxied);
            assert_eq!(direct.end, End::Closed, "{case}");
        }
    }
}

pub fn frames_of_impossible_lengths(version: &str) {
    let ways = ways(version);
    for length in [0, 1, 3, 7, -1, i32::MIN, i32::MAX, 104_857_601] {
        // A Metadata request: a Produce that is too long is read to its end and answered.
        let frame = [&i32::to_be_bytes(length)[..], &[0, 3], &[0; 64]].concat();
        let [direct, proxied] = both(ways, &[frame]);
        assert_same(&format!("a frame of {length} bytes"), &direct, &proxied);
        assert_eq!(direct.end, End::Closed, "{length}");
    }
    // Sound lengths of bodies that end too early, or go on.
    let topics = ways.mirrored(&[(1, &[("max.message.bytes", "2000")])]);
    for api_version in [3, 8, 9, 12, 13] {
        for bytes in [500, 2_001] {
            let whole = |topics: &[Topic]| {
                RawProduce::one(
                    api_version,
                    -1,
                    &topics[0],
                    0,
                    batch_of_bytes(bytes).build(),
                )
                .frame()
            };
            let steps = (12..120)
                .step_by(if bytes > 2_000 { 1 } else { 3 })
                .chain([whole(&topics[0]).len() - 3, whole(&topics[0]).len() - 1]);
            for cut in steps {
                let case = format!("v{api_version} {bytes} bytes, cut after {cut}");
                ways.compare(&topics, &case, Intended::TextOnly, |topics| {
                    finish(whole(topics)[..cut].to_vec())
                });
            }
        }
    }
}

pub fn api_versions_in_every_version(version: &str) {
    let ways = ways(version);
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("empty", Vec::new()),
        ("software", software(b"raw", b"1.0", &[])),
        (
            "software with tags",
            software(b"raw", b"1.0", &[(77, vec![1, 2, 3])]),
        ),
        (
            "software with an illegal name",
            software(b"r w!", b"1.0", &[]),
        ),
        ("software without a name", software(b"", b"", &[])),
        (
            "software with a long name",
            software(&[b'x'; 5_000], b"1.0", &[]),
        ),
        ("zeros", vec![0; 40]),
        ("ones", vec![0xff; 40]),
    ];
    for api_version in (-1..=6).chain([100, i16::MAX, i16::MIN]) {
        for (name, body) in &bodies {
            let frame = any_frame(18, api_version, 7, body);
            let [direct, proxied] = both_at_rest(ways, &[frame]);
            assert_same(
                &format!("ApiVersions v{api_version}, {name}"),
                &direct,
                &proxied,
            );
        }
    }
}

/// An ApiVersions body of version 3 behind a header without tags; versions 5 and up want more.
fn software(name: &[u8], version: &[u8], tags: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut body = vec![0];
    put_string(&mut body, true, Some(name));
    put_string(&mut body, true, Some(version));
    put_tags(&mut body, &tags.to_vec());
    body
}

pub fn pipelined_requests_are_answered_in_order(version: &str) {
    let ways = ways(version);
    let topics = ways.mirrored(&[(1, &[("max.message.bytes", "2000")])]);
    let heard = [ways.kafka.bootstrap(), ways.sizegate.bootstrap()]
        .into_iter()
        .zip(&topics)
        .map(|(address, topics)| {
            let frame = |n: i32| match n % 5 {
                0 => any_frame(18, 3, n, &software(b"raw", b"1", &[])),
                1 => any_frame(3, 1, n, &[0, 0, 0, 0]),
                kind => {
                    let bytes = if kind == 2 { 500 } else { 2_001 };
                    let mut request = RawProduce::one(
                        8,
                        if n == 198 { 0 } else { -1 },
                        &topics[0],
                        0,
                        batch_of_bytes(bytes).build(),
                    );
                    request.correlation_id = n;
                    request.frame()
                }
            };
            // The last but one is a large one with acks 0: everything before it is answered, then the close.
            let frames: Vec<_> = (0..200).map(frame).collect();
            let mut heard = talk(&address, &frames, PATIENCE);
            // A broker closes with the last request unread, and the reset may overtake its last responses: not its word.
            let is_broker = address == ways.kafka.bootstrap();
            for _ in 0..20 {
                if is_broker && heard.frames.len() < 198 {
                    heard = talk(&address, &frames, PATIENCE);
                }
            }
            heard
        });
    let [direct, proxied]: [Heard; 2] = heard.collect::<Vec<_>>().try_into().unwrap();
    let order = |heard: &Heard| {
        heard
            .frames
            .iter()
            .map(|frame| Bytes::copy_from_slice(&frame[..4]))
            .collect::<Vec<_>>()
    };
    assert_same(
        "the order of 198 answers",
        &order(&direct),
        &order(&proxied),
    );
    assert_eq!((direct.end, direct.frames.len()), (End::Closed, 198));
    assert_eq!((proxied.end, proxied.frames.len()), (End::Closed, 198));
}
