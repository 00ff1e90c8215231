//! Maps: in blocks and in brackets; their keys, which become text; merge keys.

use serde_json::{Map, Value};

use super::{AllowedNodes, Error, Go, Key, Kind, Loader, Mark, Repeated, ScalarText, Token, resolve};
use crate::base::sorted::SortedMap;

/// The rest of each wanted key after `key`: empty if the whole value is wanted, else `.inner`.
fn below<'k>(keys: &[&'k str], key: &str) -> impl Iterator<Item = &'k str> {
    keys.iter()
        .filter_map(move |wanted| wanted.strip_prefix(key))
        .filter(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Loader<'_> {
    pub(super) fn block_mapping(&mut self, depth: usize) -> Result<Value, Error> {
        use Kind::{BlockEnd, Key as KeyMark, Value as ValueMark};
        let ends = [KeyMark, ValueMark, BlockEnd];
        self.scanner.take();
        self.open_map(depth);
        let mut map = Map::new();
        loop {
            let (kind, mark) = self.scanner.peek()?;
            match kind {
                BlockEnd => break,
                KeyMark => {}
                _ => return Err(self.syntax(mark, "did not find expected key")),
            }
            self.scanner.take();
            let (kind, _) = self.scanner.peek()?;
            let key = if ends.contains(&kind) {
                self.no_key(mark)?
            } else {
                self.key(AllowedNodes::Entry, depth + 1)?
            };
            let (kind, mark) = self.scanner.peek()?;
            let mut absent = kind != ValueMark;
            if !absent {
                self.scanner.take();
                if self.is_unwanted(&key, depth) && self.scanner.skim() {
                    continue;
                }
                absent = ends.contains(&self.scanner.peek()?.0);
            }
            self.entry(&mut map, key, mark, absent, AllowedNodes::Entry, depth)?;
        }
        self.scanner.take();
        Ok(Value::Object(map))
    }

    pub(super) fn flow_mapping(&mut self, depth: usize) -> Result<Value, Error> {
        use Kind::{FlowEntry, FlowMappingEnd, Key as KeyMark, Value as ValueMark};
        self.scanner.take();
        self.open_map(depth);
        let mut map = Map::new();
        let mut first = true;
        loop {
            let (mut kind, mut mark) = self.scanner.peek()?;
            if kind != FlowMappingEnd && !first {
                if kind != FlowEntry {
                    return Err(self.syntax(mark, "did not find expected ',' or '}'"));
                }
                self.scanner.take();
                (kind, mark) = self.scanner.peek()?;
            }
            first = false;
            match kind {
                FlowMappingEnd => break,
                KeyMark => {
                    self.scanner.take();
                    let (kind, _) = self.scanner.peek()?;
                    let key = if matches!(kind, ValueMark | FlowEntry | FlowMappingEnd) {
                        self.no_key(mark)?
                    } else {
                        self.key(AllowedNodes::Brackets, depth + 1)?
                    };
                    self.flow_value(&mut map, key, FlowMappingEnd, depth)?;
                }
                _ => {
                    let key = self.key(AllowedNodes::Brackets, depth + 1)?;
                    let (_, mark) = self.scanner.peek()?;
                    self.entry(&mut map, key, mark, true, AllowedNodes::Brackets, depth)?;
                }
            }
        }
        self.scanner.take();
        Ok(Value::Object(map))
    }

    /// The value after a key within brackets that close with `end`.
    pub(super) fn flow_value(
        &mut self,
        map: &mut Map<String, Value>,
        key: Key,
        end: Kind,
        depth: usize,
    ) -> Result<(), Error> {
        let (kind, mark) = self.scanner.peek()?;
        let mut absent = kind != Kind::Value;
        if !absent {
            self.scanner.take();
            let (kind, _) = self.scanner.peek()?;
            absent = kind == Kind::FlowEntry || kind == end;
        }
        self.entry(map, key, mark, absent, AllowedNodes::Brackets, depth)
    }

    /// Whether the value of a key is only checked for mistakes, while values of other keys of the map are kept.
    fn is_unwanted(&self, key: &Key, depth: usize) -> bool {
        match (key, self.keys) {
            (Key::Text(text), Some(keys)) if depth == 0 => below(keys, text).next().is_none(),
            (Key::Text(text), _) if depth == 1 => {
                !self.inner.is_empty() && !self.inner.contains(&text.as_str())
            }
            _ => false,
        }
    }

    /// Reads the value of a key, unless it is `absent`, and adds it to the map.
    fn entry(
        &mut self,
        map: &mut Map<String, Value>,
        key: Key,
        mark: Mark,
        absent: bool,
        place: AllowedNodes,
        depth: usize,
    ) -> Result<(), Error> {
        let kept = self.keep;
        match (&key, self.keys) {
            (Key::Text(text), Some(keys)) if depth == 0 => {
                self.keep = below(keys, text).next().is_some();
                self.inner.extend(below(keys, text).filter_map(|rest| rest.strip_prefix('.')));
            }
            (Key::Text(text), _) if depth == 1 && !self.inner.is_empty() => {
                self.keep &= self.inner.contains(&text.as_str());
            }
            // The type of the value matters.
            (Key::Merge, _) => self.keep = true,
            _ => {}
        }
        self.note_line(&key, mark, depth);
        let aliased = !absent && self.scanner.peek()?.0 == Kind::Alias;
        let value = if absent { self.nothing(mark)? } else { self.node(place, depth + 1)? };
        match key {
            Key::Text(key) if self.keep => {
                map.insert(key, value);
            }
            Key::Merge => self.merge(map, value, aliased, mark),
            Key::Null(mark) => {
                // The message shows the value.
                self.gave_up |= self.keys.is_some();
                let (words, go) = resolve::null_key(&value);
                self.note(mark, words, go);
            }
            Key::Text(_) | Key::Wrong => {}
        }
        self.keep = kept;
        if depth == 0 {
            self.inner.clear();
        }
        Ok(())
    }

    fn open_map(&mut self, depth: usize) {
        if let Some(lines) = &mut self.lines {
            lines.truncate(depth);
            lines.resize_with(depth + 1, SortedMap::new);
        }
    }

    /// Records the line of a key, and whether its map has the key already.
    fn note_line(&mut self, key: &Key, mark: Mark, depth: usize) {
        let (Key::Text(key), Some(lines)) = (key, &mut self.lines) else { return };
        let first = lines.get_mut(depth).and_then(|lines| lines.insert(key.clone(), mark.line));
        if let Some(first) = first {
            self.repeated.push(Repeated { key: key.clone(), lines: (first + 1, mark.line + 1) });
        }
    }

    /// Merges a map: its entries overwrite those that exist already; of a list, the first map wins.
    fn merge(&mut self, map: &mut Map<String, Value>, value: Value, aliased: bool, mark: Mark) {
        let maps = match value {
            Value::Array(list) if !aliased => list,
            value => vec![value],
        };
        for other in maps.into_iter().rev() {
            let Value::Object(other) = other else {
                let message = "map merge requires map or sequence of maps as the value";
                self.note(mark, (message.into(), None), Go::Decode);
                return;
            };
            map.extend(other);
        }
    }

    pub(super) fn key(&mut self, place: AllowedNodes, depth: usize) -> Result<Key, Error> {
        let (mut kind, mark) = self.scanner.peek()?;
        if kind == Kind::Plain || kind == Kind::Quoted {
            self.count(1, mark)?;
            let Token { text, .. } = self.scanner.take();
            return Ok(self.scalar_key(ScalarText::new(text, None, kind == Kind::Plain), mark));
        }
        let kept = std::mem::replace(&mut self.keep, true);
        let value = match kind {
            Kind::Anchor | Kind::Tag => {
                let properties = self.properties(kind, mark)?;
                kind = self.scanner.peek()?.0;
                let scalar = kind == Kind::Plain || kind == Kind::Quoted;
                if scalar && (properties.anchor.is_none() || self.scanner.is_next("<<")) {
                    self.count(1, mark)?;
                    let Token { text, .. } = self.scanner.take();
                    self.keep = kept;
                    let text = ScalarText::new(text, properties.tag, kind == Kind::Plain);
                    return Ok(self.scalar_key(text, mark));
                }
                self.content(properties, place, depth)?
            }
            _ => self.node(place, depth)?,
        };
        self.keep = kept;
        Ok(self.resolved(resolve::key(value), mark))
    }

    fn scalar_key(&mut self, text: ScalarText<'_>, mark: Mark) -> Key {
        if text.is_merge() { Key::Merge } else { self.resolved(resolve::scalar_key(text, self.keep), mark) }
    }

    fn resolved(&mut self, key: Result<Option<String>, resolve::ResolveProblem>, mark: Mark) -> Key {
        match key {
            Ok(Some(text)) => Key::Text(text),
            Ok(None) => Key::Null(mark),
            Err((words, go)) => {
                self.note(mark, words, go);
                Key::Wrong
            }
        }
    }

    pub(super) fn no_key(&mut self, mark: Mark) -> Result<Key, Error> {
        self.nothing(mark).map(|_| Key::Null(mark))
    }

    pub(super) fn nothing(&mut self, mark: Mark) -> Result<Value, Error> {
        self.count(1, mark)?;
        Ok(Value::Null)
    }
}
