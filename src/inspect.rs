//! Measures one batch against the limits inside it. Pure: no I/O, no clock, no tokio.
//!
//! [`inspect`] climbs a ladder and stops at the first rung that decides: what the header says ([`Proof::Header`]),
//! what the compressed payload's headers or its bare symbols allow ([`Proof::UpperBound`]), a walk over lengths ([`Proof::Walk`]), a decode
//! as a stream ([`Proof::Decode`]). Invariants: a size called exact was measured to its end; nothing passes a limit
//! because it could not be read; a batch whose checksum is wrong is never refused (the broker judges it).

mod decode;
mod effort;
mod key;
mod limits;
mod measures;
mod message_set;
mod near;
mod record_at;
mod sizes;
mod tally;

use std::ops::ControlFlow;

use crate::batch::{BATCH_HEADER_BYTES, BatchHeader, RecordError, is_crc_right, walk_records};
use crate::codec::{DecodeError, Decoders};
use crate::vocabulary::{Codec, Gate, Size};

pub use effort::{Effort, decode_time, expected_decode_bytes};
pub use key::key_of;
pub use limits::DeepLimits;
pub use measures::Measures;
pub use message_set::inspect_message_set;
pub use near::NearGates;
pub(crate) use near::is_near;
pub use record_at::RecordAt;
pub use sizes::{LargestParts, Sizes, SizesTally};
pub(crate) use sizes::{SIZE_BOUNDS_BYTES, size_place};

use limits::Ceilings;
use tally::Tally;

/// What sufficed to decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Proof {
    /// The batch's own header.
    Header,
    /// The headers of the compressed payload, or its symbols without what they stand for.
    UpperBound,
    /// A walk over the lengths of uncompressed records.
    Walk,
    /// Decompressing.
    Decode,
}

impl Proof {
    /// The metric label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Header => "header",
            Self::UpperBound => "bound",
            Self::Walk => "walk",
            Self::Decode => "decode",
        }
    }
}

/// Why a batch cannot be read. The label is the reason in logs, metrics and error text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undecodable {
    /// Codec ids 5 to 7 are nobody's.
    UnknownCodec,
    /// Zero or fewer records declared.
    RecordCount,
    /// Fewer bytes than the batch's length says.
    TruncatedBatch,
    /// The payload does not decompress.
    Payload(DecodeError),
    /// What is in it are not the declared records.
    Records(RecordError),
}

impl Undecodable {
    /// The fixed word for it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::UnknownCodec => "unknown_codec",
            Self::RecordCount => "record_count",
            Self::TruncatedBatch => "truncated_batch",
            Self::Payload(error) => error.label(),
            Self::Records(error) => error.label(),
        }
    }
}

/// A size over its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Over {
    /// Which gate.
    pub gate: Gate,
    /// The size; for the gate `ratio` the uncompressed bytes.
    pub size: Size,
    /// What it was compared with; for the gate `ratio` the uncompressed bytes that the ratio allows this batch.
    pub limit_bytes: u64,
    /// The record, for the gates that look at one. Its sizes are as far as it was read where `size` is `AtLeast`.
    pub record: Option<RecordAt>,
}

/// What was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Judgement {
    /// No limit is exceeded.
    Within,
    /// A limit is exceeded.
    Over(Over),
    /// A limit could not be judged, and the checksum says that the bytes are what the client meant to send.
    Undecodable(Undecodable),
    /// It would be over or undecodable, but the checksum is wrong: the broker refuses the batch for that.
    BadCrc,
    /// [`Effort::decode_at_most`] was spent before anything was decided. Inspect again with more.
    Unfinished,
}

