//! Maintenance time windows: the same period of every day, in UTC.

use std::time::Duration;

use serde_json::Value;

use crate::api::meta::text;
use crate::base::clock::Timestamp;
use crate::format::time::time_of_day;

const DAY_S: i64 = 86_400;
/// An operation should end in the window in which it started, so none starts in the last minutes.
const LAST_S: i64 = 15 * 60;

/// A period of every day, including both ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DailyWindow {
    /// Second of the day in UTC.
    begin_s: i64,
    /// From the first to the last second; less than a day.
    length_s: i64,
}

impl DailyWindow {
    /// From midnight to the second before midnight.
    pub(crate) const ALWAYS: Self = Self { begin_s: 0, length_s: DAY_S - 1 };

    /// From two times of day in the Shoot's form, `HHMMSS+ZZZZ`.
    pub(crate) fn parse(begin: &str, end: &str) -> Option<Self> {
        let (begin_s, end_s) = (time_of_day(begin)?, time_of_day(end)?);
        Some(Self { begin_s, length_s: (end_s - begin_s).rem_euclid(DAY_S) })
    }

    /// When reconciliations of a Shoot may start: its window without the last minutes, or at any time if it
    /// has no valid window.
    pub(crate) fn of(shoot: &Value) -> Self {
        let window = &shoot["spec"]["maintenance"]["timeWindow"];
        let Some(whole) = Self::parse(text(&window["begin"]), text(&window["end"])) else {
            return Self::ALWAYS;
        };
        Self {
            length_s: if whole.length_s > LAST_S { whole.length_s - LAST_S } else { whole.length_s },
            ..whole
        }
    }

    /// Whether it is open.
    pub(crate) const fn contains(self, at: Timestamp) -> bool {
        self.since_begin(at) <= self.length_s
    }

    /// The first time after `at` when it opens.
    pub(crate) const fn next_begin(self, at: Timestamp) -> Timestamp {
        Timestamp::from_unix(at.unix().saturating_add(DAY_S - self.since_begin(at)))
    }

    /// When it closes, if it is open at `at`.
    pub(crate) const fn end(self, at: Timestamp) -> Timestamp {
        Timestamp::from_unix(at.unix().saturating_add(self.length_s - self.since_begin(at)))
    }

    /// How long to wait for a time in the next window. `share`, from 0 to 1, is the position within it.
    pub(crate) fn until_next(self, now: Timestamp, share: f64) -> Duration {
        self.next_begin(now).since(now) + part(self.length_s, share)
    }

    /// The same, but if the window is open, for a time in the rest of it.
    pub(crate) fn until_open(self, now: Timestamp, share: f64) -> Duration {
        if self.contains(now) {
            part(self.length_s - self.since_begin(now), share)
        } else {
            self.until_next(now, share)
        }
    }

    /// Seconds since it last opened.
    const fn since_begin(self, at: Timestamp) -> i64 {
        (at.unix() - self.begin_s).rem_euclid(DAY_S)
    }
}

