//! Queues bytes for one peer, in order, with the budget they hold. What need not be looked at is in a pipe, and was
//! never here.
//!
//! A client that reads nothing: what waits for it is bounded, because its session reads no more requests while more than
//! `session::BACKLOG_BYTES` wait, and no more of the broker's response before they are written. After
//! `listener.idle_timeout` without a byte taken, its connection is closed.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite as _;
use tokio::net::TcpStream;

use super::budget::Lease;
use crate::count::Count as _;
use crate::net::{Pipe, Stream, lend_pipe};

/// Pieces written with one system call.
const VECTORED: usize = 64;

/// A queue of pieces. Empty, it holds no memory but its own few words, no pipe and no budget.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    /// Before all pieces: a pipe is filled only where nothing is queued.
    pipe: Option<Pipe>,
    pieces: VecDeque<Bytes>,
    /// What is queued, in the pipe and in pieces.
    bytes: usize,
    /// More follows at once behind what is queued.
    is_more: bool,
    /// Bytes that left, in all.
    written: u64,
    /// Everything is written, but a TLS stream may still hold some of it.
    is_flushing: bool,
    lease: Lease,
    /// Bytes whose memory is somebody else's account, until the queue is empty.
    paid_bytes: usize,
}

impl WriteQueue {
    /// Nothing waits to be written.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty() && self.pipe.is_none() && !self.is_flushing
    }

    /// Bytes that wait to be written.
    pub(super) const fn len(&self) -> usize {
        self.bytes
    }

    /// Bytes that left, in all.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// Bytes that wait and for which no budget is held.
    pub(super) fn uncovered_bytes(&self) -> usize {
        self.bytes
            .saturating_sub(self.lease.bytes())
            .saturating_sub(self.paid_bytes)
    }

    /// Appends a piece.
    pub(super) fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes.increase_by(piece.len());
            self.pieces.push_back(piece);
        }
    }

    /// Appends a piece whose memory is paid for already, and given back with the piece.
    pub(super) fn push_paid(&mut self, piece: Bytes) {
        self.paid_bytes.increase_by(piece.len());
        self.push(piece);
    }

    /// Budget for what is queued: given back when everything is written, at once if nothing is queued.
    pub(super) fn hold(&mut self, lease: Lease) {
        if !self.is_empty() {
            self.lease.join(lease);
        }
    }

    /// Whether more follows at once behind what is queued: then it may leave together with that.
    pub(super) const fn set_more(&mut self, is_more: bool) {
        self.is_more = is_more;
    }

    /// Fills the queue with what `from` has, at most `most` bytes, without reading it: 0 is the end of the stream. `None`:
    /// something is queued already, or there is no pipe for it.
    pub(super) fn poll_fill(
        &mut self,
        from: &TcpStream,
        most: usize,
        cx: &mut Context<'_>,
    ) -> Option<Poll<io::Result<usize>>> {
        if !self.is_empty() {
            return None;
        }
        let mut pipe = lend_pipe()?;
        let filled = pipe.poll_fill(from, most, cx);
        if pipe.is_empty() {
            pipe.give_back();
        } else {
            self.bytes.increase_by(pipe.len());
            self.pipe = Some(pipe);
        }
        Some(filled)
    }

    fn poll_drain(&mut self, to: &Stream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (Some(pipe), Some(to)) = (&mut self.pipe, to.plain()) else {
            return Poll::Ready(Ok(()));
        };
        let is_more = self.is_more || !self.pieces.is_empty();
        while !pipe.is_empty() {
            let written = ready!(pipe.poll_drain(to, is_more, cx))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.bytes.decrease_by(written);
            self.written.increase_by(written as u64);
        }
        if let Some(pipe) = self.pipe.take() {
            pipe.give_back();
        }
        Poll::Ready(Ok(()))
    }

    /// Writes until the queue is empty or the peer takes no more.
    pub(super) fn poll_write(
        &mut self,
        to: &mut Stream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(to, cx))?;
        while !self.pieces.is_empty() {
            let written = match self.pieces.front() {
                Some(single) if self.pieces.len() == 1 && self.is_more => {
                    ready!(to.poll_write_more(cx, single))?
                }
                Some(single) if self.pieces.len() == 1 => {
                    ready!(Pin::new(&mut *to).poll_write(cx, single))?
                }
                _ => {
                    let several = &*self.pieces.make_contiguous();
                    let mut slices = [IoSlice::new(&[]); VECTORED];
                    let count = several.len().min(VECTORED);
                    for (slice, piece) in slices.iter_mut().zip(several) {
                        *slice = IoSlice::new(piece);
                    }
                    ready!(
                        Pin::new(&mut *to)
                            .poll_write_vectored(cx, slices.get(..count).unwrap_or_default())
                    )?
                }
            };
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
            self.is_flushing = true;
        }
        ready!(Pin::new(&mut *to).poll_flush(cx))?;
        self.is_flushing = false;
        if self.pieces.capacity() > VECTORED {
            self.pieces = VecDeque::new();
        }
        self.lease = Lease::default();
        self.paid_bytes = 0;
        Poll::Ready(Ok(()))
    }

    fn advance(&mut self, mut written: usize) {
        self.bytes.decrease_by(written);
        self.written.increase_by(written as u64);
        while let Some(front) = self.pieces.front_mut() {
            if written < front.len() {
                front.advance(written);
                return;
            }
            written.decrease_by(front.len());
            self.pieces.pop_front();
        }
    }
}
