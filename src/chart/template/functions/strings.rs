//! Strings. Cutting functions count bytes, as in Go.

use std::borrow::Cow;

use super::super::unquote::quote;
use super::super::{find, format};
use super::cast::texts;
use super::{Args, Cause, Function, FunctionResult, fixed, to_text, variadic};
use crate::chart::value::Type::{Any, Int, Str};
use crate::chart::value::{GoString, Map, MapKind, Value};
use crate::limits::TEMPLATE_OUTPUT_BYTES_MAX;

pub(super) const FUNCTIONS: &[Function] = &[
    fixed("trim", &[Str], |a| Ok(trimmed(a, 0, &char::is_whitespace))),
    fixed("trimAll", &[Str, Str], trim_all),
    fixed("trimall", &[Str, Str], trim_all),
    fixed("trimSuffix", &[Str, Str], |a| {
        Ok(cut(a, 1, a.bytes(1).strip_suffix(a.bytes(0)).unwrap_or(a.bytes(1))))
    }),
    fixed("trimPrefix", &[Str, Str], |a| {
        Ok(cut(a, 1, a.bytes(1).strip_prefix(a.bytes(0)).unwrap_or(a.bytes(1))))
    }),
    fixed("contains", &[Str, Str], |a| Ok(find(a.bytes(1), a.bytes(0)).is_some().into())),
    fixed("hasPrefix", &[Str, Str], |a| Ok(a.bytes(1).starts_with(a.bytes(0)).into())),
    fixed("hasSuffix", &[Str, Str], |a| Ok(a.bytes(1).ends_with(a.bytes(0)).into())),
    variadic("quote", &[], Any, |a| joined(a, |v| Ok(quote(to_text(v)?.as_bytes()).into_bytes()))),
    variadic("squote", &[], Any, |a| {
        joined(a, |v| Ok([b"'", format::display(v)?.as_bytes(), b"'"].concat()))
    }),
    variadic("cat", &[], Any, |a| joined(a, |v| Ok(format::display(v)?.as_bytes().to_vec()))),
    fixed("indent", &[Int, Str], |a| indent(a, b"")),
    fixed("nindent", &[Int, Str], |a| indent(a, b"\n")),
    fixed("replace", &[Str, Str, Str], |a| {
        // The usual case: no replacement.
        let found = find(a.bytes(2), a.bytes(0)).is_some();
        Ok(if found { bytes(&replace(a.bytes(2), a.bytes(0), a.bytes(1))?) } else { a.text(2).into() })
    }),
    fixed("repeat", &[Int, Str], repeat),
    fixed("plural", &[Str, Str, Int], |a| Ok(a.text(if a.int(2) == 1 { 0 } else { 1 }).into())),
    fixed("trunc", &[Int, Str], trunc),
    fixed("substr", &[Int, Int, Str], substr),
    fixed("abbrev", &[Int, Str], abbrev),
    fixed("abbrevboth", &[Int, Int, Str], abbrevboth),
    fixed("split", &[Str, Str], |a| Ok(numbered(&split(a.bytes(1), a.bytes(0), -1)))),
    fixed("splitn", &[Str, Int, Str], |a| Ok(numbered(&split(a.bytes(2), a.bytes(0), a.int(1))))),
    fixed("splitList", &[Str, Str], |a| Ok(Value::strings(split(a.bytes(1), a.bytes(0), -1)))),
    fixed("join", &[Str, Any], join),
];

/// A string of bytes.
pub(super) fn bytes(b: &[u8]) -> Value {
    GoString::from(b).into()
}

/// The rest of an argument; the same text if nothing was cut.
fn cut(a: &Args<'_>, index: usize, left: &[u8]) -> Value {
    if left.len() == a.bytes(index).len() { a.text(index).into() } else { bytes(left) }
}

/// Refuses text that only a runaway template needs, before it is created.
pub(super) fn check_size(size: usize) -> Result<(), Cause> {
    if size > TEMPLATE_OUTPUT_BYTES_MAX {
        return Err(format!("text has more than {TEMPLATE_OUTPUT_BYTES_MAX} bytes").into());
    }
    Ok(())
}

