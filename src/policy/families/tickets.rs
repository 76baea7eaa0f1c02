//! What comes from a main topic that offloads into a retry or dead-letter topic: tickets, or the originals that its writer
//! was given.

use crate::batch::BATCH_HEADER_BYTES;
use crate::config::{Offload, Redeem};
use crate::policy::Policy;
use crate::vocabulary::Gate;

/// Of a record beside key, value and headers: its length, attributes, deltas, and the lengths of these three.
const AROUND_BYTES: u64 = 5 + 1 + 10 + 5 + 5 + 5 + 5;

/// What a member of a family is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// What its main topic has: it is not offloaded.
    AsStored,
    /// A ticket, or a value that is small enough without: a batch with one such record has at most so many bytes, before
    /// it gathers headers.
    Tickets {
        /// Wire bytes, uncompressed.
        batch_bytes: u64,
    },
    /// The original, of any size: whoever writes it got that, and the member is not offloaded.
    Originals,
}

impl Policy {
    /// What `member` is written of what fails in `main`.
    pub fn written(&self, main: &str, member: &str) -> Written {
        let Some(offload) = self.may_offload(main) else {
            return Written::AsStored;
        };
        if self.may_offload(member).is_some() || offload.redeem == Redeem::Nobody {
            return Written::Tickets {
                batch_bytes: self.largest_stored(main, offload),
            };
        }
        Written::Originals
    }

    /// A batch with the largest record that an offloading topic stores.
    fn largest_stored(&self, main: &str, offload: &Offload) -> u64 {
        let own = self.own(main);
        let of = |gate: Gate| {
            let mut limits = own.inside_limits().iter();
            limits
                .find(|limit| limit.gate == gate)
                .map(|limit| limit.value)
        };
        // What nobody limits is taken to be as large as what gathers later.
        let rest = match (of(Gate::Key), of(Gate::Headers)) {
            (Some(key), Some(headers)) => key.saturating_add(headers),
            _ => self.families().headroom_bytes(),
        };
        let by_parts = offload
            .above_bytes
            .saturating_add(rest)
            .saturating_add(AROUND_BYTES);
        let record = of(Gate::Record).map_or(by_parts, |limit| limit.min(by_parts));
        record.saturating_add(BATCH_HEADER_BYTES as u64)
    }
}
