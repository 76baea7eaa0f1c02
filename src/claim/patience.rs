//! Bounds a request to the store: how long it may take, how often it is tried, and how long to wait in between.

use std::future::Future;
use std::time::Duration;

use super::failure::{Class, Failure};

/// Bounds of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// Times that it is tried in all, one at least.
    pub attempts: u32,
    /// The most that is waited after the first attempt; twice as much after each further one. What is waited is drawn
    /// from all of it (full jitter): a store that comes back is not met by everybody at once.
    pub first_pause: Duration,
    /// The most that is ever waited.
    pub longest_pause: Duration,
    /// What one attempt has for everything but the object's bytes.
    pub attempt: Duration,
    /// Bytes a second that an attempt is given time for.
    pub least_rate_bytes: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            attempts: 5,
            first_pause: Duration::from_millis(100),
            longest_pause: Duration::from_secs(5),
            attempt: Duration::from_secs(8),
            least_rate_bytes: 2 * 1024 * 1024,
        }
    }
}

impl Patience {
    /// What one attempt may take that moves so many bytes.
    pub(super) fn one_attempt(&self, bytes: usize) -> Duration {
        let millis = (bytes as u64).saturating_mul(1_000);
        let millis = millis
            .checked_div(u64::from(self.least_rate_bytes))
            .unwrap_or(millis);
        self.attempt.saturating_add(Duration::from_millis(millis))
    }

    /// Tries until it is done, or the failure is not one that passes, or all attempts are spent.
    pub(super) async fn attempt<T, F>(
        &self,
        bytes: usize,
        mut once: impl FnMut() -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut pause = self.first_pause;
        let mut left = self.attempts.max(1);
        loop {
            left = left.saturating_sub(1);
            let done = tokio::time::timeout(self.one_attempt(bytes), once()).await;
            let failure = match done {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(failure)) => failure,
                Err(_) => Failure::timeout(),
            };
            if left == 0 || failure.class != Class::Transient {
                return Err(failure);
            }
            tokio::time::sleep(pause.mul_f64(random_share())).await;
            pause = pause.saturating_mul(2).min(self.longest_pause);
        }
    }
}

/// From 0 to 1.
pub(super) fn random_share() -> f64 {
    let (high, _) = uuid::Uuid::new_v4().as_u64_pair();
    // The upper 32 bits of a version 4 UUID are random.
    (high >> 32) as f64 / f64::from(u32::MAX)
}
