//! Whatever becomes of the broker: limits keep their last value, their age grows, and it is said.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use kafka_protocol::messages::ApiKey;

use super::super::scripted::{Reply, Scripted};
use super::*;

/// The reply to one API once the trick is on.
type Trick = fn() -> Reply;

#[tokio::test]
async fn limits_keep_their_last_value_and_grow_old_whatever_the_broker_does() {
    // A frame of 100 bytes of which 4 come: gone in the middle of a response.
    let half: Trick = || Reply::Last(vec![0, 0, 0, 100, 0, 0, 0, 1]);
    let tricks: [(&str, ApiKey, Trick); 6] = [
        ("closes at Metadata", ApiKey::Metadata, || Reply::Close),
        ("closes at the configs", ApiKey::DescribeConfigs, || {
            Reply::Close
        }),
        ("is gone in mid-answer", ApiKey::Metadata, half),
        (
            "is gone in mid-answer of the configs",
            ApiKey::DescribeConfigs,
            half,
        ),
        ("answers rubbish", ApiKey::DescribeConfigs, || {
            Reply::Body(bytes::Bytes::from_static(&[0xff; 40]))
        }),
        ("is slow", ApiKey::Metadata, || Reply::Silence),
    ];
    for (what, api, reply) in tricks {
        let is_on = Arc::new(AtomicBool::new(false));
        let on = Arc::clone(&is_on);
        let broker =
            Scripted::with_tricks(move |asked| (asked.api == api && on.load(Relaxed)).then(reply))
                .await;
        broker.put("orders", 1, Some(5_000));
        let mut config = broker.config();
        config.cluster.refresh_interval = Duration::from_millis(30);
        let running = run(&config);
        running.until_up().await;
        let topic = running.cluster.topic("orders").unwrap();
        assert_eq!(topic.batch_limit(), Some((5_000, Source::Topic)), "{what}");
        is_on.store(true, Relaxed);
        // What the broker says from now on is not heard.
        broker.put("orders", 1, Some(7_000));
        running
            .until("the age grows", |cluster| {
                let age = cluster.status().refresh_age;
                age.is_some_and(|age| age > Duration::from_millis(400))
            })
            .await;
        let status = running.cluster.status();
        // Silence is given thirty seconds; until then it is only old.
        assert!(!status.is_up || what == "is slow", "{what}: {status:?}");
        assert_eq!(topic.batch_limit(), Some((5_000, Source::Topic)), "{what}");
        assert!(
            !topic.is_retired() && running.cluster.topic("orders").is_some(),
            "{what}"
        );
        is_on.store(false, Relaxed);
        if what != "is slow" {
            running
                .until("what changed meanwhile", |cluster| {
                    let orders = cluster.topic("orders");
                    orders.is_some_and(|topic| topic.batch_limit() == Some((7_000, Source::Topic)))
                })
                .await;
            assert!(running.cluster.status().is_up, "{what}");
        }
    }
}
