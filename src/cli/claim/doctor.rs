//! `sizegate claim doctor`: tries the store as the proxy will use it, and compares topics, keys and retention; each thing
//! that is not right with its remedy.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::super::{FINDINGS, FINE};
use super::{Common, Desk, Outcome, with_desk};
use crate::claim::{Class, Failure, Namespace, Place, Put};
use crate::cluster::{Cluster, Wanted};
use crate::findings::claims::holders;
use crate::findings::{Commands, Comparison, find};
use crate::text::{row, table};
use crate::vocabulary::FindingRule;

/// Arguments of `claim doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  sizegate claim doctor --config sizegate.yaml

It writes one object of a few bytes below =trial/ and takes it away again.

Exit codes: 0 fine, 1 something is not right, 2 the cluster could not be read, 64 bad config or usage.")]
pub struct DoctorArgs {
    /// What every command takes.
    #[command(flatten)]
    pub common: Common,
}

/// What came of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// As it should be.
    Fine,
    /// It works, and something else will not.
    Warning,
    /// The claim check does not work like this.
    Error,
    /// Nothing could be said after an earlier error.
    Skipped,
}

impl Verdict {
    const fn label(self) -> &'static str {
        match self {
            Self::Fine => "fine",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Skipped => "skipped",
        }
    }
}

#[derive(Debug, Serialize)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    said: String,
    remedy: Option<String>,
}

#[derive(Default)]
struct Checks(Vec<Check>);

impl Checks {
    fn add(&mut self, name: &'static str, verdict: Verdict, said: impl Into<String>) {
        self.push(name, verdict, said.into(), None);
    }

    fn push(&mut self, name: &'static str, verdict: Verdict, said: String, remedy: Option<String>) {
        self.0.push(Check {
            name,
            verdict,
            said,
            remedy,
        });
    }

    fn failed(&mut self, name: &'static str, verdict: Verdict, failure: &Failure, right: &str) {
        let remedy = remedy(failure, right);
        self.push(name, verdict, failure.to_string(), Some(remedy));
    }
}

/// A trial object's age is told by the store's clock.
const CLOCKS: Duration = Duration::from_secs(300);

pub(super) fn run(args: &DoctorArgs) -> ExitCode {
    with_desk(&args.common, async |desk, cluster, commands| {
        let mut checks = Checks::default();
        let namespace = topics(desk, cluster, commands, &mut checks).await?;
        keys(desk, &mut checks);
        try_store(desk, &namespace, &mut checks).await;
        Ok(outcome(desk, &checks.0))
    })
}

/// Everything that a session will ask of the store.
async fn try_store(desk: &Desk<'_>, namespace: &Namespace, checks: &mut Checks) {
    let place = namespace.trial();
    let object = Bytes::from(format!("a trial of sizegate's, {}", place.key()));
    let bytes = object.len() as u64;
    let written = desk.store.put(&place, &object, Duration::MAX).await;
    if let Err(failure) = written {
        checks.failed("write", Verdict::Error, &failure, "s3:PutObject");
        for name in ["read", "again", "missing", "list", "clock", "delete"] {
            checks.add(name, Verdict::Skipped, "nothing could be written");
        }
        return;
    }
    checks.add(
        "write",
        Verdict::Fine,
        format!("{} was written", namespace.uri(&place)),
    );
    match desk.store.get(&place, bytes).await {
        Ok(read) if read == object => {
            checks.add("read", Verdict::Fine, "what was written is read, at once")
        }
        Ok(_) => checks.push(
            "read",
            Verdict::Error,
            "the store gives back other bytes than it was given".to_owned(),
            Some(
                "Something between here and the store changes objects: a proxy, a gateway"
                    .to_owned(),
            ),
        ),
        Err(failure) => checks.failed("read", Verdict::Error, &failure, "s3:GetObject"),
    }
    again(desk, &place, &object, checks).await;
    missing(desk, &namespace.trial(), checks).await;
    clock_and_list(desk, &place, checks).await;
    match desk.store.delete(&place).await {
        Ok(()) => checks.add("delete", Verdict::Fine, "the trial object was deleted"),
        Err(failure) => checks.failed("delete", Verdict::Warning, &failure, "s3:DeleteObject"),
    }
}

