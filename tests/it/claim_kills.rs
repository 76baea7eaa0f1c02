//! kill -9 at each step of producing and consuming, on purpose: whoever is between two steps never leaves a ticket without
//! an object, and never a record skipped that is not in the fallback topic.
//!
//! What a step waits for is held back: by the store, which says nothing, or by a relay in front of a real broker. So the
//! process is killed exactly there, and nothing in it knows of the test. `CLAIM_KILLS=100` kills it a hundred times at
//! each step; `claim_produce` and `claim_consume` kill it at any moment.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{ApiKey, FetchRequest, FetchResponse};
use sizegate::batch::BatchHeader;

use crate::claim_consume::{
    Ask, Folder, batches, consume, fallen, open, sha256, value, with_fallback,
};
use crate::claim_store::{Fault, S3};
use crate::support::admin::init_producer_id;
use crate::support::relay::{Moment, Relay, Sender};
use crate::support::{
    Connection, Kafka, Part, Record, Sizegate, Topic, batch, eventually, number_from,
};

const SECRET: &str = "a secret of thirty-two bytes, yes";
const PATIENCE: Duration = Duration::from_secs(120);

/// Kills at each step.
fn rounds() -> u64 {
    number_from("CLAIM_KILLS", 2)
}

fn kill(mut sizegate: Sizegate) {
    sizegate.process().signal("KILL");
    sizegate.process().wait(PATIENCE);
}

/// A step of producing a batch with two values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Producing {
    /// The store has both objects, and has not said so.
    ObjectWritten,
    /// It has said so, and the ticket is not on its way: the batch's other object is not written.
    ObjectAcknowledged,
    /// The request is on its way, and no broker has it.
    TicketsSent,
    /// The broker has it, and its response is on its way.
    TicketsTaken,
}

impl Producing {
    /// Objects of the batch, and batches on the broker, when the process is killed there.
    const fn leaves(self) -> (usize, i64) {
        match self {
            Self::ObjectAcknowledged => (1, 0),
            Self::ObjectWritten | Self::TicketsSent => (2, 0),
            Self::TicketsTaken => (2, 1),
        }
    }
}

struct Producer {
    kafka: &'static Kafka,
    relay: Relay,
    s3: S3,
    topic: Topic,
    /// Values on the topic, in order.
    sent: Vec<Vec<u8>>,
}

impl Producer {
    fn start(&self) -> Sizegate {
        let yaml = format!(
            "claim_check:\n{}  keys: [{{id: k1, secret: '{SECRET}'}}]\nrules:\n- name: large\n  topics: ['claims*']\n  \
             limits: {{record_bytes: 64KiB}}\n  action: offload\n",
            self.s3.yaml()
        );
        Sizegate::before(&self.relay.bootstrap())
            .yaml(&yaml)
            .start()
    }

    fn end(&self) -> i64 {
        self.kafka.latest_offset(&self.topic.name, 0)
    }

    /// Sends a batch, and waits until the process stands at the step.
    fn stop_at(&self, step: Producing, sizegate: &Sizegate, sent: &Part) {
        let before = self.s3.objects();
        let labels = [("operation", "put"), ("outcome", "created")];
        let acknowledged = || {
            let metrics = sizegate.metrics();
            metrics.sum("claim_store_requests_total", &labels)
        };
        let acknowledged_before = acknowledged();
        let produce = |moment| (Sender::Session, ApiKey::Produce, moment);
        match step {
            Producing::ObjectWritten => self.s3.always("PUT", Some(Fault::DoneAndSilence)),
            Producing::ObjectAcknowledged => {
                // However often it is tried.
                self.s3.always("PUT", Some(Fault::Silence));
                self.s3.script("PUT", [Fault::Sound]);
            }
            Producing::TicketsSent => self.relay.arm(produce(Moment::Request)),
            Producing::TicketsTaken => self.relay.arm(produce(Moment::Response)),
        }
        let mut connection = Connection::open(sizegate.bootstrap());
        connection.send_produce(9, -1, std::slice::from_ref(sent));
        match step {
            Producing::ObjectWritten | Producing::ObjectAcknowledged => {
                let created = if step == Producing::ObjectWritten {
                    0.0
                } else {
                    1.0
                };
                eventually(PATIENCE, "so many objects are there", || {
                    let there = self.s3.objects() - before;
                    let acknowledged = acknowledged() - acknowledged_before;
                    (there == step.leaves().0 && acknowledged == created).then_some(())
                });
            }
            Producing::TicketsSent | Producing::TicketsTaken => self.relay.wait(PATIENCE),
        }
        assert_eq!(self.s3.objects() - before, step.leaves().0, "{step:?}");
    }
}

