//! Main topics against their retry and dead-letter topics.

use super::{
    COMPRESSION_TYPE, Comparison, Finding, FindingRule, MAX_MESSAGE_BYTES, SEGMENT_BYTES, Severity,
    Value,
};
use crate::families::{Alignment, Family, Member, MemberKind, Membership};
use crate::policy::Limit;
use crate::policy::families::{Gap, Holder, Written, gaps};
use crate::text::grouped;
use crate::vocabulary::{Codec, DEFAULT_MAX_REQUEST_SIZE, Gate, LIMITS, Source};

pub(super) fn find(comparison: &Comparison<'_>, found: &mut Vec<Finding>) {
    circles(comparison, found);
    for family in comparison.policy.families().all() {
        for member in &family.members {
            too_small(comparison, family, member, found);
            codec(comparison, family, member, found);
            uncompressed(comparison, family, member, found);
        }
        for absent in &family.absent {
            found.push(Finding {
                severity: Severity::Warning,
                rule: FindingRule::FamilyMemberAbsent,
                topics: vec![family.main.to_string()],
                values: vec![Value::new("families.members", "member", absent.as_str(), "config")],
                why: format!(
                    "The configuration counts {absent} among the family of {}, and no such topic exists: created on demand \
                     it gets the broker's default limit.",
                    family.main
                ),
                fix: format!("Create {absent} with the limits of {} and headroom, or correct its name", family.main),
                also: None,
            });
        }
    }
}

/// Detected members only ever warn.
fn severity(member: &Member) -> Severity {
    match member.membership {
        Membership::Configured => Severity::Error,
        Membership::Detected => Severity::Warning,
    }
}

fn too_small(
    comparison: &Comparison<'_>,
    family: &Family,
    member: &Member,
    found: &mut Vec<Finding>,
) {
    let learned = |topic: &str| comparison.learned(topic);
    for gap in gaps(&comparison.policy, &family.main, &member.topic, learned) {
        let Some(missing) = gap.missing_bytes.filter(|missing| *missing > 0) else {
            continue;
        };
        if gap.holder == Holder::Writer {
            found.push(writer_too_small(comparison, family, member, &gap, missing));
            continue;
        }
        let (Some(main), Some(own)) = (
            limit(comparison, &family.main, gap.gate),
            limit(comparison, &member.topic, gap.gate),
        ) else {
            continue;
        };
        found.push(Finding {
            severity: severity(member),
            rule: FindingRule::FamilyMemberTooSmall,
            topics: vec![member.topic.to_string()],
            values: vec![
                Value::limit(&*family.main, &main),
                Value::limit(&*member.topic, &own),
                Value::new("families", "headroom", gap.headroom_bytes, "config"),
            ],
            why: why_too_small(family, member, &gap, missing),
            fix: fix_too_small(comparison, family, member, &gap, &own),
            also: None,
        });
    }
}

