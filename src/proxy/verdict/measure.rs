//! Measuring what no limit asks for: the sizes inside batches, for the histograms and for the text of a refusal.
//!
//! Invariant: on average at most [`SHARE`] of a worker's time goes into it; what is left out is left out evenly
//! over time, not by size.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use super::Measured;
use crate::config::Decode;
use crate::inspect::{DeepLimits, Effort, Inspection, Scratch, inspect};
use crate::policy::Size;
use crate::telemetry::Metrics;
use crate::vocabulary::Codec;

/// One two-hundredth of a worker's time.
const SHARE: u32 = 200;
/// Time is accounted for in windows of this length, so that a quiet night does not pay for a busy morning.
const WINDOW: Duration = Duration::from_secs(1);
/// Samples in one window: more would not make a histogram truer.
const MOST_SAMPLES: u32 = 1000;
/// Bytes decompressed for one sample, or for the text of one refusal: under a millisecond of zstd.
const MOST_BYTES: u64 = 512 * 1024;

thread_local! {
    /// Decoders and their buffers, kept from batch to batch.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
    static SAMPLER: RefCell<Sampler> = RefCell::new(Sampler::new());
}

/// Lends this thread's decoders.
pub(super) fn with_scratch<T>(act: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(act)
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
        self.spent < WINDOW / SHARE && self.samples < MOST_SAMPLES
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
        sampler.spent += took;
        sampler.samples += 1;
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

/// Bytes decompressed for the text of a refusal, at most: as many as came on the wire tell whether compression gained
/// anything. What gained nothing decodes at the speed of a copy.
const MOST_LOOKED_AT_BYTES: u64 = 4 * 1024 * 1024;

/// What is inside a batch about to be refused, for the text: as far as it can be seen in passing.
pub(super) fn look_inside(measured: &mut Measured, batch: &[u8]) {
    if measured.header.magic < 2 {
        return;
    }
    // Some more than came: what shrank by next to nothing is measured to its end too.
    let wire_bytes = measured.facts.wire_bytes;
    let enough = wire_bytes.saturating_add(wire_bytes / 4);
    let effort = Effort::MEASURES.decode_at_most(enough.clamp(MOST_BYTES, MOST_LOOKED_AT_BYTES));
    let Inspection {
        uncompressed,
        largest,
        seen,
        ..
    } = with_scratch(|scratch| {
        inspect(&measured.header, batch, &DeepLimits::NONE, effort, scratch)
    });
    measured.facts.uncompressed = match (measured.facts.uncompressed, uncompressed) {
        (Some(known @ Size::Exact(_)), _) | (Some(known), None) => Some(known),
        (Some(Size::AtLeast(known)), Some(Size::AtLeast(new))) => {
            Some(Size::AtLeast(known.max(new)))
        }
        (_, new) => new,
    };
    measured.facts.largest = measured.facts.largest.or(largest);
    measured.facts.seen = measured.facts.seen.or(seen);
}
