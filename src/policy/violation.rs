//! A size over a limit, and what is known of the batch it was found in.

use crate::inspect::RecordAt;
use crate::vocabulary::{Codec, Limit, Size};

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
