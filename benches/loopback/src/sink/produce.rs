//! Reads a Produce request as it comes in and writes its response, without keeping its records.
//!
//! The caller keeps the request's bytes *without* records (some 100 bytes) and is told, at each records field,
//! how many bytes to throw away. The walk begins again after each: it is cheaper than it sounds.

/// What the caller does next.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Bring more bytes.
    More,
    /// At `at`, the next `bytes` of the request are records: throw them away, then call again.
    Records {
        /// Position in the bytes kept.
        at: usize,
        /// Bytes of records.
        bytes: usize,
    },
    /// The request is read; its response was appended (none for acks 0).
    Answered,
    /// This is no Produce v3–v13.
    Wrong,
}

/// Walks `kept`, a request without length prefix and without the records of its first `skipped` partitions.
/// Appends the response, with its length prefix, when the walk reaches the end.
pub fn walk(kept: &[u8], skipped: usize, out: &mut Vec<u8>) -> Step {
    let start = out.len();
    let mut walk = Walk {
        kept,
        position: 0,
        skipped,
    };
    match walk.request(out) {
        Ok(true) => Step::Answered,
        Ok(false) => {
            out.truncate(start);
            Step::Answered
        }
        Err(step) => {
            out.truncate(start);
            step
        }
    }
}

struct Walk<'a> {
    kept: &'a [u8],
    position: usize,
    /// Records fields that are gone already.
    skipped: usize,
}

