//! Makes of what a file said ([`RawConfig`]) what is in force ([`Config`]): defaults, and everything one
//! section must hold by itself. What sections say against each other is in `contradictions`.
//!
//! Invariant: every default of one value is in `defaults`, and used here.

mod claim;
mod credentials;

use std::net::SocketAddr;

use super::defaults;
use super::governed;
use super::mistakes::{Report, below};
use super::raw::{
    Field, List, RawClients, RawCluster, RawConfig, RawFamily, RawIgnore, RawLimits, RawListener,
    RawNodePorts, RawRule, RawSni, Text,
};
use super::scalars::{Alignment, Count, HostName, Interval, OrNone, Share, Size};
use super::topics::MemberPattern;
use super::{
    Advertise, BatchLimit, Clients, Cluster, Config, Families, Family, Ignore, InsideLimit, Limits,
    Listener, NamePattern, Origin, RefusalsTopic, Rule, Telemetry, TopicPattern,
};
use crate::vocabulary::DEFAULT_MAX_REQUEST_SIZE;
use crate::vocabulary::FindingRule;

/// The configuration; it is in force only if `report` is empty afterwards.
pub(super) fn config(raw: RawConfig, report: &mut Report) -> Config {
    let families = raw.families.section();
    let telemetry = raw.telemetry.section();
    let admin = raw.admin.section();
    let refusals = raw.refusals.section();
    // Below this section there is nothing to lift: `none` is as if it were left out.
    let mut limits = limits(raw.limits.section()).without_lifting();
    limits.batch_bytes = limits.batch_bytes.or(Some(BatchLimit::Inherit));
    Config {
        cluster: cluster(raw.cluster.section(), report),
        listener: listener(raw.listener.section(), report),
        mode: raw.mode.or(defaults::MODE),
        limits,
        rules: entries(raw.rules, "rules", report, rule),
        families: Families {
            detect: families.detect.or(defaults::DETECT),
            headroom_bytes: families.headroom.or(Size(defaults::HEADROOM_BYTES)).0,
            members: entries(families.members, "families.members", report, family),
        },
        ignore: entries(raw.ignore, "ignore", report, ignore),
        claim_check: raw
            .claim_check
            .given()
            .and_then(|section| claim::section(section, report)),
        near_limit: raw.near_limit.or(Share(defaults::NEAR_LIMIT)).0,
        memory_budget_bytes: raw
            .memory
            .section()
            .budget
            .or(Size(defaults::MEMORY_BUDGET_BYTES))
            .0,
        decode: raw.inspection.section().decode.or(defaults::DECODE),
        admin_bind: admin.bind.or(defaults::ADMIN_BIND),
        admin_peers: admin.peers.texts(),
        refusals: RefusalsTopic {
            topic: match refusals.topic.or(OrNone::None) {
                OrNone::Some(topic) => Some(topic.0),
                OrNone::None => None,
            },
            record_key: refusals.record_key.or(defaults::RECORD_KEY),
        },
        telemetry: Telemetry {
            topics: number(telemetry.topics.or(Count(defaults::TOPICS))),
            histograms: telemetry.histograms.or(defaults::HISTOGRAMS),
            log: telemetry.log.or(defaults::LOG),
            log_level: telemetry.log_level.or(defaults::LOG_LEVEL),
        },
        origin: Origin::default(),
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
        bootstrap_servers: raw.bootstrap_servers.texts(),
        tls: raw
            .tls
            .given()
            .map(|tls| credentials::client_tls(tls, report)),
        admin_sasl: admin
            .sasl
            .given()
            .and_then(|raw| credentials::sasl(raw, report)),
        refresh_interval: admin
            .refresh_interval
            .or(Interval(defaults::REFRESH_INTERVAL))
            .0,
    }
}

