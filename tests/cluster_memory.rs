//! What the control plane holds for a topic: at most 200 bytes beyond its name, on a cluster of 100,000 of them.
//!
//! One test, because the allocator counts for all threads.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::string_slice,
    clippy::unreachable,
    clippy::todo,
    unreachable_pub,
    reason = "tests"
)]

use std::collections::BTreeMap;

use peak_alloc::PeakAlloc;
use sizegate::cluster::Cluster;
use sizegate::config::{self, ENV_PREFIX, Overrides};
use sizegate::net::Connector;
use uuid::Uuid;

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

const TOPICS: usize = 100_000;

#[test]
fn a_hundred_thousand_topics_take_at_most_200_bytes_each_beyond_their_names() {
    let servers = (
        format!("{ENV_PREFIX}CLUSTER__BOOTSTRAP_SERVERS"),
        "127.0.0.1:1".to_owned(),
    );
    let env = BTreeMap::from([servers]);
    let config = config::load(None, &Overrides::default(), &env).unwrap();
    let cluster = Cluster::new(&config, Connector::new(&config.cluster).unwrap());
    let names: Vec<String> = (0..TOPICS)
        .map(|n| format!("team-{}.orders.{n}", n % 500))
        .collect();
    let name_bytes: usize = names.iter().map(String::len).sum();

    let before = ALLOCATOR.current_usage();
    for (n, name) in names.iter().enumerate() {
        cluster.learn_topic(name, Uuid::from_u128(n as u128 + 1), false, 12);
    }
    let held = ALLOCATOR.current_usage() - before;
    assert_eq!(cluster.topics().len(), TOPICS);
    assert!(cluster.topic(&names[77]).is_some());
    assert!(cluster.topic_by_id(Uuid::from_u128(78)).is_some());
    let each = (held - name_bytes) / TOPICS;
    println!("{each} bytes a topic beyond its name");
    assert!(each <= 200, "{each}");
}
