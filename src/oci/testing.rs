//! Texts for parsers that no human would write.

/// The first `count` texts over these letters, in numeric order.
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
