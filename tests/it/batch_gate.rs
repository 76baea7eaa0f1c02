//! The batch gate in front of real brokers: what is refused, with which words, and that nothing else is touched.

use std::time::Duration;

use crate::support::admin::{fetch_stored, init_producer_id};
use crate::support::client::{answers, produce_request, text};
use crate::support::{
    Answer, Connection, KAFKA_VERSIONS, Kafka, Part, Record, Sizegate, Topic, batch,
    batch_of_bytes, eventually, unique,
};
use bytes::Bytes;
use kafka_protocol::messages::add_partitions_to_txn_request::AddPartitionsToTxnTopic;
use kafka_protocol::messages::{
    AddPartitionsToTxnRequest, EndTxnRequest, FindCoordinatorRequest, InitProducerIdRequest,
    ProduceResponse, TopicName, TransactionalId,
};
use sizegate::policy::Codec;

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);
const LIMIT: usize = 3_000;
const VERSIONS: std::ops::RangeInclusive<i16> = 3..=13;

fn codes(answers: &[Answer]) -> Vec<i16> {
    answers.iter().map(|answer| answer.code).collect()
}

/// One batch of so many bytes for partition 0.
fn produce(connection: &mut Connection, version: i16, topic: &Topic, bytes: usize) -> Answer {
    connection
        .produce(
            version,
            -1,
            &[Part::new(topic, batch_of_bytes(bytes).build())],
        )
        .remove(0)
}

/// What a broker stores of a batch: all of it, but for the base offset and the leader epoch, which are its own.
fn as_stored(batch: &[u8]) -> Vec<u8> {
    let mut batch = batch.to_vec();
    batch[..8].fill(0);
    batch[12..16].fill(0);
    batch
}

/// The batches stored in a partition, one by one.
fn stored_batches(kafka: &Kafka, topic: &Topic, partition: i32) -> Vec<Vec<u8>> {
    let all = fetch_stored(&kafka.bootstrap(), &topic.name, partition, 50_000_000);
    let mut rest = &all[..];
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let length = i32::from_be_bytes(rest[8..12].try_into().unwrap()) as usize + 12;
        let (batch, behind) = rest.split_at(length);
        batches.push(as_stored(batch));
        rest = behind;
    }
    batches
}

#[test]
fn a_batch_one_byte_over_is_refused_and_its_neighbours_are_stored_byte_for_byte() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let yaml = format!(
            "rules: [{{name: small, topics: ['gate-*'], limits: {{batch_bytes: {LIMIT}}}}}]"
        );
        let sizegate = Sizegate::start(kafka, &yaml);
        let keep = [("retention.ms", "-1")];
        let (gated, free) = (kafka.topic("gate", 4, &keep), kafka.topic("free", 2, &keep));
        let mut expected: Vec<Vec<Vec<u8>>> = vec![Vec::new(); 3];
        for version in VERSIONS {
            for acks in [-1, 1, 0] {
                let compressed =
                    batch((0..20).map(|n| Record::of_random(100, n).key("k").header("h", "v")))
                        .codec(Codec::Lz4);
                let sent = [
                    Part::at(&gated, 0, batch_of_bytes(LIMIT - 1).build()),
                    Part::at(&gated, 1, batch_of_bytes(LIMIT + 1).build()),
                    Part::at(&gated, 2, batch_of_bytes(LIMIT).build()),
                    Part::at(&free, 1, compressed.build()),
                    Part::at(&gated, 3, batch_of_bytes(10 * LIMIT).build()),
                ];
                for (stored, part) in expected.iter_mut().zip([0, 2, 3]) {
                    stored.push(as_stored(sent[part].records.as_ref().unwrap()));
                }
                let mut connection = Connection::open(sizegate.bootstrap());
                if acks == 0 {
                    connection.send_produce(version, acks, &sent);
                    assert!(
                        connection.is_closed_within(PATIENCE),
                        "v{version}: closing is the only answer"
                    );
                    continue;
                }
                let answers = connection.produce(version, acks, &sent);
                let of = |topic: &Topic, partition: i32| {
                    let is = |answer: &&Answer| {
                        answer.topic == topic.name || answer.topic == topic.id.to_string()
                    };
                    answers
                        .iter()
                        .filter(is)
                        .find(|answer| answer.partition == partition)
                        .unwrap()
                };
                assert_eq!(answers.len(), 5, "v{version}: {answers:?}");
                for (topic, partition) in [(&gated, 0), (&gated, 2), (&free, 1)] {
                    assert_eq!(
                        (of(topic, partition).code, &of(topic, partition).text),
                        (0, &None),
                        "v{version}"
                    );
                }
                for (partition, bytes) in [(1, LIMIT + 1), (3, 10 * LIMIT)] {
                    let refused = of(&gated, partition);
                    assert_eq!((refused.code, refused.base_offset), (10, -1), "v{version}");
                    assert!(refused.record_errors.is_empty(), "v{version}");
                    if version >= 8 {
                        assert_text(refused.text.as_ref().unwrap(), &gated, partition, bytes);
                    }
                }
                // The connection lives.
                assert_eq!(
                    produce(&mut connection, version, &gated, LIMIT + 1).code,
                    10
                );
            }
        }
        for (stored, (topic, partition)) in
            expected.iter().zip([(&gated, 0), (&gated, 2), (&free, 1)])
        {
            assert!(
                stored_batches(kafka, topic, partition) == *stored,
                "{}-{partition}",
                topic.name
            );
        }
        for partition in [1, 3] {
            assert_eq!(
                kafka.latest_offset(&gated.name, partition),
                0,
                "nothing of what was refused is stored"
            );
        }
    }
}

