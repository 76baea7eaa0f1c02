//! Runs of responses: what a response's walker has yet to look at, and what is left of one that nobody reads.

use std::task::{Context, Poll};
use std::time::Instant;

use super::{Close, Intake, Session, Upstream};
use crate::count::Count as _;
use crate::proxy::fetches::Next;
use crate::proxy::session::buffers;
use crate::proxy::session::runs::{self, PEEK_BYTES, RESPONSE_RUN_BYTES};
use crate::wire::{Malformed, Reason};

impl Session {
    /// Runs of responses may pass without being read.
    pub(super) const fn may_responses_pass(&self) -> bool {
        match &self.upstream {
            Upstream::Open(upstream) => runs::may_pass(upstream, &self.client),
            Upstream::Unneeded | Upstream::Connecting(_) => false,
        }
    }

    /// So many of the next bytes of the response in hand are of no interest here.
    fn opaque_response_bytes(&self) -> usize {
        let (walker, left) = match &self.responses.intake {
            Intake::Pass {
                left,
                metadata_tap: None,
                ..
            }
            | Intake::Watch {
                walker: None, left, ..
            } => return *left,
            Intake::Watch {
                walker: Some(walker),
                left,
                ..
            }
            | Intake::Tail { walker, left, .. } => (walker, left),
            Intake::Pass { .. } | Intake::Head(_) | Intake::Hold { .. } | Intake::Redeem { .. } => {
                return 0;
            }
        };
        let fetches = self.fetches.as_ref();
        let opaque = fetches.map_or(0, |fetches| fetches.opaque_bytes(walker));
        usize::try_from(opaque).unwrap_or(usize::MAX).min(*left)
    }

    /// What was read is used up: a run may follow.
    pub(super) fn begin_run_of_response(&mut self) {
        let responses = &self.responses;
        if responses.rest.is_empty() && self.may_responses_pass() {
            let is_in_run = self.opaque_response_bytes() >= RESPONSE_RUN_BYTES;
            self.responses.is_in_run = is_in_run;
            if is_in_run {
                self.responses.peeks = true;
                self.to_client.set_more(true);
            }
        }
    }

    /// Moves some of the run in hand. `None`: there is none, or it has to be read.
    pub(super) fn poll_run_of_response(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<Option<Poll<()>>, Close> {
        let Upstream::Open(upstream) = &self.upstream else {
            return Ok(None);
        };
        if !self.responses.is_in_run {
            return Ok(None);
        }
        let (most, is_short) = (self.opaque_response_bytes(), self.shared.budget.is_short());
        let Some(filled) = runs::poll_fill(upstream, &mut self.to_client, most, is_short, cx)
        else {
            self.responses.peeks = false;
            self.to_client.set_more(false);
            return Ok(None);
        };
        match filled {
            Poll::Pending => {
                self.is_broker_read = true;
                return Ok(Some(Poll::Pending));
            }
            Poll::Ready(Err(error)) => return Err(Close::Upstream(error)),
            Poll::Ready(Ok(0)) => return Err(self.closed_by_broker()),
            Poll::Ready(Ok(bytes)) => {
                self.last_traffic = Instant::now();
                self.passed_of_response(bytes)
                    .map_err(Close::MalformedResponse)?;
            }
        }
        let _ = self.poll_write_client(cx)?;
        Ok(Some(Poll::Ready(())))
    }

    /// So many bytes of the run in hand have been taken from the broker.
    fn passed_of_response(&mut self, bytes: usize) -> Result<(), Malformed> {
        let context = (&*self.shared, &self.who, self.last_traffic);
        let fetches = &mut self.fetches;
        let topics = &mut self.judge.topics;
        let mut pass = |walker: &mut _| {
            let fetches = fetches.get_or_insert_default();
            fetches.read_response(walker, Next::Passed(bytes), topics, context)
        };
        let (left, has_tail) = match &mut self.responses.intake {
            Intake::Pass { left, .. } => (left, false),
            Intake::Watch { walker, left, .. } => {
                walker.take_if(|walker| pass(walker).is_err());
                (left, false)
            }
            Intake::Tail { walker, left, .. } => {
                pass(walker)?;
                (left, true)
            }
            Intake::Head(_) | Intake::Hold { .. } | Intake::Redeem { .. } => return Ok(()),
        };
        left.decrease_by(bytes);
        let is_over = *left == 0;
        if is_over && has_tail {
            return Err(Malformed::new("response_length", Reason::Truncated));
        }
        self.responses.is_in_run = self.opaque_response_bytes() > 0;
        if is_over {
            self.end_response();
        }
        Ok(())
    }

    /// How much is read next.
    pub(super) fn response_read_bytes(&self) -> usize {
        match self.responses.peeks {
            true => PEEK_BYTES,
            false => buffers::read_bytes(self.shared.budget.is_short()),
        }
    }

    /// Of this response only the first bytes were read, because a run was thought to follow, and it is too small to have
    /// one: it goes on as if it had begun in two pieces.
    pub(super) fn is_cut_by_peek(&mut self, frame_bytes: usize) -> bool {
        let responses = &mut self.responses;
        let is_cut = responses.was_peek
            && frame_bytes < RESPONSE_RUN_BYTES
            && frame_bytes > responses.rest.len();
        if is_cut {
            responses.intake = Intake::Head(std::mem::take(&mut responses.rest).to_vec());
            responses.peeks = false;
        }
        is_cut
    }
}
