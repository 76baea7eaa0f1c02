//! Records whose ticket cannot be redeemed, on their way to the fallback topic.
//!
//! Invariants: who is told that a record is there has an acknowledgement by all replicas in sync; the same record of the
//! same topic is written once by this process, however many consumers come upon it, while it is remembered.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;

use crate::claim::{Digest, Handle};
use crate::cluster::{NewRecord, Producer};
use crate::telemetry::ClaimCounts;

/// Records that are remembered as written.
const REMEMBERED: usize = 100_000;
/// After a first failure; twice as much after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A value counts as lost for so long; then it is looked for again, as somebody may have put it back.
const LOST: Duration = Duration::from_secs(600);
/// A record that nobody has waited for this long is no longer written.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// Which record it is: Fetch names no group, so whoever comes upon it, it is the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LostAt {
    /// Its topic.
    pub topic: Arc<str>,
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

/// The outcome of a write: why not, for people.
pub(super) type Written = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Writes records, each acknowledged by all replicas in sync.
pub trait WriteRecords: Send + Sync {
    /// Begins to write one.
    fn write(&self, record: FallbackRecord) -> Written;
}

impl WriteRecords for Producer {
    fn write(&self, record: FallbackRecord) -> Written {
        let producer = self.clone();
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
}

/// All of them.
pub struct Fallbacks {
    writer: Arc<dyn WriteRecords>,
    /// Where writing goes on when a session has ended.
    background: Handle,
    state: Arc<Mutex<State>>,
}

impl Fallbacks {
    /// Nothing is written yet.
    pub fn new(writer: Arc<dyn WriteRecords>, background: Handle) -> Self {
        Self {
            writer,
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
        let mut progress = self.begin(at, counts, class, make);
        let is_over = |progress: &Progress| *progress == Progress::Acknowledged;
        if progress.wait_for(is_over).await.is_err() {
            // Nobody writes it any more: whoever comes upon it next begins again.
            std::future::pending::<()>().await;
        }
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
        let (writer, state) = (Arc::clone(&self.writer), Arc::clone(&self.state));
        self.background.spawn(async move {
            lost.write(&*writer, &work, &state).await;
        });
        receiver
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
    async fn write(self, writer: &dyn WriteRecords, work: &Arc<Work>, state: &Mutex<State>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let why = match writer.write(self.record.clone()).await {
                Ok(()) => {
                    self.counts.fell_back(self.class);
                    let _ = work.written_at.set(Instant::now());
                    let mut state = lock(state);
                    state.remember(self.at);
                    drop(state);
                    work.progress.send_replace(Progress::Acknowledged);
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
