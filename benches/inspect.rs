//! What looking inside a batch costs: `cargo bench --bench inspect`.
//!
//! * `walk`: records that lie there uncompressed, 100 bytes each (goal: 80 million a second).
//! * `decode`: an exact inspection beside the bare decoder on the same payload (goal: 1.2 times its time).
//! * `ladder`: a verdict on batches of 16 and 64 KiB of JSON under `uncompressed_bytes: 4MiB`, and under a record
//!   limit that only a walk of the records proves.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::string_slice,
    clippy::unreachable,
    clippy::todo,
    unreachable_pub,
    reason = "a bench"
)]
#![allow(missing_docs)] // criterion_group! makes a public function
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "../tests/it/inspect/make.rs"]
#[allow(dead_code)]
mod make;

use std::hint::black_box;
use std::io::Read;
use std::ops::ControlFlow;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use sizegate::batch::{BATCH_HEADER_BYTES, BatchHeader, walk_records};
use sizegate::inspect::{DeepLimits, Effort, Judgement, Scratch, inspect};
use sizegate::vocabulary::Codec;

fn json_batch(codec: Codec, bytes: usize) -> Vec<u8> {
    let content: Vec<_> = (0..bytes / 1024)
        .map(|i| make::value(make::text(i as u64, 1_000)))
        .collect();
    make::batch(codec, &content)
}

fn walk(c: &mut Criterion) {
    let mut group = c.benchmark_group("walk");
    // 100 bytes each: value of 92.
    let content: Vec<_> = (0..10_000)
        .map(|i| make::value(make::noise(i, 90)))
        .collect();
    let records = make::records(&content);
    group.throughput(Throughput::Elements(10_000));
    group.bench_function("100-byte records", |b| {
        b.iter(|| {
            let mut largest = 0;
            let walked = walk_records(black_box(&records), 10_000, |sizes| {
                largest = largest.max(sizes.record_bytes);
                ControlFlow::Continue(())
            });
            assert!(walked.is_ok());
            largest
        });
    });
    let batch = make::batch(Codec::None, &content);
    let header = BatchHeader::read(&batch).unwrap();
    let limits = DeepLimits {
        record_bytes: Some(1_000),
        ..DeepLimits::NONE
    };
    let mut scratch = Scratch::new();
    for (name, effort) in [("verdict", Effort::VERDICT), ("measures", Effort::MEASURES)] {
        group.bench_function(format!("inspect for {name}"), |b| {
            b.iter(|| inspect(&header, black_box(&batch), &limits, effort, &mut scratch));
        });
    }
    group.finish();
}

/// The bare decoder, its context reused, into a buffer of the right size.
fn bare(
    codec: Codec,
    payload: &[u8],
    out: &mut Vec<u8>,
    zstd: &mut zstd::bulk::Decompressor<'_>,
) -> usize {
    match codec {
        Codec::None => payload.len(),
        Codec::Gzip => {
            out.clear();
            flate2::read::MultiGzDecoder::new(payload)
                .read_to_end(out)
                .unwrap()
        }
        Codec::Snappy => snap::raw::Decoder::new().decompress(payload, out).unwrap(),
        Codec::Lz4 => {
            out.clear();
            lz4_flex::frame::FrameDecoder::new(payload)
                .read_to_end(out)
                .unwrap()
        }
        Codec::Zstd => zstd
            .decompress_to_buffer(payload, out.as_mut_slice())
            .unwrap(),
    }
}

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    for codec in [Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
        for kib in [16, 64, 512] {
            let batch = json_batch(codec, kib * 1024);
            let header = BatchHeader::read(&batch).unwrap();
            let payload = &batch[BATCH_HEADER_BYTES..];
            let mut scratch = Scratch::new();
            let found = inspect(
                &header,
                &batch,
                &DeepLimits::NONE,
                Effort::MEASURES,
                &mut scratch,
            );
            assert!(found.records.is_some());
            let size = found.uncompressed.unwrap().bytes();
            group.throughput(Throughput::Bytes(size));
            group.bench_function(BenchmarkId::new(format!("{codec} exact"), kib), |b| {
                b.iter(|| {
                    inspect(
                        &header,
                        black_box(&batch),
                        &DeepLimits::NONE,
                        Effort::MEASURES,
                        &mut scratch,
                    )
                });
            });
            let mut out = vec![0; size as usize];
            let mut zstd = zstd::bulk::Decompressor::new().unwrap();
            group.bench_function(BenchmarkId::new(format!("{codec} bare"), kib), |b| {
                b.iter(|| bare(codec, black_box(payload), &mut out, &mut zstd));
            });
        }
    }
    group.finish();
}

fn ladder(c: &mut Criterion) {
    let mut group = c.benchmark_group("ladder");
    for (name, limits) in [
        (
            "uncompressed",
            DeepLimits {
                uncompressed_bytes: Some(4 << 20),
                ..DeepLimits::NONE
            },
        ),
        (
            "record",
            DeepLimits {
                record_bytes: Some(10_000),
                ..DeepLimits::NONE
            },
        ),
    ] {
        for &codec in Codec::ALL {
            for kib in [16, 64] {
                let batch = json_batch(codec, kib * 1024);
                let header = BatchHeader::read(&batch).unwrap();
                let mut scratch = Scratch::new();
                let found = inspect(&header, &batch, &limits, Effort::VERDICT, &mut scratch);
                assert_eq!(found.finding, Judgement::Within);
                let label = format!("{name} {codec} by {}", found.proof.label());
                group.throughput(Throughput::Bytes(batch.len() as u64));
                group.bench_function(BenchmarkId::new(label, kib), |b| {
                    b.iter(|| {
                        inspect(
                            &header,
                            black_box(&batch),
                            &limits,
                            Effort::VERDICT,
                            &mut scratch,
                        )
                    });
                });
            }
        }
    }
    group.finish();
}

criterion_group!(benches, walk, decode, ladder);
criterion_main!(benches);
