//! What a size is compared with, and what follows from it. Pure: knows no sockets and no tokio.

mod words;

pub(crate) use words::labelled;
pub use words::{Action, Codec, ErrorCode, Gate, Source};
