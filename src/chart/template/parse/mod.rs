//! Builds syntax trees from tokens, with the rules and messages of Go's `text/template/parse`.

mod cursor;

use std::rc::Rc;

use super::ast::{Branch, Command, NodeKind, Operand, OperandKind, Pipe, TemplateNode, TemplateSource, Tree};
use super::error::Error;
use super::functions;
use super::lex::{self, Kind, Token, Tokens};
use super::stack::StackGuard;
use super::unquote::{Number, quote, unquote};
use crate::chart::TextSlice;
use crate::chart::value::GoString;
use crate::limits::TEMPLATE_PARENTHESES_MAX;

/// Parses a file: the trees of its definitions, and finally the tree of the file itself. Errors: the first
/// mistake, as `template: name:line: text`.
pub(super) fn parse(name: &str, text: &TextSlice, guard: StackGuard) -> Result<Vec<Tree>, Error> {
    let source = Rc::new(TemplateSource { name: name.to_owned(), text: text.clone() });
    let tokens = lex::tokens(text);
    let mut parser = Parser {
        source,
        tokens,
        at: 0,
        furthest: 0,
        dollar: Rc::from("$"),
        scope: DefinitionScope::default(),
        trees: Vec::new(),
        guard,
        nodes: Vec::new(),
        commands: Vec::new(),
        words: Vec::new(),
    };
    parser.file()?;
    Ok(parser.trees)
}

struct Parser<'a> {
    source: Rc<TemplateSource>,
    tokens: Tokens<'a>,
    at: usize,
    /// The last token that was peeked at: messages name its line.
    furthest: usize,
    /// The name of the variable that always exists.
    dollar: Rc<str>,
    scope: DefinitionScope,
    trees: Vec<Tree>,
    guard: StackGuard,
    // Nodes of incomplete lists, the innermost last: each list is allocated in its final size.
    nodes: Vec<TemplateNode>,
    commands: Vec<Command>,
    words: Vec<Operand>,
}

/// Takes the items above a mark, as a list of their own.
fn taken<T>(stack: &mut Vec<T>, mark: usize) -> Box<[T]> {
    stack.drain(mark..).collect()
}

/// The state of one definition.
#[derive(Default)]
struct DefinitionScope {
    /// Variables besides `$`.
    variables: Vec<Rc<str>>,
    /// The start of the current action.
    action: Option<usize>,
    range_depth: u32,
    paren_depth: usize,
}

/// An item of a list: a node, or the end of the list.
enum Item {
    Node(TemplateNode),
    Else,
    End,
}

impl Item {
    fn text(&self) -> String {
        match self {
            Self::Node(n) => n.to_string(),
            Self::Else => "{{else}}".to_owned(),
            Self::End => "{{end}}".to_owned(),
        }
    }
}

impl<'a> Parser<'a> {
    fn file(&mut self) -> Result<(), Error> {
        while self.peek().kind != Kind::Eof {
            if self.peek().kind == Kind::LeftDelim {
                let start = self.at;
                self.next();
                if self.next_non_space().kind == Kind::Define {
                    let outer = std::mem::take(&mut self.scope);
                    self.definition()?;
                    self.scope = outer;
                    continue;
                }
                self.at = start;
            }
            match self.text_or_action()? {
                Item::Node(node) => self.nodes.push(node),
                other => return Err(self.error(format!("unexpected {}", other.text()))),
            }
        }
        let root = taken(&mut self.nodes, 0);
        self.add(self.source.name.clone(), root)
    }

    fn definition(&mut self) -> Result<(), Error> {
        let token = self.next_non_space();
        let name = self.template_name(&token, "define clause")?;
        self.expect(Kind::RightDelim, "define clause")?;
        self.body(name, "define clause")
    }

    fn body(&mut self, name: String, context: &str) -> Result<(), Error> {
        let (root, end) = self.item_list()?;
        match end {
            Item::End => self.add(name, root),
            other => Err(self.error(format!("unexpected {} in {context}", other.text()))),
        }
    }

    fn add(&mut self, name: String, root: Box<[TemplateNode]>) -> Result<(), Error> {
        let tree = Tree { name, source: self.source.clone(), root };
        match self.trees.iter_mut().find(|t| t.name == tree.name) {
            None => self.trees.push(tree),
            Some(known) if known.is_empty() => *known = tree,
            Some(_) if tree.is_empty() => {}
            Some(_) => {
                let name = quote(tree.name.as_bytes());
                return Err(self.error(format!("template: multiple definition of template {name}")));
            }
        }
        Ok(())
    }

