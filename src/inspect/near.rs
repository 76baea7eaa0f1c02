//! The gates at which a batch is within its limits, but near one: `near_limit` in the configuration.
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

/// The largest size that is not near `limit`; `u64::MAX` is no limit. The same comparison as
/// [`is_near`](crate::policy::TopicPolicy::is_near), for whole bytes.
pub(super) fn far_bytes(limit: u64, share: Option<f64>) -> u64 {
    match share {
        // A limit beyond 2^53 bytes is rounded. `as` saturates, and takes NaN for 0.
        Some(share) if limit != u64::MAX => ((limit as f64 * share).floor() as u64).min(limit),
        _ => u64::MAX,
    }
}
