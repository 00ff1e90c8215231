//! Executes a template: walks the tree and writes the output. Pipelines are in [`pipeline`], calls in [`call`].

mod call;
mod pipeline;
mod tables;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use super::ast::{Branch, Command, NodeKind, Operand, Pipe, TemplateNode, Tree};
use super::error::{Error, ExecutedNode, Fault};
use super::functions::regex::Expression;
use super::stack::StackGuard;
use super::{Options, format};
use crate::chart::value::{GoString, ListKind, MapKind, Value, take_walked};
use crate::limits::{TEMPLATE_BUFFER_BYTES_MAX, TEMPLATE_DEPTH_MAX, TEMPLATE_OUTPUT_BYTES_MAX};

/// Values that a walk visits in one step.
const NODES_PER_STEP: u64 = 2;
/// Longer lists are not kept for reuse.
const SPARE_ITEMS_MAX: usize = 64;

/// The visible templates: those of the set, overlaid by the definitions of `tpl`.
#[derive(Debug, Default)]
pub(super) struct Scope<'a> {
    pub(super) trees: HashMap<String, Rc<Tree>>,
    pub(super) outer: Option<&'a Scope<'a>>,
}

impl Scope<'_> {
    pub(super) fn find(&self, name: &str) -> Option<&Rc<Tree>> {
        let mut scope = Some(self);
        while let Some(s) = scope {
            if let Some(tree) = s.trees.get(name) {
                return Some(tree);
            }
            scope = s.outer;
        }
        None
    }

    /// Adds a definition: the last one wins, but an empty one never replaces another.
    pub(super) fn add(&mut self, tree: Tree) {
        if !tree.is_empty() || self.find(&tree.name).is_none() {
            self.trees.insert(tree.name.clone(), Rc::new(tree));
        }
    }
}

/// Empty lists for reuse, which save most allocations of an execution.
#[derive(Default)]
pub(super) struct Spare {
    buffers: RefCell<Vec<Vec<u8>>>,
    values: RefCell<Vec<Vec<Value>>>,
    variables: RefCell<Vec<Variables>>,
    /// The name of the variable `$`.
    dollar: OnceCell<Rc<str>>,
}

impl fmt::Debug for Spare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Spare")
    }
}

/// Names and their values, the innermost last.
type Variables = Vec<(Rc<str>, Slot)>;

/// Keeps a list for reuse, unless it has become long.
fn put_back<T>(spare: &RefCell<Vec<Vec<T>>>, mut list: Vec<T>, capacity_max: usize) {
    list.clear();
    if list.capacity() <= capacity_max {
        spare.borrow_mut().push(list);
    }
}

/// Shared by all executions within one rendering.
pub(super) struct SharedExecution<'a> {
    pub(super) options: &'a Options,
    pub(super) guard: StackGuard,
    /// The names of the templates whose inclusion is in progress.
    pub(super) included: RefCell<Vec<GoString>>,
    spare: &'a Spare,
    pub(super) depth: Cell<usize>,
    pub(super) regexes: RefCell<HashMap<String, Rc<Expression>>>,
}

impl<'a> SharedExecution<'a> {
    pub(super) fn new(options: &'a Options, spare: &'a Spare) -> Self {
        Self {
            options,
            spare,
            guard: StackGuard::new(options.stack_bytes_max),
            included: RefCell::default(),
            depth: Cell::new(0),
            regexes: RefCell::default(),
        }
    }

    /// Provides an empty buffer, and keeps it for reuse.
    pub(super) fn with_buffer<T>(&self, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        let mut buffer = self.spare.buffers.borrow_mut().pop().unwrap_or_default();
        let result = work(&mut buffer);
        put_back(&self.spare.buffers, buffer, TEMPLATE_BUFFER_BYTES_MAX);
        result
    }

    /// Refuses work that needs more steps than remain.
    pub(super) fn afford(&self, steps: u64) -> Result<(), String> {
        let steps_max = self.options.steps_max;
        if self.options.steps.get().saturating_add(steps) > steps_max {
            return Err(format!("rendering took more than {steps_max} steps"));
        }
        Ok(())
    }

