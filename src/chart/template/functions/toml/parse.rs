//! Parses TOML 1.0. Messages give the line and the mistake in our own words.

use std::collections::HashSet;

use super::super::dates;
use crate::chart::template::unquote::{parse_float, parse_int};
use crate::chart::value::{List, ListKind, Map, Value};
use crate::limits::NESTING_DEPTH_MAX;

/// Parses the document into a map.
pub(super) fn document(text: &str) -> Result<Value, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut parser = Parser { text, at: 0, headers: HashSet::new(), depth: 0 };
    let root = Map::new();
    let parsed = match text.char_indices().find(|(at, c)| is_forbidden(*c, &text[*at..])) {
        Some((at, c)) => {
            parser.at = at;
            Err(format!("control character {c:?} is not allowed"))
        }
        None => parser.document(&root),
    };
    parsed.map_err(|message| {
        let line = 1 + text[..parser.at.min(text.len())].matches('\n').count();
        format!("toml: line {line}: {message}")
    })?;
    Ok(root.into())
}

/// Control characters are forbidden everywhere, and line breaks must be complete.
fn is_forbidden(c: char, rest: &str) -> bool {
    c.is_ascii_control() && !matches!(c, '\t' | '\n') && !rest.starts_with("\r\n")
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    /// Tables with an explicit header, by the address of their path.
    headers: HashSet<Vec<String>>,
    depth: usize,
}

type Parsed<T> = Result<T, String>;

impl<'t> Parser<'t> {
    fn document(&mut self, root: &Map) -> Parsed<()> {
        let mut table = root.clone();
        loop {
            self.blank_lines();
            match self.peek() {
                None => return Ok(()),
                Some('[') => table = self.header(root)?,
                Some(_) => self.entry(&table)?,
            }
            self.end_of_line()?;
        }
    }

    fn header(&mut self, root: &Map) -> Parsed<Map> {
        self.at += 1;
        let array = self.take('[');
        let path = self.path()?;
        let closed = self.take(']') && (!array || self.take(']'));
        if !closed {
            return Err("expected '.' or ']' to end table name".to_owned());
        }
        let Some((last, outer)) = path.split_last() else { return Err("empty table name".to_owned()) };
        let mut table = root.clone();
        let mut address = Vec::new();
        for name in outer {
            (table, address) = self.step(&table, address, name)?;
        }
        if array { self.next_of_array(&table, address, last) } else { self.table(&table, address, last) }
    }

    /// Steps into a table on the path to another; into the last one of an array of tables.
    fn step(&self, table: &Map, mut address: Vec<String>, name: &str) -> Parsed<(Map, Vec<String>)> {
        address.push(name.to_owned());
        match table.get(name) {
            None => {
                let inner = Map::new();
                table.insert(name, inner.clone());
                Ok((inner, address))
            }
            Some(Value::Map(inner)) => Ok((inner, address)),
            Some(Value::List(list)) if list.kind() == ListKind::Maps => {
                let items = list.items();
                address.push(items.len().to_string());
                let last = items.last().and_then(Value::as_map).cloned();
                last.map(|map| (map, address)).ok_or_else(|| defined(name))
            }
            Some(_) => Err(defined(name)),
        }
    }

    fn table(&mut self, table: &Map, address: Vec<String>, name: &str) -> Parsed<Map> {
        if matches!(table.get(name), Some(Value::List(_))) {
            return Err(defined(name));
        }
        let (inner, address) = self.step(table, address, name)?;
        if self.headers.insert(address) { Ok(inner) } else { Err(defined(name)) }
    }

    fn next_of_array(&mut self, table: &Map, mut address: Vec<String>, name: &str) -> Parsed<Map> {
        address.push(name.to_owned());
        if self.headers.contains(&address) {
            return Err(defined(name));
        }
        let next = Map::new();
        match table.get(name) {
            None => table.insert(name, Value::List(List::of(ListKind::Maps, vec![next.clone().into()]))),
            Some(Value::List(list)) if list.kind() == ListKind::Maps => {
                list.items_mut().push(next.clone().into());
            }
            Some(_) => return Err(defined(name)),
        }
        Ok(next)
    }

    fn entry(&mut self, table: &Map) -> Parsed<()> {
        let path = self.path()?;
        if !self.take('=') {
            return Err(self.no_separator());
        }
        self.blanks();
        let value = self.value()?;
        let Some((last, outer)) = path.split_last() else { return Err("empty key".to_owned()) };
        let mut table = table.clone();
        for name in outer {
            table = self.step(&table, Vec::new(), name)?.0;
        }
        if table.get(last).is_some() {
            return Err(defined(last));
        }
        table.insert(last.as_str(), value);
        Ok(())
    }

