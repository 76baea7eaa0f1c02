//! Consumers of topics without tickets, where tickets of another topic are redeemed: what they ask for goes as it came, and
//! what they are served streams past; whichever topics a fetch session comes to ask for, and whatever is reloaded meanwhile.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::fetch_response::{
    FetchResponse, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::{ApiKey, BrokerId, FetchRequest, TopicName};
use tokio_util::sync::CancellationToken;

use crate::claim_hostile::{Issued, SECRET, TOPIC, values};
use crate::support::client::{frame, text};
use crate::support::scripted::{Broker, Cluster, Request, Step};
use crate::support::{Connection, Inside, Topic, batch, batch_of_bytes, eventually};

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for the proxy to do the wrong thing. No test depends on what it does meanwhile.
const A_WHILE: Duration = Duration::from_millis(200);
/// Its values are never offloaded.
const OTHER: &str = "others";
/// A batch of it: of a response in halves both are runs.
const OTHER_BYTES: usize = 400_000;
/// What is asked for, of a partition and in all.
const MAX_BYTES: i32 = 50 << 20;
/// As `proxy::claim_fetches` lowers them.
const LOWERED: (i32, i32) = (64 << 10, 32 << 20);

/// A claim check, and nothing for it to do.
fn store(issued: &Issued) -> String {
    format!(
        "claim_check: {{store: 'file://{}', keys: [{{id: k1, secret: '{SECRET}'}}]}}\n",
        issued.folder.display()
    )
}

/// The same, for these topics.
pub fn redeems(issued: &Issued, topics: &str) -> String {
    let rule = format!(
        "{{name: large, topics: ['{topics}'], limits: {{record_bytes: 64KiB}}, action: offload}}"
    );
    format!("{}rules: [{rule}]\n", store(issued))
}

/// A broker with one fetch session, whose responses come in halves.
struct Halves {
    broker: Broker,
    /// Bytes of the first half of the last response.
    first: Arc<AtomicUsize>,
    /// The second half is not sent before.
    go_on: Arc<Mutex<CancellationToken>>,
}

impl Halves {
    fn start(ticket: Bytes) -> Self {
        let first_bytes = Arc::new(AtomicUsize::new(0));
        let first_half = Arc::clone(&first_bytes);
        let go_on = Arc::new(Mutex::new(CancellationToken::new()));
        let (session, told) = (Mutex::new(BTreeSet::new()), Arc::clone(&go_on));
        let other = batch_of_bytes(OTHER_BYTES).build();
        let topics = [(TOPIC, 1, 1 << 20), (OTHER, 1, 1 << 20)];
        let broker = Broker::start(&topics, move |request, cluster| {
            if request.api_key != ApiKey::Fetch as i16 {
                return None;
            }
            let asked = asked(request, cluster, &mut session.lock().unwrap());
            let served = asked.iter().map(|name| match name.as_str() {
                OTHER => serves(cluster, OTHER, other.clone()),
                name => serves(cluster, name, ticket.clone()),
            });
            let response = FetchResponse::default()
                .with_session_id(7)
                .with_responses(served.collect());
            let mut first = request.response(&response);
            let second = first.split_off(first.len() / 2);
            first_half.store(first.len(), SeqCst);
            let until = told.lock().unwrap().clone();
            Some(vec![
                Step::Send(first),
                Step::Until(until),
                Step::Send(second),
            ])
        });
        Self {
            broker,
            first: first_bytes,
            go_on,
        }
    }

    fn topic(&self, name: &str) -> Topic {
        self.broker.topic(name)
    }

    /// Sends it, and takes its response. If it `streams`, its first half comes before the broker has sent the second; else
    /// nothing does.
    fn ask(
        &self,
        connection: &mut Connection,
        request: &FetchRequest,
        version: i16,
        streams: bool,
    ) -> FetchResponse {
        let go_on = CancellationToken::new();
        *self.go_on.lock().unwrap() = go_on.clone();
        let before = self.broker.received_of(ApiKey::Fetch).len();
        connection.send(request, version);
        eventually(PATIENCE, "the broker has it", || {
            (self.broker.received_of(ApiKey::Fetch).len() > before).then_some(())
        });
        let stream = connection.stream();
        stream.set_read_timeout(Some(A_WHILE)).unwrap();
        if streams {
            eventually(PATIENCE, "the first half is here", || {
                let mut here = vec![0; self.first.load(SeqCst).min(20_000)];
                let bytes = stream.peek(&mut here).ok()?;
                (bytes > 0 && bytes == here.len()).then_some(())
            });
        } else {
            let began = stream.peek(&mut [0; 1]).is_ok();
            assert!(!began, "{version}: {request:?}");
        }
        stream.set_read_timeout(None).unwrap();
        go_on.cancel();
        connection.receive(version).1
    }

