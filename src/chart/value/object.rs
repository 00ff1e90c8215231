//! Values with methods and fields of their own, and the signatures of functions and methods.

use std::any::Any;

use super::Value;

/// The type of a parameter of a Go function, as far as templates can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// `interface{}`.
    Any,
    /// `reflect.Value`: the parameter type of built-in functions.
    Reflect,
    /// `string`.
    Str,
    /// `bool`.
    Bool,
    /// `int`.
    Int,
    /// `uint32`: only constants fit.
    Uint32,
    /// `float64`.
    Float,
    /// `[]interface{}`.
    List,
    /// `map[string]interface{}`.
    Map,
    /// A native type with this name.
    Native(&'static str),
}

impl Type {
    /// The name, as Go prints it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Any => "interface {}",
            Self::Reflect => "reflect.Value",
            Self::Str => "string",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint32 => "uint32",
            Self::Float => "float64",
            Self::List => "[]interface {}",
            Self::Map => "map[string]interface {}",
            Self::Native(name) => name,
        }
    }
}

/// The parameters of a function or method.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signature {
    /// The parameters before a variadic one.
    pub(crate) fixed: &'static [Type],
    /// The type of further arguments, if the function is variadic.
    pub(crate) variadic: Option<Type>,
}

/// A Go value with methods or fields: `.Files`, `.Capabilities`, a semantic version, a time.
pub(crate) trait Object {
    /// The Go type, as `%T` prints it.
    fn type_name(&self) -> &'static str;

    fn kind_name(&self) -> &'static str {
        "struct"
    }

    /// The text of `%v`.
    fn display(&self) -> String;

    /// The text in an action if it differs from `%v`: there Go also calls methods of the pointer.
    fn action_text(&self) -> Option<String> {
        None
    }

    /// Whether `display` is Go's `String()`: such values print themselves, and `toString` calls it.
    fn is_stringer(&self) -> bool {
        true
    }

    /// The output of the JSON encoder.
    fn to_json(&self) -> serde_json::Value {
        serde_json::Value::String(self.display())
    }

    /// Whether go-yaml writes the text of [`Object::to_json`] without quotes if there is no JSON in
    /// between, as in `toYamlPretty`.
    fn is_plain_in_yaml(&self) -> bool {
        false
    }

    /// The value of a field. For maps, any key is a field.
    fn field(&self, _name: &str) -> Option<Value> {
        None
    }

    /// The parameters of a method.
    fn method(&self, _name: &str) -> Option<Signature> {
        None
    }

    /// Calls a method with arguments that fit its parameters. Errors: the error of the method.
    fn call(&self, name: &str, _args: &[Value]) -> Result<Value, String> {
        Err(format!("no method {name}"))
    }

    /// The number of keys or items, for objects that `range`, `index` and `len` accept.
    fn count(&self) -> Option<usize> {
        None
    }

    /// The item at an index, for slices.
    fn item(&self, _index: usize) -> Option<Value> {
        None
    }

    /// Copies of all keys and values, for objects with a count.
    fn entries(&self) -> Vec<(Value, Value)> {
        Vec::new()
    }

    /// Go's truth value.
    fn is_true(&self) -> bool {
        self.count().is_none_or(|count| count > 0)
    }

    /// For functions that need the concrete type.
    fn as_any(&self) -> &dyn Any;
}
