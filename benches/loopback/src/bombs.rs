//! What others feel while many connections each send a bomb: a well-behaved client's latency before and meanwhile,
//! and the proxy's largest resident memory.

use std::io::{self, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::frames::{self, Content, Ring, Version};
use crate::load::{Client, Clients};
use crate::peers::{Kind, Peer, Programs};
use crate::process;
use crate::sink::Sink;

/// Connections that send bombs.
const BOMBERS: usize = 64;

const MEASURE: Duration = Duration::from_secs(4);

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Bomb {
    /// A Produce of 64 MiB whose batch is over every limit, again and again.
    Large,
    /// Batches of 1 GiB of zeros in some 33 KB of zstd, again and again.
    Zstd,
    /// The length and head of a 100 MiB Produce, then nothing.
    Promise,
}

/// One peer under one kind of bomb.
#[derive(Debug, Clone, Serialize)]
pub struct Bombed {
    pub peer: &'static str,
    pub bomb: String,
    pub bombs: u64,
    pub calm_p50_us: f64,
    pub calm_p99_us: f64,
    pub bombed_p50_us: f64,
    pub bombed_p99_us: f64,
    pub bombed_max_us: f64,
    pub peak_kib: u64,
}

/// Starts a fresh proxy, measures in calm, then under bombs.
pub fn measure(
    kind: Kind,
    programs: &Programs,
    sink: &Sink,
    bomb: Bomb,
    version: Version,
) -> io::Result<Bombed> {
    let peer = Peer::start(kind, programs, sink.address())?;
    let ring = Arc::new(Ring::produce(64, 16 << 10, version, Content::Json));
    let mut clients = Clients::connect(peer.address, 1)?;
    clients.run(&ring, 1, Duration::from_millis(300), u64::MAX)?;
    let calm = clients.run(&ring, 1, MEASURE, u64::MAX)?;

    let frame = frame(bomb, version);
    let is_over = AtomicBool::new(false);
    let sent = AtomicU64::new(0);
    let bombed = thread::scope(|scope| {
        for _ in 0..BOMBERS {
            scope.spawn(|| throw(peer.address, bomb, &frame, &is_over, &sent));
        }
        thread::sleep(Duration::from_millis(500));
        let bombed = clients.run(&ring, 1, MEASURE, u64::MAX);
        is_over.store(true, Ordering::Relaxed);
        bombed
    })?;
    let peak_kib = match peer.pid() {
        Some(pid) => process::resident_kib(pid)?.1,
        None => 0,
    };
    Ok(Bombed {
        peer: kind.label(),
        bomb: format!("{bomb:?}").to_lowercase(),
        bombs: sent.load(Ordering::Relaxed),
        calm_p50_us: calm.latency_us(0.5),
        calm_p99_us: calm.latency_us(0.99),
        bombed_p50_us: bombed.latency_us(0.5),
        bombed_p99_us: bombed.latency_us(0.99),
        bombed_max_us: bombed.latency_us(1.0),
        peak_kib,
    })
}

fn frame(bomb: Bomb, version: Version) -> Vec<u8> {
    let produce = |batch| frames::produce(0, version, &[(0, batch)]);
    match bomb {
        Bomb::Large => produce(frames::batch(64 << 20, Content::Random, 1)),
        Bomb::Zstd => produce(frames::zstd_bomb(1 << 30)),
        Bomb::Promise => {
            let mut head = produce(frames::batch(1 << 10, Content::Random, 1));
            head[..4].copy_from_slice(&((100u32 << 20) - 1).to_be_bytes());
            head
        }
    }
}

/// Sends until it is over. Whether a bomb is refused, forwarded, or its connection closed: the next follows.
fn throw(address: SocketAddr, bomb: Bomb, frame: &[u8], is_over: &AtomicBool, sent: &AtomicU64) {
    while !is_over.load(Ordering::Relaxed) {
        let thrown = match bomb {
            Bomb::Promise => promise(address, frame, is_over),
            Bomb::Large | Bomb::Zstd => Client::connect(address).and_then(|mut client| {
                while !is_over.load(Ordering::Relaxed) {
                    client.ask(frame)?;
                    sent.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }),
        };
        match thrown {
            Ok(()) => {
                sent.fetch_add(1, Ordering::Relaxed);
            }
            // Closed in our face; do not spin on it.
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn promise(address: SocketAddr, head: &[u8], is_over: &AtomicBool) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(head)?;
    let start = Instant::now();
    while !is_over.load(Ordering::Relaxed) && start.elapsed() < MEASURE {
        thread::sleep(Duration::from_millis(50));
    }
    stream.shutdown(Shutdown::Both)
}
