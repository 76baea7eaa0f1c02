//! `sizegate run`: everything is built, connected and started here, and taken down again.
//!
//! Threads: this one accepts and serves the admin HTTP; the control plane has its own, because decoding a large
//! cluster's answers takes tens of milliseconds; each worker runs sessions on a runtime of its own, so that no
//! session ever moves between cores.

mod certificates;
mod claim_margins;
mod families;
mod learned;
mod notify;
mod readiness;
mod reload;
mod view;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::runtime::{Builder, Handle};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use self::learned::with_learned;
use self::notify::Notify;
use self::reload::Live;
use crate::admin;
use crate::cluster::Cluster;
use crate::config::{Config, Overrides, OwnAddresses};
use crate::findings::Commands;
use crate::net::{Acceptor, Connector, Own};
use crate::policy::{Policy, StuckWatch};
use crate::proxy::{Advertised, BoundSockets, Budget, Claims, Listeners, RefusalTopic, Shared};
use crate::telemetry::log::{CloseLog, LevelHandle, OffloadLog, RedeemLog, RefusalLog};
use crate::telemetry::{Known, Metrics};

/// Readings of the cluster at once for requests that set configs: each opens a connection to every broker.
const READINGS: usize = 4;
/// How long the last log lines and responses of the admin server are waited for: with the drain's 25 s it stays within
/// Kubernetes' 30 s.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What the command line says beside the configuration.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// How long responses in flight are waited for after SIGTERM.
    pub drain_timeout: Duration,
    /// Worker threads; `None` is one per core.
    pub workers: Option<usize>,
    /// The file to read again on SIGHUP.
    pub config_path: Option<PathBuf>,
    /// What the command line says over the file.
    pub overrides: Overrides,
    /// Changes the log level while the process runs.
    pub log_level: Option<LevelHandle>,
}

/// Why the proxy did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration names something that cannot be used: a certificate, a pattern.
    #[error("{0}")]
    Config(String),
    /// A socket, a thread or a signal handler.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// What kept it from starting. Kafka being down is not among it: the proxy waits for it.
pub fn run(config: Config, options: RunOptions) -> Result<(), StartError> {
    let workers = start_workers(options.workers)?;
    let main = Builder::new_current_thread().enable_all().build()?;
    let ended = main.block_on(serve(config, options, workers));
    // What still computes, a reload or a response of the admin server, has no owner left.
    main.shutdown_background();
    ended
}

async fn serve(
    config: Config,
    options: RunOptions,
    workers: Vec<Handle>,
) -> Result<(), StartError> {
    let shutdown = CancellationToken::new();
    let sessions = TaskTracker::new();
    let shared = build(&config)?;
    let listeners = Listeners::bind(config.listener.bind, &shared).await?;
    let accepting = CancellationToken::new();
    let chores = TaskTracker::new();
    let config = Arc::new(ArcSwap::from_pointee(config));
    let reloaded = Arc::new(ArcSwapOption::empty());
    let state = view::admin_state(&config, &shared, &reloaded, accepting.clone());
    let (admin_address, admin) =
        admin::serve(config.load().admin_bind, state, shutdown.clone()).await?;
    chores.spawn(admin);
    let notify = Arc::new(Notify::from_env());
    let live = Live {
        notify: Arc::clone(&notify),
        config: Arc::clone(&config),
        path: options.config_path,
        overrides: options.overrides,
        shared: Arc::clone(&shared),
        level: options.log_level,
        reloaded,
    };
    // Before anybody is told that it runs: until then SIGHUP would end it.
    let signals = Signals::caught()?;
    chores.spawn(Arc::new(live).follow(signals.hangup, shutdown.clone()));
    chores.spawn(summarise(Arc::clone(&shared), shutdown.clone()));
    start_control_plane(Arc::clone(&shared), shutdown.clone())?;
    let bound = BoundSockets {
        workers,
        sessions: sessions.clone(),
        shutdown: accepting.clone(),
        max_connections: config.load().listener.max_connections,
    };
    listeners.serve(&shared, bound);
    say_what_runs(&config.load(), admin_address);
    notify.ready(&format!(
        "listening; the page is at http://{admin_address}/"
    ));
    told_to_end(signals.terminate, signals.interrupt).await;
    notify.stopping();
    tracing::info!(
        sessions = sessions.len(),
        "going down: answering what is in flight"
    );
    shared.is_draining.store(true, Ordering::Relaxed);
    accepting.cancel();
    sessions.close();
    if tokio::time::timeout(options.drain_timeout, sessions.wait())
        .await
        .is_err()
    {
        tracing::warn!(
            sessions = sessions.len(),
            "drain timeout is over: the rest is cut off"
        );
    }
    tokio::join!(finish_uploads(&shared), finish_refusals(&shared));
    shutdown.cancel();
    // What was counted since the last minute is logged now or never.
    chores.close();
    let _ = tokio::time::timeout(LAST_WORDS, chores.wait()).await;
    Ok(())
}

