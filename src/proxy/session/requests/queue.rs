//! Produce requests that wait: for what comes before their verdict, or for those before them.
//!
//! What they wait for goes on side by side, and they leave in the order in which they came. Who waits here is here with
//! all its bytes, and waits for the cluster, for a decode or for the store: never for the budget. So whoever does wait
//! for the budget waits for requests that get on.
//!
//! Invariant: nothing is committed, and nothing else is forwarded, while an earlier request waits.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;

use super::{Pending, Session};
use crate::count::Count as _;
use crate::proxy::session::Close;
use crate::proxy::session::buffers::BUFFER_BYTES;
use crate::proxy::session::gather::Gathering;
use crate::proxy::verdict::Step;
use crate::wire::api;

/// Requests of one connection that wait at once. Kafka's clients keep five in flight unless they are told otherwise;
/// some keep any number, and of these the more wait together the fewer times they wait. Each is polled whenever its
/// session is, so there is an end to it.
const MOST: usize = 16;

/// A frame up to this size leaves the worker's buffer while it waits: copying it costs less than the buffer is worth.
const COPIED_BYTES: usize = BUFFER_BYTES / 8;

/// The requests, first come first. Empty, it has no memory of its own.
#[derive(Default)]
pub(super) struct Queue {
    requests: VecDeque<Waiter>,
}

enum Waiter {
    /// The next step is on its way.
    Gathering(Gathering),
    /// Only those before it are waited for.
    Ready(Box<Pending>),
}

impl Queue {
    /// Nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Requests that wait.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// One more may wait.
    pub(super) fn has_room(&self) -> bool {
        self.requests.len() < MOST
    }

    /// Takes out the request at `at` if something can be done for it: its step is over, or (`may_leave`) it is the first
    /// and ready.
    fn poll_take(
        &mut self,
        at: usize,
        may_leave: bool,
        cx: &mut Context<'_>,
    ) -> Option<Poll<Pending>> {
        let waiter = self.requests.get_mut(at)?;
        match waiter {
            Waiter::Gathering(gathering) => {
                let Poll::Ready(pending) = gathering.as_mut().poll(cx) else {
                    return Some(Poll::Pending);
                };
                self.requests.remove(at);
                Some(Poll::Ready(pending))
            }
            Waiter::Ready(_) if at > 0 || !may_leave => Some(Poll::Pending),
            Waiter::Ready(_) => match self.requests.pop_front()? {
                Waiter::Ready(mut pending) => {
                    // It was evaluated when others were before it, which may be long ago.
                    pending.asked.confirm_again();
                    Some(Poll::Ready(*pending))
                }
                Waiter::Gathering(_) => None,
            },
        }
    }
}

impl Session {
    /// Lets every request that waits get on as far as it can, and commits those whose turn it is. `true`: something was
    /// done.
    pub(super) fn poll_queue(&mut self, cx: &mut Context<'_>) -> Result<bool, Close> {
        // What cannot be written yet is not followed by more.
        let may_leave = self.to_upstream.is_empty();
        let (mut at, mut is_moved) = (0, false);
        while let Some(taken) = self.requests.queue.poll_take(at, may_leave, cx) {
            let Poll::Ready(mut pending) = taken else {
                at.increment();
                continue;
            };
            is_moved = true;
            match self.evaluate(&mut pending) {
                Err(malformed) => self.end_after(at, Close::MalformedRequest(malformed)),
                Ok(Step::Done) if at == 0 && may_leave => self.commit(pending),
                // Polled in the next turn of this loop: that is how its waker comes to it.
                Ok(step) => self.put(at, step, pending),
            }
        }
        if is_moved {
            self.acted_at = Instant::now();
            self.judge.release();
            self.consume()?;
        }
        Ok(is_moved)
    }

    /// A request that was evaluated comes to wait.
    pub(super) fn enqueue(&mut self, step: Step, mut pending: Pending) {
        if pending.lease.is_empty() {
            let mut bytes = pending.frame.len();
            if bytes <= COPIED_BYTES {
                pending.frame = Bytes::copy_from_slice(&pending.frame);
            } else {
                // It keeps the worker's buffer.
                bytes = bytes.max(BUFFER_BYTES);
            }
            pending.lease = self.shared.budget.charge(bytes);
        }
        self.judge.release();
        self.put(self.requests.queue.len(), step, pending);
    }

    fn put(&mut self, at: usize, step: Step, mut pending: Pending) {
        let waiter = match step {
            Step::Done => {
                // Memory for offloading is for who is not done yet: nobody waits for a turn with it.
                pending.original = None;
                if let Some(offload) = &mut pending.asked.offload {
                    offload.end();
                }
                Waiter::Ready(Box::new(pending))
            }
            step @ (Step::Ask(_) | Step::Do(_)) => Waiter::Gathering(self.gather(step, pending)),
        };
        self.requests.queue.requests.insert(at, waiter);
    }

    /// The connection ends with the request at this place of the queue: what came after it is as if it had not come.
    pub(super) fn end_after(&mut self, at: usize, close: Close) {
        self.requests.queue.requests.truncate(at);
        self.requests.waiting = None;
        self.requests.ended = None;
        self.end(close);
    }

    /// A frame with this head may begin: nothing waits before it, or it may wait too. While memory is short, those that
    /// wait are enough; a frame whose memory is there already goes on.
    pub(super) fn may_begin(&self, api_key: i16, is_held: bool) -> bool {
        let requests = &self.requests;
        if requests.queue.is_empty() {
            return true;
        }
        let may_wait = is_held && api_key == api::PRODUCE;
        let has_room = || requests.queue.has_room() && !self.shared.budget.is_short();
        may_wait && (requests.half.is_some() || has_room())
    }
}
