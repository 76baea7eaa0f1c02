//! `sizegate probe`: the size ladder against one's own cluster, through the proxy and past it: just within and just above
//! each limit, who refused, and with which words.
//!
//! Invariant: what is written is written to a topic of its own, which is deleted afterwards however it ends, unless one
//! was named.

mod ladder;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use self::ladder::Rung;
use super::check::Output;
use super::{ConfigArgs, FAILED, FINE, USAGE, fail, fail_on_mistakes, print};
use crate::cluster::{Cluster, Lookup, ProbeAnswer};
use crate::config::{Advertise, ClientTls, Config, HostPort};
use crate::error_code::error_name;
use crate::net::Connector;
use crate::proxy::Shared;
use crate::run::with_learned;
use crate::text::{grouped, row, table};

/// Arguments of `probe`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate probe --config sizegate.yaml
  sizegate probe orders-test --config sizegate.yaml --through kafka.example:9092 --ca-file ca.pem
  sizegate probe --config sizegate.yaml --output json

Without TOPIC a topic `sizegate-probe-…` is created, and deleted afterwards: rules by names do not match it. With TOPIC a few
dozen records are written to that one, and stay there. The principal is that of cluster.admin: it needs Create and Delete on
the topic, or Write on the one that is named.

Exit codes: 0 the ladder was climbed, 2 it could not be, 64 bad config or usage.")]
pub struct ProbeArgs {
    /// The topic to write to; one of its own if not given
    #[arg(value_name = "TOPIC")]
    pub topic: Option<String>,
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// The running proxy; where listener.bind says if not given
    #[arg(long, value_name = "HOST:PORT")]
    pub through: Option<String>,
    /// What its certificate is signed by, where listener.tls is set; the platform's authorities if not given
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// For people or for programs
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Probes.
pub fn run(args: ProbeArgs) -> ExitCode {
    let is_json = args.output == Output::Json;
    let config = match args.config.load() {
        Ok(config) => config,
        Err(errors) => return fail_on_mistakes(is_json, &errors),
    };
    let through = match through(&args, &config) {
        Ok(through) => through,
        Err(error) => return fail(is_json, USAGE, &error),
    };
    let past = match Connector::new(&config.cluster) {
        Ok(connector) => Cluster::new(&config, connector),
        Err(error) => return fail(is_json, USAGE, &error.to_string()),
    };
    let climbed = with_learned(&through, async |shared: &Arc<Shared>| {
        climb(shared, &past, args.topic.as_deref()).await
    });
    match climbed {
        Ok(climbed) => {
            match args.output {
                Output::Table => print(&climbed.text()),
                Output::Json => print(&format!("{:#}\n", climbed.to_json())),
            }
            ExitCode::from(FINE)
        }
        Err(error) => fail(is_json, FAILED, &error),
    }
}

/// The configuration with the proxy in the place of the brokers: as its clients see them. None of its addresses is ours.
fn through(args: &ProbeArgs, config: &Config) -> Result<Config, String> {
    let address = match &args.through {
        Some(text) => text
            .parse::<HostPort>()
            .map_err(|error| format!("--through: {error}"))?,
        None => {
            let bind = config.listener.bind;
            let ip = match bind.ip() {
                ip if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
                ip => ip,
            };
            HostPort {
                host: ip.to_string(),
                port: bind.port(),
            }
        }
    };
    let mut config = config.clone();
    config.cluster.bootstrap_servers = vec![address];
    config.cluster.tls = config.listener.tls.is_some().then(|| ClientTls {
        ca_file: args.ca_file.clone(),
        identity: config
            .cluster
            .tls
            .as_ref()
            .and_then(|tls| tls.identity.clone()),
        server_name: None,
    });
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    (config.listener.bind, config.admin_bind) = (nowhere, nowhere);
    config.listener.advertise = Advertise::NodePorts {
        host: "localhost".to_owned(),
        first: 0,
        node_ids: Vec::new(),
    };
    // Nothing is offloaded here, and nothing told.
    config.refusals.topic = None;
    Ok(config)
}

/// One rung, and what became of it on each way.
struct Climbed {
    topic: String,
    is_own: bool,
    left_behind: Option<String>,
    rungs: Vec<(Rung, Found, Found)>,
}

/// Who refused, with its words.
enum Found {
    Answer(ProbeAnswer),
    /// The way is not there, or broke.
    Unreachable(String),
}

async fn climb(
    shared: &Arc<Shared>,
    past: &Cluster,
    topic: Option<&str>,
) -> Result<Climbed, String> {
    let proxy = &shared.cluster;
    let own = format!("sizegate-probe-{}", first_part(uuid::Uuid::new_v4()));
    let name = topic.unwrap_or(&own).to_owned();
    if topic.is_none() {
        let created = proxy.create_probe_topic(&name).await;
        created
            .map_err(|error| format!("through the proxy: {error}"))?
            .map_err(|error| {
                format!("the topic {name} cannot be created ({error}); name one that may be written to: `sizegate probe TOPIC`")
            })?;
    }
    let rungs = climb_all(shared, past, &name).await;
    let left_behind = match topic {
        Some(_) => None,
        None => left_behind(proxy, &name).await,
    };
    Ok(Climbed {
        topic: name,
        is_own: topic.is_none(),
        left_behind,
        rungs: rungs?,
    })
}

async fn left_behind(proxy: &Cluster, name: &str) -> Option<String> {
    match proxy.delete_probe_topic(name).await {
        Ok(Ok(())) => None,
        Ok(Err(error)) => Some(error),
        Err(error) => Some(error.to_string()),
    }
}

async fn climb_all(
    shared: &Arc<Shared>,
    past: &Cluster,
    name: &str,
) -> Result<Vec<(Rung, Found, Found)>, String> {
    let learned = shared.cluster.find_topic(name).await;
    if let Lookup::Found(topic) = &learned {
        // A topic of our own is known a moment before its limits are. Without the right to read them there are none.
        let _ = shared
            .cluster
            .read_limits(topic, None, Duration::ZERO)
            .await;
    }
    let limits = ladder::limits(shared, name, &learned);
    let rungs = ladder::rungs(&limits);
    if rungs.is_empty() {
        return Err(format!(
            "no limit is known for {name}: there is nothing to probe"
        ));
    }
    let mut climbed = Vec::new();
    let mut past_fails = None;
    for rung in rungs {
        let batch = rung.batch();
        let through = match shared.cluster.probe(name, &batch).await {
            Ok(answer) => Found::Answer(answer),
            Err(error) if climbed.is_empty() => {
                return Err(format!("the proxy is not reached: {error}"));
            }
            Err(error) => Found::Unreachable(error.to_string()),
        };
        // One that is not reachable is not tried again.
        let past = match &past_fails {
            Some(error) => Found::Unreachable(String::clone(error)),
            None => match past.probe(name, &batch).await {
                Ok(answer) => Found::Answer(answer),
                Err(error) => {
                    past_fails = Some(error.to_string());
                    Found::Unreachable(error.to_string())
                }
            },
        };
        climbed.push((rung, through, past));
    }
    Ok(climbed)
}

fn first_part(id: uuid::Uuid) -> String {
    id.simple().to_string().chars().take(8).collect()
}

impl Found {
    /// `nobody`, `sizegate`, `broker`, or `unreachable`.
    fn refused_by(&self) -> &'static str {
        match self {
            Self::Unreachable(_) => "unreachable",
            Self::Answer(answer) if answer.error_code == 0 => "nobody",
            Self::Answer(answer) => {
                let text = answer.text.as_deref().unwrap_or_default();
                // "sizegate let … pass" explains what the broker refused.
                if text.starts_with("sizegate refused ") || text.starts_with("sizegate: ") {
                    "sizegate"
                } else {
                    "broker"
                }
            }
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Unreachable(error) => error.clone(),
            Self::Answer(answer) if answer.error_code == 0 => String::new(),
            Self::Answer(answer) => {
                let name = error_name(answer.error_code);
                let text = answer.text.as_deref().unwrap_or("no words");
                format!("{name}: {text}")
            }
        }
    }

