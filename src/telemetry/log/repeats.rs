//! Counts repetitions: the first at once, the rest as a count for each minute.
//!
//! Invariant: between two summaries at most [`KEYS`] keys are kept, and everything that happens is either a first or
//! counted in the next summary.

use crate::count::Count as _;
use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Characters of a word that is a peer's own: of hostile length, what differs only beyond it is one.
pub(super) const WORD: usize = 128;

/// So many keys are told apart between two summaries.
pub(super) const KEYS: usize = 1_000;

/// Counts repetitions by key; `R` is what a summary says of them.
#[derive(Debug)]
pub(super) struct Repeats<K, R> {
    /// So many of a key are said one by one.
    each: u64,
    seen: Mutex<Seen<K, R>>,
}

#[derive(Debug)]
struct Seen<K, R> {
    /// How many were said, how many came after these, and what is said of them.
    by_key: HashMap<K, Times<R>>,
    /// What found no room.
    more: u64,
}

#[derive(Debug)]
struct Times<R> {
    said: u64,
    repeated: u64,
    repeats: R,
}

impl<R: Default> Times<R> {
    fn said(said: u64) -> Self {
        Self {
            said,
            repeated: 0,
            repeats: R::default(),
        }
    }
}

/// What happened again since the last summary.
pub(super) struct Summary<K, R> {
    /// How often, by key; never 0.
    pub(super) repeats: Vec<(K, u64, R)>,
    /// Of too many keys to be told apart.
    pub(super) more: u64,
}

impl<K, R> Default for Repeats<K, R> {
    fn default() -> Self {
        Self::each(1)
    }
}

impl<K, R> Repeats<K, R> {
    /// Of each key so many are said one by one before the rest are counted.
    pub(super) fn each(each: u64) -> Self {
        Self {
            each,
            seen: Mutex::new(Seen {
                by_key: HashMap::new(),
                more: 0,
            }),
        }
    }
}

impl<K: Eq + Hash + Clone, R: Default> Repeats<K, R> {
    /// One of the first of its key since a quiet minute: say it now. Else it is counted, and `again` adds to what the
    /// summary says.
    pub(super) fn is_first(&self, key: K, again: impl FnOnce(&mut R)) -> bool {
        let mut seen = self.lock();
        if let Some(times) = seen.by_key.get_mut(&key) {
            if times.said < self.each {
                times.said.increment();
                return true;
            }
            times.repeated.increment();
            again(&mut times.repeats);
            return false;
        }
        if seen.by_key.len() >= KEYS {
            seen.more.increment();
            return false;
        }
        seen.by_key.insert(key, Times::said(1));
        true
    }

    /// What was counted since the last call. Those that were quiet meanwhile are first again.
    pub(super) fn summary(&self) -> Summary<K, R> {
        let mut seen = self.lock();
        let repeats: Vec<(K, u64, R)> = mem::take(&mut seen.by_key)
            .into_iter()
            .filter(|(_, times)| times.repeated > 0)
            .map(|(key, times)| (key, times.repeated, times.repeats))
            .collect();
        seen.by_key = repeats
            .iter()
            .map(|(key, ..)| (key.clone(), Times::said(self.each)))
            .collect();
        Summary {
            repeats,
            more: mem::take(&mut seen.more),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen<K, R>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> Vec<K> {
        self.lock().by_key.keys().cloned().collect()
    }
}
