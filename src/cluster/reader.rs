//! Reads what is stored in a topic: raw record batches of a partition between two offsets, from whoever leads it.
//!
//! For commands that look at stored records (`scan`, `claim verify`): no group, no fetch session, nothing committed.
//! Batches come as the broker keeps them, of any magic and codec, control batches and aborted transactions included;
//! nothing of them is decoded or checked here but where one ends and the next begins.
//!
//! Invariants: one response is held at a time, and no more of it than [`TopicReader::largest_batch`] allows; an offset
//! is passed only by a batch that was given out, or because the broker says that it is gone
//! ([`Batches::deleted`]).

mod response;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    BrokerId, FetchRequest, ListOffsetsRequest, MetadataRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tokio::time::{Instant, sleep};

use super::Cluster;
use super::call_error::CallError;
use super::control_plane::ControlPlane;
use super::link::Link;
use super::responses::failure_name;
use super::survey::{CALL_DEADLINE, OPEN_DEADLINE};
use crate::config::HostPort;
use crate::error_code::{
    OFFSET_OUT_OF_RANGE, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
};
use crate::net::deadline_in;
pub(super) use response::{FETCH_VERSION, Fetched};

/// Asked of a broker at once; a larger batch comes whole, and alone.
pub(super) const FETCH_BYTES: u32 = 4 << 20;
/// Largest batch taken. Consumers break at about 100 MB a response.
const LARGEST_BATCH_BYTES: u32 = 256 << 20;
/// What stands in a response beside the records.
pub(super) const ENVELOPE_BYTES: u32 = 64 << 10;
/// How long a broker may wait for data that it has not; there is some, so it does not.
const MAX_WAIT_MS: i32 = 500;
/// How long a partition may go without progress: an election, a broker that starts again.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two attempts: at first, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));

/// Errors that pass when there is another leader, or this one has found itself
/// (`Errors.exception() instanceof RetriableException`).
const PASSING: [i16; 10] = [
    UNKNOWN_TOPIC_OR_PARTITION,
    5,   // LEADER_NOT_AVAILABLE
    6,   // NOT_LEADER_OR_FOLLOWER
    7,   // REQUEST_TIMED_OUT
    9,   // REPLICA_NOT_AVAILABLE
    56,  // KAFKA_STORAGE_ERROR
    74,  // FENCED_LEADER_EPOCH
    75,  // UNKNOWN_LEADER_EPOCH
    78,  // OFFSET_NOT_AVAILABLE
    100, // UNKNOWN_TOPIC_ID
];

/// Why stored records cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The cluster has no such topic.
    #[error("there is no topic {0}")]
    NoTopic(String),
    /// The topic has fewer partitions.
    #[error("topic {topic} has no partition {partition}")]
    NoPartition {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// Our principal lacks Describe or Read on it.
    #[error("topic {0} may not be read: Describe and Read on it are needed")]
    Forbidden(String),
    /// More bytes than [`TopicReader::largest_batch`] allows.
    #[error("{place} holds a batch of more than {limit} bytes")]
    BatchTooLarge {
        /// Topic, partition and offset.
        place: String,
        /// The most that is taken.
        limit: u32,
    },
    /// Without progress for too long, or with an error that does not pass.
    #[error("{place} cannot be read: {why}")]
    Stuck {
        /// Topic, partition and, where there is one, offset.
        place: String,
        /// The last error.
        why: String,
    },
    /// No broker answers, or not as the protocol says.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// A place in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The first offset that is kept.
    Start,
    /// Behind the last record: the high watermark.
    End,
    /// The first record that is no older than this, in milliseconds since 1970; the end, where there is none.
    Time(i64),
}

/// One batch as it is stored.
#[derive(Debug, Clone)]
pub struct StoredBatch {
    /// Offset of its first record (of an old message: its own, of a compressed one that of the last within).
    pub base_offset: i64,
    /// Offset of its last record; on a compacted topic that one may be gone.
    pub last_offset: i64,
    /// All of it, offset and length included. Shares its memory with the other batches of its response.
    pub bytes: Bytes,
}

/// Reads one topic.
///
/// ```text
/// let mut reader = cluster.reader("orders").await?;
/// for partition in reader.partitions() {
///     let from = reader.offset(partition, At::Start).await?;
///     let end = reader.offset(partition, At::End).await?;
///     let mut batches = reader.batches(partition, from, end);
///     while let Some(batch) = batches.next().await? {
///         println!("{partition}: {}, {} bytes", batch.base_offset, batch.bytes.len());
///     }
/// }
/// ```
pub struct TopicReader {
    shared: Arc<ControlPlane>,
    topic: String,
    cluster_id: Option<String>,
    fetch_bytes: u32,
    largest_batch_bytes: u32,
    patience: Duration,
    /// Leader by partition; none at the moment: negative.
    leaders: BTreeMap<i32, i32>,
    nodes: HashMap<i32, HostPort>,
    links: HashMap<i32, Link>,
}

