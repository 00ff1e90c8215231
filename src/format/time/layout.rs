//! Go's time layouts: a pattern is the reference time (Mon Jan 2 15:04:05 MST 2006), written in the desired format.

use super::{Civil, Error};
use crate::base::clock::Timestamp;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// Formats a point in time by a layout, `offset_s` seconds east of Greenwich.
pub fn format(at: Timestamp, offset_s: i32, layout: &str) -> String {
    format_civil(&Civil::at(at, offset_s), layout)
}

/// Formats a local date and time by a layout.
pub(crate) fn format_civil(civil: &Civil, layout: &str) -> String {
    format_named(civil, "", layout)
}

/// Like [`format_civil`], with the name of the zone if the layout contains it.
pub(crate) fn format_named(civil: &Civil, zone: &str, layout: &str) -> String {
    let mut out = String::new();
    let mut rest = layout;
    while let Some((literal, element, after)) = next(rest) {
        out.push_str(literal);
        element.write(civil, zone, &mut out);
        rest = after;
    }
    out + rest
}

/// Parses a text by a layout; without a zone it is UTC. Errors: the text and the layout, if they do not match
/// or the date does not exist.
pub fn parse(layout: &str, text: &str) -> Result<Civil, Error> {
    let mut reading = Reading::default();
    let (mut pattern, mut input) = (layout, text);
    while let Some((literal, element, after)) = next(pattern) {
        let mismatch = |part: &str, rest: &str| Error::mismatch(text, layout, part, rest);
        input = skip(input, literal).map_err(|rest| mismatch(literal, rest))?;
        let spelling = &pattern[literal.len()..pattern.len() - after.len()];
        let rest = element.read(input, &mut reading).ok_or_else(|| mismatch(spelling, input))?;
        if let Some(what) = element.out_of_range(&reading) {
            return Err(Error::refused(text, &format!("{what} out of range")));
        }
        input = rest;
        if element == Element::Second(true) || element == Element::Second(false) {
            // A fraction is accepted even where the layout has none.
            let fraction_follows = matches!(next(after), Some(("", Element::Fraction { .. }, _)));
            if !fraction_follows {
                input = fraction(input, &mut reading);
            }
        }
        pattern = after;
    }
    let rest = skip(input, pattern).map_err(|rest| Error::mismatch(text, layout, pattern, rest))?;
    if !rest.is_empty() {
        return Err(Error::refused(text, &format!("extra text: {}", super::quote(rest))));
    }
    reading.civil().ok_or_else(|| Error::refused(text, "day out of range"))
}

/// Skips the literal part of a layout; a blank matches any number of blanks, none at the end. The error is the position
/// where the input differs.
fn skip<'a>(mut input: &'a str, mut literal: &str) -> Result<&'a str, &'a str> {
    while let Some(c) = literal.chars().next() {
        if c == ' ' {
            if !input.is_empty() && !input.starts_with(' ') {
                return Err(input);
            }
            literal = literal.trim_start_matches(' ');
            input = input.trim_start_matches(' ');
            continue;
        }
        input = input.strip_prefix(c).ok_or(input)?;
        literal = &literal[c.len_utf8()..];
    }
    Ok(input)
}

/// One element of a layout. A flag selects padding with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Year,
    ShortYear,
    Month(bool),
    MonthName { short: bool },
    Day(bool),
    BlankDay,
    YearDay { zero: bool },
    Weekday { short: bool },
    Hour,
    Hour12(bool),
    Minute(bool),
    Second(bool),
    Fraction { digits: usize, trim: bool },
    HalfDay { upper: bool },
    ZoneName,
    Zone { z: bool, colon: bool, minutes: bool, seconds: bool },
}

