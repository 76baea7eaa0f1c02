//! Laws that hold for any content and any bytes.

use std::ops::ControlFlow;

use proptest::prelude::*;
use sizegate::batch::{BatchHeader, RecordSizes, RecordStream, walk_records};
use sizegate::codec::{Decoders, End, Output, scanned_bound, upper_bound};
use sizegate::inspect::{DeepLimits, Effort, Finding, Scratch, inspect};
use sizegate::policy::{Codec, Size};

use super::make::{
    COMPRESSED, Record, batch, batch_of, body, compress, encode, judge, look, measure, records,
    varint, xerial, zstd_sized,
};

struct Bytes(Vec<u8>);

impl Output for Bytes {
    fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.0.extend_from_slice(bytes);
        ControlFlow::Continue(())
    }
}

/// Decodes a sound payload.
pub fn decoded(codec: Codec, payload: &[u8]) -> Vec<u8> {
    let mut out = Bytes(Vec::new());
    let end = Decoders::new()
        .decoder(codec, u64::MAX)
        .decode(payload, &mut out);
    assert_eq!(end, Ok(End::Complete), "{codec}");
    out.0
}

fn record() -> impl Strategy<Value = Record> {
    let bytes = || proptest::collection::vec(any::<u8>(), 0..200);
    let headers = proptest::collection::vec((bytes(), proptest::option::of(bytes())), 0..4);
    (
        proptest::option::of(bytes()),
        proptest::option::of(bytes()),
        headers,
    )
        .prop_map(|(key, value, headers)| Record {
            key,
            value,
            headers,
        })
}

