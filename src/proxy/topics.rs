//! Holds what one session knows of the topics it produces to: policy, limits and metrics, resolved once per topic so
//! that no request looks anything up by name.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use uuid::Uuid;

use super::{ClientInfo, Shared};
use crate::cluster;
use crate::config::Decode;
use crate::count::{Count as _, total};
use crate::policy::{ClientRules, Learned, Policy, TopicPolicy};
use crate::telemetry::{self, TopicMetrics};
use crate::vocabulary::{Codec, CompressionType};
use crate::wire::produce::TopicKey;

/// Topics remembered by one session, by name and by id: of more, one is forgotten for each that comes.
const REMEMBERED: usize = 4096;

/// Names that the control plane does not know, remembered from request to request. Anybody can invent names; whoever
/// uses more of them has them looked at again for each request.
const REMEMBERED_UNKNOWN: usize = 256;

/// About what a tree takes for one topic, its key and the allocator's own included.
const ENTRY_BYTES: usize = 160;

/// One topic, resolved.
#[derive(Debug)]
pub(super) struct TopicHandle {
    /// Its name.
    pub name: Arc<str>,
    /// What the configuration says of it.
    pub policy: TopicPolicy,
    /// Its counters.
    pub metrics: Arc<TopicMetrics>,
    /// What the control plane knows of it; `None` while it knows no such topic.
    pub known: Option<Arc<cluster::Topic>>,
    /// The family members whose limits count, as [`TopicPolicy::members`]; `None` for one that is gone.
    members: Box<[Option<Arc<cluster::Topic>>]>,
    /// The broker whose limits count; `None` where it is not known, or not known which one this session talks to.
    node: Option<Arc<cluster::Node>>,
    /// The broker this session talks to, where it is a particular one.
    node_id: Option<i32>,
    /// The topic's own limit at this broker was asked for, or is known.
    was_asked: AtomicBool,
}

impl TopicHandle {
    /// About the memory it takes.
    pub(super) fn remembered_bytes(&self) -> usize {
        let member_bytes = size_of::<Option<Arc<cluster::Topic>>>();
        total([
            size_of::<Self>(),
            self.name.len(),
            self.policy.remembered_bytes(),
            self.members.len().saturating_mul(member_bytes),
        ])
    }

    /// The topic's own limit at this session's broker, as last read.
    pub(super) fn own(&self) -> Option<Learned> {
        let known = self.known.as_ref()?;
        known.batch_limit_at(self.node.as_deref()).map(Learned::own)
    }

    /// The tightest limit that was learned: the topic's own, or what a member of its family leaves.
    pub(super) fn learned(&self) -> Option<Learned> {
        let own = self.own();
        if self.members.is_empty() {
            return own;
        }
        self.policy.tightest(own, |at| {
            let known = self.members.get(at)?.as_ref()?;
            let (bytes, _) = known.batch_limit_at(self.node.as_deref())?;
            Some(bytes)
        })
    }

    /// The broker writes a batch of this codec again before it stores it: the topic has a `compression.type` of its own,
    /// or it is not known that it has none. By what was read last: only batches that no usual client makes differ.
    pub(super) fn is_rewritten(&self, codec: Option<Codec>) -> bool {
        let known = self.known.as_ref();
        match known.and_then(|known| known.compression_type_at(self.node.as_deref())) {
            Some(CompressionType::Producer) => false,
            // A codec with itself: only where its offsets are not counted.
            Some(CompressionType::Stored(stored)) => codec != Some(stored) || stored != Codec::None,
            None => true,
        }
    }

    /// The family member with this name, if its limits count here.
    pub(super) fn member(&self, name: &str) -> Option<&Arc<cluster::Topic>> {
        let mut members = self.members.iter().flatten();
        members.find(|known| &*known.name == name)
    }

    /// The topic's own limit counts, and nobody has looked the topic up yet, or its limits are not known as this
    /// session's broker applies them. The latter is said once: we may not be allowed to know.
    pub(super) fn wants_looking_up(&self) -> bool {
        self.may_want_looking_up() && (self.known.is_none() || !self.was_asked.swap(true, Relaxed))
    }

    /// The same, and nothing is said by it.
    pub(super) fn may_want_looking_up(&self) -> bool {
        self.policy.inherits && (self.known.is_none() || !self.was_asked.load(Relaxed))
    }

