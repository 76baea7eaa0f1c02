//! The command line: what can be asked, and the exit codes of the responses. A file per command.
//!
//! Invariant: bad usage and a bad config exit with [`USAGE`], whatever the command.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::Resettable;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::cluster::Cluster;
use crate::config::{self, Config, ConfigErrors, Overrides, OwnAddresses};
use crate::findings::Commands;
use crate::net::{Connector, Own};
use crate::version;

pub mod align;
mod allocator;
pub mod check;
pub mod claim;
pub mod completions;
pub mod explain;
pub mod probe;
pub mod run;
pub mod scan;
pub mod suggest;

/// Exit code: done, nothing to say.
pub const FINE: u8 = 0;
/// Exit code: done, and there are findings.
pub const FINDINGS: u8 = 1;
/// Exit code: it could not be done.
pub const FAILED: u8 = 2;
/// Exit code: bad config or usage (`EX_USAGE` of sysexits.h).
pub const USAGE: u8 = 64;

/// A Kafka proxy that enforces message size policy and explains every refusal.
///
/// Clients point bootstrap.servers at it. It measures what they produce, refuses what is over a limit with an
/// error that names the gate, the numbers and the remedy, and forwards the rest byte for byte.
#[derive(Debug, Parser)]
#[command(name = "sizegate", version = version::LINE, arg_required_else_help = true, max_term_width = 100)]
#[command(after_help = "\
Example:
  sizegate run --bootstrap-servers localhost:9092

Exit codes: 0 fine, 1 findings, 2 could not do it, 64 bad config or usage.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be asked.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the proxy
    Run(run::RunArgs),
    /// Say what is wrong with a config, or what it means; with --cluster, what does not go together
    Check(check::CheckArgs),
    /// Suggest limits from what was measured
    Suggest(suggest::SuggestArgs),
    /// Raise the limits of retry and dead-letter topics to what their main topics need
    Align(align::AlignArgs),
    /// Say which limits a topic has, and who would refuse a record of given sizes
    Explain(explain::ExplainArgs),
    /// Look at the claim check: its store, its tickets and objects, what it costs
    Claim(claim::ClaimArgs),
    /// Climb the size ladder on your own cluster: who refuses what, through the proxy and past it
    Probe(probe::ProbeArgs),
    /// Judge what is stored in topics by a config, as if it were produced now
    Scan(scan::ScanArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
}

/// Names the config file where `--config` does not.
const CONFIG_VARIABLE: &str = "SIZEGATE_CONFIG";

fn without_config_variable(command: clap::Command) -> clap::Command {
    let command = command.mut_subcommands(without_config_variable);
    if command.get_arguments().any(|arg| arg.get_id() == "config") {
        command.mut_arg("config", |arg| arg.env(Resettable::Reset))
    } else {
        command
    }
}

impl Cli {
    /// Reads the process's arguments.
    ///
    /// # Errors
    /// Help, version or a usage error was printed: exit with this.
    pub fn from_command_line() -> Result<Self, ExitCode> {
        let mut command = Self::command();
        // Compose and Helm leave a variable out by setting it to nothing.
        if std::env::var_os(CONFIG_VARIABLE).is_some_and(|path| path.is_empty()) {
            command = command.mut_subcommands(without_config_variable);
        }
        let parsed = command.clone().try_get_matches().and_then(|matches| {
            Self::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
        });
        parsed.map_err(|error| {
            let code = if error.use_stderr() { USAGE } else { FINE };
            match error.print() {
                Err(unwritten) if !error.use_stderr() => cannot_print(&unwritten),
                _ => ExitCode::from(code),
            }
        })
    }

    /// The whole command line, for completions and documentation.
    pub fn definition() -> clap::Command {
        Self::command()
    }
}

/// Where the configuration comes from; the same for every command that needs one.
#[derive(Debug, Clone, Default, Args)]
pub struct ConfigArgs {
    /// The config file (YAML). Without one the defaults hold
    #[arg(
        long,
        value_name = "FILE",
        env = CONFIG_VARIABLE,
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
    /// The Kafka brokers, comma-separated; over `cluster.bootstrap_servers` in the config file
    #[arg(long, value_name = "HOST:PORT,…")]
    pub bootstrap_servers: Option<String>,
}

impl ConfigArgs {
    /// Reads the configuration these arguments and this process's environment name.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn load(&self) -> Result<Config, ConfigErrors> {
        config::load(
            self.config.as_deref(),
            &self.overrides(),
            &config::process_env(),
        )
    }

    /// What the command line says over the file.
    pub fn overrides(&self) -> Overrides {
        Overrides {
            bootstrap_servers: self.bootstrap_servers.clone(),
        }
    }
}

/// A person at a terminal is told then what is waited for.
const SILENCE: Duration = Duration::from_secs(2);

/// Asks the cluster of a configuration something, on a runtime of its own; no proxy is needed.
///
/// # Errors
/// What could not be done, in words.
fn with_cluster<T>(
    config: &Config,
    ask: impl AsyncFnOnce(&Cluster, &Commands) -> Result<T, String>,
) -> Result<T, String> {
    let own = Own::new(Some(OwnAddresses::new(config)));
    let connector = Connector::new(&config.cluster)
        .map_err(|error| error.to_string())?
        .with_own(own);
    let cluster = Cluster::new(config, connector);
    let commands = Commands::new(config);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut response = std::pin::pin!(ask(&cluster, &commands));
        if let Ok(response) = tokio::time::timeout(SILENCE, &mut response).await {
            return response;
        }
        let servers = config.cluster.bootstrap_servers.iter();
        let servers: Vec<String> = servers.map(ToString::to_string).collect();
        eprintln!("sizegate: waiting for {}", servers.join(","));
        response.await
    })
}

/// Writes to standard output; where that fails the process ends with [`FAILED`], whatever the response was: nobody has
/// it. A reader that went away (`| head`) is no error.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = written
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = cannot_print(&error);
        std::process::exit(FAILED.into());
    }
}

/// The exit code of a response that could not be written.
fn cannot_print(error: &std::io::Error) -> ExitCode {
    if error.kind() == ErrorKind::BrokenPipe {
        return ExitCode::from(FINE);
    }
    eprintln!("sizegate: cannot write to standard output: {error}");
    ExitCode::from(FAILED)
}

/// Says on standard error what is wrong with a config, one mistake a line.
fn print_mistakes(errors: &ConfigErrors) {
    let count = errors.mistakes().len();
    let mistakes = if count == 1 { "mistake" } else { "mistakes" };
    eprintln!("{errors}\nsizegate: {count} {mistakes} in the configuration");
}

/// Says that something could not be done: as JSON on standard output where that was asked for, else to a person.
pub(crate) fn fail(is_json: bool, code: u8, error: &str) -> ExitCode {
    if is_json {
        print(&format!("{:#}\n", serde_json::json!({"error": error})));
    } else {
        eprintln!("sizegate: {error}");
    }
    ExitCode::from(code)
}

/// Likewise of a configuration with mistakes.
pub(crate) fn fail_on_mistakes(is_json: bool, errors: &ConfigErrors) -> ExitCode {
    if is_json {
        return fail(true, USAGE, &errors.to_string());
    }
    print_mistakes(errors);
    ExitCode::from(USAGE)
}

/// Advice on a configuration, and on the environment that it was read in.
pub(crate) fn advice(config: &Config) -> Vec<String> {
    let unknown = config::unknown_variables(&config::process_env());
    config.advice().into_iter().chain(unknown).collect()
}
