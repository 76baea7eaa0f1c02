//! Knows the cluster behind the proxy: nodes, topics, and the limits that brokers apply.
//!
//! One client of ours polls Metadata and DescribeConfigs ([`Cluster::run`]); sessions ask for what they miss.
//! Look-ups of what is known take one short lock; reading a topic's limits takes none.
//!
//! Invariant: nothing here refuses or delays a client for longer than [`ASK_DEADLINE`], and everything learned
//! bears the moment of the request that brought it.

mod alter;
mod call_error;
mod control_plane;
mod describe;
mod frame;
mod limits;
mod link;
mod lookups;
mod poll;
mod probe;
mod producer;
mod reader;
mod registry;
mod responses;
mod sasl;
mod scram;
#[cfg(test)]
mod scripted;
mod shape;
mod status;
mod survey;
#[cfg(test)]
mod tests;
mod topic;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::config::{Config, HostPort};
use crate::net::Connector;

pub use alter::{Alteration, NotAltered};
pub use call_error::CallError;
pub use limits::{LearnedLimit, Origin, TopicLimit};
pub use link::Link;
pub use probe::ProbeAnswer;
pub use producer::{NewRecord, NotWritten, Outcome, Producer, Written};
pub use reader::{At, Batches, ReadError, StoredBatch, TopicReader};
pub use registry::Node;
pub use status::Status;
pub use survey::Wanted;
pub use topic::Topic;

use control_plane::ControlPlane;
use lookups::{Query, Reply, Unanswered};
use registry::{Key, TopicSeen, Word};

/// How long a question on demand may take, connecting included: a busy broker takes seconds for a first connection
/// with SASL. A client that waits behind it gives a request 30 s (`request.timeout.ms`).
pub const ASK_DEADLINE: Duration = Duration::from_secs(5);

/// Questions that wait at once; askers beyond it wait for room.
const ASKS: usize = 1024;

/// Topics to be read again that wait at once; of more, the next refusal tells.
const RELEARNED: usize = 1024;
/// Of these, so many are asked for together.
const RELEARNED_TOGETHER: usize = 256;
/// What was read so shortly before it is asked for again is new enough.
const JUST_NOW: Duration = Duration::from_millis(5);

/// Kafka's longest topic name (`Topic.MAX_NAME_LENGTH`).
const MAX_NAME_BYTES: usize = 249;

/// The cluster. Cheap to clone; all clones are one.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    shared: Arc<ControlPlane>,
    queries: mpsc::Sender<Query>,
    outdated: mpsc::Sender<Outdated>,
    records: mpsc::UnboundedSender<producer::Pending>,
    /// Taken by [`Cluster::run`].
    queues: Mutex<Option<Queues>>,
}

struct Queues {
    queries: mpsc::Receiver<Query>,
    outdated: mpsc::Receiver<Outdated>,
    records: mpsc::UnboundedReceiver<producer::Pending>,
}

/// A topic whose limits a broker knows better, and that broker.
type Outdated = (Arc<str>, Option<i32>);

/// How a topic is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopicName<'a> {
    /// By its name: whichever life it is in.
    Name(&'a str),
    /// By its id: one life.
    Id(Uuid),
}

/// What a look-up found.
#[derive(Debug, Clone)]
pub enum Lookup {
    /// The topic.
    Found(Arc<Topic>),
    /// The cluster has no such topic, as of at most a second ago.
    Absent,
    /// We may not see it: our principal lacks Describe on it.
    Hidden,
    /// Kafka did not answer in time.
    Unreachable,
}

/// Why a topic's limits could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitsUnread {
    /// Kafka did not answer in time.
    #[error("Kafka did not answer in time")]
    Unreachable,
    /// Our principal lacks DescribeConfigs on it.
    #[error("the proxy may not describe the topic's configs")]
    Forbidden,
    /// The topic is gone, or was created again: look it up again.
    #[error("the topic is gone")]
    Gone,
}

impl Cluster {
    /// Knows nothing yet; connects nowhere before [`Cluster::run`].
    pub fn new(config: &Config, connector: Connector) -> Self {
        limits::start_clock();
        let (queries, queue) = mpsc::channel(ASKS);
        let (outdated, relearned) = mpsc::channel(RELEARNED);
        let (records, written) = mpsc::unbounded_channel();
        Self(Arc::new(Inner {
            shared: Arc::new(ControlPlane::new(config, connector)),
            queries,
            outdated,
            records,
            queues: Mutex::new(Some(Queues {
                queries: queue,
                outdated: relearned,
                records: written,
            })),
        }))
    }

