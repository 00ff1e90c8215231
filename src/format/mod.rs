//! Text and byte formats, as Go programs read and write them. Nothing here knows of Kubernetes objects.

pub(crate) mod address;
pub mod base64;
pub mod brotli;
pub mod cidr;
pub(crate) mod cron;
pub(crate) mod der;
pub mod duration;
pub(crate) mod hex;
pub(crate) mod human;
pub(crate) mod number;
pub(crate) mod percent;
pub mod quantity;
pub mod semver;
pub mod time;
pub(crate) mod view;
pub mod yaml;
