//! Requests of one, two and three topics of a family, judged step by step.

use super::*;
use crate::config::{self, Overrides};

/// Topics take up to 1 MiB each unless a test says otherwise, and the headroom is 64 KiB.
const MAIN: u64 = 1_000_000;
const HEADROOM: u64 = 65_536;
const NEEDED: u64 = MAIN + HEADROOM;

/// `orders` with a retry and a dead-letter topic.
fn policy(alignment: &str) -> Policy {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("sizegate.yaml");
    let text = format!(
        "cluster: {{bootstrap_servers: [b:9092]}}\n\
         families: {{detect: false, headroom: 64KiB, members: [{{main: orders, retry: [orders-retry], dead_letter: [orders-dlt], \
         alignment: {alignment}}}]}}\n"
    );
    std::fs::write(&file, text).unwrap();
    let config = config::load(Some(&file), &Overrides::default(), &config::Env::default()).unwrap();
    let policy = Policy::compile(&config).unwrap();
    let topics = ["orders", "orders-retry", "orders-dlt"].map(Arc::from);
    policy.among(&topics).unwrap()
}

fn takes(bytes: u64) -> InForce {
    InForce {
        batch_bytes: Some(bytes),
        compression: Some("producer".to_owned()),
        ..InForce::default()
    }
}

fn stores(word: &str) -> InForce {
    InForce {
        compression: Some(word.to_owned()),
        ..takes(NEEDED)
    }
}

fn changed(topic: &str, before: InForce, after: InForce) -> Step {
    Step {
        topic: topic.into(),
        before: Some(before),
        after,
    }
}

fn created(topic: &str, after: InForce) -> Step {
    Step {
        topic: topic.into(),
        before: None,
        after,
    }
}

/// What is in force for topics that no step names: the main topic's, and enough for its members.
fn aligned(topic: &str) -> Option<InForce> {
    match topic {
        "orders" => Some(takes(MAIN)),
        "orders-retry" | "orders-dlt" => Some(takes(NEEDED)),
        _ => None,
    }
}

/// The steps refused, and those warned of, each with the members that would not fit.
fn judged(alignment: &str, steps: &[Step]) -> [Vec<(usize, Vec<String>)>; 2] {
    let verdict = judge(&policy(alignment), steps, &aligned);
    [verdict.refused, verdict.warned].map(|by_step| {
        let members = |found: Vec<Opened>| found.iter().map(|gap| gap.member.to_string()).collect();
        by_step
            .into_iter()
            .map(|(at, found)| (at, members(found)))
            .collect()
    })
}

fn names(members: &[&str]) -> Vec<String> {
    members.iter().map(ToString::to_string).collect()
}

#[test]
fn a_member_may_go_down_to_what_its_main_topic_needs_and_not_a_byte_below() {
    for (bytes, is_refused) in [(NEEDED + 1, false), (NEEDED, false), (NEEDED - 1, true)] {
        let step = changed("orders-dlt", takes(2 * NEEDED), takes(bytes));
        let [refused, warned] = judged("enforce", &[step]);
        assert_eq!(refused.len(), usize::from(is_refused), "{bytes}");
        assert_eq!(warned, []);
    }
}

#[test]
fn a_main_topic_may_go_up_to_what_all_members_leave_and_each_that_does_not_is_named() {
    let step = |bytes| changed("orders", takes(10_000), takes(bytes));
    assert_eq!(judged("enforce", &[step(MAIN)]), [vec![], vec![]]);
    let both = names(&["orders-dlt", "orders-retry"]);
    assert_eq!(
        judged("enforce", &[step(MAIN + 1)]),
        [vec![(0, both)], vec![]]
    );
}

#[test]
fn a_family_that_warns_refuses_nothing() {
    let step = changed("orders-dlt", takes(NEEDED), takes(1));
    let found = vec![(0, names(&["orders-dlt"]))];
    assert_eq!(judged("warn", &[step]), [vec![], found]);
}

#[test]
fn a_gap_that_is_there_may_stay_or_shrink_and_may_not_grow() {
    for (before, after, is_refused) in [
        (NEEDED - 100, NEEDED - 100, false),
        (NEEDED - 100, NEEDED - 1, false),
        (NEEDED - 100, NEEDED - 101, true),
    ] {
        let [refused, _] = judged(
            "enforce",
            &[changed("orders-dlt", takes(before), takes(after))],
        );
        assert_eq!(
            refused.len(),
            usize::from(is_refused),
            "{before} to {after}"
        );
    }
}

#[test]
fn a_created_member_is_held_to_its_main_topic() {
    let [refused, _] = judged("enforce", &[created("orders-dlt", takes(NEEDED))]);
    assert_eq!(refused, []);
    let [refused, _] = judged("enforce", &[created("orders-dlt", takes(NEEDED - 1))]);
    assert_eq!(refused, [(0, names(&["orders-dlt"]))]);
}

