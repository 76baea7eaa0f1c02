//! Consumers that do not get past a large batch: they come back to the same offset again and again, on one connection
//! (a handler that fails and seeks back) or on one after the other (out of memory, a record that cannot be
//! deserialised, a task that fails and is restarted).
//!
//! What a consumer asks for beyond the batch says little: clients fetch ahead of their application. So what is counted
//! is the *return*. A Fetch names no group, and many consumers may share a client id and an address, so a connection is
//! compared with itself, and a new one with what an *ended* one left behind ([`LeftBehind`]): groups that start
//! together are never taken for one. Two things look like a return and are none:
//!
//! * **a rebalance** ([`Groups`]): with the eager protocol every member goes back to what is committed, with any other
//!   one whoever gets a partition;
//! * **reading again on purpose** (`seekToBeginning`, a tool that starts from the beginning): the client asks the broker
//!   for an offset by time first (ListOffsets), and an application that goes back to its record does not. Where the
//!   last reader never asked for anything beyond the batch, or it is the same group that begins again, it counts all
//!   the same.
//!
//! Invariant: pure, and without a lock but in [`LeftBehind`], which is asked when a connection is first served a large
//! batch of a partition, and when it ends.

mod groups;
mod left;

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::time::{Duration, Instant};

pub(super) use groups::{Groups, Joins};
pub(super) use left::LeftBehind;

/// A batch this large is remembered: smaller ones are nobody's trouble because of their size.
pub const LARGE_BYTES: u64 = 64 * 1024;
/// Served so often, a consumer is stuck. Twice may be chance, or a lost connection.
const OFTEN: u32 = 3;
/// Longer between two, and it is no loop: a restarting container waits five minutes at most.
const WINDOW: Duration = Duration::from_secs(600);
/// Places remembered of a partition: where the consumer came back to, and where it is now.
const PLACES: usize = 4;

/// A client id at an address without its port: a restarted consumer has another. Stands for both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Consumer(u64);

/// A consumer at a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reader(u64);

/// A group that a consumer was last seen to be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group(u32);

/// All that is known across connections.
#[derive(Debug, Default)]
pub struct StuckWatch {
    /// Nobody outside can choose names that collide.
    names: RandomState,
    /// What consumers did in their groups.
    pub groups: Groups,
    /// What ended connections left.
    pub left: LeftBehind,
}

impl StuckWatch {
    /// Who it is: found once for a connection.
    pub fn consumer(&self, client_id: &str, address: IpAddr) -> Consumer {
        Consumer(self.names.hash_one((client_id, address)))
    }

    /// The same, at a partition.
    pub fn reader(&self, consumer: Consumer, topic: &str, partition: i32) -> Reader {
        Reader(self.names.hash_one((consumer.0, topic, partition)))
    }

    /// A group's name, shortened.
    pub fn group(&self, name: &[u8]) -> Group {
        // 0 is for none.
        let [a, b, c, d, ..] = self.names.hash_one(name).to_ne_bytes();
        Group(u32::from_ne_bytes([a, b, c, d]).max(1))
    }

    /// A member of a group, by its id.
    pub fn member(&self, member_id: &[u8]) -> u64 {
        self.names.hash_one(member_id)
    }

    /// A topic's partition, whoever reads it.
    pub fn place(&self, topic: &[u8], partition: i32) -> u64 {
        self.names.hash_one((topic, partition))
    }
}

/// How a connection got to where it reads a partition.
#[derive(Debug, Default)]
pub struct Pass {
    served_at: Option<i64>,
    joins: Joins,
    is_deliberate: bool,
    is_rebalanced: bool,
    /// It came back to a large batch: those behind it come again for the same reason.
    is_counted: bool,
}

impl Pass {
    /// The partition is served from `offset`. `joins`: how often the consumer joined its group; `is_reset`: it asked for
    /// an offset by time since it was served last. `true`: it begins here, or has come back.
    pub fn served(&mut self, offset: i64, joins: Joins, is_reset: impl FnOnce() -> bool) -> bool {
        let before = self.served_at.replace(offset);
        let joined = std::mem::replace(&mut self.joins, joins);
        let begins = before.is_none_or(|before| offset <= before);
        if begins {
            let is_back = before.is_some();
            self.is_rebalanced = is_back && joins.rebalances != joined.rebalances;
            // Thrown out of a group that has committed nothing, it asks for the beginning too.
            let is_thrown_out = is_back && joins.starts != joined.starts;
            self.is_deliberate = is_reset() && !is_thrown_out;
            self.is_counted = false;
        }
        begins
    }
}

