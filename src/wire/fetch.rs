//! Fetch as it streams past: what a consumer asks for, and the heads of the batches it is served.
//!
//! Versions 4–18. Nothing of a batch is looked at but its first 17 bytes: base offset, length and magic, which stand
//! there in every format (`LogOverhead`). Invariant: memory is bounded by one string and one head, whatever either
//! side declares, and what cannot be understood is only not seen.

use super::produce::TopicKey;
use super::record_batch::{LEAST_LENGTH, LOG_OVERHEAD_BYTES, UP_TO_MAGIC_BYTES};
use super::walk::{FETCH_REQUEST, Visitor, Walker};
use super::{HEAD_BYTES, Malformed};

/// The versions that are read: older ones are not spoken by any broker since Kafka 4.
pub const VERSIONS: std::ops::RangeInclusive<i16> = 4..=18;

/// Is told what a consumer asks for, in this order.
pub trait RequestVisitor {
    /// The request's `client_id`.
    fn client_id(&mut self, client_id: Option<&[u8]>);
    /// All of it together: at most `max_bytes`. `starts_anew`: whatever was asked before no longer counts
    /// (KIP-227: not an incremental request).
    fn begins(&mut self, max_bytes: i32, starts_anew: bool);
    /// From one partition.
    fn partition(&mut self, topic: TopicKey<'_>, ask: PartitionRequest);
}

/// What is asked of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionRequest {
    /// `partition`
    pub partition: i32,
    /// `fetch_offset`
    pub offset: i64,
    /// `partition_max_bytes`
    pub max_bytes: i32,
}

