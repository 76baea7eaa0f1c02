//! Produce requests around the size from which they may pass before they are whole: broken anywhere, and sent in pieces.
//!
//! Whatever is changed in one is changed in the other. Names and ids of topics differ, and are left alone.

use std::ops::Range;

use bytes::Bytes;
use sizegate::wire::produce::Layout;

use super::raw::{RawProduce, RawTopic, finish};
use super::ways::{End, Ways, ways};
use crate::support::{Random, Record, Topic, batch, batch_of_bytes};
use sizegate::vocabulary::Codec;

/// Requests for each release of Kafka.
const CASES: u64 = 160;
/// The learned limit of one of the topics.
const LIMIT: usize = 100_000;

/// The records of a partition: sound, or wrong in a way that a head does not tell, or does.
fn records(random: &mut Random) -> Bytes {
    let bytes = random.of(&[
        200,
        3_000,
        65_400,
        65_536,
        66_000,
        99_999,
        LIMIT,
        LIMIT + 1,
        200_000,
    ]);
    let of = || batch_of_bytes(bytes + random.0 as usize % 3);
    let small = || batch_of_bytes(300).build();
    match random.0 as usize / 7 % 24 {
        0 => Bytes::from([&of().build()[..], &small()].concat()),
        1 => Bytes::from([&small()[..], &of().build()].concat()),
        2 => of().build().slice(..bytes - 1),
        3 => of().trailing(vec![0; 16]).build(),
        4 => of().count(2).build(),
        5 => of().count(0).build(),
        6 => of().base_offset(1).build(),
        7 => of().attributes(5).build(),
        8 => of().attributes(1).build(),
        9 => of().transactional().producer(7, 0, 0).build(),
        10 => of().magic(1).build(),
        11 => of().length(bytes as i32 - 13).build(),
        12 => of().length(bytes as i32).build(),
        13 | 14 => batch([Record::of_random(bytes, 3), Record::of_a(5_000)])
            .codec(Codec::Gzip)
            .build(),
        _ => of().build(),
    }
}

/// A request on either way.
fn request(topics: &[Vec<Topic>; 2], random: &mut Random) -> [RawProduce; 2] {
    let version = random.of(&[3, 5, 7, 8, 9, 11, 12, 13]);
    let acks = random.of(&[-1, -1, -1, 1, 0, 2]);
    let mut entries: Vec<(usize, Vec<(i32, Bytes)>)> = Vec::new();
    for _ in 0..random.of(&[1, 1, 2, 3]) {
        let partitions = (0..random.of(&[1, 1, 2, 3]))
            .map(|_| (random.of(&[0, 0, 1, 2, 2, 9]), records(random)))
            .collect();
        entries.push((random.place(topics[0].len()), partitions));
    }
    topics.each_ref().map(|topics| {
        let entries: Vec<(&Topic, &[(i32, Bytes)])> = entries
            .iter()
            .map(|(at, partitions)| (&topics[*at], partitions.as_slice()))
            .collect();
        RawProduce::new(version, acks, &entries)
    })
}

/// Where batches begin in a frame, and how long they are.
fn batches(request: &RawProduce, frame: &[u8]) -> Vec<Range<usize>> {
    let (mut found, mut from) = (Vec::new(), 0);
    let partitions = request
        .topics
        .iter()
        .flat_map(|topic: &RawTopic| &topic.partitions);
    for records in partitions.filter_map(|partition| partition.records.as_ref()) {
        let at = from + memchr::memmem::find(&frame[from..], records).unwrap();
        from = at + records.len();
        found.push(at..from);
    }
    found
}

/// A byte at a place where it matters: near the front, in a batch's head, or at the end.
fn place(random: &mut Random, batches: &[Range<usize>], frame_bytes: usize) -> usize {
    let batch = batches[random.place(batches.len())].clone();
    match random.place(6) {
        0 | 1 => 12 + random.place(batches[0].start + 61 - 12),
        2 | 3 => batch.start + random.place(61),
        4 => batch.start - 1 - random.place(8),
        _ => frame_bytes - 1 - random.place(6),
    }
}

