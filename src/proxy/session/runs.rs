//! Opaque runs: bytes of which nobody needs to look at one. Between two plain sockets they go through a pipe and never
//! come here; else they are copied like everything else.
//!
//! What is opaque is known from lengths: of a Produce after its verdict (`requests/passing.rs`), of a response from what its
//! walker has yet to look at (`responses/runs.rs`). Invariant: a pipe is filled only where nothing is queued before it, and
//! what is queued behind it leaves after it (`WriteQueue`).

use std::io;
use std::task::{Context, Poll};

use crate::net::Stream;
use crate::proxy::write_queue::WriteQueue;

/// Fewer bytes of a request than this are copied: below, two system calls more cost as much as copying
/// (`benches/README.md`).
pub(super) const REQUEST_RUN_BYTES: usize = 64 * 1024;

/// The same of a response, which most often is here in one piece, still in the processor's cache: to read its head alone
/// costs more calls than it saves copying.
pub(in crate::proxy) const RESPONSE_RUN_BYTES: usize = 256 * 1024;

/// What is read where a run most likely follows: enough for the heads of a request or of a response. What is read beyond
/// them is copied, which costs nothing yet.
pub(super) const PEEK_BYTES: usize = 512;

/// A run when the budget is short: as little as makes its system calls worth while.
const SHORT_RUN_BYTES: usize = 64 * 1024;

/// Whether runs between these two may pass without being read.
pub(super) const fn may_pass(from: &Stream, to: &Stream) -> bool {
    cfg!(target_os = "linux") && from.plain().is_some() && to.plain().is_some()
}

/// Moves a part of a run, at most `most` bytes, from a stream into an empty queue: 0 is the end of the stream. `None`: it
/// has to be copied.
pub(super) fn poll_fill(
    from: &Stream,
    queue: &mut WriteQueue,
    most: usize,
    is_short: bool,
    cx: &mut Context<'_>,
) -> Option<Poll<io::Result<usize>>> {
    let most = match is_short {
        true => most.min(SHORT_RUN_BYTES),
        false => most,
    };
    queue.poll_fill(from.plain()?, most, cx)
}
