//! Concludes from the largest sizes in a batch, once somebody has measured all of it, what [`inspect`](super::inspect)
//! would find by decoding it again.
//!
//! Invariant: it says no more than that a batch is within its limits, and near which. Of one that is over, which record
//! is at fault and by how much is for `inspect` to say.

use super::limits::Ceilings;
use super::{DeepLimits, Effort, Inspection, Judgement, Proof};
use crate::batch::{BatchHeader, RecordSizes};
use crate::vocabulary::Size;

/// The largest of each size in a batch that was measured to its end.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measures {
    /// 61 + records after decompression.
    pub uncompressed_bytes: u64,
    /// Of each size the largest; not of one and the same record.
    pub largest: RecordSizes,
}

impl Measures {
    /// One record more.
    #[inline]
    pub fn record(&mut self, sizes: &RecordSizes) {
        let largest = &mut self.largest;
        largest.record_bytes = largest.record_bytes.max(sizes.record_bytes);
        largest.estimate_bytes = largest.estimate_bytes.max(sizes.estimate_bytes);
        largest.key_bytes = largest.key_bytes.max(sizes.key_bytes);
        largest.value_bytes = largest.value_bytes.max(sizes.value_bytes);
        largest.headers_bytes = largest.headers_bytes.max(sizes.headers_bytes);
    }

    /// The batch is within all of these limits; `None` where it is not, or where the broker writes its records again and
    /// so stores other sizes than were measured.
    pub fn within(
        &self,
        header: &BatchHeader,
        limits: &DeepLimits,
        effort: Effort,
    ) -> Option<Inspection> {
        let size = Size::Exact(self.uncompressed_bytes);
        let ceilings = Ceilings::new(limits, header.wire_bytes(), effort.near_share());
        let is_over = limits.is_rewritten
            || ceilings.batch_over(size).is_some()
            || ceilings.record_over(&self.largest).is_some();
        (!is_over).then(|| Inspection {
            near: ceilings
                .batch_near(size)
                .and(ceilings.record_near(&self.largest)),
            ..Inspection::new(Judgement::Within, Proof::Decode).measured(size)
        })
    }
}
