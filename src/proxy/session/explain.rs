//! Writes what a client is told beyond a verdict on a batch: it refuses each partition of a request above the frame
//! limit, and explains a broker's own refusal on its way back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use uuid::Uuid;

use super::{Close, Session};
use crate::error_code::{
    DUPLICATE_SEQUENCE_NUMBER, INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE,
    is_retriable,
};
use crate::policy::{Blame, Library, Limit, Place, Refusal, Size, Violation, batch_of};
use crate::proxy::oversized::OversizedFrame;
use crate::proxy::topics::TopicHandle;
use crate::proxy::verdict::{Refused, Sent};
use crate::telemetry;
use crate::text::grouped;
use crate::text::printable;
use crate::vocabulary::{Action, Codec, CompressionType, Gate, Source};
use crate::wire::Malformed;
use crate::wire::produce::{self, TopicKey};
use crate::wire::produce_response::{PartitionResult, ProduceResponse};

/// Nobody sets `socket.request.max.bytes` lower, and most requests are smaller.
const LARGE_REQUEST_BYTES: u32 = 256 * 1024;

impl Session {
    /// Refuses every partition of a request above the frame limit, or says that it would; `None` where no response is
    /// wanted.
    pub(super) fn refuse_oversized(&mut self, oversized: OversizedFrame) -> Option<Vec<Refused>> {
        let request_bytes = oversized.head.request_bytes;
        let passes = oversized.passes;
        let version = oversized.head.api_version;
        let found = oversized.into_found();
        self.who.learn_client_id(found.client_id.as_deref());
        let (action, blame, error_code, reason) = if passes {
            (Action::Observe, Blame::Observed, 0, "observed")
        } else {
            (
                Action::Reject,
                Blame::Sizegate,
                MESSAGE_TOO_LARGE,
                "answered",
            )
        };
        self.shared.metrics.frames_refused(reason);
        let mut seen = HashSet::new();
        let mut refused = Vec::with_capacity(found.partitions.len());
        for (topic_key, partition) in found.partitions {
            // A partition named twice gets one response.
            if !seen.insert((Arc::clone(&topic_key), partition)) {
                continue;
            }
            let limit = Limit {
                gate: Gate::Frame,
                value: u64::from(self.shared.frame_bytes),
                source: Source::Rule,
                name: None,
                headroom_bytes: 0,
                member_limit: None,
            };
            let violation = Violation {
                limit,
                size: Size::Exact(u64::from(request_bytes)),
                record: None,
                unreadable: None,
            };
            let topic = self.topic_name(&topic_key, version);
            let known = self.shared.cluster.topic(&topic);
            let metrics = self
                .shared
                .metrics
                .topic(known.as_ref().map_or(telemetry::OTHER, |known| &known.name));
            metrics.violation(Gate::Frame, Source::Rule, action);
            let place = Place {
                topic: topic.into(),
                partition,
            };
            let refusal = Refusal::new(
                self.shared.next_refusal_id(),
                blame,
                place,
                violation,
                None,
                None,
                (self.who.library(), self.who.framework()),
            );
            self.shared
                .report(&refusal, error_code, false, None, &self.who);
            let mut result =
                PartitionResult::refused(partition, error_code, refusal.text, Vec::new());
            self.who.fit(&mut result);
            refused.push(Refused {
                topic_key: topic_key.to_vec(),
                result,
            });
        }
        (found.acks != 0).then_some(refused)
    }

    /// A broker that closes instead of answering a large Produce most likely found it too large; where its limit is known,
    /// that was looked at before.
    pub(super) fn closed_on_large(&self, close: Close) -> Close {
        if !matches!(close, Close::ByBroker | Close::Upstream(_))
            || self.shared.cluster.knows_frame_limit(self.node_id())
        {
            return close;
        }
        let passing_bytes = || {
            let passing_bytes = self.requests.passing_bytes();
            passing_bytes.filter(|_| self.in_flight.is_empty())
        };
        match self
            .in_flight
            .unanswered_produce_bytes()
            .or_else(passing_bytes)
        {
            Some(request_bytes) if request_bytes >= LARGE_REQUEST_BYTES => Close::ByBrokerOnLarge {
                request_bytes,
                reason: close.label(),
            },
            _ => close,
        }
    }

    /// A topic's name for people.
    fn topic_name(&self, encoded_key: &[u8], version: i16) -> String {
        match produce::encoded_key(encoded_key, version) {
            Ok(TopicKey::Name(name)) => printable(name),
            Ok(TopicKey::Id(id)) => {
                let id = Uuid::from_bytes(id);
                self.shared
                    .cluster
                    .topic_by_id(id)
                    .map_or_else(|| id.to_string(), |topic| topic.name.to_string())
            }
            Err(_) => String::new(),
        }
    }

