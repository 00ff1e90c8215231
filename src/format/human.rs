//! Times, sizes, numbers and shares for people: `2 h 5 min`, `3 s ago`, `in 89 days`, `1.2 MB`, `12 ms`, `1 chart`.

use std::time::Duration;

/// How long something lasts, in at most two units.
pub(crate) fn lasting(duration: Duration) -> String {
    let s = duration.as_secs();
    let (minutes, hours, days) = (s / 60, s / 3_600, s / 86_400);
    match s {
        0..60 => format!("{s} s"),
        60..3_600 => format!("{minutes} min"),
        3_600..86_400 => with_rest(format!("{hours} h"), minutes % 60, "min"),
        86_400..864_000 => with_rest(days_of(days), hours % 24, "h"),
        _ => days_of(days),
    }
}

/// How many there are of something, whose plural ends with s.
pub(crate) fn counted(count: usize, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// How many of the wanted pods there are, with the verb: `1 of 3 pods are`.
pub(crate) fn of_pods(count: i64, wanted: i64) -> String {
    if wanted == 1 { format!("{count} of 1 pod is") } else { format!("{count} of {wanted} pods are") }
}

fn days_of(days: u64) -> String {
    if days == 1 { "1 day".to_owned() } else { format!("{days} days") }
}

fn with_rest(text: String, rest: u64, unit: &str) -> String {
    if rest == 0 { text } else { format!("{text} {rest} {unit}") }
}

/// How long ago something was.
pub(crate) fn ago(age: Option<Duration>) -> String {
    age.map_or_else(|| "never".to_owned(), |age| format!("{} ago", lasting(age)))
}

/// A size, in powers of 1000.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = [("kB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000)];
    match units.into_iter().rev().find(|(_, size)| bytes >= *size) {
        None => format!("{bytes} bytes"),
        // One digit behind the point, rounded down.
        Some((unit, size)) if bytes < 100 * size => {
            format!("{}.{} {unit}", bytes / size, bytes % size * 10 / size)
        }
        Some((unit, size)) => format!("{} {unit}", bytes / size),
    }
}

/// How long a server takes.
pub(crate) fn latency(duration: Duration) -> String {
    let us = duration.as_micros();
    match us {
        0..1_000 => "under 1 ms".to_owned(),
        1_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{}.{} s", us / 1_000_000, us % 1_000_000 / 100_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_no_plural() {
        let table = [(0, "0 charts"), (1, "1 chart"), (2, "2 charts"), (21, "21 charts")];
        for (count, expected) in table {
            assert_eq!(counted(count, "chart"), expected);
        }
        let table = [((0, 1), "0 of 1 pod is"), ((1, 1), "1 of 1 pod is"), ((1, 3), "1 of 3 pods are")];
        for ((count, wanted), expected) in table {
            assert_eq!(of_pods(count, wanted), expected);
        }
    }

    #[test]
    fn times_have_at_most_two_units() {
        let table = [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (3_599, "59 min"),
            (3_600, "1 h"),
            (7_500, "2 h 5 min"),
            (86_399, "23 h 59 min"),
            (86_400, "1 day"),
            (90_000, "1 day 1 h"),
            (200_000, "2 days 7 h"),
            (864_000, "10 days"),
            (89 * 86_400 + 7_200, "89 days"),
        ];
        for (seconds, expected) in table {
            assert_eq!(lasting(Duration::from_secs(seconds)), expected, "{seconds}");
        }
        assert_eq!(ago(Some(Duration::from_secs(3))), "3 s ago");
        assert_eq!(ago(None), "never");
    }

    #[test]
    fn sizes_have_a_unit_that_fits() {
        let table = [
            (0, "0 bytes"),
            (999, "999 bytes"),
            (1_000, "1.0 kB"),
            (1_299_999, "1.2 MB"),
            (94_371_840, "94.3 MB"),
            (123_456_789, "123 MB"),
            (5_000_000_000, "5.0 GB"),
        ];
        for (size, expected) in table {
            assert_eq!(bytes(size), expected, "{size}");
        }
    }

    #[test]
    fn latencies_are_short() {
        let table = [(999, "under 1 ms"), (12_345, "12 ms"), (999_999, "999 ms"), (1_340_000, "1.3 s")];
        for (micros, expected) in table {
            assert_eq!(latency(Duration::from_micros(micros)), expected, "{micros}");
        }
    }
}
