//! A topic's lane: finds its partitions, and hands each record to one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::directory::{Directory, NotFound};
use super::partition::{self, BACKOFF};
use super::{NotWritten, Pending, partitioner};
use crate::cluster::control_plane::ControlPlane;

/// A lane that had nothing to do for so long ends; its partitions' connections with it.
const IDLE: Duration = Duration::from_secs(300);

/// How old the number of partitions may be (`metadata.max.age.ms` of Java's clients).
const MAX_AGE: Duration = Duration::from_secs(300);

/// Records that are taken at once.
const TAKEN: usize = 1_000;

/// Serves one topic until it is idle.
pub(super) async fn serve(
    shared: Arc<ControlPlane>,
    topic: Arc<str>,
    mut records: mpsc::UnboundedReceiver<Pending>,
) {
    let directory = Arc::new(Directory::new(shared, topic));
    let mut lanes: BTreeMap<i32, mpsc::UnboundedSender<Pending>> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    let mut waiting = Vec::new();
    let mut turn = 0usize;
    loop {
        match timeout(IDLE, records.recv_many(&mut waiting, TAKEN)).await {
            Ok(0) => break,
            Ok(_) => {}
            // Whoever sends now finds it closed; what was sent before is still here.
            Err(_) => {
                records.close();
                continue;
            }
        }
        let Some(partitions) = partitions(&directory, &mut waiting).await else {
            continue;
        };
        turn = turn.wrapping_add(1);
        for pending in waiting.drain(..) {
            let index = match &pending.record.key {
                Some(key) => partitioner::of_key(key, partitions),
                None => turn.checked_rem(partitions).unwrap_or(0),
            };
            let index = i32::try_from(index).unwrap_or(0);
            let lane = lanes.entry(index).or_insert_with(|| {
                let (lane, records) = mpsc::unbounded_channel();
                tasks.spawn(partition::serve(Arc::clone(&directory), index, records));
                lane
            });
            // One that panicked loses what it held and is not asked again.
            if let Err(unsent) = lane.send(pending) {
                lanes.remove(&index);
                unsent.0.end(Err(NotWritten::Ended));
            }
        }
    }
    // They end once they have sent what they hold.
    drop(lanes);
    while tasks.join_next().await.is_some() {}
}

/// The topic's number of partitions, as soon as somebody knows it; `None` where none of `waiting` is left to ask for.
async fn partitions(directory: &Directory, waiting: &mut Vec<Pending>) -> Option<usize> {
    let mut pause = BACKOFF.0;
    let mut since = Instant::now()
        .checked_sub(MAX_AGE)
        .unwrap_or_else(Instant::now);
    loop {
        let end = match directory.leaders(since).await {
            Ok(leaders) => return Some(leaders.partitions()),
            Err(NotFound::Ever(why)) => {
                for pending in waiting.drain(..) {
                    pending.end(Err(NotWritten::Refused(why.clone())));
                }
                return None;
            }
            Err(NotFound::Yet(why)) => NotWritten::Expired(why),
        };
        for pending in waiting.extract_if(.., |pending| pending.is_over()) {
            pending.end(Err(end.clone()));
        }
        if waiting.is_empty() {
            return None;
        }
        sleep(pause).await;
        pause = pause.saturating_mul(2).min(BACKOFF.1);
        since = Instant::now();
    }
}
