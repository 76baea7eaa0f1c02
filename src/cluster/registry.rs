//! Holds what is known of the cluster: nodes, topics by name and by id, and what was found absent a moment ago.
//!
//! Invariant: locks are held for one look-up or one change, never across an await; names are stored once.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use uuid::Uuid;

use super::frame::FrameCell;
use super::limits::{MomentCell, Origin, TopicLimit};
use super::topic::{Reading, Settings, Topic};
use crate::config::HostPort;

/// How long an absence is believed: new topics are usable within it, and a client that retries in a loop costs
/// one request a second.
pub(super) const ABSENCE_TTL: Duration = Duration::from_secs(1);

/// How long a topic that only clients are told of is kept without being named again. Clients ask for metadata every
/// five minutes (`metadata.max.age.ms`).
const HEARSAY_TTL: Duration = Duration::from_secs(15 * 60);

/// Words of brokers kept at once. A client that asks for more names than this is not remembered, only served.
const WORDS: usize = 4096;

/// What a look-up asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Key {
    Name(Arc<str>),
    Id(Uuid),
    Node(i32),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Id(id) => write!(f, "with id {id}"),
            Self::Node(node_id) => write!(f, "node {node_id}"),
        }
    }
}

/// What a broker said when it was asked for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// It is in the registry now.
    Here,
    /// The broker does not know it.
    Absent,
    /// We may not see it.
    Hidden,
}

/// See [`Registry::words`].
type Words = HashMap<(Option<i32>, Key), (Instant, Word)>;

#[derive(Debug, Default)]
pub(super) struct Registry {
    topics: RwLock<Topics>,
    nodes: RwLock<HashMap<i32, Arc<Node>>>,
    /// By who was asked (`None`: whichever broker) and for what; with the moment of the request. A broker may be
    /// behind the others, so its word is its own.
    words: Mutex<Words>,
    /// A topic came or went.
    topics_changed: Notify,
    /// One more than the smallest that any node takes of one request; 0: not known.
    least_frame: AtomicU64,
}

/// Sets of the topics themselves, not maps: a key beside each would be 21 bytes more a topic and map.
#[derive(Debug, Default)]
struct Topics {
    by_name: HashSet<ByName>,
    by_id: HashSet<ById>,
}

/// A topic that is looked up by its name.
#[derive(Debug)]
struct ByName(Arc<Topic>);

/// A topic that is looked up by its id.
#[derive(Debug)]
struct ById(Arc<Topic>);

impl Borrow<str> for ByName {
    fn borrow(&self) -> &str {
        &self.0.name
    }
}

impl Borrow<Uuid> for ById {
    fn borrow(&self) -> &Uuid {
        &self.0.id
    }
}

impl Hash for ByName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (*self.0.name).hash(state);
    }
}

impl Hash for ById {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.id.hash(state);
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl PartialEq for ById {
    fn eq(&self, other: &Self) -> bool {
        self.0.id == other.0.id
    }
}

impl Eq for ByName {}
impl Eq for ById {}

/// One broker. Sessions that talk to it keep it.
#[derive(Debug)]
pub struct Node {
    pub(super) address: HostPort,
    /// What a topic without overrides inherits there; brokers may differ.
    inherited: Settings,
    read_at: MomentCell,
    /// What it takes of one request.
    pub(super) frame: FrameCell,
    retired: AtomicBool,
}

impl Node {
    /// The broker is gone, or has another address: nothing more is learned of it here. Look it up again.
    pub fn is_retired(&self) -> bool {
        self.retired.load(Relaxed)
    }

    fn retire(&self) {
        self.retired.store(true, Relaxed);
    }

    pub(super) fn learn(&self, inherited: &Reading, at: Instant) {
        self.inherited.set(inherited);
        self.read_at.set(at);
    }

    /// It was asked, at least once, what topics inherit from it.
    pub fn is_read(&self) -> bool {
        self.read_at.get().is_some()
    }

    /// What a topic without overrides inherits here; `None` until it was read.
    pub(super) fn inherited(&self) -> Option<Reading> {
        self.is_read().then(|| self.inherited.get())
    }
}

/// One topic as Metadata names it.
#[derive(Debug, Clone, Copy)]
pub(super) struct TopicSeen<'a> {
    pub(super) name: &'a str,
    pub(super) id: Uuid,
    pub(super) is_internal: bool,
    /// `None` where the response does not say.
    pub(super) partitions: Option<i32>,
}

