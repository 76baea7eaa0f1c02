//! The families that are read from our own cells at each scrape: everything by topic, by API and by codec.
//!
//! Invariant: what is not counted yet has no series, and a family's name, help and labels stand in one place.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::counters::{Counter, Snapshot, TimeHistogram};
use super::kafka_names::{API_COUNT, api_name};
use super::text::{Family, Spec};
use super::topic::{CodecMetrics, OTHER, TopicMetrics, Topics};
use crate::vocabulary::Limit;
use crate::vocabulary::{Codec, Gate, Histograms};

/// How the sizes of a batch were found; the labels of `inspection_total`. The last stands for any other word.
const PROOFS: [&str; 6] = ["header", "bound", "walk", "decode", "sampled", "other"];

const PRODUCE_BATCHES: Spec = (
    "produce_batches_total",
    "Record batches that producers sent, by what became of them: forwarded, refused, observed (forwarded although \
     enforcing would have refused them), offloaded (values put into the object store).",
    &["topic", "verdict"],
);
const VIOLATIONS: Spec = (
    "violations_total",
    "Sizes above a limit, by gate, by where the limit comes from, and by what was done about it. One batch may break \
     several limits.",
    &["topic", "gate", "source", "action"],
);
const NEAR_LIMIT: Spec = (
    "near_limit_total",
    "Sizes within a limit but above the share of it that near_limit in the configuration sets (0.8 by default).",
    &["topic", "gate"],
);
const LIMIT_BYTES: Spec = (
    "limit_bytes",
    "The limit in force for a gate, in bytes, and where it comes from.",
    &["topic", "gate", "source"],
);
const BATCH_WIRE_BYTES: Spec = (
    "batch_wire_bytes",
    "Bytes of each record batch as it travels, its 61-byte header included: what Kafka compares with max.message.bytes.",
    &["topic"],
);
const BATCH_UNCOMPRESSED_BYTES: Spec = (
    "batch_uncompressed_bytes",
    "Bytes of each record batch after decompression (61 + records), where that is known exactly.",
    &["topic"],
);
const RECORD_BYTES: Spec = (
    "record_bytes",
    "Encoded bytes of each record, of the batches whose records were walked.",
    &["topic"],
);
const ESTIMATE_BYTES: Spec = (
    "estimate_bytes",
    "What a Java producer would compare with its max.request.size for each record, of the batches whose records were \
     walked.",
    &["topic"],
);
const LARGEST_BYTES: Spec = (
    "largest_bytes",
    "The largest size since the start that went on to the broker, by the gate that compares it: batch, uncompressed, record, \
     estimate.",
    &["topic", "gate"],
);
const BATCHES_BY_CODEC: Spec = (
    "batches_by_codec_total",
    "Record batches by the compression they arrived with.",
    &["topic", "codec"],
);
const RECORDS: Spec = (
    "records_total",
    "Records in the batches that producers sent, as the batches declare them.",
    &["topic", "codec"],
);
const WIRE_BYTES: Spec = (
    "wire_bytes_total",
    "Bytes of record batches as they travel.",
    &["topic", "codec"],
);
const UNCOMPRESSED_BYTES: Spec = (
    "uncompressed_bytes_total",
    "Bytes of record batches after decompression, where that is known exactly.",
    &["topic", "codec"],
);
const BROKER_REFUSALS: Spec = (
    "broker_refusals_total",
    "Batches that passed every gate here and were refused by the broker, by Kafka's name of the error.",
    &["topic", "code"],
);
const REFUSAL_LOOPS: Spec = (
    "refusal_loops_total",
    "Refused batches that a client kept sending unchanged; answered with INVALID_RECORD to end its loop.",
    &["topic"],
);
const LINGER_SUSPECTS: Spec = (
    "linger_suspects_total",
    "Records that most likely waited in their producer for its whole linger.ms although they were larger than its \
     batch.size, so that nothing could join them (KAFKA-21068).",
    &["topic"],
);
const LINGER_SECONDS: Spec = (
    "linger_seconds",
    "How long those records were kept by their producer: about its linger.ms.",
    &["topic"],
);
const FETCH_BATCH_BYTES: Spec = (
    "fetch_batch_bytes",
    "Bytes of each record batch served to consumers, as it travels; of large responses without TLS on a sample, whose batches stand for those that were not looked at.",
    &["topic"],
);
const FETCH_OVERSIZED: Spec = (
    "fetch_oversized_total",
    "Batches served to a consumer that were larger than its own max.partition.fetch.bytes or fetch.max.bytes. They \
     pass: Kafka serves the first batch whole, and it lands in the consumer's memory.",
    &["topic"],
);
const FETCH_STUCK: Spec = (
    "fetch_stuck_total",
    "Times a consumer came back to a large batch that it had been served at least twice before: out of memory, a record \
     it cannot deserialise, a failing handler.",
    &["topic"],
);
const INSPECTION: Spec = (
    "inspection_total",
    "Inspected batches, by the cheapest proof that decided (header, bound, walk, decode, sampled for metrics only) and \
     by codec.",
    &["proof", "codec"],
);
const INSPECTION_SECONDS: Spec = (
    "inspection_seconds",
    "Time taken to measure one batch.",
    &["codec"],
);
const REQUEST_SECONDS: Spec = (
    "request_seconds",
    "Time from a request's first byte to the last byte of its response, broker included.",
    &["api"],
);
const PROXY_SECONDS: Spec = (
    "proxy_seconds",
    "The proxy's own part of a request: from its last byte read until it was judged and handed on.",
    &["api"],
);
const CONTROL_PLANE_UP: Spec = (
    "control_plane_up",
    "1 while topics and limits can be read from the cluster, 0 while they cannot.",
    &[],
);
const READY: Spec = (
    "ready",
    "1 while clients can be served as the configuration says (/readyz says why not), else 0.",
    &[],
);
const CERTIFICATE_EXPIRES: Spec = (
    "certificate_expires_timestamp_seconds",
    "When the first certificate of a file in force ends, in seconds since 1970, by the key that names the file.",
    &["key"],
);
const LIMITS_AGE: Spec = (
    "limits_age_seconds",
    "Time since topic and broker limits were last read from the cluster; absent until the first time.",
    &[],
);

