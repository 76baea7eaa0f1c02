//! One client connection with its one upstream connection: a state machine that is driven by one task.
//!
//! `requests` is the way from the client to the broker, `answers` the way back; both are polled in turn and
//! share the list of requests in flight without a lock. Bytes are read into a buffer that belongs to the worker thread, and leave
//! it as slices: an idle session holds no buffer.

mod buffers;
mod explain;
mod gather;
mod metadata_tap;
mod offload;
mod requests;
mod responses;
mod runs;
mod sasl;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::future::join;
use tokio::io::AsyncWrite;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

pub(super) use self::gather::confirm;
pub(super) use self::offload::{plan_one, rebuilt};
use self::requests::Requests;
use self::responses::Responses;
pub(super) use self::runs::RESPONSE_RUN_BYTES;
use self::sasl::Exchange;
use super::advertised::Route;
use super::budget::Account;
use super::claim_fetches::ClaimFetches;
use super::fetches::Fetches;
use super::in_flight::InFlight;
use super::verdict::Judge;
use super::write_queue::WriteQueue;
use super::{ClientInfo, Shared};
use crate::config::HostPort;
use crate::count::total;
use crate::net::Stream;
use crate::net::deadline_in;
use crate::wire::Malformed;

/// Bytes that wait for a client before its requests are no longer read.
const BACKLOG_BYTES: usize = 64 * 1024;
/// A frame of which less than [`STALL_BYTES`] has come in this time is given up when others wait for its memory.
const STALL: Duration = Duration::from_secs(10);
/// How often a frame that is half here is looked at.
const STALL_CHECK: Duration = Duration::from_secs(1);
/// Slower than this a frame of more than some hundred KiB never comes to its end before its client gives up
/// (`request.timeout.ms`, 30 s).
const STALL_BYTES: usize = 64 * 1024;
/// A frame that takes longer than this is given up when others wait for its memory: its client has given up too.
const LONGEST_GATHERING: Duration = Duration::from_secs(60);
/// How long a frame's first twelve bytes may take: they fit into one segment, and nobody has a reason to split them.
const HEAD: Duration = Duration::from_secs(5);
/// A broker is given this long for a response, or for more of one, however short the idle timeout: what Kafka's clients
/// give it (`request.timeout.ms`).
const RESPONSE: Duration = Duration::from_secs(30);
/// How long a client's or broker's last bytes may take to leave.
const LINGER: Duration = Duration::from_secs(10);
/// How long a client that was told goodbye may go on sending.
const CLIENT_LINGER: Duration = Duration::from_secs(2);
/// How long a broker is given to accept a connection, over all addresses tried.
const CONNECT: Duration = Duration::from_secs(15);

/// Why a session ended.
#[derive(Debug)]
pub(super) enum Close {
    /// The client closed, and has all its responses.
    ByClient,
    /// The broker closed.
    ByBroker,
    /// The client's bytes are not the protocol.
    MalformedRequest(Malformed),
    /// The broker's bytes are not the protocol.
    MalformedResponse(Malformed),
    /// Another protocol on the port.
    Foreign(&'static str),
    /// No TLS on a port with TLS.
    Plaintext(&'static str),
    /// No TLS session came about, and why.
    NoTls(String),
    /// A request above `frame_bytes` that cannot be answered for its partitions.
    FrameTooLarge {
        /// Which request.
        api_key: i16,
        /// Its bytes.
        request_bytes: u32,
    },
    /// A refused Produce with acks 0: closing is the only answer it can have.
    RefusedWithoutResponse,
    /// No broker to talk to.
    Unreachable(io::Error),
    /// Nothing came or went for `idle_timeout`.
    Idle,
    /// The first bytes of a request did not become a head in time.
    HeadLate,
    /// Half a frame held memory that others waited for.
    Stalled,
    /// The proxy is going down, and everything in flight is answered.
    Shutdown,
    /// The client's side broke.
    Downstream(io::Error),
    /// The broker's side broke.
    Upstream(io::Error),
    /// The broker closed, or its side broke, while it owed the response to a large Produce.
    ByBrokerOnLarge {
        /// How large the request is.
        request_bytes: u32,
        /// As it would be called else.
        reason: &'static str,
    },
    /// The client is this very proxy: an address that it takes for a broker's leads back to it.
    Loop,
}

impl Close {
    /// The metric label and log field.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::ByClient => "client_closed",
            Self::ByBroker => "broker_closed",
            Self::MalformedRequest(_) => "malformed_request",
            Self::MalformedResponse(_) => "malformed_answer",
            Self::Foreign(_) => "foreign_protocol",
            Self::Plaintext(_) => "plaintext",
            Self::NoTls(_) => "tls",
            Self::FrameTooLarge { .. } => "frame_too_large",
            Self::RefusedWithoutResponse => "refused_without_answer",
            Self::Unreachable(_) => "broker_unreachable",
            Self::Idle => "idle",
            Self::HeadLate => "head_late",
            Self::Stalled => "stalled",
            Self::Shutdown => "shutdown",
            Self::Downstream(_) => "client_error",
            Self::Upstream(_) => "broker_error",
            Self::ByBrokerOnLarge { reason, .. } => reason,
            Self::Loop => "loop",
        }
    }
}

