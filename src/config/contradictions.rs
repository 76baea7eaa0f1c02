//! Finds keys that contradict each other: each right by itself, wrong together.
//!
//! Invariant: a [`Config`] in which nothing is found here can be run as it says.

mod claim;
mod families;

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use regex::RegexSet;

use super::mistakes::{Report, below};
use super::own::OwnAddresses;
use super::scalars::size_text;
use super::{
    Advertise, BatchLimit, Bounds, Config, Decode, Family, InsideLimit, Limits, Rule, TopicPattern,
};
use crate::vocabulary::{Codec, Gate};

/// Notes every contradiction in `config`.
pub(super) fn find(config: &Config, report: &mut Report) {
    ports(config, report);
    own_addresses(config, report);
    sizes(config, report);
    never_decoded(config, report);
    codecs(config, report);
    topic_configs(config, report);
    rules(config, report);
    families(config, report);
    claim::find(config, report);
}

/// Two sockets on one port, or a port that does not exist.
fn ports(config: &Config, report: &mut Report) {
    const BIND: &str = "listener.bind";
    const FIRST: &str = "listener.node_ports.first";
    const IDS: &str = "listener.node_ports.node_ids";
    const ADMIN: &str = "admin.bind";
    let (bind, admin) = (config.listener.bind, config.admin_bind);
    if clash(bind, admin) {
        report.contradiction(
            &[ADMIN, BIND],
            format!("`{admin}` is taken by `listener.bind: {bind}`"),
        );
    }
    let Advertise::NodePorts {
        first, node_ids, ..
    } = &config.listener.advertise
    else {
        return;
    };
    let (first, count) = (usize::from(*first), node_ids.len());
    if count == 0 {
        return;
    }
    let last = first.saturating_add(count).saturating_sub(1);
    if last > usize::from(u16::MAX) {
        let text = format!(
            "`{first}` is too high: {count} brokers (node_ids) would reach port {last}, and the last is 65535"
        );
        report.contradiction(&[FIRST, IDS, BIND], text);
        return;
    }
    let nodes = first..=last;
    if nodes.contains(&usize::from(bind.port())) {
        let text = format!(
            "`{bind}` is among the ports of the brokers, {first} to {last} (listener.node_ports)"
        );
        report.contradiction(&[BIND, FIRST, IDS], text);
    }
    // Brokers' ports are on the address of `listener.bind`.
    let taken = nodes.contains(&usize::from(admin.port()));
    if taken && clash(SocketAddr::new(bind.ip(), admin.port()), admin) {
        let text = format!(
            "`{admin}` is among the ports of the brokers, {first} to {last} (listener.node_ports)"
        );
        report.contradiction(&[ADMIN, FIRST, IDS, BIND], text);
    }
}

/// Clients would be led in a circle: each connection would make another.
fn own_addresses(config: &Config, report: &mut Report) {
    const SERVERS: &str = "cluster.bootstrap_servers";
    let own = OwnAddresses::new(config);
    for server in &config.cluster.bootstrap_servers {
        if let Some(key) = own.key_of(server) {
            let text = format!(
                "`{server}` is sizegate's own address ({key}), and every client's connection would come back to it: name \
                 Kafka's brokers here, or give {key} another address"
            );
            report.contradiction(&[SERVERS, key], text);
        }
    }
}

/// Whether two sockets cannot listen at once.
fn clash(a: SocketAddr, b: SocketAddr) -> bool {
    let same_ip = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() == b.port() && same_ip
}

/// Sizes of which one makes another unreachable.
fn sizes(config: &Config, report: &mut Report) {
    const FRAME: &str = "listener.frame_bytes";
    const BUDGET: &str = "memory.budget";
    let frame = u64::from(config.listener.frame_bytes);
    if frame > config.memory_budget_bytes {
        let budget = size_text(config.memory_budget_bytes);
        let text = format!(
            "`{}` is more than may be held at once (memory.budget: {budget})",
            size_text(frame)
        );
        report.contradiction(&[FRAME, BUDGET], text);
    }
    for (path, limits) in all_limits(config) {
        if let Some(BatchLimit::Bytes(bytes)) = limits.batch_bytes
            && bytes > frame
        {
            let (bytes, frame) = (size_text(bytes), size_text(frame));
            let text = format!(
                "`{bytes}` is never reached: a whole request is at most {frame} (listener.frame_bytes)"
            );
            report.contradiction(&[&below(&path, "batch_bytes"), FRAME], text);
        }
    }
}

