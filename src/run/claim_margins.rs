//! Compares, while the proxy runs, how long objects are kept with how long their tickets may lie on the broker, and shows
//! what is left over as a metric.
//!
//! Invariant: a margin that is not known is not shown.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::claim::Need;
use crate::cluster::Wanted;
use crate::config::ClaimCheck;
use crate::findings::{Commands, Stay, TopicFacts};
use crate::proxy::Shared;

/// Settings that decide it change seldom, and whoever has a day is told early enough.
const LOOK_INTERVAL: Duration = Duration::from_secs(60);
/// The same while nothing is known of the cluster.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// Topics that are looked at: those with metrics of their own are no more by default.
const MOST_TOPICS: usize = 1_000;

/// Follows the settings of topics that offload, and of their fallback topics, until shutdown.
pub(super) async fn follow(
    shared: Arc<Shared>,
    claim: Option<ClaimCheck>,
    shutdown: CancellationToken,
) {
    let Some(claim) = claim else { return };
    loop {
        let interval = match look(&shared, &claim).await {
            Some(()) => LOOK_INTERVAL,
            None => FIRST_INTERVAL,
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(interval) => {}
        }
    }
}

/// `None`: no topic is known that offloads, or the cluster was not read.
async fn look(shared: &Shared, claim: &ClaimCheck) -> Option<()> {
    let names = holders(shared, claim);
    if names.is_empty() {
        return None;
    }
    let commands = Commands::default();
    let facts = shared
        .cluster
        .survey(Wanted::Named(&names), &commands)
        .await
        .ok()?;
    let margins = facts.topics.iter().filter_map(|topic| {
        let seconds = margin_seconds(topic, claim.retention)?;
        Some((topic.name.to_string(), seconds))
    });
    shared.metrics.claims().set_margins(margins.collect());
    Some(())
}

/// Topics that may hold tickets.
fn holders(shared: &Shared, claim: &ClaimCheck) -> Vec<String> {
    let policy = shared.policy.load();
    let topics = shared.cluster.topics();
    let offloading = topics
        .iter()
        .filter(|topic| policy.may_offload(&topic.name).is_some());
    offloading
        .take(MOST_TOPICS)
        .flat_map(|topic| [topic.name.to_string(), claim.fallback_of(&topic.name)])
        .collect()
}

/// Seconds that are left over; `-∞`: a ticket may stay for ever.
fn margin_seconds(topic: &TopicFacts, kept: Duration) -> Option<f64> {
    let stays = match topic.kept.longest()? {
        Stay::AtMost(time) => Some(time),
        Stay::ForEver => None,
    };
    let margin = Need::new(stays, Duration::ZERO, kept).margin_seconds();
    Some(margin.map_or(f64::NEG_INFINITY, |seconds| seconds as f64))
}
