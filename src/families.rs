//! Families: a main topic with its retry and dead-letter topics, from the configuration and by their usual names.
//!
//! Invariant: mains and members are topics that exist, nothing is a member of its own family, and a detected member
//! never limits anything.

mod circles;
mod names;
#[cfg(test)]
mod tests;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use regex::Regex;

pub use names::{Relative, relative};

use crate::patterns::{MAIN, TopicPattern, glob_matches};
use crate::vocabulary::{DEFAULT_MAX_REQUEST_SIZE, labelled};

labelled! {
    /// What a member is for.
    MemberKind {
        /// Records wait here to be tried again.
        Retry = "retry",
        /// Records that failed for good.
        DeadLetter = "dead_letter",
    }
}

labelled! {
    /// How a member came into its family.
    Membership {
        /// The configuration names it.
        Configured = "configured",
        /// By its name alone: it only warns.
        Detected = "detected",
    }
}

labelled! {
    /// What a family's misfit does.
    Alignment {
        /// The main topic's limits in force allow for every configured member.
        Enforce = "enforce",
        /// Limits are left alone; the misfit is reported.
        Warn = "warn",
    }
}

/// A main topic with its retry and dead-letter topics as the configuration declares them, by patterns.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declared<'a> {
    pub(crate) main: &'a TopicPattern,
    pub(crate) retry: &'a [TopicPattern],
    pub(crate) dead_letter: &'a [TopicPattern],
    pub(crate) enforce: bool,
    /// As [`Family::writer_max_bytes`].
    pub(crate) writer_max_bytes: Option<u64>,
}

/// One main topic with its members.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Family {
    /// The main topic.
    pub main: Arc<str>,
    /// Its members, by name.
    pub members: Vec<Member>,
    /// What a misfit does; always `warn` where all members are detected.
    pub alignment: Alignment,
    /// Members that the configuration names exactly and that do not exist.
    pub absent: Vec<String>,
    /// What the producer that writes the members takes of one record, by its own estimate; `None`: known to be enough.
    pub writer_max_bytes: Option<u64>,
}

/// One retry or dead-letter topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The topic.
    pub topic: Arc<str>,
    /// What it is for.
    pub kind: MemberKind,
    /// How it came into the family.
    pub membership: Membership,
}

/// All families of a cluster, as of one list of its topics.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Families {
    /// By main topic, ascending.
    families: Vec<Family>,
    by_main: HashMap<Arc<str>, usize>,
    /// Of each member, its families, ascending.
    by_member: HashMap<Arc<str>, Vec<usize>>,
    headroom_bytes: u64,
}

impl Families {
    /// The families among the topics that exist, as declared and, with `detect`, by their names. Give no internal
    /// topics: they would be proposed by their names.
    pub(crate) fn among<'a, 'c>(
        declared: impl IntoIterator<Item = Declared<'c>>,
        detect_by_name: bool,
        headroom_bytes: u64,
        topics: impl IntoIterator<Item = &'a Arc<str>>,
    ) -> Self {
        let topics = Sorted::new(topics);
        let mut found: BTreeMap<Arc<str>, Family> = BTreeMap::new();
        for entry in declared {
            for family in configured(&entry, &topics) {
                // The first entry that names a main topic speaks for it, as with rules.
                found.entry(Arc::clone(&family.main)).or_insert(family);
            }
        }
        if detect_by_name {
            detect(&topics, &mut found);
        }
        let mut families = Self {
            headroom_bytes,
            ..Self::default()
        };
        for (at, (main, mut family)) in found.into_iter().enumerate() {
            family.members.sort_by(|a, b| a.topic.cmp(&b.topic));
            for member in &family.members {
                let of = families.by_member.entry(Arc::clone(&member.topic));
                of.or_default().push(at);
            }
            families.by_main.insert(main, at);
            families.families.push(family);
        }
        families
    }

    /// Every family, by main topic.
    pub fn all(&self) -> &[Family] {
        &self.families
    }

