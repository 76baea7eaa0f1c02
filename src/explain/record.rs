//! The sizes of a record that nobody has sent yet, by Kafka's own arithmetic (message format 2).

use serde::Serialize;

use super::Question;
use super::clients::around_the_batch;
use crate::batch::{estimate, varint_bytes};
use crate::vocabulary::Gate;

/// A record batch's header.
pub(super) const BATCH_HEADER_BYTES: u64 = crate::batch::BATCH_HEADER_BYTES as u64;

/// A record, or a batch of records alike, in every size that someone compares. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct EstimatedRecord {
    /// `None`: null.
    pub value_bytes: Option<u64>,
    /// `None`: null.
    pub key_bytes: Option<u64>,
    /// Header names and values.
    pub headers_bytes: u64,
    /// Headers.
    pub headers: u32,
    /// Records in the batch.
    pub records: u32,
    /// What the Java producer compares with `max.request.size`: uncompressed, one record.
    pub estimate_bytes: u64,
    /// One record as encoded.
    pub record_bytes: u64,
    /// The same without its length in front: what `max.decompressed.message.bytes` is compared with.
    pub body_bytes: u64,
    /// The batch without compression.
    pub uncompressed_bytes: u64,
    /// The batch as it travels.
    pub batch_bytes: u64,
    /// The request with this batch alone, as the client in question makes it; its length prefix is left out, as brokers do.
    pub request_bytes: u64,
    /// It travels compressed.
    pub is_compressed: bool,
    /// One such record alone in a batch, not compressed.
    #[serde(skip)]
    pub(super) alone_bytes: u64,
    /// The request as small as a client can make it.
    #[serde(skip)]
    pub(super) least_request_bytes: u64,
    /// Headers as encoded, without their count.
    #[serde(skip)]
    pub(super) encoded_headers_bytes: u64,
    /// One record may be smaller by so much: how its headers' bytes are spread over names and values is not known.
    #[serde(skip)]
    pub(super) spread_bytes: u64,
}

impl EstimatedRecord {
    /// The size that a gate compares; of the gate `ratio` the uncompressed one.
    pub(super) fn at(&self, gate: Gate) -> u64 {
        match gate {
            Gate::Batch | Gate::Frame => self.batch_bytes,
            Gate::Uncompressed | Gate::Ratio | Gate::Codec => self.uncompressed_bytes,
            Gate::Record => self.record_bytes,
            Gate::Estimate => self.estimate_bytes,
            Gate::Key => self.key_bytes.unwrap_or(0),
            Gate::Value => self.value_bytes.unwrap_or(0),
            Gate::Headers => self.headers_bytes,
            // Of no record.
            Gate::Config => 0,
        }
    }

    /// The sizes of what a question describes; its timestamps are alike, its headers of one size.
    pub(super) fn of(question: &Question) -> Self {
        let records = question.records.unwrap_or(1);
        let headers_bytes = question.headers_bytes.unwrap_or(0);
        let headers = question.headers.unwrap_or(u32::from(headers_bytes > 0));
        let (encoded_headers_bytes, spread_bytes) = encoded_headers(headers, headers_bytes);
        let content = nullable(question.key_bytes)
            .saturating_add(nullable(question.value_bytes))
            .saturating_add(varint(headers.into()))
            .saturating_add(encoded_headers_bytes);
        // Attributes, and a timestamp delta of 0.
        let body_without_offset = content.saturating_add(2);
        let record = |offset_delta: u64| {
            let body = body_without_offset.saturating_add(varint(offset_delta));
            (body, body.saturating_add(varint(body)))
        };
        let (body_bytes, record_bytes) = record(u64::from(records.saturating_sub(1)));
        let uncompressed_bytes = BATCH_HEADER_BYTES.saturating_add(all(records, record));
        let batch_bytes = question.compressed_bytes.unwrap_or(uncompressed_bytes);
        let around = |client_id| {
            around_the_batch(question.library(), client_id, &question.topic, batch_bytes)
                .saturating_add(batch_bytes)
        };
        Self {
            value_bytes: question.value_bytes,
            key_bytes: question.key_bytes,
            headers_bytes,
            headers,
            records,
            estimate_bytes: estimate(content),
            record_bytes,
            body_bytes,
            uncompressed_bytes,
            batch_bytes,
            request_bytes: around(question.client_id.as_deref()),
            is_compressed: question.compressed_bytes.is_some(),
            alone_bytes: BATCH_HEADER_BYTES.saturating_add(record(0).1),
            least_request_bytes: around(Some(question.client_id.as_deref().unwrap_or_default())),
            encoded_headers_bytes,
            spread_bytes,
        }
    }
}

