//! What passes before it is whole, or without being read: a Produce whose verdict its heads decide, and the records of
//! responses. Every byte arrives, nothing that a rule forbids is begun, and no memory is taken for it.

mod hostile;

use std::net::Shutdown;
use std::time::Duration;

use crate::support::client::{frame, produce_request, text};
use crate::support::scripted::{Broker, Request, Step};
use crate::support::{
    Connection, ErrorKind, Inside, Part, Record, Topic, batch, batch_of_bytes, eventually,
};
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{ApiKey, BrokerId, FetchRequest, FetchResponse, TopicName};
use sizegate::vocabulary::Codec;
use tokio_util::sync::CancellationToken;

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for the proxy to do the wrong thing. No test depends on what it does meanwhile.
const A_WHILE: Duration = Duration::from_millis(200);
const MIB: usize = 1 << 20;
/// All that the proxy may hold of a request that passes: what it read with the heads.
const LITTLE: usize = MIB;

fn topics() -> [(&'static str, i32, u64); 2] {
    [("orders", 8, 200_000_000), ("other", 8, 200_000_000)]
}

fn broker() -> Broker {
    Broker::sound(&topics())
}

/// A frame with a batch of so many bytes.
fn large(broker: &Broker, version: i16, correlation: i32, wire_bytes: usize) -> Vec<u8> {
    let part = Part::at(
        &broker.topic("orders"),
        1,
        batch_of_bytes(wire_bytes).build(),
    );
    produce(version, correlation, -1, &[part])
}

fn produce(version: i16, correlation: i32, acks: i16, parts: &[Part]) -> Vec<u8> {
    frame(
        &produce_request(None, acks, parts),
        version,
        correlation,
        Some("passing"),
    )
}

fn wait_until_arrives(broker: &Broker, bytes: usize) {
    eventually(PATIENCE, "the broker reads what has come", || {
        (broker.arriving() >= bytes).then_some(())
    });
}

/// Sends a frame but for its last bytes, which are returned, and waits until the broker reads what has come.
fn all_arrives_but<'a>(
    last: usize,
    frame: &'a [u8],
    connection: &mut Connection,
    broker: &Broker,
) -> &'a [u8] {
    let (first, last) = frame.split_at(frame.len() - last);
    connection.send_bytes(first);
    wait_until_arrives(broker, first.len() - 4);
    last
}

/// The next response, which is to be without error.
fn assert_stored(connection: &mut Connection, version: i16, correlation: i32) {
    let (answered, responses) = connection.receive_produce(version).unwrap();
    assert_eq!(answered, correlation);
    assert!(
        responses.iter().all(|response| response.code == 0),
        "{responses:?}"
    );
}

#[test]
fn the_broker_sees_the_first_bytes_before_the_client_has_sent_the_last() {
    let broker = broker();
    let proxy = Inside::start(&broker, &[], "");
    for (version, wire_bytes) in [(3, MIB), (8, MIB), (9, MIB), (12, MIB), (13, 50 * MIB)] {
        let mut connection = proxy.connect();
        let frame = large(&broker, version, 7, wire_bytes);
        let last = all_arrives_but(100_000, &frame, &mut connection, &broker);
        assert!(proxy.shared.budget.held_bytes() <= LITTLE, "{version}");
        connection.send_bytes(last);
        assert_stored(&mut connection, version, 7);
        let received = broker.received_of(ApiKey::Produce);
        assert!(received.last().unwrap().body == frame[4..], "{version}");
    }
    let orders = [("topic", "orders")];
    proxy.wait_for_metric("batch_wire_bytes_count", &orders, 5.0);
    let verdicts = [("topic", "orders"), ("verdict", "forwarded")];
    proxy.wait_for_metric("produce_batches_total", &verdicts, 5.0);
    proxy.wait_until_nothing_is_held();
}

