//! Calls of functions and methods: evaluates arguments for the types of the parameters, and checks them.

use std::rc::Rc;

use super::super::ast::{Operand, OperandKind};
use super::super::error::{Cause, Error, Fault};
use super::super::functions::{Args, BYTES_PER_STEP, Function, FunctionBody, ITEMS_PER_STEP};
use super::{At, Exec, SPARE_ITEMS_MAX, Slot, put_back};
use crate::chart::value::{List, ListKind, Map, MapKind, Object, Signature, Type, Value};
use crate::limits::{TEMPLATE_LIST_ITEMS_MAX, TEMPLATE_OUTPUT_BYTES_MAX};

/// The function or method to call.
pub(super) enum Callee<'c> {
    Function(&'static Function),
    Method { object: &'c Rc<dyn Object>, name: &'c str, signature: Signature },
}

impl Callee<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Function(function) => function.name,
            Self::Method { name, .. } => name,
        }
    }

    fn signature(&self) -> Signature {
        match self {
            Self::Function(function) => function.signature,
            Self::Method { signature, .. } => *signature,
        }
    }
}

impl<'t> Exec<'t, '_> {
    /// Calls with the words as arguments, and the result of the previous command as the last one.
    pub(super) fn call(
        &mut self,
        dot: &Slot,
        callee: &Callee<'_>,
        place: At<'t>,
        words: &'t [Operand],
        last: Option<Slot>,
    ) -> Result<Value, Error> {
        self.step()?;
        let signature = callee.signature();
        self.check_count(callee.name(), signature, words.len(), last.is_some())?;
        if let Callee::Function(Function { run: FunctionBody::ShortCircuit { until }, .. }) = callee {
            return self.short_circuit(dot, *until, words, last);
        }
        let spare = &self.engine.shared.spare.values;
        let mut values = spare.borrow_mut().pop().unwrap_or_default();
        for (i, word) in words.iter().enumerate() {
            values.push(self.argument(dot, parameter(signature, i), word)?);
        }
        if let Some(slot) = last {
            values.push(self.checked(slot, parameter(signature, words.len()))?);
        }
        let shared = self.engine.shared;
        let args = Args { engine: self.engine, values };
        let given = shared.charge(args.values.iter().map(work).sum());
        let result = given.map_err(Cause::Text).and_then(|()| match callee {
            Callee::Function(Function { run: FunctionBody::Plain(run), .. }) => run(&args),
            Callee::Function(_) => Err(no_function(words, &args.values)),
            Callee::Method { object, name, .. } => object.call(name, &args.values).map_err(Cause::Text),
        });
        put_back(spare, args.values, SPARE_ITEMS_MAX);
        let counted =
            |value: Value| shared.charge(work(&value)).and_then(|()| bounded(value)).map_err(Cause::Text);
        result.and_then(counted).map_err(|cause| {
            self.at = place;
            self.fail(Fault::wrapping(format!("error calling {}: ", callee.name()), cause))
        })
    }

    fn check_count(
        &mut self,
        name: &str,
        signature: Signature,
        words: usize,
        piped: bool,
    ) -> Result<(), Error> {
        let (given, fixed) = (words + usize::from(piped), signature.fixed.len());
        match signature.variadic {
            Some(_) if given < fixed => {
                Err(self.fail(format!("wrong number of args for {name}: want at least {fixed} got {words}")))
            }
            None if given != fixed => {
                Err(self.fail(format!("wrong number of args for {name}: want {fixed} got {given}")))
            }
            _ => Ok(()),
        }
    }

    /// `and` and `or`: arguments are evaluated up to the one that decides.
    fn short_circuit(
        &mut self,
        dot: &Slot,
        until: bool,
        words: &'t [Operand],
        last: Option<Slot>,
    ) -> Result<Value, Error> {
        let mut value = Value::Nil;
        for word in words {
            value = self.argument(dot, Type::Reflect, word)?;
            if value.is_true() == until {
                return Ok(value);
            }
        }
        Ok(last.map_or(value, |slot| slot.value))
    }

    fn argument(&mut self, dot: &Slot, wanted: Type, word: &'t Operand) -> Result<Value, Error> {
        self.at = At::Operand(word);
        let slot = match &word.kind {
            OperandKind::Dot => dot.clone(),
            OperandKind::Nil => return self.nil_argument(wanted),
            OperandKind::Field(fields) => self.chain(dot, dot.clone(), word, fields, &[], None)?,
            OperandKind::Variable { name, fields } => {
                let value = self.variable(name)?;
                self.chain(dot, value, word, fields, &[], None)?
            }
            OperandKind::Pipe(pipe) => Slot::plain(self.pipeline(dot, pipe)?),
            OperandKind::Function(function) => {
                let callee = Callee::Function(function);
                Slot::plain(self.call(dot, &callee, At::Operand(word), &[], None)?)
            }
            OperandKind::Chain { base, fields } => {
                let receiver = self.chain_base(dot, word, base)?;
                self.chain(dot, receiver, word, fields, &[], None)?
            }
            OperandKind::Bool(_) | OperandKind::Number(_) | OperandKind::Str { .. } => {
                return self.constant(wanted, word);
            }
        };
        self.checked(slot, wanted)
    }

    fn nil_argument(&mut self, wanted: Type) -> Result<Value, Error> {
        match wanted {
            Type::Any | Type::Reflect => Ok(Value::Nil),
            Type::Map => Ok(Value::Map(Map::nil())),
            Type::List => Ok(Value::List(List::nil(ListKind::Any))),
            _ => Err(self.fail(format!("cannot assign nil to {}", wanted.name()))),
        }
    }

    /// Converts a constant to the required type.
    fn constant(&mut self, wanted: Type, word: &'t Operand) -> Result<Value, Error> {
        let expected = match (wanted, &word.kind) {
            (Type::Any | Type::Reflect, OperandKind::Number(n)) => return self.number(n),
            (Type::Any | Type::Reflect | Type::Bool, OperandKind::Bool(b)) => return Ok(Value::Bool(*b)),
            (Type::Any | Type::Reflect | Type::Str, OperandKind::Str { text, .. }) => {
                return Ok(Value::Str(text.clone()));
            }
            (Type::Int, OperandKind::Number(n)) if n.int.is_some() => {
                return Ok(Value::Int(n.int.unwrap_or_default()));
            }
            (Type::Uint32, OperandKind::Number(n)) if n.int.is_some_and(|i| i >= 0) => {
                return Ok(Value::Int(n.int.unwrap_or_default() & i64::from(u32::MAX)));
            }
            (Type::Float, OperandKind::Number(n)) if n.float.is_some() => {
                return Ok(Value::Float(n.float.unwrap_or_default()));
            }
            (Type::Bool, _) => "bool",
            (Type::Str, _) => "string",
            (Type::Int, _) => "integer",
            (Type::Uint32, _) => "unsigned integer",
            (Type::Float, _) => "float",
            _ => return Err(self.fail(format!("can't handle {word} for arg of type {}", wanted.name()))),
        };
        Err(self.fail(format!("expected {expected}; found {word}")))
    }

    /// Go's rules of assignability.
    fn checked(&mut self, slot: Slot, wanted: Type) -> Result<Value, Error> {
        let Slot { value, boxed } = slot;
        if value.is_nil() {
            return self.checked_nil(boxed, wanted);
        }
        let fits = match (wanted, &value) {
            (Type::Any | Type::Reflect, _)
            | (Type::Str, Value::Str(_))
            | (Type::Bool, Value::Bool(_))
            | (Type::Int, Value::Int(_))
            | (Type::Float, Value::Float(_)) => true,
            (Type::List, Value::List(list)) => list.kind() == ListKind::Any,
            (Type::Map, Value::Map(map)) => map.kind() != MapKind::Strings,
            (Type::Native(name), Value::Native(object)) => object.type_name() == name,
            _ => false,
        };
        if fits {
            return Ok(value);
        }
        let (want, got) = (wanted.name(), value.type_name());
        Err(self.fail(format!("wrong type for value; expected {want}; got {got}")))
    }

    fn checked_nil(&mut self, boxed: bool, wanted: Type) -> Result<Value, Error> {
        match wanted {
            Type::Reflect if boxed => Ok(Value::NilInterface),
            Type::Any | Type::Reflect => Ok(Value::Nil),
            _ if boxed => {
                let want = wanted.name();
                Err(self.fail(format!("wrong type for value; expected {want}; got interface {{}}")))
            }
            Type::Map => Ok(Value::Map(Map::nil())),
            Type::List => Ok(Value::List(List::nil(ListKind::Any))),
            _ => Err(self.fail(format!("invalid value; expected {}", wanted.name()))),
        }
    }
}

