//! Configurations as users write them: what is read from where, what is refused and in which words.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use sizegate::config::{
    self, Advertise, BatchLimit, Config, Decode, Env, LogFormat, LogLevel, Mode, Overrides,
    SaslMechanism, TopicPattern,
};
use sizegate::policy::{Action, ErrorCode};
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

#[test]
fn without_a_file_the_brokers_are_enough_and_the_defaults_hold() {
    let overrides = Overrides {
        bootstrap_servers: Some("kafka-1:9092,[::1]:9093".to_owned()),
    };
    let config = config::load(None, &overrides, &Env::new()).expect("a working start");
    let servers: Vec<String> = config
        .cluster
        .bootstrap_servers
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(servers, ["kafka-1:9092", "[::1]:9093"]);
    assert_eq!(config.cluster.tls, None);
    assert_eq!(config.cluster.admin_sasl, None);
    assert_eq!(config.cluster.refresh_interval, Duration::from_secs(30));
    assert_eq!(
        config.listener.bind,
        "127.0.0.1:19092".parse().expect("an address")
    );
    let node_ids = (0..=9).collect();
    assert_eq!(
        config.listener.advertise,
        Advertise::NodePorts {
            host: "localhost".to_owned(),
            first: 19093,
            node_ids
        }
    );
    assert_eq!(config.listener.tls, None);
    assert_eq!(config.listener.frame_bytes, 104_857_600);
    assert_eq!(config.listener.max_connections, 10_000);
    assert_eq!(config.listener.idle_timeout, Duration::from_secs(600));
    assert_eq!(config.mode, Mode::Enforce);
    let limits = config::Limits {
        batch_bytes: Some(BatchLimit::Inherit),
        ..config::Limits::default()
    };
    assert_eq!(config.limits, limits);
    assert!(config.rules.is_empty());
    assert!(config.families.detect);
    assert_eq!(config.families.headroom_bytes, 65_536);
    assert!(config.families.members.is_empty());
    assert_eq!(config.near_limit, 0.8);
    assert_eq!(config.memory_budget_bytes, 536_870_912);
    assert_eq!(config.decode, Decode::WhenNeeded);
    assert_eq!(
        config.admin_bind,
        "127.0.0.1:9644".parse().expect("an address")
    );
    assert_eq!(config.telemetry.topics, 1_000);
    assert_eq!(config.telemetry.log, LogFormat::Text);
    assert_eq!(config.telemetry.log_level, LogLevel::Info);
}

