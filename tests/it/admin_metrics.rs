//! `/metrics` as Prometheus reads it: valid, bounded whatever clients and topics are called, and without stale
//! series.

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use sizegate::policy::Limit;
use sizegate::telemetry::{FamilyFit, Known, Metrics, OTHER, TopicMetrics};
use sizegate::vocabulary::{Action, Codec, Gate, Histograms, Source};

/// A cluster that has the topics beginning with `orders`, all with the same limits.
#[derive(Default)]
struct Cluster {
    is_empty: AtomicBool,
    is_down: AtomicBool,
}

impl Known for Cluster {
    fn has_topic(&self, topic: &str) -> bool {
        topic.starts_with("orders") && !self.is_empty.load(Relaxed)
    }

    fn limits(&self, _: &str) -> Vec<Limit> {
        let limit = |gate, value, source| Limit {
            gate,
            value,
            source,
            name: None,
            headroom_bytes: 0,
            member_limit: None,
        };
        vec![
            limit(Gate::Batch, 1_048_588, Source::Broker),
            limit(Gate::Record, 65_536, Source::Rule),
            limit(Gate::Ratio, 100, Source::Rule),
        ]
    }

    fn families(&self, _: usize) -> Vec<FamilyFit> {
        let fit = |member: &str, is_aligned, gap_bytes| FamilyFit {
            main: "orders".into(),
            member: member.into(),
            is_aligned,
            gap_bytes,
        };
        vec![
            fit("orders-dlt", false, Some(65_536)),
            fit("orders-retry", true, Some(0)),
            fit("orders-dlq", false, None),
        ]
    }

    fn is_control_plane_up(&self) -> bool {
        !self.is_down.load(Relaxed)
    }

    fn unusable_brokers(&self) -> Vec<(i32, &'static str)> {
        vec![(7, "outside_node_ids"), (1, "own_address")]
    }

    fn certificates(&self) -> Vec<(&'static str, u64)> {
        vec![("listener.tls.cert_file", 1_936_742_400)]
    }

    fn limits_age(&self) -> Option<Duration> {
        (!self.is_down.load(Relaxed)).then_some(Duration::from_millis(1500))
    }
}

fn asking(metrics: &Metrics) -> Arc<Cluster> {
    let cluster = Arc::new(Cluster::default());
    let known: Arc<dyn Known> = cluster.clone();
    metrics.ask(Arc::downgrade(&known));
    cluster
}

/// Counts something in every cell of a topic.
fn use_everything(topic: &TopicMetrics) {
    for counter in [
        &topic.forwarded,
        &topic.refused,
        &topic.observed,
        &topic.offloaded,
        &topic.loops,
    ] {
        counter.inc();
    }
    for &codec in Codec::ALL {
        topic.batch(codec, 5_000, 12);
        topic.uncompressed(codec, 20_000);
    }
    topic.record_bytes.observe(1_048_588);
    topic.estimate_bytes.observe(1_048_589);
    for &gate in Gate::ALL {
        topic.near_limit(gate);
        topic.violation(gate, Source::Rule, Action::Reject);
    }
    topic.broker_refusal(10);
    topic.broker_refusal(-1);
    topic.linger_suspects.inc();
    topic.linger_seconds.observe(Duration::from_millis(1_003));
    topic.fetch_batch_bytes.observe(3_000_000);
    topic.fetch_oversized.inc();
    topic.fetch_stuck.inc();
}

fn use_all_of_claims(metrics: &Metrics) {
    let claims = metrics.claims();
    claims.set_margins([("orders".to_owned(), 86_400.0)].into());
    let topic = claims.topic("orders");
    for counter in [
        &topic.offloaded_records,
        &topic.offloaded_bytes,
        &topic.redeemed_records,
        &topic.redeemed_bytes,
        &topic.forged,
        &topic.orphans,
        &topic.fallback_failures,
        &claims.cache_hits,
    ] {
        counter.inc();
    }
    topic.fell_back("missing");
    topic.redeem_failed("transient");
    claims.cache_bytes.set(300_000);
    claims.hold(("orders".into(), 0, 7));
    claims.store_request("get", "ok", Duration::from_millis(3));
}

