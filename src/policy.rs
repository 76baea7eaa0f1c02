//! What a size is compared with, and what follows from it. Pure: knows no sockets and no tokio.
//!
//! [`Policy`] is compiled from the configuration; [`TopicPolicy`] is what it says of one topic;
//! [`Violation`] is a size over a limit; [`Refusal`] is the violation told to a person.
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]

mod clients;
pub mod families;
mod library;
mod linger;
mod loops;
mod refusal;
mod rules;
mod stuck;
mod violation;

pub use clients::{Client, ClientRules};
pub use library::Library;
pub use linger::{Arrival, LingerWatch, SentBatch, Suspect};
pub use loops::{LoopDetector, ResendKey};
pub use refusal::{Blame, Place, Refusal};
pub(crate) use refusal::{batch_of, grouped};
pub(crate) use rules::LIMITS;
pub use rules::{ClaimRules, Learned, MemberBound, Offloading, Policy, TopicPolicy};
pub use stuck::{Consumer, LARGE_BYTES, LargeServed, Pass, StuckWatch, Visits};
pub use violation::{BatchFacts, Limit, MemberLimit, RecordAt, Size, Violation};
