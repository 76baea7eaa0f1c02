//! A size over a limit, and what is known of the batch it was found in.

use std::sync::Arc;

use crate::vocabulary::{Codec, Gate, Source};

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

/// One record of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordAt {
    /// Counted from 0, as `record_errors` counts.
    pub index: u32,
    /// Its encoded size.
    pub record_bytes: u64,
    /// Its key's length; never its content.
    pub key_bytes: u64,
    /// All header names and values.
    pub headers_bytes: u64,
}

/// What is known of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchFacts {
    /// As it travels, its header included.
    pub wire_bytes: u64,
    /// 61 + records after decompression, where it was measured.
    pub uncompressed: Option<Size>,
    /// `None` for an id that no codec has.
    pub codec: Option<Codec>,
    /// As declared.
    pub records: i32,
    /// The largest record, where all were measured.
    pub largest: Option<RecordAt>,
    /// The largest record of those that were looked at; where not all were, there may be larger ones. Of the last of them the
    /// size may be the declared one.
    pub seen: Option<RecordAt>,
}

/// A size over a limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The limit.
    pub limit: Limit,
    /// The size.
    pub size: Size,
    /// The record at fault, where one is.
    pub record: Option<RecordAt>,
    /// Why the size could not be measured: nothing passes a limit because it cannot be read.
    pub unreadable: Option<&'static str>,
}
