//! `sizegate check --ready`: a health check without curl, for images that hold nothing but sizegate.
//!
//! Invariant: done within [`PATIENCE`] and a little, whatever answers at the port.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::{ConfigArgs, FAILED, FINDINGS, FINE, USAGE, print, print_mistakes};
use crate::net::http::Get;

/// For the whole of it. Container engines give a health check 30 s, kubelet 1 s unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(2);
/// `/readyz` says a few sentences.
const LONGEST_RESPONSE: usize = 16 * 1024;

/// Asks the proxy that runs with this configuration.
pub(super) fn run(args: &ConfigArgs) -> ExitCode {
    let mut args = args.clone();
    // Only `admin.bind` matters: brokers may have been named on the command line of `run`.
    args.bootstrap_servers
        .get_or_insert_with(|| "localhost:9092".to_owned());
    let admin = match args.load() {
        Ok(config) => reachable(config.admin_bind),
        Err(errors) => {
            print_mistakes(&errors);
            return ExitCode::from(USAGE);
        }
    };
    match ask(admin) {
        Ok((200, body)) => {
            print(&body);
            ExitCode::from(FINE)
        }
        Ok((_, body)) => {
            print(&body);
            ExitCode::from(FINDINGS)
        }
        Err(error) => {
            eprintln!(
                "sizegate: no response from {admin} (admin.bind): {}",
                in_words(&error)
            );
            ExitCode::from(FAILED)
        }
    }
}

fn in_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!(
            "none within {} s: the process hangs, or another one listens there",
            PATIENCE.as_secs()
        ),
        _ => error.to_string(),
    }
}

/// Every interface includes loopback.
fn reachable(bind: SocketAddr) -> SocketAddr {
    let ip = match bind.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, bind.port())
}

/// Status and body of `/readyz`.
fn ask(admin: SocketAddr) -> io::Result<(u16, String)> {
    let get = Get {
        host: &admin.to_string(),
        path: "/readyz",
        silence: PATIENCE,
        total: PATIENCE,
        most_bytes: LONGEST_RESPONSE,
    };
    get.ask(admin)
        .map(|response| (response.status, response.body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn every_interface_is_asked_over_loopback() {
        for (bind, asked) in [
            ("0.0.0.0:9644", "127.0.0.1:9644"),
            ("[::]:9644", "[::1]:9644"),
            ("127.0.0.2:1", "127.0.0.2:1"),
        ] {
            assert_eq!(reachable(bind.parse().unwrap()), asked.parse().unwrap());
        }
    }

    #[test]
    fn a_port_that_says_nothing_is_given_up() {
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let error = ask(silent.local_addr().unwrap()).unwrap_err();
        assert_eq!(
            in_words(&error),
            "none within 2 s: the process hangs, or another one listens there"
        );
    }
}
