//! A refusal as a person reads it: one sentence that names gate, numbers, source and record; a remedy; then one
//! greppable tail. At most [`LONGEST_TEXT`] bytes.

use std::fmt::Write as _;
use std::sync::Arc;

use super::{BatchFacts, Codec, Gate, LIMITS, Limit, Size, Source, Violation};

/// The longest `error_message`.
pub const LONGEST_TEXT: usize = 1024;

/// A topic's name in a text: as long as Kafka allows. What a client sends as one may be longer.
const LONGEST_TOPIC: usize = 249;
/// A rule's or family member's name in a text.
const LONGEST_NAME: usize = 100;

/// Which partition was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The topic's name, or its id where it has none.
    pub topic: Arc<str>,
    /// `index`
    pub partition: i32,
}

/// Who refuses, and whether it is told in hindsight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// This product refuses.
    Sizegate,
    /// This product would refuse, but only observes.
    Observed,
}

/// One partition's refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Stands in the text, in the log and in `/api/v1/refusals`.
    pub id: String,
    /// Where.
    pub place: Place,
    /// What.
    pub violation: Violation,
    /// What is known of the batch; `None` for the frame gate, which keeps none of it.
    pub facts: Option<BatchFacts>,
    /// Sentence, remedy and tail.
    pub text: String,
}

impl Refusal {
    /// Writes the text.
    pub fn new(
        id: String,
        blame: Blame,
        place: Place,
        violation: Violation,
        facts: Option<BatchFacts>,
        remedy: Option<&str>,
    ) -> Self {
        let tail = tail(&id, &place, &violation, facts.as_ref());
        let sentence = sentence(blame, &place, &violation, facts.as_ref());
        let remedy =
            remedy.map_or_else(|| default_remedy(&violation, facts.as_ref()), str::to_owned);
        let room = LONGEST_TEXT.saturating_sub(tail.len()).saturating_sub(1);
        let text = format!("{} {tail}", shortened(format!("{sentence} {remedy}"), room));
        Self {
            id,
            place,
            violation,
            facts,
            text,
        }
    }
}

