//! Requests of which the rest passes as it comes: a Produce whose verdict is known from its heads, and what is left of
//! requests that nobody reads.
//!
//! Invariant: a Produce that has begun to pass is committed when its last byte has come; one that is cut off before is as
//! if it had not come, here and at the broker. It takes no memory of its length.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::{Close, Intake, Session};
use crate::count::Count as _;
use crate::policy::Arrival;
use crate::proxy::in_flight::{Produced, Response};
use crate::proxy::session::Upstream;
use crate::proxy::session::runs::{self, PEEK_BYTES, REQUEST_RUN_BYTES};
use crate::proxy::verdict::{Foresight, Passing};
use crate::wire::api::{self, FrameHead};

/// Heads that end within so many bytes are waited for without taking memory for the whole frame.
const HEADS_BYTES: usize = 4096;

/// A Produce that passes.
pub(super) struct PassingFrame {
    head: FrameHead,
    /// Bytes still to come.
    left: usize,
    /// When its first bytes were read.
    begun: Instant,
    verdict: Box<Passing>,
}

/// What is known of the frame at the front of `rest`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Foreseen {
    /// Nothing yet.
    #[default]
    Nothing,
    /// So many of its bytes must be here first.
    Later(usize),
    /// It must be whole.
    Hold,
}

impl Foreseen {
    /// Only its heads are waited for, and they are short.
    pub(super) fn awaits_heads(self) -> bool {
        matches!(self, Self::Later(..=HEADS_BYTES))
    }
}

impl PassingFrame {
    /// Of the request, its length prefix left out.
    pub(super) const fn request_bytes(&self) -> u32 {
        self.head.request_bytes
    }

    /// What is remembered of it.
    pub(super) fn remembered_bytes(&self) -> usize {
        self.verdict.remembered_bytes()
    }
}

impl Session {
    /// The frame at the front of `rest` is not all here. `true`: it need not be, and passes from now on.
    pub(super) fn begin_passing(&mut self, head: &FrameHead) -> bool {
        let requests = &self.requests;
        let here = requests.rest.len();
        let left = head.frame_bytes().saturating_sub(here);
        let is_known = match requests.foreseen {
            Foreseen::Nothing => false,
            Foreseen::Later(bytes) => here < bytes,
            Foreseen::Hold => true,
        };
        if is_known {
            return false;
        }
        // So little is here soon. It is held, and paid for, even if its heads alone were waited for until now.
        if head.api_key != api::PRODUCE || left < REQUEST_RUN_BYTES {
            self.requests.foreseen = Foreseen::Hold;
            return false;
        }
        // What waits is committed first.
        if !requests.queue.is_empty() {
            return false;
        }
        let policy = Arc::clone(&self.shared.policy.load());
        let foresight = self.judge.foresee(
            &self.requests.rest,
            head,
            &policy,
            &mut self.who,
            self.last_traffic,
        );
        let requests = &mut self.requests;
        match foresight {
            Foresight::Later(bytes) => requests.foreseen = Foreseen::Later(bytes),
            Foresight::Hold => requests.foreseen = Foreseen::Hold,
            Foresight::Measure => {
                requests.foreseen = Foreseen::Hold;
                requests.peeks = requests.was_peek;
            }
            Foresight::Passes(verdict) => {
                self.pass(*head, left, verdict);
                return true;
            }
        }
        false
    }

    fn pass(&mut self, head: FrameHead, left: usize, verdict: Box<Passing>) {
        let may_pass = self.may_requests_pass();
        let requests = &mut self.requests;
        let half = requests.half.take();
        let begun = half.as_ref().map_or(self.last_traffic, |half| half.begun);
        requests.foreseen = Foreseen::Nothing;
        requests.usual_bytes = 0;
        requests.peeks = may_pass;
        requests.intake = Intake::Passing(PassingFrame {
            head,
            left,
            begun,
            verdict,
        });
        self.to_upstream.push(requests.rest.split().freeze());
        self.to_upstream.set_more(may_pass);
        self.to_upstream
            .hold(half.map(|half| half.lease).unwrap_or_default());
    }

