//! The claim check's section and a rule's `offload`: defaults, secrets, and what each must hold by itself.

use std::path::PathBuf;

use super::entries;
use crate::claim::{Key as SigningKey, KeyError, Keys, StoreUri};
use crate::config::claim::{ClaimCheck, ClaimKey, Fallback, Offload, Redeem, StoreOption};
use crate::config::defaults;
use crate::config::interpolate::password_from;
use crate::config::mistakes::{Report, below};
use crate::config::raw::{
    Field, Key, RawClaimCheck, RawClaimKey, RawFallback, RawOffload, RawOptions, RawRedeem,
};
use crate::config::scalars::{FallbackTopic, Interval, Secret, Size};
use crate::vocabulary::Action;

const SECTION: &str = "claim_check";
const KEYS: &str = "claim_check.keys";

/// `None`: something it cannot do without is missing or wrong, and was noted.
pub(super) fn section(raw: RawClaimCheck, report: &mut Report) -> Option<ClaimCheck> {
    if raw.store.is_absent() {
        report.missing(
            &below(SECTION, "store"),
            "where values go, such as `store: file:///var/lib/sizegate/claims` or `s3://BUCKET/FOLDER`",
        );
    }
    let keys = keys(raw.keys, report);
    let store = raw.store.value();
    let options = raw.store_options.section();
    let store_options = store
        .as_ref()
        .map(|store| store_options(options, store, report))
        .unwrap_or_default();
    Some(ClaimCheck {
        store: store?,
        store_options,
        keys,
        layout: raw.layout.or(defaults::LAYOUT),
        retention: raw.retention.or(Interval(defaults::RETENTION)).0,
        grace: raw.grace.or(Interval(defaults::GRACE)).0,
        fallback: fallback(raw.fallback.section()),
    })
}

fn fallback(raw: RawFallback) -> Fallback {
    Fallback {
        topic: raw
            .topic
            .or(FallbackTopic(defaults::FALLBACK_TOPIC.to_owned()))
            .0,
        on_missing: raw.on_missing.or(defaults::ON_MISSING),
        on_corrupt: raw.on_corrupt.or(defaults::ON_CORRUPT),
    }
}

fn keys(raw: crate::config::raw::List<RawClaimKey>, report: &mut Report) -> Vec<ClaimKey> {
    if raw.is_absent() {
        report.missing(
            KEYS,
            "what signs tickets, such as `keys: [{id: k1, secret_file: /run/secrets/claim-k1}]`",
        );
        return Vec::new();
    }
    if matches!(&raw, Field::Given(keys) if keys.is_empty()) {
        report.note(KEYS, "is an empty list: nothing could sign a ticket");
    }
    let keys: Vec<ClaimKey> = entries(raw, KEYS, report, key)
        .into_iter()
        .flatten()
        .collect();
    let signing = keys
        .iter()
        .filter_map(|key| SigningKey::new(&key.id, key.secret.as_bytes()).ok());
    if let Err(error @ KeyError::SameId) = Keys::new(signing) {
        report.note(KEYS, format!("cannot be: {error}"));
    }
    keys
}

fn key(raw: RawClaimKey, path: &str, report: &mut Report) -> Option<ClaimKey> {
    if raw.id.is_absent() {
        report.missing(&below(path, "id"), "its name in tickets, such as `k1`");
    }
    let secret = secret(raw.secret, raw.secret_file, path, report);
    let (id, secret) = (raw.id.value()?.0, secret?);
    if let Err(error) = SigningKey::new(&id, secret.as_bytes()) {
        report.note(path, format!("cannot sign: {error}"));
    }
    Some(ClaimKey { id, secret })
}

fn secret(
    secret: Key<Secret>,
    file: Key<PathBuf>,
    path: &str,
    report: &mut Report,
) -> Option<String> {
    let file_key = &below(path, "secret_file");
    match (secret, file) {
        (Field::Absent, Field::Absent) => {
            report.missing(
                &below(path, "secret"),
                "write `secret_file: FILE`, or `secret: ${VARIABLE}` to take it from the environment; 32 bytes at least",
            );
            None
        }
        (Field::Absent, file) => file
            .value()
            .and_then(|file| password_from(file, file_key, report)),
        (secret, Field::Absent) => secret.value().map(|secret| secret.0),
        _ => {
            report.note(
                file_key,
                "cannot be combined with `secret`: write one of the two",
            );
            None
        }
    }
}

/// The store's own keys; one that it does not know and that ends in `_file` names a file with the value.
fn store_options(raw: RawOptions, store: &StoreUri, report: &mut Report) -> Vec<StoreOption> {
    let mut options: Vec<StoreOption> = Vec::new();
    for (written, value) in raw.0 {
        let path = &below("claim_check.store_options", &written);
        let Some(text) = value.value().map(|secret| secret.0) else {
            continue;
        };
        let from_file = written
            .strip_suffix("_file")
            .filter(|_| !store.has_option(&written));
        let key = from_file.unwrap_or(&written);
        if !store.has_option(key) {
            report.note(path, "is no option of this store");
            continue;
        }
        let value = match from_file {
            Some(_) => password_from(PathBuf::from(text), path, report),
            None => Some(text),
        };
        if options.iter().any(|option| option.key == key) {
            report.note(
                path,
                format!("cannot be combined with `{key}`: write one of the two"),
            );
        }
        options.extend(value.map(|value| StoreOption {
            key: key.to_owned(),
            value,
        }));
    }
    options
}

/// A rule's `offload`, where its action is that.
pub(super) fn offload(
    raw: Field<RawOffload>,
    action: Action,
    path: &str,
    report: &mut Report,
) -> Option<Offload> {
    if action != Action::Offload {
        if !raw.is_absent() {
            report.note(
                path,
                format!(
                    "has no effect beside `action: {action}`: write `action: offload`, or remove it"
                ),
            );
        }
        return None;
    }
    let raw = raw.section();
    let redeem = match raw.redeem {
        Field::Given(RawRedeem::Word(false)) => Redeem::Nobody,
        Field::Given(RawRedeem::Section(section)) => {
            let path = below(&below(path, "redeem"), "clients");
            match section.clients {
                Field::Given(clients) => Redeem::Clients(super::clients(clients, &path, report)),
                Field::Absent => {
                    report.missing(&path, "who gets originals; the others get tickets");
                    Redeem::All
                }
                Field::Wrong => Redeem::All,
            }
        }
        _ => Redeem::All,
    };
    Some(Offload {
        above_bytes: raw.above.or(Size(defaults::OFFLOAD_ABOVE_BYTES)).0,
        on_store_failure: raw.on_store_failure.or(defaults::ON_STORE_FAILURE),
        redeem,
    })
}