    /// The family whose main topic this is.
    pub fn of_main(&self, topic: &str) -> Option<&Family> {
        self.families.get(*self.by_main.get(topic)?)
    }

    /// The families that have this topic as a member: a dead-letter topic may serve many.
    pub fn of_member(&self, topic: &str) -> impl Iterator<Item = &Family> {
        let at = self.by_member.get(topic).into_iter().flatten();
        at.filter_map(|at| self.families.get(*at))
    }

    /// Some member's limits hold for its main topic.
    pub fn enforce(&self) -> bool {
        self.families
            .iter()
            .any(|family| family.enforced().next().is_some())
    }

    /// What a member needs above its main topic (`families.headroom`), in bytes.
    pub const fn headroom_bytes(&self) -> u64 {
        self.headroom_bytes
    }
}

impl Family {
    /// The members that the main topic's limits must allow for.
    pub fn enforced(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| self.enforces(member))
    }

    /// The main topic's limits must allow for this member.
    pub fn enforces(&self, member: &Member) -> bool {
        self.alignment == Alignment::Enforce && member.membership == Membership::Configured
    }
}

/// Topic names in ascending order, each once.
struct Sorted<'a>(Vec<&'a Arc<str>>);

impl<'a> Sorted<'a> {
    fn new(topics: impl IntoIterator<Item = &'a Arc<str>>) -> Self {
        let mut topics: Vec<_> = topics.into_iter().collect();
        topics.sort_unstable();
        topics.dedup();
        Self(topics)
    }

    fn get(&self, name: &str) -> Option<&'a Arc<str>> {
        let at = self.0.binary_search_by(|topic| (***topic).cmp(name)).ok()?;
        self.0.get(at).copied()
    }

    /// Those that begin with `prefix`.
    fn beginning_with(&self, prefix: &str) -> impl Iterator<Item = &'a Arc<str>> {
        let from = self.0.partition_point(|topic| &***topic < prefix);
        let rest = self.0.get(from..).unwrap_or_default();
        rest.iter()
            .take_while(move |topic| topic.starts_with(prefix))
            .copied()
    }

    /// Those that a pattern matches, `{main}` in it being `main`.
    fn matching(&self, pattern: &TopicPattern, main: &str) -> Vec<&'a Arc<str>> {
        match pattern {
            TopicPattern::Exact(name) => self.get(&name.replace(MAIN, main)).into_iter().collect(),
            TopicPattern::Glob(glob) => {
                let glob = glob.replace(MAIN, main);
                let prefix = glob.split(['*', '?']).next().unwrap_or_default();
                let candidates = self.beginning_with(prefix);
                let matches = |topic: &&Arc<str>| glob_matches(glob.as_bytes(), topic.as_bytes());
                candidates.filter(matches).collect()
            }
            TopicPattern::Regex(source) => {
                let prefix = if source.starts_with(MAIN) { main } else { "" };
                // The configuration compiled it, with a main topic's name in place of the capture.
                let Ok(regex) = Regex::new(&pattern.to_regex(Some(main))) else {
                    return Vec::new();
                };
                let candidates = self.beginning_with(prefix);
                candidates.filter(|topic| regex.is_match(topic)).collect()
            }
        }
    }
}

/// The members that one entry of the configuration gives each of its mains.
type Relatives<'a> = BTreeMap<&'a Arc<str>, BTreeMap<&'a Arc<str>, MemberKind>>;

