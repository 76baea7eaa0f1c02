//! Families as users write and name them.

use std::sync::Arc;

use super::*;
use crate::config::{self, Config, Overrides};
use crate::policy::families::{Gap, Holder, gaps};
use crate::policy::{Learned, Limit, Policy, TopicPolicy};
use crate::vocabulary::{Action, Gate, Source};

const KIB: u64 = 1024;

fn config(text: &str) -> Config {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("sizegate.yaml");
    let text = format!("cluster: {{bootstrap_servers: [b:9092]}}\n{text}");
    std::fs::write(&path, text).expect("a file");
    config::load(Some(&path), &Overrides::default(), &config::Env::default())
        .unwrap_or_else(|mistakes| panic!("{mistakes}"))
}

fn topics(names: &str) -> Vec<Arc<str>> {
    names.split_whitespace().map(Arc::from).collect()
}

fn policy(text: &str, names: &str) -> Policy {
    let config = config(text);
    let policy = Policy::compile(&config).expect("a policy");
    policy.among(&topics(names)).unwrap_or(policy)
}

/// `main: member member…` for each family, detected members in parentheses; dead letters with a cross.
fn drawn(text: &str, names: &str) -> Vec<String> {
    let policy = policy(text, names);
    let member = |member: &Member| {
        let cross = match member.kind {
            MemberKind::DeadLetter => "+",
            MemberKind::Retry => "",
        };
        match member.membership {
            Membership::Configured => format!(" {}{cross}", member.topic),
            Membership::Detected => format!(" ({}{cross})", member.topic),
        }
    };
    let drawn = policy.families().all().iter().map(|family| {
        let members: String = family.members.iter().map(member).collect();
        format!("{}:{members}", family.main)
    });
    drawn.collect()
}

#[test]
fn members_are_topics_that_exist_by_name_glob_capture_and_expression() {
    let exact = "families: {detect: false, members: [{main: orders, retry: [orders-again], dead_letter: [parking]}]}";
    assert_eq!(
        drawn(exact, "orders parking orders-again orders-dlt"),
        ["orders: orders-again parking+"]
    );
    assert_eq!(
        drawn(exact, "parking orders-again"),
        [""; 0],
        "there is no main topic"
    );
    let capture = "families: {detect: false, members: [{main: 'eu.*', retry: ['{main}-r?'], dead_letter: ['/{main}[.]d[0-9]+/']}]}";
    assert_eq!(
        drawn(
            capture,
            "eu.a eu.b eu.a-r1 eu.b-r2 eu.b-r10 eu.a.d42 eu.a.dx euXa-r1 eu.c"
        ),
        ["eu.a: eu.a-r1 eu.a.d42+", "eu.b: eu.b-r2"]
    );
}

#[test]
fn a_main_that_is_a_pattern_takes_no_member_for_a_main() {
    let every = "families: {detect: false, members: [{main: '*', retry: ['{main}-retry-*'], dead_letter: ['{main}-dlt']}]}";
    assert_eq!(
        drawn(
            every,
            "orders orders-retry-0 orders-retry-0-dlt orders-dlt orders-dlt-dlt"
        ),
        ["orders: orders-dlt+ orders-dlt-dlt+ orders-retry-0 orders-retry-0-dlt+"]
    );
    let shared = "families: {detect: false, members: [{main: 'in.*', dead_letter: [in.parking]}]}";
    assert_eq!(
        drawn(shared, "in.a in.b in.parking"),
        ["in.a: in.parking+", "in.b: in.parking+"]
    );
    // Everybody is everybody's retry: nobody is a main topic.
    let circle = "families: {detect: false, members: [{main: 'o*', retry: ['o?*']}]}";
    assert_eq!(drawn(circle, "oa ob"), [""; 0]);
}

#[test]
fn the_first_entry_that_names_a_main_topic_speaks_for_it() {
    let two = "families: {detect: false, members: [{main: orders, dead_letter: [a]}, {main: 'o*', dead_letter: [b]}]}";
    assert_eq!(
        drawn(two, "orders others a b"),
        ["orders: a+", "others: b+"]
    );
}

