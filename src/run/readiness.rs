//! Says whether clients are served as the configuration says, and why not: `/readyz`, `check --ready` and the page.

use std::sync::atomic::Ordering;

use crate::admin::Readiness;
use crate::proxy::Shared;

impl Shared {
    /// Clients are served as the configuration says: brokers are reached, and what is learned of them is in force.
    pub(super) fn readiness(&self, is_draining: bool) -> Readiness {
        let status = self.cluster.status();
        let mut why_not = Vec::new();
        if is_draining {
            why_not.push("going down: new connections are not accepted".to_owned());
        }
        if self.is_control_plane_lost.load(Ordering::Relaxed) {
            why_not.push(
                "the control plane has ended, and limits are learned no more: restart this replica"
                    .to_owned(),
            );
        }
        // Whether it went well or not: where nothing can be learned, rules hold all the same.
        let is_tried = status.refresh_age.is_some() || status.error.is_some();
        let are_families_due = status.refresh_age.is_some()
            && self.policy.load().looks_for_families()
            && !self.is_grouped.load(Ordering::Relaxed);
        if !status.is_reached {
            let error = status
                .error
                .map(|error| format!(": {error}"))
                .unwrap_or_default();
            why_not.push(format!("no broker is reached{error}"));
        } else if !is_tried {
            why_not.push("topics and their limits are being read for the first time".to_owned());
        } else if are_families_due {
            why_not.push("families are being looked for among the topics".to_owned());
        }
        why_not.extend(status.own_nodes.iter().map(ToString::to_string));
        why_not.extend(status.loops.iter().map(|to| {
            format!("connections to {to} come back to this sizegate, through another proxy")
        }));
        Readiness { why_not }
    }
}
