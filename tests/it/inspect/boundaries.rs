//! limit − 1, limit, limit + 1: for every gate and every codec.

use sizegate::inspect::{DeepLimits, Judgement, Over};
use sizegate::policy::{RecordAt, Size};
use sizegate::vocabulary::{Codec, Gate};

use super::make::{COMPRESSED, Record, batch, judge, measure, noise, records, text, value};

/// Three records; the middle one is the largest in every respect.
pub fn content() -> Vec<Record> {
    let headers = vec![
        (b"trace".to_vec(), Some(noise(2, 300))),
        (b"none".to_vec(), None),
    ];
    vec![
        Record {
            key: Some(noise(3, 10)),
            value: Some(text(1, 1_000)),
            headers: vec![],
        },
        Record {
            key: Some(noise(4, 200)),
            value: Some(text(2, 70_000)),
            headers,
        },
        value(text(3, 500)),
    ]
}

/// The middle record's size for each gate.
pub fn sizes() -> [(Gate, u64); 5] {
    let record = 3 + 1 + 1 + 1 + (2 + 200) + (3 + 70_000) + 1 + (1 + 5) + (2 + 300) + (1 + 4) + 1;
    let estimate = 61 + 21 + (2 + 200) + (3 + 70_000) + 1 + (1 + 5) + (2 + 300) + (1 + 4) + 1;
    [
        (Gate::Record, record),
        (Gate::Estimate, estimate),
        (Gate::Key, 200),
        (Gate::Value, 70_000),
        (Gate::Headers, 5 + 300 + 4),
    ]
}

pub fn limit(gate: Gate, bytes: u64) -> DeepLimits {
    let bytes = Some(bytes);
    match gate {
        Gate::Uncompressed => DeepLimits {
            uncompressed_bytes: bytes,
            ..DeepLimits::NONE
        },
        Gate::Record => DeepLimits {
            record_bytes: bytes,
            ..DeepLimits::NONE
        },
        Gate::Estimate => DeepLimits {
            estimate_bytes: bytes,
            ..DeepLimits::NONE
        },
        Gate::Key => DeepLimits {
            key_bytes: bytes,
            ..DeepLimits::NONE
        },
        Gate::Value => DeepLimits {
            value_bytes: bytes,
            ..DeepLimits::NONE
        },
        Gate::Headers => DeepLimits {
            headers_bytes: bytes,
            ..DeepLimits::NONE
        },
        Gate::Batch | Gate::Ratio | Gate::Frame | Gate::Codec | Gate::Config => {
            panic!("{gate} is no limit in bytes inside a batch")
        }
    }
}

#[test]
fn a_record_passes_each_gate_at_its_size_and_not_one_byte_below() {
    for &codec in Codec::ALL {
        let batch = batch(codec, &content());
        for (gate, size) in sizes() {
            for within in [size, size + 1] {
                assert_eq!(
                    judge(&batch, &limit(gate, within)).finding,
                    Judgement::Within,
                    "{codec} {gate}"
                );
            }
            let Judgement::Over(over) = judge(&batch, &limit(gate, size - 1)).finding else {
                panic!("{codec} {gate}")
            };
            assert_eq!(
                (over.gate, over.size, over.limit_bytes),
                (gate, Size::Exact(size), size - 1),
                "{codec}"
            );
            let [(_, record_bytes), ..] = sizes();
            let guilty = RecordAt {
                index: 1,
                record_bytes,
                key_bytes: 200,
                headers_bytes: 309,
            };
            assert_eq!(over.record, Some(guilty), "{codec} {gate}");
        }
    }
}

#[test]
fn a_batch_passes_the_uncompressed_gate_at_its_size_and_not_one_byte_below() {
    let uncompressed = 61 + records(&content()).len() as u64;
    for &codec in Codec::ALL {
        let batch = batch(codec, &content());
        for within in [uncompressed, uncompressed + 1] {
            let limits = limit(Gate::Uncompressed, within);
            assert_eq!(judge(&batch, &limits).finding, Judgement::Within, "{codec}");
        }
        let found = judge(&batch, &limit(Gate::Uncompressed, uncompressed - 1));
        let Judgement::Over(over) = found.finding else {
            panic!("{codec}")
        };
        assert_eq!(
            (over.gate, over.size.bytes(), over.record),
            (Gate::Uncompressed, uncompressed, None),
            "{codec}"
        );
    }
}

