//! What a response bears: which batches may hold tickets, and which tickets these are.
//!
//! The cheapest proof first: the topic, the batch's header, the mark's name among its bytes; only what is compressed is
//! decoded. What cannot be opened is passed on: it holds nothing that was offloaded.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use memchr::memmem;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::Job;
use crate::batch::{BatchHeader, RecordCursor, RecordParts};
use crate::claim::{
    Class, Failure, MARK_HEADER, Namespace, OpenBatch, Refuted, Wanted, offset_delta, tickets_from,
};
use crate::codec::Decoders;
use crate::config::Unredeemed;
use crate::proxy::Shared;
use crate::proxy::claim_fetches::{AskedOfTopic, ClaimTopic, FetchAsked};
use crate::vocabulary::Codec;
use crate::wire::fetch_response::{Aborted, Layout};
use crate::wire::produce::TopicKey;
use crate::wire::record_batch::{BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES, UP_TO_MAGIC_BYTES};

/// Batches of this many bytes together are looked through at once; more, and all that are compressed, away from the
/// session's thread.
const MOST_AT_ONCE: usize = 128 * 1024;

/// Tickets of one batch that are looked at for one response: no response has room for more.
const MOST_TICKETS: usize = 2_048;

/// A value that has turned out to be lost counts as lost for the response that comes next: the one that asked may have left
/// a moment before. Then, and once its record is on its way to the fallback topic, it is looked for again: another record may
/// bear the same ticket, and its object may be back.
const LOST: Duration = Duration::from_secs(2);
/// The same where consumers wait for it, or get its ticket.
const STILL_LOST: Duration = Duration::from_secs(60);

/// A partition that may bear tickets.
#[derive(Debug)]
pub(crate) struct Candidate {
    /// Its entry in the response.
    pub entry: usize,
    /// Its number.
    pub partition: i32,
    /// `None`: nobody knows which topic it is.
    pub topic: Option<Arc<ClaimTopic>>,
    /// How the response names it, if by id.
    pub id: Option<[u8; 16]>,
    /// The offset asked for.
    pub offset: i64,
    /// The most bytes that the client wants of it.
    pub max_bytes: i32,
    /// Its batches.
    batches: Vec<Stored>,
}

/// A batch in the response.
#[derive(Debug)]
struct Stored {
    range: Range<usize>,
    header: Option<BatchHeader>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It holds no ticket, or none that anybody may redeem.
    Opaque,
    /// The mark's name is among its bytes.
    Marked,
    /// What it holds is not known yet.
    Compressed,
}

/// Partitions of a response that may bear tickets. Nothing is decoded, and nothing is copied.
pub(crate) fn candidates(frame: &Bytes, layout: &Layout, asked: &FetchAsked) -> Vec<Candidate> {
    let mut found = Vec::new();
    for topic in &layout.topics {
        let Ok(key) = layout.topic_key(frame, topic) else {
            continue;
        };
        let Some(of_topic) = asked.asked.topic(key) else {
            continue;
        };
        let id = match key {
            TopicKey::Id(id) => Some(id),
            TopicKey::Name(_) => None,
        };
        for entry in topic.partitions.clone() {
            found.extend(candidate(
                frame,
                layout,
                (of_topic, id),
                entry,
                asked.is_committed,
            ));
        }
    }
    found
}

fn candidate(
    frame: &Bytes,
    layout: &Layout,
    (of_topic, id): (&AskedOfTopic, Option<[u8; 16]>),
    entry: usize,
    is_committed: bool,
) -> Option<Candidate> {
    let partition = layout.partitions.get(entry)?;
    let records = partition.records.clone()?;
    let aborted = layout.aborted.get(partition.aborted.clone());
    let aborted = aborted.filter(|_| is_committed).unwrap_or_default();
    let batches = batches(frame, records, aborted);
    if batches.iter().all(|batch| batch.kind == Kind::Opaque) {
        return None;
    }
    let of_partition = of_topic.partitions.get(&partition.index);
    Some(Candidate {
        entry,
        partition: partition.index,
        topic: of_topic.topic.clone(),
        id,
        offset: of_partition.map_or(i64::MIN, |asked| asked.offset),
        max_bytes: of_partition.map_or(i32::MAX, |asked| asked.max_bytes),
        batches,
    })
}

