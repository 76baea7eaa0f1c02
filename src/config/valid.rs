//! What a file said ([`RawConfig`]) becomes what is in force ([`Config`]): defaults, and everything one
//! section must hold by itself. What sections say against each other is in `contradictions`.
//!
//! Invariant: every default is here and nowhere else.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::mistakes::{Report, below, shown};
use super::raw::{
    Field, Key, List, RawClientTls, RawCluster, RawConfig, RawFamily, RawLimits, RawListener,
    RawNodePorts, RawRule, RawSasl, RawServerTls, RawSni, Text,
};
use super::scalars::{Alignment, Count, HostName, Interval, Share, Size};
use super::topics::MemberPattern;
use super::{
    Advertise, BatchLimit, ClientTls, Cluster, Config, Decode, Families, Family, Identity, Limits,
    Listener, LogFormat, LogLevel, Mode, Rule, Sasl, ServerTls, Telemetry, TopicPattern,
};
use crate::policy::{Action, ErrorCode};

const MIB: u64 = 1024 * 1024;

/// The configuration; it is in force only if `report` is empty afterwards.
pub(super) fn config(raw: RawConfig, report: &mut Report) -> Config {
    let families = raw.families.section();
    let telemetry = raw.telemetry.section();
    let mut limits = limits(raw.limits.section());
    limits.batch_bytes = limits.batch_bytes.or(Some(BatchLimit::Inherit));
    Config {
        cluster: cluster(raw.cluster.section(), report),
        listener: listener(raw.listener.section(), report),
        mode: raw.mode.or(Mode::Enforce),
        limits,
        rules: entries(raw.rules, "rules", report, rule),
        families: Families {
            detect: families.detect.or(true),
            headroom_bytes: families.headroom.or(Size(64 * 1024)).0,
            members: entries(families.members, "families.members", report, family),
        },
        near_limit: raw.near_limit.or(Share(0.8)).0,
        memory_budget_bytes: raw.memory.section().budget.or(Size(512 * MIB)).0,
        decode: raw.inspection.section().decode.or(Decode::WhenNeeded),
        admin_bind: raw.admin.section().bind.or(loopback(9644)),
        telemetry: Telemetry {
            topics: number(telemetry.topics.or(Count(1_000))),
            log: telemetry.log.or(LogFormat::Text),
            log_level: telemetry.log_level.or(LogLevel::Info),
        },
    }
}

fn cluster(raw: RawCluster, report: &mut Report) -> Cluster {
    const SERVERS: &str = "cluster.bootstrap_servers";
    if raw.bootstrap_servers.is_absent() {
        report.missing(
            SERVERS,
            "name the Kafka brokers, such as `bootstrap_servers: [kafka-1:9092]` (or --bootstrap-servers, or \
             SIZEGATE__CLUSTER__BOOTSTRAP_SERVERS)",
        );
    } else if matches!(&raw.bootstrap_servers, Field::Given(servers) if servers.is_empty()) {
        report.note(SERVERS, "is an empty list: name at least one Kafka broker");
    }
    let admin = raw.admin.section();
    Cluster {
        bootstrap_servers: raw
            .bootstrap_servers
            .entries()
            .into_iter()
            .map(|text| text.0)
            .collect(),
        tls: raw.tls.given().map(|tls| client_tls(tls, report)),
        admin_sasl: admin.sasl.given().and_then(|raw| sasl(raw, report)),
        refresh_interval: admin
            .refresh_interval
            .or(Interval(Duration::from_secs(30)))
            .0,
    }
}

fn client_tls(raw: RawClientTls, report: &mut Report) -> ClientTls {
    const SECTION: &str = "cluster.tls";
    let wants_identity = !raw.cert_file.is_absent() || !raw.key_file.is_absent();
    ClientTls {
        ca_file: raw
            .ca_file
            .value()
            .map(|path| certificates(SECTION, "ca_file", path, report)),
        identity: if wants_identity {
            identity(SECTION, raw.cert_file, raw.key_file, report)
        } else {
            None
        },
        server_name: raw.server_name.value().map(|name| name.0),
    }
}

fn sasl(raw: RawSasl, report: &mut Report) -> Option<Sasl> {
    const SECTION: &str = "cluster.admin.sasl";
    for (key, absent, what) in [
        (
            "mechanism",
            raw.mechanism.is_absent(),
            "`PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`",
        ),
        (
            "username",
            raw.username.is_absent(),
            "the control plane's user",
        ),
    ] {
        if absent {
            report.missing(&below(SECTION, key), what);
        }
    }
    let password_file = &below(SECTION, "password_file");
    let password = match (raw.password, raw.password_file) {
        (Field::Absent, Field::Absent) => {
            report.missing(
                &below(SECTION, "password"),
                "write `password_file: FILE`, or `password: ${VARIABLE}` to take it from the environment",
            );
            None
        }
        (Field::Absent, file) => file
            .value()
            .and_then(|file| password_from(file, password_file, report)),
        (password, Field::Absent) => password.value().map(|secret| secret.0),
        _ => {
            report.note(
                password_file,
                "stands beside `password`: write one of the two",
            );
            None
        }
    };
    Some(Sasl {
        mechanism: raw.mechanism.value()?,
        username: raw.username.value()?.0,
        password: password?,
    })
}

