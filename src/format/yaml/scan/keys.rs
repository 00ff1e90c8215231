//! Where keys and blocks begin and end. Only the `:` after a key without `?` reveals that it is a key, so tokens wait
//! until their role is clear. The column of a key or item determines where its block ends.

use super::{Error, Kind, Mark, Scanner, SimpleKey, Token};

/// The longest key, in characters, without a `?`.
const SIMPLE_KEY_CHARS_MAX: usize = 1024;

/// Keys without `?`.
impl<'a> Scanner<'a> {
    /// Whether the next token cannot be returned yet.
    pub(super) fn wants_more(&mut self) -> Result<bool, Error> {
        if self.tokens.is_empty() {
            return Ok(!self.ended);
        }
        let at = self.keys.partition_point(|key| key.number < self.taken);
        match self.keys.get(at) {
            Some(key) if key.number == self.taken && key.holds => self.is_key_valid(at),
            _ => Ok(false),
        }
    }

    pub(super) fn is_key_valid(&mut self, at: usize) -> Result<bool, Error> {
        let key = self.keys[at];
        if !key.possible {
            return Ok(false);
        }
        if key.mark.line == self.line && !self.is_far(key.mark.pos) {
            return Ok(true);
        }
        if key.required {
            return self.fail("could not find expected ':'");
        }
        self.keys[at].possible = false;
        Ok(false)
    }

    fn is_far(&self, from: usize) -> bool {
        self.pos - from > SIMPLE_KEY_CHARS_MAX
            && self.text.get(from..self.pos).is_some_and(|text| text.chars().count() > SIMPLE_KEY_CHARS_MAX)
    }

    /// A key may begin here.
    pub(super) fn save_key(&mut self) -> Result<(), Error> {
        let required = !self.is_in_brackets() && self.level == self.column() + 1;
        if self.key_allowed {
            self.remove_key()?;
            let (number, mark) = (self.taken + self.tokens.len(), self.mark());
            if let Some(last) = self.keys.last_mut() {
                *last = SimpleKey { possible: true, required, number, holds: true, mark };
            }
        }
        Ok(())
    }

    pub(super) fn remove_key(&mut self) -> Result<(), Error> {
        match self.keys.last_mut() {
            Some(SimpleKey { possible: true, required: true, .. }) => {
                self.fail("could not find expected ':'")
            }
            Some(key) => {
                if key.possible {
                    (key.possible, key.holds) = (false, false);
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn open_bracket(&mut self) {
        let (number, mark) = (self.taken + self.tokens.len(), self.mark());
        self.keys.push(SimpleKey { possible: false, required: false, number, holds: false, mark });
    }

    pub(super) fn close_bracket(&mut self) {
        if self.is_in_brackets()
            && let Some(closed) = self.keys.pop()
            && let Some(outer) = self.keys.last_mut()
            && outer.number == closed.number
        {
            // At this point go-yaml forgets that empty brackets may be a key.
            outer.holds = false;
        }
    }
}

impl<'a> Scanner<'a> {
    /// Content begins at a column: a block begins if the column is further to the right.
    pub(super) fn open_block(&mut self, column: usize, number: Option<usize>, kind: Kind, mark: Mark) {
        if self.is_in_brackets() || self.level > column {
            return;
        }
        self.levels.push(self.level);
        self.level = column + 1;
        let token = self.token(kind, mark);
        self.insert(number, token);
    }

    pub(super) fn insert(&mut self, number: Option<usize>, token: Token<'a>) {
        match number.and_then(|number| number.checked_sub(self.taken)) {
            Some(at) if at <= self.tokens.len() => self.tokens.insert(at, token),
            _ => self.tokens.push_back(token),
        }
    }

    /// Ends the blocks that are indented more than this level.
    pub(super) fn close_blocks(&mut self, level: usize) {
        if self.is_in_brackets() {
            return;
        }
        while self.level > level {
            let end = self.token(Kind::BlockEnd, self.mark());
            self.tokens.push_back(end);
            self.level = self.levels.pop().unwrap_or(0);
        }
    }
}
