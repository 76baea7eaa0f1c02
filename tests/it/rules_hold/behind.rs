//! Brokers whose metadata is not what their log takes: behind, hidden from us, or ahead of what was read.

use std::net::SocketAddr;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{ApiKey, BrokerId, MetadataRequest, MetadataResponse, TopicName};

use crate::support::client::{produce_request, text};
use crate::support::scripted::{Broker, Cluster, Request, Step};
use crate::support::{
    Connection, ErrorKind, Part, Record, Response, Sizegate, Topic, batch, eventually,
};

const PATIENCE: Duration = Duration::from_secs(60);
const RULE: &str = "rules: [{name: small, topics: [orders], limits: {record_bytes: 1000}}]";
const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
const MESSAGE_TOO_LARGE: i16 = 10;
const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
const UNKNOWN_TOPIC_ID: i16 = 100;

/// What a broker says of the topic `orders`, whatever its log takes.
#[derive(Clone)]
struct View {
    partitions: i32,
    /// A list of all topics names it.
    is_listed: bool,
    /// The error when it is asked for.
    error: i16,
    /// All brokers; this one alone where there are none.
    nodes: Vec<(i32, SocketAddr)>,
    /// How long a response takes.
    delay: Duration,
    /// Lists of all topics that were asked for, and other requests.
    lists: usize,
    asks: usize,
}

impl View {
    fn of(partitions: i32) -> Arc<Mutex<Self>> {
        Arc::new(Mutex::new(Self {
            partitions,
            is_listed: true,
            error: 0,
            nodes: Vec::new(),
            delay: Duration::ZERO,
            lists: 0,
            asks: 0,
        }))
    }

    fn nothing() -> Arc<Mutex<Self>> {
        let view = Self::of(1);
        {
            let mut view = view.lock().unwrap();
            view.is_listed = false;
            view.error = UNKNOWN_TOPIC_OR_PARTITION;
        }
        view
    }

    fn response(&mut self, request: &Request, cluster: &Cluster) -> Option<Vec<Step>> {
        if request.api_key != ApiKey::Metadata as i16 {
            return None;
        }
        let orders = &cluster.topics[0].topic;
        let here = || {
            let partitions = (0..self.partitions).map(|index| {
                MetadataResponsePartition::default()
                    .with_partition_index(index)
                    .with_leader_id(BrokerId(1))
            });
            MetadataResponseTopic::default()
                .with_name(Some(TopicName(text(&orders.name))))
                .with_topic_id(orders.id)
                .with_partitions(partitions.collect())
        };
        let asked: MetadataRequest = request.decode();
        let one = |wanted: &MetadataRequestTopic| {
            let is_by_id = wanted.name.is_none();
            let is_orders = wanted
                .name
                .as_ref()
                .map_or(wanted.topic_id == orders.id, |name| {
                    name.as_str() == orders.name
                });
            match self.error {
                0 if is_orders => here(),
                error => MetadataResponseTopic::default()
                    .with_error_code(match error {
                        TOPIC_AUTHORIZATION_FAILED if is_orders => error,
                        _ if is_by_id => UNKNOWN_TOPIC_ID,
                        _ => UNKNOWN_TOPIC_OR_PARTITION,
                    })
                    .with_name(wanted.name.clone())
                    .with_topic_id(wanted.topic_id),
            }
        };
        let topics = match &asked.topics {
            None if self.is_listed => vec![here()],
            None => Vec::new(),
            Some(wanted) => wanted.iter().map(one).collect(),
        };
        match asked.topics {
            None => self.lists += 1,
            Some(_) => self.asks += 1,
        }
        let nodes = match &self.nodes[..] {
            [] => vec![(1, cluster.address)],
            nodes => nodes.to_vec(),
        };
        let brokers = nodes.iter().map(|(id, address)| {
            MetadataResponseBroker::default()
                .with_node_id(BrokerId(*id))
                .with_host(text(&address.ip().to_string()))
                .with_port(address.port().into())
        });
        let response = MetadataResponse::default()
            .with_brokers(brokers.collect())
            .with_cluster_id(Some(text("behind")))
            .with_controller_id(BrokerId(1))
            .with_topics(topics);
        Some(vec![
            Step::Wait(self.delay),
            Step::Send(request.response(&response)),
        ])
    }
}

