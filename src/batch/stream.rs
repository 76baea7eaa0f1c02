//! The walk over records that arrive in pieces from a decoder.
//!
//! Reads as the broker reads a compressed batch (`DefaultRecord.readPartiallyFrom(InputStream)`): field by field,
//! so that the fields and not the declared record length say where a record ends. A record is never held: what
//! is kept between two pieces is a few counters.

use std::ops::ControlFlow;

use super::estimate::{ESTIMATE_OVERHEAD_BYTES, nullable_bytes};
use super::record::{RecordError, RecordSizes, signed, signed_long, varint_bytes};
use super::walk::read_fields;

/// What comes next in the record that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Length,
    Attributes,
    TimestampDelta,
    OffsetDelta,
    KeyLength,
    Key,
    ValueLength,
    Value,
    HeadersCount,
    HeaderNameLength,
    HeaderName,
    HeaderValueLength,
    HeaderValue,
}

/// Walks a declared number of records through pieces of any size.
#[derive(Debug)]
pub struct RecordStream {
    declared: u32,
    complete: u32,
    field: Field,
    /// Bits gathered of the varint that is being read.
    varint: u32,
    varlong: u64,
    varint_bytes: u32,
    /// Bytes of the key, value or header that are still to come.
    to_skip: u32,
    headers_left: u32,
    /// The record that is being read; lengths as declared.
    current: RecordSizes,
}

impl RecordStream {
    /// Expects `count` records.
    pub const fn new(count: u32) -> Self {
        Self {
            declared: count,
            complete: 0,
            field: Field::Length,
            varint: 0,
            varlong: 0,
            varint_bytes: 0,
            to_skip: 0,
            headers_left: 0,
            current: FRESH,
        }
    }

    /// Records read to their end so far.
    pub const fn complete_records(&self) -> u32 {
        self.complete
    }

    /// All declared records are read.
    pub const fn is_complete(&self) -> bool {
        self.complete == self.declared
    }

    /// Sizes seen so far of the record that is being read: each a lower bound of what it will be.
    pub fn partial(&self) -> RecordSizes {
        let mut seen = self.current;
        let missing = u64::from(self.to_skip);
        match self.field {
            Field::Key => seen.key_bytes = seen.key_bytes.saturating_sub(missing),
            Field::Value => seen.value_bytes = seen.value_bytes.saturating_sub(missing),
            Field::HeaderName | Field::HeaderValue => {
                seen.headers_bytes = seen.headers_bytes.saturating_sub(missing);
            }
            _ => {}
        }
        seen.estimate_bytes = seen.estimate_bytes.saturating_sub(missing);
        seen
    }

    /// The record that is being read, as large as the field in hand says that it will be at least; `None` between records.
    pub fn begun(&self) -> Option<RecordSizes> {
        let mut begun = self.current;
        begun.record_bytes = begun.record_bytes.saturating_add(self.to_skip.into());
        (begun.record_bytes > 0 && !self.is_complete()).then_some(begun)
    }

