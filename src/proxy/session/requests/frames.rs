//! The frames in what has arrived: where each begins, and whether it passes, is held, or is read and not kept.

use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::super::buffers::{self, BUFFER_BYTES, LARGEST_KEPT_BYTES, READ_BYTES};
use super::passing::Foreseen;
use super::{Close, Half, Intake, Pending, Session, Waiting};
use crate::count::{Count as _, total};
use crate::policy::Arrival;
use crate::proxy::budget::Lease;
use crate::proxy::in_flight::Response;
use crate::proxy::oversized::OversizedFrame;
use crate::proxy::verdict::Gathered;
use crate::wire::api::{self, FrameHead, PREFIX_BYTES, SHORTEST_REQUEST_BYTES};
use crate::wire::consumer::ConsumerRequest;
use crate::wire::sasl::HIGHEST_AUTHENTICATE;
use crate::wire::{Malformed, Reason, api_versions, fetch};

/// Requests above this are not read for the client's name: ApiVersions and SASL.
const LONGEST_INTRODUCTION: usize = 64 * 1024;

/// What stands at the front of `rest`.
enum Start {
    Frame(FrameHead),
    /// A bare token: its bytes, length prefix included.
    Token(usize),
}

/// What becomes of a frame whose head has been read.
enum FramePlan {
    Pass,
    Hold,
    Drain,
}

