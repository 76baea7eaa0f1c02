//! A [`Config`] in the keys of the config file, secrets hidden: for `/api/v1/config` and for telling two
//! configurations apart.
//!
//! Invariant: what is rendered, read again, is the same configuration (but for the secrets).

use serde_json::{Map, Value, json};

use super::scalars::{size_text, time_text};
use super::{
    Advertise, BatchLimit, ClaimCheck, ClaimKey, ClientTls, Clients, Cluster, Codecs, Config,
    Families, Family, Identity, Ignore, InsideLimit, Limits, Listener, NamePattern, Offload,
    Redeem, Rule, ServerTls, StoreOption, TopicConfig, TopicPattern,
};

/// Stands where a secret would.
const HIDDEN: &str = "(hidden)";

impl Config {
    /// The configuration in force, defaults included, in the keys and forms of the config file. Passwords are
    /// `(hidden)`; keys that are not set are left out.
    pub fn to_json(&self) -> Value {
        let mut json = json!({
            "cluster": cluster(&self.cluster),
            "listener": listener(&self.listener),
            "mode": self.mode,
            "limits": limits(&self.limits),
            "rules": self.rules.iter().map(rule).collect::<Vec<_>>(),
            "families": families(&self.families),
            "ignore": self.ignore.iter().map(ignore).collect::<Vec<_>>(),
            "near_limit": self.near_limit,
            "memory": {"budget": size_text(self.memory_budget_bytes)},
            "inspection": {"decode": self.decode},
            "admin": {
                "bind": self.admin_bind.to_string(),
                "peers": self.admin_peers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            },
            "refusals": {
                "topic": self.refusals.topic.as_deref().unwrap_or("none"),
                "record_key": self.refusals.record_key,
            },
            "telemetry": {
                "topics": self.telemetry.topics,
                "histograms": self.telemetry.histograms,
                "log": self.telemetry.log,
                "log_level": self.telemetry.log_level,
            },
        });
        if let (Some(claim), Value::Object(keys)) = (&self.claim_check, &mut json) {
            keys.insert("claim_check".to_owned(), claim_check(claim));
        }
        json
    }
}

/// A section of the keys that are set.
fn section<const N: usize>(entries: [(&str, Option<Value>); N]) -> Value {
    Value::Object(
        entries
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)))
            .collect::<Map<_, _>>(),
    )
}

fn path(path: &std::path::Path) -> Value {
    json!(path.display().to_string())
}

fn cluster(cluster: &Cluster) -> Value {
    let sasl = cluster.admin_sasl.as_ref().map(
        |sasl| json!({"mechanism": sasl.mechanism, "username": sasl.username, "password": HIDDEN}),
    );
    section([
        (
            "bootstrap_servers",
            Some(
                cluster
                    .bootstrap_servers
                    .iter()
                    .map(ToString::to_string)
                    .collect(),
            ),
        ),
        ("tls", cluster.tls.as_ref().map(client_tls)),
        (
            "admin",
            Some(section([
                ("sasl", sasl),
                (
                    "refresh_interval",
                    Some(json!(time_text(cluster.refresh_interval))),
                ),
            ])),
        ),
    ])
}

fn client_tls(tls: &ClientTls) -> Value {
    let identity = tls.identity.as_ref();
    section([
        ("ca_file", tls.ca_file.as_deref().map(path)),
        (
            "cert_file",
            identity.map(|identity| path(&identity.cert_file)),
        ),
        (
            "key_file",
            identity.map(|identity| path(&identity.key_file)),
        ),
        (
            "server_name",
            tls.server_name.as_ref().map(|name| json!(name)),
        ),
    ])
}

fn server_tls(tls: &ServerTls) -> Value {
    let Identity {
        cert_file,
        key_file,
    } = &tls.identity;
    section([
        ("cert_file", Some(path(cert_file))),
        ("key_file", Some(path(key_file))),
        ("client_ca_file", tls.client_ca_file.as_deref().map(path)),
    ])
}

