//! Encodes a batch's records as Kafka's clients do, at their usual levels, as a stream.
//!
//! A batch that is spliced keeps its codec: otherwise the neighbours of a large record would lose their compression and
//! no longer fit.

use std::fmt;
use std::io::{self, Write};

use flate2::write::GzEncoder;
use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};

use super::snappy;
use crate::vocabulary::Codec;

/// Kafka's default for gzip (`Deflater.DEFAULT_COMPRESSION`).
const GZIP_LEVEL: u32 = 6;
/// Kafka's default for zstd (`ZstdCompression`).
const ZSTD_LEVEL: i32 = 3;
/// What snappy-java compresses at once (`SnappyOutputStream.DEFAULT_BLOCK_SIZE`).
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;

/// How the records of a batch are written: its codec, and of snappy's two ways the one that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// As they are.
    None,
    /// One member.
    Gzip,
    /// Blocks behind a magic, as snappy-java and librdkafka's readers know them.
    SnappyXerial,
    /// One raw block, as librdkafka, sarama and franz-go write.
    SnappyRaw,
    /// One frame of independent blocks of 64 KiB.
    Lz4,
    /// One frame.
    Zstd,
}

impl Encoding {
    /// That of records which somebody else wrote.
    pub fn of(codec: Codec, payload: &[u8]) -> Self {
        match codec {
            Codec::None => Self::None,
            Codec::Gzip => Self::Gzip,
            Codec::Snappy if snappy::is_xerial(payload) => Self::SnappyXerial,
            Codec::Snappy => Self::SnappyRaw,
            Codec::Lz4 => Self::Lz4,
            Codec::Zstd => Self::Zstd,
        }
    }

    /// The codec that the batch's attributes name.
    pub const fn codec(self) -> Codec {
        match self {
            Self::None => Codec::None,
            Self::Gzip => Codec::Gzip,
            Self::SnappyXerial | Self::SnappyRaw => Codec::Snappy,
            Self::Lz4 => Codec::Lz4,
            Self::Zstd => Codec::Zstd,
        }
    }
}

/// The library would not write. What is written goes to memory, so that only a size beyond the format's is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeError;

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot be compressed")
    }
}

impl std::error::Error for EncodeError {}

impl From<io::Error> for EncodeError {
    fn from(_: io::Error) -> Self {
        Self
    }
}

impl From<snap::Error> for EncodeError {
    fn from(_: snap::Error) -> Self {
        Self
    }
}

/// Takes records in pieces of any size and gives what they are compressed to.
///
/// Holds its output, and of raw snappy, which is one block, also its input.
pub struct Encoder(Kind);

enum Kind {
    None(Vec<u8>),
    Gzip(GzEncoder<Vec<u8>>),
    Snappy(Snappy),
    /// The frame's state is large.
    Lz4(Box<FrameEncoder<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Encoder {
    /// Nothing is written yet.
    ///
    /// # Errors
    /// The library has no memory for its context.
    pub fn new(encoding: Encoding) -> Result<Self, EncodeError> {
        Ok(Self(match encoding {
            Encoding::None => Kind::None(Vec::new()),
            Encoding::Gzip => Kind::Gzip(GzEncoder::new(
                Vec::new(),
                flate2::Compression::new(GZIP_LEVEL),
            )),
            Encoding::SnappyXerial => Kind::Snappy(Snappy::xerial()),
            Encoding::SnappyRaw => Kind::Snappy(Snappy::default()),
            Encoding::Lz4 => {
                let info = FrameInfo::new()
                    .block_size(BlockSize::Max64KB)
                    .block_mode(BlockMode::Independent);
                Kind::Lz4(Box::new(FrameEncoder::with_frame_info(info, Vec::new())))
            }
            Encoding::Zstd => {
                Kind::Zstd(zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL)?)
            }
        }))
    }

    /// The next bytes.
    ///
    /// # Errors
    /// See [`EncodeError`].
    pub fn write(&mut self, piece: &[u8]) -> Result<(), EncodeError> {
        match &mut self.0 {
            Kind::None(out) => out.extend_from_slice(piece),
            Kind::Gzip(encoder) => encoder.write_all(piece)?,
            Kind::Snappy(encoder) => encoder.write(piece)?,
            Kind::Lz4(encoder) => encoder.write_all(piece)?,
            Kind::Zstd(encoder) => encoder.write_all(piece)?,
        }
        Ok(())
    }

    /// What all that was written is compressed to.
    ///
    /// # Errors
    /// See [`EncodeError`].
    pub fn finish(self) -> Result<Vec<u8>, EncodeError> {
        match self.0 {
            Kind::None(out) => Ok(out),
            Kind::Gzip(encoder) => Ok(encoder.finish()?),
            Kind::Snappy(encoder) => encoder.finish(),
            Kind::Lz4(encoder) => encoder.finish().map_err(|_| EncodeError),
            Kind::Zstd(encoder) => Ok(encoder.finish()?),
        }
    }
}

/// Both of snappy's ways: blocks of a fixed size behind a header, or one block of all there is.
#[derive(Default)]
struct Snappy {
    is_xerial: bool,
    out: Vec<u8>,
    /// Not compressed yet: less than a block.
    pending: Vec<u8>,
}

impl Snappy {
    fn xerial() -> Self {
        let mut out = snappy::XERIAL_MAGIC.to_vec();
        // Version and least compatible version.
        out.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
        Self {
            is_xerial: true,
            out,
            pending: Vec::new(),
        }
    }

