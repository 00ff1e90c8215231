//! Regular expressions. The engine is regex-lite, whose classes are ASCII as in Go; what Go takes for literal and it
//! does not is escaped before, and the rules of empty matches and of `$` in replacements are Go's.

use std::rc::Rc;

use regex_lite::{Captures, Regex, RegexBuilder};

use super::super::eval::Shared;
use super::super::unquote::quote;
use super::strings::check_size;
use super::{Answer, Args, Cause, Function, fixed};
use crate::chart::value::Type::{Int, Str};
use crate::chart::value::{List, ListKind, Value};
use crate::limits::{TEMPLATE_LIST_ITEMS_MAX, TEMPLATE_REGEX_BYTES_MAX, TEMPLATE_REGEXES_MAX};

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("regexMatch", &[Str, Str], |a| Ok(compiled(a).is_ok_and(|r| r.is_match(&a.str(1))).into())),
    fixed("mustRegexMatch", &[Str, Str], |a| Ok(compiled(a)?.is_match(&a.str(1)).into())),
    fixed("regexFind", &[Str, Str], |a| regex_find(a, &*must_compile(a)?)),
    fixed("mustRegexFind", &[Str, Str], |a| regex_find(a, &*compiled(a)?)),
    fixed("regexFindAll", &[Str, Str, Int], |a| regex_find_all(a, &*must_compile(a)?)),
    fixed("mustRegexFindAll", &[Str, Str, Int], |a| regex_find_all(a, &*compiled(a)?)),
    fixed("regexReplaceAll", &[Str, Str, Str], |a| replace_all(a, &*must_compile(a)?, expand)),
    fixed("mustRegexReplaceAll", &[Str, Str, Str], |a| replace_all(a, &*compiled(a)?, expand)),
    fixed("regexReplaceAllLiteral", &[Str, Str, Str], |a| replace_all(a, &*must_compile(a)?, literal)),
    fixed("mustRegexReplaceAllLiteral", &[Str, Str, Str], |a| replace_all(a, &*compiled(a)?, literal)),
    fixed("regexSplit", &[Str, Str, Int], |a| regex_split(a, &*must_compile(a)?)),
    fixed("mustRegexSplit", &[Str, Str, Int], |a| regex_split(a, &*compiled(a)?)),
    fixed("regexQuoteMeta", &[Str], |a| Ok(quote_meta(&a.str(0)).into())),
];

/// The first argument as an expression. Charts use the same few again and again.
fn compiled(a: &Args<'_>) -> Result<Rc<Regex>, Cause> {
    let pattern = a.str(0);
    let known = |shared: &Shared<'_>| shared.regexes.borrow().get(&*pattern).cloned();
    if let Some(regex) = known(a.engine.shared) {
        return Ok(regex);
    }
    let regex = RegexBuilder::new(&as_lite(&pattern))
        .size_limit(TEMPLATE_REGEX_BYTES_MAX)
        .build()
        .map_err(|e| complaint(&pattern, &e))?;
    let regex = Rc::new(regex);
    let mut cache = a.engine.shared.regexes.borrow_mut();
    if cache.len() < TEMPLATE_REGEXES_MAX {
        cache.insert(pattern.into_owned(), regex.clone());
    }
    Ok(regex)
}

/// Go's words, where the mistake is a common one.
fn complaint(pattern: &str, error: &regex_lite::Error) -> String {
    let text = error.to_string();
    if text.contains("open group without closing") {
        return format!("error parsing regexp: missing closing ): `{pattern}`");
    }
    if text.contains("unclosed character class") {
        let class = pattern.rfind('[').map_or(pattern, |at| &pattern[at..]);
        return format!("error parsing regexp: missing closing ]: `{class}`");
    }
    format!("error parsing regexp: {text}: `{pattern}`")
}

/// The same for the functions that panic in Go.
fn must_compile(a: &Args<'_>) -> Result<Rc<Regex>, Cause> {
    compiled(a).map_err(|cause| match cause {
        Cause::Text(text) => Cause::Text(format!("regexp: Compile({}): {text}", backquoted(&a.str(0)))),
        other => other,
    })
}

