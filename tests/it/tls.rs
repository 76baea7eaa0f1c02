//! TLS on both sides: real clients through sizegate to a Kafka that asks for certificates, one port for all brokers,
//! certificates that change, and what the log says where there is no TLS session.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::support::admin;
use crate::support::certs::Certs;
use crate::support::client::{frame, produce_request, text};
use crate::support::http;
use crate::support::process::new_dir;
use crate::support::programs::Output;
use crate::support::scripted::Broker;
use crate::support::sizegate::Builder;
use crate::support::{
    Connection, KAFKA_VERSIONS, Kafka, KafkaOptions, Part, Program, Sizegate, Topic,
    batch_of_bytes, eventually,
};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{
    ApiKey, BrokerId, FetchRequest, ProduceResponse, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::Decodable as _;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const PATIENCE: Duration = Duration::from_secs(60);

/// Two brokers whose TLS listeners ask for a certificate.
fn guarded() -> &'static Kafka {
    static GUARDED: OnceLock<Kafka> = OnceLock::new();
    GUARDED.get_or_init(|| {
        let options = KafkaOptions {
            tls: true,
            ..KafkaOptions::nodes(2)
        }
        .property("listener.name.tls.ssl.client.auth", "required");
        Kafka::start(KAFKA_VERSIONS[1], options)
    })
}

fn certs() -> &'static Certs {
    guarded().certs()
}

/// TLS to the brokers, with a certificate of our own.
fn behind_tls() -> Builder {
    Sizegate::before(&guarded().tls_bootstrap()).cluster(&format!(
        "tls: {{ca_file: {}, cert_file: {}, key_file: {}}}",
        certs().ca().display(),
        certs().cert("client").display(),
        certs().key("client").display(),
    ))
}

fn listener_tls(leaf: &str, more: &str) -> String {
    format!(
        "tls: {{cert_file: {}, key_file: {}{more}}}",
        certs().cert(leaf).display(),
        certs().key(leaf).display(),
    )
}

fn asks_for_certificates() -> String {
    format!(", client_ca_file: {}", certs().ca().display())
}

/// mTLS on both sides.
fn both_sides() -> &'static Sizegate {
    static BOTH: OnceLock<Sizegate> = OnceLock::new();
    BOTH.get_or_init(|| {
        behind_tls()
            .listener(&listener_tls("server", &asks_for_certificates()))
            .start()
    })
}

fn topic() -> &'static Topic {
    static TOPIC: OnceLock<Topic> = OnceLock::new();
    TOPIC.get_or_init(|| guarded().topic("tls", 1, &[("max.message.bytes", "5000")]))
}

fn java(bootstrap: &str, certificate: Option<&str>) -> Program {
    let program = Program::java("SendSizes", "4.3.0")
        .arg("bootstrap", bootstrap)
        .arg("topic", &topic().name)
        .arg("values", "100,6000,100")
        .arg("p.security.protocol", "SSL")
        .arg("p.ssl.truststore.type", "PEM")
        .arg("p.ssl.truststore.location", certs().ca().display());
    match certificate {
        None => program,
        Some(leaf) => program
            .arg("p.ssl.keystore.type", "PEM")
            .arg("p.ssl.keystore.location", certs().store(leaf).display()),
    }
}

fn python(client: &str, bootstrap: &str) -> Program {
    Program::python("produce.py")
        .arg("client", client)
        .arg("bootstrap", bootstrap)
        .arg("topic", &topic().name)
        .arg("values", "100,6000,100")
}

fn kafka_python(bootstrap: &str) -> Program {
    python("kafka-python", bootstrap)
        .arg("c.security_protocol", "SSL")
        .arg("c.ssl_cafile", certs().ca().display())
        .arg("c.ssl_certfile", certs().cert("client").display())
        .arg("c.ssl_keyfile", certs().key("client").display())
}

