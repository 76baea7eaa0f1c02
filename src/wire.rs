//! The only place that touches a peer's raw bytes.
//!
//! Every read names its field, every declared count is compared with the bytes that remain, and nothing is
//! allocated by a declared size.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

mod reader;

pub use reader::{Malformed, Reader, Reason};
