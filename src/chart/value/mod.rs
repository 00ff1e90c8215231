//! The values of templates: Go's `interface{}` in Helm charts. Maps and lists are shared and mutable, because `set` on
//! `.Values` in one file is visible in the next; integers keep their Go type, because `eq 1 1.0` fails.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;

mod collections;
mod object;
mod text;

pub(crate) use collections::{Entries, List, ListKind, Map, MapKind};
pub(crate) use object::{Object, Signature, Type};
pub(crate) use text::GoString;

use crate::format::base64;
use crate::format::yaml::{Dialect, Tree, TreeNode};
use crate::limits::{TEMPLATE_VALUE_DEPTH_MAX, TEMPLATE_VALUE_NODES_MAX};

#[derive(Clone, Default)]
pub(crate) enum Value {
    /// Go's untyped nil, also the result of a missing key.
    #[default]
    Nil,
    /// A nil that was read from a map or a list. It exists only during the evaluation of a template,
    /// where Go's messages differ.
    NilInterface,
    Bool(bool),
    /// `int`: a number in a template, `len`, the index of a `range`.
    Int(i64),
    /// `int64`: `--set`, and results of `add`, `mul`, `int64` and so on.
    Int64(i64),
    /// `uint64`: parts of a semantic version.
    Uint64(u64),
    /// `uint8`: one byte of a string or of bytes.
    Uint8(u8),
    /// `float64`: every number of a YAML or JSON document.
    Float(f64),
    /// `string`.
    Str(GoString),
    /// `[]byte`.
    Bytes(Rc<[u8]>),
    List(List),
    /// A map with string keys.
    Map(Map),
    /// A value with fields or methods of its own.
    Native(Rc<dyn Object>),
}

/// The type of numbers in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// `float64`, as Go's JSON decoder does.
    Float64Always,
    /// `int64` for whole numbers, as `--set` does.
    Int64,
}

impl Value {
    pub(crate) fn str(s: impl Into<GoString>) -> Self {
        Self::Str(s.into())
    }

    /// A `[]interface{}`.
    pub(crate) fn list(items: Vec<Self>) -> Self {
        Self::List(List::new(items))
    }

