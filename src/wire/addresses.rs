//! Every response that carries a broker's address, rewritten so that clients come back through the proxy.
//!
//! The list follows the message definitions of Apache Kafka 4.4.0: Metadata, FindCoordinator,
//! DescribeCluster, DescribeQuorum, and the `NodeEndpoints` of Produce, Fetch, ShareFetch and
//! ShareAcknowledge (KIP-951). An address is replaced, never passed on: a client must not learn a way around
//! the proxy.

mod tail;

use super::{Malformed, Reader, Reason, Writer, api};

pub use tail::{TailKind, has_addresses, rewrite_tail, rewrite_tail_in_place};

/// What clients are told instead of a broker's own address.
pub trait AddressBook {
    /// The address for a node.
    fn address(&self, node_id: i32) -> (Vec<u8>, i32);
    /// A Metadata response says where a broker really is.
    fn learn(&self, node_id: i32, host: &[u8], port: i32);
}

/// The tag of `NodeEndpoints` in Produce and Fetch responses.
const NODE_ENDPOINTS_TAG: u32 = 0;

/// Rewrites a whole response frame. `api_key` is one for which [`is_rewritten_whole`] holds.
pub fn rewrite(
    frame: &[u8],
    api_key: i16,
    version: i16,
    book: &dyn AddressBook,
) -> Result<Vec<u8>, Malformed> {
    let r = &mut Reader::new(frame);
    let mut w = Writer::frame(frame.len());
    r.int32("response_length")?;
    w.copy(r, |r| r.int32("correlation_id"))?;
    let mut copy = Copier {
        r,
        w: &mut w,
        flexible: is_flexible(api_key, version),
        book,
        learns: false,
    };
    copy.tags("response_header_tags")?;
    match api_key {
        api::FIND_COORDINATOR => find_coordinator(&mut copy, version)?,
        api::DESCRIBE_CLUSTER => describe_cluster(&mut copy, version)?,
        api::DESCRIBE_QUORUM => describe_quorum(&mut copy, version)?,
        api::SHARE_ACKNOWLEDGE => share_acknowledge(&mut copy, version)?,
        _ => return Err(Malformed::new("api_key", Reason::InvalidValue)),
    }
    let rest = r.rest();
    w.raw(rest);
    Ok(w.into_frame())
}

/// Answers small enough to be held and rewritten whole.
pub const fn is_rewritten_whole(api_key: i16) -> bool {
    matches!(
        api_key,
        api::FIND_COORDINATOR
            | api::DESCRIBE_CLUSTER
            | api::DESCRIBE_QUORUM
            | api::SHARE_ACKNOWLEDGE
    )
}

const fn is_flexible(api_key: i16, version: i16) -> bool {
    match api_key {
        api::FIND_COORDINATOR => version >= 3,
        _ => true,
    }
}

/// A Metadata response's head: everything up to the end of its broker list, which comes before the topics.
/// `None` while the list is not all here.
///
/// `head` begins with the frame's length prefix; the rewritten head bears the length of the whole rewritten
/// frame. The second value is how many bytes of `head` it replaces.
pub fn rewrite_metadata_head(
    head: &[u8],
    version: i16,
    book: &dyn AddressBook,
) -> Result<Option<(Vec<u8>, usize)>, Malformed> {
    let r = &mut Reader::new(head);
    let length = r.uint32("response_length")?;
    let mut w = Writer::frame(head.len().min(1024));
    match metadata_brokers(r, &mut w, version, length, book) {
        Ok(()) => {}
        Err(Malformed {
            reason: Reason::Truncated,
            ..
        }) if (head.len() as u64) < u64::from(length).saturating_add(4) => {
            return Ok(None);
        }
        Err(malformed) => return Err(malformed),
    }
    let replaced = r.position();
    let unchanged = u64::from(length)
        .saturating_add(4)
        .saturating_sub(replaced as u64);
    let new_length = (w.len() as u64).saturating_sub(4).saturating_add(unchanged);
    let mut bytes = w.into_part();
    if let (Some(prefix), Ok(length)) = (bytes.first_chunk_mut::<4>(), u32::try_from(new_length)) {
        *prefix = length.to_be_bytes();
    }
    Ok(Some((bytes, replaced)))
}

