//! Durations as Go writes them: `1h30m0s`, `250ms`.

use std::fmt;
use std::time::Duration;

/// A text that is not a duration, or not one that is allowed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    text: String,
    problem: &'static str,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "time: {} {:?}", self.problem, self.text)
    }
}

impl std::error::Error for Error {}

const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A duration for people, rounded: `20 s`, `5 min`, `3 h`, `12 days`. Small changes rarely change the text.
pub(crate) fn rough(duration: Duration) -> String {
    let s = duration.as_secs();
    match s {
        0..55 => format!("{} s", s.saturating_add(5) / 10 * 10),
        55..3_570 => format!("{} min", (s + 30) / 60),
        3_570..171_000 => format!("{} h", (s + 1_800) / 3_600),
        _ => format!("{} days", s.saturating_add(43_200) / 86_400),
    }
}

/// Parses a duration, which may be negative, into nanoseconds (Go's `time.ParseDuration`). Errors: the text,
/// if it is not a duration or does not fit.
pub fn parse_nanos(text: &str) -> Result<i64, Error> {
    let error = |problem| Error { text: text.to_owned(), problem };
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(error("invalid duration"));
    }
    let mut total = 0u64;
    while !rest.is_empty() {
        let number = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
        let (digits, after) = rest.split_at(number);
        let unit_len = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_len);
        if number == 0 || unit.is_empty() {
            return Err(error(if number == 0 { "invalid duration" } else { "missing unit in duration" }));
        }
        let scale = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, scale)| *scale);
        let scale = scale.ok_or_else(|| error("unknown unit in duration"))?;
        let nanos = scaled(digits, scale).ok_or_else(|| error("invalid duration"))?;
        total = total.checked_add(nanos).ok_or_else(|| error("invalid duration"))?;
        rest = after;
    }
    match (negative, i64::try_from(total)) {
        (false, Ok(n)) => Ok(n),
        (true, Ok(n)) => Ok(-n),
        (true, Err(_)) if total == 1 << 63 => Ok(i64::MIN),
        _ => Err(error("invalid duration")),
    }
}

/// Parses a duration that is not negative. Errors: the text, if it is not a duration, does not
/// fit, or is negative.
pub fn parse(text: &str) -> Result<Duration, Error> {
    let nanos = parse_nanos(text)?;
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .map_err(|_| Error { text: text.to_owned(), problem: "negative duration" })
}

/// Formats a duration (Go's `Duration.String`); a duration that is too long for Go becomes Go's longest.
pub fn format(duration: Duration) -> String {
    format_nanos(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}

/// Formats nanoseconds as a duration.
pub fn format_nanos(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let size = nanos.unsigned_abs();
    match size {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{size}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", fraction(size, 3)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", fraction(size, 6)),
        _ => {
            let minutes = size / 60_000_000_000;
            let seconds = fraction(size % 60_000_000_000, 9);
            match minutes {
                0 => format!("{sign}{seconds}s"),
                1..60 => format!("{sign}{minutes}m{seconds}s"),
                _ => format!("{sign}{}h{}m{seconds}s", minutes / 60, minutes % 60),
            }
        }
    }
}

/// `size / 10^digits`, without trailing zeros.
fn fraction(size: u64, digits: usize) -> String {
    let all = format!("{size:0>width$}", width = digits + 1);
    let (whole, fraction) = all.split_at(all.len() - digits);
    let fraction = fraction.trim_end_matches('0');
    if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") }
}

/// Multiplies `1.5` by a scale; digits beyond the scale are cut off.
fn scaled(digits: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return None;
    }
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Eighteen digits are finer than a nanosecond in every unit.
    let kept = &fraction[..fraction.len().min(18)];
    let part = match u32::try_from(kept.len()) {
        Ok(0) | Err(_) => 0,
        Ok(n) => u128::from(kept.parse::<u64>().ok()?) * u128::from(scale) / 10u128.pow(n),
    };
    whole.checked_mul(scale)?.checked_add(u64::try_from(part).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_for_people_are_rounded() {
        let table = [
            (0, "0 s"),
            (12, "10 s"),
            (58, "1 min"),
            (90, "2 min"),
            (3_599, "1 h"),
            (90_000, "25 h"),
            (259_200, "3 days"),
        ];
        for (s, expected) in table {
            assert_eq!(rough(Duration::from_secs(s)), expected, "{s}");
        }
    }

    #[test]
    fn durations_go_both_ways() {
        for (nanos, text) in [
            (0, "0s"),
            (1, "1ns"),
            (1_100, "1.1µs"),
            (2_200_000, "2.2ms"),
            (3_300_000_000, "3.3s"),
            (60_000_000_000, "1m0s"),
            (120_000_000_000, "2m0s"),
            (5_400_000_000_000, "1h30m0s"),
            (3_600_000_000_001, "1h0m0.000000001s"),
            (-1_500_000_000, "-1.5s"),
            (i64::MAX, "2562047h47m16.854775807s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(format_nanos(nanos), text);
            assert_eq!(parse_nanos(text), Ok(nanos));
        }
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(parse(".5s"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("1.h+".trim_end_matches('+')), Ok(Duration::from_secs(3_600)));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(format(Duration::MAX), "2562047h47m16.854775807s");
    }

    #[test]
    fn invalid_durations_are_refused() {
        for text in
            ["", "1", "-", "1d", "s", ".s", "1..5s", "1h 30m", "9999999h", "+-1s", "1e3s", "3000000h1ns"]
        {
            assert!(parse_nanos(text).is_err(), "{text:?}");
        }
        assert_eq!(parse("-1s").unwrap_err().to_string(), "time: negative duration \"-1s\"");
    }
}