/// A share of a number of seconds.
fn part(seconds: i64, share: f64) -> Duration {
    let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).mul_f64(share)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::base::random;
    use crate::format::time::{parse_rfc3339, rfc3339};

    fn at(text: &str) -> Timestamp {
        parse_rfc3339(&format!("2026-{text}Z")).unwrap()
    }

    #[test]
    fn windows_open_and_close_also_over_midnight() {
        let table = [
            ("220000+0000", "230000+0000", "01-01T21:59:59", false),
            ("220000+0000", "230000+0000", "01-01T22:00:00", true),
            ("220000+0000", "230000+0000", "01-01T23:00:00", true),
            ("220000+0000", "230000+0000", "01-01T23:00:01", false),
            ("230000+0000", "010000+0000", "01-01T23:30:00", true),
            ("230000+0000", "010000+0000", "01-02T00:30:00", true),
            ("230000+0000", "010000+0000", "01-02T01:00:01", false),
            ("003000+0100", "013000+0100", "01-01T23:45:00", true),
            ("003000+0100", "013000+0100", "01-01T00:45:00", false),
        ];
        for (begin, end, now, expected) in table {
            assert_eq!(
                DailyWindow::parse(begin, end).unwrap().contains(at(now)),
                expected,
                "{begin} {end} {now}"
            );
        }
    }

    #[test]
    fn the_window_of_a_shoot_ends_early() {
        let of = |begin: &str, end: &str| {
            DailyWindow::of(&json!({"spec": {"maintenance": {"timeWindow": {"begin": begin, "end": end}}}}))
        };
        assert_eq!(of("220000+0000", "230000+0000").length_s, 45 * 60);
        assert_eq!(of("234500+0000", "001500+0000").length_s, 15 * 60);
        // Gardener does not allow such a short one.
        assert_eq!(of("220000+0000", "221000+0000").length_s, 10 * 60);
        assert_eq!(of("220000+0000", "soon"), DailyWindow::ALWAYS);
        assert_eq!(DailyWindow::of(&json!({"spec": {}})), DailyWindow::ALWAYS);
        assert!((0..DAY_S).step_by(600).all(|s| DailyWindow::ALWAYS.contains(Timestamp::from_unix(s))));
    }

    #[test]
    fn times_in_the_present_window_and_in_the_next() {
        let window = DailyWindow::parse("220000+0000", "230000+0000").unwrap();
        let table = [
            ("01-01T10:00:00", 0.0, "01-01T22:00:00", "01-01T22:00:00"),
            ("01-01T10:00:00", 0.5, "01-01T22:30:00", "01-01T22:30:00"),
            ("01-01T22:00:00", 0.0, "01-02T22:00:00", "01-01T22:00:00"),
            ("01-01T22:30:00", 0.5, "01-02T22:30:00", "01-01T22:45:00"),
            ("01-01T23:00:00", 1.0, "01-02T23:00:00", "01-01T23:00:00"),
            ("12-31T23:30:00", 0.0, "12-32", "12-32"),
        ];
        for (now, share, next, open) in table {
            let now = at(now);
            let text = |wait| rfc3339(now.plus(wait));
            let wanted = |text: &str| match text {
                "12-32" => "2027-01-01T22:00:00Z".to_owned(),
                text => format!("2026-{text}Z"),
            };
            assert_eq!(text(window.until_next(now, share)), wanted(next));
            assert_eq!(text(window.until_open(now, share)), wanted(open));
        }
        assert_eq!(window.until_open(at("01-01T22:30:00"), f64::NAN), Duration::ZERO);
    }

    #[test]
    fn the_time_is_within_the_window_and_two_days() {
        for _ in 0..20_000 {
            let [a, b, c] = [(); 3].map(|()| i64::from(u32::from_be_bytes(random::bytes())));
            let window = DailyWindow { begin_s: a % DAY_S, length_s: b % DAY_S };
            let now = Timestamp::from_unix_nanos(c * 1_000_000_007);
            let share = random::unit();
            let (next, open) = (window.until_next(now, share), window.until_open(now, share));
            assert!(window.contains(now.plus(next)) && window.contains(now.plus(open)), "{window:?} {now:?}");
            assert!(now.plus(next) >= window.next_begin(now) && window.next_begin(now) > now);
            assert!(next < Duration::from_secs(172_800) && open <= next);
            assert!(window.contains(window.next_begin(now)));
            if window.contains(now) {
                let end = window.end(now);
                assert!(end.unix() >= now.unix() && window.contains(end) && end < window.next_begin(now));
                assert!(
                    !window.contains(Timestamp::from_unix(end.unix() + 1)) || window.length_s == DAY_S - 1
                );
                assert!(open.as_secs() <= u64::try_from(window.length_s).unwrap());
            }
        }
    }
}
