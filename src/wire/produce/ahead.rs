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
                self.end_partition(r, flexible, (index, entry_at, Some(records)))?;
            }
            self.end_topic(r, flexible, (key, first))?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Writer;
    use crate::wire::produce::FIRST_TOPIC_ID_VERSION;

    /// Two topics, with records of these sizes; no tags.
    fn frame(version: i16, sizes: [&[usize]; 2]) -> Vec<u8> {
        let flexible = version >= FIRST_FLEXIBLE_VERSION;
        let mut w = Writer::frame(0);
        w.int16(0);
        w.int16(version);
        w.int32(7);
        w.string(false, Some(b"client"));
        let no_tags = |w: &mut Writer| w.raw(if flexible { &[0] } else { &[] });
        no_tags(&mut w);
        w.string(flexible, None);
        w.int16(-1);
        w.int32(1_234);
        w.count(flexible, sizes.len());
        for (nth, sizes) in sizes.into_iter().enumerate() {
            if version >= FIRST_TOPIC_ID_VERSION {
                w.raw(&[nth as u8; 16]);
            } else {
                w.string(flexible, Some(&[b'a' + nth as u8; 3]));
            }
            w.count(flexible, sizes.len());
            for (index, bytes) in sizes.iter().enumerate() {
                w.int32(index as i32);
                w.count(flexible, *bytes);
                w.raw(&vec![nth as u8; *bytes]);
                no_tags(&mut w);
            }
            no_tags(&mut w);
        }
        no_tags(&mut w);
        w.into_frame()
    }

    #[test]
    fn what_is_known_ahead_is_what_the_whole_request_says() {
        for version in [3, 8, 9, 12, 13] {
            for sizes in [[&[70, 300][..], &[61, 200, 500]], [&[100], &[61]]] {
                let frame = frame(version, sizes);
                let (mut whole, mut ahead) = (Layout::default(), Layout::default());
                whole.read(&frame, version).unwrap();
                let last = whole.partitions.last().unwrap().records.clone().unwrap();
                for here in 0..frame.len() {
                    match ahead.read_ahead(&frame[..here], frame.len(), version) {
                        Ahead::Known => {
                            assert!(here >= last.start + BATCH_HEADER_BYTES, "{version} {here}");
                            let key =
                                |topic: &TopicEntry| (topic.key.clone(), topic.partitions.clone());
                            let keys = |layout: &Layout| -> Vec<_> {
                                layout.topics.iter().map(key).collect()
                            };
                            assert_eq!(keys(&ahead), keys(&whole));
                            let place =
                                |entry: &PartitionEntry| (entry.index, entry.records.clone());
                            let places = |layout: &Layout| -> Vec<_> {
                                layout.partitions.iter().map(place).collect()
                            };
                            assert_eq!(places(&ahead), places(&whole));
                            assert_eq!(
                                (ahead.acks, &ahead.client_id),
                                (whole.acks, &whole.client_id)
                            );
                        }
                        Ahead::Later(bytes) => {
                            assert!(here < last.start + BATCH_HEADER_BYTES, "{version} {here}");
                            assert!(
                                bytes > here && bytes <= frame.len(),
                                "{version} {here} {bytes}"
                            );
                        }
                        Ahead::Never => panic!("{version}: {here} bytes"),
                    }
                }
            }
        }
    }

    #[test]
    fn a_request_that_ends_in_another_way_is_never_known_ahead() {
        for version in [8, 13] {
            let sound = frame(version, [&[100], &[200]]);
            let mut layout = Layout::default();
            let mut ahead = |frame: &[u8], bytes| layout.read_ahead(&frame[..250], bytes, version);
            assert_eq!(ahead(&sound, sound.len()), Ahead::Known);
            for bytes in [sound.len() - 1, sound.len() + 1, sound.len() + 100] {
                assert_eq!(ahead(&sound, bytes), Ahead::Never, "{version} {bytes}");
            }
            let short = frame(version, [&[200], &[60]]);
            let mut layout = Layout::default();
            for here in 0..=short.len() {
                let ahead = layout.read_ahead(&short[..here], short.len(), version);
                assert!(
                    matches!(ahead, Ahead::Later(_) | Ahead::Never),
                    "{version} {here}"
                );
            }
        }
    }

    #[test]
    fn no_other_bytes_than_empty_tags_fit_behind_the_last_records() {
        let sound = frame(13, [&[100], &[200]]);
        for at in sound.len() - EMPTY_TAGS_BYTES..sound.len() {
            for byte in 1..=u8::MAX {
                let mut frame = sound.clone();
                frame[at] = byte;
                assert!(Layout::default().read(&frame, 13).is_err(), "{at} {byte}");
            }
        }
    }
}