/// `inspection.decode: never` with limits of what only decoding shows.
fn never_decoded(config: &Config, report: &mut Report) {
    if config.decode != Decode::Never {
        return;
    }
    for (path, limits) in all_limits(config) {
        for (gate, limit) in limits.inside() {
            if limit.number().is_some() {
                report.contradiction(
                    &[&below(&path, gate.limit_key()), "inspection.decode"],
                    "needs compressed batches to be decoded, but `inspection.decode` is `never`: write `when_needed`, or \
                     remove this limit",
                );
            }
        }
    }
}

/// `codecs` of rules against what the rest of the configuration says.
fn codecs(config: &Config, report: &mut Report) {
    let frame = u64::from(config.listener.frame_bytes);
    for (i, rule) in config.rules.iter().enumerate() {
        let Some(codecs) = &rule.codecs else { continue };
        let path = format!("rules[{i}].codecs");
        if config.decode == Decode::Never {
            report.contradiction(
                &[&path, "inspection.decode"],
                "needs compressed batches to be decoded, but `inspection.decode` is `never`: write `when_needed`, or \
                 remove `codecs`",
            );
        }
        let in_force = rule.limits.over(&config.limits);
        let uncompressed = in_force.uncompressed_bytes.and_then(InsideLimit::number);
        if let Some(limit) = uncompressed.filter(|limit| *limit <= codecs.above_bytes) {
            let text = format!(
                "`{}` is never reached: batches above {} uncompressed bytes are refused anyway (uncompressed_bytes)",
                size_text(codecs.above_bytes),
                size_text(limit)
            );
            report.contradiction(
                &[
                    &below(&path, "above"),
                    &format!("rules[{i}].limits.uncompressed_bytes"),
                    "limits.uncompressed_bytes",
                ],
                text,
            );
        }
        // Uncompressed a batch is as large as the request that carries it.
        if !codecs.allow.contains(&Codec::None)
            && codecs.allow.len() == 4
            && codecs.above_bytes > frame
        {
            let text = format!(
                "`{}` is never reached: a whole request is at most {} (listener.frame_bytes)",
                size_text(codecs.above_bytes),
                size_text(frame)
            );
            report.contradiction(&[&below(&path, "above"), "listener.frame_bytes"], text);
        }
    }
}

/// `topic_config` of rules against the limits and families beside it.
fn topic_configs(config: &Config, report: &mut Report) {
    for (i, rule) in config.rules.iter().enumerate() {
        let Some(governed) = &rule.topic_config else {
            continue;
        };
        let path = format!("rules[{i}].topic_config");
        let max = |bounds: Option<Bounds>| bounds.and_then(|bounds| bounds.max);
        let min = |bounds: Option<Bounds>| bounds.and_then(|bounds| bounds.min);
        // A batch must fit a segment: a topic that takes the one cannot have the other.
        if let (Some(least), Some(most)) =
            (min(governed.max_message_bytes), max(governed.segment_bytes))
            && most < least
        {
            let text = format!(
                "`{}` is more than a segment may be (segment_bytes.max: {}): a batch must fit a segment",
                size_text(least),
                size_text(most)
            );
            report.contradiction(
                &[
                    &format!("{path}.max_message_bytes.min"),
                    &format!("{path}.segment_bytes.max"),
                ],
                text,
            );
        }
        // The rule's own number would never be reached.
        if let (Some(BatchLimit::Bytes(limit)), Some(most)) =
            (rule.limits.batch_bytes, max(governed.max_message_bytes))
            && limit > most
        {
            let text = format!(
                "`{}` is never reached: this rule lets its topics take at most {} (topic_config.max_message_bytes.max)",
                size_text(limit),
                size_text(most)
            );
            report.contradiction(
                &[
                    &format!("rules[{i}].limits.batch_bytes"),
                    &format!("{path}.max_message_bytes.max"),
                ],
                text,
            );
        }
    }
}

/// The `limits` section and each rule's, with their paths.
fn all_limits(config: &Config) -> impl Iterator<Item = (String, &Limits)> {
    let rules = config
        .rules
        .iter()
        .enumerate()
        .map(|(i, rule)| (format!("rules[{i}].limits"), &rule.limits));
    std::iter::once(("limits".to_owned(), &config.limits)).chain(rules)
}

