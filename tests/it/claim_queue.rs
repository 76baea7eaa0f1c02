//! Requests of one connection that wait side by side and leave in their order: the broker is scripted, and the object
//! store keeps every PUT until the test lets it go.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::{ApiKey, MetadataRequest, MetadataResponse};

use crate::support::client::{frame, produce_request};
use crate::support::scripted::{self, Broker, Step};
use crate::support::{Connection, ErrorKind, Inside, Part, Record, batch, eventually};

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);
/// Requests of one connection that wait at once.
const MOST_WAITING: usize = 16;

/// An S3 that takes every object and says so when it is told to. Objects go by the first byte of their value.
#[derive(Clone, Default)]
struct HeldStore {
    state: Arc<(Mutex<State>, Condvar)>,
}

#[derive(Default)]
struct State {
    /// PUTs that have come and were not answered, by object.
    held: BTreeMap<u8, usize>,
    released: BTreeSet<u8>,
    answered: BTreeSet<u8>,
}

impl HeldStore {
    /// Starts it; its port.
    fn start() -> (Self, u16) {
        let store = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = store.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let serving = serving.clone();
                std::thread::spawn(move || serving.serve(stream.unwrap()));
            }
        });
        (store, port)
    }

    fn serve(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let object = body[0];
        let (state, changed) = &*self.state;
        let mut state = state.lock().unwrap();
        *state.held.entry(object).or_default() += 1;
        let mut state = changed
            .wait_while(state, |state| !state.released.contains(&object))
            .unwrap();
        state.held.remove(&object);
        state.answered.insert(object);
        drop(state);
        let _ = stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\netag: \"e\"\r\nconnection: close\r\n\r\n",
        );
    }

    fn held(&self) -> Vec<u8> {
        self.state.0.lock().unwrap().held.keys().copied().collect()
    }

    /// Waits until PUTs of exactly these objects are there at once.
    fn wait_until_held(&self, objects: impl IntoIterator<Item = u8>) {
        let objects: Vec<u8> = objects.into_iter().collect();
        eventually(PATIENCE, &format!("the store holds {objects:?}"), || {
            (self.held() == objects).then_some(())
        });
    }

    /// Answers the PUT of these objects, now or when it comes, and waits until it has.
    fn release(&self, objects: impl IntoIterator<Item = u8>) {
        let objects: BTreeSet<u8> = objects.into_iter().collect();
        let (state, changed) = &*self.state;
        state.lock().unwrap().released.extend(&objects);
        changed.notify_all();
        eventually(PATIENCE, &format!("{objects:?} are stored"), || {
            objects
                .is_subset(&state.lock().unwrap().answered)
                .then_some(())
        });
    }
}

const RULE: &str = "limits: {record_bytes: 64KiB, batch_bytes: 1MiB, key_bytes: 1KiB}";

fn yaml(port: u16, rule: &str) -> String {
    format!(
        "claim_check:\n  store: s3://bucket/claims\n  store_options: {{endpoint: 'http://127.0.0.1:{port}', region: \
         eu-west-1, allow_http: 'true', access_key_id: k, secret_access_key: s}}\n  \
         keys: [{{id: k1, secret: 'a secret of thirty-two bytes, yes'}}]\n\
         rules:\n- name: large\n  topics: ['*']\n  {rule}\n  action: offload\n  offload: {{redeem: false}}\n"
    )
}

struct Setting {
    broker: Broker,
    store: HeldStore,
    port: u16,
    proxy: Inside,
}

fn setting() -> Setting {
    setting_before(Broker::sound(&topics()))
}

fn setting_before(broker: Broker) -> Setting {
    let (store, port) = HeldStore::start();
    let proxy = Inside::start(&broker, &[], &yaml(port, RULE));
    Setting {
        broker,
        store,
        port,
        proxy,
    }
}

