//! The control plane against scripted brokers: sharing, absences, brokers that differ or go away.

mod last_value;
mod rubbish;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use kafka_protocol::messages::ApiKey;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::scripted::{self, ReceivedRequest, Reply, Scripted};
use super::{Cluster, LimitsUnread, Lookup, Origin};
use crate::config::{Config, HostPort, Sasl, SaslMechanism};
use crate::net::Connector;
use crate::vocabulary::Source;

const NOW: Duration = Duration::ZERO;
/// Longer than any test takes.
const LATELY: Duration = Duration::from_secs(60);
/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);
/// Attempts at what a busy machine may be too slow for: one that was is no verdict.
const ATTEMPTS: usize = 50;

/// A control plane that runs until dropped.
struct Running {
    cluster: Cluster,
    shutdown: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

fn run(config: &Config) -> Running {
    let connector = Connector::new(&config.cluster).unwrap();
    let cluster = Cluster::new(config, connector);
    let shutdown = CancellationToken::new();
    let (running, until) = (cluster.clone(), shutdown.clone());
    tokio::spawn(async move { running.run(until).await });
    Running { cluster, shutdown }
}

impl Running {
    async fn until(&self, what: &str, condition: impl Fn(&Cluster) -> bool) {
        let began = Instant::now();
        while !condition(&self.cluster) {
            assert!(
                began.elapsed() < PATIENCE,
                "waited in vain: {what}; {:?}",
                self.cluster.status()
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_up(&self) {
        self.until("up", |cluster| cluster.status().is_up).await;
    }
}

fn when(api: ApiKey, reply: impl Fn() -> Reply) -> impl Fn(&ReceivedRequest) -> Option<Reply> {
    move |asked| (asked.api == api).then(&reply)
}

#[tokio::test]
async fn a_refresh_learns_topics_limits_and_nodes() {
    let broker = Scripted::start().await;
    broker.put("orders", 1, None);
    broker.put("big", 2, Some(5_000_000));
    let running = run(&broker.config());
    running.until_up().await;
    let cluster = &running.cluster;
    let orders = cluster.topic("orders").unwrap();
    assert_eq!(orders.batch_limit(), Some((1_048_588, Source::Broker)));
    assert_eq!(orders.partitions(), Some(3));
    assert_eq!(orders.id, Uuid::from_u128(1));
    let big = cluster.topic_by_id(Uuid::from_u128(2)).unwrap();
    assert_eq!(big.batch_limit(), Some((5_000_000, Source::Topic)));
    let limit = big.learned().unwrap().max_message_bytes.unwrap();
    assert_eq!(limit.origin, Origin::TopicOverride);
    assert_eq!(cluster.node_address(1), Some(broker.address.clone()));
    let status = cluster.status();
    assert!(status.is_reached && status.error.is_none());
    assert_eq!((status.nodes, status.topics), (1, 2));
}

#[tokio::test]
async fn fifty_readers_of_a_stale_limit_cost_one_request() {
    let broker = Scripted::start().await;
    broker.put("orders", 1, None);
    let running = run(&broker.config());
    running.until_up().await;
    let cluster = &running.cluster;
    let topic = cluster.topic("orders").unwrap();
    // Too old for a reading of a second at most, which all fifty then ask for within one.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let before = broker.count(ApiKey::DescribeConfigs);
    broker.put("orders", 1, Some(100));
    let a_second = Duration::from_secs(1);
    let readings = join_all((0..50).map(|_| cluster.read_limits(&topic, Some(1), a_second))).await;
    for reading in readings {
        assert_eq!(reading.unwrap().batch_limit(), Some((100, Source::Topic)));
    }
    let asked = broker.count(ApiKey::DescribeConfigs) - before;
    assert_eq!(asked, 1);
}

#[tokio::test]
async fn a_limit_read_a_moment_ago_is_not_read_again() {
    let broker = Scripted::start().await;
    broker.put("orders", 1, None);
    let running = run(&broker.config());
    running.until_up().await;
    let topic = running.cluster.topic("orders").unwrap();
    let before = broker.count(ApiKey::DescribeConfigs);
    let reading = running.cluster.read_limits(&topic, Some(1), LATELY);
    assert_eq!(
        reading.await.unwrap().batch_limit(),
        Some((1_048_588, Source::Broker))
    );
    assert_eq!(broker.count(ApiKey::DescribeConfigs), before);
}

#[tokio::test]
async fn brokers_with_different_defaults_are_told_apart() {
    let one = Scripted::start().await;
    let two = Scripted::start().await;
    for broker in [&one, &two] {
        broker.put("orders", 1, None);
        broker.put("own", 2, Some(777));
        broker.world.lock().unwrap().nodes =
            vec![(1, one.address.clone()), (2, two.address.clone())];
    }
    two.world.lock().unwrap().default_bytes = 2_000;
    let running = run(&one.config());
    running.until_up().await;
    let cluster = &running.cluster;
    let orders = cluster.topic("orders").unwrap();
    for _ in 0..2 {
        for (node_id, limit) in [(1, 1_048_588), (2, 2_000)] {
            let reading = cluster.read_limits(&orders, Some(node_id), LATELY);
            let expected = Some((limit, Source::Broker));
            assert_eq!(reading.await.unwrap().batch_limit(), expected, "{node_id}");
        }
    }
    assert_eq!(two.count(ApiKey::DescribeConfigs), 1);
    let own = cluster.topic("own").unwrap();
    let reading = cluster.read_limits(&own, Some(2), LATELY).await;
    assert_eq!(reading.unwrap().batch_limit(), Some((777, Source::Topic)));
}

#[tokio::test]
async fn an_unknown_topic_is_looked_up_once_by_all_who_ask_and_its_limits_come_with_it() {
    let broker = Scripted::start().await;
    let running = run(&broker.config());
    running.until_up().await;
    let cluster = &running.cluster;
    let before = broker.count(ApiKey::Metadata);
    broker.put("new", 7, Some(9));
    let lookups = join_all((0..20).map(|_| cluster.find_topic_by_id(Uuid::from_u128(7)))).await;
    for lookup in lookups {
        let Lookup::Found(topic) = lookup else {
            panic!("{lookup:?}")
        };
        assert_eq!(&*topic.name, "new");
        assert_eq!(topic.batch_limit(), Some((9, Source::Topic)));
    }
    assert_eq!(broker.count(ApiKey::Metadata) - before, 1);
    assert!(matches!(cluster.find_topic("new").await, Lookup::Found(_)));
    assert_eq!(broker.count(ApiKey::Metadata) - before, 1);
}

#[tokio::test]
async fn an_absence_is_believed_for_a_second() {
    let broker = Scripted::start().await;
    let running = run(&broker.config());
    running.until_up().await;
    let cluster = &running.cluster;
    let believes = async || {
        let (began, before) = (Instant::now(), broker.count(ApiKey::Metadata));
        for _ in 0..5 {
            assert!(matches!(cluster.find_topic("late").await, Lookup::Absent));
            let by_id = cluster.find_topic_by_id(Uuid::from_u128(8)).await;
            assert!(matches!(by_id, Lookup::Absent));
            assert_eq!(cluster.find_node(5).await, None);
        }
        let asked = broker.count(ApiKey::Metadata) - before;
        let was_in_time = began.elapsed() < super::registry::ABSENCE_TTL;
        assert!(asked <= 3 || !was_in_time, "asked {asked} times");
        was_in_time && asked == 3
    };
    let mut attempts = 0..ATTEMPTS;
    while !believes().await {
        attempts.next().expect("a machine that is fast enough");
    }
    broker.put("late", 8, None);
    tokio::time::sleep(super::registry::ABSENCE_TTL + Duration::from_millis(50)).await;
    assert!(matches!(cluster.find_topic("late").await, Lookup::Found(_)));
}

#[tokio::test]
async fn names_that_no_topic_can_bear_are_not_asked_for() {
    let broker = Scripted::start().await;
    let running = run(&broker.config());
    running.until_up().await;
    let before = broker.count(ApiKey::Metadata);
    for name in [String::new(), "x".repeat(250)] {
        let found = running.cluster.find_topic(&name).await;
        assert!(matches!(found, Lookup::Absent));
    }
    let nil = running.cluster.find_topic_by_id(Uuid::nil()).await;
    assert!(matches!(nil, Lookup::Absent));
    assert_eq!(broker.count(ApiKey::Metadata), before);
}

#[tokio::test]
async fn a_deleted_topic_leaves_and_one_created_again_is_another() {
    let broker = Scripted::start().await;
    broker.put("orders", 1, None);
    broker.put("gone", 2, None);
    let mut config = broker.config();
    config.cluster.refresh_interval = Duration::from_millis(30);
    let running = run(&config);
    running.until_up().await;
    let cluster = &running.cluster;
    let (orders, gone) = (
        cluster.topic("orders").unwrap(),
        cluster.topic("gone").unwrap(),
    );
    broker.world.lock().unwrap().topics.remove("gone");
    broker.put("orders", 11, Some(5));
    running
        .until("both changes", |cluster| {
            let again = cluster.topic_by_id(Uuid::from_u128(11));
            again.is_some_and(|topic| topic.batch_limit().is_some())
                && cluster.topic("gone").is_none()
        })
        .await;
    assert!(gone.is_retired() && orders.is_retired());
    assert!(cluster.topic_by_id(Uuid::from_u128(1)).is_none());
    assert!(cluster.topic_by_id(Uuid::from_u128(2)).is_none());
    let again = cluster.topic("orders").unwrap();
    assert!(!again.is_retired());
    assert_eq!(again.batch_limit(), Some((5, Source::Topic)));
    assert_eq!(orders.batch_limit(), Some((1_048_588, Source::Broker)));
    let reading = cluster.read_limits(&orders, None, LATELY).await;
    assert_eq!(reading, Err(LimitsUnread::Gone));
}

#[tokio::test]
async fn without_the_right_to_describe_it_keeps_working_and_names_the_acl() {
    let broker = Scripted::start().await;
    broker.put("orders", 1, None);
    broker.world.lock().unwrap().is_forbidden = true;
    let mut config = broker.config();
    config.cluster.admin_sasl = Some(plain("gate"));
    let running = run(&config);
    running.until_up().await;
    let cluster = &running.cluster;
    let missing = cluster.status().missing_rights.unwrap();
    assert!(
        missing.contains("1 of 1 topics") && missing.contains("--allow-principal 'User:gate'"),
        "{missing}"
    );
    let topic = cluster.topic("orders").unwrap();
    assert_eq!(topic.batch_limit(), None);
    let reading = cluster.read_limits(&topic, Some(1), LATELY).await;
    assert_eq!(reading, Err(LimitsUnread::Forbidden));
}

#[tokio::test]
async fn a_broker_outside_the_node_ports_is_reported() {
    let broker = Scripted::start().await;
    let far = (12, broker.address.clone());
    broker.world.lock().unwrap().nodes.push(far);
    let running = run(&broker.config());
    running.until_up().await;
    assert_eq!(running.cluster.status().nodes_outside, [12]);
}

#[tokio::test]
async fn what_sessions_saw_is_known_too() {
    let config = scripted::config(&[nowhere()]);
    let cluster = Cluster::new(&config, Connector::new(&config.cluster).unwrap());
    let address = HostPort {
        host: "b3".to_owned(),
        port: 9092,
    };
    cluster.learn_node(3, address.clone());
    cluster.learn_node(33, address.clone());
    cluster.learn_topic("orders", Uuid::from_u128(4), false, 6);
    assert_eq!(cluster.node_address(3), Some(address));
    assert_eq!(cluster.status().nodes_outside, [33]);
    let topic = cluster.topic_by_id(Uuid::from_u128(4)).unwrap();
    assert_eq!((&*topic.name, topic.partitions()), ("orders", Some(6)));
    assert!(matches!(
        cluster.find_topic("orders").await,
        Lookup::Found(_)
    ));
}

#[tokio::test]
async fn a_connection_that_the_broker_closed_meanwhile_is_replaced() {
    let breaks = Arc::new(AtomicBool::new(false));
    let broker = Scripted::with_tricks({
        let breaks = Arc::clone(&breaks);
        move |asked| {
            let is_next = || breaks.swap(false, Ordering::Relaxed);
            (asked.api == ApiKey::DescribeConfigs && is_next()).then_some(Reply::Close)
        }
    })
    .await;
    broker.put("orders", 1, None);
    let running = run(&broker.config());
    let is_read = |cluster: &Cluster| {
        let topic = cluster.topic("orders");
        topic.is_some_and(|topic| topic.limits_age().is_some())
    };
    // The poll asks on a connection of its own, and is over.
    running.until("limits of orders", is_read).await;
    let topic = running.cluster.topic("orders").unwrap();
    let read = || running.cluster.read_limits(&topic, Some(1), NOW);
    read().await.unwrap();
    let before = broker.count(ApiKey::DescribeConfigs);
    breaks.store(true, Ordering::Relaxed);
    read().await.unwrap();
    assert_eq!(broker.count(ApiKey::DescribeConfigs), before + 2);
}

#[tokio::test]
async fn kafka_down_is_said_and_kafka_back_is_seen() {
    // Bound without listening: the port is nobody else's while the broker is away.
    let kept = tokio::net::TcpSocket::new_v4().unwrap();
    kept.set_reuseaddr(true).unwrap();
    kept.bind((std::net::Ipv4Addr::LOCALHOST, 0).into())
        .unwrap();
    let port = kept.local_addr().unwrap().port();
    let broker = Scripted::at(port, |_| None).await;
    broker.put("orders", 1, None);
    let mut config = broker.config();
    config.cluster.refresh_interval = Duration::from_millis(50);
    let running = run(&config);
    running.until_up().await;
    drop(broker);
    running
        .until("down", |cluster| !cluster.status().is_up)
        .await;
    running
        .until("unreached", |cluster| !cluster.is_reached())
        .await;
    let error = running.cluster.status().error.unwrap();
    assert!(error.contains(&format!("127.0.0.1:{port}")), "{error}");
    // What was learned stays.
    let orders = running.cluster.topic("orders").unwrap();
    assert!(orders.batch_limit().is_some());
    assert_eq!(
        running.cluster.read_limits(&orders, Some(1), NOW).await,
        Err(LimitsUnread::Unreachable)
    );
    let broker = Scripted::at(port, |_| None).await;
    broker.put("orders", 1, None);
    running.until_up().await;
    assert!(running.cluster.is_reached());
}

#[tokio::test]
async fn silence_ends_at_the_deadline() {
    let broker = Scripted::with_tricks(when(ApiKey::DescribeConfigs, || Reply::Silence)).await;
    broker.put("orders", 1, None);
    let running = run(&broker.config());
    running
        .until("the topic", |cluster| cluster.topic("orders").is_some())
        .await;
    let topic = running.cluster.topic("orders").unwrap();
    let began = Instant::now();
    let reading = running.cluster.read_limits(&topic, Some(1), LATELY).await;
    assert_eq!(reading, Err(LimitsUnread::Unreachable));
    let took = began.elapsed();
    // Not a polled reading's thirty seconds.
    assert!(
        took >= super::ASK_DEADLINE && took < Duration::from_secs(25),
        "{took:?}"
    );
}

#[tokio::test]
async fn a_silent_first_bootstrap_server_does_not_hide_the_second() {
    let silent = Scripted::with_tricks(|_| Some(Reply::Silence)).await;
    let good = Scripted::start().await;
    good.put("orders", 1, None);
    let config = scripted::config(&[silent.address.clone(), good.address.clone()]);
    let running = run(&config);
    let found = running.cluster.find_topic("orders").await;
    assert!(matches!(found, Lookup::Found(_)), "{found:?}");
}

#[tokio::test]
async fn a_cluster_that_gives_us_no_credentials_counts_as_reached() {
    let broker = Scripted::with_tricks(when(ApiKey::Metadata, || Reply::Close)).await;
    let running = run(&broker.config());
    running
        .until("an error", |cluster| cluster.status().error.is_some())
        .await;
    assert!(running.cluster.is_reached());
    assert!(!running.cluster.status().is_up);
}

#[tokio::test]
async fn a_session_is_authenticated_again_before_it_ends() {
    let mut attempts = 0..ATTEMPTS;
    while !authenticates_again().await {
        attempts.next().expect("a machine that is fast enough");
    }
}

/// Whether what was asked before the session's end was asked in time, so that the rest says something.
async fn authenticates_again() -> bool {
    const LIFETIME: Duration = Duration::from_millis(400);
    let broker = Scripted::start().await;
    broker.put("orders", 1, None);
    broker.world.lock().unwrap().session_lifetime_ms = 400;
    let mut config = broker.config();
    config.cluster.admin_sasl = Some(plain("gate"));
    let running = run(&config);
    running.until_up().await;
    // The broker's own settings are asked over a connection of their own, once.
    running
        .until(
            "the topics' and the broker's settings are asked for",
            |_| broker.count(ApiKey::DescribeConfigs) >= 2,
        )
        .await;
    let topic = running.cluster.topic("orders").unwrap();
    let read = || running.cluster.read_limits(&topic, Some(1), NOW);
    let began = Instant::now();
    read().await.unwrap();
    let before = broker.count(ApiKey::SaslAuthenticate);
    read().await.unwrap();
    let still = broker.count(ApiKey::SaslAuthenticate);
    if began.elapsed() > LIFETIME / 2 {
        return false;
    }
    assert_eq!(still, before);
    tokio::time::sleep(LIFETIME).await;
    read().await.unwrap();
    assert_eq!(broker.count(ApiKey::SaslAuthenticate), before + 1);
    // The same connection: no new greeting.
    assert_eq!(broker.count(ApiKey::ApiVersions), 3);
    true
}

#[test]
fn a_topic_takes_no_more_than_112_bytes_beside_its_name() {
    let counters = 2 * size_of::<usize>();
    assert!(size_of::<super::Topic>() + counters <= 112);
}

#[test]
fn its_futures_may_cross_threads() {
    fn crosses(_: impl Send) {}
    let config = scripted::config(&[nowhere()]);
    let cluster = Cluster::new(&config, Connector::new(&config.cluster).unwrap());
    let topic = Arc::new(super::Topic::new(Arc::from("orders"), Uuid::nil(), false));
    crosses(cluster.run(CancellationToken::new()));
    crosses(cluster.find_topic("orders"));
    crosses(cluster.read_limits(&topic, None, NOW));
    crosses(cluster.find_node(1));
}

fn nowhere() -> HostPort {
    HostPort {
        host: "127.0.0.1".to_owned(),
        port: 1,
    }
}

fn plain(username: &str) -> Sasl {
    Sasl {
        mechanism: SaslMechanism::Plain,
        username: username.to_owned(),
        password: "secret".to_owned(),
    }
}
