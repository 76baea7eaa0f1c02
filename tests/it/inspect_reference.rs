//! The same bytes before Kafka's own reader and before ours: what a broker accepts we read, and of what both read
//! every size is the same. The batches are sound, cut, flipped, spliced and lying, their checksums made right.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt::Write as _;
use std::fs;
use std::ops::ControlFlow;
use std::process::Command;

use crate::inspect::make::{
    COMPRESSED, Record, XERIAL_HEADER, batch_of, compress, gzip, lz4, lz4_claiming, lz4_with,
    noise, records, seal, snappy_raw, text, value, varint, xerial, xerial_chunk, zstd, zstd_sized,
};
use sizegate::batch::{BATCH_HEADER_BYTES, BatchHeader, RecordStream, walk_records};
use sizegate::codec::{Decoders, End, Output, scanned_bound, upper_bound};
use sizegate::inspect::{DeepLimits, Effort, Finding, Scratch, inspect};
use sizegate::policy::Codec;

/// What `Reference.java` prints of one batch.
#[derive(Debug, serde::Deserialize)]
struct Kafka {
    broker: Option<String>,
    walked: Option<Vec<[u64; 2]>>,
    records: Option<Vec<[u64; 4]>>,
    estimate: Option<Vec<u64>>,
}

/// What we read: record, key, value, headers, estimate.
type Sizes = Vec<[u64; 5]>;

struct Ours {
    stream: RecordStream,
    sizes: Sizes,
    error: Option<String>,
}

impl Ours {
    fn note(&mut self, result: Result<(), impl std::fmt::Display>) -> ControlFlow<()> {
        match result {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                self.error = Some(error.to_string());
                ControlFlow::Break(())
            }
        }
    }
}

impl Output for Ours {
    fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        let sizes = &mut self.sizes;
        let fed = self.stream.feed(bytes, |record| {
            sizes.push([
                record.record_bytes,
                record.key_bytes,
                record.value_bytes,
                record.headers_bytes,
                record.estimate_bytes,
            ]);
            ControlFlow::Continue(())
        });
        self.note(fed.map(|_| ()))
    }

    fn seam(&mut self) -> ControlFlow<()> {
        if self.stream.is_complete() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn false_end(&mut self) -> ControlFlow<()> {
        self.seam()?;
        let result = self.stream.feed_false_end();
        self.note(result)
    }
}

fn ours(batch: &[u8], decoders: &mut Decoders) -> Result<Sizes, String> {
    let header = BatchHeader::read(batch).map_err(|e| e.to_string())?;
    let payload = batch
        .get(BATCH_HEADER_BYTES..header.wire_bytes() as usize)
        .ok_or("cut")?;
    let count = u32::try_from(header.records_count).map_err(|_| "negative count")?;
    let codec = header.codec().ok_or("unknown codec")?;
    let mut out = Ours {
        stream: RecordStream::new(count),
        sizes: Vec::new(),
        error: None,
    };
    if codec == Codec::None {
        let sizes = &mut out.sizes;
        return walk_records(payload, count, |r| {
            sizes.push([
                r.record_bytes,
                r.key_bytes,
                r.value_bytes,
                r.headers_bytes,
                r.estimate_bytes,
            ]);
            ControlFlow::Continue(())
        })
        .map(|_| out.sizes)
        .map_err(|e| e.to_string());
    }
    let end = decoders
        .decoder(codec, u64::MAX)
        .decode(payload, &mut out)
        .map_err(|e| e.to_string())?;
    match (out.error, end) {
        (Some(error), _) => Err(error),
        (None, End::Complete | End::Stopped) => out
            .stream
            .finish()
            .map(|()| out.sizes)
            .map_err(|e| e.to_string()),
        (None, End::OverCap) => Err("over cap".into()),
    }
}

/// A generator whose every run is the same.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n.max(1)
    }
}

