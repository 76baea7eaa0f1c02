//! Near a limit: half of it, half of it and a byte, the limit, and a byte more, for every gate and every codec.

use sizegate::inspect::{DeepLimits, Effort, Judgement};
use sizegate::vocabulary::{Codec, Gate};

use super::boundaries::{content, limit, sizes};
use super::make::{batch, look, records, text, value};

/// Exact in binary, so that no rounding decides: a size is near its limit when its double exceeds it.
const HALF: f64 = 0.5;

fn near(batch: &[u8], limits: &DeepLimits) -> (Vec<Gate>, Judgement) {
    let found = look(batch, limits, Effort::VERDICT.noticing_near(HALF));
    (found.near.gates().collect(), found.finding)
}

/// By size alone: what is near at which limit.
fn assert_near_at(batch: &[u8], gate: Gate, size: u64, limits: impl Fn(u64) -> DeepLimits) {
    for (limit_bytes, is_near) in [
        (size, true),
        (size + 1, true),
        (2 * size - 1, true),
        (2 * size, false),
        (2 * size + 1, false),
        (20 * size, false),
    ] {
        let expected = if is_near { vec![gate] } else { vec![] };
        let found = near(batch, &limits(limit_bytes));
        assert_eq!(found, (expected, Judgement::Within), "{gate} {limit_bytes}");
        let found = look(batch, &limits(limit_bytes), Effort::VERDICT);
        assert_eq!(found.near.gates().count(), 0, "nobody asked");
    }
}

#[test]
fn a_record_is_near_each_gate_above_its_share_of_the_limit() {
    for &codec in Codec::ALL {
        let batch = batch(codec, &content());
        for (gate, size) in sizes() {
            assert_near_at(&batch, gate, size, |bytes| limit(gate, bytes));
        }
    }
}

#[test]
fn a_batch_of_one_record_is_near_too_whatever_proves_it_within() {
    for value_bytes in [100u64, 5_000] {
        // Length (2), attributes, two deltas, key length, value length (2), value, header count.
        let record = 2 + 1 + 1 + 1 + 1 + 2 + value_bytes + 1;
        for &codec in Codec::ALL {
            let batch = batch(codec, &[value(text(1, value_bytes as usize))]);
            assert_near_at(&batch, Gate::Record, record, |bytes| {
                limit(Gate::Record, bytes)
            });
            assert_near_at(&batch, Gate::Value, value_bytes, |bytes| {
                limit(Gate::Value, bytes)
            });
            assert_near_at(&batch, Gate::Uncompressed, 61 + record, |bytes| {
                limit(Gate::Uncompressed, bytes)
            });
        }
    }
}

#[test]
fn a_batch_is_near_the_uncompressed_gate_above_its_share_of_the_limit() {
    let uncompressed = 61 + records(&content()).len() as u64;
    for &codec in Codec::ALL {
        let batch = batch(codec, &content());
        assert_near_at(&batch, Gate::Uncompressed, uncompressed, |bytes| {
            limit(Gate::Uncompressed, bytes)
        });
    }
}

#[test]
fn a_batch_is_near_the_ratio_gate_above_its_share_of_what_the_ratio_allows() {
    let content = [value(text(1, 3_000_000))];
    let uncompressed = 61 + records(&content).len() as u64;
    for &codec in Codec::ALL {
        let batch = batch(codec, &content);
        let ratio = uncompressed as f64 / batch.len() as f64;
        for (ratio, is_near) in [
            (ratio * 1.01, true),
            (ratio * 1.9, true),
            (ratio * 2.1, false),
        ] {
            let limits = DeepLimits {
                ratio: Some(ratio),
                ..DeepLimits::NONE
            };
            let expected = if is_near { vec![Gate::Ratio] } else { vec![] };
            assert_eq!(
                near(&batch, &limits),
                (expected, Judgement::Within),
                "{codec}"
            );
        }
    }
}

#[test]
fn every_gate_that_is_near_is_told_of_at_once() {
    let uncompressed = 61 + records(&content()).len() as u64;
    let [
        (_, record),
        (_, estimate),
        (_, key),
        (_, value),
        (_, headers),
    ] = sizes();
    let limits = DeepLimits {
        uncompressed_bytes: Some(uncompressed),
        record_bytes: Some(record),
        estimate_bytes: Some(estimate),
        key_bytes: Some(key),
        value_bytes: Some(2 * value),
        headers_bytes: Some(headers),
        ratio: None,
        is_rewritten: false,
    };
    for &codec in Codec::ALL {
        let expected = [
            Gate::Uncompressed,
            Gate::Record,
            Gate::Estimate,
            Gate::Key,
            Gate::Headers,
        ];
        let found = near(&batch(codec, &content()), &limits);
        assert_eq!(found, (expected.to_vec(), Judgement::Within), "{codec}");
    }
}

/// What is only wanted for `near` and cannot be had changes no verdict.
#[test]
fn what_cannot_be_decoded_stays_within_a_limit_that_its_headers_prove() {
    for &codec in Codec::ALL {
        let batch = batch(codec, &[value(text(1, 200_000))]);
        let limits = limit(Gate::Record, 220_000);
        let effort = Effort::VERDICT.noticing_near(HALF).decode_at_most(1_000);
        let found = look(&batch, &limits, effort);
        let is_proven = look(&batch, &limits, Effort::VERDICT.decode_at_most(1_000)).finding
            == Judgement::Within;
        if is_proven {
            assert_eq!(found.finding, Judgement::Within, "{codec}");
            assert_eq!(found.is_cut, codec != Codec::None, "{codec}");
        }
    }
}
