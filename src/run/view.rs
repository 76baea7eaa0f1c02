//! What a running proxy shows of itself: to the admin server, and to Prometheus at each scrape.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio_util::sync::CancellationToken;

use crate::admin::{AdminState, LimitView, Readiness, TopicView};
use crate::cluster::{Cluster, Topic};
use crate::config::Config;
use crate::policy::{Learned, Limit, TopicPolicy};
use crate::proxy::Shared;
use crate::telemetry::{FamilyFit, Known};

/// `draining`: the listener accepts no longer.
pub(super) fn admin_state(
    config: &Arc<ArcSwap<Config>>,
    shared: &Arc<Shared>,
    draining: CancellationToken,
) -> AdminState {
    let cluster = shared.cluster.clone();
    let (for_topics, config) = (Arc::clone(shared), Arc::clone(config));
    let for_families = Arc::clone(shared);
    AdminState {
        metrics: Arc::clone(&shared.metrics),
        refusals: Arc::clone(&shared.refusals),
        observed: Arc::clone(&shared.observed),
        ready: Arc::new(move || readiness(&cluster, draining.is_cancelled())),
        topics: Arc::new(move || for_topics.topic_views()),
        families: Arc::new(move || for_families.family_views()),
        config: Arc::new(move || config.load().to_json()),
    }
}

fn readiness(cluster: &Cluster, is_draining: bool) -> Readiness {
    let status = cluster.status();
    let mut why_not = Vec::new();
    if is_draining {
        why_not.push("going down: new connections are not accepted".to_owned());
    }
    if !status.is_reached {
        let error = status
            .error
            .map(|error| format!(": {error}"))
            .unwrap_or_default();
        why_not.push(format!("no broker is reached{error}"));
    }
    if !status.nodes_outside.is_empty() {
        let nodes = status.nodes_outside;
        why_not.push(format!(
            "brokers {nodes:?} are outside listener.node_ports.node_ids"
        ));
    }
    Readiness { why_not }
}

impl Shared {
    fn topic_views(&self) -> Vec<TopicView> {
        self.cluster
            .topics()
            .iter()
            .map(|topic| self.topic_view(topic))
            .collect()
    }

    fn topic_view(&self, topic: &Topic) -> TopicView {
        let all = self.policy.load();
        let policy = all.for_topic(&topic.name);
        let metrics = self.metrics.known_topic(&topic.name);
        TopicView {
            topic: topic.name.to_string(),
            rule: all.rule_for(&topic.name).map(|rule| rule.name.clone()),
            action: policy.action,
            limits: in_force(&self.cluster, &policy, Some(topic))
                .iter()
                .map(LimitView::from)
                .collect(),
            batches: metrics.as_ref().map(|metrics| metrics.batch_counts()),
            last: metrics.map(|metrics| metrics.last_sizes()),
        }
    }
}

impl Known for Shared {
    fn has_topic(&self, topic: &str) -> bool {
        self.cluster.topic(topic).is_some()
    }

    fn limits(&self, topic: &str) -> Vec<Limit> {
        let policy = self.policy.load().for_topic(topic);
        in_force(&self.cluster, &policy, self.cluster.topic(topic).as_deref())
    }

    fn families(&self) -> Vec<FamilyFit> {
        self.family_fits()
    }

    fn is_control_plane_up(&self) -> bool {
        self.cluster.status().is_up
    }

    fn limits_age(&self) -> Option<Duration> {
        self.cluster.status().refresh_age
    }
}

/// Every limit that holds for a topic, the batch gate's first.
fn in_force(cluster: &Cluster, policy: &TopicPolicy, known: Option<&Topic>) -> Vec<Limit> {
    let own = known.and_then(Topic::batch_limit).map(Learned::own);
    let learned = policy.tightest(own, |at| {
        let member = cluster.topic(&policy.members.get(at)?.topic)?;
        member.batch_limit().map(|(bytes, _)| bytes)
    });
    policy
        .batch_limit(learned)
        .into_iter()
        .chain(policy.inside_limits().iter().cloned())
        .collect()
}
