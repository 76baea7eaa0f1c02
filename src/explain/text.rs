//! An explanation for people.

use std::fmt::Write;

use super::checks::{Check, Outcome, Party};
use super::{EstimatedRecord, Explanation, Question};
use crate::text::{counted, grouped, row, table};
use crate::vocabulary::Gate;

/// The response in a sentence or two.
pub(super) fn verdict(question: &Question, record: &EstimatedRecord, checks: &[Check]) -> String {
    let what = if record.records == 1 {
        "the record".to_owned()
    } else {
        format!("the batch of {}", counted(record.records.into(), "record"))
    };
    let mut refusing = checks
        .iter()
        .filter(|check| check.outcome == Outcome::Refuses);
    let Some(first) = refusing.next() else {
        let is_sure = checks
            .iter()
            .all(|check| check.outcome != Outcome::MayRefuse);
        let mut text = if is_sure {
            format!("Nobody refuses it: {what} passes {}.", question.topic)
        } else {
            format!("It may pass {}: {what} is near a limit.", question.topic)
        };
        text.extend(checks.iter().filter_map(|check| aside(check, record)));
        return text;
    };
    let mut text = format!(
        "{} refuses it first: {what} is {} bytes for {}, which allows {} ({}).",
        who(first.by),
        grouped(first.size_bytes),
        first.what,
        first
            .limit_bytes
            .map_or_else(|| "an unknown number".to_owned(), grouped),
        first.source
    );
    if first.by == Party::Client {
        text.push_str(" Nothing reaches sizegate or the broker.");
    }
    if is_of_many(record, first) {
        let _ = write!(
            text,
            " No record is too large ({} bytes each); the batch of {} is: {}.",
            grouped(record.record_bytes),
            grouped(record.records.into()),
            fewer_records(question)
        );
    }
    let later: Vec<String> = refusing
        .map(|check| format!("{} ({})", check.by, check.what))
        .collect();
    if later.is_empty() {
        text.push_str(" Nobody after it would.");
    } else {
        let _ = write!(text, " After it would refuse: {}.", later.join(", "));
    }
    let maybe = checks
        .iter()
        .filter(|check| check.outcome == Outcome::MayRefuse);
    text.extend(maybe.filter_map(|check| aside(check, record)));
    text
}

const fn who(party: Party) -> &'static str {
    match party {
        Party::Client => "The client",
        Party::Sizegate => "sizegate",
        Party::Broker => "The broker",
        Party::Consumer => "A consumer",
    }
}

/// What a comparison says that refuses nothing, or nothing for sure.
fn aside(check: &Check, record: &EstimatedRecord) -> Option<String> {
    Some(match check.outcome {
        Outcome::Observes => format!(
            " sizegate counts it as over the {} limit and lets it pass.",
            check.what
        ),
        Outcome::Offloads => {
            " sizegate puts its value into the object store, and a ticket travels.".to_owned()
        }
        Outcome::MayRefuse => format!(
            " {} may refuse it by {}, {} of {}: {}.",
            who(check.by),
            check.what,
            grouped(check.size_bytes),
            check
                .limit_bytes
                .map_or_else(|| "an unknown number".to_owned(), grouped),
            check.note
        ),
        Outcome::Memory => format!(
            " Consumers need memory for {} bytes at once: {}.",
            grouped(record.uncompressed_bytes.max(record.batch_bytes)),
            check.note
        ),
        Outcome::Unknown => format!(
            " Whether the {} does is not known: {}.",
            check.by, check.what
        ),
        Outcome::Passes | Outcome::Refuses => return None,
    })
}

/// A limit of the whole batch (or request), in which one such record alone would fit.
pub(super) fn is_of_many(record: &EstimatedRecord, check: &Check) -> bool {
    let compares_batch = [
        record.batch_bytes,
        record.uncompressed_bytes,
        record.request_bytes,
    ]
    .contains(&check.size_bytes);
    let around = record.request_bytes.saturating_sub(record.batch_bytes);
    record.records > 1
        && compares_batch
        && check.by != Party::Client
        && check
            .limit_bytes
            .is_some_and(|limit| record.alone_bytes.saturating_add(around) <= limit)
}

/// What mends a batch in which no record is too large.
pub(super) fn fewer_records(question: &Question) -> String {
    let mut words = question.library().fewer_records().to_owned();
    if let Some(first) = words.get_mut(..1) {
        first.make_ascii_lowercase();
    }
    words
}

