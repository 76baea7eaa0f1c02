//! Every place on a record's way where a size is compared: whose, with which limit, from where, and the outcome.

use std::fmt;

use serde::Serialize;

use super::limits::GateLimit;
use super::{DEFAULT_MAX_REQUEST_SIZE, Ground, Question, RecordSizes};
use crate::findings::{
    COMPRESSION_TYPE, MAX_DECOMPRESSED_MESSAGE_BYTES, MAX_MESSAGE_BYTES, SEGMENT_BYTES, Setting,
    TopicFacts,
};
use crate::policy::{Action, Codec, Gate, TopicPolicy, labelled};

/// What the Java consumer asks of one partition unless it says otherwise: soft.
const MAX_PARTITION_FETCH_BYTES: u64 = 1_048_576;

/// What librdkafka takes of one answer unless it says otherwise (`receive.message.max.bytes`): hard.
const LIBRDKAFKA_RECEIVE_BYTES: u64 = 100_000_000;

labelled! {
    /// Who compares.
    Party {
        /// The producer, before anything is sent.
        Client = "client",
        /// This product.
        Sizegate = "sizegate",
        /// Kafka.
        Broker = "broker",
        /// Whoever reads it.
        Consumer = "consumer",
    }
}

labelled! {
    /// What comes of a comparison.
    Outcome {
        /// Within the limit.
        Passes = "passes",
        /// Over it.
        Refuses = "refuses",
        /// Over it, but only counted and logged.
        Observes = "observes",
        /// Over it: the value goes to the object store, and a ticket travels.
        Offloads = "offloads",
        /// It depends on what is not known before it is tried.
        MayRefuse = "may refuse",
        /// The limit is not known.
        Unknown = "unknown",
        /// Nothing is refused; the reader needs the memory.
        Memory = "needs memory",
    }
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Who compares.
    pub by: Party,
    /// With what: a gate of ours, or the name of a setting.
    pub what: String,
    /// Which size is compared.
    pub size_bytes: u64,
    /// With which limit; `None`: not known, or none.
    pub limit_bytes: Option<u64>,
    /// Where the limit comes from.
    pub source: String,
    /// What comes of it.
    pub outcome: Outcome,
    /// What there is to say of it.
    pub note: String,
}

/// Every comparison on the record's way, in order.
pub(super) fn on_the_way(
    question: &Question,
    ground: &Ground<'_>,
    policy: &TopicPolicy,
    limits: &[GateLimit],
    record: &RecordSizes,
) -> Vec<Check> {
    let mut checks = vec![client(question, record)];
    checks.extend(
        limits
            .iter()
            .filter_map(|limit| ours(limit, policy, record)),
    );
    checks.extend(broker(ground, record));
    checks.push(consumer(record));
    checks
}

fn client(question: &Question, record: &RecordSizes) -> Check {
    let limit = question
        .max_request_size
        .unwrap_or(DEFAULT_MAX_REQUEST_SIZE);
    Check {
        by: Party::Client,
        what: "max.request.size".to_owned(),
        size_bytes: record.estimate_bytes,
        limit_bytes: Some(limit),
        source: match question.max_request_size {
            Some(_) => "as given",
            None => "Java's default",
        }
        .to_owned(),
        outcome: over(record.estimate_bytes, limit),
        note: "the Java producer's estimate of one record, before compression whatever the codec"
            .to_owned(),
    }
}

fn over(size: u64, limit: u64) -> Outcome {
    if size > limit {
        Outcome::Refuses
    } else {
        Outcome::Passes
    }
}

