//! The ticket: what a record's value is while its content lies in the store.
//!
//! JSON, so that people and other tools can read it: `claimUri`, `sha256`, `size` and `contentType` first and in this
//! order, what sizegate adds behind them.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The longest ticket that is read: an URI of a kilobyte and more besides.
pub(super) const MOST_TICKET_BYTES: usize = 4 * 1024;

/// The version of what this writes.
const VERSION: u32 = 1;

/// SHA-256 of an original value.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// 64 lower-case digits.
    pub fn hex(&self) -> String {
        let digit = |nibble: u8| char::from_digit(u32::from(nibble), 16).unwrap_or('0');
        self.0
            .iter()
            .flat_map(|byte| [digit(byte >> 4), digit(byte & 0x0f)])
            .collect()
    }

    /// Reads what [`Digest::hex`] writes, and nothing else.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let nibble = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit.wrapping_sub(b'0')),
            b'a'..=b'f' => Some(digit.wrapping_sub(b'a').wrapping_add(10)),
            _ => None,
        };
        let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return None;
        }
        let mut digest = [0; 32];
        for (byte, [high, low]) in digest.iter_mut().zip(pairs) {
            *byte = nibble(*high)?.wrapping_shl(4) | nibble(*low)?;
        }
        Some(Self(digest))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

/// What a value is, as its producer says. Printable ASCII that JSON takes as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContentType(String);

impl ContentType {
    const UNKNOWN: &'static str = "application/octet-stream";
    const MOST_BYTES: usize = 127;

    /// What a record's own header says, if it is a content type at all.
    pub fn of_header(value: Option<&[u8]>) -> Self {
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        let value = value
            .filter(|value| (1..=Self::MOST_BYTES).contains(&value.len()))
            .filter(|value| value.iter().all(is_plain))
            .and_then(|value| std::str::from_utf8(value).ok());
        Self(value.unwrap_or(Self::UNKNOWN).to_owned())
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for ContentType {
    fn default() -> Self {
        Self(Self::UNKNOWN.to_owned())
    }
}

/// How an object lies in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObjectForm {
    /// It is the value.
    Plain,
    /// A zstd frame: values of batches that travelled compressed, which would lose by their offloading.
    Zstd,
}

impl ObjectForm {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Plain, Self::Zstd];

    /// What a ticket's `enc` says.
    const fn enc(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Zstd => Some("zstd"),
        }
    }

    /// What an object's name ends in.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Zstd => ".zst",
        }
    }
}

/// A ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// Where the object is.
    pub uri: String,
    /// SHA-256 of the original value.
    pub sha256: Digest,
    /// Bytes of the original value.
    pub size: u64,
    /// What the value is.
    pub content_type: String,
    /// When the object was written, in milliseconds since 1970; unknown in tickets of other tools.
    pub at_ms: Option<u64>,
    /// How the object lies in the store.
    pub form: ObjectForm,
    /// Bytes of the object, where it is not the value itself.
    pub object_bytes: Option<u64>,
}

/// A ticket's fields, in the order in which they are written.
#[derive(Serialize, Deserialize)]
struct Fields<'a> {
    #[serde(rename = "claimUri", borrow)]
    claim_uri: std::borrow::Cow<'a, str>,
    #[serde(borrow)]
    sha256: std::borrow::Cow<'a, str>,
    size: u64,
    #[serde(rename = "contentType", borrow)]
    content_type: std::borrow::Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    v: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    #[serde(default, borrow, skip_serializing_if = "Option::is_none")]
    enc: Option<std::borrow::Cow<'a, str>>,
    #[serde(rename = "encSize", default, skip_serializing_if = "Option::is_none")]
    enc_size: Option<u64>,
}

/// Why a value is no ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TicketError {
    /// Longer than any ticket.
    TooLong,
    /// Not the JSON of a ticket.
    NotATicket,
    /// Of a version that this does not read.
    UnknownVersion,
}

impl TicketError {
    /// The metric label and log field.
    pub const fn label(self) -> &'static str {
        match self {
            Self::TooLong => "ticket_too_long",
            Self::NotATicket => "not_a_ticket",
            Self::UnknownVersion => "ticket_version",
        }
    }
}

impl fmt::Display for TicketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl std::error::Error for TicketError {}

impl Ticket {
    /// As it travels.
    pub fn to_json(&self) -> Vec<u8> {
        let fields = Fields {
            claim_uri: self.uri.as_str().into(),
            sha256: self.sha256.hex().into(),
            size: self.size,
            content_type: self.content_type.as_str().into(),
            v: self.at_ms.map(|_| VERSION),
            at: self.at_ms,
            enc: self.form.enc().map(Into::into),
            enc_size: self.form.enc().and(self.object_bytes),
        };
        // Strings and numbers: there is nothing that could fail.
        serde_json::to_vec(&fields).unwrap_or_default()
    }

