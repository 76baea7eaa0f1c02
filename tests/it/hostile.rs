//! Clients that send what no client should: each pays for it alone, and nothing it declares is believed.

use std::io::Write;
use std::time::Duration;

use crate::support::client::{frame, produce_request, text};
use crate::support::scripted::{self, Broker, Step};
use crate::support::{Connection, ErrorKind, Inside, Part, batch_of_bytes, eventually};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, MetadataRequest, ProduceRequest, SaslHandshakeRequest,
    SaslHandshakeResponse,
};

const LIMIT: u64 = 1000;
/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn topics() -> [(&'static str, i32, u64); 3] {
    [
        ("orders", 4, LIMIT),
        ("payments", 4, LIMIT),
        ("wide", 4, 200_000_000),
    ]
}

fn part(broker: &Broker, topic: &str, partition: i32, bytes: usize) -> Part {
    Part::at(
        &broker.topic(topic),
        partition,
        batch_of_bytes(bytes).build(),
    )
}

fn assert_works(connection: &mut Connection, broker: &Broker) {
    let responses = connection.produce(9, -1, &[part(broker, "orders", 0, 500)]);
    assert_eq!(responses[0].code, 0, "{responses:?}");
}

fn assert_closed(connection: &mut Connection) {
    assert_eq!(
        connection.read_frame_within(PATIENCE).err(),
        Some(ErrorKind::Closed)
    );
}

/// `bytes` on a fresh connection close it, with a log line of these words; a neighbour lives.
fn assert_closes(bytes: &[u8], words: &[&str]) {
    assert_closes_one(&broker_and_proxy(), words, |connection, _| {
        connection.send_bytes(bytes);
    });
    assert_closes_one(&broker_and_proxy(), words, |connection, _| {
        for byte in bytes {
            connection.send_bytes(std::slice::from_ref(byte));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    // Once Kafka was spoken, TLS or HTTP are nothing but wrong lengths.
    let words = ["connection closed"];
    assert_closes_one(&broker_and_proxy(), &words, |connection, broker| {
        assert_works(connection, broker);
        connection.send_bytes(bytes);
    });
}

/// A proxy of its own for each: of one client and reason it writes one line a minute.
fn broker_and_proxy() -> (Broker, Inside) {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &[], "");
    (broker, proxy)
}

fn assert_closes_one(
    (broker, proxy): &(Broker, Inside),
    words: &[&str],
    send: impl Fn(&mut Connection, &Broker),
) {
    let mut neighbour = proxy.connect();
    assert_works(&mut neighbour, broker);
    let mut connection = proxy.connect();
    send(&mut connection, broker);
    assert_closed(&mut connection);
    proxy.log_line(&connection, words);
    assert_works(&mut neighbour, broker);
    // A whole Produce is of 500 bytes and some.
    let forwarded = broker.received();
    assert!(
        forwarded.iter().all(|request| request.body.len() > 500),
        "something of it reached the broker: {forwarded:?}"
    );
    proxy.wait_until_nothing_is_held();
}

#[test]
fn lengths_that_no_request_has_close_the_connection() {
    for (length, problem) in [
        (0, "truncated"),
        (1, "truncated"),
        (7, "truncated"),
        (-1, "negative_length"),
        (i32::MIN, "negative_length"),
    ] {
        assert_closes(&i32::to_be_bytes(length), &["connection closed", problem]);
    }
}

/// Kafka closes on such a length at once; what a client that says it means to send would never come.
#[test]
fn a_length_above_the_limit_closes_the_connection_before_its_head_is_whole() {
    // A TLS alert; then a key that is no Produce, known by its first byte but one.
    for bytes in [
        &[0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x28][..],
        &[0x7f, 0xff, 0xff, 0xff, 0x00, 0x03],
        &[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0],
    ] {
        assert_closes(bytes, &["connection closed", "frame_too_large"]);
    }
}

#[test]
fn a_head_that_never_comes_to_its_end_closes_the_connection() {
    let (broker, proxy) = broker_and_proxy();
    let sound = frame(&MetadataRequest::default(), 9, 7, None);
    // A length alone, too large for a request or not; half of a length; a head but for its last byte.
    let heads: [&[u8]; 6] = [
        &[0x7f, 0xff, 0xff, 0xff],
        &[0x7f, 0xff, 0xff, 0xff, 0x00],
        &[0x7f, 0xff, 0xff, 0xff, 0x00, 0x00, 0x00],
        &[0, 0, 0, 30],
        &[0],
        &sound[..11],
    ];
    let mut stalled: Vec<Connection> = Vec::new();
    for (nth, head) in heads.iter().enumerate() {
        let mut connection = proxy.connect();
        if nth % 2 == 1 {
            assert_works(&mut connection, &broker);
        }
        connection.send_bytes(head);
        stalled.push(connection);
    }
    // One that drips is no better.
    let mut dripping = proxy.connect();
    for byte in &sound[..4] {
        dripping.send_bytes(std::slice::from_ref(byte));
        std::thread::sleep(Duration::from_millis(300));
    }
    stalled.push(dripping);
    stalled.iter_mut().for_each(assert_closed);
    proxy.wait_for_metric("connections_closed_total", &[("reason", "head_late")], 7.0);
    proxy.log_line(&stalled[0], &["head_late"]);
}

#[test]
fn a_head_in_pieces_is_read_and_an_idle_connection_is_left_alone() {
    let (broker, proxy) = broker_and_proxy();
    let (mut idle, mut slow) = (proxy.connect(), proxy.connect());
    assert_works(&mut idle, &broker);
    let bytes = frame(
        &produce_request(None, -1, &[part(&broker, "orders", 0, 300)]),
        9,
        5,
        None,
    );
    for byte in &bytes[..12] {
        slow.send_bytes(std::slice::from_ref(byte));
        std::thread::sleep(Duration::from_millis(20));
    }
    // Its body may take its time, and so may another request: longer than a head may.
    std::thread::sleep(Duration::from_secs(7));
    slow.send_bytes(&bytes[12..]);
    assert_eq!(slow.receive_produce(9).unwrap().1[0].code, 0);
    assert_works(&mut idle, &broker);
}

#[test]
fn tls_and_http_on_the_plain_port_are_named() {
    assert_closes(
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\0\0",
        &["connection closed", "tls"],
    );
    assert_closes(
        b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
        &["connection closed", "http"],
    );
    assert_closes(
        b"POST /topics HTTP/1.1\r\n\r\n",
        &["connection closed", "http"],
    );
}

#[test]
fn tls_is_named_also_where_a_request_may_be_that_long() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &["frame_bytes: 1GiB"], "memory: {budget: 2GiB}");
    let mut connection = proxy.connect();
    connection
        .send_bytes(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x00\x00\x00\x00\x00\x00\x00");
    assert_closed(&mut connection);
    proxy.log_line(&connection, &["tls"]);
}

#[test]
fn a_small_produce_with_a_huge_count_closes_the_connection_and_allocates_nothing() {
    // Version 9: client id null, no tags, no transactional id, acks −1, timeout, then 2³² − 2 topics.
    let mut body = vec![
        0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0xff, 0xff, 0, 0, 0, 1,
    ];
    body.extend([0xff, 0xff, 0xff, 0xff, 0x0f]);
    let bytes = [&(body.len() as i32).to_be_bytes()[..], &body].concat();
    assert_closes(&bytes, &["connection closed", "topic_data"]);
    // Version 8, i32::MAX topics.
    let mut body = vec![
        0, 0, 0, 8, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1,
    ];
    body.extend(i32::MAX.to_be_bytes());
    let bytes = [&(body.len() as i32).to_be_bytes()[..], &body].concat();
    assert_closes(&bytes, &["connection closed", "topic_data"]);
    // The twelve bytes of the fact sheet: nothing but a header.
    assert_closes(
        &[0, 0, 0, 12, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0],
        &["connection closed"],
    );
}

#[test]
fn produce_of_an_unknown_version_closes_the_connection() {
    for version in [-1i16, 14, 99, i16::MAX] {
        let mut bytes = vec![0, 0, 0, 20, 0, 0];
        bytes.extend(version.to_be_bytes());
        bytes.resize(24, 0);
        assert_closes(&bytes, &["connection closed", "unsupported_version"]);
    }
}

#[test]
fn a_token_after_a_handshake_of_version_0_may_have_any_length_and_its_response_none() {
    let broker = Broker::start(&topics(), |request, _| {
        if request.api_key == ApiKey::SaslHandshake as i16 && request.version == 0 {
            return Some(vec![Step::Send(
                request.response(&SaslHandshakeResponse::default()),
            )]);
        }
        // Tokens are what is neither Produce nor ApiVersions: PLAIN answers with an empty token.
        let is_request =
            [ApiKey::Produce as i16, ApiKey::ApiVersions as i16].contains(&request.api_key);
        (!is_request).then(|| vec![Step::Send(vec![0, 0, 0, 0])])
    });
    let proxy = Inside::start(&broker, &[], "");
    let tokens: [&[u8]; 6] = [
        b"",
        b"\0",
        b"\0a\0b",
        b"\0user\0password",
        b"n,,n=user,r=nonce",
        b"\0u\0P",
    ];
    for token in tokens {
        let mut connection = proxy.connect();
        connection.ask(
            &SaslHandshakeRequest::default().with_mechanism(text("PLAIN")),
            0,
        );
        let bytes = [&(token.len() as i32).to_be_bytes()[..], token].concat();
        connection.send_bytes(&bytes);
        assert_eq!(
            connection.read_frame_within(PATIENCE).as_deref(),
            Ok(&[][..]),
            "{token:?}"
        );
        assert_works(&mut connection, &broker);
    }
}

#[test]
fn a_produce_in_place_of_a_token_is_judged() {
    let broker = Broker::start(&topics(), |request, _| {
        (request.api_key == ApiKey::SaslHandshake as i16).then(|| {
            vec![Step::Send(request.response(
                &SaslHandshakeResponse::default().with_error_code(34),
            ))]
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    connection.ask(
        &SaslHandshakeRequest::default().with_mechanism(text("PLAIN")),
        0,
    );
    for (version, bytes) in [(3, 2000), (9, 2001), (13, 2002)] {
        let responses = connection.produce(version, -1, &[part(&broker, "orders", 0, bytes)]);
        assert_eq!(responses[0].code, 10);
    }
    assert!(broker.received_of(ApiKey::Produce).is_empty());
    // Nor in a version that only a newer broker has.
    let mut bytes = vec![0, 0, 0, 20, 0, 0, 0, 14];
    bytes.resize(24, 0);
    connection.send_bytes(&bytes);
    assert_closed(&mut connection);
    // Nor as a token larger than any request.
    let mut connection = proxy.connect();
    connection.ask(
        &SaslHandshakeRequest::default().with_mechanism(text("PLAIN")),
        0,
    );
    connection.send_bytes(&[&(200i32 << 20).to_be_bytes()[..], &[0xff; 32]].concat());
    assert_closed(&mut connection);
}

#[test]
fn api_versions_of_any_version_is_answered_and_the_connection_stays() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    for version in [-1i16, 5, 6, 100, i16::MAX, i16::MIN] {
        let mut body = vec![0, 18];
        body.extend(version.to_be_bytes());
        body.extend([0, 0, 0, 77, 0xff, 0xff, 0, 1, 1, 0]);
        connection.send_bytes(&[&(body.len() as i32).to_be_bytes()[..], &body].concat());
        let (id, response) = connection.receive::<ApiVersionsResponse>(0);
        assert_eq!((id, response.error_code), (77, 35), "v{version}");
        assert_works(&mut connection, &broker);
    }
    let response = connection.api_versions("hostile \u{0}\u{1b}[31m", &"9".repeat(5000));
    assert_eq!(response.error_code, 0);
    let produce = response
        .api_keys
        .iter()
        .find(|key| key.api_key == 0)
        .unwrap();
    assert_eq!((produce.min_version, produce.max_version), (0, 13));
}

#[test]
fn a_partition_without_records_is_answered_and_its_neighbours_are_forwarded() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &[], "");
    for version in 3..=13 {
        let mut connection = proxy.connect();
        let nothing = Part {
            topic: broker.topic("orders"),
            partition: 1,
            records: None,
        };
        let responses = connection.produce(
            version,
            -1,
            &[part(&broker, "orders", 0, 300), nothing.clone()],
        );
        assert_eq!(
            responses
                .iter()
                .map(|response| response.code)
                .collect::<Vec<_>>(),
            [0, 87],
            "v{version}"
        );
        let responses = connection.produce(version, -1, &[nothing]);
        assert_eq!(responses[0].code, 87);
        assert_works(&mut connection, &broker);
    }
}

/// A broker refuses a whole request for a transactional batch without a transactional id, unless that batch is cut; so
/// such a request is left to it. But not what a rule forbids.
#[test]
fn a_batch_that_spoils_its_request_opens_no_gate() {
    let broker = Broker::sound(&topics());
    let rules =
        "rules:\n  - {name: r, topics: [wide], limits: {batch_bytes: 1000, record_bytes: 600}}";
    let proxy = Inside::start(&broker, &[], rules);
    let wide = |partition, records| Part::at(&broker.topic("wide"), partition, records);
    let spoiling = batch_of_bytes(300)
        .transactional()
        .producer(7, 0, 0)
        .build();
    let broken = batch_of_bytes(300).magic(7).build();
    let (small, large, record) = (300, 1_001, 900);
    for (name, first) in [
        ("cut", vec![spoiling.slice(..299)]),
        ("whole", vec![spoiling.clone()]),
        (
            "not the last of its partition",
            vec![spoiling, batch_of_bytes(small).build()],
        ),
        ("broken", vec![broken]),
    ] {
        for version in [3, 9, 13] {
            let mut parts: Vec<Part> = first
                .iter()
                .map(|records| wide(0, records.clone()))
                .collect();
            parts.push(part(&broker, "wide", 1, large));
            parts.push(part(&broker, "wide", 2, record));
            let responses = proxy.connect().produce(version, -1, &parts);
            let mut codes: Vec<_> = responses
                .iter()
                .map(|response| (response.partition, response.code))
                .collect();
            // This broker answers each batch.
            codes.dedup();
            assert_eq!(codes, [(0, 0), (1, 10), (2, 10)], "{name} v{version}");
            let asked: ProduceRequest =
                broker.received_of(ApiKey::Produce).last().unwrap().decode();
            let forwarded = &asked.topic_data[0].partition_data;
            assert!(
                forwarded.iter().all(|entry| entry.index == 0),
                "{name} v{version}: {asked:?}"
            );
        }
    }
}

#[test]
fn a_topic_repeated_a_thousand_times_reaches_the_broker_once() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &[], "");
    let (orders, payments) = (broker.topic("orders"), broker.topic("payments"));
    // Alternating names, so that no entry is shared; every partition of both topics is named 250 times.
    let parts: Vec<Part> = (0..2000)
        .map(|n| {
            let topic = if n % 2 == 0 { &orders } else { &payments };
            Part::at(
                topic,
                (n / 2) % 4,
                batch_of_bytes(if n < 1996 { 200 } else { 300 }).build(),
            )
        })
        .collect();
    for version in [8, 9, 12, 13] {
        let mut connection = proxy.connect();
        let responses = connection.produce(version, -1, &parts);
        assert_eq!(responses.len(), 8, "v{version}");
        assert!(responses.iter().all(|response| response.code == 0));
        let asked: ProduceRequest = broker.received_of(ApiKey::Produce).last().unwrap().decode();
        assert_eq!(asked.topic_data.len(), 2);
        assert!(
            asked
                .topic_data
                .iter()
                .all(|topic| topic.partition_data.len() == 4)
        );
    }
}

#[test]
fn only_the_last_batch_of_a_partition_named_twice_is_judged() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    for (sizes, code) in [([2000, 300], 0), ([300, 2000], 10)] {
        let responses =
            connection.produce(9, -1, &sizes.map(|bytes| part(&broker, "orders", 0, bytes)));
        assert_eq!(
            responses
                .iter()
                .map(|response| response.code)
                .collect::<Vec<_>>(),
            [code]
        );
    }
}

