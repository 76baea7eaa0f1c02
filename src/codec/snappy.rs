//! Snappy as snappy-java's `SnappyInputStream` reads it: xerial chunks, headers repeated between them; or one raw
//! block where the bytes do not begin with the xerial magic.
//!
//! A block of up to 1 MiB is decoded as a whole, a larger one through a sliding window: snappy's own format lets a
//! copy reach back to the block's first byte, encoders reach back 64 KiB (Google's) to 4 MiB (klauspost/s2, in
//! franz-go and sarama).

use super::{DecodeError, Halt, Input, Output, Tap, UpperBound};

pub(super) const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// What Kafka asks of the reader at once (`SnappyCompression.decompressionOutputSize`).
const FILL_BYTES: usize = 2 * 1024;
/// Magic, version, compatible version.
const XERIAL_HEADER_BYTES: usize = 16;
/// `SnappyInputStream.MAX_CHUNK_SIZE`
const MAX_CHUNK_BYTES: u32 = 512 * 1024 * 1024;

/// Blocks up to this size are decoded as a whole, by the `snap` crate; larger ones slide, with this much between two
/// pieces.
const PIECE_BYTES: usize = 1024 * 1024;
/// The furthest reach that is held, like the window of zstd.
const REACH_BYTES_MAX: usize = 128 * 1024 * 1024;
/// What the window keeps allocated between batches.
const KEPT_BYTES: usize = 2 * PIECE_BYTES;
/// A copy is at most so long.
const COPY_BYTES_MAX: usize = 64;

/// As snappy-java and the Java client write it, not as one raw block.
pub(super) fn is_xerial(payload: &[u8]) -> bool {
    payload.len() >= XERIAL_HEADER_BYTES && payload.starts_with(&XERIAL_MAGIC)
}

/// What all blocks together declare; each block's decoder refuses to miss its own.
pub(super) fn declared(payload: &[u8]) -> Result<UpperBound, DecodeError> {
    let mut bound = UpperBound {
        at_most: 0,
        is_exact: true,
    };
    let mut blocks = Blocks::new(payload)?;
    loop {
        match blocks.next_part()? {
            Part::Block(block) => {
                let declared = read_preamble(&mut Input::new(block))?;
                bound.at_most = bound.at_most.saturating_add(u64::from(declared));
            }
            // Kafka may stop there.
            Part::BrokenHeader => bound.is_exact = false,
            Part::End => return Ok(bound),
        }
    }
}

/// The blocks of a payload.
struct Blocks<'a> {
    input: Input<'a>,
    is_raw: bool,
}

/// What comes next in a payload.
enum Part<'a> {
    Block(&'a [u8]),
    /// The first half of a xerial magic without the second: Java passes over it, but sees the end of the data there
    /// if it has nothing else to return.
    BrokenHeader,
    End,
}

impl<'a> Blocks<'a> {
    fn new(payload: &'a [u8]) -> Result<Self, DecodeError> {
        if payload.is_empty() {
            return Err(DecodeError::Truncated);
        }
        let mut input = Input::new(payload);
        let is_xerial = is_xerial(payload);
        if is_xerial {
            input.take(XERIAL_HEADER_BYTES)?;
        }
        Ok(Self {
            input,
            is_raw: !is_xerial,
        })
    }

    fn next_part(&mut self) -> Result<Part<'a>, DecodeError> {
        if self.is_raw {
            let block = self.input.rest;
            self.input.rest = &[];
            return Ok(if block.is_empty() {
                Part::End
            } else {
                Part::Block(block)
            });
        }
        loop {
            // Up to three bytes behind the last chunk are ignored, as in Java.
            let Ok(word) = self.input.array::<4>() else {
                return Ok(Part::End);
            };
            if !XERIAL_MAGIC.starts_with(&word) {
                let size = u32::from_be_bytes(word);
                if size > MAX_CHUNK_BYTES {
                    return Err(DecodeError::Corrupt);
                }
                return self.input.take(size as usize).map(Part::Block);
            }
            let rest_of_magic = self.input.array::<4>()?;
            let version = i32::from_be_bytes(self.input.array()?);
            self.input.array::<4>()?;
            if !XERIAL_MAGIC.ends_with(&rest_of_magic) {
                return Ok(Part::BrokenHeader);
            }
            if version < 1 {
                return Err(DecodeError::Unsupported);
            }
        }
    }
}

/// A block's declared size: a varint of at most 32 bits, and no more than a Java array holds.
fn read_preamble(input: &mut Input<'_>) -> Result<u32, DecodeError> {
    let mut value = 0u32;
    for shift in [0u32, 7, 14, 21, 28] {
        let byte = input.byte()?;
        if shift == 28 && byte > 0x0f {
            return Err(DecodeError::Corrupt);
        }
        value |= u32::from(byte & 0x7f).wrapping_shl(shift);
        if byte < 0x80 {
            return if i32::try_from(value).is_ok() {
                Ok(value)
            } else {
                Err(DecodeError::Corrupt)
            };
        }
    }
    Err(DecodeError::Corrupt)
}

