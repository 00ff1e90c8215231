//! `--set` and its like: values as `a.b=1,list[0].c={x,y}`. What is understood and what is refused, and the words of a refusal,
//! are Helm's, with the places where it stops reading without a complaint.

use std::fmt;

use serde_json::Value;

use super::ValuesTable;
use super::values::to_floats;
use crate::limits::{SET_INDEX_MAX, SET_PATH_STEPS_MAX};

/// Why such a text is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The key has no value.
    NoValue(String),
    /// The key ends with a comma.
    Comma(String),
    /// The map has no key.
    NoKey(String),
    /// The text between brackets is not an index.
    Index(String),
    /// The index is too large.
    IndexMax(i64),
    /// The index is below zero.
    IndexNegative(i64),
    /// Text follows the closing bracket of an index.
    AfterIndex(String),
    /// A list is not closed.
    OpenList,
    /// A path has more than this many steps.
    Depth(usize),
    /// The path leads through a value of another type (in Go's words) than it must have.
    Type(&'static str, &'static str),
    /// A value is not JSON.
    Json,
    /// A file cannot be read.
    File(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoValue(key) => write!(f, "key {key:?} has no value"),
            Self::Comma(key) => write!(f, "key {key:?} has no value (cannot end with ,)"),
            Self::NoKey(key) => write!(f, "key map {key:?} has no value"),
            Self::Index(text) => {
                write!(f, "error parsing index: strconv.Atoi: parsing {text:?}: invalid syntax")
            }
            Self::IndexMax(index) => {
                write!(f, "index of {index} is greater than maximum supported index of {SET_INDEX_MAX}")
            }
            Self::IndexNegative(index) => write!(f, "negative {index} index not allowed"),
            Self::AfterIndex(text) => {
                let letters: Vec<String> = text.chars().map(|c| format!("{c:?}")).collect();
                write!(f, "unexpected data at end of array index: [{}]", letters.join(" "))
            }
            Self::OpenList => f.write_str("list must terminate with '}'"),
            Self::Depth(max) => {
                write!(f, "value name nested level is greater than maximum supported nested level of {max}")
            }
            Self::Type(found, wanted) => {
                write!(
                    f,
                    "unable to parse key: interface conversion: interface {{}} is {found}, not {wanted}"
                )
            }
            Self::Json => f.write_str("the value is not valid JSON"),
            Self::File(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Error {}

/// How words of a value are interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SetWords {
    /// They are JSON (`--set-json`).
    Json,
    /// `true`, `null` and whole numbers have their own types (`--set`).
    Typed,
    /// Everything is text (`--set-string`).
    Text,
    /// The value is the text of a file (`--set-file`).
    File,
    /// Everything behind `=` is one text (`--set-literal`).
    Literal,
}

/// Reads a file for `--set-file`.
pub(crate) type Files<'a> = &'a mut dyn FnMut(&str) -> Result<String, String>;

/// Sets the values of a text in `values`. Whole numbers of `--set` stay integers. Errors: if the text is
/// invalid; the part before the error takes effect.
pub fn apply(text: &str, words: SetWords, files: Files<'_>, values: &mut ValuesTable) -> Result<(), Error> {
    let mut reader = SetReader { rest: text, words, files };
    while reader.key(values, 0)? == Flow::More {}
    Ok(())
}

/// Whether the text goes on. Where it ends early, Helm keeps what it has understood and says nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flow {
    More,
    End,
}

struct SetReader<'t, 'f> {
    rest: &'t str,
    words: SetWords,
    files: Files<'f>,
}

const MAP: &str = "map[string]interface {}";
const LIST: &str = "[]interface {}";

/// The type of a value as Go calls it.
fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => LIST,
        Value::Object(_) => MAP,
    }
}

/// As upstream, an empty key is left out.
fn set(data: &mut ValuesTable, key: String, value: Value) {
    if !key.is_empty() {
        data.insert(key, value);
    }
}

fn set_index(list: &mut Vec<Value>, index: i64, value: Value) -> Result<Flow, Error> {
    let at = usize::try_from(index).ok().filter(|at| *at <= SET_INDEX_MAX).ok_or(Error::IndexMax(index))?;
    if list.len() <= at {
        list.resize(at + 1, Value::Null);
    }
    list[at] = value;
    Ok(Flow::More)
}

