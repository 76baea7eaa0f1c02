//! Lists the requests, says which of them must be read, and reads the head that every frame has.

use super::{Malformed, Reader, Reason};

/// Produce
pub const PRODUCE: i16 = 0;
/// Fetch
pub const FETCH: i16 = 1;
/// ListOffsets
pub const LIST_OFFSETS: i16 = 2;
/// Metadata
pub const METADATA: i16 = 3;
/// OffsetFetch
pub const OFFSET_FETCH: i16 = 9;
/// FindCoordinator
pub const FIND_COORDINATOR: i16 = 10;
/// JoinGroup
pub const JOIN_GROUP: i16 = 11;
/// SaslHandshake
pub const SASL_HANDSHAKE: i16 = 17;
/// ApiVersions
pub const API_VERSIONS: i16 = 18;
/// SaslAuthenticate
pub const SASL_AUTHENTICATE: i16 = 36;
/// CreateTopics
pub const CREATE_TOPICS: i16 = 19;
/// AlterConfigs
pub const ALTER_CONFIGS: i16 = 33;
/// IncrementalAlterConfigs
pub const INCREMENTAL_ALTER_CONFIGS: i16 = 44;
/// DescribeQuorum
pub const DESCRIBE_QUORUM: i16 = 55;
/// DescribeCluster
pub const DESCRIBE_CLUSTER: i16 = 60;
/// ConsumerGroupHeartbeat
pub const CONSUMER_GROUP_HEARTBEAT: i16 = 68;
/// ShareFetch
pub const SHARE_FETCH: i16 = 78;
/// ShareAcknowledge
pub const SHARE_ACKNOWLEDGE: i16 = 79;

/// The highest version of each request this product reads, or whose response it rewrites. Every other request
/// passes in whatever version; these are clamped in the ApiVersions response, because a response that cannot be
/// rewritten would send the client past the proxy.
///
/// Source: the message definitions of Apache Kafka 4.4.0.
const HIGHEST_READ: [(i16, i16); 12] = [
    (PRODUCE, 13),
    (FETCH, 18),
    (METADATA, 13),
    (FIND_COORDINATOR, 6),
    (API_VERSIONS, 5),
    (CREATE_TOPICS, 7),
    (ALTER_CONFIGS, 2),
    (INCREMENTAL_ALTER_CONFIGS, 1),
    (DESCRIBE_QUORUM, 2),
    (DESCRIBE_CLUSTER, 2),
    (SHARE_FETCH, 2),
    (SHARE_ACKNOWLEDGE, 2),
];

/// The highest version of `api_key` this product understands; `None` where it need not understand any.
pub fn highest_version(api_key: i16) -> Option<i16> {
    HIGHEST_READ
        .iter()
        .find(|(key, _)| *key == api_key)
        .map(|(_, version)| *version)
}

/// Bytes of a frame up to and including its correlation id.
pub const HEAD_BYTES: usize = 12;

/// Bytes of the length prefix.
pub const PREFIX_BYTES: usize = 4;

/// The shortest request: api key, version, correlation id.
pub const SHORTEST_REQUEST_BYTES: u32 = 8;

/// The first twelve bytes of a request frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// Bytes of the request, this prefix excluded.
    pub request_bytes: u32,
    /// Which request.
    pub api_key: i16,
    /// In which version.
    pub api_version: i16,
    /// What its response will bear.
    pub correlation_id: i32,
}

impl FrameHead {
    /// Reads the head; `bytes` holds at least [`HEAD_BYTES`].
    pub fn read(bytes: &[u8]) -> Result<Self, Malformed> {
        let r = &mut Reader::new(bytes);
        Ok(Self {
            request_bytes: request_bytes(r.int32("request_length")?)?,
            api_key: r.int16("api_key")?,
            api_version: r.int16("api_version")?,
            correlation_id: r.int32("correlation_id")?,
        })
    }

    /// Bytes of the whole frame, its length prefix included.
    pub const fn frame_bytes(&self) -> usize {
        (self.request_bytes as usize).saturating_add(PREFIX_BYTES)
    }
}

/// A request's declared length, if a request can have it: Kafka closes on anything below a header.
pub fn request_bytes(declared: i32) -> Result<u32, Malformed> {
    match u32::try_from(declared) {
        Err(_) => Err(Malformed::new("request_length", Reason::NegativeLength)),
        Ok(n) if n < SHORTEST_REQUEST_BYTES => {
            Err(Malformed::new("request_length", Reason::Truncated))
        }
        Ok(n) => Ok(n),
    }
}

/// What speaks on the connection instead of Kafka, told by its first four bytes.
pub fn foreign_protocol(first: [u8; 4]) -> Option<&'static str> {
    match first {
        // A TLS record: handshake, major version 3 (RFC 8446, section 5.1).
        [0x16, 0x03, 0..=4, _] => Some("tls"),
        _ => match &first {
            b"GET " | b"POST" | b"PUT " | b"HEAD" | b"OPTI" | b"DELE" | b"PATC" | b"CONN"
            | b"TRAC" | b"PRI " => Some("http"),
            _ => None,
        },
    }
}

/// The client id of a request: INT16-prefixed in every header version; null and invalid UTF-8 are legal.
pub fn client_id<'a>(r: &mut Reader<'a>) -> Result<Option<&'a [u8]>, Malformed> {
    r.string(false, "client_id")
}

/// The client id of a whole request frame; `None` where there is none.
pub fn frame_client_id(frame: &[u8]) -> Option<&[u8]> {
    let r = &mut Reader::new(frame);
    r.take(HEAD_BYTES, "request_header").ok()?;
    client_id(r).ok()?
}
