//! Makes bombs: a gibibyte of zeros in every codec.

use std::io::Write;

use sizegate::policy::Codec;

use super::make::{XERIAL_HEADER, varint, xerial_chunk};

const GIBIBYTE: usize = 1 << 30;

/// A record that holds `zeros` zeros, before the zeros and behind them.
fn record_around(zeros: usize) -> (Vec<u8>, Vec<u8>) {
    let mut head = vec![0, 0, 0];
    head.extend(varint(-1));
    head.extend(varint(zeros as i64));
    let mut record = varint((head.len() + zeros + 1) as i64);
    record.extend(head);
    (record, vec![0])
}

/// Writes the record's pieces into an encoder.
fn write_record(out: &mut impl Write, zeros: usize) {
    let (head, tail) = record_around(zeros);
    out.write_all(&head).unwrap();
    let piece = vec![0; 1 << 20];
    for _ in 0..zeros / piece.len() {
        out.write_all(&piece).unwrap();
    }
    out.write_all(&tail).unwrap();
}

fn gzip_bomb() -> Vec<u8> {
    // Members of 4 MiB, repeated: to compress a gibibyte takes long.
    let (head, tail) = record_around(GIBIBYTE);
    let member = |write: &dyn Fn(&mut dyn Write)| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(1));
        write(&mut encoder);
        encoder.finish().unwrap()
    };
    let zeros = member(&|out| out.write_all(&vec![0; 4 << 20]).unwrap());
    let mut payload = member(&|out| out.write_all(&head).unwrap());
    for _ in 0..GIBIBYTE >> 22 {
        payload.extend(&zeros);
    }
    payload.extend(member(&|out| out.write_all(&tail).unwrap()));
    payload
}

fn zstd_bomb() -> Vec<u8> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
    write_record(&mut encoder, GIBIBYTE);
    encoder.finish().unwrap()
}

/// One frame: the head in a stored block, one compressed block of zeros again and again, the tail.
fn lz4_bomb() -> Vec<u8> {
    let (head, tail) = record_around(GIBIBYTE);
    let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73];
    let stored =
        |bytes: &[u8]| [&(bytes.len() as u32 | 0x8000_0000).to_le_bytes()[..], bytes].concat();
    let block = lz4_flex::block::compress(&vec![0; 4 << 20]);
    frame.extend(stored(&head));
    for _ in 0..GIBIBYTE >> 22 {
        frame.extend((block.len() as u32).to_le_bytes());
        frame.extend(&block);
    }
    frame.extend(stored(&tail));
    frame.extend([0; 4]);
    frame
}

fn xerial_bomb() -> Vec<u8> {
    let (head, tail) = record_around(GIBIBYTE);
    let mut payload = XERIAL_HEADER.to_vec();
    let zeros = xerial_chunk(&vec![0; 1 << 20]);
    payload.extend(xerial_chunk(&head));
    for _ in 0..GIBIBYTE >> 20 {
        payload.extend(&zeros);
    }
    payload.extend(xerial_chunk(&tail));
    payload
}

/// One raw block of a gibibyte: a literal, and copies of what is one byte back.
fn snappy_bomb() -> Vec<u8> {
    let (head, tail) = record_around(GIBIBYTE);
    let mut declared = head.len() + GIBIBYTE + tail.len();
    let mut block = Vec::new();
    while declared >= 0x80 {
        block.push(declared as u8 | 0x80);
        declared >>= 7;
    }
    block.push(declared as u8);
    let literal = [head.as_slice(), &[0; 64]].concat();
    block.push(60 << 2);
    block.push(literal.len() as u8 - 1);
    block.extend(literal);
    for _ in 0..GIBIBYTE / 64 - 1 {
        block.extend([(63 << 2) | 2, 1, 0]);
    }
    block.push(0);
    block.extend(tail);
    block
}

/// The payload of one record of a gibibyte, in the codecs that pack it into some megabytes at most.
pub fn small_bombs() -> [(Codec, Vec<u8>); 3] {
    [
        (Codec::Gzip, gzip_bomb()),
        (Codec::Zstd, zstd_bomb()),
        (Codec::Lz4, lz4_bomb()),
    ]
}

/// The same in snappy, 50 MB: in chunks, and in one block.
pub fn snappy_bombs() -> [(Codec, Vec<u8>); 2] {
    [
        (Codec::Snappy, xerial_bomb()),
        (Codec::Snappy, snappy_bomb()),
    ]
}