fn librdkafka(bootstrap: &str) -> Program {
    python("confluent", bootstrap)
        .arg("c.security.protocol", "SSL")
        .arg("c.ssl.ca.location", certs().ca().display())
        .arg(
            "c.ssl.certificate.location",
            certs().cert("client").display(),
        )
        .arg("c.ssl.key.location", certs().key("client").display())
}

/// To be loaded before a program's own resolver: `*.kafka.test` is this machine.
fn resolver(dir: &Path) -> String {
    let library = dir.join("hosts.so");
    let source = crate::support::programs::repo().join("tests/clients/c/hosts.c");
    let made = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .arg("-ldl")
        .output()
        .expect("cc, with which Rust links");
    assert!(made.status.success(), "{made:?}");
    library.display().to_string()
}

/// Of three records the second is over the topic's limit.
fn assert_served(output: &Output) {
    let fates: Vec<_> = output.lines[..3].iter().map(|line| &line["ok"]).collect();
    assert_eq!(fates, [true, false, true], "{output:?}");
}

#[test]
fn java_is_served_over_mutual_tls_1_2_and_1_3_on_both_sides() {
    let sizegate = both_sides();
    for version in ["TLSv1.2", "TLSv1.3"] {
        let output = java(&sizegate.bootstrap(), Some("client"))
            .arg("p.ssl.protocol", version)
            .arg("p.ssl.enabled.protocols", version)
            .run();
        assert_served(&output);
        let text = output.only("ok", false)["text"].as_str().unwrap();
        assert!(text.starts_with("sizegate refused "), "{text}");
    }
}

#[test]
fn librdkafka_is_served_over_mutual_tls_on_both_sides() {
    let output = librdkafka(&both_sides().bootstrap()).run();
    assert_served(&output);
}

#[test]
fn kafka_python_is_served_over_mutual_tls_on_both_sides() {
    assert_served(&kafka_python(&both_sides().bootstrap()).run());
}

/// Names mean 127.0.0.1 in the client's process only: the system's own resolver is left alone.
#[test]
fn one_port_serves_all_brokers_to_clients_that_say_their_names() {
    let sizegate = behind_tls()
        .listener(&listener_tls("server", &asks_for_certificates()))
        .sni("kafka.test", "b{node_id}.kafka.test")
        .start();
    let port = sizegate.bootstrap().rsplit(':').next().unwrap().to_owned();
    let bootstrap = format!("kafka.test:{port}");
    // One partition on each broker: whoever comes to the wrong one is sent away until it gives up.
    let topic = guarded().topic("named", 2, &[("max.message.bytes", "5000")]);
    for partition in 0..2 {
        let on = |program: Program| {
            program
                .arg("topic", &topic.name)
                .arg("partition", partition)
        };
        let program = on(java(&bootstrap, Some("client")));
        let hosts = program.dir().join("hosts");
        fs::write(&hosts, "127.0.0.1 kafka.test b1.kafka.test b2.kafka.test\n").unwrap();
        let option = format!("-Djdk.net.hosts.file={}", hosts.display());
        assert_served(&program.env("JDK_JAVA_OPTIONS", &option).run());
        let program = on(kafka_python(&bootstrap));
        let names = "kafka.test,b1.kafka.test,b2.kafka.test";
        assert_served(&program.arg("hosts", names).run());
        let program = on(librdkafka(&bootstrap));
        let library = resolver(program.dir());
        assert_served(&program.env("LD_PRELOAD", &library).run());
        let stored = guarded().latest_offset(&topic.name, partition);
        assert_eq!(stored, 6, "two of each client");
    }

    let address = sizegate.bootstrap();
    Tls::open(&address, "b1.kafka.test", Some("client")).api_versions();
    // A broker that the cluster does not have, and a name that is nobody's: the log says which.
    Tls::open(&address, "b7.kafka.test", Some("client")).fails();
    sizegate.log_line(&["no broker to talk to", "the cluster has no broker 7"]);
    Tls::open(&address, "b01.kafka.test", Some("client")).fails();
    sizegate.log_line(&["b01.kafka.test", "is none of the names in listener.sni"]);
}