    /// Adds to a broker's own refusal for size what was measured, which limit it most likely broke and what to do.
    pub(super) fn explain_broker_refusals(
        &self,
        response: &mut ProduceResponse,
        version: i16,
        sent: &[Sent],
    ) -> Result<(), Malformed> {
        let mut by_partition: HashMap<i32, Vec<&Sent>> = HashMap::new();
        for sent in sent {
            by_partition.entry(sent.partition).or_default().push(sent);
        }
        let mut outdated = HashSet::new();
        for topic in &mut response.topics {
            let key = produce::encoded_key(&topic.key, version)?;
            for result in &mut topic.partitions {
                if result.error_code == 0 {
                    continue;
                }
                let candidates = by_partition.get(&result.index);
                let Some(sent) =
                    candidates.and_then(|sent| sent.iter().find(|sent| sent.topic.is(key)))
                else {
                    continue;
                };
                self.count_orphans(result.error_code, sent);
                if !matches!(
                    result.error_code,
                    MESSAGE_TOO_LARGE | RECORD_LIST_TOO_LARGE | INVALID_RECORD
                ) {
                    continue;
                }
                sent.topic.metrics.broker_refusal(result.error_code);
                sent.refused_by_broker();
                // The broker knows a limit better: it is learned before the next batch. Once for each topic.
                if result.error_code != INVALID_RECORD && outdated.insert(&sent.topic.name) {
                    let cluster = &self.shared.cluster;
                    cluster.read_limits_soon(&sent.topic.name, self.node_id());
                }
                let own = result.error_message.as_deref().map(printable);
                let ours = match own {
                    None => self.explanation(result.error_code, sent),
                    Some(_) => None,
                };
                let said = ours.as_ref().or(own.as_ref());
                self.shared
                    .report_broker_refusal(sent, result.error_code, said, &self.who);
                if let Some(text) = ours {
                    self.shared.refusal_log.log_broker_refusal(
                        &sent.topic.name,
                        result.error_code,
                        self.who.address,
                        self.who.client_id_text(),
                        &text,
                    );
                    result.error_message = Some(text.into_bytes());
                    self.who.fit(result);
                }
            }
        }
        Ok(())
    }

    /// Counts objects of tickets that the broker did not take, and that their client will not send again.
    fn count_orphans(&self, error_code: i16, sent: &Sent) {
        let is_stored_or_sent_again =
            error_code == DUPLICATE_SEQUENCE_NUMBER || is_retriable(error_code);
        if sent.objects > 0 && !is_stored_or_sent_again {
            let counts = self.shared.metrics.claims().topic(&sent.topic.name);
            counts.orphans.inc_by(sent.objects);
        }
    }

    /// What the broker most likely means. Nothing where it need not be a size: code 87 says many things.
    fn explanation(&self, error_code: i16, sent: &Sent) -> Option<String> {
        let (cause, remedy) = cause(error_code, sent, self.who.library(), &|| {
            self.no_limit(&sent.topic)
        })?;
        let Sent {
            topic,
            partition,
            wire_bytes,
            codec,
            records,
            uncompressed,
            ..
        } = sent;
        let codec = codec.map_or("unknown", Codec::label);
        let (size, size_tail) = match *uncompressed {
            _ if codec == Codec::None.label() => Default::default(),
            // That it is at least as large as a part of it says nothing.
            Some(Size::AtLeast(bytes)) if bytes < *wire_bytes => Default::default(),
            None => Default::default(),
            Some(Size::Exact(bytes)) => (
                format!(", {} uncompressed", grouped(bytes)),
                format!(" uncompressed_bytes={bytes}"),
            ),
            Some(Size::AtLeast(bytes)) => (
                format!(", at least {} uncompressed", grouped(bytes)),
                format!(" uncompressed_at_least_bytes={bytes}"),
            ),
        };
        Some(format!(
            "sizegate let {}-{partition} pass, the broker refused it: {} is {} bytes on the wire (codec={codec}{size}); \
             {cause}. {remedy} [refused_by=broker code={error_code} topic={} partition={partition} \
             batch_bytes={wire_bytes}{size_tail} codec={codec} records={records}]",
            topic.name,
            batch_of(*records),
            grouped(*wire_bytes),
            topic.name,
        ))
    }

    /// Why the topic's own limit is not known here.
    fn no_limit(&self, topic: &TopicHandle) -> String {
        const MOST_LIKELY: &str = "most likely the topic's max.message.bytes";
        const MOST_LIKELY_OVER: &str = "most likely over the topic's max.message.bytes";
        if !topic.policy.inherits {
            let policy = self.shared.policy.load();
            let rule = policy.rule_for_client(&topic.name, &self.who.rules(&policy));
            let whose = match rule.filter(|rule| rule.limits.batch_bytes.is_some()) {
                Some(rule) => format!("rule \"{}\"", rule.name),
                None => "the default".to_owned(),
            };
            return format!(
                "{whose} leaves batches to the broker (batch_bytes: none), and this one is {MOST_LIKELY_OVER}"
            );
        }
        if self.shared.cluster.status().missing_rights.is_some() {
            return format!(
                "{MOST_LIKELY}, which sizegate could not read (/readyz says which permission is missing)"
            );
        }
        format!("{MOST_LIKELY}, which sizegate has not read yet")
    }
}