/// The whole batches at the front of `records`; what follows them is no batch, or not all of one.
fn batches(frame: &[u8], records: Range<usize>, aborted: &[Aborted]) -> Vec<Stored> {
    let mut open = Transactions::new(aborted);
    let mut batches = Vec::new();
    let mut at = records.start;
    while let Some(rest) = frame.get(at..records.end) {
        let Some(bytes) = batch_bytes(rest) else {
            break;
        };
        let range = at..at.saturating_add(bytes);
        let batch = rest.get(..bytes).unwrap_or_default();
        let header = BatchHeader::read(batch)
            .ok()
            .filter(|header| header.magic == 2);
        let kind = header.map_or(Kind::Opaque, |header| {
            if open.is_aborted(&header, batch) {
                Kind::Opaque
            } else {
                kind(&header, batch)
            }
        });
        at = range.end;
        batches.push(Stored {
            range,
            header,
            kind,
        });
    }
    batches
}

/// Bytes of the batch or message at the front, if all of it is here.
fn batch_bytes(rest: &[u8]) -> Option<usize> {
    rest.get(..UP_TO_MAGIC_BYTES)?;
    let length = rest.get(8..LOG_OVERHEAD_BYTES)?.first_chunk()?;
    let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
    let bytes = length.checked_add(LOG_OVERHEAD_BYTES)?;
    (bytes >= UP_TO_MAGIC_BYTES && bytes <= rest.len()).then_some(bytes)
}

fn kind(header: &BatchHeader, batch: &[u8]) -> Kind {
    if header.is_control() {
        return Kind::Opaque;
    }
    match header.codec() {
        None => Kind::Opaque,
        Some(Codec::None) => {
            let payload = batch.get(BATCH_HEADER_BYTES..).unwrap_or_default();
            match memmem::find(payload, MARK_HEADER.as_bytes()) {
                Some(_) => Kind::Marked,
                None => Kind::Opaque,
            }
        }
        Some(_) => Kind::Compressed,
    }
}

/// Follows transactions as a consumer does (`CompletedFetch`): which batches it will leave out.
struct Transactions<'a> {
    /// By ascending first offset.
    to_come: std::vec::IntoIter<&'a Aborted>,
    next: Option<&'a Aborted>,
    aborted: HashSet<i64>,
}

impl<'a> Transactions<'a> {
    fn new(aborted: &'a [Aborted]) -> Self {
        let mut sorted: Vec<&Aborted> = aborted.iter().collect();
        sorted.sort_by_key(|aborted| aborted.first_offset);
        let mut to_come = sorted.into_iter();
        let next = to_come.next();
        Self {
            to_come,
            next,
            aborted: HashSet::new(),
        }
    }

    fn is_aborted(&mut self, header: &BatchHeader, batch: &[u8]) -> bool {
        let delta = i64::from(header.last_offset_delta);
        let last_offset = header.base_offset.saturating_add(delta);
        while let Some(begun) = self.next.filter(|next| next.first_offset <= last_offset) {
            self.aborted.insert(begun.producer_id);
            self.next = self.to_come.next();
        }
        if header.is_control() {
            if is_abort_marker(batch) {
                self.aborted.remove(&header.producer_id);
            }
            return false;
        }
        header.is_transactional() && self.aborted.contains(&header.producer_id)
    }
}

/// The key of a control record is its version and its type: 0 is ABORT (`ControlRecordType`). Markers are alone in
/// their batch, and never compressed.
fn is_abort_marker(batch: &[u8]) -> bool {
    let records = batch.get(BATCH_HEADER_BYTES..).unwrap_or_default();
    let first = RecordCursor::new(records, 1).next();
    let key = first.and_then(Result::ok).and_then(|parts| parts.key);
    let kind = key.and_then(|key| records.get(key)?.get(2..4)?.first_chunk());
    kind.is_some_and(|kind| i16::from_be_bytes(*kind) == 0)
}

/// A partition with its tickets.
pub(super) struct Opened {
    pub entry: usize,
    pub partition: i32,
    /// `None`: nobody knows which topic it is, and it bears a ticket.
    pub topic: Option<Arc<ClaimTopic>>,
    pub offset: i64,
    pub max_bytes: i32,
    pub batches: Vec<Batch>,
    /// There was no room for what comes behind these batches.
    pub is_cut: bool,
}

pub(super) enum Batch {
    /// As it is.
    Original {
        range: Range<usize>,
        last_offset: i64,
    },
    /// With tickets in it.
    Open(Box<WithTickets>),
}

pub(super) struct WithTickets {
    pub batch: OpenBatch,
    /// The first record at or past the offset asked for.
    pub first: u32,
    /// Records that may go out; what stands behind them was not looked at.
    pub records: u32,
    /// By ascending record, from the first that is asked for.
    pub tickets: Vec<(u32, Judged)>,
}

