//! Makes streams: connects to brokers, accepts from clients.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::stream::Stream;
use super::tls::{self, TlsConfigError};
use crate::config::{Cluster, HostPort, ServerTls};

/// For name lookup, TCP and TLS together. Kafka clients give a broker 10 s
/// (`socket.connection.setup.timeout.ms`); a client waiting behind us must see our failure before its own.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(8);

/// For a client's TLS handshake: a peer that connects and says nothing holds a slot no longer.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);

/// Connects to brokers. Cheap to clone.
#[derive(Clone)]
pub struct Connector {
    tls: Option<ClientSide>,
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
            Some(tls) => {
                let (config, server_name) = tls::client(tls)?;
                Some(ClientSide {
                    connector: TlsConnector::from(config),
                    server_name,
                })
            }
        };
        Ok(Self { tls })
    }

    /// A stream to a broker, its TLS handshake done. Errors name the broker and the step; 8 s at most.
    pub async fn connect(&self, to: &HostPort) -> io::Result<Stream> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let tcp = connect_tcp(to, deadline)
            .await
            .map_err(|error| with_context(to, "connect", error))?;
        let Some(tls) = &self.tls else {
            return Ok(Stream::Plain(tcp));
        };
        let name = match &tls.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(to.host.clone())
                .map_err(|error| with_context(to, "TLS", io::Error::other(error)))?,
        };
        match timeout_at(deadline, tls.connector.connect(name, tcp)).await {
            Ok(Ok(stream)) => Ok(Stream::Tls(Box::new(stream))),
            Ok(Err(error)) => Err(with_context(to, "TLS", error)),
            Err(_) => Err(with_context(to, "TLS", timed_out())),
        }
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
/// does not starve the next.
async fn connect_tcp(to: &HostPort, deadline: Instant) -> io::Result<TcpStream> {
    let found: Vec<SocketAddr> = timeout_at(deadline, lookup_host((to.host.as_str(), to.port)))
        .await
        .map_err(|_| timed_out())??
        .collect();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for (tried, address) in found.iter().enumerate() {
        let untried = u32::try_from(found.len() - tried).unwrap_or(u32::MAX);
        let share = deadline.saturating_duration_since(Instant::now()) / untried;
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

/// Accepts from clients. Cheap to clone.
#[derive(Clone)]
pub struct Acceptor {
    tls: Option<TlsAcceptor>,
}

impl Acceptor {
    /// Reads the PEM files of `listener.tls`; without one, streams are plain.
    pub fn new(tls: Option<&ServerTls>) -> Result<Self, TlsConfigError> {
        let tls = match tls {
            None => None,
            Some(tls) => Some(TlsAcceptor::from(tls::server(tls)?)),
        };
        Ok(Self { tls })
    }

    /// The stream of a connection just accepted, its TLS handshake done (10 s at most).
    ///
    /// Await it in the connection's own task: it waits for the peer.
    pub async fn accept(&self, tcp: TcpStream) -> io::Result<Stream> {
        tcp.set_nodelay(true)?;
        let Some(tls) = &self.tls else {
            return Ok(Stream::Plain(tcp));
        };
        match timeout(ACCEPT_TIMEOUT, tls.accept(tcp)).await {
            Ok(Ok(stream)) => Ok(Stream::TlsServer(Box::new(stream))),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(timed_out()),
        }
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

fn timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "timed out")
}

fn with_context(to: &HostPort, step: &str, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{step} {to}: {error}"))
}
