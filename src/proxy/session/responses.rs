//! Brings responses from the broker to the client: matches them with the requests in flight, rewrites the few that
//! carry addresses, merges refusals in, and passes everything else on as it comes.

mod fetched;
mod redeemed;
mod runs;

use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes, BytesMut};

use self::redeemed::Redeeming;
use super::buffers::{self, BUFFER_BYTES};
use super::metadata_tap::MetadataTap;
use super::requests::configs;
use super::runs::PEEK_BYTES;
use super::{Close, Session, Upstream};
use crate::count::Count as _;
use crate::proxy::in_flight::{Expected, Produced, Response};
use crate::proxy::verdict::by_topic;
use crate::wire::addresses::{self, TailKind};
use crate::wire::api::PREFIX_BYTES;
use crate::wire::produce_response::{self, ProduceResponse};
use crate::wire::walk::Walker;
use crate::wire::{Malformed, Reader, Reason, api, api_versions, fetch};

/// Length prefix and correlation id.
const HEAD_BYTES: usize = 8;
/// The largest answer that is held to be rewritten: a Produce response for 100,000 partitions has 4 MB.
const LONGEST_HELD: usize = 64 * 1024 * 1024;
/// The longest broker list, and the longest tail of a Fetch response.
const LONGEST_ADDRESSES: usize = 4 * 1024 * 1024;

/// The way back.
#[derive(Default)]
pub(super) struct Responses {
    intake: Intake,
    rest: Bytes,
    /// A run is in hand: it passes to its end.
    is_in_run: bool,
    /// The last run is over, and most likely another follows behind a few bytes: no more is read than these.
    peeks: bool,
    /// What is in `rest` was read so.
    was_peek: bool,
    /// For how long the Produce response in hand asks its client to be silent.
    throttle_ms: i32,
}

/// Where in a response the stream stands.
enum Intake {
    /// Between responses, or in the head of one whose first bytes came alone.
    Head(Vec<u8>),
    /// A response streams through: bytes to come, and what is read of them on the way.
    Pass {
        left: usize,
        expected: Expected,
        metadata_tap: Option<Box<MetadataTap>>,
    },
    /// A response is held until it is whole, or until its broker list is.
    Hold {
        frame: BytesMut,
        frame_bytes: usize,
        expected: Expected,
    },
    /// A response is held while its tickets are redeemed; nothing is read meanwhile.
    Redeem {
        redeeming: Redeeming,
        frame_bytes: usize,
        expected: Expected,
    },
    /// A Fetch response without addresses streams through and is watched; no walker: not understood.
    Watch {
        walker: Option<Walker>,
        /// Bytes of the head still at the front of what comes: they are here, all of them.
        head_left: usize,
        left: usize,
        expected: Expected,
    },
    /// A response streams through up to its tail, which is held.
    Tail {
        walker: Walker,
        left: usize,
        tail: Vec<u8>,
        kind: TailKind,
        expected: Expected,
    },
}

impl Default for Intake {
    fn default() -> Self {
        Self::Head(Vec::new())
    }
}

impl Responses {
    /// A response has begun and is not over: its entry has left the list of requests in flight, and some of its bytes have yet to come.
    pub(super) fn is_busy(&self) -> bool {
        !matches!(&self.intake, Intake::Head(begun) if begun.is_empty())
    }

    /// The response in hand waits for its originals.
    pub(super) fn is_redeeming(&self) -> bool {
        matches!(self.intake, Intake::Redeem { .. })
    }

    /// Memory for what is held of the response in hand.
    pub(super) fn held_bytes(&self) -> usize {
        match &self.intake {
            Intake::Hold { frame, .. } => frame.capacity(),
            Intake::Tail { tail, .. } => tail.capacity(),
            Intake::Redeem { frame_bytes, .. } => *frame_bytes,
            Intake::Head(_) | Intake::Pass { .. } | Intake::Watch { .. } => 0,
        }
    }
}

/// What a response needs.
enum Treatment {
    Pass,
    Whole,
    MetadataHead,
    Watch,
    Tail(TailKind),
}

fn plan(expected: &Expected) -> Treatment {
    let version = expected.api_version;
    match (&expected.response, expected.api_key) {
        (
            Response::Produce(_)
            | Response::Configs(_)
            | Response::Authenticate(_)
            | Response::Fetch(_),
            _,
        ) => Treatment::Whole,
        (Response::Token | Response::Made(_), _) => Treatment::Pass,
        (Response::Forwarded, api::API_VERSIONS) => Treatment::Whole,
        (Response::Forwarded, api::METADATA) => Treatment::MetadataHead,
        (Response::Forwarded, api::FETCH) if version >= 16 => Treatment::Tail(TailKind::Fetch),
        (Response::Forwarded, api::FETCH) if fetch::VERSIONS.contains(&version) => Treatment::Watch,
        (Response::Forwarded, api::SHARE_FETCH) => Treatment::Tail(TailKind::ShareFetch),
        (Response::Forwarded, key) if addresses::is_rewritten_whole(key) => Treatment::Whole,
        (Response::Forwarded, _) => Treatment::Pass,
    }
}

