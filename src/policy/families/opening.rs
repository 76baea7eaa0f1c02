//! Changes of topics' configs that would open a gap in a family: what a main topic takes would not fit a member any
//! more. Pure; the texts say what must be changed first.
//!
//! Invariant: a change that leaves every gap as it was, or makes it smaller, is never held up: what raises members
//! always passes.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use super::gaps;
use crate::families::{Alignment, Family, Member, Membership};
use crate::policy::topic_config::{Fields, key_name, opening, written};
use crate::policy::{Blame, Change, GovernedKey, Learned, Manner, Policy, Refusal, Value};
use crate::text::grouped;
use crate::vocabulary::{Gate, Source};

/// What is in force for a topic's batches, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InForce {
    /// The largest batch that the broker takes.
    pub batch_bytes: Option<u64>,
    /// `segment.bytes` says so, not `max.message.bytes`.
    pub by_segment: bool,
    /// `compression.type`
    pub compression: Option<String>,
}

/// A topic of a request: before and after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The topic.
    pub topic: Arc<str>,
    /// `None`: it comes into being.
    pub before: Option<InForce>,
    /// With the request.
    pub after: InForce,
}

/// A gap that a topic's change would open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The main topic.
    pub main: Arc<str>,
    /// The member that it would no longer fit.
    pub member: Arc<str>,
    /// What opens.
    pub kind: Opening,
}

/// What opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opening {
    /// The member would take less than it needs.
    Size {
        /// What the main topic would take.
        main_bytes: u64,
        /// What the member would take.
        member_bytes: u64,
        /// What it needs: the main topic's, with headroom.
        needed_bytes: u64,
    },
    /// The member would store with another codec than its main topic.
    Codec {
        /// The main topic's.
        main: String,
        /// The member's.
        member: String,
    },
}

/// What a request would do to families.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Steps that are to be refused, by their number, each with what it would open.
    pub refused: BTreeMap<usize, Vec<Opened>>,
    /// Steps that pass and are worth a word.
    pub warned: BTreeMap<usize, Vec<Opened>>,
}

/// Judges the steps of one request together: what one would open another may close. `policy` has the families with all
/// topics that would come into being; `known` is what is in force for every other topic.
pub fn judge(policy: &Policy, steps: &[Step], known: &dyn Fn(&str) -> Option<InForce>) -> Verdict {
    let mut verdict = Verdict::default();
    let mut active: BTreeSet<usize> = (0..steps.len()).collect();
    let topics = steps.iter().enumerate();
    let by_topic: HashMap<&str, usize> = topics.map(|(at, step)| (&*step.topic, at)).collect();
    // Each round takes at least one step away.
    loop {
        let world = World {
            policy,
            steps,
            by_topic: &by_topic,
            active: &active,
            known,
        };
        let (opened, warned) = world.opened();
        if opened.is_empty() {
            verdict.warned = warned;
            return verdict;
        }
        for (at, found) in opened {
            active.remove(&at);
            verdict.refused.insert(at, found);
        }
    }
}

/// The topics as they would be with the steps that are still active.
struct World<'a> {
    policy: &'a Policy,
    steps: &'a [Step],
    by_topic: &'a HashMap<&'a str, usize>,
    active: &'a BTreeSet<usize>,
    known: &'a dyn Fn(&str) -> Option<InForce>,
}

type ByStep = BTreeMap<usize, Vec<Opened>>;

