//! Tells what to do, always in the same order, the cheapest and likeliest first: whose words the client shows, the
//! topic's limits, the broker's default, compression, and the topics that the record goes to next.

mod families;

use serde::Serialize;

use self::families::{Fit, joined};
use super::checks::{Check, Outcome, Party, SOCKET_REQUEST_MAX_BYTES};
use super::clients::{BUFFER_MEMORY, Fate, own_words, words};
use super::limits::{GateLimit, Role};
use super::text::{fewer_records, is_of_many};
use super::{EstimatedRecord, Facts, Question};
use crate::findings::{
    Commands, MAX_DECOMPRESSED_MESSAGE_BYTES, MAX_MESSAGE_BYTES, SEGMENT_BYTES, side_kind,
};
use crate::policy::{Library, Limit, TopicPolicy, setting_for};
use crate::text::grouped;
use crate::vocabulary::{ErrorCode, Gate, Source, labelled};

labelled! {
    /// What a step asks for.
    State {
        /// Change this.
        Change = "change",
        /// Nothing to do here.
        Fine = "fine",
        /// Look: it depends.
        Look = "look",
    }
}

/// One step of the triage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Which step.
    pub step: &'static str,
    /// What it asks for.
    pub state: State,
    /// What to do, or why there is nothing to do.
    pub text: String,
    /// The command, where there is one.
    pub command: Option<String>,
}

struct Triage<'a> {
    question: &'a Question,
    ground: &'a Facts<'a>,
    policy: &'a TopicPolicy,
    limits: &'a [GateLimit],
    record: &'a EstimatedRecord,
    checks: &'a [Check],
    commands: Commands,
    /// The batch limit in force, where a member of the family keeps it down.
    family_batch: Option<Limit>,
}

/// The five steps, in order.
pub(super) fn steps(
    question: &Question,
    ground: &Facts<'_>,
    policy: &TopicPolicy,
    limits: &[GateLimit],
    record: &EstimatedRecord,
    checks: &[Check],
) -> Vec<Advice> {
    let triage = Triage {
        question,
        ground,
        policy,
        limits,
        record,
        checks,
        commands: Commands::new(ground.config),
        family_batch: super::limits::batch_in_force(ground, policy)
            .filter(|limit| limit.source == Source::Family),
    };
    vec![
        triage.client(),
        triage.topic(),
        triage.broker(),
        triage.compression(),
        triage.side_topics(),
    ]
}

fn advice(
    step: &'static str,
    state: State,
    text: impl Into<String>,
    command: Option<String>,
) -> Advice {
    Advice {
        step,
        state,
        text: text.into(),
        command,
    }
}

