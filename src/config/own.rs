//! The addresses that are this proxy's own: what it listens on, and what it tells to clients.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};

use super::{Advertise, Config, HostPort};

/// The addresses a configuration listens on and tells to clients.
#[derive(Debug, Clone)]
pub struct OwnAddresses {
    bind: SocketAddr,
    advertise: Advertise,
}

impl OwnAddresses {
    /// Of this configuration.
    pub fn new(config: &Config) -> Self {
        Self {
            bind: config.listener.bind,
            advertise: config.listener.advertise.clone(),
        }
    }

    /// Why an address that was not looked up is this proxy's own: the key that makes it so.
    pub fn key_of(&self, to: &HostPort) -> Option<&'static str> {
        if let Ok(ip) = to.host.parse() {
            return self.key_of_socket(SocketAddr::new(ip, to.port));
        }
        if to.host.eq_ignore_ascii_case("localhost") {
            let loopback = [IpAddr::from([127, 0, 0, 1]), Ipv6Addr::LOCALHOST.into()];
            let mut keys = loopback
                .into_iter()
                .filter_map(|ip| self.key_of_socket(SocketAddr::new(ip, to.port)));
            if let Some(key) = keys.next() {
                return Some(key);
            }
        }
        match &self.advertise {
            Advertise::NodePorts { host, .. } => (host.eq_ignore_ascii_case(&to.host)
                && self.port_key(to.port).is_some())
            .then_some("listener.advertised_host"),
            Advertise::Sni {
                bootstrap,
                node,
                advertised_port,
            } => {
                let host = to.host.to_ascii_lowercase();
                let is_node = node
                    .to_ascii_lowercase()
                    .split_once("{node_id}")
                    .is_some_and(|(before, after)| {
                        host.strip_prefix(before)
                            .and_then(|rest| rest.strip_suffix(after))
                            .is_some_and(|id| id.parse::<u32>().is_ok())
                    });
                let is_ours = host.eq_ignore_ascii_case(bootstrap) || is_node;
                (is_ours && *advertised_port == to.port).then_some("listener.sni")
            }
        }
    }

    /// As [`OwnAddresses::key_of`], of an address that was looked up.
    pub fn key_of_socket(&self, to: SocketAddr) -> Option<&'static str> {
        let key = self.port_key(to.port())?;
        let (ip, bind) = (to.ip().to_canonical(), self.bind.ip().to_canonical());
        let is_ours = if bind.is_unspecified() {
            // 0.0.0.0 takes no IPv6; [::] takes both.
            (bind.is_ipv6() || ip.is_ipv4()) && is_local(ip)
        } else {
            ip == bind || (ip.is_unspecified() && bind.is_loopback())
        };
        is_ours.then_some(key)
    }

    /// The key of what listens at a port.
    pub fn port_key(&self, port: u16) -> Option<&'static str> {
        if port == self.bind.port() {
            return Some("listener.bind");
        }
        match &self.advertise {
            Advertise::NodePorts {
                first, node_ids, ..
            } => {
                let n = usize::from(port.checked_sub(*first)?);
                (n < node_ids.len()).then_some("listener.node_ports")
            }
            Advertise::Sni { .. } => None,
        }
    }
}

/// Whether an address is one of this machine's. The kernel says it: who connects to an address of his own comes from
/// it. No packet is sent.
fn is_local(ip: IpAddr) -> bool {
    if ip.is_loopback() || ip.is_unspecified() {
        return true;
    }
    let any: SocketAddr = match ip {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    UdpSocket::bind(any)
        .and_then(|socket| {
            socket.connect((ip, 9))?;
            socket.local_addr()
        })
        .is_ok_and(|from| from.ip() == ip)
}