/// A second write of the same object must find the first.
async fn again(desk: &Desk<'_>, place: &Place, object: &Bytes, checks: &mut Checks) {
    match desk.store.put(place, object, Duration::MAX).await {
        Ok(Put::There) => checks.add("again", Verdict::Fine, "an object that is there is not written twice"),
        Ok(put) => checks.push(
            "again",
            Verdict::Warning,
            format!("an object that is there is written again ({})", put.label()),
            Some("The store takes no conditional writes (If-None-Match): what is sent twice is uploaded twice".to_owned()),
        ),
        Err(failure) => checks.failed("again", Verdict::Error, &failure, "s3:GetObject"),
    }
}

/// Without the right to list, S3 says 403 for what is not there: a lost object would look like a lost right.
async fn missing(desk: &Desk<'_>, nowhere: &Place, checks: &mut Checks) {
    match desk.store.get(nowhere, 1).await {
        Err(failure) if failure.class == Class::Missing => {
            let said = format!(
                "an object that is not there is said to be missing ({})",
                failure.code
            );
            checks.add("missing", Verdict::Fine, said);
        }
        Ok(_) => checks.add(
            "missing",
            Verdict::Error,
            "the store gives an object that nobody wrote",
        ),
        Err(failure) => {
            let mut said = format!("asked for an object that is not there: {failure}");
            said.push_str("; a lost object cannot be told from a missing permission");
            let right = "s3:ListBucket on the bucket itself";
            checks.push(
                "missing",
                Verdict::Error,
                said,
                Some(remedy(&failure, right)),
            );
        }
    }
}

async fn clock_and_list(desk: &Desk<'_>, place: &Place, checks: &mut Checks) {
    match desk.store.head(place).await {
        Ok(Some(object)) => {
            let now = SystemTime::now();
            let apart = now
                .duration_since(object.written)
                .unwrap_or_else(|ahead| ahead.duration());
            if apart <= CLOCKS {
                checks.add("clock", Verdict::Fine, "the store's clock is ours");
            } else {
                checks.push(
                    "clock",
                    Verdict::Warning,
                    format!("the store's clock and ours are {} s apart", apart.as_secs()),
                    Some(
                        "Set both by NTP: an object's age decides whether it is written again"
                            .to_owned(),
                    ),
                );
            }
        }
        Ok(None) => checks.add(
            "clock",
            Verdict::Error,
            "what was just written is not there",
        ),
        Err(failure) => checks.failed("clock", Verdict::Error, &failure, "s3:GetObject"),
    }
    let folder = place
        .key()
        .rsplit_once('/')
        .map_or("", |(folder, _)| folder);
    let mut is_listed = false;
    let listed = desk
        .store
        .list(folder, |object| is_listed |= object.key == place.key())
        .await;
    match listed {
        Ok(()) if is_listed => checks.add("list", Verdict::Fine, "objects can be listed"),
        Ok(()) => checks.add(
            "list",
            Verdict::Warning,
            "what was just written is not listed yet",
        ),
        Err(failure) => {
            checks.failed(
                "list",
                Verdict::Warning,
                &failure,
                "s3:ListBucket on the bucket itself",
            );
        }
    }
}

/// What to do about a failure, where `right` is what a policy would have to allow.
fn remedy(failure: &Failure, right: &str) -> String {
    match (failure.class, failure.code.as_str()) {
        (_, "NoSuchBucket") => "Create the bucket, or name the right one in claim_check.store".to_owned(),
        (
            _,
            "InvalidAccessKeyId" | "NotSignedUp" | "SignatureDoesNotMatch" | "InvalidToken"
            | "AuthenticationFailed" | "AuthenticationRequired",
        ) => {
            "Give the right credentials: claim_check.store_options, or the store's usual environment".to_owned()
        }
        (Class::Config, _) => format!("Grant {right} (or its like, in another store) to the credentials in use"),
        (Class::Transient, _) => {
            "See that the store is up and can be reached from here: store_options.endpoint, allow_http, the network. Without \
             credentials of its own a store is asked for them at its cloud's metadata service"
                .to_owned()
        }
        (Class::Missing | Class::Corrupt, _) => {
            "The store must give back what it was just given: is something deleting or rewriting objects?".to_owned()
        }
    }
}