    fn item_list(&mut self) -> Result<(Box<[TemplateNode]>, Item), Error> {
        let mark = self.nodes.len();
        while self.peek_non_space().kind != Kind::Eof {
            match self.text_or_action()? {
                Item::Node(node) => self.nodes.push(node),
                end => return Ok((taken(&mut self.nodes, mark), end)),
            }
        }
        Err(self.error("unexpected EOF"))
    }

    fn text_or_action(&mut self) -> Result<Item, Error> {
        if !self.guard.has_room() {
            return Err(self.error("template nests too deeply"));
        }
        let token = self.next_non_space();
        match token.kind {
            Kind::Text => {
                let text = self.source.text.part(token.text);
                Ok(Item::Node(TemplateNode { pos: token.pos, kind: NodeKind::Text(text) }))
            }
            Kind::LeftDelim => {
                self.scope.action = Some(token.pos);
                let item = self.action();
                self.scope.action = None;
                item
            }
            _ => Err(self.unexpected(&token, "input")),
        }
    }

    fn action(&mut self) -> Result<Item, Error> {
        let start = self.at;
        let token = self.next_non_space();
        let node = |kind| Ok(Item::Node(TemplateNode { pos: token.pos, kind }));
        match token.kind {
            Kind::Block => self.block(),
            Kind::Break => self.leave_range("break").and_then(|()| node(NodeKind::Break)),
            Kind::Continue => self.leave_range("continue").and_then(|()| node(NodeKind::Continue)),
            Kind::Else => self.else_control(),
            Kind::End => self.expect(Kind::RightDelim, "end").map(|_| Item::End),
            Kind::If => self.control("if", NodeKind::If).map(Item::Node),
            Kind::Range => self.control("range", NodeKind::Range).map(Item::Node),
            Kind::With => self.control("with", NodeKind::With).map(Item::Node),
            Kind::Template => self.template_control(),
            _ => {
                self.at = start;
                let pos = self.peek_non_space().pos;
                let pipe = self.pipeline("command", Kind::RightDelim)?;
                Ok(Item::Node(TemplateNode { pos, kind: NodeKind::Action(pipe) }))
            }
        }
    }

    fn leave_range(&mut self, word: &str) -> Result<(), Error> {
        let token = self.next_non_space();
        if token.kind != Kind::RightDelim {
            return Err(self.unexpected(&token, &format!("{{{{{word}}}}}")));
        }
        match self.scope.range_depth {
            0 => Err(self.error(format!("{{{{{word}}}}} outside {{{{range}}}}"))),
            _ => Ok(()),
        }
    }

    fn else_control(&mut self) -> Result<Item, Error> {
        let peek = self.peek_non_space();
        if matches!(peek.kind, Kind::If | Kind::With) {
            return Ok(Item::Else);
        }
        self.expect(Kind::RightDelim, "else").map(|_| Item::Else)
    }

    fn control(&mut self, context: &str, kind: fn(Box<Branch>) -> NodeKind) -> Result<TemplateNode, Error> {
        let variables = self.scope.variables.len();
        let pipe = self.pipeline(context, Kind::RightDelim)?;
        let depth = u32::from(context == "range");
        self.scope.range_depth += depth;
        let (list, end) = self.item_list()?;
        self.scope.range_depth -= depth;
        let otherwise = match end {
            Item::Else => Some(self.otherwise(context)?),
            _ => None,
        };
        self.scope.variables.truncate(variables);
        Ok(TemplateNode { pos: pipe.pos, kind: kind(Box::new(Branch { pipe, list, otherwise })) })
    }

    /// The rest after `else`: `else if` and `else with` share the `end` of the block that they continue.
    fn otherwise(&mut self, context: &str) -> Result<Box<[TemplateNode]>, Error> {
        match (context, self.peek().kind) {
            ("if", Kind::If) => {
                self.next();
                Ok(Box::new([self.control("if", NodeKind::If)?]))
            }
            ("with", Kind::With) => {
                self.next();
                Ok(Box::new([self.control("with", NodeKind::With)?]))
            }
            _ => match self.item_list()? {
                (list, Item::End) => Ok(list),
                (_, other) => Err(self.error(format!("expected end; found {}", other.text()))),
            },
        }
    }

