//! From the client to the broker: frames found in what arrives, Produce held and judged, the rest passed on.
//!
//! Invariant: whatever leaves for the broker leaves in whole frames, in the order in which it came.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::chunk::{CHUNK_BYTES, poll_read_chunk, poll_read_rest};
use super::{Asking, BACKLOG_BYTES, Close, Session};
use crate::proxy::budget::{Admission, Lease};
use crate::proxy::ledger::{Answer, Expected, Produced};
use crate::proxy::oversized::Oversized;
use crate::proxy::verdict::{Asked, Verdict, by_topic};
use crate::telemetry::ClientConnection;
use crate::wire::api::{self, FrameHead, PREFIX_BYTES, SHORTEST_REQUEST_BYTES};
use crate::wire::produce::Piece;
use crate::wire::produce_answer::ProduceAnswer;
use crate::wire::{Malformed, Reason, api_versions};

/// ApiVersions requests above this are not read for the client's name.
const LONGEST_API_VERSIONS: usize = 64 * 1024;

/// The way in.
#[derive(Default)]
pub struct Requests {
    intake: Intake,
    /// Arrived, not yet looked at: only while something is waited for.
    rest: Bytes,
    /// For the buffer that `rest` keeps.
    rest_lease: Lease,
    waiting: Option<Waiting>,
    /// No more requests are read, and why.
    pub ended: Option<Close>,
    /// The connection is counted under its client's software.
    counted: Option<ClientConnection>,
    /// The first bytes of the connection were Kafka's.
    is_kafka: bool,
    /// The client authenticates with bare tokens (SaslHandshake version 0).
    sends_tokens: bool,
}

/// Where in a frame the stream stands.
enum Intake {
    /// Between frames, or in the head of one whose first bytes came alone.
    Head(Vec<u8>),
    /// A frame is being held until it is whole.
    Gather {
        head: FrameHead,
        frame: BytesMut,
        lease: Lease,
    },
    /// A frame streams through: bytes to come.
    Pass(usize),
    /// A Produce above the limit is read and not kept.
    Drain(Box<Oversized>),
}

impl Default for Intake {
    fn default() -> Self {
        Self::Head(Vec::new())
    }
}

/// What the way in waits for.
enum Waiting {
    /// Memory for a frame, of which this much has come.
    Memory {
        head: FrameHead,
        begun: Bytes,
        admission: Admission,
    },
    /// What the verdict on a frame that is here needs to know.
    Knowledge {
        head: FrameHead,
        frame: Bytes,
        lease: Lease,
        asking: Asking,
    },
}