#[test]
fn unknown_requests_and_versions_pass_with_whatever_is_in_them() {
    let broker = Broker::start(&topics(), |request, _| {
        (request.api_key > 100 || request.version > 50).then(|| {
            let body = [&request.correlation_id.to_be_bytes()[..], b"anything"].concat();
            vec![Step::Send(
                [&(body.len() as i32).to_be_bytes()[..], &body].concat(),
            )]
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    for (key, version) in [
        (101i16, 0i16),
        (32_767, 32_767),
        (-5, 60),
        (22, 77),
        (500, 9),
    ] {
        let mut body = key.to_be_bytes().to_vec();
        body.extend(version.to_be_bytes());
        body.extend([0, 0, 0, 5]);
        body.extend([0xfe; 300_000]);
        connection.send_bytes(&[&(body.len() as i32).to_be_bytes()[..], &body].concat());
        if key < 0 {
            body[0] = 0xff;
        }
        let answered = key > 100 || version > 50;
        assert!(answered);
        assert_eq!(
            connection.read_frame_within(PATIENCE).unwrap()[4..],
            *b"anything",
            "{key} v{version}"
        );
        assert_eq!(broker.received().last().unwrap().body, body);
    }
    assert_works(&mut connection, &broker);
}

#[test]
fn ten_thousand_partitions_in_one_request_are_judged_before_their_client_gives_up() {
    let broker = Broker::sound(&[("many", 10_000, 1_000), ("few", 4, 1_000)]);
    let proxy = Inside::start(&broker, &[], "");
    let topic = broker.topic("many");
    let (small, large) = (batch_of_bytes(100).build(), batch_of_bytes(1001).build());
    for (every, version) in [(usize::MAX, 9), (2, 9), (1, 9), (1, 13), (1, 3)] {
        let parts: Vec<Part> = (0..10_000)
            .map(|n| {
                Part::at(
                    &topic,
                    n as i32,
                    if every != usize::MAX && n % every == 0 {
                        large.clone()
                    } else {
                        small.clone()
                    },
                )
            })
            .collect();
        // A quadratic step takes minutes: the connection would be given up before.
        let responses = proxy.connect().produce(version, -1, &parts);
        assert_eq!(responses.len(), 10_000);
        let refused = responses
            .iter()
            .filter(|response| response.code == 10)
            .count();
        assert_eq!(
            refused,
            if every == usize::MAX {
                0
            } else {
                10_000 / every
            }
        );
    }
    proxy.wait_until_nothing_is_held();
}

#[test]
fn a_client_that_reads_nothing_is_read_no_more() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &[], "");
    // Refusals are much larger than these requests.
    let parts: Vec<Part> = (0..4)
        .map(|partition| Part {
            topic: broker.topic("orders"),
            partition,
            records: None,
        })
        .collect();
    for parts in [parts, vec![part(&broker, "orders", 0, 1001)]] {
        let connection = proxy.connect();
        connection
            .stream()
            .set_write_timeout(Some(Duration::from_millis(700)))
            .unwrap();
        let request = frame(&produce_request(None, -1, &parts), 9, 1, None).repeat(100);
        // Until nobody takes any more for a while: its responses fill all buffers there are.
        let mut sent = 0usize;
        while let Ok(n) = connection.stream().write(&request[sent % request.len()..]) {
            sent += n;
            assert!(sent < 256 << 20, "{sent} bytes, and never pushed back");
        }
        let held = proxy.shared.budget.held_bytes();
        assert!(held <= 4 << 20, "{held} bytes held");
        assert_works(&mut proxy.connect(), &broker);
    }
}

#[test]
fn a_refused_request_gives_its_memory_back_although_the_connection_stays() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &["frame_bytes: 4MiB"], "memory: {budget: 4MiB}");
    let mut idle = Vec::new();
    for _ in 0..8 {
        let mut connection = proxy.connect();
        let responses = connection.produce(9, -1, &[part(&broker, "orders", 0, 3_000_000)]);
        assert_eq!(responses[0].code, 10);
        idle.push(connection);
    }
    proxy.wait_until_nothing_is_held();
}

