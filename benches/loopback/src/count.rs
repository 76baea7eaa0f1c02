//! Instructions that sizegate executes per request, counted by callgrind: parse, verdict, forward, answer, with
//! everything the process does for them outside the kernel.
//!
//! Measuring that depends on the clock is off (`inspection.decode: never`). Two runs that differ only in their number of requests are subtracted, so start and end cancel out. A request that
//! comes in one read repeats within a per cent; a larger one comes in as many reads as the kernel likes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::frames::{Content, Ring, Version};
use crate::load::Clients;
use crate::peers::{More, Peer, Programs};
use crate::sink::Sink;

/// Requests of the shorter run, for batches up to 64 KiB.
const FEW: u64 = 200;

/// How many more the longer run has.
const MORE: u64 = 2000;

/// Above, a tenth: copying under valgrind is slow.
const LARGE_BYTES: usize = 512 << 10;

/// A request under valgrind takes some 100 µs more.
const TIME: Duration = Duration::from_secs(120);

/// So much above its figure a count may be.
const MOST_ABOVE_PERCENT: u64 = 3;

/// One count.
#[derive(Debug, Serialize)]
pub struct Count {
    pub batch: &'static str,
    pub request: String,
    pub instructions_per_request: Vec<u64>,
}

/// Instructions per request, by size and version.
pub type Figures = BTreeMap<String, u64>;

/// What the rule of the topic says beside its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Nothing.
    Plain,
    /// What requests may set its topics' configs to: a Produce must not pay for it.
    Governed,
    /// Nothing; and what is compressed is decoded when it is needed, as offloading wants it.
    Decoding,
    /// The same, and values of another topic are offloaded and redeemed.
    ClaimsElsewhere,
}

impl Rule {
    /// More of its topic's rule, and other rules.
    const fn rules(self) -> (&'static str, &'static str) {
        match self {
            Self::Plain | Self::Decoding => ("", ""),
            Self::Governed => (
                "topic_config: {max_message_bytes: {min: 64KiB, max: 10MiB}, segment_bytes: {min: 16MiB}}",
                "",
            ),
            Self::ClaimsElsewhere => (
                "",
                "  - {name: large, topics: [large], limits: {record_bytes: 64KiB}, action: offload}\n",
            ),
        }
    }

    /// Sections of the configuration; objects would go into this folder.
    fn sections(self, folder: &Path) -> String {
        match self {
            Self::Plain | Self::Governed => "inspection: {decode: never}".to_owned(),
            Self::Decoding => "inspection: {decode: when_needed}".to_owned(),
            Self::ClaimsElsewhere => format!(
                "inspection: {{decode: when_needed}}\nclaim_check: {{store: 'file://{}', keys: [{{id: k1, secret: 'a secret of thirty-two bytes, yes'}}]}}",
                folder.display()
            ),
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Governed => ", governed rule",
            Self::Decoding => ", decoding when needed",
            Self::ClaimsElsewhere => ", decoding when needed, claim check elsewhere",
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    Produce(Version),
    /// One batch of the size.
    Fetch,
}

impl Request {
    fn label(self) -> String {
        match self {
            Self::Produce(version) => format!("{version:?}"),
            Self::Fetch => "Fetch".to_owned(),
        }
    }

    fn ring(self, batch_bytes: usize) -> Ring {
        match self {
            Self::Produce(version) => Ring::produce(8, batch_bytes, version, Content::Json),
            Self::Fetch => Ring::fetch(8, 1, batch_bytes, batch_bytes),
        }
    }
}

/// What a figure is called.
pub fn name(batch: &str, (request, rule): (Request, Rule)) -> String {
    format!("{batch} {}", request.label() + rule.label())
}

/// The figures of an earlier count.
pub fn read_figures(file: &Path) -> io::Result<Figures> {
    Ok(serde_json::from_slice(&fs::read(file)?)?)
}

/// Keeps figures for a later count.
pub fn write_figures(file: &Path, figures: &Figures) -> io::Result<()> {
    fs::write(file, serde_json::to_string_pretty(figures)? + "\n")
}

impl Count {
    /// The least of all runs: what disturbs a run only adds.
    pub fn least(&self) -> u64 {
        self.instructions_per_request
            .iter()
            .copied()
            .min()
            .unwrap_or(0)
    }

    /// Says by how much it is above the figure, where that is more than is let pass.
    pub fn above(&self, name: &str, figure: u64) -> Option<String> {
        let least = self.least();
        (least * 100 > figure * (100 + MOST_ABOVE_PERCENT)).then(|| {
            format!("{name}: {least} instructions per request, {figure} before. If it is worth it, record the new figure")
        })
    }
}

/// Counts `runs` times for one size and request.
pub fn count(
    programs: &Programs,
    sink: &Sink,
    (batch, batch_bytes): (&'static str, usize),
    (request, rule): (Request, Rule),
    runs: usize,
) -> io::Result<Count> {
    let ring = Arc::new(request.ring(batch_bytes));
    let share = if batch_bytes > LARGE_BYTES { 10 } else { 1 };
    let (few, more) = (FEW / share, MORE / share);
    let mut instructions_per_request = Vec::new();
    for _ in 0..runs {
        let shorter = instructions(programs, sink, (&ring, rule), few)?;
        let longer = instructions(programs, sink, (&ring, rule), few + more)?;
        instructions_per_request.push(longer.saturating_sub(shorter) / more);
    }
    Ok(Count {
        batch,
        request: request.label() + rule.label(),
        instructions_per_request,
    })
}

/// All instructions of a process that serves this many requests, one at a time.
fn instructions(
    programs: &Programs,
    sink: &Sink,
    (ring, rule): (&Arc<Ring>, Rule),
    requests: u64,
) -> io::Result<u64> {
    let profile = programs.directory.join("callgrind.out");
    let (more_of_rule, rules) = rule.rules();
    let sections = rule.sections(&fs::canonicalize(&programs.directory)?.join("count-objects"));
    let more = More {
        rule: more_of_rule,
        rules,
        sections: &sections,
        ..More::default()
    };
    let peer = Peer::start_counted(programs, sink.address(), &profile, more)?;
    let mut clients = Clients::connect(peer.address, 1)?;
    let outcome = clients.run(ring, 1, TIME, requests)?;
    if outcome.requests != requests {
        return Err(io::Error::other("too slow under valgrind"));
    }
    drop(clients);
    peer.end()?;
    total(&profile)
}

/// The `summary:` or `totals:` line of a callgrind profile.
fn total(profile: &Path) -> io::Result<u64> {
    let text = fs::read_to_string(profile)?;
    text.lines()
        .find_map(|line| {
            line.strip_prefix("totals: ")
                .or_else(|| line.strip_prefix("summary: "))
        })
        .and_then(|count| count.split_whitespace().next())
        .and_then(|count| count.parse().ok())
        .ok_or_else(|| io::Error::other("no totals in callgrind's profile"))
}

/// Whether valgrind is there.
pub fn is_possible() -> bool {
    Command::new("valgrind")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
}
