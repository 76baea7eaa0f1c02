//! A resumable walk over a message that streams past: it sees every field and keeps none of the bytes.
//!
//! Used where a message must be understood but not held: Fetch and ShareFetch responses (their tail carries
//! addresses), Metadata responses (they name topics) and Produce requests above the frame limit (names and partitions
//! are read on the way).
//! Invariant: memory is bounded by the deepest nesting and one string, whatever the peer declares.

mod messages;

use super::{Malformed, Reason};

pub use messages::{
    CONSUMER_GROUP_HEARTBEAT_REQUEST, FETCH_REQUEST, FETCH_RESPONSE, JOIN_GROUP_REQUEST,
    LIST_OFFSETS_REQUEST, METADATA_TOPICS, OFFSET_FETCH_REQUEST, PRODUCE_REQUEST,
    SHARE_FETCH_RESPONSE,
};

/// What a field looks like.
#[derive(Debug, Clone, Copy)]
pub enum FieldKind {
    /// A number or id of so many bytes, at most 16.
    Fixed(usize),
    /// STRING or COMPACT STRING.
    Text,
    /// BYTES or COMPACT BYTES of any length: shown in pieces, as they come.
    Bytes,
    /// ARRAY or COMPACT ARRAY of INT32: passed over.
    Int32s,
    /// ARRAY or COMPACT ARRAY of structs.
    Array(&'static [Field]),
    /// A struct of its own: in flexible versions its tagged fields follow.
    Struct(&'static [Field]),
    /// The walk ends before this field.
    Tail,
}

/// A field and the versions that have it.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Its name in the message definition.
    pub name: &'static str,
    kind: FieldKind,
    since: i16,
    until: i16,
}

const fn field(name: &'static str, kind: FieldKind) -> Field {
    Field {
        name,
        kind,
        since: 0,
        until: i16::MAX,
    }
}

impl Field {
    const fn since(mut self, version: i16) -> Self {
        self.since = version;
        self
    }