/// Nobody knows from here what the producer of a member's records takes: its default counts until somebody says more.
fn writer_too_small(
    comparison: &Comparison<'_>,
    family: &Family,
    member: &Member,
    gap: &Gap,
    missing: u64,
) -> Finding {
    let (main, topic) = (&family.main, &member.topic);
    let needed = gap.member_bytes.saturating_add(missing);
    let source = if gap.member_bytes == DEFAULT_MAX_REQUEST_SIZE {
        "the Java producer's default"
    } else {
        "config"
    };
    let mut values: Vec<Value> = limit(comparison, main, Gate::Batch)
        .iter()
        .map(|limit| Value::limit(&**main, limit))
        .collect();
    values.extend([
        Value::new(
            &**topic,
            "writer_max_request_size",
            gap.member_bytes,
            source,
        ),
        Value::new("families", "headroom", gap.headroom_bytes, "config"),
    ]);
    let fate = if family.enforces(member) {
        format!("sizegate keeps records of {main} down to what that leaves.")
    } else {
        "Spring then redelivers the record without end and blocks its partition; Connect drops it."
            .to_owned()
    };
    let entry = if member.membership == Membership::Configured {
        format!(
            "writer_max_request_size: {needed} (or none) in the family of {main} in families.members"
        )
    } else {
        let key = match member.kind {
            MemberKind::Retry => "retry",
            MemberKind::DeadLetter => "dead_letter",
        };
        format!(
            "{{main: {main}, {key}: [{topic}], writer_max_request_size: {needed}}} in families.members of the configuration"
        )
    };
    Finding {
        severity: Severity::Warning,
        rule: FindingRule::FamilyWriterTooSmall,
        topics: vec![topic.to_string()],
        values,
        why: format!(
            "Retries and dead letters are written by another producer, with a max.request.size of its own: at {} it refuses \
             by itself what the limits of {main} let pass (records of up to {} estimated bytes, uncompressed) once {} of \
             headers are gathered, whatever {topic} takes. {fate}",
            grouped(gap.member_bytes),
            grouped(gap.main_bytes.unwrap_or(0)),
            grouped(gap.headroom_bytes),
        ),
        fix: format!("{entry}, once max.request.size of that producer is {needed} or more"),
        also: Some(
            "where it is set: Spring, max.request.size of the ProducerFactory behind the KafkaTemplate of the recoverer; \
             Connect, producer.override.max.request.size in the connector's configuration"
                .to_owned(),
        ),
    }
}

/// Each would have to take more than the other.
fn circles(comparison: &Comparison<'_>, found: &mut Vec<Finding>) {
    for circle in comparison.policy.families().circles() {
        let topics: Vec<String> = circle.iter().map(ToString::to_string).collect();
        found.push(Finding {
            severity: Severity::Error,
            rule: FindingRule::FamilyCircle,
            values: vec![Value::new("families.members", "main", topics.join(" "), "config")],
            why: format!(
                "Each of these is a retry or dead-letter topic of another: {}. Each would have to take more than the next.",
                topics.join(" → ")
            ),
            fix: "Say in families.members which of them is the main topic, and take it out of the others' members".to_owned(),
            topics,
            also: None,
        });
    }
}

fn limit(comparison: &Comparison<'_>, topic: &str, gate: Gate) -> Option<Limit> {
    if gate == Gate::Batch {
        return comparison.own_batch_limit(topic);
    }
    let policy = comparison.policy.own(topic);
    let mut limits = policy.inside_limits().iter();
    limits.find(|limit| limit.gate == gate).cloned()
}

fn why_too_small(family: &Family, member: &Member, gap: &Gap, missing: u64) -> String {
    let fate = if family.alignment == Alignment::Enforce
        && member.membership == Membership::Configured
    {
        format!(
            "sizegate keeps {} down to what {} takes until then, so producers are refused earlier than its own limit says.",
            family.main, member.topic
        )
    } else {
        "A record that fits the main topic and fails there is then refused as a retry or dead letter, is redelivered \
         without end, and blocks its partition."
            .to_owned()
    };
    let by = match member.membership {
        Membership::Configured => "",
        Membership::Detected => " (a family by its name; the configuration does not say so)",
    };
    format!(
        "A dead letter is the original with more headers: {} lacks {} bytes of what {} and headroom need at the gate \
         {}{by}. {fate}",
        member.topic,
        grouped(missing),
        family.main,
        gap.gate
    )
}

fn fix_too_small(
    comparison: &Comparison<'_>,
    family: &Family,
    member: &Member,
    gap: &Gap,
    own: &Limit,
) -> String {
    let needed = gap
        .main_bytes
        .unwrap_or(0)
        .saturating_add(gap.headroom_bytes);
    let ours = own.source == Source::Rule || own.source == Source::Family;
    if gap.gate != Gate::Batch || ours {
        let rule = own.name.as_deref().unwrap_or(LIMITS);
        return format!(
            "{}: {needed} for {} in the configuration (\"{rule}\"), or less for {}",
            gap.gate.limit_key(),
            member.topic,
            family.main
        );
    }
    let mut configs = Vec::new();
    if let Some(facts) = comparison.topic(&member.topic) {
        for (key, setting) in [
            (SEGMENT_BYTES, &facts.segment_bytes),
            (MAX_MESSAGE_BYTES, &facts.max_message_bytes),
        ] {
            if setting
                .as_ref()
                .is_some_and(|setting| setting.value() < needed)
            {
                configs.push((key, needed));
            }
        }
    }
    comparison.commands().set_topic(&member.topic, &configs)
}

