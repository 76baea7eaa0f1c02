//! Reads all topics and their limits, again and again.
//!
//! Invariant: a failed refresh takes nothing away: what was learned stays, and grows old.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{ApiKey, MetadataRequest};
use tokio::time::sleep;
use uuid::Uuid;

use super::call_error::CallError;
use super::control_plane::ControlPlane;
use super::describe::{self, Described};
use super::link::Link;
use super::responses::METADATA_BY_ID;
use super::topic::Topic;
use crate::count::Count as _;
use crate::error_code::TOPIC_AUTHORIZATION_FAILED;
use crate::net::{deadline_in, share};

/// For one call of a refresh: a list of a million partitions takes seconds.
const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// First and longest pause after a failed refresh.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Refreshes for ever.
pub(super) async fn run(shared: Arc<ControlPlane>) {
    let mut link = None;
    let mut failures = 0u32;
    let mut pace = Pace::AtOnce;
    loop {
        let began = Instant::now();
        let pause = match refresh_even_by_a_new_link(&shared, &mut link, pace).await {
            Ok(()) => {
                if shared.condition.refreshed() {
                    // There may be no topic: who waits for them is told all the same.
                    shared.registry.announce_topics();
                }
                failures = 0;
                pace = Pace::Spread;
                jittered(shared.refresh_interval).saturating_sub(began.elapsed())
            }
            Err(error) => {
                shared.condition.failed(&error);
                link = None;
                let doubled = BACKOFF.0.saturating_mul(1 << failures.min(10));
                failures = failures.saturating_add(1);
                jittered(doubled.min(BACKOFF.1).min(shared.refresh_interval))
            }
        };
        sleep(pause).await;
    }
}

/// How the pages of a refresh follow each other.
#[derive(Debug, Clone, Copy)]
enum Pace {
    /// The first time: limits are needed.
    AtOnce,
    /// Later: over half the interval, so that many topics are no burst of work for the broker.
    Spread,
}

/// A refresh over the kept link, or a new one where that has gone stale during the pause.
async fn refresh_even_by_a_new_link(
    shared: &ControlPlane,
    link: &mut Option<Link>,
    pace: Pace,
) -> Result<(), CallError> {
    if let Some(kept) = link {
        match refresh(shared, kept, pace).await {
            Err(error) if error.may_be_stale() => {}
            result => return result,
        }
    }
    let deadline = deadline_in(CALL_DEADLINE);
    let link = link.insert(shared.open_any(deadline).await?);
    refresh(shared, link, pace).await
}

async fn refresh(shared: &ControlPlane, link: &mut Link, pace: Pace) -> Result<(), CallError> {
    let sent_at = Instant::now();
    let request = MetadataRequest::default()
        .with_topics(None)
        .with_allow_auto_topic_creation(false);
    let deadline = deadline_in(CALL_DEADLINE);
    let metadata = link.metadata(&request, deadline).await?;
    shared.condition.reached();
    shared.learn_nodes(&metadata);
    shared.learn_cluster_id(metadata.cluster_id());
    let own = shared.own_nodes(&metadata.nodes()).await;
    shared.condition.own_nodes(own);
    shared.look_for_loops().await;
    shared.registry.reserve(metadata.topics_count());
    metadata.each_topic(|entry| {
        if let Some(observation) = entry.observation() {
            shared.registry.see(&observation, sent_at);
        }
    });
    drop(metadata);
    let unnamed = shared.registry.unnamed(sent_at);
    look_for_hidden(shared, link, &unnamed).await?;
    shared.registry.sweep(&unnamed, sent_at);

    let topics = shared.registry.topics();
    let pages = topics.len().div_ceil(describe::PAGE);
    let pause = match pace {
        Pace::Spread if pages > 1 => share(shared.refresh_interval, pages.saturating_mul(2)),
        _ => Duration::ZERO,
    };
    let mut forbidden = 0usize;
    for (turn, page) in topics.chunks(describe::PAGE).enumerate() {
        if turn > 0 {
            sleep(pause).await;
        }
        let deadline = deadline_in(CALL_DEADLINE);
        let outcomes = describe::describe(link, &shared.registry, page, deadline).await?;
        let hidden = outcomes
            .iter()
            .filter(|outcome| **outcome == Described::Forbidden);
        forbidden.increase_by(hidden.count());
    }
    shared
        .condition
        .forbidden(forbidden, topics.len(), |topic| {
            shared.registry.is_known(topic)
        });
    Ok(())
}

/// A list of all topics leaves out what we may not see (any more), and what is gone. By their ids a broker tells them
/// apart: what is hidden stays known, as what clients are told of does. Once a topic: then it counts as metadata tap.
async fn look_for_hidden(
    shared: &ControlPlane,
    link: &mut Link,
    unnamed: &[Arc<Topic>],
) -> Result<(), CallError> {
    if !link.speaks(ApiKey::Metadata, METADATA_BY_ID) {
        return Ok(());
    }
    let ours = |topic: &&Arc<Topic>| !topic.is_from_clients() && !topic.id.is_nil();
    let ours: Vec<&Arc<Topic>> = unnamed.iter().filter(ours).collect();
    for page in ours.chunks(describe::PAGE) {
        let sent_at = Instant::now();
        let ids = page.iter().map(|topic| {
            MetadataRequestTopic::default()
                .with_name(None)
                .with_topic_id(topic.id)
        });
        let request = MetadataRequest::default()
            .with_topics(Some(ids.collect()))
            .with_allow_auto_topic_creation(false);
        let deadline = deadline_in(CALL_DEADLINE);
        let metadata = link.metadata(&request, deadline).await?;
        metadata.each_topic(|entry| match entry.observation() {
            Some(observation) => {
                shared.registry.see(&observation, sent_at);
            }
            None if entry.error_code == TOPIC_AUTHORIZATION_FAILED => {
                let hidden = page.iter().find(|topic| topic.id == entry.id);
                if let Some(hidden) = hidden {
                    hidden.set_from_clients(true);
                    hidden.saw(sent_at, None);
                }
            }
            None => {}
        });
    }
    Ok(())
}

/// Between four and five fifths of it, so that many proxies do not ask in step.
fn jittered(pause: Duration) -> Duration {
    let [byte, ..] = Uuid::new_v4().into_bytes();
    pause.mul_f64(0.8 + 0.2 * f64::from(byte) / 255.0)
}
