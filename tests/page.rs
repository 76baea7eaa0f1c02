//! The page at `/` in a real Chromium: clicked through, typed into, walked with the keyboard, before a real cluster
//! with refusals and before a thousand topics with hostile names. The checks are in `tests/browser`.

mod support;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::json;
use sizegate::admin::{
    self, AdminState, ControlPlaneView, LimitView, Readiness, ReloadView, StatusView, TopicView,
};
use sizegate::policy::{Action, Codec, Gate, Source};
use sizegate::telemetry::{
    BatchCounts, GateCounts, LastSizes, Lingering, Metrics, Observed, Peer, RefusalRecord, Refusals,
};
use support::programs::Output;
use support::{Connection, Kafka, Part, Program, Record, Sizegate, Topic, batch, eventually};
use tokio_util::sync::CancellationToken;

const REMEDY: &str = "Put the note in the object store: https://wiki.example/notes";

/// Runs where a page makes markup of text, or an attribute of it.
const HOSTILE: &str =
    "\"'><img src=x onerror=\"globalThis.ran=1\"><script>globalThis.ran=1</script>&amp;";

/// Every check of a browser program passed.
fn assert_all_passed(output: &Output, at_least: usize) {
    let failed: Vec<String> = output
        .lines
        .iter()
        .filter_map(|line| {
            let error = line.get("error")?.as_str()?;
            Some(format!("{}: {error}", line["check"]))
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
    assert!(output.lines.len() >= at_least, "{:?}", output.lines);
}

/// One connection of a client that says what it is.
fn client(sizegate: &Sizegate, id: &str, software: &str, version: &str) -> Connection {
    let mut connection = Connection::open(sizegate.node(1).as_str());
    connection.client_id = Some(id.into());
    connection.api_versions(software, version);
    connection
}

/// Error codes of batches with one record each of these value sizes.
fn send(connection: &mut Connection, topic: &Topic, values: &[usize]) -> Vec<i16> {
    let mut code = |bytes: usize| {
        let records = batch([Record::of_random(bytes, bytes as u64)]).build();
        connection.produce(9, 1, &[Part::new(topic, records)])[0].code
    };
    values.iter().map(|bytes| code(*bytes)).collect()
}

#[test]
fn a_person_on_call_finds_their_way_in_a_real_browser() {
    let kafka = Kafka::shared("4.3.0");
    let notes = kafka.topic("notes", 1, &[]);
    let dead_letters = format!("{}-dlt", notes.name);
    kafka.create_topic(&dead_letters, 1, 1, &[]);
    let yaml = format!(
        "rules:\n  - name: notes\n    topics: [{}]\n    limits: {{record_bytes: 64KiB, uncompressed_bytes: 4MiB}}\n    \
         remedy: \"{REMEDY}\"",
        notes.name
    );
    let mut sizegate = Sizegate::start(kafka, &yaml);

    let mut checkout = client(&sizegate, "checkout-7d9f", "apache-kafka-java", "4.3.0");
    let mut invoice = client(&sizegate, "invoice", "librdkafka", "2.16.1");
    let passing: Vec<usize> = (0..16).map(|n| 300 << (n % 8)).collect();
    assert!(
        send(&mut checkout, &notes, &passing)
            .iter()
            .all(|code| *code == 0)
    );
    assert_eq!(send(&mut checkout, &notes, &[64_000, 70_000]), [0, 10]);
    assert_eq!(send(&mut invoice, &notes, &[1_100_000, 66_000]), [10, 10]);

    let config = sizegate.process().dir().join("sizegate.yaml");
    let good = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{good}\nrulez: []\n")).unwrap();
    sizegate.process().signal("HUP");
    eventually(Duration::from_secs(20), "a reload that fails", || {
        let failed = sizegate
            .metrics()
            .sum("config_reloads_total", &[("result", "failure")]);
        (failed > 0.0).then_some(())
    });

    let output = Program::browser("page.mjs")
        .arg("url", format!("http://{}", sizegate.admin()))
        .arg("topic", &notes.name)
        .arg("main", &notes.name)
        .arg("member", &dead_letters)
        .arg("remedy", REMEDY)
        .arg("mistake", "rulez")
        .run();
    assert_all_passed(&output, 15);
}

#[tokio::test]
async fn a_thousand_topics_stay_usable_and_hostile_names_stay_words() {
    let shutdown = CancellationToken::new();
    let bind = SocketAddr::from(([127, 0, 0, 1], 0));
    let (address, serving) = admin::serve(bind, crowd(), shutdown.clone()).await.unwrap();
    let server = tokio::spawn(serving);
    let output = tokio::task::spawn_blocking(move || {
        Program::browser("crowd.mjs")
            .arg("url", format!("http://{address}"))
            .arg("hostile", HOSTILE)
            .run()
    });
    let output = output.await.unwrap();
    shutdown.cancel();
    server.await.unwrap();
    assert_all_passed(&output, 6);
}

/// 1,000 topics, 100 refusals; whatever can bear a name of someone else's bears [`HOSTILE`].
fn crowd() -> AdminState {
    let metrics = Metrics::new(1_000);
    let client = metrics.client_software(HOSTILE, HOSTILE, HOSTILE);
    // It stays connected for as long as the process runs.
    std::mem::forget(client);
    let refusals = Arc::new(Refusals::default());
    for n in 0..100 {
        refusals.record(Arc::new(refusal(n)));
    }
    AdminState {
        metrics,
        refusals,
        observed: Arc::new(observed()),
        ready: Arc::new(|| Readiness {
            why_not: vec![HOSTILE.into()],
        }),
        status: Arc::new(status),
        topics: Arc::new(|| (0..1_000).map(topic).collect()),
        config: Arc::new(|| json!({"mode": HOSTILE})),
    }
}

fn observed() -> Observed {
    let observed = Observed::default();
    let peer = Peer::new(HOSTILE, HOSTILE, HOSTILE);
    let waited = Duration::from_secs(1);
    observed
        .lingering
        .record(Lingering::new(HOSTILE, peer, waited, 1 << 20));
    observed
}

fn status() -> StatusView {
    StatusView {
        version: "0.0.0",
        mode: "observe",
        near_limit: 0.8,
        why_not_ready: vec![HOSTILE.into()],
        control_plane: ControlPlaneView {
            is_up: false,
            error: Some(HOSTILE.into()),
            missing_rights: None,
            limits_age_seconds: None,
            brokers: 3,
            topics: 1_000,
        },
        reload: Some(ReloadView {
            at: SystemTime::now(),
            error: Some(HOSTILE.into()),
            needs_restart: Vec::new(),
        }),
        connections: 10_000,
        held_bytes: 1 << 30,
        memory_budget_bytes: 1 << 31,
        memory_waits: 12,
    }
}

fn topic(n: u64) -> TopicView {
    let limit = |gate, limit_bytes, source, name: Option<&str>| LimitView {
        gate,
        limit_bytes,
        source,
        name: name.map(str::to_owned),
    };
    let sizes = LastSizes {
        batch_bytes: Some(1_000 * n),
        uncompressed_bytes: None,
        record_bytes: Some(60 * n),
        estimate_bytes: None,
    };
    TopicView {
        topic: format!("topic-{n:04}"),
        rule: Some(HOSTILE.into()),
        action: Action::Reject,
        limits: vec![
            limit(Gate::Batch, 1_048_588, Source::Broker, None),
            limit(Gate::Record, 65_536, Source::Rule, Some(HOSTILE)),
            limit(Gate::Ratio, 100, Source::Rule, Some(HOSTILE)),
        ],
        batches: Some(BatchCounts {
            forwarded: n * n,
            refused: n % 3,
            ..BatchCounts::default()
        }),
        last: Some(sizes),
        largest: Some(sizes),
        gates: vec![GateCounts {
            gate: Gate::Record,
            near_limit: n,
            violations: n % 3,
        }],
    }
}

fn refusal(n: u64) -> RefusalRecord {
    RefusalRecord {
        id: format!("{n:x}"),
        at: SystemTime::now(),
        text: format!(
            "sizegate refused topic-0000-0: {HOSTILE}. {HOSTILE} [gate=record {HOSTILE}]"
        ),
        topic: HOSTILE.into(),
        partition: 0,
        gate: Gate::Record,
        size_bytes: 70_112,
        at_least: n.is_multiple_of(2),
        limit_bytes: 65_536,
        source: Source::Rule,
        rule: Some(HOSTILE.into()),
        action: Action::Reject,
        error_code: 10,
        is_loop: n.is_multiple_of(7),
        client_id: HOSTILE.into(),
        software: HOSTILE.into(),
        address: HOSTILE.into(),
        principal: Some(HOSTILE.into()),
        batch_bytes: Some(71_240),
        uncompressed_bytes: None,
        codec: Some(Codec::Lz4),
        records: Some(12),
        record: Some(3),
    }
}
