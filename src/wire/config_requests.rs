//! CreateTopics 0–7, AlterConfigs 0–2 and IncrementalAlterConfigs 0–1 as a layout over their own bytes: which topic or
//! broker each entry is for, what it does to the configs that can be governed, and where it stands, so that a request
//! can be spliced without some of its entries.
//!
//! Invariant: of configs that nobody governs nothing is remembered, and nothing is allocated by a declared count.

use std::ops::Range;

use super::splice::{Piece, Pieces};
use super::{Malformed, Reader, Reason, api};

/// Entries of one request, and governed configs in them, together; a controller takes 10,000 at most
/// (`MAX_RECORDS_PER_USER_OP`).
pub const MOST_ENTRIES: usize = 32 * 1024;

/// `ConfigResource.Type.TOPIC`
pub const RESOURCE_TOPIC: i8 = 2;
/// `ConfigResource.Type.BROKER`
pub const RESOURCE_BROKER: i8 = 4;

/// `AlterConfigOp.OpType`
const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

/// Which of the three.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Topics come into being; what is not given is inherited.
    Create,
    /// All overrides of a resource are replaced: what is not given is inherited again.
    Replace,
    /// Some overrides change.
    Change,
}

impl Kind {
    /// The kind of a request in a version that is read here.
    pub fn of(api_key: i16, version: i16) -> Option<Self> {
        let kind = match api_key {
            api::CREATE_TOPICS => Self::Create,
            api::ALTER_CONFIGS => Self::Replace,
            api::INCREMENTAL_ALTER_CONFIGS => Self::Change,
            _ => return None,
        };
        let highest = api::highest_version(api_key)?;
        (0..=highest).contains(&version).then_some(kind)
    }

    /// From its first flexible version on arrays are compact and sections end in tagged fields.
    pub const fn is_flexible(self, version: i16) -> bool {
        match self {
            Self::Create => version >= 5,
            Self::Replace => version >= 2,
            Self::Change => version >= 1,
        }
    }
}

/// A config that can be governed, by the name that a topic or a broker has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// `max.message.bytes`; of a broker `message.max.bytes`.
    MaxMessageBytes,
    /// `segment.bytes`; of a broker `log.segment.bytes`.
    SegmentBytes,
    /// `internal.segment.bytes`, from Kafka 4.1: where it is set it stands over `segment.bytes`.
    InternalSegmentBytes,
    /// `compression.type`
    CompressionType,
    /// `retention.ms` of a topic.
    RetentionMs,
    /// `segment.ms` of a topic.
    SegmentMs,
    /// `cleanup.policy` of a topic.
    CleanupPolicy,
}

impl Key {
    fn of(resource_type: i8, name: &[u8]) -> Option<Self> {
        match (resource_type, name) {
            (RESOURCE_TOPIC, b"max.message.bytes") | (RESOURCE_BROKER, b"message.max.bytes") => {
                Some(Self::MaxMessageBytes)
            }
            (RESOURCE_TOPIC, b"segment.bytes") | (RESOURCE_BROKER, b"log.segment.bytes") => {
                Some(Self::SegmentBytes)
            }
            (RESOURCE_TOPIC, b"internal.segment.bytes") => Some(Self::InternalSegmentBytes),
            (RESOURCE_TOPIC | RESOURCE_BROKER, b"compression.type") => Some(Self::CompressionType),
            (RESOURCE_TOPIC, b"retention.ms") => Some(Self::RetentionMs),
            (RESOURCE_TOPIC, b"segment.ms") => Some(Self::SegmentMs),
            (RESOURCE_TOPIC, b"cleanup.policy") => Some(Self::CleanupPolicy),
            _ => None,
        }
    }
}

/// What a request does to one config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// It gets this value.
    Set(Range<usize>),
    /// Its override goes away: DELETE, or a null value.
    Delete,
    /// APPEND, which brokers take for lists alone: these are added to what is in force.
    Append(Range<usize>),
    /// SUBTRACT, for lists alone: these are taken from what is in force.
    Subtract(Range<usize>),
    /// What is no operation: the broker refuses it.
    Other,
}

/// One topic or broker of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// `resource_type`; [`RESOURCE_TOPIC`] in CreateTopics.
    pub resource_type: i8,
    /// The bytes of its name.
    pub name: Range<usize>,
    /// The whole entry.
    entry: Range<usize>,
    /// Its governed configs, in [`Layout::configs`].
    configs: Range<usize>,
}

/// Where everything stands in one request frame.
#[derive(Debug)]
pub struct Layout {
    /// Which request.
    pub kind: Kind,
    version: i16,
    /// The topics or brokers, in their order.
    pub resources: Vec<Resource>,
    configs: Vec<(Key, Operation)>,
    /// Where the count of resources begins.
    resources_at: usize,
    /// What follows them, the request's tagged fields included; what may stand behind is ignored, as the broker does.
    rest: Range<usize>,
}

