//! Produce: batches that are wrong, in one request with others. Some spoil the whole request, some their partition
//! whatever else it is sent, some only count as the last batch of their partition.

use bytes::Bytes;

use super::produce::{LIMIT_TEXT, large, small};
use super::raw::RawProduce;
use super::ways::{Intended, ways};
use crate::support::{Topic, batch_of_bytes};

fn flaws() -> Vec<(&'static str, Bytes)> {
    let of = || batch_of_bytes(600);
    let transactional = of().transactional().producer(7, 0, 0).build();
    let behind = |records: Bytes, more: &[u8]| Bytes::from([&records[..], more].concat());
    let head =
        |length: i32, magic: u8| [&[0; 8][..], &length.to_be_bytes(), &[0; 4], &[magic]].concat();
    vec![
        ("no bytes", Bytes::new()),
        ("a cut batch", of().build().slice(..599)),
        ("two batches", behind(small(), &small())),
        ("a length below a header", of().length(13).build()),
        ("a length that overflows", of().length(i32::MAX).build()),
        ("a magic nobody knows", of().magic(3).build()),
        ("magic 1", of().magic(1).build()),
        ("transactional", transactional.clone()),
        ("transactional and cut", transactional.slice(..599)),
        ("transactional and more", behind(transactional, &small())),
        ("an unknown codec", of().attributes(5).build()),
        ("not zstd", of().attributes(4).build()),
        ("base offset 1", of().base_offset(1).build()),
        ("a wrong checksum", of().crc_wrong().build()),
        ("17 bytes of nothing behind it", behind(small(), &[0; 17])),
        ("a cut one behind it", behind(small(), &head(500, 2))),
        (
            "one that overflows behind it",
            behind(small(), &head(i32::MAX, 2)),
        ),
        ("one of magic 3 behind it", behind(small(), &head(500, 3))),
    ]
}

pub fn flawed_batches_beside_others_and_twice_in_a_partition(version: &str) {
    let ways = ways(version);
    let topics = ways.mirrored(&[(3, &[("max.message.bytes", LIMIT_TEXT)])]);
    for (name, flawed) in flaws() {
        let flawed = || (0, flawed.clone());
        let arrangements: [(&str, Vec<(i32, Bytes)>); 6] = [
            ("beside others", vec![(1, large()), flawed(), (2, small())]),
            (
                "before a sound one",
                vec![flawed(), (0, small()), (1, large())],
            ),
            (
                "behind a sound one",
                vec![(0, small()), flawed(), (1, small())],
            ),
            (
                "before a large one",
                vec![flawed(), (0, large()), (1, small())],
            ),
            ("behind a large one", vec![(0, large()), flawed()]),
            (
                "for a partition that is none",
                vec![(9, flawed().1), (1, large())],
            ),
        ];
        for api_version in [3, 6, 7, 9, 13] {
            for (how, partitions) in &arrangements {
                let case = format!("v{api_version} {name}, {how}");
                ways.compare(&topics, &case, Intended::TextOnly, |topics| {
                    RawProduce::new(api_version, -1, &[(&topics[0], partitions)]).frame()
                });
                if api_version != 9 {
                    continue;
                }
                let case = format!("{case}, each in an entry of its own");
                ways.compare(&topics, &case, Intended::TextOnly, |topics| {
                    let entries: Vec<(&Topic, &[(i32, Bytes)])> = partitions
                        .iter()
                        .map(|partition| (&topics[0], std::slice::from_ref(partition)))
                        .collect();
                    RawProduce::new(api_version, -1, &entries).frame()
                });
            }
        }
    }
    ways.stored_the_same(&topics, &[3]);
}

pub fn null_records_for_a_partition_that_does_not_exist(version: &str) {
    let ways = ways(version);
    let topics = ways.mirrored(&[(1, &[])]);
    for api_version in 0..=13 {
        let case = format!("v{api_version} null records");
        let answers = ways.compare(&topics, &case, Intended::TextOnly, |topics| {
            let mut request = RawProduce::one(api_version, -1, &topics[0], 5, Bytes::new());
            request.topics[0].partitions[0].records = None;
            request.frame()
        });
        assert_eq!(answers.len(), usize::from(api_version >= 3), "{case}");
    }
}
