//! Holds the state that the tasks of the control plane share: what is known, how it fares, and how to reach a broker.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::call_error::CallError;
use super::link::Link;
use super::registry::{Key, Registry, Word};
use super::responses::Metadata;
use super::status::{Condition, OwnNode};
use crate::config::{Config, HostPort, Sasl};
use crate::net::Connector;
use crate::net::{deadline_in, share};

/// For a name's look-up, and for a look at one broker beside the work.
const LOOKUP: Duration = Duration::from_secs(5);

/// What the tasks of the control plane share.
pub(super) struct ControlPlane {
    pub(super) registry: Registry,
    pub(super) condition: Condition,
    pub(super) connector: Connector,
    bootstrap_servers: Vec<HostPort>,
    sasl: Option<Sasl>,
    pub(super) refresh_interval: Duration,
    /// Where the last connection to any broker succeeded.
    last_good: Mutex<Option<HostPort>>,
    /// The cluster's own id, which never changes.
    cluster_id: OnceLock<Arc<str>>,
}

impl ControlPlane {
    pub(super) fn new(config: &Config, connector: Connector) -> Self {
        Self {
            registry: Registry::default(),
            condition: Condition::new(config),
            connector,
            bootstrap_servers: config.cluster.bootstrap_servers.clone(),
            sasl: config.cluster.admin_sasl.clone(),
            refresh_interval: config.cluster.refresh_interval,
            last_good: Mutex::new(None),
            cluster_id: OnceLock::new(),
        }
    }

    pub(super) fn learn_cluster_id(&self, id: Option<&str>) {
        if let Some(id) = id.filter(|id| !id.is_empty()) {
            self.cluster_id.get_or_init(|| id.into());
        }
    }

    pub(super) fn cluster_id(&self) -> Option<&Arc<str>> {
        self.cluster_id.get()
    }

    pub(super) async fn open(
        &self,
        to: &HostPort,
        deadline: tokio::time::Instant,
    ) -> Result<Link, CallError> {
        Link::open(&self.connector, to, self.sasl.as_ref(), deadline).await
    }

    /// A link to any broker: the last good one, the bootstrap servers in order, then every node known. Each gets
    /// an even share of the time, so that one silent address does not spend it all. The error is that of each.
    pub(super) async fn open_any(&self, deadline: tokio::time::Instant) -> Result<Link, CallError> {
        let candidates = self.candidates();
        let mut errors = Vec::new();
        for (to, untried) in candidates.iter().zip((1..=candidates.len()).rev()) {
            let left = deadline.saturating_duration_since(tokio::time::Instant::now());
            match self
                .open(to, deadline_in(share(left, untried.min(3))))
                .await
            {
                Ok(link) => {
                    self.condition.reached();
                    *self.lock_last_good() = Some(to.clone());
                    return Ok(link);
                }
                Err(error) => {
                    tracing::debug!(%error, "a broker cannot be used");
                    errors.push(error);
                }
            }
        }
        *self.lock_last_good() = None;
        Err(match errors.len() {
            0 => CallError::Connect(std::io::Error::other("cluster.bootstrap_servers is empty")),
            1 => errors.remove(0),
            _ => CallError::Every(errors),
        })
    }

    fn candidates(&self) -> Vec<HostPort> {
        let mut seen = HashSet::new();
        let last_good = self.lock_last_good().clone();
        last_good
            .into_iter()
            .chain(self.bootstrap_servers.iter().cloned())
            .chain(self.registry.addresses())
            .filter(|to| seen.insert(to.clone()))
            .collect()
    }

    /// Every Metadata response names all nodes that live.
    pub(super) fn learn_nodes(&self, metadata: &Metadata) {
        let nodes = metadata.nodes();
        // A broker that has just started may not know any yet.
        if !nodes.is_empty() && self.registry.learn_nodes(nodes) {
            self.condition.nodes(&self.registry.node_ids());
        }
    }

    /// The brokers whose advertised addresses lead to ourselves.
    pub(super) async fn own_nodes(&self, nodes: &[(i32, HostPort)]) -> Vec<OwnNode> {
        let own = self.connector.own();
        let mut found = Vec::new();
        for (node_id, address) in nodes {
            let mut key = own.key_of(address);
            // A name is looked up only where the port is one of ours.
            if key.is_none() && own.has_port(address.port) {
                let lookup = tokio::net::lookup_host((address.host.as_str(), address.port));
                if let Ok(Ok(addresses)) = tokio::time::timeout(LOOKUP, lookup).await {
                    key = addresses.into_iter().find_map(|to| own.key_of_socket(to));
                }
            }
            found.extend(key.map(|key| OwnNode {
                node_id: *node_id,
                address: address.clone(),
                key,
            }));
        }
        found.sort_by_key(|node| node.node_id);
        found
    }

    /// Whether connections that came back to us still do.
    pub(super) async fn look_for_loops(&self) {
        for to in self.connector.own().loops() {
            let deadline = deadline_in(LOOKUP);
            if let Err(error) = self.open(&to, deadline).await {
                tracing::debug!(%error, "a connection that came back before");
            }
        }
    }

    /// The broker that is asked where this one is meant: any, where it is not known.
    pub(super) fn queue_of(&self, node_id: Option<i32>) -> Option<i32> {
        node_id.filter(|id| self.registry.node(*id).is_some())
    }

    /// What need not be asked: without `since` what is known, or was just now said not to be there; else this broker's
    /// own word, if it is no older.
    pub(super) fn found(
        &self,
        node_id: Option<i32>,
        key: &Key,
        since: Option<Instant>,
    ) -> Option<Word> {
        match since {
            Some(_) => self.registry.word(node_id, key, since),
            None if self.registry.is_known(key) => Some(Word::Here),
            None => self.registry.absence(node_id, key),
        }
    }

    fn lock_last_good(&self) -> MutexGuard<'_, Option<HostPort>> {
        self.last_good
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