/// What a reference computes from the content.
fn sizes(record: &Record, index: usize) -> RecordSizes {
    let length = |bytes: Option<&Vec<u8>>| bytes.map_or(0, Vec::len) as u64;
    let nullable = |bytes: Option<&Vec<u8>>| match bytes {
        None => 1,
        Some(bytes) => (varint(bytes.len() as i64).len() + bytes.len()) as u64,
    };
    let headers: u64 = record
        .headers
        .iter()
        .map(|(n, v)| nullable(Some(n)) + nullable(v.as_ref()))
        .sum();
    RecordSizes {
        record_bytes: encode(record, index).len() as u64,
        estimate_bytes: 82
            + nullable(record.key.as_ref())
            + nullable(record.value.as_ref())
            + varint(record.headers.len() as i64).len() as u64
            + headers,
        key_bytes: length(record.key.as_ref()),
        value_bytes: length(record.value.as_ref()),
        headers_bytes: record
            .headers
            .iter()
            .map(|(n, v)| n.len() as u64 + length(v.as_ref()))
            .sum(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn both_walks_find_what_was_written(
        content in proptest::collection::vec(record(), 1..12),
        piece_bytes in 1usize..300,
    ) {
        let bytes = records(&content);
        let expected: Vec<_> = content.iter().enumerate().map(|(i, record)| sizes(record, i)).collect();
        let mut found = Vec::new();
        let whole = walk_records(&bytes, content.len() as u32, |sizes| {
            found.push(*sizes);
            ControlFlow::Continue(())
        });
        prop_assert_eq!(whole, Ok(ControlFlow::Continue(())));
        prop_assert_eq!(&found, &expected);
        let mut stream = RecordStream::new(content.len() as u32);
        found.clear();
        for piece in bytes.chunks(piece_bytes) {
            let partial_before = stream.partial();
            let flow = stream.feed(piece, |sizes| {
                found.push(*sizes);
                ControlFlow::Continue(())
            });
            prop_assert_eq!(flow, Ok(ControlFlow::Continue(())));
            prop_assert!(partial_before.record_bytes <= bytes.len() as u64);
        }
        prop_assert_eq!(stream.finish(), Ok(()));
        prop_assert_eq!(&found, &expected);
    }

    #[test]
    fn compressing_changes_no_measure(content in proptest::collection::vec(record(), 1..20)) {
        let plain = measure(&batch(Codec::None, &content));
        for codec in COMPRESSED {
            let packed = measure(&batch(codec, &content));
            prop_assert_eq!(packed.finding, Finding::Within);
            prop_assert_eq!(packed.uncompressed, plain.uncompressed, "{}", codec);
            prop_assert_eq!(packed.records, plain.records, "{}", codec);
            prop_assert_eq!(packed.largest, plain.largest, "{}", codec);
        }
    }

    #[test]
    fn a_bound_is_never_below_what_comes_out(bytes in proptest::collection::vec(0u8..4, 0..20_000)) {
        let packed = |codec| compress(codec, &bytes);
        for (codec, payload) in [
            (Codec::Gzip, packed(Codec::Gzip)),
            (Codec::Snappy, packed(Codec::Snappy)),
            (Codec::Snappy, xerial(&bytes)),
            (Codec::Lz4, packed(Codec::Lz4)),
            (Codec::Zstd, packed(Codec::Zstd)),
            (Codec::Zstd, zstd_sized(&bytes)),
        ] {
            let out = decoded(codec, &payload);
            prop_assert_eq!(&out, &bytes);
            let length = bytes.len() as u64;
            for bound in [upper_bound(codec, &payload), scanned_bound(codec, &payload, u64::MAX)].into_iter().flatten() {
                prop_assert!(bound.at_most >= length, "{} {:?}", codec, bound);
                prop_assert!(!bound.is_exact || bound.at_most == length, "{} {:?}", codec, bound);
            }
            // Asked for no more than there is, a scan leaves nothing to guess.
            if let Some(bound) = scanned_bound(codec, &payload, length) {
                prop_assert_eq!(bound.at_most, length, "{}", codec);
            } else {
                prop_assert!(matches!(codec, Codec::Snappy | Codec::Zstd), "{}", codec);
            }
        }
    }

    #[test]
    fn the_cheapest_proof_says_what_a_whole_decode_says(
        content in proptest::collection::vec(record(), 1..20),
        record_limit in 1u64..900,
        uncompressed_limit in 61u64..9_000,
    ) {
        let limits = DeepLimits {
            record_bytes: Some(record_limit),
            uncompressed_bytes: Some(uncompressed_limit),
            ..DeepLimits::NONE
        };
        let bytes = records(&content);
        let is_over = bytes.len() as u64 + 61 > uncompressed_limit
            || content.iter().enumerate().any(|(i, record)| encode(record, i).len() as u64 > record_limit);
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let batch = batch(codec, &content);
            for effort in [Effort::VERDICT, Effort::MEASURES] {
                let found = look(&batch, &limits, effort);
                prop_assert_eq!(matches!(found.finding, Finding::Over(_)), is_over, "{} {:?}", codec, found);
                if let Some(Size::Exact(size)) = found.uncompressed {
                    prop_assert_eq!(size, bytes.len() as u64 + 61);
                }
            }
        }
    }

    #[test]
    fn arbitrary_payloads_never_panic_and_are_never_called_over_for_more_than_came_out(
        payload in proptest::collection::vec(any::<u8>(), 0..3_000),
        count in any::<i32>(),
        limit in 1u64..100_000,
    ) {
        let limits = DeepLimits { record_bytes: Some(limit), uncompressed_bytes: Some(limit), ..DeepLimits::NONE };
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let mut magic = match codec {
                Codec::Gzip => vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0],
                Codec::Lz4 => vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82],
                Codec::Zstd => vec![0x28, 0xb5, 0x2f, 0xfd],
                Codec::Snappy | Codec::None => Vec::new(),
            };
            magic.extend(&payload);
            let found = judge(&batch_of(codec, &magic, count), &limits);
            if let Finding::Over(over) = found.finding {
                prop_assert!(over.size.bytes() > limit);
            }
        }
    }

    #[test]
    fn flipped_and_cut_batches_never_panic(
        content in proptest::collection::vec(record(), 1..6),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut scratch = Scratch::new();
        for codec in [Codec::None, Codec::Gzip, Codec::Snappy, Codec::Lz4, Codec::Zstd] {
            let mut batch = batch(codec, &content);
            for (at, value) in &flips {
                let at = at.index(batch.len());
                batch[at] ^= value;
            }
            batch.truncate(61 + cut.index(batch.len() - 60));
            let header = BatchHeader::read(&batch).unwrap();
            let limits = DeepLimits { value_bytes: Some(1), uncompressed_bytes: Some(1 << 20), ..DeepLimits::NONE };
            inspect(&header, &batch, &limits, Effort::MEASURES, &mut scratch);
        }
    }
}

#[test]
fn a_record_longer_than_its_declared_length_ends_where_its_fields_end_when_compressed() {
    // The broker walks a compressed batch by fields and accepts this (`DefaultRecord.readPartiallyFrom`).
    let body = body(&super::make::value("five!"), 0);
    for declared in [0, body.len() as i64 - 1, body.len() as i64 + 1, 1 << 30] {
        let bytes = [varint(declared), body.clone()].concat();
        let packed = measure(&batch_of(Codec::Gzip, &compress(Codec::Gzip, &bytes), 1));
        assert_eq!(
            packed.largest.map(|record| record.record_bytes),
            Some(bytes.len() as u64)
        );
        let limits = DeepLimits {
            record_bytes: Some(5),
            ..DeepLimits::NONE
        };
        let plain = judge(&batch_of(Codec::None, &bytes, 1), &limits);
        assert!(
            matches!(plain.finding, Finding::Undecodable(_)),
            "{plain:?}"
        );
    }
}
