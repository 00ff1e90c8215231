//! When a Shoot is hibernated and woken up by its schedules, up to its next maintenance window. Pure, except for the
//! machine's time zones.

use std::time::Duration;

use serde_json::Value;

use crate::base::clock::Timestamp;
use crate::format::cron::Cron;
use crate::format::time::time_of_day;

const DAY_S: i64 = 86_400;
/// The next window is over by then: later times do not matter.
const AHEAD: Duration = Duration::from_secs(3 * 24 * 3_600);

/// An item of `spec.hibernation.schedules`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Schedule {
    /// When it is hibernated: a cron expression with five fields.
    start: Option<String>,
    /// When it is woken up.
    end: Option<String>,
    /// The time zone; empty for UTC.
    location: String,
}

impl Schedule {
    pub(super) fn read(entry: &Value) -> Self {
        let field = |name: &str| entry[name].as_str().map(str::to_owned);
        Self { start: field("start"), end: field("end"), location: field("location").unwrap_or_default() }
    }
}

/// The earliest next time of these expressions; `None` if there is none soon. An invalid expression disables all of
/// them, as in upstream.
fn next(all: &[Schedule], of: fn(&Schedule) -> &Option<String>, now: Timestamp) -> Option<Option<Timestamp>> {
    let mut first: Option<Timestamp> = None;
    for schedule in all {
        let Some(text) = of(schedule) else { continue };
        let at = Cron::parse(text)?.next(now, &schedule.location, AHEAD);
        first = first.into_iter().chain(at).min();
    }
    Some(first)
}

/// The time in which a Shoot may be changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct MaintenanceWindow {
    pub(super) begin: Timestamp,
    pub(super) end: Timestamp,
}

/// Whether a Shoot may be hibernated at some time of its next maintenance window.
pub(super) fn sleeps_in_window(
    schedules: &[Schedule],
    is_asleep: bool,
    window: MaintenanceWindow,
    now: Timestamp,
) -> bool {
    let MaintenanceWindow { begin, end } = window;
    let (Some(sleep), Some(wake)) =
        (next(schedules, |schedule| &schedule.start, now), next(schedules, |schedule| &schedule.end, now))
    else {
        return false;
    };
    if is_asleep {
        let Some(wake) = wake.filter(|wake| *wake <= begin) else { return true };
        return sleep.is_some_and(|sleep| sleep > wake && sleep < end);
    }
    let Some(sleep) = sleep.filter(|sleep| *sleep <= end) else { return false };
    wake.is_none_or(|wake| wake < sleep || wake > begin)
}

/// The next maintenance window, from the ends in a Shoot (`HHMMSS+ZZZZ`).
pub(super) fn next_window(begin: &str, end: &str, now: Timestamp) -> Option<MaintenanceWindow> {
    let (begin_s, end_s) = (time_of_day(begin)?, time_of_day(end)?);
    let since_begin = (now.unix() - begin_s).rem_euclid(DAY_S);
    let begin = Timestamp::from_unix(now.unix() - since_begin + DAY_S);
    let length = u64::try_from((end_s - begin_s).rem_euclid(DAY_S)).ok()?;
    Some(MaintenanceWindow { begin, end: begin.plus(Duration::from_secs(length)) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::format::time::{parse_rfc3339, rfc3339};

    fn at(text: &str) -> Timestamp {
        parse_rfc3339(&format!("2026-{text}Z")).unwrap()
    }

    #[test]
    fn the_window_that_comes_next() {
        let window = |begin: &str, end: &str| {
            let found = next_window(begin, end, at("07-01T12:00:00"))?;
            Some((rfc3339(found.begin), rfc3339(found.end)))
        };
        let table = [
            ("220000+0000", "230000+0000", Some(("07-01T22:00:00", "07-01T23:00:00"))),
            ("220000+0100", "230000+0100", Some(("07-01T21:00:00", "07-01T22:00:00"))),
            ("233000+0000", "003000+0000", Some(("07-01T23:30:00", "07-02T00:30:00"))),
            // It is open now: the next one starts tomorrow.
            ("113000+0000", "123000+0000", Some(("07-02T11:30:00", "07-02T12:30:00"))),
            ("120000+0000", "130000+0000", Some(("07-02T12:00:00", "07-02T13:00:00"))),
            ("", "", None),
        ];
        for (begin, end, expected) in table {
            let expected = expected.map(|(b, e)| (format!("2026-{b}Z"), format!("2026-{e}Z")));
            assert_eq!(window(begin, end), expected, "{begin} {end}");
        }
    }

    #[test]
    fn hibernation_in_the_next_window() {
        let schedule = |start: Option<&str>, end: Option<&str>| {
            Schedule::read(&json!({"start": start, "end": end, "location": null}))
        };
        let window = MaintenanceWindow { begin: at("07-01T22:00:00"), end: at("07-01T23:00:00") };
        let (never, now) = (None, at("07-01T12:00:00"));
        let table = [
            // Awake.
            (false, never, never, false),
            (false, Some("0 20 * * *"), never, true),
            (false, Some("30 22 * * *"), never, true),
            (false, Some("30 23 * * *"), never, false),
            (false, Some("0 14 * * *"), Some("0 20 * * *"), false),
            (false, Some("0 20 * * *"), Some("0 6 * * *"), true),
            (false, Some("0 20 * * *"), Some("0 18 * * *"), true),
            // Asleep.
            (true, never, never, true),
            (true, never, Some("0 20 * * *"), false),
            (true, never, Some("30 22 * * *"), true),
            (true, Some("30 22 * * *"), Some("0 20 * * *"), true),
            (true, Some("30 23 * * *"), Some("0 20 * * *"), false),
        ];
        for (is_asleep, start, end, expected) in table {
            let all = [schedule(start, end)];
            assert_eq!(
                sleeps_in_window(&all, is_asleep, window, now),
                expected,
                "{is_asleep} {start:?} {end:?}"
            );
        }
        assert!(!sleeps_in_window(&[schedule(Some("nonsense"), None)], true, window, now));
    }
}
