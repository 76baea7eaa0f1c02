//! Streams over loopback: TLS both ways, names, client certificates, ends, and mistakes in PEM files.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{Acceptor, Connector, NotAccepted, Stream, TlsConfigError};
use crate::config::{ClientTls, Cluster, HostPort, Identity, ServerTls};

/// An authority, and a leaf for `localhost` and `b1.kafka.test` that serves both ends.
struct Certs(TempDir);

impl Certs {
    fn make() -> Self {
        let dir = TempDir::new().unwrap();
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        std::fs::write(
            dir.path().join("ca.pem"),
            ca.self_signed(&ca_key).unwrap().pem(),
        )
        .unwrap();
        let issuer = Issuer::new(ca, ca_key);
        let key = KeyPair::generate().unwrap();
        let names = ["localhost", "b1.kafka.test"].map(str::to_owned).to_vec();
        let leaf = CertificateParams::new(names)
            .unwrap()
            .signed_by(&key, &issuer)
            .unwrap();
        std::fs::write(dir.path().join("leaf.crt"), leaf.pem()).unwrap();
        std::fs::write(dir.path().join("leaf.key"), key.serialize_pem()).unwrap();
        Self(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn identity(&self) -> Identity {
        Identity {
            cert_file: self.path("leaf.crt"),
            key_file: self.path("leaf.key"),
        }
    }

    fn acceptor(&self, asks_for_certificate: bool) -> Acceptor {
        Acceptor::new(Some(&ServerTls {
            identity: self.identity(),
            client_ca_file: asks_for_certificate.then(|| self.path("ca.pem")),
        }))
        .unwrap()
    }

    fn connector(&self, identity: Option<Identity>, server_name: Option<&str>) -> Connector {
        Connector::new(&cluster(Some(ClientTls {
            ca_file: Some(self.path("ca.pem")),
            identity,
            server_name: server_name.map(str::to_owned),
        })))
        .unwrap()
    }
}

fn cluster(tls: Option<ClientTls>) -> Cluster {
    Cluster {
        bootstrap_servers: Vec::new(),
        tls,
        admin_sasl: None,
        refresh_interval: Duration::from_secs(30),
    }
}

/// Both ends of one connection.
async fn pair(
    acceptor: &Acceptor,
    connector: &Connector,
) -> (std::io::Result<Stream>, Result<Stream, NotAccepted>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let to = HostPort {
        host: "localhost".to_owned(),
        port: listener.local_addr().unwrap().port(),
    };
    let accept = async {
        let (tcp, _) = listener.accept().await.unwrap();
        acceptor.accept(tcp).await
    };
    tokio::join!(connector.connect(&to), accept)
}

async fn exchange_both_ways(mut client: Stream, mut server: Stream) {
    assert!(client.tcp().nodelay().unwrap() && server.tcp().nodelay().unwrap());
    let sent = vec![7; 300_000];
    let mut received = Vec::new();
    let send = async {
        client.write_all(&sent).await.unwrap();
        client.shutdown().await.unwrap();
    };
    let receive = server.read_to_end(&mut received);
    let (_, got) = tokio::join!(send, receive);
    assert_eq!(got.unwrap(), sent.len());
    // The other direction lives on after a half-close.
    server.write_all(b"answer").await.unwrap();
    server.flush().await.unwrap();
    drop(server);
    let mut response = Vec::new();
    client.read_to_end(&mut response).await.unwrap();
    assert_eq!(response, b"answer");
}

#[tokio::test]
async fn plain_and_tls_streams_behave_alike_also_when_a_peer_ends_without_close_notify() {
    let plain = (
        Acceptor::new(None).unwrap(),
        Connector::new(&cluster(None)).unwrap(),
    );
    let certs = Certs::make();
    let tls = (certs.acceptor(false), certs.connector(None, None));
    for (acceptor, connector) in [plain, tls] {
        let (client, server) = pair(&acceptor, &connector).await;
        exchange_both_ways(client.unwrap(), server.unwrap()).await;
    }
}

#[tokio::test]
async fn the_name_of_a_clients_hello_is_known() {
    let certs = Certs::make();
    let connector = certs.connector(None, Some("b1.kafka.test"));
    let (client, server) = pair(&certs.acceptor(false), &connector).await;
    assert_eq!(server.unwrap().server_name(), Some("b1.kafka.test"));
    assert_eq!(client.unwrap().server_name(), None);
}

#[tokio::test]
async fn a_client_without_the_certificate_asked_for_is_turned_away() {
    let certs = Certs::make();
    let acceptor = certs.acceptor(true);
    let (_client, server) = pair(&acceptor, &certs.connector(None, None)).await;
    assert!(server.is_err());
    let connector = certs.connector(Some(certs.identity()), None);
    let (client, server) = pair(&acceptor, &connector).await;
    exchange_both_ways(client.unwrap(), server.unwrap()).await;
}

#[tokio::test]
async fn a_certificate_for_another_name_is_refused_with_the_address_and_the_reason() {
    let certs = Certs::make();
    let connector = certs.connector(None, Some("b2.kafka.test"));
    let (client, _server) = pair(&certs.acceptor(false), &connector).await;
    let error = client.unwrap_err().to_string();
    assert!(
        error.starts_with("TLS localhost:") && error.contains("b2.kafka.test"),
        "{error}"
    );
}

#[tokio::test]
async fn a_refused_connection_names_the_address() {
    // Bound, so that it is nobody else's, and not listening.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let to = HostPort {
        host: "127.0.0.1".to_owned(),
        port: socket.local_addr().unwrap().port(),
    };
    let connector = Connector::new(&cluster(None)).unwrap();
    let error = connector.connect(&to).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
    assert!(error.to_string().starts_with(&format!("connect {to}: ")));
}

#[test]
fn mistakes_in_pem_files_name_the_key_and_the_file() {
    let certs = Certs::make();
    let client = |ca: &str, cert: &str, key: &str| {
        let tls = ClientTls {
            ca_file: Some(certs.path(ca)),
            identity: Some(Identity {
                cert_file: certs.path(cert),
                key_file: certs.path(key),
            }),
            server_name: None,
        };
        match Connector::new(&cluster(Some(tls))) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        }
    };
    assert_eq!(client("ca.pem", "leaf.crt", "leaf.key"), "");
    for (ca, cert, key, words) in [
        (
            "missing.pem",
            "leaf.crt",
            "leaf.key",
            ["cluster.tls.ca_file", "missing.pem"],
        ),
        (
            "leaf.key",
            "leaf.crt",
            "leaf.key",
            ["cluster.tls.ca_file", "holds no certificate"],
        ),
        (
            "ca.pem",
            "leaf.key",
            "leaf.key",
            ["cluster.tls.cert_file", "holds no certificate"],
        ),
        (
            "ca.pem",
            "leaf.crt",
            "leaf.crt",
            ["cluster.tls.key_file", "leaf.crt"],
        ),
    ] {
        let error = client(ca, cert, key);
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    let named = ClientTls {
        ca_file: Some(certs.path("ca.pem")),
        identity: None,
        server_name: Some("not a name".to_owned()),
    };
    let error = Connector::new(&cluster(Some(named))).unwrap_err();
    assert!(matches!(error, TlsConfigError::ServerName { .. }));
}
