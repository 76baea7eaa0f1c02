//! Waits for values, and for the fallback topic where a value is lost: until all is known, or long enough.

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use super::choose::{Chosen, Outcome, State, Ticket};
use super::scan::{Batch, Judged};
use super::{Job, Times};
use crate::batch::{Headers, RecordParts};
use crate::claim::{Class, Failure, OpenBatch, Waiting, Wanted, fallen};
use crate::config::Unredeemed;
use crate::proxy::Shared;
use crate::proxy::claim_fetches::ClaimTopic;
use crate::proxy::fallback::{FallbackRecord, LostAt};

/// Which ticket of which partition.
type Which = (usize, usize);

/// Settles what can be settled in time.
pub(super) async fn settle(job: &Job, chosen: &mut [Chosen], times: &Times) {
    let mut waiting: FuturesUnordered<_> = chosen
        .iter()
        .enumerate()
        .flat_map(|(part, of)| {
            let tickets = of.tickets.iter().enumerate();
            tickets.filter_map(move |(at, ticket)| one(job, of, ticket, (part, at)))
        })
        .collect();
    let others = others(job, chosen);
    let mut until = times.usual;
    while !waiting.is_empty() {
        match tokio::time::timeout_at(until, waiting.next()).await {
            Ok(Some((which, outcome))) => put(chosen, which, outcome),
            Ok(None) => break,
            Err(_) if until == times.longest => break,
            Err(_) => until = times.longest,
        }
        let is_late = until > times.usual;
        if is_late && (others || goes_out(chosen) || chosen.iter().all(is_failing)) {
            break;
        }
    }
    drop(waiting);
    if !others && !goes_out(chosen) {
        // A client that gets nothing asks again at once.
        tokio::time::sleep_until(times.held).await;
    }
}

/// Partitions go out that have nothing to do with tickets.
fn others(job: &Job, chosen: &[Chosen]) -> bool {
    let redeemed: HashSet<usize> = chosen.iter().map(|of| of.of.entry).collect();
    let mut partitions = job.layout.partitions.iter().enumerate();
    partitions.any(|(entry, partition)| {
        let has_records = partition
            .records
            .as_ref()
            .is_some_and(|all| !all.is_empty());
        has_records && !redeemed.contains(&entry)
    })
}

/// What the partition waits for was tried in vain.
fn is_failing(of: &Chosen) -> bool {
    let waits = |ticket: &&Ticket| match &ticket.state {
        State::Waits(waiting) => waiting.failing().is_none(),
        State::Falls => true,
        State::Unclear(_) | State::Settled(_) => false,
    };
    !of.tickets.iter().any(|ticket| waits(&ticket))
}

fn put(chosen: &mut [Chosen], (part, at): Which, outcome: Outcome) {
    let ticket = chosen.get_mut(part).and_then(|of| of.tickets.get_mut(at));
    if let Some(ticket) = ticket {
        ticket.state = State::Settled(outcome);
    }
}

/// Some partition has something for its consumer.
fn goes_out(chosen: &[Chosen]) -> bool {
    chosen.iter().any(super::build::goes_out)
}

fn one(
    job: &Job,
    of: &Chosen,
    ticket: &Ticket,
    which: Which,
) -> Option<impl Future<Output = (Which, Outcome)> + use<>> {
    let waiting = match &ticket.state {
        State::Waits(waiting) => Some(waiting.clone()),
        State::Falls => None,
        State::Unclear(_) | State::Settled(_) => return None,
    };
    let topic = Arc::clone(of.of.topic.as_ref()?);
    let Batch::Open(batch) = of.of.batches.get(ticket.batch)? else {
        return None;
    };
    let wanted = batch
        .tickets
        .iter()
        .find_map(|(record, judged)| match judged {
            Judged::Sound(wanted) if *record == ticket.record => Some(wanted.clone()),
            _ => None,
        })?;
    let lost = Lost {
        shared: Arc::clone(&job.shared),
        topic,
        wanted,
        // Shares the records.
        batch: batch.batch.clone(),
        record: ticket.record,
        at: ticket.at.clone(),
    };
    Some(async move {
        let outcome = match waiting {
            Some(waiting) => lost.settle(waiting).await,
            None => lost.falls().await,
        };
        (which, outcome)
    })
}

/// A record that may turn out to be lost.
struct Lost {
    shared: Arc<Shared>,
    topic: Arc<ClaimTopic>,
    wanted: Wanted,
    batch: OpenBatch,
    record: u32,
    at: LostAt,
}

