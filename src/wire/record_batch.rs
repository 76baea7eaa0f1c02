//! Names where the fields of a record batch stand: one table for everyone who reads, writes or passes over those bytes.
//!
//! Magic 2 (`DefaultRecordBatch`). Base offset, length and magic stand at the same places in every format.

/// `baseOffset`, int64.
pub const BASE_OFFSET_AT: usize = 0;
/// `batchLength`, int32: bytes behind this field.
pub const BATCH_LENGTH_AT: usize = 8;
/// `partitionLeaderEpoch`, int32. In older formats the CRC.
pub const PARTITION_LEADER_EPOCH_AT: usize = 12;
/// `magic`, int8.
pub const MAGIC_AT: usize = 16;
/// `crc`, uint32.
pub const CRC_AT: usize = 17;
/// `attributes`, int16: the first byte that the CRC covers.
pub const ATTRIBUTES_AT: usize = 21;
/// The byte of `attributes` that has all bits in use: codec (0–2), timestamp type (3), transactional (4), control
/// (5), delete horizon (6).
pub const ATTRIBUTES_LOW_AT: usize = 22;
/// `lastOffsetDelta`, int32.
pub const LAST_OFFSET_DELTA_AT: usize = 23;
/// `baseTimestamp`, int64.
pub const BASE_TIMESTAMP_AT: usize = 27;
/// `maxTimestamp`, int64.
pub const MAX_TIMESTAMP_AT: usize = 35;
/// `producerId`, int64.
pub const PRODUCER_ID_AT: usize = 43;
/// `producerEpoch`, int16.
pub const PRODUCER_EPOCH_AT: usize = 51;
/// `baseSequence`, int32.
pub const BASE_SEQUENCE_AT: usize = 53;
/// `recordsCount`, int32.
pub const RECORDS_COUNT_AT: usize = 57;
/// Bytes of a batch before its first record (`RECORD_BATCH_OVERHEAD`).
pub const BATCH_HEADER_BYTES: usize = 61;

/// Bytes of a batch that its length field does not count: base offset and the field itself (`LOG_OVERHEAD`).
pub const LOG_OVERHEAD_BYTES: usize = PARTITION_LEADER_EPOCH_AT;
/// What must be here to tell a batch's length and format (`HEADER_SIZE_UP_TO_MAGIC`).
pub const UP_TO_MAGIC_BYTES: usize = CRC_AT;
/// The least that a length field can say: of a message of magic 0 its CRC, magic, attributes, key length and value
/// length (`LegacyRecord.RECORD_OVERHEAD_V0`).
pub const LEAST_LENGTH: i32 = 14;
