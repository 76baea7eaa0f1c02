//! A bounds-checked reader of Kafka's primitive types over bytes that are all here.
//!
//! Invariant: a `Reader` never looks outside its slice and never trusts a declared length or count.

use std::fmt;

/// A peer's bytes are not what the protocol says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// The field being read, by its name in the protocol.
    pub field: &'static str,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What is wrong with a field. A fixed set: it is a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The bytes end before the field does.
    Truncated,
    /// A length that may not be negative is.
    NegativeLength,
    /// A count that the remaining bytes cannot hold.
    ImpossibleCount,
    /// A varint of more bytes than its type has.
    OverlongVarint,
    /// A value that the protocol does not have.
    InvalidValue,
    /// A version this product does not read although it must.
    UnsupportedVersion,
    /// A response whose correlation id is not the one expected next.
    UnexpectedCorrelationId,
    /// A response that nobody asked for.
    UnexpectedResponse,
    /// Longer than this product holds.
    TooLong,
}

impl Reason {
    /// The metric label and log field.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::NegativeLength => "negative_length",
            Self::ImpossibleCount => "impossible_count",
            Self::OverlongVarint => "overlong_varint",
            Self::InvalidValue => "invalid_value",
            Self::UnsupportedVersion => "unsupported_version",
            Self::UnexpectedCorrelationId => "unexpected_correlation_id",
            Self::UnexpectedResponse => "unexpected_answer",
            Self::TooLong => "too_long",
        }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.reason.label())
    }
}

impl std::error::Error for Malformed {}

impl Malformed {
    /// `field` is wrong in the way of `reason`.
    pub const fn new(field: &'static str, reason: Reason) -> Self {
        Self { field, reason }
    }
}

/// Reads forward over a slice.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    whole: &'a [u8],
    rest: &'a [u8],
}

type Result<T> = std::result::Result<T, Malformed>;

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self {
            whole: bytes,
            rest: bytes,
        }
    }

    /// Bytes read so far.
    pub const fn position(&self) -> usize {
        self.whole.len().saturating_sub(self.rest.len())
    }

    /// Bytes not yet read.
    pub const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// All that is left, without reading it.
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize, field: &'static str) -> Result<&'a [u8]> {
        let (taken, rest) = self
            .rest
            .split_at_checked(n)
            .ok_or(Malformed::new(field, Reason::Truncated))?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `N` bytes, by value.
    #[inline]
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N]> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(Malformed::new(field, Reason::Truncated))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// INT8
    pub fn int8(&mut self, field: &'static str) -> Result<i8> {
        self.array(field).map(i8::from_be_bytes)
    }

    /// INT16
    pub fn int16(&mut self, field: &'static str) -> Result<i16> {
        self.array(field).map(i16::from_be_bytes)
    }

    /// INT32
    pub fn int32(&mut self, field: &'static str) -> Result<i32> {
        self.array(field).map(i32::from_be_bytes)
    }

    /// UINT32
    pub fn uint32(&mut self, field: &'static str) -> Result<u32> {
        self.array(field).map(u32::from_be_bytes)
    }

    /// INT64
    pub fn int64(&mut self, field: &'static str) -> Result<i64> {
        self.array(field).map(i64::from_be_bytes)
    }

    /// UNSIGNED_VARINT: at most five bytes.
    #[inline]
    pub fn unsigned_varint(&mut self, field: &'static str) -> Result<u32> {
        // Nearly all of them: counts, sections of tags, short texts.
        if let [byte @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u32::from(*byte));
        }
        self.long_unsigned_varint(field)
    }

    fn long_unsigned_varint(&mut self, field: &'static str) -> Result<u32> {
        let mut value = 0u32;
        for shift in [0u32, 7, 14, 21, 28] {
            let [byte] = self.array(field)?;
            value |= u32::from(byte & 0x7f).wrapping_shl(shift);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed::new(field, Reason::OverlongVarint))
    }

    /// VARINT: zig-zag, at most five bytes.
    pub fn varint(&mut self, field: &'static str) -> Result<i32> {
        let raw = self.unsigned_varint(field)?;
        Ok((raw.wrapping_shr(1) as i32) ^ (raw & 1).wrapping_neg() as i32)
    }

    /// A count of items that take at least one byte each: NULLABLE ARRAY or COMPACT NULLABLE ARRAY, null is `None`.
    pub fn count(&mut self, flexible: bool, field: &'static str) -> Result<Option<usize>> {
        let count = self.length(flexible, field)?;
        match count {
            Some(n) if n > self.remaining() => Err(Malformed::new(field, Reason::ImpossibleCount)),
            _ => Ok(count),
        }
    }

    /// BYTES or COMPACT BYTES, nullable.
    pub fn bytes(&mut self, flexible: bool, field: &'static str) -> Result<Option<&'a [u8]>> {
        match self.length(flexible, field)? {
            None => Ok(None),
            Some(n) => self.take(n, field).map(Some),
        }
    }

    /// STRING or COMPACT STRING, nullable, as bytes: brokers take invalid UTF-8 in some places.
    pub fn string(&mut self, flexible: bool, field: &'static str) -> Result<Option<&'a [u8]>> {
        if flexible {
            return self.bytes(true, field);
        }
        match usize::try_from(self.int16(field)?) {
            Ok(n) => self.take(n, field).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// A section of tagged fields, passed over. Tells how many there are.
    #[inline]
    pub fn skip_tags(&mut self, field: &'static str) -> Result<u32> {
        let tags = self.unsigned_varint(field)?;
        if tags > 0 {
            self.skip_some_tags(tags, field)?;
        }
        Ok(tags)
    }

    fn skip_some_tags(&mut self, tags: u32, field: &'static str) -> Result<()> {
        for _ in 0..tags {
            self.unsigned_varint(field)?;
            let size = self.unsigned_varint(field)?;
            self.take(size as usize, field)?;
        }
        Ok(())
    }

    /// Every negative length is null, as in Kafka's generated readers. A varint beyond Java's int would be, too, but is
    /// left a length that nothing can have: others read what was read here, and may allocate by it.
    #[inline]
    pub(super) fn length(&mut self, flexible: bool, field: &'static str) -> Result<Option<usize>> {
        if flexible {
            return Ok((self.unsigned_varint(field)? as usize).checked_sub(1));
        }
        Ok(usize::try_from(self.int32(field)?).ok())
    }
}
