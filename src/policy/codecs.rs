//! Gate `codec`: large batches must come in one of a rule's codecs. Whether a batch is large is proved elsewhere, by
//! the cheapest proof there is; here is what follows, and what its producer is told.
//!
//! Invariant: a batch in an allowed codec, or small enough, is never a violation; the remedy names a codec that is
//! allowed.

use std::fmt::Write as _;
use std::sync::Arc;

use super::refusal::{LONGEST_NAME, LONGEST_TEXT, LONGEST_TOPIC, one_word, shortened};
use super::{BatchFacts, Blame, Limit, Place, Refusal, Size, Violation, batch_of};
use crate::config::{Codecs, Rule};
use crate::text::grouped;
use crate::vocabulary::{Codec, Gate, Source};

/// How fast codecs compress, the fastest first, each at its fastest level.
const BY_SPEED: [Codec; 4] = [Codec::Lz4, Codec::Snappy, Codec::Zstd, Codec::Gzip];

/// How well codecs compress, the best first: what a remedy proposes.
const BY_GAIN: [Codec; 4] = [Codec::Zstd, Codec::Gzip, Codec::Lz4, Codec::Snappy];

/// A batch that is refused for its codec.
#[derive(Debug)]
pub struct Refused<'a> {
    /// The refusal's.
    pub id: String,
    /// Who refuses.
    pub blame: Blame,
    /// Where.
    pub place: Place,
    /// What is known of it.
    pub facts: BatchFacts,
    /// What a sample of it saved, in hundredths, and with which codec.
    pub gain: Option<(Codec, u64)>,
    /// What to do.
    pub remedy: &'a str,
}

/// What one rule says of the codecs of its topics' batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodecRule {
    /// What large batches may come with.
    allow: Vec<Codec>,
    /// Batches of at most so many uncompressed bytes come as they like.
    pub above_bytes: u64,
    /// Batches that no allowed codec makes smaller come as they like.
    pub unless_incompressible: bool,
    /// The rule.
    name: Arc<str>,
}

impl CodecRule {
    /// What `rule` says; `None`: nothing.
    pub fn of(rule: &Rule) -> Option<Self> {
        let Codecs {
            allow,
            above_bytes,
            unless_incompressible,
        } = rule.codecs.clone()?;
        Some(Self {
            allow,
            above_bytes,
            unless_incompressible,
            name: rule.name.as_str().into(),
        })
    }

    /// About the memory it takes.
    pub fn remembered_bytes(&self) -> usize {
        size_of::<Self>()
            .saturating_add(size_of_val(&*self.allow))
            .saturating_add(self.name.len())
    }

    /// A batch with this codec may have any size; `None` is an id that no codec has: the broker's to refuse.
    pub fn allows(&self, codec: Option<Codec>) -> bool {
        codec.is_none_or(|codec| self.allow.contains(&codec))
    }

    /// The allowed codec that a sample is compressed with; `None`: none of them compresses.
    pub fn fastest(&self) -> Option<Codec> {
        BY_SPEED
            .into_iter()
            .find(|codec| self.allow.contains(codec))
    }

    /// The codec that a remedy proposes.
    pub fn proposed(&self) -> Codec {
        let best = BY_GAIN.into_iter().find(|codec| self.allow.contains(codec));
        best.unwrap_or(Codec::None)
    }

    /// A batch in a codec that is not allowed, of so many uncompressed bytes.
    pub fn violation(&self, uncompressed: Size) -> Option<Violation> {
        (uncompressed.bytes() > self.above_bytes).then(|| Violation {
            limit: self.limit(),
            size: uncompressed,
            record: None,
            unreadable: None,
        })
    }

    /// A batch in a codec that is not allowed, of which nobody can tell how large it is uncompressed.
    pub fn unreadable(&self, why: &'static str) -> Violation {
        Violation {
            limit: self.limit(),
            size: Size::AtLeast(0),
            record: None,
            unreadable: Some(why),
        }
    }

    /// What sizes are compared with.
    pub fn limit(&self) -> Limit {
        Limit {
            gate: Gate::Codec,
            value: self.above_bytes,
            source: Source::Rule,
            name: Some(Arc::clone(&self.name)),
            headroom_bytes: 0,
            member_limit: None,
        }
    }

