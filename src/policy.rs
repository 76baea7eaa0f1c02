//! Compares sizes with limits, and writes what follows. Pure: knows no sockets and no tokio.
//!
//! [`Policy`] is compiled from the configuration; [`TopicPolicy`] is what it says of one topic;
//! [`Violation`] is a size over a limit; [`Refusal`] is the violation told to a person.

mod clients;
mod codecs;
mod error_code;
pub mod families;
mod framework;
mod library;
pub mod lifetime;
mod linger;
mod loops;
mod refusal;
mod rules;
mod stuck;
pub mod topic_config;
mod violation;

pub use clients::{Client, ClientRules};
pub use codecs::{CodecRule, Refused as CodecRefused, setting_for};
pub use error_code::error_code;
pub use framework::Framework;
pub use library::Library;
pub use linger::{Arrival, LingerWatch, SentBatch, Suspect};
pub use loops::{LoopDetector, ResendKey};
pub(crate) use refusal::batch_of;
pub use refusal::{Blame, Place, Refusal};
pub use rules::{ClaimRules, Learned, MemberBound, Offloading, Policy, TopicPolicy};
pub use stuck::{Consumer, LARGE_BYTES, LargeServed, Pass, StuckWatch, Visits};
pub use topic_config::{Change, GovernedKey, Manner, Op, Value};
pub use violation::{BatchFacts, Violation};

pub use crate::inspect::RecordAt;
pub use crate::vocabulary::{Limit, MemberLimit, Size};

use crate::vocabulary::LIMITS;
