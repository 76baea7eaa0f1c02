//! Bytes in pieces, of which the large ones are shared and not copied.

use bytes::Bytes;

/// Pieces below this are copied together: a shared piece costs about as much as it saves.
const LEAST_SHARED_BYTES: usize = 512;

/// Collects pieces in their order.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pieces: Vec<Bytes>,
    /// What was copied and is not a piece yet.
    copied: Vec<u8>,
}

impl Chain {
    /// Bytes that are somebody's: shared if that is worth it.
    pub(super) fn share(&mut self, bytes: Bytes) {
        if bytes.len() < LEAST_SHARED_BYTES {
            self.copy(&bytes);
            return;
        }
        self.seal();
        self.pieces.push(bytes);
    }

    /// A few bytes.
    pub(super) fn copy(&mut self, bytes: &[u8]) {
        self.copied.extend_from_slice(bytes);
    }

    /// A few bytes, as `write` appends them.
    pub(super) fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.copied);
    }

    pub(super) fn finish(mut self) -> Vec<Bytes> {
        self.seal();
        self.pieces
    }

    fn seal(&mut self) {
        if !self.copied.is_empty() {
            self.pieces.push(std::mem::take(&mut self.copied).into());
        }
    }
}
