//! `sizegate claim redrive`: brings back records whose objects are there again.
//!
//! Invariants: a record is written again only when its object was read and is what its ticket says; it gets a new
//! timestamp, so that it is kept as long as any other; whatever was written again before bears the place it came from,
//! and is not written a second time.

use std::collections::HashSet;
use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::fallen::{self, Fallen, said, shown};
use super::progress::Progress;
use super::tickets::{MOST_BATCH_BYTES, worst};
use super::{Common, Desk, Outcome, read_error, with_desk};
use crate::batch::Headers;
use crate::claim::{Class, OpenBatch, Place, Ticket, Unopened};
use crate::cluster::{At, Cluster, NewRecord, Producer};
use crate::codec::Decoders;
use crate::findings::Commands;
use crate::text::{counted, grouped, row, table};

/// Says of a record that was written again where it was: topic, partition and offset.
const FROM: &str = "x-claim-redriven-from";
/// Records on their way at once: tickets, a kilobyte each.
const ROOM_BYTES: u32 = 1 << 20;

/// Arguments of `claim redrive`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate claim redrive scans --config sizegate.yaml
  sizegate claim redrive scans --apply --config sizegate.yaml

Without --apply it only says what it would do. A record comes back at the end of its topic, with its key,
its headers and a new timestamp; groups that had its original before get it a second time. The partition
follows from the key. What was brought back before is left out: the topic is read for that.

Exit codes: 0 nothing is left to do, 1 something cannot be brought back (or would be, without --apply),
2 could not do it, 64 bad config or usage.")]
pub struct RedriveArgs {
    /// The topic that the records come back to
    pub topic: String,
    /// Do it
    #[arg(long)]
    pub apply: bool,
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
}

/// What becomes of a record.
enum Fate {
    /// It came back before.
    Before,
    /// Its object is there.
    Ready,
    /// It came back now.
    Back,
    /// Why it cannot.
    Not(String),
}

impl Fate {
    const fn label(&self) -> &'static str {
        match self {
            Self::Before => "back_before",
            Self::Ready => "ready",
            Self::Back => "back",
            Self::Not(_) => "not",
        }
    }
}

pub(super) fn run(args: &RedriveArgs) -> ExitCode {
    with_desk(&args.common, async |desk, cluster, commands| {
        let shutdown = CancellationToken::new();
        let producer = cluster.producer(ROOM_BYTES);
        // Records are written by the control plane.
        tokio::select! {
            outcome = redrive(args, desk, cluster, commands, &producer) => outcome,
            () = cluster.run(shutdown.clone()) => Err("the control plane has ended".to_owned()),
        }
    })
}

async fn redrive(
    args: &RedriveArgs,
    desk: &Desk<'_>,
    cluster: &Cluster,
    commands: &Commands,
    producer: &Producer,
) -> Result<Outcome, String> {
    let mut progress = Progress::new();
    let topic = &args.topic;
    let (mut all, _) = fallen::read(topic, desk, cluster, commands, &mut progress).await?;
    // In the order in which they were: what is missing falls later than what is corrupt.
    all.sort_by(|a, b| a.original.cmp(&b.original));
    let before = match all.is_empty() {
        true => HashSet::new(),
        false => redriven(topic, cluster, commands, &mut progress).await?,
    };
    let mut fates = Vec::new();
    let mut begun = HashSet::new();
    for fallen in all {
        let place = from(&fallen);
        // One record may lie there twice.
        let is_before = before.contains(&place) || !begun.insert(place);
        let fate = match is_before {
            true => Fate::Before,
            false => one(args, desk, &fallen, producer).await?,
        };
        progress.say(|| counted(fates.len() as u64, "record"));
        fates.push((fallen, fate));
    }
    drop(progress);
    Ok(outcome(args, &fates))
}

fn from(fallen: &Fallen) -> String {
    let (topic, partition, offset) = &fallen.original;
    format!("{topic}/{partition}/{offset}")
}