fn topics() -> [(&'static str, i32, u64); 1] {
    [("wide", 4, 200_000_000)]
}

impl Setting {
    fn part(&self, records: Bytes) -> Part {
        Part::new(&self.broker.topic("wide"), records)
    }

    /// A value that is offloaded, and known by this byte to the store.
    fn large(&self, object: u8) -> Part {
        self.part(batch([Record::value(vec![object; 100_000])]).build())
    }

    /// Within every limit, whatever the size of the batch.
    fn plain(&self, bytes: usize) -> Part {
        let records = bytes.div_ceil(10_000);
        self.part(batch((0..records).map(|_| Record::of_a(bytes / records))).build())
    }

    /// No ticket mends a key. Each is another one: the same again would be taken for a loop.
    fn refused(&self, n: u8) -> Part {
        self.part(batch([Record::value("v").key(vec![n; 2_000])]).build())
    }

    /// Sends one Produce for each part.
    fn send(&self, connection: &mut Connection, parts: impl IntoIterator<Item = Part>) -> Vec<i32> {
        let parts = parts.into_iter();
        parts
            .map(|part| connection.send_produce(9, -1, &[part]))
            .collect()
    }

    /// Correlation ids of the Produce requests that one connection's broker has received, and whether values were in
    /// them. The first connection with any is 0.
    fn forwarded(&self, client_id: &str) -> Vec<(i32, bool)> {
        let received = self.broker.received_of(ApiKey::Produce);
        received
            .iter()
            .filter(|request| request.client_id() == Some(client_id.as_bytes()))
            .map(|request| (request.correlation_id, request.body.len() > 100_000))
            .collect()
    }

    /// Sessions on both workers are served.
    fn assert_others_work(&self) {
        for _ in 0..2 {
            let mut other = self.connect("other");
            let responses = other.produce(9, -1, &[self.plain(100)]);
            assert_eq!(responses[0].code, 0, "{responses:?}");
        }
    }

    fn connect(&self, client_id: &str) -> Connection {
        let mut connection = self.proxy.connect();
        connection.client_id = Some(client_id.to_owned());
        connection
    }
}

/// Code of the response that comes next, which is to this request.
fn next_code(connection: &mut Connection, correlation_id: i32) -> i16 {
    let (answered, responses) = connection.receive_produce(9).unwrap();
    assert_eq!(answered, correlation_id, "the next response");
    responses[0].code
}

fn assert_closed(connection: &mut Connection) {
    let end = connection.read_frame_within(PATIENCE);
    assert_eq!(end.err(), Some(ErrorKind::Closed));
}

#[test]
fn five_in_flight_are_uploaded_side_by_side_and_forwarded_in_their_order() {
    let setting = setting();
    let mut connection = setting.connect("five");
    let sent = setting.send(&mut connection, (1..=5).map(|object| setting.large(object)));
    setting.store.wait_until_held(1..=5);
    setting.assert_others_work();
    // The last first: none may overtake.
    for object in (2..=5).rev() {
        setting.store.release([object]);
    }
    setting.assert_others_work();
    assert_eq!(setting.forwarded("five"), []);
    setting.store.release([1]);
    for correlation_id in &sent {
        assert_eq!(next_code(&mut connection, *correlation_id), 0);
    }
    let in_order: Vec<(i32, bool)> = sent.into_iter().map(|sent| (sent, false)).collect();
    assert_eq!(setting.forwarded("five"), in_order);
    setting.proxy.wait_until_nothing_is_held();
}

#[test]
fn whatever_is_pipelined_is_answered_and_forwarded_in_its_order() {
    let setting = setting();
    let mut connection = setting.connect("mixed");
    let mut expected: Vec<(i32, Option<i16>)> = Vec::new();
    let mut forwarded = Vec::new();
    let mut bytes = Vec::new();
    let mut next = 1;
    let mut push = |part: Option<Part>, acks: i16, code: i16| {
        let metadata = MetadataRequest::default().with_topics(None);
        bytes.extend(match &part {
            Some(part) => {
                let request = produce_request(None, acks, std::slice::from_ref(part));
                frame(&request, 9, next, Some("mixed"))
            }
            None => frame(&metadata, 9, next, Some("mixed")),
        });
        match part {
            Some(_) if acks == 0 => {}
            Some(_) => expected.push((next, Some(code))),
            None => expected.push((next, None)),
        }
        if code == 0 && part.is_some() {
            forwarded.push(next);
        }
        next += 1;
    };
    for round in 0..3_u8 {
        let object = round * 2 + 1;
        push(Some(setting.plain(300)), -1, 0);
        push(Some(setting.large(object)), -1, 0);
        push(Some(setting.plain(300)), -1, 0);
        push(Some(setting.refused(object)), -1, 10);
        push(Some(setting.plain(300)), 0, 0);
        push(Some(setting.plain(300_000)), 1, 0);
        push(Some(setting.large(object + 1)), 1, 0);
        push(Some(setting.plain(100)), -1, 0);
        push(None, -1, 0);
        push(Some(setting.refused(object + 1)), -1, 10);
        push(None, -1, 0);
    }
    // Cut anywhere.
    for piece in bytes.chunks(70_001) {
        connection.send_bytes(piece);
    }
    // Metadata streams through: what comes after it waits outside.
    setting.store.wait_until_held(1..=2);
    setting.store.release((1..=6).rev());
    for (correlation_id, code) in expected {
        match code {
            Some(code) => assert_eq!(next_code(&mut connection, correlation_id), code),
            None => {
                let (answered, _) = connection.receive::<MetadataResponse>(9);
                assert_eq!(answered, correlation_id);
            }
        }
    }
    let received = setting.forwarded("mixed");
    let received: Vec<i32> = received.iter().map(|(sent, _)| *sent).collect();
    assert_eq!(received, forwarded);
    setting.proxy.wait_until_nothing_is_held();
}

#[test]
fn so_many_wait_at_once_and_the_rest_follow_as_these_leave() {
    let setting = setting();
    let mut connection = setting.connect("many");
    let many = 2 * MOST_WAITING as u8 + 5;
    let sent = setting.send(
        &mut connection,
        (1..=many).map(|object| setting.large(object)),
    );
    setting.store.wait_until_held(1..=MOST_WAITING as u8);
    setting.assert_others_work();
    assert_eq!(setting.store.held().len(), MOST_WAITING);
    // One leaves, one follows.
    setting.store.release([1]);
    setting.store.wait_until_held(2..=MOST_WAITING as u8 + 1);
    setting.store.release(2..=many);
    for correlation_id in &sent {
        assert_eq!(next_code(&mut connection, *correlation_id), 0);
    }
    let in_order: Vec<(i32, bool)> = sent.into_iter().map(|sent| (sent, false)).collect();
    assert_eq!(setting.forwarded("many"), in_order);
}

#[test]
fn while_memory_is_short_one_follows_the_other() {
    let setting = setting();
    let mut connection = setting.connect("short");
    let budget = &setting.proxy.shared.budget;
    let short = budget.charge(1 << 30);
    assert!(budget.is_short());
    let sent = setting.send(&mut connection, (1..=3).map(|object| setting.large(object)));
    for object in 1..=3 {
        setting.store.wait_until_held([object]);
        setting.assert_others_work();
        assert_eq!(setting.store.held(), [object]);
        setting.store.release([object]);
    }
    for correlation_id in sent {
        assert_eq!(next_code(&mut connection, correlation_id), 0);
    }
    drop(short);
    setting.proxy.wait_until_nothing_is_held();
}

#[test]
fn a_client_that_half_closes_gets_the_responses_to_all_that_wait() {
    let setting = setting();
    // The last of them is not all there, and never will be.
    for (nth, half) in (0..).zip([0, 3, 11, 5_000, 700_000]) {
        let mut connection = setting.connect(&format!("half-{half}"));
        let objects = [1, 2, 3].map(|n| n + 3 * nth);
        let mut sent = setting.send(&mut connection, objects.map(|object| setting.large(object)));
        sent.extend(setting.send(&mut connection, [setting.plain(100)]));
        let last = produce_request(None, -1, &[setting.plain(900_000)]);
        connection.send_bytes(&frame(&last, 9, 99, None)[..half]);
        connection.half_close();
        setting.store.wait_until_held(objects);
        setting.store.release(objects);
        for correlation_id in &sent {
            assert_eq!(next_code(&mut connection, *correlation_id), 0);
        }
        assert_closed(&mut connection);
        assert_eq!(setting.forwarded(&format!("half-{half}")).len(), sent.len());
    }
    setting.proxy.wait_until_nothing_is_held();
}

#[test]
fn a_frame_that_is_half_here_comes_to_its_end_while_others_wait() {
    let setting = setting();
    let mut connection = setting.connect("half");
    let first = setting.send(&mut connection, [setting.large(1)])[0];
    setting.store.wait_until_held([1]);
    let last = produce_request(None, -1, &[setting.plain(900_000)]);
    let last = frame(&last, 9, 2, Some("half"));
    let (begin, end) = last.split_at(500_000);
    connection.send_bytes(begin);
    setting.assert_others_work();
    // What waited leaves before the rest of the next is here …
    setting.store.release([1]);
    assert_eq!(next_code(&mut connection, first), 0);
    connection.send_bytes(end);
    assert_eq!(next_code(&mut connection, 2), 0);
    // … and the next becomes whole before what waits has left.
    let third = setting.send(&mut connection, [setting.large(3)])[0];
    connection.send_bytes(begin);
    setting.store.wait_until_held([3]);
    connection.send_bytes(end);
    setting.assert_others_work();
    setting.store.release([3]);
    assert_eq!(next_code(&mut connection, third), 0);
    assert_eq!(next_code(&mut connection, 2), 0);
    setting.proxy.wait_until_nothing_is_held();
}

#[test]
fn a_drain_waits_for_all_that_wait() {
    let setting = setting();
    let mut connection = setting.connect("drain");
    let sent = setting.send(&mut connection, (1..=3).map(|object| setting.large(object)));
    setting.store.wait_until_held(1..=3);
    setting.proxy.drain();
    setting.store.release((1..=3).rev());
    for correlation_id in sent {
        assert_eq!(next_code(&mut connection, correlation_id), 0);
    }
    assert_closed(&mut connection);
}

#[test]
fn after_a_refusal_that_closes_nothing_that_waited_behind_it_is_forwarded() {
    let setting = setting();
    let mut connection = setting.connect("closes");
    let first = setting.send(&mut connection, [setting.large(1)])[0];
    connection.send_produce(9, 0, &[setting.refused(1)]);
    setting.send(&mut connection, [setting.large(2), setting.plain(100)]);
    setting.store.wait_until_held(1..=2);
    setting.store.release([2, 1]);
    assert_eq!(next_code(&mut connection, first), 0);
    assert_closed(&mut connection);
    setting.proxy.log_line(
        &connection,
        &["connection closed", "refused_without_answer"],
    );
    assert_eq!(setting.forwarded("closes"), [(first, false)]);
    setting.proxy.wait_until_nothing_is_held();
}

#[test]
fn what_is_malformed_ends_the_connection_when_those_before_it_are_answered() {
    let setting = setting();
    let mut connection = setting.connect("malformed");
    let first = setting.send(&mut connection, [setting.large(1)])[0];
    let plain = produce_request(None, -1, &[setting.plain(100)]);
    let mut malformed = frame(&plain, 9, 2, Some("malformed"));
    // The number of topics.
    let at = malformed.len() - (setting.plain(100).records.unwrap().len() + 20);
    malformed[at..at + 5].fill(0xff);
    connection.send_bytes(&malformed);
    connection.send_bytes(&frame(&plain, 9, 3, Some("malformed")));
    setting.store.wait_until_held([1]);
    setting.store.release([1]);
    assert_eq!(next_code(&mut connection, first), 0);
    assert_closed(&mut connection);
    setting
        .proxy
        .log_line(&connection, &["connection closed", "malformed_request"]);
    assert_eq!(setting.forwarded("malformed"), [(first, false)]);
}

#[test]
fn a_request_that_waits_behind_others_is_judged_by_the_rules_it_came_under() {
    let setting = setting();
    let mut connection = setting.connect("rules");
    let sent = setting.send(
        &mut connection,
        [setting.large(1), setting.plain(300), setting.large(2)],
    );
    setting.store.wait_until_held(1..=2);
    setting.assert_others_work();
    let strict = "limits: {batch_bytes: 100}\n  error_code: MESSAGE_TOO_LARGE";
    setting.proxy.reload(
        &yaml(setting.port, strict).replace("action: offload\n  offload: {redeem: false}", ""),
    );
    let last = setting.send(&mut connection, [setting.plain(300)])[0];
    setting.store.release(1..=2);
    for correlation_id in sent {
        assert_eq!(next_code(&mut connection, correlation_id), 0);
    }
    assert_eq!(next_code(&mut connection, last), 10);
}

#[test]
fn what_waited_behind_others_is_not_refused_by_what_the_broker_said_before() {
    let limit = Arc::new(AtomicU64::new(1_000));
    let theirs = Arc::clone(&limit);
    let broker = Broker::start_behind(
        &topics(),
        |_, _| None,
        move |request, cluster| {
            let mut cluster = cluster.clone();
            cluster.topics[0].max_message_bytes = theirs.load(Ordering::SeqCst);
            scripted::sound(request, &cluster).map(|bytes| vec![Step::Send(bytes)])
        },
    );
    let (store, port) = HeldStore::start();
    let proxy = Inside::start(&broker, &[], &yaml(port, "limits: {record_bytes: 64KiB}"));
    let setting = Setting {
        broker,
        store,
        port,
        proxy,
    };
    let mut connection = setting.connect("raised");
    // A ticket is below 1,000 bytes, 30 records of 100 are not.
    let many = setting.part(batch((0..30).map(|_| Record::of_a(100))).build());
    let refused = setting.send(&mut connection, [many.clone()])[0];
    assert_eq!(next_code(&mut connection, refused), 10);
    let sent = setting.send(&mut connection, [setting.large(1), many.clone(), many]);
    setting.store.wait_until_held([1]);
    setting.assert_others_work();
    limit.store(1_000_000, Ordering::SeqCst);
    setting.store.release([1]);
    for correlation_id in sent {
        assert_eq!(next_code(&mut connection, correlation_id), 0);
    }
}