/// A registry in which every family has samples.
fn everything() -> (Arc<Metrics>, Arc<Cluster>) {
    let metrics = Metrics::new(100);
    let cluster = asking(&metrics);
    use_everything(&metrics.topic("orders"));
    use_everything(&metrics.topic(OTHER));
    metrics.connection_opened();
    metrics.connection_opened();
    metrics.connection_closed("idle");
    drop(metrics.client_software("apache-kafka-java", "4.3.0", "checkout"));
    metrics.malformed("truncated");
    metrics.frames_refused("answered");
    for proof in ["header", "bound", "walk", "decode", "sampled"] {
        metrics.inspection(proof, Codec::Lz4);
    }
    metrics
        .inspection_seconds(Codec::Lz4)
        .observe(Duration::from_micros(12));
    metrics.request_seconds(0).observe(Duration::from_millis(3));
    metrics
        .request_seconds(i16::MAX)
        .observe(Duration::from_secs(60));
    metrics.proxy_seconds(0).observe(Duration::from_micros(40));
    metrics.memory_budget_bytes.set(512 << 20);
    metrics.memory_waits.inc();
    metrics.reloaded(true);
    metrics.config_request("forwarded");
    metrics.refusal_record("written");
    metrics.watch_held_bytes(|| 4_096).unwrap();
    use_all_of_claims(&metrics);
    (metrics, cluster)
}

/// The text without the values.
fn series(text: &str) -> HashSet<String> {
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
        .collect()
}

fn value(text: &str, series: &str) -> f64 {
    let found = text
        .lines()
        .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    found
        .unwrap_or_else(|| panic!("no {series} in:\n{text}"))
        .parse()
        .unwrap()
}

fn families(text: &str) -> Vec<&str> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().unwrap()).collect()
}

fn promtool() -> PathBuf {
    let cached =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(".cache/prometheus/usr/bin/promtool");
    let on_path = std::env::var_os("PATH").into_iter().flat_map(|path| {
        let dirs: Vec<_> = std::env::split_paths(&path).collect();
        dirs.into_iter().map(|dir| dir.join("promtool"))
    });
    let mut places = on_path.chain([cached]);
    let found = places.find(|path| path.is_file());
    found.expect("promtool is missing: run scripts/prometheus.sh (`make test` does) and try again")
}

#[test]
fn promtool_finds_nothing_to_say_about_any_family() {
    let (metrics, _cluster) = everything();
    let mut check = Command::new(promtool())
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let text = metrics.render().unwrap();
    check
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    let output = check.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(
        output.status.success() && said.trim().is_empty(),
        "{said}\n{text}"
    );
}

#[test]
fn every_family_of_the_contract_is_there_once_it_is_used() {
    let (metrics, _cluster) = everything();
    let text = metrics.render().unwrap();
    let mut expected: Vec<_> = "produce_batches_total violations_total near_limit_total limit_bytes largest_bytes batch_wire_bytes \
         batch_uncompressed_bytes record_bytes estimate_bytes batches_by_codec_total records_total wire_bytes_total \
         uncompressed_bytes_total inspection_total inspection_seconds broker_refusals_total frames_refused_total \
         malformed_total connections connections_total connections_closed_total client_connections_total \
         request_seconds proxy_seconds held_bytes memory_budget_bytes memory_waits_total control_plane_up \
         limits_age_seconds config_reloads_total config_requests_total config_last_reload_success build_info refusal_loops_total \
         linger_suspects_total linger_seconds fetch_batch_bytes fetch_oversized_total fetch_stuck_total family_aligned family_gap_bytes \
         broker_unusable ready certificate_expires_timestamp_seconds refusal_records_total claim_offloaded_records_total claim_offloaded_bytes_total claim_redeemed_records_total \
         claim_redeemed_bytes_total claim_forged_total claim_orphans_total claim_retention_margin_seconds claim_fallback_records_total \
         claim_redeem_failures_total claim_fallback_failures_total claim_held_partitions claim_cache_hits_total \
         claim_cache_bytes claim_store_requests_total claim_store_seconds"
        .split_whitespace()
        .map(|name| format!("sizegate_{name}"))
        .collect();
    expected.sort();
    let mut families = families(&text);
    families.sort_unstable();
    assert_eq!(families, expected);
}

