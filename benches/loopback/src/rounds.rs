//! Interleaved rounds: every peer takes its turn in every cell of every round, and each round begins with another.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::cases::{Case, Group};
use crate::frames::{Content, Ring, Version};
use crate::load::{Clients, Outcome};
use crate::peers::{Kind, Peer};
use crate::process::{self, Cpu, Others};
use crate::sink::Sink;

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub rounds: usize,
    pub measure: Duration,
    pub warm_up: Duration,
    pub version: Version,
    pub content: Content,
}

/// One peer, one cell, one round.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    pub peer: &'static str,
    pub group: Group,
    pub case: String,
    pub connections: usize,
    pub depth: usize,
    pub round: usize,
    pub requests: u64,
    pub bytes: u64,
    pub seconds: f64,
    /// Of the proxy's process; 0 for direct.
    pub cpu_user_seconds: f64,
    pub cpu_system_seconds: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// Share of the machine that others used meanwhile.
    pub foreign_share: f64,
}

impl Sample {
    pub fn cpu_seconds_per_gb(&self) -> f64 {
        (self.cpu_user_seconds + self.cpu_system_seconds) / (self.bytes as f64 / 1e9)
    }

    pub fn gb_per_second(&self) -> f64 {
        self.bytes as f64 / 1e9 / self.seconds
    }

    pub fn requests_per_second(&self) -> f64 {
        self.requests as f64 / self.seconds
    }
}

/// Runs all rounds; `tell` hears of each as it ends.
pub fn run(
    plan: &Plan,
    cases: &[Case],
    peers: &[Peer],
    sink: &Sink,
    mut tell: impl FnMut(usize),
) -> io::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for round in 0..plan.rounds {
        for case in cases {
            for &(connections, depth) in case.group.loads() {
                for turn in 0..peers.len() {
                    let peer = &peers[(turn + round) % peers.len()];
                    let load = Load {
                        ring: &case.ring,
                        connections,
                        depth,
                        rate: case.group.rate(),
                    };
                    let measured = measure(plan, peer, sink, &load)
                        .map_err(|error| describe(&error, peer.kind, &case.name, depth))?;
                    let Measured {
                        outcome,
                        cpu,
                        foreign_share,
                    } = measured;
                    samples.push(Sample {
                        peer: peer.kind.label(),
                        group: case.group,
                        case: case.name.clone(),
                        connections,
                        depth,
                        round,
                        requests: outcome.requests,
                        bytes: outcome.bytes,
                        seconds: outcome.elapsed.as_secs_f64(),
                        cpu_user_seconds: cpu.user.as_secs_f64(),
                        cpu_system_seconds: cpu.system.as_secs_f64(),
                        p50_us: outcome.latency_us(0.5),
                        p99_us: outcome.latency_us(0.99),
                        foreign_share,
                    });
                }
            }
        }
        tell(round);
    }
    Ok(samples)
}

/// What clients send.
pub struct Load<'a> {
    pub ring: &'a Arc<Ring>,
    pub connections: usize,
    pub depth: usize,
    /// Requests a second over all connections; `None`: as many as there can be.
    pub rate: Option<u32>,
}

/// One peer under one load.
pub struct Measured {
    pub outcome: Outcome,
    /// Of the proxy's process.
    pub cpu: Cpu,
    /// Share of the machine that others used meanwhile.
    pub foreign_share: f64,
}

/// Loads a peer, after a while to get warm.
pub fn measure(plan: &Plan, peer: &Peer, sink: &Sink, load: &Load<'_>) -> io::Result<Measured> {
    peer.check_port()?;
    let mut clients = Clients::connect(peer.address, load.connections)?;
    let mut run = |time| match load.rate {
        Some(rate) => clients.run_in_turn(load.ring, time, rate),
        None => clients.run(load.ring, load.depth, time, u64::MAX),
    };
    run(plan.warm_up)?;
    let cpu_of_peer = || peer.pid().map_or(Ok(Cpu::default()), process::cpu);
    let answered_before = sink.requests();
    let (cpu_before, others) = (cpu_of_peer()?, Others::watch()?);
    let outcome = run(plan.measure)?;
    let cpu = cpu_of_peer()?.since(cpu_before);
    let foreign = others.spent(cpu.total())?;
    await_sink(sink, answered_before + outcome.requests)?;
    Ok(Measured {
        foreign_share: process::share_of_machine(foreign, outcome.elapsed)?,
        outcome,
        cpu,
    })
}

/// The proof that the peer forwarded: the sink read all that was answered. It counts behind its responses.
fn await_sink(sink: &Sink, requests: u64) -> io::Result<()> {
    let start = Instant::now();
    while sink.requests() < requests {
        if start.elapsed() > Duration::from_secs(1) {
            return Err(io::Error::other("more responses than the sink gave"));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn describe(error: &io::Error, kind: Kind, case: &str, depth: usize) -> io::Error {
    io::Error::other(format!(
        "{}, {case} at depth {depth}: {error}",
        kind.label()
    ))
}