/// One element of a block.
enum Element<'a> {
    Literal(&'a [u8]),
    Copy { offset: usize, length: usize },
}

#[inline(always)]
fn read_element<'a>(input: &mut Input<'a>, tag: u8) -> Result<Element<'a>, DecodeError> {
    let upper = usize::from(tag >> 2);
    Ok(match tag & 3 {
        0 if upper < 60 => Element::Literal(input.take(upper.saturating_add(1))?),
        0 => Element::Literal(read_long_literal(input, upper)?),
        1 => Element::Copy {
            length: (upper & 7).saturating_add(4),
            offset: usize::from(tag >> 5).wrapping_shl(8) | usize::from(input.byte()?),
        },
        2 => Element::Copy {
            length: upper.saturating_add(1),
            offset: usize::from(u16::from_le_bytes(input.array()?)),
        },
        _ => Element::Copy {
            length: upper.saturating_add(1),
            offset: input.u32_le()? as usize,
        },
    })
}

/// Lengths of 61 bytes and more stand in one to four bytes of their own.
fn read_long_literal<'a>(input: &mut Input<'a>, upper: usize) -> Result<&'a [u8], DecodeError> {
    let mut word = [0u8; 4];
    let length_bytes = upper.saturating_sub(59);
    word.get_mut(..length_bytes)
        .ok_or(DecodeError::Corrupt)?
        .copy_from_slice(input.take(length_bytes)?);
    input.take((u32::from_le_bytes(word) as usize).saturating_add(1))
}

/// How far copies of a block reach back; fails where the block does not decode to what it declares. Reads
/// tags only.
fn furthest_reach(mut input: Input<'_>, declared: usize) -> Result<usize, DecodeError> {
    let (mut produced, mut reach) = (0usize, 0usize);
    while !input.rest.is_empty() {
        let tag = input.byte()?;
        let length = match read_element(&mut input, tag)? {
            Element::Literal(bytes) => bytes.len(),
            Element::Copy { offset, length } => {
                if offset == 0 || offset > produced {
                    return Err(DecodeError::Corrupt);
                }
                reach = reach.max(offset);
                length
            }
        };
        produced = produced.saturating_add(length);
        if produced > declared {
            return Err(DecodeError::Corrupt);
        }
    }
    if produced == declared {
        Ok(reach)
    } else {
        Err(DecodeError::Corrupt)
    }
}

/// What was decoded last, as far back as copies reach.
#[derive(Default)]
pub(super) struct Window {
    buffer: Vec<u8>,
    /// End of what is decoded in `buffer`.
    filled: usize,
    /// End of what was handed on of it.
    handed: usize,
}

impl Window {
    pub(super) fn decode<O: Output>(
        &mut self,
        payload: &[u8],
        tap: &mut Tap<'_, O>,
    ) -> Result<(), Halt> {
        let mut blocks = Blocks::new(payload)?;
        // Bytes since Kafka last began to fill its buffer.
        let mut in_fills = 0usize;
        loop {
            match blocks.next_part()? {
                Part::Block(block) => {
                    let produced = self.decode_block(block, tap)?;
                    in_fills = in_fills.wrapping_add(produced);
                }
                Part::BrokenHeader => {
                    if in_fills.is_multiple_of(FILL_BYTES) {
                        tap.false_end()?;
                    }
                    in_fills = 0;
                }
                Part::End => return Ok(()),
            }
        }
    }

    fn decode_block<O: Output>(
        &mut self,
        block: &[u8],
        tap: &mut Tap<'_, O>,
    ) -> Result<usize, Halt> {
        let mut input = Input::new(block);
        let declared = read_preamble(&mut input)? as usize;
        if declared <= PIECE_BYTES {
            self.decode_whole(block, declared, tap)?;
        } else {
            let kept_behind = self.make_room(input, declared)?;
            let done = self.decode_elements(&mut input, declared, kept_behind, tap);
            if self.buffer.len() > KEPT_BYTES {
                self.buffer = Vec::new();
            }
            done?;
        }
        Ok(declared)
    }

    /// A block that is decoded in one piece.
    fn decode_whole<O: Output>(
        &mut self,
        block: &[u8],
        declared: usize,
        tap: &mut Tap<'_, O>,
    ) -> Result<(), Halt> {
        if self.buffer.len() < declared {
            self.buffer.resize(declared, 0);
        }
        let room = self.buffer.get_mut(..declared).unwrap_or_default();
        let decoded = snap::raw::Decoder::new().decompress(block, room);
        if decoded.map_err(|_| DecodeError::Corrupt)? != declared {
            return Err(DecodeError::Corrupt.into());
        }
        tap.piece(room)
    }

