//! Gate `codec`: whether a batch within every limit is large and in a codec that its rule does not take.
//!
//! Invariant: where no rule has `codecs`, nothing here is called.

use std::ops::Range;

use super::measure::with_scratch;
use super::weigh::{LongDecode, Scales, look};
use super::{Judge, Measured, Outcome};
use crate::batch::BATCH_HEADER_BYTES;
use crate::config::Decode;
use crate::inspect::{DeepLimits, Effort, Finding, Inspection};
use crate::policy::{
    Blame, Codec, CodecRefused, CodecRule, Gate, Place, Refusal, Size, Violation, setting_for,
};
use crate::proxy::ClientInfo;

/// A batch of which a sample shrinks by less (in hundredths) would not gain by a codec.
const LEAST_GAIN_PERCENT: u64 = 5;

impl Scales<'_> {
    /// Weighs a batch that is within every limit.
    pub(super) fn weigh_codec(
        &mut self,
        mut measured: Measured,
        partition_entry: usize,
        records: Range<usize>,
        bytes: &[u8],
    ) -> Outcome {
        let topic = std::sync::Arc::clone(&measured.topic);
        let Some(rule) = &topic.policy.codecs else {
            return Outcome::Within(measured);
        };
        let is_small = |size| matches!(size, Some(Size::Exact(bytes)) if bytes <= rule.above_bytes);
        if rule.allows(measured.facts.codec) || is_small(measured.facts.uncompressed) {
            return Outcome::Within(measured);
        }
        let entry = partition_entry.saturating_add(self.partitions());
        let inspection = self
            .known(entry)
            .unwrap_or_else(|| self.compare(&measured, rule, bytes));
        measured.proof = Some(inspection.proof);
        let violation = match inspection.finding {
            Finding::Within => return Outcome::Within(measured),
            // The broker refuses it for its checksum.
            Finding::BadCrc => return Outcome::Pass,
            Finding::Over(over) => {
                let known = measured.facts.uncompressed;
                let size = known.unwrap_or(over.size);
                measured.facts.uncompressed = Some(size);
                rule.violation(size).or_else(|| rule.violation(over.size))
            }
            Finding::Undecodable(why) => Some(rule.unreadable(why.label())),
            // The limits inside needed all of it decoded, so its size is known.
            Finding::Unfinished if matches!(measured.facts.uncompressed, Some(Size::Exact(_))) => {
                measured
                    .facts
                    .uncompressed
                    .and_then(|size| rule.violation(size))
            }
            Finding::Unfinished if self.has_decoded() => {
                Some(rule.unreadable("too_much_to_decode"))
            }
            Finding::Unfinished => {
                self.decode_later(LongDecode {
                    partition_entry: entry,
                    records,
                    header: measured.header,
                    limits: limits(rule),
                });
                return Outcome::Pass;
            }
        };
        let Some(violation) = violation else {
            return Outcome::Within(measured);
        };
        measured.gain = gain(rule, &measured, bytes);
        let is_pointless = violation.unreadable.is_none()
            && measured
                .gain
                .is_some_and(|(_, percent)| percent < LEAST_GAIN_PERCENT);
        if rule.unless_incompressible && is_pointless {
            return Outcome::Within(measured);
        }
        Outcome::Over(measured, violation)
    }

    /// Compares the uncompressed size with what the rule lets come as it likes: by the header, by a bound, by a decode.
    fn compare(&mut self, measured: &Measured, rule: &CodecRule, bytes: &[u8]) -> Inspection {
        let most = if self.decode == Decode::Never {
            0
        } else {
            self.decode_left
        };
        let effort = Effort::VERDICT.decode_at_most(most);
        let limits = limits(rule);
        let inspection =
            with_scratch(|scratch| look(&measured.header, bytes, &limits, effort, scratch));
        self.decode_left = self.decode_left.saturating_sub(inspection.spent_bytes());
        inspection
    }
}

fn limits(rule: &CodecRule) -> DeepLimits {
    DeepLimits {
        uncompressed_bytes: Some(rule.above_bytes),
        ..DeepLimits::NONE
    }
}

/// What the fastest allowed codec would save of it, in hundredths.
fn gain(rule: &CodecRule, measured: &Measured, bytes: &[u8]) -> Option<(Codec, u64)> {
    let with = rule.fastest()?;
    let codec = measured.facts.codec?;
    // Of an old message set the messages as they stand: one that wraps others is not opened.
    let (payload, codec) = match measured.header.magic {
        2 => {
            let end = usize::try_from(measured.facts.wire_bytes).ok()?;
            (bytes.get(BATCH_HEADER_BYTES..end)?, codec)
        }
        _ if codec == Codec::None => (bytes, codec),
        _ => return None,
    };
    let percent = with_scratch(|scratch| scratch.gain_percent(payload, codec, with))?;
    Some((with, percent))
}

impl Judge {
    /// The refusal of a measured batch, for whichever gate.
    pub(super) fn refusal(
        &self,
        measured: &Measured,
        violation: Violation,
        partition: i32,
        blame: Blame,
        client: &ClientInfo,
    ) -> Refusal {
        let Measured { topic, facts, .. } = measured;
        let rule = match &topic.policy.codecs {
            Some(rule) if violation.limit.gate == Gate::Codec => rule,
            _ => {
                let shared = &self.shared;
                return shared.refusal(topic, *facts, violation, partition, blame);
            }
        };
        let place = Place {
            topic: std::sync::Arc::clone(&topic.name),
            partition,
        };
        let remedy = topic
            .policy
            .remedy
            .as_deref()
            .map_or_else(|| remedy(rule, client), str::to_owned);
        let refused = CodecRefused {
            id: self.shared.next_refusal_id(),
            blame,
            place,
            facts: *facts,
            gain: measured.gain,
            remedy: &remedy,
        };
        rule.refusal(violation, refused)
    }
}

/// The setting, as the client's library calls it.
fn remedy(rule: &CodecRule, client: &ClientInfo) -> String {
    let name = client.software.as_ref().map(|software| &*software.name);
    let setting = setting_for(name.unwrap_or_default(), rule.proposed());
    match name {
        Some(_) => format!("Set {setting} in the producer."),
        None => format!("Set {setting} (or what the client library calls it) in the producer."),
    }
}
