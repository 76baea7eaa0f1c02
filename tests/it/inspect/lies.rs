//! Batches that say one thing and hold another: each is measured by what it holds, or is undecodable; none passes.

use sizegate::batch::RecordError;
use sizegate::codec::DecodeError;
use sizegate::inspect::{DeepLimits, Finding, Undecodable};
use sizegate::policy::{Codec, Gate};

use super::make::{
    COMPRESSED, XERIAL_HEADER, batch, batch_of, body, compress, encode, judge, measure, records,
    seal, snappy_raw, text, value, varint, zstd_sized,
};

/// Needs a decode whatever the payload's headers say.
const DEEP: DeepLimits = DeepLimits {
    record_bytes: Some(1_000_000),
    key_bytes: Some(0),
    ..DeepLimits::NONE
};

fn reason(batch: &[u8]) -> Undecodable {
    match judge(batch, &DEEP).finding {
        Finding::Undecodable(reason) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_count_larger_or_smaller_than_the_records_there_are_is_undecodable() {
    let content = [value(text(1, 100)), value(text(2, 100))];
    let bytes = records(&content);
    for &codec in Codec::ALL {
        let with_count = |count| reason(&batch_of(codec, &compress(codec, &bytes), count));
        assert_eq!(
            with_count(1),
            Undecodable::Records(RecordError::TrailingBytes),
            "{codec}"
        );
        assert_eq!(
            with_count(3),
            Undecodable::Records(RecordError::Truncated),
            "{codec}"
        );
        assert_eq!(
            with_count(i32::MAX),
            Undecodable::Records(RecordError::Truncated),
            "{codec}"
        );
        assert_eq!(with_count(0), Undecodable::RecordCount, "{codec}");
        assert_eq!(with_count(-1), Undecodable::RecordCount, "{codec}");
    }
}

#[test]
fn records_of_negative_length_and_negative_header_counts_are_undecodable() {
    let mut negative_headers = body(&value("x"), 0);
    negative_headers.pop();
    negative_headers.extend(varint(-1));
    let framed = [varint(negative_headers.len() as i64), negative_headers].concat();
    for &codec in Codec::ALL {
        let framed = batch_of(codec, &compress(codec, &framed), 1);
        assert_eq!(
            reason(&framed),
            Undecodable::Records(RecordError::NegativeLength),
            "{codec}"
        );
    }
    let negative = [varint(-5), body(&value("x"), 0)].concat();
    assert_eq!(
        reason(&batch_of(Codec::None, &negative, 1)),
        Undecodable::Records(RecordError::NegativeLength)
    );
}

#[test]
fn a_record_that_claims_more_than_there_is_is_not_refused_for_its_claim() {
    // 2 GiB of value claimed, five bytes there.
    let mut claim = vec![0, 0, 0];
    claim.extend(varint(-1));
    claim.extend(varint(i64::from(i32::MAX)));
    claim.extend(b"five!");
    let bytes = [varint(i64::from(i32::MAX)), claim].concat();
    for codec in COMPRESSED {
        let batch = batch_of(codec, &compress(codec, &bytes), 1);
        assert_eq!(
            reason(&batch),
            Undecodable::Records(RecordError::Truncated),
            "{codec}"
        );
    }
}

#[test]
fn a_batch_shorter_than_its_length_is_undecodable() {
    let mut batch = batch(Codec::Zstd, &[value(text(1, 100))]);
    batch.pop();
    assert!(matches!(judge(&batch, &DEEP).finding, Finding::BadCrc));
}

#[test]
fn codec_ids_of_nobody_are_undecodable_where_a_limit_needs_the_decode() {
    for id in 5..=7u8 {
        let mut batch = batch(Codec::None, &[value("x")]);
        batch[22] = id;
        seal(&mut batch);
        assert_eq!(reason(&batch), Undecodable::UnknownCodec);
        assert_eq!(judge(&batch, &DeepLimits::NONE).finding, Finding::Within);
        assert_eq!(measure(&batch).finding, Finding::Within);
    }
}

#[test]
fn a_snappy_block_that_declares_less_or_more_than_it_holds_is_undecodable() {
    let bytes = encode(&value(text(1, 3_000)), 0);
    let sound = snappy_raw(&bytes);
    let elements = &sound[2..];
    for declared in [
        1,
        bytes.len() as u32 - 1,
        bytes.len() as u32 + 1,
        1_000_000,
        i32::MAX as u32,
        u32::MAX,
    ] {
        let mut raw = declared;
        let mut block = Vec::new();
        while raw >= 0x80 {
            block.push(raw as u8 | 0x80);
            raw >>= 7;
        }
        block.push(raw as u8);
        block.extend(elements);
        assert_eq!(
            reason(&batch_of(Codec::Snappy, &block, 1)),
            Undecodable::Payload(DecodeError::Corrupt)
        );
        let chunk = [
            &XERIAL_HEADER[..],
            &(block.len() as u32).to_be_bytes(),
            &block,
        ]
        .concat();
        assert_eq!(
            reason(&batch_of(Codec::Snappy, &chunk, 1)),
            Undecodable::Payload(DecodeError::Corrupt)
        );
    }
}

#[test]
fn a_zstd_frame_that_declares_less_or_more_than_it_holds_is_undecodable() {
    let bytes = encode(&value(text(1, 3_000)), 0);
    let frame = zstd_sized(&bytes);
    for declared in [bytes.len() as u16 - 1, bytes.len() as u16 + 1, 256, 60_000] {
        let mut lying = frame.clone();
        lying[5..7].copy_from_slice(&(declared - 256).to_le_bytes());
        assert_eq!(
            reason(&batch_of(Codec::Zstd, &lying, 1)),
            Undecodable::Payload(DecodeError::Corrupt),
            "{declared}"
        );
    }
}

#[test]
fn gzip_cannot_hide_its_size_behind_the_trailer_it_ends_with() {
    // Ten megabytes, and behind them bytes that look like a trailer of ten.
    let mut payload = compress(Codec::Gzip, &encode(&value(vec![b'A'; 10_000_000]), 0));
    payload.extend([1, 2, 3, 4, 10, 0, 0, 0]);
    let limits = DeepLimits {
        uncompressed_bytes: Some(1 << 20),
        ..DeepLimits::NONE
    };
    let Finding::Over(over) = judge(&batch_of(Codec::Gzip, &payload, 1), &limits).finding else {
        panic!()
    };
    assert_eq!(over.gate, Gate::Uncompressed);
}

#[test]
fn empty_payloads_hold_no_records_in_any_codec() {
    for codec in COMPRESSED {
        let found = measure(&batch_of(codec, &[], 1));
        assert_eq!(
            (found.finding, found.records),
            (Finding::Within, None),
            "{codec}"
        );
    }
}

#[test]
fn bytes_behind_the_batchs_own_end_are_not_looked_at() {
    for &codec in Codec::ALL {
        let mut batch = batch(codec, &[value(text(1, 1_000))]);
        let before = measure(&batch);
        batch.extend([0xab; 16]);
        assert_eq!(measure(&batch), before, "{codec}");
        assert_eq!(judge(&batch, &DEEP).finding, Finding::Within, "{codec}");
    }
}

#[test]
fn the_largest_of_a_hundred_thousand_tiny_records_is_found() {
    let mut content: Vec<_> = (0..100_000).map(|_| value("")).collect();
    content[77_777] = value(text(1, 500));
    for &codec in Codec::ALL {
        let batch = batch(codec, &content);
        let limits = DeepLimits {
            value_bytes: Some(499),
            ..DeepLimits::NONE
        };
        let Finding::Over(over) = judge(&batch, &limits).finding else {
            panic!("{codec}")
        };
        assert_eq!(
            over.record.map(|record| record.index),
            Some(77_777),
            "{codec}"
        );
        assert_eq!(
            measure(&batch).largest.map(|record| record.index),
            Some(77_777),
            "{codec}"
        );
    }
}

/// zstd compares a frame's declared size with what came out when it decodes the last block, if that is not empty. Kafka
/// accepts the first of these; of the second it decodes everything before it refuses it.
#[test]
fn a_zstd_frame_that_holds_more_than_it_declares_passes_no_limit() {
    let long = records(&[value(vec![0; 30_000_000])]);
    let (head, zeros) = long.split_at(16);
    let block = |size_and_kind: usize, bytes: &[u8]| {
        [&(size_and_kind as u32).to_le_bytes()[..3], bytes].concat()
    };
    for declared in [20_000u32, 1_000_000] {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x80, 0x38];
        frame.extend(declared.to_le_bytes());
        frame.extend(block(head.len() << 3, head));
        for zeros in zeros.chunks(100_000) {
            frame.extend(block((zeros.len() << 3) | 2, &[0]));
        }
        for last in [block(1, &[]), block((1 << 3) | 1, &[0])] {
            let batch = batch_of(Codec::Zstd, &[&frame[..], &last].concat(), 1);
            let limits = DeepLimits {
                uncompressed_bytes: Some(4_000_000),
                ..DeepLimits::NONE
            };
            let finding = judge(&batch, &limits).finding;
            assert!(
                matches!(finding, Finding::Over(_) | Finding::Undecodable(_)),
                "{declared}: {finding:?}"
            );
        }
    }
}
