//! The limits of ours that are in force for a topic, each with every number that it was chosen from.

use serde::Serialize;

use super::checks::SOCKET_REQUEST_MAX_BYTES;
use super::{Facts, Question};
use crate::config::InsideLimit;
use crate::findings::{MAX_MESSAGE_BYTES, SEGMENT_BYTES, Setting, SettingSource, TopicFacts};
use crate::policy::{CodecRule, Learned, Limit, MemberLimit, TopicPolicy};
use crate::text::grouped;
use crate::vocabulary::{Gate, LIMITS, Source, labelled};

labelled! {
    /// What part a number plays for a limit.
    Role {
        /// The smallest: it holds.
        InForce = "in force",
        /// Holds too, and is not the smallest.
        Larger = "larger",
        /// Would hold if nothing stood over it.
        Overridden = "overridden",
        /// `batch_bytes: none`: only the broker compares it.
        BrokerOnly = "broker only",
        /// Set in `limits`, and the rule says `none`.
        Lifted = "lifted",
    }
}

/// A gate of ours with its limit in force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GateLimit {
    /// The gate.
    pub gate: Gate,
    /// Bytes (of the gate `ratio` the ratio); `None`: no limit, or none that is known.
    pub limit_bytes: Option<u64>,
    /// Where it comes from.
    pub source: Option<Source>,
    /// The rule or the family member.
    pub name: Option<String>,
    /// Every number that it was chosen from.
    pub chain: Vec<Candidate>,
}

impl GateLimit {
    /// Where it comes from, in a word or two.
    pub fn source_text(&self) -> String {
        match (&self.source, &self.name) {
            (Some(Source::Broker), _) if self.gate == Gate::Frame => {
                SOCKET_REQUEST_MAX_BYTES.to_owned()
            }
            _ if self.gate == Gate::Frame => "listener.frame_bytes".to_owned(),
            (Some(Source::Rule), Some(name)) if name == LIMITS => LIMITS.to_owned(),
            (Some(source), Some(name)) => format!("{source} {name}"),
            (Some(source), None) => source.label().to_owned(),
            (None, _) => "not known".to_owned(),
        }
    }
}

/// A number that a limit was chosen from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Candidate {
    /// What sets it.
    pub what: String,
    /// Bytes.
    pub bytes: u64,
    /// What part it plays.
    pub role: Role,
}

/// The limits in force: the batch gate's always, the others' where they are set.
pub(super) fn in_force(
    question: &Question,
    ground: &Facts<'_>,
    policy: &TopicPolicy,
) -> Vec<GateLimit> {
    let limit = batch_in_force(ground, policy);
    let mut limits = vec![
        batch(question, ground, policy, limit.as_ref()),
        frame(ground),
    ];
    limits.extend(policy.inside_limits().iter().map(|limit| GateLimit {
        gate: limit.gate,
        limit_bytes: Some(limit.value),
        source: Some(limit.source),
        name: limit.name.as_deref().map(str::to_owned),
        chain: vec![Candidate {
            what: set_by(limit),
            bytes: limit.value,
            role: Role::InForce,
        }],
    }));
    limits.extend(policy.codecs.iter().map(|rule| codec(rule)));
    limits.extend(config(question, ground));
    let lifted = lifted(question, ground);
    let is_left = |limit: &GateLimit| {
        policy
            .inside_limits()
            .iter()
            .all(|set| set.gate != limit.gate)
    };
    limits.extend(lifted.into_iter().filter(is_left));
    limits
}

/// The batch gate's limit.
pub(super) fn batch_in_force(ground: &Facts<'_>, policy: &TopicPolicy) -> Option<Limit> {
    let learned = ground
        .topic
        .and_then(TopicFacts::batch_limit)
        .map(Learned::own);
    let of_member = |at: usize| (ground.batch_limit_of)(&policy.members.get(at)?.topic);
    policy.batch_limit(policy.tightest(learned, of_member))
}

/// The frame gate: the configuration's number, or the smallest that a broker takes.
fn frame(ground: &Facts<'_>) -> GateLimit {
    let own = u64::from(ground.config.listener.frame_bytes);
    let sockets = ground.brokers.iter();
    let socket = sockets
        .filter_map(|broker| broker.socket_request_max_bytes.as_ref())
        .map(Setting::value)
        .min();
    let of_broker = socket.filter(|bytes| *bytes < own);
    let role = |is_smallest| {
        if is_smallest {
            Role::InForce
        } else {
            Role::Larger
        }
    };
    let candidate = |what: &str, bytes, is_smallest| Candidate {
        what: what.to_owned(),
        bytes,
        role: role(is_smallest),
    };
    let mut chain = vec![candidate("listener.frame_bytes", own, of_broker.is_none())];
    chain.extend(of_broker.map(|bytes| candidate(SOCKET_REQUEST_MAX_BYTES, bytes, true)));
    GateLimit {
        gate: Gate::Frame,
        limit_bytes: Some(of_broker.unwrap_or(own)),
        source: Some(match of_broker {
            Some(_) => Source::Broker,
            None => Source::Rule,
        }),
        name: None,
        chain,
    }
}

/// The gate `codec`.
fn codec(rule: &CodecRule) -> GateLimit {
    let limit = rule.limit();
    let name = limit.name.as_deref().unwrap_or_default();
    GateLimit {
        gate: Gate::Codec,
        limit_bytes: Some(limit.value),
        source: Some(limit.source),
        name: Some(name.to_owned()),
        chain: vec![Candidate {
            what: format!("codecs of rule \"{name}\" ({}) above", rule.words()),
            bytes: limit.value,
            role: Role::InForce,
        }],
    }
}

