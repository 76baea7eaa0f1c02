//! Reports how the control plane fares, for people, health checks and metrics.
//!
//! Invariant: a condition is logged when it begins, when it changes and when it ends, not while it lasts.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kafka_protocol::messages::ApiKey;

use super::call_error::CallError;
use super::limits::MomentCell;
use super::registry::Key;
use crate::config::{Advertise, Config, HostPort};
use crate::findings::{Commands, Resource};

/// How the control plane fares.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Status {
    /// A broker answered the last time one was asked, though it may have refused us.
    pub is_reached: bool,
    /// The last refresh succeeded.
    pub is_up: bool,
    /// Why the last refresh failed; `None` when it succeeded, or none was tried.
    pub error: Option<String>,
    /// What we may not see, and the ACL to grant; `None` when we see all.
    pub missing_rights: Option<String>,
    /// Time since the last refresh that succeeded; `None` before the first.
    pub refresh_age: Option<Duration>,
    /// Brokers that `listener.node_ports.node_ids` leaves out, so that clients cannot be sent to them.
    pub nodes_outside: Vec<i32>,
    /// Brokers that are told to clients at an address of this proxy's own: who asks for one asks us.
    pub own_nodes: Vec<OwnNode>,
    /// Addresses from which connections come back to this proxy, through another one.
    #[serde(skip)]
    pub loops: Vec<HostPort>,
    /// Brokers known.
    pub nodes: usize,
    /// Topics known.
    pub topics: usize,
}

/// A broker that advertises an address of this proxy.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct OwnNode {
    /// The broker.
    pub node_id: i32,
    /// What it advertises.
    #[serde(serialize_with = "as_text")]
    pub address: HostPort,
    /// The key that makes it ours.
    pub key: &'static str,
}

fn as_text<S: serde::Serializer>(address: &HostPort, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(address)
}

impl fmt::Display for OwnNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            node_id,
            address,
            key,
        } = self;
        write!(
            f,
            "broker {node_id} advertises sizegate's own address {address} ({key}): set the broker's advertised.listeners \
             to its own address, or move this key to another"
        )
    }
}

/// The parts that change.
#[derive(Debug)]
pub(super) struct Condition {
    is_reached: AtomicBool,
    refreshed_at: MomentCell,
    said: Mutex<Said>,
    /// The configured node ids; `None` when every node has an address for clients.
    node_ids: Option<HashSet<i32>>,
    /// Writes the ACL to grant.
    commands: Commands,
}

/// What was logged last.
#[derive(Debug, Default)]
struct Said {
    error: Option<(&'static str, String)>,
    was_up: bool,
    /// DescribeConfigs.
    forbidden: Option<String>,
    /// Describe.
    hidden: Option<Hidden>,
    was_hidden: bool,
    nodes_outside: Vec<i32>,
    own_nodes: Vec<OwnNode>,
}

/// A topic that a client uses and that we may not see.
#[derive(Debug)]
struct Hidden {
    topic: Key,
    text: String,
    /// The last look-up that met it.
    at: Instant,
}

/// Nobody asked for a hidden topic in so long: it may be gone, which looks the same from here.
const HIDDEN_FOR: Duration = Duration::from_secs(600);

impl Condition {
    pub(super) fn new(config: &Config) -> Self {
        Self {
            is_reached: AtomicBool::new(false),
            refreshed_at: MomentCell::default(),
            said: Mutex::default(),
            node_ids: match &config.listener.advertise {
                Advertise::NodePorts { node_ids, .. } => Some(node_ids.iter().copied().collect()),
                Advertise::Sni { .. } => None,
            },
            commands: Commands::new(config),
        }
    }

    pub(super) fn is_reached(&self) -> bool {
        self.is_reached.load(Relaxed)
    }

    pub(super) fn reached(&self) {
        self.is_reached.store(true, Relaxed);
    }

    /// A refresh succeeded. `true`: the first.
    pub(super) fn refreshed(&self) -> bool {
        let is_first = self.refreshed_at.get().is_none();
        self.refreshed_at.set(Instant::now());
        let mut said = self.lock();
        let was_down = said.error.take().is_some();
        if was_down || !said.was_up {
            tracing::info!("control plane is up: topics and limits are read from Kafka");
        }
        said.was_up = true;
        is_first
    }

