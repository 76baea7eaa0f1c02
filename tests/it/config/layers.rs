//! What is read from where: defaults, file, environment, command line; and written back.

use super::*;

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
        uncompressed_bytes: Some(InsideLimit::At(4 << 20)),
        record_bytes: Some(InsideLimit::At(65_536)),
        estimate_bytes: Some(InsideLimit::At(1_000_000)),
        key_bytes: Some(InsideLimit::At(1)),
        value_bytes: Some(InsideLimit::At(2)),
        headers_bytes: Some(InsideLimit::At(3)),
        ratio: Some(InsideLimit::At(99.5)),
    };
    assert_eq!(rule.limits, limits);
    let lifted = config::Limits {
        batch_bytes: Some(BatchLimit::None),
        record_bytes: Some(InsideLimit::None),
        ratio: Some(InsideLimit::None),
        ..config::Limits::default()
    };
    assert_eq!(config.rules[1].limits, lifted);
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
  - {name: free, topics: [free], limits: {batch_bytes: none, record_bytes: none, ratio: none}}
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
        ("listener: {bind: '0.0.0.0:65525'}", 65526),
    ] {
        match with(text).listener.advertise {
            Advertise::NodePorts { first, .. } => assert_eq!(first, expected, "{text}"),
            Advertise::Sni { .. } => panic!("{text}"),
        }
    }
}