fn assert_text(text: &str, topic: &Topic, partition: i32, bytes: usize) {
    let name = &topic.name;
    assert!(
        text.starts_with(&format!("sizegate refused {name}-{partition}: ")),
        "{text}"
    );
    assert!(text.len() <= 1_024, "{} bytes: {text}", text.len());
    let tail = format!(
        "[gate=batch size_bytes={bytes} limit_bytes={LIMIT} source=rule rule=small topic={name} partition={partition} batch_bytes={bytes}"
    );
    assert!(text.contains(&tail), "{text}");
    assert!(text.contains("codec=none records=1"), "{text}");
}

#[test]
fn the_first_rule_that_matches_speaks_whatever_kind_of_pattern_it_is() {
    let kafka = Kafka::shared("4.4.0");
    let exact = kafka.topic("orders", 1, &[]);
    let topics = ["orders", "orders.eu", "invoices", "other"].map(|stem| kafka.topic(stem, 1, &[]));
    let yaml = format!(
        "limits: {{batch_bytes: 5000}}\nrules:\n\
         - {{name: exact, topics: ['{}'], limits: {{batch_bytes: 1000}}}}\n\
         - {{name: regex, topics: ['/orders\\.[a-z]+-[0-9a-f]+/'], limits: {{batch_bytes: 2000}}}}\n\
         - {{name: glob, topics: ['orders*', 'invoices-*'], limits: {{batch_bytes: 3000}}}}\n\
         - {{name: late, topics: ['{}', '/.*voices.*/'], limits: {{batch_bytes: 100}}}}\n",
        exact.name, topics[0].name,
    );
    let sizegate = Sizegate::start(kafka, &yaml);
    let mut connection = Connection::open(sizegate.bootstrap());
    let expected = [
        (&exact, 1_000, "rule=exact"),
        (&topics[0], 3_000, "rule=glob"),
        (&topics[1], 2_000, "rule=regex"),
        (&topics[2], 3_000, "rule=glob"),
        (&topics[3], 5_000, "rule=limits"),
    ];
    for (topic, limit, rule) in expected {
        for version in [8, 13] {
            assert_eq!(
                produce(&mut connection, version, topic, limit).code,
                0,
                "{}",
                topic.name
            );
            let refused = produce(&mut connection, version, topic, limit + 1);
            assert_eq!(refused.code, 10, "{}", topic.name);
            let text = refused.text.unwrap();
            assert!(
                text.contains(rule) && text.contains(&format!("limit_bytes={limit} ")),
                "{text}"
            );
        }
    }
}

