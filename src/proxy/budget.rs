//! The process-wide budget for bytes that are held: frames being gathered, and what could not be written yet.
//!
//! A frame's bytes are spent before they are read and given back after they have left. When the budget is
//! spent, sessions wait in order; nobody is refused for it. Small frames have a queue and a share of their own,
//! so that a few clients that are slow over large ones do not stop everybody. Where waiting could never end
//! (every byte is held by somebody who waits), the first in a queue is let in over the budget: one frame of each
//! kind at most.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use prometheus::IntCounter;
use tokio::sync::oneshot;

use crate::count::{Count as _, total};

#[cfg(test)]
mod tests;

/// The share of the budget that large frames leave to small ones: an eighth.
const RESERVE: usize = 8;
/// A frame of at most this share of the budget is small: 8 MiB of 512.
const SMALL: usize = 64;

/// The budget. Cheap to share.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    state: Mutex<State>,
    /// What `state` says, to be read without its lock.
    used: AtomicUsize,
    waiting: AtomicUsize,
    waits: IntCounter,
}

#[derive(Debug, Default)]
struct State {
    used: usize,
    small: Lane,
    large: Lane,
    /// Numbers those who come to wait.
    next_ticket: u64,
}

/// Frames of one kind.
#[derive(Debug, Default)]
struct Lane {
    /// Let in and not yet given back.
    admitted: usize,
    /// By ticket: the first in line is the first here, and whoever gives up leaves without a search.
    queue: BTreeMap<u64, Turn>,
}

/// A place in a queue.
#[derive(Debug)]
struct Turn {
    bytes: usize,
    admit: oneshot::Sender<Lease>,
}

/// What a lease is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Bytes that are here already.
    Backlog,
    SmallFrame,
    LargeFrame,
}

impl Budget {
    /// A budget of `limit` bytes that counts how often somebody waited.
    pub fn new(limit: usize, waits: IntCounter) -> Arc<Self> {
        Arc::new(Self {
            limit,
            state: Mutex::default(),
            used: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            waits,
        })
    }

    /// Bytes held now.
    pub fn held_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Sessions wait, or soon will: read in small steps.
    pub fn is_short(&self) -> bool {
        self.has_waiters() || self.held_bytes().saturating_mul(8) > self.limit.saturating_mul(7)
    }

    /// Somebody waits for bytes to come back.
    pub fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Spends bytes that are already here, over the budget if need be.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Lease {
        let mut state = self.lock();
        state.used.increase_by(bytes);
        self.publish(&state);
        Lease::new(self, bytes, Kind::Backlog)
    }

    /// Spends the bytes of a frame before they are read, if nobody waits and they fit.
    pub fn try_admit(self: &Arc<Self>, bytes: usize) -> Option<Lease> {
        let kind = self.kind(bytes);
        let mut state = self.lock();
        if !state.lane(kind).queue.is_empty() || !self.fits(&mut state, bytes, kind) {
            return None;
        }
        Some(self.take(&mut state, bytes, kind))
    }

    /// Waits in turn for the bytes of a frame.
    pub fn admit(self: &Arc<Self>, bytes: usize) -> Admission {
        self.waits.inc();
        let (admit, lease) = oneshot::channel();
        let kind = self.kind(bytes);
        let mut state = self.lock();
        let ticket = state.next_ticket;
        state.next_ticket = ticket.wrapping_add(1);
        state.lane(kind).queue.insert(ticket, Turn { bytes, admit });
        // Bytes may have come back between the attempt and the place in the queue.
        self.let_in(state);
        Admission {
            budget: Arc::clone(self),
            lease,
            place: Some((kind, ticket)),
        }
    }

    const fn kind(&self, bytes: usize) -> Kind {
        if bytes <= self.limit / SMALL {
            Kind::SmallFrame
        } else {
            Kind::LargeFrame
        }
    }

    fn fits(&self, state: &mut State, bytes: usize, kind: Kind) -> bool {
        let room = match kind {
            Kind::LargeFrame => self.limit.saturating_sub(self.limit / RESERVE),
            Kind::SmallFrame | Kind::Backlog => self.limit,
        };
        state.used.saturating_add(bytes) <= room || state.lane(kind).admitted == 0
    }

    fn take(self: &Arc<Self>, state: &mut State, bytes: usize, kind: Kind) -> Lease {
        state.used.increase_by(bytes);
        state.lane(kind).admitted.increment();
        self.publish(state);
        Lease::new(self, bytes, kind)
    }

