//! What the writer sees of a value.

use serde_json::Value;

use super::Dialect;

/// A value that can be written, in any representation.
pub trait Tree {
    /// Passes a view of this value to `see`, exactly once.
    fn view(&self, dialect: Dialect, see: &mut dyn FnMut(TreeNode<'_>));
}

/// The type and content of a value.
pub enum TreeNode<'a> {
    /// `null`, `true` or an integer, as it is written.
    Word(&'a str),
    /// A float.
    Float(f64),
    /// Text.
    Text(&'a str),
    /// Go's bytes: numbers in v3, which does not pass through JSON, otherwise text in Base64.
    Bytes(&'a [u8]),
    /// The items of a list.
    List(Vec<&'a dyn Tree>),
    /// Go's nil slice: `null`, or no items in v3.
    NilList,
    /// Go's nil map.
    NilMap,
    /// The entries of a map.
    Map(Vec<(&'a str, &'a dyn Tree)>),
}

impl TreeNode<'_> {
    /// How a boolean is written.
    pub(crate) fn of_bool(value: bool) -> Self {
        Self::Word(if value { "true" } else { "false" })
    }
}

impl Tree for Value {
    fn view(&self, _: Dialect, see: &mut dyn FnMut(TreeNode<'_>)) {
        match self {
            Self::Null => see(TreeNode::Word("null")),
            Self::Bool(b) => see(TreeNode::of_bool(*b)),
            Self::Number(n) => match n.as_f64() {
                Some(float) if n.is_f64() => see(TreeNode::Float(float)),
                _ => see(TreeNode::Word(&n.to_string())),
            },
            Self::String(text) => see(TreeNode::Text(text)),
            Self::Array(list) => see(TreeNode::List(list.iter().map(|v| v as &dyn Tree).collect())),
            Self::Object(map) => {
                see(TreeNode::Map(map.iter().map(|(k, v)| (k.as_str(), v as &dyn Tree)).collect()));
            }
        }
    }
}
