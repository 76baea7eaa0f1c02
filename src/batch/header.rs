//! The fixed head of a magic-2 record batch (`DefaultRecordBatch`).

use crate::policy::Codec;
use crate::wire::{Malformed, Reader};

/// Bytes of a magic-2 batch before its first record.
pub const BATCH_HEADER_BYTES: usize = 61;

/// Bytes of a batch that its length field does not count: base offset and the field itself.
pub(super) const LOG_OVERHEAD_BYTES: u64 = 12;

/// The fields before the first record, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record; 0 in Produce.
    pub base_offset: i64,
    /// Bytes behind this field.
    pub batch_length: i32,
    /// Format version; the other fields are only meaningful when it is 2.
    pub magic: i8,
    /// CRC-32C of everything from `attributes` on.
    pub crc: u32,
    /// Codec (bits 0–2), timestamp type (3), transactional (4), control (5), delete horizon (6).
    pub attributes: i16,
    /// Offset of the last record, relative.
    pub last_offset_delta: i32,
    /// Timestamp of the first record.
    pub base_timestamp_ms: i64,
    /// Largest timestamp.
    pub max_timestamp_ms: i64,
    /// −1 when not idempotent.
    pub producer_id: i64,
    /// −1 when not idempotent.
    pub producer_epoch: i16,
    /// −1 when not idempotent.
    pub base_sequence: i32,
    /// Declared number of records.
    pub records_count: i32,
}

impl BatchHeader {
    /// Reads the 61 bytes; says nothing of what follows them.
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let r = &mut Reader::new(bytes);
        let base_offset = r.int64("base_offset")?;
        let batch_length = r.int32("batch_length")?;
        r.int32("partition_leader_epoch")?;
        Ok(Self {
            base_offset,
            batch_length,
            magic: r.int8("magic")?,
            crc: r.uint32("crc")?,
            attributes: r.int16("attributes")?,
            last_offset_delta: r.int32("last_offset_delta")?,
            base_timestamp_ms: r.int64("base_timestamp")?,
            max_timestamp_ms: r.int64("max_timestamp")?,
            producer_id: r.int64("producer_id")?,
            producer_epoch: r.int16("producer_epoch")?,
            base_sequence: r.int32("base_sequence")?,
            records_count: r.int32("records_count")?,
        })
    }

    /// A stand-in for the largest message of an old message set, which has no header.
    pub const fn of_message(wire_bytes: u64, crc: u32, attributes: i16, messages: u32) -> Self {
        let length = wire_bytes.saturating_sub(LOG_OVERHEAD_BYTES);
        Self {
            base_offset: 0,
            batch_length: if length > i32::MAX as u64 {
                i32::MAX
            } else {
                length as i32
            },
            magic: 1,
            crc,
            attributes,
            last_offset_delta: 0,
            base_timestamp_ms: -1,
            max_timestamp_ms: -1,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records_count: if messages > i32::MAX as u32 {
                i32::MAX
            } else {
                messages as i32
            },
        }
    }

    /// What the broker compares with `max.message.bytes`: `DefaultRecordBatch.sizeInBytes`.
    pub fn wire_bytes(&self) -> u64 {
        u64::from(self.batch_length.max(0).unsigned_abs()).saturating_add(LOG_OVERHEAD_BYTES)
    }

    /// The codec; `None` for an id that no codec has.
    pub const fn codec(&self) -> Option<Codec> {
        Codec::from_attributes(self.attributes)
    }

    /// Part of a transaction.
    pub const fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }
}
