//! Clients that send pre-built frames as fast as their depth allows, and check every response.
//!
//! Invariant: bounded. A run ends at its deadline, what is in flight is awaited, and silence of 10 s is an error.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::frames::{self, Ring, TOPIC, Version};

const SILENCE: Duration = Duration::from_secs(10);

/// What is read at once: many responses to Produce, a part of one to Fetch. Smaller reads would make the load, not the
/// proxy, the slowest.
const READ_BYTES: usize = 256 << 10;

/// What of a response is looked at.
const HEAD_BYTES: usize = 64;

/// What a run came to.
#[derive(Debug, Default, Clone)]
pub struct Outcome {
    /// Requests answered.
    pub requests: u64,
    /// Bytes of frames sent, prefixes included; with Fetch those of responses read.
    pub bytes: u64,
    /// From the start of the run to its last response.
    pub elapsed: Duration,
    /// From before the write to after the response's last byte, sorted; ns.
    pub latencies_ns: Vec<u64>,
}

impl Outcome {
    /// The latency that a share `q` of the requests stayed under; µs.
    pub fn latency_us(&self, q: f64) -> f64 {
        let last = self.latencies_ns.len().saturating_sub(1);
        let nth = (last as f64 * q).round() as usize;
        self.latencies_ns
            .get(nth)
            .map_or(f64::NAN, |ns| *ns as f64 / 1e3)
    }
}

/// Connected clients.
pub struct Clients(Vec<Client>);

impl Clients {
    /// Connects `count` clients; each says hello with ApiVersions, as real ones do.
    pub fn connect(address: SocketAddr, count: usize) -> io::Result<Self> {
        let connect = |_| {
            let mut client = Client::connect(address)?;
            client.hello()?;
            Ok(client)
        };
        (0..count).map(connect).collect::<io::Result<_>>().map(Self)
    }

    /// One client after the other, one request each, at `rate` requests a second over all of them.
    pub fn run_in_turn(&mut self, ring: &Ring, time: Duration, rate: u32) -> io::Result<Outcome> {
        let start = Instant::now();
        let mut outcome = Outcome::default();
        let count = self.0.len();
        while start.elapsed() < time {
            let due = Duration::from_secs(1) / rate * outcome.requests as u32;
            thread::sleep(due.saturating_sub(start.elapsed()));
            let client = &mut self.0[outcome.requests as usize % count];
            let began = Instant::now();
            client.take_turn(ring)?;
            outcome.latencies_ns.push(began.elapsed().as_nanos() as u64);
            outcome.bytes += ring.frame_bytes() as u64;
            outcome.requests += 1;
        }
        outcome.elapsed = start.elapsed();
        outcome.latencies_ns.sort_unstable();
        Ok(outcome)
    }

    /// All clients at once, each with `depth` requests in flight, for `time` or `max_requests` each.
    pub fn run(
        &mut self,
        ring: &Arc<Ring>,
        depth: usize,
        time: Duration,
        max_requests: u64,
    ) -> io::Result<Outcome> {
        let start = Instant::now();
        let outcomes = thread::scope(|scope| {
            let threads: Vec<_> = self
                .0
                .iter_mut()
                .map(|client| scope.spawn(|| client.run(ring, depth, start + time, max_requests)))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|_| Err(io::Error::other("panicked")))
                })
                .collect::<io::Result<Vec<_>>>()
        })?;
        let mut total = Outcome {
            elapsed: start.elapsed(),
            ..Outcome::default()
        };
        for outcome in outcomes {
            total.requests += outcome.requests;
            total.bytes += outcome.bytes;
            total.latencies_ns.extend(outcome.latencies_ns);
        }
        total.latencies_ns.sort_unstable();
        Ok(total)
    }
}

