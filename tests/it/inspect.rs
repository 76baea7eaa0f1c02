//! What is found inside batches: measures, findings and proofs, for the bytes of real clients and of liars.

// Encoders and a bare decoder or two: only what is under test must go through `codec`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

pub mod make;

pub mod bomb;
mod bombs;
mod boundaries;
mod clients;
mod formats;
mod ladder;
mod lies;
mod measures;
mod near;
mod pieces;
