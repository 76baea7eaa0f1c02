//! The only place that touches a peer's raw bytes.
//!
//! Every read names its field, every declared count is compared with the bytes that remain, and nothing is
//! allocated by a declared size. What arrives whole is read with [`Reader`]; what streams past is read with
//! [`Walker`].

pub mod addresses;
pub mod api;
pub mod api_versions;
pub mod config_requests;
pub mod config_response;
pub mod consumer;
pub mod fetch;
pub mod fetch_request;
pub mod fetch_response;
pub mod produce;
pub mod produce_response;
mod reader;
pub mod record_batch;
pub mod sasl;
pub mod share_fetch;
pub mod splice;
pub mod walk;
mod writer;

pub use addresses::AddressBook;
pub use api::{FrameHead, HEAD_BYTES};
pub use reader::{Malformed, Reader, Reason};
pub use walk::Walker;
pub use writer::Writer;
