//! `sizegate check`: says what is wrong with a config, all in one go, or what a config that is right means.

mod cluster;
mod ready;

use std::fmt::Write;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::{ConfigArgs, FINE, USAGE, print, print_mistakes};
use crate::config::{
    self, Advertise, Clients, Config, ConfigErrors, Family, Ignore, Limits, NamePattern, Rule,
    TopicPattern, size_text,
};
use crate::text::{row, table};

/// Where [`rule_row`] says which clients a rule is for.
const CLIENTS_COLUMN: usize = 2;

/// Arguments of `check`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate check --config sizegate.yaml
  sizegate check --config sizegate.yaml --output json | jq .mistakes
  sizegate check --config sizegate.yaml --cluster
  sizegate check --config sizegate.yaml --cluster --fail-on error --output json
  sizegate check --config sizegate.yaml --cluster --ignore override_above_broker:orders
  sizegate check --config sizegate.yaml --ready

Exit codes: 0 fine, 64 mistakes (each with its file, line, key and what is allowed).
With --cluster also 1 findings, 2 the cluster could not be read, or not all of it.
With --ready: 0 ready, 1 not ready (and why not), 2 no response.")]
pub struct CheckArgs {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Compare it with the live cluster too: limits, families, brokers' settings
    #[arg(long)]
    pub cluster: bool,
    /// The least severe findings that make the exit code 1
    #[arg(long, value_name = "SEVERITY", value_enum, default_value_t = FailOn::Warning, requires = "cluster")]
    pub fail_on: FailOn,
    /// Acknowledge a finding, about one topic (a name, a glob, a /regex/) or all; `ignore` in the config does it
    /// with a reason
    #[arg(long, value_name = "FINDING[:TOPIC]", value_parser = config::ignore, requires = "cluster")]
    pub ignore: Vec<Ignore>,
    /// For people or for programs
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Ask the running proxy instead whether it is ready (its /readyz, over loopback): for health checks
    #[arg(long, conflicts_with_all = ["cluster", "fail_on", "ignore"])]
    pub ready: bool,
}

/// How findings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people
    Table,
    /// One JSON object
    Json,
}

/// Which findings make the exit code 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// All
    Warning,
    /// Errors alone
    Error,
}

/// Checks the config.
pub fn run(args: CheckArgs) -> ExitCode {
    if args.ready && args.output == Output::Json {
        let text = "--ready prints one line of text: leave --output out";
        eprintln!("sizegate: {text}");
        return super::fail(true, USAGE, text);
    }
    if args.ready {
        return ready::run(&args.config);
    }
    let name = args.config.config.as_ref().map_or_else(
        || "the configuration".to_owned(),
        |path| path.display().to_string(),
    );
    match (args.config.load(), args.output) {
        (Ok(mut config), output) if args.cluster => {
            config.ignore.extend(args.ignore);
            cluster::run(&config, args.fail_on, output)
        }
        (Ok(config), Output::Table) => {
            print(&format!("{name} is fine.\n\n{}", summary(&config)));
            ExitCode::from(FINE)
        }
        (Ok(config), Output::Json) => {
            let found = json!({"ok": true, "mistakes": [], "advice": crate::cli::advice(&config), "config": config.to_json()});
            print(&format!("{found:#}\n"));
            ExitCode::from(FINE)
        }
        (Err(errors), Output::Table) => {
            print_mistakes(&errors);
            ExitCode::from(USAGE)
        }
        (Err(errors), Output::Json) => {
            print(&format!(
                "{:#}\n",
                json!({
                    "ok": false,
                    "error": errors.to_string(),
                    "mistakes": mistakes(&errors),
                    "advice": [],
                })
            ));
            ExitCode::from(USAGE)
        }
    }
}

fn mistakes(errors: &ConfigErrors) -> Vec<serde_json::Value> {
    let mistakes = errors.mistakes().iter();
    mistakes
        .map(|mistake| json!({"place": mistake.place, "key": mistake.key, "text": mistake.text}))
        .collect()
}