/// What a topic stores batches with, as a word.
fn stored(comparison: &Comparison<'_>, topic: &str) -> Option<(&'static str, &'static str)> {
    let setting = comparison.topic(topic)?.compression_type.as_ref()?;
    Some((setting.value().label(), setting.source().label()))
}

fn codec(comparison: &Comparison<'_>, family: &Family, member: &Member, found: &mut Vec<Finding>) {
    let (Some(main), Some(own)) = (
        stored(comparison, &family.main),
        stored(comparison, &member.topic),
    ) else {
        return;
    };
    if main.0 == own.0 {
        return;
    }
    let value = |topic: &str, (word, source): (&'static str, &str)| {
        Value::new(topic, COMPRESSION_TYPE, word, source)
    };
    found.push(Finding {
        severity: Severity::Warning,
        rule: FindingRule::FamilyCodec,
        topics: vec![member.topic.to_string()],
        values: vec![value(&family.main, main), value(&member.topic, own)],
        why: format!(
            "The same record is stored larger or smaller in {} than in {}: it may fit one and not the other.",
            member.topic, family.main
        ),
        fix: same_codec(comparison, family, member, main.0),
        also: None,
    });
}

/// The producer of dead letters is another one, and seldom compresses. What protects is a limit of the uncompressed
/// size on the main topic.
fn uncompressed(
    comparison: &Comparison<'_>,
    family: &Family,
    member: &Member,
    found: &mut Vec<Finding>,
) {
    let is_uncompressed = comparison
        .topic(&family.main)
        .is_some_and(|main| main.stored_codec() == Some(Codec::None));
    let (Some(main), Some(own)) = (
        comparison.own_batch_limit(&family.main),
        comparison.own_batch_limit(&member.topic),
    ) else {
        return;
    };
    let headroom = comparison.policy.families().headroom_bytes();
    let room = own.value.saturating_sub(headroom);
    let bounds = comparison.policy.for_topic(&family.main);
    let is_bounded = bounds.inside_limits().iter().any(|limit| {
        matches!(
            limit.gate,
            Gate::Uncompressed | Gate::Record | Gate::Estimate
        ) && limit.value <= room
    });
    // What offloads bounds what is stored, and what is written inline is found beside this.
    let is_offloaded = comparison.policy.written(&family.main, &member.topic) != Written::AsStored;
    if is_uncompressed || is_bounded || is_offloaded {
        return;
    }
    found.push(Finding {
        severity: Severity::Warning,
        rule: FindingRule::FamilyUncompressed,
        topics: vec![member.topic.to_string()],
        values: vec![
            Value::limit(&*family.main, &main),
            Value::limit(&*member.topic, &own),
        ],
        why: format!(
            "{} is limited as it travels, compressed. Dead letters come from another producer, which often does not \
             compress: a record of more than {} bytes uncompressed then fits {} and not {}. A codec set on the topic does \
             not help: the batch is judged as it arrives.",
            family.main,
            grouped(room),
            family.main,
            member.topic
        ),
        fix: format!(
            "uncompressed_bytes: {room} for {} in the configuration, or compression.type in the producer that writes {}",
            family.main, member.topic
        ),
        also: None,
    });
}

/// `producer` for both: a codec of the topic's own is found elsewhere, and judged twice.
fn same_codec(
    comparison: &Comparison<'_>,
    family: &Family,
    member: &Member,
    of_main: &str,
) -> String {
    const PRODUCER: &str = "producer";
    let commands = comparison.commands();
    let member = commands.set_compression(&member.topic, PRODUCER);
    if of_main == PRODUCER {
        member
    } else {
        let main = commands.set_compression(&family.main, PRODUCER);
        format!("{main} && {member}")
    }
}
