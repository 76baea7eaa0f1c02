//! One record of a batch, by its place and its sizes.

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