/// What a config means, as tables.
pub fn summary(config: &Config) -> String {
    let mut text = String::new();
    text.push_str(&table(&addresses(config)));
    text.push('\n');
    let mut rules = vec![row([
        "RULE", "TOPICS", "CLIENTS", "ACTION", "CODE", "LIMITS",
    ])];
    rules.extend(
        config
            .rules
            .iter()
            .map(|rule| rule_row(rule, &config.limits)),
    );
    rules.push(row([
        "(limits)",
        "every other topic",
        "all",
        "reject",
        "auto",
        &config.limits.text(),
    ]));
    // The column is there only where it says something.
    if config.rules.iter().all(|rule| rule.clients.is_none()) {
        for row in &mut rules {
            row.remove(CLIENTS_COLUMN);
        }
    }
    text.push_str(&table(&rules));
    if !config.families.members.is_empty() {
        let headroom = size_text(config.families.headroom_bytes);
        let mut families = vec![row([
            "FAMILY",
            "RETRY",
            "DEAD LETTER",
            "ALIGNMENT",
            "HEADROOM",
        ])];
        families.extend(
            config
                .families
                .members
                .iter()
                .map(|family| family_row(family, &headroom)),
        );
        text.push('\n');
        text.push_str(&table(&families));
    }
    for advice in crate::cli::advice(config) {
        let _ = write!(text, "\nadvice: {advice}\n");
    }
    text
}

fn addresses(config: &Config) -> Vec<Vec<String>> {
    let brokers: Vec<String> = config
        .cluster
        .bootstrap_servers
        .iter()
        .map(ToString::to_string)
        .collect();
    let told = match &config.listener.advertise {
        Advertise::NodePorts {
            host,
            first,
            node_ids,
        } => {
            let last = usize::from(*first).saturating_add(node_ids.len().saturating_sub(1));
            format!(
                "{host}, ports {first}-{last}, for brokers {}",
                crate::config::ranges(node_ids)
            )
        }
        Advertise::Sni {
            bootstrap,
            node,
            advertised_port,
        } => {
            format!("{bootstrap}:{advertised_port}, brokers {node}:{advertised_port}")
        }
    };
    let tls = |present: bool| if present { " (TLS)" } else { "" };
    vec![
        row([
            "brokers",
            &format!("{}{}", brokers.join(","), tls(config.cluster.tls.is_some())),
        ]),
        row([
            "clients",
            &format!(
                "{}{}",
                config.listener.bind,
                tls(config.listener.tls.is_some())
            ),
        ]),
        row(["advertised", &told]),
        row(["admin", &format!("http://{}", config.admin_bind)]),
        row(["mode", config.mode.label()]),
        row([
            "frame_bytes",
            &size_text(u64::from(config.listener.frame_bytes)),
        ]),
    ]
}

fn rule_row(rule: &Rule, base: &Limits) -> Vec<String> {
    row([
        &rule.name,
        &patterns(&rule.topics),
        &rule.clients.as_ref().map_or("all".to_owned(), clients),
        rule.action.label(),
        rule.error_code.label(),
        &rule.limits.over(base).text(),
    ])
}

fn clients(clients: &Clients) -> String {
    let kinds = [
        ("client_id", &clients.client_ids),
        ("principal", &clients.principals),
        ("software", &clients.software),
    ];
    let texts: Vec<String> = kinds
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(kind, names)| {
            let names: Vec<String> = names.iter().map(NamePattern::text).collect();
            format!("{kind}={}", names.join("|"))
        })
        .collect();
    texts.join(" ")
}

fn family_row(family: &Family, headroom: &str) -> Vec<String> {
    row([
        &family.main.text(),
        &patterns(&family.retry),
        &patterns(&family.dead_letter),
        if family.enforce { "enforce" } else { "warn" },
        headroom,
    ])
}

fn patterns(patterns: &[TopicPattern]) -> String {
    let texts: Vec<String> = patterns.iter().map(TopicPattern::text).collect();
    if texts.is_empty() {
        "-".to_owned()
    } else {
        texts.join(" ")
    }
}
