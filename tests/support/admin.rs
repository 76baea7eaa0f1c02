//! What tests ask of a cluster beside producing: topics, their configuration, offsets, stored batches.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::alter_partition_reassignments_request::{
    AlterPartitionReassignmentsRequest, ReassignablePartition, ReassignableTopic,
};
use kafka_protocol::messages::create_acls_request::{AclCreation, CreateAclsRequest};
use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsRequest, CreatePartitionsTopic,
};
use kafka_protocol::messages::create_topics_request::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use kafka_protocol::messages::delete_acls_request::{DeleteAclsFilter, DeleteAclsRequest};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::{DeleteTopicState, DeleteTopicsRequest};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use kafka_protocol::messages::list_offsets_request::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use kafka_protocol::messages::metadata_request::{MetadataRequest, MetadataRequestTopic};
use kafka_protocol::messages::metadata_response::MetadataResponse;
use kafka_protocol::messages::{BrokerId, InitProducerIdRequest, TopicName};

use super::client::{Connection, Topic, text};
use super::eventually;

const PATIENCE: Duration = Duration::from_secs(60);
/// ConfigResource.Type
const TOPIC: i8 = 2;
const BROKER: i8 = 4;

/// Cluster metadata with these topics only.
pub fn metadata(connection: &mut Connection, topics: &[&str]) -> MetadataResponse {
    let topics = topics
        .iter()
        .map(|name| MetadataRequestTopic::default().with_name(Some(TopicName(text(name)))));
    connection.ask(
        &MetadataRequest::default().with_topics(Some(topics.collect())),
        12,
    )
}

/// Creates a topic and waits until every broker knows it and the leader of every partition takes requests for it:
/// right after CreateTopics another broker may not have heard of it, and a leader may still answer 6 although
/// Metadata names it.
pub fn create_topic(
    address: &str,
    name: &str,
    partitions: i32,
    replicas: i16,
    configs: &[(&str, &str)],
) -> Topic {
    let mut connection = Connection::open(address);
    let configs = configs.iter().map(|(key, value)| {
        CreatableTopicConfig::default()
            .with_name(text(key))
            .with_value(Some(text(value)))
    });
    let topic = CreatableTopic::default()
        .with_name(TopicName(text(name)))
        .with_num_partitions(partitions)
        .with_replication_factor(replicas)
        .with_configs(configs.collect());
    let request = CreateTopicsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(30_000);
    let response = connection.ask(&request, 7);
    let created = &response.topics[0];
    assert_eq!(
        created.error_code, 0,
        "CreateTopics {name}: {:?}",
        created.error_message
    );
    let topic = Topic {
        name: name.to_string(),
        id: created.topic_id,
    };
    for broker in metadata(&mut connection, &[]).brokers {
        let broker = format!("{}:{}", broker.host, broker.port);
        eventually(PATIENCE, &format!("{broker} knows {name}"), || {
            // One that was killed a moment ago is still named.
            let Ok(mut connection) = Connection::try_open(broker.as_str()) else {
                return Some(());
            };
            let found = metadata(&mut connection, &[name]).topics;
            let is_known = found.iter().any(|found| {
                let led = found.partitions.iter().filter(|part| part.error_code == 0);
                found.topic_id == topic.id && led.count() == partitions as usize
            });
            is_known.then_some(())
        });
    }
    for partition in 0..partitions {
        latest_offset(address, name, partition);
    }
    topic
}

/// The address of a partition's leader, as `address` (a bootstrap list) tells it.
pub fn leader(address: &str, topic: &str, partition: i32) -> String {
    eventually(
        PATIENCE,
        &format!("a leader of {topic}-{partition}"),
        || {
            let mut connection = open_any(address)?;
            let metadata = metadata(&mut connection, &[topic]);
            let parts = &metadata.topics.first()?.partitions;
            let part = parts
                .iter()
                .find(|part| part.partition_index == partition && part.error_code == 0)?;
            let broker = metadata
                .brokers
                .iter()
                .find(|broker| broker.node_id == part.leader_id)?;
            Some(format!("{}:{}", broker.host, broker.port))
        },
    )
}