/// What a session is in the middle of, by who must act next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnderWay {
    /// Everything is answered, and nothing has begun.
    Nothing,
    /// The client has yet to read what is here for it, or to send the rest of a frame.
    Clients,
    /// The broker has yet to take a request, or to answer one to its last byte.
    Brokers,
    /// We have yet to find memory for a frame, or to come to a verdict.
    Ours,
}

/// The broker's side.
enum Upstream {
    /// No byte has come yet that it would be needed for.
    Unneeded,
    Connecting(Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>),
    Open(Stream),
}

/// A session in progress.
pub(super) struct Session {
    shared: Arc<Shared>,
    who: ClientInfo,
    route: Route,
    client: Stream,
    upstream: Upstream,
    requests: Requests,
    responses: Responses,
    in_flight: InFlight,
    judge: Judge,
    /// None while the client consumes nothing.
    fetches: Option<Box<Fetches>>,
    /// None while no tickets are redeemed.
    claim_fetches: Option<Box<ClaimFetches>>,
    exchange: Exchange,
    to_upstream: WriteQueue,
    to_client: WriteQueue,
    /// What is remembered beyond frames and write queue.
    remembered: Account,
    /// When something was last read.
    last_traffic: Instant,
    /// When something else was last done: it counts for the idle timeout only.
    acted_at: Instant,
    /// Read to the end in this turn: whatever comes now wakes the task.
    is_client_read: bool,
    is_broker_read: bool,
    /// What both write queues had written when the timer last looked.
    seen_written: u64,
    timer: Pin<Box<Sleep>>,
    /// The timer's waker is this task's: it need not be polled again until it has elapsed.
    is_timer_set: bool,
    /// The timer looks after half a frame.
    is_watching: bool,
    /// Only wakes this task; whether it is time is in [`Shared::is_draining`].
    shutdown: Pin<Box<WaitForCancellationFutureOwned>>,
    is_draining: bool,
}

