//! Gate `config`: what a request may set the configs of topics (and, where a rule says so, of brokers) to. Pure: what
//! the cluster says comes in as [`Known`].
//!
//! Invariant: judged is what would be in force afterwards, the inherited value of a deleted override included; what
//! that is and cannot be read is a breach, not a pass.

use std::fmt::Write as _;
use std::sync::Arc;

use super::refusal::{LONGEST_NAME, LONGEST_TEXT, one_word, shortened};
use super::{Blame, Limit, Place, Refusal, Size, Violation};
use crate::config::{Bounds, Compression, Rule, TopicConfig};
use crate::text::grouped;
use crate::vocabulary::{Gate, Source, labelled};

labelled! {
    /// A config that a rule may govern.
    GovernedKey {
        /// The largest batch.
        MaxMessageBytes = "max.message.bytes",
        /// The largest segment, which bounds batches too.
        SegmentBytes = "segment.bytes",
        /// What batches are stored with.
        CompressionType = "compression.type",
    }
}

impl GovernedKey {
    /// What brokers call their own, which topics inherit.
    pub const fn of_broker(self) -> &'static str {
        match self {
            Self::MaxMessageBytes => "message.max.bytes",
            Self::SegmentBytes => "log.segment.bytes",
            Self::CompressionType => "compression.type",
        }
    }
}

/// What a request does to one config, in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// It gets this value, spelt like this.
    Set(String),
    /// Its override goes away.
    Delete,
}

/// How a request treats what it does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// The topic comes into being: it is inherited.
    Create,
    /// All overrides are replaced: it is inherited again.
    Replace,
    /// It stays.
    Change,
}

/// One topic's, or broker's, part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The topic's name; the broker's id, empty for the default of all.
    pub name: Arc<str>,
    /// A broker's configs.
    pub is_broker: bool,
    /// How it treats what it does not name.
    pub manner: Manner,
    /// What it does to configs that can be governed.
    pub ops: Vec<(GovernedKey, Op)>,
}

/// A config's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A number of bytes, as the broker reads it.
    Bytes(u64),
    /// A word, or what is no number.
    Word(String),
}

impl Value {
    /// As the broker reads a text (`ConfigDef.parseType`): numbers are trimmed and may have a sign.
    pub fn read(key: GovernedKey, text: &str) -> Self {
        if key == GovernedKey::CompressionType {
            return Self::Word(text.to_owned());
        }
        let trimmed = text.trim_matches(|c: char| c <= ' ');
        let digits = trimmed.strip_prefix('+').unwrap_or(trimmed);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        match digits.parse::<u64>() {
            Ok(bytes) if is_number && i32::try_from(bytes).is_ok() => Self::Bytes(bytes),
            _ => Self::Word(text.to_owned()),
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Bytes(bytes) => bytes.to_string(),
            Self::Word(word) => shortened(word.clone(), 64),
        }
    }
}

/// What is known of one config before the change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Held {
    /// In force now; `None`: not known, or the topic does not exist.
    pub now: Option<Value>,
    /// It is an override, which a deletion takes away.
    pub is_override: bool,
    /// What is in force without an override: by broker, as brokers may differ. Empty: not known.
    pub inherited: Vec<Value>,
}

/// What is known of a topic's or broker's configs before the change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// By [`GovernedKey`].
    pub held: [Held; GovernedKey::ALL.len()],
}

impl Known {
    fn of(&self, key: GovernedKey) -> Option<&Held> {
        self.held.get(key as usize)
    }
}

/// What would be in force after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum After {
    /// What the request sets.
    Set(Value),
    /// What is inherited then, by broker; empty: not known.
    Inherited(Vec<Value>),
    /// What was before: the request has nothing to do with it.
    Kept,
}

/// What would be in force of `key` after `change`; of a config named twice the last counts.
pub fn after(change: &Change, key: GovernedKey, known: Option<&Known>) -> After {
    let held = known.and_then(|known| known.of(key));
    let inherited =
        || After::Inherited(held.map(|held| held.inherited.clone()).unwrap_or_default());
    let last = change.ops.iter().rev().find(|(of, _)| *of == key);
    match (last, change.manner) {
        (Some((_, Op::Set(text))), _) => After::Set(Value::read(key, text)),
        (Some((_, Op::Delete)), _) | (None, Manner::Create) => inherited(),
        // Not known: it may well be one.
        (None, Manner::Replace) if held.is_none_or(|held| held.is_override) => inherited(),
        (None, Manner::Replace | Manner::Change) => After::Kept,
    }
}

