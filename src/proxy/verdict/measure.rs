//! Measuring what no limit asks for: the sizes inside batches, for the histograms and for the text of a refusal.
//!
//! Invariant: on average at most [`SHARE`] of a worker's time goes into it; what is left out is left out evenly
//! over time, not by size.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use super::Measured;
use crate::config::Decode;
use crate::inspect::{DeepLimits, Effort, Inspection, Scratch, Sizes, inspect};
use crate::policy::{Codec, Gate, Size};
use crate::telemetry::Metrics;

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
    (now, is_within): (Instant, bool),
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
            measured
                .topic
                .metrics
                .record_bytes
                .observe_tally(&scratch.sizes().record_bytes);
            measured
                .topic
                .metrics
                .estimate_bytes
                .observe_tally(&scratch.sizes().estimate_bytes);
            compare(measured, scratch.sizes(), is_within);
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
    measured.facts.uncompressed = measured.facts.uncompressed.or(inspection.uncompressed);
    if let Some(Size::Exact(bytes)) = inspection.uncompressed {
        measured.topic.metrics.uncompressed(codec, bytes);
    }
}

/// How near the parts of a batch's records, and their estimates, come to their limits.
fn compare(measured: &Measured, sizes: &Sizes, is_within: bool) {
    let topic = &measured.topic;
    topic.metrics.largest_parts(&sizes.largest);
    for limit in topic.policy.inside_limits() {
        let largest = match limit.gate {
            Gate::Estimate => sizes.estimate_bytes.largest_bytes(),
            Gate::Key => sizes.largest.key_bytes,
            Gate::Value => sizes.largest.value_bytes,
            Gate::Headers => sizes.largest.headers_bytes,
            // Settling compares these: it knows them of more batches than are sampled.
            Gate::Batch | Gate::Uncompressed | Gate::Record => continue,
            Gate::Ratio | Gate::Frame | Gate::Codec | Gate::Config => continue,
        };
        if is_within && topic.policy.is_near(largest, limit.value) {
            topic.metrics.near_limit(limit.gate);
        }
    }
}

/// What is inside a batch about to be refused, for the text: as far as it can be seen in passing.
pub(super) fn look_inside(measured: &mut Measured, batch: &[u8]) {
    if measured.header.magic < 2 {
        return;
    }
    let effort = Effort::MEASURES.decode_at_most(MOST_BYTES);
    let Inspection {
        uncompressed,
        largest,
        ..
    } = with_scratch(|scratch| {
        inspect(&measured.header, batch, &DeepLimits::NONE, effort, scratch)
    });
    measured.facts.uncompressed = measured.facts.uncompressed.or(uncompressed);
    measured.facts.largest = measured.facts.largest.or(largest);
}
