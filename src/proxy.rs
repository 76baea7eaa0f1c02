//! Clients in, brokers out: listeners, sessions, the budget, and the verdict on every Produce.
//!
//! One task per session and no channel in the data path. This module never looks into a peer's bytes itself:
//! `wire` does.

mod advertised;
mod budget;
mod claim_fetches;
mod claims;
mod closed;
mod fallback;
mod fetches;
mod governed;
mod in_flight;
mod listener;
mod oversized;
mod redeem;
mod refusal_topic;
mod report;
mod session;
mod topics;
mod verdict;
mod write_queue;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Semaphore;

pub use advertised::Advertised;
pub use budget::Budget;
pub use claims::Claims;
pub use listener::{BoundSockets, Listeners};
pub use refusal_topic::RefusalTopic;
pub use verdict::{Fate, SharedConfirmed, Trial, Tried};

use crate::cluster::Cluster;
use crate::config::{Decode, HostPort};
use crate::findings::Commands;
use crate::net::{Acceptor, Connector};
use crate::policy::{Policy, StuckWatch};
use crate::telemetry::log::{CloseLog, OffloadLog, RedeemLog, RefusalLog};
use crate::telemetry::{Metrics, Observed, Refusals};
use crate::vocabulary::RecordKey;
use crate::wire::api_versions::ClientSoftware;

/// What all sessions share.
pub struct Shared {
    /// The rules in force; replaced by a reload.
    pub policy: ArcSwap<Policy>,
    /// What is known of the cluster.
    pub cluster: Cluster,
    /// Clients' bootstrap goes to the first of these that answers.
    pub bootstrap_servers: Vec<HostPort>,
    /// Connects to brokers.
    pub connector: Connector,
    /// Accepts clients.
    pub acceptor: Acceptor,
    /// What clients are told instead of brokers' addresses.
    pub advertised: Advertised,
    /// Bytes that may be held.
    pub budget: Arc<Budget>,
    /// Counters and histograms.
    pub metrics: Arc<Metrics>,
    /// The last refusals.
    pub refusals: Arc<Refusals>,
    /// A line for each refusal; repeated ones counted.
    pub refusal_log: RefusalLog,
    /// The topic that gets each refusal, where one is configured.
    pub refusal_topic: Option<RefusalTopic>,
    /// What is told of the key of a record that was refused.
    pub record_key: RecordKey,
    /// One line per connection closed for a reason.
    pub close_log: CloseLog,
    /// What the observing gates noticed.
    pub observed: Arc<Observed>,
    /// What tells that a consumer comes back to a large batch.
    pub stuck: StuckWatch,
    /// The frame gate's limit.
    pub frame_bytes: u32,
    /// A connection without traffic for this long is closed.
    pub idle_timeout: Duration,
    /// Keys that name files of certificates in force, and when the first in each ends, in seconds since 1970.
    pub certificates: ArcSwap<Vec<(&'static str, u64)>>,
    /// The proxy is going down: sessions end when what is in flight is answered.
    pub is_draining: AtomicBool,
    /// The families among the cluster's topics are in force; not before all topics were read once.
    pub is_grouped: AtomicBool,
    /// Commands that mend what the log speaks of.
    pub commands: Commands,
    /// The control plane's thread is gone, which it never should be: what was learned will never be learned again.
    pub is_control_plane_lost: AtomicBool,
    /// The object store, where a claim check is configured.
    pub claims: Option<Claims>,
    /// A line for what is offloaded; repeated ones counted.
    pub offload_log: OffloadLog,
    /// A line for what cannot be redeemed; repeated ones counted.
    pub redeem_log: RedeemLog,
    /// Numbers refusals.
    pub refusal_ids: AtomicU64,
    /// Long decodes at once: a bomb in every connection must not take every core.
    pub decoding: Arc<Semaphore>,
    /// Readings of the cluster for requests that set configs, at once.
    pub governing: Semaphore,
}

impl Shared {
    /// When batches are decoded.
    fn decode(&self) -> Decode {
        self.policy.load().decode()
    }

    /// Computes away from the session's thread, when it is its turn. Nobody can stop what has begun: so it owns its turn,
    /// and gives it back at its end, even if its session is gone by then. `None`: it failed, or the process ends.
    async fn off_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let turn = Arc::clone(&self.decoding).acquire_owned().await.ok()?;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(turn);
            done
        });
        done.await.ok()
    }
}

/// What is known of the client of a session.
#[derive(Debug, Clone)]
pub struct ClientInfo {
    /// Where it connects from.
    pub address: SocketAddr,
    /// Its `client_id`, as last sent; control characters replaced.
    pub client_id: Option<String>,
    /// What it says it is.
    pub software: Option<ClientSoftware>,
    /// The user name it authenticated with; `None` without SASL, and where the mechanism does not show it.
    pub principal: Option<Arc<str>>,
    /// Goes up with every change of the above.
    pub revision: u64,
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// What sessions would share, with these rules; in front of a cluster that is not there.
    pub(crate) fn shared(yaml: &str) -> Arc<Shared> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sizegate.yaml");
        let addresses = "cluster: {bootstrap_servers: [\"127.0.0.1:1\"]}\nlistener: {bind: \"127.0.0.1:9\", \
                         advertised_host: h, node_ports: {first: 9093, node_ids: 1-2}}\n";
        std::fs::write(&file, format!("{addresses}{yaml}\n")).unwrap();
        let config = crate::config::load(Some(&file), &Default::default(), &Default::default())
            .unwrap_or_else(|mistakes| panic!("{mistakes}"));
        crate::run::build(&config).unwrap()
    }
}