/// What must be read of the cluster before `change` can be judged by `governed`.
pub fn needs_known(change: &Change, governed: &TopicConfig) -> bool {
    let is_bound = |key: &&GovernedKey| bound_of(governed, **key).is_some();
    let mut bound = GovernedKey::ALL.iter().filter(is_bound);
    bound.any(|key| matches!(after(change, *key, None), After::Inherited(_)))
}

/// What a rule says of one config.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bound<'a> {
    Size(Bounds),
    Words(&'a [Compression]),
}

fn bound_of(governed: &TopicConfig, key: GovernedKey) -> Option<Bound<'_>> {
    match key {
        GovernedKey::MaxMessageBytes => governed.max_message_bytes.map(Bound::Size),
        GovernedKey::SegmentBytes => governed.segment_bytes.map(Bound::Size),
        GovernedKey::CompressionType => (!governed.compression_type.is_empty())
            .then_some(Bound::Words(&governed.compression_type)),
    }
}

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Less than the least.
    Below(u64),
    /// More than the most.
    Above(u64),
    /// Not one of these words.
    NotAmong(String),
    /// What then is inherited could not be read.
    Unread,
    /// The value may be a number that the broker can read and nobody else.
    Illegible,
}

/// A config that a change would set to what its rule forbids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breach {
    /// The config.
    pub key: GovernedKey,
    /// What would be in force; `None`: not read.
    pub value: Option<Value>,
    /// It would be inherited.
    pub is_inherited: bool,
    /// What is wrong with it.
    pub fault: Fault,
}

/// Every config of `change` that breaks `governed`.
pub fn breaches(change: &Change, governed: &TopicConfig, known: Option<&Known>) -> Vec<Breach> {
    let judge = |&key: &GovernedKey| {
        let bound = bound_of(governed, key)?;
        let (values, is_inherited) = match after(change, key, known) {
            After::Kept => return None,
            After::Set(value) => (vec![value], false),
            After::Inherited(values) => (values, true),
        };
        if values.is_empty() {
            return Some(Breach {
                key,
                value: None,
                is_inherited,
                fault: Fault::Unread,
            });
        }
        values.into_iter().find_map(|value| {
            let fault = fault(bound, &value)?;
            Some(Breach {
                key,
                value: Some(value),
                is_inherited,
                fault,
            })
        })
    };
    GovernedKey::ALL.iter().filter_map(judge).collect()
}

fn fault(bound: Bound<'_>, value: &Value) -> Option<Fault> {
    match (bound, value) {
        (Bound::Size(Bounds { min: Some(min), .. }), Value::Bytes(bytes)) if *bytes < min => {
            Some(Fault::Below(min))
        }
        (Bound::Size(Bounds { max: Some(max), .. }), Value::Bytes(bytes)) if *bytes > max => {
            Some(Fault::Above(max))
        }
        // Java reads the digits of every script; what is no number at all is the broker's to refuse.
        (Bound::Size(_), Value::Word(word)) => {
            let is_foreign = |c: char| !c.is_ascii() && c.is_numeric();
            word.chars().any(is_foreign).then_some(Fault::Illegible)
        }
        (Bound::Words(words), Value::Word(word))
            if !words.iter().any(|allowed| allowed.label() == word) =>
        {
            let words: Vec<&str> = words.iter().map(|word| word.label()).collect();
            Some(Fault::NotAmong(words.join(", ")))
        }
        _ => None,
    }
}