impl SetReader<'_, '_> {
    /// Reads a key with its value into `data`.
    fn key(&mut self, data: &mut ValuesTable, depth: usize) -> Result<Flow, Error> {
        let marks: &[char] =
            if self.words == SetWords::Literal { &['=', '[', '.'] } else { &['=', '[', ',', '.'] };
        let (key, end) = self.until(marks);
        match end {
            None if key.is_empty() => Ok(Flow::End),
            None => Err(Error::NoValue(key)),
            Some('=') => {
                let (value, flow) = self.value()?;
                set(data, key, value);
                Ok(flow)
            }
            Some('[') => {
                let Some(index) = self.index()? else { return Ok(Flow::End) };
                let mut list = match data.get(&key) {
                    None => Vec::new(),
                    Some(Value::Array(list)) => list.clone(),
                    Some(other) => return Err(Error::Type(go_type(other), LIST)),
                };
                let flow = self.item(&mut list, index, depth)?;
                set(data, key, Value::Array(list));
                Ok(flow)
            }
            Some('.') => {
                if depth >= SET_PATH_STEPS_MAX {
                    return Err(Error::Depth(SET_PATH_STEPS_MAX));
                }
                let mut inner = match data.get_mut(&key) {
                    None => ValuesTable::new(),
                    Some(Value::Object(map)) => std::mem::take(map),
                    Some(other) => return Err(Error::Type(go_type(other), MAP)),
                };
                let flow = self.key(&mut inner, depth + 1)?;
                if !inner.is_empty() {
                    set(data, key, Value::Object(inner));
                } else if flow == Flow::More {
                    return Err(Error::NoKey(key));
                }
                Ok(flow)
            }
            Some(_) => Err(Error::Comma(key)),
        }
    }

    /// Reads what follows the bracket of an index.
    fn item(&mut self, list: &mut Vec<Value>, index: i64, depth: usize) -> Result<Flow, Error> {
        if index < 0 {
            return Err(Error::IndexNegative(index));
        }
        let (word, end) = self.until(&['[', '.', '=']);
        if !word.is_empty() {
            return Err(Error::AfterIndex(word));
        }
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        match end {
            None => Ok(Flow::End),
            Some('=') => {
                let (value, _) = self.value()?;
                set_index(list, index, value)
            }
            Some('[') => {
                // Upstream counts no lists in lists: one argument could fill the memory.
                if depth >= SET_PATH_STEPS_MAX {
                    return Err(Error::Depth(SET_PATH_STEPS_MAX));
                }
                let Some(next) = self.index()? else { return Ok(Flow::End) };
                let mut inner = match list.get(at) {
                    None | Some(Value::Null) => Vec::new(),
                    Some(Value::Array(inner)) => inner.clone(),
                    Some(other) => return Err(Error::Type(go_type(other), LIST)),
                };
                match self.item(&mut inner, next, depth + 1)? {
                    Flow::More => set_index(list, index, Value::Array(inner)),
                    Flow::End => Ok(Flow::End),
                }
            }
            Some(_) => {
                let mut inner = match list.get_mut(at) {
                    Some(Value::Object(map)) => std::mem::take(map),
                    _ => ValuesTable::new(),
                };
                let flow = self.key(&mut inner, depth)?;
                if flow == Flow::More || at < list.len() {
                    set_index(list, index, Value::Object(inner))?;
                }
                Ok(flow)
            }
        }
    }

    /// Reads an index up to its bracket; none if the text ends before.
    fn index(&mut self) -> Result<Option<i64>, Error> {
        let (text, end) = self.until(&[']']);
        if end.is_none() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| Error::Index(text))
    }

    /// Reads a value with the comma behind it.
    fn value(&mut self) -> Result<(Value, Flow), Error> {
        match self.words {
            SetWords::Literal => Ok((Value::from(std::mem::take(&mut self.rest)), Flow::More)),
            SetWords::Json => self.json().map(|value| (value, Flow::More)),
            _ if self.rest.is_empty() => Ok((Value::from(""), Flow::End)),
            _ => match self.rest.strip_prefix('{') {
                Some(rest) => {
                    self.rest = rest;
                    self.list().map(|list| (list, Flow::More))
                }
                None => {
                    let (word, _) = self.until(&[',']);
                    Ok((self.meaning(word)?, Flow::More))
                }
            },
        }
    }

    fn list(&mut self) -> Result<Value, Error> {
        let mut list = Vec::new();
        loop {
            let (word, end) = self.until(&[',', '}']);
            if end.is_none() {
                return Err(Error::OpenList);
            }
            list.push(self.meaning(word)?);
            if end == Some('}') {
                self.rest = self.rest.strip_prefix(',').unwrap_or(self.rest);
                return Ok(Value::Array(list));
            }
        }
    }

    fn json(&mut self) -> Result<Value, Error> {
        if self.is_blank() {
            return Ok(Value::Null);
        }
        let mut values = serde_json::Deserializer::from_slice(self.rest.as_bytes()).into_iter::<Value>();
        let mut value = values.next().and_then(Result::ok).ok_or(Error::Json)?;
        self.rest = self.rest.get(values.byte_offset()..).unwrap_or_default();
        to_floats(&mut value);
        self.is_blank();
        Ok(value)
    }

    /// Skips blanks and one comma behind them. Whether nothing else was before the comma, or the end.
    fn is_blank(&mut self) -> bool {
        let rest = self.rest.trim_start();
        self.rest = rest.strip_prefix(',').unwrap_or(rest);
        rest.is_empty() || rest.starts_with(',')
    }

    fn meaning(&mut self, word: String) -> Result<Value, Error> {
        match self.words {
            SetWords::File => (self.files)(&word).map(Value::from).map_err(Error::File),
            SetWords::Typed => Ok(typed(word)),
            _ => Ok(Value::from(word)),
        }
    }

    /// Reads up to one of the marks; a backslash takes the next character as it is, unless everything is literal.
    fn until(&mut self, marks: &[char]) -> (String, Option<char>) {
        let mut word = String::new();
        let mut chars = self.rest.chars();
        let mut end = None;
        while let Some(c) = chars.next() {
            match c {
                c if marks.contains(&c) => {
                    end = Some(c);
                    break;
                }
                '\\' if self.words != SetWords::Literal => word.extend(chars.next()),
                c => word.push(c),
            }
        }
        self.rest = chars.as_str();
        (word, end)
    }
}

