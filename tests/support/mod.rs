//! What the tests stand on: an API server in this process that an agent cannot tell from a real one, a garden on top of
//! it, and faults on order.
//!
//! - [`TestCluster`] is the way in: it starts a server on loopback, over TLS, with a CA of its own, and hands out
//!   kubeconfigs, direct looks into the storage, the record of requests and the faults.
//! - `http/` speaks HTTP/1.1 over rustls; it knows connections, not objects.
//! - `api/` is the API: kinds, storage, validation, patches, watches, authentication, RBAC, discovery.
//! - `controllers/` is the share of kube-controller-manager that an agent waits for.
//! - `garden/` is what gardener-apiserver, gardener-controller-manager and gardener-scheduler do, as far as an agent sees
//!   it.
//! - `player.rs` plays the extensions of some kinds, on this server or on a real one.
//! - `s3.rs` is a bucket.
//! - `policies.rs` is who wants to talk to whom in a seed.
//! - `shoot/` is a seed's share in Shoots without a node: kubelets, and the API servers of the Shoots.
//! - `keys.rs` hands out RSA keys that nobody has to wait for.
//! - `pace.rs` is the time that simulated clocks follow.
//! - `semantics.rs` is a list of checks that this server and a real kube-apiserver both pass, so that this one cannot
//!   drift from the truth.

// Each test binary includes the whole tree and uses a part of it. It is test code: a broken assumption may panic.
#![allow(dead_code, unreachable_pub, missing_docs)]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stderr)]
#![allow(unused_imports, clippy::needless_pass_by_value)]
#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)]

pub mod encoding;
pub mod json;
pub mod keys;
pub mod pace;
pub mod pki;

pub mod api;
pub mod http;
pub mod proxy;
pub mod registry;
pub mod s3;

pub mod controllers;

pub mod cluster;
pub mod garden;
pub mod player;
pub mod policies;
pub mod shoot;

pub mod semantics;

pub use cluster::{Options, TestCluster};
