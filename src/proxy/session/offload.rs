//! Offloading in the background of one session: what tickets would make of a request, and then their objects.
//!
//! Whoever computes or uploads owns the bytes and the memory's permit, so that both end together whatever becomes of the
//! session. An object is acknowledged before its ticket is in a frame.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures_util::future::join_all;
use tokio::sync::OwnedSemaphorePermit;

use super::requests::Pending;
use crate::batch::BatchHeader;
use crate::claim::{
    Class, Failure, Issuer, Namespace, OpenBatch, Planned, Put, SignedTicket, Upload, Uploaded,
    offload, plan_offload,
};
use crate::codec::Decoders;
use crate::config::StoreFailure;
use crate::count::Count as _;
use crate::proxy::budget::Lease;
use crate::proxy::verdict::{Offload, Ready, Stage, ToOffload};
use crate::proxy::{Claims, Shared};
use crate::vocabulary::Codec;
use crate::wire::api::PREFIX_BYTES;
use crate::wire::produce::Layout;
use crate::wire::splice::Piece;

/// The longest that a client is kept waiting, whatever it would wait: below the 30 s that most give a request.
const LONGEST: Duration = Duration::from_secs(24);

/// A request as it came.
pub(super) struct Original {
    frame: Bytes,
    held: Arc<Held>,
    deadline: Instant,
    acks: i16,
}

/// Memory for a frame as it came and for what is made of it; whoever still needs either holds this.
struct Held {
    _frame: Lease,
    _room: OwnedSemaphorePermit,
}

/// Plans what is offloaded, and puts a frame with stand-ins in the place of the one that came.
pub(super) async fn plan(shared: &Shared, pending: &mut Pending, wanted: Vec<ToOffload>) {
    let mut layout = Layout::default();
    // It was read before.
    let _ = layout.read(&pending.frame, pending.head.api_version);
    let deadline = deadline(pending.arrival.ended, layout.timeout_ms);
    let acks = layout.acks;
    let topics = wanted
        .iter()
        .map(|wanted| (wanted.partition_entry, on_failure(wanted)));
    let topics: Vec<(usize, StoreFailure)> = topics.collect();
    let planned = match place(shared) {
        Some((claims, namespace)) => {
            planned(shared, claims, namespace, pending, wanted, deadline).await
        }
        None => Err(Failure::new(
            Class::Transient,
            "NoClusterId",
            "no broker has told the cluster's id yet",
        )),
    };
    let mut progress = Offload::default();
    match planned {
        Ok((stages, frame, held)) => {
            progress.stages = stages;
            if let Some(frame) = frame {
                let original = std::mem::replace(&mut pending.frame, frame);
                pending.original = Some(Original {
                    frame: original,
                    held,
                    deadline,
                    acks,
                });
                take_on(shared, pending);
            } else {
                pending.lease = shared.budget.charge(pending.frame.len());
            }
        }
        Err(failure) => {
            for (entry, on_failure) in topics {
                let stage = Stage::failed(failure.clone(), on_failure, acks);
                progress.stages.insert(entry, stage);
            }
        }
    }
    pending.asked.offload = Some(Box::new(progress));
    pending.asked.forget_inspected();
}

/// Uploads the values of these entries, all at once, and puts a frame with their tickets in place.
pub(super) async fn upload(shared: &Shared, pending: &mut Pending, entries: Vec<usize>) {
    let Some(progress) = pending.asked.offload.as_mut() else {
        return;
    };
    // From here on no stand-in is forwarded, whatever goes wrong.
    progress.is_over = true;
    let (Some(claims), Some(original)) = (&shared.claims, pending.original.take()) else {
        return;
    };
    let uploads = entries.into_iter().filter_map(|entry| {
        let Some(Stage::Planned(ready)) = progress.stages.remove(&entry) else {
            return None;
        };
        Some(upload_one(claims, entry, ready, &original))
    });
    let uploads: Vec<_> = uploads.collect();
    let uploaded = join_all(uploads).await;
    let refused = progress
        .stages
        .iter()
        .filter_map(|(entry, stage)| match stage {
            Stage::Planned(ready) => Some((*entry, ready.stand_in.clone())),
            _ => None,
        });
    let mut chains: BTreeMap<usize, Vec<Bytes>> = refused.collect();
    let version = pending.head.api_version;
    let Original {
        frame, held, acks, ..
    } = original;
    let work = move || {
        let mut stages = BTreeMap::new();
        for (entry, ready, tickets) in uploaded {
            let stage = finished(*ready, tickets, acks, entry, &mut chains);
            stages.insert(entry, stage);
        }
        let made = rebuilt(&frame, version, &chains);
        drop((frame, held));
        (stages, made)
    };
    if let Some((stages, Some(frame))) = shared.off_turn(work).await {
        progress.stages.extend(stages);
        pending.frame = frame;
        pending.asked.forget_inspected();
        take_on(shared, pending);
    }
    // Else stand-ins are still in the frame, and nothing of it is forwarded.
}

