//! Judges a request that sets configs of topics or brokers: what of it goes on, and what is refused.
//!
//! Deciding only looks. Where it needs to know what the cluster has (a deleted override, what a new topic inherits, a
//! family), [`gather`] reads it now and it is decided again; nothing is refused by what was read before another attempt.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::{ClientInfo, Shared};
use crate::cluster::Wanted;
use crate::config::{Rule, TopicConfig};
use crate::count::Count as _;
use crate::findings::{self, ClusterFacts, Commands, Setting, TopicFacts};
use crate::policy::families::opening;
use crate::policy::lifetime::{self, Life, LifeKey, Overrides};
use crate::policy::topic_config::{self, Breach, Known, Op};
use crate::policy::{Blame, Change, ClientRules, GovernedKey, Manner, Policy, Refusal};
use crate::telemetry;
use crate::text::printable;
use crate::vocabulary::Action;
use crate::wire::config_requests::{
    Key, Kind, Layout, Operation, RESOURCE_BROKER, RESOURCE_TOPIC, Resource,
};
use crate::wire::config_response::RefusedResource;

/// POLICY_VIOLATION
const POLICY_VIOLATION: i16 = 44;
/// TOPIC_ALREADY_EXISTS
const TOPIC_ALREADY_EXISTS: i16 = 36;

/// How long the cluster is read for one request before it is decided without.
const ASK: Duration = Duration::from_secs(8);

/// How long a list of all topics may take: a million partitions take seconds.
const LIST: Duration = Duration::from_secs(3);

/// Brokers tell of a change up to some tens of milliseconds after it is acknowledged: what was acknowledged before a
/// request came is to be seen in what is read for it.
const SETTLED: Duration = Duration::from_millis(100);

/// A slow broker takes longer: what is refused by what was read is read again after these.
const AGAIN: [Duration; 1] = [Duration::from_millis(400)];

/// Refusals of one request with a text, a log line and a record of their own; of more only the number is told.
const MOST_TOLD: usize = 100;

/// What was read for one request.
#[derive(Debug)]
pub(super) struct Facts {
    /// With the families as they would be.
    policy: Arc<Policy>,
    /// `None`: the cluster did not answer.
    cluster: Option<ClusterFacts>,
    /// So many readings were made.
    readings: usize,
}

/// What to read.
#[derive(Debug)]
pub(super) struct Wish {
    /// Topics that the request changes or creates.
    topics: Vec<Arc<str>>,
    /// Waited for before.
    delay: Duration,
    readings: usize,
}

/// What becomes of a request.
#[derive(Debug, Default)]
pub(super) struct Decision {
    /// Entries that go on, by their number.
    pub kept: Vec<usize>,
    /// What is answered here.
    pub refused: Vec<RefusedResource>,
}

/// A decision, or what it needs.
#[derive(Debug)]
pub(super) enum Look {
    /// Read this first.
    Wish(Wish),
    /// It is decided, counted and told.
    Decided(Decision),
}

/// What is wrong with one entry.
struct Found {
    refusal: Refusal,
    /// It rests on what was read.
    is_read: bool,
    action: Action,
}

/// Reads what a decision wishes for.
pub(super) async fn gather(shared: Arc<Shared>, wish: Wish) -> Facts {
    tokio::time::sleep(wish.delay).await;
    let policy = shared.policy.load_full();
    let readings = wish.readings.saturating_add(1);
    let read = async {
        let _turn = shared.governing.acquire().await.ok()?;
        let (enlarged, names) = relatives(&shared, &policy, wish.topics).await?;
        let commands = Commands::default();
        let cluster = shared
            .cluster
            .survey(Wanted::Named(&names), &commands)
            .await;
        let unread = |error| tracing::debug!(%error, "the cluster was not read for a request that sets configs");
        Some((enlarged, cluster.map_err(unread).ok()))
    };
    let (policy, cluster) = tokio::time::timeout(ASK, read)
        .await
        .ok()
        .flatten()
        .unwrap_or((policy, None));
    Facts {
        policy,
        cluster,
        readings,
    }
}

