//! The last hour's refusals by topic, gate and client, minute by minute: what whoever is woken needs first.
//!
//! Invariant: at most [`GROUPS`] groups of bounded names; beyond it the one that was quiet longest makes room. A refusal
//! costs one short lock and one look-up, as keeping it does.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

use super::refusals::Refused;
use crate::count::Count;
use crate::text::{as_rfc3339, first_chars};
use crate::vocabulary::Gate;

/// Groups that are told apart.
const GROUPS: usize = 500;
/// Minutes that are remembered.
const MINUTES: usize = 60;
/// The last so many are "now".
const NOW_MINUTES: u64 = 10;
/// Kafka's longest topic name, and the most of a client id.
const NAME_CHARS: usize = 249;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Key {
    topic: String,
    gate: Option<Gate>,
    client_id: String,
    refused_by: &'static str,
    is_observed: bool,
}

#[derive(Debug)]
struct Group {
    first_at: SystemTime,
    last_at: SystemTime,
    last_id: String,
    software: String,
    /// By minute since 1970, modulo [`MINUTES`].
    minutes: [u32; MINUTES],
    /// The minute counted last.
    minute: u64,
}

/// One group, as the API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecentGroup {
    /// The topic.
    pub topic: String,
    /// The gate; `None` where the broker did not say.
    pub gate: Option<Gate>,
    /// The client's name for itself.
    pub client_id: String,
    /// The client library, as last seen.
    pub software: String,
    /// `sizegate` or `broker`.
    pub refused_by: &'static str,
    /// Forwarded all the same.
    pub is_observed: bool,
    /// In the last ten minutes.
    pub last_ten_minutes: u64,
    /// In the last hour.
    pub last_hour: u64,
    /// By minute of the last hour, the oldest first; the last is the one that is not over yet.
    pub by_minute: Vec<u32>,
    /// The first since the group was quiet for an hour.
    #[serde(serialize_with = "as_rfc3339")]
    pub first_at: SystemTime,
    /// The last.
    #[serde(serialize_with = "as_rfc3339")]
    pub last_at: SystemTime,
    /// The last one's id, under which `/api/v1/refusals` has it.
    pub last_id: String,
}

/// The last hour.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<HashMap<Key, Group>>);

fn minute_of(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / 60
}

fn place(minute: u64) -> usize {
    usize::try_from(minute.checked_rem(MINUTES as u64).unwrap_or(0)).unwrap_or(0)
}

impl Group {
    fn new(at: SystemTime) -> Self {
        Self {
            first_at: at,
            last_at: at,
            last_id: String::new(),
            software: String::new(),
            minutes: [0; MINUTES],
            minute: minute_of(at),
        }
    }

    /// Forgets what is older than an hour at this minute.
    fn follow(&mut self, minute: u64) {
        let passed = minute.saturating_sub(self.minute).min(MINUTES as u64);
        for back in 0..passed {
            if let Some(count) = self.minutes.get_mut(place(minute.saturating_sub(back))) {
                *count = 0;
            }
        }
        self.minute = self.minute.max(minute);
    }

    /// The oldest first.
    fn by_minute(&self) -> Vec<u32> {
        let ages = (0..MINUTES as u64).rev();
        let of = |age: u64| {
            self.minutes
                .get(place(self.minute.saturating_sub(age)))
                .copied()
        };
        ages.map(|age| of(age).unwrap_or(0)).collect()
    }
}

impl Recent {
    pub(super) fn add(&self, refused: &Refused) {
        let (key, at, id, software) = Key::of(refused);
        let minute = minute_of(at);
        let mut groups = self.lock();
        if !groups.contains_key(&key) && groups.len() >= GROUPS {
            let quietest = groups.iter().min_by_key(|(_, group)| group.last_at);
            if let Some(key) = quietest.map(|(key, _)| key.clone()) {
                groups.remove(&key);
            }
        }
        let group = groups.entry(key).or_insert_with(|| Group::new(at));
        if minute.saturating_sub(minute_of(group.last_at)) >= MINUTES as u64 {
            *group = Group::new(at);
        }
        group.follow(minute);
        if let Some(count) = group.minutes.get_mut(place(minute)) {
            count.increment();
        }
        group.last_at = group.last_at.max(at);
        first_chars(id, NAME_CHARS).clone_into(&mut group.last_id);
        first_chars(software, NAME_CHARS).clone_into(&mut group.software);
    }