/// The refusal of a change that breaks `rule`; `None` where there is no breach.
pub fn refusal(
    id: String,
    blame: Blame,
    change: &Change,
    breaches: &[Breach],
    rule: &Rule,
) -> Option<Refusal> {
    let first = breaches.first()?;
    let mut text = opening(blame, change);
    for (at, breach) in breaches.iter().enumerate() {
        if at > 0 {
            text.push_str(" And ");
        }
        text.push_str(&sentence(change, breach, &rule.name));
    }
    let remedy = match &rule.remedy {
        Some(remedy) => remedy.clone(),
        None => default_remedy(change, first),
    };
    let _ = write!(text, " {remedy}");
    let limit_bytes = match first.fault {
        Fault::Below(bytes) | Fault::Above(bytes) => Some(bytes),
        Fault::NotAmong(_) | Fault::Unread | Fault::Illegible => None,
    };
    let fields = Fields {
        key: key_name(change, first.key),
        value: first.value.as_ref(),
        limit_bytes,
        source: Source::Rule,
        more: format!(
            "{} rule={}",
            match &first.fault {
                Fault::Below(_) => "bound=min".to_owned(),
                Fault::Above(_) => "bound=max".to_owned(),
                Fault::NotAmong(words) => format!("allow={}", words.replace(", ", ",")),
                Fault::Unread => "reason=unread".to_owned(),
                Fault::Illegible => "reason=illegible".to_owned(),
            },
            one_word(&rule.name, LONGEST_NAME)
        ),
    };
    Some(written(
        id,
        change,
        text,
        &fields,
        rule.name.as_str().into(),
    ))
}

/// The fields of a text's tail.
pub(super) struct Fields<'a> {
    pub(super) key: &'static str,
    pub(super) value: Option<&'a Value>,
    pub(super) limit_bytes: Option<u64>,
    pub(super) source: Source,
    pub(super) more: String,
}

/// `sizegate refused the configs of orders: `
pub(super) fn opening(blame: Blame, change: &Change) -> String {
    let verb = blame.verb();
    let whose = match (change.is_broker, change.manner, &*change.name) {
        (true, _, "") => "the configs of all brokers".to_owned(),
        (true, _, id) => format!("the configs of broker {}", shortened(id.to_owned(), 20)),
        (false, Manner::Create, topic) => format!("to create {}", shortened(topic.to_owned(), 249)),
        (false, _, topic) => format!("the configs of {}", shortened(topic.to_owned(), 249)),
    };
    format!("sizegate {verb} {whose}: ")
}

/// The whole refusal: the text with its tail, and the numbers for log and API.
pub(super) fn written(
    id: String,
    change: &Change,
    text: String,
    fields: &Fields<'_>,
    name: Arc<str>,
) -> Refusal {
    let size = match fields.value {
        Some(Value::Bytes(bytes)) => format!(" size_bytes={bytes}"),
        Some(value) => format!(" value={}", one_word(&value.text(), 64)),
        None => String::new(),
    };
    let limit = fields
        .limit_bytes
        .map(|bytes| format!(" limit_bytes={bytes}"))
        .unwrap_or_default();
    let (kind, of) = if change.is_broker {
        (
            "broker",
            if change.name.is_empty() {
                "all"
            } else {
                &*change.name
            },
        )
    } else {
        ("topic", &*change.name)
    };
    let tail = format!(
        "[gate={} key={}{size}{limit} source={} {} {kind}={} id={id}]",
        Gate::Config,
        fields.key,
        fields.source,
        fields.more,
        one_word(of, 249),
    );
    let room = LONGEST_TEXT.saturating_sub(tail.len()).saturating_sub(1);
    let text = format!("{} {tail}", shortened(text, room));
    Refusal {
        id,
        place: Place {
            topic: if change.is_broker {
                format!("(broker {of})").into()
            } else {
                Arc::clone(&change.name)
            },
            // No partition.
            partition: -1,
        },
        violation: Violation {
            limit: Limit {
                gate: Gate::Config,
                value: fields.limit_bytes.unwrap_or(0),
                source: fields.source,
                name: Some(name),
                headroom_bytes: 0,
                member_limit: None,
            },
            size: Size::Exact(match fields.value {
                Some(Value::Bytes(bytes)) => *bytes,
                _ => 0,
            }),
            record: None,
            unreadable: None,
        },
        facts: None,
        text,
    }
}

/// The name that the request has for it.
pub(super) const fn key_name(change: &Change, key: GovernedKey) -> &'static str {
    if change.is_broker {
        key.of_broker()
    } else {
        key.label()
    }
}

