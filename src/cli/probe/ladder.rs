//! The rungs: for every limit in force a record that is just within it, and one that is just above.

use std::sync::Arc;

use bytes::Bytes;

use crate::batch::{BATCH_HEADER_BYTES, BatchHeader, Checksum, put_varint};
use crate::cluster::{Lookup, Topic};
use crate::codec::{Encoder, Encoding};
use crate::proxy::Shared;
use crate::vocabulary::{Codec, Gate, Limit, Source};
use crate::wire::record_batch::{ATTRIBUTES_AT, LOG_OVERHEAD_BYTES};

/// A larger limit is not probed: each rung travels several times.
const MOST_BYTES: u64 = 64 << 20;
/// The gates that one record can be just within and just above.
const GATES: [Gate; 7] = [
    Gate::Batch,
    Gate::Uncompressed,
    Gate::Record,
    Gate::Estimate,
    Gate::Key,
    Gate::Value,
    Gate::Headers,
];

/// One batch of one record.
pub(super) struct Rung {
    pub(super) gate: Gate,
    pub(super) size_bytes: u64,
    pub(super) limit_bytes: u64,
    pub(super) source: Source,
    pub(super) codec: Codec,
    record: Record,
}

/// Sizes of a record's parts; what they hold is noise, or the same letter where it is to be compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Record {
    key_bytes: usize,
    value_bytes: usize,
    /// Of the value of one header.
    header_bytes: Option<usize>,
}

/// The limits in force on a topic that can be probed.
pub(super) fn limits(shared: &Arc<Shared>, topic: &str, known: &Lookup) -> Vec<Limit> {
    let known: Option<&Arc<Topic>> = match known {
        Lookup::Found(topic) => Some(topic),
        Lookup::Absent | Lookup::Hidden | Lookup::Unreachable => None,
    };
    let mut limits = shared.limits_in_force(topic, known);
    limits.retain(|limit| GATES.contains(&limit.gate) && limit.value <= MOST_BYTES);
    limits
}

/// Just within, just above, and just above where compression helps, for each limit.
pub(super) fn rungs(limits: &[Limit]) -> Vec<Rung> {
    let mut rungs = Vec::new();
    for limit in limits {
        for (more, codec) in [(0, Codec::None), (1, Codec::None), (1, Codec::Zstd)] {
            let size_bytes = limit.value.saturating_add(more);
            // A length of some sizes takes a byte more: they do not exist.
            if let Some(record) = Record::of(limit.gate, size_bytes) {
                rungs.push(Rung {
                    gate: limit.gate,
                    size_bytes,
                    limit_bytes: limit.value,
                    source: limit.source,
                    codec,
                    record,
                });
            }
        }
    }
    rungs
}

impl Record {
    /// A record whose size at this gate is exactly that.
    fn of(gate: Gate, bytes: u64) -> Option<Self> {
        let with = |part: usize| match gate {
            Gate::Key => Self {
                key_bytes: part,
                ..Self::default()
            },
            Gate::Headers => Self {
                header_bytes: Some(part),
                ..Self::default()
            },
            _ => Self {
                value_bytes: part,
                ..Self::default()
            },
        };
        // Every size grows with the part: the first that reaches it.
        let (mut least, mut most) = (0usize, usize::try_from(bytes).ok()?);
        while least < most {
            let middle = least.midpoint(most);
            if with(middle).at(gate) < bytes {
                least = middle.saturating_add(1);
            } else {
                most = middle;
            }
        }
        let record = with(least);
        (record.at(gate) == bytes).then_some(record)
    }

    fn at(self, gate: Gate) -> u64 {
        let encoded = self.encoded(Filling::None).len() as u64;
        match gate {
            Gate::Key => self.key_bytes as u64,
            Gate::Value => self.value_bytes as u64,
            Gate::Headers => {
                self.header_bytes
                    .map_or(0, |bytes| bytes.saturating_add(NAME.len())) as u64
            }
            Gate::Record => encoded,
            Gate::Estimate => self.estimate(),
            _ => encoded.saturating_add(BATCH_HEADER_BYTES as u64),
        }
    }

    /// `AbstractRecords.estimateSizeInBytesUpperBound`.
    fn estimate(self) -> u64 {
        // The fields but attributes, timestamp delta and offset delta, one byte each, and the length in front.
        let body = self.body(Filling::None).len() as u64;
        crate::batch::ESTIMATE_OVERHEAD_BYTES.saturating_add(body.saturating_sub(3))
    }

    fn body(self, filling: Filling) -> Vec<u8> {
        let mut body = vec![0, 0, 0];
        put_varint(&mut body, int32(self.key_bytes));
        filling.put(&mut body, self.key_bytes);
        put_varint(&mut body, int32(self.value_bytes));
        filling.put(&mut body, self.value_bytes);
        match self.header_bytes {
            None => put_varint(&mut body, 0),
            Some(bytes) => {
                put_varint(&mut body, 1);
                put_varint(&mut body, int32(NAME.len()));
                body.extend_from_slice(NAME);
                put_varint(&mut body, int32(bytes));
                filling.put(&mut body, bytes);
            }
        }
        body
    }

