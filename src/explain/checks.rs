//! Every place on a record's way where a size is compared: whose, with which limit, from where, and the outcome.

use serde::Serialize;

use super::clients::{BUFFER_MEMORY, DEFAULT_BUFFER_MEMORY, own_limit};
use super::limits::GateLimit;
use super::{EstimatedRecord, Facts, Question};
use crate::findings::{
    COMPRESSION_TYPE, MAX_DECOMPRESSED_MESSAGE_BYTES, MAX_MESSAGE_BYTES, SEGMENT_BYTES, Setting,
    TopicFacts,
};
use crate::policy::{Library, TopicPolicy};
use crate::text::grouped;
use crate::vocabulary::{Action, Codec, Gate, labelled};

/// What the Java consumer asks of one partition unless it says otherwise: soft.
const MAX_PARTITION_FETCH_BYTES: u64 = 1_048_576;

/// What librdkafka takes of one response unless it says otherwise (`receive.message.max.bytes`): hard.
const LIBRDKAFKA_RECEIVE_BYTES: u64 = 100_000_000;

/// The broker's limit of a whole request.
pub(super) const SOCKET_REQUEST_MAX_BYTES: &str = "socket.request.max.bytes";

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
    ground: &Facts<'_>,
    policy: &TopicPolicy,
    limits: &[GateLimit],
    record: &EstimatedRecord,
    after: Option<(&Question, &EstimatedRecord)>,
) -> Vec<Check> {
    let mut checks = client(question, record);
    for limit in limits {
        let came = ours(question, limit, policy, record);
        // With a ticket in the value's place every gate is asked again; only what came is compared with the frame's.
        let goes = after
            .filter(|_| limit.gate != Gate::Frame)
            .and_then(|(question, record)| ours(question, limit, policy, record));
        let is_over = |check: &Check| matches!(check.outcome, Outcome::Offloads | Outcome::Refuses);
        match goes.filter(is_over) {
            Some(over) => checks.push(Check {
                outcome: Outcome::Refuses,
                ..over
            }),
            None => checks.extend(came),
        }
    }
    let (question, record) = after.unwrap_or((question, record));
    checks.extend(broker(question, ground, record));
    checks.push(consumer(record));
    checks
}

/// What the producer compares before anything is sent.
fn client(question: &Question, record: &EstimatedRecord) -> Vec<Check> {
    let check = |what: &str, size, limit, source: &str, outcome, note: &str| Check {
        by: Party::Client,
        what: what.to_owned(),
        size_bytes: size,
        limit_bytes: Some(limit),
        source: source.to_owned(),
        outcome,
        note: note.to_owned(),
    };
    let library = question.library();
    let Some(own) = own_limit(library, record) else {
        return Vec::new();
    };
    let unsure = own.unsure_bytes.saturating_add(record.spread_bytes);
    let limit = question.max_request_size.unwrap_or(own.default_bytes);
    let source = |is_given: bool| if is_given { "as given" } else { own.default_of };
    let mut checks = vec![check(
        own.setting,
        own.size_bytes,
        limit,
        source(question.max_request_size.is_some()),
        over(own.size_bytes, limit, unsure),
        own.note,
    )];
    if library == Library::Java {
        let limit = question.buffer_memory.unwrap_or(DEFAULT_BUFFER_MEMORY);
        checks.push(check(
            BUFFER_MEMORY,
            record.estimate_bytes,
            limit,
            source(question.buffer_memory.is_some()),
            over(record.estimate_bytes, limit, record.spread_bytes),
            "the same estimate against all the memory that the producer keeps records in",
        ));
    }
    checks
}

/// `unsure`: the size may be smaller by so much.
fn over(size: u64, limit: u64, unsure: u64) -> Outcome {
    if size <= limit {
        Outcome::Passes
    } else if size.saturating_sub(unsure) <= limit {
        Outcome::MayRefuse
    } else {
        Outcome::Refuses
    }
}

