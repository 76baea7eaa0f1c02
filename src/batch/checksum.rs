//! The checksum of a magic-2 batch: CRC-32C over everything from the attributes on (`DefaultRecordBatch`).
//!
//! What is in front of the attributes (base offset, length, leader epoch) is not covered: a broker changes it.

use super::BatchHeader;
use crate::wire::record_batch::ATTRIBUTES_AT;

/// A CRC-32C of bytes that are not in one piece.
#[derive(Debug, Clone, Copy, Default)]
pub struct Checksum(u32);

impl Checksum {
    /// Of nothing yet.
    pub const fn new() -> Self {
        Self(0)
    }

    /// The next bytes.
    pub fn add(&mut self, piece: &[u8]) {
        self.0 = crc32c::crc32c_append(self.0, piece);
    }

    /// Of all that was added.
    pub const fn value(self) -> u32 {
        self.0
    }
}

/// As the broker checks it (`DefaultRecordBatch.isValid`): from the attributes to the batch's end. `batch` begins with
/// the bytes that `header` was read from.
pub fn is_crc_right(header: &BatchHeader, batch: &[u8]) -> bool {
    let end = usize::try_from(header.wire_bytes()).unwrap_or(usize::MAX);
    batch
        .get(ATTRIBUTES_AT..end)
        .is_some_and(|covered| crc32c::crc32c(covered) == header.crc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_have_the_checksum_of_the_whole() {
        // RFC 3720, appendix B.4: 32 bytes, 0 to 31.
        let bytes: Vec<u8> = (0..32).collect();
        for cut in 0..=bytes.len() {
            let (a, b) = bytes.split_at(cut);
            let mut checksum = Checksum::new();
            checksum.add(a);
            checksum.add(b);
            assert_eq!(checksum.value(), 0x46dd_794e, "{cut}");
        }
    }
}
