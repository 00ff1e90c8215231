//! Regular expressions. The engine is regex-lite, whose classes are ASCII as in Go; what Go takes for literal and it
//! does not is escaped before ([`syntax`]), and the rules of empty matches and of `$` in replacements are Go's.

mod syntax;
mod unicode;

use std::rc::Rc;

use regex_lite::{Captures, Regex, RegexBuilder};
use syntax::Mistake;

use super::super::eval::Shared;
use super::super::unquote::quote;
use super::strings::check_size;
use super::{Answer, Args, Cause, Function, fixed};
use crate::chart::value::Type::{Int, Str};
use crate::chart::value::{List, ListKind, Value};
use crate::limits::{TEMPLATE_LIST_ITEMS_MAX, TEMPLATE_REGEX_BYTES_MAX, TEMPLATE_REGEXES_MAX};

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("regexMatch", &[Str, Str], regex_match),
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
    fixed("regexQuoteMeta", &[Str], |a| Ok(syntax::quote_meta(&a.str(0)).into())),
];

/// The first argument as an expression. Charts use the same few again and again.
fn compiled(a: &Args<'_>) -> Result<Rc<Regex>, Cause> {
    usable(a)?.map_err(Cause::Text)
}

/// The expression, or Go's words if it is none. An error is what Go would have taken.
fn usable(a: &Args<'_>) -> Result<Result<Rc<Regex>, String>, Cause> {
    let pattern = a.str(0);
    if std::str::from_utf8(a.bytes(0)).is_err() {
        return Ok(Err(format!("error parsing regexp: invalid UTF-8: `{pattern}`")));
    }
    let known = |shared: &Shared<'_>| shared.regexes.borrow().get(&*pattern).cloned();
    if let Some(regex) = known(a.engine.shared) {
        return Ok(Ok(regex));
    }
    let regex = match build_or_refuse(&pattern)? {
        Ok(regex) => Rc::new(regex),
        Err(message) => return Ok(Err(message)),
    };
    let mut cache = a.engine.shared.regexes.borrow_mut();
    if cache.len() < TEMPLATE_REGEXES_MAX {
        cache.insert(pattern.into_owned(), regex.clone());
    }
    Ok(Ok(regex))
}

/// Compiles an expression.
///
/// # Errors
/// What is wrong with it.
pub(in super::super) fn build(pattern: &str) -> Result<Regex, String> {
    build_or_refuse(pattern)?
}

/// The expression, or Go's words if it is none. The outer error is what Go would have taken.
fn build_or_refuse(pattern: &str) -> Result<Result<Regex, String>, String> {
    let translated = match syntax::translate(pattern) {
        Ok(translated) => translated,
        Err(Mistake::Invalid(message)) => return Ok(Err(message)),
        Err(Mistake::UnknownClass(class)) => {
            return Err(format!("the class {class} in a regular expression is not supported: `{pattern}`"));
        }
    };
    let built = RegexBuilder::new(&translated).size_limit(TEMPLATE_REGEX_BYTES_MAX).build();
    Ok(built.map_err(|e| complaint(pattern, &e)))
}

/// Go's words, where the mistake is a common one.
fn complaint(pattern: &str, error: &regex_lite::Error) -> String {
    let text = error.to_string();
    let text = if text.contains("open group without closing") { "missing closing )" } else { &text };
    format!("error parsing regexp: {text}: `{pattern}`")
}

/// The same for the functions that panic in Go.
fn must_compile(a: &Args<'_>) -> Result<Rc<Regex>, Cause> {
    usable(a)?.map_err(|text| format!("regexp: Compile({}): {text}", backquoted(&a.str(0))).into())
}

/// As Go quotes an expression: with backquotes, if it has none itself.
fn backquoted(pattern: &str) -> String {
    if pattern.contains('`') { quote(pattern.as_bytes()) } else { format!("`{pattern}`") }
}

fn regex_match(a: &Args<'_>) -> Answer {
    Ok(usable(a)?.is_ok_and(|regex| regex.is_match(&a.str(1))).into())
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
