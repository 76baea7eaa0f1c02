//! `sizegate completions`: completion scripts for shells.

use std::process::ExitCode;

use clap::Args;
use clap_complete::Shell;

use super::{Cli, FINE, print};

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  sizegate completions bash > ~/.local/share/bash-completion/completions/sizegate")]
pub struct CompletionsArgs {
    /// The shell to print a script for
    pub shell: Shell,
}

/// Prints the script.
pub fn run(args: CompletionsArgs) -> ExitCode {
    print(&script(args.shell));
    ExitCode::from(FINE)
}

/// The completion script for `shell`.
pub fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::definition(), "sizegate", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}