fn typed(word: String) -> Value {
    match word.to_ascii_lowercase().as_str() {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "null" => Value::Null,
        "0" => 0.into(),
        _ if word.starts_with('0') => Value::String(word),
        _ => word.parse::<i64>().map_or(Value::String(word), Value::from),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(text: &str, words: SetWords) -> Result<Value, Error> {
        let mut values = json!({"old": {"a": 1, "l": [1, 2]}}).as_object().cloned().unwrap();
        let mut files = |path: &str| match path {
            "missing" => Err("open missing: no such file or directory".to_owned()),
            path => Ok(format!("text of {path}\n")),
        };
        apply(text, words, &mut files, &mut values)?;
        Ok(Value::Object(values))
    }

    #[test]
    fn assignments_are_understood() {
        let value = set(
            r"a.b=1,t=TRUE,n=null,z=0,o=012,s=x y,e=,l={a,2},q=a\,b\=c,k\.x=v,i[1].n=v,i[0]=u,old.a=2,old.l[1]=9,m[0][1]=x",
            SetWords::Typed,
        );
        assert_eq!(
            value.unwrap(),
            json!({
                "a": {"b": 1}, "t": true, "n": null, "z": 0, "o": "012", "s": "x y", "e": "", "l": ["a", 2],
                "q": "a,b=c", "k.x": "v", "i": ["u", {"n": "v"}], "old": {"a": 2, "l": [1, 9]},
                "m": [[null, "x"]],
            })
        );
        assert_eq!(set("a=1,b=true", SetWords::Text).unwrap()["a"], json!("1"));
    }

    #[test]
    fn json_files_and_literals_are_values() {
        let old = || json!({"a": 1, "l": [1, 2]});
        let table = [
            (
                SetWords::Json,
                r#"a={"b": [1, null]},c="x,y" ,d= ,e[1]=true"#,
                json!({"a": {"b": [1.0, null]}, "c": "x,y", "d": null, "e": [null, true]}),
            ),
            (SetWords::Json, "a=", json!({"a": null})),
            (
                SetWords::File,
                "a=x,b.c={y,z}",
                json!({"a": "text of x\n", "b": {"c": ["text of y\n", "text of z\n"]}}),
            ),
            (SetWords::Literal, r"a.b[0]=x,y={1}\,", json!({"a": {"b": [r"x,y={1}\,"]}})),
            (SetWords::Literal, "a=", json!({"a": ""})),
        ];
        for (words, text, mut expected) in table {
            expected["old"] = old();
            assert_eq!(set(text, words), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_text_that_ends_early_is_no_error() {
        for (text, expected) in [
            ("a.", json!({})),
            ("a[0", json!({})),
            ("a[0]", json!({"a": []})),
            ("a[0].b=", json!({"a": []})),
            ("a=b\\", json!({"a": "b"})),
            ("=x", json!({})),
        ] {
            let mut expected = expected;
            expected["old"] = json!({"a": 1, "l": [1, 2]});
            assert_eq!(set(text, SetWords::Typed), Ok(expected), "{text}");
        }
    }

    #[test]
    fn invalid_parts_are_named() {
        for (text, message) in [
            ("a", "key \"a\" has no value"),
            ("a,b=1", "key \"a\" has no value (cannot end with ,)"),
            ("a.b", "key \"b\" has no value"),
            ("a.=1", "key map \"a\" has no value"),
            ("a[x]=1", "error parsing index: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("a[70000]=1", "index of 70000 is greater than maximum supported index of 65536"),
            ("a[-1]=1", "negative -1 index not allowed"),
            ("a[0]xy=1", "unexpected data at end of array index: ['x' 'y']"),
            ("a={b", "list must terminate with '}'"),
            (
                "old.a.b=1",
                "unable to parse key: interface conversion: interface {} is int64, not map[string]interface {}",
            ),
            (
                "old[0]=1",
                "unable to parse key: interface conversion: interface {} is map[string]interface {}, not []interface {}",
            ),
        ] {
            assert_eq!(set(text, SetWords::Typed).unwrap_err().to_string(), message, "{text}");
        }
        assert_eq!(set(&("a.".repeat(31) + "a=1"), SetWords::Typed), Err(Error::Depth(30)));
        assert!(set(&("a.".repeat(30) + "a=1"), SetWords::Typed).is_ok());
        assert_eq!(set(&format!("a{}=1", "[0]".repeat(32)), SetWords::Typed), Err(Error::Depth(30)));
        assert_eq!(set("a={", SetWords::Json), Err(Error::Json));
        let missing = Error::File("open missing: no such file or directory".to_owned());
        assert_eq!(set("a=missing", SetWords::File), Err(missing));
    }
}
