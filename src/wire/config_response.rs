//! The response to CreateTopics, AlterConfigs and IncrementalAlterConfigs: made here, or a broker's with refusals put in
//! front of its entries. Clients match entries by name; the broker keeps no order.

use super::config_requests::Kind;
use super::{Malformed, Reader, Writer};

/// The entry of a topic or broker that was not forwarded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedResource {
    /// `resource_type`; not in the response to CreateTopics.
    pub resource_type: i8,
    /// Its name as the request spells it.
    pub name: Vec<u8>,
    /// `error_code`
    pub error_code: i16,
    /// The text a person reads.
    pub message: String,
}

/// A response with these entries and nothing else.
pub fn response(
    kind: Kind,
    version: i16,
    correlation_id: i32,
    refused: &[RefusedResource],
) -> Vec<u8> {
    let flexible = kind.is_flexible(version);
    let mut w = Writer::frame(256);
    w.int32(correlation_id);
    if flexible {
        w.unsigned_varint(0);
    }
    if has_throttle(kind, version) {
        w.int32(0);
    }
    w.count(flexible, refused.len());
    for resource in refused {
        write(&mut w, kind, version, resource);
    }
    if flexible {
        w.unsigned_varint(0);
    }
    w.into_frame()
}

/// A broker's whole response frame with these entries added; all of its own bytes stay as they came.
pub fn merge(
    frame: &[u8],
    kind: Kind,
    version: i16,
    refused: &[RefusedResource],
) -> Result<Vec<u8>, Malformed> {
    let flexible = kind.is_flexible(version);
    let r = &mut Reader::new(frame);
    r.int32("response_length")?;
    let mut w = Writer::frame(frame.len());
    w.copy(r, |r| {
        r.int32("correlation_id")?;
        if flexible {
            r.skip_tags("response_header_tags")?;
        }
        if has_throttle(kind, version) {
            r.int32("throttle_time_ms")?;
        }
        Ok(())
    })?;
    let theirs = r.count(flexible, "responses")?.unwrap_or(0);
    w.count(flexible, theirs.saturating_add(refused.len()));
    for resource in refused {
        write(&mut w, kind, version, resource);
    }
    w.raw(r.rest());
    Ok(w.into_frame())
}

const fn has_throttle(kind: Kind, version: i16) -> bool {
    match kind {
        Kind::Create => version >= 2,
        Kind::Replace | Kind::Change => true,
    }
}

fn write(w: &mut Writer, kind: Kind, version: i16, resource: &RefusedResource) {
    let flexible = kind.is_flexible(version);
    let message = Some(resource.message.as_bytes());
    if kind == Kind::Create {
        w.string(flexible, Some(&resource.name));
        if version >= 7 {
            // topic_id: none came into being.
            w.raw(&[0; 16]);
        }
        w.int16(resource.error_code);
        if version >= 1 {
            w.string(flexible, message);
        }
        if version >= 5 {
            // num_partitions, replication_factor, and no configs: as the controller writes them with an error.
            w.int32(-1);
            w.int16(-1);
            w.count(flexible, 0);
        }
    } else {
        w.int16(resource.error_code);
        w.string(flexible, message);
        w.raw(&resource.resource_type.to_be_bytes());
        w.string(flexible, Some(&resource.name));
    }
    if flexible {
        w.unsigned_varint(0);
    }
}
