//! Colours on a terminal. Text stays plain without a terminal, and if `NO_COLOR` is set.

use super::visible::visible;

/// The meaning of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Good,
    /// Needs attention, but is not broken.
    Odd,
    Bad,
    Strong,
    /// Less important than the rest.
    Faint,
}

impl Tone {
    const fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Odd => "33",
            Self::Bad => "31",
            Self::Strong => "1",
            Self::Faint => "2",
        }
    }
}

/// Whether results have colours: the output is a terminal that supports them, and https://no-color.org does not apply.
pub fn is_wanted(is_terminal: bool, variable: super::Variable<'_>) -> bool {
    let says = |name: &str| variable(name).unwrap_or_default();
    is_terminal && says("NO_COLOR").is_empty() && says("TERM") != "dumb"
}

/// The text in the colour of `tone`, if `on`.
pub(super) fn paint(on: bool, tone: Tone, text: &str) -> String {
    if on { format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code()) } else { text.to_owned() }
}

/// A coloured result. It escapes its text piece by piece, so that only its own colours control the terminal.
#[derive(Debug)]
pub(super) struct ColouredText {
    on: bool,
    out: String,
}

impl ColouredText {
    pub(super) const fn new(on: bool) -> Self {
        Self { on, out: String::new() }
    }

    pub(super) fn plain(&mut self, text: &str) {
        self.out.push_str(&visible(text));
    }

    pub(super) fn toned(&mut self, tone: Tone, text: &str) {
        self.out.push_str(&paint(self.on, tone, &visible(text)));
    }

    pub(super) fn as_str(&self) -> &str {
        &self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        type Row<'a> = (bool, &'a [(&'a str, &'a str)], bool);
        let table: [Row<'_>; 6] = [
            (true, &[("TERM", "xterm")], true),
            (true, &[("NO_COLOR", ""), ("TERM", "xterm")], true),
            (true, &[("NO_COLOR", "1"), ("TERM", "xterm")], false),
            (true, &[("TERM", "dumb")], false),
            (true, &[], true),
            (false, &[("TERM", "xterm")], false),
        ];
        for (is_terminal, variables, expected) in table {
            let variable = |name: &str| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            };
            assert_eq!(is_wanted(is_terminal, &variable), expected, "{is_terminal} {variables:?}");
        }
    }

    #[test]
    fn only_the_colours_are_obeyed() {
        let mut text = ColouredText::new(true);
        text.plain("a\u{1b}[2J");
        text.toned(Tone::Bad, "b\u{1b}");
        assert_eq!(text.as_str(), "a\\u001b[2J\u{1b}[31mb\\u001b\u{1b}[0m");
        let mut text = ColouredText::new(false);
        text.toned(Tone::Good, "b\n");
        assert_eq!(text.as_str(), "b\n");
    }
}
