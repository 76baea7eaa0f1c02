//! Watches what one consumer asks for and is served: sizes by topic, batches above its own settings, and a large batch
//! that it does not get past. Only looks: no Fetch is changed, held or refused for it.
//!
//! Invariant: at most [`REMEMBERED`] partitions are remembered of a session. With a fetch session (KIP-227) a request
//! names only what has changed, so what was asked before still counts.

mod returns;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use self::returns::{At, Partition, Positions, Returns};
use super::session::RESPONSE_RUN_BYTES;
use super::topics::{Resolved, TopicCache, TopicHandle};
use super::{ClientInfo, Shared};
use crate::count::{Count as _, total};
use crate::inspect::SizesTally;
use crate::policy::LARGE_BYTES;
use crate::telemetry::{FetchSetting, OTHER, TopicMetrics};
use crate::wire::consumer::ConsumerRequest;
use crate::wire::fetch::{
    PartitionRequest, RequestReader, RequestVisitor, ResponseReader, ResponseVisitor,
};
use crate::wire::fetch_request::{INITIAL_EPOCH, Layout};
use crate::wire::produce::TopicKey;
use crate::wire::{Malformed, Walker};

/// Of the responses of one session with a run of records ([`Fetches::opaque_bytes`]) one in so many is looked at to its
/// end: that costs a copy, some three times what passing costs.
const LOOKED_AT: u32 = 16;

/// Partitions remembered of one session; of more, only the sizes served are counted.
const REMEMBERED: usize = 1_000;

/// About what one topic takes: its name, which is no longer than Kafka's longest, and a hash table.
const TOPIC_BYTES: usize = 384;
/// Of a partition in a topic, likewise: half of a table is free.
const PARTITION_BYTES: usize = size_of::<(i32, FetchRequestReader)>() * 2;

/// Kafka's longest topic name (`Topic.MAX_NAME_LENGTH`): nobody is served from a longer one.
const LONGEST_NAME: usize = 249;

/// The fetches of one session.
#[derive(Debug, Default)]
pub(super) struct Fetches {
    /// The request that is being read.
    request: Option<Reading>,
    asked: Remembered,
    /// Requests whose responses are to come. With more than one, what was asked last is not what is served next.
    in_flight: usize,
    response: ResponseReader,
    serving: Serving,
    looks: Looks,
    returns: Returns,
}

/// Which responses with runs are looked at to their ends: the first of a session, and one in [`LOOKED_AT`]. Each
/// stands for those before it that were not.
#[derive(Debug, Default)]
struct Looks {
    /// Responses since the last one that was looked at; `None` before the first.
    missed: Option<u32>,
    /// How many responses the one in hand stands for; 0: it is not looked at. `None`: it has had no run yet.
    weight: Option<u32>,
    /// The same for the partition in hand; 1 where it has no run, or one batch alone.
    of_partition: u32,
    /// Bytes of its records.
    records_bytes: u64,
}

impl Looks {
    /// The first batch of a partition is known: whether those behind it are looked at.
    fn first(&mut self, wire_bytes: u64) -> bool {
        self.of_partition = 1;
        if self.records_bytes >= RESPONSE_RUN_BYTES as u64 && wire_bytes < self.records_bytes {
            let missed = &mut self.missed;
            self.of_partition = *self.weight.get_or_insert_with(|| match missed {
                Some(count) if count.saturating_add(1) < LOOKED_AT => {
                    count.increment();
                    0
                }
                _ => missed.replace(0).map_or(1, |count| count.saturating_add(1)),
            });
        }
        self.of_partition > 0
    }
}

/// A request that is being read.
#[derive(Debug)]
enum Reading {
    Fetch(RequestReader),
    /// It tells how the consumer came to an offset.
    Position(ConsumerRequest),
}

/// The next bytes of a response.
pub(super) enum Next<'a> {
    /// They are here, to be looked at.
    Here(&'a [u8]),
    /// So many passed without coming here, at most [`Fetches::opaque_bytes`].
    Passed(usize),
}

/// The topic that is being served.
#[derive(Debug, Default)]
struct Serving {
    /// Its metrics alone where its name is not known.
    topic: Option<Result<Arc<TopicHandle>, Arc<TopicMetrics>>>,
    /// Its batches, counted together: a topic of tiny batches has ten thousand in a response.
    sizes: SizesTally,
}