impl EstimatedRecord {
    /// The fewest records of this batch that bear tickets instead of values so that it has at most so many bytes, and the
    /// batch with them; `None`: all of them are too few, or it is not larger.
    pub(super) fn fitting(&self, ticket: &Self, most: u64) -> Option<(u32, Self)> {
        let records = u64::from(self.records);
        let saved = self
            .uncompressed_bytes
            .checked_sub(ticket.uncompressed_bytes)?;
        let over = self.uncompressed_bytes.checked_sub(most)?;
        let count = over
            .saturating_mul(records)
            .checked_add(saved.checked_sub(1)?)?;
        let count = count.checked_div(saved)?;
        let less = saved.saturating_mul(count).checked_div(records)?;
        let without = |bytes: u64| bytes.saturating_sub(less);
        let mixed = Self {
            uncompressed_bytes: without(self.uncompressed_bytes),
            batch_bytes: without(self.batch_bytes),
            request_bytes: without(self.request_bytes),
            least_request_bytes: without(self.least_request_bytes),
            ..*self
        };
        (count > 0 && count <= records)
            .then(|| (u32::try_from(count).unwrap_or(self.records), mixed))
    }
}

/// Σ over the offset deltas 0 … records − 1, by the ranges in which their varints are as long.
fn all(records: u32, record: impl Fn(u64) -> (u64, u64)) -> u64 {
    let mut sum = 0u64;
    let mut from = 0u64;
    for to in [1u64 << 6, 1 << 13, 1 << 20, 1 << 27, 1 << 34] {
        let to = to.min(records.into());
        let count = to.saturating_sub(from);
        sum = sum.saturating_add(record(from).1.saturating_mul(count));
        from = from.max(to);
    }
    sum
}

fn nullable(bytes: Option<u64>) -> u64 {
    bytes.map_or(1, |bytes| varint(bytes).saturating_add(bytes))
}

/// Headers that share these bytes evenly, each with a name of at most 63: the lengths of name and value, and both. And by how
/// much less it may be, because the names' share is not known.
fn encoded_headers(headers: u32, bytes: u64) -> (u64, u64) {
    let Some(share) = bytes.checked_div(headers.into()) else {
        return (0, 0);
    };
    let larger = bytes.checked_rem(headers.into()).unwrap_or(0);
    let others = u64::from(headers).saturating_sub(larger);
    let lengths = |share: u64| varint(share).saturating_add(1);
    let spread =
        |share: u64| varint(share).saturating_sub(varint(share.saturating_sub(LONGEST_NAME)));
    let of_all = |of: &dyn Fn(u64) -> u64| {
        let of_larger = larger.saturating_mul(of(share.saturating_add(1)));
        of_larger.saturating_add(others.saturating_mul(of(share)))
    };
    (bytes.saturating_add(of_all(&lengths)), of_all(&spread))
}

/// A name whose length takes one byte.
const LONGEST_NAME: u64 = 63;

fn varint(n: u64) -> u64 {
    varint_bytes(u32::try_from(n).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: Option<u64>, key: Option<u64>, records: u32) -> EstimatedRecord {
        EstimatedRecord::of(&Question {
            topic: "t".to_owned(),
            value_bytes: value,
            key_bytes: key,
            records: Some(records),
            ..Question::default()
        })
    }

    #[test]
    fn sizes_are_those_that_kafka_itself_has() {
        // Measured on a real producer and broker: key, value, estimate, batch.
        for (key, value, estimate, batch) in [
            (Some(7), 65_536, 65_630, 65_615),
            (Some(9), 1_048_576, 1_048_673, 1_048_659),
            (None, 1_048_490, 1_048_577, 1_048_562),
            (None, 1_048_516, 1_048_603, 1_048_588),
            (None, 2_000_000, 2_000_088, 2_000_074),
            (None, 1_930, 2_016, 2_000),
            (None, 442, 528, 512),
        ] {
            let sizes = of(Some(value), key, 1);
            assert_eq!(
                (sizes.estimate_bytes, sizes.batch_bytes),
                (estimate, batch),
                "{key:?} {value}"
            );
        }
    }

    #[test]
    fn a_batch_of_many_is_the_sum_of_its_records() {
        for records in [1, 2, 63, 64, 65, 100, 8_192, 8_193, 20_000] {
            let sum: u64 = (0..records)
                .map(|delta| {
                    let body = 2 + varint(delta.into()) + 1 + varint(1_000) + 1_000 + 1;
                    body + varint(body)
                })
                .sum();
            assert_eq!(
                of(Some(1_000), None, records).uncompressed_bytes,
                61 + sum,
                "{records}"
            );
        }
    }

    #[test]
    fn a_null_value_and_an_empty_one_take_the_same_room() {
        assert_eq!(
            of(None, Some(3), 1).record_bytes,
            of(Some(0), Some(3), 1).record_bytes
        );
    }
}
