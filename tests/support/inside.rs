//! The proxy inside the test's own process: its metrics, budget and log can be asked directly.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Once, PoisonError, mpsc};
use std::time::Duration;

use sizegate::config::Config;
use sizegate::policy::Policy;
use sizegate::proxy::{BoundSockets, Listeners, Shared};
use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing_subscriber::fmt::MakeWriter;

use super::process::new_dir;
use super::scripted::Broker;
use super::sizegate::Metrics;
use super::{Connection, eventually, ports};

/// A guard against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// A proxy in front of a scripted broker, on threads of its own; ends when dropped.
pub struct Inside {
    /// What its sessions share.
    pub shared: Arc<Shared>,
    /// Its sessions.
    pub sessions: TaskTracker,
    /// Where its sessions run.
    pub workers: Vec<Handle>,
    /// Its configuration but for what a test adds.
    addresses: String,
    address: SocketAddr,
    /// Ends as at SIGTERM.
    accepting: CancellationToken,
    stop: CancellationToken,
}

impl Inside {
    /// Starts it with `yaml` below the addresses; `listener` are further lines of that section. It knows the
    /// broker's topics and their limits when this returns.
    pub fn start(broker: &Broker, listener: &[&str], yaml: &str) -> Self {
        Self::start_with(
            &format!("\"{}\"", broker.bootstrap()),
            broker,
            listener,
            yaml,
        )
    }

    /// As [`Inside::start`], with these `bootstrap_servers`.
    pub fn start_with(bootstrap: &str, broker: &Broker, listener: &[&str], yaml: &str) -> Self {
        capture_log();
        let first_port = ports::free_ports(3);
        let listener: String = listener.iter().map(|line| format!("  {line}\n")).collect();
        let addresses = format!(
            "cluster:\n  bootstrap_servers: [{}]\nlistener:\n  bind: 127.0.0.1:{first_port}\n  advertised_host: \
             127.0.0.1\n  node_ports: {{first: {}, node_ids: 1-2}}\n{listener}",
            bootstrap,
            first_port + 1,
        );
        let config = config(&addresses, yaml);
        let shared = sizegate::run::build(&config).unwrap();
        let (stop, sessions) = (CancellationToken::new(), TaskTracker::new());
        let accepting = stop.child_token();
        let workers: Vec<Handle> = (0..2).map(|_| worker(stop.clone())).collect();
        let bound = BoundSockets {
            workers: workers.clone(),
            sessions: sessions.clone(),
            shutdown: accepting.clone(),
            max_connections: config.listener.max_connections,
        };
        let (told, listening) = mpsc::channel();
        let (serving, stopped) = (Arc::clone(&shared), stop.clone());
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                Listeners::bind(config.listener.bind, &serving)
                    .await
                    .unwrap()
                    .serve(&serving, bound);
                told.send(()).unwrap();
                serving.cluster.run(stopped).await;
            });
        });
        listening.recv().unwrap();
        let inside = Self {
            shared,
            sessions,
            workers,
            addresses,
            address: SocketAddr::from(([127, 0, 0, 1], first_port)),
            accepting,
            stop,
        };
        for topic in &broker.cluster.topics {
            eventually(PATIENCE, "topics and limits known", || {
                inside
                    .shared
                    .cluster
                    .topic(&topic.topic.name)?
                    .batch_limit()
            });
        }
        inside
    }

    /// The clients' bootstrap address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection to it.
    pub fn connect(&self) -> Connection {
        Connection::open(self.address)
    }

    /// What SIGTERM does: nobody is accepted any more, and sessions end once what is in flight is answered.
    pub fn drain(&self) {
        self.shared.is_draining.store(true, Ordering::Relaxed);
        self.accepting.cancel();
    }

    /// Puts `yaml` in force in place of what it was started with.
    pub fn reload(&self, yaml: &str) {
        let policy = Policy::compile(&config(&self.addresses, yaml)).unwrap();
        self.shared.policy.store(Arc::new(policy));
    }

    /// All metrics now.
    pub fn metrics(&self) -> Metrics {
        Metrics::parse(&self.shared.metrics.render().unwrap())
    }

    /// The sum of all samples with these labels.
    pub fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.metrics().sum(name, labels)
    }

    /// Waits until a metric has this value.
    pub fn wait_for_metric(&self, name: &str, labels: &[(&str, &str)], value: f64) {
        eventually(PATIENCE, &format!("{name} {labels:?} = {value}"), || {
            (self.metric(name, labels) == value).then_some(())
        });
    }

    /// Waits until no byte is held.
    pub fn wait_until_nothing_is_held(&self) {
        eventually(PATIENCE, "no byte held", || {
            (self.shared.budget.held_bytes() == 0).then_some(())
        });
    }

    /// The first log line about the client of `connection` that holds all of `words`, once there is one.
    pub fn log_line(&self, connection: &Connection, words: &[&str]) -> String {
        let client = format!("client={}", connection.stream().local_addr().unwrap());
        eventually(PATIENCE, &format!("a log line with {words:?}"), || {
            let log = log();
            log.lines()
                .find(|line| line.contains(&client) && words.iter().all(|word| line.contains(word)))
                .map(str::to_owned)
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn config(addresses: &str, yaml: &str) -> Config {
    let dir = new_dir("inside");
    let file = dir.join("sizegate.yaml");
    std::fs::write(&file, format!("{addresses}{yaml}\n")).unwrap();
    let config = sizegate::config::load(Some(&file), &Default::default(), &Default::default())
        .unwrap_or_else(|errors| panic!("{errors}"));
    std::fs::remove_dir_all(&dir).unwrap();
    config
}

fn worker(stop: CancellationToken) -> Handle {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    std::thread::spawn(move || {
        runtime.block_on(async {
            stop.cancelled().await;
            // Let sessions say goodbye.
            tokio::time::sleep(Duration::from_millis(100)).await;
        });
    });
    handle
}

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Everything this process logged so far; tests find their own lines by their client's address.
pub fn log() -> String {
    String::from_utf8_lossy(&LOG.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
}

fn capture_log() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::DEBUG)
            .with_writer(ToLog)
            .init();
    });
}

struct ToLog;

impl<'a> MakeWriter<'a> for ToLog {
    type Writer = ToLog;

    fn make_writer(&'a self) -> ToLog {
        ToLog
    }
}

impl io::Write for ToLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