impl Triage<'_> {
    fn refusals(&self, by: Party) -> impl Iterator<Item = &Check> {
        self.checks
            .iter()
            .filter(move |check| check.by == by && check.outcome == Outcome::Refuses)
    }

    /// Whose words they are.
    fn client(&self) -> Advice {
        const STEP: &str = "the client's error message";
        let library = self.question.library();
        if let Some(check) = self.refusals(Party::Client).next() {
            return self.own_refusal(STEP, library, check);
        }
        let enough = self.own_limit_is_enough(library);
        let text = if let Some(check) = self.refusals(Party::Sizegate).next() {
            let fate = match self.policy.error_code {
                _ if check.what == "gate frame" => Fate::TooLarge,
                ErrorCode::Auto | ErrorCode::MessageTooLarge => Fate::TooLarge,
                ErrorCode::PolicyViolation => Fate::Policy,
                ErrorCode::InvalidRecord => Fate::Invalid,
            };
            let shown = if library.shows_texts() {
                format!(
                    "“sizegate refused {}-…” are sizegate's words ({}); a client that shows no error message shows code {}.",
                    self.question.topic,
                    check.what,
                    fate.code().unwrap_or_default()
                )
            } else {
                format!(
                    "{library} shows no error message of a response: “{}” is all its user reads of sizegate's refusal ({}). The \
                     whole text is in sizegate's log and at /api/v1/refusals.",
                    words(library, fate),
                    check.what
                )
            };
            format!("{shown} {enough}")
        } else if let Some(check) = self.refusals(Party::Broker).next() {
            let fate = match &*check.what {
                SOCKET_REQUEST_MAX_BYTES => Fate::Closed,
                SEGMENT_BYTES => Fate::AboveSegment,
                MAX_DECOMPRESSED_MESSAGE_BYTES => Fate::Invalid,
                _ => Fate::TooLarge,
            };
            let shown = match fate {
                Fate::Closed => format!(
                    "“{}” is all that {library} shows of a connection that the broker closes: it sends the request again \
                     until its time is up. Nothing speaks of a size.",
                    words(library, fate)
                ),
                _ if library.shows_texts() => format!(
                    "“{}” are the broker's words (code {}), or “sizegate let … pass, the broker refused it” with \
                     sizegate's ({}).",
                    words(library, fate),
                    fate.code().unwrap_or_default(),
                    check.what
                ),
                _ => format!(
                    "“{}” are {library}'s words for the broker's code {}; sizegate's log says “sizegate let … pass, the \
                     broker refused it” ({}).",
                    words(library, fate),
                    fate.code().unwrap_or_default(),
                    check.what
                ),
            };
            format!("{shown} {enough}")
        } else {
            self.nobody_refuses(library)
        };
        let state = if self
            .checks
            .iter()
            .any(|check| check.outcome == Outcome::Refuses)
        {
            State::Fine
        } else {
            State::Look
        };
        advice(STEP, state, text, None)
    }

    /// The producer refuses by itself: its words, and its setting.
    fn own_refusal(&self, step: &'static str, library: Library, check: &Check) -> Advice {
        let (size, limit) = (check.size_bytes, check.limit_bytes.unwrap_or_default());
        let settings = self.refusals(Party::Client);
        let settings = settings.map(|check| format!("{}={}", check.what, check.size_bytes));
        let command = settings.collect::<Vec<_>>().join("\n");
        if check.what == BUFFER_MEMORY {
            let text = format!(
                "“The message is {size} bytes when serialized which is larger than the total memory buffer you have \
                 configured with the buffer.memory configuration.” are the producer's own words: nothing was sent. Set \
                 {BUFFER_MEMORY} to {} or more in this producer, and give its process the memory.",
                grouped(size)
            );
            return advice(step, State::Change, text, Some(command));
        }
        let others = match library {
            Library::Java => {
                " (librdkafka: message.max.bytes; sarama: Producer.MaxMessageBytes; franz-go: ProducerBatchMaxBytes)"
            }
            _ => "",
        };
        let framework = self.question.framework();
        let place =
            framework.map(|framework| format!(" {}.", framework.place_of(check.what.as_str())));
        let place = place.unwrap_or_default();
        let memory = self.refusals(Party::Client).nth(1).map_or(
            "",
            |_| " Its buffer.memory, which is compared next, is too small as well.",
        );
        let text = format!(
            "“{}” are the producer's own words: nothing was sent, and neither sizegate nor the broker knows of it. Set {} to \
             {} or more in this producer{others}.{place}{memory} A dead-letter or Streams producer has a setting of its own.",
            own_words(library, self.record, limit),
            check.what,
            grouped(size)
        );
        advice(step, State::Change, text, Some(command))
    }

    fn own_limit_is_enough(&self, library: Library) -> String {
        let own = self.checks.iter().find(|check| check.by == Party::Client);
        match own.and_then(|check| Some((&check.what, check.limit_bytes?))) {
            Some((setting, limit)) => format!(
                "The client's own {setting} ({}) is large enough: raising it changes nothing.",
                grouped(limit)
            ),
            None => format!("{library} has no limit of its own."),
        }
    }

    fn nobody_refuses(&self, library: Library) -> String {
        let own = self.checks.iter().find(|check| check.by == Party::Client);
        let Some((setting, limit)) = own.and_then(|check| Some((&check.what, check.limit_bytes?)))
        else {
            return format!(
                "Nobody on the way refuses these sizes for sure, and {library} has no limit of its own."
            );
        };
        let others = match self.question.client {
            None => " Other clients compare by arithmetic of their own: name yours with --client.",
            Some(_) => "",
        };
        format!(
            "Nobody on the way refuses these sizes for sure. If an error message names {setting}, that producer's is smaller than {}: \
             it refused by itself, and nothing reached sizegate or the broker. Ask again with --max-request-size and its \
             value.{others}",
            grouped(limit)
        )
    }

    /// The topic's own settings, and the rule that speaks for it.
    fn topic(&self) -> Advice {
        const STEP: &str = "the topic's limits";
        let topic = &self.question.topic;
        if let Some(text) = self.of_many() {
            return advice(STEP, State::Look, text, None);
        }
        if let Some(text) = self.rules_part() {
            return text;
        }
        let mut configs = Vec::new();
        for check in self.refusals(Party::Broker) {
            match &*check.what {
                SEGMENT_BYTES => configs.push((SEGMENT_BYTES, check.size_bytes)),
                MAX_DECOMPRESSED_MESSAGE_BYTES => {
                    configs.push((MAX_DECOMPRESSED_MESSAGE_BYTES, check.size_bytes));
                }
                SOCKET_REQUEST_MAX_BYTES => {}
                _ => {
                    configs.retain(|(key, _)| *key != MAX_MESSAGE_BYTES);
                    configs.push((MAX_MESSAGE_BYTES, check.size_bytes));
                }
            }
        }
        if configs.is_empty() {
            let unknown = self
                .checks
                .iter()
                .any(|check| check.outcome == Outcome::Unknown);
            let (state, text) = if unknown {
                (
                    State::Look,
                    format!("The limits of {topic} at the broker are not known here."),
                )
            } else {
                (
                    State::Fine,
                    format!("{topic} takes a record of these sizes."),
                )
            };
            return advice(STEP, state, text, None);
        }
        let wants: Vec<String> = configs
            .iter()
            .map(|(key, bytes)| format!("{key} of at least {}", grouped(*bytes)))
            .collect();
        let text = format!(
            "{topic} needs {}. It acts at once, without a restart.",
            wants.join(" and ")
        );
        advice(
            STEP,
            State::Change,
            text,
            Some(self.commands.set_topic(topic, &configs)),
        )
    }

    /// The batch is too large and no record is: the producer mends that, not the topic.
    fn of_many(&self) -> Option<String> {
        let first = self
            .checks
            .iter()
            .find(|check| check.outcome == Outcome::Refuses)?;
        is_of_many(self.record, first).then(|| {
            let needed = self
                .checks
                .iter()
                .filter(|check| check.outcome == Outcome::Refuses && check.by != Party::Client)
                .map(|check| check.size_bytes)
                .max()
                .unwrap_or(first.size_bytes);
            format!(
                "No record is too large ({} bytes each), so the producer is what to change: {}. (To take batches of {} as they \
                 are, {} would have to allow {}.)",
                grouped(self.record.record_bytes),
                fewer_records(self.question),
                grouped(self.record.records.into()),
                first.what,
                grouped(needed)
            )
        })
    }

    /// A refusal by a number of the configuration: no setting of the broker mends it.
    fn rules_part(&self) -> Option<Advice> {
        const STEP: &str = "the topic's limits";
        let over = self.limits.iter().filter(|limit| {
            let check = self.checks.iter().find(|check| {
                check.by == Party::Sizegate && check.what == format!("gate {}", limit.gate)
            });
            check.is_some_and(|check| {
                matches!(
                    check.outcome,
                    Outcome::Refuses | Outcome::Observes | Outcome::Offloads
                )
            })
        });
        let set = over
            .filter(|limit| matches!(limit.source, Some(Source::Rule | Source::Family)))
            .collect::<Vec<_>>();
        let first = set.first()?;
        let what: Vec<String> = set
            .iter()
            .flat_map(|limit| limit.chain.iter().filter(|part| part.role == Role::InForce))
            .map(|part| format!("{} ({})", part.what, grouped(part.bytes)))
            .collect();
        let mut text = format!("The limit is sizegate's: {}.", what.join("; "));
        let mut command = None;
        if first.source == Some(Source::Family) {
            let kept = set
                .iter()
                .filter(|limit| limit.source == Some(Source::Family));
            for limit in kept.filter_map(|gate| self.in_force(gate.gate)) {
                let (part, align) = self.kept_for(limit);
                text.push_str(&part);
                command = command.or(align);
            }
        } else if first.gate == Gate::Frame {
            text.push_str(" Raise it there, up to the brokers' socket.request.max.bytes, and restart sizegate.");
        } else if self.policy.remedy.is_none() {
            match &self.policy.codecs {
                Some(rule) if first.gate == Gate::Codec => {
                    let setting = setting_for("", rule.proposed());
                    text.push_str(&format!(" Set {setting} in the producer."));
                }
                _ => text
                    .push_str(" Send less in one record, or ask those who keep the rule for more."),
            }
        }
        // Last: whether it ends with a full stop is its author's choice.
        if let Some(remedy) = &self.policy.remedy {
            text.push_str(" Its remedy: ");
            text.push_str(remedy);
        }
        Some(advice(STEP, State::Change, text, command))
    }

    fn broker(&self) -> Advice {
        const STEP: &str = "the broker's default";
        if let Some(socket) = self
            .refusals(Party::Broker)
            .find(|check| check.what == SOCKET_REQUEST_MAX_BYTES)
        {
            let text = format!(
                "A request of this size needs socket.request.max.bytes of {} or more in server.properties of each broker, \
                 and a restart: without it the connection is closed, and the client retries for minutes without a word of \
                 size.",
                grouped(socket.size_bytes.saturating_add(1024))
            );
            return advice(STEP, State::Change, text, None);
        }
        let setting = self
            .ground
            .topic
            .and_then(|topic| topic.max_message_bytes.as_ref());
        let (state, text) = match setting {
            None => (State::Look, "It is not known here.".to_owned()),
            Some(setting) if setting.is_override() => (
                State::Fine,
                format!(
                    "message.max.bytes does not count here: the topic's own {MAX_MESSAGE_BYTES} stands over it, larger or \
                     smaller."
                ),
            ),
            Some(setting) => (
                State::Fine,
                format!(
                    "The topic inherits {} ({}). It is every topic's default: leave it, and give this topic a value of its \
                     own where it needs one.",
                    grouped(setting.value()),
                    setting.source().text()
                ),
            ),
        };
        advice(STEP, state, text, None)
    }

    fn compression(&self) -> Advice {
        const STEP: &str = "compression";
        let record = self.record;
        let refusing: Vec<&Check> = self
            .checks
            .iter()
            .filter(|check| check.outcome == Outcome::Refuses)
            .collect();
        let by_wire = refusing.iter().filter(|check| {
            check.by == Party::Sizegate && check.what == "gate batch"
                || check.by == Party::Broker
                    && matches!(&*check.what, MAX_MESSAGE_BYTES | SEGMENT_BYTES)
        });
        let smallest = by_wire.filter_map(|check| check.limit_bytes).min();
        let others = refusing.iter().any(|check| {
            check.what.ends_with("as stored")
                || check.what == MAX_DECOMPRESSED_MESSAGE_BYTES
                || check.by == Party::Sizegate
                    && !matches!(&*check.what, "gate batch" | "gate frame" | "gate ratio")
        });
        let (state, text) = match smallest {
            _ if others => (
                State::Fine,
                "It does not help: a limit that this record breaks is compared with sizes before compression.".to_owned(),
            ),
            None if self.refusals(Party::Client).next().is_some() => (
                State::Fine,
                format!(
                    "It does not help: {} is compared before compression. (After it, sizes that travel are compared.)",
                    self.refusals(Party::Client).next().map_or("its limit", |check| &check.what)
                ),
            ),
            None => (State::Fine, "Nothing to gain: the batch fits as it is.".to_owned()),
            Some(limit) if record.is_compressed => (
                State::Fine,
                format!(
                    "Compressed, it is still above: {} of {} bytes ({:.1} : 1), and {} are allowed.",
                    grouped(record.batch_bytes),
                    grouped(record.uncompressed_bytes),
                    record.uncompressed_bytes as f64 / record.batch_bytes.max(1) as f64,
                    grouped(limit)
                ),
            ),
            Some(limit) => (
                State::Look,
                format!(
                    "Not compressed. With compression.type set in the producer it passes from a ratio of {:.1} : 1 on: text \
                     and JSON reach 3 to 10, images and random bytes nothing. If you believe it is compressed: the \
                     setting does not reach this producer, or it did not gain by it: librdkafka, kafka-python and \
                     franz-go then send it uncompressed.",
                    record.uncompressed_bytes as f64 / limit.max(1) as f64
                ),
            ),
        };
        advice(STEP, state, text, None)
    }

    /// Where the record goes next: retry, dead letter, changelog.
    fn side_topics(&self) -> Advice {
        const STEP: &str = "side topics";
        let families = self.ground.policy.families();
        let topic = &self.question.topic;
        if families.of_main(topic).is_none() {
            let of: Vec<String> = families
                .of_member(topic)
                .map(|family| family.main.to_string())
                .collect();
            if !of.is_empty() {
                let text = format!(
                    "{topic} is a retry or dead-letter topic of {}: what arrives here is the original with more headers, \
                     written by another producer with a max.request.size and a compression of its own.",
                    of.join(", ")
                );
                return advice(STEP, State::Look, text, None);
            }
            let text = match side_kind(topic, false) {
                Some(side) => format!(
                    "{topic} is one of {} topics: whoever writes it cannot leave a record out.",
                    side.label()
                ),
                None => format!(
                    "No retry or dead-letter topic of {topic} is known. If there is one, it needs this record's size and \
                     room for more headers."
                ),
            };
            return advice(STEP, State::Look, text, None);
        }
        let headroom = families.headroom_bytes();
        let reached = self.ground.policy.reached(topic, |_, _| true);
        let fits: Vec<Fit> = reached.iter().map(|reach| self.fit(reach)).collect();
        let small = joined(fits.iter().filter_map(|fit| fit.is_small.clone()));
        let by_rule = joined(fits.iter().filter_map(|fit| fit.by_rule.clone()));
        let depends = joined(fits.iter().filter_map(|fit| fit.depends.clone()));
        let text = [
            small.map(|small| {
                format!(
                    "Its dead letter, {} bytes with headroom, would not fit {small}: a failed record is then redelivered \
                     without end.",
                    grouped(self.record.batch_bytes.saturating_add(headroom))
                )
            }),
            by_rule,
            depends,
        ];
        let is_change = text.iter().take(2).any(Option::is_some);
        let text: Vec<String> = text.into_iter().flatten().collect();
        if text.is_empty() {
            let text = format!(
                "Its retry and dead-letter topics take it too, with {} bytes of headers.",
                grouped(headroom)
            );
            return advice(STEP, State::Fine, text, None);
        }
        let is_small = |fit: &&Fit| fit.is_small.is_some();
        let command = fits.iter().any(|fit| is_small(&fit)).then(|| {
            self.commands
                .align(fits.iter().filter(is_small).any(|fit| fit.is_detected))
        });
        let state = if is_change {
            State::Change
        } else {
            State::Look
        };
        advice(STEP, state, text.join(" "), command)
    }
}
