//! The syntax tree. Nodes print themselves as Go prints them, because error messages quote them.

use std::fmt;
use std::rc::Rc;

use super::functions::Function;
use super::unquote::{Number, quote};
use crate::chart::TextSlice;
use crate::chart::value::GoString;

/// The source text of a tree, for positions in messages.
#[derive(Debug)]
pub(super) struct TemplateSource {
    pub(super) name: String,
    pub(super) text: TextSlice,
}

impl TemplateSource {
    /// A piece of the text.
    pub(super) fn piece(&self, start: usize, end: usize) -> TextSlice {
        self.text.part(self.text.get(start..end).unwrap_or_default())
    }

    /// `file:line:column`, the column in bytes from 0, as Go counts.
    pub(super) fn location(&self, pos: usize) -> String {
        let before = self.text.as_bytes().get(..pos).unwrap_or_default();
        let line = 1 + before.iter().filter(|b| **b == b'\n').count();
        let column = before.iter().rev().take_while(|b| **b != b'\n').count();
        format!("{}:{line}:{column}", self.name)
    }
}

/// One template: a file, or a `define` in it.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) name: String,
    pub(super) source: Rc<TemplateSource>,
    pub(super) root: Box<[TemplateNode]>,
}

impl Tree {
    /// Whether it is blank: such a body never replaces another.
    pub(super) fn is_empty(&self) -> bool {
        self.root.iter().all(|n| match &n.kind {
            NodeKind::Text(text) => text.trim().is_empty(),
            _ => false,
        })
    }
}

/// Text or an action.
#[derive(Debug)]
pub(super) struct TemplateNode {
    pub(super) pos: usize,
    pub(super) kind: NodeKind,
}

/// The kind of a node.
#[derive(Debug)]
pub(super) enum NodeKind {
    Text(TextSlice),
    Action(Pipe),
    If(Box<Branch>),
    With(Box<Branch>),
    Range(Box<Branch>),
    Template { name: String, pipe: Option<Box<Pipe>> },
    Break,
    Continue,
}

/// `if`, `with`, `range`.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) pipe: Pipe,
    pub(super) list: Box<[TemplateNode]>,
    pub(super) otherwise: Option<Box<[TemplateNode]>>,
}

/// Commands; the result of each is the last argument of the next. May assign variables.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) pos: usize,
    pub(super) declared: Vec<Rc<str>>,
    pub(super) assigns: bool,
    pub(super) commands: Box<[Command]>,
}

/// An operand with arguments.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) pos: usize,
    pub(super) first: Operand,
    pub(super) args: Box<[Operand]>,
}

/// A word of a command.
#[derive(Debug)]
pub(super) struct Operand {
    pub(super) pos: usize,
    pub(super) kind: OperandKind,
}

/// The kind of a word. Fields keep their spelling: `.a.b`.
#[derive(Debug)]
pub(super) enum OperandKind {
    Bool(bool),
    Str { quoted: TextSlice, text: GoString },
    Number(Box<Number>),
    Nil,
    Dot,
    Field(TextSlice),
    Variable { name: Rc<str>, fields: TextSlice },
    Chain { base: Box<Operand>, fields: TextSlice },
    Function(&'static Function),
    Pipe(Box<Pipe>),
}

fn write_nodes(f: &mut fmt::Formatter<'_>, nodes: &[TemplateNode]) -> fmt::Result {
    nodes.iter().try_for_each(|n| write!(f, "{n}"))
}

impl fmt::Display for TemplateNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, branch) = match &self.kind {
            NodeKind::Text(text) => return f.write_str(text),
            NodeKind::Action(pipe) => return write!(f, "{{{{{pipe}}}}}"),
            NodeKind::Break => return f.write_str("{{break}}"),
            NodeKind::Continue => return f.write_str("{{continue}}"),
            NodeKind::Template { name, pipe } => {
                write!(f, "{{{{template {}", quote(name.as_bytes()))?;
                if let Some(pipe) = pipe {
                    write!(f, " {pipe}")?;
                }
                return f.write_str("}}");
            }
            NodeKind::If(branch) => ("if", branch),
            NodeKind::With(branch) => ("with", branch),
            NodeKind::Range(branch) => ("range", branch),
        };
        write!(f, "{{{{{word} {}}}}}", branch.pipe)?;
        write_nodes(f, &branch.list)?;
        if let Some(otherwise) = &branch.otherwise {
            f.write_str("{{else}}")?;
            write_nodes(f, otherwise)?;
        }
        f.write_str("{{end}}")
    }
}

impl fmt::Display for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.declared.is_empty() {
            write!(f, "{} {} ", self.declared.join(", "), if self.assigns { "=" } else { ":=" })?;
        }
        for (i, command) in self.commands.iter().enumerate() {
            if i > 0 {
                f.write_str(" | ")?;
            }
            write!(f, "{command}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.first.write_term(f)?;
        self.args.iter().try_for_each(|word| {
            f.write_str(" ")?;
            word.write_term(f)
        })
    }
}

impl Operand {
    fn write_term(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            OperandKind::Pipe(pipe) => write!(f, "({pipe})"),
            _ => write!(f, "{self}"),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            OperandKind::Bool(b) => write!(f, "{b}"),
            OperandKind::Str { quoted, .. } => f.write_str(quoted),
            OperandKind::Number(n) => f.write_str(&n.text),
            OperandKind::Nil => f.write_str("nil"),
            OperandKind::Dot => f.write_str("."),
            OperandKind::Field(fields) => f.write_str(fields),
            OperandKind::Variable { name, fields } => {
                f.write_str(name)?;
                f.write_str(fields)
            }
            OperandKind::Chain { base, fields } => {
                base.write_term(f)?;
                f.write_str(fields)
            }
            OperandKind::Function(function) => f.write_str(function.name),
            OperandKind::Pipe(pipe) => write!(f, "{pipe}"),
        }
    }
}
