//! Finds keys that contradict the claim check.

use crate::config::mistakes::{Report, below};
use crate::config::{Config, Decode, TopicPattern};

pub(super) fn find(config: &Config, report: &mut Report) {
    const SECTION: &str = "claim_check";
    for (i, rule) in config.rules.iter().enumerate() {
        if rule.offload.is_none() {
            continue;
        }
        let path = format!("rules[{i}]");
        let action = &below(&path, "action");
        let Some(claim_check) = &config.claim_check else {
            // Where the section is there and wrong, that is said already.
            if report.is_empty() {
                report.contradiction(
                    &[action, SECTION],
                    "`offload` needs the section `claim_check`: where values go, and what signs their tickets",
                );
            }
            continue;
        };
        if config.decode == Decode::Never {
            report.contradiction(
                &[action, "inspection.decode"],
                "`offload` needs compressed batches to be decoded, but `inspection.decode` is `never`",
            );
        }
        for (j, topic) in rule.topics.iter().enumerate() {
            let TopicPattern::Exact(name) = topic else {
                continue;
            };
            let topic = &format!("{path}.topics[{j}]");
            if name.starts_with("__") {
                report.contradiction(
                    &[topic, action],
                    format!("`{name}` is Kafka's own: its readers know nothing of tickets, and it is never offloaded"),
                );
            }
            if *name == claim_check.fallback.topic {
                report.contradiction(
                    &[topic, "claim_check.fallback.topic"],
                    format!(
                        "`{name}` is the fallback topic: it holds tickets, and is never offloaded"
                    ),
                );
            }
        }
    }
}
