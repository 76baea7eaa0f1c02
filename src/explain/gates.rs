//! Every place on a record's way where a size is compared: whose, with which limit, from where, and the outcome.

use std::fmt;

use serde::Serialize;

use super::{DEFAULT_MAX_REQUEST_SIZE, Ground, Question, RecordSizes};
use crate::config::InsideLimit;
use crate::findings::{
    COMPRESSION_TYPE, MAX_DECOMPRESSED_MESSAGE_BYTES, MAX_MESSAGE_BYTES, SEGMENT_BYTES, Setting,
    SettingSource, TopicFacts,
};
use crate::policy::{
    Action, Codec, Gate, LIMITS, Learned, Limit, Source, TopicPolicy, grouped, labelled,
};

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

labelled! {
    /// What part a number plays for a limit.
    Role {
        /// The smallest: it holds.
        InForce = "in force",
        /// Holds too, and is not the smallest.
        Larger = "larger",
        /// Would hold if nothing stood over it.
        Overridden = "overridden",
        /// `batch_bytes: none`: only the broker compares it.
        BrokerOnly = "broker only",
        /// Set in `limits`, and the rule says `none`.
        Lifted = "lifted",
    }
}

/// A gate of ours with its limit in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GateLimit {
    /// The gate.
    pub gate: Gate,
    /// Bytes (of the gate `ratio` the ratio); `None`: no limit, or none that is known.
    pub limit_bytes: Option<u64>,
    /// Where it comes from.
    pub source: Option<Source>,
    /// The rule or the family member.
    pub name: Option<String>,
    /// Every number that it was chosen from.
    pub chain: Vec<Candidate>,
}

/// A number that a limit was chosen from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// What sets it.
    pub what: String,
    /// Bytes.
    pub bytes: u64,
    /// What part it plays.
    pub role: Role,
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

/// The limits in force: the batch gate's always, the others' where they are set.
pub(super) fn limits(
    question: &Question,
    ground: &Ground<'_>,
    policy: &TopicPolicy,
) -> Vec<GateLimit> {
    let learned = ground
        .topic
        .and_then(TopicFacts::batch_limit)
        .map(Learned::own);
    let of_member = |at: usize| (ground.batch_limit_of)(&policy.members.get(at)?.topic);
    let limit = policy.batch_limit(policy.tightest(learned, of_member));
    let frame = u64::from(ground.config.listener.frame_bytes);
    let mut limits = vec![
        batch(question, ground, policy, limit.as_ref()),
        GateLimit {
            gate: Gate::Frame,
            limit_bytes: Some(frame),
            source: Some(Source::Rule),
            name: None,
            chain: vec![Candidate {
                what: "listener.frame_bytes".to_owned(),
                bytes: frame,
                role: Role::InForce,
            }],
        },
    ];
    limits.extend(policy.inside_limits().iter().map(|limit| GateLimit {
        gate: limit.gate,
        limit_bytes: Some(limit.value),
        source: Some(limit.source),
        name: limit.name.as_deref().map(str::to_owned),
        chain: vec![Candidate {
            what: set_by(limit),
            bytes: limit.value,
            role: Role::InForce,
        }],
    }));
    let lifted = lifted(question, ground);
    let is_left = |limit: &GateLimit| {
        policy
            .inside_limits()
            .iter()
            .all(|set| set.gate != limit.gate)
    };
    limits.extend(lifted.into_iter().filter(is_left));
    limits
}

/// The gates at which `limits` sets a number and the topic's rule says that there is none.
fn lifted(question: &Question, ground: &Ground<'_>) -> Vec<GateLimit> {
    let Some(rule) = ground.policy.rule_for(&question.topic) else {
        return Vec::new();
    };
    let lifts = |gate| {
        rule.limits
            .inside()
            .any(|set| set == (gate, InsideLimit::None))
    };
    let defaults = ground.config.limits.inside();
    let lifted = defaults.filter(|(gate, _)| lifts(*gate));
    lifted
        .filter_map(|(gate, set)| {
            Some(GateLimit {
                gate,
                limit_bytes: None,
                source: Some(Source::Rule),
                name: Some(rule.name.clone()),
                chain: vec![Candidate {
                    what: format!("{} in limits", gate.limit_key()),
                    bytes: set.number()?,
                    role: Role::Lifted,
                }],
            })
        })
        .collect()
}

