//! Tells systemd how the service fares (`Type=notify`): datagrams to the socket that `NOTIFY_SOCKET` names, as sd_notify(3)
//! has it.
//!
//! Invariant: nothing waits for whoever reads them, and nothing fails because nobody does.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The socket, where there is one.
#[derive(Debug, Default)]
pub(super) struct Notify(Option<(UnixDatagram, SocketAddr)>);

impl Notify {
    /// The one that the environment names.
    pub(super) fn from_env() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        match opened(&name) {
            Ok(socket) => Self(Some(socket)),
            Err(error) => {
                tracing::warn!(%error, socket = ?name, "NOTIFY_SOCKET names no socket: systemd is told nothing");
                Self::default()
            }
        }
    }

    /// Clients are accepted. Whether a broker is reached is no matter here: the service waits for Kafka by itself.
    pub(super) fn ready(&self, status: &str) {
        self.say(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// The configuration is being read again; [`Notify::ready`] ends it.
    pub(super) fn reloading(&self) {
        self.say("RELOADING=1");
    }

    /// Going down.
    pub(super) fn stopping(&self) {
        self.say("STOPPING=1\nSTATUS=answering what is in flight");
    }

    fn say(&self, state: &str) {
        if let Some((socket, to)) = &self.0 {
            let told = socket.send_to_addr(state.as_bytes(), to);
            if let Err(error) = told {
                tracing::debug!(%error, "systemd was not told");
            }
        }
    }
}

/// A path, or `@` and an abstract name.
fn opened(name: &OsStr) -> std::io::Result<(UnixDatagram, SocketAddr)> {
    let to = match name.as_bytes().strip_prefix(b"@") {
        Some(rest) => SocketAddr::from_abstract_name(rest)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, to))
}

/// A line of its own would be another word to systemd.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
