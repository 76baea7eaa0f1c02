//! Keeps what connections leave behind when they end, for the next one of the same consumer.
//!
//! Invariant: at most [`SHARDS`] × [`BUCKETS`] × [`IN_BUCKET`] entries of bounded size. What must go is chosen among the
//! few of one bucket: what has lapsed, then what was met least often, then what is oldest. Whatever comes and goes, a
//! consumer that is on its way to be found stays.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::{Group, Place, Reader, WINDOW};

/// Locks: two connections that begin or end at once rarely want the same.
const SHARDS: usize = 64;
/// Of one shard.
const BUCKETS: usize = 128;
/// 262,144 entries in all: a hundred thousand consumer-partitions fill a bucket to twelve on average.
const IN_BUCKET: usize = 32;

/// What was left by one connection of one consumer at one partition.
#[derive(Debug)]
pub(super) struct Left {
    reader: Reader,
    pub group: Option<Group>,
    pub places: Vec<Place>,
    since: Instant,
}

impl Left {
    fn is_lapsed(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.since) > WINDOW
    }

    fn times(&self) -> u32 {
        let times = self.places.iter().map(|place| place.times);
        times.max().unwrap_or(0)
    }
}

type Shard = Vec<Vec<Left>>;

/// All of it.
pub struct LeftBehind {
    shards: Box<[Mutex<Shard>]>,
}

impl std::fmt::Debug for LeftBehind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeftBehind").finish_non_exhaustive()
    }
}

impl Default for LeftBehind {
    fn default() -> Self {
        Self::with(SHARDS, BUCKETS)
    }
}

impl LeftBehind {
    pub(super) fn with(shards: usize, buckets: usize) -> Self {
        let shard = || Mutex::new((0..buckets).map(|_| Vec::new()).collect());
        Self {
            shards: (0..shards).map(|_| shard()).collect(),
        }
    }

    /// Keeps it. Several of one consumer are kept side by side: connections that were open at once are as many
    /// consumers, and none is to be taken for another.
    pub(super) fn leave(
        &self,
        reader: Reader,
        group: Option<Group>,
        mut places: Vec<Place>,
        now: Instant,
    ) {
        places.shrink_to_fit();
        let left = Left {
            reader,
            group,
            places,
            since: now,
        };
        self.with_bucket(reader, |bucket| {
            bucket.retain(|left| !left.is_lapsed(now));
            if bucket.len() >= IN_BUCKET {
                let least = bucket.iter().enumerate();
                let least = least.min_by_key(|(_, left)| (left.times(), left.since));
                if let Some(at) = least.map(|(at, _)| at) {
                    bucket.swap_remove(at);
                }
            }
            bucket.push(left);
        });
    }

    /// Gives away what one connection of this consumer left, the oldest first; nothing of another group.
    pub(super) fn take(&self, reader: Reader, group: Option<Group>, now: Instant) -> Option<Left> {
        self.with_bucket(reader, |bucket| {
            let is_of = |left: &Left| match (left.group, group) {
                (Some(left), Some(now)) => left == now,
                _ => true,
            };
            let fits = |left: &Left| left.reader == reader && is_of(left) && !left.is_lapsed(now);
            let fitting = bucket.iter().enumerate().filter(|(_, left)| fits(left));
            let oldest = fitting.min_by_key(|(_, left)| left.since);
            let at = oldest.map(|(at, _)| at)?;
            Some(bucket.swap_remove(at))
        })?
    }

    /// Entries kept now.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        let shards = self.shards.iter();
        let in_shard = |shard: &Mutex<Shard>| lock(shard).iter().map(Vec::len).sum::<usize>();
        shards.map(in_shard).sum()
    }

    /// Nobody else gets in while these are held.
    #[cfg(test)]
    pub(super) fn hold(&self) -> Vec<MutexGuard<'_, Shard>> {
        self.shards.iter().map(lock).collect()
    }

    /// The most that can be kept.
    #[cfg(test)]
    pub(super) const fn most(shards: usize, buckets: usize) -> usize {
        shards.saturating_mul(buckets).saturating_mul(IN_BUCKET)
    }

    #[cfg(test)]
    pub(super) const MOST: usize = Self::most(SHARDS, BUCKETS);

    fn with_bucket<T>(&self, reader: Reader, act: impl FnOnce(&mut Vec<Left>) -> T) -> Option<T> {
        let place = usize::try_from(reader.0 >> 32).unwrap_or(0);
        let shards = self.shards.len();
        let mut shard = lock(self.shards.get(place.checked_rem(shards)?)?);
        let in_shard = place.checked_div(shards)?.checked_rem(shard.len())?;
        let bucket = shard.get_mut(in_shard)?;
        Some(act(bucket))
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