impl Cluster {
    /// Looks a topic up for reading. Works without [`Cluster::run`], with this cluster's TLS and SASL.
    ///
    /// # Errors
    /// There is no such topic, we may not see it, or no broker answers.
    pub async fn reader(&self, topic: &str) -> Result<TopicReader, ReadError> {
        let mut reader = TopicReader {
            shared: Arc::clone(&self.0.shared),
            topic: topic.to_owned(),
            cluster_id: None,
            fetch_bytes: FETCH_BYTES,
            largest_batch_bytes: LARGEST_BATCH_BYTES,
            patience: PATIENCE,
            leaders: BTreeMap::new(),
            nodes: HashMap::new(),
            links: HashMap::new(),
        };
        reader.learn_leaders().await?;
        Ok(reader)
    }
}

impl Cluster {
    /// The cluster's own id, asked for now. Works without [`Cluster::run`].
    ///
    /// # Errors
    /// No broker answers.
    pub async fn read_cluster_id(&self) -> Result<Option<String>, CallError> {
        let mut link = self.0.shared.open_any(deadline_in(OPEN_DEADLINE)).await?;
        // No topics: the brokers and the cluster alone.
        let request = MetadataRequest::default().with_topics(Some(Vec::new()));
        let deadline = deadline_in(CALL_DEADLINE);
        let metadata = link.metadata(&request, deadline).await?;
        Ok(metadata.cluster_id().map(str::to_owned))
    }
}

impl TopicReader {
    /// So many bytes are asked for at once, instead of 4 MiB.
    pub fn fetch_bytes(mut self, bytes: u32) -> Self {
        self.fetch_bytes = bytes.clamp(1, i32::MAX.unsigned_abs());
        self
    }

    /// The largest batch that is taken, instead of 256 MiB.
    pub fn largest_batch(mut self, bytes: u32) -> Self {
        self.largest_batch_bytes = bytes;
        self
    }

    /// How long a partition may go without progress, instead of 60 s.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// The cluster's own id.
    pub fn cluster_id(&self) -> Option<&str> {
        self.cluster_id.as_deref()
    }

    /// The topic's partitions, ascending.
    pub fn partitions(&self) -> Vec<i32> {
        self.leaders.keys().copied().collect()
    }

