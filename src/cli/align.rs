//! `sizegate align`: raises the limits of retry and dead-letter topics to what their main topics need.

use std::fmt::Write;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::check::Output;
use super::{ConfigArgs, FAILED, FINDINGS, FINE, USAGE, print};
use crate::cluster::{Alteration, CallError, Cluster, NotAltered, Wanted};
use crate::config::{Config, TopicPattern};
use crate::findings::align::{Change, Plan, plan};
use crate::findings::{ClusterFacts, Commands, Comparison, Resource};
use crate::text::{grouped, row, table};

/// How often and how long what was set is read back: brokers agree on a change within a second.
const READ_BACK: (u32, std::time::Duration) = (20, std::time::Duration::from_millis(250));

/// Arguments of `align`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate align --config sizegate.yaml
  sizegate align --config sizegate.yaml --ceiling 16MiB --apply

Without --apply nothing is changed. Limits are only ever raised.

Exit codes: 0 aligned (or made so), 1 changes are planned, or held back by the ceiling,
2 could not do it, 64 bad config or usage.")]
pub struct AlignArgs {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Make the changes
    #[arg(long)]
    pub apply: bool,
    /// Raise nothing above this
    #[arg(long, value_name = "SIZE", value_parser = crate::config::size)]
    pub ceiling: Option<u64>,
    /// Align the families too that are known by their topics' names alone
    #[arg(long)]
    pub detected: bool,
    /// For people or for programs
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Why it could not be done.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("the cluster could not be read: {0}")]
    Unread(CallError),
    #[error("{0}")]
    Rules(String),
    #[error("nothing was changed: {why}{grant}")]
    Refused { why: String, grant: String },
    #[error(
        "the broker stopped answering, so what was changed is not known; run it again without --apply: {0}"
    )]
    Broken(CallError),
}

/// What became of the plan.
#[derive(Debug, Default)]
struct Applied {
    plan: Plan,
    /// With `--apply`: each change with the value that is in force now.
    in_force: Option<Vec<Option<u64>>>,
    unseen: Vec<crate::findings::Unseen>,
    /// Families that need each other: nothing is planned.
    circles: Vec<String>,
}

/// Plans, and with `--apply` makes the changes.
pub fn run(args: AlignArgs) -> ExitCode {
    let config = match args.config.load() {
        Ok(config) => config,
        Err(errors) => {
            return super::fail_on_mistakes(args.output == Output::Json, &errors);
        }
    };
    let done = super::with_cluster(&config, async |cluster: &Cluster, commands: &Commands| {
        let done = align(&args, &config, cluster, commands).await;
        done.map_err(|error| error.to_string())
    });
    match done {
        Ok(outcome) if !outcome.circles.is_empty() => {
            let error = format!(
                "the configuration's families are in a circle, so nothing can align them: {}; say in families.members \
                 which is the main topic",
                outcome.circles.join("; ")
            );
            super::fail(args.output == Output::Json, USAGE, &error)
        }
        Ok(outcome) => {
            match args.output {
                Output::Table => print(&outcome.text(&config)),
                Output::Json => print(&format!("{:#}\n", outcome.json())),
            }
            ExitCode::from(outcome.exit())
        }
        Err(error) => super::fail(args.output == Output::Json, FAILED, &error.to_string()),
    }
}

async fn align(
    args: &AlignArgs,
    config: &Config,
    cluster: &Cluster,
    commands: &Commands,
) -> Result<Applied, Failed> {
    let named = named(config);
    let facts = cluster
        .survey(Wanted::All(&named), commands)
        .await
        .map_err(Failed::Unread)?;
    let comparison = Comparison::new(config, &facts).map_err(Failed::Rules)?;
    let circles = comparison.policy.families().circles();
    if !circles.is_empty() {
        return Ok(Applied {
            circles: circles.iter().map(|circle| circle.join(", ")).collect(),
            ..Applied::default()
        });
    }
    let plan = plan(&comparison, args.ceiling, args.detected);
    let in_force = if args.apply && !plan.changes.is_empty() {
        Some(apply(cluster, commands, &plan.changes).await?)
    } else {
        None
    };
    Ok(Applied {
        plan,
        in_force,
        unseen: facts.unseen.clone(),
        circles: Vec::new(),
    })
}

/// Topics that the configuration's families name exactly: those that are hidden are told apart from absent ones.
fn named(config: &Config) -> Vec<String> {
    let families = config.families.members.iter();
    let patterns = families.flat_map(|family| {
        std::iter::once(&family.main)
            .chain(&family.retry)
            .chain(&family.dead_letter)
    });
    let names = patterns.filter_map(|pattern| match pattern {
        TopicPattern::Exact(name) if !name.contains('{') => Some(name.clone()),
        _ => None,
    });
    names.collect()
}

/// Sets, after a rehearsal in which the broker refuses what it would refuse; then reads back until it is there.
async fn apply(
    cluster: &Cluster,
    commands: &Commands,
    changes: &[Change],
) -> Result<Vec<Option<u64>>, Failed> {
    let alterations: Vec<Alteration<'_>> = changes
        .iter()
        .map(|change| Alteration {
            topic: &change.topic,
            key: change.key,
            value: change.to,
        })
        .collect();
    let refused = cluster
        .alter_topics(&alterations, true)
        .await
        .map_err(Failed::Unread)?;
    if !refused.is_empty() {
        return Err(refusal(&refused, commands));
    }
    let refused = cluster
        .alter_topics(&alterations, false)
        .await
        .map_err(Failed::Broken)?;
    if !refused.is_empty() {
        return Err(refusal(&refused, commands));
    }
    let topics: Vec<String> = changes.iter().map(|change| change.topic.clone()).collect();
    let mut values = Vec::new();
    for _ in 0..READ_BACK.0 {
        let facts = cluster
            .survey(Wanted::Named(&topics), commands)
            .await
            .map_err(Failed::Broken)?;
        values = changes.iter().map(|change| value(&facts, change)).collect();
        let all = changes.iter().zip(&values);
        if all
            .clone()
            .all(|(change, value)| value.is_some_and(|value| value >= change.to))
        {
            break;
        }
        tokio::time::sleep(READ_BACK.1).await;
    }
    Ok(values)
}

