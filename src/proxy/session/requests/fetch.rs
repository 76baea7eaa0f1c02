//! Fetch, where tickets are redeemed: held, heard, and asked for less. ShareFetch: refused for such topics, because what
//! is missing from a share group's response counts as acknowledged (KIP-932).

use bytes::BytesMut;

use super::{Close, Pending, Session};
use crate::cluster::TopicName;
use crate::error_code::{FETCH_SESSION_ID_NOT_FOUND, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID};
use crate::proxy::claim_fetches::Heard;
use crate::proxy::in_flight::Response;
use crate::proxy::topics::Resolved;
use crate::wire::api::{self, FrameHead};
use crate::wire::fetch_request::Layout;
use crate::wire::fetch_response::error_response;
use crate::wire::produce::TopicKey;
use crate::wire::share_fetch::{Refusal, TopicEntry, refusing, topics};
use crate::wire::{Malformed, Reason, fetch};

const NO_SHARE_GROUPS: &str = "sizegate: large values of this topic lie in an object store, and share groups cannot be \
                               given them back: read it with a consumer group";

impl Session {
    /// The request may ask for tickets that are redeemed.
    pub(super) fn redeems(&self, head: &FrameHead) -> bool {
        matches!(head.api_key, api::FETCH | api::SHARE_FETCH)
            && self.shared.claims.is_some()
            && self.shared.policy.load().redeems()
    }

    /// A whole Fetch request.
    pub(super) fn on_fetch(&mut self, pending: Pending) {
        let Pending {
            head, frame, lease, ..
        } = pending;
        let version = head.api_version;
        self.who.learn_client_id(api::frame_client_id(&frame));
        if fetch::VERSIONS.contains(&version) {
            let fetches = self.fetches.get_or_insert_default();
            fetches.begin_request(version, frame.len());
            fetches.read_request(&frame, &self.shared, &mut self.who);
            fetches.end_request();
        }
        let mut frame = BytesMut::from(frame);
        let heard = match self.hear(&mut frame, version) {
            Ok(heard) => heard,
            Err(malformed) => return self.end(Close::MalformedRequest(malformed)),
        };
        let response = match heard {
            Heard::Forwarded => Response::Forwarded,
            Heard::Asks(asked) => Response::Fetch(asked),
            Heard::Unheard => {
                let made = error_response(version, head.correlation_id, FETCH_SESSION_ID_NOT_FOUND);
                return self.expect(&head, Response::Made(made.into()));
            }
            Heard::TooOld => {
                let malformed = Malformed::new("api_version", Reason::UnsupportedVersion);
                return self.end(Close::MalformedRequest(malformed));
            }
        };
        self.expect(&head, response);
        self.to_upstream.push(frame.freeze());
        self.to_upstream.hold(lease);
    }

    fn hear(&mut self, frame: &mut [u8], version: i16) -> Result<Heard, Malformed> {
        let layout = Layout::read(frame, version)?;
        // A follower replicates what is stored.
        if layout.replica_id >= 0 {
            return Ok(Heard::Forwarded);
        }
        let policy = self.shared.policy.load();
        let topics = &mut self.judge.topics;
        topics.follow(&policy, &self.who);
        let claims = self.claim_fetches.get_or_insert_default();
        claims.hear(&layout, frame, version, &self.shared, topics)
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
                let shared = std::sync::Arc::clone(&self.shared);
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
