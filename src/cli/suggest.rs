//! `sizegate suggest`: limits that follow from what was measured, as YAML that `check` accepts, each with what it would
//! have refused.

mod exposition;
mod limits;
mod offload;
mod source;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::{Value, json};

pub(super) use self::exposition::{Histogram, Measured};
use self::limits::{Proposal, Target, TopicLimits};
use self::offload::Gain;
use super::{FAILED, FINE, print};
use crate::config::{OFFLOAD_ABOVE_BYTES, size_text};
use crate::findings::{Side, side_kind};
use crate::telemetry::OTHER;
use crate::text::noun;
use crate::version;
use crate::vocabulary::BATCHING_BYTES;

/// Arguments of `suggest`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate suggest --from http://127.0.0.1:9644 > suggested.yaml
  sizegate suggest --from metrics.txt --topic orders --keep p99.9 --margin 50

Exit codes: 0 fine, 2 nothing could be read or nothing was measured.")]
pub struct SuggestArgs {
    /// A running proxy's admin address, or a file in Prometheus' text format; replicas in one file are added up
    #[arg(long, value_name = "URL|FILE", default_value = "http://127.0.0.1:9644")]
    pub from: String,
    /// Only these topics
    #[arg(long, value_name = "NAME")]
    pub topic: Vec<String>,
    /// What the limits let pass: all that was measured, or p99.9 of it and a margin
    #[arg(long, value_name = "SHARE", value_enum, default_value_t = Keep::All)]
    pub keep: Keep,
    /// Percent added to the largest, or to p99.9
    #[arg(long, value_name = "PERCENT", default_value_t = 25, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub margin: u16,
    /// With fewer measured sizes than this, nothing is suggested
    #[arg(long, value_name = "COUNT", default_value_t = 100)]
    pub at_least: u32,
    /// YAML for a config, or JSON for programs
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Yaml)]
    pub output: Output,
}

/// What is to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Keep {
    /// Everything that was measured
    All,
    /// The 99.9th percentile and the margin
    #[value(name = "p99.9")]
    P999,
}

/// How suggestions are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Rules for a config
    Yaml,
    /// One JSON object
    Json,
}

/// Suggests limits.
pub fn run(args: SuggestArgs) -> ExitCode {
    match suggested(&args) {
        Ok(text) => {
            print(&text);
            ExitCode::from(FINE)
        }
        Err(error) => super::fail(args.output == Output::Json, FAILED, &error),
    }
}

fn suggested(args: &SuggestArgs) -> Result<String, String> {
    let text = source::read(&args.from)?;
    let mut topics = exposition::read(&text).map_err(|error| format!("{}: {error}", args.from))?;
    // What is counted there is of many topics.
    let has_other = topics.remove(OTHER).is_some();
    if let Some(missing) = args.topic.iter().find(|name| !topics.contains_key(*name)) {
        return Err(format!(
            "{}: nothing was measured of topic `{missing}`",
            args.from
        ));
    }
    topics.retain(|name, _| args.topic.is_empty() || args.topic.contains(name));
    if topics.is_empty() {
        return Err(format!(
            "{}: no topic has a size measured. Is it the admin address of a sizegate that clients produce through?",
            args.from
        ));
    }
    let found = found(args, topics, has_other);
    Ok(match args.output {
        Output::Yaml => found.yaml,
        Output::Json => format!("{:#}\n", found.json),
    })
}

/// What is suggested, in both forms.
pub(super) struct Suggested {
    pub(super) yaml: String,
    pub(super) json: Value,
}

/// What is said of one topic.
struct Found {
    limits: TopicLimits,
    gain: Option<Gain>,
}

/// Suggests limits by what was measured elsewhere, by the defaults of the command.
pub(super) fn of_measured(measured: BTreeMap<String, Measured>, from: &str) -> Suggested {
    let args = SuggestArgs {
        from: from.to_owned(),
        topic: Vec::new(),
        keep: Keep::All,
        margin: 25,
        at_least: 100,
        output: Output::Yaml,
    };
    found(&args, measured, false)
}

