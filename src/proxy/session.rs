//! One client connection with its one upstream connection: a state machine that is driven by one task.
//!
//! `requests` is the way from the client to the broker, `answers` the way back; both are polled in turn and
//! share the ledger without a lock. Bytes are read into a buffer that belongs to the worker thread, and leave
//! it as slices: an idle session holds no buffer.

mod answers;
mod buffers;
mod explain;
mod hearsay;
mod requests;
mod sasl;

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::{join, join_all};
use tokio::io::AsyncWrite;
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

use self::answers::Answers;
use self::requests::Requests;
use self::sasl::Exchange;
use super::book::Route;
use super::fetches::Fetches;
use super::ledger::Ledger;
use super::outbox::Outbox;
use super::verdict::{Asked, CURRENT, Confirmed, Doubt, Judge, Question, inspect_long};
use super::{ClientInfo, Shared};
use crate::cluster::{Lookup, TopicName};
use crate::config::HostPort;
use crate::net::Stream;
use crate::policy::Learned;
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
/// How long a client's or broker's last bytes may take to leave.
const LINGER: Duration = Duration::from_secs(10);
/// How long a client that was told goodbye may go on sending.
const CLIENT_LINGER: Duration = Duration::from_secs(2);
/// How long a broker is given to accept a connection, over all addresses tried.
const CONNECT: Duration = Duration::from_secs(15);
/// How long the control plane is waited for before a verdict: one question, and a little of another.
const ASK: Duration = Duration::from_secs(8);

/// Why a session ended.
#[derive(Debug)]
pub enum Close {
    /// The client closed, and has all its answers.
    ByClient,
    /// The broker closed.
    ByBroker,
    /// The client's bytes are not the protocol.
    MalformedRequest(Malformed),
    /// The broker's bytes are not the protocol.
    MalformedAnswer(Malformed),
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
    RefusedWithoutAnswer,
    /// No broker to talk to.
    Unreachable(io::Error),
    /// Nothing came or went for `idle_timeout`.
    Idle,
    /// Half a frame held memory that others waited for.
    Stalled,
    /// The proxy is going down, and everything in flight is answered.
    Shutdown,
    /// The client's side broke.
    Downstream(io::Error),
    /// The broker's side broke.
    Upstream(io::Error),
}

impl Close {
    /// The metric label and log field.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::ByClient => "client_closed",
            Self::ByBroker => "broker_closed",
            Self::MalformedRequest(_) => "malformed_request",
            Self::MalformedAnswer(_) => "malformed_answer",
            Self::Foreign(_) => "foreign_protocol",
            Self::Plaintext(_) => "plaintext",
            Self::NoTls(_) => "tls",
            Self::FrameTooLarge { .. } => "frame_too_large",
            Self::RefusedWithoutAnswer => "refused_without_answer",
            Self::Unreachable(_) => "broker_unreachable",
            Self::Idle => "idle",
            Self::Stalled => "stalled",
            Self::Shutdown => "shutdown",
            Self::Downstream(_) => "client_error",
            Self::Upstream(_) => "broker_error",
        }
    }
}

/// The broker's side.
enum Upstream {
    /// No byte has come yet that it would be needed for.
    Unneeded,
    Connecting(Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>),
    Open(Stream),
}

