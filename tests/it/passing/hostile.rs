//! What is sent to break a Produce that passes before it is whole: it is paid for, counted and answered in its turn like
//! every other, and what was left of it reaches nobody.

use std::time::Duration;

use super::{LITTLE, MIB, PATIENCE, assert_stored, broker, large, produce, topics};
use crate::support::client::{frame, text};
use crate::support::scripted::{Broker, Request, Step, sound};
use crate::support::{Connection, Inside, Part, Random, batch_of_bytes, eventually};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{ApiKey, MetadataRequest, ProduceRequest, TopicName};
use tokio_util::sync::CancellationToken;

/// Sends bytes in pieces of all sizes.
fn send_in_pieces(connection: &mut Connection, mut bytes: &[u8], random: &mut Random) {
    while !bytes.is_empty() {
        let most = random.of(&[1, 20, 200, 1_000, 70_000, 400_000]);
        let (piece, rest) = bytes.split_at(random.between(1, most).min(bytes.len()));
        connection.send_bytes(piece);
        bytes = rest;
    }
}

/// Its heads alone were waited for, and then too little is left to be passed on: it is held like every other.
#[test]
fn what_is_nearly_whole_once_its_heads_are_here_is_paid_for() {
    let broker = broker();
    let proxy = Inside::start(&broker, &[], "");
    let frame = large(&broker, 9, 1, 66_000);
    let mut connection = proxy.connect();
    // More than a pipe is worth is to come, and then less; few enough bytes to come in one piece.
    for piece in [&frame[..15], &frame[15..900], &frame[900..frame.len() - 1]] {
        connection.send_bytes(piece);
        std::thread::sleep(Duration::from_millis(100));
    }
    eventually(PATIENCE, "memory is taken for it", || {
        (proxy.shared.budget.held_bytes() >= frame.len()).then_some(())
    });
    connection.send_bytes(&frame[frame.len() - 1..]);
    assert_stored(&mut connection, 9, 1);
    proxy.wait_until_nothing_is_held();
}

/// A request and what is to become of it.
struct Case {
    frame: Vec<u8>,
    version: i16,
    /// Of each partition, where a response is wanted; `None`: the request is no Produce.
    codes: Option<Vec<i16>>,
    wants_response: bool,
    /// Topic and wire bytes of each batch that is forwarded.
    forwarded: Vec<(&'static str, usize)>,
    refused: Vec<&'static str>,
}

const RULES: &str = "rules: [{name: r, topics: [other], limits: {batch_bytes: 300000}}]";
const TIGHT: u64 = 100_000;

/// A request of each kind: small or large; passing, refused by a rule, refused by what is asked for first, or in part.
fn case(broker: &Broker, nth: i32, random: &mut Random) -> Case {
    let version = random.of(&[3, 7, 8, 9, 12, 13]);
    let batches: Vec<(&'static str, usize)> = match random.place(9) {
        0 | 1 => vec![("orders", random.between(100, 3_000))],
        2 | 3 => vec![("orders", random.between(66_000, 600_000))],
        4 => vec![("other", random.between(300_001, 500_000))],
        5 => vec![("tight", random.between(100_001, 150_000))],
        6 => vec![
            ("tight", random.between(100, 100_000)),
            ("orders", random.between(100, 200_000)),
            ("other", random.between(299_900, 300_100)),
        ],
        7 => vec![
            ("tight", random.between(99_950, 100_050)),
            ("orders", random.between(66_000, 400_000)),
        ],
        _ => Vec::new(),
    };
    if batches.is_empty() {
        let topic = MetadataRequestTopic::default().with_name(Some(TopicName(text("orders"))));
        let request = MetadataRequest::default().with_topics(Some(vec![topic]));
        return Case {
            frame: frame(&request, 9, nth, Some("passing")),
            version: 9,
            codes: None,
            wants_response: true,
            forwarded: Vec::new(),
            refused: Vec::new(),
        };
    }
    let is_refused = |(topic, bytes): &(&str, usize)| match *topic {
        "other" => *bytes > 300_000,
        "tight" => *bytes as u64 > TIGHT,
        _ => false,
    };
    let (refused, forwarded): (Vec<_>, Vec<_>) = batches.iter().copied().partition(is_refused);
    // Without a response a refusal ends the connection.
    let wants_response = !refused.is_empty() || !random.one_in(4);
    let parts: Vec<Part> = batches
        .iter()
        .map(|(topic, bytes)| Part::at(&broker.topic(topic), 1, batch_of_bytes(*bytes).build()))
        .collect();
    let mut codes: Vec<i16> = batches
        .iter()
        .map(|of| i16::from(is_refused(of)) * 10)
        .collect();
    codes.sort_unstable();
    Case {
        frame: produce(version, nth, if wants_response { -1 } else { 0 }, &parts),
        version,
        codes: Some(codes),
        wants_response,
        forwarded,
        refused: refused.into_iter().map(|(topic, _)| topic).collect(),
    }
}

fn assert_answered(connection: &mut Connection, nth: usize, case: &Case) {
    let Some(codes) = &case.codes else {
        let frame = connection.read_frame().unwrap();
        assert_eq!(frame[..4], (nth as i32).to_be_bytes());
        return;
    };
    let (answered, responses) = connection.receive_produce(case.version).unwrap();
    assert_eq!(answered, nth as i32);
    let mut got: Vec<i16> = responses.iter().map(|response| response.code).collect();
    got.sort_unstable();
    assert_eq!(got, *codes, "{nth}: {responses:?}");
}

#[test]
fn requests_of_every_kind_in_turn_are_answered_in_order_and_counted_exactly() {
    let mut topics = topics().to_vec();
    topics.push(("tight", 8, TIGHT));
    for seed in 0..4 {
        let broker = Broker::sound(&topics);
        let proxy = Inside::start(&broker, &[], RULES);
        let mut random = Random(seed);
        let cases: Vec<Case> = (0..60).map(|nth| case(&broker, nth, &mut random)).collect();
        let stream: Vec<u8> = cases.iter().flat_map(|case| case.frame.clone()).collect();
        let mut connection = proxy.connect();
        let mut sending = Connection::over(connection.stream().try_clone().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| send_in_pieces(&mut sending, &stream, &mut random));
            for (nth, case) in cases.iter().enumerate() {
                if case.wants_response {
                    assert_answered(&mut connection, nth, case);
                }
            }
        });
        assert_received(&broker, &cases);
        assert_counted(&proxy, &cases);
        proxy.wait_until_nothing_is_held();
    }
}

