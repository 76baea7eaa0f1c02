//! Brings requests from the client to the broker: reading and waiting. What arrives is cut into frames (`frames.rs`),
//! Produce is judged (`produce.rs`) and waits where it must (`queue.rs`), the rest passes.
//!
//! Invariant: whatever leaves for the broker leaves in the order in which it came, and what has begun to leave is whole
//! before anything else leaves.

pub(super) mod configs;
mod fetch;
mod frames;
mod passing;
mod produce;
mod queue;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Bytes, BytesMut};

use self::passing::{Foreseen, PassingFrame};
use self::queue::Queue;
use super::buffers::{self, BUFFER_BYTES, READ_BYTES};
use super::offload::Original;
use super::runs::PEEK_BYTES;
use super::{BACKLOG_BYTES, Close, HEAD, LONGEST_GATHERING, STALL, STALL_BYTES, Session};
use crate::count::total;
use crate::policy::{Arrival, Policy};
use crate::proxy::budget::{Account, Admission, Lease};
use crate::proxy::in_flight::{Expected, Response};
use crate::proxy::oversized::OversizedFrame;
use crate::proxy::verdict::Gathered;
use crate::telemetry::ClientConnection;
use crate::wire::api::{self, FrameHead};

/// The way in.
#[derive(Default)]
pub(super) struct Requests {
    intake: Intake,
    /// Arrived and not yet used: half a frame, or what follows a frame that waits for its verdict.
    rest: BytesMut,
    /// The frame that is half here, once its bytes are admitted.
    half: Option<Half>,
    /// Whether that frame can pass before it is whole.
    foreseen: Foreseen,
    /// When the head began of which some bytes are here.
    head_begun: Option<Instant>,
    /// The last frame passed in the kernel, and the next one most likely does: only its heads are read.
    peeks: bool,
    /// What is in `rest` was read so.
    was_peek: bool,
    /// The size of the last frame, if that took more than one read: the next one is likely to be as large, and is
    /// read in one piece into a buffer that it need not leave.
    usual_bytes: usize,
    /// For the buffer that `rest` keeps while something is waited for.
    rest_lease: Lease,
    waiting: Option<Waiting>,
    /// Produce requests that wait.
    queue: Queue,
    /// The frame at the front of `rest` may not begin before some of the queue has left.
    is_held_up: bool,
    /// No more requests are read, and why.
    pub ended: Option<Close>,
    /// Produce requests judged since the last read: their share of our time is counted together.
    judged: u32,
    /// The connection is counted under its client's software.
    counted: Option<ClientConnection>,
    /// The first bytes of the connection were Kafka's.
    is_kafka: bool,
    /// The client authenticates with bare tokens (SaslHandshake version 0).
    sends_tokens: bool,
}

/// A frame of which the rest has yet to come.
struct Half {
    frame_bytes: usize,
    lease: Lease,
    /// When its first bytes were read.
    begun: Instant,
    since: Instant,
    /// When it was last seen to have come on by [`STALL_BYTES`], and how much of it was here.
    moved_at: Instant,
    had_bytes: usize,
}

/// Where in a frame the stream stands.
#[derive(Default)]
enum Intake {
    /// A frame begins at the front of `rest`.
    #[default]
    Frame,
    /// A frame streams through: bytes to come.
    Pass(usize),
    /// The same of a Produce whose verdict is known.
    Passing(PassingFrame),
    /// A Produce above the limit is read and not kept; where it is only observed, it passes.
    Drain(Box<OversizedFrame>),
}

/// What the way in waits for before it reads on.
enum Waiting {
    /// Memory for the frame that is half here.
    Memory {
        frame_bytes: usize,
        begun: Instant,
        admission: Admission,
    },
    /// What the verdict on a request that sets configs needs to know.
    Configs(configs::Pending),
}

/// A request in hand: whole, and not judged yet.
pub(super) struct Pending {
    pub head: FrameHead,
    pub frame: Bytes,
    pub arrival: Arrival,
    /// For the frame.
    pub lease: Lease,
    /// The rules that it was first judged by: it is judged by them to its end, whatever is reloaded meanwhile. `None`
    /// until something has to be asked.
    pub policy: Option<Arc<Policy>>,
    /// What has been asked for it.
    pub asked: Gathered,
    /// As it came, while other bytes are in `frame`.
    pub original: Option<Original>,
}

