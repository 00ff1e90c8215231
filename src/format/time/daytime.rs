//! Times of day with a zone, as in the maintenance windows of Shoots.

const DAY_S: i64 = 86_400;

/// The second of the UTC day of `HHMMSS+ZZZZ`; `None` if the text is not such a time.
pub(crate) fn time_of_day(text: &str) -> Option<i64> {
    let number = |from: usize, below: i64| {
        let digits = text.get(from..from + 2).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
        digits.parse::<i64>().ok().filter(|number| *number < below)
    };
    let east = match text.get(6..7)? {
        "+" => 1,
        "-" => -1,
        _ => return None,
    };
    if text.len() != 11 {
        return None;
    }
    let clock = number(0, 24)? * 3_600 + number(2, 60)? * 60 + number(4, 60)?;
    let offset = number(7, 24)? * 3_600 + number(9, 60)? * 60;
    Some((clock - east * offset).rem_euclid(DAY_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_read_in_their_zone() {
        let table = [
            ("000000+0000", Some(0)),
            ("235959+0000", Some(DAY_S - 1)),
            ("220000+0100", Some(21 * 3_600)),
            ("003000+0100", Some(23 * 3_600 + 1_800)),
            ("233000-0130", Some(3_600)),
            ("120000-1200", Some(0)),
            ("240000+0000", None),
            ("006000+0000", None),
            ("000060+0000", None),
            ("000000+2400", None),
            ("000000+0060", None),
            ("000000 0000", None),
            ("000000Z", None),
            ("000000+000", None),
            ("000000+00000", None),
            ("00000é+000", None),
            ("+10000+0000", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(time_of_day(text), expected, "{text}");
        }
    }
}