/// A broker that stores whatever comes, and says of its topics what the view says.
fn broker(view: &Arc<Mutex<View>>) -> Broker {
    let view = Arc::clone(view);
    Broker::start_behind(
        &[("orders", 9, 5_000)],
        |_, _| None,
        move |request, cluster| view.lock().unwrap().response(request, cluster),
    )
}

/// In front of it; `refresh` is how often all topics are listed.
fn proxy(broker: &Broker, refresh: &str, yaml: &str) -> Sizegate {
    Sizegate::before(&broker.bootstrap())
        .cluster(&format!("admin: {{refresh_interval: {refresh}}}"))
        .yaml(yaml)
        .start()
}

/// The topic; `view.error` says whether the broker knows it.
fn orders(broker: &Broker) -> Topic {
    broker.topic("orders")
}

/// A batch of one record with a value of so many bytes, unlike every other one: the same again would be a loop.
pub fn value(bytes: usize) -> Bytes {
    static TIME: Mutex<i64> = Mutex::new(1_700_000_000_000);
    let mut time = TIME.lock().unwrap();
    *time += 1;
    batch([Record::of_a(bytes)]).base_timestamp(*time).build()
}

fn small() -> Bytes {
    value(500)
}

fn large() -> Bytes {
    value(2_000)
}

fn send(connection: &mut Connection, version: i16, parts: &[Part]) -> Vec<i16> {
    let responses = connection.produce(version, -1, parts);
    responses.iter().map(|response| response.code).collect()
}

/// The batches that the broker was given, by their bytes.
fn stored(broker: &Broker) -> Vec<usize> {
    let requests = broker.received_of(ApiKey::Produce);
    let requests = requests.iter().map(|request| {
        let asked: kafka_protocol::messages::ProduceRequest = request.decode();
        asked
    });
    requests
        .flat_map(|asked| asked.topic_data)
        .flat_map(|topic| topic.partition_data)
        .map(|part| part.records.map_or(0, |records| records.len()))
        .collect()
}

/// W1: nobody tells the proxy of a new partition before its next refresh.
#[test]
fn a_rule_holds_on_a_partition_that_was_added_a_moment_ago() {
    for by_name in [true, false] {
        let version = if by_name { 9 } else { 13 };
        let view = View::of(1);
        let broker = broker(&view);
        let sizegate = proxy(&broker, "10m", RULE);
        let topic = orders(&broker);
        let mut old = Connection::open(sizegate.node(1));
        assert_eq!(
            send(&mut old, version, &[Part::at(&topic, 0, small())]),
            [0]
        );
        view.lock().unwrap().partitions = 2;
        let mut new = Connection::open(sizegate.node(1));
        for connection in [&mut old, &mut new] {
            let parts = [Part::at(&topic, 1, large()), Part::at(&topic, 0, small())];
            let responses = connection.produce(version, -1, &parts);
            let codes: Vec<i16> = responses.iter().map(|response| response.code).collect();
            assert_eq!(codes, [0, MESSAGE_TOO_LARGE], "v{version}");
            let text = responses[1].text.as_deref().unwrap_or_default();
            assert!(text.contains("gate=record"), "{text}");
            // One that the broker does not name either, though its log takes it.
            let parts = [Part::at(&topic, 7, large()), Part::at(&topic, 8, small())];
            let codes = send(connection, version, &parts);
            assert_eq!(codes, [UNKNOWN_TOPIC_OR_PARTITION, 0], "v{version}");
            for nowhere in [-1, i32::MIN] {
                let part = [Part::at(&topic, nowhere, large())];
                assert_eq!(
                    send(connection, version, &part),
                    [UNKNOWN_TOPIC_OR_PARTITION]
                );
            }
        }
        // What wants no response ends with the connection, as at the broker; the others are stored.
        let parts = [Part::at(&topic, 7, large()), Part::at(&topic, 8, small())];
        new.send_produce(version, 0, &parts);
        assert_eq!(new.read_frame(), Err(ErrorKind::Closed));
        let all = eventually(PATIENCE, "what was sent without a response", || {
            Some(stored(&broker)).filter(|all| all.len() == 6)
        });
        assert!(
            all.iter().all(|bytes| *bytes < 1_000),
            "v{version}: {all:?}"
        );
    }
}

