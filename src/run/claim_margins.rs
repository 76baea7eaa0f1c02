//! Compares, while the proxy runs, how long objects are kept with how long their tickets may lie on the broker, and shows
//! what is left over as a metric.
//!
//! Invariant: a margin that is not known is not shown.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::cluster::Wanted;
use crate::findings::Commands;
use crate::findings::claims::need;
use crate::proxy::Shared;

/// Settings that decide it change seldom, and whoever has a day is told early enough.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// The same while nothing is known of the cluster.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// Topics that are looked at: those with metrics of their own are no more by default.
const MOST_TOPICS: usize = 1_000;

/// Follows the settings of topics that may hold tickets until shutdown.
pub(super) async fn follow(shared: Arc<Shared>, shutdown: CancellationToken) {
    if shared.claims.is_none() {
        return;
    }
    loop {
        let interval = match look(&shared).await {
            Some(()) => LOOK_INTERVAL,
            None => FIRST_INTERVAL,
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
        }
    }
}

/// `None`: no topic is known, or the cluster was not read.
async fn look(shared: &Shared) -> Option<()> {
    let policy = shared.policy.load_full();
    let topics = shared.cluster.topics();
    topics.first()?;
    let holders = topics
        .iter()
        .filter(|topic| policy.holds_tickets(&topic.name).is_some());
    let names: Vec<String> = holders
        .take(MOST_TOPICS)
        .map(|topic| topic.name.to_string())
        .collect();
    if names.is_empty() {
        shared.metrics.claims().set_margins(BTreeMap::new());
        return Some(());
    }
    let commands = Commands::default();
    let read = shared.cluster.survey(Wanted::Named(&names), &commands);
    let facts = read.await.ok()?;
    let margins = facts.topics.iter().filter_map(|topic| {
        let (_, objects) = policy.holds_tickets(&topic.name)?;
        let need = need(&topic.kept, Duration::ZERO, objects)?;
        // A ticket may stay for ever.
        let seconds = need
            .margin_seconds()
            .map_or(f64::NEG_INFINITY, |seconds| seconds as f64);
        Some((topic.name.to_string(), seconds))
    });
    shared.metrics.claims().set_margins(margins.collect());
    Some(())
}
