//! Reads what Produce carried before version 3, until Kafka 3.9: message sets of magic 0 and 1, or batches in a row.
//!
//! Each message counts as a batch of its own (`AbstractLegacyRecordBatch`); a compressed one wraps others, one level
//! deep. Offset, size and magic stand where they do in a batch of magic 2.

use std::ops::ControlFlow;

use super::prefix::{Prefix, prefix};
use super::{RecordError, RecordSizes, Rewritten};
use crate::vocabulary::Codec;
use crate::wire::record_batch::{LEAST_LENGTH, LOG_OVERHEAD_BYTES, MAGIC_AT};
use crate::wire::{Malformed, Reader, Reason};

/// Where the CRC stands: behind offset and size, which the size does not count.
const CRC_AT: usize = LOG_OVERHEAD_BYTES;
/// Where what the CRC covers begins: at the magic.
const CRC_FROM: usize = MAGIC_AT;
/// Everything up to the key's length, in magic 0 and in magic 1, which has a timestamp more.
const HEAD_BYTES: [usize; 2] = [22, 30];

/// One entry of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// 0 or 1; 2 is a whole batch of today's kind.
    pub magic: i8,
    /// Of magic 0 and 1: over all that follows it (CRC-32, not CRC-32C).
    pub crc: u32,
    /// Bits 0–2 are the codec.
    pub attributes: i16,
    /// All of it, offset and size included: what the broker compares with `max.message.bytes`.
    pub bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// Length of [`Self::bytes`].
    pub const fn wire_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// What the checksum covers.
    pub fn checked(&self) -> &'a [u8] {
        self.bytes.get(CRC_FROM..).unwrap_or_default()
    }

    /// Sizes of the message itself, compressed or not. `None` where its key is longer than it.
    pub fn sizes(&self) -> Option<RecordSizes> {
        let bytes = self.wire_bytes();
        Some(sizes(self.bytes, bytes)?.at(bytes))
    }

    /// What a compressed message wraps.
    pub fn value(&self) -> Option<&'a [u8]> {
        let head = sizes(self.bytes, self.wire_bytes())?;
        let from = head
            .head_bytes
            .saturating_add(head.key_bytes)
            .saturating_add(4);
        self.bytes.get(usize::try_from(from).ok()?..)
    }
}

/// The messages of a set, one after the other. One that is cut off at the end is none, as in the broker
/// (`ByteBufferLogInputStream.nextBatch`): it stores those before it.
///
/// # Errors
/// A size or a magic that no message has: the broker refuses the whole set for that, not for its size. Nothing follows
/// an error.
pub fn messages(set: &[u8]) -> impl Iterator<Item = Result<Message<'_>, Malformed>> {
    let mut rest = set;
    std::iter::from_fn(move || {
        let message = next_message(&mut rest).transpose();
        if let Some(Err(_)) = message {
            rest = &[];
        }
        message
    })
}

fn next_message<'a>(rest: &mut &'a [u8]) -> Result<Option<Message<'a>>, Malformed> {
    let (magic, length) = match prefix(rest) {
        Prefix::Cut | Prefix::Overflowing => return Ok(None),
        Prefix::Broken(malformed) => return Err(malformed),
        Prefix::Whole { magic, bytes } => (magic, bytes),
    };
    let Some((bytes, behind)) = rest.split_at_checked(length) else {
        return Ok(None);
    };
    *rest = behind;
    let r = &mut Reader::new(bytes.get(CRC_AT..).unwrap_or_default());
    let crc = r.uint32("crc")?;
    r.int8("magic")?;
    let attributes = if magic == 2 {
        // Behind the checksum of this format.
        r.uint32("crc")?;
        r.int16("attributes")?
    } else {
        i16::from(r.int8("attributes")?)
    };
    Ok(Some(Message {
        magic,
        crc,
        attributes,
        bytes,
    }))
}

/// The largest message of a set, and how many there are.
///
/// # Errors
/// The set is empty, or as [`messages`].
pub fn largest_message(set: &[u8]) -> Result<(Message<'_>, u32), Malformed> {
    let mut largest: Option<Message<'_>> = None;
    let mut count = 0u32;
    for message in messages(set) {
        let message = message?;
        count = count.saturating_add(1);
        if largest.is_none_or(|largest| message.wire_bytes() > largest.wire_bytes()) {
            largest = Some(message);
        }
    }
    match largest {
        Some(largest) => Ok((largest, count)),
        None => Err(Malformed::new("message", Reason::Truncated)),
    }
}

/// What a set takes as the one batch that a broker makes of it (`LogValidator.convertAndAssignOffsetsNonCompressed`).
/// `None` where a message is compressed, or cannot be: what a broker makes of it is not known from here.
pub fn as_one_batch(set: &[u8]) -> Option<Rewritten> {
    let mut batch = Rewritten::default();
    for message in messages(set) {
        let message = message.ok()?;
        if message.magic > 1 || Codec::from_attributes(message.attributes) != Some(Codec::None) {
            return None;
        }
        batch.message(&message.sizes()?);
    }
    Some(batch)
}

