//! `sizegate claim gc`: objects that no ticket names go into the trash, and leave it a while later.
//!
//! Invariants, beside producers that go on meanwhile. What goes was older, when this began, than an object to which a new
//! ticket is given unless it is written again (`renew_after`), and `grace` more: whoever found it young enough had their
//! ticket appended before the topics were read to their ends; whoever finds it now writes it again, and what was written
//! again stays. Between the last look and the move lie moments: what is named after all is read from the trash, and comes
//! back by the next run, which removes nothing from the trash that a ticket names. Where a batch cannot be read, or a
//! topic was not, nothing goes.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use clap::Args;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Serialize;
use serde_json::{Value, json};

use super::progress::Progress;
use super::references::{Names, References};
use super::tickets::worst;
use super::{Common, Desk, Outcome, with_desk};
use crate::claim::{Failure, Listed, Moved, Namespace, Place};
use crate::config::duration;
use crate::text::{counted, grouped, row, table};

/// Objects that one run moves; the next goes on.
const MOST_STEPS: usize = 100_000;
/// What is younger is never moved: stores tell the time to the second.
const YOUNGEST: Duration = Duration::from_secs(2);
/// Objects that are moved at once.
const AT_ONCE: usize = 16;
/// A store that fails so often is not asked any more.
const MOST_FAILURES: u64 = 20;

/// Arguments of `claim gc`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate claim gc --config sizegate.yaml
  sizegate claim gc --apply --config sizegate.yaml
  sizegate claim gc scans --restore --apply --config sizegate.yaml

Without --apply it only says what it would do. An object goes into the trash (below trash/ under its
topic's prefix) if no ticket names it and it is older than a day (half of claim_check.retention, if
that is less) and claim_check.grace. It is removed from the trash when it has lain there for
--trash-for. Until then it is still found by whoever has a ticket for it, and what a ticket names is
put back by the next run. Producers and consumers may go on meanwhile.

Tickets are looked for in every topic that is offloaded, its fallback topic, its retry and dead-letter
topics, and those named by --also. Objects of topics that were not read are left alone.

Exit codes: 0 nothing is left to do, 1 something would be done (without --apply), 2 could not do it
(or not for all), 64 bad config or usage.")]
pub struct GcArgs {
    /// Topics whose objects are looked at; all that have objects, without any
    #[arg(value_name = "TOPIC")]
    pub topics: Vec<String>,
    /// A further topic that holds tickets: a mirror, a copy
    #[arg(long, value_name = "TOPIC")]
    pub also: Vec<String>,
    /// Do it
    #[arg(long)]
    pub apply: bool,
    /// How long an object lies in the trash before it is removed; claim_check.grace at least
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "1d")]
    pub trash_for: Duration,
    /// Put everything back that lies in the trash, and do nothing else
    #[arg(long, conflicts_with_all = ["trash_for", "gone_topics"])]
    pub restore: bool,
    /// Also objects of topics that the cluster does not show: make sure that the credentials may see all of them
    #[arg(long)]
    pub gone_topics: bool,
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
}

/// What became, or would become, of one topic's objects.
#[derive(Debug, Default, Serialize)]
struct OfTopic {
    objects: u64,
    with_ticket: u64,
    young: u64,
    /// Its tickets were not read.
    left: u64,
    into_trash: u64,
    into_trash_bytes: u64,
    /// Somebody wrote it meanwhile, so that it stays.
    written_again: u64,
    /// What lay there before.
    in_trash: u64,
    restored: u64,
    removed: u64,
    removed_bytes: u64,
}

/// What is done with one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    IntoTrash,
    Restore,
    Remove,
}

struct Planned {
    step: Step,
    topic: String,
    place: Place,
    listed: Listed,
}