#[test]
fn families_are_proposed_by_name_around_what_is_configured() {
    let text = "families: {members: [{main: orders, retry: [orders-again]}, {main: bills-retry, dead_letter: [lost]}]}";
    assert_eq!(
        drawn(
            text,
            "orders orders-again orders-dlt orders-again-dlt orders-retry-0-dlt \
             bills bills-retry lost payments payments.DLT lonely-dlt",
        ),
        [
            "bills-retry: lost+",
            "orders: orders-again (orders-again-dlt+) (orders-dlt+) (orders-retry-0-dlt+)",
            "payments: (payments.DLT+)",
        ]
    );
    assert_eq!(
        drawn("families: {detect: false}", "orders orders-dlt"),
        [""; 0]
    );
}

#[test]
fn members_that_are_named_and_do_not_exist_are_known() {
    let policy = policy(
        "families: {members: [{main: orders, retry: ['orders-retry-*'], dead_letter: ['{main}-dlt', lost]}]}",
        "orders lost",
    );
    let family = policy.families().of_main("orders").expect("a family");
    assert_eq!(family.absent, ["orders-dlt"]);
    assert_eq!(family.members.len(), 1);
}

fn limit(policy: &TopicPolicy, gate: Gate) -> Option<(u64, Source, Option<&str>)> {
    let of = |limit: &Limit| limit.gate == gate;
    let limit = policy
        .batch
        .iter()
        .chain(policy.inside_limits())
        .find(|limit| of(limit))?;
    Some((limit.value, limit.source, limit.name.as_deref()))
}

const ALL_GATES: &str = "
rules:
  - name: orders
    topics: [orders]
    limits: {batch_bytes: 1MiB, uncompressed_bytes: 2MiB, record_bytes: 512KiB, estimate_bytes: 600KiB, key_bytes: 1KiB, value_bytes: 500KiB, headers_bytes: 8KiB, ratio: 100}
    action: reject
    error_code: POLICY_VIOLATION
    remedy: Ask us.
";

#[test]
fn a_member_without_a_rule_has_its_mains_limits_with_headroom() {
    let enforced = policy(
        &format!("{ALL_GATES}families: {{members: [{{main: orders, dead_letter: [orders-dlt]}}]}}"),
        "orders orders-dlt",
    );
    let member = enforced.for_topic("orders-dlt");
    let rule = |value| Some((value, Source::Rule, Some("orders")));
    assert_eq!(limit(&member, Gate::Batch), rule(1088 * KIB));
    assert_eq!(limit(&member, Gate::Uncompressed), rule(2112 * KIB));
    assert_eq!(limit(&member, Gate::Record), rule(576 * KIB));
    assert_eq!(limit(&member, Gate::Estimate), rule(664 * KIB));
    assert_eq!(limit(&member, Gate::Headers), rule(72 * KIB));
    assert_eq!(limit(&member, Gate::Key), rule(KIB));
    assert_eq!(limit(&member, Gate::Value), rule(500 * KIB));
    assert_eq!(member.inside.record_bytes, Some(576 * KIB));
    assert_eq!(member.inside.ratio, Some(100.0));
    assert_eq!(member.remedy.as_deref(), Some("Ask us."));
    let main = enforced.for_topic("orders");
    assert_eq!(
        limit(&main, Gate::Record),
        rule(512 * KIB),
        "no member leaves less"
    );
    assert_eq!(limit(&main, Gate::Batch), rule(1024 * KIB));

    for alignment in ["alignment: warn", "alignment: enforce"] {
        let detected = policy(
            &format!("{ALL_GATES}families: {{detect: true}}"),
            "orders orders-dlt",
        );
        let warned = policy(
            &format!(
                "{ALL_GATES}families: {{members: [{{main: orders, dead_letter: [orders-dlt], {alignment}}}]}}"
            ),
            "orders orders-dlt",
        );
        assert_eq!(limit(&detected.for_topic("orders-dlt"), Gate::Record), None);
        let is_enforced = alignment.ends_with("enforce");
        let record = limit(&warned.for_topic("orders-dlt"), Gate::Record).is_some();
        assert_eq!(record, is_enforced, "{alignment}");
        assert_eq!(!warned.for_topic("orders").members.is_empty(), is_enforced);
    }
}

#[test]
fn a_rule_that_names_main_and_member_is_not_the_members_own() {
    let policy = policy(
        "rules: [{name: all, topics: ['*'], limits: {record_bytes: 64KiB}}]
families: {members: [{main: orders, dead_letter: [orders-dlt]}]}",
        "orders orders-dlt other",
    );
    assert_eq!(
        limit(&policy.for_topic("orders-dlt"), Gate::Record),
        Some((128 * KIB, Source::Rule, Some("all")))
    );
    for topic in ["orders", "other"] {
        assert_eq!(
            limit(&policy.for_topic(topic), Gate::Record),
            Some((64 * KIB, Source::Rule, Some("all"))),
            "{topic}"
        );
    }
}