/// What the front of a message says.
#[derive(Clone, Copy)]
struct Head {
    head_bytes: u64,
    key_bytes: u64,
    /// −1 in magic 0, which has none.
    timestamp_ms: i64,
}

impl Head {
    /// Sizes when so many bytes of the message are there. What Java's producer estimated for these formats is the
    /// message's own size.
    fn at(self, bytes: u64) -> RecordSizes {
        let behind_head = bytes.saturating_sub(self.head_bytes);
        let key_bytes = self.key_bytes.min(behind_head);
        RecordSizes {
            record_bytes: bytes,
            estimate_bytes: bytes,
            key_bytes,
            // All that is left: a value that claims less leaves bytes that nobody reads.
            value_bytes: behind_head.saturating_sub(key_bytes).saturating_sub(4),
            headers_bytes: 0,
            timestamp_delta: self.timestamp_ms,
        }
    }
}

/// Reads as much of a message of `length` bytes as [`HEAD_BYTES`] says. `None` where its key is longer than it.
fn sizes(front: &[u8], length: u64) -> Option<Head> {
    let r = &mut Reader::new(front);
    r.take(CRC_FROM, "front").ok()?;
    let magic = r.int8("magic").ok()?;
    r.int8("attributes").ok()?;
    let timestamp_ms = match magic {
        1 => r.int64("timestamp").ok()?,
        _ => -1,
    };
    let key_bytes = u64::from(r.int32("key_length").ok()?.max(0).unsigned_abs());
    let head_bytes = r.position() as u64;
    let is_within = head_bytes.saturating_add(key_bytes).saturating_add(4) <= length;
    is_within.then_some(Head {
        head_bytes,
        key_bytes,
        timestamp_ms,
    })
}

/// Walks the messages inside a compressed one as they come out of a decoder, in pieces of any size.
///
/// As in Kafka (`AbstractLegacyRecordBatch.DeepRecordsIterator`) they end where the bytes do, a last one that is cut
/// off is no message, all have their wrapper's magic and none is compressed itself.
#[derive(Debug)]
pub struct MessageStream {
    magic: i8,
    front: [u8; HEAD_BYTES[1]],
    /// Bytes of the message at hand that came.
    came: u64,
    /// Its length, once known.
    length: u64,
    head: Option<RecordSizes>,
    messages: u32,
}

impl MessageStream {
    /// For what a message of `magic` wraps.
    pub const fn new(magic: i8) -> Self {
        Self {
            magic,
            front: [0; HEAD_BYTES[1]],
            came: 0,
            length: 0,
            head: None,
            messages: 0,
        }
    }