/// As Go quotes an expression: with backquotes, if it has none itself.
fn backquoted(pattern: &str) -> String {
    if pattern.contains('`') { quote(pattern.as_bytes()) } else { format!("`{pattern}`") }
}

/// Escapes braces that repeat nothing, and what has a meaning in the other syntax only; spells `\Q...\E` out.
fn as_lite(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    let mut in_class = false;
    while let Some(c) = rest.chars().next() {
        let tail = &rest[c.len_utf8()..];
        let mut used = c.len_utf8();
        match c {
            '\\' if tail.starts_with('Q') => {
                let literal = tail[1..].split("\\E").next().unwrap_or("");
                out.push_str(&quote_meta(literal));
                used = (2 + literal.len() + 2).min(rest.len());
            }
            '\\' if octal(tail) > 0 => {
                let digits = &tail[..octal(tail)];
                out.push_str(&format!("\\x{{{:x}}}", u32::from_str_radix(digits, 8).unwrap_or(0)));
                used += digits.len();
            }
            // `\pL{...}`, `\x{41}` and the like go through whole; so does any escaped character.
            '\\' => {
                used += tail.chars().next().map_or(0, char::len_utf8);
                if tail.starts_with(['x', 'p', 'P']) && rest[used..].starts_with('{') {
                    used += rest[used..].find('}').map_or(0, |end| end + 1);
                }
                out.push_str(&rest[..used]);
            }
            '[' if !in_class => {
                in_class = true;
                // A bracket or a caret and a bracket at the start is literal.
                let negated = tail.strip_prefix('^').map_or((c, tail), |t| ('^', t));
                out.push('[');
                if negated.0 == '^' {
                    out.push('^');
                    used += 1;
                }
                if negated.1.starts_with(']') {
                    out.push_str("\\]");
                    used += 1;
                }
            }
            '[' if tail.starts_with(':') && tail.contains(":]") => {
                used += tail.find(":]").map_or(0, |end| end + 2);
                out.push_str(&rest[..used]);
            }
            '[' | '&' | '~' if in_class => {
                out.push('\\');
                out.push(c);
            }
            ']' if in_class => {
                in_class = false;
                out.push(c);
            }
            '{' if !in_class && repetition(rest) == 0 => out.push_str("\\{"),
            '{' if !in_class => {
                used = repetition(rest);
                out.push_str(&rest[..used]);
            }
            '}' | ']' if !in_class => {
                out.push('\\');
                out.push(c);
            }
            _ => out.push(c),
        }
        rest = &rest[used..];
    }
    out
}

/// The length of an octal escape such as `101`; one digit other than 0 would be a back-reference.
fn octal(s: &str) -> usize {
    let digits = s.bytes().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
    if s.starts_with('0') || digits > 1 { digits } else { 0 }
}

/// The length of `{2}`, `{2,}` or `{2,3}` at the start; 0 if there is none.
fn repetition(s: &str) -> usize {
    let Some(end) = s.find('}') else { return 0 };
    let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    let valid = match s[1..end].split_once(',') {
        Some((min, max)) => !min.is_empty() && digits(min) && digits(max),
        None => end > 1 && digits(&s[1..end]),
    };
    if valid { end + 1 } else { 0 }
}

