//! Lists: in blocks, at the indentation of their key, and in brackets.

use serde_json::{Map, Value};

use super::{AllowedNodes, Error, Kind, Loader, Mark};

impl Loader<'_> {
    pub(super) fn block_sequence(&mut self, depth: usize) -> Result<Value, Error> {
        use Kind::{BlockEnd, BlockEntry};
        self.scanner.take();
        let mut items = Vec::new();
        loop {
            match self.scanner.peek()? {
                (BlockEntry, mark) => self.item(&mut items, mark, &[BlockEntry, BlockEnd], depth)?,
                (BlockEnd, _) => break,
                (_, mark) => return Err(self.syntax(mark, "did not find expected '-' indicator")),
            }
        }
        self.scanner.take();
        Ok(Value::Array(items))
    }

    /// A list whose items have the indentation of their key.
    pub(super) fn level_sequence(&mut self, depth: usize) -> Result<Value, Error> {
        use Kind::{BlockEnd, BlockEntry, Key, Value as ValueMark};
        let mut items = Vec::new();
        while let (BlockEntry, mark) = self.scanner.peek()? {
            self.item(&mut items, mark, &[BlockEntry, Key, ValueMark, BlockEnd], depth)?;
        }
        Ok(Value::Array(items))
    }

    /// The value after `-`; null before one of the `ends`.
    fn item(&mut self, items: &mut Vec<Value>, mark: Mark, ends: &[Kind], depth: usize) -> Result<(), Error> {
        self.scanner.take();
        let (kind, _) = self.scanner.peek()?;
        let item = if ends.contains(&kind) {
            self.nothing(mark)?
        } else {
            self.node(AllowedNodes::Block, depth + 1)?
        };
        if self.keep {
            items.push(item);
        }
        Ok(())
    }

    pub(super) fn flow_sequence(&mut self, depth: usize) -> Result<Value, Error> {
        use Kind::{FlowEntry, FlowSequenceEnd, Key};
        self.scanner.take();
        let mut items = Vec::new();
        let mut first = true;
        loop {
            let (mut kind, mark) = self.scanner.peek()?;
            if kind != FlowSequenceEnd && !first {
                if kind != FlowEntry {
                    return Err(self.syntax(mark, "did not find expected ',' or ']'"));
                }
                self.scanner.take();
                kind = self.scanner.peek()?.0;
            }
            first = false;
            let item = match kind {
                FlowSequenceEnd => break,
                Key => self.pair(depth + 1)?,
                _ => self.node(AllowedNodes::Brackets, depth + 1)?,
            };
            if self.keep {
                items.push(item);
            }
        }
        self.scanner.take();
        Ok(Value::Array(items))
    }

    /// `a: b` as an item of a list in brackets: a map with one entry.
    fn pair(&mut self, depth: usize) -> Result<Value, Error> {
        use Kind::{FlowEntry, FlowSequenceEnd, Value as ValueMark};
        let key_mark = self.scanner.take().mark;
        self.count(1, key_mark)?;
        let (kind, _) = self.scanner.peek()?;
        let key = if matches!(kind, ValueMark | FlowEntry | FlowSequenceEnd) {
            // As go-yaml, which loses this token.
            self.scanner.take();
            self.no_key(key_mark)?
        } else {
            self.key(AllowedNodes::Brackets, depth + 1)?
        };
        let mut map = Map::new();
        self.flow_value(&mut map, key, FlowSequenceEnd, depth)?;
        Ok(Value::Object(map))
    }
}
