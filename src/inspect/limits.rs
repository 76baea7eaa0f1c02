//! Limits inside a batch, and what they come to for one batch.

use super::near::{NearGates, far_bytes, is_near};
use super::{Effort, Over};
use crate::batch::{BATCH_HEADER_BYTES, ESTIMATE_SURPLUS_BYTES, RecordSizes, Rewritten};
use crate::vocabulary::Gate;
use crate::vocabulary::Size;

/// The gate `ratio` looks at batches above this uncompressed size only.
const RATIO_FROM_BYTES: u64 = 1024 * 1024;

/// Decoded behind the limit of a batch's own size, for what its records are over: a bomb must not cost more.
const BEHIND_LIMIT_BYTES: u64 = 64 * 1024 * 1024;

/// Limits of the gates that look inside a batch; strictly more is over.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct DeepLimits {
    /// Gate `uncompressed`.
    pub uncompressed_bytes: Option<u64>,
    /// Gate `record`.
    pub record_bytes: Option<u64>,
    /// Gate `estimate`.
    pub estimate_bytes: Option<u64>,
    /// Gate `key`.
    pub key_bytes: Option<u64>,
    /// Gate `value`.
    pub value_bytes: Option<u64>,
    /// Gate `headers`.
    pub headers_bytes: Option<u64>,
    /// Gate `ratio`: uncompressed / wire.
    pub ratio: Option<f64>,
    /// The broker writes the records again before it stores them ([`Rewritten`](crate::batch::Rewritten)): of what came
    /// and what it writes, the larger counts.
    pub is_rewritten: bool,
}

impl DeepLimits {
    /// Nothing inside the batch is limited.
    pub const NONE: Self = Self {
        uncompressed_bytes: None,
        record_bytes: None,
        estimate_bytes: None,
        key_bytes: None,
        value_bytes: None,
        headers_bytes: None,
        ratio: None,
        is_rewritten: false,
    };

    /// Whether nothing inside the batch is limited.
    pub const fn is_none(&self) -> bool {
        self.uncompressed_bytes.is_none() && self.ratio.is_none() && !self.limits_records()
    }

    /// Whether records are looked at one by one.
    pub const fn limits_records(&self) -> bool {
        self.record_bytes.is_some()
            || self.estimate_bytes.is_some()
            || self.key_bytes.is_some()
            || self.value_bytes.is_some()
            || self.headers_bytes.is_some()
    }
}

/// The limits for one batch of known wire bytes: numbers only, no limit is `u64::MAX`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ceilings {
    record: u64,
    estimate: u64,
    key: u64,
    value: u64,
    headers: u64,
    /// A record of so many bytes exceeds none of the above.
    pub(super) harmless_record: u64,
    pub(super) limits_records: bool,
    /// The smaller of `uncompressed` and `ratio`.
    pub(super) uncompressed: u64,
    uncompressed_gate: Gate,
    /// Both, the gate's own first.
    of_batch: [(Gate, u64); 2],
    /// The share of a limit above which a size is near it.
    near_share: Option<f64>,
    /// A record of so many bytes is near none of the limits of records.
    pub(super) far_record: u64,
    /// A batch of so many uncompressed bytes is near none of its limits.
    far_uncompressed: u64,
    pub(super) is_rewritten: bool,
    /// What all records, and each of them, may grow by when they are written again.
    growth: (u64, u64),
}

impl Ceilings {
    pub(super) fn new(limits: &DeepLimits, wire_bytes: u64, near_share: Option<f64>) -> Self {
        let [record, estimate, key, value, headers, uncompressed] = [
            limits.record_bytes,
            limits.estimate_bytes,
            limits.key_bytes,
            limits.value_bytes,
            limits.headers_bytes,
            limits.uncompressed_bytes,
        ]
        .map(|limit| limit.unwrap_or(u64::MAX));
        let by_ratio = limits
            .ratio
            .map_or(u64::MAX, |ratio| ratio_bytes(ratio, wire_bytes));
        let far = |limit| far_bytes(limit, near_share);
        Self {
            record,
            estimate,
            key,
            value,
            headers,
            of_batch: [(Gate::Uncompressed, uncompressed), (Gate::Ratio, by_ratio)],
            near_share,
            far_record: far(record)
                .min(match far(estimate) {
                    u64::MAX => u64::MAX,
                    bytes => bytes.saturating_sub(ESTIMATE_SURPLUS_BYTES),
                })
                .min(far(key))
                .min(far(value))
                .min(far(headers)),
            far_uncompressed: far(uncompressed.min(by_ratio)),
            harmless_record: record
                .min(limits.estimate_bytes.map_or(u64::MAX, |bytes| {
                    bytes.saturating_sub(ESTIMATE_SURPLUS_BYTES)
                }))
                .min(key)
                .min(value)
                .min(headers),
            limits_records: limits.limits_records(),
            uncompressed: uncompressed.min(by_ratio),
            uncompressed_gate: if by_ratio < uncompressed {
                Gate::Ratio
            } else {
                Gate::Uncompressed
            },
            is_rewritten: limits.is_rewritten,
            growth: (0, 0),
        }
    }

    /// The same for a batch of so many records: what they may grow by is allowed for.
    pub(super) fn for_records(self, records: i32) -> Self {
        if !self.is_rewritten {
            return self;
        }
        let records = records.max(0).unsigned_abs();
        let of_each = Rewritten::most_growth_bytes(records);
        Self {
            growth: (u64::from(records).saturating_mul(of_each), of_each),
            ..self
        }
    }

    /// Whether a batch of at most so many uncompressed bytes is within every limit, whatever is in it.
    pub(super) fn hold(&self, at_most: u64) -> bool {
        let records_bytes = at_most.saturating_sub(BATCH_HEADER_BYTES as u64);
        let (of_all, of_each) = self.growth;
        at_most.saturating_add(of_all) <= self.uncompressed
            && records_bytes.saturating_add(of_each) <= self.harmless_record
    }

