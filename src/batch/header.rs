//! The fixed head of a magic-2 record batch (`DefaultRecordBatch`).

use crate::vocabulary::Codec;
use crate::wire::record_batch::{BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES};
use crate::wire::{Malformed, Reader};

/// The fields before the first record, in their order: all of the 61 bytes, so that what was read can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record; 0 in Produce.
    pub base_offset: i64,
    /// Bytes behind this field.
    pub batch_length: i32,
    /// −1 in Produce; the broker's own otherwise.
    pub partition_leader_epoch: i32,
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
        Ok(Self {
            base_offset: r.int64("base_offset")?,
            batch_length: r.int32("batch_length")?,
            partition_leader_epoch: r.int32("partition_leader_epoch")?,
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

    /// The 61 bytes.
    pub fn write(&self) -> [u8; BATCH_HEADER_BYTES] {
        let mut bytes = [0; BATCH_HEADER_BYTES];
        let mut rest = &mut bytes[..];
        put(&mut rest, self.base_offset.to_be_bytes());
        put(&mut rest, self.batch_length.to_be_bytes());
        put(&mut rest, self.partition_leader_epoch.to_be_bytes());
        put(&mut rest, self.magic.to_be_bytes());
        put(&mut rest, self.crc.to_be_bytes());
        put(&mut rest, self.attributes.to_be_bytes());
        put(&mut rest, self.last_offset_delta.to_be_bytes());
        put(&mut rest, self.base_timestamp_ms.to_be_bytes());
        put(&mut rest, self.max_timestamp_ms.to_be_bytes());
        put(&mut rest, self.producer_id.to_be_bytes());
        put(&mut rest, self.producer_epoch.to_be_bytes());
        put(&mut rest, self.base_sequence.to_be_bytes());
        put(&mut rest, self.records_count.to_be_bytes());
        bytes
    }

    /// A stand-in for the largest message of an old message set, which has no header.
    pub const fn of_message(wire_bytes: u64, crc: u32, attributes: i16, messages: u32) -> Self {
        let length = wire_bytes.saturating_sub(LOG_OVERHEAD_BYTES as u64);
        Self {
            base_offset: 0,
            batch_length: if length > i32::MAX as u64 {
                i32::MAX
            } else {
                length as i32
            },
            partition_leader_epoch: -1,
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
        u64::from(self.batch_length.max(0).unsigned_abs()).saturating_add(LOG_OVERHEAD_BYTES as u64)
    }

    /// The codec; `None` for an id that no codec has.
    pub const fn codec(&self) -> Option<Codec> {
        Codec::from_attributes(self.attributes)
    }

    /// Part of a transaction.
    pub const fn is_transactional(&self) -> bool {
        self.attributes & 0x10 != 0
    }

    /// A marker of a transaction's end: its records are the broker's own.
    pub const fn is_control(&self) -> bool {
        self.attributes & 0x20 != 0
    }
}

/// Writes `field` to the front of what is left.
fn put<const N: usize>(rest: &mut &mut [u8], field: [u8; N]) {
    if let Some((front, behind)) = std::mem::take(rest).split_first_chunk_mut() {
        *front = field;
        *rest = behind;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::record_batch as at;

    /// Every byte another, so that a field in another's place shows.
    fn bytes() -> [u8; BATCH_HEADER_BYTES] {
        std::array::from_fn(|i| 0x80 + i as u8)
    }

    #[test]
    fn what_was_read_is_written_byte_for_byte() {
        let header = BatchHeader::read(&bytes()).unwrap();
        assert_eq!(header.write(), bytes());
        for cut in 0..BATCH_HEADER_BYTES {
            assert!(BatchHeader::read(&bytes()[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn the_table_of_places_is_that_of_the_fields() {
        let bytes = bytes();
        let header = BatchHeader::read(&bytes).unwrap();
        let int64 = |at: usize| i64::from_be_bytes(*bytes[at..].first_chunk().unwrap());
        let int32 = |at: usize| i32::from_be_bytes(*bytes[at..].first_chunk().unwrap());
        let int16 = |at: usize| i16::from_be_bytes(*bytes[at..].first_chunk().unwrap());
        assert_eq!(header.base_offset, int64(at::BASE_OFFSET_AT));
        assert_eq!(header.batch_length, int32(at::BATCH_LENGTH_AT));
        assert_eq!(
            header.partition_leader_epoch,
            int32(at::PARTITION_LEADER_EPOCH_AT)
        );
        assert_eq!(header.magic, bytes[at::MAGIC_AT].cast_signed());
        assert_eq!(header.crc, int32(at::CRC_AT).cast_unsigned());
        assert_eq!(header.attributes, int16(at::ATTRIBUTES_AT));
        assert_eq!(header.attributes as u8, bytes[at::ATTRIBUTES_LOW_AT]);
        assert_eq!(header.last_offset_delta, int32(at::LAST_OFFSET_DELTA_AT));
        assert_eq!(header.base_timestamp_ms, int64(at::BASE_TIMESTAMP_AT));
        assert_eq!(header.max_timestamp_ms, int64(at::MAX_TIMESTAMP_AT));
        assert_eq!(header.producer_id, int64(at::PRODUCER_ID_AT));
        assert_eq!(header.producer_epoch, int16(at::PRODUCER_EPOCH_AT));
        assert_eq!(header.base_sequence, int32(at::BASE_SEQUENCE_AT));
        assert_eq!(header.records_count, int32(at::RECORDS_COUNT_AT));
    }
}