/// A request has more in it than this batch: another client id, a transactional id, batches of other partitions.
const AROUND_BYTES: u64 = 1024;

/// Of what is compared with the whole request. Where the client id is given, this batch alone is exact.
fn over_with_request(question: &Question, record: &EstimatedRecord, limit: u64) -> Outcome {
    let spread = record.spread_bytes.saturating_mul(record.records.into());
    match over(record.request_bytes, limit, spread) {
        outcome if question.client_id.is_some() => outcome,
        Outcome::Refuses if record.least_request_bytes > limit => Outcome::Refuses,
        Outcome::Passes if record.request_bytes.saturating_add(AROUND_BYTES) <= limit => {
            Outcome::Passes
        }
        _ => Outcome::MayRefuse,
    }
}

/// Batches up to this size uncompressed have no ratio.
const RATIO_FROM_BYTES: u64 = 1 << 20;

/// The uncompressed bytes that a ratio allows a batch of these bytes on the wire, as the gate itself has it.
fn allowed_by_ratio(ratio: f64, batch_bytes: u64) -> u64 {
    ((ratio * batch_bytes as f64).floor() as u64).max(RATIO_FROM_BYTES)
}

/// A gate of ours; none where there is nothing to compare.
fn ours(
    question: &Question,
    gate: &GateLimit,
    policy: &TopicPolicy,
    record: &EstimatedRecord,
) -> Option<Check> {
    if gate.gate == Gate::Codec {
        return codec(gate, policy, record);
    }
    let of_batch = record.spread_bytes.saturating_mul(record.records.into());
    let on_wire = if record.is_compressed { 0 } else { of_batch };
    let (size, unsure, note) = match gate.gate {
        Gate::Batch => (
            record.batch_bytes,
            on_wire,
            "the batch as it travels, its header included",
        ),
        Gate::Frame => (
            record.request_bytes,
            on_wire,
            "the request with this batch alone; those of other partitions come on top",
        ),
        Gate::Uncompressed => (
            record.uncompressed_bytes,
            of_batch,
            "the batch uncompressed",
        ),
        Gate::Record => (
            record.record_bytes,
            record.spread_bytes,
            "one record as encoded, uncompressed",
        ),
        Gate::Estimate => (
            record.estimate_bytes,
            record.spread_bytes,
            "the Java producer's estimate",
        ),
        Gate::Key => (record.key_bytes.unwrap_or(0), 0, ""),
        Gate::Value => (record.value_bytes.unwrap_or(0), 0, ""),
        Gate::Headers => (record.headers_bytes, 0, ""),
        Gate::Ratio if !record.is_compressed => return None,
        Gate::Ratio => (record.uncompressed_bytes, of_batch, ""),
        Gate::Codec | Gate::Config => return None,
    };
    let limit = match (gate.gate, policy.inside.ratio) {
        (Gate::Ratio, Some(ratio)) => Some(allowed_by_ratio(ratio, record.batch_bytes)),
        _ => gate.limit_bytes,
    };
    let note = match (gate.gate, policy.inside.ratio) {
        (Gate::Ratio, Some(ratio)) => format!(
            "{ratio} times the {} bytes on the wire, and never less than {}",
            grouped(record.batch_bytes),
            grouped(RATIO_FROM_BYTES)
        ),
        _ => note.to_owned(),
    };
    let outcome = match limit {
        Some(limit) => {
            let outcome = match gate.gate {
                Gate::Frame => over_with_request(question, record, limit),
                _ => over(size, limit, unsure),
            };
            match (outcome, policy.action) {
                // The frame gate knows no topic's rule; in observe mode it passes what may be held.
                (Outcome::Refuses, Action::Observe) => Outcome::Observes,
                (Outcome::Refuses, Action::Offload) if gate.gate.is_mended_by_a_ticket() => {
                    Outcome::Offloads
                }
                (outcome, _) => outcome,
            }
        }
        None if gate.gate == Gate::Batch && policy.inherits => Outcome::Unknown,
        None => return None,
    };
    Some(Check {
        by: Party::Sizegate,
        what: format!("gate {}", gate.gate),
        size_bytes: size,
        limit_bytes: limit,
        source: gate.source_text(),
        outcome,
        note,
    })
}