    pub(super) fn failed(&self, error: &CallError) {
        self.is_reached.store(is_response(error), Relaxed);
        let text = error.to_string();
        let mut said = self.lock();
        let is_news = said
            .error
            .as_ref()
            .is_none_or(|(label, _)| *label != error.label());
        if is_news {
            tracing::warn!(
                error = text,
                kind = error.label(),
                "control plane is down: limits are not learned until Kafka answers; trying on"
            );
        } else {
            tracing::debug!(error = text, "control plane is still down");
        }
        said.error = Some((error.label(), text));
        said.was_up = false;
    }

    /// After a refresh: so many of all topics may not be described; and what is seen now is hidden no longer.
    pub(super) fn forbidden(
        &self,
        forbidden: usize,
        topics: usize,
        is_seen: impl FnOnce(&Key) -> bool,
    ) {
        let text = (forbidden > 0).then(|| {
            format!(
                "the limits of {forbidden} of {topics} topics cannot be read; rules still hold. Grant: {}",
                self.commands.allow(&["DescribeConfigs"], Resource::Topic("*"))
            )
        });
        let mut said = self.lock();
        match (&text, &said.forbidden) {
            (Some(text), None) => tracing::warn!("{text}"),
            (None, Some(_)) => tracing::info!("the limits of all topics can be read now"),
            _ => {}
        }
        said.forbidden = text;
        let is_over = |hidden: &Hidden| hidden.at.elapsed() > HIDDEN_FOR || is_seen(&hidden.topic);
        if said.hidden.as_ref().is_some_and(is_over) {
            said.hidden = None;
        }
    }

    /// A client uses a topic that we may not even see.
    pub(super) fn hidden(&self, topic: &Key) {
        let text = format!(
            "topic {topic} is hidden from the proxy, and its limits with it; rules still hold. Grant: {}",
            self.commands
                .allow(&["Describe", "DescribeConfigs"], Resource::Topic("*"))
        );
        let mut said = self.lock();
        if !said.was_hidden {
            tracing::warn!("{text}");
        }
        said.was_hidden = true;
        said.hidden = Some(Hidden {
            topic: topic.clone(),
            text,
            at: Instant::now(),
        });
    }

    /// These nodes are known now.
    pub(super) fn nodes(&self, known: &[i32]) {
        let Some(node_ids) = &self.node_ids else {
            return;
        };
        let outside: Vec<i32> = known
            .iter()
            .copied()
            .filter(|id| !node_ids.contains(id))
            .collect();
        let mut said = self.lock();
        if !outside.is_empty() && outside != said.nodes_outside {
            tracing::error!(
                ?outside,
                "brokers are outside listener.node_ports.node_ids: clients cannot be sent to them; add them there \
                 and restart"
            );
        }
        if outside.is_empty() && !said.nodes_outside.is_empty() {
            tracing::info!("all brokers are within listener.node_ports.node_ids now");
        }
        said.nodes_outside = outside;
    }

    /// Of the brokers known now, these advertise addresses of ours.
    pub(super) fn own_nodes(&self, own: Vec<OwnNode>) {
        let mut said = self.lock();
        for node in own.iter().filter(|node| !said.own_nodes.contains(node)) {
            tracing::error!("{node}");
        }
        if own.is_empty() && !said.own_nodes.is_empty() {
            tracing::info!("no broker advertises an address of this sizegate any more");
        }
        said.own_nodes = own;
    }

    pub(super) fn status(&self, nodes: usize, topics: usize, loops: Vec<HostPort>) -> Status {
        let said = self.lock();
        Status {
            is_reached: self.is_reached(),
            is_up: said.was_up,
            error: said.error.as_ref().map(|(_, text)| text.clone()),
            missing_rights: match &said.hidden {
                Some(hidden) => Some(hidden.text.clone()),
                None => said.forbidden.clone(),
            },
            refresh_age: self.refreshed_at.get().map(|at| at.elapsed()),
            nodes_outside: said.nodes_outside.clone(),
            own_nodes: said.own_nodes.clone(),
            loops,
            nodes,
            topics,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// ApiVersions is answered before anyone is authenticated: who fails later has met a broker. So a cluster that gives us
/// no credentials still counts as reached.
fn is_response(error: &CallError) -> bool {
    match error {
        CallError::Connect(_) => false,
        CallError::Io { api, .. }
        | CallError::Closed { api, .. }
        | CallError::Timeout { api, .. }
        | CallError::Malformed { api, .. } => *api != ApiKey::ApiVersions,
        CallError::Authentication { .. }
        | CallError::Refused { .. }
        | CallError::Unsupported { .. } => true,
        CallError::Every(errors) => errors.iter().any(is_response),
    }
}