fn found(args: &SuggestArgs, topics: BTreeMap<String, Measured>, has_other: bool) -> Suggested {
    let wish = Target {
        tight: args.keep == Keep::P999,
        margin: f64::from(args.margin) / 100.0,
        least_measured: f64::from(args.at_least),
    };
    // A rule for these would stop whoever keeps them for themselves; `check --cluster` warns of it.
    let (kept, ours): (BTreeMap<_, _>, BTreeMap<_, _>) = topics
        .into_iter()
        .partition(|(name, _)| side_kind(name, false).is_some());
    let kept: Vec<String> = kept.into_keys().collect();
    let found = |(name, measured): (String, Measured)| {
        let found = Found {
            limits: limits::suggest(&measured, &wish),
            gain: offload::gain(&measured.record, wish.least_measured),
        };
        (name, found)
    };
    let found: BTreeMap<_, _> = ours.into_iter().map(found).collect();
    Suggested {
        yaml: yaml(args, &found, &kept, has_other),
        json: to_json(args, &found, &kept),
    }
}

fn yaml(
    args: &SuggestArgs,
    found: &BTreeMap<String, Found>,
    kept: &[String],
    has_other: bool,
) -> String {
    let mut out = String::new();
    let passes = match args.keep {
        Keep::All => {
            "each limit lets everything pass that was measured, with room to spare, rounded up"
        }
        Keep::P999 => "each limit is p99.9 of what was measured and a margin, rounded up",
    };
    line(
        &mut out,
        format_args!(
            "# Suggested by sizegate {} from {}:",
            version::LINE,
            one_line(&args.from)
        ),
    );
    line(
        &mut out,
        format_args!("# {passes}. A size not measured yet may be larger: observe first."),
    );
    if has_other {
        line(
            &mut out,
            format_args!(
                "# Some topics have no label of their own (telemetry.topics) and are not here."
            ),
        );
    }
    let (ready, unsure): (Vec<_>, Vec<_>) = found
        .iter()
        .partition(|(_, found)| found.limits.says_anything());
    for (name, found) in &unsure {
        let measured = counted(found.limits.record.measured(), "record");
        line(
            &mut out,
            format_args!(
                "# {}: nothing to suggest: {measured} measured, fewer than {}",
                one_line(name),
                args.at_least
            ),
        );
    }
    for (name, found) in &unsure {
        if let Some(gain) = &found.gain {
            line(
                &mut out,
                format_args!("# {}: {}", one_line(name), would_gain(gain)),
            );
        }
    }
    for name in kept {
        let whose = side_kind(name, false).map_or("others'", Side::label);
        line(
            &mut out,
            format_args!(
                "# {}: left out, one of {whose} topics: whoever writes it cannot leave a record out",
                one_line(name)
            ),
        );
    }
    line(
        &mut out,
        format_args!("cluster: {{bootstrap_servers: [localhost:9092]}}   # yours"),
    );
    line(&mut out, format_args!("mode: observe"));
    if ready.is_empty() {
        line(&mut out, format_args!("rules: []"));
        return out;
    }
    line(&mut out, format_args!("rules:"));
    for (name, Found { limits, gain }) in ready {
        let name = Value::from(name.as_str());
        line(&mut out, format_args!("  - name: {name}"));
        line(&mut out, format_args!("    topics: [{name}]"));
        line(&mut out, format_args!("    limits:"));
        entry(&mut out, args, "record_bytes", "record", &limits.record);
        entry(
            &mut out,
            args,
            "uncompressed_bytes",
            "batch",
            &limits.uncompressed,
        );
        entry(&mut out, args, "batch_bytes", "batch", &limits.batch);
        if let Some(gain) = gain {
            line(&mut out, format_args!("      # {}", would_gain(gain)));
        }
    }
    out
}

fn would_gain(gain: &Gain) -> String {
    format!(
        "a claim check would take {} of {}, and with them at least {:.0} % of its bytes (uncompressed), out of the log: \
         action: offload, above: {} (docs/claim-check.md)",
        gain.records,
        counted(gain.measured, "record"),
        (100.0 * gain.share).floor(),
        size_text(OFFLOAD_ABOVE_BYTES)
    )
}