/// One connection.
pub struct Client {
    stream: TcpStream,
    /// Requests it has sent in its turns.
    turns: usize,
    /// The first bytes of the response in hand.
    head: Vec<u8>,
    /// Bytes of it still to come behind its head.
    left: usize,
    read: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE))?;
        stream.set_write_timeout(Some(SILENCE))?;
        Ok(Self {
            stream,
            turns: 0,
            head: Vec::new(),
            left: 0,
            // Of two thousand idle clients none reads.
            read: Vec::new(),
        })
    }

    /// ApiVersions and its response.
    pub fn hello(&mut self) -> io::Result<()> {
        self.ask(&frames::api_versions()).map(|_| ())
    }

    /// The next frame, and its response.
    fn take_turn(&mut self, ring: &Ring) -> io::Result<()> {
        let turn = self.turns % ring.count();
        let response = self.ask(ring.frames(turn, 1))?;
        self.turns += 1;
        check(&response, turn as i32, ring)
    }

    /// One frame, one response (without its length prefix).
    pub fn ask(&mut self, frame: &[u8]) -> io::Result<Vec<u8>> {
        self.ask_in_pieces([frame, &[]])
    }

    /// The same, of a frame in two pieces that are written at once.
    pub fn ask_in_pieces(&mut self, pieces: [&[u8]; 2]) -> io::Result<Vec<u8>> {
        let written = self.stream.write_vectored(&pieces.map(IoSlice::new))?;
        let of_first = written.min(pieces[0].len());
        self.stream.write_all(&pieces[0][of_first..])?;
        self.stream.write_all(&pieces[1][written - of_first..])?;
        self.response()
    }

    /// One frame; how long its response's first byte took, and the response.
    pub fn ask_for_first_byte(&mut self, frame: &[u8]) -> io::Result<(Duration, Vec<u8>)> {
        let began = Instant::now();
        self.stream.write_all(frame)?;
        self.stream.peek(&mut [0])?;
        let first = began.elapsed();
        Ok((first, self.response()?))
    }

    fn response(&mut self) -> io::Result<Vec<u8>> {
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix)?;
        let mut response = vec![0; u32::from_be_bytes(prefix) as usize];
        self.stream.read_exact(&mut response)?;
        Ok(response)
    }

    fn run(
        &mut self,
        ring: &Ring,
        depth: usize,
        deadline: Instant,
        max_requests: u64,
    ) -> io::Result<Outcome> {
        self.read.resize(READ_BYTES, 0);
        let mut outcome = Outcome::default();
        let mut sent_at = VecDeque::with_capacity(depth);
        let (mut next, mut expected) = (0, 0);
        let mut sent = 0;
        loop {
            let now = Instant::now();
            let wanted = (depth - sent_at.len()).min((max_requests - sent) as usize);
            if now < deadline && wanted > 0 {
                let slice = ring.frames(next, wanted);
                let count = slice.len() / ring.frame_bytes();
                sent_at.extend(std::iter::repeat_n(now, count));
                // One write each, as clients do: a proxy that waits for more must not find it.
                for frame in slice.chunks_exact(ring.frame_bytes()) {
                    self.stream.write_all(frame)?;
                }
                next = (next + count) % ring.count();
                sent += count as u64;
                if !ring.is_fetch() {
                    outcome.bytes += slice.len() as u64;
                }
            } else if sent_at.is_empty() {
                return Ok(outcome);
            }
            let (count, bytes) = self.responses(ring, &mut expected)?;
            if ring.is_fetch() {
                outcome.bytes += bytes as u64;
            }
            for _ in 0..count {
                let sent_at = sent_at
                    .pop_front()
                    .ok_or_else(|| bad("a response to nothing"))?;
                outcome
                    .latencies_ns
                    .push(sent_at.elapsed().as_nanos() as u64);
                outcome.requests += 1;
            }
        }
    }

    /// Reads once; checks the responses that end in it, and counts them and the bytes read.
    fn responses(&mut self, ring: &Ring, expected: &mut usize) -> io::Result<(usize, usize)> {
        let read = self.stream.read(&mut self.read)?;
        if read == 0 {
            return Err(bad("the connection was closed"));
        }
        let (mut rest, mut count) = (&self.read[..read], 0);
        loop {
            let passed = self.left.min(rest.len());
            self.left -= passed;
            rest = &rest[passed..];
            let wanted = wanted(&self.head);
            if self.head.len() < wanted {
                let taken = (wanted - self.head.len()).min(rest.len());
                self.head.extend_from_slice(&rest[..taken]);
                rest = &rest[taken..];
                self.left = match self.head.len() == HEAD_BYTES {
                    true => (4 + length(&self.head)).saturating_sub(HEAD_BYTES),
                    false => 0,
                };
            }
            let is_over = self.left == 0 && !self.head.is_empty();
            if is_over && self.head.len() == self::wanted(&self.head) {
                check(&self.head[4..], *expected as i32, ring)?;
                *expected = (*expected + 1) % ring.count();
                self.head.clear();
                count += 1;
            } else if rest.is_empty() {
                return Ok((count, read));
            }
        }
    }
}

/// So many bytes of a response belong to its head, as far as that is known by now.
fn wanted(head: &[u8]) -> usize {
    match head.len() {
        ..4 => 4,
        _ => (4 + length(head)).min(HEAD_BYTES),
    }
}

/// What the prefix says.
fn length(head: &[u8]) -> usize {
    head.first_chunk()
        .map_or(0, |prefix| u32::from_be_bytes(*prefix) as usize)
}

/// The answer to this request, whose first partition is without error.
pub fn check(response: &[u8], correlation_id: i32, ring: &Ring) -> io::Result<()> {
    check_produce_or_fetch(response, correlation_id, ring.version(), ring.is_fetch())
}

/// As [`check`], of a Produce of one partition.
pub fn check_produce(response: &[u8], correlation_id: i32, version: Version) -> io::Result<()> {
    check_produce_or_fetch(response, correlation_id, version, false)
}

fn check_produce_or_fetch(
    response: &[u8],
    correlation_id: i32,
    version: Version,
    is_fetch: bool,
) -> io::Result<()> {
    if !response.starts_with(&correlation_id.to_be_bytes()) {
        return Err(bad("a response out of order"));
    }
    let error_at = if is_fetch {
        // correlation id, tags, throttle time
        4 + 1 + 4
    } else {
        // correlation id, tags, count of topics, topic, count of partitions, index
        let topic_bytes = match version {
            Version::V9 => 1 + TOPIC.len(),
            Version::V13 => 16,
        };
        let count_at = 4 + 1 + 1 + topic_bytes;
        let count_bytes = response[count_at..].iter().take_while(|b| **b >= 0x80);
        count_at + count_bytes.count() + 1 + 4
    };
    match response.get(error_at..error_at + 2) {
        Some([0, 0]) => Ok(()),
        Some(code) => Err(bad(&format!(
            "error {} {}",
            i16::from_be_bytes([code[0], code[1]]),
            String::from_utf8_lossy(&response[error_at..]),
        ))),
        None => Err(bad("a short answer")),
    }
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
