//! `sizegate claim verify`: every ticket of a topic, and its object: there, as long as it should be, with the right
//! checksum.

use std::process::ExitCode;

use clap::Args;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use serde_json::json;

use super::progress::Progress;
use super::tickets::{MOST_BATCH_BYTES, worst};
use super::{Common, Desk, Outcome, read_error, with_desk};
use crate::claim::{Class, Failure, Namespace, OpenBatch, Place, Ticket, Unopened, tickets};
use crate::cluster::{At, ReadError, TopicReader};
use crate::codec::Decoders;
use crate::text::{counted, grouped, row, table};

/// Objects that are read at once, and the most bytes of them: a larger one is read alone.
const AT_ONCE: usize = 8;
const AT_ONCE_BYTES: u64 = 256 << 20;
/// Findings that are kept one by one, and shown in a table; the rest are counted.
const KEPT: usize = 1_000;
const SHOWN: usize = 20;

/// Arguments of `claim verify`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate claim verify scans --config sizegate.yaml
  sizegate claim verify scans --sizes-only --output json --config sizegate.yaml

Every object is read and hashed, which costs what reading it costs; with --sizes-only it is only
looked at. Records that are produced meanwhile are not looked at.

Exit codes: 0 every ticket has its object, 1 some do not, 2 could not do it (or not for all),
64 bad config or usage.")]
pub struct VerifyArgs {
    /// The topic
    pub topic: String,
    /// Compare sizes alone: a request for each object, and none of its bytes
    #[arg(long)]
    pub sizes_only: bool,
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
}

/// A record whose value cannot be had.
#[derive(Debug, Serialize)]
struct Bad {
    partition: i32,
    offset: i64,
    class: &'static str,
    why: String,
}

#[derive(Debug, Default, Serialize)]
struct Tally {
    records: u64,
    tickets: u64,
    sound: u64,
    sound_bytes: u64,
    missing: u64,
    corrupt: u64,
    forged: u64,
    /// The store did not say.
    unknown: u64,
    /// Batches that cannot be opened.
    unreadable_batches: u64,
    #[serde(skip)]
    bad: Vec<Bad>,
}

impl Tally {
    fn note(&mut self, bad: Bad) {
        if self.bad.len() < KEPT {
            self.bad.push(bad);
        }
    }
}

pub(super) fn run(args: &VerifyArgs) -> ExitCode {
    with_desk(&args.common, async |desk, cluster, commands| {
        let told = |error: ReadError| read_error(&error, commands);
        let mut reader = cluster.reader(&args.topic).await.map_err(told)?;
        let namespace = desk.namespace(&reader)?;
        let mut verifying = Verifying {
            desk,
            namespace,
            args,
            tally: Tally::default(),
            progress: Progress::new(),
        };
        for partition in reader.partitions() {
            let read = verifying.partition(&mut reader, partition).await;
            read.map_err(told)?;
        }
        let tally = std::mem::take(&mut verifying.tally);
        drop(verifying);
        Ok(outcome(&args.topic, &tally))
    })
}

struct Verifying<'a> {
    desk: &'a Desk<'a>,
    namespace: Namespace,
    args: &'a VerifyArgs,
    tally: Tally,
    progress: Progress,
}

/// What became of one ticket.
struct Looked {
    partition: i32,
    offset: i64,
    bytes: u64,
    found: Result<(), Failure>,
}

