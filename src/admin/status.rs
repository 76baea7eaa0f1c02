//! `/api/v1/status`: what a person on call asks first.

use std::time::SystemTime;

use serde::Serialize;

use crate::text::as_rfc3339;

/// How the process fares.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StatusView {
    /// Of the program.
    pub version: &'static str,
    /// Which sizegate this is: host and admin port.
    pub instance: String,
    /// `enforce` or `observe`.
    pub mode: &'static str,
    /// The share of a limit above which a size counts as near it.
    pub near_limit: f64,
    /// As in [`super::Readiness`]; empty: ready.
    pub why_not_ready: Vec<String>,
    /// What is known of the cluster.
    pub control_plane: ControlPlaneView,
    /// The last time the configuration was read again; `None`: not since the start.
    pub reload: Option<ReloadView>,
    /// Client connections open now.
    pub connections: u64,
    /// Bytes of requests and responses held now.
    pub held_bytes: u64,
    /// `memory.budget`.
    pub memory_budget_bytes: u64,
    /// Times a connection waited for memory since the start.
    pub memory_waits: u64,
}

/// How learning topics and limits goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ControlPlaneView {
    /// The last refresh succeeded.
    pub is_up: bool,
    /// Why it did not.
    pub error: Option<String>,
    /// What may not be seen, and the ACL to grant.
    pub missing_rights: Option<String>,
    /// Brokers that `listener.node_ports.node_ids` leaves out, a sentence each.
    pub brokers_outside: Vec<String>,
    /// Time since limits were read; `None` before the first time.
    pub limits_age_seconds: Option<u64>,
    /// Brokers known.
    pub brokers: usize,
    /// Topics known.
    pub topics: usize,
}

/// What became of the configuration when it was read again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReloadView {
    /// When.
    #[serde(serialize_with = "as_rfc3339")]
    pub at: SystemTime,
    /// Its mistakes, one a line: the last good configuration stays in force. `None`: the new one is in force.
    pub error: Option<String>,
    /// Keys that changed and are in force only after a restart.
    pub needs_restart: Vec<String>,
}
