//! Knows this proxy's own addresses, which it listens on and tells to clients, and its connections to brokers. A
//! configuration or a broker that leads back here would make connections without end.
//!
//! Invariant: an upstream connection is known here before its first byte is sent, until it is closed.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::{HostPort, OwnAddresses};
use crate::count::Count as _;

/// This process's own connections, and the ways that lead back to it.
#[derive(Debug)]
pub struct Own {
    addresses: Option<OwnAddresses>,
    /// This process among all.
    instance: u64,
    calls: AtomicU64,
    /// Calls of the control plane that came in at our own listener.
    came_back: Mutex<HashSet<u64>>,
    upstreams: Mutex<HashMap<Ends, u32>>,
    loops: Mutex<HashSet<HostPort>>,
}

impl Own {
    /// `addresses`: `None` where nothing listens.
    pub fn new(addresses: Option<OwnAddresses>) -> Arc<Self> {
        let (high, low) = uuid::Uuid::new_v4().as_u64_pair();
        Arc::new(Self {
            addresses,
            instance: high ^ low,
            calls: AtomicU64::new(0),
            came_back: Mutex::default(),
            upstreams: Mutex::default(),
            loops: Mutex::default(),
        })
    }

    /// The key that makes an address this proxy's own, as it stands.
    pub fn key_of(&self, to: &HostPort) -> Option<&'static str> {
        self.addresses.as_ref()?.key_of(to)
    }

    /// Whether something of ours listens at this port, on whatever address.
    pub fn has_port(&self, port: u16) -> bool {
        let addresses = self.addresses.as_ref();
        addresses.is_some_and(|addresses| addresses.port_key(port).is_some())
    }

    /// The same of an address that was looked up.
    pub fn key_of_socket(&self, to: SocketAddr) -> Option<&'static str> {
        self.addresses.as_ref()?.key_of_socket(to)
    }

    /// A connection to a broker, from this address of ours.
    pub fn opened(self: &Arc<Self>, from: SocketAddr, to: SocketAddr) -> Upstream {
        let ends = Ends::new(from, to);
        lock(&self.upstreams).entry(ends).or_default().increment();
        Upstream {
            own: Arc::clone(self),
            ends,
        }
    }

    /// Whether a client's connection, accepted at the address `to`, is a connection of ours to a broker.
    ///
    /// By both its ends: a client on this host may connect from a port from which we are connected to a broker, as the
    /// operating system gives a port again where the other end differs. What is translated on its way
    /// has other ends here: [`Own::came_back`] finds it.
    pub fn is_upstream(&self, client: SocketAddr, to: SocketAddr) -> bool {
        lock(&self.upstreams).contains_key(&Ends::new(client, to))
    }

    /// A name for the next connection of the control plane, by which it is known should it come back.
    pub fn next_call(&self) -> Call {
        Call(self.calls.fetch_add(1, Relaxed))
    }

    /// `client_id` of that connection's first request.
    pub fn client_id(&self, call: &Call) -> String {
        format!("sizegate-{:016x}-{}", self.instance, call.0)
    }

    /// A client introduces itself by this `client_id`: whether it is ourselves.
    pub fn is_own_call(&self, client_id: &str) -> bool {
        let call = client_id
            .strip_prefix("sizegate-")
            .and_then(|rest| rest.strip_prefix(&format!("{:016x}-", self.instance)))
            .and_then(|call| call.parse().ok());
        let Some(call) = call else { return false };
        // Only what was called; and what nobody asks for any more is forgotten by [`Own::came_back`].
        call < self.calls.load(Relaxed) && {
            lock(&self.came_back).insert(call);
            true
        }
    }

    /// Whether the connection came back to us. Asked once for every call.
    pub fn came_back(&self, call: Call) -> bool {
        lock(&self.came_back).remove(&call.0)
    }

    /// Connections to this address come back to us, or do no longer.
    pub fn set_loop(&self, to: &HostPort, is_loop: bool) {
        let mut loops = lock(&self.loops);
        if !is_loop {
            loops.remove(to);
        } else if loops.insert(to.clone()) {
            tracing::error!(
                "connections to {to} come back to this sizegate, through another proxy: clients are not sent there \
                 until that ends"
            );
        }
    }

    /// Connections to this address come back to us.
    pub fn is_loop(&self, to: &HostPort) -> bool {
        lock(&self.loops).contains(to)
    }

    /// All addresses from which connections come back to us.
    pub fn loops(&self) -> Vec<HostPort> {
        let mut loops: Vec<_> = lock(&self.loops).iter().cloned().collect();
        loops.sort_by(|a, b| (&a.host, a.port).cmp(&(&b.host, b.port)));
        loops
    }
}

/// One connection of the control plane.
#[derive(Debug)]
pub struct Call(u64);

/// A connection to a broker that is open.
#[derive(Debug)]
pub struct Upstream {
    own: Arc<Own>,
    ends: Ends,
}

/// What one connection is told from all others by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Ends {
    from: SocketAddr,
    to: SocketAddr,
}

impl Ends {
    fn new(from: SocketAddr, to: SocketAddr) -> Self {
        Self {
            from: canonical(from),
            to: canonical(to),
        }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        let mut upstreams = lock(&self.own.upstreams);
        if let Some(count) = upstreams.get_mut(&self.ends) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                upstreams.remove(&self.ends);
            }
        }
    }
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
