//! Reads the limits of a page of topics from one broker.

use std::collections::HashMap;
use std::sync::Arc;

use kafka_protocol::messages::DescribeConfigsRequest;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use super::call_error::CallError;
use super::limits::{LearnedLimit, Origin};
use super::link::Link;
use super::registry::Registry;
use super::responses::failure_name;
use super::topic::{Reading, Topic};
use crate::error_code::{
    CLUSTER_AUTHORIZATION_FAILED, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
};
use crate::vocabulary::CompressionType;

/// Topics in one request: the response stays under 1 MiB.
pub(super) const PAGE: usize = 500;

const MAX_MESSAGE_BYTES: &str = "max.message.bytes";
const SEGMENT_BYTES: &str = "segment.bytes";
const COMPRESSION_TYPE: &str = "compression.type";
const MAX_DECOMPRESSED_MESSAGE_BYTES: &str = "max.decompressed.message.bytes";

/// `ConfigResource.Type.TOPIC`
const RESOURCE_TOPIC: i8 = 2;

/// `DescribeConfigsResponse.ConfigSource.TOPIC_CONFIG`
const SOURCE_TOPIC: i8 = 1;

/// What a broker said of one topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Described {
    /// The topic has learned.
    Read,
    /// We may not describe it.
    Forbidden,
    /// The broker does not know it.
    Gone,
    /// Another error, or no word of it.
    Failed,
}

/// Asks one broker for the limits of `topics` (at most [`PAGE`]); they learn, and so does the broker's node.
/// Outcomes are in the order of `topics`.
pub(super) async fn describe(
    link: &mut Link,
    registry: &Registry,
    topics: &[Arc<Topic>],
    deadline: Instant,
) -> Result<Vec<Described>, CallError> {
    let sent_at = std::time::Instant::now();
    let request = DescribeConfigsRequest::default()
        .with_include_synonyms(true)
        .with_resources(topics.iter().map(|topic| resource(topic)).collect());
    let response = link.call(&request, deadline).await?;
    let mut by_name: HashMap<&str, &DescribeConfigsResult> = response
        .results
        .iter()
        .filter(|result| result.resource_type == RESOURCE_TOPIC)
        .map(|result| (result.resource_name.as_str(), result))
        .collect();
    let node = registry.node_at(link.peer());
    let mut outcomes = Vec::with_capacity(topics.len());
    for topic in topics {
        let Some(result) = by_name.remove(&*topic.name) else {
            outcomes.push(Described::Failed);
            continue;
        };
        let outcome = outcome(result);
        if outcome == Described::Read {
            let (own, inherited) = read(&result.configs);
            topic.learn(&own, sent_at);
            if let Some(node) = &node {
                node.learn(&inherited, sent_at);
            }
        }
        outcomes.push(outcome);
    }
    Ok(outcomes)
}

fn resource(topic: &Topic) -> DescribeConfigsResource {
    let keys = [
        MAX_MESSAGE_BYTES,
        SEGMENT_BYTES,
        COMPRESSION_TYPE,
        MAX_DECOMPRESSED_MESSAGE_BYTES,
    ];
    DescribeConfigsResource::default()
        .with_resource_type(RESOURCE_TOPIC)
        .with_resource_name(StrBytes::from_string(topic.name.to_string()))
        .with_configuration_keys(Some(keys.map(StrBytes::from_static_str).to_vec()))
}

fn outcome(result: &DescribeConfigsResult) -> Described {
    match result.error_code {
        0 => Described::Read,
        TOPIC_AUTHORIZATION_FAILED | CLUSTER_AUTHORIZATION_FAILED => Described::Forbidden,
        UNKNOWN_TOPIC_OR_PARTITION => Described::Gone,
        code => {
            tracing::debug!(
                topic = %result.resource_name,
                error = failure_name(code).unwrap_or_default(),
                "a topic's configs cannot be read"
            );
            Described::Failed
        }
    }
}

/// The topic's configs, and what it would inherit without overrides: the first synonym that is not its own.
fn read(configs: &[DescribeConfigsResourceResult]) -> (Reading, Reading) {
    let mut own = Reading::default();
    let mut inherited = Reading::default();
    for config in configs {
        let value = config.value.as_ref().map(StrBytes::as_str);
        let origin = if config.config_source == SOURCE_TOPIC {
            Origin::TopicOverride
        } else {
            Origin::BrokerDefault
        };
        set(&mut own, &config.name, value, origin);
        let default = match origin {
            Origin::BrokerDefault => value,
            Origin::TopicOverride => config
                .synonyms
                .iter()
                .find(|synonym| synonym.source != SOURCE_TOPIC)
                .and_then(|synonym| synonym.value.as_ref())
                .map(StrBytes::as_str),
        };
        set(&mut inherited, &config.name, default, Origin::BrokerDefault);
    }
    (own, inherited)
}

fn set(reading: &mut Reading, config: &str, value: Option<&str>, origin: Origin) {
    let Some(value) = value else { return };
    let limit = || {
        let bytes = value.parse().ok()?;
        Some(LearnedLimit { bytes, origin })
    };
    match config {
        MAX_MESSAGE_BYTES => reading.max_message_bytes = limit(),
        SEGMENT_BYTES => reading.segment_bytes = limit(),
        MAX_DECOMPRESSED_MESSAGE_BYTES => reading.max_decompressed_message_bytes = limit(),
        COMPRESSION_TYPE => {
            reading.compression_type =
                CompressionType::from_label(value).map(|compression| (compression, origin));
        }
        _ => {}
    }
}
