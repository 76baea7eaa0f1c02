//! Families while the proxy runs: found again as topics come and go, their misfits told to the log, to Prometheus and
//! to the admin server.
//!
//! Invariant: the families in force are those of the configuration in force.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::off_thread;
use crate::admin::{FamilyView, FixView, GapView, MemberView};
use crate::cluster::Topic;
use crate::families::{Alignment, Family, Member, Membership};
use crate::findings::{MAX_MESSAGE_BYTES, SEGMENT_BYTES};
use crate::policy::families::{Gap, Holder, gaps};
use crate::policy::{Learned, Policy};
use crate::proxy::Shared;
use crate::telemetry::FamilyFit;
use crate::text::grouped;
use crate::vocabulary::{Codec, Gate, Source};

/// New topics come in numbers: so long is waited for the rest.
const SETTLE: Duration = Duration::from_millis(100);
/// How often misfits are looked for when no topic comes or goes.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Log lines of one look; of more misfits only the number is told.
const MOST_LINES: usize = 20;
/// How old the limits of a new member may be.
const FRESH: Duration = Duration::from_secs(1);

/// Follows the topics of the cluster until shutdown. Takes a tenth of a core at most: with very many topics it looks
/// less often.
pub(super) async fn follow(shared: Arc<Shared>, shutdown: CancellationToken) {
    let mut told = Told::default();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = shared.cluster.topics_changed() => tokio::time::sleep(SETTLE).await,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
        let status = shared.cluster.status();
        // Where they may not be read, no more will be known; a cluster that is down is waited for.
        let are_topics_read =
            status.refresh_age.is_some() || (status.is_reached && status.error.is_some());
        let begun = Instant::now();
        off_thread(&shared, Shared::regroup).await;
        let took = begun.elapsed();
        shared.read_members().await;
        let begun = Instant::now();
        told.tell(
            &off_thread(&shared, Shared::misfits)
                .await
                .unwrap_or_default(),
        );
        if are_topics_read {
            shared.is_grouped.store(true, Ordering::Relaxed);
            tokio::time::sleep(took.saturating_add(begun.elapsed()).saturating_mul(9)).await;
        }
    }
}

impl Shared {
    /// Finds the families among the topics that exist now.
    pub(super) fn regroup(&self) {
        if self.policy.load().looks_for_families() {
            let topics = self.topic_names();
            self.policy.rcu(|policy| match policy.among(&topics) {
                Some(policy) => Arc::new(policy),
                None => Arc::clone(policy),
            });
        }
    }

    /// Puts a policy in force, with its families.
    pub(super) fn set_policy(&self, policy: Policy) {
        let topics = if policy.looks_for_families() {
            self.topic_names()
        } else {
            Vec::new()
        };
        let policy = policy.among(&topics).unwrap_or(policy);
        self.policy.store(Arc::new(policy));
    }

    fn topic_names(&self) -> Vec<Arc<str>> {
        let topics = self.cluster.topics();
        let topics = topics.iter().filter(|topic| !topic.is_internal);
        topics.map(|topic| Arc::clone(&topic.name)).collect()
    }

    /// Reads the limits of members that nobody has read yet: their main topics are waiting.
    async fn read_members(&self) {
        let policy = self.policy.load_full();
        let enforced = policy.families().all().iter().flat_map(Family::enforced);
        let unread = enforced.filter_map(|member| {
            let known = self.cluster.topic(&member.topic)?;
            known.limits_age().is_none().then_some(known)
        });
        let unread: Vec<Arc<Topic>> = unread.collect();
        let reading = unread
            .iter()
            .map(|member| self.cluster.read_limits(member, None, FRESH));
        // What cannot be read now, the next refresh reads.
        futures_util::future::join_all(reading).await;
    }

    fn gaps(&self, policy: &Policy, main: &str, member: &str) -> Vec<Gap> {
        let learned = |topic: &str| self.cluster.topic(topic)?.batch_limit().map(Learned::own);
        gaps(policy, main, member, learned)
    }

    /// For `/api/v1/families`.
    pub(super) fn family_views(&self) -> Vec<FamilyView> {
        let policy = self.policy.load();
        let families = policy.families().all().iter();
        let view = |family: &Family| FamilyView {
            main: family.main.to_string(),
            alignment: family.alignment,
            members: family
                .members
                .iter()
                .map(|member| self.member_view(&policy, family, member))
                .collect(),
            absent: family.absent.clone(),
            writer_max_request_size: family.writer_max_bytes,
        };
        families.map(view).collect()
    }

