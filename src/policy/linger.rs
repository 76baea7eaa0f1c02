//! Records that linger: larger than their producer's `batch.size`, and all the same kept for the whole `linger.ms`
//! although nothing can join them (KAFKA-21068).
//!
//! What is seen of it: a batch of one large record, older on arrival than the same connection's other batches by
//! about `linger.ms`. Much else makes a record old, so a suspicion needs all of this:
//!
//! * **A reference.** How old batches are when nothing keeps them, clock skew included: the least age seen on this
//!   connection lately, seen several times. Without it there is no suspicion.
//! * **Nothing else kept the record.** While it waited, no other batch was late, no response was slow, the client was
//!   not throttled, had room for more requests and a line that was not busy. A queue in the producer shows as one
//!   of these.
//! * **Not the application's own time.** A record bears the time at which its application made it, which may be long
//!   before it is sent. What waits in the producer leaves with the next batches for the same broker (the Java producer
//!   drains every partition of a broker that it sends to; what does not fit leaves first the next time). So where two
//!   requests came earlier that hold younger records, it was not there yet: it was stamped before it was sent, and the
//!   times of this connection are not believed for a while.
//! * **No accident.** A pause of the client looks the same once. So the wait is long, or was seen before on this
//!   connection with about the same length; and until the record is answered, no other batch arrives late.
//!
//! What is left is still a suspicion: a lone record that is stamped long before it is sent looks the same.
//!
//! Invariant: constant memory for each connection, a few integer operations for each batch, no clock of its own.

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

/// What is no larger than this may be waiting for others to join it: `batch.size` by default.
const BATCH_SIZE_BYTES: u64 = 16_384;
/// An age within this of the reference is no age.
const SLACK_MS: i64 = 50;
/// The least wait that is reported.
const LEAST_MS: i64 = 100;
/// A wait this long is believed at once; a shorter one when it was seen before.
const LONG_MS: i64 = 500;
/// Nobody lingers longer; what is older bears the time of something else.
const MOST_MS: i64 = 60_000;
/// Batches near the reference before it is one.
const REFERENCES: u32 = 3;
/// A reference is forgotten after one to two of these: clocks drift by some ms in it.
const WINDOW_MS: i64 = 300_000;
/// Requests in flight at which a producer may be waiting for a response: `max.in.flight.requests.per.connection` is
/// 5 by default.
const MANY_IN_FLIGHT: usize = 4;
/// Waits, resends and requests remembered.
const REMEMBERED: usize = 4;
/// So many requests with younger records went ahead: the record was not in the producer yet.
const OVERTAKEN: usize = 2;

/// When a request came, and what was on the way then.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Its first byte.
    pub begun: Instant,
    /// Its last.
    pub ended: Instant,
    /// Requests of its connection that were not answered yet.
    pub in_flight: usize,
}

/// What the header of a batch says.
#[derive(Debug, Clone, Copy)]
pub struct SentBatch {
    /// Its largest timestamp, by the producer's clock; below 0: none.
    pub max_timestamp_ms: i64,
    /// Its records.
    pub records: i32,
    /// Its wire bytes.
    pub wire_bytes: u64,
    /// Stands for its bytes.
    pub crc: u32,
}

/// A record that most likely lingered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspect<T> {
    /// What the caller wanted to know again.
    pub of: T,
    /// How long it was kept: about the producer's `linger.ms`.
    pub lingered: Duration,
    /// Wire bytes of its batch.
    pub wire_bytes: u64,
}

/// Watches one connection. Times are ms since its first request.
#[derive(Debug)]
pub struct LingerWatch<T> {
    epoch: Option<Instant>,
    /// The request in hand: first byte, last byte.
    begun_ms: i64,
    ended_ms: i64,
    /// This window's reference and the one before.
    reference: [Reference; 2],
    window_since_ms: i64,
    /// Until then something else may have kept the producer's records.
    kept_until_ms: i64,
    /// The largest batch of several records: `batch.size` is not below it.
    joined_bytes: u64,
    /// Waits seen last, believed or not.
    waits_ms: [i64; REMEMBERED],
    /// Lone large batches seen last: sent again, they are old for another reason.
    crcs: [u32; REMEMBERED],
    /// The youngest record of the request in hand and of those before it.
    youngest_ms: [i64; REMEMBERED],
    /// Until then the records' times are known to be the application's own.
    stamped_until_ms: i64,
    turn: usize,
    /// Believed, if nothing speaks against it until it is answered.
    pending: Option<Suspect<T>>,
}

