//! Records of our own: what sizegate itself writes to topics, on the control plane's thread and with its credentials.
//!
//! Each record is acknowledged by all replicas in sync (`acks=all`) and stored once, in the order in which it was
//! offered to its partition (idempotent, KIP-98): one lane for each topic, one for each of its partitions, one request
//! under way in each.
//!
//! Invariant: whoever writes is never kept waiting. What a writer's room has no place for is refused at once, and every
//! record that was accepted gets one outcome, [`DELIVERY`] after it was offered at the latest, give or take one request.

mod directory;
mod encode;
mod partition;
mod partitioner;
mod topic;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::control_plane::ControlPlane;
use crate::net::deadline_in;

/// How long a record is tried for: a broker that is restarted, or a topic that is created late, takes seconds.
const DELIVERY: Duration = Duration::from_secs(30);

/// What a waiting record takes beside its own bytes: its place in queues, its reply.
const RECORD_OVERHEAD_BYTES: usize = 256;

/// A record to be written.
#[derive(Debug, Clone, Default)]
pub struct NewRecord {
    /// Where it goes.
    pub topic: Arc<str>,
    /// Its key, which chooses the partition as Java's producer does; without one the partitions take turns.
    pub key: Option<Bytes>,
    /// Its value.
    pub value: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<(String, Option<Bytes>)>,
}

impl NewRecord {
    fn room_bytes(&self) -> usize {
        let of = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers = self
            .headers
            .iter()
            .map(|(name, value)| name.len().saturating_add(of(value)));
        headers
            .chain([of(&self.key), of(&self.value), RECORD_OVERHEAD_BYTES])
            .fold(0, usize::saturating_add)
    }
}

/// Where a record is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The partition.
    pub partition: i32,
    /// The offset; `None` where the broker only says that it has the record already.
    pub offset: Option<i64>,
}

/// Why a record was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotWritten {
    /// Too much is waiting already.
    #[error("too many records are waiting to be written")]
    NoRoom,
    /// A broker refused it for good.
    #[error("{0}")]
    Refused(String),
    /// It was tried for [`DELIVERY`]. Whether it is stored is not known where a response was lost.
    #[error("not acknowledged within {seconds} s: {0}", seconds = DELIVERY.as_secs())]
    Expired(String),
    /// The control plane has ended.
    #[error("sizegate is going down")]
    Ended,
}

impl NotWritten {
    /// A fixed word for logs and metrics.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::NoRoom => "no_room",
            Self::Refused(_) => "refused",
            Self::Expired(_) => "expired",
            Self::Ended => "ended",
        }
    }
}

/// A writer, with room of its own for what waits: one that writes in vain takes no other's. Clones share it.
#[derive(Debug, Clone)]
pub struct Producer {
    queue: mpsc::UnboundedSender<Pending>,
    room: Arc<Semaphore>,
    room_bytes: u32,
}

/// The outcome of a record that was accepted.
#[derive(Debug)]
pub struct Outcome(oneshot::Receiver<Result<Written, NotWritten>>);

impl Outcome {
    /// Waits for it.
    pub async fn wait(self) -> Result<Written, NotWritten> {
        self.0.await.unwrap_or(Err(NotWritten::Ended))
    }
}

impl Producer {
    pub(super) fn new(queue: mpsc::UnboundedSender<Pending>, room_bytes: u32) -> Self {
        Self {
            queue,
            room: Arc::new(Semaphore::new(room_bytes as usize)),
            room_bytes,
        }
    }

    /// Writes a record and waits until all replicas in sync have it. Does not wait for room.
    ///
    /// # Errors
    /// Why it is not written, or not known to be.
    pub async fn write(&self, record: NewRecord) -> Result<Written, NotWritten> {
        self.offer(record)?.wait().await
    }

    /// Accepts a record or refuses it, at once. Dropping the outcome does not call the record back.
    ///
    /// # Errors
    /// There is no room, or the control plane has ended.
    pub fn offer(&self, record: NewRecord) -> Result<Outcome, NotWritten> {
        let (reply, outcome) = oneshot::channel();
        // Who offered it need not wait.
        self.offer_then(record, |ended| drop(reply.send(ended)))?;
        Ok(Outcome(outcome))
    }

    /// As [`Producer::offer`], for those who do not wait: `then` is told the outcome, on the control plane's thread.
    ///
    /// # Errors
    /// As [`Producer::offer`]; `then` is not called.
    pub fn offer_then(
        &self,
        record: NewRecord,
        then: impl FnOnce(Result<Written, NotWritten>) + Send + Sync + 'static,
    ) -> Result<(), NotWritten> {
        // A record larger than all of the room takes all of it.
        let bytes = u32::try_from(record.room_bytes())
            .unwrap_or(u32::MAX)
            .min(self.room_bytes);
        let room = Arc::clone(&self.room)
            .try_acquire_many_owned(bytes)
            .map_err(|_| NotWritten::NoRoom)?;
        let pending = Pending {
            record,
            deadline: deadline_in(DELIVERY),
            then: Some(Box::new(then)),
            _room: room,
        };
        self.queue.send(pending).map_err(|mut unsent| {
            unsent.0.then = None;
            NotWritten::Ended
        })
    }

    /// Waits until every record accepted so far has its outcome.
    pub async fn finished(&self) {
        // It is never closed.
        let _ = self.room.acquire_many(self.room_bytes).await;
    }
}

/// Who is told an outcome.
type Then = Box<dyn FnOnce(Result<Written, NotWritten>) + Send + Sync>;

/// A record that waits for its outcome; dropped without one, that is [`NotWritten::Ended`].
pub(super) struct Pending {
    record: NewRecord,
    deadline: Instant,
    then: Option<Then>,
    _room: OwnedSemaphorePermit,
}

impl Pending {
    fn end(mut self, outcome: Result<Written, NotWritten>) {
        if let Some(then) = self.then.take() {
            then(outcome);
        }
    }

    fn is_over(&self) -> bool {
        self.deadline <= Instant::now()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(then) = self.then.take() {
            then(Err(NotWritten::Ended));
        }
    }
}

/// Hands each record to its topic's lane, for ever.
pub(super) async fn run(shared: Arc<ControlPlane>, mut queue: mpsc::UnboundedReceiver<Pending>) {
    let mut lanes: HashMap<Arc<str>, mpsc::UnboundedSender<Pending>> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let pending = tokio::select! {
            pending = queue.recv() => pending,
            Some(_) = tasks.join_next() => {
                lanes.retain(|_, lane| !lane.is_closed());
                continue;
            }
        };
        let Some(pending) = pending else { return };
        let topic = Arc::clone(&pending.record.topic);
        let unsent = match lanes.get(&topic) {
            Some(lane) => lane.send(pending).err().map(|unsent| unsent.0),
            None => Some(pending),
        };
        if let Some(pending) = unsent {
            let (lane, records) = mpsc::unbounded_channel();
            // The receiver is here.
            let _ = lane.send(pending);
            tasks.spawn(topic::serve(
                Arc::clone(&shared),
                Arc::clone(&topic),
                records,
            ));
            lanes.insert(topic, lane);
        }
    }
}
