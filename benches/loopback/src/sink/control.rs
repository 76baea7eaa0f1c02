//! Answers everything but Produce: what a proxy's control plane asks before it can govern a topic.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, BrokerId, DescribeConfigsRequest, DescribeConfigsResponse,
    FetchRequest, MetadataRequest, MetadataResponse, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use uuid::Uuid;

use super::fetch;
use crate::frames::{CLAIMS_TOPIC, CLAIMS_TOPIC_ID, FETCH_VERSION, PARTITIONS, TOPIC, TOPIC_ID};

/// Its topics.
const TOPICS: [(&str, Uuid); 2] = [(TOPIC, TOPIC_ID), (CLAIMS_TOPIC, CLAIMS_TOPIC_ID)];

/// This broker's node id.
const NODE_ID: BrokerId = BrokerId(0);

/// What this broker speaks: (key, oldest, newest).
const SPOKEN: [(ApiKey, i16, i16); 5] = [
    (ApiKey::Produce, 3, 13),
    (ApiKey::Fetch, FETCH_VERSION, FETCH_VERSION),
    (ApiKey::Metadata, 0, 13),
    (ApiKey::ApiVersions, 0, 4),
    (ApiKey::DescribeConfigs, 1, 4),
];

/// Kafka's default, and the keys a proxy may ask for beside it: (topic's key, broker's key, value).
const CONFIGS: [(&str, &str, &str); 4] = [
    ("max.message.bytes", "message.max.bytes", "1048588"),
    ("segment.bytes", "log.segment.bytes", "1073741824"),
    ("compression.type", "compression.type", "producer"),
    (
        "socket.request.max.bytes",
        "socket.request.max.bytes",
        "104857600",
    ),
];

/// `ConfigResource.Type.TOPIC`
const RESOURCE_TOPIC: i8 = 2;

/// `ConfigSource.DEFAULT_CONFIG`
const SOURCE_DEFAULT: i8 = 5;

const UNSUPPORTED_VERSION: i16 = 35;
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const UNKNOWN_TOPIC_ID: i16 = 100;

/// Answers a whole request (without length prefix). `None`: not spoken here, close.
pub fn response(request: &[u8], port: u16, out: &mut Vec<u8>) -> Option<()> {
    let key = i16::from_be_bytes(request.get(..2)?.try_into().ok()?);
    let version = i16::from_be_bytes(request.get(2..4)?.try_into().ok()?);
    let correlation_id = i32::from_be_bytes(request.get(4..8)?.try_into().ok()?);
    let (api, oldest, newest) = SPOKEN.into_iter().find(|(api, ..)| *api as i16 == key)?;
    let is_spoken = (oldest..=newest).contains(&version);
    let mut body = BytesMut::new();
    // What was made before is not copied more often than it must be.
    let mut made = Bytes::new();
    match api {
        ApiKey::ApiVersions if is_spoken => api_versions().encode(&mut body, version).ok()?,
        ApiKey::ApiVersions => api_versions()
            .with_error_code(UNSUPPORTED_VERSION)
            .encode(&mut body, 0)
            .ok()?,
        _ if !is_spoken => return None,
        ApiKey::Metadata => {
            let request = decode::<MetadataRequest>(api, version, request)?;
            metadata(request, version, port)
                .encode(&mut body, version)
                .ok()?;
        }
        ApiKey::Fetch => {
            let request = decode::<FetchRequest>(api, version, request)?;
            made = fetch::response(&request, version)?;
        }
        ApiKey::DescribeConfigs => {
            let request = decode::<DescribeConfigsRequest>(api, version, request)?;
            describe_configs(request).encode(&mut body, version).ok()?;
        }
        _ => return None,
    }
    let mut header = BytesMut::new();
    ResponseHeader::default()
        .with_correlation_id(correlation_id)
        .encode(&mut header, api.response_header_version(version))
        .ok()?;
    let bytes = header.len() + body.len() + made.len();
    out.extend_from_slice(&(bytes as u32).to_be_bytes());
    out.extend_from_slice(&header);
    out.extend_from_slice(&body);
    out.extend_from_slice(&made);
    Some(())
}

fn decode<R: Decodable>(api: ApiKey, version: i16, request: &[u8]) -> Option<R> {
    let mut rest = Bytes::copy_from_slice(request);
    RequestHeader::decode(&mut rest, api.request_header_version(version)).ok()?;
    R::decode(&mut rest, version).ok()
}

fn api_versions() -> ApiVersionsResponse {
    let keys = SPOKEN.map(|(api, oldest, newest)| {
        ApiVersion::default()
            .with_api_key(api as i16)
            .with_min_version(oldest)
            .with_max_version(newest)
    });
    ApiVersionsResponse::default().with_api_keys(keys.to_vec())
}

fn metadata(request: MetadataRequest, version: i16, port: u16) -> MetadataResponse {
    let broker = MetadataResponseBroker::default()
        .with_node_id(NODE_ID)
        .with_host(StrBytes::from_static_str("127.0.0.1"))
        .with_port(port.into());
    // All topics: null, and an empty list in v0.
    let topics = match request.topics {
        Some(topics) if version > 0 || !topics.is_empty() => topics
            .into_iter()
            .map(|topic| match topic.name {
                Some(name) => topic_by_name(name),
                None => topic_by_id(topic.topic_id),
            })
            .collect(),
        _ => TOPICS.map(our_topic).to_vec(),
    };
    MetadataResponse::default()
        .with_brokers(vec![broker])
        .with_cluster_id(Some(StrBytes::from_static_str("loopback-sink-cluster")))
        .with_controller_id(NODE_ID)
        .with_topics(topics)
}

