//! The admin server over a real socket: what it answers, to whom it says no, and how long a peer can hold it.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use sizegate::admin::{
    self, AdminState, ControlPlaneView, FamilyView, FixView, GapView, LimitView, MemberView,
    Readiness, ReloadView, Replicas, StatusView, TopicView,
};
use sizegate::config::HostPort;
use sizegate::explain::BadQuestion;
use sizegate::families::{Alignment, MemberKind, Membership};
use sizegate::policy::families::Holder;
use sizegate::telemetry::{LastSizes, Metrics, RefusalRecord, Refusals};
use sizegate::vocabulary::{Action, Codec, Gate, Histograms, Source};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a browser would run if it were shown as it is.
const HOSTILE: &str = "<script>alert(1)</script>\"'&\r\nX-Injected: 1";

fn view(topic: &str) -> TopicView {
    TopicView {
        topic: topic.into(),
        rule: Some("orders".into()),
        action: Action::Reject,
        limits: vec![LimitView {
            gate: Gate::Batch,
            limit_bytes: 1_048_588,
            source: Source::Broker,
            name: None,
        }],
        topic_config: Some(json!({"segment_bytes": {"min": "16MiB"}, "brokers": false})),
        codecs: None,
        batches: None,
        last: Some(LastSizes {
            batch_bytes: Some(5_000),
            ..LastSizes::default()
        }),
        largest: None,
        gates: Vec::new(),
    }
}

fn status() -> StatusView {
    StatusView {
        version: "0.0.0",
        instance: "pod-1:9644".into(),
        mode: "enforce",
        near_limit: 0.8,
        why_not_ready: Vec::new(),
        control_plane: ControlPlaneView {
            is_up: true,
            error: None,
            missing_rights: None,
            brokers_outside: vec!["broker 7 is outside listener.node_ports.node_ids".into()],
            limits_age_seconds: Some(3),
            brokers: 1,
            topics: 2,
        },
        reload: Some(ReloadView {
            at: SystemTime::UNIX_EPOCH,
            error: Some("sizegate.yaml:3: mode: enforce or observe".into()),
            needs_restart: Vec::new(),
        }),
        connections: 0,
        held_bytes: 0,
        memory_budget_bytes: 512 << 20,
        memory_waits: 0,
    }
}

fn family() -> FamilyView {
    FamilyView {
        main: "orders".into(),
        alignment: Alignment::Enforce,
        members: vec![MemberView {
            topic: "orders-dlt".into(),
            kind: MemberKind::DeadLetter,
            membership: Membership::Configured,
            aligned: Some(false),
            gap_bytes: Some(5),
            gates: vec![GapView {
                gate: Gate::Batch,
                holder: Holder::Member,
                main_bytes: Some(100),
                member_bytes: 105,
                headroom_bytes: 10,
                gap_bytes: Some(5),
                fix: Some(FixView {
                    text: "raise orders-dlt's max.message.bytes to 110".into(),
                    command: Some("sizegate align --apply".into()),
                }),
            }],
            warnings: vec!["its compression.type is gzip, its main topic's is producer".into()],
        }],
        absent: vec!["orders-retry".into()],
        writer_max_request_size: Some(1_048_576),
    }
}

fn refusal(id: &str, topic: &str, gate: Gate) -> RefusalRecord {
    RefusalRecord {
        id: id.into(),
        at: SystemTime::UNIX_EPOCH,
        text: format!("sizegate refused {topic}-0: too large [gate={gate} id={id}]"),
        topic: topic.into(),
        partition: 0,
        gate,
        size_bytes: 70_112,
        at_least: false,
        limit_bytes: 65_536,
        source: Source::Rule,
        rule: Some("orders".into()),
        member: None,
        action: Action::Reject,
        error_code: 10,
        is_loop: false,
        client_id: HOSTILE.into(),
        software: "apache-kafka-java/4.3.0".into(),
        address: "10.0.0.7:51234".into(),
        principal: None,
        batch_bytes: Some(71_240),
        uncompressed_bytes: None,
        codec: Some(Codec::Lz4),
        records: Some(12),
        record: Some(3),
        record_key: None,
    }
}

