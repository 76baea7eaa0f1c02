//! A broker that answers at once and keeps nothing: the other end of every measured path.
//!
//! Invariant: it does as little as a broker can, so that what is measured is the way to it. One thread per worker,
//! one large buffer per thread, and one write for all that one read brought: a write for each response wakes the client
//! for each, and the wake-ups drown what is measured (direct at 1 KiB × 8: 57 k instead of 290 k requests/s).

pub mod control;
mod fetch;
mod inbound;
mod produce;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use mio::event::Event;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};

use inbound::Inbound;

/// Measured on the copy loops of the same kind: larger is no faster, 64 KiB is slower on large frames.
const READ_BYTES: usize = 256 << 10;

const WAKER: Token = Token(usize::MAX);

/// A running sink. Its threads end with the process.
pub struct Sink {
    address: SocketAddr,
    counts: Arc<Counts>,
}

/// What all workers together did.
#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    connections: AtomicI64,
}

impl Sink {
    /// Listens on `address` and serves it with `workers` threads.
    pub fn start(address: SocketAddr, workers: usize) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let counts = Arc::new(Counts::default());
        let mut hands = Vec::new();
        for n in 0..workers {
            let poll = Poll::new()?;
            let waker = Waker::new(poll.registry(), WAKER)?;
            let (sender, receiver) = mpsc::channel();
            let mut worker = Worker {
                poll,
                receiver,
                connections: Vec::new(),
                free: Vec::new(),
                port: address.port(),
                counts: Arc::clone(&counts),
            };
            thread::Builder::new()
                .name(format!("sink-{n}"))
                .spawn(move || worker.run())?;
            hands.push((sender, waker));
        }
        thread::Builder::new()
            .name("sink-accept".into())
            .spawn(move || deal(&listener, &hands))?;
        Ok(Self { address, counts })
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Requests read since the start.
    pub fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Connections open now.
    pub fn connections(&self) -> i64 {
        self.counts.connections.load(Ordering::Relaxed)
    }
}

/// Gives connections to the workers in turn: few connections must not meet on one thread.
fn deal(listener: &TcpListener, hands: &[(mpsc::Sender<TcpStream>, Waker)]) {
    for (sender, waker) in hands.iter().cycle() {
        let accepted = listener.accept().and_then(|(stream, _)| {
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            Ok(TcpStream::from_std(stream))
        });
        match accepted {
            Ok(stream) => {
                if sender.send(stream).is_err() || waker.wake().is_err() {
                    return;
                }
            }
            Err(error) => eprintln!("sink: accept: {error}"),
        }
    }
}

struct Connection {
    stream: TcpStream,
    inbound: Inbound,
    out: Vec<u8>,
    /// Bytes of `out` that have left.
    sent: usize,
}

struct Worker {
    poll: Poll,
    receiver: mpsc::Receiver<TcpStream>,
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    port: u16,
    counts: Arc<Counts>,
}

impl Worker {
    fn run(&mut self) {
        let mut events = Events::with_capacity(256);
        let mut buffer = vec![0; READ_BYTES];
        loop {
            match self.poll.poll(&mut events, None) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => panic!("sink: poll: {error}"),
            }
            for event in &events {
                if event.token() == WAKER {
                    self.welcome();
                } else {
                    self.serve(event, &mut buffer);
                }
            }
        }
    }

    fn welcome(&mut self) {
        while let Ok(mut stream) = self.receiver.try_recv() {
            let slot = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let interest = Interest::READABLE | Interest::WRITABLE;
            if let Err(error) = self
                .poll
                .registry()
                .register(&mut stream, Token(slot), interest)
            {
                eprintln!("sink: register: {error}");
                self.free.push(slot);
                continue;
            }
            self.counts.connections.fetch_add(1, Ordering::Relaxed);
            self.connections[slot] = Some(Connection {
                stream,
                inbound: Inbound::new(),
                out: Vec::new(),
                sent: 0,
            });
        }
    }

    fn serve(&mut self, event: &Event, buffer: &mut [u8]) {
        let slot = event.token().0;
        let Some(connection) = &mut self.connections[slot] else {
            return;
        };
        let before = connection.inbound.requests();
        let is_open = connection.serve(buffer, self.port, event.is_read_closed());
        let read = connection.inbound.requests() - before;
        self.counts.requests.fetch_add(read, Ordering::Relaxed);
        if !is_open {
            self.connections[slot] = None;
            self.free.push(slot);
            self.counts.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Connection {
    /// Reads and answers what there is. Whether the connection stays.
    fn serve(&mut self, buffer: &mut [u8], port: u16, is_ending: bool) -> bool {
        loop {
            let read = match self.stream.read(buffer) {
                Ok(0) => return false,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return self.flush(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => return false,
            };
            if self
                .inbound
                .feed(&buffer[..read], port, &mut self.out)
                .is_err()
                || !self.flush()
            {
                return false;
            }
            // A short read emptied the socket; what comes now makes a new event (epoll(7)). Not so an end that came
            // with the data.
            if read < buffer.len() && !is_ending {
                return true;
            }
        }
    }

    fn flush(&mut self) -> bool {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
        self.out.clear();
        self.sent = 0;
        true
    }
}
