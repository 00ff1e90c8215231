//! The table of functions. Each entry has a signature in Go's terms. The evaluator checks arguments against it, so that
//! a function gets the declared types.

mod builtin;
mod cast;
mod crypto;
mod dates;
mod decimal;
mod defaults;
mod dicts;
mod encoding;
mod engine;
mod equal;
mod escape;
mod json;
mod lists;
mod math;
mod paths;
mod random;
pub(super) mod regex;
mod strings;
mod toml;
pub(super) mod urls;
mod versions;
mod words;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::OnceLock;

use super::error::Cause;
use super::eval::Engine;
use super::format;
use crate::chart::value::{GoString, Map, Signature, Type, Value};
use crate::format::yaml::Dialect;

/// A function that templates can call.
pub(super) struct Function {
    pub(super) name: &'static str,
    pub(super) signature: Signature,
    pub(super) run: FunctionBody,
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// How a function is called.
pub(super) enum FunctionBody {
    Plain(fn(&Args<'_>) -> FunctionResult),
    /// `and` and `or`: stops at the first argument whose truth is `until`.
    ShortCircuit {
        until: bool,
    },
    /// `call`, whose errors show its first argument as written.
    Call,
}

/// The result of a function.
pub(super) type FunctionResult = Result<Value, Cause>;

/// The function with this name. sprig's functions replace Go's.
pub(super) fn find(name: &str) -> Option<&'static Function> {
    static TABLE: OnceLock<FunctionTable> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let count = MODULES.iter().map(|m| m.len()).sum();
        let mut table = FunctionTable::with_capacity_and_hasher(count, BuildHasherDefault::default());
        table.extend(MODULES.iter().flat_map(|m| m.iter()).map(|f| (f.name, f)));
        table
    });
    table.get(name).copied()
}

/// All functions, including replaced ones.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static Function> {
    MODULES.iter().flat_map(|module| module.iter())
}

type FunctionTable = HashMap<&'static str, &'static Function, BuildHasherDefault<Fnv>>;

/// The Fowler-Noll-Vo hash: enough for short names that an attacker cannot choose.
#[derive(Default)]
struct Fnv(u64);

impl Hasher for Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

const MODULES: &[&[Function]] = &[
    builtin::FUNCTIONS,
    engine::FUNCTIONS,
    cast::FUNCTIONS,
    crypto::FUNCTIONS,
    dates::FUNCTIONS,
    defaults::FUNCTIONS,
    dicts::FUNCTIONS,
    encoding::FUNCTIONS,
    equal::FUNCTIONS,
    escape::FUNCTIONS,
    json::FUNCTIONS,
    lists::FUNCTIONS,
    math::FUNCTIONS,
    paths::FUNCTIONS,
    random::FUNCTIONS,
    regex::FUNCTIONS,
    strings::FUNCTIONS,
    toml::FUNCTIONS,
    urls::FUNCTIONS,
    versions::FUNCTIONS,
    words::FUNCTIONS,
];

/// A function with a fixed number of parameters.
const fn fixed(name: &'static str, fixed: &'static [Type], run: fn(&Args<'_>) -> FunctionResult) -> Function {
    Function { name, signature: Signature { fixed, variadic: None }, run: FunctionBody::Plain(run) }
}

/// A function that takes any number of further arguments.
const fn variadic(
    name: &'static str,
    fixed: &'static [Type],
    more: Type,
    run: fn(&Args<'_>) -> FunctionResult,
) -> Function {
    Function { name, signature: Signature { fixed, variadic: Some(more) }, run: FunctionBody::Plain(run) }
}

/// The arguments of a call. Accessors return an empty value if the type does not match the
/// signature, which cannot happen.
pub(super) struct Args<'a> {
    pub(super) engine: Engine<'a>,
    pub(super) values: Vec<Value>,
}

/// Bytes that a plain function processes in one step.
pub(super) const BYTES_PER_STEP: usize = 32;
/// Items of lists and maps, and parts of values, that it processes in one step.
pub(super) const ITEMS_PER_STEP: usize = 8;

impl Args<'_> {
    /// Counts the work of a function that reads its input more than once, in bytes.
    fn charge(&self, bytes: usize) -> Result<(), Cause> {
        let steps = u64::try_from(bytes / BYTES_PER_STEP).unwrap_or(u64::MAX);
        self.engine.shared.charge(steps).map_err(Cause::Text)
    }

    /// An argument of any type.
    fn any(&self, index: usize) -> &Value {
        self.values.get(index).unwrap_or(&Value::Nil)
    }

    /// The arguments from `index` on.
    fn rest(&self, index: usize) -> &[Value] {
        self.values.get(index..).unwrap_or_default()
    }

    fn text(&self, index: usize) -> GoString {
        self.any(index).as_text().cloned().unwrap_or_default()
    }

    /// A string as UTF-8.
    fn str(&self, index: usize) -> Cow<'_, str> {
        match self.any(index) {
            Value::Str(s) => s.to_str(),
            _ => Cow::Borrowed(""),
        }
    }

    /// A string as bytes.
    fn bytes(&self, index: usize) -> &[u8] {
        match self.any(index) {
            Value::Str(s) => s.as_bytes(),
            Value::Bytes(b) => b,
            _ => &[],
        }
    }

    /// An `int`.
    fn int(&self, index: usize) -> i64 {
        match self.any(index) {
            Value::Int(i) | Value::Int64(i) => *i,
            _ => 0,
        }
    }

    /// A `bool`.
    fn bool(&self, index: usize) -> bool {
        matches!(self.any(index), Value::Bool(true))
    }

    fn map(&self, index: usize) -> Map {
        self.any(index).as_map().cloned().unwrap_or_else(Map::nil)
    }
}

/// Helm's `toYaml`; `None` for values without a JSON form.
pub(super) fn to_yaml(value: &Value) -> Option<String> {
    encoding::to_yaml(value, Dialect::V2)
}

/// sprig's `toString`: text unchanged, else Go's print format.
fn to_text(value: &Value) -> Result<GoString, Cause> {
    match value {
        Value::Bytes(bytes) => Ok(GoString::from(&**bytes)),
        other => Ok(format::display(other)?),
    }
}

#[cfg(test)]
mod tests;
