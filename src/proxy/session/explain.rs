//! What a client is told beyond a verdict on a batch: a request above the frame limit refused for each of its
//! partitions, and a broker's own refusal explained on its way back.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use uuid::Uuid;

use super::Session;
use crate::cluster::{CompressionType, Lookup};
use crate::policy::{Action, Blame, Codec, Gate, Limit, Place, Refusal, Size, Source, Violation};
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
                    tracing::warn!(client = %self.who.address, code = result.error_code, "{text}");
                    result.error_message = Some(text.into_bytes());
                }
            }
        }
        Ok(())
    }

    /// What the broker most likely means. Nothing where it need not be a size: code 87 says many things.
    fn explanation(&self, error_code: i16, sent: &Sent) -> Option<String> {
        let Sent {
            topic,
            partition,
            wire_bytes,
            codec: sent_codec,
            records,
        } = sent;
        let learned = topic.known.as_ref().and_then(|known| known.learned());
        let codec = sent_codec.map_or("unknown", Codec::label);
        let stored = match learned.and_then(|learned| learned.compression_type) {
            Some(CompressionType::Stored(codec)) => Some(codec),
            Some(CompressionType::Producer) | None => None,
        };
        let limit = topic.own();
        let (cause, remedy) = match error_code {
            INVALID_RECORD => {
                let limit = learned?
                    .max_decompressed_message_bytes
                    .filter(|_| *sent_codec != Some(Codec::None))?;
                (
                    format!(
                        "most likely one record is larger after decompression than max.decompressed.message.bytes ({})",
                        limit.bytes
                    ),
                    "Send less in one record.",
                )
            }
            RECORD_LIST_TOO_LARGE => (
                "the batch does not fit into one segment (segment.bytes)".to_owned(),
                "Send less in one record, or raise the topic's segment.bytes.",
            ),
            _ if stored.is_some() && stored != *sent_codec => (
                format!(
                    "the topic stores batches with compression.type={}, and the rewritten batch is most likely larger than its max.message.bytes",
                    stored.map_or("producer", Codec::label)
                ),
                "Send less in one record, or set compression.type=producer on the topic.",
            ),
            _ => match limit {
                Some(limit) if *wire_bytes > limit.value => (
                    format!(
                        "the limit there is {} by now (source={})",
                        limit.value, limit.source
                    ),
                    "Send less in one record, or raise the topic's max.message.bytes.",
                ),
                Some(limit) => (
                    format!(
                        "that is within the {} sizegate read (source={}), so the limit has most likely just been lowered",
                        limit.value, limit.source
                    ),
                    "Send less in one record, or raise the topic's max.message.bytes.",
                ),
                None => (
                    "most likely the topic's max.message.bytes, which sizegate could not read"
                        .to_owned(),
                    "Send less in one record, or raise the topic's max.message.bytes.",
                ),
            },
        };
        Some(format!(
            "sizegate let {}-{partition} pass, the broker refused it: a batch of {} records, {} bytes on the wire (codec={codec}); {cause}. {remedy} [refused_by=broker code={error_code} topic={} partition={partition} batch_bytes={} codec={codec} records={}]",
            topic.name, records, wire_bytes, topic.name, wire_bytes, records
        ))
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
