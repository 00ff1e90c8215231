//! Time zones of the machine: offset and abbreviation at a place, from the compiled files of the tz database (RFC
//! 9636).

use std::path::Path;

use super::{Civil, DAY_S, days_in, days_of};
use crate::base::capped;
use crate::limits::ZONE_FILE_BYTES_MAX;

const DIRECTORY: &str = "/usr/share/zoneinfo";

/// Offset and abbreviation of a place at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    /// Seconds east of Greenwich.
    pub(crate) offset_s: i32,
    /// `CEST`
    pub(crate) name: String,
}

/// The offset of a place such as `Europe/Berlin`, `unix_s` seconds after 1970; `None` if the machine has no such zone.
pub(crate) fn at(place: &str, unix_s: i64) -> Option<Zone> {
    // As in Go: a name cannot leave the directory.
    if place.is_empty() || place.starts_with(['/', '\\']) || place.contains("..") {
        return None;
    }
    let data = capped::read_file(&Path::new(DIRECTORY).join(place), ZONE_FILE_BYTES_MAX).ok()?;
    look_up(&data, unix_s)
}

fn look_up(data: &[u8], unix_s: i64) -> Option<Zone> {
    if data.len() > ZONE_FILE_BYTES_MAX {
        return None;
    }
    let mut input = data;
    let mut table = TransitionTable::read(&mut input, 4)?;
    // From version 2 on, the file repeats the table with 64-bit times and adds a rule for later times.
    let mut rule = None;
    if data.get(4)? > &0 {
        table = TransitionTable::read(&mut input, 8)?;
        rule = std::str::from_utf8(input).ok().and_then(|text| text.strip_prefix('\n')?.strip_suffix('\n'));
    }
    let times = table.times.chunks_exact(table.width).map(number);
    let passed = times.take_while(|time| *time <= unix_s).count();
    let later = if passed == table.kinds.len() { rule.and_then(|rule| by_rule(rule, unix_s)) } else { None };
    later.or_else(|| {
        let kind = if passed > 0 { *table.kinds.get(passed - 1)? } else { table.first() };
        table.zone(kind)
    })
}

fn take<'d>(input: &mut &'d [u8], size: usize) -> Option<&'d [u8]> {
    let (head, rest) = input.split_at_checked(size)?;
    *input = rest;
    Some(head)
}

fn number(bytes: &[u8]) -> i64 {
    let negative = bytes.first().is_some_and(|b| *b > 0x7f);
    bytes.iter().fold(if negative { -1 } else { 0 }, |n, b| n << 8 | i64::from(*b))
}

/// The transitions, and the offset after each.
struct TransitionTable<'d> {
    times: &'d [u8],
    /// The size of each time in bytes.
    width: usize,
    kinds: &'d [u8],
    types: &'d [u8],
    names: &'d [u8],
}

impl<'d> TransitionTable<'d> {
    fn read(input: &mut &'d [u8], width: usize) -> Option<Self> {
        (take(input, 4)? == b"TZif").then_some(())?;
        take(input, 16)?;
        let mut counts = [0; 6];
        for count in &mut counts {
            *count = usize::try_from(number(take(input, 4)?)).ok()?;
        }
        let [universal, standard, leaps, times, types, names] = counts;
        let table = Self {
            times: take(input, times.checked_mul(width)?)?,
            width,
            kinds: take(input, times)?,
            types: take(input, types.checked_mul(6)?)?,
            names: take(input, names)?,
        };
        take(input, leaps.checked_mul(width + 4)?)?;
        take(input, standard)?;
        take(input, universal)?;
        Some(table)
    }

    /// The offset before the first transition: the first one without summer time, as Go guesses.
    fn first(&self) -> u8 {
        let mut kinds = (0..).zip(self.types.chunks_exact(6));
        let standard = kinds.find(|(_, kind)| kind[4] == 0);
        if self.kinds.contains(&0) { standard.map_or(0, |(kind, _)| kind) } else { 0 }
    }

