//! Semantic versions and constraints on them, as the Go library that Helm uses (Masterminds/semver 3.5) reads them.

use std::cmp::Ordering;
use std::fmt;

/// A version. Missing parts are zero: `1.2` is `1.2.0`.
#[derive(Clone, Debug)]
pub struct Version {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
    /// The pre-release, after `-`.
    pub(crate) pre: String,
    /// The build metadata, after `+`; comparisons ignore it.
    pub(crate) metadata: String,
    pub(crate) original: String,
}

/// Why a text is not a version or a constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// `invalid semantic version`.
    Version,
    /// The text of a version is longer than 256 bytes.
    VersionLength,
    /// A number of the version does not fit into 64 bits.
    Number(String),
    /// The constraint holds something that is not a version.
    ConstraintVersion,
    /// A numeric identifier of the pre-release starts with 0.
    LeadingZero,
    /// The unreadable constraint.
    Constraint(String),
    /// The text of a constraint is longer than 512 bytes.
    ConstraintLength,
    /// More than 32 alternatives.
    ConstraintGroups,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("invalid semantic version"),
            Self::VersionLength => f.write_str("version string is too long (max 256 bytes)"),
            Self::Number(text) => {
                write!(
                    f,
                    "error parsing version segment: strconv.ParseUint: parsing {text:?}: value out of range"
                )
            }
            Self::ConstraintVersion => f.write_str("constraint parser error"),
            Self::LeadingZero => f.write_str("version segment starts with 0"),
            Self::Constraint(text) => write!(f, "improper constraint: {text:?}"),
            Self::ConstraintLength => f.write_str("constraint string is too long (max 512 bytes)"),
            Self::ConstraintGroups => f.write_str("too many constraint groups (max 32)"),
        }
    }
}

impl std::error::Error for Error {}

const VERSION_BYTES_MAX: usize = 256;
const CONSTRAINT_BYTES_MAX: usize = 512;
const CONSTRAINT_GROUPS_MAX: usize = 32;

impl Version {
    /// Parses a version; accepts a leading `v`, missing parts and leading zeros. Errors: if the text
    /// is not a version.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > VERSION_BYTES_MAX {
            return Err(Error::VersionLength);
        }
        let (parts, rest) = Parts::read(text, |c| c.is_ascii_digit()).ok_or(Error::Version)?;
        if !rest.is_empty() {
            return Err(Error::Version);
        }
        parts.version(text)
    }

    /// Whether the text is a complete version, without `v`, missing parts or leading zeros.
    pub(crate) fn is_strict(text: &str) -> bool {
        let core = text.split(['-', '+']).next().unwrap_or("");
        let ok = |part: &str| part == "0" || !part.starts_with('0');
        core.split('.').count() == 3
            && core.split('.').all(ok)
            && !text.starts_with('v')
            && Self::parse(text).is_ok()
    }

    /// The next version with a higher patch number: a pre-release becomes its release.
    #[must_use]
    pub fn inc_patch(&self) -> Self {
        let patch = if self.pre.is_empty() { self.patch.saturating_add(1) } else { self.patch };
        Self::new(self.major, self.minor, patch, &self.original)
    }

    /// The next version with a higher minor number.
    #[must_use]
    pub fn inc_minor(&self) -> Self {
        Self::new(self.major, self.minor.saturating_add(1), 0, &self.original)
    }

    /// The next version with a higher major number.
    #[must_use]
    pub fn inc_major(&self) -> Self {
        Self::new(self.major.saturating_add(1), 0, 0, &self.original)
    }

    fn new(major: u64, minor: u64, patch: u64, like: &str) -> Self {
        let v = if like.starts_with('v') { "v" } else { "" };
        let original = format!("{v}{major}.{minor}.{patch}");
        Self { major, minor, patch, pre: String::new(), metadata: String::new(), original }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.pre.is_empty() {
            write!(f, "-{}", self.pre)?;
        }
        if !self.metadata.is_empty() {
            write!(f, "+{}", self.metadata)?;
        }
        Ok(())
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.major, self.minor, self.patch)
            .cmp(&(other.major, other.minor, other.patch))
            .then_with(|| compare_pre(&self.pre, &other.pre))
    }
}