fn metadata_brokers(
    r: &mut Reader<'_>,
    w: &mut Writer,
    version: i16,
    length: u32,
    book: &dyn AddressBook,
) -> Result<(), Malformed> {
    w.copy(r, |r| r.int32("correlation_id"))?;
    let mut copy = Copier {
        r,
        w,
        flexible: version >= 9,
        book,
        learns: true,
    };
    copy.tags("response_header_tags")?;
    if version >= 3 {
        copy.int32("throttle_time_ms")?;
    }
    // Not `Reader::count`: the list may be longer than what is here of the frame, but not than the frame.
    let brokers = if copy.flexible {
        copy.unsigned_varint("brokers")?.saturating_sub(1)
    } else {
        copy.int32("brokers")?.max(0).unsigned_abs()
    };
    if brokers > length {
        return Err(Malformed::new("brokers", Reason::ImpossibleCount));
    }
    for _ in 0..brokers {
        copy.node("node_id")?;
        if version >= 1 {
            copy.string("rack")?;
        }
        copy.tags("broker_tags")?;
    }
    Ok(())
}

fn find_coordinator(copy: &mut Copier<'_, '_>, version: i16) -> Result<(), Malformed> {
    if version >= 1 {
        copy.int32("throttle_time_ms")?;
    }
    if version < 4 {
        copy.int16("error_code")?;
        if version >= 1 {
            copy.string("error_message")?;
        }
        return copy.node("node_id");
    }
    for _ in 0..copy.count("coordinators")? {
        copy.string("key")?;
        copy.node("node_id")?;
        copy.int16("error_code")?;
        copy.string("error_message")?;
        copy.tags("coordinator_tags")?;
    }
    Ok(())
}

fn describe_cluster(copy: &mut Copier<'_, '_>, version: i16) -> Result<(), Malformed> {
    copy.int32("throttle_time_ms")?;
    copy.int16("error_code")?;
    copy.string("error_message")?;
    if version >= 1 {
        copy.take(1, "endpoint_type")?;
    }
    copy.string("cluster_id")?;
    copy.int32("controller_id")?;
    for _ in 0..copy.count("brokers")? {
        copy.node("broker_id")?;
        copy.string("rack")?;
        if version >= 2 {
            copy.take(1, "is_fenced")?;
        }
        copy.tags("broker_tags")?;
    }
    Ok(())
}

fn describe_quorum(copy: &mut Copier<'_, '_>, version: i16) -> Result<(), Malformed> {
    if version < 2 {
        return Ok(());
    }
    copy.int16("error_code")?;
    copy.string("error_message")?;
    for _ in 0..copy.count("topics")? {
        copy.string("topic_name")?;
        for _ in 0..copy.count("partitions")? {
            copy.take(4 + 2, "partition_index")?;
            copy.string("error_message")?;
            copy.take(4 + 4 + 8, "leader")?;
            for _ in 0..2 {
                for _ in 0..copy.count("replicas")? {
                    copy.take(4 + 16 + 8 + 8 + 8, "replica")?;
                    copy.tags("replica_tags")?;
                }
            }
            copy.tags("partition_tags")?;
        }
        copy.tags("topic_tags")?;
    }
    for _ in 0..copy.count("nodes")? {
        let node_id = copy.int32("node_id")?;
        for _ in 0..copy.count("listeners")? {
            copy.string("name")?;
            copy.r.string(true, "host")?;
            copy.r.int16("port")?;
            let (host, port) = copy.book.address(node_id);
            copy.w.string(true, Some(&host));
            copy.w.int16((port as u16).cast_signed());
            copy.tags("listener_tags")?;
        }
        copy.tags("node_tags")?;
    }
    Ok(())
}

fn share_acknowledge(copy: &mut Copier<'_, '_>, version: i16) -> Result<(), Malformed> {
    copy.int32("throttle_time_ms")?;
    copy.int16("error_code")?;
    copy.string("error_message")?;
    if version >= 2 {
        copy.int32("acquisition_lock_timeout_ms")?;
    }
    for _ in 0..copy.count("responses")? {
        copy.take(16, "topic_id")?;
        for _ in 0..copy.count("partitions")? {
            copy.take(4 + 2, "partition_index")?;
            copy.string("error_message")?;
            copy.take(4 + 4, "current_leader")?;
            copy.tags("current_leader_tags")?;
            copy.tags("partition_tags")?;
        }
        copy.tags("topic_tags")?;
    }
    endpoints(copy)
}

