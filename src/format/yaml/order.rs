//! The order in which go-yaml writes the keys of a map: natural, "a2" before "a10".

use std::cmp::Ordering;

use super::Dialect;

/// Sorts keys as the dialect's library does.
///
/// The v2 order is not transitive, so no sort of the standard library may see it (they may panic): this merge sort is
/// content with any comparison and always ends.
pub(super) fn sort<'a>(keys: Vec<&'a str>, dialect: Dialect) -> Vec<&'a str> {
    let (left, right) = match keys.len() {
        0 | 1 => return keys,
        n => keys.split_at(n / 2),
    };
    let (left, right) = (sort(left.to_vec(), dialect), sort(right.to_vec(), dialect));
    let mut merged: Vec<&'a str> = Vec::with_capacity(keys.len());
    let (mut l, mut r) = (left.into_iter().peekable(), right.into_iter().peekable());
    while let (Some(a), Some(b)) = (l.peek(), r.peek()) {
        let take_right = less(b, a, dialect);
        merged.extend(if take_right { r.next() } else { l.next() });
    }
    merged.extend(l);
    merged.extend(r);
    merged
}

/// Whether `a` stands before `b`.
fn less(a: &str, b: &str, dialect: Dialect) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let Some(i) = a.iter().zip(&b).position(|(x, y)| x != y) else {
        return a.len() < b.len();
    };
    let (x, y) = (a[i], b[i]);
    match (x.is_alphabetic(), y.is_alphabetic()) {
        (true, true) => return x < y,
        (false, false) => {}
        (x_letter, y_letter) => {
            // v2 puts the key with the letter last; later versions put it first if a digit stands before it.
            let after_digit = i > 0 && a[i - 1].is_numeric();
            return if dialect != Dialect::V2 && after_digit { x_letter } else { y_letter };
        }
    }
    let (m, n) = (number(&a, i, b[i]), number(&b, i, a[i]));
    match m.0.cmp(&n.0).then(m.1.cmp(&n.1)) {
        Ordering::Less => true,
        Ordering::Greater => false,
        Ordering::Equal => x < y,
    }
}

/// The number that the digits from `start` on say, and where they end. When either key has a zero there, a digit other
/// than zero further left counts as a leading one, so that "100" stands behind "20".
fn number(key: &[char], start: usize, other: char) -> (i64, usize) {
    let zero = key[start] == '0' || other == '0';
    let before = key[..start].iter().rev().take_while(|c| c.is_numeric());
    let mut value = i64::from(zero && before.into_iter().any(|c| *c != '0'));
    let mut end = start;
    while let Some(digit) = key.get(end).and_then(|c| c.to_digit(10)) {
        value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
        end += 1;
    }
    (value, end)
}

#[cfg(test)]
mod tests {
    use super::*;

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
