//! The corners of each codec's format, read as Kafka reads them.

use std::io::Write;

use lz4_flex::frame::{BlockMode, BlockSize, FrameInfo};
use sizegate::codec::{DecodeError, scanned_bound};
use sizegate::inspect::{DeepLimits, Finding, Undecodable};
use sizegate::policy::{Codec, Size};

use super::make::{
    XERIAL_HEADER, batch_of, gzip, judge, lz4_claiming, lz4_with, measure, noise, records,
    snappy_raw, text, value, xerial, xerial_chunk, zstd, zstd_sized,
};

/// Needs a decode whatever the payload's headers say.
const DEEP: DeepLimits = DeepLimits {
    record_bytes: Some(1_000_000),
    key_bytes: Some(0),
    ..DeepLimits::NONE
};

/// Records whose size a decode must find.
fn content() -> (Vec<u8>, i32) {
    let content: Vec<_> = (0..300).map(|i| value(text(i, 400))).collect();
    (records(&content), 300)
}

fn reads(codec: Codec, payload: &[u8]) {
    let (content, count) = content();
    let batch = batch_of(codec, payload, count);
    assert_eq!(
        measure(&batch).uncompressed,
        Some(Size::Exact(61 + content.len() as u64))
    );
    assert_eq!(measure(&batch).records, Some(300));
    assert_eq!(judge(&batch, &DEEP).finding, Finding::Within);
}

fn fails(codec: Codec, payload: &[u8], why: DecodeError) {
    let (_, count) = content();
    let found = judge(&batch_of(codec, payload, count), &DEEP);
    assert_eq!(
        found.finding,
        Finding::Undecodable(Undecodable::Payload(why))
    );
}

#[test]
fn gzip_members_one_behind_the_other_are_one_payload() {
    let (content, _) = content();
    let (a, rest) = content.split_at(10_001);
    let (b, c) = rest.split_at(3);
    reads(
        Codec::Gzip,
        &[gzip(a), gzip(b), gzip(b""), gzip(c)].concat(),
    );
}

#[test]
fn bytes_behind_a_gzip_member_that_are_no_header_are_ignored() {
    let (content, _) = content();
    for garbage in [vec![0], vec![0x1f], noise(1, 100), vec![0; 5_000]] {
        reads(Codec::Gzip, &[gzip(&content), garbage].concat());
    }
}

#[test]
fn a_gzip_header_may_have_every_field() {
    let (content, _) = content();
    let plain = gzip(&content);
    let mut full = vec![0x1f, 0x8b, 8, 0x1e, 0, 0, 0, 0, 0, 3];
    full.extend(5u16.to_le_bytes());
    full.extend(b"extra");
    full.extend(b"a name\0a comment\0");
    let mut crc = flate2::Crc::new();
    crc.update(&full);
    full.extend((crc.sum() as u16).to_le_bytes());
    full.extend(&plain[10..]);
    reads(Codec::Gzip, &full);
    full[10 + 2 + 5 + 17] ^= 1;
    fails(Codec::Gzip, &full, DecodeError::ChecksumMismatch);
}

#[test]
fn gzip_with_a_wrong_trailer_or_a_cut_one_does_not_decode() {
    let (content, _) = content();
    let sound = gzip(&content);
    for at in 1..=8 {
        let mut wrong = sound.clone();
        let place = wrong.len() - at;
        wrong[place] ^= 0x40;
        fails(Codec::Gzip, &wrong, DecodeError::ChecksumMismatch);
    }
    for cut in [1, 4, 8, 9, 100] {
        fails(
            Codec::Gzip,
            &sound[..sound.len() - cut],
            DecodeError::Truncated,
        );
    }
}

#[test]
fn snappy_is_read_raw_and_in_xerial_chunks_with_repeated_headers() {
    let (content, _) = content();
    reads(Codec::Snappy, &snappy_raw(&content));
    reads(Codec::Snappy, &xerial(&content));
    let (a, b) = content.split_at(50_000);
    reads(Codec::Snappy, &[xerial(a), xerial(b)].concat());
    reads(
        Codec::Snappy,
        &[&XERIAL_HEADER[..], &XERIAL_HEADER, &xerial_chunk(&content)].concat(),
    );
    // One block may be larger than what is decoded in one piece.
    reads(
        Codec::Snappy,
        &[&XERIAL_HEADER[..], &xerial_chunk(&content)].concat(),
    );
}

#[test]
fn up_to_three_bytes_behind_the_last_xerial_chunk_are_ignored() {
    let (content, _) = content();
    for garbage in 1..=3 {
        reads(
            Codec::Snappy,
            &[xerial(&content), vec![0; garbage]].concat(),
        );
    }
    fails(
        Codec::Snappy,
        &[xerial(&content), vec![0; 4]].concat(),
        DecodeError::Truncated,
    );
}

