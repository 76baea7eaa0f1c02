//! Keeps what was noticed and refuses nothing: for the API by who and where; for the log at once the first time, then
//! counted, and the counts once a minute.
//!
//! Invariant: at most [`KEPT`] of a kind, each of bounded size, and at most as many lines between two summaries;
//! every observation is logged or counted in a summary.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::Serialize;

use crate::count::Count as _;
use crate::text::as_rfc3339;
use crate::text::first_bytes;

/// How many of a kind are kept; the one not seen for longest goes first.
pub(super) const KEPT: usize = 200;
/// The longest word that a client says of itself.
const WORD_BYTES: usize = 128;

/// Something noticed.
pub trait Observation: Clone + Serialize {
    /// What makes two of them the same thing, seen again.
    type Key: Clone + Eq + Hash;

    /// Its key.
    fn key(&self) -> Self::Key;

    /// The same was seen again.
    fn again(&mut self, newer: Self);

    /// Writes a line: `more` is 0 the first time, then how often it was seen again since the last line.
    fn log(&self, more: u64);

    /// Writes a line about those that found no room of their own in the log.
    fn log_rest(count: u64);
}

/// The last observations of a kind.
pub struct Observations<S: Observation> {
    kept: Mutex<Kept<S>>,
}

struct Kept<S: Observation> {
    entries: HashMap<S::Key, Entry<S>>,
    /// Counts the observations: the order in which entries were seen last.
    turn: u64,
    /// Told one by one since the last summary.
    told: usize,
    /// Neither told nor counted in an entry that is still there.
    rest: u64,
}

#[derive(Debug)]
struct Entry<S> {
    seen: Seen<S>,
    turn: u64,
    /// Seen since the last line.
    more: u64,
    /// There was a line less than two summaries ago.
    is_told: bool,
}

/// A observation and how often.
#[derive(Debug, Clone, Serialize)]
pub struct Seen<S> {
    /// As last seen.
    #[serde(flatten)]
    pub observation: S,
    /// Times.
    pub count: u64,
    /// The first time.
    #[serde(serialize_with = "as_rfc3339")]
    pub first_at: SystemTime,
    /// The last.
    #[serde(serialize_with = "as_rfc3339")]
    pub last_at: SystemTime,
}

impl<S: Observation> std::fmt::Debug for Observations<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observations").finish_non_exhaustive()
    }
}

impl<S: Observation> Default for Observations<S> {
    fn default() -> Self {
        Self {
            kept: Mutex::new(Kept {
                entries: HashMap::new(),
                turn: 0,
                told: 0,
                rest: 0,
            }),
        }
    }
}

impl<S: Observation> Observations<S> {
    /// Keeps it, and logs it unless the same was logged lately.
    pub fn record(&self, observation: S) {
        let told = self.lock().add(observation, SystemTime::now());
        if let Some(observation) = told {
            observation.log(0);
        }
    }

    /// Logs what was counted since the last call. What was quiet meanwhile is logged at once again.
    pub fn summarise(&self) {
        let mut lines = Vec::new();
        let rest = {
            let mut kept = self.lock();
            for entry in kept.entries.values_mut() {
                if entry.more > 0 {
                    lines.push((entry.seen.observation.clone(), mem::take(&mut entry.more)));
                } else {
                    entry.is_told = false;
                }
            }
            kept.told = 0;
            mem::take(&mut kept.rest)
        };
        for (observation, more) in lines {
            observation.log(more);
        }
        if rest > 0 {
            S::log_rest(rest);
        }
    }

