//! Pipelines, commands, variables and chains of fields.

use std::any::Any;
use std::rc::Rc;

use super::super::ast::{Command, Operand, OperandKind, Pipe};
use super::super::error::Error;
use super::super::unquote::Number;
use super::call::Callee;
use super::tables::MapReceiver;
use super::{At, Exec, Slot};
use crate::chart::value::{MapKind, Object, Value};
use crate::format::number;

/// A `complex128`: the language has them, but no function accepts one.
struct Complex {
    re: f64,
    im: f64,
}

impl Object for Complex {
    fn type_name(&self) -> &'static str {
        "complex128"
    }

    fn kind_name(&self) -> &'static str {
        "complex128"
    }

    fn display(&self) -> String {
        let im = number::general(self.im);
        let sign = if im.starts_with(['-', '+']) { "" } else { "+" };
        format!("({}{sign}{im}i)", number::general(self.re))
    }

    fn is_stringer(&self) -> bool {
        false
    }

    fn is_true(&self) -> bool {
        self.re != 0.0 || self.im != 0.0
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl<'t> Exec<'t, '_> {
    /// The value of a pipeline, unwrapped; declared variables are kept.
    pub(super) fn pipeline(&mut self, dot: &Slot, pipe: &'t Pipe) -> Result<Value, Error> {
        self.at = At::Pipe(pipe);
        self.step()?;
        let mut last = None;
        for command in &*pipe.commands {
            last = Some(Slot::plain(self.command(dot, command, last)?.value));
        }
        let value = last.map_or(Value::Nil, |slot| slot.value);
        for name in &pipe.declared {
            let slot = Slot::plain(value.clone());
            if pipe.assigns {
                self.assign(name, slot)?;
            } else {
                self.vars.push((name.clone(), slot));
            }
        }
        Ok(value)
    }

    fn command(&mut self, dot: &Slot, command: &'t Command, last: Option<Slot>) -> Result<Slot, Error> {
        let first = &command.first;
        match &first.kind {
            OperandKind::Field(fields) => {
                self.at = At::Operand(first);
                self.chain(dot, dot.clone(), first, fields, &command.args, last)
            }
            OperandKind::Chain { base, fields } => {
                let receiver = self.chain_base(dot, first, base)?;
                self.chain(dot, receiver, first, fields, &command.args, last)
            }
            OperandKind::Function(function) => {
                self.at = At::Operand(first);
                let callee = Callee::Function(function);
                self.call(dot, &callee, At::Command(command), &command.args, last).map(Slot::plain)
            }
            OperandKind::Pipe(pipe) => {
                self.check_no_arguments(command, last.as_ref())?;
                self.pipeline(dot, pipe).map(Slot::plain)
            }
            OperandKind::Variable { name, fields } => {
                self.at = At::Operand(first);
                let value = self.variable(name)?;
                if fields.is_empty() {
                    self.check_no_arguments(command, last.as_ref())?;
                    return Ok(value);
                }
                self.chain(dot, value, first, fields, &command.args, last)
            }
            _ => {
                self.at = At::Operand(first);
                self.check_no_arguments(command, last.as_ref())?;
                self.literal(dot, first)
            }
        }
    }

    fn literal(&mut self, dot: &Slot, word: &'t Operand) -> Result<Slot, Error> {
        match &word.kind {
            OperandKind::Bool(b) => Ok(Slot::plain(Value::Bool(*b))),
            OperandKind::Dot => Ok(dot.clone()),
            OperandKind::Number(n) => self.number(n).map(Slot::plain),
            OperandKind::Str { text, .. } => Ok(Slot::plain(Value::Str(text.clone()))),
            OperandKind::Nil => Err(self.fail("nil is not a command")),
            _ => Err(self.fail(format!("can't evaluate command {word}"))),
        }
    }

    /// The value of a number without a required type: its spelling decides.
    pub(super) fn number(&mut self, number: &Number) -> Result<Value, Error> {
        if let Some((re, im)) = number.complex {
            return Ok(Value::native(Complex { re, im }));
        }
        match (number.is_float_literal(), number.float, number.int) {
            (true, Some(f), _) => Ok(Value::Float(f)),
            (_, _, Some(i)) => Ok(Value::Int(i)),
            _ => Err(self.fail(format!("{} overflows int", number.text))),
        }
    }

    fn check_no_arguments(&mut self, command: &'t Command, last: Option<&Slot>) -> Result<(), Error> {
        if !command.args.is_empty() || last.is_some() {
            return Err(self.fail(format!("can't give argument to non-function {}", command.first)));
        }
        Ok(())
    }

    pub(super) fn variable(&mut self, name: &Rc<str>) -> Result<Slot, Error> {
        match self.vars.iter().rev().find(|(known, _)| known == name) {
            Some((_, slot)) => Ok(slot.clone()),
            None => Err(self.fail(format!("undefined variable: {name}"))),
        }
    }

    /// The value before the fields of a chain such as `(pipeline).field`.
    pub(super) fn chain_base(
        &mut self,
        dot: &Slot,
        chain: &'t Operand,
        base: &'t Operand,
    ) -> Result<Slot, Error> {
        self.at = At::Operand(chain);
        let value = match &base.kind {
            OperandKind::Pipe(pipe) => {
                self.at = At::Operand(base);
                self.pipeline(dot, pipe)?
            }
            OperandKind::Function(function) => {
                self.at = At::Operand(base);
                self.call(dot, &Callee::Function(function), At::Operand(base), &[], None)?
            }
            _ => return Err(self.fail(format!("indirection through explicit nil in {chain}"))),
        };
        Ok(Slot::plain(value))
    }

    /// `.a.b.c`; the last field may be a method with arguments.
    pub(super) fn chain(
        &mut self,
        dot: &Slot,
        receiver: Slot,
        word: &'t Operand,
        fields: &'t str,
        args: &'t [Operand],
        last: Option<Slot>,
    ) -> Result<Slot, Error> {
        let mut receiver = receiver;
        let Some(mut name) = fields.strip_prefix('.') else { return Ok(receiver) };
        while let Some(end) = name.bytes().position(|b| b == b'.') {
            receiver = self.field(dot, &receiver, &name[..end], word, &[], None)?;
            name = &name[end + 1..];
        }
        self.field(dot, &receiver, name, word, args, last)
    }

    fn field(
        &mut self,
        dot: &Slot,
        receiver: &Slot,
        name: &str,
        word: &'t Operand,
        args: &'t [Operand],
        last: Option<Slot>,
    ) -> Result<Slot, Error> {
        let has_args = !args.is_empty() || last.is_some();
        match &receiver.value {
            Value::Nil | Value::NilInterface if receiver.boxed => {
                Err(self.fail(format!("nil pointer evaluating interface {{}}.{name}")))
            }
            Value::Nil | Value::NilInterface => Ok(Slot::plain(Value::Nil)),
            Value::Map(map) => {
                if let (MapKind::Values, Some(signature)) = (map.kind(), MapReceiver::signature(name)) {
                    let object: Rc<dyn Object> = Rc::new(MapReceiver(map.clone()));
                    let callee = Callee::Method { object: &object, name, signature };
                    return self.call(dot, &callee, At::Operand(word), args, last).map(Slot::plain);
                }
                if has_args {
                    return Err(self.fail(format!("{name} is not a method but has arguments")));
                }
                let found = map.get(name);
                if found.is_none() && self.engine.shared.options.missing_is_error {
                    let name = super::super::unquote::quote(name.as_bytes());
                    return Err(self.fail(format!("map has no entry for key {name}")));
                }
                Ok(match map.kind() {
                    MapKind::Strings => Slot::plain(found.unwrap_or_else(|| Value::str(""))),
                    MapKind::Any | MapKind::Values => Slot::boxed(found.unwrap_or_default()),
                })
            }
            Value::Native(object) => {
                if let Some(signature) = object.method(name) {
                    let callee = Callee::Method { object, name, signature };
                    return self.call(dot, &callee, At::Operand(word), args, last).map(Slot::plain);
                }
                self.object_field(receiver, object, name, has_args)
            }
            _ => Err(self.no_field(receiver, name)),
        }
    }

    fn object_field(
        &mut self,
        receiver: &Slot,
        object: &Rc<dyn Object>,
        name: &str,
        has_args: bool,
    ) -> Result<Slot, Error> {
        match object.field(name) {
            Some(_) if has_args && object.kind_name() == "map" => {
                Err(self.fail(format!("{name} is not a method but has arguments")))
            }
            Some(_) if has_args => {
                Err(self.fail(format!("{name} has arguments but cannot be invoked as function")))
            }
            Some(value) => Ok(Slot::plain(value)),
            None => Err(self.no_field(receiver, name)),
        }
    }

    fn no_field(&self, receiver: &Slot, name: &str) -> Error {
        let type_name = if receiver.boxed { "interface {}".into() } else { receiver.value.type_name() };
        self.fail(format!("can't evaluate field {name} in type {type_name}"))
    }
}