/// A Produce of exactly `request_bytes` for 120 partitions of `many`, and its responses.
fn produce_oversized(
    proxy: &Inside,
    broker: &Broker,
    connection: &mut Connection,
    version: i16,
    request_bytes: usize,
) {
    let topic = broker.topic("many");
    let each = bytes::Bytes::from(vec![7; request_bytes / 121]);
    let mut parts: Vec<Part> = (0..120)
        .map(|n| Part::at(&topic, n, each.clone()))
        .collect();
    let bytes = |parts: &[Part]| {
        frame(&produce_request(None, -1, parts), version, 1, Some("raw")).len() - 4
    };
    let mut first = each.len() + request_bytes - bytes(&parts);
    parts[0] = Part::at(&topic, 0, vec![7; first].into());
    // Its length varint may have grown.
    first -= bytes(&parts) - request_bytes;
    parts[0] = Part::at(&topic, 0, vec![7; first].into());
    let responses = connection.produce(version, -1, &parts);
    assert_eq!(responses.len(), 120);
    let limit = request_bytes - 1;
    for response in responses {
        assert_eq!((response.code, response.base_offset), (10, -1));
        if version >= 8 {
            let text = response.text.unwrap();
            assert!(text.starts_with("sizegate refused many-"), "{text}");
            let tail = format!("[gate=frame size_bytes={request_bytes} limit_bytes={limit} ");
            assert!(text.contains(&tail), "{text}");
        }
    }
    assert_works(connection, broker);
    assert!(proxy.shared.budget.held_bytes() < 1 << 20);
}

