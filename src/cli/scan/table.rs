//! What was found, for people.

use std::fmt::Write;

use super::tally::{Example, Finding, Found, MEASURED, Tally, What};
use crate::policy::Size;
use crate::text::{grouped, row, table};
use crate::vocabulary::Source;

/// One topic.
pub(super) fn text(topic: &str, tally: &Tally) -> String {
    let mut out = String::new();
    let bytes = grouped(tally.bytes);
    let (batches, records) = (grouped(tally.batches), grouped(tally.records));
    line(
        &mut out,
        format_args!("{topic}: {batches} batches, {records} records, {bytes} bytes"),
    );
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
        let (records, bytes) = (
            grouped(tally.offloaded_records),
            grouped(tally.offloaded_bytes),
        );
        line(
            &mut out,
            format_args!("    {records} values, {bytes} bytes"),
        );
    }
    if !tally.refuses() && tally.batches > 0 {
        line(&mut out, format_args!("  nothing would be refused"));
    }
    for (count, what) in [
        (
            tally.left_batches,
            "batches are not judged by size: an old format, damaged, or the broker's to judge",
        ),
        (
            tally.unread_batches,
            "batches whose records could not be measured to their end",
        ),
        (tally.control_batches, "markers of transactions, left out"),
        (
            tally.deleted_offsets,
            "offsets were deleted before they were read",
        ),
    ] {
        if count > 0 {
            line(&mut out, format_args!("  {}: {what}", grouped(count)));
        }
    }
    out.push('\n');
    out
}

fn sizes(tally: &Tally) -> String {
    let mut rows = vec![row(["  bytes", "p50", "p90", "p99", "p99.9", "max"])];
    for gate in MEASURED {
        let Some(sketch) = tally.sizes.get(&gate) else {
            continue;
        };
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
    let mut told = format!(
        "{} batches at gate {}",
        grouped(found.batches),
        finding.gate
    );
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
