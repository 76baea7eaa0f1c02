//! Gate `codec`: whether a batch within every limit is large and in a codec that its rule does not take.
//!
//! Invariant: where no rule has `codecs`, nothing here is called.

use std::ops::Range;
use std::sync::Arc;

use super::evaluate::{Evaluation, LongDecode, Look};
use super::measure::with_scratch;
use super::{Judge, Measured, Outcome};
use crate::batch::BATCH_HEADER_BYTES;
use crate::inspect::{DeepLimits, Judgement};
use crate::policy::{Blame, CodecRefused, CodecRule, Place, Refusal, Size, Violation, setting_for};
use crate::proxy::ClientInfo;
use crate::vocabulary::{Action, Codec, Gate};

/// A batch of which a sample shrinks by less (in hundredths) would not gain by a codec.
const LEAST_GAIN_PERCENT: u64 = 5;

/// What the gate says of a batch.
enum Found {
    Within,
    /// The broker refuses it for something else, or it must be decoded first.
    Left,
    Over(Violation),
}

impl Evaluation<'_> {
    /// Evaluates a batch that is within every limit.
    pub(super) fn evaluate_codec(
        &mut self,
        mut measured: Measured,
        partition_entry: usize,
        records: Range<usize>,
        bytes: &[u8],
    ) -> Outcome {
        match self.judge_codec(&mut measured, partition_entry, records, bytes) {
            Found::Within => Outcome::Within(measured),
            Found::Left => Outcome::Pass,
            Found::Over(violation) => Outcome::Over(measured, violation),
        }
    }

    /// Evaluates a batch that is over a limit, which is only observed: whoever enforces later is to know of every gate
    /// that would refuse.
    pub(super) fn note_codec(
        &mut self,
        measured: &mut Measured,
        partition_entry: usize,
        records: Range<usize>,
        bytes: &[u8],
    ) {
        if measured.topic.policy.action != Action::Observe {
            return;
        }
        let proof = measured.proof;
        if let Found::Over(violation) = self.judge_codec(measured, partition_entry, records, bytes)
        {
            measured.also.push(violation);
        }
        // Of what it was told of first.
        measured.proof = proof.or(measured.proof);
    }

    fn judge_codec(
        &mut self,
        measured: &mut Measured,
        partition_entry: usize,
        records: Range<usize>,
        bytes: &[u8],
    ) -> Found {
        let topic = Arc::clone(&measured.topic);
        let Some(rule) = &topic.policy.codecs else {
            return Found::Within;
        };
        let is_small = |size| matches!(size, Some(Size::Exact(bytes)) if bytes <= rule.above_bytes);
        if rule.allows(measured.facts.codec) || is_small(measured.facts.uncompressed) {
            return Found::Within;
        }
        let entry = partition_entry.saturating_add(self.partitions());
        let limits = limits(rule);
        let known = self.known(entry).map(|seen| seen.inspection);
        let was_decoded = known.is_some() || self.has_decoded();
        let header = measured.header;
        let inspection = known.unwrap_or_else(|| {
            self.inspect_now(&header, bytes, &limits, Look::VERDICT)
                .inspection
        });
        measured.proof = Some(inspection.proof);
        let known = measured.facts.uncompressed;
        let violation = match inspection.finding {
            Judgement::Within => return Found::Within,
            // The broker refuses it for its checksum.
            Judgement::BadCrc => return Found::Left,
            Judgement::Over(over) => {
                let size = known.unwrap_or(over.size);
                measured.facts.uncompressed = Some(size);
                rule.violation(size).or_else(|| rule.violation(over.size))
            }
            Judgement::Undecodable(why) => Some(rule.unreadable(why.label())),
            // The limits inside needed all of it decoded, so its size is known.
            Judgement::Unfinished if matches!(known, Some(Size::Exact(_))) => {
                known.and_then(|size| rule.violation(size))
            }
            Judgement::Unfinished if was_decoded => Some(rule.unreadable("too_much_to_decode")),
            Judgement::Unfinished => {
                self.decode_later(LongDecode {
                    partition_entry: entry,
                    records,
                    header,
                    limits,
                    look: Look::VERDICT,
                });
                return Found::Left;
            }
        };
        let Some(violation) = violation else {
            return Found::Within;
        };
        measured.gain = gain(rule, measured, bytes);
        let is_pointless = violation.unreadable.is_none()
            && measured
                .gain
                .is_some_and(|(_, percent)| percent < LEAST_GAIN_PERCENT);
        if rule.unless_incompressible && is_pointless {
            return Found::Within;
        }
        Found::Over(violation)
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
                return shared.refusal(topic, *facts, violation, partition, blame, client);
            }
        };
        let place = Place {
            topic: Arc::clone(&topic.name),
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
