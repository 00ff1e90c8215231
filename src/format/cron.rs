//! Cron schedules with five fields.

use std::time::Duration;

use crate::base::clock::Timestamp;
use crate::format::time::{Civil, zone};

const MINUTE_S: i64 = 60;
const HOUR_S: i64 = 3_600;

/// The fields of a cron expression, as bit sets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// One of the two day fields is `*`: then both must match, else one is enough.
    is_any_day: bool,
}

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Cron {
    /// Parses five fields; `None` if a CronJob would refuse them: Sunday is 0 only, and ranges do not run backwards.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else { return None };
        let is_any = |field: &str| matches!(field, "*" | "?");
        Some(Self {
            minutes: bits(minutes, 0, 59, &[], 0)?,
            hours: bits(hours, 0, 23, &[], 0)?,
            days: bits(days, 1, 31, &[], 0)?,
            months: bits(months, 1, 12, &MONTHS, 1)?,
            weekdays: bits(weekdays, 0, 6, &WEEKDAYS, 0)?,
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

    /// The first matching minute after `now` by the local time of a place (empty: UTC); `None` if there
    /// is none within `ahead`.
    pub(crate) fn next(&self, now: Timestamp, place: &str, ahead: Duration) -> Option<Timestamp> {
        let has = |bits: u64, n: u32| bits >> n & 1 == 1;
        let mut at = (now.unix() / MINUTE_S + 1) * MINUTE_S;
        let last = now.plus(ahead).unix();
        while at <= last {
            // UTC offsets change only at full quarters of an hour.
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
        if from > to {
            return None;
        }
        all |= (from..=to).step_by(step).fold(0, |all, n| all | 1_u64 << n);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::time::{parse_rfc3339, rfc3339};

    const AHEAD: Duration = Duration::from_secs(3 * 24 * 3_600);

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
            // One match is enough.
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
            let found = Cron::parse(text).unwrap().next(at("07-01T12:00:30"), place, AHEAD).map(rfc3339);
            assert_eq!(found, expected.map(|text| format!("2026-{text}Z")), "{text} {place}");
        }
        let sunday =
            |text: &str| Cron::parse(text).unwrap().next(at("07-04T00:00:00"), "", AHEAD).map(rfc3339);
        assert_eq!(sunday("0 8 * * 0"), sunday("0 8 * * sun"));
    }

    #[test]
    fn invalid_expressions() {
        for text in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 7",
            "* * * * fri-tue",
            "* 5-2 * * *",
            "a * * * *",
            "*/0 * * * *",
        ] {
            assert!(Cron::parse(text).is_none(), "{text:?}");
        }
    }
}