fn state(readiness: Readiness) -> AdminState {
    let refusals = Arc::new(Refusals::default());
    for (id, topic, gate) in [
        ("1", "orders", Gate::Record),
        ("2", "payments", Gate::Batch),
        ("3", "orders", Gate::Batch),
    ] {
        refusals.record(Arc::new(refusal(id, topic, gate)));
    }
    AdminState {
        metrics: Metrics::new(10),
        histograms: Arc::new(|| Histograms::Few),
        refusals,
        observed: Arc::default(),
        ready: Arc::new(move || readiness.clone()),
        status: Arc::new(status),
        topics: Arc::new(|| vec![view("payments"), view("orders")]),
        notes: Arc::new(Vec::new),
        explain: Arc::new(|_| Err(BadQuestion::NoTopic)),
        families: Arc::new(|| vec![family()]),
        replicas: Replicas::new("pod-1:9644", Vec::new),
        config: Arc::new(|| json!({"mode": "enforce"})),
    }
}

struct Server {
    address: SocketAddr,
    shutdown: CancellationToken,
    running: JoinHandle<()>,
}

impl Server {
    async fn start(state: AdminState) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), state).await
    }

    async fn start_at(bind: SocketAddr, state: AdminState) -> Self {
        let shutdown = CancellationToken::new();
        let (address, serving) = admin::serve(bind, state, shutdown.clone()).await.unwrap();
        Self {
            address,
            shutdown,
            running: tokio::spawn(serving),
        }
    }

    async fn ready() -> Self {
        Self::start(state(Readiness::default())).await
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    async fn get(&self, path: &str) -> Response {
        self.request("GET", path).await
    }

    async fn request(&self, method: &str, path: &str) -> Response {
        self.send(&format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        ))
        .await
    }

    async fn send(&self, request: &str) -> Response {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        Response::read(&mut stream).await.unwrap()
    }

    async fn json(&self, path: &str) -> Value {
        let response = self.get(path).await;
        assert_eq!(
            (response.status, response.header("content-type")),
            (200, "application/json"),
            "{path}"
        );
        serde_json::from_str(&response.body).unwrap()
    }
}

#[derive(Debug)]
struct Response {
    status: u16,
    head: String,
    body: String,
}

impl Response {
    /// All that comes until the server closes.
    async fn read(stream: &mut TcpStream) -> io::Result<Self> {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let (head, body) = text
            .split_once("\r\n\r\n")
            .ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Ok(Self {
            status: status.ok_or(io::ErrorKind::InvalidData)?,
            head: head.to_lowercase(),
            body: body.to_owned(),
        })
    }

    fn header(&self, name: &str) -> &str {
        let name = format!("{name}: ");
        self.head
            .lines()
            .find_map(|line| line.strip_prefix(&name))
            .unwrap_or_default()
    }
}

/// With ten thousand rules an explanation takes its time, and the thread that serves admin requests accepts clients too.
#[tokio::test]
async fn others_are_served_while_a_question_is_explained() {
    let (go_on, wait) = std::sync::mpsc::channel();
    let wait = std::sync::Mutex::new(wait);
    let server = Server::start(AdminState {
        explain: Arc::new(move |_| {
            let waited = wait.lock().unwrap().recv_timeout(Duration::from_secs(60));
            waited.expect("nobody was served meanwhile");
            Err(BadQuestion::NoTopic)
        }),
        ..state(Readiness::default())
    })
    .await;
    let body = r#"{"topic": "orders"}"#;
    let question = format!(
        "POST /api/v1/explain HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let meanwhile = async {
        let response = server.get("/api/v1/config").await;
        go_on.send(()).unwrap();
        response.status
    };
    let (explained, other) = tokio::join!(server.send(&question), meanwhile);
    assert_eq!((explained.status, other), (400, 200), "{explained:?}");
}

const PATHS: [&str; 17] = [
    "/",
    "/page/main.js",
    "/page/page.css",
    "/metrics",
    "/livez",
    "/readyz",
    "/api/v1/status",
    "/api/v1/topics",
    "/api/v1/sizes?topic=orders",
    "/api/v1/refusals",
    "/api/v1/clients",
    "/api/v1/families",
    "/api/v1/lingering",
    "/api/v1/fetch",
    "/api/v1/claims",
    "/api/v1/config",
    "/nothing-here",
];