/// The gate `config`: what the topic's own limits may be set to.
fn config(question: &Question, ground: &Facts<'_>) -> Option<GateLimit> {
    let rule = ground.policy.rule_for(&question.topic)?;
    let governed = rule.topic_config.as_ref()?;
    let mut chain = Vec::new();
    for (key, bounds) in [
        ("max_message_bytes", governed.max_message_bytes),
        ("segment_bytes", governed.segment_bytes),
    ] {
        let bounds = bounds.into_iter();
        let both = bounds.flat_map(|bounds| [("min", bounds.min), ("max", bounds.max)]);
        chain.extend(both.filter_map(|(word, bound)| {
            Some(Candidate {
                what: format!("topic_config.{key}.{word} of rule \"{}\"", rule.name),
                bytes: bound?,
                role: Role::InForce,
            })
        }));
    }
    Some(GateLimit {
        gate: Gate::Config,
        limit_bytes: None,
        source: Some(Source::Rule),
        name: Some(rule.name.clone()),
        chain,
    })
}

/// The gates at which `limits` sets a number and the topic's rule says that there is none.
fn lifted(question: &Question, ground: &Facts<'_>) -> Vec<GateLimit> {
    let Some(rule) = ground.policy.rule_for(&question.topic) else {
        return Vec::new();
    };
    let lifts = |gate| {
        rule.limits
            .inside()
            .any(|set| set == (gate, InsideLimit::None))
    };
    let defaults = ground.config.limits.inside();
    let lifted = defaults.filter(|(gate, _)| lifts(*gate));
    lifted
        .filter_map(|(gate, set)| {
            Some(GateLimit {
                gate,
                limit_bytes: None,
                source: Some(Source::Rule),
                name: Some(rule.name.clone()),
                chain: vec![Candidate {
                    what: format!("{} in limits", gate.limit_key()),
                    bytes: set.number()?,
                    role: Role::Lifted,
                }],
            })
        })
        .collect()
}

fn set_by(limit: &Limit) -> String {
    let name = limit.name.as_deref().unwrap_or_default();
    let key = match limit.gate {
        Gate::Ratio => "ratio (times the bytes on the wire, never less than 1,048,576)",
        gate => gate.limit_key(),
    };
    match limit.source {
        Source::Family => match &limit.member_limit {
            Some(MemberLimit::Rule(rule)) if **rule == *LIMITS => {
                format!("{key} in limits for the family's member {name}, less headroom")
            }
            Some(MemberLimit::Rule(rule)) => {
                format!("{key} of rule \"{rule}\" for the family's member {name}, less headroom")
            }
            Some(MemberLimit::Writer) => {
                format!(
                    "max.request.size of the producer that writes the family's member {name}, less headroom"
                )
            }
            None => format!("the family's member {name}, less headroom"),
        },
        _ if name == LIMITS => format!("{key} in limits"),
        _ => format!("{key} of rule \"{name}\""),
    }
}

/// The batch gate: the smallest of the configuration's number, the topic's own, and what its family leaves.
fn batch(
    question: &Question,
    ground: &Facts<'_>,
    policy: &TopicPolicy,
    limit: Option<&Limit>,
) -> GateLimit {
    let in_force = limit.map(|limit| limit.value);
    let mut chain = Vec::new();
    let holds = |bytes: u64| match in_force {
        Some(limit) if bytes <= limit => Role::InForce,
        _ => Role::Larger,
    };
    if let Some(set) = &policy.batch {
        chain.push(Candidate {
            what: set_by(set),
            bytes: set.value,
            role: holds(set.value),
        });
    }
    if let Some(topic) = ground.topic {
        let role = |bytes| {
            if policy.inherits {
                holds(bytes)
            } else {
                Role::BrokerOnly
            }
        };
        for (key, below, setting) in [
            (
                MAX_MESSAGE_BYTES,
                "message.max.bytes",
                &topic.max_message_bytes,
            ),
            (SEGMENT_BYTES, "log.segment.bytes", &topic.segment_bytes),
        ] {
            let steps = setting.iter().flat_map(Setting::steps).enumerate();
            chain.extend(steps.map(|(at, step)| {
                let key = match step.source {
                    SettingSource::Topic => key,
                    _ => below,
                };
                Candidate {
                    what: format!("{key} ({})", step.source.text()),
                    bytes: step.value,
                    role: if at == 0 {
                        role(step.value)
                    } else {
                        Role::Overridden
                    },
                }
            }));
        }
    }
    chain.extend(policy.members.iter().filter_map(|member| {
        let own = (ground.batch_limit_of)(&member.topic)?;
        let bytes = own.saturating_sub(member.headroom_bytes);
        Some(Candidate {
            what: format!(
                "{}, a member of the family of {}: {} less {} of headroom",
                member.topic,
                question.topic,
                grouped(own),
                grouped(member.headroom_bytes)
            ),
            bytes,
            role: holds(bytes),
        })
    }));
    let (source, name) = match limit {
        Some(limit) => (Some(limit.source), limit.name.as_deref()),
        None if policy.inherits => (None, None),
        // `batch_bytes: none`.
        None => {
            let rule = ground.policy.rule_for(&question.topic);
            let rule = rule.filter(|rule| rule.limits.batch_bytes.is_some());
            let name = rule.map_or(LIMITS, |rule| &rule.name);
            (Some(Source::Rule), Some(name))
        }
    };
    GateLimit {
        gate: Gate::Batch,
        limit_bytes: in_force,
        source,
        name: name.map(str::to_owned),
        chain,
    }
}