/// Breaks both in the same way. `false`: it would be no test.
fn mutate(frames: &mut [Vec<u8>; 2], batches: &[Range<usize>], random: &mut Random) -> bool {
    for _ in 0..random.of(&[0, 1, 1, 1, 2]) {
        let at = place(random, batches, frames[0].len());
        let mask = random.of(&[1, 2, 0x10, 0x20, 0x80, 0xff]);
        if frames[0][at] != frames[1][at] {
            return false;
        }
        let of = batches.iter().find(|batch| batch.contains(&at));
        let is_right = random.one_in(2);
        for frame in &mut *frames {
            frame[at] ^= mask;
            if let Some(batch) = of.filter(|batch| is_right && at >= batch.start + 21) {
                let crc = crc32c::crc32c(&frame[batch.start + 21..batch.end]);
                frame[batch.start + 17..batch.start + 21].copy_from_slice(&crc.to_be_bytes());
            }
        }
    }
    if random.one_in(8) {
        let bytes = 1 + random.place(5);
        let is_longer = random.one_in(2);
        for frame in frames {
            let length = if is_longer {
                frame.len() + bytes
            } else {
                frame.len() - bytes
            };
            frame.resize(length, 0);
            *frame = finish(std::mem::take(frame));
        }
    }
    true
}

/// Null records are answered, where a broker may be silent: that is a test of its own.
fn has_null_records(frame: &[u8]) -> bool {
    let version = i16::from_be_bytes([frame[6], frame[7]]);
    let mut layout = Layout::default();
    layout.read(frame, version).is_ok()
        && layout
            .partitions
            .iter()
            .any(|entry| entry.records.is_none())
}

fn pieces(frame_bytes: usize, batches: &[Range<usize>], random: &mut Random) -> Vec<Range<usize>> {
    let mut cuts = vec![0, frame_bytes];
    for _ in 0..random.place(8) {
        let heads = batches[random.place(batches.len())].start + 70;
        let near_end = frame_bytes - frame_bytes.min(70_000);
        cuts.push(match random.place(4) {
            0 => random.place(heads),
            1 => random.place(200),
            2 => near_end + random.place(frame_bytes - near_end),
            _ => random.place(frame_bytes),
        });
    }
    cuts.retain(|cut| *cut <= frame_bytes);
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

fn compare_one(ways: &Ways, topics: &[Vec<Topic>; 2], seed: u64) -> Option<(Vec<i16>, End)> {
    let mut random = Random(seed);
    let requests = request(topics, &mut random);
    let mut frames = requests.each_ref().map(RawProduce::frame);
    let batches = batches(&requests[0], &frames[0]);
    if !mutate(&mut frames, &batches, &mut random) || has_null_records(&frames[0]) {
        return None;
    }
    let pieces = pieces(frames[0].len(), &batches, &mut random);
    let case = format!("seed {seed}, v{}, pieces {pieces:?}", requests[0].version);
    let frames = frames.each_ref().map(Vec::as_slice);
    let (responses, end) = ways.compare_in_pieces(topics, &case, frames, &pieces);
    Some((responses.iter().map(|of| of.code).collect(), end))
}

pub fn large_requests_broken_anywhere_and_sent_in_pieces(version: &str) {
    let ways = ways(version);
    let limit = LIMIT.to_string();
    let limited = [("max.message.bytes", limit.as_str())];
    let topics = ways.mirrored(&[(3, &[]), (3, &limited)]);
    let heard: Vec<_> = (0..CASES)
        .filter_map(|seed| compare_one(ways, &topics, seed))
        .collect();
    ways.stored_the_same(&topics, &[3, 3]);
    // It is a test of what it says only where all of these are among them.
    for code in [0, 2, 3, 10, 21, 87] {
        assert!(
            heard.iter().any(|(codes, _)| codes.contains(&code)),
            "{code}: {heard:?}"
        );
    }
    for end in [End::Alive, End::Closed] {
        assert!(heard.iter().any(|(_, of)| *of == end), "{end:?}: {heard:?}");
    }
}
