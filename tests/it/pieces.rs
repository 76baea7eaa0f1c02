//! Responses that come in pieces: whatever happens between two of them, the client gets every byte.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::client::{frame, produce_request, text};
use crate::support::scripted::{self, Broker, Cluster, Request, Step};
use crate::support::{Connection, ErrorKind, Inside, Part, Sizegate, batch_of_bytes, eventually};
use kafka_protocol::messages::fetch_response::{
    FetchableTopicResponse, NodeEndpoint, PartitionData,
};
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, BrokerId, FetchRequest, FetchResponse, FindCoordinatorRequest,
    FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse, MetadataRequest,
    MetadataResponse, ProduceResponse, TopicName,
};
use tokio_util::sync::CancellationToken;

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for the proxy to do the wrong thing. No test depends on what it does meanwhile.
const A_WHILE: Duration = Duration::from_millis(200);
/// What each test waits for longer than.
const IDLE: Duration = Duration::from_secs(2);
/// Records of a large Fetch response.
const LARGE: usize = 1 << 20;

fn topics() -> [(&'static str, i32, u64); 1] {
    [("orders", 8, 1000)]
}

/// Kinds of requests, as the way their responses take through the proxy: passed, watched, rewritten in the tail, held and
/// merged, held and explained, held up to the broker list, held and rewritten.
const KINDS: [&str; 8] = [
    "plain",
    "fetch-4",
    "fetch-17",
    "merged",
    "explained",
    "metadata",
    "api-versions",
    "coordinator",
];

/// Where a response of so many bytes is cut: inside its length, behind it, inside its header, behind it, in its body,
/// before its last byte.
fn cuts(bytes: usize) -> Vec<usize> {
    let mut cuts = vec![1, 3, 4, 6, 8, 9, 40.min(bytes / 2), bytes / 2, bytes - 1];
    cuts.dedup();
    cuts
}

/// A request of this kind, in the name of `client_id`.
fn request(kind: &str, broker: &Broker, correlation: i32, client_id: &str) -> Vec<u8> {
    let id = Some(client_id);
    let part = |partition, bytes| {
        let batch = batch_of_bytes(bytes).build();
        Part::at(&broker.topic("orders"), partition, batch)
    };
    match kind {
        "plain" => frame(&HeartbeatRequest::default(), 3, correlation, id),
        "fetch-4" => frame(&FetchRequest::default(), 4, correlation, id),
        "fetch-17" => frame(&FetchRequest::default(), 17, correlation, id),
        // Before version 8 a refusal has no text, and so no number of its own.
        "merged" => {
            let parts = [part(0, 300), part(1, 2000), part(2, 300)];
            frame(&produce_request(None, -1, &parts), 7, correlation, id)
        }
        "explained" => {
            let parts: Vec<Part> = (0..8).map(|at| part(at, 300)).collect();
            frame(&produce_request(None, -1, &parts), 9, correlation, id)
        }
        "metadata" => frame(
            &MetadataRequest::default().with_topics(None),
            9,
            correlation,
            id,
        ),
        "api-versions" => frame(&ApiVersionsRequest::default(), 3, correlation, id),
        "coordinator" => frame(
            &FindCoordinatorRequest::default().with_key(text("group")),
            3,
            correlation,
            id,
        ),
        other => panic!("{other}"),
    }
}

/// What the broker answers, whole.
fn response(request: &Request, cluster: &Cluster) -> Vec<u8> {
    match ApiKey::try_from(request.api_key).unwrap() {
        ApiKey::Heartbeat => request.response(&HeartbeatResponse::default()),
        ApiKey::Fetch => {
            let partition = PartitionData::default().with_records(Some(vec![7; LARGE].into()));
            let topic = FetchableTopicResponse::default()
                .with_topic(TopicName(text("orders")))
                .with_topic_id(cluster.topics[0].topic.id)
                .with_partitions(vec![partition]);
            let mut response = FetchResponse::default().with_responses(vec![topic]);
            if request.version >= 16 {
                let node = NodeEndpoint::default()
                    .with_node_id(BrokerId(1))
                    .with_host(text("a.broker.nobody.should.see.example"))
                    .with_port(9092);
                response = response.with_node_endpoints(vec![node]);
            }
            request.response(&response)
        }
        ApiKey::Produce if request.version == 9 => {
            let mut refused: ProduceResponse = scripted::produced(&request.decode(), 9);
            let all = refused
                .responses
                .iter_mut()
                .flat_map(|topic| &mut topic.partition_responses);
            all.for_each(|partition| partition.error_code = 10);
            request.response(&refused)
        }
        ApiKey::Metadata => {
            let mut found = scripted::sound(request, cluster).unwrap();
            // Many topics more: most of the response stands behind its broker list.
            let mut body = bytes::Bytes::from(found.split_off(4));
            kafka_protocol::protocol::Decodable::decode(&mut body, 1)
                .map(|_: kafka_protocol::messages::ResponseHeader| ())
                .unwrap();
            let mut sound: MetadataResponse =
                kafka_protocol::protocol::Decodable::decode(&mut body, request.version).unwrap();
            sound.topics.extend((0..2000).map(|n| {
                MetadataResponseTopic::default()
                    .with_error_code(5)
                    .with_name(Some(TopicName(text(&format!("another-{n}")))))
            }));
            request.response(&sound)
        }
        ApiKey::FindCoordinator => request.response(
            &FindCoordinatorResponse::default()
                .with_node_id(BrokerId(1))
                .with_host(text("secret.example"))
                .with_port(9092),
        ),
        _ => scripted::sound(request, cluster).unwrap(),
    }
}

/// A broker that answers clients named `cut-N` in two pieces, the second when the test says so.
struct InPieces {
    broker: Broker,
    /// First pieces that are on their way.
    begun: Arc<AtomicUsize>,
    go_on: CancellationToken,
}

impl InPieces {
    fn start() -> Self {
        let (begun, go_on) = (Arc::<AtomicUsize>::default(), CancellationToken::new());
        let (told, until) = (Arc::clone(&begun), go_on.clone());
        let broker = Broker::start(&topics(), move |request, cluster| {
            let id = String::from_utf8_lossy(request.client_id()?).into_owned();
            if !id.starts_with("cut-") && id != "whole" {
                return None;
            }
            let mut response = response(request, cluster);
            let Some(at) = id.strip_prefix("cut-") else {
                return Some(vec![Step::Send(response)]);
            };
            // Merging and rewriting may make it longer.
            let at: usize = at.parse().unwrap();
            let rest = response.split_off(at.min(response.len() - 1));
            Some(vec![
                Step::Send(response),
                Step::Tell(Arc::clone(&told)),
                Step::Until(until.clone()),
                Step::Send(rest),
            ])
        });
        Self {
            broker,
            begun,
            go_on,
        }
    }

    fn wait_for_first_pieces(&self, count: usize) {
        eventually(PATIENCE, "every first piece is on its way", || {
            (self.begun.load(Ordering::SeqCst) == count).then_some(())
        });
        std::thread::sleep(A_WHILE);
    }
}

/// A client that waits for a response in two pieces.
struct Waiting {
    name: String,
    connection: Connection,
    /// What it must get, frame by frame.
    expected: Vec<Vec<u8>>,
}

impl Waiting {
    fn half_close(&mut self) {
        self.connection.half_close();
    }

    fn assert_gets_everything(mut self, ends: bool) {
        for (nth, expected) in self.expected.iter().enumerate() {
            let got = self.connection.read_frame();
            let got = got.unwrap_or_else(|end| panic!("{}, answer {nth}: {end:?}", self.name));
            assert!(got == *expected, "{}, answer {nth} differs", self.name);
        }
        if ends {
            let end = self.connection.read_frame_within(PATIENCE).err();
            assert_eq!(end, Some(ErrorKind::Closed), "{}", self.name);
        }
    }
}

/// One client for each kind and cut. Every other one has further requests in flight behind the one that is cut.
fn clients(in_pieces: &InPieces, proxy: &Inside) -> Vec<Waiting> {
    let mut clients = Vec::new();
    for kind in KINDS {
        let broker = &in_pieces.broker;
        // What the responses are where they come whole.
        let mut whole = proxy.connect();
        let mut expected = |correlation| {
            whole.send_bytes(&request(kind, broker, correlation, "whole"));
            whole.read_frame().unwrap()
        };
        let (first, second, third) = (expected(1), expected(2), expected(3));
        for (nth, at) in cuts(first.len()).into_iter().enumerate() {
            let mut connection = proxy.connect();
            connection.send_bytes(&request(kind, broker, 1, &format!("cut-{at}")));
            let mut expected = vec![first.clone()];
            if nth % 2 == 1 {
                connection.send_bytes(&request(kind, broker, 2, "whole"));
                connection.send_bytes(&request(kind, broker, 3, "whole"));
                expected.extend([second.clone(), third.clone()]);
            }
            clients.push(Waiting {
                name: format!("{kind} cut at {at}"),
                connection,
                expected,
            });
        }
    }
    clients
}

fn assert_all_get_everything(clients: Vec<Waiting>, end: bool) {
    std::thread::scope(|scope| {
        for client in clients {
            scope.spawn(move || client.assert_gets_everything(end));
        }
    });
}

#[test]
fn a_client_that_half_closes_right_after_its_request_gets_every_byte() {
    let in_pieces = InPieces::start();
    let proxy = Inside::start(&in_pieces.broker, &[], "");
    let mut clients = clients(&in_pieces, &proxy);
    clients.iter_mut().for_each(Waiting::half_close);
    in_pieces.wait_for_first_pieces(clients.len());
    in_pieces.go_on.cancel();
    assert_all_get_everything(clients, true);
    proxy.wait_until_nothing_is_held();
}

#[test]
fn a_client_that_half_closes_between_two_pieces_gets_every_byte() {
    let in_pieces = InPieces::start();
    let proxy = Inside::start(&in_pieces.broker, &[], "");
    let mut clients = clients(&in_pieces, &proxy);
    in_pieces.wait_for_first_pieces(clients.len());
    clients.iter_mut().for_each(Waiting::half_close);
    std::thread::sleep(A_WHILE);
    in_pieces.go_on.cancel();
    assert_all_get_everything(clients, true);
    proxy.wait_until_nothing_is_held();
}

#[test]
fn a_drain_between_two_pieces_waits_for_every_byte() {
    let in_pieces = InPieces::start();
    let proxy = Inside::start(&in_pieces.broker, &[], "");
    let clients = clients(&in_pieces, &proxy);
    in_pieces.wait_for_first_pieces(clients.len());
    proxy.drain();
    std::thread::sleep(A_WHILE);
    in_pieces.go_on.cancel();
    assert_all_get_everything(clients, true);
    proxy.wait_until_nothing_is_held();
}

#[test]
fn a_broker_that_pauses_for_longer_than_the_idle_timeout_is_waited_for() {
    let in_pieces = InPieces::start();
    let idle = format!("idle_timeout: {}s", IDLE.as_secs());
    let proxy = Inside::start(&in_pieces.broker, &[&idle], "");
    let clients = clients(&in_pieces, &proxy);
    in_pieces.wait_for_first_pieces(clients.len());
    std::thread::sleep(IDLE * 2);
    in_pieces.go_on.cancel();
    assert_all_get_everything(clients, false);
}

#[test]
fn a_reload_between_two_pieces_changes_nothing_of_them() {
    let in_pieces = InPieces::start();
    let proxy = Inside::start(&in_pieces.broker, &[], "");
    let clients = clients(&in_pieces, &proxy);
    in_pieces.wait_for_first_pieces(clients.len());
    proxy.reload("mode: observe\nrules: [{name: r, topics: ['*'], limits: {batch_bytes: 100}}]");
    in_pieces.go_on.cancel();
    assert_all_get_everything(clients, false);
}

#[test]
fn sigterm_between_two_pieces_waits_for_every_byte() {
    let in_pieces = InPieces::start();
    let broker = &in_pieces.broker;
    let mut sizegate = Sizegate::before(&broker.bootstrap()).start();
    let mut clients = Vec::new();
    for (kind, at) in [("fetch-4", 2000), ("fetch-17", 600_000), ("merged", 20)] {
        let mut whole = Connection::open(sizegate.bootstrap());
        whole.send_bytes(&request(kind, broker, 1, "whole"));
        let expected = vec![whole.read_frame().unwrap()];
        let mut connection = Connection::open(sizegate.bootstrap());
        connection.send_bytes(&request(kind, broker, 1, &format!("cut-{at}")));
        clients.push(Waiting {
            name: format!("{kind} cut at {at}"),
            connection,
            expected,
        });
    }
    in_pieces.wait_for_first_pieces(clients.len());
    sizegate.process().signal("TERM");
    sizegate.log_line(&["going down"]);
    std::thread::sleep(A_WHILE);
    in_pieces.go_on.cancel();
    assert_all_get_everything(clients, true);
    assert_eq!(sizegate.process().wait(PATIENCE), Some(0));
}