#[test]
fn an_oversized_produce_is_answered_for_each_partition_and_the_connection_lives() {
    let broker = Broker::sound(&[("orders", 4, LIMIT), ("many", 120, 10_000_000)]);
    let proxy = Inside::start(&broker, &["frame_bytes: 1MiB"], "");
    let mut connection = proxy.connect();
    for version in 3..=13 {
        produce_oversized(&proxy, &broker, &mut connection, version, (1 << 20) + 1);
    }
    // As it is out of the box.
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    produce_oversized(&proxy, &broker, &mut connection, 9, (100 << 20) + 1);
    let forwarded = broker.received_of(ApiKey::Produce);
    assert!(forwarded.iter().all(|request| request.body.len() < 1000));
}

#[test]
fn an_oversized_produce_cut_off_in_the_middle_leaves_nothing_behind() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &["frame_bytes: 1MiB"], "");
    let bytes = frame(
        &produce_request(None, -1, &[part(&broker, "wide", 0, 3_000_000)]),
        9,
        1,
        None,
    );
    for keep in [12, 13, 60, 100_000, bytes.len() - 1] {
        let mut connection = proxy.connect();
        assert_works(&mut connection, &broker);
        connection.send_bytes(&bytes[..keep]);
        connection.half_close();
        assert_closed(&mut connection);
    }
    proxy.wait_for_metric("connections", &[], 0.0);
    proxy.wait_until_nothing_is_held();
}

