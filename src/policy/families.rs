//! Lowers limits for the sake of families.

mod arithmetic;
pub mod opening;

pub use arithmetic::{Gap, Holder, Reach, gaps};
