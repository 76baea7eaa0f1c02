//! Serves `/api/v1/families`: families, members and gaps.

use serde::Serialize;

use crate::families::{Alignment, MemberKind, Membership};
use crate::policy::families::{Gap, Holder};
use crate::vocabulary::Gate;

/// One family.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FamilyView {
    /// The main topic.
    pub main: String,
    /// What a misfit does.
    pub alignment: Alignment,
    /// Retry and dead-letter topics, by name.
    pub members: Vec<MemberView>,
    /// Members that the configuration names and that do not exist.
    pub absent: Vec<String>,
    /// What the producer that writes the members takes of one record, by its own estimate; `None`: known to be enough.
    pub writer_max_request_size: Option<u64>,
}

/// One member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemberView {
    /// The topic.
    pub topic: String,
    /// What it is for.
    pub kind: MemberKind,
    /// Configured, or detected by its name.
    pub membership: Membership,
    /// Its own limits take what the main topic's own limits take, with headroom; `None`: not known (yet).
    pub aligned: Option<bool>,
    /// What its limits lack at most, in bytes; `None`: not known, or nothing limits the main topic at that gate.
    pub gap_bytes: Option<u64>,
    /// The same by gate.
    pub gates: Vec<GapView>,
    /// What else does not fit, each a sentence for people.
    pub warnings: Vec<String>,
}

/// One gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GapView {
    /// The gate.
    pub gate: Gate,
    /// Whose limit is compared with the main topic's.
    pub holder: Holder,
    /// The main topic's own limit.
    pub main_bytes: Option<u64>,
    /// The member's own, or its writer's.
    pub member_bytes: u64,
    /// What the member needs above the main topic.
    pub headroom_bytes: u64,
    /// What the member's limit lacks; 0: nothing.
    pub gap_bytes: Option<u64>,
    /// What closes the gap; `None`: there is none, or no number does.
    pub fix: Option<FixView>,
}

/// What closes a gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FixView {
    /// In words.
    pub text: String,
    /// A command that does it, where one does.
    pub command: Option<String>,
}

impl GapView {
    /// A gap with what closes it.
    pub fn new(gap: &Gap, fix: Option<FixView>) -> Self {
        Self {
            gate: gap.gate,
            holder: gap.holder,
            main_bytes: gap.main_bytes,
            member_bytes: gap.member_bytes,
            headroom_bytes: gap.headroom_bytes,
            gap_bytes: gap.missing_bytes,
            fix,
        }
    }
}