    /// What is resolved lives as long as what it was resolved from: the topic (deleted, created again under its name,
    /// or known only now), its family's members, the broker, the counters.
    fn holds(&self, shared: &Shared) -> bool {
        let is_known = match &self.known {
            Some(known) => !known.is_retired(),
            None => shared.cluster.topic(&self.name).is_none(),
        };
        let is_there = match (&self.node, self.node_id) {
            (Some(node), _) => !node.is_retired(),
            (None, Some(id)) => shared.cluster.node(id).is_none(),
            (None, None) => true,
        };
        is_known
            && is_there
            && !self.metrics.is_forgotten()
            && (self.members.is_empty() || self.holds_members(shared))
    }

    /// As [`TopicHandle::holds`], for the members of its family.
    fn holds_members(&self, shared: &Shared) -> bool {
        let mut members = self.members.iter().zip(&self.policy.members);
        members.all(|(known, bound)| match known {
            Some(known) => !known.is_retired(),
            None => shared.cluster.topic(&bound.topic).is_none(),
        })
    }

    /// The topic is the one a response names.
    pub(super) fn is(&self, key: TopicKey<'_>) -> bool {
        match key {
            TopicKey::Name(name) => name == self.name.as_bytes(),
            TopicKey::Id(id) => self
                .known
                .as_ref()
                .is_some_and(|known| known.id == Uuid::from_bytes(id)),
        }
    }
}

/// How a session looks a topic up.
#[derive(Debug)]
pub(super) enum Resolved {
    /// Here it is.
    Topic(Arc<TopicHandle>),
    /// A name that no topic can have.
    Impossible,
    /// An id that the control plane does not know (yet).
    UnknownId(Uuid),
}

/// The handles of one session.
#[derive(Debug, Default)]
pub(super) struct TopicCache {
    /// The broker this session talks to, where it is a particular one.
    node_id: Option<i32>,
    /// The policy they were made from.
    policy: Option<Arc<Policy>>,
    /// The rules that are for this client, where any rule asks who it is.
    client: ClientRules,
    /// [`ClientInfo::revision`] that they were found for.
    client_revision: Option<u64>,
    /// Goes up whenever other rules are for the client.
    generation: u64,
    // Most sessions have a handful of topics: a tree finds one with fewer steps than it takes to hash its name.
    by_name: BTreeMap<Box<[u8]>, Arc<TopicHandle>>,
    by_id: BTreeMap<[u8; 16], Arc<TopicHandle>>,
    /// About the memory for all of them.
    bytes: usize,
    /// Of those by name: topics that the control plane does not know.
    unknown: usize,
}

impl TopicCache {
    /// Nothing yet, for a session that talks to this broker.
    pub(super) fn new(node_id: Option<i32>) -> Self {
        Self {
            node_id,
            ..Self::default()
        }
    }

    /// Forgets everything if the policy has changed since, or other rules are for the client by what is known of it
    /// now. Where no rule asks for clients, nothing is looked at.
    pub(super) fn follow(&mut self, policy: &Arc<Policy>, client: &ClientInfo) {
        if self
            .policy
            .as_ref()
            .is_none_or(|known| !Arc::ptr_eq(known, policy))
        {
            *self = Self {
                policy: Some(Arc::clone(policy)),
                generation: self.generation.wrapping_add(1),
                ..Self::new(self.node_id)
            };
        }
        if policy.asks_for_clients() && self.client_revision != Some(client.revision) {
            let rules = client.rules(policy);
            if self.client != rules {
                self.forget();
                self.generation = self.generation.wrapping_add(1);
            }
            self.client = rules;
            self.client_revision = Some(client.revision);
        }
    }

    /// When the policy that is followed has batches decoded.
    pub(super) fn decode(&self, shared: &Shared) -> Decode {
        match &self.policy {
            Some(policy) => policy.decode(),
            None => shared.decode(),
        }
    }

    /// The same for as long as the same rules are for the client.
    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// The rules in force and which of them are for the client, for whoever outlives this.
    pub(super) fn rules(&self) -> Option<(Arc<Policy>, ClientRules)> {
        Some((Arc::clone(self.policy.as_ref()?), self.client.clone()))
    }