/// The first thing whoever starts it wants to know: does it refuse, whom does it stand before, and where to look.
fn say_what_runs(config: &Config, admin: SocketAddr) {
    let brokers: Vec<String> = config
        .cluster
        .bootstrap_servers
        .iter()
        .map(ToString::to_string)
        .collect();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        mode = %config.mode.label(),
        brokers = %brokers.join(","),
        rules = config.rules.len(),
        bind = %config.listener.bind,
        page = %format_args!("http://{admin}/"),
        "sizegate is listening"
    );
}

/// What was begun is an object without a ticket by now, or soon whole: it is not waited for long.
async fn finish_uploads(shared: &Arc<Shared>) {
    if shared.claims.is_some() {
        let finished = off_thread(shared, |shared| {
            if let Some(claims) = &shared.claims {
                claims.finish();
            }
        });
        let _ = tokio::time::timeout(LAST_WORDS, finished).await;
    }
}

/// What was told is written while the control plane runs: what was only counted is told now.
async fn finish_refusals(shared: &Shared) {
    if let Some(topic) = &shared.refusal_topic {
        topic.summarise();
        let _ = tokio::time::timeout(LAST_WORDS, topic.finished()).await;
    }
}

/// Which sizegate this is, for whoever reads of several: the host's name, which in Kubernetes is the pod's, and the port.
fn instance(config: &Config) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}:{}", host.trim(), config.admin_bind.port())
}

/// Everything sessions share, from a valid configuration; connects nowhere yet.
///
/// # Errors
/// The configuration names something that cannot be used.
pub fn build(config: &Config) -> Result<Arc<Shared>, StartError> {
    let in_words = |error: &dyn std::fmt::Display| StartError::Config(error.to_string());
    let own = Own::new(Some(OwnAddresses::new(config)));
    let connector = Connector::new(&config.cluster)
        .map_err(|e| in_words(&e))?
        .with_own(own);
    let acceptor = Acceptor::new(config.listener.tls.as_ref()).map_err(|e| in_words(&e))?;
    let policy = Policy::compile(config).map_err(|e| in_words(&e))?;
    let metrics = Metrics::new(config.telemetry.topics);
    let cluster = Cluster::new(config, connector.clone());
    let budget_bytes = usize::try_from(config.memory_budget_bytes).unwrap_or(usize::MAX);
    metrics
        .memory_budget_bytes
        .set(i64::try_from(budget_bytes).unwrap_or(i64::MAX));
    let budget = Budget::new(budget_bytes, metrics.memory_waits.clone());
    let held = Arc::clone(&budget);
    metrics
        .watch_held_bytes(move || held.held_bytes() as u64)
        .map_err(|e| in_words(&e))?;
    let claims = config
        .claim_check
        .as_ref()
        .map(|claim| Claims::open(claim, budget_bytes, &metrics, &cluster))
        .transpose()
        .map_err(|e| in_words(&e))?;
    let refusal_topic = config
        .refusals
        .topic
        .as_deref()
        .map(|topic| RefusalTopic::new(topic, instance(config), &cluster, &metrics));
    let shared = Arc::new(Shared {
        policy: ArcSwap::from_pointee(policy),
        advertised: Advertised::new(config.listener.advertise.clone(), cluster.clone()),
        cluster,
        bootstrap_servers: config.cluster.bootstrap_servers.clone(),
        connector,
        acceptor,
        budget,
        refusals: Arc::default(),
        refusal_log: RefusalLog::default(),
        refusal_topic,
        record_key: config.refusals.record_key,
        close_log: CloseLog::default(),
        observed: Arc::default(),
        stuck: StuckWatch::default(),
        metrics,
        claims,
        offload_log: OffloadLog::default(),
        redeem_log: RedeemLog::default(),
        frame_bytes: config.listener.frame_bytes,
        idle_timeout: config.listener.idle_timeout,
        certificates: ArcSwap::from_pointee(certificates::expiries(config)),
        is_draining: AtomicBool::new(false),
        is_grouped: AtomicBool::new(false),
        commands: Commands::new(config),
        is_control_plane_lost: AtomicBool::new(false),
        decoding: Arc::new(Semaphore::new(decoders())),
        governing: Semaphore::new(READINGS),
        refusal_ids: AtomicU64::new(u64::from(uuid::Uuid::new_v4().as_fields().0)),
    });
    let known: Arc<dyn Known> = shared.clone();
    shared.metrics.ask(Arc::downgrade(&known));
    Ok(shared)
}

