//! What a connection costs a proxy in resident memory: open and silent, after little use, after more.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::frames::{self, Content, Version};
use crate::load::{Client, check_produce};
use crate::peers::{Kind, Peer, Programs};
use crate::process;
use crate::sink::Sink;

/// A peer that opens its upstream connection at the first request is not waited for longer.
const SETTLE: Duration = Duration::from_secs(3);

/// KiB of the proxy's resident memory per client connection, above the proxy without connections.
#[derive(Debug, Clone, Serialize)]
pub struct Idle {
    pub peer: &'static str,
    pub connections: usize,
    /// Without any connection; KiB in all.
    pub base_kib: u64,
    /// Opened, nothing sent.
    pub idle_kib: f64,
    /// After ApiVersions and a Produce of 1 KiB.
    pub small_kib: f64,
    /// After a Produce of 64 KiB, too.
    pub used_kib: f64,
    /// All closed: KiB in all.
    pub closed_kib: u64,
    /// Most ever; KiB in all.
    pub peak_kib: u64,
}

/// Starts a fresh proxy and opens `count` connections through it.
pub fn measure(
    kind: Kind,
    programs: &Programs,
    sink: &Sink,
    version: Version,
    count: usize,
) -> io::Result<Idle> {
    let peer = Peer::start(kind, programs, sink.address())?;
    let pid = peer.pid().ok_or_else(|| io::Error::other("no process"))?;
    // The first connection makes what is made once.
    let small = frames::produce(0, version, &[(0, frames::batch(1 << 10, Content::Json, 1))]);
    let large = frames::produce(
        0,
        version,
        &[(0, frames::batch(64 << 10, Content::Json, 1))],
    );
    {
        let mut first = Client::connect(peer.address)?;
        first.hello()?;
        check_produce(&first.ask(&small)?, 0, version)?;
    }
    thread::sleep(Duration::from_millis(500));
    let (base_kib, _) = process::resident_kib(pid)?;
    let before = sink.connections();

    let mut clients = Vec::with_capacity(count);
    for _ in 0..count {
        clients.push(Client::connect(peer.address)?);
    }
    let start = Instant::now();
    while sink.connections() < before + count as i64 && start.elapsed() < SETTLE {
        thread::sleep(Duration::from_millis(20));
    }
    let each = |kib: u64| (kib as f64 - base_kib as f64) / count as f64;
    let idle_kib = each(settled_kib(pid)?);
    for client in &mut clients {
        client.hello()?;
        check_produce(&client.ask(&small)?, 0, version)?;
    }
    let small_kib = each(settled_kib(pid)?);
    for client in &mut clients {
        check_produce(&client.ask(&large)?, 0, version)?;
    }
    let used_kib = each(settled_kib(pid)?);
    drop(clients);
    let closed_kib = settled_kib(pid)?;
    let (_, peak_kib) = process::resident_kib(pid)?;
    Ok(Idle {
        peer: kind.label(),
        connections: count,
        base_kib,
        idle_kib,
        small_kib,
        used_kib,
        closed_kib,
        peak_kib,
    })
}

fn settled_kib(pid: u32) -> io::Result<u64> {
    thread::sleep(Duration::from_millis(300));
    process::resident_kib(pid).map(|(now, _)| now)
}
