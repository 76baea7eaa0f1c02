//! Free ports. They lie below the range that the kernel gives to outgoing connections (32768 and up), so no
//! client can sit on one between this look and its use, and a killed broker finds its port free again.
//!
//! Ports go out in blocks. A block belongs to the test process that listens on its first port until it ends: a
//! broker binds seconds after this look, and another test run on the same machine must not take its ports meanwhile.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::Mutex;

/// The demo's scripts take theirs above (`scripts/lib.sh`).
const RANGE: Range<u16> = 20_000..30_976;
/// The first is the lock, the others go out.
const BLOCK: u16 = 33;
/// So many random blocks belong to somebody else: there are none left.
const TRIES: usize = 10_000;

struct Block {
    ports: Range<u16>,
    /// The block is this process's as long as it listens.
    _lock: TcpListener,
}

static BLOCKS: Mutex<Vec<Block>> = Mutex::new(Vec::new());

/// The first of `count` free ports in a row on 127.0.0.1; at most 32. They are this process's until it ends.
pub fn free_ports(count: u16) -> u16 {
    assert!(count < BLOCK, "{count} ports in a row");
    let mut blocks = super::lock(&BLOCKS);
    loop {
        for block in blocks.iter_mut() {
            while block.ports.len() >= usize::from(count) {
                let first = block.ports.start;
                let wanted = first..first + count;
                let bound = wanted
                    .clone()
                    .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_err());
                // Behind what this gives out, or behind the port that something else sits on.
                block.ports.start = bound.map_or(wanted.end, |port| port + 1);
                if bound.is_none() {
                    return first;
                }
            }
        }
        let found = (0..TRIES).find_map(|_| lock_a_block());
        blocks.push(found.expect("a block of ports that nobody has"));
    }
}

/// A random block, unless somebody has it.
fn lock_a_block() -> Option<Block> {
    let random = RandomState::new().build_hasher().finish();
    let number = (random % u64::from(RANGE.len() as u16 / BLOCK)) as u16;
    let first = RANGE.start + number * BLOCK;
    let lock = TcpListener::bind(("127.0.0.1", first)).ok()?;
    Some(Block {
        ports: first + 1..first + BLOCK,
        _lock: lock,
    })
}