    /// Reads what stands in a record's value. Whether it is one of ours is another question: see
    /// [`Keys::verify`](super::Keys::verify).
    ///
    /// # Errors
    /// It is no ticket.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TicketError> {
        if bytes.len() > MOST_TICKET_BYTES {
            return Err(TicketError::TooLong);
        }
        let fields: Fields<'_> =
            serde_json::from_slice(bytes).map_err(|_| TicketError::NotATicket)?;
        if fields.v.is_some_and(|v| v != VERSION) {
            return Err(TicketError::UnknownVersion);
        }
        let sha256 = Digest::from_hex(&fields.sha256).ok_or(TicketError::NotATicket)?;
        let form = ObjectForm::ALL
            .into_iter()
            .find(|form| form.enc() == fields.enc.as_deref())
            .ok_or(TicketError::UnknownVersion)?;
        if fields.enc_size.is_some() != (form != ObjectForm::Plain) {
            return Err(TicketError::NotATicket);
        }
        Ok(Self {
            uri: fields.claim_uri.into_owned(),
            sha256,
            size: fields.size,
            content_type: fields.content_type.into_owned(),
            at_ms: fields.at,
            form,
            object_bytes: fields.enc_size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket() -> Ticket {
        let sha256 = Digest::of(b"hello");
        Ticket {
            uri: format!("file:///tmp/mq11/objstore/{sha256}.json"),
            sha256,
            size: 307_206,
            content_type: "application/json".to_owned(),
            at_ms: None,
            form: ObjectForm::Plain,
            object_bytes: None,
        }
    }

    #[test]
    fn the_four_fields_stand_first_and_the_example_has_233_bytes() {
        let json = ticket().to_json();
        // sha256sum of `hello`.
        let sha = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        let expected = format!(
            r#"{{"claimUri":"file:///tmp/mq11/objstore/{sha}.json","sha256":"{sha}","size":307206,"contentType":"application/json"}}"#
        );
        assert_eq!(String::from_utf8(json.clone()).unwrap(), expected);
        assert_eq!(json.len(), 233);
        assert_eq!(307_206 / 233, 1_318);
        assert_eq!(Ticket::from_json(&json), Ok(ticket()));
    }

    #[test]
    fn what_sizegate_adds_stands_behind_them() {
        let mut ticket = ticket();
        ticket.at_ms = Some(1_793_232_000_000);
        ticket.form = ObjectForm::Zstd;
        ticket.object_bytes = Some(41_233);
        let json = String::from_utf8(ticket.to_json()).unwrap();
        assert!(
            json.ends_with(
                r#""contentType":"application/json","v":1,"at":1793232000000,"enc":"zstd","encSize":41233}"#
            ),
            "{json}"
        );
        assert_eq!(Ticket::from_json(json.as_bytes()), Ok(ticket));
    }

    #[test]
    fn what_is_no_ticket_is_told_from_one() {
        let sound = String::from_utf8(ticket().to_json()).unwrap();
        let with = |from: &str, to: &str| sound.replacen(from, to, 1);
        for (json, expected) in [
            (String::new(), TicketError::NotATicket),
            ("{}".into(), TicketError::NotATicket),
            ("null".into(), TicketError::NotATicket),
            (sound[..200].into(), TicketError::NotATicket),
            (format!("{sound}{sound}"), TicketError::NotATicket),
            (with("307206", "-1"), TicketError::NotATicket),
            (with("307206", "1e5"), TicketError::NotATicket),
            (
                with("307206", "18446744073709551616"),
                TicketError::NotATicket,
            ),
            (
                with("\"sha256\":\"2c", "\"sha256\":\"2C"),
                TicketError::NotATicket,
            ),
            (
                with("\"sha256\":\"2c", "\"sha256\":\"2"),
                TicketError::NotATicket,
            ),
            (
                with("\"size\"", "\"size\":1,\"size\""),
                TicketError::NotATicket,
            ),
            (with("}", ",\"enc\":\"zstd\"}"), TicketError::NotATicket),
            (with("}", ",\"encSize\":1}"), TicketError::NotATicket),
            (
                with("}", ",\"enc\":\"lzma\",\"encSize\":1}"),
                TicketError::UnknownVersion,
            ),
            (with("}", ",\"v\":2}"), TicketError::UnknownVersion),
            (" ".repeat(4_097), TicketError::TooLong),
        ] {
            assert_eq!(Ticket::from_json(json.as_bytes()), Err(expected), "{json}");
        }
        // What a later version adds is passed over.
        let more = with("}", ",\"note\":[1,2]}");
        assert_eq!(Ticket::from_json(more.as_bytes()), Ok(ticket()));
    }

    #[test]
    fn a_content_type_is_the_records_own_or_unknown() {
        let unknown = "application/octet-stream";
        let long = [b'a'; 128];
        for (header, expected) in [
            (
                Some(&b"application/json; charset=utf-8"[..]),
                "application/json; charset=utf-8",
            ),
            (Some(b"a\"b"), unknown),
            (Some(b"a\\b"), unknown),
            (Some(b"a\nb"), unknown),
            (Some("ä".as_bytes()), unknown),
            (Some(b""), unknown),
            (Some(&long), unknown),
            (None, unknown),
        ] {
            assert_eq!(ContentType::of_header(header).as_str(), expected);
        }
    }
}
