//! Fetch requests that are here in one piece. Where tickets are redeemed each is held and heard, and one that asks for such
//! is asked for less. ShareFetch: refused for such topics, because what is missing from a share group's response counts
//! as acknowledged (KIP-932).

use std::sync::Arc;

use arc_swap::Guard;
use bytes::{Bytes, BytesMut};

use super::passing::Foreseen;
use super::{Close, Pending, Session};
use crate::cluster::TopicName;
use crate::error_code::{FETCH_SESSION_ID_NOT_FOUND, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID};
use crate::policy::Policy;
use crate::proxy::claim_fetches::Heard;
use crate::proxy::in_flight::Response;
use crate::proxy::topics::Resolved;
use crate::wire::api::{self, FrameHead};
use crate::wire::fetch_request::Layout;
use crate::wire::fetch_response::error_response;
use crate::wire::produce::TopicKey;
use crate::wire::share_fetch::{Refusal, TopicEntry, refusing, topics};
use crate::wire::{Malformed, fetch};

const NO_SHARE_GROUPS: &str = "sizegate: large values of this topic lie in an object store, and share groups cannot be \
                               given them back: read it with a consumer group";

impl Session {
    /// Requests may ask for tickets that are redeemed.
    pub(super) fn redeems(&self) -> bool {
        self.redeeming().is_some()
    }

    /// The rules in force, if they redeem anything.
    fn redeeming(&self) -> Option<Guard<Arc<Policy>>> {
        self.shared.claims.as_ref()?;
        Some(self.shared.policy.load()).filter(|policy| policy.redeems())
    }

    /// A Fetch request is at the front of `rest`, all of it. `false`: it is not understood, and as nothing is redeemed it
    /// may pass.
    pub(super) fn on_fetch(&mut self, head: &FrameHead) -> bool {
        let frame = self.requests.rest.get(..head.frame_bytes());
        let read = Layout::read(frame.unwrap_or_default(), head.api_version);
        let policy = self.redeeming();
        if read.is_err() && policy.is_none() {
            return false;
        }
        let half = self.requests.half.take();
        self.requests.foreseen = Foreseen::Nothing;
        let mut frame = self.requests.rest.split_to(head.frame_bytes()).freeze();
        let heard = read.and_then(|layout| self.hear(&layout, &mut frame, head, policy.as_deref()));
        let response = match heard {
            Ok(Heard::Forwarded) => Response::Forwarded,
            Ok(Heard::Asks(asked)) => Response::Fetch(asked),
            Ok(Heard::Unheard) => {
                let (version, id) = (head.api_version, head.correlation_id);
                let made = error_response(version, id, FETCH_SESSION_ID_NOT_FOUND);
                self.expect(head, Response::Made(made.into()));
                return true;
            }
            Err(malformed) => {
                self.end(Close::MalformedRequest(malformed));
                return true;
            }
        };
        self.expect(head, response);
        self.to_upstream.push(frame);
        if let Some(half) = half {
            self.to_upstream.hold(half.lease);
        }
        true
    }

    /// By the policy, if it redeems anything, what is asked of such topics is lowered in `frame`; any other goes as it
    /// came.
    fn hear(
        &mut self,
        layout: &Layout,
        frame: &mut Bytes,
        head: &FrameHead,
        policy: Option<&Arc<Policy>>,
    ) -> Result<Heard, Malformed> {
        let version = head.api_version;
        self.who.learn_client_id(api::frame_client_id(frame));
        if fetch::VERSIONS.contains(&version) {
            let fetches = self.fetches.get_or_insert_default();
            fetches.hear(frame, layout);
        }
        // A follower replicates what is stored.
        let Some(policy) = policy.filter(|_| layout.replica_id < 0) else {
            return Ok(Heard::Forwarded);
        };
        let topics = &mut self.judge.topics;
        topics.follow(policy, &self.who);
        let claims = self.claim_fetches.get_or_insert_default();
        let heard = claims.hear(layout, frame, version, &self.shared, topics)?;
        if let Heard::Asks(asked) = &heard {
            let mut lowered = BytesMut::from(&frame[..]);
            asked.lower(layout, &mut lowered);
            *frame = lowered.freeze();
        }
        Ok(heard)
    }

    /// A whole ShareFetch request.
    pub(super) fn on_share_fetch(&mut self, pending: Pending) {
        let Pending {
            head, frame, lease, ..
        } = pending;
        let asked = match topics(&frame, head.api_version) {
            Ok(asked) => asked,
            Err(malformed) => return self.end(Close::MalformedRequest(malformed)),
        };
        let policy = self.shared.policy.load();
        self.judge.topics.follow(&policy, &self.who);
        let refused: Vec<(&TopicEntry, Refusal<'_>)> = asked
            .iter()
            .filter_map(|topic| Some((topic, self.share_refusal(topic)?)))
            .collect();
        if refused.is_empty() {
            self.expect(&head, Response::Forwarded);
            self.to_upstream.push(frame);
            self.to_upstream.hold(lease);
            return;
        }
        let made = refusing(head.correlation_id, refused.into_iter());
        self.expect(&head, Response::Made(made.into()));
    }

    fn share_refusal(&mut self, topic: &TopicEntry) -> Option<Refusal<'static>> {
        match self
            .judge
            .topics
            .resolve(&self.shared, TopicKey::Id(topic.id))
        {
            Resolved::Topic(handle) => handle.policy.redeem.is_some().then_some(Refusal {
                error_code: TOPIC_AUTHORIZATION_FAILED,
                text: NO_SHARE_GROUPS,
            }),
            Resolved::Impossible => None,
            Resolved::UnknownId(id) => {
                // It is known by the time the client asks again.
                let shared = Arc::clone(&self.shared);
                let claims = self.shared.claims.as_ref()?;
                claims.handle().spawn(async move {
                    let _ = shared.cluster.find_topic_at(TopicName::Id(id), None).await;
                });
                Some(Refusal {
                    error_code: UNKNOWN_TOPIC_ID,
                    text: "sizegate: which topic has this id is not known yet",
                })
            }
        }
    }
}