impl Session {
    /// Serves a client until one side is done, and tells why.
    pub(super) async fn serve(
        shared: Arc<Shared>,
        client: Stream,
        who: ClientInfo,
        route: Route,
        shutdown: CancellationToken,
    ) -> (ClientInfo, Close) {
        let mut session = Session {
            who,
            route,
            client,
            upstream: Upstream::Unneeded,
            requests: Requests::default(),
            responses: Responses::default(),
            in_flight: InFlight::default(),
            judge: Judge::new(Arc::clone(&shared), route.node_id()),
            fetches: None,
            claim_fetches: None,
            exchange: Exchange::default(),
            to_upstream: WriteQueue::default(),
            to_client: WriteQueue::default(),
            remembered: Account::default(),
            last_traffic: Instant::now(),
            acted_at: Instant::now(),
            is_client_read: false,
            is_broker_read: false,
            seen_written: 0,
            timer: Box::pin(tokio::time::sleep(shared.idle_timeout)),
            is_timer_set: false,
            is_watching: false,
            shutdown: Box::pin(shutdown.cancelled_owned()),
            is_draining: false,
            shared,
        };
        std::future::poll_fn(|cx| {
            // Once is enough: its waker is this task's.
            session.is_draining = session.shutdown.as_mut().poll(cx).is_ready();
            Poll::Ready(())
        })
        .await;
        let close = std::future::poll_fn(|cx| session.poll(cx)).await;
        session.leave();
        let close = session.closed_on_large(close);
        let close = session.finish(close).await;
        (session.who, close)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Close> {
        self.is_draining |= self.shared.is_draining.load(Ordering::Relaxed);
        (self.is_client_read, self.is_broker_read) = (false, false);
        loop {
            let step = self
                .poll_requests(cx)
                .and_then(|requests| Ok(self.poll_responses(cx)? || requests));
            match step {
                Err(close) => return Poll::Ready(close),
                Ok(true) => self.account(),
                Ok(false) => break,
            }
        }
        if let Some(close) = self.is_finished() {
            return Poll::Ready(close);
        }
        self.poll_timer(cx)
    }

    /// The client asks for nothing more: its next connection may be here before this one is closed.
    fn leave(&mut self) {
        if let Some(fetches) = &mut self.fetches {
            fetches.leave(&self.shared, Instant::now());
        }
    }

    /// Charges to the budget what this session remembers. What it remembers only to be faster goes when others need
    /// the memory.
    fn account(&mut self) {
        let budget = &self.shared.budget;
        let topics = &mut self.judge.topics;
        if topics.remembered_bytes() > Account::FREE_BYTES && budget.is_short() {
            topics.forget();
        }
        let fetches = self.fetches.as_ref();
        let claims = self.claim_fetches.as_ref();
        let bytes = total([
            topics.remembered_bytes(),
            self.in_flight.remembered_bytes(),
            self.responses.held_bytes(),
            self.requests.remembered_bytes(),
            fetches.map_or(0, |fetches| fetches.remembered_bytes()),
            claims.map_or(0, |claims| claims.remembered_bytes()),
            self.to_client.uncovered_bytes(),
        ]);
        self.remembered.cover(budget, bytes);
    }

    /// What this session is in the middle of. The one place that tells: a client that has half-closed, a drain and the
    /// idle timeout all go by it.
    fn under_way(&self) -> UnderWay {
        let is_broker_due =
            !self.in_flight.is_empty() || self.responses.is_busy() || !self.to_upstream.is_empty();
        if self.requests.is_waiting() || self.responses.is_redeeming() {
            UnderWay::Ours
        } else if !self.to_client.is_empty() {
            UnderWay::Clients
        } else if is_broker_due {
            UnderWay::Brokers
        } else if self.requests.is_half_here() {
            UnderWay::Clients
        } else {
            UnderWay::Nothing
        }
    }

    /// Everything that was asked is answered to its last byte, and no more will be asked.
    fn is_finished(&mut self) -> Option<Close> {
        let may_end = self.requests.ended.is_some() || self.is_draining;
        if !may_end || self.under_way() != UnderWay::Nothing {
            return None;
        }
        self.requests.ended.take().or(Some(Close::Shutdown))
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Close> {
        while !self.is_timer_set || self.timer.is_elapsed() {
            self.is_timer_set = true;
            if self.timer.as_mut().poll(cx).is_pending() {
                break;
            }
            let quiet = self.quiet_for();
            self.is_watching = self.requests.is_half_here();
            let patience = match self.under_way() {
                // Each of these waits has an end of its own.
                UnderWay::Ours => Duration::MAX,
                UnderWay::Brokers => self.shared.idle_timeout.max(RESPONSE),
                UnderWay::Clients | UnderWay::Nothing => self.shared.idle_timeout,
            };
            if quiet >= patience {
                return Poll::Ready(Close::Idle);
            }
            if self.requests.is_head_late() && self.reads_requests() {
                return Poll::Ready(Close::HeadLate);
            }
            if self.requests.has_stalled() && self.shared.budget.has_waiters() {
                return Poll::Ready(Close::Stalled);
            }
            let left = patience.saturating_sub(quiet).min(self.shared.idle_timeout);
            self.set_timer(if self.is_watching {
                STALL_CHECK.min(left)
            } else {
                left
            });
        }
        Poll::Pending
    }

    /// For how long nothing came, nothing left and nothing was done here.
    fn quiet_for(&mut self) -> Duration {
        let written = self.to_client.written();
        let written = written.saturating_add(self.to_upstream.written());
        let waits = !self.to_client.is_empty() || !self.to_upstream.is_empty();
        if std::mem::replace(&mut self.seen_written, written) != written && waits {
            // Whoever it waits for reads, if slowly.
            self.acted_at = Instant::now();
        }
        self.acted_at.max(self.last_traffic).elapsed()
    }

    /// Part of a frame is here: look after it sooner than after an idle connection.
    fn watch_for_stall(&mut self) {
        if !self.is_watching {
            self.is_watching = true;
            self.set_timer(STALL_CHECK.min(self.shared.idle_timeout));
        }
    }

    fn set_timer(&mut self, after: Duration) {
        self.timer.as_mut().reset(deadline_in(after));
        self.is_timer_set = false;
    }

    /// The broker's side, connecting to it first if need be.
    fn poll_upstream(&mut self, cx: &mut Context<'_>) -> Poll<Result<&mut Stream, Close>> {
        if let Upstream::Unneeded = self.upstream {
            // Its first byte came, and an upstream connection is known before it sends one.
            let own = self.shared.connector.own();
            let here = self.client.tcp().local_addr();
            if here.is_ok_and(|here| own.is_upstream(self.who.address, here)) {
                return Poll::Ready(Err(Close::Loop));
            }
            self.upstream =
                Upstream::Connecting(Box::pin(connect(Arc::clone(&self.shared), self.route)));
        }
        if let Upstream::Connecting(connecting) = &mut self.upstream {
            match connecting.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(Close::Unreachable(error))),
                Poll::Ready(Ok(stream)) => self.upstream = Upstream::Open(stream),
            }
        }
        match &mut self.upstream {
            Upstream::Open(stream) => Poll::Ready(Ok(stream)),
            Upstream::Unneeded | Upstream::Connecting(_) => Poll::Pending,
        }
    }

