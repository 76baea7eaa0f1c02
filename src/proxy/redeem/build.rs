//! Puts the response together: each partition as far as its tickets are settled, cut at a record.
//!
//! Invariant: a partition that is cut keeps a record at or past the offset asked for, or nothing at all: with less, most
//! clients ask again without pause.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::choose::{Chosen, Outcome, State, Ticket};
use super::scan::Batch;
use super::{FAILED, Job};
use crate::claim::fallen::ERROR;
use crate::claim::{Fate, deliver, encoded_header};
use crate::error_code::UNKNOWN_TOPIC_ID;
use crate::proxy::Shared;
use crate::wire::Malformed;
use crate::wire::fetch_response::Replacement;

/// The checksum of so many bytes takes some fifty microseconds: about what it takes to have another thread do it.
const MOST_AT_ONCE: usize = 512 * 1024;

/// How far a partition goes: whole batches, and records of the one behind them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cut {
    batches: usize,
    records: u32,
}

/// As chosen, and not past a ticket that is not settled.
fn cut(of: &Chosen) -> Cut {
    let chosen = Cut {
        batches: of.batches,
        records: of.records,
    };
    let unsettled = of.tickets.iter().find(|ticket| {
        !matches!(
            ticket.state,
            State::Settled(Outcome::Original(_) | Outcome::Fallen | Outcome::Explained(_))
        )
    });
    match unsettled {
        None => chosen,
        Some(ticket) => Cut {
            batches: ticket.batch,
            records: ticket.record,
        },
    }
}

/// The cut, if something at or past the offset asked for is before it.
fn useful(of: &Chosen) -> Option<Cut> {
    let mut cut = cut(of);
    if let Some(Batch::Open(batch)) = of.of.batches.get(cut.batches)
        && cut.records <= batch.first
    {
        // Of this batch nothing that is asked for.
        cut.records = 0;
    }
    let whole = of.of.batches.iter().take(cut.batches);
    let is_useful = cut.records > 0
        || whole.into_iter().any(|batch| match batch {
            Batch::Original { last_offset, .. } => *last_offset >= of.of.offset,
            // It was opened because something in it is asked for.
            Batch::Open(_) => true,
        });
    is_useful.then_some(cut)
}

/// The partition has something for its consumer.
pub(super) fn goes_out(of: &Chosen) -> bool {
    useful(of).is_some()
}

/// The whole response, spliced: at once where little is to be summed, else away from the session's thread.
pub(super) async fn build(job: Job, chosen: Vec<Chosen>) -> Result<Vec<Bytes>, Malformed> {
    if summed_bytes(&chosen) <= MOST_AT_ONCE {
        return splice(&job, &chosen);
    }
    let shared = Arc::clone(&job.shared);
    let built = shared.off_turn(move || splice(&job, &chosen));
    built.await.ok_or(FAILED)?
}

/// About the bytes that go into checksums: originals, and the records that these stand between.
fn summed_bytes(chosen: &[Chosen]) -> usize {
    let tickets = chosen.iter().flat_map(|of| &of.tickets);
    let originals = tickets.map(|ticket| match &ticket.state {
        State::Settled(Outcome::Original(value)) => value.len(),
        _ => 0,
    });
    let batches = chosen.iter().flat_map(|of| &of.of.batches);
    let records = batches.map(|batch| match batch {
        Batch::Open(batch) => batch.batch.records().len(),
        Batch::Original { .. } => 0,
    });
    originals.chain(records).sum()
}

fn splice(job: &Job, chosen: &[Chosen]) -> Result<Vec<Bytes>, Malformed> {
    for of in chosen {
        tell(&job.shared, of);
    }
    let mut replaced: HashMap<usize, Replacement> = chosen
        .iter()
        .map(|of| (of.of.entry, replacement(job, of)))
        .collect();
    let Job {
        shared,
        layout,
        frame,
        ..
    } = job;
    layout.splice(frame, |entry| replaced.remove(&entry), &shared.advertised)
}

fn replacement(job: &Job, of: &Chosen) -> Replacement {
    let Some(cut) = useful(of) else {
        let is_unknown = of.of.topic.is_none();
        return Replacement {
            records: Vec::new(),
            error_code: is_unknown.then_some(UNKNOWN_TOPIC_ID),
        };
    };
    let mut records = Vec::new();
    for (at, batch) in of.of.batches.iter().enumerate() {
        let kept = if at < cut.batches {
            u32::MAX
        } else if at == cut.batches {
            cut.records
        } else {
            0
        };
        if kept == 0 {
            break;
        }
        match batch {
            Batch::Original { range, .. } => {
                let part = job.frame.get(range.clone()).unwrap_or_default();
                records.push(job.frame.slice_ref(part));
            }
            Batch::Open(batch) => {
                let fates: Vec<(u32, Fate)> = of
                    .tickets
                    .iter()
                    .filter(|ticket| ticket.batch == at && ticket.record < kept)
                    .filter_map(|ticket| Some((ticket.record, fate(ticket)?)))
                    .collect();
                match deliver(&batch.batch, kept, &fates) {
                    Ok(chain) => records.extend(chain),
                    // A batch beyond what its length can say.
                    Err(_) => break,
                }
            }
        }
    }
    Replacement {
        records,
        error_code: None,
    }
}

fn fate(ticket: &Ticket) -> Option<Fate> {
    let State::Settled(outcome) = &ticket.state else {
        return None;
    };
    match outcome {
        Outcome::Original(value) => Some(Fate::Redeemed(value.clone())),
        Outcome::Fallen => Some(Fate::LeftOut),
        Outcome::Explained(failure) => Some(Fate::Explained(encoded_header(
            ERROR,
            failure.class.label(),
        ))),
        Outcome::Held(_) => None,
    }
}

/// Counts what goes out, and says who waits.
fn tell(shared: &Shared, of: &Chosen) {
    let Some(topic) = &of.of.topic else {
        return;
    };
    let metrics = shared.metrics.claims();
    let is_any_held = metrics.is_any_held();
    let went = useful(of);
    for ticket in &of.tickets {
        let at = (
            Arc::clone(&ticket.at.topic),
            ticket.at.partition,
            ticket.at.offset,
        );
        let is_before = went.is_some_and(|cut| {
            ticket.batch < cut.batches
                || (ticket.batch == cut.batches && ticket.record < cut.records)
        });
        let waits_for = match &ticket.state {
            State::Settled(Outcome::Held(failure)) | State::Unclear(failure) => {
                Some(failure.clone())
            }
            State::Waits(waiting) => waiting.failing().or_else(|| {
                let fallbacks = shared.claims.as_ref()?.fallbacks();
                let why = fallbacks.failing(&ticket.at)?;
                Some(crate::claim::Failure::new(
                    crate::claim::Class::Config,
                    "FallbackNotWritten",
                    why,
                ))
            }),
            State::Settled(_) | State::Falls => None,
        };
        if let Some(failure) = waits_for {
            let is_new = metrics.hold(at.clone());
            if is_new {
                shared
                    .redeem_log
                    .log_held((&at.0, at.1, at.2), failure.told());
            }
        } else if is_any_held && is_before && metrics.let_go(&at) {
            shared.redeem_log.log_let_go((&at.0, at.1, at.2));
        }
        if let (State::Settled(Outcome::Original(value)), true) = (&ticket.state, is_before) {
            topic.counts.redeemed_records.inc();
            topic.counts.redeemed_bytes.inc_by(value.len() as u64);
        }
    }
}