const FAMILY_ALIGNED: Spec = (
    "family_aligned",
    "1 where a retry or dead-letter topic, and what writes it, takes all that its main topic's own limits take, with headroom; else 0.",
    &["main", "member"],
);
const FAMILY_GAP_BYTES: Spec = (
    "family_gap_bytes",
    "What a family member's own limits, or what writes it, lack to take all that its main topic's take, with headroom; 0: nothing.",
    &["main", "member"],
);

const BROKER_UNUSABLE: Spec = (
    "broker_unusable",
    "1 for each broker that clients cannot be sent to, by why: outside_node_ids (listener.node_ports.node_ids), \
     own_address (the broker advertises an address of sizegate itself). Absent while all can be used.",
    &["node_id", "reason"],
);

/// What is not counted but known elsewhere, asked at each scrape: so it is never stale.
pub trait Known: Send + Sync {
    /// The cluster has the topic, as far as is known. The series of one that it has not end with the next scrape.
    fn has_topic(&self, topic: &str) -> bool;

    /// The limits in force on a topic, each with its source.
    fn limits(&self, topic: &str) -> Vec<Limit>;

    /// How the members of families fit: at most so many members, the configured ones first.
    fn families(&self, most: usize) -> Vec<FamilyFit>;

    /// Topics and limits could be read from the cluster the last time it was tried.
    fn is_control_plane_up(&self) -> bool;

    /// Time since topics and limits were read; `None` before the first time.
    fn limits_age(&self) -> Option<Duration>;

    /// Clients can be served as the configuration says.
    fn is_ready(&self) -> bool {
        self.is_control_plane_up()
    }

