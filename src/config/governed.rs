//! Reads what a rule says of the limits themselves: which configs a topic may be given (gate `config`), and which
//! codecs its batches may come with (gate `codec`).
//!
//! Invariant: in a [`Config`](super::Config) no bound is empty and no list is: each can be kept.

use serde_json::{Map, Value, json};

use super::defaults;
use super::mistakes::{Report, below};
use super::raw::{Field, RawBounds, RawCodecs, RawTopicConfig};
use super::scalars::{Size, size_text};
use crate::vocabulary::{Codec, labelled};

labelled! {
    /// A word that a topic's `compression.type` may be.
    Compression {
        /// Batches are stored as they come.
        Producer = "producer",
        /// Batches are stored uncompressed.
        Uncompressed = "uncompressed",
        /// gzip
        Gzip = "gzip",
        /// snappy
        Snappy = "snappy",
        /// lz4
        Lz4 = "lz4",
        /// zstd
        Zstd = "zstd",
    }
}

/// Gate `config`: what CreateTopics, AlterConfigs and IncrementalAlterConfigs may set for a rule's topics. What is left
/// out is not looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicConfig {
    /// `max.message.bytes`
    pub max_message_bytes: Option<Bounds>,
    /// `segment.bytes`
    pub segment_bytes: Option<Bounds>,
    /// `compression.type`; empty: any.
    pub compression_type: Vec<Compression>,
    /// The brokers' own `message.max.bytes`, `log.segment.bytes` and `compression.type`, which topics inherit, are held
    /// to the same.
    pub brokers: bool,
}

/// The smallest and the largest value of a config, both allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// At least so many bytes.
    pub min: Option<u64>,
    /// At most so many bytes.
    pub max: Option<u64>,
}

/// Gate `codec`: what large batches may come with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Codecs {
    /// One of these.
    pub allow: Vec<Codec>,
    /// Batches of at most so many uncompressed bytes come as they like.
    pub above_bytes: u64,
    /// Batches that no allowed codec makes smaller come as they like.
    pub unless_incompressible: bool,
}

pub(super) fn topic_config(raw: RawTopicConfig, path: &str, report: &mut Report) -> TopicConfig {
    let is_empty = raw.max_message_bytes.is_absent()
        && raw.segment_bytes.is_absent()
        && raw.compression_type.is_absent();
    if is_empty {
        report.note(
            path,
            "governs nothing: write `max_message_bytes`, `segment_bytes` or `compression_type` (or remove it)",
        );
    }
    if matches!(&raw.compression_type, Field::Given(words) if words.is_empty()) {
        report.note(
            &below(path, "compression_type"),
            "is an empty list: a topic could have no compression.type at all",
        );
    }
    let mut bounds = |field: Field<RawBounds>, key: &str| {
        field
            .given()
            .and_then(|raw| self::bounds(raw, &below(path, key), report))
    };
    TopicConfig {
        max_message_bytes: bounds(raw.max_message_bytes, "max_message_bytes"),
        segment_bytes: bounds(raw.segment_bytes, "segment_bytes"),
        compression_type: raw
            .compression_type
            .entries()
            .into_iter()
            .map(|text| text.0)
            .collect(),
        brokers: raw.brokers.or(defaults::TOPIC_CONFIG_BROKERS),
    }
}

fn bounds(raw: RawBounds, path: &str, report: &mut Report) -> Option<Bounds> {
    if raw.min.is_absent() && raw.max.is_absent() {
        report.note(path, "has no bound: write `min` or `max` (or both)");
        return None;
    }
    let bounds = Bounds {
        min: raw.min.value().map(|Size(bytes)| bytes),
        max: raw.max.value().map(|Size(bytes)| bytes),
    };
    if let (Some(min), Some(max)) = (bounds.min, bounds.max)
        && min > max
    {
        report.contradiction(
            &[&below(path, "min"), &below(path, "max")],
            format!(
                "`{}` is more than `max: {}`: no value could be set",
                size_text(min),
                size_text(max)
            ),
        );
    }
    Some(bounds)
}

pub(super) fn codecs(raw: RawCodecs, path: &str, report: &mut Report) -> Codecs {
    let key = below(path, "allow");
    if raw.allow.is_absent() {
        report.missing(
            &key,
            "the codecs that large batches may come with, such as `allow: [zstd, lz4]`",
        );
    } else if matches!(&raw.allow, Field::Given(words) if words.is_empty()) {
        report.note(&key, "is an empty list: no large batch could come at all");
    }
    let mut allow: Vec<Codec> = raw.allow.entries().into_iter().map(|text| text.0).collect();
    if Codec::ALL.iter().all(|codec| allow.contains(codec)) {
        report.note(
            &key,
            "names every codec: it would refuse nothing (remove `codecs`)",
        );
    }
    let mut seen = Vec::new();
    allow.retain(|codec| {
        let is_new = !seen.contains(codec);
        seen.push(*codec);
        is_new
    });
    Codecs {
        allow,
        above_bytes: raw.above.or(Size(defaults::CODECS_ABOVE_BYTES)).0,
        unless_incompressible: raw
            .unless_incompressible
            .or(defaults::UNLESS_INCOMPRESSIBLE),
    }
}

impl Bounds {
    /// As the config file writes it.
    fn to_json(self) -> Value {
        let mut section = Map::new();
        for (key, bound) in [("min", self.min), ("max", self.max)] {
            if let Some(bytes) = bound {
                section.insert(key.to_owned(), json!(size_text(bytes)));
            }
        }
        Value::Object(section)
    }
}

impl TopicConfig {
    /// As the config file writes it.
    pub fn to_json(&self) -> Value {
        let mut section = Map::new();
        for (key, bounds) in [
            ("max_message_bytes", self.max_message_bytes),
            ("segment_bytes", self.segment_bytes),
        ] {
            if let Some(bounds) = bounds {
                section.insert(key.to_owned(), bounds.to_json());
            }
        }
        if !self.compression_type.is_empty() {
            section.insert("compression_type".to_owned(), json!(self.compression_type));
        }
        section.insert("brokers".to_owned(), json!(self.brokers));
        Value::Object(section)
    }
}

impl Codecs {
    /// As the config file writes it.
    pub fn to_json(&self) -> Value {
        json!({
            "allow": self.allow,
            "above": size_text(self.above_bytes),
            "unless_incompressible": self.unless_incompressible,
        })
    }
}
