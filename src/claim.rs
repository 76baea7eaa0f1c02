//! The claim check: a message carries a ticket, its content lies in an object store.
//!
//! Producing, a value is *offloaded*: the object is written first, then the ticket goes on its way in the value's place.
//! Consuming, it is *redeemed*: the original value comes back, byte for byte. Invariants: a batch is spliced, never
//! built again from its records; a batch whose checksum is wrong is not touched; a ticket counts only with a valid
//! signature and a place under its own topic's prefix; a null value is never offloaded and nothing is ever null or
//! empty in a value's stead.
//!
//! Pure, without I/O: [`OpenBatch`], [`plan_offload`], [`offload`], [`redeem`], [`Ticket`], [`Keys`], [`Namespace`].
//! Talking to the store: [`Store`], with [`Patience`]; on a thread of its own: [`Service`].

mod capacity;
mod chain;
mod connect;
mod deliver;
mod digests;
mod failure;
pub mod fallen;
mod issue;
mod keys;
mod open;
mod original;
mod patience;
mod place;
mod plan;
mod retention;
mod rewrite;
mod service;
mod store;
mod ticket;
mod trash;
mod values;

pub use capacity::{Account, Costs, Prices, Rates};
pub use connect::{StoreError, StoreUri};
pub use deliver::{Fate, deliver, encoded_header, offset_delta};
pub use failure::{Class, Failure};
pub use issue::{Issuer, SignedTicket, ticket_bytes};
pub use keys::{Key, KeyError, Keys, MARK_HEADER, Refuted};
pub use open::{OpenBatch, Unopened};
pub use patience::Patience;
pub use place::{ForeignUri, Layout, Namespace, OwnKey, Place, prefix_of};
pub use plan::{Claim, Fit, Plan, Planned, allowance, plan_offload};
pub use retention::{Cover, Need};
pub use rewrite::{Found, RewriteError, offload, redeem, tickets, tickets_from};
pub use service::{Handle, Service, Upload, Uploaded};
pub use store::{Listed, Put, Store};
pub use ticket::{ContentType, Digest, ObjectForm, Ticket, TicketError};
pub use trash::Moved;
pub use values::{Progress, Values, Waiting, Wanted};
