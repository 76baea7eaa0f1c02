//! What the environment and the command line set, and what they may get wrong.

use super::*;

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
            "SIZEGATE__FAMILIES__MEMBERS__0__MAIN",
            "x",
            "SIZEGATE__FAMILIES__MEMBERS__0__MAIN: names entry 0, but families.members has no entries; the environment can \
             change one, not add one",
        ),
        (
            "SIZEGATE__LISTNER__BIND",
            "1",
            "SIZEGATE__LISTNER__BIND: listner: unknown key; did you mean `listener`? Keys allowed at the top: cluster, \
             listener, mode, limits, rules, families, ignore, claim_check, near_limit, memory, inspection, admin, \
             refusals, telemetry",
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
