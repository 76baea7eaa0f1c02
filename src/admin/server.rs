//! Connections to the admin server: one request each, few at once, none for long.
//!
//! Invariant: whoever stalls delays no health check. A newcomer beyond [`CONNECTIONS`] ends the oldest connection, and
//! health checks need no place among the [`RESPONSES`].

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::AdminState;
use super::routes::{is_health_check, router};

/// Connections at once: each holds a socket, and until its request is here at most [`HEAD_BYTES`].
const CONNECTIONS: usize = 64;
/// Answers at once, but for health checks: each is held in memory (a few MB) until its peer has read it.
const RESPONSES: usize = 16;
/// From the accept to the end of the request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// From the accept to the last byte of the response.
const WHOLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Request line and headers.
const HEAD_BYTES: usize = 16 * 1024;
const HEADERS: usize = 64;
/// How long requests in flight are waited for at the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Binds (port 0: the system picks one), and serves while the returned future is polled. The future ends after
/// `shutdown`, once requests in flight are answered, 5 s later at most.
///
/// # Errors
/// The address cannot be bound; the message names it and the key that sets it.
pub async fn serve(
    bind: SocketAddr,
    state: AdminState,
    shutdown: CancellationToken,
) -> io::Result<(SocketAddr, impl Future<Output = ()> + Send + 'static)> {
    let named = |error: io::Error| {
        let text = format!("cannot listen on {bind} for the admin server (admin.bind): {error}");
        io::Error::new(error.kind(), text)
    };
    let listener = TcpListener::bind(bind).await.map_err(named)?;
    let address = listener.local_addr().map_err(named)?;
    let router = router(state, address.ip().is_loopback());
    Ok((address, accept(listener, router, shutdown)))
}

async fn accept(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    let responses = Arc::new(Semaphore::new(RESPONSES));
    let connections = TaskTracker::new();
    // The oldest first.
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    while let Some(accepted) = shutdown.run_until_cancelled(listener.accept()).await {
        match accepted {
            Ok((stream, _)) => {
                open.retain(|connection| !connection.is_finished());
                if open.len() >= CONNECTIONS
                    && let Some(oldest) = open.pop_front()
                {
                    oldest.abort();
                    tracing::debug!("an admin connection was closed: its place was needed");
                }
                let answered = response(
                    stream,
                    router.clone(),
                    Arc::clone(&responses),
                    shutdown.clone(),
                );
                let connection = connections.spawn(async move {
                    if tokio::time::timeout(WHOLE_TIMEOUT, answered).await.is_err() {
                        tracing::debug!("an admin connection took too long and was closed");
                    }
                });
                open.push_back(connection.abort_handle());
            }
            Err(error) => {
                // Out of file descriptors, most likely: others must close before more can come.
                tracing::warn!(%error, "the admin server cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    connections.close();
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, connections.wait()).await;
}

/// One request, one response. Not kept alive: a scraper every few seconds costs nothing, and an idle connection would
/// keep a place.
async fn response(
    stream: TcpStream,
    router: Router,
    responses: Arc<Semaphore>,
    shutdown: CancellationToken,
) {
    // Kept until the connection ends: until then it holds what its peer has not read.
    let place = Arc::new(OnceLock::new());
    let service = service_fn(|request: Request<Incoming>| {
        let router = TowerToHyperService::new(router.clone());
        let (responses, place) = (Arc::clone(&responses), Arc::clone(&place));
        async move {
            if !is_health_check(request.uri().path())
                && let Ok(permit) = responses.acquire_owned().await
            {
                let _ = place.set(permit);
            }
            router.call(request).await
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS);
    let connection = http.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let ended = match shutdown.run_until_cancelled(connection.as_mut()).await {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an admin connection broke");
    }
}
