//! The second half of judging: counting what passes, refusing what does not.

use std::sync::Arc;
use std::time::Instant;

use super::measure::{look_inside, sample};
use super::{
    INVALID_RECORD, Judge, MESSAGE_TOO_LARGE, Measured, Outcome, Refused, Sent, Verdict, Weighed,
};
use crate::batch::BatchHeader;
use crate::policy::{
    self, Action, Arrival, BatchFacts, Blame, ErrorCode, Gate, LoopDetector, ResendKey, Violation,
};
use crate::proxy::ClientInfo;
use crate::proxy::topics::TopicHandle;
use crate::wire::produce_answer::PartitionResult;

/// POLICY_VIOLATION
const POLICY_VIOLATION: i16 = 44;

/// Records flagged in one `record_errors`: the count is the peer's own claim.
const MOST_FLAGGED: i32 = 65_536;

impl Judge {
    /// Counts, logs and refuses what [`Judge::weigh`] found.
    pub fn settle(&mut self, frame: &[u8], client: &ClientInfo, arrival: &Arrival) -> Verdict {
        let now = arrival.ended;
        let mut verdict = Verdict::default();
        let may_linger = client.may_linger();
        if may_linger {
            self.linger.request(arrival);
        }
        let mut weighed = std::mem::take(&mut self.weighed);
        let is_whole = weighed.len() == self.layout.partitions.len()
            && !weighed.iter().any(|weighed| weighed.outcome.is_refused())
            && !self.has_repeated_topics(frame);
        let mut kept: Vec<(usize, usize)> = Vec::new();
        for Weighed {
            topic_entry,
            partition_entry,
            outcome,
        } in weighed.drain(..)
        {
            let entry = &self.layout.partitions[partition_entry];
            let partition = entry.index;
            let batch = entry
                .records
                .clone()
                .and_then(|range| frame.get(range))
                .unwrap_or_default();
            if let (true, Outcome::Within(measured) | Outcome::Over(measured, _)) =
                (may_linger, &outcome)
            {
                self.watch_linger(measured, client);
            }
            let result = match outcome {
                Outcome::Pass | Outcome::Invalid | Outcome::SpoilsRequest => None,
                Outcome::Within(mut measured) => {
                    self.count(&mut measured, batch, now, true);
                    measured.topic.metrics.forwarded.inc();
                    verdict.sent.push(measured.sent(partition));
                    None
                }
                Outcome::Over(mut measured, violation)
                    if measured.topic.policy.action == Action::Observe =>
                {
                    self.count(&mut measured, batch, now, false);
                    look_inside(&mut measured, batch);
                    self.observe(&measured, violation, partition, client);
                    verdict.sent.push(measured.sent(partition));
                    None
                }
                Outcome::Over(mut measured, violation) => {
                    look_inside(&mut measured, batch);
                    Some(self.refuse(&measured, violation, partition, client, now))
                }
                Outcome::NoRecords(_) => Some(PartitionResult::refused(
                    partition,
                    INVALID_RECORD,
                    "sizegate: the request holds no records for this partition".to_owned(),
                    Vec::new(),
                )),
                Outcome::Answer(code, text) => Some(PartitionResult::refused(
                    partition,
                    code,
                    text.to_owned(),
                    Vec::new(),
                )),
            };
            match result {
                Some(result) => verdict.refused.push(Refused {
                    topic_key: self.encoded_key(frame, topic_entry),
                    result,
                }),
                None if !is_whole => kept.push((topic_entry, partition_entry)),
                None => {}
            }
        }
        self.weighed = weighed;
        if !is_whole {
            verdict.kept = Some(self.grouped(frame, &kept));
        }
        verdict
    }

    /// Whether a record waited in its producer for nothing: a few integer operations.
    fn watch_linger(&mut self, measured: &Measured, client: &ClientInfo) {
        let Measured { topic, header, .. } = measured;
        let sent = policy::Sent {
            max_timestamp_ms: header.max_timestamp_ms,
            records: header.records_count,
            wire_bytes: header.wire_bytes(),
            crc: header.crc,
        };
        if let Some(suspect) = self.linger.batch(&sent, || Arc::clone(topic)) {
            self.shared.report_linger(suspect, client);
        }
    }

    fn encoded_key(&self, frame: &[u8], topic_entry: usize) -> Vec<u8> {
        frame
            .get(self.layout.topics[topic_entry].key.clone())
            .unwrap_or_default()
            .to_vec()
    }

