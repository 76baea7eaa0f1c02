//! A Produce request as a layout over its own bytes: where each topic and partition stands, so that a request
//! with some of them left out can be spliced from the original bytes.
//!
//! Versions 0–13. Version 13 names topics by id instead of by name (KIP-516).

use std::ops::Range;

use super::{Malformed, Reader, Reason, Writer, api};

/// From this version on arrays are compact and sections end in tagged fields.
pub const FIRST_FLEXIBLE_VERSION: i16 = 9;
/// From this version on topics are named by id.
pub const FIRST_TOPIC_ID_VERSION: i16 = 13;

/// Topics and partitions of one request, together. Kafka has no bound, but what is remembered of an entry is ten
/// times the bytes of the shortest one; no cluster leads so many partitions on one broker.
pub const MOST_ENTRIES: usize = 128 * 1024;

/// Tagged fields that Kafka 4.4 takes in one section.
const MOST_TAGS: u32 = 10_000;

/// How a request names a topic. Borrowed from the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TopicKey<'a> {
    /// Up to version 12.
    Name(&'a [u8]),
    /// From version 13 on.
    Id([u8; 16]),
}

/// One topic entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicEntry {
    /// The name or the id, as encoded (length included).
    pub key: Range<usize>,
    /// Its partitions in [`Layout::partitions`].
    pub partitions: Range<usize>,
    /// The entry's tagged fields; empty before version 9.
    pub tags: Range<usize>,
}

/// One partition entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionEntry {
    /// `index`
    pub index: i32,
    /// The whole entry: index, records, tagged fields.
    pub entry: Range<usize>,
    /// The bytes of `records`; `None` is null.
    pub records: Option<Range<usize>>,
}

/// Where everything stands in one request frame. Reused from request to request.
#[derive(Debug, Default)]
pub struct Layout {
    /// `api_version`
    pub version: i16,
    /// `client_id`
    pub client_id: Option<Range<usize>>,
    /// A section has more tagged fields than Kafka 4.4 takes: it closes the connection, Kafka 4.3 does not.
    pub has_many_tags: bool,
    /// A transactional id is present.
    pub is_transactional: bool,
    /// `acks`
    pub acks: i16,
    /// Where the count of topics begins.
    topics_at: usize,
    /// The request's own tagged fields; what may stand behind them is ignored, as the broker does.
    tags: Range<usize>,
    /// All topic entries, in their order.
    pub topics: Vec<TopicEntry>,
    /// All partition entries, in their order.
    pub partitions: Vec<PartitionEntry>,
}

impl Layout {
    /// Reads a whole frame, length prefix included, into this layout.
    ///
    /// # Errors
    /// [`Malformed`] where Kafka itself would close the connection.
    pub fn read(&mut self, frame: &[u8], version: i16) -> Result<(), Malformed> {
        self.topics.clear();
        self.partitions.clear();
        self.version = version;
        self.has_many_tags = false;
        let flexible = version >= FIRST_FLEXIBLE_VERSION;
        let r = &mut Reader::new(frame);
        r.take(api::HEAD_BYTES, "request_header")?;
        self.client_id = api::client_id(r)?.map(|id| before(r, id.len()));
        if flexible {
            self.pass_tags(r, "request_header_tags")?;
        }
        self.is_transactional = version >= 3 && r.string(flexible, "transactional_id")?.is_some();
        self.acks = r.int16("acks")?;
        r.int32("timeout_ms")?;
        self.topics_at = r.position();
        let topics = self.count(r, flexible, "topic_data")?;
        for _ in 0..topics {
            self.read_topic(r, flexible)?;
        }
        let tags_at = r.position();
        if flexible {
            self.pass_tags(r, "produce_tags")?;
        }
        self.tags = tags_at..r.position();
        Ok(())
    }

    fn pass_tags(&mut self, r: &mut Reader<'_>, field: &'static str) -> Result<(), Malformed> {
        self.has_many_tags |= r.skip_tags(field)? > MOST_TAGS;
        Ok(())
    }

    /// A count of entries that may still be remembered.
    fn count(
        &self,
        r: &mut Reader<'_>,
        flexible: bool,
        field: &'static str,
    ) -> Result<usize, Malformed> {
        let count = r
            .count(flexible, field)?
            .ok_or(Malformed::new(field, Reason::NegativeLength))?;
        let so_far = self.topics.len().saturating_add(self.partitions.len());
        if so_far.saturating_add(count) > MOST_ENTRIES {
            return Err(Malformed::new(field, Reason::TooLong));
        }
        Ok(count)
    }

