//! `html`, `js` and `urlquery`.

use super::super::format;
use super::super::unquote::is_print;
use super::{Args, Cause, Function, FunctionResult, variadic};
use crate::chart::value::Type::Any;
use crate::chart::value::{GoString, Value};

pub(super) const FUNCTIONS: &[Function] = &[
    variadic("html", &[], Any, |a| Ok(html(&source(a)?.to_str()).into())),
    variadic("js", &[], Any, |a| Ok(js(&source(a)?.to_str()).into())),
    variadic("urlquery", &[], Any, urlquery),
];

/// A single string unchanged, else the arguments as `print` formats them; nil prints as in an action.
fn source(a: &Args<'_>) -> Result<GoString, Cause> {
    let printable = |v: &Value| if v.is_nil() { Value::str("<no value>") } else { v.clone() };
    let values: Vec<Value> = a.rest(0).iter().map(printable).collect();
    Ok(format::sprint(&values)?)
}

fn html(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        match c {
            '\0' => out.push('\u{fffd}'),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            _ => out.push(c),
        }
    }
    out
}

fn js(s: &str) -> String {
    let mut out = String::with_capacity(s.len());
    for c in s.chars() {
        match c {
            '\\' => out.push_str(r"\\"),
            '\'' => out.push_str(r"\'"),
            '"' => out.push_str("\\\""),
            '<' => out.push_str(r"\u003C"),
            '>' => out.push_str(r"\u003E"),
            '&' => out.push_str(r"\u0026"),
            '=' => out.push_str(r"\u003D"),
            c if c < ' ' => out.push_str(&format!("\\u00{:02X}", u32::from(c))),
            c if !c.is_ascii() && !is_print(c) => out.push_str(&format!("\\u{:04X}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out
}

fn urlquery(a: &Args<'_>) -> FunctionResult {
    let text = source(a)?;
    let mut out = String::with_capacity(text.len());
    for b in text.as_bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(*b)),
            b' ' => out.push('+'),
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
    Ok(out.into())
}
