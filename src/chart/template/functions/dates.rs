//! Dates and durations. The local zone is UTC, as in a container, and so is a zone that the machine does not know.

use std::any::Any;
use std::num::{IntErrorKind, ParseIntError};

use super::{Args, Function, FunctionResult, fixed};
use crate::base::clock::Timestamp;
use crate::chart::value::Type::{Any as AnyType, Int, Native, Str};
use crate::chart::value::{Object, Signature, Value};
use crate::format::duration;
use crate::format::time::{Civil, layout, zone};

const TIME: &str = "time.Time";
const NANOS: i64 = 1_000_000_000;

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("now", &[], |a| Ok(Value::native(Time::at(a.engine.shared.options.clock.now())))),
    fixed("date", &[Str, AnyType], |a| Ok(time_of(a, 1).format(&a.str(0)).into())),
    fixed("dateInZone", &[Str, AnyType, Str], |a| Ok(time_of(a, 1).format_in(&a.str(2), &a.str(0)).into())),
    fixed("date_in_zone", &[Str, AnyType, Str], |a| Ok(time_of(a, 1).format_in(&a.str(2), &a.str(0)).into())),
    fixed("htmlDate", &[AnyType], |a| Ok(time_of(a, 0).format("2006-01-02").into())),
    fixed("htmlDateInZone", &[AnyType, Str], |a| Ok(time_of(a, 0).format_in(&a.str(1), "2006-01-02").into())),
    fixed("dateModify", &[Str, Native(TIME)], |a| Ok(modified(a).unwrap_or_else(|_| a.any(1).clone()))),
    fixed("date_modify", &[Str, Native(TIME)], |a| Ok(modified(a).unwrap_or_else(|_| a.any(1).clone()))),
    fixed("mustDateModify", &[Str, Native(TIME)], |a| Ok(modified(a)?)),
    fixed("must_date_modify", &[Str, Native(TIME)], |a| Ok(modified(a)?)),
    fixed("toDate", &[Str, Str], |a| Ok(Value::native(to_date(a).unwrap_or(Time::ZERO)))),
    fixed("mustToDate", &[Str, Str], |a| Ok(Value::native(to_date(a)?))),
    fixed("unixEpoch", &[Native(TIME)], |a| Ok(time_of(a, 0).unix().to_string().into())),
    fixed("ago", &[AnyType], ago),
    fixed("duration", &[AnyType], duration_text),
    fixed("durationRound", &[AnyType], duration_round),
];

/// A `time.Time`.
#[derive(Clone, Copy)]
struct Time(Civil);

impl Time {
    /// Go's zero time.
    const ZERO: Self =
        Self(Civil { year: 1, month: 1, day: 1, hour: 0, minute: 0, second: 0, nanos: 0, offset_s: 0 });

    fn at(at: Timestamp) -> Self {
        Self(Civil::at(at, 0))
    }

    fn utc(self) -> Self {
        Self(Civil::of_unix(self.unix(), self.0.nanos, 0))
    }

    /// Formats in UTC by a layout.
    fn format(self, layout: &str) -> String {
        layout::format_civil(&self.utc().0, layout)
    }

    /// Formats in the local time of a place.
    fn format_in(self, place: &str, layout: &str) -> String {
        let Some(zone) = zone::at(place, self.unix()) else { return self.format(layout) };
        let civil = Civil::of_unix(self.unix(), self.0.nanos, zone.offset_s);
        layout::format_named(&civil, &zone.name, layout)
    }

    fn unix(self) -> i64 {
        self.0.unix()
    }

    fn is_zero(self) -> bool {
        self.0 == Self::ZERO.0
    }
}

/// A date, a time of day, or both, with or without an offset.
pub(super) fn from_toml(text: &str) -> Option<Value> {
    const LAYOUTS: [&str; 7] = [
        "2006-01-02T15:04:05Z07:00",
        "2006-01-02T15:04:05",
        "2006-01-02",
        "15:04:05",
        "2006-01-02T15:04Z07:00",
        "2006-01-02T15:04",
        "15:04",
    ];
    let text = text.replacen([' ', 't'], "T", 1).replace('z', "Z");
    let (layout, civil) =
        LAYOUTS.iter().find_map(|layout| Some((layout, layout::parse(layout, &text).ok()?)))?;
    // Layouts accept an hour of one digit; TOML does not.
    let mut signs = layout.bytes().zip(text.bytes()).take_while(|(sign, _)| *sign != b'Z');
    let is_aligned = signs.all(|(sign, found)| sign.is_ascii_digit() || sign == found);
    is_aligned.then(|| Value::native(Time(civil)))
}