/// A row of docs/metrics.md for each family, as `/metrics` has it.
#[test]
fn the_documentation_lists_every_family() {
    let (metrics, _cluster) = everything();
    let text = metrics.render().unwrap();
    let mut rows: Vec<String> = families(&text)
        .into_iter()
        .map(|family| {
            let word = |comment: &str| {
                let begin = format!("# {comment} {family} ");
                let found = text.lines().find_map(|line| line.strip_prefix(&begin));
                found.unwrap_or_else(|| panic!("no {comment} of {family}"))
            };
            let sample = text.lines().find_map(|line| {
                let rest = line.strip_prefix(family)?;
                rest.strip_prefix("_bucket")
                    .unwrap_or(rest)
                    .strip_prefix('{')
            });
            let labels: Vec<&str> = sample
                .unwrap_or_default()
                .split("\",")
                .filter_map(|pair| Some(pair.split_once("=\"")?.0))
                .filter(|label| *label != "le")
                .collect();
            format!(
                "| `{family}` | {} | {} | {} |",
                word("TYPE"),
                labels.join(", "),
                word("HELP")
            )
        })
        .collect();
    rows.sort();
    let expected = rows.join("\n");
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let documentation = std::fs::read_to_string(path).unwrap();
    let found: Vec<&str> = documentation
        .lines()
        .filter(|line| line.starts_with("| `sizegate_"))
        .collect();
    assert_eq!(found.join("\n"), expected, "as it should be:\n{expected}\n");
}

