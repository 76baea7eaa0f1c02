//! The walk over records that lie in memory as a whole: codec none.
//!
//! Reads as Kafka reads an uncompressed batch (`DefaultRecord.readFrom(ByteBuffer)`): each record's fields must
//! add up to its declared length, and nothing may follow the last one.

use std::ops::ControlFlow;

use super::estimate::{estimate, nullable_bytes};
use super::record::{RecordError, RecordSizes, signed, signed_long, varint_bytes};

/// Walks `count` records and says each one's sizes to `visit`, in order, until it breaks.
///
/// `Ok(Continue)`: all were visited and are the whole of `records`. The records before an error were visited.
pub fn walk_records(
    records: &[u8],
    count: u32,
    mut visit: impl FnMut(&RecordSizes) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, RecordError> {
    let mut rest = records;
    for _ in 0..count {
        let before = rest.len();
        let length = signed(varint(&mut rest)?);
        let length = usize::try_from(length).map_err(|_| RecordError::NegativeLength)?;
        let (mut body, behind) = rest
            .split_at_checked(length)
            .ok_or(RecordError::Truncated)?;
        rest = behind;
        let (mut sizes, _) = read_fields(&mut body)?;
        if !body.is_empty() {
            return Err(RecordError::LengthMismatch);
        }
        sizes.record_bytes = before.saturating_sub(rest.len()) as u64;
        if visit(&sizes).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    if rest.is_empty() {
        Ok(ControlFlow::Continue(()))
    } else {
        Err(RecordError::TrailingBytes)
    }
}

/// Where a record's fields stand, as the bytes that were left in front of each.
#[derive(Debug, Clone, Copy)]
pub(super) struct Places {
    pub(super) key_length: usize,
    pub(super) key: usize,
    pub(super) is_key_null: bool,
    pub(super) value_length: usize,
    pub(super) value: usize,
    pub(super) is_value_null: bool,
    pub(super) headers_count: usize,
    pub(super) headers: usize,
    pub(super) headers_declared: u32,
}

/// A record's fields behind its length; leaves `record_bytes` to the caller. Fields that run out of `bytes` are
/// [`RecordError::Truncated`]. Whoever wants sizes only pays for no places: they are known on the way.
#[inline(always)]
pub(super) fn read_fields(bytes: &mut &[u8]) -> Result<(RecordSizes, Places), RecordError> {
    skip(bytes, 1)?;
    let timestamp_delta = varlong(bytes)?;
    varint(bytes)?;
    let estimated = *bytes;
    let mut is_plain = true;
    let key_length_at = bytes.len();
    let key = length(bytes, &mut is_plain)?;
    let key_at = bytes.len();
    let key_bytes = skip_nullable(bytes, key)?;
    let value_length_at = bytes.len();
    let value = length(bytes, &mut is_plain)?;
    let value_at = bytes.len();
    let value_bytes = skip_nullable(bytes, value)?;
    let headers_count_at = bytes.len();
    let headers = length(bytes, &mut is_plain)?;
    let headers_at = bytes.len();
    let headers_bytes = match headers {
        0 => 0,
        _ => read_headers(bytes, headers, &mut is_plain)?,
    };
    // What the estimate counts stands there just so, if every length is written in the fewest bytes.
    let fields_bytes = if is_plain {
        estimated.len().saturating_sub(bytes.len()) as u64
    } else {
        fewest_bytes(estimated)?
    };
    let sizes = RecordSizes {
        record_bytes: 0,
        estimate_bytes: estimate(fields_bytes),
        key_bytes,
        value_bytes,
        headers_bytes,
        timestamp_delta,
    };
    let places = Places {
        key_length: key_length_at,
        key: key_at,
        is_key_null: key < 0,
        value_length: value_length_at,
        value: value_at,
        is_value_null: value < 0,
        headers_count: headers_count_at,
        headers: headers_at,
        headers_declared: headers.max(0).unsigned_abs(),
    };
    Ok((sizes, places))
}

/// All names and values of so many headers.
fn read_headers(bytes: &mut &[u8], count: i32, is_plain: &mut bool) -> Result<u64, RecordError> {
    let count = u32::try_from(count).map_err(|_| RecordError::NegativeLength)?;
    let mut total = 0u64;
    for _ in 0..count {
        let name = length(bytes, is_plain)?;
        if name < 0 {
            return Err(RecordError::NegativeLength);
        }
        let name_bytes = skip_nullable(bytes, name)?;
        let value = length(bytes, is_plain)?;
        let value_bytes = skip_nullable(bytes, value)?;
        total = total.saturating_add(name_bytes).saturating_add(value_bytes);
    }
    Ok(total)
}

/// Bytes that key, value and headers would take if every length were written in the fewest bytes, as Java counts
/// them. Reads what was read before.
#[cold]
fn fewest_bytes(mut fields: &[u8]) -> Result<u64, RecordError> {
    let bytes = &mut fields;
    let nullable = |bytes: &mut &[u8]| {
        let length = signed(varint(bytes)?);
        skip_nullable(bytes, length)?;
        Ok(nullable_bytes(length))
    };
    let mut total = nullable(bytes)?.saturating_add(nullable(bytes)?);
    let headers = signed(varint(bytes)?).max(0).unsigned_abs();
    total = total.saturating_add(varint_bytes(headers));
    for _ in 0..headers {
        total = total
            .saturating_add(nullable(bytes)?)
            .saturating_add(nullable(bytes)?);
    }
    Ok(total)
}

#[inline(always)]
fn skip(bytes: &mut &[u8], n: usize) -> Result<(), RecordError> {
    *bytes = bytes.get(n..).ok_or(RecordError::Truncated)?;
    Ok(())
}

/// Passes over what a nullable length counts: any negative length is null, as in Kafka.
#[inline(always)]
pub(super) fn skip_nullable(bytes: &mut &[u8], length: i32) -> Result<u64, RecordError> {
    if length <= 0 {
        return Ok(0);
    }
    let n = length.unsigned_abs();
    skip(bytes, n as usize)?;
    Ok(u64::from(n))
}

/// A length or a count. `is_plain` ends with the first that is longer than two bytes, or than it need be, or negative
/// and not −1.
#[inline(always)]
fn length(bytes: &mut &[u8], is_plain: &mut bool) -> Result<i32, RecordError> {
    match *bytes {
        [low @ 0..0x80, rest @ ..] => {
            *bytes = rest;
            let length = signed(u32::from(*low));
            *is_plain &= length >= -1;
            Ok(length)
        }
        [low, high @ 1..0x80, rest @ ..] => {
            *bytes = rest;
            let length = signed(u32::from(low & 0x7f) | u32::from(*high).wrapping_shl(7));
            *is_plain &= length >= 0;
            Ok(length)
        }
        _ => {
            *is_plain = false;
            long_varint(bytes).map(signed)
        }
    }
}

/// A VARINT before its zig-zag is undone: at most five bytes.
#[inline(always)]
pub(super) fn varint(bytes: &mut &[u8]) -> Result<u32, RecordError> {
    match *bytes {
        [low @ 0..0x80, rest @ ..] => {
            *bytes = rest;
            Ok(u32::from(*low))
        }
        [low, high @ 0..0x80, rest @ ..] => {
            *bytes = rest;
            Ok(u32::from(low & 0x7f) | u32::from(*high).wrapping_shl(7))
        }
        _ => long_varint(bytes),
    }
}

#[cold]
fn long_varint(bytes: &mut &[u8]) -> Result<u32, RecordError> {
    let mut value = 0u32;
    let mut rest = *bytes;
    for shift in [0u32, 7, 14, 21, 28] {
        let (&byte, behind) = rest.split_first().ok_or(RecordError::Truncated)?;
        rest = behind;
        value |= u32::from(byte & 0x7f).wrapping_shl(shift);
        if byte < 0x80 {
            *bytes = rest;
            return Ok(value);
        }
    }
    Err(RecordError::OverlongVarint)
}

/// A VARLONG: at most ten bytes.
#[inline(always)]
fn varlong(bytes: &mut &[u8]) -> Result<i64, RecordError> {
    match bytes.split_first() {
        Some((&byte, rest)) if byte < 0x80 => {
            *bytes = rest;
            Ok(signed_long(u64::from(byte)))
        }
        _ => long_varlong(bytes),
    }
}

fn long_varlong(bytes: &mut &[u8]) -> Result<i64, RecordError> {
    let mut value = 0u64;
    let mut rest = *bytes;
    for place in 0..10u32 {
        let (&byte, behind) = rest.split_first().ok_or(RecordError::Truncated)?;
        rest = behind;
        value |= u64::from(byte & 0x7f).wrapping_shl(place.saturating_mul(7));
        if byte < 0x80 {
            *bytes = rest;
            return Ok(signed_long(value));
        }
    }
    Err(RecordError::OverlongVarint)
}
