//! Free ports. They lie below the range that the kernel gives to outgoing connections (32768 and up), so no
//! client can sit on one between this look and its use, and a killed broker finds its port free again.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::TcpListener;
use std::sync::Mutex;

/// Given out already by this process: they may not be bound yet.
static TAKEN: Mutex<Vec<u16>> = Mutex::new(Vec::new());

/// The first of `count` free ports in a row on 127.0.0.1.
pub fn free_ports(count: u16) -> u16 {
    let mut taken = TAKEN.lock().unwrap();
    loop {
        let random = RandomState::new().build_hasher().finish();
        let first = 20_000 + (random % 11_000) as u16;
        let range = first..first + count;
        let free =
            |port: u16| !taken.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok();
        if range.clone().all(free) {
            taken.extend(range);
            return first;
        }
    }
}
