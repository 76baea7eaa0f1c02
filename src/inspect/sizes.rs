//! Record sizes of one batch, gathered by the bounds of the histograms, so that metrics take a batch at once.

use crate::batch::RecordSizes;

/// Bytes: powers of two from 256 B to 1 GiB, and 1,048,588 (the broker's default `message.max.bytes`) beside
/// 1,048,576, so that what fits a default broker is told from what does not.
pub(crate) const SIZE_BOUNDS_BYTES: [u64; 24] = [
    1 << 8,
    1 << 9,
    1 << 10,
    1 << 11,
    1 << 12,
    1 << 13,
    1 << 14,
    1 << 15,
    1 << 16,
    1 << 17,
    1 << 18,
    1 << 19,
    1 << 20,
    1_048_588,
    1 << 21,
    1 << 22,
    1 << 23,
    1 << 24,
    1 << 25,
    1 << 26,
    1 << 27,
    1 << 28,
    1 << 29,
    1 << 30,
];

const BOUNDS: usize = SIZE_BOUNDS_BYTES.len();
const SMALLEST_BITS: u32 = 8;
const MEBIBYTE: u64 = 1024 * 1024;
/// `message.max.bytes` by default: 1 MiB and the 12 bytes before a batch's length.
const BROKER_DEFAULT: u64 = MEBIBYTE + 12;
/// The place of `BROKER_DEFAULT` among the bounds.
const BROKER_DEFAULT_AT: usize = 13;

/// Sizes of one batch's records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// As encoded.
    pub record_bytes: SizesTally,
    /// As Java estimates.
    pub estimate_bytes: SizesTally,
    /// The largest key, value and headers; not of one and the same record.
    pub largest: LargestParts,
}

/// The largest of each part of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LargestParts {
    /// A key.
    pub key_bytes: u64,
    /// A value.
    pub value_bytes: u64,
    /// All header names and values of a record.
    pub headers_bytes: u64,
}

impl Sizes {
    #[inline]
    pub(super) fn record(&mut self, sizes: &RecordSizes) {
        self.record_bytes.add(sizes.record_bytes);
        self.estimate_bytes.add(sizes.estimate_bytes);
        let largest = &mut self.largest;
        largest.key_bytes = largest.key_bytes.max(sizes.key_bytes);
        largest.value_bytes = largest.value_bytes.max(sizes.value_bytes);
        largest.headers_bytes = largest.headers_bytes.max(sizes.headers_bytes);
    }

    pub(super) fn clear(&mut self) {
        if self.record_bytes.count > 0 {
            *self = Self::default();
        }
    }
}

/// How many sizes fell under each bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SizesTally {
    /// The last is of what exceeds every bound.
    under: [u32; BOUNDS + 1],
    count: u32,
    sum: u64,
    last: u64,
    largest: u64,
}

impl SizesTally {
    /// How many there are.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Their sum.
    pub const fn sum_bytes(&self) -> u64 {
        self.sum
    }

    /// The last one; 0 before the first.
    pub const fn last_bytes(&self) -> u64 {
        self.last
    }

    /// The largest; 0 before the first.
    pub const fn largest_bytes(&self) -> u64 {
        self.largest
    }

    /// Each bound with the number of sizes above the bound before and not above it; none for what exceeds all.
    pub fn by_bound(&self) -> impl Iterator<Item = (Option<u64>, u32)> {
        self.under
            .into_iter()
            .enumerate()
            .map(|(at, count)| (SIZE_BOUNDS_BYTES.get(at).copied(), count))
    }

    /// One more.
    #[inline]
    pub fn add(&mut self, bytes: u64) {
        self.add_times(bytes, 1);
    }

    /// One more that stands for so many, itself included.
    #[inline]
    pub fn add_times(&mut self, bytes: u64, times: u32) {
        if let Some(under) = self.under.get_mut(size_place(bytes)) {
            *under = under.saturating_add(times);
        }
        self.count = self.count.saturating_add(times);
        self.sum = self.sum.saturating_add(bytes.saturating_mul(times.into()));
        self.last = bytes;
        self.largest = self.largest.max(bytes);
    }
}

/// The place in [`SIZE_BOUNDS_BYTES`] of the smallest bound that a size does not exceed; behind its end, where there is
/// none.
#[inline]
pub(crate) fn size_place(bytes: u64) -> usize {
    let bits = 64u32.saturating_sub(bytes.saturating_sub(1).leading_zeros());
    let power = bits.saturating_sub(SMALLEST_BITS) as usize;
    let is_broker_default = bytes > MEBIBYTE && bytes <= BROKER_DEFAULT;
    let is_above = bytes > BROKER_DEFAULT;
    if is_broker_default {
        BROKER_DEFAULT_AT
    } else {
        power.saturating_add(usize::from(is_above)).min(BOUNDS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_falls_under_the_smallest_bound_that_it_does_not_exceed() {
        for (bytes, bound) in [
            (0, Some(256)),
            (256, Some(256)),
            (257, Some(512)),
            (1_048_576, Some(1_048_576)),
            (1_048_577, Some(1_048_588)),
            (1_048_588, Some(1_048_588)),
            (1_048_589, Some(2_097_152)),
            (1 << 30, Some(1 << 30)),
            ((1 << 30) + 1, None),
            (u64::MAX, None),
        ] {
            let mut tally = SizesTally::default();
            tally.add(bytes);
            let under: Vec<_> = tally.by_bound().filter(|(_, count)| *count > 0).collect();
            assert_eq!(under, [(bound, 1)], "{bytes}");
        }
    }

    #[test]
    fn bounds_of_size_classes_ascend() {
        let bounds: Vec<_> = SizesTally::default()
            .by_bound()
            .map_while(|(bound, _)| bound)
            .collect();
        assert_eq!(bounds.len(), BOUNDS);
        assert!(bounds.is_sorted_by(|a, b| a < b));
    }
}