#[tokio::test]
async fn every_response_forbids_browsers_to_run_load_frame_or_guess_anything() {
    let server = Server::ready().await;
    for path in PATHS {
        let response = server.get(path).await;
        assert_eq!(
            response.status,
            if path == "/nothing-here" { 404 } else { 200 },
            "{path}"
        );
        let policy = response.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none';") && policy.contains("frame-ancestors 'none'"),
            "{path}"
        );
        assert!(!policy.contains("unsafe"), "{path}");
        assert_eq!(
            response.header("x-content-type-options"),
            "nosniff",
            "{path}"
        );
        assert_eq!(response.header("cache-control"), "no-store", "{path}");
        assert_eq!(response.header("access-control-allow-origin"), "", "{path}");
    }
}

#[tokio::test]
async fn no_endpoint_takes_anything_but_a_question() {
    let server = Server::ready().await;
    for path in PATHS {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let status = server.request(method, path).await.status;
            let expected = if path == "/nothing-here" { 404 } else { 405 };
            assert_eq!(status, expected, "{method} {path}");
        }
    }
}

#[tokio::test]
async fn readiness_says_why_not() {
    let server = Server::ready().await;
    let response = server.get("/readyz").await;
    assert_eq!((response.status, response.body.as_str()), (200, "ready\n"));

    let why_not = vec!["no broker is reached".to_owned(), HOSTILE.to_owned()];
    let server = Server::start(state(Readiness { why_not })).await;
    let response = server.get("/readyz").await;
    assert_eq!(response.status, 503);
    assert!(
        response
            .body
            .starts_with("not ready: no broker is reached; "),
        "{}",
        response.body
    );
    assert!(response.header("content-type").starts_with("text/plain"));
    assert_eq!(server.get("/livez").await.status, 200);

    let page = server.get("/").await;
    assert!(page.header("content-type").starts_with("text/html"));
    assert!(
        page.body.contains("no broker is reached") && !page.body.contains("<script>"),
        "{}",
        page.body
    );
}

#[tokio::test]
async fn the_page_lists_every_path_there_is() {
    let server = Server::ready().await;
    let page = server.get("/").await.body;
    for path in PATHS
        .iter()
        .filter(|path| !matches!(**path, "/" | "/nothing-here") && !path.starts_with("/page/"))
    {
        let path = path.trim_end_matches("orders");
        assert!(page.contains(&format!("href=\"{path}\"")), "{path}");
    }
}

