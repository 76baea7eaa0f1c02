//! Holds what DescribeConfigs says of sizes: the values a topic has, and where each comes from.
//!
//! Invariant: reading is one atomic load per value, without a lock, and a number never parts from its origin.

use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicU8, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};

use crate::vocabulary::{Codec, CompressionType, Source};

/// Where a learned value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The topic's own config (`DYNAMIC_TOPIC_CONFIG`).
    TopicOverride,
    /// What the topic inherits from the broker asked: its per-broker, cluster-wide, static or built-in value.
    BrokerDefault,
}

/// A number and its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LearnedLimit {
    /// The value.
    pub bytes: u64,
    /// Where it comes from.
    pub origin: Origin,
}

/// One topic's limits as one broker applies them, at one moment. `None`: not read, or the broker has no such config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicLimit {
    /// The request that brought this was sent at this moment: changes acknowledged before it are in.
    pub read_at: Instant,
    /// `max.message.bytes`
    pub max_message_bytes: Option<LearnedLimit>,
    /// `segment.bytes`
    pub segment_bytes: Option<LearnedLimit>,
    /// `max.decompressed.message.bytes`, from Kafka 4.4.
    pub max_decompressed_message_bytes: Option<LearnedLimit>,
    /// `compression.type`
    pub compression_type: Option<CompressionType>,
}

impl TopicLimit {
    /// The largest batch the broker takes, and the source that says so: `segment` where `segment.bytes` is below
    /// `max.message.bytes`.
    pub fn batch_limit(&self) -> Option<(u64, Source)> {
        batch_limit(self.max_message_bytes, self.segment_bytes)
    }

    /// How old the knowledge is.
    pub fn age(&self) -> Duration {
        self.read_at.elapsed()
    }
}

/// The smaller of `max.message.bytes` and `segment.bytes`, and what says so.
pub(super) fn batch_limit(
    max_message_bytes: Option<LearnedLimit>,
    segment_bytes: Option<LearnedLimit>,
) -> Option<(u64, Source)> {
    let declared = max_message_bytes.map(|limit| {
        let source = match limit.origin {
            Origin::TopicOverride => Source::Topic,
            Origin::BrokerDefault => Source::Broker,
        };
        (limit.bytes, source)
    });
    let segment = segment_bytes.map(|limit| (limit.bytes, Source::Segment));
    match (declared, segment) {
        (Some(declared), Some(segment)) if segment.0 < declared.0 => Some(segment),
        (None, segment) => segment,
        (declared, _) => declared,
    }
}

/// A `LearnedLimit` in one atomic word: bit 63 known, bit 62 inherited, the number below.
#[derive(Debug, Default)]
pub(super) struct LimitCell(AtomicU64);

const KNOWN: u64 = 1 << 63;
const INHERITED: u64 = 1 << 62;

impl LimitCell {
    pub(super) fn get(&self) -> Option<LearnedLimit> {
        let word = self.0.load(Relaxed);
        (word & KNOWN != 0).then_some(LearnedLimit {
            bytes: word & (INHERITED - 1),
            origin: if word & INHERITED == 0 {
                Origin::TopicOverride
            } else {
                Origin::BrokerDefault
            },
        })
    }

    pub(super) fn set(&self, limit: Option<LearnedLimit>) {
        let word = limit.map_or(0, |limit| {
            let inherited = match limit.origin {
                Origin::TopicOverride => 0,
                Origin::BrokerDefault => INHERITED,
            };
            KNOWN | inherited | limit.bytes.min(INHERITED - 1)
        });
        self.0.store(word, Relaxed);
    }
}

/// The batch limit in one atomic word: bit 63 known, bits 61–62 the source, the number below.
#[derive(Debug, Default)]
pub(super) struct BatchCell(AtomicU64);

const SOURCE_SHIFT: u32 = 61;

impl BatchCell {
    pub(super) fn get(&self) -> Option<(u64, Source)> {
        let word = self.0.load(Relaxed);
        let source = match word >> SOURCE_SHIFT {
            0b100 => Source::Topic,
            0b101 => Source::Broker,
            0b110 => Source::Segment,
            _ => return None,
        };
        Some((word & ((1 << SOURCE_SHIFT) - 1), source))
    }

    pub(super) fn set(&self, limit: Option<(u64, Source)>) {
        let word = limit.map_or(0, |(bytes, source)| {
            let source: u64 = match source {
                Source::Topic => 0b100,
                Source::Segment => 0b110,
                _ => 0b101,
            };
            source << SOURCE_SHIFT | bytes.min((1 << SOURCE_SHIFT) - 1)
        });
        self.0.store(word, Relaxed);
    }
}

/// A `CompressionType` and its origin in one byte.
#[derive(Debug, Default)]
pub(super) struct CompressionCell(AtomicU8);

const COMPRESSION_INHERITED: u8 = 0x80;
const COMPRESSION_PRODUCER: u8 = 1;
const COMPRESSION_FIRST_CODEC: u8 = 2;

impl CompressionCell {
    pub(super) fn get(&self) -> Option<(CompressionType, Origin)> {
        let byte = self.0.load(Relaxed);
        let origin = if byte & COMPRESSION_INHERITED == 0 {
            Origin::TopicOverride
        } else {
            Origin::BrokerDefault
        };
        let compression = match byte & !COMPRESSION_INHERITED {
            0 => return None,
            COMPRESSION_PRODUCER => CompressionType::Producer,
            code => CompressionType::Stored(
                *Codec::ALL.get(usize::from(code.checked_sub(COMPRESSION_FIRST_CODEC)?))?,
            ),
        };
        Some((compression, origin))
    }

    pub(super) fn set(&self, compression: Option<(CompressionType, Origin)>) {
        let byte = compression.map_or(0, |(compression, origin)| {
            let inherited = match origin {
                Origin::TopicOverride => 0,
                Origin::BrokerDefault => COMPRESSION_INHERITED,
            };
            let code = match compression {
                CompressionType::Producer => COMPRESSION_PRODUCER,
                CompressionType::Stored(codec) => {
                    let index = Codec::ALL.iter().position(|known| *known == codec);
                    let index = index.and_then(|i| u8::try_from(i).ok()).unwrap_or(0);
                    COMPRESSION_FIRST_CODEC.saturating_add(index)
                }
            };
            inherited | code
        });
        self.0.store(byte, Relaxed);
    }
}

/// A moment in one atomic word: nanoseconds since this process first asked, plus one; 0 is never.
///
/// Whoever sees a moment also sees what was stored before it (release, acquire).
#[derive(Debug, Default)]
pub(super) struct MomentCell(AtomicU64);

impl MomentCell {
    pub(super) fn get(&self) -> Option<Instant> {
        let nanos = self.0.load(Acquire).checked_sub(1)?;
        epoch().checked_add(Duration::from_nanos(nanos))
    }

    pub(super) fn set(&self, at: Instant) {
        let nanos = at.saturating_duration_since(epoch()).as_nanos();
        let word = u64::try_from(nanos).unwrap_or(u64::MAX).saturating_add(1);
        self.0.store(word, Release);
    }
}

/// Starts the clock of [`MomentCell`]s: moments before it count as it.
pub(super) fn start_clock() {
    epoch();
}

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}
