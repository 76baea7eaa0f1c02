//! Which objects are named by tickets: what `orphans` and `gc` go by.
//!
//! Invariant: whatever looks like a ticket names its object, whoever signed it and whether or not its transaction was
//! committed; only the digests of keys are held.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::progress::Progress;
use super::tickets::MOST_BATCH_BYTES;
use super::{Desk, read_error};
use crate::claim::{Digest, Listed, Namespace, OpenBatch, Ticket, Unopened, prefix_of};
use crate::cluster::{At, Cluster, ReadError, Wanted};
use crate::codec::Decoders;
use crate::findings::claims::holders;
use crate::findings::{Commands, Comparison};
use crate::text::{counted, grouped};

/// Every topic that may hold tickets: those that are offloaded and those asked for, their fallback topics, their retry and
/// dead-letter topics, and what somebody says beside.
fn topics(
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

/// What was read of a cluster before its objects are looked at.
pub(super) struct References {
    /// Topics whose tickets were read.
    pub topics: BTreeSet<String>,
    /// Topics that the cluster shows.
    pub known: Vec<Arc<str>>,
    /// Where objects lie.
    pub namespace: Namespace,
    /// What is named.
    pub tickets: Tickets,
}

impl References {
    /// Reads the tickets of every topic that may hold some.
    pub(super) async fn read(
        (asked, also): (&[String], &[String]),
        desk: &Desk<'_>,
        cluster: &Cluster,
        commands: &Commands,
        progress: &mut Progress,
    ) -> Result<Self, String> {
        let facts = cluster.survey(Wanted::All(&[]), commands).await;
        let facts = facts.map_err(|error| format!("the cluster could not be read: {error}"))?;
        let comparison = Comparison::new(desk.config, &facts)?;
        let topics = topics(&comparison, desk, asked, also);
        let (namespace, tickets) =
            Tickets::read(&topics, desk, cluster, commands, progress).await?;
        let known = facts.topics.iter().map(|topic| Arc::clone(&topic.name));
        Ok(Self {
            topics,
            known: known.collect(),
            namespace,
            tickets,
        })
    }

    /// Lists the objects of these topics; of all, without any.
    pub(super) async fn list(
        &self,
        topics: &[String],
        desk: &Desk<'_>,
        mut note: impl FnMut(Listed),
    ) -> Result<(), String> {
        let prefixes = match topics {
            [] => vec![self.namespace.root()],
            topics => topics
                .iter()
                .map(|topic| self.namespace.prefix(topic))
                .collect(),
        };
        for prefix in prefixes {
            let listed = desk.store.list(&prefix, &mut note).await;
            listed.map_err(|failure| format!("the store: {failure}"))?;
        }
        Ok(())
    }
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
        self.0.get(prefix_of(key)).map(String::as_str)
    }

    /// Its name; its part of the key, where there is no such topic any more.
    pub(super) fn of(&self, key: &str) -> String {
        self.known(key).map_or_else(
            || {
                let part = prefix_of(key).split('/').nth(1).unwrap_or_default();
                format!("{part} (no such topic)")
            },
            str::to_owned,
        )
    }
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
    async fn read(
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
                            "{topic}-{partition}: offset {} of {}, {}",
                            grouped(at.unsigned_abs()),
                            grouped(end.unsigned_abs()),
                            counted(count as u64, "ticket")
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
