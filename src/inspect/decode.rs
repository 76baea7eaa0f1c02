//! The rungs of the ladder for a compressed payload: bound, then decode.

use std::ops::ControlFlow;

use super::effort::Effort;
use super::limits::Ceilings;
use super::tally::Tally;
use super::{Finding, Inspection, Proof, Scratch, Undecodable};
use crate::batch::{BATCH_HEADER_BYTES, BatchHeader, RecordError, RecordSizes, RecordStream};
use crate::codec::{Bound, DecodeError, End, Output, scan_cost_bytes, scanned_bound, upper_bound};
use crate::policy::{Codec, Size};

/// As [`super::look_at_plain`], for a payload that is compressed.
pub(super) fn look(
    codec: Codec,
    header: &BatchHeader,
    payload: &[u8],
    ceilings: &Ceilings,
    effort: Effort,
    scratch: &mut Scratch,
) -> Inspection {
    let (proven, scanned_bytes) = within_by_bound(codec, payload, ceilings, effort);
    if let (Some(within), false) = (proven, effort.measures()) {
        return within;
    }
    let effort = effort.less(scanned_bytes);
    let Ok(count @ 1..) = u32::try_from(header.records_count) else {
        return proven.unwrap_or(Inspection::new(
            Finding::Undecodable(Undecodable::RecordCount),
            Proof::Header,
        ));
    };
    let Scratch { decoders, sizes } = scratch;
    let mut reading = Reading {
        stream: Ok(RecordStream::new(count)),
        needs_records: ceilings.limits_records,
        decoded: 0,
        tally: Tally::new(ceilings, None, effort.measures().then_some(sizes)),
    };
    let cap = ceilings
        .uncompressed
        .saturating_sub(BATCH_HEADER_BYTES as u64)
        .min(effort.decode_at_most_bytes());
    let end = decoders.decoder(codec, cap).decode(payload, &mut reading);
    let decoded = Inspection {
        scanned_bytes,
        ..reading.conclude(end, ceilings)
    };
    match proven {
        None => decoded,
        // Decoded for measures only: what it met on the way changes nothing.
        Some(within) => Inspection {
            finding: within.finding,
            proof: within.proof,
            uncompressed: match decoded.uncompressed {
                Some(Size::Exact(_)) => decoded.uncompressed,
                _ => within.uncompressed.or(decoded.uncompressed),
            },
            ..decoded
        },
    }
}

/// Within every limit by what the payload's headers allow, or its symbols; and what it cost to look at these.
fn within_by_bound(
    codec: Codec,
    payload: &[u8],
    ceilings: &Ceilings,
    effort: Effort,
) -> (Option<Inspection>, u64) {
    let is_free = ceilings.hold(u64::MAX);
    let holds = |bound: &Bound| ceilings.hold(uncompressed(bound.at_most));
    let mut scanned_bytes = 0;
    let bound = upper_bound(codec, payload).filter(holds).or_else(|| {
        let cost = scan_cost_bytes(codec, payload);
        if is_free || cost > effort.decode_at_most_bytes() {
            return None;
        }
        scanned_bytes = cost;
        scanned_bound(codec, payload, ceilings.held_records_bytes()).filter(holds)
    });
    let within = Inspection {
        scanned_bytes,
        ..Inspection::new(
            Finding::Within,
            if is_free { Proof::Header } else { Proof::Bound },
        )
    };
    let proven = match bound {
        Some(bound) if bound.is_exact => {
            Some(within.measured(Size::Exact(uncompressed(bound.at_most))))
        }
        Some(_) => Some(within),
        None => is_free.then_some(within),
    };
    (proven, scanned_bytes)
}

const fn uncompressed(records_bytes: u64) -> u64 {
    records_bytes.saturating_add(BATCH_HEADER_BYTES as u64)
}

/// Takes what the decoder produces and walks its records.
struct Reading<'a> {
    /// The walk, or why it ended.
    stream: Result<RecordStream, RecordError>,
    needs_records: bool,
    decoded: u64,
    tally: Tally<'a>,
}

impl Output for Reading<'_> {
    fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.decoded = self.decoded.saturating_add(bytes.len() as u64);
        let Ok(stream) = &mut self.stream else {
            return ControlFlow::Continue(());
        };
        let tally = &mut self.tally;
        match stream.feed(bytes, |sizes: &RecordSizes| tally.record(sizes)) {
            Err(error) => self.lose_records(error),
            Ok(ControlFlow::Break(())) => ControlFlow::Break(()),
            Ok(ControlFlow::Continue(())) => {
                tally.partial_record(&stream.partial(), bytes.len() as u64)
            }
        }
    }

    fn seam(&mut self) -> ControlFlow<()> {
        match &self.stream {
            Ok(stream) if stream.is_complete() => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn false_end(&mut self) -> ControlFlow<()> {
        self.seam()?;
        match self.stream.as_mut().map(RecordStream::feed_false_end) {
            Ok(Err(error)) => self.lose_records(error),
            _ => ControlFlow::Continue(()),
        }
    }
}

impl Reading<'_> {
    /// Records cannot be told apart any more; bytes can still be counted, if that is all that the limits need.
    fn lose_records(&mut self, error: RecordError) -> ControlFlow<()> {
        self.stream = Err(error);
        if self.needs_records {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn conclude(self, end: Result<End, DecodeError>, ceilings: &Ceilings) -> Inspection {
        let records = self
            .stream
            .and_then(|stream| stream.finish().map(|()| stream.complete_records()));
        let so_far = uncompressed(self.decoded).max(self.tally.rewritten_bytes());
        let is_whole = match end {
            Ok(End::Complete) => true,
            // Stopped at a seam.
            Ok(End::Stopped) => records.is_ok(),
            Ok(End::OverCap) | Err(_) => false,
        };
        let size = if is_whole {
            Size::Exact(so_far)
        } else {
            Size::AtLeast(so_far)
        };
        let over = self.tally.over.or_else(|| ceilings.batch_over(size));
        let finding = match (over, end, records) {
            (Some(over), _, _) => Finding::Over(over),
            (None, Err(error), _) => Finding::Undecodable(Undecodable::Payload(error)),
            (None, Ok(End::OverCap), _) => Finding::Unfinished,
            (None, Ok(_), Err(error)) if self.needs_records => {
                Finding::Undecodable(Undecodable::Records(error))
            }
            (None, Ok(_), _) => Finding::Within,
        };
        let are_measured = is_whole && records.is_ok();
        Inspection {
            finding,
            proof: Proof::Decode,
            uncompressed: Some(size),
            records: records.ok().filter(|_| are_measured),
            largest: self.tally.largest.filter(|_| are_measured),
            decoded_bytes: self.decoded,
            scanned_bytes: 0,
        }
    }
}
