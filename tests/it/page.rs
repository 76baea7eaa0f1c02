//! The page at `/` in a real Chromium: clicked through, typed into, walked with the keyboard, before a real cluster
//! with refusals and before a thousand topics with hostile names. The checks are in `tests/browser`.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use crate::support::claims::{Claims, DEPOSITS, LOANS, RETURNS};
use crate::support::programs::Output;
use crate::support::{
    Connection, Kafka, KafkaOptions, Part, Program, Record, Sizegate, Topic, batch, eventually,
};
use serde_json::json;
use sizegate::admin::{
    self, AdminState, ControlPlaneView, FamilyView, LimitView, MemberView, Readiness, ReloadView,
    Replicas, StatusView, TopicView,
};
use sizegate::explain::{
    Advice, Candidate, Check, Explanation, GateLimit, Outcome, Party, Role, State,
};
use sizegate::families::{Alignment, MemberKind, Membership};
use sizegate::findings::Unseen;
use sizegate::telemetry::{
    BatchCounts, GateCounts, LargestSizes, LastSizes, Lingering, Metrics, Observed, Peer,
    RefusalRecord, Refusals,
};
use sizegate::vocabulary::{Action, Codec, Gate, Histograms, Source};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

const EVENTS: &str = "library.events";
const PAYMENTS: &str = "payments";
/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(120);
const REMEDY: &str = "Put the document in the object store and its address in the event: https://wiki.example/events";

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

/// No time: a batch of another day would be deleted, and one built slowly would look as if it had lingered.
const NO_TIME: i64 = -1;

/// The topics of a small shop, and what was produced to them through `sizegate`.
struct Shop<'a> {
    kafka: &'a Kafka,
    claims: Claims,
    sizegate: Sizegate,
}

impl<'a> Shop<'a> {
    fn open(kafka: &'a Kafka) -> Self {
        let topics: [(&str, &[(&str, &str)]); 8] = [
            ("orders", &[("max.message.bytes", "2097152")]),
            ("orders-retry-1", &[("max.message.bytes", "2162688")]),
            ("orders-dlt", &[]),
            (PAYMENTS, &[("max.message.bytes", "4194304")]),
            ("shipments", &[]),
            ("invoices", &[]),
            ("clicks", &[("compression.type", "zstd")]),
            (EVENTS, &[]),
        ];
        for (name, configs) in topics {
            kafka.create_topic(name, 1, 1, configs);
        }
        let claims = Claims::new(kafka);
        let yaml = format!(
            "{}rules:\n  - name: library-events\n    topics: [{EVENTS}]\n    limits: {{record_bytes: 64KiB, \
             uncompressed_bytes: 4MiB}}\n    remedy: \"{REMEDY}\"\n  - name: watched\n    topics: [invoices]\n    limits: \
             {{record_bytes: 32KiB}}\n    action: observe\n{}",
            claims.section(),
            claims.rule()
        );
        let sizegate = Sizegate::start(kafka, &yaml);
        Self {
            kafka,
            claims,
            sizegate,
        }
    }

    /// One connection of a client that says what it is.
    fn client(&self, id: &str, software: &str, version: &str) -> Connection {
        let mut connection = Connection::open(self.sizegate.node(1).as_str());
        connection.client_id = Some(id.into());
        connection.api_versions(software, version);
        connection
    }

    /// Error codes of batches with one record each of these value sizes.
    fn send(&self, connection: &mut Connection, topic: &str, values: &[usize]) -> Vec<i16> {
        let topic = Topic {
            name: topic.to_owned(),
            id: Uuid::nil(),
        };
        let mut code = |bytes: usize| {
            let record = Record::of_random(bytes, bytes as u64);
            let records = batch([record]).base_timestamp(NO_TIME).build();
            connection.produce(9, 1, &[Part::new(&topic, records)])[0].code
        };
        values.iter().map(|bytes| code(*bytes)).collect()
    }

    /// Everything a page can show happens; the clients that did it stay connected.
    fn trade(&self) -> Vec<Connection> {
        let mut checkout = self.client("checkout-7d9f", "apache-kafka-java", "4.3.0");
        let mut invoicing = self.client("invoicing", "librdkafka", "2.16.1");
        let mut library = self.client("library-import", "kafka-python", "3.0.12");
        // Sizes around 8 KiB, a few small and a few large ones, the same in every run.
        let sizes = |count: usize, most: usize| -> Vec<usize> {
            let size = |n: usize| 200 * (1 + n * 7919 % 50) * (1 + n * 104_729 % 17);
            (0..count).map(|n| size(n).min(most)).collect()
        };
        for (topic, count, most) in [
            ("orders", 120, 900_000),
            ("shipments", 80, 900_000),
            ("clicks", 40, 90_000),
            (EVENTS, 90, 60_000),
        ] {
            let codes = self.send(&mut checkout, topic, &sizes(count, most));
            assert!(codes.iter().all(|code| *code == 0), "{topic}: {codes:?}");
        }
        let fine = self.send(&mut checkout, "orders", &[1_300_000, 1_900_000]);
        assert_eq!(fine, [0, 0]);
        assert_eq!(self.send(&mut checkout, "shipments", &[880_000]), [0]);
        let observed = self.send(&mut invoicing, "invoices", &[9_000, 20_000, 40_000, 50_000]);
        assert_eq!(observed, [0, 0, 0, 0]);
        let refused = self.send(&mut library, EVENTS, &[64_000, 70_000, 66_000, 181_000]);
        assert_eq!(refused, [0, 10, 10, 10]);
        let refused = self.send(&mut invoicing, EVENTS, &[1_100_000, 80_000]);
        assert_eq!(refused, [10, 10]);
        assert_eq!(self.send(&mut checkout, "orders", &[2_400_000]), [10]);
        vec![checkout, invoicing, library]
    }

