//! Hosts, ports and brokers' ids.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use super::Scalar;
use crate::config::HostPort;

/// An address to listen on. Port 0, which means any, is none: clients could not know it.
impl Scalar for SocketAddr {
    fn allowed() -> String {
        "an IP address and a port, such as `127.0.0.1:19092`, `0.0.0.0:19092` or `[::]:19092`"
            .to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        match text.parse::<Self>() {
            Ok(address) if address.port() == 0 => Err("a port is 1 to 65535".to_owned()),
            Ok(address) => Ok(address),
            Err(_) => Err(String::new()),
        }
    }
}

impl Scalar for HostPort {
    fn allowed() -> String {
        "a host and a port, such as `kafka-1:9092` or `[::1]:9092`".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for HostPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, port) = text.rsplit_once(':').ok_or("the port is missing")?;
        let host = match host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
        {
            Some(address) => address,
            None if host.contains("://") => return Err("leave out the scheme".to_owned()),
            None if host.contains(':') => {
                return Err("an IPv6 address stands in brackets".to_owned());
            }
            None => host,
        };
        let port = port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or("a port is 1 to 65535")?;
        Ok(Self {
            host: HostName::read(host)?.0,
            port,
        })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A DNS name or an IP address, without a port.
#[derive(Debug, Clone)]
pub(in crate::config) struct HostName(pub(in crate::config) String);

impl Scalar for HostName {
    fn allowed() -> String {
        "a host name or an IP address, without a port".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        const LONGEST_DNS_NAME: usize = 253;
        let name = !text.is_empty()
            && text.len() <= LONGEST_DNS_NAME
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_'));
        let address = text.parse::<std::net::IpAddr>().is_ok();
        if name || address {
            Ok(Self(text.to_owned()))
        } else {
            Err(String::new())
        }
    }
}

/// A broker's name for clients under SNI: a host name in which `{node_id}` stands once.
#[derive(Debug, Clone)]
pub(in crate::config) struct NodeName(pub(in crate::config) String);

impl Scalar for NodeName {
    fn allowed() -> String {
        "a host name in which {node_id} stands once, such as `b{node_id}.kafka.example.com`"
            .to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        if text.matches("{node_id}").count() != 1 {
            return Err(String::new());
        }
        HostName::read(&text.replace("{node_id}", "2147483647"))?;
        Ok(Self(text.to_owned()))
    }
}

/// The ids of brokers that get a port: `0-9`, `0-9,1001-1003`.
#[derive(Debug, Clone)]
pub(in crate::config) struct NodeIds(pub(in crate::config) std::ops::RangeInclusive<i32>);

impl Scalar for NodeIds {
    fn allowed() -> String {
        "a broker id or a range of them, such as `0-9` or `0-9,1001-1003`".to_owned()
    }

    fn read(text: &str) -> Result<Self, String> {
        let id = |text: &str| match text.trim().parse::<i32>() {
            Ok(id) if id >= 0 => Ok(id),
            _ => Err(String::new()),
        };
        let (first, last) = match text.split_once('-') {
            Some((first, last)) => (id(first)?, id(last)?),
            None => (id(text)?, id(text)?),
        };
        if first > last {
            Err("it ends before it begins".to_owned())
        } else {
            Ok(Self(first..=last))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_read_as_kafka_writes_them() {
        for (text, expected) in [
            ("localhost:9092", Ok(("localhost", 9092))),
            ("10.0.0.1:9092", Ok(("10.0.0.1", 9092))),
            ("[::1]:9092", Ok(("::1", 9092))),
            ("localhost", Err("the port is missing")),
            ("localhost:", Err("a port is 1 to 65535")),
            ("localhost:0", Err("a port is 1 to 65535")),
            ("localhost:65536", Err("a port is 1 to 65535")),
            ("::1:9092", Err("an IPv6 address stands in brackets")),
            ("SASL_SSL://kafka:9092", Err("leave out the scheme")),
            (":9092", Err("")),
            ("a b:9092", Err("")),
        ] {
            let read = text.parse::<HostPort>();
            assert_eq!(
                read.as_ref()
                    .map(|at| (at.host.as_str(), at.port))
                    .map_err(String::as_str),
                expected,
                "{text}"
            );
            if let Ok(at) = read {
                assert_eq!(at.to_string(), text);
            }
        }
    }
}