    /// Makes the buffer large enough; says how much must stay in it when it slides.
    fn make_room(&mut self, elements: Input<'_>, declared: usize) -> Result<usize, DecodeError> {
        (self.filled, self.handed) = (0, 0);
        // The size of the buffer comes from copies that are there, not from the declared size.
        let reach = furthest_reach(elements, declared)?;
        if reach > REACH_BYTES_MAX {
            return Err(DecodeError::WindowTooLarge);
        }
        // Copies may write up to their greatest length at once.
        let room = reach
            .saturating_add(PIECE_BYTES)
            .saturating_add(COPY_BYTES_MAX);
        if self.buffer.len() < room {
            self.buffer.resize(room, 0);
        }
        Ok(reach)
    }

    fn decode_elements<O: Output>(
        &mut self,
        input: &mut Input<'_>,
        declared: usize,
        kept_behind: usize,
        tap: &mut Tap<'_, O>,
    ) -> Result<(), Halt> {
        let mut left = declared;
        while let Some((&tag, rest)) = input.rest.split_first() {
            input.rest = rest;
            match read_element(input, tag)? {
                Element::Literal(bytes) => {
                    left = left.checked_sub(bytes.len()).ok_or(DecodeError::Corrupt)?;
                    self.literal(bytes, kept_behind, tap)?;
                }
                Element::Copy { offset, length } => {
                    left = left.checked_sub(length).ok_or(DecodeError::Corrupt)?;
                    if self.buffer.len().saturating_sub(self.filled) < COPY_BYTES_MAX {
                        self.slide(kept_behind, tap)?;
                    }
                    self.copy(offset, length)?;
                }
            }
        }
        if left > 0 {
            return Err(DecodeError::Corrupt.into());
        }
        self.hand_on(tap)
    }

    #[inline(always)]
    fn literal<O: Output>(
        &mut self,
        mut bytes: &[u8],
        kept_behind: usize,
        tap: &mut Tap<'_, O>,
    ) -> Result<(), Halt> {
        loop {
            let room = self.buffer.get_mut(self.filled..).unwrap_or_default();
            let n = room.len().min(bytes.len());
            let (now, later) = bytes.split_at_checked(n).unwrap_or_default();
            room.get_mut(..n).unwrap_or_default().copy_from_slice(now);
            self.filled = self.filled.saturating_add(n);
            if later.is_empty() {
                return Ok(());
            }
            bytes = later;
            self.slide(kept_behind, tap)?;
        }
    }

    /// Room for a copy's greatest length is there.
    #[inline(always)]
    fn copy(&mut self, offset: usize, length: usize) -> Result<(), DecodeError> {
        let start = match self.filled.checked_sub(offset) {
            Some(start) if offset > 0 => start,
            _ => return Err(DecodeError::Corrupt),
        };
        let end = self.filled.saturating_add(length);
        if offset >= 16 {
            // In strides of 16: what is written beyond the end is overwritten by the next element.
            let (mut from, mut to) = (start, self.filled);
            while to < end {
                let stride = *self
                    .buffer
                    .get(from..)
                    .and_then(|b| b.first_chunk::<16>())
                    .ok_or(DecodeError::Corrupt)?;
                *self
                    .buffer
                    .get_mut(to..)
                    .and_then(|b| b.first_chunk_mut::<16>())
                    .ok_or(DecodeError::Corrupt)? = stride;
                from = from.saturating_add(16);
                to = to.saturating_add(16);
            }
        } else {
            // A short pattern, doubled until it is long enough.
            let mut to = self.filled;
            while to < end {
                let n = to.saturating_sub(start).min(end.saturating_sub(to));
                self.buffer.copy_within(start..start.saturating_add(n), to);
                to = to.saturating_add(n);
            }
        }
        self.filled = end;
        Ok(())
    }

    /// Hands on what is new and moves the last `kept_behind` bytes to the front.
    #[cold]
    fn slide<O: Output>(&mut self, kept_behind: usize, tap: &mut Tap<'_, O>) -> Result<(), Halt> {
        self.hand_on(tap)?;
        let kept = kept_behind.min(self.filled);
        self.buffer
            .copy_within(self.filled.saturating_sub(kept)..self.filled, 0);
        self.filled = kept;
        self.handed = kept;
        Ok(())
    }

    fn hand_on<O: Output>(&mut self, tap: &mut Tap<'_, O>) -> Result<(), Halt> {
        let new = self
            .buffer
            .get(self.handed..self.filled)
            .unwrap_or_default();
        self.handed = self.filled;
        tap.piece(new)
    }
}
