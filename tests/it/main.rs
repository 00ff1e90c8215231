//! The whole program, in process, against an API server that can misbehave.

// Test code outside of test functions.
#![allow(clippy::unwrap_used)]

#[path = "../support/mod.rs"]
mod support;

mod faults;
mod garden;
mod resources;
mod server;