/// The password in a file, without the line end that editors and `echo` leave.
fn password_from(file: PathBuf, key: &str, report: &mut Report) -> Option<String> {
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) => {
            report.note(key, cannot_read(&file, &error.to_string()));
            return None;
        }
    };
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        report.note(
            key,
            format!("{} is empty", shown(&file.display().to_string())),
        );
        return None;
    }
    Some(password.to_owned())
}

fn listener(raw: RawListener, report: &mut Report) -> Listener {
    let bind = raw.bind.or(loopback(19_092));
    if !raw.node_ports.is_absent() && !raw.sni.is_absent() {
        report.note(
            "listener.sni",
            "stands beside `node_ports`: write one of the two (sni: one port for all brokers, told apart by name; \
             node_ports: one port for each)",
        );
    } else if !raw.sni.is_absent() && !raw.advertised_host.is_absent() {
        report.note(
            "listener.advertised_host",
            "has no effect beside `sni`, which tells clients `sni.bootstrap` and `sni.node`: remove it",
        );
    }
    if !raw.sni.is_absent() && raw.tls.is_absent() {
        report.contradiction(
            &["listener.sni", "listener.tls"],
            "needs `listener.tls`: brokers are told apart by the name in the client's TLS hello",
        );
    }
    let advertised_host = raw.advertised_host.or(HostName("localhost".to_owned())).0;
    let sni = raw.sni.given().and_then(|raw| sni(raw, bind, report));
    let node_ports = raw.node_ports.section();
    Listener {
        bind,
        advertise: sni
            .unwrap_or_else(|| self::node_ports(node_ports, advertised_host, bind, report)),
        tls: raw.tls.given().and_then(|tls| server_tls(tls, report)),
        frame_bytes: u32::try_from(raw.frame_bytes.or(Size(100 * MIB)).0).unwrap_or(u32::MAX),
        max_connections: number(raw.max_connections.or(Count(10_000))),
        idle_timeout: raw.idle_timeout.or(Interval(Duration::from_secs(600))).0,
    }
}

fn node_ports(raw: RawNodePorts, host: String, bind: SocketAddr, report: &mut Report) -> Advertise {
    const IDS: &str = "listener.node_ports.node_ids";
    // The port after the bootstrap address, unless the system picks that one: then it picks these too.
    let first = raw.first.or(if bind.port() == 0 {
        0
    } else {
        bind.port().saturating_add(1)
    });
    let mut node_ids: Vec<i32> = Vec::new();
    if raw.node_ids.is_absent() {
        node_ids.extend(0..=9);
    } else if matches!(&raw.node_ids, Field::Given(ranges) if ranges.is_empty()) {
        report.note(IDS, "is an empty list: no broker would have a port");
    }
    // A bound before the ids are listed; contradictions say how many ports there are from `first` on.
    let mut room = usize::from(u16::MAX);
    for range in raw.node_ids.entries() {
        let range = range.0.0;
        let count = usize::try_from(i64::from(*range.end()) - i64::from(*range.start()) + 1)
            .unwrap_or(usize::MAX);
        if let Some(twice) = node_ids.iter().find(|id| range.contains(id)) {
            report.note(IDS, format!("names broker {twice} twice"));
        } else if count > room {
            report.note(IDS, "names more brokers than there are ports (65,535)");
            break;
        } else {
            room -= count;
            node_ids.extend(range);
        }
    }
    Advertise::NodePorts {
        host,
        first,
        node_ids,
    }
}

fn sni(raw: RawSni, bind: SocketAddr, report: &mut Report) -> Option<Advertise> {
    for (key, absent, what) in [
        (
            "bootstrap",
            raw.bootstrap.is_absent(),
            "the name in clients' `bootstrap.servers`, such as `kafka.example.com`",
        ),
        (
            "node",
            raw.node.is_absent(),
            "brokers' names for clients, such as `b{node_id}.kafka.example.com`",
        ),
    ] {
        if absent {
            report.missing(&below("listener.sni", key), what);
        }
    }
    let advertised_port = match raw.advertised_port {
        Field::Absent => bind.port(),
        port => u16::try_from(port.or(Count(1)).0).unwrap_or(u16::MAX),
    };
    Some(Advertise::Sni {
        bootstrap: raw.bootstrap.value()?.0,
        node: raw.node.value()?.0,
        advertised_port,
    })
}

fn server_tls(raw: RawServerTls, report: &mut Report) -> Option<ServerTls> {
    const SECTION: &str = "listener.tls";
    let client_ca_file = raw
        .client_ca_file
        .value()
        .map(|path| certificates(SECTION, "client_ca_file", path, report));
    let identity = identity(SECTION, raw.cert_file, raw.key_file, report)?;
    Some(ServerTls {
        identity,
        client_ca_file,
    })
}