#[test]
fn without_a_limit_the_broker_judges_and_its_refusal_is_explained() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(kafka, "limits: {batch_bytes: none}");
        let topic = kafka.topic("none", 1, &[("max.message.bytes", "3000")]);
        let mut connection = Connection::open(sizegate.bootstrap());
        for version in VERSIONS {
            assert_eq!(produce(&mut connection, version, &topic, LIMIT).code, 0);
            let refused = produce(&mut connection, version, &topic, LIMIT + 1);
            assert_eq!(refused.code, 10);
            if version >= 8 {
                let text = refused.text.unwrap();
                assert!(
                    text.starts_with("sizegate let ") && text.contains("refused_by=broker code=10"),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn observing_refuses_nothing_and_counts_what_would_be_refused() {
    let kafka = Kafka::shared("4.4.0");
    let rules = "rules:\n- {name: watched, topics: ['watched-*'], limits: {batch_bytes: 3000}, action: observe}\n\
                 - {name: strict, topics: ['strict-*'], limits: {batch_bytes: 3000}}\n";
    let by_action = Sizegate::start(kafka, rules);
    let by_mode = Sizegate::start(kafka, &format!("mode: observe\n{rules}"));
    let (watched, strict) = (
        kafka.topic("watched", 1, &[]),
        kafka.topic("strict", 1, &[]),
    );
    for version in VERSIONS {
        let mut connection = Connection::open(by_action.bootstrap());
        assert_eq!(
            produce(&mut connection, version, &watched, LIMIT + 1).code,
            0
        );
        assert_eq!(
            produce(&mut connection, version, &strict, LIMIT + 1).code,
            10
        );
        let mut connection = Connection::open(by_mode.bootstrap());
        assert_eq!(
            produce(&mut connection, version, &watched, LIMIT + 1).code,
            0
        );
        assert_eq!(
            produce(&mut connection, version, &strict, LIMIT + 1).code,
            0
        );
        connection.send_produce(
            version,
            0,
            &[Part::new(&strict, batch_of_bytes(LIMIT + 1).build())],
        );
        assert_eq!(
            produce(&mut connection, version, &strict, 100).code,
            0,
            "acks 0 does not close either"
        );
    }
    let all = VERSIONS.count() as f64;
    let count = |sizegate: &Sizegate, topic: &Topic, verdict: &str| {
        sizegate.metrics().sum(
            "produce_batches_total",
            &[("topic", &topic.name), ("verdict", verdict)],
        )
    };
    assert_eq!(count(&by_action, &watched, "observed"), all);
    assert_eq!(count(&by_action, &strict, "refused"), all);
    assert_eq!(count(&by_mode, &watched, "observed"), all);
    assert_eq!(
        (
            count(&by_mode, &strict, "observed"),
            count(&by_mode, &strict, "refused")
        ),
        (2.0 * all, 0.0)
    );
    let labels = [
        ("topic", strict.name.as_str()),
        ("gate", "batch"),
        ("source", "rule"),
        ("action", "observe"),
    ];
    assert_eq!(
        by_mode.metrics().sum("violations_total", &labels),
        2.0 * all
    );
    // Another limit than the proxy's: the broker's own still holds.
    let mut connection = Connection::open(by_mode.bootstrap());
    assert_eq!(produce(&mut connection, 9, &strict, 1_100_000).code, 10);
}

#[test]
fn a_rule_chooses_its_error_code_and_its_remedy() {
    let kafka = Kafka::shared("4.4.0");
    let cases = [
        ("auto", 10, vec![]),
        ("MESSAGE_TOO_LARGE", 10, vec![]),
        ("POLICY_VIOLATION", 44, vec![]),
        ("INVALID_RECORD", 87, vec![0]),
    ];
    let rule = |(n, (code, ..)): (usize, &(&str, i16, Vec<i32>))| {
        format!(
            "- {{name: r{n}, topics: ['r{n}-*'], limits: {{batch_bytes: 3000}}, error_code: {code}, remedy: 'See https://wiki.example/{n}'}}\n"
        )
    };
    let rules: String = cases.iter().enumerate().map(rule).collect();
    let sizegate = Sizegate::start(kafka, &format!("rules:\n{rules}"));
    for (n, (name, code, flagged)) in cases.iter().enumerate() {
        let topic = kafka.topic(&format!("r{n}"), 1, &[]);
        for version in VERSIONS {
            let mut connection = Connection::open(sizegate.bootstrap());
            let refused = produce(&mut connection, version, &topic, LIMIT + 1);
            assert_eq!(refused.code, *code, "{name} v{version}");
            if version >= 8 {
                let indexes: Vec<i32> = refused
                    .record_errors
                    .iter()
                    .map(|(index, _)| *index)
                    .collect();
                assert_eq!(indexes, *flagged, "{name} v{version}");
                let text = refused.text.unwrap();
                assert!(
                    text.contains(&format!(" See https://wiki.example/{n} [gate=batch ")),
                    "{text}"
                );
            }
        }
        assert_eq!(kafka.latest_offset(&topic.name, 0), 0);
    }
}

#[test]
fn a_refusal_leaves_the_sequence_of_an_idempotent_producer_as_a_brokers_own_refusal_does() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(
            kafka,
            "rules: [{name: small, topics: ['seq-*'], limits: {batch_bytes: 3000}}]",
        );
        for version in VERSIONS {
            let run = |address: String, topic: &Topic| {
                let (id, epoch) = init_producer_id(&kafka.bootstrap());
                let mut connection = Connection::open(address);
                let part = |sequence: i32, bytes: usize| {
                    [Part::new(
                        topic,
                        batch_of_bytes(bytes).producer(id, epoch, sequence).build(),
                    )]
                };
                // In turn: the refused one's number is free again. Pipelined: the next one finds a gap.
                let mut seen: Vec<i16> = [
                    (0, 500),
                    (1, LIMIT + 1),
                    (1, 500),
                    (1, 500),
                    (2, LIMIT + 1),
                    (2, LIMIT),
                ]
                .into_iter()
                .map(|(sequence, bytes)| {
                    connection.produce(version, -1, &part(sequence, bytes))[0].code
                })
                .collect();
                for (sequence, bytes) in [(3, 500), (4, LIMIT + 1), (5, 500), (4, 500)] {
                    connection.send_produce(version, -1, &part(sequence, bytes));
                }
                seen.extend((0..4).map(|_| connection.receive_produce(version).unwrap().1[0].code));
                seen
            };
            let direct = run(
                kafka.bootstrap(),
                &kafka.topic("own", 1, &[("max.message.bytes", "3000")]),
            );
            let proxied = run(sizegate.bootstrap(), &kafka.topic("seq", 1, &[]));
            assert_eq!(direct, proxied, "v{version}");
            assert_eq!(direct, [0, 10, 0, 0, 10, 0, 0, 10, 45, 0], "v{version}");
        }
    }
}

#[test]
fn what_a_broker_ignores_behind_a_batch_hides_the_batch_from_no_rule() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(
            kafka,
            "rules: [{name: small, topics: ['hidden-*'], limits: {batch_bytes: 3000}}]",
        );
        let topic = kafka.topic("hidden", 1, &[]);
        let another = batch_of_bytes(500).build();
        for behind in [1, 16, 17, 30, 61, 499] {
            let records =
                Bytes::from([&batch_of_bytes(LIMIT + 1).build()[..], &another[..behind]].concat());
            let sent = [Part::new(&topic, records)];
            assert_eq!(
                Connection::open(kafka.bootstrap()).produce(9, -1, &sent)[0].code,
                0,
                "{behind}: the broker alone"
            );
            assert_eq!(
                Connection::open(sizegate.bootstrap()).produce(9, -1, &sent)[0].code,
                10,
                "{behind}"
            );
        }
        // A whole second batch is the broker's to refuse.
        let two = Bytes::from([batch_of_bytes(LIMIT + 1).build(), another].concat());
        assert_eq!(
            Connection::open(sizegate.bootstrap()).produce(9, -1, &[Part::new(&topic, two)])[0]
                .code,
            87
        );
    }
}

