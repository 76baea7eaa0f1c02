//! From the client to the broker: frames found in what arrives, Produce held and judged, the rest passed on.
//!
//! Invariant: whatever leaves for the broker leaves in whole frames, in the order in which it came.

mod produce;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::buffers::{self, BUFFER_BYTES, LARGEST_KEPT_BYTES, READ_BYTES};
use super::{Asking, BACKLOG_BYTES, Close, LONGEST_GATHERING, STALL, STALL_BYTES, Session};
use crate::policy::Arrival;
use crate::proxy::budget::{Admission, Lease};
use crate::proxy::ledger::{Answer, Expected};
use crate::proxy::oversized::Oversized;
use crate::proxy::verdict::Asked;
use crate::telemetry::ClientConnection;
use crate::wire::api::{self, FrameHead, PREFIX_BYTES, SHORTEST_REQUEST_BYTES};
use crate::wire::sasl::HIGHEST_AUTHENTICATE;
use crate::wire::{Malformed, Reason, api_versions, fetch};

/// Requests above this are not read for the client's name: ApiVersions and SASL.
const LONGEST_INTRODUCTION: usize = 64 * 1024;

/// The way in.
#[derive(Default)]
pub struct Requests {
    intake: Intake,
    /// Arrived and not yet used: half a frame, or what follows a frame that waits for its verdict.
    rest: BytesMut,
    /// The frame that is half here, once its bytes are admitted.
    half: Option<Half>,
    /// The size of the last frame, if that took more than one read: the next one is likely to be as large, and is
    /// read in one piece into a buffer that it need not leave.
    usual_bytes: usize,
    /// For the buffer that `rest` keeps while something is waited for.
    rest_lease: Lease,
    waiting: Option<Waiting>,
    /// No more requests are read, and why.
    pub ended: Option<Close>,
    /// Produce requests judged since the last read: their share of our time is counted together.
    judged: u32,
    /// The connection is counted under its client's software.
    counted: Option<ClientConnection>,
    /// The first bytes of the connection were Kafka's.
    is_kafka: bool,
    /// The client authenticates with bare tokens (SaslHandshake version 0).
    sends_tokens: bool,
}

/// A frame of which the rest has yet to come.
struct Half {
    frame_bytes: usize,
    lease: Lease,
    /// When its first bytes were read.
    begun: Instant,
    since: Instant,
    /// When it was last seen to have come on by [`STALL_BYTES`], and how much of it was here.
    moved_at: Instant,
    had_bytes: usize,
}

/// Where in a frame the stream stands.
#[derive(Default)]
enum Intake {
    /// A frame begins at the front of `rest`.
    #[default]
    Frame,
    /// A frame streams through: bytes to come.
    Pass(usize),
    /// A Produce above the limit is read and not kept; where it is only observed, it passes.
    Drain(Box<Oversized>),
}

/// What the way in waits for.
enum Waiting {
    /// Memory for the frame that is half here.
    Memory {
        frame_bytes: usize,
        begun: Instant,
        admission: Admission,
    },
    /// What the verdict on a frame that is here needs to know.
    Knowledge {
        head: FrameHead,
        frame: Bytes,
        arrival: Arrival,
        lease: Lease,
        asking: Asking,
    },
}

/// What stands at the front of `rest`.
enum Start {
    Frame(FrameHead),
    /// A bare token: its bytes, length prefix included.
    Token(usize),
}

/// What becomes of a frame whose head has been read.
enum Plan {
    Pass,
    Hold,
    Drain,
}

impl Requests {
    /// A frame is half here, or something is waited for.
    pub fn is_busy(&self) -> bool {
        self.waiting.is_some() || !self.is_at_boundary()
    }

    fn is_at_boundary(&self) -> bool {
        self.rest.is_empty() && matches!(self.intake, Intake::Frame)
    }

    /// Memory is held for bytes that have not come.
    pub fn holds_half_a_frame(&self) -> bool {
        self.half.is_some()
    }

    /// Too little of the frame that is half here came for too long, or it takes too long in all.
    pub fn has_stalled(&mut self) -> bool {
        let Some(half) = &mut self.half else {
            return false;
        };
        if self.rest.len().saturating_sub(half.had_bytes) >= STALL_BYTES {
            (half.moved_at, half.had_bytes) = (Instant::now(), self.rest.len());
        }
        half.moved_at.elapsed() >= STALL || half.since.elapsed() >= LONGEST_GATHERING
    }
}

