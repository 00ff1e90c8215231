//! `--set`: values as `a.b=1,list[0].c={x,y}`.

use std::fmt;
use std::iter::Peekable;
use std::str::Chars;

use serde_json::Value;

use super::Table;
use crate::limits::{SET_INDEX_MAX, SET_PATH_STEPS_MAX};

/// Why such a text is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The key has no value.
    NoValue(String),
    /// The text between brackets is not an index, or the index is too large.
    Index(String),
    /// Text follows the closing bracket of an index.
    AfterIndex(String),
    /// A list is not closed.
    OpenList,
    /// A path has more than this many steps.
    Depth(usize),
    /// The path leads through a value that is neither a map nor a list.
    Path(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoValue(key) => write!(f, "key {key:?} has no value"),
            Self::Index(text) => write!(f, "error parsing index: {text:?}"),
            Self::AfterIndex(text) => write!(f, "unexpected data at end of array index: {text:?}"),
            Self::OpenList => f.write_str("list must terminate with '}'"),
            Self::Depth(max) => {
                write!(f, "value name nested level is greater than maximum supported nested level of {max}")
            }
            Self::Path(key) => write!(f, "unable to parse key: {key:?} is neither a map nor a list"),
        }
    }
}

impl std::error::Error for Error {}

#[derive(Clone, Debug)]
enum Step {
    Key(String),
    Index(usize),
}

/// How words of a value are interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// `true`, `null` and whole numbers have their own types (`--set`).
    Typed,
    /// Everything is text (`--set-string`).
    Text,
}

/// Sets the values of a text in `values`. Whole numbers stay integers.
///
/// # Errors
/// If the text is invalid; the part before the error takes effect.
pub fn apply(text: &str, words: Words, values: &mut Table) -> Result<(), Error> {
    let mut chars = text.chars().peekable();
    while chars.peek().is_some() {
        let path = read_path(&mut chars)?;
        let value = read_value(&mut chars, words)?;
        let mut root = Value::Object(std::mem::take(values));
        let result = put(&mut root, &path, value);
        if let Value::Object(table) = root {
            *values = table;
        }
        result?;
    }
    Ok(())
}

/// Reads up to `=`.
fn read_path(chars: &mut Peekable<Chars<'_>>) -> Result<Vec<Step>, Error> {
    let mut path = Vec::new();
    let mut after_index = false;
    loop {
        let (word, end) = until(chars, &['=', '[', ',', '.']);
        if after_index && !word.is_empty() {
            return Err(Error::AfterIndex(word));
        }
        if !after_index {
            if !matches!(end, Some('=' | '[' | '.')) {
                return Err(Error::NoValue(word));
            }
            path.push(Step::Key(word));
        }
        after_index = false;
        match end {
            Some('=') => return Ok(path),
            Some('[') => {
                let (index, closed) = until(chars, &[']']);
                let number = index.parse().ok().filter(|n| *n <= SET_INDEX_MAX && closed.is_some());
                path.push(Step::Index(number.ok_or(Error::Index(index))?));
                after_index = true;
            }
            Some('.') => {}
            _ => return Err(Error::NoValue(String::new())),
        }
        if path.len() > SET_PATH_STEPS_MAX {
            return Err(Error::Depth(SET_PATH_STEPS_MAX));
        }
    }
}

/// Reads up to the comma after a value, or to the end.
fn read_value(chars: &mut Peekable<Chars<'_>>, words: Words) -> Result<Value, Error> {
    if chars.next_if_eq(&'{').is_none() {
        return Ok(meaning(until(chars, &[',']).0, words));
    }
    let mut list = Vec::new();
    loop {
        let (word, end) = until(chars, &[',', '}']);
        list.push(meaning(word, words));
        match end {
            Some('}') => {
                chars.next_if_eq(&',');
                return Ok(Value::Array(list));
            }
            Some(_) => {}
            None => return Err(Error::OpenList),
        }
    }
}

fn meaning(word: String, words: Words) -> Value {
    if words == Words::Text {
        return Value::String(word);
    }
    match word.to_ascii_lowercase().as_str() {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "null" => Value::Null,
        "0" => 0.into(),
        _ if word.starts_with('0') => Value::String(word),
        _ => word.parse::<i64>().map_or(Value::String(word), Value::from),
    }
}

/// Reads up to one of the marks; a backslash escapes the next character.
fn until(chars: &mut Peekable<Chars<'_>>, marks: &[char]) -> (String, Option<char>) {
    let mut word = String::new();
    while let Some(c) = chars.next() {
        match c {
            c if marks.contains(&c) => return (word, Some(c)),
            '\\' => word.extend(chars.next()),
            c => word.push(c),
        }
    }
    (word, None)
}

fn put(target: &mut Value, path: &[Step], value: Value) -> Result<(), Error> {
    let Some((step, rest)) = path.split_first() else {
        *target = value;
        return Ok(());
    };
    match step {
        // As upstream, an empty key is ignored.
        Step::Key(key) if key.is_empty() => Ok(()),
        Step::Key(key) => {
            if target.is_null() {
                *target = Value::Object(Table::new());
            }
            let Value::Object(map) = target else { return Err(Error::Path(key.clone())) };
            put(map.entry(key.as_str()).or_insert(Value::Null), rest, value)
        }
        Step::Index(index) => {
            if target.is_null() {
                *target = Value::Array(Vec::new());
            }
            let Value::Array(list) = target else { return Err(Error::Path(format!("[{index}]"))) };
            if list.len() <= *index {
                list.resize(index + 1, Value::Null);
            }
            put(&mut list[*index], rest, value)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(text: &str, words: Words) -> Result<Value, Error> {
        let mut values = json!({"old": {"a": 1, "l": [1, 2]}}).as_object().cloned().unwrap();
        apply(text, words, &mut values)?;
        Ok(Value::Object(values))
    }

    #[test]
    fn assignments_are_understood() {
        let value = set(
            r"a.b=1,t=TRUE,n=null,z=0,o=012,s=x y,e=,l={a,2},q=a\,b\=c,k\.x=v,i[1].n=v,i[0]=u,old.a=2,old.l[1]=9,m[0][1]=x",
            Words::Typed,
        );
        assert_eq!(
            value.unwrap(),
            json!({
                "a": {"b": 1}, "t": true, "n": null, "z": 0, "o": "012", "s": "x y", "e": "", "l": ["a", 2],
                "q": "a,b=c", "k.x": "v", "i": ["u", {"n": "v"}], "old": {"a": 2, "l": [1, 9]},
                "m": [[null, "x"]],
            })
        );
        assert_eq!(set("a=1,b=true", Words::Text).unwrap()["a"], json!("1"));
    }

    #[test]
    fn invalid_parts_are_named() {
        for (text, message) in [
            ("a", "key \"a\" has no value"),
            ("a,b=1", "key \"a\" has no value"),
            ("a.b", "key \"b\" has no value"),
            ("a[x]=1", "error parsing index: \"x\""),
            ("a[70000]=1", "error parsing index: \"70000\""),
            ("a[0]x=1", "unexpected data at end of array index: \"x\""),
            ("a={b", "list must terminate with '}'"),
            ("old.a.b=1", "unable to parse key: \"b\" is neither a map nor a list"),
        ] {
            assert_eq!(set(text, Words::Typed).unwrap_err().to_string(), message, "{text}");
        }
        assert_eq!(set(&("a.".repeat(31) + "a=1"), Words::Typed), Err(Error::Depth(30)));
    }
}