    fn member_view(&self, policy: &Policy, family: &Family, member: &Member) -> MemberView {
        let gaps = self.gaps(policy, &family.main, &member.topic);
        MemberView {
            topic: member.topic.to_string(),
            kind: member.kind,
            membership: member.membership,
            aligned: is_aligned(&gaps),
            gap_bytes: widest(&gaps),
            gates: gaps
                .iter()
                .map(|gap| GapView::new(gap, self.fix(member, gap)))
                .collect(),
            warnings: self.compression_warnings(&family.main, &member.topic),
        }
    }

    /// For Prometheus: the configured members first, as the number of series has a bound.
    pub(super) fn family_fits(&self, most: usize) -> Vec<FamilyFit> {
        let policy = self.policy.load();
        let mut members: Vec<(&Family, &Member)> = pairs(&policy).collect();
        members.sort_by_key(|(_, member)| member.membership);
        let fit = |(family, member): (&Family, &Member)| {
            let gaps = self.gaps(&policy, &family.main, &member.topic);
            Some(FamilyFit {
                main: Arc::clone(&family.main),
                member: Arc::clone(&member.topic),
                is_aligned: is_aligned(&gaps)?,
                gap_bytes: widest(&gaps),
            })
        };
        members.into_iter().filter_map(fit).take(most).collect()
    }

    /// A dead letter that is written without its main topic's compression is larger than the original.
    fn compression_warnings(&self, main: &str, member: &str) -> Vec<String> {
        let stored = |topic: &str| self.cluster.topic(topic)?.learned()?.compression_type;
        let mut warnings = Vec::new();
        if let (Some(of_main), Some(of_member)) = (stored(main), stored(member))
            && of_main != of_member
        {
            warnings.push(format!(
                "its compression.type is {}, its main topic's is {}",
                of_member.label(),
                of_main.label()
            ));
        }
        let [main, member] = [main, member].map(|topic| self.metrics.known_topic(topic));
        if let (Some(main), Some(member)) = (main, member) {
            let came = member.codec(Codec::None).batches.get();
            if let Some(codec) = main.usual_compression().filter(|_| came > 0) {
                warnings.push(format!(
                    "{came} of its batches came uncompressed, and its main topic's come with {codec}"
                ));
            }
        }
        warnings
    }

    /// The change that closes a gap; `None` where there is none, or no number does.
    fn fix(&self, member: &Member, gap: &Gap) -> Option<FixView> {
        let missing = gap.missing_bytes.filter(|missing| *missing > 0)?;
        let (topic, needed) = (&member.topic, gap.member_bytes.saturating_add(missing));
        let in_words = |text: String| FixView {
            text,
            command: None,
        };
        if gap.holder == Holder::Writer {
            return Some(in_words(format!(
                "raise max.request.size to {needed} in the producer that writes {topic}, and \
                 families.members[].writer_max_request_size with it (`none`: it is known to be enough)"
            )));
        }
        let read = self
            .cluster
            .topic(topic)
            .and_then(|known| known.batch_limit());
        let own = read.filter(|(bytes, _)| gap.gate == Gate::Batch && *bytes == gap.member_bytes);
        Some(match own {
            Some((_, source)) => {
                let key = match source {
                    Source::Segment => SEGMENT_BYTES,
                    _ => MAX_MESSAGE_BYTES,
                };
                let is_detected = member.membership == Membership::Detected;
                FixView {
                    text: format!("raise {topic}'s {key} to {needed}"),
                    command: Some(self.commands.align(is_detected)),
                }
            }
            None => in_words(format!(
                "give {topic} a rule with {}: {needed}",
                gap.gate.limit_key()
            )),
        })
    }

    /// The same as the end of a sentence; empty where no number closes the gap.
    fn remedy(&self, member: &Member, gap: &Gap) -> String {
        let Some(FixView { text, command }) = self.fix(member, gap) else {
            return String::new();
        };
        let command = command.map_or_else(String::new, |command| format!(", or `{command}`"));
        format!("; {text}{command}")
    }