pub(super) fn run(args: &GcArgs) -> ExitCode {
    with_desk(&args.common, async |desk, cluster, commands| {
        let began = SystemTime::now();
        let mut progress = Progress::new();
        let asked = (&*args.topics, &*args.also);
        let read = References::read(asked, desk, cluster, commands, &mut progress).await?;
        let known = read.known.iter().map(|topic| &**topic);
        let mut plan = Plan {
            args,
            desk,
            began,
            names: Names::new(&read.namespace, known),
            read: &read,
            of: BTreeMap::new(),
            steps: Vec::new(),
            foreign: 0,
            is_full: false,
        };
        let note = |object: Listed| {
            let key = object.key.clone();
            plan.note(object);
            progress.say(|| format!("{key}: {} to be moved", grouped(plan.steps.len() as u64)));
        };
        read.list(&args.topics, desk, note).await?;
        let Plan {
            mut of,
            steps,
            foreign,
            is_full,
            ..
        } = plan;
        let failures = match args.apply {
            true => apply(desk, steps, &mut of, &mut progress).await,
            false => {
                let planned = steps.iter().map(|planned| (planned, Moved::Moved));
                planned.for_each(|(planned, moved)| count(&mut of, planned, moved));
                Vec::new()
            }
        };
        drop(progress);
        let found = Found {
            of,
            unreadable: read.tickets.unreadable_batches,
            read: read.topics,
            foreign,
            is_full,
            failures,
        };
        Ok(found.outcome(args))
    })
}

struct Plan<'a> {
    args: &'a GcArgs,
    desk: &'a Desk<'a>,
    began: SystemTime,
    names: Names,
    read: &'a References,
    of: BTreeMap<String, OfTopic>,
    steps: Vec<Planned>,
    /// Objects that nobody here wrote.
    foreign: u64,
    is_full: bool,
}

impl Plan<'_> {
    fn note(&mut self, object: Listed) {
        let Some(own) = self.read.namespace.own_key(&object.key) else {
            if !Namespace::is_trial(&object.key) {
                self.foreign = self.foreign.saturating_add(1);
            }
            return;
        };
        let topic = self.names.of(own.place.key());
        let is_read = match self.names.known(own.place.key()) {
            Some(topic) => self.read.topics.contains(topic),
            None => self.args.gone_topics,
        };
        let is_named = self.read.tickets.name(own.place.key());
        let age = self
            .began
            .duration_since(object.written)
            .unwrap_or_default();
        let of = self.of.entry(topic.clone()).or_default();
        let counted = match own.is_trash {
            true => &mut of.in_trash,
            false => &mut of.objects,
        };
        *counted = counted.saturating_add(1);
        let may_go = is_read && self.read.tickets.unreadable_batches == 0 && !self.args.restore;
        let claim = self.desk.claim;
        let step = match own.is_trash {
            true if is_named || self.args.restore => Step::Restore,
            true if may_go && age > self.args.trash_for.max(claim.grace).max(YOUNGEST) => {
                Step::Remove
            }
            true => return,
            false if is_named => {
                of.with_ticket = of.with_ticket.saturating_add(1);
                return;
            }
            false if !may_go => {
                of.left = of.left.saturating_add(1);
                return;
            }
            false
                if age
                    <= claim
                        .renew_after()
                        .saturating_add(claim.grace)
                        .max(YOUNGEST) =>
            {
                of.young = of.young.saturating_add(1);
                return;
            }
            false => Step::IntoTrash,
        };
        if self.steps.len() >= MOST_STEPS {
            self.is_full = true;
            return;
        }
        self.steps.push(Planned {
            step,
            topic,
            place: own.place,
            listed: object,
        });
    }
}

/// Counts what became of one, or what would.
fn count(of: &mut BTreeMap<String, OfTopic>, planned: &Planned, moved: Moved) {
    let of = of.entry(planned.topic.clone()).or_default();
    let (objects, bytes) = match (planned.step, moved) {
        (_, Moved::Gone) | (Step::Remove, Moved::Written) => return,
        (Step::IntoTrash, Moved::Moved) => (&mut of.into_trash, Some(&mut of.into_trash_bytes)),
        (Step::IntoTrash, Moved::Written) => (&mut of.written_again, None),
        // It was in its place again, or is now.
        (Step::Restore, Moved::Moved | Moved::Written) => (&mut of.restored, None),
        (Step::Remove, Moved::Moved) => (&mut of.removed, Some(&mut of.removed_bytes)),
    };
    *objects = objects.saturating_add(1);
    if let Some(bytes) = bytes {
        *bytes = bytes.saturating_add(planned.listed.bytes);
    }
}

