//! The originals of tickets: each fetched once for all who ask, kept while there is room, and asked for again for as
//! long as somebody waits for it.
//!
//! Invariants: a value's bytes are taken from a bounded room before it is asked for, and given back when the last of
//! them is gone; what is corrupt is fetched once; what is missing is called lost only past its grace and after two looks
//! at least; a fetch goes on when a response does without it, and serves the next; where the store itself is wrong, one
//! fetch at a time tries it (`hold_off`).

mod hold_off;
mod kept;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use self::hold_off::HoldOff;
use self::kept::Kept;
use super::failure::{Class, Failure};
use super::open::held;
use super::patience::random_share;
use super::place::Place;
use super::store::Store;
use super::ticket::{Digest, Ticket};
use crate::telemetry::{ClaimCounts, ClaimMetrics};

/// Requests to the store at once: more would only queue there.
const MOST_REQUESTS: usize = 128;
/// What the room is counted in.
const UNIT_BYTES: usize = 1024;
/// The share of the room that values keep which nobody needs at the moment.
const KEPT: usize = 2;
/// After a first failure; twice as much after each further one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause: what is mended is noticed within this.
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// A value that nobody has asked for this long is no longer asked for.
const FORGOTTEN: Duration = Duration::from_secs(60);

/// A value that a consumer waits for.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Its ticket, found sound.
    pub ticket: Arc<Ticket>,
    /// Where it is.
    pub place: Place,
    /// How long after it was written, or first found missing, it may still turn up.
    pub grace: Duration,
    /// For how long it counts as lost, once it is: then it is looked for again, as somebody may have put it back.
    pub lost_for: Duration,
    /// Its topic's counters.
    pub counts: Arc<ClaimCounts>,
}

/// Two tickets with the same key have the same value.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    place: Place,
    sha256: Digest,
    size: u64,
    object_bytes: Option<u64>,
}

/// How far a value has come.
#[derive(Debug, Clone)]
pub enum Progress {
    /// It is asked for.
    Begun,
    /// That failed, and it is asked for again.
    Again(Failure),
    /// Here it is.
    Here(Bytes),
    /// It cannot be had: missing or corrupt.
    Lost(Failure),
}

/// Waits for a value.
#[derive(Debug, Clone)]
pub struct Waiting {
    progress: watch::Receiver<Progress>,
}

impl Waiting {
    /// As far as it is now.
    pub fn progress(&self) -> Progress {
        self.progress.borrow().clone()
    }

    /// The last failure, while it is asked for again.
    pub fn failing(&self) -> Option<Failure> {
        match &*self.progress.borrow() {
            Progress::Again(failure) => Some(failure.clone()),
            _ => None,
        }
    }

    /// The value, or why there will be none; waits for as long as that takes.
    ///
    /// # Errors
    /// It is lost, or nobody asks for it any more.
    pub async fn outcome(&mut self) -> Result<Bytes, Failure> {
        let is_over =
            |progress: &Progress| matches!(progress, Progress::Here(_) | Progress::Lost(_));
        match self.progress.wait_for(is_over).await.as_deref() {
            Ok(Progress::Here(value)) => Ok(value.clone()),
            Ok(Progress::Lost(failure)) => Err(failure.clone()),
            _ => Err(Failure::stopped("nobody asks any more")),
        }
    }
}

/// Somebody's work on one value.
#[derive(Debug)]
struct Work {
    progress: watch::Sender<Progress>,
    asked_at: Mutex<Instant>,
}