#[test]
fn of_several_partitions_the_last_one_passes_once_its_head_is_here() {
    let broker = broker();
    let proxy = Inside::start(&broker, &[], "");
    for version in [7, 13] {
        let mut connection = proxy.connect();
        let part =
            |topic, at, bytes| Part::at(&broker.topic(topic), at, batch_of_bytes(bytes).build());
        let parts = [
            part("orders", 0, 300),
            part("orders", 5, 300_000),
            part("other", 0, 2 * MIB),
        ];
        let frame = produce(version, 3, -1, &parts);
        let last = all_arrives_but(MIB, &frame, &mut connection, &broker);
        connection.send_bytes(last);
        assert_stored(&mut connection, version, 3);
        assert!(broker.received_of(ApiKey::Produce).last().unwrap().body == frame[4..]);
    }
    proxy.wait_until_nothing_is_held();
}

/// What must not be begun before it is whole: named, the rules, and the frame.
fn held(broker: &Broker) -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let (orders, other) = (broker.topic("orders"), broker.topic("other"));
    let nobody = Topic {
        name: "nobody".to_owned(),
        ..orders.clone()
    };
    let plain = || batch_of_bytes(2 * MIB).build();
    let many = || batch((0..200).map(|_| Record::of_a(10_000))).build();
    let one = |records: Bytes| produce(9, 1, -1, &[Part::at(&orders, 1, records)]);
    let compressed = || {
        batch([Record::of_random(2 * MIB, 1)])
            .codec(Codec::Lz4)
            .build()
    };
    let two = |first: &Topic, at| {
        let small = batch_of_bytes(300).build();
        let parts = [Part::at(first, at, small), Part::at(&orders, 1, plain())];
        produce(9, 1, -1, &parts)
    };
    let limits = |limits| -> &'static str {
        match limits {
            "batch" => "rules: [{name: r, topics: [orders], limits: {batch_bytes: 1MiB}}]",
            "observed" => {
                "mode: observe\nrules: [{name: r, topics: [orders], limits: {batch_bytes: 1MiB}}]"
            }
            "record" => "rules: [{name: r, topics: [orders], limits: {record_bytes: 20KiB}}]",
            "inside" => "rules: [{name: r, topics: [orders], limits: {uncompressed_bytes: 64MiB}}]",
            "client" => {
                "rules: [{name: r, topics: [orders], clients: {client_ids: [passing]}, limits: {batch_bytes: 1MiB}}]"
            }
            // 200 records of 10,000 bytes come to 2,002,397 bytes, and each may grow by 11.
            "growing" => {
                "rules: [{name: r, topics: [orders], limits: {uncompressed_bytes: 2003600}}]"
            }
            "codec" => "rules: [{name: r, topics: [orders], codecs: {allow: [none]}}]",
            "always" => "inspection: {decode: always}",
            _ => "",
        }
    };
    // Its entries are not neighbours.
    let twice = {
        let small = batch_of_bytes(300).build();
        let parts = [
            Part::at(&orders, 0, small.clone()),
            Part::at(&other, 0, small),
            Part::at(&orders, 1, plain()),
        ];
        produce(9, 1, -1, &parts)
    };
    let mut with_tags = one(plain());
    // One byte more behind everything: as much as the tags of something may take.
    with_tags.push(0);
    let length = (with_tags.len() as u32 - 4).to_be_bytes();
    with_tags[..4].copy_from_slice(&length);
    let shorter = batch_of_bytes(2 * MIB).length(2 * MIB as i32 - 13).build();
    vec![
        ("over a rule", limits("batch"), one(plain())),
        ("over an observed rule", limits("observed"), one(plain())),
        ("over a rule for its client", limits("client"), one(plain())),
        ("records to be walked", limits("record"), one(many())),
        (
            "records that may grow when the broker writes them again",
            limits("growing"),
            one(many()),
        ),
        (
            "compressed, a limit inside",
            limits("inside"),
            one(compressed()),
        ),
        ("a codec to be judged", limits("codec"), one(plain())),
        ("to be measured", limits("always"), one(compressed())),
        ("a topic named twice", "", twice),
        ("a partition named twice", "", two(&orders, 1)),
        ("a byte behind the tags", "", with_tags),
        ("shorter than its field", "", one(shorter)),
        (
            "an old format",
            "",
            one(batch_of_bytes(2 * MIB).magic(1).build()),
        ),
        (
            "a transaction without an id",
            "",
            one(batch_of_bytes(2 * MIB).transactional().build()),
        ),
        (
            "acks that nobody knows",
            "",
            produce(9, 1, 5, &[Part::at(&orders, 1, plain())]),
        ),
        (
            "a topic that nobody knows",
            "",
            produce(9, 1, -1, &[Part::at(&nobody, 1, plain())]),
        ),
        (
            "a codec that nobody has",
            "",
            one(batch_of_bytes(2 * MIB).attributes(7).build()),
        ),
    ]
}

