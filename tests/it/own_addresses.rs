//! A proxy that is pointed at itself: by its configuration, by brokers that advertise its ports, through another proxy.
//! And a broker for which it has no port.

use std::collections::HashSet;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::support::kafka::KafkaOptions;
use crate::support::scripted::Broker;
use crate::support::{Connection, Kafka, Part, Record, Sizegate, batch, eventually, ports};
use serde_json::Value;

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn check(yaml: &str, arguments: &[&str]) -> (i32, String, String) {
    let dir = tempfile::TempDir::new().unwrap();
    let file = dir.path().join("sizegate.yaml");
    std::fs::write(&file, yaml).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_sizegate"))
        .args(["check", "--config"])
        .arg(&file)
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// `None` until the admin server listens.
fn readiness(sizegate: &Sizegate) -> Option<(u16, String)> {
    crate::support::http::get(sizegate.admin(), "/readyz").ok()
}

#[test]
fn bootstrap_servers_that_are_its_own_are_a_mistake_with_file_line_and_key() {
    let ports = "node_ports: {first: 19093, node_ids: 1-3}";
    let sni = "sni: {bootstrap: kafka.example.com, node: \"b{node_id}.kafka.example.com\", advertised_port: 9092}\n  \
               tls: {cert_file: /x, key_file: /y}";
    for (server, bind, told, key) in [
        ("127.0.0.1:19092", "127.0.0.1:19092", ports, "listener.bind"),
        ("localhost:19092", "127.0.0.1:19092", ports, "listener.bind"),
        ("localhost:19092", "0.0.0.0:19092", ports, "listener.bind"),
        ("127.0.0.7:19092", "0.0.0.0:19092", ports, "listener.bind"),
        ("[::1]:19092", "[::]:19092", ports, "listener.bind"),
        ("127.0.0.1:19092", "[::]:19092", ports, "listener.bind"),
        (
            "127.0.0.1:19093",
            "127.0.0.1:19092",
            ports,
            "listener.node_ports",
        ),
        (
            "127.0.0.1:19095",
            "0.0.0.0:19092",
            ports,
            "listener.node_ports",
        ),
        (
            "Proxy.example.com:19094",
            "0.0.0.0:19092",
            "advertised_host: proxy.example.com\n  node_ports: {first: 19093, node_ids: 1-3}",
            "listener.advertised_host",
        ),
        (
            "kafka.example.com:9092",
            "0.0.0.0:19092",
            sni,
            "listener.sni",
        ),
        (
            "b17.kafka.example.com:9092",
            "0.0.0.0:19092",
            sni,
            "listener.sni",
        ),
    ] {
        let yaml = format!(
            "cluster:\n  bootstrap_servers: ['kafka:9092', '{server}']\nlistener:\n  bind: '{bind}'\n  {told}\n"
        );
        let (code, _, said) = check(&yaml, &[]);
        assert_eq!(code, 64, "{server}: {said}");
        let line = said
            .lines()
            .find(|line| line.contains("cluster.bootstrap_servers"))
            .unwrap_or_else(|| panic!("{server}: {said}"));
        assert!(line.contains("sizegate.yaml:2: "), "{line}");
        assert!(
            line.contains(&format!("is sizegate's own address ({key})")),
            "{line}"
        );
        assert!(line.contains("name Kafka's brokers here"), "{line}");
    }
    for (server, bind) in [
        ("127.0.0.1:9092", "127.0.0.1:19092"),
        ("127.0.0.2:19092", "127.0.0.1:19092"),
        ("127.0.0.1:19096", "127.0.0.1:19092"),
        ("192.0.2.7:19092", "0.0.0.0:19092"),
        ("kafka.example.com:19092", "0.0.0.0:19092"),
    ] {
        let yaml = format!(
            "cluster:\n  bootstrap_servers: ['{server}']\nlistener:\n  bind: '{bind}'\n  {ports}\n"
        );
        let (code, _, said) = check(&yaml, &[]);
        assert_eq!(code, 0, "{server}: {said}");
    }
}

#[test]
fn brokers_that_advertise_its_ports_make_it_not_ready_and_no_connection_multiplies() {
    let first = ports::free_ports(6);
    let advertised = format!("PLAIN://127.0.0.1:{first}");
    let options = KafkaOptions::default().property("advertised.listeners", &advertised);
    let kafka = Kafka::start("4.4.0", options);
    let mut sizegate = Sizegate::before(&kafka.bootstrap())
        .env("SIZEGATE__LISTENER__NODE_PORTS__FIRST", &first.to_string())
        .start_unready();
    let named = format!(
        "broker 1 advertises sizegate's own address 127.0.0.1:{first} (listener.node_ports)"
    );
    eventually(PATIENCE, "it says so", || {
        let (status, body) = readiness(&sizegate)?;
        (status == 503 && body.contains(&named)).then_some(())
    });
    sizegate.log_line(&[&named]);
    let metrics = sizegate.metrics();
    let labels = [("node_id", "1"), ("reason", "own_address")];
    assert_eq!(metrics.sum("broker_unusable", &labels), 1.0);

    // A client of that broker is closed, and the proxy does not connect to itself.
    for _ in 0..3 {
        let mut connection = Connection::open(format!("127.0.0.1:{first}"));
        connection.client_id = Some("checkout".into());
        connection.send_bytes(&[0, 0, 0, 12, 0, 18, 0, 0, 0, 0, 0, 1, 0, 2, b'a', b'b']);
        assert!(connection.is_closed_within(PATIENCE));
    }
    let metrics = sizegate.metrics();
    assert_eq!(metrics.sum("connections_total", &[]), 3.0);
    assert!(sizegate.process().is_running());

    let yaml = format!(
        "cluster: {{bootstrap_servers: ['{}']}}\nlistener: {{bind: '127.0.0.1:{}', advertised_host: 127.0.0.1, node_ports: \
         {{first: {first}, node_ids: 1-5}}}}\n",
        kafka.bootstrap(),
        first + 5
    );
    let (code, said, _) = check(&yaml, &["--cluster"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains(&named), "{said}");
    assert!(!said.contains("TLS"), "{said}");
}

/// What leads back through another proxy cannot be told by an address.
#[test]
fn two_proxies_that_point_at_each_other_end_the_loop_and_name_it() {
    let first = ports::free_ports(2);
    let (one, two) = (first, first + 1);
    let start = |bind: u16, other: u16| {
        Sizegate::before(&format!("127.0.0.1:{other}"))
            .env("SIZEGATE__LISTENER__BIND", &format!("127.0.0.1:{bind}"))
            .start_unready()
    };
    let proxies = [start(one, two), start(two, one)];
    let looped = |sizegate: &Sizegate| {
        readiness(sizegate).is_some_and(|(status, body)| {
            status == 503 && body.contains("come back to this sizegate, through another proxy")
        })
    };
    eventually(PATIENCE, "one of them finds the loop", || {
        proxies.iter().any(looped).then_some(())
    });
    let closed = || -> f64 {
        let closed = proxies.iter().map(|sizegate| {
            let metrics = sizegate.metrics();
            metrics.sum("connections_closed_total", &[("reason", "loop")])
        });
        closed.sum()
    };
    assert!(closed() >= 1.0);
    let lines: usize = proxies
        .iter()
        .map(|sizegate| {
            let log = sizegate.log();
            log.matches("the client is this sizegate itself").count()
        })
        .sum();
    assert!((1..=2).contains(&lines), "{lines}");
    // A client makes a few connections, and none is left.
    for port in [one, two] {
        let mut connection = Connection::open(format!("127.0.0.1:{port}"));
        connection.send_bytes(&[0, 0, 0, 12, 0, 18, 0, 0, 0, 0, 0, 1, 0, 2, b'a', b'b']);
        assert!(connection.is_closed_within(PATIENCE));
    }
    eventually(PATIENCE, "no connection is left", || {
        let open = |sizegate: &Sizegate| sizegate.metrics().sum("connections", &[]);
        (proxies.iter().map(open).sum::<f64>() <= 1.0).then_some(())
    });
}

/// The operating system gives a port again where the connection's other end differs.
#[test]
fn a_client_on_a_port_from_which_we_are_connected_to_a_broker_is_no_loop() {
    let broker = Broker::sound(&[("orders", 1, 1_000)]);
    let bind = ports::free_ports(1);
    let sizegate = Sizegate::before(&broker.bootstrap())
        .env("SIZEGATE__LISTENER__BIND", &format!("0.0.0.0:{bind}"))
        .start();
    // Each of these has its connection to the broker while it is open.
    let open = |address: &str| {
        let mut connection = Connection::open(address);
        connection.api_versions("raw", "1");
        connection
    };
    let _held: Vec<_> = (0..200)
        .map(|_| open(&format!("127.0.0.1:{bind}")))
        .collect();
    let upstreams: HashSet<u16> = broker.peers().iter().map(|peer| peer.port()).collect();
    assert!(upstreams.len() > 200);
    // Of every address that is connected to, ports begin elsewhere: one in a hundred hits.
    let addresses = (0..64).flat_map(|a| (2..255).map(move |b| format!("127.0.{a}.{b}:{bind}")));
    let is_hit = |client: &TcpStream| upstreams.contains(&client.local_addr().unwrap().port());
    let stream = addresses
        .map(|address| TcpStream::connect(address).unwrap())
        .find(is_hit)
        .expect("a client on a port of ours");
    let mut client = Connection::over(stream);
    client.api_versions("raw", "1");
    let closed = [("reason", "loop")];
    let metrics = sizegate.metrics();
    assert_eq!(metrics.sum("connections_closed_total", &closed), 0.0);
}

#[test]
fn a_broker_outside_node_ids_leaves_the_replica_ready_for_the_others() {
    let kafka = Kafka::shared("4.4.0");
    let sizegate = Sizegate::before(&kafka.bootstrap())
        .env("SIZEGATE__LISTENER__NODE_PORTS__NODE_IDS", "2-7")
        .start();
    let named = "broker 1 is outside listener.node_ports.node_ids";
    let (status, body) = sizegate.get("/readyz");
    assert_eq!(status, 200, "{body}");
    assert!(
        body.starts_with("ready\n") && body.contains(&format!("but {named}")),
        "{body}"
    );
    sizegate.log_line(&["listener.node_ports.node_ids", "[1]"]);
    let labels = [("node_id", "1"), ("reason", "outside_node_ids")];
    assert_eq!(sizegate.metrics().sum("broker_unusable", &labels), 1.0);
    let view = sizegate.json("/api/v1/status");
    assert_eq!(view["why_not_ready"], Value::Array(Vec::new()));
    let told = view["control_plane"]["brokers_outside"][0]
        .as_str()
        .unwrap();
    assert!(told.contains(named), "{told}");

    // Who needs no address of a broker is served.
    let topic = kafka.topic("outside", 1, &[]);
    let mut connection = Connection::open(sizegate.bootstrap());
    let part = Part::new(&topic, batch([Record::of_a(10)]).build());
    assert_eq!(connection.produce(9, -1, &[part])[0].code, 0);
}
