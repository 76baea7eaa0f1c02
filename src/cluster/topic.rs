//! One topic: who it is, and what was last learned of its limits.
//!
//! Invariant: a `Topic` is one life of a topic. When the topic is deleted, or created again under the same name,
//! the old `Topic` is retired and never changes again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::limits::{
    BatchCell, CompressionCell, LearnedLimit, LimitCell, MomentCell, Origin, TopicLimit,
    batch_limit,
};
use super::registry::Node;
use crate::vocabulary::{CompressionType, Source};

/// One topic of the cluster. Sessions keep it and look at [`Topic::is_retired`] now and then.
#[derive(Debug)]
pub struct Topic {
    /// Its name, shared with the registry.
    pub name: Arc<str>,
    /// Its id; nil on a cluster without topic ids.
    pub id: Uuid,
    /// Kafka's own, such as `__consumer_offsets`.
    pub is_internal: bool,
    partitions: AtomicI32,
    retired: AtomicBool,
    /// Only answers to clients named it: our principal may not see it, or has not looked yet.
    is_from_clients: AtomicBool,
    seen_at: MomentCell,
    read_at: MomentCell,
    batch_limit: BatchCell,
    settings: Settings,
}

/// The four configs, each with its origin; also what one broker would have a topic inherit.
#[derive(Debug, Default)]
pub(super) struct Settings {
    max_message_bytes: LimitCell,
    segment_bytes: LimitCell,
    max_decompressed_message_bytes: LimitCell,
    compression_type: CompressionCell,
}

/// The four configs, as one response gives them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) max_message_bytes: Option<LearnedLimit>,
    pub(super) segment_bytes: Option<LearnedLimit>,
    pub(super) max_decompressed_message_bytes: Option<LearnedLimit>,
    pub(super) compression_type: Option<(CompressionType, Origin)>,
}

impl Settings {
    pub(super) fn set(&self, reading: &Reading) {
        self.max_message_bytes.set(reading.max_message_bytes);
        self.segment_bytes.set(reading.segment_bytes);
        self.max_decompressed_message_bytes
            .set(reading.max_decompressed_message_bytes);
        self.compression_type.set(reading.compression_type);
    }

    pub(super) fn get(&self) -> Reading {
        Reading {
            max_message_bytes: self.max_message_bytes.get(),
            segment_bytes: self.segment_bytes.get(),
            max_decompressed_message_bytes: self.max_decompressed_message_bytes.get(),
            compression_type: self.compression_type.get(),
        }
    }
}

impl Reading {
    /// This topic's own overrides, over what a topic without any inherits from one broker.
    pub(super) fn over(self, inherited: Reading) -> Self {
        let limit = |own: Option<LearnedLimit>, inherited| match own {
            Some(limit) if limit.origin == Origin::TopicOverride => own,
            _ => inherited,
        };
        Self {
            max_message_bytes: limit(self.max_message_bytes, inherited.max_message_bytes),
            segment_bytes: limit(self.segment_bytes, inherited.segment_bytes),
            max_decompressed_message_bytes: limit(
                self.max_decompressed_message_bytes,
                inherited.max_decompressed_message_bytes,
            ),
            compression_type: match self.compression_type {
                own @ Some((_, Origin::TopicOverride)) => own,
                _ => inherited.compression_type,
            },
        }
    }

    fn batch_limit(&self) -> Option<(u64, Source)> {
        batch_limit(self.max_message_bytes, self.segment_bytes)
    }

    pub(super) fn learned(self, read_at: Instant) -> TopicLimit {
        TopicLimit {
            read_at,
            max_message_bytes: self.max_message_bytes,
            segment_bytes: self.segment_bytes,
            max_decompressed_message_bytes: self.max_decompressed_message_bytes,
            compression_type: self.compression_type.map(|(compression, _)| compression),
        }
    }
}

