//! Builds answers and rewritten frames. The counterpart of [`Reader`]: it can copy what a reader passes.

use super::{Malformed, Reader};

/// Appends Kafka's primitive types to a buffer.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty frame: its length prefix is set by [`Writer::into_frame`].
    pub fn frame(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity.saturating_add(4));
        bytes.extend_from_slice(&[0; 4]);
        Self { bytes }
    }

    /// A part of a frame, without a length prefix.
    pub fn part() -> Self {
        Self::default()
    }

    /// The frame with its length prefix.
    pub fn into_frame(mut self) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len().saturating_sub(4)).unwrap_or(u32::MAX);
        if let Some(prefix) = self.bytes.first_chunk_mut::<4>() {
            *prefix = length.to_be_bytes();
        }
        self.bytes
    }

    /// The bytes as they are.
    pub fn into_part(self) -> Vec<u8> {
        self.bytes
    }

    /// Bytes written so far.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Nothing written yet.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// INT16
    pub fn int16(&mut self, value: i16) {
        self.raw(&value.to_be_bytes());
    }

    /// INT32
    pub fn int32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    /// INT64
    pub fn int64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    /// UNSIGNED_VARINT
    pub fn unsigned_varint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.push((value & 0x7f) as u8 | 0x80);
            value = value.wrapping_shr(7);
        }
        self.bytes.push(value as u8);
    }

    /// The count of an ARRAY or COMPACT ARRAY.
    pub fn count(&mut self, flexible: bool, count: usize) {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        if flexible {
            self.unsigned_varint(count.saturating_add(1));
        } else {
            self.raw(&count.to_be_bytes());
        }
    }

    /// STRING or COMPACT STRING, nullable.
    pub fn string(&mut self, flexible: bool, value: Option<&[u8]>) {
        match (flexible, value) {
            (true, None) => self.unsigned_varint(0),
            (true, Some(bytes)) => {
                self.count(true, bytes.len());
                self.raw(bytes);
            }
            (false, None) => self.int16(-1),
            (false, Some(bytes)) => {
                self.int16(i16::try_from(bytes.len()).unwrap_or(i16::MAX));
                self.raw(bytes.get(..i16::MAX as usize).unwrap_or(bytes));
            }
        }
    }

    /// Copies what `pass` reads from `r`.
    pub fn copy<'a, T>(
        &mut self,
        r: &mut Reader<'a>,
        pass: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
    ) -> Result<T, Malformed> {
        let before = r.rest();
        let value = pass(r)?;
        let passed = before.len().saturating_sub(r.remaining());
        self.raw(before.get(..passed).unwrap_or(before));
        Ok(value)
    }
}
