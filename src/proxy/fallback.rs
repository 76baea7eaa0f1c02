//! Records whose ticket cannot be redeemed, on their way to the fallback topic.
//!
//! Invariants: who is told that a record is there has an acknowledgement by all replicas in sync, or was shown it in the
//! topic; the same record of the same life of a topic is written once by this process, however many consumers come upon it,
//! while it is remembered, and not if the process before it wrote it lately (`written`).

mod compacted;
mod written;

use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::{OnceCell, watch};
use uuid::Uuid;

pub(super) use self::compacted::Compacted;
use crate::claim::{Digest, Handle};
use crate::cluster::{Cluster, NewRecord, Producer};
use crate::telemetry::ClaimCounts;

/// Records that are remembered as written.
const REMEMBERED: usize = 100_000;
/// After a first failure; twice as much after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A value counts as lost for so long; then it is looked for again, as somebody may have put it back.
const LOST: Duration = Duration::from_secs(600);
/// Nobody waits longer for what lies in a fallback topic already.
const LONGEST_READING: Duration = Duration::from_secs(30);
/// A record that nobody has waited for this long is no longer written.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Which record it is: Fetch names no group, so whoever comes upon it, it is the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LostAt {
    /// Its topic.
    pub topic: Arc<str>,
    /// Its topic's id: one made again under the name begins at offset 0 again. Nil: not known.
    pub topic_id: Uuid,
    /// Its partition.
    pub partition: i32,
    /// Its offset.
    pub offset: i64,
    /// Its value's, as the ticket says.
    pub sha256: Digest,
}

/// What is written.
#[derive(Debug, Clone)]
pub struct FallbackRecord {
    /// The fallback topic.
    pub topic: Arc<str>,
    /// The record's key.
    pub key: Option<Bytes>,
    /// Its ticket.
    pub value: Bytes,
    /// Its headers, and ours behind them.
    pub headers: Vec<(String, Option<Bytes>)>,
}

/// The outcome of something asked of the cluster: why not, for people.
type Asked<T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send>>;

/// The fallback topics.
pub(super) trait FallbackTopics: Send + Sync {
    /// Begins to write a record, acknowledged by all replicas in sync.
    fn write(&self, record: FallbackRecord) -> Asked<()>;

    /// Begins to read what was written lately.
    fn written(&self, topic: &str) -> Asked<HashSet<LostAt>>;
}

/// Those of a cluster.
pub(super) struct OfCluster {
    /// Writes.
    pub producer: Producer,
    /// Reads.
    pub cluster: Cluster,
}

impl FallbackTopics for OfCluster {
    fn written(&self, topic: &str) -> Asked<HashSet<LostAt>> {
        let (cluster, topic) = (self.cluster.clone(), topic.to_owned());
        // Reading asks whoever leads a partition, by borrowed links: it stays on one thread, and has one of its own.
        let read = move || written::read_now(&cluster, &topic, REMEMBERED, LONGEST_READING);
        Box::pin(async move {
            let read = tokio::task::spawn_blocking(read).await;
            read.map_err(|_| "the process ends".to_owned())?
        })
    }

    fn write(&self, record: FallbackRecord) -> Asked<()> {
        let producer = self.producer.clone();
        Box::pin(async move {
            let written = producer.write(NewRecord {
                topic: record.topic,
                key: record.key,
                value: Some(record.value),
                headers: record.headers,
            });
            match written.await {
                Ok(_) => Ok(()),
                Err(why) => Err(why.to_string()),
            }
        })
    }
}

/// How far a record has come.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Progress {
    Begun,
    /// That failed, and it is written again.
    Again(String),
    Acknowledged,
}

#[derive(Debug)]
struct Work {
    progress: watch::Sender<Progress>,
    asked_at: Mutex<Instant>,
    /// When it was acknowledged.
    written_at: OnceLock<Instant>,
}

impl Work {
    fn touch(&self) {
        *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_forgotten(&self) -> bool {
        let asked_at = *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner);
        asked_at.elapsed() >= FORGOTTEN
    }
}

#[derive(Debug, Default)]
struct State {
    records: HashMap<LostAt, Arc<Work>>,
    /// Those that are written, the oldest first.
    written: VecDeque<LostAt>,
    /// What lay in each fallback topic before this process first wrote to it.
    before: HashMap<Arc<str>, Before>,
}

/// Read once; whoever comes meanwhile waits for it.
type Before = Arc<OnceCell<HashSet<LostAt>>>;

/// All of them.
pub struct Fallbacks {
    topics: Arc<dyn FallbackTopics>,
    /// Which topics are compacted.
    pub(super) compacted: Compacted,
    /// Where writing goes on when a session has ended.
    background: Handle,
    state: Arc<Mutex<State>>,
}

impl Fallbacks {
    /// Nothing is written yet.
    pub(super) fn new(topics: Arc<dyn FallbackTopics>, background: Handle) -> Self {
        Self {
            topics,
            compacted: Compacted::default(),
            background,
            state: Arc::default(),
        }
    }