/// What is known of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inspection {
    /// Over, within, or neither.
    pub finding: Judgement,
    /// What sufficed for the finding; a decode that was only made for measures does not count.
    pub proof: Proof,
    /// 61 + records after decompression. From [`Proof::UpperBound`] it is exact only for a batch that the broker
    /// accepts: the payload declares it, and its decoder refuses to miss it.
    pub uncompressed: Option<Size>,
    /// Records counted, where all were.
    pub records: Option<u32>,
    /// The largest record by record bytes, where all were measured.
    pub largest: Option<RecordAt>,
    /// The largest record of those that were looked at, whether all were or not; of one that was not read to its end as
    /// far as its lengths declare it.
    pub seen: Option<RecordAt>,
    /// The gates at which a batch that is within its limits was near one, where [`Effort::noticing_near`] asked.
    pub near: NearGates,
    /// [`Effort::decode_at_most`] was spent before all that was asked for was seen. The finding, if there is one, stands.
    pub is_cut: bool,
    /// Bytes that were decompressed.
    pub decoded_bytes: u64,
    /// What a scan of the payload cost, as bytes of a decode that would take as long.
    pub scanned_bytes: u64,
}

impl Inspection {
    const fn new(finding: Judgement, proof: Proof) -> Self {
        Self {
            finding,
            proof,
            uncompressed: None,
            records: None,
            largest: None,
            seen: None,
            near: NearGates::NONE,
            is_cut: false,
            decoded_bytes: 0,
            scanned_bytes: 0,
        }
    }

    /// What it cost, as bytes of a decode.
    pub const fn spent_bytes(&self) -> u64 {
        self.decoded_bytes.saturating_add(self.scanned_bytes)
    }

    const fn measured(self, uncompressed: Size) -> Self {
        Self {
            uncompressed: Some(uncompressed),
            ..self
        }
    }
}

/// What a worker keeps from batch to batch, so that inspecting one allocates nothing.
#[derive(Debug, Default)]
pub struct Scratch {
    decoders: Decoders,
    sizes: Sizes,
    overs: Vec<Over>,
}

impl Scratch {
    /// Allocates nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// [`crate::codec::gain_percent`], by the decoders kept here.
    pub fn gain_percent(&mut self, payload: &[u8], codec: Codec, with: Codec) -> Option<u64> {
        crate::codec::gain_percent(payload, codec, with, &mut self.decoders)
    }

    /// Sizes of the records of the batch inspected last: of all of them where its [`Inspection::records`] is known,
    /// of none where not.
    pub const fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Of the batch inspected last, with [`Effort::of_all_gates`]: the first violation of every gate.
    pub fn overs(&self) -> &[Over] {
        &self.overs
    }
}

/// Inspects one magic-2 batch: `batch` begins with the 61 bytes that `header` was read from, and may have more
/// bytes behind its end, which are not looked at.
pub fn inspect(
    header: &BatchHeader,
    batch: &[u8],
    limits: &DeepLimits,
    effort: Effort,
    scratch: &mut Scratch,
) -> Inspection {
    scratch.overs.clear();
    inspect_more(header, batch, limits, effort, scratch)
}

/// What [`inspect`] would find, where the header alone decides it: whatever the records are, no limit is exceeded.
pub fn within_by_header(
    header: &BatchHeader,
    limits: &DeepLimits,
    effort: Effort,
) -> Option<Inspection> {
    let wire_bytes = header.wire_bytes();
    let within = Inspection::new(Judgement::Within, Proof::Header);
    let size = Size::Exact(wire_bytes);
    if header.codec() != Some(Codec::None) {
        return limits.is_none().then_some(within);
    }
    let ceilings =
        Ceilings::new(limits, wire_bytes, effort.near_share()).for_records(header.records_count);
    ceilings.are_held_by_header(wire_bytes).then(|| Inspection {
        near: ceilings.batch_near(size),
        ..within.measured(size)
    })
}

/// Keeps the violations of what was inspected before.
fn inspect_more(
    header: &BatchHeader,
    batch: &[u8],
    limits: &DeepLimits,
    effort: Effort,
    scratch: &mut Scratch,
) -> Inspection {
    scratch.sizes.clear();
    let inspection = look(header, batch, limits, effort, scratch);
    if inspection.records.is_none() {
        scratch.sizes.clear();
    }
    match inspection.finding {
        Judgement::Over(_) | Judgement::Undecodable(_) if !is_crc_right(header, batch) => {
            scratch.sizes.clear();
            scratch.overs.clear();
            Inspection::new(Judgement::BadCrc, inspection.proof)
        }
        _ => inspection,
    }
}