    /// Polls, and answers what sessions ask, until `shutdown`. Call it once; questions asked elsewhere wait for it.
    ///
    /// Kafka may be down: it is said once, and tried again (0.2 to 5 s, with jitter). Decoding a large cluster's
    /// answers takes tens of milliseconds at a time: give this a thread that serves no clients.
    pub async fn run(&self, shutdown: CancellationToken) {
        let queues = self
            .0
            .queues
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(queues) = queues else {
            tracing::error!("the control plane runs already");
            return;
        };
        let shared = &self.0.shared;
        let work = async {
            tokio::join!(
                poll::run(Arc::clone(shared)),
                frame::run(Arc::clone(shared)),
                dispatch(Arc::clone(shared), queues.queries),
                self.relearn(queues.outdated),
                producer::run(Arc::clone(shared), queues.records)
            )
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            _ = work => {}
        }
    }

    /// A writer of records of our own, with room for so many bytes of them to wait. What it writes is sent while
    /// [`Cluster::run`] runs.
    pub fn producer(&self, room_bytes: u32) -> Producer {
        Producer::new(self.0.records.clone(), room_bytes)
    }

    /// A broker answered the last time one was asked.
    pub fn is_reached(&self) -> bool {
        self.0.shared.condition.is_reached()
    }

    /// The cluster's own id, once a broker has told it.
    pub fn cluster_id(&self) -> Option<Arc<str>> {
        self.0.shared.cluster_id().cloned()
    }

    /// How the control plane fares.
    pub fn status(&self) -> Status {
        let shared = &self.0.shared;
        shared.condition.status(
            shared.registry.node_ids().len(),
            shared.registry.topics_count(),
            shared.connector.own().loops(),
        )
    }

    /// Ids of the known brokers, ascending.
    pub fn node_ids(&self) -> Vec<i32> {
        self.0.shared.registry.node_ids()
    }

    /// A broker that is known.
    pub fn node(&self, node_id: i32) -> Option<Arc<Node>> {
        self.0.shared.registry.node(node_id)
    }

    /// Where a broker is, as the cluster advertises it to us.
    pub fn node_address(&self, node_id: i32) -> Option<HostPort> {
        let node = self.0.shared.registry.node(node_id)?;
        Some(node.address.clone())
    }

    /// A broker's response to a client named this node.
    pub fn learn_node(&self, node_id: i32, address: HostPort) {
        let shared = &self.0.shared;
        if shared.registry.learn_node(node_id, address) {
            shared.condition.nodes(&shared.registry.node_ids());
        }
    }

    /// A broker's Metadata response to a client named this topic. Without credentials of our own it is the only way
    /// to learn a topic's id.
    pub fn learn_topic(&self, name: &str, id: Uuid, is_internal: bool, partitions: i32) {
        let observation = TopicSeen {
            name,
            id,
            is_internal,
            partitions: Some(partitions),
        };
        self.0.shared.registry.hear(&observation, Instant::now());
    }

    /// [`Cluster::node_address`], asking Metadata first where the node is not known. At most [`ASK_DEADLINE`].
    pub async fn find_node(&self, node_id: i32) -> Option<HostPort> {
        self.find(Key::Node(node_id), None, None).await.ok()?;
        self.node_address(node_id)
    }

    /// A topic that is known.
    pub fn topic(&self, name: &str) -> Option<Arc<Topic>> {
        self.0.shared.registry.topic(name)
    }

    /// A topic that is known, by its id.
    pub fn topic_by_id(&self, id: Uuid) -> Option<Arc<Topic>> {
        self.0.shared.registry.topic_by_id(id)
    }

    /// Every topic that is known.
    pub fn topics(&self) -> Vec<Arc<Topic>> {
        self.0.shared.registry.topics()
    }

    /// Waits until a topic has come or gone since the last time, or all were read for the first time. For one waiter.
    pub async fn topics_changed(&self) {
        self.0.shared.registry.topics_changed().await;
    }

