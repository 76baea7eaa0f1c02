//! What one consumer asks for and is served: sizes counted by topic, batches above its own settings, and a large batch
//! that it does not get past. Only looks: no Fetch is changed, held or refused for it.
//!
//! Invariant: at most [`REMEMBERED`] partitions are remembered of a session. With a fetch session (KIP-227) a request
//! names only what has changed, so what was asked before still counts.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::topics::{Resolved, TopicCache, TopicHandle};
use super::{ClientInfo, Shared};
use crate::inspect::SizesTally;
use crate::policy::LARGE_BYTES;
use crate::telemetry::{FetchSetting, OTHER, TopicMetrics};
use crate::wire::fetch::{Ask, Asked, FetchAnswer, FetchRequest, Served};
use crate::wire::produce::TopicKey;
use crate::wire::{Malformed, Walker};

/// Partitions remembered of one session; of more, only the sizes served are counted.
const REMEMBERED: usize = 1_000;

/// About what one topic takes: its name, which is no longer than Kafka's longest, and a hash table.
const TOPIC_BYTES: usize = 384;

/// Kafka's longest topic name (`Topic.MAX_NAME_LENGTH`): nobody is served from a longer one.
const LONGEST_NAME: usize = 249;

/// The fetches of one session.
#[derive(Debug, Default)]
pub struct Fetches {
    /// The request that is being read.
    request: Option<FetchRequest>,
    asked: Remembered,
    /// Requests whose answers are to come. With more than one, what was asked last is not what is served next.
    in_flight: usize,
    answer: FetchAnswer,
    serving: Serving,
}

/// The topic that is being served.
#[derive(Debug, Default)]
struct Serving {
    /// Its metrics alone where its name is not known.
    topic: Option<Result<Arc<TopicHandle>, Arc<TopicMetrics>>>,
    /// Its batches, counted together: a topic of tiny batches has ten thousand in an answer.
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

type Partitions = HashMap<i32, Asking>;

/// What is asked of a partition.
#[derive(Debug)]
struct Asking {
    offset: i64,
    max_bytes: i32,
    round: u64,
    /// A large batch was served there, and nothing beyond it was asked for yet.
    large: Option<Arc<TopicHandle>>,
}

impl Fetches {
    /// A request of so many bytes begins, in one of [`crate::wire::fetch::VERSIONS`].
    pub fn begin_request(&mut self, version: i16, frame_bytes: usize) {
        self.request = Some(FetchRequest::new(version, frame_bytes));
        self.in_flight = self.in_flight.saturating_add(1);
    }

    /// The next bytes of the request that is being read, if one is.
    pub fn read_request(&mut self, chunk: &[u8], shared: &Shared, client: &mut ClientInfo) {
        let Some(request) = &mut self.request else {
            return;
        };
        let asks = &mut Asks {
            asked: &mut self.asked,
            shared,
            client,
        };
        if let Err(malformed) = request.read(chunk, asks) {
            tracing::debug!(client = %client.address, %malformed, "Fetch not understood");
            self.request = None;
            self.asked = Remembered::default();
        }
    }

    /// About the memory for what was asked.
    pub fn remembered_bytes(&self) -> usize {
        let asked = &self.asked;
        (asked.by_name.len() + asked.by_id.len()) * TOPIC_BYTES
            + asked.partitions * size_of::<(i32, Asking)>() * 2
    }

    /// The request is over.
    pub fn end_request(&mut self) {
        self.request = None;
    }

    /// An answer begins.
    pub fn begin_answer(&mut self) {
        self.answer = FetchAnswer::default();
        self.serving.turn(None);
    }

    /// Walks the next bytes of an answer.
    pub fn read_answer(
        &mut self,
        walker: &mut Walker,
        chunk: &[u8],
        topics: &mut TopicCache,
        (shared, client, now): (&Shared, &ClientInfo, Instant),
    ) -> Result<usize, Malformed> {
        let serves = &mut Serves {
            asked: (self.in_flight == 1).then_some(&mut self.asked),
            serving: &mut self.serving,
            topics,
            shared,
            client,
            now,
        };
        walker.advance(chunk, &mut self.answer.seen_by(serves))
    }

    /// The answer to a request that was read is over.
    pub fn end_answer(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.served();
    }

