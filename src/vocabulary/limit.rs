//! A measured size, and the number that it may not exceed.

use std::sync::Arc;

use super::{Gate, Source};

/// A measured size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// Exactly so many bytes.
    Exact(u64),
    /// At least so many: measuring stopped there.
    AtLeast(u64),
}

impl Size {
    /// The number, whichever it is.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Exact(bytes) | Self::AtLeast(bytes) => bytes,
        }
    }
}

/// A number that a size may not exceed, and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Which size.
    pub gate: Gate,
    /// Bytes; strictly more is a violation. In a violation of the gate `ratio`: the uncompressed bytes it allows.
    pub value: u64,
    /// Where it comes from.
    pub source: Source,
    /// The rule's name, or `limits`, where the source is [`Source::Rule`]; the member where it is
    /// [`Source::Family`].
    pub name: Option<Arc<str>>,
    /// What `families.headroom` did to the number: taken off the member's own where the source is
    /// [`Source::Family`]; else added, because the topic has the limits of its main topic.
    pub headroom_bytes: u64,
    /// What sets the member's number, where the source is [`Source::Family`] and it is not the member's own limit at
    /// its broker.
    pub member_limit: Option<MemberLimit>,
}

/// What keeps a family's member small, other than its broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MemberLimit {
    /// A rule of ours, or `limits`.
    Rule(Arc<str>),
    /// The producer that writes it: its `max.request.size`.
    Writer,
}

/// The name of the `limits` section, where a rule's would stand.
pub const LIMITS: &str = "limits";