fn sentence(change: &Change, breach: &Breach, rule: &str) -> String {
    let key = key_name(change, breach.key);
    let value = match &breach.value {
        Some(Value::Bytes(bytes)) => grouped(*bytes),
        Some(value) => value.text(),
        None => String::new(),
    };
    let what = match (breach.is_inherited, change.manner) {
        (false, _) => format!("{key}={value}"),
        (true, Manner::Create) => format!("{key}={value}, which it would inherit,"),
        (true, _) => format!("{key}={value}, which would be inherited without the override,"),
    };
    match &breach.fault {
        Fault::Above(most) => format!(
            "{what} is more than the {} that rule \"{rule}\" allows (by {}).",
            grouped(*most),
            grouped(excess(&breach.value, *most))
        ),
        Fault::Below(least) => format!(
            "{what} is less than the {} that rule \"{rule}\" asks for (by {}).",
            grouped(*least),
            grouped(excess(&breach.value, *least))
        ),
        Fault::NotAmong(words) => {
            format!("{what} is none of what rule \"{rule}\" allows: {words}.")
        }
        Fault::Unread => format!(
            "{key} is not given, and what would be inherited could not be read; rule \"{rule}\" governs it."
        ),
        Fault::Illegible => {
            format!("{what} cannot be read as a number, and rule \"{rule}\" governs it.")
        }
    }
}

fn excess(value: &Option<Value>, bound: u64) -> u64 {
    match value {
        Some(Value::Bytes(bytes)) => bytes.abs_diff(bound),
        _ => 0,
    }
}