    /// Every member that does not fit, with what to say of it: first those that the configuration names, as the log
    /// has a bound.
    fn misfits(&self) -> Vec<Misfit> {
        let policy = self.policy.load();
        let mut misfits = Vec::new();
        for (family, member) in pairs(&policy) {
            let gaps = self.gaps(&policy, &family.main, &member.topic);
            let mut why: Vec<String> = gaps
                .iter()
                .filter(|gap| gap.missing_bytes != Some(0))
                .map(|gap| in_words(gap, &self.remedy(member, gap)))
                .collect();
            why.extend(self.compression_warnings(&family.main, &member.topic));
            if !why.is_empty() {
                misfits.push(Misfit {
                    pair: (Arc::clone(&family.main), Arc::clone(&member.topic)),
                    membership: member.membership,
                    alignment: family.alignment,
                    why,
                });
            }
        }
        misfits.sort_by_key(|misfit| misfit.membership);
        misfits
    }
}

fn pairs(policy: &Policy) -> impl Iterator<Item = (&Family, &Member)> {
    let families = policy.families().all().iter();
    families.flat_map(|family| family.members.iter().map(move |member| (family, member)))
}

/// `None` while the limits at the batch gate are not known and the others fit.
fn is_aligned(gaps: &[Gap]) -> Option<bool> {
    if gaps.iter().any(|gap| gap.missing_bytes != Some(0)) {
        return Some(false);
    }
    gaps.iter()
        .any(|gap| gap.gate == Gate::Batch)
        .then_some(true)
}

fn widest(gaps: &[Gap]) -> Option<u64> {
    gaps.iter().filter_map(|gap| gap.missing_bytes).max()
}

fn in_words(gap: &Gap, remedy: &str) -> String {
    let Gap {
        gate,
        holder,
        main_bytes,
        member_bytes,
        headroom_bytes,
        missing_bytes,
    } = gap;
    match (main_bytes, missing_bytes) {
        (Some(main), Some(missing)) if *holder == Holder::Writer => format!(
            "its writer takes records of {} estimated bytes, its main topic's limits let {} pass: with {} of headroom it \
             lacks {} bytes{remedy}",
            grouped(*member_bytes),
            grouped(*main),
            grouped(*headroom_bytes),
            grouped(*missing)
        ),
        (Some(main), Some(missing)) => format!(
            "its {gate} limit is {}, its main topic's {}: with {} of headroom it lacks {} bytes{remedy}",
            grouped(*member_bytes),
            grouped(*main),
            grouped(*headroom_bytes),
            grouped(*missing)
        ),
        _ => format!(
            "its {gate} limit is {}, and its main topic has none",
            grouped(*member_bytes)
        ),
    }
}

/// A member that does not fit its family.
struct Misfit {
    /// Main topic and member.
    pair: (Arc<str>, Arc<str>),
    membership: Membership,
    alignment: Alignment,
    why: Vec<String>,
}

/// What the log was told already.
#[derive(Default)]
struct Told(HashMap<(Arc<str>, Arc<str>), usize>);

impl Told {
    /// Says each misfit once, and again when more is wrong with it; and when it is over.
    fn tell(&mut self, misfits: &[Misfit]) {
        let before = std::mem::take(&mut self.0);
        self.0 = misfits
            .iter()
            .map(|misfit| (misfit.pair.clone(), misfit.why.len()))
            .collect();
        let is_news = |misfit: &&Misfit| {
            let told = before.get(&misfit.pair);
            told.is_none_or(|told| *told < misfit.why.len())
        };
        let news: Vec<&Misfit> = misfits.iter().filter(is_news).collect();
        for misfit in news.iter().take(MOST_LINES) {
            tracing::warn!(
                main = %misfit.pair.0,
                member = %misfit.pair.1,
                membership = %misfit.membership,
                alignment = %misfit.alignment,
                "what fits the main topic may not fit this member of its family: {}",
                misfit.why.join("; ")
            );
        }
        let is_over = |pair: &&(Arc<str>, Arc<str>)| !self.0.contains_key(*pair);
        let over: Vec<_> = before.keys().filter(is_over).collect();
        for (main, member) in over.iter().take(MOST_LINES) {
            tracing::info!(%main, %member, "nothing keeps this member from its family any more");
        }
        let untold = news.len().max(over.len()).saturating_sub(MOST_LINES);
        if untold > 0 {
            tracing::warn!(
                untold,
                "more members fit or do not fit their families: see /api/v1/families"
            );
        }
    }
}