impl Serving {
    /// Another topic's turn.
    fn turn(&mut self, next: Option<Result<Arc<TopicHandle>, Arc<TopicMetrics>>>) {
        let sizes = std::mem::take(&mut self.sizes);
        match std::mem::replace(&mut self.topic, next) {
            Some(Ok(handle)) => handle.metrics.fetch_batch_bytes.observe_tally(&sizes),
            Some(Err(metrics)) => metrics.fetch_batch_bytes.observe_tally(&sizes),
            None => {}
        }
    }
}

/// What was asked for.
#[derive(Debug, Default)]
struct Remembered {
    by_name: HashMap<Box<[u8]>, Partitions>,
    by_id: HashMap<[u8; 16], Partitions>,
    partitions: usize,
    /// `fetch.max.bytes`
    max_bytes: i32,
    /// A new one begins with each request that names everything it asks for.
    round: u64,
    /// The round in which older ones were last forgotten.
    swept: u64,
}

type Partitions = HashMap<i32, FetchRequestReader>;

/// What is asked of a partition.
#[derive(Debug)]
struct FetchRequestReader {
    offset: i64,
    max_bytes: i32,
    round: u64,
    /// Whether the consumer comes back to a large batch.
    returns: Partition,
}

impl Fetches {
    /// A request of so many bytes begins, in one of [`crate::wire::fetch::VERSIONS`].
    pub(super) fn begin_request(&mut self, version: i16, frame_bytes: usize) {
        self.request = Some(Reading::Fetch(RequestReader::new(version, frame_bytes)));
        self.in_flight = self.in_flight.saturating_add(1);
    }

    /// A whole request, laid out.
    pub(super) fn hear(&mut self, frame: &[u8], layout: &Layout) {
        self.in_flight = self.in_flight.saturating_add(1);
        let asked = &mut self.asked;
        asked.begin(layout.max_bytes, layout.session_epoch <= INITIAL_EPOCH);
        for topic in &layout.topics {
            let Ok(key) = layout.topic_key(frame, topic) else {
                continue;
            };
            for entry in layout.partitions_of(topic) {
                let ask = PartitionRequest {
                    partition: entry.index,
                    offset: entry.fetch_offset,
                    max_bytes: entry.max_bytes,
                };
                asked.remember(key, ask);
            }
        }
    }

    /// Another request begins that tells how the consumer came to an offset.
    pub(super) fn begin_position(&mut self, request: ConsumerRequest) {
        self.request = Some(Reading::Position(request));
    }

    /// The next bytes of the request that is being read, if one is.
    pub(super) fn read_request(&mut self, chunk: &[u8], shared: &Shared, client: &mut ClientInfo) {
        match &mut self.request {
            Some(Reading::Fetch(request)) => {
                let asked = &mut self.asked;
                let asks = &mut Asks { asked, client };
                if let Err(malformed) = request.read(chunk, asks) {
                    tracing::debug!(client = %client.address, %malformed, "Fetch not understood");
                    self.request = None;
                    self.asked = Remembered::default();
                }
            }
            Some(Reading::Position(request)) => {
                let positions = &mut Positions {
                    returns: &mut self.returns,
                    shared,
                    client,
                };
                if request.read(chunk, positions).is_err() {
                    self.request = None;
                }
            }
            None => {}
        }
    }

    /// A request is being read.
    pub(super) const fn reads_request(&self) -> bool {
        self.request.is_some()
    }

    /// About the memory for what was asked.
    pub(super) fn remembered_bytes(&self) -> usize {
        let asked = &self.asked;
        let topics = total([asked.by_name.len(), asked.by_id.len()]);
        let partitions = asked.partitions.saturating_mul(PARTITION_BYTES);
        topics
            .saturating_mul(TOPIC_BYTES)
            .saturating_add(partitions)
    }

    /// The request is over.
    pub(super) fn end_request(&mut self) {
        self.request = None;
    }

    /// A response begins. `may_pass`: what nobody looks at need not come here.
    pub(super) fn begin_response(&mut self, may_pass: bool) {
        self.response = ResponseReader::default();
        self.looks.weight = (!may_pass).then_some(1);
        self.serving.turn(None);
    }