/// What a person can do who has no rule's remedy to follow.
fn default_remedy(change: &Change, breach: &Breach) -> String {
    let key = key_name(change, breach.key);
    match &breach.fault {
        Fault::Above(most) => {
            format!("Set {key} to {most} at most, or ask for a larger topic_config.")
        }
        Fault::Below(least) => {
            format!("Set {key} to {least} at least, or ask for a smaller topic_config.")
        }
        Fault::NotAmong(words) => format!("Set {key} to one of {words}."),
        Fault::Unread => format!(
            "Give {key} a value in the request, or let sizegate's own user describe the configs of topics and brokers."
        ),
        Fault::Illegible => format!("Write {key} in the digits 0 to 9."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use GovernedKey::{CompressionType, MaxMessageBytes, SegmentBytes};

    fn governed() -> TopicConfig {
        TopicConfig {
            max_message_bytes: Some(Bounds {
                min: Some(65_536),
                max: Some(10_485_760),
            }),
            segment_bytes: Some(Bounds {
                min: Some(16_777_216),
                max: None,
            }),
            compression_type: vec![Compression::Producer, Compression::Zstd],
            brokers: false,
        }
    }

    fn change(manner: Manner, ops: &[(GovernedKey, Option<&str>)]) -> Change {
        let op = |value: Option<&str>| value.map_or(Op::Delete, |text| Op::Set(text.to_owned()));
        Change {
            name: "orders".into(),
            is_broker: false,
            manner,
            ops: ops.iter().map(|(key, value)| (*key, op(*value))).collect(),
        }
    }

    fn faults(change: &Change, known: Option<&Known>) -> Vec<(GovernedKey, Fault)> {
        let found = breaches(change, &governed(), known);
        found
            .into_iter()
            .map(|breach| (breach.key, breach.fault))
            .collect()
    }

    fn defaults(max: u64, segment: u64, word: &str) -> Known {
        let held = |value: Value| Held {
            now: None,
            is_override: false,
            inherited: vec![value],
        };
        Known {
            held: [
                held(Value::Bytes(max)),
                held(Value::Bytes(segment)),
                held(Value::Word(word.to_owned())),
            ],
        }
    }

    #[test]
    fn numbers_are_held_to_their_bounds_as_the_broker_reads_them() {
        for (text, fault) in [
            ("65535", Some(Fault::Below(65_536))),
            ("65536", None),
            ("10485760", None),
            ("10485761", Some(Fault::Above(10_485_760))),
            (" 10485761\t", Some(Fault::Above(10_485_760))),
            ("+10485761", Some(Fault::Above(10_485_760))),
            ("00010485761", Some(Fault::Above(10_485_760))),
            ("0", Some(Fault::Below(65_536))),
            // Java's Integer.parseInt reads these.
            (
                "\u{661}\u{660}\u{664}\u{668}\u{665}\u{667}\u{666}\u{661}",
                Some(Fault::Illegible),
            ),
            // The broker refuses these, in its own words.
            ("-1", None),
            ("99999999999", None),
            ("1MiB", None),
            ("", None),
            ("+", None),
            ("1 0485761", None),
        ] {
            let change = change(Manner::Change, &[(MaxMessageBytes, Some(text))]);
            let expected: Vec<_> = fault
                .into_iter()
                .map(|fault| (MaxMessageBytes, fault))
                .collect();
            assert_eq!(faults(&change, None), expected, "{text:?}");
        }
    }

    #[test]
    fn words_are_one_of_those_allowed_letter_by_letter() {
        for (word, is_allowed) in [
            ("zstd", true),
            ("producer", true),
            ("gzip", false),
            ("uncompressed", false),
            ("ZSTD", false),
            (" zstd", false),
            ("brotli", false),
        ] {
            let change = change(Manner::Change, &[(CompressionType, Some(word))]);
            assert_eq!(faults(&change, None).is_empty(), is_allowed, "{word}");
        }
    }

    #[test]
    fn a_deleted_override_is_judged_by_what_then_is_inherited() {
        let change = change(
            Manner::Change,
            &[(MaxMessageBytes, None), (SegmentBytes, None)],
        );
        assert!(needs_known(&change, &governed()));
        assert_eq!(
            faults(&change, Some(&defaults(1_048_588, 1 << 30, "producer"))),
            []
        );
        assert_eq!(
            faults(&change, Some(&defaults(1000, 16_777_215, "gzip"))),
            [
                (MaxMessageBytes, Fault::Below(65_536)),
                (SegmentBytes, Fault::Below(16_777_216))
            ]
        );
        assert_eq!(
            faults(&change, None),
            [
                (MaxMessageBytes, Fault::Unread),
                (SegmentBytes, Fault::Unread)
            ]
        );
    }

    #[test]
    fn brokers_that_differ_each_count() {
        let mut known = defaults(1_048_588, 1 << 30, "producer");
        known.held[0].inherited.push(Value::Bytes(20_000_000));
        let change = change(Manner::Change, &[(MaxMessageBytes, None)]);
        assert_eq!(
            faults(&change, Some(&known)),
            [(MaxMessageBytes, Fault::Above(10_485_760))]
        );
    }

    #[test]
    fn a_created_topic_is_judged_by_what_it_inherits_and_a_changed_one_is_not() {
        let known = defaults(1000, 1 << 30, "gzip");
        let wrong = [
            (MaxMessageBytes, Fault::Below(65_536)),
            (
                CompressionType,
                Fault::NotAmong("producer, zstd".to_owned()),
            ),
        ];
        assert_eq!(faults(&change(Manner::Create, &[]), Some(&known)), wrong);
        assert_eq!(faults(&change(Manner::Change, &[]), Some(&known)), []);
        assert!(!needs_known(&change(Manner::Change, &[]), &governed()));
        // What is given is not inherited.
        let given = [
            (MaxMessageBytes, Some("1000000")),
            (CompressionType, Some("zstd")),
        ];
        assert_eq!(faults(&change(Manner::Create, &given), Some(&known)), []);
    }

    #[test]
    fn what_replaces_all_overrides_drops_those_that_it_does_not_name() {
        let mut known = defaults(1000, 1 << 30, "producer");
        let change = change(Manner::Replace, &[(SegmentBytes, Some("16777216"))]);
        assert!(needs_known(&change, &governed()));
        assert_eq!(
            faults(&change, Some(&known)),
            [],
            "it inherited that before"
        );
        known.held[0].is_override = true;
        known.held[0].now = Some(Value::Bytes(1_000_000));
        assert_eq!(
            faults(&change, Some(&known)),
            [(MaxMessageBytes, Fault::Below(65_536))]
        );
    }

    #[test]
    fn of_a_config_named_twice_the_last_counts() {
        let twice = [
            (MaxMessageBytes, Some("1")),
            (MaxMessageBytes, Some("65536")),
        ];
        assert_eq!(
            faults(&change(Manner::Create, &twice), None).first(),
            Some(&(SegmentBytes, Fault::Unread))
        );
        let twice = [
            (MaxMessageBytes, Some("65536")),
            (MaxMessageBytes, Some("1")),
        ];
        assert_eq!(
            faults(&change(Manner::Change, &twice), None),
            [(MaxMessageBytes, Fault::Below(65_536))]
        );
    }
}