/// The least age, and how many batches were within [`SLACK_MS`] of it.
#[derive(Debug, Clone, Copy)]
struct Reference {
    age_ms: i64,
    count: u32,
}

const NO_REFERENCE: Reference = Reference {
    age_ms: i64::MAX,
    count: 0,
};

impl<T> Default for LingerWatch<T> {
    fn default() -> Self {
        Self {
            epoch: None,
            begun_ms: 0,
            ended_ms: 0,
            reference: [NO_REFERENCE; 2],
            window_since_ms: 0,
            kept_until_ms: 0,
            joined_bytes: BATCH_SIZE_BYTES,
            waits_ms: [i64::MIN; REMEMBERED],
            crcs: [0; REMEMBERED],
            youngest_ms: [i64::MIN; REMEMBERED],
            stamped_until_ms: i64::MIN,
            turn: 0,
            pending: None,
        }
    }
}

impl<T> LingerWatch<T> {
    /// A Produce request is here; its batches follow.
    pub fn request(&mut self, arrival: &Arrival) {
        if self.epoch.is_none() {
            self.epoch = Some(arrival.begun);
            // Whatever was produced before there was a connection had to wait for it.
            self.kept_until_ms = self.ms(arrival.ended);
        }
        self.begun_ms = self.ms(arrival.begun);
        self.ended_ms = self.ms(arrival.ended);
        self.turn_window();
        if self.youngest_ms[0] > i64::MIN {
            self.youngest_ms.rotate_right(1);
            self.youngest_ms[0] = i64::MIN;
        }
        if arrival.in_flight >= MANY_IN_FLIGHT {
            self.kept_until_ms = self.ended_ms;
            self.pending = None;
        }
    }

    /// One batch of the request in hand. A suspicion that came up earlier may be certain by now.
    pub fn batch(&mut self, sent: &SentBatch, of: impl FnOnce() -> T) -> Option<Suspect<T>> {
        let certain = self.look_at(sent, of);
        self.youngest_ms[0] = self.youngest_ms[0].max(sent.max_timestamp_ms);
        let took_ms = self.ended_ms.saturating_sub(self.begun_ms);
        if took_ms > SLACK_MS {
            self.kept_until_ms = self.ended_ms;
        }
        certain
    }

    fn look_at(&mut self, sent: &SentBatch, of: impl FnOnce() -> T) -> Option<Suspect<T>> {
        if sent.records > 1 {
            self.joined_bytes = self.joined_bytes.max(sent.wire_bytes);
        }
        if sent.max_timestamp_ms < 0 {
            return None;
        }
        let is_lone = sent.records == 1 && sent.wire_bytes > self.joined_bytes;
        let is_resent = is_lone && self.crcs.contains(&sent.crc);
        if is_lone && !is_resent {
            self.remember_crc(sent.crc);
        }
        let age_ms = self.begun_ms.saturating_sub(sent.max_timestamp_ms);
        let Some(wait_ms) = self.beyond_reference(age_ms) else {
            // In time: whoever sent it was awake, so a record that came late before it was kept on purpose.
            return self.pending.take();
        };
        // Late: it belongs to a queue, or it is the next that lingers. What came late just before it may have been
        // of the same queue.
        self.pending = None;
        let since_ms = self
            .begun_ms
            .saturating_sub(wait_ms)
            .max(self.kept_until_ms);
        let unexplained_ms = self.begun_ms.saturating_sub(since_ms);
        self.kept_until_ms = self.ended_ms;
        let is_overtaken = is_lone && self.is_overtaken(sent.max_timestamp_ms);
        if is_overtaken && !is_resent {
            self.stamped_until_ms = self.begun_ms.saturating_add(WINDOW_MS);
        }
        let is_candidate = is_lone
            && self.begun_ms > self.stamped_until_ms
            && !is_resent
            && (LEAST_MS..=MOST_MS).contains(&wait_ms)
            && unexplained_ms >= wait_ms.saturating_sub(wait_ms.wrapping_div(5))
            && self.is_referenced();
        if is_candidate {
            if wait_ms >= LONG_MS || self.was_seen_before(wait_ms) {
                self.pending = Some(Suspect {
                    of: of(),
                    lingered: Duration::from_millis(wait_ms.unsigned_abs()),
                    wire_bytes: sent.wire_bytes,
                });
            }
            self.remember_wait(wait_ms);
        }
        None
    }

