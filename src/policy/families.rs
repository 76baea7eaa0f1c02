//! Lowers limits for the sake of families.

mod arithmetic;
pub mod opening;
mod tickets;

pub use arithmetic::{Gap, Holder, Reach, gaps};
pub use tickets::Written;
