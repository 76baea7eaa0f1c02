//! Reports ended connections: metrics by reason, and a line where the reason is worth knowing.
//!
//! Invariant: every reason is counted; of one client and reason at most one line a minute is written, with the count.

use std::net::SocketAddr;
use std::sync::Arc;

use super::session::Close;
use super::{ClientInfo, Shared};
use crate::net::{Side, tls_reason};

/// A connection that counts as open until it is noted why it ended, or until its session is gone without a word: then
/// it has panicked, which is one connection's misfortune.
pub(super) struct Open {
    shared: Arc<Shared>,
    address: SocketAddr,
    is_noted: bool,
}

impl Open {
    /// Counts it.
    pub(super) fn count(shared: &Arc<Shared>, address: SocketAddr) -> Self {
        shared.metrics.connection_opened();
        Self {
            shared: Arc::clone(shared),
            address,
            is_noted: false,
        }
    }

    /// It ended.
    pub(super) fn note(mut self, who: &ClientInfo, close: &Close) {
        self.is_noted = true;
        note(who, close, &self.shared);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if !self.is_noted {
            self.shared.metrics.connection_closed("internal_error");
            if std::thread::panicking() {
                tracing::error!(client = %self.address, reason = "internal_error", "connection closed: its session panicked; the lines before this one say where");
            }
        }
    }
}

/// Counts and logs the end of one connection.
fn note(who: &ClientInfo, close: &Close, shared: &Shared) {
    count(close, shared);
    let Some(detail) = detail(close) else {
        // Nothing is wrong, or nobody can help it.
        tracing::debug!(client = %who.address, client_id = who.client_id_text(), reason = close.label(), close = ?close, "connection closed");
        return;
    };
    shared.close_log.log_close(
        who.address,
        who.client_id_text(),
        close.label(),
        &detail,
        || write(who, close, &detail, shared),
    );
}

fn count(close: &Close, shared: &Shared) {
    shared.metrics.connection_closed(close.label());
    match close {
        Close::MalformedRequest(malformed) | Close::MalformedResponse(malformed) => {
            shared.metrics.malformed(malformed.reason.label());
        }
        Close::Foreign(protocol) => shared.metrics.frames_refused(protocol),
        Close::Plaintext(_) => shared.metrics.frames_refused("plaintext"),
        Close::FrameTooLarge { .. } => shared.metrics.frames_refused("closed"),
        _ => {}
    }
}

/// What tells apart the closes of one reason; `None`: not worth a line. In TLS 1.3 a client learns only after its
/// handshake that its certificate was not accepted, so a connection that broke may have no TLS session.
fn detail(close: &Close) -> Option<String> {
    match close {
        Close::ByClient | Close::ByBroker | Close::Idle | Close::Shutdown => None,
        Close::Downstream(error) => tls_reason(error, Side::Client),
        Close::Upstream(error) => tls_reason(error, Side::Broker),
        Close::MalformedRequest(malformed) | Close::MalformedResponse(malformed) => {
            Some(format!("{}: {}", malformed.field, malformed.reason.label()))
        }
        Close::Foreign(protocol) | Close::Plaintext(protocol) => Some((*protocol).to_owned()),
        Close::NoTls(why) => Some(why.clone()),
        Close::FrameTooLarge { api_key, .. } => Some(format!("api_key {api_key}")),
        Close::Unreachable(error) => Some(error.to_string()),
        Close::ByBrokerOnLarge { .. } => Some("large Produce".to_owned()),
        Close::RefusedWithoutResponse | Close::Stalled | Close::HeadLate | Close::Loop => {
            Some(String::new())
        }
    }
}

fn write(who: &ClientInfo, close: &Close, detail: &str, shared: &Shared) {
    let client = who.address;
    let client_id = who.client_id_text();
    let reason = close.label();
    match close {
        Close::ByClient | Close::ByBroker | Close::Idle | Close::Shutdown => {}
        Close::MalformedRequest(malformed) => {
            tracing::warn!(%client, client_id, reason, field = malformed.field, problem = malformed.reason.label(), "connection closed: the request is not the Kafka protocol");
        }
        Close::MalformedResponse(malformed) => {
            tracing::error!(%client, client_id, reason, field = malformed.field, problem = malformed.reason.label(), "connection closed: the broker's response is not what was asked for");
        }
        Close::Foreign(protocol) => {
            tracing::warn!(%client, reason, protocol, "connection closed: the client speaks {protocol}, this port speaks the Kafka protocol without TLS");
        }
        Close::Plaintext(protocol) => {
            tracing::warn!(%client, reason, protocol, "connection closed: the client speaks without TLS, this port speaks TLS (listener.tls); a Kafka client needs security.protocol=SSL or SASL_SSL");
        }
        Close::NoTls(why) => {
            tracing::warn!(%client, reason, "connection closed: no TLS session: {why}");
        }
        Close::FrameTooLarge {
            api_key,
            request_bytes,
        } => {
            tracing::warn!(%client, client_id, reason, api_key, request_bytes, limit_bytes = shared.frame_bytes, "connection closed: a request above listener.frame_bytes that is no Produce");
        }
        Close::RefusedWithoutResponse => {
            tracing::info!(%client, client_id, reason, "connection closed: a Produce with acks=0 was refused, and closing is the only response it can have");
        }
        Close::Loop => {
            tracing::error!(%client, client_id, reason, "connection closed: the client is this sizegate itself. An address in cluster.bootstrap_servers or in a broker's advertised.listeners leads back to it");
        }
        Close::Stalled => {
            tracing::warn!(%client, client_id, reason, "connection closed: half a request held memory that others waited for, and too little of the rest came");
        }
        Close::HeadLate => {
            tracing::warn!(%client, client_id, reason, "connection closed: the first bytes of a request came, and not the rest of its head");
        }
        Close::Unreachable(error) => {
            tracing::warn!(%client, client_id, reason, %error, "connection closed: no broker to talk to");
        }
        Close::ByBrokerOnLarge { request_bytes, .. } => {
            tracing::warn!(%client, client_id, reason, request_bytes, "connection closed: the broker closed it instead of answering a Produce of this size, most likely above its socket.request.max.bytes, which sizegate may not read (DescribeConfigs on the cluster)");
        }
        Close::Downstream(_) | Close::Upstream(_) => {
            tracing::warn!(%client, client_id, reason, "connection broke: no TLS session: {detail}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing;

    #[tokio::test]
    async fn a_session_that_panics_is_no_longer_open_and_has_its_own_reason() {
        let shared = testing::shared("");
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let open = Open::count(&shared, address);
        assert_eq!(shared.metrics.open_connections(), 1);
        let session = tokio::spawn(async move {
            let _open = open;
            panic!("on purpose: a session that panics");
        });
        assert!(session.await.is_err_and(|error| error.is_panic()));
        assert_eq!(shared.metrics.open_connections(), 0);
        let text = shared.metrics.render().unwrap();
        let closed = "sizegate_connections_closed_total{reason=\"internal_error\"} 1";
        assert!(text.contains(closed), "{text}");
    }
}
