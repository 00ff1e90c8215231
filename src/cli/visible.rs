//! Makes text from clusters, files and servers safe for a terminal. Control characters in it could hide the text before
//! them, or show a false text.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a terminal interprets a character. Line breaks and tabs are allowed.
fn is_obeyed(c: char) -> bool {
    let is_control = c.is_control() && !matches!(c, '\n' | '\t');
    // Marks that change the direction of the following text.
    is_control || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes such characters in JSON's notation, so that JSON stays valid.
pub(super) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_obeyed) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_obeyed(c) {
            // Writing to a String cannot fail.
            let _ = write!(shown, "\\u{:04x}", u32::from(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_shown_and_nothing_else_changes() {
        let table = [
            ("a\nb\tc é 字 \\u001b", "a\nb\tc é 字 \\u001b"),
            ("\u{1b}[2Jgone", "\\u001b[2Jgone"),
            ("over\rwritten\u{8}\u{7f}", "over\\u000dwritten\\u0008\\u007f"),
            ("\u{9b}31m\0", "\\u009b31m\\u0000"),
            ("a\u{202e}txt.exe\u{2069}", "a\\u202etxt.exe\\u2069"),
        ];
        for (text, expected) in table {
            assert_eq!(visible(text), expected);
        }
        let json = visible("{\"name\": \"a\u{9b}b\"}").into_owned();
        let value: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["name"], "a\u{9b}b");
    }
}