/// W2: the topic was created a moment ago; the broker's log takes it, its metadata does not name it yet.
#[test]
fn a_rule_holds_where_a_brokers_metadata_is_behind_its_log() {
    let view = View::nothing();
    let broker = broker(&view);
    let sizegate = proxy(&broker, "10m", RULE);
    let topic = orders(&broker);
    // The bootstrap address, too: whichever broker that is.
    for address in [sizegate.node(1), sizegate.bootstrap()] {
        let mut connection = Connection::open(&address);
        for _ in 0..3 {
            let parts = [Part::at(&topic, 0, large()), Part::at(&topic, 1, small())];
            assert_eq!(
                send(&mut connection, 9, &parts),
                [UNKNOWN_TOPIC_OR_PARTITION, 0]
            );
            // By id nobody knows whose rule it is.
            assert_eq!(
                send(&mut connection, 13, &parts),
                [UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_ID]
            );
        }
    }
    let all = stored(&broker);
    assert!(
        all.len() == 6 && all.iter().all(|bytes| *bytes < 1_000),
        "{all:?}"
    );
    view.lock().unwrap().error = 0;
    let mut connection = Connection::open(sizegate.node(1));
    for version in [9, 13] {
        eventually(PATIENCE, "the broker names it", || {
            let parts = [Part::at(&topic, 0, large())];
            let codes = send(&mut connection, version, &parts);
            assert!(
                matches!(
                    codes[..],
                    [UNKNOWN_TOPIC_OR_PARTITION | UNKNOWN_TOPIC_ID | MESSAGE_TOO_LARGE]
                ),
                "{codes:?}"
            );
            (codes == [MESSAGE_TOO_LARGE]).then_some(())
        });
        assert_eq!(
            send(&mut connection, version, &[Part::at(&topic, 0, small())]),
            [0]
        );
    }
    let all = stored(&broker);
    assert!(all.iter().all(|bytes| *bytes < 1_000), "{all:?}");
}

/// W2: the broker that the control plane asks is behind the one that the session talks to.
#[test]
fn the_sessions_own_broker_is_asked_and_not_another_one() {
    for version in [9, 13] {
        let (behind, ahead) = (View::nothing(), View::of(1));
        let (one, two) = (broker(&behind), broker(&ahead));
        let nodes = vec![(1, one.cluster.address), (2, two.cluster.address)];
        for view in [&behind, &ahead] {
            view.lock().unwrap().nodes = nodes.clone();
        }
        let sizegate = proxy(&one, "10m", RULE);
        let topic = orders(&two);
        let mut connection = Connection::open(sizegate.node(2));
        let parts = [Part::at(&topic, 0, large())];
        assert_eq!(send(&mut connection, version, &parts), [MESSAGE_TOO_LARGE]);
        let parts = [Part::at(&topic, 0, small())];
        assert_eq!(send(&mut connection, version, &parts), [0]);
        // And it has one partition more, while the other still has not heard of it.
        ahead.lock().unwrap().partitions = 2;
        eventually(PATIENCE, "what was read 5 ms ago counts no longer", || {
            let codes = send(&mut connection, version, &[Part::at(&topic, 1, large())]);
            assert!(
                matches!(codes[..], [UNKNOWN_TOPIC_OR_PARTITION | MESSAGE_TOO_LARGE]),
                "{codes:?}"
            );
            (codes == [MESSAGE_TOO_LARGE]).then_some(())
        });
        let all = stored(&two);
        assert!(all.len() == 1 && all[0] < 1_000, "{all:?}");
        assert!(stored(&one).is_empty());
    }
}

/// Waits until all topics were listed twice from now: one list may be on its way.
fn listed_anew(view: &Mutex<View>) {
    let before = view.lock().unwrap().lists;
    eventually(PATIENCE, "all topics are listed again", || {
        (view.lock().unwrap().lists >= before + 2).then_some(())
    });
}

