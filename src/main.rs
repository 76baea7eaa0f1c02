//! The `sizegate` command.

use std::process::ExitCode;

use sizegate::cli::{
    Cli, Command, align, check, claim, completions, explain, probe, run, scan, suggest,
};

fn main() -> ExitCode {
    match Cli::from_command_line() {
        Ok(Cli {
            command: Command::Run(args),
        }) => run::run(args),
        Ok(Cli {
            command: Command::Check(args),
        }) => check::run(args),
        Ok(Cli {
            command: Command::Suggest(args),
        }) => suggest::run(args),
        Ok(Cli {
            command: Command::Align(args),
        }) => align::run(args),
        Ok(Cli {
            command: Command::Explain(args),
        }) => explain::run(args),
        Ok(Cli {
            command: Command::Claim(args),
        }) => claim::run(args),
        Ok(Cli {
            command: Command::Probe(args),
        }) => probe::run(args),
        Ok(Cli {
            command: Command::Scan(args),
        }) => scan::run(args),
        Ok(Cli {
            command: Command::Completions(args),
        }) => completions::run(args),
        Err(exit) => exit,
    }
}
