//! Which rung decides, and that nothing below it is climbed.

use sizegate::batch::BatchHeader;
use sizegate::inspect::{
    DeepLimits, Effort, Finding, Proof, Scratch, decode_time, expected_decode_bytes, inspect,
};
use sizegate::policy::{Codec, Size};

use super::make::{
    COMPRESSED, batch, batch_of, judge, look, measure, records, text, value, xerial, zstd_sized,
};

const MEBIBYTE: u64 = 1024 * 1024;

const UNCOMPRESSED_4_MIB: DeepLimits = DeepLimits {
    uncompressed_bytes: Some(4 * MEBIBYTE),
    ..DeepLimits::NONE
};

#[test]
fn without_limits_nothing_is_read() {
    for codec in COMPRESSED {
        let found = judge(&batch_of(codec, b"rubbish", 1), &DeepLimits::NONE);
        assert_eq!(
            (found.finding, found.proof, found.decoded_bytes),
            (Finding::Within, Proof::Header, 0)
        );
        assert_eq!(found.uncompressed, None);
    }
    let plain = judge(&batch(Codec::None, &[value("x")]), &DeepLimits::NONE);
    assert_eq!(plain.uncompressed, Some(Size::Exact(61 + 8)));
}

#[test]
fn an_uncompressed_batch_within_every_limit_by_its_header_is_not_walked() {
    let limits = DeepLimits {
        record_bytes: Some(100),
        estimate_bytes: Some(178),
        ..DeepLimits::NONE
    };
    assert_eq!(
        judge(&batch_of(Codec::None, &[0xff; 100], 1), &limits).proof,
        Proof::Header
    );
    let found = judge(&batch(Codec::None, &[value(text(1, 100))]), &limits);
    assert_eq!(found.proof, Proof::Walk);
}

#[test]
fn ordinary_batches_in_the_default_profile_are_decided_without_a_decode() {
    for codec in COMPRESSED {
        for size in [16 * 1024, 64 * 1024, 1024 * 1024] {
            let content: Vec<_> = (0..size / 1024)
                .map(|i| value(text(i as u64, 1_000)))
                .collect();
            let found = judge(&batch(codec, &content), &UNCOMPRESSED_4_MIB);
            assert_eq!(
                (found.finding, found.proof, found.decoded_bytes),
                (Finding::Within, Proof::Bound, 0)
            );
        }
    }
}

#[test]
fn a_gzip_batch_is_decided_by_its_symbols_where_1032_times_its_size_is_too_much() {
    let small = batch(Codec::Gzip, &[value(text(1, 12_000))]);
    assert!(small.len() < 4_000, "{}", small.len());
    let found = judge(&small, &UNCOMPRESSED_4_MIB);
    assert_eq!((found.proof, found.scanned_bytes), (Proof::Bound, 0));
    let content = [value(text(1, 60_000))];
    let large = batch(Codec::Gzip, &content);
    assert!(large.len() > 8_000, "{}", large.len());
    let found = judge(&large, &UNCOMPRESSED_4_MIB);
    assert_eq!((found.proof, found.decoded_bytes), (Proof::Bound, 0));
    let cost = 2 * (large.len() as u64 - 61);
    assert_eq!(found.scanned_bytes, cost);
    // What scanning costs counts, where little may be spent.
    let little = Effort::VERDICT.decode_at_most(cost - 1);
    assert_eq!(
        look(&large, &UNCOMPRESSED_4_MIB, little).finding,
        Finding::Unfinished
    );
    // As tight as can be: no rest to be estimated is left.
    let exact = 61 + records(&content).len() as u64;
    let limited_to = |bytes| {
        judge(
            &large,
            &DeepLimits {
                uncompressed_bytes: Some(bytes),
                ..DeepLimits::NONE
            },
        )
    };
    let found = limited_to(exact);
    assert_eq!(
        (found.finding, found.proof),
        (Finding::Within, Proof::Bound)
    );
    assert_eq!(found.uncompressed, Some(Size::Exact(exact)));
    let found = limited_to(exact - 1);
    assert!(matches!(found.finding, Finding::Over(_)), "{found:?}");
    assert_eq!(found.proof, Proof::Decode);
}

#[test]
fn lz4_blocks_of_4_mib_are_scanned_where_their_headers_say_too_little() {
    let info = lz4_flex::frame::FrameInfo::new().block_size(lz4_flex::frame::BlockSize::Max4MB);
    let content: Vec<_> = (0..200).map(|i| value(text(i, 1_000))).collect();
    let payload = super::make::lz4_with(&records(&content), info);
    assert!(payload.len() > 16 * 1024);
    let found = judge(&batch_of(Codec::Lz4, &payload, 200), &UNCOMPRESSED_4_MIB);
    assert_eq!((found.proof, found.decoded_bytes), (Proof::Bound, 0));
    assert_eq!(
        found.uncompressed,
        Some(Size::Exact(61 + records(&content).len() as u64))
    );
}

#[test]
fn declared_sizes_are_exact_where_decoders_enforce_them() {
    let content = [value(text(1, 50_000))];
    let bytes = records(&content);
    for (codec, payload) in [
        (Codec::Snappy, super::make::snappy_raw(&bytes)),
        (Codec::Snappy, xerial(&bytes)),
        (Codec::Zstd, zstd_sized(&bytes)),
    ] {
        let found = judge(&batch_of(codec, &payload, 1), &UNCOMPRESSED_4_MIB);
        assert_eq!(found.proof, Proof::Bound);
        assert_eq!(
            found.uncompressed,
            Some(Size::Exact(61 + bytes.len() as u64)),
            "{codec}"
        );
    }
}

