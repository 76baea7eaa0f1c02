//! Messages of magic 0 and 1 (Produce before version 3): the same gates, measured as their formats have them.
//!
//! A message is a batch of its own: its uncompressed bytes are its wire bytes with what it wraps decompressed. Record
//! bytes, and the estimate, are a message's own bytes, offset and size included; there are no headers. But a broker makes
//! one batch of magic 2 of all messages, or of what a compressed one wraps: its size counts too.

use std::ops::ControlFlow;

use super::limits::Ceilings;
use super::tally::Tally;
use super::{
    DeepLimits, Effort, Inspection, Judgement, NearGates, Over, Proof, Scratch, Undecodable,
    inspect_more,
};
use crate::batch::{
    BATCH_HEADER_BYTES, BatchHeader, Message, MessageStream, RecordError, RecordSizes, Rewritten,
    as_one_batch, messages,
};
use crate::codec::{DecodeError, End, Output, crc32, upper_bound};
use crate::vocabulary::Codec;
use crate::vocabulary::Size;

/// Inspects a message set. Its proof is the dearest that a message needed; its `uncompressed` that of the largest
/// message, `records` and `largest` are not given.
pub fn inspect_message_set(
    set: &[u8],
    limits: &DeepLimits,
    effort: Effort,
    scratch: &mut Scratch,
) -> Inspection {
    scratch.sizes.clear();
    scratch.overs.clear();
    let mut whole = Inspection::new(Judgement::Within, Proof::Header);
    let mut index = 0u32;
    for message in messages(set) {
        // What is not a message set is refused by the broker for that.
        let Ok(message) = message else { break };
        let left = effort.less(whole.spent_bytes());
        let (one, count) = match (message.magic, BatchHeader::read(message.bytes)) {
            (2, Ok(header)) => {
                let one = inspect_more(&header, message.bytes, limits, left, scratch);
                (one, u32::try_from(header.records_count).unwrap_or(0))
            }
            (2, Err(_)) => break,
            _ => inspect_message(&message, limits, left, scratch),
        };
        whole.proof = whole.proof.max(one.proof);
        whole.decoded_bytes = whole.decoded_bytes.saturating_add(one.decoded_bytes);
        whole.scanned_bytes = whole.scanned_bytes.saturating_add(one.scanned_bytes);
        whole.near = whole.near.and(one.near);
        whole.is_cut |= one.is_cut;
        whole.uncompressed = larger(whole.uncompressed, one.uncompressed);
        if one.finding != Judgement::Within && whole.finding == Judgement::Within {
            whole.finding = behind(one.finding, index);
            if !effort.is_of_all_gates() {
                break;
            }
        }
        index = index.saturating_add(count);
    }
    if (whole.finding == Judgement::Within || effort.is_of_all_gates())
        && let Some(batch) = as_one_batch(set)
    {
        let size = Size::Exact(batch.batch_bytes());
        let ceilings = Ceilings::new(limits, set.len() as u64, effort.near_share());
        whole.uncompressed = larger(whole.uncompressed, Some(size));
        whole.near = whole.near.and(ceilings.batch_near(size));
        if let Some(over) = ceilings.batch_over(size) {
            let is_sound = messages(set)
                .flatten()
                .all(|message| crc32(message.checked()) == message.crc);
            if whole.finding == Judgement::Within {
                whole.finding = if is_sound {
                    Judgement::Over(over)
                } else {
                    Judgement::BadCrc
                };
            }
            if is_sound && effort.is_of_all_gates() {
                scratch.overs.extend(ceilings.batch_overs(size));
            }
        }
    }
    whole
}

fn larger(a: Option<Size>, b: Option<Size>) -> Option<Size> {
    [a, b].into_iter().flatten().max_by_key(|size| size.bytes())
}

/// A record's index counts from the first message of the set.
fn behind(finding: Judgement, index: u32) -> Judgement {
    match finding {
        Judgement::Over(mut over) => {
            if let Some(record) = &mut over.record {
                record.index = record.index.saturating_add(index);
            }
            Judgement::Over(over)
        }
        other => other,
    }
}

/// One message, and how many are in it.
fn inspect_message(
    message: &Message<'_>,
    limits: &DeepLimits,
    effort: Effort,
    scratch: &mut Scratch,
) -> (Inspection, u32) {
    let ceilings = Ceilings::new(limits, message.wire_bytes(), effort.near_share());
    let (found, count) = look(message, &ceilings, effort, scratch);
    let is_refused = matches!(
        found.finding,
        Judgement::Over(_) | Judgement::Undecodable(_)
    );
    if is_refused && crc32(message.checked()) != message.crc {
        return (Inspection::new(Judgement::BadCrc, found.proof), count);
    }
    (found, count)
}

