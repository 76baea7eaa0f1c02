//! Lowers a main topic's limits to what its family leaves. A dead letter is the original with more headers, so what a main topic takes must fit
//! each member with headroom to spare.
//!
//! Invariant: only members that the configuration names, in families that enforce, move a limit.

use std::sync::Arc;

use super::tickets::Written;
use crate::batch::{BATCH_HEADER_BYTES, estimate, varint_bytes};
use crate::families::{Family, Member};
use crate::policy::clients::ClientRules;
use crate::policy::{Learned, Limit, MemberBound, MemberLimit, Policy, TopicPolicy};
use crate::vocabulary::{Action, Gate, LIMITS, Source, labelled};

/// A record's attributes and its two deltas, each of one byte: the least that a record has beside its content.
const LEAST_OVERHEAD_BYTES: u64 = 3;

labelled! {
    /// Whose number it is that a main topic is compared with.
    Holder {
        /// The member's: its broker's, or a rule's.
        Member = "member",
        /// The `max.request.size` of the producer that writes the member.
        Writer = "writer",
    }
}

/// How a member's own limit compares with its main topic's, at one gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The gate.
    pub gate: Gate,
    /// Whose limit the main topic's is compared with.
    pub holder: Holder,
    /// The main topic's own limit; `None`: it has none. Compared with a writer: the largest estimate that its limits
    /// let pass, uncompressed where only its batches are limited.
    pub main_bytes: Option<u64>,
    /// The member's own, or its writer's.
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
    let mut of_main = limits_of(main);
    if let Written::Tickets { batch_bytes } = policy.written(main, member) {
        for limit in of_main.iter_mut().filter(|limit| limit.gate == Gate::Batch) {
            limit.value = limit.value.min(batch_bytes);
        }
    }
    let gap = |gate: Gate, holder, main_bytes: Option<u64>, member_bytes| {
        let headroom_bytes = if gate.grows() { headroom } else { 0 };
        Gap {
            gate,
            holder,
            main_bytes,
            member_bytes,
            headroom_bytes,
            missing_bytes: main_bytes.map(|main| {
                main.saturating_add(headroom_bytes)
                    .saturating_sub(member_bytes)
            }),
        }
    };
    let of_member = |limit: Limit| {
        let main = of_main.iter().find(|main| main.gate == limit.gate);
        // Something always limits a batch; here it is not known.
        if limit.gate == Gate::Ratio || (limit.gate == Gate::Batch && main.is_none()) {
            return None;
        }
        let main_bytes = main.map(|main| main.value);
        Some(gap(limit.gate, Holder::Member, main_bytes, limit.value))
    };
    let family = policy.families().of_main(main);
    let of_writer = family
        .and_then(|family| family.writer_max_bytes)
        .zip(largest_estimate(&of_main))
        .map(|(writer, main)| gap(Gate::Estimate, Holder::Writer, Some(main), writer));
    let own = limits_of(member).into_iter().filter_map(of_member);
    own.chain(of_writer).collect()
}

/// The largest estimate of one record that limits let pass. A batch limit alone says nothing of what is compressed;
/// then it is that of an uncompressed record.
fn largest_estimate(limits: &[Limit]) -> Option<u64> {
    let of = |limit: &Limit| match limit.gate {
        Gate::Estimate => Some(limit.value),
        Gate::Record => Some(estimate_of(limit.value)),
        Gate::Uncompressed => Some(estimate_of(
            limit.value.saturating_sub(BATCH_HEADER_BYTES as u64),
        )),
        _ => None,
    };
    let batch = limits.iter().find(|limit| limit.gate == Gate::Batch);
    let batch =
        batch.map(|limit| estimate_of(limit.value.saturating_sub(BATCH_HEADER_BYTES as u64)));
    limits.iter().filter_map(of).min().or(batch)
}

/// The largest estimate that a record of this size can have.
fn estimate_of(record_bytes: u64) -> u64 {
    let length_of = |body: u64| varint_bytes(u32::try_from(body).unwrap_or(u32::MAX));
    let fits = |length: &u64| length_of(record_bytes.saturating_sub(*length)) <= *length;
    let length = (1..=5).find(fits).unwrap_or(5);
    let content = record_bytes
        .saturating_sub(length)
        .saturating_sub(LEAST_OVERHEAD_BYTES);
    estimate(content)
}

