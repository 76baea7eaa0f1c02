//! Quantiles of sizes in bounded memory: each size to within a sixty-fourth of itself, the largest exactly.

use crate::inspect::{SIZE_BOUNDS_BYTES, size_place};

/// Buckets for each doubling: the bound of a bucket is at most 1/64 above what is in it.
const STEPS_BITS: u32 = 6;
const STEPS: u64 = 1 << STEPS_BITS;

/// How many sizes there were, of which size.
#[derive(Debug, Clone, Default)]
pub(super) struct Sketch {
    /// By [`place`]; as long as the largest needs: under 2,000.
    counts: Vec<u64>,
    count: u64,
    largest: u64,
    /// How many are within each of [`SIZE_BOUNDS_BYTES`] and no smaller one; exact, for `suggest` goes by these.
    bounded: [u64; SIZE_BOUNDS_BYTES.len()],
}

/// Below 128 each size has a bucket; above, each doubling has 64.
fn place(bytes: u64) -> usize {
    let bits = u64::BITS.saturating_sub(bytes.leading_zeros());
    let shift = bits.saturating_sub(STEPS_BITS.saturating_add(1));
    let step = bytes.wrapping_shr(shift);
    let place = u64::from(shift).saturating_mul(STEPS).saturating_add(step);
    usize::try_from(place).unwrap_or(usize::MAX)
}

/// The largest size of a bucket.
fn bound(place: u64) -> u64 {
    if place < STEPS.saturating_mul(2) {
        return place;
    }
    let shift = (place / STEPS).saturating_sub(1);
    let step = place.saturating_sub(shift.saturating_mul(STEPS));
    let next = step.saturating_add(1);
    let shift = u32::try_from(shift).unwrap_or(u32::MAX);
    next.checked_shl(shift)
        .map_or(u64::MAX, |next| next.saturating_sub(1))
}

impl Sketch {
    pub(super) fn add(&mut self, bytes: u64) {
        // No batch or record is larger than what a length field says; what is decoded may be.
        let at = place(bytes.min(1 << 40));
        if at >= self.counts.len() {
            self.counts.resize(at.saturating_add(1), 0);
        }
        if let Some(count) = self.counts.get_mut(at) {
            *count = count.saturating_add(1);
        }
        if let Some(count) = self.bounded.get_mut(size_place(bytes)) {
            *count = count.saturating_add(1);
        }
        self.count = self.count.saturating_add(1);
        self.largest = self.largest.max(bytes);
    }

    /// The sizes of another, too.
    pub(super) fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        let counts = self.counts.iter_mut().zip(&other.counts);
        let bounded = self.bounded.iter_mut().zip(&other.bounded);
        for (ours, theirs) in counts.chain(bounded) {
            *ours = ours.saturating_add(*theirs);
        }
        self.count = self.count.saturating_add(other.count);
        self.largest = self.largest.max(other.largest);
    }

    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    pub(super) const fn largest(&self) -> u64 {
        self.largest
    }

    /// A size that so many in a thousand are at most: at most 1/64 too large.
    pub(super) fn per_mille(&self, per_mille: u64) -> u64 {
        let wanted = self.count.saturating_mul(per_mille).div_ceil(1000).max(1);
        let mut seen = 0u64;
        for (place, count) in (0..).zip(&self.counts) {
            seen = seen.saturating_add(*count);
            if seen >= wanted {
                return bound(place).min(self.largest);
            }
        }
        self.largest
    }

    /// How many are at most each of [`SIZE_BOUNDS_BYTES`].
    pub(super) fn at_most(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let running = self.bounded.iter().scan(0u64, |sum, count| {
            *sum = sum.saturating_add(*count);
            Some(*sum)
        });
        SIZE_BOUNDS_BYTES.into_iter().zip(running)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_in_a_bucket_that_is_at_most_a_sixty_fourth_too_large() {
        let mut last = 0;
        for bytes in (0..5_000).chain((13..40).flat_map(|bits| {
            let power = 1u64 << bits;
            [power - 1, power, power + 1, power + power / 3]
        })) {
            let bound = bound(place(bytes) as u64);
            assert!(
                bound >= bytes && bound - bytes <= bytes / 64,
                "{bytes} {bound}"
            );
            assert!(place(bytes) < 2_500);
            assert!(place(bytes) >= place(last));
            last = bytes;
        }
    }

    #[test]
    fn two_sketches_make_the_one_of_all_sizes() {
        let (mut all, mut odd, mut even) = <(Sketch, Sketch, Sketch)>::default();
        for n in 0..3_000u64 {
            let bytes = n * n * 7;
            all.add(bytes);
            if n % 2 == 0 { &mut even } else { &mut odd }.add(bytes);
        }
        even.merge(&odd);
        assert_eq!((even.count(), even.largest()), (3_000, 2_999 * 2_999 * 7));
        for per_mille in [1, 500, 990, 1000] {
            assert_eq!(even.per_mille(per_mille), all.per_mille(per_mille));
        }
        assert!(even.at_most().eq(all.at_most()));
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_sizes() {
        let mut sketch = Sketch::default();
        let sizes: Vec<u64> = (1..=10_000).map(|n| n * 37 % 10_007).collect();
        sizes.iter().for_each(|bytes| sketch.add(*bytes));
        let mut sorted = sizes;
        sorted.sort_unstable();
        for per_mille in [1, 500, 900, 990, 999, 1000] {
            let exact = sorted[(sorted.len() as u64 * per_mille).div_ceil(1000) as usize - 1];
            let found = sketch.per_mille(per_mille);
            assert!(
                found >= exact && found - exact <= exact / 64,
                "{per_mille}: {exact} {found}"
            );
        }
        assert_eq!(
            (sketch.count(), sketch.per_mille(1000)),
            (10_000, sketch.largest())
        );
        assert_eq!(Sketch::default().per_mille(500), 0);
        for (bound, at_most) in sketch.at_most() {
            let within = sorted.iter().filter(|bytes| **bytes <= bound).count() as u64;
            assert_eq!(at_most, within, "{bound}");
        }
    }
}
