//! `sizegate claim retention-check`: how long objects are kept, and how long every topic keeps their tickets.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::super::{FAILED, FINDINGS, FINE};
use super::{Common, Outcome, with_desk};
use crate::claim::Cover;
use crate::cluster::Wanted;
use crate::config::{duration, time_text};
use crate::findings::claims::{Holder, days, holders};
use crate::findings::{ClusterFacts, Comparison};
use crate::text::{row, table};

/// Arguments of `claim retention-check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate claim retention-check --config sizegate.yaml
  sizegate claim retention-check --config sizegate.yaml --lag 2d --output json

An object must be kept for retention.ms + segment.ms + the longest lag + one day. What is compared is
claim_check.retention: that the store's own lifecycle keeps objects so long is for you to see to.

Exit codes: 0 fine, 1 a topic keeps tickets for longer, or for less than a day less,
2 could not do it, 64 bad config or usage.")]
pub struct RetentionArgs {
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
    /// How late the latest consumer is
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0s")]
    pub lag: Duration,
}

pub(super) fn run(args: &RetentionArgs) -> ExitCode {
    with_desk(&args.common, async |desk, cluster, commands| {
        let facts = cluster.survey(Wanted::All(&[]), commands).await;
        let facts = facts.map_err(|error| format!("the cluster could not be read: {error}"))?;
        let comparison = Comparison::new(desk.config, &facts)?;
        Ok(outcome(
            &holders(&comparison, args.lag),
            &facts,
            desk.claim.retention,
        ))
    })
}

fn outcome(holders: &[Holder<'_>], facts: &ClusterFacts, retention: Duration) -> Outcome {
    let rows = holders.iter().map(|holder| {
        let ms = |setting: &Option<crate::findings::Setting<i64>>| match setting {
            Some(setting) if setting.value() < 0 => "for ever".to_owned(),
            Some(setting) => time_text(Duration::from_millis(setting.value().unsigned_abs())),
            None => "unknown".to_owned(),
        };
        let needed = match holder.need {
            None => "unknown".to_owned(),
            Some(need) => need.needed.map_or_else(|| "for ever".to_owned(), days),
        };
        row([
            &holder.holder,
            holder.topic,
            holder.role.label(),
            &ms(&holder.kept.retention_ms),
            &ms(&holder.kept.segment_ms),
            &needed,
            verdict(holder),
        ])
    });
    let mut table_rows = vec![row([
        "TOPIC",
        "TICKETS OF",
        "ROLE",
        "RETENTION",
        "SEGMENT",
        "NEEDED",
        "VERDICT",
    ])];
    table_rows.extend(rows);
    let unread = holders.iter().any(|holder| holder.need.is_none());
    let unseen = facts.unseen.iter().map(|unseen| &unseen.what);
    let exit = if unread {
        FAILED
    } else if holders
        .iter()
        .any(|holder| verdict(holder) != Cover::Enough.label())
    {
        FINDINGS
    } else {
        FINE
    };
    let mut text = format!(
        "claim_check.retention is {}.\n\n{}",
        time_text(retention),
        table(&table_rows)
    );
    if holders.is_empty() {
        text.push_str("\nNo topic of the cluster is offloaded by the configuration's rules.\n");
    }
    for unseen in unseen.clone().filter(|_| unread) {
        text.push_str(&format!("\nnot seen: {unseen}\n"));
    }
    Outcome {
        text,
        json: json!({
            "retention_seconds": retention.as_secs(),
            "topics": holders.iter().map(as_json).collect::<Vec<Value>>(),
            "unseen": unseen.collect::<Vec<_>>(),
        }),
        exit,
    }
}

fn verdict(holder: &Holder<'_>) -> &'static str {
    match holder.need {
        _ if holder.is_compacted() => "compacted",
        Some(need) => need.cover().label(),
        None => "unknown",
    }
}

fn as_json(holder: &Holder<'_>) -> Value {
    let ms = |setting: &Option<crate::findings::Setting<i64>>| {
        setting.as_ref().map(|setting| setting.value())
    };
    json!({
        "topic": &*holder.holder,
        "tickets_of": holder.topic,
        "role": holder.role.label(),
        "retention_ms": ms(&holder.kept.retention_ms),
        "segment_ms": ms(&holder.kept.segment_ms),
        "needed_seconds": holder.need.and_then(|need| need.needed).map(|needed| needed.as_secs()),
        "margin_seconds": holder.need.and_then(|need| need.margin_seconds()),
        "verdict": verdict(holder),
    })
}