/// Elements and their spellings. Longer spellings come before their prefixes.
const ELEMENTS: [(&str, Element); 37] = {
    use Element::{
        BlankDay, Day, HalfDay, Hour, Hour12, Minute, Month, MonthName, Second, ShortYear, Weekday, Year,
        YearDay, Zone, ZoneName,
    };
    const fn zone(z: bool, colon: bool, minutes: bool, seconds: bool) -> Element {
        Zone { z, colon, minutes, seconds }
    }
    [
        ("January", MonthName { short: false }),
        ("Jan", MonthName { short: true }),
        ("Monday", Weekday { short: false }),
        ("Mon", Weekday { short: true }),
        ("MST", ZoneName),
        ("002", YearDay { zero: true }),
        ("01", Month(true)),
        ("02", Day(true)),
        ("03", Hour12(true)),
        ("04", Minute(true)),
        ("05", Second(true)),
        ("06", ShortYear),
        ("15", Hour),
        ("1", Month(false)),
        ("2006", Year),
        ("2", Day(false)),
        ("__2", YearDay { zero: false }),
        ("_2", BlankDay),
        ("3", Hour12(false)),
        ("4", Minute(false)),
        ("5", Second(false)),
        ("PM", HalfDay { upper: true }),
        ("pm", HalfDay { upper: false }),
        ("-07:00:00", zone(false, true, true, true)),
        ("-070000", zone(false, false, true, true)),
        ("-07:00", zone(false, true, true, false)),
        ("-0700", zone(false, false, true, false)),
        ("-07", zone(false, false, false, false)),
        ("Z07:00:00", zone(true, true, true, true)),
        ("Z070000", zone(true, false, true, true)),
        ("Z07:00", zone(true, true, true, false)),
        ("Z0700", zone(true, false, true, false)),
        ("Z07", zone(true, false, false, false)),
        // The table never matches these: a fraction has any number of digits.
        (".0", Element::Fraction { digits: 1, trim: false }),
        (",0", Element::Fraction { digits: 1, trim: false }),
        (".9", Element::Fraction { digits: 1, trim: true }),
        (",9", Element::Fraction { digits: 1, trim: true }),
    ]
};

/// The first element of a layout: the text before it, the element, and the text after it.
fn next(layout: &str) -> Option<(&str, Element, &str)> {
    for (at, _) in layout.char_indices() {
        let rest = &layout[at..];
        if let Some(after) = rest.strip_prefix("_2006") {
            return Some((&layout[..=at], Element::Year, after));
        }
        for (spelling, element) in ELEMENTS {
            let Some(after) = rest.strip_prefix(spelling) else { continue };
            match element {
                Element::Fraction { trim, .. } => {
                    let digit = if trim { '9' } else { '0' };
                    let after = rest[1..].trim_start_matches(digit);
                    if after.starts_with(|c: char| c.is_ascii_digit()) {
                        continue;
                    }
                    let digits = rest.len() - after.len() - 1;
                    return Some((&layout[..at], Element::Fraction { digits, trim }, after));
                }
                Element::MonthName { short: true } | Element::Weekday { short: true }
                    if after.starts_with(|c: char| c.is_ascii_lowercase()) => {}
                _ => return Some((&layout[..at], element, after)),
            }
        }
    }
    None
}

impl Element {
    fn write(self, civil: &Civil, zone: &str, out: &mut String) {
        let number = |n: u32, zero: bool| if zero { format!("{n:02}") } else { n.to_string() };
        let name = |name: &str, short: bool| if short { name[..3].to_owned() } else { name.to_owned() };
        let month = usize::try_from(civil.month - 1).unwrap_or(0) % 12;
        out.push_str(&match self {
            Self::Year => format!("{:04}", civil.year),
            Self::ShortYear => format!("{:02}", civil.year.rem_euclid(100)),
            Self::Month(zero) => number(civil.month, zero),
            Self::MonthName { short } => name(MONTHS[month], short),
            Self::Day(zero) => number(civil.day, zero),
            Self::BlankDay => format!("{:2}", civil.day),
            Self::YearDay { zero: true } => format!("{:03}", civil.year_day()),
            Self::YearDay { zero: false } => format!("{:3}", civil.year_day()),
            Self::Weekday { short } => name(DAYS[civil.weekday()], short),
            Self::Hour => number(civil.hour, true),
            Self::Hour12(zero) => number((civil.hour + 11) % 12 + 1, zero),
            Self::Minute(zero) => number(civil.minute, zero),
            Self::Second(zero) => number(civil.second, zero),
            Self::Fraction { digits, trim } => fraction_text(civil.nanos, digits, trim),
            Self::HalfDay { upper } => {
                let text = if civil.hour < 12 { "AM" } else { "PM" };
                if upper { text.to_owned() } else { text.to_lowercase() }
            }
            Self::ZoneName if !zone.is_empty() => zone.to_owned(),
            Self::ZoneName if civil.offset_s == 0 => "UTC".to_owned(),
            Self::ZoneName => {
                zone_text(civil.offset_s, false, civil.offset_s % 3_600 != 0, civil.offset_s % 60 != 0)
            }
            Self::Zone { z: true, .. } if civil.offset_s == 0 => "Z".to_owned(),
            Self::Zone { colon, minutes, seconds, .. } => zone_text(civil.offset_s, colon, minutes, seconds),
        });
    }