/// Does it. Returns what the store could not do, each with its key.
async fn apply(
    desk: &Desk<'_>,
    steps: Vec<Planned>,
    of: &mut BTreeMap<String, OfTopic>,
    progress: &mut Progress,
) -> Vec<(String, Failure)> {
    let all = steps.len() as u64;
    let mut steps = steps.into_iter();
    let mut moving = FuturesUnordered::new();
    let mut failures = Vec::new();
    let mut done = 0u64;
    loop {
        while moving.len() < AT_ONCE && (failures.len() as u64) < MOST_FAILURES {
            let Some(planned) = steps.next() else { break };
            moving.push(async move {
                let moved = one(desk, &planned).await;
                (planned, moved)
            });
        }
        let Some((planned, moved)) = moving.next().await else {
            return failures;
        };
        match moved {
            Ok(moved) => count(of, &planned, moved),
            Err(failure) => failures.push((planned.listed.key, failure)),
        }
        done = done.saturating_add(1);
        progress.say(|| format!("{} of {} moved", grouped(done), counted(all, "object")));
    }
}

async fn one(desk: &Desk<'_>, planned: &Planned) -> Result<Moved, Failure> {
    let Planned { place, listed, .. } = planned;
    match planned.step {
        Step::IntoTrash => desk.store.put_into_trash(place, listed).await,
        Step::Restore => desk.store.restore(place).await,
        Step::Remove => desk.store.remove_from_trash(place, listed).await,
    }
}

struct Found {
    of: BTreeMap<String, OfTopic>,
    read: BTreeSet<String>,
    unreadable: u64,
    foreign: u64,
    is_full: bool,
    failures: Vec<(String, Failure)>,
}

impl Found {
    fn outcome(&self, args: &GcArgs) -> Outcome {
        let of = self.of.values();
        let is_any = of
            .clone()
            .any(|of| of.into_trash > 0 || of.restored > 0 || of.removed > 0);
        let topics = self.of.iter().map(|(topic, of)| {
            let mut of = serde_json::to_value(of).unwrap_or_default();
            if let Value::Object(fields) = &mut of {
                fields.insert("topic".to_owned(), json!(topic));
            }
            of
        });
        let failures = self.failures.iter().map(|(key, failure)| {
            let (class, code, text) = failure.told();
            json!({"key": key, "class": class, "code": code, "text": text})
        });
        let is_left = self.is_full || (is_any && !args.apply);
        Outcome {
            text: self.text(args, is_any),
            json: json!({
                "applied": args.apply,
                "topics": topics.collect::<Vec<Value>>(),
                "tickets_read_from": self.read,
                "unreadable_batches": self.unreadable,
                "foreign_objects": self.foreign,
                "more_is_left": self.is_full,
                "failures": failures.collect::<Vec<Value>>(),
            }),
            exit: worst(is_left, self.unreadable > 0 || !self.failures.is_empty()),
        }
    }

    fn text(&self, args: &GcArgs, is_any: bool) -> String {
        let mut rows = vec![row([
            "OBJECTS OF",
            "OBJECTS",
            "WITH TICKET",
            "YOUNG",
            "LEFT",
            "INTO TRASH",
            "BYTES",
            "IN TRASH",
            "RESTORED",
            "REMOVED",
            "BYTES",
        ])];
        for (topic, of) in &self.of {
            rows.push(row([
                topic,
                &grouped(of.objects),
                &grouped(of.with_ticket),
                &grouped(of.young),
                &grouped(of.left),
                &grouped(of.into_trash),
                &grouped(of.into_trash_bytes),
                &grouped(of.in_trash),
                &grouped(of.restored),
                &grouped(of.removed),
                &grouped(of.removed_bytes),
            ]));
        }
        let read: Vec<&str> = self.read.iter().map(String::as_str).collect();
        let mut text = format!(
            "Tickets were read from: {}.\n\n{}",
            read.join(" "),
            table(&rows)
        );
        let mut say = |line: String| text.push_str(&format!("\n{line}\n"));
        let left: u64 = self
            .of
            .values()
            .map(|of| of.left)
            .fold(0, u64::saturating_add);
        if self.unreadable > 0 {
            say(format!(
                "{} could not be read: what is named there is not known, so nothing goes.",
                counted(self.unreadable, "batch")
            ));
        } else if left > 0 && !args.restore {
            say(format!(
                "{} left alone, because the tickets of their topics were not read: name these topics, or --gone-topics.",
                counted(left, "object")
            ));
        }
        if self.foreign > 0 {
            say(format!(
                "{} left alone, written by no sizegate.",
                counted(self.foreign, "object")
            ));
        }
        for (key, failure) in &self.failures {
            say(format!("{key}: {failure}"));
        }
        if self.is_full {
            say("More is left than one run moves: run it again.".to_owned());
        }
        if is_any && !args.apply {
            say("This is a plan. To do it: the same with --apply".to_owned());
        }
        text
    }
}
