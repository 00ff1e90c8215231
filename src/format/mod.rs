//! Text and byte formats, as Go programs read and write them. Nothing here knows of Kubernetes objects.

pub mod address;
pub mod base64;
pub mod brotli;
pub mod cidr;
pub mod cron;
pub mod der;
pub mod duration;
pub mod hex;
pub mod human;
pub mod number;
pub mod percent;
pub mod quantity;
pub mod semver;
pub mod time;
pub mod view;
pub mod yaml;
