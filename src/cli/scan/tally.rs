//! What was found in one topic: sizes by gate, and what would become of its batches. In bounded memory: sketches, and a
//! few examples of each finding.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde_json::{Value, json};

use super::sketch::Sketch;
use crate::batch::{BATCH_HEADER_BYTES, BatchHeader, RecordSizes, RecordStream};
use crate::cli::suggest::{Histogram, Measured};
use crate::codec::{Decoders, Output};
use crate::count::Count as _;
use crate::inspect::Measures;
use crate::policy::{Size, Violation};
use crate::proxy::{Fate, Tried};
use crate::vocabulary::{Codec, Gate, Source};

/// Uncompressed bytes of one batch that are measured.
const MOST_DECODED_BYTES: u64 = 1 << 30;

/// The gates whose sizes are shown, in this order, which [`Walk`] goes by.
pub(super) const MEASURED: [Gate; 7] = [
    Gate::Batch,
    Gate::Uncompressed,
    Gate::Record,
    Gate::Estimate,
    Gate::Key,
    Gate::Value,
    Gate::Headers,
];

/// One finding: what is over which limit, or near it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Finding {
    pub(super) what: What,
    pub(super) gate: Gate,
    /// Where the limit comes from, and its rule or family member; of what is near, none of it is told.
    pub(super) source: Option<(Source, Option<String>)>,
}

/// What would be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum What {
    Refused,
    Observed,
    Offloaded,
    Near,
}

impl What {
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Observed => "observed",
            Self::Offloaded => "offloaded",
            Self::Near => "near_limit",
        }
    }
}

/// How often something was found, and where. A batch is counted once for each finding.
#[derive(Debug, Clone, Default)]
pub(super) struct Found {
    pub(super) batches: u64,
    pub(super) largest: Option<Size>,
    pub(super) limit_bytes: Option<u64>,
    pub(super) examples: Vec<Example>,
}

/// Where one is: never what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Example {
    pub(super) partition: i32,
    pub(super) offset: i64,
    /// Of the record at fault in its batch, from 1.
    pub(super) record: Option<u32>,
    pub(super) size: Option<Size>,
}

/// One topic.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) batches: u64,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Markers of transactions' ends: the broker's own.
    pub(super) control_batches: u64,
    /// Not judged: of a format that brokers take no longer, damaged, or the broker's to judge.
    pub(super) left_batches: u64,
    /// Whose records could not be measured.
    pub(super) unread_batches: u64,
    /// Gone between reading where the topic begins and getting there (retention).
    pub(super) deleted_offsets: u64,
    pub(super) fates: BTreeMap<&'static str, u64>,
    pub(super) offloaded_records: u64,
    pub(super) offloaded_bytes: u64,
    /// In the order of [`MEASURED`].
    sizes: [Sketch; MEASURED.len()],
    pub(super) found: BTreeMap<Finding, Found>,
    /// What is inside one batch in so many is measured.
    pub(super) sample: u64,
    most_examples: usize,
}

impl Tally {
    pub(super) fn new(most_examples: usize, sample: u64) -> Self {
        Self {
            sample,
            most_examples,
            ..Self::default()
        }
    }

    /// A batch that its producer sent: its sizes. Says the largest, where all of it could be read.
    pub(super) fn measure(
        &mut self,
        header: &BatchHeader,
        batch: &[u8],
        nth: u64,
        decoders: &mut Decoders,
    ) -> Option<Measures> {
        self.batches.increment();
        let wire_bytes = header.wire_bytes();
        self.bytes.increase_by(wire_bytes);
        self.sketch(Gate::Batch, wire_bytes);
        let (Some(codec), Ok(count)) = (header.codec(), u32::try_from(header.records_count)) else {
            self.unread_batches.increment();
            return None;
        };
        if !nth.is_multiple_of(self.sample.max(1)) {
            self.records.increase_by(count.into());
            return None;
        }
        let payload = batch.get(BATCH_HEADER_BYTES..).unwrap_or_default();
        let mut walk = Walk {
            stream: RecordStream::new(count),
            decoded: 0,
            is_broken: false,
            measures: Measures::default(),
            tally: self,
        };
        if codec == Codec::None {
            let _ = walk.piece(payload);
        } else {
            let decoded = decoders
                .decoder(codec, MOST_DECODED_BYTES)
                .decode(payload, &mut walk);
            walk.is_broken |= decoded.is_err();
        }
        let is_whole = !walk.is_broken && walk.stream.is_complete();
        let records = u64::from(walk.stream.complete_records());
        let measures = Measures {
            uncompressed_bytes: walk.decoded.saturating_add(BATCH_HEADER_BYTES as u64),
            ..walk.measures
        };
        self.records.increase_by(records);
        if !is_whole {
            self.unread_batches.increment();
            return None;
        }
        self.sketch(Gate::Uncompressed, measures.uncompressed_bytes);
        Some(measures)
    }

