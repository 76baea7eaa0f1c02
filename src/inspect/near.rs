//! Notes the gates at which a batch is within its limits, but near one: `near_limit` in the configuration.
//!
//! Invariant: every gate inside a batch is noticed here and nowhere else, so that what counts as near does not depend
//! on the codec, nor on what else is measured.

use crate::vocabulary::Gate;

/// A set of gates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NearGates(u16);

impl NearGates {
    /// At no gate.
    pub const NONE: Self = Self(0);

    pub(super) const fn with(self, gate: Gate) -> Self {
        Self(self.0 | 1 << gate as u16)
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether a size was near this gate's limit.
    pub const fn has(self, gate: Gate) -> bool {
        self.0 & (1 << gate as u16) != 0
    }

    /// The gates, in their order.
    pub fn gates(self) -> impl Iterator<Item = Gate> {
        Gate::ALL
            .iter()
            .copied()
            .filter(move |gate| self.has(*gate))
    }
}

/// A size that is within the limit, but above the share of it that counts as near.
pub(crate) fn is_near(size: u64, limit: u64, share: f64) -> bool {
    size <= limit && size as f64 > limit as f64 * share
}

/// The largest size that [`is_near`] does not take; `u64::MAX` is no limit.
pub(super) fn far_bytes(limit: u64, share: Option<f64>) -> u64 {
    match share {
        // A limit beyond 2^53 bytes is rounded. `as` saturates, and takes NaN for 0.
        Some(share) if limit != u64::MAX => ((limit as f64 * share).floor() as u64).min(limit),
        _ => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_byte_after_what_is_far_is_near_up_to_the_limit() {
        for limit in [1, 5, 999, 1_000, 65_536, 1_048_588, (1 << 40) + 7] {
            for share in [0.0, 0.1, 0.5, 0.8, 0.999] {
                let far = far_bytes(limit, Some(share));
                assert!(!is_near(far, limit, share), "{limit} {share}");
                assert!(is_near(far + 1, limit, share), "{limit} {share}");
                assert!(is_near(limit, limit, share), "{limit} {share}");
                assert!(!is_near(limit + 1, limit, share), "{limit} {share}");
            }
            assert_eq!(far_bytes(limit, Some(1.0)), limit);
            assert_eq!(far_bytes(limit, None), u64::MAX);
        }
        assert_eq!(far_bytes(u64::MAX, Some(0.5)), u64::MAX);
    }
}
