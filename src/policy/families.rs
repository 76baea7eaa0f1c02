//! Lowers limits for the sake of families.

mod arithmetic;

pub use arithmetic::{Gap, Holder, Reach, gaps};
