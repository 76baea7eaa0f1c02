//! What brokers take of one request: `socket.request.max.bytes`. A broker closes the connection on more, without a word, and
//! clients send it again for minutes.
//!
//! Invariant: the setting is static, so what was read of a broker holds until it restarts; before it refuses it is read again
//! (`Cluster::read_frame_limit`). Sessions that send less than the smallest limit pay one atomic load.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::control_plane::ControlPlane;
use super::limits::MomentCell;
use super::{ASK_DEADLINE, Cluster, survey};
use crate::findings::{BrokerFacts, Setting, SettingSource};
use crate::net::deadline_in;

/// How often it is looked for brokers that have not been asked.
const LOOK: Duration = Duration::from_secs(1);
/// The same before any broker is known.
const FIRST_LOOK: Duration = Duration::from_millis(50);
/// A broker is asked again after this time: it may have restarted.
const OLD: Duration = Duration::from_secs(300);
/// And one that told nothing: the permission may have been given.
const UNTOLD: Duration = Duration::from_secs(30);
/// No broker restarts in less: what was read within it refuses without being read again.
const CURRENT: Duration = Duration::from_secs(1);

/// One broker's limit of a request.
#[derive(Debug, Default)]
pub(super) struct FrameCell {
    /// 0: not known.
    bytes: AtomicU64,
    asked_at: MomentCell,
}

impl FrameCell {
    pub(super) fn get(&self) -> Option<u64> {
        Some(self.bytes.load(Relaxed)).filter(|bytes| *bytes > 0)
    }

    fn set(&self, bytes: Option<u64>, at: Instant) {
        self.bytes.store(bytes.unwrap_or(0), Relaxed);
        self.asked_at.set(at);
    }

    fn is_due(&self) -> bool {
        self.is_older_than(if self.get().is_some() { OLD } else { UNTOLD })
    }

    fn is_older_than(&self, age: Duration) -> bool {
        self.asked_at.get().is_none_or(|at| at.elapsed() > age)
    }
}

/// Asks every broker, those that join later too.
pub(super) async fn run(shared: Arc<ControlPlane>) {
    loop {
        let all = shared.registry.node_ids();
        let pause = if all.is_empty() { FIRST_LOOK } else { LOOK };
        for node_id in all {
            let node = shared.registry.node(node_id);
            if node.is_some_and(|node| node.frame.is_due()) {
                read(&shared, node_id).await;
            }
        }
        sleep(pause).await;
    }
}

/// Asks one broker. What it does not tell, for want of a permission or of a response, is not known.
async fn read(shared: &ControlPlane, node_id: i32) -> Option<u64> {
    let node = shared.registry.node(node_id)?;
    let began = Instant::now();
    let deadline = deadline_in(ASK_DEADLINE);
    let asked = async {
        let mut link = shared.open(&node.address, deadline).await?;
        survey::read_socket_limit(&mut link, node_id, deadline).await
    };
    let bytes = asked.await.ok().flatten();
    node.frame.set(bytes, began);
    shared.registry.set_least_frame_limit();
    bytes
}

impl Cluster {
    /// The smallest limit of any broker, `u64::MAX` where none is known. One atomic load.
    pub fn least_frame_limit(&self) -> u64 {
        self.0.shared.registry.least_frame_limit()
    }

    /// The broker's limit of one request as it is now; `None` where it may not be read. `node_id`: `None` is a broker of which
    /// nobody knows which it is: the largest limit, if all are known.
    pub async fn read_frame_limit(&self, node_id: Option<i32>) -> Option<u64> {
        let shared = &self.0.shared;
        let all = shared.registry.node_ids();
        let asked = match node_id {
            Some(node_id) => vec![node_id],
            None => all,
        };
        let mut largest = None;
        for node_id in asked {
            let node = shared.registry.node(node_id)?;
            let bytes = if node.frame.is_older_than(CURRENT) {
                read(shared, node_id).await
            } else {
                node.frame.get()
            };
            largest = largest.max(Some(bytes?));
        }
        largest
    }

    /// Whether the limit of this broker, or of each, is known.
    pub fn knows_frame_limit(&self, node_id: Option<i32>) -> bool {
        let registry = &self.0.shared.registry;
        let is_known = |id: i32| {
            registry
                .node(id)
                .is_some_and(|node| node.frame.get().is_some())
        };
        match node_id {
            Some(node_id) => is_known(node_id),
            None => registry.node_ids().into_iter().all(is_known),
        }
    }

    /// What is known of the brokers' own settings, without asking.
    pub fn broker_facts(&self) -> Vec<BrokerFacts> {
        let registry = &self.0.shared.registry;
        let facts = |node_id| {
            let socket = registry.node(node_id)?.frame.get()?;
            Some(BrokerFacts {
                node_id,
                socket_request_max_bytes: Some(Setting::of(socket, SettingSource::Broker)),
                ..BrokerFacts::default()
            })
        };
        registry.node_ids().into_iter().filter_map(facts).collect()
    }
}
