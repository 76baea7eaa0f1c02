//! Measures and judges batches on all cores, while the next ones are read.
//!
//! Invariants: of what was read no more than [`AHEAD_BYTES`], or one larger batch, waits or is looked at; of a batch's
//! uncompressed bytes a worker holds one piece. The same is found however many workers there are.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, spawn_blocking};

use super::tally::Tally;
use crate::batch::BatchHeader;
use crate::cluster::StoredBatch;
use crate::codec::Decoders;
use crate::count::Count as _;
use crate::proxy::{Shared, SharedConfirmed, Trial};

/// Read and not yet judged, at most: four responses.
const AHEAD_BYTES: usize = 16 << 20;
/// What a worker is given at once: so much that handing it over costs nothing beside it.
const RUN_BYTES: usize = 256 << 10;
/// Beyond, reading over one connection is what takes the time. Each has decoders of its own, of up to 12 MiB.
const MOST_WORKERS: usize = 8;

const KIB: usize = 1024;

/// Workers for one topic.
pub(super) struct Pool {
    runs: UnboundedSender<Run>,
    workers: Vec<JoinHandle<Tally>>,
    /// In KiB.
    room: Arc<Semaphore>,
    next: Vec<StoredBatch>,
    next_bytes: usize,
    /// Batches that were handed over.
    handed_over: u64,
}

/// Batches of one partition that follow each other.
struct Run {
    partition: i32,
    /// As many came before, so that which are measured does not depend on who gets them.
    before: u64,
    batches: Vec<StoredBatch>,
    /// Given back when they are judged.
    _room: OwnedSemaphorePermit,
}

type Runs = Arc<Mutex<UnboundedReceiver<Run>>>;

impl Pool {
    pub(super) fn new(shared: &Arc<Shared>, topic: &str, tally: impl Fn() -> Tally) -> Self {
        let (mut pool, waiting) = Self::without_workers();
        let waiting = Arc::new(Mutex::new(waiting));
        let confirmed = SharedConfirmed::default();
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let start = |_| {
            let worker = Worker {
                topic: topic.to_owned(),
                tally: tally(),
                decoders: Decoders::default(),
            };
            let (shared, waiting) = (Arc::clone(shared), Arc::clone(&waiting));
            let (confirmed, runtime) = (confirmed.clone(), Handle::current());
            spawn_blocking(move || {
                let trial = Trial::new(shared, confirmed);
                runtime.block_on(worker.work(trial, waiting))
            })
        };
        pool.workers = (0..workers.clamp(1, MOST_WORKERS)).map(start).collect();
        pool
    }

    fn without_workers() -> (Self, UnboundedReceiver<Run>) {
        let (runs, waiting) = unbounded_channel();
        let pool = Self {
            runs,
            workers: Vec::new(),
            room: Arc::new(Semaphore::new(AHEAD_BYTES / KIB)),
            next: Vec::new(),
            next_bytes: 0,
            handed_over: 0,
        };
        (pool, waiting)
    }

    /// The next batch of a partition; waits where the workers are behind.
    pub(super) async fn look_at(&mut self, partition: i32, batch: StoredBatch) {
        self.next_bytes.increase_by(batch.bytes.len());
        self.next.push(batch);
        if self.next_bytes >= RUN_BYTES {
            self.hand_over(partition).await;
        }
    }

    /// All batches of this partition came.
    pub(super) async fn end_partition(&mut self, partition: i32) {
        if !self.next.is_empty() {
            self.hand_over(partition).await;
        }
    }

    async fn hand_over(&mut self, partition: i32) {
        let batches = std::mem::take(&mut self.next);
        let bytes = std::mem::take(&mut self.next_bytes);
        // A batch that is larger than all the room takes all of it.
        let kib = bytes.min(AHEAD_BYTES).div_ceil(KIB);
        let room = Arc::clone(&self.room);
        let Ok(room) = room
            .acquire_many_owned(u32::try_from(kib).unwrap_or(u32::MAX))
            .await
        else {
            return;
        };
        let before = self.handed_over;
        self.handed_over.increase_by(batches.len() as u64);
        // Without a worker that takes it, `finish` says so.
        let _ = self.runs.send(Run {
            partition,
            before,
            batches,
            _room: room,
        });
    }

