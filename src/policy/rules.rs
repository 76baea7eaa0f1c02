//! The rules, compiled: which of them speaks for a topic, and which limits are in force there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use regex::RegexSet;

use super::clients::{Client, ClientMatchers, ClientRules};
use super::codecs::CodecRule;
use super::{BatchFacts, Limit, Size, Violation};
use crate::claim::{Keys, Layout};
use crate::config::{
    self, BatchLimit, ClaimCheck, Config, Decode, InsideLimit, Limits, Mode, Redeem, Rule,
    StoreFailure, TopicPattern, Unredeemed,
};
use crate::families::Families;
use crate::inspect::{DeepLimits, Over, is_near};
use crate::vocabulary::{Action, ErrorCode, Gate, LIMITS, Source};

/// The configuration's rules, ready to be asked. Asked once per session and topic, never per request.
#[derive(Debug, Clone)]
pub struct Policy {
    mode: Mode,
    decode: Decode,
    defaults: Limits,
    rules: Vec<Rule>,
    /// The rules that name a topic exactly, in their order.
    exact: HashMap<String, Vec<usize>>,
    globs: GlobSet,
    /// The rule each glob belongs to.
    glob_rules: Vec<usize>,
    regexes: RegexSet,
    /// The rule each regex belongs to.
    regex_rules: Vec<usize>,
    clients: ClientMatchers,
    near_limit: f64,
    /// What the configuration says of families.
    family_config: config::Families,
    /// As of the topics last seen.
    families: Families,
    claims: Option<Arc<ClaimRules>>,
}

/// What all rules that offload have in common.
#[derive(Debug)]
pub struct ClaimRules {
    /// Who signs.
    pub keys: Arc<Keys>,
    /// How objects are named.
    pub layout: Layout,
    /// An object above this age is written again for a new ticket.
    pub renew_after: Duration,
    /// How long an object is kept at least.
    retention: Duration,
    /// How long a missing object may still turn up.
    pub grace: Duration,
    /// What becomes of a ticket whose object is missing.
    pub on_missing: Unredeemed,
    /// What becomes of a ticket whose object is another.
    pub on_corrupt: Unredeemed,
    /// The fallback topic's name as configured.
    fallback_topic: String,
    /// What stands before and behind a topic's name in that of its fallback topic.
    fallback: (String, String),
}

impl ClaimRules {
    fn compile(claim: &ClaimCheck) -> Result<Self, String> {
        let keys = claim.signing_keys().map_err(|error| error.to_string())?;
        let fallback = claim.fallback.topic.as_str();
        let (before, behind) = fallback.split_once("{topic}").unwrap_or((fallback, ""));
        Ok(Self {
            keys: Arc::new(keys),
            layout: claim.layout,
            renew_after: claim.renew_after(),
            retention: claim.retention,
            grace: claim.grace,
            on_missing: claim.fallback.on_missing,
            on_corrupt: claim.fallback.on_corrupt,
            fallback_topic: fallback.to_owned(),
            fallback: (before.to_owned(), behind.to_owned()),
        })
    }

    /// Where a topic's record goes whose ticket cannot be redeemed.
    pub fn fallback_topic(&self, topic: &str) -> String {
        self.fallback_topic.replace("{topic}", topic)
    }

    /// Kafka's own topics and those for lost tickets: nobody there knows what to do with a ticket, or it is one already.
    fn leaves(&self, topic: &str) -> bool {
        topic.starts_with("__") || self.is_fallback(topic)
    }

    fn is_fallback(&self, topic: &str) -> bool {
        let (before, behind) = &self.fallback;
        topic.starts_with(before) && topic.ends_with(behind)
    }
}

/// How a topic's values are offloaded.
#[derive(Debug, Clone)]
pub struct Offloading {
    /// Values larger than this go to the store.
    pub above_bytes: u64,
    /// When the store is down.
    pub on_store_failure: StoreFailure,
    /// The rule that says so.
    pub rule: Arc<str>,
    /// The rest.
    pub claims: Arc<ClaimRules>,
}