/// Bytes of a frame with this length prefix, if a response can have it.
fn response_bytes(declared: i32, is_token: bool) -> Result<usize, Malformed> {
    let length = usize::try_from(declared)
        .map_err(|_| Malformed::new("response_length", Reason::NegativeLength))?;
    if length < HEAD_BYTES - PREFIX_BYTES && !is_token {
        return Err(Malformed::new("response_length", Reason::Truncated));
    }
    Ok(length.saturating_add(PREFIX_BYTES))
}

impl Session {
    /// Moves what can be moved, one read at most. `Ok(true)` when anything was.
    pub(super) fn poll_responses(&mut self, cx: &mut Context<'_>) -> Result<bool, Close> {
        self.place_made();
        let had_responses = !self.to_client.is_empty();
        if had_responses && self.poll_write_client(cx)?.is_pending() {
            return Ok(false);
        }
        if self.responses.is_redeeming() {
            let Poll::Ready(redeemed) = self.poll_redeeming(cx) else {
                return Ok(had_responses);
            };
            redeemed
                .and_then(|()| self.consume_responses())
                .map_err(Close::MalformedResponse)?;
            return Ok(true);
        }
        if self.is_broker_read {
            return Ok(had_responses);
        }
        if let Some(polled) = self.poll_run_of_response(cx)? {
            return Ok(polled.is_ready() || had_responses);
        }
        let most = self.response_read_bytes();
        let Upstream::Open(upstream) = &mut self.upstream else {
            return Ok(had_responses);
        };
        let read = match &mut self.responses.intake {
            Intake::Hold {
                frame, frame_bytes, ..
            } => {
                let need = frame_bytes.saturating_sub(frame.len());
                buffers::poll_read(upstream, cx, frame, need)
            }
            _ => buffers::poll_read_chunk(upstream, cx, most).map_ok(|chunk| {
                self.responses.rest = chunk;
                self.responses.rest.len()
            }),
        };
        match read {
            Poll::Pending => {
                self.is_broker_read = true;
                return Ok(had_responses);
            }
            Poll::Ready(Err(error)) => return Err(Close::Upstream(error)),
            Poll::Ready(Ok(0)) => return Err(self.closed_by_broker()),
            Poll::Ready(Ok(read)) => {
                self.last_traffic = Instant::now();
                self.responses.was_peek = std::mem::take(&mut self.responses.peeks);
                // As much as was asked for: a head is longer than thought, or no run follows.
                self.responses.peeks = self.responses.was_peek && read < PEEK_BYTES;
            }
        }
        let consumed = if self.responses.rest.is_empty() {
            self.held_more()
        } else {
            self.consume_responses()
        };
        consumed.map_err(Close::MalformedResponse)?;
        self.begin_run_of_response();
        if !self.to_client.is_empty() && self.poll_write_client(cx)?.is_pending() {
            self.to_client.hold(self.shared.budget.charge(BUFFER_BYTES));
        }
        Ok(true)
    }

    fn closed_by_broker(&self) -> Close {
        if self.responses.is_busy() {
            Close::MalformedResponse(Malformed::new("response", Reason::Truncated))
        } else {
            Close::ByBroker
        }
    }

    fn poll_write_client(&mut self, cx: &mut Context<'_>) -> Result<Poll<()>, Close> {
        match self.to_client.poll_write(&mut self.client, cx) {
            Poll::Pending => Ok(Poll::Pending),
            Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
            Poll::Ready(Err(error)) => Err(Close::Downstream(error)),
        }
    }

    /// Answers made here go out as soon as everything before them has.
    fn place_made(&mut self) {
        while !self.responses.is_busy() {
            let Some((expected, bytes)) = self.in_flight.take_made() else {
                return;
            };
            self.to_client.push(bytes);
            self.answered(&expected);
        }
    }

    fn answered(&mut self, expected: &Expected) {
        match expected.api_key {
            api::PRODUCE => self.produce_answered(expected.since),
            api::FETCH if fetch::VERSIONS.contains(&expected.api_version) => {
                self.fetches.get_or_insert_default().end_response();
                self.judge.topics.release();
            }
            api::SHARE_FETCH => {
                self.fetches.get_or_insert_default().served();
                self.judge.topics.release();
            }
            _ => {}
        }
        let took = self.last_traffic.saturating_duration_since(expected.since);
        self.shared
            .metrics
            .request_seconds(expected.api_key)
            .observe(took);
    }

