//! URLs: parsed and composed as in Go's `net/url`.

use super::super::unquote::quote;
use super::{Args, Function, FunctionResult, fixed};
use crate::chart::value::Type::{Map as MapType, Str};
use crate::chart::value::{GoString, Map, Value};
use crate::format::percent;

pub(super) const FUNCTIONS: &[Function] =
    &[fixed("urlParse", &[Str], url_parse), fixed("urlJoin", &[MapType], url_join)];

/// Decoded parts, except for the query.
#[derive(Debug, Default)]
struct Url {
    scheme: String,
    opaque: String,
    user: Option<(Vec<u8>, Option<Vec<u8>>)>,
    host: Vec<u8>,
    path: Vec<u8>,
    /// The path as written, if it differs from the encoder's output.
    raw_path: String,
    query: Option<String>,
    fragment: Vec<u8>,
}

fn url_parse(a: &Args<'_>) -> FunctionResult {
    let text = a.str(0);
    let url = Url::parse(&text)
        .map_err(|e| format!("unable to parse url: parse {}: {e}", quote(text.as_bytes())))?;
    let host = String::from_utf8_lossy(&url.host).into_owned();
    Ok(Value::map([
        ("hostname", hostname(&host).into()),
        ("scheme", url.scheme.clone().into()),
        ("host", host.into()),
        ("path", GoString::from(&url.path[..]).into()),
        ("query", url.query.clone().unwrap_or_default().into()),
        ("opaque", url.opaque.clone().into()),
        ("fragment", GoString::from(&url.fragment[..]).into()),
        ("userinfo", url.userinfo().into()),
    ]))
}

/// Scheme, host with port, host alone. Errors: in Go's words.
pub(in super::super) fn parts(text: &str) -> Result<(String, String, String), String> {
    let url = Url::parse(text).map_err(|e| format!("parse {}: {e}", quote(text.as_bytes())))?;
    let host = String::from_utf8_lossy(&url.host).into_owned();
    let name = hostname(&host).to_owned();
    Ok((url.scheme, host, name))
}

fn url_join(a: &Args<'_>) -> FunctionResult {
    let map = a.map(0);
    let part = |key: &str| part(&map, key);
    let userinfo = part("userinfo")?;
    let mut url = Url {
        scheme: part("scheme")?,
        opaque: part("opaque")?,
        host: part("host")?.into_bytes(),
        path: part("path")?.into_bytes(),
        query: Some(part("query")?).filter(|q| !q.is_empty()),
        fragment: part("fragment")?.into_bytes(),
        ..Url::default()
    };
    if !userinfo.is_empty() {
        let proto = format!("proto://{userinfo}@host");
        let parsed = Url::parse(&proto).map_err(|e| {
            format!("unable to parse userinfo in dict: parse {}: {e}", quote(proto.as_bytes()))
        })?;
        url.user = parsed.user;
    }
    Ok(url.text().into())
}

fn part(map: &Map, key: &str) -> Result<String, String> {
    match map.get(key) {
        None => Ok(String::new()),
        Some(Value::Str(s)) => Ok(s.to_str().into_owned()),
        Some(Value::Nil) => Err(super::lists::NIL_POINTER.to_owned()),
        Some(other) => {
            let kind = other.kind_name();
            Err(format!("unable to parse {key} key, must be of type string, but {kind} found"))
        }
    }
}

/// The host without port and brackets.
fn hostname(host: &str) -> &str {
    let without_port = match host.rfind(':') {
        Some(colon)
            if host[colon + 1..].bytes().all(|b| b.is_ascii_digit()) && !host[colon..].contains(']') =>
        {
            &host[..colon]
        }
        _ => host,
    };
    without_port.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(without_port)
}