fn killed_while_producing(step: Producing) {
    let kafka = Kafka::shared("4.4.0");
    let mut producer = Producer {
        kafka,
        relay: Relay::before(&kafka.bootstrap()),
        s3: S3::start(),
        topic: kafka.topic("claims", 1, &[]),
        sent: Vec::new(),
    };
    // What the process before was killed with is sent again first, as its client would.
    let mut again: Option<Part> = None;
    for round in 0..=rounds() {
        let sizegate = producer.start();
        if let Some(sent) = again.take() {
            let before = producer.s3.objects();
            let mut connection = Connection::open(sizegate.bootstrap());
            let response = connection.produce(9, -1, &[sent]);
            assert_eq!(response[0].code, 0, "{:?}", response[0].text);
            // It found what was there, and is on the broker once.
            assert_eq!(producer.s3.objects() - before, 2 - step.leaves().0);
            assert_eq!(producer.end(), producer.sent.len() as i64);
        }
        if round == rounds() {
            // Every ticket has its object: all of it is read.
            let (mut next, mut seen) = (0, BTreeMap::new());
            let mut connection = Connection::open(sizegate.bootstrap());
            eventually(PATIENCE, "all of it is read", || {
                next = consume(&mut connection, &producer.topic, next, 1, &mut seen)?;
                (next == producer.sent.len() as i64).then_some(())
            });
            let seen: Vec<String> = seen.into_values().collect();
            let sent: Vec<String> = producer.sent.iter().map(|value| sha256(value)).collect();
            assert_eq!(seen, sent);
            return;
        }
        let values = [value(70_000, 10 * round), value(70_000, 10 * round + 1)];
        let (id, epoch) = init_producer_id(&kafka.bootstrap());
        let records = values.clone().map(Record::value);
        let sent = batch(records).producer(id, epoch, 0).build();
        let sent = Part::new(&producer.topic, sent);
        let before = producer.end();
        producer.stop_at(step, &sizegate, &sent);
        kill(sizegate);
        producer.s3.always("PUT", None);
        assert_eq!(producer.end() - before, 2 * step.leaves().1, "{step:?}");
        producer.sent.extend(values);
        again = Some(sent);
    }
}

#[test]
fn killed_when_the_store_has_an_object_and_has_not_said_so() {
    killed_while_producing(Producing::ObjectWritten);
}

#[test]
fn killed_when_an_object_is_acknowledged_and_no_ticket_is_sent() {
    killed_while_producing(Producing::ObjectAcknowledged);
}

#[test]
fn killed_when_tickets_are_sent_and_no_broker_has_them() {
    killed_while_producing(Producing::TicketsSent);
}

#[test]
fn killed_when_a_broker_has_the_tickets_and_nobody_was_told() {
    killed_while_producing(Producing::TicketsTaken);
}

/// A step of reading past a record whose object is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consuming {
    /// Its object is known to be lost; what lies in the fallback topic is about to be read.
    Lost,
    /// Its fallback record is on its way, and no broker has it.
    FallbackSent,
    /// The broker has it, and its response is on its way.
    FallbackTaken,
    /// It is acknowledged, and its consumer has no response.
    FallbackAcknowledged,
}

impl Consuming {
    /// Fallback records of the record when the process is killed there.
    const fn leaves(self) -> usize {
        match self {
            Self::Lost | Self::FallbackSent => 0,
            Self::FallbackTaken | Self::FallbackAcknowledged => 1,
        }
    }

    const fn held_back(self) -> Option<(Sender, ApiKey, Moment)> {
        let (key, moment) = match self {
            // Only who reads what lies there asks for offsets.
            Self::Lost => (ApiKey::ListOffsets, Moment::Request),
            Self::FallbackSent => (ApiKey::Produce, Moment::Request),
            Self::FallbackTaken => (ApiKey::Produce, Moment::Response),
            Self::FallbackAcknowledged => return None,
        };
        Some((Sender::ControlPlane, key, moment))
    }
}

/// A consumer that asks for so little that it is given one batch at a time.
fn one_batch(topic: &Topic, offset: i64) -> FetchRequest {
    let mut request = Ask::at(12, offset).request(topic);
    request.topics[0].partitions[0].partition_max_bytes = 1;
    request
}

fn is_empty(response: &FetchResponse) -> bool {
    let partition = &response.responses[0].partitions[0];
    assert_eq!(partition.error_code, 0);
    partition.records.as_ref().is_none_or(Bytes::is_empty)
}

/// Every other value is lost; each is in a batch of its own.
struct Consumer {
    kafka: &'static Kafka,
    relay: Relay,
    folder: Folder,
    topic: Topic,
    /// Where it is.
    next: i64,
    seen: BTreeMap<i64, String>,
}

impl Consumer {
    fn start(&self) -> Sizegate {
        Sizegate::before(&self.relay.bootstrap())
            .yaml(&self.folder.yaml("  grace: 10ms\n"))
            .start()
    }

