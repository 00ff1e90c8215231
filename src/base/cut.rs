//! Shortens texts from elsewhere.

/// The longest start of a text that has whole characters and at most `bytes_max` bytes.
pub(crate) fn head(text: &str, bytes_max: usize) -> &str {
    let end = (0..=text.len().min(bytes_max)).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// The text in one line: each control character becomes a space.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control(), " ")
}

/// The start of a text that is longer than `bytes_max`, with an ellipsis; otherwise the unchanged text.
pub(crate) fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(head(&text, bytes_max).len());
        text.push('\u{2026}');
        text.shrink_to_fit();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_stay_whole() {
        let table = [
            ("", 0, ""),
            ("abc", 3, "abc"),
            ("abcd", 3, "abc\u{2026}"),
            ("a\u{e4}b", 2, "a\u{2026}"),
            ("\u{e4}", 1, "\u{2026}"),
        ];
        for (text, bytes_max, expected) in table {
            assert_eq!(cut(text.to_owned(), bytes_max), expected, "{text} {bytes_max}");
        }
    }
}
