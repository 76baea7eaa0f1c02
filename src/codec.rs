//! The one place that decompresses and compresses. Raw decoders are banned everywhere else (`clippy.toml`), because
//! each of them trusts something a peer declares: a size, a window, a count of members. Raw encoders are, because what
//! they write must be what Kafka's readers read ([`Encoder`]).
//!
//! Every decode has a cap and runs as a stream through buffers of a fixed size; nothing is allocated by a size
//! that is only declared. Each decoder reads what Kafka's own reader reads of the same bytes
//! (`org.apache.kafka.common.compress`), its leniences included: what follows from that is written beside them.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "this is the one place"
)]

mod bound;
mod deflate;
mod encode;
mod gain;
mod gzip;
mod lz4;
mod snappy;
mod zstd;

use std::fmt;
use std::ops::ControlFlow;

use crate::vocabulary::Codec;

pub use bound::{UpperBound, scan_cost_bytes, scanned_bound, upper_bound};
pub use encode::{EncodeError, Encoder, Encoding};
pub use gain::gain_percent;

/// Bytes of the buffer that gzip and zstd decode into: what `ZSTD_DStreamOutSize` recommends.
const PIECE_BYTES: usize = 128 * 1024;

/// Takes what a decoder produces.
pub trait Output {
    /// The next bytes. Breaks when no more are wanted.
    fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()>;

    /// Kafka's readers may or may not go on from here (behind a gzip member it depends on the JVM and on how the
    /// bytes fell into its buffer). Breaks when all that was expected is there.
    fn seam(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    /// Kafka's reader sees an end of the data here, once, and more data when it reads again: an empty lz4 block, a
    /// broken header between xerial chunks. Breaks when all that was expected is there.
    fn false_end(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// How a decode ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// All is decoded.
    Complete,
    /// The output wanted no more.
    Stopped,
    /// There is more than the cap.
    OverCap,
}

/// Why bytes cannot be decompressed. A fixed set: it is a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the compressed data does.
    Truncated,
    /// The bytes are not what the codec's format says.
    Corrupt,
    /// A checksum or a size in the compressed data is not that of what was decoded.
    ChecksumMismatch,
    /// A feature of the format that Kafka's reader does not take either.
    Unsupported,
    /// A window beyond what Kafka's reader takes (zstd), or a back-reference beyond what is held (snappy).
    WindowTooLarge,
}

impl DecodeError {
    /// The metric label and log field.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Truncated => "truncated_payload",
            Self::Corrupt => "corrupt_payload",
            Self::ChecksumMismatch => "checksum_mismatch",
            Self::Unsupported => "unsupported_format",
            Self::WindowTooLarge => "window_too_large",
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl std::error::Error for DecodeError {}

/// CRC-32 (IEEE 802.3), gzip's and that of messages of magic 0 and 1.
pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Contexts and buffers of all decoders: one per worker, made when first used, reused for every batch.
///
/// Holds up to about 6 MiB between decodes (lz4 blocks of 4 MiB, a snappy window, a zstd window of up to 8 MiB in
/// the library's own memory).
#[derive(Default)]
pub struct Decoders {
    gzip: Option<gzip::Inflater>,
    lz4: lz4::BlockBuffer,
    snappy: snappy::Window,
    zstd: Option<zstd::Context>,
    piece: Vec<u8>,
}

impl fmt::Debug for Decoders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoders").finish_non_exhaustive()
    }
}

impl Decoders {
    /// Allocates nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder that produces at most `max_output_bytes`, and one byte more to show that there is more.
    pub const fn decoder(&mut self, codec: Codec, max_output_bytes: u64) -> Decoder<'_> {
        Decoder {
            decoders: self,
            codec,
            max_output_bytes,
            has_sound_lz4_header: true,
        }
    }

    fn piece_buffer(piece: &mut Vec<u8>) -> &mut [u8] {
        piece.resize(PIECE_BYTES, 0);
        piece.as_mut_slice()
    }
}

/// One decode with its cap.
#[derive(Debug)]
pub struct Decoder<'a> {
    decoders: &'a mut Decoders,
    codec: Codec,
    max_output_bytes: u64,
    has_sound_lz4_header: bool,
}

impl Decoder<'_> {
    /// For what a message of magic 0 wraps: clients wrote a wrong checksum into the header of lz4 frames, so Kafka does
    /// not look at it (KAFKA-3160, `Lz4BlockInputStream.ignoreFlagDescriptorChecksum`).
    pub const fn of_magic_0(self) -> Self {
        Self {
            has_sound_lz4_header: false,
            ..self
        }
    }

    /// Decodes `payload` into `out`, piece by piece, until it ends, the cap is passed or `out` wants no more.
    pub fn decode(self, payload: &[u8], out: &mut impl Output) -> Result<End, DecodeError> {
        let tap = &mut Tap {
            out,
            left: self.max_output_bytes,
        };
        let Decoders {
            gzip,
            lz4,
            snappy,
            zstd,
            piece,
        } = self.decoders;
        let done = match self.codec {
            Codec::None => tap.piece(payload),
            Codec::Gzip => {
                gzip.get_or_insert_default()
                    .decode(payload, Decoders::piece_buffer(piece), tap)
            }
            Codec::Snappy => snappy.decode(payload, tap),
            Codec::Lz4 => lz4.decode(payload, self.has_sound_lz4_header, tap),
            Codec::Zstd => zstd::decode(zstd, payload, Decoders::piece_buffer(piece), tap),
        };
        match done {
            Ok(()) => Ok(End::Complete),
            Err(Halt::Stopped) => Ok(End::Stopped),
            Err(Halt::OverCap) => Ok(End::OverCap),
            Err(Halt::Broken(error)) => Err(error),
        }
    }
}

/// Why a decoder does not go on.
#[derive(Debug)]
enum Halt {
    Stopped,
    OverCap,
    Broken(DecodeError),
}

impl From<DecodeError> for Halt {
    fn from(error: DecodeError) -> Self {
        Self::Broken(error)
    }
}

/// The output behind its cap.
struct Tap<'a, O> {
    out: &'a mut O,
    left: u64,
}

impl<O: Output> Tap<'_, O> {
    fn piece(&mut self, bytes: &[u8]) -> Result<(), Halt> {
        if bytes.is_empty() {
            return Ok(());
        }
        let shown = usize::try_from(self.left.saturating_add(1))
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let flow = self.out.piece(bytes.get(..shown).unwrap_or_default());
        match self.left.checked_sub(bytes.len() as u64) {
            _ if flow.is_break() => Err(Halt::Stopped),
            None => Err(Halt::OverCap),
            Some(left) => {
                self.left = left;
                Ok(())
            }
        }
    }

    fn seam(&mut self) -> Result<(), Halt> {
        if self.out.seam().is_break() {
            Err(Halt::Stopped)
        } else {
            Ok(())
        }
    }

    fn false_end(&mut self) -> Result<(), Halt> {
        if self.out.false_end().is_break() {
            Err(Halt::Stopped)
        } else {
            Ok(())
        }
    }
}

/// Bytes to read from the prefix, in the ways the formats need.
#[derive(Clone, Copy)]
struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(n)
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, DecodeError> {
        self.array().map(|[byte]| byte)
    }

    fn u32_le(&mut self) -> Result<u32, DecodeError> {
        self.array().map(u32::from_le_bytes)
    }
}
