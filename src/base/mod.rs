//! The foundation: time, stopping, threads, counters. Nothing here knows of Kubernetes.

pub(crate) mod backoff;
pub(crate) mod capped;
pub mod clock;
pub(crate) mod cut;
pub mod error;
pub(crate) mod garden_time;
#[cfg(all(target_env = "musl", not(feature = "libc-heap")))]
mod heap;
pub(crate) mod json;
pub(crate) mod lock;
pub mod log;
pub mod metrics;
pub(crate) mod near;
pub(crate) mod notify;
pub(crate) mod process;
pub mod random;
pub(crate) mod redact;
pub mod signal;
pub mod sorted;
pub mod state;
pub mod stop;
pub mod thread;
pub(crate) mod workers;
