//! Redeems a Fetch response: the originals in the place of tickets, as much as fits and has come in time.
//!
//! What a response bears is found (`scan`), chosen within the client's limits and ours (`choose`), waited for
//! (`settle`), and put together (`build`). Invariants: memory for an original is taken before it is asked for, and is
//! not waited for but for the first record of a response; no response goes past a record that is neither delivered nor
//! acknowledged in the fallback topic; a response is late by [`LONGEST`] at most, and what did not come in time serves
//! the next.

mod build;
mod choose;
mod scan;
mod settle;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;
use uuid::Uuid;

pub(super) use self::scan::{Candidate, candidates};
use super::Shared;
use super::claim_fetches::{ClaimTopic, FetchAsked};
use crate::cluster::{Lookup, TopicName};
use crate::policy::{ClientRules, Policy};
use crate::wire::fetch_response::Layout;
use crate::wire::{Malformed, Reason};

/// The longest that a response waits for originals: well below what clients give a request, 10 s for the most impatient.
const LONGEST: Duration = Duration::from_secs(5);
/// After this, what is here goes out.
const USUAL: Duration = Duration::from_millis(500);
/// So long a response is kept that has nothing for its client: other partitions of that client wait with it.
const HELD: Duration = Duration::from_secs(1);
/// How long the control plane is waited for to tell which topic has an id.
const ASK: Duration = Duration::from_secs(3);

/// Something of ours failed: nothing of the response may go out.
const FAILED: Malformed = Malformed::new("records", Reason::InvalidValue);

/// A response to be redeemed.
pub(super) struct Job {
    /// What all sessions share.
    pub shared: Arc<Shared>,
    /// The response as it came.
    pub frame: Bytes,
    /// Where everything stands in it.
    pub layout: Layout,
    /// What was asked.
    pub asked: Box<FetchAsked>,
    /// Partitions that may bear tickets.
    pub candidates: Vec<Candidate>,
    /// The rules in force, and those for the client.
    pub rules: Option<(Arc<Policy>, ClientRules)>,
}

/// Until when a response waits.
struct Times {
    /// For all of its originals.
    usual: Instant,
    /// Where it has nothing for its client.
    held: Instant,
    /// For the first.
    longest: Instant,
}

/// The response as it goes out.
///
/// # Errors
/// The broker's bytes are not the protocol.
pub(super) async fn redeem(mut job: Job) -> Result<Vec<Bytes>, Malformed> {
    let began = Instant::now();
    let after = |time| began.checked_add(time).unwrap_or(began);
    let times = Times {
        usual: after(USUAL),
        held: after(HELD),
        longest: after(LONGEST),
    };
    name_topics(&mut job).await;
    let opened = scan::open(&mut job, times.longest).await.ok_or(FAILED)?;
    let mut chosen = choose::choose(&job, opened);
    settle::settle(&job, &mut chosen, &times).await;
    build::build(job, chosen).await
}

/// Finds out which topics have the ids that nobody knew. What still has no name is looked through all the same: a
/// ticket on it is held back.
async fn name_topics(job: &mut Job) {
    let unknown = job.candidates.iter().filter(|of| of.topic.is_none());
    let mut ids: Vec<[u8; 16]> = unknown.filter_map(|of| of.id).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return;
    }
    let lookups = ids.iter().map(|id| {
        let name = TopicName::Id(Uuid::from_bytes(*id));
        job.shared.cluster.find_topic_at(name, None)
    });
    let Ok(found) = tokio::time::timeout(ASK, join_all(lookups)).await else {
        return;
    };
    for (id, found) in ids.into_iter().zip(found) {
        let Lookup::Found(topic) = found else {
            continue;
        };
        let rules = job
            .rules
            .as_ref()
            .and_then(|(policy, client)| policy.for_client(&topic.name, client).redeem);
        let known = Some(Arc::clone(&topic));
        let named =
            rules.map(|rules| Arc::new(ClaimTopic::new(&topic.name, known, rules, &job.shared)));
        let is_other = |of: &Candidate| of.topic.is_some() || of.id != Some(id);
        match named {
            // Its tickets are not redeemed for this client.
            None => job.candidates.retain(is_other),
            Some(topic) => {
                let of_it = job.candidates.iter_mut().filter(|of| !is_other(of));
                of_it.for_each(|of| of.topic = Some(Arc::clone(&topic)));
            }
        }
    }
}