impl World<'_> {
    /// What the active steps open: in families that enforce, and in others.
    fn opened(&self) -> (ByStep, ByStep) {
        let (mut enforced, mut warned) = (ByStep::new(), ByStep::new());
        let families = self.policy.families();
        let mut pairs = BTreeMap::new();
        for at in self.active {
            let Some(step) = self.steps.get(*at) else {
                continue;
            };
            let of_main = families.of_main(&step.topic).into_iter();
            for family in of_main {
                for member in &family.members {
                    pairs.insert((&family.main, &member.topic), (family, member));
                }
            }
            for family in families.of_member(&step.topic) {
                let own = family.members.iter();
                for member in own.filter(|member| member.topic == step.topic) {
                    pairs.insert((&family.main, &member.topic), (family, member));
                }
            }
        }
        for (family, member) in pairs.into_values() {
            let enforces = family.alignment == Alignment::Enforce
                && member.membership == Membership::Configured;
            if let Some((at, opened)) = self.size(family, member) {
                let place = if enforces { &mut enforced } else { &mut warned };
                place.entry(at).or_default().push(opened);
            }
            if let Some((at, opened)) = self.codec(family, member) {
                // A main topic is changed first: its members follow it.
                let is_members = self.step(&member.topic) == Some(at);
                let place = if enforces && is_members {
                    &mut enforced
                } else {
                    &mut warned
                };
                place.entry(at).or_default().push(opened);
            }
        }
        (enforced, warned)
    }

    /// The active step of a topic.
    fn step(&self, topic: &str) -> Option<usize> {
        let at = self.by_topic.get(topic).copied();
        at.filter(|at| self.active.contains(at))
    }

    fn before(&self, topic: &str) -> Option<InForce> {
        let at = self.by_topic.get(topic);
        let step = at.and_then(|at| self.steps.get(*at));
        step.map_or_else(|| (self.known)(topic), |step| step.before.clone())
    }

    fn after(&self, topic: &str) -> Option<InForce> {
        match self.step(topic).and_then(|at| self.steps.get(at)) {
            Some(step) => Some(step.after.clone()),
            None => self.before(topic),
        }
    }

    /// What the member lacks at the batch gate, what the main topic takes and what the member does.
    fn lack(
        &self,
        family: &Family,
        member: &Member,
        in_force: &dyn Fn(&str) -> Option<InForce>,
    ) -> Option<(u64, u64, u64)> {
        let learned = |topic: &str| {
            let bytes = in_force(topic)?.batch_bytes?;
            Some(Learned::own((bytes, Source::Topic)))
        };
        let gaps = gaps(self.policy, &family.main, &member.topic, learned);
        let gap = gaps.into_iter().find(|gap| gap.gate == Gate::Batch)?;
        Some((gap.missing_bytes?, gap.main_bytes?, gap.member_bytes))
    }

    fn size(&self, family: &Family, member: &Member) -> Option<(usize, Opened)> {
        let (missing, main_bytes, member_bytes) =
            self.lack(family, member, &|topic| self.after(topic))?;
        let before = self.lack(family, member, &|topic| self.before(topic));
        let missed = before.map_or(0, |(missing, ..)| missing);
        if missing <= missed {
            return None;
        }
        let at = self.blamed(family, member)?;
        let opened = Opened {
            main: Arc::clone(&family.main),
            member: Arc::clone(&member.topic),
            kind: Opening::Size {
                main_bytes,
                member_bytes,
                needed_bytes: member_bytes.saturating_add(missing),
            },
        };
        Some((at, opened))
    }

    /// The step that opens the gap: the member's where it is created or takes less than before, else the main topic's.
    fn blamed(&self, family: &Family, member: &Member) -> Option<usize> {
        let of_member = self.step(&member.topic);
        let of_main = self.step(&family.main);
        let takes_less = |at: &usize| {
            self.steps.get(*at).is_some_and(|step| {
                let before = step.before.as_ref().and_then(|before| before.batch_bytes);
                step.before.is_none() || step.after.batch_bytes < before
            })
        };
        of_member.filter(takes_less).or(of_main).or(of_member)
    }

    fn codec(&self, family: &Family, member: &Member) -> Option<(usize, Opened)> {
        let words = |in_force: &dyn Fn(&str) -> Option<InForce>| {
            let main = in_force(&family.main)?.compression?;
            let member = in_force(&member.topic)?.compression?;
            Some((main, member))
        };
        let (main, own) = words(&|topic| self.after(topic))?;
        let differed = words(&|topic| self.before(topic)).is_some_and(|(main, own)| main != own);
        if main == own || differed {
            return None;
        }
        let at = self
            .step(&member.topic)
            .or_else(|| self.step(&family.main))?;
        let opened = Opened {
            main: Arc::clone(&family.main),
            member: Arc::clone(&member.topic),
            kind: Opening::Codec { main, member: own },
        };
        Some((at, opened))
    }
}