#[test]
fn an_oversized_produce_without_acks_closes_and_other_oversized_requests_do_too() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &["frame_bytes: 1MiB"], "");
    let mut connection = proxy.connect();
    connection.send_produce(9, 0, &[part(&broker, "wide", 0, 3_000_000)]);
    assert_closed(&mut connection);
    proxy.log_line(&connection, &["acks=0"]);
    let mut connection = proxy.connect();
    let names = vec![
        kafka_protocol::messages::metadata_request::MetadataRequestTopic::default()
            .with_name(Some(kafka_protocol::messages::TopicName(text(
                &"x".repeat(249)
            ))));
        5000
    ];
    connection.send(&MetadataRequest::default().with_topics(Some(names)), 9);
    assert_closed(&mut connection);
    proxy.log_line(&connection, &["api_key=3"]);
    proxy.wait_for_metric("frames_refused_total", &[("reason", "closed")], 1.0);
}

#[test]
fn an_oversized_produce_of_lies_closes_the_connection() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &["frame_bytes: 1MiB"], "");
    // Its counts say more than its bytes hold, or its bytes end inside an entry.
    let sound = frame(
        &produce_request(None, -1, &[part(&broker, "wide", 0, 3_000_000)]),
        9,
        1,
        None,
    );
    let mut lies = sound.clone();
    lies.splice(22..23, [0xff, 0xff, 0xff, 0xff, 0x0f]);
    lies.truncate(sound.len());
    let mut short = sound.clone();
    let length = (sound.len() - 4 + 500) as i32;
    short[..4].copy_from_slice(&length.to_be_bytes());
    short.extend([0xff; 500]);
    short.truncate(sound.len() + 500);
    let mut connection = proxy.connect();
    connection.send_bytes(&lies);
    assert_closed(&mut connection);
    proxy.log_line(&connection, &["connection closed"]);
    // Bytes behind the body are ignored, as Kafka does.
    let mut connection = proxy.connect();
    connection.send_bytes(&short);
    let (_, responses) = connection.receive_produce(9).unwrap();
    assert_eq!(responses[0].code, 10);
}

