//! What lies in a fallback topic: records whose tickets could not be redeemed, and `sizegate claim fallback`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bytes::Bytes;
use clap::Args;
use serde_json::{Value, json};

use super::progress::Progress;
use super::tickets::{MOST_BATCH_BYTES, worst};
use super::{Common, Desk, Outcome, read_error, with_desk};
use crate::batch::{Headers, RecordParts};
use crate::claim::fallen::{
    ERROR, ERROR_MESSAGE, FALLEN_HEADERS, ORIGINAL_OFFSET, ORIGINAL_PARTITION, ORIGINAL_TOPIC,
};
use crate::claim::{Namespace, OpenBatch, Place, Ticket, Unopened, offset_delta, tickets_from};
use crate::cluster::{At, Cluster, ReadError};
use crate::codec::Decoders;
use crate::findings::Commands;
use crate::text::{grouped, row, table};

/// Records that are shown one by one.
const SHOWN: usize = 20;

/// Arguments of `claim fallback`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate claim fallback scans --config sizegate.yaml
  sizegate claim fallback scans invoices --output json --config sizegate.yaml

Exit codes: 0 nothing lies there, 1 something does, 2 could not do it, 64 bad config or usage.")]
pub struct FallbackArgs {
    /// Topics whose fallback topics are looked at
    #[arg(value_name = "TOPIC", required = true)]
    pub topics: Vec<String>,
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
}

/// A record in a fallback topic.
pub(super) struct Fallen {
    /// Where it lies.
    pub at: (i32, i64),
    /// Where it was: topic, partition, offset.
    pub original: (String, i32, i64),
    /// `missing` or `corrupt`.
    pub class: String,
    pub message: String,
    pub key: Option<Bytes>,
    /// The ticket, as it travels.
    pub value: Bytes,
    /// The record's own, the ticket's mark included.
    pub headers: Vec<(String, Option<Bytes>)>,
    /// The ticket and its place; `None`: none of ours.
    pub ticket: Option<(Ticket, Place)>,
}

/// What lies in the fallback topic of `topic`; other topics' records are left out.
pub(super) async fn read(
    topic: &str,
    desk: &Desk<'_>,
    cluster: &Cluster,
    commands: &Commands,
    progress: &mut Progress,
) -> Result<(Vec<Fallen>, Namespace), String> {
    let told = |error: ReadError| read_error(&error, commands);
    let name = desk.claim.fallback_of(topic);
    let mut reader = cluster.reader(&name).await.map_err(told)?;
    let namespace = desk.namespace(&reader)?;
    let mut decoders = Decoders::new();
    let mut all = Vec::new();
    for partition in reader.partitions() {
        let from = reader.offset(partition, At::Start).await.map_err(told)?;
        let end = reader.offset(partition, At::End).await.map_err(told)?;
        let mut batches = reader.batches(partition, from, end);
        while let Some(stored) = batches.next().await.map_err(told)? {
            let batch = match OpenBatch::open(&stored.bytes, MOST_BATCH_BYTES, &mut decoders) {
                Ok(batch) => batch,
                Err(Unopened::Control | Unopened::NoRecords) => continue,
                Err(why) => {
                    return Err(format!(
                        "{name}-{partition}: the batch at offset {} cannot be read: {why}",
                        stored.base_offset
                    ));
                }
            };
            let found = batch.parts().filter_map(|(record, parts)| {
                let delta = offset_delta(batch.records(), &parts)?;
                let offset = stored.base_offset.saturating_add(i64::from(delta));
                fallen(
                    &batch,
                    (record, &parts),
                    (partition, offset),
                    topic,
                    &namespace,
                    desk,
                )
            });
            all.extend(found);
            progress.say(|| format!("{name}-{partition}: offset {}", stored.last_offset));
        }
    }
    Ok((all, namespace))
}

