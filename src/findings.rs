//! Finds settings of the cluster that contradict each other, or the configuration. Pure.
//!
//! [`facts`] is what was read of the cluster; [`find`] compares it with the configuration, rule by rule;
//! [`plan`](align::plan) is what would align families. `check --cluster` and `align` print them.
//!
//! Invariant: every finding says where (topic, broker or rule), which values, where they come from, why it hurts, and
//! what to do; what could not be read is never taken for fine.

pub mod align;
mod brokers;
pub mod claims;
mod commands;
mod configured;
pub mod facts;
mod families;
pub mod governed;
mod ignored;
mod topics;

use std::collections::HashMap;

use serde::Serialize;

pub use commands::{Commands, Resource};
pub use configured::{Side, side_kind};
pub use facts::{
    BrokerFacts, Cleanup, ClusterFacts, Kept, Setting, SettingSource, Stay, Step, TopicFacts,
    Unseen,
};
pub use ignored::{Acknowledged, acknowledge};

use crate::config::Config;
use crate::policy::families::Written;
use crate::policy::{Learned, Limit, Policy, TopicPolicy};
use crate::vocabulary::{FindingRule, labelled};

/// Key of a topic's own limit.
pub const MAX_MESSAGE_BYTES: &str = "max.message.bytes";
/// Key of its segments' size.
pub const SEGMENT_BYTES: &str = "segment.bytes";
/// Key of its limit for a record after decompression.
pub const MAX_DECOMPRESSED_MESSAGE_BYTES: &str = "max.decompressed.message.bytes";
/// Key of how long its records are kept.
pub const RETENTION_MS: &str = "retention.ms";
/// Key of how long its segments are written to.
pub const SEGMENT_MS: &str = "segment.ms";
/// Key of what becomes of its old records.
pub const CLEANUP_POLICY: &str = "cleanup.policy";
/// Key of what its batches are stored with.
pub const COMPRESSION_TYPE: &str = "compression.type";

labelled! {
    /// How bad it is.
    Severity {
        /// Something that the limits promise to pass is refused, or blocks a partition.
        Error = "error",
        /// It works, and surprises.
        Warning = "warning",
    }
}

/// One thing that does not go together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What was compared.
    pub rule: FindingRule,
    /// The topics it is about; none where it is about brokers or a rule alone.
    pub topics: Vec<String>,
    /// The values that were compared.
    pub values: Vec<Value>,
    /// Why it hurts.
    pub why: String,
    /// What mends it: a command, or a change of the configuration.
    pub fix: String,
    /// What does it as well, or goes with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub also: Option<String>,
}

/// One value that was compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Value {
    /// Whose: a topic, `broker 1`, `rule orders`, `sizegate`.
    pub of: String,
    /// Its key.
    pub key: String,
    /// The value: a number of bytes, or a word.
    pub value: serde_json::Value,
    /// Where it comes from.
    pub source: String,
}

impl Value {
    fn new(
        of: impl Into<String>,
        key: &str,
        value: impl Into<serde_json::Value>,
        source: &str,
    ) -> Self {
        Self {
            of: of.into(),
            key: key.to_owned(),
            value: value.into(),
            source: source.to_owned(),
        }
    }

    fn setting(of: impl Into<String>, key: &str, setting: &Setting<u64>) -> Self {
        Self::new(of, key, setting.value(), setting.source().label())
    }

    fn limit(of: impl Into<String>, limit: &Limit) -> Self {
        let source = match &limit.name {
            Some(name) => format!("{} {name}", limit.source),
            None => limit.source.label().to_owned(),
        };
        let key = format!("{} limit", limit.gate);
        Self::new(of, &key, limit.value, &source)
    }
}

/// Everything that is compared.
#[derive(Debug)]
pub struct Comparison<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// Compiled from it, with the families among the cluster's topics.
    pub policy: Policy,
    /// What was read.
    pub facts: &'a ClusterFacts,
    commands: Commands,
    by_name: HashMap<&'a str, &'a TopicFacts>,
}

impl<'a> Comparison<'a> {
    /// Of a configuration with a cluster.
    ///
    /// # Errors
    /// The rules cannot be compiled.
    pub fn new(config: &'a Config, facts: &'a ClusterFacts) -> Result<Self, String> {
        let policy = Policy::compile(config)?;
        let named = facts.topics.iter().filter(|topic| !topic.is_internal);
        let related = policy.among(named.map(|topic| &topic.name));
        Ok(Self {
            config,
            policy: related.unwrap_or(policy),
            facts,
            commands: Commands::new(config),
            by_name: facts
                .topics
                .iter()
                .map(|topic| (&*topic.name, topic))
                .collect(),
        })
    }

    /// What was read of a topic.
    pub fn topic(&self, name: &str) -> Option<&'a TopicFacts> {
        self.by_name.get(name).copied()
    }

    /// The commands for this cluster.
    pub const fn commands(&self) -> &Commands {
        &self.commands
    }

    /// A topic's own limit at the broker.
    pub fn learned(&self, name: &str) -> Option<Learned> {
        self.topic(name)?.batch_limit().map(Learned::own)
    }

    /// The batch limit in force, families included.
    pub fn batch_limit(&self, policy: &TopicPolicy, name: &str) -> Option<Limit> {
        let of_member = |at: usize| {
            let member = policy.members.get(at)?;
            Some(self.topic(&member.topic)?.batch_limit()?.0)
        };
        policy.batch_limit(policy.tightest(self.learned(name), of_member))
    }

    /// The batch limit of a topic before its family's members are allowed for.
    pub fn own_batch_limit(&self, name: &str) -> Option<Limit> {
        self.policy.own(name).batch_limit(self.learned(name))
    }

    /// The same, and the broker's too where the configuration leaves batches to it.
    pub fn taken_batch_limit(&self, name: &str) -> Option<Limit> {
        let mut own = self.policy.own(name);
        own.inherits = true;
        own.batch_limit(self.learned(name))
    }

    /// The largest batch that a topic's families need it to take; `None`: it is nobody's retry or dead-letter topic.
    pub fn needed_by_families(&self, name: &str) -> Option<u64> {
        let families = self.policy.families();
        let needs = families
            .of_member(name)
            .filter_map(|family| self.needed_of_member(&family.main, name));
        needs.max()
    }

    /// The largest batch that a member must take of its main topic; `None`: the main topic's limit is not readable.
    pub fn needed_of_member(&self, main: &str, member: &str) -> Option<u64> {
        let limit = self.taken_batch_limit(main)?.value;
        let sent = match self.policy.written(main, member) {
            Written::Tickets { batch_bytes } => limit.min(batch_bytes),
            Written::AsStored | Written::Originals => limit,
        };
        Some(sent.saturating_add(self.policy.families().headroom_bytes()))
    }
}

/// Every finding, errors first, each kind by topic.
pub fn find(comparison: &Comparison<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    families::find(comparison, &mut found);
    topics::find(comparison, &mut found);
    brokers::find(comparison, &mut found);
    configured::find(comparison, &mut found);
    governed::find(comparison, &mut found);
    claims::find(comparison, &mut found);
    found.sort_by(|a, b| {
        let key = |finding: &Finding| (finding.severity, finding.rule);
        key(a).cmp(&key(b)).then_with(|| a.topics.cmp(&b.topics))
    });
    found
}
