//! The response to a Fetch for one partition, read in place: records are shared, not copied.

use std::collections::VecDeque;

use bytes::Bytes;

use super::StoredBatch;
use crate::batch::{BatchHeader, Prefix, prefix};
use crate::wire::{Malformed, Reader, Reason};

/// The newest that names topics and not their ids (Kafka 2.7).
pub(crate) const FETCH_VERSION: i16 = 12;

/// What a broker says of one partition.
#[derive(Debug)]
pub(in crate::cluster) struct Fetched {
    /// Of the request, else of the partition.
    pub(in crate::cluster) error_code: i16,
    records: Bytes,
}

impl Fetched {
    /// Reads a FetchResponse of [`FETCH_VERSION`] that has one partition.
    pub(in crate::cluster) fn read(body: &Bytes) -> Result<Self, Malformed> {
        let r = &mut Reader::new(body);
        r.int32("throttle_time_ms")?;
        let error_code = r.int16("error_code")?;
        r.int32("session_id")?;
        if r.count(true, "responses")?.unwrap_or(0) == 0 {
            return Ok(Self {
                error_code,
                records: Bytes::new(),
            });
        }
        r.string(true, "topic")?;
        if r.count(true, "partitions")?.unwrap_or(0) == 0 {
            return Err(Malformed::new("partitions", Reason::InvalidValue));
        }
        r.int32("partition_index")?;
        let of_partition = r.int16("error_code")?;
        r.int64("high_watermark")?;
        r.int64("last_stable_offset")?;
        r.int64("log_start_offset")?;
        for _ in 0..r.count(true, "aborted_transactions")?.unwrap_or(0) {
            r.int64("producer_id")?;
            r.int64("first_offset")?;
            r.skip_tags("aborted_transaction")?;
        }
        r.int32("preferred_read_replica")?;
        let records = r.bytes(true, "records")?.unwrap_or_default();
        let end = r.position();
        Ok(Self {
            error_code: if error_code == 0 {
                of_partition
            } else {
                error_code
            },
            records: body.slice(end.saturating_sub(records.len())..end),
        })
    }

    /// The whole batches in it that hold offsets of `from` or above. The last one that the broker sends may be cut.
    pub(in crate::cluster) fn batches(
        &self,
        from: i64,
    ) -> Result<VecDeque<StoredBatch>, Malformed> {
        let mut left = self.records.clone();
        let mut found = VecDeque::new();
        let mut whole = 0u64;
        while let Prefix::Whole { magic, bytes } = prefix(&left) {
            let batch = left.split_to(bytes);
            whole = whole.saturating_add(1);
            let base_offset = Reader::new(&batch).int64("base_offset")?;
            let last_offset = match magic {
                2 => base_offset
                    .saturating_add(BatchHeader::read(&batch)?.last_offset_delta.max(0).into()),
                _ => base_offset,
            };
            if last_offset >= from {
                found.push_back(StoredBatch {
                    base_offset,
                    last_offset,
                    bytes: batch,
                });
            }
        }
        match prefix(&left) {
            Prefix::Broken(what) => return Err(what),
            Prefix::Overflowing => {
                return Err(Malformed::new("batch_length", Reason::TooLong));
            }
            Prefix::Cut | Prefix::Whole { .. } => {}
        }
        // Since Fetch 3 the first batch comes whole, and it holds the offset that was asked for.
        if found.is_empty() && (whole > 0 || !left.is_empty()) {
            return Err(Malformed::new("records", Reason::Truncated));
        }
        Ok(found)
    }
}

#[cfg(test)]
#[allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn batch(base_offset: i64, last_offset_delta: i32, bytes: usize) -> Vec<u8> {
        let mut batch = vec![0; bytes];
        batch[..8].copy_from_slice(&base_offset.to_be_bytes());
        batch[8..12].copy_from_slice(&(bytes as i32 - 12).to_be_bytes());
        batch[16] = 2;
        batch[23..27].copy_from_slice(&last_offset_delta.to_be_bytes());
        batch
    }

    fn fetched(records: Vec<u8>) -> Fetched {
        Fetched {
            error_code: 0,
            records: records.into(),
        }
    }

    fn offsets(fetched: &Fetched, from: i64) -> Vec<(i64, i64)> {
        let batches = fetched.batches(from).unwrap();
        batches
            .iter()
            .map(|batch| (batch.base_offset, batch.last_offset))
            .collect()
    }

    #[test]
    fn batches_are_given_whole_from_the_one_that_holds_the_offset() {
        let mut records = [batch(5, 2, 70), batch(8, 0, 61), batch(20, 9, 100)].concat();
        assert_eq!(
            offsets(&fetched(records.clone()), 7),
            [(5, 7), (8, 8), (20, 29)]
        );
        assert_eq!(offsets(&fetched(records.clone()), 8), [(8, 8), (20, 29)]);
        // The last one is cut: it comes again.
        records.truncate(records.len() - 1);
        assert_eq!(offsets(&fetched(records.clone()), 8), [(8, 8)]);
        // Nothing of use although there is something: it would be asked for without end.
        assert!(fetched(records).batches(30).is_err());
        assert!(fetched(batch(5, 2, 70)[..60].to_vec()).batches(5).is_err());
        assert_eq!(offsets(&fetched(Vec::new()), 5), []);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_no_surprise(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let body = Bytes::from(bytes);
            if let Ok(fetched) = Fetched::read(&body) {
                let _ = fetched.batches(0);
            }
            let _ = Fetched { error_code: 0, records: body }.batches(0);
        }
    }
}
