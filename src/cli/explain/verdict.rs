//! The verdict about an object, and the meaning of each line of the explanation.

use super::super::colour::Tone;

/// What a line means for the state of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Note,
    /// The controller does not know the state.
    Unknown,
    /// The controller is working.
    Progress,
    /// The controller is working on the whole operation: conditions may be older.
    Operation,
    Bad,
    /// An error of an operation; the controller may retry.
    Error,
}

/// A line of the explanation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExplanationLine {
    pub(super) weight: Weight,
    pub(super) text: String,
}

impl ExplanationLine {
    pub(super) fn new(weight: Weight, text: impl Into<String>) -> Self {
        Self { weight, text: text.into() }
    }

    pub(super) fn note(text: impl Into<String>) -> Self {
        Self::new(Weight::Note, text)
    }

    /// The first part of the line, up to the first colon.
    pub(super) fn head(&self) -> &str {
        self.text.split(": ").next().unwrap_or_default()
    }
}

/// The state of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ObjectVerdict {
    Ready,
    /// It exists and reports no state.
    Present,
    InProgress(String),
    Unknown(String),
    NotReady(String),
    /// It is being deleted; these finalizers hold it.
    Deleted(String),
}

impl ObjectVerdict {
    /// The state in a few words, without the reason.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Present => "present",
            Self::InProgress(_) => "in progress",
            Self::Unknown(_) => "unknown",
            Self::NotReady(_) => "not ready",
            Self::Deleted(_) => "being deleted",
        }
    }

    pub(super) const fn tone(&self) -> Tone {
        match self {
            Self::Ready => Tone::Good,
            Self::NotReady(_) => Tone::Bad,
            Self::Present | Self::InProgress(_) | Self::Unknown(_) | Self::Deleted(_) => Tone::Odd,
        }
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Ready => self.name().to_owned(),
            Self::Present => "present; it reports no state".to_owned(),
            Self::InProgress(why) | Self::Unknown(why) | Self::NotReady(why) => {
                format!("{}: {why}", self.name())
            }
            Self::Deleted(holders) if holders.is_empty() => "being deleted; nothing holds it".to_owned(),
            Self::Deleted(holders) => format!("being deleted; held by {holders}"),
        }
    }
}
