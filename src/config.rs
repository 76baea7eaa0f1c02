//! The configuration in force: valid by construction. `config::raw` is what a file may say; it becomes
//! [`Config`] in one place, or one clear message.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::policy::{Action, ErrorCode};

/// Everything one process runs with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The Kafka cluster behind the proxy.
    pub cluster: Cluster,
    /// Where clients connect.
    pub listener: Listener,
    /// Refuse, or only count and log what would be refused.
    pub mode: Mode,
    /// What holds for a topic that no rule names, and for what a rule leaves out.
    pub limits: Limits,
    /// First match wins.
    pub rules: Vec<Rule>,
    /// Topics whose limits are kept aligned.
    pub families: Families,
    /// Sizes above this share of a limit count as near it; 0 < x ≤ 1.
    pub near_limit: f64,
    /// Bytes that may be held at once, process-wide.
    pub memory_budget_bytes: u64,
    /// When batches are decoded.
    pub decode: Decode,
    /// The admin HTTP server's address.
    pub admin_bind: SocketAddr,
    /// Metrics and logs.
    pub telemetry: Telemetry,
}

/// The Kafka cluster behind the proxy.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// `host:port`, tried in order.
    pub bootstrap_servers: Vec<HostPort>,
    /// TLS to the brokers; `None` is plaintext.
    pub tls: Option<ClientTls>,
    /// How the control plane's own connection authenticates.
    pub admin_sasl: Option<Sasl>,
    /// How often the control plane reads topics and limits.
    pub refresh_interval: Duration,
}

/// A host and a port, as Kafka writes them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Host name or address; IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl std::fmt::Display for HostPort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// TLS towards brokers. PEM files.
#[derive(Debug, Clone)]
pub struct ClientTls {
    /// Trusted CAs; `None` is the platform's.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and key, for brokers that ask for one.
    pub identity: Option<Identity>,
    /// The name to verify instead of the host connected to.
    pub server_name: Option<String>,
}

/// A certificate chain and its private key, PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Certificate chain.
    pub cert_file: PathBuf,
    /// Private key.
    pub key_file: PathBuf,
}

/// SASL credentials of the control plane.
#[derive(Clone)]
pub struct Sasl {
    /// Mechanism.
    pub mechanism: SaslMechanism,
    /// User name.
    pub username: String,
    /// Password; never printed.
    pub password: String,
}

impl std::fmt::Debug for Sasl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sasl")
            .field("mechanism", &self.mechanism)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

/// SASL mechanisms the control plane speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaslMechanism {
    /// PLAIN
    Plain,
    /// SCRAM-SHA-256
    ScramSha256,
    /// SCRAM-SHA-512
    ScramSha512,
}

/// Where clients connect, and what they are told.
#[derive(Debug, Clone)]
pub struct Listener {
    /// Clients' bootstrap address.
    pub bind: SocketAddr,
    /// How a broker's address is made for clients.
    pub advertise: Advertise,
    /// TLS towards clients; `None` is plaintext.
    pub tls: Option<ServerTls>,
    /// Limit of the frame gate: one whole request, without its 4-byte length prefix.
    pub frame_bytes: u32,
    /// Client connections at once.
    pub max_connections: usize,
    /// A connection without traffic for this long is closed.
    pub idle_timeout: Duration,
}

/// How a broker's address is made for clients.
#[derive(Debug, Clone)]
pub enum Advertise {
    /// One port for each broker.
    NodePorts {
        /// The host clients are told for every broker.
        host: String,
        /// The first node's port.
        first: u16,
        /// The n-th of these ids is at `first + n`.
        node_ids: Vec<i32>,
    },
    /// One port for all; the name in the TLS hello tells the broker.
    Sni {
        /// Clients' bootstrap name.
        bootstrap: String,
        /// A broker's name, with `{node_id}`.
        node: String,
        /// The port clients are told.
        advertised_port: u16,
    },
}

/// TLS towards clients. PEM files.
#[derive(Debug, Clone)]
pub struct ServerTls {
    /// Our certificate and key.
    pub identity: Identity,
    /// Present: clients must bring a certificate by one of these CAs.
    pub client_ca_file: Option<PathBuf>,
}

/// Refuse, or only count and log what would be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Refuse.
    Enforce,
    /// Refuse nothing.
    Observe,
}

/// One number a size may not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchLimit {
    /// The topic's own `max.message.bytes`, learned live.
    Inherit,
    /// A number; the learned limit still holds beside it where it is smaller.
    Bytes(u64),
    /// No limit of ours; the broker's is not applied either.
    None,
}

/// The limits one rule (or the `limits` section) sets; `None` is not set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// Gate `batch`. In the `limits` section never `None` (default: inherit).
    pub batch_bytes: Option<BatchLimit>,
    /// Gate `uncompressed`.
    pub uncompressed_bytes: Option<u64>,
    /// Gate `record`.
    pub record_bytes: Option<u64>,
    /// Gate `estimate`.
    pub estimate_bytes: Option<u64>,
    /// Gate `key`.
    pub key_bytes: Option<u64>,
    /// Gate `value`.
    pub value_bytes: Option<u64>,
    /// Gate `headers`.
    pub headers_bytes: Option<u64>,
    /// Gate `ratio`: uncompressed / wire.
    pub ratio: Option<f64>,
}

/// A config entry that matches topics and sets limits and an action.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Unique; appears in every refusal.
    pub name: String,
    /// Any of them matches.
    pub topics: Vec<TopicPattern>,
    /// What this rule sets.
    pub limits: Limits,
    /// What happens above a limit.
    pub action: Action,
    /// The Kafka error code of its refusals.
    pub error_code: ErrorCode,
    /// Ends every refusal by this rule.
    pub remedy: Option<String>,
}

/// How a rule names topics.
#[derive(Debug, Clone)]
pub enum TopicPattern {
    /// The name itself.
    Exact(String),
    /// `*` and `?`, as written in the config.
    Glob(String),
    /// `/regex/`, without its slashes; anchored at both ends.
    Regex(String),
}

/// Topics whose limits are kept aligned.
#[derive(Debug, Clone)]
pub struct Families {
    /// Propose families by the usual names; detected ones only warn.
    pub detect: bool,
    /// What a retry or dead-letter topic needs above its main topic.
    pub headroom_bytes: u64,
    /// The configured ones.
    pub members: Vec<Family>,
}

/// One main topic with its retry and dead-letter topics.
#[derive(Debug, Clone)]
pub struct Family {
    /// The main topic.
    pub main: TopicPattern,
    /// Its retry topics; may hold `{main}`.
    pub retry: Vec<TopicPattern>,
    /// Its dead-letter topics; may hold `{main}`.
    pub dead_letter: Vec<TopicPattern>,
    /// Enforce, or warn only.
    pub enforce: bool,
}

/// When batches are decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decode {
    /// When no cheaper proof decides.
    WhenNeeded,
    /// Always.
    Always,
    /// Never; no limit may need it.
    Never,
}

/// Metrics and logs.
#[derive(Debug, Clone)]
pub struct Telemetry {
    /// At most so many topic labels; the rest are `_other`.
    pub topics: usize,
    /// One line of text, or one JSON object, per event.
    pub log: LogFormat,
}

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// `key=value` text.
    Text,
    /// One JSON object per line.
    Json,
}