    fn sketch(&mut self, gate: Gate, bytes: u64) {
        let at = MEASURED.iter().position(|measured| *measured == gate);
        if let Some(sketch) = at.and_then(|at| self.sizes.get_mut(at)) {
            sketch.add(bytes);
        }
    }

    /// The gates of which there are sizes.
    pub(super) fn sizes(&self) -> impl Iterator<Item = (Gate, &Sketch)> {
        let sizes = MEASURED.into_iter().zip(&self.sizes);
        sizes.filter(|(_, sketch)| sketch.count() > 0)
    }

    /// What another found in other batches of the same topic.
    pub(super) fn merge(&mut self, other: Self) {
        for (ours, theirs) in [
            (&mut self.batches, other.batches),
            (&mut self.records, other.records),
            (&mut self.bytes, other.bytes),
            (&mut self.control_batches, other.control_batches),
            (&mut self.left_batches, other.left_batches),
            (&mut self.unread_batches, other.unread_batches),
            (&mut self.deleted_offsets, other.deleted_offsets),
            (&mut self.offloaded_records, other.offloaded_records),
            (&mut self.offloaded_bytes, other.offloaded_bytes),
        ] {
            ours.increase_by(theirs);
        }
        for (word, count) in other.fates {
            self.fates.entry(word).or_default().increase_by(count);
        }
        for (ours, theirs) in self.sizes.iter_mut().zip(&other.sizes) {
            ours.merge(theirs);
        }
        for (finding, found) in other.found {
            let ours = self.found.entry(finding).or_default();
            ours.merge(found, self.most_examples);
        }
    }

    /// What would become of it.
    pub(super) fn judged(&mut self, tried: &Tried, partition: i32, offset: i64) {
        let (word, what) = match tried.fate {
            Fate::Forwarded => ("forwarded", None),
            Fate::Refused => ("refused", Some(What::Refused)),
            Fate::Observed => ("observed", Some(What::Observed)),
            Fate::Offloaded => ("offloaded", None),
            Fate::LeftToBroker => {
                self.left_batches.increment();
                return;
            }
        };
        let count = self.fates.entry(word).or_default();
        count.increment();
        if let Some(what) = what {
            for violation in &tried.over {
                self.over(what, violation, partition, offset);
            }
        }
        for gate in &tried.near {
            let place = Example {
                partition,
                offset,
                record: None,
                size: None,
            };
            self.note(What::Near, *gate, None, None, place);
        }
        if tried.fate == Fate::Offloaded {
            self.offloaded_records.increase_by(tried.offloaded_records);
            self.offloaded_bytes.increase_by(tried.offloaded_bytes);
            let place = Example {
                partition,
                offset,
                record: None,
                size: None,
            };
            self.note(What::Offloaded, Gate::Value, None, None, place);
        }
    }

    fn over(&mut self, what: What, violation: &Violation, partition: i32, offset: i64) {
        let limit = &violation.limit;
        let source = (limit.source, limit.name.as_deref().map(str::to_owned));
        let place = Example {
            partition,
            offset,
            record: violation
                .record
                .map(|record| record.index.saturating_add(1)),
            size: Some(violation.size),
        };
        self.note(what, limit.gate, Some(source), Some(limit.value), place);
    }

    fn note(
        &mut self,
        what: What,
        gate: Gate,
        source: Option<(Source, Option<String>)>,
        limit_bytes: Option<u64>,
        place: Example,
    ) {
        let found = self
            .found
            .entry(Finding { what, gate, source })
            .or_default();
        found.batches.increment();
        found.limit_bytes = limit_bytes.or(found.limit_bytes);
        let is_larger = |size: &Size| {
            found
                .largest
                .is_none_or(|largest| size.bytes() > largest.bytes())
        };
        if let Some(size) = place.size.filter(is_larger) {
            found.largest = Some(size);
        }
        if found.examples.len() < self.most_examples {
            found.examples.push(place);
        }
    }

    /// Something would be refused.
    pub(super) fn refuses(&self) -> bool {
        self.fates.get("refused").is_some_and(|count| *count > 0)
    }

