//! Answers what sessions ask on demand: one lookup queue, with a connection of its own, per broker asked.
//!
//! Invariant: questions that wait together go out together, and the same question goes out once. A lookup queue puts
//! its findings into the registry; askers read them there.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{ApiKey, MetadataRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use uuid::Uuid;

use super::ASK_DEADLINE;
use super::call_error::CallError;
use super::control_plane::ControlPlane;
use super::describe::{self, Described};
use super::link::Link;
use super::registry::{Key, Word};
use super::responses::METADATA_BY_ID;
use super::topic::Topic;
use crate::config::HostPort;
use crate::error_code::TOPIC_AUTHORIZATION_FAILED;
use crate::net::deadline_in;

/// A connection that nobody used for so long is closed, before the broker does it (10 minutes by default).
const IDLE: Duration = Duration::from_secs(120);

/// After a failure to connect, questions are answered "unreachable" at once for so long.
const COOL_OFF: Duration = Duration::from_millis(250);

/// Why a question stays open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unanswered {
    Unreachable,
    Forbidden,
    Absent,
}

pub(super) type Reply<T> = oneshot::Sender<Result<T, Unanswered>>;

/// A question to the cluster.
#[derive(Debug)]
pub(super) enum Query {
    /// What is it, where is it? What is found is in the registry.
    Find {
        key: Key,
        node_id: Option<i32>,
        /// As of when this broker's own word counts; `None`: what is known already is enough.
        since: Option<Instant>,
        reply: Reply<Word>,
    },
    /// Its limits, as of `since` or later.
    Limits {
        topic: Arc<Topic>,
        node_id: Option<i32>,
        since: Instant,
        reply: Reply<()>,
    },
}

impl Query {
    /// The broker to ask; `None` is any.
    pub(super) const fn node_id(&self) -> Option<i32> {
        let (Self::Find { node_id, .. } | Self::Limits { node_id, .. }) = self;
        *node_id
    }

    pub(super) fn fail(self, why: Unanswered) {
        // The asker may have given up.
        match self {
            Self::Find { reply, .. } => drop(reply.send(Err(why))),
            Self::Limits { reply, .. } => drop(reply.send(Err(why))),
        }
    }

    fn is_abandoned(&self) -> bool {
        match self {
            Self::Find { reply, .. } => reply.is_closed(),
            Self::Limits { reply, .. } => reply.is_closed(),
        }
    }
}

/// Serves questions until their channel closes.
pub(super) async fn serve(
    shared: Arc<ControlPlane>,
    node_id: Option<i32>,
    mut queries: mpsc::Receiver<Query>,
) {
    let mut lookup_queue = LookupQueue {
        shared,
        node_id,
        link: None,
        failed: None,
    };
    loop {
        let first = match timeout(IDLE, queries.recv()).await {
            Ok(Some(ask)) => ask,
            Ok(None) => return,
            Err(_) => {
                lookup_queue.link = None;
                continue;
            }
        };
        let mut batch = vec![first];
        while batch.len() < describe::PAGE
            && let Ok(ask) = queries.try_recv()
        {
            batch.push(ask);
        }
        lookup_queue.response(batch).await;
    }
}

struct LookupQueue {
    shared: Arc<ControlPlane>,
    /// The broker to ask; `None` is any.
    node_id: Option<i32>,
    link: Option<Link>,
    /// When connecting failed last, and why.
    failed: Option<(Instant, String)>,
}

/// The questions of a batch, each once.
#[derive(Default)]
struct Questions {
    names: HashSet<Arc<str>>,
    ids: HashSet<Uuid>,
    nodes: HashSet<i32>,
    limits: HashMap<Arc<str>, Arc<Topic>>,
}

/// What a batch of questions brought.
#[derive(Default)]
struct Found {
    /// What the broker said of what was looked for.
    words: HashMap<Key, Word>,
    /// What became of the topics whose limits were asked.
    limits: HashMap<Arc<str>, Described>,
}

impl Questions {
    fn of(queries: &[Query]) -> Self {
        let mut questions = Self::default();
        for ask in queries {
            match ask {
                Query::Find { key, .. } => {
                    match key {
                        Key::Name(name) => questions.names.insert(Arc::clone(name)),
                        Key::Id(id) => questions.ids.insert(*id),
                        Key::Node(node_id) => questions.nodes.insert(*node_id),
                    };
                }
                Query::Limits { topic, .. } => {
                    questions
                        .limits
                        .insert(Arc::clone(&topic.name), Arc::clone(topic));
                }
            }
        }
        questions
    }
}

impl LookupQueue {
    async fn response(&mut self, batch: Vec<Query>) {
        let open: Vec<Query> = batch
            .into_iter()
            .filter(|ask| !ask.is_abandoned())
            .filter_map(|ask| self.response_from_memory(ask))
            .collect();
        if open.is_empty() {
            return;
        }
        let mut found = Found::default();
        if let Err(error) = self.ask(&Questions::of(&open), &mut found).await {
            tracing::debug!(%error, "a question to the cluster stays open");
        }
        for ask in open {
            match ask {
                Query::Find { key, reply, .. } => {
                    let word = found.words.get(&key).copied();
                    let _ = reply.send(word.ok_or(Unanswered::Unreachable));
                }
                Query::Limits { topic, reply, .. } => {
                    let _ = reply.send(match found.limits.get(&topic.name) {
                        Some(Described::Read) => Ok(()),
                        Some(Described::Forbidden) => Err(Unanswered::Forbidden),
                        Some(Described::Gone) => Err(Unanswered::Absent),
                        Some(Described::Failed) | None => Err(Unanswered::Unreachable),
                    });
                }
            }
        }
    }