/// A large batch that is served.
#[derive(Debug, Clone, Copy)]
pub struct LargeServed {
    /// The offset asked for.
    pub offset: i64,
    /// The batch's own, where it comes behind smaller ones.
    pub behind: Option<i64>,
    /// The consumer begins there, or has come back.
    pub begins: bool,
    /// When.
    pub now: Instant,
}

/// The large batches that one connection was served of one partition.
#[derive(Debug)]
pub struct Visits {
    reader: Reader,
    group: Option<Group>,
    /// At most [`PLACES`].
    places: Vec<Place>,
    /// They were left by the group that reads now.
    is_same_group: bool,
}

/// Where a consumer was served a large batch.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: i64,
    behind: Option<i64>,
    times: u32,
    last: Instant,
    /// It began there, or came back to it.
    is_begin: bool,
    /// Something behind the batch was asked for since.
    is_past: bool,
    /// By an earlier connection.
    is_left: bool,
}

impl Visits {
    /// Of a connection that is served a large batch of this partition for the first time.
    pub fn new(watch: &StuckWatch, reader: Reader, group: Option<Group>, now: Instant) -> Self {
        let left = watch.left.take(reader, group, now);
        let is_same_group = left
            .as_ref()
            .is_some_and(|left| left.group.is_some() && left.group == group);
        let places = left.map(|left| left.places).unwrap_or_default();
        let places = places.into_iter().map(|place| Place {
            is_left: true,
            ..place
        });
        Self {
            reader,
            group,
            places: places.collect(),
            is_same_group,
        }
    }

    /// The consumer asks for this offset.
    pub fn asked(&mut self, offset: i64) {
        for place in &mut self.places {
            place.is_past |= offset > place.behind.unwrap_or(place.offset);
        }
    }

    /// It is served a large batch. `Some`: so often by now that it is stuck.
    pub fn served(&mut self, batch: &LargeServed, pass: &mut Pass) -> Option<u64> {
        let LargeServed { offset, now, .. } = *batch;
        let is_same_group = self.is_same_group;
        let known = self.places.iter_mut().find(|place| place.offset == offset);
        let Some(place) = known else {
            self.remember(batch);
            return None;
        };
        let is_lapsed = now.saturating_duration_since(place.last) > WINDOW;
        let is_reread = pass.is_deliberate && place.is_past && !(place.is_left && is_same_group);
        // A smaller batch is first: of a large one behind it only what was handed on tells.
        let is_unread = batch.behind.is_some() && !place.is_past && !place.is_left;
        let is_rebalanced = pass.is_rebalanced && !place.is_left;
        let is_from_start = is_lapsed || is_reread;
        let counts = !is_from_start && !is_rebalanced && !is_unread && !pass.is_counted;
        if is_from_start {
            place.times = 1;
        } else if counts {
            place.times = place.times.saturating_add(1);
            pass.is_counted = true;
        }
        place.last = now;
        place.behind = batch.behind;
        place.is_begin |= batch.begins;
        (place.is_past, place.is_left) = (false, false);
        (counts && place.times >= OFTEN).then_some(u64::from(place.times))
    }

    fn remember(&mut self, batch: &LargeServed) {
        if self.places.len() >= PLACES {
            // What was merely passed goes first, then what was met least often, then what is longest ago.
            let least = self.places.iter().enumerate();
            let least = least.min_by_key(|(_, place)| (place.times, place.is_begin, place.last));
            if let Some(at) = least.map(|(at, _)| at) {
                self.places.swap_remove(at);
            }
        }
        self.places.push(Place {
            offset: batch.offset,
            behind: batch.behind,
            times: 1,
            last: batch.now,
            is_begin: batch.begins,
            is_past: false,
            is_left: false,
        });
    }

    /// The connection has ended: the next one of this consumer may come back.
    pub fn leave(self, watch: &StuckWatch, now: Instant) {
        watch.left.leave(self.reader, self.group, self.places, now);
    }
}

#[cfg(test)]
mod tests;