/// The tagged fields at the end of a Produce or Fetch response, with the addresses in `NodeEndpoints` replaced.
pub fn rewrite_endpoint_tags(tags: &[u8], book: &dyn AddressBook) -> Result<Vec<u8>, Malformed> {
    let r = &mut Reader::new(tags);
    let mut w = Writer::part();
    if tags.is_empty() {
        return Ok(Vec::new());
    }
    let count = r.unsigned_varint("tags")?;
    w.unsigned_varint(count);
    for _ in 0..count {
        let tag = r.unsigned_varint("tag")?;
        let size = r.unsigned_varint("tag_size")?;
        let content = r.take(size as usize, "tag_content")?;
        w.unsigned_varint(tag);
        if tag == NODE_ENDPOINTS_TAG {
            let mut inner = Writer::part();
            let inner_r = &mut Reader::new(content);
            endpoints(&mut Copier {
                r: inner_r,
                w: &mut inner,
                flexible: true,
                book,
                learns: false,
            })?;
            inner.raw(inner_r.rest());
            let inner = inner.into_part();
            w.unsigned_varint(u32::try_from(inner.len()).unwrap_or(u32::MAX));
            w.raw(&inner);
        } else {
            w.unsigned_varint(size);
            w.raw(content);
        }
    }
    w.raw(r.rest());
    Ok(w.into_part())
}

fn endpoints(copy: &mut Copier<'_, '_>) -> Result<(), Malformed> {
    for _ in 0..copy.count("node_endpoints")? {
        copy.node("node_id")?;
        copy.string("rack")?;
        copy.tags("node_endpoint_tags")?;
    }
    Ok(())
}

/// Copies a response field by field, but for addresses.
struct Copier<'c, 'a> {
    r: &'c mut Reader<'a>,
    w: &'c mut Writer,
    flexible: bool,
    book: &'c dyn AddressBook,
    /// The message names brokers by the address of the listener it came from: only Metadata is sure to.
    learns: bool,
}

impl Copier<'_, '_> {
    fn take(&mut self, n: usize, field: &'static str) -> Result<(), Malformed> {
        self.w.copy(self.r, |r| r.take(n, field)).map(|_| ())
    }

    fn int16(&mut self, field: &'static str) -> Result<i16, Malformed> {
        self.w.copy(self.r, |r| r.int16(field))
    }

    fn int32(&mut self, field: &'static str) -> Result<i32, Malformed> {
        self.w.copy(self.r, |r| r.int32(field))
    }

    fn unsigned_varint(&mut self, field: &'static str) -> Result<u32, Malformed> {
        self.w.copy(self.r, |r| r.unsigned_varint(field))
    }

    fn string(&mut self, field: &'static str) -> Result<(), Malformed> {
        let flexible = self.flexible;
        self.w
            .copy(self.r, |r| r.string(flexible, field))
            .map(|_| ())
    }

    fn count(&mut self, field: &'static str) -> Result<usize, Malformed> {
        let flexible = self.flexible;
        self.w
            .copy(self.r, |r| r.count(flexible, field))
            .map(|count| count.unwrap_or(0))
    }

    fn tags(&mut self, field: &'static str) -> Result<(), Malformed> {
        if self.flexible {
            self.w.copy(self.r, |r| r.skip_tags(field))?;
        }
        Ok(())
    }

    /// `node_id`, `host`, `port`, in this order in every message. A node that is none (−1) keeps its empty address.
    fn node(&mut self, field: &'static str) -> Result<(), Malformed> {
        let node_id = self.int32(field)?;
        let host = self.r.string(self.flexible, "host")?.unwrap_or_default();
        let port = self.r.int32("port")?;
        if node_id < 0 && host.is_empty() {
            self.w.string(self.flexible, Some(host));
            self.w.int32(port);
            return Ok(());
        }
        if self.learns {
            self.book.learn(node_id, host, port);
        }
        let (host, port) = self.book.address(node_id);
        self.w.string(self.flexible, Some(&host));
        self.w.int32(port);
        Ok(())
    }
}
