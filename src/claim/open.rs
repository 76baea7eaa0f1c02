//! A batch opened for rewriting: its header, its records uncompressed, and the certainty that both can be trusted.
//!
//! What is opened has a right checksum (nothing that was damaged is ever signed again) and records that Kafka's readers
//! read to their end, each as long as it says. Everything else stays closed, with the reason.

use std::fmt;
use std::ops::ControlFlow;

use bytes::Bytes;

use crate::batch::{
    BATCH_HEADER_BYTES, BatchHeader, RecordCursor, RecordError, RecordParts, RecordStream,
    is_crc_right,
};
use crate::codec::{DecodeError, Decoders, Encoding, End, Output};
use crate::vocabulary::Codec;
use crate::wire::Reader;

/// Why a batch is not opened. The broker, or a consumer, gets it as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unopened {
    /// Not one whole batch of magic 2, or with something behind it.
    NotOneBatch,
    /// The checksum is not that of the bytes.
    BadCrc,
    /// A marker of a transaction's end.
    Control,
    /// No records, or fewer than none.
    NoRecords,
    /// Codec ids 5 to 7 are nobody's.
    UnknownCodec,
    /// More uncompressed than may be held.
    TooLarge,
    /// The payload does not decompress.
    Payload(DecodeError),
    /// What is in it are not the declared records.
    Records(RecordError),
}

impl Unopened {
    /// The fixed word for it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotOneBatch => "not_one_batch",
            Self::BadCrc => "bad_crc",
            Self::Control => "control_batch",
            Self::NoRecords => "record_count",
            Self::UnknownCodec => "unknown_codec",
            Self::TooLarge => "too_large",
            Self::Payload(error) => error.label(),
            Self::Records(error) => error.label(),
        }
    }
}

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl std::error::Error for Unopened {}

/// A sound batch with its records uncompressed.
#[derive(Debug, Clone)]
pub struct OpenBatch {
    header: BatchHeader,
    encoding: Encoding,
    records: Bytes,
    count: u32,
}

impl OpenBatch {
    /// Opens one batch: all of `batch`. Without compression nothing is copied, otherwise at most `most_records_bytes`
    /// are made.
    ///
    /// # Errors
    /// See [`Unopened`].
    pub fn open(
        batch: &Bytes,
        most_records_bytes: u64,
        decoders: &mut Decoders,
    ) -> Result<Self, Unopened> {
        let header = BatchHeader::read(batch).map_err(|_| Unopened::NotOneBatch)?;
        if header.magic != 2 || header.wire_bytes() != batch.len() as u64 {
            return Err(Unopened::NotOneBatch);
        }
        if header.is_control() {
            return Err(Unopened::Control);
        }
        let codec = header.codec().ok_or(Unopened::UnknownCodec)?;
        let Ok(count @ 1..) = u32::try_from(header.records_count) else {
            return Err(Unopened::NoRecords);
        };
        if !is_crc_right(&header, batch) {
            return Err(Unopened::BadCrc);
        }
        let payload = batch.slice(BATCH_HEADER_BYTES.min(batch.len())..);
        let records = match codec {
            Codec::None if payload.len() as u64 > most_records_bytes => {
                return Err(Unopened::TooLarge);
            }
            Codec::None => payload.clone(),
            _ => decode(codec, &payload, count, most_records_bytes, decoders)?,
        };
        // Once, so that nobody need ask again.
        for record in RecordCursor::new(&records, count) {
            record.map_err(Unopened::Records)?;
        }
        Ok(Self {
            header,
            encoding: Encoding::of(codec, &payload),
            records,
            count,
        })
    }

