//! The section `claim_check` and a rule's `offload`.

use sizegate::config::{Redeem, StoreFailure, Unredeemed};

use super::*;

const SECRET: &str = "a secret of thirty-two bytes, yes";

/// The least that offloading needs.
fn claim_check(more: &str) -> String {
    format!(
        "claim_check:\n  store: file:///var/lib/sizegate/claims\n  keys: [{{id: k1, secret: '{SECRET}'}}]\n{more}\n"
    )
}

const RULE: &str =
    "rules: [{name: loans, topics: [loans], action: offload, offload: {redeem: false}}]\n";

#[test]
fn the_least_that_is_needed_has_the_defaults_of_the_contract() {
    let config = with(&format!("{}{RULE}", claim_check("")));
    let claim = config.claim_check.unwrap();
    assert_eq!(claim.store.to_string(), "file:///var/lib/sizegate/claims");
    assert_eq!(claim.layout.label(), "day");
    assert_eq!(claim.retention, Duration::from_secs(16 * 86_400));
    assert_eq!(claim.grace, Duration::from_secs(600));
    assert_eq!(claim.fallback.topic, "{topic}.claim.missing");
    assert_eq!(claim.fallback.on_missing, Unredeemed::Fallback);
    assert_eq!(claim.fallback.on_corrupt, Unredeemed::Fallback);
    let offload = config.rules[0].offload.clone().unwrap();
    assert_eq!(offload.above_bytes, 64 * 1024);
    assert_eq!(offload.on_store_failure, StoreFailure::Refuse);
    assert_eq!(offload.redeem, Redeem::Nobody);
    assert_eq!(with("").claim_check, None);
}

#[test]
fn everything_of_the_contract_is_read_and_shown_without_its_secrets() {
    let text = "
claim_check:
  store: s3://bucket/claims
  store_options: {region: eu-west-1, allow_http: true, access_key_id: k, secret_access_key_file: DIR/password}
  keys: [{id: k2, secret: 'another secret of thirty-two bytes'}, {id: k1, secret: 'a secret of thirty-two bytes, yes'}]
  layout: content
  retention: 30d
  grace: 5m
  fallback: {topic: claims.missing, on_missing: hold, on_corrupt: pass}
rules:
- name: loans
  topics: [loans]
  action: offload
  offload: {above: 128KiB, on_store_failure: inline_if_fits, redeem: false}
";
    let config = with(text);
    let claim = config.claim_check.as_ref().unwrap();
    let option = |key: &str| {
        let found = claim.store_options.iter().find(|option| option.key == key);
        found.map(|option| option.value.as_str())
    };
    assert_eq!(option("secret_access_key"), Some("hunter2"));
    assert_eq!(option("region"), Some("eu-west-1"));
    assert_eq!(claim.keys[0].id, "k2");
    assert_eq!(
        config.rules[0].offload.as_ref().unwrap().redeem,
        Redeem::Nobody
    );
    let shown = format!("{} {config:?}", config.to_json());
    for secret in ["hunter2", "thirty-two"] {
        assert!(!shown.contains(secret), "{shown}");
    }
    for (pointer, expected) in [
        ("/claim_check/store", "s3://bucket/claims"),
        ("/claim_check/store_options/region", "eu-west-1"),
        ("/claim_check/store_options/secret_access_key", "(hidden)"),
        ("/claim_check/keys/1/id", "k1"),
        ("/claim_check/retention", "30d"),
        ("/rules/0/offload/above", "128KiB"),
    ] {
        let json = config.to_json();
        assert_eq!(json.pointer(pointer).unwrap(), expected, "{pointer}");
    }
}

