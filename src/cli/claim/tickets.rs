//! `sizegate claim inspect` and `sizegate claim redeem`: one record by topic, partition and offset.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use clap::Args;
use serde_json::{Value, json};

use super::super::{FAILED, FINDINGS, FINE};
use super::{Common, Desk, Outcome, read_error, with_desk};
use crate::batch::{Headers, RecordParts};
use crate::claim::{
    Class, Listed, MARK_HEADER, Namespace, OpenBatch, Place, Refuted, Ticket, Unopened, tickets,
};
use crate::cli::check::Output;
use crate::cluster::{At, Cluster};
use crate::codec::Decoders;
use crate::config::time_text;
use crate::findings::Commands;
use crate::text::{grouped, rfc3339, row, table};

/// The most that is decompressed of a batch.
pub(super) const MOST_BATCH_BYTES: u64 = 256 << 20;

/// Which record.
#[derive(Debug, Args)]
pub struct Record {
    /// The topic
    pub topic: String,
    /// The partition
    pub partition: i32,
    /// The record's offset
    pub offset: i64,
}

/// Arguments of `claim inspect`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  sizegate claim inspect scans 0 1234 --config sizegate.yaml

Exit codes: 0 a sound ticket whose object is there, 1 anything else, 2 could not do it,
64 bad config or usage.")]
pub struct InspectArgs {
    /// Which record.
    #[command(flatten)]
    pub record: Record,
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
}

/// Arguments of `claim redeem`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate claim redeem scans 0 1234 --config sizegate.yaml > scan.tiff
  sizegate claim redeem scans 0 1234 --out scan.tiff --config sizegate.yaml

A record that is no ticket gives its own value. The value is checked against the ticket's size and
checksum before its first byte is written.

Exit codes: 0 written, 1 there is no such value (its object is gone, or not what the ticket says),
2 could not do it, 64 bad config or usage.")]
pub struct RedeemArgs {
    /// Which record.
    #[command(flatten)]
    pub record: Record,
    /// Where to write the value, instead of to standard output
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: crate::cli::ConfigArgs,
}

/// A record that was found.
struct Found {
    batch: OpenBatch,
    parts: RecordParts,
    /// `None`: it does not bear the mark.
    ticket: Option<Result<(Ticket, Place), Refuted>>,
}

pub(super) fn inspect(args: &InspectArgs) -> ExitCode {
    with_desk(&args.common, async |desk, cluster, commands| {
        let found = find(&args.record, desk, cluster, commands).await?;
        let object = match &found.ticket {
            Some(Ok((_, place))) => Some(
                desk.store
                    .look(place)
                    .await
                    .map_err(|failure| format!("the store: {failure}"))?,
            ),
            _ => None,
        };
        Ok(inspected(&args.record, desk, &found, object))
    })
}

pub(super) fn redeem(args: &RedeemArgs) -> ExitCode {
    let common = Common {
        config: args.config.clone(),
        output: Output::Table,
    };
    with_desk(&common, async |desk, cluster, commands| {
        let found = find(&args.record, desk, cluster, commands).await?;
        let nothing = |why: String| Outcome {
            text: String::new(),
            json: json!({"error": why}),
            exit: {
                eprintln!("sizegate: {why}");
                FINDINGS
            },
        };
        let value = match &found.ticket {
            None => match found.parts.value.clone() {
                Some(range) => found.batch.records().slice(range),
                None => return Ok(nothing("the record's value is null".to_owned())),
            },
            Some(Err(why)) => {
                return Ok(nothing(format!(
                    "the record bears the mark of a ticket and is none of ours: {why}"
                )));
            }
            Some(Ok((ticket, place))) => match desk.store.value(ticket, place).await {
                Ok(value) => value,
                Err(failure) if matches!(failure.class, Class::Missing | Class::Corrupt) => {
                    return Ok(nothing(format!("{}: {failure}", ticket.uri)));
                }
                Err(failure) => return Err(format!("the store: {failure}")),
            },
        };
        write(args.out.as_deref(), &value)?;
        Ok(Outcome {
            text: String::new(),
            json: Value::Null,
            exit: FINE,
        })
    })
}

