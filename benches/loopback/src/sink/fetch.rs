//! Answers Fetch: so many bytes of records for each partition as it asks for, in batches of the size it names.
//!
//! A response is made once for each kind of request and kept; only its correlation id changes.

use std::cell::RefCell;
use std::collections::HashMap;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchRequest, FetchResponse};
use kafka_protocol::protocol::Encodable;

use crate::frames::{self, Content, TOPIC_ID};

thread_local! {
    static MADE: RefCell<HashMap<Kind, Bytes>> = RefCell::default();
}

/// Partitions, bytes of records for each, bytes of a batch.
type Kind = (usize, i32, i32);

/// The body of the response.
pub fn response(request: &FetchRequest, version: i16) -> Option<Bytes> {
    let partitions = &request.topics.first()?.partitions;
    let kind = (
        partitions.len(),
        partitions.first()?.partition_max_bytes,
        request.min_bytes,
    );
    MADE.with_borrow_mut(|made| {
        if let Some(body) = made.get(&kind) {
            return Some(body.clone());
        }
        let body = make(kind, version)?;
        made.insert(kind, body.clone());
        Some(body)
    })
}

fn make((partitions, records_bytes, batch_bytes): Kind, version: i16) -> Option<Bytes> {
    let count = usize::try_from(records_bytes.checked_div(batch_bytes)?).ok()?;
    let batch = |n| frames::batch(batch_bytes as usize, Content::Json, n as u64);
    let records = Bytes::from((0..count).flat_map(batch).collect::<Vec<u8>>());
    let partition = |index| {
        PartitionData::default()
            .with_partition_index(index)
            .with_high_watermark(1 << 40)
            .with_last_stable_offset(1 << 40)
            .with_log_start_offset(0)
            .with_aborted_transactions(None)
            .with_records(Some(records.clone()))
    };
    let topic = FetchableTopicResponse::default()
        .with_topic_id(TOPIC_ID)
        .with_partitions((0..partitions as i32).map(partition).collect());
    let response = FetchResponse::default().with_responses(vec![topic]);
    let mut body = BytesMut::new();
    response.encode(&mut body, version).ok()?;
    Some(body.freeze())
}
