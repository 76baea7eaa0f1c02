//! The walk over records that lie in memory as a whole: codec none.
//!
//! Reads as Kafka reads an uncompressed batch (`DefaultRecord.readFrom(ByteBuffer)`): each record's fields must
//! add up to its declared length, and nothing may follow the last one.

use std::ops::ControlFlow;

use super::record::{
    ESTIMATE_OVERHEAD_BYTES, RecordError, RecordSizes, nullable_bytes, signed, varint_bytes,
};

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
        let mut sizes = read_fields(&mut body)?;
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

/// A record's fields behind its length; leaves `record_bytes` to the caller. Fields that run out of `bytes` are
/// [`RecordError::Truncated`].
#[inline(always)]
pub(super) fn read_fields(bytes: &mut &[u8]) -> Result<RecordSizes, RecordError> {
    skip(bytes, 1)?;
    skip_varlong(bytes)?;
    varint(bytes)?;
    let key = signed(varint(bytes)?);
    let key_bytes = skip_nullable(bytes, key)?;
    let value = signed(varint(bytes)?);
    let value_bytes = skip_nullable(bytes, value)?;
    let headers = u32::try_from(signed(varint(bytes)?)).map_err(|_| RecordError::NegativeLength)?;
    let mut sizes = RecordSizes {
        record_bytes: 0,
        estimate_bytes: ESTIMATE_OVERHEAD_BYTES
            .saturating_add(nullable_bytes(key))
            .saturating_add(nullable_bytes(value))
            .saturating_add(varint_bytes(headers)),
        key_bytes,
        value_bytes,
        headers_bytes: 0,
    };
    if headers > 0 {
        read_headers(bytes, headers, &mut sizes)?;
    }
    Ok(sizes)
}

fn read_headers(bytes: &mut &[u8], count: u32, sizes: &mut RecordSizes) -> Result<(), RecordError> {
    for _ in 0..count {
        let name = signed(varint(bytes)?);
        let name_bytes = u64::try_from(name).map_err(|_| RecordError::NegativeLength)?;
        skip_nullable(bytes, name)?;
        let value = signed(varint(bytes)?);
        let value_bytes = skip_nullable(bytes, value)?;
        sizes.headers_bytes = sizes
            .headers_bytes
            .saturating_add(name_bytes)
            .saturating_add(value_bytes);
        sizes.estimate_bytes = sizes
            .estimate_bytes
            .saturating_add(nullable_bytes(name))
            .saturating_add(nullable_bytes(value));
    }
    Ok(())
}

#[inline(always)]
fn skip(bytes: &mut &[u8], n: usize) -> Result<(), RecordError> {
    *bytes = bytes.get(n..).ok_or(RecordError::Truncated)?;
    Ok(())
}

/// Passes over what a nullable length counts: any negative length is null, as in Kafka.
#[inline(always)]
fn skip_nullable(bytes: &mut &[u8], length: i32) -> Result<u64, RecordError> {
    if length <= 0 {
        return Ok(0);
    }
    let n = length.unsigned_abs();
    skip(bytes, n as usize)?;
    Ok(u64::from(n))
}

/// A VARINT before its zig-zag is undone: at most five bytes.
#[inline(always)]
fn varint(bytes: &mut &[u8]) -> Result<u32, RecordError> {
    match bytes.split_first() {
        Some((&byte, rest)) if byte < 0x80 => {
            *bytes = rest;
            Ok(u32::from(byte))
        }
        _ => long_varint(bytes),
    }
}

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

/// A VARLONG, passed over: at most ten bytes.
#[inline(always)]
fn skip_varlong(bytes: &mut &[u8]) -> Result<(), RecordError> {
    let head = bytes.get(..bytes.len().min(10)).unwrap_or_default();
    match head.iter().position(|byte| *byte < 0x80) {
        Some(last) => skip(bytes, last.saturating_add(1)),
        None if head.len() == 10 => Err(RecordError::OverlongVarint),
        None => Err(RecordError::Truncated),
    }
}