pub(super) fn whole(explanation: &Explanation) -> String {
    let mut text = String::new();
    let rule = match &explanation.rule {
        Some(rule) => format!("rule \"{rule}\""),
        None => "no rule: limits holds".to_owned(),
    };
    let _ = writeln!(
        text,
        "{}: {rule}, action {}\n",
        explanation.topic, explanation.action
    );
    if !explanation.rules_for_some_clients.is_empty() {
        let rules = explanation.rules_for_some_clients.join("\", \"");
        let _ = writeln!(
            text,
            "Rules for some clients only are left out: \"{rules}\"\n"
        );
    }
    limits(explanation, &mut text);
    if let Some(record) = &explanation.record {
        text.push('\n');
        sizes("A record", record, &mut text);
        if let Some(after) = &explanation.after_offload {
            match explanation.offloaded_records {
                Some(offloaded) if offloaded < after.records => {
                    let what = format!(
                        "{} of {} values travel as tickets, so that the batch fits; the others,",
                        grouped(offloaded.into()),
                        grouped(after.records.into())
                    );
                    sizes(&what, after, &mut text);
                }
                _ => sizes("It travels as a ticket,", after, &mut text),
            }
        }
        text.push('\n');
        checks(explanation, &mut text);
        let _ = writeln!(text, "\n{}", explanation.verdict);
        remedy(explanation, &mut text);
    }
    for unseen in &explanation.unseen {
        let _ = writeln!(text, "\nnot seen: {}", unseen.what);
        if let Some(grant) = &unseen.grant {
            let _ = writeln!(text, "  grant: {grant}");
        }
    }
    text
}

fn limits(explanation: &Explanation, text: &mut String) {
    let mut rows = vec![row(["GATE", "LIMIT", "SOURCE", "CHOSEN FROM"])];
    for limit in &explanation.limits {
        let value = match limit.limit_bytes {
            Some(bytes) => grouped(bytes),
            None if limit.source.is_some() => "none".to_owned(),
            None => "-".to_owned(),
        };
        let source = match limit.gate {
            Gate::Frame => "config".to_owned(),
            _ => limit.source_text(),
        };
        let mut chain = limit
            .chain
            .iter()
            .map(|part| format!("{} = {}, {}", part.what, grouped(part.bytes), part.role));
        let first = chain
            .next()
            .unwrap_or_else(|| "nothing that is known".to_owned());
        rows.push(row([limit.gate.label(), &value, &source, &first]));
        rows.extend(chain.map(|part| row(["", "", "", &part])));
    }
    text.push_str(&table(&rows));
}

fn sizes(what: &str, record: &EstimatedRecord, text: &mut String) {
    let part = |bytes: Option<u64>| bytes.map_or_else(|| "null".to_owned(), grouped);
    let _ = write!(
        text,
        "{what} with value {}, key {}, headers {}: estimate {}, record {} bytes; ",
        part(record.value_bytes),
        part(record.key_bytes),
        grouped(record.headers_bytes),
        grouped(record.estimate_bytes),
        grouped(record.record_bytes)
    );
    let many = if record.records == 1 {
        "its batch".to_owned()
    } else {
        format!("a batch of {}", grouped(record.records.into()))
    };
    let _ = if record.is_compressed {
        writeln!(
            text,
            "{many} {} bytes compressed, {} uncompressed",
            grouped(record.batch_bytes),
            grouped(record.uncompressed_bytes)
        )
    } else {
        writeln!(
            text,
            "{many} {} bytes, not compressed",
            grouped(record.batch_bytes)
        )
    };
}

fn checks(explanation: &Explanation, text: &mut String) {
    let mut rows = vec![row([
        "WHO",
        "COMPARES WITH",
        "SIZE",
        "LIMIT",
        "FROM",
        "OUTCOME",
        "",
    ])];
    rows.extend(explanation.checks.iter().map(|check| {
        row([
            check.by.label(),
            &check.what,
            &grouped(check.size_bytes),
            &check.limit_bytes.map_or_else(|| "-".to_owned(), grouped),
            &check.source,
            check.outcome.label(),
            &check.note,
        ])
    }));
    text.push_str(&table(&rows));
}

fn remedy(explanation: &Explanation, text: &mut String) {
    text.push_str("\nWhat to look at, in this order:\n");
    for (number, advice) in (1..).zip(&explanation.remedy) {
        let _ = writeln!(
            text,
            "{number}. {} [{}]: {}",
            advice.step, advice.state, advice.text
        );
        if let Some(command) = &advice.command {
            for line in command.lines() {
                let _ = writeln!(text, "     {line}");
            }
        }
    }
}
