//! What is said of a connection that ended: metrics by reason, and a line where the reason is worth knowing.
//!
//! Invariant: every reason is counted; of one client and reason at most one line a minute is written, with the count.

use super::session::Close;
use super::{ClientInfo, Shared};
use crate::net::{Peer, tls_reason};

/// Counts and logs the end of one connection.
pub(super) fn note(who: &ClientInfo, close: &Close, shared: &Shared) {
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
        Close::MalformedRequest(malformed) | Close::MalformedAnswer(malformed) => {
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
        Close::Downstream(error) => tls_reason(error, Peer::Client),
        Close::Upstream(error) => tls_reason(error, Peer::Broker),
        Close::MalformedRequest(malformed) | Close::MalformedAnswer(malformed) => {
            Some(format!("{}: {}", malformed.field, malformed.reason.label()))
        }
        Close::Foreign(protocol) | Close::Plaintext(protocol) => Some((*protocol).to_owned()),
        Close::NoTls(why) => Some(why.clone()),
        Close::FrameTooLarge { api_key, .. } => Some(format!("api_key {api_key}")),
        Close::Unreachable(error) => Some(error.to_string()),
        Close::RefusedWithoutAnswer | Close::Stalled | Close::Loop => Some(String::new()),
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
        Close::MalformedAnswer(malformed) => {
            tracing::error!(%client, client_id, reason, field = malformed.field, problem = malformed.reason.label(), "connection closed: the broker's answer is not what was asked for");
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
        Close::RefusedWithoutAnswer => {
            tracing::info!(%client, client_id, reason, "connection closed: a Produce with acks=0 was refused, and closing is the only answer it can have");
        }
        Close::Loop => {
            tracing::error!(%client, client_id, reason, "connection closed: the client is this sizegate itself. An address in cluster.bootstrap_servers or in a broker's advertised.listeners leads back to it");
        }
        Close::Stalled => {
            tracing::warn!(%client, client_id, reason, "connection closed: half a request held memory that others waited for, and too little of the rest came");
        }
        Close::Unreachable(error) => {
            tracing::warn!(%client, client_id, reason, %error, "connection closed: no broker to talk to");
        }
        Close::Downstream(_) | Close::Upstream(_) => {
            tracing::warn!(%client, client_id, reason, "connection broke: no TLS session: {detail}");
        }
    }
}
