//! The configuration in force: valid by construction. `raw` is what a file may say; it becomes [`Config`]
//! in one place (`valid`, then `contradictions`), or one clear line for each mistake.
//!
//! ```text
//! file, environment, flags ─ layers ─ read ─ raw ─ valid ─ contradictions ─ Config ─ render (back to keys)
//!      (yaml)       (merged, interpolate) (serde) (defaults)                         └ reload (what changed)
//! ```

mod advice;
mod claim;
mod clients;
mod contradictions;
mod defaults;
mod governed;
mod ignore;
mod interpolate;
mod layers;
mod mistakes;
mod own;
mod raw;
mod read;
mod reload;
mod render;
mod scalars;
mod topics;
mod valid;
mod variables;
mod yaml;

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

pub use crate::patterns::{MAIN, NamePattern, TopicPattern};
pub use claim::{
    ClaimCheck, ClaimKey, Fallback, Offload, Redeem, StoreFailure, StoreOption, Unredeemed,
};
pub use clients::Clients;
pub(crate) use defaults::OFFLOAD_ABOVE_BYTES;
pub use governed::{Bounds, Codecs, Compression, TopicConfig};
pub use ignore::Ignore;
pub(crate) use ignore::ignore;
pub use layers::{ENV_PREFIX, Env, Overrides, process_env};
pub use mistakes::{ConfigErrors, Mistake};
pub use own::OwnAddresses;
pub use raw::{KnownKey, Takes, key_table, known_keys};
pub use reload::{Reload, reload};
pub(crate) use render::ranges;
pub(crate) use scalars::{any_size, duration, size, size_text, time_text};
pub use variables::unknown_variables;

use crate::families;
use crate::vocabulary::{Action, ErrorCode, Gate, labelled};
pub use crate::vocabulary::{Histograms, LogFormat, LogLevel, RecordKey};

/// Reads the configuration: defaults, under the file at `path` (if any), under the environment
/// (`SIZEGATE__LISTENER__BIND`, comma-separated lists), under the command line.
///
/// Reads the files it names (passwords, certificates) too, so that what is wrong with them is said at start.
///
/// # Errors
/// Every mistake found, each with its place, its key and what is allowed.
pub fn load(path: Option<&Path>, overrides: &Overrides, env: &Env) -> Result<Config, ConfigErrors> {
    let mut report = mistakes::Report::default();
    let Some(merged) = layers::merge(path, overrides, env, &mut report) else {
        return Err(report.into_errors());
    };
    report.learn_places(&merged);
    let (raw, mut report) = read::read(&merged, env, report);
    let mut config = valid::config(raw, &mut report);
    config.origin = Origin {
        file: path.map(Path::to_path_buf),
        has_servers: overrides.bootstrap_servers.is_some(),
    };
    contradictions::find(&config, &mut report);
    if report.is_empty() {
        Ok(config)
    } else {
        Err(report.into_errors())
    }
}

/// Everything one process runs with.
#[derive(Debug, Clone, PartialEq)]
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
    /// Findings of `check --cluster` that somebody has looked at and lives with.
    pub ignore: Vec<Ignore>,
    /// Where values go that are offloaded; needed by a rule that offloads.
    pub claim_check: Option<ClaimCheck>,
    /// Sizes above this share of a limit count as near it; 0 < x ≤ 1.
    pub near_limit: f64,
    /// Bytes that may be held at once, process-wide.
    pub memory_budget_bytes: u64,
    /// When batches are decoded.
    pub decode: Decode,
    /// The admin HTTP server's address; its port is not 0.
    pub admin_bind: SocketAddr,
    /// Where other replicas' admin servers are, for the page.
    pub admin_peers: Vec<HostPort>,
    /// Metrics and logs.
    pub telemetry: Telemetry,
    /// Where refusals are told beside the log and the API.
    pub refusals: RefusalsTopic,
    /// How it was named, for commands that are to be pasted.
    pub origin: Origin,
}

/// Where a configuration was read from. It says nothing of what is configured, so any two are equal.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The file.
    pub file: Option<PathBuf>,
    /// The command line named the brokers.
    pub has_servers: bool,
}

impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The Kafka cluster behind the proxy.
#[derive(Debug, Clone, PartialEq)]
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