    /// A record of that request which lingered in its producer is certain by now.
    fn produce_answered(&mut self, asked: Instant) {
        let throttle_ms = std::mem::take(&mut self.responses.throttle_ms);
        let throttled = Duration::from_millis(throttle_ms.max(0).unsigned_abs().into());
        let linger = &mut self.judge.linger;
        if let Some(suspect) = linger.answered(asked, self.last_traffic, throttled) {
            self.shared.report_linger(suspect, &self.who);
        }
    }

    fn consume_responses(&mut self) -> Result<(), Malformed> {
        while !self.responses.rest.is_empty() {
            match &mut self.responses.intake {
                Intake::Head(_) => {
                    let Some((frame_bytes, correlation_id)) = self.next_response_head()? else {
                        continue;
                    };
                    if self.is_cut_by_peek(frame_bytes) {
                        continue;
                    }
                    let expected = self.in_flight.answered(correlation_id)?;
                    self.start_response(frame_bytes, expected)?;
                }
                Intake::Pass {
                    left, metadata_tap, ..
                } => {
                    let here = (*left).min(self.responses.rest.len());
                    left.decrease_by(here);
                    let is_over = *left == 0;
                    let chunk = self.responses.rest.split_to(here);
                    metadata_tap.take_if(|metadata_tap| !metadata_tap.read(&chunk));
                    self.to_client.push(chunk);
                    if is_over {
                        self.end_response();
                    }
                }
                Intake::Hold {
                    frame, frame_bytes, ..
                } => {
                    let need = frame_bytes.saturating_sub(frame.len());
                    let here = need.min(self.responses.rest.len());
                    frame.extend_from_slice(&self.responses.rest.split_to(here));
                    self.held_more()?;
                }
                Intake::Watch { .. } => self.watch(),
                Intake::Tail { .. } => self.walk_tail()?,
                Intake::Redeem { .. } => return Ok(()),
            }
        }
        Ok(())
    }

    /// The response in hand is over: count it, and let answers made here follow.
    fn end_response(&mut self) {
        self.to_client.set_more(false);
        match std::mem::take(&mut self.responses.intake) {
            Intake::Pass { expected, .. }
            | Intake::Hold { expected, .. }
            | Intake::Watch { expected, .. }
            | Intake::Tail { expected, .. }
            | Intake::Redeem { expected, .. } => self.answered(&expected),
            Intake::Head(_) => {}
        }
        self.place_made();
    }

    /// Frame length and correlation id at the front of `rest`, once both have come. A bare token has no
    /// correlation id, and may be shorter than one.
    fn next_response_head(&mut self) -> Result<Option<(usize, i32)>, Malformed> {
        if self.in_flight.is_empty() {
            return Err(Malformed::new("correlation_id", Reason::UnexpectedResponse));
        }
        let is_token = self.in_flight.is_token_next();
        let Responses {
            intake: Intake::Head(begun),
            rest,
            ..
        } = &mut self.responses
        else {
            return Ok(None);
        };
        if !begun.is_empty() {
            // Back in front: from here on it is a head like any other.
            *rest = [std::mem::take(begun).as_slice(), rest].concat().into();
        }
        let r = &mut Reader::new(rest);
        let length = match r.int32("response_length") {
            Ok(length) => Some(response_bytes(length, is_token)?),
            Err(_) => None,
        };
        match (length, r.int32("correlation_id")) {
            (Some(length), Ok(correlation_id)) => Ok(Some((length, correlation_id))),
            (Some(length), Err(_)) if is_token => Ok(Some((length, 0))),
            _ => {
                *begun = rest.to_vec();
                rest.clear();
                Ok(None)
            }
        }
    }

    fn start_response(&mut self, frame_bytes: usize, expected: Expected) -> Result<(), Malformed> {
        let plan = plan(&expected);
        let is_whole = self.responses.rest.len() >= frame_bytes;
        match plan {
            Treatment::Pass => {
                self.responses.intake = Intake::Pass {
                    left: frame_bytes,
                    expected,
                    metadata_tap: None,
                }
            }
            Treatment::Watch => {
                let may_pass = self.may_responses_pass();
                self.fetches
                    .get_or_insert_default()
                    .begin_response(may_pass);
                let walker = fetched::walker(TailKind::Fetch, expected.api_version, frame_bytes);
                self.responses.intake = Intake::Watch {
                    walker: Some(walker),
                    head_left: HEAD_BYTES,
                    left: frame_bytes,
                    expected,
                };
            }
            Treatment::Tail(kind) if is_whole => {
                let frame = self.responses.rest.split_to(frame_bytes);
                self.rewrite_whole_tail(frame, kind, &expected)?;
                self.answered(&expected);
                self.place_made();
            }
            Treatment::Tail(kind) => {
                let may_pass = self.may_responses_pass();
                self.fetches
                    .get_or_insert_default()
                    .begin_response(may_pass);
                let walker = fetched::walker(kind, expected.api_version, frame_bytes);
                self.to_client
                    .push(self.responses.rest.split_to(HEAD_BYTES));
                self.responses.intake = Intake::Tail {
                    walker,
                    left: frame_bytes.saturating_sub(HEAD_BYTES),
                    tail: Vec::new(),
                    kind,
                    expected,
                };
            }
            Treatment::Whole if is_whole => {
                let frame = self.responses.rest.split_to(frame_bytes);
                self.rewrite_whole(frame, expected)?;
                self.place_made();
            }
            Treatment::Whole | Treatment::MetadataHead => {
                if matches!(plan, Treatment::Whole) && frame_bytes > LONGEST_HELD {
                    return Err(Malformed::new("response_length", Reason::TooLong));
                }
                // Grows as bytes come: the declared length is the broker's word.
                self.responses.intake = Intake::Hold {
                    frame: BytesMut::new(),
                    frame_bytes,
                    expected,
                };
            }
        }
        Ok(())
    }