    fn block(&mut self) -> Result<Item, Error> {
        let token = self.next_non_space();
        let name = self.template_name(&token, "block clause")?;
        let pipe = self.pipeline("block clause", Kind::RightDelim)?;
        let outer = std::mem::take(&mut self.scope);
        self.body(name.clone(), "block clause")?;
        self.scope = outer;
        Ok(Item::Node(TemplateNode {
            pos: token.pos,
            kind: NodeKind::Template { name, pipe: Some(Box::new(pipe)) },
        }))
    }

    fn template_control(&mut self) -> Result<Item, Error> {
        let token = self.next_non_space();
        let name = self.template_name(&token, "template clause")?;
        let start = self.at;
        let pipe = match self.next_non_space().kind {
            Kind::RightDelim => None,
            _ => {
                self.at = start;
                Some(Box::new(self.pipeline("template clause", Kind::RightDelim)?))
            }
        };
        Ok(Item::Node(TemplateNode { pos: token.pos, kind: NodeKind::Template { name, pipe } }))
    }

    fn template_name(&mut self, token: &Token<'a>, context: &str) -> Result<String, Error> {
        match token.kind {
            Kind::String | Kind::RawString => {
                let bytes = unquote(token.text).ok_or_else(|| self.error("invalid syntax"))?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
            _ => Err(self.unexpected(token, context)),
        }
    }

    fn pipeline(&mut self, context: &str, end: Kind) -> Result<Pipe, Error> {
        let pos = self.peek_non_space().pos;
        let mut pipe = Pipe { pos, declared: Vec::new(), assigns: false, commands: Box::default() };
        self.declarations(&mut pipe, context)?;
        let mark = self.commands.len();
        loop {
            let start = self.at;
            let token = self.next_non_space();
            if token.kind == end {
                break;
            }
            if !starts_operand(token.kind) {
                return Err(self.unexpected(&token, context));
            }
            self.at = start;
            let command = self.command()?;
            self.commands.push(command);
        }
        pipe.commands = taken(&mut self.commands, mark);
        self.check(&pipe, context)?;
        Ok(pipe)
    }

    fn declarations(&mut self, pipe: &mut Pipe, context: &str) -> Result<(), Error> {
        loop {
            let start = self.at;
            let variable = self.next_non_space();
            if variable.kind != Kind::Variable {
                self.at = start;
                return Ok(());
            }
            let next = self.next_non_space();
            let comma = next.kind == Kind::Char && next.text == ",";
            if !comma && !matches!(next.kind, Kind::Assign | Kind::Declare) {
                self.at = start;
                return Ok(());
            }
            let name: Rc<str> = Rc::from(variable.text);
            pipe.declared.push(name.clone());
            self.scope.variables.push(name);
            if !comma {
                pipe.assigns = next.kind == Kind::Assign;
                return Ok(());
            }
            if context != "range" || pipe.declared.len() >= 2 {
                return Err(self.error(format!("too many declarations in {context}")));
            }
            if !matches!(self.peek_non_space().kind, Kind::Variable | Kind::RightDelim | Kind::RightParen) {
                return Err(self.error("range can only initialize variables"));
            }
        }
    }

    fn check(&mut self, pipe: &Pipe, context: &str) -> Result<(), Error> {
        if pipe.commands.is_empty() {
            return Err(self.error(format!("missing value for {context}")));
        }
        for (i, command) in pipe.commands.iter().enumerate().skip(1) {
            use OperandKind::{Bool, Dot, Nil, Number, Str};
            if matches!(command.first.kind, Bool(_) | Dot | Nil | Number(_) | Str { .. }) {
                return Err(self.error(format!("non executable command in pipeline stage {}", i + 1)));
            }
        }
        Ok(())
    }

    fn command(&mut self) -> Result<Command, Error> {
        let pos = self.peek_non_space().pos;
        let mark = self.words.len();
        let mut first = None;
        loop {
            self.peek_non_space();
            match self.operand()? {
                Some(operand) if first.is_some() => self.words.push(operand),
                Some(operand) => first = Some(operand),
                None => {}
            }
            let start = self.at;
            let token = self.next();
            match token.kind {
                Kind::Space => continue,
                Kind::RightDelim | Kind::RightParen => self.at = start,
                Kind::Pipe => {}
                _ => return Err(self.unexpected(&token, "operand")),
            }
            break;
        }
        match first {
            Some(first) => Ok(Command { pos, first, args: taken(&mut self.words, mark) }),
            None => Err(self.error("empty command")),
        }
    }

    fn operand(&mut self) -> Result<Option<Operand>, Error> {
        let Some(mut term) = self.term()? else { return Ok(None) };
        let chain = self.peek();
        if chain.kind != Kind::Field {
            return Ok(Some(term));
        }
        let mut end = chain.pos;
        while self.peek().kind == Kind::Field {
            let field = self.next();
            end = field.pos + field.text.len();
        }
        match &mut term.kind {
            OperandKind::Field(fields) => {
                *fields = self.source.piece(term.pos, end);
                term.pos = chain.pos;
                Ok(Some(term))
            }
            OperandKind::Variable { fields, .. } => {
                *fields = self.source.piece(chain.pos, end);
                term.pos = chain.pos;
                Ok(Some(term))
            }
            OperandKind::Function(_) | OperandKind::Pipe(_) => {
                let kind =
                    OperandKind::Chain { base: Box::new(term), fields: self.source.piece(chain.pos, end) };
                Ok(Some(Operand { pos: chain.pos, kind }))
            }
            _ => {
                let text = quote(term.to_string().as_bytes());
                Err(self.error(format!("unexpected . after term {text}")))
            }
        }
    }

    fn term(&mut self) -> Result<Option<Operand>, Error> {
        let start = self.at;
        let token = self.next_non_space();
        let kind = match token.kind {
            Kind::Identifier => match functions::find(token.text) {
                Some(function) => OperandKind::Function(function),
                None => {
                    let name = quote(token.text.as_bytes());
                    return Err(self.error(format!("function {name} not defined")));
                }
            },
            Kind::Dot => OperandKind::Dot,
            Kind::Nil => OperandKind::Nil,
            Kind::Variable => self.variable(token.text)?,
            Kind::Field => OperandKind::Field(self.source.text.part(token.text)),
            Kind::Bool => OperandKind::Bool(token.text == "true"),
            Kind::CharConstant => {
                OperandKind::Number(Box::new(Number::from_char(token.text).map_err(|e| self.error(e))?))
            }
            Kind::Complex | Kind::Number => {
                OperandKind::Number(Box::new(Number::parse(token.text).map_err(|e| self.error(e))?))
            }
            Kind::LeftParen => OperandKind::Pipe(Box::new(self.parenthesized()?)),
            Kind::String | Kind::RawString => {
                let bytes = unquote(token.text).ok_or_else(|| self.error("invalid syntax"))?;
                OperandKind::Str { quoted: self.source.text.part(token.text), text: GoString::from(&*bytes) }
            }
            _ => {
                self.at = start;
                return Ok(None);
            }
        };
        let pos = match &kind {
            OperandKind::Pipe(pipe) => pipe.pos,
            _ => token.pos,
        };
        Ok(Some(Operand { pos, kind }))
    }

    fn variable(&mut self, text: &str) -> Result<OperandKind, Error> {
        let mut known = std::iter::once(&self.dollar).chain(&self.scope.variables);
        match known.find(|known| &***known == text) {
            Some(known) => Ok(OperandKind::Variable { name: known.clone(), fields: self.source.piece(0, 0) }),
            None => {
                let name = quote(text.as_bytes());
                Err(self.error(format!("undefined variable {name}")))
            }
        }
    }

    fn parenthesized(&mut self) -> Result<Pipe, Error> {
        if self.scope.paren_depth >= TEMPLATE_PARENTHESES_MAX || !self.guard.has_room() {
            return Err(self.error("max expression depth exceeded"));
        }
        self.scope.paren_depth += 1;
        let pipe = self.pipeline("parenthesized pipeline", Kind::RightParen);
        self.scope.paren_depth -= 1;
        pipe
    }
}

fn starts_operand(kind: Kind) -> bool {
    use Kind::{
        Bool, CharConstant, Complex, Dot, Field, Identifier, LeftParen, Nil, Number, RawString, String,
        Variable,
    };
    matches!(
        kind,
        Bool | CharConstant
            | Complex
            | Dot
            | Field
            | Identifier
            | Number
            | Nil
            | RawString
            | String
            | Variable
            | LeftParen
    )
}

#[cfg(test)]
mod tests;