    /// Reads this element and returns the rest of the input.
    fn read<'a>(self, input: &'a str, reading: &mut Reading) -> Option<&'a str> {
        let (value, rest) = match self {
            Self::Year => digits(input, 4, 4)?,
            Self::YearDay { zero } => digits(if zero { input } else { input.trim_start() }, 1, 3)?,
            Self::ShortYear | Self::Hour => digits(input, if self == Self::Hour { 1 } else { 2 }, 2)?,
            Self::Month(zero)
            | Self::Day(zero)
            | Self::Hour12(zero)
            | Self::Minute(zero)
            | Self::Second(zero) => digits(input, if zero { 2 } else { 1 }, 2)?,
            Self::BlankDay => digits(input.strip_prefix(' ').unwrap_or(input), 1, 2)?,
            Self::MonthName { short } => named(input, &MONTHS, short)?,
            Self::Weekday { short } => named(input, &DAYS, short)?,
            Self::Fraction { .. } => return Some(fraction(input, reading)),
            Self::HalfDay { upper } => half_day(input, upper)?,
            Self::ZoneName => {
                let letters = input.bytes().take_while(u8::is_ascii_uppercase).count();
                return (3..=5).contains(&letters).then(|| &input[letters..]);
            }
            Self::Zone { z, colon, minutes, seconds } => {
                if let Some(rest) = input.strip_prefix('Z').filter(|_| z) {
                    return Some(rest);
                }
                return zone(input, colon, minutes, seconds, reading);
            }
        };
        self.store(value, reading);
        Some(rest)
    }

    /// The name of a value that was read but does not exist.
    fn out_of_range(self, reading: &Reading) -> Option<&'static str> {
        let (name, fits) = match self {
            Self::Month(_) => ("month", reading.month.is_some_and(|m| (1..=12).contains(&m))),
            Self::Hour => ("hour", reading.hour < 24),
            Self::Hour12(_) => ("hour", reading.hour <= 12),
            Self::Minute(_) => ("minute", reading.minute < 60),
            Self::Second(_) => ("second", reading.second < 60),
            _ => return None,
        };
        (!fits).then_some(name)
    }

    fn store(self, value: u32, reading: &mut Reading) {
        match self {
            Self::Year => reading.year = i64::from(value),
            Self::ShortYear => reading.year = i64::from(if value >= 69 { 1_900 } else { 2_000 } + value),
            Self::Month(_) => reading.month = Some(value),
            Self::MonthName { .. } => reading.month = Some(value + 1),
            Self::Day(_) | Self::BlankDay => reading.day = Some(value),
            Self::YearDay { .. } => reading.year_day = Some(value),
            Self::Hour | Self::Hour12(_) => reading.hour = value,
            Self::Minute(_) => reading.minute = value,
            Self::Second(_) => reading.second = value,
            Self::HalfDay { .. } => reading.afternoon = Some(value == 1),
            Self::Weekday { .. } | Self::Fraction { .. } | Self::ZoneName | Self::Zone { .. } => {}
        }
    }
}

/// The values read so far.
#[derive(Default)]
struct Reading {
    year: i64,
    month: Option<u32>,
    day: Option<u32>,
    year_day: Option<u32>,
    hour: u32,
    minute: u32,
    second: u32,
    nanos: u32,
    afternoon: Option<bool>,
    offset_s: i32,
}

impl Reading {
    fn civil(&self) -> Option<Civil> {
        let hour = match self.afternoon {
            Some(true) if self.hour < 12 => self.hour + 12,
            Some(false) if self.hour == 12 => 0,
            _ => self.hour,
        };
        let (mut month, mut day) = (self.month.unwrap_or(1), self.day.unwrap_or(1));
        if let (Some(year_day), None) = (self.year_day, self.month) {
            month = 1;
            day = year_day;
            while month <= 12 && day > super::days_in(self.year, month) {
                day -= super::days_in(self.year, month);
                month += 1;
            }
        }
        let civil = Civil {
            year: self.year,
            month,
            day,
            hour,
            minute: self.minute,
            second: self.second,
            nanos: self.nanos,
            offset_s: self.offset_s,
        };
        civil.exists().then_some(civil)
    }
}

/// At least `min` and at most `max` digits.
fn digits(input: &str, min: usize, max: usize) -> Option<(u32, &str)> {
    let count = input.bytes().take(max).take_while(u8::is_ascii_digit).count();
    (count >= min).then_some(())?;
    Some((input[..count].parse().ok()?, &input[count..]))
}

fn named<'a>(input: &'a str, names: &[&str], short: bool) -> Option<(u32, &'a str)> {
    for (value, name) in (0u32..).zip(names) {
        let name = if short { &name[..3] } else { name };
        if input.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name)) {
            return Some((value, &input[name.len()..]));
        }
    }
    None
}