    /// For `suggest`.
    pub(super) fn measured(&self) -> Measured {
        let of = |gate: Gate| {
            let Some((_, sketch)) = self.sizes().find(|(of, _)| *of == gate) else {
                return Histogram::default();
            };
            let at_most = sketch.at_most().map(|(bound, count)| (bound, count as f64));
            Histogram {
                at_most: at_most.collect(),
                count: sketch.count() as f64,
            }
        };
        Measured {
            batch: of(Gate::Batch),
            record: of(Gate::Record),
            uncompressed: of(Gate::Uncompressed),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let sizes: serde_json::Map<String, Value> = self
            .sizes()
            .map(|(gate, sketch)| {
                let sizes = json!({
                    "count": sketch.count(), "p50": sketch.per_mille(500), "p90": sketch.per_mille(900),
                    "p99": sketch.per_mille(990), "p99.9": sketch.per_mille(999), "max": sketch.largest(),
                });
                (gate.label().to_owned(), sizes)
            })
            .collect();
        let found: Vec<Value> = self
            .found
            .iter()
            .map(|(finding, found)| found.to_json(finding))
            .collect();
        json!({
            "batches": self.batches, "records": self.records, "bytes": self.bytes,
            "measured_one_in": self.sample,
            "control_batches": self.control_batches, "not_judged": self.left_batches,
            "not_measured": self.unread_batches, "deleted_offsets": self.deleted_offsets,
            "verdicts": self.fates, "offloaded_records": self.offloaded_records,
            "offloaded_bytes": self.offloaded_bytes, "sizes": sizes, "found": found,
        })
    }
}

impl Found {
    /// Each has the first places of those it saw, so that the first of both are among them.
    fn merge(&mut self, other: Self, most_examples: usize) {
        self.batches.increase_by(other.batches);
        self.limit_bytes = self.limit_bytes.or(other.limit_bytes);
        let bytes = |size: Option<Size>| size.map(Size::bytes);
        if bytes(other.largest) > bytes(self.largest) {
            self.largest = other.largest;
        }
        self.examples.extend(other.examples);
        self.examples
            .sort_by_key(|example| (example.partition, example.offset));
        self.examples.truncate(most_examples);
    }

    fn to_json(&self, finding: &Finding) -> Value {
        let examples: Vec<Value> = self
            .examples
            .iter()
            .copied()
            .map(Example::to_json)
            .collect();
        let (source, name) = match &finding.source {
            Some((source, name)) => (Some(source.label()), name.as_deref()),
            None => (None, None),
        };
        json!({
            "verdict": finding.what.label(), "gate": finding.gate.label(), "source": source, "name": name,
            "limit_bytes": self.limit_bytes, "largest_bytes": self.largest.map(Size::bytes),
            "batches": self.batches, "examples": examples,
        })
    }
}

impl Example {
    fn to_json(self) -> Value {
        json!({
            "partition": self.partition, "offset": self.offset, "record": self.record,
            "size_bytes": match self.size { Some(Size::Exact(bytes)) => Some(bytes), _ => None },
            "at_least_bytes": match self.size { Some(Size::AtLeast(bytes)) => Some(bytes), _ => None },
        })
    }
}

/// Follows the records of a batch as a decoder gives them.
struct Walk<'a> {
    stream: RecordStream,
    decoded: u64,
    is_broken: bool,
    measures: Measures,
    tally: &'a mut Tally,
}

impl Output for Walk<'_> {
    fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.decoded.increase_by(bytes.len() as u64);
        let [_, _, record, estimate, key, value, headers] = &mut self.tally.sizes;
        let measures = &mut self.measures;
        let fed = self.stream.feed(bytes, |sizes: &RecordSizes| {
            measures.record(sizes);
            record.add(sizes.record_bytes);
            estimate.add(sizes.estimate_bytes);
            key.add(sizes.key_bytes);
            value.add(sizes.value_bytes);
            headers.add(sizes.headers_bytes);
            ControlFlow::Continue(())
        });
        if fed.is_err() {
            self.is_broken = true;
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    fn seam(&mut self) -> ControlFlow<()> {
        if self.stream.is_complete() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(partition: i32, offsets: &[i64], largest: u64) -> Found {
        let example = |offset: &i64| Example {
            partition,
            offset: *offset,
            record: None,
            size: None,
        };
        Found {
            batches: offsets.len() as u64,
            largest: Some(Size::Exact(largest)),
            limit_bytes: Some(10),
            examples: offsets.iter().map(example).collect(),
        }
    }

    #[test]
    fn the_first_places_are_named_whoever_found_them() {
        let mut first = found(0, &[3, 9, 11], 20);
        first.merge(found(0, &[1, 4], 50), 3);
        first.merge(found(1, &[0], 40), 3);
        let offsets: Vec<i64> = first.examples.iter().map(|at| at.offset).collect();
        assert_eq!((first.batches, offsets), (6, vec![1, 3, 4]));
        assert_eq!(first.largest, Some(Size::Exact(50)));
    }
}