    /// A real producer whose large records wait for nothing. A machine that is too busy keeps all records alike: then
    /// it sends again.
    fn linger(&self) {
        eventually(PATIENCE, "a record that lingers", || {
            Program::java("TimedLoad", "4.4.0")
                .arg("bootstrap", self.sizegate.bootstrap())
                .arg("topic", PAYMENTS)
                .arg("p.client.id", "payments-export")
                .arg("p.linger.ms", 1_000)
                .arg("p.batch.size", 16_384)
                .arg("small", 300)
                .arg("large", 2)
                .run();
            let seen = self.sizegate.json("/api/v1/lingering");
            (!seen["lingering"].as_array().unwrap().is_empty()).then_some(())
        });
    }

    /// A consumer that does not get past the first, large batch.
    fn get_stuck(&self) {
        let mut checkout = self.client("checkout-7d9f", "apache-kafka-java", "4.3.0");
        assert_eq!(self.send(&mut checkout, "orders-dlt", &[300_000]), [0]);
        for _ in 0..5 {
            crate::support::admin::fetch_stored(&self.sizegate.bootstrap(), "orders-dlt", 0, 1_000);
        }
    }

    /// Values go to the store and come back, some are lost, and somebody waits for one.
    fn lend(&self) {
        let mut rounds = 0..;
        eventually(
            PATIENCE,
            "a value that is lost, and one that is waited for",
            || {
                self.claims.make(&self.sizegate, rounds.next()?);
                let seen = self.sizegate.json("/api/v1/claims");
                let topics = seen["topics"].as_array()?;
                let lost = topics.iter().find(|topic| topic["topic"] == RETURNS)?;
                let is_lost = lost["fallback_records"]["missing"].as_u64()? > 0;
                (is_lost && seen["held"][0]["topic"] == DEPOSITS).then_some(())
            },
        );
    }

    /// How near sizes came to a limit inside the batch is counted, and the largest of each part is kept.
    fn assert_nearness_is_known(&self) {
        let view = self
            .sizegate
            .json(&format!("/api/v1/topics?topic={EVENTS}"));
        let topic = &view["topics"][0];
        let gates = topic["gates"].as_array().unwrap();
        let record = gates.iter().find(|gate| gate["gate"] == "record").unwrap();
        assert_eq!(record["violations"], 4, "{record}");
        let largest = &topic["largest"];
        assert_eq!(
            largest["value_bytes"], 64_000,
            "refused ones left out: {largest}"
        );
        assert_eq!(largest["key_bytes"], 0, "{largest}");
        assert!(
            largest["record_bytes"].as_u64().unwrap() < 65_536,
            "{largest}"
        );
    }

    /// The configuration file gets a mistake, and the proxy notices.
    fn mistype(&mut self) {
        let config = self.sizegate.process().dir().join("sizegate.yaml");
        let good = std::fs::read_to_string(&config).unwrap();
        let bad = good.replace("record_bytes: 64KiB", "record_byte: 64KiB");
        std::fs::write(&config, bad).unwrap();
        self.sizegate.process().signal("HUP");
        eventually(PATIENCE, "a reload that fails", || {
            let failed = self.sizegate.json("/api/v1/status")["reload"]["error"].is_string();
            failed.then_some(())
        });
    }
}

#[test]
fn a_person_on_call_finds_their_way_in_a_real_browser() {
    // Of its own: its topics have names that people know, and the page shows every topic.
    let kafka = Kafka::start("4.3.0", KafkaOptions::default());
    let mut shop = Shop::open(&kafka);
    let _connected = shop.trade();
    shop.linger();
    shop.get_stuck();
    shop.lend();
    shop.mistype();
    shop.assert_nearness_is_known();
    let url = format!("http://{}", shop.sizegate.admin());
    let waiting = Waiting::start(&shop.sizegate);
    take_pictures(&url);
    let output = Program::browser("page.mjs")
        .arg("url", &url)
        .arg("topic", EVENTS)
        .arg("main", "orders")
        .arg("member", "orders-dlt")
        .arg("lingers", PAYMENTS)
        .arg("remedy", REMEDY)
        .arg("mistake", "record_byte")
        .arg("loans", LOANS)
        .arg("returns", RETURNS)
        .arg("deposits", DEPOSITS)
        .run();
    drop(waiting);
    assert_all_passed(&output, 16);
    assert_eq!(shop.kafka.latest_offset("orders", 0), 122);
}

