//! The rungs of the ladder for a compressed payload: bound, then decode.

use std::ops::ControlFlow;

use super::effort::Effort;
use super::limits::Ceilings;
use super::near::NearGates;
use super::tally::{Tally, record_at};
use super::{Inspection, Judgement, Proof, Scratch, Undecodable};
use crate::batch::{BATCH_HEADER_BYTES, BatchHeader, RecordError, RecordSizes, RecordStream};
use crate::codec::{
    DecodeError, End, Output, UpperBound, scan_cost_bytes, scanned_bound, upper_bound,
};
use crate::inspect::RecordAt;
use crate::vocabulary::Codec;
use crate::vocabulary::Size;

/// As [`super::look_at_plain`], for a payload that is compressed.
pub(super) fn look(
    codec: Codec,
    header: &BatchHeader,
    payload: &[u8],
    ceilings: &Ceilings,
    effort: Effort,
    scratch: &mut Scratch,
) -> Inspection {
    let (proven, is_far, scanned_bytes) = within_by_bound(codec, payload, ceilings, effort);
    if let (Some(within), false) = (proven, effort.measures())
        && is_far
    {
        return within;
    }
    let effort = effort.less(scanned_bytes);
    let Ok(count @ 1..) = u32::try_from(header.records_count) else {
        return proven.unwrap_or(Inspection::new(
            Judgement::Undecodable(Undecodable::RecordCount),
            Proof::Header,
        ));
    };
    let Scratch {
        decoders,
        sizes,
        overs,
    } = scratch;
    let mut reading = Reading {
        stream: Ok(RecordStream::new(count)),
        needs_records: ceilings.limits_records,
        decoded: 0,
        tally: Tally::new(ceilings, None, effort.measures().then_some(sizes))
            .of_all_gates(effort.is_of_all_gates().then_some(overs)),
    };
    let cap = ceilings
        .decode_at_most(effort)
        .saturating_sub(BATCH_HEADER_BYTES as u64)
        .min(effort.decode_at_most_bytes());
    let end = decoders.decoder(codec, cap).decode(payload, &mut reading);
    let decoded = Inspection {
        scanned_bytes,
        is_cut: end == Ok(End::OverCap) && cap == effort.decode_at_most_bytes(),
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
            near: within.near.and(decoded.near),
            ..decoded
        },
    }
}

/// Within every limit by what the payload's headers allow, or its symbols; whether it is far from them, too; and what
/// it cost to look at these.
fn within_by_bound(
    codec: Codec,
    payload: &[u8],
    ceilings: &Ceilings,
    effort: Effort,
) -> (Option<Inspection>, bool, u64) {
    let is_free = ceilings.hold(u64::MAX);
    let holds = |bound: &UpperBound| ceilings.hold(uncompressed(bound.at_most));
    let far = |bound: &UpperBound| ceilings.are_far(uncompressed(bound.at_most), bound.is_exact);
    let mut scanned_bytes = 0;
    let by_headers = upper_bound(codec, payload).filter(holds);
    let bound = by_headers.filter(far).or_else(|| {
        let cost = scan_cost_bytes(codec, payload);
        if is_free || cost == 0 || cost > effort.decode_at_most_bytes() {
            return by_headers;
        }
        scanned_bytes = cost;
        scanned_bound(codec, payload, ceilings.held_records_bytes())
            .filter(holds)
            .or(by_headers)
    });
    let within = Inspection {
        scanned_bytes,
        ..Inspection::new(
            Judgement::Within,
            if is_free {
                Proof::Header
            } else {
                Proof::UpperBound
            },
        )
    };
    let proven = match bound {
        Some(bound) if bound.is_exact => {
            let size = Size::Exact(uncompressed(bound.at_most));
            Some(Inspection {
                near: ceilings.batch_near(size),
                ..within.measured(size)
            })
        }
        Some(_) => Some(within),
        None => is_free.then_some(within),
    };
    let is_far = is_free || bound.as_ref().is_some_and(far);
    (proven, is_far, scanned_bytes)
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

    /// The largest record that began: of the one that is being read, what its lengths declare counts.
    fn seen(&self) -> Option<RecordAt> {
        let largest = self.tally.largest;
        let stream = self.stream.as_ref().ok();
        let begun =
            stream.and_then(|stream| Some(record_at(stream.complete_records(), &stream.begun()?)));
        let is_larger = |begun: &RecordAt| {
            largest.is_none_or(|largest| begun.record_bytes > largest.record_bytes)
        };
        begun.filter(is_larger).or(largest)
    }

    fn conclude(self, end: Result<End, DecodeError>, ceilings: &Ceilings) -> Inspection {
        let seen = self.seen();
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
        if let Some(overs) = self.tally.overs {
            overs.extend(ceilings.batch_overs(size));
        }
        let over = self.tally.over.or_else(|| ceilings.batch_over(size));
        let finding = match (over, end, records) {
            (Some(over), _, _) => Judgement::Over(over),
            (None, Err(error), _) => Judgement::Undecodable(Undecodable::Payload(error)),
            (None, Ok(End::OverCap), _) => Judgement::Unfinished,
            (None, Ok(_), Err(error)) if self.needs_records => {
                Judgement::Undecodable(Undecodable::Records(error))
            }
            (None, Ok(_), _) => Judgement::Within,
        };
        let are_measured = is_whole && records.is_ok();
        let near = if is_whole {
            self.tally.near.and(ceilings.batch_near(size))
        } else {
            NearGates::NONE
        };
        Inspection {
            finding,
            proof: Proof::Decode,
            uncompressed: Some(size),
            records: records.ok().filter(|_| are_measured),
            largest: self.tally.largest.filter(|_| are_measured),
            seen,
            near,
            is_cut: false,
            decoded_bytes: self.decoded,
            scanned_bytes: 0,
        }
    }
}