    /// `zstd, lz4`
    pub fn words(&self) -> String {
        let words: Vec<&str> = self.allow.iter().map(|codec| codec.label()).collect();
        words.join(", ")
    }

    /// The refusal of one partition's batch.
    pub fn refusal(&self, violation: Violation, refused: Refused<'_>) -> Refusal {
        let Refused {
            id,
            blame,
            place,
            facts,
            gain,
            remedy,
        } = refused;
        let verb = blame.verb();
        let codec = facts.codec.map_or("unknown", Codec::label);
        let topic = shortened(place.topic.to_string(), LONGEST_TOPIC);
        let mut text = format!("sizegate {verb} {topic}-{}: ", place.partition);
        let batch = batch_of(facts.records);
        let above = grouped(self.above_bytes);
        let _ = match violation.unreadable {
            Some(why) => write!(
                text,
                "{batch} cannot be decoded (codec={codec}: {why}), and rule \"{}\" must know whether it is above {above} \
                 bytes uncompressed.",
                self.name
            ),
            None => {
                let at_least = match violation.size {
                    Size::Exact(_) => "",
                    Size::AtLeast(_) => "at least ",
                };
                write!(
                    text,
                    "{batch} is {at_least}{} bytes uncompressed and comes with codec={codec}; above {above} rule \"{}\" \
                     takes {} (codecs).",
                    grouped(violation.size.bytes()),
                    self.name,
                    self.words()
                )
            }
        };
        if let Some((with, percent)) = gain {
            let _ = match percent {
                0 => write!(text, " A sample of it does not shrink with {with}."),
                _ => write!(text, " A sample of it shrinks by {percent} % with {with}."),
            };
        }
        let _ = write!(text, " {remedy}");
        let tail = self.tail(&id, &place, &violation, &facts);
        let room = LONGEST_TEXT.saturating_sub(tail.len()).saturating_sub(1);
        let text = format!("{} {tail}", shortened(text, room));
        Refusal {
            id,
            place,
            violation,
            facts: Some(facts),
            text,
        }
    }

    fn tail(&self, id: &str, place: &Place, violation: &Violation, facts: &BatchFacts) -> String {
        let size = match (violation.unreadable, violation.size) {
            (Some(why), _) => format!("reason={why}"),
            (None, Size::Exact(bytes)) => format!("size_bytes={bytes}"),
            (None, Size::AtLeast(bytes)) => format!("at_least_bytes={bytes}"),
        };
        let allow: Vec<&str> = self.allow.iter().map(|codec| codec.label()).collect();
        format!(
            "[gate={} {size} limit_bytes={} source={} rule={} allow={} topic={} partition={} batch_bytes={} codec={} \
             records={} id={id}]",
            Gate::Codec,
            self.above_bytes,
            Source::Rule,
            one_word(&self.name, LONGEST_NAME),
            allow.join(","),
            one_word(&place.topic, LONGEST_TOPIC),
            place.partition,
            facts.wire_bytes,
            facts.codec.map_or("unknown", Codec::label),
            facts.records
        )
    }
}

