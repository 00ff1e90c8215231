//! Colours on a terminal. Without one, and with `NO_COLOR` set, text stays as it is.

/// What a piece of text says, besides its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// All is well.
    Good,
    /// Worth a look, but nothing is broken.
    Odd,
    /// Something is broken.
    Bad,
    /// A heading.
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

/// The text in the colour of `tone`, if `on`.
pub(super) fn paint(on: bool, tone: Tone, text: &str) -> String {
    if on { format!("\u{1b}[{}m{text}\u{1b}[0m", tone.code()) } else { text.to_owned() }
}
