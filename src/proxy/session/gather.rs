//! What comes before a verdict, in the background of one session: the cluster is asked, batches are decoded, values go
//! to the store.
//!
//! Invariant: whoever asks or works owns the request meanwhile, and gives it back with what was found. Nothing here waits
//! for the budget, or for another request.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;

use super::requests::Pending;
use super::{Session, offload};
use crate::cluster::{Lookup, TopicName};
use crate::policy::Learned;
use crate::proxy::Shared;
use crate::proxy::budget::Lease;
use crate::proxy::verdict::{
    CURRENT, Confirmed, Gathered, Inspected, LongDecode, Question, Step, ToConfirm, Work,
    inspect_long,
};

/// How long the control plane is waited for before a verdict: one question, and a little of another.
const ASK: Duration = Duration::from_secs(8);

/// A step on its way.
pub(super) type Gathering = Pin<Box<dyn Future<Output = Pending> + Send>>;

impl Session {
    /// Takes the next step of a request.
    pub(super) fn gather(&self, step: Step, mut pending: Pending) -> Gathering {
        let shared = Arc::clone(&self.shared);
        let node_id = self.node_id();
        Box::pin(async move {
            match step {
                Step::Ask(question) => ask(&shared, node_id, question, &mut pending.asked).await,
                Step::Do(work) => work_on(&shared, work, &mut pending).await,
                Step::Done => {}
            }
            pending
        })
    }
}

async fn ask(shared: &Shared, node_id: Option<i32>, question: Question, asked: &mut Gathered) {
    match question {
        Question::Ids(ids) => {
            asked.ids = true;
            let lookups = ids
                .into_iter()
                .map(|id| shared.cluster.find_topic_at(TopicName::Id(id), node_id));
            let _ = tokio::time::timeout(ASK, join_all(lookups)).await;
        }
        Question::Names(names) => {
            asked.names = true;
            let lookups = names.iter().map(|name| first_look(shared, name, node_id));
            let _ = tokio::time::timeout(ASK, join_all(lookups)).await;
        }
        Question::Topics(to_confirm) => {
            asked.limits = true;
            let confirming = join_all(
                to_confirm
                    .iter()
                    .map(|topic_to_confirm| confirm(shared, topic_to_confirm, node_id)),
            );
            let confirmed = tokio::time::timeout(ASK, confirming)
                .await
                .unwrap_or_else(|_| vec![Confirmed::Unseen; to_confirm.len()]);
            for (topic_to_confirm, confirmed) in to_confirm.into_iter().zip(confirmed) {
                asked.confirm(topic_to_confirm.topic, confirmed);
            }
        }
        Question::FrameLimit => {
            asked.frame = true;
            asked.frame_limit = shared.cluster.read_frame_limit(node_id).await;
        }
    }
}

async fn work_on(shared: &Shared, work: Work, pending: &mut Pending) {
    match work {
        Work::Decode(decodes) => {
            let (frame, lease) = (pending.frame.clone(), std::mem::take(&mut pending.lease));
            let (inspected, lease) = decode(shared, frame, decodes, lease).await;
            pending.asked.inspect(inspected);
            pending.lease = lease;
        }
        Work::Plan(to_offload) => offload::plan(shared, pending, to_offload).await,
        Work::Upload(entries) => offload::upload(shared, pending, entries).await,
    }
}

/// Decodes away from this thread; nobody can stop it, so it owns its frame's memory too ([`Shared::off_turn`]).
async fn decode(
    shared: &Shared,
    frame: Bytes,
    decodes: Vec<LongDecode>,
    lease: Lease,
) -> (Inspected, Lease) {
    let decoding = shared.off_turn(move || (inspect_long(&frame, &decodes), lease));
    decoding.await.unwrap_or_default()
}

/// Finds a topic, and reads its limits if they, or what topics inherit from this broker, were never read.
async fn first_look(shared: &Shared, name: &str, node_id: Option<i32>) {
    let found = shared.cluster.find_topic_at(TopicName::Name(name), node_id);
    let Lookup::Found(topic) = found.await else {
        return;
    };
    let node = node_id.and_then(|id| shared.cluster.node(id));
    if topic.limits_age().is_none() || node.is_some_and(|node| !node.is_read()) {
        // Without it, what was read from another broker is the best there is.
        let _ = shared.cluster.read_limits(&topic, node_id, CURRENT).await;
    }
}

/// Makes sure of a topic and of its limits as `node_id` applies them now. Where its partition is in doubt the broker
/// itself is asked: another one may be behind it.
pub(in crate::proxy) async fn confirm(
    shared: &Shared,
    topic_to_confirm: &ToConfirm,
    node_id: Option<i32>,
) -> Confirmed {
    let cluster = &shared.cluster;
    let name = TopicName::Name(&topic_to_confirm.topic);
    let found = if topic_to_confirm.is_place_in_doubt {
        let named = topic_to_confirm.id.map_or(name, TopicName::Id);
        cluster.look_again(named, node_id, CURRENT).await
    } else {
        cluster.find_topic_at(name, node_id).await
    };
    let topic = match found {
        Lookup::Found(topic) => topic,
        Lookup::Absent => return Confirmed::Absent,
        Lookup::Hidden | Lookup::Unreachable => return Confirmed::Unseen,
    };
    match cluster.read_limits(&topic, node_id, CURRENT).await {
        Ok(limits) => Confirmed::Here(limits.batch_limit().map(Learned::own)),
        Err(_) => Confirmed::Here(None),
    }
}