    /// Counts what an answer served.
    pub fn served(&mut self) {
        self.serving.turn(None);
    }
}

impl Remembered {
    fn find(&mut self, topic: TopicKey<'_>, partition: i32) -> Option<&mut Asking> {
        let partitions = match topic {
            TopicKey::Name(name) => self.by_name.get_mut(name),
            TopicKey::Id(id) => self.by_id.get_mut(&id),
        };
        partitions?.get_mut(&partition)
    }

    /// `Some`: a large batch was served there, and the consumer got past it.
    fn remember(&mut self, topic: TopicKey<'_>, ask: Ask) -> Option<Arc<TopicHandle>> {
        if matches!(topic, TopicKey::Name(name) if name.len() > LONGEST_NAME) {
            return None;
        }
        let round = self.round;
        if let Some(asking) = self.find(topic, ask.partition) {
            let is_past = asking.offset != ask.offset;
            (asking.offset, asking.max_bytes, asking.round) = (ask.offset, ask.max_bytes, round);
            return asking.large.take_if(|_| is_past);
        }
        if self.partitions >= REMEMBERED {
            self.sweep();
        }
        if self.partitions < REMEMBERED {
            let asking = Asking {
                offset: ask.offset,
                max_bytes: ask.max_bytes,
                round,
                large: None,
            };
            let partitions = match topic {
                TopicKey::Name(name) => self.by_name.entry(name.into()).or_default(),
                TopicKey::Id(id) => self.by_id.entry(id).or_default(),
            };
            partitions.insert(ask.partition, asking);
            self.partitions += 1;
        }
        None
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
    shared: &'a Shared,
    client: &'a mut ClientInfo,
}

impl Asked for Asks<'_> {
    fn client_id(&mut self, client_id: Option<&[u8]>) {
        self.client.learn_client_id(client_id);
    }

    fn begins(&mut self, max_bytes: i32, starts_anew: bool) {
        self.asked.max_bytes = max_bytes;
        self.asked.round += u64::from(starts_anew);
    }

    fn partition(&mut self, topic: TopicKey<'_>, ask: Ask) {
        if let Some(topic) = self.asked.remember(topic, ask) {
            self.shared.moved_on(&topic, ask.partition, self.client);
        }
    }
}

/// An answer being read.
struct Serves<'a> {
    /// What it answers; `None` where that is not sure.
    asked: Option<&'a mut Remembered>,
    serving: &'a mut Serving,
    topics: &'a mut TopicCache,
    shared: &'a Shared,
    client: &'a ClientInfo,
    now: Instant,
}

impl Served for Serves<'_> {
    fn topic(&mut self, topic: TopicKey<'_>) {
        self.serving
            .turn(Some(match self.topics.resolve(self.shared, topic) {
                Resolved::Topic(handle) => Ok(handle),
                Resolved::UnknownId(_) | Resolved::Impossible => {
                    Err(self.shared.metrics.topic(OTHER))
                }
            }));
    }

    fn first(&mut self, topic: TopicKey<'_>, partition: i32, wire_bytes: u64) {
        let (Some(asked), Some(Ok(handle))) = (&mut self.asked, &self.serving.topic) else {
            return;
        };
        let whole_bytes = u64::try_from(asked.max_bytes).unwrap_or(0);
        let Some(asking) = asked.find(topic, partition) else {
            return;
        };
        let partition_bytes = u64::try_from(asking.max_bytes).unwrap_or(0);
        let setting = [
            (FetchSetting::Partition, partition_bytes),
            (FetchSetting::Whole, whole_bytes),
        ];
        let exceeded = setting.into_iter().find(|(_, bytes)| wire_bytes > *bytes);
        let at = Ask {
            partition,
            offset: asking.offset,
            max_bytes: asking.max_bytes,
        };
        if let Some(setting) = exceeded {
            self.shared
                .report_oversized(handle, at, wire_bytes, setting, self.client);
        }
        if wire_bytes >= LARGE_BYTES || exceeded.is_some() {
            asking.large = Some(Arc::clone(handle));
            self.shared
                .served_large(handle, at, wire_bytes, self.client, self.now);
        }
    }

    fn batch(&mut self, wire_bytes: u64) {
        self.serving.sizes.add(wire_bytes);
    }
}
