//! Makes streams: connects to brokers, accepts from clients.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::deadline::{deadline_in, share};
use super::own::Own;
use super::read_ahead::ReadAhead;
use super::reasons::{Side, explained, tls_reason};
use super::stream::Stream;
use super::tls::{self, TlsConfigError};
use crate::config::{ClientTls, Cluster, HostPort, ServerTls};
use crate::wire::api;

/// For name lookup, TCP and TLS together. Kafka clients give a broker 10 s
/// (`socket.connection.setup.timeout.ms`); a client waiting behind us must see our failure before its own.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// For a client's TLS handshake: a peer that connects and says nothing holds a slot no longer.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to brokers. Cheap to clone; all clones follow a [`Connector::reload`].
#[derive(Clone)]
pub struct Connector {
    tls: Option<Arc<ArcSwap<ClientSide>>>,
    own: Arc<Own>,
}

#[derive(Clone)]
struct ClientSide {
    connector: TlsConnector,
    /// Verified instead of the host connected to.
    server_name: Option<ServerName<'static>>,
}

impl Connector {
    /// Reads the PEM files of `cluster.tls`.
    pub fn new(cluster: &Cluster) -> Result<Self, TlsConfigError> {
        let tls = match &cluster.tls {
            None => None,
            Some(tls) => Some(Arc::new(ArcSwap::from_pointee(ClientSide::new(tls)?))),
        };
        Ok(Self {
            tls,
            own: Own::new(None),
        })
    }

    /// With what must not be connected to.
    pub fn with_own(self, own: Arc<Own>) -> Self {
        Self { own, ..self }
    }

    /// What is this process's own.
    pub const fn own(&self) -> &Arc<Own> {
        &self.own
    }

    /// Reads the PEM files again, for connections from now on. On an error those read before stay in force.
    pub fn reload(&self, cluster: &Cluster) -> Result<(), TlsConfigError> {
        if let (Some(side), Some(tls)) = (&self.tls, &cluster.tls) {
            side.store(Arc::new(ClientSide::new(tls)?));
        }
        Ok(())
    }

    /// A stream to a broker, its TLS handshake done. Errors name the broker and the step; 8 s at most.
    pub async fn connect(&self, to: &HostPort) -> io::Result<Stream> {
        if self.own.is_loop(to) {
            let text = "connections to it come back to this sizegate, through another proxy";
            return Err(with_context(to, "connect", io::Error::other(text)));
        }
        self.connect_even_in_a_loop(to).await
    }

    /// As [`Connector::connect`], also where connections were found to come back: to see whether they still do.
    pub async fn connect_even_in_a_loop(&self, to: &HostPort) -> io::Result<Stream> {
        let deadline = deadline_in(CONNECT_TIMEOUT);
        let tcp = connect_tcp(to, deadline, &self.own)
            .await
            .map_err(|error| with_context(to, "connect", error))?;
        let mark = self.own.opened(tcp.local_addr()?, tcp.peer_addr()?);
        let Some(tls) = &self.tls else {
            return Ok(Stream::Plain(tcp, Some(mark)));
        };
        let tls = tls.load_full();
        let name = match &tls.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(to.host.clone())
                .map_err(|error| with_context(to, "TLS", io::Error::other(error)))?,
        };
        match timeout_at(deadline, tls.connector.connect(name, ReadAhead::new(tcp))).await {
            Ok(Ok(stream)) => Ok(Stream::Tls(Box::new(stream), mark)),
            Ok(Err(error)) => Err(with_context(to, "TLS", refused_by_broker(error))),
            Err(_) => Err(with_context(to, "TLS", timed_out())),
        }
    }
}

impl ClientSide {
    fn new(tls: &ClientTls) -> Result<Self, TlsConfigError> {
        let (config, server_name) = tls::client(tls)?;
        Ok(Self {
            connector: TlsConnector::from(config),
            server_name,
        })
    }
}

