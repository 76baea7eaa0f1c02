//! The second half of judging: counting what passes, refusing what does not.

use std::sync::Arc;
use std::time::Instant;

use super::measure::{look_inside, with_scratch};
use super::offload::Undone;
use super::sampling::sample;
use super::sent::Forwarded;
use super::{
    Evaluated, Forward, Gathered, Judge, Measured, Outcome, Refused, SentBatches, Stage, Verdict,
};
use crate::batch::BatchHeader;
use crate::claim::{Class, Failure, MARK_HEADER};
use crate::error_code::{INVALID_RECORD, NOT_ENOUGH_REPLICAS};
use crate::inspect::key_of;
use crate::policy::{self, Arrival, Blame, LoopDetector, ResendKey, Violation};
use crate::proxy::ClientInfo;
use crate::proxy::refusal_topic::shown;
use crate::proxy::topics::TopicHandle;
use crate::vocabulary::{Action, ErrorCode, Gate, RecordKey};
use crate::wire::produce_response::PartitionResult;

/// Records flagged in one `record_errors`: the count is the peer's own claim.
const MOST_FLAGGED: i32 = 65_536;

impl Judge {
    /// Counts, logs and refuses what [`Judge::evaluate`] found.
    pub(crate) fn commit(
        &mut self,
        frame: &[u8],
        asked: &Gathered,
        client: &ClientInfo,
        arrival: &Arrival,
    ) -> Verdict {
        if let Some(limit_bytes) = asked.frame_limit {
            self.over_frame(request_bytes(frame), limit_bytes);
        }
        let now = arrival.ended;
        let mut verdict = Verdict {
            sent: SentBatches::with_capacity(self.evaluated.len()),
            ..Verdict::default()
        };
        let mut forwarded = Forwarded::default();
        let may_linger = client.may_linger();
        if may_linger {
            self.linger.request(arrival);
        }
        let mut evaluated = std::mem::take(&mut self.evaluated);
        let is_whole = evaluated.len() == self.layout.partitions.len()
            && !evaluated
                .iter()
                .any(|evaluated| evaluated.outcome.is_refused())
            && !self.repeated.has_topics();
        let mut kept: Vec<(usize, usize)> = Vec::new();
        for Evaluated {
            topic_entry,
            partition_entry,
            outcome,
        } in evaluated.drain(..)
        {
            let Some(entry) = self.layout.partitions.get(partition_entry) else {
                continue;
            };
            let partition = entry.index;
            let batch = entry
                .records
                .clone()
                .and_then(|range| frame.get(range))
                .unwrap_or_default();
            if let Some(measured) = outcome.measured().filter(|_| may_linger) {
                self.watch_linger(measured, client);
            }
            let result = match outcome {
                Outcome::Pass | Outcome::Invalid | Outcome::SpoilsRequest => None,
                Outcome::Within(mut measured) => {
                    self.count(&mut measured, batch, now);
                    self.count_near(&measured, request_bytes(frame));
                    let mut created = 0;
                    match &asked.offload {
                        None => forwarded.add(&measured.topic),
                        Some(offload) => {
                            let stage = offload.stages.get(&partition_entry);
                            self.count_forwarded(&measured.topic, stage, client);
                            created = stage.map_or(0, Stage::created);
                        }
                    }
                    let mut sent = measured.sent(partition);
                    sent.objects = created;
                    verdict.sent.push(sent);
                    None
                }
                Outcome::Over(mut measured, violation) => match measured.topic.policy.action {
                    Action::Observe => {
                        self.count(&mut measured, batch, now);
                        look_inside(&mut measured, batch);
                        let also = std::mem::take(&mut measured.also);
                        self.observe(&measured, violation, also, (partition, batch), client);
                        verdict.sent.push(measured.sent(partition));
                        None
                    }
                    Action::Reject | Action::Offload => {
                        look_inside(&mut measured, batch);
                        Some(self.refuse(&measured, violation, (partition, batch), client, now))
                    }
                },
                Outcome::Undone(topic, undone) => {
                    let Some(result) = self.undone(&topic, undone, partition) else {
                        continue;
                    };
                    Some(result)
                }
                Outcome::NoRecords(_) => Some(PartitionResult::refused(
                    partition,
                    INVALID_RECORD,
                    "sizegate: the request holds no records for this partition".to_owned(),
                    Vec::new(),
                )),
                Outcome::Response(code, text) => Some(PartitionResult::refused(
                    partition,
                    code,
                    text.to_owned(),
                    Vec::new(),
                )),
            };
            match result {
                Some(mut result) => {
                    client.fit(&mut result);
                    verdict.refused.push(Refused {
                        topic_key: self.encoded_key(frame, topic_entry),
                        result,
                    });
                }
                None if !is_whole => kept.push((topic_entry, partition_entry)),
                None => {}
            }
        }
        self.evaluated = evaluated;
        verdict.forward = match (is_whole, kept.is_empty()) {
            (true, _) => Forward::Whole,
            (false, true) => Forward::Nothing,
            (false, false) => Forward::Spliced(self.grouped(frame, &kept)),
        };
        verdict
    }

