//! Holds a cluster's settings of sizes, as read by `cluster::survey` or as a running proxy knows it. Data only.
//!
//! Invariant: a setting's chain is never empty, and its first step is in force.

use std::sync::Arc;
use std::time::Duration;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::vocabulary::{Codec, CompressionType, Source, labelled};

labelled! {
    /// Where a value of a config comes from (`DescribeConfigsResponse.ConfigSource`).
    SettingSource {
        /// The topic's own override.
        Topic = "topic",
        /// One broker's dynamic config.
        Node = "node",
        /// The dynamic default of all brokers.
        Cluster = "cluster",
        /// `server.properties`.
        Static = "static",
        /// Kafka's built-in default.
        Default = "default",
        /// What the topic inherits, by whichever of the four above: a running proxy does not ask.
        Broker = "broker",
    }
}

impl SettingSource {
    /// The source for people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Topic => "the topic's own",
            Self::Node => "one broker's dynamic config",
            Self::Cluster => "dynamic default of all brokers",
            Self::Static => "server.properties",
            Self::Default => "Kafka's default",
            Self::Broker => "inherited from the broker",
        }
    }

    /// The protocol's number; `None` for what no topic or broker config bears.
    pub const fn from_protocol(source: i8) -> Option<Self> {
        match source {
            1 => Some(Self::Topic),
            2 => Some(Self::Node),
            3 => Some(Self::Cluster),
            4 => Some(Self::Static),
            5 => Some(Self::Default),
            _ => None,
        }
    }
}

/// A value and where it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Step<T> {
    /// The value.
    pub value: T,
    /// Where it comes from.
    pub source: SettingSource,
}

/// A config with all values it has at once: the first is in force, each of the others would be without those
/// before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting<T> {
    first: Step<T>,
    rest: Vec<Step<T>>,
}

impl<T: Copy> Setting<T> {
    /// A setting; `None` without a step.
    pub fn new(steps: Vec<Step<T>>) -> Option<Self> {
        let mut steps = steps.into_iter();
        let first = steps.next()?;
        Some(Self {
            first,
            rest: steps.collect(),
        })
    }

    /// One value without anything under it.
    pub const fn of(value: T, source: SettingSource) -> Self {
        Self {
            first: Step { value, source },
            rest: Vec::new(),
        }
    }

    /// The value in force.
    pub const fn value(&self) -> T {
        self.first.value
    }

    /// Where the value in force comes from.
    pub const fn source(&self) -> SettingSource {
        self.first.source
    }

    /// All steps, the one in force first.
    pub fn steps(&self) -> impl Iterator<Item = &Step<T>> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    /// The topic overrides what it would inherit.
    pub fn is_override(&self) -> bool {
        self.first.source == SettingSource::Topic
    }

    /// What holds without the topic's override, where it is known.
    pub fn inherited(&self) -> Option<&Step<T>> {
        self.steps()
            .find(|step| step.source != SettingSource::Topic)
    }
}

impl<T: Copy + Serialize> Serialize for Setting<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Setting", 3)?;
        object.serialize_field("value", &self.value())?;
        object.serialize_field("source", &self.source())?;
        let chain: Vec<&Step<T>> = self.steps().collect();
        object.serialize_field("chain", &chain)?;
        object.end()
    }
}

/// A topic and its configs of sizes. `None`: not readable, or the broker has no such config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicFacts {
    /// Its name.
    pub name: Arc<str>,
    /// Kafka's own, by Kafka's own word.
    pub is_internal: bool,
    /// `max.message.bytes`, over the broker's `message.max.bytes`.
    pub max_message_bytes: Option<Setting<u64>>,
    /// `segment.bytes`, over the broker's `log.segment.bytes`.
    pub segment_bytes: Option<Setting<u64>>,
    /// `max.decompressed.message.bytes`, from Kafka 4.4.
    pub max_decompressed_message_bytes: Option<Setting<u64>>,
    /// `compression.type`
    pub compression_type: Option<Setting<CompressionType>>,
    /// How long its records are kept.
    pub kept: Kept,
}

/// How long a topic keeps its records. `None`: not readable, or nobody asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kept {
    /// `retention.ms`; −1 is for ever.
    pub retention_ms: Option<Setting<i64>>,
    /// `segment.ms`: a segment goes when its youngest record may.
    pub segment_ms: Option<Setting<i64>>,
    /// `cleanup.policy`
    pub cleanup: Option<Setting<Cleanup>>,
}

