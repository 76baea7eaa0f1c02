//! Sizes of one record, and what can be wrong with it. Sizes only: no content is kept or copied.

use std::fmt;

use super::estimate::ESTIMATE_OVERHEAD_BYTES;

/// Sizes of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordSizes {
    /// As encoded, its length varint included.
    pub record_bytes: u64,
    /// What the Java producer would compare with `max.request.size` (`DefaultRecord.recordSizeUpperBound` + 61).
    pub estimate_bytes: u64,
    /// The key; 0 where it is null.
    pub key_bytes: u64,
    /// The value; 0 where it is null.
    pub value_bytes: u64,
    /// All header names and values, without their length varints.
    pub headers_bytes: u64,
    /// The timestamp, relative to the batch's base; of a message of magic 0 or 1 the timestamp itself.
    pub timestamp_delta: i64,
}

/// The records of one batch as Kafka writes them (`DefaultRecord.writeTo`, `MemoryRecordsBuilder`): timestamps relative to
/// the first record's, offsets 0, 1, 2 …, every number in the fewest bytes. A broker writes a batch again where the topic
/// has a `compression.type` of its own, and makes one of an old message set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rewritten {
    base_timestamp: Option<i64>,
    records: u32,
    records_bytes: u64,
}

impl Rewritten {
    /// What a record can grow by in a batch of so many: its timestamp delta from one byte to ten, its offset delta from
    /// one to the last one's, and its length by one.
    pub const fn most_growth_bytes(records: u32) -> u64 {
        varint_bytes(records).saturating_add(9)
    }

    /// The next record of a batch: its bytes.
    pub fn record(&mut self, sizes: &RecordSizes) -> u64 {
        self.add(
            sizes.estimate_bytes.saturating_sub(ESTIMATE_OVERHEAD_BYTES),
            sizes.timestamp_delta,
        )
    }

    /// The next message of an old set, or of what one wraps: its bytes as a record.
    pub fn message(&mut self, sizes: &RecordSizes) -> u64 {
        let of = |bytes: u64| {
            varint_bytes(u32::try_from(bytes).unwrap_or(u32::MAX)).saturating_add(bytes)
        };
        let fields_bytes = of(sizes.key_bytes)
            .saturating_add(of(sizes.value_bytes))
            .saturating_add(1);
        self.add(fields_bytes, sizes.timestamp_delta)
    }

    /// `fields_bytes`: key, value and headers with their lengths.
    fn add(&mut self, fields_bytes: u64, timestamp: i64) -> u64 {
        let base = *self.base_timestamp.get_or_insert(timestamp);
        let body_bytes = fields_bytes
            .saturating_add(1)
            .saturating_add(varlong_bytes(timestamp.wrapping_sub(base)))
            .saturating_add(varint_bytes(self.records));
        let length = u32::try_from(body_bytes).unwrap_or(u32::MAX);
        let bytes = varint_bytes(length).saturating_add(body_bytes);
        self.records = self.records.saturating_add(1);
        self.records_bytes = self.records_bytes.saturating_add(bytes);
        bytes
    }

    /// The batch with its header, uncompressed, as far as its records came.
    pub const fn batch_bytes(&self) -> u64 {
        self.records_bytes
            .saturating_add(super::BATCH_HEADER_BYTES as u64)
    }

    /// Records so far.
    pub const fn records(&self) -> u32 {
        self.records
    }
}

/// Why a record cannot be read. A fixed set: it is a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    /// The bytes end before the record, or before the declared number of records.
    Truncated,
    /// Bytes follow the last declared record.
    TrailingBytes,
    /// A varint of more bytes than its type has.
    OverlongVarint,
    /// A record, header count or header name of negative length.
    NegativeLength,
    /// The record's fields do not add up to its declared length.
    LengthMismatch,
}

impl RecordError {
    /// The metric label and log field.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Truncated => "truncated_records",
            Self::TrailingBytes => "trailing_bytes",
            Self::OverlongVarint => "overlong_varint",
            Self::NegativeLength => "negative_length",
            Self::LengthMismatch => "record_length_mismatch",
        }
    }
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl std::error::Error for RecordError {}