    /// Reads the next piece; says each record that ends in it to `visit`, until it breaks.
    pub fn feed(
        &mut self,
        mut piece: &[u8],
        mut visit: impl FnMut(&RecordSizes) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, RecordError> {
        while !piece.is_empty() {
            if self.is_complete() {
                return Err(RecordError::TrailingBytes);
            }
            let is_whole = self.field == Field::Length
                && self.varint_bytes == 0
                && self.read_whole(&mut piece)?;
            if !is_whole && self.read_part(&mut piece)?.is_continue() {
                continue;
            }
            self.complete = self.complete.saturating_add(1);
            let sizes = std::mem::replace(&mut self.current, FRESH);
            if visit(&sizes).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The decoder is where Kafka's reader sees an end of data that is none (an empty lz4 block). Within a key, a
    /// value or a header it tries again; before any other byte it takes the end, −1, for a byte: 0xFF. Call this
    /// only while records are missing.
    pub fn feed_false_end(&mut self) -> Result<(), RecordError> {
        if self.to_skip == 0 {
            // No record ends with such a byte: it would need another one.
            let _ = self.read_byte(0xff)?;
        }
        Ok(())
    }

    /// Nothing more comes.
    pub const fn finish(&self) -> Result<(), RecordError> {
        if self.is_complete() {
            Ok(())
        } else {
            Err(RecordError::Truncated)
        }
    }

    /// The fast way: a record that lies in the piece as a whole. False, and nothing read, where it does not.
    #[inline]
    fn read_whole(&mut self, piece: &mut &[u8]) -> Result<bool, RecordError> {
        let mut rest = *piece;
        let length_bytes = rest.iter().take(5).position(|byte| *byte < 0x80);
        let Some(last) = length_bytes else {
            // Overlong or cut: the slow way tells which.
            return Ok(false);
        };
        rest = rest.get(last.saturating_add(1)..).unwrap_or_default();
        match read_fields(&mut rest) {
            Ok((sizes, _)) => {
                self.current = sizes;
                self.current.record_bytes = piece.len().saturating_sub(rest.len()) as u64;
                *piece = rest;
                Ok(true)
            }
            Err(RecordError::Truncated) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The slow way: field by field, as far as the piece goes. Breaks at the end of a record.
    fn read_part(&mut self, piece: &mut &[u8]) -> Result<ControlFlow<()>, RecordError> {
        loop {
            if self.to_skip > 0 {
                self.skip(piece);
                if self.to_skip > 0 {
                    return Ok(ControlFlow::Continue(()));
                }
                if self.leave_skipped() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            let Some((&byte, rest)) = piece.split_first() else {
                return Ok(ControlFlow::Continue(()));
            };
            *piece = rest;
            self.current.record_bytes = self.current.record_bytes.saturating_add(1);
            if self.read_byte(byte)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }

    fn skip(&mut self, piece: &mut &[u8]) {
        let here = piece.len().min(self.to_skip as usize);
        *piece = piece.get(here..).unwrap_or_default();
        self.to_skip = self.to_skip.saturating_sub(here as u32);
        self.current.record_bytes = self.current.record_bytes.saturating_add(here as u64);
    }

    /// One byte of a field that is not skipped. Breaks at the end of a record.
    fn read_byte(&mut self, byte: u8) -> Result<ControlFlow<()>, RecordError> {
        match self.field {
            Field::Attributes => self.field = Field::TimestampDelta,
            Field::TimestampDelta => {
                self.varlong |=
                    u64::from(byte & 0x7f).wrapping_shl(self.varint_bytes.saturating_mul(7));
                self.varint_bytes = self.varint_bytes.saturating_add(1);
                if byte < 0x80 {
                    self.current.timestamp_delta = signed_long(self.varlong);
                    self.varlong = 0;
                    self.varint_bytes = 0;
                    self.field = Field::OffsetDelta;
                } else if self.varint_bytes == 10 {
                    return Err(RecordError::OverlongVarint);
                }
            }
            _ => {
                self.varint |=
                    u32::from(byte & 0x7f).wrapping_shl(self.varint_bytes.saturating_mul(7));
                self.varint_bytes = self.varint_bytes.saturating_add(1);
                if byte < 0x80 {
                    let value = signed(self.varint);
                    self.varint = 0;
                    self.varint_bytes = 0;
                    return self.take_varint(value);
                }
                if self.varint_bytes == 5 {
                    return Err(RecordError::OverlongVarint);
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A varint is whole. Breaks at the end of a record.
    fn take_varint(&mut self, value: i32) -> Result<ControlFlow<()>, RecordError> {
        let length = value.max(0).unsigned_abs();
        match self.field {
            Field::Length => self.field = Field::Attributes,
            Field::OffsetDelta => self.field = Field::KeyLength,
            Field::KeyLength => {
                self.current.key_bytes = u64::from(length);
                self.enter_skipped(Field::Key, value);
            }
            Field::ValueLength => {
                self.current.value_bytes = u64::from(length);
                self.enter_skipped(Field::Value, value);
            }
            Field::HeadersCount => {
                self.headers_left =
                    u32::try_from(value).map_err(|_| RecordError::NegativeLength)?;
                self.add_estimate(varint_bytes(self.headers_left));
                self.field = Field::HeaderNameLength;
                if self.headers_left == 0 {
                    return Ok(self.end_record());
                }
            }
            Field::HeaderNameLength => {
                if value < 0 {
                    return Err(RecordError::NegativeLength);
                }
                self.current.headers_bytes =
                    self.current.headers_bytes.saturating_add(u64::from(length));
                self.enter_skipped(Field::HeaderName, value);
            }
            Field::HeaderValueLength => {
                self.current.headers_bytes =
                    self.current.headers_bytes.saturating_add(u64::from(length));
                self.enter_skipped(Field::HeaderValue, value);
                if length == 0 && self.leave_skipped() {
                    return Ok(ControlFlow::Break(()));
                }
                return Ok(ControlFlow::Continue(()));
            }
            // Not varints; or skipped.
            Field::Attributes
            | Field::TimestampDelta
            | Field::Key
            | Field::Value
            | Field::HeaderName
            | Field::HeaderValue => {}
        }
        if self.to_skip == 0 && matches!(self.field, Field::Key | Field::Value | Field::HeaderName)
        {
            self.leave_skipped();
        }
        Ok(ControlFlow::Continue(()))
    }

    fn enter_skipped(&mut self, field: Field, length: i32) {
        self.field = field;
        self.to_skip = length.max(0).unsigned_abs();
        self.add_estimate(nullable_bytes(length));
    }

    /// The end of what was skipped; true at the end of a record.
    fn leave_skipped(&mut self) -> bool {
        self.field = match self.field {
            Field::Key => Field::ValueLength,
            Field::Value => Field::HeadersCount,
            Field::HeaderName => Field::HeaderValueLength,
            Field::HeaderValue => {
                self.headers_left = self.headers_left.saturating_sub(1);
                if self.headers_left == 0 {
                    return self.end_record().is_break();
                }
                Field::HeaderNameLength
            }
            other => other,
        };
        false
    }

    fn end_record(&mut self) -> ControlFlow<()> {
        self.field = Field::Length;
        ControlFlow::Break(())
    }

    fn add_estimate(&mut self, bytes: u64) {
        self.current.estimate_bytes = self.current.estimate_bytes.saturating_add(bytes);
    }
}

/// A record of which nothing is read yet.
const FRESH: RecordSizes = RecordSizes {
    record_bytes: 0,
    estimate_bytes: ESTIMATE_OVERHEAD_BYTES,
    key_bytes: 0,
    value_bytes: 0,
    headers_bytes: 0,
    timestamp_delta: 0,
};
