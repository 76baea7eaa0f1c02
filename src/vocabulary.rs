//! The product's vocabulary as types. One word per thing: the same label stands in config keys, metric
//! labels, log fields and error text. Invariant: depends on no other module.

/// Declares an enum whose every variant has one fixed label.
macro_rules! labelled {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $label:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vmeta])* $variant),+ }

        impl $name {
            /// Every variant, in declaration order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word used in config, metrics, logs and error text.
            pub const fn label(self) -> &'static str {
                match self { $(Self::$variant => $label),+ }
            }

            /// The variant with this label.
            pub fn from_label(label: &str) -> Option<Self> {
                match label { $($label => Some(Self::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.label())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.label())
            }
        }
    };
}
pub(crate) use labelled;

mod compression;
mod finding_rule;
mod limit;
mod log;

pub use compression::{Codec, CompressionType};
pub use finding_rule::FindingRule;
pub use limit::{LIMITS, Limit, MemberLimit, Size};
pub use log::{Histograms, LogFormat, LogLevel, RecordKey};

labelled! {
    /// A place where a size is compared with a limit.
    Gate {
        /// Wire bytes of one partition's record batch, its 61-byte header included.
        Batch = "batch",
        /// 61 + the records after decompression.
        Uncompressed = "uncompressed",
        /// One record as encoded, its length varint included.
        Record = "record",
        /// What the Java producer would compare with `max.request.size`.
        Estimate = "estimate",
        /// One record's key.
        Key = "key",
        /// One record's value.
        Value = "value",
        /// All header names and values of one record together.
        Headers = "headers",
        /// Uncompressed / wire, for batches above 1 MiB uncompressed.
        Ratio = "ratio",
        /// One whole request.
        Frame = "frame",
        /// The codec of a batch above so many uncompressed bytes.
        Codec = "codec",
        /// What a request sets a topic's (or the brokers') configs to.
        Config = "config",
    }
}

impl Gate {
    /// The configuration's key for its limit.
    pub const fn limit_key(self) -> &'static str {
        match self {
            Self::Batch => "batch_bytes",
            Self::Uncompressed => "uncompressed_bytes",
            Self::Record => "record_bytes",
            Self::Estimate => "estimate_bytes",
            Self::Key => "key_bytes",
            Self::Value => "value_bytes",
            Self::Headers => "headers_bytes",
            Self::Ratio => "ratio",
            Self::Frame => "frame_bytes",
            Self::Codec => "codecs",
            Self::Config => "topic_config",
        }
    }

    /// A ticket in the value's place makes this size smaller.
    pub const fn is_mended_by_a_ticket(self) -> bool {
        match self {
            Self::Batch | Self::Uncompressed | Self::Record | Self::Estimate | Self::Value => true,
            Self::Key | Self::Headers | Self::Ratio | Self::Frame | Self::Codec | Self::Config => {
                false
            }
        }
    }

    /// Retry and dead-letter topics gather headers, so these sizes grow there; keys and values stay as they are.
    pub const fn grows(self) -> bool {
        match self {
            Self::Batch | Self::Uncompressed | Self::Record | Self::Estimate | Self::Headers => {
                true
            }
            Self::Key | Self::Value | Self::Ratio | Self::Frame | Self::Codec | Self::Config => {
                false
            }
        }
    }
}

/// The Java producer's `max.request.size` unless it says otherwise: compared with its estimate of one record.
pub const DEFAULT_MAX_REQUEST_SIZE: u64 = 1_048_576;

/// What librdkafka, franz-go, kafka-go and sarama gather in one batch before they send it, about; they never split one,
/// so a batch limit below it makes them lose small records.
pub const BATCHING_BYTES: u64 = 1 << 20;

labelled! {
    /// Where a limit comes from.
    Source {
        /// A config rule (or the `limits` that hold where no rule does).
        Rule = "rule",
        /// The topic's own override of `max.message.bytes`.
        Topic = "topic",
        /// The broker default the topic inherits.
        Broker = "broker",
        /// `segment.bytes` below `max.message.bytes`.
        Segment = "segment",
        /// Another member of the topic's family.
        Family = "family",
    }
}

labelled! {
    /// What a rule does with a batch over its limit.
    Action {
        /// Refuse it.
        Reject = "reject",
        /// Count and log what would be refused; forward it.
        Observe = "observe",
        /// Put the value into the object store and forward a ticket.
        Offload = "offload",
    }
}

labelled! {
    /// Which Kafka error code a refusal bears.
    ErrorCode {
        /// 10, and 87 where a client would loop on 10.
        Auto = "auto",
        /// 10.
        MessageTooLarge = "MESSAGE_TOO_LARGE",
        /// 44.
        PolicyViolation = "POLICY_VIOLATION",
        /// 87.
        InvalidRecord = "INVALID_RECORD",
    }
}
