//! What a topic would gain from a claim check: how much of it lies in few, large records. Pure.
//!
//! A histogram knows no sizes but its bounds: what is large counts at the bound below it, what is small at the bound above, so
//! the share is one that is reached at least.

use super::exposition::Histogram;
use crate::config::OFFLOAD_ABOVE_BYTES;

/// Below this share a topic's size is in its small records, which no claim check takes.
const LEAST_SHARE: f64 = 0.25;

/// What would go to the store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Gain {
    /// Records larger than [`OFFLOAD_ABOVE_BYTES`].
    pub records: f64,
    /// Of so many.
    pub measured: f64,
    /// Their bytes, at least.
    pub bytes: f64,
    /// Of all of the topic's bytes, uncompressed, at least.
    pub share: f64,
}

/// `None`: little, or too little was measured.
pub(super) fn gain(records: &Histogram, least_measured: f64) -> Option<Gain> {
    let (mut small, mut large) = (0.0, 0.0);
    let (mut below, mut counted) = (0, 0.0);
    for (&bound, &at_most) in &records.at_most {
        let count = (at_most - counted).max(0.0);
        if bound <= OFFLOAD_ABOVE_BYTES {
            small += count * bound as f64;
        } else {
            large += count * below.max(OFFLOAD_ABOVE_BYTES) as f64;
        }
        (below, counted) = (bound, at_most);
    }
    large += (records.count - counted).max(0.0) * below as f64;
    let within = records.at_most.range(..=OFFLOAD_ABOVE_BYTES).next_back();
    let gain = Gain {
        records: (records.count - within.map_or(0.0, |(_, at_most)| *at_most)).max(0.0),
        measured: records.count,
        bytes: large,
        share: large / (small + large).max(1.0),
    };
    let is_enough = records.count >= least_measured.max(1.0) && gain.records > 0.0;
    (is_enough && gain.share >= LEAST_SHARE).then_some(gain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(at_most: &[(u64, f64)], count: f64) -> Histogram {
        Histogram {
            at_most: at_most.iter().copied().collect(),
            count,
        }
    }

    #[test]
    fn a_topic_gains_where_few_large_records_are_most_of_it() {
        // 900 records of 1 KiB at most, 100 between 256 KiB and 512 KiB.
        let found = gain(
            &records(
                &[(1 << 10, 900.0), (256 << 10, 900.0), (512 << 10, 1_000.0)],
                1_000.0,
            ),
            100.0,
        )
        .unwrap();
        let large = 100.0 * f64::from(256 << 10);
        assert_eq!((found.records, found.bytes), (100.0, large));
        assert_eq!(found.share, large / (large + 900.0 * 1024.0));
    }

    #[test]
    fn what_is_small_or_hardly_measured_gains_nothing() {
        let small = [(1 << 10, 500.0), (64 << 10, 1_000.0)];
        assert_eq!(gain(&records(&small, 1_000.0), 100.0), None);
        let one = [(64 << 10, 1_000_000.0), (128 << 10, 1_000_001.0)];
        assert_eq!(
            gain(&records(&one, 1_000_001.0), 100.0),
            None,
            "its share is small"
        );
        let large = [(64 << 10, 0.0), (1 << 20, 50.0)];
        assert_eq!(gain(&records(&large, 50.0), 100.0), None, "too few");
        assert_eq!(gain(&records(&[], 0.0), 0.0), None);
        // Above every bound.
        assert_eq!(
            gain(&records(&[(64 << 10, 0.0), (1 << 20, 0.0)], 200.0), 100.0)
                .unwrap()
                .bytes,
            200.0 * f64::from(1 << 20)
        );
    }
}