impl Work {
    fn touch(&self) {
        *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_forgotten(&self) -> bool {
        let asked_at = *self.asked_at.lock().unwrap_or_else(PoisonError::into_inner);
        asked_at.elapsed() >= FORGOTTEN
    }

    fn waiting(&self) -> Waiting {
        self.touch();
        Waiting {
            progress: self.progress.subscribe(),
        }
    }
}

/// All of them.
pub struct Values {
    inner: Arc<Inner>,
    runtime: runtime::Handle,
}

struct Inner {
    store: Store,
    metrics: Arc<ClaimMetrics>,
    requests: Semaphore,
    room: Arc<Semaphore>,
    room_units: u32,
    kept: Mutex<Kept>,
    hold_off: HoldOff,
}

impl Values {
    /// Values that take at most `bytes` together, but for a single one that is larger.
    pub(super) fn new(
        store: Store,
        metrics: Arc<ClaimMetrics>,
        runtime: runtime::Handle,
        bytes: usize,
    ) -> Self {
        let units = bytes.checked_div(UNIT_BYTES).unwrap_or(0);
        let room_units = u32::try_from(units).unwrap_or(u32::MAX).clamp(1, 1 << 28);
        let most_kept = bytes.checked_div(KEPT).unwrap_or(0) as u64;
        Self {
            inner: Arc::new(Inner {
                store,
                metrics,
                requests: Semaphore::new(MOST_REQUESTS),
                room: Arc::new(Semaphore::new(room_units as usize)),
                room_units,
                kept: Mutex::new(Kept::new(most_kept)),
                hold_off: HoldOff::default(),
            }),
            runtime,
        }
    }

    /// Bytes of the whole room.
    pub fn room_bytes(&self) -> u64 {
        u64::from(self.inner.room_units).saturating_mul(UNIT_BYTES as u64)
    }

    /// Room for bytes that are no value, such as what a batch is uncompressed; at once or not at all.
    pub fn try_room(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        self.inner.try_room(bytes)
    }

    /// The same, in turn.
    pub async fn room(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        self.inner.room(bytes).await
    }

    /// What was found out about a lost value has had its consequence: whoever asks next has it looked for again, as its
    /// object may be put back.
    pub fn forget_lost(&self, wanted: &Wanted) {
        self.inner.lock().forget_lost(&wanted.key());
    }

    /// Asks for a value, or joins those who do. `None`: there is no room for it now, and it was not a `must`: one that
    /// must be had waits for room in turn.
    pub fn begin(&self, wanted: &Wanted, must: bool) -> Option<Waiting> {
        let key = wanted.key();
        let mut kept = self.inner.lock();
        if let Some(work) = kept.find(&key) {
            if matches!(&*work.progress.borrow(), Progress::Here(_)) {
                self.inner.metrics.cache_hits.inc();
            }
            return Some(work.waiting());
        }
        drop(kept);
        let room = self.inner.try_room(wanted.room_bytes());
        if room.is_none() && !must {
            return None;
        }
        let mut kept = self.inner.lock();
        // Somebody may have been as quick.
        if let Some(work) = kept.find(&key) {
            return Some(work.waiting());
        }
        let work = Arc::new(Work {
            progress: watch::Sender::new(Progress::Begun),
            asked_at: Mutex::new(Instant::now()),
        });
        kept.begin(key.clone(), Arc::clone(&work));
        drop(kept);
        let waiting = work.waiting();
        let inner = Arc::clone(&self.inner);
        let wanted = wanted.clone();
        self.runtime.spawn(async move {
            inner.work(&wanted, key, &work, room).await;
        });
        Some(waiting)
    }
}

impl Wanted {
    fn key(&self) -> Key {
        Key {
            place: self.place.clone(),
            sha256: self.ticket.sha256,
            size: self.ticket.size,
            object_bytes: self.ticket.object_bytes,
        }
    }

    /// The value, and the object beside it where that is another.
    fn room_bytes(&self) -> u64 {
        let object_bytes = self.ticket.object_bytes.unwrap_or(0);
        self.ticket
            .size
            .saturating_add(object_bytes.min(self.ticket.size))
    }