/// What a record's ticket is.
pub(super) enum Judged {
    /// One of ours.
    Sound(Wanted),
    /// None of ours: it is the record's own value, and goes out as that.
    Forged,
    /// What would tell is not configured, or not known.
    Unclear(Failure),
}

/// Opens the batches that may bear tickets. What there is no room for is left out, and what stands behind it; the first
/// of a response waits for its room.
///
/// `None`: it failed.
pub(super) async fn open(job: &mut Job, deadline: Instant) -> Option<Vec<Opened>> {
    let candidates = std::mem::take(&mut job.candidates);
    let all = candidates.iter().flat_map(|of| &of.batches);
    let compressed = all.clone().any(|batch| batch.kind == Kind::Compressed);
    let bytes: usize = all
        .filter(|batch| batch.kind != Kind::Opaque)
        .map(|batch| batch.range.len())
        .sum();
    let (shared, frame) = (Arc::clone(&job.shared), job.frame.clone());
    if !compressed && bytes <= MOST_AT_ONCE {
        return Some(open_all(&shared, &frame, candidates, Vec::new()));
    }
    let most_bytes = most_bytes(&shared);
    let measured = shared.off_turn(move || {
        let mut decoders = Decoders::new();
        let needs: Vec<Vec<u64>> = candidates
            .iter()
            .map(|of| needs(&frame, of, most_bytes, &mut decoders))
            .collect();
        (frame, candidates, needs)
    });
    let (frame, candidates, needs) = measured.await?;
    let rooms = rooms(&shared, needs, deadline).await;
    let theirs = Arc::clone(&shared);
    shared
        .off_turn(move || open_all(&theirs, &frame, candidates, rooms))
        .await
}

/// The most that one batch is uncompressed to: what is larger was never offloaded.
fn most_bytes(shared: &Shared) -> u64 {
    let claims = shared.claims.as_ref();
    claims.map_or(0, |claims| claims.handle().values().room_bytes() / 2)
}

/// What opening each batch makes.
fn needs(frame: &[u8], of: &Candidate, most_bytes: u64, decoders: &mut Decoders) -> Vec<u64> {
    let need = |batch: &Stored| match batch.kind {
        Kind::Compressed => {
            let bytes = frame.get(batch.range.clone()).unwrap_or_default();
            OpenBatch::made_bytes(bytes, most_bytes, decoders).unwrap_or(0)
        }
        Kind::Opaque | Kind::Marked => 0,
    };
    of.batches.iter().map(need).collect()
}

/// Room for each compressed batch; `None` where there is none.
type Rooms = Vec<Vec<Option<OwnedSemaphorePermit>>>;

async fn rooms(shared: &Shared, needs: Vec<Vec<u64>>, deadline: Instant) -> Rooms {
    let Some(claims) = &shared.claims else {
        return Vec::new();
    };
    let values = claims.handle().values();
    let mut is_first = true;
    let mut rooms = Vec::new();
    for partition in needs {
        let mut of_partition = Vec::new();
        for bytes in partition {
            let room = if bytes == 0 {
                None
            } else if std::mem::take(&mut is_first) {
                let room = tokio::time::timeout_at(deadline, values.room(bytes)).await;
                room.ok().flatten()
            } else {
                values.try_room(bytes)
            };
            of_partition.push(room);
        }
        rooms.push(of_partition);
    }
    rooms
}

fn open_all(
    shared: &Shared,
    frame: &Bytes,
    candidates: Vec<Candidate>,
    rooms: Rooms,
) -> Vec<Opened> {
    let claims = shared.claims.as_ref();
    let namespace = claims.and_then(|claims| claims.namespace(&shared.cluster));
    let mut decoders = Decoders::new();
    let mut rooms = rooms.into_iter();
    let most_bytes = most_bytes(shared);
    let opened = candidates.into_iter().filter_map(|of| {
        let rooms = rooms.next().unwrap_or_default();
        open_one(
            frame,
            of,
            rooms,
            namespace.as_deref(),
            most_bytes,
            &mut decoders,
        )
    });
    opened.collect()
}

