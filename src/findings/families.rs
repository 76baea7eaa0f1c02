//! Main topics against their retry and dead-letter topics.

use super::topics::stored_word;
use super::{
    COMPRESSION_TYPE, Comparison, Finding, FindingRule, MAX_MESSAGE_BYTES, SEGMENT_BYTES, Severity,
    Value,
};
use crate::cluster::CompressionType;
use crate::policy::families::{Alignment, Family, Gap, Member, Membership, gaps};
use crate::policy::{Codec, Gate, LIMITS, Limit, Source, grouped};

pub(super) fn find(comparison: &Comparison<'_>, found: &mut Vec<Finding>) {
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
            "{}_bytes: {needed} for {} in the configuration (\"{rule}\"), or less for {}",
            gap.gate, member.topic, family.main
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
    let word = match setting.value() {
        CompressionType::Producer => "producer",
        CompressionType::Stored(codec) => stored_word(codec),
    };
    Some((word, setting.source().label()))
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
        fix: comparison.commands().set_compression(&member.topic, main.0),
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
    let is_unpacked = comparison
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
    if is_unpacked || is_bounded {
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