fn listener(listener: &Listener) -> Value {
    let (host, node_ports, sni) = match &listener.advertise {
        Advertise::NodePorts {
            host,
            first,
            node_ids,
        } => (
            Some(json!(host)),
            Some(json!({"first": first, "node_ids": ranges(node_ids)})),
            None,
        ),
        Advertise::Sni {
            bootstrap,
            node,
            advertised_port,
        } => (
            None,
            None,
            Some(json!({"bootstrap": bootstrap, "node": node, "advertised_port": advertised_port})),
        ),
    };
    section([
        ("bind", Some(json!(listener.bind.to_string()))),
        ("advertised_host", host),
        ("node_ports", node_ports),
        ("sni", sni),
        ("tls", listener.tls.as_ref().map(server_tls)),
        (
            "frame_bytes",
            Some(json!(size_text(u64::from(listener.frame_bytes)))),
        ),
        ("max_connections", Some(json!(listener.max_connections))),
        (
            "idle_timeout",
            Some(json!(time_text(listener.idle_timeout))),
        ),
    ])
}

/// Ids as `0-9,1001-1003`, in their order.
pub(crate) fn ranges(ids: &[i32]) -> String {
    let runs = ids.chunk_by(|a, b| a.checked_add(1) == Some(*b));
    let texts: Vec<String> = runs
        .filter_map(|run| match (run.first()?, run.last()?) {
            (first, last) if first == last => Some(first.to_string()),
            (first, last) => Some(format!("{first}-{last}")),
        })
        .collect();
    texts.join(",")
}

fn limits(limits: &Limits) -> Value {
    let size = |limit: Option<InsideLimit>| limit.map(|limit| json!(limit.text()));
    let ratio = |limit| match limit {
        InsideLimit::At(ratio) => json!(ratio),
        InsideLimit::None => json!(NONE),
    };
    section([
        (
            "batch_bytes",
            limits.batch_bytes.map(|limit| json!(limit.text())),
        ),
        ("uncompressed_bytes", size(limits.uncompressed_bytes)),
        ("record_bytes", size(limits.record_bytes)),
        ("estimate_bytes", size(limits.estimate_bytes)),
        ("key_bytes", size(limits.key_bytes)),
        ("value_bytes", size(limits.value_bytes)),
        ("headers_bytes", size(limits.headers_bytes)),
        ("ratio", limits.ratio.map(ratio)),
    ])
}

impl Limits {
    /// Each limit that is set, `key=value` as the config file writes them, on one line.
    pub fn text(&self) -> String {
        match limits(self) {
            Value::Object(limits) => {
                let texts = limits.iter().map(|(key, limit)| match limit {
                    Value::String(text) => format!("{key}={text}"),
                    // The ratio, without `.0`.
                    number => format!("{key}={}", number.as_f64().unwrap_or_default()),
                });
                texts.collect::<Vec<_>>().join(" ")
            }
            _ => String::new(),
        }
    }
}

/// The word for a limit that is none.
const NONE: &str = "none";

impl BatchLimit {
    /// As the config file writes it.
    pub fn text(self) -> String {
        match self {
            Self::Inherit => "inherit".to_owned(),
            Self::None => NONE.to_owned(),
            Self::Bytes(bytes) => size_text(bytes),
        }
    }
}

impl InsideLimit {
    /// As the config file writes it.
    pub fn text(self) -> String {
        match self {
            Self::At(bytes) => size_text(bytes),
            Self::None => NONE.to_owned(),
        }
    }
}

