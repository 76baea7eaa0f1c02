//! Merges the layers of the configuration, later ones over earlier ones: the file, the
//! environment (`SIZEGATE__LISTENER__BIND=…`), the command line.
//!
//! Invariant: every value of the merged tree knows where it was written.

use std::collections::BTreeMap;
use std::path::Path;

use ::config::{ConfigError, Map, Source, Value, ValueKind};

use super::mistakes::{Report, below};
use super::raw::known_keys;
use super::read::unknown;
use super::yaml;

/// Environment variables by name.
pub type Env = BTreeMap<String, String>;

/// What the command line says about the configuration.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// `--bootstrap-servers`: comma-separated `host:port`.
    pub bootstrap_servers: Option<String>,
}

/// Begins the name of every variable that sets a key. Two underscores: Kubernetes sets
/// `SIZEGATE_PORT` and the like for a service of our name.
pub const ENV_PREFIX: &str = "SIZEGATE__";

/// Ten thousand rules take one to two MB; a bound before anything is parsed.
const LONGEST_FILE_BYTES: u64 = 8 * 1024 * 1024;

/// This process's environment. Bytes that are not UTF-8 become `U+FFFD`.
pub fn process_env() -> Env {
    std::env::vars_os()
        .map(|(name, value)| {
            (
                name.to_string_lossy().into_owned(),
                value.to_string_lossy().into_owned(),
            )
        })
        .collect()
}

/// All layers as one tree; `None` when the file could not be read.
pub(super) fn merge(
    path: Option<&Path>,
    overrides: &Overrides,
    env: &Env,
    report: &mut Report,
) -> Option<Value> {
    let mut root = match path {
        Some(path) => read_file(path, report)?,
        None => Value::new(None, ValueKind::Table(Map::new())),
    };
    // Before merging: the `config` crate forgets where sections that it merges were written.
    report.learn_places(&root);
    drop_paths(&mut root, report);
    let environment = EnvLayer {
        values: env_values(env, &root, report),
    };
    let file = FileLayer { root };
    let built = ::config::Config::builder()
        .add_source(file)
        .add_source(environment)
        .add_source(FlagLayer {
            overrides: overrides.clone(),
        })
        .build();
    match built {
        Ok(merged) => Some(merged.cache),
        Err(error) => {
            report.note("", error.to_string());
            None
        }
    }
}

fn read_file(path: &Path, report: &mut Report) -> Option<Value> {
    let name = path.display().to_string();
    let text = std::fs::metadata(path).and_then(|metadata| {
        if metadata.len() > LONGEST_FILE_BYTES {
            return Err(std::io::Error::other(format!(
                "longer than {LONGEST_FILE_BYTES} bytes"
            )));
        }
        std::fs::read_to_string(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => std::io::Error::other(
                "it is no text (UTF-8): is it another file, or saved in another encoding?",
            ),
            _ => error,
        })
    });
    match text {
        Ok(text) => yaml::read(&name, &text, report),
        Err(error) => {
            report.note_at(name, "", format!("cannot be read: {error}"));
            None
        }
    }
}

/// Takes keys out of the file's top that the `config` crate would take for paths: a key of ours is one word,
/// and `listener.bind` or `rules[7]` is none.
fn drop_paths(root: &mut Value, report: &mut Report) {
    let ValueKind::Table(section) = &mut root.kind else {
        return;
    };
    let known = known_keys();
    let top: Vec<&str> = known
        .iter()
        .map(String::as_str)
        .filter(|key| !key.contains(['.', '[']))
        .collect();
    section.retain(|key, value| {
        let word = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !word {
            let place = value.origin().unwrap_or_default();
            report.note_at(place, key, unknown(key, "", &top, &known));
        }
        word
    });
}

/// The YAML file.
#[derive(Debug, Clone)]
struct FileLayer {
    root: Value,
}

impl Source for FileLayer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        match &self.root.kind {
            ValueKind::Table(section) => Ok(section.clone()),
            // A file in which everything is a comment.
            _ => Ok(Map::new()),
        }
    }
}

/// The environment: paths in the syntax of the `config` crate (`rules[0].action`) and their values.
#[derive(Debug, Clone)]
struct EnvLayer {
    values: Map<String, Value>,
}

impl Source for EnvLayer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(self.values.clone())
    }
}

/// The command line.
#[derive(Debug, Clone)]
struct FlagLayer {
    overrides: Overrides,
}

impl Source for FlagLayer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        let flag = "--bootstrap-servers".to_owned();
        Ok(self
            .overrides
            .bootstrap_servers
            .iter()
            .map(|servers| {
                (
                    "cluster.bootstrap_servers".to_owned(),
                    Value::new(Some(&flag), servers.as_str()),
                )
            })
            .collect())
    }
}

/// Variables that set a key. An empty one sets nothing: that is how Compose and Helm leave one out.
fn env_values(env: &Env, file: &Value, report: &mut Report) -> Map<String, Value> {
    let mut values = Map::new();
    for (name, value) in env.range(ENV_PREFIX.to_owned()..) {
        let Some(keys) = name.strip_prefix(ENV_PREFIX) else {
            break;
        };
        if value.is_empty() {
            continue;
        }
        match env_path(keys, file) {
            Ok(path) => {
                values.insert(path, Value::new(Some(name), value.as_str()));
            }
            Err(text) => report.note_at(name, "", text),
        }
    }
    values
}

/// The path `LISTENER__NODE_PORTS__FIRST` or `RULES__0__ACTION` stands for.
fn env_path(keys: &str, file: &Value) -> Result<String, String> {
    let mut path = String::new();
    let mut here = Some(file);
    for key in keys.split("__") {
        let key = key.to_ascii_lowercase();
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(
                "is not the name of a key: sections and keys are joined by two underscores"
                    .to_owned(),
            );
        }
        if let Ok(index) = key.parse::<usize>() {
            let list = match here.map(|value| &value.kind) {
                Some(ValueKind::Array(list)) => list.as_slice(),
                _ => &[],
            };
            here = list.get(index);
            if here.is_none() {
                let (n, key) = (list.len(), if path.is_empty() { "the file" } else { &path });
                return Err(match n {
                    0 => format!(
                        "names entry {index}, but {key} has no entries; the environment can change one, not add one"
                    ),
                    _ => format!("names entry {index}, but {key} has {n} (the first is entry 0)"),
                });
            }
            path.push_str(&format!("[{index}]"));
            continue;
        }
        here = match here.map(|value| &value.kind) {
            Some(ValueKind::Table(section)) => section.get(&key),
            _ => None,
        };
        path = below(&path, &key);
    }
    Ok(path)
}
