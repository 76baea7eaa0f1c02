//! Topics and partitions that one request names more than once.
//!
//! Sorted, in vectors that are kept from request to request: a request of a thousand partitions hashes nothing.

use super::Evaluated;
use crate::wire::Malformed;
use crate::wire::produce::{Layout, TopicKey};

/// What is repeated in the request evaluated last.
#[derive(Debug, Default)]
pub(super) struct Repeated {
    /// For each topic entry the first one of the same topic.
    first: Vec<usize>,
    has_topics: bool,
    /// Topic entry, partition index and place of each batch that may be repeated.
    places: Vec<(usize, i32, usize)>,
    /// Places of batches that another one follows.
    followed: Vec<usize>,
}

impl Repeated {
    /// A topic has several entries.
    pub(super) fn has_topics(&self) -> bool {
        self.has_topics
    }

    /// Looks for topics with several entries.
    pub(super) fn find(&mut self, frame: &[u8], layout: &Layout) -> Result<(), Malformed> {
        self.has_topics = false;
        self.first.clear();
        self.first.extend(0..layout.topics.len());
        if layout.topics.len() < 2 {
            return Ok(());
        }
        let keys = layout.topics.iter().enumerate();
        let keys = keys.map(|(at, topic)| Ok((layout.topic_key(frame, topic)?, at)));
        let mut keys = keys.collect::<Result<Vec<(TopicKey<'_>, usize)>, Malformed>>()?;
        keys.sort_unstable();
        for same in keys.chunk_by(|(a, _), (b, _)| a == b) {
            let [(_, first), others @ ..] = same else {
                continue;
            };
            for (_, other) in others {
                self.has_topics = true;
                if let Some(entry) = self.first.get_mut(*other) {
                    *entry = *first;
                }
            }
        }
        Ok(())
    }

    /// No topic and no partition is named twice.
    pub(super) fn has_none(&mut self, frame: &[u8], layout: &Layout) -> Result<bool, Malformed> {
        if layout.partitions.len() < 2 {
            return Ok(true);
        }
        self.find(frame, layout)?;
        if self.has_topics {
            return Ok(false);
        }
        self.places.clear();
        for (at, topic) in layout.topics.iter().enumerate() {
            let entries = layout.partitions.get(topic.partitions.clone());
            let indexes = entries.unwrap_or_default().iter();
            let places = indexes.map(|entry| (at, entry.index, 0));
            self.places.extend(places);
        }
        self.places.sort_unstable();
        Ok(self.places.is_sorted_by(|a, b| a < b))
    }

    /// Of a partition named twice only the last batch counts, as in the broker. But what its first look finds fault with
    /// is the response even so, and is left to it.
    pub(super) fn keep_last(&mut self, layout: &Layout, evaluated: &mut Vec<Evaluated>) {
        self.places.clear();
        let batches = evaluated.iter().enumerate();
        let batches = batches.filter(|(_, batch)| !batch.outcome.always_counts());
        self.places.extend(batches.filter_map(|(at, batch)| {
            let partition = layout.partitions.get(batch.partition_entry)?;
            let topic = self.first.get(batch.topic_entry)?;
            Some((*topic, partition.index, at))
        }));
        self.places.sort_unstable();
        self.followed.clear();
        let pairs = self.places.windows(2);
        self.followed.extend(pairs.filter_map(|pair| match pair {
            [(topic, index, at), (next_topic, next_index, _)] => {
                ((topic, index) == (next_topic, next_index)).then_some(*at)
            }
            _ => None,
        }));
        if self.followed.is_empty() {
            return;
        }
        self.followed.sort_unstable();
        let (mut followed, mut places) = (self.followed.iter().peekable(), 0..);
        evaluated.retain(|_| {
            let at = places.next();
            followed
                .next_if(|followed| Some(**followed) == at)
                .is_none()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::proxy::verdict::outcome::Outcome;
    use crate::wire::Writer;

    const VERSION: i16 = 9;

    /// A request with one empty batch for each of these partitions, by topic entry.
    fn request(topics: &[(String, Vec<i32>)]) -> Vec<u8> {
        let mut w = Writer::frame(0);
        w.int16(0);
        w.int16(VERSION);
        w.int32(7);
        w.string(false, None);
        w.raw(&[0]);
        w.string(true, None);
        w.int16(-1);
        w.int32(1_000);
        w.count(true, topics.len());
        for (name, partitions) in topics {
            w.string(true, Some(name.as_bytes()));
            w.count(true, partitions.len());
            for partition in partitions {
                w.int32(*partition);
                w.count(true, 0);
                w.raw(&[0]);
            }
            w.raw(&[0]);
        }
        w.raw(&[0]);
        w.into_frame()
    }

    #[test]
    fn of_batches_for_one_partition_the_last_is_kept_and_those_that_always_count() {
        let mut state = 7_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        let mut repeated = Repeated::default();
        for _ in 0..2_000 {
            let topics: Vec<(String, Vec<i32>)> = (0..1 + random(5))
                .map(|_| {
                    let name = format!("t{}", random(4));
                    let partitions = 0..random(5);
                    (name, partitions.map(|_| random(3) as i32).collect())
                })
                .collect();
            let frame = request(&topics);
            let mut layout = Layout::default();
            layout.read(&frame, VERSION).unwrap();
            let (mut evaluated, mut last, mut expected) = (Vec::new(), BTreeMap::new(), Vec::new());
            for (topic_entry, (name, partitions)) in topics.iter().enumerate() {
                for partition in partitions {
                    let partition_entry = evaluated.len();
                    let outcome = if random(6) == 0 {
                        expected.push(partition_entry);
                        Outcome::Invalid
                    } else {
                        last.insert((name, partition), partition_entry);
                        Outcome::Pass
                    };
                    evaluated.push(Evaluated {
                        topic_entry,
                        partition_entry,
                        outcome,
                    });
                }
            }
            expected.extend(last.into_values());
            expected.sort_unstable();
            repeated.find(&frame, &layout).unwrap();
            repeated.keep_last(&layout, &mut evaluated);
            let kept: Vec<usize> = evaluated.iter().map(|kept| kept.partition_entry).collect();
            assert_eq!(kept, expected, "{topics:?}");
            let names: std::collections::BTreeSet<_> =
                topics.iter().map(|(name, _)| name).collect();
            assert_eq!(repeated.has_topics(), names.len() < topics.len());
        }
    }
}