/// All of it, or an error.
fn write(out: Option<&Path>, value: &Bytes) -> Result<(), String> {
    let Some(path) = out else {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(value).and_then(|()| out.flush());
        return match written {
            // Whoever read it has enough.
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                Err(format!("cannot write to standard output: {error}"))
            }
            _ => Ok(()),
        };
    };
    std::fs::write(path, value).map_err(|error| format!("{}: {error}", path.display()))
}

async fn find(
    wanted: &Record,
    desk: &Desk<'_>,
    cluster: &Cluster,
    commands: &Commands,
) -> Result<Found, String> {
    let told = |error| read_error(&error, commands);
    let Record {
        topic,
        partition,
        offset,
    } = wanted;
    let mut reader = cluster.reader(topic).await.map_err(told)?;
    let start = reader.offset(*partition, At::Start).await.map_err(told)?;
    let end = reader.offset(*partition, At::End).await.map_err(told)?;
    if !(start..end).contains(offset) {
        return Err(format!(
            "{topic}-{partition} holds offsets from {start} up to, not including, {end}"
        ));
    }
    let mut batches = reader.batches(*partition, *offset, offset.saturating_add(1));
    let batch = batches.next().await.map_err(told)?;
    let gone = || {
        format!(
            "{topic}-{partition} has no record at offset {offset}: it was compacted away, or is a gap"
        )
    };
    let batch = batch.ok_or_else(gone)?;
    let open = OpenBatch::open(&batch.bytes, MOST_BATCH_BYTES, &mut Decoders::new());
    let batch = open.map_err(|why| match why {
        Unopened::Control => format!("offset {offset} is the mark of a transaction's end"),
        why => format!("the batch at offset {offset} cannot be read: {why}"),
    })?;
    let found = batch
        .parts()
        .find(|(_, parts)| batch.offset(parts) == Some(*offset));
    let (record, parts) = found.ok_or_else(gone)?;
    let namespace = desk.namespace(&reader)?;
    let ticket = ticket(&batch, record, topic, &namespace, desk);
    Ok(Found {
        ticket,
        parts,
        batch,
    })
}

fn ticket(
    batch: &OpenBatch,
    record: u32,
    topic: &str,
    namespace: &Namespace,
    desk: &Desk<'_>,
) -> Option<Result<(Ticket, Place), Refuted>> {
    tickets(batch, topic, namespace, &desk.keys)
        .find(|found| found.record == record)
        .map(|found| found.ticket)
}

/// The id of the key that a record's mark names.
fn signed_by(found: &Found) -> Option<String> {
    let headers = Headers::of(&found.parts, found.batch.records());
    let bytes = headers.clone();
    let mut marks = headers.filter(|header| bytes.bytes(&header.name) == MARK_HEADER.as_bytes());
    let mark = std::str::from_utf8(bytes.bytes(&marks.next()?.value?)).ok()?;
    mark.split(';').nth(1).map(str::to_owned)
}

