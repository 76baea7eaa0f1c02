//! A record batch and its records as they stand in bytes. Reads, never allocates.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

mod header;

pub use header::{BATCH_HEADER_BYTES, BatchHeader};
