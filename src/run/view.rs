//! Shows a running proxy's state: to the admin server, and to Prometheus at each scrape.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio_util::sync::CancellationToken;

use super::instance;
use crate::admin::{
    AdminState, ControlPlaneView, LimitView, Readiness, ReloadView, Replicas, StatusView, TopicView,
};
use crate::cluster::{Cluster, Status, Topic};
use crate::config::{Codecs, Config, TopicConfig};
use crate::explain::{self, BadQuestion, Explanation, Facts, Question};
use crate::findings::Unseen;
use crate::policy::{Learned, Limit, TopicPolicy};
use crate::proxy::Shared;
use crate::telemetry::{FamilyFit, Known};

/// `draining`: the listener accepts no longer.
pub(super) fn admin_state(
    config: &Arc<ArcSwap<Config>>,
    shared: &Arc<Shared>,
    reloaded: &Arc<ArcSwapOption<ReloadView>>,
    draining: CancellationToken,
) -> AdminState {
    let for_notes = shared.cluster.clone();
    let (for_ready, for_topics, for_explain) =
        (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
    let (explained, config) = (Arc::clone(config), Arc::clone(config));
    let status = {
        let (shared, config, reloaded) = (
            Arc::clone(shared),
            Arc::clone(&config),
            Arc::clone(reloaded),
        );
        let draining = draining.clone();
        move || {
            let ready = shared.readiness(draining.is_cancelled());
            shared.status_view(&config.load(), &reloaded, ready)
        }
    };
    let for_families = Arc::clone(shared);
    let (peers, telemetry) = (Arc::clone(&config), Arc::clone(&config));
    let replicas = Replicas::new(&instance(&config.load()), move || {
        peers.load().admin_peers.clone()
    });
    AdminState {
        metrics: Arc::clone(&shared.metrics),
        histograms: Arc::new(move || telemetry.load().telemetry.histograms),
        refusals: Arc::clone(&shared.refusals),
        observed: Arc::clone(&shared.observed),
        ready: Arc::new(move || for_ready.readiness(draining.is_cancelled())),
        status: Arc::new(status),
        notes: Arc::new(move || notes(for_notes.status())),
        topics: Arc::new(move || for_topics.topic_views()),
        explain: Arc::new(move |question| for_explain.explain(&explained.load(), question)),
        replicas,
        families: Arc::new(move || for_families.family_views()),
        config: Arc::new(move || config.load().to_json()),
    }
}

/// What the control plane lacks while clients are served: rules hold all the same.
fn notes(status: Status) -> Vec<String> {
    let unlearned = status
        .error
        .map(|error| format!("limits are not learned now, and the last known hold: {error}"));
    let outside: Vec<String> = status.nodes_outside.iter().map(outside_text).collect();
    outside
        .into_iter()
        .chain(status.missing_rights)
        .chain(unlearned)
        .collect()
}

/// The others are served all the same.
fn outside_text(node_id: &i32) -> String {
    format!(
        "broker {node_id} is outside listener.node_ports.node_ids: clients cannot be sent to it; add it there and restart"
    )
}

impl Shared {
    fn topic_views(&self) -> Vec<TopicView> {
        self.cluster
            .topics()
            .iter()
            .map(|topic| self.topic_view(topic))
            .collect()
    }

    fn status_view(
        &self,
        config: &Config,
        reloaded: &ArcSwapOption<ReloadView>,
        ready: Readiness,
    ) -> StatusView {
        let cluster = self.cluster.status();
        StatusView {
            version: env!("CARGO_PKG_VERSION"),
            instance: instance(config),
            mode: config.mode.label(),
            near_limit: config.near_limit,
            why_not_ready: ready.why_not,
            control_plane: ControlPlaneView {
                is_up: cluster.is_up,
                error: cluster.error,
                missing_rights: cluster.missing_rights,
                brokers_outside: cluster.nodes_outside.iter().map(outside_text).collect(),
                limits_age_seconds: cluster.refresh_age.map(|age| age.as_secs()),
                brokers: cluster.nodes,
                topics: cluster.topics,
            },
            reload: reloaded.load().as_deref().cloned(),
            connections: self.metrics.open_connections(),
            held_bytes: self.budget.held_bytes() as u64,
            memory_budget_bytes: config.memory_budget_bytes,
            memory_waits: self.metrics.memory_waits.get(),
        }
    }

    /// From what is known now: nothing is asked for it.
    fn explain(&self, config: &Config, question: &Question) -> Result<Explanation, BadQuestion> {
        let topic = self.cluster.topic(&question.topic);
        let facts = topic.map(|topic| self.cluster.known_facts(&topic));
        let mut unseen: Vec<Unseen> = Vec::new();
        let status = self.cluster.status();
        // Where all topics are seen, one that is not there does not exist.
        if facts.is_none() && status.is_up && status.missing_rights.is_none() {
            question.check()?;
            return Err(BadQuestion::UnknownTopic(question.topic.clone()));
        }
        unseen.extend(
            status
                .missing_rights
                .map(|what| Unseen { what, grant: None }),
        );
        unseen.extend(status.error.map(|error| Unseen {
            what: format!("the control plane is down, so limits may have changed: {error}"),
            grant: None,
        }));
        if facts.is_none() {
            unseen.push(Unseen {
                what: format!("the control plane knows no topic {}", question.topic),
                grant: None,
            });
        }
        let ground = Facts {
            config,
            policy: &self.policy.load(),
            topic: facts.as_ref(),
            brokers: &self.cluster.broker_facts(),
            batch_limit_of: &|topic| Some(self.cluster.topic(topic)?.batch_limit()?.0),
            unseen,
        };
        explain::explain(question, &ground)
    }

    fn topic_view(&self, topic: &Topic) -> TopicView {
        let all = self.policy.load();
        let policy = all.for_topic(&topic.name);
        let rule = all.rule_for(&topic.name);
        let metrics = self.metrics.known_topic(&topic.name);
        TopicView {
            topic: topic.name.to_string(),
            rule: rule.map(|rule| rule.name.clone()),
            action: policy.action,
            limits: in_force(&self.cluster, &policy, Some(topic))
                .iter()
                .map(LimitView::from)
                .collect(),
            topic_config: rule
                .and_then(|rule| rule.topic_config.as_ref())
                .map(TopicConfig::to_json),
            codecs: rule
                .and_then(|rule| rule.codecs.as_ref())
                .map(Codecs::to_json),
            batches: metrics.as_ref().map(|metrics| metrics.batch_counts()),
            last: metrics.as_ref().map(|metrics| metrics.last_sizes()),
            largest: metrics.as_ref().map(|metrics| metrics.largest_sizes()),
            gates: metrics.map_or_else(Vec::new, |metrics| metrics.gate_counts()),
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

    fn families(&self, most: usize) -> Vec<FamilyFit> {
        self.family_fits(most)
    }

    fn is_control_plane_up(&self) -> bool {
        let status = self.cluster.status();
        status.is_up && status.missing_rights.is_none()
    }

    fn is_ready(&self) -> bool {
        let is_draining = self.is_draining.load(Ordering::Relaxed);
        self.readiness(is_draining).is_ready()
    }

    fn certificates(&self) -> Vec<(&'static str, u64)> {
        self.certificates.load().to_vec()
    }

    fn limits_age(&self) -> Option<Duration> {
        self.cluster.status().refresh_age
    }

    fn unusable_brokers(&self) -> Vec<(i32, &'static str)> {
        let status = self.cluster.status();
        let outside = status.nodes_outside.iter();
        let outside = outside.map(|node_id| (*node_id, "outside_node_ids"));
        let own = status.own_nodes.iter();
        outside
            .chain(own.map(|node| (node.node_id, "own_address")))
            .collect()
    }
}

impl Shared {
    /// The limits in force on a topic, each with its source.
    pub fn limits_in_force(&self, topic: &str, known: Option<&Arc<Topic>>) -> Vec<Limit> {
        let policy = self.policy.load().for_topic(topic);
        in_force(&self.cluster, &policy, known.map(|known| &**known))
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
        .chain(policy.codecs.iter().map(|rule| rule.limit()))
        .collect()
}