impl Url {
    fn parse(text: &str) -> Result<Self, String> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        if before.bytes().any(|b| b < b' ' || b == 0x7f) {
            return Err("net/url: invalid control character in URL".to_owned());
        }
        let mut url = Self { fragment: unescape(fragment, UrlPart::Fragment)?, ..Self::default() };
        if before.is_empty() {
            return Ok(url);
        }
        let (scheme, rest) = scheme(before)?;
        url.scheme = scheme.to_ascii_lowercase();
        let (mut rest, query) = match rest.split_once('?') {
            Some((rest, query)) => (rest, Some(query.to_owned())),
            None => (rest, None),
        };
        url.query = query;
        if !rest.starts_with('/') {
            if !url.scheme.is_empty() {
                rest.clone_into(&mut url.opaque);
                return Ok(url);
            }
            if rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err("first path segment in URL cannot contain colon".to_owned());
            }
        }
        let authority = (!url.scheme.is_empty() || !rest.starts_with("///")).then(|| rest.strip_prefix("//"));
        if let Some(after) = authority.flatten() {
            let end = after.find('/').unwrap_or(after.len());
            url.authority(&after[..end])?;
            rest = &after[end..];
        }
        url.path = unescape(rest, UrlPart::Path)?;
        if escape(&url.path, UrlPart::Path) != rest {
            rest.clone_into(&mut url.raw_path);
        }
        Ok(url)
    }

    fn authority(&mut self, authority: &str) -> Result<(), String> {
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if host.starts_with('[') && !host.contains(']') {
            return Err("missing ']' in host".to_owned());
        }
        let port = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
        let number = port.split_once(':').map_or("", |(_, number)| number);
        if !number.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!("invalid port {:?} after host", format!(":{number}")));
        }
        self.host = unescape(host, UrlPart::Host)?;
        if let Some(user) = user {
            let valid = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
            if !user.bytes().all(valid) {
                return Err("net/url: invalid userinfo".to_owned());
            }
            self.user = Some(match user.split_once(':') {
                Some((name, password)) => {
                    (unescape(name, UrlPart::User)?, Some(unescape(password, UrlPart::User)?))
                }
                None => (unescape(user, UrlPart::User)?, None),
            });
        }
        Ok(())
    }

    fn userinfo(&self) -> String {
        match &self.user {
            None => String::new(),
            Some((name, None)) => escape(name, UrlPart::User),
            Some((name, Some(password))) => {
                format!("{}:{}", escape(name, UrlPart::User), escape(password, UrlPart::User))
            }
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        if !self.scheme.is_empty() {
            out.push_str(&format!("{}:", self.scheme));
        }
        if self.opaque.is_empty() {
            self.push_hierarchy(&mut out);
        } else {
            out.push_str(&self.opaque);
        }
        if let Some(query) = &self.query {
            out.push_str(&format!("?{query}"));
        }
        if !self.fragment.is_empty() {
            out.push_str(&format!("#{}", escape(&self.fragment, UrlPart::Fragment)));
        }
        out
    }

    fn push_hierarchy(&self, out: &mut String) {
        if !self.scheme.is_empty() || !self.host.is_empty() || self.user.is_some() {
            if !self.host.is_empty() || !self.path.is_empty() || self.user.is_some() {
                out.push_str("//");
            }
            if self.user.is_some() {
                out.push_str(&format!("{}@", self.userinfo()));
            }
            out.push_str(&escape(&self.host, UrlPart::Host));
        }
        let path = escape(&self.path, UrlPart::Path);
        if !path.is_empty() && !path.starts_with('/') && !self.host.is_empty() {
            out.push('/');
        }
        if out.is_empty() && path.split('/').next().is_some_and(|first| first.contains(':')) {
            out.push_str("./");
        }
        out.push_str(&path);
    }
}

fn scheme(text: &str) -> Result<(&str, &str), String> {
    for (i, b) in text.bytes().enumerate() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if i > 0 => {}
            b':' if i == 0 => return Err("missing protocol scheme".to_owned()),
            b':' => return Ok((&text[..i], &text[i + 1..])),
            _ => break,
        }
    }
    Ok(("", text))
}

#[derive(Clone, Copy, PartialEq)]
enum UrlPart {
    Path,
    Host,
    User,
    Fragment,
}

fn stays(b: u8, part: UrlPart) -> bool {
    if percent::is_unreserved(b) {
        return true;
    }
    match part {
        UrlPart::Host => b"!$&'()*+,;=:[]<>\"".contains(&b),
        UrlPart::Path => b"$&+,/:;=@".contains(&b),
        UrlPart::User => b"$&+,;=".contains(&b),
        UrlPart::Fragment => b"$&+,/:;=?@!()*".contains(&b),
    }
}

fn escape(bytes: &[u8], part: UrlPart) -> String {
    let mut out = String::with_capacity(bytes.len());
    percent::encode(&mut out, bytes, &|b| stays(b, part));
    out
}

fn unescape(text: &str, part: UrlPart) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] != b'%' {
            if part == UrlPart::Host && bytes[at].is_ascii() && !stays(bytes[at], part) {
                let c = char::from(bytes[at]);
                return Err(format!("invalid character {:?} in host name", c.to_string()));
            }
            out.push(bytes[at]);
            at += 1;
            continue;
        }
        let digits = text.get(at + 1..at + 3).and_then(|d| u8::from_str_radix(d, 16).ok());
        let Some(byte) = digits else {
            let end = (at + 3).min(text.len());
            let shown = String::from_utf8_lossy(&bytes[at..end]);
            return Err(format!("invalid URL escape {shown:?}"));
        };
        out.push(byte);
        at += 3;
    }
    Ok(out)
}
