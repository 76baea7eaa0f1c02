//! Addresses at the end of responses that stream past: Fetch and ShareFetch.
//!
//! Where the response's length has left already, the tail keeps its length.

use super::{AddressBook, Copier, NODE_ENDPOINTS_TAG, endpoints, rewrite_endpoint_tags};
use crate::wire::{Malformed, Reader, Reason, Writer};

/// What the tail of a streamed answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TailKind {
    /// Tagged fields with `NodeEndpoints` among them.
    Fetch,
    /// `NodeEndpoints`, an ordinary array, and tagged fields.
    ShareFetch,
}

/// The tail names at least one broker.
pub fn has_addresses(tail: &[u8], kind: TailKind) -> Result<bool, Malformed> {
    let r = &mut Reader::new(tail);
    match kind {
        TailKind::Fetch => Ok(r.unsigned_varint("tags")? > 0),
        TailKind::ShareFetch => Ok(r.count(true, "node_endpoints")?.unwrap_or(0) > 0),
    }
}

/// The tail with its addresses replaced; its length may change.
pub fn rewrite_tail(
    tail: &[u8],
    kind: TailKind,
    book: &dyn AddressBook,
) -> Result<Vec<u8>, Malformed> {
    if kind == TailKind::Fetch {
        return rewrite_endpoint_tags(tail, book);
    }
    let r = &mut Reader::new(tail);
    let mut w = Writer::part();
    endpoints(&mut Copier {
        r,
        w: &mut w,
        flexible: true,
        book,
        learns: false,
    })?;
    w.raw(r.rest());
    Ok(w.into_part())
}

/// The tail with its addresses replaced and its length kept: what is shorter is filled up with a tagged field
/// that nobody reads; where the new addresses are longer, none is given, and the client asks for metadata as it
/// does after every other error.
pub fn rewrite_tail_in_place(
    tail: &[u8],
    kind: TailKind,
    book: &dyn AddressBook,
) -> Result<Vec<u8>, Malformed> {
    if !has_addresses(tail, kind)? {
        return Ok(tail.to_vec());
    }
    let rewritten = rewrite_tail(tail, kind, book)?;
    let rewritten = if rewritten.len() > tail.len() {
        without_endpoints(tail, kind)?
    } else {
        rewritten
    };
    let missing = tail.len().saturating_sub(rewritten.len());
    pad_tags(&rewritten, kind, missing)
}

fn without_endpoints(tail: &[u8], kind: TailKind) -> Result<Vec<u8>, Malformed> {
    let r = &mut Reader::new(tail);
    let mut w = Writer::part();
    if kind == TailKind::ShareFetch {
        let mut discarded = Writer::part();
        let nobody = &Nobody;
        endpoints(&mut Copier {
            r,
            w: &mut discarded,
            flexible: true,
            book: nobody,
            learns: false,
        })?;
        w.count(true, 0);
        w.raw(r.rest());
        return Ok(w.into_part());
    }
    let mut others = Writer::part();
    let mut count = 0u32;
    for _ in 0..r.unsigned_varint("tags")? {
        let tag = r.unsigned_varint("tag")?;
        let size = r.unsigned_varint("tag_size")?;
        let content = r.take(size as usize, "tag_content")?;
        if tag != NODE_ENDPOINTS_TAG {
            count = count.saturating_add(1);
            others.unsigned_varint(tag);
            others.unsigned_varint(size);
            others.raw(content);
        }
    }
    w.unsigned_varint(count);
    w.raw(&others.into_part());
    w.raw(r.rest());
    Ok(w.into_part())
}

/// An address book for addresses that are thrown away.
struct Nobody;

impl AddressBook for Nobody {
    fn address(&self, _: i32) -> (Vec<u8>, i32) {
        (Vec::new(), 0)
    }

    fn learn(&self, _: i32, _: &[u8], _: i32) {}
}

/// The tag of the filling: the highest of one byte, far above what KIPs have given out.
const FILLING_TAG: u32 = 127;