#[test]
fn the_same_batch_for_the_third_time_is_a_loop_and_three_different_ones_are_not() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(
        kafka,
        "rules: [{name: small, topics: ['loop-*'], limits: {batch_bytes: 3000}}]",
    );
    let topic = kafka.topic("loop", 1, &[]);
    let (id, epoch) = init_producer_id(&kafka.bootstrap());
    for producer in [(id, epoch, 0), (-1, -1, -1)] {
        let of = |seed: u64| {
            batch([Record::of_random(4_000, seed)])
                .producer(producer.0, producer.1, producer.2)
                .build()
        };
        let mut connection = Connection::open(sizegate.bootstrap());
        let mut refuse =
            |seed: u64| connection.produce(9, -1, &[Part::new(&topic, of(seed))])[0].code;
        // A refused batch's sequence number is the next one's.
        assert_eq!([1, 2, 3, 4, 5].map(&mut refuse), [10; 5], "{producer:?}");
        assert_eq!([5, 5].map(&mut refuse), [10, 87], "{producer:?}");
    }
}

#[test]
fn a_transaction_with_a_refusal_is_aborted_and_the_next_one_commits() {
    for kafka in KAFKA_VERSIONS.map(Kafka::shared) {
        let sizegate = Sizegate::start(
            kafka,
            "rules: [{name: small, topics: ['tx-*'], limits: {batch_bytes: 3000}}]",
        );
        for version in VERSIONS {
            let topic = kafka.topic("tx", 1, &[]);
            let mut transactions = Transactions::begin(&sizegate, version, topic);
            assert_eq!(transactions.produce(500).code, 0, "v{version}");
            let refused = transactions.produce(LIMIT + 1);
            assert_eq!(refused.code, 10, "v{version}: {refused:?}");
            assert_eq!(transactions.end(false), 0, "v{version}: abort");
            assert_eq!(transactions.produce(LIMIT).code, 0, "v{version}");
            assert_eq!(transactions.end(true), 0, "v{version}: commit");
            // Two batches, and the marker of each transaction.
            let latest = eventually(PATIENCE, "both markers", || {
                Some(kafka.latest_offset(&transactions.topic.name, 0)).filter(|offset| *offset >= 4)
            });
            assert_eq!(latest, 4, "v{version}");
        }
    }
}