impl Layout {
    /// Reads a whole frame, length prefix included.
    ///
    /// # Errors
    /// [`Malformed`] where Kafka itself would close the connection, and where there are more than [`MOST_ENTRIES`].
    pub fn read(frame: &[u8], kind: Kind, version: i16) -> Result<Self, Malformed> {
        let flexible = kind.is_flexible(version);
        let r = &mut Reader::new(frame);
        r.take(api::HEAD_BYTES, "request_header")?;
        api::client_id(r)?;
        if flexible {
            r.skip_tags("request_header_tags")?;
        }
        let mut layout = Self {
            kind,
            version,
            resources: Vec::new(),
            configs: Vec::new(),
            resources_at: r.position(),
            rest: 0..0,
        };
        for _ in 0..count(r, flexible, "resources")? {
            layout.read_resource(r, flexible)?;
            if layout.resources.len().saturating_add(layout.configs.len()) > MOST_ENTRIES {
                return Err(Malformed::new("resources", Reason::TooLong));
            }
        }
        let rest_at = r.position();
        if kind == Kind::Create {
            r.int32("timeout_ms")?;
        }
        if kind != Kind::Create || version >= 1 {
            r.int8("validate_only")?;
        }
        if flexible {
            r.skip_tags("request_tags")?;
        }
        layout.rest = rest_at..r.position();
        Ok(layout)
    }

    fn read_resource(&mut self, r: &mut Reader<'_>, flexible: bool) -> Result<(), Malformed> {
        let entry_at = r.position();
        let resource_type = match self.kind {
            Kind::Create => RESOURCE_TOPIC,
            Kind::Replace | Kind::Change => r.int8("resource_type")?,
        };
        let name = r
            .string(flexible, "name")?
            .ok_or(Malformed::new("name", Reason::NegativeLength))?;
        let name = r.position().saturating_sub(name.len())..r.position();
        if self.kind == Kind::Create {
            pass_assignments(r, flexible)?;
        }
        let first = self.configs.len();
        for _ in 0..count(r, flexible, "configs")? {
            if let Some(config) = read_config(r, self.kind, resource_type, flexible)? {
                self.configs.push(config);
            }
        }
        if flexible {
            r.skip_tags("resource_tags")?;
        }
        self.resources.push(Resource {
            resource_type,
            name,
            entry: entry_at..r.position(),
            configs: first..self.configs.len(),
        });
        Ok(())
    }

    /// What a resource's entry does to the governed configs, in its order.
    pub fn configs_of(&self, resource: &Resource) -> &[(Key, Operation)] {
        self.configs
            .get(resource.configs.clone())
            .unwrap_or_default()
    }

    /// The request with only these resources, spliced: ranges of the original frame and what is new between them.
    pub fn splice(&self, kept: &[usize]) -> Vec<Piece> {
        let flexible = self.kind.is_flexible(self.version);
        let mut pieces = Pieces::default();
        pieces.original(api::PREFIX_BYTES..self.resources_at);
        pieces.made(|w| w.count(flexible, kept.len()));
        for resource in kept.iter().filter_map(|at| self.resources.get(*at)) {
            pieces.original(resource.entry.clone());
        }
        pieces.original(self.rest.clone());
        pieces.finish()
    }
}

/// A count that must be there.
fn count(r: &mut Reader<'_>, flexible: bool, field: &'static str) -> Result<usize, Malformed> {
    r.count(flexible, field)?
        .ok_or(Malformed::new(field, Reason::NegativeLength))
}

/// Partitions, replication factor, and where replicas are to be.
fn pass_assignments(r: &mut Reader<'_>, flexible: bool) -> Result<(), Malformed> {
    r.int32("num_partitions")?;
    r.int16("replication_factor")?;
    for _ in 0..count(r, flexible, "assignments")? {
        r.int32("partition_index")?;
        for _ in 0..count(r, flexible, "broker_ids")? {
            r.int32("broker_id")?;
        }
        if flexible {
            r.skip_tags("assignment_tags")?;
        }
    }
    Ok(())
}

/// One config of an entry; `None`: nobody governs it.
fn read_config(
    r: &mut Reader<'_>,
    kind: Kind,
    resource_type: i8,
    flexible: bool,
) -> Result<Option<(Key, Operation)>, Malformed> {
    let name = r
        .string(flexible, "config_name")?
        .ok_or(Malformed::new("config_name", Reason::NegativeLength))?;
    let operation = match kind {
        Kind::Change => r.int8("config_operation")?,
        Kind::Create | Kind::Replace => SET,
    };
    let value = r
        .string(flexible, "config_value")?
        .map(|value| r.position().saturating_sub(value.len())..r.position());
    if flexible {
        r.skip_tags("config_tags")?;
    }
    let operation = match (operation, value) {
        (SET, Some(value)) => Operation::Set(value),
        (SET | DELETE, _) => Operation::Delete,
        (APPEND, Some(value)) => Operation::Append(value),
        (SUBTRACT, Some(value)) => Operation::Subtract(value),
        _ => Operation::Other,
    };
    Ok(Key::of(resource_type, name).map(|key| (key, operation)))
}