/// A session in progress.
pub struct Session {
    shared: Arc<Shared>,
    who: ClientInfo,
    route: Route,
    client: Stream,
    upstream: Upstream,
    requests: Requests,
    answers: Answers,
    ledger: Ledger,
    judge: Judge,
    /// None while the client consumes nothing.
    fetches: Option<Box<Fetches>>,
    exchange: Exchange,
    to_upstream: Outbox,
    to_client: Outbox,
    last_traffic: Instant,
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
    pub async fn serve(
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
            answers: Answers::default(),
            ledger: Ledger::default(),
            judge: Judge::new(Arc::clone(&shared), route.node_id()),
            fetches: None,
            exchange: Exchange::default(),
            to_upstream: Outbox::default(),
            to_client: Outbox::default(),
            last_traffic: Instant::now(),
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
        let close = session.finish(close).await;
        (session.who, close)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Close> {
        self.is_draining |= self.shared.is_draining.load(Ordering::Relaxed);
        loop {
            let step = self
                .poll_requests(cx)
                .and_then(|requests| Ok(self.poll_answers(cx)? || requests));
            match step {
                Err(close) => return Poll::Ready(close),
                Ok(true) => {}
                Ok(false) => break,
            }
        }
        if let Some(close) = self.is_finished() {
            return Poll::Ready(close);
        }
        self.poll_timer(cx)
    }

    /// Everything that was asked is answered, and no more will be asked.
    fn is_finished(&mut self) -> Option<Close> {
        let is_quiet = self.ledger.is_empty()
            && self.to_client.is_empty()
            && self.to_upstream.is_empty()
            && !self.requests.is_busy();
        if !is_quiet {
            return None;
        }
        self.requests
            .ended
            .take()
            .or(self.is_draining.then_some(Close::Shutdown))
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Close> {
        while !self.is_timer_set || self.timer.is_elapsed() {
            self.is_timer_set = true;
            if self.timer.as_mut().poll(cx).is_pending() {
                break;
            }
            let quiet = self.last_traffic.elapsed();
            self.is_watching = self.requests.holds_half_a_frame();
            if quiet >= self.shared.idle_timeout {
                return Poll::Ready(Close::Idle);
            }
            if self.requests.has_stalled() && self.shared.budget.has_waiters() {
                return Poll::Ready(Close::Stalled);
            }
            let idle = self.shared.idle_timeout.saturating_sub(quiet);
            self.set_timer(if self.is_watching {
                STALL_CHECK.min(idle)
            } else {
                idle
            });
        }
        Poll::Pending
    }

    /// Half a frame is here: look after it sooner than after an idle connection.
    fn watch_for_stall(&mut self) {
        if !self.is_watching {
            self.is_watching = true;
            self.set_timer(STALL_CHECK.min(self.shared.idle_timeout));
        }
    }

    fn set_timer(&mut self, after: Duration) {
        self.timer
            .as_mut()
            .reset(tokio::time::Instant::now() + after);
        self.is_timer_set = false;
    }

    /// The broker's side, connecting to it first if need be.
    fn poll_upstream(&mut self, cx: &mut Context<'_>) -> Poll<Result<&mut Stream, Close>> {
        if let Upstream::Unneeded = self.upstream {
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
        // What is half here is given up, and its memory with it.
        self.requests = Requests::default();
        self.answers = Answers::default();
        let Session {
            to_client,
            to_upstream,
            client,
            upstream,
            ..
        } = self;
        let is_sound = !matches!(close, Close::MalformedAnswer(_) | Close::Upstream(_));
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

    /// Finds out what the verdict on `frame` needs, in the background of this session only.
    fn ask(&self, question: Question, mut asked: Asked, frame: &Bytes) -> Asking {
        let shared = Arc::clone(&self.shared);
        let node_id = self.node_id();
        let frame = frame.clone();
        Box::pin(async move {
            match question {
                Question::Ids(ids) => {
                    asked.ids = true;
                    let lookups = ids
                        .into_iter()
                        .map(|id| shared.cluster.find_topic_at(TopicName::Id(id), node_id));
                    let _ = tokio::time::timeout(ASK, join_all(lookups)).await;
                }
                Question::Names(names) => {
                    asked.names = true;
                    let lookups = names.iter().map(|name| first_look(&shared, name, node_id));
                    let _ = tokio::time::timeout(ASK, join_all(lookups)).await;
                }
                Question::Topics(doubts) => {
                    asked.limits = true;
                    let confirming =
                        join_all(doubts.iter().map(|doubt| confirm(&shared, doubt, node_id)));
                    let confirmed = tokio::time::timeout(ASK, confirming)
                        .await
                        .unwrap_or_else(|_| vec![Confirmed::Unseen; doubts.len()]);
                    for (doubt, confirmed) in doubts.into_iter().zip(confirmed) {
                        asked.confirm(doubt.topic, confirmed);
                    }
                }
                Question::Decode(decodes) => {
                    let _turn = shared.decoding.acquire().await;
                    let inspected =
                        tokio::task::spawn_blocking(move || inspect_long(&frame, &decodes)).await;
                    asked.inspect(inspected.unwrap_or_default());
                }
            }
            asked
        })
    }
}

/// Reads to the end, whatever it is.
async fn discard(stream: &mut Stream) {
    let _ = tokio::io::copy(stream, &mut tokio::io::sink()).await;
}

/// What is asked before a verdict, and comes back with what has been asked.
type Asking = Pin<Box<dyn Future<Output = Asked> + Send>>;

/// Finds a topic, and reads its limits if they, or what topics inherit from this broker, were never read.
async fn first_look(shared: &Shared, name: &str, node_id: Option<i32>) {
    let found = shared.cluster.find_topic_at(TopicName::Name(name), node_id);
    let Lookup::Found(topic) = found.await else {
        return;
    };
    let node = node_id.and_then(|id| shared.cluster.node(id));
    if topic.limits_age().is_none() || node.is_some_and(|node| !node.is_read()) {
        // Without it, what was read from another broker is the best there is.
        let _ = shared.cluster.read_limits(&topic, node_id, CURRENT).await;
    }
}

/// Makes sure of a topic and of its limits as `node_id` applies them now. Where its partition is in doubt the broker
/// itself is asked: another one may be behind it.
async fn confirm(shared: &Shared, doubt: &Doubt, node_id: Option<i32>) -> Confirmed {
    let cluster = &shared.cluster;
    let name = TopicName::Name(&doubt.topic);
    let found = if doubt.is_place_in_doubt {
        let named = doubt.id.map_or(name, TopicName::Id);
        cluster.look_again(named, node_id, CURRENT).await
    } else {
        cluster.find_topic_at(name, node_id).await
    };
    let topic = match found {
        Lookup::Found(topic) => topic,
        Lookup::Absent => return Confirmed::Absent,
        Lookup::Hidden | Lookup::Unreachable => return Confirmed::Unseen,
    };
    match cluster.read_limits(&topic, node_id, CURRENT).await {
        Ok(limits) => Confirmed::Here(limits.batch_limit().map(Learned::own)),
        Err(_) => Confirmed::Here(None),
    }
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
