//! Values with methods and fields of their own, and the signatures of what can be called.

use std::any::Any;

use super::Value;

/// A parameter of a Go function, as far as templates can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// `interface{}`.
    Any,
    /// `reflect.Value`: what the builtin functions take.
    Reflect,
    /// `string`.
    Str,
    /// `bool`.
    Bool,
    /// `int`.
    Int,
    /// `int64`.
    Int64,
    /// `uint32`: only constants fit.
    Uint32,
    /// `float64`.
    Float,
    /// `[]interface{}`.
    List,
    /// `map[string]interface{}`.
    Map,
    /// `[]byte`.
    Bytes,
    /// A native type with this name.
    Native(&'static str),
}

impl Type {
    /// The name, as Go prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Any => "interface {}",
            Self::Reflect => "reflect.Value",
            Self::Str => "string",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Int64 => "int64",
            Self::Uint32 => "uint32",
            Self::Float => "float64",
            Self::List => "[]interface {}",
            Self::Map => "map[string]interface {}",
            Self::Bytes => "[]uint8",
            Self::Native(name) => name,
        }
    }
}

/// The parameters of a function or method.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// The parameters before a variadic one.
    pub fixed: &'static [Type],
    /// The type of each further argument, if any are taken.
    pub variadic: Option<Type>,
}

/// A Go value with methods or fields: `.Files`, `.Capabilities`, a semantic version, a time.
pub trait Object {
    /// The Go type, as `%T` prints it.
    fn type_name(&self) -> &'static str;

    /// The Go kind.
    fn kind_name(&self) -> &'static str {
        "struct"
    }

    /// What `%v` prints.
    fn display(&self) -> String;

    /// What an action prints where that is not `%v`: Go looks there for methods of the pointer too.
    fn action_text(&self) -> Option<String> {
        None
    }

    /// Whether `display` is Go's `String()`: such values print themselves, and `toString` calls it.
    fn is_stringer(&self) -> bool {
        true
    }

    /// What the JSON encoder writes.
    fn to_json(&self) -> serde_json::Value {
        serde_json::Value::String(self.display())
    }

    /// The value of a field. Maps answer with any key that they have.
    fn field(&self, _name: &str) -> Option<Value> {
        None
    }

    /// The parameters of a method.
    fn method(&self, _name: &str) -> Option<Signature> {
        None
    }

    /// Calls a method with arguments that fit its parameters.
    ///
    /// # Errors
    /// Whatever the method says.
    fn call(&self, name: &str, _args: &[Value]) -> Result<Value, String> {
        Err(format!("no method {name}"))
    }

    /// How many keys or items there are, for objects that `range`, `index` and `len` accept.
    fn count(&self) -> Option<usize> {
        None
    }

    /// The item at an index, for those that are slices.
    fn item(&self, _index: usize) -> Option<Value> {
        None
    }

    /// Copies of all keys and values, for those that have a count.
    fn entries(&self) -> Vec<(Value, Value)> {
        Vec::new()
    }

    /// Go's truth.
    fn is_true(&self) -> bool {
        self.count().is_none_or(|count| count > 0)
    }

    /// For functions that need the concrete type.
    fn as_any(&self) -> &dyn Any;
}