fn trim_all(a: &Args<'_>) -> FunctionResult {
    let cutset = a.str(0);
    a.charge(cutset.len().saturating_mul(a.bytes(1).len()))?;
    Ok(trimmed(a, 1, &|c| cutset.contains(c)))
}

/// An argument without the characters at its ends that are to go. A byte that is no part of a character counts as U+FFFD, as in Go.
fn trimmed(a: &Args<'_>, index: usize, goes: &dyn Fn(char) -> bool) -> Value {
    let text = a.str(index);
    let Cow::Owned(_) = text else { return text.trim_matches(goes).into() };
    let bytes = a.bytes(index);
    let stays = |at: &usize| format::first_char(&bytes[*at..]).is_some_and(|(c, _)| !goes(c));
    let starts: Vec<usize> = format::rune_starts(bytes).collect();
    let first = starts.iter().position(&stays).unwrap_or(starts.len());
    let after = starts.iter().rposition(&stays).map_or(first, |last| last + 1);
    let at = |rune: usize| starts.get(rune).copied().unwrap_or(bytes.len());
    cut(a, index, &bytes[at(first)..at(after)])
}

fn joined(a: &Args<'_>, one: impl Fn(&Value) -> Result<Vec<u8>, Cause>) -> FunctionResult {
    let mut out = Vec::new();
    for (i, value) in a.rest(0).iter().filter(|v| !v.is_nil()).enumerate() {
        let part = one(value)?;
        if i == 0 {
            out = part;
        } else {
            out.push(b' ');
            out.extend_from_slice(&part);
        }
    }
    Ok(GoString::from(out).into())
}

fn indent(a: &Args<'_>, before: &[u8]) -> FunctionResult {
    let width = usize::try_from(a.int(0)).map_err(|_| "strings: negative Repeat count")?;
    check_size(width)?;
    let text = a.bytes(1);
    let lines = 1 + text.iter().filter(|b| **b == b'\n').count();
    check_size(lines.saturating_mul(width).saturating_add(text.len()))?;
    let mut out = Vec::with_capacity(before.len() + text.len() + lines * width);
    out.extend_from_slice(before);
    for (i, line) in text.split(|b| *b == b'\n').enumerate() {
        if i > 0 {
            out.push(b'\n');
        }
        out.resize(out.len() + width, b' ');
        out.extend_from_slice(line);
    }
    Ok(GoString::from(out).into())
}

