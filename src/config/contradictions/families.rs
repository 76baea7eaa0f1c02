//! Finds families that cannot be: circles, and writers that leave nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::config::mistakes::{Report, below};
use crate::config::scalars::size_text;
use crate::config::{Config, Decode, Family, MAIN, TopicPattern};

/// Families of which each has the other as a member, as far as names that the configuration itself has tell: whatever
/// topics there are beside them, these would be in a circle.
pub(super) fn circles(config: &Config, report: &mut Report) {
    let exact = |pattern: &TopicPattern| match pattern {
        TopicPattern::Exact(name) => Some(name.clone()),
        TopicPattern::Glob(_) | TopicPattern::Regex(_) => None,
    };
    let members = || config.families.members.iter();
    let mut names: BTreeSet<Arc<str>> = members()
        .filter_map(|family| exact(&family.main))
        .map(Arc::from)
        .collect();
    let of_members = members().flat_map(|family| family.retry.iter().chain(&family.dead_letter));
    let patterns: Vec<String> = of_members.filter_map(exact).collect();
    // `{main}-dlt` may itself be somebody's main topic, once.
    let mains: Vec<Arc<str>> = names.iter().cloned().collect();
    for pattern in patterns {
        if pattern.contains(MAIN) {
            names.extend(
                mains
                    .iter()
                    .map(|main| Arc::from(pattern.replace(MAIN, main))),
            );
        } else {
            names.insert(Arc::from(pattern));
        }
    }
    for circle in config.families.among(&names).circles() {
        let at = members().position(|family| circle.iter().any(|topic| family.main.matches(topic)));
        let path = format!("families.members[{}]", at.unwrap_or(0));
        let along: Vec<&str> = circle
            .iter()
            .chain(circle.first())
            .map(|topic| &**topic)
            .collect();
        let text = format!(
            "is a circle: of {} each has the next among its retry and dead-letter topics, and would have to take less \
             than it; say which is the main topic",
            along.join(", ")
        );
        report.contradiction(&[&below(&path, "main")], text);
    }
}

/// What writes the members must take something when the headroom is taken off, and is compared with what decoding shows.
pub(super) fn writer(config: &Config, family: &Family, path: &str, report: &mut Report) {
    const HEADROOM: &str = "families.headroom";
    let Some(writer) = family.writer_max_request_size.number() else {
        return;
    };
    let key = below(path, "writer_max_request_size");
    let main = below(path, "main");
    let headroom = config.families.headroom_bytes;
    if writer <= headroom {
        let text = format!(
            "`{}` leaves nothing for `{}` once families.headroom ({}) is taken off: what does the producer take that writes \
             its retries and dead letters? (`none`: it is known to be enough)",
            size_text(writer),
            family.main.text(),
            size_text(headroom)
        );
        report.contradiction(&[&key, HEADROOM, &main], text);
    }
    if config.decode == Decode::Never {
        report.contradiction(
            &[&key, "inspection.decode", &main],
            "needs compressed batches to be decoded, but `inspection.decode` is `never`: write `when_needed`, or `none` \
             here, where the producer of retries and dead letters is known to take enough",
        );
    }
}