/// The policy with the families that there would be, and the topics whose configs count.
async fn relatives(
    shared: &Shared,
    policy: &Arc<Policy>,
    topics: Vec<Arc<str>>,
) -> Option<(Arc<Policy>, Vec<String>)> {
    let mut names: BTreeSet<String> = topics.iter().map(ToString::to_string).collect();
    if !policy.names_families() {
        return Some((Arc::clone(policy), names.into_iter().collect()));
    }
    let mut all = known_topics(shared).await;
    // A topic may be younger than what is known of topics.
    all.extend(topics.iter().cloned());
    let policy = Arc::clone(policy);
    // Patterns of families over ten thousand topics take a while.
    let work = tokio::task::spawn_blocking(move || {
        let enlarged = policy.among(&all);
        let policy = enlarged.map_or(policy, Arc::new);
        let families = policy.families();
        for topic in &topics {
            let of_main = families.of_main(topic).into_iter();
            for family in of_main.chain(families.of_member(topic)) {
                names.insert(family.main.to_string());
                names.extend(family.members.iter().map(|member| member.topic.to_string()));
            }
        }
        (policy, names.into_iter().collect())
    });
    work.await.ok()
}

/// The topics there are now, where the cluster tells soon; else those it told of last.
async fn known_topics(shared: &Shared) -> Vec<Arc<str>> {
    let listed = tokio::time::timeout(LIST, shared.cluster.list_topics()).await;
    if let Ok(Ok(topics)) = listed {
        return topics;
    }
    let known = shared.cluster.topics();
    let known = known.iter().filter(|topic| !topic.is_internal);
    known.map(|topic| Arc::clone(&topic.name)).collect()
}

/// Decides on a request that was laid out; counts, logs and keeps what is refused.
pub(super) fn decide(
    shared: &Shared,
    client: &ClientInfo,
    layout: &Layout,
    frame: &[u8],
    facts: Option<&Facts>,
) -> Look {
    let policy = shared.policy.load_full();
    let rules = if policy.asks_for_clients() {
        client.rules(&policy)
    } else {
        ClientRules::default()
    };
    let case = Case {
        shared,
        policy: &policy,
        client: &rules,
        facts,
        changes: changes(layout, frame),
        lives: lives(layout, frame),
    };
    if let Some(wish) = case.wish() {
        return Look::Wish(wish);
    }
    let (mut found, is_governed) = case.find();
    let is_read = |found: &Found| found.is_read && found.action != Action::Observe;
    if let Some(facts) = facts.filter(|facts| facts.cluster.is_some())
        && found.values().any(is_read)
        && let Some(delay) = AGAIN.get(facts.readings.saturating_sub(1))
    {
        return Look::Wish(Wish {
            delay: *delay,
            ..case.wished(facts.readings)
        });
    }
    case.same_names(&mut found);
    let (decision, has_observed) = case.carry_out(found, client, layout, frame);
    if is_governed.is_some() {
        shared
            .metrics
            .config_request(match (decision.refused.len(), decision.kept.len()) {
                (0, _) if has_observed => "observed",
                (0, _) => "forwarded",
                (_, 0) => "refused",
                _ => "partial",
            });
    }
    Look::Decided(decision)
}

/// One request being judged.
struct Case<'a> {
    shared: &'a Shared,
    policy: &'a Policy,
    client: &'a ClientRules,
    facts: Option<&'a Facts>,
    /// By entry; `None`: of a kind or a name that nobody governs.
    changes: Vec<Option<Change>>,
    /// By entry: what it does to how long records are kept.
    lives: Vec<Vec<(LifeKey, Op)>>,
}

/// What was found, by entry.
type ByEntry = HashMap<usize, Found>;

/// Something of the request is governed.
struct Governed;

