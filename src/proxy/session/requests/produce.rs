//! Produce: judged, and what the verdict says carried out. What is too large to be held is read and refused.

use std::sync::Arc;

use bytes::Bytes;

use super::{Intake, Pending, Requests, Session, Waiting};
use crate::proxy::in_flight::{Produced, Response};
use crate::proxy::session::Close;
use crate::proxy::session::buffers::BUFFER_BYTES;
use crate::proxy::verdict::{Question, Verdict, by_topic};
use crate::wire::Malformed;
use crate::wire::api::FrameHead;
use crate::wire::produce_response::ProduceResponse;
use crate::wire::splice::Piece;

/// Partitions of topics that the control plane does not know, remembered of one request to explain what the broker says
/// of them: who invents thousands of names gets the broker's response as it is.
const MOST_UNKNOWN_SENT: usize = 256;

impl Session {
    pub(super) fn on_produce(&mut self, mut pending: Pending) -> Result<(), Close> {
        let current = self.shared.policy.load();
        let policy = pending.policy.as_ref().unwrap_or(&current);
        let (frame, version) = (&pending.frame, pending.head.api_version);
        let evaluated = self
            .judge
            .evaluate(frame, version, policy, &pending.asked, &mut self.who);
        let question = match evaluated {
            Ok(None) => self.offload_question(&pending),
            other => other,
        };
        let question = match question {
            Err(malformed) => {
                self.end(Close::MalformedRequest(malformed));
                return Ok(());
            }
            Ok(None) if !pending.asked.frame && self.may_be_too_large(&pending.head) => {
                Some(Question::FrameLimit)
            }
            Ok(question) => question,
        };
        if let Some(question) = question {
            pending.policy = Some(Arc::clone(policy));
            // The frame keeps the worker's buffer meanwhile; what was evaluated is evaluated again.
            if pending.lease.is_empty() {
                let bytes = pending.frame.len().max(BUFFER_BYTES);
                pending.lease = self.shared.budget.charge(bytes);
            }
            self.judge.release();
            self.requests.waiting = Some(Waiting::Knowledge(self.ask(question, pending)));
            return Ok(());
        }
        let Pending {
            head,
            frame,
            arrival,
            lease,
            asked,
            ..
        } = pending;
        if let Some(limit) = asked.frame_limit {
            self.judge.over_frame(head.request_bytes, limit);
        }
        self.count_unnamed_software();
        let verdict = self.judge.commit(&frame, &asked, &self.who, &arrival);
        self.carry_out(head, frame, verdict);
        self.to_upstream.hold(lease);
        self.judge.release();
        self.requests.judged += 1;
        Ok(())
    }

    /// With everything confirmed: what is offloaded, first planned, then uploaded.
    fn offload_question(&self, pending: &Pending) -> Result<Option<Question>, Malformed> {
        let to_offload = self.judge.to_offload(&pending.asked);
        if !to_offload.is_empty() {
            return Ok(Some(Question::Plan(to_offload)));
        }
        let to_upload = self.judge.to_upload(&pending.asked);
        Ok((!to_upload.is_empty()).then_some(Question::Upload(to_upload)))
    }

    /// Forwards what the verdict keeps and sees to it that everything is answered.
    fn carry_out(&mut self, head: FrameHead, frame: Bytes, verdict: Verdict) {
        let Verdict {
            kept,
            mut sent,
            refused,
        } = verdict;
        let mut unknown = 0;
        sent.retain(|sent| {
            unknown += usize::from(sent.topic.known.is_none());
            sent.topic.known.is_some() || unknown <= MOST_UNKNOWN_SENT
        });
        let wants_response = self.judge.layout().acks != 0;
        let is_refused = !refused.is_empty();
        let is_forwarded = match kept {
            None => {
                self.to_upstream.push(frame);
                true
            }
            Some(kept) if kept.is_empty() => false,
            Some(kept) => {
                for piece in self.judge.layout().splice(&kept) {
                    self.to_upstream.push(match piece {
                        Piece::Original(range) => frame.slice(range),
                        Piece::Made(bytes) => bytes,
                    });
                }
                true
            }
        };
        match (wants_response, is_forwarded) {
            (true, true) => self.expect(&head, Response::Produce(Produced { sent, refused })),
            (true, false) => {
                let response = ProduceResponse::new(head.correlation_id, by_topic(refused));
                self.expect(
                    &head,
                    Response::Made(response.encode(head.api_version).into()),
                );
            }
            // The broker, too, stores the sound partitions of an acks 0 request and then closes.
            (false, _) if is_refused => self.end(Close::RefusedWithoutResponse),
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