    const fn until(mut self, version: i16) -> Self {
        self.until = version;
        self
    }
}

/// A message as a walk sees it.
#[derive(Debug)]
pub struct Message {
    /// First flexible version (KIP-482).
    flexible_since: i16,
    fields: &'static [Field],
}

/// Sees the fields in their order. Every method may be left out.
pub trait Visitor {
    /// A field of fixed width: its bytes.
    fn fixed(&mut self, field: &'static str, bytes: &[u8]);
    /// A string; `None` is null.
    fn text(&mut self, field: &'static str, bytes: Option<&[u8]>);
    /// A field of so many bytes begins.
    fn begins(&mut self, _field: &'static str, _bytes: u64) {}
    /// A piece of a field of bytes.
    fn bytes(&mut self, _field: &'static str, _piece: &[u8]) {}
    /// So many bytes of a field passed unseen.
    fn passed(&mut self, _field: &'static str, _bytes: u64) {}
}

/// The longest string Kafka reads.
const LONGEST_TEXT: usize = i16::MAX as usize;

/// One struct being walked.
#[derive(Debug, Clone, Copy)]
struct Level {
    fields: &'static [Field],
    next: usize,
    /// Structs of this array still to come behind this one.
    more: u64,
}

/// What the next bytes are.
#[derive(Debug, Clone, Copy)]
enum Expect {
    /// The next field of the innermost level.
    Field,
    Fixed(usize),
    TextLength,
    Text(usize),
    BytesLength,
    Bytes(u64),
    Int32sCount,
    Skip(u64),
    Count(&'static [Field]),
    TagCount,
    Tag(u32),
    TagSize(u32),
    TagContent(u32, u64),
    Tail,
}

/// A walk in progress.
#[derive(Debug)]
pub struct Walker {
    flexible: bool,
    version: i16,
    levels: Vec<Level>,
    expect: Expect,
    name: &'static str,
    /// The part of a number or string that has arrived.
    partial: Vec<u8>,
    /// Bytes of the message not yet walked: bounds every count.
    left: u64,
}

impl Walker {
    /// A walk over a message of `message_bytes` bytes.
    pub fn new(message: &'static Message, version: i16, message_bytes: u64) -> Self {
        Self {
            flexible: version >= message.flexible_since,
            version,
            levels: vec![Level {
                fields: message.fields,
                next: 0,
                more: 0,
            }],
            expect: Expect::Field,
            name: "",
            partial: Vec::new(),
            left: message_bytes,
        }
    }

    /// The tail is reached: what is left is not walked.
    pub const fn is_at_tail(&self) -> bool {
        matches!(self.expect, Expect::Tail)
    }

    /// Bytes of the message not yet walked.
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// Bytes still to come of the field of bytes that the walk is in; 0 where it is in none.
    pub const fn bytes_left(&self) -> u64 {
        match self.expect {
            Expect::Bytes(n) => n,
            _ => 0,
        }
    }

    /// Walks over `bytes` of the field of bytes that the walk is in, which nobody sees. At most [`Walker::bytes_left`].
    pub fn pass(&mut self, bytes: u64, visitor: &mut dyn Visitor) -> Result<(), Malformed> {
        let left = self
            .bytes_left()
            .checked_sub(bytes)
            .ok_or(Malformed::new(self.name, Reason::Truncated))?;
        self.spend(bytes)?;
        visitor.passed(self.name, bytes);
        self.expect = match left {
            0 => Expect::Field,
            left => Expect::Bytes(left),
        };
        // What follows may need no byte: a field of a later version, the tail.
        self.advance(&[], visitor).map(|_| ())
    }

    /// Walks as far as `input` goes and returns how many of its bytes were walked: all of them, unless the tail
    /// was reached.
    pub fn advance(&mut self, input: &[u8], visitor: &mut dyn Visitor) -> Result<usize, Malformed> {
        let mut rest = input;
        loop {
            match self.expect {
                Expect::Tail => break,
                Expect::Field => self.enter_field()?,
                Expect::Tag(0) => self.leave_struct(),
                Expect::TagContent(count, 0) => self.expect = Expect::Tag(count),
                _ if rest.is_empty() => break,
                _ => self.step(&mut rest, visitor)?,
            }
        }
        Ok(input.len().saturating_sub(rest.len()))
    }

    /// Decides what the next field is; consumes nothing.
    fn enter_field(&mut self) -> Result<(), Malformed> {
        let Some(level) = self.levels.last_mut() else {
            self.expect = Expect::Tail;
            return Ok(());
        };
        let Some(field) = level.fields.get(level.next) else {
            // The struct's fields are over: its tagged fields follow, then the next struct of the array.
            self.expect = if self.flexible {
                Expect::TagCount
            } else {
                Expect::Field
            };
            if !self.flexible {
                self.leave_struct();
            }
            return Ok(());
        };
        level.next = level.next.saturating_add(1);
        if self.version < field.since || self.version > field.until {
            return Ok(());
        }
        self.name = field.name;
        self.expect = match field.kind {
            FieldKind::Fixed(n) => Expect::Fixed(n),
            FieldKind::Text => Expect::TextLength,
            FieldKind::Bytes => Expect::BytesLength,
            FieldKind::Int32s => Expect::Int32sCount,
            FieldKind::Array(fields) => Expect::Count(fields),
            FieldKind::Struct(fields) => {
                self.levels.push(Level {
                    fields,
                    next: 0,
                    more: 0,
                });
                Expect::Field
            }
            FieldKind::Tail => Expect::Tail,
        };
        Ok(())
    }

    fn leave_struct(&mut self) {
        if let Some(level) = self.levels.last_mut() {
            if level.more > 0 {
                level.more = level.more.saturating_sub(1);
                level.next = 0;
            } else {
                self.levels.pop();
            }
        }
        self.expect = Expect::Field;
    }

    fn step(&mut self, rest: &mut &[u8], visitor: &mut dyn Visitor) -> Result<(), Malformed> {
        match self.expect {
            Expect::Field | Expect::Tail => {}
            Expect::Fixed(n) => {
                if self.gather(rest, n)? {
                    visitor.fixed(self.name, &self.partial);
                    self.settle(Expect::Field);
                }
            }
            Expect::TextLength => {
                if let Some(length) = self.text_length(rest)? {
                    match length {
                        None => {
                            visitor.text(self.name, None);
                            self.settle(Expect::Field);
                        }
                        Some(0) => {
                            visitor.text(self.name, Some(&[]));
                            self.settle(Expect::Field);
                        }
                        Some(n) if n > LONGEST_TEXT => {
                            return Err(Malformed::new(self.name, Reason::TooLong));
                        }
                        Some(n) => self.settle(Expect::Text(n)),
                    }
                }
            }
            Expect::Text(n) => {
                if self.gather(rest, n)? {
                    visitor.text(self.name, Some(&self.partial));
                    self.settle(Expect::Field);
                }
            }
            Expect::BytesLength => {
                if let Some(length) = self.length(rest)? {
                    self.settle(match length {
                        None | Some(0) => Expect::Field,
                        Some(n) => Expect::Bytes(n),
                    });
                    visitor.begins(self.name, self.bytes_left());
                }
            }
            Expect::Bytes(n) => {
                let wanted = usize::try_from(n).unwrap_or(usize::MAX).min(rest.len());
                visitor.bytes(self.name, rest.get(..wanted).unwrap_or_default());
                self.skip(rest, n, Expect::Bytes, Expect::Field)?;
            }
            Expect::Int32sCount => {
                if let Some(count) = self.length(rest)? {
                    self.settle(match count {
                        None | Some(0) => Expect::Field,
                        Some(n) => Expect::Skip(n.saturating_mul(4)),
                    });
                }
            }
            Expect::Skip(n) => self.skip(rest, n, Expect::Skip, Expect::Field)?,
            Expect::Count(fields) => {
                if let Some(count) = self.length(rest)? {
                    self.partial.clear();
                    self.expect = Expect::Field;
                    match count {
                        None | Some(0) => {}
                        Some(n) if n > self.left => {
                            return Err(Malformed::new(self.name, Reason::ImpossibleCount));
                        }
                        Some(n) => self.levels.push(Level {
                            fields,
                            next: 0,
                            more: n.saturating_sub(1),
                        }),
                    }
                }
            }
            Expect::TagCount => {
                if let Some(count) = self.varint(rest)? {
                    self.settle(Expect::Tag(count));
                }
            }
            Expect::Tag(count) => {
                if self.varint(rest)?.is_some() {
                    self.settle(Expect::TagSize(count.saturating_sub(1)));
                }
            }
            Expect::TagSize(count) => {
                if let Some(size) = self.varint(rest)? {
                    self.settle(Expect::TagContent(count, u64::from(size)));
                }
            }
            Expect::TagContent(count, n) => {
                self.skip(
                    rest,
                    n,
                    |n| Expect::TagContent(count, n),
                    Expect::Tag(count),
                )?;
            }
        }
        Ok(())
    }

    fn settle(&mut self, next: Expect) {
        self.partial.clear();
        self.expect = next;
    }

    /// Moves bytes to `partial` until it holds `n`.
    fn gather(&mut self, rest: &mut &[u8], n: usize) -> Result<bool, Malformed> {
        let wanted = n.saturating_sub(self.partial.len()).min(rest.len());
        let (taken, after) = rest
            .split_at_checked(wanted)
            .ok_or(Malformed::new(self.name, Reason::Truncated))?;
        self.partial.extend_from_slice(taken);
        *rest = after;
        self.spend(wanted as u64)?;
        Ok(self.partial.len() >= n)
    }

    fn skip(
        &mut self,
        rest: &mut &[u8],
        n: u64,
        again: impl FnOnce(u64) -> Expect,
        then: Expect,
    ) -> Result<(), Malformed> {
        let wanted = usize::try_from(n).unwrap_or(usize::MAX).min(rest.len());
        *rest = rest.get(wanted..).unwrap_or_default();
        self.spend(wanted as u64)?;
        let n = n.saturating_sub(wanted as u64);
        self.expect = if n == 0 { then } else { again(n) };
        Ok(())
    }

    fn spend(&mut self, bytes: u64) -> Result<(), Malformed> {
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or(Malformed::new(self.name, Reason::Truncated))?;
        Ok(())
    }

    /// An UNSIGNED_VARINT, once all of it is here.
    fn varint(&mut self, rest: &mut &[u8]) -> Result<Option<u32>, Malformed> {
        while !rest.is_empty() {
            let so_far = self.partial.len();
            if so_far >= 5 {
                return Err(Malformed::new(self.name, Reason::OverlongVarint));
            }
            self.gather(rest, so_far.saturating_add(1))?;
            if self.partial.last().is_some_and(|byte| byte & 0x80 == 0) {
                return super::Reader::new(&self.partial)
                    .unsigned_varint(self.name)
                    .map(Some);
            }
        }
        Ok(None)
    }

    /// A length or count: INT32 or a varint plus one. The inner `None` is null: any negative one, as in Kafka.
    fn length(&mut self, rest: &mut &[u8]) -> Result<Option<Option<u64>>, Malformed> {
        if self.flexible {
            return Ok(self.varint(rest)?.map(|n| u64::from(n).checked_sub(1)));
        }
        if !self.gather(rest, 4)? {
            return Ok(None);
        }
        let length = super::Reader::new(&self.partial).int32(self.name)?;
        Ok(Some(u64::try_from(length).ok()))
    }

    /// A string's length: INT16 or a varint plus one. The inner `None` is null.
    fn text_length(&mut self, rest: &mut &[u8]) -> Result<Option<Option<usize>>, Malformed> {
        if self.text_is_compact() {
            return Ok(self.varint(rest)?.map(|n| (n as usize).checked_sub(1)));
        }
        if !self.gather(rest, 2)? {
            return Ok(None);
        }
        let length = super::Reader::new(&self.partial).int16(self.name)?;
        Ok(Some(usize::try_from(length).ok()))
    }

    /// A request header's client id is never compact (KIP-482), in whatever version.
    fn text_is_compact(&self) -> bool {
        self.flexible && self.name != "client_id"
    }
}
