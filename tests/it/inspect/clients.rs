//! The bytes of real clients (tests/data/batches; who wrote each stands in its index.json) measure as recorded.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use sizegate::batch::{BATCH_HEADER_BYTES, BatchHeader, RecordStream};
use sizegate::codec::{Decoders, End, Output, scanned_bound};
use sizegate::inspect::{DeepLimits, Effort, Finding, Scratch, inspect};
use sizegate::policy::{Codec, Size};

use super::make::{judge, measure};

#[derive(serde::Deserialize)]
struct Expected {
    file: String,
    client: String,
    codec: String,
    wire_bytes: u64,
    uncompressed_bytes: u64,
    records: u32,
    record_bytes: Vec<u64>,
    key_bytes: Vec<u64>,
    value_bytes: Vec<u64>,
    headers_bytes: Vec<u64>,
}

fn each_batch(mut check: impl FnMut(&Expected, &[u8], &BatchHeader)) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/batches");
    let index = fs::read_to_string(folder.join("index.json")).unwrap();
    let index: Vec<Expected> = serde_json::from_str(&index).unwrap();
    let clients: BTreeSet<_> = index
        .iter()
        .map(|e| (e.client.clone(), e.codec.clone()))
        .collect();
    // Ten clients in five codecs.
    assert_eq!(clients.len(), 10 * 5, "{clients:?}");
    for expected in &index {
        let batch = fs::read(folder.join(&expected.file)).unwrap();
        let header = BatchHeader::read(&batch).unwrap();
        check(expected, &batch, &header);
    }
}

#[test]
fn every_clients_batch_measures_exactly_as_recorded() {
    let mut scratch = Scratch::new();
    each_batch(|expected, batch, header| {
        let found = inspect(
            header,
            batch,
            &DeepLimits::NONE,
            Effort::MEASURES,
            &mut scratch,
        );
        assert_eq!(
            header.wire_bytes(),
            expected.wire_bytes,
            "{}",
            expected.file
        );
        assert_eq!(
            header.codec().map(Codec::label),
            Some(expected.codec.as_str()),
            "{}",
            expected.file
        );
        assert_eq!(found.finding, Finding::Within, "{}", expected.file);
        assert_eq!(
            found.uncompressed,
            Some(Size::Exact(expected.uncompressed_bytes)),
            "{}",
            expected.file
        );
        assert_eq!(found.records, Some(expected.records), "{}", expected.file);
        let largest = found.largest.unwrap();
        assert_eq!(
            Some(&largest.record_bytes),
            expected.record_bytes.iter().max(),
            "{}",
            expected.file
        );
        assert_eq!(
            largest.key_bytes,
            expected.key_bytes[largest.index as usize]
        );
        assert_eq!(
            largest.headers_bytes,
            expected.headers_bytes[largest.index as usize]
        );
        let sizes = scratch.sizes();
        assert_eq!(sizes.record_bytes.count(), expected.records);
        assert_eq!(
            sizes.record_bytes.sum_bytes() + 61,
            expected.uncompressed_bytes,
            "{}",
            expected.file
        );
    });
}

/// Feeds a walk in pieces of some size.
struct Pieces {
    stream: RecordStream,
    piece_bytes: usize,
    sizes: Vec<[u64; 4]>,
}

impl Output for Pieces {
    fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        for piece in bytes.chunks(self.piece_bytes) {
            let sizes = &mut self.sizes;
            let flow = self.stream.feed(piece, |record| {
                sizes.push([
                    record.record_bytes,
                    record.key_bytes,
                    record.value_bytes,
                    record.headers_bytes,
                ]);
                ControlFlow::Continue(())
            });
            assert_eq!(flow, Ok(ControlFlow::Continue(())));
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn every_record_of_every_client_is_found_whatever_the_pieces() {
    let mut decoders = Decoders::new();
    each_batch(|expected, batch, header| {
        let recorded: Vec<[u64; 4]> = (0..expected.records as usize)
            .map(|i| {
                [
                    expected.record_bytes[i],
                    expected.key_bytes[i],
                    expected.value_bytes[i],
                    expected.headers_bytes[i],
                ]
            })
            .collect();
        for piece_bytes in [1, 100, 4096] {
            let stream = RecordStream::new(expected.records);
            let mut pieces = Pieces {
                stream,
                piece_bytes,
                sizes: Vec::new(),
            };
            let end = decoders
                .decoder(header.codec().unwrap(), u64::MAX)
                .decode(&batch[BATCH_HEADER_BYTES..], &mut pieces);
            assert_eq!(end, Ok(End::Complete), "{}", expected.file);
            assert_eq!(pieces.stream.finish(), Ok(()));
            assert_eq!(
                pieces.sizes, recorded,
                "{} in pieces of {piece_bytes}",
                expected.file
            );
        }
    });
}

#[test]
fn limits_of_exactly_the_measured_sizes_pass_every_client_and_one_less_refuses() {
    each_batch(|expected, batch, _| {
        let most = |sizes: &[u64]| *sizes.iter().max().unwrap();
        let exact = DeepLimits {
            uncompressed_bytes: Some(expected.uncompressed_bytes),
            record_bytes: Some(most(&expected.record_bytes)),
            key_bytes: Some(most(&expected.key_bytes)),
            value_bytes: Some(most(&expected.value_bytes)),
            headers_bytes: Some(most(&expected.headers_bytes)),
            ..DeepLimits::NONE
        };
        assert_eq!(
            judge(batch, &exact).finding,
            Finding::Within,
            "{}",
            expected.file
        );
        let one_less = |limit: Option<u64>| limit.map(|limit| limit - 1);
        for tight in [
            DeepLimits {
                uncompressed_bytes: one_less(exact.uncompressed_bytes),
                ..exact
            },
            DeepLimits {
                record_bytes: one_less(exact.record_bytes),
                ..exact
            },
            DeepLimits {
                value_bytes: one_less(exact.value_bytes),
                ..exact
            },
        ] {
            assert!(
                matches!(judge(batch, &tight).finding, Finding::Over(_)),
                "{}: {tight:?}",
                expected.file
            );
        }
    });
}

#[test]
fn what_every_client_compresses_is_bounded_to_the_byte_without_a_decode() {
    let roomy = DeepLimits {
        uncompressed_bytes: Some(4 << 20),
        ..DeepLimits::NONE
    };
    each_batch(|expected, batch, header| {
        let found = judge(batch, &roomy);
        assert_eq!(found.finding, Finding::Within, "{}", expected.file);
        assert_eq!(found.decoded_bytes, 0, "{}", expected.file);
        let codec = header.codec().unwrap();
        let records_bytes = expected.uncompressed_bytes - 61;
        let scanned = scanned_bound(codec, &batch[BATCH_HEADER_BYTES..], records_bytes);
        match codec {
            Codec::Gzip | Codec::Lz4 => {
                assert_eq!(
                    scanned.map(|bound| bound.at_most),
                    Some(records_bytes),
                    "{}",
                    expected.file
                );
            }
            _ => assert_eq!(scanned, None),
        }
    });
}

#[test]
fn a_wrong_checksum_is_never_refused_and_never_changes_what_passes() {
    each_batch(|expected, batch, _| {
        let mut wrong = batch.to_vec();
        wrong[17] ^= 1;
        let tight = DeepLimits {
            record_bytes: Some(1),
            ..DeepLimits::NONE
        };
        assert_eq!(
            judge(&wrong, &tight).finding,
            Finding::BadCrc,
            "{}",
            expected.file
        );
        assert_eq!(
            measure(&wrong).finding,
            Finding::Within,
            "{}",
            expected.file
        );
    });
}
