//! Connections to the admin server: one request each, few at once, none for long.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::AdminState;
use super::routes::router;

/// Connections at once; more wait in the system's backlog. Each may hold one answer in memory (a few MB).
const CONNECTIONS: usize = 16;
/// From the accept to the end of the request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// From the accept to the last byte of the answer.
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
    Ok((address, accept(listener, router(state), shutdown)))
}

async fn accept(listener: TcpListener, router: Router, shutdown: CancellationToken) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let connections = TaskTracker::new();
    let next = async || {
        let permit = Arc::clone(&permits).acquire_owned().await.ok();
        (listener.accept().await, permit)
    };
    while let Some((accepted, permit)) = shutdown.run_until_cancelled(next()).await {
        match accepted {
            Ok((stream, _)) => {
                let answered = answer(stream, router.clone(), shutdown.clone());
                connections.spawn(async move {
                    let _permit = permit;
                    if tokio::time::timeout(WHOLE_TIMEOUT, answered).await.is_err() {
                        tracing::debug!("an admin connection took too long and was closed");
                    }
                });
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

/// One request, one answer. Not kept alive: a scraper every few seconds costs nothing, and an idle connection would
/// keep a place.
async fn answer(stream: TcpStream, router: Router, shutdown: CancellationToken) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS);
    let connection = http.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
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