fn inspected(
    wanted: &Record,
    desk: &Desk<'_>,
    found: &Found,
    object: Option<Option<Listed>>,
) -> Outcome {
    let length =
        |range: &Option<std::ops::Range<usize>>| range.as_ref().map(ExactSizeIterator::len);
    let bytes =
        |length: Option<usize>| length.map_or_else(|| "null".to_owned(), |n| grouped(n as u64));
    let (key, value) = (length(&found.parts.key), length(&found.parts.value));
    let key_id = signed_by(found);
    let codec = found.batch.header().codec();
    let codec = codec.map_or_else(|| "unknown".to_owned(), |codec| codec.to_string());
    let mut rows = vec![
        row([
            "record",
            &format!(
                "{}-{} at offset {}",
                wanted.topic, wanted.partition, wanted.offset
            ),
        ]),
        row(["key", &bytes(key)]),
        row(["value", &bytes(value)]),
        row(["headers", &found.parts.headers_count.to_string()]),
        row(["batch codec", &codec]),
    ];
    let mut json = json!({
        "topic": wanted.topic,
        "partition": wanted.partition,
        "offset": wanted.offset,
        "key_bytes": key,
        "value_bytes": value,
        "headers": found.parts.headers_count,
        "codec": codec,
        "signed_by": key_id,
        "ticket": Value::Null,
        "refuted": Value::Null,
        "object": Value::Null,
    });
    let mut put = |name: &str, value: Value| {
        if let Value::Object(fields) = &mut json {
            fields.insert(name.to_owned(), value);
        }
    };
    let exit = match (&found.ticket, object) {
        (None, _) => {
            rows.push(row(["ticket", "none: the value is the record's own"]));
            FINDINGS
        }
        (Some(Err(why)), _) => {
            rows.push(row(["ticket", &format!("refuted: {why}")]));
            put("refuted", json!(why.label()));
            FINDINGS
        }
        (Some(Ok((ticket, _))), object) => {
            rows.extend(ticket_rows(ticket, key_id.as_deref()));
            put(
                "ticket",
                serde_json::from_slice(&ticket.to_json()).unwrap_or_default(),
            );
            let (verdict, about, exit) = of_object(ticket, object.flatten(), desk);
            rows.push(row(["object", &verdict]));
            put("object", about);
            exit
        }
    };
    Outcome {
        text: table(&rows),
        json,
        exit,
    }
}

fn ticket_rows(ticket: &Ticket, key_id: Option<&str>) -> Vec<Vec<String>> {
    let at = ticket.at_ms.map(Duration::from_millis);
    let at = at.and_then(|at| SystemTime::UNIX_EPOCH.checked_add(at));
    vec![
        row(["ticket", &ticket.uri]),
        row(["signed by", key_id.unwrap_or("unknown")]),
        row([
            "original",
            &format!("{} bytes, {}", grouped(ticket.size), ticket.content_type),
        ]),
        row(["sha256", &ticket.sha256.hex()]),
        row([
            "offloaded at",
            &at.map_or_else(|| "unknown".to_owned(), rfc3339),
        ]),
    ]
}

fn of_object(ticket: &Ticket, object: Option<Listed>, desk: &Desk<'_>) -> (String, Value, u8) {
    let Some(object) = object else {
        return ("missing".to_owned(), json!({"there": false}), FINDINGS);
    };
    let expected = ticket.object_bytes.unwrap_or(ticket.size);
    let left = (object.written.checked_add(desk.claim.retention))
        .and_then(|until| until.duration_since(SystemTime::now()).ok());
    let about = json!({
        "there": true,
        "bytes": object.bytes,
        "written": rfc3339(object.written),
        "kept_for_seconds": left.map(|left| left.as_secs()),
    });
    if object.bytes != expected {
        let text = format!(
            "has {} bytes, not {}",
            grouped(object.bytes),
            grouped(expected)
        );
        return (text, about, FINDINGS);
    }
    let left = left.map_or_else(
        || "claim_check.retention is over".to_owned(),
        |left| {
            format!(
                "kept for {} more at least",
                time_text(Duration::from_secs(
                    (left.as_secs() / 3_600).saturating_mul(3_600)
                ))
            )
        },
    );
    let text = format!(
        "there, {} bytes, written {}, {left}",
        grouped(object.bytes),
        rfc3339(object.written)
    );
    (text, about, FINE)
}

/// For callers that only want to know that nothing failed.
pub(super) const fn worst(found: bool, unknown: bool) -> u8 {
    match (found, unknown) {
        (_, true) => FAILED,
        (true, false) => FINDINGS,
        (false, false) => FINE,
    }
}
