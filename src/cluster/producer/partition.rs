//! A partition's lane: one batch under way at a time, sent again until it is acknowledged or too late.
//!
//! Invariant: what is sent again is the same records under the same sequence, so that the broker stores them once. After
//! a batch whose outcome is not known nothing is sent under that producer id.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    InitProducerIdRequest, ProduceRequest, ProduceResponse, ProducerId, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::directory::{Directory, NotFound};
use super::encode::{Identity, encode};
use super::{NotWritten, Pending, Written};
use crate::cluster::link::Link;
use crate::cluster::responses::failure_name;
use crate::error_code as code;
use crate::net::deadline_in;

/// First and longest pause before something is sent again.
pub(super) const BACKOFF: (Duration, Duration) =
    (Duration::from_millis(50), Duration::from_secs(1));

/// Records and bytes of one batch at most; a record alone may be larger.
const BATCH_RECORDS: usize = 1_000;
const BATCH_BYTES: usize = 256 << 10;

/// For one call, connecting aside. The broker is told to wait less for its replicas.
const CALL: Duration = Duration::from_secs(10);
const REPLICAS_MS: i32 = 8_000;

/// `InitProducerId` where none was before.
const NO_PRODUCER_ID: i64 = -1;

/// Serves one partition until its topic's lane ends.
pub(super) async fn serve(
    directory: Arc<Directory>,
    partition: i32,
    mut records: mpsc::UnboundedReceiver<Pending>,
) {
    let mut lane = Lane {
        directory,
        partition,
        link: None,
        identity: None,
        since: Instant::now()
            .checked_sub(Duration::from_secs(60))
            .unwrap_or_else(Instant::now),
        most_records: BATCH_RECORDS,
    };
    let mut waiting = VecDeque::new();
    let mut taken = Vec::new();
    loop {
        if waiting.is_empty() && records.recv_many(&mut taken, BATCH_RECORDS).await == 0 {
            return;
        }
        while taken.len() < BATCH_RECORDS
            && let Ok(pending) = records.try_recv()
        {
            taken.push(pending);
        }
        waiting.extend(taken.drain(..));
        let batch = lane.take(&mut waiting);
        for unsent in lane.deliver(batch).await.into_iter().rev() {
            waiting.push_front(unsent);
        }
    }
}

struct Lane {
    directory: Arc<Directory>,
    partition: i32,
    link: Option<Link>,
    identity: Option<Identity>,
    /// What was known of the leader before this was wrong.
    since: Instant,
    /// Fewer after a batch that was too large.
    most_records: usize,
}

/// How one attempt failed.
enum Failure {
    /// It may do a moment later. `may_be_stored`: a request left, and its outcome is not known.
    Again { why: String, may_be_stored: bool },
    /// The broker wants another producer id: this one's records were not stored now.
    Forgotten(String),
    /// The batch is over a limit of the topic.
    TooLarge(String),
    /// It will not.
    Final(String),
}

impl Lane {
    /// The records of the next batch: one at least.
    fn take(&self, waiting: &mut VecDeque<Pending>) -> Vec<Pending> {
        let mut bytes = 0usize;
        let mut batch = Vec::new();
        while batch.len() < self.most_records
            && let Some(next) = waiting.front()
        {
            bytes = bytes.saturating_add(next.record.room_bytes());
            if bytes > BATCH_BYTES && !batch.is_empty() {
                break;
            }
            batch.extend(waiting.pop_front());
        }
        batch
    }

    /// Sends a batch until its outcome is known or the first of its records is over; gives back what was not sent
    /// because the batch has to be smaller.
    async fn deliver(&mut self, batch: Vec<Pending>) -> Vec<Pending> {
        let mut pause = BACKOFF.0;
        let mut is_uncertain = false;
        loop {
            let end = match self.attempt(&batch).await {
                Ok(base_offset) => {
                    self.acknowledge(batch, base_offset);
                    return Vec::new();
                }
                Err(Failure::TooLarge(_)) if batch.len() > 1 => {
                    self.most_records = batch.len() / 2;
                    return batch;
                }
                Err(Failure::TooLarge(why) | Failure::Final(why)) => {
                    is_uncertain = false;
                    NotWritten::Refused(why)
                }
                Err(Failure::Forgotten(why)) => {
                    self.identity = None;
                    NotWritten::Expired(why)
                }
                Err(Failure::Again { why, may_be_stored }) => {
                    is_uncertain |= may_be_stored;
                    self.since = Instant::now();
                    NotWritten::Expired(why)
                }
            };
            let is_over = batch.first().is_none_or(Pending::is_over);
            if is_over || matches!(end, NotWritten::Refused(_)) {
                if is_uncertain {
                    self.identity = None;
                }
                for pending in batch {
                    pending.end(Err(end.clone()));
                }
                return Vec::new();
            }
            tracing::debug!(topic = %self.directory.topic, partition = self.partition, reason = %end, "to be sent again");
            sleep(pause).await;
            pause = pause.saturating_mul(2).min(BACKOFF.1);
        }
    }