fn half_day(input: &str, upper: bool) -> Option<(u32, &str)> {
    let (am, pm) = if upper { ("AM", "PM") } else { ("am", "pm") };
    input.strip_prefix(am).map(|rest| (0, rest)).or_else(|| input.strip_prefix(pm).map(|rest| (1, rest)))
}

/// Reads a fraction of a second, if there is one.
fn fraction<'a>(input: &'a str, reading: &mut Reading) -> &'a str {
    let Some(after) = input.strip_prefix(['.', ',']) else { return input };
    let count = after.bytes().take_while(u8::is_ascii_digit).count();
    if count == 0 {
        return input;
    }
    let kept = count.min(9);
    reading.nanos = format!("{:0<9}", &after[..kept]).parse().unwrap_or(0);
    &after[count..]
}

fn fraction_text(nanos: u32, digits: usize, trim: bool) -> String {
    let all = format!("{nanos:09}");
    let shown = &all[..digits.min(9)];
    let shown = if trim { shown.trim_end_matches('0') } else { shown };
    if shown.is_empty() { String::new() } else { format!(".{shown}") }
}

fn zone<'a>(
    input: &'a str,
    colon: bool,
    minutes: bool,
    seconds: bool,
    reading: &mut Reading,
) -> Option<&'a str> {
    let (sign, mut rest) =
        input.strip_prefix('-').map(|r| (-1, r)).or_else(|| input.strip_prefix('+').map(|r| (1, r)))?;
    let mut offset_s = 0;
    for (wanted, unit_s, max) in [(true, 3_600, 24), (minutes, 60, 60), (seconds, 1, 60)] {
        if !wanted {
            continue;
        }
        if colon && unit_s != 3_600 {
            rest = rest.strip_prefix(':')?;
        }
        let (value, after) = digits(rest, 2, 2)?;
        (value <= max).then_some(())?;
        offset_s += i32::try_from(value).ok()? * unit_s;
        rest = after;
    }
    reading.offset_s = sign * offset_s;
    Some(rest)
}

fn zone_text(offset_s: i32, colon: bool, minutes: bool, seconds: bool) -> String {
    let sign = if offset_s < 0 { '-' } else { '+' };
    let size = offset_s.unsigned_abs();
    let colon = if colon { ":" } else { "" };
    let mut text = format!("{sign}{:02}", size / 3_600);
    if minutes {
        text.push_str(&format!("{colon}{:02}", size / 60 % 60));
    }
    if seconds {
        text.push_str(&format!("{colon}{:02}", size % 60));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_write_what_go_writes() {
        // 2025-07-06 15:04:05.0120 UTC
        let at = Timestamp::from_unix_nanos(1_751_814_245_012_000_000);
        for (layout, text) in [
            ("2006-01-02", "2025-07-06"),
            ("Mon, 02 Jan 2006 15:04:05 MST", "Sun, 06 Jul 2025 15:04:05 UTC"),
            ("Monday, January _2 2006 3:04PM", "Sunday, July  6 2025 3:04PM"),
            ("06/1/2 03:4:5 pm", "25/7/6 03:4:5 pm"),
            ("15:04:05.000 .999999", "15:04:05.012 .012"),
            ("002 __2 _2006", "187 187 _2025"),
            ("Z07:00 -0700 Z07 -07:00:00", "Z +0000 Z +00:00:00"),
            ("20060102150405", "20250706150405"),
            ("Januaryish Monte x", "Julyish Monte x"),
            ("", ""),
        ] {
            assert_eq!(format(at, 0, layout), text, "{layout}");
        }
        assert_eq!(format(at, 5_400 * 3, "15:04 Z07:00 MST"), "19:34 +04:30 +0430");
        assert_eq!(format(at, -3_600, "15:04 -0700"), "14:04 -0100");
    }

    #[test]
    fn layouts_read_what_they_write() {
        let at = Timestamp::from_unix_nanos(1_751_814_245_012_000_000);
        for layout in [
            "Mon, 02 Jan 2006 15:04:05.000 MST",
            "Monday, January _2 2006 3:04:05.999 PM",
            "2006-002 15:04:05.000 -0700",
            "2006-1-2 15:4:5",
        ] {
            let text = format(at, 0, layout);
            let read = parse(layout, &text).unwrap().timestamp();
            assert_eq!(read.unix(), at.unix(), "{text}");
        }
        assert_eq!(parse("2006-01-02", "2025-02-30").ok(), None);
        assert_eq!(parse("2006-01-02", "2025-02-03x").ok(), None);
        assert_eq!(parse("15:04:05", "01:02:03.5").unwrap().nanos, 500_000_000);
        assert_eq!(parse("3:04 PM", "12:30 AM").unwrap().hour, 0);
        assert_eq!(parse("06", "70").unwrap().year, 1970);
    }
}