fn quote_meta(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn regex_find(a: &Args<'_>, regex: &Regex) -> Answer {
    Ok(regex.find(&a.str(1)).map_or("", |m| m.as_str()).into())
}

/// Ranges of all matches, at most `count` of them if that is not negative. An empty match right behind another does
/// not count.
fn matches(regex: &Regex, text: &str, count: i64) -> Result<Vec<(usize, usize)>, Cause> {
    let max = usize::try_from(count).unwrap_or(TEMPLATE_LIST_ITEMS_MAX + 1);
    let mut found = Vec::new();
    let (mut at, mut last_end) = (0, None);
    while found.len() < max && at <= text.len() {
        let Some(m) = regex.find_at(text, at) else { break };
        let abuts = m.end() == at && last_end == Some(m.start());
        at = if m.end() == at { next_char(text, at) } else { m.end() };
        last_end = Some(m.end());
        if !abuts {
            found.push((m.start(), m.end()));
        }
    }
    if found.len() > TEMPLATE_LIST_ITEMS_MAX {
        return Err(format!("list has more than {TEMPLATE_LIST_ITEMS_MAX} items").into());
    }
    Ok(found)
}

fn next_char(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(1, char::len_utf8)
}

fn regex_find_all(a: &Args<'_>, regex: &Regex) -> Answer {
    let text = a.str(1);
    let found = matches(regex, &text, a.int(2))?;
    if found.is_empty() {
        return Ok(Value::List(List::nil(ListKind::Strings)));
    }
    Ok(Value::strings(found.into_iter().map(|(start, end)| &text[start..end])))
}

fn regex_split(a: &Args<'_>, regex: &Regex) -> Answer {
    let (text, count) = (a.str(1), a.int(2));
    if count == 0 {
        return Ok(Value::List(List::nil(ListKind::Strings)));
    }
    if !a.bytes(0).is_empty() && text.is_empty() {
        return Ok(Value::strings([""]));
    }
    let mut parts = Vec::new();
    let (mut begin, mut end) = (0, 0);
    for (start, stop) in matches(regex, &text, count)? {
        if count > 0 && i64::try_from(parts.len()).is_ok_and(|n| n == count - 1) {
            break;
        }
        end = start;
        if stop != 0 {
            parts.push(&text[begin..end]);
        }
        begin = stop;
    }
    if end != text.len() {
        parts.push(&text[begin..]);
    }
    Ok(Value::strings(parts))
}

type Replacement = fn(&Regex, &Captures<'_>, &str) -> String;

fn literal(_: &Regex, _: &Captures<'_>, with: &str) -> String {
    with.to_owned()
}

fn replace_all(a: &Args<'_>, regex: &Regex, replacement: Replacement) -> Answer {
    let (text, with) = (a.str(1), a.str(2));
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut at) = (0, 0);
    while at <= text.len() {
        let Some(captures) = regex.captures_at(&text, at) else { break };
        let Some(whole) = captures.get(0) else { break };
        out.push_str(&text[copied..whole.start()]);
        // Not for an empty match right behind another.
        if whole.end() > copied || whole.start() == 0 {
            out.push_str(&replacement(regex, &captures, &with));
            check_size(out.len())?;
        }
        copied = whole.end();
        at = next_char(&text, at).max(whole.end());
    }
    out.push_str(&text[copied..]);
    Ok(out.into())
}

/// Go's replacement text: `$name` is the longest run of letters, digits and `_`, so `$1x` is the group `1x`.
fn expand(regex: &Regex, captures: &Captures<'_>, template: &str) -> String {
    let mut out = String::new();
    let mut rest = template;
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        rest = &rest[dollar..];
        if let Some(after) = rest.strip_prefix("$$") {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = group_name(&rest[1..]) {
            out.push_str(group(regex, captures, name));
            rest = after;
        } else {
            out.push('$');
            rest = &rest[1..];
        }
    }
    out + rest
}

fn group_name(s: &str) -> Option<(&str, &str)> {
    let word = |s: &str| s.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(s.len());
    match s.strip_prefix('{') {
        Some(braced) => {
            let end = word(braced);
            let name = &braced[..end];
            let after = braced[end..].strip_prefix('}')?;
            (!name.is_empty()).then_some((name, after))
        }
        None => (word(s) > 0).then(|| s.split_at(word(s))),
    }
}

fn group<'h>(regex: &Regex, captures: &Captures<'h>, name: &str) -> &'h str {
    let index = if name.bytes().all(|b| b.is_ascii_digit()) {
        name.parse().ok()
    } else {
        regex.capture_names().position(|known| known == Some(name))
    };
    index.and_then(|i| captures.get(i)).map_or("", |m| m.as_str())
}
