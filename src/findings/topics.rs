//! A topic's settings against each other, and against our limits.

use super::{
    COMPRESSION_TYPE, Comparison, Finding, FindingRule, MAX_DECOMPRESSED_MESSAGE_BYTES,
    MAX_MESSAGE_BYTES, SEGMENT_BYTES, Severity, TopicFacts, Value,
};
use crate::policy::TopicPolicy;
use crate::text::grouped;
use crate::vocabulary::{BATCHING_BYTES, Codec, Gate, Source};

/// What a topic takes that takes all that clients batch: Kafka's own default.
const BATCHING_LIMIT: u64 = BATCHING_BYTES + 12;

pub(super) fn find(comparison: &Comparison<'_>, found: &mut Vec<Finding>) {
    for topic in &comparison.facts.topics {
        override_above_broker(comparison, topic, found);
        segment_below_limit(comparison, topic, found);
        // What Kafka writes itself does not pass the proxy.
        if !topic.is_internal {
            let policy = comparison.policy.for_topic(&topic.name);
            recompressed(comparison, topic, found);
            decompressed_below_limit(comparison, topic, &policy, found);
            small_limit(comparison, topic, &policy, found);
        }
    }
}

fn override_above_broker(
    comparison: &Comparison<'_>,
    topic: &TopicFacts,
    found: &mut Vec<Finding>,
) {
    let Some(setting) = topic
        .max_message_bytes
        .as_ref()
        .filter(|set| set.is_override())
    else {
        return;
    };
    let Some(inherited) = setting
        .inherited()
        .filter(|step| step.value < setting.value())
    else {
        return;
    };
    // What families, or batching clients, need is no surprise, and taking it back would be found in its turn.
    let by_families = comparison.needed_by_families(&topic.name).unwrap_or(0);
    let by_clients = if inherited.value < BATCHING_BYTES {
        BATCHING_LIMIT
    } else {
        0
    };
    let needed = by_families.max(by_clients);
    if setting.value() <= needed {
        return;
    }
    let commands = comparison.commands();
    let back = if needed > inherited.value {
        commands.set_topic(&topic.name, &[(MAX_MESSAGE_BYTES, needed)])
    } else {
        commands.unset_topic(&topic.name, MAX_MESSAGE_BYTES)
    };
    found.push(Finding {
        severity: Severity::Warning,
        rule: FindingRule::OverrideAboveBroker,
        topics: vec![topic.name.to_string()],
        values: vec![
            Value::setting(&*topic.name, MAX_MESSAGE_BYTES, setting),
            Value::new("brokers", "message.max.bytes", inherited.value, inherited.source.label()),
        ],
        why: format!(
            "The topic's own value wins over the broker's default, so batches of up to {} bytes are stored; replicas, \
             consumers and dead-letter topics are usually sized by the default.",
            grouped(setting.value())
        ),
        fix: format!(
            "Size consumers' memory for it and leave it, or take it back: {back}"
        ),
        also: None,
    });
}

fn segment_below_limit(comparison: &Comparison<'_>, topic: &TopicFacts, found: &mut Vec<Finding>) {
    let (Some(limit), Some(segment)) = (&topic.max_message_bytes, &topic.segment_bytes) else {
        return;
    };
    if segment.value() >= limit.value() {
        return;
    }
    found.push(Finding {
        severity: Severity::Error,
        rule: FindingRule::SegmentBelowLimit,
        topics: vec![topic.name.to_string()],
        values: vec![
            Value::setting(&*topic.name, SEGMENT_BYTES, segment),
            Value::setting(&*topic.name, MAX_MESSAGE_BYTES, limit),
        ],
        why: format!(
            "A batch must fit into one segment: of what {MAX_MESSAGE_BYTES} allows, the broker refuses everything above \
             {} bytes with code 18 (RECORD_LIST_TOO_LARGE), which some clients retry without end. sizegate refuses it \
             with code 10 (source=segment); clients that reach the brokers directly meet the 18.",
            grouped(segment.value())
        ),
        fix: comparison
            .commands()
            .set_topic(&topic.name, &[(SEGMENT_BYTES, limit.value())]),
        also: None,
    });
}