/// A gate of ours; none for the ratio where it is not compared.
fn ours(gate: &GateLimit, policy: &TopicPolicy, record: &RecordSizes) -> Option<Check> {
    if gate.gate == Gate::Codec {
        return codec(gate, policy, record);
    }
    let (size, note) = match gate.gate {
        Gate::Batch => (
            record.batch_bytes,
            "the batch as it travels, its header included",
        ),
        Gate::Frame => (
            record.batch_bytes,
            "the request is a little more than its batch",
        ),
        Gate::Uncompressed => (record.uncompressed_bytes, "the batch unpacked"),
        Gate::Record => (record.record_bytes, "one record as encoded, unpacked"),
        Gate::Estimate => (record.estimate_bytes, "the Java producer's estimate"),
        Gate::Key => (record.key_bytes.unwrap_or(0), ""),
        Gate::Value => (record.value_bytes.unwrap_or(0), ""),
        Gate::Headers => (record.headers_bytes, ""),
        Gate::Ratio => (
            record.uncompressed_bytes,
            "unpacked against what the ratio allows",
        ),
        Gate::Codec | Gate::Config => return None,
    };
    let limit = match gate.gate {
        Gate::Ratio => {
            // Compared above 1 MiB only.
            if record.uncompressed_bytes <= 1 << 20 {
                return None;
            }
            gate.limit_bytes
                .map(|ratio| ratio.saturating_mul(record.batch_bytes))
        }
        _ => gate.limit_bytes,
    };
    let outcome = match (limit, policy.action) {
        (Some(limit), action) if size > limit => match action {
            // The frame gate knows no topic's rule; in observe mode it passes what may be held.
            Action::Observe => Outcome::Observes,
            Action::Offload if gate.gate != Gate::Frame => Outcome::Offloads,
            Action::Reject | Action::Offload => Outcome::Refuses,
        },
        (Some(_), _) => Outcome::Passes,
        (None, _) if gate.gate == Gate::Batch && policy.inherits => Outcome::Unknown,
        (None, _) => return None,
    };
    Some(Check {
        by: Party::Sizegate,
        what: format!("gate {}", gate.gate),
        size_bytes: size,
        limit_bytes: limit,
        source: gate.source_text(),
        outcome,
        note: note.to_owned(),
    })
}

/// Which codec a compressed batch has is not asked; an uncompressed one may be of what does not shrink.
fn codec(gate: &GateLimit, policy: &TopicPolicy, record: &RecordSizes) -> Option<Check> {
    let rule = policy.codecs.as_deref()?;
    let is_plain = record.batch_bytes == record.uncompressed_bytes;
    let is_large = record.uncompressed_bytes > rule.above_bytes;
    let (outcome, note) = match (is_large, is_plain) {
        (false, _) => (
            Outcome::Passes,
            "up to so much a batch may come as it likes".to_owned(),
        ),
        (true, true) if rule.allows(Some(Codec::None)) => (
            Outcome::Passes,
            format!("it is not compressed: the rule takes {}", rule.words()),
        ),
        (true, true) if policy.action == Action::Observe => (
            Outcome::Observes,
            format!("it is not compressed: the rule takes {}", rule.words()),
        ),
        (true, true) if rule.unless_incompressible => (
            Outcome::MayRefuse,
            format!(
                "it is not compressed: refused unless it would not shrink; the rule takes {}",
                rule.words()
            ),
        ),
        (true, true) => (
            Outcome::Refuses,
            format!("it is not compressed: the rule takes {}", rule.words()),
        ),
        (true, false) => (
            Outcome::MayRefuse,
            format!("refused unless its codec is of {}", rule.words()),
        ),
    };
    Some(Check {
        by: Party::Sizegate,
        what: format!("gate {}", gate.gate),
        size_bytes: record.uncompressed_bytes,
        limit_bytes: Some(rule.above_bytes),
        source: gate.source_text(),
        outcome,
        note,
    })
}