/// Go's `strings.ReplaceAll`: an empty `old` matches before each rune and at the end.
pub(super) fn replace(text: &[u8], old: &[u8], new: &[u8]) -> Result<Vec<u8>, Cause> {
    let mut out = Vec::with_capacity(text.len());
    if old.is_empty() {
        check_size(text.len().saturating_mul(new.len() + 1))?;
        let text = String::from_utf8_lossy(text);
        for c in text.chars() {
            out.extend_from_slice(new);
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        out.extend_from_slice(new);
        return Ok(out);
    }
    let mut rest = text;
    while let Some(at) = find(rest, old) {
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(new);
        check_size(out.len())?;
        rest = &rest[at + old.len()..];
    }
    out.extend_from_slice(rest);
    Ok(out)
}

fn repeat(a: &Args<'_>) -> FunctionResult {
    let count = usize::try_from(a.int(0)).map_err(|_| "strings: negative Repeat count")?;
    check_size(a.bytes(1).len().saturating_mul(count))?;
    Ok(bytes(&a.bytes(1).repeat(count)))
}

fn trunc(a: &Args<'_>) -> FunctionResult {
    let text = a.bytes(1);
    let size = usize::try_from(a.int(0).unsigned_abs()).unwrap_or(usize::MAX);
    let left = match a.int(0) < 0 {
        true if text.len() > size => &text[text.len() - size..],
        false if text.len() > size => &text[..size],
        _ => text,
    };
    Ok(cut(a, 1, left))
}

fn substr(a: &Args<'_>) -> FunctionResult {
    let (start, end, text) = (a.int(0), a.int(1), a.bytes(2));
    let len = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let bounds = |message: String| Cause::Text(format!("runtime error: slice bounds out of range {message}"));
    let at = |i: i64| usize::try_from(i).unwrap_or(0);
    if start < 0 {
        return match end {
            ..0 => Err(bounds(format!("[:{end}]"))),
            _ if end > len => Err(bounds(format!("[:{end}] with length {len}"))),
            _ => Ok(bytes(&text[..at(end)])),
        };
    }
    if end < 0 || end > len {
        return if start > len {
            Err(bounds(format!("[{start}:{len}]")))
        } else {
            Ok(bytes(&text[at(start)..]))
        };
    }
    if start > end { Err(bounds(format!("[{start}:{end}]"))) } else { Ok(bytes(&text[at(start)..at(end)])) }
}

fn abbrev(a: &Args<'_>) -> FunctionResult {
    if a.int(0) < 4 {
        return Ok(a.text(1).into());
    }
    Ok(bytes(&abbreviate(a.bytes(1), 0, a.int(0))))
}

fn abbrevboth(a: &Args<'_>) -> FunctionResult {
    let (left, right) = (a.int(0), a.int(1));
    if right < 4 || (left > 0 && right < 7) {
        return Ok(a.text(2).into());
    }
    Ok(bytes(&abbreviate(a.bytes(2), left, right)))
}

/// At most `width` bytes, with dots for omitted text; `offset` is the approximate start.
fn abbreviate(text: &[u8], offset: i64, width: i64) -> Vec<u8> {
    let len = i64::try_from(text.len()).unwrap_or(i64::MAX);
    if len <= width {
        return text.to_vec();
    }
    let at = |i: i64| usize::try_from(i).unwrap_or(0);
    let mut offset = offset.min(len);
    // As in Go, where the subtraction wraps around.
    if len.wrapping_sub(offset) < width - 3 {
        offset = len - (width - 3);
    }
    if offset <= 4 {
        return [&text[..at(width - 3)], b"..."].concat();
    }
    if width < 7 {
        return Vec::new();
    }
    if offset + width - 3 < len {
        return [b"...", &abbreviate(&text[at(offset)..], 0, width - 3)[..]].concat();
    }
    [b"...", &text[at(len - (width - 3))..]].concat()
}

/// Go's `strings.SplitN`; a negative count means all parts.
fn split<'t>(text: &'t [u8], separator: &[u8], count: i64) -> Vec<Cow<'t, [u8]>> {
    if count == 0 {
        return Vec::new();
    }
    let max = usize::try_from(count).unwrap_or(usize::MAX);
    if separator.is_empty() {
        return runes(text, max);
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while parts.len() + 1 < max {
        let Some(at) = find(rest, separator) else { break };
        parts.push(Cow::Borrowed(&rest[..at]));
        rest = &rest[at + separator.len()..];
    }
    parts.push(Cow::Borrowed(rest));
    parts
}

fn runes(text: &[u8], max: usize) -> Vec<Cow<'_, [u8]>> {
    let mut parts = Vec::new();
    let mut starts = format::rune_starts(text).skip(1).chain([text.len()]);
    let mut start = 0;
    while start < text.len() {
        let end = if parts.len() + 1 < max { starts.next().unwrap_or(text.len()) } else { text.len() };
        parts.push(Cow::Borrowed(&text[start..end]));
        start = end;
    }
    parts
}

fn numbered(parts: &[Cow<'_, [u8]>]) -> Value {
    let entries = parts.iter().enumerate().map(|(i, part)| (format!("_{i}").into(), bytes(part))).collect();
    Value::Map(Map::of(MapKind::Strings, entries))
}

impl From<Cow<'_, [u8]>> for GoString {
    fn from(b: Cow<'_, [u8]>) -> Self {
        Self::from(&*b)
    }
}

fn join(a: &Args<'_>) -> FunctionResult {
    let parts = texts(a.any(1))?;
    let separator = a.bytes(0);
    check_size(parts.iter().map(GoString::len).sum::<usize>() + separator.len().saturating_mul(parts.len()))?;
    let mut out = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        if i > 0 {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(part.as_bytes());
    }
    Ok(GoString::from(out).into())
}