#[test]
fn certificates_that_change_are_taken_over_and_open_connections_live_on() {
    let dir = new_dir("certificates");
    let put = |name: &str, from: &Path| {
        // Beside and renamed over, as every tool that renews certificates does.
        fs::copy(from, dir.join("new")).unwrap();
        fs::rename(dir.join("new"), dir.join(name)).unwrap();
    };
    put("tls.crt", &certs().cert("server"));
    put("tls.key", &certs().key("server"));
    let sizegate = behind_tls()
        .listener(&format!(
            "tls: {{cert_file: {0}/tls.crt, key_file: {0}/tls.key}}",
            dir.display()
        ))
        .start();
    let address = sizegate.bootstrap();
    let mut before = Tls::open(&address, "localhost", None);
    before.api_versions();

    // A certificate without its key is a file half written, or a mistake. It changes nothing.
    put("tls.crt", &certs().cert("expired"));
    sizegate.log_line(&["the changed certificates cannot be used", "listener.tls"]);
    assert_eq!(
        sizegate.metrics().sum("config_last_reload_success", &[]),
        0.0
    );
    let mut meanwhile = Tls::open(&address, "localhost", None);
    meanwhile.api_versions();
    assert_eq!(meanwhile.certificate(), before.certificate());

    let renewed = Certs::make(&dir.join("renewed"));
    put("tls.crt", &renewed.cert("server"));
    put("tls.key", &renewed.key("server"));
    sizegate.log_line(&["certificates reloaded"]);
    assert_eq!(
        sizegate.metrics().sum("config_last_reload_success", &[]),
        1.0
    );
    let mut after = Tls::open_trusting(&renewed.ca(), &address, "localhost", None);
    after.api_versions();
    assert_ne!(after.certificate(), before.certificate());
    before.api_versions();
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_client_without_tls_on_a_port_with_tls_is_named_with_what_it_speaks() {
    let sizegate = both_sides();
    let mut kafka = Connection::open(sizegate.bootstrap());
    kafka.send_bytes(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff]);
    assert!(kafka.is_closed_within(PATIENCE));
    sizegate.log_line(&[
        "speaks without TLS",
        "protocol=kafka",
        "security.protocol=SSL",
    ]);
    let mut http = Connection::open(sizegate.bootstrap());
    http.send_bytes(b"GET / HTTP/1.1\r\n\r\n");
    assert!(http.is_closed_within(PATIENCE));
    sizegate.log_line(&["speaks without TLS", "protocol=http"]);
}

