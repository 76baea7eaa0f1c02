//! Says when something must be done, from how long it may take.

use std::time::Duration;

use tokio::time::Instant;

/// The longest that anything waits: the configuration takes no longer times than a year.
const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// The moment at which `patience` ends, from now.
pub(crate) fn deadline_in(patience: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(patience.min(YEAR)).unwrap_or(now)
}

/// An even share of `left` for each of so many that have yet to be tried.
pub(crate) fn share(left: Duration, untried: usize) -> Duration {
    let untried = u32::try_from(untried).unwrap_or(u32::MAX);
    left.checked_div(untried).unwrap_or(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_shared_evenly_and_the_last_gets_all() {
        let left = Duration::from_secs(9);
        assert_eq!(share(left, 3), Duration::from_secs(3));
        assert_eq!(share(left, 1), left);
        assert_eq!(share(left, 0), left);
    }

    #[test]
    fn no_patience_is_too_long_for_the_clock() {
        assert!(deadline_in(Duration::MAX) > Instant::now());
    }
}
