//! When a Shoot is hibernated and woken up by its schedules, as far as its next maintenance window asks. Pure, but for the zones
//! of time of the machine.

use std::time::Duration;

use serde_json::Value;

use crate::base::clock::Timestamp;
use crate::format::time::{Civil, time_of_day, zone};

const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 3_600;
const DAY_S: i64 = 86_400;
/// The next window is over by then: what comes later does not matter.
const AHEAD_S: i64 = 3 * DAY_S;

/// An item of `spec.hibernation.schedules`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Schedule {
    /// When it is hibernated: five fields of cron.
    start: Option<String>,
    /// When it is woken up.
    end: Option<String>,
    /// The place whose clocks count; empty for UTC.
    location: String,
}

impl Schedule {
    /// Reads one.
    pub(super) fn read(entry: &Value) -> Self {
        let field = |name: &str| entry[name].as_str().map(str::to_owned);
        Self { start: field("start"), end: field("end"), location: field("location").unwrap_or_default() }
    }
}

/// The fields of a cron expression, as bits.
struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// One of the two is `*`: then both must fit, else one is enough.
    is_any_day: bool,
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Cron {
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else { return None };
        let is_any = |field: &str| field.starts_with(['*', '?']);
        let of_week = bits(weekdays, 0, 7, &WEEKDAYS, 0)?;
        Some(Self {
            minutes: bits(minutes, 0, 59, &[], 0)?,
            hours: bits(hours, 0, 23, &[], 0)?,
            days: bits(days, 1, 31, &[], 0)?,
            months: bits(months, 1, 12, &MONTHS, 1)?,
            // Seven is Sunday, too.
            weekdays: of_week | (of_week >> 7 & 1),
            is_any_day: is_any(days) || is_any(weekdays),
        })
    }

    fn fits_day(&self, at: &Civil) -> bool {
        let has = |bits: u64, n: u64| bits >> n & 1 == 1;
        let day = has(self.days, at.day.into());
        let weekday = has(self.weekdays, at.weekday() as u64);
        let fits = if self.is_any_day { day && weekday } else { day || weekday };
        fits && has(self.months, at.month.into())
    }

    /// The first minute after `now`, by the clocks of a place.
    fn next(&self, now: Timestamp, place: &str) -> Option<Timestamp> {
        let has = |bits: u64, n: u32| bits >> n & 1 == 1;
        let mut at = (now.unix() / MINUTE_S + 1) * MINUTE_S;
        let last = now.unix() + AHEAD_S;
        while at <= last {
            // Clocks are changed at full quarters of an hour, at most.
            let offset = if place.is_empty() || place == "UTC" { 0 } else { zone::at(place, at)?.offset_s };
            let quarter = (at / (HOUR_S / 4) + 1) * (HOUR_S / 4);
            while at < quarter {
                let local = Civil::at(Timestamp::from_unix(at), offset);
                if !self.fits_day(&local) || !has(self.hours, local.hour) {
                    break;
                }
                if has(self.minutes, local.minute) {
                    return Some(Timestamp::from_unix(at));
                }
                at += MINUTE_S;
            }
            at = quarter;
        }
        None
    }
}

/// The numbers of a field: `*`, `1,2-5/2`, `mon-fri`.
fn bits(field: &str, least: u32, most: u32, names: &[&str], first_name: u32) -> Option<u64> {
    let number = |text: &str| {
        let named = names.iter().position(|name| text.eq_ignore_ascii_case(name));
        let named = named.and_then(|index| u32::try_from(index).ok()).map(|index| index + first_name);
        named.or_else(|| text.parse().ok()).filter(|n| (least..=most).contains(n))
    };
    let mut all = 0;
    for part in field.split(',') {
        let (range, step) = part.split_once('/').map_or((part, None), |(range, step)| (range, Some(step)));
        let (from, to) = match range {
            "*" | "?" => (least, most),
            _ => match range.split_once('-') {
                Some((from, to)) => (number(from)?, number(to)?),
                None if step.is_some() => (number(range)?, most),
                None => (number(range)?, number(range)?),
            },
        };
        let step: usize = step.map_or(Some(1), |step| step.parse().ok()).filter(|step| *step > 0)?;
        all |= (from..=to).step_by(step).fold(0, |all, n| all | 1_u64 << n);
    }
    Some(all)
}

