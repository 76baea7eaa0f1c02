//! `sizegate claim orphans`: objects that no ticket names.
//!
//! Tickets are read first, objects listed after them, and what is younger than the grace period when it began is left
//! out: an object that was there then had its ticket appended, if it ever was, before the tickets were read.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Args;
use serde_json::{Value, json};

use super::progress::Progress;
use super::references::{Names, References};
use super::tickets::worst;
use super::{Common, Desk, Outcome, with_desk};
use crate::claim::{Listed, Namespace};
use crate::text::{counted, grouped, rfc3339, row, table};

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
topics, and those named by --also. Objects younger than claim_check.grace are left out, and so is what
lies in the trash. `claim gc` is rid of them.

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

pub(super) fn run(args: &OrphansArgs) -> ExitCode {
    with_desk(&args.common, async |desk, cluster, commands| {
        let began = SystemTime::now();
        let mut progress = Progress::new();
        let asked = (&*args.topics, &*args.also);
        let read = References::read(asked, desk, cluster, commands, &mut progress).await?;
        let known = read.known.iter().map(|topic| &**topic);
        let asked = args.topics.iter().map(String::as_str);
        let mut counted = Counted {
            desk,
            names: Names::new(&read.namespace, known.chain(asked)),
            read: &read,
            began,
            of: BTreeMap::new(),
            progress: &mut progress,
        };
        let count = |object| counted.count(&object);
        read.list(&args.topics, desk, count).await?;
        let of = counted.of;
        drop(progress);
        Ok(outcome(&of, &read))
    })
}

struct Counted<'a> {
    desk: &'a Desk<'a>,
    names: Names,
    read: &'a References,
    began: SystemTime,
    of: BTreeMap<String, OfTopic>,
    progress: &'a mut Progress,
}

impl Counted<'_> {
    fn count(&mut self, object: &Listed) {
        let own = self.read.namespace.own_key(&object.key);
        if Namespace::is_trial(&object.key) || own.is_some_and(|own| own.is_trash) {
            return;
        }
        let topic = self.names.of(&object.key);
        let age = self
            .began
            .duration_since(object.written)
            .unwrap_or_default();
        let of = self.of.entry(topic).or_default();
        of.objects = of.objects.saturating_add(1);
        if self.read.tickets.name(&object.key) {
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
            .say(|| format!("{}: {}", object.key, counted(objects, "object")));
    }
}

fn outcome(of: &BTreeMap<String, OfTopic>, read: &References) -> Outcome {
    let unreadable = read.tickets.unreadable_batches;
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
    let read: Vec<&str> = read.topics.iter().map(String::as_str).collect();
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
            "\n{} could not be read: objects named there may be counted as orphans.\n",
            counted(unreadable, "batch")
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