impl Verifying<'_> {
    async fn partition(
        &mut self,
        reader: &mut TopicReader,
        partition: i32,
    ) -> Result<(), ReadError> {
        let from = reader.offset(partition, At::Start).await?;
        let end = reader.offset(partition, At::End).await?;
        let desk = self.desk;
        let sizes_only = self.args.sizes_only;
        let mut looking = FuturesUnordered::new();
        let mut held = 0u64;
        let mut decoders = Decoders::new();
        let mut batches = reader.batches(partition, from, end);
        while let Some(batch) = batches.next().await? {
            for (offset, ticket, place) in self.tickets(&batch.bytes, partition, &mut decoders) {
                let bytes = if sizes_only { 0 } else { ticket.size };
                while !looking.is_empty()
                    && (looking.len() >= AT_ONCE || held.saturating_add(bytes) > AT_ONCE_BYTES)
                {
                    held = held.saturating_sub(self.take(looking.next().await));
                }
                held = held.saturating_add(bytes);
                looking.push(async move {
                    let found = look(desk, &ticket, &place, sizes_only).await;
                    Looked {
                        partition,
                        offset,
                        bytes,
                        found,
                    }
                });
            }
            let (tally, topic, at) = (&self.tally, &self.args.topic, batch.last_offset);
            self.progress.say(|| {
                format!(
                    "{topic}-{partition}: offset {} of {}, {} looked at, {} without an object",
                    grouped(at.unsigned_abs()),
                    grouped(end.unsigned_abs()),
                    counted(tally.tickets, "ticket"),
                    grouped(tally.missing.saturating_add(tally.corrupt))
                )
            });
        }
        while let Some(looked) = looking.next().await {
            self.take(Some(looked));
        }
        Ok(())
    }

    /// The tickets of a batch, with their offsets.
    fn tickets(
        &mut self,
        batch: &bytes::Bytes,
        partition: i32,
        decoders: &mut Decoders,
    ) -> Vec<(i64, Ticket, Place)> {
        let batch = match OpenBatch::open(batch, MOST_BATCH_BYTES, decoders) {
            Ok(batch) => batch,
            // No client's records, or all of them gone by compaction.
            Err(Unopened::Control | Unopened::NoRecords) => return Vec::new(),
            Err(_) => {
                self.tally.unreadable_batches = self.tally.unreadable_batches.saturating_add(1);
                return Vec::new();
            }
        };
        let offsets: Vec<i64> = batch
            .parts()
            .map(|(_, parts)| batch.offset(&parts).unwrap_or(-1))
            .collect();
        self.tally.records = self.tally.records.saturating_add(offsets.len() as u64);
        let mut sound = Vec::new();
        let found: Vec<_> =
            tickets(&batch, &self.args.topic, &self.namespace, &self.desk.keys).collect();
        for found in found {
            self.tally.tickets = self.tally.tickets.saturating_add(1);
            let offset = offsets.get(found.record as usize).copied().unwrap_or(-1);
            match found.ticket {
                Ok((ticket, place)) => sound.push((offset, ticket, place)),
                Err(why) => {
                    self.tally.forged = self.tally.forged.saturating_add(1);
                    self.tally.note(Bad {
                        partition,
                        offset,
                        class: "forged",
                        why: why.to_string(),
                    });
                }
            }
        }
        sound
    }

    /// Counts what became of one, and returns the bytes it no longer holds.
    fn take(&mut self, looked: Option<Looked>) -> u64 {
        let Some(looked) = looked else {
            return 0;
        };
        match looked.found {
            Ok(()) => {
                self.tally.sound = self.tally.sound.saturating_add(1);
                self.tally.sound_bytes = self.tally.sound_bytes.saturating_add(looked.bytes);
            }
            Err(failure) => {
                let counted = match failure.class {
                    Class::Missing => &mut self.tally.missing,
                    Class::Corrupt => &mut self.tally.corrupt,
                    Class::Transient | Class::Config => &mut self.tally.unknown,
                };
                *counted = counted.saturating_add(1);
                self.tally.note(Bad {
                    partition: looked.partition,
                    offset: looked.offset,
                    class: failure.class.label(),
                    why: failure.to_string(),
                });
            }
        }
        looked.bytes
    }
}

async fn look(
    desk: &Desk<'_>,
    ticket: &Ticket,
    place: &Place,
    sizes_only: bool,
) -> Result<(), Failure> {
    if !sizes_only {
        return desk.store.value(ticket, place).await.map(drop);
    }
    let expected = ticket.object_bytes.unwrap_or(ticket.size);
    match desk.store.look(place).await? {
        None => Err(Failure::new(
            Class::Missing,
            "NoSuchKey",
            "there is no such object",
        )),
        Some(object) if object.bytes != expected => Err(Failure::new(
            Class::Corrupt,
            "SizeMismatch",
            format_args!("{} bytes, not {expected}", object.bytes),
        )),
        Some(_) => Ok(()),
    }
}

fn outcome(topic: &str, tally: &Tally) -> Outcome {
    let bad = tally
        .missing
        .saturating_add(tally.corrupt)
        .saturating_add(tally.forged);
    let exit = worst(bad > 0, tally.unknown > 0 || tally.unreadable_batches > 0);
    let mut text = table(&[
        row(["records", &grouped(tally.records)]),
        row(["tickets", &grouped(tally.tickets)]),
        row(["sound", &grouped(tally.sound)]),
        row(["missing", &grouped(tally.missing)]),
        row(["corrupt", &grouped(tally.corrupt)]),
        row(["forged", &grouped(tally.forged)]),
        row(["not known", &grouped(tally.unknown)]),
        row(["unreadable batches", &grouped(tally.unreadable_batches)]),
    ]);
    if !tally.bad.is_empty() {
        let mut rows = vec![row(["PARTITION", "OFFSET", "CLASS", "WHY"])];
        rows.extend(tally.bad.iter().take(SHOWN).map(|bad| {
            row([
                &bad.partition.to_string(),
                &bad.offset.to_string(),
                bad.class,
                &bad.why,
            ])
        }));
        text.push_str(&format!("\n{}", table(&rows)));
        let all = bad.saturating_add(tally.unknown);
        if let Some(more @ 1..) = all.checked_sub(SHOWN as u64) {
            text.push_str(&format!("and {} more\n", grouped(more)));
        }
    }
    Outcome {
        text,
        json: json!({"topic": topic, "counts": tally, "findings": tally.bad}),
        exit,
    }
}
