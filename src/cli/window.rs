//! The size of the terminal, and the part of a text that fits into it.

use std::io;

/// The size of a terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct WindowSize {
    pub(super) lines: usize,
    pub(super) columns: usize,
}

/// The size of the terminal at standard output, if there is one.
pub(super) fn size() -> Option<WindowSize> {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    let (lines, columns) = (usize::from(size.ws_row), usize::from(size.ws_col));
    (lines > 0 && columns > 0).then_some(WindowSize { lines, columns })
}

/// The beginning of a text, as much as the window shows. The last line counts what is missing.
pub(super) fn fit(text: &str, window: WindowSize) -> String {
    let WindowSize { lines, columns } = window;
    let all = text.lines().count();
    let shown = if all <= lines { all } else { lines.saturating_sub(1) };
    let cut = |line: &str| match line.char_indices().nth(columns) {
        Some(_) => line.chars().take(columns.saturating_sub(1)).chain(['\u{2026}']).collect(),
        None => line.to_owned(),
    };
    let mut kept: Vec<String> = text.lines().take(shown).map(cut).collect();
    if shown < all {
        kept.push(cut(&format!("\u{2026} and {} more lines", all - shown)));
    }
    kept.into_iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_to_the_window() {
        let table = [
            ((3, 9), "a\nbb\nccc\n"),
            ((4, 9), "a\nbb\nccc\n"),
            ((2, 30), "a\n\u{2026} and 2 more lines\n"),
            ((3, 2), "a\nbb\nc\u{2026}\n"),
            ((0, 5), "\u{2026} an\u{2026}\n"),
        ];
        for ((lines, columns), expected) in table {
            let window = WindowSize { lines, columns };
            assert_eq!(fit("a\nbb\nccc\n", window), expected, "{window:?}");
        }
    }
}