    /// Keys that name files of certificates, and when the first in each ends, in seconds since 1970.
    fn certificates(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// The brokers that clients cannot be sent to, and why, in a word of a fixed set.
    fn unusable_brokers(&self) -> Vec<(i32, &'static str)> {
        Vec::new()
    }
}

/// How a member fits its family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyFit {
    /// The main topic.
    pub main: Arc<str>,
    /// The retry or dead-letter topic.
    pub member: Arc<str>,
    /// Its own limits take what the main topic's own take, with headroom.
    pub is_aligned: bool,
    /// What they lack, in bytes; `None` where nothing limits the main topic.
    pub gap_bytes: Option<u64>,
}

/// `histograms: few`: what lies between can be told by the largest and by what is near a limit.
const FEW_BYTES: [f64; 9] = [
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    1_048_588.0,
    4_194_304.0,
    16_777_216.0,
];
const FEW_SECONDS: [f64; 5] = [0.1, 0.5, 1.0, 5.0, 30.0];

/// A histogram by topic while its samples are gathered.
struct Shown {
    family: Family,
    /// The bounds that are shown; `None`: all.
    bounds: Option<&'static [f64]>,
    is_left_out: bool,
}

impl Shown {
    /// `few`: the bounds where a few are asked for; empty: number and sum; `None`: not at all.
    fn new(spec: Spec, histograms: Histograms, few: Option<&'static [f64]>) -> Self {
        Self {
            family: Family::histograms(spec),
            bounds: few.filter(|_| histograms == Histograms::Few),
            is_left_out: match histograms {
                Histograms::None => true,
                Histograms::Few => few.is_none(),
                Histograms::All => false,
            },
        }
    }

    fn add(&mut self, topic: &TopicMetrics, snapshot: impl Fn(&TopicMetrics) -> Snapshot) {
        if self.is_left_out {
            return;
        }
        let is_shown = |bound: f64| self.bounds.is_none_or(|bounds| bounds.contains(&bound));
        self.family
            .histogram_in(&[topic.label()], &snapshot(topic), is_shown);
    }
}

/// The cells that are not by topic.
#[derive(Debug)]
pub(super) struct ProcessCells {
    pub apis: [ApiCells; API_COUNT],
    /// Keys beyond the table.
    pub other_apis: ApiCells,
    inspections: [[Counter; Codec::ALL.len()]; PROOFS.len()],
    pub inspection_seconds: [TimeHistogram; Codec::ALL.len()],
}

/// What is counted for one API key.
#[derive(Debug, Default)]
pub(super) struct ApiCells {
    pub request: TimeHistogram,
    pub proxy: TimeHistogram,
}

impl ProcessCells {
    pub(super) fn new() -> Self {
        Self {
            apis: std::array::from_fn(|_| ApiCells::default()),
            other_apis: ApiCells::default(),
            inspections: Default::default(),
            inspection_seconds: Default::default(),
        }
    }

    /// API keys beyond the table share one entry.
    pub(super) fn api(&self, api_key: i16) -> &ApiCells {
        let index = usize::try_from(api_key).ok();
        let api = index.and_then(|index| self.apis.get(index));
        api.unwrap_or(&self.other_apis)
    }

    pub(super) fn inspection(&self, proof: &str, codec: Codec) -> &Counter {
        let [header, bound, walk, decode, sampled, other] = &self.inspections;
        codec.cell(match proof {
            "header" => header,
            "bound" => bound,
            "walk" => walk,
            "decode" => decode,
            "sampled" => sampled,
            _ => other,
        })
    }
}

/// Reads all cells at a scrape.
pub(super) struct Cells {
    pub topics: Arc<Topics>,
    pub process: Arc<ProcessCells>,
    /// Weak: whoever knows most likely holds the metrics.
    pub known: Arc<OnceLock<Weak<dyn Known>>>,
}

impl Cells {
    /// Appends every family that has a sample.
    pub(super) fn write(&self, text: &mut String, histograms: Histograms) {
        let known = self.known.get().and_then(Weak::upgrade);
        let mut topics = self.topics.exported();
        if let Some(known) = &known {
            topics.retain(|topic| {
                let exists = topic.label() == OTHER || known.has_topic(topic.label());
                if !exists {
                    self.topics.forget(topic.label());
                }
                exists
            });
        }
        let mut families = topic_counts(&topics);
        families.extend(topic_sizes(&topics, histograms));
        families.extend(observed(&topics, histograms));
        families.extend(process(&self.process));
        if let Some(known) = known {
            families.extend(known_elsewhere(&*known, &topics));
            families.extend(fits(&*known, self.topics.bound()));
        }
        for family in families {
            family.write(text);
        }
    }
}