    /// What all of them found.
    pub(super) async fn finish(self) -> Result<Tally, String> {
        drop(self.runs);
        let mut all: Option<Tally> = None;
        for worker in self.workers {
            let found = worker.await.map_err(|error| error.to_string())?;
            match &mut all {
                Some(all) => all.merge(found),
                None => all = Some(found),
            }
        }
        all.ok_or_else(|| "nothing was looked at".to_owned())
    }
}

/// Looks at one batch after the other.
struct Worker {
    topic: String,
    tally: Tally,
    decoders: Decoders,
}

impl Worker {
    async fn work(mut self, mut trial: Trial, runs: Runs) -> Tally {
        while let Some(run) = next(&runs).await {
            for (batch, nth) in run.batches.iter().zip(run.before..) {
                self.look(run.partition, batch, nth, &mut trial).await;
            }
        }
        self.tally
    }

    async fn look(&mut self, partition: i32, batch: &StoredBatch, nth: u64, trial: &mut Trial) {
        let tally = &mut self.tally;
        let header = BatchHeader::read(&batch.bytes).ok();
        // Messages of the old formats: brokers take them no longer.
        let Some(header) = header.filter(|header| header.magic == 2) else {
            tally.left_batches.increment();
            return;
        };
        if header.is_control() {
            tally.control_batches.increment();
            return;
        }
        let measured = tally.measure(&header, &batch.bytes, nth, &mut self.decoders);
        let tried = trial
            .judge(&self.topic, partition, &batch.bytes, measured)
            .await;
        tally.judged(&tried, partition, batch.base_offset);
    }
}

async fn next(runs: &Runs) -> Option<Run> {
    runs.lock().await.recv().await
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt as _;

    use super::*;

    fn batch(bytes: usize) -> StoredBatch {
        StoredBatch {
            base_offset: 0,
            last_offset: 0,
            bytes: Bytes::from(vec![0; bytes]),
        }
    }

    fn takes(pool: &mut Pool, bytes: usize) -> bool {
        pool.look_at(0, batch(bytes)).now_or_never().is_some()
    }

    #[test]
    fn no_more_is_read_than_there_is_room_for() {
        let (mut pool, mut waiting) = Pool::without_workers();
        let runs = AHEAD_BYTES / RUN_BYTES;
        assert!((0..runs).all(|_| takes(&mut pool, RUN_BYTES)));
        assert!(!takes(&mut pool, RUN_BYTES));
        drop(waiting.try_recv().unwrap());
        assert!(takes(&mut pool, RUN_BYTES), "what is judged makes room");
        assert!(!takes(&mut pool, RUN_BYTES));
    }

    #[test]
    fn a_batch_larger_than_the_room_is_alone_in_it() {
        let (mut pool, mut waiting) = Pool::without_workers();
        assert!(takes(&mut pool, RUN_BYTES));
        assert!(!takes(&mut pool, 3 * AHEAD_BYTES));
        drop(waiting);
        (pool, waiting) = Pool::without_workers();
        assert!(takes(&mut pool, 3 * AHEAD_BYTES));
        assert!(!takes(&mut pool, RUN_BYTES));
        drop(waiting.try_recv().unwrap());
        assert!(takes(&mut pool, RUN_BYTES));
    }

    #[test]
    fn small_batches_of_a_partition_are_handed_over_together_and_none_is_left() {
        let (mut pool, mut waiting) = Pool::without_workers();
        assert!((0..100).all(|_| takes(&mut pool, RUN_BYTES / 40)));
        pool.end_partition(0).now_or_never().unwrap();
        pool.end_partition(1).now_or_never().unwrap();
        let runs: Vec<_> = std::iter::from_fn(|| waiting.try_recv().ok()).collect();
        let batches: Vec<usize> = runs.iter().map(|run| run.batches.len()).collect();
        assert_eq!(batches, [41, 41, 18]);
    }
}
