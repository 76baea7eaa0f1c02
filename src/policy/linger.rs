//! Records that linger: larger than their producer's `batch.size`, and all the same kept for the whole `linger.ms`
//! although nothing can join them (KAFKA-21068).
//!
//! What is seen of it: a batch of one large record, older on arrival than the same connection's other batches by
//! about `linger.ms`. Much else makes a record old, so a suspicion needs all of this:
//!
//! * **A reference.** How old batches are when nothing keeps them, clock skew included: the least age seen on this
//!   connection lately, seen several times. Without it there is no suspicion.
//! * **Nothing else kept the record.** While it waited, no other batch was late, no answer was slow, the client was
//!   not throttled, had room for more requests and a line that was not busy. A queue in the producer shows as one
//!   of these.
//! * **No accident.** A pause of the client looks the same once. So the wait is long, or was seen before on this
//!   connection with about the same length; and until the record is answered, no other batch arrives late.
//!
//! Invariant: constant memory for each connection, a few integer operations for each batch, no clock of its own.

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
/// Requests in flight at which a producer may be waiting for an answer: `max.in.flight.requests.per.connection` is
/// 5 by default.
const MANY_IN_FLIGHT: usize = 4;
/// Waits and resends remembered.
const REMEMBERED: usize = 4;

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
pub struct Sent {
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
        if arrival.in_flight >= MANY_IN_FLIGHT {
            self.kept_until_ms = self.ended_ms;
            self.pending = None;
        }
    }

    /// One batch of the request in hand. A suspicion that came up earlier may be certain by now.
    pub fn batch(&mut self, sent: &Sent, of: impl FnOnce() -> T) -> Option<Suspect<T>> {
        let certain = self.look_at(sent, of);
        let took_ms = self.ended_ms.saturating_sub(self.begun_ms);
        if took_ms > SLACK_MS {
            self.kept_until_ms = self.ended_ms;
        }
        certain
    }

    fn look_at(&mut self, sent: &Sent, of: impl FnOnce() -> T) -> Option<Suspect<T>> {
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
        let is_candidate = is_lone
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

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, clippy::unwrap_used)]
mod tests {
    use super::*;

    const LARGE: u64 = 1_048_650;
    /// Some moment by the producer's clock.
    const CLOCK_MS: i64 = 1_790_000_000_000;

    /// A connection, a producer's clock and what was reported.
    struct Line {
        watch: LingerWatch<&'static str>,
        epoch: Instant,
        skew_ms: i64,
        in_flight: usize,
        crc: u32,
        found: Vec<Suspect<&'static str>>,
    }

    impl Line {
        /// After three small batches that nothing kept.
        fn used(skew_ms: i64) -> Self {
            let mut line = Self::new(skew_ms);
            for n in 0..3 {
                line.sends(n * 10, n * 10, 12, 16_000);
            }
            line
        }

        fn new(skew_ms: i64) -> Self {
            Self {
                watch: LingerWatch::default(),
                epoch: Instant::now(),
                skew_ms,
                in_flight: 0,
                crc: 0,
                found: Vec::new(),
            }
        }

        fn at(&self, ms: i64) -> Instant {
            self.epoch + Duration::from_millis(ms.unsigned_abs())
        }

        /// A batch created and arrived at these ms, answered 5 ms later.
        fn sends(&mut self, created_ms: i64, arrived_ms: i64, records: i32, wire_bytes: u64) {
            self.arrives(created_ms, arrived_ms, records, wire_bytes);
            self.answers(arrived_ms, arrived_ms + 5, 0);
        }

        fn arrives(&mut self, created_ms: i64, arrived_ms: i64, records: i32, wire_bytes: u64) {
            self.crc += 1;
            self.request(arrived_ms, arrived_ms + 1);
            self.batch(created_ms, records, wire_bytes);
        }

        fn request(&mut self, begun_ms: i64, ended_ms: i64) {
            self.watch.request(&Arrival {
                begun: self.at(begun_ms),
                ended: self.at(ended_ms),
                in_flight: self.in_flight,
            });
        }