fn broker(ground: &Ground<'_>, record: &RecordSizes) -> Vec<Check> {
    let mut checks = Vec::new();
    let check = |what: &str, size, limit: Option<u64>, source: &str, note: &str| Check {
        by: Party::Broker,
        what: what.to_owned(),
        size_bytes: size,
        limit_bytes: limit,
        source: source.to_owned(),
        outcome: limit.map_or(Outcome::Unknown, |limit| over(size, limit)),
        note: note.to_owned(),
    };
    let sockets = ground
        .brokers
        .iter()
        .filter_map(|broker| broker.socket_request_max_bytes.as_ref());
    if let Some(socket) = sockets.min_by_key(|setting| setting.value()) {
        checks.push(check(
            "socket.request.max.bytes",
            record.batch_bytes,
            Some(socket.value()),
            socket.source().text(),
            "above it the broker closes the connection without an answer",
        ));
    }
    let Some(topic) = ground.topic else {
        let note = "the topic's settings are not known here";
        checks.push(check(
            MAX_MESSAGE_BYTES,
            record.batch_bytes,
            None,
            "not known",
            note,
        ));
        return checks;
    };
    let text = |setting: &Setting<u64>| (Some(setting.value()), setting.source().text());
    let unknown = (None, "not known");
    let (limit, source) = topic.max_message_bytes.as_ref().map_or(unknown, text);
    checks.push(check(
        MAX_MESSAGE_BYTES,
        record.batch_bytes,
        limit,
        source,
        "the batch as it arrives, compressed: code 10, no text",
    ));
    if let Some(limit) = limit {
        checks.extend(stored(topic, record, limit));
    }
    let unpacked = topic.max_decompressed_message_bytes.as_ref();
    for (what, size, setting, note) in [
        (
            SEGMENT_BYTES,
            record.batch_bytes,
            topic.segment_bytes.as_ref(),
            "a batch must fit into one segment: code 18",
        ),
        (
            MAX_DECOMPRESSED_MESSAGE_BYTES,
            record.body_bytes,
            unpacked.filter(|_| record.is_compressed),
            "one record unpacked, in compressed batches only: code 87, no text",
        ),
    ] {
        if let Some((limit, source)) = setting.map(text) {
            checks.push(check(what, size, limit, source, note));
        }
    }
    checks
}

/// A topic that rewrites batches judges them again as it stores them.
fn stored(topic: &TopicFacts, record: &RecordSizes, limit: u64) -> Option<Check> {
    let codec = topic.stored_codec()?;
    let (size, outcome, note) = if codec == Codec::None {
        (
            record.uncompressed_bytes,
            over(record.uncompressed_bytes, limit),
            "stored unpacked, whatever it travelled as: code 10, no text",
        )
    } else {
        // What does not compress grows a little: of 1 MiB of noise gzip makes some 300 bytes more.
        let most = record
            .uncompressed_bytes
            .saturating_add(record.uncompressed_bytes / 1000 + 64);
        let outcome = if most > limit {
            Outcome::MayRefuse
        } else {
            Outcome::Passes
        };
        (
            most,
            outcome,
            "rewritten with another codec: at most about this, and judged again",
        )
    };
    let word = match codec {
        Codec::None => "uncompressed",
        codec => codec.label(),
    };
    Some(Check {
        by: Party::Broker,
        what: format!("{MAX_MESSAGE_BYTES}, as stored"),
        size_bytes: size,
        limit_bytes: Some(limit),
        source: format!("{COMPRESSION_TYPE}={word}"),
        outcome,
        note: note.to_owned(),
    })
}

fn consumer(record: &RecordSizes) -> Check {
    let (limit, outcome, note) = if record.batch_bytes > LIBRDKAFKA_RECEIVE_BYTES {
        (
            LIBRDKAFKA_RECEIVE_BYTES,
            Outcome::MayRefuse,
            "librdkafka's receive.message.max.bytes is hard; Java's fetch settings are soft",
        )
    } else if record.batch_bytes > MAX_PARTITION_FETCH_BYTES {
        (
            MAX_PARTITION_FETCH_BYTES,
            Outcome::Memory,
            "soft since KIP-74: the first batch always comes whole, so readers need memory for all of it, unpacked too",
        )
    } else {
        (MAX_PARTITION_FETCH_BYTES, Outcome::Passes, "")
    };
    Check {
        by: Party::Consumer,
        what: if limit == LIBRDKAFKA_RECEIVE_BYTES {
            "receive.message.max.bytes"
        } else {
            "max.partition.fetch.bytes"
        }
        .to_owned(),
        size_bytes: record.batch_bytes,
        limit_bytes: Some(limit),
        source: "the client's default".to_owned(),
        outcome,
        note: note.to_owned(),
    }
}
