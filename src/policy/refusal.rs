//! A refusal as a person reads it: one sentence that names gate, numbers, source and record; a remedy; then one
//! greppable tail. At most [`LONGEST_TEXT`] bytes.

use std::fmt::Write as _;
use std::sync::Arc;

use super::{
    BatchFacts, Framework, LIMITS, Library, Limit, MemberLimit, RecordAt, Size, Violation,
};
use crate::batch::BATCH_HEADER_BYTES;
use crate::text::{counted, first_bytes, grouped};
use crate::vocabulary::{Codec, Gate, Source};

/// The longest `error_message`.
pub(super) const LONGEST_TEXT: usize = 1024;

/// A topic's name in a text: as long as Kafka allows. What a client sends as one may be longer.
pub(super) const LONGEST_TOPIC: usize = 249;
/// A rule's or family member's name in a text.
pub(super) const LONGEST_NAME: usize = 100;

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
    /// Likewise, and something else of the same batch was told of before.
    AlsoObserved,
    /// This product would offload values, but only observes.
    WouldOffload,
    /// Likewise, and something else of the same batch was told of before.
    AlsoWouldOffload,
}

impl Blame {
    /// What it does.
    pub(super) const fn verb(self) -> &'static str {
        match self {
            Self::Sizegate => "refused",
            Self::Observed => "would refuse",
            Self::AlsoObserved => "would also refuse",
            Self::WouldOffload => "would offload",
            Self::AlsoWouldOffload => "would also offload",
        }
    }
}