#[test]
fn an_oversized_produce_that_is_only_observed_passes_in_order_with_addresses_rewritten() {
    use kafka_protocol::messages::BrokerId;
    use kafka_protocol::messages::produce_response::NodeEndpoint;
    let broker = Broker::start(&topics(), |request, _| {
        if request.api_key != 0 {
            return None;
        }
        let asked: ProduceRequest = request.decode();
        let node = NodeEndpoint::default()
            .with_node_id(BrokerId(1))
            .with_host(text("secret.example"))
            .with_port(9092);
        let response = scripted::produced(&asked, request.version).with_node_endpoints(vec![node]);
        (asked.acks != 0)
            .then(|| vec![Step::Send(request.response(&response))])
            .or(Some(vec![]))
    });
    let proxy = Inside::start(&broker, &["frame_bytes: 1MiB"], "mode: observe");
    let mut connection = proxy.connect();
    for _ in 0..3 {
        connection.send_produce(12, 0, &[part(&broker, "wide", 0, 3_000_000)]);
        let id = connection.send_produce(12, 1, &[part(&broker, "wide", 1, 3_000_000)]);
        let (answered, response) =
            connection.receive::<kafka_protocol::messages::ProduceResponse>(12);
        assert_eq!(answered, id);
        assert_eq!(response.node_endpoints[0].host.as_str(), "127.0.0.1");
    }
    proxy.wait_for_metric("frames_refused_total", &[("reason", "observed")], 6.0);
}