/// Is told what a consumer is served, in this order.
pub trait ResponseVisitor {
    /// The batches that follow are this topic's.
    fn topic(&mut self, topic: TopicKey<'_>);
    /// So many bytes of records follow for a partition.
    fn records(&mut self, _bytes: u64) {}
    /// The first batch of a partition in this response begins. `false`: no more is to be told of them.
    fn first(&mut self, topic: TopicKey<'_>, partition: i32, wire_bytes: u64) -> bool;
    /// A batch is over: all of it was in the response.
    fn batch(&mut self, wire_bytes: u64);
    /// That batch came behind others of its partition, and this is where it stands in the log.
    fn behind(&mut self, _of: (TopicKey<'_>, i32), _base_offset: i64, _wire_bytes: u64) {}
}

/// A topic, kept from field to field.
#[derive(Debug, Default)]
struct TopicFields {
    name: Vec<u8>,
    id: Option<[u8; 16]>,
}

impl TopicFields {
    fn named(&mut self, name: Option<&[u8]>) {
        self.id = None;
        self.name.clear();
        self.name.extend_from_slice(name.unwrap_or_default());
    }

    fn identified(&mut self, id: &[u8]) {
        self.id = id.first_chunk().copied();
    }

    fn key(&self) -> TopicKey<'_> {
        self.id.map_or(TopicKey::Name(&self.name), TopicKey::Id)
    }
}

/// A request in progress.
#[derive(Debug)]
pub struct RequestReader {
    walker: Walker,
    /// Bytes of the frame's head still to come.
    head_left: usize,
    version: i16,
    topic: TopicFields,
    max_bytes: i32,
    ask: PartitionRequest,
}

impl RequestReader {
    /// A request whose frame has so many bytes, length prefix included.
    pub fn new(version: i16, frame_bytes: usize) -> Self {
        let body_bytes = frame_bytes.saturating_sub(HEAD_BYTES);
        Self {
            walker: Walker::new(&FETCH_REQUEST, version, body_bytes as u64),
            head_left: HEAD_BYTES,
            version,
            topic: TopicFields::default(),
            max_bytes: 0,
            ask: PartitionRequest {
                partition: 0,
                offset: 0,
                max_bytes: 0,
            },
        }
    }

    /// The next bytes of the frame.
    ///
    /// # Errors
    /// It is no Fetch request; the broker will say so.
    pub fn read(&mut self, chunk: &[u8], asked: &mut dyn RequestVisitor) -> Result<(), Malformed> {
        let skipped = self.head_left.min(chunk.len());
        self.head_left = self.head_left.saturating_sub(skipped);
        let body = chunk.get(skipped..).unwrap_or_default();
        let Self {
            walker,
            version,
            topic,
            max_bytes,
            ask,
            ..
        } = self;
        let mut fields = RequestFields {
            version: *version,
            topic,
            max_bytes,
            ask,
            asked,
        };
        walker.advance(body, &mut fields).map(|_| ())
    }
}

struct RequestFields<'a> {
    version: i16,
    topic: &'a mut TopicFields,
    max_bytes: &'a mut i32,
    ask: &'a mut PartitionRequest,
    asked: &'a mut dyn RequestVisitor,
}

impl Visitor for RequestFields<'_> {
    fn fixed(&mut self, field: &'static str, bytes: &[u8]) {
        match field {
            "max_bytes" => *self.max_bytes = int32(bytes),
            // The last field before the topics, where there are no sessions.
            "isolation_level" if self.version < 7 => self.asked.begins(*self.max_bytes, true),
            // 0 begins a session, −1 ends it; both name everything.
            "session_epoch" => self.asked.begins(*self.max_bytes, int32(bytes) <= 0),
            "topic_id" => self.topic.identified(bytes),
            "partition" => self.ask.partition = int32(bytes),
            "fetch_offset" => self.ask.offset = int64(bytes),
            "partition_max_bytes" => {
                self.ask.max_bytes = int32(bytes);
                self.asked.partition(self.topic.key(), *self.ask);
            }
            _ => {}
        }
    }

    fn text(&mut self, field: &'static str, bytes: Option<&[u8]>) {
        match field {
            "client_id" => self.asked.client_id(bytes),
            "topic" => self.topic.named(bytes),
            _ => {}
        }
    }
}

/// Where in a response the walk stands. The walk itself is the caller's: [`super::walk::FETCH_ANSWER`] or
/// [`super::walk::SHARE_FETCH_ANSWER`], with [`ResponseReader::seen_by`] as its visitor.
#[derive(Debug, Default)]
pub struct ResponseReader {
    topic: TopicFields,
    partition: i32,
    batches: Batches,
}

impl ResponseReader {
    /// So many of the next bytes need not be looked at.
    pub fn opaque_bytes(&self, walker: &Walker) -> u64 {
        self.batches.opaque_bytes().min(walker.bytes_left())
    }

    /// The visitor for the next bytes.
    pub fn seen_by<'a, S: ResponseVisitor>(&'a mut self, served: &'a mut S) -> impl Visitor + 'a {
        ResponseFields {
            response: self,
            served,
        }
    }
}

struct ResponseFields<'a, S> {
    response: &'a mut ResponseReader,
    served: &'a mut S,
}

impl<S: ResponseVisitor> Visitor for ResponseFields<'_, S> {
    fn fixed(&mut self, field: &'static str, bytes: &[u8]) {
        match field {
            "topic_id" => {
                self.response.topic.identified(bytes);
                self.served.topic(self.response.topic.key());
            }
            "partition_index" => {
                self.response.partition = int32(bytes);
                self.response.batches = Batches::default();
            }
            _ => {}
        }
    }

    fn text(&mut self, field: &'static str, bytes: Option<&[u8]>) {
        if field == "topic" {
            self.response.topic.named(bytes);
            self.served.topic(self.response.topic.key());
        }
    }

    fn begins(&mut self, field: &'static str, bytes: u64) {
        if field == "records" {
            self.served.records(bytes);
        }
    }

    fn bytes(&mut self, field: &'static str, piece: &[u8]) {
        if field == "records" {
            let ResponseReader {
                topic,
                partition,
                batches,
            } = &mut *self.response;
            batches.read(piece, (topic.key(), *partition), self.served);
        }
    }

    fn passed(&mut self, field: &'static str, bytes: u64) {
        if field == "records" {
            let ResponseReader {
                topic,
                partition,
                batches,
            } = &mut *self.response;
            batches.pass(bytes, (topic.key(), *partition), self.served);
        }
    }
}

