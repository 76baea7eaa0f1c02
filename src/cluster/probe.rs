//! Single requests for `probe`: a topic of its own, and batches whose answer is what is wanted. Nothing is sent again
//! that was answered.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, MetadataRequest, ProduceRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::sleep;

use super::Cluster;
use super::call_error::CallError;
use super::link::Link;
use super::responses::failure_name;
use super::survey::{CALL_DEADLINE, OPEN_DEADLINE};
use crate::error_code::{LEADER_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION};
use crate::net::deadline_in;

/// A topic that was just created is not known everywhere, and a leader may not lead yet.
const SETTLING: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);
const TIMEOUT_MS: i32 = 15_000;

/// What a batch got for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeAnswer {
    /// Kafka's error code; 0: stored.
    pub error_code: i16,
    /// The words that came with it.
    pub text: Option<String>,
}

impl Cluster {
    /// Creates a topic of one partition with the cluster's defaults. `Err` inside: the broker's error and words.
    ///
    /// # Errors
    /// No broker answered.
    pub async fn create_probe_topic(&self, name: &str) -> Result<Result<(), String>, CallError> {
        let mut link = self.0.shared.open_any(deadline_in(OPEN_DEADLINE)).await?;
        let topic = CreatableTopic::default()
            .with_name(topic_name(name))
            .with_num_partitions(1)
            .with_replication_factor(-1);
        let request = CreateTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(TIMEOUT_MS);
        let response = link.call(&request, deadline_in(CALL_DEADLINE)).await?;
        let found = response.topics.first();
        let code = found.map_or(-1, |topic| topic.error_code);
        let words = found.and_then(|topic| topic.error_message.as_ref());
        Ok(outcome(code, words))
    }

    /// Deletes it.
    ///
    /// # Errors
    /// As for creating.
    pub async fn delete_probe_topic(&self, name: &str) -> Result<Result<(), String>, CallError> {
        let mut link = self.0.shared.open_any(deadline_in(OPEN_DEADLINE)).await?;
        let request = DeleteTopicsRequest::default()
            .with_topic_names(vec![topic_name(name)])
            .with_timeout_ms(TIMEOUT_MS);
        let response = link.call(&request, deadline_in(CALL_DEADLINE)).await?;
        let code = response
            .responses
            .first()
            .map_or(-1, |topic| topic.error_code);
        Ok(outcome(code, None))
    }

    /// Sends one batch to partition 0, once: only where it met a broker that does not lead the partition, or does not know
    /// the topic yet, it is sent again.
    ///
    /// # Errors
    /// The connection: what became of the batch is not known.
    pub async fn probe(&self, topic: &str, batch: &Bytes) -> Result<ProbeAnswer, CallError> {
        let mut last = ProbeAnswer {
            error_code: UNKNOWN_TOPIC_OR_PARTITION,
            text: None,
        };
        for _ in 0..SETTLING {
            if let Some(mut leader) = self.probe_leader(topic).await? {
                last = ask(&mut leader, topic, batch).await?;
                if !matches!(
                    last.error_code,
                    UNKNOWN_TOPIC_OR_PARTITION | LEADER_NOT_AVAILABLE | NOT_LEADER_OR_FOLLOWER
                ) {
                    return Ok(last);
                }
            }
            sleep(PAUSE).await;
        }
        Ok(last)
    }

    /// A link to whoever leads partition 0; `None` while nobody does.
    async fn probe_leader(&self, topic: &str) -> Result<Option<Link>, CallError> {
        let shared = &self.0.shared;
        let mut link = shared.open_any(deadline_in(OPEN_DEADLINE)).await?;
        let request = MetadataRequest::default()
            .with_topics(Some(vec![
                MetadataRequestTopic::default().with_name(Some(topic_name(topic))),
            ]))
            .with_allow_auto_topic_creation(false);
        let metadata = link.metadata(&request, deadline_in(CALL_DEADLINE)).await?;
        let mut leader_id = None;
        metadata.each_topic(|entry| {
            leader_id = entry
                .leaders()
                .find(|(partition, _)| *partition == 0)
                .map(|(_, id)| id);
        });
        let nodes = metadata.nodes().into_iter();
        let leader = nodes
            .filter(|(id, _)| Some(*id) == leader_id)
            .map(|(_, at)| at)
            .next();
        match leader {
            Some(address) if address == *link.peer() => Ok(Some(link)),
            Some(address) => shared
                .open(&address, deadline_in(OPEN_DEADLINE))
                .await
                .map(Some),
            None => Ok(None),
        }
    }
}

async fn ask(link: &mut Link, topic: &str, batch: &Bytes) -> Result<ProbeAnswer, CallError> {
    let data = PartitionProduceData::default()
        .with_index(0)
        .with_records(Some(batch.clone()));
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(TIMEOUT_MS)
        .with_topic_data(vec![
            TopicProduceData::default()
                .with_name(topic_name(topic))
                .with_partition_data(vec![data]),
        ]);
    let response = link.call(&request, deadline_in(CALL_DEADLINE)).await?;
    let mut found = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partition_responses);
    Ok(found.next().map_or(
        ProbeAnswer {
            error_code: -1,
            text: None,
        },
        |found| ProbeAnswer {
            error_code: found.error_code,
            text: found.error_message.as_ref().map(ToString::to_string),
        },
    ))
}

fn outcome(code: i16, words: Option<&StrBytes>) -> Result<(), String> {
    match failure_name(code) {
        None => Ok(()),
        Some(error) => Err(words.map_or(error.clone(), |words| format!("{error}: {words}"))),
    }
}

fn topic_name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}