#[test]
fn a_decode_that_stops_at_the_limit_says_at_least_and_never_an_exact_size() {
    for codec in COMPRESSED {
        let batch = batch(codec, &[value(text(1, 3_000_000))]);
        let found = judge(&batch, &limit(Gate::Uncompressed, 1_000_000));
        let Judgement::Over(Over {
            size: Size::AtLeast(bytes),
            ..
        }) = found.finding
        else {
            panic!("{codec}: {found:?}")
        };
        assert_eq!(bytes, 1_000_001, "{codec}");
        assert_eq!(
            found.uncompressed,
            Some(Size::AtLeast(1_000_001)),
            "{codec}"
        );
        assert_eq!((found.records, found.largest), (None, None), "{codec}");
    }
}

#[test]
fn a_record_far_over_its_limit_is_said_to_be_at_least_as_large_as_was_seen() {
    for codec in COMPRESSED {
        let whole = 20_000_000;
        let batch = batch(codec, &[value("small"), value(vec![b'A'; whole])]);
        let found = judge(&batch, &limit(Gate::Record, 65_536));
        let Judgement::Over(over) = found.finding else {
            panic!("{codec}: {found:?}")
        };
        let Size::AtLeast(bytes) = over.size else {
            panic!("{codec}: {over:?}")
        };
        assert!((65_536..whole as u64).contains(&bytes), "{codec}: {bytes}");
        assert_eq!(over.record.map(|record| record.index), Some(1), "{codec}");
        // Nearly nothing behind the first violation was decoded: one lz4 block may be 4 MiB.
        assert!(
            found.decoded_bytes < 8_000_000,
            "{codec}: {}",
            found.decoded_bytes
        );
    }
}

#[test]
fn the_ratio_gate_looks_at_batches_above_one_mebibyte_only() {
    let ratio = |ratio| DeepLimits {
        ratio: Some(ratio),
        ..DeepLimits::NONE
    };
    for codec in COMPRESSED {
        // 61 + a record of value, three bytes of varints around it and five of its own.
        let mebibyte = batch(codec, &[value(vec![b'A'; 1024 * 1024 - 61 - 11])]);
        assert_eq!(
            measure(&mebibyte).uncompressed,
            Some(Size::Exact(1024 * 1024)),
            "{codec}"
        );
        assert_eq!(
            judge(&mebibyte, &ratio(2.0)).finding,
            Judgement::Within,
            "{codec}"
        );
        let one_more = batch(codec, &[value(vec![b'A'; 1024 * 1024 - 61 - 10])]);
        let Judgement::Over(over) = judge(&one_more, &ratio(2.0)).finding else {
            panic!("{codec}")
        };
        assert_eq!(
            (over.gate, over.limit_bytes),
            (Gate::Ratio, 1024 * 1024),
            "{codec}"
        );
        let wire = one_more.len() as f64;
        let exact = (1024.0 * 1024.0 + 1.0) / wire;
        assert_eq!(
            judge(&one_more, &ratio(exact + 0.001)).finding,
            Judgement::Within,
            "{codec}"
        );
    }
    let plain = batch(Codec::None, &[value(noise(1, 2_000_000))]);
    assert_eq!(judge(&plain, &ratio(1.0)).finding, Judgement::Within);
}

#[test]
fn of_two_limits_on_the_whole_batch_the_smaller_names_the_gate() {
    let batch = batch(Codec::Zstd, &[value(vec![b'A'; 3_000_000])]);
    let both = |uncompressed, ratio| {
        let limits = DeepLimits {
            uncompressed_bytes: Some(uncompressed),
            ratio: Some(ratio),
            ..DeepLimits::NONE
        };
        match judge(&batch, &limits).finding {
            Judgement::Over(over) => over.gate,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(both(2_000_000, 100_000.0), Gate::Uncompressed);
    assert_eq!(both(2_000_000, 2.0), Gate::Ratio);
}

#[test]
fn the_largest_record_is_known_when_only_the_batch_is_over() {
    // Two records of 20,008 bytes of body each in one batch (cases from the field).
    let batch = batch(
        Codec::None,
        &[value(noise(1, 20_000)), value(noise(2, 20_000))],
    );
    let found = judge(&batch, &limit(Gate::Uncompressed, 32_768));
    assert!(matches!(
        found.finding,
        Judgement::Over(Over {
            gate: Gate::Uncompressed,
            record: None,
            ..
        })
    ));
    assert_eq!(
        found.largest.map(|record| record.record_bytes),
        Some(20_011)
    );
    assert_eq!(found.records, Some(2));
}