/// The frame in hand is another one: its size, and the memory for it.
fn take_on(shared: &Shared, pending: &mut Pending) {
    let bytes = pending.frame.len().saturating_sub(PREFIX_BYTES);
    pending.head.request_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    pending.lease = shared.budget.charge(pending.frame.len());
}

/// What a client waits for, or less.
fn deadline(arrived: Instant, timeout_ms: i32) -> Instant {
    let timeout = u64::try_from(timeout_ms).ok().filter(|millis| *millis > 0);
    let patience = timeout.map_or(LONGEST, Duration::from_millis).min(LONGEST);
    arrived.checked_add(patience).unwrap_or(arrived)
}

fn place(shared: &Shared) -> Option<(&Claims, Arc<Namespace>)> {
    let claims = shared.claims.as_ref()?;
    Some((claims, claims.namespace(&shared.cluster)?))
}

fn on_failure(wanted: &ToOffload) -> StoreFailure {
    let offload = wanted.topic.policy.offload.as_ref();
    offload.map_or(StoreFailure::Refuse, |offload| offload.on_store_failure)
}

type Plans = (BTreeMap<usize, Stage>, Option<Bytes>, Arc<Held>);

/// Takes memory, then plans. The frame's lease is the result's, or again the request's.
async fn planned(
    shared: &Shared,
    claims: &Claims,
    namespace: Arc<Namespace>,
    pending: &mut Pending,
    wanted: Vec<ToOffload>,
    deadline: Instant,
) -> Result<Plans, Failure> {
    // A batch, its objects and the frames that are made of it.
    let most_bytes = claims.lane_bytes() / 2;
    let frame = pending.frame.clone();
    let lease = std::mem::take(&mut pending.lease);
    let ranges: Vec<Range<usize>> = wanted.iter().map(|wanted| wanted.records.clone()).collect();
    let sized = shared.off_turn(move || {
        let bytes = made_bytes(&frame, &ranges, most_bytes);
        drop(frame);
        (bytes, lease)
    });
    let Some((bytes, lease)) = sized.await else {
        pending.lease = shared.budget.charge(pending.frame.len());
        return Err(stopped());
    };
    let Some(room) = claims.room(bytes, deadline).await else {
        pending.lease = lease;
        return Err(Failure::new(
            Class::Transient,
            "NoMemory",
            "no memory for it came back in time",
        ));
    };
    let held = Arc::new(Held {
        _frame: lease,
        _room: room,
    });
    let (frame, version) = (pending.frame.clone(), pending.head.api_version);
    let theirs = Arc::clone(&held);
    let work = move || {
        let mut stages = BTreeMap::new();
        let mut chains = BTreeMap::new();
        let mut decoders = Decoders::new();
        for wanted in wanted {
            let entry = wanted.partition_entry;
            let stage = plan_one(&frame, wanted, &namespace, most_bytes, &mut decoders);
            if let Stage::Planned(ready) = &stage {
                chains.insert(entry, ready.stand_in.clone());
            }
            stages.insert(entry, stage);
        }
        let is_any = !chains.is_empty();
        let made = is_any.then(|| rebuilt(&frame, version, &chains)).flatten();
        drop((frame, theirs));
        (stages, made)
    };
    let Some((stages, made)) = shared.off_turn(work).await else {
        pending.lease = shared.budget.charge(pending.frame.len());
        return Err(stopped());
    };
    Ok((stages, made, held))
}

/// Bytes that are made of these batches: each uncompressed, compressed again as objects, and the frames.
fn made_bytes(frame: &[u8], batches: &[Range<usize>], most_bytes: u64) -> u64 {
    let mut decoders = Decoders::new();
    let frames = frame.len() as u64;
    batches.iter().fold(frames, |sum, range| {
        let batch = frame.get(range.clone()).unwrap_or_default();
        let made = OpenBatch::made_bytes(batch, most_bytes, &mut decoders).unwrap_or(0);
        sum.saturating_add(made.saturating_mul(2))
    })
}