impl<'a> Case<'a> {
    /// The rule that governs a topic's configs for this client.
    fn rule(&self, topic: &str) -> Option<(&'a Rule, &'a TopicConfig)> {
        let rule = self.policy.rule_for_client(topic, self.client)?;
        Some((rule, rule.topic_config.as_ref()?))
    }

    /// The rules that govern an entry: a topic's one, or all that are for brokers.
    fn rules(&self, change: &Change) -> Vec<(&'a Rule, &'a TopicConfig)> {
        if !change.is_broker {
            return self.rule(&change.name).into_iter().collect();
        }
        let rules = self.policy.rules().iter();
        let governing = rules.filter_map(|rule| {
            let governed = rule.topic_config.as_ref()?;
            governed.brokers.then_some((rule, governed))
        });
        governing.collect()
    }

    fn all(&self) -> impl Iterator<Item = (usize, &Change)> {
        let changes = self.changes.iter().enumerate();
        changes.filter_map(|(at, change)| Some((at, change.as_ref()?)))
    }

    /// What must be read before anything is decided.
    fn wish(&self) -> Option<Wish> {
        if self.facts.is_some() {
            return None;
        }
        let needs = |change: &Change| {
            let may_open = self.policy.names_families()
                && !change.is_broker
                && (change.manner != Manner::Change || !change.ops.is_empty());
            may_open
                || self.rules(change).into_iter().any(|(_, governed)| {
                    let breaks = || !topic_config::breaches(change, governed, None).is_empty();
                    // A topic that is there already is not created, whatever it would break.
                    topic_config::needs_known(change, governed)
                        || (change.manner == Manner::Create && breaks())
                })
        };
        let needed = self
            .all()
            .any(|(at, change)| needs(change) || self.tickets_of(at, change).is_some());
        needed.then(|| self.wished(0))
    }

    fn wished(&self, readings: usize) -> Wish {
        let topics = self.all().filter(|(_, change)| !change.is_broker);
        Wish {
            topics: topics.map(|(_, change)| Arc::clone(&change.name)).collect(),
            delay: SETTLED,
            readings,
        }
    }