    fn path(&mut self) -> Parsed<Vec<String>> {
        let mut path = Vec::new();
        loop {
            self.blanks();
            path.push(match self.peek() {
                Some('"') => self.basic_string()?,
                Some('\'') => self.literal_string()?,
                Some('=') | None if path.is_empty() => {
                    return Err("unexpected '=': key name appears blank".to_owned());
                }
                Some('.') if path.is_empty() => {
                    return Err("unexpected '.': keys cannot start with a '.'".to_owned());
                }
                Some('=') | None => return Err("unexpected '='".to_owned()),
                Some('.') => return Err("unexpected '.'".to_owned()),
                _ => self.bare_key()?,
            });
            self.blanks();
            if !self.take('.') {
                return Ok(path);
            }
            if path.len() > NESTING_DEPTH_MAX {
                return Err("key has too many parts".to_owned());
            }
        }
    }

    /// The message if neither `.` nor `=` follows a key, even an empty one.
    fn no_separator(&self) -> String {
        match self.peek() {
            None => "unexpected EOF; expected key separator '='".to_owned(),
            Some(c) => format!("expected '.' or '=', but got {c:?} instead"),
        }
    }

    fn bare_key(&mut self) -> Parsed<String> {
        let rest = self.rest();
        let end =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').unwrap_or(rest.len());
        if end == 0 {
            return Err(self.no_separator());
        }
        self.at += end;
        Ok(rest[..end].to_owned())
    }

    fn value(&mut self) -> Parsed<Value> {
        self.depth += 1;
        if self.depth > NESTING_DEPTH_MAX {
            return Err("values nest too deeply".to_owned());
        }
        let value = match self.peek() {
            None => Err("unexpected EOF; expected value".to_owned()),
            Some('"') if self.rest().starts_with("\"\"\"") => self.multi_line_basic().map(Value::from),
            Some('"') => self.basic_string().map(Value::from),
            Some('\'') if self.rest().starts_with("'''") => self.multi_line_literal().map(Value::from),
            Some('\'') => self.literal_string().map(Value::from),
            Some('[') => self.array(),
            Some('{') => self.inline_table(),
            Some(_) => self.scalar(),
        };
        self.depth -= 1;
        value
    }

    fn array(&mut self) -> Parsed<Value> {
        self.at += 1;
        let mut items = Vec::new();
        loop {
            self.blank_lines();
            if self.take(']') {
                return Ok(Value::list(items));
            }
            items.push(self.value()?);
            self.blank_lines();
            if !self.take(',') && self.peek() != Some(']') {
                return Err("expected a comma or array terminator ']'".to_owned());
            }
        }
    }

    fn inline_table(&mut self) -> Parsed<Value> {
        self.at += 1;
        let table = Map::new();
        loop {
            self.blank_lines();
            if self.take('}') {
                return Ok(table.into());
            }
            self.entry(&table)?;
            self.blank_lines();
            if !self.take(',') && self.peek() != Some('}') {
                return Err("expected a comma or an inline table terminator '}'".to_owned());
            }
        }
    }

    fn scalar(&mut self) -> Parsed<Value> {
        let rest = self.rest();
        let mut end = rest.find(|c: char| c.is_whitespace() || ",]}#=".contains(c)).unwrap_or(rest.len());
        // The blank between date and time.
        if end == 10 && rest.as_bytes().get(4) == Some(&b'-') && rest[10..].starts_with(' ') {
            let more = &rest[11..];
            let time = more.find(|c: char| c.is_whitespace() || ",]}#".contains(c)).unwrap_or(more.len());
            if more.as_bytes().get(2) == Some(&b':') {
                end += 1 + time;
            }
        }
        let word = &rest[..end];
        self.at += end;
        plain(word).ok_or_else(|| format!("expected value but found {word:?} instead"))
    }

