//! Texts that no human would write, for parsers.

/// Every text of these letters in the order of their numbers: so many of them.
pub(super) fn texts(letters: &str, count: usize) -> impl Iterator<Item = String> {
    let letters: Vec<char> = letters.chars().collect();
    (0..count).map(move |number| {
        let mut rest = number;
        let text = std::iter::from_fn(|| {
            let letter = letters[rest % letters.len()];
            rest /= letters.len();
            (rest > 0).then_some(letter)
        });
        text.collect()
    })
}