#[test]
fn measures_change_no_verdict_and_no_proof() {
    for codec in COMPRESSED {
        let batch = batch(codec, &[value(text(1, 3_000)), value("")]);
        let verdict = judge(&batch, &UNCOMPRESSED_4_MIB);
        let measured = look(&batch, &UNCOMPRESSED_4_MIB, Effort::MEASURES);
        assert_eq!(
            (verdict.finding, verdict.proof),
            (measured.finding, measured.proof),
            "{codec}"
        );
        assert_eq!(
            (verdict.decoded_bytes, measured.records),
            (0, Some(2)),
            "{codec}"
        );
        // What cannot be read is no reason to refuse what no limit needs.
        let rubbish = look(
            &batch_of(codec, b"rubbish", 1),
            &DeepLimits::NONE,
            Effort::MEASURES,
        );
        assert_eq!(
            (rubbish.finding, rubbish.records),
            (Finding::Within, None),
            "{codec}"
        );
    }
}

#[test]
fn a_decode_that_may_not_take_long_ends_unfinished_and_can_be_repeated() {
    let limits = DeepLimits {
        record_bytes: Some(MEBIBYTE),
        ..DeepLimits::NONE
    };
    for codec in COMPRESSED {
        let content: Vec<_> = (0..50).map(|i| value(text(i, 100_000))).collect();
        let batch = batch(codec, &content);
        let short = look(&batch, &limits, Effort::VERDICT.decode_at_most(256 * 1024));
        assert_eq!(short.finding, Finding::Unfinished, "{codec}");
        assert!(short.decoded_bytes <= 256 * 1024 + 1, "{codec}");
        assert_eq!(judge(&batch, &limits).finding, Finding::Within, "{codec}");
        let measured = look(
            &batch,
            &DeepLimits::NONE,
            Effort::MEASURES.decode_at_most(256 * 1024),
        );
        assert_eq!(
            (measured.finding, measured.records),
            (Finding::Within, None),
            "{codec}"
        );
        let expected = if codec == Codec::Snappy {
            // Declared, and enforced.
            Size::Exact(61 + records(&content).len() as u64)
        } else {
            Size::AtLeast(61 + 256 * 1024 + 1)
        };
        assert_eq!(measured.uncompressed, Some(expected), "{codec}");
    }
}

#[test]
fn what_will_be_decoded_is_known_before_it_is() {
    let record_limit = DeepLimits {
        record_bytes: Some(10_000),
        ..DeepLimits::NONE
    };
    for codec in COMPRESSED {
        let batch = batch(codec, &[value(text(1, 300_000))]);
        let header = BatchHeader::read(&batch).unwrap();
        let expect =
            |limits: &DeepLimits, effort| expected_decode_bytes(&header, &batch, limits, effort);
        assert_eq!(expect(&DeepLimits::NONE, Effort::VERDICT), 0);
        let bytes = expect(&record_limit, Effort::VERDICT);
        assert!((300_000..1_000_000).contains(&bytes), "{codec}: {bytes}");
        assert!(expect(&DeepLimits::NONE, Effort::MEASURES) >= 300_000);
        assert!(!decode_time(codec, bytes).is_zero());
        let roomy = DeepLimits {
            uncompressed_bytes: Some(1 << 40),
            ..DeepLimits::NONE
        };
        assert_eq!(expect(&roomy, Effort::VERDICT), 0, "{codec}");
    }
    let plain = batch(Codec::None, &[value("x")]);
    let header = BatchHeader::read(&plain).unwrap();
    assert_eq!(
        expected_decode_bytes(&header, &plain, &record_limit, Effort::MEASURES),
        0
    );
}

#[test]
fn sizes_are_gathered_for_all_records_or_for_none() {
    let mut scratch = Scratch::new();
    let mut run = |batch: &[u8], limits: &DeepLimits, effort| {
        let header = BatchHeader::read(batch).unwrap();
        let found = inspect(&header, batch, limits, effort, &mut scratch);
        (
            found.records,
            scratch.sizes().record_bytes.count(),
            scratch.sizes().record_bytes.sum_bytes(),
        )
    };
    for &codec in Codec::ALL {
        let content = [value(text(1, 300)), value(text(2, 3_000_000))];
        let batch = batch(codec, &content);
        let total = records(&content).len() as u64;
        assert_eq!(
            run(&batch, &DeepLimits::NONE, Effort::MEASURES),
            (Some(2), 2, total),
            "{codec}"
        );
        assert_eq!(
            run(&batch, &DeepLimits::NONE, Effort::VERDICT),
            (None, 0, 0),
            "{codec}"
        );
        let stopped = DeepLimits {
            uncompressed_bytes: Some(1_000_000),
            ..DeepLimits::NONE
        };
        let (records, count, _) = run(&batch, &stopped, Effort::MEASURES);
        if codec == Codec::None {
            assert_eq!((records, count), (Some(2), 2));
        } else {
            assert_eq!((records, count), (None, 0), "{codec}");
        }
    }
    assert_eq!(measure(&batch(Codec::Zstd, &[value("a")])).records, Some(1));
}
