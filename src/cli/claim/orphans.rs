//! `sizegate claim orphans`: objects that no ticket names.
//!
//! Tickets are read first, objects listed after them, and what is younger than the grace period when it began is left
//! out: an object that was there then had its ticket appended, if it ever was, before the tickets were read.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use serde_json::{Value, json};

use super::progress::Progress;
use super::tickets::{MOST_BATCH_BYTES, worst};
use super::{Common, Desk, Outcome, read_error, with_desk};
use crate::claim::{Digest, Listed, Namespace, OpenBatch, Ticket, Unopened};
use crate::cluster::{At, Cluster, ReadError, Wanted};
use crate::codec::Decoders;
use crate::findings::claims::holders;
use crate::findings::{Commands, Comparison};
use crate::text::{grouped, rfc3339, row, table};

/// Keys that are kept as examples, of each topic; and shown in a table.
const KEPT: usize = 1_000;
const SHOWN: usize = 5;

/// Arguments of `claim orphans`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate claim orphans --config sizegate.yaml
  sizegate claim orphans scans --also scans-mirrored --output json --config sizegate.yaml

An object without a ticket is left by a Produce that failed after its upload, or its ticket has gone
with its record. Objects older than claim_check.retention are counted apart: they are the lifecycle's.
Tickets are looked for in every topic that is offloaded, its fallback topic, its retry and dead-letter
topics, and those named by --also. Objects younger than claim_check.grace are left out.

Exit codes: 0 none, 1 there are some, 2 could not do it (or not for all), 64 bad config or usage.")]
pub struct OrphansArgs {
    /// Topics whose objects are looked at; all that have objects, without any
    #[arg(value_name = "TOPIC")]
    pub topics: Vec<String>,
    /// A further topic that holds tickets: a mirror, a copy
    #[arg(long, value_name = "TOPIC")]
    pub also: Vec<String>,
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
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

/// Objects of one topic.
#[derive(Debug, Default)]
struct OfTopic {
    objects: u64,
    named: u64,
    young: u64,
    outlived: u64,
    orphans: u64,
    orphan_bytes: u64,
    oldest: Option<SystemTime>,
    examples: Vec<String>,
}

struct Tickets {
    hashes: HashSet<KeyHash>,
    unreadable_batches: u64,
}

pub(super) fn run(args: &OrphansArgs) -> ExitCode {
    with_desk(&args.common, async |desk, cluster, commands| {
        let began = SystemTime::now();
        let facts = cluster.survey(Wanted::All(&[]), commands).await;
        let facts = facts.map_err(|error| format!("the cluster could not be read: {error}"))?;
        let comparison = Comparison::new(desk.config, &facts)?;
        let mut read: BTreeSet<String> = args.topics.iter().chain(&args.also).cloned().collect();
        let held = holders(&comparison, std::time::Duration::ZERO);
        read.extend(held.iter().map(|holder| holder.holder.to_string()));
        let known = facts.topics.iter().map(|topic| &*topic.name);
        let mut progress = Progress::new();
        let (namespace, tickets) =
            read_tickets(&read, desk, cluster, commands, &mut progress).await?;
        let names = Names::new(
            &namespace,
            known.chain(args.topics.iter().map(String::as_str)),
        );
        let mut counted = Counted {
            desk,
            tickets: &tickets,
            began,
            of: BTreeMap::new(),
            progress: &mut progress,
        };
        for prefix in prefixes(args, &namespace) {
            let listed = desk
                .store
                .list(&prefix, |object| counted.count(&names, &object))
                .await;
            listed.map_err(|failure| format!("the store: {failure}"))?;
        }
        let of = counted.of;
        drop(progress);
        Ok(outcome(&of, &read, tickets.unreadable_batches))
    })
}

fn prefixes(args: &OrphansArgs, namespace: &Namespace) -> Vec<String> {
    if args.topics.is_empty() {
        return vec![namespace.root()];
    }
    let topics = args.topics.iter();
    topics.map(|topic| namespace.prefix(topic)).collect()
}

/// Which topic a key is of.
struct Names(BTreeMap<String, String>);

impl Names {
    fn new<'a>(namespace: &Namespace, topics: impl Iterator<Item = &'a str>) -> Self {
        Self(
            topics
                .map(|topic| (namespace.prefix(topic), topic.to_owned()))
                .collect(),
        )
    }

    /// Its name; its part of the key, where there is no such topic any more.
    fn of(&self, key: &str) -> String {
        let end = key
            .match_indices('/')
            .nth(1)
            .map_or(0, |(at, _)| at.saturating_add(1));
        let prefix = key.get(..end).unwrap_or_default();
        self.0.get(prefix).cloned().unwrap_or_else(|| {
            let part = prefix.split('/').nth(1).unwrap_or_default();
            format!("{part} (no such topic)")
        })
    }
}