fn set_by(limit: &Limit) -> String {
    let name = limit.name.as_deref().unwrap_or_default();
    let key = limit.gate.limit_key();
    match limit.source {
        Source::Family => format!("the family's member {name}, less headroom"),
        _ if name == LIMITS => format!("{key} in limits"),
        _ => format!("{key} of rule \"{name}\""),
    }
}

/// The batch gate: the smallest of the configuration's number, the topic's own, and what its family leaves.
fn batch(
    question: &Question,
    ground: &Ground<'_>,
    policy: &TopicPolicy,
    limit: Option<&Limit>,
) -> GateLimit {
    let in_force = limit.map(|limit| limit.value);
    let mut chain = Vec::new();
    let holds = |bytes: u64| match in_force {
        Some(limit) if bytes <= limit => Role::InForce,
        _ => Role::Larger,
    };
    if let Some(set) = &policy.batch {
        chain.push(Candidate {
            what: set_by(set),
            bytes: set.value,
            role: holds(set.value),
        });
    }
    if let Some(topic) = ground.topic {
        let role = |bytes| {
            if policy.inherits {
                holds(bytes)
            } else {
                Role::BrokerOnly
            }
        };
        for (key, below, setting) in [
            (
                MAX_MESSAGE_BYTES,
                "message.max.bytes",
                &topic.max_message_bytes,
            ),
            (SEGMENT_BYTES, "log.segment.bytes", &topic.segment_bytes),
        ] {
            let steps = setting.iter().flat_map(Setting::steps).enumerate();
            chain.extend(steps.map(|(at, step)| {
                let key = match step.source {
                    SettingSource::Topic => key,
                    _ => below,
                };
                Candidate {
                    what: format!("{key} ({})", step.source.text()),
                    bytes: step.value,
                    role: if at == 0 {
                        role(step.value)
                    } else {
                        Role::Overridden
                    },
                }
            }));
        }
    }
    chain.extend(policy.members.iter().filter_map(|member| {
        let own = (ground.batch_limit_of)(&member.topic)?;
        let bytes = own.saturating_sub(member.headroom_bytes);
        Some(Candidate {
            what: format!(
                "{}, a member of the family of {}: {} less {} of headroom",
                member.topic,
                question.topic,
                grouped(own),
                grouped(member.headroom_bytes)
            ),
            bytes,
            role: holds(bytes),
        })
    }));
    let (source, name) = match limit {
        Some(limit) => (Some(limit.source), limit.name.as_deref()),
        None if policy.inherits => (None, None),
        // `batch_bytes: none`.
        None => {
            let rule = ground.policy.rule_for(&question.topic);
            let rule = rule.filter(|rule| rule.limits.batch_bytes.is_some());
            let name = rule.map_or(LIMITS, |rule| &rule.name);
            (Some(Source::Rule), Some(name))
        }
    };
    GateLimit {
        gate: Gate::Batch,
        limit_bytes: in_force,
        source,
        name: name.map(str::to_owned),
        chain,
    }
}

/// Every comparison on the record's way, in order.
pub(super) fn checks(
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
    let source = match (&gate.source, &gate.name) {
        (_, _) if gate.gate == Gate::Frame => "listener.frame_bytes".to_owned(),
        (Some(source), Some(name)) => format!("{source} {name}"),
        (Some(source), None) => source.label().to_owned(),
        (None, _) => "not known".to_owned(),
    };
    Some(Check {
        by: Party::Sizegate,
        what: format!("gate {}", gate.gate),
        size_bytes: size,
        limit_bytes: limit,
        source,
        outcome,
        note: note.to_owned(),
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
    if let Some(segment) = &topic.segment_bytes {
        let (limit, source) = text(segment);
        let note = "a batch must fit into one segment: code 18";
        checks.push(check(
            SEGMENT_BYTES,
            record.batch_bytes,
            limit,
            source,
            note,
        ));
    }
    if let Some(setting) = topic
        .max_decompressed_message_bytes
        .as_ref()
        .filter(|_| record.is_compressed)
    {
        let (limit, source) = text(setting);
        let note = "one record unpacked, in compressed batches only: code 87, no text";
        checks.push(check(
            MAX_DECOMPRESSED_MESSAGE_BYTES,
            record.body_bytes,
            limit,
            source,
            note,
        ));
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