    fn cluster(&self) -> Option<&'a ClusterFacts> {
        self.facts.and_then(|facts| facts.cluster.as_ref())
    }

    fn topic(&self, name: &str) -> Option<&'a TopicFacts> {
        self.cluster()?.topic(name)
    }

    /// What breaks a rule, then what opens a gap in a family.
    fn find(&self) -> (ByEntry, Option<Governed>) {
        let mut found = ByEntry::new();
        let mut is_governed = None;
        for (at, change) in self.all() {
            let known = self.known(change);
            for (rule, governed) in self.rules(change) {
                is_governed = Some(Governed);
                let breaches = topic_config::breaches(change, governed, known.as_ref());
                let action = self.action(rule.action);
                if let Some(breach) = self.breach(change, &breaches, rule, action) {
                    found.entry(at).or_insert(breach);
                }
            }
        }
        if self.opened(&mut found) {
            is_governed = Some(Governed);
        }
        if self.outlived(&mut found) {
            is_governed = Some(Governed);
        }
        (found, is_governed)
    }

    fn action(&self, action: Action) -> Action {
        if self.policy.observes() || action == Action::Observe {
            Action::Observe
        } else {
            Action::Reject
        }
    }

    fn breach(
        &self,
        change: &Change,
        breaches: &[Breach],
        rule: &Rule,
        action: Action,
    ) -> Option<Found> {
        if breaches.is_empty() {
            return None;
        }
        let id = self.shared.next_refusal_id();
        let refusal = topic_config::refusal(id, blame(action), change, breaches, rule)?;
        Some(Found {
            refusal,
            is_read: breaches.iter().all(|breach| breach.is_inherited),
            action,
        })
    }

    /// Adds what would open gaps in families. True if a family is concerned at all.
    fn opened(&self, found: &mut ByEntry) -> bool {
        let Some(facts) = self.facts.filter(|_| self.policy.names_families()) else {
            return false;
        };
        let families = facts.policy.families();
        let is_relative = |topic: &str| {
            families.of_main(topic).is_some() || families.of_member(topic).next().is_some()
        };
        let mut places = Vec::new();
        let mut steps = Vec::new();
        for (at, change) in self.all() {
            let is_refused = found
                .get(&at)
                .is_some_and(|found| found.action != Action::Observe);
            // Brokers refuse one that is named twice, and one that is there already is not created.
            let is_step = !change.is_broker && !is_refused && is_relative(&change.name);
            let step = self
                .cluster()
                .and_then(|facts| findings::governed::step(change, facts));
            if let Some(step) = step.filter(|_| is_step) {
                places.push((at, change));
                steps.push(step);
            }
        }
        if steps.is_empty() {
            return false;
        }
        let known = |topic: &str| self.topic(topic).map(findings::governed::in_force);
        let verdict = opening::judge(&facts.policy, &steps, &known);
        let headroom = families.headroom_bytes();
        let refused = verdict.refused.iter().map(|found| (found, Action::Reject));
        let warned = verdict.warned.iter().map(|found| (found, Action::Observe));
        for ((step_at, opened), action) in refused.chain(warned) {
            let (Some((at, change)), Some(step)) = (places.get(*step_at), steps.get(*step_at))
            else {
                continue;
            };
            let of_rule = self.policy.rule_for_client(&change.name, self.client);
            let action = match of_rule {
                _ if action == Action::Observe => action,
                Some(rule) => self.action(rule.action),
                None => self.action(action),
            };
            let id = self.shared.next_refusal_id();
            let refusal = opening::refusal(id, blame(action), change, step, opened, headroom);
            if let Some(refusal) = refusal {
                let found = found.entry(*at);
                found.or_insert(Found {
                    refusal,
                    is_read: true,
                    action,
                });
            }
        }
        true
    }

    /// The rule whose tickets an entry's topic may hold, where the entry says how long it keeps records.
    fn tickets_of(&self, at: usize, change: &Change) -> Option<(&Rule, Duration)> {
        let says = self.lives.get(at).is_some_and(|ops| !ops.is_empty())
            || (change.manner == Manner::Replace && !change.is_broker);
        let policy = self.facts.map_or(self.policy, |facts| &facts.policy);
        policy
            .holds_tickets(&change.name)
            .filter(|_| says && !change.is_broker)
    }

    /// Adds what would keep tickets for longer than their objects. True if tickets are concerned at all.
    fn outlived(&self, found: &mut ByEntry) -> bool {
        let mut is_concerned = false;
        for (at, change) in self.all() {
            let Some((rule, kept)) = self.tickets_of(at, change) else {
                continue;
            };
            is_concerned = true;
            let is_refused = |found: &Found| found.action != Action::Observe;
            let topic = self.topic(&change.name);
            // What is not known is not judged, and a topic that is there is not created.
            if found.get(&at).is_some_and(is_refused)
                || (change.manner == Manner::Create) == topic.is_some()
            {
                continue;
            }
            let (before, overrides) = topic.map_or_else(Default::default, life);
            let ops = self.lives.get(at).map(Vec::as_slice).unwrap_or_default();
            let after = before.after(change.manner, overrides, ops);
            let Some(need) = lifetime::outlives(topic.map(|_| &before), &after, kept) else {
                continue;
            };
            let action = self.action(Action::Reject);
            let id = self.shared.next_refusal_id();
            let refusal = lifetime::refusal(id, blame(action), change, ops, &need, &rule.name);
            if let Some(refusal) = refusal {
                let found = found.entry(at);
                found.or_insert(Found {
                    refusal,
                    is_read: true,
                    action,
                });
            }
        }
        is_concerned
    }

    /// What is known of an entry's configs; `None`: nothing was read.
    fn known(&self, change: &Change) -> Option<Known> {
        Some(findings::governed::known(change, self.cluster()?))
    }

    /// A resource that is named twice is refused by brokers, old ones take the last: either all entries of it pass, or
    /// none does.
    fn same_names(&self, found: &mut ByEntry) {
        let mut by_name: HashMap<(bool, &str), Vec<usize>> = HashMap::new();
        for (at, change) in self.all() {
            let key = (change.is_broker, &*change.name);
            by_name.entry(key).or_default().push(at);
        }
        for entries in by_name.into_values().filter(|entries| entries.len() > 1) {
            let guilty = entries.iter().copied().find(|at| found.contains_key(at));
            let Some(guilty) = guilty.and_then(|at| found.get(&at)) else {
                continue;
            };
            let (refusal, action) = (guilty.refusal.clone(), guilty.action);
            for at in entries {
                found.entry(at).or_insert_with(|| Found {
                    refusal: refusal.clone(),
                    is_read: false,
                    action,
                });
            }
        }
    }

    /// Tells of what was found, and splits the request. True: something was only observed.
    fn carry_out(
        &self,
        mut found: ByEntry,
        client: &ClientInfo,
        layout: &Layout,
        frame: &[u8],
    ) -> (Decision, bool) {
        let mut decision = Decision::default();
        let (mut told, mut has_observed) = (0, false);
        let mut answered: BTreeSet<(i8, Vec<u8>)> = BTreeSet::new();
        for (at, resource) in layout.resources.iter().enumerate() {
            let Some(found) = found.remove(&at) else {
                decision.kept.push(at);
                continue;
            };
            let is_observed = found.action == Action::Observe;
            let change = self.changes.get(at).and_then(Option::as_ref);
            let exists = !is_observed
                && change.is_some_and(|change| {
                    change.manner == Manner::Create && self.topic(&change.name).is_some()
                });
            if !exists {
                self.count(&found);
                told.increment();
                if told <= MOST_TOLD {
                    let error_code = if is_observed { 0 } else { POLICY_VIOLATION };
                    self.shared
                        .report(&found.refusal, error_code, false, None, client);
                }
            }
            if is_observed {
                has_observed = true;
                decision.kept.push(at);
                continue;
            }
            let name = frame
                .get(resource.name.clone())
                .unwrap_or_default()
                .to_vec();
            if answered.insert((resource.resource_type, name.clone())) {
                let (error_code, message) = match exists {
                    // The broker's own words: it was not created for that, whatever it would have broken.
                    true => (
                        TOPIC_ALREADY_EXISTS,
                        format!("Topic '{}' already exists.", printable(&name)),
                    ),
                    false if told > MOST_TOLD => (POLICY_VIOLATION, SHORT.to_owned()),
                    false => (POLICY_VIOLATION, found.refusal.text),
                };
                decision.refused.push(RefusedResource {
                    resource_type: resource.resource_type,
                    name,
                    error_code,
                    message,
                });
            }
        }
        if told > MOST_TOLD {
            tracing::warn!(
                client = %client.address,
                more = told.saturating_sub(MOST_TOLD),
                "a request set the configs of more topics against their rules than are told one by one"
            );
        }
        (decision, has_observed)
    }

    fn count(&self, found: &Found) {
        let topic = &found.refusal.place.topic;
        let known = self.shared.cluster.topic(topic);
        let label = known.as_ref().map_or(telemetry::OTHER, |known| &known.name);
        let limit = &found.refusal.violation.limit;
        let metrics = self.shared.metrics.topic(label);
        metrics.violation(limit.gate, limit.source, found.action);
    }
}