    /// Takes the next bytes; `each` is called at the end of every message.
    ///
    /// # Errors
    /// What Kafka refuses too. The stream is of no use afterwards.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        mut each: impl FnMut(&RecordSizes) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, RecordError> {
        while !bytes.is_empty() {
            let wanted = match self.head {
                None => (self.head_bytes() as u64).saturating_sub(self.came),
                Some(_) => self.length.saturating_sub(self.came),
            };
            let here = usize::try_from(wanted)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            let (taken, rest) = bytes.split_at_checked(here).unwrap_or((bytes, &[]));
            if self.head.is_none() {
                let from = usize::try_from(self.came).unwrap_or(usize::MAX);
                let room = self.front.get_mut(from..).unwrap_or_default();
                room.iter_mut()
                    .zip(taken)
                    .for_each(|(to, byte)| *to = *byte);
            }
            self.came = self.came.saturating_add(here as u64);
            bytes = rest;
            if self.head.is_none() && self.came >= self.head_bytes() as u64 {
                self.read_head()?;
            }
            if let Some(sizes) = self.head
                && self.came >= self.length
            {
                self.messages = self.messages.saturating_add(1);
                (self.came, self.head) = (0, None);
                if each(&sizes).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The message at hand as far as it came.
    pub fn partial(&self) -> RecordSizes {
        match sizes(&self.front, self.length) {
            Some(head) if self.head.is_some() => head.at(self.came),
            _ => RecordSizes {
                record_bytes: self.came,
                ..RecordSizes::default()
            },
        }
    }

    /// At the end of the bytes: how many messages there were.
    ///
    /// # Errors
    /// None: Kafka refuses a wrapper around nothing.
    pub const fn finish(&self) -> Result<u32, RecordError> {
        match self.messages {
            0 => Err(RecordError::Truncated),
            messages => Ok(messages),
        }
    }

    const fn head_bytes(&self) -> usize {
        if self.magic == 1 {
            HEAD_BYTES[1]
        } else {
            HEAD_BYTES[0]
        }
    }

    fn read_head(&mut self) -> Result<(), RecordError> {
        let r = &mut Reader::new(&self.front);
        let mut read = || {
            r.int64("offset")?;
            let size = r.int32("message_size")?;
            r.uint32("crc")?;
            Ok::<_, Malformed>((size, r.int8("magic")?, r.int8("attributes")?))
        };
        let (size, magic, attributes) = read().map_err(|_| RecordError::Truncated)?;
        let size = u32::try_from(size).map_err(|_| RecordError::NegativeLength)?;
        self.length = u64::from(size).saturating_add(LOG_OVERHEAD_BYTES as u64);
        let is_sound =
            size >= LEAST_LENGTH.unsigned_abs() && magic == self.magic && attributes & 7 == 0;
        let head = sizes(&self.front, self.length).filter(|_| is_sound);
        self.head = Some(head.ok_or(RecordError::LengthMismatch)?.at(self.length));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(magic: u8, attributes: u8, body: usize) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        bytes.extend_from_slice(&(6 + body as u32).to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 0, magic, attributes]);
        bytes.resize(18 + body, 0);
        bytes
    }

    #[test]
    fn the_largest_message_counts_with_its_offset_and_size() {
        let set = [message(0, 0, 20), message(1, 1, 100), message(1, 0, 30)].concat();
        let (largest, count) = largest_message(&set).unwrap();
        assert_eq!(
            (largest.wire_bytes(), largest.attributes, count),
            (118, 1, 3)
        );
        assert_eq!(largest.bytes, message(1, 1, 100));
    }

    #[test]
    fn nothing_follows_a_message_that_cannot_be() {
        let set = [message(0, 0, 20), message(9, 0, 20), message(1, 0, 20)].concat();
        let all: Vec<bool> = messages(&set).map(|message| message.is_ok()).collect();
        assert_eq!(all, [true, false]);
    }

    #[test]
    fn key_and_value_of_either_magic_are_measured() {
        for (magic, head) in [(0, 22), (1, 30)] {
            let mut bytes = message(magic, 0, head - 18 + 7 + 4 + 50);
            bytes[head - 4..head].copy_from_slice(&7i32.to_be_bytes());
            let message = messages(&bytes).next().unwrap().unwrap();
            let sizes = message.sizes().unwrap();
            assert_eq!((sizes.key_bytes, sizes.value_bytes), (7, 50));
            assert_eq!(sizes.record_bytes, bytes.len() as u64);
            assert_eq!(message.value().unwrap().len(), 50);
            for length in [60i32, i32::MAX] {
                bytes[head - 4..head].copy_from_slice(&length.to_be_bytes());
                assert_eq!(messages(&bytes).next().unwrap().unwrap().sizes(), None);
            }
        }
    }

    #[test]
    fn messages_inside_one_are_the_same_in_pieces_of_any_size() {
        let inner = [message(1, 0, 40), message(1, 0, 400), message(1, 0, 17)].concat();
        for piece in [1, 2, 7, 30, 31, 100, 1000] {
            let mut stream = MessageStream::new(1);
            let mut found = Vec::new();
            for bytes in inner.chunks(piece) {
                let flow = stream.feed(bytes, |sizes| {
                    found.push(sizes.record_bytes);
                    ControlFlow::Continue(())
                });
                assert_eq!(flow, Ok(ControlFlow::Continue(())));
                assert!(stream.partial().record_bytes < 418);
            }
            assert_eq!(
                (stream.finish(), &found[..]),
                (Ok(3), &[58, 418, 35][..]),
                "{piece}"
            );
        }
    }

    #[test]
    fn what_kafka_refuses_inside_a_message_is_refused() {
        let feed = |magic, bytes: &[u8]| {
            MessageStream::new(magic).feed(bytes, |_| ControlFlow::Continue(()))
        };
        let compressed = message(1, 1, 40);
        let mut short = message(0, 0, 8);
        short[8..12].copy_from_slice(&13i32.to_be_bytes());
        let mut negative = message(0, 0, 8);
        negative[8] = 0xff;
        for (magic, bytes) in [
            (1, &compressed),
            (1, &message(0, 0, 40)),
            (0, &short),
            (0, &negative),
        ] {
            assert!(feed(magic, bytes).is_err());
        }
        // Cut off: not there.
        let mut stream = MessageStream::new(0);
        let flow = stream.feed(&message(0, 0, 40)[..50], |_| panic!("not whole"));
        assert_eq!(
            (flow, stream.finish()),
            (Ok(ControlFlow::Continue(())), Err(RecordError::Truncated))
        );
        assert_eq!(stream.partial().record_bytes, 50);
    }

    #[test]
    fn a_message_cut_off_at_the_end_is_none() {
        let whole = message(0, 0, 100);
        let mut next = message(1, 0, 500);
        next.truncate(517);
        for cut in [1, 11, 12, 16, 17, 18, 30, 517] {
            let set = [&whole[..], &next[..cut]].concat();
            let (largest, count) = largest_message(&set).unwrap();
            assert_eq!((largest.bytes, count), (&whole[..], 1), "{cut}");
        }
    }

    #[test]
    fn what_is_no_message_set_is_left_to_the_broker() {
        for set in [
            vec![],
            message(3, 0, 20),
            message(0, 0, 20)[..30].to_vec(),
            message(0, 0, 4),
        ] {
            assert!(largest_message(&set).is_err());
        }
    }
}