fn rule(rule: &Rule) -> Value {
    section([
        ("name", Some(json!(rule.name))),
        ("topics", Some(patterns(&rule.topics))),
        ("clients", rule.clients.as_ref().map(clients)),
        ("limits", Some(limits(&rule.limits))),
        (
            "topic_config",
            rule.topic_config.as_ref().map(TopicConfig::to_json),
        ),
        ("codecs", rule.codecs.as_ref().map(Codecs::to_json)),
        ("action", Some(json!(rule.action))),
        ("offload", rule.offload.as_ref().map(offload)),
        ("error_code", Some(json!(rule.error_code))),
        ("remedy", rule.remedy.as_ref().map(|remedy| json!(remedy))),
    ])
}

fn offload(offload: &Offload) -> Value {
    json!({
        "above": size_text(offload.above_bytes),
        "on_store_failure": offload.on_store_failure,
        "redeem": match &offload.redeem {
            Redeem::All => json!(true),
            Redeem::Nobody => json!(false),
            Redeem::Clients(some) => json!({"clients": clients(some)}),
        },
    })
}

/// What is no secret of a store's own keys.
const SHOWN_OPTIONS: [&str; 4] = [
    "allow_http",
    "endpoint",
    "region",
    "virtual_hosted_style_request",
];

fn claim_check(claim: &ClaimCheck) -> Value {
    let option = |option: &StoreOption| {
        let is_shown = SHOWN_OPTIONS.contains(&option.key.as_str());
        let value = if is_shown { &option.value } else { HIDDEN };
        (option.key.clone(), json!(value))
    };
    let options: Map<_, _> = claim.store_options.iter().map(option).collect();
    let key = |key: &ClaimKey| json!({"id": key.id, "secret": HIDDEN});
    section([
        ("store", Some(json!(claim.store.to_string()))),
        (
            "store_options",
            (!options.is_empty()).then_some(Value::Object(options)),
        ),
        ("keys", Some(claim.keys.iter().map(key).collect())),
        ("layout", Some(json!(claim.layout))),
        ("retention", Some(json!(time_text(claim.retention)))),
        ("grace", Some(json!(time_text(claim.grace)))),
        (
            "fallback",
            Some(json!({
                "topic": claim.fallback.topic,
                "on_missing": claim.fallback.on_missing,
                "on_corrupt": claim.fallback.on_corrupt,
            })),
        ),
    ])
}

fn clients(clients: &Clients) -> Value {
    let names = |patterns: &[NamePattern]| {
        let texts: Vec<String> = patterns.iter().map(NamePattern::text).collect();
        (!texts.is_empty()).then(|| json!(texts))
    };
    section([
        ("client_ids", names(&clients.client_ids)),
        ("principals", names(&clients.principals)),
        ("software", names(&clients.software)),
    ])
}

fn patterns(patterns: &[TopicPattern]) -> Value {
    patterns.iter().map(TopicPattern::text).collect()
}

fn families(families: &Families) -> Value {
    json!({
        "detect": families.detect,
        "headroom": size_text(families.headroom_bytes),
        "members": families.members.iter().map(family).collect::<Vec<_>>(),
    })
}

fn family(family: &Family) -> Value {
    json!({
        "main": family.main.text(),
        "retry": patterns(&family.retry),
        "dead_letter": patterns(&family.dead_letter),
        "alignment": if family.enforce { "enforce" } else { "warn" },
        "writer_max_request_size": family.writer_max_request_size.text(),
    })
}

fn ignore(ignore: &Ignore) -> Value {
    section([
        ("finding", Some(json!(ignore.finding))),
        (
            "topic",
            ignore.topic.as_ref().map(|topic| json!(topic.text())),
        ),
        ("reason", Some(json!(ignore.reason))),
    ])
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn broker_ids_are_written_as_ranges() {
        for (ids, text) in [
            (vec![0, 1, 2, 3], "0-3"),
            (vec![5], "5"),
            (vec![0, 1, 1001, 1002, 7], "0-1,1001-1002,7"),
            (vec![3, 2, 1], "3,2,1"),
            (vec![i32::MAX, 0], "2147483647,0"),
            (vec![], ""),
        ] {
            assert_eq!(ranges(&ids), text);
        }
    }
}