/// Makes the tagged fields at the end of a tail `missing` bytes longer.
fn pad_tags(tail: &[u8], kind: TailKind, missing: usize) -> Result<Vec<u8>, Malformed> {
    let r = &mut Reader::new(tail);
    let mut w = Writer::part();
    if kind == TailKind::ShareFetch {
        let nobody = &Nobody;
        let mut discarded = Writer::part();
        let before = r.rest();
        endpoints(&mut Copier {
            r,
            w: &mut discarded,
            flexible: true,
            book: nobody,
            learns: false,
        })?;
        w.raw(
            before
                .get(..before.len().saturating_sub(r.remaining()))
                .unwrap_or_default(),
        );
    }
    let tags_at = r.rest();
    let count = r.unsigned_varint("tags")?;
    let fields = r.rest();
    let count_bytes = tags_at.len().saturating_sub(fields.len());
    let more = count.saturating_add(1);
    // One field more may make the count itself longer.
    let growth = varint_bytes(more).saturating_sub(count_bytes);
    match missing.saturating_sub(growth) {
        _ if missing == 0 => w.raw(tags_at),
        // Too little for a field: a varint may be written longer than it need be.
        ..=1 => {
            varint_of_bytes(&mut w, count, count_bytes.saturating_add(missing))?;
            w.raw(fields);
        }
        filled => {
            varint_of_bytes(&mut w, more, count_bytes.saturating_add(growth))?;
            let end = fields.len().saturating_sub(behind_tags(fields, count)?);
            w.raw(fields.get(..end).unwrap_or_default());
            w.unsigned_varint(FILLING_TAG);
            filling(&mut w, filled.saturating_sub(1));
            w.raw(fields.get(end..).unwrap_or_default());
        }
    }
    Ok(w.into_part())
}

/// Bytes of the shortest varint for a number.
const fn varint_bytes(n: u32) -> usize {
    let bits = 32u32.saturating_sub((n | 1).leading_zeros());
    bits.div_ceil(7) as usize
}

/// A varint of so many bytes, five at most.
fn varint_of_bytes(w: &mut Writer, n: u32, bytes: usize) -> Result<(), Malformed> {
    if bytes > 5 {
        return Err(Malformed::new("tags", Reason::InvalidValue));
    }
    let last = bytes.saturating_sub(1);
    let mut rest = n;
    for at in 0..bytes {
        let goes_on = if at < last { 0x80 } else { 0 };
        w.raw(&[(rest & 0x7f) as u8 | goes_on]);
        rest = rest.wrapping_shr(7);
    }
    Ok(())
}

/// Bytes behind `count` tagged fields.
fn behind_tags(fields: &[u8], count: u32) -> Result<usize, Malformed> {
    let r = &mut Reader::new(fields);
    for _ in 0..count {
        r.unsigned_varint("tag")?;
        let size = r.unsigned_varint("tag_size")?;
        r.take(size as usize, "tag_content")?;
    }
    Ok(r.remaining())
}

/// A size and as many zeros, `bytes` bytes together.
fn filling(w: &mut Writer, bytes: usize) {
    // Five bytes of varint, or one if there is room for no more.
    if bytes < 5 {
        w.unsigned_varint(u32::try_from(bytes.saturating_sub(1)).unwrap_or(0));
        w.raw(&vec![0; bytes.saturating_sub(1)]);
        return;
    }
    let zeros = u32::try_from(bytes.saturating_sub(5)).unwrap_or(u32::MAX);
    for shift in [0u32, 7, 14, 21] {
        w.raw(&[(zeros.wrapping_shr(shift) & 0x7f) as u8 | 0x80]);
    }
    w.raw(&[zeros.wrapping_shr(28) as u8]);
    w.raw(&vec![0; zeros as usize]);
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Book(usize);

    impl AddressBook for Book {
        fn address(&self, _: i32) -> (Vec<u8>, i32) {
            (vec![b'h'; self.0], 19093)
        }

        fn learn(&self, _: i32, _: &[u8], _: i32) {}
    }

    /// Tagged fields: `others` that nobody knows, and one broker's address.
    fn tail(others: u32) -> Vec<u8> {
        let mut w = Writer::part();
        w.unsigned_varint(others + 1);
        let mut endpoints = Writer::part();
        endpoints.count(true, 1);
        endpoints.int32(1);
        endpoints.raw(&[7]);
        endpoints.raw(b"broker");
        endpoints.int32(9092);
        // No rack, no tags.
        endpoints.raw(&[0, 0]);
        let endpoints = endpoints.into_part();
        w.unsigned_varint(NODE_ENDPOINTS_TAG);
        w.unsigned_varint(endpoints.len() as u32);
        w.raw(&endpoints);
        for tag in 0..others {
            w.unsigned_varint(tag + 1);
            w.unsigned_varint(0);
        }
        w.into_part()
    }

    #[test]
    fn a_tail_keeps_its_length_whatever_the_number_of_its_fields_and_the_length_of_its_addresses() {
        for others in [0, 1, 125, 126, 127, 128, 129, 300] {
            for host_bytes in 0..40 {
                let tail = tail(others);
                let made = rewrite_tail_in_place(&tail, TailKind::Fetch, &Book(host_bytes));
                let made = made.unwrap();
                assert_eq!(made.len(), tail.len(), "{others} and {host_bytes}");
                let r = &mut Reader::new(&made);
                r.skip_tags("tags").unwrap();
                assert_eq!(r.remaining(), 0, "{others} and {host_bytes}");
            }
        }
    }
}