    /// The offset of a place in a partition.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn offset(&mut self, partition: i32, at: At) -> Result<i64, ReadError> {
        let timestamp = match at {
            At::Start => -2,
            At::End => -1,
            At::Time(ms) => ms.max(0),
        };
        let topic = ListOffsetsTopic::default()
            .with_name(self.topic_name())
            .with_partitions(vec![
                ListOffsetsPartition::default()
                    .with_partition_index(partition)
                    .with_timestamp(timestamp),
            ]);
        let request = ListOffsetsRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_topics(vec![topic]);
        let asked = self
            .ask_leader(partition, None, async |link| {
                let response = link.call(&request, deadline_in(CALL_DEADLINE)).await?;
                let mut parts = response.topics.iter().flat_map(|topic| &topic.partitions);
                Ok(match parts.next() {
                    Some(part) if part.error_code == 0 => Ok(part.offset),
                    Some(part) => Err(part.error_code),
                    None => Err(UNKNOWN_TOPIC_OR_PARTITION),
                })
            })
            .await?;
        match asked {
            // Nothing is that young.
            Ok(..0) if timestamp >= 0 => Box::pin(self.offset(partition, At::End)).await,
            Ok(offset) => Ok(offset),
            Err(code) => Err(self.stuck(partition, None, code)),
        }
    }

    /// The batches of a partition that hold offsets of `from` up to, not including, `end`, in order.
    pub const fn batches(&mut self, partition: i32, from: i64, end: i64) -> Batches<'_> {
        Batches {
            reader: self,
            partition,
            next: from,
            end,
            waiting: VecDeque::new(),
            deleted: 0,
        }
    }

    async fn fetch(
        &mut self,
        partition: i32,
        offset: i64,
    ) -> Result<Result<Fetched, i16>, ReadError> {
        let bytes = self.fetch_bytes.cast_signed();
        let topic = FetchTopic::default()
            .with_topic(self.topic_name())
            .with_partitions(vec![
                FetchPartition::default()
                    .with_partition(partition)
                    .with_current_leader_epoch(-1)
                    .with_fetch_offset(offset)
                    .with_partition_max_bytes(bytes),
            ]);
        let request = FetchRequest::default()
            .with_replica_id(BrokerId(-1))
            .with_max_wait_ms(MAX_WAIT_MS)
            .with_min_bytes(1)
            .with_max_bytes(bytes)
            .with_session_id(0)
            .with_session_epoch(-1)
            .with_topics(vec![topic]);
        let most = self.fetch_bytes.max(self.largest_batch_bytes);
        let most = most.saturating_add(ENVELOPE_BYTES);
        self.ask_leader(partition, Some(offset), async |link| {
            let deadline = deadline_in(CALL_DEADLINE);
            let fetched = link.fetch(&request, most, deadline).await?;
            Ok(match fetched.error_code {
                0 => Ok(fetched),
                code => Err(code),
            })
        })
        .await
    }

    /// Asks the partition's leader until it answers. The inner error is one that asking again does not mend.
    async fn ask_leader<T>(
        &mut self,
        partition: i32,
        offset: Option<i64>,
        mut ask: impl AsyncFnMut(&mut Link) -> Result<Result<T, i16>, CallError>,
    ) -> Result<Result<T, i16>, ReadError> {
        let began = Instant::now();
        let mut pause = PAUSES.0;
        loop {
            let asked = match self.link(partition).await {
                Ok(link) => ask(link).await,
                Err(Unreached::Call(error)) => Err(error),
                Err(Unreached::NoPartition) => return Err(self.no_partition(partition)),
                Err(Unreached::NoLeader) => Ok(Err(PASSING[1])),
            };
            let why = match asked {
                Ok(Err(code)) if PASSING.contains(&code) => failure_name(code).unwrap_or_default(),
                Ok(done) => return Ok(done),
                Err(error) => self.bearable(partition, offset, error)?.to_string(),
            };
            if began.elapsed() >= self.patience {
                let place = self.place(partition, offset);
                return Err(ReadError::Stuck { place, why });
            }
            tracing::debug!(topic = self.topic, partition, why, "asked again");
            sleep(pause).await;
            pause = PAUSES.1.min(pause.saturating_mul(2));
            self.forget(partition);
            match self.learn_leaders().await {
                // A broker that has just started may not know the topic yet.
                Ok(()) | Err(ReadError::NoTopic(_)) => {}
                Err(ReadError::Call(error)) => {
                    self.bearable(partition, offset, error)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// An error of a connection, which another may not have; all others are final.
    fn bearable(
        &self,
        partition: i32,
        offset: Option<i64>,
        error: CallError,
    ) -> Result<CallError, ReadError> {
        match error {
            CallError::Connect(_)
            | CallError::Io { .. }
            | CallError::Closed { .. }
            | CallError::Timeout { .. }
            | CallError::Every(_) => Ok(error),
            error if offset.is_some() && error.is_too_long() => Err(ReadError::BatchTooLarge {
                place: self.place(partition, offset),
                limit: self.largest_batch_bytes,
            }),
            error => Err(error.into()),
        }
    }

    /// Kept, or made now.
    async fn link(&mut self, partition: i32) -> Result<&mut Link, Unreached> {
        let leader = self.leaders.get(&partition);
        let leader = *leader.ok_or(Unreached::NoPartition)?;
        let address = self.nodes.get(&leader).ok_or(Unreached::NoLeader)?;
        let link = match self.links.remove(&leader) {
            Some(link) if link.peer() == address => link,
            _ => {
                let deadline = deadline_in(OPEN_DEADLINE);
                let opened = self.shared.open(address, deadline).await;
                opened.map_err(Unreached::Call)?
            }
        };
        Ok(self.links.entry(leader).or_insert(link))
    }

    /// Whatever ails the connection, a new one has not.
    fn forget(&mut self, partition: i32) {
        if let Some(leader) = self.leaders.get(&partition) {
            self.links.remove(leader);
        }
    }

    async fn learn_leaders(&mut self) -> Result<(), ReadError> {
        let deadline = deadline_in(OPEN_DEADLINE);
        let mut link = self.shared.open_any(deadline).await?;
        let topic = MetadataRequestTopic::default().with_name(Some(self.topic_name()));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![topic]))
            .with_allow_auto_topic_creation(false);
        let deadline = deadline_in(CALL_DEADLINE);
        let metadata = link.metadata(&request, deadline).await?;
        self.shared.learn_nodes(&metadata);
        self.cluster_id = metadata.cluster_id().map(str::to_owned);
        let mut found = Err(ReadError::NoTopic(self.topic.clone()));
        metadata.each_topic(|entry| {
            if entry.error_code == TOPIC_AUTHORIZATION_FAILED {
                found = Err(ReadError::Forbidden(self.topic.clone()));
            } else if entry.observation().is_some() {
                found = Ok(entry.leaders().collect());
            }
        });
        self.leaders = found?;
        self.nodes = metadata.nodes().into_iter().collect();
        Ok(())
    }

    fn topic_name(&self) -> TopicName {
        TopicName(StrBytes::from_string(self.topic.clone()))
    }

    fn no_partition(&self, partition: i32) -> ReadError {
        ReadError::NoPartition {
            topic: self.topic.clone(),
            partition,
        }
    }

    fn place(&self, partition: i32, offset: Option<i64>) -> String {
        let topic = &self.topic;
        offset.map_or_else(
            || format!("{topic}-{partition}"),
            |offset| format!("{topic}-{partition} at offset {offset}"),
        )
    }

    fn stuck(&self, partition: i32, offset: Option<i64>, code: i16) -> ReadError {
        match code {
            TOPIC_AUTHORIZATION_FAILED => ReadError::Forbidden(self.topic.clone()),
            code => ReadError::Stuck {
                place: self.place(partition, offset),
                why: failure_name(code).unwrap_or_default(),
            },
        }
    }
}

/// Why there is no connection to a leader.
enum Unreached {
    NoPartition,
    NoLeader,
    Call(CallError),
}

/// Batches of one partition, one after the other.
pub struct Batches<'a> {
    reader: &'a mut TopicReader,
    partition: i32,
    /// The offset to be read next.
    next: i64,
    end: i64,
    waiting: VecDeque<StoredBatch>,
    deleted: u64,
}

