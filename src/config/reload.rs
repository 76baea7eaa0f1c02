//! Tells what a changed configuration may change in a running process, and what needs a restart.
//!
//! Invariant: [`Reload::config`] differs from the old configuration in live keys only.

use serde_json::Value;

use super::mistakes::below;
use super::{ClaimCheck, Config, Telemetry};

/// What to do with a changed configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Reload {
    /// What is in force from now on: the new live keys, the old others.
    pub config: Config,
    /// Dotted keys that changed and are in force now, such as `rules`.
    pub live: Vec<String>,
    /// Dotted keys that changed and need a restart, such as `listener.bind`.
    pub needs_restart: Vec<String>,
}

/// Keys, with all below them, that a reload changes in a running process. `inspection` is among them because limits
/// are: a new limit may need a decode that the old value forbids.
const LIVE: [&str; 15] = [
    "mode",
    "limits",
    "rules",
    "families",
    "ignore",
    "claim_check.keys",
    "claim_check.layout",
    "claim_check.retention",
    "claim_check.grace",
    "claim_check.fallback",
    "near_limit",
    "inspection",
    "admin.peers",
    "telemetry.histograms",
    "telemetry.log_level",
];

/// Compares the configuration in force with the one just read.
pub fn reload(old: &Config, new: &Config) -> Reload {
    let mut changed = Vec::new();
    compare(String::new(), &old.to_json(), &new.to_json(), &mut changed);
    let password = |config: &Config| {
        config
            .cluster
            .admin_sasl
            .as_ref()
            .map(|sasl| sasl.password.clone())
    };
    if let (Some(old), Some(new)) = (password(old), password(new))
        && old != new
    {
        changed.push("cluster.admin.sasl.password".to_owned());
    }
    for key in changed_secrets(old, new) {
        if !changed.contains(&key) {
            changed.push(key);
        }
    }
    let (live, needs_restart) = changed.into_iter().partition(|key| is_live(key));
    Reload {
        config: merged(old, new),
        live,
        needs_restart,
    }
}

/// The claim check's secrets that changed: they are hidden in what is compared.
fn changed_secrets(old: &Config, new: &Config) -> Vec<String> {
    let (Some(old), Some(new)) = (&old.claim_check, &new.claim_check) else {
        return Vec::new();
    };
    let mut changed = Vec::new();
    if old.keys != new.keys {
        changed.push("claim_check.keys".to_owned());
    }
    for option in &new.store_options {
        let before = old.store_options.iter().find(|old| old.key == option.key);
        if before.is_some_and(|before| before != option) {
            changed.push(format!("claim_check.store_options.{}", option.key));
        }
    }
    changed
}

/// Keys are rotated and records' fates changed while it runs; the store stays the one that was opened.
fn merged_claim_check(old: &Config, new: &Config) -> Option<ClaimCheck> {
    let (Some(old), Some(new)) = (&old.claim_check, &new.claim_check) else {
        return old.claim_check.clone();
    };
    Some(ClaimCheck {
        store: old.store.clone(),
        store_options: old.store_options.clone(),
        ..new.clone()
    })
}

fn merged(old: &Config, new: &Config) -> Config {
    Config {
        cluster: old.cluster.clone(),
        listener: old.listener.clone(),
        mode: new.mode,
        limits: new.limits.clone(),
        rules: new.rules.clone(),
        families: new.families.clone(),
        ignore: new.ignore.clone(),
        claim_check: merged_claim_check(old, new),
        near_limit: new.near_limit,
        memory_budget_bytes: old.memory_budget_bytes,
        decode: new.decode,
        admin_bind: old.admin_bind,
        admin_peers: new.admin_peers.clone(),
        origin: old.origin.clone(),
        refusals: old.refusals.clone(),
        telemetry: Telemetry {
            histograms: new.telemetry.histograms,
            log_level: new.telemetry.log_level,
            ..old.telemetry.clone()
        },
    }
}

fn is_live(key: &str) -> bool {
    LIVE.iter().any(|live| {
        key.strip_prefix(live)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    })
}

/// The keys whose values differ. Lists differ as a whole: an entry has no name that outlives the change.
fn compare(path: String, old: &Value, new: &Value, changed: &mut Vec<String>) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let added = new.keys().filter(|key| !old.contains_key(*key));
            for key in old.keys().chain(added) {
                let (old, new) = (
                    old.get(key).unwrap_or(&Value::Null),
                    new.get(key).unwrap_or(&Value::Null),
                );
                compare(below(&path, key), old, new, changed);
            }
        }
        (old, new) if old != new => changed.push(path),
        _ => {}
    }
}
