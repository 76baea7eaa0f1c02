//! A batch of our own records, magic 2 (`DefaultRecordBatch`), uncompressed: the topic's `compression.type` is the
//! broker's to apply.

use bytes::Bytes;

use super::NewRecord;
use crate::batch::{BatchHeader, Checksum, put_varint};
use crate::wire::record_batch::{ATTRIBUTES_AT, BATCH_HEADER_BYTES, LOG_OVERHEAD_BYTES};

/// Who a batch is from, and its place in the order: what the broker tells a repetition by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    /// Of the next record.
    pub(super) sequence: i32,
}

impl Identity {
    /// The sequence behind so many records; it begins again behind the largest (`DefaultRecordBatch.incrementSequence`).
    pub(super) const fn advance(&mut self, records: i32) {
        self.sequence = self.sequence.wrapping_add(records) & i32::MAX;
    }
}

/// One batch of `records`, all of the same moment.
pub(super) fn encode<'a>(
    records: impl ExactSizeIterator<Item = &'a NewRecord>,
    identity: Identity,
    now_ms: i64,
) -> Bytes {
    let count = int32(records.len());
    let mut batch = vec![0; BATCH_HEADER_BYTES];
    let mut body = Vec::new();
    for (delta, record) in records.enumerate() {
        body.clear();
        // Attributes, then the timestamp delta.
        body.extend_from_slice(&[0, 0]);
        put_varint(&mut body, int32(delta));
        put_bytes(&mut body, record.key.as_deref());
        put_bytes(&mut body, record.value.as_deref());
        put_varint(&mut body, int32(record.headers.len()));
        for (name, value) in &record.headers {
            put_bytes(&mut body, Some(name.as_bytes()));
            put_bytes(&mut body, value.as_deref());
        }
        put_varint(&mut batch, int32(body.len()));
        batch.extend_from_slice(&body);
    }
    let mut header = BatchHeader {
        base_offset: 0,
        batch_length: int32(batch.len().saturating_sub(LOG_OVERHEAD_BYTES)),
        partition_leader_epoch: -1,
        magic: 2,
        crc: 0,
        attributes: 0,
        last_offset_delta: count.saturating_sub(1),
        base_timestamp_ms: now_ms,
        max_timestamp_ms: now_ms,
        producer_id: identity.producer_id,
        producer_epoch: identity.producer_epoch,
        base_sequence: identity.sequence,
        records_count: count,
    };
    let mut checksum = Checksum::new();
    checksum.add(header.write().get(ATTRIBUTES_AT..).unwrap_or_default());
    checksum.add(batch.get(BATCH_HEADER_BYTES..).unwrap_or_default());
    header.crc = checksum.value();
    if let Some(front) = batch.first_chunk_mut() {
        *front = header.write();
    }
    Bytes::from(batch)
}

fn put_bytes(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => put_varint(out, -1),
        Some(bytes) => {
            put_varint(out, int32(bytes.len()));
            out.extend_from_slice(bytes);
        }
    }
}

fn int32(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::records::RecordBatchDecoder;

    #[test]
    fn a_batch_is_read_by_another_decoder_as_it_was_meant() {
        let records = [
            NewRecord {
                topic: "t".into(),
                key: Some(Bytes::from_static(b"orders")),
                value: Some(Bytes::from(vec![b'x'; 300])),
                headers: vec![
                    ("a".into(), Some(Bytes::from_static(b"1"))),
                    ("b".into(), None),
                ],
            },
            NewRecord::default(),
        ];
        let identity = Identity {
            producer_id: 7,
            producer_epoch: 1,
            sequence: 40,
        };
        let mut bytes = encode(records.iter(), identity, 1_700_000_000_000);
        let decoded = RecordBatchDecoder::decode(&mut bytes).unwrap().records;
        assert_eq!(decoded.len(), 2);
        assert_eq!(
            (&decoded[0].key, &decoded[0].value),
            (&records[0].key, &records[0].value)
        );
        let headers: Vec<_> = decoded[0].headers.iter().collect();
        assert_eq!(headers[0].0.as_str(), "a");
        assert_eq!(
            (headers[0].1.as_deref(), headers[1].1.as_deref()),
            (Some(&b"1"[..]), None)
        );
        assert_eq!((&decoded[1].key, &decoded[1].value), (&None, &None));
        assert_eq!(
            decoded
                .iter()
                .map(|r| (r.offset, r.sequence, r.producer_id, r.timestamp))
                .collect::<Vec<_>>(),
            [(0, 40, 7, 1_700_000_000_000), (1, 41, 7, 1_700_000_000_000)]
        );
    }

    #[test]
    fn the_sequence_begins_again_behind_the_largest() {
        let mut identity = Identity {
            producer_id: 7,
            producer_epoch: 0,
            sequence: i32::MAX - 1,
        };
        identity.advance(1);
        assert_eq!(identity.sequence, i32::MAX);
        identity.advance(3);
        assert_eq!(identity.sequence, 2);
    }
}
