//! SASL: who authenticates, read from the exchange that passes by. The name only, never the secret.
//!
//! Sources: KIP-43 and KIP-152 (SaslHandshake, SaslAuthenticate), RFC 4616 (PLAIN), RFC 5802 (SCRAM).
//!
//! Invariant: a name is read whole or not at all. One cut short could be somebody else's.

use super::{Malformed, Reader, api};

/// How a client authenticates, as far as its name can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// PLAIN
    Plain,
    /// SCRAM-SHA-256 or SCRAM-SHA-512
    Scram,
    /// One whose messages tell no name that we could read: OAUTHBEARER, GSSAPI, …
    Other,
}

/// The highest version of SaslAuthenticate (request and response) that is read here.
pub const HIGHEST_AUTHENTICATE: i16 = 2;

/// Longer names are not read: they are labels in logs, and patterns in rules.
const LONGEST_NAME: usize = 256;

/// The mechanism that a whole SaslHandshake frame asks for (versions 0 and 1 are alike).
pub fn mechanism(frame: &[u8]) -> Result<Mechanism, Malformed> {
    let r = &mut Reader::new(frame);
    r.take(api::HEAD_BYTES, "request_header")?;
    api::client_id(r)?;
    Ok(match r.string(false, "mechanism")? {
        Some(b"PLAIN") => Mechanism::Plain,
        Some(b"SCRAM-SHA-256" | b"SCRAM-SHA-512") => Mechanism::Scram,
        _ => Mechanism::Other,
    })
}

/// The name that the first message of an exchange claims, from a whole SaslAuthenticate frame. `None` where the
/// mechanism shows none, or none that can be shown.
pub fn claimed_name(
    frame: &[u8],
    version: i16,
    mechanism: Mechanism,
) -> Result<Option<String>, Malformed> {
    let flexible = version >= 2;
    let r = &mut Reader::new(frame);
    r.take(api::HEAD_BYTES, "request_header")?;
    api::client_id(r)?;
    if flexible {
        r.skip_tags("request_header_tags")?;
    }
    let message = r.bytes(flexible, "auth_bytes")?.unwrap_or_default();
    let name = match mechanism {
        Mechanism::Plain => plain_name(message),
        Mechanism::Scram => scram_name(message),
        Mechanism::Other => None,
    };
    let shown = |name: &String| {
        !name.is_empty() && name.len() <= LONGEST_NAME && !name.chars().any(char::is_control)
    };
    Ok(name.filter(shown))
}

/// Whether a whole SaslAuthenticate answer says that the client is who it claimed to be. SCRAM takes two rounds, of
/// which only the last proves it: it carries the server's signature.
pub fn is_authenticated(
    frame: &[u8],
    version: i16,
    mechanism: Mechanism,
) -> Result<bool, Malformed> {
    let flexible = version >= 2;
    let r = &mut Reader::new(frame);
    r.take(8, "response_header")?;
    if flexible {
        r.skip_tags("response_header_tags")?;
    }
    let error_code = r.int16("error_code")?;
    r.string(flexible, "error_message")?;
    let message = r.bytes(flexible, "auth_bytes")?.unwrap_or_default();
    let is_last = match mechanism {
        Mechanism::Scram => message.starts_with(b"v="),
        Mechanism::Plain | Mechanism::Other => true,
    };
    Ok(error_code == 0 && is_last)
}

/// `authzid NUL authcid NUL password`: Kafka takes the second for the name, and the first must be empty or the same.
fn plain_name(message: &[u8]) -> Option<String> {
    let mut parts = message.splitn(3, |byte| *byte == 0);
    let (_authzid, name, _secret) = (parts.next()?, parts.next()?, parts.next()?);
    Some(std::str::from_utf8(name).ok()?.to_owned())
}

/// `n,[a=authzid],n=name,r=nonce[,extensions]`. With a delegation token (`tokenauth=true`) the name is the token's
/// id, and who owns it cannot be seen.
fn scram_name(message: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(message).ok()?;
    let mut parts = text.split(',');
    let (_binding, _authzid) = (parts.next()?, parts.next()?);
    let name = parts.next()?.strip_prefix("n=")?;
    parts.next()?.strip_prefix("r=")?;
    if parts.any(|extension| extension == "tokenauth=true") {
        return None;
    }
    unescaped(name)
}

/// `=2C` is a comma and `=3D` an equals sign; any other `=` is none of RFC 5802.
fn unescaped(name: &str) -> Option<String> {
    let mut parts = name.split('=');
    let mut whole = parts.next()?.to_owned();
    for part in parts {
        let (sign, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return None,
        };
        whole.push(sign);
        whole.push_str(rest);
    }
    Some(whole)
}

#[cfg(test)]
mod tests;