/// A certificate and its key: both or a mistake.
fn identity(
    section: &str,
    cert: Key<PathBuf>,
    key: Key<PathBuf>,
    report: &mut Report,
) -> Option<Identity> {
    for (name, absent, what) in [
        ("cert_file", cert.is_absent(), "the certificate chain, PEM"),
        (
            "key_file",
            key.is_absent(),
            "the certificate's private key, PEM",
        ),
    ] {
        if absent {
            report.missing(&below(section, name), what);
        }
    }
    let cert_file = cert
        .value()
        .map(|path| certificates(section, "cert_file", path, report));
    let key_file = key.value();
    if let Some(path) = &key_file
        && let Err(error) = PrivateKeyDer::from_pem_file(path)
    {
        report.note(
            &below(section, "key_file"),
            pem_problem(path, "private key", error),
        );
    }
    Some(Identity {
        cert_file: cert_file?,
        key_file: key_file?,
    })
}

/// Notes if the file at `path` holds no certificate.
fn certificates(section: &str, key: &str, path: PathBuf, report: &mut Report) -> PathBuf {
    let first = CertificateDer::pem_file_iter(&path).and_then(|mut certificates| {
        certificates
            .next()
            .unwrap_or(Err(rustls::pki_types::pem::Error::NoItemsFound))
    });
    if let Err(error) = first {
        report.note(
            &below(section, key),
            pem_problem(&path, "certificate", error),
        );
    }
    path
}

fn pem_problem(path: &Path, what: &str, error: rustls::pki_types::pem::Error) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::Io(error) => cannot_read(path, &error.to_string()),
        Error::NoItemsFound => format!(
            "{} holds no {what} in PEM form",
            shown(&path.display().to_string())
        ),
        error => format!("{} is not PEM: {error}", shown(&path.display().to_string())),
    }
}

fn cannot_read(path: &Path, error: &str) -> String {
    format!(
        "cannot read {}: {error}",
        shown(&path.display().to_string())
    )
}

fn limits(raw: RawLimits) -> Limits {
    Limits {
        batch_bytes: raw.batch_bytes.value(),
        uncompressed_bytes: raw.uncompressed_bytes.value().map(|size| size.0),
        record_bytes: raw.record_bytes.value().map(|size| size.0),
        estimate_bytes: raw.estimate_bytes.value().map(|size| size.0),
        key_bytes: raw.key_bytes.value().map(|size| size.0),
        value_bytes: raw.value_bytes.value().map(|size| size.0),
        headers_bytes: raw.headers_bytes.value().map(|size| size.0),
        ratio: raw.ratio.value().map(|ratio| ratio.0),
    }
}

fn rule(raw: RawRule, path: &str, report: &mut Report) -> Rule {
    for (key, absent, what) in [
        (
            "name",
            raw.name.is_absent(),
            "every refusal by this rule names it",
        ),
        (
            "topics",
            raw.topics.is_absent(),
            "the topics it is for, such as `topics: [orders, \"orders.*\"]`",
        ),
    ] {
        if absent {
            report.missing(&below(path, key), what);
        }
    }
    if matches!(&raw.topics, Field::Given(topics) if topics.is_empty()) {
        report.note(
            &below(path, "topics"),
            "is an empty list: the rule would be for no topic",
        );
    }
    Rule {
        name: raw.name.value().map(|name| name.0).unwrap_or_default(),
        topics: raw
            .topics
            .entries()
            .into_iter()
            .map(|text| text.0)
            .collect(),
        limits: limits(raw.limits.section()),
        action: raw.action.or(Action::Reject),
        error_code: raw.error_code.or(ErrorCode::Auto),
        remedy: raw.remedy.value().map(|line| line.0),
    }
}

fn family(raw: RawFamily, path: &str, report: &mut Report) -> Family {
    if raw.main.is_absent() {
        report.missing(
            &below(path, "main"),
            "the topic whose retry and dead-letter topics these are",
        );
    }
    if raw.retry.is_absent() && raw.dead_letter.is_absent() {
        report.note(
            path,
            "has no members: write `retry` or `dead_letter` (or both)",
        );
    }
    let patterns = |list: List<Text<MemberPattern>>| {
        list.entries()
            .into_iter()
            .map(|text| text.0.0)
            .collect::<Vec<_>>()
    };
    Family {
        main: raw.main.or(TopicPattern::Exact(String::new())),
        retry: patterns(raw.retry),
        dead_letter: patterns(raw.dead_letter),
        enforce: raw.alignment.or(Alignment { enforce: true }).enforce,
    }
}

/// Reads each entry of a list of sections. Also where an entry is wrong something stands in its place, so that
/// further mistakes are named by the numbers that the file's entries have.
fn entries<R: Default, T>(
    list: List<R>,
    path: &str,
    report: &mut Report,
    read: impl Fn(R, &str, &mut Report) -> T,
) -> Vec<T> {
    let entries = list.given().into_iter().flatten().enumerate();
    entries
        .map(|(i, entry)| match entry.given() {
            Some(raw) => read(raw, &format!("{path}[{i}]"), report),
            None => read(R::default(), path, &mut Report::default()),
        })
        .collect()
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn number<const LEAST: u64, const MOST: u64>(count: Count<LEAST, MOST>) -> usize {
    usize::try_from(count.0).unwrap_or(usize::MAX)
}
