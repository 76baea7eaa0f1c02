//! Reads the prefix that a broker looks for in a batch or a message: offset, length and magic stand at the same places
//! in every format.

use crate::wire::record_batch::{BATCH_LENGTH_AT, LEAST_LENGTH, LOG_OVERHEAD_BYTES, MAGIC_AT};
use crate::wire::{Malformed, Reason};

/// What is there (`ByteBufferLogInputStream.nextBatch`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prefix {
    /// Nothing: it ends before its batch does.
    Cut,
    /// A batch of so many bytes, of magic 0, 1 or 2.
    Whole {
        /// Its format.
        magic: i8,
        /// All of it, offset and length included.
        bytes: usize,
    },
    /// A length or a magic that no batch has.
    Broken(Malformed),
    /// A length that overflows Java's int: an error that nobody foresaw, and the whole request fails.
    Overflowing,
}

/// Looks for a batch at the front of `bytes`.
pub fn prefix(bytes: &[u8]) -> Prefix {
    let Some(length) = bytes.get(BATCH_LENGTH_AT..).and_then(<[u8]>::first_chunk) else {
        return Prefix::Cut;
    };
    let length = i32::from_be_bytes(*length);
    if length < LEAST_LENGTH {
        return Prefix::Broken(Malformed::new("message_size", Reason::InvalidValue));
    }
    let Some(&[magic]) = bytes.get(MAGIC_AT..).and_then(<[u8]>::first_chunk) else {
        return Prefix::Cut;
    };
    if !matches!(magic, 0..=2) {
        return Prefix::Broken(Malformed::new("magic", Reason::InvalidValue));
    }
    let whole = length
        .checked_add(LOG_OVERHEAD_BYTES as i32)
        .and_then(|whole| usize::try_from(whole).ok());
    match whole {
        None => Prefix::Overflowing,
        Some(whole) if whole > bytes.len() => Prefix::Cut,
        Some(whole) => Prefix::Whole {
            magic: i8::from_be_bytes([magic]),
            bytes: whole,
        },
    }
}