/// A release is higher than its pre-releases, words are higher than numbers, and more parts are higher than fewer.
fn compare_pre(a: &str, b: &str) -> Ordering {
    match (a.is_empty(), b.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let (mut left, mut right) = (a.split('.'), b.split('.'));
    loop {
        let order = match (left.next(), right.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(a), Some(b)) => match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => a.cmp(b),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// The text of a version or of the version in a constraint, split into parts.
struct Parts<'a> {
    text: &'a str,
    numbers: [&'a str; 3],
    pre: &'a str,
    metadata: &'a str,
}

impl<'a> Parts<'a> {
    /// Reads the longest prefix that looks like a version whose numbers consist of `digit`, and returns the rest.
    fn read(text: &'a str, digit: impl Fn(char) -> bool) -> Option<(Self, &'a str)> {
        let mut rest = text.strip_prefix('v').unwrap_or(text);
        let mut numbers = [""; 3];
        for (i, number) in numbers.iter_mut().enumerate() {
            let start = if i == 0 { rest } else { rest.strip_prefix('.').unwrap_or("") };
            let len = start.find(|c| !digit(c)).unwrap_or(start.len());
            if len == 0 && i == 0 {
                return None;
            }
            if len == 0 {
                break;
            }
            (*number, rest) = start.split_at(len);
        }
        let (pre, rest) = identifiers(rest, '-');
        let (metadata, rest) = identifiers(rest, '+');
        let text = &text[..text.len() - rest.len()];
        Some((Self { text, numbers, pre, metadata }, rest))
    }

    fn version(&self, original: &str) -> Result<Version, Error> {
        let number =
            |s: &str| if s.is_empty() { Ok(0) } else { s.parse().map_err(|_| Error::Number(s.to_owned())) };
        let zero = |id: &str| id.len() > 1 && id.starts_with('0') && id.bytes().all(|b| b.is_ascii_digit());
        let [major, minor, patch] = self.numbers;
        let (major, minor, patch) = (number(major)?, number(minor)?, number(patch)?);
        if self.pre.split('.').any(zero) {
            return Err(Error::LeadingZero);
        }
        Ok(Version {
            major,
            minor,
            patch,
            pre: self.pre.to_owned(),
            metadata: self.metadata.to_owned(),
            original: original.to_owned(),
        })
    }
}

/// Identifiers after a mark, separated by dots; none of them is empty.
fn identifiers(text: &str, mark: char) -> (&str, &str) {
    let Some(start) = text.strip_prefix(mark) else { return ("", text) };
    let letter = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let mut len = 0;
    loop {
        let word = start[len..].find(|c| !letter(c)).unwrap_or(start.len() - len);
        if word == 0 {
            // A trailing dot does not belong to the version.
            let len = len.saturating_sub(1);
            return if len == 0 { ("", text) } else { start.split_at(len) };
        }
        len += word;
        if !start[len..].starts_with('.') {
            return start.split_at(len);
        }
        len += 1;
    }
}

/// A range of versions: `>=1.20, <2 || ~3.1`.
#[derive(Clone, Debug)]
pub struct Constraint {
    groups: Vec<Vec<Term>>,
}

#[derive(Clone, Debug)]
struct Term {
    operator: Operator,
    version: Version,
    /// The minor number is a wildcard (`1`, `1.x`), and with it the patch number.
    minor_open: bool,
    /// Only the patch number is a wildcard (`1.2`, `1.2.x`).
    patch_open: bool,
    /// Any number is a wildcard.
    open: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Greater,
    Less,
    GreaterEqual,
    LessEqual,
    Tilde,
    Caret,
}

/// Longer operators come before their prefixes.
const OPERATORS: [(&str, Operator); 11] = [
    ("!=", Operator::NotEqual),
    (">=", Operator::GreaterEqual),
    ("=>", Operator::GreaterEqual),
    ("<=", Operator::LessEqual),
    ("=<", Operator::LessEqual),
    ("~>", Operator::Tilde),
    ("=", Operator::Equal),
    (">", Operator::Greater),
    ("<", Operator::Less),
    ("~", Operator::Tilde),
    ("^", Operator::Caret),
];

impl Constraint {
    /// Parses a constraint: `||` separates alternatives; commas and blanks separate conditions that must all
    /// hold. Errors: the part that cannot be read; an empty text is not a constraint.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > CONSTRAINT_BYTES_MAX {
            return Err(Error::ConstraintLength);
        }
        let rewritten = rewrite_ranges(text);
        let groups: Vec<&str> = rewritten.split("||").collect();
        if groups.len() > CONSTRAINT_GROUPS_MAX {
            return Err(Error::ConstraintGroups);
        }
        Ok(Self { groups: groups.into_iter().map(group).collect::<Result<_, _>>()? })
    }

    /// Whether a version is in the range. A pre-release is in it only if its group names a pre-release.
    pub fn check(&self, version: &Version) -> bool {
        self.groups.iter().any(|group| {
            let named = group.iter().any(|term| !term.version.pre.is_empty());
            (version.pre.is_empty() || named) && group.iter().all(|term| term.check(version))
        })
    }
}

/// `1.2 - 3` becomes `>= 1.2, <= 3 `.
fn rewrite_ranges(text: &str) -> String {
    let mut out = String::new();
    let (mut rest, mut written) = (text, 0);
    'scan: while !rest.is_empty() {
        let starts_word = rest.starts_with(|c: char| c == 'v' || is_loose_digit(c));
        if let Some((low, after)) = starts_word.then(|| Parts::read(rest, is_loose_digit)).flatten() {
            let trimmed = after.trim_start();
            if let Some(dash) = trimmed.strip_prefix('-').filter(|_| trimmed.len() < after.len()) {
                let high = dash.trim_start();
                if let Some((high, after)) =
                    Parts::read(high, is_loose_digit).filter(|_| high.len() < dash.len())
                {
                    // As upstream, without the leading blanks: after another term this is an error.
                    out.truncate(out.trim_end().len().max(written));
                    out.push_str(&format!(">= {}, <= {} ", low.text, high.text));
                    written = out.len();
                    rest = after.trim_start();
                    continue 'scan;
                }
            }
            out.push_str(low.text);
            rest = after;
            continue;
        }
        let Some(c) = rest.chars().next() else { break };
        out.push(c);
        rest = &rest[c.len_utf8()..];
    }
    out
}