impl Topic {
    pub(super) fn new(name: Arc<str>, id: Uuid, is_internal: bool) -> Self {
        Self {
            name,
            id,
            is_internal,
            partitions: AtomicI32::new(-1),
            retired: AtomicBool::new(false),
            is_from_clients: AtomicBool::new(false),
            seen_at: MomentCell::default(),
            read_at: MomentCell::default(),
            batch_limit: BatchCell::default(),
            settings: Settings::default(),
        }
    }

    /// How many partitions it has; `None` until Metadata said so.
    pub fn partitions(&self) -> Option<i32> {
        Some(self.partitions.load(Relaxed)).filter(|count| *count >= 0)
    }

    /// The largest batch the broker asked last takes, and the source that says so. One atomic load.
    ///
    /// `None`: not read yet, or no right to read. Before refusing by it, call `Cluster::read_limits`: this may be
    /// old, and the leader may have another default than the broker that was asked.
    pub fn batch_limit(&self) -> Option<(u64, Source)> {
        self.batch_limit.get()
    }

    /// [`Topic::batch_limit`] as this node applies it, as far as what topics inherit there was read.
    pub fn batch_limit_at(&self, node: Option<&Node>) -> Option<(u64, Source)> {
        let last = self.batch_limit.get()?;
        let Some(inherited) = node.and_then(Node::inherited) else {
            return Some(last);
        };
        self.settings.get().over(inherited).batch_limit()
    }

    /// Its `compression.type`, as [`Topic::batch_limit_at`].
    pub fn compression_type_at(&self, node: Option<&Node>) -> Option<CompressionType> {
        let own = self.settings.compression_type.get();
        let in_force = match (own, node.and_then(Node::inherited)) {
            (Some((_, Origin::BrokerDefault)), Some(inherited)) => inherited.compression_type,
            _ => own,
        };
        in_force.map(|(compression, _)| compression)
    }

    /// All that was learned last, from whichever broker was asked; `None` until the first response.
    pub fn learned(&self) -> Option<TopicLimit> {
        let read_at = self.read_at.get()?;
        Some(self.settings.get().learned(read_at))
    }

    /// Time since the limits were read last; `None` until the first response.
    pub fn limits_age(&self) -> Option<Duration> {
        self.read_at.get().map(|at| at.elapsed())
    }

    /// The topic was deleted, or created again: look it up again.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    pub(super) fn retire(&self) {
        self.retired.store(true, Relaxed);
    }

    pub(super) fn is_from_clients(&self) -> bool {
        self.is_from_clients.load(Relaxed)
    }

    pub(super) fn set_from_clients(&self, is_from_clients: bool) {
        self.is_from_clients.store(is_from_clients, Relaxed);
    }

    /// Metadata named the topic. One life of a topic only gains partitions, so a broker that names fewer is behind.
    /// (Without an id it may be another life.)
    pub(super) fn saw(&self, at: Instant, partitions: Option<i32>) {
        let is_old = self.seen_at.get().is_some_and(|seen| seen > at);
        if !is_old {
            self.seen_at.set(at);
        }
        match partitions {
            Some(partitions) if !self.id.is_nil() => {
                self.partitions.fetch_max(partitions, Relaxed);
            }
            Some(partitions) if !is_old => self.partitions.store(partitions, Relaxed),
            Some(_) | None => {}
        }
    }

    pub(super) fn seen_at(&self) -> Option<Instant> {
        self.seen_at.get()
    }

    /// Takes a response to a request sent at `at`, unless a newer one is here already.
    pub(super) fn learn(&self, reading: &Reading, at: Instant) {
        if self.read_at.get().is_some_and(|known| known > at) {
            return;
        }
        self.settings.set(reading);
        self.batch_limit.set(reading.batch_limit());
        self.read_at.set(at);
    }

    pub(super) fn reading(&self) -> Reading {
        self.settings.get()
    }

    pub(super) fn read_at(&self) -> Option<Instant> {
        self.read_at.get()
    }
}