fn as_time(value: &Value) -> Option<Time> {
    match value {
        Value::Native(object) => object.as_any().downcast_ref::<Time>().copied(),
        _ => None,
    }
}

/// A time, or an integer as seconds since 1970; anything else means now.
fn time_of(a: &Args<'_>, index: usize) -> Time {
    match a.any(index) {
        Value::Int(i) | Value::Int64(i) => Time(Civil::of_unix(*i, 0, 0)),
        other => as_time(other).unwrap_or_else(|| Time::at(a.engine.shared.options.clock.now())),
    }
}

fn modified(a: &Args<'_>) -> Result<Value, String> {
    let nanos = duration::parse_nanos(&a.str(0)).map_err(|e| e.to_string())?;
    let time = as_time(a.any(1)).unwrap_or(Time::ZERO);
    time.later(0, nanos).map(Value::native)
}

fn to_date(a: &Args<'_>) -> Result<Time, String> {
    layout::parse(&a.str(0), &a.str(1)).map(Time).map_err(|e| e.to_string())
}

/// The time since then, in whole seconds.
fn ago(a: &Args<'_>) -> FunctionResult {
    let now = a.engine.shared.options.clock.now();
    let nanos = now.unix_nanos().saturating_sub(time_of(a, 0).0.timestamp().unix_nanos());
    let seconds = nanos.saturating_add(NANOS / 2).div_euclid(NANOS);
    Ok(duration::format_nanos(seconds.saturating_mul(NANOS)).into())
}

fn duration_text(a: &Args<'_>) -> FunctionResult {
    let seconds = match a.any(0) {
        Value::Int64(i) => *i,
        Value::Str(s) => number_or_limit(&s.to_str()),
        _ => 0,
    };
    Ok(duration::format_nanos(seconds.wrapping_mul(NANOS)).into())
}

/// Go's parser returns the nearest possible number together with its error, which sprig ignores.
fn number_or_limit(text: &str) -> i64 {
    text.parse().unwrap_or_else(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => i64::MAX,
        IntErrorKind::NegOverflow => i64::MIN,
        _ => 0,
    })
}

/// Only the largest unit, rounded down.
fn duration_round(a: &Args<'_>) -> FunctionResult {
    const HOUR: u64 = 3_600_000_000_000;
    const UNITS: [(u64, &str); 7] = [
        (24 * 365 * HOUR, "y"),
        (24 * 30 * HOUR, "mo"),
        (24 * HOUR, "d"),
        (HOUR, "h"),
        (HOUR / 60, "m"),
        (HOUR / 3_600, "s"),
        (0, ""),
    ];
    let nanos = match a.any(0) {
        Value::Int64(i) => *i,
        Value::Str(s) => duration::parse_nanos(&s.to_str()).unwrap_or(0),
        other => as_time(other).map_or(0, |t| {
            let now = a.engine.shared.options.clock.now();
            now.unix_nanos().saturating_sub(t.0.timestamp().unix_nanos())
        }),
    };
    let size = nanos.unsigned_abs();
    let text = UNITS.iter().find(|(unit, _)| *unit > 0 && size > *unit);
    Ok(text.map_or_else(|| "0s".to_owned(), |(unit, name)| format!("{}{name}", size / unit)).into())
}

