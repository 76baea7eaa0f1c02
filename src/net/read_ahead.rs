//! The socket of a TLS stream, read in large pieces: rustls asks for 4 KiB at a time, which would be four system calls
//! and more for each of its records.
//!
//! Invariant: a connection holds a buffer only while it has bytes in it that TLS has not taken yet. An idle one holds
//! none; the worker's thread keeps a few for all its connections.

use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// One read: two TLS records (RFC 8446, section 5.1: 16 KiB each) and what surrounds them. It is also what a connection
/// whose client sends and whose session does not read holds, so it is not larger.
const READ_BYTES: usize = 33 * 1024;

/// Buffers kept by one thread.
const KEPT: usize = 4;

thread_local! {
    static BUFFERS: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A socket, and what was read from it ahead of time.
#[derive(Debug)]
pub struct ReadAhead {
    tcp: TcpStream,
    ahead: Option<Ahead>,
}

#[derive(Debug)]
struct Ahead {
    buffer: Box<[u8]>,
    /// Read and not taken.
    left: Range<usize>,
}

impl ReadAhead {
    pub(super) const fn new(tcp: TcpStream) -> Self {
        Self { tcp, ahead: None }
    }

    /// The socket underneath.
    pub(super) const fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Something to take, or `None` at the end of the peer's bytes.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<&mut Ahead>>> {
        if self.ahead.is_none() {
            let mut buffer = borrow();
            let mut read = ReadBuf::new(&mut buffer);
            let polled = Pin::new(&mut self.tcp).poll_read(cx, &mut read);
            let came = read.filled().len();
            if came == 0 {
                give_back(buffer);
                return polled.map_ok(|()| None);
            }
            self.ahead = Some(Ahead {
                buffer,
                left: 0..came,
            });
        }
        Poll::Ready(Ok(self.ahead.as_mut()))
    }
}

impl AsyncRead for ReadAhead {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(ahead) = ready!(this.poll_fill(cx))? else {
            return Poll::Ready(Ok(()));
        };
        let here = ahead.left.len().min(buf.remaining());
        let taken = ahead.left.start..ahead.left.start.saturating_add(here);
        buf.put_slice(ahead.buffer.get(taken.clone()).unwrap_or_default());
        ahead.left.start = taken.end;
        if ahead.left.is_empty()
            && let Some(Ahead { buffer, .. }) = this.ahead.take()
        {
            give_back(buffer);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ReadAhead {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}

fn borrow() -> Box<[u8]> {
    BUFFERS
        .with_borrow_mut(Vec::pop)
        .unwrap_or_else(|| vec![0; READ_BYTES].into())
}

fn give_back(buffer: Box<[u8]>) {
    BUFFERS.with_borrow_mut(|buffers| {
        if buffers.len() < KEPT {
            buffers.push(buffer);
        }
    });
}