impl Session {
    /// Moves what can be moved, one read at most: the answers have their turn too. `Ok(true)` when anything was.
    pub(super) fn poll_requests(&mut self, cx: &mut Context<'_>) -> Result<bool, Close> {
        let mut moved = false;
        if !self.to_upstream.is_empty() {
            if self.poll_write_upstream(cx)?.is_pending() {
                return Ok(false);
            }
            moved = true;
        }
        match self.poll_waiting(cx)? {
            Poll::Pending => return Ok(moved),
            Poll::Ready(true) => return Ok(true),
            Poll::Ready(false) => {}
        }
        Ok((self.may_read() && self.poll_read_client(cx)?.is_ready()) || moved)
    }

    /// No request is read while the client owes too much reading, or after its last one.
    fn may_read(&self) -> bool {
        self.requests.ended.is_none()
            && !(self.is_draining && self.requests.is_at_boundary())
            && !self.ledger.is_full()
            && self.to_client.len() + self.ledger.made_bytes() <= BACKLOG_BYTES
    }

    fn poll_write_upstream(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Close> {
        let written = match self.poll_upstream(cx) {
            Poll::Pending => return Ok(Poll::Pending),
            Poll::Ready(upstream) => {
                upstream?;
                let super::Upstream::Open(stream) = &mut self.upstream else {
                    return Ok(Poll::Pending);
                };
                self.to_upstream.poll_write(stream, cx)
            }
        };
        match written {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(error)) => Err(Close::Upstream(error)),
        }
    }