/// W3, R3: Describe is taken from the control plane and given back, under sessions that were open before.
#[test]
fn a_rule_holds_while_the_topic_is_hidden_from_us_and_after() {
    let view = View::of(1);
    let broker = broker(&view);
    let sizegate = proxy(&broker, "100ms", RULE);
    let topic = orders(&broker);
    let mut sessions = [9, 13].map(|version| (version, Connection::open(sizegate.node(1))));
    let mut holds = |partition: i32, case: &str| {
        for (version, connection) in &mut sessions {
            let parts = [Part::at(&topic, partition, large())];
            assert_eq!(
                send(connection, *version, &parts),
                [MESSAGE_TOO_LARGE],
                "v{version} {case}"
            );
            let parts = [Part::at(&topic, partition, small())];
            assert_eq!(send(connection, *version, &parts), [0], "v{version} {case}");
        }
    };
    holds(0, "before");
    {
        let mut view = view.lock().unwrap();
        (view.is_listed, view.error) = (false, TOPIC_AUTHORIZATION_FAILED);
    }
    listed_anew(&view);
    holds(0, "hidden");
    // One that was added meanwhile.
    view.lock().unwrap().partitions = 2;
    holds(1, "hidden, added");
    {
        let mut view = view.lock().unwrap();
        (view.is_listed, view.error) = (true, 0);
    }
    holds(1, "given back");
    listed_anew(&view);
    holds(1, "listed again");
    view.lock().unwrap().partitions = 3;
    holds(2, "added after");
    let all = stored(&broker);
    assert!(all.iter().all(|bytes| *bytes < 1_000), "{all:?}");
}

/// R3: what a session knows by id ends with what it was resolved from, as by name: limits are learned, batches counted.
#[test]
fn a_topic_that_one_list_did_not_name_is_resolved_again_by_old_sessions() {
    let view = View::of(1);
    let broker = broker(&view);
    let sizegate = proxy(&broker, "100ms", RULE);
    let topic = orders(&broker);
    let mut sessions = [9, 13].map(|version| (version, Connection::open(sizegate.node(1))));
    for (version, connection) in &mut sessions {
        assert_eq!(
            send(connection, *version, &[Part::at(&topic, 0, small())]),
            [0]
        );
    }
    // A broker that is behind has no such topic at all. A scrape meanwhile forgets what was counted of it.
    {
        let mut view = view.lock().unwrap();
        (view.is_listed, view.error) = (false, UNKNOWN_TOPIC_OR_PARTITION);
    }
    let counted = |verdict: &str| {
        let labels = [("topic", "orders"), ("verdict", verdict)];
        sizegate.metrics().sum("produce_batches_total", &labels)
    };
    eventually(PATIENCE, "the topic is gone", || {
        (counted("forwarded") == 0.0).then_some(())
    });
    {
        let mut view = view.lock().unwrap();
        (view.is_listed, view.error, view.partitions) = (true, 0, 2);
    }
    listed_anew(&view);
    for (version, connection) in &mut sessions {
        let (forwarded, refused) = (counted("forwarded"), counted("refused"));
        assert_eq!(
            send(connection, *version, &[Part::at(&topic, 1, small())]),
            [0]
        );
        let parts = [Part::at(&topic, 1, large())];
        assert_eq!(send(connection, *version, &parts), [MESSAGE_TOO_LARGE]);
        let counts = (counted("forwarded"), counted("refused"));
        assert_eq!(counts, (forwarded + 1.0, refused + 1.0), "v{version}");
        // Within the rule; the topic's own limit of 5,000 is learned.
        let parts = [Part::at(
            &topic,
            1,
            batch(vec![Record::of_a(900); 6]).build(),
        )];
        let response: Response = connection.produce(*version, -1, &parts).remove(0);
        let text = response.text.as_deref().unwrap_or_default();
        assert!(
            text.contains("limit_bytes=5000 source=topic"),
            "v{version}: {response:?}"
        );
    }
}

