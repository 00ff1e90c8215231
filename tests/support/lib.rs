//! The base of the tests: an API server in this process that behaves like a real one for an agent, a garden on top of
//! it, and faults that a test orders.
//!
//! - [`TestCluster`] starts a server on loopback, over TLS, with a CA of its own. It gives
//!   access to kubeconfigs, the storage, the record of requests and the faults.
//! - `http/` speaks HTTP/1.1 over rustls; it knows connections but no objects.
//! - `api/` is the API: kinds, storage, validation, patches, watches, authentication, RBAC, discovery.
//! - `controllers/` does the part of kube-controller-manager's work that an agent waits for.
//! - `garden/` does what an agent sees of gardener-apiserver, gardener-controller-manager and
//!   gardener-scheduler.
//! - `player.rs` plays the extensions of some kinds, against this server or a real one.
//! - `backups.rs` and `names.rs` play extensions whose work a test looks at: buckets of etcds, names of the DNS.
//! - `s3.rs` is a server for a bucket.
//! - `policies.rs` has the objects of a seed whose pods connect to each other.
//! - `shoot/` does the seed's part for Shoots without a node: kubelets, and the API servers of the Shoots.
//! - `options.rs` has the options of a run: its length, its seed, its patience.
//! - `random.rs` has random numbers that depend only on that seed.
//! - `keys.rs` has RSA keys that are ready at once.
//! - `pace.rs` is the time that simulated clocks follow.
//! - `requests/` has requests to a garden that the real Gardener and the garden of these tests answer alike.
//! - `semantics.rs` has checks that this server and a real kube-apiserver both pass, so that this one stays like the
//!   real one.

// It is test code: a broken assumption may panic.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]
#![allow(clippy::needless_pass_by_value)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

pub mod encoding;
pub mod json;
pub mod keys;
pub mod options;
pub mod pace;
pub mod pki;
pub mod random;

pub mod api;
pub mod http;
pub mod proxy;
pub mod registry;
pub mod s3;

pub mod controllers;

pub mod backups;
pub mod cluster;
pub mod garden;
pub mod names;
pub mod player;
pub mod policies;
pub mod shoot;

pub mod requests;
pub mod semantics;

pub use cluster::{Options, TestCluster};
