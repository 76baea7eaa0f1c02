//! Reads what a consumer asks for beside Fetch that tells how it came to an offset: ListOffsets (by time), OffsetFetch
//! (what its group has committed), JoinGroup and ConsumerGroupHeartbeat (KIP-848). They stream past and are only looked
//! at.
//!
//! Invariant: memory is bounded by one string, whatever the client declares; what cannot be understood is not seen.

use std::ops::RangeInclusive;

use super::walk::{
    CONSUMER_GROUP_HEARTBEAT_REQUEST, JOIN_GROUP_REQUEST, LIST_OFFSETS_REQUEST, Message,
    OFFSET_FETCH_REQUEST, Visitor, Walker,
};
use super::{HEAD_BYTES, Malformed, api};

/// `ListOffsetsRequest.LATEST_TIMESTAMP`: to know how far behind one is.
const LATEST: i64 = -1;

/// Is told what a consumer asks for.
pub trait Positioned {
    /// The request's `client_id`; always first.
    fn client_id(&mut self, client_id: Option<&[u8]>);
    /// It asks what this group has committed.
    fn group(&mut self, group_id: &[u8]);
    /// It joins a group, for the first time if it has no id yet.
    fn joins(&mut self, has_member_id: bool);
    /// A member of a group of the newer protocol is alive, in this epoch of its group.
    fn is_in(&mut self, member_id: &[u8], epoch: i32);
    /// It asks where the partition begins, or where a time is in it.
    fn resets(&mut self, topic: &[u8], partition: i32);
}

/// A request in progress.
#[derive(Debug)]
pub struct ConsumerRequest {
    walker: Walker,
    /// Bytes of the frame's head still to come.
    head_left: usize,
    /// The topic or member in hand.
    name: Vec<u8>,
    partition: i32,
}

impl ConsumerRequest {
    /// A request whose frame has so many bytes, length prefix included; `None` if it is not one of these.
    pub fn new(api_key: i16, version: i16, frame_bytes: usize) -> Option<Self> {
        let (message, versions) = message(api_key)?;
        let body_bytes = frame_bytes.saturating_sub(HEAD_BYTES);
        versions.contains(&version).then(|| Self {
            walker: Walker::new(message, version, body_bytes as u64),
            head_left: HEAD_BYTES,
            name: Vec::new(),
            partition: 0,
        })
    }

    /// The next bytes of the frame.
    ///
    /// # Errors
    /// It is not what its head says; the broker will say so.
    pub fn read(&mut self, chunk: &[u8], told: &mut dyn Positioned) -> Result<(), Malformed> {
        let skipped = self.head_left.min(chunk.len());
        self.head_left = self.head_left.saturating_sub(skipped);
        let body = chunk.get(skipped..).unwrap_or_default();
        let mut fields = Fields {
            name: &mut self.name,
            partition: &mut self.partition,
            told,
        };
        self.walker.advance(body, &mut fields).map(|_| ())
    }
}

fn message(api_key: i16) -> Option<(&'static Message, RangeInclusive<i16>)> {
    match api_key {
        api::LIST_OFFSETS => Some((&LIST_OFFSETS_REQUEST, 0..=11)),
        api::OFFSET_FETCH => Some((&OFFSET_FETCH_REQUEST, 0..=10)),
        api::JOIN_GROUP => Some((&JOIN_GROUP_REQUEST, 0..=9)),
        api::CONSUMER_GROUP_HEARTBEAT => Some((&CONSUMER_GROUP_HEARTBEAT_REQUEST, 0..=1)),
        _ => None,
    }
}

struct Fields<'a> {
    name: &'a mut Vec<u8>,
    partition: &'a mut i32,
    told: &'a mut dyn Positioned,
}

impl Visitor for Fields<'_> {
    fn fixed(&mut self, field: &'static str, bytes: &[u8]) {
        match field {
            "partition" => {
                *self.partition = bytes.first_chunk().map_or(0, |b| i32::from_be_bytes(*b));
            }
            "timestamp" => {
                let timestamp = bytes.first_chunk().map_or(0, |b| i64::from_be_bytes(*b));
                if timestamp != LATEST {
                    self.told.resets(self.name, *self.partition);
                }
            }
            "member_epoch" => {
                let epoch = bytes.first_chunk().map_or(0, |b| i32::from_be_bytes(*b));
                self.told.is_in(self.name, epoch);
            }
            _ => {}
        }
    }

    fn text(&mut self, field: &'static str, bytes: Option<&[u8]>) {
        let text = bytes.unwrap_or_default();
        match field {
            "client_id" => self.told.client_id(bytes),
            "group_id" => self.told.group(text),
            "member_id" => self.told.joins(!text.is_empty()),
            "topic" | "member" => {
                self.name.clear();
                self.name.extend_from_slice(text);
            }
            _ => {}
        }
    }
}
