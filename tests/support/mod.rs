//! What the integration tests stand on: real brokers, the proxy as a process, a raw client that says exactly the
//! bytes a test wants, and real clients as programs. Nothing here asserts anything about sizegate.
//!
//! It is a module of the test binary `tests/it`, and lies beside it. It is named `mod.rs` because `tests/support.rs`
//! would be a test binary of its own. Whatever a test starts ends with it, also when it panics or is interrupted
//! ([`process`]).
#![allow(
    dead_code,
    unused_imports,
    reason = "each test binary uses its own part of this"
)]

pub mod admin;
pub mod batch;
pub mod certs;
pub mod claims;
pub mod client;
pub mod command;
pub mod http;
pub mod inside;
pub mod kafka;
pub mod ports;
pub mod process;
pub mod programs;
pub mod random;
pub mod relay;
pub mod scripted;
pub mod sizegate;
pub mod stores;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub use batch::{Record, batch, batch_of_bytes};
pub use client::{Connection, ErrorKind, Part, Response, Topic};
pub use inside::Inside;
pub use kafka::{Kafka, KafkaOptions};
pub use programs::Program;
pub use random::Random;
pub use sizegate::Sizegate;

/// The Kafka releases that every behaviour is tested against.
pub const KAFKA_VERSIONS: [&str; 2] = ["4.3.0", "4.4.0"];

/// Asks `probe` again and again until it answers `Some`.
///
/// Panics with `what` after `limit`, which is a guard against hanging and no measure: give it tens of seconds,
/// test machines are slow at times.
pub fn eventually<T>(limit: Duration, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() < limit, "{what}: not within {limit:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What tests share and what costs while it lives: it ends with the last of those that need it.
pub struct Lent<T> {
    state: Mutex<(usize, Option<Arc<T>>)>,
}

impl<T> Lent<T> {
    /// For so many tests, each of which asks once. One more than that starts it again for itself.
    pub const fn to_tests(count: usize) -> Self {
        Self {
            state: Mutex::new((count, None)),
        }
    }

    /// It, started by whoever asks first.
    pub fn get(&self, start: impl FnOnce() -> T) -> Arc<T> {
        let mut state = lock(&self.state);
        let (left, shared) = &mut *state;
        let found = shared.take().unwrap_or_else(|| Arc::new(start()));
        *left = left.saturating_sub(1);
        if *left > 0 {
            *shared = Some(found.clone());
        }
        found
    }
}

/// Locks what tests share: one that failed meanwhile must not fail the rest by poison.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that a person sets in the environment, for what takes longer by hand.
pub fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| {
        let number = text.parse();
        number.unwrap_or_else(|error| panic!("{variable}={text}: {error}"))
    })
}

/// A name that no other test uses: `stem-xxxxxxxx`.
pub fn unique(stem: &str) -> String {
    let id = uuid::Uuid::new_v4().simple().to_string();
    format!("{stem}-{}", &id[..8])
}