#[tokio::test]
async fn the_page_runs_its_own_files_and_no_others() {
    let server = Server::ready().await;
    let page = server.get("/").await;
    let policy = page.header("content-security-policy");
    for words in [
        "script-src 'self';",
        "style-src 'self';",
        "connect-src 'self';",
        "trusted-types 'none'",
    ] {
        assert!(policy.contains(words), "{words}: {policy}");
    }
    for (file, media_type) in [
        ("main.js", "text/javascript; charset=utf-8"),
        ("page.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ] {
        let response = server.get(&format!("/page/{file}")).await;
        assert_eq!(
            (response.status, response.header("content-type")),
            (200, media_type)
        );
    }
    for path in ["/page/", "/page/none.js", "/page/..%2fpage.rs"] {
        assert_eq!(server.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn the_status_has_the_mistakes_of_the_last_reload() {
    let server = Server::ready().await;
    let status = server.json("/api/v1/status").await;
    assert_eq!(
        status["reload"],
        json!({
            "at": "1970-01-01T00:00:00.000Z",
            "error": "sizegate.yaml:3: mode: enforce or observe",
            "needs_restart": [],
        })
    );
    assert_eq!(status["control_plane"]["is_up"], true);
}

#[tokio::test]
async fn sizes_of_a_topic_come_by_gate_and_only_where_something_was_counted() {
    let state = state(Readiness::default());
    let topic = state.metrics.topic("orders");
    topic.batch(Codec::None, 1_048_588, 1);
    topic.batch(Codec::None, 300, 1);
    let server = Server::start(state).await;
    let sizes = server.json("/api/v1/sizes?topic=orders").await;
    let batch = &sizes["sizes"]["batch"];
    assert_eq!(
        (
            &batch["count"],
            &batch["largest_bytes"],
            &batch["last_bytes"]
        ),
        (&json!(2), &json!(1_048_588), &json!(300))
    );
    let buckets = batch["buckets"].as_array().unwrap();
    assert!(buckets.contains(&json!({"le_bytes": 1_048_588, "count": 1})));
    assert_eq!(buckets.last(), Some(&json!({"le_bytes": null, "count": 0})));
    assert_eq!(sizes["sizes"]["record"]["count"], 0);
    assert_eq!(
        server.json("/api/v1/sizes?topic=none").await,
        json!({"topic": "none", "sizes": null})
    );
    assert_eq!(server.get("/api/v1/sizes").await.status, 400);
}

#[tokio::test]
async fn metrics_have_the_type_that_prometheus_reads() {
    let server = Server::ready().await;
    let response = server.get("/metrics").await;
    assert!(
        response
            .header("content-type")
            .starts_with("text/plain; version=0.0.4")
    );
    assert!(
        response.body.contains("\nsizegate_connections 0\n"),
        "{}",
        response.body
    );
}

#[tokio::test]
async fn metrics_come_as_open_metrics_and_with_other_histograms_for_who_asks() {
    let served = state(Readiness::default());
    let topic = served.metrics.topic("orders");
    topic.batch(Codec::None, 5_000, 1);
    topic.estimate_bytes.observe(5_000);
    let server = Server::start(served).await;
    let asked = async |path: &str, accept: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\n\r\n");
        server.send(&request).await
    };
    let open = asked(
        "/metrics",
        "application/openmetrics-text;version=1.0.0;q=0.8, text/plain;q=0.5",
    )
    .await;
    let kind = open.header("content-type");
    assert_eq!(
        kind,
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    assert_eq!(open.header("vary"), "accept, accept-encoding");
    assert!(open.body.ends_with("# EOF\n"), "{}", open.body);
    let bound = "sizegate_batch_wire_bytes_bucket{topic=\"orders\",le=\"16384";
    assert!(
        open.body.contains(&format!("{bound}.0\"}} 1\n")),
        "{}",
        open.body
    );
    assert!(
        open.body
            .contains("# TYPE sizegate_records counter\nsizegate_records_total{")
    );

    let few = asked("/metrics", "text/plain").await.body;
    assert!(
        few.contains(&format!("{bound}\"}} 1\n")) && !few.contains("le=\"8192\""),
        "{few}"
    );
    assert!(!few.contains("estimate_bytes_bucket") && !few.contains("# EOF"));
    assert!(few.contains("sizegate_largest_bytes{topic=\"orders\",gate=\"estimate\"} 5000\n"));
    let all = asked("/metrics?histograms=all", "*/*").await.body;
    assert!(all.contains("le=\"8192\"") && all.contains("estimate_bytes_bucket"));
    let none = asked("/metrics?histograms=none", "*/*").await.body;
    assert!(!none.contains("_bucket{topic"), "{none}");
    let wrong = asked("/metrics?histograms=some", "*/*").await;
    assert_eq!(
        (wrong.status, wrong.body.contains("none, few, all")),
        (400, true)
    );
}

#[tokio::test]
async fn topics_come_by_name_with_their_limits_and_sources() {
    let server = Server::ready().await;
    let topics = server.json("/api/v1/topics").await;
    let names: Vec<_> = topics["topics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|topic| &topic["topic"])
        .collect();
    assert_eq!(names, ["orders", "payments"]);
    assert_eq!(
        server.json("/api/v1/topics?topic=orders").await["topics"],
        json!([{
            "topic": "orders", "rule": "orders", "action": "reject",
            "limits": [{"gate": "batch", "limit_bytes": 1_048_588, "source": "broker", "name": null}],
            "topic_config": {"segment_bytes": {"min": "16MiB"}, "brokers": false}, "codecs": null,
            "batches": null,
            "last": {"batch_bytes": 5_000, "uncompressed_bytes": null, "record_bytes": null, "estimate_bytes": null},
            "largest": null, "gates": [],
        }])
    );
    assert_eq!(
        server.json("/api/v1/topics?topic=none").await["topics"],
        json!([])
    );
}

/// Whoever answers once, with this.
async fn peer_that_says(answer: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut request = [0; 1_024];
                let _ = stream.read(&mut request).await;
                // Whoever has heard enough hangs up.
                let _ = stream.write_all(&answer).await;
            });
        }
    });
    address
}

fn http_answer(body: &str) -> Vec<u8> {
    let who = "x-sizegate-instance: 0-0 other\u{202e}pod:9644";
    format!("HTTP/1.0 200 OK\r\n{who}\r\n\r\n{body}").into_bytes()
}

