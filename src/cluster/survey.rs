//! Reads everything that `check --cluster`, `align` and `explain` compare: all topics' and all brokers' settings of
//! sizes, each with the chain it comes from (`settings.rs` reads it from a response).
//!
//! Invariant: requests are paged; what could not be read is named, with the ACL where a right is missing, and is
//! never taken for a default.

mod settings;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResult;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{DescribeConfigsRequest, MetadataRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::call_error::CallError;
use super::describe::PAGE;
use super::link::Link;
use super::responses::failure_name;
use super::{Cluster, control_plane::ControlPlane};
use crate::config::HostPort;
use crate::error_code::{
    CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
};
use crate::findings::{BrokerFacts, ClusterFacts, Commands, Resource, TopicFacts, Unseen};
use crate::net::deadline_in;
use settings::{BROKER_KEYS, SOCKET_REQUEST_MAX_BYTES, TOPIC_KEYS, fill, fill_broker};

pub(super) use settings::known_facts;

/// For finding a broker that answers.
pub(super) const OPEN_DEADLINE: Duration = Duration::from_secs(15);
/// For one call: a list of a million partitions takes seconds.
pub(super) const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// `ConfigResource.Type`
pub(super) const RESOURCE_TOPIC: i8 = 2;
const RESOURCE_BROKER: i8 = 4;

/// `ClusterConfigNotAllowed` and such stand for themselves; these two say that a right is missing.
pub(super) const FORBIDDEN: [i16; 2] = [TOPIC_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED];

/// Which topics are read.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// All that we may see, and of these names those that we may not see or that do not exist are told apart.
    All(&'a [String]),
    /// These alone.
    Named(&'a [String]),
}

impl Cluster {
    /// Reads the settings of topics and brokers now. Works without [`Cluster::run`].
    ///
    /// # Errors
    /// No broker answered, or the one that did stopped. That rights are missing is no error: it is told.
    pub async fn survey(
        &self,
        wanted: Wanted<'_>,
        commands: &Commands,
    ) -> Result<ClusterFacts, CallError> {
        let shared = &self.0.shared;
        let mut link = shared.open_any(deadline_in(OPEN_DEADLINE)).await?;
        let mut facts = ClusterFacts::default();
        let mut nodes = match wanted {
            Wanted::Named(names) => named(&mut link, names, &mut facts, commands).await?,
            Wanted::All(names) => {
                let nodes = all(&mut link, &mut facts).await?;
                let missed: Vec<String> = names
                    .iter()
                    .filter(|name| facts.topic(name).is_none())
                    .cloned()
                    .collect();
                if !missed.is_empty() {
                    named(&mut link, &missed, &mut facts, commands).await?;
                }
                nodes
            }
        };
        describe_topics(&mut link, &mut facts, commands).await?;
        drop(link);
        let own = shared.own_nodes(&nodes).await;
        nodes.retain(|(node_id, _)| own.iter().all(|own| own.node_id != *node_id));
        facts.unseen.extend(own.iter().map(|own| Unseen {
            what: own.to_string(),
            grant: None,
        }));
        facts.brokers = describe_brokers(shared, nodes, &mut facts.unseen, commands).await;
        Ok(facts)
    }

    /// Whether a topic is compacted, asked for now; `None`: there is no such topic, or our principal may not know.
    ///
    /// # Errors
    /// No broker answered, or the one that did stopped.
    pub async fn is_compacted(&self, topic: &str) -> Result<Option<bool>, CallError> {
        let mut link = self.0.shared.open_any(deadline_in(OPEN_DEADLINE)).await?;
        let mut facts = ClusterFacts::default();
        let commands = Commands::default();
        named(&mut link, &[topic.to_owned()], &mut facts, &commands).await?;
        describe_topics(&mut link, &mut facts, &commands).await?;
        let kept = facts.topic(topic).map(|topic| &topic.kept);
        let cleanup = kept.and_then(|kept| kept.cleanup.as_ref());
        Ok(cleanup.map(|cleanup| cleanup.value().compacts))
    }

    /// The names of all topics that we may see and that are not Kafka's own. Works without [`Cluster::run`].
    ///
    /// # Errors
    /// No broker answered, or the one that did stopped.
    pub async fn list_topics(&self) -> Result<Vec<Arc<str>>, CallError> {
        let mut link = self.0.shared.open_any(deadline_in(OPEN_DEADLINE)).await?;
        let mut facts = ClusterFacts::default();
        all(&mut link, &mut facts).await?;
        let topics = facts.topics.into_iter();
        Ok(topics
            .filter(|topic| !topic.is_internal)
            .map(|topic| topic.name)
            .collect())
    }
}

type Nodes = Vec<(i32, HostPort)>;

/// Every topic that we may see.
async fn all(link: &mut Link, facts: &mut ClusterFacts) -> Result<Nodes, CallError> {
    let request = MetadataRequest::default()
        .with_topics(None)
        .with_allow_auto_topic_creation(false);
    let metadata = link.metadata(&request, deadline_in(CALL_DEADLINE)).await?;
    metadata.each_topic(|entry| {
        if let Some(seen) = entry.observation() {
            facts
                .topics
                .push(TopicFacts::unknown(seen.name.into(), seen.is_internal));
        }
    });
    facts.topics.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(metadata.nodes())
}

/// These topics: known, absent, or hidden.
async fn named(
    link: &mut Link,
    names: &[String],
    facts: &mut ClusterFacts,
    commands: &Commands,
) -> Result<Nodes, CallError> {
    let mut nodes = Vec::new();
    let hidden_before = facts.hidden.len();
    // No topics would mean all topics in versions that we do not speak; here it asks for the brokers alone.
    for page in names.chunks(PAGE).chain(names.is_empty().then_some(names)) {
        let topics = page.iter().map(|name| {
            let name = TopicName(StrBytes::from_string(name.clone()));
            MetadataRequestTopic::default().with_name(Some(name))
        });
        let request = MetadataRequest::default()
            .with_topics(Some(topics.collect()))
            .with_allow_auto_topic_creation(false);
        let metadata = link.metadata(&request, deadline_in(CALL_DEADLINE)).await?;
        nodes = metadata.nodes();
        metadata.each_topic(|entry| {
            let name = entry.name.unwrap_or_default();
            match (entry.observation(), entry.error_code) {
                (Some(seen), _) => {
                    facts
                        .topics
                        .push(TopicFacts::unknown(seen.name.into(), seen.is_internal));
                }
                (None, TOPIC_AUTHORIZATION_FAILED) => facts.hidden.push(name.to_owned()),
                (None, _) => facts.absent.push(name.to_owned()),
            }
        });
    }
    facts.topics.sort_by(|a, b| a.name.cmp(&b.name));
    let hidden = facts.hidden.get(hidden_before..).unwrap_or_default();
    let unseen: Vec<Unseen> = hidden
        .iter()
        .map(|name| Unseen {
            what: format!("topic {name} is hidden: whether it exists, and its limits"),
            grant: Some(commands.allow(&["Describe", "DescribeConfigs"], Resource::Topic(name))),
        })
        .collect();
    facts.unseen.extend(unseen);
    Ok(nodes)
}

async fn describe_topics(
    link: &mut Link,
    facts: &mut ClusterFacts,
    commands: &Commands,
) -> Result<(), CallError> {
    let all = facts.topics.len();
    let (mut forbidden, mut failed) = (Vec::new(), Vec::new());
    for page in facts.topics.chunks_mut(PAGE) {
        let resources = page
            .iter()
            .map(|topic| resource(RESOURCE_TOPIC, &topic.name, &TOPIC_KEYS));
        let results = describe(link, resources.collect()).await?;
        let by_name: HashMap<&str, &DescribeConfigsResult> = results
            .iter()
            .filter(|result| result.resource_type == RESOURCE_TOPIC)
            .map(|result| (result.resource_name.as_str(), result))
            .collect();
        for topic in page {
            match by_name
                .get(&*topic.name)
                .map_or(-1, |result| result.error_code)
            {
                0 => {
                    if let Some(result) = by_name.get(&*topic.name) {
                        fill(topic, &result.configs);
                    }
                }
                // Deleted since it was listed.
                UNKNOWN_TOPIC_OR_PARTITION => {}
                code if FORBIDDEN.contains(&code) => forbidden.push(topic.name.clone()),
                code => failed.push((topic.name.clone(), failure_name(code).unwrap_or_default())),
            }
        }
    }
    if let Some(first) = forbidden.first() {
        let one = forbidden.len() == 1;
        let which = if one {
            first.to_string()
        } else {
            "*".to_owned()
        };
        facts.unseen.push(Unseen {
            what: if one {
                format!("the limits of topic {first} may not be read")
            } else {
                format!(
                    "the limits of {} of {all} topics may not be read, {first} among them",
                    forbidden.len()
                )
            },
            grant: Some(commands.allow(&["DescribeConfigs"], Resource::Topic(&which))),
        });
    }
    facts
        .unseen
        .extend(failed.into_iter().map(|(topic, error)| Unseen {
            what: format!("the limits of topic {topic} could not be read: {error}"),
            grant: None,
        }));
    Ok(())
}

/// Each broker answers for itself alone, so each is asked; all at once.
async fn describe_brokers(
    shared: &Arc<ControlPlane>,
    nodes: Nodes,
    unseen: &mut Vec<Unseen>,
    commands: &Commands,
) -> Vec<BrokerFacts> {
    let mut asked = JoinSet::new();
    for (node_id, address) in nodes {
        let shared = Arc::clone(shared);
        asked.spawn(async move {
            let deadline = deadline_in(OPEN_DEADLINE);
            let response = match shared.open(&address, deadline).await {
                Ok(mut link) => {
                    let wanted = resource(RESOURCE_BROKER, &node_id.to_string(), &BROKER_KEYS);
                    describe(&mut link, vec![wanted]).await
                }
                Err(error) => Err(error),
            };
            (node_id, response)
        });
    }
    let mut brokers = Vec::new();
    let mut forbidden = Vec::new();
    while let Some(Ok((node_id, response))) = asked.join_next().await {
        let mut broker = BrokerFacts {
            node_id,
            ..BrokerFacts::default()
        };
        match response.as_deref().map(<[_]>::first) {
            Ok(Some(result)) if result.error_code == 0 => fill_broker(&mut broker, &result.configs),
            Ok(Some(result)) if FORBIDDEN.contains(&result.error_code) => forbidden.push(node_id),
            Ok(result) => unseen.push(Unseen {
                what: format!(
                    "the settings of broker {node_id} could not be read: {}",
                    result
                        .and_then(|result| failure_name(result.error_code))
                        .unwrap_or_default()
                ),
                grant: None,
            }),
            Err(error) => unseen.push(Unseen {
                what: format!("broker {node_id} was not reached: {error}"),
                grant: None,
            }),
        }
        brokers.push(broker);
    }
    brokers.sort_by_key(|broker| broker.node_id);
    forbidden.sort_unstable();
    if !forbidden.is_empty() {
        unseen.push(Unseen {
            what: format!(
                "the settings of brokers {forbidden:?} may not be read: message.max.bytes, socket.request.max.bytes, \
                 replica.fetch.max.bytes"
            ),
            grant: Some(commands.allow(&["DescribeConfigs"], Resource::Cluster)),
        });
    }
    brokers
}

/// A broker's `socket.request.max.bytes`, asked of itself; `None`: it does not tell.
pub(super) async fn read_socket_limit(
    link: &mut Link,
    node_id: i32,
    deadline: Instant,
) -> Result<Option<u64>, CallError> {
    let keys = [SOCKET_REQUEST_MAX_BYTES];
    let wanted = resource(RESOURCE_BROKER, &node_id.to_string(), &keys);
    let request = DescribeConfigsRequest::default().with_resources(vec![wanted]);
    let response = link.call(&request, deadline).await?;
    let mut broker = BrokerFacts::default();
    let read = response
        .results
        .iter()
        .filter(|result| result.error_code == 0);
    read.for_each(|result| fill_broker(&mut broker, &result.configs));
    Ok(broker
        .socket_request_max_bytes
        .map(|setting| setting.value()))
}

fn resource(kind: i8, name: &str, keys: &[&'static str]) -> DescribeConfigsResource {
    let keys = keys.iter().map(|key| StrBytes::from_static_str(key));
    DescribeConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(StrBytes::from_string(name.to_owned()))
        .with_configuration_keys(Some(keys.collect()))
}

async fn describe(
    link: &mut Link,
    resources: Vec<DescribeConfigsResource>,
) -> Result<Vec<DescribeConfigsResult>, CallError> {
    let request = DescribeConfigsRequest::default()
        .with_include_synonyms(true)
        .with_resources(resources);
    let response = link.call(&request, deadline_in(CALL_DEADLINE)).await?;
    Ok(response.results)
}
