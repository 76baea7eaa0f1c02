//! The configuration read again: on SIGHUP, or when the file's content changes (a ConfigMap swaps a symlink, so
//! the content is compared, not the file's time).
//!
//! Invariant: what is in force is always a valid configuration. One with a mistake changes nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, ArcSwapOption};
use tokio::signal::unix::Signal;
use tokio_util::sync::CancellationToken;

use super::certificates::Certificates;
use super::notify::Notify;
use super::off_thread;
use crate::admin::ReloadView;
use crate::config::{self, Config, Overrides};
use crate::policy::Policy;
use crate::proxy::Shared;
use crate::telemetry::log::LevelHandle;

/// How often the file is looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// The configuration in force, and what follows it.
pub(super) struct Live {
    /// In force.
    pub config: Arc<ArcSwap<Config>>,
    /// Where it was read from.
    pub path: Option<PathBuf>,
    /// What the command line says over it.
    pub overrides: Overrides,
    /// Follows `rules`, `limits`, `mode`, `near_limit` and `families`.
    pub shared: Arc<Shared>,
    /// Follows `telemetry.log_level`.
    pub level: Option<LevelHandle>,
    /// What became of the last reload, for the admin server.
    pub reloaded: Arc<ArcSwapOption<ReloadView>>,
    /// Is told when a reload begins and ends.
    pub notify: Arc<Notify>,
}

impl Live {
    /// Reloads until shutdown; `hangup` is SIGHUP.
    pub(super) async fn follow(self: Arc<Self>, mut hangup: Signal, shutdown: CancellationToken) {
        let mut seen = self.content().await;
        let mut certificates = Certificates::in_force(&self.config.load()).await;
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                _ = hangup.recv() => {
                    seen = self.content().await;
                    off_thread(&self, Self::reload).await;
                    certificates.reload(&self.config.load_full(), &self.shared).await;
                }
                () = tokio::time::sleep(LOOK_INTERVAL) => {
                    let content = self.content().await;
                    if content.is_some() && content != seen {
                        seen = content;
                        off_thread(&self, Self::reload).await;
                    }
                    certificates.look(&self.config.load_full(), &self.shared).await;
                }
            }
        }
    }

    async fn content(&self) -> Option<Vec<u8>> {
        tokio::fs::read(self.path.as_ref()?).await.ok()
    }

    /// With ten thousand rules, or as many families, it takes a second: never on the thread that accepts clients.
    fn reload(&self) {
        self.notify.reloading();
        let read = config::load(
            self.path.as_deref(),
            &self.overrides,
            &config::process_env(),
        );
        let applied = read
            .map_err(|mistakes| mistakes.to_string())
            .and_then(|new| self.apply(&new));
        self.shared.metrics.reloaded(applied.is_ok());
        self.reloaded.store(Some(Arc::new(ReloadView {
            at: SystemTime::now(),
            error: applied.as_ref().err().cloned(),
            needs_restart: applied.as_ref().map_or_else(|_| Vec::new(), Clone::clone),
        })));
        self.notify.ready(match &applied {
            Ok(_) => "the configuration was reloaded",
            Err(_) => "the changed configuration has a mistake; the last good one stays in force",
        });
        if let Err(mistakes) = applied {
            tracing::error!(
                mistakes,
                "the changed configuration has a mistake; the last good one stays in force"
            );
        }
    }

    /// The keys that changed and need a restart.
    fn apply(&self, new: &Config) -> Result<Vec<String>, String> {
        let reload = config::reload(&self.config.load(), new);
        if let Some(rule) = unserved(&reload.config) {
            return Err(format!(
                "rules[{rule}].action: `offload` needs `claim_check`, which was not there when the process started: restart it"
            ));
        }
        let policy = Policy::compile(&reload.config)?;
        if let Some(level) = &self.level {
            level.set(reload.config.telemetry.log_level);
        }
        self.shared.set_policy(policy);
        self.config.store(Arc::new(reload.config));
        tracing::info!(changed = reload.live.join(","), "configuration reloaded");
        if !reload.needs_restart.is_empty() {
            tracing::warn!(
                keys = reload.needs_restart.join(","),
                "changed in the configuration, but in force only after a restart"
            );
        }
        Ok(reload.needs_restart)
    }
}

/// A rule that offloads, where the process has opened no store to offload to.
fn unserved(config: &Config) -> Option<usize> {
    if config.claim_check.is_some() {
        return None;
    }
    config.rules.iter().position(|rule| rule.offload.is_some())
}
