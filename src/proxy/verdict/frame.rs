//! The broker's own limit of a whole request (`socket.request.max.bytes`), enforced as the frame gate: the broker would close
//! without a response, and the client send it again until its time is up.

use super::{Judge, Outcome};
use crate::policy::{Limit, Size, Violation};
use crate::vocabulary::{Gate, Source};

impl Judge {
    /// Refuses what other gates leave of the request last evaluated, if that is still too large for the broker.
    pub fn over_frame(&mut self, request_bytes: u32, limit_bytes: u64) {
        let refused = self
            .evaluated
            .iter()
            .filter(|evaluated| evaluated.outcome.is_refused());
        let refused_bytes: u64 = refused
            .filter_map(|evaluated| self.layout.partitions.get(evaluated.partition_entry))
            .map(|partition| partition.records.as_ref().map_or(0, ExactSizeIterator::len) as u64)
            .sum();
        let left = u64::from(request_bytes).saturating_sub(refused_bytes);
        if left <= limit_bytes {
            return;
        }
        let mut reason = None;
        for evaluated in &mut self.evaluated {
            evaluated.outcome = match std::mem::replace(&mut evaluated.outcome, Outcome::Pass) {
                Outcome::Within(measured) => Outcome::Over(
                    measured,
                    Violation {
                        limit: Limit {
                            gate: Gate::Frame,
                            value: limit_bytes,
                            source: Source::Broker,
                            name: None,
                            headroom_bytes: 0,
                            member_limit: None,
                        },
                        size: Size::Exact(left),
                        record: None,
                        unreadable: None,
                    },
                ),
                other => other,
            };
            match &evaluated.outcome {
                Outcome::Over(_, violation) if violation.limit.gate != Gate::Frame => {}
                outcome @ Outcome::Over(..) if outcome.is_refused() => reason = Some("answered"),
                Outcome::Over(..) => reason = reason.or(Some("observed")),
                _ => {}
            }
        }
        if let Some(reason) = reason {
            self.shared.metrics.frames_refused(reason);
        }
    }
}