/// Many violations where nothing is known cost few requests, and never two at a time to one broker.
#[test]
fn askers_of_one_moment_share_a_request() {
    const ASKERS: usize = 40;
    const ROUNDS: usize = 3;
    let view = View::of(1);
    let broker = broker(&view);
    let sizegate = proxy(&broker, "10m", RULE);
    let topic = orders(&broker);
    view.lock().unwrap().delay = Duration::from_millis(300);
    let before = view.lock().unwrap().asks;
    let barrier = Barrier::new(ASKERS);
    std::thread::scope(|scope| {
        for asker in 0..ASKERS {
            let (sizegate, topic, barrier) = (&sizegate, &topic, &barrier);
            scope.spawn(move || {
                let mut connection = Connection::open(sizegate.node(1));
                for round in 0..ROUNDS {
                    barrier.wait();
                    let parts: Vec<Part> = (0..20)
                        .map(|n| Part::at(topic, 10 + (asker * round + n) as i32, large()))
                        .collect();
                    let codes = send(&mut connection, 9, &parts);
                    assert_eq!(codes, [UNKNOWN_TOPIC_OR_PARTITION; 20]);
                }
            });
        }
    });
    let asks = view.lock().unwrap().asks - before;
    // One for the first of a round, one for those that came meanwhile; a busy machine may need some more.
    assert!((ROUNDS..=ROUNDS * 5).contains(&asks), "{asks} requests");
    assert!(stored(&broker).is_empty());
}

/// A learned limit is exceeded first and then does not count: it must not hide the rule that is broken inside.
#[test]
fn a_learned_limit_that_falls_leaves_the_rules() {
    let view = View::of(2);
    let broker = broker(&view);
    let sizegate = proxy(&broker, "10m", RULE);
    let topic = orders(&broker);
    let mut connection = Connection::open(sizegate.node(1));
    for version in [9, 13] {
        // There is no such partition.
        let parts = [Part::at(&topic, 7, value(6_000))];
        assert_eq!(
            send(&mut connection, version, &parts),
            [UNKNOWN_TOPIC_OR_PARTITION]
        );
        // A transactional batch without a transactional id spoils the request, says the broker.
        let spoils = batch([Record::of_a(10)]).producer(7, 0, 0).transactional();
        let parts = [
            Part::at(&topic, 0, spoils.build()),
            Part::at(&topic, 1, value(6_000)),
        ];
        let responses = connection.produce(version, -1, &parts);
        let text = responses[1].text.as_deref().unwrap_or_default();
        assert!(
            responses[1].code == MESSAGE_TOO_LARGE && text.contains("gate=record"),
            "{responses:?}"
        );
    }
    let all = stored(&broker);
    assert!(
        all.len() == 2 && all.iter().all(|bytes| *bytes < 1_000),
        "{all:?}"
    );
}

/// W8: only the broker knows whether a transaction was begun, and it looks at that before it looks at sizes.
#[test]
fn a_transactional_batch_over_a_learned_limit_is_the_brokers_and_a_rule_refuses_it() {
    let view = View::of(1);
    let broker = broker(&view);
    let sizegate = proxy(&broker, "10m", RULE);
    let topic = orders(&broker);
    let mut connection = Connection::open(sizegate.node(1));
    for (version, records, code) in [
        (9, vec![Record::of_a(900); 6], 0),
        (13, vec![Record::of_a(900); 6], 0),
        (9, vec![Record::of_a(2_000)], MESSAGE_TOO_LARGE),
        (13, vec![Record::of_a(2_000)], MESSAGE_TOO_LARGE),
        (9, vec![Record::of_a(6_000)], MESSAGE_TOO_LARGE),
    ] {
        let records = batch(records).producer(7, 0, 0).transactional().build();
        let request = produce_request(Some("tx"), -1, &[Part::at(&topic, 0, records)]);
        connection.send(&request, version);
        let (_, responses) = connection.receive_produce(version).unwrap();
        assert_eq!(responses[0].code, code, "v{version}: {responses:?}");
        if code != 0 {
            let text = responses[0].text.as_deref().unwrap_or_default();
            assert!(text.contains("gate=record"), "{text}");
        }
    }
    assert_eq!(stored(&broker).len(), 2);
}