/// Logs as counts what came again and again: every minute until shutdown, and once more then.
async fn summarise(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut minute = tokio::time::interval(Duration::from_secs(60));
    minute.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let is_over = shutdown.run_until_cancelled(minute.tick()).await.is_none();
        shared.refusal_log.summarise();
        if let Some(topic) = &shared.refusal_topic {
            topic.summarise();
        }
        shared.close_log.summarise();
        shared.observed.summarise();
        shared.offload_log.summarise();
        shared.redeem_log.summarise();
        if is_over {
            return;
        }
    }
}

/// Work that takes long, away from this thread: others wait for what else it does. `None`: it failed, which was logged
/// by the panic itself.
async fn off_thread<S, T>(state: &Arc<S>, work: impl FnOnce(&S) -> T + Send + 'static) -> Option<T>
where
    S: Send + Sync + 'static,
    T: Send + 'static,
{
    let state = Arc::clone(state);
    tokio::task::spawn_blocking(move || work(&state)).await.ok()
}

/// Long decodes at once: half of the cores, so that the other half serves clients.
fn decoders() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2))
}

fn start_control_plane(shared: Arc<Shared>, shutdown: CancellationToken) -> std::io::Result<()> {
    let watch = Watch {
        shared: Arc::clone(&shared),
        shutdown: shutdown.clone(),
    };
    let work = async move {
        let cluster = shared.cluster.clone();
        tokio::join!(
            cluster.run(shutdown.clone()),
            claim_margins::follow(Arc::clone(&shared), shutdown.clone()),
            families::follow(shared, shutdown)
        );
    };
    start_watched(watch, work)?;
    Ok(())
}

fn start_watched(
    watch: Watch,
    work: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new()
        .name("control-plane".to_owned())
        .spawn(move || {
            let _watch = watch;
            runtime.block_on(work);
        })
}

/// Lives as long as the control plane does. If that ends before shutdown, by a panic, this replica is not ready any
/// more: its limits would only age, and nobody would know.
struct Watch {
    shared: Arc<Shared>,
    shutdown: CancellationToken,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.shutdown.is_cancelled() {
            self.shared
                .is_control_plane_lost
                .store(true, Ordering::Relaxed);
            tracing::error!(
                "the control plane has ended, and limits are learned no more: restart this replica; the lines before this one say why"
            );
        }
    }
}

fn start_workers(workers: Option<usize>) -> std::io::Result<Vec<Handle>> {
    let count = workers
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
        .max(1);
    (0..count)
        .map(|n| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            std::thread::Builder::new()
                .name(format!("worker-{n}"))
                .spawn(move || runtime.block_on(std::future::pending::<()>()))?;
            Ok(handle)
        })
        .collect()
}

/// What the process is told by signals.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn caught() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

async fn told_to_end(mut terminate: Signal, mut interrupt: Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::testing;

    fn watch(shared: &Arc<Shared>, shutdown: &CancellationToken) -> Watch {
        Watch {
            shared: Arc::clone(shared),
            shutdown: shutdown.clone(),
        }
    }

    #[test]
    fn a_control_plane_that_panics_makes_the_replica_unready_and_says_so() {
        let (shared, shutdown) = (testing::shared(""), CancellationToken::new());
        let says_so = || {
            let why_not = shared.readiness(false).why_not;
            why_not
                .iter()
                .any(|why| why.starts_with("the control plane has ended"))
        };
        assert!(!says_so());
        let work = async { panic!("on purpose: a control plane that panics") };
        let thread = start_watched(watch(&shared, &shutdown), work).unwrap();
        assert!(thread.join().is_err());
        assert!(says_so());
    }

    #[test]
    fn a_control_plane_that_ends_at_shutdown_is_not_missed() {
        let (shared, shutdown) = (testing::shared(""), CancellationToken::new());
        let stopped = shutdown.clone();
        let work = async move { stopped.cancelled().await };
        let thread = start_watched(watch(&shared, &shutdown), work).unwrap();
        shutdown.cancel();
        assert!(thread.join().is_ok());
        assert!(!shared.is_control_plane_lost.load(Ordering::Relaxed));
    }
}
