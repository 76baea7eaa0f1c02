//! `sizegate explain TOPIC --set KEY=VALUE`: what would become of a request that sets these configs.

use std::process::ExitCode;

use serde_json::json;

use super::super::check::Output;
use super::super::{FAILED, FINDINGS, FINE, print};
use crate::config::Config;
use crate::findings::{self, ClusterFacts};
use crate::policy::families::opening::{self, Step};
use crate::policy::topic_config::{self, Op};
use crate::policy::{Blame, Change, GovernedKey, Manner, Policy, Refusal};
use crate::vocabulary::Action;

/// What is to be set, by config; of one that nobody governs its name alone.
pub(super) type Ops = Vec<(String, Option<(GovernedKey, Op)>)>;

/// Reads `KEY=VALUE`s; an empty value deletes.
pub(super) fn ops(set: &[String]) -> Result<Ops, String> {
    let one = |text: &String| {
        let (key, value) = text
            .split_once('=')
            .filter(|(key, _)| !key.is_empty())
            .ok_or_else(|| {
                format!("--set {text} is not KEY=VALUE, such as max.message.bytes=2000000")
            })?;
        let op = match value {
            "" => Op::Delete,
            value => Op::Set(value.to_owned()),
        };
        let governed = GovernedKey::from_label(key).map(|key| (key, op));
        Ok((key.to_owned(), governed))
    };
    set.iter().map(one).collect()
}

/// What becomes of it.
struct Outcome {
    /// `passes`, `refused` or `observed`.
    verdict: &'static str,
    /// Why not.
    text: Option<String>,
}

/// Judges and shows it.
pub(super) fn run(
    config: &Config,
    facts: &ClusterFacts,
    topic: &str,
    ops: Ops,
    output: Output,
) -> ExitCode {
    let is_new = facts.absent.iter().any(|absent| absent == topic);
    let ungoverned: Vec<&str> = ops
        .iter()
        .filter(|(_, governed)| governed.is_none())
        .map(|(key, _)| key.as_str())
        .collect();
    let change = Change {
        name: topic.into(),
        is_broker: false,
        manner: if is_new {
            Manner::Create
        } else {
            Manner::Change
        },
        ops: ops
            .iter()
            .filter_map(|(_, governed)| governed.clone())
            .collect(),
    };
    let outcome = match judge(config, facts, &change) {
        Ok(outcome) => outcome,
        Err(error) => {
            eprintln!("sizegate: {error}");
            return ExitCode::from(FAILED);
        }
    };
    match output {
        Output::Json => print(&format!(
            "{:#}\n",
            json!({
                "topic": topic,
                "creates": is_new,
                "verdict": outcome.verdict,
                "text": outcome.text,
                "not_governed": ungoverned,
            })
        )),
        Output::Table => {
            let mut text = match &outcome.text {
                Some(text) => format!("{}: {text}\n", outcome.verdict),
                None => "passes: no rule and no family is against it.\n".to_owned(),
            };
            if !ungoverned.is_empty() {
                text.push_str(&format!(
                    "not governed by anything: {}\n",
                    ungoverned.join(", ")
                ));
            }
            print(&text);
        }
    }
    ExitCode::from(if outcome.verdict == "refused" {
        FINDINGS
    } else {
        FINE
    })
}

fn judge(config: &Config, facts: &ClusterFacts, change: &Change) -> Result<Outcome, String> {
    let policy = Policy::compile(config)?;
    let topics = facts.topics.iter().map(|topic| &topic.name);
    let policy = policy.among(topics.chain([&change.name])).unwrap_or(policy);
    let rule = policy.rule_for(&change.name);
    let observes = policy.observes() || rule.is_some_and(|rule| rule.action == Action::Observe);
    let blame = if observes {
        Blame::Observed
    } else {
        Blame::Sizegate
    };
    let known = findings::governed::known(change, facts);
    let refusal = rule.and_then(|rule| {
        let breaches = topic_config::breaches(change, rule.topic_config.as_ref()?, Some(&known));
        topic_config::refusal(String::new(), blame, change, &breaches, rule)
    });
    if let Some(refusal) = refusal {
        return Ok(outcome(observes, &refusal));
    }
    let steps: Vec<Step> = findings::governed::step(change, facts)
        .filter(|_| policy.names_families())
        .into_iter()
        .collect();
    let in_force = |topic: &str| facts.topic(topic).map(findings::governed::in_force);
    let verdict = opening::judge(&policy, &steps, &in_force);
    let headroom = policy.families().headroom_bytes();
    for (found, is_warning) in [(&verdict.refused, false), (&verdict.warned, true)] {
        for (at, opened) in found {
            let Some(step) = steps.get(*at) else { continue };
            let is_observed = observes || is_warning;
            let blame = if is_observed {
                Blame::Observed
            } else {
                Blame::Sizegate
            };
            let refusal = opening::refusal(String::new(), blame, change, step, opened, headroom);
            if let Some(refusal) = refusal {
                return Ok(outcome(is_observed, &refusal));
            }
        }
    }
    Ok(Outcome {
        verdict: "passes",
        text: None,
    })
}

fn outcome(is_observed: bool, refusal: &Refusal) -> Outcome {
    // Nothing was refused: there is no id.
    let text = refusal.text.replace(" id=]", "]");
    Outcome {
        verdict: if is_observed { "observed" } else { "refused" },
        text: Some(text),
    }
}
