//! lz4 frames as Kafka's `Lz4BlockInputStream` reads them: one frame of independent blocks. Content size and
//! content checksum are passed over unverified, block checksums are verified, bytes behind the end mark ignored,
//! linked blocks and dictionaries refused.

use std::hash::Hasher;

use super::{DecodeError, Halt, Input, Output, Tap};

const MAGIC: u32 = 0x184d_2204;
const VERSION: u8 = 1;
const STORED: u32 = 0x8000_0000;
/// A sequence of no literals and a match of no extra length is a token and an offset; beyond that each byte of
/// input adds at most 255 of output.
pub(super) const MOST_PER_BYTE: u64 = 255;

/// What the frame's first bytes say.
pub(super) struct FrameHeader {
    has_block_checksums: bool,
    has_content_checksum: bool,
    pub(super) max_block_bytes: usize,
}

impl FrameHeader {
    /// With `is_sound` its checksum must be right.
    pub(super) fn read(input: &mut Input<'_>, is_sound: bool) -> Result<Self, DecodeError> {
        if input.u32_le()? != MAGIC {
            return Err(DecodeError::Corrupt);
        }
        let descriptor = input.rest;
        let [flags, block] = input.array()?;
        let has_content_size = flags & 0x08 != 0;
        let is_independent = flags & 0x20 != 0;
        let reserved = flags & 0x03;
        if flags >> 6 != VERSION || !is_independent || reserved != 0 || block & 0x8f != 0 {
            return Err(DecodeError::Unsupported);
        }
        let max_block_bytes = match block >> 4 {
            4 => 64 * 1024,
            5 => 256 * 1024,
            6 => 1024 * 1024,
            7 => 4 * 1024 * 1024,
            _ => return Err(DecodeError::Unsupported),
        };
        if has_content_size {
            input.take(8)?;
        }
        let descriptor_bytes = descriptor.len().saturating_sub(input.rest.len());
        let hash = xxh32(descriptor.get(..descriptor_bytes).unwrap_or_default());
        if input.byte()? != (hash >> 8) as u8 && is_sound {
            return Err(DecodeError::ChecksumMismatch);
        }
        Ok(Self {
            has_block_checksums: flags & 0x10 != 0,
            has_content_checksum: flags & 0x04 != 0,
            max_block_bytes,
        })
    }

    /// The next block; `None` at the end mark.
    pub(super) fn next_block<'a>(
        &self,
        input: &mut Input<'a>,
    ) -> Result<Option<Block<'a>>, DecodeError> {
        let word = input.u32_le()?;
        let size = (word & !STORED) as usize;
        if size == 0 {
            if self.has_content_checksum {
                input.take(4)?;
            }
            return Ok(None);
        }
        if size > self.max_block_bytes {
            return Err(DecodeError::Corrupt);
        }
        let bytes = input.take(size)?;
        let checksum = if self.has_block_checksums {
            Some(input.u32_le()?)
        } else {
            None
        };
        Ok(Some(Block {
            bytes,
            is_stored: word & STORED != 0,
            checksum,
        }))
    }
}

/// One block of a frame.
pub(super) struct Block<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) is_stored: bool,
    checksum: Option<u32>,
}

/// Holds one decoded block: grows to the largest block size that frames used, at most 4 MiB.
#[derive(Default)]
pub(super) struct BlockBuffer(Vec<u8>);

impl BlockBuffer {
    pub(super) fn decode<O: Output>(
        &mut self,
        payload: &[u8],
        has_sound_header: bool,
        tap: &mut Tap<'_, O>,
    ) -> Result<(), Halt> {
        let input = &mut Input::new(payload);
        let frame = FrameHeader::read(input, has_sound_header)?;
        if self.0.len() < frame.max_block_bytes {
            self.0.resize(frame.max_block_bytes, 0);
        }
        while let Some(block) = frame.next_block(input)? {
            if block
                .checksum
                .is_some_and(|checksum| checksum != xxh32(block.bytes))
            {
                return Err(DecodeError::ChecksumMismatch.into());
            }
            if block.is_stored {
                tap.piece(block.bytes)?;
                continue;
            }
            let room = self.0.get_mut(..frame.max_block_bytes).unwrap_or_default();
            let produced = lz4_flex::block::decompress_into(block.bytes, room)
                .map_err(|_| DecodeError::Corrupt)?;
            if produced == 0 {
                tap.false_end()?;
            }
            tap.piece(room.get(..produced).unwrap_or_default())?;
        }
        Ok(())
    }
}

/// Bytes that a compressed block decodes to, if it decodes: a walk over its tokens, without its content. Ends early
/// above `ceiling`.
pub(super) fn scan_block(block: &[u8], ceiling: u64) -> Result<u64, DecodeError> {
    let input = &mut Input::new(block);
    let mut total = 0u64;
    loop {
        let token = input.byte()?;
        let literals = read_length(input, token >> 4)?;
        input.take(literals)?;
        total = total.saturating_add(literals as u64);
        if input.rest.is_empty() || total > ceiling {
            return Ok(total);
        }
        input.take(2)?;
        let matched = read_length(input, token & 0x0f)?;
        total = total.saturating_add(matched as u64).saturating_add(4);
    }
}

fn read_length(input: &mut Input<'_>, nibble: u8) -> Result<usize, DecodeError> {
    let mut length = usize::from(nibble);
    if nibble == 15 {
        loop {
            let byte = input.byte()?;
            length = length.saturating_add(usize::from(byte));
            if byte != 255 {
                break;
            }
        }
    }
    Ok(length)
}

fn xxh32(bytes: &[u8]) -> u32 {
    let mut hasher = twox_hash::XxHash32::with_seed(0);
    hasher.write(bytes);
    hasher.finish_32()
}
