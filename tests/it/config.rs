//! Configurations as users write them: what is read from where, what is refused and in which words.

mod arbitrary;
mod claim;
mod contradictions;
mod environment;
mod layers;
mod mistakes;
mod reload;
mod shipped;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use sizegate::config::{
    self, Advertise, BatchLimit, Config, Decode, Env, InsideLimit, LogFormat, LogLevel, Mode,
    Overrides, SaslMechanism, TopicPattern,
};
use sizegate::vocabulary::FindingRule;
use sizegate::vocabulary::{Action, ErrorCode};
use tempfile::TempDir;

const MINIMAL: &str = "cluster: {bootstrap_servers: [b:9092]}\n";

/// A file `F` in a folder of its own, which `DIR` in its text stands for.
fn load_with(
    text: &str,
    overrides: &Overrides,
    env: &[(&str, &str)],
) -> Result<Config, Vec<String>> {
    let dir = TempDir::new().expect("a temporary folder");
    let name = dir.path().display().to_string();
    for (file, content) in [
        (
            "cert.pem",
            "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
        ),
        (
            "key.pem",
            "-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n",
        ),
        ("password", "hunter2\n"),
        ("empty", "\n"),
    ] {
        std::fs::write(dir.path().join(file), content).expect("a file");
    }
    let path = dir.path().join("F");
    std::fs::write(&path, text.replace("DIR", &name)).expect("a file");
    let env: Env = env
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    config::load(Some(&path), overrides, &env).map_err(|errors| {
        let text = errors
            .to_string()
            .replace(&path.display().to_string(), "F")
            .replace(&name, "DIR");
        text.lines().map(str::to_owned).collect()
    })
}

fn load(text: &str) -> Result<Config, Vec<String>> {
    load_with(text, &Overrides::default(), &[])
}

/// A config that is fine, with these lines more.
fn with(text: &str) -> Config {
    load(&format!("{MINIMAL}{text}"))
        .unwrap_or_else(|mistakes| panic!("{text}\n{}", mistakes.join("\n")))
}

/// Every line of `expected`, and no other, is what is said about a config with `text` from line 2 on.
fn refused(text: &str, expected: &[&str]) {
    let mistakes = load(&format!("{MINIMAL}{text}")).expect_err(text);
    assert_eq!(mistakes, expected, "\n{text}");
}
