//! Limits that follow from what was measured. Pure.
//!
//! A histogram knows how many sizes lie on either side of its bounds and nothing in between, so only bounds are
//! suggested: of these it is known exactly what they would have refused. They are powers of two, a person's numbers.

use super::exposition::{Histogram, Measured};
use crate::vocabulary::BATCHING_BYTES;

/// The broker's default `message.max.bytes`: a bound of the histograms, and no power of two.
const BROKER_DEFAULT_BYTES: u64 = 1_048_588;
/// Java's default `batch.size`: what fits it goes out with others, and a limit below it protects nobody.
const LEAST_RECORD_BYTES: u64 = 16_384;
/// A request is no larger (`listener.frame_bytes`), so no limit makes sense beyond.
const MOST_BYTES: u64 = 64 << 20;

/// What is suggested for one topic.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TopicLimits {
    /// `record_bytes`
    pub record: Proposal,
    /// `uncompressed_bytes`
    pub uncompressed: Proposal,
    /// `batch_bytes`
    pub batch: Proposal,
}

/// What is suggested for one limit.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Proposal {
    /// Too little was measured.
    TooFew {
        /// So many.
        measured: f64,
    },
    /// The topic's own limit is better (batch), or there is no bound above what was measured.
    Leave {
        /// So many.
        measured: f64,
        /// All of them were at most so large; `None` where that is beyond every bound.
        all_within: Option<u64>,
    },
    /// This.
    Limit(Suggestion),
}

/// A limit, what it would have refused, and one that is tighter.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Suggestion {
    /// Bytes.
    pub bytes: u64,
    /// So many were measured.
    pub measured: f64,
    /// So many of them were larger.
    pub refuses: f64,
    /// The limit at p99.9 and margin, and what it would have refused, where it is lower.
    pub tighter: Option<(u64, f64)>,
}

/// How much is to pass.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Target {
    /// Suggest the limit at p99.9 and margin instead of one that refuses nothing.
    pub tight: bool,
    /// Added to the largest, and to p99.9: 0.25 is a quarter.
    pub margin: f64,
    /// With fewer measured, nothing is suggested.
    pub least_measured: f64,
}

/// For one topic.
pub(super) fn suggest(measured: &Measured, wish: &Target) -> TopicLimits {
    TopicLimits {
        record: of(&measured.record, wish, LEAST_RECORD_BYTES, false),
        uncompressed: of(&measured.uncompressed, wish, BATCHING_BYTES, false),
        batch: of(&measured.batch, wish, BATCHING_BYTES, true),
    }
}

/// `least`: no lower limit makes sense. `inherits`: below it the topic's own limit does.
fn of(histogram: &Histogram, wish: &Target, least: u64, inherits: bool) -> Proposal {
    let measured = histogram.count;
    if measured < wish.least_measured.max(1.0) {
        return Proposal::TooFew { measured };
    }
    let all_within = bound_for(histogram, measured);
    // The broker's default is every topic's already.
    let is_ordinary = inherits && all_within.is_some_and(|bytes| bytes <= BROKER_DEFAULT_BYTES);
    let generous = all_within.map(|bytes| with_room(histogram, bytes, wish.margin).max(least));
    let wanted = quantile(histogram, 0.999) * (1.0 + wish.margin);
    let tight = bound_above(histogram, wanted.ceil() as u64)
        .or(all_within)
        .map(|bytes| bytes.max(least));
    let chosen = if wish.tight { tight } else { generous };
    let Some(bytes) = chosen
        .filter(|bytes| *bytes <= MOST_BYTES && !is_ordinary && !(inherits && *bytes <= least))
    else {
        return Proposal::Leave {
            measured,
            all_within,
        };
    };
    let bytes = if inherits { bytes } else { persons(bytes) };
    let tighter = tight
        .map(persons)
        .filter(|tight| !wish.tight && *tight < bytes)
        .map(|tight| (tight, refused(histogram, tight)));
    Proposal::Limit(Suggestion {
        bytes,
        measured,
        refuses: refused(histogram, bytes),
        tighter,
    })
}

