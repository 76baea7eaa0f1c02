//! Estimates a record as Java's producer does before it compares with `max.request.size`
//! (`AbstractRecords.estimateSizeInBytesUpperBound`): what is in it, and the most that may be around it.

use super::record::varint_bytes;
use crate::wire::record_batch::BATCH_HEADER_BYTES;

/// Bytes of a batch and of a record that `AbstractRecords.estimateSizeInBytesUpperBound` adds whatever the record
/// holds: the batch header and `DefaultRecord.MAX_RECORD_OVERHEAD`.
pub const ESTIMATE_OVERHEAD_BYTES: u64 = BATCH_HEADER_BYTES as u64 + 21;

/// What `estimate_bytes` can exceed `record_bytes` by: the overhead above, less the four bytes that length,
/// attributes, timestamp delta and offset delta take at least.
pub const ESTIMATE_SURPLUS_BYTES: u64 = ESTIMATE_OVERHEAD_BYTES - 4;

/// The estimate of a record whose key, value and headers take so many bytes, their lengths included.
pub(crate) const fn estimate(fields_bytes: u64) -> u64 {
    ESTIMATE_OVERHEAD_BYTES.saturating_add(fields_bytes)
}

/// Bytes that a nullable length and what it counts take in the estimate.
pub(super) const fn nullable_bytes(length: i32) -> u64 {
    if length < 0 {
        return 1;
    }
    let n = length.unsigned_abs();
    varint_bytes(n).saturating_add(n as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_of_kafkas_own_examples_is_exact() {
        // Keys `k-65536` and `k-1048576`, no headers: values of 65,536 and 1,048,576 bytes.
        for (key, value, estimate) in [(7, 65_536, 65_630), (9, 1_048_576, 1_048_673)] {
            let fields = nullable_bytes(key) + nullable_bytes(value) + varint_bytes(0);
            assert_eq!(super::estimate(fields), estimate);
        }
    }
}
