//! File name patterns: of `.Files.Glob`, and of Go's `path.Match`, which `.helmignore` uses.

use super::value;

#[derive(Clone, Debug)]
pub(super) struct Pattern {
    parts: Vec<PatternPart>,
}

#[derive(Clone, Debug)]
enum PatternPart {
    Literal(char),
    /// `?`: one character other than `/`.
    One,
    /// `*`: any characters other than `/`.
    Many,
    /// `**`: any characters.
    All,
    /// `[a-z]`, `[!a]`.
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
    /// `{a,b}`.
    Either(Vec<Vec<PatternPart>>),
}

impl Pattern {
    /// Parses a pattern of `.Files.Glob`; `None` if it is broken.
    pub(super) fn glob(text: &str) -> Option<Self> {
        let chars: Vec<char> = text.chars().collect();
        if chars.len() > CHARS_MAX {
            // No name is that long. A class without members matches nothing.
            return Some(Self { parts: vec![PatternPart::Class { negated: false, ranges: Vec::new() }] });
        }
        let (parts, end) = read(&chars, 0, Syntax::Glob, 0)?;
        (end == chars.len()).then_some(Self { parts })
    }

    /// Parses a pattern of `path.Match`; `None` if it is broken.
    pub(super) fn path(text: &str) -> Option<Self> {
        let chars: Vec<char> = text.chars().collect();
        let (parts, end) = read(&chars, 0, Syntax::Path, 0)?;
        (end == chars.len()).then_some(Self { parts })
    }

    /// Whether the whole text matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        // A quick check: most patterns differ at once.
        let literals = self.parts.iter().map_while(|part| match part {
            PatternPart::Literal(c) => Some(*c),
            _ => None,
        });
        let mut rest = text.chars();
        if !literals.into_iter().all(|c| rest.next() == Some(c)) {
            return false;
        }
        let chars: Vec<char> = text.chars().collect();
        // Pattern and text may be hostile: a limit on the steps bounds the time.
        let mut steps = STEPS_MAX;
        let parts: Vec<&PatternPart> = self.parts.iter().collect();
        let found = fits(&parts, &chars, &mut steps);
        value::count_walked(STEPS_MAX - steps);
        found
    }
}

const STEPS_MAX: usize = 100_000;
/// Characters of a pattern: matching recurses once for each.
const CHARS_MAX: usize = 4_096;
/// Nesting depth of alternatives.
const DEPTH_MAX: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Syntax {
    Glob,
    Path,
}

/// Parses parts up to the end, or within braces up to `,` or `}`.
fn read(chars: &[char], mut at: usize, syntax: Syntax, depth: usize) -> Option<(Vec<PatternPart>, usize)> {
    let mut parts = Vec::new();
    while let Some(c) = chars.get(at) {
        at += 1;
        parts.push(match c {
            ',' | '}' if depth > 0 => return Some((parts, at - 1)),
            '?' => PatternPart::One,
            '*' if syntax == Syntax::Glob && chars.get(at) == Some(&'*') => {
                at += 1;
                PatternPart::All
            }
            '*' => PatternPart::Many,
            '[' => {
                let (class, end) = read_class(chars, at, syntax)?;
                at = end;
                class
            }
            '{' if syntax == Syntax::Glob => {
                if depth == DEPTH_MAX {
                    return None;
                }
                let mut choices = Vec::new();
                loop {
                    let (choice, end) = read(chars, at, syntax, depth + 1)?;
                    choices.push(choice);
                    at = end + 1;
                    match chars.get(end) {
                        Some(',') => {}
                        Some('}') => break,
                        _ => return None,
                    }
                }
                PatternPart::Either(choices)
            }
            '\\' => {
                at += 1;
                PatternPart::Literal(*chars.get(at - 1)?)
            }
            c => PatternPart::Literal(*c),
        });
    }
    (depth == 0).then_some((parts, at))
}