    /// A `[]string`.
    pub(crate) fn strings<T: Into<GoString>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::List(List::of(ListKind::Strings, items.into_iter().map(|s| Self::Str(s.into())).collect()))
    }

    /// A `map[string]interface{}`.
    pub(crate) fn map<K: Into<Rc<str>>>(entries: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Map(entries.into_iter().map(|(k, v)| (k.into(), v)).collect())
    }

    /// An object with fields or methods of its own.
    pub(crate) fn native(object: impl Object + 'static) -> Self {
        Self::Native(Rc::new(object))
    }

    /// The value of a JSON document.
    pub(crate) fn from_json(json: &serde_json::Value, numbers: Numbers) -> Self {
        use serde_json::Value as Json;
        count_walked(1);
        match json {
            Json::Null => Self::Nil,
            Json::Bool(b) => Self::Bool(*b),
            Json::Number(n) => match (numbers, n.as_i64()) {
                (Numbers::Int64, Some(i)) => Self::Int64(i),
                _ => Self::Float(n.as_f64().unwrap_or(f64::NAN)),
            },
            Json::String(s) => Self::str(s.as_str()),
            Json::Array(items) => Self::list(items.iter().map(|v| Self::from_json(v, numbers)).collect()),
            Json::Object(entries) => {
                Self::map(entries.iter().map(|(k, v)| (k.as_str(), Self::from_json(v, numbers))))
            }
        }
    }

    /// The value as Go's JSON encoder writes it; `None` if the encoder refuses it: NaN, infinities, cycles and values
    /// that are nested too deeply. Floats stay floats, so that the writer can choose their text.
    pub(crate) fn to_json(&self) -> Option<serde_json::Value> {
        self.to_json_within(&mut Budget::new())
    }

    fn to_json_within(&self, budget: &mut Budget) -> Option<serde_json::Value> {
        if !budget.enter() {
            return None;
        }
        let json = self.to_json_entered(budget);
        budget.leave();
        json
    }

    fn to_json_entered(&self, budget: &mut Budget) -> Option<serde_json::Value> {
        use serde_json::Value as Json;
        Some(match self {
            Self::Nil | Self::NilInterface => Json::Null,
            Self::Bool(b) => Json::Bool(*b),
            Self::Int(i) | Self::Int64(i) => Json::from(*i),
            Self::Uint64(u) => Json::from(*u),
            Self::Uint8(b) => Json::from(*b),
            Self::Float(f) => Json::Number(serde_json::Number::from_f64(*f)?),
            Self::Str(s) => Json::String(s.to_str().into_owned()),
            Self::Bytes(b) => Json::String(base64::encode(b)),
            Self::List(l) if l.is_nil() => Json::Null,
            Self::List(l) => {
                Json::Array(l.items().iter().map(|v| v.to_json_within(budget)).collect::<Option<_>>()?)
            }
            Self::Map(m) if m.is_nil() => Json::Null,
            Self::Map(m) => {
                let json = |(k, v): (&Rc<str>, &Self)| Some((k.to_string(), v.to_json_within(budget)?));
                Json::Object(m.entries().iter().map(json).collect::<Option<_>>()?)
            }
            Self::Native(o) => o.to_json(),
        })
    }

    /// Whether it can be written as YAML. All dialects but v3 pass through JSON, so [`Value::to_json`] must return a value, and a reader
    /// of YAML must accept its texts.
    pub(crate) fn has_yaml(&self, dialect: Dialect) -> bool {
        self.has_yaml_within(dialect, &mut Budget::new())
    }

    fn has_yaml_within(&self, dialect: Dialect, budget: &mut Budget) -> bool {
        if !budget.enter() {
            return false;
        }
        let has = match self {
            Self::Float(f) => f.is_finite() || dialect == Dialect::V3,
            Self::List(l) if !l.is_nil() => l.items().iter().all(|v| v.has_yaml_within(dialect, budget)),
            Self::Map(m) if !m.is_nil() => {
                let is_good = |key: &str| dialect == Dialect::V3 || is_readable(key.as_bytes());
                m.entries().iter().all(|(key, v)| is_good(key) && v.has_yaml_within(dialect, budget))
            }
            Self::Str(s) => dialect == Dialect::V3 || is_readable(s.as_bytes()),
            _ => true,
        };
        budget.leave();
        has
    }

    /// Whether this is either kind of nil.
    pub(crate) fn is_nil(&self) -> bool {
        matches!(self, Self::Nil | Self::NilInterface)
    }

    /// Go's truth value: nil, zero and empty are false.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Nil | Self::NilInterface => false,
            Self::Bool(b) => *b,
            Self::Int(i) | Self::Int64(i) => *i != 0,
            Self::Uint64(u) => *u != 0,
            Self::Uint8(b) => *b != 0,
            Self::Float(f) => *f != 0.0,
            Self::Str(s) => !s.as_bytes().is_empty(),
            Self::Bytes(b) => !b.is_empty(),
            Self::List(l) => !l.items().is_empty(),
            Self::Map(m) => !m.entries().is_empty(),
            Self::Native(o) => o.is_true(),
        }
    }

    /// The name of the Go type, as `%T` prints it.
    pub(crate) fn type_name(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Nil => "<nil>",
            Self::NilInterface => "interface {}",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Int64(_) => "int64",
            Self::Uint64(_) => "uint64",
            Self::Uint8(_) => "uint8",
            Self::Float(_) => "float64",
            Self::Str(_) => "string",
            Self::Bytes(_) => "[]uint8",
            Self::List(l) => l.kind().type_name(),
            Self::Map(m) => m.kind().type_name(),
            Self::Native(o) => return Cow::Borrowed(o.type_name()),
        })
    }

    /// The name of the Go kind, as `kindOf` prints it.
    pub(crate) fn kind_name(&self) -> &'static str {
        match self {
            Self::Nil | Self::NilInterface => "invalid",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Int64(_) => "int64",
            Self::Uint64(_) => "uint64",
            Self::Uint8(_) => "uint8",
            Self::Float(_) => "float64",
            Self::Str(_) => "string",
            Self::Bytes(_) | Self::List(_) => "slice",
            Self::Map(_) => "map",
            Self::Native(o) => o.kind_name(),
        }
    }

    /// The string, if it is one.
    pub(crate) fn as_text(&self) -> Option<&GoString> {
        match self {
            Self::Str(s) => Some(s),
            _ => None,
        }
    }

    /// The map, if it is one.
    pub(crate) fn as_map(&self) -> Option<&Map> {
        match self {
            Self::Map(m) => Some(m),
            _ => None,
        }
    }
}

