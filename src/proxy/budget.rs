//! The process-wide budget for bytes that are held: frames being gathered, and what could not be written yet.
//!
//! A frame's bytes are spent before they are read and given back after they have left. When the budget is
//! spent, sessions wait in order; nobody is refused for it. Where waiting could never end (every byte is held
//! by somebody who waits), the first in the queue is let in over the budget: one frame at most.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use prometheus::IntCounter;

/// The budget. Cheap to share.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    used: AtomicUsize,
    /// Frames let in and not yet given back.
    frames: AtomicUsize,
    /// Length of `queue`, to be read without its lock.
    waiting: AtomicUsize,
    queue: Mutex<VecDeque<SharedTurn>>,
    waits: IntCounter,
}

type SharedTurn = Arc<Mutex<Turn>>;

/// A place in the queue.
#[derive(Debug)]
struct Turn {
    bytes: usize,
    state: TurnState,
    waker: Option<Waker>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnState {
    Waiting,
    Admitted,
    /// Taken or given up.
    Done,
}

impl Budget {
    /// A budget of `limit` bytes that counts how often somebody waited.
    pub fn new(limit: usize, waits: IntCounter) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicUsize::new(0),
            frames: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            queue: Mutex::new(VecDeque::new()),
            waits,
        })
    }

    /// Bytes held now.
    pub fn held_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Sessions wait, or soon will: read in small steps.
    pub fn is_short(&self) -> bool {
        self.has_waiters()
            || self.used.load(Ordering::Relaxed).saturating_mul(8) > self.limit.saturating_mul(7)
    }

    /// Somebody waits for bytes to come back.
    pub fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Spends bytes that are already here, over the budget if need be.
    pub fn charge(self: &Arc<Self>, bytes: usize) -> Lease {
        self.used.fetch_add(bytes, Ordering::SeqCst);
        Lease {
            budget: Some(Arc::clone(self)),
            bytes,
            frames: 0,
        }
    }

    /// Spends the bytes of a frame before they are read, if nobody waits and they fit.
    pub fn try_admit(self: &Arc<Self>, bytes: usize) -> Option<Lease> {
        let admitted = !self.has_waiters() && self.try_take_frame(bytes);
        admitted.then(|| Lease {
            budget: Some(Arc::clone(self)),
            bytes,
            frames: 1,
        })
    }

    /// Waits in turn for the bytes of a frame.
    pub fn admit(self: &Arc<Self>, bytes: usize) -> Admission {
        self.waits.inc();
        let turn = Arc::new(Mutex::new(Turn {
            bytes,
            state: TurnState::Waiting,
            waker: None,
        }));
        self.lock().push_back(Arc::clone(&turn));
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // Bytes may have come back between the attempt and the place in the queue.
        self.let_in();
        Admission {
            budget: Arc::clone(self),
            bytes,
            turn,
        }
    }

    fn try_take_frame(&self, bytes: usize) -> bool {
        let fits = |used: usize| {
            let alone = self.frames.load(Ordering::SeqCst) == 0;
            (alone || used.saturating_add(bytes) <= self.limit).then(|| used.saturating_add(bytes))
        };
        if self
            .used
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits)
            .is_err()
        {
            return false;
        }
        self.frames.fetch_add(1, Ordering::SeqCst);
        true
    }

    fn give_back(&self, bytes: usize, frames: usize) {
        self.used.fetch_sub(bytes, Ordering::SeqCst);
        self.frames.fetch_sub(frames, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.let_in();
        }
    }

    /// Admits from the front of the queue what now fits.
    fn let_in(&self) {
        let mut queue = self.lock();
        while let Some(front) = queue.front() {
            let mut turn = front.lock().unwrap_or_else(PoisonError::into_inner);
            match turn.state {
                TurnState::Waiting if !self.try_take_frame(turn.bytes) => return,
                TurnState::Waiting => {
                    turn.state = TurnState::Admitted;
                    if let Some(waker) = turn.waker.take() {
                        waker.wake();
                    }
                }
                TurnState::Admitted | TurnState::Done => {}
            }
            drop(turn);
            queue.pop_front();
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<SharedTurn>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes spent; dropping it gives them back.
#[derive(Debug, Default)]
pub struct Lease {
    budget: Option<Arc<Budget>>,
    bytes: usize,
    frames: usize,
}

impl Lease {
    /// Holds `other`'s bytes as well.
    pub fn join(&mut self, mut other: Lease) {
        if self.budget.is_none() {
            *self = other;
            return;
        }
        self.bytes += std::mem::take(&mut other.bytes);
        self.frames += std::mem::take(&mut other.frames);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(budget) = self
            .budget
            .take()
            .filter(|_| self.bytes > 0 || self.frames > 0)
        {
            budget.give_back(self.bytes, self.frames);
        }
    }
}

/// Waits for a frame's turn; gives the [`Lease`] for it.
#[derive(Debug)]
pub struct Admission {
    budget: Arc<Budget>,
    bytes: usize,
    turn: SharedTurn,
}

impl Future for Admission {
    type Output = Lease;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Lease> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if turn.state == TurnState::Waiting {
            turn.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        turn.state = TurnState::Done;
        Poll::Ready(Lease {
            budget: Some(Arc::clone(&self.budget)),
            bytes: self.bytes,
            frames: 1,
        })
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut turn.state, TurnState::Done);
        drop(turn);
        match before {
            TurnState::Waiting => self.budget.let_in(),
            // Let in, but nobody came for the bytes.
            TurnState::Admitted => self.budget.give_back(self.bytes, 1),
            TurnState::Done => {}
        }
    }
}
