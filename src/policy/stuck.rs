//! Consumers that do not get past a large batch: served the same offset again and again, on one connection (a record
//! that cannot be deserialised, a handler that fails and goes back) or on one after the other (out of memory, and
//! restarted).
//!
//! Invariant: at most twice [`REMEMBERED`] partitions of consumers are remembered.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A batch this large is remembered: smaller ones are nobody's trouble because of their size.
pub const LARGE_BYTES: u64 = 64 * 1024;
/// Served so often, a consumer is stuck. Twice may be a rebalance or a lost connection.
const OFTEN: u64 = 3;
/// Longer between two, and it is no loop: a restarting container waits five minutes at most.
const WINDOW: Duration = Duration::from_secs(600);
/// Before half of them are forgotten, the oldest.
const REMEMBERED: usize = 2_048;

/// One consumer at one partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reader {
    /// Its client id and the address it comes from, without the port: a restarted consumer has another.
    pub consumer: (String, std::net::IpAddr),
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
}

/// All consumers that were served a large batch lately.
#[derive(Debug, Default)]
pub struct StuckWatch {
    recent: HashMap<Reader, Place>,
    before: HashMap<Reader, Place>,
}

/// Where a consumer was served.
#[derive(Debug, Clone, Copy)]
struct Place {
    offset: i64,
    times: u64,
    last: Instant,
}

impl StuckWatch {
    /// A large batch at `offset` was served. `Some`: so often by now that the consumer is stuck.
    pub fn served(&mut self, reader: Reader, offset: i64, now: Instant) -> Option<u64> {
        let known = self.recent.remove(&reader);
        let known = known.or_else(|| self.before.remove(&reader));
        let is_same = |place: &Place| {
            place.offset == offset && now.saturating_duration_since(place.last) <= WINDOW
        };
        let times = known.filter(is_same).map_or(0, |place| place.times);
        let times = times.saturating_add(1);
        if self.recent.len() >= REMEMBERED {
            self.before = mem::take(&mut self.recent);
        }
        let place = Place {
            offset,
            times,
            last: now,
        };
        self.recent.insert(reader, place);
        (times >= OFTEN).then_some(times)
    }

    /// The consumer asks for another offset.
    pub fn moved_on(&mut self, reader: &Reader) {
        self.recent.remove(reader);
        self.before.remove(reader);
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects)]
mod tests {
    use super::*;

    fn reader(client_id: &str) -> Reader {
        Reader {
            consumer: (client_id.to_owned(), [127, 0, 0, 1].into()),
            topic: "orders".into(),
            partition: 0,
        }
    }

    #[test]
    fn the_third_time_at_the_same_offset_is_stuck() {
        let (mut watch, now) = (StuckWatch::default(), Instant::now());
        let times: Vec<_> = (0..4).map(|_| watch.served(reader("a"), 7, now)).collect();
        assert_eq!(times, [None, None, Some(3), Some(4)]);
        assert_eq!(watch.served(reader("b"), 7, now), None, "another consumer");
    }

    #[test]
    fn whoever_moves_on_is_not() {
        let (mut watch, now) = (StuckWatch::default(), Instant::now());
        for offset in 0..100 {
            for _ in 0..2 {
                assert_eq!(watch.served(reader("a"), offset, now), None);
            }
        }
        for _ in 0..10 {
            assert_eq!(
                watch
                    .served(reader("a"), 99, now)
                    .filter(|times| *times < 3),
                None
            );
            watch.moved_on(&reader("a"));
        }
        assert_eq!(watch.served(reader("a"), 99, now), None);
    }

    #[test]
    fn once_an_hour_is_no_loop() {
        let (mut watch, mut now) = (StuckWatch::default(), Instant::now());
        for _ in 0..10 {
            assert_eq!(watch.served(reader("a"), 7, now), None);
            now += Duration::from_secs(3_600);
        }
    }

    #[test]
    fn the_number_remembered_is_bounded_and_the_busy_stay() {
        let (mut watch, now) = (StuckWatch::default(), Instant::now());
        for n in 0..20_000 {
            watch.served(reader(&n.to_string()), 7, now);
            watch.served(reader("stuck"), 7, now);
        }
        assert!(watch.recent.len() + watch.before.len() <= 2 * REMEMBERED);
        assert_eq!(watch.served(reader("stuck"), 7, now), Some(20_001));
    }
}
