//! What a session's consumer asks of topics whose tickets are redeemed: all of it, fetch sessions (KIP-227) included.
//!
//! Invariant: what is asked of such a topic is known for every request that is forwarded. A request that goes on with
//! what this session has not heard is answered with the broker's own error for a forgotten fetch session, and the
//! consumer names everything again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use uuid::Uuid;

use super::Shared;
use super::topics::{Resolved, TopicCache};
use crate::cluster;
use crate::count::{Count as _, total};
use crate::policy::ClaimRules;
use crate::telemetry::ClaimCounts;
use crate::wire::fetch_request::{INITIAL_EPOCH, Layout};
use crate::wire::produce::{MOST_ENTRIES, TopicKey};
use crate::wire::{Malformed, Reason};

/// Asked of the broker for one partition at most: a kilobyte of tickets is a megabyte of content. A batch that is larger
/// comes nevertheless, alone (KIP-74).
const PARTITION_BYTES: i32 = 64 * 1024;
/// Asked of the broker for all partitions together: the response is held.
const RESPONSE_BYTES: i32 = 32 * 1024 * 1024;

/// About the memory for a partition and for a topic.
const PARTITION_ENTRY_BYTES: usize = 64;
const TOPIC_ENTRY_BYTES: usize = 256;

/// A topic whose tickets are redeemed.
#[derive(Debug)]
pub(super) struct ClaimTopic {
    /// Its name.
    pub name: Arc<str>,
    /// Its rules.
    pub rules: Arc<ClaimRules>,
    /// Its counters.
    pub counts: Arc<ClaimCounts>,
    /// What the control plane knows of it; `None` while it knows no such topic.
    known: Option<Arc<cluster::Topic>>,
}

impl ClaimTopic {
    /// A topic with these rules.
    pub(super) fn new(
        name: &str,
        known: Option<Arc<cluster::Topic>>,
        rules: Arc<ClaimRules>,
        shared: &Shared,
    ) -> Self {
        Self {
            name: name.into(),
            rules,
            counts: shared.metrics.claims().topic(name),
            known,
        }
    }

    /// Its id; nil: not known.
    pub(super) fn id(&self) -> Uuid {
        self.known.as_ref().map_or_else(Uuid::nil, |known| known.id)
    }

    /// It is the topic that has its name now, as far as is known.
    fn is_current(&self) -> bool {
        self.known.as_ref().is_some_and(|known| !known.is_retired())
    }
}

/// What is asked of one partition.
#[derive(Debug, Clone, Copy)]
pub(super) struct AskedOfPartition {
    /// `fetch_offset`
    pub offset: i64,
    /// The client's own `partition_max_bytes`.
    pub max_bytes: i32,
}

/// What is asked of one topic.
#[derive(Debug, Clone)]
pub(super) struct AskedOfTopic {
    /// `None`: nobody has told yet which topic has this id.
    pub topic: Option<Arc<ClaimTopic>>,
    /// By number.
    pub partitions: BTreeMap<i32, AskedOfPartition>,
}

/// How a request names a topic, to be kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum OwnedKey {
    Name(Box<[u8]>),
    Id([u8; 16]),
}

impl From<TopicKey<'_>> for OwnedKey {
    fn from(key: TopicKey<'_>) -> Self {
        match key {
            TopicKey::Name(name) => Self::Name(name.into()),
            TopicKey::Id(id) => Self::Id(id),
        }
    }
}

/// Everything that is asked of such topics.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    topics: HashMap<OwnedKey, AskedOfTopic>,
    partitions: usize,
}

impl Asked {
    /// What is asked of a topic, if its tickets are redeemed, or that is not known yet.
    pub(super) fn topic(&self, key: TopicKey<'_>) -> Option<&AskedOfTopic> {
        self.topics.get(&key.into())
    }

    fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    fn forget(&mut self, key: TopicKey<'_>, partitions: &[i32]) {
        let key = key.into();
        let Some(topic) = self.topics.get_mut(&key) else {
            return;
        };
        for partition in partitions {
            if topic.partitions.remove(partition).is_some() {
                self.partitions.decrement();
            }
        }
        if topic.partitions.is_empty() {
            self.topics.remove(&key);
        }
    }

    fn remembered_bytes(&self) -> usize {
        let topics = self.topics.len().saturating_mul(TOPIC_ENTRY_BYTES);
        let partitions = self.partitions.saturating_mul(PARTITION_ENTRY_BYTES);
        total([topics, partitions])
    }
}

/// A Fetch on its way: what its response is held against.
#[derive(Debug)]
pub(super) struct FetchAsked {
    /// The client's own `max_bytes`.
    pub max_bytes: i32,
    /// `read_committed`.
    pub is_committed: bool,
    /// What is asked of which topic.
    pub asked: Arc<Asked>,
}

impl FetchAsked {
    /// Lowers in `frame`, the request that it is, what the broker is asked for of such topics.
    pub(super) fn lower(&self, layout: &Layout, frame: &mut [u8]) {
        layout.lower_max_bytes(frame, RESPONSE_BYTES);
        for entry in &layout.topics {
            let key = layout.topic_key(frame, entry);
            if key.is_ok_and(|key| self.asked.topic(key).is_some()) {
                for partition in layout.partitions_of(entry) {
                    partition.lower_max_bytes(frame, PARTITION_BYTES);
                }
            }
        }
    }