    /// `Ready(true)`: what was waited for is here and was acted on.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Result<Poll<bool>, Close> {
        match self.requests.waiting.take() {
            None => Ok(Poll::Ready(false)),
            Some(Waiting::Memory {
                frame_bytes,
                begun,
                mut admission,
            }) => match Pin::new(&mut admission).poll(cx) {
                Poll::Pending => {
                    self.requests.waiting = Some(Waiting::Memory {
                        frame_bytes,
                        begun,
                        admission,
                    });
                    Ok(Poll::Pending)
                }
                Poll::Ready(lease) => {
                    self.expect_rest_of_frame(frame_bytes, begun, lease);
                    Ok(Poll::Ready(true))
                }
            },
            Some(Waiting::Knowledge {
                head,
                frame,
                arrival,
                lease,
                mut asking,
            }) => match asking.as_mut().poll(cx) {
                Poll::Pending => {
                    self.requests.waiting = Some(Waiting::Knowledge {
                        head,
                        frame,
                        arrival,
                        lease,
                        asking,
                    });
                    Ok(Poll::Pending)
                }
                Poll::Ready(asked) => {
                    self.on_produce(head, frame, arrival, lease, asked)?;
                    self.consume()?;
                    Ok(Poll::Ready(true))
                }
            },
        }
    }

    fn poll_read_client(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Close> {
        let Requests {
            rest,
            half,
            usual_bytes,
            ..
        } = &mut self.requests;
        let is_short = self.shared.budget.is_short();
        let most = match half {
            // No further than a large frame's end: what follows would need as much room again.
            Some(half) if half.frame_bytes > READ_BYTES => {
                half.frame_bytes.saturating_sub(rest.len())
            }
            _ if is_short => buffers::read_bytes(true),
            _ => buffers::read_bytes(false).max(*usual_bytes),
        };
        if half.is_none() && rest.capacity() == rest.len() {
            let mut buffer = if is_short {
                buffers::borrow()
            } else {
                buffers::borrow_for(*usual_bytes)
            };
            buffer.extend_from_slice(rest);
            *rest = buffer;
        }
        match buffers::poll_read(&mut self.client, cx, rest, most) {
            Poll::Pending => {
                self.keep_rest(is_short);
                return Ok(Poll::Pending);
            }
            Poll::Ready(Err(error)) => return Err(Close::Downstream(error)),
            Poll::Ready(Ok(0)) => {
                self.end(Close::ByClient);
                return Ok(Poll::Ready(()));
            }
            Poll::Ready(Ok(_)) => self.last_traffic = Instant::now(),
        }
        self.consume()?;
        // Written at once, most of it is gone before anybody needs to account for it.
        if !self.to_upstream.is_empty() && self.poll_write_upstream(cx)?.is_pending() {
            self.to_upstream
                .hold(self.shared.budget.charge(BUFFER_BYTES));
        }
        self.keep_rest(is_short);
        self.count_judged();
        Ok(Poll::Ready(()))
    }

    /// Our own part of every Produce in this read: from its arrival to its first attempt to leave.
    fn count_judged(&mut self) {
        let judged = std::mem::take(&mut self.requests.judged);
        if judged > 0 {
            let took = self.last_traffic.elapsed();
            self.shared
                .metrics
                .proxy_seconds(api::PRODUCE)
                .observe_times(took, judged);
        }
    }

    /// Between two reads: an empty buffer goes back to the worker, and little is kept in little memory.
    fn keep_rest(&mut self, is_short: bool) {
        let Requests {
            rest,
            half,
            waiting,
            rest_lease,
            ..
        } = &mut self.requests;
        if rest.is_empty() {
            if rest.capacity() > 0 {
                buffers::give_back(std::mem::take(rest));
            }
        } else if half.is_none() || is_short {
            let room = half.as_ref().map_or(rest.len(), |half| half.frame_bytes);
            if rest.capacity() > room && waiting.is_none() {
                let mut small = BytesMut::with_capacity(room);
                small.extend_from_slice(rest);
                rest.clear();
                buffers::give_back(std::mem::replace(rest, small));
            } else if waiting.is_some() {
                *rest_lease = self.shared.budget.charge(rest.capacity());
            }
        }
    }

    /// Reads no more requests. What is half here is dropped; what is in flight is still answered.
    fn end(&mut self, close: Close) {
        self.requests.ended.get_or_insert(close);
        if matches!(self.requests.intake, Intake::Pass(_)) {
            self.ledger.abandon_last();
        }
        self.requests.intake = Intake::default();
        self.requests.rest = BytesMut::new();
        self.requests.half = None;
    }

    /// Takes frames from what has arrived until it is used up or something must be waited for.
    fn consume(&mut self) -> Result<(), Close> {
        while self.requests.waiting.is_none() && !self.requests.rest.is_empty() {
            match &mut self.requests.intake {
                Intake::Pass(left) => {
                    let here = (*left).min(self.requests.rest.len());
                    *left -= here;
                    let is_over = *left == 0;
                    let chunk = self.requests.rest.split_to(here).freeze();
                    if let Some(fetches) = &mut self.fetches {
                        fetches.read_request(&chunk, &self.shared, &mut self.who);
                        if is_over {
                            fetches.end_request();
                        }
                    }
                    self.to_upstream.push(chunk);
                    if is_over {
                        self.requests.intake = Intake::default();
                    }
                }
                Intake::Drain(_) => self.drain(),
                Intake::Frame => {
                    let is_begun = match self.next_start() {
                        Some(Start::Frame(head)) => self.start(head)?,
                        Some(Start::Token(frame_bytes)) => self.start_token(frame_bytes),
                        None => false,
                    };
                    if !is_begun {
                        // The rest of it has yet to come.
                        break;
                    }
                }
            }
        }
        if self.requests.rest.is_empty() {
            self.requests.rest_lease = Lease::default();
        }
        Ok(())
    }

    /// What is at the front of `rest`, once enough of it has come to tell.
    fn next_start(&mut self) -> Option<Start> {
        let length = i32::from_be_bytes(*self.requests.rest.first_chunk()?);
        if self.requests.sends_tokens && (0..SHORTEST_REQUEST_BYTES as i32).contains(&length) {
            return Some(Start::Token(PREFIX_BYTES + length as usize));
        }
        // A length that no request has is known before its head is whole, and the rest of it may never come.
        self.check_length(length)?;
        FrameHead::read(&self.requests.rest).ok().map(Start::Frame)
    }

    /// `None`: the connection ends for it.
    fn check_length(&mut self, length: i32) -> Option<()> {
        let protocol =
            api::foreign_protocol(length.to_be_bytes()).filter(|_| !self.requests.is_kafka);
        match (protocol, api::request_bytes(length)) {
            (Some(protocol), _) => self.end(Close::Foreign(protocol)),
            (None, Err(malformed)) => self.end(Close::MalformedRequest(malformed)),
            (None, Ok(_)) => return Some(()),
        }
        None
    }

    /// A token without a Kafka header, too short to be a request. Always `true`: it streams through.
    fn start_token(&mut self, frame_bytes: usize) -> bool {
        let head = FrameHead {
            request_bytes: 0,
            api_key: api::SASL_HANDSHAKE,
            api_version: 0,
            correlation_id: 0,
        };
        self.expect(&head, Answer::Token);
        self.requests.intake = Intake::Pass(frame_bytes);
        true
    }

    /// A frame begins at the front of `rest`. `false`: it is held, and not all of it is here.
    fn start(&mut self, head: FrameHead) -> Result<bool, Close> {
        let plan = match self.plan(&head) {
            Ok(plan) => plan,
            Err(close) => {
                self.end(close);
                return Ok(false);
            }
        };
        self.requests.is_kafka = true;
        let frame_bytes = head.frame_bytes();
        match plan {
            Plan::Pass => {
                let is_token = self.requests.sends_tokens && !is_plausible(&head);
                self.expect(
                    &head,
                    if is_token {
                        Answer::Token
                    } else {
                        Answer::Forwarded
                    },
                );
                self.requests.sends_tokens |=
                    head.api_key == api::SASL_HANDSHAKE && head.api_version == 0;
                if head.api_key == api::FETCH
                    && !is_token
                    && fetch::VERSIONS.contains(&head.api_version)
                {
                    let fetches = self.fetches.get_or_insert_default();
                    fetches.begin_request(head.api_version, frame_bytes);
                }
                self.requests.intake = Intake::Pass(frame_bytes);
            }
            Plan::Drain => {
                let passes = self.shared.policy.load().observes();
                self.requests.intake = Intake::Drain(Box::new(Oversized::new(head, passes)));
            }
            Plan::Hold if self.requests.rest.len() >= frame_bytes => {
                self.requests.usual_bytes = usual_bytes(frame_bytes);
                let frame = self.requests.rest.split_to(frame_bytes).freeze();
                let half = self.requests.half.take();
                let arrival = Arrival {
                    begun: half.as_ref().map_or(self.last_traffic, |half| half.begun),
                    ended: self.last_traffic,
                    in_flight: self.ledger.len(),
                };
                let lease = half.map(|half| half.lease).unwrap_or_default();
                self.on_frame(head, frame, arrival, lease)?;
            }
            Plan::Hold => {
                self.hold(frame_bytes);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sees to memory for a frame of which not all is here.
    fn hold(&mut self, frame_bytes: usize) {
        if self.requests.half.is_some() {
            return;
        }
        // While there is plenty, the buffer that it has begun in is kept for it, and accounted for.
        let is_short = self.shared.budget.is_short();
        let bytes = if is_short {
            frame_bytes
        } else {
            frame_bytes.max(BUFFER_BYTES)
        };
        match self.shared.budget.try_admit(bytes) {
            Some(lease) => self.expect_rest_of_frame(frame_bytes, self.last_traffic, lease),
            None => {
                let begun = BytesMut::from(&*self.requests.rest);
                self.requests.rest.clear();
                buffers::give_back(std::mem::replace(&mut self.requests.rest, begun));
                let admission = self.shared.budget.admit(frame_bytes);
                self.requests.waiting = Some(Waiting::Memory {
                    frame_bytes,
                    begun: self.last_traffic,
                    admission,
                });
            }
        }
    }

    /// Memory is there for a frame of which not all is here.
    fn expect_rest_of_frame(&mut self, frame_bytes: usize, begun: Instant, lease: Lease) {
        let missing = frame_bytes.saturating_sub(self.requests.rest.len());
        self.requests.rest.reserve(missing);
        let now = Instant::now();
        self.requests.half = Some(Half {
            frame_bytes,
            lease,
            begun,
            since: now,
            moved_at: now,
            had_bytes: self.requests.rest.len(),
        });
        self.watch_for_stall();
    }

    fn plan(&self, head: &FrameHead) -> Result<Plan, Close> {
        let is_small_enough = head.request_bytes <= self.shared.frame_bytes;
        if self.requests.sends_tokens && is_small_enough && !is_plausible(head) {
            return Ok(Plan::Pass);
        }
        let unsupported =
            Close::MalformedRequest(Malformed::new("api_version", Reason::UnsupportedVersion));
        let is_known =
            api::highest_version(head.api_key).is_none_or(|highest| head.api_version <= highest);
        let is_small = head.frame_bytes() <= LONGEST_INTRODUCTION;
        match head.api_key {
            _ if !is_small_enough => self.plan_oversized(head),
            api::API_VERSIONS if is_small => Ok(Plan::Hold),
            // In version 0 bare tokens follow, which are not read.
            api::SASL_HANDSHAKE if is_small && head.api_version == 1 => Ok(Plan::Hold),
            api::SASL_AUTHENTICATE
                if is_small && (0..=HIGHEST_AUTHENTICATE).contains(&head.api_version) =>
            {
                Ok(Plan::Hold)
            }
            // Kafka closes on a version it does not have; of one that only the broker has, the answer could not be
            // rewritten, and a request could not be judged.
            _ if !is_known => Err(unsupported),
            api::PRODUCE if head.api_version < 0 => Err(unsupported),
            api::PRODUCE => Ok(Plan::Hold),
            _ => Ok(Plan::Pass),
        }
    }

    fn plan_oversized(&self, head: &FrameHead) -> Result<Plan, Close> {
        let FrameHead {
            api_key,
            request_bytes,
            ..
        } = *head;
        let is_produce = api_key == api::PRODUCE
            && api::highest_version(api_key)
                .is_some_and(|highest| (0..=highest).contains(&head.api_version));
        match api_key {
            _ if !is_produce => Err(Close::FrameTooLarge {
                api_key,
                request_bytes,
            }),
            _ => Ok(Plan::Drain),
        }
    }

    /// A whole frame of a kind that is read.
    fn on_frame(
        &mut self,
        head: FrameHead,
        frame: Bytes,
        arrival: Arrival,
        lease: Lease,
    ) -> Result<(), Close> {
        match head.api_key {
            api::PRODUCE => self.on_produce(head, frame, arrival, lease, Asked::default()),
            api::SASL_HANDSHAKE | api::SASL_AUTHENTICATE => {
                self.on_sasl(head, frame);
                self.to_upstream.hold(lease);
                Ok(())
            }
            _ => {
                self.on_api_versions(head, frame);
                self.to_upstream.hold(lease);
                Ok(())
            }
        }
    }

    fn on_api_versions(&mut self, head: FrameHead, frame: Bytes) {
        match api_versions::client_software(&frame, head.api_version) {
            Ok(Some(software)) => {
                self.who.learn_client_id(api::frame_client_id(&frame));
                let client_id = self.who.client_id.as_deref().unwrap_or_default();
                let connection = self.shared.metrics.client_software(
                    &software.name,
                    &software.version,
                    client_id,
                );
                self.requests.counted = Some(connection);
                self.who.learn_software(software);
            }
            Ok(None) => {}
            // The broker answers an unreadable request itself, or closes.
            Err(malformed) => {
                tracing::debug!(client = %self.who.address, %malformed, "ApiVersions not understood")
            }
        }
        self.expect(&head, Answer::Forwarded);
        self.to_upstream
            .push(api_versions::forwarded(frame, head.api_version));
    }

    pub(super) fn expect(&mut self, head: &FrameHead, answer: Answer) {
        self.ledger.expect(Expected {
            correlation_id: head.correlation_id,
            api_key: head.api_key,
            api_version: head.api_version,
            since: self.last_traffic,
            answer,
        });
    }
}

/// What to expect of the next frame after one of `frame_bytes`.
const fn usual_bytes(frame_bytes: usize) -> usize {
    if frame_bytes > READ_BYTES && frame_bytes <= LARGEST_KEPT_BYTES {
        frame_bytes
    } else {
        0
    }
}

/// After a SaslHandshake of version 0 the client sends bare tokens until it has authenticated (KIP-43). Whatever
/// could be a request that is read here, or whose answer is, is taken for one: nothing may pass the gates as a
/// token. (The token of PLAIN begins with a zero byte and the name, which looks like many other requests.)
fn is_plausible(head: &FrameHead) -> bool {
    api::highest_version(head.api_key).is_some() && (0..=99).contains(&head.api_version)
}