/// The next time of these expressions; nothing if there is none soon. An expression that cannot be read makes all of them say
/// nothing, as upstream has it.
fn next(all: &[Schedule], of: fn(&Schedule) -> &Option<String>, now: Timestamp) -> Option<Option<Timestamp>> {
    let mut first: Option<Timestamp> = None;
    for schedule in all {
        let Some(text) = of(schedule) else { continue };
        let at = Cron::parse(text)?.next(now, &schedule.location);
        first = first.into_iter().chain(at).min();
    }
    Some(first)
}

/// Whether a Shoot may be asleep at some time of its next maintenance window: from the second of the day in which that begins,
/// and its length.
pub(super) fn sleeps_in_window(
    schedules: &[Schedule],
    is_asleep: bool,
    (begin, end): (Timestamp, Timestamp),
    now: Timestamp,
) -> bool {
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

/// The next maintenance window, from its ends as a Shoot has them (`HHMMSS+ZZZZ`).
pub(super) fn next_window((begin, end): &(String, String), now: Timestamp) -> Option<(Timestamp, Timestamp)> {
    let (begin_s, end_s) = (time_of_day(begin)?, time_of_day(end)?);
    let since_begin = (now.unix() - begin_s).rem_euclid(DAY_S);
    let begin = Timestamp::from_unix(now.unix() - since_begin + DAY_S);
    let length = u64::try_from((end_s - begin_s).rem_euclid(DAY_S)).ok()?;
    Some((begin, begin.plus(Duration::from_secs(length))))
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
    fn the_next_minute_of_an_expression() {
        // The first of July was a Wednesday.
        let table = [
            ("* * * * *", "", Some("07-01T12:01:00")),
            ("0 20 * * *", "", Some("07-01T20:00:00")),
            ("0 12 * * *", "", Some("07-02T12:00:00")),
            ("30 6,18 * * *", "UTC", Some("07-01T18:30:00")),
            ("*/25 * * * *", "", Some("07-01T12:25:00")),
            ("0 8 * * mon-fri", "", Some("07-02T08:00:00")),
            ("0 8 * * 5", "", Some("07-03T08:00:00")),
            ("0 8 4 * *", "", Some("07-04T08:00:00")),
            // One of both is enough.
            ("0 8 4 * thu", "", Some("07-02T08:00:00")),
            ("0 8 * aug *", "", None),
            ("0 8 * * 0", "", None),
            ("0 20 * * *", "Europe/Berlin", Some("07-01T18:00:00")),
            ("0 1 * * *", "Europe/Berlin", Some("07-01T23:00:00")),
        ];
        for (text, place, expected) in table {
            if !place.is_empty() && place != "UTC" && zone::at(place, 0).is_none() {
                continue;
            }
            let found = Cron::parse(text).unwrap().next(at("07-01T12:00:30"), place).map(rfc3339);
            assert_eq!(found, expected.map(|text| format!("2026-{text}Z")), "{text} {place}");
        }
        let sunday = |text: &str| Cron::parse(text).unwrap().next(at("07-04T00:00:00"), "").map(rfc3339);
        assert_eq!(sunday("0 8 * * 7"), sunday("0 8 * * sun"));
    }

    #[test]
    fn what_is_no_expression() {
        for text in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "a * * * *",
            "*/0 * * * *",
        ] {
            assert!(Cron::parse(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn the_window_that_comes_next() {
        let window = |begin: &str, end: &str| {
            let found = next_window(&(begin.to_owned(), end.to_owned()), at("07-01T12:00:00"))?;
            Some((rfc3339(found.0), rfc3339(found.1)))
        };
        let table = [
            ("220000+0000", "230000+0000", Some(("07-01T22:00:00", "07-01T23:00:00"))),
            ("220000+0100", "230000+0100", Some(("07-01T21:00:00", "07-01T22:00:00"))),
            ("233000+0000", "003000+0000", Some(("07-01T23:30:00", "07-02T00:30:00"))),
            // It is open now: the next one begins tomorrow.
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
    fn who_sleeps_in_the_next_window() {
        let schedule = |start: Option<&str>, end: Option<&str>| {
            Schedule::read(&json!({"start": start, "end": end, "location": null}))
        };
        let window = (at("07-01T22:00:00"), at("07-01T23:00:00"));
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