    /// Those of the last hour as of `now`: most in the last ten minutes first.
    pub(super) fn groups(&self, now: SystemTime) -> Vec<RecentGroup> {
        let minute = minute_of(now);
        let mut groups = self.lock();
        groups.retain(|_, group| minute.saturating_sub(minute_of(group.last_at)) < MINUTES as u64);
        let mut told: Vec<RecentGroup> = groups
            .iter_mut()
            .map(|(key, group)| {
                group.follow(minute);
                group.told(key)
            })
            .collect();
        drop(groups);
        told.sort_by(|a, b| {
            let by = |group: &RecentGroup| (group.last_ten_minutes, group.last_hour);
            by(b).cmp(&by(a)).then_with(|| a.topic.cmp(&b.topic))
        });
        told
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Group>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Group {
    fn told(&self, key: &Key) -> RecentGroup {
        let by_minute = self.by_minute();
        let sum = |minutes: u64| {
            let skipped = by_minute
                .len()
                .saturating_sub(usize::try_from(minutes).unwrap_or(0));
            let counts = by_minute.iter().skip(skipped);
            counts.fold(0u64, |sum, count| sum.saturating_add(u64::from(*count)))
        };
        RecentGroup {
            topic: key.topic.clone(),
            gate: key.gate,
            client_id: key.client_id.clone(),
            software: self.software.clone(),
            refused_by: key.refused_by,
            is_observed: key.is_observed,
            last_ten_minutes: sum(NOW_MINUTES),
            last_hour: sum(MINUTES as u64),
            first_at: self.first_at,
            last_at: self.last_at,
            last_id: self.last_id.clone(),
            by_minute,
        }
    }
}

impl Key {
    fn of(refused: &Refused) -> (Self, SystemTime, &str, &str) {
        let short = |text: &str| first_chars(text, NAME_CHARS).to_owned();
        match refused {
            Refused::Sizegate(refusal) => (
                Self {
                    topic: short(&refusal.topic),
                    gate: Some(refusal.gate),
                    client_id: short(&refusal.client_id),
                    refused_by: "sizegate",
                    is_observed: refusal.error_code == 0,
                },
                refusal.at,
                &refusal.id,
                &refusal.software,
            ),
            Refused::Broker(refusal) => (
                Self {
                    topic: short(&refusal.topic),
                    gate: refusal.gate,
                    client_id: short(&refusal.client_id),
                    refused_by: "broker",
                    is_observed: false,
                },
                refusal.at,
                &refusal.id,
                &refusal.software,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::telemetry::refusals::{RefusalRecord, example};

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(1_800_000_000 / 60 * 60 + seconds)
    }

    fn add(recent: &Recent, client_id: &str, seconds: u64) {
        recent.add(&Refused::Sizegate(Arc::new(RefusalRecord {
            at: at(seconds),
            id: seconds.to_string(),
            client_id: client_id.into(),
            ..example()
        })));
    }

    #[test]
    fn a_group_counts_by_minute_and_forgets_after_an_hour() {
        let recent = Recent::default();
        for minute in 0..90 {
            for _ in 0..=minute % 3 {
                add(&recent, "checkout", minute * 60 + 5);
            }
        }
        let group = &recent.groups(at(89 * 60 + 30))[0];
        let expected: Vec<u32> = (30..90).map(|minute| minute % 3 + 1).collect();
        assert_eq!(group.by_minute, expected);
        assert_eq!(group.last_hour, 120);
        assert_eq!(
            group.last_ten_minutes,
            u64::from(expected[50..].iter().sum::<u32>())
        );
        assert_eq!((group.first_at, group.last_at), (at(5), at(89 * 60 + 5)));
        assert_eq!(group.last_id, (89 * 60 + 5).to_string());
        // Half an hour later half of it is there, and none is now.
        let group = &recent.groups(at(119 * 60))[0];
        assert_eq!((group.last_ten_minutes, group.last_hour), (0, 60));
        assert!(recent.groups(at(149 * 60)).is_empty());
        // A new one after a quiet hour begins again.
        add(&recent, "checkout", 400 * 60);
        assert_eq!(recent.groups(at(400 * 60))[0].first_at, at(400 * 60));
    }

    #[test]
    fn clients_are_told_apart_the_busiest_first_and_their_number_is_bounded() {
        let recent = Recent::default();
        for _ in 0..3 {
            add(&recent, "busy", 60);
        }
        add(&recent, "quiet", 61);
        let groups = recent.groups(at(62));
        let clients: Vec<_> = groups
            .iter()
            .map(|group| (&*group.client_id, group.last_ten_minutes))
            .collect();
        assert_eq!(clients, [("busy", 3), ("quiet", 1)]);
        for n in 0..5_000 {
            add(
                &recent,
                &format!("{n}-{}", "x".repeat(9_000)),
                100 + n / 100,
            );
        }
        let groups = recent.groups(at(200));
        assert_eq!(groups.len(), GROUPS);
        assert!(
            groups
                .iter()
                .all(|group| group.client_id.chars().count() <= NAME_CHARS)
        );
    }
}
