//! sizegate: a Kafka proxy that enforces message size policy.
//!
//! [ARCHITECTURE.md] follows one Produce request through these modules. Data flows
//! `proxy → wire → inspect → policy → proxy`; `cluster`, `telemetry` and `admin` stand beside it.
//!
//! [ARCHITECTURE.md]: https://github.com/sizegate/sizegate/blob/main/ARCHITECTURE.md

pub mod batch;
pub mod config;
pub mod policy;
pub mod telemetry;
pub mod wire;
