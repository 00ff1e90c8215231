//! Points in time as text: RFC 3339 as API objects carry it, and Go's layouts ([`layout`]).

use std::fmt;

use crate::base::clock::Timestamp;

mod daytime;
pub mod layout;
pub(crate) mod seconds;
pub(crate) mod zone;

pub(crate) use daytime::time_of_day;

/// Why a text is not a point in time, in Go's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    message: String,
}

impl Error {
    /// A part of the text does not match its part of the layout.
    fn mismatch(text: &str, layout: &str, element: &str, rest: &str) -> Self {
        let (whole, like) = (quote(text), quote(layout));
        let message =
            format!("parsing time {whole} as {like}: cannot parse {} as {}", quote(rest), quote(element));
        Self { message }
    }

    /// The text matches the layout, but its value is not valid.
    fn refused(text: &str, why: &str) -> Self {
        Self { message: format!("parsing time {}: {why}", quote(text)) }
    }
}

/// As Go's `time` quotes: bytes that are not printable ASCII in hexadecimal.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for b in text.bytes() {
        match b {
            b'"' | b'\\' => out.extend(['\\', char::from(b)]),
            b' '..0x80 => out.push(char::from(b)),
            _ => out.push_str(&format!("\\x{b:02x}")),
        }
    }
    out + "\""
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// `2006-01-02T15:04:05Z`: times of API objects.
pub fn rfc3339(at: Timestamp) -> String {
    layout::format(at, 0, "2006-01-02T15:04:05Z07:00")
}

/// `2006-01-02T15:04:05.000000Z`: lease times.
pub(crate) fn rfc3339_micros(at: Timestamp) -> String {
    layout::format(at, 0, "2006-01-02T15:04:05.000000Z07:00")
}

/// `2006-01-02T15:04:05.999999999Z`: as many digits as needed.
pub fn rfc3339_nanos(at: Timestamp) -> String {
    layout::format(at, 0, "2006-01-02T15:04:05.999999999Z07:00")
}

/// Parses RFC 3339 with any fraction and offset. Errors: the text, if it is not RFC 3339 or names a day
/// that does not exist.
pub fn parse_rfc3339(text: &str) -> Result<Timestamp, Error> {
    layout::parse("2006-01-02T15:04:05Z07:00", text).map(|civil| civil.timestamp())
}

/// A point in time as the local date and time of one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// Year of the proleptic Gregorian calendar.
    pub(crate) year: i64,
    /// A number from 1 to 12.
    pub(crate) month: u32,
    /// A number from 1 to 31.
    pub(crate) day: u32,
    /// A number from 0 to 23.
    pub(crate) hour: u32,
    /// A number from 0 to 59.
    pub(crate) minute: u32,
    /// A number from 0 to 59.
    pub(crate) second: u32,
    /// Nanoseconds within the second.
    pub(crate) nanos: u32,
    /// Seconds east of Greenwich.
    pub(crate) offset_s: i32,
}

const DAY_S: i64 = 86_400;
/// Days in 400 years, after which the calendar repeats.
const ERA_DAYS: i64 = 146_097;
/// Days from 0000-03-01 to 1970-01-01.
const UNIX_DAYS: i64 = 719_468;

impl Civil {
    /// The local date and time `offset_s` seconds east of Greenwich.
    pub(crate) fn at(at: Timestamp, offset_s: i32) -> Self {
        Self::of_unix(at.unix(), at.subsec_nanos(), offset_s)
    }

    /// The same for seconds since 1970, even beyond the range of [`Timestamp`], which spans about
    /// 300 years around 1970.
    pub(crate) fn of_unix(unix_s: i64, nanos: u32, offset_s: i32) -> Self {
        const FAR_S: i64 = 10_000_000_000_000_000;
        let local = unix_s.clamp(-FAR_S, FAR_S) + i64::from(offset_s);
        let (days, second) = (local.div_euclid(DAY_S), local.rem_euclid(DAY_S));
        let (year, month, day) = date_of(days);
        let small = |n: i64| u32::try_from(n).unwrap_or(0);
        Self {
            year,
            month: small(month),
            day: small(day),
            hour: small(second / 3_600),
            minute: small(second / 60 % 60),
            second: small(second % 60),
            nanos,
            offset_s,
        }
    }