/// A consumer that asks for a value until it is dropped: who has not asked for a minute waits no more.
struct Waiting {
    is_over: Arc<AtomicBool>,
    asking: Option<JoinHandle<()>>,
}

impl Waiting {
    fn start(sizegate: &Sizegate) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (bootstrap, over) = (sizegate.bootstrap(), Arc::clone(&is_over));
        let asking = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                crate::support::admin::fetch_stored(&bootstrap, DEPOSITS, 0, 1 << 20);
            }
        });
        Self {
            is_over,
            asking: Some(asking),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(asking) = self.asking.take() {
            let _ = asking.join();
        }
    }
}

/// `scripts/screenshots.sh` asks for pictures of what this run looks like.
fn take_pictures(url: &str) {
    let Some(folder) = std::env::var_os("SIZEGATE_SCREENSHOTS") else {
        return;
    };
    let output = Program::browser("pictures.mjs")
        .arg("url", url)
        .arg("topic", EVENTS)
        .arg("folder", Path::new(&folder).display())
        .run();
    assert_eq!(output.lines.len(), 4, "{:?}", output.lines);
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
    lose(&metrics);
    let refusals = Arc::new(Refusals::default());
    for n in 0..100 {
        refusals.record(Arc::new(refusal(n)));
    }
    AdminState {
        metrics,
        histograms: Arc::new(|| Histograms::All),
        refusals,
        observed: Arc::new(observed()),
        ready: Arc::new(|| Readiness {
            why_not: vec![HOSTILE.into()],
        }),
        status: Arc::new(status),
        topics: Arc::new(|| (0..1_000).map(topic).collect()),
        notes: Arc::new(|| vec![HOSTILE.into()]),
        explain: Arc::new(|_| Ok(explanation())),
        families: Arc::new(|| vec![family()]),
        replicas: Replicas::new("pod-1:9644", Vec::new),
        config: Arc::new(|| json!({"mode": HOSTILE})),
    }
}

/// A claim check of which everything is wrong.
fn lose(metrics: &Metrics) {
    let claims = metrics.claims();
    let topic = claims.topic(HOSTILE);
    topic.offloaded_bytes.inc_by(1 << 30);
    topic.forged.inc();
    topic.fell_back("missing");
    topic.redeem_failed("transient");
    topic.fallback_failures.inc();
    claims.hold((HOSTILE.into(), 0, 7));
    claims.store_request("get", "transient", Duration::from_secs(8));
}

fn family() -> FamilyView {
    FamilyView {
        main: "topic-0000".into(),
        alignment: Alignment::Warn,
        members: vec![MemberView {
            topic: "topic-0001".into(),
            kind: MemberKind::DeadLetter,
            membership: Membership::Detected,
            aligned: None,
            gap_bytes: None,
            gates: Vec::new(),
            warnings: vec![HOSTILE.into()],
        }],
        absent: vec![HOSTILE.into()],
        writer_max_request_size: None,
    }
}

fn explanation() -> Explanation {
    Explanation {
        topic: HOSTILE.into(),
        rule: Some(HOSTILE.into()),
        rules_for_some_clients: vec![HOSTILE.into()],
        action: Action::Reject,
        limits: vec![GateLimit {
            gate: Gate::Record,
            limit_bytes: Some(65_536),
            source: Some(Source::Rule),
            name: Some(HOSTILE.into()),
            chain: vec![Candidate {
                what: HOSTILE.into(),
                bytes: 65_536,
                role: Role::InForce,
            }],
        }],
        record: None,
        after_offload: None,
        offloaded_records: None,
        checks: vec![Check {
            by: Party::Sizegate,
            what: HOSTILE.into(),
            size_bytes: 70_000,
            limit_bytes: Some(65_536),
            source: HOSTILE.into(),
            outcome: Outcome::Refuses,
            note: HOSTILE.into(),
        }],
        passes: Some(false),
        refused_by: Some(Party::Sizegate),
        verdict: HOSTILE.into(),
        remedy: vec![Advice {
            step: "the topic's limits",
            state: State::Change,
            text: HOSTILE.into(),
            command: Some(HOSTILE.into()),
        }],
        unseen: vec![Unseen {
            what: HOSTILE.into(),
            grant: Some(HOSTILE.into()),
        }],
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
        instance: "pod-1:9644".into(),
        mode: "observe",
        near_limit: 0.8,
        why_not_ready: vec![HOSTILE.into()],
        control_plane: ControlPlaneView {
            is_up: false,
            error: Some(HOSTILE.into()),
            missing_rights: None,
            brokers_outside: vec![HOSTILE.into()],
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
        topic_config: None,
        codecs: None,
        batches: Some(BatchCounts {
            forwarded: n * n,
            refused: n % 3,
            ..BatchCounts::default()
        }),
        last: Some(sizes),
        largest: Some(LargestSizes {
            batch_bytes: Some(1_000 * n),
            record_bytes: Some(60 * n),
            ..LargestSizes::default()
        }),
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
        member: Some(HOSTILE.into()),
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
        record_key: None,
    }
}
