//! The mark that tells a ticket from JSON that only looks like one, and the keys that sign it.
//!
//! The header `x-claim-check: 1;KEY-ID;MAC`. Without the MAC anyone who can produce could make the proxy's credentials
//! read another tenant's object. The first key signs, all are accepted: a new one is put in prefix, the old one leaves
//! when the last ticket that it signed has.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::ticket::Ticket;

/// The header's name.
pub const MARK_HEADER: &str = "x-claim-check";

/// Of what the MAC covers and of the header.
const VERSION: &str = "1";
/// HMAC-SHA-256, its first 128 bits.
const MAC_BYTES: usize = 16;
/// A key's id is read by people and stands in every record.
const MOST_ID_BYTES: usize = 32;
/// RFC 2104 advises against keys shorter than the digest.
const LEAST_SECRET_BYTES: usize = 32;

/// One key.
#[derive(Clone)]
pub struct Key {
    id: String,
    mac: Hmac<Sha256>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Why a key cannot be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyError {
    /// An id of other than 1 to 32 letters, digits, `-` and `_`.
    Id,
    /// A secret below 32 bytes.
    ShortSecret,
    /// Two keys of one id.
    SameId,
    /// No key at all: nothing could be signed.
    None,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Id => "a key's id is 1 to 32 letters, digits, `-` and `_`",
            Self::ShortSecret => "a key's secret has 32 bytes at least",
            Self::SameId => "two keys have the same id",
            Self::None => "there is no key",
        })
    }
}

impl std::error::Error for KeyError {}

impl Key {
    /// A key from its id and its secret.
    ///
    /// # Errors
    /// See [`KeyError`].
    pub fn new(id: &str, secret: &[u8]) -> Result<Self, KeyError> {
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=MOST_ID_BYTES).contains(&id.len()) || !id.bytes().all(is_letter) {
            return Err(KeyError::Id);
        }
        if secret.len() < LEAST_SECRET_BYTES {
            return Err(KeyError::ShortSecret);
        }
        let mac = Hmac::new_from_slice(secret).map_err(|_| KeyError::ShortSecret)?;
        Ok(Self {
            id: id.to_owned(),
            mac,
        })
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The MAC of what a ticket promises, and of whose it is. Each field behind its length, so that no two tickets
    /// have the same bytes.
    fn covers(&self, cluster: &str, topic: &str, ticket: &Ticket) -> Hmac<Sha256> {
        let mut mac = self.mac.clone();
        let size = ticket.size.to_be_bytes();
        let fields: [&[u8]; 6] = [
            VERSION.as_bytes(),
            cluster.as_bytes(),
            topic.as_bytes(),
            ticket.uri.as_bytes(),
            &ticket.sha256.0,
            &size,
        ];
        for field in fields {
            mac.update(&(field.len() as u64).to_be_bytes());
            mac.update(field);
        }
        mac
    }
}

/// Why a record that bears the mark is not one of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refuted {
    /// The header's value is not what this writes, or there is more than one.
    Malformed,
    /// The value beside it is no ticket.
    NotATicket,
    /// Signed by a key that is not configured.
    UnknownKey,
    /// The signature is not that of this ticket on this topic of this cluster.
    WrongMac,
    /// Rightly signed, but for a place outside the topic's own prefix.
    ForeignUri,
}

impl Refuted {
    /// The metric label and log field.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Malformed => "malformed_mark",
            Self::NotATicket => "not_a_ticket",
            Self::UnknownKey => "unknown_key",
            Self::WrongMac => "wrong_mac",
            Self::ForeignUri => "foreign_uri",
        }
    }
}

impl fmt::Display for Refuted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl std::error::Error for Refuted {}

/// All keys: the first signs, all are accepted.
#[derive(Debug, Clone)]
pub struct Keys {
    first: Key,
    others: Vec<Key>,
}

impl Keys {
    /// Keys in the order of the configuration.
    ///
    /// # Errors
    /// There is none, or two have one id.
    pub fn new(keys: impl IntoIterator<Item = Key>) -> Result<Self, KeyError> {
        let mut keys = keys.into_iter();
        let first = keys.next().ok_or(KeyError::None)?;
        let mut all = Self {
            first,
            others: Vec::new(),
        };
        for key in keys {
            if all.by_id(&key.id).is_some() {
                return Err(KeyError::SameId);
            }
            all.others.push(key);
        }
        Ok(all)
    }

    fn by_id(&self, id: &str) -> Option<&Key> {
        std::iter::once(&self.first)
            .chain(&self.others)
            .find(|key| key.id == id)
    }

    /// The header's value for a ticket on a topic.
    pub fn sign(&self, cluster: &str, topic: &str, ticket: &Ticket) -> String {
        let mac = self
            .first
            .covers(cluster, topic, ticket)
            .finalize()
            .into_bytes();
        let mac = mac.get(..MAC_BYTES).unwrap_or_default();
        format!(
            "{VERSION};{};{}",
            self.first.id,
            URL_SAFE_NO_PAD.encode(mac)
        )
    }

    /// Whether `mark` is the value that one of the keys gave to this ticket on this topic.
    ///
    /// # Errors
    /// It is not, and why.
    pub fn verify(
        &self,
        cluster: &str,
        topic: &str,
        ticket: &Ticket,
        mark: &[u8],
    ) -> Result<(), Refuted> {
        let mark = std::str::from_utf8(mark).map_err(|_| Refuted::Malformed)?;
        let mut parts = mark.split(';');
        let (Some(VERSION), Some(id), Some(mac), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Refuted::Malformed);
        };
        let mac = URL_SAFE_NO_PAD
            .decode(mac)
            .ok()
            .filter(|mac| mac.len() == MAC_BYTES)
            .ok_or(Refuted::Malformed)?;
        let key = self.by_id(id).ok_or(Refuted::UnknownKey)?;
        // In a time that says nothing of where the first difference is.
        key.covers(cluster, topic, ticket)
            .verify_truncated_left(&mac)
            .map_err(|_| Refuted::WrongMac)
    }
}