/// Names that stand twice, and rules that can never match.
fn rules(config: &Config, report: &mut Report) {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    let for_all = RuleIndex::for_all_clients(&config.rules);
    let by_clients = RuleIndex::by_clients(&config.rules);
    for (i, rule) in config.rules.iter().enumerate() {
        if let Some(earlier) = names.insert(&rule.name, i) {
            let place = report.place_of(&format!("rules[{earlier}].name"));
            let text = format!(
                "`{}` is the name of an earlier rule ({place}): a refusal could not say which",
                rule.name
            );
            report.contradiction(&[&format!("rules[{i}].name")], text);
        }
        // One that is for some clients only leaves the others to this one.
        let shadow = |pattern: &TopicPattern| {
            let same_clients = by_clients.get(&clients_key(rule));
            let of_same = same_clients.and_then(|index| index.first_covering(pattern, i));
            let of_all = for_all.first_covering(pattern, i);
            of_all.into_iter().chain(of_same).min()
        };
        let shadows: Option<Vec<usize>> = rule.topics.iter().map(shadow).collect();
        if let Some(earlier) = shadows.and_then(|shadows| shadows.into_iter().max())
            && let Some(Rule { name, .. }) = config.rules.get(earlier)
        {
            let place = report.place_of(&format!("rules[{earlier}]"));
            let text = format!(
                "never match: the first rule that matches wins, and `{name}` ({place}) comes first"
            );
            report.contradiction(
                &[
                    &format!("rules[{i}].topics"),
                    &format!("rules[{earlier}].topics"),
                ],
                text,
            );
        }
    }
}

/// All rules' patterns, so that ten thousand rules are compared with each other at once and not pair by pair.
struct RuleIndex<'a> {
    /// The first rule that matches every topic.
    all: Option<usize>,
    /// The first rule that has a pattern, by its kind and text.
    same: HashMap<(u8, &'a str), usize>,
    globs: GlobSet,
    glob_rules: Vec<usize>,
    regexes: RegexSet,
    regex_rules: Vec<usize>,
}

impl<'a> RuleIndex<'a> {
    /// Of the rules that are for every client.
    fn for_all_clients(rules: &'a [Rule]) -> Self {
        let all = rules.iter().enumerate();
        Self::new(all.filter(|(_, rule)| rule.clients.is_none()))
    }

    /// Of the rules that are for some clients only, by these.
    fn by_clients(rules: &'a [Rule]) -> HashMap<String, Self> {
        let mut groups: HashMap<String, Vec<(usize, &Rule)>> = HashMap::new();
        for (i, rule) in rules.iter().enumerate() {
            if rule.clients.is_some() {
                groups.entry(clients_key(rule)).or_default().push((i, rule));
            }
        }
        let groups = groups.into_iter();
        groups.map(|(key, rules)| (key, Self::new(rules))).collect()
    }

