//! Learns who the client is from a SASL exchange that passes by unchanged.
//!
//! Invariant: a name is believed only when the broker's own response to that very exchange says so. Each response is
//! matched with the name that was claimed when its request was read, so that pipelining proves nobody else.

use std::sync::Arc;

use bytes::Bytes;

use super::Session;
use crate::proxy::in_flight::{Claim, Response};
use crate::wire::api::{self, FrameHead};
use crate::wire::sasl::{self, Mechanism};

/// The exchange in hand.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    mechanism: Option<Mechanism>,
    /// The name in its first message; `Some(None)` where that shows none.
    claimed: Option<Option<Arc<str>>>,
}

impl Session {
    /// A whole SaslHandshake (version 1) or SaslAuthenticate request: noted, and forwarded as it came.
    pub(super) fn on_sasl(&mut self, head: FrameHead, frame: Bytes) {
        let noted = match head.api_key {
            api::SASL_HANDSHAKE => sasl::mechanism(&frame).map(|mechanism| {
                self.exchange = Exchange {
                    mechanism: Some(mechanism),
                    claimed: None,
                };
                None
            }),
            _ => self.claim(&head, &frame),
        };
        let response = match noted {
            Ok(Some(claim)) => Response::Authenticate(claim),
            Ok(None) => Response::Forwarded,
            // The broker answers an unreadable request itself, or closes.
            Err(malformed) => {
                tracing::debug!(client = %self.who.address, %malformed, "SASL request not understood");
                Response::Forwarded
            }
        };
        self.expect(&head, response);
        self.to_upstream.push(frame);
    }

    fn claim(
        &mut self,
        head: &FrameHead,
        frame: &[u8],
    ) -> Result<Option<Claim>, crate::wire::Malformed> {
        let Some(mechanism) = self.exchange.mechanism else {
            return Ok(None);
        };
        let name = match &self.exchange.claimed {
            Some(name) => name.clone(),
            None => {
                let name = sasl::claimed_name(frame, head.api_version, mechanism)?.map(Arc::from);
                self.exchange.claimed.insert(name).clone()
            }
        };
        Ok(name.map(|name| Claim { mechanism, name }))
    }

    /// The broker's response to a claim.
    pub(super) fn on_authenticated(&mut self, frame: &[u8], version: i16, claim: Claim) {
        match sasl::is_authenticated(frame, version, claim.mechanism) {
            Ok(true) => self.who.learn_principal(claim.name),
            Ok(false) => {}
            Err(malformed) => {
                tracing::debug!(client = %self.who.address, %malformed, "SASL response not understood");
            }
        }
    }
}
