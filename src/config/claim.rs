//! The claim check's section and a rule's `offload`, as they are in force.

use std::fmt;
use std::time::Duration;

use super::Clients;
use crate::claim::{Key, KeyError, Keys, Layout, Store, StoreError, StoreUri};
use crate::vocabulary::labelled;

/// The most that [`ClaimCheck::renew_after`] is.
const RENEW_AFTER: Duration = Duration::from_secs(86_400);

/// Where values go that are offloaded, and what becomes of tickets that cannot be redeemed.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimCheck {
    /// The object store.
    pub store: StoreUri,
    /// The store's own keys.
    pub store_options: Vec<StoreOption>,
    /// What signs tickets; the first signs, all are accepted. One at least.
    pub keys: Vec<ClaimKey>,
    /// How objects are named.
    pub layout: Layout,
    /// How long an object is kept at least.
    pub retention: Duration,
    /// How long a missing object may still turn up.
    pub grace: Duration,
    /// Where a record goes whose ticket cannot be redeemed.
    pub fallback: Fallback,
}

impl ClaimCheck {
    /// Opens the store; sends nothing yet.
    ///
    /// # Errors
    /// It cannot be one.
    pub fn open_store(&self) -> Result<Store, StoreError> {
        let options: Vec<(String, String)> = self
            .store_options
            .iter()
            .map(|option| (option.key.clone(), option.value.clone()))
            .collect();
        Store::open(&self.store, &options)
    }

    /// What signs tickets.
    ///
    /// # Errors
    /// There is no key, or one cannot sign.
    pub fn signing_keys(&self) -> Result<Keys, KeyError> {
        let keys: Result<Vec<Key>, _> = self
            .keys
            .iter()
            .map(|key| Key::new(&key.id, key.secret.as_bytes()))
            .collect();
        keys.and_then(Keys::new)
    }

    /// The oldest object that a new ticket is given for; an older one is written again. A day, which a sound retention
    /// leaves over ([`Need`](crate::claim::Need)), as it does for the layout by days.
    pub fn renew_after(&self) -> Duration {
        RENEW_AFTER.min(self.retention.checked_div(2).unwrap_or_default())
    }

    /// The fallback topic of a topic.
    pub fn fallback_of(&self, topic: &str) -> String {
        self.fallback.topic.replace("{topic}", topic)
    }
}

/// One of the store's own keys. Its value may be a secret and is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreOption {
    /// As the store names it.
    pub key: String,
    /// Its value, read from its file where it was given as one.
    pub value: String,
}

impl fmt::Debug for StoreOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreOption")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// A key that signs tickets. Its secret is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct ClaimKey {
    /// Its name in tickets.
    pub id: String,
    /// 32 bytes at least.
    pub secret: String,
}

impl fmt::Debug for ClaimKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Where a record goes whose ticket cannot be redeemed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fallback {
    /// A topic's name; `{topic}` stands for the record's own.
    pub topic: String,
    /// When its object is missing.
    pub on_missing: Unredeemed,
    /// When its object is not what the ticket says.
    pub on_corrupt: Unredeemed,
}

labelled! {
    /// What becomes of a ticket that cannot be redeemed.
    Unredeemed {
        /// It goes to the fallback topic, and consumers go on.
        Fallback = "fallback",
        /// Its partition waits.
        Hold = "hold",
        /// The ticket goes out, with a header that says why.
        Pass = "pass",
    }
}

labelled! {
    /// What becomes of a batch that cannot be offloaded because the store is down.
    StoreFailure {
        /// Refused with an error that clients send again for.
        Refuse = "refuse",
        /// It goes as it is, if it fits.
        InlineIfFits = "inline_if_fits",
    }
}

/// What a rule with `action: offload` does.
#[derive(Debug, Clone, PartialEq)]
pub struct Offload {
    /// Values larger than this go to the store.
    pub above_bytes: u64,
    /// When the store is down.
    pub on_store_failure: StoreFailure,
    /// Who gets originals.
    pub redeem: Redeem,
}

/// Who gets originals instead of tickets.
#[derive(Debug, Clone, PartialEq)]
pub enum Redeem {
    /// Every consumer.
    All,
    /// None: consumers get tickets.
    Nobody,
    /// These consumers.
    Clients(Clients),
}
