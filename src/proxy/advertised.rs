//! Holds the addresses that clients are told: each broker's own port (or name) on this proxy.

use crate::cluster::Cluster;
use crate::config::{Advertise, HostPort};
use crate::wire::AddressBook;

/// Where a client connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// The bootstrap address: any broker will do.
    Bootstrap,
    /// A broker's own address.
    Node(i32),
}

impl Route {
    /// The broker it leads to, where it is a particular one.
    pub const fn node_id(self) -> Option<i32> {
        match self {
            Self::Node(node_id) => Some(node_id),
            Self::Bootstrap => None,
        }
    }
}

/// Maps node ids to this proxy's addresses. The same configuration gives the same addresses, so replicas agree.
pub struct Advertised {
    advertise: Advertise,
    cluster: Cluster,
}

impl Advertised {
    /// A advertised that also teaches `cluster` where the brokers are.
    pub fn new(advertise: Advertise, cluster: Cluster) -> Self {
        Self { advertise, cluster }
    }

    /// The port and node of every broker listener.
    pub fn node_ports(&self) -> Vec<(u16, i32)> {
        match &self.advertise {
            Advertise::NodePorts {
                first, node_ids, ..
            } => (*first..=u16::MAX).zip(node_ids.iter().copied()).collect(),
            Advertise::Sni { .. } => Vec::new(),
        }
    }

    /// Where a TLS client wants to go, by the name in its hello; `None` for a name that is nobody's.
    pub fn route_by_name(&self, server_name: Option<&str>) -> Option<Route> {
        let Advertise::Sni {
            bootstrap, node, ..
        } = &self.advertise
        else {
            return Some(Route::Bootstrap);
        };
        let name = server_name?;
        if name.eq_ignore_ascii_case(bootstrap) {
            return Some(Route::Bootstrap);
        }
        let (before, after) = node.split_once("{node_id}")?;
        let name = name.to_ascii_lowercase();
        let id = name
            .strip_prefix(&before.to_ascii_lowercase())?
            .strip_suffix(&after.to_ascii_lowercase())?;
        let node_id: i32 = id.parse().ok()?;
        // Only the name that clients are told: not `b+1`, not `b01`.
        (node_id >= 0 && node_id.to_string() == id).then_some(Route::Node(node_id))
    }

    /// What clients are told for a node; `None` where the configuration has no address for it.
    pub fn advertised(&self, node_id: i32) -> Option<HostPort> {
        match &self.advertise {
            Advertise::NodePorts {
                host,
                first,
                node_ids,
            } => {
                let n = node_ids.iter().position(|id| *id == node_id)?;
                let port = first.checked_add(u16::try_from(n).ok()?)?;
                Some(HostPort {
                    host: host.clone(),
                    port,
                })
            }
            Advertise::Sni {
                node,
                advertised_port,
                ..
            } => Some(HostPort {
                host: node.replace("{node_id}", &node_id.to_string()),
                port: *advertised_port,
            }),
        }
    }

    fn host(&self) -> &str {
        match &self.advertise {
            Advertise::NodePorts { host, .. } => host,
            Advertise::Sni { bootstrap, .. } => bootstrap,
        }
    }
}

impl AddressBook for Advertised {
    fn learn(&self, node_id: i32, host: &[u8], port: i32) {
        if let (Ok(host), Ok(port)) = (std::str::from_utf8(host), u16::try_from(port)) {
            self.cluster.learn_node(
                node_id,
                HostPort {
                    host: host.to_owned(),
                    port,
                },
            );
        }
    }

    fn address(&self, node_id: i32) -> (Vec<u8>, i32) {
        if let Some(HostPort { host, port }) = self.advertised(node_id) {
            return (host.into_bytes(), i32::from(port));
        }
        // A port that leads nowhere: the broker's own address would lead past the proxy. The control plane says in
        // the log which node it is.
        (self.host().as_bytes().to_vec(), 0)
    }
}