impl Lost {
    /// It is on its way; where it has come to an end meanwhile, the next response knows which.
    async fn falls(self) -> Outcome {
        let claims = self.shared.claims.as_ref();
        let under_way = claims.and_then(|claims| claims.fallbacks().under_way(&self.at));
        match under_way {
            Some(under_way) => under_way.await,
            None if claims.is_some_and(|claims| claims.fallbacks().is_written(&self.at)) => {}
            None => std::future::pending().await,
        }
        Outcome::Fallen
    }

    async fn settle(self, mut waiting: Waiting) -> Outcome {
        let failure = match waiting.outcome().await {
            Ok(value) => return Outcome::Original(value),
            Err(failure) => failure,
        };
        let rules = &self.topic.rules;
        let then = match failure.class {
            Class::Missing => rules.on_missing,
            Class::Corrupt => rules.on_corrupt,
            Class::Transient | Class::Config => Unredeemed::Hold,
        };
        match then {
            Unredeemed::Hold => Outcome::Held(failure),
            Unredeemed::Pass => Outcome::Explained(failure),
            Unredeemed::Fallback => match self.why_held(&failure).await {
                Some(held) => Outcome::Held(held),
                None => {
                    self.fall_back(&failure).await;
                    Outcome::Fallen
                }
            },
        }
    }

    /// Why the record must not be left out whatever the rule says: its topic is compacted, or nobody tells whether it is.
    async fn why_held(&self, failure: &Failure) -> Option<Failure> {
        let claims = self.shared.claims.as_ref()?;
        let compacted = &claims.fallbacks().compacted;
        match compacted.is(&self.shared.cluster, &self.at.topic).await {
            Ok(false) => None,
            Ok(true) => Some(Failure::new(
                failure.class,
                "CompactedTopic",
                format_args!(
                    "the topic is compacted, and leaving a record out would change what its key means; choose hold or pass ({failure})"
                ),
            )),
            Err(why) => Some(Failure::new(
                failure.class,
                "CompactedUnknown",
                format_args!("whether the topic is compacted is not known yet: {why} ({failure})"),
            )),
        }
    }

    async fn fall_back(&self, failure: &Failure) {
        let Some(claims) = &self.shared.claims else {
            return std::future::pending().await;
        };
        let fallbacks = claims.fallbacks();
        // Another record may bear the same ticket.
        claims.handle().values().forget_lost(&self.wanted);
        let is_new = !fallbacks.is_written(&self.at);
        let make = || self.record(failure);
        fallbacks
            .write(&self.at, &self.topic.counts, failure.class.label(), make)
            .await;
        if is_new {
            self.shared.redeem_log.log_fallback(
                (&self.at.topic, self.at.partition, self.at.offset),
                failure.told(),
            );
        }
    }

    /// Key, ticket and headers as they are, and why they are there.
    fn record(&self, failure: &Failure) -> FallbackRecord {
        let records = self.batch.records();
        let found = self
            .batch
            .parts()
            .find(|(record, _)| *record == self.record);
        let (key, value, mut headers) = match found {
            Some((_, parts)) => (
                parts.key.clone().map(|range| copied(records, range)),
                parts.value.clone().map(|range| copied(records, range)),
                headers(records, &parts),
            ),
            None => (None, None, Vec::new()),
        };
        let id = Some(self.at.topic_id).filter(|id| !id.is_nil());
        let ours = [
            (fallen::ERROR, Some(failure.class.label().to_owned())),
            (fallen::ERROR_MESSAGE, Some(failure.to_string())),
            (fallen::ORIGINAL_TOPIC, Some(self.at.topic.to_string())),
            (fallen::ORIGINAL_TOPIC_ID, id.map(|id| id.to_string())),
            (
                fallen::ORIGINAL_PARTITION,
                Some(self.at.partition.to_string()),
            ),
            (fallen::ORIGINAL_OFFSET, Some(self.at.offset.to_string())),
        ];
        let ours = ours
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        let ours = ours.map(|(name, value)| (name.to_owned(), Some(Bytes::from(value))));
        headers.extend(ours);
        FallbackRecord {
            topic: self.topic.rules.fallback_topic(&self.at.topic).into(),
            key,
            value: value.unwrap_or_default(),
            headers,
        }
    }
}

fn copied(records: &Bytes, range: std::ops::Range<usize>) -> Bytes {
    Bytes::copy_from_slice(records.get(range).unwrap_or_default())
}

fn headers(records: &Bytes, parts: &RecordParts) -> Vec<(String, Option<Bytes>)> {
    let all = Headers::of(parts, records);
    let own = |range: &std::ops::Range<usize>| Bytes::copy_from_slice(all.bytes(range));
    let header =
        |name: &std::ops::Range<usize>| String::from_utf8_lossy(all.bytes(name)).into_owned();
    all.clone()
        .map(|of| (header(&of.name), of.value.as_ref().map(own)))
        .collect()
}