/// For values that have a JSON form.
impl Tree for Value {
    fn view(&self, dialect: Dialect, see: &mut dyn FnMut(TreeNode<'_>)) {
        match self {
            Self::Nil | Self::NilInterface => see(TreeNode::Word("null")),
            Self::Bool(b) => see(TreeNode::of_bool(*b)),
            Self::Int(i) | Self::Int64(i) => see(TreeNode::Word(&i.to_string())),
            Self::Uint64(u) => see(TreeNode::Word(&u.to_string())),
            Self::Uint8(b) => see(TreeNode::Word(&b.to_string())),
            Self::Float(f) => see(TreeNode::Float(*f)),
            Self::Str(s) => see(TreeNode::Text(&s.to_str())),
            Self::Bytes(b) => see(TreeNode::Bytes(b)),
            Self::List(l) if l.is_nil() => see(TreeNode::NilList),
            Self::List(l) => see(TreeNode::List(l.items().iter().map(|v| v as &dyn Tree).collect())),
            Self::Map(m) if m.is_nil() => see(TreeNode::NilMap),
            Self::Map(m) => {
                see(TreeNode::Map(m.entries().iter().map(|(k, v)| (&**k, v as &dyn Tree)).collect()));
            }
            Self::Native(o) => match o.to_json() {
                serde_json::Value::String(text) if dialect == Dialect::V3 && o.is_plain_in_yaml() => {
                    see(TreeNode::Word(&text));
                }
                json => json.view(dialect, see),
            },
        }
    }
}

std::thread_local! {
    /// Values visited by walks on this thread and not counted yet.
    static WALKED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Adds visited values, or an equal amount of work.
pub(super) fn count_walked(count: usize) {
    WALKED.set(WALKED.get().saturating_add(u64::try_from(count).unwrap_or(u64::MAX)));
}

/// The number of values visited by walks on this thread since the last call.
pub(super) fn take_walked() -> u64 {
    WALKED.take()
}

/// Limits depth and size of a walk over a value: ends cycles, and lists that contain the same list twice, and so on.
#[derive(Debug)]
pub(crate) struct Budget {
    depth: usize,
    nodes: usize,
}

impl Budget {
    pub(crate) fn new() -> Self {
        Self { depth: TEMPLATE_VALUE_DEPTH_MAX, nodes: TEMPLATE_VALUE_NODES_MAX }
    }

    /// Descends into one more value; false if a limit is exceeded. Then `leave` must not be called.
    pub(crate) fn enter(&mut self) -> bool {
        if self.depth == 0 || self.nodes == 0 {
            return false;
        }
        self.depth -= 1;
        self.nodes -= 1;
        count_walked(1);
        true
    }

    pub(crate) fn leave(&mut self) {
        self.depth += 1;
    }
}

impl Default for Budget {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Str(s) => write!(f, "{:?}", s.to_str()),
            Self::Float(x) => write!(f, "{x:?}f"),
            Self::Int(i) => write!(f, "{i}"),
            Self::Bool(b) => write!(f, "{b}"),
            other => write!(f, "{}", other.type_name()),
        }
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Self {
        Self::Bool(b)
    }
}

impl From<GoString> for Value {
    fn from(s: GoString) -> Self {
        Self::Str(s)
    }
}

/// Whether go-yaml's reader accepts a text that Go's encoder of JSON has written, which escapes only the control characters below the space.
fn is_readable(text: &[u8]) -> bool {
    let is_plain = |byte: &u8| *byte < 0x7f;
    let is_control =
        |c: char| matches!(c, '\u{7f}'..='\u{84}' | '\u{86}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}');
    text.iter().all(is_plain) || !String::from_utf8_lossy(text).chars().any(is_control)
}

impl From<String> for Value {
    fn from(s: String) -> Self {
        Self::str(s)
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Self {
        Self::str(s)
    }
}

impl From<Map> for Value {
    fn from(m: Map) -> Self {
        Self::Map(m)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::yaml::{self, Dialect};

    #[test]
    fn json_comes_and_goes() {
        let json = serde_json::json!({"a": [1, 2.5, null, "x"], "b": {"c": true}});
        let value = Value::from_json(&json, Numbers::Int64);
        assert_eq!(value.to_json(), Some(json.clone()));
        assert!(value.has_yaml(Dialect::V2));
        assert_eq!(yaml::emit(&value, Dialect::V2), yaml::emit(&json, Dialect::V2));
        let a = value.as_map().unwrap().get("a").unwrap();
        let Value::List(list) = a else { panic!() };
        assert!(matches!(list.get(0), Some(Value::Int64(1))));
        let floats = Value::from_json(&json["a"], Numbers::Float64Always);
        let Value::List(list) = floats else { panic!() };
        assert!(matches!(list.get(0), Some(Value::Float(f)) if f == 1.0));
    }

    #[test]
    fn maps_are_shared() {
        let map = Map::new();
        let alias = map.with_kind(MapKind::Values);
        alias.insert("k", "v");
        assert!(map.get("k").is_some() && map.is_same(&alias));
        assert_eq!(Value::Map(alias).type_name(), "common.Values");
    }

    #[test]
    fn a_reader_of_yaml_refuses_control_characters() {
        let refused = ["\u{7f}", "\u{80}", "\u{84}", "\u{86}", "\u{9f}", "\u{fffe}", "\u{ffff}"];
        for text in refused {
            let (value, map) = (Value::str(text), Map::new());
            map.insert(text, "v");
            for (value, dialect) in [(value.clone(), Dialect::V2), (Value::Map(map), Dialect::V2)] {
                assert!(!value.has_yaml(dialect), "{text:?}");
            }
            assert!(value.has_yaml(Dialect::V3), "{text:?}: v3 writes it without JSON");
        }
        for text in ["\u{1}\t\n", "\u{85}", "\u{a0}", "\u{fffd}", "\u{1f642}"] {
            assert!(Value::str(text).has_yaml(Dialect::V2), "{text:?}");
        }
        assert!(
            Value::str(GoString::from(&b"\xff\x9f"[..])).has_yaml(Dialect::V2),
            "JSON has no broken text"
        );
    }

    #[test]
    fn cycles_and_depth_have_no_json() {
        let map = Map::new();
        map.insert("self", map.clone());
        assert_eq!(Value::Map(map.clone()).to_json(), None);
        assert!(!Value::Map(map.clone()).has_yaml(Dialect::V2));
        map.entries_mut().clear();
        let mut deep = Value::Nil;
        for _ in 0..1_000_000 {
            deep = Value::list(vec![deep]);
        }
        assert_eq!((deep.to_json(), deep.has_yaml(Dialect::V2)), (None, false));
        drop(deep);
        let nan = Value::Float(f64::NAN);
        assert_eq!(
            (nan.to_json(), nan.has_yaml(Dialect::V2), nan.has_yaml(Dialect::V3)),
            (None, false, true)
        );
    }

    #[test]
    fn text_keeps_bytes() {
        let text = GoString::from(vec![b'a', 0xff]);
        assert_eq!(text.as_bytes(), b"a\xff");
        assert_eq!(text.to_str(), "a\u{fffd}");
        assert_eq!(GoString::from("ä").len(), 2);
    }
}
