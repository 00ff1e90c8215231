//! The parser's place among the tokens, and the messages that name it.

use super::Parser;
use crate::chart::template::error::Error;
use crate::chart::template::lex::{self, Kind, Token};

impl<'a> Parser<'a> {
    pub(super) fn peek(&mut self) -> Token<'a> {
        self.furthest = self.furthest.max(self.at);
        self.tokens.get(self.at).or_else(|| self.tokens.last()).cloned().unwrap_or_else(end_token)
    }

    pub(super) fn next(&mut self) -> Token<'a> {
        let token = self.peek();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        token
    }

    pub(super) fn next_non_space(&mut self) -> Token<'a> {
        loop {
            let token = self.next();
            if token.kind != Kind::Space {
                return token;
            }
        }
    }

    pub(super) fn peek_non_space(&mut self) -> Token<'a> {
        while self.peek().kind == Kind::Space {
            self.next();
        }
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
        let text = token.to_string();
        let (line, name) = (self.frame.action_line, &self.source.name);
        if line == 0 || line == token.line {
            return self.error(text);
        }
        let within = if text.ends_with(" action") { "" } else { " in action" };
        self.error(format!("{text}{within} started at {name}:{line}"))
    }

    pub(super) fn error(&self, message: impl Into<String>) -> Error {
        let line = self.tokens.get(self.furthest).map_or(0, |t| t.line);
        Error::parse(&self.source.name, line, message)
    }
}

fn end_token<'a>() -> Token<'a> {
    lex::tokens("").remove(0)
}