#[test]
fn a_main_topic_allows_for_each_member_gate_by_gate() {
    let text = |action: &str| {
        format!(
            "{ALL_GATES}
  - name: again
    topics: [orders-again]
    limits: {{record_bytes: 100KiB, key_bytes: 300, batch_bytes: none}}
    action: {action}
  - name: lost
    topics: [lost]
    limits: {{batch_bytes: 200KiB, headers_bytes: 70KiB, uncompressed_bytes: 3MiB}}
families: {{members: [{{main: orders, retry: [orders-again], dead_letter: [lost]}}]}}"
        )
    };
    let names = "orders orders-again lost";
    let main = policy(&text("reject"), names).for_topic("orders");
    let family = |value, member| Some((value, Source::Family, Some(member)));
    assert_eq!(limit(&main, Gate::Record), family(36 * KIB, "orders-again"));
    assert_eq!(limit(&main, Gate::Key), family(300, "orders-again"));
    assert_eq!(limit(&main, Gate::Batch), family(136 * KIB, "lost"));
    assert_eq!(limit(&main, Gate::Headers), family(6 * KIB, "lost"));
    assert_eq!(
        limit(&main, Gate::Uncompressed),
        Some((2048 * KIB, Source::Rule, Some("orders")))
    );
    assert_eq!(main.inside.record_bytes, Some(36 * KIB));
    assert_eq!(main.inside.key_bytes, Some(300));
    let members: Vec<&str> = main.members.iter().map(|bound| &*bound.topic).collect();
    assert_eq!(members, ["lost", "orders-again"], "the broker judges there");
    assert_eq!(
        main.error_code,
        crate::vocabulary::ErrorCode::PolicyViolation,
        "refused as its rule says"
    );

    // What a member only observes, it does not refuse.
    let main = policy(&text("observe"), names).for_topic("orders");
    assert_eq!(
        limit(&main, Gate::Record),
        Some((512 * KIB, Source::Rule, Some("orders")))
    );
    // But where nothing is refused, what would be is said.
    let observing = policy(&format!("mode: observe\n{}", text("observe")), names);
    let main = observing.for_topic("orders");
    assert_eq!(limit(&main, Gate::Record), family(36 * KIB, "orders-again"));
    assert_eq!(main.action, Action::Observe);
}

#[test]
fn learned_limits_of_members_count_with_their_headroom() {
    let policy = policy(
        "rules: [{name: free, topics: [orders], limits: {batch_bytes: none}}]
families: {headroom: 1000, members: [{main: orders, retry: [a], dead_letter: [b]}, {main: other, retry: [a]}]}",
        "orders other a b",
    );
    let own = Some(Learned::own((5000, Source::Topic)));
    let of = |topic: &str, members: [Option<u64>; 2]| {
        let policy = policy.for_topic(topic);
        let learned = policy.tightest(own, |at| members[at]);
        let limit = policy.batch_limit(learned);
        assert_eq!(
            policy.batch_limit_bytes(learned),
            limit.as_ref().map(|limit| limit.value)
        );
        if let Some(limit) = &limit {
            assert!(!policy.is_configured(limit), "{limit:?}");
        }
        limit.map(|limit| (limit.value, limit.source, limit.name, limit.headroom_bytes))
    };
    let family = |value, member: &str| Some((value, Source::Family, Some(Arc::from(member)), 1000));
    // `orders` looks at no limit of its own, but its members count.
    assert_eq!(of("orders", [None, None]), None);
    assert_eq!(of("orders", [Some(7000), None]), None.or(family(6000, "a")));
    assert_eq!(of("orders", [Some(7000), Some(6500)]), family(5500, "b"));
    assert_eq!(of("orders", [Some(7000), Some(900)]), family(0, "b"));
    assert_eq!(of("other", [Some(5999), None]), family(4999, "a"));
    assert_eq!(
        of("other", [Some(6000), None]),
        Some((5000, Source::Topic, None, 0))
    );
}

