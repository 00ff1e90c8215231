//! Regular expressions. The engine is regex-lite, whose classes are ASCII as in Go. Characters that are literal in Go
//! but not in the engine are escaped first ([`syntax`]). Empty matches and `$` in replacements follow Go's rules.

mod syntax;
mod unicode;

use std::rc::Rc;

use regex_lite::{Captures, Match, Regex, RegexBuilder};
use syntax::Mistake;

use super::super::eval::SharedExecution;
use super::super::unquote::quote;
use super::strings::check_size;
use super::{Args, Cause, Function, FunctionResult, fixed};
use crate::base::clock;
use crate::chart::value::Type::{Int, Str};
use crate::chart::value::{List, ListKind, Value};
use crate::limits::{
    TEMPLATE_LIST_ITEMS_MAX, TEMPLATE_REGEX_BYTES_MAX, TEMPLATE_REGEX_TEXT_BYTES_MAX, TEMPLATE_REGEXES_MAX,
};

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("regexMatch", &[Str, Str], regex_match),
    fixed("mustRegexMatch", &[Str, Str], |a| Ok(is_match(a, &*compiled(a)?)?.into())),
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

/// A compiled expression, and the cost of a search with it.
#[derive(Debug)]
pub(in super::super::super) struct Expression {
    regex: Regex,
    /// The size of the compiled expression: 1 for most.
    weight: usize,
}

/// The size of a compiled expression with weight 1.
const SMALL_BYTES: usize = 4 << 10;
/// Bytes of text that an expression with weight 1 searches in one step.
const SEARCHED_PER_STEP: usize = 4;
/// The cost of compiling an expression with weight 1, in steps.
const COMPILE_STEPS: usize = 64;
/// For longer texts, the steps of a search are also measured, because the lookahead of an expression is unknown.
const LONG_BYTES: usize = 4 << 10;

impl Expression {
    /// The maximum cost of one search through this many bytes.
    pub(in super::super::super) fn steps(&self, bytes: usize) -> usize {
        bytes.saturating_mul(self.weight) / SEARCHED_PER_STEP
    }

    /// The cost of its compilation, in steps.
    pub(in super::super::super) fn compile_steps(&self) -> usize {
        self.weight.saturating_mul(COMPILE_STEPS) + self.regex.as_str().len()
    }

    /// Whether it matches anywhere in a text.
    pub(in super::super::super) fn is_match(&self, text: &str) -> bool {
        self.regex.is_match(text)
    }

    /// Searches from `at` on, if enough steps are left. `end` returns the end of a match.
    fn search<'t, T>(
        &self,
        a: &Args<'_>,
        text: &'t str,
        at: usize,
        search: impl FnOnce(&Regex, &'t str, usize) -> Option<T>,
        end: impl FnOnce(&T) -> usize,
    ) -> Result<Option<T>, Cause> {
        let shared = a.engine.shared;
        let left = text.len().saturating_sub(at);
        shared.afford(steps_of(self.steps(left))).map_err(Cause::Text)?;
        let start = (left > LONG_BYTES).then(clock::thread_cpu);
        let found = search(&self.regex, text, at);
        let searched = found.as_ref().map_or(left, |found| end(found).saturating_sub(at));
        let measured = start.map(|start| clock::thread_cpu().saturating_sub(start).as_micros());
        let measured = u64::try_from(measured.unwrap_or(0)).unwrap_or(u64::MAX);
        shared.charge(measured.max(1 + steps_of(self.steps(searched)))).map_err(Cause::Text)?;
        Ok(found)
    }
}