/// The broker's default is a number for batches only.
fn persons(bytes: u64) -> u64 {
    if bytes == BROKER_DEFAULT_BYTES {
        2 << 20
    } else {
        bytes
    }
}

/// The least bound with so many at most it.
fn bound_for(histogram: &Histogram, count: f64) -> Option<u64> {
    let mut bounds = histogram.at_most.iter();
    bounds
        .find(|(_, at_most)| **at_most >= count)
        .map(|(bytes, _)| *bytes)
}

/// The least bound with room above what was measured: of the largest only its bucket is known, and it may be as large
/// as its bound.
fn with_room(histogram: &Histogram, bytes: u64, margin: f64) -> u64 {
    let wanted = (bytes as f64 * (1.0 + margin)).ceil() as u64;
    bound_above(histogram, wanted).unwrap_or_else(|| wanted.next_power_of_two())
}

fn bound_above(histogram: &Histogram, bytes: u64) -> Option<u64> {
    histogram
        .at_most
        .range(bytes..)
        .next()
        .map(|(bytes, _)| *bytes)
}

/// How many were larger than a bound.
fn refused(histogram: &Histogram, bytes: u64) -> f64 {
    let at_most = histogram.at_most.range(..=bytes).next_back();
    (histogram.count - at_most.map_or(0.0, |(_, at_most)| *at_most)).max(0.0)
}