/// Which codec a compressed batch has is not asked; an uncompressed one may be of what does not shrink.
fn codec(gate: &GateLimit, policy: &TopicPolicy, record: &EstimatedRecord) -> Option<Check> {
    let rule = policy.codecs.as_deref()?;
    let of_batch = record.spread_bytes.saturating_mul(record.records.into());
    let takes = rule.words();
    let plain = format!("it is not compressed: the rule takes {takes}");
    let size = over(record.uncompressed_bytes, rule.above_bytes, of_batch);
    let (outcome, note) = match size {
        Outcome::Passes => (
            size,
            "up to so much a batch may come as it likes".to_owned(),
        ),
        _ if record.is_compressed => (
            Outcome::MayRefuse,
            format!("refused unless its codec is of {takes}"),
        ),
        _ if rule.allows(Some(Codec::None)) => (Outcome::Passes, plain),
        Outcome::Refuses if policy.action == Action::Observe => (Outcome::Observes, plain),
        Outcome::Refuses if rule.unless_incompressible => (
            Outcome::MayRefuse,
            format!(
                "it is not compressed: refused unless it would not shrink; the rule takes {takes}"
            ),
        ),
        size => (size, plain),
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

fn broker(question: &Question, ground: &Facts<'_>, record: &EstimatedRecord) -> Vec<Check> {
    let mut checks = Vec::new();
    let of_batch = match record.is_compressed {
        true => 0,
        false => record.spread_bytes.saturating_mul(record.records.into()),
    };
    let check = |what: &str, size, limit: Option<u64>, source: &str, note: &str| Check {
        by: Party::Broker,
        what: what.to_owned(),
        size_bytes: size,
        limit_bytes: limit,
        source: source.to_owned(),
        outcome: limit.map_or(Outcome::Unknown, |limit| over(size, limit, of_batch)),
        note: note.to_owned(),
    };
    let sockets = ground
        .brokers
        .iter()
        .filter_map(|broker| broker.socket_request_max_bytes.as_ref());
    if let Some(socket) = sockets.min_by_key(|setting| setting.value()) {
        let note =
            "the whole request: above it the broker closes the connection without a response";
        checks.push(Check {
            outcome: over_with_request(question, record, socket.value()),
            ..check(
                SOCKET_REQUEST_MAX_BYTES,
                record.request_bytes,
                Some(socket.value()),
                socket.source().text(),
                note,
            )
        });
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
        "the batch as it arrives, compressed: code 10, no error message",
    ));
    if let Some(limit) = limit {
        checks.extend(stored(topic, record, limit));
    }
    let decompressed = topic.max_decompressed_message_bytes.as_ref();
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
            decompressed.filter(|_| record.is_compressed),
            "one record uncompressed, in compressed batches only: code 87, no error message",
        ),
    ] {
        if let Some((limit, source)) = setting.map(text) {
            checks.push(check(what, size, limit, source, note));
        }
    }
    checks
}

/// A topic that rewrites batches judges them again as it stores them.
fn stored(topic: &TopicFacts, record: &EstimatedRecord, limit: u64) -> Option<Check> {
    let codec = topic.stored_codec()?;
    let (size, outcome, note) = if codec == Codec::None {
        (
            record.uncompressed_bytes,
            over(record.uncompressed_bytes, limit, 0),
            "stored uncompressed, whatever it travelled as: code 10, no error message",
        )
    } else {
        // What does not compress grows a little: of 1 MiB of noise gzip makes some 300 bytes more.
        let most = record
            .uncompressed_bytes
            .saturating_add(record.uncompressed_bytes / 1000)
            .saturating_add(64);
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

fn consumer(record: &EstimatedRecord) -> Check {
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
            "soft since KIP-74: the first batch always comes whole, so readers need memory for all of it, uncompressed too",
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