    /// More of a held response has come.
    fn held_more(&mut self) -> Result<(), Malformed> {
        let Intake::Hold {
            frame,
            frame_bytes,
            expected,
        } = &mut self.responses.intake
        else {
            return Ok(());
        };
        let (frame_bytes, is_whole) = (*frame_bytes, frame.len() == *frame_bytes);
        if expected.api_key == api::METADATA {
            let Some((head, replaced)) = addresses::rewrite_metadata_head(
                frame,
                expected.api_version,
                &self.shared.advertised,
            )?
            else {
                return if frame.len() > LONGEST_ADDRESSES {
                    Err(Malformed::new("brokers", Reason::TooLong))
                } else {
                    Ok(())
                };
            };
            let mut here = frame.split().freeze();
            let left = frame_bytes.saturating_sub(here.len());
            here.advance(replaced);
            let metadata_tap = MetadataTap::of(
                &self.shared.cluster,
                expected.api_version,
                frame_bytes.saturating_sub(replaced),
            );
            self.to_client.push(head.into());
            self.pass_rest(here, left, metadata_tap);
        } else if is_whole {
            let Intake::Hold {
                frame, expected, ..
            } = std::mem::take(&mut self.responses.intake)
            else {
                return Ok(());
            };
            self.rewrite_whole(frame.freeze(), expected)?;
            self.place_made();
        }
        Ok(())
    }

    /// What is left of the response in hand streams through, after what is `here` of it.
    fn pass_rest(&mut self, here: Bytes, left: usize, mut metadata_tap: Option<Box<MetadataTap>>) {
        metadata_tap.take_if(|metadata_tap| !metadata_tap.read(&here));
        self.to_client.push(here);
        if let Intake::Hold { expected, .. } = std::mem::take(&mut self.responses.intake) {
            self.responses.intake = Intake::Pass {
                left,
                expected,
                metadata_tap,
            };
            if left == 0 {
                self.end_response();
            }
        }
    }

    fn rewrite_whole(&mut self, frame: Bytes, mut expected: Expected) -> Result<(), Malformed> {
        let version = expected.api_version;
        let rewritten = match (
            std::mem::replace(&mut expected.response, Response::Forwarded),
            expected.api_key,
        ) {
            (Response::Produce(produced), _) => self.produce_response(frame, version, produced)?,
            (Response::Fetch(asked), _) => return self.begin_redeeming(frame, expected, asked),
            (Response::Configs(refused), key) => configs::merged(frame, key, version, &refused)?,
            (Response::Authenticate(claim), _) => {
                self.on_authenticated(&frame, version, claim);
                frame
            }
            (_, api::API_VERSIONS) => {
                let mut frame = BytesMut::from(frame);
                api_versions::clamp(&mut frame, version)?;
                frame.freeze()
            }
            (_, api_key) => {
                addresses::rewrite(&frame, api_key, version, &self.shared.advertised)?.into()
            }
        };
        self.to_client.push(rewritten);
        self.answered(&expected);
        Ok(())
    }

    fn produce_response(
        &mut self,
        frame: Bytes,
        version: i16,
        produced: Produced,
    ) -> Result<Bytes, Malformed> {
        if produced.refused.is_empty()
            && let Some(throttle_ms) = produce_response::plain_throttle_ms(&frame, version)?
        {
            self.responses.throttle_ms = throttle_ms;
            return Ok(frame);
        }
        let mut response = ProduceResponse::read(&frame, version)?;
        self.responses.throttle_ms = response.throttle_time_ms;
        self.explain_broker_refusals(&mut response, version, produced.sent.all())?;
        response.rewrite_addresses(&self.shared.advertised)?;
        response.merge(by_topic(produced.refused));
        Ok(response.encode(version).into())
    }
}
