//! A Produce above the frame limit: read for its names and partitions, kept for nothing else, and answered.

use std::sync::Arc;

use crate::count::Count as _;
use crate::wire::api::{FrameHead, HEAD_BYTES};
use crate::wire::produce::FIRST_FLEXIBLE_VERSION;
use crate::wire::walk::{self, Visitor};
use crate::wire::{Malformed, Reason, Walker, Writer};

/// Names and partitions remembered: enough for 40,000 partitions.
const MOST_REMEMBERED_BYTES: usize = 1024 * 1024;

/// An oversized request that is read and dropped.
pub(super) struct OversizedFrame {
    /// Its head.
    pub head: FrameHead,
    /// It is only observed.
    pub passes: bool,
    left: usize,
    /// Bytes of the head still at the front of what comes.
    head_left: usize,
    walker: Walker,
    found: Found,
}

/// What a response must name.
#[derive(Debug, Default)]
pub(super) struct Found {
    flexible: bool,
    /// `acks`
    pub acks: i16,
    /// `client_id`
    pub client_id: Option<Vec<u8>>,
    topic_key: Arc<[u8]>,
    /// Topic as encoded, and partition.
    pub partitions: Vec<(Arc<[u8]>, i32)>,
    remembered_bytes: usize,
}

impl OversizedFrame {
    /// A request that begins with `head`.
    pub(super) fn new(head: FrameHead, passes: bool) -> Self {
        let body = head.frame_bytes().saturating_sub(HEAD_BYTES);
        Self {
            head,
            passes,
            left: head.frame_bytes(),
            head_left: HEAD_BYTES,
            walker: Walker::new(&walk::PRODUCE_REQUEST, head.api_version, body as u64),
            found: Found {
                flexible: head.api_version >= FIRST_FLEXIBLE_VERSION,
                ..Found::default()
            },
        }
    }

    /// Bytes of the frame still to come.
    pub(super) const fn left(&self) -> usize {
        self.left
    }

    /// Memory for the names and partitions found so far.
    pub(super) const fn remembered_bytes(&self) -> usize {
        self.found.remembered_bytes
    }

    /// Reads the next bytes of the frame, at most [`OversizedFrame::left`] of them.
    pub(super) fn read(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        self.left = self.left.saturating_sub(chunk.len());
        let skipped = self.head_left.min(chunk.len());
        self.head_left.decrease_by(skipped);
        self.walker
            .advance(chunk.get(skipped..).unwrap_or_default(), &mut self.found)?;
        if self.found.remembered_bytes > MOST_REMEMBERED_BYTES {
            return Err(Malformed::new("partition_data", Reason::TooLong));
        }
        if self.left == 0 && !self.walker.is_at_tail() {
            return Err(Malformed::new("topic_data", Reason::Truncated));
        }
        Ok(())
    }

    /// What was found, once all of it was read.
    pub(super) fn into_found(self) -> Found {
        self.found
    }
}

impl Visitor for Found {
    fn fixed(&mut self, field: &'static str, bytes: &[u8]) {
        match field {
            "acks" => self.acks = bytes.first_chunk().map_or(0, |b| i16::from_be_bytes(*b)),
            "topic_id" => self.topic_key = bytes.into(),
            "index" => {
                let index = bytes.first_chunk().map_or(0, |b| i32::from_be_bytes(*b));
                self.remembered_bytes
                    .increase_by(size_of::<(Arc<[u8]>, i32)>());
                if self.remembered_bytes <= MOST_REMEMBERED_BYTES {
                    self.partitions.push((Arc::clone(&self.topic_key), index));
                }
            }
            _ => {}
        }
    }

    fn text(&mut self, field: &'static str, bytes: Option<&[u8]>) {
        match field {
            "client_id" => self.client_id = bytes.map(<[u8]>::to_vec),
            "topic" => {
                let mut w = Writer::part();
                w.string(self.flexible, bytes);
                self.remembered_bytes.increase_by(w.len());
                self.topic_key = w.into_part().into();
            }
            _ => {}
        }
    }
}
