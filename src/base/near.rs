//! The word that somebody may have meant.

/// The known word that is at most two letters away from `word`.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let lower = word.to_lowercase();
    let near = known.map(|known| (distance(&lower, &known.to_lowercase()), known));
    // In a short word, two letters are most of the word.
    near.filter(|(distance, known)| *distance <= 2 && *distance * 2 < known.len())
        .min()
        .map(|(_, known)| known)
}

/// Letters to insert, delete or replace to get from `a` to `b`.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    if a.len().abs_diff(b.len()) > 8 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_words_are_found() {
        let known = ["concurrentSyncs", "syncPeriod", "qps"];
        let table = [
            ("concurrentSync", Some("concurrentSyncs")),
            ("ConcurrentSyncs", Some("concurrentSyncs")),
            ("syncperoid", Some("syncPeriod")),
            ("qpx", Some("qps")),
            ("abc", None),
            ("syncInterval", None),
        ];
        for (key, expected) in table {
            assert_eq!(nearest(key, known.into_iter()), expected, "{key}");
        }
    }
}
