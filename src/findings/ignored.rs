//! Findings that somebody has looked at and lives with: `ignore` in the configuration, `check --ignore`.
//!
//! Invariant: nothing is left out in silence: what is acknowledged is shown as such, with its reason.

use serde::Serialize;

use super::Finding;
use crate::config::Ignore;

/// A finding that is accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Acknowledged {
    /// What was found; of the topics, those that the entry is about.
    #[serde(flatten)]
    pub finding: Finding,
    /// Why it is accepted.
    pub reason: String,
}

/// Takes out of `found` what the entries acknowledge. A finding about several topics keeps those that no entry names.
pub fn acknowledge(found: &mut Vec<Finding>, entries: &[Ignore]) -> Vec<Acknowledged> {
    let mut acknowledged = Vec::new();
    for entry in entries {
        for mut finding in std::mem::take(found) {
            if finding.rule != entry.finding {
                found.push(finding);
                continue;
            }
            let Some(pattern) = &entry.topic else {
                acknowledged.push(because(finding, entry));
                continue;
            };
            let topics = std::mem::take(&mut finding.topics);
            let was_about_topics = !topics.is_empty();
            let (named, others): (Vec<_>, Vec<_>) =
                topics.into_iter().partition(|topic| pattern.matches(topic));
            if !named.is_empty() {
                let named = Finding {
                    topics: named,
                    ..finding.clone()
                };
                acknowledged.push(because(named, entry));
            }
            if !others.is_empty() || !was_about_topics {
                finding.topics = others;
                found.push(finding);
            }
        }
    }
    acknowledged
}

fn because(finding: Finding, entry: &Ignore) -> Acknowledged {
    Acknowledged {
        finding,
        reason: entry.reason.clone(),
    }
}