/// For the topics of one request beyond those that have a text of their own.
const SHORT: &str =
    "sizegate refused it as it did the first topics of this request: see their error messages.";

const fn blame(action: Action) -> Blame {
    match action {
        Action::Observe => Blame::Observed,
        Action::Reject | Action::Offload => Blame::Sizegate,
    }
}

/// What each entry of a request does.
fn changes(layout: &Layout, frame: &[u8]) -> Vec<Option<Change>> {
    let change = |resource: &Resource| {
        let is_broker = match resource.resource_type {
            RESOURCE_TOPIC => false,
            RESOURCE_BROKER => true,
            _ => return None,
        };
        let name = std::str::from_utf8(frame.get(resource.name.clone())?).ok()?;
        let ops = |wanted: bool| {
            let configs = layout.configs_of(resource).iter();
            let of_one =
                configs.filter(move |(key, _)| (*key == Key::InternalSegmentBytes) == wanted);
            of_one.filter_map(|(key, operation)| op(*key, operation, frame))
        };
        Some(Change {
            name: name.into(),
            is_broker,
            manner: match layout.kind {
                Kind::Create => Manner::Create,
                Kind::Replace => Manner::Replace,
                Kind::Change => Manner::Change,
            },
            // The last counts, and the internal one stands over the other.
            ops: ops(false).chain(ops(true)).collect(),
        })
    };
    layout.resources.iter().map(change).collect()
}

