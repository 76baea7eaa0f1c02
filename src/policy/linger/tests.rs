//! Connections as producers use them, by the ms.

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
        self.responses(arrived_ms, arrived_ms + 5, 0);
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
        let sent = SentBatch {
            max_timestamp_ms: CLOCK_MS + self.skew_ms + created_ms,
            records,
            wire_bytes,
            crc: self.crc,
        };
        self.found.extend(self.watch.batch(&sent, || "orders"));
    }

    fn responses(&mut self, asked_ms: i64, now_ms: i64, throttled_ms: u64) {
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
        line.responses(2_000, 2_005, 0);
        assert!(line.found.is_empty(), "late first: {late_first}");
    }
}

#[test]
fn a_pause_of_the_client_is_no_linger() {
    let mut line = Line::used(0);
    line.arrives(1_000, 2_000, 1, LARGE);
    line.arrives(1_005, 2_001, 12, 16_000);
    line.responses(2_000, 2_010, 0);
    line.responses(2_001, 2_011, 0);
    assert!(line.found.is_empty(), "what came next was as late");
}

#[test]
fn slow_responses_throttling_full_pipelines_and_slow_lines_explain_a_wait() {
    let mut line = Line::used(0);
    line.arrives(100, 100, 12, 16_000);
    line.responses(100, 1_990, 0);
    line.sends(1_000, 2_000, 1, LARGE);
    assert!(line.found.is_empty(), "the broker took two seconds");

    let mut line = Line::used(0);
    line.arrives(100, 100, 12, 16_000);
    line.responses(100, 105, 1_900);
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
    line.responses(1_990, 1_995, 0);
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
fn a_record_that_younger_ones_overtook_was_stamped_before_it_was_sent() {
    // Made two seconds before it is sent, between small ones that are sent when they are made.
    let mut line = Line::used(0);
    line.sends(1_000, 1_000, 12, 16_000);
    line.sends(1_010, 1_010, 12, 16_000);
    line.sends(-980, 1_020, 1, LARGE);
    assert!(line.found.is_empty());
    // Then its times are not believed where nothing speaks against them either.
    line.sends(4_000, 6_000, 1, LARGE);
    line.sends(8_000, 10_000, 1, LARGE);
    assert!(line.found.is_empty());
    // Not for ever: it may be another thread's.
    let later = WINDOW_MS * 3;
    for n in 0..3 {
        line.sends(later + n * 10, later + n * 10, 12, 16_000);
    }
    line.sends(later + 1_000, later + 2_003, 1, LARGE);
    assert_eq!(line.found_ms(), [1_003]);
}

#[test]
fn one_request_may_leave_before_a_record_that_did_not_fit_into_it() {
    let mut line = Line::used(0);
    line.sends(1_900, 1_900, 12, 16_000);
    line.sends(1_000, 2_003, 1, LARGE);
    assert_eq!(line.found_ms(), [1_003]);
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
fn without_a_response_the_next_batch_in_time_makes_it_certain() {
    let mut line = Line::used(0);
    line.arrives(1_000, 2_000, 1, LARGE);
    assert!(line.found.is_empty());
    line.arrives(2_050, 2_055, 12, 16_000);
    assert_eq!(line.found_ms(), [1_000]);
}