/// Payloads of every shape that encoders make, sound.
fn payloads(bytes: &[u8]) -> Vec<(Codec, Vec<u8>)> {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameInfo};
    let (a, b) = bytes.split_at(bytes.len() / 3);
    let info = |size| FrameInfo::new().block_size(size);
    vec![
        (Codec::None, bytes.to_vec()),
        (Codec::Gzip, gzip(bytes)),
        (Codec::Gzip, [gzip(a), gzip(b)].concat()),
        (Codec::Gzip, [gzip(a), gzip(b), gzip(b"")].concat()),
        (Codec::Snappy, snappy_raw(bytes)),
        (Codec::Snappy, xerial(bytes)),
        (Codec::Snappy, [xerial(a), xerial(b)].concat()),
        (
            Codec::Snappy,
            [&XERIAL_HEADER[..], &xerial_chunk(b""), &xerial_chunk(bytes)].concat(),
        ),
        (Codec::Lz4, lz4(bytes)),
        (
            Codec::Lz4,
            lz4_with(bytes, info(BlockSize::Max4MB).content_checksum(true)),
        ),
        (
            Codec::Lz4,
            lz4_claiming(bytes, info(BlockSize::Max256KB).block_checksums(true), 7),
        ),
        (
            Codec::Lz4,
            lz4_with(
                bytes,
                info(BlockSize::Max64KB).block_mode(BlockMode::Linked),
            ),
        ),
        (Codec::Zstd, zstd(bytes)),
        (Codec::Zstd, zstd_sized(bytes)),
        (Codec::Zstd, [zstd(a), zstd_sized(b)].concat()),
    ]
}

fn contents() -> Vec<Vec<Record>> {
    let header = |name: &[u8], value: Option<&[u8]>| (name.to_vec(), value.map(<[u8]>::to_vec));
    vec![
        vec![value("x")],
        vec![
            Record::default(),
            Record {
                key: Some(vec![]),
                value: Some(vec![]),
                headers: vec![header(b"", None)],
            },
        ],
        (0..40)
            .map(|i| value(text(i, 50 + i as usize * 7)))
            .collect(),
        vec![Record {
            key: Some(noise(1, 70)),
            value: Some(text(1, 9_000)),
            headers: vec![
                header(b"a", Some(b"b")),
                header(b"longer", Some(&noise(2, 200))),
                header(b"null", None),
            ],
        }],
        vec![value(text(3, 90_000)), value(noise(4, 70_000))],
        (0..300).map(|i| value(noise(i, 3))).collect(),
    ]
}

/// Damages a payload in one of the ways that bytes get damaged, or that someone would damage them.
fn damage(payload: &mut Vec<u8>, dice: &mut Dice) {
    if payload.is_empty() {
        return;
    }
    let near_an_end = |dice: &mut Dice, len: usize| match dice.below(3) {
        0 => dice.below(len.min(40)),
        1 => len - 1 - dice.below(len.min(20)),
        _ => dice.below(len),
    };
    match dice.below(8) {
        0 => payload.truncate(payload.len() - 1 - dice.below(payload.len().min(12))),
        1 => payload.truncate(dice.below(payload.len())),
        2 => payload.extend(noise(dice.0, 1 + dice.below(40))),
        3 => payload.extend(vec![0; 1 + dice.below(40)]),
        4 => {
            let at = dice.below(payload.len());
            let copied = payload[at..].to_vec();
            payload.extend(copied);
        }
        5 => {
            let at = near_an_end(dice, payload.len());
            payload.remove(at);
        }
        6 => {
            let at = near_an_end(dice, payload.len());
            payload.insert(at, dice.below(256) as u8);
        }
        _ => {
            let at = near_an_end(dice, payload.len());
            payload[at] ^= 1 << dice.below(8);
        }
    }
}