    /// Bytes that [`OpenBatch::open`] would make: to take them from a budget first. Nothing is kept of them. `None`: more
    /// than `most_bytes`, or it would not be opened at all.
    pub fn made_bytes(batch: &[u8], most_bytes: u64, decoders: &mut Decoders) -> Option<u64> {
        let header = BatchHeader::read(batch).ok()?;
        let payload = batch.get(BATCH_HEADER_BYTES..)?;
        let codec = header.codec()?;
        if codec == Codec::None {
            return Some(0);
        }
        let mut counted = Counted(0);
        let decoder = decoders.decoder(codec, most_bytes);
        match decoder.decode(payload, &mut counted) {
            Ok(End::Complete | End::Stopped) => Some(counted.0),
            Ok(End::OverCap) | Err(_) => None,
        }
    }

    /// The same, with `permit` kept for as long as anybody has some of its records.
    #[must_use]
    pub fn held_by<P: Send + 'static>(self, permit: P) -> Self {
        let records = held(self.records, permit);
        Self { records, ..self }
    }

    /// The header as it came.
    pub const fn header(&self) -> &BatchHeader {
        &self.header
    }

    /// How the records came, and how they will go.
    pub const fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The records, uncompressed.
    pub const fn records(&self) -> &Bytes {
        &self.records
    }

    /// The offset of one of its records.
    pub fn offset(&self, parts: &RecordParts) -> Option<i64> {
        let head = self.records.get(parts.head.clone())?;
        // Attributes, and a VARLONG of up to ten bytes: the timestamp's delta.
        let behind = head.get(1..)?;
        let end = behind.iter().position(|byte| byte & 0x80 == 0)?;
        let delta = behind.get(end.saturating_add(1)..)?;
        let delta = Reader::new(delta).varint("offset_delta").ok()?;
        Some(self.header.base_offset.saturating_add(delta.into()))
    }

    /// Each record's parts, as ranges of [`OpenBatch::records`]; with its index.
    pub fn parts(&self) -> impl Iterator<Item = (u32, RecordParts)> + '_ {
        let cursor = RecordCursor::new(&self.records, self.count);
        // All are sound: opening has gone through them.
        (0..).zip(cursor.map_while(Result::ok))
    }
}

/// Bytes that keep the permit for their memory until the last of them is gone.
pub(super) fn held<P: Send + 'static>(bytes: Bytes, permit: P) -> Bytes {
    struct Held<P>(Bytes, P);

    impl<P> AsRef<[u8]> for Held<P> {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    Bytes::from_owner(Held(bytes, permit))
}

fn decode(
    codec: Codec,
    payload: &[u8],
    count: u32,
    most_bytes: u64,
    decoders: &mut Decoders,
) -> Result<Bytes, Unopened> {
    let mut gathered = Gathered {
        bytes: Vec::new(),
        stream: RecordStream::new(count),
        error: None,
    };
    let end = decoders
        .decoder(codec, most_bytes)
        .decode(payload, &mut gathered);
    match (gathered.error, end) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(Unopened::Payload(error)),
        (None, Ok(End::OverCap)) => Err(Unopened::TooLarge),
        (None, Ok(End::Complete | End::Stopped)) => Ok(gathered.bytes.into()),
    }
}

/// Counts what the decoder produces.
struct Counted(u64);

impl Output for Counted {
    fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.0 = self.0.saturating_add(bytes.len() as u64);
        ControlFlow::Continue(())
    }
}

/// Keeps what the decoder produces, and follows its records to know where Kafka would stop reading.
struct Gathered {
    bytes: Vec<u8>,
    stream: RecordStream,
    error: Option<Unopened>,
}

impl Output for Gathered {
    fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        match self.stream.feed(bytes, |_| ControlFlow::Continue(())) {
            Ok(_) => {
                self.bytes.extend_from_slice(bytes);
                ControlFlow::Continue(())
            }
            Err(error) => {
                self.error = Some(Unopened::Records(error));
                ControlFlow::Break(())
            }
        }
    }

    fn seam(&mut self) -> ControlFlow<()> {
        if self.stream.is_complete() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Here Kafka's reader takes an end of the data for a byte. No client writes such a thing.
    fn false_end(&mut self) -> ControlFlow<()> {
        self.seam()?;
        self.error = Some(Unopened::Payload(DecodeError::Unsupported));
        ControlFlow::Break(())
    }
}