    /// The request as the broker got it.
    fn last(&self) -> Request {
        let received = self.broker.received_of(ApiKey::Fetch);
        received.last().unwrap().clone()
    }
}

/// The topics that a request asks for, those of its fetch session included.
fn asked(request: &Request, cluster: &Cluster, session: &mut BTreeSet<String>) -> Vec<String> {
    let asked: FetchRequest = request.decode();
    let name = |name: &TopicName, id| {
        let mut topics = cluster.topics.iter().map(|known| &known.topic);
        let known = topics.find(|topic| topic.id == id || topic.name == name.as_str());
        known.unwrap().name.clone()
    };
    if asked.session_epoch <= 0 {
        session.clear();
    }
    for gone in &asked.forgotten_topics_data {
        session.remove(&name(&gone.topic, gone.topic_id));
    }
    let named = asked.topics.iter();
    session.extend(named.map(|topic| name(&topic.topic, topic.topic_id)));
    session.iter().cloned().collect()
}

fn serves(cluster: &Cluster, name: &str, records: Bytes) -> FetchableTopicResponse {
    let mut topics = cluster.topics.iter().map(|known| &known.topic);
    let topic = topics.find(|topic| topic.name == name).unwrap();
    let partition = PartitionData::default()
        .with_high_watermark(1_000)
        .with_last_stable_offset(1_000)
        .with_records(Some(records));
    FetchableTopicResponse::default()
        .with_topic(TopicName(text(name)))
        .with_topic_id(topic.id)
        .with_partitions(vec![partition])
}

/// Asks for partition 0 of these topics, in the session with this epoch.
fn request(topics: &[&Topic], session_epoch: i32) -> FetchRequest {
    let topics = topics.iter().map(|topic| {
        let partition = FetchPartition::default()
            .with_partition_max_bytes(MAX_BYTES)
            .with_fetch_offset(0);
        FetchTopic::default()
            .with_topic(TopicName(text(&topic.name)))
            .with_topic_id(topic.id)
            .with_partitions(vec![partition])
    });
    FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(500)
        .with_min_bytes(1)
        .with_max_bytes(MAX_BYTES)
        .with_session_id(if session_epoch > 0 { 7 } else { 0 })
        .with_session_epoch(session_epoch)
        .with_topics(topics.collect())
}

/// The values of a topic in a response.
fn served(response: &FetchResponse, topic: &Topic) -> Vec<Bytes> {
    let of_topic =
        |of: &&FetchableTopicResponse| of.topic_id == topic.id || of.topic.as_str() == topic.name;
    let topics = response.responses.iter().filter(of_topic);
    let partitions = topics.flat_map(|of| &of.partitions);
    let records = partitions.filter_map(|of| of.records.as_ref());
    records.flat_map(values).collect()
}

#[test]
fn other_topics_stream_past_and_tickets_are_redeemed_in_one_connection() {
    let issued = Issued::new();
    let record = issued.record(&issued.ticket());
    let halves = Halves::start(batch([record]).build());
    let proxy = Inside::start(&halves.broker, &[], &redeems(&issued, "claims*"));
    let (claims, other) = (halves.topic(TOPIC), halves.topic(OTHER));
    for version in [12, 13, 15, 16, 18] {
        let mut connection = proxy.connect();
        let client_id = connection.client_id.clone();
        let mut ask = |request: &FetchRequest, streams: bool| {
            let response = halves.ask(&mut connection, request, version, streams);
            let sent = frame(request, version, 0, client_id.as_deref());
            let got = halves.last();
            // Behind the correlation id nothing is changed.
            let is_as_sent = got.body[8..] == sent[12..];
            assert_eq!(streams, is_as_sent, "{version}: {request:?}");
            let redeemed = served(&response, &claims);
            let others = served(&response, &other).len();
            assert!(redeemed.is_empty() || redeemed == [&issued.value[..]]);
            let got: FetchRequest = got.decode();
            for topic in &got.topics {
                let is_lowered = topic.partitions[0].partition_max_bytes == LOWERED.0;
                let is_claims = topic.topic_id == claims.id || topic.topic.as_str() == TOPIC;
                assert_eq!(is_lowered, is_claims, "{version}: {request:?}");
            }
            assert_eq!(got.max_bytes == LOWERED.1, !streams);
            (redeemed.len(), others)
        };
        // Without a session.
        assert_eq!(ask(&request(&[&other], -1), true), (0, 1), "{version}");
        assert_eq!(ask(&request(&[&claims], -1), false), (1, 0), "{version}");
        assert_eq!(ask(&request(&[&other], -1), true), (0, 1), "{version}");
        // In one: begun, gone on with, with another topic, gone on with, and without it.
        assert_eq!(ask(&request(&[&other], 0), true), (0, 1), "{version}");
        assert_eq!(ask(&request(&[], 1), true), (0, 1), "{version}");
        assert_eq!(ask(&request(&[&claims], 2), false), (1, 1), "{version}");
        assert_eq!(ask(&request(&[], 3), false), (1, 1), "{version}");
        let gone = ForgottenTopic::default()
            .with_topic(TopicName(text(&claims.name)))
            .with_topic_id(claims.id)
            .with_partitions(vec![0]);
        let without = request(&[], 4).with_forgotten_topics_data(vec![gone]);
        assert_eq!(ask(&without, true), (0, 1), "{version}");
        assert_eq!(ask(&request(&[&other], 5), true), (0, 1), "{version}");
        // And begun again with both.
        let both = request(&[&claims, &other], 0);
        assert_eq!(ask(&both, false), (1, 1), "{version}");
    }
    proxy.wait_until_nothing_is_held();
}

