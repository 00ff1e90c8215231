//! How many bytes went over our sockets, TLS and all.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Received,
    Sent,
}

/// Counters that connections share. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Traffic(Arc<[AtomicUsize; 2]>);

impl Traffic {
    pub(super) fn add(&self, direction: Direction, bytes: usize) {
        let [received, sent] = &*self.0;
        let counter = if direction == Direction::Received { received } else { sent };
        counter.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes received and sent since the last call.
    pub fn take(&self) -> (usize, usize) {
        let [received, sent] = &*self.0;
        (received.swap(0, Ordering::Relaxed), sent.swap(0, Ordering::Relaxed))
    }
}
