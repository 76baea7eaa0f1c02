//! Tells whether a consumer comes back to a large batch: what `policy::stuck` needs to know of one session.
//!
//! Invariant: who the consumer is, is found once; at most [`RESETS`] partitions are remembered; no lock where neither a
//! partition's first large batch nor the session's end is at hand.

use std::collections::HashSet;
use std::time::Instant;

use crate::policy::{Consumer, LargeServed, Pass, Visits};
use crate::proxy::topics::TopicHandle;
use crate::proxy::{ClientInfo, Shared};
use crate::wire::consumer::Positioned;

/// Partitions of which an offset was asked for by time and nothing was served since.
const RESETS: usize = 1_000;

/// Of one session.
#[derive(Debug, Default)]
pub(super) struct Returns {
    /// Who it is, and the [`ClientInfo::revision`] it was found for.
    consumer: Option<(u64, Consumer)>,
    resets: HashSet<u64>,
    /// The client has ended; what is still on its way to it reaches nobody.
    has_left: bool,
}

/// Of one partition of it.
#[derive(Debug, Default)]
pub(super) struct Partition {
    pass: Pass,
    /// It begins here or has come back, and nothing large was served yet.
    awaits_large: bool,
    visits: Option<Box<Visits>>,
}

impl Partition {
    /// The consumer asks for this offset.
    pub(super) fn asked(&mut self, offset: i64) {
        if let Some(visits) = &mut self.visits {
            visits.asked(offset);
        }
    }

    /// A large batch behind the first one would be of interest.
    pub(super) const fn awaits_large(&self) -> bool {
        self.awaits_large
    }

    /// The session has ended.
    pub(super) fn leave(&mut self, shared: &Shared, now: Instant) {
        if let Some(visits) = self.visits.take() {
            visits.leave(&shared.stuck, now);
        }
    }
}

/// Where something is served, and to whom.
pub(super) struct At<'a> {
    pub shared: &'a Shared,
    pub client: &'a ClientInfo,
    pub topic: &'a TopicHandle,
    pub partition: i32,
    /// The offset asked for.
    pub offset: i64,
    pub now: Instant,
}

impl Returns {
    /// The first batch of a partition is served. `Some`: for the how manieth time, to a consumer that is stuck.
    pub(super) fn first(&mut self, at: &At<'_>, of: &mut Partition, is_large: bool) -> Option<u64> {
        let consumer = self.consumer(at.shared, at.client);
        let joins = at.shared.stuck.groups.joins_of(consumer);
        let is_reset = || !self.resets.is_empty() && self.resets.remove(&place(at));
        let begins = of.pass.served(at.offset, joins, is_reset);
        of.awaits_large = begins && !is_large;
        is_large.then(|| self.large(at, of, begins, None)).flatten()
    }

    /// A large batch behind the first one is served.
    pub(super) fn behind(
        &mut self,
        at: &At<'_>,
        of: &mut Partition,
        base_offset: i64,
    ) -> Option<u64> {
        std::mem::take(&mut of.awaits_large)
            .then(|| self.large(at, of, true, Some(base_offset)))
            .flatten()
    }

    fn large(
        &mut self,
        at: &At<'_>,
        of: &mut Partition,
        begins: bool,
        behind: Option<i64>,
    ) -> Option<u64> {
        if self.has_left {
            return None;
        }
        let watch = &at.shared.stuck;
        let Partition { pass, visits, .. } = of;
        if visits.is_none() {
            let consumer = self.consumer(at.shared, at.client);
            let reader = watch.reader(consumer, &at.topic.name, at.partition);
            let group = watch.groups.group_of(consumer);
            *visits = Some(Box::new(Visits::new(watch, reader, group, at.now)));
        }
        let batch = LargeServed {
            offset: at.offset,
            behind,
            begins,
            now: at.now,
        };
        visits.as_mut()?.served(&batch, pass)
    }

    /// The session has ended, or its client will ask for nothing more.
    pub(super) fn end(&mut self) {
        self.has_left = true;
    }

    fn consumer(&mut self, shared: &Shared, client: &ClientInfo) -> Consumer {
        match self.consumer {
            Some((revision, consumer)) if revision == client.revision => consumer,
            _ => {
                let consumer = shared
                    .stuck
                    .consumer(client.client_id_text(), client.address.ip());
                self.consumer = Some((client.revision, consumer));
                consumer
            }
        }
    }
}

fn place(at: &At<'_>) -> u64 {
    at.shared
        .stuck
        .place(at.topic.name.as_bytes(), at.partition)
}

/// A request that tells how the consumer came to an offset, being read.
pub(super) struct Positions<'a> {
    pub returns: &'a mut Returns,
    pub shared: &'a Shared,
    pub client: &'a mut ClientInfo,
}

impl Positioned for Positions<'_> {
    fn client_id(&mut self, client_id: Option<&[u8]>) {
        self.client.learn_client_id(client_id);
    }

    fn group(&mut self, group_id: &[u8]) {
        let watch = &self.shared.stuck;
        let consumer = self.returns.consumer(self.shared, self.client);
        watch.groups.is_of(consumer, watch.group(group_id));
    }

    fn joins(&mut self, has_member_id: bool) {
        let consumer = self.returns.consumer(self.shared, self.client);
        self.shared.stuck.groups.joins(consumer, has_member_id);
    }

    fn is_in(&mut self, member_id: &[u8], epoch: i32) {
        let watch = &self.shared.stuck;
        let consumer = self.returns.consumer(self.shared, self.client);
        watch.groups.is_in(consumer, watch.member(member_id), epoch);
    }

    fn resets(&mut self, topic: &[u8], partition: i32) {
        if self.returns.resets.len() < RESETS {
            let place = self.shared.stuck.place(topic, partition);
            self.returns.resets.insert(place);
        }
    }
}
