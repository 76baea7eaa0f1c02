//! A gibibyte of zeros in every codec, stopped at the limit.

use sizegate::inspect::{DeepLimits, Effort, Finding, Undecodable};
use sizegate::policy::{Codec, Gate, Size};

use super::bomb::{small_bombs, snappy_bombs};
use super::make::{XERIAL_HEADER, batch_of, judge, look};

#[test]
fn a_gibibyte_of_zeros_in_any_codec_is_refused_without_unpacking_it() {
    for (codec, payload) in small_bombs().into_iter().chain(snappy_bombs()) {
        let batch = batch_of(codec, &payload, 1);
        for (gate, limits) in [
            (
                Gate::Uncompressed,
                DeepLimits {
                    uncompressed_bytes: Some(16 << 20),
                    ..DeepLimits::NONE
                },
            ),
            (
                Gate::Record,
                DeepLimits {
                    record_bytes: Some(64 << 10),
                    ..DeepLimits::NONE
                },
            ),
        ] {
            let found = judge(&batch, &limits);
            let Finding::Over(over) = found.finding else {
                panic!("{codec} {gate}: {found:?}")
            };
            assert_eq!(over.gate, gate, "{codec}");
            assert!(matches!(over.size, Size::AtLeast(_)), "{codec}: {over:?}");
            assert!(found.decoded_bytes < 32 << 20, "{codec} {gate}: {found:?}");
        }
        let bounded = look(
            &batch,
            &DeepLimits::NONE,
            Effort::MEASURES.decode_at_most(1 << 20),
        );
        assert_eq!(
            (bounded.finding, bounded.decoded_bytes),
            (Finding::Within, (1 << 20) + 1),
            "{codec}"
        );
    }
}

#[test]
fn xerial_chunks_that_claim_fifty_megabytes_and_hold_nothing_are_undecodable() {
    let mut payload = XERIAL_HEADER.to_vec();
    // A block of four bytes that declares 50 MB.
    for _ in 0..1_000 {
        payload.extend([0, 0, 0, 4, 0x80, 0xe1, 0xeb, 0x17]);
    }
    let limits = DeepLimits {
        record_bytes: Some(64 << 10),
        ..DeepLimits::NONE
    };
    let found = judge(&batch_of(Codec::Snappy, &payload, 1), &limits);
    assert!(
        matches!(found.finding, Finding::Undecodable(Undecodable::Payload(_))),
        "{found:?}"
    );
    assert_eq!(found.decoded_bytes, 0);
}