#[test]
fn what_needs_more_than_its_heads_is_not_begun_before_it_is_whole() {
    let broker = broker();
    for (name, yaml, frame) in held(&broker) {
        let proxy = Inside::start(&broker, &[], yaml);
        let mut connection = proxy.connect();
        let before = broker.received_of(ApiKey::Produce).len();
        connection.send_bytes(&frame[..frame.len() - 1]);
        // It has been read, and taken memory for.
        eventually(PATIENCE, name, || {
            (proxy.shared.budget.held_bytes() >= frame.len()).then_some(())
        });
        std::thread::sleep(A_WHILE);
        assert_eq!(broker.arriving(), 0, "{name}");
        connection.send_bytes(&frame[frame.len() - 1..]);
        let end = connection.read_frame();
        let received = broker.received_of(ApiKey::Produce).len() - before;
        match name {
            "over a rule" | "over a rule for its client" => {
                assert!(end.is_ok(), "{name}: {end:?}");
                assert_eq!(received, 0, "{name}");
            }
            _ => assert!(received == 1 && end.is_ok(), "{name}: {received}, {end:?}"),
        }
        proxy.wait_until_nothing_is_held();
    }
}

#[test]
fn a_client_that_goes_away_in_the_middle_is_counted_nowhere_and_the_broker_is_told() {
    let broker = broker();
    let proxy = Inside::start(&broker, &[], "");
    for (nth, acks) in [-1, 0, 1].into_iter().enumerate() {
        let part = Part::at(&broker.topic("orders"), 1, batch_of_bytes(MIB).build());
        let frame = produce(9, 1, acks, &[part]);
        let mut connection = proxy.connect();
        connection.send_bytes(&frame[..frame.len() / 2]);
        wait_until_arrives(&broker, frame.len() / 2 - 4);
        drop(connection);
        eventually(PATIENCE, "the broker is told", || {
            (broker.cut_off() == nth + 1).then_some(())
        });
    }
    let orders = [("topic", "orders")];
    assert_eq!(proxy.metric("batch_wire_bytes_count", &orders), 0.0);
    let verdicts = [("topic", "orders"), ("verdict", "forwarded")];
    assert_eq!(proxy.metric("produce_batches_total", &verdicts), 0.0);
    // Nobody meets what was left of it.
    let mut connection = proxy.connect();
    connection.send_bytes(&large(&broker, 9, 2, MIB));
    assert_stored(&mut connection, 9, 2);
    proxy.wait_until_nothing_is_held();
}

/// A broker that answers its first Produce when the test says so.
fn slow_at_first(go_on: &CancellationToken) -> Broker {
    let go_on = go_on.clone();
    Broker::start(&topics(), move |request, cluster| {
        let is_first = request.api_key == ApiKey::Produce as i16 && request.nth == 0;
        let sound = crate::support::scripted::sound(request, cluster)?;
        is_first.then(|| vec![Step::Until(go_on.clone()), Step::Send(sound)])
    })
}

#[test]
fn a_client_that_half_closes_in_the_middle_gets_what_it_is_owed() {
    let go_on = CancellationToken::new();
    let broker = slow_at_first(&go_on);
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    connection.send_bytes(&large(&broker, 9, 1, 300));
    let frame = large(&broker, 9, 2, MIB);
    connection.send_bytes(&frame[..frame.len() / 2]);
    eventually(PATIENCE, "the first one is with the broker", || {
        (broker.received_of(ApiKey::Produce).len() == 1).then_some(())
    });
    connection.half_close();
    std::thread::sleep(A_WHILE);
    go_on.cancel();
    assert_stored(&mut connection, 9, 1);
    let end = connection.read_frame_within(PATIENCE).err();
    assert_eq!(end, Some(ErrorKind::Closed));
    assert_eq!(broker.received_of(ApiKey::Produce).len(), 1);
    proxy.wait_until_nothing_is_held();
}

