//! ShareFetch (KIP-932), as far as it must be refused: which topics it asks for, and a response that says no.
//!
//! Versions 1 and 2.

use super::produce::MOST_ENTRIES;
use super::{Malformed, Reader, Reason, Writer, api};

/// What is asked of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicEntry {
    /// `topic_id`
    pub id: [u8; 16],
    /// `partition_index` of each.
    pub partitions: Vec<i32>,
}

/// A partition that is refused.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// `error_code`
    pub error_code: i16,
    /// `error_message`
    pub text: &'a str,
}

/// The topics that a whole request frame asks for.
///
/// # Errors
/// [`Malformed`] where Kafka itself would close the connection.
pub fn topics(frame: &[u8], version: i16) -> Result<Vec<TopicEntry>, Malformed> {
    let r = &mut Reader::new(frame);
    r.take(api::HEAD_BYTES, "request_header")?;
    api::client_id(r)?;
    r.skip_tags("request_header_tags")?;
    r.string(true, "group_id")?;
    r.string(true, "member_id")?;
    // Epoch, longest wait, least and most bytes, records, and the size of a batch.
    for _ in 0..6 {
        r.int32("share_fetch")?;
    }
    if version >= 2 {
        r.int8("share_acquire_mode")?;
        r.int8("is_renew_ack")?;
    }
    let mut topics = Vec::new();
    let mut entries = 0usize;
    for _ in 0..r.count(true, "topics")?.unwrap_or(0) {
        let id = r.array("topic_id")?;
        let mut partitions = Vec::new();
        for _ in 0..r.count(true, "partitions")?.unwrap_or(0) {
            partitions.push(partition(r)?);
        }
        r.skip_tags("topic_tags")?;
        entries = entries.saturating_add(partitions.len()).saturating_add(1);
        if entries > MOST_ENTRIES {
            return Err(Malformed::new("topics", Reason::TooLong));
        }
        topics.push(TopicEntry { id, partitions });
    }
    Ok(topics)
}

fn partition(r: &mut Reader<'_>) -> Result<i32, Malformed> {
    let index = r.int32("partition_index")?;
    for _ in 0..r.count(true, "acknowledgement_batches")?.unwrap_or(0) {
        r.int64("first_offset")?;
        r.int64("last_offset")?;
        r.bytes(true, "acknowledge_types")?;
        r.skip_tags("acknowledgement_tags")?;
    }
    r.skip_tags("partition_tags")?;
    Ok(index)
}

/// A response in which every partition of these topics is refused, and nothing else is.
pub fn refusing<'a>(
    correlation_id: i32,
    topics: impl ExactSizeIterator<Item = (&'a TopicEntry, Refusal<'a>)>,
) -> Vec<u8> {
    let mut w = Writer::frame(256);
    w.int32(correlation_id);
    w.unsigned_varint(0);
    // Not throttled, no error of the whole, no lock.
    w.int32(0);
    w.int16(0);
    w.string(true, None);
    w.int32(0);
    w.count(true, topics.len());
    for (topic, refusal) in topics {
        w.raw(&topic.id);
        w.count(true, topic.partitions.len());
        for index in &topic.partitions {
            w.int32(*index);
            w.int16(refusal.error_code);
            w.string(true, Some(refusal.text.as_bytes()));
            w.int16(0);
            w.string(true, None);
            // No other leader, no records, none acquired.
            w.int32(-1);
            w.int32(-1);
            w.unsigned_varint(0);
            w.unsigned_varint(0);
            w.count(true, 0);
            w.unsigned_varint(0);
        }
        w.unsigned_varint(0);
    }
    w.count(true, 0);
    w.unsigned_varint(0);
    w.into_frame()
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::share_fetch_request::{
        AcknowledgementBatch, FetchPartition, FetchTopic,
    };
    use kafka_protocol::messages::{
        ApiKey, GroupId, RequestHeader, ResponseHeader, ShareFetchRequest, ShareFetchResponse,
    };
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
    use uuid::Uuid;

    use super::*;

    fn frame() -> Vec<u8> {
        let acknowledged = AcknowledgementBatch::default().with_acknowledge_types(vec![1, 2]);
        let partition = |index| {
            FetchPartition::default()
                .with_partition_index(index)
                .with_acknowledgement_batches(vec![acknowledged.clone(); index as usize])
        };
        let topic = |n: u8| {
            FetchTopic::default()
                .with_topic_id(Uuid::from_bytes([n; 16]))
                .with_partitions(vec![partition(0), partition(2)])
        };
        let request = ShareFetchRequest::default()
            .with_group_id(Some(GroupId(StrBytes::from_static_str("group"))))
            .with_member_id(Some(StrBytes::from_static_str("member")))
            .with_topics(vec![topic(1), topic(2)]);
        let mut body = bytes::BytesMut::new();
        let header_version = ApiKey::ShareFetch.request_header_version(1);
        RequestHeader::default()
            .with_request_api_key(ApiKey::ShareFetch as i16)
            .with_request_api_version(1)
            .encode(&mut body, header_version)
            .unwrap();
        request.encode(&mut body, 1).unwrap();
        let mut frame = (body.len() as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&body);
        frame
    }

    #[test]
    fn topics_are_read_and_refused_so_that_a_decoder_reads_it() {
        let topics = topics(&frame(), 1).unwrap();
        let expected = [1, 2].map(|n| TopicEntry {
            id: [n; 16],
            partitions: vec![0, 2],
        });
        assert_eq!(topics, expected);
        let refusal = Refusal {
            error_code: 29,
            text: "no",
        };
        let refused = refusing(7, topics.iter().map(|topic| (topic, refusal)));
        let mut body = bytes::Bytes::from(refused).slice(4..);
        let header_version = ApiKey::ShareFetch.response_header_version(1);
        let header = ResponseHeader::decode(&mut body, header_version).unwrap();
        assert_eq!(header.correlation_id, 7);
        let response = ShareFetchResponse::decode(&mut body, 1).unwrap();
        assert!(body.is_empty());
        assert_eq!(response.responses.len(), 2);
        for topic in &response.responses {
            let codes: Vec<(i32, i16)> = topic
                .partitions
                .iter()
                .map(|of| (of.partition_index, of.error_code))
                .collect();
            assert_eq!(codes, [(0, 29), (2, 29)]);
        }
    }

    #[test]
    fn no_prefix_and_no_flipped_byte_panics() {
        let frame = frame();
        for version in [1, 2] {
            for end in 0..frame.len() {
                let _ = topics(&frame[..end], version);
            }
            for at in 12..frame.len() {
                let mut changed = frame.clone();
                changed[at] ^= 0xff;
                let _ = topics(&changed, version);
            }
        }
    }
}
