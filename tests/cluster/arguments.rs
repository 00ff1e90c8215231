//! The arguments of the program: which stories to run, and how.

use crate::failure::{Failure, Result};
use crate::stories::Part;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// Words of which one must be in a story's name; all stories if empty.
    words: Vec<String>,
    /// The words are whole names.
    is_exact: bool,
    /// The chosen parts; empty if none was named.
    parts: Vec<Part>,
    pub(crate) list: bool,
    pub(crate) keep: bool,
}

impl Arguments {
    pub(crate) fn read(arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut read = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let (flag, value) = argument.split_once('=').unzip();
            match flag.unwrap_or(&argument) {
                "--part" => {
                    let names = value.map(str::to_owned).or_else(|| arguments.next());
                    read.add_parts(&names.unwrap_or_default())?;
                }
                "--exact" => read.is_exact = true,
                "--list" => read.list = true,
                "--keep" => read.keep = true,
                other if other.starts_with("--") => return Err(Failure::new(format!("unknown: {other}"))),
                _ => read.words.push(argument),
            }
        }
        // A normal run.
        if read.parts.is_empty() && read.words.is_empty() {
            read.parts.push(Part::Run);
        }
        Ok(read)
    }

    /// Names of parts, separated by commas.
    fn add_parts(&mut self, names: &str) -> Result<()> {
        for name in names.split(',') {
            let part = Part::ALL.into_iter().find(|part| part.name() == name).ok_or_else(|| {
                let all = Part::ALL.map(Part::name).join(", ");
                Failure::new(format!("there is no part {name:?}; the parts: {all}"))
            })?;
            self.parts.push(part);
        }
        Ok(())
    }

    /// Whether they choose a story of that name.
    pub(crate) fn want(&self, part: Part, story: &str) -> bool {
        let is_in_part = self.parts.is_empty() || self.parts.contains(&part);
        is_in_part && (self.words.is_empty() || self.words.iter().any(|word| self.means(word, story)))
    }

    fn means(&self, word: &str, story: &str) -> bool {
        if self.is_exact { story == word } else { story.contains(word) }
    }

    /// Whether all stories of the chosen parts run.
    pub(crate) fn want_whole_parts(&self) -> bool {
        self.words.is_empty()
    }

    /// The first word that means none of these stories.
    pub(crate) fn word_without_story(&self, names: &[&str]) -> Option<&str> {
        let has_none = |word: &&String| !names.iter().any(|name| self.means(word, name));
        self.words.iter().find(has_none).map(String::as_str)
    }
}