async fn read_tickets(
    topics: &BTreeSet<String>,
    desk: &Desk<'_>,
    cluster: &Cluster,
    commands: &Commands,
    progress: &mut Progress,
) -> Result<(Namespace, Tickets), String> {
    let told = |error: ReadError| read_error(&error, commands);
    let mut tickets = Tickets {
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
                    Ok(open) => named(&open, &space, &mut tickets.hashes),
                    Err(Unopened::Control | Unopened::NoRecords) => {}
                    Err(_) => {
                        tickets.unreadable_batches = tickets.unreadable_batches.saturating_add(1);
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

/// Whatever looks like a ticket counts, whoever signed it: an object is not called an orphan for a key that has gone.
fn named(batch: &OpenBatch, namespace: &Namespace, hashes: &mut HashSet<KeyHash>) {
    for (_, parts) in batch.parts() {
        let value = parts.value.and_then(|range| batch.records().get(range));
        let ticket = value.and_then(|value| Ticket::from_json(value).ok());
        if let Some(key) = ticket
            .as_ref()
            .and_then(|ticket| namespace.key_of(&ticket.uri))
        {
            hashes.insert(hash(key));
        }
    }
}

struct Counted<'a> {
    desk: &'a Desk<'a>,
    tickets: &'a Tickets,
    began: SystemTime,
    of: BTreeMap<String, OfTopic>,
    progress: &'a mut Progress,
}

impl Counted<'_> {
    fn count(&mut self, names: &Names, object: &Listed) {
        if Namespace::is_trial(&object.key) {
            return;
        }
        let topic = names.of(&object.key);
        let age = self
            .began
            .duration_since(object.written)
            .unwrap_or_default();
        let of = self.of.entry(topic).or_default();
        of.objects = of.objects.saturating_add(1);
        if self.tickets.hashes.contains(&hash(&object.key)) {
            of.named = of.named.saturating_add(1);
        } else if age <= self.desk.claim.grace {
            of.young = of.young.saturating_add(1);
        } else if age > self.desk.claim.retention {
            of.outlived = of.outlived.saturating_add(1);
        } else {
            of.orphans = of.orphans.saturating_add(1);
            of.orphan_bytes = of.orphan_bytes.saturating_add(object.bytes);
            of.oldest = Some(
                of.oldest
                    .map_or(object.written, |oldest| oldest.min(object.written)),
            );
            if of.examples.len() < KEPT {
                of.examples.push(object.key.clone());
            }
        }
        let objects = of.objects;
        self.progress
            .say(|| format!("{}: {} objects", object.key, grouped(objects)));
    }
}

fn outcome(of: &BTreeMap<String, OfTopic>, read: &BTreeSet<String>, unreadable: u64) -> Outcome {
    let mut rows = vec![row([
        "OBJECTS OF",
        "OBJECTS",
        "WITH TICKET",
        "YOUNG",
        "PAST RETENTION",
        "ORPHANS",
        "BYTES",
        "OLDEST",
    ])];
    let mut examples = String::new();
    for (topic, of) in of {
        rows.push(row([
            topic,
            &grouped(of.objects),
            &grouped(of.named),
            &grouped(of.young),
            &grouped(of.outlived),
            &grouped(of.orphans),
            &grouped(of.orphan_bytes),
            &of.oldest.map_or_else(|| "-".to_owned(), rfc3339),
        ]));
        for key in of.examples.iter().take(SHOWN) {
            examples.push_str(&format!("orphan: {key}\n"));
        }
        if let Some(more @ 1..) = of.orphans.checked_sub(SHOWN as u64) {
            examples.push_str(&format!("and {} more of {topic}\n", grouped(more)));
        }
    }
    let read: Vec<&str> = read.iter().map(String::as_str).collect();
    let mut text = format!(
        "Tickets were read from: {}.\n\n{}",
        read.join(" "),
        table(&rows)
    );
    if !examples.is_empty() {
        text.push_str(&format!("\n{examples}"));
    }
    if unreadable > 0 {
        text.push_str(&format!(
            "\n{} batches could not be read: what they name may be counted as orphans.\n",
            grouped(unreadable)
        ));
    }
    let topics = of.iter().map(|(topic, of)| {
        json!({
            "topic": topic,
            "objects": of.objects,
            "with_ticket": of.named,
            "young": of.young,
            "past_retention": of.outlived,
            "orphans": of.orphans,
            "orphan_bytes": of.orphan_bytes,
            "oldest": of.oldest.map(rfc3339),
            "keys": of.examples,
        })
    });
    Outcome {
        text,
        json: json!({
            "topics": topics.collect::<Vec<Value>>(),
            "tickets_read_from": read,
            "unreadable_batches": unreadable,
        }),
        exit: worst(of.values().any(|of| of.orphans > 0), unreadable > 0),
    }
}