#[test]
fn each_sample_says_what_was_counted() {
    let (metrics, cluster) = everything();
    let text = metrics.render().unwrap();
    for (series, expected) in [
        (
            r#"produce_batches_total{topic="orders",verdict="refused"}"#,
            1.0,
        ),
        (
            r#"violations_total{topic="orders",gate="key",source="rule",action="reject"}"#,
            1.0,
        ),
        (r#"near_limit_total{topic="orders",gate="batch"}"#, 1.0),
        (r#"family_aligned{main="orders",member="orders-dlt"}"#, 0.0),
        (
            r#"family_gap_bytes{main="orders",member="orders-dlt"}"#,
            65_536.0,
        ),
        (
            r#"family_aligned{main="orders",member="orders-retry"}"#,
            1.0,
        ),
        (
            r#"limit_bytes{topic="orders",gate="batch",source="broker"}"#,
            1_048_588.0,
        ),
        (r#"batch_wire_bytes_bucket{topic="orders",le="4096"}"#, 0.0),
        (r#"batch_wire_bytes_bucket{topic="orders",le="8192"}"#, 5.0),
        (r#"batch_wire_bytes_sum{topic="orders"}"#, 25_000.0),
        (r#"record_bytes_bucket{topic="orders",le="1048576"}"#, 0.0),
        (r#"record_bytes_bucket{topic="orders",le="1048588"}"#, 1.0),
        (r#"estimate_bytes_bucket{topic="orders",le="1048588"}"#, 0.0),
        (r#"estimate_bytes_bucket{topic="orders",le="+Inf"}"#, 1.0),
        (
            r#"batches_by_codec_total{topic="orders",codec="zstd"}"#,
            1.0,
        ),
        (r#"records_total{topic="orders",codec="zstd"}"#, 12.0),
        (r#"wire_bytes_total{topic="orders",codec="none"}"#, 5_000.0),
        (
            r#"uncompressed_bytes_total{topic="orders",codec="gzip"}"#,
            20_000.0,
        ),
        (
            r#"broker_refusals_total{topic="orders",code="MESSAGE_TOO_LARGE"}"#,
            1.0,
        ),
        (r#"refusal_loops_total{topic="orders"}"#, 1.0),
        (r#"inspection_total{proof="sampled",codec="lz4"}"#, 1.0),
        (r#"linger_suspects_total{topic="orders"}"#, 1.0),
        (r#"linger_seconds_bucket{topic="orders",le="1"}"#, 0.0),
        (r#"linger_seconds_bucket{topic="orders",le="2.5"}"#, 1.0),
        (r#"fetch_batch_bytes_sum{topic="orders"}"#, 3_000_000.0),
        (r#"fetch_oversized_total{topic="orders"}"#, 1.0),
        (r#"fetch_stuck_total{topic="orders"}"#, 1.0),
        (
            r#"inspection_seconds_bucket{codec="lz4",le="0.00001"}"#,
            0.0,
        ),
        (
            r#"inspection_seconds_bucket{codec="lz4",le="0.000025"}"#,
            1.0,
        ),
        (r#"request_seconds_sum{api="Produce"}"#, 0.003),
        (r#"request_seconds_bucket{api="other",le="30"}"#, 0.0),
        (r#"request_seconds_count{api="other"}"#, 1.0),
        (
            r#"client_connections_total{software="apache-kafka-java/4.3"}"#,
            1.0,
        ),
        (r#"connections_closed_total{reason="idle"}"#, 1.0),
        ("connections", 1.0),
        ("connections_total", 2.0),
        ("held_bytes", 4_096.0),
        ("control_plane_up", 1.0),
        ("limits_age_seconds", 1.5),
    ] {
        assert_eq!(
            value(&text, &format!("sizegate_{series}")),
            expected,
            "{series}"
        );
    }
    cluster.is_down.store(true, Relaxed);
    let text = metrics.render().unwrap();
    assert_eq!(value(&text, "sizegate_control_plane_up"), 0.0);
    assert!(
        !text.contains("limits_age_seconds"),
        "unknown is not a number"
    );
}

#[test]
fn a_topic_has_no_series_for_what_never_happened_to_it() {
    let metrics = Metrics::new(10);
    let topic = metrics.topic("orders");
    topic.forwarded.inc();
    topic.batch(Codec::Lz4, 5_000, 3);
    let text = metrics.render().unwrap();
    let of_topic: Vec<_> = series(&text)
        .into_iter()
        .filter(|series| series.contains("orders") && !series.contains("_bucket"))
        .collect();
    let mut of_topic: Vec<_> = of_topic
        .iter()
        .map(|series| series.trim_start_matches("sizegate_"))
        .collect();
    of_topic.sort_unstable();
    assert_eq!(
        of_topic,
        [
            r#"batch_wire_bytes_count{topic="orders"}"#,
            r#"batch_wire_bytes_sum{topic="orders"}"#,
            r#"batches_by_codec_total{topic="orders",codec="lz4"}"#,
            r#"largest_bytes{topic="orders",gate="batch"}"#,
            r#"produce_batches_total{topic="orders",verdict="forwarded"}"#,
            r#"produce_batches_total{topic="orders",verdict="refused"}"#,
            r#"records_total{topic="orders",codec="lz4"}"#,
            r#"wire_bytes_total{topic="orders",codec="lz4"}"#,
        ]
    );
}

/// The numbers that docs/metrics.md has, of a topic that is produced to with one codec, is read, and has two limits.
#[test]
fn a_topic_has_as_many_series_as_the_documentation_says() {
    let metrics = Metrics::new(1_000);
    let _cluster = asking(&metrics);
    for n in 0..1_000 {
        let topic = metrics.topic(&format!("orders-of-the-department-{n}"));
        topic.forwarded.inc();
        for bytes in [300, 5_000, 900_000] {
            topic.batch(Codec::Lz4, bytes, 12);
            topic.uncompressed(Codec::Lz4, 3 * bytes);
            topic.record_bytes.observe(bytes / 2);
            topic.estimate_bytes.observe(bytes / 2 + 60);
            topic.fetch_batch_bytes.observe(bytes);
        }
    }
    let rows = Histograms::ALL.iter().map(|histograms| {
        let text = metrics.render_with(*histograms).unwrap();
        let of_one = series(&text)
            .iter()
            .filter(|series| series.contains("department-7\""))
            .count();
        let megabytes = text.len() as f64 / 1e6;
        format!("| `{histograms}` | {of_one} | {megabytes:.1} MB |")
    });
    let rows: Vec<String> = rows.collect();
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let documentation = std::fs::read_to_string(path).unwrap();
    let found: Vec<&str> = documentation
        .lines()
        .filter(|line| {
            Histograms::ALL
                .iter()
                .any(|word| line.starts_with(&format!("| `{word}` |")))
        })
        .collect();
    assert_eq!(found, rows, "as it should be:\n{}", rows.join("\n"));
}

#[test]
fn a_hundred_thousand_topics_and_ten_thousand_softwares_stay_within_their_bounds() {
    let metrics = Metrics::new(1_000);
    let mut open = Vec::new();
    for n in 0..100_000 {
        let topic = metrics.topic(&format!("topic-{n}"));
        topic.forwarded.inc();
        topic.batch(Codec::None, 5_000, 1);
    }
    for n in 0..10_000 {
        open.push(metrics.client_software(
            &format!("software-{n}"),
            "1.0.0",
            &format!("client-{n}"),
        ));
    }
    let text = metrics.render().unwrap();
    let series = series(&text);
    let of = |name: &str| {
        series
            .iter()
            .filter(|series| series.starts_with(&format!("sizegate_{name}{{")))
            .count()
    };
    assert_eq!(of("wire_bytes_total"), 1_001);
    assert_eq!(of("client_connections_total"), 101);
    assert_eq!(
        value(
            &text,
            r#"sizegate_wire_bytes_total{topic="_other",codec="none"}"#
        ),
        99_000.0 * 5_000.0
    );
    assert_eq!(
        value(
            &text,
            r#"sizegate_client_connections_total{software="_other"}"#
        ),
        9_900.0
    );
    assert!(series.len() < 1_001 * 40, "{}", series.len());
}

#[test]
fn a_deleted_topic_leaves_no_series_and_frees_its_label() {
    let metrics = Metrics::new(1);
    let cluster = asking(&metrics);
    let old = metrics.topic("orders");
    use_everything(&old);
    assert_eq!(metrics.topic("orders-2").label(), OTHER);
    assert!(metrics.render().unwrap().contains("topic=\"orders\""));

    cluster.is_empty.store(true, Relaxed);
    assert!(!metrics.render().unwrap().contains("topic=\"orders\""));
    assert!(old.is_forgotten() && metrics.known_topic("orders").is_none());

    // A session that still holds the old handle brings nothing back.
    use_everything(&old);
    assert!(!metrics.render().unwrap().contains("topic=\"orders\""));
    assert_eq!(metrics.topic("orders-2").label(), "orders-2");
}

#[test]
fn hostile_names_stay_within_their_label() {
    let metrics = Metrics::new(10);
    metrics.topic("a\"} 1\nsizegate_fake 1\\").forwarded.inc();
    drop(metrics.client_software("x\"} 1\nsizegate_fake 1", "1.0", "y"));
    let text = metrics.render().unwrap();
    assert!(
        text.lines().all(|line| !line.starts_with("sizegate_fake")),
        "{text}"
    );
    let escaped =
        r#"sizegate_produce_batches_total{topic="a\"} 1\nsizegate_fake 1\\",verdict="forwarded"}"#;
    assert_eq!(value(&text, escaped), 1.0);
    assert_eq!(
        value(
            &text,
            r#"sizegate_client_connections_total{software="x___1_sizegate_fake_1/1.0"}"#
        ),
        1.0
    );
}
