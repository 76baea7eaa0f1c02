//! Tells who would refuse a record of given sizes first, and why: the client, sizegate, the broker, or nobody but the
//! consumer's memory. Pure: `sizegate explain` and `POST /api/v1/explain` show the same.
//!
//! Invariant: sizes are Kafka's own arithmetic, exact for what was asked; what is not known is said to be unknown and
//! is never a pass.

mod checks;
mod clients;
mod limits;
mod offloaded;
mod record;
mod text;
mod triage;

use serde::{Deserialize, Serialize};

pub use checks::{Check, Outcome, Party};
pub use limits::{Candidate, GateLimit, Role};
pub use record::EstimatedRecord;
pub use triage::{Advice, State};

pub use crate::vocabulary::DEFAULT_MAX_REQUEST_SIZE;

use crate::config::Config;
use crate::findings::{BrokerFacts, TopicFacts, Unseen};
use crate::policy::{Framework, Library, Policy};
use crate::vocabulary::Action;

/// What is asked: a topic, and the sizes of a record; without sizes only the limits are explained.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The topic.
    pub topic: String,
    /// Bytes of the value; absent: null.
    pub value_bytes: Option<u64>,
    /// Bytes of the key; absent: null.
    pub key_bytes: Option<u64>,
    /// Bytes of all header names and values together.
    pub headers_bytes: Option<u64>,
    /// How many headers share them; absent: one.
    pub headers: Option<u32>,
    /// The batch as it travels after compression, its 61-byte header included; absent: it is not compressed.
    pub compressed_bytes: Option<u64>,
    /// The producer's `max.request.size`, or its like in another library; absent: the library's default.
    pub max_request_size: Option<u64>,
    /// A Java producer's `buffer.memory`; absent: 33,554,432.
    pub buffer_memory: Option<u64>,
    /// The client library, by its name here; absent: java.
    pub client: Option<String>,
    /// The producer's `client.id`, which travels in each request; absent: the library's default.
    pub client_id: Option<String>,
    /// Records of these sizes in the batch; absent: 1.
    pub records: Option<u32>,
}

/// Why a question cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadQuestion {
    /// No topic is named.
    #[error("topic is empty: name one")]
    NoTopic,
    /// No record can have this size.
    #[error("{0} is more than {max}: no record is that large", max = i32::MAX)]
    TooLarge(&'static str),
    /// A batch has at least one record, and its header takes 61 bytes.
    #[error("{0}")]
    Impossible(&'static str),
    /// A library whose limits are not known here.
    #[error("client {0} is not known here: give one of {known}", known = client_names().join(", "))]
    UnknownClient(String),
    /// The cluster has no topic of this name.
    #[error("the cluster has no topic {0}")]
    UnknownTopic(String),
}

/// The names of the libraries whose limits are known, and of frameworks, which configure Java's.
pub fn client_names() -> Vec<&'static str> {
    let libraries = clients::KNOWN.iter().map(|library| library.label());
    let frameworks = Framework::ALL.iter().map(|framework| framework.label());
    libraries.chain(frameworks).collect()
}

impl Question {
    /// The client library that is asked about.
    pub fn library(&self) -> Library {
        let known = self.client.as_deref().and_then(Library::from_label);
        known.unwrap_or(Library::Java)
    }

    /// The framework that is asked about, or that the client id tells: its producer is Java's.
    pub fn framework(&self) -> Option<Framework> {
        let named = self.client.as_deref().and_then(Framework::from_label);
        named.or_else(|| self.client_id.as_deref().and_then(Framework::of))
    }

    /// Sizes that a record can have.
    ///
    /// # Errors
    /// What is impossible about them.
    pub fn check(&self) -> Result<(), BadQuestion> {
        if self.topic.is_empty() {
            return Err(BadQuestion::NoTopic);
        }
        for (name, bytes) in [
            ("value_bytes", self.value_bytes),
            ("key_bytes", self.key_bytes),
            ("headers_bytes", self.headers_bytes),
            ("compressed_bytes", self.compressed_bytes),
            ("max_request_size", self.max_request_size),
            ("buffer_memory", self.buffer_memory),
        ] {
            if bytes.is_some_and(|bytes| bytes > i32::MAX.unsigned_abs().into()) {
                return Err(BadQuestion::TooLarge(name));
            }
        }
        if let Some(client) = &self.client {
            let library = Library::from_label(client);
            let is_known = library.is_some_and(|library| clients::KNOWN.contains(&library))
                || Framework::from_label(client).is_some();
            if !is_known {
                return Err(BadQuestion::UnknownClient(client.clone()));
            }
        }
        if self.headers == Some(0) && self.headers_bytes.is_some_and(|bytes| bytes > 0) {
            return Err(BadQuestion::Impossible(
                "headers is 0: headers_bytes are the bytes of at least one",
            ));
        }
        if self.records == Some(0) {
            return Err(BadQuestion::Impossible(
                "records is 0: a batch has at least one",
            ));
        }
        if self
            .compressed_bytes
            .is_some_and(|bytes| bytes < record::BATCH_HEADER_BYTES)
        {
            return Err(BadQuestion::Impossible(
                "compressed_bytes is below 61: it is the whole batch as it travels, its header included",
            ));
        }
        Ok(())
    }

