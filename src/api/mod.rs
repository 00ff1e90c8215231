//! The objects of Kubernetes and Gardener as plain types: their API paths and the fields that the program reads. A view
//! drops unknown fields; whole objects are `serde_json::Value`.

pub(crate) mod bootstrap_token;
pub(crate) mod condition;
pub mod meta;
pub(crate) mod patch;

pub mod certificates;
pub mod coordination;
pub mod core;
pub mod crd;
pub mod extensions;
pub mod gardener;
pub mod rbac;
pub mod resources;
pub(crate) mod selector;