        fn batch(&mut self, created_ms: i64, records: i32, wire_bytes: u64) {
            let sent = Sent {
                max_timestamp_ms: CLOCK_MS + self.skew_ms + created_ms,
                records,
                wire_bytes,
                crc: self.crc,
            };
            self.found.extend(self.watch.batch(&sent, || "orders"));
        }

        fn answers(&mut self, asked_ms: i64, now_ms: i64, throttled_ms: u64) {
            let (asked, now) = (self.at(asked_ms), self.at(now_ms));
            let throttled = Duration::from_millis(throttled_ms);
            self.found
                .extend(self.watch.answered(asked, now, throttled));
        }

        fn found_ms(&self) -> Vec<u128> {
            self.found
                .iter()
                .map(|suspect| suspect.lingered.as_millis())
                .collect()
        }
    }

    #[test]
    fn a_lone_large_record_a_second_older_than_full_batches_lingered_a_second_whatever_the_skew() {
        for skew_ms in [-300_000, -1_000, 0, 1_000, 300_000] {
            let mut line = Line::used(skew_ms);
            line.sends(1_000, 2_003, 1, LARGE);
            assert_eq!(
                line.found,
                [Suspect {
                    of: "orders",
                    lingered: Duration::from_millis(1_003),
                    wire_bytes: LARGE
                }],
                "skew {skew_ms}"
            );
        }
    }

    #[test]
    fn without_a_reference_nothing_is_suspected() {
        let mut line = Line::new(0);
        for n in 1..50 {
            line.sends(n * 2_000, n * 2_000 + 1_000, 1, LARGE);
        }
        assert!(line.found.is_empty(), "all are old alike: that may be skew");
        let mut line = Line::new(0);
        line.sends(0, 0, 12, 16_000);
        line.sends(10, 10, 12, 16_000);
        line.sends(1_000, 2_000, 1, LARGE);
        assert!(line.found.is_empty(), "two batches may be chance");
    }

    #[test]
    fn large_records_that_a_second_one_pushed_out_are_the_reference_for_those_that_waited() {
        let mut line = Line::new(60_000);
        for n in 0..4 {
            let start = n * 3_000;
            line.sends(start, start, 1, LARGE);
            line.sends(start + 10, start + 1_017, 1, LARGE);
        }
        assert_eq!(
            line.found_ms(),
            [1_007, 1_007],
            "three of them make a reference"
        );
    }

    #[test]
    fn what_may_still_be_joined_is_not_suspected() {
        let mut line = Line::used(0);
        line.sends(1_000, 2_000, 1, 16_384);
        line.sends(3_000, 4_000, 2, LARGE);
        line.sends(5_000, 6_000, 1, LARGE);
        assert!(line.found.is_empty(), "its batch.size is not below {LARGE}");
    }

    #[test]
    fn a_short_wait_is_believed_the_second_time_and_a_very_short_one_never() {
        let mut line = Line::used(0);
        line.sends(1_000, 1_203, 1, LARGE);
        assert!(line.found.is_empty());
        line.sends(2_000, 2_350, 1, LARGE);
        assert!(line.found.is_empty(), "another pause");
        line.sends(3_000, 3_207, 1, LARGE);
        assert_eq!(line.found_ms(), [207]);
        for n in 4..20 {
            line.sends(n * 1_000, n * 1_000 + 90, 1, LARGE);
        }
        assert_eq!(line.found.len(), 1);
    }

    #[test]
    fn a_queue_in_the_producer_is_no_linger() {
        let mut line = Line::used(0);
        // Everything is late, a little more each time.
        for n in 0..500 {
            let records = if n % 3 == 0 { 1 } else { 12 };
            line.sends(
                100 + n * 2,
                100 + n * 12,
                records,
                if records == 1 { LARGE } else { 16_000 },
            );
        }
        assert!(line.found.is_empty(), "{:?}", line.found_ms());
        // Late ones in the same request, before or after.
        for late_first in [true, false] {
            let mut line = Line::used(0);
            line.request(2_000, 2_001);
            for is_small in [late_first, !late_first] {
                line.crc += 1;
                line.batch(
                    1_000,
                    if is_small { 12 } else { 1 },
                    if is_small { 16_000 } else { LARGE },
                );
            }
            line.answers(2_000, 2_005, 0);
            assert!(line.found.is_empty(), "late first: {late_first}");
        }
    }