#[test]
fn a_client_whose_certificate_is_missing_expired_or_a_strangers_is_told_apart_in_the_log() {
    let sizegate = both_sides();
    let address = sizegate.bootstrap();
    Tls::open(&address, "localhost", None).fails();
    sizegate.log_line(&[
        "the client brings no certificate, and listener.tls.client_ca_file asks for one",
    ]);
    Tls::open(&address, "localhost", Some("expired")).fails();
    sizegate.log_line(&["the client's certificate expired", "days ago"]);
    let dir = new_dir("stranger");
    let stranger = Certs::make(&dir);
    Tls::open_as(
        &stranger,
        &certs().ca(),
        &address,
        "localhost",
        Some("client"),
    )
    .fails();
    sizegate
        .log_line(&["the client's certificate is by no authority in listener.tls.client_ca_file"]);
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_client_that_does_not_accept_our_certificate_is_named_in_the_log() {
    let sizegate = behind_tls().listener(&listener_tls("expired", "")).start();
    let output = java(&sizegate.bootstrap(), None)
        .arg("p.max.block.ms", "60000")
        .run_any();
    assert_ne!(output.code, 0, "{output:?}");
    sizegate.log_line(&["our certificate", "listener.tls.cert_file"]);
}

#[test]
fn a_broker_that_is_reached_in_the_wrong_way_is_named_in_the_log_and_keeps_sizegate_unready() {
    let why_not = |sizegate: &Sizegate, words: &[&str]| {
        let (began, mut said) = (Instant::now(), String::new());
        while !words.iter().all(|word| said.contains(word)) {
            assert!(began.elapsed() < PATIENCE, "no {words:?} in {said}");
            std::thread::sleep(Duration::from_millis(20));
            if let Ok((503, body)) = http::get(sizegate.admin(), "/readyz") {
                said = body;
            }
        }
    };
    let ca = certs().ca();
    let tls = |more: &str| format!("tls: {{ca_file: {}{more}}}", ca.display());
    let plaintext_port = Sizegate::before(&guarded().bootstrap())
        .cluster(&tls(""))
        .start_unready();
    why_not(
        &plaintext_port,
        &["TLS 127.0.0.1", "is it the plaintext port?"],
    );
    let tls_port = Sizegate::before(&guarded().tls_bootstrap()).start_unready();
    why_not(&tls_port, &["is cluster.tls missing?"]);
    let without_certificate = Sizegate::before(&guarded().tls_bootstrap())
        .cluster(&tls(""))
        .start_unready();
    why_not(
        &without_certificate,
        &["the broker asks for a certificate", "cluster.tls.cert_file"],
    );
    let other_name = Sizegate::before(&guarded().tls_bootstrap())
        .cluster(&tls(", server_name: elsewhere.test"))
        .start_unready();
    why_not(
        &other_name,
        &["the broker's certificate is for another name"],
    );
}

/// Sends a request in two pieces, and reads its response.
fn ask(stream: &mut (impl Read + Write), request: &[u8], between: impl FnOnce()) -> Vec<u8> {
    let (first, last) = request.split_at(request.len() / 2);
    stream.write_all(first).unwrap();
    between();
    stream.write_all(last).unwrap();
    let mut prefix = [0; 4];
    stream.read_exact(&mut prefix).unwrap();
    let mut response = vec![0; u32::from_be_bytes(prefix) as usize];
    stream.read_exact(&mut response).unwrap();
    response
}

/// Produces a batch of 2 MiB at its topic's leader and fetches it.
fn assert_carries_large_batches(stream: &mut (impl Read + Write), topic: &Topic) {
    let records = batch_of_bytes(2 << 20).build();
    // What the broker changes is before its checksum.
    let kept = records.slice(17..);
    let produce = produce_request(None, -1, &[Part::new(topic, records)]);
    let response = ask(stream, &frame(&produce, 9, 1, None), || ());
    let mut rest = bytes::Bytes::from(response);
    ResponseHeader::decode(&mut rest, 1).unwrap();
    let produced = ProduceResponse::decode(&mut rest, 9).unwrap();
    let partition = &produced.responses[0].partition_responses[0];
    assert_eq!(partition.error_code, 0, "{:?}", partition.error_message);
    let partition = FetchPartition::default().with_partition_max_bytes(8 << 20);
    let fetch = FetchRequest::default()
        .with_replica_id(BrokerId(-1))
        .with_max_wait_ms(1_000)
        .with_min_bytes(1)
        .with_max_bytes(8 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![
            FetchTopic::default()
                .with_topic(TopicName(text(&topic.name)))
                .with_partitions(vec![partition]),
        ]);
    for _ in 0..3 {
        let response = ask(stream, &frame(&fetch, 12, 2, None), || ());
        let at = response.windows(64).position(|found| *found == kept[..64]);
        let at = at.expect("the batch");
        assert!(response[at..at + kept.len()] == kept[..]);
    }
}

#[test]
fn large_batches_pass_in_both_directions_with_tls_on_either_side_and_on_both() {
    let topic = guarded().topic("large", 1, &[("max.message.bytes", "4194304")]);
    let plain_to_brokers = Sizegate::before(&guarded().bootstrap())
        .listener(&listener_tls("server", ""))
        .start();
    let plain_from_clients = behind_tls().start();
    let mut connection = Connection::open(guarded().node(1));
    let known = admin::metadata(&mut connection, &[&topic.name]);
    let leader = known.topics[0].partitions[0].leader_id.0;
    for sizegate in [&plain_to_brokers, both_sides()] {
        let mut tls = Tls::open(&sizegate.node(leader), "localhost", Some("client"));
        assert_carries_large_batches(&mut tls.stream, &topic);
    }
    let mut plain = TcpStream::connect(plain_from_clients.node(leader)).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_carries_large_batches(&mut plain, &topic);
}

#[test]
fn over_tls_too_the_broker_sees_the_first_bytes_before_the_client_has_sent_the_last() {
    let broker = Broker::sound(&[("orders", 1, 4 << 20)]);
    let sizegate = Sizegate::before(&broker.bootstrap())
        .listener(&listener_tls("server", ""))
        .start();
    let topic = broker.topic("orders");
    let path = "/api/v1/topics?topic=orders";
    eventually(PATIENCE, "the topic known", || {
        let topics = sizegate.json(path);
        (!topics["topics"].as_array()?.is_empty()).then_some(())
    });
    let batch = batch_of_bytes(2 << 20).build();
    let request = produce_request(None, -1, &[Part::new(&topic, batch)]);
    let request = frame(&request, 9, 1, None);
    let mut tls = Tls::open(&sizegate.bootstrap(), "localhost", None);
    ask(&mut tls.stream, &request, || {
        eventually(PATIENCE, "the broker reads what has come", || {
            (broker.arriving() >= request.len() / 2 - 4).then_some(())
        });
    });
    assert!(broker.received_of(ApiKey::Produce)[0].body == request[4..]);
}

/// A client of our own, for what real ones do not show: certificates, names, and connections kept open.
struct Tls {
    stream: StreamOwned<ClientConnection, TcpStream>,
    address: SocketAddr,
}

impl Tls {
    fn open(address: &str, name: &str, certificate: Option<&str>) -> Self {
        Self::open_trusting(&certs().ca(), address, name, certificate)
    }

    fn open_trusting(ca: &Path, address: &str, name: &str, certificate: Option<&str>) -> Self {
        Self::open_as(certs(), ca, address, name, certificate)
    }

    fn open_as(
        own: &Certs,
        ca: &Path,
        address: &str,
        name: &str,
        certificate: Option<&str>,
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(ca).unwrap())
            .unwrap();
        let builder =
            ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots);
        let config = match certificate {
            None => builder.with_no_client_auth(),
            Some(leaf) => builder
                .with_client_auth_cert(
                    vec![CertificateDer::from_pem_file(own.cert(leaf)).unwrap()],
                    PrivateKeyDer::from_pem_file(own.key(leaf)).unwrap(),
                )
                .unwrap(),
        };
        let name = ServerName::try_from(name.to_owned()).unwrap();
        let tls = ClientConnection::new(Arc::new(config), name).unwrap();
        let address: SocketAddr = address.parse().unwrap();
        let tcp = TcpStream::connect(address).unwrap();
        tcp.set_read_timeout(Some(PATIENCE)).unwrap();
        Self {
            stream: StreamOwned::new(tls, tcp),
            address,
        }
    }

    /// ApiVersions 0, asked and answered.
    fn try_api_versions(&mut self) -> std::io::Result<()> {
        self.stream
            .write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 0xff, 0xff])?;
        let mut prefix = [0; 4];
        self.stream.read_exact(&mut prefix)?;
        let mut response = vec![0; u32::from_be_bytes(prefix) as usize];
        self.stream.read_exact(&mut response)?;
        assert_eq!(
            response[..6],
            [0, 0, 0, 1, 0, 0],
            "correlation id, error code"
        );
        Ok(())
    }

    fn api_versions(&mut self) {
        self.try_api_versions()
            .unwrap_or_else(|error| panic!("{}: {error}", self.address));
    }

    fn fails(mut self) {
        self.try_api_versions()
            .expect_err("the connection is closed");
    }

    fn certificate(&self) -> Vec<u8> {
        self.stream.conn.peer_certificates().unwrap()[0].to_vec()
    }
}
