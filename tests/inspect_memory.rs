//! What inspecting allocates: nothing that grows with what a batch claims, and nothing at all once warm.
//!
//! One test, because the allocator counts for all threads. zstd's C library allocates by itself; what it
//! may is in `codec/zstd.rs`.

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
    reason = "tests"
)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "it/inspect/make.rs"]
#[allow(dead_code)]
mod make;

use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use sizegate::batch::BatchHeader;
use sizegate::inspect::{DeepLimits, Effort, Scratch, inspect};
use sizegate::vocabulary::Codec;

use make::{COMPRESSED, XERIAL_HEADER, batch, batch_of, noise, text, value};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// What `run` held at most beyond what was held before; 0 if it allocated nothing.
fn peak_bytes(run: impl FnOnce()) -> usize {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    run();
    ALLOCATOR.peak_usage().saturating_sub(before)
}

/// lz4's largest block, two snappy pieces (one of them while it grows), the piece buffer, inflate's state.
const MOST_BYTES: usize = (4 << 20) + (4 << 20) + (128 << 10) + (256 << 10);

#[test]
fn inspecting_allocates_a_fixed_amount_at_most_and_nothing_once_warm() {
    nothing_is_allocated_for_a_batch_once_the_scratch_is_warm();
    no_batch_makes_the_decoders_hold_more_than_a_fixed_amount();
}

fn nothing_is_allocated_for_a_batch_once_the_scratch_is_warm() {
    let limits = DeepLimits {
        record_bytes: Some(50_000),
        ..DeepLimits::NONE
    };
    let mut scratch = Scratch::new();
    for codec in COMPRESSED {
        let batch = batch(codec, &[value(text(1, 200_000)), value(text(2, 30_000))]);
        let header = BatchHeader::read(&batch).unwrap();
        let mut look = || {
            inspect(&header, &batch, &limits, Effort::MEASURES, &mut scratch);
        };
        look();
        assert_eq!(peak_bytes(look), 0, "{codec}");
    }
}

fn no_batch_makes_the_decoders_hold_more_than_a_fixed_amount() {
    let mut scratch = Scratch::new();
    let look = |scratch: &mut Scratch, batch: &[u8]| {
        let Ok(header) = BatchHeader::read(batch) else {
            return;
        };
        let peak = peak_bytes(|| {
            for limits in [
                DeepLimits::NONE,
                DeepLimits {
                    record_bytes: Some(1_000),
                    uncompressed_bytes: Some(1 << 30),
                    ..DeepLimits::NONE
                },
            ] {
                inspect(&header, batch, &limits, Effort::MEASURES, scratch);
            }
        });
        assert!(peak <= MOST_BYTES, "{peak} for a batch of {}", batch.len());
    };
    // Sizes claimed in every way there is.
    for claim in [
        [0xff, 0xff, 0xff, 0xff, 0x07],
        [0xff, 0xff, 0xff, 0xff, 0x0f],
        [0x80, 0x80, 0x80, 0x80, 0x04],
    ] {
        let block = [&claim[..], &noise(1, 5_000)].concat();
        look(&mut scratch, &batch_of(Codec::Snappy, &block, 1));
        let chunk = [
            &XERIAL_HEADER[..],
            &(block.len() as u32).to_be_bytes(),
            &block,
        ]
        .concat();
        look(&mut scratch, &batch_of(Codec::Snappy, &chunk, i32::MAX));
    }
    look(
        &mut scratch,
        &batch_of(
            Codec::Snappy,
            &[&XERIAL_HEADER[..], &[0x7f, 0xff, 0xff, 0xff]].concat(),
            1,
        ),
    );
    let zstd_claim = [
        0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 0, 0,
    ];
    look(&mut scratch, &batch_of(Codec::Zstd, &zstd_claim, 1));
    for &codec in Codec::ALL {
        look(
            &mut scratch,
            &batch_of(
                codec,
                &make::compress(codec, &vec![0x7f; 3_000_000]),
                i32::MAX,
            ),
        );
    }
    // Whatever else may come.
    let scratch = std::cell::RefCell::new(scratch);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(300));
    let any_payload = (
        proptest::collection::vec(any::<u8>(), 0..2_000),
        any::<i32>(),
        0usize..5,
        any::<bool>(),
    );
    runner
        .run(&any_payload, |(bytes, count, codec, is_packed)| {
            let codec = Codec::ALL[codec];
            let payload = if is_packed {
                make::compress(codec, &bytes)
            } else {
                bytes
            };
            look(&mut scratch.borrow_mut(), &batch_of(codec, &payload, count));
            Ok(())
        })
        .unwrap();
}