fn op(key: Key, operation: &Operation, frame: &[u8]) -> Option<(GovernedKey, Op)> {
    let governed = match key {
        Key::MaxMessageBytes => GovernedKey::MaxMessageBytes,
        Key::SegmentBytes | Key::InternalSegmentBytes => GovernedKey::SegmentBytes,
        Key::CompressionType => GovernedKey::CompressionType,
        Key::RetentionMs | Key::SegmentMs | Key::CleanupPolicy => return None,
    };
    let op = match operation {
        Operation::Set(range) => {
            Op::Set(String::from_utf8_lossy(frame.get(range.clone())?).into_owned())
        }
        Operation::Delete if key == Key::InternalSegmentBytes => return None,
        Operation::Delete => Op::Delete,
        // None of these is a list: the broker refuses it.
        Operation::Append(_) | Operation::Subtract(_) | Operation::Other => return None,
    };
    Some((governed, op))
}

/// What each entry of a request does to how long records are kept.
fn lives(layout: &Layout, frame: &[u8]) -> Vec<Vec<(LifeKey, Op)>> {
    let of_one = |(key, operation): &(Key, Operation)| {
        let key = match key {
            Key::RetentionMs => LifeKey::RetentionMs,
            Key::SegmentMs => LifeKey::SegmentMs,
            Key::CleanupPolicy => LifeKey::CleanupPolicy,
            _ => return None,
        };
        let text = |range: &Range<usize>| {
            let text = frame.get(range.clone())?;
            Some(String::from_utf8_lossy(text).into_owned())
        };
        let op = match operation {
            Operation::Set(range) => Op::Set(text(range)?),
            Operation::Delete => Op::Delete,
            Operation::Append(range) if key == LifeKey::CleanupPolicy => {
                Op::Set(Life::with_cleanup(&text(range)?)?)
            }
            Operation::Subtract(range) if key == LifeKey::CleanupPolicy => {
                Op::Set(Life::without_cleanup(&text(range)?)?)
            }
            Operation::Append(_) | Operation::Subtract(_) | Operation::Other => return None,
        };
        Some((key, op))
    };
    let of = |resource: &Resource| {
        layout
            .configs_of(resource)
            .iter()
            .filter_map(of_one)
            .collect()
    };
    layout.resources.iter().map(of).collect()
}

/// How long a topic keeps records, and which of that is its own word.
fn life(facts: &TopicFacts) -> (Life, Overrides) {
    let kept = &facts.kept;
    let life = Life {
        retention_ms: kept.retention_ms.as_ref().map(Setting::value),
        segment_ms: kept.segment_ms.as_ref().map(Setting::value),
        cleanup: kept
            .cleanup
            .as_ref()
            .map(|cleanup| (cleanup.value().deletes, cleanup.value().compacts)),
    };
    let overrides = Overrides {
        retention_ms: kept.retention_ms.as_ref().is_some_and(Setting::is_override),
        segment_ms: kept.segment_ms.as_ref().is_some_and(Setting::is_override),
        cleanup: kept.cleanup.as_ref().is_some_and(Setting::is_override),
    };
    (life, overrides)
}
