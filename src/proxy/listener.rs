//! Listening sockets, and a session for every client that comes.
//!
//! The bootstrap address and each broker's port are bound once, at start: a broker that joins later is reached
//! at the port that was waiting for it. Sessions are dealt out to the workers in turn.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::advertised::Route;
use super::session::{Close, Session};
use super::{ClientInfo, Shared, closed};
use crate::net::NotAccepted;

/// Sockets that are bound but not served yet.
pub struct Listeners {
    sockets: Vec<(TcpListener, Route)>,
}

/// What serves the sockets.
pub struct BoundSockets {
    /// Where sessions run.
    pub workers: Vec<Handle>,
    /// Sessions in progress.
    pub sessions: TaskTracker,
    /// Stop accepting, and end sessions when what is in flight is answered.
    pub shutdown: CancellationToken,
    /// Client connections at once.
    pub max_connections: usize,
}

impl Listeners {
    /// Binds the bootstrap address and every broker's port.
    ///
    /// # Errors
    /// The first address that cannot be bound, by name.
    pub async fn bind(bind: SocketAddr, shared: &Shared) -> io::Result<Self> {
        let mut sockets = vec![(listen(bind, "listener.bind").await?, Route::Bootstrap)];
        for (port, node_id) in shared.advertised.node_ports() {
            let address = SocketAddr::new(bind.ip(), port);
            let key = format!("listener.node_ports, broker {node_id}");
            sockets.push((listen(address, &key).await?, Route::Node(node_id)));
        }
        Ok(Self { sockets })
    }

    /// Accepts until shutdown. Each socket has a task of its own on the current runtime.
    pub fn serve(self, shared: &Arc<Shared>, bound: BoundSockets) -> Arc<BoundSockets> {
        let bound = Arc::new(bound);
        let next = Arc::new(AtomicUsize::new(0));
        for (socket, route) in self.sockets {
            tokio::spawn(accept(
                socket,
                route,
                Arc::clone(shared),
                Arc::clone(&bound),
                Arc::clone(&next),
            ));
        }
        bound
    }
}

/// The error names the address and the key that sets it.
async fn listen(address: SocketAddr, key: &str) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        let text = format!("cannot listen on {address} ({key}): {error}");
        io::Error::new(error.kind(), text)
    })
}

async fn accept(
    socket: TcpListener,
    route: Route,
    shared: Arc<Shared>,
    bound: Arc<BoundSockets>,
    next: Arc<AtomicUsize>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = bound.shutdown.cancelled() => return,
        };
        match accepted {
            Ok((stream, address)) if bound.sessions.len() >= bound.max_connections => {
                drop(stream);
                shared.metrics.connection_opened();
                shared.metrics.connection_closed("too_many");
                shared.close_log.log_close(address, "", "too_many", "", || {
                    tracing::warn!(client = %address, max_connections = bound.max_connections, "connection refused: listener.max_connections are open");
                });
            }
            Ok((stream, address)) => {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                let turn = turn.checked_rem(bound.workers.len());
                let Some(worker) = turn.and_then(|turn| bound.workers.get(turn)) else {
                    return;
                };
                let session = run(
                    stream,
                    address,
                    route,
                    Arc::clone(&shared),
                    bound.shutdown.clone(),
                );
                worker.spawn(bound.sessions.track_future(session));
            }
            Err(error) => {
                // Out of file descriptors, most likely: others must close before more can come.
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

/// One client, from its first byte to its last.
async fn run(
    stream: TcpStream,
    address: SocketAddr,
    route: Route,
    shared: Arc<Shared>,
    shutdown: CancellationToken,
) {
    // The socket belongs to the runtime that accepted it; move it to the one that serves it.
    let stream = match stream.into_std().and_then(TcpStream::from_std) {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(client = %address, %error, "a connection could not be moved to its worker");
            return;
        }
    };
    let open = closed::Open::count(&shared, address);
    let (who, close) = serve(stream, address, route, &shared, shutdown).await;
    open.note(&who, &close);
}

async fn serve(
    stream: TcpStream,
    address: SocketAddr,
    route: Route,
    shared: &Arc<Shared>,
    shutdown: CancellationToken,
) -> (ClientInfo, Close) {
    let who = ClientInfo {
        address,
        client_id: None,
        software: None,
        principal: None,
        revision: 0,
    };
    let client = match shared.acceptor.accept(stream).await {
        Ok(client) => client,
        Err(NotAccepted::Plaintext(protocol)) => return (who, Close::Plaintext(protocol)),
        Err(NotAccepted::Tls(reason)) => return (who, Close::NoTls(reason)),
        Err(NotAccepted::Io(error)) => return (who, Close::Downstream(error)),
    };
    let route = match route {
        Route::Node(_) => Some(route),
        Route::Bootstrap => shared.advertised.route_by_name(client.server_name()),
    };
    let Some(route) = route else {
        let reason = match client.server_name() {
            Some(name) => format!("{name:?} is none of the names in listener.sni"),
            None => "the client names no server (SNI), and listener.sni goes by that: it must connect to a \
                     name, not to an IP address"
                .to_owned(),
        };
        return (who, Close::NoTls(reason));
    };
    Box::pin(Session::serve(
        Arc::clone(shared),
        client,
        who,
        route,
        shutdown,
    ))
    .await
}
