//! Bounds a payload's decoded size by its headers alone.
//!
//! A bound is a proof only because the reader enforces it. Snappy and zstd declare sizes that their decoders
//! refuse to miss, so a payload that decodes at all decodes to just that (zstd's not always: `zstd.rs`); lz4 and zstd
//! blocks cannot exceed what their headers allow; deflate cannot exceed its highest ratio. gzip's own size field is no
//! bound, although Kafka's reader checks it: Kafka ignores bytes behind a member, so the last four bytes need not belong
//! to one, and only who reads all symbols before them knows. lz4's content size is no bound either: Kafka does not
//! compare it with anything.

use super::{DecodeError, Input, deflate, gzip, lz4, snappy, zstd};
use crate::vocabulary::Codec;

/// No more than so many bytes come out, or the payload does not decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpperBound {
    /// The most.
    pub at_most: u64,
    /// It is just as many, if the payload decodes.
    pub is_exact: bool,
}

/// What the headers say; reads headers only. `None` where they are not sound: a decode must tell.
pub fn upper_bound(codec: Codec, payload: &[u8]) -> Option<UpperBound> {
    match codec {
        Codec::None => Some(UpperBound {
            at_most: payload.len() as u64,
            is_exact: true,
        }),
        Codec::Gzip => Some(UpperBound {
            at_most: (payload.len() as u64).saturating_mul(deflate::MOST_PER_BYTE),
            is_exact: false,
        }),
        Codec::Snappy => snappy::declared(payload).ok(),
        Codec::Lz4 => lz4_bound(payload, |block, most| {
            Ok((block.len() as u64)
                .saturating_mul(lz4::MOST_PER_BYTE)
                .min(most))
        }),
        Codec::Zstd => zstd_bound(payload).ok(),
    }
}

/// A closer look where headers say too little, at a fraction of a decode's cost: lz4's tokens, gzip's symbols. `None`
/// where there is none to be had, or it says more than `ceiling`. It takes longer the longer the payload is:
/// [`scan_cost_bytes`].
pub fn scanned_bound(codec: Codec, payload: &[u8], ceiling: u64) -> Option<UpperBound> {
    match codec {
        Codec::Gzip => gzip::scan(payload, ceiling).ok().flatten(),
        Codec::Lz4 => scanned_lz4_bound(payload, ceiling),
        Codec::None | Codec::Snappy | Codec::Zstd => None,
    }
}

/// What a scan costs, as bytes of a gzip decode that would take as long; 0 where there is no scan.
pub const fn scan_cost_bytes(codec: Codec, payload: &[u8]) -> u64 {
    match codec {
        // 4.4 ns for a byte read, 2.5 for a byte made.
        Codec::Gzip => (payload.len() as u64).saturating_mul(2),
        Codec::Lz4 => payload.len() as u64 / 8,
        Codec::None | Codec::Snappy | Codec::Zstd => 0,
    }
}

fn scanned_lz4_bound(payload: &[u8], ceiling: u64) -> Option<UpperBound> {
    let mut left = ceiling;
    let bound = lz4_bound(payload, |block, most| {
        let bytes = lz4::scan_block(block, left)?.min(most);
        left = left.saturating_sub(bytes);
        Ok(bytes)
    })?;
    (bound.at_most <= ceiling).then_some(UpperBound {
        is_exact: true,
        ..bound
    })
}

fn lz4_bound(
    payload: &[u8],
    mut compressed: impl FnMut(&[u8], u64) -> Result<u64, DecodeError>,
) -> Option<UpperBound> {
    let input = &mut Input::new(payload);
    let frame = lz4::FrameHeader::read(input, true).ok()?;
    let mut bound = UpperBound {
        at_most: 0,
        is_exact: true,
    };
    while let Some(block) = frame.next_block(input).ok()? {
        let most = if block.is_stored {
            block.bytes.len() as u64
        } else {
            bound.is_exact = false;
            compressed(block.bytes, frame.max_block_bytes as u64).ok()?
        };
        bound.at_most = bound.at_most.saturating_add(most);
    }
    Some(bound)
}

fn zstd_bound(payload: &[u8]) -> Result<UpperBound, DecodeError> {
    let input = &mut Input::new(payload);
    let mut bound = UpperBound {
        at_most: 0,
        is_exact: true,
    };
    while !input.rest.is_empty() {
        let frame = zstd::read_frame(input)?;
        bound.is_exact &= frame.content_bytes.is_some();
        bound.at_most = bound
            .at_most
            .saturating_add(frame.content_bytes.unwrap_or(frame.blocks_at_most));
    }
    Ok(bound)
}
