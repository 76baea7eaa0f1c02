//! Names what holds where a key is left out.
//!
//! Invariant: every default that is one value is here and nowhere else. What follows from another key is said in
//! `valid`, where both are known: node ports begin one above `listener.bind`'s, brokers are 0 to 9 where none are named.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use super::claim::{StoreFailure, Unredeemed};
use super::{Decode, Histograms, LogFormat, LogLevel, Mode, RecordKey};
use crate::claim::Layout;
use crate::vocabulary::{Action, ErrorCode};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;
const DAY_SECONDS: u64 = 86_400;

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))
}

pub(super) const MODE: Mode = Mode::Enforce;
pub(super) const NEAR_LIMIT: f64 = 0.8;
pub(super) const MEMORY_BUDGET_BYTES: u64 = 512 * MIB;
pub(super) const DECODE: Decode = Decode::WhenNeeded;
pub(super) const ADMIN_BIND: SocketAddr = loopback(9644);

/// `cluster`.
pub(super) const REFRESH_INTERVAL: Duration = Duration::from_secs(30);

/// `listener`.
pub(super) const BIND: SocketAddr = loopback(19_092);
pub(super) const ADVERTISED_HOST: &str = "localhost";
/// A broker's own `socket.request.max.bytes`.
pub(super) const FRAME_BYTES: u64 = 100 * MIB;
pub(super) const MAX_CONNECTIONS: u64 = 10_000;
/// A broker's own `connections.max.idle.ms`.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// `telemetry`.
pub(super) const TOPICS: u64 = 1_000;
pub(super) const HISTOGRAMS: Histograms = Histograms::Few;
pub(super) const LOG: LogFormat = LogFormat::Text;
pub(super) const LOG_LEVEL: LogLevel = LogLevel::Info;

/// `refusals`.
pub(super) const RECORD_KEY: RecordKey = RecordKey::None;

/// `families`.
pub(super) const DETECT: bool = true;
pub(super) const HEADROOM_BYTES: u64 = 64 * KIB;
pub(super) const ALIGNMENT_ENFORCE: bool = true;

/// `rules`.
pub(super) const ACTION: Action = Action::Reject;
pub(super) const ERROR_CODE: ErrorCode = ErrorCode::Auto;
/// Batches up to this many uncompressed bytes may come as they like.
pub(super) const CODECS_ABOVE_BYTES: u64 = 64 * KIB;
pub(super) const UNLESS_INCOMPRESSIBLE: bool = true;
pub(super) const TOPIC_CONFIG_BROKERS: bool = false;
pub(crate) const OFFLOAD_ABOVE_BYTES: u64 = 64 * KIB;
pub(super) const ON_STORE_FAILURE: StoreFailure = StoreFailure::Refuse;

/// `claim_check`.
pub(super) const LAYOUT: Layout = Layout::Day;
pub(super) const RETENTION: Duration = Duration::from_secs(16 * DAY_SECONDS);
pub(super) const GRACE: Duration = Duration::from_secs(600);
pub(super) const FALLBACK_TOPIC: &str = "{topic}.claim.missing";
pub(super) const ON_MISSING: Unredeemed = Unredeemed::Fallback;
pub(super) const ON_CORRUPT: Unredeemed = Unredeemed::Fallback;