#[test]
fn a_client_that_half_closes_behind_the_last_byte_gets_its_response() {
    let go_on = CancellationToken::new();
    let broker = slow_at_first(&go_on);
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    connection.send_bytes(&large(&broker, 9, 1, MIB));
    connection.half_close();
    std::thread::sleep(A_WHILE);
    go_on.cancel();
    assert_stored(&mut connection, 9, 1);
    let end = connection.read_frame_within(PATIENCE).err();
    assert_eq!(end, Some(ErrorKind::Closed));
}

#[test]
fn a_drain_in_the_middle_waits_for_the_rest_and_its_response() {
    let broker = broker();
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    let frame = large(&broker, 13, 5, MIB);
    let last = all_arrives_but(frame.len() / 2, &frame, &mut connection, &broker);
    proxy.drain();
    std::thread::sleep(A_WHILE);
    connection.send_bytes(last);
    assert_stored(&mut connection, 13, 5);
    let end = connection.read_frame_within(PATIENCE).err();
    assert_eq!(end, Some(ErrorKind::Closed));
}

#[test]
fn a_reload_in_the_middle_is_for_the_next_request() {
    let broker = broker();
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    let frame = large(&broker, 13, 5, MIB);
    let last = all_arrives_but(frame.len() / 2, &frame, &mut connection, &broker);
    proxy.reload("rules: [{name: r, topics: ['*'], limits: {batch_bytes: 1000}}]");
    connection.send_bytes(last);
    assert_stored(&mut connection, 13, 5);
    connection.send_bytes(&frame);
    let (_, responses) = connection.receive_produce(13).unwrap();
    assert_eq!(responses[0].code, 10);
    assert_eq!(broker.received_of(ApiKey::Produce).len(), 1);
}

#[test]
fn a_broker_that_closes_in_the_middle_ends_the_connection() {
    let broker = Broker::start(&topics(), |request, _| {
        (request.api_key == ApiKey::Produce as i16).then(|| vec![Step::Close])
    });
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    connection.send_bytes(&large(&broker, 9, 1, 300));
    let frame = large(&broker, 9, 2, 8 * MIB);
    // The broker reads no more than the first one.
    connection.send_bytes(&frame[..frame.len() / 2]);
    assert!(connection.is_closed_within(PATIENCE));
    proxy.wait_until_nothing_is_held();
}

/// Large and small requests in turn, in one stream.
fn stream(broker: &Broker, version: i16) -> (Vec<u8>, Vec<Vec<u8>>) {
    let sizes = [300_000, 300, 66_500, 600, 500_000, 1_000_000, 70_000, 300];
    let frames: Vec<Vec<u8>> = sizes
        .iter()
        .enumerate()
        .map(|(nth, bytes)| large(broker, version, nth as i32, *bytes))
        .collect();
    (frames.concat(), frames)
}

#[test]
fn requests_cut_at_every_boundary_arrive_byte_for_byte() {
    let broker = broker();
    let proxy = Inside::start(&broker, &[], "");
    for version in [7, 9, 13] {
        let (stream, frames) = stream(&broker, version);
        // Around each frame's length, head, batch's head, what is read of it at first, and its end.
        let mut cuts = Vec::new();
        let mut at = 0;
        for frame in &frames {
            let near = [
                0, 1, 3, 4, 11, 12, 13, 60, 100, 124, 125, 126, 127, 130, 511, 512, 513,
            ];
            cuts.extend(near.map(|near| at + near));
            cuts.extend([3, 2, 1].map(|before| at + frame.len() - before));
            at += frame.len();
        }
        cuts.retain(|cut| (1..stream.len()).contains(cut));
        let before = broker.received_of(ApiKey::Produce).len();
        let mut clients: Vec<(usize, Connection)> =
            cuts.iter().map(|cut| (*cut, proxy.connect())).collect();
        std::thread::scope(|scope| {
            for (cut, connection) in &mut clients {
                let (stream, count) = (&stream, frames.len());
                scope.spawn(move || {
                    let (first, last) = stream.split_at(*cut);
                    connection.send_bytes(first);
                    std::thread::sleep(A_WHILE / 10);
                    connection.send_bytes(last);
                    (0..count).for_each(|nth| assert_stored(connection, version, nth as i32));
                });
            }
        });
        let received = broker.received_of(ApiKey::Produce);
        let received = &received[before..];
        assert_eq!(received.len(), cuts.len() * frames.len());
        for Request {
            correlation_id,
            body,
            ..
        } in received
        {
            assert!(*body == frames[*correlation_id as usize][4..], "{version}");
        }
    }
    proxy.wait_until_nothing_is_held();
}

