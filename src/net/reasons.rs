//! Explains to a person why there is no TLS session: which side is at fault, what is wrong, and which key to look at.
//!
//! Invariant: rustls' own words stand at the end of every reason, in brackets, so that nothing is lost.

use std::io;

use rustls::{AlertDescription, CertificateError, Error};

/// Who is on the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// A client of ours.
    Client,
    /// A broker.
    Broker,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "the client",
            Self::Broker => "the broker",
        }
    }

    /// Our own certificate towards this peer.
    const fn our_certificate(self) -> &'static str {
        match self {
            Self::Client => "listener.tls.cert_file",
            Self::Broker => "cluster.tls.cert_file",
        }
    }

    /// What we verify this peer with.
    const fn our_authorities(self) -> &'static str {
        match self {
            Self::Client => "listener.tls.client_ca_file",
            Self::Broker => "cluster.tls.ca_file",
        }
    }
}

/// The reason in an error of a TLS stream or handshake; `None` where TLS is not to blame.
pub fn tls_reason(error: &io::Error, peer: Side) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(format!("{} ({error})", in_words(error, peer)))
}

/// The same error, with the reason in words where TLS is to blame. In TLS 1.3 a peer's refusal of our certificate comes
/// with the first read, after the handshake.
pub fn explained(error: io::Error, peer: Side) -> io::Error {
    match tls_reason(&error, peer) {
        Some(reason) => io::Error::new(error.kind(), reason),
        None => error,
    }
}

fn in_words(error: &Error, peer: Side) -> String {
    let who = peer.name();
    match error {
        Error::AlertReceived(alert) => alert_in_words(*alert, peer),
        Error::InvalidCertificate(why) => certificate_in_words(why, peer),
        Error::NoCertificatesPresented => format!(
            "{who} brings no certificate, and {} asks for one",
            peer.our_authorities()
        ),
        Error::InvalidMessage(_) => format!("{who} speaks no TLS here: is it the plaintext port?"),
        Error::PeerIncompatible(_) => {
            format!("{who} and sizegate have no TLS version (1.2, 1.3) or cipher in common")
        }
        _ => format!("{who} and sizegate do not come to terms"),
    }
}

/// What the peer says of us (RFC 8446, section 6.2). Java says `certificate_unknown` for nearly everything.
fn alert_in_words(alert: AlertDescription, peer: Side) -> String {
    let (who, ours) = (peer.name(), peer.our_certificate());
    match alert {
        AlertDescription::CertificateExpired => {
            format!("{who} says that our certificate has expired: {ours}")
        }
        AlertDescription::UnknownCA => {
            format!("{who} does not trust the authority of our certificate: {ours}")
        }
        AlertDescription::CertificateRequired | AlertDescription::BadCertificate
            if peer == Side::Broker =>
        {
            format!("the broker asks for a certificate that it trusts: {ours}")
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown => format!(
            "{who} does not accept our certificate (its authority, its names or its dates): {ours}"
        ),
        AlertDescription::ProtocolVersion
        | AlertDescription::HandshakeFailure
        | AlertDescription::InsufficientSecurity => {
            format!("{who} and sizegate have no TLS version (1.2, 1.3) or cipher in common")
        }
        AlertDescription::UnrecognisedName => {
            format!("{who} has no certificate for the name asked for")
        }
        _ => format!("{who} ended the handshake"),
    }
}

fn certificate_in_words(why: &CertificateError, peer: Side) -> String {
    let whose = match peer {
        Side::Client => "the client's certificate",
        Side::Broker => "the broker's certificate",
    };
    match why {
        CertificateError::ExpiredContext { time, not_after } => {
            let ago = time.as_secs().saturating_sub(not_after.as_secs());
            format!("{whose} expired {} ago", span(ago))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            let ahead = not_before.as_secs().saturating_sub(time.as_secs());
            format!("{whose} is not valid before {} from now", span(ahead))
        }
        CertificateError::Expired => format!("{whose} has expired"),
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            format!("{whose} is by no authority in {}", peer.our_authorities())
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("{whose} is for another name: see cluster.tls.server_name")
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            format!("{whose} is for another purpose (its extended key usage)")
        }
        _ => format!("{whose} is not acceptable"),
    }
}

/// A time span as people say it.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} minutes", seconds / 60),
        7_200..172_800 => format!("{} hours", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(error: Error, peer: Side) -> String {
        tls_reason(&io::Error::other(error), peer).expect("a reason")
    }

    #[test]
    fn who_is_at_fault_and_which_key_to_look_at_is_said() {
        for (error, peer, words) in [
            (
                Error::NoCertificatesPresented,
                Side::Client,
                "the client brings no certificate, and listener.tls.client_ca_file asks for one (",
            ),
            (
                Error::AlertReceived(AlertDescription::CertificateUnknown),
                Side::Client,
                "the client does not accept our certificate",
            ),
            (
                Error::AlertReceived(AlertDescription::BadCertificate),
                Side::Broker,
                "the broker asks for a certificate that it trusts: cluster.tls.cert_file (",
            ),
            (
                Error::InvalidCertificate(CertificateError::UnknownIssuer),
                Side::Broker,
                "the broker's certificate is by no authority in cluster.tls.ca_file (",
            ),
        ] {
            let text = reason(error.clone(), peer);
            assert!(text.starts_with(words), "{text}");
            assert!(text.ends_with(&format!("({error})")), "{text}");
        }
    }

    #[test]
    fn an_error_of_the_network_is_none_of_tls() {
        let error = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(tls_reason(&error, Side::Client), None);
    }

    #[test]
    fn spans_are_said_in_a_unit_that_fits() {
        for (seconds, text) in [
            (5, "5 s"),
            (600, "10 minutes"),
            (7_200, "2 hours"),
            (864_000, "10 days"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }
}
