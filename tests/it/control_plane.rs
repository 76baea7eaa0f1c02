//! A control plane for tests, without the rest of the proxy.
#![allow(dead_code, reason = "each test binary uses its own part of this")]

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use sizegate::cluster::{Cluster, LimitsUnread, Lookup, Topic, TopicLimit};
use sizegate::config::{self, Config, ENV_PREFIX, Overrides};
use sizegate::net::Connector;
use tokio::runtime::{Builder, Runtime};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::support::eventually;

/// A guard against hanging.
pub const PATIENCE: Duration = Duration::from_secs(60);
const NOW: Duration = Duration::ZERO;

/// The control plane on a thread of its own, as in the product.
pub struct Running {
    pub cluster: Cluster,
    shutdown: CancellationToken,
    thread: Option<JoinHandle<()>>,
    /// Where this test asks from: another runtime, as sessions do.
    runtime: Runtime,
}

impl Running {
    pub fn start(bootstrap: &str, more: &[(&str, &str)]) -> Self {
        let cluster = unpolled(bootstrap, more);
        let shutdown = CancellationToken::new();
        let (running, until) = (cluster.clone(), shutdown.clone());
        let thread = std::thread::spawn(move || runtime().block_on(running.run(until)));
        Self {
            cluster,
            shutdown,
            thread: Some(thread),
            runtime: runtime(),
        }
    }

    /// Waits for the first refresh.
    pub fn up(self) -> Self {
        eventually(PATIENCE, "the control plane is up", || {
            self.cluster.status().is_up.then_some(())
        });
        self
    }

    /// Waits as a session would, on another runtime than the control plane's.
    pub fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    pub fn error(&self) -> String {
        eventually(PATIENCE, "an error", || self.cluster.status().error)
    }

    pub fn look_up(&self, name: &str) -> Lookup {
        self.runtime.block_on(self.cluster.find_topic(name))
    }

    pub fn look_up_id(&self, id: Uuid) -> Lookup {
        self.runtime.block_on(self.cluster.find_topic_by_id(id))
    }

    pub fn find(&self, name: &str) -> Arc<Topic> {
        match self.look_up(name) {
            Lookup::Found(topic) => topic,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Reads the limits now, from this broker.
    pub fn read(&self, topic: &Arc<Topic>, node_id: i32) -> Result<TopicLimit, LimitsUnread> {
        self.runtime
            .block_on(self.cluster.read_limits(topic, Some(node_id), NOW))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shutdown.cancel();
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// One that only answers what it is asked, as commands use it.
pub fn unpolled(bootstrap: &str, more: &[(&str, &str)]) -> Cluster {
    let config = configured(bootstrap, more);
    let connector = Connector::new(&config.cluster).unwrap();
    Cluster::new(&config, connector)
}

pub fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn configured(bootstrap: &str, more: &[(&str, &str)]) -> Config {
    let usual = [
        ("CLUSTER__BOOTSTRAP_SERVERS", bootstrap),
        ("CLUSTER__ADMIN__REFRESH_INTERVAL", "300ms"),
    ];
    let env = usual
        .iter()
        .chain(more)
        .map(|(key, value)| (format!("{ENV_PREFIX}{key}"), (*value).to_owned()))
        .collect();
    config::load(None, &Overrides::default(), &env).unwrap()
}