#[test]
fn requests_in_small_pieces_arrive_byte_for_byte() {
    let broker = broker();
    let proxy = Inside::start(&broker, &[], "");
    let (stream, frames) = stream(&broker, 9);
    for piece in [7, 511, 4097, 65_536] {
        let mut connection = proxy.connect();
        // Byte by byte where heads are.
        let few = stream.chunks(piece).take(60).flatten().count();
        for piece in stream[..few].chunks(piece) {
            connection.send_bytes(piece);
        }
        connection.send_bytes(&stream[few..]);
        for nth in 0..frames.len() {
            assert_stored(&mut connection, 9, nth as i32);
        }
    }
    for Request {
        correlation_id,
        body,
        ..
    } in broker.received_of(ApiKey::Produce)
    {
        assert!(body == frames[correlation_id as usize][4..]);
    }
}

/// Partitions with batches of these sizes.
fn fetched(topic: &Topic, partitions: &[Vec<usize>]) -> FetchResponse {
    let partition = |(index, sizes): (usize, &Vec<usize>)| {
        let batches = sizes.iter().map(|bytes| batch_of_bytes(*bytes).build());
        let records = batches.fold(BytesMut::new(), |mut all, one| {
            all.extend_from_slice(&one);
            all
        });
        PartitionData::default()
            .with_partition_index(index as i32)
            .with_records(Some(records.freeze()))
    };
    let topic = FetchableTopicResponse::default()
        .with_topic(TopicName(text(&topic.name)))
        .with_topic_id(topic.id)
        .with_partitions(partitions.iter().enumerate().map(partition).collect());
    FetchResponse::default().with_responses(vec![topic])
}

fn fetch(broker: &Broker, version: i16, correlation: i32, client_id: &str) -> Vec<u8> {
    let topic = broker.topic("orders");
    let partition = FetchPartition::default().with_partition_max_bytes(1 << 30);
    let topic = FetchTopic::default()
        .with_topic(TopicName(text(&topic.name)))
        .with_topic_id(topic.id)
        .with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_bytes(1 << 30)
        .with_session_epoch(-1)
        .with_topics(vec![topic]);
    frame(&request, version, correlation, Some(client_id))
}

/// What the n-th Fetch of a connection is given: runs and none, one behind the other.
fn served(nth: usize) -> Vec<Vec<usize>> {
    match nth % 8 {
        0 => vec![vec![MIB]],
        1 => vec![vec![]],
        2 => vec![vec![16_000; 40]],
        3 => vec![
            vec![300; 3],
            vec![100_000],
            vec![],
            vec![500],
            vec![40_000; 2],
        ],
        4 => vec![vec![262_143], vec![262_144], vec![262_145]],
        5 => vec![vec![200]],
        6 => vec![vec![70; 2000], vec![2 * MIB, 300], vec![300, MIB]],
        _ => vec![vec![1000; 30]; 8],
    }
}

/// A broker that serves records, in pieces of this size at least where one is given.
fn serving(piece: Option<usize>) -> Broker {
    let made = std::sync::OnceLock::<Vec<FetchResponse>>::new();
    Broker::start(&topics(), move |request, cluster| {
        if request.api_key != ApiKey::Fetch as i16 {
            return None;
        }
        let topic = &cluster.topics[0].topic;
        let made = made.get_or_init(|| (0..8).map(|nth| fetched(topic, &served(nth))).collect());
        let response = request.response(&made[request.correlation_id as usize % 8]);
        let pieces = response.chunks(match piece {
            None => response.len(),
            Some(piece) => piece.max(response.len() / 20),
        });
        let steps = pieces.flat_map(|piece| {
            let wait = Step::Wait(Duration::from_micros(300));
            [Step::Send(piece.to_vec()), wait]
        });
        Some(steps.collect())
    })
}

