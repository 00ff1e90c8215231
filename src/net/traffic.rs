//! Counts the bytes on the sockets, including TLS.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::base::clock::Mono;
use crate::base::lock::IgnorePoison;
use crate::base::metrics::Metrics;

/// A metric: bytes by `peer` and `direction` (`sent`, `received`).
pub(crate) const BYTES: &str = "gardenlet_api_bytes_total";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Received,
    Sent,
}

/// Counters shared by connections. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Traffic(Arc<[AtomicUsize; 2]>);

impl Traffic {
    pub(super) fn add(&self, direction: Direction, bytes: usize) {
        let [received, sent] = &*self.0;
        let counter = if direction == Direction::Received { received } else { sent };
        counter.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes received and sent since the last call.
    pub(crate) fn take(&self) -> (usize, usize) {
        let [received, sent] = &*self.0;
        (received.swap(0, Ordering::Relaxed), sent.swap(0, Ordering::Relaxed))
    }

    /// Adds the bytes since the last call to the metric of a peer: `garden`, `seed` or `registry`.
    pub(crate) fn count(&self, metrics: &Metrics, peer: &str) -> (usize, usize) {
        let (received, sent) = self.take();
        for (direction, bytes) in [("received", received), ("sent", sent)] {
            let help = "Bytes exchanged with API servers and with registries, TLS included.";
            let bytes = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
            metrics.add(BYTES, help, &[("peer", peer), ("direction", direction)], bytes);
        }
        (received, sent)
    }
}

const HOURS: usize = 24;

/// Bytes exchanged with one server within the last 24 hours, by the hour. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct DailyTraffic(Arc<Mutex<Hours>>);

#[derive(Debug, Default)]
struct Hours {
    /// The hour of the last bytes, counted from the start of the clock.
    last: u64,
    bytes: [(u64, u64); HOURS],
}

impl DailyTraffic {
    /// Adds bytes received and sent; returns the sums of the last 24 hours: the current hour and the 23 before it.
    pub(crate) fn add(&self, received: usize, sent: usize, now: Mono) -> (u64, u64) {
        let mut hours = self.0.lock().ignore_poison();
        let hour = now.as_secs() / 3_600;
        let place = |hour: u64| usize::try_from(hour).unwrap_or(0) % HOURS;
        // After a suspension of several days, each hour is cleared only once.
        for passed in hours.last.saturating_add(1).max(hour.saturating_sub(23))..=hour {
            hours.bytes[place(passed)] = (0, 0);
        }
        hours.last = hours.last.max(hour);
        let of_hour = &mut hours.bytes[place(hour)];
        of_hour.0 = of_hour.0.saturating_add(u64::try_from(received).unwrap_or(u64::MAX));
        of_hour.1 = of_hour.1.saturating_add(u64::try_from(sent).unwrap_or(u64::MAX));
        hours.bytes.iter().fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_day_may_have_more_bytes_than_32_bits_count() {
        let (traffic, daily) = (Traffic::default(), DailyTraffic::default());
        let mut last = (0, 0);
        for _ in 0..3 {
            traffic.add(Direction::Received, 2_000_000_000);
            traffic.add(Direction::Sent, 3_000_000_000);
            let (received, sent) = traffic.take();
            last = daily.add(received, sent, Duration::ZERO);
        }
        assert_eq!(last, (6_000_000_000, 9_000_000_000));
    }

    #[test]
    fn a_day_has_its_last_24_hours() {
        let daily = DailyTraffic::default();
        let at = |minutes: u64, (received, sent): (usize, usize)| {
            daily.add(received, sent, Duration::from_secs(minutes * 60))
        };
        let table = [
            (0, (10, 1), (10, 1)),
            (59, (10, 1), (20, 2)),
            (60, (100, 0), (120, 2)),
            (23 * 60 + 59, (0, 0), (120, 2)),
            (24 * 60, (5, 5), (105, 5)),
            (25 * 60, (0, 0), (5, 5)),
            // Days later.
            (9_999 * 60, (1, 1), (1, 1)),
        ];
        for (minutes, bytes, expected) in table {
            assert_eq!(at(minutes, bytes), expected, "{minutes}");
        }
    }
}
