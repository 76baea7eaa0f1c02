//! Brokers that misbehave: whatever they answer, one connection pays for it, and its client is told the truth.

use std::io::Read as _;
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::Duration;

use crate::support::batch::Codec;
use crate::support::client::{produce_request, text};
use crate::support::scripted::{self, Broker, Request, Step};
use crate::support::{Connection, ErrorKind, Inside, Part, batch_of_bytes};
use kafka_protocol::messages::{
    ApiKey, FetchResponse, FindCoordinatorRequest, MetadataRequest, MetadataResponse,
    ProduceRequest, ProduceResponse,
};
use tokio_util::sync::CancellationToken;

const LIMIT: u64 = 1000;
/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// A token for the test, and one for its broker.
fn pair() -> (CancellationToken, CancellationToken) {
    let token = CancellationToken::new();
    (token.clone(), token)
}

fn is_produce(request: &Request) -> bool {
    request.api_key == ApiKey::Produce as i16
}

fn topics() -> [(&'static str, i32, u64); 3] {
    [
        ("orders", 4, LIMIT),
        ("payments", 4, LIMIT),
        ("wide", 4, 10_000_000),
    ]
}

fn part(broker: &Broker, topic: &str, partition: i32, bytes: usize) -> Part {
    Part::at(
        &broker.topic(topic),
        partition,
        batch_of_bytes(bytes).build(),
    )
}

/// The connection works: a sound Produce is answered.
fn assert_works(connection: &mut Connection, broker: &Broker) {
    let responses = connection.produce(9, -1, &[part(broker, "orders", 0, 500)]);
    assert_eq!(responses[0].code, 0, "{responses:?}");
}

/// A new connection works. Where connections are soon idle, a machine that is busy may take one for it: then another.
fn assert_others_work(proxy: &Inside, broker: &Broker) {
    crate::support::eventually(PATIENCE, "another connection is served", || {
        let mut connection = proxy.connect();
        connection.send_produce(9, -1, &[part(broker, "orders", 0, 500)]);
        let (_, responses) = connection.receive_produce(9).ok()?;
        assert_eq!(responses[0].code, 0, "{responses:?}");
        Some(())
    });
}

/// The connection ends without another whole frame.
fn assert_closed(connection: &mut Connection) {
    assert_eq!(
        connection.read_frame_within(PATIENCE).err(),
        Some(ErrorKind::Closed)
    );
}

#[test]
fn responses_come_in_the_order_of_requests_with_refusals_between_them() {
    let broker = Broker::start(&topics(), |request, cluster| {
        is_produce(request).then(|| {
            vec![
                Step::Wait(Duration::from_millis(20)),
                Step::Send(scripted::sound(request, cluster).unwrap()),
            ]
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    for version in [3, 8, 9, 12, 13] {
        let mut connection = proxy.connect();
        let sent: Vec<(i32, i16)> = (0..40)
            .map(|n| {
                let over = n % 3 != 0;
                let size = if over { LIMIT as usize + 1 + n } else { 500 };
                let id = connection.send_produce(
                    version,
                    -1,
                    &[part(&broker, "orders", (n % 4) as i32, size)],
                );
                (id, if over { 10 } else { 0 })
            })
            .collect();
        for (id, code) in sent {
            let (answered, responses) = connection.receive_produce(version).unwrap();
            assert_eq!((answered, responses[0].code), (id, code), "v{version}");
        }
    }
}

#[test]
fn refusals_are_merged_whatever_order_the_broker_answers_in() {
    let broker = Broker::start(&topics(), |request, _| {
        is_produce(request).then(|| {
            let mut response = scripted::produced(&request.decode(), request.version);
            response.responses.reverse();
            response
                .responses
                .iter_mut()
                .for_each(|topic| topic.partition_responses.reverse());
            vec![Step::Send(request.response(&response))]
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    for version in 3..=13 {
        let mut connection = proxy.connect();
        let parts = [
            part(&broker, "orders", 0, 500),
            part(&broker, "orders", 1, 1001),
            part(&broker, "orders", 2, 1000),
            part(&broker, "payments", 3, 2000),
            part(&broker, "wide", 0, 100_000),
            part(&broker, "wide", 3, 70),
        ];
        let responses = connection.produce(version, -1, &parts);
        let mut codes: Vec<i16> = responses.iter().map(|response| response.code).collect();
        assert_eq!(codes.len(), 6, "v{version}: {responses:?}");
        codes.sort_unstable();
        assert_eq!(codes, [0, 0, 0, 0, 10, 10], "v{version}: {responses:?}");
        for response in responses.iter().filter(|response| response.code == 10) {
            assert_eq!(
                (response.base_offset, response.log_append_time_ms),
                (-1, -1)
            );
            assert_eq!(response.text.is_some(), version >= 8);
        }
    }
    // What went to the broker are the innocent ones, byte for byte.
    for request in broker.received_of(ApiKey::Produce) {
        let asked: ProduceRequest = request.decode();
        let mut sizes: Vec<usize> = asked
            .topic_data
            .iter()
            .flat_map(|topic| &topic.partition_data)
            .map(|partition| partition.records.as_ref().unwrap().len())
            .collect();
        sizes.sort_unstable();
        assert_eq!(sizes, [70, 500, 1000, 100_000]);
    }
}

/// A client asks one Produce, the broker answers with `rubbish`; the connection must close with a log line and
/// a count, and another connection must not notice.
fn assert_rubbish_closes(
    reason: &str,
    rubbish: impl Fn(&Request, &scripted::Cluster) -> Vec<Step> + Send + Sync + 'static,
) {
    let broker = Broker::start(&topics(), move |request, cluster| {
        let asked = is_produce(request)
            && request.decode::<ProduceRequest>().timeout_ms == 30_000
            && request.body.len() > 700;
        asked.then(|| rubbish(request, cluster))
    });
    let proxy = Inside::start(&broker, &[], "");
    let (mut innocent, mut victim) = (proxy.connect(), proxy.connect());
    assert_works(&mut innocent, &broker);
    assert_works(&mut victim, &broker);
    victim.send_produce(9, -1, &[part(&broker, "orders", 0, 900)]);
    // A sound answer before the rubbish may come.
    while victim.read_frame_within(PATIENCE).is_ok() {}
    assert_closed(&mut victim);
    proxy.log_line(
        &victim,
        &["connection closed", &format!("problem=\"{reason}\"")],
    );
    proxy.wait_for_metric("malformed_total", &[("reason", reason)], 1.0);
    proxy.wait_for_metric("connections", &[], 1.0);
    proxy.wait_until_nothing_is_held();
    assert_works(&mut innocent, &broker);
    assert_works(&mut proxy.connect(), &broker);
}

#[test]
fn a_response_with_a_correlation_id_nobody_asked_for_closes_one_connection() {
    assert_rubbish_closes("unexpected_correlation_id", |request, cluster| {
        let wrong = Request {
            correlation_id: request.correlation_id + 1000,
            ..request.clone()
        };
        vec![Step::Send(scripted::sound(&wrong, cluster).unwrap())]
    });
}

#[test]
fn a_response_sent_twice_closes_one_connection() {
    assert_rubbish_closes("unexpected_answer", |request, cluster| {
        let response = scripted::sound(request, cluster).unwrap();
        vec![Step::Send([response.clone(), response].concat())]
    });
}

#[test]
fn a_response_with_a_negative_length_closes_one_connection() {
    assert_rubbish_closes("negative_length", |request, _| {
        let id = request.correlation_id.to_be_bytes();
        vec![Step::Send(
            [&(-7i32).to_be_bytes()[..], &id, &[0; 40]].concat(),
        )]
    });
}

#[test]
fn a_response_too_short_for_a_correlation_id_closes_one_connection() {
    assert_rubbish_closes("truncated", |_, _| {
        vec![Step::Send(vec![0, 0, 0, 3, 1, 2, 3])]
    });
    assert_rubbish_closes("truncated", |_, _| vec![Step::Send(vec![0, 0, 0, 0])]);
}

#[test]
fn a_response_longer_than_any_response_closes_one_connection() {
    assert_rubbish_closes("too_long", |request, _| {
        let id = request.correlation_id.to_be_bytes();
        vec![Step::Send(
            [&i32::MAX.to_be_bytes()[..], &id, &[0; 40]].concat(),
        )]
    });
}

#[test]
fn a_response_whose_counts_are_lies_closes_one_connection() {
    assert_rubbish_closes("impossible_count", |request, _| {
        let id = request.correlation_id.to_be_bytes();
        let body = [&id[..], &[0], &[0xff, 0xff, 0xff, 0xff, 0x0f], &[0; 30]].concat();
        vec![Step::Send(
            [&(body.len() as i32).to_be_bytes()[..], &body].concat(),
        )]
    });
}

#[test]
fn a_response_cut_off_in_the_middle_closes_one_connection() {
    assert_rubbish_closes("truncated", |request, cluster| {
        let response = scripted::sound(request, cluster).unwrap();
        vec![
            Step::Send(response[..response.len() / 2].to_vec()),
            Step::Close,
        ]
    });
    assert_rubbish_closes("truncated", |_, _| {
        vec![Step::Send(vec![0, 0]), Step::Close]
    });
}

#[test]
fn a_broker_that_stops_in_the_middle_of_a_response_harms_nobody_else() {
    let broker = Broker::start(&topics(), |request, cluster| {
        let stops = is_produce(request) && request.body.len() > 700;
        stops.then(|| {
            let response = scripted::sound(request, cluster).unwrap();
            vec![
                Step::Send(response[..response.len() - 3].to_vec()),
                Step::Deaf,
            ]
        })
    });
    let proxy = Inside::start(&broker, &["idle_timeout: 2s"], "");
    let mut victim = proxy.connect();
    victim.send_produce(9, -1, &[part(&broker, "orders", 0, 900)]);
    assert_others_work(&proxy, &broker);
    assert_closed(&mut victim);
    assert_others_work(&proxy, &broker);
    crate::support::eventually(PATIENCE, "it is counted", || {
        let idle = proxy.metric("connections_closed_total", &[("reason", "idle")]);
        (idle >= 1.0).then_some(())
    });
}

#[test]
fn a_broker_that_speaks_unasked_loses_its_connection() {
    let broker = Broker::start(&topics(), |request, cluster| {
        is_produce(request).then(|| {
            let response = scripted::sound(request, cluster).unwrap();
            vec![
                Step::Send(response),
                Step::Wait(Duration::from_millis(200)),
                Step::Send(vec![0, 0, 0, 4, 0, 0, 0, 9]),
            ]
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    assert_works(&mut connection, &broker);
    assert_closed(&mut connection);
    proxy.wait_for_metric("malformed_total", &[("reason", "unexpected_answer")], 1.0);
}

#[test]
fn a_broker_that_closes_after_its_responses_takes_only_its_session_with_it() {
    let broker = Broker::start(&topics(), |request, cluster| {
        is_produce(request).then(|| {
            vec![
                Step::Send(scripted::sound(request, cluster).unwrap()),
                Step::Close,
            ]
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    assert_works(&mut connection, &broker);
    assert!(connection.is_closed_within(PATIENCE));
    assert_works(&mut proxy.connect(), &broker);
    assert_eq!(proxy.metric("malformed_total", &[]), 0.0);
}

#[test]
fn a_half_closed_client_gets_all_fifty_responses() {
    let broker = Broker::start(&topics(), |request, cluster| {
        is_produce(request).then(|| {
            vec![
                Step::Wait(Duration::from_millis(10)),
                Step::Send(scripted::sound(request, cluster).unwrap()),
            ]
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    let ids: Vec<i32> = (0..50)
        .map(|n| {
            connection.send_produce(
                9,
                1,
                &[part(
                    &broker,
                    "orders",
                    0,
                    if n % 7 == 0 { 1200 } else { 300 },
                )],
            )
        })
        .collect();
    connection.half_close();
    let answered: Vec<i32> = ids
        .iter()
        .map(|_| connection.receive_produce(9).unwrap().0)
        .collect();
    assert_eq!(answered, ids);
    assert_closed(&mut connection);
}

/// A client that half-closes while something of ours is not done yet: its frame is being judged, its broker is being
/// connected to, answers made here wait for one of the broker's.
#[test]
fn a_half_closed_client_gets_its_responses_whatever_is_being_waited_for() {
    let (go_on, until) = pair();
    let broker = Broker::start(&topics(), move |request, cluster| {
        is_produce(request).then(|| {
            vec![
                Step::Until(until.clone()),
                Step::Send(scripted::sound(request, cluster).unwrap()),
            ]
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    let held = broker.hold_control_plane();
    // A learned limit is confirmed before it refuses.
    let mut judged = proxy.connect();
    let judged_id = judged.send_produce(9, -1, &[part(&broker, "orders", 0, 2000)]);
    judged.half_close();
    // Nothing is known of such a topic: three refusals made here behind a sound batch.
    let mut behind = proxy.connect();
    let ids: Vec<i32> = [300, 0, 0, 0]
        .map(|bytes| {
            let mut sent = part(&broker, "orders", 0, bytes.max(100));
            sent.records = (bytes > 0).then_some(sent.records).flatten();
            behind.send_produce(9, -1, &[sent])
        })
        .to_vec();
    behind.half_close();
    std::thread::sleep(Duration::from_millis(300));
    held.cancel();
    std::thread::sleep(Duration::from_millis(300));
    go_on.cancel();
    let (id, responses) = judged.receive_produce(9).unwrap();
    assert_eq!((id, responses[0].code), (judged_id, 10));
    assert_closed(&mut judged);
    let answered: Vec<(i32, i16)> = ids
        .iter()
        .map(|_| behind.receive_produce(9).unwrap())
        .map(|(id, responses)| (id, responses[0].code))
        .collect();
    let expected: Vec<(i32, i16)> = ids.iter().copied().zip([0, 87, 87, 87]).collect();
    assert_eq!(answered, expected);
    assert_closed(&mut behind);
}

#[test]
fn a_client_that_half_closes_before_its_broker_is_connected_to_gets_its_response() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &[], "");
    // A second broker whose queue of connections is full: another one is not established before that is emptied.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let full = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        socket.listen(0).unwrap().into_std().unwrap()
    });
    full.set_nonblocking(false).unwrap();
    let address = full.local_addr().unwrap();
    let mut queue = Vec::new();
    while let Ok(queued) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        queue.push(queued);
    }
    proxy.shared.cluster.learn_node(
        2,
        sizegate::config::HostPort {
            host: address.ip().to_string(),
            port: address.port(),
        },
    );
    let mut node = proxy.address();
    node.set_port(node.port() + 2);
    let mut connection = Connection::open(node);
    let id = connection.send_produce(9, -1, &[part(&broker, "orders", 0, 300)]);
    connection.half_close();
    std::thread::sleep(Duration::from_millis(300));
    // Now it takes everybody, and is a broker: of those in its queue nothing comes.
    let to = broker.cluster.address;
    std::thread::spawn(move || {
        for from_proxy in full.incoming() {
            let from_proxy = from_proxy.unwrap();
            std::thread::spawn(move || {
                let to_broker = TcpStream::connect(to).unwrap();
                let (mut from, mut there) = (
                    from_proxy.try_clone().unwrap(),
                    to_broker.try_clone().unwrap(),
                );
                std::thread::spawn(move || std::io::copy(&mut from, &mut there));
                let _ = std::io::copy(&mut &to_broker, &mut &from_proxy);
            });
        }
    });
    drop(queue);
    let (answered, responses) = connection.receive_produce(9).unwrap();
    assert_eq!((answered, responses[0].code), (id, 0));
}

#[test]
fn a_client_is_not_idle_while_it_waits_for_us() {
    let broker = Broker::sound(&topics());
    // Its codec is judged too, so that what waits for memory must be whole.
    let limits = "limits: {uncompressed_bytes: 2MB}, codecs: {allow: [none, gzip]}";
    let rules = format!("rules: [{{name: r, topics: [wide], {limits}}}]");
    let listener = ["idle_timeout: 1s", "frame_bytes: 1MiB"];
    let memory = format!("memory: {{budget: 1MiB}}\n{rules}");
    let proxy = Inside::start(&broker, &listener, &memory);
    // For the control plane, which takes its time.
    let held = broker.hold_control_plane();
    let mut for_knowledge = proxy.connect();
    for_knowledge.send_produce(9, -1, &[part(&broker, "orders", 0, 2000)]);
    // For its turn to be decoded.
    let decoding = std::sync::Arc::clone(&proxy.shared.decoding);
    let all = u32::try_from(decoding.available_permits()).unwrap();
    let turns = decoding.try_acquire_many_owned(all).unwrap();
    let mut for_its_turn = proxy.connect();
    for_its_turn.send_produce(9, -1, &[Part::new(&broker.topic("wide"), long_to_decode())]);
    // For memory.
    let memory = proxy.shared.budget.try_admit(900_000).unwrap();
    let mut for_memory = proxy.connect();
    let parts = [part(&broker, "wide", 0, 800_000)];
    let request = crate::support::client::frame(&produce_request(None, -1, &parts), 9, 77, None);
    for_memory.send_bytes(&request[..1000]);
    proxy.wait_for_metric("memory_waits_total", &[], 1.0);
    std::thread::sleep(Duration::from_secs(3));
    held.cancel();
    drop((turns, memory));
    for_memory.send_bytes(&request[1000..]);
    for (connection, code) in [(for_knowledge, 10), (for_its_turn, 10), (for_memory, 0)] {
        let mut connection = connection;
        let (_, responses) = connection.receive_produce(9).unwrap();
        assert_eq!(responses[0].code, code, "{responses:?}");
    }
}

#[test]
fn a_request_is_judged_by_the_rules_it_was_first_judged_by() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &[], "");
    let held = broker.hold_control_plane();
    let mut connection = proxy.connect();
    // Over a learned limit, which is confirmed first.
    connection.send_produce(9, -1, &[part(&broker, "orders", 0, 2000)]);
    proxy.wait_for_metric("connections", &[], 1.0);
    std::thread::sleep(Duration::from_millis(300));
    proxy.reload("mode: observe");
    held.cancel();
    assert_eq!(connection.receive_produce(9).unwrap().1[0].code, 10);
    // The next one by those in force.
    let responses = connection.produce(9, -1, &[part(&broker, "orders", 0, 2000)]);
    assert_eq!(responses[0].code, 0);
}

/// A batch whose verdict needs more of a decode than a session's own turn has time for.
fn long_to_decode() -> bytes::Bytes {
    let record = crate::support::Record::value(vec![0; 4 << 20]);
    crate::support::batch([record]).codec(Codec::Gzip).build()
}

#[test]
fn a_refusal_without_acks_forwards_the_sound_partitions_and_closes() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    // What is asked before it is still answered.
    let before = connection.send_produce(9, -1, &[part(&broker, "orders", 0, 400)]);
    connection.send_produce(
        9,
        0,
        &[
            part(&broker, "orders", 0, 300),
            part(&broker, "payments", 1, 1001),
        ],
    );
    assert_eq!(connection.receive_produce(9).unwrap().0, before);
    assert_closed(&mut connection);
    proxy.log_line(&connection, &["acks=0"]);
    let forwarded = crate::support::eventually(PATIENCE, "forwarded", || {
        Some(broker.received_of(ApiKey::Produce)).filter(|all| all.len() == 2)
    });
    let asked: ProduceRequest = forwarded[1].decode();
    assert_eq!((asked.acks, asked.topic_data.len()), (0, 1));
    assert_eq!(asked.topic_data[0].name.as_str(), "orders");
}

#[test]
fn requests_without_acks_leave_no_trace_between_answered_ones() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    for round in 0..20 {
        connection.send_produce(9, 0, &[part(&broker, "orders", 0, 300)]);
        let id = connection.send_produce(9, 1, &[part(&broker, "orders", 0, 300 + round * 50)]);
        let (answered, responses) = connection.receive_produce(9).unwrap();
        assert_eq!(
            (answered, responses[0].code),
            (id, if 300 + round * 50 > 1000 { 10 } else { 0 })
        );
    }
    // The last refusal is answered here: what was sent before it may still be on its way to the broker.
    crate::support::eventually(PATIENCE, "every sound request has arrived", || {
        (broker.received_of(ApiKey::Produce).len() == 35).then_some(())
    });
}

#[test]
fn a_broker_that_nobody_reaches_resets_the_connection_and_says_so() {
    let broker = Broker::sound(&topics());
    let proxy = Inside::start(&broker, &[], "");
    let address = proxy.address();
    drop(broker);
    let mut connection = Connection::open(address);
    connection.send(&MetadataRequest::default(), 9);
    let ended = connection.stream().read(&mut [0]).unwrap_err();
    assert_eq!(ended.kind(), std::io::ErrorKind::ConnectionReset);
    proxy.log_line(&connection, &["no broker to talk to"]);
}

#[test]
fn the_first_bootstrap_server_may_be_dead() {
    let broker = Broker::sound(&topics());
    let dead = format!("127.0.0.1:{}", crate::support::ports::free_ports(1));
    let proxy = Inside::start_with(
        &format!("\"{dead}\", \"{}\"", broker.bootstrap()),
        &broker,
        &[],
        "",
    );
    assert_works(&mut proxy.connect(), &broker);
}

#[test]
fn a_refusal_waits_for_the_responses_before_it_and_comes_before_those_after_it() {
    // The broker answers the first request only when it has read the third.
    let held: Mutex<Option<Vec<u8>>> = Mutex::new(None);
    let broker = Broker::start(&topics(), move |request, cluster| {
        is_produce(request).then(|| {
            let response = scripted::sound(request, cluster).unwrap();
            let before = held.lock().unwrap().take();
            match before {
                None => {
                    *held.lock().unwrap() = Some(response);
                    vec![]
                }
                Some(first) => vec![
                    Step::Send(first),
                    Step::Wait(Duration::from_millis(50)),
                    Step::Send(response),
                ],
            }
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    let sent = [400, 2000, 500]
        .map(|bytes| connection.send_produce(9, -1, &[part(&broker, "orders", 0, bytes)]));
    let got = [0, 1, 2].map(|_| connection.receive_produce(9).unwrap());
    assert_eq!(got.each_ref().map(|(id, _)| *id), sent);
    assert_eq!(got.map(|(_, responses)| responses[0].code), [0, 10, 0]);
}

#[test]
fn a_metadata_response_in_single_bytes_is_rewritten_all_the_same() {
    let broker = Broker::start(&topics(), |request, cluster| {
        (request.api_key == ApiKey::Metadata as i16).then(|| {
            let response = scripted::sound(request, cluster).unwrap();
            response
                .chunks(1)
                .map(|byte| Step::Send(byte.to_vec()))
                .collect()
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    for version in 0..=13 {
        let response: MetadataResponse = connection.ask(
            &MetadataRequest::default().with_topics(Some(vec![])),
            version,
        );
        assert_eq!(
            response.brokers[0].port,
            i32::from(proxy.address().port()) + 1,
            "v{version}"
        );
    }
}

#[test]
fn a_fetch_response_of_many_mebibytes_streams_through_to_a_slow_reader_in_bounded_memory() {
    use kafka_protocol::messages::fetch_response::{
        FetchableTopicResponse, NodeEndpoint, PartitionData,
    };
    use kafka_protocol::messages::{BrokerId, FetchRequest};
    let records = bytes::Bytes::from(vec![7u8; 48 << 20]);
    let served = records.clone();
    let broker = Broker::start(&topics(), move |request, cluster| {
        (request.api_key == ApiKey::Fetch as i16).then(|| {
            let partition = PartitionData::default()
                .with_partition_index(0)
                .with_records(Some(served.clone()));
            let topic = FetchableTopicResponse::default()
                .with_topic_id(cluster.topics[0].topic.id)
                .with_partitions(vec![partition]);
            let node = NodeEndpoint::default()
                .with_node_id(BrokerId(1))
                .with_host(text("a.broker.nobody.should.see.example"))
                .with_port(9092);
            let response = FetchResponse::default()
                .with_responses(vec![topic])
                .with_node_endpoints(vec![node]);
            vec![Step::Send(request.response(&response))]
        })
    });
    let proxy = Inside::start(&broker, &["frame_bytes: 8MiB"], "memory: {budget: 8MiB}");
    let mut connection = proxy.connect();
    connection.send(&FetchRequest::default(), 17);
    std::thread::sleep(Duration::from_millis(500));
    let held = proxy.shared.budget.held_bytes();
    assert!(held <= 1 << 20, "{held} bytes held for one slow reader");
    // Others are served meanwhile.
    assert_works(&mut proxy.connect(), &broker);
    let (_, response) = connection.receive::<FetchResponse>(17);
    assert_eq!(
        response.responses[0].partitions[0]
            .records
            .as_ref()
            .unwrap(),
        &records
    );
    for node in &response.node_endpoints {
        assert_eq!(
            (node.host.as_str(), node.port),
            ("127.0.0.1", i32::from(proxy.address().port()) + 1)
        );
    }
    proxy.wait_until_nothing_is_held();
}

#[test]
fn a_broker_that_reads_nothing_holds_up_one_client_in_bounded_memory() {
    let broker = Broker::start(&topics(), |request, _| {
        (is_produce(request) && request.body.len() > 100_000).then(|| vec![Step::Deaf])
    });
    let proxy = Inside::start(&broker, &["frame_bytes: 8MiB"], "memory: {budget: 16MiB}");
    let connection = proxy.connect();
    connection
        .stream()
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let parts = [part(&broker, "wide", 0, 4_000_000)];
    let frame = crate::support::client::frame(&produce_request(None, -1, &parts), 9, 1, None);
    // Until nobody takes any more for a while.
    let mut sent = 0;
    while let Ok(n) = std::io::Write::write(&mut connection.stream(), &frame[sent % frame.len()..])
    {
        sent += n;
        assert!(
            sent < 64 << 20,
            "{sent} bytes were taken for a broker that reads nothing"
        );
    }
    let held = proxy.shared.budget.held_bytes();
    assert!(held <= 16 << 20, "{held} bytes held");
    assert_works(&mut proxy.connect(), &broker);
}

#[test]
fn an_address_in_a_coordinator_response_that_comes_in_pieces_is_rewritten() {
    use kafka_protocol::messages::{BrokerId, FindCoordinatorResponse};
    let broker = Broker::start(&topics(), |request, _| {
        (request.api_key == ApiKey::FindCoordinator as i16).then(|| {
            let response = FindCoordinatorResponse::default()
                .with_node_id(BrokerId(1))
                .with_host(text("secret.example"))
                .with_port(9092);
            let response = request.response(&response);
            response
                .chunks(3)
                .map(|piece| Step::Send(piece.to_vec()))
                .collect()
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    let mut connection = proxy.connect();
    for version in 0..=3 {
        let response = connection.ask(
            &FindCoordinatorRequest::default().with_key(text("group")),
            version,
        );
        assert_eq!(
            (response.host.as_str(), response.port),
            ("127.0.0.1", i32::from(proxy.address().port()) + 1)
        );
    }
}

/// A broker that refuses very much at once makes no work without bound: its limits are read once for each topic, by
/// nobody's own task.
#[test]
fn many_refusals_by_the_broker_start_no_task_for_each() {
    const EACH: usize = 2000;
    let names: Vec<String> = (0..20).map(|n| format!("t{n}")).collect();
    let topics: Vec<(&str, i32, u64)> = names
        .iter()
        .map(|name| (name.as_str(), EACH as i32, 1_000_000))
        .collect();
    let broker = Broker::start(&topics, |request, _| {
        is_produce(request).then(|| {
            let mut response: ProduceResponse =
                scripted::produced(&request.decode(), request.version);
            let all = response
                .responses
                .iter_mut()
                .flat_map(|topic| &mut topic.partition_responses);
            all.for_each(|partition| partition.error_code = 10);
            vec![Step::Send(request.response(&response))]
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    let batch = batch_of_bytes(100).build();
    let parts: Vec<Part> = names
        .iter()
        .flat_map(|name| {
            let topic = broker.topic(name);
            let batch = &batch;
            (0..EACH).map(move |partition| Part::at(&topic, partition as i32, batch.clone()))
        })
        .collect();
    // Nothing that is asked meanwhile comes to its end.
    let held = broker.hold_control_plane();
    let mut connection = proxy.connect();
    let responses = connection.produce(3, -1, &parts);
    assert!(responses.iter().all(|response| response.code == 10));
    assert_eq!(responses.len(), names.len() * EACH);
    let workers = proxy.workers.iter();
    let tasks: usize = workers
        .map(|worker| worker.metrics().num_alive_tasks())
        .sum();
    assert!(tasks <= 2, "{tasks} tasks for one session");
    held.cancel();
}

#[test]
fn ten_thousand_refusals_by_the_broker_are_explained_before_their_client_gives_up() {
    let broker = Broker::start(&[("many", 10_000, 1_000_000)], |request, _| {
        is_produce(request).then(|| {
            let mut response: ProduceResponse =
                scripted::produced(&request.decode(), request.version);
            let all = response
                .responses
                .iter_mut()
                .flat_map(|topic| &mut topic.partition_responses);
            all.for_each(|partition| partition.error_code = 10);
            vec![Step::Send(request.response(&response))]
        })
    });
    let proxy = Inside::start(&broker, &[], "");
    let topic = broker.topic("many");
    let batch = batch_of_bytes(100).build();
    let parts: Vec<Part> = (0..10_000)
        .map(|partition| Part::at(&topic, partition, batch.clone()))
        .collect();
    // A quadratic step takes minutes: the connection would be given up before.
    let responses = proxy.connect().produce(9, -1, &parts);
    assert_eq!(responses.len(), 10_000);
    assert!(
        responses
            .iter()
            .all(|response| response.code == 10 && response.text.is_some())
    );
}
