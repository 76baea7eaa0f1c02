//! Keys that are right alone and wrong together; sections that must be whole; advice.

use super::*;

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
            "rules: [{name: a, topics: [t], topic_config: {max_message_bytes: {min: 2MiB, max: 1MiB}}}]",
            "F:2: rules[0].topic_config.max_message_bytes.min: `2MiB` is more than `max: 1MiB`: no value could be set",
        ),
        (
            "rules: [{name: a, topics: [t], topic_config: {max_message_bytes: {min: 2MiB}, segment_bytes: {max: 1MiB}}}]",
            "F:2: rules[0].topic_config.max_message_bytes.min: `2MiB` is more than a segment may be (segment_bytes.max: \
             1MiB): a batch must fit a segment",
        ),
        (
            "rules: [{name: a, topics: [t], limits: {batch_bytes: 2MiB}, topic_config: {max_message_bytes: {max: 1MiB}}}]",
            "F:2: rules[0].limits.batch_bytes: `2MiB` is never reached: this rule lets its topics take at most 1MiB \
             (topic_config.max_message_bytes.max)",
        ),
        (
            "rules: [{name: a, topics: [t], topic_config: {max_message_bytes: {}}}]",
            "F:2: rules[0].topic_config.max_message_bytes: has no bound: write `min` or `max` (or both)",
        ),
        (
            "rules: [{name: a, topics: [t], topic_config: {brokers: true}}]",
            "F:2: rules[0].topic_config: governs nothing: write `max_message_bytes`, `segment_bytes` or `compression_type` \
             (or remove it)",
        ),
        (
            "rules: [{name: a, topics: [t], topic_config: {compression_type: []}}]",
            "F:2: rules[0].topic_config.compression_type: is an empty list: a topic could have no compression.type at all",
        ),
        (
            "rules: [{name: a, topics: [t], codecs: {allow: []}}]",
            "F:2: rules[0].codecs.allow: is an empty list: no large batch could come at all",
        ),
        (
            "rules: [{name: a, topics: [t], codecs: {allow: [none, gzip, snappy, lz4, zstd]}}]",
            "F:2: rules[0].codecs.allow: names every codec: it would refuse nothing (remove `codecs`)",
        ),
        (
            "rules: [{name: a, topics: [t], limits: {uncompressed_bytes: 64KiB}, codecs: {allow: [zstd]}}]",
            "F:2: rules[0].codecs.above: `64KiB` is never reached: batches above 64KiB uncompressed bytes are refused \
             anyway (uncompressed_bytes)",
        ),
        (
            "rules: [{name: a, topics: [t], codecs: {allow: [zstd]}}]\ninspection: {decode: never}",
            "F:2: rules[0].codecs: needs compressed batches to be decoded, but `inspection.decode` is `never`: write \
             `when_needed`, or remove `codecs`",
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
            "rules:\n- {name: some, topics: ['*'], clients: {client_ids: [c]}}\n- {name: same, topics: [t], clients: \
             {client_ids: [c]}}",
            "F:4: rules[1].topics: never match: the first rule that matches wins, and `some` (F:3) comes first",
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
        "rules:\n- {name: some, topics: ['*'], clients: {client_ids: [c]}}\n- {name: others, topics: ['*']}",
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

/// Each would have to take less than the next: `align` would raise them for ever.
#[test]
fn families_in_a_circle_are_refused_as_far_as_names_tell() {
    let of = |along: &str| {
        format!(
            "is a circle: of {along} each has the next among its retry and dead-letter topics, and would have to take less \
             than it; say which is the main topic"
        )
    };
    for (members, at, along) in [
        (
            "{main: a, retry: [b]}, {main: b, dead_letter: [a]}",
            0,
            "a, b, a",
        ),
        (
            "{main: x, retry: [y]}, {main: a, retry: [b]}, {main: b, retry: [c]}, {main: c, retry: ['a']}",
            1,
            "a, b, c, a",
        ),
        // By a glob, by `{main}`, and where both only warn.
        (
            "{main: orders, retry: ['orders-*']}, {main: orders-retry, retry: [orders]}",
            0,
            "orders, orders-retry, orders",
        ),
        (
            "{main: orders, dead_letter: ['{main}-dlt']}, {main: orders-dlt, retry: [orders]}",
            0,
            "orders, orders-dlt, orders",
        ),
        (
            "{main: a, retry: [b], alignment: warn}, {main: b, retry: [a], alignment: warn}",
            0,
            "a, b, a",
        ),
    ] {
        refused(
            &format!("families: {{members: [{members}]}}"),
            &[&format!("F:2: families.members[{at}].main: {}", of(along))],
        );
    }
    with(
        "families: {members: [{main: a, retry: [b]}, {main: b, retry: [c]}, {main: c, dead_letter: [d]}]}",
    );
}

#[test]
fn a_writer_that_leaves_nothing_or_needs_a_decode_contradicts() {
    let family = |more: &str| {
        format!("families: {{headroom: 2MiB, members: [{{main: a, dead_letter: [b]{more}}}]}}")
    };
    let nothing = |writer: &str| {
        format!(
            "`{writer}` leaves nothing for `a` once families.headroom (2MiB) is taken off: what does the producer take that \
             writes its retries and dead letters? (`none`: it is known to be enough)"
        )
    };
    refused(
        &family(""),
        &[&format!(
            "F:2: families.members[0].writer_max_request_size: {}",
            nothing("1MiB")
        )],
    );
    refused(
        &family(", writer_max_request_size: 2MiB"),
        &[&format!(
            "F:2: families.members[0].writer_max_request_size: {}",
            nothing("2MiB")
        )],
    );
    for more in [
        ", writer_max_request_size: 2097153",
        ", writer_max_request_size: none",
        ", alignment: warn",
    ] {
        with(&family(more));
    }
    let never =
        "families: {members: [{main: a, dead_letter: [b]WRITER}]}\ninspection: {decode: never}\n";
    refused(
        &never.replace("WRITER", ""),
        &[
            "F:3: families.members[0].writer_max_request_size: needs compressed batches to be decoded, but \
           `inspection.decode` is `never`: write `when_needed`, or `none` here, where the producer of retries and dead \
           letters is known to take enough",
        ],
    );
    with(&never.replace("WRITER", ", writer_max_request_size: none"));
}

#[test]
fn an_acknowledgement_names_a_finding_and_a_reason() {
    refused(
        "ignore:\n- {finding: override_above_broker}\n- {reason: because}\n",
        &[
            "F:3: ignore[0].reason: is missing: why it is lived with: whoever reads it next will ask",
            "F:4: ignore[1].finding: is missing: which finding of `check --cluster` is acknowledged, such as \
             `override_above_broker`",
        ],
    );
    let wrong =
        load("cluster: {bootstrap_servers: [b:1]}\nignore: [{finding: overide, reason: x}]\n");
    let wrong = wrong.expect_err("no such finding");
    assert!(
        wrong.len() == 1
            && wrong[0].starts_with(
                "F:2: ignore[0].finding: `overide` is not `family_member_too_small`, "
            )
            && wrong[0].contains("`override_above_broker`"),
        "{wrong:?}"
    );
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
                "rule `a` has batch_bytes 64KiB: librdkafka, franz-go, kafka-go and sarama gather up to about 1 MiB in a \
                  batch and lose all of it when it is refused; record_bytes refuses large records without that",
            ],
        ),
        ("limits: {batch_bytes: 1MiB}", vec![]),
    ] {
        assert_eq!(with(text).advice(), expected, "{text}");
    }
}