/// The first address of a bootstrap list that takes a connection.
fn open_any(bootstrap: &str) -> Option<Connection> {
    bootstrap
        .split(',')
        .find_map(|address| Connection::try_open(address).ok())
}

/// The offset the next record of a partition will get.
pub fn latest_offset(address: &str, topic: &str, partition: i32) -> i64 {
    eventually(
        PATIENCE,
        &format!("the latest offset of {topic}-{partition}"),
        || {
            let leader = leader(address, topic, partition);
            let part = ListOffsetsPartition::default()
                .with_partition_index(partition)
                .with_timestamp(-1);
            let entry = ListOffsetsTopic::default()
                .with_name(TopicName(text(topic)))
                .with_partitions(vec![part]);
            let request = ListOffsetsRequest::default()
                .with_replica_id(BrokerId(-1))
                .with_topics(vec![entry]);
            // Metadata may name a leader that was killed a moment ago.
            let response = Connection::try_open(leader.as_str()).ok()?.ask(&request, 7);
            let part = &response.topics[0].partitions[0];
            (part.error_code == 0).then_some(part.offset)
        },
    )
}

/// The batches stored in a partition from its start, as Fetch delivers them.
pub fn fetch_stored(address: &str, topic: &str, partition: i32, max_bytes: i32) -> Bytes {
    let part = FetchPartition::default()
        .with_partition(partition)
        .with_fetch_offset(0)
        .with_partition_max_bytes(max_bytes);
    let entry = FetchTopic::default()
        .with_topic(TopicName(text(topic)))
        .with_partitions(vec![part]);
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(max_bytes)
        .with_topics(vec![entry]);
    let response = Connection::open(leader(address, topic, partition).as_str()).ask(&request, 12);
    let part = &response.responses[0].partitions[0];
    assert_eq!(part.error_code, 0, "Fetch {topic}-{partition}");
    part.records.clone().unwrap_or_default()
}

/// Sets (`Some`) or unsets (`None`) keys of a topic's configuration.
pub fn alter_topic_config(address: &str, topic: &str, changes: &[(&str, Option<&str>)]) {
    alter_config(address, TOPIC, topic, changes);
}

/// Sets or unsets keys of a broker's dynamic configuration; an empty id is the cluster's default.
pub fn alter_broker_config(address: &str, id: &str, changes: &[(&str, Option<&str>)]) {
    alter_config(address, BROKER, id, changes);
}

fn alter_config(address: &str, kind: i8, name: &str, changes: &[(&str, Option<&str>)]) {
    let configs = changes.iter().map(|(key, value)| {
        AlterableConfig::default()
            .with_name(text(key))
            .with_config_operation(if value.is_some() { 0 } else { 1 })
            .with_value(value.map(text))
    });
    let resource = AlterConfigsResource::default()
        .with_resource_type(kind)
        .with_resource_name(text(name))
        .with_configs(configs.collect());
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    let response = Connection::open(address).ask(&request, 1);
    let result = &response.responses[0];
    assert_eq!(
        result.error_code, 0,
        "IncrementalAlterConfigs {name}: {:?}",
        result.error_message
    );
}

/// Adds partitions, so that there are so many.
pub fn create_partitions(address: &str, topic: &str, count: i32) {
    let entry = CreatePartitionsTopic::default()
        .with_name(TopicName(text(topic)))
        .with_count(count)
        .with_assignments(None);
    let request = CreatePartitionsRequest::default()
        .with_topics(vec![entry])
        .with_timeout_ms(30_000);
    let response = Connection::open(address).ask(&request, 3);
    let result = &response.results[0];
    assert_eq!(
        result.error_code, 0,
        "CreatePartitions {topic}: {:?}",
        result.error_message
    );
}