    fn to_json(&self) -> Value {
        let (code, text) = match self {
            Self::Unreachable(error) => (None, Some(error.clone())),
            Self::Answer(answer) => (Some(answer.error_code), answer.text.clone()),
        };
        json!({"refused_by": self.refused_by(), "error_code": code, "text": text})
    }
}

impl Climbed {
    fn text(&self) -> String {
        let mut rows = vec![row([
            "gate",
            "bytes",
            "limit",
            "codec",
            "through sizegate",
            "past it",
        ])];
        for (rung, through, past) in &self.rungs {
            rows.push(row([
                rung.gate.label(),
                &grouped(rung.size_bytes),
                &format!("{} ({})", grouped(rung.limit_bytes), rung.source),
                rung.codec.label(),
                through.refused_by(),
                past.refused_by(),
            ]));
        }
        let mut text = format!("topic {}\n{}\n", self.topic, table(&rows));
        let mut told = Vec::new();
        for (_, through, past) in &self.rungs {
            for (way, found) in [("through sizegate", through), ("past it", past)] {
                let line = format!("{way}: {}\n", found.words());
                if !found.words().is_empty() && !told.contains(&line) {
                    told.push(line);
                }
            }
        }
        text.extend(told);
        if let Some(error) = &self.left_behind {
            text.push_str(&format!(
                "\nThe topic {} could not be deleted: {error}\n",
                self.topic
            ));
        } else if self.is_own {
            text.push_str("\nThe topic was deleted.\n");
        }
        text
    }

    fn to_json(&self) -> Value {
        let rungs = self.rungs.iter().map(|(rung, through, past)| {
            json!({
                "gate": rung.gate.label(), "size_bytes": rung.size_bytes, "limit_bytes": rung.limit_bytes,
                "source": rung.source.label(), "codec": rung.codec.label(),
                "through": through.to_json(), "past": past.to_json(),
            })
        });
        json!({
            "topic": self.topic, "is_deleted": self.is_own && self.left_behind.is_none(),
            "left_behind": self.left_behind, "rungs": rungs.collect::<Vec<_>>(),
        })
    }
}