    /// About the memory that it takes; what several of them share is counted for each.
    pub(super) fn remembered_bytes(&self) -> usize {
        total([size_of::<Self>(), self.asked.remembered_bytes()])
    }
}

/// What becomes of a Fetch request.
#[derive(Debug)]
pub(super) enum Heard {
    /// It asks nothing of such topics: it goes as it came.
    Forwarded,
    /// It asks something of them.
    Asks(Box<FetchAsked>),
    /// It goes on with what this session has not heard.
    Unheard,
}

/// The memory of one session.
#[derive(Debug, Default)]
pub(super) struct ClaimFetches {
    asked: Arc<Asked>,
    /// A request that named everything was heard, and a fetch session may go on from it.
    was_begun: bool,
    /// The fetch session, once a request has named it.
    session_id: Option<i32>,
    /// [`TopicCache::generation`] at which topics were told apart.
    generation: u64,
}

impl ClaimFetches {
    /// About the memory that it takes.
    pub(super) fn remembered_bytes(&self) -> usize {
        self.asked.remembered_bytes()
    }

    /// Hears a request of a consumer. What it asks of such topics has yet to be lowered ([`FetchAsked::lower`]).
    ///
    /// # Errors
    /// It asks for more partitions than are remembered, or for tickets in a version whose responses are not read.
    pub(super) fn hear(
        &mut self,
        layout: &Layout,
        frame: &[u8],
        version: i16,
        shared: &Shared,
        topics: &mut TopicCache,
    ) -> Result<Heard, Malformed> {
        if layout.session_epoch > INITIAL_EPOCH {
            let is_heard = self.was_begun
                && self.generation == topics.generation()
                && self
                    .session_id
                    .is_none_or(|known| known == layout.session_id);
            if !is_heard {
                return Ok(Heard::Unheard);
            }
            self.session_id = Some(layout.session_id);
            self.forget(layout, frame)?;
        } else {
            self.was_begun = layout.session_epoch == INITIAL_EPOCH;
            self.session_id = None;
            self.generation = topics.generation();
            if !self.asked.is_empty() {
                self.asked = Arc::default();
            }
        }
        self.remember(layout, frame, shared, topics)?;
        if self.asked.is_empty() {
            return Ok(Heard::Forwarded);
        }
        if !crate::wire::fetch::VERSIONS.contains(&version) {
            return Err(Malformed::new("api_version", Reason::UnsupportedVersion));
        }
        Ok(Heard::Asks(Box::new(FetchAsked {
            max_bytes: layout.max_bytes,
            is_committed: layout.isolation_level == 1,
            asked: Arc::clone(&self.asked),
        })))
    }

    fn forget(&mut self, layout: &Layout, frame: &[u8]) -> Result<(), Malformed> {
        if self.asked.is_empty() {
            return Ok(());
        }
        for entry in &layout.forgotten {
            let key = layout.topic_key(frame, entry)?;
            let partitions = layout.forgotten_partitions.get(entry.partitions.clone());
            // Copied only while the response to an earlier request is to come.
            Arc::make_mut(&mut self.asked).forget(key, partitions.unwrap_or_default());
        }
        Ok(())
    }

    fn remember(
        &mut self,
        layout: &Layout,
        frame: &[u8],
        shared: &Shared,
        topics: &mut TopicCache,
    ) -> Result<(), Malformed> {
        for entry in &layout.topics {
            let key = layout.topic_key(frame, entry)?;
            let Some(found) = find(key, &self.asked, shared, topics) else {
                continue;
            };
            // Copied only while the response to an earlier request is to come.
            let asked = Arc::make_mut(&mut self.asked);
            let topic = asked
                .topics
                .entry(key.into())
                .or_insert_with(|| AskedOfTopic {
                    topic: None,
                    partitions: BTreeMap::new(),
                });
            topic.topic = found;
            for partition in layout.partitions_of(entry) {
                let of = AskedOfPartition {
                    offset: partition.fetch_offset,
                    max_bytes: partition.max_bytes,
                };
                if topic.partitions.insert(partition.index, of).is_none() {
                    asked.partitions.increment();
                }
            }
        }
        if self.asked.partitions > MOST_ENTRIES {
            return Err(Malformed::new("partitions", Reason::TooLong));
        }
        Ok(())
    }
}

/// `None`: its tickets, if it has any, are not redeemed. `Some(None)`: nobody knows the id.
fn find(
    key: TopicKey<'_>,
    asked: &Asked,
    shared: &Shared,
    topics: &mut TopicCache,
) -> Option<Option<Arc<ClaimTopic>>> {
    if !asked.is_empty()
        && let Some(AskedOfTopic {
            topic: Some(known), ..
        }) = asked.topic(key)
        && known.is_current()
    {
        return Some(Some(Arc::clone(known)));
    }
    match topics.resolve(shared, key) {
        Resolved::Impossible => None,
        Resolved::UnknownId(_) => Some(None),
        Resolved::Topic(handle) => {
            let rules = Arc::clone(handle.policy.redeem.as_ref()?);
            let known = handle.known.clone();
            let topic = ClaimTopic::new(&handle.name, known, rules, shared);
            Some(Some(Arc::new(topic)))
        }
    }
}