    /// Whether a batch of at most so many uncompressed bytes is near none of the limits, whatever is in it.
    /// `is_exact`: it is just as many, so that nothing is left to find out about the batch's own size.
    pub(super) fn are_far(&self, at_most: u64, is_exact: bool) -> bool {
        let (of_all, of_each) = self.growth;
        let records_bytes = at_most.saturating_sub(BATCH_HEADER_BYTES as u64);
        ((is_exact && !self.is_rewritten)
            || at_most.saturating_add(of_all) <= self.far_uncompressed)
            && records_bytes.saturating_add(of_each) <= self.far_record
    }

    /// Of an uncompressed batch its size alone decides: it is within every limit, and near none that its records must be
    /// walked for.
    pub(super) fn are_held_by_header(&self, uncompressed: u64) -> bool {
        self.batch_over(Size::Exact(uncompressed)).is_none()
            && self.hold(uncompressed)
            && self.are_far(uncompressed, true)
    }

    /// [`Self::are_far`] for an old message.
    pub(super) fn are_far_from_message(&self, around: u64, wraps: u64, is_exact: bool) -> bool {
        (is_exact || around.saturating_add(wraps) <= self.far_uncompressed)
            && wraps <= self.far_record
    }

    /// The gates of the whole batch that so many uncompressed bytes are near.
    pub(super) fn batch_near(&self, uncompressed: Size) -> NearGates {
        let Size::Exact(bytes) = uncompressed else {
            return NearGates::NONE;
        };
        self.near(self.of_batch.map(|(gate, limit)| (gate, bytes, limit)))
    }

    /// The gates of one record that its sizes are near.
    pub(super) fn record_near(&self, sizes: &RecordSizes) -> NearGates {
        self.near(self.of_record(sizes))
    }

    fn near<const N: usize>(&self, sizes: [(Gate, u64, u64); N]) -> NearGates {
        sizes
            .into_iter()
            .filter(|(_, size, limit)| {
                self.near_share
                    .is_some_and(|share| is_near(*size, *limit, share))
            })
            .fold(NearGates::NONE, |near, (gate, ..)| near.with(gate))
    }

    /// The most bytes of records that [`Self::hold`], whatever they are.
    pub(super) fn held_records_bytes(&self) -> u64 {
        let (of_all, of_each) = self.growth;
        self.uncompressed
            .saturating_sub((BATCH_HEADER_BYTES as u64).saturating_add(of_all))
            .min(self.harmless_record.saturating_sub(of_each))
    }

    /// Whether an old message is within every limit that has so many bytes around what it wraps, and wraps at most
    /// so many.
    pub(super) fn hold_message(&self, around: u64, wraps_at_most: u64) -> bool {
        around.saturating_add(wraps_at_most) <= self.uncompressed
            && wraps_at_most <= self.harmless_record
    }

    /// The most uncompressed bytes that are worth a decode: none behind a limit, unless all gates are looked at.
    pub(super) fn decode_at_most(&self, effort: Effort) -> u64 {
        if effort.is_of_all_gates() {
            self.uncompressed.saturating_add(BEHIND_LIMIT_BYTES)
        } else {
            self.uncompressed
        }
    }

    /// The batch's own violation, if so many uncompressed bytes are one.
    pub(super) fn batch_over(&self, uncompressed: Size) -> Option<Over> {
        (uncompressed.bytes() > self.uncompressed).then_some(Over {
            gate: self.uncompressed_gate,
            size: uncompressed,
            limit_bytes: self.uncompressed,
            record: None,
        })
    }

    /// Every violation of the whole batch.
    pub(super) fn batch_overs(&self, uncompressed: Size) -> impl Iterator<Item = Over> {
        let is_over = move |(_, limit): &(Gate, u64)| uncompressed.bytes() > *limit;
        let overs = self.of_batch.into_iter().filter(is_over);
        overs.map(move |(gate, limit_bytes)| Over {
            gate,
            size: uncompressed,
            limit_bytes,
            record: None,
        })
    }

    /// Every violation of one record: gate, size, limit.
    pub(super) fn record_overs(
        &self,
        sizes: &RecordSizes,
    ) -> impl Iterator<Item = (Gate, u64, u64)> {
        let sizes = self.of_record(sizes).into_iter();
        sizes.filter(|(_, size, limit)| size > limit)
    }

    /// A record's first violation: gate, size, limit.
    #[inline]
    pub(super) fn record_over(&self, sizes: &RecordSizes) -> Option<(Gate, u64, u64)> {
        if sizes.record_bytes <= self.harmless_record {
            return None;
        }
        self.of_record(sizes)
            .into_iter()
            .find(|(_, size, limit)| size > limit)
    }

    /// What is compared of one record: gate, size, limit.
    const fn of_record(&self, sizes: &RecordSizes) -> [(Gate, u64, u64); 5] {
        [
            (Gate::Record, sizes.record_bytes, self.record),
            (Gate::Estimate, sizes.estimate_bytes, self.estimate),
            (Gate::Key, sizes.key_bytes, self.key),
            (Gate::Value, sizes.value_bytes, self.value),
            (Gate::Headers, sizes.headers_bytes, self.headers),
        ]
    }
}

/// The most uncompressed bytes that a ratio allows a batch.
fn ratio_bytes(ratio: f64, wire_bytes: u64) -> u64 {
    // A product beyond 2^53 is rounded; a batch is below 2^32. `as` saturates, and takes NaN for 0.
    let allowed = (ratio * wire_bytes as f64).floor() as u64;
    allowed.max(RATIO_FROM_BYTES)
}