impl Requests {
    /// Memory or knowledge is waited for.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.is_some() || !self.queue.is_empty()
    }

    /// What is in `rest` waits.
    fn rest_waits(&self) -> bool {
        self.waiting.is_some() || self.is_held_up
    }

    /// The rest of a frame has yet to come.
    pub(super) fn is_half_here(&self) -> bool {
        !self.is_at_boundary()
    }

    fn is_at_boundary(&self) -> bool {
        self.rest.is_empty() && matches!(self.intake, Intake::Frame)
    }

    /// Some of a frame's first bytes are here, and not all of its head.
    fn is_inside_head(&self) -> bool {
        !self.rest.is_empty()
            && matches!(self.intake, Intake::Frame)
            && self.half.is_none()
            && self.foreseen == Foreseen::Nothing
            && !self.rest_waits()
    }

    /// The Produce that has begun to leave, and has not come to its end: its bytes.
    pub(super) fn passing_bytes(&self) -> Option<u32> {
        match &self.intake {
            Intake::Passing(frame) => Some(frame.request_bytes()),
            Intake::Frame | Intake::Pass(_) | Intake::Drain(_) => None,
        }
    }

    /// A head takes longer than any client needs for it.
    pub(super) fn is_head_late(&self) -> bool {
        self.head_begun.is_some_and(|begun| begun.elapsed() >= HEAD)
    }

    /// What is remembered of a frame that is not kept.
    pub(super) fn remembered_bytes(&self) -> usize {
        match &self.intake {
            Intake::Drain(oversized) => oversized.remembered_bytes(),
            Intake::Passing(frame) => frame.remembered_bytes(),
            Intake::Frame | Intake::Pass(_) => 0,
        }
    }

    /// Too little of the frame that is half here came for too long, or it takes too long in all.
    pub(super) fn has_stalled(&mut self) -> bool {
        let Some(half) = &mut self.half else {
            return false;
        };
        if self.rest.len().saturating_sub(half.had_bytes) >= STALL_BYTES {
            (half.moved_at, half.had_bytes) = (Instant::now(), self.rest.len());
        }
        half.moved_at.elapsed() >= STALL || half.since.elapsed() >= LONGEST_GATHERING
    }
}

impl Session {
    /// Moves what can be moved, one read at most: the responses have their turn too. `Ok(true)` when anything was.
    pub(super) fn poll_requests(&mut self, cx: &mut Context<'_>) -> Result<bool, Close> {
        // Whatever the broker takes or does not take: who has memory for offloading gets on.
        let mut moved = !self.requests.queue.is_empty() && self.poll_queue(cx)?;
        if !self.to_upstream.is_empty() {
            if self.poll_write_upstream(cx)?.is_pending() {
                return Ok(moved);
            }
            moved = true;
        }
        match self.poll_waiting(cx)? {
            Poll::Pending => return Ok(moved),
            Poll::Ready(true) => return Ok(true),
            Poll::Ready(false) => {}
        }
        Ok((self.may_read() && self.poll_read_client(cx)?.is_ready()) || moved)
    }

    /// Nothing but the client keeps the next request from being read.
    pub(super) fn reads_requests(&self) -> bool {
        self.to_upstream.is_empty() && self.requests.waiting.is_none() && self.may_read()
    }

    /// No request is read while the client owes too much reading, or after its last one. While memory is short, whoever
    /// has much in flight waits for responses first.
    fn may_read(&self) -> bool {
        let is_last_read = self.is_draining && self.requests.is_at_boundary();
        let is_patient = self.in_flight.remembered_bytes() > Account::FREE_BYTES
            && self.shared.budget.is_short();
        self.requests.ended.is_none()
            && !self.requests.is_held_up
            && !is_last_read
            && !is_patient
            && !self.in_flight.is_full()
            && total([self.to_client.len(), self.in_flight.made_bytes()]) <= BACKLOG_BYTES
    }

    fn poll_write_upstream(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Close> {
        let written = match self.poll_upstream(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(upstream) => {
                upstream?;
                let super::Upstream::Open(stream) = &mut self.upstream else {
                    return Ok(Poll::Pending);
                };
                self.to_upstream.poll_write(stream, cx)
            }
        };
        match written {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(error)) => Err(Close::Upstream(error)),
        }
    }