/// The refusal of a change that would open gaps; `None` where it opens none.
pub fn refusal(
    id: String,
    blame: Blame,
    change: &Change,
    step: &Step,
    opened: &[Opened],
    headroom_bytes: u64,
) -> Option<Refusal> {
    let first = opened.first()?;
    let mut text = opening(blame, change);
    let is_main = first.main == step.topic;
    let other = if is_main { &first.member } else { &first.main };
    let (key, value, limit_bytes) = match &first.kind {
        Opening::Codec { main, member } => {
            codec_sentence(&mut text, first, is_main, main, member);
            let own = if is_main { main } else { member };
            (GovernedKey::CompressionType, Value::Word(own.clone()), None)
        }
        Opening::Size {
            main_bytes,
            member_bytes,
            needed_bytes,
        } => {
            let key = if step.after.by_segment {
                GovernedKey::SegmentBytes
            } else {
                GovernedKey::MaxMessageBytes
            };
            let numbers = (*main_bytes, *member_bytes, *needed_bytes);
            let sentence = Sentence {
                change,
                key: key.label(),
                headroom_bytes,
            };
            if is_main {
                sentence.of_main(&mut text, opened, numbers);
            } else {
                sentence.of_member(&mut text, first, numbers);
            }
            let (value, limit) = if is_main {
                (*main_bytes, member_bytes.saturating_sub(headroom_bytes))
            } else {
                (*member_bytes, *needed_bytes)
            };
            (key, Value::Bytes(value), Some(limit))
        }
    };
    let fields = Fields {
        key: key_name(change, key),
        value: Some(&value),
        limit_bytes,
        source: Source::Family,
        more: format!(
            "{}={other} headroom_bytes={headroom_bytes}",
            if is_main { "member" } else { "main" }
        ),
    };
    Some(written(id, change, text, &fields, Arc::clone(other)))
}

fn codec_sentence(text: &mut String, opened: &Opened, is_main: bool, main: &str, member: &str) {
    let Opened {
        main: main_topic,
        member: member_topic,
        ..
    } = opened;
    let _ = if is_main {
        write!(
            text,
            "compression.type={main} would differ from {member_topic}'s, a member of its family ({member}): the same \
             record may fit one and not the other. Set compression.type={main} on {member_topic} next."
        )
    } else {
        write!(
            text,
            "compression.type={member} would differ from its main topic's ({main_topic}: {main}): the same record may fit \
             one and not the other. First set compression.type={member} on {main_topic}, then this; or set {main} here."
        )
    };
}

struct Sentence<'a> {
    change: &'a Change,
    key: &'static str,
    headroom_bytes: u64,
}

impl Sentence<'_> {
    fn of_main(
        &self,
        text: &mut String,
        opened: &[Opened],
        (main_bytes, member_bytes, _): (u64, u64, u64),
    ) {
        let Self {
            key,
            headroom_bytes,
            ..
        } = self;
        let Some(first) = opened.first() else { return };
        let _ = write!(
            text,
            "with {key}={} it would take what {}, a member of its family, does not: that takes {}, less {} of headroom. \
             First ",
            grouped(main_bytes),
            first.member,
            grouped(member_bytes),
            grouped(*headroom_bytes),
        );
        let sizes = opened.iter().filter_map(|opened| match opened.kind {
            Opening::Size { needed_bytes, .. } => Some((&opened.member, needed_bytes)),
            Opening::Codec { .. } => None,
        });
        for (at, (member, needed)) in sizes.enumerate() {
            let and = if at == 0 { "" } else { ", " };
            let _ = write!(text, "{and}raise {key} of {member} to {needed}");
        }
        text.push_str(", then this topic (afterwards `sizegate align` has nothing left to do).");
    }

    fn of_member(
        &self,
        text: &mut String,
        opened: &Opened,
        (main_bytes, member_bytes, needed): (u64, u64, u64),
    ) {
        let Self {
            change,
            key,
            headroom_bytes,
        } = self;
        let main = &opened.main;
        let _ = write!(
            text,
            "{key}={} is less than its main topic {main} needs of it: {} and {} of headroom.",
            grouped(member_bytes),
            grouped(main_bytes),
            grouped(*headroom_bytes),
        );
        let most = member_bytes.saturating_sub(*headroom_bytes);
        let _ = match change.manner {
            Manner::Create => write!(text, " Create it with {key}={needed}."),
            _ if most == 0 => write!(text, " Set {key} to {needed} at least."),
            _ => write!(
                text,
                " Set {key} to {needed} at least; or first lower max.message.bytes of {main} to {most}, then this."
            ),
        };
    }
}
