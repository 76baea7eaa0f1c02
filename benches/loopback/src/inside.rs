//! What a limit inside batches costs: sizegate with the batch gate only, and beside it sizegate with
//! `uncompressed_bytes: 4MiB` as well, on the same batches in each codec.

use std::io;
use std::sync::Arc;

use crate::frames::{self, Codec, Ring};
use crate::peers::{Kind, More, Peer, Programs};
use crate::report::Spread;
use crate::rounds::{self, Load, Measured, Plan};
use crate::sink::Sink;

/// Sizes of batches before they are compressed.
const SIZES: [(&str, usize); 2] = [("64 KiB", 64 << 10), ("256 KiB", 256 << 10)];

const LIMIT: &str = "uncompressed_bytes: 4MiB";

const CONNECTIONS: usize = 4;
const DEPTH: usize = 8;

/// One codec at one size.
pub struct Cost {
    pub batch: &'static str,
    pub codec: Codec,
    /// Of a compressed batch, with its request.
    pub frame_bytes: usize,
    /// CPU of the proxy per request, in µs: batch gate only, and with the limit.
    pub without_us: Spread,
    pub with_us: Spread,
    /// The second over the first, within a round.
    pub ratio: Spread,
    pub foreign_share: Spread,
}

/// Measures all; `tell` hears of each as it is done.
pub fn run(
    plan: &Plan,
    programs: &Programs,
    sink: &Sink,
    mut tell: impl FnMut(&Cost),
) -> io::Result<()> {
    let start = |limits| {
        let more = More {
            limits,
            ..More::default()
        };
        Peer::start_with(Kind::Sizegate, programs, sink.address(), more)
    };
    let peers = [start("")?, start(LIMIT)?];
    for (batch, batch_bytes) in SIZES {
        for codec in Codec::ALL {
            // The same batch in every frame: others would differ in size.
            let batch_of = |_| frames::compressed_batch(batch_bytes, codec, plan.content, 1);
            let ring = Arc::new(Ring::of(32, plan.version, batch_of));
            let mut us = [Vec::new(), Vec::new()];
            let mut foreign = Vec::new();
            for round in 0..plan.rounds {
                for turn in 0..peers.len() {
                    let at = (turn + round) % peers.len();
                    let load = Load {
                        ring: &ring,
                        connections: CONNECTIONS,
                        depth: DEPTH,
                        rate: None,
                    };
                    let Measured {
                        outcome,
                        cpu,
                        foreign_share,
                    } = rounds::measure(plan, &peers[at], sink, &load)?;
                    us[at].push(cpu.total().as_secs_f64() * 1e6 / outcome.requests as f64);
                    foreign.push(foreign_share);
                }
            }
            let [without, with] = us;
            tell(&Cost {
                batch,
                codec,
                frame_bytes: ring.frame_bytes(),
                ratio: Spread::of(
                    with.iter()
                        .zip(&without)
                        .map(|(with, without)| with / without),
                ),
                without_us: Spread::of(without),
                with_us: Spread::of(with),
                foreign_share: Spread::of(foreign),
            });
        }
    }
    Ok(())
}
