//! What is found inside batches: measures, findings and proofs, for the bytes of real clients and of liars.

// Encoders and a bare decoder or two: only what is under test must go through `codec`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

#[path = "inspect/make.rs"]
mod make;

#[path = "inspect/bomb.rs"]
mod bomb;
#[path = "inspect/bombs.rs"]
mod bombs;
#[path = "inspect/boundaries.rs"]
mod boundaries;
#[path = "inspect/clients.rs"]
mod clients;
#[path = "inspect/formats.rs"]
mod formats;
#[path = "inspect/ladder.rs"]
mod ladder;
#[path = "inspect/lies.rs"]
mod lies;
#[path = "inspect/near.rs"]
mod near;
#[path = "inspect/pieces.rs"]
mod pieces;