/// What ends the text where values would be offloaded.
const WOULD_OFFLOAD: &str =
    "Enforced, its large values go to the object store and tickets travel in their place.";

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
    /// Writes the text. `remedy`: a rule's own; `library` and `framework`: what the client is, where it is known.
    pub fn new(
        id: String,
        blame: Blame,
        place: Place,
        violation: Violation,
        facts: Option<BatchFacts>,
        remedy: Option<&str>,
        (library, framework): (Option<Library>, Option<Framework>),
    ) -> Self {
        let facts = facts.map(BatchFacts::without_idle_bounds);
        let tail = tail(&id, &place, &violation, facts.as_ref());
        let sentence = sentence(blame, &place, &violation, facts.as_ref(), library);
        let remedy = match blame {
            Blame::WouldOffload | Blame::AlsoWouldOffload => WOULD_OFFLOAD.to_owned(),
            Blame::Sizegate | Blame::Observed | Blame::AlsoObserved => remedy.map_or_else(
                || {
                    placed(
                        default_remedy(&violation, facts.as_ref(), library),
                        framework,
                    )
                },
                str::to_owned,
            ),
        };
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

/// With a sentence on where the settings go that it names.
fn placed(remedy: String, framework: Option<Framework>) -> String {
    match framework.and_then(|framework| framework.places(&remedy)) {
        Some(places) => format!("{remedy} {places}"),
        None => remedy,
    }
}

/// Cuts at a character's end and says so.
pub(super) fn shortened(mut text: String, room: usize) -> String {
    if text.len() > room {
        text.truncate(first_bytes(&text, room.saturating_sub("…".len())).len());
        text.push('…');
    }
    text
}

fn sentence(
    blame: Blame,
    place: &Place,
    violation: &Violation,
    facts: Option<&BatchFacts>,
    library: Option<Library>,
) -> String {
    let mut s = String::with_capacity(256);
    let verb = blame.verb();
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
    match facts {
        Some(facts) if matches!(limit.gate, Gate::Batch | Gate::Uncompressed) => {
            s.push_str(&inside(facts, violation, library));
        }
        _ => s.push_str(&headers(violation.record, violation)),
    }
    s
}

/// Where the blame lies in a batch that is too large.
enum Blamed {
    /// This record alone is too large.
    Record(RecordAt),
    /// No record is: the batch has too many of them.
    Batch(RecordAt),
    /// Not all of its records were measured: unknown is not small.
    Unknown,
    /// One record, which was not looked into.
    TheOne,
}

fn blamed(facts: &BatchFacts, limit: &Limit) -> Blamed {
    // Alone, it would travel in a batch of its own.
    let is_too_large = |record: &RecordAt| {
        record
            .record_bytes
            .saturating_add(BATCH_HEADER_BYTES as u64)
            > limit.value
    };
    match (facts.largest, facts.seen.filter(is_too_large)) {
        (Some(largest), _) if facts.records <= 1 || is_too_large(&largest) => {
            Blamed::Record(largest)
        }
        (Some(largest), _) => Blamed::Batch(largest),
        (None, Some(seen)) => Blamed::Record(seen),
        (None, None) if facts.records == 1 => Blamed::TheOne,
        (None, None) => Blamed::Unknown,
    }
}

/// What is inside the batch, so that nobody hunts for a large record where there is none.
fn inside(facts: &BatchFacts, violation: &Violation, library: Option<Library>) -> String {
    let limit = &violation.limit;
    let mut s = compression(facts, limit, library);
    let records = grouped(facts.records.max(0).unsigned_abs().into());
    match blamed(facts, limit) {
        Blamed::Batch(largest) => {
            let _ = write!(
                s,
                " No single record is too large (the largest of {records} is {} bytes); the batch is.",
                grouped(largest.record_bytes)
            );
        }
        Blamed::Record(record) if facts.records > 1 => {
            let largest = match facts.largest {
                Some(_) => "Its largest record is",
                None => "Not all of its records were measured; the largest so far is",
            };
            let _ = write!(
                s,
                " {largest} number {} of {records}: {} bytes, its key {} bytes.",
                grouped(u64::from(record.index).saturating_add(1)),
                grouped(record.record_bytes),
                grouped(record.key_bytes)
            );
            s.push_str(&headers(Some(record), violation));
        }
        Blamed::Record(record) => s.push_str(&headers(Some(record), violation)),
        Blamed::Unknown if facts.records > 1 => {
            s.push_str(" Not all of its records were measured.");
        }
        Blamed::Unknown | Blamed::TheOne => {}
    }
    s
}

/// What its codec has to do with it.
fn compression(facts: &BatchFacts, limit: &Limit, library: Option<Library>) -> String {
    match (facts.codec, facts.uncompressed) {
        (Some(Codec::None), _) => match library.filter(|library| library.compresses_what_shrinks())
        {
            Some(library) => format!(
                " It is not compressed (codec=none), or did not gain by it: {library} then sends it uncompressed."
            ),
            None => " It is not compressed (codec=none).".to_owned(),
        },
        (Some(codec), _) if is_grown(facts, limit) => format!(
            " {codec} made it larger: uncompressed it is {} bytes, which fits.",
            facts.uncompressed.map_or_else(String::new, approximate)
        ),
        (Some(codec), Some(size)) if limit.gate == Gate::Batch => format!(
            " That is with {codec}: compressed, it is still above ({} bytes uncompressed).",
            approximate(size)
        ),
        (Some(codec), None) if limit.gate == Gate::Batch => {
            format!(" That is with {codec}: compressed, it is still above.")
        }
        _ => String::new(),
    }
}

/// It would be within the limit on the wire if it were not compressed: noise grows.
fn is_grown(facts: &BatchFacts, limit: &Limit) -> bool {
    limit.gate == Gate::Batch
        && facts.codec.is_some_and(|codec| codec != Codec::None)
        && matches!(facts.uncompressed, Some(Size::Exact(bytes)) if bytes <= limit.value)
}

/// Headers are named where they are a part worth knowing, or where it would fit without them.
fn headers(record: Option<RecordAt>, violation: &Violation) -> String {
    let Some(record) = record.filter(|record| record.headers_bytes > 0) else {
        return String::new();
    };
    let is_large = record.headers_bytes.saturating_mul(50) > record.record_bytes;
    match violation.limit.gate {
        Gate::Key | Gate::Value | Gate::Headers | Gate::Ratio | Gate::Frame => String::new(),
        _ if is_large || fits_without_headers(record, violation) => format!(
            " Its headers are {} bytes of that.",
            grouped(record.headers_bytes)
        ),
        _ => String::new(),
    }
}

/// The size less this record's headers is within the limit. Of a compressed batch nobody knows what they take on the wire.
fn fits_without_headers(record: RecordAt, violation: &Violation) -> bool {
    let bytes = violation.size.bytes();
    record.headers_bytes > 0
        && bytes > violation.limit.value
        && bytes.saturating_sub(record.headers_bytes) <= violation.limit.value
}

fn batch(facts: Option<&BatchFacts>) -> String {
    batch_of(facts.map_or(0, |facts| facts.records))
}

/// "the batch of 3 records", as declared; "the batch" where the number is none.
pub(crate) fn batch_of(records: i32) -> String {
    match records {
        n if n > 0 => format!(
            "the batch of {}",
            counted(n.unsigned_abs().into(), "record")
        ),
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
        Source::Broker if limit.gate == Gate::Frame => {
            " set by the broker's socket.request.max.bytes".to_owned()
        }
        Source::Broker => " that the topic inherits from the broker's message.max.bytes".to_owned(),
        Source::Segment => " set by the topic's segment.bytes".to_owned(),
        Source::Family if limit.headroom_bytes == 0 => {
            format!(" kept for the family member \"{name}\"{}", by_rule(limit))
        }
        Source::Family if limit.value == 0 => format!(
            " kept for the family member \"{name}\", which takes no more than the headroom of {}{}",
            grouped(limit.headroom_bytes),
            by_rule(limit)
        ),
        Source::Family => {
            let who = match limit.member_limit {
                Some(MemberLimit::Writer) => "whose writer takes",
                _ => "which takes",
            };
            format!(
                " kept for the family member \"{name}\", {who} {}{} less {} of headroom",
                grouped(limit.value.saturating_add(limit.headroom_bytes)),
                by_rule(limit),
                grouped(limit.headroom_bytes)
            )
        }
    }
}

/// Which rule keeps a family's member small.
fn by_rule(limit: &Limit) -> String {
    match &limit.member_limit {
        Some(MemberLimit::Rule(rule)) if **rule == *LIMITS => {
            " (the configuration's limits)".to_owned()
        }
        Some(MemberLimit::Rule(rule)) => {
            format!(" (rule \"{}\")", shortened(rule.to_string(), LONGEST_NAME))
        }
        Some(MemberLimit::Writer) => " (max.request.size)".to_owned(),
        None => String::new(),
    }
}

/// What raises a family's limit that no broker sets.
fn raise_member(limit: &Limit) -> Option<String> {
    match limit.member_limit.as_ref()? {
        MemberLimit::Writer => Some(
            "Send less in one record, or raise max.request.size in the producer that writes retries and dead letters, \
             and families.members[].writer_max_request_size with it."
                .to_owned(),
        ),
        MemberLimit::Rule(rule) => {
            let key = limit.gate.limit_key();
            let whose = if **rule == *LIMITS {
                "the configuration's limits".to_owned()
            } else {
                format!("rule \"{}\"", shortened(rule.to_string(), LONGEST_NAME))
            };
            Some(format!("Send less, or ask for a larger {key} in {whose}."))
        }
    }
}

/// What a person can do who has no rule's remedy to follow.
fn default_remedy(
    violation: &Violation,
    facts: Option<&BatchFacts>,
    library: Option<Library>,
) -> String {
    if violation.unreadable.is_some() {
        return "Send it with a codec and a library that Kafka itself can read.".to_owned();
    }
    let limit = &violation.limit;
    if let Some(remedy) = raise_member(limit) {
        return remedy;
    }
    let less = || match violation.record {
        Some(record) if fits_without_headers(record, violation) => {
            "Send fewer or shorter headers, or less in one record"
        }
        _ => "Send less in one record",
    };
    match limit.gate {
        Gate::Frame => frame_remedy(limit.source, library),
        Gate::Batch | Gate::Uncompressed => match facts {
            Some(facts) => batch_remedy(violation, facts, library),
            None => format!("{}.", less()),
        },
        Gate::Ratio => "Send what compresses less, or ask for a larger ratio.".to_owned(),
        Gate::Key => "Send a shorter key.".to_owned(),
        Gate::Headers => "Send fewer or shorter headers.".to_owned(),
        Gate::Record | Gate::Estimate | Gate::Value => format!(
            "{}, or keep its content elsewhere and send a reference.",
            less()
        ),
        // These have remedies of their own.
        Gate::Codec | Gate::Config => String::new(),
    }
}

fn frame_remedy(source: Source, library: Option<Library>) -> String {
    const ANY: &str = "Lower the producer's max.request.size or batch.size (kafkajs: split the messages over more send() calls)";
    let smaller = library.map_or(ANY, Library::smaller_requests);
    let larger = match source {
        Source::Broker => ", or raise socket.request.max.bytes in the brokers' server.properties",
        _ => "",
    };
    format!("{smaller} so that one request stays below it, or send less in one record{larger}.")
}

/// Of the gates that compare a whole batch.
fn batch_remedy(violation: &Violation, facts: &BatchFacts, library: Option<Library>) -> String {
    const ANY: &str =
        "Lower the producer's batch.size (kafkajs: split the messages over more send() calls)";
    let limit = &violation.limit;
    let fewer = library.map_or(ANY, Library::fewer_records);
    let larger = larger_limit(limit);
    if is_grown(facts, limit) {
        let plain = library.map_or(
            "Leave compression out in the producer",
            Library::no_compression,
        );
        return format!("{plain}: it fits without, or {larger}.");
    }
    // On the wire only: what is compared uncompressed gains nothing by it.
    let compress = match (limit.gate, facts.codec) {
        (Gate::Batch, Some(Codec::None)) => ", compress it",
        _ => "",
    };
    match blamed(facts, limit) {
        Blamed::Batch(_) => format!("{fewer}{compress}, or {larger}."),
        Blamed::Unknown if facts.records > 1 => format!(
            "{fewer}, or send less in one record where one is too large alone{compress}, or {larger}."
        ),
        Blamed::Record(record) if fits_without_headers(record, violation) => {
            format!("Send fewer or shorter headers, or less in one record{compress}, or {larger}.")
        }
        Blamed::Record(_) | Blamed::Unknown | Blamed::TheOne => {
            format!("Send less in one record{compress}, or {larger}.")
        }
    }
}

/// Whose number must become larger.
const fn larger_limit(limit: &Limit) -> &'static str {
    match (limit.gate, limit.source) {
        (Gate::Uncompressed, _) => "ask for a larger uncompressed_bytes",
        (_, Source::Rule) => "ask for a larger batch_bytes",
        (_, Source::Topic) => "raise the topic's max.message.bytes",
        (_, Source::Broker) => "set max.message.bytes on the topic",
        (_, Source::Segment) => "raise the topic's segment.bytes",
        (_, Source::Family) => {
            "raise the limits of its retry and dead-letter topics (sizegate align)"
        }
    }
}

impl BatchFacts {
    /// Without what says nothing: that it is uncompressed at least as large as something below its size on the wire.
    fn without_idle_bounds(mut self) -> Self {
        let is_idle = |size: Size| matches!(size, Size::AtLeast(bytes) if bytes < self.wire_bytes);
        self.uncompressed = self.uncompressed.filter(|size| !is_idle(*size));
        self
    }
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