    /// About the memory that its handles take.
    pub(super) const fn remembered_bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets every topic.
    pub(super) fn forget(&mut self) {
        self.by_name.clear();
        self.by_id.clear();
        (self.bytes, self.unknown) = (0, 0);
    }

    /// After a request or a response that named many unknown topics: forgets these.
    pub(super) fn release(&mut self) {
        if self.unknown > REMEMBERED_UNKNOWN {
            let bytes = &mut self.bytes;
            self.by_name.retain(|name, handle| {
                let is_known = handle.known.is_some();
                if !is_known {
                    *bytes = bytes.saturating_sub(entry_bytes(name, handle));
                }
                is_known
            });
            self.unknown = 0;
        }
    }

    fn keep_by_name(&mut self, name: &[u8], handle: &Arc<TopicHandle>) {
        if self.by_name.len() >= REMEMBERED
            && !self.by_name.contains_key(name)
            && let Some(neighbour) = neighbour(&self.by_name, name)
        {
            let forgotten = self.by_name.remove_entry(&neighbour);
            self.forgot(forgotten);
        }
        self.bytes.increase_by(entry_bytes(name, handle));
        self.unknown
            .increase_by(usize::from(handle.known.is_none()));
        let old = self.by_name.insert(name.into(), Arc::clone(handle));
        self.forgot(old.map(|old| (name, old)));
    }

    fn keep_by_id(&mut self, id: [u8; 16], handle: &Arc<TopicHandle>) {
        if self.by_id.len() >= REMEMBERED
            && !self.by_id.contains_key(&id)
            && let Some(neighbour) = neighbour(&self.by_id, &id)
        {
            let forgotten = self.by_id.remove_entry(&neighbour);
            self.forgot(forgotten);
        }
        self.bytes.increase_by(entry_bytes(&id, handle));
        let old = self.by_id.insert(id, Arc::clone(handle));
        self.forgot(old.map(|old| (id, old)));
    }

    fn forgot(&mut self, entry: Option<(impl AsRef<[u8]>, Arc<TopicHandle>)>) {
        if let Some((key, handle)) = entry {
            let bytes = entry_bytes(key.as_ref(), &handle);
            self.bytes = self.bytes.saturating_sub(bytes);
            // What is found by its id is known.
            self.unknown
                .decrease_by(usize::from(handle.known.is_none()));
        }
    }

    /// The handle for a topic as a request names it.
    pub(super) fn resolve(&mut self, shared: &Shared, key: TopicKey<'_>) -> Resolved {
        match key {
            TopicKey::Name(name) => match self.by_name.get(name) {
                Some(handle) if handle.holds(shared) => Resolved::Topic(Arc::clone(handle)),
                _ => self.resolve_name(shared, name),
            },
            TopicKey::Id(id) => match self.by_id.get(&id) {
                Some(handle) if handle.holds(shared) => Resolved::Topic(Arc::clone(handle)),
                _ => self.resolve_id(shared, id),
            },
        }
    }

    fn resolve_name(&mut self, shared: &Shared, name: &[u8]) -> Resolved {
        let Some(text) = std::str::from_utf8(name).ok().filter(|text| is_legal(text)) else {
            return Resolved::Impossible;
        };
        let handle = self.handle(shared, text, shared.cluster.topic(text));
        self.keep_by_name(name, &handle);
        Resolved::Topic(handle)
    }

    fn resolve_id(&mut self, shared: &Shared, id: [u8; 16]) -> Resolved {
        let uuid = Uuid::from_bytes(id);
        let Some(known) = shared.cluster.topic_by_id(uuid) else {
            self.by_id.remove(&id);
            return Resolved::UnknownId(uuid);
        };
        let handle = self.handle(shared, &Arc::clone(&known.name), Some(known));
        self.keep_by_id(id, &handle);
        Resolved::Topic(handle)
    }

    fn handle(
        &self,
        shared: &Shared,
        name: &str,
        known: Option<Arc<cluster::Topic>>,
    ) -> Arc<TopicHandle> {
        let policy = match &self.policy {
            Some(policy) => policy.for_client(name, &self.client),
            None => shared.policy.load().for_client(name, &self.client),
        };
        // Only topics that exist get labels of their own: anybody can invent names.
        let metrics = shared
            .metrics
            .topic(known.as_ref().map_or(telemetry::OTHER, |known| &known.name));
        let node = self.node_id.and_then(|id| shared.cluster.node(id));
        let members = policy.members.iter();
        let members = members.map(|bound| shared.cluster.topic(&bound.topic));
        let is_read = known
            .as_ref()
            .is_some_and(|known| known.limits_age().is_some())
            && node.as_ref().is_none_or(|node| node.is_read());
        Arc::new(TopicHandle {
            name: name.into(),
            members: members.collect(),
            policy,
            metrics,
            known,
            node,
            node_id: self.node_id,
            was_asked: AtomicBool::new(is_read),
        })
    }
}