/// TLS towards brokers. PEM files.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientTls {
    /// Trusted CAs; `None` is the platform's.
    pub ca_file: Option<PathBuf>,
    /// Our certificate and key, for brokers that ask for one.
    pub identity: Option<Identity>,
    /// The name to verify instead of the host connected to.
    pub server_name: Option<String>,
}

/// A certificate chain and its private key, PEM.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    /// Certificate chain.
    pub cert_file: PathBuf,
    /// Private key.
    pub key_file: PathBuf,
}

/// SASL credentials of the control plane.
#[derive(Clone, PartialEq)]
pub struct Sasl {
    /// Mechanism.
    pub mechanism: SaslMechanism,
    /// User name.
    pub username: String,
    /// Password; never printed.
    pub password: String,
}

impl fmt::Debug for Sasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sasl")
            .field("mechanism", &self.mechanism)
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

labelled! {
    /// SASL mechanisms the control plane speaks.
    SaslMechanism {
        /// RFC 4616: the password itself, so only over TLS.
        Plain = "PLAIN",
        /// RFC 5802 with SHA-256.
        ScramSha256 = "SCRAM-SHA-256",
        /// RFC 5802 with SHA-512.
        ScramSha512 = "SCRAM-SHA-512",
    }
}

/// Where clients connect, and what they are told.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// Clients' bootstrap address; its port is not 0.
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
#[derive(Debug, Clone, PartialEq)]
pub enum Advertise {
    /// One port for each broker.
    NodePorts {
        /// The host clients are told for every broker.
        host: String,
        /// The first node's port; the last node's is at most 65535.
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
#[derive(Debug, Clone, PartialEq)]
pub struct ServerTls {
    /// Our certificate and key.
    pub identity: Identity,
    /// Present: clients must bring a certificate by one of these CAs.
    pub client_ca_file: Option<PathBuf>,
}

labelled! {
    /// Refuse, or only count and log what would be refused.
    Mode {
        /// Refuse.
        Enforce = "enforce",
        /// Refuse nothing.
        Observe = "observe",
    }
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

/// The limit of a gate other than `batch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InsideLimit<T = u64> {
    /// A number: bytes, or the ratio.
    At(T),
    /// None: a rule lifts what the `limits` section sets.
    None,
}

impl<T> InsideLimit<T> {
    /// The number, if it is one.
    pub fn number(self) -> Option<T> {
        match self {
            Self::At(number) => Some(number),
            Self::None => None,
        }
    }
}

/// The limits one rule (or the `limits` section) sets; `None` is not set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Limits {
    /// Gate `batch`. In the `limits` section never `None` (default: inherit).
    pub batch_bytes: Option<BatchLimit>,
    /// Gate `uncompressed`. In the `limits` section, this and what follows is never [`InsideLimit::None`].
    pub uncompressed_bytes: Option<InsideLimit>,
    /// Gate `record`.
    pub record_bytes: Option<InsideLimit>,
    /// Gate `estimate`.
    pub estimate_bytes: Option<InsideLimit>,
    /// Gate `key`.
    pub key_bytes: Option<InsideLimit>,
    /// Gate `value`.
    pub value_bytes: Option<InsideLimit>,
    /// Gate `headers`.
    pub headers_bytes: Option<InsideLimit>,
    /// Gate `ratio`: uncompressed / wire.
    pub ratio: Option<InsideLimit<f64>>,
}

impl Limits {
    /// What holds where these stand over `base`: what is left out comes from there.
    pub fn over(&self, base: &Self) -> Self {
        Self {
            batch_bytes: self.batch_bytes.or(base.batch_bytes),
            uncompressed_bytes: self.uncompressed_bytes.or(base.uncompressed_bytes),
            record_bytes: self.record_bytes.or(base.record_bytes),
            estimate_bytes: self.estimate_bytes.or(base.estimate_bytes),
            key_bytes: self.key_bytes.or(base.key_bytes),
            value_bytes: self.value_bytes.or(base.value_bytes),
            headers_bytes: self.headers_bytes.or(base.headers_bytes),
            ratio: self.ratio.or(base.ratio),
        }
    }