    /// A topic, asking Metadata (and its limits with it) where it is not known. Concurrent askers share a request;
    /// an absence is believed for 1 s. At most [`ASK_DEADLINE`].
    pub async fn find_topic(&self, name: &str) -> Lookup {
        self.find_topic_at(TopicName::Name(name), None).await
    }

    /// As [`Cluster::find_topic`], by id.
    pub async fn find_topic_by_id(&self, id: Uuid) -> Lookup {
        self.find_topic_at(TopicName::Id(id), None).await
    }

    /// As [`Cluster::find_topic`], asking `node_id`, the broker that a session talks to; `None` asks any.
    pub async fn find_topic_at(&self, topic: TopicName<'_>, node_id: Option<i32>) -> Lookup {
        if let Some(topic) = self.known(topic) {
            return Lookup::Found(topic);
        }
        let key = match topic {
            // No topic has such a name, and unbounded names must not be remembered.
            TopicName::Name(name) if name.is_empty() || name.len() > MAX_NAME_BYTES => {
                return Lookup::Absent;
            }
            TopicName::Id(id) if id.is_nil() => return Lookup::Absent,
            TopicName::Name(name) => Key::Name(Arc::from(name)),
            TopicName::Id(id) => Key::Id(id),
        };
        self.meet(node_id).await;
        let found = self.find(key, node_id, None).await;
        // Somebody else may have found it meanwhile.
        match (found, self.known(topic)) {
            (_, Some(topic)) => Lookup::Found(topic),
            (Err(_), None) => Lookup::Unreachable,
            (Ok(Word::Hidden), None) => Lookup::Hidden,
            (Ok(Word::Absent | Word::Here), None) => Lookup::Absent,
        }
    }

    fn known(&self, topic: TopicName<'_>) -> Option<Arc<Topic>> {
        match topic {
            TopicName::Name(name) => self.topic(name),
            TopicName::Id(id) => self.topic_by_id(id),
        }
    }

    /// What `node_id` itself says of a topic that is known, no older than `max_age`: does it have it, with how many
    /// partitions? Another broker may be ahead of it, or behind. Concurrent askers share a request. At most
    /// [`ASK_DEADLINE`].
    pub async fn look_again(
        &self,
        topic: TopicName<'_>,
        node_id: Option<i32>,
        max_age: Duration,
    ) -> Lookup {
        let key = match topic {
            TopicName::Name(name) => Key::Name(Arc::from(name)),
            TopicName::Id(id) => Key::Id(id),
        };
        self.meet(node_id).await;
        match self.find(key, node_id, Some(since(max_age))).await {
            Ok(Word::Here) => self.known(topic).map_or(Lookup::Absent, Lookup::Found),
            Ok(Word::Absent) => Lookup::Absent,
            Ok(Word::Hidden) => Lookup::Hidden,
            Err(_) => Lookup::Unreachable,
        }
    }

    /// The limits of a topic as `node_id` applies them, no older than `max_age`, if they are known already.
    pub fn known_limits(
        &self,
        topic: &Topic,
        node_id: Option<i32>,
        max_age: Duration,
    ) -> Option<TopicLimit> {
        let registry = &self.0.shared.registry;
        registry.limits(topic, node_id, since(max_age))
    }

    /// The limits of a topic, no older than `max_age`: what is known, or else read now by DescribeConfigs.
    ///
    /// `node_id`: the broker whose view counts, which is the partition's leader (brokers may have different
    /// defaults); `None` takes any broker's. Judge by the value returned, not by [`Topic::batch_limit`] afterwards:
    /// that is whichever broker's was read last. Concurrent askers share a request. At most [`ASK_DEADLINE`].
    pub async fn read_limits(
        &self,
        topic: &Arc<Topic>,
        node_id: Option<i32>,
        max_age: Duration,
    ) -> Result<TopicLimit, LimitsUnread> {
        if topic.is_retired() {
            return Err(LimitsUnread::Gone);
        }
        if let Some(learned) = self.known_limits(topic, node_id, max_age) {
            return Ok(learned);
        }
        let since = since(max_age);
        let response = self
            .ask(|reply| Query::Limits {
                topic: Arc::clone(topic),
                node_id,
                since,
                reply,
            })
            .await;
        match response {
            // A node whose address is not known was not asked: another's word is the best there is.
            Ok(()) => self
                .0
                .shared
                .registry
                .limits(topic, node_id, since)
                .or_else(|| topic.learned())
                .ok_or(LimitsUnread::Unreachable),
            Err(Unanswered::Unreachable) => Err(LimitsUnread::Unreachable),
            Err(Unanswered::Forbidden) => Err(LimitsUnread::Forbidden),
            Err(Unanswered::Absent) => Err(LimitsUnread::Gone),
        }
    }

