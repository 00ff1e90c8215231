//! The agent that joins a Kubernetes *seed* cluster to its Gardener *garden*.
//!
//! `ARCHITECTURE.md` has the map. The modules are in the order in which they may import: a module uses only modules
//! above it (`tests/tidy.rs` checks it).

// Blank lines between the modules keep the order of the layers: rustfmt would sort them.
pub mod limits;

pub mod base;

pub mod format;

pub mod api;

pub mod pki;

pub mod chart;

pub mod config;

pub mod net;

pub mod snapshot;

pub mod oci;

pub mod kube;

pub(crate) mod identity;

pub mod runtime;

pub mod flow;

pub mod secrets;

pub mod extension;

pub mod backup;

pub mod components;

pub mod resources;

pub mod shoot;

pub(crate) mod osc;

pub mod deployer;

pub(crate) mod hosts;

pub mod operation;

pub(crate) mod controllers;

pub(crate) mod serve;

pub mod app;

pub mod cli;