fn fallen(
    batch: &OpenBatch,
    (record, parts): (u32, &RecordParts),
    at: (i32, i64),
    topic: &str,
    namespace: &Namespace,
    desk: &Desk<'_>,
) -> Option<Fallen> {
    let records = batch.records();
    let copied = |range: std::ops::Range<usize>| records.get(range).map(Bytes::copy_from_slice);
    let headers = Headers::of(parts, records);
    let names = headers.clone();
    let mut ours: BTreeMap<String, String> = BTreeMap::new();
    let mut own = Vec::new();
    for header in headers {
        let name = String::from_utf8_lossy(names.bytes(&header.name)).into_owned();
        let value = header.value.and_then(copied);
        if FALLEN_HEADERS.contains(&name.as_str()) {
            let text = String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into_owned();
            ours.insert(name, text);
        } else {
            own.push((name, value));
        }
    }
    let mut take = |name: &str| ours.remove(name).unwrap_or_default();
    let original = (
        take(ORIGINAL_TOPIC),
        take(ORIGINAL_PARTITION).parse().unwrap_or(-1),
        take(ORIGINAL_OFFSET).parse().unwrap_or(-1),
    );
    if original.0 != topic {
        return None;
    }
    let ticket = tickets_from(record, batch, topic, namespace, &desk.keys)
        .take(1)
        .find(|found| found.record == record)
        .and_then(|found| found.ticket.ok());
    Some(Fallen {
        at,
        original,
        class: take(ERROR),
        message: take(ERROR_MESSAGE),
        key: parts.key.clone().and_then(copied),
        value: parts.value.clone().and_then(copied).unwrap_or_default(),
        headers: own,
        ticket,
    })
}

pub(super) fn run(args: &FallbackArgs) -> ExitCode {
    with_desk(&args.common, async |desk, cluster, commands| {
        let mut progress = Progress::new();
        let mut of_topics = Vec::new();
        for topic in &args.topics {
            let (all, _) = read(topic, desk, cluster, commands, &mut progress).await?;
            of_topics.push((topic.clone(), all));
        }
        drop(progress);
        Ok(outcome(desk, &of_topics))
    })
}

fn outcome(desk: &Desk<'_>, of_topics: &[(String, Vec<Fallen>)]) -> Outcome {
    let mut rows = vec![row([
        "TOPIC",
        "FALLBACK TOPIC",
        "CLASS",
        "RECORDS",
        "BYTES",
    ])];
    let mut examples = String::new();
    let mut topics = Vec::new();
    for (topic, all) in of_topics {
        let mut by_class: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for fallen in all {
            let bytes = fallen.ticket.as_ref().map_or(0, |(ticket, _)| ticket.size);
            let (records, total) = by_class.entry(&fallen.class).or_default();
            *records = records.saturating_add(1);
            *total = total.saturating_add(bytes);
        }
        let name = desk.claim.fallback_of(topic);
        for (class, (records, bytes)) in &by_class {
            rows.push(row([
                topic,
                &name,
                class,
                &grouped(*records),
                &grouped(*bytes),
            ]));
        }
        if by_class.is_empty() {
            rows.push(row([topic, &name, "-", "0", "0"]));
        }
        for fallen in all.iter().take(SHOWN) {
            examples.push_str(&format!("{}\n", said(fallen)));
        }
        if let Some(more @ 1..) = all.len().checked_sub(SHOWN) {
            examples.push_str(&format!("and {} more of {topic}\n", grouped(more as u64)));
        }
        let records: Vec<Value> = all.iter().map(shown).collect();
        topics.push(json!({"topic": topic, "fallback_topic": name, "records": records}));
    }
    let mut text = table(&rows);
    if !examples.is_empty() {
        text.push_str(&format!(
            "\n{examples}\nPut the objects back, then: sizegate claim redrive TOPIC --apply\n"
        ));
    }
    let is_any = of_topics.iter().any(|(_, all)| !all.is_empty());
    Outcome {
        text,
        json: json!({"topics": topics}),
        exit: worst(is_any, false),
    }
}

/// One line for people.
pub(super) fn said(fallen: &Fallen) -> String {
    let (topic, partition, offset) = &fallen.original;
    format!(
        "{topic}-{partition} at offset {offset}, {}: {}",
        fallen.class, fallen.message
    )
}

/// For programs; never a key or a value.
pub(super) fn shown(fallen: &Fallen) -> Value {
    let (topic, partition, offset) = &fallen.original;
    let ticket = fallen.ticket.as_ref().map(|(ticket, _)| ticket);
    json!({
        "partition": fallen.at.0,
        "offset": fallen.at.1,
        "original_topic": topic,
        "original_partition": partition,
        "original_offset": offset,
        "class": fallen.class,
        "message": fallen.message,
        "uri": ticket.map(|ticket| &ticket.uri),
        "sha256": ticket.map(|ticket| ticket.sha256.hex()),
        "size": ticket.map(|ticket| ticket.size),
    })
}