    /// The limits inside a batch that are set, with their gates, in the gates' order; of the ratio its whole part.
    pub fn inside(&self) -> impl Iterator<Item = (Gate, InsideLimit)> {
        let ratio = self.ratio.map(|limit| match limit {
            InsideLimit::At(ratio) => InsideLimit::At(ratio as u64),
            InsideLimit::None => InsideLimit::None,
        });
        let all = [
            (Gate::Uncompressed, self.uncompressed_bytes),
            (Gate::Record, self.record_bytes),
            (Gate::Estimate, self.estimate_bytes),
            (Gate::Key, self.key_bytes),
            (Gate::Value, self.value_bytes),
            (Gate::Headers, self.headers_bytes),
            (Gate::Ratio, ratio),
        ];
        all.into_iter()
            .filter_map(|(gate, limit)| Some((gate, limit?)))
    }

    /// The same without what lifts nothing, as there is nothing below it.
    pub(crate) fn without_lifting(self) -> Self {
        let at = |limit: Option<InsideLimit>| limit.filter(|limit| *limit != InsideLimit::None);
        Self {
            batch_bytes: self.batch_bytes,
            uncompressed_bytes: at(self.uncompressed_bytes),
            record_bytes: at(self.record_bytes),
            estimate_bytes: at(self.estimate_bytes),
            key_bytes: at(self.key_bytes),
            value_bytes: at(self.value_bytes),
            headers_bytes: at(self.headers_bytes),
            ratio: self.ratio.filter(|limit| *limit != InsideLimit::None),
        }
    }
}

/// A config entry that matches topics and sets limits and an action.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Unique; appears in every refusal.
    pub name: String,
    /// Any of them matches.
    pub topics: Vec<TopicPattern>,
    /// Narrows it to some clients.
    pub clients: Option<Clients>,
    /// What this rule sets.
    pub limits: Limits,
    /// What its topics' configs may be set to.
    pub topic_config: Option<TopicConfig>,
    /// What large batches may come with.
    pub codecs: Option<Codecs>,
    /// What happens above a limit.
    pub action: Action,
    /// How it offloads: there if, and only if, the action is [`Action::Offload`].
    pub offload: Option<Offload>,
    /// The Kafka error code of its refusals.
    pub error_code: ErrorCode,
    /// Ends every refusal by this rule.
    pub remedy: Option<String>,
}

/// Topics whose limits are kept aligned.
#[derive(Debug, Clone, PartialEq)]
pub struct Families {
    /// Propose families by the usual names; detected ones only warn.
    pub detect: bool,
    /// What a retry or dead-letter topic needs above its main topic.
    pub headroom_bytes: u64,
    /// The configured ones.
    pub members: Vec<Family>,
}

impl Families {
    /// The families among the topics that exist. Give no internal topics: they would be proposed by their names.
    pub fn among<'a>(&self, topics: impl IntoIterator<Item = &'a Arc<str>>) -> families::Families {
        let declared = self.members.iter().map(|family| families::Declared {
            main: &family.main,
            retry: &family.retry,
            dead_letter: &family.dead_letter,
            enforce: family.enforce,
            writer_max_bytes: family.writer_max_request_size.number(),
        });
        families::Families::among(declared, self.detect, self.headroom_bytes, topics)
    }
}

/// One main topic with its retry and dead-letter topics.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// The main topic.
    pub main: TopicPattern,
    /// Its retry topics; may hold `{main}`.
    pub retry: Vec<TopicPattern>,
    /// Its dead-letter topics; may hold `{main}`.
    pub dead_letter: Vec<TopicPattern>,
    /// Enforce, or warn only.
    pub enforce: bool,
    /// What the producer that writes the members takes at most of one record, by its own estimate.
    pub writer_max_request_size: InsideLimit,
}

labelled! {
    /// When batches are decoded.
    Decode {
        /// When no cheaper proof decides.
        WhenNeeded = "when_needed",
        /// Always.
        Always = "always",
        /// Never; no limit may need it.
        Never = "never",
    }
}

/// Where refusals are told beside the log and the API, and how much of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusalsTopic {
    /// The topic that gets each as JSON.
    pub topic: Option<String>,
    /// What is told of the key of the record that was refused, everywhere.
    pub record_key: RecordKey,
}

/// Metrics and logs.
#[derive(Debug, Clone, PartialEq)]
pub struct Telemetry {
    /// At most so many topic labels; the rest are `_other`.
    pub topics: usize,
    /// Which histograms a topic has in `/metrics`.
    pub histograms: Histograms,
    /// One line of text, or one JSON object, per event.
    pub log: LogFormat,
    /// The least severe events that are logged.
    pub log_level: LogLevel,
}
