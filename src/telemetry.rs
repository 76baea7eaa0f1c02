//! Tells operators about the proxy: metrics, the last refusals, logs.
//!
//! Invariants: counting a batch takes no lock and no lookup ([`TopicMetrics`] is resolved once); nothing here grows
//! with what clients send (topics, software names, refusals and repeated log lines are all bounded); no record
//! content ever gets here, and of a key what `refusals.record_key` asks for.

mod claims;
mod clients;
mod counters;
mod families;
mod kafka_names;
pub mod log;
mod metrics;
mod observations;
mod observed;
mod recent;
mod refusals;
mod text;
mod topic;

pub use claims::{ClaimCounts, ClaimMetrics, ClaimTopicView, ClaimsView, HeldView, StoreView};
pub use clients::{ClientConnection, ClientView, Clients};
pub use counters::{Counter, SizeBucket, SizeDistribution, SizeHistogram, TimeHistogram};
pub use families::{FamilyFit, Known};
pub use kafka_names::api_name;
pub use metrics::Metrics;
pub use observations::{Observation, Observations, Seen};
pub use observed::{
    FetchSetting, Lingering, OVERSIZED_NOTE, Observed, OversizedFetch, Peer, Stuck, stuck_note,
};
pub use recent::RecentGroup;
pub use refusals::{BrokerRefusal, RefusalQuery, RefusalRecord, Refusals, Refused};
pub use topic::{
    BatchCounts, CodecMetrics, GateCounts, LargestSizes, LastSizes, OTHER, TopicMetrics,
};