    /// Counts what was measured of a batch that goes on to the broker.
    /// Nothing is near a limit in a batch that is not within all of them: enforcing, it would not be looked at.
    fn count(&self, measured: &mut Measured, batch: &[u8], now: Instant, is_within: bool) {
        let Measured {
            topic,
            header,
            facts,
            proof,
            ..
        } = &*measured;
        let Some(codec) = facts.codec else { return };
        topic.metrics.batch(
            codec,
            facts.wire_bytes,
            u64::from(header.records_count.max(0).unsigned_abs()),
        );
        if let Some(proof) = proof {
            self.shared.metrics.inspection(proof.label(), codec);
        }
        let batch_limit = topic.policy.batch_limit_bytes(topic.learned());
        if is_within
            && batch_limit.is_some_and(|limit| topic.policy.is_near(facts.wire_bytes, limit))
        {
            topic.metrics.near_limit(Gate::Batch);
        }
        sample(
            measured,
            batch,
            self.shared.decode(),
            &self.shared.metrics,
            (now, is_within),
        );
    }

    fn refuse(
        &mut self,
        measured: &Measured,
        violation: Violation,
        partition: i32,
        client: &ClientInfo,
        now: Instant,
    ) -> PartitionResult {
        let Measured { topic, header, .. } = measured;
        // Nobody sends again what a policy refuses.
        let is_policy = violation.limit.gate == Gate::Codec;
        let is_loop = topic.policy.error_code == ErrorCode::Auto
            && !is_policy
            && self.is_loop(topic, header, partition, client, now);
        let error_code = match topic.policy.error_code {
            _ if violation.unreadable.is_some() => INVALID_RECORD,
            ErrorCode::Auto if is_policy => POLICY_VIOLATION,
            ErrorCode::Auto if is_loop => INVALID_RECORD,
            ErrorCode::Auto | ErrorCode::MessageTooLarge => MESSAGE_TOO_LARGE,
            ErrorCode::PolicyViolation => POLICY_VIOLATION,
            ErrorCode::InvalidRecord => INVALID_RECORD,
        };
        let flagged = flagged_records(error_code, is_loop, header, &violation, client);
        topic.metrics.refused.inc();
        if is_loop {
            topic.metrics.loops.inc();
        }
        topic
            .metrics
            .violation(violation.limit.gate, violation.limit.source, Action::Reject);
        let refusal = self.refusal(measured, violation, partition, Blame::Sizegate, client);
        self.shared.report(&refusal, error_code, is_loop, client);
        PartitionResult::refused(partition, error_code, refusal.text, flagged)
    }

    fn observe(
        &self,
        measured: &Measured,
        violation: Violation,
        partition: i32,
        client: &ClientInfo,
    ) {
        let topic = &measured.topic;
        topic.metrics.observed.inc();
        topic.metrics.violation(
            violation.limit.gate,
            violation.limit.source,
            Action::Observe,
        );
        let refusal = self.refusal(measured, violation, partition, Blame::Observed, client);
        self.shared.report(&refusal, 0, false, client);
    }

    fn is_loop(
        &mut self,
        topic: &TopicHandle,
        header: &BatchHeader,
        partition: i32,
        client: &ClientInfo,
        now: Instant,
    ) -> bool {
        let key = ResendKey {
            topic: topic.name.to_string(),
            partition,
            identity: (
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.crc,
            ),
        };
        let is_old_java = header.records_count > 1
            && client
                .software
                .as_ref()
                .is_some_and(|s| LoopDetector::is_old_java(&s.name, &s.version));
        self.loops.is_loop(key, now, is_old_java)
    }
}

impl Measured {
    fn sent(self, partition: i32) -> Sent {
        let Measured { topic, facts, .. } = self;
        let BatchFacts {
            wire_bytes,
            codec,
            records,
            uncompressed,
            ..
        } = facts;
        Sent {
            topic,
            partition,
            wire_bytes,
            codec,
            records,
            uncompressed,
        }
    }
}

impl ClientInfo {
    /// Only the Java producer is known to keep a record that nothing can join; others send a batch as soon as it is
    /// above its size.
    fn may_linger(&self) -> bool {
        let software = self.software.as_ref();
        software.is_none_or(|software| LoopDetector::is_java(&software.name))
    }
}

/// `record_errors` go with code 87 only: with 10 and 44 they make librdkafka lose the code.
fn flagged_records(
    error_code: i16,
    is_loop: bool,
    header: &BatchHeader,
    violation: &Violation,
    client: &ClientInfo,
) -> Vec<i32> {
    if error_code != INVALID_RECORD {
        return Vec::new();
    }
    match violation.record {
        Some(record) if !is_loop => vec![i32::try_from(record.index).unwrap_or(0)],
        _ if header.records_count == 1 => vec![0],
        _ if is_loop
            && client
                .software
                .as_ref()
                .is_some_and(|s| LoopDetector::is_java(&s.name)) =>
        {
            (0..header.records_count.min(MOST_FLAGGED)).collect()
        }
        _ => Vec::new(),
    }
}
