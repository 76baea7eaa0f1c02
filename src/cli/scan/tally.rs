//! What was found in one topic: sizes by gate, and what would become of its batches. In bounded memory: sketches, and a
//! few examples of each finding.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use serde_json::{Value, json};

use super::sketch::Sketch;
use crate::batch::{BATCH_HEADER_BYTES, BatchHeader, RecordSizes, RecordStream};
use crate::cli::suggest::{Histogram, Measured};
use crate::codec::{Decoders, Output};
use crate::policy::{Size, Violation};
use crate::proxy::{Fate, Tried};
use crate::vocabulary::{Codec, Gate, Source};

/// Uncompressed bytes of one batch that are measured.
const MOST_DECODED_BYTES: u64 = 1 << 30;

/// The gates whose sizes are shown, in this order.
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
    pub(super) sizes: BTreeMap<Gate, Sketch>,
    pub(super) found: BTreeMap<Finding, Found>,
    most_examples: usize,
}

impl Tally {
    pub(super) fn new(most_examples: usize) -> Self {
        Self {
            most_examples,
            ..Self::default()
        }
    }

    /// A batch that its producer sent: its sizes.
    pub(super) fn measure(&mut self, header: &BatchHeader, batch: &[u8], decoders: &mut Decoders) {
        self.batches = self.batches.saturating_add(1);
        let wire_bytes = header.wire_bytes();
        self.bytes = self.bytes.saturating_add(wire_bytes);
        self.sketch(Gate::Batch, wire_bytes);
        let (Some(codec), Ok(count)) = (header.codec(), u32::try_from(header.records_count)) else {
            self.unread_batches = self.unread_batches.saturating_add(1);
            return;
        };
        let payload = batch.get(BATCH_HEADER_BYTES..).unwrap_or_default();
        let mut walk = Walk {
            stream: RecordStream::new(count),
            decoded: 0,
            is_broken: false,
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
        let uncompressed = walk.decoded.saturating_add(BATCH_HEADER_BYTES as u64);
        self.records = self.records.saturating_add(records);
        if is_whole {
            self.sketch(Gate::Uncompressed, uncompressed);
        } else {
            self.unread_batches = self.unread_batches.saturating_add(1);
        }
    }

    fn sketch(&mut self, gate: Gate, bytes: u64) {
        self.sizes.entry(gate).or_default().add(bytes);
    }

    /// What would become of it.
    pub(super) fn judged(&mut self, tried: &Tried, partition: i32, offset: i64) {
        let (word, what) = match tried.fate {
            Fate::Forwarded => ("forwarded", None),
            Fate::Refused => ("refused", Some(What::Refused)),
            Fate::Observed => ("observed", Some(What::Observed)),
            Fate::Offloaded => ("offloaded", None),
            Fate::LeftToBroker => {
                self.left_batches = self.left_batches.saturating_add(1);
                return;
            }
        };
        let count = self.fates.entry(word).or_default();
        *count = count.saturating_add(1);
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
            self.offloaded_records = self
                .offloaded_records
                .saturating_add(tried.offloaded_records);
            self.offloaded_bytes = self.offloaded_bytes.saturating_add(tried.offloaded_bytes);
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
        found.batches = found.batches.saturating_add(1);
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
            let Some(sketch) = self.sizes.get(&gate) else {
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
            .sizes
            .iter()
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
            "control_batches": self.control_batches, "not_judged": self.left_batches,
            "not_measured": self.unread_batches, "deleted_offsets": self.deleted_offsets,
            "verdicts": self.fates, "offloaded_records": self.offloaded_records,
            "offloaded_bytes": self.offloaded_bytes, "sizes": sizes, "found": found,
        })
    }
}

impl Found {
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
    tally: &'a mut Tally,
}

impl Output for Walk<'_> {
    fn piece(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.decoded = self.decoded.saturating_add(bytes.len() as u64);
        let tally = &mut *self.tally;
        let fed = self.stream.feed(bytes, |sizes: &RecordSizes| {
            for (gate, bytes) in [
                (Gate::Record, sizes.record_bytes),
                (Gate::Estimate, sizes.estimate_bytes),
                (Gate::Key, sizes.key_bytes),
                (Gate::Value, sizes.value_bytes),
                (Gate::Headers, sizes.headers_bytes),
            ] {
                tally.sketch(gate, bytes);
            }
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
