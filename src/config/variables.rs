//! Environment variables that look like ours and set nothing: most often one underscore where two belong.

use super::layers::{ENV_PREFIX, Env};
use super::mistakes::nearest;
use super::raw::known_keys;

/// Begins the name of everything of ours.
const PREFIX: &str = "SIZEGATE_";

/// Names of ours that are no keys: the file, and what the build and the tests use.
const OURS: [&str; 6] = [
    "SIZEGATE_CONFIG",
    "SIZEGATE_BIN",
    "SIZEGATE_LOG",
    "SIZEGATE_COMMIT",
    "SIZEGATE_SCREENSHOTS",
    "SIZEGATE_VERSION",
];

/// A sentence for each variable that begins with `SIZEGATE_` and is known to nobody.
pub fn unknown_variables(env: &Env) -> Vec<String> {
    let keys: Vec<String> = known_keys()
        .into_iter()
        .filter(|key| !key.contains('['))
        .collect();
    let ours = env.range(PREFIX.to_owned()..);
    ours.take_while(|(name, _)| name.starts_with(PREFIX))
        .filter(|(name, value)| {
            !name.starts_with(ENV_PREFIX)
                && !OURS.contains(&name.as_str())
                && !is_of_kubernetes(name, value)
        })
        .map(|(name, _)| {
            let meant = meant(name, &keys)
                .map(|meant| format!("; did you mean {meant}?"))
                .unwrap_or_default();
            format!(
                "the environment variable {name} sets nothing: {ENV_PREFIX} and a key's path, joined by two underscores, sets \
                 a key{meant}"
            )
        })
        .collect()
}

/// The variable for the key whose letters are most like it.
fn meant(name: &str, keys: &[String]) -> Option<String> {
    let word = bare(name.strip_prefix(PREFIX)?);
    let bare_keys: Vec<String> = keys.iter().map(|key| bare(key)).collect();
    let found = nearest(&word, bare_keys.iter().map(String::as_str))?;
    let key = keys.iter().find(|key| bare(key) == found)?;
    let path = key.replace('.', "__").to_ascii_uppercase();
    Some(format!("{ENV_PREFIX}{path}"))
}

/// Letters alone: where the underscores are is what is wrong most often.
fn bare(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// What Kubernetes (and Docker's links) set in every pod for a service whose name begins with ours.
fn is_of_kubernetes(name: &str, value: &str) -> bool {
    let is_link = ["tcp://", "udp://", "sctp://"]
        .iter()
        .any(|scheme| value.starts_with(scheme));
    let port = name.rsplit_once("_PORT_").map(|(_, rest)| rest);
    let is_port = port.is_some_and(|rest| {
        let mut parts = rest.split('_');
        let number = parts.next().unwrap_or_default();
        !number.is_empty()
            && number.bytes().all(|digit| digit.is_ascii_digit())
            && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
            && matches!(parts.next(), None | Some("ADDR" | "PORT" | "PROTO"))
    });
    is_port
        || (name.ends_with("_PORT") && is_link)
        || name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(name: &str, value: &str) -> Option<String> {
        let env = Env::from([(name.to_owned(), value.to_owned())]);
        unknown_variables(&env).pop()
    }

    #[test]
    fn a_variable_that_sets_nothing_is_told_of_with_the_one_that_was_meant() {
        for (name, meant) in [
            ("SIZEGATE_MODE", "SIZEGATE__MODE"),
            ("SIZEGATE_LISTENER_BIND", "SIZEGATE__LISTENER__BIND"),
            ("SIZEGATE_LISTENER__BIND", "SIZEGATE__LISTENER__BIND"),
            (
                "SIZEGATE_CLUSTER_BOOTSTRAP_SERVERS",
                "SIZEGATE__CLUSTER__BOOTSTRAP_SERVERS",
            ),
            ("SIZEGATE_ADMIN_BIN", "SIZEGATE__ADMIN__BIND"),
            ("SIZEGATE_NEAR_LIMT", "SIZEGATE__NEAR_LIMIT"),
        ] {
            let told = told(name, "x").unwrap_or_else(|| panic!("{name}"));
            assert!(told.contains(&format!(" {name} ")), "{told}");
            assert!(told.ends_with(&format!("did you mean {meant}?")), "{told}");
        }
        let told = told("SIZEGATE_QWERTYUIOP", "x").unwrap();
        assert!(!told.contains("did you mean"), "{told}");
    }

    #[test]
    fn what_sets_a_key_and_what_others_set_is_not_told_of() {
        for (name, value) in [
            ("SIZEGATE__MODE", "observe"),
            ("SIZEGATE_CONFIG", "/etc/sizegate.yaml"),
            ("SIZEGATE_PORT", "tcp://10.0.0.1:9092"),
            ("SIZEGATE_PORT_9092_TCP", "tcp://10.0.0.1:9092"),
            ("SIZEGATE_PORT_9092_TCP_ADDR", "10.0.0.1"),
            ("SIZEGATE_PORT_9092_TCP_PROTO", "tcp"),
            ("SIZEGATE_SERVICE_HOST", "10.0.0.1"),
            ("SIZEGATE_SERVICE_PORT", "9092"),
            ("SIZEGATE_SERVICE_PORT_KAFKA", "9092"),
            ("SIZEGATE_ADMIN_SERVICE_HOST", "10.0.0.1"),
            ("SIZEGATE_ADMIN_PORT_9644_TCP_PORT", "9644"),
            ("KAFKA_MODE", "x"),
        ] {
            assert_eq!(told(name, value), None, "{name}");
        }
    }
}