/// The limit that a broker's refusal most likely means, and what to do about it; `None` where it need not be one.
/// `no_limit` says why none is known.
fn cause(
    error_code: i16,
    sent: &Sent,
    library: Option<Library>,
    no_limit: &dyn Fn() -> String,
) -> Option<(String, String)> {
    let topic = &sent.topic;
    let learned = topic.known.as_ref().and_then(|known| known.learned());
    if error_code == INVALID_RECORD {
        let limit = learned?.max_decompressed_message_bytes?.bytes;
        return Some((
            too_large_decompressed(sent, limit)?,
            less(sent, library, None),
        ));
    }
    if error_code == RECORD_LIST_TOO_LARGE {
        return Some((
            "the batch does not fit into one segment (segment.bytes)".to_owned(),
            less(sent, library, Some("raise the topic's segment.bytes")),
        ));
    }
    let limit = topic.own();
    let stored = match learned.and_then(|learned| learned.compression_type) {
        Some(CompressionType::Stored(codec)) => Some(codec),
        Some(CompressionType::Producer) | None => None,
    };
    // A limit that this batch was over as it came explains it better than how it would have been stored.
    let was_over = limit.is_some_and(|limit| sent.wire_bytes > limit.value);
    if let Some(codec) = stored.filter(|codec| sent.codec != Some(*codec) && !was_over) {
        return Some((
            stored_too_large(codec, sent, limit.map(|limit| limit.value)),
            less(
                sent,
                library,
                Some("set compression.type=producer on the topic"),
            ),
        ));
    }
    let cause = match limit {
        _ if !topic.policy.inherits => no_limit(),
        Some(limit) if was_over => format!(
            "the limit there is {} by now (source={})",
            grouped(limit.value),
            limit.source
        ),
        Some(limit) => format!(
            "that is within the {} sizegate read (source={}), so the limit has most likely just been lowered",
            grouped(limit.value),
            limit.source
        ),
        None => no_limit(),
    };
    let raise = "raise the topic's max.message.bytes";
    Some((cause, less(sent, library, Some(raise))))
}

/// What to send instead, or what else to do. Of a batch of many nobody knows here whether one record is to blame.
fn less(sent: &Sent, library: Option<Library>, or: Option<&str>) -> String {
    const ANY: &str =
        "Lower the producer's batch.size (kafkajs: split the messages over more send() calls)";
    let less = match sent.records {
        ..=1 => "Send less in one record".to_owned(),
        _ => format!(
            "{}, or send less in one record",
            library.map_or(ANY, Library::fewer_records)
        ),
    };
    match or {
        Some(or) => format!("{less}, or {or}."),
        None => format!("{less}."),
    }
}

/// Code 87 says many things. This one only of a batch that can hold such a record: the broker compares the body of each
/// record of a compressed batch.
fn too_large_decompressed(sent: &Sent, limit: u64) -> Option<String> {
    /// `max.decompressed.message.bytes` by default: no record is larger.
    const DEFAULT: u64 = 2_147_483_639;
    let ratio = match sent.codec? {
        Codec::None => return None,
        Codec::Gzip => 1_032,
        Codec::Snappy => 24,
        Codec::Lz4 => 255,
        Codec::Zstd => 32_768,
    };
    let at_most = match sent.uncompressed {
        Some(Size::Exact(bytes)) => bytes,
        Some(Size::AtLeast(_)) | None => sent.wire_bytes.saturating_mul(ratio),
    };
    (limit < DEFAULT && at_most > limit).then(|| {
        format!(
            "most likely one record is larger after decompression than max.decompressed.message.bytes ({})",
            grouped(limit)
        )
    })
}

/// The topic rewrites batches, and judges what it stores.
fn stored_too_large(codec: Codec, sent: &Sent, limit: Option<u64>) -> String {
    let limit = match limit {
        Some(limit) => format!("max.message.bytes of {}", grouped(limit)),
        None => "max.message.bytes".to_owned(),
    };
    if codec != Codec::None {
        return format!(
            "the topic stores batches with compression.type={codec}, and the rewritten batch is most likely larger than \
             its {limit}"
        );
    }
    let size = match sent.uncompressed {
        Some(Size::Exact(bytes)) => format!(": that is {} bytes, more than", grouped(bytes)),
        _ => ", which is most likely more than".to_owned(),
    };
    format!(
        "the topic stores batches uncompressed (compression.type=uncompressed){size} its {limit}"
    )
}
