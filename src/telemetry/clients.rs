//! Counts connected client software, and keeps its client ids. Both words are the client's own: they are cut,
//! cleaned and bounded before they become a label.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::{IntCounter, IntCounterVec};
use serde::Serialize;

use super::topic::OTHER;
use crate::count::Count as _;
use crate::text::first_chars;

/// Labels of `client_connections_total`; interface.md's bound.
const SOFTWARES: usize = 100;
/// Client ids remembered of one software: enough to find a team, bounded whatever clients invent.
const CLIENT_IDS: usize = 20;
/// And of those that name no software: their ids are all that tells them apart.
const UNNAMED_CLIENT_IDS: usize = 100;
/// The label of what names none.
const UNNAMED: &str = "unknown";
/// Characters kept of a software's name, and of a client id.
const NAME_CHARS: usize = 40;
const CLIENT_ID_CHARS: usize = 128;

/// Connected clients by software. At most 100 of them by name, the rest under `_other`.
#[derive(Debug)]
pub struct Clients {
    connections_total: IntCounterVec,
    softwares: Mutex<BTreeMap<String, Software>>,
}

#[derive(Debug)]
struct Software {
    total: IntCounter,
    connections: u64,
    client_ids: BTreeSet<String>,
    more_client_ids: bool,
}

/// One software, as `/api/v1/clients` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientView {
    /// The client library's own name (KIP-511), `unknown` if it does not say, `_other` beyond the bound.
    pub software: String,
    /// Major and minor version; empty if it does not say.
    pub version: String,
    /// Open connections.
    pub connections: u64,
    /// Connections since the start.
    pub connections_total: u64,
    /// Some of the client ids seen, at most 20; of those that name no software, 100.
    pub client_ids: Vec<String>,
    /// There were more.
    pub more_client_ids: bool,
}

/// One connection of a known software; counts it as open until dropped.
#[derive(Debug)]
#[must_use = "the connection counts as open until this is dropped"]
pub struct ClientConnection {
    clients: Arc<Clients>,
    label: String,
}

impl Clients {
    pub(super) fn new(connections_total: IntCounterVec) -> Self {
        Self {
            connections_total,
            softwares: Mutex::default(),
        }
    }

    /// Counts one connection. `name` and `version`: ApiVersions' ClientSoftwareName and ClientSoftwareVersion (v3+),
    /// empty if the client did not say.
    pub fn connected(
        self: &Arc<Self>,
        name: &str,
        version: &str,
        client_id: &str,
    ) -> ClientConnection {
        let mut softwares = self
            .softwares
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut label = software_label(name, version);
        if softwares.len() >= SOFTWARES && !softwares.contains_key(&label) {
            label = OTHER.into();
        }
        let software = softwares.entry(label.clone()).or_insert_with(|| Software {
            total: self.connections_total.with_label_values(&[&label]),
            connections: 0,
            client_ids: BTreeSet::new(),
            more_client_ids: false,
        });
        software.total.inc();
        software.connections.increment();
        let most = match label.as_str() {
            UNNAMED => UNNAMED_CLIENT_IDS,
            _ => CLIENT_IDS,
        };
        software.saw(client_id, most);
        ClientConnection {
            clients: Arc::clone(self),
            label,
        }
    }

    /// All softwares seen since the start, those with most open connections first.
    pub fn view(&self) -> Vec<ClientView> {
        let softwares = self
            .softwares
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut views: Vec<_> = softwares.iter().map(view).collect();
        views.sort_by(|a, b| {
            b.connections
                .cmp(&a.connections)
                .then_with(|| a.software.cmp(&b.software))
        });
        views
    }
}

fn view((label, software): (&String, &Software)) -> ClientView {
    let (name, version) = label.split_once('/').unwrap_or((label, ""));
    ClientView {
        software: name.into(),
        version: version.into(),
        connections: software.connections,
        connections_total: software.total.get(),
        client_ids: software.client_ids.iter().cloned().collect(),
        more_client_ids: software.more_client_ids,
    }
}

impl Software {
    fn saw(&mut self, client_id: &str, most: usize) {
        let client_id = first_chars(client_id, CLIENT_ID_CHARS);
        if client_id.is_empty() || self.client_ids.contains(client_id) {
            return;
        }
        if self.client_ids.len() < most {
            self.client_ids.insert(client_id.to_owned());
        } else {
            self.more_client_ids = true;
        }
    }
}