fn topic_counts(topics: &[Arc<TopicMetrics>]) -> Vec<Family> {
    let mut batches = Family::counters(PRODUCE_BATCHES);
    let mut violations = Family::counters(VIOLATIONS);
    let mut near_limit = Family::counters(NEAR_LIMIT);
    let mut broker_refusals = Family::counters(BROKER_REFUSALS);
    let mut loops = Family::counters(REFUSAL_LOOPS);
    for topic in topics {
        let name = topic.label();
        // From zero: the first refusal shall be an increase, not a new series.
        batches.counter(&[name, "forwarded"], topic.forwarded.get());
        batches.counter(&[name, "refused"], topic.refused.get());
        batches.counter_if_used(&[name, "observed"], topic.observed.get());
        batches.counter_if_used(&[name, "offloaded"], topic.offloaded.get());
        loops.counter_if_used(&[name], topic.loops.get());
        for &gate in Gate::ALL {
            near_limit.counter_if_used(&[name, gate.label()], topic.near_limit_count(gate));
        }
        let rare = topic.rare_now();
        for ((gate, source, action), count) in rare.violations {
            violations.counter(&[name, gate.label(), source.label(), action.label()], count);
        }
        for (code, count) in rare.broker_refusals {
            broker_refusals.counter(&[name, code], count);
        }
    }
    [batches, violations, near_limit, broker_refusals, loops].into()
}

fn topic_sizes(topics: &[Arc<TopicMetrics>], histograms: Histograms) -> Vec<Family> {
    let mut wire = Shown::new(BATCH_WIRE_BYTES, histograms, Some(&FEW_BYTES));
    let mut uncompressed = Shown::new(BATCH_UNCOMPRESSED_BYTES, histograms, Some(&[]));
    let mut record = Shown::new(RECORD_BYTES, histograms, Some(&FEW_BYTES));
    let mut estimate = Shown::new(ESTIMATE_BYTES, histograms, None);
    let mut largest = Family::gauges(LARGEST_BYTES);
    for topic in topics {
        wire.add(topic, |topic| topic.wire_bytes.snapshot());
        uncompressed.add(topic, |topic| topic.uncompressed_bytes.snapshot());
        record.add(topic, |topic| topic.record_bytes.snapshot());
        estimate.add(topic, |topic| topic.estimate_bytes.snapshot());
        let sizes = topic.largest_sizes();
        for (gate, bytes) in [
            (Gate::Batch, sizes.batch_bytes),
            (Gate::Uncompressed, sizes.uncompressed_bytes),
            (Gate::Record, sizes.record_bytes),
            (Gate::Estimate, sizes.estimate_bytes),
        ] {
            if let Some(bytes) = bytes {
                largest.gauge(&[topic.label(), gate.label()], bytes as f64);
            }
        }
    }
    let by_codec = |spec, count: fn(&CodecMetrics) -> &Counter| {
        let mut family = Family::counters(spec);
        for topic in topics {
            for &codec in Codec::ALL {
                let value = count(topic.codec(codec)).get();
                family.counter_if_used(&[topic.label(), codec.label()], value);
            }
        }
        family
    };
    [
        wire.family,
        uncompressed.family,
        record.family,
        estimate.family,
        largest,
        by_codec(BATCHES_BY_CODEC, |codec| &codec.batches),
        by_codec(RECORDS, |codec| &codec.records),
        by_codec(WIRE_BYTES, |codec| &codec.wire_bytes),
        by_codec(UNCOMPRESSED_BYTES, |codec| &codec.uncompressed_bytes),
    ]
    .into()
}