    /// Counts a batch that is within all limits, as it came or with tickets.
    fn count_forwarded(&self, topic: &TopicHandle, stage: Option<&Stage>, client: &ClientInfo) {
        match stage {
            Some(Stage::Done { records, bytes, .. }) => {
                topic.metrics.offloaded.inc();
                let counts = self.shared.metrics.claims().topic(&topic.name);
                counts.offloaded_records.inc_by(*records);
                counts.offloaded_bytes.inc_by(*bytes);
                let client_id = client.client_id.as_deref().unwrap_or_default();
                self.shared
                    .offload_log
                    .log_offload(&topic.name, client_id, *records, *bytes);
            }
            Some(Stage::Inline(failure)) => {
                topic.metrics.forwarded.inc();
                self.shared.offload_log.log_failure(
                    &topic.name,
                    "forwarded as it came",
                    failure.told(),
                );
            }
            None
            | Some(
                Stage::Left
                | Stage::Forged(..)
                | Stage::Planned(_)
                | Stage::GivenUp
                | Stage::Failed(_),
            ) => {
                topic.metrics.forwarded.inc();
            }
        }
    }

    /// Counts what was to be offloaded and is not. `None`: nobody waits for a response, and it is dropped.
    fn undone(
        &self,
        topic: &TopicHandle,
        undone: Undone,
        partition: i32,
    ) -> Option<PartitionResult> {
        topic.metrics.refused.inc();
        let log = &self.shared.offload_log;
        match undone {
            Undone::Forged(record, why) => {
                self.shared.metrics.claims().topic(&topic.name).forged.inc();
                let failure = Failure::new(
                    Class::Config,
                    why.label(),
                    format_args!(
                        "record {record} bears the header {MARK_HEADER} and is no ticket of this topic"
                    ),
                );
                log.log_failure(&topic.name, "refused", failure.told());
                let text = format!(
                    "sizegate: record {record} bears the header {MARK_HEADER} and is no ticket of this topic ({why}): \
                     remove the header (source=claim)"
                );
                let flagged = vec![i32::try_from(record).unwrap_or(0)];
                Some(PartitionResult::refused(
                    partition,
                    INVALID_RECORD,
                    text,
                    flagged,
                ))
            }
            Undone::Failed(failure) => {
                let failure = failure.unwrap_or_else(|| {
                    Failure::new(Class::Transient, "Changed", "the limits changed meanwhile")
                });
                if self.layout.acks == 0 {
                    log.log_failure(
                        &topic.name,
                        "dropped: acks=0 has no response",
                        failure.told(),
                    );
                    return None;
                }
                log.log_failure(&topic.name, "refused with code 19", failure.told());
                let text = format!(
                    "sizegate: too large to be stored as it is, and the object store did not take its values in time \
                     ({}); send it again",
                    failure.code
                );
                Some(PartitionResult::refused(
                    partition,
                    NOT_ENOUGH_REPLICAS,
                    text,
                    Vec::new(),
                ))
            }
        }
    }