    fn zone(&self, kind: u8) -> Option<Zone> {
        let kind = self.types.chunks_exact(6).nth(kind.into())?;
        let name = self.names.get(usize::from(kind[5])..)?.split(|b| *b == 0).next()?;
        let offset_s = i32::try_from(number(&kind[..4])).ok()?;
        Some(Zone { offset_s, name: String::from_utf8_lossy(name).into_owned() })
    }
}

/// Applies a POSIX rule: `CET-1CEST,M3.5.0,M10.5.0/3`.
fn by_rule(rule: &str, unix_s: i64) -> Option<Zone> {
    let mut rule = RuleText(rule);
    let name = rule.name()?;
    let standard = Zone { offset_s: -rule.clock()?, name };
    if rule.0.is_empty() {
        return Some(standard);
    }
    let name = rule.name()?;
    let offset_s = if rule.0.starts_with(',') { standard.offset_s + 3_600 } else { -rule.clock()? };
    let summer = Zone { offset_s, name };
    let year = Civil::of_unix(unix_s, 0, 0).year;
    let start = rule.change(year)? - i64::from(standard.offset_s);
    let end = rule.change(year)? - i64::from(summer.offset_s);
    let is_summer =
        if start <= end { (start..end).contains(&unix_s) } else { !(end..start).contains(&unix_s) };
    rule.0.is_empty().then_some(if is_summer { summer } else { standard })
}

/// The unread rest of a rule.
struct RuleText<'r>(&'r str);