fn recompressed(comparison: &Comparison<'_>, topic: &TopicFacts, found: &mut Vec<Finding>) {
    let Some(codec) = topic.stored_codec() else {
        return;
    };
    let setting = topic.compression_type.as_ref();
    let source = setting.map_or("broker", |setting| setting.source().label());
    let stored = codec.stored_label();
    let grows = if codec == Codec::None {
        "a batch that travels compressed is stored uncompressed and is then larger"
    } else {
        "a batch of another codec can be larger once it is rewritten"
    };
    let mut values = vec![Value::new(&*topic.name, COMPRESSION_TYPE, stored, source)];
    values.extend(
        topic
            .max_message_bytes
            .as_ref()
            .map(|limit| Value::setting(&*topic.name, MAX_MESSAGE_BYTES, limit)),
    );
    found.push(Finding {
        severity: Severity::Warning,
        rule: FindingRule::Recompressed,
        topics: vec![topic.name.to_string()],
        values,
        why: format!(
            "The broker judges a batch twice here, as it travels and again as it stores it: {grows}, so it can be refused \
             although it was within the limit on its way."
        ),
        fix: comparison.commands().set_compression(&topic.name, "producer"),
        also: None,
    });
}

/// Of what our limits let pass, the broker refuses compressed records above this, without a text.
fn decompressed_below_limit(
    comparison: &Comparison<'_>,
    topic: &TopicFacts,
    policy: &TopicPolicy,
    found: &mut Vec<Finding>,
) {
    let Some(setting) = &topic.max_decompressed_message_bytes else {
        return;
    };
    // Each of these bounds one record; the tightest one does.
    let bounds = policy.inside_limits().iter().filter(|limit| {
        matches!(
            limit.gate,
            Gate::Record | Gate::Estimate | Gate::Uncompressed
        )
    });
    let Some(limit) = bounds
        .cloned()
        .min_by_key(|limit| limit.value)
        .or_else(|| comparison.batch_limit(policy, &topic.name))
        .filter(|limit| limit.value > setting.value())
    else {
        return;
    };
    found.push(Finding {
        severity: Severity::Error,
        rule: FindingRule::DecompressedBelowLimit,
        topics: vec![topic.name.to_string()],
        values: vec![
            Value::setting(&*topic.name, MAX_DECOMPRESSED_MESSAGE_BYTES, setting),
            Value::limit(&*topic.name, &limit),
        ],
        why: format!(
            "The broker refuses a record of more than {} bytes after decompression with code 87 and no error message, although the \
             {} limit of {} lets it pass.",
            grouped(setting.value()),
            limit.gate,
            grouped(limit.value)
        ),
        fix: comparison
            .commands()
            .set_topic(&topic.name, &[(MAX_DECOMPRESSED_MESSAGE_BYTES, limit.value)]),
        also: Some(format!("or record_bytes: {} in a rule for the topic", setting.value())),
    });
}

/// A topic's own limit under what clients batch. A rule's is found once, with the rule.
fn small_limit(
    comparison: &Comparison<'_>,
    topic: &TopicFacts,
    policy: &TopicPolicy,
    found: &mut Vec<Finding>,
) {
    let Some(limit) = comparison.batch_limit(policy, &topic.name) else {
        return;
    };
    let by_broker = matches!(
        limit.source,
        Source::Topic | Source::Broker | Source::Segment
    );
    if !by_broker || limit.value >= BATCHING_BYTES {
        return;
    }
    let key = if limit.source == Source::Segment {
        SEGMENT_BYTES
    } else {
        MAX_MESSAGE_BYTES
    };
    // A retry or dead-letter topic may need more, which is found beside this.
    let by_families = comparison.needed_by_families(&topic.name).unwrap_or(0);
    let enough = by_families.max(BATCHING_LIMIT);
    found.push(Finding {
        severity: Severity::Warning,
        rule: FindingRule::SmallBatchLimit,
        topics: vec![topic.name.to_string()],
        values: vec![Value::limit(&*topic.name, &limit)],
        why: small_batches_hurt(),
        fix: comparison
            .commands()
            .set_topic(&topic.name, &[(key, enough)]),
        also: Some(format!(
            "and record_bytes: {} in a rule for the topic",
            limit.value
        )),
    });
}

pub(super) fn small_batches_hurt() -> String {
    "librdkafka, franz-go, kafka-go and sarama gather up to about 1 MiB of small records in a batch and lose all of them \
     when it is refused; Java before 4.2 resends it without end. A limit for each record (record_bytes) refuses large \
     records without that."
        .to_owned()
}