    /// Whether a record waited in its producer for nothing: a few integer operations.
    pub(super) fn watch_linger(&mut self, measured: &Measured, client: &ClientInfo) {
        let Measured { topic, header, .. } = measured;
        let sent = policy::SentBatch {
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
        let topic = self.layout.topics.get(topic_entry);
        topic
            .and_then(|topic| frame.get(topic.key.clone()))
            .unwrap_or_default()
            .to_vec()
    }

    /// Counts what was measured of a batch that goes on to the broker.
    fn count(&self, measured: &mut Measured, batch: &[u8], now: Instant) {
        self.count_proof(measured);
        if measured.facts.codec.is_none() {
            return;
        }
        sample(
            measured,
            batch,
            self.topics.decode(&self.shared),
            &self.shared.metrics,
            now,
        );
    }

    /// Counts by what it is known what is in a batch.
    pub(super) fn count_proof(&self, measured: &Measured) {
        if let (Some(proof), Some(codec)) = (measured.proof, measured.facts.codec) {
            self.shared.metrics.inspection(proof.label(), codec);
        }
    }

    /// Counts the gates at which a batch is near the limit, each once. Nothing is near a limit in a batch that is not
    /// within all of them: enforcing, it would not be looked at.
    pub(super) fn count_near(&self, measured: &Measured, request_bytes: u64) {
        let topic = &measured.topic;
        for gate in measured.near_gates() {
            topic.metrics.near_limit(gate);
        }
        let limit = self.shared.frame_bytes.into();
        if topic.policy.is_near(request_bytes, limit) {
            topic.metrics.near_limit(Gate::Frame);
        }
    }

    fn refuse(
        &mut self,
        measured: &Measured,
        violation: Violation,
        (partition, batch): (i32, &[u8]),
        client: &ClientInfo,
        now: Instant,
    ) -> PartitionResult {
        let Measured { topic, header, .. } = measured;
        // Nobody sends again what a policy refuses.
        let is_policy = violation.limit.gate == Gate::Codec;
        let is_loop = topic.policy.error_code == ErrorCode::Auto
            && !is_policy
            && self.is_loop(topic, header, partition, client, now);
        let error_code = policy::error_code(
            topic.policy.error_code,
            violation.limit.gate,
            violation.unreadable.is_some(),
            is_loop,
        );
        let flagged = flagged_records(error_code, is_loop, header, &violation, client);
        topic.metrics.refused.inc();
        if is_loop {
            topic.metrics.loops.inc();
        }
        topic
            .metrics
            .violation(violation.limit.gate, violation.limit.source, Action::Reject);
        let key = self.key_of_record(measured, &violation, batch);
        let refusal = self.refusal(measured, violation, partition, Blame::Sizegate, client);
        self.shared
            .report(&refusal, error_code, is_loop, key, client);
        PartitionResult::refused(partition, error_code, refusal.text, flagged)
    }

    fn observe(
        &self,
        measured: &Measured,
        violation: Violation,
        also: Vec<Violation>,
        (partition, batch): (i32, &[u8]),
        client: &ClientInfo,
    ) {
        let topic = &measured.topic;
        topic.metrics.observed.inc();
        let would_offload = |violation: &Violation| {
            let is_mended =
                violation.unreadable.is_none() && violation.limit.gate.is_mended_by_a_ticket();
            topic.policy.offload.is_some() && is_mended
        };
        let also = also.into_iter().map(|violation| (violation, true));
        for (violation, is_beside) in std::iter::once((violation, false)).chain(also) {
            let blame = match (would_offload(&violation), is_beside) {
                (false, false) => Blame::Observed,
                (false, true) => Blame::AlsoObserved,
                (true, false) => Blame::WouldOffload,
                (true, true) => Blame::AlsoWouldOffload,
            };
            let limit = &violation.limit;
            topic
                .metrics
                .violation(limit.gate, limit.source, Action::Observe);
            let key = self.key_of_record(measured, &violation, batch);
            let refusal = self.refusal(measured, violation, partition, blame, client);
            if is_beside {
                self.shared.report_beside(&refusal, key, client);
            } else {
                self.shared.report(&refusal, 0, false, key, client);
            }
        }
    }

    /// What is to be told of the key of the record at fault: of one that is named, or is alone in its batch.
    fn key_of_record(
        &self,
        measured: &Measured,
        violation: &Violation,
        batch: &[u8],
    ) -> Option<String> {
        let how = self.shared.record_key;
        if how == RecordKey::None {
            return None;
        }
        let header = &measured.header;
        let index = match violation.record {
            Some(record) => record.index,
            None if header.records_count == 1 => 0,
            None => return None,
        };
        let key = with_scratch(|scratch| key_of(header, batch, index, scratch))?;
        shown(how, &key)
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
    /// The gates that compare sizes of the batch, at which it is near its limit.
    pub(super) fn near_gates(&self) -> impl Iterator<Item = Gate> + '_ {
        let policy = &self.topic.policy;
        // Near the threshold for offloading: that is no limit.
        let is_limit = |gate: &Gate| *gate != Gate::Value || policy.inside.value_bytes.is_some();
        self.is_near
            .then_some(Gate::Batch)
            .into_iter()
            .chain(self.near.gates().filter(is_limit))
    }
}

impl ClientInfo {
    /// Only the Java producer is known to keep a record that nothing can join; others send a batch as soon as it is
    /// above its size.
    pub(super) fn may_linger(&self) -> bool {
        let software = self.software.as_ref();
        software.is_none_or(|software| LoopDetector::is_java(&software.name))
    }
}

/// What the gate `frame` compares: the request as its length prefix declares it.
pub(super) fn request_bytes(frame: &[u8]) -> u64 {
    (frame.len() as u64).saturating_sub(4)
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