impl Session {
    /// Takes frames from what has arrived until it is used up or something must be waited for.
    pub(super) fn consume(&mut self) -> Result<(), Close> {
        self.requests.is_held_up = false;
        while self.requests.waiting.is_none() && !self.requests.rest.is_empty() {
            match &mut self.requests.intake {
                Intake::Pass(left) => {
                    let here = (*left).min(self.requests.rest.len());
                    left.decrease_by(here);
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
                Intake::Passing(_) => self.pass_on(),
                Intake::Drain(_) => self.drain(),
                Intake::Frame => {
                    let is_begun = match self.next_start() {
                        Some(Start::Frame(head)) => self.start(head)?,
                        Some(Start::Token(frame_bytes)) if self.requests.queue.is_empty() => {
                            self.start_token(frame_bytes)
                        }
                        Some(Start::Token(_)) => self.hold_up(),
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
        if self.requests.is_inside_head() {
            self.requests.head_begun.get_or_insert(self.last_traffic);
            self.watch_for_stall();
        }
        Ok(())
    }

    /// What is at the front of `rest`, once enough of it has come to tell.
    fn next_start(&mut self) -> Option<Start> {
        let length = i32::from_be_bytes(*self.requests.rest.first_chunk()?);
        if self.requests.sends_tokens && (0..SHORTEST_REQUEST_BYTES as i32).contains(&length) {
            return Some(Start::Token(PREFIX_BYTES.saturating_add(length as usize)));
        }
        // A length that no request has is known before its head is whole, and the rest of it may never come.
        self.check_length(length)?;
        self.check_key(length.unsigned_abs())?;
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

    /// A request above the limit that is no Produce is known by its key, and the rest of its head may never come.
    /// `None`: the connection ends for it.
    fn check_key(&mut self, request_bytes: u32) -> Option<()> {
        let api_key = self.requests.rest.get(PREFIX_BYTES..)?.first_chunk();
        let api_key = api_key.map(|key| i16::from_be_bytes(*key));
        match api_key.filter(|key| *key != api::PRODUCE) {
            Some(api_key) if request_bytes > self.shared.frame_bytes => {
                self.end(Close::FrameTooLarge {
                    api_key,
                    request_bytes,
                });
                None
            }
            _ => Some(()),
        }
    }

    /// What is at the front of `rest` comes after what waits. Always `false`: it has not begun.
    fn hold_up(&mut self) -> bool {
        self.requests.head_begun = None;
        self.requests.is_held_up = true;
        false
    }

    /// A token without a Kafka header, too short to be a request. Always `true`: it streams through.
    fn start_token(&mut self, frame_bytes: usize) -> bool {
        let head = FrameHead {
            request_bytes: 0,
            api_key: api::SASL_HANDSHAKE,
            api_version: 0,
            correlation_id: 0,
        };
        self.expect(&head, Response::Token);
        self.requests.intake = Intake::Pass(frame_bytes);
        self.requests.head_begun = None;
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
        self.requests.head_begun = None;
        if !self.may_begin(head.api_key, matches!(plan, FramePlan::Hold)) {
            return Ok(self.hold_up());
        }
        let frame_bytes = head.frame_bytes();
        let is_whole = self.is_whole(&head);
        let is_token = self.requests.sends_tokens && !is_plausible(&head);
        let is_fetch = head.api_key == api::FETCH && !is_token;
        match plan {
            _ if is_fetch && is_whole && self.on_fetch(&head) => {}
            FramePlan::Pass => {
                self.expect(
                    &head,
                    if is_token {
                        Response::Token
                    } else {
                        Response::Forwarded
                    },
                );
                self.requests.sends_tokens |=
                    head.api_key == api::SASL_HANDSHAKE && head.api_version == 0;
                if is_fetch && fetch::VERSIONS.contains(&head.api_version) {
                    let fetches = self.fetches.get_or_insert_default();
                    fetches.begin_request(head.api_version, frame_bytes);
                } else if let Some(position) =
                    ConsumerRequest::new(head.api_key, head.api_version, frame_bytes)
                        .filter(|_| !is_token)
                {
                    let fetches = self.fetches.get_or_insert_default();
                    fetches.begin_position(position);
                }
                self.requests.intake = Intake::Pass(frame_bytes);
            }
            FramePlan::Drain => {
                let passes = self.shared.policy.load().observes();
                self.requests.intake = Intake::Drain(Box::new(OversizedFrame::new(head, passes)));
            }
            FramePlan::Hold if is_whole => {
                self.requests.usual_bytes = usual_bytes(frame_bytes);
                self.requests.foreseen = Foreseen::Nothing;
                let frame = self.requests.rest.split_to(frame_bytes).freeze();
                let half = self.requests.half.take();
                let arrival = Arrival {
                    begun: half.as_ref().map_or(self.last_traffic, |half| half.begun),
                    ended: self.last_traffic,
                    in_flight: total([self.in_flight.len(), self.requests.queue.len()]),
                };
                self.on_frame(Pending {
                    head,
                    frame,
                    arrival,
                    lease: half.map(|half| half.lease).unwrap_or_default(),
                    policy: None,
                    asked: Gathered::default(),
                    original: None,
                })?;
            }
            FramePlan::Hold if self.begin_passing(&head) => {}
            FramePlan::Hold => {
                if !self.requests.foreseen.awaits_heads() {
                    self.hold(frame_bytes);
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// All of the frame at the front of `rest` is here.
    fn is_whole(&self, head: &FrameHead) -> bool {
        self.requests.rest.len() >= head.frame_bytes()
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
    pub(super) fn expect_rest_of_frame(
        &mut self,
        frame_bytes: usize,
        begun: Instant,
        lease: Lease,
    ) {
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

    fn plan(&self, head: &FrameHead) -> Result<FramePlan, Close> {
        let is_small_enough = head.request_bytes <= self.shared.frame_bytes;
        if self.requests.sends_tokens && is_small_enough && !is_plausible(head) {
            return Ok(FramePlan::Pass);
        }
        let unsupported =
            Close::MalformedRequest(Malformed::new("api_version", Reason::UnsupportedVersion));
        let is_known =
            api::highest_version(head.api_key).is_none_or(|highest| head.api_version <= highest);
        let is_small = head.frame_bytes() <= LONGEST_INTRODUCTION;
        match head.api_key {
            _ if !is_small_enough => self.plan_oversized(head),
            api::API_VERSIONS if is_small => Ok(FramePlan::Hold),
            // In version 0 bare tokens follow, which are not read.
            api::SASL_HANDSHAKE if is_small && head.api_version == 1 => Ok(FramePlan::Hold),
            api::SASL_AUTHENTICATE
                if is_small && (0..=HIGHEST_AUTHENTICATE).contains(&head.api_version) =>
            {
                Ok(FramePlan::Hold)
            }
            // Kafka closes on a version it does not have; of one that only the broker has, the response could not be
            // rewritten, and a request could not be judged.
            _ if !is_known => Err(unsupported),
            api::PRODUCE if head.api_version < 0 => Err(unsupported),
            api::PRODUCE => Ok(FramePlan::Hold),
            // Whole, it is read at once, whatever becomes of it.
            api::FETCH if self.is_whole(head) || !self.redeems() => Ok(FramePlan::Pass),
            api::FETCH => Ok(FramePlan::Hold),
            api::SHARE_FETCH if self.redeems() => Ok(FramePlan::Hold),
            _ if self.governs(head) => Ok(FramePlan::Hold),
            _ => Ok(FramePlan::Pass),
        }
    }

    fn plan_oversized(&self, head: &FrameHead) -> Result<FramePlan, Close> {
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
            _ => Ok(FramePlan::Drain),
        }
    }

    /// A whole frame of a kind that is read.
    fn on_frame(&mut self, pending: Pending) -> Result<(), Close> {
        match pending.head.api_key {
            api::PRODUCE => {
                self.on_produce(pending);
                return Ok(());
            }
            api::CREATE_TOPICS | api::ALTER_CONFIGS | api::INCREMENTAL_ALTER_CONFIGS => {
                self.on_configs(pending.head, pending.frame, pending.lease, None);
                return Ok(());
            }
            api::SHARE_FETCH => {
                self.on_share_fetch(pending);
                return Ok(());
            }
            api::SASL_HANDSHAKE | api::SASL_AUTHENTICATE => {
                self.on_sasl(pending.head, pending.frame);
            }
            _ => self.on_api_versions(pending.head, pending.frame)?,
        }
        self.to_upstream.hold(pending.lease);
        Ok(())
    }

    fn on_api_versions(&mut self, head: FrameHead, frame: Bytes) -> Result<(), Close> {
        match api_versions::client_software(&frame, head.api_version) {
            Ok(Some(software)) => {
                self.who.learn_client_id(api::frame_client_id(&frame));
                let client_id = self.who.client_id_text();
                if self.shared.connector.own().is_own_call(client_id) {
                    return Err(Close::Loop);
                }
                let connection = self.shared.metrics.client_software(
                    &software.name,
                    &software.version,
                    client_id,
                );
                self.requests.counted = Some(connection);
                self.who.learn_software(software);
            }
            // Before version 3 a client says only its id.
            Ok(None) => {
                self.who.learn_client_id(api::frame_client_id(&frame));
                self.count_unnamed_software();
            }
            // The broker answers an unreadable request itself, or closes.
            Err(malformed) => {
                tracing::debug!(client = %self.who.address, %malformed, "ApiVersions not understood")
            }
        }
        self.expect(&head, Response::Forwarded);
        self.to_upstream
            .push(api_versions::forwarded(frame, head.api_version));
        Ok(())
    }

    /// A client that does not say which library it uses is counted by its id.
    pub(super) fn count_unnamed_software(&mut self) {
        if self.requests.counted.is_none() {
            let client_id = self.who.client_id_text();
            let connection = self.shared.metrics.client_software("", "", client_id);
            self.requests.counted = Some(connection);
        }
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
/// could be a request that is read here, or whose response is, is taken for one: nothing may pass the gates as a
/// token. (The token of PLAIN begins with a zero byte and the name, which looks like many other requests.)
fn is_plausible(head: &FrameHead) -> bool {
    api::highest_version(head.api_key).is_some() && (0..=99).contains(&head.api_version)
}