fn keys(desk: &Desk<'_>, checks: &mut Checks) {
    let ids: Vec<&str> = desk.claim.keys.iter().map(|key| key.id.as_str()).collect();
    let first = ids.first().copied().unwrap_or_default();
    let mut secrets: Vec<&str> = desk
        .claim
        .keys
        .iter()
        .map(|key| key.secret.as_str())
        .collect();
    secrets.sort_unstable();
    secrets.dedup();
    if secrets.len() < ids.len() {
        checks.push(
            "keys",
            Verdict::Warning,
            "two keys have the same secret".to_owned(),
            Some("A key is rotated by a new secret under a new id".to_owned()),
        );
    } else {
        checks.add(
            "keys",
            Verdict::Fine,
            format!("`{first}` signs; accepted: {}", ids.join(", ")),
        );
    }
}

/// What the cluster's topics say to it. Returns where objects lie.
async fn topics(
    desk: &Desk<'_>,
    cluster: &Cluster,
    commands: &Commands,
    checks: &mut Checks,
) -> Result<Namespace, String> {
    let facts = cluster.survey(Wanted::All(&[]), commands).await;
    let facts = facts.map_err(|error| format!("the cluster could not be read: {error}"))?;
    let comparison = Comparison::new(desk.config, &facts)?;
    let cluster_id = cluster.read_cluster_id().await;
    let cluster_id =
        cluster_id.map_err(|error| format!("the cluster could not be read: {error}"))?;
    let cluster_id =
        cluster_id.ok_or("the cluster does not tell its id, which objects' keys begin with")?;
    let held = holders(&comparison, Duration::ZERO);
    let mut offloaded: Vec<&str> = held.iter().map(|holder| holder.topic).collect();
    offloaded.dedup();
    if offloaded.is_empty() {
        checks.push(
            "topics",
            Verdict::Warning,
            "no topic of the cluster is offloaded by the configuration's rules".to_owned(),
            Some("A rule with `action: offload` whose `topics` match".to_owned()),
        );
    } else {
        checks.add(
            "topics",
            Verdict::Fine,
            format!("offloaded: {}", offloaded.join(" ")),
        );
    }
    for finding in find(&comparison) {
        let name = match finding.rule {
            FindingRule::ClaimRetentionShort => "retention",
            FindingRule::ClaimCompacted => "compacted",
            FindingRule::ClaimCompactedFallback => "compacted",
            FindingRule::ClaimFallbackMissing => "fallback",
            FindingRule::ClaimMemberInline => "families",
            _ => continue,
        };
        let verdict = match finding.severity {
            crate::findings::Severity::Error => Verdict::Error,
            crate::findings::Severity::Warning => Verdict::Warning,
        };
        let said = format!("{}: {}", finding.topics.join(" "), finding.why);
        checks.push(name, verdict, said, Some(finding.fix));
    }
    for holder in held.iter().filter(|holder| holder.need.is_none()) {
        let grant = commands.allow(
            &["DescribeConfigs"],
            crate::findings::Resource::Topic(&holder.holder),
        );
        let said = format!(
            "{}: how long it keeps records cannot be read",
            holder.holder
        );
        checks.push("retention", Verdict::Warning, said, Some(grant));
    }
    Ok(Namespace::new(&desk.claim.store.to_string(), &cluster_id))
}

fn outcome(desk: &Desk<'_>, checks: &[Check]) -> Outcome {
    let is_bad = |check: &&Check| matches!(check.verdict, Verdict::Warning | Verdict::Error);
    let count = checks.iter().filter(is_bad).count();
    let mut rows = vec![row(["CHECK", "VERDICT", "WHAT"])];
    rows.extend(
        checks
            .iter()
            .map(|check| row([check.name, check.verdict.label(), &check.said])),
    );
    let mut text = format!("{}\n\n{}", desk.claim.store, table(&rows));
    for check in checks.iter().filter(is_bad) {
        if let Some(remedy) = &check.remedy {
            let _ = write!(text, "\n{}: {}\n  {remedy}\n", check.name, check.said);
        }
    }
    let _ = write!(
        text,
        "\nThe store's own lifecycle cannot be read from here: let it keep objects for {} at least.\n",
        crate::config::time_text(desk.claim.retention)
    );
    Outcome {
        text,
        json: json!({"store": desk.claim.store.to_string(), "checks": checks}),
        exit: if count == 0 { FINE } else { FINDINGS },
    }
}