    /// Waits until a record is acknowledged, however long that takes; `make` gives it if nobody has offered it yet.
    pub async fn write(
        &self,
        at: &LostAt,
        counts: &Arc<ClaimCounts>,
        class: &'static str,
        make: impl FnOnce() -> FallbackRecord,
    ) {
        acknowledged(self.begin(at, counts, class, make)).await;
    }

    /// Waits for a record that is on its way, and was not written in vain: its value was found lost a moment ago, and need
    /// not be looked for meanwhile.
    pub fn under_way(&self, at: &LostAt) -> Option<impl Future<Output = ()> + Send + use<>> {
        let state = lock(&self.state);
        let work = state.records.get(at)?;
        let is_begun = *work.progress.borrow() == Progress::Begun;
        is_begun.then(|| {
            work.touch();
            acknowledged(work.progress.subscribe())
        })
    }

    /// Why a record is not written yet, if that was tried in vain.
    pub fn failing(&self, at: &LostAt) -> Option<String> {
        let state = lock(&self.state);
        match &*state.records.get(at)?.progress.borrow() {
            Progress::Again(why) => Some(why.clone()),
            Progress::Begun | Progress::Acknowledged => None,
        }
    }

    /// A record is in the fallback topic.
    pub fn is_written(&self, at: &LostAt) -> bool {
        let state = lock(&self.state);
        let work = state.records.get(at);
        work.is_some_and(|work| work.written_at.get().is_some())
    }

    /// It was written a short while ago: its value need not be looked for.
    pub fn is_lost(&self, at: &LostAt) -> bool {
        let state = lock(&self.state);
        let written_at = state.records.get(at).and_then(|work| work.written_at.get());
        written_at.is_some_and(|at| at.elapsed() < LOST)
    }

    fn begin(
        &self,
        at: &LostAt,
        counts: &Arc<ClaimCounts>,
        class: &'static str,
        make: impl FnOnce() -> FallbackRecord,
    ) -> watch::Receiver<Progress> {
        let mut state = lock(&self.state);
        if let Some(work) = state.records.get(at) {
            work.touch();
            return work.progress.subscribe();
        }
        let work = Arc::new(Work {
            progress: watch::Sender::new(Progress::Begun),
            asked_at: Mutex::new(Instant::now()),
            written_at: OnceLock::new(),
        });
        state.records.insert(at.clone(), Arc::clone(&work));
        drop(state);
        let receiver = work.progress.subscribe();
        let lost = Lost {
            record: make(),
            at: at.clone(),
            class,
            counts: Arc::clone(counts),
        };
        let (topics, state) = (Arc::clone(&self.topics), Arc::clone(&self.state));
        self.background.spawn(async move {
            lost.write(&*topics, &work, &state).await;
        });
        receiver
    }
}

async fn acknowledged(mut progress: watch::Receiver<Progress>) {
    let is_over = |progress: &Progress| *progress == Progress::Acknowledged;
    if progress.wait_for(is_over).await.is_err() {
        // Nobody writes it any more: whoever comes upon it next begins again.
        std::future::pending::<()>().await;
    }
}

/// A record to be written.
struct Lost {
    record: FallbackRecord,
    at: LostAt,
    class: &'static str,
    counts: Arc<ClaimCounts>,
}

impl Lost {
    /// Writes it until it is acknowledged, or nobody waits for that any more.
    async fn write(self, topics: &dyn FallbackTopics, work: &Arc<Work>, state: &Mutex<State>) {
        if self.was_written(topics, state).await {
            self.done(work, state);
            return;
        }
        let mut pause = FIRST_PAUSE;
        loop {
            let why = match topics.write(self.record.clone()).await {
                Ok(()) => {
                    self.counts.fell_back(self.class);
                    self.done(work, state);
                    return;
                }
                Err(why) => why,
            };
            self.counts.fallback_failures.inc();
            work.progress.send_replace(Progress::Again(why));
            tokio::time::sleep(pause).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
            if work.is_forgotten() {
                lock(state).records.remove(&self.at);
                return;
            }
        }
    }
}

impl Lost {
    fn done(self, work: &Work, state: &Mutex<State>) {
        let _ = work.written_at.set(Instant::now());
        lock(state).remember(self.at);
        work.progress.send_replace(Progress::Acknowledged);
    }

    /// A process before this one wrote it. What cannot be read has nothing in it: a second record harms less than none.
    async fn was_written(&self, topics: &dyn FallbackTopics, state: &Mutex<State>) -> bool {
        let before = {
            let mut state = lock(state);
            let topic = Arc::clone(&self.record.topic);
            Arc::clone(state.before.entry(topic).or_default())
        };
        let topic = &self.record.topic;
        let read = before.get_or_init(|| async {
            topics.written(topic).await.unwrap_or_else(|why| {
                tracing::warn!(target: "sizegate::redeem", topic = &**topic, "the fallback topic cannot be read: records that a process before this one wrote there may be written again: {why}");
                HashSet::new()
            })
        });
        read.await.contains(&self.at)
    }
}

impl State {
    fn remember(&mut self, at: LostAt) {
        self.written.push_back(at);
        if self.written.len() > REMEMBERED
            && let Some(oldest) = self.written.pop_front()
        {
            self.records.remove(&oldest);
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
