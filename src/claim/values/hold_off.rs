//! Who must wait because the store says that something is wrong with more than one object: no such bucket, a key that is
//! not known, no permission below a prefix. One request at a time then tries whether it is mended; all others wait for what
//! it finds.
//!
//! Invariants: a lone object that is denied holds off nobody but its own readers; whatever is held off is tried again within
//! [`LONGEST_PAUSE`](super::LONGEST_PAUSE) and goes on by itself.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::failure::{Class, Failure};
use super::super::patience::random_share;
use super::super::place::{Place, prefix_of};
use super::{FIRST_PAUSE, LONGEST_PAUSE};

/// Different objects of one prefix that are denied one after the other, until the prefix is.
const DENIED: usize = 3;
/// Prefixes that are told apart; of more, some are forgotten, and found again.
const MOST_PREFIXES: usize = 10_000;

/// What a failure says of other objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Every request fails like this one.
    Store,
    /// Those below the same prefix may.
    Prefix,
    /// Nothing.
    Object,
}

fn reach(failure: &Failure) -> Reach {
    match (failure.class, failure.code.as_str()) {
        (
            Class::Config,
            "NoSuchBucket"
            | "ContainerNotFound"
            | "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "AuthenticationFailed"
            | "AuthenticationRequired"
            | "RequestTimeTooSkewed",
        ) => Reach::Store,
        (
            Class::Config,
            "AccessDenied" | "PermissionDenied" | "AuthorizationPermissionMismatch" | "forbidden",
        ) => Reach::Prefix,
        _ => Reach::Object,
    }
}

/// What is known of the store, or of one prefix.
#[derive(Debug, Default)]
struct Gate {
    /// Objects that were denied since the last that was not.
    denied: Vec<Place>,
    /// Since it is closed: why, when it is tried again, and after how long if that is in vain.
    closed: Option<Closed>,
}

#[derive(Debug)]
struct Closed {
    failure: Failure,
    until: Instant,
    pauses: u32,
    /// Somebody is trying.
    is_tried: bool,
}

/// All gates.
#[derive(Debug, Default)]
pub(super) struct HoldOff {
    gates: Mutex<HashMap<String, Gate>>,
    changed: Notify,
}

/// Of the whole store; no prefix is empty.
const STORE: &str = "";

impl HoldOff {
    /// Why a request must wait; `None`: it may be made now, and what came of it is then [told](HoldOff::tell).
    pub(super) fn waits(&self, place: &Place) -> Option<Failure> {
        let mut gates = self.lock();
        for scope in [STORE, prefix(place)] {
            let Some(closed) = gates.get_mut(scope).and_then(|gate| gate.closed.as_mut()) else {
                continue;
            };
            if closed.is_tried || closed.until > Instant::now() {
                return Some(closed.failure.clone());
            }
            closed.is_tried = true;
        }
        None
    }

    /// Until it is worth asking again.
    pub(super) async fn changed(&self, place: &Place) {
        let changed = self.changed.notified();
        let until = {
            let gates = self.lock();
            let closed = [STORE, prefix(place)]
                .into_iter()
                .filter_map(|scope| gates.get(scope)?.closed.as_ref());
            let until = closed
                .filter(|closed| !closed.is_tried)
                .map(|closed| closed.until);
            until.max()
        };
        match until {
            Some(until) => {
                let _ = tokio::time::timeout_at(until, changed).await;
            }
            // Who tries it will tell; in case it was told between the two, not for ever.
            None => {
                let _ = tokio::time::timeout(FIRST_PAUSE, changed).await;
            }
        }
    }