    /// All that are kept, the one seen last first.
    pub fn view(&self) -> Vec<Seen<S>> {
        let kept = self.lock();
        let mut entries: Vec<_> = kept.entries.values().collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.turn));
        entries
            .into_iter()
            .map(|entry| entry.seen.clone())
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Kept<S>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Observation> Kept<S> {
    /// What is to be told now, if anything.
    fn add(&mut self, observation: S, at: SystemTime) -> Option<S> {
        self.turn.increment();
        let key = observation.key();
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.turn = self.turn;
            entry.seen.count.increment();
            entry.seen.last_at = at;
            entry.seen.observation.again(observation);
            if entry.is_told || self.told >= KEPT {
                entry.is_told = true;
                entry.more.increment();
                return None;
            }
            entry.is_told = true;
            self.told.increment();
            return Some(entry.seen.observation.clone());
        }
        if self.entries.len() >= KEPT {
            self.evict();
        }
        let is_told = self.told < KEPT;
        self.told.increase_by(usize::from(is_told));
        self.rest.increase_by(u64::from(!is_told));
        let entry = Entry {
            seen: Seen {
                observation: observation.clone(),
                count: 1,
                first_at: at,
                last_at: at,
            },
            turn: self.turn,
            more: 0,
            is_told,
        };
        self.entries.insert(key, entry);
        is_told.then_some(observation)
    }

    fn evict(&mut self) {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.turn);
        if let Some(key) = oldest.map(|(key, _)| key.clone()) {
            let unsaid = self.entries.remove(&key).map_or(0, |entry| entry.more);
            self.rest.increase_by(unsaid);
        }
    }
}

/// A client's word, cut.
pub(super) fn word(text: &str) -> String {
    first_bytes(text, WORD_BYTES).to_owned()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static LINES: RefCell<Vec<(u32, u64)>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Debug, Clone, Serialize)]
    struct Noticed {
        what: u32,
        largest: u64,
    }

    impl Observation for Noticed {
        type Key = u32;

        fn key(&self) -> u32 {
            self.what
        }

        fn again(&mut self, newer: Self) {
            self.largest = self.largest.max(newer.largest);
        }

        fn log(&self, more: u64) {
            LINES.with_borrow_mut(|lines| lines.push((self.what, more)));
        }

        fn log_rest(count: u64) {
            LINES.with_borrow_mut(|lines| lines.push((u32::MAX, count)));
        }
    }

    fn see(observations: &Observations<Noticed>, what: u32, largest: u64) {
        observations.record(Noticed { what, largest });
    }

    fn lines() -> Vec<(u32, u64)> {
        LINES.take()
    }

    #[test]
    fn the_first_is_logged_at_once_and_the_rest_as_counts() {
        let observations = Observations::default();
        for n in 0..100 {
            see(&observations, 1, n);
        }
        see(&observations, 2, 7);
        assert_eq!(lines(), [(1, 0), (2, 0)]);
        observations.summarise();
        assert_eq!(lines(), [(1, 99)]);
        see(&observations, 2, 7);
        assert_eq!(lines(), [(2, 0)], "2 was quiet for a minute");
        see(&observations, 1, 7);
        assert_eq!(lines(), [], "1 was not");
        observations.summarise();
        assert_eq!(lines(), [(1, 1)]);
    }

    #[test]
    fn what_was_seen_last_comes_first_and_says_how_often() {
        let observations = Observations::default();
        for (what, largest) in [(1, 5), (2, 5), (1, 9), (1, 3)] {
            see(&observations, what, largest);
        }
        let view = serde_json::to_value(observations.view()).unwrap();
        assert_eq!(
            (&view[0]["what"], &view[0]["count"], &view[0]["largest"]),
            (&1.into(), &3.into(), &9.into())
        );
        assert_eq!(view[1]["what"], 2);
        assert!(view[0]["first_at"].is_string() && view[0]["last_at"].is_string());
    }

    #[test]
    fn the_number_kept_is_bounded_and_none_goes_uncounted() {
        let observations = Observations::default();
        see(&observations, 0, 1);
        see(&observations, 0, 1);
        for what in 1..10_000 {
            see(&observations, what, 1);
        }
        assert_eq!(observations.view().len(), KEPT);
        assert_eq!(lines().len(), KEPT);
        observations.summarise();
        assert_eq!(lines(), [(u32::MAX, 10_001 - KEPT as u64)]);
    }

    #[test]
    fn words_are_cut_at_a_character() {
        assert_eq!(word(&"é".repeat(100)), "é".repeat(64));
    }
}