/// `None`: it bears no tickets.
fn open_one(
    frame: &Bytes,
    of: Candidate,
    rooms: Vec<Option<OwnedSemaphorePermit>>,
    namespace: Option<&Namespace>,
    most_bytes: u64,
    decoders: &mut Decoders,
) -> Option<Opened> {
    let mut opened = Opened {
        entry: of.entry,
        partition: of.partition,
        topic: of.topic.clone(),
        offset: of.offset,
        max_bytes: of.max_bytes,
        batches: Vec::new(),
        is_cut: false,
    };
    let mut bears_tickets = false;
    let mut rooms = rooms.into_iter();
    for stored in of.batches {
        let room = rooms.next().flatten();
        let bytes = frame
            .get(stored.range.clone())
            .map(|part| frame.slice_ref(part));
        let made = match (stored.kind, &bytes) {
            (Kind::Opaque, _) | (_, None) => None,
            (Kind::Marked, Some(bytes)) => OpenBatch::open(bytes, u64::MAX, decoders).ok(),
            (Kind::Compressed, Some(bytes)) => match room {
                Some(room) => {
                    let batch = OpenBatch::open(bytes, most_bytes, decoders).ok();
                    batch.map(|batch| batch.held_by(room))
                }
                // Nothing comes out of it, or too much: nothing of that is ours.
                None if OpenBatch::made_bytes(bytes, most_bytes, decoders).unwrap_or(0) == 0 => {
                    None
                }
                None => {
                    opened.is_cut = true;
                    break;
                }
            },
        };
        let last_offset = last_offset(&stored);
        let with_tickets =
            made.and_then(|batch| with_tickets(batch, of.offset, &of.topic, namespace));
        opened.batches.push(match with_tickets {
            Some(batch) => {
                bears_tickets = true;
                Batch::Open(Box::new(batch))
            }
            None => Batch::Original {
                range: stored.range,
                last_offset,
            },
        });
    }
    (bears_tickets || opened.is_cut).then_some(opened)
}

fn last_offset(stored: &Stored) -> i64 {
    // An old message stands for what was compressed into it.
    stored.header.map_or(i64::MAX, |header| {
        let delta = i64::from(header.last_offset_delta);
        header.base_offset.saturating_add(delta)
    })
}

/// `None`: nothing in it that is asked for bears the mark.
fn with_tickets(
    batch: OpenBatch,
    offset: i64,
    topic: &Option<Arc<ClaimTopic>>,
    namespace: Option<&Namespace>,
) -> Option<WithTickets> {
    let base_offset = batch.header().base_offset;
    let is_asked = |parts: &RecordParts| {
        let delta = offset_delta(batch.records(), parts).unwrap_or(0);
        base_offset.saturating_add(i64::from(delta)) >= offset
    };
    let (first, _) = batch.parts().find(|(_, parts)| is_asked(parts))?;
    let mut tickets = judged(&batch, first, topic, namespace);
    let behind = (tickets.len() > MOST_TICKETS)
        .then(|| tickets.pop())
        .flatten();
    let records = behind.map_or(u32::MAX, |(record, _)| record);
    (!tickets.is_empty()).then(|| WithTickets {
        batch,
        first,
        records,
        tickets,
    })
}

fn judged(
    batch: &OpenBatch,
    first: u32,
    topic: &Option<Arc<ClaimTopic>>,
    namespace: Option<&Namespace>,
) -> Vec<(u32, Judged)> {
    let (Some(topic), Some(namespace)) = (topic, namespace) else {
        let unknown = Failure::new(
            Class::Transient,
            "Unknown",
            "the topic or the cluster is not known yet",
        );
        let asked = batch.parts().filter(|(record, _)| *record >= first);
        let marked = asked.filter(|(_, parts)| {
            let record = batch.records().get(parts.headers.clone());
            record.is_some_and(|headers| memmem::find(headers, MARK_HEADER.as_bytes()).is_some())
        });
        return marked
            .map(|(record, _)| (record, Judged::Unclear(unknown.clone())))
            .take(MOST_TICKETS + 1)
            .collect();
    };
    let rules = &topic.rules;
    let falls = [rules.on_missing, rules.on_corrupt] == [Unredeemed::Fallback; 2];
    let found = tickets_from(first, batch, &topic.name, namespace, &rules.keys);
    let judged = found.map(|found| {
        let judged = match found.ticket {
            Ok((ticket, place)) => Judged::Sound(Wanted {
                ticket: Arc::new(ticket),
                place,
                grace: rules.grace,
                lost_for: if falls { LOST } else { STILL_LOST },
                counts: Arc::clone(&topic.counts),
            }),
            Err(why @ (Refuted::UnknownKey | Refuted::ForeignUri)) => {
                Judged::Unclear(Failure::new(
                    Class::Config,
                    why.label(),
                    "the ticket's key or store is not the configured one",
                ))
            }
            Err(_) => {
                topic.counts.forged.inc();
                Judged::Forged
            }
        };
        (found.record, judged)
    });
    judged.take(MOST_TICKETS + 1).collect()
}