impl Registry {
    pub(super) fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        let topics = self.read_topics();
        topics
            .by_name
            .get(name)
            .map(|ByName(topic)| Arc::clone(topic))
    }

    pub(super) fn topic_by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        let topics = self.read_topics();
        topics.by_id.get(&id).map(|ById(topic)| Arc::clone(topic))
    }

    pub(super) fn topics_count(&self) -> usize {
        self.read_topics().by_name.len()
    }

    pub(super) fn topics(&self) -> Vec<Arc<Topic>> {
        let topics = self.read_topics();
        let all = topics.by_name.iter();
        all.map(|ByName(topic)| Arc::clone(topic)).collect()
    }

    /// Room for so many topics, so that a first refresh grows the maps once.
    pub(super) fn reserve(&self, topics: usize) {
        let mut maps = self.write_topics();
        let more = topics.saturating_sub(maps.by_name.len());
        maps.by_name.reserve(more);
        maps.by_id.reserve(more);
    }

    /// A response to a client names this topic, `at` now. It may come from a broker that is behind, so what our own
    /// request found counts for more.
    pub(super) fn hear(&self, observation: &TopicSeen<'_>, at: Instant) {
        match self.topic(observation.name) {
            Some(known) if known.id == observation.id => known.saw(at, observation.partitions),
            Some(known) if !known.is_from_clients() => {}
            _ => self.see(observation, at).set_from_clients(true),
        }
    }

    /// A response to a request of ours, sent at `at`, names this topic. A topic of the same name with another id is
    /// replaced, unless it was seen by a later request.
    pub(super) fn see(&self, observation: &TopicSeen<'_>, at: Instant) -> Arc<Topic> {
        let known = self.topic(observation.name);
        if let Some(known) = known {
            if known.id == observation.id {
                known.set_from_clients(false);
                known.saw(at, observation.partitions);
                return known;
            }
            if known.seen_at().is_some_and(|seen| seen > at) {
                return known;
            }
        }
        let name: Arc<str> = Arc::from(observation.name);
        let topic = Arc::new(Topic::new(name, observation.id, observation.is_internal));
        topic.saw(at, observation.partitions);
        self.insert(&topic);
        topic
    }

    fn insert(&self, topic: &Arc<Topic>) {
        let mut maps = self.write_topics();
        if let Some(ByName(before)) = maps.by_name.replace(ByName(Arc::clone(topic))) {
            before.retire();
            maps.by_id.remove(&before.id);
        }
        if !topic.id.is_nil() {
            maps.by_id.replace(ById(Arc::clone(topic)));
        }
        drop(maps);
        self.topics_changed.notify_one();
    }

    /// As if a topic had come.
    pub(super) fn announce_topics(&self) {
        self.topics_changed.notify_one();
    }

    /// Waits until a topic has come or gone since the last time. One may wait.
    pub(super) async fn topics_changed(&self) {
        self.topics_changed.notified().await;
    }

    /// A list of all topics was asked for at `at`: these it did not name.
    pub(super) fn unnamed(&self, at: Instant) -> Vec<Arc<Topic>> {
        let topics = self.read_topics();
        let all = topics.by_name.iter();
        all.filter(|ByName(topic)| is_gone(topic, at))
            .map(|ByName(topic)| Arc::clone(topic))
            .collect()
    }

    /// Topics that [`Registry::unnamed`] gave are gone, unless somebody named them meanwhile.
    pub(super) fn sweep(&self, unnamed: &[Arc<Topic>], at: Instant) {
        for topic in unnamed {
            let mut maps = self.write_topics();
            let is_current = maps
                .by_name
                .get(&*topic.name)
                .is_some_and(|ByName(known)| Arc::ptr_eq(known, topic));
            if is_current && is_gone(topic, at) {
                topic.retire();
                maps.by_name.remove(&*topic.name);
                maps.by_id.remove(&topic.id);
                self.topics_changed.notify_one();
            }
        }
    }

    pub(super) fn node(&self, node_id: i32) -> Option<Arc<Node>> {
        self.read_nodes().get(&node_id).cloned()
    }

    pub(super) fn node_at(&self, address: &HostPort) -> Option<Arc<Node>> {
        let nodes = self.read_nodes();
        nodes
            .values()
            .find(|node| node.address == *address)
            .cloned()
    }

    pub(super) fn addresses(&self) -> Vec<HostPort> {
        let nodes = self.read_nodes();
        nodes.values().map(|node| node.address.clone()).collect()
    }

    pub(super) fn node_ids(&self) -> Vec<i32> {
        let mut ids: Vec<i32> = self.read_nodes().keys().copied().collect();
        ids.sort_unstable();
        ids
    }

    /// The smallest that any node takes of one request; `u64::MAX` where none is known.
    pub(super) fn least_frame_limit(&self) -> u64 {
        self.least_frame.load(Relaxed).wrapping_sub(1)
    }

    /// After a node's was read, and after nodes came or went.
    pub(super) fn set_least_frame_limit(&self) {
        let nodes = self.read_nodes();
        let least = nodes.values().filter_map(|node| node.frame.get()).min();
        let word = least.map_or(0, |bytes| bytes.saturating_add(1));
        self.least_frame.store(word, Relaxed);
    }

    /// One node's address. True if it is news.
    pub(super) fn learn_node(&self, node_id: i32, address: HostPort) -> bool {
        let known = self.node(node_id);
        if known.is_some_and(|node| node.address == address) {
            return false;
        }
        let before = self
            .write_nodes()
            .insert(node_id, Arc::new(Node::at(address)));
        if let Some(before) = before {
            before.retire();
        }
        true
    }

    /// All nodes of the cluster: others are gone. True if it is news.
    pub(super) fn learn_nodes(&self, all: Vec<(i32, HostPort)>) -> bool {
        let before = self.node_ids();
        self.write_nodes().retain(|id, node| {
            let is_here = all.iter().any(|(known, _)| known == id);
            if !is_here {
                node.retire();
            }
            is_here
        });
        let mut news = before.len() != self.read_nodes().len();
        for (node_id, address) in all {
            news |= self.learn_node(node_id, address);
        }
        self.set_least_frame_limit();
        news
    }

    /// The limits of a topic at a node (`None`: wherever was asked last), if read at or after `since`.
    pub(super) fn limits(
        &self,
        topic: &Topic,
        node_id: Option<i32>,
        since: Instant,
    ) -> Option<TopicLimit> {
        let read_at = topic.read_at().filter(|at| *at >= since)?;
        let own = topic.reading();
        let node = match node_id.and_then(|id| self.node(id)) {
            Some(node) if !own.is_all_its_own() => node,
            _ => return Some(own.learned(read_at)),
        };
        let node_read_at = node.read_at.get().filter(|at| *at >= since)?;
        Some(
            own.over(node.inherited.get())
                .learned(read_at.min(node_read_at)),
        )
    }

    /// What a topic without overrides inherits at the broker that was asked last.
    pub(super) fn inherited(&self) -> Option<Reading> {
        let nodes = self.read_nodes();
        let latest = nodes
            .values()
            .filter_map(|node| Some((node.read_at.get()?, node)))
            .max_by_key(|(read_at, _)| *read_at)?;
        Some(latest.1.inherited.get())
    }

    pub(super) fn is_known(&self, key: &Key) -> bool {
        match key {
            Key::Name(name) => self.read_topics().by_name.contains(&**name),
            Key::Id(id) => self.read_topics().by_id.contains(id),
            Key::Node(node_id) => self.read_nodes().contains_key(node_id),
        }
    }

    /// This broker said a moment ago that it is not there.
    pub(super) fn absence(&self, node_id: Option<i32>, key: &Key) -> Option<Word> {
        let a_moment_ago = Instant::now().checked_sub(ABSENCE_TTL);
        let word = self.word(node_id, key, a_moment_ago)?;
        (word != Word::Here).then_some(word)
    }

    /// What this broker said of it when it was asked at or after `since` (`None`: ever).
    pub(super) fn word(
        &self,
        node_id: Option<i32>,
        key: &Key,
        since: Option<Instant>,
    ) -> Option<Word> {
        let words = self.lock_words();
        let (asked_at, word) = words.get(&(node_id, key.clone()))?;
        since
            .is_none_or(|since| *asked_at >= since)
            .then_some(*word)
    }

    /// A broker that was asked at `asked_at` said this.
    pub(super) fn keep_word(&self, node_id: Option<i32>, key: Key, asked_at: Instant, word: Word) {
        let mut words = self.lock_words();
        if words.len() >= WORDS {
            let now = Instant::now();
            words.retain(|_, (asked_at, _)| now.saturating_duration_since(*asked_at) < ABSENCE_TTL);
        }
        if words.len() < WORDS {
            words.insert((node_id, key), (asked_at, word));
        }
    }

    fn read_topics(&self) -> RwLockReadGuard<'_, Topics> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_topics(&self) -> RwLockWriteGuard<'_, Topics> {
        self.topics.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_nodes(&self) -> RwLockReadGuard<'_, HashMap<i32, Arc<Node>>> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_nodes(&self) -> RwLockWriteGuard<'_, HashMap<i32, Arc<Node>>> {
        self.nodes.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_words(&self) -> MutexGuard<'_, Words> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Nobody has named it since `at`; what only clients are told of has some time.
fn is_gone(topic: &Topic, at: Instant) -> bool {
    let ttl = if topic.is_from_clients() {
        HEARSAY_TTL
    } else {
        Duration::ZERO
    };
    topic
        .seen_at()
        .is_none_or(|seen| at.saturating_duration_since(seen) > ttl)
}

impl Node {
    fn at(address: HostPort) -> Self {
        Self {
            address,
            inherited: Settings::default(),
            read_at: MomentCell::default(),
            frame: FrameCell::default(),
            retired: AtomicBool::new(false),
        }
    }
}

impl Reading {
    /// Nothing that judges a batch is inherited, so every broker judges alike.
    fn is_all_its_own(&self) -> bool {
        let own = |origin: Option<Origin>| origin == Some(Origin::TopicOverride);
        own(self.max_message_bytes.map(|limit| limit.origin))
            && own(self.segment_bytes.map(|limit| limit.origin))
    }
}