/// Characters that upstream's regular expression accepts as a number of a constraint.
fn is_loose_digit(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '|' | 'x' | 'X' | '*')
}

fn group(text: &str) -> Result<Vec<Term>, Error> {
    let error = || Error::Constraint(text.to_owned());
    let mut terms = Vec::new();
    let mut rest = text.trim_start();
    loop {
        let operator = OPERATORS.iter().find(|(spelling, _)| rest.starts_with(spelling));
        let (spelling, operator) = operator.map_or(("", Operator::Equal), |o| *o);
        let version = rest[spelling.len()..].trim_start();
        let (parts, after) = Parts::read(version, is_loose_digit).ok_or_else(error)?;
        terms.push(Term::new(operator, &parts)?);
        let next = after.trim_start();
        if next.is_empty() {
            return Ok(terms);
        }
        rest = match next.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None if next.len() < after.len() => next,
            None => return Err(error()),
        };
    }
}

impl Term {
    fn new(operator: Operator, parts: &Parts<'_>) -> Result<Self, Error> {
        let is_open = |s: &str| matches!(s, "" | "x" | "X" | "*");
        let first_open = parts.numbers.iter().position(|s| is_open(s));
        let mut numbers = parts.numbers;
        for number in numbers.iter_mut().skip(first_open.unwrap_or(3)) {
            *number = "";
        }
        let closed = Parts { numbers, ..*parts };
        Ok(Self {
            operator,
            version: closed.version(parts.text).map_err(|_| Error::ConstraintVersion)?,
            minor_open: first_open == Some(1),
            patch_open: first_open == Some(2),
            open: first_open.is_some(),
        })
    }

    fn check(&self, v: &Version) -> bool {
        let con = &self.version;
        match self.operator {
            Operator::Equal if self.open => self.tilde(v),
            Operator::Equal => v == con,
            Operator::NotEqual => self.not_equal(v),
            Operator::Greater => self.greater(v),
            Operator::Less => v < con,
            Operator::GreaterEqual => v >= con,
            Operator::LessEqual if !self.open => v <= con,
            Operator::LessEqual => {
                v.major <= con.major && !(v.major == con.major && v.minor > con.minor && !self.minor_open)
            }
            Operator::Tilde => self.tilde(v),
            Operator::Caret => self.caret(v),
        }
    }

    fn not_equal(&self, v: &Version) -> bool {
        let con = &self.version;
        if !self.open {
            return v != con;
        }
        if v.major != con.major || (v.minor != con.minor && !self.minor_open) {
            return true;
        }
        if self.minor_open {
            return false;
        }
        if self.patch_open {
            return compare_pre(&v.pre, &con.pre) != Ordering::Equal;
        }
        v != con
    }

    /// `>1.2` starts at 1.3, `>1` at 2.
    fn greater(&self, v: &Version) -> bool {
        let con = &self.version;
        match v.major.cmp(&con.major) {
            _ if !self.open => v > con,
            Ordering::Greater => true,
            Ordering::Less => false,
            Ordering::Equal if self.minor_open => false,
            Ordering::Equal if self.patch_open => v.minor > con.minor,
            Ordering::Equal => v > con,
        }
    }

    fn tilde(&self, v: &Version) -> bool {
        let con = &self.version;
        if v < con {
            return false;
        }
        let zero = con.major == 0 && con.minor == 0 && con.patch == 0;
        if zero && !self.minor_open && !self.patch_open {
            return true;
        }
        v.major == con.major && (v.minor == con.minor || self.minor_open)
    }

    fn caret(&self, v: &Version) -> bool {
        let con = &self.version;
        if v < con {
            return false;
        }
        if con.major > 0 || self.minor_open {
            return v.major == con.major;
        }
        if v.major > 0 {
            return false;
        }
        if con.minor > 0 || self.patch_open {
            return v.minor == con.minor;
        }
        v.minor == 0 && v.patch == con.patch
    }
}

#[cfg(test)]
mod tests;