/// What the policy says of one topic.
#[derive(Debug, Clone)]
pub struct TopicPolicy {
    /// What happens above a limit; `observe` where the mode says so.
    pub action: Action,
    /// There if, and only if, values are offloaded, or would be: the rule's action is [`Action::Offload`], and the topic is
    /// none that is left alone. Where [`TopicPolicy::action`] is to observe, nothing is offloaded.
    pub offload: Option<Offloading>,
    /// There if its tickets are redeemed for the client. Not a matter of the mode: tickets that are there stay.
    pub redeem: Option<Arc<ClaimRules>>,
    /// The Kafka error code of refusals.
    pub error_code: ErrorCode,
    /// The rule's remedy.
    pub remedy: Option<Arc<str>>,
    /// The topic's own limit is looked at.
    pub inherits: bool,
    /// The number for the batch gate, if the configuration has one.
    pub batch: Option<Limit>,
    /// The limits inside the batch, as numbers.
    pub inside: DeepLimits,
    /// The same, each with its source.
    deep: Vec<Limit>,
    /// Sizes above this share of a limit are near it.
    pub near_limit: f64,
    /// The family members whose own limits, as learned, this main topic must allow for.
    pub members: Vec<MemberBound>,
    /// What large batches must come with.
    pub codecs: Option<Arc<CodecRule>>,
}

impl TopicPolicy {
    /// About the memory it takes beyond its own size.
    pub fn remembered_bytes(&self) -> usize {
        let names = self.deep.iter().chain(&self.batch);
        let names = names.map(|limit| limit.name.as_ref().map_or(0, |name| name.len()));
        let members = self.members.iter();
        let members =
            members.map(|bound| size_of::<MemberBound>().saturating_add(bound.topic.len()));
        let limits = self.deep.len().saturating_mul(size_of::<Limit>());
        limits
            .saturating_add(names.sum())
            .saturating_add(members.sum())
            .saturating_add(
                self.codecs
                    .as_ref()
                    .map_or(0, |rule| rule.remembered_bytes()),
            )
    }
}

/// A family member whose own limit counts for its main topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberBound {
    /// The member.
    pub topic: Arc<str>,
    /// Taken off its own limit.
    pub headroom_bytes: u64,
}

/// What the control plane knows of a limit: a topic's own, or what a member of its family leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Learned {
    /// Bytes; of a member, its own less its headroom.
    pub value: u64,
    /// `topic`, `broker` or `segment`; `family` where it is a member's.
    pub source: Source,
    /// Whose it is, in [`TopicPolicy::members`]; `None`: the topic's own.
    pub member: Option<usize>,
}

impl Learned {
    /// A topic's own limit.
    pub const fn own((value, source): (u64, Source)) -> Self {
        Self {
            value,
            source,
            member: None,
        }
    }
}

impl Policy {
    /// Compiles the rules of a valid configuration.
    ///
    /// # Errors
    /// A glob or regex too large to compile; what is merely misspelt was refused with the configuration.
    pub fn compile(config: &Config) -> Result<Self, String> {
        let mut exact: HashMap<String, Vec<usize>> = HashMap::new();
        let (mut globs, mut glob_rules) = (GlobSetBuilder::new(), Vec::new());
        let (mut regexes, mut regex_rules) = (Vec::new(), Vec::new());
        for (index, rule) in config.rules.iter().enumerate() {
            for pattern in &rule.topics {
                match pattern {
                    TopicPattern::Exact(name) => {
                        exact.entry(name.clone()).or_default().push(index);
                    }
                    TopicPattern::Glob(glob) => {
                        globs.add(GlobBuilder::new(glob).build().map_err(|e| e.to_string())?);
                        glob_rules.push(index);
                    }
                    TopicPattern::Regex(regex) => {
                        regexes.push(format!("^(?:{regex})$"));
                        regex_rules.push(index);
                    }
                }
            }
        }
        Ok(Self {
            mode: config.mode,
            decode: config.decode,
            defaults: config.limits.clone(),
            rules: config.rules.clone(),
            exact,
            globs: globs.build().map_err(|e| e.to_string())?,
            glob_rules,
            regexes: RegexSet::new(regexes).map_err(|e| e.to_string())?,
            regex_rules,
            clients: ClientMatchers::compile(&config.rules)?,
            near_limit: config.near_limit,
            family_config: config.families.clone(),
            families: Families::default(),
            claims: config
                .claim_check
                .as_ref()
                .map(|claim| ClaimRules::compile(claim).map(Arc::new))
                .transpose()?,
        })
    }