/// What the gates that only observe have seen.
fn observed(topics: &[Arc<TopicMetrics>], histograms: Histograms) -> Vec<Family> {
    let mut linger_suspects = Family::counters(LINGER_SUSPECTS);
    let mut linger_seconds = Shown::new(LINGER_SECONDS, histograms, Some(&FEW_SECONDS));
    let mut fetched = Shown::new(FETCH_BATCH_BYTES, histograms, Some(&[]));
    let mut oversized = Family::counters(FETCH_OVERSIZED);
    let mut stuck = Family::counters(FETCH_STUCK);
    for topic in topics {
        let name = &[topic.label()];
        linger_suspects.counter_if_used(name, topic.linger_suspects.get());
        linger_seconds.add(topic, |topic| topic.linger_seconds.snapshot());
        fetched.add(topic, |topic| topic.fetch_batch_bytes.snapshot());
        oversized.counter_if_used(name, topic.fetch_oversized.get());
        stuck.counter_if_used(name, topic.fetch_stuck.get());
    }
    [
        linger_suspects,
        linger_seconds.family,
        fetched.family,
        oversized,
        stuck,
    ]
    .into()
}

fn process(cells: &ProcessCells) -> Vec<Family> {
    let mut inspection = Family::counters(INSPECTION);
    let mut inspection_seconds = Family::histograms(INSPECTION_SECONDS);
    for &codec in Codec::ALL {
        for proof in PROOFS {
            let count = cells.inspection(proof, codec).get();
            inspection.counter_if_used(&[proof, codec.label()], count);
        }
        let seconds = codec.cell(&cells.inspection_seconds);
        inspection_seconds.histogram(&[codec.label()], &seconds.snapshot());
    }
    let mut request = Family::histograms(REQUEST_SECONDS);
    let mut proxy = Family::histograms(PROXY_SECONDS);
    for (api_key, api) in (0i16..).zip(cells.apis.iter().chain([&cells.other_apis])) {
        let name = &[api_name(api_key)];
        request.histogram(name, &api.request.snapshot());
        proxy.histogram(name, &api.proxy.snapshot());
    }
    [inspection, inspection_seconds, request, proxy].into()
}

fn known_elsewhere(known: &dyn Known, topics: &[Arc<TopicMetrics>]) -> Vec<Family> {
    let mut unusable = Family::gauges(BROKER_UNUSABLE);
    for (node_id, reason) in known.unusable_brokers() {
        unusable.gauge(&[&node_id.to_string(), reason], 1.0);
    }
    let mut limits = Family::gauges(LIMIT_BYTES);
    // Many topics share `_other`: a limit of one of them would be a lie about the rest.
    for topic in topics.iter().filter(|topic| topic.label() != OTHER) {
        // A ratio is not bytes.
        for limit in known
            .limits(topic.label())
            .iter()
            .filter(|limit| limit.gate != Gate::Ratio)
        {
            let labels = &[topic.label(), limit.gate.label(), limit.source.label()];
            limits.gauge(labels, limit.value as f64);
        }
    }
    let mut up = Family::gauges(CONTROL_PLANE_UP);
    up.gauge(&[], f64::from(known.is_control_plane_up()));
    let mut age = Family::gauges(LIMITS_AGE);
    if let Some(since) = known.limits_age() {
        age.gauge(&[], since.as_secs_f64());
    }
    let mut ready = Family::gauges(READY);
    ready.gauge(&[], f64::from(known.is_ready()));
    let mut certificates = Family::gauges(CERTIFICATE_EXPIRES);
    for (key, seconds) in known.certificates() {
        certificates.gauge(&[key], seconds as f64);
    }
    [limits, up, ready, age, unusable, certificates].into()
}

/// Of at most so many members: anybody who may create topics can make families.
fn fits(known: &dyn Known, most: usize) -> [Family; 2] {
    let mut aligned = Family::gauges(FAMILY_ALIGNED);
    let mut gap = Family::gauges(FAMILY_GAP_BYTES);
    for fit in known.families(most) {
        let labels: &[&str] = &[&fit.main, &fit.member];
        aligned.gauge(labels, f64::from(u8::from(fit.is_aligned)));
        if let Some(bytes) = fit.gap_bytes {
            gap.gauge(labels, bytes as f64);
        }
    }
    [aligned, gap]
}