/// What becomes of old records: any of the two, both, or (since Kafka 4.0) neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cleanup {
    /// `delete`: what is older than `retention.ms` goes.
    pub deletes: bool,
    /// `compact`: of one key the last record stays.
    pub compacts: bool,
}

impl Cleanup {
    /// Reads the value of `cleanup.policy`.
    pub fn read(value: &str) -> Option<Self> {
        let mut cleanup = Self {
            deletes: false,
            compacts: false,
        };
        for word in value
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            match word {
                "delete" => cleanup.deletes = true,
                "compact" => cleanup.compacts = true,
                _ => return None,
            }
        }
        Some(cleanup)
    }
}

impl Kept {
    /// How long a record may lie in the topic; `None`: that is not known.
    pub fn longest(&self) -> Option<Stay> {
        let cleanup = self.cleanup.as_ref()?.value();
        let retention = self.retention_ms.as_ref()?.value();
        if !cleanup.deletes {
            return Some(Stay::ForEver);
        }
        let Ok(retention) = u64::try_from(retention) else {
            return Some(Stay::ForEver);
        };
        let segment = self.segment_ms.as_ref()?.value();
        let ms = retention.saturating_add(u64::try_from(segment).unwrap_or(0));
        Some(Stay::AtMost(Duration::from_millis(ms)))
    }
}

/// How long something may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stay {
    /// So long.
    AtMost(Duration),
    /// Without end.
    ForEver,
}

impl TopicFacts {
    /// A topic of which only the name is known.
    pub fn unknown(name: Arc<str>, is_internal: bool) -> Self {
        Self {
            name,
            is_internal,
            max_message_bytes: None,
            segment_bytes: None,
            max_decompressed_message_bytes: None,
            compression_type: None,
            kept: Kept::default(),
        }
    }

    /// The largest batch the broker takes, and the source that says so, as `cluster::TopicLimit::batch_limit`.
    pub fn batch_limit(&self) -> Option<(u64, Source)> {
        let declared = self.max_message_bytes.as_ref().map(|setting| {
            let source = if setting.is_override() {
                Source::Topic
            } else {
                Source::Broker
            };
            (setting.value(), source)
        });
        let segment = self
            .segment_bytes
            .as_ref()
            .map(|setting| (setting.value(), Source::Segment));
        declared
            .into_iter()
            .chain(segment)
            .min_by_key(|(bytes, _)| *bytes)
    }

    /// The codec that the topic's batches are rewritten with; `None`: they are stored as they come, or it is not
    /// known.
    pub fn stored_codec(&self) -> Option<Codec> {
        match self.compression_type.as_ref()?.value() {
            CompressionType::Producer => None,
            CompressionType::Stored(codec) => Some(codec),
        }
    }
}

/// A broker and its configs of sizes. `None`: not readable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BrokerFacts {
    /// Its id.
    pub node_id: i32,
    /// `message.max.bytes`: the default of a topic's `max.message.bytes`.
    pub message_max_bytes: Option<Setting<u64>>,
    /// `log.segment.bytes`: the default of a topic's `segment.bytes`.
    pub log_segment_bytes: Option<Setting<u64>>,
    /// `compression.type`: the default of a topic's.
    pub compression_type: Option<Setting<CompressionType>>,
    /// `socket.request.max.bytes`
    pub socket_request_max_bytes: Option<Setting<u64>>,
    /// `replica.fetch.max.bytes`
    pub replica_fetch_max_bytes: Option<Setting<u64>>,
    /// `replica.fetch.response.max.bytes`
    pub replica_fetch_response_max_bytes: Option<Setting<u64>>,
    /// `fetch.max.bytes`: the most that the broker returns to one fetch.
    pub fetch_max_bytes: Option<Setting<u64>>,
}

/// Something that could not be read, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unseen {
    /// What, and why.
    pub what: String,
    /// The ACL to grant, where a right is missing.
    pub grant: Option<String>,
}

/// What was read of a cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterFacts {
    /// By id.
    pub brokers: Vec<BrokerFacts>,
    /// By name.
    pub topics: Vec<TopicFacts>,
    /// Topics asked for by name that the cluster does not have.
    pub absent: Vec<String>,
    /// Topics asked for by name that we may not see.
    pub hidden: Vec<String>,
    /// What could not be read.
    pub unseen: Vec<Unseen>,
}

impl ClusterFacts {
    /// A topic by its name.
    pub fn topic(&self, name: &str) -> Option<&TopicFacts> {
        let at = self
            .topics
            .binary_search_by(|topic| (*topic.name).cmp(name));
        at.ok().and_then(|at| self.topics.get(at))
    }
}
