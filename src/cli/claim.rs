//! `sizegate claim …`: looks at the claim check from outside: its store, its tickets, what it costs. A file per command.
//!
//! Invariant: nothing here changes a topic or an object, but `redrive --apply` and `gc --apply`, which say so; `doctor`
//! writes one object of its own and takes it away again.

mod capacity;
mod doctor;
mod fallen;
mod gc;
mod orphans;
mod progress;
mod redrive;
mod references;
mod retention;
mod tickets;
mod verify;

use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::check::Output;
use super::{ConfigArgs, FAILED, USAGE, print};
use crate::claim::{Keys, Namespace, Store};
use crate::cluster::{Cluster, ReadError, TopicReader};
use crate::config::{ClaimCheck, Config};
use crate::findings::Commands;

/// Arguments of `claim`.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Example:
  sizegate claim doctor --config sizegate.yaml

Exit codes: 0 fine, 1 findings, 2 could not do it, 64 bad config or usage."
)]
pub struct ClaimArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: ClaimCommand,
}

/// What can be asked of the claim check.
#[derive(Debug, Subcommand)]
pub enum ClaimCommand {
    /// Try the store, and say whether topics, keys and retention go together with it
    Doctor(doctor::DoctorArgs),
    /// Show one record's ticket, who signed it, and whether its object is there
    Inspect(tickets::InspectArgs),
    /// Write one record's original value to standard output or a file
    Redeem(tickets::RedeemArgs),
    /// Look at every ticket's object: is it there, as long as it should be, with the right checksum
    Verify(verify::VerifyArgs),
    /// Find objects that no ticket names
    Orphans(orphans::OrphansArgs),
    /// Put objects that no ticket names into the trash, and remove those that have lain there
    Gc(gc::GcArgs),
    /// Show what lies in fallback topics, and why
    Fallback(fallen::FallbackArgs),
    /// Bring back records from the fallback topic whose objects are there again
    Redrive(redrive::RedriveArgs),
    /// Compare how long objects are kept with how long topics keep their tickets
    RetentionCheck(retention::RetentionArgs),
    /// Compute what values cost in Kafka, and what with tickets in their place
    Capacity(capacity::CapacityArgs),
}

/// What every command that looks at a store or a cluster takes.
#[derive(Debug, Args)]
pub struct Common {
    /// Where the configuration comes from.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// For people or for programs
    #[arg(long, value_name = "FORM", value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Does it.
pub fn run(args: ClaimArgs) -> ExitCode {
    match args.command {
        ClaimCommand::Doctor(args) => doctor::run(&args),
        ClaimCommand::Inspect(args) => tickets::inspect(&args),
        ClaimCommand::Redeem(args) => tickets::redeem(&args),
        ClaimCommand::Verify(args) => verify::run(&args),
        ClaimCommand::Orphans(args) => orphans::run(&args),
        ClaimCommand::Gc(args) => gc::run(&args),
        ClaimCommand::Fallback(args) => fallen::run(&args),
        ClaimCommand::Redrive(args) => redrive::run(&args),
        ClaimCommand::RetentionCheck(args) => retention::run(&args),
        ClaimCommand::Capacity(args) => capacity::run(&args),
    }
}

/// What a command found.
struct Outcome {
    text: String,
    json: Value,
    exit: u8,
}

/// The claim check of a configuration, opened.
struct Desk<'a> {
    config: &'a Config,
    claim: &'a ClaimCheck,
    store: Store,
    keys: Keys,
}

impl Desk<'_> {
    /// Where objects lie, for the cluster that a reader has met.
    fn namespace(&self, reader: &TopicReader) -> Result<Namespace, String> {
        let cluster = reader.cluster_id();
        let cluster =
            cluster.ok_or("the cluster does not tell its id, which objects' keys begin with")?;
        Ok(Namespace::new(&self.claim.store.to_string(), cluster))
    }
}

/// Reads the configuration, opens the store, asks, and prints.
fn with_desk(
    common: &Common,
    ask: impl AsyncFnOnce(&Desk<'_>, &Cluster, &Commands) -> Result<Outcome, String>,
) -> ExitCode {
    let is_json = common.output == Output::Json;
    let config = match common.config.load() {
        Ok(config) => config,
        Err(errors) => return super::fail_on_mistakes(is_json, &errors),
    };
    let Some(claim) = &config.claim_check else {
        let error =
            "the configuration has no claim_check: where values go, and what signs their tickets";
        return super::fail(is_json, USAGE, error);
    };
    let keys = match claim.signing_keys() {
        Ok(keys) => keys,
        Err(error) => return super::fail(is_json, USAGE, &format!("claim_check.keys: {error}")),
    };
    let store = match claim.open_store() {
        Ok(store) => store,
        Err(error) => return super::fail(is_json, FAILED, &format!("claim_check.store: {error}")),
    };
    let desk = Desk {
        config: &config,
        claim,
        store,
        keys,
    };
    let found = super::with_cluster(&config, async |cluster: &Cluster, commands: &Commands| {
        ask(&desk, cluster, commands).await
    });
    match found {
        Ok(outcome) => show(common.output, &outcome),
        Err(error) => super::fail(is_json, FAILED, &error),
    }
}

fn show(output: Output, outcome: &Outcome) -> ExitCode {
    match output {
        Output::Table => print(&outcome.text),
        Output::Json => print(&format!("{:#}\n", outcome.json)),
    }
    ExitCode::from(outcome.exit)
}

/// In words, with the ACL that is missing.
fn read_error(error: &ReadError, commands: &Commands) -> String {
    match error {
        ReadError::Forbidden(topic) => {
            let topic = crate::findings::Resource::Topic(topic);
            format!(
                "{error}. Grant: {}",
                commands.allow(&["Describe", "Read"], topic)
            )
        }
        error => error.to_string(),
    }
}