/// Fetches of one connection, with a Produce between them here and there; the responses as the broker gives them.
fn fetches(broker: &Broker, version: i16) -> (Vec<u8>, Vec<Vec<u8>>) {
    let requests: Vec<Vec<u8>> = (0..40)
        .map(|nth| match nth % 5 {
            4 => large(broker, 9, nth, 300),
            _ => fetch(broker, version, nth, "passing"),
        })
        .collect();
    let mut direct = Connection::open(broker.cluster.address);
    let ask = |request: &Vec<u8>| {
        direct.send_bytes(request);
        direct.read_frame().unwrap()
    };
    (requests.concat(), requests.iter().map(ask).collect())
}

#[test]
fn responses_with_runs_and_without_arrive_byte_for_byte() {
    for piece in [None, Some(500)] {
        let broker = serving(piece);
        let proxy = Inside::start(&broker, &[], "");
        std::thread::scope(|scope| {
            for version in [4, 11, 12, 16, 17] {
                for is_slow in [false, true] {
                    let (broker, proxy) = (&broker, &proxy);
                    scope.spawn(move || {
                        let (requests, responses) = fetches(broker, version);
                        let mut connection = proxy.connect();
                        connection.send_bytes(&requests);
                        for (nth, expected) in responses.iter().enumerate() {
                            if is_slow && nth % 8 == 0 {
                                std::thread::sleep(A_WHILE);
                            }
                            let got = connection.read_frame().unwrap();
                            assert!(got == *expected, "{version}, response {nth}");
                        }
                        if is_slow {
                            connection.half_close();
                            let end = connection.read_frame_within(PATIENCE).err();
                            assert_eq!(end, Some(ErrorKind::Closed));
                        }
                    });
                }
            }
        });
        proxy.wait_until_nothing_is_held();
    }
}

#[test]
fn what_a_consumer_left_in_the_middle_of_a_response_reaches_nobody_else() {
    let broker = serving(None);
    let proxy = Inside::start(&broker, &[], "");
    let (requests, responses) = fetches(&broker, 17);
    for _ in 0..20 {
        // Runs are on their way, and nobody takes them.
        let mut gone: Vec<Connection> = (0..4).map(|_| proxy.connect()).collect();
        gone.iter_mut().for_each(|gone| gone.send_bytes(&requests));
        gone.iter_mut()
            .for_each(|gone| assert_eq!(gone.read_frame().unwrap(), responses[0]));
        for gone in &gone {
            gone.stream().shutdown(Shutdown::Both).unwrap();
        }
        drop(gone);
        let mut connection = proxy.connect();
        connection.send_bytes(&requests);
        for expected in &responses {
            assert!(connection.read_frame().unwrap() == *expected);
        }
    }
    proxy.wait_until_nothing_is_held();
}

#[test]
fn of_responses_with_runs_the_first_is_counted_and_then_each_sixteenth_for_all_before_it() {
    let broker = serving(None);
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    let orders = [("topic", "orders")];
    let mut expected = 0.0;
    for nth in 0..48 {
        // 40 batches in a run of 640,000 bytes.
        connection.send_bytes(&fetch(&broker, 12, 2, "passing"));
        connection.read_frame().unwrap();
        if nth % 16 == 0 {
            expected += if nth == 0 { 40.0 } else { 16.0 * 40.0 };
        }
        proxy.wait_for_metric("fetch_batch_bytes_count", &orders, expected);
    }
    let bytes = proxy.metric("fetch_batch_bytes_sum", &orders);
    assert_eq!(bytes, expected * 16_000.0);
    // What has no run is counted each time.
    for nth in 1..4 {
        connection.send_bytes(&fetch(&broker, 12, 5, "passing"));
        connection.read_frame().unwrap();
        proxy.wait_for_metric(
            "fetch_batch_bytes_count",
            &orders,
            expected + f64::from(nth),
        );
    }
}