/// `call`: no value of a chart is a function.
fn no_function(words: &[Operand], values: &[Value]) -> Cause {
    let callee = values.first().unwrap_or(&Value::Nil);
    let name = match (words, callee) {
        ([word, ..], _) => word.to_string(),
        ([], Value::Str(s)) => s.to_str().into_owned(),
        ([], other) => format!("<{} Value>", other.type_name()),
    };
    match callee {
        Value::Nil | Value::NilInterface => "call of nil".into(),
        other => format!("non-function {name} of type {}", other.type_name()).into(),
    }
}

fn parameter(signature: Signature, index: usize) -> Type {
    signature.fixed.get(index).copied().or(signature.variadic).unwrap_or(Type::Any)
}

/// The steps that a function needs to read a value once. Nested values count during the walk.
fn work(value: &Value) -> u64 {
    let steps = match value {
        Value::Str(text) => text.len() / BYTES_PER_STEP,
        Value::Bytes(bytes) => bytes.len() / BYTES_PER_STEP,
        Value::List(list) => list.items().len() / ITEMS_PER_STEP,
        Value::Map(map) => map.entries().len() / ITEMS_PER_STEP,
        _ => 0,
    };
    u64::try_from(steps).unwrap_or(u64::MAX)
}

/// Refuses results that only a runaway template produces.
fn bounded(value: Value) -> Result<Value, String> {
    let (size, max, what) = match &value {
        Value::Str(s) => (s.len(), TEMPLATE_OUTPUT_BYTES_MAX, "bytes"),
        Value::List(l) => (l.items().len(), TEMPLATE_LIST_ITEMS_MAX, "items"),
        _ => return Ok(value),
    };
    if size > max { Err(format!("result has more than {max} {what}")) } else { Ok(value) }
}
