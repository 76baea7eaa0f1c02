//! The broker's own limit of a whole request (`socket.request.max.bytes`), enforced as the frame gate: the broker would close
//! without a response, and the client send it again until its time is up.

use super::commit::request_bytes;
use super::{Judge, Outcome};
use crate::policy::{Limit, Size, Violation};
use crate::vocabulary::{Gate, Source};

impl Judge {
    /// Some broker would close on a request of this size.
    pub(super) fn may_be_too_large(&self, frame: &[u8]) -> bool {
        request_bytes(frame) > self.shared.cluster.least_frame_limit()
    }

    /// Refuses what other gates leave of the request last evaluated, if that is still too large for the broker.
    pub(super) fn over_frame(&mut self, request_bytes: u64, limit_bytes: u64) {
        let refused = self
            .evaluated
            .iter()
            .filter(|evaluated| evaluated.outcome.is_refused());
        let refused_bytes: u64 = refused
            .filter_map(|evaluated| self.layout.partitions.get(evaluated.partition_entry))
            .map(|partition| partition.records.as_ref().map_or(0, ExactSizeIterator::len) as u64)
            .sum();
        let left = request_bytes.saturating_sub(refused_bytes);
        if left <= limit_bytes {
            return;
        }
        let mut reason = None;
        for evaluated in &mut self.evaluated {
            let outcome = std::mem::replace(&mut evaluated.outcome, Outcome::Pass);
            let Outcome::Within(measured) = outcome else {
                evaluated.outcome = outcome;
                continue;
            };
            let over = Outcome::Over(measured, violation(left, limit_bytes));
            if over.is_refused() {
                reason = Some("answered");
            } else {
                reason = reason.or(Some("observed"));
            }
            evaluated.outcome = over;
        }
        if let Some(reason) = reason {
            self.shared.metrics.frames_refused(reason);
        }
    }
}

fn violation(request_bytes: u64, limit_bytes: u64) -> Violation {
    Violation {
        limit: Limit {
            gate: Gate::Frame,
            value: limit_bytes,
            source: Source::Broker,
            name: None,
            headroom_bytes: 0,
            member_limit: None,
        },
        size: Size::Exact(request_bytes),
        record: None,
        unreadable: None,
    }
}