pub(in crate::proxy) fn plan_one(
    frame: &Bytes,
    wanted: ToOffload,
    namespace: &Arc<Namespace>,
    most_bytes: u64,
    decoders: &mut Decoders,
) -> Stage {
    let ToOffload {
        records,
        topic,
        fit,
        ..
    } = wanted;
    let (Some(offloading), Some(batch)) = (&topic.policy.offload, frame.get(records)) else {
        return Stage::Left;
    };
    // Without compression nothing is made: its records are the frame's own bytes.
    let is_plain = BatchHeader::read(batch).is_ok_and(|header| header.codec() == Some(Codec::None));
    let most_bytes = if is_plain { u64::MAX } else { most_bytes };
    let Ok(batch) = OpenBatch::open(&frame.slice_ref(batch), most_bytes, decoders) else {
        return Stage::Left;
    };
    let issuer = Arc::new(Issuer {
        topic: Arc::clone(&topic.name),
        namespace: Arc::clone(namespace),
        keys: Arc::clone(&offloading.claims.keys),
        layout: offloading.claims.layout,
    });
    let plan = match plan_offload(&batch, offloading.above_bytes, &fit, &issuer) {
        Planned::Nothing => return Stage::Left,
        Planned::Forged { record, why } => return Stage::Forged(record, why),
        Planned::Offload(plan) => plan,
    };
    match offload(&batch, &plan, &plan.stand_ins(&issuer)) {
        Ok(stand_in) => Stage::Planned(Box::new(Ready {
            topic,
            batch,
            plan,
            issuer,
            stand_in,
        })),
        Err(_) => Stage::Left,
    }
}

type Tickets = Result<Issued, Failure>;

/// The tickets of a batch, and how many of their objects were not there before.
#[derive(Default)]
struct Issued {
    tickets: Vec<SignedTicket>,
    created: u64,
}

/// Begins all uploads of a batch at once, when it is called, and waits for them until the deadline.
fn upload_one(
    claims: &Claims,
    entry: usize,
    ready: Box<Ready>,
    original: &Original,
) -> impl Future<Output = (usize, Box<Ready>, Tickets)> + use<> {
    let renew_after = ready
        .topic
        .policy
        .offload
        .as_ref()
        .map_or(Duration::ZERO, |offload| offload.claims.renew_after);
    let begun: Vec<_> = ready
        .plan
        .claims
        .iter()
        .map(|claim| {
            claims.handle().upload(Upload {
                issuer: Arc::clone(&ready.issuer),
                value: ready.batch.records().slice(claim.value.clone()),
                content_type: claim.content_type.clone(),
                form: ready.plan.form,
                renew_after,
                lease: Box::new(Arc::clone(&original.held)),
            })
        })
        .collect();
    let deadline = original.deadline;
    async move {
        let all = tokio::time::timeout_at(deadline.into(), join_all(begun)).await;
        let tickets = match all {
            Err(_) => Err(Failure::new(
                Class::Transient,
                "Timeout",
                "the store did not take it in the time that the client waits",
            )),
            Ok(all) => all
                .into_iter()
                .try_fold(Issued::default(), |mut issued, uploaded| {
                    let Uploaded { ticket, put, .. } = uploaded.map_err(|_| stopped())??;
                    issued.tickets.push(ticket);
                    issued.created.increase_by(u64::from(put == Put::Created));
                    Ok(issued)
                }),
        };
        (entry, ready, tickets)
    }
}

/// What goes into the frame for a batch whose uploads are over.
fn finished(
    ready: Ready,
    tickets: Tickets,
    acks: i16,
    entry: usize,
    chains: &mut BTreeMap<usize, Vec<Bytes>>,
) -> Stage {
    let Ready {
        topic,
        batch,
        plan,
        stand_in,
        ..
    } = ready;
    let rewritten = tickets.and_then(|issued| {
        offload(&batch, &plan, &issued.tickets)
            .map(|chain| (chain, issued.created))
            .map_err(|error| Failure::new(Class::Config, "Rewrite", error))
    });
    match rewritten {
        Ok((chain, created)) => {
            chains.insert(entry, chain);
            Stage::Done {
                records: plan.claims.len() as u64,
                bytes: plan.value_bytes(),
                created,
            }
        }
        Err(failure) => {
            let on_failure = topic
                .policy
                .offload
                .as_ref()
                .map_or(StoreFailure::Refuse, |offload| offload.on_store_failure);
            let stage = Stage::failed(failure, on_failure, acks);
            // Inline: as it came, which is what is there where nothing else is put in.
            if !matches!(stage, Stage::Inline(_)) {
                chains.insert(entry, stand_in);
            }
            stage
        }
    }
}

/// The request with other records for these entries, in one piece.
pub(in crate::proxy) fn rebuilt(
    frame: &Bytes,
    version: i16,
    chains: &BTreeMap<usize, Vec<Bytes>>,
) -> Option<Bytes> {
    let mut layout = Layout::default();
    layout.read(frame, version).ok()?;
    let all = layout.topics.iter().enumerate();
    let all: Vec<(usize, Vec<usize>)> = all
        .map(|(at, topic)| (at, topic.partitions.clone().collect()))
        .collect();
    let pieces = layout.splice_with(&all, |entry| chains.get(&entry).map(Vec::as_slice));
    let mut made = BytesMut::new();
    for piece in &pieces {
        made.extend_from_slice(match piece {
            Piece::Original(range) => frame.get(range.clone())?,
            Piece::Made(bytes) => bytes,
        });
    }
    Some(made.freeze())
}

fn stopped() -> Failure {
    Failure::stopped("the process ends")
}
