//! One connection, plain or TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{client, server};

use super::own::Upstream;
#[cfg(target_os = "linux")]
use super::pipe;
use super::read_ahead::ReadAhead;

/// One connection, plain or TLS.
///
/// Reading: the end of the peer's bytes is `Ok` with nothing read, with or without a TLS `close_notify`. Many
/// Kafka clients close without one, and Kafka's length prefixes betray a cut stream anyway.
///
/// Writing: rustls may keep bytes that the socket did not take; [`AsyncWrite::poll_flush`] sends them.
#[derive(Debug)]
pub enum Stream {
    /// Plain TCP; to a broker with the mark of a connection of ours.
    Plain(TcpStream, Option<Upstream>),
    /// TLS, we are the client.
    Tls(Box<client::TlsStream<ReadAhead>>, Upstream),
    /// TLS, we are the server.
    TlsServer(Box<server::TlsStream<ReadAhead>>),
}

impl Stream {
    /// The socket underneath, for addresses and options.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp, _) => tcp,
            Self::Tls(tls, _) => tls.get_ref().0.tcp(),
            Self::TlsServer(tls) => tls.get_ref().0.tcp(),
        }
    }

    /// The socket, where what passes it is what is read and written here.
    pub const fn plain(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(tcp, _) => Some(tcp),
            Self::Tls(..) | Self::TlsServer(_) => None,
        }
    }

    /// Whether a read may find something; `Pending` sees to it that the task is woken. TLS has to be read to know.
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(tcp, _) => tcp.poll_read_ready(cx),
            Self::Tls(..) | Self::TlsServer(_) => Poll::Ready(Ok(())),
        }
    }

    /// As [`AsyncWrite::poll_write`]; more follows at once, and the system may let both leave together.
    pub fn poll_write_more(&mut self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        #[cfg(target_os = "linux")]
        if let Self::Plain(tcp, _) = self {
            return pipe::poll_send_more(tcp, cx, buf);
        }
        Pin::new(self).poll_write(cx, buf)
    }

    /// The name a client asked for in its TLS hello (SNI); `None` on other streams and without one.
    pub fn server_name(&self) -> Option<&str> {
        match self {
            Self::TlsServer(tls) => tls.get_ref().1.server_name(),
            Self::Plain(..) | Self::Tls(..) => None,
        }
    }
}

/// Runs an expression with `$inner` bound to the pinned stream in use.
macro_rules! each {
    ($stream:expr, $inner:ident => $body:expr) => {
        match $stream.get_mut() {
            Stream::Plain(tcp, _) => {
                let $inner = Pin::new(tcp);
                $body
            }
            Stream::Tls(tls, _) => {
                let $inner = Pin::new(tls.as_mut());
                $body
            }
            Stream::TlsServer(tls) => {
                let $inner = Pin::new(tls.as_mut());
                $body
            }
        }
    };
}

impl Stream {
    fn poll_read_once(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match ready!(each!(self, inner => inner.poll_read(cx, buf))) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        loop {
            let filled = buf.filled().len();
            let polled = Pin::new(&mut *this).poll_read_once(cx, buf);
            let came = buf.filled().len() > filled;
            let is_enough = matches!(this, Self::Plain(..)) || buf.remaining() == 0;
            match polled {
                // TLS gives a record (16 KiB) at a time: as many as there are.
                Poll::Ready(Ok(())) if came && !is_enough => {}
                // What is wrong is said when it is polled again.
                _ if filled > before => return Poll::Ready(Ok(())),
                polled => return polled,
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        each!(self, inner => inner.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self, inner => inner.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => inner.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self, inner => inner.poll_shutdown(cx))
    }
}
