//! What is known of values: those under way, those that are here and lately used, those that are lost.
//!
//! Invariant: values that are here take at most so many bytes, unless somebody still sends one; of lost ones at most
//! [`MOST_LOST`] are remembered.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Key, Work};

/// Lost values that are remembered.
const MOST_LOST: usize = 10_000;

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    UnderWay,
    Here { bytes: u64 },
    Lost { until: Instant },
}

#[derive(Debug)]
struct Entry {
    work: Arc<Work>,
    state: State,
    /// When it was last used, in the order of all uses.
    used: u64,
}

/// All entries.
#[derive(Debug)]
pub(super) struct Kept {
    entries: HashMap<Key, Entry>,
    /// Those that are here, by their last use.
    here: BTreeMap<u64, Key>,
    /// Those that are lost, by their last use.
    lost: BTreeMap<u64, Key>,
    bytes: u64,
    most_bytes: u64,
    uses: u64,
}

impl Kept {
    pub(super) fn new(most_bytes: u64) -> Self {
        Self {
            entries: HashMap::new(),
            here: BTreeMap::new(),
            lost: BTreeMap::new(),
            bytes: 0,
            most_bytes,
            uses: 0,
        }
    }

    /// Bytes of the values that are here.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    fn next_use(&mut self) -> u64 {
        self.uses = self.uses.wrapping_add(1);
        self.uses
    }

    /// What is known of a value; what was lost long ago is not.
    pub(super) fn find(&mut self, key: &Key) -> Option<Arc<Work>> {
        let used = self.next_use();
        let entry = self.entries.get_mut(key)?;
        match entry.state {
            State::UnderWay => {}
            State::Here { .. } => {
                self.here.remove(&entry.used);
                self.here.insert(used, key.clone());
            }
            State::Lost { until } if until <= Instant::now() => {
                self.lost.remove(&entry.used);
                self.entries.remove(key);
                return None;
            }
            State::Lost { .. } => return Some(Arc::clone(&entry.work)),
        }
        entry.used = used;
        Some(Arc::clone(&entry.work))
    }

    /// Somebody works on a value.
    pub(super) fn begin(&mut self, key: Key, work: Arc<Work>) {
        let used = self.next_use();
        let state = State::UnderWay;
        self.entries.insert(key, Entry { work, state, used });
    }

    /// A value has come. Gives back what had to go for it, to be dropped when nothing is locked.
    #[must_use]
    pub(super) fn keep(&mut self, key: &Key, work: &Arc<Work>, bytes: u64) -> Vec<Arc<Work>> {
        let used = self.next_use();
        let Some(entry) = self.own(key, work) else {
            return Vec::new();
        };
        entry.state = State::Here { bytes };
        entry.used = used;
        self.here.insert(used, key.clone());
        self.bytes = self.bytes.saturating_add(bytes);
        let mut gone = Vec::new();
        while self.bytes > self.most_bytes {
            match self.give_up_oldest() {
                Some(oldest) => gone.push(oldest),
                None => break,
            }
        }
        gone
    }

    /// A value is lost, and stays so for a while.
    pub(super) fn lost(&mut self, key: &Key, work: &Arc<Work>, lasting: Duration) {
        let used = self.next_use();
        let now = Instant::now();
        let until = now.checked_add(lasting).unwrap_or(now);
        let Some(entry) = self.own(key, work) else {
            return;
        };
        entry.state = State::Lost { until };
        entry.used = used;
        self.lost.insert(used, key.clone());
        if self.lost.len() > MOST_LOST
            && let Some((_, oldest)) = self.lost.pop_first()
        {
            self.entries.remove(&oldest);
        }
    }

    /// A lost value is no longer known to be.
    pub(super) fn forget_lost(&mut self, key: &Key) {
        let is_lost = |entry: &&Entry| matches!(entry.state, State::Lost { .. });
        if let Some(entry) = self.entries.get(key).filter(is_lost) {
            self.lost.remove(&entry.used);
            self.entries.remove(key);
        }
    }

    /// Nobody wants it any more.
    pub(super) fn forget(&mut self, key: &Key, work: &Arc<Work>) {
        if self.own(key, work).is_some() {
            self.entries.remove(key);
        }
    }

    /// Gives up the value that was used longest ago, to be dropped when nothing is locked.
    #[must_use]
    pub(super) fn give_up_oldest(&mut self) -> Option<Arc<Work>> {
        let (_, key) = self.here.pop_first()?;
        let entry = self.entries.remove(&key)?;
        if let State::Here { bytes } = entry.state {
            self.bytes = self.bytes.saturating_sub(bytes);
        }
        Some(entry.work)
    }

    /// The entry of a key, if it is that work's.
    fn own(&mut self, key: &Key, work: &Arc<Work>) -> Option<&mut Entry> {
        let entry = self.entries.get_mut(key)?;
        Arc::ptr_eq(&entry.work, work).then_some(entry)
    }
}
