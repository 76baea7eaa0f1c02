//! What families do to limits, as [`arithmetic`] has it.

mod arithmetic;

pub use arithmetic::{Gap, Holder, Reach, gaps};