    /// The point in time.
    pub fn timestamp(&self) -> Timestamp {
        Timestamp::from_unix(self.unix()).offset(i64::from(self.nanos))
    }

    /// Seconds since 1970, rounded down.
    pub(crate) fn unix(&self) -> i64 {
        let clock = i64::from(self.hour) * 3_600 + i64::from(self.minute) * 60 + i64::from(self.second);
        self.days() * DAY_S + clock - i64::from(self.offset_s)
    }

    /// Days since 1970-01-01.
    fn days(&self) -> i64 {
        days_of(self.year, i64::from(self.month), i64::from(self.day))
    }

    /// 0 for Sunday to 6 for Saturday.
    pub(crate) fn weekday(&self) -> usize {
        // 1970-01-01 was a Thursday.
        usize::try_from((self.days() + 4).rem_euclid(7)).unwrap_or(0)
    }

    /// 1 for the first of January.
    pub(crate) fn year_day(&self) -> i64 {
        self.days() - days_of(self.year, 1, 1) + 1
    }

    fn exists(&self) -> bool {
        (1..=12).contains(&self.month)
            && self.day >= 1
            && self.day <= days_in(self.year, self.month)
            && self.hour < 24
            && self.minute < 60
            && self.second < 60
    }
}

/// The number of days of a month.
pub(crate) fn days_in(year: i64, month: u32) -> u32 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Year, month and day from days since 1970. The year starts in March, so that the leap day is the last day.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + UNIX_DAYS;
    let (era, day) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + next_year, month, day)
}

fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
    era * ERA_DAYS + year * 365 + year / 4 - year / 100 + (153 * month + 2) / 5 + day - 1 - UNIX_DAYS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_both_ways() {
        for (nanos, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000_000_000, "2000-02-29T00:00:00Z"),
            (1_709_164_800_000_000_000, "2024-02-29T00:00:00Z"),
            (1_735_689_599_000_000_000, "2024-12-31T23:59:59Z"),
            (-1_000_000_000, "1969-12-31T23:59:59Z"),
            (1_753_500_000_123_456_789, "2025-07-26T03:20:00.123456789Z"),
        ] {
            let at = Timestamp::from_unix_nanos(nanos);
            assert_eq!(rfc3339_nanos(at), text);
            assert_eq!(parse_rfc3339(text), Ok(at));
        }
        let at = Timestamp::from_unix_nanos(1_753_500_000_123_456_789);
        assert_eq!(rfc3339(at), "2025-07-26T03:20:00Z");
        assert_eq!(rfc3339_micros(at), "2025-07-26T03:20:00.123456Z");
        assert_eq!(parse_rfc3339("2025-07-26T05:20:00.1+02:00").unwrap().unix(), at.unix());
        assert_eq!(Civil::at(at, 0).weekday(), 6);
        assert_eq!(Civil::at(at, 0).year_day(), 207);
    }

    #[test]
    fn every_day_of_four_centuries_survives() {
        for days in -200_000..=200_000 {
            let (y, m, d) = date_of(days);
            assert_eq!(days_of(y, m, d), days);
        }
    }

    #[test]
    fn invalid_times_are_refused() {
        for text in [
            "",
            "2025-07-26",
            "2025-07-26 03:20:00Z",
            "2025-07-26T03:20:00",
            "2025-02-29T00:00:00Z",
            "2025-13-01T00:00:00Z",
            "2025-07-26T24:00:00Z",
            "2025-07-26T03:20:00Zx",
            "2025-07-26T03:20:00.Z",
            "2025-7-26T03:20:00Z",
        ] {
            assert!(parse_rfc3339(text).is_err(), "{text}");
        }
    }
}