/// What stands between two frames.
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
        self.waiting.is_some()
            || !self.rest.is_empty()
            || !matches!(&self.intake, Intake::Head(begun) if begun.is_empty())
    }

    /// Memory is held for bytes that have not come.
    pub fn holds_half_a_frame(&self) -> bool {
        matches!(self.intake, Intake::Gather { .. })
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
        let at_boundary = matches!(&self.requests.intake, Intake::Head(begun) if begun.is_empty());
        self.requests.ended.is_none()
            && !(self.is_draining && at_boundary)
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
                head,
                begun,
                mut admission,
            }) => match Pin::new(&mut admission).poll(cx) {
                Poll::Pending => {
                    self.requests.waiting = Some(Waiting::Memory {
                        head,
                        begun,
                        admission,
                    });
                    Ok(Poll::Pending)
                }
                Poll::Ready(lease) => {
                    self.gather(head, &begun, lease);
                    Ok(Poll::Ready(true))
                }
            },
            Some(Waiting::Knowledge {
                head,
                frame,
                lease,
                mut asking,
            }) => match asking.as_mut().poll(cx) {
                Poll::Pending => {
                    self.requests.waiting = Some(Waiting::Knowledge {
                        head,
                        frame,
                        lease,
                        asking,
                    });
                    Ok(Poll::Pending)
                }
                Poll::Ready(asked) => {
                    self.on_produce(head, frame, lease, asked)?;
                    self.consume()?;
                    Ok(Poll::Ready(true))
                }
            },
        }
    }

    fn poll_read_client(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Close> {
        if let Intake::Gather { head, frame, .. } = &mut self.requests.intake {
            let need = head.frame_bytes() - frame.len();
            match poll_read_rest(&mut self.client, cx, frame, need) {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(Err(error)) => return Err(Close::Downstream(error)),
                Poll::Ready(Ok(0)) => self.end(Close::ByClient),
                Poll::Ready(Ok(_)) => {
                    self.last_traffic = Instant::now();
                    if frame.len() == head.frame_bytes() {
                        self.gathered()?;
                    }
                }
            }
            return Ok(Poll::Ready(()));
        }
        match poll_read_chunk(&mut self.client, cx, self.shared.budget.is_short()) {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Err(error)) => Err(Close::Downstream(error)),
            Poll::Ready(Ok(chunk)) if chunk.is_empty() => {
                self.end(Close::ByClient);
                Ok(Poll::Ready(()))
            }
            Poll::Ready(Ok(chunk)) => {
                self.last_traffic = Instant::now();
                self.requests.rest = chunk;
                self.consume()?;
                // Written at once, most chunks are gone before anybody needs to account for them.
                if !self.to_upstream.is_empty() && self.poll_write_upstream(cx)?.is_pending() {
                    self.to_upstream
                        .hold(self.shared.budget.charge(CHUNK_BYTES));
                }
                if !self.requests.rest.is_empty() {
                    self.requests.rest_lease = self.shared.budget.charge(CHUNK_BYTES);
                }
                Ok(Poll::Ready(()))
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
        self.requests.rest = Bytes::new();
    }

    /// Takes frames from what has arrived until it is used up or something must be waited for.
    fn consume(&mut self) -> Result<(), Close> {
        while self.requests.waiting.is_none() && !self.requests.rest.is_empty() {
            match &mut self.requests.intake {
                Intake::Pass(left) => {
                    let here = (*left).min(self.requests.rest.len());
                    *left -= here;
                    if *left == 0 {
                        self.requests.intake = Intake::default();
                    }
                    self.to_upstream.push(self.requests.rest.split_to(here));
                }
                Intake::Drain(_) => self.drain(),
                Intake::Gather { .. } => self.continue_gathering()?,
                Intake::Head(_) => match self.next_start() {
                    Some(Start::Frame(head)) => self.start(head)?,
                    Some(Start::Token(frame_bytes)) => self.start_token(frame_bytes),
                    None => {}
                },
            }
        }
        if self.requests.rest.is_empty() {
            self.requests.rest_lease = Lease::default();
        }
        Ok(())
    }

    /// What is at the front of `rest`, once enough of it has come to tell.
    fn next_start(&mut self) -> Option<Start> {
        let sends_tokens = self.requests.sends_tokens;
        let Requests {
            intake: Intake::Head(begun),
            rest,
            ..
        } = &mut self.requests
        else {
            return None;
        };
        if !begun.is_empty() {
            // Back in front: from here on it is a head like any other.
            *rest = [std::mem::take(begun).as_slice(), rest].concat().into();
        }
        match rest.first_chunk().map(|first| i32::from_be_bytes(*first)) {
            Some(length)
                if sends_tokens && (0..SHORTEST_REQUEST_BYTES as i32).contains(&length) =>
            {
                return Some(Start::Token(PREFIX_BYTES + length as usize));
            }
            // A length that no request has is known before its head is whole, and the rest of it may never come.
            Some(length) => self.check_length(length)?,
            None => {}
        }
        let Requests {
            intake: Intake::Head(begun),
            rest,
            ..
        } = &mut self.requests
        else {
            return None;
        };
        let head = FrameHead::read(rest).ok();
        if head.is_none() {
            *begun = rest.to_vec();
            rest.clear();
        }
        head.map(Start::Frame)
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

    /// A token without a Kafka header, too short to be a request.
    fn start_token(&mut self, frame_bytes: usize) {
        let head = FrameHead {
            request_bytes: 0,
            api_key: api::SASL_HANDSHAKE,
            api_version: 0,
            correlation_id: 0,
        };
        self.expect(&head, Answer::Token);
        self.requests.intake = Intake::Pass(frame_bytes);
    }

    /// A frame begins at the front of `rest`.
    fn start(&mut self, head: FrameHead) -> Result<(), Close> {
        let plan = match self.plan(&head) {
            Ok(plan) => plan,
            Err(close) => {
                self.end(close);
                return Ok(());
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
                self.requests.intake = Intake::Pass(frame_bytes);
            }
            Plan::Drain => self.requests.intake = Intake::Drain(Box::new(Oversized::new(head))),
            Plan::Hold if self.requests.rest.len() >= frame_bytes => {
                let frame = self.requests.rest.split_to(frame_bytes);
                self.on_frame(head, frame, Lease::default())?;
            }
            Plan::Hold => {
                let begun = std::mem::take(&mut self.requests.rest);
                match self.shared.budget.try_admit(frame_bytes) {
                    Some(lease) => self.gather(head, &begun, lease),
                    None => {
                        let begun = Bytes::copy_from_slice(&begun);
                        let admission = self.shared.budget.admit(frame_bytes);
                        self.requests.waiting = Some(Waiting::Memory {
                            head,
                            begun,
                            admission,
                        });
                    }
                }
            }
        }
        Ok(())
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
        let is_small = head.frame_bytes() <= LONGEST_API_VERSIONS;
        match head.api_key {
            _ if !is_small_enough => self.plan_oversized(head),
            api::API_VERSIONS if is_small => Ok(Plan::Hold),
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
            _ if self.shared.policy.load().observes() => {
                self.shared.metrics.frames_refused("observed");
                tracing::warn!(client = %self.who.address, request_bytes, limit_bytes = self.shared.frame_bytes, "a Produce above listener.frame_bytes would be refused; it passes unmeasured");
                Ok(Plan::Pass)
            }
            _ => Ok(Plan::Drain),
        }
    }

    /// Begins to hold a frame of which `begun` has come.
    fn gather(&mut self, head: FrameHead, begun: &Bytes, lease: Lease) {
        let mut frame = BytesMut::with_capacity(head.frame_bytes());
        frame.extend_from_slice(begun);
        self.requests.intake = Intake::Gather { head, frame, lease };
        self.watch_for_stall();
    }

    /// A held frame is given what has come since.
    fn continue_gathering(&mut self) -> Result<(), Close> {
        let Intake::Gather { head, frame, .. } = &mut self.requests.intake else {
            return Ok(());
        };
        let need = (head.frame_bytes() - frame.len()).min(self.requests.rest.len());
        frame.extend_from_slice(&self.requests.rest.split_to(need));
        if frame.len() == head.frame_bytes() {
            self.gathered()
        } else {
            Ok(())
        }
    }

    /// A held frame is whole.
    fn gathered(&mut self) -> Result<(), Close> {
        match std::mem::take(&mut self.requests.intake) {
            Intake::Gather { head, frame, lease } => self.on_frame(head, frame.freeze(), lease),
            other => {
                self.requests.intake = other;
                Ok(())
            }
        }
    }

    /// A whole frame of a kind that is read.
    fn on_frame(&mut self, head: FrameHead, frame: Bytes, lease: Lease) -> Result<(), Close> {
        match head.api_key {
            api::PRODUCE => self.on_produce(head, frame, lease, Asked::default()),
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
                self.who.software = Some(software);
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

    fn on_produce(
        &mut self,
        head: FrameHead,
        frame: Bytes,
        lease: Lease,
        asked: Asked,
    ) -> Result<(), Close> {
        let begun = Instant::now();
        match self.judge.weigh(&frame, head.api_version, &asked) {
            Err(malformed) => self.end(Close::MalformedRequest(malformed)),
            Ok(Some(question)) => {
                let asking = self.ask(question, asked, &frame);
                self.requests.waiting = Some(Waiting::Knowledge {
                    head,
                    frame,
                    lease,
                    asking,
                });
            }
            Ok(None) => {
                self.who.learn_client_id(self.judge.client_id(&frame));
                let verdict = self.judge.settle(&frame, &self.who, begun);
                self.carry_out(head, frame, verdict);
                self.to_upstream.hold(lease);
                self.judge.release();
                self.shared
                    .metrics
                    .proxy_seconds(api::PRODUCE)
                    .observe(begun.elapsed());
            }
        }
        Ok(())
    }

    /// Forwards what the verdict keeps and sees to it that everything is answered.
    fn carry_out(&mut self, head: FrameHead, frame: Bytes, verdict: Verdict) {
        let Verdict {
            kept,
            sent,
            refused,
        } = verdict;
        let wants_answer = self.judge.layout().acks != 0;
        let is_refused = !refused.is_empty();
        let is_forwarded = match kept {
            None => {
                self.to_upstream.push(frame);
                true
            }
            Some(kept) if kept.is_empty() => false,
            Some(kept) => {
                for piece in self.judge.layout().splice(&kept) {
                    self.to_upstream.push(match piece {
                        Piece::Original(range) => frame.slice(range),
                        Piece::Made(bytes) => bytes.into(),
                    });
                }
                true
            }
        };
        match (wants_answer, is_forwarded) {
            (true, true) => {
                self.expect(&head, Answer::Produce(Box::new(Produced { sent, refused })))
            }
            (true, false) => {
                let answer = ProduceAnswer::new(head.correlation_id, by_topic(refused));
                self.expect(&head, Answer::Made(answer.encode(head.api_version).into()));
            }
            // The broker, too, stores the sound partitions of an acks 0 request and then closes.
            (false, _) if is_refused => self.end(Close::RefusedWithoutAnswer),
            (false, _) => {}
        }
    }

    /// Reads an oversized Produce without keeping it.
    fn drain(&mut self) {
        let Requests {
            intake: Intake::Drain(oversized),
            rest,
            ..
        } = &mut self.requests
        else {
            return;
        };
        let here = oversized.left().min(rest.len());
        let chunk = rest.split_to(here);
        if let Err(malformed) = oversized.read(&chunk) {
            self.end(Close::MalformedRequest(malformed));
            return;
        }
        if oversized.left() > 0 {
            return;
        }
        let Intake::Drain(oversized) = std::mem::take(&mut self.requests.intake) else {
            return;
        };
        let head = oversized.head;
        let refused = self.refuse_oversized(*oversized);
        match refused {
            Some(refused) => {
                let answer = ProduceAnswer::new(head.correlation_id, by_topic(refused));
                self.expect(&head, Answer::Made(answer.encode(head.api_version).into()));
            }
            None => self.end(Close::RefusedWithoutAnswer),
        }
    }

    fn expect(&mut self, head: &FrameHead, answer: Answer) {
        self.ledger.expect(Expected {
            correlation_id: head.correlation_id,
            api_key: head.api_key,
            api_version: head.api_version,
            since: self.last_traffic,
            answer,
        });
    }
}

/// After a SaslHandshake of version 0 the client sends bare tokens until it has authenticated (KIP-43). Whatever
/// could be a request that is read here, or whose answer is, is taken for one: nothing may pass the gates as a
/// token. (The token of PLAIN begins with a zero byte and the name, which looks like many other requests.)
fn is_plausible(head: &FrameHead) -> bool {
    api::highest_version(head.api_key).is_some() && (0..=99).contains(&head.api_version)
}