    fn read_topic(&mut self, r: &mut Reader<'_>, flexible: bool) -> Result<(), Malformed> {
        let key_at = r.position();
        read_key(r, self.version)?;
        let key = key_at..r.position();
        let first = self.partitions.len();
        let count = self.count(r, flexible, "partition_data")?;
        for _ in 0..count {
            let entry_at = r.position();
            let index = r.int32("index")?;
            let records = r
                .bytes(flexible, "records")?
                .map(|records| before(r, records.len()));
            if flexible {
                self.pass_tags(r, "partition_tags")?;
            }
            self.partitions.push(PartitionEntry {
                index,
                entry: entry_at..r.position(),
                records,
            });
        }
        let tags_at = r.position();
        if flexible {
            self.pass_tags(r, "topic_tags")?;
        }
        self.topics.push(TopicEntry {
            key,
            partitions: first..self.partitions.len(),
            tags: tags_at..r.position(),
        });
        Ok(())
    }

    /// How the request names `topic`.
    pub fn topic_key<'a>(
        &self,
        frame: &'a [u8],
        topic: &TopicEntry,
    ) -> Result<TopicKey<'a>, Malformed> {
        let encoded = frame
            .get(topic.key.clone())
            .ok_or(Malformed::new("topic", Reason::Truncated))?;
        encoded_key(encoded, self.version)
    }

    /// The partitions of one topic entry.
    pub fn partitions_of(&self, topic: &TopicEntry) -> &[PartitionEntry] {
        self.partitions
            .get(topic.partitions.clone())
            .unwrap_or_default()
    }

    /// The request with only these partitions, spliced: ranges of the original frame and what is new between
    /// them. `kept` names topic entries with the partition entries to keep, each by index into this layout; a
    /// topic named several times becomes one (a broker takes seconds over a topic repeated a thousand times).
    pub fn splice(&self, kept: &[(usize, Vec<usize>)]) -> Vec<Piece> {
        let flexible = self.version >= FIRST_FLEXIBLE_VERSION;
        let mut pieces = Pieces::default();
        pieces.original(api::PREFIX_BYTES..self.topics_at);
        pieces.made(|w| w.count(flexible, kept.len()));
        for (topic, partitions) in kept {
            let Some(topic) = self.topics.get(*topic) else {
                continue;
            };
            pieces.original(topic.key.clone());
            pieces.made(|w| w.count(flexible, partitions.len()));
            for partition in partitions {
                let Some(partition) = self.partitions.get(*partition) else {
                    continue;
                };
                pieces.original(partition.entry.clone());
            }
            pieces.original(topic.tags.clone());
        }
        pieces.original(self.tags.clone());
        pieces.finish()
    }
}

/// The last `n` bytes that `r` has read.
fn before(r: &Reader<'_>, n: usize) -> Range<usize> {
    r.position().saturating_sub(n)..r.position()
}

/// A topic as requests and answers of `version` encode it.
pub fn encoded_key(encoded: &[u8], version: i16) -> Result<TopicKey<'_>, Malformed> {
    read_key(&mut Reader::new(encoded), version)
}

fn read_key<'a>(r: &mut Reader<'a>, version: i16) -> Result<TopicKey<'a>, Malformed> {
    if version >= FIRST_TOPIC_ID_VERSION {
        return r.array("topic_id").map(TopicKey::Id);
    }
    r.string(version >= FIRST_FLEXIBLE_VERSION, "topic")?
        .map(TopicKey::Name)
        .ok_or(Malformed::new("topic", Reason::NegativeLength))
}

/// A part of a spliced frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of the original frame.
    Original(Range<usize>),
    /// Bytes made here.
    Made(Vec<u8>),
}

/// Collects pieces, joining what is adjacent.
#[derive(Default)]
struct Pieces {
    pieces: Vec<Piece>,
    bytes: usize,
}

impl Pieces {
    fn original(&mut self, range: Range<usize>) {
        self.bytes = self.bytes.saturating_add(range.len());
        match self.pieces.last_mut() {
            _ if range.is_empty() => {}
            Some(Piece::Original(last)) if last.end == range.start => last.end = range.end,
            _ => self.pieces.push(Piece::Original(range)),
        }
    }

    fn made(&mut self, write: impl FnOnce(&mut Writer)) {
        let mut w = Writer::part();
        write(&mut w);
        self.bytes = self.bytes.saturating_add(w.len());
        self.pieces.push(Piece::Made(w.into_part()));
    }

    /// Puts the length prefix in front.
    fn finish(mut self) -> Vec<Piece> {
        let length = u32::try_from(self.bytes).unwrap_or(u32::MAX);
        self.pieces
            .insert(0, Piece::Made(length.to_be_bytes().to_vec()));
        self.pieces
    }
}
