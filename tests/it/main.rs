//! The whole program, in process, against an API server that can misbehave.

#[path = "../support/mod.rs"]
mod support;

mod server;
