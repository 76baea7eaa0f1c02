//! The number of series of a running proxy is bounded whatever topics and clients are called, and a deleted topic
//! leaves none.

use std::collections::HashSet;
use std::time::Duration;

use crate::support::admin::{delete_topic, fetch_stored, metadata};
use crate::support::{
    Connection, Kafka, Part, Sizegate, Topic, batch_of_bytes, eventually, unique,
};

/// `telemetry.topics`
const LABELS: usize = 5;

/// All series, without their values.
fn series(sizegate: &Sizegate) -> HashSet<String> {
    series_at(sizegate, "/metrics")
}

fn series_at(sizegate: &Sizegate, path: &str) -> HashSet<String> {
    let (status, text) = sizegate.get(path);
    assert_eq!(status, 200);
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
        .collect()
}

fn topics_in(series: &HashSet<String>) -> HashSet<String> {
    let topic = |series: &String| {
        let (_, rest) = series.split_once("topic=\"")?;
        Some(rest.split('"').next()?.to_owned())
    };
    series.iter().filter_map(topic).collect()
}

#[test]
fn topics_clients_and_invented_names_stay_within_their_bounds_and_deleted_topics_go() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::before(&kafka.bootstrap())
        .cluster("admin: {refresh_interval: 1s}")
        .yaml(&format!("telemetry: {{topics: {LABELS}}}"))
        .start();
    let topics: Vec<Topic> = (0..12)
        .map(|_| kafka.topic("counted", 1, &[("retention.ms", "-1")]))
        .collect();
    let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
    let mut connection = Connection::open(sizegate.bootstrap());
    metadata(&mut connection, &names);
    for topic in &topics {
        for bytes in [200, 70_000] {
            let parts = [Part::new(topic, batch_of_bytes(bytes).build())];
            assert_eq!(connection.produce(12, -1, &parts)[0].code, 0);
        }
        assert!(!fetch_stored(&sizegate.bootstrap(), &topic.name, 0, 1_024).is_empty());
    }
    // Names that nobody has, and clients that call themselves something else each time.
    for n in 0..300 {
        let mut connection = Connection::open(sizegate.bootstrap());
        connection.client_id = Some(format!("client-{n}"));
        connection.api_versions(&format!("software-{n}"), "1.0");
        let invented = Topic {
            name: unique("invented"),
            id: uuid::Uuid::new_v4(),
        };
        let parts = [Part::new(&invented, batch_of_bytes(200).build())];
        assert_ne!(connection.produce(12, -1, &parts)[0].code, 0);
    }
    let all = series(&sizegate);
    let counted = topics_in(&all);
    assert_eq!(counted.len(), LABELS + 1, "{counted:?}");
    assert!(counted.contains("_other"));
    let softwares = all
        .iter()
        .filter(|series| series.contains("software=\""))
        .count();
    assert!(softwares <= 101, "{softwares}");
    assert!(
        all.iter()
            .all(|series| !series.contains("invented") && !series.contains("client-"))
    );
    // What docs/metrics.md says a topic costs, which `admin_metrics` counts.
    let most_of_one = |path: &str, most: usize| {
        let all = series_at(&sizegate, path);
        for topic in topics_in(&all) {
            let label = format!("topic=\"{topic}\"");
            let of_topic = all.iter().filter(|series| series.contains(&label)).count();
            assert!(of_topic <= most, "{path}, {topic}: {of_topic}");
        }
        all.len()
    };
    let few = most_of_one("/metrics", 45);
    assert!(few < (LABELS + 1) * 45 + 400, "{few} series");
    assert!(most_of_one("/metrics?histograms=none", 15) < few);
    assert!(most_of_one("/metrics?histograms=all", 150) > few);

    for name in &names {
        delete_topic(&kafka.bootstrap(), name);
    }
    eventually(
        Duration::from_secs(60),
        "the series of deleted topics end",
        || {
            let left = topics_in(&series(&sizegate));
            (left.len() <= 1).then_some(())
        },
    );
}
