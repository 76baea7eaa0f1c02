//! Reads from a fallback topic which records lie there: what the process before this one wrote is not written again.
//!
//! Bounded: of each partition its last records, so many in all. Only records that say which life of their topic they are
//! from count.

use std::collections::HashSet;
use std::time::Duration;

use super::LostAt;
use crate::claim::OpenBatch;
use crate::claim::fallen::Origin;
use crate::cluster::{At, Cluster, ReadError};
use crate::codec::Decoders;

/// No batch of ours is larger uncompressed.
const MOST_BATCH_BYTES: u64 = 16 << 20;

/// As [`read`], with a runtime of its own, in so much time at most.
pub(super) fn read_now(
    cluster: &Cluster,
    topic: &str,
    most: usize,
    longest: Duration,
) -> Result<HashSet<LostAt>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let reading = async { tokio::time::timeout(longest, read(cluster, topic, most)).await };
    let read = runtime.block_on(reading);
    read.unwrap_or_else(|_| Err(format!("it is not read in {} s", longest.as_secs())))
}

/// The last `most` records of a topic, at most.
async fn read(cluster: &Cluster, topic: &str, most: usize) -> Result<HashSet<LostAt>, String> {
    let told = |error: ReadError| error.to_string();
    let mut reader = cluster.reader(topic).await.map_err(told)?;
    let partitions = reader.partitions();
    let each = most.checked_div(partitions.len()).unwrap_or(0);
    let each = i64::try_from(each).unwrap_or(i64::MAX);
    let mut decoders = Decoders::new();
    let mut found = HashSet::new();
    for partition in partitions {
        let start = reader.offset(partition, At::Start).await.map_err(told)?;
        let end = reader.offset(partition, At::End).await.map_err(told)?;
        let from = start.max(end.saturating_sub(each));
        let mut batches = reader.batches(partition, from, end);
        while let Some(stored) = batches.next().await.map_err(told)? {
            // What cannot be opened is none of ours, and says nothing of any record.
            if let Ok(batch) = OpenBatch::open(&stored.bytes, MOST_BATCH_BYTES, &mut decoders) {
                note(&batch, &mut found);
            }
        }
    }
    Ok(found)
}

fn note(batch: &OpenBatch, found: &mut HashSet<LostAt>) {
    let origins = batch
        .parts()
        .filter_map(|(_, parts)| Origin::read(batch, &parts));
    found.extend(origins.filter(|of| !of.topic_id.is_nil()).map(|of| LostAt {
        topic: of.topic.into(),
        topic_id: of.topic_id,
        partition: of.partition,
        offset: of.offset,
        sha256: of.sha256,
    }));
}
