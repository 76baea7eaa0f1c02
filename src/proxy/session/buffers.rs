//! The worker's read buffers.
//!
//! Each worker thread owns a few. A session borrows one to read into and splits off what it passes on; once all
//! slices are gone, the same memory is read into again. A session returns its buffer as soon as nothing is left in
//! it, so that an idle session holds none; whoever keeps one longer accounts for [`BUFFER_BYTES`].

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use crate::net::Stream;

/// One buffer. Room for two reads, so that a frame which begins in one read and ends in the next stays in place.
pub(super) const BUFFER_BYTES: usize = 512 * 1024;
/// One read. Larger reads save system calls: 256 KiB halves the CPU time of 8 KiB on loopback.
pub(super) const READ_BYTES: usize = 256 * 1024;
/// One read when the budget is short: small enough that ten thousand sessions do not matter.
const SHORT_READ_BYTES: usize = 4 * 1024;

/// Room behind a large frame, so that its buffer can be given back when the frame is split off.
const SLACK_BYTES: usize = 4 * 1024;

/// Buffers kept by one worker.
const KEPT_BUFFERS: usize = 8;
/// A buffer that grew beyond this for one large frame is not kept.
pub(super) const LARGEST_KEPT_BYTES: usize = 2 * 1024 * 1024;

thread_local! {
    static BUFFERS: RefCell<Vec<BytesMut>> = const { RefCell::new(Vec::new()) };
}

/// Bytes of one read.
pub(super) const fn read_bytes(is_short: bool) -> usize {
    if is_short {
        SHORT_READ_BYTES
    } else {
        READ_BYTES
    }
}

/// An empty buffer with room for [`BUFFER_BYTES`] at least.
pub(super) fn borrow() -> BytesMut {
    lend(BUFFER_BYTES)
}

/// An empty buffer with room for a frame of `frame_bytes`, and for [`BUFFER_BYTES`] at least.
pub(super) fn borrow_for(frame_bytes: usize) -> BytesMut {
    lend(frame_bytes.saturating_add(SLACK_BYTES).max(BUFFER_BYTES))
}

fn lend(bytes: usize) -> BytesMut {
    BUFFERS.with_borrow_mut(|kept| {
        let free = kept
            .iter_mut()
            .rposition(|buffer| buffer.try_reclaim(bytes));
        free.map_or_else(|| BytesMut::with_capacity(bytes), |at| kept.swap_remove(at))
    })
}

/// Takes back a buffer that is empty. Slices of it may still be on their way.
pub(super) fn give_back(buffer: BytesMut) {
    BUFFERS.with_borrow_mut(|kept| {
        if kept.len() < KEPT_BUFFERS && buffer.capacity() <= LARGEST_KEPT_BYTES {
            kept.push(buffer);
        } else if let Some(oldest) = kept
            .first_mut()
            .filter(|_| buffer.capacity() <= LARGEST_KEPT_BYTES)
        {
            *oldest = buffer;
        }
    });
}

/// Reads at most `most` bytes to the end of `buffer`; 0 is the end of the stream.
pub(super) fn poll_read<R: AsyncRead + Unpin>(
    from: &mut R,
    cx: &mut Context<'_>,
    buffer: &mut BytesMut,
    most: usize,
) -> Poll<io::Result<usize>> {
    if buffer.capacity() == buffer.len() {
        buffer.reserve(most.min(READ_BYTES));
    }
    poll_read_buf(Pin::new(from), cx, &mut buffer.limit(most))
}

/// Reads what is there, at most `most` bytes; empty at the end of the stream.
pub(super) fn poll_read_chunk(
    from: &mut Stream,
    cx: &mut Context<'_>,
    most: usize,
) -> Poll<io::Result<Bytes>> {
    // Nothing is borrowed for nothing.
    ready!(from.poll_readable(cx))?;
    let mut buffer = borrow();
    let read = poll_read(from, cx, &mut buffer, most);
    let chunk = buffer.split().freeze();
    give_back(buffer);
    read.map_ok(|_| chunk)
}