impl Batches<'_> {
    /// The next batch; `None` at the end. The first may begin below the offset asked for, and the last reach beyond the
    /// end: batches are given out whole. After an error it may be called again, and goes on where it stopped.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn next(&mut self) -> Result<Option<StoredBatch>, ReadError> {
        let mut idle_since = Instant::now();
        while self.next < self.end {
            if let Some(batch) = self.waiting.pop_front() {
                if batch.base_offset >= self.end {
                    break;
                }
                self.next = batch.last_offset.saturating_add(1);
                return Ok(Some(batch));
            }
            let before = self.next;
            self.fetch().await?;
            if self.next != before || !self.waiting.is_empty() {
                idle_since = Instant::now();
            } else if idle_since.elapsed() >= self.reader.patience {
                return Err(ReadError::Stuck {
                    place: self.reader.place(self.partition, Some(self.next)),
                    why: format!("the log ends there, and not at {}", self.end),
                });
            }
        }
        self.waiting.clear();
        Ok(None)
    }

    /// The offset that is read next: everything below it was given out or is gone.
    pub const fn position(&self) -> i64 {
        self.next
    }

    /// Offsets that retention, or somebody, deleted before they were read.
    pub const fn deleted(&self) -> u64 {
        self.deleted
    }

    async fn fetch(&mut self) -> Result<(), ReadError> {
        match self.reader.fetch(self.partition, self.next).await? {
            Ok(fetched) => {
                let batches = fetched.batches(self.next).map_err(|what| {
                    let place = self.reader.place(self.partition, Some(self.next));
                    let why = format!("what the broker sends are no batches ({what})");
                    ReadError::Stuck { place, why }
                })?;
                self.waiting = batches;
                Ok(())
            }
            Err(OFFSET_OUT_OF_RANGE) => self.follow_the_start().await,
            Err(code) => Err(self.reader.stuck(self.partition, Some(self.next), code)),
        }
    }

    /// The log no longer begins where it did.
    async fn follow_the_start(&mut self) -> Result<(), ReadError> {
        let start = self.reader.offset(self.partition, At::Start).await?;
        let gone = start.min(self.end).saturating_sub(self.next);
        if let Ok(gone @ 1..) = u64::try_from(gone) {
            self.deleted = self.deleted.saturating_add(gone);
            self.next = self.next.saturating_add(gone.cast_signed());
        } else {
            // Beyond its end, then: a leader that was behind, or a topic made again.
            sleep(PAUSES.0).await;
        }
        Ok(())
    }
}
