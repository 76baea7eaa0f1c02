//! Clients that send a refused batch again and again, unchanged.
//!
//! Java producers up to 4.1 answer code 10 by splitting a batch that is larger than their `batch.size` into
//! itself (KAFKA-8350) and resend it until `delivery.timeout.ms`; producers from 4.2 on resend once
//! unchanged before they halve it. So the third identical refusal is a loop, and for an old Java producer the
//! second.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What makes two batches the same one, sent again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResendKey {
    /// The topic's name, or its id in hexadecimal where it has no name.
    pub topic: String,
    /// Its partition.
    pub partition: i32,
    /// Producer id, epoch, base sequence and CRC. The CRC stands for the bytes: an idempotent producer gives the
    /// number of a refused batch to the next one, and three different batches are no loop.
    pub identity: (i64, i16, i32, u32),
}

/// Refusals further apart than this are not a loop.
const WINDOW: Duration = Duration::from_secs(60);
/// Refused batches remembered by one session: a producer has five in flight per broker.
const REMEMBERED: usize = 64;

/// The refusals of one session.
#[derive(Debug, Default)]
pub struct LoopDetector {
    seen: VecDeque<(ResendKey, Instant, u32)>,
}

impl LoopDetector {
    /// Counts a refusal and tells whether it is the last one the loop may have.
    pub fn is_loop(&mut self, key: ResendKey, now: Instant, is_old_java_batch: bool) -> bool {
        self.seen
            .retain(|(_, first, _)| now.saturating_duration_since(*first) < WINDOW);
        let threshold = if is_old_java_batch { 2 } else { 3 };
        if let Some((_, _, times)) = self.seen.iter_mut().find(|(known, ..)| *known == key) {
            *times = times.saturating_add(1);
            return *times >= threshold;
        }
        if self.seen.len() >= REMEMBERED {
            self.seen.pop_front();
        }
        self.seen.push_back((key, now, 1));
        false
    }

    /// A Java client (`apache-kafka-java`) that splits a batch into itself: before 4.2.
    pub fn is_old_java(software_name: &str, software_version: &str) -> bool {
        let mut parts = software_version
            .split('.')
            .map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        software_name == JAVA && version < (4, 2)
    }

    /// A Java client of whatever version.
    pub fn is_java(software_name: &str) -> bool {
        software_name == JAVA
    }
}

/// What Java clients call themselves (KIP-511).
const JAVA: &str = "apache-kafka-java";

#[cfg(test)]
mod tests {
    use super::*;

    fn key(base_sequence: i32) -> ResendKey {
        ResendKey {
            topic: "t".into(),
            partition: 0,
            identity: (7, 0, base_sequence, 0),
        }
    }

    #[test]
    fn the_third_identical_refusal_is_a_loop_and_the_second_for_an_old_java() {
        let now = Instant::now();
        let mut loops = LoopDetector::default();
        assert!(!loops.is_loop(key(1), now, false));
        assert!(!loops.is_loop(key(2), now, false));
        assert!(!loops.is_loop(key(1), now, false));
        assert!(loops.is_loop(key(1), now, false));
        assert!(loops.is_loop(key(2), now, true));
    }

    #[test]
    fn refusals_a_minute_apart_are_no_loop() {
        let now = Instant::now();
        let mut loops = LoopDetector::default();
        for step in 0..5 {
            assert!(!loops.is_loop(key(1), now + WINDOW * step, true));
        }
    }

    #[test]
    fn only_java_before_4_2_is_old() {
        for (name, version, old) in [
            ("apache-kafka-java", "3.9.1", true),
            ("apache-kafka-java", "4.1.2", true),
            ("apache-kafka-java", "4.2.0", false),
            ("apache-kafka-java", "10.0.0", false),
            ("librdkafka", "2.4.0", false),
        ] {
            assert_eq!(
                LoopDetector::is_old_java(name, version),
                old,
                "{name} {version}"
            );
        }
    }
}