    /// The same rules with the families among these topics; `None` if they are the same as before. Give no internal
    /// topics.
    pub fn among<'a>(&self, topics: impl IntoIterator<Item = &'a Arc<str>>) -> Option<Self> {
        if !self.looks_for_families() {
            return None;
        }
        let families = self.family_config.among(topics);
        (families != self.families).then(|| Self {
            families,
            ..self.clone()
        })
    }

    /// There may be families: configured ones, or detected ones.
    pub const fn looks_for_families(&self) -> bool {
        self.family_config.detect || !self.family_config.members.is_empty()
    }

    /// The families in force.
    pub const fn families(&self) -> &Families {
        &self.families
    }

    /// There are limits beyond the topics' own: a batch for a topic that nobody can name may not pass.
    pub fn is_governed(&self) -> bool {
        let inherit_only = Limits {
            batch_bytes: Some(BatchLimit::Inherit),
            ..Limits::default()
        };
        !self.rules.is_empty()
            || self.families.enforce()
            || (self.defaults != inherit_only && self.defaults != Limits::default())
    }

    /// Every rule, in its order.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The configuration names families: changes of their topics' configs are looked at.
    pub const fn names_families(&self) -> bool {
        !self.family_config.members.is_empty()
    }

    /// What requests set configs to is looked at.
    pub fn governs_configs(&self) -> bool {
        let governs = |rule: &Rule| rule.topic_config.is_some() || rule.offload.is_some();
        self.names_families() || self.rules.iter().any(governs)
    }

    /// Nothing is refused whatever a rule says.
    pub const fn observes(&self) -> bool {
        matches!(self.mode, Mode::Observe)
    }

    /// When batches are decoded.
    pub const fn decode(&self) -> Decode {
        self.decode
    }

    /// Some rule is for some clients only: who the client is must be known.
    pub const fn asks_for_clients(&self) -> bool {
        self.clients.is_any()
    }

    /// The rules that are for a client, as far as their `clients` say.
    pub fn client_rules(&self, client: Client<'_>) -> ClientRules {
        self.clients.rules_for(client)
    }

    /// The first rule that matches, for a client of which nothing is known.
    pub fn rule_for(&self, topic: &str) -> Option<&Rule> {
        self.rule_for_client(topic, &ClientRules::default())
    }

    /// The first rule that speaks for a topic to a client.
    pub fn rule_for_client(&self, topic: &str, client: &ClientRules) -> Option<&Rule> {
        let matching = self.matching(topic).into_iter();
        matching
            .filter(|rule| self.clients.allows(*rule, client))
            .min()
            .and_then(|index| self.rules.get(index))
    }

    /// The rules whose topics match, whoever they are for, in no order.
    fn matching(&self, topic: &str) -> Vec<usize> {
        let exact = self.exact.get(topic).into_iter().flatten().copied();
        let globs = self.globs.matches(topic);
        let glob = globs
            .iter()
            .filter_map(|at| self.glob_rules.get(*at).copied());
        let regexes = self.regexes.matches(topic);
        let regex = regexes
            .iter()
            .filter_map(|at| self.regex_rules.get(at).copied());
        exact.chain(glob).chain(regex).collect()
    }

    /// The rules that would match a topic for some clients only.
    pub fn rules_for_some_clients(&self, topic: &str) -> impl Iterator<Item = &Rule> {
        let mut of_some: Vec<usize> = self.matching(topic);
        of_some.sort_unstable();
        of_some.dedup();
        let rules = of_some
            .into_iter()
            .filter_map(|index| self.rules.get(index));
        rules.filter(|rule| rule.clients.is_some())
    }

    /// What holds for a topic, its families included, whoever produces to it: rules for some clients only are left out.
    pub fn for_topic(&self, topic: &str) -> TopicPolicy {
        self.for_client(topic, &ClientRules::default())
    }

    /// What holds for a topic and a client, the topic's families included.
    pub fn for_client(&self, topic: &str, client: &ClientRules) -> TopicPolicy {
        let mut policy = self.own_for(topic, client);
        self.allow_for_members(topic, &mut policy);
        // Not inherited by members of a family: who writes dead letters is another producer.
        let rule = self.rule_for_client(topic, client);
        policy.codecs = rule.and_then(CodecRule::of).map(Arc::new);
        policy
    }

    /// What the rules alone say of a topic to a client: the first that matches, and `limits` for what it leaves out.
    pub(super) fn by_rules(&self, topic: &str, client: &ClientRules) -> TopicPolicy {
        let rule = self.rule_for_client(topic, client);
        let action = match rule {
            _ if self.observes() => Action::Observe,
            Some(rule) => rule.action,
            None => Action::Reject,
        };
        let of_rule = rule.map(|rule| &rule.limits);
        let in_force = of_rule.map_or_else(
            || self.defaults.clone(),
            |limits| limits.over(&self.defaults),
        );
        let by_rule: Option<Arc<str>> = rule.map(|rule| rule.name.as_str().into());
        let limit = |gate, value, is_by_rule| Limit {
            gate,
            value,
            source: Source::Rule,
            name: by_rule
                .clone()
                .filter(|_| is_by_rule)
                .or_else(|| Some(LIMITS.into())),
            headroom_bytes: 0,
            member_limit: None,
        };
        let sets = |gate| of_rule.is_some_and(|limits| limits.inside().any(|(set, _)| set == gate));
        let inside = in_force.inside();
        let deep: Vec<Limit> = inside
            .filter_map(|(gate, set)| Some(limit(gate, set.number()?, sets(gate))))
            .collect();
        let batch = match in_force.batch_bytes {
            Some(BatchLimit::Bytes(value)) => {
                let is_by_rule = of_rule.is_some_and(|limits| limits.batch_bytes.is_some());
                Some(limit(Gate::Batch, value, is_by_rule))
            }
            _ => None,
        };
        TopicPolicy {
            action,
            offload: self.offloading(topic, rule),
            redeem: self.redeeming(topic, client),
            error_code: rule.map_or(ErrorCode::Auto, |rule| rule.error_code),
            remedy: rule.and_then(|rule| rule.remedy.as_deref()).map(Arc::from),
            inherits: !matches!(in_force.batch_bytes, Some(BatchLimit::None)),
            batch,
            inside: DeepLimits {
                ratio: in_force.ratio.and_then(InsideLimit::number),
                ..numbers(&deep)
            },
            deep,
            near_limit: self.near_limit,
            members: Vec::new(),
            codecs: None,
        }
    }
}

