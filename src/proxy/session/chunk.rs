//! Reading into the worker's buffer.
//!
//! Each worker thread owns one buffer. What is read is split off as [`Bytes`]; once all slices are gone, the
//! next read takes the same memory again. A slice that stays (a peer that takes no more bytes) keeps the whole
//! buffer, which is why [`CHUNK_BYTES`] is charged for it.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

/// The worker's buffer. Larger reads save system calls: 256 KiB halves the CPU time of 8 KiB on loopback.
pub const CHUNK_BYTES: usize = 256 * 1024;
/// A read when the budget is short: small enough that ten thousand sessions do not matter.
const SMALL_CHUNK_BYTES: usize = 4 * 1024;

thread_local! {
    static CHUNK: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

/// Reads what is there, at most a chunk; empty at the end of the stream.
pub fn poll_read_chunk<R: AsyncRead + Unpin>(
    from: &mut R,
    cx: &mut Context<'_>,
    is_short: bool,
) -> Poll<io::Result<Bytes>> {
    CHUNK.with_borrow_mut(|chunk| {
        chunk.reserve(CHUNK_BYTES);
        let most = if is_short {
            SMALL_CHUNK_BYTES
        } else {
            CHUNK_BYTES
        };
        ready!(poll_read_buf(
            Pin::new(from),
            cx,
            &mut (&mut *chunk).limit(most)
        ))?;
        Poll::Ready(Ok(chunk.split().freeze()))
    })
}

/// Reads at most `need` bytes to the end of `frame`; 0 is the end of the stream.
pub fn poll_read_rest<R: AsyncRead + Unpin>(
    from: &mut R,
    cx: &mut Context<'_>,
    frame: &mut BytesMut,
    need: usize,
) -> Poll<io::Result<usize>> {
    if frame.capacity() == frame.len() {
        frame.reserve(need.min(CHUNK_BYTES));
    }
    poll_read_buf(Pin::new(from), cx, &mut frame.limit(need))
}