/// Interpolated inside its bucket, as Prometheus does.
fn quantile(histogram: &Histogram, share: f64) -> f64 {
    let rank = histogram.count * share;
    let (mut below_bytes, mut below) = (0, 0.0);
    for (&bytes, &at_most) in &histogram.at_most {
        if at_most >= rank {
            let inside = if at_most > below {
                (rank - below) / (at_most - below)
            } else {
                1.0
            };
            return below_bytes as f64 + bytes.saturating_sub(below_bytes) as f64 * inside;
        }
        (below_bytes, below) = (bytes, at_most);
    }
    f64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: [u64; 14] = [
        256, 512, 1_024, 2_048, 4_096, 8_192, 16_384, 65_536, 262_144, 524_288, 1_048_576,
        1_048_588, 2_097_152, 4_194_304,
    ];
    const WISH: Target = Target {
        tight: false,
        margin: 0.25,
        least_measured: 100.0,
    };

    fn histogram(sizes: &[(u64, u32)]) -> Histogram {
        let count = |bound| {
            let within = sizes.iter().filter(|(bytes, _)| *bytes <= bound);
            within.map(|(_, times)| f64::from(*times)).sum()
        };
        Histogram {
            at_most: BOUNDS.iter().map(|bound| (*bound, count(*bound))).collect(),
            count: count(u64::MAX),
        }
    }

    fn record(sizes: &[(u64, u32)], wish: &Target) -> Proposal {
        let measured = Measured {
            record: histogram(sizes),
            ..Measured::default()
        };
        suggest(&measured, wish).record
    }

    fn batch(sizes: &[(u64, u32)], wish: &Target) -> Proposal {
        let measured = Measured {
            batch: histogram(sizes),
            ..Measured::default()
        };
        suggest(&measured, wish).batch
    }

    #[test]
    fn what_refuses_nothing_is_suggested_and_what_the_tighter_one_would_refuse_is_said() {
        // p99.9 lies among the small ones, in the bucket from 512 to 1,024: 1,023; with a quarter more 1,279.
        let found = record(&[(900, 99_990), (60_000, 10)], &WISH);
        assert_eq!(
            found,
            Proposal::Limit(Suggestion {
                bytes: 262_144,
                measured: 100_000.0,
                refuses: 0.0,
                tighter: Some((16_384, 10.0)),
            })
        );
        let tight = Target {
            tight: true,
            ..WISH
        };
        assert_eq!(
            record(&[(900, 99_990), (60_000, 10)], &tight),
            Proposal::Limit(Suggestion {
                bytes: 16_384,
                measured: 100_000.0,
                refuses: 10.0,
                tighter: None,
            })
        );
    }

    #[test]
    fn every_suggestion_refuses_exactly_what_it_says() {
        let sizes = [
            (100, 5_000),
            (3_000, 400),
            (20_000, 30),
            (300_000, 4),
            (3_000_000, 1),
        ];
        for margin in [0.0, 0.25, 1.0, 10.0] {
            for tight in [false, true] {
                let wish = Target {
                    tight,
                    margin,
                    ..WISH
                };
                let Proposal::Limit(found) = record(&sizes, &wish) else {
                    panic!("enough was measured");
                };
                for (bytes, refuses) in [(found.bytes, found.refuses)]
                    .into_iter()
                    .chain(found.tighter)
                {
                    let larger = sizes.iter().filter(|(size, _)| *size > bytes);
                    let truly: f64 = larger.map(|(_, times)| f64::from(*times)).sum();
                    assert_eq!(refuses, truly, "{bytes}");
                }
                assert!(tight || found.refuses == 0.0);
            }
        }
    }

    #[test]
    fn a_batch_limit_is_never_below_what_batching_clients_need() {
        let small = batch(&[(5_000, 1_000)], &WISH);
        assert_eq!(
            small,
            Proposal::Leave {
                measured: 1_000.0,
                all_within: Some(8_192)
            }
        );
        let Proposal::Limit(large) = batch(&[(5_000, 1_000), (1_500_000, 3)], &WISH) else {
            panic!("above 1 MiB");
        };
        assert_eq!((large.bytes, large.refuses), (4_194_304, 0.0));
        assert_eq!(
            large.tighter,
            Some((1_048_576, 3.0)).filter(|_| large.tighter.is_some())
        );
        let measured = Measured {
            uncompressed: histogram(&[(5_000, 1_000)]),
            ..Measured::default()
        };
        let Proposal::Limit(found) = suggest(&measured, &WISH).uncompressed else {
            panic!("enough was measured");
        };
        assert_eq!(found.bytes, BATCHING_BYTES);
    }

    #[test]
    fn the_brokers_default_is_a_number_for_batches_only() {
        let sizes = [(1_048_580, 1_000)];
        assert_eq!(
            batch(&sizes, &WISH),
            Proposal::Leave {
                measured: 1_000.0,
                all_within: Some(1_048_588)
            },
            "the topic's own limit is that already"
        );
        let Proposal::Limit(found) = record(&sizes, &WISH) else {
            panic!("enough was measured");
        };
        assert_eq!(found.bytes, 2_097_152);
    }

    /// Whatever was measured, it is not near the limit that is suggested (`near_limit: 0.8`), and no limit is so small
    /// that it protects nobody.
    #[test]
    fn a_suggestion_leaves_room_and_has_a_floor() {
        for (largest, expected) in [
            (200, 16_384),
            (3_000, 16_384),
            (12_000, 65_536),
            (16_384, 65_536),
            (65_400, 262_144),
            (2_000_000, 4_194_304),
            (4_000_000, 8_388_608),
        ] {
            let Proposal::Limit(found) = record(&[(largest, 1_000)], &WISH) else {
                panic!("enough was measured");
            };
            assert_eq!((found.bytes, found.refuses), (expected, 0.0), "{largest}");
            assert!(largest as f64 <= 0.8 * found.bytes as f64);
        }
    }

    #[test]
    fn too_little_or_too_large_suggests_nothing() {
        assert_eq!(
            record(&[(900, 99)], &WISH),
            Proposal::TooFew { measured: 99.0 }
        );
        assert_eq!(record(&[], &WISH), Proposal::TooFew { measured: 0.0 });
        assert_eq!(
            record(&[(9_000_000, 100)], &WISH),
            Proposal::Leave {
                measured: 100.0,
                all_within: None
            }
        );
    }
}