    /// So many of the next bytes of the response that is walked are records that nobody looks at.
    pub(super) fn opaque_bytes(&self, walker: &Walker) -> u64 {
        self.response.opaque_bytes(walker)
    }

    /// Walks the next bytes of a response.
    pub(super) fn read_response(
        &mut self,
        walker: &mut Walker,
        next: Next<'_>,
        topics: &mut TopicCache,
        (shared, client, now): (&Shared, &ClientInfo, Instant),
    ) -> Result<usize, Malformed> {
        let serves = &mut Serves {
            asked: (self.in_flight == 1).then_some(&mut self.asked),
            serving: &mut self.serving,
            looks: &mut self.looks,
            returns: &mut self.returns,
            topics,
            shared,
            client,
            now,
        };
        let visitor = &mut self.response.seen_by(serves);
        match next {
            Next::Here(chunk) => walker.advance(chunk, visitor),
            Next::Passed(bytes) => walker.pass(bytes as u64, visitor).map(|()| bytes),
        }
    }

    /// The answer to a request that was read is over.
    pub(super) fn end_response(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.served();
    }

    /// The client has ended: what it was served is kept for its next connection.
    pub(super) fn leave(&mut self, shared: &Shared, now: Instant) {
        self.returns.end();
        let of_topics = self.asked.by_name.values_mut();
        for partitions in of_topics.chain(self.asked.by_id.values_mut()) {
            for asking in partitions.values_mut() {
                asking.returns.leave(shared, now);
            }
        }
    }

    /// Counts what a response served.
    pub(super) fn served(&mut self) {
        self.serving.turn(None);
    }
}

impl Remembered {
    fn find(&mut self, topic: TopicKey<'_>, partition: i32) -> Option<&mut FetchRequestReader> {
        let partitions = match topic {
            TopicKey::Name(name) => self.by_name.get_mut(name),
            TopicKey::Id(id) => self.by_id.get_mut(&id),
        };
        partitions?.get_mut(&partition)
    }

    /// A request begins.
    fn begin(&mut self, max_bytes: i32, starts_anew: bool) {
        self.max_bytes = max_bytes;
        self.round.increase_by(u64::from(starts_anew));
    }

    fn remember(&mut self, topic: TopicKey<'_>, ask: PartitionRequest) {
        if matches!(topic, TopicKey::Name(name) if name.len() > LONGEST_NAME) {
            return;
        }
        let round = self.round;
        if let Some(asking) = self.find(topic, ask.partition) {
            (asking.offset, asking.max_bytes, asking.round) = (ask.offset, ask.max_bytes, round);
            asking.returns.asked(ask.offset);
            return;
        }
        if self.partitions >= REMEMBERED {
            self.sweep();
        }
        if self.partitions < REMEMBERED {
            let asking = FetchRequestReader {
                offset: ask.offset,
                max_bytes: ask.max_bytes,
                round,
                returns: Partition::default(),
            };
            let partitions = match topic {
                TopicKey::Name(name) => self.by_name.entry(name.into()).or_default(),
                TopicKey::Id(id) => self.by_id.entry(id).or_default(),
            };
            partitions.insert(ask.partition, asking);
            self.partitions.increment();
        }
    }

    /// Forgets what is no longer asked for, once a round.
    fn sweep(&mut self) {
        if self.swept == self.round {
            return;
        }
        self.swept = self.round;
        let round = self.round;
        let keep = |partitions: &mut Partitions| {
            partitions.retain(|_, asking| asking.round == round);
            !partitions.is_empty()
        };
        self.by_name.retain(|_, partitions| keep(partitions));
        self.by_id.retain(|_, partitions| keep(partitions));
        let all = self.by_name.values().chain(self.by_id.values());
        self.partitions = all.map(HashMap::len).sum();
    }
}

/// A request being read.
struct Asks<'a> {
    asked: &'a mut Remembered,
    client: &'a mut ClientInfo,
}

