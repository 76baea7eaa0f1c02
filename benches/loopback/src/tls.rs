//! TLS in front of the proxies (`run --tls`): the load and the sink speak plain TCP, so HAProxy of its own stands between
//! the load and each proxy and speaks TLS to it. Its CPU time is not counted; the proxy's, decrypting, is.
//!
//! Invariant: both proxies have the same certificate, TLS 1.3 and the same cipher.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::peers::{Programs, haproxy_in_tcp_mode};

/// One cipher for both: what they choose by themselves differs.
const CIPHER: &str = "TLS_AES_128_GCM_SHA256";

/// A certificate for the proxies.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The chain.
    pub cert: PathBuf,
    /// The key.
    pub key: PathBuf,
    /// Both in one file, as HAProxy takes them.
    pub both: PathBuf,
}

impl Certificate {
    /// Makes one with openssl.
    pub fn make(directory: &Path) -> io::Result<Self> {
        let made = Self {
            cert: directory.join("tls.crt"),
            key: directory.join("tls.key"),
            both: directory.join("tls.pem"),
        };
        let output = Command::new("openssl")
            .args(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
                    .split(' '),
            )
            .args(["-subj", "/CN=localhost", "-keyout"])
            .arg(&made.key)
            .arg("-out")
            .arg(&made.cert)
            .output()?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(format!("openssl: {said}")));
        }
        let both = [fs::read(&made.cert)?, fs::read(&made.key)?].concat();
        fs::write(&made.both, both)?;
        Ok(made)
    }
}

/// HAProxy that takes plain TCP and speaks TLS to `proxy`.
pub fn front(programs: &Programs, address: SocketAddr, proxy: SocketAddr) -> io::Result<Command> {
    haproxy_in_tcp_mode(
        programs,
        (&format!("front-{}.cfg", proxy.port()), "", ""),
        &address.to_string(),
        &format!("{proxy} ssl verify none ssl-min-ver TLSv1.3 ciphersuites {CIPHER}"),
    )
}