    /// `Ready(true)`: what was waited for is here and was acted on.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Result<Poll<bool>, Close> {
        match self.requests.waiting.take() {
            None => Ok(Poll::Ready(false)),
            Some(Waiting::Memory {
                frame_bytes,
                begun,
                mut admission,
            }) => match Pin::new(&mut admission).poll(cx) {
                Poll::Pending => {
                    self.requests.waiting = Some(Waiting::Memory {
                        frame_bytes,
                        begun,
                        admission,
                    });
                    Ok(Poll::Pending)
                }
                Poll::Ready(lease) => {
                    self.acted_at = Instant::now();
                    self.expect_rest_of_frame(frame_bytes, begun, lease);
                    Ok(Poll::Ready(true))
                }
            },
            Some(Waiting::Configs(mut pending)) => match pending.poll(cx) {
                Poll::Pending => {
                    self.requests.waiting = Some(Waiting::Configs(pending));
                    Ok(Poll::Pending)
                }
                Poll::Ready(facts) => {
                    self.acted_at = Instant::now();
                    self.on_configs_known(pending, facts);
                    self.consume()?;
                    Ok(Poll::Ready(true))
                }
            },
        }
    }

    fn poll_read_client(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Close> {
        if self.is_client_read {
            return Ok(Poll::Pending);
        }
        if let Some(polled) = self.poll_run_of_request(cx)? {
            return Ok(polled);
        }
        let has_room = self.requests.rest.capacity() > self.requests.rest.len();
        if !has_room && self.client.poll_readable(cx).is_pending() {
            // Nothing was borrowed, and nothing is to be given back.
            self.is_client_read = true;
            return Ok(Poll::Pending);
        }
        let peeks = self.peek_bytes();
        self.requests.was_peek = peeks.is_some();
        let Requests {
            rest,
            half,
            usual_bytes,
            peeks: goes_on,
            ..
        } = &mut self.requests;
        let is_short = self.shared.budget.is_short();
        let most = match half {
            // No further than a large frame's end: what follows would need as much room again, or need not be read.
            Some(half) if half.frame_bytes > READ_BYTES || *goes_on => {
                half.frame_bytes.saturating_sub(rest.len())
            }
            _ if is_short => buffers::read_bytes(true),
            _ => peeks.unwrap_or_else(|| buffers::read_bytes(false).max(*usual_bytes)),
        };
        if half.is_none() && rest.capacity() == rest.len() {
            let mut buffer = if is_short {
                buffers::borrow()
            } else {
                buffers::borrow_for(*usual_bytes)
            };
            buffer.extend_from_slice(rest);
            *rest = buffer;
        }
        match buffers::poll_read(&mut self.client, cx, rest, most) {
            Poll::Pending => {
                self.is_client_read = true;
                self.keep_rest(is_short);
                return Ok(Poll::Pending);
            }
            Poll::Ready(Err(error)) => return Err(Close::Downstream(error)),
            Poll::Ready(Ok(0)) => {
                self.end(Close::ByClient);
                return Ok(Poll::Ready(()));
            }
            Poll::Ready(Ok(read)) => {
                self.last_traffic = Instant::now();
                // As much as was asked for, and more may be here.
                *goes_on &= peeks.is_none() || read < PEEK_BYTES;
            }
        }
        self.consume()?;
        // Written at once, most of it is gone before anybody needs to account for it.
        if !self.to_upstream.is_empty() && self.poll_write_upstream(cx)?.is_pending() {
            self.to_upstream
                .hold(self.shared.budget.charge(BUFFER_BYTES));
        }
        self.keep_rest(is_short);
        self.count_judged();
        Ok(Poll::Ready(()))
    }

    /// Our own part of every Produce in this read: from its arrival to its first attempt to leave.
    fn count_judged(&mut self) {
        let judged = std::mem::take(&mut self.requests.judged);
        if judged > 0 {
            let took = self.last_traffic.elapsed();
            self.shared
                .metrics
                .proxy_seconds(api::PRODUCE)
                .observe_times(took, judged);
        }
    }

    /// Between two reads: an empty buffer goes back to the worker, and little is kept in little memory.
    fn keep_rest(&mut self, is_short: bool) {
        let waits = self.requests.rest_waits();
        let Requests {
            rest,
            half,
            rest_lease,
            ..
        } = &mut self.requests;
        if rest.is_empty() {
            if rest.capacity() > 0 {
                buffers::give_back(std::mem::take(rest));
            }
        } else if half.is_none() || is_short {
            let room = half.as_ref().map_or(rest.len(), |half| half.frame_bytes);
            if rest.capacity() > room && !waits {
                let mut small = BytesMut::with_capacity(room);
                small.extend_from_slice(rest);
                rest.clear();
                buffers::give_back(std::mem::replace(rest, small));
            } else if waits {
                *rest_lease = self.shared.budget.charge(rest.capacity());
            }
        }
    }

    /// Reads no more requests. What is half here is dropped; what is in flight is still answered.
    fn end(&mut self, close: Close) {
        self.leave();
        self.requests.ended.get_or_insert(close);
        if matches!(self.requests.intake, Intake::Pass(_)) {
            self.in_flight.abandon_last();
        }
        self.requests.intake = Intake::default();
        self.requests.rest = BytesMut::new();
        self.requests.half = None;
        self.requests.foreseen = Foreseen::Nothing;
        self.to_upstream.set_more(false);
        self.requests.head_begun = None;
        self.requests.is_held_up = false;
    }

    pub(super) fn expect(&mut self, head: &FrameHead, response: Response) {
        self.expect_since(head, self.last_traffic, response);
    }

    /// `since`: when the request was read.
    pub(super) fn expect_since(&mut self, head: &FrameHead, since: Instant, response: Response) {
        self.in_flight.expect(Expected {
            correlation_id: head.correlation_id,
            api_key: head.api_key,
            api_version: head.api_version,
            request_bytes: head.request_bytes,
            since,
            response,
        });
    }
}