/// The families of one entry of the configuration. Where its main is a pattern, a topic that the entry also names as
/// a member of another is no main; its own members then belong to that other's family.
fn configured(entry: &Declared<'_>, topics: &Sorted<'_>) -> Vec<Family> {
    let mut relatives = Relatives::new();
    let mut absent: HashMap<&Arc<str>, Vec<String>> = HashMap::new();
    for main in topics.matching(entry.main, MAIN) {
        let members = relatives.entry(main).or_default();
        for (kind, patterns) in [
            (MemberKind::DeadLetter, entry.dead_letter),
            (MemberKind::Retry, entry.retry),
        ] {
            for pattern in patterns {
                let matching = topics.matching(pattern, main);
                if matching.is_empty()
                    && let TopicPattern::Exact(name) = pattern
                {
                    absent
                        .entry(main)
                        .or_default()
                        .push(name.replace(MAIN, main));
                }
                for member in matching {
                    if member != main {
                        members.entry(member).or_insert(kind);
                    }
                }
            }
        }
    }
    let named: HashSet<&Arc<str>> = relatives
        .values()
        .flat_map(BTreeMap::keys)
        .copied()
        .collect();
    let roots = relatives.keys().filter(|main| !named.contains(*main));
    let family = |main: &&Arc<str>| Family {
        main: Arc::clone(main),
        members: descendants(main, &relatives)
            .into_iter()
            .map(|(topic, kind)| Member {
                topic: Arc::clone(topic),
                kind,
                membership: Membership::Configured,
            })
            .collect(),
        alignment: if entry.enforce {
            Alignment::Enforce
        } else {
            Alignment::Warn
        },
        absent: absent.get(*main).cloned().unwrap_or_default(),
        writer_max_bytes: entry.writer_max_bytes,
    };
    let families = roots.map(family);
    families
        .filter(|family| !family.members.is_empty() || !family.absent.is_empty())
        .collect()
}

/// The members of a main topic, and theirs.
fn descendants<'a>(
    main: &'a Arc<str>,
    relatives: &Relatives<'a>,
) -> BTreeMap<&'a Arc<str>, MemberKind> {
    let mut found = BTreeMap::new();
    let mut open = vec![main];
    while let Some(topic) = open.pop() {
        for (&member, &kind) in relatives.get(topic).into_iter().flatten() {
            if member == main {
                continue;
            }
            match found.entry(member) {
                Entry::Vacant(entry) => {
                    entry.insert(kind);
                    open.push(member);
                }
                // `retry: ["{main}-retry-*"]` matches the dead letters of retries too.
                Entry::Occupied(mut entry) if kind == MemberKind::DeadLetter => {
                    entry.insert(kind);
                }
                Entry::Occupied(_) => {}
            }
        }
    }
    found
}

/// Adds the topics whose names say that they belong to another, unless the configuration says what they are.
fn detect(topics: &Sorted<'_>, found: &mut BTreeMap<Arc<str>, Family>) {
    let mut configured: HashMap<Arc<str>, Vec<Arc<str>>> = HashMap::new();
    for family in found.values() {
        for member in &family.members {
            let mains = configured.entry(Arc::clone(&member.topic)).or_default();
            mains.push(Arc::clone(&family.main));
        }
    }
    let exists = |name: &str| topics.get(name).is_some();
    for &topic in &topics.0 {
        if configured.contains_key(topic)
            || found.contains_key(topic) && is_configured(found, topic)
        {
            continue;
        }
        let Some(Relative { main, kind }) = relative(topic, &exists) else {
            continue;
        };
        let Some(main) = topics.get(&main) else {
            continue;
        };
        // A relative of a configured member belongs to that member's family.
        let mains = match configured.get(main) {
            Some(mains) => mains.clone(),
            None => vec![Arc::clone(main)],
        };
        for main in mains.into_iter().filter(|main| main != topic) {
            let family = found.entry(Arc::clone(&main)).or_insert_with(|| Family {
                main,
                members: Vec::new(),
                alignment: Alignment::Warn,
                absent: Vec::new(),
                writer_max_bytes: Some(DEFAULT_MAX_REQUEST_SIZE),
            });
            family.members.push(Member {
                topic: Arc::clone(topic),
                kind,
                membership: Membership::Detected,
            });
        }
    }
}

/// The configuration itself makes this topic a main one.
fn is_configured(found: &BTreeMap<Arc<str>, Family>, main: &str) -> bool {
    found.get(main).is_some_and(|family| {
        !family.absent.is_empty()
            || family
                .members
                .iter()
                .any(|member| member.membership == Membership::Configured)
    })
}