#[cfg(test)]
mod tests {
    use super::super::ticket::{Digest, ObjectForm};
    use super::*;

    fn key(id: &str) -> Key {
        Key::new(id, &[id.len() as u8; 32]).unwrap()
    }

    fn keys(ids: &[&str]) -> Keys {
        Keys::new(ids.iter().map(|id| key(id))).unwrap()
    }

    fn ticket() -> Ticket {
        Ticket {
            uri: "s3://b/c/t/aa".to_owned(),
            sha256: Digest::of(b"value"),
            size: 5,
            content_type: "text/plain".to_owned(),
            at_ms: Some(1),
            form: ObjectForm::Plain,
            object_bytes: None,
        }
    }

    #[test]
    fn the_mark_is_the_hmac_of_what_the_ticket_promises() {
        let mark = keys(&["k1"]).sign("cl", "t", &ticket());
        // The same by hand: each field behind its length.
        let mut message = Vec::new();
        let sha256 = Digest::of(b"value").0;
        for field in [
            &b"1"[..],
            b"cl",
            b"t",
            b"s3://b/c/t/aa",
            &sha256,
            &5u64.to_be_bytes(),
        ] {
            message.extend((field.len() as u64).to_be_bytes());
            message.extend(field);
        }
        let mut mac = Hmac::<Sha256>::new_from_slice(&[2; 32]).unwrap();
        mac.update(&message);
        let full = mac.finalize().into_bytes();
        assert_eq!(
            mark,
            format!("1;k1;{}", URL_SAFE_NO_PAD.encode(&full[..16]))
        );
        assert_eq!(mark.len(), 27);
    }

    #[test]
    fn any_change_of_what_is_promised_is_found() {
        let keys = keys(&["k1"]);
        let mark = keys.sign("cl", "t", &ticket());
        let verify = |cluster: &str, topic: &str, ticket: &Ticket| {
            keys.verify(cluster, topic, ticket, mark.as_bytes())
        };
        assert_eq!(verify("cl", "t", &ticket()), Ok(()));
        let changed = |change: fn(&mut Ticket)| {
            let mut ticket = ticket();
            change(&mut ticket);
            ticket
        };
        for (cluster, topic, ticket) in [
            ("cl", "u", ticket()),
            ("cm", "t", ticket()),
            // The same bytes with another border between two fields.
            ("clt", "", ticket()),
            ("cl", "t", changed(|t| t.uri.push('b'))),
            ("cl", "t", changed(|t| t.size = 6)),
            ("cl", "t", changed(|t| t.sha256 = Digest::of(b"other"))),
        ] {
            assert_eq!(verify(cluster, topic, &ticket), Err(Refuted::WrongMac));
        }
    }

    #[test]
    fn keys_are_rotated_by_putting_a_new_one_in_front() {
        let old = keys(&["k1"]).sign("cl", "t", &ticket());
        let both = keys(&["key2", "k1"]);
        let new = both.sign("cl", "t", &ticket());
        assert!(new.starts_with("1;key2;"), "{new}");
        for mark in [&old, &new] {
            assert_eq!(both.verify("cl", "t", &ticket(), mark.as_bytes()), Ok(()));
        }
        let only_new = keys(&["key2"]);
        assert_eq!(
            only_new.verify("cl", "t", &ticket(), old.as_bytes()),
            Err(Refuted::UnknownKey)
        );
        // One key's signature under another's name.
        let swapped = old.replacen("k1", "key2", 1);
        assert_eq!(
            both.verify("cl", "t", &ticket(), swapped.as_bytes()),
            Err(Refuted::WrongMac)
        );
    }

    #[test]
    fn a_mark_of_another_form_is_malformed() {
        let keys = keys(&["k1"]);
        let mark = keys.sign("cl", "t", &ticket());
        let mac = &mark[5..];
        for mark in [
            String::new(),
            mac.to_owned(),
            format!("2;k1;{mac}"),
            format!("1;k1;{mac};"),
            format!("1;k1;{mac}="),
            format!("1;k1;{}", &mac[1..]),
            format!("1;k1;{mac}AAAA"),
            "1;k1;".to_owned(),
        ] {
            let verified = keys.verify("cl", "t", &ticket(), mark.as_bytes());
            assert_eq!(verified, Err(Refuted::Malformed), "{mark}");
        }
        assert_eq!(
            keys.verify("cl", "t", &ticket(), &[0xff]),
            Err(Refuted::Malformed)
        );
    }

    #[test]
    fn keys_that_cannot_be_are_refused() {
        for id in ["", "a;b", "a b", "ä", &"a".repeat(33)] {
            assert_eq!(Key::new(id, &[1; 32]).unwrap_err(), KeyError::Id, "{id}");
        }
        assert_eq!(Key::new("a", &[1; 31]).unwrap_err(), KeyError::ShortSecret);
        assert_eq!(Keys::new([]).unwrap_err(), KeyError::None);
        assert_eq!(
            Keys::new([key("a"), key("a")]).unwrap_err(),
            KeyError::SameId
        );
        assert!(!format!("{:?}", key("a")).contains('1'));
    }
}
