//! What families do to limits. A dead letter is the original with more headers, so what a main topic takes must fit
//! each member with headroom to spare.
//!
//! Invariant: only members that the configuration names, in families that enforce, move a limit.

use std::sync::Arc;

use super::Family;
use crate::policy::clients::ClientRules;
use crate::policy::{Action, Gate, Learned, Limit, MemberBound, Policy, Source, TopicPolicy};

/// How a member's own limit compares with its main topic's, at one gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The gate.
    pub gate: Gate,
    /// The main topic's own limit; `None`: it has none.
    pub main_bytes: Option<u64>,
    /// The member's own.
    pub member_bytes: u64,
    /// What the member needs above its main topic at this gate.
    pub headroom_bytes: u64,
    /// What the member's limit lacks; 0: it is large enough. `None`: nothing limits the main topic.
    pub missing_bytes: Option<u64>,
}

/// Compares the own limits of a main topic and of a member, gate by gate; a gate at which nothing limits the member,
/// or where a limit is not known, is left out. `learned`: a topic's own limit at the broker.
pub fn gaps(
    policy: &Policy,
    main: &str,
    member: &str,
    learned: impl Fn(&str) -> Option<Learned>,
) -> Vec<Gap> {
    let headroom = policy.families().headroom_bytes();
    let limits_of = |topic: &str| {
        let mut own = policy.own(topic);
        // Whatever is configured, the broker applies it.
        own.inherits = true;
        let batch = own.batch_limit(learned(topic));
        let deep = own.inside_limits().iter().cloned();
        batch.into_iter().chain(deep).collect::<Vec<_>>()
    };
    let of_main = limits_of(main);
    let gap = |limit: Limit| {
        let main = of_main.iter().find(|main| main.gate == limit.gate);
        // Something always limits a batch; here it is not known.
        if limit.gate == Gate::Ratio || (limit.gate == Gate::Batch && main.is_none()) {
            return None;
        }
        let headroom_bytes = if limit.gate.grows() { headroom } else { 0 };
        let main_bytes = main.map(|main| main.value);
        Some(Gap {
            gate: limit.gate,
            main_bytes,
            member_bytes: limit.value,
            headroom_bytes,
            missing_bytes: main_bytes.map(|main| {
                main.saturating_add(headroom_bytes)
                    .saturating_sub(limit.value)
            }),
        })
    };
    limits_of(member).into_iter().filter_map(gap).collect()
}

impl Policy {
    /// What holds for a topic before its own members are allowed for. A member that no rule of its own names has the
    /// rule limits of its main topic, with headroom; where it serves several, the largest.
    pub fn own(&self, topic: &str) -> TopicPolicy {
        self.own_for(topic, &ClientRules::default())
    }

    /// [`Policy::own`], as it is for a client.
    pub(in crate::policy) fn own_for(&self, topic: &str, client: &ClientRules) -> TopicPolicy {
        self.own_within(topic, client, &mut Vec::new())
    }

    /// `path`: the topics that are being resolved; families of different entries may form a circle.
    fn own_within<'a>(
        &'a self,
        topic: &'a str,
        client: &ClientRules,
        path: &mut Vec<&'a str>,
    ) -> TopicPolicy {
        let by_rules = self.by_rules(topic, client);
        let mains: Vec<&Family> = self
            .families()
            .of_member(topic)
            .filter(|family| family.enforced().any(|member| &*member.topic == topic))
            .collect();
        if mains.is_empty()
            || path.contains(&topic)
            || self.has_rule_of_its_own(topic, client, &mains)
        {
            return by_rules;
        }
        path.push(topic);
        let headroom = self.families().headroom_bytes();
        let widened = mains
            .iter()
            .map(|family| widened(self.own_within(&family.main, client, path), headroom))
            .reduce(larger);
        path.pop();
        widened.unwrap_or(by_rules)
    }

    /// A rule that names the main topic too speaks of records before they gather headers.
    fn has_rule_of_its_own(&self, topic: &str, client: &ClientRules, mains: &[&Family]) -> bool {
        let Some(own) = self.rule_for_client(topic, client) else {
            return false;
        };
        !mains.iter().any(|family| {
            self.rule_for_client(&family.main, client)
                .is_some_and(|rule| rule.name == own.name)
        })
    }

    /// Lowers the limits of a main topic to what its members leave.
    pub(in crate::policy) fn allow_for_members(&self, topic: &str, policy: &mut TopicPolicy) {
        if let Some(family) = self.families().of_main(topic) {
            let mut limits: Vec<Limit> = policy.configured().cloned().collect();
            let mut bounds = Vec::new();
            self.bounds(family, 1, &mut vec![topic], &mut limits, &mut bounds);
            policy.set_configured(limits);
            policy.members = bounds;
        }
    }

    /// A member may be the main topic of another entry's family: it then takes no more than that family leaves it.
    fn bounds<'a>(
        &'a self,
        family: &'a Family,
        hops: u64,
        path: &mut Vec<&'a str>,
        limits: &mut Vec<Limit>,
        bounds: &mut Vec<MemberBound>,
    ) {
        let headroom = self.families().headroom_bytes().saturating_mul(hops);
        for member in family.enforced() {
            let topic = &*member.topic;
            if path.contains(&topic) {
                continue;
            }
            let own = self.own(topic);
            // What a member only observes, or offloads, it does not refuse.
            if self.observes() || own.action == Action::Reject {
                for limit in own.configured() {
                    lower(limits, limit, &member.topic, headroom);
                }
            }
            // Whatever is configured for a member, its broker applies the topic's own limit.
            bounds.push(MemberBound {
                topic: Arc::clone(&member.topic),
                headroom_bytes: headroom,
            });
            if let Some(family) = self.families().of_main(topic) {
                path.push(topic);
                self.bounds(family, hops.saturating_add(1), path, limits, bounds);
                path.pop();
            }
        }
    }
}

/// Lowers the limit at a gate to what a member's own leaves.
fn lower(limits: &mut Vec<Limit>, own: &Limit, member: &Arc<str>, headroom: u64) {
    if own.gate == Gate::Ratio {
        return;
    }
    let headroom = if own.gate.grows() { headroom } else { 0 };
    let value = own.value.saturating_sub(headroom);
    let known = limits.iter_mut().find(|limit| limit.gate == own.gate);
    if known.as_ref().is_some_and(|known| known.value <= value) {
        return;
    }
    let lowered = Limit {
        gate: own.gate,
        value,
        source: Source::Family,
        name: Some(Arc::clone(member)),
        headroom_bytes: headroom,
    };
    match known {
        Some(known) => *known = lowered,
        None => limits.push(lowered),
    }
}

/// The limits of a main topic for what has gathered headers.
fn widened(mut main: TopicPolicy, headroom: u64) -> TopicPolicy {
    let widen = |limit: &Limit| {
        let headroom = if limit.gate.grows() { headroom } else { 0 };
        Limit {
            value: limit.value.saturating_add(headroom),
            headroom_bytes: limit.headroom_bytes.saturating_add(headroom),
            ..limit.clone()
        }
    };
    let limits = main.configured().map(widen).collect();
    main.set_configured(limits);
    main
}

/// Of two, what allows more at each gate; else as the first.
fn larger(mut first: TopicPolicy, second: TopicPolicy) -> TopicPolicy {
    let larger = |limit: &Limit| {
        let other = second.configured().find(|other| other.gate == limit.gate)?;
        Some(
            if other.value > limit.value {
                other
            } else {
                limit
            }
            .clone(),
        )
    };
    let limits = first.configured().filter_map(larger).collect();
    first.set_configured(limits);
    first.inherits |= second.inherits;
    first
}