    #[test]
    fn a_pause_of_the_client_is_no_linger() {
        let mut line = Line::used(0);
        line.arrives(1_000, 2_000, 1, LARGE);
        line.arrives(1_005, 2_001, 12, 16_000);
        line.answers(2_000, 2_010, 0);
        line.answers(2_001, 2_011, 0);
        assert!(line.found.is_empty(), "what came next was as late");
    }

    #[test]
    fn slow_answers_throttling_full_pipelines_and_slow_lines_explain_a_wait() {
        let mut line = Line::used(0);
        line.arrives(100, 100, 12, 16_000);
        line.answers(100, 1_990, 0);
        line.sends(1_000, 2_000, 1, LARGE);
        assert!(line.found.is_empty(), "the broker took two seconds");

        let mut line = Line::used(0);
        line.arrives(100, 100, 12, 16_000);
        line.answers(100, 105, 1_900);
        line.sends(1_000, 2_010, 1, LARGE);
        assert!(
            line.found.is_empty(),
            "the broker asked for silence (KIP-219)"
        );

        let mut line = Line::used(0);
        line.in_flight = 4;
        line.sends(1_000, 2_000, 1, LARGE);
        assert!(line.found.is_empty(), "one more answer to wait for");

        let mut line = Line::used(0);
        line.request(100, 1_990);
        line.batch(100, 1, 16_000);
        line.answers(1_990, 1_995, 0);
        line.sends(1_000, 2_000, 1, LARGE);
        assert!(line.found.is_empty(), "the line was busy for two seconds");
    }

    #[test]
    fn a_batch_sent_again_is_not_suspected() {
        let mut line = Line::used(0);
        line.sends(1_000, 1_000, 1, LARGE);
        line.crc -= 1;
        line.sends(1_000, 2_000, 1, LARGE);
        assert!(line.found.is_empty());
    }

    #[test]
    fn times_of_events_are_no_linger() {
        // Explicit timestamps: anything in ten minutes, large and small alike.
        let mut line = Line::new(0);
        let mut noise = 0x9e37_79b9_u64;
        for n in 0..20_000 {
            noise = noise
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let age_ms = i64::try_from((noise >> 33) % 600_000).unwrap();
            let is_large = (noise >> 20).is_multiple_of(4);
            line.sends(
                n * 5_000 - age_ms,
                n * 5_000,
                if is_large { 1 } else { 9 },
                if is_large { LARGE } else { 9_000 },
            );
        }
        assert!(line.found.is_empty(), "{:?}", line.found_ms());
        // None at all.
        let mut line = Line::used(0);
        line.sends(-CLOCK_MS - 1, 2_000, 1, LARGE);
        assert!(line.found.is_empty());
    }

    #[test]
    fn an_old_reference_is_forgotten() {
        let mut line = Line::used(0);
        line.sends(1_000_000, 1_001_000, 1, LARGE);
        assert!(line.found.is_empty(), "clocks may have drifted since");
        line.sends(1_100_000, 1_100_000, 12, 16_000);
        line.sends(1_500_000, 1_501_000, 1, LARGE);
        assert!(line.found.is_empty(), "one batch in ten minutes");
    }

    #[test]
    fn without_an_answer_the_next_batch_in_time_makes_it_certain() {
        let mut line = Line::used(0);
        line.arrives(1_000, 2_000, 1, LARGE);
        assert!(line.found.is_empty());
        line.arrives(2_050, 2_055, 12, 16_000);
        assert_eq!(line.found_ms(), [1_000]);
    }
}
