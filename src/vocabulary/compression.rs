//! Codecs of record batches, and what a topic stores batches with.

labelled! {
    /// Compression of a record batch: bits 0–2 of its attributes.
    Codec {
        /// 0
        None = "none",
        /// 1
        Gzip = "gzip",
        /// 2
        Snappy = "snappy",
        /// 3
        Lz4 = "lz4",
        /// 4
        Zstd = "zstd",
    }
}

impl Codec {
    /// The codec in the attributes of a batch (or a magic 0/1 message); `None` for the ids 5–7.
    pub const fn from_attributes(attributes: i16) -> Option<Self> {
        match attributes & 0x07 {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// This codec's of cells that each codec has one of, in the order of [`Codec::ALL`].
    pub(crate) const fn cell<T>(self, cells: &[T; Self::ALL.len()]) -> &T {
        let [none, gzip, snappy, lz4, zstd] = cells;
        match self {
            Self::None => none,
            Self::Gzip => gzip,
            Self::Snappy => snappy,
            Self::Lz4 => lz4,
            Self::Zstd => zstd,
        }
    }

    /// As `compression.type` names it.
    pub const fn stored_label(self) -> &'static str {
        match self {
            Self::None => "uncompressed",
            codec => codec.label(),
        }
    }
}

/// A topic's `compression.type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionType {
    /// Batches are stored as they come.
    Producer,
    /// Batches are stored by this codec (`uncompressed` is [`Codec::None`]); the rewritten batch must fit too.
    Stored(Codec),
}

impl CompressionType {
    /// As `compression.type` has it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Producer => "producer",
            Self::Stored(codec) => codec.stored_label(),
        }
    }

    /// What a value of `compression.type` means.
    pub fn from_label(label: &str) -> Option<Self> {
        match label {
            "producer" => Some(Self::Producer),
            "uncompressed" => Some(Self::Stored(Codec::None)),
            other => Codec::from_label(other).map(Self::Stored),
        }
    }
}