/// Each frame that nothing was refused of as it came, and of the others what is left.
fn assert_received(broker: &Broker, cases: &[Case]) {
    let expected: Vec<(usize, &Case)> = cases
        .iter()
        .enumerate()
        .filter(|(_, case)| !case.forwarded.is_empty())
        .collect();
    let received = eventually(PATIENCE, "the broker has all of them", || {
        let received = broker.received_of(ApiKey::Produce);
        (received.len() >= expected.len()).then_some(received)
    });
    assert_eq!(received.len(), expected.len());
    for (request, (nth, case)) in received.iter().zip(expected) {
        assert_eq!(request.correlation_id, nth as i32);
        if case.refused.is_empty() {
            assert!(request.body == case.frame[4..], "{nth}");
            continue;
        }
        let asked: ProduceRequest = request.decode();
        let mut sizes: Vec<usize> = asked
            .topic_data
            .iter()
            .flat_map(|topic| &topic.partition_data)
            .map(|entry| entry.records.as_ref().unwrap().len())
            .collect();
        let mut wanted: Vec<usize> = case.forwarded.iter().map(|(_, bytes)| *bytes).collect();
        sizes.sort_unstable();
        wanted.sort_unstable();
        assert_eq!(sizes, wanted, "{nth}");
    }
}