/// A peer is somebody else: it may be silent, wrong, endless, or this process itself.
#[tokio::test]
async fn peers_that_are_silent_wrong_or_endless_are_named_and_the_rest_is_shown() {
    // Its backlog takes the connection, and nobody reads from it.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent_at = silent.local_addr().unwrap();
    let endless = peer_that_says(http_answer(&" ".repeat(9 << 20))).await;
    let foreign = peer_that_says(b"SSH-2.0-OpenSSH\r\n\r\n".to_vec()).await;
    let wrong = peer_that_says(http_answer("[1, {\"groups\": 7}]")).await;
    let hostile = r#"{"groups": [{"topic": {"x": 1}}, {"topic": "orders", "gate": "record", "client_id": "a<b>", "software": "",
        "refused_by": "sizegate", "is_observed": false, "last_ten_minutes": 3, "last_hour": 3, "by_minute": [3],
        "first_at": "2026-01-01T00:00:00Z", "last_at": "2026-01-01T00:00:00Z", "last_id": "7", "innerHTML": "x"}]}"#;
    let honest = peer_that_says(http_answer(hostile)).await;
    let refused = {
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
        gone.local_addr().unwrap()
    };
    let own = Arc::new(OnceLock::new());
    let known = Arc::clone(&own);
    let peers = move || {
        let others = [silent_at, endless, foreign, wrong, honest, refused];
        let at = |address: &SocketAddr| HostPort {
            host: address.ip().to_string(),
            port: address.port(),
        };
        let nowhere = HostPort {
            host: "no-such-host.invalid".into(),
            port: 9644,
        };
        others
            .iter()
            .chain(known.get())
            .map(at)
            .chain([nowhere])
            .collect()
    };
    let server = Server::start(AdminState {
        replicas: Replicas::new("pod-1:9644", peers),
        ..state(Readiness::default())
    })
    .await;
    own.set(server.address).unwrap();
    let body = server.json("/api/v1/refusals/recent?peers=1").await;
    let replicas = body["replicas"].as_array().unwrap();
    let error_at = |address: &str| {
        let of = |replica: &&Value| replica["address"] == address;
        let replica = replicas
            .iter()
            .find(of)
            .unwrap_or_else(|| panic!("{address}: {body}"));
        replica["error"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(
        replicas.len(),
        8,
        "this one is left out of its peers: {body}"
    );
    for (address, error) in [
        (silent_at, "no answer within 3 s"),
        (endless, "it answers more than 8388608 bytes"),
        (foreign, "it does not speak HTTP"),
        (wrong, "its answer is not understood"),
        (honest, ""),
        (refused, "Connection refused"),
    ] {
        let said = error_at(&address.to_string());
        assert!(
            said.starts_with(error) && said.is_empty() == error.is_empty(),
            "{address}: {said}"
        );
    }
    assert!(error_at("no-such-host.invalid:9644").starts_with("its name is not found"));
    let groups = body["groups"].as_array().unwrap();
    let theirs = groups
        .iter()
        .find(|group| group["client_id"] == "a<b>")
        .unwrap();
    assert_eq!(
        (&theirs["last_ten_minutes"], theirs.get("innerHTML")),
        (&json!(3), None)
    );
    assert!(
        theirs["replicas"][0]
            .as_str()
            .unwrap()
            .starts_with("other\u{fffd}pod:9644"),
        "{theirs}"
    );
    assert!(groups.iter().all(|group| group["topic"].is_string()));
    assert_eq!(groups.len(), 1);

    // One that did not answer is not waited for with every question.
    let body = server.json("/api/v1/clients?peers=1").await;
    let replicas = body["replicas"].as_array().unwrap();
    let again = replicas
        .iter()
        .find(|replica| replica["address"] == silent_at.to_string().as_str());
    assert_eq!(again.unwrap()["error"], "no answer within 3 s");
    let silent = silent.into_std().unwrap();
    silent.set_nonblocking(true).unwrap();
    assert!(silent.accept().is_ok(), "asked once");
    assert_eq!(
        silent.accept().unwrap_err().kind(),
        io::ErrorKind::WouldBlock
    );
}

#[tokio::test]
async fn families_come_with_what_each_member_lacks() {
    let server = Server::ready().await;
    assert_eq!(
        server.json("/api/v1/families").await,
        json!({"families": [{
            "main": "orders", "alignment": "enforce",
            "members": [{
                "topic": "orders-dlt", "kind": "dead_letter", "membership": "configured",
                "aligned": false, "gap_bytes": 5,
                "gates": [{"gate": "batch", "holder": "member", "main_bytes": 100, "member_bytes": 105, "headroom_bytes": 10, "gap_bytes": 5,
                    "fix": {"text": "raise orders-dlt's max.message.bytes to 110", "command": "sizegate align --apply"}}],
                "warnings": ["its compression.type is gzip, its main topic's is producer"],
            }],
            "absent": ["orders-retry"],
            "writer_max_request_size": 1_048_576,
        }]})
    );
}

#[tokio::test]
async fn refusals_come_newest_first_and_can_be_narrowed() {
    let server = Server::ready().await;
    for (query, expected) in [
        ("", "3 2 1"),
        ("?topic=&gate=&limit=", "3 2 1"),
        ("?topic=orders", "3 1"),
        ("?gate=batch", "3 2"),
        ("?topic=orders&gate=record", "1"),
        ("?limit=1", "3"),
        ("?id=2", "2"),
        ("?id=4", ""),
        ("?limit=0", ""),
        ("?topic=none", ""),
    ] {
        let refusals = server.json(&format!("/api/v1/refusals{query}")).await;
        let ids: Vec<_> = refusals["refusals"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["id"].as_str().unwrap())
            .collect();
        assert_eq!(ids.join(" "), expected, "{query}");
    }
}

#[tokio::test]
async fn a_question_that_makes_no_sense_is_told_so() {
    let server = Server::ready().await;
    let response = server.get("/api/v1/refusals?gate=batches").await;
    assert_eq!(response.status, 400);
    assert!(
        response
            .body
            .contains("gate is none of batch, uncompressed, record"),
        "{}",
        response.body
    );
    for query in ["?limit=many", "?limit=-1", "?topics=orders"] {
        assert_eq!(
            server.get(&format!("/api/v1/refusals{query}")).await.status,
            400,
            "{query}"
        );
    }
    // What is wrong with a query is JSON too, whatever path was asked.
    for path in ["topics?name=orders", "sizes", "refusals?topics=orders"] {
        let response = server.get(&format!("/api/v1/{path}")).await;
        let body: Value = serde_json::from_str(&response.body).unwrap();
        assert_eq!((response.status, body["error"].is_string()), (400, true));
    }
}

#[tokio::test]
async fn hostile_names_are_data_and_nothing_else() {
    let state = state(Readiness::default());
    let _connection = state.metrics.client_software(HOSTILE, "1.0", HOSTILE);
    let server = Server::start(state).await;
    let refusals = server.get("/api/v1/refusals").await;
    assert_eq!(refusals.header("content-type"), "application/json");
    assert_eq!(refusals.header("x-injected"), "");
    let refusals: Value = serde_json::from_str(&refusals.body).unwrap();
    assert_eq!(refusals["refusals"][0]["client_id"], HOSTILE);
    let clients = server.json("/api/v1/clients").await;
    assert_eq!(clients["clients"][0]["client_ids"][0], HOSTILE);
    assert_eq!(clients["clients"][0]["connections"], 1);
    assert!(
        !clients["clients"][0]["software"]
            .as_str()
            .unwrap()
            .contains('<')
    );
}

#[tokio::test]
async fn the_configuration_is_what_the_proxy_gives() {
    let server = Server::ready().await;
    assert_eq!(
        server.json("/api/v1/config").await,
        json!({"mode": "enforce"})
    );
}

#[tokio::test]
async fn a_head_request_has_no_body() {
    let server = Server::ready().await;
    let response = server.request("HEAD", "/metrics").await;
    assert_eq!((response.status, response.body.as_str()), (200, ""));
}

#[tokio::test]
async fn a_head_larger_than_16_kib_is_refused_without_being_kept() {
    let server = Server::ready().await;
    let mut stream = server.connect().await;
    let endless = async {
        stream.write_all(b"GET / HTTP/1.1\r\nX: ").await?;
        for _ in 0..1_000 {
            stream.write_all(&[b'x'; 1_024]).await?;
        }
        io::Result::Ok(())
    };
    // The server closes long before a megabyte is read, so writing fails or the response is a refusal.
    let written = tokio::time::timeout(PATIENCE, endless)
        .await
        .expect("the server reads on and on");
    if written.is_ok() {
        let response = Response::read(&mut stream).await;
        assert!(response.is_err() || response.is_ok_and(|response| response.status == 431));
    }
    assert_eq!(server.get("/livez").await.status, 200);
}

#[tokio::test]
async fn what_is_not_http_is_closed() {
    let server = Server::ready().await;
    let mut stream = server.connect().await;
    stream
        .write_all(b"\x00\x00\x00\x16\x00\x12\x00\x03\x00\x00\x00\x01\x00\x01x\x00")
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response).await;
    assert!(response.starts_with(b"HTTP/1.1 400"), "{response:?}");
}

