//! gzip as `java.util.zip.GZIPInputStream` reads it: members one behind the other, each with its checksum and
//! size verified; bytes behind a member that are no header are ignored.

use flate2::{Crc, Decompress, FlushDecompress, Status};

use super::deflate::{self, Scanned};
use super::{DecodeError, Halt, Input, Output, Tap, UpperBound};

const MAGIC: [u8; 2] = [0x1f, 0x8b];
const DEFLATE: u8 = 8;
const FLAG_HEADER_CRC: u8 = 0x02;
const FLAG_EXTRA: u8 = 0x04;
const FLAG_NAME: u8 = 0x08;
const FLAG_COMMENT: u8 = 0x10;

/// The inflate state, reused.
pub(super) struct Inflater(Decompress);

impl Default for Inflater {
    fn default() -> Self {
        Self(Decompress::new(false))
    }
}

impl Inflater {
    pub(super) fn decode<O: Output>(
        &mut self,
        payload: &[u8],
        buffer: &mut [u8],
        tap: &mut Tap<'_, O>,
    ) -> Result<(), Halt> {
        let input = &mut Input::new(payload);
        read_header(input)?;
        loop {
            self.read_member(input, buffer, tap)?;
            // Whether Kafka goes on to a next member depends on its JVM and on where the member ends in an 8 KiB
            // buffer. Whoever has all records stops; whoever has not needs the next member.
            tap.seam()?;
            if read_header(input).is_err() {
                return Ok(());
            }
        }
    }

    fn read_member<O: Output>(
        &mut self,
        input: &mut Input<'_>,
        buffer: &mut [u8],
        tap: &mut Tap<'_, O>,
    ) -> Result<(), Halt> {
        self.0.reset(false);
        let mut crc = Crc::new();
        let mut produced_bytes = 0u64;
        loop {
            let (in_before, out_before) = (self.0.total_in(), self.0.total_out());
            let status = self
                .0
                .decompress(input.rest, buffer, FlushDecompress::None)
                .map_err(|_| DecodeError::Corrupt)?;
            let consumed = self.0.total_in().saturating_sub(in_before);
            let produced = self.0.total_out().saturating_sub(out_before);
            input.take(consumed as usize)?;
            let piece = buffer.get(..produced as usize).unwrap_or_default();
            crc.update(piece);
            produced_bytes = produced_bytes.saturating_add(produced);
            tap.piece(piece)?;
            match status {
                Status::StreamEnd => break,
                _ if consumed == 0 && produced == 0 => return Err(DecodeError::Truncated.into()),
                Status::Ok | Status::BufError => {}
            }
        }
        let crc_ok = input.u32_le()? == crc.sum();
        let size_ok = input.u32_le()? == produced_bytes as u32;
        if crc_ok && size_ok {
            Ok(())
        } else {
            Err(DecodeError::ChecksumMismatch.into())
        }
    }
}

/// Bytes that a payload decodes to, if it decodes, by its symbols alone. `None` where they are more than `ceiling`, or
/// its last bytes claim so: then a decode must tell anyway.
pub(super) fn scan(payload: &[u8], ceiling: u64) -> Result<Option<UpperBound>, DecodeError> {
    // A claim only, and all that hangs on it is whether it is worth while to look.
    if let Some(claim) = payload.last_chunk::<4>()
        && u64::from(u32::from_le_bytes(*claim)) > ceiling
    {
        return Ok(None);
    }
    let input = &mut Input::new(payload);
    let mut bound = UpperBound {
        at_most: 0,
        is_exact: true,
    };
    read_header(input)?;
    loop {
        let left = ceiling.saturating_sub(bound.at_most);
        match deflate::scan(input.rest, left)? {
            Scanned::Over => return Ok(None),
            Scanned::Enough { at_most } => {
                return Ok(Some(UpperBound {
                    at_most: bound.at_most.saturating_add(at_most),
                    is_exact: false,
                }));
            }
            Scanned::Whole { holds, takes } => {
                bound.at_most = bound.at_most.saturating_add(holds);
                input.take(takes)?;
                input.u32_le()?;
                if input.u32_le()? != holds as u32 {
                    return Err(DecodeError::ChecksumMismatch);
                }
            }
        }
        if read_header(input).is_err() {
            return Ok(Some(bound));
        }
        // Whether Kafka goes on to the next member is not certain.
        bound.is_exact = false;
    }
}

/// RFC 1952, section 2.3. Reserved flags are ignored, as in Java.
fn read_header(input: &mut Input<'_>) -> Result<(), DecodeError> {
    let start = input.rest;
    if input.array()? != MAGIC {
        return Err(DecodeError::Corrupt);
    }
    if input.byte()? != DEFLATE {
        return Err(DecodeError::Unsupported);
    }
    let flags = input.byte()?;
    // Time, extra flags, operating system.
    input.take(6)?;
    if flags & FLAG_EXTRA != 0 {
        let length = u16::from_le_bytes(input.array()?);
        input.take(usize::from(length))?;
    }
    if flags & FLAG_NAME != 0 {
        skip_text(input)?;
    }
    if flags & FLAG_COMMENT != 0 {
        skip_text(input)?;
    }
    if flags & FLAG_HEADER_CRC != 0 {
        let read = start.len().saturating_sub(input.rest.len());
        let mut crc = Crc::new();
        crc.update(start.get(..read).unwrap_or_default());
        if u16::from_le_bytes(input.array()?) != crc.sum() as u16 {
            return Err(DecodeError::ChecksumMismatch);
        }
    }
    Ok(())
}

/// Text that ends with a zero byte.
fn skip_text(input: &mut Input<'_>) -> Result<(), DecodeError> {
    let end = input
        .rest
        .iter()
        .position(|byte| *byte == 0)
        .ok_or(DecodeError::Truncated)?;
    input.take(end.saturating_add(1))?;
    Ok(())
}
