//! What a client is told beyond a verdict on a batch: a request above the frame limit refused for each of its
//! partitions, and a broker's own refusal explained on its way back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use uuid::Uuid;

use super::Session;
use crate::cluster::{CompressionType, Lookup};
use crate::policy::{
    Action, Blame, Codec, Gate, Limit, Place, Refusal, Size, Source, Violation, batch_of, grouped,
};
use crate::proxy::oversized::Oversized;
use crate::proxy::report::printable;
use crate::proxy::topics::TopicHandle;
use crate::proxy::verdict::{CURRENT, INVALID_RECORD, MESSAGE_TOO_LARGE, Refused, Sent};
use crate::telemetry;
use crate::wire::Malformed;
use crate::wire::produce::{self, TopicKey};
use crate::wire::produce_answer::{PartitionResult, ProduceAnswer};

/// RECORD_LIST_TOO_LARGE
const RECORD_LIST_TOO_LARGE: i16 = 18;

impl Session {
    /// Refuses every partition of a request above the frame limit, or says that it would; `None` where no answer is
    /// wanted.
    pub(super) fn refuse_oversized(&mut self, oversized: Oversized) -> Option<Vec<Refused>> {
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
            // A partition named twice gets one answer.
            if !seen.insert((Arc::clone(&topic_key), partition)) {
                continue;
            }
            let limit = Limit {
                gate: Gate::Frame,
                value: u64::from(self.shared.frame_bytes),
                source: Source::Rule,
                name: None,
                headroom_bytes: 0,
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
            );
            self.shared.report(&refusal, error_code, false, &self.who);
            let result = PartitionResult::refused(partition, error_code, refusal.text, Vec::new());
            refused.push(Refused {
                topic_key: topic_key.to_vec(),
                result,
            });
        }
        (found.acks != 0).then_some(refused)
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
        answer: &mut ProduceAnswer,
        version: i16,
        sent: &[Sent],
    ) -> Result<(), Malformed> {
        let mut by_partition: HashMap<i32, Vec<&Sent>> = HashMap::new();
        for sent in sent {
            by_partition.entry(sent.partition).or_default().push(sent);
        }
        for topic in &mut answer.topics {
            let key = produce::encoded_key(&topic.key, version)?;
            for result in &mut topic.partitions {
                if !matches!(
                    result.error_code,
                    MESSAGE_TOO_LARGE | RECORD_LIST_TOO_LARGE | INVALID_RECORD
                ) {
                    continue;
                }
                let candidates = by_partition.get(&result.index);
                let Some(sent) =
                    candidates.and_then(|sent| sent.iter().find(|sent| sent.topic.is(key)))
                else {
                    continue;
                };
                sent.topic.metrics.broker_refusal(result.error_code);
                if result.error_code != INVALID_RECORD {
                    self.read_limits_in_background(&sent.topic);
                }
                if result.error_message.is_none()
                    && let Some(text) = self.explanation(result.error_code, sent)
                {
                    self.shared.refusal_log.log_broker_refusal(
                        &sent.topic.name,
                        result.error_code,
                        self.who.address,
                        self.who.client_id_text(),
                        &text,
                    );
                    result.error_message = Some(text.into_bytes());
                }
            }
        }
        Ok(())
    }

    /// What the broker most likely means. Nothing where it need not be a size: code 87 says many things.
    fn explanation(&self, error_code: i16, sent: &Sent) -> Option<String> {
        let (cause, remedy) = cause(error_code, sent, &|| self.no_limit(&sent.topic))?;
        let Sent {
            topic,
            partition,
            wire_bytes,
            codec,
            records,
            uncompressed,
        } = sent;
        let codec = codec.map_or("unknown", Codec::label);
        let (unpacked, unpacked_tail) = match *uncompressed {
            _ if codec == Codec::None.label() => Default::default(),
            None => Default::default(),
            Some(Size::Exact(bytes)) => (
                format!(", {} unpacked", grouped(bytes)),
                format!(" uncompressed_bytes={bytes}"),
            ),
            Some(Size::AtLeast(bytes)) => (
                format!(", at least {} unpacked", grouped(bytes)),
                format!(" uncompressed_at_least_bytes={bytes}"),
            ),
        };
        Some(format!(
            "sizegate let {}-{partition} pass, the broker refused it: {} is {} bytes on the wire (codec={codec}{unpacked}); \
             {cause}. {remedy} [refused_by=broker code={error_code} topic={} partition={partition} \
             batch_bytes={wire_bytes}{unpacked_tail} codec={codec} records={records}]",
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
                "{MOST_LIKELY}, which sizegate could not read (/readyz says which right is missing)"
            );
        }
        format!("{MOST_LIKELY}, which sizegate has not read yet")
    }

    /// The broker knows a limit better: learn it before the next batch.
    fn read_limits_in_background(&self, topic: &TopicHandle) {
        let cluster = self.shared.cluster.clone();
        let node_id = self.node_id();
        let name = Arc::clone(&topic.name);
        tokio::spawn(async move {
            if let Lookup::Found(topic) = cluster.find_topic(&name).await {
                let _ = cluster.read_limits(&topic, node_id, CURRENT).await;
            }
        });
    }
}

/// The limit that a broker's refusal most likely means, and what to do about it; `None` where it need not be one.
/// `no_limit` says why none is known.
fn cause(
    error_code: i16,
    sent: &Sent,
    no_limit: &dyn Fn() -> String,
) -> Option<(String, &'static str)> {
    const RAISE: &str = "Send less in one record, or raise the topic's max.message.bytes.";
    let topic = &sent.topic;
    let learned = topic.known.as_ref().and_then(|known| known.learned());
    if error_code == INVALID_RECORD {
        let limit = learned?
            .max_decompressed_message_bytes
            .filter(|_| sent.codec != Some(Codec::None))?;
        let cause = format!(
            "most likely one record is larger after decompression than max.decompressed.message.bytes ({})",
            grouped(limit.bytes)
        );
        return Some((cause, "Send less in one record."));
    }
    if error_code == RECORD_LIST_TOO_LARGE {
        return Some((
            "the batch does not fit into one segment (segment.bytes)".to_owned(),
            "Send less in one record, or raise the topic's segment.bytes.",
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
            "Send less in one record, or set compression.type=producer on the topic.",
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
    Some((cause, RAISE))
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
    format!("the topic stores batches unpacked (compression.type=uncompressed){size} its {limit}")
}
