//! Watches what consumers do in their groups, as far as it tells a rebalance from a return, and one group's restart
//! from another's start. Groups are coordinated over another connection than the one that fetches.
//!
//! Invariant: constant memory and no lock. Consumers that share a slot only hide a return from each other.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::{Consumer, Group};

/// Slots: joins are rare, and one counts only between two servings of the same batch.
const SLOTS: usize = 32_768;

/// How often a consumer joined its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Joins {
    /// As the member it was.
    pub rebalances: u32,
    /// As nobody.
    pub starts: u32,
}

/// The groups of all consumers.
pub struct Groups {
    slots: Box<[Slot]>,
}

#[derive(Default)]
struct Slot {
    /// Joined again without having left: a rebalance.
    rebalances: AtomicU32,
    /// Joined as nobody: it has just begun, or was thrown out.
    starts: AtomicU32,
    /// The group last seen; 0: none.
    group: AtomicU32,
    /// It joined as nobody, and will join once more with the id that it is given (KIP-394).
    is_new: AtomicBool,
    /// A member of the newer protocol (KIP-848) and its epoch: half of each.
    member: AtomicU64,
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Groups").finish_non_exhaustive()
    }
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
        }
    }
}

impl Groups {
    /// The consumer joins a group. A member that joins again is rebalanced; one without an id has just begun, or took
    /// so long over what it was served that it was thrown out (`max.poll.interval.ms`).
    pub fn joins(&self, consumer: Consumer, has_member_id: bool) {
        let Some(slot) = self.slot(consumer) else {
            return;
        };
        if !has_member_id {
            slot.is_new.store(true, Relaxed);
            slot.starts.fetch_add(1, Relaxed);
        } else if !slot.is_new.swap(false, Relaxed) {
            slot.rebalances.fetch_add(1, Relaxed);
        }
    }

    /// A member of the consumer's group (KIP-848) is in this epoch: another one than before is a rebalance. `member`
    /// stands for its id.
    pub fn is_in(&self, consumer: Consumer, member: u64, epoch: i32) {
        let (Some(slot), Some(known)) = (self.slot(consumer), self.slot(Consumer(member))) else {
            return;
        };
        let tag = member & !u64::from(u32::MAX);
        let now = tag | u64::from(epoch.cast_unsigned());
        let before = known.member.swap(now, Relaxed);
        let is_same_member = before & !u64::from(u32::MAX) == tag;
        if is_same_member && before != now {
            slot.rebalances.fetch_add(1, Relaxed);
        }
    }

    /// The consumer asks what its group has committed.
    pub fn is_of(&self, consumer: Consumer, group: Group) {
        if let Some(slot) = self.slot(consumer) {
            slot.group.store(group.0, Relaxed);
        }
    }

    /// How often it joined, as far as is known.
    pub fn joins_of(&self, consumer: Consumer) -> Joins {
        self.slot(consumer)
            .map_or_else(Joins::default, |slot| Joins {
                rebalances: slot.rebalances.load(Relaxed),
                starts: slot.starts.load(Relaxed),
            })
    }

    /// Its group.
    pub fn group_of(&self, consumer: Consumer) -> Option<Group> {
        let group = self.slot(consumer)?.group.load(Relaxed);
        (group != 0).then_some(Group(group))
    }

    fn slot(&self, consumer: Consumer) -> Option<&Slot> {
        let at = consumer.0.checked_rem(SLOTS as u64)?;
        self.slots.get(usize::try_from(at).ok()?)
    }
}
