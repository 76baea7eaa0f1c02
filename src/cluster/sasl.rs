//! Authenticating to a broker: SaslHandshake, then the mechanism's own messages in SaslAuthenticate (KIP-152).

use bytes::Bytes;
use kafka_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use kafka_protocol::protocol::StrBytes;
use tokio::time::Instant;

use super::call_error::CallError;
use super::link::Link;
use super::responses::failure_name;
use super::scram::{ClientFirst, Hash};
use crate::config::{Sasl, SaslMechanism};
use crate::error_code::ILLEGAL_SASL_STATE;

/// Authenticates the link. Returns the session's lifetime in ms, 0 for ever.
pub(super) async fn authenticate(
    link: &mut Link,
    sasl: &Sasl,
    deadline: Instant,
) -> Result<i64, CallError> {
    handshake(link, sasl, deadline).await?;
    match sasl.mechanism {
        SaslMechanism::Plain => {
            // RFC 4616: no authorization identity, then user and password.
            let token = format!("\0{}\0{}", sasl.username, sasl.password);
            let (_, lifetime_ms) = send(link, sasl, token, deadline).await?;
            Ok(lifetime_ms)
        }
        SaslMechanism::ScramSha256 => scram(link, sasl, Hash::Sha256, deadline).await,
        SaslMechanism::ScramSha512 => scram(link, sasl, Hash::Sha512, deadline).await,
    }
}

async fn handshake(link: &mut Link, sasl: &Sasl, deadline: Instant) -> Result<(), CallError> {
    let mechanism = sasl.mechanism.label();
    let request =
        SaslHandshakeRequest::default().with_mechanism(StrBytes::from_static_str(mechanism));
    let response = link.call_now(&request, deadline).await?;
    match failure_name(response.error_code) {
        None => Ok(()),
        Some(_) if response.error_code == ILLEGAL_SASL_STATE => Err(link.authentication_failed(
            "this listener asks for no SASL, but cluster.admin.sasl is set".to_owned(),
        )),
        Some(error) => {
            let offered: Vec<&str> = response.mechanisms.iter().map(StrBytes::as_str).collect();
            Err(link.authentication_failed(format!(
                "{mechanism} is not taken ({error}); the broker takes {}; see cluster.admin.sasl.mechanism",
                if offered.is_empty() { "none".to_owned() } else { offered.join(", ") }
            )))
        }
    }
}

async fn scram(
    link: &mut Link,
    sasl: &Sasl,
    hash: Hash,
    deadline: Instant,
) -> Result<i64, CallError> {
    let failed =
        |link: &Link, error: &dyn std::fmt::Display| failed(link, sasl, &error.to_string());
    let client = ClientFirst::new(hash, &sasl.username, &sasl.password);
    let (server_first, _) = send(link, sasl, client.message(), deadline).await?;
    let (client, message) = client
        .prove(&server_first)
        .map_err(|error| failed(link, &error))?;
    let (server_final, lifetime_ms) = send(link, sasl, message, deadline).await?;
    client
        .verify(&server_final)
        .map_err(|error| failed(link, &error))?;
    Ok(lifetime_ms)
}

/// One message of the mechanism there, one back, and the session's lifetime in ms.
async fn send(
    link: &mut Link,
    sasl: &Sasl,
    token: String,
    deadline: Instant,
) -> Result<(String, i64), CallError> {
    let request = SaslAuthenticateRequest::default().with_auth_bytes(Bytes::from(token));
    let response = link.call_now(&request, deadline).await?;
    if let Some(error) = failure_name(response.error_code) {
        let words = response
            .error_message
            .map_or(error, |text| text.to_string());
        return Err(failed(link, sasl, &words));
    }
    match String::from_utf8(response.auth_bytes.to_vec()) {
        Ok(token) => Ok((token, response.session_lifetime_ms)),
        Err(_) => Err(failed(link, sasl, "the broker's response is not text")),
    }
}

fn failed(link: &Link, sasl: &Sasl, words: &str) -> CallError {
    let mechanism = sasl.mechanism.label();
    link.authentication_failed(format!("user {:?} by {mechanism}: {words}", sasl.username))
}
