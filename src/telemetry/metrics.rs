//! All metrics of one process. Names, labels and meaning: docs/metrics.md, which a test compares.
//!
//! Invariants: handles are resolved once and counted in without a lock; the number of series is bounded whatever
//! clients, topics and brokers are called.

use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;

use prometheus::core::Collector;
use prometheus::{
    IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, PullingGauge, Registry, TextEncoder,
};

use super::claims::ClaimMetrics;
use super::clients::{ClientConnection, Clients};
use super::counters::TimeHistogram;
use super::families::{Cells, Known, ProcessCells};
use super::text::NAMESPACE;
use super::topic::{TopicMetrics, Topics};
use crate::vocabulary::{Codec, Histograms};

/// All metrics of one process, in a registry of their own.
pub struct Metrics {
    registry: Registry,
    topics: Arc<Topics>,
    cells: Arc<ProcessCells>,
    clients: Arc<Clients>,
    frames_refused: IntCounterVec,
    malformed: IntCounterVec,
    connections: IntGauge,
    connections_total: IntCounter,
    connections_closed: IntCounterVec,
    reloads: IntCounterVec,
    config_requests: IntCounterVec,
    last_reload_success: IntGauge,
    /// `memory.budget` of the configuration.
    pub memory_budget_bytes: IntGauge,
    /// Times a session stopped reading because the budget was spent.
    pub memory_waits: IntCounter,
    refusal_records: IntCounterVec,
    claims: Arc<ClaimMetrics>,
    known: Arc<OnceLock<Weak<dyn Known>>>,
    started_at: SystemTime,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// At most `topics` topics get a label of their own (`telemetry.topics`).
    #[expect(
        clippy::expect_used,
        reason = "names and labels are constants, each registered once: any test would fail here"
    )]
    pub fn new(topics: usize) -> Arc<Self> {
        Self::try_new(topics)
            .map(Arc::new)
            .expect("metrics that can be registered")
    }

    fn try_new(topics: usize) -> prometheus::Result<Self> {
        let registry = Registry::new_custom(Some(NAMESPACE.into()), None)?;
        let claims = Arc::new(ClaimMetrics::new(topics));
        let topics = Arc::new(Topics::new(topics));
        let cells = Arc::new(ProcessCells::new());
        let known = Arc::new(OnceLock::new());
        let counter = |name: &str, help: &str| {
            IntCounter::new(name, help).and_then(|metric| registered(&registry, metric))
        };
        let counters = |name: &str, help: &str, label: &str| {
            IntCounterVec::new(Opts::new(name, help), &[label])
                .and_then(|metric| registered(&registry, metric))
        };
        let gauge = |name: &str, help: &str| {
            IntGauge::new(name, help).and_then(|metric| registered(&registry, metric))
        };
        let build_info = IntGaugeVec::new(
            Opts::new("build_info", "Always 1; the labels say which build runs."),
            &["version"],
        )
        .and_then(|metric| registered(&registry, metric))?;
        build_info
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .set(1);
        let last_reload_success = gauge(
            "config_last_reload_success",
            "1 while the configuration file as it is now is in force, 0 after it was read with a mistake.",
        )?;
        last_reload_success.set(1);
        Ok(Self {
            reloads: counters(
                "config_reloads_total",
                "Times the configuration was read again, by result.",
                "result",
            )?,
            config_requests: counters(
                "config_requests_total",
                "Requests to set configs of topics or brokers that a rule or a family governs, by verdict: forwarded, refused, \
                 partial (some topics refused), observed (forwarded although enforcing would have refused some of it).",
                "verdict",
            )?,
            last_reload_success,
            topics,
            cells,
            clients: Arc::new(Clients::new(counters(
                "client_connections_total",
                "Client connections by the client library that the client says it is (name/major.minor); at most 100, \
                 the rest are _other.",
                "software",
            )?)),
            frames_refused: counters(
                "frames_refused_total",
                "Requests refused whole because they were larger than listener.frame_bytes or the broker's socket.request.max.bytes, by reason.",
                "reason",
            )?,
            malformed: counters(
                "malformed_total",
                "Requests or responses that do not follow Kafka's protocol, by what is wrong with them; each closed its \
                 connection.",
                "reason",
            )?,
            connections: gauge("connections", "Client connections that are open now.")?,
            connections_total: counter(
                "connections_total",
                "Client connections accepted since the start.",
            )?,
            connections_closed: counters(
                "connections_closed_total",
                "Client connections that ended, by why.",
                "reason",
            )?,
            memory_budget_bytes: gauge(
                "memory_budget_bytes",
                "Bytes that may be held at once (memory.budget).",
            )?,
            memory_waits: counter(
                "memory_waits_total",
                "Times a connection had to wait because the memory budget was spent.",
            )?,
            refusal_records: counters(
                "refusal_records_total",
                "Records for the topic of refusals.topic, by what became of them: written, no_room (too many waited), refused (by \
                 the broker), expired (not acknowledged in time), ended (sizegate went down).",
                "outcome",
            )?,
            claims,
            known,
            started_at: SystemTime::now(),
            registry,
        })
    }

    /// The handle of a topic: one lookup, once per session and topic. Beyond the bound the shared `_other`.
    ///
    /// Only for topics that the cluster has: a client that invents names would use up the labels.
    pub fn topic(&self, name: &str) -> Arc<TopicMetrics> {
        self.topics.resolve(name)
    }

    /// The handle of a topic that was produced to and has a label of its own.
    pub fn known_topic(&self, name: &str) -> Option<Arc<TopicMetrics>> {
        self.topics.find(name)
    }

    /// Time of a whole request, broker included.
    pub fn request_seconds(&self, api_key: i16) -> &TimeHistogram {
        &self.cells.api(api_key).request
    }

    /// The proxy's own part of a request.
    pub fn proxy_seconds(&self, api_key: i16) -> &TimeHistogram {
        &self.cells.api(api_key).proxy
    }

    /// One batch inspected. `proof`: `header`, `bound`, `walk`, `decode` or `sampled`.
    pub fn inspection(&self, proof: &'static str, codec: Codec) {
        self.cells.inspection(proof, codec).inc();
    }

    /// Time to measure one batch.
    pub fn inspection_seconds(&self, codec: Codec) -> &TimeHistogram {
        codec.cell(&self.cells.inspection_seconds)
    }

    /// A request or a response that is not Kafka's protocol. `reason`: of a fixed set.
    pub fn malformed(&self, reason: &'static str) {
        self.malformed.with_label_values(&[reason]).inc();
    }

    /// A request above `listener.frame_bytes`. `reason`: of a fixed set.
    pub fn frames_refused(&self, reason: &'static str) {
        self.frames_refused.with_label_values(&[reason]).inc();
    }

    /// A client connected.
    pub fn connection_opened(&self) {
        self.connections.inc();
        self.connections_total.inc();
    }

    /// Client connections that are open now.
    pub fn open_connections(&self) -> u64 {
        self.connections.get().max(0).unsigned_abs()
    }

    /// A client's connection ended. `reason`: of a fixed set.
    pub fn connection_closed(&self, reason: &'static str) {
        self.connections.dec();
        self.connections_closed.with_label_values(&[reason]).inc();
    }

    /// The connection's client said what it is (ApiVersions v3+), or is known not to (empty words). The connection
    /// counts as open under that name while the response is kept.
    pub fn client_software(&self, name: &str, version: &str, client_id: &str) -> ClientConnection {
        self.clients.connected(name, version, client_id)
    }

    /// Connected clients by software.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }

    /// Whom to ask at each scrape for limits and for how the control plane fares. The first to be named stays.
    pub fn ask(&self, known: Weak<dyn Known>) {
        // A second one would be a mistake in `run`, but no reason to go without metrics.
        let _ = self.known.set(known);
    }

    /// `held_bytes` is what `held` says at each scrape: the budget counts it already. At most once.
    ///
    /// # Errors
    /// It was given before.
    pub fn watch_held_bytes(
        &self,
        held: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> prometheus::Result<()> {
        let gauge = PullingGauge::new(
            "held_bytes",
            "Bytes of requests and responses that are held now, counted against the memory budget.",
            Box::new(move || held() as f64),
        )?;
        self.registry.register(Box::new(gauge))
    }

    /// When counting began.
    pub const fn started_at(&self) -> SystemTime {
        self.started_at
    }

    /// A record for the topic of refusals was written, or not. `outcome`: of a fixed set.
    pub fn refusal_record(&self, outcome: &'static str) {
        self.refusal_records.with_label_values(&[outcome]).inc();
    }

    /// A governed request to set configs was judged. `verdict`: of a fixed set.
    pub fn config_request(&self, verdict: &'static str) {
        self.config_requests.with_label_values(&[verdict]).inc();
    }

    /// The configuration was read again, and is in force or not.
    pub fn reloaded(&self, is_in_force: bool) {
        let result = if is_in_force { "success" } else { "failure" };
        self.reloads.with_label_values(&[result]).inc();
        self.last_reload_success.set(is_in_force.into());
    }

    /// The claim check's counters.
    pub const fn claims(&self) -> &Arc<ClaimMetrics> {
        &self.claims
    }

    /// Everything, in Prometheus' text format. Takes ten to twenty milliseconds with a thousand topics: not for a thread
    /// that serves clients.
    ///
    /// # Errors
    /// A family is inconsistent: a defect here.
    pub fn render(&self) -> prometheus::Result<String> {
        self.render_with(Histograms::All)
    }

    /// The same with these histograms by topic.
    ///
    /// # Errors
    /// As [`Metrics::render`].
    pub fn render_with(&self, histograms: Histograms) -> prometheus::Result<String> {
        let mut text = TextEncoder::new().encode_to_string(&self.registry.gather())?;
        let cells = Cells {
            topics: Arc::clone(&self.topics),
            process: Arc::clone(&self.cells),
            known: Arc::clone(&self.known),
        };
        cells.write(&mut text, histograms);
        self.claims.write(&mut text);
        Ok(text)
    }
}

fn registered<M: Collector + Clone + 'static>(
    registry: &Registry,
    metric: M,
) -> prometheus::Result<M> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