fn listener(raw: RawListener, report: &mut Report) -> Listener {
    let bind = raw.bind.or(defaults::BIND);
    if !raw.node_ports.is_absent() && !raw.sni.is_absent() {
        report.note(
            "listener.sni",
            "cannot be combined with `node_ports`: write one of the two (sni: one port for all brokers, told apart by name; \
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
    let advertised_host = raw
        .advertised_host
        .or(HostName(defaults::ADVERTISED_HOST.to_owned()))
        .0;
    let sni = raw.sni.given().and_then(|raw| sni(raw, bind, report));
    let node_ports = raw.node_ports.section();
    Listener {
        bind,
        advertise: sni
            .unwrap_or_else(|| self::node_ports(node_ports, advertised_host, bind, report)),
        tls: raw
            .tls
            .given()
            .and_then(|tls| credentials::server_tls(tls, report)),
        frame_bytes: u32::try_from(raw.frame_bytes.or(Size(defaults::FRAME_BYTES)).0)
            .unwrap_or(u32::MAX),
        max_connections: number(raw.max_connections.or(Count(defaults::MAX_CONNECTIONS))),
        idle_timeout: raw.idle_timeout.or(Interval(defaults::IDLE_TIMEOUT)).0,
    }
}

fn node_ports(raw: RawNodePorts, host: String, bind: SocketAddr, report: &mut Report) -> Advertise {
    const IDS: &str = "listener.node_ports.node_ids";
    let first = port(
        raw.first
            .or(Count(u64::from(bind.port().saturating_add(1)))),
    );
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
        let count = i64::from(*range.end()).saturating_sub(i64::from(*range.start()));
        let count = usize::try_from(count.saturating_add(1)).unwrap_or(usize::MAX);
        if let Some(twice) = node_ids.iter().find(|id| range.contains(id)) {
            report.note(IDS, format!("names broker {twice} twice"));
        } else if let Some(left) = room.checked_sub(count) {
            room = left;
            node_ids.extend(range);
        } else {
            report.note(IDS, "names more brokers than there are ports (65,535)");
            break;
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
        given => port(given.or(Count(1))),
    };
    Some(Advertise::Sni {
        bootstrap: raw.bootstrap.value()?.0,
        node: raw.node.value()?.0,
        advertised_port,
    })
}

fn limits(raw: RawLimits) -> Limits {
    Limits {
        batch_bytes: raw.batch_bytes.value(),
        uncompressed_bytes: raw.uncompressed_bytes.value().map(bytes),
        record_bytes: raw.record_bytes.value().map(bytes),
        estimate_bytes: raw.estimate_bytes.value().map(bytes),
        key_bytes: raw.key_bytes.value().map(bytes),
        value_bytes: raw.value_bytes.value().map(bytes),
        headers_bytes: raw.headers_bytes.value().map(bytes),
        ratio: raw.ratio.value().map(|limit| limit.limit(|ratio| ratio.0)),
    }
}

fn bytes<const LEAST: u64>(limit: OrNone<Size<LEAST>>) -> InsideLimit {
    limit.limit(|size| size.0)
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
    let action = raw.action.or(defaults::ACTION);
    Rule {
        name: raw.name.value().map(|name| name.0).unwrap_or_default(),
        topics: raw
            .topics
            .entries()
            .into_iter()
            .map(|text| text.0)
            .collect(),
        clients: raw
            .clients
            .given()
            .map(|raw| clients(raw, &below(path, "clients"), report)),
        limits: limits(raw.limits.section()),
        topic_config: raw
            .topic_config
            .given()
            .map(|raw| governed::topic_config(raw, &below(path, "topic_config"), report)),
        codecs: raw
            .codecs
            .given()
            .map(|raw| governed::codecs(raw, &below(path, "codecs"), report)),
        action,
        offload: claim::offload(raw.offload, action, &below(path, "offload"), report),
        error_code: raw.error_code.or(defaults::ERROR_CODE),
        remedy: raw.remedy.value().map(|line| line.0),
    }
}

fn ignore(raw: RawIgnore, path: &str, report: &mut Report) -> Ignore {
    for (key, absent, what) in [
        (
            "finding",
            raw.finding.is_absent(),
            "which finding of `check --cluster` is acknowledged, such as `override_above_broker`",
        ),
        (
            "reason",
            raw.reason.is_absent(),
            "why it is accepted: whoever reads it next will ask",
        ),
    ] {
        if absent {
            report.missing(&below(path, key), what);
        }
    }
    Ignore {
        finding: raw.finding.or(FindingRule::FamilyMemberTooSmall),
        topic: raw.topic.value(),
        reason: raw.reason.value().map(|line| line.0).unwrap_or_default(),
    }
}

fn clients(raw: RawClients, path: &str, report: &mut Report) -> Clients {
    let mut is_empty = true;
    for (key, list) in [
        ("client_ids", &raw.client_ids),
        ("principals", &raw.principals),
        ("software", &raw.software),
    ] {
        is_empty &= list.is_absent();
        if matches!(list, Field::Given(names) if names.is_empty()) {
            report.note(
                &below(path, key),
                "is an empty list: the rule would be for no client",
            );
        }
    }
    if is_empty {
        report.note(
            path,
            "names no clients: write `client_ids`, `principals` or `software` (or remove it)",
        );
    }
    let patterns = |list: List<Text<NamePattern>>| {
        list.entries()
            .into_iter()
            .map(|text| text.0)
            .collect::<Vec<_>>()
    };
    Clients {
        client_ids: patterns(raw.client_ids),
        principals: patterns(raw.principals),
        software: patterns(raw.software),
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
        enforce: raw
            .alignment
            .or(Alignment {
                enforce: defaults::ALIGNMENT_ENFORCE,
            })
            .enforce,
        writer_max_request_size: raw
            .writer_max_request_size
            .value()
            .map_or(InsideLimit::At(DEFAULT_MAX_REQUEST_SIZE), bytes),
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

/// The port that a count of at most 65,535 is.
fn port(count: Count<1, 65_535>) -> u16 {
    u16::try_from(count.0).unwrap_or(u16::MAX)
}

fn number<const LEAST: u64, const MOST: u64>(count: Count<LEAST, MOST>) -> usize {
    usize::try_from(count.0).unwrap_or(usize::MAX)
}