    /// What is here of a request that passes goes on.
    pub(super) fn pass_on(&mut self) {
        let rest = &mut self.requests.rest;
        let Intake::Passing(frame) = &self.requests.intake else {
            return;
        };
        let here = frame.left.min(rest.len());
        self.to_upstream.push(rest.split_to(here).freeze());
        self.passed_of_request(here);
    }

    /// So many bytes of a request that passes have been taken from the client.
    fn passed_of_request(&mut self, bytes: usize) {
        match &mut self.requests.intake {
            Intake::Passing(frame) => {
                frame.left.decrease_by(bytes);
                if frame.left == 0 {
                    self.end_passing();
                }
            }
            Intake::Pass(left) => {
                left.decrease_by(bytes);
                if *left == 0 {
                    self.requests.intake = Intake::default();
                }
            }
            Intake::Frame | Intake::Drain(_) => {}
        }
    }

    /// All of a Produce that passes has come.
    fn end_passing(&mut self) {
        self.to_upstream.set_more(false);
        let Intake::Passing(frame) = std::mem::take(&mut self.requests.intake) else {
            return;
        };
        self.count_unnamed_software();
        let arrival = Arrival {
            begun: frame.begun,
            ended: self.last_traffic,
            in_flight: self.in_flight.len(),
        };
        let wants_response = frame.verdict.wants_response;
        let sent = self
            .judge
            .commit_passing(*frame.verdict, &self.who, &arrival);
        if wants_response {
            let produced = Produced {
                sent,
                refused: Vec::new(),
            };
            self.expect_since(&frame.head, arrival.ended, Response::Produce(produced));
        }
        self.judge.release();
        self.requests.judged.increment();
    }

    /// Runs of requests may pass without being read.
    const fn may_requests_pass(&self) -> bool {
        match &self.upstream {
            Upstream::Open(upstream) => runs::may_pass(&self.client, upstream),
            Upstream::Unneeded | Upstream::Connecting(_) => false,
        }
    }

    /// So many of the next bytes of the request in hand are of no interest here, and are worth a pipe.
    fn run_of_request_bytes(&self) -> usize {
        let is_read = || self.fetches.as_ref().is_some_and(|it| it.reads_request());
        match &self.requests.intake {
            _ if !self.requests.rest.is_empty() || !self.may_requests_pass() => 0,
            Intake::Passing(frame) => frame.left,
            Intake::Pass(left) if *left >= REQUEST_RUN_BYTES && !is_read() => *left,
            Intake::Frame | Intake::Pass(_) | Intake::Drain(_) => 0,
        }
    }

    /// Moves some of the run in hand. `None`: there is none, or it has to be read.
    pub(super) fn poll_run_of_request(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<Option<Poll<()>>, Close> {
        let (most, is_short) = (self.run_of_request_bytes(), self.shared.budget.is_short());
        if most == 0 {
            return Ok(None);
        }
        let (client, queue) = (&self.client, &mut self.to_upstream);
        match runs::poll_fill(client, queue, most, is_short, cx) {
            None => {
                self.requests.peeks = false;
                self.to_upstream.set_more(false);
                return Ok(None);
            }
            Some(Poll::Pending) => {
                self.is_client_read = true;
                return Ok(Some(Poll::Pending));
            }
            Some(Poll::Ready(Err(error))) => return Err(Close::Downstream(error)),
            Some(Poll::Ready(Ok(0))) => {
                self.end(Close::ByClient);
                return Ok(Some(Poll::Ready(())));
            }
            Some(Poll::Ready(Ok(bytes))) => {
                self.last_traffic = Instant::now();
                self.passed_of_request(bytes);
            }
        }
        if self.poll_write_upstream(cx)?.is_pending() {
            let left = self.to_upstream.len();
            self.to_upstream.hold(self.shared.budget.charge(left));
        }
        self.count_judged();
        Ok(Some(Poll::Ready(())))
    }

    /// How much is read next, where a request begins and its heads are all that is worth reading.
    pub(super) fn peek_bytes(&self) -> Option<usize> {
        let requests = &self.requests;
        let is_between = requests.rest.is_empty() && matches!(requests.intake, Intake::Frame);
        (requests.peeks && is_between).then_some(PEEK_BYTES)
    }
}
