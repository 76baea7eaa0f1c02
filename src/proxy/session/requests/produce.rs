//! Produce: judged, and what the verdict says carried out. What is too large to be held is read and refused.

use std::sync::Arc;

use bytes::Bytes;

use super::{Intake, Pending, Requests, Session};
use crate::count::Count as _;
use crate::policy::Arrival;
use crate::proxy::in_flight::{Produced, Response};
use crate::proxy::session::Close;
use crate::proxy::verdict::{Forward, Step, Verdict, by_topic};
use crate::wire::Malformed;
use crate::wire::api::{self, FrameHead};
use crate::wire::produce_response::ProduceResponse;
use crate::wire::splice::Piece;

/// Partitions of topics that the control plane does not know, remembered of one request to explain what the broker says
/// of them: who invents thousands of names gets the broker's response as it is.
const MOST_UNKNOWN_SENT: usize = 256;

impl Session {
    /// A whole request, as it came.
    pub(super) fn on_produce(&mut self, mut pending: Pending) {
        match self.evaluate(&mut pending) {
            Err(malformed) => self.end(Close::MalformedRequest(malformed)),
            Ok(Step::Done) if self.requests.queue.is_empty() => self.commit(pending),
            Ok(step) => self.enqueue(step, pending),
        }
    }

    /// What comes next for a request. One that waits is judged by the same rules to its end.
    pub(super) fn evaluate(&mut self, pending: &mut Pending) -> Result<Step, Malformed> {
        let current = self.shared.policy.load();
        let policy = pending.policy.as_ref().unwrap_or(&current);
        let (frame, version) = (&pending.frame, pending.head.api_version);
        let step = self
            .judge
            .evaluate(frame, version, policy, &pending.asked, &mut self.who)?;
        let waits = !matches!(step, Step::Done) || !self.requests.queue.is_empty();
        if waits && pending.policy.is_none() {
            pending.policy = Some(Arc::clone(policy));
        }
        Ok(step)
    }

    /// Commits the request that was evaluated last: nothing is left to do for it, and nothing is before it.
    pub(super) fn commit(&mut self, pending: Pending) {
        let Pending {
            head,
            frame,
            arrival,
            lease,
            policy,
            asked,
            ..
        } = pending;
        self.count_unnamed_software();
        let verdict = self.judge.commit(&frame, &asked, &self.who, &arrival);
        self.carry_out(head, frame, &arrival, verdict);
        self.to_upstream.hold(lease);
        self.judge.release();
        if policy.is_none() {
            self.requests.judged.increment();
        } else {
            let took = arrival.ended.elapsed();
            let metrics = &self.shared.metrics;
            metrics.proxy_seconds(api::PRODUCE).observe(took);
        }
    }

    /// Forwards what the verdict keeps and sees to it that everything is answered.
    fn carry_out(&mut self, head: FrameHead, frame: Bytes, arrival: &Arrival, verdict: Verdict) {
        let Verdict {
            forward,
            mut sent,
            refused,
        } = verdict;
        sent.forget_unknown(MOST_UNKNOWN_SENT);
        let wants_response = self.judge.layout().acks != 0;
        let is_refused = !refused.is_empty();
        let is_forwarded = match forward {
            Forward::Whole => {
                self.to_upstream.push(frame);
                true
            }
            Forward::Spliced(kept) => {
                for piece in self.judge.layout().splice(&kept) {
                    self.to_upstream.push(match piece {
                        Piece::Original(range) => frame.slice(range),
                        Piece::Made(bytes) => bytes,
                    });
                }
                true
            }
            Forward::Nothing => false,
        };
        let since = arrival.ended;
        match (wants_response, is_forwarded) {
            (true, true) => {
                self.expect_since(&head, since, Response::Produce(Produced { sent, refused }));
            }
            (true, false) => {
                let response = ProduceResponse::new(head.correlation_id, by_topic(refused));
                let response = Response::Made(response.encode(head.api_version).into());
                self.expect_since(&head, since, response);
            }
            // The broker, too, stores the sound partitions of an acks 0 request and then closes.
            (false, _) if is_refused => self.end_after(0, Close::RefusedWithoutResponse),
            (false, _) => {}
        }
    }

    /// Reads an oversized Produce without keeping it; where it is only observed, it passes.
    pub(super) fn drain(&mut self) {
        let Requests {
            intake: Intake::Drain(oversized),
            rest,
            ..
        } = &mut self.requests
        else {
            return;
        };
        let here = oversized.left().min(rest.len());
        let chunk = rest.split_to(here).freeze();
        if oversized.passes {
            self.to_upstream.push(chunk.clone());
        }
        if let Err(malformed) = oversized.read(&chunk) {
            self.end(Close::MalformedRequest(malformed));
            return;
        }
        if oversized.left() > 0 {
            return;
        }
        let Intake::Drain(oversized) = std::mem::take(&mut self.requests.intake) else {
            return;
        };
        let (head, passes) = (oversized.head, oversized.passes);
        let refused = self.refuse_oversized(*oversized);
        match refused {
            Some(_) if passes => self.expect(&head, Response::Produce(Produced::default())),
            None if passes => {}
            Some(refused) => {
                let response = ProduceResponse::new(head.correlation_id, by_topic(refused));
                self.expect(
                    &head,
                    Response::Made(response.encode(head.api_version).into()),
                );
            }
            None => self.end(Close::RefusedWithoutResponse),
        }
    }
}
