//! The settings of sizes that a topic and a broker have: which are asked for, and what their responses mean.
//!
//! Invariant: a setting keeps the whole chain it was chosen from, as far as it is told.

use std::sync::Arc;

use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::protocol::StrBytes;

use crate::cluster::Topic;
use crate::cluster::limits::{LearnedLimit, Origin};
use crate::cluster::topic::Reading;
use crate::findings::{
    BrokerFacts, CLEANUP_POLICY, COMPRESSION_TYPE, Cleanup, Kept, MAX_DECOMPRESSED_MESSAGE_BYTES,
    MAX_MESSAGE_BYTES, RETENTION_MS, SEGMENT_BYTES, SEGMENT_MS, Setting, SettingSource, Step,
    TopicFacts,
};
use crate::vocabulary::CompressionType;

pub(super) const TOPIC_KEYS: [&str; 7] = [
    MAX_MESSAGE_BYTES,
    SEGMENT_BYTES,
    COMPRESSION_TYPE,
    MAX_DECOMPRESSED_MESSAGE_BYTES,
    RETENTION_MS,
    SEGMENT_MS,
    CLEANUP_POLICY,
];

const MESSAGE_MAX_BYTES: &str = "message.max.bytes";
pub(super) const SOCKET_REQUEST_MAX_BYTES: &str = "socket.request.max.bytes";
const REPLICA_FETCH_MAX_BYTES: &str = "replica.fetch.max.bytes";
const REPLICA_FETCH_RESPONSE_MAX_BYTES: &str = "replica.fetch.response.max.bytes";
const FETCH_MAX_BYTES: &str = "fetch.max.bytes";
const LOG_SEGMENT_BYTES: &str = "log.segment.bytes";
pub(super) const BROKER_KEYS: [&str; 7] = [
    MESSAGE_MAX_BYTES,
    LOG_SEGMENT_BYTES,
    COMPRESSION_TYPE,
    SOCKET_REQUEST_MAX_BYTES,
    REPLICA_FETCH_MAX_BYTES,
    REPLICA_FETCH_RESPONSE_MAX_BYTES,
    FETCH_MAX_BYTES,
];

pub(super) fn fill(topic: &mut TopicFacts, configs: &[DescribeConfigsResourceResult]) {
    for config in configs {
        match config.name.as_str() {
            MAX_MESSAGE_BYTES => topic.max_message_bytes = setting(config, number),
            SEGMENT_BYTES => topic.segment_bytes = setting(config, number),
            MAX_DECOMPRESSED_MESSAGE_BYTES => {
                topic.max_decompressed_message_bytes = setting(config, number);
            }
            COMPRESSION_TYPE => {
                topic.compression_type = setting(config, CompressionType::from_label)
            }
            RETENTION_MS => topic.kept.retention_ms = in_force(config, milliseconds),
            SEGMENT_MS => topic.kept.segment_ms = in_force(config, milliseconds),
            CLEANUP_POLICY => topic.kept.cleanup = in_force(config, Cleanup::read),
            _ => {}
        }
    }
}

pub(super) fn fill_broker(broker: &mut BrokerFacts, configs: &[DescribeConfigsResourceResult]) {
    for config in configs {
        let place = match config.name.as_str() {
            MESSAGE_MAX_BYTES => &mut broker.message_max_bytes,
            LOG_SEGMENT_BYTES => &mut broker.log_segment_bytes,
            SOCKET_REQUEST_MAX_BYTES => &mut broker.socket_request_max_bytes,
            REPLICA_FETCH_MAX_BYTES => &mut broker.replica_fetch_max_bytes,
            REPLICA_FETCH_RESPONSE_MAX_BYTES => &mut broker.replica_fetch_response_max_bytes,
            FETCH_MAX_BYTES => &mut broker.fetch_max_bytes,
            COMPRESSION_TYPE => {
                broker.compression_type = setting(config, CompressionType::from_label);
                continue;
            }
            _ => continue,
        };
        *place = setting(config, number);
    }
}

fn number(value: &str) -> Option<u64> {
    value.parse().ok()
}

fn milliseconds(value: &str) -> Option<i64> {
    value.parse().ok()
}

/// Only the value in force: brokers have times under names with other units, so their chain says nothing.
fn in_force<T: Copy>(
    config: &DescribeConfigsResourceResult,
    read: fn(&str) -> Option<T>,
) -> Option<Setting<T>> {
    let value = read(config.value.as_ref()?.as_str())?;
    let source = SettingSource::from_protocol(config.config_source)?;
    Some(Setting::of(value, source))
}

/// The synonyms are the chain; a config without any (a built-in default of old brokers) is its own.
fn setting<T: Copy>(
    config: &DescribeConfigsResourceResult,
    read: fn(&str) -> Option<T>,
) -> Option<Setting<T>> {
    let step = |value: Option<&StrBytes>, source: i8| {
        Some(Step {
            value: read(value?.as_str())?,
            source: SettingSource::from_protocol(source)?,
        })
    };
    let chain = config
        .synonyms
        .iter()
        .filter_map(|synonym| step(synonym.value.as_ref(), synonym.source));
    let chain: Vec<Step<T>> = chain.collect();
    if chain.is_empty() {
        return Setting::new(
            step(config.value.as_ref(), config.config_source)
                .into_iter()
                .collect(),
        );
    }
    Setting::new(chain)
}

/// The facts of a topic as the running control plane knows them: without the chain behind the broker's value.
pub(in crate::cluster) fn known_facts(topic: &Topic, inherited: Option<Reading>) -> TopicFacts {
    let own = topic.reading();
    let inherited = inherited.unwrap_or_default();
    let setting = |limit: Option<LearnedLimit>, below: Option<LearnedLimit>| {
        let limit = limit?;
        if limit.origin == Origin::BrokerDefault {
            return Some(Setting::of(limit.bytes, SettingSource::Broker));
        }
        let below = below.map(|below| Step {
            value: below.bytes,
            source: SettingSource::Broker,
        });
        let own = Step {
            value: limit.bytes,
            source: SettingSource::Topic,
        };
        Setting::new(std::iter::once(own).chain(below).collect())
    };
    let codec = |(codec, origin): (CompressionType, Origin)| {
        let source = match origin {
            Origin::TopicOverride => SettingSource::Topic,
            Origin::BrokerDefault => SettingSource::Broker,
        };
        Setting::of(codec, source)
    };
    TopicFacts {
        name: Arc::clone(&topic.name),
        is_internal: topic.is_internal,
        max_message_bytes: setting(own.max_message_bytes, inherited.max_message_bytes),
        segment_bytes: setting(own.segment_bytes, inherited.segment_bytes),
        max_decompressed_message_bytes: setting(
            own.max_decompressed_message_bytes,
            inherited.max_decompressed_message_bytes,
        ),
        compression_type: own.compression_type.map(codec),
        kept: Kept::default(),
    }
}