#[tokio::test]
async fn a_peer_that_never_ends_its_request_is_cut_off() {
    let server = Server::ready().await;
    let started = Instant::now();
    let mut stream = server.connect().await;
    stream
        .write_all(b"GET /livez HTTP/1.1\r\nHo")
        .await
        .unwrap();
    let mut response = Vec::new();
    let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut response)).await;
    assert!(closed.is_ok(), "still open after {:?}", started.elapsed());
    assert!(
        started.elapsed() > Duration::from_secs(4),
        "cut off after {:?}",
        started.elapsed()
    );
}

/// Health checks and questions are answered before the first peer's silence is over, which is 5 s. Tried again: the
/// machine may be busy.
async fn is_served_beside(silent: usize) -> bool {
    for _ in 0..5 {
        let server = Server::ready().await;
        let begun = Instant::now();
        let mut peers = Vec::new();
        for _ in 0..silent {
            let mut stream = server.connect().await;
            stream.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
            peers.push(stream);
        }
        for path in ["/livez", "/readyz", "/api/v1/topics"] {
            assert_eq!(server.get(path).await.status, 200, "{path}");
        }
        if begun.elapsed() < Duration::from_secs(4) {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn peers_that_stall_before_they_ask_delay_nobody() {
    for silent in [16, 64, 200] {
        assert!(is_served_beside(silent).await, "{silent}");
    }
}

#[tokio::test]
async fn peers_that_do_not_read_their_responses_delay_no_health_check() {
    let mut state = state(Readiness::default());
    // Larger than what these sockets take, and no larger: all sixteen must have begun before the first is given up.
    state.config = Arc::new(|| json!("x".repeat(3 << 20)));
    let server = Server::start(state).await;
    let mut stalled = Vec::new();
    for _ in 0..16 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(server.address).await.unwrap();
        let request = b"GET /api/v1/config HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request).await.unwrap();
        // Its response has begun: it has its place.
        stream.read_exact(&mut [0; 12]).await.unwrap();
        stalled.push(stream);
    }
    for path in ["/livez", "/readyz"] {
        assert_eq!(server.get(path).await.status, 200, "{path}");
    }
    // What takes memory waits for its place, and has it when a peer is gone.
    let mut waiting = Box::pin(server.get("/api/v1/clients"));
    let crowded = tokio::time::timeout(Duration::from_millis(300), &mut waiting).await;
    assert!(crowded.is_err());
    stalled.truncate(15);
    assert_eq!(waiting.await.status, 200);
}

#[tokio::test]
async fn an_address_in_use_is_named_with_the_key_that_sets_it() {
    let server = Server::ready().await;
    let Err(error) = admin::serve(
        server.address,
        state(Readiness::default()),
        CancellationToken::new(),
    )
    .await
    else {
        panic!("two servers on {}", server.address);
    };
    let text = error.to_string();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(
        text.contains(&server.address.to_string()) && text.contains("admin.bind"),
        "{text}"
    );
}

#[tokio::test]
async fn shutdown_answers_what_is_in_flight_and_takes_nothing_new() {
    let mut state = state(Readiness::default());
    let (started, mut begun) = tokio::sync::mpsc::channel(1);
    state.topics = Arc::new(move || {
        started.blocking_send(()).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        vec![view("orders")]
    });
    // Bound without listening: the port stays ours when the server has let go of it.
    let kept = TcpSocket::new_v4().unwrap();
    kept.set_reuseaddr(true).unwrap();
    kept.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = kept.local_addr().unwrap();
    let server = Server::start_at(address, state).await;
    let mut stream = server.connect().await;
    stream
        .write_all(b"GET /api/v1/topics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    begun.recv().await.unwrap();
    server.shutdown.cancel();
    let response = Response::read(&mut stream).await.unwrap();
    assert_eq!(response.status, 200);
    assert!(response.body.contains("orders"));
    tokio::time::timeout(PATIENCE, server.running)
        .await
        .expect("it ends")
        .unwrap();
    let error = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn a_peer_that_holds_its_connection_does_not_hold_up_the_shutdown() {
    let server = Server::ready().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /livez HTTP/1.1\r\n").await.unwrap();
    // Accepted for sure: a later connection was served.
    assert_eq!(server.get("/livez").await.status, 200);
    server.shutdown.cancel();
    tokio::time::timeout(PATIENCE, server.running)
        .await
        .expect("it ends")
        .unwrap();
    drop(stream);
}

/// Of one connection, as bytes: head and body.
async fn bytes_of(server: &Server, request: &str) -> (String, Vec<u8>) {
    let mut stream = server.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let at = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .unwrap();
    let head = String::from_utf8_lossy(&bytes[..at]).to_lowercase();
    (head, bytes[at + 4..].to_vec())
}

#[expect(clippy::disallowed_types, reason = "what a scraper does")]
#[tokio::test]
async fn metrics_are_compressed_for_who_takes_gzip_and_describe_the_process() {
    let server = Server::ready().await;
    let plain = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let (head, body) = bytes_of(&server, plain).await;
    assert!(!head.contains("content-encoding"), "{head}");
    let text = String::from_utf8(body).unwrap();
    for name in [
        "sizegate_build_info",
        "process_start_time_seconds",
        "process_resident_memory_bytes",
    ] {
        assert!(text.contains(name), "{name}: {text}");
    }
    let packed =
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: deflate, gzip;q=0.8\r\n\r\n";
    let (head, body) = bytes_of(&server, packed).await;
    assert!(head.contains("content-encoding: gzip"), "{head}");
    let mut unpacked = String::new();
    let mut decoder = flate2::read::GzDecoder::new(&body[..]);
    std::io::Read::read_to_string(&mut decoder, &mut unpacked).unwrap();
    assert!(body.len() < unpacked.len() / 2, "{}", body.len());
    let families = |text: &str| {
        text.lines()
            .filter(|line| line.starts_with("# TYPE"))
            .count()
    };
    assert_eq!(families(&unpacked), families(&text));
}

#[tokio::test]
async fn what_is_not_there_is_answered_as_json_to_programs_and_as_text_to_people() {
    let server = Server::ready().await;
    for path in ["/api/v1/nothing", "/api", "/api/v2/topics"] {
        let response = server.get(path).await;
        assert_eq!(
            (response.status, response.header("content-type")),
            (404, "application/json")
        );
        let body: Value = serde_json::from_str(&response.body).unwrap();
        assert!(
            body["error"].as_str().unwrap().contains("nothing here"),
            "{body}"
        );
    }
    let response = server.get("/nothing-here").await;
    assert_eq!(response.status, 404);
    assert!(
        response.body.starts_with("nothing here"),
        "{}",
        response.body
    );
}

/// A web page whose name was made to point at this machine (DNS rebinding) is not answered.
#[test]
fn on_loopback_only_this_machines_names_are_answered_to() {
    use std::io::{Read, Write};
    let kafka = crate::support::Kafka::shared("4.4.0");
    let sizegate = crate::support::Sizegate::start(kafka, "");
    let ask = |path: &str, host: Option<&str>| {
        let mut stream = std::net::TcpStream::connect(sizegate.admin()).unwrap();
        let host = host
            .map(|host| format!("Host: {host}\r\n"))
            .unwrap_or_default();
        let version = if host.is_empty() { "1.0" } else { "1.1" };
        write!(stream, "GET {path} HTTP/{version}\r\n{host}\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response.split(' ').nth(1).unwrap().parse::<u16>().unwrap()
    };
    for host in [
        "localhost",
        "LOCALHOST:9644",
        "sizegate.localhost",
        "127.0.0.1:9644",
        "[::1]:9644",
        "192.168.1.7",
    ] {
        assert_eq!(ask("/api/v1/status", Some(host)), 200, "{host}");
    }
    assert_eq!(ask("/api/v1/status", None), 200);
    for host in [
        "evil.example",
        "evil.example:9644",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
    ] {
        for path in ["/", "/metrics", "/api/v1/refusals", "/page/main.js"] {
            assert_eq!(ask(path, Some(host)), 421, "{host} {path}");
        }
        assert_eq!(ask("/livez", Some(host)), 200);
        assert_eq!(ask("/readyz", Some(host)), 200);
    }
}