    fn give_back(self: &Arc<Self>, bytes: usize, kind: Kind) {
        let mut state = self.lock();
        state.used.decrease_by(bytes);
        if kind != Kind::Backlog {
            state.lane(kind).admitted.decrement();
        }
        self.let_in(state);
    }

    /// Admits from the front of each queue what now fits.
    fn let_in(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        let mut admitted = Vec::new();
        for kind in [Kind::SmallFrame, Kind::LargeFrame] {
            while let Some((ticket, turn)) = state.lane(kind).queue.pop_first() {
                if !self.fits(&mut state, turn.bytes, kind) {
                    state.lane(kind).queue.insert(ticket, turn);
                    break;
                }
                admitted.push((turn.admit, self.take(&mut state, turn.bytes, kind)));
            }
        }
        self.publish(&state);
        drop(state);
        for (admit, lease) in admitted {
            // If nobody waits for it any more, the lease comes back, and gives its bytes back.
            let _ = admit.send(lease);
        }
    }

    fn publish(&self, state: &State) {
        self.used.store(state.used, Ordering::Relaxed);
        let waiting = total([state.small.queue.len(), state.large.queue.len()]);
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn lane(&mut self, kind: Kind) -> &mut Lane {
        match kind {
            Kind::SmallFrame | Kind::Backlog => &mut self.small,
            Kind::LargeFrame => &mut self.large,
        }
    }
}

/// Bytes spent; dropping it gives them back.
#[derive(Debug, Default)]
pub struct Lease {
    parts: Vec<Part>,
}

/// Bytes of one kind.
#[derive(Debug)]
struct Part {
    budget: Arc<Budget>,
    bytes: usize,
    kind: Kind,
}

impl Lease {
    fn new(budget: &Arc<Budget>, bytes: usize, kind: Kind) -> Self {
        let budget = Arc::clone(budget);
        Self {
            parts: vec![Part {
                budget,
                bytes,
                kind,
            }],
        }
    }

    /// Nothing is spent.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Bytes spent.
    pub fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// Holds `other`'s bytes as well.
    pub fn join(&mut self, mut other: Lease) {
        self.parts.append(&mut other.parts);
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.budget.give_back(self.bytes, self.kind);
    }
}

/// Waits for a frame's turn; gives the [`Lease`] for it.
#[derive(Debug)]
pub struct Admission {
    budget: Arc<Budget>,
    lease: oneshot::Receiver<Lease>,
    /// Where it waits; `None` once it has been served.
    place: Option<(Kind, u64)>,
}

impl Future for Admission {
    type Output = Lease;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Lease> {
        // The sender is only ever dropped unused when this is gone.
        let lease = std::task::ready!(Pin::new(&mut self.lease).poll(cx));
        self.place = None;
        Poll::Ready(lease.unwrap_or_default())
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let Some((kind, ticket)) = self.place else {
            return;
        };
        self.lease.close();
        let mut state = self.budget.lock();
        if state.lane(kind).queue.remove(&ticket).is_some() {
            // The next in line may fit where this one did not.
            self.budget.let_in(state);
        }
    }
}

/// What a session remembers beyond frames and write queue, charged in steps: an ordinary session remembers little, and
/// takes no lock for it.
#[derive(Debug, Default)]
pub(super) struct Account {
    lease: Lease,
}

impl Account {
    /// So much is not charged: ten thousand sessions have 160 MiB of it at most.
    pub(super) const FREE_BYTES: usize = 16 * 1024;
    /// What is charged is a multiple of this.
    const STEP_BYTES: usize = 64 * 1024;

    /// Sees to it that `bytes` are charged, over the budget if need be: they are here already.
    pub(super) fn cover(&mut self, budget: &Arc<Budget>, bytes: usize) {
        let charged = self.lease.bytes();
        if bytes <= Self::FREE_BYTES {
            if charged > 0 {
                self.lease = Lease::default();
            }
        } else if bytes > charged {
            let steps = bytes.div_ceil(Self::STEP_BYTES);
            let wanted = steps.saturating_mul(Self::STEP_BYTES);
            self.lease
                .join(budget.charge(wanted.saturating_sub(charged)));
        } else if charged > Self::STEP_BYTES && bytes < charged / 2 {
            // In this order: both at once would be too much.
            self.lease = Lease::default();
            self.cover(budget, bytes);
        }
    }
}