    fn acknowledge(&mut self, batch: Vec<Pending>, base_offset: Option<i64>) {
        let records = i32::try_from(batch.len()).unwrap_or(i32::MAX);
        if let Some(identity) = &mut self.identity {
            identity.advance(records);
        }
        self.most_records = self.most_records.saturating_mul(2).min(BATCH_RECORDS);
        for (delta, pending) in (0..).zip(batch) {
            pending.end(Ok(Written {
                partition: self.partition,
                offset: base_offset.map(|base: i64| base.saturating_add(delta)),
            }));
        }
    }

    /// The offset of the batch's first record.
    async fn attempt(&mut self, batch: &[Pending]) -> Result<Option<i64>, Failure> {
        self.connect().await?;
        let identity = self.identify().await?;
        let records = batch.iter().map(|pending| &pending.record);
        let request = self.request(encode(records, identity, now_ms()));
        let Some(link) = &mut self.link else {
            return Err(again("no connection", false));
        };
        match link.call(&request, deadline_in(CALL)).await {
            Ok(response) => self.read(&response),
            Err(error) => {
                self.link = None;
                Err(again(error, true))
            }
        }
    }

    /// A link to the leader.
    async fn connect(&mut self) -> Result<(), Failure> {
        let leaders = match self.directory.leaders(self.since).await {
            Ok(leaders) => leaders,
            Err(NotFound::Yet(why)) => return Err(again(why, false)),
            Err(NotFound::Ever(why)) => return Err(Failure::Final(why)),
        };
        let Some(leader) = leaders.of(self.partition) else {
            let name = &self.directory.topic;
            return Err(again(
                format!("{name}-{}: no leader", self.partition),
                false,
            ));
        };
        if self.link.as_ref().is_none_or(|link| link.peer() != leader) {
            let deadline = deadline_in(CALL);
            let link = self.directory.shared.open(leader, deadline).await;
            self.link = Some(link.map_err(|error| again(error, false))?);
        }
        Ok(())
    }

    async fn identify(&mut self) -> Result<Identity, Failure> {
        if let Some(identity) = self.identity {
            return Ok(identity);
        }
        let Some(link) = &mut self.link else {
            return Err(again("no connection", false));
        };
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_transaction_timeout_ms(i32::MAX)
            .with_producer_id(ProducerId(NO_PRODUCER_ID))
            .with_producer_epoch(-1);
        let response = match link.call(&request, deadline_in(CALL)).await {
            Ok(response) => response,
            Err(error) => {
                self.link = None;
                return Err(again(error, false));
            }
        };
        match failure_name(response.error_code) {
            None => Ok(*self.identity.insert(Identity {
                producer_id: response.producer_id.0,
                producer_epoch: response.producer_epoch,
                sequence: 0,
            })),
            Some(error) if response.error_code == code::CLUSTER_AUTHORIZATION_FAILED => {
                Err(Failure::Final(format!(
                    "no producer id: {error}; is Write on {} missing?",
                    self.directory.topic
                )))
            }
            // A broker that has just started may not have any to give yet.
            Some(error) => Err(again(format!("no producer id: {error}"), false)),
        }
    }

    fn request(&self, records: bytes::Bytes) -> ProduceRequest {
        let data = PartitionProduceData::default()
            .with_index(self.partition)
            .with_records(Some(records));
        let topic = TopicProduceData::default()
            .with_name(TopicName(StrBytes::from_string(
                self.directory.topic.to_string(),
            )))
            .with_partition_data(vec![data]);
        ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(REPLICAS_MS)
            .with_topic_data(vec![topic])
    }

    fn read(&mut self, response: &ProduceResponse) -> Result<Option<i64>, Failure> {
        let found = response
            .responses
            .iter()
            .filter(|topic| topic.name.0.as_str() == &*self.directory.topic)
            .flat_map(|topic| &topic.partition_responses)
            .find(|response| response.index == self.partition);
        let Some(found) = found else {
            self.link = None;
            return Err(again("the response names another partition", true));
        };
        let Some(error) = failure_name(found.error_code) else {
            return Ok(Some(found.base_offset));
        };
        let words = found
            .error_message
            .as_ref()
            .map(|words| format!(": {words}"));
        let why = format!(
            "{}-{}: {error}{}",
            self.directory.topic,
            self.partition,
            words.unwrap_or_default()
        );
        match found.error_code {
            code::DUPLICATE_SEQUENCE_NUMBER => Ok(None),
            code::MESSAGE_TOO_LARGE | code::RECORD_LIST_TOO_LARGE => Err(Failure::TooLarge(why)),
            code::OUT_OF_ORDER_SEQUENCE_NUMBER
            | code::INVALID_PRODUCER_EPOCH
            | code::INVALID_PRODUCER_ID_MAPPING
            | code::UNKNOWN_PRODUCER_ID => Err(Failure::Forgotten(why)),
            code::REQUEST_TIMED_OUT | code::NOT_ENOUGH_REPLICAS_AFTER_APPEND => {
                Err(again(why, true))
            }
            error_code if code::is_retriable(error_code) => Err(again(why, false)),
            _ => Err(Failure::Final(why)),
        }
    }
}

fn again(why: impl ToString, may_be_stored: bool) -> Failure {
    Failure::Again {
        why: why.to_string(),
        may_be_stored,
    }
}

fn now_ms() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
