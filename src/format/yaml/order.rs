//! The order in which go-yaml writes the keys of a map: natural order, "a2" before "a10".

use std::cmp::Ordering;

use super::Dialect;

/// Sorts entries by their keys as the dialect's library does.
///
/// The v2 order is not transitive, and a sort of the standard library may panic on such an order. This merge sort
/// accepts any comparison and always ends.
pub(super) fn sort<T: Copy>(entries: Vec<(&str, T)>, dialect: Dialect) -> Vec<(&str, T)> {
    // Most maps are sorted already, by their bytes.
    if entries.windows(2).all(|pair| less(pair[0].0, pair[1].0, dialect)) {
        return entries;
    }
    let (left, right) = entries.split_at(entries.len() / 2);
    let (left, right) = (sort(left.to_vec(), dialect), sort(right.to_vec(), dialect));
    let mut merged = Vec::with_capacity(entries.len());
    let (mut l, mut r) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (l.peek(), r.peek()) {
        let take_right = less(b.0, a.0, dialect);
        merged.extend(if take_right { r.next() } else { l.next() });
    }
    merged.extend(l);
    merged.extend(r);
    merged
}

/// Whether `a` comes before `b`.
fn less(a: &str, b: &str, dialect: Dialect) -> bool {
    let at = a.bytes().zip(b.bytes()).position(|(x, y)| x != y);
    if let Some(at) = at
        && let (x, y) = (a.as_bytes()[at], b.as_bytes()[at])
        && x.is_ascii_alphabetic()
        && y.is_ascii_alphabetic()
    {
        return x < y;
    }
    let differing = a.chars().zip(b.char_indices()).find(|(x, (_, y))| x != y);
    let Some((x, (at, y))) = differing else {
        return a.len() < b.len();
    };
    let common = &b[..at];
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x < y,
        (false, false) => {}
        (x_letter, y_letter) => {
            // v2 puts the key with the letter last; later versions put it first if a digit precedes it.
            let after_digit = common.chars().next_back().is_some_and(char::is_numeric);
            return if dialect != Dialect::V2 && after_digit { x_letter } else { y_letter };
        }
    }
    // When either key has a zero here, a digit other than zero further left counts as a leading one, so that "100"
    // comes after "20".
    let digits_before = common.chars().rev().take_while(|c| c.is_numeric());
    let leading = i64::from((x == '0' || y == '0') && digits_before.into_iter().any(|c| c != '0'));
    // Both keys are equal up to the difference, so the ends can be compared in place of the lengths.
    let (m, n) = (number(&a[at..], leading), number(&b[at..], leading));
    m.cmp(&n).then(x.cmp(&y)) == Ordering::Less
}

/// The leading number, and how many digits it has.
fn number(text: &str, leading: i64) -> (i64, usize) {
    let digits = text.bytes().take_while(u8::is_ascii_digit);
    digits.fold((leading, 0), |(value, count), digit| {
        (value.wrapping_mul(10).wrapping_add(i64::from(digit - b'0')), count + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sort(keys: Vec<&str>, dialect: Dialect) -> Vec<&str> {
        let entries = keys.into_iter().map(|key| (key, ())).collect();
        super::sort(entries, dialect).into_iter().map(|(key, ())| key).collect()
    }

    #[test]
    fn keys_sort_naturally() {
        let keys =
            vec!["b", "a10", "a2", "a", "Z", "1", "10", "2", "a-b", "ab", "a100", "a20", "a_b", "", "a02"];
        let sorted = sort(keys.clone(), Dialect::V2);
        assert_eq!(
            sorted,
            ["", "1", "2", "10", "Z", "a", "a-b", "a_b", "a2", "a02", "a10", "a20", "a100", "ab", "b"]
        );
        assert_eq!(sort(keys, Dialect::V3), sorted);
    }

    #[test]
    fn letters_after_digits_differ_between_the_versions() {
        let keys = vec!["a1-x", "a1b"];
        assert_eq!(sort(keys.clone(), Dialect::V2), ["a1-x", "a1b"]);
        assert_eq!(sort(keys, Dialect::V4), ["a1b", "a1-x"]);
    }

    #[test]
    fn a_large_map_with_an_inconsistent_order_still_ends() {
        let names: Vec<String> =
            (0..2_000).map(|i| format!("k{}{}", i % 7, ["-", "a", "0"][i % 3])).collect();
        let keys: Vec<&str> = names.iter().map(String::as_str).collect();
        assert_eq!(sort(keys, Dialect::V2).len(), 2_000);
    }
}