impl RequestVisitor for Asks<'_> {
    fn client_id(&mut self, client_id: Option<&[u8]>) {
        self.client.learn_client_id(client_id);
    }

    fn begins(&mut self, max_bytes: i32, starts_anew: bool) {
        self.asked.begin(max_bytes, starts_anew);
    }

    fn partition(&mut self, topic: TopicKey<'_>, ask: PartitionRequest) {
        self.asked.remember(topic, ask);
    }
}

/// A response being read.
struct Serves<'a> {
    /// What it answers; `None` where that is not sure.
    asked: Option<&'a mut Remembered>,
    serving: &'a mut Serving,
    looks: &'a mut Looks,
    returns: &'a mut Returns,
    topics: &'a mut TopicCache,
    shared: &'a Shared,
    client: &'a ClientInfo,
    now: Instant,
}

impl Serves<'_> {
    /// What the first batch of a partition is to its consumer. `true`: a large one behind it would be of interest.
    fn look_at_first(&mut self, topic: TopicKey<'_>, partition: i32, wire_bytes: u64) -> bool {
        let (Some(asked), Some(Ok(handle))) = (&mut self.asked, &self.serving.topic) else {
            return false;
        };
        let whole_bytes = u64::try_from(asked.max_bytes).unwrap_or(0);
        let Some(asking) = asked.find(topic, partition) else {
            return false;
        };
        let partition_bytes = u64::try_from(asking.max_bytes).unwrap_or(0);
        let setting = [
            (FetchSetting::Partition, partition_bytes),
            (FetchSetting::Whole, whole_bytes),
        ];
        let exceeded = setting.into_iter().find(|(_, bytes)| wire_bytes > *bytes);
        let at = PartitionRequest {
            partition,
            offset: asking.offset,
            max_bytes: asking.max_bytes,
        };
        if let Some(setting) = exceeded {
            self.shared
                .report_oversized(handle, at, wire_bytes, setting, self.client);
        }
        let is_large = wire_bytes >= LARGE_BYTES || exceeded.is_some();
        let here = At {
            shared: self.shared,
            client: self.client,
            topic: handle,
            partition,
            offset: asking.offset,
            now: self.now,
        };
        let served = self.returns.first(&here, &mut asking.returns, is_large);
        if let Some(served) = served {
            self.shared
                .report_stuck(handle, at, (wire_bytes, None), served, self.client);
        }
        asking.returns.awaits_large()
    }
}

impl ResponseVisitor for Serves<'_> {
    fn topic(&mut self, topic: TopicKey<'_>) {
        self.serving
            .turn(Some(match self.topics.resolve(self.shared, topic) {
                Resolved::Topic(handle) => Ok(handle),
                Resolved::UnknownId(_) | Resolved::Impossible => {
                    Err(self.shared.metrics.topic(OTHER))
                }
            }));
    }

    fn records(&mut self, bytes: u64) {
        self.looks.records_bytes = bytes;
    }

    fn first(&mut self, topic: TopicKey<'_>, partition: i32, wire_bytes: u64) -> bool {
        // Where a consumer has just come, a large batch behind may be where it stops.
        self.looks.first(wire_bytes) | self.look_at_first(topic, partition, wire_bytes)
    }

    fn batch(&mut self, wire_bytes: u64) {
        if self.looks.of_partition > 0 {
            let sizes = &mut self.serving.sizes;
            sizes.add_times(wire_bytes, self.looks.of_partition);
        }
    }

    fn behind(
        &mut self,
        (topic, partition): (TopicKey<'_>, i32),
        base_offset: i64,
        wire_bytes: u64,
    ) {
        if wire_bytes < LARGE_BYTES {
            return;
        }
        let (Some(asked), Some(Ok(handle))) = (&mut self.asked, &self.serving.topic) else {
            return;
        };
        let Some(asking) = asked.find(topic, partition) else {
            return;
        };
        let here = At {
            shared: self.shared,
            client: self.client,
            topic: handle,
            partition,
            offset: asking.offset,
            now: self.now,
        };
        let at = PartitionRequest {
            partition,
            offset: asking.offset,
            max_bytes: asking.max_bytes,
        };
        let served = self.returns.behind(&here, &mut asking.returns, base_offset);
        if let Some(served) = served {
            let batch = (wire_bytes, Some(base_offset));
            self.shared
                .report_stuck(handle, at, batch, served, self.client);
        }
    }
}
