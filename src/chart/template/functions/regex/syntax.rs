//! Translates Go's syntax of regular expressions to the engine's: escapes characters that are literal in Go, expands
//! Unicode classes, and refuses what Go refuses.

use super::unicode;
use crate::limits::TEMPLATE_REGEX_TEXT_BYTES_MAX;

/// Why an expression is unusable.
#[derive(Debug, PartialEq)]
pub(super) enum Mistake {
    /// Go's words.
    Invalid(String),
    /// A Unicode class that Go may know.
    UnknownClass(String),
    /// It is too long after the expansion of its classes.
    TooLong,
}

/// The expression in the engine's syntax.
pub(super) fn translate(pattern: &str) -> Result<String, Mistake> {
    let mut translation = Translation { out: String::with_capacity(pattern.len() + 8), rest: pattern };
    let mut last_repeat = "";
    while let Some(c) = translation.rest.chars().next() {
        translation.check_size()?;
        let before = translation.rest;
        match c {
            '*' | '+' | '?' | '{' => {
                let repeat = translation.repetition();
                if !repeat.is_empty() && !last_repeat.is_empty() {
                    let both = format!("{last_repeat}{repeat}");
                    return Err(invalid("invalid nested repetition operator", &both));
                }
                last_repeat = repeat;
                if repeat.is_empty() {
                    translation.literal('{');
                    continue;
                }
                check_count(repeat)?;
                translation.copy(repeat.len());
                continue;
            }
            '\\' => translation.escape(false)?,
            '[' => translation.class()?,
            '(' if before.starts_with("(?") => translation.group()?,
            '}' | ']' => translation.literal(c),
            _ => translation.copy(c.len_utf8()),
        }
        last_repeat = "";
    }
    Ok(translation.out)
}

fn invalid(what: &str, part: &str) -> Mistake {
    Mistake::Invalid(format!("error parsing regexp: {what}: `{part}`"))
}

fn check_count(repeat: &str) -> Result<(), Mistake> {
    let numbers: Vec<u64> = repeat
        .split(|c: char| !c.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().unwrap_or(u64::MAX))
        .collect();
    let ordered = numbers.is_sorted();
    if !ordered || numbers.iter().any(|n| *n > 1_000) {
        return Err(invalid("invalid repeat count", repeat));
    }
    Ok(())
}

struct Translation<'p> {
    out: String,
    rest: &'p str,
}

impl<'p> Translation<'p> {
    fn check_size(&self) -> Result<(), Mistake> {
        if self.out.len() > TEMPLATE_REGEX_TEXT_BYTES_MAX { Err(Mistake::TooLong) } else { Ok(()) }
    }

    fn copy(&mut self, len: usize) {
        let (part, rest) = self.rest.split_at(len);
        self.out.push_str(part);
        self.rest = rest;
    }

    fn literal(&mut self, c: char) {
        self.out.push('\\');
        self.copy(c.len_utf8());
    }

    /// The operator at the start, with the `?` that makes it lazy; empty for a brace that is not a repetition.
    fn repetition(&self) -> &'p str {
        let len = if self.rest.starts_with('{') { counted(self.rest) } else { 1 };
        let lazy = len > 0 && self.rest[len..].starts_with('?');
        &self.rest[..len + usize::from(lazy)]
    }

    fn escape(&mut self, in_class: bool) -> Result<(), Mistake> {
        let tail = &self.rest[1..];
        let digits = octal(tail);
        if let Some(quoted) = tail.strip_prefix('Q') {
            let literal = quoted.split("\\E").next().unwrap_or("");
            self.out.push_str(&quote_meta(literal));
            self.rest = quoted[literal.len()..].strip_prefix("\\E").unwrap_or("");
        } else if digits > 0 {
            self.out.push_str(&format!("\\x{{{:x}}}", u32::from_str_radix(&tail[..digits], 8).unwrap_or(0)));
            self.rest = &tail[digits..];
        } else if tail.starts_with(['p', 'P']) {
            self.unicode_class(in_class)?;
        } else if tail.starts_with(|c: char| c.is_ascii_alphanumeric() && !"AabBdDfnrsStvwWxz".contains(c)) {
            return Err(invalid("invalid escape sequence", &self.rest[..2]));
        } else if tail.starts_with("x{") {
            self.copy(2 + tail.find('}').map_or(1, |end| end));
        } else {
            self.copy(1 + tail.chars().next().map_or(0, char::len_utf8));
        }
        Ok(())
    }

    /// `\pL`, `\p{Greek}`, and negations: `\P{Greek}`, `\p{^Greek}`.
    fn unicode_class(&mut self, in_class: bool) -> Result<(), Mistake> {
        let whole = self.rest;
        let tail = &whole[2..];
        let (name, rest) = match tail.strip_prefix('{') {
            Some(inner) => {
                inner.split_once('}').ok_or_else(|| invalid("invalid character class range", whole))?
            }
            None => tail.split_at(tail.chars().next().map_or(0, char::len_utf8)),
        };
        let positive = name.strip_prefix('^');
        let negated = whole.starts_with("\\P") != positive.is_some();
        let members = unicode::members(positive.unwrap_or(name), negated);
        let written = &whole[..whole.len() - rest.len()];
        let members = members.ok_or_else(|| Mistake::UnknownClass(written.to_owned()))?;
        self.out.push_str(&if in_class { members } else { format!("[{members}]") });
        self.rest = rest;
        Ok(())
    }

    fn class(&mut self) -> Result<(), Mistake> {
        let whole = self.rest;
        self.copy(1);
        if self.rest.starts_with('^') {
            self.copy(1);
        }
        // A leading bracket is literal.
        if self.rest.starts_with(']') {
            self.literal(']');
        }
        loop {
            self.check_size()?;
            match self.rest.chars().next() {
                None => return Err(invalid("missing closing ]", whole)),
                Some(']') => {
                    self.copy(1);
                    return Ok(());
                }
                Some('[') if self.rest.starts_with("[:") && self.rest.contains(":]") => {
                    self.copy(self.rest.find(":]").map_or(1, |end| end + 2));
                }
                // These are special only in the engine's classes.
                Some(c @ ('[' | '&' | '~')) => self.literal(c),
                Some('\\') => self.escape(true)?,
                Some(c) => self.copy(c.len_utf8()),
            }
        }
    }

    fn group(&mut self) -> Result<(), Mistake> {
        let named = self.rest.starts_with("(?P<") || self.rest.starts_with("(?<");
        let flags = self.rest[2..].find([':', ')']).map(|end| &self.rest[2..2 + end]);
        let valid = flags.is_some_and(|flags| flags.chars().all(|c| "imsU-".contains(c)));
        if !named && !valid {
            let shown: String = self.rest.chars().take(3).collect();
            return Err(invalid("invalid or unsupported Perl syntax", &shown));
        }
        self.copy(2);
        Ok(())
    }
}

