//! The worker's pipes: what need not be looked at goes from one socket to another inside the kernel (splice(2)).
//!
//! Each worker thread keeps a few. Who moves bytes borrows one and gives it back as soon as it is empty, so that an idle
//! connection holds none. Invariant: a pipe with bytes in it is never given back: dropping it closes it, and they are
//! gone with it. Where the system has no splice, or no pipe of a useful size to give, none is lent, and bytes are copied.

use std::io;
use std::task::{Context, Poll};

use tokio::net::TcpStream;

/// What a pipe is asked to hold: through pipes of 64 KiB frames of 256 KiB cost a third more.
#[cfg(target_os = "linux")]
const PIPE_BYTES: usize = 1024 * 1024;
/// A pipe that holds less is not worth its system calls. (Beyond `pipe-user-pages-soft` a user's pipes are smaller.)
#[cfg(target_os = "linux")]
const LEAST_BYTES: usize = 64 * 1024;
/// Pipes kept by one worker.
#[cfg(target_os = "linux")]
const KEPT_PIPES: usize = 8;

/// A pipe, and how many bytes are in it.
#[derive(Debug)]
pub struct Pipe {
    #[cfg(target_os = "linux")]
    ends: linux::Ends,
    bytes: usize,
}

impl Pipe {
    /// Bytes in it.
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Nothing is in it.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

#[cfg(target_os = "linux")]
pub use linux::lend;
#[cfg(target_os = "linux")]
pub(super) use linux::poll_send_more;

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::{Cell, RefCell};
    use std::os::fd::{AsFd, OwnedFd};
    use std::task::ready;
    use std::time::{Duration, Instant};

    use rustix::net::{SendFlags, send};
    use rustix::pipe::{
        PipeFlags, SpliceFlags, fcntl_getpipe_size, fcntl_setpipe_size, pipe_with, splice,
    };
    use tokio::io::Interest;

    use super::{Context, KEPT_PIPES, LEAST_BYTES, PIPE_BYTES, Pipe, Poll, TcpStream, io};
    use crate::count::Count as _;

    /// After a pipe was refused, none is asked for in this time.
    const REFUSED: Duration = Duration::from_secs(1);

    #[derive(Debug)]
    pub(super) struct Ends {
        reader: OwnedFd,
        writer: OwnedFd,
    }

    thread_local! {
        static KEPT: RefCell<Vec<Pipe>> = const { RefCell::new(Vec::new()) };
        static REFUSED_AT: Cell<Option<Instant>> = const { Cell::new(None) };
    }

    /// An empty pipe, if one is to be had.
    pub fn lend() -> Option<Pipe> {
        if let Some(kept) = KEPT.with_borrow_mut(Vec::pop) {
            return Some(kept);
        }
        if REFUSED_AT
            .get()
            .is_some_and(|refused| refused.elapsed() < REFUSED)
        {
            return None;
        }
        let made = make();
        REFUSED_AT.set(made.is_none().then(Instant::now));
        made
    }

    fn make() -> Option<Pipe> {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).ok()?;
        // Refused, it stays as large as it is.
        let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
        let granted = fcntl_getpipe_size(&writer).ok()?;
        (granted >= LEAST_BYTES).then_some(Pipe {
            ends: Ends { reader, writer },
            bytes: 0,
        })
    }

    impl Pipe {
        /// Takes it back, if it is empty.
        pub fn give_back(self) {
            KEPT.with_borrow_mut(|kept| {
                if self.is_empty() && kept.len() < KEPT_PIPES {
                    kept.push(self);
                }
            });
        }

        /// Fills this pipe, which is empty, with what `from` has: at most `most` bytes. 0 is the end of the stream.
        pub fn poll_fill(
            &mut self,
            from: &TcpStream,
            most: usize,
            cx: &mut Context<'_>,
        ) -> Poll<io::Result<usize>> {
            loop {
                ready!(from.poll_read_ready(cx))?;
                let ends = (from, &self.ends.writer);
                let filled = move_bytes(from, Interest::READABLE, ends, most, FLAGS);
                if let Some(filled) = filled? {
                    self.bytes.increase_by(filled);
                    return Poll::Ready(Ok(filled));
                }
            }
        }

        /// Gives `to` as much as it takes. `is_more`: more follows at once, and may leave together with it.
        pub fn poll_drain(
            &mut self,
            to: &TcpStream,
            is_more: bool,
            cx: &mut Context<'_>,
        ) -> Poll<io::Result<usize>> {
            loop {
                ready!(to.poll_write_ready(cx))?;
                let flags = match is_more {
                    true => FLAGS.union(SpliceFlags::MORE),
                    false => FLAGS,
                };
                let ends = (&self.ends.reader, to);
                let drained = move_bytes(to, Interest::WRITABLE, ends, self.bytes, flags);
                if let Some(drained) = drained? {
                    self.bytes.decrease_by(drained);
                    return Poll::Ready(Ok(drained));
                }
            }
        }
    }

    const FLAGS: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);

    /// Writes what is to leave together with what is drained next.
    pub(in crate::net) fn poll_send_more(
        to: &TcpStream,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(to.poll_write_ready(cx))?;
            let sent = once(to, Interest::WRITABLE, || send(to, bytes, SendFlags::MORE));
            if let Some(sent) = sent? {
                return Poll::Ready(Ok(sent));
            }
        }
    }

    fn move_bytes(
        socket: &TcpStream,
        interest: Interest,
        (from, to): (impl AsFd, impl AsFd),
        most: usize,
        flags: SpliceFlags,
    ) -> io::Result<Option<usize>> {
        once(socket, interest, || {
            splice(from, None, to, None, most, flags)
        })
    }

    /// `None`: the socket was not ready after all.
    fn once(
        socket: &TcpStream,
        interest: Interest,
        act: impl FnOnce() -> rustix::io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        match socket.try_io(interest, || Ok(act()?)) {
            Ok(moved) => Ok(Some(moved)),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            },
        }
    }
}

/// None: this system has no splice.
#[cfg(not(target_os = "linux"))]
pub fn lend() -> Option<Pipe> {
    None
}

#[cfg(not(target_os = "linux"))]
impl Pipe {
    /// There is none.
    pub fn give_back(self) {}

    /// There is none.
    pub fn poll_fill(
        &mut self,
        _: &TcpStream,
        _: usize,
        _: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }

    /// There is none.
    pub fn poll_drain(
        &mut self,
        _: &TcpStream,
        _: bool,
        _: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}