impl Object for Time {
    fn type_name(&self) -> &'static str {
        TIME
    }

    fn display(&self) -> String {
        let zone = if self.0.offset_s == 0 { "MST" } else { "-0700" };
        layout::format_civil(&self.0, &format!("2006-01-02 15:04:05.999999999 -0700 {zone}"))
    }

    fn to_json(&self) -> serde_json::Value {
        layout::format_civil(&self.0, "2006-01-02T15:04:05.999999999Z07:00").into()
    }

    fn is_plain_in_yaml(&self) -> bool {
        true
    }

    fn method(&self, name: &str) -> Option<Signature> {
        let fixed: &[_] = match name {
            "Format" => &[Str],
            "AddDate" => &[Int, Int, Int],
            "Before" | "After" | "Equal" => &[Native(TIME)],
            "Unix" | "UnixMilli" | "UnixMicro" | "UnixNano" | "Year" | "Month" | "Day" | "Hour"
            | "Minute" | "Second" | "Nanosecond" | "YearDay" | "Weekday" | "UTC" | "Local" | "IsZero"
            | "String" => &[],
            _ => return None,
        };
        Some(Signature { fixed, variadic: None })
    }

    fn call(&self, name: &str, args: &[Value]) -> Result<Value, String> {
        let civil = &self.0;
        let layout = |layout: &str| layout::format_civil(civil, layout);
        let nanos = || civil.timestamp().unix_nanos();
        let other = args.first().and_then(as_time).map(|t| t.0.timestamp());
        Ok(match name {
            "Format" => {
                args.first().and_then(Value::as_text).map(|t| layout(&t.to_str())).unwrap_or_default().into()
            }
            "AddDate" => Value::native(self.add_date(args)?),
            "Before" => other.is_some_and(|o| civil.timestamp() < o).into(),
            "After" => other.is_some_and(|o| civil.timestamp() > o).into(),
            "Equal" => other.is_some_and(|o| civil.timestamp() == o).into(),
            "Unix" => Value::Int64(self.unix()),
            "UnixMilli" => Value::Int64(nanos().div_euclid(1_000_000)),
            "UnixMicro" => Value::Int64(nanos().div_euclid(1_000)),
            "UnixNano" => Value::Int64(nanos()),
            "Year" => Value::Int(civil.year),
            "Month" => layout("January").into(),
            "Day" => Value::Int(civil.day.into()),
            "Hour" => Value::Int(civil.hour.into()),
            "Minute" => Value::Int(civil.minute.into()),
            "Second" => Value::Int(civil.second.into()),
            "Nanosecond" => Value::Int(civil.nanos.into()),
            "YearDay" => Value::Int(civil.year_day()),
            "Weekday" => layout("Monday").into(),
            "UTC" | "Local" => Value::native(self.utc()),
            "IsZero" => self.is_zero().into(),
            _ => self.display().into(),
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Time {
    /// Adds years, months and days; days beyond the end of a month overflow into the next.
    fn add_date(&self, args: &[Value]) -> Result<Self, String> {
        let number = |i: usize| match args.get(i) {
            Some(Value::Int(n)) => *n,
            _ => 0,
        };
        let years = self.0.year.checked_add(number(0)).and_then(|year| year.checked_mul(12));
        let months = years.and_then(|months| months.checked_add(number(1))).ok_or(OUT_OF_RANGE)?;
        let months = months.checked_add(i64::from(self.0.month) - 1).ok_or(OUT_OF_RANGE)?;
        let days = number(2).checked_add(i64::from(self.0.day) - 1).ok_or(OUT_OF_RANGE)?;
        let month = u32::try_from(months.rem_euclid(12) + 1).unwrap_or(1);
        let year = months.div_euclid(12);
        if year.abs() > YEAR_MAX {
            return Err(OUT_OF_RANGE.to_owned());
        }
        let first = Self(Civil { year, month, day: 1, ..self.0 });
        first.later(days.checked_mul(86_400).ok_or(OUT_OF_RANGE)?, 0)
    }

    /// The time `seconds` and `nanos` later, in the same zone.
    fn later(self, seconds: i64, nanos: i64) -> Result<Self, String> {
        let nanos = i64::from(self.0.nanos).checked_add(nanos).ok_or(OUT_OF_RANGE)?;
        let unix = self.unix().checked_add(seconds).and_then(|s| s.checked_add(nanos.div_euclid(NANOS)));
        let rest = u32::try_from(nanos.rem_euclid(NANOS)).unwrap_or(0);
        let later = Civil::of_unix(unix.ok_or(OUT_OF_RANGE)?, rest, self.0.offset_s);
        if later.year.abs() > YEAR_MAX { Err(OUT_OF_RANGE.to_owned()) } else { Ok(Self(later)) }
    }
}

/// Go accepts more years, and then its numbers overflow.
const YEAR_MAX: i64 = 100_000_000;
const OUT_OF_RANGE: &str = "date is out of range";
