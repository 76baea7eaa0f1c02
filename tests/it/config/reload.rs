//! What a changed config changes in a running process.

use super::*;

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
