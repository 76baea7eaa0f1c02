//! What was found, for people.

use std::fmt::Write;

use super::tally::{Example, Finding, Found, Tally, What};
use crate::policy::Size;
use crate::text::{counted, grouped, row, table};
use crate::vocabulary::Source;

/// One topic.
pub(super) fn text(topic: &str, tally: &Tally) -> String {
    let mut out = String::new();
    line(
        &mut out,
        format_args!(
            "{topic}: {}, {}, {}",
            counted(tally.batches, "batch"),
            counted(tally.records, "record"),
            counted(tally.bytes, "byte")
        ),
    );
    if tally.sample > 1 {
        line(
            &mut out,
            format_args!(
                "  sizes inside are those of one batch in {}; all were judged",
                grouped(tally.sample)
            ),
        );
    }
    out.push_str(&sizes(tally));
    for (what, title) in [
        (What::Refused, "would be refused"),
        (What::Observed, "over a limit, observed only"),
        (What::Offloaded, "values would go to the object store"),
        (What::Near, "near a limit"),
    ] {
        for (finding, found) in tally
            .found
            .iter()
            .filter(|(finding, _)| finding.what == what)
        {
            line(
                &mut out,
                format_args!("  {title}: {}", told(finding, found)),
            );
        }
    }
    if tally.offloaded_records > 0 {
        let values = counted(tally.offloaded_records, "value");
        let bytes = counted(tally.offloaded_bytes, "byte");
        line(&mut out, format_args!("    {values}, {bytes}"));
    }
    if !tally.refuses() && tally.batches > 0 {
        line(&mut out, format_args!("  nothing would be refused"));
    }
    for (count, what, left) in [
        (
            tally.left_batches,
            "batch",
            "not judged by size: an old format, damaged, or the broker's to judge",
        ),
        (
            tally.unread_batches,
            "batch",
            "with records that could not be measured to the end",
        ),
        (
            tally.control_batches,
            "transaction marker",
            "left out: the broker's own",
        ),
        (
            tally.deleted_offsets,
            "offset",
            "deleted before they could be read",
        ),
    ] {
        if count > 0 {
            line(&mut out, format_args!("  {} {left}", counted(count, what)));
        }
    }
    out.push('\n');
    out
}

fn sizes(tally: &Tally) -> String {
    let mut rows = vec![row(["  bytes", "p50", "p90", "p99", "p99.9", "max"])];
    for (gate, sketch) in tally.sizes() {
        let of = |per_mille| grouped(sketch.per_mille(per_mille));
        rows.push(row([
            &format!("  {gate}"),
            &of(500),
            &of(900),
            &of(990),
            &of(999),
            &grouped(sketch.largest()),
        ]));
    }
    table(&rows)
}

fn told(finding: &Finding, found: &Found) -> String {
    let batches = counted(found.batches, "batch");
    let mut told = format!("{batches} at gate {}", finding.gate);
    if let Some(limit) = found.limit_bytes {
        let _ = write!(told, ", limit {}", grouped(limit));
    }
    match &finding.source {
        Some((Source::Rule, Some(rule))) => {
            let _ = write!(told, " (rule \"{rule}\")");
        }
        Some((Source::Family, Some(member))) => {
            let _ = write!(told, " (family member {member})");
        }
        Some((source, _)) => {
            let _ = write!(told, " ({source})");
        }
        None => {}
    }
    if let Some(size) = found.largest {
        let _ = write!(told, ", the largest {}", size_text(size));
    }
    let places: Vec<String> = found.examples.iter().map(place).collect();
    if !places.is_empty() {
        let _ = write!(told, "; at {}", places.join(", "));
    }
    told
}

/// `PARTITION@OFFSET`, and the record's place in its batch.
fn place(example: &Example) -> String {
    let mut place = format!("{}@{}", example.partition, example.offset);
    if let Some(record) = example.record {
        let _ = write!(place, " (record {record})");
    }
    place
}

fn size_text(size: Size) -> String {
    match size {
        Size::Exact(bytes) => grouped(bytes),
        Size::AtLeast(bytes) => format!("at least {}", grouped(bytes)),
    }
}

fn line(out: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = writeln!(out, "{what}");
}
