//! The foundation: time, stopping, threads, counters. Nothing here knows of Kubernetes.

pub mod backoff;
pub mod capped;
pub mod clock;
pub mod cut;
pub mod error;
pub mod garden_time;
#[cfg(all(target_env = "musl", not(feature = "libc-heap")))]
mod heap;
pub mod log;
pub mod metrics;
pub mod near;
pub mod notify;
pub mod process;
pub mod random;
pub mod redact;
pub mod signal;
pub mod sorted;
pub mod state;
pub mod stop;
pub mod thread;
pub mod workers;