#[test]
fn what_is_wrong_in_it_is_said_at_its_key() {
    for (text, expected) in [
        (
            RULE.to_owned(),
            "F:2: rules[0].action: `offload` needs the section `claim_check`: where values go, and what signs their tickets",
        ),
        (
            "claim_check: {keys: [{id: a, secret: 'a secret of thirty-two bytes, yes'}]}".to_owned(),
            "claim_check.store",
        ),
        ("claim_check: {store: 's3://b'}".to_owned(), "claim_check.keys"),
        ("claim_check: {store: 's3://b', keys: [{id: a, secret: short}]}".to_owned(), "32 bytes"),
        (
            "claim_check: {store: 'http://b', keys: [{id: a, secret: 'a secret of thirty-two bytes, yes'}]}".to_owned(),
            "claim_check.store",
        ),
        (claim_check("  store_options: {region: x}"), "claim_check.store_options.region: is no option of this store"),
        (claim_check("  fallback: {topic: '{topic}'}"), "claim_check.fallback.topic"),
        (claim_check("  layout: hour"), "`day`, `content` or `event`"),
        (
            format!("{}rules: [{{name: a, topics: [__consumer_offsets], action: offload, offload: {{redeem: false}}}}]", claim_check("")),
            "rules[0].topics[0]: `__consumer_offsets` is Kafka's own",
        ),
        (
            format!("{}inspection: {{decode: never}}\n{RULE}", claim_check("")),
            "`inspection.decode` is `never`",
        ),
        (
            "rules: [{name: a, topics: [t], offload: {above: 64KiB}}]".to_owned(),
            "rules[0].offload: has no effect beside `action: reject`",
        ),
        (
            format!("{}rules: [{{name: a, topics: [t], action: offload, offload: {{redeem: maybe}}}}]", claim_check("")),
            "rules[0].offload.redeem",
        ),
        (
            format!("{}rules: [{{name: a, topics: [t], action: offload, offload: {{redeem: false, abov: 64KiB}}}}]", claim_check("")),
            "did you mean `above`?",
        ),
    ] {
        let mistakes = load(&format!("{MINIMAL}{text}")).expect_err(&text);
        assert_eq!(mistakes.len(), 1, "{text}\n{mistakes:?}");
        assert!(mistakes[0].contains(expected), "{text}\n{mistakes:?}");
        assert!(!mistakes[0].contains("thirty-two"), "{mistakes:?}");
    }
}

#[test]
fn keys_are_rotated_without_a_restart_and_the_store_is_not_changed() {
    let old = with(&claim_check("  store_options: {}"));
    let rotated = with(&claim_check("").replace("id: k1", "id: k2"));
    let secret = with(&claim_check("").replace("a secret", "A secret"));
    for new in [rotated, secret] {
        let reload = config::reload(&old, &new);
        assert_eq!(reload.live, ["claim_check.keys"]);
        assert_eq!(reload.needs_restart, Vec::<String>::new());
        assert_eq!(reload.config, new);
    }
    let moved = with(&claim_check("  grace: 1m").replace("file:///var", "file:///srv"));
    let reload = config::reload(&old, &moved);
    assert_eq!(reload.live, ["claim_check.grace"]);
    assert_eq!(reload.needs_restart, ["claim_check.store"]);
    let claim = reload.config.claim_check.unwrap();
    assert_eq!(claim.store, old.claim_check.unwrap().store);
    assert_eq!(claim.grace, Duration::from_secs(60));
}

#[test]
fn originals_are_for_everybody_unless_somebody_is_named() {
    for (offload, expected) in [
        ("", "true"),
        (", offload: {above: 1MiB}", "true"),
        (", offload: {redeem: true}", "true"),
        (", offload: {redeem: false}", "false"),
        (
            ", offload: {redeem: {clients: {client_ids: ['reader-*']}}}",
            r#"{"clients":{"client_ids":["reader-*"]}}"#,
        ),
    ] {
        let rule = format!("rules: [{{name: a, topics: [t], action: offload{offload}}}]");
        let text = format!("{MINIMAL}{}{rule}", claim_check(""));
        let config = load(&text).unwrap_or_else(|mistakes| panic!("{mistakes:?}"));
        let json = config.to_json();
        let redeem = json.pointer("/rules/0/offload/redeem").unwrap();
        assert_eq!(redeem.to_string(), expected, "{rule}");
    }
}