impl ClientConnection {
    /// `name/major.minor`, as in `client_connections_total`.
    pub fn label(&self) -> &str {
        &self.label
    }
}

impl Drop for ClientConnection {
    fn drop(&mut self) {
        let mut softwares = self
            .clients
            .softwares
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(software) = softwares.get_mut(&self.label) {
            software.connections = software.connections.saturating_sub(1);
        }
    }
}

/// `apache-kafka-java/4.3`. What Kafka would not allow in the name becomes `_`; a patch version would cost a label
/// for each build and says little.
fn software_label(name: &str, version: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    let mut label: String = name
        .chars()
        .take(NAME_CHARS)
        .map(|c| if allowed(c) { c } else { '_' })
        .collect();
    if label.is_empty() {
        return UNNAMED.into();
    }
    let mut numbers = version.trim_start_matches('v').split('.').map(|part| {
        let digits = part
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(part.len());
        part.get(..digits.min(6)).unwrap_or(part)
    });
    if let Some(major) = numbers.next().filter(|major| !major.is_empty()) {
        label.extend(["/", major]);
        if let Some(minor) = numbers.next().filter(|minor| !minor.is_empty()) {
            label.extend([".", minor]);
        }
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::Opts;

    fn clients() -> Arc<Clients> {
        let total =
            IntCounterVec::new(Opts::new("client_connections_total", "help"), &["software"]);
        Arc::new(Clients::new(total.unwrap()))
    }

    #[test]
    fn a_software_is_labelled_by_name_and_major_minor() {
        for (name, version, label) in [
            ("apache-kafka-java", "4.3.0", "apache-kafka-java/4.3"),
            ("librdkafka", "2.16.0-RC1", "librdkafka/2.16"),
            ("kgo", "v1.22.0", "kgo/1.22"),
            ("kgo", "unknown", "kgo"),
            ("kgo", "", "kgo"),
            ("kgo", "7", "kgo/7"),
            ("kgo", "7rc1.2", "kgo/7.2"),
            ("", "", "unknown"),
            ("", "4.3.0", "unknown"),
            ("a\nb/c\"d{e}é", "1.2", "a_b_c_d_e__/1.2"),
            ("x", "99999999999.88888888888.7", "x/999999.888888"),
        ] {
            assert_eq!(software_label(name, version), label);
        }
        assert_eq!(software_label(&"n".repeat(30_000), "1.0").len(), 44);
    }

    #[test]
    fn ten_thousand_softwares_make_a_hundred_and_one_labels() {
        let clients = clients();
        let open: Vec<_> = (0..10_000)
            .map(|n| clients.connected(&format!("software-{n}"), "1.0", "app"))
            .collect();
        let view = clients.view();
        assert_eq!(view.len(), 101);
        assert_eq!(
            (view[0].software.as_str(), view[0].connections),
            (OTHER, 9_900)
        );
        drop(open);
        let view = clients.view();
        assert!(view.iter().all(|software| software.connections == 0));
        let total: u64 = view.iter().map(|software| software.connections_total).sum();
        assert_eq!(total, 10_000);
    }

    #[test]
    fn client_ids_are_bounded_in_number_and_length() {
        let clients = clients();
        for n in 0..1_000 {
            drop(clients.connected("kgo", "1.22", &format!("{n}{}", "x".repeat(32_000))));
        }
        drop(clients.connected("kgo", "1.22", ""));
        let view = &clients.view()[0];
        assert_eq!(view.client_ids.len(), 20);
        assert!(view.more_client_ids);
        assert!(view.client_ids.iter().all(|id| id.len() == 128));
    }

    #[test]
    fn one_client_id_is_listed_once() {
        let clients = clients();
        let _a = clients.connected("kgo", "1.22.0", "app");
        let _b = clients.connected("kgo", "1.22.1", "app");
        let view = &clients.view()[0];
        assert_eq!(
            (view.software.as_str(), view.version.as_str()),
            ("kgo", "1.22")
        );
        assert_eq!(
            (
                view.connections,
                view.client_ids.as_slice(),
                view.more_client_ids
            ),
            (2, ["app".to_owned()].as_slice(), false)
        );
    }
}
