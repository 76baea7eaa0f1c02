//! What Produce carried before version 3, until Kafka 3.9: message sets of magic 0 and 1, or batches in a row.
//!
//! Each message counts as a batch of its own (`AbstractLegacyRecordBatch`); a compressed one wraps others. Offset,
//! size and magic stand where they do in a batch of magic 2.

use crate::wire::{Malformed, Reader, Reason};

/// Offset and size, which the size does not count.
const LOG_OVERHEAD_BYTES: u64 = 12;
/// CRC, magic, attributes, key length and value length: the shortest message of magic 0.
const SHORTEST_MESSAGE_BYTES: u32 = 14;

/// The largest message of a set, and how many there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LargestMessage {
    /// What the broker compares with `max.message.bytes`: 12 and the message's own size.
    pub wire_bytes: u64,
    /// Of that message: bits 0–2 are the codec.
    pub attributes: i16,
    /// Messages in the set; a compressed one counts once.
    pub messages: u32,
}

/// Walks a message set over its sizes.
///
/// # Errors
/// It is empty, cut short, or of another magic: the broker refuses it for that, not for its size.
pub fn largest_message(records: &[u8]) -> Result<LargestMessage, Malformed> {
    let r = &mut Reader::new(records);
    let mut largest = LargestMessage {
        wire_bytes: 0,
        attributes: 0,
        messages: 0,
    };
    while r.remaining() > 0 {
        r.int64("offset")?;
        let size = r.uint32("message_size")?;
        if size < SHORTEST_MESSAGE_BYTES {
            return Err(Malformed::new("message_size", Reason::InvalidValue));
        }
        let message = &mut Reader::new(r.take(size as usize, "message")?);
        message.uint32("crc_or_partition_leader_epoch")?;
        let attributes = match message.int8("magic")? {
            0 | 1 => i16::from(message.int8("attributes")?),
            2 => {
                message.uint32("crc")?;
                message.int16("attributes")?
            }
            _ => return Err(Malformed::new("magic", Reason::InvalidValue)),
        };
        let wire_bytes = u64::from(size).saturating_add(LOG_OVERHEAD_BYTES);
        largest.messages = largest.messages.saturating_add(1);
        if wire_bytes > largest.wire_bytes {
            (largest.wire_bytes, largest.attributes) = (wire_bytes, attributes);
        }
    }
    match largest.messages {
        0 => Err(Malformed::new("message", Reason::Truncated)),
        _ => Ok(largest),
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing
)]
mod tests {
    use super::*;

    fn message(magic: u8, attributes: u8, body: usize) -> Vec<u8> {
        let mut bytes = vec![0; 8];
        bytes.extend_from_slice(&(6 + body as u32).to_be_bytes());
        bytes.extend_from_slice(&[0, 0, 0, 0, magic, attributes]);
        bytes.resize(18 + body, 0);
        bytes
    }

    #[test]
    fn the_largest_message_counts_with_its_offset_and_size() {
        let set = [message(0, 0, 20), message(1, 1, 100), message(1, 0, 30)].concat();
        let largest = largest_message(&set).unwrap();
        assert_eq!(
            largest,
            LargestMessage {
                wire_bytes: 118,
                attributes: 1,
                messages: 3
            }
        );
    }

    #[test]
    fn what_is_no_message_set_is_left_to_the_broker() {
        for set in [
            vec![],
            message(3, 0, 20),
            message(0, 0, 20)[..30].to_vec(),
            message(0, 0, 4),
        ] {
            assert!(largest_message(&set).is_err());
        }
    }
}
