//! Issuing tickets for one topic: their place, their text, their signature, and how long all that will be before the
//! value is hashed.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::keys::{Keys, MARK_HEADER};
use super::place::{Layout, Namespace, Place};
use super::ticket::{ContentType, Digest, ObjectForm, Ticket};
use crate::batch::put_varint;

/// What goes into a record: the ticket as its value, the mark as its last header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedTicket {
    pub(super) value: Bytes,
    /// Encoded, its lengths included.
    pub(super) header: Bytes,
}

/// A moment of which there are 16 million milliseconds (four and a half hours) until the day ends.
const SOME_MORNING_MS: u64 = 1_000_000_000_000;

/// Issues the tickets of one topic.
#[derive(Debug, Clone)]
pub struct Issuer {
    /// The topic's name.
    pub topic: Arc<str>,
    /// Where its objects lie.
    pub namespace: Arc<Namespace>,
    /// Who signs.
    pub keys: Arc<Keys>,
    /// How objects are named.
    pub layout: Layout,
}

impl Issuer {
    /// The place of a value that is written now.
    pub fn place(&self, digest: &Digest, form: ObjectForm, now: SystemTime) -> Place {
        self.namespace
            .place(&self.topic, self.layout, form, digest, now)
    }

    /// The ticket for a value at `place`; `object_bytes` where the object is not the value itself.
    pub fn ticket(
        &self,
        place: &Place,
        digest: Digest,
        size: u64,
        content_type: &ContentType,
        (form, object_bytes): (ObjectForm, u64),
        now: SystemTime,
    ) -> Ticket {
        let since_1970 = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ticket {
            uri: self.namespace.uri(place),
            sha256: digest,
            size,
            content_type: content_type.as_str().to_owned(),
            at_ms: Some(u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)),
            form,
            object_bytes: (form != ObjectForm::Plain).then_some(object_bytes),
        }
    }

    /// Signs a ticket.
    pub fn sign(&self, ticket: &Ticket) -> SignedTicket {
        let mark = self
            .keys
            .sign(self.namespace.cluster(), &self.topic, ticket);
        SignedTicket {
            value: ticket.to_json().into(),
            header: encoded_header(MARK_HEADER.as_bytes(), mark.as_bytes()).into(),
        }
    }

    /// A ticket as long as that of a value of this size can be, and as little compressible.
    pub(super) fn stand_in(
        &self,
        record: u32,
        size: u64,
        content_type: &ContentType,
        form: ObjectForm,
    ) -> SignedTicket {
        let digest = Digest::of(&record.to_be_bytes());
        // Of one day, as long as every moment until the year 2286, and each another: true ones differ in their last digits.
        let [first, second, third, ..] = digest.0;
        let spread_ms = u64::from(u32::from_be_bytes([0, first, second, third]));
        let now = UNIX_EPOCH
            .checked_add(std::time::Duration::from_millis(
                SOME_MORNING_MS.saturating_add(spread_ms),
            ))
            .unwrap_or(UNIX_EPOCH);
        let place = self.place(&digest, form, now);
        // No object is larger than its value: one that is not smaller is not compressed.
        self.sign(&self.ticket(&place, digest, size, content_type, (form, size), now))
    }
}

/// Bytes of the ticket for a value of a size whose kind is not known, and of the header's value that signs it.
pub fn ticket_bytes(issuer: &Issuer, form: ObjectForm, value_bytes: u64) -> (u64, u64) {
    let length = TicketLength::of(issuer, form);
    let ticket = length.value_bytes(value_bytes, &ContentType::default());
    // The header's name and value, each behind a length of one byte.
    let around = (MARK_HEADER.len() as u64).saturating_add(2);
    (ticket, length.header_bytes.saturating_sub(around))
}

fn encoded_header(name: &[u8], value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for field in [name, value] {
        put_varint(&mut out, i32::try_from(field.len()).unwrap_or(i32::MAX));
        out.extend_from_slice(field);
    }
    out
}

/// How long the tickets of an issuer are.
#[derive(Debug, Clone, Copy)]
pub(super) struct TicketLength {
    /// Of one without content type, for a size of no digits.
    bare_bytes: u64,
    /// Times that the size's digits are in it.
    sizes: u64,
    /// The header, encoded.
    pub(super) header_bytes: u64,
}

impl TicketLength {
    pub(super) fn of(issuer: &Issuer, form: ObjectForm) -> Self {
        let empty = ContentType::default();
        let signed = issuer.stand_in(0, 0, &empty, form);
        let sizes = if form == ObjectForm::Plain { 1 } else { 2 };
        Self {
            bare_bytes: (signed.value.len() as u64)
                .saturating_sub(empty.as_str().len() as u64)
                .saturating_sub(sizes),
            sizes,
            header_bytes: signed.header.len() as u64,
        }
    }

    /// Of the ticket for a value of `size` bytes.
    pub(super) fn value_bytes(&self, size: u64, content_type: &ContentType) -> u64 {
        let digits = u64::from(size.checked_ilog10().unwrap_or(0)).saturating_add(1);
        self.bare_bytes
            .saturating_add(digits.saturating_mul(self.sizes))
            .saturating_add(content_type.as_str().len() as u64)
    }
}
