//! All tests that may share a process, so that they share brokers too: one module a subject.
//!
//! `cargo test --test it families` runs those of one module. Tests that own their process (an allocator that counts
//! for all threads) are binaries of their own beside this folder.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::string_slice,
    clippy::unreachable,
    clippy::todo,
    unreachable_pub,
    reason = "tests"
)]

#[path = "../support/mod.rs"]
mod support;

mod admin;
mod admin_metrics;
mod align;
mod batch_gate;
mod brokers_say;
mod check_cluster;
mod claim_batches;
mod claim_commands;
mod claim_consume;
mod claim_elsewhere;
mod claim_failures;
mod claim_gc;
mod claim_hostile;
mod claim_kills;
mod claim_produce;
mod claim_producers;
mod claim_queue;
mod claim_readers;
mod claim_redrive;
mod claim_store;
mod claim_stores;
mod cli;
mod clients_live;
mod cluster;
mod cluster_failover;
mod cluster_security;
mod codecs;
mod config;
mod config_requests;
mod connect_dead_letters;
mod control_plane;
mod dashboards;
mod deep_gates;
mod deploy;
mod differential;
mod explain;
mod explain_clients;
mod families;
mod faults;
mod fetch;
mod frameworks;
mod governed;
mod governed_clients;
mod hostile;
mod identity;
mod inspect;
mod inspect_reference;
mod layers;
mod libraryd;
mod limits_live;
mod lingering;
mod memory;
mod message_sets;
mod metrics_live;
mod near_limit;
mod observe;
mod own_addresses;
mod own_records;
mod page;
mod passing;
mod pieces;
mod probe;
mod readme;
mod real_clients;
mod refusal_topic;
mod reload;
mod remedies;
mod replicas;
mod rules_hold;
mod scan;
mod soak;
mod spring_chain;
mod stored_batches;
mod suggest;
mod support_works;
mod tls;
mod transparency;
