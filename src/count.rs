//! Counts without overflow: a counter stops at the ends of its type. Invariant: depends on no other module.

/// An integer that counts.
pub(crate) trait Count: Sized {
    /// One more.
    fn increment(&mut self);

    /// One less.
    fn decrement(&mut self);

    /// So many more.
    fn increase_by(&mut self, n: Self);

    /// So many less. That there were fewer is a mistake of ours, which tests find.
    fn decrease_by(&mut self, n: Self);
}

macro_rules! counts {
    ($($integer:ty),+) => { $(
        impl Count for $integer {
            #[inline]
            fn increment(&mut self) {
                self.increase_by(1);
            }

            #[inline]
            fn decrement(&mut self) {
                self.decrease_by(1);
            }

            #[inline]
            fn increase_by(&mut self, n: Self) {
                *self = self.saturating_add(n);
            }

            #[inline]
            fn decrease_by(&mut self, n: Self) {
                debug_assert!(*self >= n, "{n} less than {self}");
                *self = self.saturating_sub(n);
            }
        }
    )+ };
}

counts!(u32, u64, usize);

/// The sum of all parts.
#[inline]
pub(crate) fn total<const N: usize>(parts: [usize; N]) -> usize {
    parts.into_iter().fold(0, usize::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_stops_at_the_ends_of_its_type() {
        let mut count = u32::MAX - 1;
        count.increment();
        assert_eq!(count, u32::MAX);
        count.increase_by(7);
        assert_eq!(count, u32::MAX);
        count.decrease_by(u32::MAX - 1);
        assert_eq!(count, 1);
        count.decrement();
        assert_eq!(count, 0);
        assert_eq!(total([1, 2, 3]), 6);
        assert_eq!(total([1, usize::MAX, 3]), usize::MAX);
    }

    #[test]
    #[should_panic(expected = "2 less than 1")]
    #[cfg(debug_assertions)]
    fn counting_below_nothing_is_found_by_tests() {
        let mut count = 1usize;
        count.decrease_by(2);
    }
}