/// The coordinator still writes the markers of the transaction before: to be asked again.
const CONCURRENT_TRANSACTIONS: i16 = 51;

/// A transactional producer by hand, all of it through the proxy.
struct Transactions {
    connection: Connection,
    id: String,
    version: i16,
    topic: Topic,
    producer: (i64, i16),
    sequence: i32,
    is_begun: bool,
}

impl Transactions {
    fn begin(sizegate: &Sizegate, version: i16, topic: Topic) -> Self {
        let mut connection = Connection::open(sizegate.bootstrap());
        let id = unique("tx");
        let producer = eventually(PATIENCE, "a transactional producer id", || {
            // Makes the broker create the topic in which transactions are kept.
            connection.ask(
                &FindCoordinatorRequest::default()
                    .with_key_type(1)
                    .with_coordinator_keys(vec![text(&id)]),
                4,
            );
            let request = InitProducerIdRequest::default()
                .with_transactional_id(Some(TransactionalId(text(&id))))
                .with_transaction_timeout_ms(60_000);
            let answer = connection.ask(&request, if version >= 12 { 5 } else { 4 });
            (answer.error_code == 0).then_some((answer.producer_id.0, answer.producer_epoch))
        });
        Self {
            connection,
            id,
            version,
            topic,
            producer,
            sequence: 0,
            is_begun: false,
        }
    }