    /// A Produce that was read at `asked` is answered; its broker asks the client to be silent for `throttled`.
    pub fn answered(
        &mut self,
        asked: Instant,
        now: Instant,
        throttled: Duration,
    ) -> Option<Suspect<T>> {
        self.epoch?;
        let now_ms = self.ms(now);
        let is_slow = now_ms.saturating_sub(self.ms(asked)) > SLACK_MS;
        if is_slow || !throttled.is_zero() {
            let throttled_ms = i64::try_from(throttled.as_millis()).unwrap_or(i64::MAX);
            self.kept_until_ms = self.kept_until_ms.max(now_ms.saturating_add(throttled_ms));
        }
        // The answer to an earlier request says nothing about the one that is pending.
        if self.ms(asked) < self.begun_ms {
            return None;
        }
        self.pending.take()
    }

    fn turn_window(&mut self) {
        let passed_ms = self.begun_ms.saturating_sub(self.window_since_ms);
        if passed_ms > WINDOW_MS {
            self.window_since_ms = self.begun_ms;
            let is_stale = passed_ms > WINDOW_MS.saturating_mul(2);
            let before = if is_stale {
                NO_REFERENCE
            } else {
                self.reference[0]
            };
            self.reference = [NO_REFERENCE, before];
        }
    }

    /// By how much an age is beyond the reference; `None` for one that is not. Ages near it confirm it.
    fn beyond_reference(&mut self, age_ms: i64) -> Option<i64> {
        let [now, before] = &mut self.reference;
        if age_ms < now.age_ms.saturating_sub(SLACK_MS) {
            *now = Reference { age_ms, count: 1 };
        } else if age_ms <= now.age_ms.saturating_add(SLACK_MS) {
            now.age_ms = now.age_ms.min(age_ms);
            now.count = now.count.saturating_add(1);
        }
        let least_ms = now.age_ms.min(before.age_ms);
        Some(age_ms.saturating_sub(least_ms)).filter(|wait_ms| *wait_ms > SLACK_MS)
    }

    /// The reference was seen often enough to be one.
    fn is_referenced(&self) -> bool {
        let [now, before] = &self.reference;
        let least_ms = now.age_ms.min(before.age_ms);
        let near = |reference: &&Reference| reference.age_ms.saturating_sub(least_ms) <= SLACK_MS;
        let counts = self
            .reference
            .iter()
            .filter(near)
            .map(|reference| reference.count);
        counts.fold(0, u32::saturating_add) >= REFERENCES
    }

    /// Requests with younger records came before this one.
    fn is_overtaken(&self, timestamp_ms: i64) -> bool {
        let before = self.youngest_ms.iter().skip(1);
        let younger = before.filter(|ms| ms.saturating_sub(timestamp_ms) > SLACK_MS);
        younger.count() >= OVERTAKEN
    }

    fn was_seen_before(&self, wait_ms: i64) -> bool {
        let near_ms = wait_ms.wrapping_div(10).max(20);
        self.waits_ms
            .iter()
            .any(|seen_ms| seen_ms.saturating_sub(wait_ms).saturating_abs() <= near_ms)
    }

    fn remember_wait(&mut self, wait_ms: i64) {
        self.turn = self.turn.wrapping_add(1);
        if let Some(place) = self.waits_ms.get_mut(self.turn.wrapping_rem(REMEMBERED)) {
            *place = wait_ms;
        }
    }

    fn remember_crc(&mut self, crc: u32) {
        self.crcs.rotate_right(1);
        self.crcs[0] = crc;
    }

    fn ms(&self, at: Instant) -> i64 {
        let since = self
            .epoch
            .map_or(Duration::ZERO, |epoch| at.saturating_duration_since(epoch));
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    }
}