fn entry_bytes(key: &[u8], handle: &TopicHandle) -> usize {
    total([ENTRY_BYTES, key.len(), handle.remembered_bytes()])
}

/// Whom to forget for a newcomer: the one before it, else the last. A client with more topics than are remembered goes
/// through them in some order, again and again: forgetting the oldest would forget each before its next turn.
fn neighbour<K: Ord + Clone + Borrow<Q>, Q: Ord + ?Sized>(
    topics: &BTreeMap<K, Arc<TopicHandle>>,
    newcomer: &Q,
) -> Option<K> {
    let before = topics.range((Bound::Unbounded, Bound::Excluded(newcomer)));
    let (key, _) = before
        .into_iter()
        .next_back()
        .or_else(|| topics.last_key_value())?;
    Some(key.clone())
}

/// `org.apache.kafka.common.internals.Topic.isValid`
fn is_legal(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !name.is_empty() && name.len() <= 249 && name != "." && name != ".." && name.chars().all(legal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing;

    fn shared() -> Arc<Shared> {
        let limits = "limits: {batch_bytes: 100, record_bytes: 50}";
        testing::shared(&format!("rules: [{{name: r, topics: ['t*'], {limits}}}]"))
    }

    fn resolve(cache: &mut TopicCache, shared: &Shared, name: &str) -> Arc<TopicHandle> {
        match cache.resolve(shared, TopicKey::Name(name.as_bytes())) {
            Resolved::Topic(handle) => handle,
            other => panic!("{name}: {other:?}"),
        }
    }

    #[test]
    fn of_more_topics_than_are_remembered_most_are_still_remembered_in_the_next_round() {
        let shared = shared();
        let mut cache = TopicCache::default();
        let names: Vec<String> = (0..REMEMBERED + 400).map(|n| format!("t{n:05}")).collect();
        let round = |cache: &mut TopicCache| -> Vec<Arc<TopicHandle>> {
            names
                .iter()
                .map(|name| resolve(cache, &shared, name))
                .collect()
        };
        let first = round(&mut cache);
        let again = round(&mut cache);
        let pairs = first.iter().zip(&again);
        let kept = pairs
            .filter(|(first, again)| Arc::ptr_eq(first, again))
            .count();
        assert!(
            kept > REMEMBERED * 3 / 4,
            "{kept} of {} were kept",
            names.len()
        );
        assert_eq!(cache.by_name.len(), REMEMBERED);
    }

    #[test]
    fn what_is_remembered_is_accounted_for_whatever_is_forgotten() {
        let shared = shared();
        let mut cache = TopicCache::default();
        let sum = |cache: &TopicCache| -> usize {
            let topics = cache.by_name.iter();
            topics.map(|(name, handle)| entry_bytes(name, handle)).sum()
        };
        for n in 0..REMEMBERED + 10 {
            resolve(&mut cache, &shared, &format!("t{n}"));
        }
        // Resolved again although it is known: as after a topic was created.
        let handle = resolve(&mut cache, &shared, "t1");
        cache.keep_by_name(b"t1", &handle);
        assert_eq!((cache.bytes, cache.unknown), (sum(&cache), REMEMBERED));
        // The real memory is about that: a handle has a name, a rule's limits, and its place in two trees.
        assert!(cache.bytes / REMEMBERED > 400 && cache.bytes / REMEMBERED < 1200);
        cache.release();
        assert_eq!((cache.bytes, cache.unknown, cache.by_name.len()), (0, 0, 0));
        for n in 0..REMEMBERED_UNKNOWN {
            resolve(&mut cache, &shared, &format!("t{n}"));
        }
        cache.release();
        assert_eq!(cache.by_name.len(), REMEMBERED_UNKNOWN);
        cache.forget();
        assert_eq!(cache.remembered_bytes(), 0);
    }
}