#[test]
fn a_member_with_a_family_of_its_own_leaves_what_that_leaves() {
    let policy = policy(
        "limits: {record_bytes: 500}
rules: [{name: c, topics: [c], limits: {record_bytes: 350}}]
families: {headroom: 100, members: [{main: a, retry: [b]}, {main: b, dead_letter: [c]}]}",
        "a b c",
    );
    assert_eq!(
        limit(&policy.for_topic("a"), Gate::Record),
        Some((150, Source::Family, Some("c")))
    );
    assert_eq!(
        limit(&policy.for_topic("b"), Gate::Record),
        Some((250, Source::Family, Some("c")))
    );
    let bounds = policy.for_topic("a").members;
    let bounds: Vec<_> = bounds
        .iter()
        .map(|b| (&*b.topic, b.headroom_bytes))
        .collect();
    assert_eq!(bounds, [("b", 100), ("c", 200)]);
}

#[test]
fn families_in_a_circle_end() {
    let policy = policy(
        "limits: {record_bytes: 500}
families: {headroom: 100, members: [{main: 'a*', retry: ['b*']}, {main: 'b*', retry: ['a*']}]}",
        "a1 b1",
    );
    let circles = policy.families().circles();
    assert_eq!(circles, [topics("a1 b1")], "one, told once");
    for topic in ["a1", "b1"] {
        assert!(limit(&policy.for_topic(topic), Gate::Record).is_some());
    }
}

#[test]
fn a_gap_is_what_a_members_own_limit_lacks() {
    let text = |alignment: &str| {
        format!(
            "limits: {{key_bytes: 100}}
rules: [{{name: dlt, topics: [orders-dlt], limits: {{record_bytes: 100KiB}}}}]
families: {{members: [{{main: orders, dead_letter: [orders-dlt], alignment: {alignment}}}]}}"
        )
    };
    let learned = |topic: &str| {
        let bytes = if topic == "orders" {
            1_048_588
        } else {
            1_100_000
        };
        Some(Learned::own((bytes, Source::Topic)))
    };
    for alignment in ["warn", "enforce"] {
        let policy = policy(&text(alignment), "orders orders-dlt");
        let gap = |gate, main_bytes, member_bytes, headroom_bytes, missing_bytes| Gap {
            gate,
            holder: Holder::Member,
            main_bytes,
            member_bytes,
            headroom_bytes,
            missing_bytes,
        };
        assert_eq!(
            gaps(&policy, "orders", "orders-dlt", learned),
            [
                gap(
                    Gate::Batch,
                    Some(1_048_588),
                    1_100_000,
                    65_536,
                    Some(14_124)
                ),
                gap(Gate::Record, None, 102_400, 65_536, None),
                gap(Gate::Key, Some(100), 100, 0, Some(0)),
                // An uncompressed record of 1,048,527 bytes has an estimate of 1,048,603 at most.
                Gap {
                    holder: Holder::Writer,
                    ..gap(
                        Gate::Estimate,
                        Some(1_048_603),
                        1_048_576,
                        65_536,
                        Some(65_563)
                    )
                },
            ]
        );
        let unknown = gaps(&policy, "orders", "orders-dlt", |_| None);
        assert!(
            unknown.iter().all(|gap| gap.gate != Gate::Batch),
            "{unknown:?}"
        );
    }
}

