//! Estimates what a codec would make of a payload, by a sample of it: large uncompressed batches are worth a word to
//! their producer, pictures are not.
//!
//! Invariant: at most [`SAMPLE_BYTES`] are compressed, whatever the payload is, and at most as many decompressed.

use std::io::Write as _;
use std::ops::ControlFlow;

use super::{Decoders, Output};
use crate::vocabulary::Codec;

/// Bytes of a sample: lz4 and snappy take some hundredths of a millisecond for it, zstd about a tenth.
const SAMPLE_BYTES: usize = 32 * 1024;

/// Places of an uncompressed payload that a sample is taken from: its front alone may be a header of text before a
/// picture.
const PLACES: usize = 4;

/// What `with` saves of a sample of `payload`, in hundredths of it; 0 where it saves nothing. `None` where the payload
/// cannot be read, or `with` does not compress.
pub fn gain_percent(
    payload: &[u8],
    codec: Codec,
    with: Codec,
    decoders: &mut Decoders,
) -> Option<u64> {
    let sample = if codec == Codec::None {
        Sample(pieces_of(payload))
    } else {
        let mut sample = Sample(Vec::with_capacity(SAMPLE_BYTES));
        let front = decoders
            .decoder(codec, SAMPLE_BYTES as u64)
            .decode(payload, &mut sample);
        front.ok()?;
        sample
    };
    let whole = sample.0.len() as u64;
    let saved = whole.saturating_sub(compressed_bytes(&sample.0, with)?);
    saved.saturating_mul(100).checked_div(whole)
}

/// Equal pieces from all over the payload.
fn pieces_of(payload: &[u8]) -> Vec<u8> {
    if payload.len() <= SAMPLE_BYTES {
        return payload.to_vec();
    }
    let piece = SAMPLE_BYTES / PLACES;
    let step = payload.len() / PLACES;
    let pieces = payload.chunks(step.max(1)).take(PLACES);
    pieces
        .flat_map(|part| part.get(..piece).unwrap_or(part))
        .copied()
        .collect()
}

/// The size of `plain`, compressed as fast as the codec can.
fn compressed_bytes(plain: &[u8], with: Codec) -> Option<u64> {
    let bytes = match with {
        Codec::None => return None,
        Codec::Lz4 => lz4_flex::block::compress(plain).len(),
        Codec::Snappy => snap::raw::Encoder::new().compress_vec(plain).ok()?.len(),
        Codec::Zstd => zstd::bulk::compress(plain, 1).ok()?.len(),
        Codec::Gzip => {
            let level = flate2::Compression::fast();
            let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
            encoder.write_all(plain).ok()?;
            encoder.finish().ok()?.len()
        }
    };
    Some(bytes as u64)
}

struct Sample(Vec<u8>);

impl Output for Sample {
    fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        let room = SAMPLE_BYTES.saturating_sub(self.0.len());
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.0.extend_from_slice(taken);
        if self.0.len() < SAMPLE_BYTES {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes that nothing compresses (xorshift).
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut noise = Vec::with_capacity(bytes + 8);
        while noise.len() < bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            noise.extend_from_slice(&state.to_le_bytes());
        }
        noise.truncate(bytes);
        noise
    }

    #[test]
    fn noise_gains_nothing_and_text_does_with_every_codec() {
        let text: Vec<u8> = (0..20_000u32)
            .flat_map(|n| format!("{{\"order\":{n},\"state\":\"open\"}}\n").into_bytes())
            .collect();
        for with in [Codec::Lz4, Codec::Snappy, Codec::Zstd, Codec::Gzip] {
            let gain = |payload: &[u8]| {
                gain_percent(payload, Codec::None, with, &mut Decoders::default())
                    .expect("readable")
            };
            assert_eq!(gain(&noise(1 << 20)), 0, "{with}");
            assert!(gain(&text) >= 40, "{with}: {}", gain(&text));
        }
    }

    #[test]
    fn a_sample_is_taken_from_all_over_an_uncompressed_payload() {
        // A quarter of text before noise: by its front alone it would seem to shrink to nothing.
        let mut payload = vec![b' '; 100_000];
        payload.extend(noise(300_000));
        let gain = gain_percent(&payload, Codec::None, Codec::Lz4, &mut Decoders::default());
        let gain = gain.expect("readable");
        assert!((20..=30).contains(&gain), "{gain}");
    }

    #[test]
    fn what_is_compressed_is_judged_by_what_is_in_it() {
        let packed = |plain: &[u8]| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(plain).expect("memory");
            encoder.finish().expect("memory")
        };
        for (plain, least, most) in [(vec![7; 400_000], 90, 100), (noise(400_000), 0, 0)] {
            let gain = gain_percent(
                &packed(&plain),
                Codec::Gzip,
                Codec::Lz4,
                &mut Decoders::default(),
            );
            let gain = gain.expect("readable");
            assert!((least..=most).contains(&gain), "{gain}");
        }
        let broken = gain_percent(
            &[1, 2, 3],
            Codec::Gzip,
            Codec::Lz4,
            &mut Decoders::default(),
        );
        assert_eq!(broken, None);
        assert_eq!(
            gain_percent(&[], Codec::None, Codec::Lz4, &mut Decoders::default()),
            None
        );
    }
}
