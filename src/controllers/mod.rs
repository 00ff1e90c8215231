//! The controllers, one folder each, named as in Gardener. They do not know each other: they meet in the API.

pub mod controller_installation;
pub mod lease;
pub mod seed;
pub mod token_requestor;