#[test]
fn what_one_step_opens_another_of_the_same_request_closes() {
    let up = |topic: &str, from: u64, to: u64| changed(topic, takes(from), takes(to));
    let all = [
        up("orders", MAIN, 2 * MAIN),
        up("orders-dlt", NEEDED, 2 * MAIN + HEADROOM),
        up("orders-retry", NEEDED, 2 * MAIN + HEADROOM),
    ];
    assert_eq!(judged("enforce", &all), [vec![], vec![]]);
    // One member short: the main topic's step goes, and what raises members passes all the same.
    let [refused, _] = judged("enforce", &all[..2]);
    assert_eq!(refused, [(0, names(&["orders-retry"]))]);
}

#[test]
fn a_step_that_rested_on_a_refused_one_is_judged_again_without_it() {
    // The member goes down with its main topic, whose own step cannot be: it raises the other member's need.
    let steps = [
        created("orders-dlt", takes(10)),
        changed("orders", takes(MAIN), takes(MAIN - 1)),
    ];
    let [refused, _] = judged("enforce", &steps);
    assert_eq!(refused, [(0, names(&["orders-dlt"]))]);
}

#[test]
fn a_member_keeps_its_main_topics_codec_and_a_main_topic_goes_first() {
    let member = changed("orders-dlt", stores("producer"), stores("gzip"));
    let [refused, warned] = judged("enforce", &[member]);
    assert_eq!((refused.len(), warned.len()), (1, 0));
    let main = changed(
        "orders",
        takes(MAIN),
        InForce {
            compression: Some("zstd".to_owned()),
            ..takes(MAIN)
        },
    );
    let [refused, warned] = judged("enforce", &[main]);
    assert_eq!(refused, []);
    assert_eq!(warned, [(0, names(&["orders-dlt", "orders-retry"]))]);
}

#[test]
fn nothing_is_said_of_what_is_not_known_or_of_no_family() {
    let unknown = changed("orders-dlt", takes(NEEDED), InForce::default());
    assert_eq!(judged("enforce", &[unknown]), [vec![], vec![]]);
    let stranger = changed("payments-dlt", takes(NEEDED), takes(1));
    assert_eq!(judged("enforce", &[stranger]), [vec![], vec![]]);
}

fn told(step: &Step, manner: Manner) -> Option<String> {
    let policy = policy("enforce");
    let verdict = judge(&policy, std::slice::from_ref(step), &aligned);
    let change = Change {
        name: Arc::clone(&step.topic),
        is_broker: false,
        manner,
        ops: Vec::new(),
    };
    let opened = verdict.refused.get(&0).cloned().unwrap_or_default();
    let id = "0f3a".to_owned();
    refusal(id, Blame::Sizegate, &change, step, &opened, HEADROOM).map(|refusal| refusal.text)
}

#[test]
fn the_text_has_every_number_and_the_order_that_works() {
    let step = changed("orders", takes(MAIN), takes(2 * MAIN));
    let text = told(&step, Manner::Change).unwrap();
    for part in [
        "with max.message.bytes=2,000,000 it would take what orders-dlt, a member of its family, does not: that takes \
         1,065,536, less 65,536 of headroom.",
        "First raise max.message.bytes of orders-dlt to 2065536, raise max.message.bytes of orders-retry to 2065536, then \
         this topic",
        "[gate=config key=max.message.bytes size_bytes=2000000 limit_bytes=1000000 source=family member=orders-dlt \
         headroom_bytes=65536 topic=orders id=0f3a]",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let lowered = changed("orders-dlt", takes(NEEDED), takes(NEEDED - 1));
    let text = told(&lowered, Manner::Change).unwrap();
    assert!(
        text.contains(
            "Set max.message.bytes to 1065536 at least; or first lower max.message.bytes of orders to 999999, then this."
        ),
        "{text}"
    );
    // Nothing is left for the main topic: it cannot be lowered so far.
    let tiny = changed("orders-dlt", takes(NEEDED), takes(HEADROOM));
    let text = told(&tiny, Manner::Change).unwrap();
    assert!(
        text.contains("Set max.message.bytes to 1065536 at least."),
        "{text}"
    );
    assert!(!text.contains("or first lower"), "{text}");
    let new = created("orders-dlt", takes(1000));
    let text = told(&new, Manner::Create).unwrap();
    assert!(
        text.contains("Create it with max.message.bytes=1065536."),
        "{text}"
    );
    assert_eq!(
        told(&created("orders-dlt", takes(NEEDED)), Manner::Create),
        None
    );
}

#[test]
fn a_limit_that_segments_set_is_named_by_their_key() {
    let short = InForce {
        by_segment: true,
        ..takes(NEEDED - 1)
    };
    let text = told(&changed("orders-dlt", takes(NEEDED), short), Manner::Change).unwrap();
    assert!(
        text.contains("segment.bytes=1,065,535 is less than"),
        "{text}"
    );
    assert!(text.contains("[gate=config key=segment.bytes "), "{text}");
}