impl Policy {
    /// What the rule that may offload a topic's values says of it, whoever it is for and in whatever mode; `None`:
    /// no rule does, or the topic is left alone.
    pub fn may_offload(&self, topic: &str) -> Option<&crate::config::Offload> {
        self.offloading_rule(topic)?.offload.as_ref()
    }

    fn offloading_rule(&self, topic: &str) -> Option<&Rule> {
        self.claims
            .as_ref()
            .filter(|claims| !claims.leaves(topic))?;
        let mut matching = self.matching(topic);
        matching.sort_unstable();
        let mut rules = matching.into_iter().filter_map(|at| self.rules.get(at));
        rules.find(|rule| rule.offload.is_some())
    }

    /// The rule whose tickets a topic may hold: it is offloaded itself, a fallback topic, or a retry or dead-letter topic
    /// whose writer may have been given tickets. With how long objects are kept.
    pub fn holds_tickets(&self, topic: &str) -> Option<(&Rule, Duration)> {
        let claims = self.claims.as_ref()?;
        let own = self.offloading_rule(topic);
        let of_fallback = || {
            let is_fallback = claims.is_fallback(topic);
            let mut rules = self.rules.iter().filter(|_| is_fallback);
            rules.find(|rule| rule.offload.is_some())
        };
        let of_family = || {
            let mut mains = self.families().of_member(topic);
            mains.find_map(|family| {
                let rule = self.offloading_rule(&family.main)?;
                let gives_all = rule.offload.as_ref()?.redeem == Redeem::All;
                (!gives_all).then_some(rule)
            })
        };
        let rule = own.or_else(of_fallback).or_else(of_family)?;
        Some((rule, claims.retention))
    }

