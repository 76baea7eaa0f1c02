//! Says how much of a batch is looked at, and what that costs.

use std::time::Duration;

use super::limits::Ceilings;
use super::{BATCH_HEADER_BYTES, DeepLimits};
use crate::batch::BatchHeader;
use crate::codec::upper_bound;
use crate::vocabulary::Codec;

/// How much one inspection does.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effort {
    measures: bool,
    all_gates: bool,
    near_share: Option<f64>,
    decode_at_most_bytes: u64,
}

impl Effort {
    /// Only what the limits need.
    pub const VERDICT: Self = Self {
        measures: false,
        all_gates: false,
        near_share: None,
        decode_at_most_bytes: u64::MAX,
    };

    /// All measures, for metrics, whether or not a limit needs them.
    pub const MEASURES: Self = Self {
        measures: true,
        all_gates: false,
        near_share: None,
        decode_at_most_bytes: u64::MAX,
    };

    /// Decompresses no more than so many bytes, and scans no longer than that takes. Where that does not suffice for a verdict the finding is
    /// [`Unfinished`](super::Judgement::Unfinished); where it does not suffice for measures, they are missing.
    pub const fn decode_at_most(self, bytes: u64) -> Self {
        Self {
            decode_at_most_bytes: bytes,
            ..self
        }
    }

    /// Notices sizes above this share of their limit ([`Inspection::near`](super::Inspection::near)): what would prove
    /// a batch within its limits must then prove it far from them, or the next rung is climbed.
    pub const fn noticing_near(self, share: f64) -> Self {
        Self {
            near_share: Some(share),
            ..self
        }
    }

    /// Does not stop at the first violation: [`Scratch::overs`](super::Scratch::overs) has one for every gate.
    pub const fn of_all_gates(self) -> Self {
        Self {
            all_gates: true,
            ..self
        }
    }

    pub(super) const fn near_share(self) -> Option<f64> {
        self.near_share
    }

    pub(super) const fn is_of_all_gates(self) -> bool {
        self.all_gates
    }

    pub(super) const fn less(self, bytes: u64) -> Self {
        self.decode_at_most(self.decode_at_most_bytes.saturating_sub(bytes))
    }

    pub(super) const fn measures(self) -> bool {
        self.measures
    }

    pub(super) const fn decode_at_most_bytes(self) -> u64 {
        self.decode_at_most_bytes
    }
}

/// Bytes that [`inspect`](super::inspect) will probably decompress; 0 where it decides without. Reads headers only.
///
/// A guess where it is gzip (its last bytes claim a size): give an inspection that must not take long
/// [`Effort::decode_at_most`] as well.
pub fn expected_decode_bytes(
    header: &BatchHeader,
    batch: &[u8],
    limits: &DeepLimits,
    effort: Effort,
) -> u64 {
    let wire_bytes = header.wire_bytes();
    let Some(codec) = header.codec().filter(|codec| *codec != Codec::None) else {
        return 0;
    };
    if limits.is_none() && !effort.measures() {
        return 0;
    }
    let payload = usize::try_from(wire_bytes)
        .ok()
        .and_then(|end| batch.get(BATCH_HEADER_BYTES..end));
    let Some(payload) = payload else { return 0 };
    let ceilings = Ceilings::new(limits, wire_bytes, effort.near_share());
    let bound = upper_bound(codec, payload).map_or(u64::MAX, |bound| bound.at_most);
    if !effort.measures() && ceilings.hold(bound.saturating_add(BATCH_HEADER_BYTES as u64)) {
        return 0;
    }
    let likely = match (codec, payload.last_chunk::<4>()) {
        (Codec::Gzip, Some(claim)) => {
            u64::from(u32::from_le_bytes(*claim)).clamp(payload.len() as u64, bound)
        }
        _ => bound,
    };
    likely
        .min(ceilings.uncompressed)
        .min(effort.decode_at_most_bytes)
}

/// How long a decode to so many bytes takes on one core: medians for JSON in 64 KiB batches, rounded up.
pub const fn decode_time(codec: Codec, bytes: u64) -> Duration {
    let nanoseconds_per_kilobyte = match codec {
        Codec::None => 0,
        Codec::Gzip => 2_500,
        Codec::Snappy => 900,
        Codec::Lz4 => 600,
        Codec::Zstd => 1_500,
    };
    Duration::from_nanos((bytes / 1_000).saturating_mul(nanoseconds_per_kilobyte))
}
