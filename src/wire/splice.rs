//! A frame made of ranges of another and of what is new between them: nothing that stays is copied.
//!
//! For requests and responses alike.

use std::ops::Range;

use bytes::Bytes;

use super::Writer;

/// A part of a spliced frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of the original frame.
    Original(Range<usize>),
    /// Bytes made here, or brought.
    Made(Bytes),
}

/// Collects pieces, joining what is adjacent.
#[derive(Debug, Default)]
pub struct Pieces {
    pieces: Vec<Piece>,
    bytes: usize,
}

impl Pieces {
    /// A range of the original frame.
    pub fn original(&mut self, range: Range<usize>) {
        self.bytes = self.bytes.saturating_add(range.len());
        match self.pieces.last_mut() {
            _ if range.is_empty() => {}
            Some(Piece::Original(last)) if last.end == range.start => last.end = range.end,
            _ => self.pieces.push(Piece::Original(range)),
        }
    }

    /// What `write` writes.
    pub fn made(&mut self, write: impl FnOnce(&mut Writer)) {
        let mut w = Writer::part();
        write(&mut w);
        self.brought(w.into_part().into());
    }

    /// Bytes that are somebody's already.
    pub fn brought(&mut self, bytes: Bytes) {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if !bytes.is_empty() {
            self.pieces.push(Piece::Made(bytes));
        }
    }

    /// Puts the length prefix in front.
    pub fn finish(mut self) -> Vec<Piece> {
        let length = u32::try_from(self.bytes).unwrap_or(u32::MAX);
        let prefix = Bytes::copy_from_slice(&length.to_be_bytes());
        self.pieces.insert(0, Piece::Made(prefix));
        self.pieces
    }
}

/// Bytes of a chain.
pub fn chain_bytes(chain: &[Bytes]) -> usize {
    chain
        .iter()
        .fold(0, |sum, bytes| sum.saturating_add(bytes.len()))
}