#[test]
fn a_later_xerial_header_must_be_a_version_that_java_takes() {
    let (content, _) = content();
    let (a, b) = content.split_at(50_000);
    let mut second = xerial(b);
    second[11] = 0;
    fails(
        Codec::Snappy,
        &[xerial(a), second].concat(),
        DecodeError::Unsupported,
    );
    // The first header's version nobody looks at.
    let mut first = xerial(&content);
    first[11] = 0;
    reads(Codec::Snappy, &first);
}

#[test]
fn a_copy_may_reach_back_to_the_first_byte_of_a_block() {
    // 3 MiB of noise, then a copy of its first 64 bytes: an offset of four bytes that Google's encoder never writes.
    for filler in [100_000usize, 3 * 1024 * 1024] {
        let plain = noise(7, filler);
        let record_head = records(&[value(plain.clone())]);
        let mut record = record_head.clone();
        let tail = &plain[..64];
        record.extend(records(&[value(tail.to_vec())]));
        // Literal up to the tail, then the copy, then the last byte: the header count.
        let copied_at = record.len() - 65;
        let offset = copied_at - (record_head.len() - 1 - filler);
        let mut block = unsigned(record.len());
        literal(&mut block, &record[..copied_at]);
        block.push((63 << 2) | 3);
        block.extend((offset as u32).to_le_bytes());
        literal(&mut block, &record[copied_at + 64..]);
        let found = measure(&batch_of(Codec::Snappy, &block, 2));
        assert_eq!(
            found.uncompressed,
            Some(Size::Exact(61 + record.len() as u64))
        );
        assert_eq!(found.records, Some(2), "{filler}");
    }
}

fn unsigned(mut n: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
    out
}

fn literal(block: &mut Vec<u8>, bytes: &[u8]) {
    block.push((63 << 2) as u8);
    block.extend((bytes.len() as u32 - 1).to_le_bytes());
    block.extend(bytes);
}

#[test]
fn every_snappy_copy_of_every_offset_and_length_is_what_a_bare_decoder_makes() {
    for offset in 1..=80usize {
        for length in 1..=64usize {
            let seed = noise(offset as u64, 80);
            let mut block = unsigned(80 + length + 1);
            literal(&mut block, &seed);
            block.push(((length - 1) << 2) as u8 | 2);
            block.extend((offset as u16).to_le_bytes());
            literal(&mut block, b"!");
            let expected = snap::raw::Decoder::new().decompress_vec(&block).unwrap();
            assert_eq!(
                super::pieces::decoded(Codec::Snappy, &block),
                expected,
                "{offset} {length}"
            );
        }
    }
}

#[test]
fn lz4_frames_of_every_block_size_with_and_without_checksums_are_read() {
    let (content, _) = content();
    for size in [
        BlockSize::Max64KB,
        BlockSize::Max256KB,
        BlockSize::Max1MB,
        BlockSize::Max4MB,
    ] {
        for block_checksums in [false, true] {
            for content_checksum in [false, true] {
                for content_size in [None, Some(content.len() as u64)] {
                    let info = FrameInfo::new()
                        .block_size(size)
                        .block_mode(BlockMode::Independent)
                        .block_checksums(block_checksums)
                        .content_checksum(content_checksum)
                        .content_size(content_size);
                    let frame = lz4_with(&content, info);
                    reads(Codec::Lz4, &frame);
                    reads(
                        Codec::Lz4,
                        &[frame.as_slice(), b"bytes behind the end"].concat(),
                    );
                }
            }
        }
    }
}

#[test]
fn lz4_blocks_that_are_linked_are_refused_as_kafka_refuses_them() {
    let (content, _) = content();
    let info = FrameInfo::new()
        .block_size(BlockSize::Max64KB)
        .block_mode(BlockMode::Linked);
    fails(
        Codec::Lz4,
        &lz4_with(&content, info),
        DecodeError::Unsupported,
    );
}

#[test]
fn lz4_content_checksums_and_sizes_are_not_compared_with_anything() {
    let (content, _) = content();
    let info = FrameInfo::new()
        .block_size(BlockSize::Max64KB)
        .content_checksum(true);
    let mut frame = lz4_with(&content, info);
    let last = frame.len() - 1;
    frame[last] ^= 1;
    reads(Codec::Lz4, &frame);
    for claim in [0, 7, u64::MAX] {
        let info = FrameInfo::new().block_size(BlockSize::Max64KB);
        reads(Codec::Lz4, &lz4_claiming(&content, info, claim));
    }
    // But the checksum must be there.
    frame.pop();
    fails(Codec::Lz4, &frame, DecodeError::Truncated);
}