    fn offloading(&self, topic: &str, rule: Option<&Rule>) -> Option<Offloading> {
        let rule = rule?;
        let offload = rule.offload.as_ref()?;
        let claims = self.claims.as_ref()?;
        (!claims.leaves(topic)).then(|| Offloading {
            above_bytes: offload.above_bytes,
            on_store_failure: offload.on_store_failure,
            rule: rule.name.as_str().into(),
            claims: Arc::clone(claims),
        })
    }

    /// Tickets of some topics are redeemed for somebody: what is fetched must be looked at.
    pub fn redeems(&self) -> bool {
        let is_redeemed = |rule: &Rule| {
            let offload = rule.offload.as_ref();
            offload.is_some_and(|offload| offload.redeem != Redeem::Nobody)
        };
        self.claims.is_some() && self.rules.iter().any(is_redeemed)
    }

    /// The first rule that offloads this topic's values says who gets originals, whichever producers it is for.
    fn redeeming(&self, topic: &str, client: &ClientRules) -> Option<Arc<ClaimRules>> {
        let claims = self
            .claims
            .as_ref()
            .filter(|claims| !claims.leaves(topic))?;
        let offloads = |index: &usize| {
            let rule = self.rules.get(*index);
            rule.is_some_and(|rule| rule.offload.is_some())
        };
        let index = self.matching(topic).into_iter().filter(offloads).min()?;
        let is_for_client = match self.rules.get(index)?.offload.as_ref()?.redeem {
            Redeem::All => true,
            Redeem::Nobody => false,
            Redeem::Clients(_) => self.clients.redeems(index, client),
        };
        is_for_client.then(|| Arc::clone(claims))
    }
}

fn numbers(deep: &[Limit]) -> DeepLimits {
    let of = |gate| {
        deep.iter()
            .find(|limit| limit.gate == gate)
            .map(|limit| limit.value)
    };
    DeepLimits {
        uncompressed_bytes: of(Gate::Uncompressed),
        record_bytes: of(Gate::Record),
        estimate_bytes: of(Gate::Estimate),
        key_bytes: of(Gate::Key),
        value_bytes: of(Gate::Value),
        headers_bytes: of(Gate::Headers),
        ..DeepLimits::NONE
    }
}

impl TopicPolicy {
    /// A size inside the batch that is over its limit.
    pub fn violation(&self, over: &Over) -> Option<Violation> {
        let set = self.deep.iter().find(|limit| limit.gate == over.gate)?;
        let limit = Limit {
            value: over.limit_bytes,
            ..set.clone()
        };
        Some(Violation {
            limit,
            size: over.size,
            record: over.record,
            unreadable: None,
        })
    }

    /// The limits inside a batch of which nothing was offloaded yet: a value above the threshold is over, too.
    pub fn inside_before_offload(&self) -> DeepLimits {
        let Some(offload) = &self.offload else {
            return self.inside;
        };
        let above = offload.above_bytes;
        let value_bytes = self.inside.value_bytes.map_or(above, |set| set.min(above));
        DeepLimits {
            value_bytes: Some(value_bytes),
            ..self.inside
        }
    }

    /// A value above the threshold, where no limit is set for values: no violation in the end, but reason to offload.
    pub fn above_threshold(&self, over: &Over) -> Option<Violation> {
        let offload = self.offload.as_ref();
        let offload = offload.filter(|_| over.gate == Gate::Value)?;
        Some(Violation {
            limit: Limit {
                gate: over.gate,
                value: over.limit_bytes,
                source: Source::Rule,
                name: Some(Arc::clone(&offload.rule)),
                headroom_bytes: 0,
                member_limit: None,
            },
            size: over.size,
            record: over.record,
            unreadable: None,
        })
    }

    /// A batch that a limit inside it needs decoded, and that cannot be.
    pub fn unreadable(&self, why: &'static str) -> Option<Violation> {
        let limit = self.deep.first()?.clone();
        Some(Violation {
            limit,
            size: Size::AtLeast(0),
            record: None,
            unreadable: Some(why),
        })
    }

