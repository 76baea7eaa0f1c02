//! A whole batch, its checksum made right: no measure contradicts another, whatever the effort.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sizegate::batch::BatchHeader;
use sizegate::inspect::{DeepLimits, Effort, Judgement, Scratch, expected_decode_bytes, inspect};
use sizegate::policy::Size;

const MOST_DECODED: u64 = 8 * 1024 * 1024;

fuzz_target!(|input: (u16, &[u8])| {
    let (limit, bytes) = input;
    let mut batch = bytes.to_vec();
    if batch.len() < 61 {
        return;
    }
    let length = (batch.len() - 12) as i32;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    let header = BatchHeader::read(&batch).unwrap();
    let limit = Some(u64::from(limit));
    let limits = DeepLimits { record_bytes: limit, value_bytes: limit, uncompressed_bytes: Some(1 << 20), ..DeepLimits::NONE };
    let mut scratch = Scratch::new();
    expected_decode_bytes(&header, &batch, &limits, Effort::VERDICT);
    let measured = inspect(&header, &batch, &DeepLimits::NONE, Effort::MEASURES.decode_at_most(MOST_DECODED), &mut scratch);
    assert_eq!(measured.finding, Judgement::Within);
    if let (Some(records), Some(Size::Exact(size))) = (measured.records, measured.uncompressed) {
        let sizes = scratch.sizes().record_bytes;
        assert_eq!(sizes.count(), records);
        assert_eq!(sizes.sum_bytes() + 61, size);
    }
    let judged = inspect(&header, &batch, &limits, Effort::VERDICT, &mut scratch);
    match judged.finding {
        Judgement::Over(over) => assert!(over.size.bytes() > over.limit_bytes),
        Judgement::BadCrc | Judgement::Unfinished => panic!("{judged:?}"),
        Judgement::Within | Judgement::Undecodable(_) => {}
    }
    if let (Some(Size::Exact(size)), Some(largest)) = (measured.uncompressed, measured.largest) {
        let is_over = size > 1 << 20 || Some(largest.record_bytes) > limit;
        assert!(
            !is_over || matches!(judged.finding, Judgement::Over(_)),
            "{measured:?} {judged:?}"
        );
    }
});
