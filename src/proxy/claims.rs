//! The object store as sessions see it: who uploads, where a topic's objects lie, and the memory that work on them takes.
//!
//! Memory that is made for offloading has a lane of its own beside the budget of frames, taken whole and before any of
//! it is made. Who holds some of the lane waits for the store alone, never for the budget: there is no circle.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::fallback::{Fallbacks, OfCluster};
use crate::claim::{Handle, Namespace, Service};
use crate::cluster::Cluster;
use crate::config::ClaimCheck;
use crate::telemetry::Metrics;

/// The lane's share of the budget's size.
const LANE: usize = 2;
/// The same, for originals on their way to consumers.
const VALUES: usize = 2;
/// Fallback records that wait to be written: tickets, a kilobyte each.
const FALLBACK_BYTES: u32 = 16 * 1024 * 1024;
/// What the lane is counted in.
const UNIT_BYTES: usize = 1024;

/// The claim check's store and lane.
pub struct Claims {
    handle: Handle,
    /// Taken when the process ends.
    service: Mutex<Option<Service>>,
    store: String,
    namespace: OnceLock<Arc<Namespace>>,
    lane: Arc<Semaphore>,
    lane_units: u32,
    fallbacks: Fallbacks,
}

/// Why there is no store.
#[derive(Debug, thiserror::Error)]
#[error("claim_check.store: {0}")]
pub struct NoStore(String);

impl Claims {
    /// Opens the store; sends nothing yet.
    ///
    /// # Errors
    /// It cannot be one, or the system gives no thread.
    pub fn open(
        config: &ClaimCheck,
        budget_bytes: usize,
        metrics: &Metrics,
        cluster: &Cluster,
    ) -> Result<Self, NoStore> {
        let store = config.open_store().map_err(|error| NoStore(error.0))?;
        let values_bytes = budget_bytes / VALUES;
        let service = Service::start(store, Arc::clone(metrics.claims()), values_bytes)
            .map_err(|error| NoStore(error.to_string()))?;
        let lane_units = u32::try_from(budget_bytes / LANE / UNIT_BYTES).unwrap_or(u32::MAX / 8);
        let lane_units = lane_units.clamp(1, u32::MAX / 8);
        let service_handle = service.handle();
        let topics = OfCluster {
            producer: cluster.producer(FALLBACK_BYTES),
            cluster: cluster.clone(),
        };
        Ok(Self {
            handle: service.handle(),
            service: Mutex::new(Some(service)),
            store: config.store.to_string(),
            namespace: OnceLock::new(),
            lane: Arc::new(Semaphore::new(lane_units as usize)),
            lane_units,
            fallbacks: Fallbacks::new(Arc::new(topics), service_handle),
        })
    }

    /// Where records go whose tickets cannot be redeemed.
    pub const fn fallbacks(&self) -> &Fallbacks {
        &self.fallbacks
    }

    /// Who uploads.
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Where objects lie; `None` until a broker has told the cluster's id.
    pub fn namespace(&self, cluster: &Cluster) -> Option<Arc<Namespace>> {
        if let Some(known) = self.namespace.get() {
            return Some(Arc::clone(known));
        }
        let id = cluster.cluster_id()?;
        let made = || Arc::new(Namespace::new(&self.store, &id));
        Some(Arc::clone(self.namespace.get_or_init(made)))
    }

    /// Bytes of the whole lane.
    pub fn lane_bytes(&self) -> u64 {
        u64::from(self.lane_units).saturating_mul(UNIT_BYTES as u64)
    }

    /// Waits in turn for memory; who asks for more than all of it gets all. `None`: not in time.
    pub async fn room(&self, bytes: u64, deadline: Instant) -> Option<OwnedSemaphorePermit> {
        let units = bytes.div_ceil(UNIT_BYTES as u64);
        let units = u32::try_from(units)
            .unwrap_or(u32::MAX)
            .min(self.lane_units);
        let room = Arc::clone(&self.lane).acquire_many_owned(units);
        tokio::time::timeout_at(deadline.into(), room)
            .await
            .ok()?
            .ok()
    }

    /// Takes nothing new, and waits until what was begun is over.
    pub fn finish(&self) {
        let service = self
            .service
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(service) = service {
            service.finish();
        }
    }
}
