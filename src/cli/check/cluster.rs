//! `sizegate check --cluster`: the configuration against the live cluster. No proxy is needed, so it runs in a
//! pipeline.

use std::fmt::Write;
use std::process::ExitCode;

use serde_json::json;

use super::{FailOn, Output};
use crate::cli::{FAILED, FINDINGS, FINE, print, with_cluster};
use crate::cluster::{Cluster, Wanted};
use crate::config::{Config, Ignore, TopicPattern};
use crate::findings::{
    Acknowledged, ClusterFacts, Commands, Comparison, Finding, Severity, Unseen, Value,
    acknowledge, find,
};
use crate::text::{counted, grouped};

/// Topics of one finding that are named; the rest are counted.
const NAMED: usize = 5;

/// Compares, and prints what was found.
pub(super) fn run(config: &Config, fail_on: FailOn, output: Output) -> ExitCode {
    let names = names(config);
    let found = with_cluster(config, async |cluster: &Cluster, commands: &Commands| {
        let survey = cluster.survey(Wanted::All(&names), commands).await;
        survey.map_err(|error| error.to_string())
    });
    let found = found.and_then(|facts| {
        let comparison = Comparison::new(config, &facts)?;
        let mut findings = find(&comparison);
        let ignored = acknowledge(&mut findings, &config.ignore);
        Ok((findings, ignored, facts))
    });
    let (findings, ignored, facts) = match found {
        Ok(found) => found,
        Err(error) => {
            let text = format!("the cluster could not be read: {error}");
            match output {
                Output::Table => eprintln!("sizegate: {text}"),
                Output::Json => print(&format!("{:#}\n", json!({"ok": false, "error": text}))),
            }
            return ExitCode::from(FAILED);
        }
    };
    let fails = |finding: &Finding| match fail_on {
        FailOn::Warning => true,
        FailOn::Error => finding.severity == Severity::Error,
    };
    // A pipeline must not be green on what nobody looked at.
    let exit = if !facts.unseen.is_empty() {
        FAILED
    } else if findings.iter().any(fails) {
        FINDINGS
    } else {
        FINE
    };
    match output {
        Output::Table => print(&text(config, &facts, &findings, &ignored)),
        Output::Json => {
            let found = as_json(config, &facts, &findings, &ignored, exit);
            print(&format!("{found:#}\n"));
        }
    }
    ExitCode::from(exit)
}

/// Topics that the configuration names exactly: hidden ones are told apart from absent ones.
fn names(config: &Config) -> Vec<String> {
    let rules = config.rules.iter().flat_map(|rule| &rule.topics);
    let families = config.families.members.iter().flat_map(|family| {
        std::iter::once(&family.main)
            .chain(&family.retry)
            .chain(&family.dead_letter)
    });
    let names = rules.chain(families).filter_map(|pattern| match pattern {
        TopicPattern::Exact(name) if !name.contains('{') => Some(name.clone()),
        _ => None,
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    names.dedup();
    names
}

fn as_json(
    config: &Config,
    facts: &ClusterFacts,
    findings: &[Finding],
    ignored: &[Acknowledged],
    exit: u8,
) -> serde_json::Value {
    let brokers: Vec<i32> = facts.brokers.iter().map(|broker| broker.node_id).collect();
    json!({
        "ok": exit == FINE,
        "mistakes": [],
        "advice": advice(config, ignored),
        "cluster": {"brokers": brokers, "topics": facts.topics.len()},
        "findings": findings,
        "ignored": ignored,
        "unseen": facts.unseen,
    })
}

/// The configuration's, and of its acknowledgements those that are of no use any more.
fn advice(config: &Config, ignored: &[Acknowledged]) -> Vec<String> {
    let is_idle = |entry: &&Ignore| {
        !ignored.iter().any(|known| {
            let mut topics = known.finding.topics.iter();
            let about = entry
                .topic
                .as_ref()
                .is_none_or(|pattern| topics.any(|topic| pattern.matches(topic)));
            known.finding.rule == entry.finding && about
        })
    };
    let idle = config.ignore.iter().filter(is_idle).map(|entry| {
        let topic = entry
            .topic
            .as_ref()
            .map(|topic| format!(" of {}", topic.text()));
        format!(
            "ignore: there is no {}{} to acknowledge any more ({}): remove it",
            entry.finding,
            topic.unwrap_or_default(),
            entry.reason
        )
    });
    crate::cli::advice(config).into_iter().chain(idle).collect()
}

fn text(
    config: &Config,
    facts: &ClusterFacts,
    findings: &[Finding],
    ignored: &[Acknowledged],
) -> String {
    let mut text = String::new();
    let errors = count(findings, Severity::Error);
    let warnings = count(findings, Severity::Warning);
    for finding in findings {
        one(finding, &mut text);
    }
    for Acknowledged { finding, reason } in ignored {
        let topics = finding.topics.join(" ");
        let _ = writeln!(
            text,
            "ignored {}  {topics}\n  reason {reason}\n",
            finding.rule
        );
    }
    for advice in advice(config, ignored) {
        let _ = writeln!(text, "advice: {advice}\n");
    }
    for Unseen { what, grant } in &facts.unseen {
        let _ = writeln!(text, "not seen: {what}");
        if let Some(grant) = grant {
            let _ = writeln!(text, "  grant  {grant}");
        }
        text.push('\n');
    }
    let acknowledged = match ignored.len() {
        0 => String::new(),
        count => format!(", {} ignored", grouped(count as u64)),
    };
    let _ = writeln!(
        text,
        "{} and {} looked at: {}, {}{acknowledged}.",
        counted(facts.topics.len() as u64, "topic"),
        counted(facts.brokers.len() as u64, "broker"),
        counted(errors as u64, "error"),
        counted(warnings as u64, "warning"),
    );
    text
}

fn count(findings: &[Finding], severity: Severity) -> usize {
    let of = findings
        .iter()
        .filter(|finding| finding.severity == severity);
    of.count()
}

fn one(finding: &Finding, text: &mut String) {
    let named: Vec<&str> = finding
        .topics
        .iter()
        .take(NAMED)
        .map(String::as_str)
        .collect();
    let more = finding.topics.len().saturating_sub(NAMED);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let _ = writeln!(
        text,
        "{:<8}{}  {}{more}",
        finding.severity.label(),
        finding.rule,
        named.join(" ")
    );
    for value in &finding.values {
        let _ = writeln!(text, "  value  {}", one_value(value));
    }
    let _ = writeln!(text, "  why    {}\n  fix    {}", finding.why, finding.fix);
    if let Some(also) = &finding.also {
        let _ = writeln!(text, "  also   {also}");
    }
    text.push('\n');
}

fn one_value(value: &Value) -> String {
    let number = match value.value.as_u64() {
        Some(bytes) => grouped(bytes),
        None => value.value.as_str().unwrap_or_default().to_owned(),
    };
    format!("{}: {} = {number} ({})", value.of, value.key, value.source)
}
