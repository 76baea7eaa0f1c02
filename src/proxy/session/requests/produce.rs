//! Produce: judged, and what the verdict says carried out. What is too large to be held is read and refused.

use bytes::Bytes;

use super::{Intake, Requests, Session, Waiting};
use crate::policy::Arrival;
use crate::proxy::budget::Lease;
use crate::proxy::ledger::{Answer, Produced};
use crate::proxy::session::Close;
use crate::proxy::session::buffers::BUFFER_BYTES;
use crate::proxy::verdict::{Asked, Verdict, by_topic};
use crate::wire::api::FrameHead;
use crate::wire::produce::Piece;
use crate::wire::produce_answer::ProduceAnswer;

impl Session {
    pub(super) fn on_produce(
        &mut self,
        head: FrameHead,
        frame: Bytes,
        arrival: Arrival,
        mut lease: Lease,
        asked: Asked,
    ) -> Result<(), Close> {
        let weighed = self
            .judge
            .weigh(&frame, head.api_version, &asked, &mut self.who);
        match weighed {
            Err(malformed) => self.end(Close::MalformedRequest(malformed)),
            Ok(Some(question)) => {
                let asking = self.ask(question, asked, &frame);
                // The frame keeps the worker's buffer meanwhile; what was weighed is weighed again.
                if lease.is_empty() {
                    lease = self.shared.budget.charge(BUFFER_BYTES);
                }
                self.judge.release();
                self.requests.waiting = Some(Waiting::Knowledge {
                    head,
                    frame,
                    arrival,
                    lease,
                    asking,
                });
            }
            Ok(None) => {
                self.count_unnamed_software();
                let verdict = self.judge.settle(&frame, &self.who, &arrival);
                self.carry_out(head, frame, verdict);
                self.to_upstream.hold(lease);
                self.judge.release();
                self.requests.judged += 1;
            }
        }
        Ok(())
    }

    /// Forwards what the verdict keeps and sees to it that everything is answered.
    fn carry_out(&mut self, head: FrameHead, frame: Bytes, verdict: Verdict) {
        let Verdict {
            kept,
            sent,
            refused,
        } = verdict;
        let wants_answer = self.judge.layout().acks != 0;
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
                        Piece::Made(bytes) => bytes.into(),
                    });
                }
                true
            }
        };
        match (wants_answer, is_forwarded) {
            (true, true) => self.expect(&head, Answer::Produce(Produced { sent, refused })),
            (true, false) => {
                let answer = ProduceAnswer::new(head.correlation_id, by_topic(refused));
                self.expect(&head, Answer::Made(answer.encode(head.api_version).into()));
            }
            // The broker, too, stores the sound partitions of an acks 0 request and then closes.
            (false, _) if is_refused => self.end(Close::RefusedWithoutAnswer),
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
            Some(_) if passes => self.expect(&head, Answer::Produce(Produced::default())),
            None if passes => {}
            Some(refused) => {
                let answer = ProduceAnswer::new(head.correlation_id, by_topic(refused));
                self.expect(&head, Answer::Made(answer.encode(head.api_version).into()));
            }
            None => self.end(Close::RefusedWithoutAnswer),
        }
    }
}
