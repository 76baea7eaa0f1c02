//! sizegate: a Kafka proxy that enforces message size policy.
//!
//! [ARCHITECTURE.md] follows one Produce request through these modules. Data flows
//! `proxy → wire → inspect → policy → proxy`; `cluster`, `telemetry` and `admin` stand beside it.
//!
//! [ARCHITECTURE.md]: https://github.com/sizegate/sizegate/blob/main/ARCHITECTURE.md

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        clippy::string_slice,
        clippy::unreachable,
        clippy::todo,
        reason = "tests"
    )
)]

pub mod admin;
pub mod batch;
pub mod claim;
pub mod cli;
pub mod cluster;
pub mod codec;
pub mod config;
mod count;
pub mod error_code;
pub mod explain;
pub mod families;
pub mod findings;
pub mod inspect;
pub mod net;
pub mod patterns;
pub mod policy;
pub mod proxy;
pub mod run;
pub mod telemetry;
pub mod text;
pub mod version;
pub mod vocabulary;
pub mod wire;