fn look(
    message: &Message<'_>,
    ceilings: &Ceilings,
    effort: Effort,
    scratch: &mut Scratch,
) -> (Inspection, u32) {
    let Scratch {
        decoders, overs, ..
    } = scratch;
    let overs = effort.is_of_all_gates().then_some(overs);
    let unreadable = |why| {
        (
            Inspection::new(Judgement::Undecodable(why), Proof::Header),
            1,
        )
    };
    let Some(codec) = Codec::from_attributes(message.attributes) else {
        return unreadable(Undecodable::UnknownCodec);
    };
    let (Some(sizes), Some(value)) = (message.sizes(), message.value()) else {
        return unreadable(Undecodable::Records(RecordError::LengthMismatch));
    };
    if codec == Codec::None {
        let size = Size::Exact(message.wire_bytes());
        let mut tally = Tally::new(ceilings, ceilings.batch_over(size), None).of_all_gates(overs);
        // It is the only one: where it ends, so does the walk.
        let _ = tally.record(&sizes);
        if let Some(overs) = tally.overs.take() {
            overs.extend(ceilings.batch_overs(size));
        }
        let finding = tally.over.map_or(Judgement::Within, Judgement::Over);
        let inspection = Inspection {
            near: tally.near.and(ceilings.batch_near(size)),
            ..Inspection::new(finding, Proof::Walk).measured(size)
        };
        return (inspection, 1);
    }
    let around = message.wire_bytes().saturating_sub(value.len() as u64);
    // As a batch it has a header that is larger than what is around the messages; each of these gets smaller.
    let around_batch = around.max(BATCH_HEADER_BYTES as u64);
    let bound = upper_bound(codec, value)
        .filter(|bound| ceilings.hold_message(around_batch, bound.at_most));
    if let Some(bound) = bound
        && ceilings.are_far_from_message(around_batch, bound.at_most, bound.is_exact)
    {
        // How many are in it is not known; nothing behind it is numbered by that but for a text.
        let mut within = Inspection::new(Judgement::Within, Proof::UpperBound);
        if bound.is_exact {
            let size = around.saturating_add(bound.at_most);
            within.near = ceilings.batch_near(Size::Exact(size));
        }
        return (within, 1);
    }
    let mut reading = Reading {
        stream: Ok(MessageStream::new(message.magic)),
        tally: Tally::new(ceilings, None, None).of_all_gates(overs),
        as_batch: Rewritten::default(),
        decoded: 0,
    };
    let cap = ceilings
        .decode_at_most(effort)
        .saturating_sub(around)
        .min(effort.decode_at_most_bytes());
    let decoder = match message.magic {
        0 => decoders.decoder(codec, cap).of_magic_0(),
        _ => decoders.decoder(codec, cap),
    };
    let end = decoder.decode(value, &mut reading);
    let (decoded, count) = reading.conclude(end, ceilings, around);
    let is_cut = end == Ok(End::OverCap) && cap == effort.decode_at_most_bytes();
    let mut found = Inspection { is_cut, ..decoded };
    if bound.is_some() {
        // Decoded for what it is near only: what it met on the way changes nothing.
        found = Inspection {
            finding: Judgement::Within,
            proof: Proof::UpperBound,
            uncompressed: None,
            ..found
        };
    }
    (found, count)
}

/// Takes what the decoder produces and walks its messages.
struct Reading<'a> {
    stream: Result<MessageStream, RecordError>,
    tally: Tally<'a>,
    /// The batch that a broker makes of them.
    as_batch: Rewritten,
    decoded: u64,
}

impl Output for Reading<'_> {
    fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.decoded = self.decoded.saturating_add(bytes.len() as u64);
        let Ok(stream) = &mut self.stream else {
            return ControlFlow::Break(());
        };
        let (tally, as_batch) = (&mut self.tally, &mut self.as_batch);
        let each = |sizes: &RecordSizes| {
            as_batch.message(sizes);
            tally.record(sizes)
        };
        match stream.feed(bytes, each) {
            Ok(ControlFlow::Continue(())) => {
                tally.partial_record(&stream.partial(), bytes.len() as u64)
            }
            Ok(ControlFlow::Break(())) => ControlFlow::Break(()),
            Err(error) => {
                self.stream = Err(error);
                ControlFlow::Break(())
            }
        }
    }
}

impl Reading<'_> {
    fn conclude(
        self,
        end: Result<End, DecodeError>,
        ceilings: &Ceilings,
        around: u64,
    ) -> (Inspection, u32) {
        let so_far = around
            .saturating_add(self.decoded)
            .max(self.as_batch.batch_bytes());
        let size = match end {
            Ok(End::Complete) => Size::Exact(so_far),
            _ => Size::AtLeast(so_far),
        };
        let messages = self.stream.and_then(|stream| stream.finish());
        if let Some(overs) = self.tally.overs {
            overs.extend(ceilings.batch_overs(size));
        }
        let over: Option<Over> = self.tally.over.or_else(|| ceilings.batch_over(size));
        let finding = match (over, end, messages) {
            (Some(over), _, _) => Judgement::Over(over),
            (None, Err(error), _) => Judgement::Undecodable(Undecodable::Payload(error)),
            (None, Ok(End::OverCap), _) => Judgement::Unfinished,
            (None, Ok(_), Err(error)) => Judgement::Undecodable(Undecodable::Records(error)),
            (None, Ok(_), Ok(_)) => Judgement::Within,
        };
        let inspection = Inspection {
            decoded_bytes: self.decoded,
            near: match size {
                Size::Exact(_) => self.tally.near.and(ceilings.batch_near(size)),
                Size::AtLeast(_) => NearGates::NONE,
            },
            ..Inspection::new(finding, Proof::Decode).measured(size)
        };
        (inspection, messages.unwrap_or(1))
    }
}
