//! `sizegate run`: reads the config and runs the proxy until a signal ends it.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::{ConfigArgs, FAILED, FINE, USAGE, allocator, print_mistakes};
use crate::run::{RunOptions, StartError};
use crate::telemetry::log;

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sizegate run --bootstrap-servers localhost:9092
  sizegate run --config /etc/sizegate/sizegate.yaml --drain-timeout 10s
  SIZEGATE__LISTENER__BIND=0.0.0.0:19092 sizegate run --config sizegate.yaml

Every key of the config file can be set by the environment: SIZEGATE__ and its path, joined by two
underscores; a key of a list's entry only if the file has that entry.
SIGHUP or a changed file reloads the config; SIGTERM drains and exits with 0.")]
pub struct RunArgs {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// How long requests in flight may take after SIGTERM
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = crate::config::duration)]
    pub drain_timeout: Duration,
    /// Worker threads; as many as there are CPUs if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
}

/// Runs the proxy until a signal ends it.
pub fn run(args: RunArgs) -> ExitCode {
    allocator::settle();
    let config = match args.config.load() {
        Ok(config) => config,
        Err(errors) => {
            print_mistakes(&errors);
            return ExitCode::from(USAGE);
        }
    };
    let log_level = match log::init(config.telemetry.log, config.telemetry.log_level) {
        Ok(level) => level,
        Err(error) => {
            eprintln!("sizegate: {error}");
            return ExitCode::from(USAGE);
        }
    };
    for advice in super::advice(&config) {
        tracing::warn!("{advice}");
    }
    let options = RunOptions {
        drain_timeout: args.drain_timeout,
        workers: args.workers.map(usize::from),
        overrides: args.config.overrides(),
        config_path: args.config.config,
        log_level: Some(log_level),
    };
    match crate::run::run(config, options) {
        Ok(()) => ExitCode::from(FINE),
        Err(error) => {
            eprintln!("sizegate: {error}");
            ExitCode::from(match error {
                StartError::Config(_) => USAGE,
                StartError::Io(_) => FAILED,
            })
        }
    }
}