    fn basic_string(&mut self) -> Parsed<String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            match self.next() {
                Some('"') => return Ok(out),
                None | Some('\n') => return Err("strings cannot contain newlines".to_owned()),
                Some('\\') => out.push(self.escape()?),
                Some(c) => out.push(c),
            }
        }
    }

    fn multi_line_basic(&mut self) -> Parsed<String> {
        self.at += 3;
        self.skip_first_line_break();
        let mut out = String::new();
        loop {
            if self.rest().starts_with("\"\"\"") {
                return Ok(self.closing_quotes('"', out));
            }
            match self.next() {
                None => return Err("unexpected EOF; expected '\"\"\"'".to_owned()),
                Some('\\') if self.rest().trim_start_matches([' ', '\t', '\r']).starts_with('\n') => {
                    let rest = self.rest();
                    self.at += rest.len() - rest.trim_start().len();
                }
                Some('\\') => out.push(self.escape()?),
                Some(c) => out.push(c),
            }
        }
    }

    fn multi_line_literal(&mut self) -> Parsed<String> {
        self.at += 3;
        self.skip_first_line_break();
        let rest = self.rest();
        let end = rest.find("'''").ok_or("unexpected EOF; expected \"'''\"")?;
        self.at += end;
        Ok(self.closing_quotes('\'', rest[..end].to_owned()))
    }

    /// Up to two quotes may precede the three that end the string.
    fn closing_quotes(&mut self, quote: char, mut out: String) -> String {
        let quotes = self.rest().chars().take_while(|c| *c == quote).count().min(5);
        out.extend(std::iter::repeat_n(quote, quotes - 3));
        self.at += quotes;
        out
    }

    fn literal_string(&mut self) -> Parsed<String> {
        self.at += 1;
        let rest = self.rest();
        let end = rest.find(['\'', '\n']).filter(|at| rest[*at..].starts_with('\''));
        let end = end.ok_or("strings cannot contain newlines")?;
        self.at += end + 1;
        Ok(rest[..end].to_owned())
    }

    fn escape(&mut self) -> Parsed<char> {
        let digits = match self.next() {
            Some('b') => return Ok('\x08'),
            Some('t') => return Ok('\t'),
            Some('n') => return Ok('\n'),
            Some('f') => return Ok('\x0c'),
            Some('r') => return Ok('\r'),
            Some('e') => return Ok('\x1b'),
            Some('"') => return Ok('"'),
            Some('\\') => return Ok('\\'),
            Some('x') => 2,
            Some('u') => 4,
            Some('U') => 8,
            other => return Err(format!("invalid escape character {other:?}")),
        };
        let code = self.rest().get(..digits).and_then(|d| u32::from_str_radix(d, 16).ok());
        self.at += digits;
        code.and_then(char::from_u32).ok_or_else(|| "escaped character is not valid UTF-8".to_owned())
    }

    fn skip_first_line_break(&mut self) {
        let rest = self.rest();
        self.at += if rest.starts_with("\r\n") { 2 } else { usize::from(rest.starts_with('\n')) };
    }

    fn end_of_line(&mut self) -> Parsed<()> {
        self.blanks();
        self.comment();
        match self.peek() {
            None => Ok(()),
            Some('\r' | '\n') => Ok(()),
            Some(c) => Err(format!(
                "expected a top-level item to end with a newline, comment, or EOF, but got {c:?} instead"
            )),
        }
    }

    fn blank_lines(&mut self) {
        loop {
            let before = self.at;
            let rest = self.rest();
            self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
            self.comment();
            if self.at == before {
                return;
            }
        }
    }

    fn comment(&mut self) {
        if self.peek() == Some('#') {
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t']).len();
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }
}

fn defined(name: &str) -> String {
    format!("Key '{name}' has already been defined.")
}

fn plain(word: &str) -> Option<Value> {
    let unsigned = word.strip_prefix(['+', '-']).unwrap_or(word);
    match unsigned {
        "true" | "false" if unsigned.len() == word.len() => return Some(Value::Bool(word == "true")),
        "inf" => return parse_float(word).map(Value::Float),
        "nan" => return Some(Value::Float(if word.starts_with('-') { -f64::NAN } else { f64::NAN })),
        _ => {}
    }
    let bytes = unsigned.as_bytes();
    if !bytes.first()?.is_ascii_digit() {
        return None;
    }
    let based = matches!(bytes, [b'0', b'x' | b'o' | b'b', ..]);
    if matches!(bytes, [b'0', b'X' | b'O' | b'B', ..]) || (based && unsigned.len() < word.len()) {
        return None;
    }
    let leading_zero = matches!(bytes, [b'0', b'0'..=b'9' | b'_', ..]);
    if !leading_zero && let Some(i) = parse_int(word) {
        return Some(Value::Int64(i));
    }
    let is_float = unsigned.contains(['.', 'e', 'E']) && !unsigned.ends_with('.') && !unsigned.contains("._");
    if !based && !leading_zero && is_float {
        let float = parse_float(word).map(Value::Float);
        return float.or_else(|| dates::from_toml(word));
    }
    dates::from_toml(word)
}