    /// Counts steps against the limit of one rendering.
    pub(super) fn charge(&self, steps: u64) -> Result<(), String> {
        let walked = take_walked() / NODES_PER_STEP;
        let steps = self.options.steps.get().saturating_add(steps).saturating_add(walked);
        self.options.steps.set(steps);
        self.afford(0)
    }
}

/// The parts of the engine that functions can use.
#[derive(Clone, Copy)]
pub(super) struct Engine<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) shared: &'a SharedExecution<'a>,
}

impl Engine<'_> {
    /// Whether templates may nest one level deeper.
    pub(super) fn check_depth(self) -> Result<(), String> {
        if self.shared.depth.get() >= TEMPLATE_DEPTH_MAX {
            return Err(format!("exceeded maximum template depth ({TEMPLATE_DEPTH_MAX})"));
        }
        Ok(())
    }

    /// Executes a template on `data`.
    pub(super) fn execute(self, tree: &Tree, data: Value, out: &mut Vec<u8>) -> Result<(), Error> {
        let dot = Slot::plain(data);
        let spare = self.shared.spare;
        let mut vars = spare.variables.borrow_mut().pop().unwrap_or_default();
        vars.push((spare.dollar.get_or_init(|| Rc::from("$")).clone(), dot.clone()));
        let mut exec = Exec { engine: self, tree, vars, at: At::Nothing, out };
        let depth = self.shared.depth.get();
        self.shared.depth.set(depth + 1);
        let result = exec.list(&dot, &tree.root);
        self.shared.depth.set(depth);
        put_back(&spare.variables, exec.vars, SPARE_ITEMS_MAX);
        result.map(|_| ())
    }
}

/// A value, and whether Go's reflection still sees it in the `interface {}` of a map or a list. Only messages and the
/// treatment of nil depend on it.
#[derive(Clone)]
struct Slot {
    value: Value,
    boxed: bool,
}

impl Slot {
    fn plain(value: Value) -> Self {
        Self { value, boxed: false }
    }

    fn boxed(value: Value) -> Self {
        Self { value, boxed: true }
    }
}

/// The node for messages.
#[derive(Clone, Copy)]
enum At<'t> {
    Nothing,
    Node(&'t TemplateNode),
    Pipe(&'t Pipe),
    Command(&'t Command),
    Operand(&'t Operand),
}

impl At<'_> {
    fn pos(self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Node(n) => n.pos,
            Self::Pipe(p) => p.pos,
            Self::Command(c) => c.pos,
            Self::Operand(o) => o.pos,
        }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Node(n) => n.fmt(f),
            Self::Pipe(p) => p.fmt(f),
            Self::Command(c) => c.fmt(f),
            Self::Operand(o) => o.fmt(f),
        }
    }
}

enum Flow {
    Next,
    Break,
    Continue,
}

/// The execution of one template.
struct Exec<'t, 'o> {
    engine: Engine<'t>,
    tree: &'t Tree,
    vars: Variables,
    at: At<'t>,
    out: &'o mut Vec<u8>,
}