/// A plaintext listener of Kafka takes a TLS hello for a request of 369 MB, and closes.
fn refused_by_broker(error: io::Error) -> io::Error {
    let error = explained(error, Side::Broker);
    let kind = error.kind();
    match kind {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => io::Error::new(
            kind,
            format!("the broker closed in the handshake: is it the plaintext port? ({error})"),
        ),
        _ => error,
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

/// Every address of the name in turn, each with an even share of what is left of the time: one dead address
/// does not starve the next. An address of our own is none.
async fn connect_tcp(to: &HostPort, deadline: Instant, own: &Own) -> io::Result<TcpStream> {
    if let Some(key) = own.key_of(to) {
        return Err(is_own(key));
    }
    let found: Vec<SocketAddr> = timeout_at(deadline, lookup_host((to.host.as_str(), to.port)))
        .await
        .map_err(|_| timed_out())??
        .collect();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (address, untried) in found.iter().zip((1..=found.len()).rev()) {
        let share = share(deadline.saturating_duration_since(Instant::now()), untried);
        if let Some(key) = own.key_of_socket(*address) {
            last = is_own(key);
            continue;
        }
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(tcp)) => {
                tcp.set_nodelay(true)?;
                return Ok(tcp);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = timed_out(),
        }
    }
    Err(last)
}

/// Accepts from clients. Cheap to clone; all clones follow an [`Acceptor::reload`].
#[derive(Clone)]
pub struct Acceptor {
    tls: Option<Arc<ArcSwap<ServerConfig>>>,
}

/// Why a connection just accepted is no stream.
#[derive(Debug)]
pub enum NotAccepted {
    /// The client speaks without TLS on a port with TLS: `kafka`, `http` or `unknown`.
    Plaintext(&'static str),
    /// There is no TLS session, and this is why.
    Tls(String),
    /// The connection broke, or nothing came in time.
    Io(io::Error),
}

impl Acceptor {
    /// Reads the PEM files of `listener.tls`; without one, streams are plain.
    pub fn new(tls: Option<&ServerTls>) -> Result<Self, TlsConfigError> {
        let tls = match tls {
            None => None,
            Some(tls) => Some(Arc::new(ArcSwap::from(tls::server(tls)?))),
        };
        Ok(Self { tls })
    }

    /// Reads the PEM files again, for connections from now on. On an error those read before stay in force.
    pub fn reload(&self, tls: Option<&ServerTls>) -> Result<(), TlsConfigError> {
        if let (Some(config), Some(tls)) = (&self.tls, tls) {
            config.store(tls::server(tls)?);
        }
        Ok(())
    }

    /// The stream of a connection just accepted, its TLS handshake done (10 s at most).
    ///
    /// Await it in the connection's own task: it waits for the peer.
    pub async fn accept(&self, tcp: TcpStream) -> Result<Stream, NotAccepted> {
        tcp.set_nodelay(true)?;
        let Some(config) = &self.tls else {
            return Ok(Stream::Plain(tcp, None));
        };
        let acceptor = TlsAcceptor::from(config.load_full());
        let handshake = async {
            if let Some(protocol) = plaintext(&tcp).await? {
                return Err(NotAccepted::Plaintext(protocol));
            }
            let stream = acceptor.accept(ReadAhead::new(tcp)).await?;
            Ok(Stream::TlsServer(Box::new(stream)))
        };
        timeout(ACCEPT_TIMEOUT, handshake)
            .await
            .unwrap_or_else(|_| Err(NotAccepted::Io(timed_out())))
    }
}

impl From<io::Error> for NotAccepted {
    fn from(error: io::Error) -> Self {
        match tls_reason(&error, Side::Client) {
            Some(reason) => Self::Tls(reason),
            None => Self::Io(error),
        }
    }
}

/// What the client speaks, if it is not TLS. Looks at its first bytes without taking them.
async fn plaintext(tcp: &TcpStream) -> io::Result<Option<&'static str>> {
    let mut first = [0; 4];
    let came = tcp.peek(&mut first).await?;
    Ok(match (came, first) {
        (0, _) => return Err(io::ErrorKind::UnexpectedEof.into()),
        // A handshake record.
        (_, [0x16, ..]) => None,
        // The length of a request below 16 MiB.
        (_, [0, ..]) => Some("kafka"),
        (4, first) => api::foreign_protocol(first).or(Some("unknown")),
        _ => Some("unknown"),
    })
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

fn is_own(key: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::AddrInUse,
        format!("that is sizegate's own address ({key})"),
    )
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "timed out")
}

fn with_context(to: &HostPort, step: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{step} {to}: {error}"))
}