fn look(
    header: &BatchHeader,
    batch: &[u8],
    limits: &DeepLimits,
    effort: Effort,
    scratch: &mut Scratch,
) -> Inspection {
    let wire_bytes = header.wire_bytes();
    let is_free = limits.is_none();
    if is_free && !effort.measures() {
        let inspection = Inspection::new(Judgement::Within, Proof::Header);
        return match header.codec() {
            Some(Codec::None) => inspection.measured(Size::Exact(wire_bytes)),
            _ => inspection,
        };
    }
    let ceilings =
        Ceilings::new(limits, wire_bytes, effort.near_share()).for_records(header.records_count);
    // Undecodable matters only where a limit needs the decode.
    let unreadable = |why| {
        Inspection::new(
            if is_free {
                Judgement::Within
            } else {
                Judgement::Undecodable(why)
            },
            Proof::Header,
        )
    };
    let records = usize::try_from(wire_bytes)
        .ok()
        .and_then(|end| batch.get(BATCH_HEADER_BYTES..end));
    let Some(records) = records else {
        return unreadable(Undecodable::TruncatedBatch);
    };
    match header.codec() {
        None => unreadable(Undecodable::UnknownCodec),
        Some(Codec::None) => look_at_plain(header, records, &ceilings, effort, scratch),
        Some(codec) => decode::look(codec, header, records, &ceilings, effort, scratch),
    }
}

/// Codec none: all is here; sizes are exact from the header and a walk over lengths.
fn look_at_plain(
    header: &BatchHeader,
    records: &[u8],
    ceilings: &Ceilings,
    effort: Effort,
    scratch: &mut Scratch,
) -> Inspection {
    let uncompressed = (records.len() as u64).saturating_add(BATCH_HEADER_BYTES as u64);
    let over = ceilings.batch_over(Size::Exact(uncompressed));
    let is_decided = over.is_some() || ceilings.hold(uncompressed);
    let finding = over.map_or(Judgement::Within, Judgement::Over);
    let size = Size::Exact(uncompressed);
    let decided = Inspection {
        near: ceilings.batch_near(size),
        ..Inspection::new(finding, Proof::Header).measured(size)
    };
    // A batch that is over is walked all the same, to say whether one of its records is to blame.
    if ceilings.are_held_by_header(uncompressed) && !effort.measures() {
        return decided;
    }
    let Ok(count @ 1..) = u32::try_from(header.records_count) else {
        return if is_decided {
            decided
        } else {
            Inspection {
                finding: Judgement::Undecodable(Undecodable::RecordCount),
                ..decided
            }
        };
    };
    let mut tally = Tally::new(
        ceilings,
        over,
        effort.measures().then_some(&mut scratch.sizes),
    )
    .of_all_gates(effort.is_of_all_gates().then_some(&mut scratch.overs));
    let walked = walk_records(records, count, |sizes| tally.record(sizes));
    let is_whole = walked == Ok(ControlFlow::Continue(()));
    let size = Size::Exact(uncompressed.max(tally.rewritten_bytes()));
    if let Some(overs) = tally.overs.take() {
        overs.extend(ceilings.batch_overs(size));
    }
    let finding = match (tally.over.or_else(|| ceilings.batch_over(size)), walked) {
        (Some(over), _) => Judgement::Over(over),
        (None, Err(error)) if !is_decided => Judgement::Undecodable(Undecodable::Records(error)),
        (None, _) => Judgement::Within,
    };
    Inspection {
        finding,
        proof: if is_decided {
            Proof::Header
        } else {
            Proof::Walk
        },
        records: is_whole.then_some(count),
        largest: if is_whole { tally.largest } else { None },
        seen: tally.largest,
        near: ceilings.batch_near(size).and(tally.near),
        ..decided.measured(size)
    }
}