#[test]
fn a_start_without_brokers_says_the_three_ways_to_name_them() {
    let errors = config::load(None, &Overrides::default(), &Env::new()).expect_err("no brokers");
    assert_eq!(
        errors.to_string(),
        "cluster.bootstrap_servers: is missing: name the Kafka brokers, such as `bootstrap_servers: [kafka-1:9092]` (or \
         --bootstrap-servers, or SIZEGATE__CLUSTER__BOOTSTRAP_SERVERS)"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let path = Path::new("no/such/file.yaml");
    let errors = config::load(Some(path), &Overrides::default(), &Env::new()).expect_err("no file");
    assert_eq!(
        errors.to_string(),
        "no/such/file.yaml: cannot be read: No such file or directory (os error 2)"
    );
}

#[test]
fn every_key_is_read() {
    let config = load(EVERY_KEY).expect("a config with every key");
    let sasl = config.cluster.admin_sasl.as_ref().expect("sasl");
    assert_eq!(
        (sasl.mechanism, sasl.username.as_str()),
        (SaslMechanism::ScramSha512, "gate")
    );
    assert_eq!(
        sasl.password, "hunter2",
        "the line end of a password file is not part of the password"
    );
    let tls = config.cluster.tls.as_ref().expect("TLS to brokers");
    assert!(tls.ca_file.is_some() && tls.identity.is_some());
    assert_eq!(tls.server_name.as_deref(), Some("kafka.internal"));
    assert!(
        config
            .listener
            .tls
            .as_ref()
            .expect("TLS to clients")
            .client_ca_file
            .is_some()
    );
    let sni = Advertise::Sni {
        bootstrap: "kafka.example.com".to_owned(),
        node: "b{node_id}.kafka.example.com".to_owned(),
        advertised_port: 9092,
    };
    assert_eq!(config.listener.advertise, sni);
    let rule = &config.rules[0];
    assert_eq!(
        (rule.name.as_str(), rule.action, rule.error_code),
        ("orders", Action::Observe, ErrorCode::PolicyViolation)
    );
    assert_eq!(
        rule.topics,
        [
            TopicPattern::Exact("orders".to_owned()),
            TopicPattern::Glob("orders.*".to_owned()),
            TopicPattern::Regex("eu-[0-9]{1,3}".to_owned())
        ]
    );
    let limits = config::Limits {
        batch_bytes: Some(BatchLimit::Bytes(1_048_588)),
        uncompressed_bytes: Some(4 << 20),
        record_bytes: Some(65_536),
        estimate_bytes: Some(1_000_000),
        key_bytes: Some(1),
        value_bytes: Some(2),
        headers_bytes: Some(3),
        ratio: Some(99.5),
    };
    assert_eq!(rule.limits, limits);
    assert_eq!(
        rule.remedy.as_deref(),
        Some("Use the store: https://wiki.example/notes")
    );
    let family = &config.families.members[0];
    assert_eq!(
        family.dead_letter,
        [TopicPattern::Exact("{main}-dlt".to_owned())]
    );
    assert!(!family.enforce && !config.families.detect);
    assert_eq!(config.decode, Decode::Always);
    assert_eq!(config.telemetry.log_level, LogLevel::Debug);
}

const EVERY_KEY: &str = r#"
cluster:
  bootstrap_servers: [b:9092, "[::1]:9093"]
  tls: {ca_file: DIR/cert.pem, cert_file: DIR/cert.pem, key_file: DIR/key.pem, server_name: kafka.internal}
  admin:
    sasl: {mechanism: SCRAM-SHA-512, username: gate, password_file: DIR/password}
    refresh_interval: 500ms
listener:
  bind: 0.0.0.0:9092
  sni: {bootstrap: kafka.example.com, node: "b{node_id}.kafka.example.com", advertised_port: 9092}
  tls: {cert_file: DIR/cert.pem, key_file: DIR/key.pem, client_ca_file: DIR/cert.pem}
  frame_bytes: 10MB
  max_connections: 5
  idle_timeout: 1h
mode: observe
limits: {batch_bytes: none, ratio: 100}
rules:
  - name: orders
    topics: [orders, "orders.*", "/eu-[0-9]{1,3}/"]
    limits:
      batch_bytes: 1048588
      uncompressed_bytes: 4MiB
      record_bytes: 64KiB
      estimate_bytes: 1MB
      key_bytes: 1
      value_bytes: 2
      headers_bytes: 3
      ratio: 99.5
    action: observe
    error_code: POLICY_VIOLATION
    remedy: "Use the store: https://wiki.example/notes"
families:
  detect: false
  headroom: 0
  members:
    - {main: orders, retry: ["orders-retry-*"], dead_letter: ["{main}-dlt"], alignment: warn}
near_limit: 1
memory: {budget: 1GiB}
inspection: {decode: always}
admin: {bind: "[::1]:9644"}
telemetry: {topics: 0, log: json, log_level: debug}
"#;

#[test]
fn what_is_rendered_and_read_again_is_the_same_but_for_the_password() {
    let node_ports = EVERY_KEY.replace(
        "  sni:",
        "  node_ports: {first: 100, node_ids: [3, 0-1]}\n  #sni:",
    );
    for text in [EVERY_KEY, &node_ports, MINIMAL] {
        let dir = TempDir::new().expect("a temporary folder");
        let stay = |text: &str| text.replace("DIR", &dir.path().display().to_string());
        for file in ["cert.pem", "key.pem", "password"] {
            let kind = if file == "key.pem" {
                "PRIVATE KEY"
            } else {
                "CERTIFICATE"
            };
            let pem = format!("-----BEGIN {kind}-----\nMAA=\n-----END {kind}-----\n");
            std::fs::write(dir.path().join(file), pem).expect("a file");
        }
        let path = dir.path().join("F");
        std::fs::write(&path, stay(text)).expect("a file");
        let mut config =
            config::load(Some(&path), &Overrides::default(), &Env::new()).expect("a config");
        let rendered = serde_json::to_string_pretty(&config.to_json()).expect("JSON");
        std::fs::write(&path, &rendered).expect("a file");
        let again = config::load(Some(&path), &Overrides::default(), &Env::new());
        if let Some(sasl) = &mut config.cluster.admin_sasl {
            assert!(!rendered.contains(&sasl.password));
            sasl.password = "(hidden)".to_owned();
        }
        assert_eq!(again.as_ref(), Ok(&config), "{rendered}");
    }
}

#[test]
fn a_password_is_never_shown() {
    let config = load(EVERY_KEY).expect("a config");
    for text in [format!("{config:?}"), format!("{:#}", config.to_json())] {
        assert!(text.contains("gate") && !text.contains("hunter2"), "{text}");
    }
    // Nor where it stands in the wrong place, or under a misspelt key, or came from a variable.
    for text in [
        "cluster: {bootstrap_servers: [b:1], admin: {sasl: hunter2}}",
        "cluster: {bootstrap_servers: [b:1], admin: {sasl: {mechanism: PLAIN, username: u, pasword: hunter2}}}",
        "cluster: {bootstrap_servers: [b:1], admin: {sasl: {mechanism: PLAIN, username: u, password: [hunter2]}}}",
        "cluster: {bootstrap_servers: [b:1], admin: {sasl: {mechanism: PLAIN, username: u, password: {hunter2: 1}}}}",
        "cluster: {bootstrap_servers: ['${PASSWORD}']}",
        "cluster: {bootstrap_servers: '${PASSWORD},b:1'}",
        "cluster: {bootstrap_servers: [b:1]}\nmode: ${PASSWORD}",
    ] {
        let mistakes =
            load_with(text, &Overrides::default(), &[("PASSWORD", "hunter2")]).expect_err(text);
        assert!(!mistakes.join("\n").contains("hunter2"), "{mistakes:?}");
    }
}

#[test]
fn every_scalar_and_list_is_overridden_by_the_environment() {
    let cases: &[(&str, &str, &str, serde_json::Value)] = &[
        (
            "",
            "SIZEGATE__CLUSTER__BOOTSTRAP_SERVERS",
            "a:1, b:2",
            serde_json::json!(["a:1", "b:2"]),
        ),
        (
            "",
            "SIZEGATE__CLUSTER__ADMIN__REFRESH_INTERVAL",
            "5s",
            "5s".into(),
        ),
        (
            "",
            "SIZEGATE__LISTENER__BIND",
            "0.0.0.0:29092",
            "0.0.0.0:29092".into(),
        ),
        (
            "listener: {bind: '127.0.0.1:5'}\n",
            "SIZEGATE__LISTENER__BIND",
            "0.0.0.0:29092",
            "0.0.0.0:29092".into(),
        ),
        (
            "",
            "SIZEGATE__LISTENER__ADVERTISED_HOST",
            "kafka",
            "kafka".into(),
        ),
        (
            "",
            "SIZEGATE__LISTENER__NODE_PORTS__FIRST",
            "29093",
            29093.into(),
        ),
        (
            "",
            "SIZEGATE__LISTENER__NODE_PORTS__NODE_IDS",
            "0-2,7,1001-1002",
            "0-2,7,1001-1002".into(),
        ),
        ("", "SIZEGATE__LISTENER__FRAME_BYTES", "1MiB", "1MiB".into()),
        ("", "SIZEGATE__LISTENER__MAX_CONNECTIONS", "7", 7.into()),
        ("", "SIZEGATE__MODE", "observe", "observe".into()),
        ("", "SIZEGATE__LIMITS__BATCH_BYTES", "none", "none".into()),
        (
            "",
            "SIZEGATE__LIMITS__RECORD_BYTES",
            "64KiB",
            "64KiB".into(),
        ),
        ("", "SIZEGATE__LIMITS__RATIO", "20", 20.0.into()),
        (
            "rules: [{name: a, topics: [t]}]\n",
            "SIZEGATE__RULES__0__ACTION",
            "observe",
            "observe".into(),
        ),
        (
            "rules: [{name: a, topics: [t]}]\n",
            "SIZEGATE__RULES__0__TOPICS",
            "x,y.*",
            serde_json::json!(["x", "y.*"]),
        ),
        ("", "SIZEGATE__FAMILIES__DETECT", "false", false.into()),
        ("", "SIZEGATE__FAMILIES__HEADROOM", "1KiB", "1KiB".into()),
        ("", "SIZEGATE__NEAR_LIMIT", "0.5", 0.5.into()),
        ("", "SIZEGATE__MEMORY__BUDGET", "1GiB", "1GiB".into()),
        ("", "SIZEGATE__INSPECTION__DECODE", "never", "never".into()),
        (
            "",
            "SIZEGATE__ADMIN__BIND",
            "0.0.0.0:80",
            "0.0.0.0:80".into(),
        ),
        ("", "SIZEGATE__TELEMETRY__TOPICS", "3", 3.into()),
        ("", "SIZEGATE__TELEMETRY__LOG", "json", "json".into()),
        (
            "",
            "SIZEGATE__TELEMETRY__LOG_LEVEL",
            "trace",
            "trace".into(),
        ),
    ];
    for (text, name, value, expected) in cases {
        let config = load_with(
            &format!("{MINIMAL}{text}"),
            &Overrides::default(),
            &[(name, value)],
        )
        .expect(name);
        let mut found = &config.to_json();
        for key in name
            .trim_start_matches("SIZEGATE__")
            .to_lowercase()
            .split("__")
        {
            found = match key.parse::<usize>() {
                Ok(index) => &found[index],
                Err(_) => &found[key],
            };
        }
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn the_command_line_stands_over_the_environment_and_that_over_the_file() {
    let env = [("SIZEGATE__CLUSTER__BOOTSTRAP_SERVERS", "env:1")];
    let overrides = Overrides {
        bootstrap_servers: Some("flag:1".to_owned()),
    };
    let first = |overrides: &Overrides, env: &[(&str, &str)]| {
        let config = load_with(MINIMAL, overrides, env).expect("a config");
        config.cluster.bootstrap_servers[0].host.clone()
    };
    assert_eq!(first(&Overrides::default(), &[]), "b");
    assert_eq!(first(&Overrides::default(), &env), "env");
    assert_eq!(first(&overrides, &env), "flag");
}

#[test]
fn an_empty_variable_and_one_of_kubernetes_set_nothing() {
    let env = [
        ("SIZEGATE__LISTENER__BIND", ""),
        ("SIZEGATE_PORT", "tcp://10.0.0.1:9092"),
        ("SIZEGATE_SERVICE_HOST", "10.0.0.1"),
        ("SIZEGATE_CONFIG", "elsewhere"),
    ];
    assert_eq!(
        load_with(MINIMAL, &Overrides::default(), &env),
        load(MINIMAL)
    );
}

#[test]
fn mistakes_of_the_environment_and_the_command_line_name_the_variable_and_the_flag() {
    for (name, value, expected) in [
        (
            "SIZEGATE__LISTENER__BIND",
            "19092",
            "SIZEGATE__LISTENER__BIND: listener.bind: `19092` is not an IP address and a port, such as `127.0.0.1:19092`, \
             `0.0.0.0:19092` or `[::]:19092`",
        ),
        (
            "SIZEGATE__LISTENER__BNID",
            "x",
            "SIZEGATE__LISTENER__BNID: listener.bnid: unknown key; did you mean `bind`? Keys allowed in it: bind, \
             advertised_host, node_ports, sni, tls, frame_bytes, max_connections, idle_timeout",
        ),
        (
            "SIZEGATE__RULES__1__ACTION",
            "observe",
            "SIZEGATE__RULES__1__ACTION: names entry 1, but rules has 1 (the first is entry 0)",
        ),
        (
            "SIZEGATE__RULES__99999999999__ACTION",
            "observe",
            "SIZEGATE__RULES__99999999999__ACTION: names entry 99999999999, but rules has 1 (the first is entry 0)",
        ),
        (
            "SIZEGATE__LISTENER____BIND",
            "x",
            "SIZEGATE__LISTENER____BIND: is not the name of a key: sections and keys are joined by two underscores",
        ),
        (
            "SIZEGATE__RULES[999999999]",
            "x",
            "SIZEGATE__RULES[999999999]: is not the name of a key: sections and keys are joined by two underscores",
        ),
        (
            "SIZEGATE__LISTENER",
            "x",
            "SIZEGATE__LISTENER: listener: is a single value, not a section with keys of its own (bind, advertised_host, \
             node_ports, sni, tls, frame_bytes, max_connections, idle_timeout)",
        ),
        (
            "SIZEGATE__CLUSTER__BOOTSTRAP_SERVERS",
            "a:1,,b:2",
            "SIZEGATE__CLUSTER__BOOTSTRAP_SERVERS: cluster.bootstrap_servers[1]: `` is not a host and a port, such as \
             `kafka-1:9092` or `[::1]:9092`: the port is missing",
        ),
    ] {
        let text = format!("{MINIMAL}rules: [{{name: a, topics: [t]}}]\n");
        let mistakes = load_with(&text, &Overrides::default(), &[(name, value)]).expect_err(name);
        assert_eq!(mistakes, [expected], "{name}");
    }
    let overrides = Overrides {
        bootstrap_servers: Some("kafka".to_owned()),
    };
    assert_eq!(
        load_with(MINIMAL, &overrides, &[]).expect_err("no port"),
        [
            "--bootstrap-servers: cluster.bootstrap_servers[0]: `kafka` is not a host and a port, such as `kafka-1:9092` or \
          `[::1]:9092`: the port is missing"
        ]
    );
}

#[test]
fn variables_are_replaced_in_values_of_the_file_once() {
    let env = [
        ("HOSTS", "a:1,b:2"),
        ("WORD", "observe"),
        ("TEMPLATE", "${WORD}"),
    ];
    let text = "cluster: {bootstrap_servers: '${HOSTS}'}\nmode: ${WORD}\n\
                rules: [{name: a, topics: [t], remedy: 'pay $${WORD} in ${TEMPLATE}'}]\n";
    let config = load_with(text, &Overrides::default(), &env).expect("a config");
    assert_eq!(config.cluster.bootstrap_servers.len(), 2);
    assert_eq!(config.mode, Mode::Observe);
    assert_eq!(
        config.rules[0].remedy.as_deref(),
        Some("pay ${WORD} in ${WORD}")
    );
    // What the environment sets directly is text.
    let env = [("SIZEGATE__RULES__0__REMEDY", "${WORD}")];
    let text = format!("{MINIMAL}rules: [{{name: a, topics: [t]}}]\n");
    let config = load_with(&text, &Overrides::default(), &env).expect("a config");
    assert_eq!(config.rules[0].remedy.as_deref(), Some("${WORD}"));
    refused(
        "mode: ${NOT_SET}\nnear_limit: ${\n",
        &[
            "F:2: mode: names the environment variable `NOT_SET`, which is not set",
            "F:3: near_limit: opens `${` without a `}`; write `$${` for the two characters themselves",
        ],
    );
}

#[test]
fn values_stay_the_text_that_was_written() {
    let text = "cluster:\n  bootstrap_servers: [b:9092]\n  admin: {sasl: {mechanism: PLAIN, username: no, password: 007}}\n\
                rules: [{name: 1.0, topics: [2024, on]}]\n";
    let config = load(text).expect("a config");
    let sasl = config.cluster.admin_sasl.expect("sasl");
    assert_eq!(
        (sasl.username.as_str(), sasl.password.as_str()),
        ("no", "007")
    );
    assert_eq!(config.rules[0].name, "1.0");
    assert_eq!(
        config.rules[0].topics[0],
        TopicPattern::Exact("2024".to_owned())
    );
}

#[test]
fn the_first_node_port_follows_the_bind_port() {
    for (text, expected) in [
        ("listener: {bind: '0.0.0.0:9092'}", 9093),
        (
            "listener: {bind: '0.0.0.0:9092', node_ports: {node_ids: 1-3}}",
            9093,
        ),
        (
            "listener: {bind: '0.0.0.0:9092', node_ports: {first: 30000}}",
            30000,
        ),
        ("listener: {bind: '127.0.0.1:0'}", 0),
        ("listener: {bind: '0.0.0.0:65525'}", 65526),
    ] {
        match with(text).listener.advertise {
            Advertise::NodePorts { first, .. } => assert_eq!(first, expected, "{text}"),
            Advertise::Sni { .. } => panic!("{text}"),
        }
    }
}

#[test]
fn unknown_and_doubled_keys_are_refused_with_the_nearest_known() {
    let top = "cluster, listener, mode, limits, rules, families, near_limit, memory, inspection, admin, telemetry";
    refused(
        "listner: {}\nbatch_bytes: 5\nlistener.bind: x\nwhatever: 1\nrules[0]: 1\n",
        &[
            &format!(
                "F:2: listner: unknown key; did you mean `listener`? Keys allowed at the top: {top}"
            ),
            &format!(
                "F:3: batch_bytes: unknown key; did you mean `limits.batch_bytes`? Keys allowed at the top: {top}"
            ),
            "F:4: listener.bind: unknown key; sections are nested: write `bind:` on a line of its own under `listener:`",
            &format!("F:5: whatever: unknown key; keys allowed at the top: {top}"),
            &format!("F:6: rules[0]: unknown key; keys allowed at the top: {top}"),
        ],
    );
    refused(
        "mode: enforce\nadmin:\n  bind: 127.0.0.1:1\n  bind: 127.0.0.1:2\nmode: observe\n",
        &[
            "F:5: admin.bind: is written twice; the first is on line 4",
            "F:6: mode: is written twice; the first is on line 2",
        ],
    );
}

#[test]
fn a_misspelt_key_is_not_missing_too() {
    assert_eq!(
        load("cluster: {bootstrap_server: [b:1]}\n").expect_err("misspelt"),
        [
            "F:1: cluster.bootstrap_server: unknown key; did you mean `bootstrap_servers`? Keys allowed in it: \
          bootstrap_servers, tls, admin"
        ]
    );
}

#[test]
fn values_of_the_wrong_kind_say_what_is_allowed() {
    refused(
        "mode: {a: 1}\nlimits: [1]\nnear_limit:\nrules: {name: a}\nadmin: {bind: [1, 2]}\n\
         families: {members: [orders, {main: a, retry: [[b]]}]}\n",
        &[
            "F:2: mode: is a section, not `enforce` or `observe`",
            "F:3: limits: is a list, not a section with keys of its own (batch_bytes, uncompressed_bytes, record_bytes, \
             estimate_bytes, key_bytes, value_bytes, headers_bytes, ratio)",
            "F:4: near_limit: is empty: write a share above 0 and at most 1, such as `0.8`, or remove the key",
            "F:5: rules: is a section, not a list",
            "F:6: admin.bind: is a list, not an IP address and a port, such as `127.0.0.1:19092`, `0.0.0.0:19092` or \
             `[::]:19092`",
            "F:7: families.members[0]: is a single value, not a section with keys of its own (main, retry, dead_letter, \
             alignment)",
            "F:7: families.members[1].retry[0]: is a list, not a topic (`orders-dlt`, `{main}-dlt`), a glob \
             (`{main}-retry-*`) or a regular expression (`/{main}-retry-[0-9]+/`)",
        ],
    );
    refused(
        "cluster_tls:\nlistener:\n  tls:\n",
        &[
            "F:2: cluster_tls: unknown key; keys allowed at the top: cluster, listener, mode, limits, rules, families, \
             near_limit, memory, inspection, admin, telemetry",
            "F:4: listener.tls: is empty: write a section with keys of its own (cert_file, key_file, client_ca_file), or \
             remove the key",
        ],
    );
}

#[test]
fn impossible_values_say_what_is_allowed() {
    let at_least =
        |bytes: &str| format!("a size of at least {bytes} bytes (`65536`, `64KiB`, `1MiB`, `1MB`)");
    let time = "a time of 100ms to 365d, with its unit (`500ms`, `30s`, `10m`, `1h`)";
    let frame = "a size of 1,024 to 2,147,483,647 bytes (`65536`, `64KiB`, `1MiB`, `1MB`)";
    let topic =
        "a topic (`orders`), a glob (`orders.*`) or a regular expression (`/orders-[0-9]+/`)";
    let cases: Vec<(&str, &str, String)> = vec![
        ("mode: enforced", "mode", "`enforced` is not `enforce` or `observe`".into()),
        ("near_limit: 0", "near_limit", "`0` is not a share above 0 and at most 1, such as `0.8`".into()),
        ("near_limit: 1.1", "near_limit", "`1.1` is not a share above 0 and at most 1, such as `0.8`".into()),
        ("near_limit: NaN", "near_limit", "`NaN` is not a share above 0 and at most 1, such as `0.8`".into()),
        ("memory: {budget: 1KiB}", "memory.budget", format!("`1KiB` is not {}", at_least("1,048,576"))),
        ("limits: {batch_bytes: 0}", "limits.batch_bytes", format!("`0` is not `inherit`, `none` or {}", at_least("68"))),
        ("limits: {batch_bytes: 67}", "limits.batch_bytes", format!("`67` is not `inherit`, `none` or {}", at_least("68"))),
        ("limits: {batch_bytes: inherited}", "limits.batch_bytes", format!("`inherited` is not `inherit`, `none` or {}", at_least("68"))),
        ("limits: {record_bytes: 6}", "limits.record_bytes", format!("`6` is not {}", at_least("7"))),
        ("limits: {record_bytes: none}", "limits.record_bytes", format!("`none` is not {}", at_least("7"))),
        ("limits: {record_bytes: 64K}", "limits.record_bytes", format!("`64K` is not {}", at_least("7"))),
        ("limits: {record_bytes: 99999999999999999999}", "limits.record_bytes", format!("`99999999999999999999` is not {}: too large", at_least("7"))),
        ("limits: {uncompressed_bytes: 0}", "limits.uncompressed_bytes", format!("`0` is not {}", at_least("68"))),
        ("limits: {estimate_bytes: -1}", "limits.estimate_bytes", format!("`-1` is not {}", at_least("68"))),
        ("limits: {key_bytes: 0}", "limits.key_bytes", format!("`0` is not {}", at_least("1"))),
        ("limits: {value_bytes: 0}", "limits.value_bytes", format!("`0` is not {}", at_least("1"))),
        ("limits: {headers_bytes: 0}", "limits.headers_bytes", format!("`0` is not {}", at_least("1"))),
        ("limits: {ratio: 1}", "limits.ratio", "`1` is not a number above 1, such as `100`: how many times its wire bytes a batch may hold".into()),
        ("listener: {bind: 'localhost:19092'}", "listener.bind", "`localhost:19092` is not an IP address and a port, such as `127.0.0.1:19092`, `0.0.0.0:19092` or `[::]:19092`".into()),
        ("listener: {advertised_host: 'kafka:9092'}", "listener.advertised_host", "`kafka:9092` is not a host name or an IP address, without a port".into()),
        ("listener: {node_ports: {first: 65536}}", "listener.node_ports.first", "`65536` is not a port, 0 to 65535".into()),
        ("listener: {node_ports: {node_ids: 9-0}}", "listener.node_ports.node_ids[0]", "`9-0` is not a broker id or a range of them, such as `0-9` or `0-9,1001-1003`: it ends before it begins".into()),
        ("listener: {node_ports: {node_ids: [-1]}}", "listener.node_ports.node_ids[0]", "`-1` is not a broker id or a range of them, such as `0-9` or `0-9,1001-1003`".into()),
        ("listener: {node_ports: {node_ids: []}}", "listener.node_ports.node_ids", "is an empty list: no broker would have a port".into()),
        ("listener: {node_ports: {node_ids: '0-4,3-9'}}", "listener.node_ports.node_ids", "names broker 3 twice".into()),
        ("listener: {node_ports: {node_ids: '1,1'}}", "listener.node_ports.node_ids", "names broker 1 twice".into()),
        ("listener: {node_ports: {node_ids: 0-2147483647}}", "listener.node_ports.node_ids", "names more brokers than there are ports (65,535)".into()),
        ("listener: {frame_bytes: 1023}", "listener.frame_bytes", format!("`1023` is not {frame}")),
        ("listener: {frame_bytes: 2GiB}", "listener.frame_bytes", format!("`2GiB` is not {frame}")),
        ("listener: {max_connections: 0}", "listener.max_connections", "`0` is not a whole number from 1 to 10,000,000".into()),
        ("listener: {max_connections: 1.5}", "listener.max_connections", "`1.5` is not a whole number from 1 to 10,000,000".into()),
        ("listener: {idle_timeout: 0s}", "listener.idle_timeout", format!("`0s` is not {time}")),
        ("listener: {idle_timeout: 10}", "listener.idle_timeout", format!("`10` is not {time}")),
        ("listener: {idle_timeout: 10min}", "listener.idle_timeout", format!("`10min` is not {time}")),
        ("inspection: {decode: sometimes}", "inspection.decode", "`sometimes` is not `when_needed`, `always` or `never`".into()),
        ("telemetry: {log: xml}", "telemetry.log", "`xml` is not `text` or `json`".into()),
        ("telemetry: {log_level: verbose}", "telemetry.log_level", "`verbose` is not `error`, `warn`, `info`, `debug` or `trace`".into()),
        ("families: {detect: maybe}", "families.detect", "`maybe` is not `true` or `false`".into()),
        ("families: {headroom: -1}", "families.headroom", "`-1` is not a size (`65536`, `64KiB`, `1MiB`, `1MB`)".into()),
        ("families: {members: [{main: a, retry: [b], alignment: strict}]}", "families.members[0].alignment", "`strict` is not `enforce` or `warn`".into()),
        ("families: {members: [{main: a}]}", "families.members[0]", "has no members: write `retry` or `dead_letter` (or both)".into()),
        ("families: {members: [{retry: [b]}]}", "families.members[0].main", "is missing: the topic whose retry and dead-letter topics these are".into()),
        ("rules: [{name: a b, topics: [t]}]", "rules[0].name", "`a b` is not a name of 1 to 100 letters, digits, `.`, `_` and `-`".into()),
        ("rules: [{topics: [t]}]", "rules[0].name", "is missing: every refusal by this rule names it".into()),
        ("rules: [{name: a}]", "rules[0].topics", "is missing: the topics it is for, such as `topics: [orders, \"orders.*\"]`".into()),
        ("rules: [{name: a, topics: []}]", "rules[0].topics", "is an empty list: the rule would be for no topic".into()),
        ("rules: [{name: a, topics: [/(/]}]", "rules[0].topics[0]", format!("`/(/` is not {topic}: unclosed group")),
        ("rules: [{name: a, topics: ['a[bc]*']}]", "rules[0].topics[0]", format!("`a[bc]*` is not {topic}: a topic's name has no `[`")),
        ("rules: [{name: a, topics: [t], action: drop}]", "rules[0].action", "`drop` is not `reject` or `observe`".into()),
        ("rules: [{name: a, topics: [t], action: offload}]", "rules[0].action", "`offload` is not `reject` or `observe`: the claim check is not in this version".into()),
        ("rules: [{name: a, topics: [t], error_code: 10}]", "rules[0].error_code", "`10` is not `auto`, `MESSAGE_TOO_LARGE`, `POLICY_VIOLATION` or `INVALID_RECORD`".into()),
        ("rules: [{name: a, topics: [t], remedy: \"two\\nlines\"}]", "rules[0].remedy", "`two\\nlines` is not one line of text of 1 to 512 bytes".into()),
    ];
    for (text, key, expected) in cases {
        refused(text, &[&format!("F:2: {key}: {expected}")]);
    }
}

#[test]
fn contradictions_are_refused_at_the_key_that_has_to_change() {
    for (text, expected) in [
        (
            "listener: {frame_bytes: 513MiB}",
            "F:2: listener.frame_bytes: `513MiB` is more than may be held at once (memory.budget: 512MiB)",
        ),
        (
            "memory: {budget: 99MiB}",
            "F:2: listener.frame_bytes: `100MiB` is more than may be held at once (memory.budget: 99MiB)",
        ),
        (
            "rules: [{name: a, topics: [t], limits: {batch_bytes: 101MiB}}]",
            "F:2: rules[0].limits.batch_bytes: `101MiB` is never reached: a whole request is at most 100MiB \
             (listener.frame_bytes)",
        ),
        (
            "admin: {bind: '127.0.0.1:19092'}",
            "F:2: admin.bind: `127.0.0.1:19092` is taken by `listener.bind: 127.0.0.1:19092`",
        ),
        (
            "admin: {bind: '0.0.0.0:19092'}",
            "F:2: admin.bind: `0.0.0.0:19092` is taken by `listener.bind: 127.0.0.1:19092`",
        ),
        (
            "admin: {bind: '127.0.0.1:19095'}",
            "F:2: admin.bind: `127.0.0.1:19095` is among the ports of the brokers, 19093 to 19102 (listener.node_ports)",
        ),
        (
            "listener: {node_ports: {first: 19090}}",
            "F:2: listener.bind: `127.0.0.1:19092` is among the ports of the brokers, 19090 to 19099 (listener.node_ports)",
        ),
        (
            "listener: {node_ports: {first: 65530}}",
            "F:2: listener.node_ports.first: `65530` is too high: 10 brokers (node_ids) would reach port 65539, and the \
             last is 65535",
        ),
        (
            "listener: {sni: {bootstrap: k, node: 'b{node_id}'}}",
            "F:2: listener.sni: needs `listener.tls`: brokers are told apart by the name in the client's TLS hello",
        ),
        (
            "listener: {tls: {cert_file: DIR/cert.pem, key_file: DIR/key.pem}, node_ports: {first: 1}, sni: {bootstrap: k, \
             node: 'b{node_id}'}}",
            "F:2: listener.sni: stands beside `node_ports`: write one of the two (sni: one port for all brokers, told apart \
             by name; node_ports: one port for each)",
        ),
        (
            "listener: {tls: {cert_file: DIR/cert.pem, key_file: DIR/key.pem}, advertised_host: h, sni: {bootstrap: k, \
             node: 'b{node_id}'}}",
            "F:2: listener.advertised_host: has no effect beside `sni`, which tells clients `sni.bootstrap` and `sni.node`: \
             remove it",
        ),
        (
            "rules:\n- {name: a, topics: [t]}\n- {name: a, topics: [u]}",
            "F:4: rules[1].name: `a` is the name of an earlier rule (F:3): a refusal could not say which",
        ),
        (
            "rules:\n- {name: all, topics: ['*']}\n- {name: a, topics: [t, 'u*']}",
            "F:4: rules[1].topics: never match: the first rule that matches wins, and `all` (F:3) comes first",
        ),
        (
            "rules:\n- {name: a, topics: ['t*', /u+/]}\n- {name: b, topics: [two, uu]}",
            "F:4: rules[1].topics: never match: the first rule that matches wins, and `a` (F:3) comes first",
        ),
        (
            "families: {members: [{main: a, retry: [a]}]}",
            "F:2: families.members[0].retry[0]: `a` is the main topic itself",
        ),
        (
            "families:\n  members:\n  - {main: a, retry: [b]}\n  - {main: a, dead_letter: [c]}",
            "F:5: families.members[1].main: `a` has a family already (F:4)",
        ),
        (
            "families: {members: [{main: a, dead_letter: [a-dlt]}]}\nrules: [{name: r, topics: ['*-dlt'], limits: \
             {record_bytes: 64KiB}}]",
            "F:2: families.members[0].dead_letter[0]: rule `r` gives `a-dlt` record_bytes: 64KiB, and families.headroom \
             (64KiB) leaves nothing of it for `a`",
        ),
    ] {
        refused(text, &[expected]);
    }
    // Beside them: what looks alike and is fine.
    for text in [
        "listener: {frame_bytes: 512MiB}",
        "rules: [{name: a, topics: [t], limits: {batch_bytes: 100MiB}}]",
        "listener: {bind: '10.0.0.1:19092'}\nadmin: {bind: '10.0.0.2:19092'}",
        "listener: {bind: '10.0.0.1:19092'}\nadmin: {bind: '10.0.0.2:19093'}",
        "listener: {node_ports: {first: 65526}}",
        "rules:\n- {name: a, topics: ['t*']}\n- {name: b, topics: [two, u]}",
        "families: {members: [{main: a, dead_letter: [a-dlt], alignment: warn}]}\nrules: [{name: r, topics: ['*-dlt'], \
         limits: {record_bytes: 64KiB}}]",
        "families: {members: [{main: a, dead_letter: [a-dlt]}]}\nrules: [{name: r, topics: ['*-dlt'], limits: \
         {record_bytes: 65537}}]",
    ] {
        with(text);
    }
}

#[test]
fn a_limit_that_needs_a_decode_contradicts_never() {
    let why = "needs compressed batches to be decoded, but `inspection.decode` is `never`: write `when_needed`, or remove \
               this limit";
    for limit in [
        "uncompressed_bytes",
        "record_bytes",
        "estimate_bytes",
        "key_bytes",
        "value_bytes",
        "headers_bytes",
        "ratio",
    ] {
        refused(
            &format!(
                "limits: {{{limit}: 100}}\nrules: [{{name: a, topics: [t], limits: {{{limit}: 100}}}}]\n\
                      inspection: {{decode: never}}\n"
            ),
            &[
                &format!("F:2: limits.{limit}: {why}"),
                &format!("F:3: rules[0].limits.{limit}: {why}"),
            ],
        );
    }
    with("limits: {batch_bytes: 1MiB}\ninspection: {decode: never}\n");
}

#[test]
fn tls_and_sasl_are_whole_or_a_mistake() {
    let sasl =
        |text: &str| format!("cluster: {{bootstrap_servers: [b:1], admin: {{sasl: {{{text}}}}}}}");
    let tls = |text: &str| format!("cluster: {{bootstrap_servers: [b:1], tls: {{{text}}}}}");
    let listener = |text: &str| {
        format!("cluster: {{bootstrap_servers: [b:1]}}\nlistener: {{tls: {{{text}}}}}")
    };
    for (text, expected) in [
        (
            sasl(""),
            vec![
                "F:1: cluster.admin.sasl.mechanism: is missing: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`",
                "F:1: cluster.admin.sasl.username: is missing: the control plane's user",
                "F:1: cluster.admin.sasl.password: is missing: write `password_file: FILE`, or `password: ${VARIABLE}` to \
                 take it from the environment",
            ],
        ),
        (
            sasl("mechanism: GSSAPI, username: u, password: p"),
            vec![
                "F:1: cluster.admin.sasl.mechanism: `GSSAPI` is not `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`",
            ],
        ),
        (
            sasl("mechanism: PLAIN, username: u, password: p, password_file: DIR/password"),
            vec![
                "F:1: cluster.admin.sasl.password_file: stands beside `password`: write one of the two",
            ],
        ),
        (
            sasl("mechanism: PLAIN, username: u, password_file: DIR/none"),
            vec![
                "F:1: cluster.admin.sasl.password_file: cannot read `DIR/none`: No such file or directory (os error 2)",
            ],
        ),
        (
            sasl("mechanism: PLAIN, username: u, password_file: DIR/empty"),
            vec!["F:1: cluster.admin.sasl.password_file: `DIR/empty` is empty"],
        ),
        (
            sasl("mechanism: PLAIN, username: u, password: ''"),
            vec!["F:1: cluster.admin.sasl.password: `` is not a password: it is empty"],
        ),
        (
            tls("cert_file: DIR/cert.pem"),
            vec!["F:1: cluster.tls.key_file: is missing: the certificate's private key, PEM"],
        ),
        (
            tls("key_file: DIR/key.pem"),
            vec!["F:1: cluster.tls.cert_file: is missing: the certificate chain, PEM"],
        ),
        (
            tls("ca_file: DIR/none"),
            vec![
                "F:1: cluster.tls.ca_file: cannot read `DIR/none`: No such file or directory (os error 2)",
            ],
        ),
        (
            tls("ca_file: DIR/key.pem, cert_file: DIR/password, key_file: DIR/cert.pem"),
            vec![
                "F:1: cluster.tls.ca_file: `DIR/key.pem` holds no certificate in PEM form",
                "F:1: cluster.tls.cert_file: `DIR/password` holds no certificate in PEM form",
                "F:1: cluster.tls.key_file: `DIR/cert.pem` holds no private key in PEM form",
            ],
        ),
        (
            listener("client_ca_file: DIR/cert.pem"),
            vec![
                "F:2: listener.tls.cert_file: is missing: the certificate chain, PEM",
                "F:2: listener.tls.key_file: is missing: the certificate's private key, PEM",
            ],
        ),
    ] {
        assert_eq!(load(&text).expect_err(&text), expected, "{text}");
    }
    let config = load(&tls("")).expect("TLS with the system's CAs");
    assert!(config.cluster.tls.is_some());
}

#[test]
fn sni_is_whole_or_a_mistake() {
    let tls = "listener:\n  tls: {cert_file: DIR/cert.pem, key_file: DIR/key.pem}\n";
    refused(
        &format!("{tls}  sni: {{advertised_port: 0}}\n"),
        &[
            "F:4: listener.sni.advertised_port: `0` is not a whole number from 1 to 65,535",
            "F:4: listener.sni.bootstrap: is missing: the name in clients' `bootstrap.servers`, such as \
             `kafka.example.com`",
            "F:4: listener.sni.node: is missing: brokers' names for clients, such as `b{node_id}.kafka.example.com`",
        ],
    );
    for node in [
        "b.kafka",
        "{node_id}{node_id}",
        "b{node_id}:9092",
        "b{node_id}.kafka example",
    ] {
        refused(
            &format!("{tls}  sni: {{bootstrap: k, node: '{node}'}}\n"),
            &[&format!(
                "F:4: listener.sni.node: `{node}` is not a host name in which {{node_id}} stands once, such as \
                 `b{{node_id}}.kafka.example.com`"
            )],
        );
    }
    let config = with(&format!(
        "{tls}  sni: {{bootstrap: k, node: 'b{{node_id}}'}}\n  bind: 0.0.0.0:9093\n"
    ));
    match config.listener.advertise {
        Advertise::Sni {
            advertised_port, ..
        } => assert_eq!(advertised_port, 9093, "the bind port if not said"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_not_yaml_as_we_take_it_is_refused_with_its_line() {
    for (text, expected) in [
        (
            "mode: [a",
            "F:3: is not YAML: while parsing a flow sequence, expected ',' or ']'",
        ),
        (
            "a: &x 1\nb: *x\n",
            "F:2: holds an anchor or alias (`&x` or `*x`): write the value out",
        ),
        (
            "a: !!str 1\n",
            "F:2: holds a YAML tag (`!…`), which means nothing here",
        ),
        (
            "---\nmode: observe\n",
            "F:3: a second document begins here: one file is one document",
        ),
        ("[a]: 1\n", "F:2: a key must be a plain word"),
    ] {
        let mistakes = load(&format!("{MINIMAL}{text}")).expect_err(text);
        assert_eq!(mistakes.len(), 1, "{mistakes:?}");
        let start = expected.split(", expected").next().unwrap_or(expected);
        assert!(mistakes[0].starts_with(start), "{}", mistakes[0]);
    }
    assert_eq!(
        load("just text").expect_err("text"),
        ["F:1: must hold keys, such as `cluster:`"]
    );
    let deep = format!("a: {}", "[".repeat(100_000));
    let mistakes = load(&deep).expect_err("too deep");
    assert_eq!(mistakes.len(), 1, "{mistakes:?}");
    let nothing = load("# nothing but a comment\n").expect_err("no brokers");
    assert!(
        nothing[0].starts_with("F: cluster.bootstrap_servers: is missing"),
        "{nothing:?}"
    );
    let long = load(&"#".repeat(1_048_577)).expect_err("too long");
    assert_eq!(long, ["F: cannot be read: longer than 1048576 bytes"]);
}

#[test]
fn all_mistakes_come_in_one_go_in_the_order_of_the_file_and_no_more_than_fifty() {
    let text = "listener: {bind: x}\nmode: y\nrules:\n- {name: a, topics: [t], action: z}\n- {name: a, topics: [u]}\n";
    let mistakes = load(&format!("{MINIMAL}{text}nope: 1\n")).expect_err(text);
    let starts: Vec<&str> = mistakes
        .iter()
        .filter_map(|line| line.split(": ").nth(1))
        .collect();
    assert_eq!(
        starts,
        [
            "listener.bind",
            "mode",
            "rules[0].action",
            "rules[1].name",
            "nope"
        ]
    );
    let many: String = (0..1_000).map(|i| format!("k{i}: 1\n")).collect();
    let mistakes = load(&many).expect_err("many");
    assert_eq!(mistakes.len(), 51);
    assert_eq!(mistakes[50], "and more: only the first 50 are listed");
}

#[test]
fn a_reload_takes_over_what_it_can_and_names_what_needs_a_restart() {
    let old = with("");
    let cases = [
        ("mode: observe", vec!["mode"], vec![]),
        (
            "limits: {record_bytes: 64KiB}",
            vec!["limits.record_bytes"],
            vec![],
        ),
        ("rules: [{name: a, topics: [t]}]", vec!["rules"], vec![]),
        (
            "families: {headroom: 1KiB}",
            vec!["families.headroom"],
            vec![],
        ),
        ("near_limit: 0.5", vec!["near_limit"], vec![]),
        (
            "inspection: {decode: always}",
            vec!["inspection.decode"],
            vec![],
        ),
        (
            "telemetry: {log_level: debug}",
            vec!["telemetry.log_level"],
            vec![],
        ),
        (
            "telemetry: {log: json, topics: 5}",
            vec![],
            vec!["telemetry.topics", "telemetry.log"],
        ),
        ("memory: {budget: 1GiB}", vec![], vec!["memory.budget"]),
        ("admin: {bind: '127.0.0.1:1'}", vec![], vec!["admin.bind"]),
        (
            "listener: {bind: '127.0.0.1:2', frame_bytes: 1MiB, max_connections: 1, idle_timeout: 1s, advertised_host: h}",
            vec![],
            vec![
                "listener.bind",
                "listener.advertised_host",
                "listener.node_ports.first",
                "listener.frame_bytes",
                "listener.max_connections",
                "listener.idle_timeout",
            ],
        ),
        (
            "listener: {tls: {cert_file: DIR/cert.pem, key_file: DIR/key.pem}}",
            vec![],
            vec!["listener.tls"],
        ),
        (
            "mode: observe\nmemory: {budget: 1GiB}",
            vec!["mode"],
            vec!["memory.budget"],
        ),
        ("", vec![], vec![]),
    ];
    for (text, live, needs_restart) in cases {
        let new = with(text);
        let reload = config::reload(&old, &new);
        assert_eq!(
            (&reload.live, &reload.needs_restart),
            (&strings(&live), &strings(&needs_restart)),
            "{text}"
        );
        // What is in force differs from the old in the live keys, from the new in those that need a restart.
        let kept = config::reload(&old, &reload.config);
        assert_eq!(
            (kept.live, kept.needs_restart),
            (strings(&live), vec![]),
            "{text}"
        );
        let left = config::reload(&reload.config, &new);
        assert_eq!(
            (left.live, left.needs_restart),
            (vec![], strings(&needs_restart)),
            "{text}"
        );
    }
    let password = |password: &str| {
        let sasl = format!("{{mechanism: PLAIN, username: u, password: {password}}}");
        load(&format!(
            "cluster: {{bootstrap_servers: [b:9092], admin: {{sasl: {sasl}}}}}\n"
        ))
        .expect("a config")
    };
    let reload = config::reload(&password("a"), &password("b"));
    assert_eq!(
        reload.needs_restart,
        ["cluster.admin.sasl.password"],
        "hidden, and compared all the same"
    );
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn advice_is_given_on_what_is_most_likely_not_meant() {
    for (text, expected) in [
        ("", vec![]),
        (
            "listener: {bind: '0.0.0.0:19092'}",
            vec![
                "listener.advertised_host is `localhost`, but listener.bind is `0.0.0.0:19092`: clients on other machines \
                  would be sent to themselves",
            ],
        ),
        (
            "listener: {bind: '0.0.0.0:19092', advertised_host: kafka}",
            vec![],
        ),
        (
            "rules: [{name: a, topics: [t], limits: {batch_bytes: 64KiB}}]",
            vec![
                "rule `a` has batch_bytes 64KiB: librdkafka, franz-go, kafka-go and sarama gather up to about 1 MB in a \
                  batch and lose all of it when it is refused; record_bytes refuses large records without that",
            ],
        ),
        ("limits: {batch_bytes: 1MiB}", vec![]),
    ] {
        assert_eq!(with(text).advice(), expected, "{text}");
    }
}

mod shipped {
    //! The files in `config/`.

    use super::*;
    use saphyr_parser::{Event, Parser};

    fn read(name: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("config")
            .join(name);
        std::fs::read_to_string(path).expect(name)
    }

    /// Every line that is off, switched on: those that begin with `#` and no space.
    fn switched_on(text: &str) -> String {
        let on = |line: &str| match line.split_once('#') {
            Some((indent, key)) if indent.trim().is_empty() && !key.starts_with(' ') => {
                format!("{indent}{key}\n")
            }
            _ => format!("{line}\n"),
        };
        text.lines().map(on).collect()
    }

    /// The dotted paths of all keys of a YAML text, entries of lists as `[]`.
    fn keys(text: &str) -> Vec<String> {
        // What is open: a list (`None`), or a section and the key whose value comes next.
        enum Open {
            List,
            Section(Option<String>),
        }
        let mut found = Vec::new();
        let mut open: Vec<Open> = Vec::new();
        let close = |open: &mut Vec<Open>| {
            if let Some(Open::Section(key)) = open.last_mut() {
                *key = None;
            }
        };
        for event in Parser::new_from_str(text) {
            match event.expect("YAML").0 {
                Event::MappingStart(..) => open.push(Open::Section(None)),
                Event::SequenceStart(..) => open.push(Open::List),
                Event::MappingEnd | Event::SequenceEnd => {
                    open.pop();
                    close(&mut open);
                }
                Event::Scalar(text, ..) => match open.last_mut() {
                    Some(Open::Section(key @ None)) => {
                        *key = Some(text.into_owned());
                        let mut path = String::new();
                        for level in &open {
                            match level {
                                Open::List => path.push_str("[]"),
                                Open::Section(key) => {
                                    let dot = if path.is_empty() { "" } else { "." };
                                    path = format!(
                                        "{path}{dot}{}",
                                        key.as_deref().unwrap_or_default()
                                    );
                                }
                            }
                        }
                        found.push(path);
                    }
                    _ => close(&mut open),
                },
                _ => {}
            }
        }
        found
    }

    #[test]
    fn the_reference_names_every_key_and_no_other() {
        let mut found = keys(&switched_on(&read("sizegate.yaml")));
        let mut known = config::known_keys();
        found.sort();
        known.sort();
        assert_eq!(found, known);
    }

    #[test]
    fn what_is_on_in_the_reference_is_the_default() {
        assert_eq!(
            load(&read("sizegate.yaml")),
            load("cluster: {bootstrap_servers: [localhost:9092]}\n")
        );
    }

    #[test]
    fn what_is_off_in_the_reference_can_be_switched_on() {
        let text = switched_on(&read("sizegate.yaml"));
        let env = [("KAFKA_PASSWORD", "hunter2")];
        let mistakes = load_with(&text, &Overrides::default(), &env)
            .expect_err("alternatives, and files that are not here");
        for mistake in &mistakes {
            let expected = mistake.contains(": cannot read `/etc/sizegate/")
                || mistake.contains("password_file: stands beside `password`")
                || mistake.contains("listener.sni: stands beside `node_ports`");
            assert!(expected, "{mistake}");
        }
        assert_eq!(mistakes.len(), 8, "{}", mistakes.join("\n"));
    }

    #[test]
    fn the_smallest_config_is_the_defaults() {
        assert_eq!(
            load(&read("minimal.yaml")),
            load("cluster: {bootstrap_servers: [localhost:9092]}\n")
        );
    }

    #[test]
    fn the_worked_example_holds_events_to_64_kib() {
        let config = load(&read("libraryd.yaml")).expect("the worked example");
        assert_eq!(config.rules[0].limits.value_bytes, Some(65_536));
        assert_eq!(
            config.rules[0].limits.batch_bytes,
            Some(BatchLimit::Inherit)
        );
        assert!(config.advice().is_empty(), "{:?}", config.advice());
    }
}

/// YAML-like text: pieces of real configs and of YAML's own syntax, in any order.
fn yamlish() -> impl Strategy<Value = String> {
    let mut pieces: Vec<String> = [
        "\n",
        "\n  ",
        "\n    ",
        "- ",
        ": ",
        ":",
        "[",
        "]",
        "{",
        "}",
        ",",
        "\"",
        "'",
        "#",
        "&a ",
        "*a",
        "!t ",
        "|",
        ">",
        "?",
        "---",
        "...",
        "~",
        "null",
        "${A}",
        "${",
        "\t",
        "\u{feff}",
        "\u{0}",
        "é",
        "%",
        "@",
        "9999999999999999999",
        "-1",
        "0-2147483647",
        "64KiB",
        "/(/",
        "*",
        "a:1",
        ".",
        "[0]",
    ]
    .map(str::to_owned)
    .to_vec();
    for key in config::known_keys() {
        let key = key.rsplit(['.', ']']).next().unwrap_or_default().to_owned();
        pieces.push(format!("\n{key}: "));
        pieces.push(format!("\n  {key}: "));
        pieces.push(key);
    }
    prop::collection::vec(prop::sample::select(pieces), 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_like_yaml_never_panics(text in yamlish()) {
        let _ = load(&text);
    }

    #[test]
    fn the_reference_with_a_piece_replaced_never_panics(at in 0.0..1.0f64, length in 0..200usize, piece in yamlish()) {
        let text = include_str!("../config/sizegate.yaml");
        let boundary = |mut i: usize| { while !text.is_char_boundary(i) { i -= 1 } i };
        let start = boundary((at * text.len() as f64) as usize);
        let end = boundary((start + length).min(text.len()));
        let _ = load(&format!("{}{piece}{}", &text[..start], &text[end..]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_and_variables_never_panic(text in any::<String>(), name in "(SIZEGATE__)?\\PC{0,40}", value in any::<String>()) {
        let env = BTreeMap::from([(name, value)]);
        let _ = config::load(None, &Overrides { bootstrap_servers: Some(text.clone()) }, &env);
        let _ = load(&text);
    }
}
