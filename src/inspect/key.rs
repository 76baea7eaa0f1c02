//! The key of one record of a batch: which record it was that was refused, for those who ask (`refusals.record_key`).

use std::ops::ControlFlow;

use super::Scratch;
use crate::batch::{BATCH_HEADER_BYTES, BatchHeader, RecordStream};
use crate::codec::Output;
use crate::vocabulary::Codec;
use crate::wire::Reader;

/// A longer key is not read.
const MOST_KEY_BYTES: usize = 64 * 1024;

/// What stands before the key at most: length, attributes, timestamp delta, offset delta, key length.
const MOST_HEAD_BYTES: usize = 5 + 1 + 10 + 5 + 5;

/// Uncompressed bytes that are looked through for the record.
const MOST_DECODED_BYTES: u64 = 64 << 20;

/// The key of the record of this index; `None` where it is null, or cannot be read without much work.
pub fn key_of(
    header: &BatchHeader,
    batch: &[u8],
    index: u32,
    scratch: &mut Scratch,
) -> Option<Vec<u8>> {
    let payload = batch.get(BATCH_HEADER_BYTES..)?;
    let count = u32::try_from(header.records_count)
        .ok()
        .filter(|count| index < *count)?;
    let mut search = Search {
        stream: RecordStream::new(count),
        index,
        begins_at: 0,
        passed: 0,
        head: Vec::new(),
    };
    match header.codec().filter(|_| header.magic == 2)? {
        Codec::None => {
            let _ = search.piece(payload);
        }
        codec => {
            let decoder = scratch.decoders.decoder(codec, MOST_DECODED_BYTES);
            // What was found before an error is found all the same.
            let _ = decoder.decode(payload, &mut search);
        }
    }
    search.key()
}

/// Follows the records up to the one that is looked for, and keeps its beginning.
struct Search {
    stream: RecordStream,
    index: u32,
    /// Where the record begins in what is decoded, once all before it are complete.
    begins_at: u64,
    /// Bytes of earlier pieces.
    passed: u64,
    head: Vec<u8>,
}

impl Search {
    const MOST: usize = MOST_HEAD_BYTES + MOST_KEY_BYTES;

    /// Keeps what of this piece belongs to the record.
    fn keep(&mut self, piece: &[u8]) {
        let skipped =
            usize::try_from(self.begins_at.saturating_sub(self.passed)).unwrap_or(usize::MAX);
        let room = Self::MOST.saturating_sub(self.head.len());
        let here = piece.get(skipped..).unwrap_or_default();
        self.head
            .extend_from_slice(here.get(..room.min(here.len())).unwrap_or_default());
    }

    fn key(&self) -> Option<Vec<u8>> {
        let r = &mut Reader::new(&self.head);
        r.varint("length").ok()?;
        r.int8("attributes").ok()?;
        // A VARLONG.
        while r.int8("timestamp_delta").ok()? < 0 {}
        r.varint("offset_delta").ok()?;
        let length = usize::try_from(r.varint("key_length").ok()?).ok()?;
        let key = r.take(length, "key").ok()?;
        (length <= MOST_KEY_BYTES).then(|| key.to_vec())
    }
}

impl Output for Search {
    fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        let (index, mut complete) = (self.index, self.stream.complete_records());
        let mut begins_at = self.begins_at;
        let fed = self.stream.feed(bytes, |sizes| {
            if complete < index {
                begins_at = begins_at.saturating_add(sizes.record_bytes);
            }
            complete = complete.saturating_add(1);
            if complete > index {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        self.begins_at = begins_at;
        if complete >= index {
            self.keep(bytes);
        }
        self.passed = self.passed.saturating_add(bytes.len() as u64);
        if complete > index
            || self.head.len() >= Self::MOST
            || !matches!(fed, Ok(ControlFlow::Continue(())))
        {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
mod tests {
    use super::*;
    use crate::codec::{Encoder, Encoding};

    fn record(delta: i32, key: Option<&[u8]>, value_bytes: usize) -> Vec<u8> {
        let mut body = vec![0];
        // A timestamp delta of several bytes.
        crate::batch::put_varint(&mut body, 1 << 30);
        crate::batch::put_varint(&mut body, delta);
        crate::batch::put_varint(&mut body, key.map_or(-1, |key| key.len() as i32));
        body.extend_from_slice(key.unwrap_or_default());
        crate::batch::put_varint(&mut body, value_bytes as i32);
        body.extend(std::iter::repeat_n(b'v', value_bytes));
        crate::batch::put_varint(&mut body, 0);
        let mut record = Vec::new();
        crate::batch::put_varint(&mut record, body.len() as i32);
        record.extend(body);
        record
    }

    fn batch(codec: Codec, records: &[Vec<u8>]) -> (BatchHeader, Vec<u8>) {
        let plain = records.concat();
        let payload = match codec {
            Codec::None => plain,
            codec => {
                let mut encoder = Encoder::new(Encoding::of(codec, &[])).unwrap();
                encoder.write(&plain).unwrap();
                encoder.finish().unwrap()
            }
        };
        let header = BatchHeader {
            base_offset: 0,
            batch_length: (49 + payload.len()) as i32,
            partition_leader_epoch: -1,
            magic: 2,
            crc: 0,
            attributes: codec as i16,
            last_offset_delta: records.len() as i32 - 1,
            base_timestamp_ms: 0,
            max_timestamp_ms: 0,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records_count: records.len() as i32,
        };
        let bytes = [&header.write()[..], &payload].concat();
        (header, bytes)
    }

    #[test]
    fn each_records_key_is_found_in_every_codec_however_pieces_fall() {
        let keys: Vec<Option<Vec<u8>>> = (0..40)
            .map(|n: usize| (n % 5 != 4).then(|| format!("key-{n}").repeat(n * 20).into_bytes()))
            .collect();
        let records: Vec<Vec<u8>> = (0..)
            .zip(&keys)
            // The values of some are larger than a decoder's piece.
            .map(|(n, key)| record(n, key.as_deref(), (n as usize % 7) * 50_000))
            .collect();
        let mut scratch = Scratch::new();
        for codec in [
            Codec::None,
            Codec::Gzip,
            Codec::Snappy,
            Codec::Lz4,
            Codec::Zstd,
        ] {
            let (header, bytes) = batch(codec, &records);
            for (n, key) in (0..).zip(&keys) {
                assert_eq!(
                    key_of(&header, &bytes, n, &mut scratch),
                    *key,
                    "{codec}, {n}"
                );
            }
            assert_eq!(key_of(&header, &bytes, 40, &mut scratch), None);
        }
    }

    #[test]
    fn a_key_that_is_long_cut_or_not_there_is_none() {
        let mut scratch = Scratch::new();
        let long = vec![b'k'; MOST_KEY_BYTES + 1];
        let (header, bytes) = batch(Codec::None, &[record(0, Some(&long), 5)]);
        assert!(key_of(&header, &bytes, 0, &mut scratch).is_none());
        let most = &long[1..];
        let (header, bytes) = batch(Codec::None, &[record(0, Some(most), 5)]);
        assert!(key_of(&header, &bytes, 0, &mut scratch).unwrap() == most);
        for cut in 0..bytes.len().min(200) {
            assert_eq!(key_of(&header, &bytes[..cut], 0, &mut scratch), None);
        }
    }
}
