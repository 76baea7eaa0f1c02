//! What was forwarded, remembered until the broker has answered: to explain its refusals, and to count what it stored.
//!
//! Invariant: a size that nobody stored is no measure for a limit, and is counted nowhere. What is counted is added up by
//! topic and codec first: the counters are shared by all workers.

use std::cell::Cell;
use std::sync::Arc;

use smallvec::SmallVec;

use super::{Measured, TopicHandle};
use crate::count::{Count as _, total};
use crate::inspect::{Sizes, SizesTally};
use crate::policy::{BatchFacts, Size};
use crate::vocabulary::Codec;

/// A partition that was forwarded.
#[derive(Debug)]
pub(crate) struct Sent {
    /// Its topic.
    pub topic: Arc<TopicHandle>,
    /// `index`
    pub partition: i32,
    /// Its wire bytes.
    pub wire_bytes: u64,
    /// Its codec.
    pub codec: Option<Codec>,
    /// Its records, as declared.
    pub records: i32,
    /// 61 + records after decompression, where it was measured.
    pub uncompressed: Option<Size>,
    /// Objects that were written for its tickets, and were not there before.
    pub objects: u64,
    /// Those of its records, where they were measured.
    sizes: Option<Box<Sizes>>,
    /// And 61 + all of them.
    uncompressed_bytes: Option<u64>,
    /// The broker refused it for its size.
    is_refused: Cell<bool>,
}

impl Sent {
    /// About the memory it takes. Topics that exist are no more than the cluster has, and others hold them too; one
    /// that was invented may be held by this alone.
    fn remembered_bytes(&self) -> usize {
        let is_known = self.topic.known.is_some();
        let topic = (!is_known).then(|| self.topic.remembered_bytes());
        total([size_of::<Self>(), topic.unwrap_or_default()])
    }

    /// The broker refused it for its size.
    pub(crate) fn refused_by_broker(&self) {
        self.is_refused.set(true);
    }
}

impl Measured {
    pub(super) fn sent(self, partition: i32) -> Sent {
        let Measured {
            topic,
            facts,
            sizes,
            uncompressed_bytes,
            ..
        } = self;
        let BatchFacts {
            wire_bytes,
            codec,
            records,
            uncompressed,
            ..
        } = facts;
        Sent {
            topic,
            partition,
            wire_bytes,
            codec,
            records,
            uncompressed,
            objects: 0,
            sizes,
            uncompressed_bytes,
            is_refused: Cell::new(false),
        }
    }
}

/// The partitions of one request that were forwarded. Their sizes are counted when this is dropped, which is when the
/// broker has answered, unless it refused them.
#[derive(Debug, Default)]
pub(crate) struct SentBatches(SmallVec<[Sent; 1]>);

impl SentBatches {
    /// None yet, and room for so many.
    pub(super) fn with_capacity(partitions: usize) -> Self {
        Self(SmallVec::with_capacity(partitions))
    }

    pub(super) fn push(&mut self, sent: Sent) {
        self.0.push(sent);
    }

    /// All of them.
    pub(crate) fn all(&self) -> &[Sent] {
        &self.0
    }

    /// About the memory they take.
    pub(crate) fn remembered_bytes(&self) -> usize {
        self.0.iter().map(Sent::remembered_bytes).sum()
    }

    /// Remembers at most so many of topics that the control plane does not know. The others are counted now.
    pub(crate) fn forget_unknown(&mut self, most: usize) {
        let is_unknown = |sent: &Sent| sent.topic.known.is_none();
        if !self.0.iter().any(is_unknown) {
            return;
        }
        let mut unknown = 0usize;
        let (kept, others) = std::mem::take(&mut self.0).into_iter().partition(|sent| {
            unknown.increase_by(usize::from(is_unknown(sent)));
            !is_unknown(sent) || unknown <= most
        });
        self.0 = kept;
        drop(Self(others));
    }
}

impl Drop for SentBatches {
    fn drop(&mut self) {
        let is_same = |a: &Sent, b: &Sent| Arc::ptr_eq(&a.topic, &b.topic) && a.codec == b.codec;
        self.0.chunk_by(is_same).for_each(count);
    }
}

/// Counts batches of one topic and codec.
fn count(same: &[Sent]) {
    let Some(first) = same.first() else { return };
    let (metrics, Some(codec)) = (&first.topic.metrics, first.codec) else {
        return;
    };
    let stored = || same.iter().filter(|sent| !sent.is_refused.get());
    let records = |sent: &Sent| u64::from(sent.records.max(0).unsigned_abs());
    match same {
        [sent] if !sent.is_refused.get() => metrics.batch(codec, sent.wire_bytes, records(sent)),
        _ => {
            let mut sizes = SizesTally::default();
            stored().for_each(|sent| sizes.add(sent.wire_bytes));
            metrics.batches(codec, &sizes, stored().map(records).sum());
        }
    }
    for sent in stored() {
        if let Some(bytes) = sent.uncompressed_bytes {
            metrics.uncompressed(codec, bytes);
        }
        if let Some(sizes) = &sent.sizes {
            metrics.record_bytes.observe_tally(&sizes.record_bytes);
            metrics.estimate_bytes.observe_tally(&sizes.estimate_bytes);
            metrics.largest_parts(&sizes.largest);
        }
    }
}

/// Batches that go on within every limit, added up while they are of one topic.
#[derive(Debug, Default)]
pub(super) struct Forwarded {
    topic: Option<Arc<TopicHandle>>,
    count: u64,
}

impl Forwarded {
    pub(super) fn add(&mut self, topic: &Arc<TopicHandle>) {
        if !self.topic.as_ref().is_some_and(|of| Arc::ptr_eq(of, topic)) {
            *self = Self {
                topic: Some(Arc::clone(topic)),
                count: 0,
            };
        }
        self.count.increment();
    }
}

impl Drop for Forwarded {
    fn drop(&mut self) {
        if let Some(topic) = &self.topic {
            topic.metrics.forwarded.inc_by(self.count);
        }
    }
}
