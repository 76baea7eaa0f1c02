//! The admin HTTP server: metrics, health, what is in force and what was refused. `/` lists it for people.
//!
//! Invariants: nothing here changes state; nothing that a topic or a client is called can be executed by a browser;
//! a slow or greedy peer holds one of a few connections for a bounded time.

mod exposition;
mod families;
mod page;
mod replicas;
mod routes;
mod server;
mod status;

use std::sync::Arc;

use serde::Serialize;

use crate::explain::{BadQuestion, Explanation, Question};
use crate::policy::Limit;
use crate::telemetry::{
    BatchCounts, GateCounts, LargestSizes, LastSizes, Metrics, Observed, Refusals,
};
use crate::vocabulary::{Action, Gate, Histograms, Source};

pub use families::{FamilyView, FixView, GapView, MemberView};
pub use replicas::Replicas;
pub use server::serve;
pub use status::{ControlPlaneView, ReloadView, StatusView};

/// Answers `POST /api/v1/explain`.
pub type Explain = dyn Fn(&Question) -> Result<Explanation, BadQuestion> + Send + Sync;

/// What the server shows. Everything is asked again for each request.
#[derive(Clone)]
pub struct AdminState {
    /// `/metrics`, `/api/v1/clients` and `/api/v1/sizes`.
    pub metrics: Arc<Metrics>,
    /// Which histograms `/metrics` has of a topic, where nobody asks for others.
    pub histograms: Arc<dyn Fn() -> Histograms + Send + Sync>,
    /// `/api/v1/refusals`.
    pub refusals: Arc<Refusals>,
    /// `/api/v1/lingering` and `/api/v1/fetch`.
    pub observed: Arc<Observed>,
    /// `/readyz`.
    pub ready: Arc<dyn Fn() -> Readiness + Send + Sync>,
    /// `/api/v1/status`.
    pub status: Arc<dyn Fn() -> StatusView + Send + Sync>,
    /// What clients are served without, each a sentence, told beside `ready`: rights that are missing, limits that
    /// grow old.
    pub notes: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    /// `/api/v1/topics`.
    pub topics: Arc<dyn Fn() -> Vec<TopicView> + Send + Sync>,
    /// `POST /api/v1/explain`.
    pub explain: Arc<Explain>,
    /// `/api/v1/families`.
    pub families: Arc<dyn Fn() -> Vec<FamilyView> + Send + Sync>,
    /// `?peers=1`.
    pub replicas: Replicas,
    /// `/api/v1/config`: secrets are hidden by whoever fills this.
    pub config: Arc<dyn Fn() -> serde_json::Value + Send + Sync>,
}

impl std::fmt::Debug for AdminState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminState").finish_non_exhaustive()
    }
}

/// Whether clients can be served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Why not, each a sentence for people; none: ready.
    pub why_not: Vec<String>,
}

impl Readiness {
    /// Nothing stands in the way.
    pub fn is_ready(&self) -> bool {
        self.why_not.is_empty()
    }
}

/// One topic in `/api/v1/topics`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TopicView {
    /// Its name.
    pub topic: String,
    /// The rule that speaks for it.
    pub rule: Option<String>,
    /// What happens above a limit.
    pub action: Action,
    /// The limits in force.
    pub limits: Vec<LimitView>,
    /// What its rule lets requests set its configs to, as the file writes it; `None`: anything.
    pub topic_config: Option<serde_json::Value>,
    /// The codecs that its rule takes large batches in, as the file writes it; `None`: any.
    pub codecs: Option<serde_json::Value>,
    /// What became of its batches since the start; `None` for a topic that was not produced to through here, or has
    /// no label of its own.
    pub batches: Option<BatchCounts>,
    /// The sizes measured last; `None` likewise.
    pub last: Option<LastSizes>,
    /// The largest sizes since the start; `None` likewise.
    pub largest: Option<LargestSizes>,
    /// The gates at which something was near or above the limit since the start.
    pub gates: Vec<GateCounts>,
}

/// One limit in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LimitView {
    /// The gate it holds for.
    pub gate: Gate,
    /// Bytes; for the gate `ratio` the ratio.
    pub limit_bytes: u64,
    /// Where it comes from.
    pub source: Source,
    /// The rule's or the family member's name.
    pub name: Option<String>,
}

impl From<&Limit> for LimitView {
    fn from(limit: &Limit) -> Self {
        Self {
            gate: limit.gate,
            limit_bytes: limit.value,
            source: limit.source,
            name: limit.name.as_deref().map(str::to_owned),
        }
    }
}