    /// For how long it may still turn up, if it was first found missing at `since`.
    fn grace_left(&self, since: Instant) -> Duration {
        let written = self.ticket.at_ms.map(Duration::from_millis);
        let age = written
            .and_then(|at| UNIX_EPOCH.checked_add(at))
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        let since_written = age.map_or(Duration::ZERO, |age| self.grace.saturating_sub(age));
        let since_missed = self.grace.saturating_sub(since.elapsed());
        since_written.max(since_missed)
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn units(&self, bytes: u64) -> u32 {
        let units = u32::try_from(bytes.div_ceil(UNIT_BYTES as u64)).unwrap_or(u32::MAX);
        units.clamp(1, self.room_units)
    }

    /// Values that nobody needs go first.
    fn try_room(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let units = self.units(bytes);
        loop {
            if let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(units) {
                return Some(room);
            }
            // Dropped outside of the lock: the last of its bytes gives its room back.
            let oldest = self.lock().give_up_oldest();
            oldest?;
        }
    }

    async fn room(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        if let Some(room) = self.try_room(bytes) {
            return Some(room);
        }
        let waiting = Arc::clone(&self.room).acquire_many_owned(self.units(bytes));
        waiting.await.ok()
    }

    /// Asks until it is here, lost, or wanted by nobody.
    async fn work(
        &self,
        wanted: &Wanted,
        key: Key,
        work: &Arc<Work>,
        mut room: Option<OwnedSemaphorePermit>,
    ) {
        let mut pause = FIRST_PAUSE;
        let mut missed = None;
        loop {
            while let Some(failure) = self.hold_off.waits(&wanted.place) {
                // Others may need it meanwhile.
                room = None;
                work.progress.send_replace(Progress::Again(failure));
                self.hold_off.changed(&wanted.place).await;
                if work.is_forgotten() {
                    self.lock().forget(&key, work);
                    return;
                }
            }
            let taken = match room.take() {
                Some(room) => Some(room),
                None => self.room(wanted.room_bytes()).await,
            };
            let Some(taken) = taken else {
                return;
            };
            let fetched = self.fetch(wanted).await;
            self.hold_off.tell(&wanted.place, fetched.as_ref().err());
            let failure = match fetched {
                Ok(value) => {
                    self.here(wanted, &key, work, value, taken);
                    return;
                }
                Err(failure) => failure,
            };
            drop(taken);
            wanted.counts.redeem_failed(failure.class.label());
            let is_lost = match failure.class {
                Class::Corrupt => true,
                Class::Missing => {
                    let (since, looks) = missed.get_or_insert((Instant::now(), 0u32));
                    *looks = looks.saturating_add(1);
                    *looks >= 2 && wanted.grace_left(*since).is_zero()
                }
                Class::Transient | Class::Config => false,
            };
            if is_lost {
                self.lock().lost(&key, work, wanted.lost_for);
                work.progress.send_replace(Progress::Lost(failure));
                return;
            }
            let share = match failure.class {
                // Each pause longer than the one before it.
                Class::Missing => 0.5 + random_share() / 2.0,
                _ => random_share(),
            };
            work.progress.send_replace(Progress::Again(failure));
            tokio::time::sleep(pause.mul_f64(share)).await;
            pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
            if work.is_forgotten() {
                self.lock().forget(&key, work);
                return;
            }
        }
    }

    async fn fetch(&self, wanted: &Wanted) -> Result<Bytes, Failure> {
        let _turn = self.requests.acquire().await;
        let began = Instant::now();
        let value = self.store.value(&wanted.ticket, &wanted.place).await;
        let outcome = match &value {
            Ok(_) => "ok",
            Err(failure) => failure.class.label(),
        };
        self.metrics.store_request("get", outcome, began.elapsed());
        value
    }

    fn here(
        &self,
        wanted: &Wanted,
        key: &Key,
        work: &Arc<Work>,
        value: Bytes,
        mut room: OwnedSemaphorePermit,
    ) {
        // The object is gone where it was another.
        let units = self.units(wanted.ticket.size) as usize;
        if let Some(spare) = room.num_permits().checked_sub(units) {
            drop(room.split(spare));
        }
        let value = held(value, room);
        let bytes = value.len() as u64;
        work.progress.send_replace(Progress::Here(value));
        let gone = {
            let mut kept = self.lock();
            let gone = kept.keep(key, work, bytes);
            self.metrics.cache_bytes.set(kept.bytes());
            gone
        };
        drop(gone);
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.room.close();
    }
}
