//! Which objects are named by tickets: what `orphans` and `gc` go by.
//!
//! Invariant: whatever looks like a ticket names its object, whoever signed it and whether or not its transaction was
//! committed; only the digests of keys are held.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use super::progress::Progress;
use super::tickets::MOST_BATCH_BYTES;
use super::{Desk, read_error};
use crate::claim::{Digest, Namespace, OpenBatch, Ticket, Unopened};
use crate::cluster::{At, Cluster, ReadError};
use crate::codec::Decoders;
use crate::findings::claims::holders;
use crate::findings::{Commands, Comparison};
use crate::text::grouped;

/// Every topic that may hold tickets: those that are offloaded and those asked for, their fallback topics, their retry and
/// dead-letter topics, and what somebody says beside.
pub(super) fn topics(
    comparison: &Comparison<'_>,
    desk: &Desk<'_>,
    asked: &[String],
    also: &[String],
) -> BTreeSet<String> {
    let held = holders(comparison, Duration::ZERO);
    let mut mains: BTreeSet<String> = asked.iter().cloned().collect();
    mains.extend(held.iter().map(|holder| holder.topic.to_owned()));
    let mut all: BTreeSet<String> = also.iter().cloned().collect();
    all.extend(held.iter().map(|holder| holder.holder.to_string()));
    for main in mains {
        all.insert(desk.claim.fallback_of(&main));
        if let Some(family) = comparison.policy.families().of_main(&main) {
            all.extend(family.members.iter().map(|member| member.topic.to_string()));
        }
        all.insert(main);
    }
    all
}

/// Where the objects of these topics lie; of all, without any.
pub(super) fn prefixes(topics: &[String], namespace: &Namespace) -> Vec<String> {
    if topics.is_empty() {
        return vec![namespace.root()];
    }
    topics.iter().map(|topic| namespace.prefix(topic)).collect()
}

/// Which topic a key is of.
pub(super) struct Names(BTreeMap<String, String>);

impl Names {
    pub(super) fn new<'a>(namespace: &Namespace, topics: impl Iterator<Item = &'a str>) -> Self {
        Self(
            topics
                .map(|topic| (namespace.prefix(topic), topic.to_owned()))
                .collect(),
        )
    }

    /// Its name, if there is such a topic.
    pub(super) fn known(&self, key: &str) -> Option<&str> {
        self.0.get(prefix(key)).map(String::as_str)
    }

    /// Its name; its part of the key, where there is no such topic any more.
    pub(super) fn of(&self, key: &str) -> String {
        self.known(key).map_or_else(
            || {
                let part = prefix(key).split('/').nth(1).unwrap_or_default();
                format!("{part} (no such topic)")
            },
            str::to_owned,
        )
    }
}

/// The cluster's and the topic's part of a key.
fn prefix(key: &str) -> &str {
    let second = key.match_indices('/').nth(1);
    let end = second.map_or(0, |(at, _)| at.saturating_add(1));
    key.get(..end).unwrap_or_default()
}

/// The first half of a key's digest: enough to tell keys apart, and all that is held of a ticket.
type KeyHash = [u8; 16];

fn hash(key: &str) -> KeyHash {
    let Digest(digest) = Digest::of(key.as_bytes());
    let mut half = KeyHash::default();
    half.iter_mut()
        .zip(digest)
        .for_each(|(to, from)| *to = from);
    half
}

/// What is named.
pub(super) struct Tickets {
    hashes: HashSet<KeyHash>,
    /// Batches that cannot be opened: what they name is not known.
    pub unreadable_batches: u64,
}

impl Tickets {
    /// Reads these topics to where each ends when its turn comes. Also says where objects lie.
    pub(super) async fn read(
        topics: &BTreeSet<String>,
        desk: &Desk<'_>,
        cluster: &Cluster,
        commands: &Commands,
        progress: &mut Progress,
    ) -> Result<(Namespace, Self), String> {
        let told = |error: ReadError| read_error(&error, commands);
        let mut tickets = Self {
            hashes: HashSet::new(),
            unreadable_batches: 0,
        };
        let mut namespace = None;
        let mut decoders = Decoders::new();
        for topic in topics {
            let mut reader = match cluster.reader(topic).await {
                Ok(reader) => reader,
                // Nothing in it names an object.
                Err(ReadError::NoTopic(_)) => continue,
                Err(error) => return Err(told(error)),
            };
            let space = match namespace.take() {
                Some(known) => known,
                None => desk.namespace(&reader)?,
            };
            for partition in reader.partitions() {
                let from = reader.offset(partition, At::Start).await.map_err(told)?;
                let end = reader.offset(partition, At::End).await.map_err(told)?;
                let mut batches = reader.batches(partition, from, end);
                while let Some(batch) = batches.next().await.map_err(told)? {
                    match OpenBatch::open(&batch.bytes, MOST_BATCH_BYTES, &mut decoders) {
                        Ok(open) => tickets.note(&open, &space),
                        Err(Unopened::Control | Unopened::NoRecords) => {}
                        Err(_) => {
                            let unreadable = tickets.unreadable_batches;
                            tickets.unreadable_batches = unreadable.saturating_add(1);
                        }
                    }
                    let (at, count) = (batch.last_offset, tickets.hashes.len());
                    progress.say(|| {
                        format!(
                            "{topic}-{partition}: offset {} of {}, {} tickets",
                            grouped(at.unsigned_abs()),
                            grouped(end.unsigned_abs()),
                            grouped(count as u64)
                        )
                    });
                }
            }
            namespace = Some(space);
        }
        let namespace = namespace
            .ok_or("no topic is there to read tickets from: name one, or a rule that offloads")?;
        Ok((namespace, tickets))
    }

    fn note(&mut self, batch: &OpenBatch, namespace: &Namespace) {
        for (_, parts) in batch.parts() {
            let value = parts.value.and_then(|range| batch.records().get(range));
            let ticket = value.and_then(|value| Ticket::from_json(value).ok());
            let key = ticket
                .as_ref()
                .and_then(|ticket| namespace.key_of(&ticket.uri));
            self.hashes.extend(key.map(hash));
        }
    }

    /// Some ticket names the object with this key.
    pub(super) fn name(&self, key: &str) -> bool {
        self.hashes.contains(&hash(key))
    }
}