/// The setting that makes a producer use `codec`, by what the client says it is.
pub fn setting_for(software: &str, codec: Codec) -> String {
    let word = codec.label();
    let title = match codec {
        Codec::None => "None",
        Codec::Gzip => "Gzip",
        Codec::Snappy => "Snappy",
        Codec::Lz4 => "Lz4",
        Codec::Zstd => "Zstd",
    };
    let upper = word.to_ascii_uppercase();
    let name = software.to_ascii_lowercase();
    let is = |part: &str| name.contains(part);
    if is("platformatic") {
        format!("compression: '{word}'")
    } else if is("kafkajs") && !is("confluent") {
        format!("compression: CompressionTypes.{upper}")
    } else if is("kafka-python") && !is("confluent") || is("aiokafka") {
        match codec {
            Codec::None => "compression_type=None".to_owned(),
            _ => format!("compression_type='{word}'"),
        }
    } else if is("kgo") || is("franz") {
        let made = if codec == Codec::None { "No" } else { title };
        format!("kgo.ProducerBatchCompression(kgo.{made}Compression())")
    } else if is("sarama") {
        format!(
            "Producer.Compression = sarama.Compression{}",
            match codec {
                Codec::Lz4 | Codec::Zstd => upper.as_str(),
                Codec::Gzip => "GZIP",
                _ => title,
            }
        )
    } else if is("kafka-go") {
        format!("Writer.Compression = kafka.{title}")
    } else if is("rskafka") {
        format!("Compression::{title}")
    } else {
        // Java, and librdkafka with everything built on it.
        format!("compression.type={word}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> CodecRule {
        CodecRule {
            allow: vec![Codec::Snappy, Codec::Zstd],
            above_bytes: 1000,
            unless_incompressible: true,
            name: "orders".into(),
        }
    }

    #[test]
    fn what_is_above_in_another_codec_is_a_violation() {
        let rule = rule();
        for (size, over) in [
            (Size::Exact(999), false),
            (Size::Exact(1000), false),
            (Size::Exact(1001), true),
            (Size::AtLeast(1001), true),
        ] {
            assert_eq!(rule.violation(size).is_some(), over, "{size:?}");
        }
        for (codec, allowed) in [
            (Some(Codec::None), false),
            (Some(Codec::Gzip), false),
            (Some(Codec::Snappy), true),
            (Some(Codec::Lz4), false),
            (Some(Codec::Zstd), true),
            // The broker refuses it.
            (None, true),
        ] {
            assert_eq!(rule.allows(codec), allowed, "{codec:?}");
        }
        assert_eq!(
            (rule.fastest(), rule.proposed()),
            (Some(Codec::Snappy), Codec::Zstd)
        );
    }

    #[test]
    fn the_text_names_size_codec_rule_what_is_taken_and_the_setting() {
        let rule = rule();
        let facts = BatchFacts {
            wire_bytes: 70_112,
            uncompressed: Some(Size::Exact(70_112)),
            codec: Some(Codec::None),
            records: 12,
            largest: None,
            seen: None,
        };
        let violation = rule.violation(Size::Exact(70_112)).expect("a violation");
        let place = Place {
            topic: "orders".into(),
            partition: 3,
        };
        let remedy = format!(
            "Set {}.",
            setting_for("apache-kafka-java/4.3.0", rule.proposed())
        );
        let refused = Refused {
            id: "7f3a9c".into(),
            blame: Blame::Sizegate,
            place,
            facts,
            gain: Some((Codec::Snappy, 61)),
            remedy: &remedy,
        };
        let refusal = rule.refusal(violation, refused);
        assert_eq!(
            refusal.text,
            "sizegate refused orders-3: the batch of 12 records is 70,112 bytes uncompressed and comes with codec=none; \
             above 1,000 rule \"orders\" takes snappy, zstd (codecs). A sample of it shrinks by 61 % with snappy. Set \
             compression.type=zstd. [gate=codec size_bytes=70112 limit_bytes=1000 source=rule rule=orders \
             allow=snappy,zstd topic=orders partition=3 batch_bytes=70112 codec=none records=12 id=7f3a9c]"
        );
    }

    #[test]
    fn the_setting_is_the_clients_own() {
        for (software, setting) in [
            ("apache-kafka-java/4.3.0", "compression.type=lz4"),
            ("librdkafka/2.16.1", "compression.type=lz4"),
            (
                "confluent-kafka-python/2.16.1-rdkafka-2.16.1",
                "compression.type=lz4",
            ),
            ("confluent-kafka-javascript/1.0", "compression.type=lz4"),
            ("kafka-python/3.0.0", "compression_type='lz4'"),
            ("@platformatic/kafka/2.0.0", "compression: 'lz4'"),
            (
                "kgo/1.22.0",
                "kgo.ProducerBatchCompression(kgo.Lz4Compression())",
            ),
            (
                "sarama/1.61.0",
                "Producer.Compression = sarama.CompressionLZ4",
            ),
            ("", "compression.type=lz4"),
        ] {
            assert_eq!(setting_for(software, Codec::Lz4), setting, "{software}");
        }
    }
}