/// Bytes of a VARINT that holds a length of `n` (`ByteUtils.sizeOfVarint`).
pub(crate) const fn varint_bytes(n: u32) -> u64 {
    let zig_zag_bits = 33u32.saturating_sub((n | 1).leading_zeros());
    // Seven bits a byte: ceil(bits / 7) for 2..=33 bits.
    (zig_zag_bits.saturating_add(6) / 7) as u64
}

/// Appends a VARINT in the fewest bytes (`ByteUtils.writeVarint`).
pub fn put_varint(out: &mut Vec<u8>, value: i32) {
    let mut rest = value.wrapping_shl(1).cast_unsigned() ^ value.wrapping_shr(31).cast_unsigned();
    while rest > 0x7f {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest = rest.wrapping_shr(7);
    }
    out.push(rest as u8);
}

/// Bytes of a VARLONG (`ByteUtils.sizeOfVarlong`).
const fn varlong_bytes(n: i64) -> u64 {
    let zig_zag = (n.wrapping_shl(1) ^ n.wrapping_shr(63)) as u64;
    let bits = 64u32.saturating_sub((zig_zag | 1).leading_zeros());
    (bits.saturating_add(6) / 7) as u64
}

/// Zig-zag.
pub(super) const fn signed_long(raw: u64) -> i64 {
    (raw.wrapping_shr(1) as i64) ^ (raw & 1).wrapping_neg() as i64
}

/// Zig-zag.
pub(super) const fn signed(raw: u32) -> i32 {
    (raw.wrapping_shr(1) as i32) ^ (raw & 1).wrapping_neg() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_varint_takes_a_byte_for_each_seven_bits_of_its_zig_zag_form() {
        for (n, bytes) in [
            (0, 1),
            (1, 1),
            (63, 1),
            (64, 2),
            (8_191, 2),
            (8_192, 3),
            (1_048_575, 3),
            (1_048_576, 4),
            (134_217_727, 4),
            (134_217_728, 5),
            (i32::MAX.unsigned_abs(), 5),
        ] {
            assert_eq!(varint_bytes(n), bytes, "{n}");
        }
    }

    #[test]
    fn a_varint_that_is_written_takes_those_bytes_and_is_read_back() {
        for n in [
            0,
            -1,
            1,
            63,
            64,
            -64,
            -65,
            8_191,
            8_192,
            1_048_576,
            i32::MAX,
            i32::MIN,
        ] {
            let mut out = Vec::new();
            put_varint(&mut out, n);
            if let Ok(n) = u32::try_from(n) {
                assert_eq!(out.len() as u64, varint_bytes(n), "{n}");
            }
            assert_eq!(crate::wire::Reader::new(&out).varint("n"), Ok(n));
        }
    }

    #[test]
    fn a_varlong_takes_a_byte_for_each_seven_bits_of_its_zig_zag_form() {
        for (n, bytes) in [
            (0, 1),
            (-1, 1),
            (63, 1),
            (-64, 1),
            (64, 2),
            (-65, 2),
            (1 << 40, 6),
            (i64::MAX, 10),
            (i64::MIN, 10),
        ] {
            assert_eq!(varlong_bytes(n), bytes, "{n}");
        }
    }

    #[test]
    fn rewritten_records_have_the_first_ones_timestamp_as_base_and_counted_offsets() {
        // No key, an empty value: 1 + 1 + 1 bytes of fields, 1 of attributes, 1 of length.
        let at = |timestamp_delta| RecordSizes {
            estimate_bytes: ESTIMATE_OVERHEAD_BYTES + 3,
            timestamp_delta,
            ..RecordSizes::default()
        };
        let mut rewritten = Rewritten::default();
        assert_eq!(rewritten.record(&at(-(1 << 40))), 7);
        assert_eq!(rewritten.record(&at(0)), 7 + 5);
        for _ in 2..64 {
            rewritten.record(&at(0));
        }
        assert_eq!(rewritten.record(&at(-(1 << 40))), 7 + 1);
        assert_eq!(rewritten.batch_bytes(), 61 + 7 + 63 * 12 + 8);
        assert_eq!(rewritten.records(), 65);
        for records in [1, 64, 65, 10_000] {
            assert!(Rewritten::most_growth_bytes(records) >= 9 + varint_bytes(records - 1));
        }
    }
}