fn steps_of(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn is_match(a: &Args<'_>, expression: &Expression) -> Result<bool, Cause> {
    let text = a.str(1);
    a.engine.shared.charge(steps_of(expression.steps(text.len()))).map_err(Cause::Text)?;
    Ok(expression.is_match(&text))
}

/// The first argument as an expression. Charts use the same few repeatedly.
fn compiled(a: &Args<'_>) -> Result<Rc<Expression>, Cause> {
    usable(a)?.map_err(Cause::Text)
}

/// The expression, or Go's message if it is invalid. The outer error is for expressions that Go accepts.
fn usable(a: &Args<'_>) -> Result<Result<Rc<Expression>, String>, Cause> {
    let pattern = a.str(0);
    if std::str::from_utf8(a.bytes(0)).is_err() {
        return Ok(Err(format!("error parsing regexp: invalid UTF-8: `{pattern}`")));
    }
    let known = |shared: &SharedExecution<'_>| shared.regexes.borrow().get(&*pattern).cloned();
    if let Some(regex) = known(a.engine.shared) {
        return Ok(Ok(regex));
    }
    let regex = match build_or_refuse(&pattern)? {
        Ok(regex) => {
            a.engine.shared.charge(steps_of(regex.compile_steps())).map_err(Cause::Text)?;
            Rc::new(regex)
        }
        Err(message) => return Ok(Err(message)),
    };
    let mut cache = a.engine.shared.regexes.borrow_mut();
    if cache.len() < TEMPLATE_REGEXES_MAX {
        cache.insert(pattern.into_owned(), regex.clone());
    }
    Ok(Ok(regex))
}

/// Compiles an expression. Errors: what is wrong with it.
pub(in super::super) fn build(pattern: &str) -> Result<Expression, String> {
    build_or_refuse(pattern)?
}

/// The expression, or Go's message if it is invalid. The outer error is for expressions that Go accepts.
fn build_or_refuse(pattern: &str) -> Result<Result<Expression, String>, String> {
    let translated = match syntax::translate(pattern) {
        Ok(translated) => translated,
        Err(Mistake::Invalid(message)) => return Ok(Err(message)),
        Err(Mistake::TooLong) => {
            return Err(format!(
                "a regular expression has more than {TEMPLATE_REGEX_TEXT_BYTES_MAX} bytes with its classes"
            ));
        }
        Err(Mistake::UnknownClass(class)) => {
            return Err(format!("the class {class} in a regular expression is not supported: `{pattern}`"));
        }
    };
    // The engine does not report the size of an expression, so the smallest sufficient limit shows it.
    let mut size = SMALL_BYTES;
    loop {
        match RegexBuilder::new(&translated).size_limit(size).build() {
            Ok(regex) => return Ok(Ok(Expression { regex, weight: size / SMALL_BYTES })),
            Err(error) if size >= TEMPLATE_REGEX_BYTES_MAX || !is_size(&error) => {
                return Ok(Err(complaint(pattern, &error)));
            }
            Err(_) => size *= 4,
        }
    }
}

fn is_size(error: &regex_lite::Error) -> bool {
    error.to_string().contains("size limit")
}

/// Go's message, if the mistake is a common one.
fn complaint(pattern: &str, error: &regex_lite::Error) -> String {
    let text = error.to_string();
    let text = if text.contains("open group without closing") { "missing closing )" } else { &text };
    format!("error parsing regexp: {text}: `{pattern}`")
}

/// The same for functions that panic in Go.
fn must_compile(a: &Args<'_>) -> Result<Rc<Expression>, Cause> {
    usable(a)?.map_err(|text| format!("regexp: Compile({}): {text}", backquoted(&a.str(0))).into())
}

/// Go's quoting of an expression: with backquotes, if it contains none itself.
fn backquoted(pattern: &str) -> String {
    if pattern.contains('`') { quote(pattern.as_bytes()) } else { format!("`{pattern}`") }
}

fn regex_match(a: &Args<'_>) -> FunctionResult {
    match usable(a)? {
        Ok(expression) => Ok(is_match(a, &expression)?.into()),
        Err(_) => Ok(false.into()),
    }
}

fn regex_find(a: &Args<'_>, expression: &Expression) -> FunctionResult {
    let text = a.str(1);
    Ok(find_at(a, expression, &text, 0)?.map_or("", |m| m.as_str()).into())
}

fn find_at<'t>(
    a: &Args<'_>,
    expression: &Expression,
    text: &'t str,
    at: usize,
) -> Result<Option<Match<'t>>, Cause> {
    expression.search(a, text, at, Regex::find_at, Match::end)
}

/// Ranges of all matches, at most `count` if that is not negative. An empty match directly after another
/// one does not count.
fn matches(
    a: &Args<'_>,
    expression: &Expression,
    text: &str,
    count: i64,
) -> Result<Vec<(usize, usize)>, Cause> {
    let max = usize::try_from(count).unwrap_or(TEMPLATE_LIST_ITEMS_MAX + 1);
    let mut found = Vec::new();
    let (mut at, mut last_end) = (0, None);
    while found.len() < max && at <= text.len() {
        let Some(m) = find_at(a, expression, text, at)? else { break };
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

fn regex_find_all(a: &Args<'_>, expression: &Expression) -> FunctionResult {
    let text = a.str(1);
    let found = matches(a, expression, &text, a.int(2))?;
    if found.is_empty() {
        return Ok(Value::List(List::nil(ListKind::Strings)));
    }
    Ok(Value::strings(found.into_iter().map(|(start, end)| &text[start..end])))
}

fn regex_split(a: &Args<'_>, expression: &Expression) -> FunctionResult {
    let (text, count) = (a.str(1), a.int(2));
    if count == 0 {
        return Ok(Value::List(List::nil(ListKind::Strings)));
    }
    if !a.bytes(0).is_empty() && text.is_empty() {
        return Ok(Value::strings([""]));
    }
    let mut parts = Vec::new();
    let (mut begin, mut end) = (0, 0);
    for (start, stop) in matches(a, expression, &text, count)? {
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

fn replace_all(a: &Args<'_>, expression: &Expression, replacement: Replacement) -> FunctionResult {
    let (text, with) = (a.str(1), a.str(2));
    let mut out = String::with_capacity(text.len());
    let (mut copied, mut at) = (0, 0);
    while at <= text.len() {
        let end = |captures: &Captures<'_>| captures.get(0).map_or(0, |whole| whole.end());
        let search = |regex: &Regex, text, at| regex.captures_at(text, at);
        let Some(captures) = expression.search(a, &text, at, search, end)? else { break };
        let Some(whole) = captures.get(0) else { break };
        out.push_str(&text[copied..whole.start()]);
        // Not for an empty match directly after another one.
        if whole.end() > copied || whole.start() == 0 {
            out.push_str(&replacement(&expression.regex, &captures, &with));
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
