//! How long an object must be kept so that no ticket outlives it. Pure.
//!
//! A ticket may lie in Kafka for `retention.ms` and, as a segment goes only when its youngest record may, for
//! `segment.ms` more; whoever reads it last may be late; and a day is added because none of these is to the minute. "7
//! days here and 7 days there" is the classic mistake.

use std::time::Duration;

use crate::vocabulary::labelled;

/// What is added to everything: lifecycles of buckets run once a day, segments roll by the minute, clocks differ.
const ALLOWANCE: Duration = Duration::from_secs(86_400);

/// Objects of which the last is nearly too old are worth a word.
const NARROW: Duration = Duration::from_secs(86_400);

labelled! {
    /// How an object's life compares with that of its ticket.
    Cover {
        /// Long enough.
        Enough = "enough",
        /// Long enough by less than a day.
        Narrow = "narrow",
        /// A ticket may outlive its object.
        Short = "short",
    }
}

/// What a topic needs of the objects of its tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// So long; `None`: for ever.
    pub needed: Option<Duration>,
    /// So long they are kept.
    pub kept: Duration,
}

impl Need {
    /// Of a topic that keeps records for `stays` at most (`retention.ms` + `segment.ms`; `None`: for ever), with a consumer
    /// that reads a record as late as `lag` after it might have gone.
    pub fn new(stays: Option<Duration>, lag: Duration, kept: Duration) -> Self {
        let needed = stays.map(|stays| stays.saturating_add(lag).saturating_add(ALLOWANCE));
        Self { needed, kept }
    }

    /// How the two compare.
    pub fn cover(&self) -> Cover {
        match self.needed.map(|needed| self.kept.checked_sub(needed)) {
            None | Some(None) => Cover::Short,
            Some(Some(margin)) if margin < NARROW => Cover::Narrow,
            Some(Some(_)) => Cover::Enough,
        }
    }

    /// Seconds that are left over; negative: that are missing; `None`: no number is enough.
    pub fn margin_seconds(&self) -> Option<i64> {
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        Some(seconds(self.kept).saturating_sub(seconds(self.needed?)))
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn an_object_is_kept_for_retention_segment_lag_and_a_day() {
        for (stays, lag, kept, cover, margin_days) in [
            // Kafka's defaults, 7 d and 7 d, and ours.
            (Some(14), 0, 16, Cover::Enough, Some(1)),
            (Some(14), 1, 16, Cover::Narrow, Some(0)),
            (Some(14), 0, 15, Cover::Narrow, Some(0)),
            (Some(14), 2, 16, Cover::Short, Some(-1)),
            // "7 days and 7 days".
            (Some(14), 0, 7, Cover::Short, Some(-8)),
            (None, 0, 365, Cover::Short, None),
        ] {
            let need = Need::new(stays.map(|days| DAY * days), DAY * lag, DAY * kept);
            assert_eq!(need.cover(), cover, "{stays:?} {lag} {kept}");
            let margin = margin_days.map(|days: i64| days * 86_400);
            assert_eq!(need.margin_seconds(), margin, "{stays:?} {lag} {kept}");
        }
    }
}