    fn produce(&mut self, bytes: usize) -> Answer {
        // From Produce 12 on the broker adds the partition itself.
        if !self.is_begun && self.version < 12 {
            let entry = AddPartitionsToTxnTopic::default()
                .with_name(TopicName(text(&self.topic.name)))
                .with_partitions(vec![0]);
            let request = AddPartitionsToTxnRequest::default()
                .with_v3_and_below_transactional_id(TransactionalId(text(&self.id)))
                .with_v3_and_below_producer_id(self.producer.0.into())
                .with_v3_and_below_producer_epoch(self.producer.1)
                .with_v3_and_below_topics(vec![entry]);
            eventually(PATIENCE, "the partition in the transaction", || {
                let answer = self.connection.ask(&request, 3);
                (answer.results_by_topic_v3_and_below[0].results_by_partition[0]
                    .partition_error_code
                    == 0)
                    .then_some(())
            });
        }
        self.is_begun = true;
        let records: Bytes = batch_of_bytes(bytes)
            .transactional()
            .producer(self.producer.0, self.producer.1, self.sequence)
            .build();
        let request = produce_request(Some(&self.id), -1, &[Part::new(&self.topic, records)]);
        let answer = eventually(PATIENCE, "the markers of the last transaction", || {
            let response: ProduceResponse = self.connection.ask(&request, self.version);
            let answer = answers(&response, self.version).remove(0);
            (answer.code != CONCURRENT_TRANSACTIONS).then_some(answer)
        });
        if answer.code == 0 {
            self.sequence += 1;
        }
        answer
    }

    fn end(&mut self, is_commit: bool) -> i16 {
        let request = EndTxnRequest::default()
            .with_transactional_id(TransactionalId(text(&self.id)))
            .with_producer_id(self.producer.0.into())
            .with_producer_epoch(self.producer.1)
            .with_committed(is_commit);
        let version = if self.version >= 12 { 5 } else { 4 };
        let answer = eventually(PATIENCE, "the markers of the last transaction", || {
            let answer = self.connection.ask(&request, version);
            (answer.error_code != CONCURRENT_TRANSACTIONS).then_some(answer)
        });
        if answer.error_code == 0 && self.version >= 12 {
            // Every transaction has an epoch of its own.
            self.producer = (answer.producer_id.0, answer.producer_epoch);
            self.sequence = 0;
        }
        self.is_begun = false;
        answer.error_code
    }
}

#[test]
fn every_refused_topic_is_answered_once_however_many_there_are() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::start(
        kafka,
        "rules: [{name: small, topics: ['many-*'], limits: {batch_bytes: 3000}}]",
    );
    let topics: Vec<Topic> = (0..12).map(|_| kafka.topic("many", 3, &[])).collect();
    for version in [3, 8, 12, 13] {
        let of = |n: usize| {
            if n.is_multiple_of(3) {
                LIMIT
            } else {
                LIMIT + n
            }
        };
        let part = |n: usize| {
            Part::at(
                &topics[n % 12],
                (n / 12) as i32,
                batch_of_bytes(of(n)).build(),
            )
        };
        let sent: Vec<Part> = (0..36).map(part).collect();
        let mut connection = Connection::open(sizegate.bootstrap());
        let answers = connection.produce(version, -1, &sent);
        assert_eq!(answers.len(), 36, "v{version}");
        assert_eq!(
            codes(&answers).iter().filter(|code| **code == 0).count(),
            12,
            "v{version}"
        );
        for n in 0..36 {
            let name = if version >= 13 {
                topics[n % 12].id.to_string()
            } else {
                topics[n % 12].name.clone()
            };
            let mut mine = answers
                .iter()
                .filter(|answer| answer.topic == name && answer.partition == (n / 12) as i32);
            let code = mine.next().map(|answer| answer.code);
            assert_eq!(
                (code, mine.next()),
                (Some(if n.is_multiple_of(3) { 0 } else { 10 }), None),
                "v{version} {n}"
            );
        }
    }
}
