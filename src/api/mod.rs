//! Plain types of the API: what objects look like, without a way to reach them.

pub mod condition;
