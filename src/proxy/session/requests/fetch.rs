//! Fetch, where tickets are redeemed: held, heard, and asked for less.

use bytes::BytesMut;

use super::{Close, Pending, Session};
use crate::error_code::FETCH_SESSION_ID_NOT_FOUND;
use crate::proxy::claim_fetches::Heard;
use crate::proxy::in_flight::Response;
use crate::wire::api::{self, FrameHead};
use crate::wire::fetch_request::Layout;
use crate::wire::fetch_response::error_response;
use crate::wire::{Malformed, Reason, fetch};

impl Session {
    /// The request may ask for tickets that are redeemed.
    pub(super) fn redeems(&self, head: &FrameHead) -> bool {
        head.api_key == api::FETCH
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
}
