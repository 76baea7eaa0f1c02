//! Looks into batches that are about to be refused, for the text; lends the decoders of its thread.

use std::cell::RefCell;

use super::Measured;
use crate::inspect::{DeepLimits, Effort, Inspection, Scratch, inspect};
use crate::policy::Size;

/// Bytes decompressed for one sample, or for the text of one refusal: under a millisecond of zstd.
pub(super) const MOST_BYTES: u64 = 512 * 1024;

thread_local! {
    /// Decoders and their buffers, kept from batch to batch.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

/// Lends this thread's decoders.
pub(super) fn with_scratch<T>(act: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with_borrow_mut(act)
}

/// Bytes decompressed for the text of a refusal, at most: as many as came on the wire tell whether compression gained
/// anything. What gained nothing decodes at the speed of a copy.
const MOST_LOOKED_AT_BYTES: u64 = 4 * 1024 * 1024;

/// What is inside a batch about to be refused, for the text: as far as it can be seen in passing.
pub(super) fn look_inside(measured: &mut Measured, batch: &[u8]) {
    if measured.header.magic < 2 {
        return;
    }
    // Some more than came: what shrank by next to nothing is measured to its end too.
    let wire_bytes = measured.facts.wire_bytes;
    let enough = wire_bytes.saturating_add(wire_bytes / 4);
    let effort = Effort::MEASURES.decode_at_most(enough.clamp(MOST_BYTES, MOST_LOOKED_AT_BYTES));
    let Inspection {
        uncompressed,
        largest,
        seen,
        ..
    } = with_scratch(|scratch| {
        inspect(&measured.header, batch, &DeepLimits::NONE, effort, scratch)
    });
    measured.facts.uncompressed = match (measured.facts.uncompressed, uncompressed) {
        (Some(known @ Size::Exact(_)), _) | (Some(known), None) => Some(known),
        (Some(Size::AtLeast(known)), Some(Size::AtLeast(new))) => {
            Some(Size::AtLeast(known.max(new)))
        }
        (_, new) => new,
    };
    measured.facts.largest = measured.facts.largest.or(largest);
    measured.facts.seen = measured.facts.seen.or(seen);
}