/// The batches of one partition, head by head.
#[derive(Debug)]
struct Batches {
    head: [u8; UP_TO_MAGIC_BYTES],
    /// Bytes of the head that have come.
    here: usize,
    /// Of the batch in hand.
    wire_bytes: u64,
    base_offset: i64,
    is_behind: bool,
    /// Bytes of it still to come.
    left: u64,
    is_first: bool,
    /// What follows is not looked at: it is not asked for, or no batch.
    is_over: bool,
}

impl Default for Batches {
    fn default() -> Self {
        Self {
            head: [0; UP_TO_MAGIC_BYTES],
            here: 0,
            wire_bytes: 0,
            base_offset: 0,
            is_behind: false,
            left: 0,
            is_first: true,
            is_over: false,
        }
    }
}

impl Batches {
    fn read<S: ResponseVisitor>(
        &mut self,
        mut rest: &[u8],
        of: (TopicKey<'_>, i32),
        served: &mut S,
    ) {
        while !rest.is_empty() && !self.is_over {
            if self.left > 0 {
                let wanted = usize::try_from(self.left)
                    .unwrap_or(usize::MAX)
                    .min(rest.len());
                rest = rest.get(wanted..).unwrap_or_default();
                self.pass(wanted as u64, of, served);
                continue;
            }
            let free = self.head.get_mut(self.here..).unwrap_or_default();
            let wanted = free.len().min(rest.len());
            let (taken, after) = rest.split_at_checked(wanted).unwrap_or((rest, &[]));
            for (place, byte) in free.iter_mut().zip(taken) {
                *place = *byte;
            }
            rest = after;
            self.here = self.here.saturating_add(wanted);
            if self.here == UP_TO_MAGIC_BYTES {
                self.begin(of, served);
            }
        }
    }

    /// So many of the next bytes are records, or of no interest.
    fn opaque_bytes(&self) -> u64 {
        match self.is_over {
            true => u64::MAX,
            false => self.left,
        }
    }

    /// So many bytes passed, at most [`Self::opaque_bytes`].
    fn pass<S: ResponseVisitor>(&mut self, bytes: u64, of: (TopicKey<'_>, i32), served: &mut S) {
        if self.is_over {
            return;
        }
        self.left = self.left.saturating_sub(bytes);
        if self.left == 0 {
            served.batch(self.wire_bytes);
            if self.is_behind {
                served.behind(of, self.base_offset, self.wire_bytes);
            }
        }
    }

    fn begin<S: ResponseVisitor>(
        &mut self,
        (topic, partition): (TopicKey<'_>, i32),
        served: &mut S,
    ) {
        self.here = 0;
        let [o, p, q, r, s, t, u, v, a, b, c, d, _, _, _, _, magic] = self.head;
        let length = i32::from_be_bytes([a, b, c, d]);
        if length < LEAST_LENGTH || magic > 2 {
            self.is_over = true;
            return;
        }
        self.wire_bytes =
            u64::from(length.unsigned_abs()).saturating_add(LOG_OVERHEAD_BYTES as u64);
        self.left = self.wire_bytes.saturating_sub(UP_TO_MAGIC_BYTES as u64);
        self.base_offset = i64::from_be_bytes([o, p, q, r, s, t, u, v]);
        self.is_behind = !self.is_first;
        if std::mem::take(&mut self.is_first) {
            self.is_over = !served.first(topic, partition, self.wire_bytes);
        }
    }
}

fn int32(bytes: &[u8]) -> i32 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| i32::from_be_bytes(*bytes))
}

fn int64(bytes: &[u8]) -> i64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| i64::from_be_bytes(*bytes))
}
