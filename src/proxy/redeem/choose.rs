//! Chooses how much of each partition goes out: within the client's limits, our own, and the room that there is.
//!
//! A ticket states the size of its value, so all of this is known before anything is asked for. As in Kafka (KIP-74), the
//! first record of a response is above every limit; all others are within them.

use std::sync::Arc;

use uuid::Uuid;

use super::Job;
use super::scan::{Batch, Judged, Opened, WithTickets};
use crate::batch::RecordParts;
use crate::claim::{Failure, Values, Waiting, Wanted, offset_delta};
use crate::proxy::fallback::{Fallbacks, LostAt};

/// The largest response, whatever a client says it can take: most take 100 MB, the first record apart.
const RESPONSE_BYTES: u64 = 48 * 1024 * 1024;
/// The share of all room that one response takes.
const SHARE: u64 = 4;

/// A partition with what goes out of it, at most.
pub(super) struct Chosen {
    pub of: Opened,
    /// Batches that go out whole, so far as their tickets are redeemed.
    pub batches: usize,
    /// Records of the batch behind them.
    pub records: u32,
    pub tickets: Vec<Ticket>,
}

/// A ticket that is to be redeemed.
pub(super) struct Ticket {
    /// Its batch.
    pub batch: usize,
    /// Its record.
    pub record: u32,
    /// Which record that is.
    pub at: LostAt,
    pub state: State,
}

pub(super) enum State {
    /// Its value is asked for.
    Waits(Waiting),
    /// It is on its way to the fallback topic.
    Falls,
    /// It is none that could be asked for.
    Unclear(Failure),
    /// What became of it.
    Settled(Outcome),
}

pub(super) enum Outcome {
    /// Here is its value.
    Original(bytes::Bytes),
    /// The fallback topic has it.
    Fallen,
    /// It goes out as a ticket.
    Explained(Failure),
    /// It keeps its consumers waiting.
    Held(Failure),
}

/// What may still go out.
struct Room<'a> {
    values: &'a Values,
    fallbacks: &'a Fallbacks,
    response_bytes: u64,
    partition_bytes: u64,
    /// Something goes out already: the limits hold.
    is_any: bool,
    /// One ticket waits for room in turn.
    was_must: bool,
}

impl Room<'_> {
    fn has(&self, bytes: u64) -> bool {
        !self.is_any || bytes <= self.response_bytes.min(self.partition_bytes)
    }

    /// What is known of a record that was found lost before.
    fn fallen(&self, at: &LostAt) -> Option<State> {
        if self.fallbacks.is_lost(at) {
            return Some(State::Settled(Outcome::Fallen));
        }
        self.fallbacks.under_way(at).map(|_| State::Falls)
    }

    fn spend(&mut self, bytes: u64) {
        self.response_bytes = self.response_bytes.saturating_sub(bytes);
        self.partition_bytes = self.partition_bytes.saturating_sub(bytes);
    }
}

/// Chooses in the order of the response, and begins to ask for the values.
pub(super) fn choose(job: &Job, opened: Vec<Opened>) -> Vec<Chosen> {
    let Some(claims) = &job.shared.claims else {
        return Vec::new();
    };
    let values = claims.handle().values();
    let most = u64::try_from(job.asked.max_bytes).unwrap_or(0);
    let mut room = Room {
        values,
        fallbacks: claims.fallbacks(),
        response_bytes: most
            .min(RESPONSE_BYTES)
            .min(values.room_bytes().checked_div(SHARE).unwrap_or(0)),
        partition_bytes: 0,
        is_any: false,
        was_must: false,
    };
    let chosen = opened.into_iter().map(|of| choose_of(of, &mut room));
    chosen.collect()
}

fn choose_of(of: Opened, room: &mut Room<'_>) -> Chosen {
    room.partition_bytes = u64::try_from(of.max_bytes).unwrap_or(0);
    let mut chosen = Chosen {
        batches: 0,
        records: 0,
        tickets: Vec::new(),
        of,
    };
    for (at, batch) in chosen.of.batches.iter().enumerate() {
        let (is_whole, records) = match batch {
            Batch::Original { range, last_offset } => {
                let bytes = range.len() as u64;
                let fits = room.has(bytes);
                if fits {
                    room.spend(bytes);
                    room.is_any |= *last_offset >= chosen.of.offset;
                }
                (fits, 0)
            }
            Batch::Open(batch) => {
                let mut tickets = Vec::new();
                let went = choose_records(&chosen.of, (at, batch), room, &mut tickets);
                chosen.tickets.append(&mut tickets);
                went
            }
        };
        chosen.records = records;
        if !is_whole {
            break;
        }
        chosen.batches = at.saturating_add(1);
        chosen.records = 0;
    }
    chosen
}

/// Whether all of the batch goes out, else how many of its records.
fn choose_records(
    of: &Opened,
    (at, batch): (usize, &WithTickets),
    room: &mut Room<'_>,
    chosen: &mut Vec<Ticket>,
) -> (bool, u32) {
    let mut tickets = batch.tickets.iter().peekable();
    for (record, parts) in batch.batch.parts() {
        if record >= batch.records {
            return (false, record);
        }
        let ticket = tickets.next_if(|(of, _)| *of == record);
        let bytes = parts.sizes.record_bytes;
        match ticket {
            None | Some((_, Judged::Forged)) => {
                let is_asked = record >= batch.first;
                if is_asked && !room.has(bytes) {
                    return (false, record);
                }
                room.spend(bytes);
                room.is_any |= is_asked;
            }
            Some((_, Judged::Unclear(failure))) => {
                chosen.push(Ticket {
                    batch: at,
                    record,
                    at: place(of, batch, &parts, None),
                    state: State::Unclear(failure.clone()),
                });
                return (false, record);
            }
            Some((_, Judged::Sound(wanted))) => {
                let lost = place(of, batch, &parts, Some(wanted));
                if let Some(state) = room.fallen(&lost) {
                    chosen.push(Ticket {
                        batch: at,
                        record,
                        at: lost,
                        state,
                    });
                    continue;
                }
                let bytes = bytes.saturating_add(wanted.ticket.size);
                if !room.has(bytes) {
                    return (false, record);
                }
                let must = !room.is_any && !room.was_must;
                let Some(waiting) = room.values.begin(wanted, must) else {
                    return (false, record);
                };
                room.was_must |= must;
                room.spend(bytes);
                let is_failing = waiting.failing().is_some();
                chosen.push(Ticket {
                    batch: at,
                    record,
                    at: lost,
                    state: State::Waits(waiting),
                });
                if is_failing {
                    // What stands behind it would wait with it, and take room for that.
                    return (false, record.saturating_add(1));
                }
                room.is_any = true;
            }
        }
    }
    (true, 0)
}

fn place(of: &Opened, batch: &WithTickets, parts: &RecordParts, wanted: Option<&Wanted>) -> LostAt {
    let delta = offset_delta(batch.batch.records(), parts).unwrap_or(0);
    let base = batch.batch.header().base_offset;
    LostAt {
        topic: of
            .topic
            .as_ref()
            .map_or_else(|| "".into(), |topic| Arc::clone(&topic.name)),
        topic_id: of.topic.as_ref().map_or_else(Uuid::nil, |topic| topic.id()),
        partition: of.partition,
        offset: base.saturating_add(i64::from(delta)),
        sha256: wanted.map_or(crate::claim::Digest([0; 32]), |wanted| wanted.ticket.sha256),
    }
}