#[test]
fn lz4_block_and_header_checksums_are_compared() {
    let (content, _) = content();
    let info = FrameInfo::new()
        .block_size(BlockSize::Max64KB)
        .block_checksums(true);
    let frame = lz4_with(&content, info);
    let mut wrong = frame.clone();
    let last = wrong.len() - 5;
    wrong[last] ^= 1;
    fails(Codec::Lz4, &wrong, DecodeError::ChecksumMismatch);
    let mut wrong = frame;
    wrong[6] ^= 1;
    fails(Codec::Lz4, &wrong, DecodeError::ChecksumMismatch);
}

#[test]
fn zstd_frames_with_and_without_content_size_and_several_of_them_are_read() {
    let (content, _) = content();
    reads(Codec::Zstd, &zstd(&content));
    reads(Codec::Zstd, &zstd_sized(&content));
    let (a, b) = content.split_at(1_000);
    reads(Codec::Zstd, &[zstd(a), zstd_sized(b)].concat());
    let skippable = [
        &0x184d_2a53u32.to_le_bytes()[..],
        &5u32.to_le_bytes(),
        b"hello",
    ]
    .concat();
    reads(
        Codec::Zstd,
        &[
            skippable.clone(),
            zstd(a),
            skippable.clone(),
            zstd(b),
            skippable,
        ]
        .concat(),
    );
}

#[test]
fn zstd_windows_up_to_what_kafka_takes_are_read_and_larger_ones_are_not() {
    let (content, _) = content();
    for window_log in [10, 17, 23, 24, 27, 28, 31] {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
        encoder.window_log(window_log).unwrap();
        std::io::Write::write_all(&mut encoder, &content).unwrap();
        let frame = encoder.finish().unwrap();
        if window_log <= 27 {
            reads(Codec::Zstd, &frame);
        } else {
            fails(Codec::Zstd, &frame, DecodeError::WindowTooLarge);
        }
    }
}

#[test]
fn bytes_behind_a_zstd_frame_and_cut_frames_do_not_decode() {
    let (content, _) = content();
    let frame = zstd(&content);
    fails(
        Codec::Zstd,
        &[frame.as_slice(), b"garbage"].concat(),
        DecodeError::Corrupt,
    );
    for cut in [1, 3, 100] {
        fails(
            Codec::Zstd,
            &frame[..frame.len() - cut],
            DecodeError::Truncated,
        );
    }
}

/// Every kind of deflate block, and codes longer than a table shows: the symbols say as many bytes as come out.
#[test]
fn the_symbols_of_every_kind_of_gzip_member_say_what_comes_out() {
    use flate2::Compression;
    let skewed: Vec<u8> = (0..200_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761).leading_zeros() * 7) as u8)
        .collect();
    let contents = [
        Vec::new(),
        vec![7],
        vec![0; 1_000_000],
        text(1, 300_000),
        noise(2, 200_000),
        skewed,
        [text(3, 40_000), noise(4, 40_000), vec![b'A'; 40_000]].concat(),
        // Far more of some bytes than of others: codes of every length.
        (0..16u32)
            .flat_map(|n| vec![n as u8; 1 << n])
            .rev()
            .collect(),
        (0..16u32)
            .flat_map(|n| {
                noise(u64::from(n), 1 << n)
                    .into_iter()
                    .map(move |b| b & (n as u8))
            })
            .collect(),
    ];
    for content in &contents {
        for level in 0..=9 {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::new(level));
            // Flushed on the way: empty stored blocks between the others.
            for piece in content.chunks(50_000) {
                encoder.write_all(piece).unwrap();
                encoder.flush().unwrap();
            }
            let payload = encoder.finish().unwrap();
            let length = content.len() as u64;
            let scanned = |ceiling| scanned_bound(Codec::Gzip, &payload, ceiling);
            assert_eq!(
                scanned(length).map(|bound| bound.at_most),
                Some(length),
                "level {level} of {length}"
            );
            if length > 0 {
                assert_eq!(scanned(length - 1), None, "level {level} of {length}");
            }
            let two = [&payload[..], &gzip(content), b"\x09\x09\x01\0\0\0"].concat();
            let bound = scanned_bound(Codec::Gzip, &two, 2 * length + 6 * 1032).unwrap();
            assert!(bound.at_most >= 2 * length && !bound.is_exact, "{bound:?}");
        }
    }
}

#[test]
fn a_gzip_member_that_hides_behind_another_or_before_rubbish_is_found_by_its_symbols() {
    let bomb = gzip(&vec![0; 5_000_000]);
    for payload in [
        [gzip(b""), bomb.clone()].concat(),
        [bomb.clone(), gzip(b"small")].concat(),
        [
            bomb.clone(),
            b"rubbish that says it is small".to_vec(),
            vec![5, 0, 0, 0],
        ]
        .concat(),
    ] {
        assert!(payload.len() < 6_000);
        assert_eq!(scanned_bound(Codec::Gzip, &payload, 4 << 20), None);
    }
}