#[test]
fn a_request_cut_off_on_its_way_through_ends_the_session() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &[], "");
    let request = MetadataRequest::default().with_topics(None);
    let bytes = frame(&request, 9, 7, Some("half"));
    for keep in [12, 20, bytes.len() - 1] {
        let mut connection = proxy.connect();
        assert_works(&mut connection, &broker);
        connection.send_bytes(&bytes[..keep]);
        connection.half_close();
        assert_closed(&mut connection);
    }
    proxy.wait_for_metric("connections", &[], 0.0);
    eventually(
        PATIENCE,
        "no broker connection but the control plane's",
        || (broker.open_connections() <= 2).then_some(()),
    );
}

#[test]
fn responses_before_a_malformed_request_still_arrive() {
    let broker = Broker::start(&topics(), |request, cluster| {
        (request.api_key == 0).then(|| {
            vec![
                Step::Wait(Duration::from_millis(100)),
                Step::Send(scripted::sound(request, cluster).unwrap()),
            ]
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    for _ in 0..10 {
        let mut connection = proxy.connect();
        let id = connection.send_produce(9, -1, &[part(&broker, "orders", 0, 300)]);
        // Rubbish, and much behind it that nobody will read.
        connection.send_bytes(&[&[0xff; 8][..], &[1; 100_000]].concat());
        std::thread::sleep(Duration::from_millis(250));
        assert_eq!(connection.receive_produce(9).map(|(id, _)| id), Ok(id));
        assert_closed(&mut connection);
    }
}

/// A rule by which large requests must be whole to be judged: their codec is looked into.
const HELD: &str = "rules: [{name: r, topics: [wide], codecs: {allow: [none]}}]";

#[test]
fn clients_that_stop_in_the_middle_of_large_requests_starve_nobody() {
    let broker = Broker::sound(&topics());
    let yaml = format!("memory: {{budget: 4MiB}}\n{HELD}");
    let proxy = Inside::start(&broker, &["frame_bytes: 1MiB"], &yaml);
    let half = frame(
        &produce_request(None, -1, &[part(&broker, "wide", 0, 1_000_000)]),
        9,
        1,
        None,
    );
    let mut stalled: Vec<Connection> = (0..9)
        .map(|_| {
            let mut connection = proxy.connect();
            connection.send_bytes(&half[..half.len() / 2]);
            connection
        })
        .collect();
    // An eighth is left to small requests, so three fit and all others wait.
    eventually(PATIENCE, "memory is short", || {
        (proxy.metric("memory_waits_total", &[]) >= 6.0).then_some(())
    });
    assert!(proxy.shared.budget.held_bytes() <= 6 << 20);
    // Small requests, whole and in two pieces, and large ones: all are served while the others wait.
    let mut working = proxy.connect();
    let waits = proxy.metric("memory_waits_total", &[]);
    for _ in 0..20 {
        assert_works(&mut working, &broker);
        let bytes = frame(
            &produce_request(None, -1, &[part(&broker, "wide", 1, 20_000)]),
            9,
            5,
            None,
        );
        working.send_bytes(&bytes[..300]);
        std::thread::sleep(Duration::from_millis(5));
        working.send_bytes(&bytes[300..]);
        assert_eq!(working.receive_produce(9).unwrap().1[0].code, 0);
    }
    assert_eq!(
        proxy.metric("memory_waits_total", &[]),
        waits,
        "no small request waited for memory"
    );
    // A large one waits until the stalled before it are given up, and they are.
    let id = working.send_produce(9, -1, &[part(&broker, "wide", 2, 900_000)]);
    let response = working.read_frame_within(Duration::from_secs(180)).unwrap();
    assert_eq!(response[..4], id.to_be_bytes());
    drop(stalled.drain(..));
    proxy.wait_until_nothing_is_held();
}

#[test]
fn clients_that_drip_large_requests_starve_nobody() {
    let broker = Broker::sound(&topics());
    let yaml = format!("memory: {{budget: 2MiB}}\n{HELD}");
    let proxy = Inside::start(&broker, &["frame_bytes: 1MiB"], &yaml);
    let bytes = frame(
        &produce_request(None, -1, &[part(&broker, "wide", 0, 1_000_000)]),
        9,
        1,
        None,
    );
    let mut dripping: Vec<Connection> = (0..2)
        .map(|_| {
            let mut connection = proxy.connect();
            connection.send_bytes(&bytes[..500_000]);
            connection
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    let mut waiting = proxy.connect();
    let id = waiting.send_produce(9, -1, &[part(&broker, "wide", 2, 900_000)]);
    // A byte each half second, for as long as three minutes.
    let response = (500_000..500_360).find_map(|at| {
        for connection in &mut dripping {
            connection.send_bytes(&bytes[at..=at]);
        }
        waiting.read_frame_within(Duration::from_millis(500)).ok()
    });
    let response = response.expect("starved by two slow clients");
    assert_eq!(response[..4], id.to_be_bytes());
}
