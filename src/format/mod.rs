//! Text and byte formats, as Go programs read and write them. Nothing here knows of Kubernetes objects.

pub mod base64;
pub mod number;
pub mod yaml;
