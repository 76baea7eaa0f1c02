//! Single mistakes: what is said of each.

use super::*;

#[test]
fn unknown_and_doubled_keys_are_refused_with_the_nearest_known() {
    let top = "cluster, listener, mode, limits, rules, families, ignore, claim_check, near_limit, memory, inspection, admin, refusals, telemetry";
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
fn clients_of_a_rule_are_names_globs_or_expressions_and_never_nobody() {
    refused(
        "rules:\n- {name: a, topics: [t], clients: {}}\n- {name: b, topics: [u], clients: {client_ids: []}}\n\
         - {name: c, topics: [v], clients: {principals: [/(/], softwares: [x]}}\n",
        &[
            "F:3: rules[0].clients: names no clients: write `client_ids`, `principals` or `software` (or remove it)",
            "F:4: rules[1].clients.client_ids: is an empty list: the rule would be for no client",
            "F:5: rules[2].clients.softwares: unknown key; did you mean `software`? Keys allowed in it: client_ids, \
             principals, software",
            "F:5: rules[2].clients.principals[0]: `/(/` is not a name (`checkout`), a glob (`checkout-*`) or a regular \
             expression (`/checkout-[0-9]+/`): unclosed group",
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
             alignment, writer_max_request_size)",
            "F:7: families.members[1].retry[0]: is a list, not a topic (`orders-dlt`, `{main}-dlt`), a glob \
             (`{main}-retry-*`) or a regular expression (`/{main}-retry-[0-9]+/`)",
        ],
    );
    refused(
        "cluster_tls:\nlistener:\n  tls:\n",
        &[
            "F:2: cluster_tls: unknown key; keys allowed at the top: cluster, listener, mode, limits, rules, families, ignore, \
             claim_check, near_limit, memory, inspection, admin, refusals, telemetry",
            "F:4: listener.tls: is empty: write a section with keys of its own (cert_file, key_file, client_ca_file), or \
             remove the key",
        ],
    );
}

#[test]
fn impossible_values_say_what_is_allowed() {
    let least_1 = "a size of at least 1 byte (`65536`, `64KiB`, `1MiB`, `1MB`)";
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
        ("limits: {record_bytes: 6}", "limits.record_bytes", format!("`6` is not `none` or {}", at_least("7"))),
        ("limits: {record_bytes: inherit}", "limits.record_bytes", format!("`inherit` is not `none` or {}", at_least("7"))),
        ("limits: {record_bytes: 64K}", "limits.record_bytes", format!("`64K` is not `none` or {}", at_least("7"))),
        ("limits: {record_bytes: 99999999999999999999}", "limits.record_bytes", format!("`99999999999999999999` is not `none` or {}: too large", at_least("7"))),
        ("limits: {uncompressed_bytes: 0}", "limits.uncompressed_bytes", format!("`0` is not `none` or {}", at_least("68"))),
        ("limits: {estimate_bytes: -1}", "limits.estimate_bytes", format!("`-1` is not `none` or {}", at_least("68"))),
        ("limits: {key_bytes: 0}", "limits.key_bytes", format!("`0` is not `none` or {}", least_1)),
        ("limits: {value_bytes: 0}", "limits.value_bytes", format!("`0` is not `none` or {}", least_1)),
        ("limits: {headers_bytes: 0}", "limits.headers_bytes", format!("`0` is not `none` or {}", least_1)),
        ("rules: [{name: limits, topics: [a]}]", "rules[0].name", "`limits` is not a name of 1 to 100 letters, digits, `.`, `_` and `-`: `limits` is what holds where no rule does".into()),
        ("limits: {ratio: 1}", "limits.ratio", "`1` is not `none` or a number above 1, such as `100`: how many times its wire bytes a batch may hold".into()),
        ("listener: {bind: 'localhost:19092'}", "listener.bind", "`localhost:19092` is not an IP address and a port, such as `127.0.0.1:19092`, `0.0.0.0:19092` or `[::]:19092`".into()),
        ("listener: {bind: '127.0.0.1:0'}", "listener.bind", "`127.0.0.1:0` is not an IP address and a port, such as `127.0.0.1:19092`, `0.0.0.0:19092` or `[::]:19092`: a port is 1 to 65535".into()),
        ("listener: {node_ports: {first: 0}}", "listener.node_ports.first", "`0` is not a whole number from 1 to 65,535".into()),
        ("listener: {advertised_host: 'kafka:9092'}", "listener.advertised_host", "`kafka:9092` is not a host name or an IP address, without a port".into()),
        ("listener: {node_ports: {first: 65536}}", "listener.node_ports.first", "`65536` is not a whole number from 1 to 65,535".into()),
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
        ("rules: [{name: a, topics: [t], action: drop}]", "rules[0].action", "`drop` is not `reject`, `observe` or `offload`".into()),
        ("rules: [{name: a, topics: [t], error_code: 10}]", "rules[0].error_code", "`10` is not `auto`, `MESSAGE_TOO_LARGE`, `POLICY_VIOLATION` or `INVALID_RECORD`".into()),
        ("rules: [{name: a, topics: [t], remedy: \"two\\nlines\"}]", "rules[0].remedy", "`two\\nlines` is not one line of text of 1 to 512 bytes".into()),
    ];
    for (text, key, expected) in cases {
        refused(text, &[&format!("F:2: {key}: {expected}")]);
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
            "cluster: {bootstrap_servers: [${HOSTS}]}\n",
            "F:2: is not YAML: while parsing a flow sequence, expected ',' or ']'; quote it: [\"${HOSTS}\"]",
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
    let long = load(&"#".repeat(8_388_609)).expect_err("too long");
    assert_eq!(long, ["F: cannot be read: longer than 8388608 bytes"]);
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