    /// What came of a request.
    pub(super) fn tell(&self, place: &Place, failure: Option<&Failure>) {
        let reach = failure.map_or(Reach::Object, reach);
        let mut gates = self.lock();
        if gates.len() > MOST_PREFIXES {
            gates.retain(|_, gate| gate.closed.is_some());
        }
        let was_closed = match (reach, failure) {
            (Reach::Store, Some(failure)) => {
                if let Some(gate) = gates.get_mut(prefix(place)) {
                    gate.untried();
                }
                gates.entry(STORE.to_owned()).or_default().close(failure);
                false
            }
            (Reach::Prefix, Some(failure)) => {
                let was_closed = open(&mut gates, STORE);
                let gate = gates.entry(prefix(place).to_owned()).or_default();
                gate.deny(place, failure);
                was_closed
            }
            // A store that is slow tells nothing of what it was closed for.
            _ if failure.is_some_and(|failure| failure.class == Class::Transient) => {
                for scope in [STORE, prefix(place)] {
                    if let Some(gate) = gates.get_mut(scope) {
                        gate.untried();
                    }
                }
                false
            }
            _ => {
                let was_closed = open(&mut gates, STORE);
                open(&mut gates, prefix(place)) || was_closed
            }
        };
        drop(gates);
        if was_closed || reach != Reach::Object {
            self.changed.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Gate>> {
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Gate {
    /// One more object is denied.
    fn deny(&mut self, place: &Place, failure: &Failure) {
        if self.closed.is_some() {
            self.close(failure);
            return;
        }
        if !self.denied.contains(place) {
            self.denied.push(place.clone());
        }
        if self.denied.len() >= DENIED {
            self.denied.clear();
            self.close(failure);
        }
    }

    fn close(&mut self, failure: &Failure) {
        let pauses = self.closed.as_ref().map_or(0, |closed| closed.pauses);
        let longest = FIRST_PAUSE
            .saturating_mul(1 << pauses.min(16))
            .min(LONGEST_PAUSE);
        let pause = longest.mul_f64(0.5 + random_share() / 2.0);
        let now = Instant::now();
        self.closed = Some(Closed {
            failure: failure.clone(),
            until: now.checked_add(pause).unwrap_or(now),
            pauses: pauses.saturating_add(1),
            is_tried: false,
        });
    }

    /// Who tried it has learnt nothing of it.
    fn untried(&mut self) {
        if let Some(closed) = &mut self.closed {
            closed.is_tried = false;
        }
    }
}

/// What was closed goes on. Whether it was.
fn open(gates: &mut HashMap<String, Gate>, scope: &str) -> bool {
    let gate = gates.remove(scope);
    gate.is_some_and(|gate| gate.closed.is_some())
}

fn prefix(place: &Place) -> &str {
    prefix_of(place.key())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::super::super::place::{Layout, Namespace};
    use super::super::super::ticket::{Digest, ObjectForm};
    use super::*;

    fn place(topic: &str, n: u8) -> Place {
        let namespace = Namespace::new("s3://b", "c");
        namespace.place(
            topic,
            Layout::Content,
            ObjectForm::Plain,
            &Digest::of(&[n]),
            SystemTime::UNIX_EPOCH,
        )
    }

    fn failure(code: &str) -> Failure {
        Failure::new(Class::Config, code, "x")
    }

    #[tokio::test]
    async fn without_its_bucket_one_request_at_a_time_tries_it() {
        let hold_off = HoldOff::default();
        assert_eq!(hold_off.waits(&place("a", 1)), None);
        hold_off.tell(&place("a", 1), Some(&failure("NoSuchBucket")));
        for topic in ["a", "b"] {
            assert_eq!(
                hold_off.waits(&place(topic, 2)).unwrap().code,
                "NoSuchBucket"
            );
        }
        hold_off.changed(&place("b", 2)).await;
        assert_eq!(hold_off.waits(&place("b", 2)), None);
        assert!(hold_off.waits(&place("a", 1)).is_some(), "one at a time");
        // In vain; then it is mended.
        hold_off.tell(&place("b", 2), Some(&failure("NoSuchBucket")));
        assert!(hold_off.waits(&place("b", 2)).is_some());
        hold_off.changed(&place("b", 2)).await;
        assert_eq!(hold_off.waits(&place("b", 2)), None);
        hold_off.tell(&place("b", 2), None);
        for topic in ["a", "b"] {
            assert_eq!(hold_off.waits(&place(topic, 3)), None);
            assert_eq!(hold_off.waits(&place(topic, 3)), None);
        }
    }

    #[test]
    fn a_lone_object_that_is_denied_holds_off_no_other() {
        let hold_off = HoldOff::default();
        let denied = failure("AccessDenied");
        for _ in 0..10 {
            hold_off.tell(&place("a", 1), Some(&denied));
            assert_eq!(hold_off.waits(&place("a", 2)), None);
        }
        // One that is not, between others that are.
        hold_off.tell(&place("a", 2), Some(&denied));
        hold_off.tell(&place("a", 9), None);
        hold_off.tell(&place("a", 3), Some(&denied));
        hold_off.tell(&place("a", 4), Some(&denied));
        assert_eq!(hold_off.waits(&place("a", 5)), None);
        hold_off.tell(&place("a", 5), Some(&denied));
        assert!(hold_off.waits(&place("a", 6)).is_some());
        assert_eq!(hold_off.waits(&place("b", 6)), None, "another topic");
    }

    #[test]
    fn what_says_nothing_of_others_closes_nothing_and_a_slow_store_opens_nothing() {
        let hold_off = HoldOff::default();
        for code in ["InvalidObjectState", "KMS.DisabledException"] {
            hold_off.tell(&place("a", 1), Some(&failure(code)));
            assert_eq!(hold_off.waits(&place("a", 2)), None, "{code}");
        }
        hold_off.tell(&place("a", 1), Some(&failure("InvalidAccessKeyId")));
        let slow = Failure::new(Class::Transient, "SlowDown", "x");
        hold_off.tell(&place("a", 1), Some(&slow));
        assert!(hold_off.waits(&place("a", 2)).is_some());
    }
}