    /// A broker applies other limits to this topic than are known: they are read before long, and nobody waits for it.
    pub fn read_limits_soon(&self, topic: &Arc<str>, node_id: Option<i32>) {
        // Where very many are outdated at once, the next refusal tells again.
        let _ = self.0.outdated.try_send((Arc::clone(topic), node_id));
    }

    /// Reads the limits that brokers know better: what waits together is asked together, and each topic once.
    async fn relearn(&self, mut outdated: mpsc::Receiver<Outdated>) {
        let mut waiting = Vec::new();
        while outdated.recv_many(&mut waiting, RELEARNED_TOGETHER).await > 0 {
            waiting.sort_unstable();
            waiting.dedup();
            let reading = waiting.drain(..).map(|(name, node_id)| async move {
                if let Lookup::Found(topic) = self.find_topic(&name).await {
                    // If it cannot be read now, the next poll reads it.
                    let _ = self.read_limits(&topic, node_id, JUST_NOW).await;
                }
            });
            join_all(reading).await;
        }
    }

    /// What is known of a topic's settings, without asking.
    pub fn known_facts(&self, topic: &Topic) -> crate::findings::TopicFacts {
        survey::known_facts(topic, self.0.shared.registry.inherited())
    }

    /// Whoever is to be asked must be known: a session may be quicker than the first refresh.
    async fn meet(&self, node_id: Option<i32>) {
        if let Some(node_id) = node_id.filter(|id| self.node(*id).is_none()) {
            self.find_node(node_id).await;
        }
    }

    async fn find(
        &self,
        key: Key,
        node_id: Option<i32>,
        since: Option<Instant>,
    ) -> Result<Word, Unanswered> {
        let shared = &self.0.shared;
        let node_id = shared.queue_of(node_id);
        if let Some(word) = shared.found(node_id, &key, since) {
            return Ok(word);
        }
        self.ask(|reply| Query::Find {
            key,
            node_id,
            since,
            reply,
        })
        .await
    }

    async fn ask<T>(&self, ask: impl FnOnce(Reply<T>) -> Query) -> Result<T, Unanswered> {
        let (reply, response) = oneshot::channel();
        let asked = async {
            self.0.queries.send(ask(reply)).await.ok()?;
            response.await.ok()
        };
        match tokio::time::timeout(ASK_DEADLINE, asked).await {
            Ok(Some(result)) => result,
            Ok(None) | Err(_) => Err(Unanswered::Unreachable),
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cluster").field(&self.status()).finish()
    }
}

/// Hands each question to the lookup queue of the broker it is for.
async fn dispatch(shared: Arc<ControlPlane>, mut queries: mpsc::Receiver<Query>) {
    let mut lookup_queues: HashMap<Option<i32>, mpsc::Sender<Query>> = HashMap::new();
    let mut tasks = JoinSet::new();
    while let Some(ask) = queries.recv().await {
        // One that panicked answers nobody: another takes its place.
        let node_id = shared.queue_of(ask.node_id());
        if lookup_queues
            .get(&node_id)
            .is_some_and(mpsc::Sender::is_closed)
        {
            lookup_queues.remove(&node_id);
        }
        let lookup_queue = lookup_queues.entry(node_id).or_insert_with(|| {
            let (lookup_queue, queries) = mpsc::channel(ASKS);
            tasks.spawn(lookups::serve(Arc::clone(&shared), node_id, queries));
            lookup_queue
        });
        if let Err(mpsc::error::TrySendError::Full(ask) | mpsc::error::TrySendError::Closed(ask)) =
            lookup_queue.try_send(ask)
        {
            ask.fail(Unanswered::Unreachable);
        }
    }
}

fn since(max_age: Duration) -> Instant {
    let now = Instant::now();
    now.checked_sub(max_age).unwrap_or(now)
}