    /// Of these, by their place among all rules.
    fn new(rules: impl IntoIterator<Item = (usize, &'a Rule)>) -> Self {
        let mut index = Self {
            all: None,
            same: HashMap::new(),
            globs: GlobSet::empty(),
            glob_rules: Vec::new(),
            regexes: RegexSet::empty(),
            regex_rules: Vec::new(),
        };
        let (mut globs, mut regexes) = (GlobSetBuilder::new(), Vec::new());
        for (i, rule) in rules {
            for pattern in &rule.topics {
                index.same.entry(kind_and_text(pattern)).or_insert(i);
                match pattern {
                    TopicPattern::Exact(_) => {}
                    TopicPattern::Glob(glob) => {
                        if glob.chars().all(|c| c == '*') {
                            index.all.get_or_insert(i);
                        }
                        // A pattern that does not compile was refused when it was read.
                        if let Ok(glob) = GlobBuilder::new(glob).build() {
                            globs.add(glob);
                            index.glob_rules.push(i);
                        }
                    }
                    TopicPattern::Regex(_) => {
                        regexes.push(pattern.to_regex(None));
                        index.regex_rules.push(i);
                    }
                }
            }
        }
        // Sets too large to compile are refused where the rules are put in force, with the reason.
        index.globs = globs.build().unwrap_or_else(|_| GlobSet::empty());
        index.regexes = RegexSet::new(regexes).unwrap_or_else(|_| RegexSet::empty());
        index
    }

    /// The first of the rules before `before` that surely matches everything `narrow` matches.
    fn first_covering(&self, narrow: &TopicPattern, before: usize) -> Option<usize> {
        let same = self.same.get(&kind_and_text(narrow)).copied();
        let mut first = same.into_iter().chain(self.all).min();
        if let TopicPattern::Exact(topic) = narrow {
            let globs = self.globs.matches(topic);
            let globs = globs
                .into_iter()
                .filter_map(|at| self.glob_rules.get(at).copied());
            let regexes = self.regexes.matches(topic);
            let regexes = regexes
                .into_iter()
                .filter_map(|at| self.regex_rules.get(at).copied());
            first = first.into_iter().chain(globs).chain(regexes).min();
        }
        first.filter(|rule| *rule < before)
    }
}

/// The clients a rule is for, as one text: equal clients are equal texts.
fn clients_key(rule: &Rule) -> String {
    format!("{:?}", rule.clients)
}

fn kind_and_text(pattern: &TopicPattern) -> (u8, &str) {
    match pattern {
        TopicPattern::Exact(text) => (0, text),
        TopicPattern::Glob(text) => (1, text),
        TopicPattern::Regex(text) => (2, text),
    }
}

/// Families whose topics are their own relatives, and headroom that leaves nothing.
fn families(config: &Config, report: &mut Report) {
    let index = RuleIndex::for_all_clients(&config.rules);
    families::circles(config, report);
    for (i, family) in config.families.members.iter().enumerate() {
        let path = format!("families.members[{i}]");
        if family.enforce {
            families::writer(config, family, &path, report);
        }
        let earlier = config
            .families
            .members
            .iter()
            .take(i)
            .position(|earlier| earlier.main == family.main);
        if let Some(earlier) = earlier {
            let place = report.place_of(&format!("families.members[{earlier}].main"));
            let text = format!("`{}` has a family already ({place})", family.main.text());
            report.contradiction(&[&below(&path, "main")], text);
        }
        for (key, members) in [
            ("retry", &family.retry),
            ("dead_letter", &family.dead_letter),
        ] {
            for (j, member) in members.iter().enumerate() {
                let path = format!("{path}.{key}[{j}]");
                if *member == family.main {
                    report.contradiction(
                        &[&path],
                        format!("`{}` is the main topic itself", member.text()),
                    );
                } else if family.enforce {
                    headroom(config, &index, family, member, &path, report);
                }
            }
        }
    }
}

/// A member's own limit must leave something when the headroom is taken off: that is the main topic's limit.
fn headroom(
    config: &Config,
    index: &RuleIndex<'_>,
    family: &Family,
    member: &TopicPattern,
    path: &str,
    report: &mut Report,
) {
    const HEADROOM: &str = "families.headroom";
    let headroom = config.families.headroom_bytes;
    let governing = |topic: &TopicPattern| index.first_covering(topic, config.rules.len());
    let Some((i, rule)) = governing(member).and_then(|i| Some((i, config.rules.get(i)?))) else {
        return;
    };
    // Its member then has the main topic's limits, with headroom.
    if governing(&family.main) == Some(i) {
        return;
    }
    let in_force = rule.limits.over(&config.limits);
    let batch = match in_force.batch_bytes {
        Some(BatchLimit::Bytes(bytes)) => Some((Gate::Batch, bytes)),
        _ => None,
    };
    let inside = in_force.inside();
    let inside = inside.filter_map(|(gate, limit)| Some((gate, limit.number()?)));
    for (gate, limit) in batch.into_iter().chain(inside) {
        if !gate.grows() || limit > headroom {
            continue;
        }
        let key = gate.limit_key();
        let text = format!(
            "rule `{}` gives `{}` {key}: {}, and families.headroom ({}) leaves nothing of it for `{}`",
            rule.name,
            member.text(),
            size_text(limit),
            size_text(headroom),
            family.main.text()
        );
        let own_limits = format!("rules[{i}].limits");
        report.contradiction(
            &[
                path,
                HEADROOM,
                &below(&own_limits, key),
                &below("limits", key),
            ],
            text,
        );
    }
}
