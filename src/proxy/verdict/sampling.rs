//! Measures a share of the batches that no limit asks to look into: their sizes are for the histograms.
//!
//! Invariant: on average at most [`SHARE`] of a worker's time goes into it; what is left out is left out evenly
//! over time, not by size, but for batches that pass before they are whole: of these one in [`PASSING_SHARE`] at most is
//! held to be measured, and holding it counts as time spent.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use super::Measured;
use super::measure::{MOST_BYTES, with_scratch};
use crate::config::Decode;
use crate::count::Count as _;
use crate::inspect::{DeepLimits, Effort, inspect};
use crate::policy::Size;
use crate::telemetry::Metrics;
use crate::vocabulary::Codec;

/// One two-hundredth of a worker's time.
const SHARE: u32 = 200;
/// Time is accounted for in windows of this length, so that a quiet night does not pay for a busy morning.
const WINDOW: Duration = Duration::from_secs(1);
/// Samples in one window: more would not make a histogram truer.
const MOST_SAMPLES: u32 = 1000;
/// What samples may take of a window.
const MOST_SPENT: Duration = match WINDOW.checked_div(SHARE) {
    Some(share) => share,
    None => WINDOW,
};

/// Of batches that need not be here to be judged, one in so many is held and may be measured.
const PASSING_SHARE: u32 = 32;
/// The first of them: not the very first, which is what a client waits for that sends one only.
const FIRST_HELD: u32 = 8;
/// What holding such a batch costs beside passing it, in a pipe: its bytes are copied twice (`benches/README.md`).
const HOLDING_NS_PER_KIB: u64 = 300;

thread_local! {
    static SAMPLER: RefCell<Sampler> = RefCell::new(Sampler::new());
    static PASSING: Cell<u32> = const { Cell::new(0) };
}

/// A request of so many bytes that could pass before it is whole is to be measured: it must be held.
pub(super) fn holds(decode: Decode, request_bytes: u32, now: Instant) -> bool {
    match decode {
        Decode::Always => true,
        Decode::Never => false,
        Decode::WhenNeeded => {
            let nth = PASSING.replace(PASSING.get().wrapping_add(1));
            nth % PASSING_SHARE == FIRST_HELD
                && SAMPLER.with_borrow_mut(|sampler| sampler.may_hold(request_bytes, now))
        }
    }
}

/// How much of the window has gone into samples.
struct Sampler {
    since: Instant,
    spent: Duration,
    samples: u32,
}

impl Sampler {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            spent: Duration::ZERO,
            samples: 0,
        }
    }

    fn may_sample(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) > WINDOW {
            *self = Self {
                since: now,
                spent: Duration::ZERO,
                samples: 0,
            };
        }
        self.spent < MOST_SPENT && self.samples < MOST_SAMPLES
    }

    /// As [`Sampler::may_sample`]; and then it is paid for.
    fn may_hold(&mut self, request_bytes: u32, now: Instant) -> bool {
        let may_hold = self.may_sample(now);
        if may_hold {
            let kib = u64::from(request_bytes >> 10);
            let costs = Duration::from_nanos(kib.saturating_mul(HOLDING_NS_PER_KIB));
            self.spent = self.spent.saturating_add(costs);
        }
        may_hold
    }
}

/// Counts the sizes inside a batch that passed: always, never, or as often as its share of time allows.
pub(super) fn sample(
    measured: &mut Measured,
    batch: &[u8],
    decode: Decode,
    metrics: &Metrics,
    now: Instant,
) {
    let may_sample = match decode {
        Decode::Always => true,
        Decode::WhenNeeded => SAMPLER.with_borrow_mut(|sampler| sampler.may_sample(now)),
        Decode::Never => false,
    };
    let Some(codec) = measured
        .facts
        .codec
        .filter(|_| may_sample && measured.header.magic == 2)
    else {
        return;
    };
    let most = if decode == Decode::Always {
        u64::MAX
    } else {
        MOST_BYTES
    };
    let begun = Instant::now();
    let inspection = with_scratch(|scratch| {
        let effort = Effort::MEASURES.decode_at_most(most);
        let inspection = inspect(&measured.header, batch, &DeepLimits::NONE, effort, scratch);
        if inspection.records.is_some() {
            measured.sizes = Some(Box::new(*scratch.sizes()));
        }
        inspection
    });
    let took = begun.elapsed();
    SAMPLER.with_borrow_mut(|sampler| {
        sampler.spent = sampler.spent.saturating_add(took);
        sampler.samples.increment();
    });
    if codec != Codec::None {
        metrics.inspection("sampled", codec);
        metrics.inspection_seconds(codec).observe(took);
    }
    // Should the broker refuse it, its text says what was seen.
    if let Some(Size::Exact(bytes)) = inspection.uncompressed {
        measured.uncompressed_bytes = Some(bytes);
    }
    measured.facts.uncompressed = measured.facts.uncompressed.or(inspection.uncompressed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_to_be_measured_takes_its_share_of_time_and_no_more() {
        let mut sampler = Sampler::new();
        let now = sampler.since;
        let held = |sampler: &mut Sampler, bytes, at| {
            (0..10_000)
                .take_while(|_| sampler.may_hold(bytes, at))
                .count()
        };
        // 307.2 µs for each MiB, 19.2 for each 64 KiB, of 5 ms.
        assert_eq!(held(&mut sampler, 1 << 20, now), 17);
        let next = now + WINDOW + Duration::from_millis(1);
        assert_eq!(held(&mut sampler, 64 << 10, next), 261);
        assert!(!sampler.may_sample(next), "it is one share for both");
    }
}
