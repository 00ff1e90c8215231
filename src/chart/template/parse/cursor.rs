//! The parser's position among the tokens, and the messages that name it.

use super::Parser;
use crate::chart::template::error::Error;
use crate::chart::template::lex::{self, Kind, Token};

impl<'a> Parser<'a> {
    pub(super) fn peek(&mut self) -> Token<'a> {
        self.furthest = self.furthest.max(self.at);
        const END: Token<'_> = Token { kind: Kind::Eof, pos: 0, text: "" };
        let list = &self.tokens.list;
        list.get(self.at).or_else(|| list.last()).copied().unwrap_or(END)
    }

    pub(super) fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        if self.at + 1 < self.tokens.list.len() {
            self.at += 1;
        }
        token
    }

    pub(super) fn next_non_space(&mut self) -> Token<'a> {
        self.skip_spaces();
        self.next()
    }

    /// The last token is never a space.
    fn skip_spaces(&mut self) {
        let rest = self.tokens.list.get(self.at..).unwrap_or_default();
        self.at += rest.iter().take_while(|token| token.kind == Kind::Space).count();
    }

    pub(super) fn peek_non_space(&mut self) -> Token<'a> {
        self.skip_spaces();
        self.peek()
    }

    pub(super) fn expect(&mut self, kind: Kind, context: &str) -> Result<Token<'a>, Error> {
        let token = self.next_non_space();
        if token.kind == kind { Ok(token) } else { Err(self.unexpected(&token, context)) }
    }

    pub(super) fn unexpected(&self, token: &Token<'a>, context: &str) -> Error {
        if token.kind != Kind::Error {
            return self.error(format!("unexpected {token} in {context}"));
        }
        let text = self.tokens.error.clone();
        let line = |pos| lex::line(&self.source.text, pos);
        let Some(line) = self.scope.action.map(line).filter(|begin| *begin != line(token.pos)) else {
            return self.error(text);
        };
        let name = &self.source.name;
        let within = if text.ends_with(" action") { "" } else { " in action" };
        self.error(format!("{text}{within} started at {name}:{line}"))
    }

    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        let line = self.tokens.list.get(self.furthest).map_or(0, |t| lex::line(&self.source.text, t.pos));
        Error::parse(&self.source.name, line, message)
    }
}