/// A topic that a record of a main topic goes to next, or after that.
#[derive(Debug, Clone, Copy)]
pub struct Reach<'a> {
    /// The family that it is a member of.
    pub family: &'a Family,
    /// The topic.
    pub member: &'a Member,
    /// What a record may have gathered by then.
    pub headroom_bytes: u64,
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
        let enforced = |family: &Family, member: &Member| family.enforces(member);
        let reached = self.reached(topic, enforced);
        if reached.is_empty() {
            return;
        }
        let mut limits: Vec<Limit> = policy.configured().cloned().collect();
        let mut bounds = Vec::new();
        for Reach {
            family,
            member,
            headroom_bytes,
        } in reached
        {
            let own = self.own(&member.topic);
            // What a member only observes, or offloads, it does not refuse.
            if self.observes() || own.action == Action::Reject {
                for limit in own.configured() {
                    let rule = limit.name.clone().unwrap_or_else(|| LIMITS.into());
                    lower(
                        &mut limits,
                        (limit.gate, limit.value),
                        member,
                        MemberLimit::Rule(rule),
                        headroom_bytes,
                    );
                }
            }
            // Whoever writes it refuses by itself, whatever the topic takes.
            if let Some(bytes) = family.writer_max_bytes {
                let limit = (Gate::Estimate, bytes);
                lower(
                    &mut limits,
                    limit,
                    member,
                    MemberLimit::Writer,
                    headroom_bytes,
                );
            }
            // Whatever is configured for a member, its broker applies the topic's own limit.
            bounds.push(MemberBound {
                topic: Arc::clone(&member.topic),
                headroom_bytes,
            });
        }
        policy.set_configured(limits);
        policy.members = bounds;
    }

    /// Where a record of a main topic may go, each topic with the headroom of so many hops: a member may be the main
    /// topic of another family, and then takes no more than that leaves it. `counts`: which members to follow.
    pub fn reached(&self, main: &str, counts: impl Fn(&Family, &Member) -> bool) -> Vec<Reach<'_>> {
        let mut reached = Vec::new();
        if let Some(family) = self.families().of_main(main) {
            self.reach(family, 1, &mut vec![main], &counts, &mut reached);
        }
        reached
    }

    fn reach<'a: 'p, 'p>(
        &'a self,
        family: &'a Family,
        hops: u64,
        path: &mut Vec<&'p str>,
        counts: &impl Fn(&Family, &Member) -> bool,
        reached: &mut Vec<Reach<'a>>,
    ) {
        let headroom_bytes = self.families().headroom_bytes().saturating_mul(hops);
        for member in &family.members {
            // Families of different entries may form a circle.
            if !counts(family, member) || path.iter().any(|topic| **topic == *member.topic) {
                continue;
            }
            reached.push(Reach {
                family,
                member,
                headroom_bytes,
            });
            if let Some(next) = self.families().of_main(&member.topic) {
                path.push(&next.main);
                let hops = hops.saturating_add(1);
                self.reach(next, hops, path, counts, reached);
                path.pop();
            }
        }
    }
}

/// Lowers the limit at a gate to what a member's own leaves.
fn lower(
    limits: &mut Vec<Limit>,
    (gate, bytes): (Gate, u64),
    member: &Member,
    by: MemberLimit,
    headroom: u64,
) {
    if gate == Gate::Ratio {
        return;
    }
    let headroom = if gate.grows() { headroom } else { 0 };
    let value = bytes.saturating_sub(headroom);
    let known = limits.iter_mut().find(|limit| limit.gate == gate);
    if known.as_ref().is_some_and(|known| known.value <= value) {
        return;
    }
    let lowered = Limit {
        gate,
        value,
        source: Source::Family,
        name: Some(Arc::clone(&member.topic)),
        headroom_bytes: headroom,
        member_limit: Some(by),
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

#[cfg(test)]
mod tests {
    use super::estimate_of;

    /// With a null key and without headers: a value's estimate and its record, by Kafka's own arithmetic.
    #[test]
    fn a_records_largest_estimate_follows_from_its_size() {
        // The largest value under the broker's default: its batch is 1,048,588, its estimate 1,048,603.
        assert_eq!(estimate_of(1_048_588 - 61), 1_048_603);
        // 2,097,078 bytes of value under 2,097,152: the length takes four bytes by then.
        assert_eq!(estimate_of(2_097_152 - 61), 2_097_078 + 88);
        // Null, null, no headers: seven bytes, of which three are content.
        assert_eq!(estimate_of(7), 82 + 3);
    }
}
