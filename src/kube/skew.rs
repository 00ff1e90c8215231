//! How far the server's clock is from ours, learned from the `Date` of its answers.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::status::parse_http_date;
use crate::base::clock::Timestamp;

/// An answer that took longer says too little about the time.
const ROUND_TRIP_MAX: Duration = Duration::from_secs(5);

/// The last offset seen.
#[derive(Debug, Default)]
pub(super) struct Skew(Mutex<Option<i64>>);

impl Skew {
    /// Learns from an answer. `Date` has whole seconds and was written somewhere within the round trip.
    pub(super) fn learn(&self, date: Option<&str>, sent_at: Timestamp, received_at: Timestamp) {
        let round_trip = received_at.since(sent_at);
        let Some(date) = date.and_then(parse_http_date).filter(|_| round_trip <= ROUND_TRIP_MAX) else {
            return;
        };
        let server = date.plus(Duration::from_millis(500));
        let ours = sent_at.plus(round_trip / 2);
        let offset = server.unix_nanos().saturating_sub(ours.unix_nanos());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(offset);
    }

    pub(super) fn nanos(&self) -> Option<i64> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_offset_counts_from_the_middle_of_the_round_trip() {
        let skew = Skew::default();
        let (sent, received) = (Timestamp::from_unix(1_000), Timestamp::from_unix(1_002));
        skew.learn(None, sent, received);
        skew.learn(Some("soon"), sent, received);
        assert_eq!(skew.nanos(), None);
        // 1970-01-01 00:20:00 is 1,200 s; its middle is 199.5 s ahead of 1,001 s.
        skew.learn(Some("Thu, 01 Jan 1970 00:20:00 GMT"), sent, received);
        assert_eq!(skew.nanos(), Some(199_500_000_000));
        skew.learn(Some("Thu, 01 Jan 1970 00:30:00 GMT"), sent, Timestamp::from_unix(1_006));
        assert_eq!(skew.nanos(), Some(199_500_000_000));
    }
}