    /// Sizes are given.
    pub fn has_sizes(&self) -> bool {
        self.value_bytes.is_some()
            || self.key_bytes.is_some()
            || self.headers_bytes.is_some()
            || self.headers.is_some()
            || self.compressed_bytes.is_some()
    }
}

/// What is known to answer with.
pub struct Facts<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// Compiled from it, with its families.
    pub policy: &'a Policy,
    /// The topic's settings, as far as they are known.
    pub topic: Option<&'a TopicFacts>,
    /// The brokers' settings; empty where they are not known.
    pub brokers: &'a [BrokerFacts],
    /// The largest batch that the broker takes for another topic, if it is known.
    pub batch_limit_of: &'a dyn Fn(&str) -> Option<u64>,
    /// What could not be read.
    pub unseen: Vec<Unseen>,
}

/// The response.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// The topic.
    pub topic: String,
    /// The rule that speaks for it.
    pub rule: Option<String>,
    /// Rules for the topic that are for some clients only: they are left out here.
    pub rules_for_some_clients: Vec<String>,
    /// What happens above a limit; `observe` where the mode says so.
    pub action: Action,
    /// The limits in force, each with what it was chosen from.
    pub limits: Vec<GateLimit>,
    /// The record, in all sizes that anyone compares.
    pub record: Option<EstimatedRecord>,
    /// The record as it travels with a ticket in its value's place; `None`: its value is not offloaded.
    pub after_offload: Option<EstimatedRecord>,
    /// Records of the batch whose values are offloaded; `None`: none.
    pub offloaded_records: Option<u32>,
    /// Who compares what, in the order of the record's way.
    pub checks: Vec<Check>,
    /// Nobody refuses it; `None` without sizes.
    pub passes: Option<bool>,
    /// Who refuses it first.
    pub refused_by: Option<Party>,
    /// The response in a sentence or two; empty without sizes.
    pub verdict: String,
    /// What to do, in the order of triage.
    pub remedy: Vec<Advice>,
    /// What could not be read.
    pub unseen: Vec<Unseen>,
}

/// Answers.
///
/// # Errors
/// The sizes are impossible.
pub fn explain(question: &Question, ground: &Facts<'_>) -> Result<Explanation, BadQuestion> {
    question.check()?;
    let policy = ground.policy.for_topic(&question.topic);
    let limits = limits::in_force(question, ground, &policy);
    let record = question.has_sizes().then(|| EstimatedRecord::of(question));
    let then = record
        .as_ref()
        .and_then(|record| offloaded::travels(question, ground, &policy, &limits, record));
    let after = then.as_ref().map(|then| (&then.question, &then.record));
    let checks = record
        .as_ref()
        .map(|record| checks::on_the_way(question, ground, &policy, &limits, record, after))
        .unwrap_or_default();
    let first = checks
        .iter()
        .find(|check| check.outcome == Outcome::Refuses);
    let verdict = match &record {
        Some(record) => text::verdict(question, record, &checks),
        None => String::new(),
    };
    let remedy = match &record {
        Some(record) => triage::steps(question, ground, &policy, &limits, record, &checks),
        None => Vec::new(),
    };
    Ok(Explanation {
        topic: question.topic.clone(),
        rule: ground
            .policy
            .rule_for(&question.topic)
            .map(|rule| rule.name.clone()),
        rules_for_some_clients: ground
            .policy
            .rules_for_some_clients(&question.topic)
            .map(|rule| rule.name.clone())
            .collect(),
        action: policy.action,
        passes: record.as_ref().map(|_| first.is_none()),
        refused_by: first.map(|check| check.by),
        limits,
        record,
        after_offload: then.as_ref().map(|then| then.record),
        offloaded_records: then.map(|then| then.offloaded),
        checks,
        verdict,
        remedy,
        unseen: ground.unseen.clone(),
    })
}

impl Explanation {
    /// For people.
    pub fn text(&self) -> String {
        text::whole(self)
    }
}