fn assert_counted(proxy: &Inside, cases: &[Case]) {
    for topic in ["orders", "other", "tight"] {
        let of_topic = [("topic", topic)];
        let forwarded = cases.iter().flat_map(|case| &case.forwarded);
        let sizes: Vec<usize> = forwarded
            .filter(|(of, _)| *of == topic)
            .map(|(_, bytes)| *bytes)
            .collect();
        let refused = cases.iter().flat_map(|case| &case.refused);
        let refused = refused.filter(|of| **of == topic).count();
        let verdict = |verdict| [("topic", topic), ("verdict", verdict)];
        let count = sizes.len() as f64;
        proxy.wait_for_metric("batch_wire_bytes_count", &of_topic, count);
        let sum: usize = sizes.iter().sum();
        assert_eq!(proxy.metric("batch_wire_bytes_sum", &of_topic), sum as f64);
        assert_eq!(proxy.metric("wire_bytes_total", &of_topic), sum as f64);
        let counted = |name| proxy.metric("produce_batches_total", &verdict(name));
        assert_eq!(
            (counted("forwarded"), counted("refused")),
            (count, refused as f64)
        );
    }
    let is_produce = |case: &&Case| case.codes.is_some();
    let produced = cases.iter().filter(is_produce).count() as f64;
    let answered = cases
        .iter()
        .filter(is_produce)
        .filter(|case| case.wants_response);
    let of_produce = [("api", "Produce")];
    proxy.wait_for_metric(
        "request_seconds_count",
        &of_produce,
        answered.count() as f64,
    );
    proxy.wait_for_metric("proxy_seconds_count", &of_produce, produced);
}

/// What is not in the requests of every kind above: by what they were known to be within a limit, and their codec.
#[test]
fn what_is_known_of_requests_that_pass_is_counted() {
    let broker = broker();
    let rules = "rules: [{name: r, topics: [orders], limits: {record_bytes: 3MB}}]";
    let proxy = Inside::start(&broker, &[], rules);
    let mut connection = proxy.connect();
    // None is here with the first read.
    let sizes = [MIB, 500_000, 2 * MIB];
    for (nth, bytes) in sizes.into_iter().enumerate() {
        connection.send_bytes(&large(&broker, 9, nth as i32, bytes));
        assert_stored(&mut connection, 9, nth as i32);
    }
    let sum = sizes.iter().sum::<usize>() as f64;
    let codec = ("codec", "none");
    proxy.wait_for_metric(
        "uncompressed_bytes_total",
        &[("topic", "orders"), codec],
        sum,
    );
    let header = [("proof", "header"), codec];
    proxy.wait_for_metric("inspection_total", &header, sizes.len() as f64);
    assert_eq!(proxy.metric("client_connections_total", &[]), 1.0);
}

/// A broker that closes each connection once it has its first Produce and the test says so, if that is small.
fn closing(go_on: &CancellationToken) -> Broker {
    let go_on = go_on.clone();
    Broker::start(&topics(), move |request: &Request, cluster| {
        let is_last = request.api_key == ApiKey::Produce as i16 && request.body.len() < 1_000;
        sound(request, cluster)?;
        is_last.then(|| vec![Step::Until(go_on.clone()), Step::Close])
    })
}

/// While the broker reads nothing, what comes waits in sockets and pipes; and then one side goes away.
#[test]
fn what_producers_left_in_the_middle_reaches_nobody() {
    let go_on = CancellationToken::new();
    let broker = closing(&go_on);
    let proxy = Inside::start(&broker, &[], "");
    let frame = large(&broker, 9, 2, 24 * MIB);
    let mut left: Vec<Connection> = (0..4).map(|_| proxy.connect()).collect();
    std::thread::scope(|scope| {
        for (nth, connection) in left.iter_mut().enumerate() {
            let (broker, frame) = (&broker, &frame);
            scope.spawn(move || {
                let time = Some(Duration::from_secs(3));
                connection.stream().set_write_timeout(time).unwrap();
                connection.send_bytes(&large(broker, 9, 1, 300));
                // All that is taken of it; the rest never comes.
                let mut stream = connection.stream();
                let most = frame.len() - 1 - nth;
                let _ = std::io::Write::write_all(&mut stream, &frame[..most]);
            });
        }
    });
    let held = proxy.shared.budget.held_bytes();
    assert!((1..=4 * 2 * LITTLE).contains(&held), "{held} bytes held");
    go_on.cancel();
    for connection in &mut left {
        assert!(connection.is_closed_within(PATIENCE));
    }
    // Whoever comes next, on either worker.
    for nth in 0..12 {
        let mut connection = proxy.connect();
        let frames = [MIB + nth, 70_000 + nth, 3 * MIB + nth];
        let frames = frames.map(|bytes| large(&broker, 9, nth as i32, bytes));
        connection.send_bytes(&frames.concat());
        for frame in frames {
            assert_stored(&mut connection, 9, nth as i32);
            let bodies = broker.received_of(ApiKey::Produce);
            assert!(bodies.iter().any(|of| of.body == frame[4..]), "{nth}");
        }
    }
    proxy.wait_until_nothing_is_held();
}
