//! Which topics are compacted: there a record that is left out changes what its key means, and none is.
//!
//! Asked of the cluster when a record is about to fall, which is rare, and believed for a while. Where our principal may
//! not know, the rule stands as it is written.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cluster::Cluster;

/// So long it is believed.
const BELIEVED: Duration = Duration::from_secs(60);
/// Topics that are remembered.
const REMEMBERED: usize = 1_024;

/// What was heard of topics.
#[derive(Debug, Default)]
pub(in crate::proxy) struct Compacted {
    heard: Mutex<HashMap<Arc<str>, (bool, Instant)>>,
}

impl Compacted {
    /// Whether a topic is; `Err`: nobody says at the moment.
    pub(in crate::proxy) async fn is(
        &self,
        cluster: &Cluster,
        topic: &Arc<str>,
    ) -> Result<bool, String> {
        if let Some(heard) = self.heard(topic) {
            return Ok(heard);
        }
        let asked = cluster.is_compacted(topic).await;
        let is_compacted = asked.map_err(|error| error.to_string())?.unwrap_or(false);
        if is_compacted {
            tracing::warn!(target: "sizegate::redeem", topic = &**topic, "the topic is compacted, and leaving a record out would change what its key means: consumers wait for it; choose hold or pass (claim_check.fallback)");
        }
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.len() >= REMEMBERED {
            heard.clear();
        }
        heard.insert(Arc::clone(topic), (is_compacted, Instant::now()));
        Ok(is_compacted)
    }

    fn heard(&self, topic: &str) -> Option<bool> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let (is_compacted, at) = heard.get(topic)?;
        (at.elapsed() < BELIEVED).then_some(*is_compacted)
    }
}