/// Batches made by hand for the corners.
fn corners() -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let content = [value("one"), value(text(2, 500))];
    let bytes = records(&content);
    for &codec in Codec::ALL {
        for count in [-1, 0, 1, 3, i32::MAX] {
            out.push(batch_of(codec, &compress(codec, &bytes), count));
        }
        // Declared lengths that lie, varints longer than they need be, negative lengths.
        let body = crate::inspect::make::body(&value("five!"), 0);
        for declared in [-5, 0, body.len() as i64 - 1, body.len() as i64 + 1, 1 << 20] {
            out.push(batch_of(
                codec,
                &compress(codec, &[varint(declared), body.clone()].concat()),
                1,
            ));
        }
        for (at, replaced) in [
            (3usize, vec![0x81, 0x00]),
            (1, vec![0x80, 0x80, 0x00]),
            (4, vec![0x8a, 0x80, 0x80, 0x00]),
        ] {
            let mut long = body.clone();
            long.splice(at..=at, replaced);
            out.push(batch_of(
                codec,
                &compress(codec, &[varint(long.len() as i64), long].concat()),
                1,
            ));
        }
        for (at, length) in [(3usize, -2i64), (3, -1000), (4, -7), (4, 1 << 30)] {
            let mut negative = body.clone();
            negative.splice(at..=at, varint(length));
            out.push(batch_of(
                codec,
                &compress(codec, &[varint(negative.len() as i64), negative].concat()),
                1,
            ));
        }
        let mut headers = body.clone();
        headers.pop();
        for count in [-1, 1, i64::from(i32::MAX)] {
            let many = [headers.clone(), varint(count)].concat();
            out.push(batch_of(
                codec,
                &compress(codec, &[varint(many.len() as i64), many].concat()),
                1,
            ));
        }
        let mut ids = batch_of(codec, &compress(codec, &bytes), 2);
        for id in 0..8 {
            ids[22] = id;
            seal(&mut ids);
            out.push(ids.clone());
        }
    }
    // An empty lz4 block behind the last record, within a value, and before a varint.
    let block =
        |bytes: &[u8]| [&(bytes.len() as u32 | 0x8000_0000).to_le_bytes()[..], bytes].concat();
    let nothing = [1u8, 0, 0, 0, 0];
    let head = [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82];
    for cut in 1..=bytes.len() {
        let (a, b) = bytes.split_at(cut);
        for empties in 1..=2 {
            let mut frame = [&head[..], &block(a), &nothing.repeat(empties)].concat();
            if !b.is_empty() {
                frame.extend(block(b));
            }
            frame.extend([0; 4]);
            if cut < 20 || cut == bytes.len() {
                out.push(batch_of(Codec::Lz4, &frame, 2));
            }
        }
    }
    // Data behind an empty block behind the last record: nobody reads it.
    let behind = [
        &head[..],
        &block(&bytes),
        &nothing,
        &block(b"more"),
        &[0; 4],
    ]
    .concat();
    out.push(batch_of(Codec::Lz4, &behind, 2));
    // A broken header between xerial chunks, where Kafka's buffer of 2 KiB is full, and where it is not; before a
    // varint, within a value, behind the last record.
    let broken = b"\x82SNAPPY\x01\0\0\0\x01\0\0\0\x01";
    let long = records(&[value(text(3, 2_030)), value(text(4, 5_000))]);
    for cut in (2_030..2_060).chain([4_095, 4_096, 4_097]) {
        for headers in 1..=3 {
            let (a, b) = long.split_at(cut);
            let payload = [xerial(a), broken.repeat(headers), xerial_chunk(b)].concat();
            out.push(batch_of(Codec::Snappy, &payload, 2));
        }
    }
    out.push(batch_of(
        Codec::Snappy,
        &[xerial(&bytes), broken.to_vec()].concat(),
        2,
    ));
    out.push(batch_of(
        Codec::Snappy,
        &[xerial(&bytes), broken.to_vec(), xerial_chunk(b"more")].concat(),
        2,
    ));
    // A zstd frame cut behind a whole one: the end of the data, if both were read at once (131,075 bytes).
    let next = crate::inspect::make::encode(&value(noise(7, 300)), 1);
    for len in [10].into_iter().chain(131_044..131_058) {
        let first = zstd(&records(&[value(noise(8, len))]));
        let (next, empty) = (zstd(&next), zstd(b""));
        for cut in [
            &next[..next.len() - 3],
            &next[..2],
            &empty[..empty.len() - 1],
        ] {
            for count in [1, 2] {
                out.push(batch_of(Codec::Zstd, &[&first, cut].concat(), count));
            }
        }
        let skippable = [0x50u8, 0x2a, 0x4d, 0x18, 0xff, 0, 0, 0, 1];
        out.push(batch_of(Codec::Zstd, &[&first[..], &skippable].concat(), 1));
    }
    // Gzip members so large that they end all around the edge of Java's 8 KiB buffer.
    for len in 8_050..8_200 {
        let a = records(&[value(noise(1, len))]);
        let b = crate::inspect::make::encode(&value("second"), 1);
        out.push(batch_of(Codec::Gzip, &[gzip(&a), gzip(&b)].concat(), 2));
        out.push(batch_of(Codec::Gzip, &[gzip(&a), gzip(&b)].concat(), 1));
    }
    // Gzip whose trailer says too little or too much, alone, before rubbish, and before another member.
    let content = [value(text(5, 30_000)), value("end")];
    let sound = gzip(&records(&content));
    for claim in [0u32, 1, 30_000, u32::MAX] {
        let mut lying = sound.clone();
        let size_at = lying.len() - 4;
        lying[size_at..].copy_from_slice(&claim.to_le_bytes());
        let small = claim.to_le_bytes();
        for payload in [
            lying.clone(),
            [&sound[..], &small].concat(),
            [
                &sound[..],
                b"rubbish of many bytes, more than a header",
                &small,
            ]
            .concat(),
            [&sound[..], &gzip(b"")].concat(),
            [&lying[..], &gzip(b"")].concat(),
        ] {
            out.push(batch_of(Codec::Gzip, &payload, 2));
        }
    }
    out
}