impl<'t> Exec<'t, '_> {
    fn list(&mut self, dot: &Slot, nodes: &'t [TemplateNode]) -> Result<Flow, Error> {
        for node in nodes {
            match self.node(dot, node)? {
                Flow::Next => {}
                other => return Ok(other),
            }
        }
        Ok(Flow::Next)
    }

    fn node(&mut self, dot: &Slot, node: &'t TemplateNode) -> Result<Flow, Error> {
        self.at = At::Node(node);
        self.step()?;
        match &node.kind {
            NodeKind::Text(text) => self.write(text.as_bytes())?,
            NodeKind::Action(pipe) => {
                let value = self.pipeline(dot, pipe)?;
                if pipe.declared.is_empty() {
                    self.at = At::Node(node);
                    self.print(&value)?;
                }
            }
            NodeKind::If(branch) => return self.branch(dot, branch, false),
            NodeKind::With(branch) => return self.branch(dot, branch, true),
            NodeKind::Range(branch) => return self.range(dot, branch),
            NodeKind::Template { name, pipe } => self.template(dot, node, name, pipe.as_deref())?,
            NodeKind::Break => return Ok(Flow::Break),
            NodeKind::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    /// Counts steps and checks the stack: these guards end a template that does not end by itself.
    fn step(&mut self) -> Result<(), Error> {
        let shared = self.engine.shared;
        shared.charge(1).map_err(|message| self.fail(message))?;
        if !shared.guard.has_room() {
            return Err(self.fail("templates nest too deeply"));
        }
        Ok(())
    }

    fn branch(&mut self, dot: &Slot, branch: &'t Branch, sets_dot: bool) -> Result<Flow, Error> {
        let mark = self.vars.len();
        let value = self.pipeline(dot, &branch.pipe)?;
        let flow = if value.is_true() {
            if sets_dot { self.list(&Slot::plain(value), &branch.list) } else { self.list(dot, &branch.list) }
        } else {
            self.otherwise(dot, branch)
        };
        self.vars.truncate(mark);
        flow
    }

    fn otherwise(&mut self, dot: &Slot, branch: &'t Branch) -> Result<Flow, Error> {
        branch.otherwise.as_ref().map_or(Ok(Flow::Next), |nodes| self.list(dot, nodes))
    }

    fn range(&mut self, dot: &Slot, branch: &'t Branch) -> Result<Flow, Error> {
        let outer = self.vars.len();
        let flow = self.range_within(dot, branch);
        self.vars.truncate(outer);
        flow
    }

    fn range_within(&mut self, dot: &Slot, branch: &'t Branch) -> Result<Flow, Error> {
        let value = self.pipeline(dot, &branch.pipe)?;
        let ran = match &value {
            Value::Nil | Value::NilInterface => 0,
            Value::Int(n) | Value::Int64(n) => {
                let wrap = if matches!(value, Value::Int(_)) { Value::Int } else { Value::Int64 };
                self.check_single_variable(branch, &value)?;
                self.each(branch, (0..*n).map(|i| (Value::Nil, Slot::plain(wrap(i)))))?
            }
            Value::Uint64(n) => {
                self.check_single_variable(branch, &value)?;
                self.each(branch, (0..*n).map(|i| (Value::Nil, Slot::plain(Value::Uint64(i)))))?
            }
            Value::Uint8(n) => {
                self.check_single_variable(branch, &value)?;
                self.each(branch, (0..*n).map(|i| (Value::Nil, Slot::plain(Value::Uint8(i)))))?
            }
            Value::List(list) => {
                let boxed = list.kind() == ListKind::Any;
                let item = |i| list.get(i).map(|value| (index_value(i), Slot { value, boxed }));
                self.each(branch, (0..).map_while(item))?
            }
            Value::Bytes(bytes) => {
                let item = |(i, b): (usize, &u8)| (index_value(i), Slot::plain(Value::Uint8(*b)));
                self.each(branch, bytes.iter().enumerate().map(item))?
            }
            Value::Map(map) => {
                let boxed = map.kind() != MapKind::Strings;
                let entries: Vec<_> = map.entries().iter().map(|(k, v)| (k.clone(), v.clone())).collect();
                let entry = |(k, value): (Rc<str>, Value)| (Value::str(k), Slot { value, boxed });
                self.each(branch, entries.into_iter().map(entry))?
            }
            Value::Native(object) if object.count().is_some() => {
                let entries = object.entries().into_iter();
                self.each(branch, entries.map(|(k, v)| (k, Slot::plain(v))))?
            }
            other => {
                let text = format::display(other).unwrap_or_default();
                return Err(self.fail(format!("range can't iterate over {}", text.to_str())));
            }
        };
        if ran > 0 {
            return Ok(Flow::Next);
        }
        // In Go, a `break` ends the enclosing loop, even in its `else`; a `continue` there applies to the outer loop.
        Ok(match self.otherwise(dot, branch)? {
            Flow::Break => Flow::Next,
            other => other,
        })
    }

    fn check_single_variable(&mut self, branch: &'t Branch, value: &Value) -> Result<(), Error> {
        if branch.pipe.declared.len() < 2 {
            return Ok(());
        }
        let text = format::display(value).unwrap_or_default();
        Err(self.fail(format!("can't use {} to iterate over more than one variable", text.to_str())))
    }

    /// Runs the body once per item, and returns the count.
    fn each(&mut self, branch: &'t Branch, items: impl Iterator<Item = (Value, Slot)>) -> Result<u64, Error> {
        let mark = self.vars.len();
        let mut count = 0;
        for (index, item) in items {
            count += 1;
            self.set_range_variables(&branch.pipe, index, &item)?;
            let flow = self.list(&item, &branch.list);
            self.vars.truncate(mark);
            if matches!(flow?, Flow::Break) {
                break;
            }
            self.step()?;
        }
        Ok(count)
    }

    fn set_range_variables(&mut self, pipe: &'t Pipe, index: Value, item: &Slot) -> Result<(), Error> {
        let top = self.vars.len();
        match (&pipe.declared[..], pipe.assigns) {
            ([], _) => {}
            ([name], true) => self.assign(name, item.clone())?,
            ([first, second, ..], true) => {
                self.assign(first, Slot::plain(index))?;
                self.assign(second, item.clone())?;
            }
            ([_], false) => self.vars[top - 1].1 = item.clone(),
            ([_, _, ..], false) => {
                self.vars[top - 1].1 = item.clone();
                self.vars[top - 2].1 = Slot::plain(index);
            }
        }
        Ok(())
    }

    fn template(
        &mut self,
        dot: &Slot,
        node: &'t TemplateNode,
        name: &str,
        pipe: Option<&'t Pipe>,
    ) -> Result<(), Error> {
        self.at = At::Node(node);
        let Some(tree) = self.engine.scope.find(name).cloned() else {
            return Err(self.fail(format!("template {} not defined", super::unquote::quote(name.as_bytes()))));
        };
        let data = match pipe {
            Some(pipe) => self.pipeline(dot, pipe)?,
            None => Value::Nil,
        };
        self.engine.check_depth().map_err(|message| self.fail(message))?;
        self.engine.execute(&tree, data, self.out)
    }

    fn print(&mut self, value: &Value) -> Result<(), Error> {
        if let Err(message) = format::print_action(self.out, value) {
            return Err(self.fail(message));
        }
        self.check_output()
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.out.extend_from_slice(bytes);
        self.check_output()
    }

    fn check_output(&mut self) -> Result<(), Error> {
        if self.out.len() > TEMPLATE_OUTPUT_BYTES_MAX {
            return Err(self.fail(format!("output has more than {TEMPLATE_OUTPUT_BYTES_MAX} bytes")));
        }
        Ok(())
    }

    fn assign(&mut self, name: &Rc<str>, slot: Slot) -> Result<(), Error> {
        match self.vars.iter_mut().rev().find(|(known, _)| known == name) {
            Some((_, old)) => {
                *old = slot;
                Ok(())
            }
            None => Err(self.fail(format!("undefined variable: {name}"))),
        }
    }

    /// An error at this place.
    #[cold]
    fn fail(&self, fault: impl Into<Fault>) -> Error {
        match self.at {
            At::Nothing => Error::exec(self.tree.name.clone(), None, fault.into()),
            at => {
                let location = self.tree.source.location(at.pos());
                let executing = ExecutedNode { name: self.tree.name.clone(), node: at.to_string() };
                Error::exec(location, Some(executing), fault.into())
            }
        }
    }
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<&str> for Fault {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

fn index_value(i: usize) -> Value {
    Value::Int(i64::try_from(i).unwrap_or(i64::MAX))
}