impl<'a> Walk<'a> {
    /// Whether it wants a response.
    fn request(&mut self, out: &mut Vec<u8>) -> Result<bool, Step> {
        self.int16()?; // api_key
        let version = self.int16()?;
        if !(3..=13).contains(&version) {
            return Err(Step::Wrong);
        }
        let flexible = version >= 9;
        let correlation_id = self.int32()?;
        self.string(false)?; // client_id: the header's, never compact
        self.tags(flexible)?;
        self.string(flexible)?; // transactional_id
        let acks = self.int16()?;
        self.int32()?; // timeout_ms

        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&correlation_id.to_be_bytes());
        end(out, flexible);
        let topics = self.count(flexible)?;
        count(out, topics, flexible);
        for _ in 0..topics {
            self.topic(version, out)?;
        }
        self.tags(flexible)?;
        out.extend_from_slice(&0i32.to_be_bytes()); // throttle_time_ms
        end(out, flexible);
        let length = (out.len() - start - 4) as u32;
        out[start..start + 4].copy_from_slice(&length.to_be_bytes());
        Ok(acks != 0)
    }

    fn topic(&mut self, version: i16, out: &mut Vec<u8>) -> Result<(), Step> {
        let flexible = version >= 9;
        let name_at = self.position;
        if version >= 13 {
            self.take(16)?;
        } else {
            self.string(flexible)?;
        }
        out.extend_from_slice(&self.kept[name_at..self.position]);
        let partitions = self.count(flexible)?;
        count(out, partitions, flexible);
        for _ in 0..partitions {
            let index = self.int32()?;
            self.records(flexible)?;
            self.tags(flexible)?;
            response_partition(out, version, index);
        }
        self.tags(flexible)?;
        end(out, flexible);
        Ok(())
    }

    fn records(&mut self, flexible: bool) -> Result<(), Step> {
        let bytes = if flexible {
            (self.unsigned_varint()? as usize).saturating_sub(1)
        } else {
            usize::try_from(self.int32()?).unwrap_or(0)
        };
        if self.skipped > 0 {
            self.skipped -= 1;
            return Ok(());
        }
        Err(Step::Records {
            at: self.position,
            bytes,
        })
    }

    fn count(&mut self, flexible: bool) -> Result<usize, Step> {
        if flexible {
            return Ok((self.unsigned_varint()? as usize).saturating_sub(1));
        }
        Ok(usize::try_from(self.int32()?).unwrap_or(0))
    }

    fn string(&mut self, flexible: bool) -> Result<(), Step> {
        let bytes = if flexible {
            (self.unsigned_varint()? as usize).saturating_sub(1)
        } else {
            usize::try_from(self.int16()?).unwrap_or(0)
        };
        self.take(bytes).map(|_| ())
    }

    fn tags(&mut self, flexible: bool) -> Result<(), Step> {
        if !flexible {
            return Ok(());
        }
        for _ in 0..self.unsigned_varint()? {
            self.unsigned_varint()?;
            let bytes = self.unsigned_varint()? as usize;
            self.take(bytes)?;
        }
        Ok(())
    }

    fn unsigned_varint(&mut self) -> Result<u32, Step> {
        let mut value = 0;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.take(1)?[0];
            value |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Step::Wrong)
    }

    fn int16(&mut self) -> Result<i16, Step> {
        let bytes = self.take(2)?;
        Ok(i16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn int32(&mut self) -> Result<i32, Step> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Step> {
        let end = self.position.checked_add(bytes).ok_or(Step::Wrong)?;
        let taken = self.kept.get(self.position..end).ok_or(Step::More)?;
        self.position = end;
        Ok(taken)
    }
}

fn response_partition(out: &mut Vec<u8>, version: i16, index: i32) {
    out.extend_from_slice(&index.to_be_bytes());
    out.extend_from_slice(&0i16.to_be_bytes()); // error_code
    out.extend_from_slice(&0i64.to_be_bytes()); // base_offset
    out.extend_from_slice(&(-1i64).to_be_bytes()); // log_append_time_ms
    if version >= 5 {
        out.extend_from_slice(&0i64.to_be_bytes()); // log_start_offset
    }
    if version == 8 {
        out.extend_from_slice(&0i32.to_be_bytes()); // record_errors
        out.extend_from_slice(&(-1i16).to_be_bytes()); // error_message
    }
    if version >= 9 {
        out.extend_from_slice(&[1, 0]); // the same, compact
    }
    end(out, version >= 9);
}

fn count(out: &mut Vec<u8>, n: usize, flexible: bool) {
    if !flexible {
        out.extend_from_slice(&(n as i32).to_be_bytes());
        return;
    }
    let mut value = n as u32 + 1;
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// An empty section of tagged fields.
fn end(out: &mut Vec<u8>, flexible: bool) {
    if flexible {
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use bytes::{Buf, BufMut, Bytes, BytesMut};
    use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
    use kafka_protocol::messages::{
        ProduceRequest, ProduceResponse, RequestHeader, ResponseHeader, TopicName,
    };
    use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};

    use super::super::inbound::Inbound;

    fn frame(version: i16, acks: i16) -> BytesMut {
        let topic = |name: &'static str| {
            let mut topic = TopicProduceData::default().with_partition_data(
                (0..3)
                    .map(|index| {
                        PartitionProduceData::default()
                            .with_index(index)
                            .with_records(Some(Bytes::from(vec![7; 100 + index as usize * 1000])))
                    })
                    .collect(),
            );
            if version < 13 {
                topic.name = TopicName(StrBytes::from_static_str(name));
            } else {
                topic.topic_id = crate::frames::TOPIC_ID;
            }
            topic
        };
        let request = ProduceRequest::default()
            .with_acks(acks)
            .with_topic_data(vec![topic("one"), topic("two")]);
        let mut body = BytesMut::new();
        let header_version = if version >= 9 { 2 } else { 1 };
        RequestHeader::default()
            .with_request_api_key(0)
            .with_request_api_version(version)
            .with_correlation_id(99)
            .with_client_id(Some(StrBytes::from_static_str("test")))
            .encode(&mut body, header_version)
            .unwrap();
        request.encode(&mut body, version).unwrap();
        let mut frame = BytesMut::new();
        frame.put_u32(body.len() as u32);
        frame.put(body);
        frame
    }

    #[test]
    fn every_version_is_answered_soundly_however_it_is_cut() {
        for version in 3..=13 {
            for piece in [1, 7, 64, 1 << 20] {
                let mut inbound = Inbound::new();
                let mut out = Vec::new();
                for chunk in frame(version, -1).chunks(piece) {
                    inbound.feed(chunk, 9, &mut out).unwrap();
                }
                let mut rest = Bytes::from(out);
                assert_eq!(rest.get_u32() as usize, rest.len());
                let header_version = i16::from(version >= 9);
                let header = ResponseHeader::decode(&mut rest, header_version).unwrap();
                assert_eq!(header.correlation_id, 99);
                let response = ProduceResponse::decode(&mut rest, version).unwrap();
                assert!(rest.is_empty(), "version {version}");
                assert_eq!(response.responses.len(), 2);
                for topic in response.responses {
                    let indexes: Vec<_> =
                        topic.partition_responses.iter().map(|p| p.index).collect();
                    assert_eq!(indexes, [0, 1, 2]);
                }
            }
        }
    }

    #[test]
    fn acks_0_gets_no_response_and_the_next_request_does() {
        let mut inbound = Inbound::new();
        let mut out = Vec::new();
        inbound.feed(&frame(9, 0), 9, &mut out).unwrap();
        assert!(out.is_empty());
        inbound.feed(&frame(9, 1), 9, &mut out).unwrap();
        assert!(!out.is_empty());
    }
}