/// Whoever writes a dead letter refuses by itself what its `max.request.size` does not take.
#[test]
fn the_writer_of_a_member_bounds_its_main_topic_until_it_is_known_to_take_more() {
    let with = |more: &str| {
        policy(
            &format!("families: {{members: [{{main: orders, dead_letter: [orders-dlt]{more}}}]}}"),
            "orders orders-dlt payments payments-dlt",
        )
    };
    let estimate = |policy: &Policy, topic: &str| {
        let policy = policy.for_topic(topic);
        let mut limits = policy.inside_limits().iter();
        let limit = limits.find(|limit| limit.gate == Gate::Estimate).cloned();
        assert_eq!(
            policy.inside.estimate_bytes,
            limit.as_ref().map(|limit| limit.value)
        );
        limit.map(|limit| {
            assert_eq!(limit.source, Source::Family);
            assert_eq!(limit.member_limit, Some(crate::policy::MemberLimit::Writer));
            assert!(policy.is_configured(&limit), "nobody need confirm it");
            (limit.value, limit.headroom_bytes)
        })
    };
    for (more, expected) in [
        ("", Some((1_048_576 - 65_536, 65_536))),
        (
            ", writer_max_request_size: 2MiB",
            Some((2_097_152 - 65_536, 65_536)),
        ),
        (", writer_max_request_size: none", None),
        (", alignment: warn", None),
    ] {
        assert_eq!(estimate(&with(more), "orders"), expected, "{more}");
    }
    let detected = with("");
    assert_eq!(
        estimate(&detected, "payments"),
        None,
        "detected: it only warns"
    );
    assert_eq!(
        estimate(&detected, "orders-dlt"),
        None,
        "the member itself is free"
    );
    // But that is said: whatever the topics take, the writer takes less.
    let large = |_: &str| Some(Learned::own((10_000_000, Source::Topic)));
    let missing = |policy: &Policy, main: &str, member: &str| {
        let gaps = gaps(policy, main, member, large);
        let of_writer = gaps.iter().find(|gap| gap.holder == Holder::Writer);
        of_writer.map(|gap| gap.missing_bytes)
    };
    // 10,000,000 - 61 of record; its body of 9,999,935 bytes has a length of four.
    let most = 10_000_000 - 61 - 4 - 3 + 82;
    let lacks = Some(Some(most + 65_536 - 1_048_576));
    assert_eq!(missing(&detected, "payments", "payments-dlt"), lacks);
    assert_eq!(missing(&detected, "orders", "orders-dlt"), lacks);
    let known = with(", writer_max_request_size: none");
    assert_eq!(missing(&known, "orders", "orders-dlt"), None);
    let enough = with(&format!(", writer_max_request_size: {}", most + 65_536));
    assert_eq!(missing(&enough, "orders", "orders-dlt"), Some(Some(0)));
    // A smaller limit of the main topic's own is what counts.
    let small = policy(
        "limits: {record_bytes: 64KiB}
families: {members: [{main: orders, dead_letter: [orders-dlt]}]}",
        "orders orders-dlt",
    );
    assert_eq!(missing(&small, "orders", "orders-dlt"), Some(Some(0)));
}

proptest::proptest! {
    /// Detection goes by what is left of a name, so it can close no circle that the configuration has not.
    #[test]
    fn what_is_detected_closes_no_circle(
        main in "(a|b)(-dlt|-retry)?(-dlt|-retry-1)?",
        member in "(a|b)(-dlt|-retry)?(-dlt|-retry-1)?",
        names in proptest::collection::vec("(a|b)(-dlt|-retry)?(-dlt|-retry-1)?", 0..8),
    ) {
        proptest::prop_assume!(main != member);
        let text = format!("families: {{members: [{{main: {main}, retry: [{member}]}}]}}");
        let names = format!("{main} {member} {}", names.join(" "));
        proptest::prop_assert!(policy(&text, &names).families().circles().is_empty());
    }
}

#[test]
fn globs_match_whole_names() {
    for (glob, name, expected) in [
        ("orders-*", "orders-", true),
        ("orders-*", "orders", false),
        ("*-dlt", "a-dlt-dlt", true),
        ("*a*b?", "xaxxabbbc", true),
        ("*a*b?", "xaxxabb", true),
        ("*a*b?", "xaxxab", false),
        ("**", "", true),
        ("?", "", false),
        ("", "", true),
        ("", "a", false),
    ] {
        assert_eq!(
            glob_matches(glob.as_bytes(), name.as_bytes()),
            expected,
            "{glob} {name}"
        );
    }
}

#[test]
fn sorting_topics_into_families_takes_time_in_proportion() {
    let took = |mains: usize| {
        let names: Vec<Arc<str>> = (0..mains)
            .flat_map(|n| {
                [
                    format!("t{n}"),
                    format!("t{n}-retry-0"),
                    format!("t{n}-retry-0-dlt"),
                    format!("u{n}"),
                    format!("u{n}-dlt"),
                ]
            })
            .map(Arc::from)
            .collect();
        let config = config(
            "families: {members: [{main: 't?*', retry: ['{main}-retry-*'], dead_letter: ['{main}-dlt']}]}",
        );
        let begun = std::time::Instant::now();
        let families = config.families.among(&names);
        let took = begun.elapsed();
        assert_eq!(families.all().len(), 2 * mains);
        assert_eq!(
            families
                .all()
                .iter()
                .map(|family| family.members.len())
                .sum::<usize>(),
            3 * mains
        );
        took
    };
    // The best of several: the machine has other things to do.
    let best = |mains: usize| (0..5).map(|_| took(mains)).min().expect("five");
    let (few, many) = (best(400), best(4000));
    // Ten times the topics; a hundred times the time would be out of proportion.
    assert!(many < few * 60, "{few:?} {many:?}");
}
