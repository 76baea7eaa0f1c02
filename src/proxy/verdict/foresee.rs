//! The verdict on a Produce of which only the front is here: where the heads alone decide that everything passes, the rest
//! need not be held.
//!
//! Invariant: what is let pass here would be let pass whole, by the same comparisons. Whatever needs more than heads (a
//! question, a decode, a sample, a value for the store), is refused, or is only observed to be too large, waits until it is
//! whole, and is judged by [`Judge::evaluate`].

use std::sync::Arc;
use std::time::Instant;

use smallvec::SmallVec;

use super::evaluate::{FIRST_BATCH_VERSION, is_judged_by_size};
use super::sent::Forwarded;
use super::{Judge, Measured, SentBatches, TopicHandle, sampling};
use crate::batch::{BATCH_HEADER_BYTES, BatchHeader};
use crate::inspect::{DeepLimits, Effort, within_by_header};
use crate::policy::{Arrival, Policy};
use crate::proxy::ClientInfo;
use crate::proxy::topics::Resolved;
use crate::vocabulary::Codec;
use crate::wire::api::FrameHead;
use crate::wire::produce::Ahead;

/// What the front of a request tells.
pub(crate) enum Foresight {
    /// Nothing yet: so many bytes of the frame must be here first.
    Later(usize),
    /// It must be whole to be judged.
    Hold,
    /// It would pass, and must be whole to be measured.
    Measure,
    /// All of it passes.
    Passes(Box<Passing>),
}

/// A request that passes. Counted when its last byte has come.
#[derive(Debug)]
pub(crate) struct Passing {
    /// A response is wanted.
    pub wants_response: bool,
    request_bytes: u64,
    parts: SmallVec<[(Measured, i32); 1]>,
}

impl Passing {
    /// About the memory it takes.
    pub(crate) fn remembered_bytes(&self) -> usize {
        self.parts
            .len()
            .saturating_mul(size_of::<(Measured, i32)>())
    }
}

impl Judge {
    /// Looks at the front of a Produce, by these rules.
    pub(crate) fn foresee(
        &mut self,
        here: &[u8],
        head: &FrameHead,
        policy: &Arc<Policy>,
        client: &mut ClientInfo,
        now: Instant,
    ) -> Foresight {
        let version = head.api_version;
        if version < FIRST_BATCH_VERSION
            || u64::from(head.request_bytes) > self.shared.cluster.least_frame_limit()
        {
            return Foresight::Hold;
        }
        match self.layout.read_ahead(here, head.frame_bytes(), version) {
            Ahead::Known => {}
            Ahead::Later(bytes) => return Foresight::Later(bytes),
            Ahead::Never => return Foresight::Hold,
        }
        client.learn_client_id(self.client_id(here));
        self.topics.follow(policy, client);
        let Some(parts) = self.foresee_parts(here) else {
            return Foresight::Hold;
        };
        if sampling::holds(policy.decode(), head.request_bytes, now) {
            return Foresight::Measure;
        }
        Foresight::Passes(Box::new(Passing {
            wants_response: self.layout.acks != 0,
            request_bytes: head.request_bytes.into(),
            parts,
        }))
    }

    /// Every partition of the layout, if all are certain to pass.
    fn foresee_parts(&mut self, here: &[u8]) -> Option<SmallVec<[(Measured, i32); 1]>> {
        if !matches!(self.layout.acks, -1..=1)
            || !self.repeated.has_none(here, &self.layout).ok()?
        {
            return None;
        }
        let mut parts = SmallVec::with_capacity(self.layout.partitions.len());
        for topic in &self.layout.topics {
            let key = self.layout.topic_key(here, topic).ok()?;
            let Resolved::Topic(handle) = self.topics.resolve(&self.shared, key) else {
                return None;
            };
            if handle.known.is_none() || handle.may_want_looking_up() {
                return None;
            }
            for entry in self.layout.partitions.get(topic.partitions.clone())? {
                let records = entry.records.clone()?;
                let head = here.get(records.start..)?.get(..BATCH_HEADER_BYTES)?;
                let header = BatchHeader::read(head).ok()?;
                let is_exact = header.wire_bytes() == records.len() as u64;
                let measured = self.foresee_batch(&handle, header).filter(|_| is_exact)?;
                parts.push((measured, entry.index));
            }
        }
        Some(parts)
    }

    /// One batch of which only the head is known, and that nothing stands behind it.
    fn foresee_batch(&self, topic: &Arc<TopicHandle>, header: BatchHeader) -> Option<Measured> {
        let policy = &topic.policy;
        let codec = header.codec()?;
        if !is_judged_by_size(&self.layout, &header)
            || policy.codecs.is_some()
            || policy.offload.is_some()
        {
            return None;
        }
        let learned = topic.learned();
        let mut measured = Measured::new(topic, header, learned);
        let learned = learned.filter(|_| !header.is_transactional());
        if policy.judge_batch(&measured.facts, learned).is_some() {
            return None;
        }
        if !policy.inside.is_none() {
            let limits = DeepLimits {
                is_rewritten: topic.is_rewritten(Some(codec)),
                ..policy.inside
            };
            let effort = Effort::VERDICT.noticing_near(policy.near_limit);
            measured.inspected(&within_by_header(&header, &limits, effort)?);
        }
        if codec == Codec::None {
            measured.uncompressed_bytes = Some(header.wire_bytes());
        }
        Some(measured)
    }

    /// Counts a request of which the last byte has come: what [`Judge::commit`] does for one that is here.
    pub(crate) fn commit_passing(
        &mut self,
        passing: Passing,
        client: &ClientInfo,
        arrival: &Arrival,
    ) -> SentBatches {
        let may_linger = client.may_linger();
        if may_linger {
            self.linger.request(arrival);
        }
        let mut sent = SentBatches::with_capacity(passing.parts.len());
        let mut forwarded = Forwarded::default();
        for (measured, partition) in passing.parts {
            if may_linger {
                self.watch_linger(&measured, client);
            }
            self.count_proof(&measured);
            self.count_near(&measured, passing.request_bytes);
            forwarded.add(&measured.topic);
            sent.push(measured.sent(partition));
        }
        sent
    }
}