    fn encoded(self, filling: Filling) -> Vec<u8> {
        let body = self.body(filling);
        let mut record = Vec::new();
        put_varint(&mut record, int32(body.len()));
        record.extend_from_slice(&body);
        record
    }
}

const NAME: &[u8] = b"probe";

/// What a record's parts hold.
#[derive(Clone, Copy)]
enum Filling {
    /// Zeros: only lengths are wanted.
    None,
    /// What no codec makes smaller.
    Noise,
    /// What every codec does.
    Letter,
}

impl Filling {
    fn put(self, out: &mut Vec<u8>, bytes: usize) {
        match self {
            Self::None => out.resize(out.len().saturating_add(bytes), 0),
            Self::Letter => out.resize(out.len().saturating_add(bytes), b'a'),
            Self::Noise => {
                // xorshift64
                let mut state = 0x9e37_79b9_7f4a_7c15_u64;
                out.extend((0..bytes).map(|_| {
                    state ^= state.wrapping_shl(13);
                    state ^= state.wrapping_shr(7);
                    state ^= state.wrapping_shl(17);
                    state.to_le_bytes().first().copied().unwrap_or_default()
                }));
            }
        }
    }
}

impl Rung {
    pub(super) fn batch(&self) -> Bytes {
        let (payload, codec) = match self.codec {
            Codec::None => (self.record.encoded(Filling::Noise), Codec::None),
            codec => {
                let plain = self.record.encoded(Filling::Letter);
                match compressed(codec, &plain) {
                    Some(payload) => (payload, codec),
                    None => (plain, Codec::None),
                }
            }
        };
        let length = payload
            .len()
            .saturating_add(BATCH_HEADER_BYTES)
            .saturating_sub(LOG_OVERHEAD_BYTES);
        let now_ms = now_ms();
        let mut header = BatchHeader {
            base_offset: 0,
            batch_length: int32(length),
            partition_leader_epoch: -1,
            magic: 2,
            crc: 0,
            attributes: codec as i16,
            last_offset_delta: 0,
            base_timestamp_ms: now_ms,
            max_timestamp_ms: now_ms,
            producer_id: -1,
            producer_epoch: -1,
            base_sequence: -1,
            records_count: 1,
        };
        let mut checksum = Checksum::new();
        checksum.add(header.write().get(ATTRIBUTES_AT..).unwrap_or_default());
        checksum.add(&payload);
        header.crc = checksum.value();
        let mut batch = header.write().to_vec();
        batch.extend_from_slice(&payload);
        batch.into()
    }
}

fn compressed(codec: Codec, plain: &[u8]) -> Option<Vec<u8>> {
    let mut encoder = Encoder::new(Encoding::of(codec, &[])).ok()?;
    encoder.write(plain).ok()?;
    encoder.finish().ok()
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(i64::MAX)
}

fn int32(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::{DeepLimits, Effort, Scratch, inspect};

    fn limit(gate: Gate, value: u64) -> Limit {
        Limit {
            gate,
            value,
            source: Source::Rule,
            name: None,
            headroom_bytes: 0,
            member_limit: None,
        }
    }

    /// As the product's own inspection measures them.
    #[test]
    fn a_rung_has_exactly_its_size_at_its_gate() {
        let mut scratch = Scratch::new();
        let limits: Vec<Limit> = GATES
            .into_iter()
            .flat_map(|gate| [200, 1_000, 65_536, 1_048_588].map(|value| limit(gate, value)))
            .collect();
        let rungs = rungs(&limits);
        assert!(rungs.len() > limits.len() * 2);
        for rung in rungs.iter().filter(|rung| rung.codec == Codec::None) {
            let batch = rung.batch();
            let header = BatchHeader::read(&batch).unwrap();
            assert!(crate::batch::is_crc_right(&header, &batch));
            let inspection = inspect(
                &header,
                &batch,
                &DeepLimits::NONE,
                Effort::MEASURES,
                &mut scratch,
            );
            let largest = inspection.largest.unwrap();
            let sizes = scratch.sizes();
            let measured = match rung.gate {
                Gate::Record => largest.record_bytes,
                Gate::Key => sizes.largest.key_bytes,
                Gate::Value => sizes.largest.value_bytes,
                Gate::Headers => sizes.largest.headers_bytes,
                Gate::Estimate => sizes.estimate_bytes.largest_bytes(),
                _ => header.wire_bytes(),
            };
            assert_eq!(measured, rung.size_bytes, "{}", rung.gate);
        }
    }
}