/// Moves a partition of one replica to another broker, and waits until that one leads it.
pub fn move_partition(address: &str, topic: &str, partition: i32, to: i32) {
    let part = ReassignablePartition::default()
        .with_partition_index(partition)
        .with_replicas(Some(vec![BrokerId(to)]));
    let entry = ReassignableTopic::default()
        .with_name(TopicName(text(topic)))
        .with_partitions(vec![part]);
    let request = AlterPartitionReassignmentsRequest::default()
        .with_topics(vec![entry])
        .with_timeout_ms(60_000);
    let response = open_any(address).expect("a broker").ask(&request, 0);
    assert_eq!(response.error_code, 0, "{response:?}");
    assert_eq!(
        response.responses[0].partitions[0].error_code, 0,
        "{response:?}"
    );
    eventually(PATIENCE, &format!("{to} leads {topic}-{partition}"), || {
        let mut connection = open_any(address)?;
        let metadata = metadata(&mut connection, &[topic]);
        let parts = &metadata.topics.first()?.partitions;
        let part = parts
            .iter()
            .find(|part| part.partition_index == partition)?;
        (part.leader_id.0 == to).then_some(())
    });
}

/// A literal ACL on topics: who, on which (`*` is all), which AclOperation, and whether it allows or denies.
#[derive(Debug, Clone, Copy)]
pub struct TopicAcl<'a> {
    pub principal: &'a str,
    pub topic: &'a str,
    pub operation: i8,
    pub allows: bool,
}

impl TopicAcl<'_> {
    const LITERAL: i8 = 3;

    const fn permission(self) -> i8 {
        if self.allows { 3 } else { 2 }
    }

    /// Puts it in force.
    pub fn create(self, address: &str) {
        let acl = AclCreation::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text(self.topic))
            .with_resource_pattern_type(Self::LITERAL)
            .with_principal(text(self.principal))
            .with_host(text("*"))
            .with_operation(self.operation)
            .with_permission_type(self.permission());
        let request = CreateAclsRequest::default().with_creations(vec![acl]);
        let response = Connection::open(address).ask(&request, 3);
        assert_eq!(response.results[0].error_code, 0, "{response:?}");
    }

    /// Takes it away.
    pub fn delete(self, address: &str) {
        let filter = DeleteAclsFilter::default()
            .with_resource_type_filter(TOPIC)
            .with_resource_name_filter(Some(text(self.topic)))
            .with_pattern_type_filter(Self::LITERAL)
            .with_principal_filter(Some(text(self.principal)))
            .with_host_filter(Some(text("*")))
            .with_operation(self.operation)
            .with_permission_type(self.permission());
        let request = DeleteAclsRequest::default().with_filters(vec![filter]);
        let response = Connection::open(address).ask(&request, 3);
        assert_eq!(response.filter_results[0].error_code, 0, "{response:?}");
    }
}

/// Deletes a topic.
pub fn delete_topic(address: &str, topic: &str) {
    let state = DeleteTopicState::default().with_name(Some(TopicName(text(topic))));
    let request = DeleteTopicsRequest::default()
        .with_topics(vec![state])
        .with_timeout_ms(30_000);
    let response = Connection::open(address).ask(&request, 6);
    assert_eq!(
        response.responses[0].error_code, 0,
        "DeleteTopics {topic}: {:?}",
        response.responses[0].error_message
    );
}

/// A producer id and epoch for an idempotent producer without transactions.
pub fn init_producer_id(address: &str) -> (i64, i16) {
    eventually(PATIENCE, "a producer id", || {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(60_000);
        let response = Connection::open(address).ask(&request, 4);
        (response.error_code == 0).then_some((response.producer_id.0, response.producer_epoch))
    })
}

/// Deletes the records of partition 0 below an offset.
pub fn delete_records(address: &str, topic: &str, below: i64) {
    let part = DeleteRecordsPartition::default()
        .with_partition_index(0)
        .with_offset(below);
    let entry = DeleteRecordsTopic::default()
        .with_name(TopicName(text(topic)))
        .with_partitions(vec![part]);
    let request = DeleteRecordsRequest::default()
        .with_topics(vec![entry])
        .with_timeout_ms(60_000);
    let to = leader(address, topic, 0);
    let response = Connection::open(to.as_str()).ask(&request, 2);
    assert_eq!(response.topics[0].partitions[0].error_code, 0);
}