    /// The limits inside the batch, each with its source.
    pub fn inside_limits(&self) -> &[Limit] {
        &self.deep
    }

    /// All numbers of the configuration, the batch gate's first.
    pub(super) fn configured(&self) -> impl Iterator<Item = &Limit> {
        self.batch.iter().chain(&self.deep)
    }

    /// Takes other numbers, at most one for each gate, and leaves the gate `ratio` alone.
    pub(super) fn set_configured(&mut self, limits: Vec<Limit>) {
        self.batch = None;
        self.deep.retain(|limit| limit.gate == Gate::Ratio);
        for limit in limits {
            match limit.gate {
                Gate::Batch => self.batch = Some(limit),
                Gate::Ratio => {}
                _ => self.deep.push(limit),
            }
        }
        self.deep.sort_by_key(|limit| limit.gate);
        self.inside = DeepLimits {
            ratio: self.inside.ratio,
            ..numbers(&self.deep)
        };
    }

    /// The smallest limit that was learned: the topic's own, or what a member leaves. `of_member` is a member's own,
    /// by its position in [`TopicPolicy::members`].
    pub fn tightest(
        &self,
        own: Option<Learned>,
        of_member: impl Fn(usize) -> Option<u64>,
    ) -> Option<Learned> {
        let left = |(at, bound): (usize, &MemberBound)| {
            Some(Learned {
                value: of_member(at)?.saturating_sub(bound.headroom_bytes),
                source: Source::Family,
                member: Some(at),
            })
        };
        let members = self.members.iter().enumerate().filter_map(left);
        let own = own.filter(|_| self.inherits);
        own.into_iter()
            .chain(members)
            .min_by_key(|learned| learned.value)
    }

    /// Whether a learned number counts at all.
    const fn counts(&self, learned: &Learned) -> bool {
        self.inherits || learned.member.is_some()
    }

    /// The batch gate's limit in force: the smallest number wins and keeps its source.
    pub fn batch_limit(&self, learned: Option<Learned>) -> Option<Limit> {
        let learned = learned
            .filter(|learned| self.counts(learned))
            .map(|learned| {
                let member = learned.member.and_then(|at| self.members.get(at));
                Limit {
                    gate: Gate::Batch,
                    value: learned.value,
                    source: learned.source,
                    name: member.map(|member| Arc::clone(&member.topic)),
                    headroom_bytes: member.map_or(0, |member| member.headroom_bytes),
                    member_limit: None,
                }
            });
        match (&self.batch, learned) {
            (Some(set), Some(learned)) if learned.value < set.value => Some(learned),
            (Some(set), _) => Some(set.clone()),
            (None, learned) => learned,
        }
    }

    /// The number of [`TopicPolicy::batch_limit`] alone: no allocation, for the hot path.
    pub fn batch_limit_bytes(&self, learned: Option<Learned>) -> Option<u64> {
        let learned = learned
            .filter(|learned| self.counts(learned))
            .map(|learned| learned.value);
        let set = self.batch.as_ref().map(|limit| limit.value);
        set.into_iter().chain(learned).min()
    }

    /// The number is the configuration's, not learned: it needs no confirmation.
    pub fn is_configured(&self, limit: &Limit) -> bool {
        match limit.source {
            Source::Rule => true,
            Source::Family => self.configured().any(|set| set == limit),
            Source::Topic | Source::Broker | Source::Segment => false,
        }
    }

    /// The batch gate: strictly more than the limit is a violation, as in the broker.
    pub fn judge_batch(&self, facts: &BatchFacts, learned: Option<Learned>) -> Option<Violation> {
        if self
            .batch_limit_bytes(learned)
            .is_none_or(|limit| facts.wire_bytes <= limit)
        {
            return None;
        }
        let limit = self.batch_limit(learned)?;
        Some(Violation {
            limit,
            size: Size::Exact(facts.wire_bytes),
            record: None,
            unreadable: None,
        })
    }

    /// A size that is within the limit, but above the share of it that counts as near.
    pub fn is_near(&self, size: u64, limit: u64) -> bool {
        is_near(size, limit, self.near_limit)
    }
}