    /// Reads up to this offset.
    fn read_to(&mut self, sizegate: &Sizegate, to: i64) {
        let mut connection = Connection::open(sizegate.bootstrap());
        eventually(PATIENCE, "it goes on", || {
            if self.next >= to {
                return Some(());
            }
            let response = connection.ask(&one_batch(&self.topic, self.next), 12);
            let partition = &response.responses[0].partitions[0];
            assert_eq!(partition.error_code, 0);
            for bytes in batches(&partition.records.clone().unwrap_or_default()) {
                let header = BatchHeader::read(&bytes).unwrap();
                // A batch of which all is left out has none.
                if header.records_count > 0 {
                    let batch = open(&bytes);
                    for (_, parts) in batch.parts() {
                        let value = &batch.records()[parts.value.unwrap()];
                        self.seen.insert(header.base_offset, sha256(value));
                    }
                }
                self.next = header.base_offset + 1;
            }
            None
        });
    }

    /// Fallback records of the record at this offset.
    fn fallen(&self, offset: i64) -> usize {
        let fallen = fallen(self.kafka, &self.topic).into_iter();
        fallen.filter(|of| of.at.2 == offset).count()
    }
}

fn killed_while_consuming(step: Consuming) {
    let kafka = Kafka::shared("4.4.0");
    let mut consumer = Consumer {
        kafka,
        relay: Relay::before(&kafka.bootstrap()),
        folder: Folder::new(),
        topic: with_fallback(kafka, &[]),
        next: 0,
        seen: BTreeMap::new(),
    };
    let pairs = match step {
        // The same record again and again: a process asks once what lies in the fallback topic.
        Consuming::Lost => 1,
        _ => rounds(),
    };
    let values: Vec<Vec<u8>> = (0..2 * pairs).map(|n| value(70_000, 900 + n)).collect();
    let sizegate = consumer.start();
    let mut connection = Connection::open(sizegate.bootstrap());
    for (n, value) in values.iter().enumerate() {
        let record = Record::value(value.clone()).key(format!("k{n}"));
        let sent = [Part::new(&consumer.topic, batch([record]).build())];
        assert_eq!(connection.produce(9, -1, &sent)[0].code, 0);
    }
    for lost in values.iter().step_by(2) {
        fs::remove_file(consumer.folder.object_of(lost)).unwrap();
    }
    drop((connection, sizegate));

    for round in 0..rounds() {
        let sizegate = consumer.start();
        let at = match step {
            Consuming::Lost => 0,
            _ => 2 * i64::try_from(round).unwrap(),
        };
        // Past what the process before was killed at.
        consumer.read_to(&sizegate, at);
        if let Some(held_back) = step.held_back() {
            consumer.relay.arm(held_back);
        }
        let request = one_batch(&consumer.topic, at);
        let mut connection = Connection::open(sizegate.bootstrap());
        std::thread::scope(|scope| {
            // On a busy machine a response may leave with nothing, before anything is known.
            let asking = scope.spawn(move || {
                loop {
                    connection.send(&request, 12);
                    match connection.try_receive::<FetchResponse>(12) {
                        Ok((_, response)) if is_empty(&response) => {}
                        Ok(_) => return true,
                        Err(_) => return false,
                    }
                }
            });
            if step == Consuming::FallbackAcknowledged {
                // What the process before wrote is not counted again.
                let labels = [("topic", consumer.topic.name.as_str())];
                eventually(PATIENCE, "it is acknowledged", || {
                    let metrics = sizegate.metrics();
                    let written = metrics.sum("claim_fallback_records_total", &labels);
                    (written == 1.0).then_some(())
                });
            } else {
                consumer.relay.wait(PATIENCE);
            }
            kill(sizegate);
            let went_past = asking.join().unwrap();
            // What goes past it leaves when it is acknowledged, and not before.
            assert!(
                !went_past || step == Consuming::FallbackAcknowledged,
                "{step:?}"
            );
        });
        assert_eq!(consumer.fallen(at), step.leaves(), "{step:?}, {round}");
    }
    let sizegate = consumer.start();
    let end = i64::try_from(values.len()).unwrap();
    consumer.read_to(&sizegate, end);
    // Each lost record is in the fallback topic: once, as the next process reads what lies there.
    let lost = (0..end).step_by(2);
    let fallen: Vec<usize> = lost.map(|offset| consumer.fallen(offset)).collect();
    assert!(
        fallen.iter().all(|count| *count == 1),
        "{step:?}: {fallen:?}"
    );
    let kept = values.iter().zip(0..).skip(1).step_by(2);
    let kept: BTreeMap<i64, String> = kept.map(|(value, n)| (n, sha256(value))).collect();
    assert_eq!(consumer.seen, kept, "{step:?}");
}

#[test]
fn killed_when_a_value_is_lost_and_nothing_is_written_of_it() {
    killed_while_consuming(Consuming::Lost);
}

#[test]
fn killed_when_a_fallback_record_is_sent_and_no_broker_has_it() {
    killed_while_consuming(Consuming::FallbackSent);
}

#[test]
fn killed_when_a_broker_has_the_fallback_record_and_nobody_was_told() {
    killed_while_consuming(Consuming::FallbackTaken);
}

#[test]
fn killed_when_a_fallback_record_is_acknowledged_and_no_consumer_was_told() {
    killed_while_consuming(Consuming::FallbackAcknowledged);
}
