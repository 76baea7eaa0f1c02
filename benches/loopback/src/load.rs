//! Clients that send pre-built frames as fast as their depth allows, and check every response.
//!
//! Invariant: bounded. A run ends at its deadline, what is in flight is awaited, and silence of 10 s is an error.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::frames::{self, Ring, TOPIC, Version};

const SILENCE: Duration = Duration::from_secs(10);

/// Responses are some 60 bytes each; a depth of 8 fits many times.
const READ_BYTES: usize = 16 << 10;

/// What a run came to.
#[derive(Debug, Default, Clone)]
pub struct Outcome {
    /// Requests answered.
    pub requests: u64,
    /// Bytes of frames sent, prefixes included.
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
    inbox: Vec<u8>,
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
            inbox: Vec::new(),
            read: vec![0; READ_BYTES],
        })
    }

    /// ApiVersions and its response.
    pub fn hello(&mut self) -> io::Result<()> {
        self.ask(&frames::api_versions()).map(|_| ())
    }

    /// One frame, one response (without its length prefix).
    pub fn ask(&mut self, frame: &[u8]) -> io::Result<Vec<u8>> {
        self.stream.write_all(frame)?;
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
                outcome.bytes += slice.len() as u64;
            } else if sent_at.is_empty() {
                return Ok(outcome);
            }
            for _ in 0..self.responses(ring, &mut expected)? {
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

    /// Reads once; checks the responses that are whole, and counts them.
    fn responses(&mut self, ring: &Ring, expected: &mut usize) -> io::Result<usize> {
        let read = self.stream.read(&mut self.read)?;
        if read == 0 {
            return Err(bad("the connection was closed"));
        }
        self.inbox.extend_from_slice(&self.read[..read]);
        let (mut position, mut count) = (0, 0);
        while let Some(prefix) = self.inbox[position..].first_chunk::<4>() {
            let end = position + 4 + u32::from_be_bytes(*prefix) as usize;
            let Some(response) = self.inbox.get(position + 4..end) else {
                break;
            };
            check(response, *expected as i32, ring.version())?;
            *expected = (*expected + 1) % ring.count();
            position = end;
            count += 1;
        }
        self.inbox.drain(..position);
        Ok(count)
    }
}

/// The answer to this request, for its one partition, without error.
pub fn check(response: &[u8], correlation_id: i32, version: Version) -> io::Result<()> {
    if !response.starts_with(&correlation_id.to_be_bytes()) {
        return Err(bad("a response out of order"));
    }
    // correlation id, tags, count of topics, topic, count of partitions, index
    let topic_bytes = match version {
        Version::V9 => 1 + TOPIC.len(),
        Version::V13 => 16,
    };
    let error_at = 4 + 1 + 1 + topic_bytes + 1 + 4;
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
