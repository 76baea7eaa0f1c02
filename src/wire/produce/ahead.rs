//! A Produce request of which only the front is here: whether its shape is certain before the last batch's records have
//! come.
//!
//! Invariant: what is called [`Ahead::Known`] can be read in one way only, whatever the bytes are that have yet to come. The
//! last batch's records are followed by exactly as many bytes as its empty sections of tagged fields take: any other bytes
//! in their places are malformed, and the broker closes.

use std::ops::Range;

use super::{FIRST_FLEXIBLE_VERSION, Layout, PartitionEntry, TopicEntry, read_key};
use crate::wire::record_batch::BATCH_HEADER_BYTES;
use crate::wire::{Malformed, Reader, Reason};

/// Tagged fields of the last partition, its topic and the request: an empty section takes one byte.
const EMPTY_TAGS_BYTES: usize = 3;

/// A request for more partitions is held: what is remembered of them is not worth less than their records, and a front is
/// laid out again whenever more of it comes.
const MOST_PARTITIONS: usize = 1_000;

/// What the front of a request tells of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ahead {
    /// Where everything stands; all that is missing are bytes of the last batch's records, and empty tags.
    Known,
    /// Nothing yet: so many bytes of the frame must be here first.
    Later(usize),
    /// Nothing before it is whole.
    Never,
}

impl Layout {
    /// Reads the front of a frame of `frame_bytes`, as far as it is here, into this layout.
    pub fn read_ahead(&mut self, here: &[u8], frame_bytes: usize, version: i16) -> Ahead {
        match self.look_ahead(here, frame_bytes, version) {
            Ok(ahead) => ahead,
            Err(malformed) if malformed.reason == Reason::Truncated => {
                Ahead::Later(here.len().saturating_add(1))
            }
            Err(_) => Ahead::Never,
        }
    }

    fn look_ahead(
        &mut self,
        here: &[u8],
        frame_bytes: usize,
        version: i16,
    ) -> Result<Ahead, Malformed> {
        let flexible = version >= FIRST_FLEXIBLE_VERSION;
        let r = &mut Reader::new(here);
        self.read_start(r, version)?;
        let topics = self.count_ahead(r, frame_bytes, "topic_data")?;
        for topic in 1..=topics {
            let key_at = r.position();
            read_key(r, version)?;
            let key = key_at..r.position();
            let first = self.partitions.len();
            let partitions = self.count_ahead(r, frame_bytes, "partition_data")?;
            for partition in 1..=partitions {
                let entry_at = r.position();
                let index = r.int32("index")?;
                let Some(bytes) = r.length(flexible, "records")? else {
                    return Ok(Ahead::Never);
                };
                let records = r.position()..r.position().saturating_add(bytes);
                let is_last = topic == topics && partition == partitions;
                if is_last {
                    self.partitions.push(PartitionEntry {
                        index,
                        entry: entry_at..records.end,
                        records: Some(records.clone()),
                    });
                    self.topics.push(TopicEntry {
                        key,
                        partitions: first..self.partitions.len(),
                        tags: records.end..records.end,
                    });
                    return Ok(self.is_known(&records, here.len(), frame_bytes));
                }
                if records.end > here.len() {
                    // The head of the next one is not shorter.
                    return Ok(Ahead::Later(records.end.saturating_add(BATCH_HEADER_BYTES)));
                }
                r.take(bytes, "records")?;
                if flexible {
                    self.pass_tags(r, "partition_tags")?;
                }
                self.partitions.push(PartitionEntry {
                    index,
                    entry: entry_at..r.position(),
                    records: Some(records),
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
        }
        Ok(Ahead::Never)
    }

    /// The last partition's records are all that is left, and the head of their batch is here.
    fn is_known(&self, last: &Range<usize>, here: usize, frame_bytes: usize) -> Ahead {
        let tags_bytes = match self.version >= FIRST_FLEXIBLE_VERSION {
            true => EMPTY_TAGS_BYTES,
            false => 0,
        };
        let head_end = last.start.saturating_add(BATCH_HEADER_BYTES);
        if last.end.saturating_add(tags_bytes) != frame_bytes
            || head_end > last.end
            || self.has_many_tags
        {
            Ahead::Never
        } else if head_end > here {
            Ahead::Later(head_end)
        } else {
            Ahead::Known
        }
    }

    /// A count of entries that take at least a byte each, of which most have yet to come.
    fn count_ahead(
        &self,
        r: &mut Reader<'_>,
        frame_bytes: usize,
        field: &'static str,
    ) -> Result<usize, Malformed> {
        let flexible = self.version >= FIRST_FLEXIBLE_VERSION;
        let count = r
            .length(flexible, field)?
            .ok_or(Malformed::new(field, Reason::NegativeLength))?;
        if count > frame_bytes.saturating_sub(r.position()) {
            return Err(Malformed::new(field, Reason::ImpossibleCount));
        }
        if self.partitions.len().saturating_add(count) > MOST_PARTITIONS {
            return Err(Malformed::new(field, Reason::TooLong));
        }
        Ok(count)
    }
}