/// Cuts at a character's end and says so.
pub(super) fn shortened(mut text: String, room: usize) -> String {
    if text.len() > room {
        let mut end = room.saturating_sub("…".len());
        while !text.is_char_boundary(end) {
            end = end.saturating_sub(1);
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

fn sentence(
    blame: Blame,
    place: &Place,
    violation: &Violation,
    facts: Option<&BatchFacts>,
) -> String {
    let mut s = String::with_capacity(256);
    let verb = match blame {
        Blame::Sizegate => "refused",
        Blame::Observed => "would refuse",
    };
    let topic = shortened(place.topic.to_string(), LONGEST_TOPIC);
    let _ = write!(s, "sizegate {verb} {topic}-{}: ", place.partition);
    let limit = &violation.limit;
    if let Some(why) = violation.unreadable {
        let codec = facts
            .and_then(|facts| facts.codec)
            .map_or("unknown", Codec::label);
        let (batch, gate, value, set_by) = (
            batch(facts),
            limit.gate,
            grouped(limit.value),
            set_by(limit),
        );
        let _ = write!(
            s,
            "{batch} cannot be decoded (codec={codec}: {why}), which the {gate} limit of {value}{set_by} needs."
        );
        return s;
    }
    let size = approximate(violation.size);
    let _ = match limit.gate {
        Gate::Frame => write!(s, "the whole request is {size} bytes"),
        Gate::Batch => write!(s, "{} is {size} bytes on the wire", batch(facts)),
        Gate::Uncompressed => write!(s, "{} is {size} bytes uncompressed", batch(facts)),
        Gate::Ratio => write!(s, "{} is {size} bytes uncompressed", batch(facts)),
        Gate::Record => write!(s, "{} is {size} bytes", record(violation, facts)),
        Gate::Estimate => write!(
            s,
            "{} would be {size} bytes by a Java producer's estimate",
            record(violation, facts)
        ),
        Gate::Key => write!(s, "the key of {} is {size} bytes", record(violation, facts)),
        Gate::Value => write!(
            s,
            "the value of {} is {size} bytes",
            record(violation, facts)
        ),
        Gate::Headers => write!(
            s,
            "the headers of {} are {size} bytes",
            record(violation, facts)
        ),
        // These write texts of their own (`codecs.rs`, `topic_config.rs`).
        Gate::Codec | Gate::Config => write!(s, "what was sent is {size} bytes"),
    };
    let over = match violation.size {
        Size::Exact(bytes) => Size::Exact(bytes.saturating_sub(limit.value)),
        Size::AtLeast(bytes) => Size::AtLeast(bytes.saturating_sub(limit.value)),
    };
    let (gate, value, set_by) = (limit.gate, grouped(limit.value), set_by(limit));
    let _ = write!(
        s,
        ", more than the {gate} limit of {value}{set_by} (by {}).",
        approximate(over)
    );
    if let Some(facts) = facts.filter(|_| matches!(limit.gate, Gate::Batch | Gate::Uncompressed)) {
        s.push_str(&inside(facts, limit));
    }
    s
}

/// What is inside the batch, so that nobody hunts for a large record where there is none.
fn inside(facts: &BatchFacts, limit: &Limit) -> String {
    let mut s = String::new();
    match (facts.codec, facts.uncompressed) {
        (Some(Codec::None), _) => s.push_str(" It is not compressed (codec=none)."),
        (Some(codec), Some(size)) if limit.gate == Gate::Batch => {
            let _ = write!(
                s,
                " That is with {codec}: compressed, it is still above ({} bytes uncompressed).",
                approximate(size)
            );
        }
        _ => {}
    }
    match facts.largest {
        Some(largest) if facts.records > 1 && largest.record_bytes <= limit.value => {
            let _ = write!(
                s,
                " No single record is too large (the largest of {} is {} bytes); the batch is.",
                grouped(facts.records.max(0).unsigned_abs().into()),
                grouped(largest.record_bytes)
            );
        }
        Some(largest) if facts.records > 1 => {
            let _ = write!(
                s,
                " Its largest record is number {} of {}: {} bytes, its key {} bytes.",
                grouped(u64::from(largest.index).saturating_add(1)),
                grouped(facts.records.max(0).unsigned_abs().into()),
                grouped(largest.record_bytes),
                grouped(largest.key_bytes)
            );
        }
        Some(largest) if largest.headers_bytes.saturating_mul(50) > largest.record_bytes => {
            let _ = write!(
                s,
                " Its headers are {} bytes of that.",
                grouped(largest.headers_bytes)
            );
        }
        _ => {}
    }
    s
}

fn batch(facts: Option<&BatchFacts>) -> String {
    batch_of(facts.map_or(0, |facts| facts.records))
}

/// "the batch of 3 records", as declared; "the batch" where the number is none.
pub(crate) fn batch_of(records: i32) -> String {
    match records {
        1 => "the batch of 1 record".to_owned(),
        n if n > 1 => format!("the batch of {} records", grouped(n.unsigned_abs().into())),
        _ => "the batch".to_owned(),
    }
}

fn record(violation: &Violation, facts: Option<&BatchFacts>) -> String {
    let Some(record) = violation.record else {
        return "a record".to_owned();
    };
    let number = grouped(u64::from(record.index).saturating_add(1));
    match facts.map_or(0, |facts| facts.records) {
        n if n > 0 => format!("record {number} of {}", grouped(n.unsigned_abs().into())),
        _ => format!("record {number}"),
    }
}

fn set_by(limit: &Limit) -> String {
    let name = shortened(
        limit.name.as_deref().unwrap_or_default().to_owned(),
        LONGEST_NAME,
    );
    match limit.source {
        Source::Rule if limit.gate == Gate::Frame => " set by listener.frame_bytes".to_owned(),
        Source::Rule => {
            let setter = if name == LIMITS {
                "the configuration's limits".to_owned()
            } else {
                format!("rule \"{name}\"")
            };
            let headroom = match limit.headroom_bytes {
                0 => String::new(),
                bytes => format!(
                    " for its main topic, {} of headroom included",
                    grouped(bytes)
                ),
            };
            format!(" set by {setter}{headroom}")
        }
        Source::Topic => " set by the topic's own max.message.bytes".to_owned(),
        Source::Broker => " that the topic inherits from the broker's message.max.bytes".to_owned(),
        Source::Segment => " set by the topic's segment.bytes".to_owned(),
        Source::Family if limit.headroom_bytes == 0 => {
            format!(" kept for the family member \"{name}\"")
        }
        Source::Family if limit.value == 0 => format!(
            " kept for the family member \"{name}\", which takes no more than the headroom of {}",
            grouped(limit.headroom_bytes)
        ),
        Source::Family => format!(
            " kept for the family member \"{name}\", which takes {} less {} of headroom",
            grouped(limit.value.saturating_add(limit.headroom_bytes)),
            grouped(limit.headroom_bytes)
        ),
    }
}

/// What a person can do who has no rule's remedy to follow.
fn default_remedy(violation: &Violation, facts: Option<&BatchFacts>) -> String {
    if violation.unreadable.is_some() {
        return "Send it with a codec and a library that Kafka itself can read.".to_owned();
    }
    let limit = &violation.limit;
    let of_many = facts.is_some_and(|facts| {
        facts.records > 1
            && facts
                .largest
                .is_none_or(|largest| largest.record_bytes <= limit.value)
    });
    match (limit.gate, limit.source) {
        (Gate::Frame, _) => "Lower the producer's max.request.size or batch.size so that one request stays below it.",
        (Gate::Batch, Source::Family) if of_many => {
            "Lower the producer's batch.size, or raise the limits of its retry and dead-letter topics (sizegate align)."
        }
        (Gate::Batch, Source::Rule) if of_many => "Lower the producer's batch.size, or ask for a larger batch_bytes.",
        (Gate::Batch, _) if of_many => "Lower the producer's batch.size, or raise the topic's max.message.bytes.",
        (Gate::Batch, Source::Rule) => "Send less in one record, compress it, or ask for a larger batch_bytes.",
        (Gate::Batch, Source::Topic) => "Send less in one record, compress it, or raise the topic's max.message.bytes.",
        (Gate::Batch, Source::Broker) => {
            "Send less in one record, compress it, or set max.message.bytes on the topic."
        }
        (Gate::Batch, Source::Segment) => "Send less in one record, or raise the topic's segment.bytes.",
        (Gate::Batch, Source::Family) => {
            "Send less in one record, or raise the limits of its retry and dead-letter topics (sizegate align)."
        }
        (Gate::Ratio, _) => "Send what compresses less, or ask for a larger ratio.",
        (Gate::Key, _) => "Send a shorter key.",
        (Gate::Headers, _) => "Send fewer or shorter headers.",
        _ => "Send less in one record, or keep its content elsewhere and send a reference.",
    }
    .to_owned()
}

fn tail(id: &str, place: &Place, violation: &Violation, facts: Option<&BatchFacts>) -> String {
    let limit = &violation.limit;
    let mut s = format!(
        "[gate={} {} limit_bytes={} source={}",
        limit.gate,
        size_field(violation),
        limit.value,
        limit.source
    );
    match (limit.source, &limit.name) {
        (Source::Rule, Some(name)) => {
            let _ = write!(s, " rule={}", one_word(name, LONGEST_NAME));
        }
        (Source::Family, Some(name)) => {
            let _ = write!(
                s,
                " member={} headroom_bytes={}",
                one_word(name, LONGEST_NAME),
                limit.headroom_bytes
            );
        }
        _ => {}
    }
    let _ = write!(
        s,
        " topic={} partition={}",
        one_word(&place.topic, LONGEST_TOPIC),
        place.partition
    );
    if let Some(facts) = facts {
        let _ = write!(s, " batch_bytes={}", facts.wire_bytes);
        match facts.uncompressed {
            Some(Size::Exact(bytes)) => {
                let _ = write!(s, " uncompressed_bytes={bytes}");
            }
            Some(Size::AtLeast(bytes)) => {
                let _ = write!(s, " uncompressed_at_least_bytes={bytes}");
            }
            None => {}
        }
        let _ = write!(
            s,
            " codec={} records={}",
            facts.codec.map_or("unknown", Codec::label),
            facts.records
        );
    }
    if let Some(record) = violation.record {
        let _ = write!(
            s,
            " record={} key_bytes={}",
            u64::from(record.index).saturating_add(1),
            record.key_bytes
        );
    }
    let _ = write!(s, " id={id}]");
    s
}

fn size_field(violation: &Violation) -> String {
    match violation.size {
        _ if violation.unreadable.is_some() => {
            format!("reason={}", violation.unreadable.unwrap_or_default())
        }
        Size::Exact(bytes) => format!("size_bytes={bytes}"),
        Size::AtLeast(bytes) => format!("at_least_bytes={bytes}"),
    }
}

/// A name that may hold spaces, as one field of the tail.
pub(super) fn one_word(name: &str, longest: usize) -> String {
    if name.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | ']' | '='))
    {
        let quoted = format!("{name:?}");
        if quoted.len() <= longest {
            return quoted;
        }
        shortened(quoted, longest.saturating_sub(1)) + "\""
    } else {
        shortened(name.to_owned(), longest)
    }
}

fn approximate(size: Size) -> String {
    match size {
        Size::Exact(bytes) => grouped(bytes),
        Size::AtLeast(bytes) => format!("at least {}", grouped(bytes)),
    }
}

/// 70112 as 70,112.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut s = String::with_capacity(digits.len().saturating_mul(2));
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digits.len().saturating_sub(at).is_multiple_of(3) {
            s.push(',');
        }
        s.push(digit);
    }
    s
}
