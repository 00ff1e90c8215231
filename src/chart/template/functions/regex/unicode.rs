//! Unicode classes of regular expressions: the categories and scripts that charts use, with the characters of Go's own
//! tables.

/// A line for each class; `tests/oracle/classes.go` writes the file and describes its format.
const CLASSES: &str = include_str!("classes.txt");

/// First and last character.
type Range = (u32, u32);

/// The characters of a class, or its complement, in the engine's bracket syntax; `None` if it is unknown.
pub(super) fn members(name: &str, negated: bool) -> Option<String> {
    let mut ranges = ranges(name)?;
    if negated {
        ranges = others(ranges);
    }
    Some(ranges.iter().map(|(first, last)| format!("\\x{{{first:x}}}-\\x{{{last:x}}}")).collect())
}

fn ranges(name: &str) -> Option<Vec<Range>> {
    let mut lines = CLASSES.lines().filter_map(|line| line.split_once(' '));
    let mut numbers = numbers(lines.find(|(known, _)| *known == name)?.1);
    let (mut ranges, mut at) = (Vec::new(), 0);
    while let (Some(distance), Some(count)) = (numbers.next(), numbers.next()) {
        at += distance;
        let (more, is_sparse) = (count >> 1, count & 1 == 1);
        if is_sparse {
            let step = numbers.next()?;
            ranges.extend((0..=more).map(|n| (at + n * step, at + n * step)));
            at += more * step;
        } else {
            ranges.push((at, at + more));
            at += more;
        }
    }
    Some(ranges)
}

/// Groups of five bits, the highest first.
fn numbers(text: &str) -> impl Iterator<Item = u32> {
    let mut digits = text.bytes().map(|byte| u32::from(byte.wrapping_sub(b'0')));
    std::iter::from_fn(move || {
        let mut number = 0;
        loop {
            let digit = digits.next()?;
            number = number << 5 | digit & 31;
            if digit < 32 {
                return Some(number);
            }
        }
    })
}

/// The complement, without surrogates.
fn others(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.extend([(0xd800, 0xdfff), (0x11_0000, 0x11_0000)]);
    ranges.sort_unstable();
    let mut next = 0;
    let gap = |(first, last): Range| {
        let gap = (next, first.saturating_sub(1));
        let is_one = first > next;
        next = next.max(last + 1);
        is_one.then_some(gap)
    };
    ranges.into_iter().filter_map(gap).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of characters in Go's tables.
    #[test]
    fn classes_are_complete() {
        let table = [
            ("L", 136_104),
            ("Lu", 1_831),
            ("Ll", 2_233),
            ("N", 1_831),
            ("Nd", 680),
            ("P", 842),
            ("S", 7_770),
            ("Z", 19),
            ("Latin", 1_481),
            ("Greek", 518),
            ("Cyrillic", 506),
            ("Han", 98_408),
        ];
        let count = |ranges: Vec<Range>| ranges.iter().map(|(first, last)| last - first + 1).sum::<u32>();
        for (name, expected) in table {
            assert_eq!(count(ranges(name).unwrap()), expected, "{name}");
            assert_eq!(count(others(ranges(name).unwrap())), 0x11_0000 - 0x800 - expected, "{name}");
        }
        assert_eq!(CLASSES.lines().count(), table.len());
        assert_eq!(ranges("Klingon"), None);
    }

    #[test]
    fn ranges_stand_as_in_a_class() {
        assert_eq!(numbers("0_?Q1").collect::<Vec<_>>(), [0, 15 << 5 | 15, 33]);
        let spaces = r"\x{20}-\x{20}\x{a0}-\x{a0}\x{1680}-\x{1680}\x{2000}-\x{2000}\x{2001}-\x{200a}";
        assert!(members("Z", false).unwrap().starts_with(spaces), "{:?}", members("Z", false));
        assert!(members("Z", true).unwrap().starts_with(r"\x{0}-\x{1f}\x{21}-\x{9f}\x{a1}-\x{167f}"));
        assert_eq!(others(vec![(0, 9), (0xd000, 0x10_ffff)]), [(10, 0xcfff)]);
    }
}