/// One limit with what it would have refused.
fn entry(out: &mut String, args: &SuggestArgs, key: &str, what: &str, finding: &Proposal) {
    match finding {
        Proposal::Limit(found) => {
            let refuses = refusing(found.refuses, found.measured, what);
            let tighter = found.tighter.map_or(String::new(), |(bytes, refuses)| {
                let refuses = refusing(refuses, found.measured, what);
                format!(
                    "; p99.9 + {} %: {}, {refuses}",
                    args.margin,
                    size_text(bytes)
                )
            });
            line(
                out,
                format_args!(
                    "      {key}: {}   # {refuses}{tighter}",
                    size_text(found.bytes)
                ),
            );
        }
        Proposal::Leave {
            measured,
            all_within: Some(bytes),
        } if key == "batch_bytes" => line(
            out,
            format_args!(
                "      {key}: inherit   # {}, none above {}; a limit under {} makes clients lose small records",
                counted(*measured, what),
                size_text(*bytes),
                size_text(BATCHING_BYTES)
            ),
        ),
        Proposal::Leave { measured, .. } => {
            line(
                out,
                format_args!(
                    "      # {key}: of {} some are too large for a limit to make sense",
                    counted(*measured, what)
                ),
            );
        }
        Proposal::TooFew { measured } => {
            line(
                out,
                format_args!(
                    "      # {key}: {} measured, which is too few",
                    counted(*measured, what)
                ),
            );
        }
    }
}

/// As [`counted`](crate::text::counted), as programs write numbers: what is here is YAML.
fn counted(n: f64, what: &str) -> String {
    format!("{n} {}", noun(n as u64, what))
}

fn refusing(refuses: f64, measured: f64, what: &str) -> String {
    let all = counted(measured, what);
    if refuses == 0.0 {
        return format!("refuses none of {all}");
    }
    let percent = 100.0 * refuses / measured;
    let percent = if percent < 0.01 {
        "under 0.01".to_owned()
    } else {
        format!("{percent:.2}")
    };
    format!("refuses {refuses} of {all} ({percent} %)")
}

fn to_json(args: &SuggestArgs, found: &BTreeMap<String, Found>, kept: &[String]) -> Value {
    let topics = found.iter().map(|(name, Found { limits, gain })| {
        let offload = gain.map(|gain| {
            json!({
                "above": OFFLOAD_ABOVE_BYTES, "records": gain.records, "measured": gain.measured,
                "bytes_at_least": gain.bytes, "share_at_least": gain.share,
            })
        });
        let of = |finding: &Proposal| match finding {
            Proposal::Limit(found) => json!({
                "bytes": found.bytes, "measured": found.measured, "refuses": found.refuses,
                "tighter": found.tighter.map(|(bytes, refuses)| json!({"bytes": bytes, "refuses": refuses})),
            }),
            Proposal::Leave { measured, all_within } => json!({"measured": measured, "all_within": all_within}),
            Proposal::TooFew { measured } => json!({"measured": measured}),
        };
        json!({
            "topic": name, "record_bytes": of(&limits.record),
            "uncompressed_bytes": of(&limits.uncompressed), "batch_bytes": of(&limits.batch), "offload": offload,
        })
    });
    json!({"from": args.from, "topics": topics.collect::<Vec<_>>(), "left_out": kept})
}

impl TopicLimits {
    /// There is a limit to set.
    fn says_anything(&self) -> bool {
        [&self.record, &self.uncompressed, &self.batch]
            .iter()
            .any(|finding| matches!(finding, Proposal::Limit(_)))
    }
}

impl Proposal {
    fn measured(&self) -> f64 {
        match self {
            Self::TooFew { measured } | Self::Leave { measured, .. } => *measured,
            Self::Limit(found) => found.measured,
        }
    }
}

/// For a comment: a name cannot end it.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

fn line(out: &mut String, what: std::fmt::Arguments<'_>) {
    let written = writeln!(out, "{what}");
    debug_assert!(written.is_ok(), "a String takes all that is written");
}
