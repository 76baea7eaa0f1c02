//! zstd as zstd-jni's `ZstdInputStreamNoFinalizer` reads it: frames one behind the other, skippable ones among
//! them; anything else behind a frame is an error. A cut frame is one too, but for [`ends_for_kafka`].

use zstd::zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

use super::{DecodeError, Halt, Input, Output, Tap};

/// log2 of the largest window: the library's default, which Kafka's reader keeps (`ZSTD_WINDOWLOG_LIMIT_DEFAULT`).
/// A smaller cap would refuse batches that brokers accept. The library touches a window's memory only as output
/// fills it, so that a claimed window of 128 MiB costs what is really decoded, which the decode's own cap bounds.
const WINDOW_LOG_MAX: u32 = 27;

/// A context above this size is not kept: windows of real clients are at most 8 MiB (kafka-go, levels to 19).
const KEPT_BYTES: usize = 9 * 1024 * 1024;

const MAGIC: u32 = 0xfd2f_b528;
const SKIPPABLE_MAGIC: u32 = 0x184d_2a50;
const BLOCK_BYTES_MAX: u64 = 128 * 1024;
/// What zstd-jni reads at once (`ZSTD_DStreamInSize`).
const READ_BYTES: usize = 128 * 1024 + 3;

/// The library's context, reused.
pub(super) type Context = DCtx<'static>;

pub(super) fn decode<O: Output>(
    kept: &mut Option<Context>,
    payload: &[u8],
    buffer: &mut [u8],
    tap: &mut Tap<'_, O>,
) -> Result<(), Halt> {
    let context = kept.get_or_insert_with(DCtx::create);
    let done = decode_frames(context, payload, buffer, tap);
    if context.sizeof() > KEPT_BYTES {
        *kept = None;
    }
    done
}

fn decode_frames<O: Output>(
    context: &mut Context,
    payload: &[u8],
    buffer: &mut [u8],
    tap: &mut Tap<'_, O>,
) -> Result<(), Halt> {
    context
        .reset(ResetDirective::SessionAndParameters)
        .map_err(library_error)?;
    context
        .set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX))
        .map_err(library_error)?;
    let mut input = InBuffer::around(payload);
    let mut is_frame_complete = true;
    let mut last_frame_end = 0;
    loop {
        if is_frame_complete && input.pos() >= payload.len() {
            return Ok(());
        }
        let mut output = OutBuffer::around(&mut *buffer);
        let hint = context
            .decompress_stream(&mut output, &mut input)
            .map_err(library_error)?;
        let produced = output.pos();
        tap.piece(buffer.get(..produced).unwrap_or_default())?;
        is_frame_complete = hint == 0;
        if is_frame_complete {
            last_frame_end = input.pos();
        }
        let is_drained = produced < buffer.len();
        if !is_frame_complete && is_drained && input.pos() >= payload.len() {
            return if ends_for_kafka(payload.len(), last_frame_end) {
                Ok(())
            } else {
                Err(DecodeError::Truncated.into())
            };
        }
    }
}

/// Whether zstd-jni takes the end of the input for the end of the data although a frame is cut there: it remembers that
/// a frame was complete until it reads again, and reads in pieces.
const fn ends_for_kafka(payload_bytes: usize, last_frame_end: usize) -> bool {
    let last_byte = payload_bytes.saturating_sub(1);
    let last_read = last_byte.saturating_sub(last_byte % READ_BYTES);
    last_frame_end > last_read
}

/// The library's error codes are negative numbers of type `size_t`.
fn library_error(code: usize) -> DecodeError {
    const CHECKSUM_WRONG: usize = 22;
    const WINDOW_TOO_LARGE: usize = 16;
    const DICTIONARY_WRONG: usize = 32;
    match code.wrapping_neg() {
        CHECKSUM_WRONG => DecodeError::ChecksumMismatch,
        WINDOW_TOO_LARGE => DecodeError::WindowTooLarge,
        DICTIONARY_WRONG => DecodeError::Unsupported,
        _ => DecodeError::Corrupt,
    }
}

/// What the headers of one frame and of its blocks say of its decoded size.
pub(super) struct FrameBound {
    /// Declared content size, where it can be believed: the library refuses a frame that decodes to anything else, but
    /// not if its last block is empty, and only once it has decoded all of it.
    pub(super) content_bytes: Option<u64>,
    /// No more than the blocks can hold.
    pub(super) blocks_at_most: u64,
}

/// Walks one frame by its headers (RFC 8878, section 3.1); its blocks are passed over.
pub(super) fn read_frame(input: &mut Input<'_>) -> Result<FrameBound, DecodeError> {
    let magic = input.u32_le()?;
    if magic & 0xffff_fff0 == SKIPPABLE_MAGIC {
        let size = input.u32_le()?;
        input.take(size as usize)?;
        return Ok(FrameBound {
            content_bytes: Some(0),
            blocks_at_most: 0,
        });
    }
    if magic != MAGIC {
        return Err(DecodeError::Corrupt);
    }
    let descriptor = input.byte()?;
    let is_single_segment = descriptor & 0x20 != 0;
    let has_checksum = descriptor & 0x04 != 0;
    if !is_single_segment {
        input.byte()?;
    }
    input.take(match descriptor & 0x03 {
        0 => 0,
        1 => 1,
        2 => 2,
        _ => 4,
    })?;
    let content_bytes = match descriptor >> 6 {
        0 if is_single_segment => Some(u64::from(input.byte()?)),
        0 => None,
        1 => Some(u64::from(u16::from_le_bytes(input.array()?)).saturating_add(256)),
        2 => Some(u64::from(u32::from_le_bytes(input.array()?))),
        _ => Some(u64::from_le_bytes(input.array()?)),
    };
    let blocks = read_blocks(input)?;
    if has_checksum {
        input.take(4)?;
    }
    Ok(FrameBound {
        content_bytes: content_bytes.filter(|bytes| blocks.can_hold(*bytes)),
        blocks_at_most: blocks.at_most,
    })
}

/// What the headers of a frame's blocks say.
struct Blocks {
    /// They hold no more.
    at_most: u64,
    /// The last one is empty.
    end_empty: bool,
}

impl Blocks {
    /// The declared content is what they hold, if the frame decodes; and a broker that tries does not decode much more
    /// before it finds that it does not.
    fn can_hold(&self, content_bytes: u64) -> bool {
        let credible = content_bytes
            .saturating_mul(16)
            .saturating_add(BLOCK_BYTES_MAX.saturating_mul(2));
        !self.end_empty && self.at_most <= credible
    }
}

fn read_blocks(input: &mut Input<'_>) -> Result<Blocks, DecodeError> {
    let mut at_most = 0u64;
    loop {
        let [a, b, c] = input.array()?;
        let header = u32::from_le_bytes([a, b, c, 0]);
        let size = header >> 3;
        let (stored_bytes, most_bytes) = match (header >> 1) & 3 {
            0 => (size, u64::from(size)),
            1 => (1, u64::from(size)),
            2 => (size, BLOCK_BYTES_MAX),
            _ => return Err(DecodeError::Corrupt),
        };
        input.take(stored_bytes as usize)?;
        at_most = at_most.saturating_add(most_bytes);
        if header & 1 != 0 {
            return Ok(Blocks {
                at_most,
                end_empty: size == 0,
            });
        }
    }
}