/// Where the records were that have come back to a topic.
async fn redriven(
    topic: &str,
    cluster: &Cluster,
    commands: &Commands,
    progress: &mut Progress,
) -> Result<HashSet<String>, String> {
    let told = |error| read_error(&error, commands);
    let mut reader = cluster.reader(topic).await.map_err(told)?;
    let mut decoders = Decoders::new();
    let mut found = HashSet::new();
    for partition in reader.partitions() {
        let start = reader.offset(partition, At::Start).await.map_err(told)?;
        let end = reader.offset(partition, At::End).await.map_err(told)?;
        let mut batches = reader.batches(partition, start, end);
        while let Some(stored) = batches.next().await.map_err(told)? {
            match OpenBatch::open(&stored.bytes, MOST_BATCH_BYTES, &mut decoders) {
                Ok(batch) => places(&batch, &mut found),
                Err(Unopened::Control | Unopened::NoRecords) => {}
                Err(why) => {
                    return Err(format!(
                        "{topic}-{partition}: the batch at offset {} cannot be read, and might have come back: {why}",
                        stored.base_offset
                    ));
                }
            }
            progress.say(|| {
                format!(
                    "{topic}-{partition}: offset {} of {end}",
                    stored.last_offset
                )
            });
        }
    }
    Ok(found)
}

fn places(batch: &OpenBatch, found: &mut HashSet<String>) {
    for (_, parts) in batch.parts() {
        let headers = Headers::of(&parts, batch.records());
        let bytes = headers.clone();
        for header in headers {
            if bytes.bytes(&header.name) == FROM.as_bytes()
                && let Some(value) = &header.value
            {
                found.insert(String::from_utf8_lossy(bytes.bytes(value)).into_owned());
            }
        }
    }
}

async fn one(
    args: &RedriveArgs,
    desk: &Desk<'_>,
    fallen: &Fallen,
    producer: &Producer,
) -> Result<Fate, String> {
    let Some((ticket, place)) = &fallen.ticket else {
        return Ok(Fate::Not("its ticket is none of ours".to_owned()));
    };
    match desk.store.value(ticket, place).await {
        Ok(_) => {}
        Err(failure) if matches!(failure.class, Class::Missing | Class::Corrupt) => {
            return Ok(Fate::Not(failure.to_string()));
        }
        Err(failure) => return Err(format!("the store: {failure}")),
    }
    if !args.apply {
        return Ok(Fate::Ready);
    }
    renew(desk, ticket, place).await?;
    let mut headers = fallen.headers.clone();
    headers.push((FROM.to_owned(), Some(Bytes::from(from(fallen)))));
    let written = producer.write(NewRecord {
        topic: args.topic.as_str().into(),
        key: fallen.key.clone(),
        value: Some(fallen.value.clone()),
        headers,
    });
    written
        .await
        .map_err(|error| format!("{}: {error}", args.topic))?;
    Ok(Fate::Back)
}

/// The object must outlive a record that begins again.
async fn renew(desk: &Desk<'_>, ticket: &Ticket, place: &Place) -> Result<(), String> {
    let told = |failure| format!("the store: {failure}");
    let bytes = ticket.object_bytes.unwrap_or(ticket.size);
    let object = desk.store.object(place, bytes).await.map_err(told)?;
    desk.store
        .put(place, &object, desk.claim.renew_after())
        .await
        .map_err(told)?;
    Ok(())
}

fn outcome(args: &RedriveArgs, fates: &[(Fallen, Fate)]) -> Outcome {
    let count = |label: &str| {
        fates
            .iter()
            .filter(|(_, fate)| fate.label() == label)
            .count() as u64
    };
    let (before, ready, back, not) = (
        count("back_before"),
        count("ready"),
        count("back"),
        count("not"),
    );
    let rows = [
        row([
            "RECORDS",
            "CAME BACK BEFORE",
            "READY",
            "CAME BACK NOW",
            "CANNOT",
        ]),
        row([
            &grouped(fates.len() as u64),
            &grouped(before),
            &grouped(ready),
            &grouped(back),
            &grouped(not),
        ]),
    ];
    let mut text = table(&rows);
    for (fallen, fate) in fates {
        if let Fate::Not(why) = fate {
            text.push_str(&format!("cannot: {} (now: {why})\n", said(fallen)));
        }
    }
    if ready > 0 {
        text.push_str(&format!(
            "\nThis is a plan. To do it: sizegate claim redrive {} --apply\n",
            args.topic
        ));
    }
    let records = fates.iter().map(|(fallen, fate)| {
        let mut record = shown(fallen);
        if let Value::Object(fields) = &mut record {
            fields.insert("fate".to_owned(), json!(fate.label()));
            if let Fate::Not(why) = fate {
                fields.insert("why".to_owned(), json!(why));
            }
        }
        record
    });
    Outcome {
        text,
        json: json!({
            "topic": args.topic,
            "applied": args.apply,
            "back_before": before,
            "ready": ready,
            "back": back,
            "not": not,
            "records": records.collect::<Vec<Value>>(),
        }),
        exit: worst(not > 0 || ready > 0, false),
    }
}