fn read_class(chars: &[char], mut at: usize, syntax: Syntax) -> Option<(PatternPart, usize)> {
    let negation = if syntax == Syntax::Glob { '!' } else { '^' };
    let negated = chars.get(at) == Some(&negation);
    at += usize::from(negated);
    let mut ranges = Vec::new();
    let next = |at: &mut usize| {
        let mut c = *chars.get(*at)?;
        *at += 1;
        if c == '\\' {
            c = *chars.get(*at)?;
            *at += 1;
        }
        Some(c)
    };
    while chars.get(at) != Some(&']') || ranges.is_empty() {
        if chars.get(at) == Some(&']') {
            return None;
        }
        let low = next(&mut at)?;
        let mut high = low;
        if chars.get(at) == Some(&'-') {
            at += 1;
            if chars.get(at) == Some(&']') {
                return None;
            }
            high = next(&mut at)?;
        }
        ranges.push((low, high));
    }
    Some((PatternPart::Class { negated, ranges }, at + 1))
}

fn fits(parts: &[&PatternPart], text: &[char], steps: &mut usize) -> bool {
    if *steps == 0 {
        return false;
    }
    *steps -= 1;
    let Some((part, rest)) = parts.split_first() else { return text.is_empty() };
    match part {
        PatternPart::Many | PatternPart::All => {
            let all = matches!(part, PatternPart::All);
            let end =
                if all { text.len() } else { text.iter().position(|c| *c == '/').unwrap_or(text.len()) };
            (0..=end).any(|n| fits(rest, &text[n..], steps))
        }
        PatternPart::Either(choices) => choices.iter().any(|choice| {
            let joined: Vec<&PatternPart> = choice.iter().chain(rest.iter().copied()).collect();
            fits(&joined, text, steps)
        }),
        single => {
            text.split_first().is_some_and(|(c, after)| single.fits_one(*c) && fits(rest, after, steps))
        }
    }
}

impl PatternPart {
    fn fits_one(&self, c: char) -> bool {
        match self {
            Self::Literal(l) => *l == c,
            Self::One => c != '/',
            Self::Class { negated, ranges } => {
                c != '/' && ranges.iter().any(|(low, high)| (*low..=*high).contains(&c)) != *negated
            }
            Self::Many | Self::All | Self::Either(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_in_files() {
        let stars = "*".repeat(100_000);
        for (pattern, name, fits) in [
            (stars.as_str(), "a", false),
            ("*.yaml", "a.yaml", true),
            ("*.yaml", "a/b.yaml", false),
            ("**.yaml", "a/b.yaml", true),
            ("a/**", "a/b/c", true),
            ("a/**", "a", false),
            ("a?c", "abc", true),
            ("a?c", "a/c", false),
            ("[!a]b", "cb", true),
            ("[a-c]b", "db", false),
            ("{a,b*}/x", "bcd/x", true),
            ("{a,{b,c}}", "c", true),
            ("conf/{*.yaml,*.json}", "conf/x.json", true),
            (r"a\*", "a*", true),
            ("", "", true),
        ] {
            assert_eq!(Pattern::glob(pattern).unwrap().matches(name), fits, "{pattern} {name}");
        }
        for broken in ["[a", "{a", "[]", "a\\", "[a-]"] {
            assert!(Pattern::glob(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn path_patterns_know_no_braces() {
        assert!(Pattern::path("{a,b}").unwrap().matches("{a,b}"));
        assert!(Pattern::path("templates/.?*").unwrap().matches("templates/.x"));
        assert!(Pattern::path("[^a]*").unwrap().matches("bc"));
    }

    #[test]
    fn hostile_patterns_terminate() {
        let pattern = Pattern::glob(&"*a".repeat(50)).unwrap();
        assert!(!pattern.matches(&"a".repeat(200).replace("aaaaa", "aaaab")));
        assert!(Pattern::glob(&"{".repeat(100)).is_none());
    }
}