fn value(facts: &ClusterFacts, change: &Change) -> Option<u64> {
    let topic = facts.topic(&change.topic)?;
    let setting = match change.key {
        crate::findings::SEGMENT_BYTES => topic.segment_bytes.as_ref(),
        crate::findings::MAX_MESSAGE_BYTES => topic.max_message_bytes.as_ref(),
        _ => topic.max_decompressed_message_bytes.as_ref(),
    };
    setting.map(crate::findings::Setting::value)
}

fn refusal(refused: &[NotAltered], commands: &Commands) -> Failed {
    let why: Vec<String> = refused
        .iter()
        .map(|failed| format!("{}: {}", failed.topic, failed.why))
        .collect();
    let forbidden: Vec<&NotAltered> = refused
        .iter()
        .filter(|failed| failed.is_forbidden)
        .collect();
    let grants: Vec<String> = forbidden
        .iter()
        .map(|failed| commands.allow(&["AlterConfigs"], Resource::Topic(&failed.topic)))
        .collect();
    let grant = if grants.is_empty() {
        String::new()
    } else {
        format!("\nGrant:\n  {}", grants.join("\n  "))
    };
    Failed::Refused {
        why: why.join("; "),
        grant,
    }
}

impl Applied {
    fn is_incomplete(&self) -> bool {
        !self.plan.unread.is_empty()
    }

    /// Something is not aligned, and no change is to be made for it.
    fn is_held_back(&self) -> bool {
        !self.plan.above_ceiling.is_empty() || !self.plan.inline.is_empty()
    }

    fn exit(&self) -> u8 {
        let is_short = self.in_force.as_ref().is_some_and(|values| {
            let mut all = self.plan.changes.iter().zip(values);
            all.any(|(change, value)| value.is_none_or(|value| value < change.to))
        });
        let is_planned = !self.plan.changes.is_empty() && self.in_force.is_none();
        if self.is_incomplete() || is_short {
            FAILED
        } else if is_planned || self.is_held_back() {
            FINDINGS
        } else {
            FINE
        }
    }

    fn text(&self, config: &Config) -> String {
        let mut text = String::new();
        let plan = &self.plan;
        if plan.changes.is_empty() && !self.is_held_back() && !self.is_incomplete() {
            text.push_str(if plan.detected.is_empty() {
                "Every family is aligned: nothing to do.\n"
            } else {
                "No configured family needs a change.\n"
            });
        }
        if !plan.changes.is_empty() {
            let mut rows = vec![row(["TOPIC", "KEY", "FROM", "TO", "IN FORCE", "REASON"])];
            for (at, change) in plan.changes.iter().enumerate() {
                let in_force = match &self.in_force {
                    None => "planned".to_owned(),
                    Some(values) => values
                        .get(at)
                        .copied()
                        .flatten()
                        .map_or_else(|| "not readable".to_owned(), grouped),
                };
                rows.push(row([
                    &change.topic,
                    change.key,
                    &grouped(change.from),
                    &grouped(change.to),
                    &in_force,
                    &change.reason,
                ]));
            }
            text.push_str(&table(&rows));
        }
        for change in &plan.above_ceiling {
            let _ = writeln!(
                text,
                "held back by the ceiling: {} needs {} {} (has {}): {}",
                change.topic,
                change.key,
                grouped(change.to),
                grouped(change.from),
                change.reason
            );
        }
        if !plan.detected.is_empty() {
            let _ = writeln!(
                text,
                "not planned, because they are known by their names alone (--detected does it): {}",
                plan.detected.join(", ")
            );
        }
        if !plan.inline.is_empty() {
            let _ = writeln!(
                text,
                "not planned, because their main topic offloads and whoever writes them has the originals, of any size (a rule \
                 with action: offload for them mends it): {}",
                plan.inline.join(", ")
            );
        }
        if self.is_incomplete() {
            let _ = writeln!(
                text,
                "not planned, because a limit could not be read: {}",
                plan.unread.join(", ")
            );
        }
        for unseen in &self.unseen {
            let _ = writeln!(text, "not seen: {}", unseen.what);
            if let Some(grant) = &unseen.grant {
                let _ = writeln!(text, "  grant: {grant}");
            }
        }
        if !plan.changes.is_empty() && self.in_force.is_none() {
            let servers: Vec<String> = config
                .cluster
                .bootstrap_servers
                .iter()
                .map(ToString::to_string)
                .collect();
            let _ = writeln!(
                text,
                "Nothing was changed at {}; --apply makes these changes.",
                servers.join(",")
            );
        }
        text
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "changes": self.plan.changes,
            "in_force": self.in_force,
            "above_ceiling": self.plan.above_ceiling,
            "not_planned": {
                "detected": self.plan.detected,
                "unread": self.plan.unread,
                "inline": self.plan.inline,
            },
            "unseen": self.unseen,
        })
    }
}
