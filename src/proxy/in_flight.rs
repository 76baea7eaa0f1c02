//! Lists the responses that a client waits for, in the order of its requests.
//!
//! A broker answers one connection's requests in order, so a response made here queues behind those in flight.
//! Invariant: exactly one entry per request that gets a response; a Produce with acks 0 gets none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::claim_fetches::FetchAsked;
use super::verdict::{Refused, SentBatches};
use crate::count::{Count as _, total};
use crate::wire::config_response::RefusedResource;
use crate::wire::sasl::Mechanism;
use crate::wire::{Malformed, Reason};

/// Requests in flight on one connection before its client is no longer read. A broker handles one at a time,
/// so more than a few help nobody; the bound keeps a flood of tiny requests from growing the list of requests in flight.
const MOST_IN_FLIGHT: usize = 4096;

/// What may be remembered of requests in flight before their client is no longer read.
const MOST_REMEMBERED_BYTES: usize = 4 * 1024 * 1024;

/// A response to come.
#[derive(Debug)]
pub(super) struct Expected {
    /// Of the request.
    pub correlation_id: i32,
    /// Of the request.
    pub api_key: i16,
    /// Of the request.
    pub api_version: i16,
    /// Of the request, its length prefix left out.
    pub request_bytes: u32,
    /// When the request's head arrived.
    pub since: Instant,
    /// How it is answered.
    pub response: Response,
}

/// How a request is answered.
#[derive(Debug)]
pub(super) enum Response {
    /// By the broker.
    Forwarded,
    /// By the broker, in a frame of which nothing is known: a SASL token without a Kafka header.
    Token,
    /// By the broker; refusals are merged into its response.
    Produce(Produced),
    /// By the broker; tickets in its response are redeemed.
    Fetch(Box<FetchAsked>),
    /// By the broker; refusals are put into its response.
    Configs(Vec<RefusedResource>),
    /// By the broker; if it says yes, the client is who it claims to be.
    Authenticate(Claim),
    /// Here, with these bytes.
    Made(Bytes),
}

/// Who a client says it is, in a SASL exchange.
#[derive(Debug)]
pub(super) struct Claim {
    /// How it proves that.
    pub mechanism: Mechanism,
    /// Its user name.
    pub name: Arc<str>,
}

/// What is remembered of a forwarded Produce.
#[derive(Debug, Default)]
pub(super) struct Produced {
    /// What was forwarded, to explain a refusal by the broker.
    pub sent: SentBatches,
    /// What was not.
    pub refused: Vec<Refused>,
}

impl Produced {
    /// About the memory it takes.
    fn remembered_bytes(&self) -> usize {
        let refused = self.refused.iter().map(Refused::remembered_bytes);
        total([self.sent.remembered_bytes(), refused.sum()])
    }
}

/// About the memory that refused topics and brokers take.
fn remembered_bytes(refused: &[RefusedResource]) -> usize {
    let bytes = |resource: &RefusedResource| {
        total([
            size_of::<RefusedResource>(),
            resource.name.len(),
            resource.message.len(),
        ])
    };
    refused.iter().map(bytes).sum()
}

/// The queue.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    expected: VecDeque<Expected>,
    made_bytes: usize,
    /// What is remembered of forwarded Produce requests.
    remembered_bytes: usize,
}

impl InFlight {
    /// No response is to come.
    pub(super) fn is_empty(&self) -> bool {
        self.expected.is_empty()
    }

    /// Responses to come.
    pub(super) fn len(&self) -> usize {
        self.expected.len()
    }

    /// The next response is a bare token, of which not even the length is bounded from below.
    pub(super) fn is_token_next(&self) -> bool {
        matches!(
            self.expected.front(),
            Some(Expected {
                response: Response::Token,
                ..
            })
        )
    }

    /// The request read last was cut off on its way: nobody will answer it.
    pub(super) fn abandon_last(&mut self) {
        self.expected.pop_back();
    }

    /// No more requests for now.
    pub(super) fn is_full(&self) -> bool {
        self.expected.len() >= MOST_IN_FLIGHT || self.remembered_bytes >= MOST_REMEMBERED_BYTES
    }

    /// The size of the request whose response is due, if that is a forwarded Produce: the broker handles one at a time.
    pub(super) fn unanswered_produce_bytes(&self) -> Option<u32> {
        let next = self.expected.front()?;
        matches!(next.response, Response::Produce(_)).then_some(next.request_bytes)
    }

    /// About the memory for all of it.
    pub(super) fn remembered_bytes(&self) -> usize {
        let entries = self.expected.len().saturating_mul(size_of::<Expected>());
        total([entries, self.remembered_bytes, self.made_bytes])
    }

    /// Bytes of responses made here that wait for their turn.
    pub(super) const fn made_bytes(&self) -> usize {
        self.made_bytes
    }

    /// A request was read.
    pub(super) fn expect(&mut self, expected: Expected) {
        match &expected.response {
            Response::Made(bytes) => self.made_bytes.increase_by(bytes.len()),
            Response::Produce(produced) => self
                .remembered_bytes
                .increase_by(produced.remembered_bytes()),
            Response::Configs(refused) => {
                self.remembered_bytes.increase_by(remembered_bytes(refused));
            }
            Response::Fetch(asked) => {
                self.remembered_bytes.increase_by(asked.remembered_bytes());
            }
            Response::Forwarded | Response::Token | Response::Authenticate(_) => {}
        }
        self.expected.push_back(expected);
    }

    /// The next response, if it was made here.
    pub(super) fn take_made(&mut self) -> Option<(Expected, Bytes)> {
        match self.expected.front()?.response {
            Response::Made(_) => {}
            _ => return None,
        }
        let mut next = self.expected.pop_front()?;
        self.shrink();
        match std::mem::replace(&mut next.response, Response::Forwarded) {
            Response::Made(bytes) => {
                self.made_bytes.decrease_by(bytes.len());
                Some((next, bytes))
            }
            _ => None,
        }
    }

    /// The entry that a broker's response with this correlation id belongs to: the next one, or none.
    pub(super) fn answered(&mut self, correlation_id: i32) -> Result<Expected, Malformed> {
        let next = self
            .expected
            .front()
            .ok_or(Malformed::new("correlation_id", Reason::UnexpectedResponse))?;
        match next.response {
            Response::Token => {}
            Response::Made(_) => {
                return Err(Malformed::new("correlation_id", Reason::UnexpectedResponse));
            }
            _ if next.correlation_id != correlation_id => {
                return Err(Malformed::new(
                    "correlation_id",
                    Reason::UnexpectedCorrelationId,
                ));
            }
            _ => {}
        }
        let answered = self.expected.pop_front();
        match answered.as_ref().map(|next| &next.response) {
            Some(Response::Produce(produced)) => {
                self.remembered_bytes
                    .decrease_by(produced.remembered_bytes());
            }
            Some(Response::Configs(refused)) => {
                self.remembered_bytes.decrease_by(remembered_bytes(refused))
            }
            Some(Response::Fetch(asked)) => {
                self.remembered_bytes.decrease_by(asked.remembered_bytes());
            }
            _ => {}
        }
        self.shrink();
        answered.ok_or(Malformed::new("correlation_id", Reason::UnexpectedResponse))
    }

    /// An idle connection keeps no memory of a busy past.
    fn shrink(&mut self) {
        if self.expected.is_empty() && self.expected.capacity() > 16 {
            self.expected = VecDeque::new();
        }
    }
}