/// The length of an octal escape such as `101`; a single digit other than 0 would be a back-reference.
fn octal(s: &str) -> usize {
    let digits = s.bytes().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
    if s.starts_with('0') || digits > 1 { digits } else { 0 }
}

/// The length of `{2}`, `{2,}` or `{2,3}` at the start; 0 if there is none.
fn counted(s: &str) -> usize {
    let Some(end) = s.find('}') else { return 0 };
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let valid = match s[1..end].split_once(',') {
        Some((min, max)) => !min.is_empty() && digits(min) && digits(max),
        None => end > 1 && digits(&s[1..end]),
    };
    if valid { end + 1 } else { 0 }
}

/// Go's `regexp.QuoteMeta`.
pub(super) fn quote_meta(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_are_escaped_and_mistakes_found() {
        for (pattern, want) in [
            ("{{a}}", Ok(r"\{\{a\}\}")),
            ("a{2}b{2,}c{2,3}?d{,2}", Ok(r"a{2}b{2,}c{2,3}?d\{,2\}")),
            ("[]a[&~^][[:alpha:]x]", Ok(r"[\]a\[\&\~^][[:alpha:]x]")),
            (r"\Qa.b\Ec\101\x{41}", Ok(r"a\.bc\x{41}\x{41}")),
            ("(?i)(?P<n>a)(?<m>b)(?s:c)", Ok("(?i)(?P<n>a)(?<m>b)(?s:c)")),
            ("a**", Err("error parsing regexp: invalid nested repetition operator: `**`")),
            ("a{1001}", Err("error parsing regexp: invalid repeat count: `{1001}`")),
            ("a{2,1}", Err("error parsing regexp: invalid repeat count: `{2,1}`")),
            ("(?x)a", Err("error parsing regexp: invalid or unsupported Perl syntax: `(?x`")),
            (r"\y", Err(r"error parsing regexp: invalid escape sequence: `\y`")),
            ("a[b", Err("error parsing regexp: missing closing ]: `[b`")),
        ] {
            let want = want.map(str::to_owned).map_err(|text| Mistake::Invalid(text.to_owned()));
            assert_eq!(translate(pattern), want, "{pattern}");
        }
        assert_eq!(translate(r"a\p{Thai}"), Err(Mistake::UnknownClass(r"\p{Thai}".to_owned())));
        assert_eq!(translate(r"\pM"), Err(Mistake::UnknownClass(r"\pM".to_owned())));
        let missing = r"error parsing regexp: invalid character class range: `\p{Greek`";
        assert_eq!(translate(r"\p{Greek"), Err(Mistake::Invalid(missing.to_owned())));
    }

    #[test]
    fn classes_of_unicode_are_written_out() {
        let (inside, outside) = (unicode::members("Z", false).unwrap(), unicode::members("Z", true).unwrap());
        for (pattern, want) in [
            (r"\pZ+", format!("[{inside}]+")),
            (r"\p{Z}a", format!("[{inside}]a")),
            (r"\PZ\p{^Z}", format!("[{outside}][{outside}]")),
            (r"\P{^Z}", format!("[{inside}]")),
            (r"[^a\pZ\d]", format!(r"[^a{inside}\d]")),
            (r"[\PZ]", format!("[{outside}]")),
        ] {
            assert_eq!(translate(pattern), Ok(want), "{pattern}");
        }
    }
}
