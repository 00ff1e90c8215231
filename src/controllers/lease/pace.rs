//! How often the Lease is renewed, and how long a renewal stays valid. On a slow link, renewals are less frequent,
//! within the garden's tolerance.

use std::time::Duration;

/// The garden considers a seed lost whose Lease is older than this (gardener-controller-manager's `monitorPeriod`).
const TOLERANCE: Duration = Duration::from_secs(40);
/// The number of renewals to evaluate.
const RECENT: usize = 5;
/// A renewal is slow if it takes longer than this fraction of the interval.
const SHARE: u32 = 5;

/// The interval to the next renewal, from the duration of the last ones. It uses their median, so that a
/// single slow one changes nothing.
fn interval(recent: &[Duration], resync: Duration, max: Duration) -> Duration {
    let mut sorted = recent.to_vec();
    sorted.sort_unstable();
    let typical = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
    typical.saturating_mul(SHARE).clamp(resync, max.max(resync))
}

/// How long a renewal stays valid: as many intervals as may be missed. A longer interval does not extend it
/// beyond the garden's tolerance.
fn threshold(interval: Duration, resync: Duration, missed_max: u32) -> Duration {
    let usual = resync.saturating_mul(missed_max);
    interval.saturating_mul(missed_max).min(usual.max(TOLERANCE))
}

/// The pace of one heartbeat.
#[derive(Debug)]
pub(super) struct HeartbeatPace {
    resync: Duration,
    max: Duration,
    missed_max: u32,
    recent: Vec<Duration>,
}

impl HeartbeatPace {
    /// `resync` is the usual interval and `max` the longest one. The interval is never shorter than the usual one.
    pub(super) const fn new(resync: Duration, max: Duration, missed_max: u32) -> Self {
        Self { resync, max, missed_max, recent: Vec::new() }
    }

    /// Records the duration of a successful renewal.
    pub(super) fn took(&mut self, spent: Duration) {
        self.recent.truncate(RECENT - 1);
        self.recent.insert(0, spent);
    }

    /// From the start of one beat to the start of the next.
    pub(super) fn interval(&self) -> Duration {
        interval(&self.recent, self.resync, self.max)
    }

    /// How long a successful beat stays valid.
    pub(super) fn threshold(&self) -> Duration {
        threshold(self.interval(), self.resync, self.missed_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn slow_renewals_extend_the_interval_and_quick_ones_reset_it() {
        let table: [(&[u64], u64, u64, u64); 9] = [
            (&[], 2_000, 10_000, 2_000),
            (&[30, 40, 30], 2_000, 10_000, 2_000),
            (&[400], 2_000, 10_000, 2_000),
            (&[1_000], 2_000, 10_000, 5_000),
            (&[1_000, 900, 1_100, 1_000, 950], 2_000, 10_000, 5_000),
            // A single slow one, and a single quick one.
            (&[30, 1_900, 30, 30, 30], 2_000, 10_000, 2_000),
            (&[1_900, 1_900, 30], 2_000, 10_000, 9_500),
            (&[4_000, 4_000, 4_000], 2_000, 10_000, 10_000),
            // Without a maximum, or with a longer usual interval, nothing changes.
            (&[4_000, 4_000, 4_000], 12_000, 0, 12_000),
        ];
        for (recent, resync, max, expected) in table {
            let recent: Vec<Duration> = recent.iter().copied().map(ms).collect();
            assert_eq!(interval(&recent, ms(resync), ms(max)), ms(expected), "{recent:?}");
        }
    }

    #[test]
    fn an_extended_threshold_stays_within_the_tolerance_of_the_garden() {
        let table = [(2, 2, 10, 20), (3, 2, 10, 30), (10, 2, 10, 40), (10, 2, 3, 30), (30, 30, 10, 300)];
        for (interval_s, resync_s, missed_max, expected_s) in table {
            let s = Duration::from_secs;
            assert_eq!(threshold(s(interval_s), s(resync_s), missed_max), s(expected_s), "{interval_s}");
        }
        // Three more renewals may fail.
        assert!(Duration::from_secs(limits::HEARTBEAT_INTERVAL_S_MAX) * 4 <= TOLERANCE);
    }

    #[test]
    fn only_the_last_renewals_count() {
        let mut pace = HeartbeatPace::new(ms(2_000), ms(8_000), 10);
        for _ in 0..3 {
            pace.took(ms(1_200));
        }
        assert_eq!((pace.interval(), pace.threshold()), (ms(6_000), ms(40_000)));
        (0..RECENT).for_each(|_| pace.took(ms(20)));
        assert_eq!((pace.interval(), pace.threshold()), (ms(2_000), ms(20_000)));
        assert_eq!(pace.recent.len(), RECENT);
    }
}