fn topic_by_name(name: TopicName) -> MetadataResponseTopic {
    match TOPICS.into_iter().find(|ours| ours.0 == name.as_str()) {
        Some(ours) => our_topic(ours),
        None => MetadataResponseTopic::default()
            .with_name(Some(name))
            .with_error_code(UNKNOWN_TOPIC_OR_PARTITION),
    }
}

fn topic_by_id(id: Uuid) -> MetadataResponseTopic {
    match TOPICS.into_iter().find(|ours| ours.1 == id) {
        Some(ours) => our_topic(ours),
        None => MetadataResponseTopic::default()
            .with_name(None)
            .with_topic_id(id)
            .with_error_code(UNKNOWN_TOPIC_ID),
    }
}

fn our_topic((name, id): (&'static str, Uuid)) -> MetadataResponseTopic {
    let partitions = (0..PARTITIONS).map(|index| {
        MetadataResponsePartition::default()
            .with_partition_index(index)
            .with_leader_id(NODE_ID)
            .with_leader_epoch(0)
            .with_replica_nodes(vec![NODE_ID])
            .with_isr_nodes(vec![NODE_ID])
    });
    MetadataResponseTopic::default()
        .with_name(Some(TopicName(StrBytes::from_static_str(name))))
        .with_topic_id(id)
        .with_partitions(partitions.collect())
}

fn describe_configs(request: DescribeConfigsRequest) -> DescribeConfigsResponse {
    let results = request.resources.into_iter().map(|resource| {
        let is_topic = resource.resource_type == RESOURCE_TOPIC;
        let is_known = !is_topic
            || TOPICS
                .iter()
                .any(|(name, _)| *name == resource.resource_name.as_str());
        let is_asked = |name: &str| match &resource.configuration_keys {
            Some(keys) => keys.iter().any(|key| key.as_str() == name),
            None => true,
        };
        let configs = CONFIGS.iter().filter_map(|(topic_key, broker_key, value)| {
            let name = if is_topic { topic_key } else { broker_key };
            (is_known && is_asked(name)).then(|| config(name, broker_key, value))
        });
        DescribeConfigsResult::default()
            .with_error_code(if is_known {
                0
            } else {
                UNKNOWN_TOPIC_OR_PARTITION
            })
            .with_configs(configs.collect())
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone())
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

/// A value as Kafka gives the ones nobody set: its only synonym is the broker's default.
fn config(
    name: &'static str,
    broker_key: &'static str,
    value: &'static str,
) -> DescribeConfigsResourceResult {
    let value = Some(StrBytes::from_static_str(value));
    let synonym = DescribeConfigsSynonym::default()
        .with_name(StrBytes::from_static_str(broker_key))
        .with_value(value.clone())
        .with_source(SOURCE_DEFAULT);
    DescribeConfigsResourceResult::default()
        .with_name(StrBytes::from_static_str(name))
        .with_value(value)
        .with_config_source(SOURCE_DEFAULT)
        .with_synonyms(vec![synonym])
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::metadata_request::MetadataRequestTopic;

    use super::*;

    fn ask<R: Encodable, A: Decodable>(api: ApiKey, version: i16, request: &R) -> A {
        let mut bytes = BytesMut::new();
        RequestHeader::default()
            .with_request_api_key(api as i16)
            .with_request_api_version(version)
            .with_correlation_id(5)
            .encode(&mut bytes, api.request_header_version(version))
            .unwrap();
        request.encode(&mut bytes, version).unwrap();
        let mut out = Vec::new();
        response(&bytes, 4711, &mut out).unwrap();
        let mut rest = Bytes::from(out).slice(4..);
        ResponseHeader::decode(&mut rest, api.response_header_version(version)).unwrap();
        let response = A::decode(&mut rest, version).unwrap();
        assert!(rest.is_empty());
        response
    }

    #[test]
    fn a_topic_is_found_by_name_and_by_id() {
        let by_id = MetadataRequestTopic::default()
            .with_name(None)
            .with_topic_id(TOPIC_ID);
        let by_name = MetadataRequestTopic::default()
            .with_name(Some(TopicName(StrBytes::from_static_str(TOPIC))));
        let request = MetadataRequest::default().with_topics(Some(vec![by_id, by_name]));
        let response: MetadataResponse = ask(ApiKey::Metadata, 12, &request);
        assert_eq!(response.brokers[0].port, 4711);
        assert_eq!(response.topics.len(), 2);
        assert_eq!(response.topics[0], response.topics[1]);
        assert_eq!(response.topics[0].topic_id, TOPIC_ID);
    }

    #[test]
    fn the_default_limit_is_inherited_from_the_broker() {
        use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
        let resource = DescribeConfigsResource::default()
            .with_resource_type(RESOURCE_TOPIC)
            .with_resource_name(StrBytes::from_static_str(TOPIC))
            .with_configuration_keys(Some(vec![StrBytes::from_static_str("max.message.bytes")]));
        let request = DescribeConfigsRequest::default()
            .with_include_synonyms(true)
            .with_resources(vec![resource]);
        let response: DescribeConfigsResponse = ask(ApiKey::DescribeConfigs, 4, &request);
        let config = &response.results[0].configs[0];
        assert_eq!(config.value.as_deref(), Some("1048588"));
        assert_eq!(config.config_source, SOURCE_DEFAULT);
        assert_eq!(config.synonyms[0].name.as_str(), "message.max.bytes");
        assert_eq!(response.results[0].configs.len(), 1);
    }
}