    fn write(&mut self, mut piece: &[u8]) -> Result<(), EncodeError> {
        if !self.is_xerial {
            self.pending.extend_from_slice(piece);
            return Ok(());
        }
        while !piece.is_empty() {
            let room = XERIAL_BLOCK_BYTES.saturating_sub(self.pending.len());
            let (now, later) = piece.split_at_checked(room).unwrap_or((piece, &[]));
            self.pending.extend_from_slice(now);
            piece = later;
            if self.pending.len() == XERIAL_BLOCK_BYTES {
                self.chunk()?;
            }
        }
        Ok(())
    }

    /// What is pending, as a chunk behind its size.
    fn chunk(&mut self) -> Result<(), EncodeError> {
        let block = snap::raw::Encoder::new().compress_vec(&self.pending)?;
        self.pending.clear();
        let size = u32::try_from(block.len()).map_err(|_| EncodeError)?;
        self.out.extend_from_slice(&size.to_be_bytes());
        self.out.extend_from_slice(&block);
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<u8>, EncodeError> {
        if !self.is_xerial {
            return Ok(snap::raw::Encoder::new().compress_vec(&self.pending)?);
        }
        if !self.pending.is_empty() {
            self.chunk()?;
        }
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use crate::codec::{Decoders, End, Output};

    const ALL: [Encoding; 6] = [
        Encoding::None,
        Encoding::Gzip,
        Encoding::SnappyXerial,
        Encoding::SnappyRaw,
        Encoding::Lz4,
        Encoding::Zstd,
    ];

    struct Out(Vec<u8>);

    impl Output for Out {
        fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
            self.0.extend_from_slice(bytes);
            ControlFlow::Continue(())
        }
    }

    fn decoded(codec: Codec, payload: &[u8]) -> Vec<u8> {
        let mut out = Out(Vec::new());
        let end = Decoders::new()
            .decoder(codec, u64::MAX)
            .decode(payload, &mut out);
        assert_eq!(end, Ok(End::Complete));
        out.0
    }

    /// Half of it compresses.
    fn plain(len: usize) -> Vec<u8> {
        let noise = |i: usize| (i.wrapping_mul(0x9E37_79B1) >> 13) as u8;
        (0..len)
            .map(|i| if i % 200 < 100 { b'a' } else { noise(i) })
            .collect()
    }

    #[test]
    fn what_is_written_in_pieces_is_read_back_and_has_the_encoding_that_was_asked_for() {
        for encoding in ALL {
            for (len, piece) in [(1, 1), (5_000, 7), (32_768, 32_768), (200_001, 65_537)] {
                let plain = plain(len);
                let mut encoder = Encoder::new(encoding).unwrap();
                for piece in plain.chunks(piece) {
                    encoder.write(piece).unwrap();
                }
                let payload = encoder.finish().unwrap();
                assert_eq!(
                    decoded(encoding.codec(), &payload),
                    plain,
                    "{encoding:?} {len}"
                );
                assert_eq!(Encoding::of(encoding.codec(), &payload), encoding);
                if encoding != Encoding::None && len > 4_000 {
                    assert!(
                        payload.len() < len * 3 / 4,
                        "{encoding:?} {}",
                        payload.len()
                    );
                }
            }
        }
    }

    #[test]
    fn no_records_are_written_as_no_records() {
        for encoding in ALL {
            let payload = Encoder::new(encoding).unwrap().finish().unwrap();
            if encoding != Encoding::SnappyRaw || !payload.is_empty() {
                assert_eq!(decoded(encoding.codec(), &payload), b"", "{encoding:?}");
            }
        }
    }
}