    /// Lets the last bytes leave, then closes both sides.
    async fn finish(&mut self, close: Close) -> Close {
        if matches!(close, Close::Downstream(_)) {
            return close;
        }
        if matches!(close, Close::Unreachable(_)) && self.to_client.is_empty() {
            // As near as can be to the broker's own refusal to connect. An end in place of a first response some clients
            // take for missing TLS or SASL, and do not try again (franz-go).
            let _ = self.client.tcp().set_zero_linger();
            return close;
        }
        // What is half here is given up, and its memory with it.
        self.requests = Requests::default();
        self.responses = Responses::default();
        self.in_flight = InFlight::default();
        self.fetches = None;
        self.claim_fetches = None;
        self.judge.topics.forget();
        self.account();
        let Session {
            to_client,
            to_upstream,
            client,
            upstream,
            ..
        } = self;
        let is_sound = !matches!(
            close,
            Close::MalformedResponse(_) | Close::Upstream(_) | Close::ByBrokerOnLarge { .. }
        );
        let flush = async {
            if let (Upstream::Open(stream), false) = (&mut *upstream, to_upstream.is_empty()) {
                let _ = std::future::poll_fn(|cx| to_upstream.poll_write(stream, cx)).await;
            }
            let _ = std::future::poll_fn(|cx| to_client.poll_write(client, cx)).await;
            let _ = std::future::poll_fn(|cx| Pin::new(&mut *client).poll_shutdown(cx)).await;
            // Unread bytes would turn a close into a reset, and a reset can overtake what was sent.
            let from_client = tokio::time::timeout(CLIENT_LINGER, discard(client));
            let from_broker = async {
                if let (Upstream::Open(stream), true) = (upstream, is_sound) {
                    let _ =
                        std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_shutdown(cx)).await;
                    discard(stream).await;
                }
            };
            let _ = join(from_client, from_broker).await;
        };
        let _ = tokio::time::timeout(LINGER, flush).await;
        close
    }

    /// The broker this session talks to, where it is known to be a particular one.
    pub(super) fn node_id(&self) -> Option<i32> {
        self.route.node_id()
    }
}

/// Reads to the end, whatever it is.
async fn discard(stream: &mut Stream) {
    let _ = tokio::io::copy(stream, &mut tokio::io::sink()).await;
}

/// Connects where the client wants to go.
async fn connect(shared: Arc<Shared>, route: Route) -> io::Result<Stream> {
    let connecting = async {
        match route {
            Route::Bootstrap => connect_to_first(&shared, &shared.bootstrap_servers).await,
            Route::Node(node_id) => {
                let known = shared.cluster.node_address(node_id);
                let address = match known {
                    Some(address) => Some(address),
                    None => shared.cluster.find_node(node_id).await,
                };
                let address = address.ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::NotFound,
                        format!("the cluster has no broker {node_id}"),
                    )
                })?;
                shared.connector.connect(&address).await
            }
        }
    };
    tokio::time::timeout(CONNECT, connecting)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// The bootstrap list is tried in order.
async fn connect_to_first(shared: &Shared, servers: &[HostPort]) -> io::Result<Stream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no bootstrap server is configured");
    for server in servers {
        match shared.connector.connect(server).await {
            Ok(stream) => return Ok(stream),
            Err(error) => {
                last = io::Error::new(
                    error.kind(),
                    format!("{}:{}: {error}", server.host, server.port),
                )
            }
        }
    }
    Err(last)
}