/// What real clients wrote: ten of them, in five codecs.
fn clients() -> Vec<Vec<u8>> {
    let folder = crate::support::programs::repo().join("tests/data/batches");
    let files = fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "bin"))
        .collect();
    files.sort();
    files.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn corpus() -> Vec<Vec<u8>> {
    let mut dice = Dice(0x5127_e9a7);
    let mut out = corners();
    out.extend(clients());
    for content in contents() {
        let bytes = records(&content);
        for (codec, payload) in payloads(&bytes) {
            out.push(batch_of(codec, &payload, content.len() as i32));
            let rounds = if bytes.len() > 50_000 { 12 } else { 60 };
            for _ in 0..rounds {
                let mut damaged = payload.clone();
                for _ in 0..=dice.below(2) {
                    damage(&mut damaged, &mut dice);
                }
                out.push(batch_of(codec, &damaged, content.len() as i32));
            }
            // The same damage before compression: sound payloads of unsound records.
            for _ in 0..rounds / 4 {
                let mut damaged = bytes.clone();
                damage(&mut damaged, &mut dice);
                out.push(batch_of(
                    codec,
                    &compress(codec, &damaged),
                    content.len() as i32,
                ));
            }
        }
    }
    for codec in COMPRESSED {
        for seed in 0..50 {
            out.push(batch_of(codec, &noise(seed, 1 + seed as usize * 3), 1));
        }
    }
    out
}

#[test]
fn what_a_broker_accepts_we_read_and_every_size_is_the_same() {
    let corpus = corpus();
    let file = tempfile::NamedTempFile::new().unwrap();
    let framed: Vec<u8> = corpus
        .iter()
        .flat_map(|batch| [&(batch.len() as u32).to_be_bytes()[..], batch].concat())
        .collect();
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
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let lines: Vec<Kafka> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect();
        assert_eq!(lines.len(), corpus.len());
        compare(version, &corpus, &lines);
    }
}

fn compare(version: &str, corpus: &[Vec<u8>], lines: &[Kafka]) {
    let mut decoders = Decoders::new();
    let mut scratch = Scratch::new();
    let mut differences = String::new();
    let (mut accepted, mut refused, mut lenient) = (0, 0, 0);
    for (index, (batch, kafka)) in corpus.iter().zip(lines).enumerate() {
        let codec = BatchHeader::read(batch).unwrap().codec();
        let ours = ours(batch, &mut decoders);
        let mut differ = |what: &str| {
            writeln!(
                differences,
                "{index} {codec:?} {what}\n  ours {ours:?}\n  kafka {kafka:?}"
            )
            .unwrap();
        };
        match (&kafka.broker, &ours) {
            (None, Err(_)) => differ("accepted by the broker, unreadable to us"),
            (None, Ok(sizes)) => {
                accepted += 1;
                let walked: Vec<_> = sizes
                    .iter()
                    .map(|[_, key, value, ..]| [*key, *value])
                    .collect();
                if kafka.walked.as_ref() != Some(&walked) {
                    differ("the broker walks other records");
                }
                let records_bytes: u64 = sizes.iter().map(|[record, ..]| record).sum();
                if let Some(bound) = false_bound(batch, records_bytes) {
                    differ(&format!("a bound says {bound}"));
                }
                // Small ones are enough, and a debug build takes its time over the others.
                if records_bytes < 20_000
                    && let Some(wrong) = wrong_verdict(batch, sizes, &mut scratch)
                {
                    differ(&wrong);
                }
            }
            (Some(_), Ok(_)) => lenient += 1,
            (Some(_), Err(_)) => refused += 1,
        }
        if let (Some(records), Ok(sizes)) = (&kafka.records, &ours)
            && !is_same_to_a_consumer(sizes, records, kafka.estimate.as_deref().unwrap())
        {
            differ("a consumer reads other sizes");
        }
        // A batch of no records is empty to a consumer, whatever is in it, and refused by the broker. And what the
        // broker's own walk cannot read does not reach a consumer.
        let is_read = kafka
            .records
            .as_ref()
            .is_some_and(|records| !records.is_empty());
        if is_read && kafka.walked.is_some() && ours.is_err() {
            differ("readable to a consumer, unreadable to us");
        }
    }
    println!(
        "Kafka {version}: {accepted} accepted, {refused} refused by both, {lenient} only refused by the broker"
    );
    assert!(differences.is_empty(), "Kafka {version}\n{differences}");
    assert!(
        accepted > 500 && refused > 1_000,
        "{accepted} {refused} {lenient}"
    );
}