impl RuleText<'_> {
    fn eat(&mut self, c: char) -> bool {
        let rest = self.0.strip_prefix(c);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn name(&mut self) -> Option<String> {
        let quoted = self.eat('<');
        let ends = |c: char| if quoted { c == '>' } else { !c.is_ascii_alphabetic() };
        let (name, rest) = self.0.split_at(self.0.find(ends).unwrap_or(self.0.len()));
        self.0 = rest;
        (name.len() >= 3 && quoted == self.eat('>')).then(|| name.to_owned())
    }

    /// A number of at most three digits.
    fn digits(&mut self) -> Option<i32> {
        let end = self.0.find(|c: char| !c.is_ascii_digit()).unwrap_or(self.0.len());
        let (number, rest) = self.0.split_at(end);
        self.0 = rest;
        number.parse().ok().filter(|n| *n < 1_000)
    }

    /// `-1:30` in seconds.
    fn clock(&mut self) -> Option<i32> {
        let sign = if self.eat('-') { -1 } else { 1 };
        self.eat('+');
        let mut seconds = 0;
        for unit_s in [3_600, 60, 1] {
            if unit_s == 3_600 || self.eat(':') {
                seconds += self.digits()? * unit_s;
            }
        }
        Some(sign * seconds)
    }

    /// The transition in a year: seconds since 1970 by the clock before the transition.
    fn change(&mut self, year: i64) -> Option<i64> {
        self.eat(',').then_some(())?;
        let january = days_of(year, 1, 1);
        let day = if self.eat('M') {
            let month = u32::try_from(self.digits()?).ok().filter(|m| (1..=12).contains(m))?;
            let mut parts = [0; 2];
            for part in &mut parts {
                self.eat('.').then_some(())?;
                *part = i64::from(self.digits()?);
            }
            let first = days_of(year, month.into(), 1);
            // 1970-01-01 was a Thursday.
            let day = (parts[1] - first - 4).rem_euclid(7) + (parts[0] - 1) * 7;
            first + if day >= days_in(year, month).into() { day - 7 } else { day }
        } else if self.eat('J') {
            let day = i64::from(self.digits()?);
            january + day - 1 + i64::from(day > 59 && days_in(year, 2) > 28)
        } else {
            january + i64::from(self.digits()?)
        };
        let clock_s = if self.eat('/') { self.clock()? } else { 7_200 };
        Some(day * DAY_S + i64::from(clock_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two transitions: to summer time at 1000, and back at 2000.
    fn file(rule: &str) -> Vec<u8> {
        let table = |width: usize| {
            let mut data = b"TZif2".to_vec();
            data.extend([0; 15]);
            for count in [0u32, 0, 1, 2, 3, 12] {
                data.extend(count.to_be_bytes());
            }
            for time in [1_000i64, 2_000] {
                data.extend(&time.to_be_bytes()[8 - width..]);
            }
            data.extend([2, 1]);
            for (offset_s, summer, name) in [(3_208i32, 0, 0), (3_600, 0, 4), (7_200, 1, 8)] {
                data.extend(offset_s.to_be_bytes());
                data.extend([summer, name]);
            }
            data.extend(b"LMT\0STD\0SUM\0");
            data.extend(vec![0; width + 4]);
            data
        };
        [table(4), table(8), format!("\n{rule}\n").into_bytes()].concat()
    }

    fn shown(data: &[u8], unix_s: i64) -> String {
        look_up(data, unix_s).map_or_else(String::new, |zone| format!("{} {}", zone.name, zone.offset_s))
    }

    #[test]
    fn clocks_follow_the_table_and_then_the_rule() {
        let data = file("<+01>-1SUM,M3.5.0,M10.5.0/3");
        for (unix_s, zone) in [
            (-5_000_000_000, "LMT 3208"),
            (999, "LMT 3208"),
            (1_000, "SUM 7200"),
            (1_999, "SUM 7200"),
            (2_000, "+01 3600"),
            // 2024-03-31 and 2024-10-27, at 01:00 UTC.
            (1_711_846_799, "+01 3600"),
            (1_711_846_800, "SUM 7200"),
            (1_729_990_799, "SUM 7200"),
            (1_729_990_800, "+01 3600"),
        ] {
            assert_eq!(shown(&data, unix_s), zone, "{unix_s}");
        }
        assert_eq!(shown(&file(""), 5_000), "STD 3600", "without a rule the last change lasts");
        assert_eq!(shown(&file("A"), 5_000), "STD 3600");
        assert_eq!(shown(&file("STD3:30"), 5_000), "STD -12600");
    }

    #[test]
    fn rules_name_days_in_three_ways() {
        // 2024-02-29 and 2024-03-01, at 00:00 UTC.
        let (leap, march) = (1_709_164_800, 1_709_251_200);
        for (rule, unix_s, zone) in [
            ("AAA0BBB,J60/0,J300", leap, "AAA 0"),
            ("AAA0BBB,J60/0,J300", march, "BBB 3600"),
            ("AAA0BBB,59/0,300", leap, "BBB 3600"),
            ("AAA0BBB-2,59/0,300", leap, "BBB 7200"),
            ("AAA0BBB,M2.4.4/0,300", leap - 7 * 86_400 - 1, "AAA 0"),
            ("AAA0BBB,M2.4.4/0,300", leap - 7 * 86_400, "BBB 3600"),
            ("AAA0BBB,M2.5.4/0,300", leap - 1, "AAA 0"),
            ("AAA0BBB,M2.5.4/0,300", leap, "BBB 3600"),
            // The southern hemisphere: summer includes the turn of the year.
            ("AAA0BBB,300,59/1", leap - 1, "BBB 3600"),
            ("AAA0BBB,300,59/1", leap, "AAA 0"),
        ] {
            assert_eq!(by_rule(rule, unix_s).map(|z| format!("{} {}", z.name, z.offset_s)).unwrap(), zone);
        }
        for rule in ["", "AA0", "AAA", "AAA0BBB", "AAA0BBB,", "AAA0BBB,M13.1.0,1", "AAA0BBB,1,2,", "AAA9999"]
        {
            assert_eq!(by_rule(rule, 0), None, "{rule}");
        }
    }

    #[test]
    fn broken_files_and_strange_names_are_no_zones() {
        let data = file("STD-1");
        for end in 0..data.len() - 8 {
            assert_eq!(look_up(&data[..end], 1_500), None, "{end}");
        }
        assert_eq!(look_up(&[data, vec![0; 70_000]].concat(), 1_500), None, "beyond the limit");
        for name in
            ["", "/usr/share/zoneinfo/Europe/Berlin", "../zoneinfo/Europe/Berlin", "Europe", "No/Where"]
        {
            assert_eq!(at(name, 0), None, "{name}");
        }
    }
}