    /// Where the response came while the question waited, it is not asked again.
    fn response_from_memory(&self, ask: Query) -> Option<Query> {
        match ask {
            Query::Find {
                key,
                node_id,
                since,
                reply,
            } => match self.shared.found(self.node_id, &key, since) {
                Some(word) => {
                    let _ = reply.send(Ok(word));
                    None
                }
                None => Some(Query::Find {
                    key,
                    node_id,
                    since,
                    reply,
                }),
            },
            Query::Limits {
                topic,
                node_id,
                since,
                reply,
            } => match self.shared.registry.limits(&topic, node_id, since) {
                Some(_) => {
                    let _ = reply.send(Ok(()));
                    None
                }
                None => Some(Query::Limits {
                    topic,
                    node_id,
                    since,
                    reply,
                }),
            },
        }
    }

    /// Over the kept connection, or a new one where that has gone stale.
    async fn ask(&mut self, questions: &Questions, found: &mut Found) -> Result<(), CallError> {
        let deadline = deadline_in(ASK_DEADLINE);
        let address = self.address();
        let kept = self
            .link
            .take()
            .filter(|link| address.as_ref().is_none_or(|to| to == link.peer()));
        if let Some(mut link) = kept {
            match self.inquire(&mut link, questions, found, deadline).await {
                Err(error) if error.may_be_stale() => {}
                result => {
                    self.link = result.is_ok().then_some(link);
                    return result;
                }
            }
        }
        let mut link = self.open(address, deadline).await?;
        self.inquire(&mut link, questions, found, deadline).await?;
        self.link = Some(link);
        Ok(())
    }

    async fn open(
        &mut self,
        address: Option<HostPort>,
        deadline: tokio::time::Instant,
    ) -> Result<Link, CallError> {
        if let Some((at, text)) = &self.failed
            && at.elapsed() < COOL_OFF
        {
            return Err(CallError::Connect(io::Error::other(text.clone())));
        }
        let opened = match &address {
            Some(address) => self.shared.open(address, deadline).await,
            None => self.shared.open_any(deadline).await,
        };
        self.failed = match &opened {
            Ok(_) => None,
            Err(error) => Some((Instant::now(), error.to_string())),
        };
        opened
    }

    fn address(&self) -> Option<HostPort> {
        let node = self.shared.registry.node(self.node_id?)?;
        Some(node.address.clone())
    }

    async fn inquire(
        &self,
        link: &mut Link,
        questions: &Questions,
        found: &mut Found,
        deadline: tokio::time::Instant,
    ) -> Result<(), CallError> {
        let mut topics: Vec<Arc<Topic>> = questions.limits.values().cloned().collect();
        if !questions.names.is_empty() || !questions.nodes.is_empty() {
            let entries = questions.names.iter().map(|name| {
                let name = TopicName(StrBytes::from_string(name.to_string()));
                MetadataRequestTopic::default().with_name(Some(name))
            });
            let names = questions.names.iter().cloned().map(Key::Name);
            let keys = names.chain(questions.nodes.iter().copied().map(Key::Node));
            let keys: Vec<Key> = keys.collect();
            let entries = entries.collect();
            topics.extend(self.find(link, entries, keys, found, deadline).await?);
        }
        if !questions.ids.is_empty() {
            let entries = questions.ids.iter().map(|id| {
                MetadataRequestTopic::default()
                    .with_name(None)
                    .with_topic_id(*id)
            });
            let ids: Vec<Key> = questions.ids.iter().copied().map(Key::Id).collect();
            let entries = entries.collect();
            topics.extend(self.find(link, entries, ids, found, deadline).await?);
        }
        for page in topics.chunks(describe::PAGE) {
            let read = describe::describe(link, &self.shared.registry, page, deadline).await?;
            for (topic, outcome) in page.iter().zip(read) {
                found.limits.insert(Arc::clone(&topic.name), outcome);
            }
        }
        Ok(())
    }

    /// Asks Metadata for some topics (and all nodes). What is there goes into the registry, what the broker said of
    /// each of `keys` into `found`. Returns the topics that are there.
    async fn find(
        &self,
        link: &mut Link,
        entries: Vec<MetadataRequestTopic>,
        keys: Vec<Key>,
        found: &mut Found,
        deadline: tokio::time::Instant,
    ) -> Result<Vec<Arc<Topic>>, CallError> {
        let by_id = matches!(keys.first(), Some(Key::Id(_)));
        let registry = &self.shared.registry;
        let sent_at = Instant::now();
        let mut words: HashMap<Key, Word> = HashMap::new();
        let mut topics = Vec::new();
        // A broker too old to be asked by id has no client that produces by id.
        if !by_id || link.speaks(ApiKey::Metadata, METADATA_BY_ID) {
            // Never let a look-up create a topic.
            let request = MetadataRequest::default()
                .with_topics(Some(entries))
                .with_allow_auto_topic_creation(false);
            let metadata = link.metadata(&request, deadline).await?;
            self.shared.learn_nodes(&metadata);
            metadata.each_topic(|entry| {
                let key = match entry.name {
                    Some(name) if !by_id => Key::Name(Arc::from(name)),
                    _ => Key::Id(entry.id),
                };
                if let Some(observation) = entry.observation() {
                    topics.push(registry.see(&observation, sent_at));
                    words.insert(key, Word::Here);
                } else if entry.error_code == TOPIC_AUTHORIZATION_FAILED {
                    self.shared.condition.hidden(&key);
                    words.insert(key, Word::Hidden);
                }
            });
        }
        for key in keys {
            let word = match words.get(&key) {
                Some(word) => *word,
                None if matches!(key, Key::Node(_)) && registry.is_known(&key) => Word::Here,
                None => Word::Absent,
            };
            registry.keep_word(self.node_id, key.clone(), sent_at, word);
            found.words.insert(key, word);
        }
        Ok(topics)
    }
}