/// A bound below what is there: a batch could pass a limit by it.
fn false_bound(batch: &[u8], records_bytes: u64) -> Option<u64> {
    let codec = BatchHeader::read(batch).unwrap().codec().unwrap();
    let payload = &batch[BATCH_HEADER_BYTES..];
    [
        upper_bound(codec, payload),
        scanned_bound(codec, payload, u64::MAX),
        scanned_bound(codec, payload, records_bytes),
        scanned_bound(codec, payload, records_bytes.saturating_sub(1)),
    ]
    .into_iter()
    .flatten()
    .map(|bound| bound.at_most)
    .find(|at_most| *at_most < records_bytes)
}

/// Limits one below, at and one above what is there, each alone: only the first is exceeded.
fn wrong_verdict(batch: &[u8], sizes: &Sizes, scratch: &mut Scratch) -> Option<String> {
    let header = BatchHeader::read(batch).unwrap();
    let largest = |at: usize| sizes.iter().map(|sizes| sizes[at]).max().unwrap_or(0);
    let uncompressed = 61 + sizes.iter().map(|sizes| sizes[0]).sum::<u64>();
    type Set = fn(&mut DeepLimits) -> &mut Option<u64>;
    let limits: [(u64, Set); 6] = [
        (uncompressed, |limits| &mut limits.uncompressed_bytes),
        (largest(0), |limits| &mut limits.record_bytes),
        (largest(1), |limits| &mut limits.key_bytes),
        (largest(2), |limits| &mut limits.value_bytes),
        (largest(3), |limits| &mut limits.headers_bytes),
        (largest(4), |limits| &mut limits.estimate_bytes),
    ];
    limits
        .into_iter()
        .enumerate()
        .find_map(|(gate, (size, set))| {
            (size.saturating_sub(1)..=size + 1).find_map(|limit| {
                let mut limits = DeepLimits::NONE;
                *set(&mut limits) = Some(limit);
                let found = inspect(&header, batch, &limits, Effort::VERDICT, scratch).finding;
                let is_right = match found {
                    Finding::Over(over) => size > limit && over.size.bytes() <= size,
                    Finding::Within => size <= limit,
                    _ => false,
                };
                (!is_right).then(|| format!("gate {gate}, {size} at a limit of {limit}: {found:?}"))
            })
        })
}

/// Every size is the same, but for a record whose length varint is longer than it need be: Kafka gives it the size it
/// would have, we give it the size it has, so that the sizes of all records add up to what is there.
fn is_same_to_a_consumer(ours: &Sizes, records: &[[u64; 4]], estimates: &[u64]) -> bool {
    ours.len() == records.len()
        && ours.len() == estimates.len()
        && ours
            .iter()
            .zip(records)
            .zip(estimates)
            .all(|((ours, kafka), estimated)| {
                let [record, key, value, headers, estimate] = ours;
                let surplus = record.checked_sub(kafka[0]);
                surplus.is_some_and(|surplus| surplus <= 3)
                    && [key, value, headers, estimate]
                        == [&kafka[1], &kafka[2], &kafka[3], estimated]
            })
}