#[test]
fn a_request_that_comes_in_pieces_is_heard_like_any_other() {
    let issued = Issued::new();
    let record = issued.record(&issued.ticket());
    let halves = Halves::start(batch([record]).build());
    halves.go_on.lock().unwrap().cancel();
    let proxy = Inside::start(&halves.broker, &[], &redeems(&issued, "claims*"));
    let (claims, other) = (halves.topic(TOPIC), halves.topic(OTHER));
    for version in [12, 16] {
        let mut connection = proxy.connect();
        for (nth, at) in [3, 11, 20, 60].into_iter().enumerate() {
            for (topic, is_claims) in [(&claims, true), (&other, false)] {
                let sent = frame(&request(&[topic], -1), version, nth as i32, Some("pieces"));
                let (first, second) = sent.split_at(at);
                connection.send_bytes(first);
                // Most likely it is read by itself; nothing depends on it.
                std::thread::sleep(Duration::from_millis(20));
                connection.send_bytes(second);
                let (correlation, response): (_, FetchResponse) = connection.receive(version);
                assert_eq!(correlation, nth as i32);
                assert_eq!(halves.last().body[..] == sent[4..], !is_claims, "{at}");
                let served = served(&response, topic);
                assert_eq!(served.len(), 1, "{version} {at}");
                assert_eq!(served[0][..] == issued.value[..], is_claims);
            }
        }
    }
    proxy.wait_until_nothing_is_held();
}

#[test]
fn a_fetch_session_is_begun_again_once_a_reload_redeems_its_topic() {
    let issued = Issued::new();
    let record = issued.record(&issued.ticket());
    let stored = record.value.clone().unwrap();
    let halves = Halves::start(batch([record]).build());
    let (store, redeems) = (store(&issued), redeems(&issued, "claims*"));
    let proxy = Inside::start(&halves.broker, &[], &store);
    let claims = halves.topic(TOPIC);
    // Where nothing is redeemed, and where another topic is.
    for before in [store.clone(), self::redeems(&issued, "nothing")] {
        for version in [12, 16] {
            proxy.reload(&before);
            let connection = &mut proxy.connect();
            for request in [request(&[&claims], 0), request(&[], 1)] {
                let response = halves.ask(connection, &request, version, true);
                assert_eq!(served(&response, &claims), [&stored[..]]);
            }
            proxy.reload(&redeems);
            let refused = connection.ask(&request(&[], 2), version);
            assert_eq!((refused.error_code, refused.session_id), (70, 0));
            for request in [request(&[&claims], 0), request(&[], 1)] {
                let response = halves.ask(connection, &request, version, false);
                assert!(served(&response, &claims) == [&issued.value[..]]);
            }
            // Where nothing is redeemed any more it goes on; else each reload begins it again.
            proxy.reload(&before);
            if before == store {
                let response = halves.ask(connection, &request(&[], 2), version, true);
                assert_eq!(served(&response, &claims), [&stored[..]]);
            }
            proxy.reload(&redeems);
            let refused = connection.ask(&request(&[], 3), version);
            assert_eq!((refused.error_code, refused.session_id), (70, 0));
        }
    }
}
