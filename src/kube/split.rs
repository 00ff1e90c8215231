//! Cuts the text of a list into its objects while it arrives. Pure. A JSON reader would keep a text of any length in
//! memory; here each object has a limit. One that exceeds it is skipped without being kept, except for its start, which
//! usually says what it is. No recursion, so the text may be nested to any depth.

use crate::limits;

/// What gets the objects of a list.
pub(super) trait Sink {
    /// Why the list cannot be read.
    type Error;

    /// The object that is being read has become long.
    fn lengthens(&mut self) -> Result<(), Self::Error>;

    /// The text of an object.
    fn object(&mut self, text: &[u8]) -> Result<(), Self::Error>;

    /// An object was skipped. What is known of it: an object that begins like it; `None` if that would be empty.
    fn skipped(&mut self, head: Option<&[u8]>) -> Result<(), Self::Error>;
}

/// Why the reading ends.
#[derive(Debug)]
pub(super) enum Broken<E> {
    /// The sink refuses to continue.
    Sink(E),
    /// The text is not a list.
    Text(&'static str),
}

/// The position in the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ListPosition {
    /// Outside of the objects.
    Rest,
    /// Where an object begins, or where the list may end.
    First,
    /// Where an object begins.
    Next,
    Within,
    /// In an object that is too long.
    Beyond,
    After,
}

/// A list that is being read.
#[derive(Debug)]
pub(super) struct Splitter {
    object_bytes_max: usize,
    place: ListPosition,
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// The text without its objects.
    rest: Vec<u8>,
    /// Where the last string of the outermost map begins and ends in `rest`.
    last_text: (usize, usize),
    /// The value that follows is that of the key `items`.
    at_items: bool,
    object: Vec<u8>,
    /// What is known of an object that is too long.
    head: Option<Vec<u8>>,
}

impl Splitter {
    pub(super) const fn new(object_bytes_max: usize) -> Self {
        Self {
            object_bytes_max,
            place: ListPosition::Rest,
            depth: 0,
            in_text: false,
            escaped: false,
            rest: Vec::new(),
            last_text: (0, 0),
            at_items: false,
            object: Vec::new(),
            head: None,
        }
    }

    /// Reads on. Errors: the text is not a list, or the sink refuses to continue.
    pub(super) fn feed<S: Sink>(&mut self, mut bytes: &[u8], sink: &mut S) -> Result<(), Broken<S::Error>> {
        while let Some(byte) = bytes.first() {
            bytes = match self.place {
                ListPosition::Rest => {
                    self.take_rest(*byte).map_err(Broken::Text)?;
                    &bytes[1..]
                }
                ListPosition::Within | ListPosition::Beyond => {
                    self.take_object(bytes, sink).map_err(Broken::Sink)?
                }
                ListPosition::First | ListPosition::Next | ListPosition::After => {
                    if self.take_between(*byte).map_err(Broken::Text)? { bytes } else { &bytes[1..] }
                }
            };
        }
        Ok(())
    }

    /// The end of the text: a map with an empty list of items. Errors: something is missing.
    pub(super) fn finish(self) -> Result<Vec<u8>, &'static str> {
        if self.place != ListPosition::Rest || self.depth != 0 || self.rest.is_empty() {
            return Err("it ends too early");
        }
        Ok(self.rest)
    }

    fn take_rest(&mut self, byte: u8) -> Result<(), &'static str> {
        if !self.in_text && byte.is_ascii_whitespace() {
            // Two numbers must not become one.
            if self.rest.last().is_some_and(|last| !b",:[]{}\" ".contains(last)) {
                self.rest.push(b' ');
            }
            return Ok(());
        }
        if self.rest.is_empty() && byte != b'{' {
            return Err("it is not a map");
        }
        if self.rest.len() >= limits::LIST_REST_BYTES_MAX {
            return Err("there is too much beside its items");
        }
        self.rest.push(byte);
        if self.in_text {
            self.step_text(byte);
            if !self.in_text && self.depth == 1 {
                self.last_text.1 = self.rest.len();
            }
            return Ok(());
        }
        let is_outermost = self.depth == 1;
        match byte {
            b'"' => {
                self.in_text = true;
                if is_outermost {
                    self.last_text = (self.rest.len() - 1, self.rest.len());
                }
            }
            b':' if is_outermost => {
                let (begin, end) = self.last_text;
                self.at_items = &self.rest[begin..end] == b"\"items\"";
            }
            b'[' if is_outermost && self.at_items && self.rest.ends_with(b"\"items\":[") => {
                (self.place, self.at_items) = (ListPosition::First, false);
            }
            b'[' | b'{' => self.depth += 1,
            b']' | b'}' => {
                self.depth = self.depth.checked_sub(1).ok_or("it has too many closing brackets")?;
            }
            _ => {}
        }
        Ok(())
    }

    fn step_text(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => self.in_text = false,
            _ => {}
        }
    }

    /// Returns whether the byte begins an object, and is not taken.
    fn take_between(&mut self, byte: u8) -> Result<bool, &'static str> {
        self.place = match (self.place, byte) {
            (_, b' ' | b'\n' | b'\r' | b'\t') => return Ok(false),
            (ListPosition::First | ListPosition::Next, b'{') => {
                // Its depth counts from here.
                self.depth = 0;
                self.place = ListPosition::Within;
                return Ok(true);
            }
            (ListPosition::First | ListPosition::After, b']') => {
                self.rest.push(byte);
                self.depth = 1;
                ListPosition::Rest
            }
            (ListPosition::After, b',') => ListPosition::Next,
            _ => return Err("its items are not a list of objects"),
        };
        Ok(false)
    }

    /// Takes as much of an object as there is; returns what follows it.
    fn take_object<'a, S: Sink>(&mut self, bytes: &'a [u8], sink: &mut S) -> Result<&'a [u8], S::Error> {
        let end = self.find_end(bytes);
        let (own, others) = bytes.split_at(end.unwrap_or(bytes.len()));
        if self.place == ListPosition::Within {
            let before = self.object.len();
            let room = self.object_bytes_max.saturating_sub(before);
            let is_long = |len: usize| len > limits::SHORT_TEXT_BYTES_MAX;
            if own.len() > room {
                self.object.extend_from_slice(&own[..room]);
                self.head = whole_part(&std::mem::take(&mut self.object));
                self.place = ListPosition::Beyond;
            } else {
                if is_long(before + own.len()) && !is_long(before) {
                    sink.lengthens()?;
                }
                self.object.extend_from_slice(own);
            }
        }
        if end.is_some() {
            let is_whole = std::mem::replace(&mut self.place, ListPosition::After) == ListPosition::Within;
            if is_whole {
                sink.object(&self.object)?;
            } else {
                sink.skipped(self.head.take().as_deref())?;
            }
            self.object.clear();
            if self.object.capacity() > limits::SHORT_TEXT_BYTES_MAX {
                self.object = Vec::new();
            }
        }
        Ok(others)
    }

    /// The length of what belongs to the present object, if its end is there.
    fn find_end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() {
            if self.in_text && !self.escaped {
                at += bytes[at..].iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
            }
            let byte = bytes[at];
            at += 1;
            match byte {
                _ if self.in_text => self.step_text(byte),
                b'"' => self.in_text = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

/// The longest part of the start of an object that can be read: up to the last comma, with all brackets closed.
pub(super) fn whole_part(start: &[u8]) -> Option<Vec<u8>> {
    // One bit for each open bracket, the innermost is the lowest: whether it begins a list.
    let (mut lists, mut depth, mut in_text, mut escaped) = (0_u128, 0_u32, false, false);
    let mut found = None;
    for (at, byte) in start.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_text,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'{' | b'[' if depth == u128::BITS => break,
            b'{' | b'[' => {
                (lists, depth) = (lists << 1 | u128::from(*byte == b'['), depth + 1);
            }
            b'}' | b']' => (lists, depth) = (lists >> 1, depth.saturating_sub(1)),
            b',' if depth > 0 => found = Some((at, lists, depth)),
            _ => {}
        }
    }
    let (at, mut lists, depth) = found?;
    let mut text = start[..at].to_vec();
    for _ in 0..depth {
        text.push(if lists & 1 == 1 { b']' } else { b'}' });
        lists >>= 1;
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use serde_json::{Value, json};

    use super::*;

    #[derive(Default)]
    struct SeenItems(Vec<String>);

    impl Sink for SeenItems {
        type Error = Infallible;

        fn lengthens(&mut self) -> Result<(), Infallible> {
            self.0.push("long".to_owned());
            Ok(())
        }

        fn object(&mut self, text: &[u8]) -> Result<(), Infallible> {
            self.0.push(String::from_utf8(text.to_vec()).unwrap());
            Ok(())
        }

        fn skipped(&mut self, head: Option<&[u8]>) -> Result<(), Infallible> {
            let head = head.map(|head| String::from_utf8(head.to_vec()).unwrap());
            self.0.push(format!("skipped {}", head.unwrap_or_default()));
            Ok(())
        }
    }

    /// The objects, and the rest or why there is none.
    fn split<'a>(
        pieces: impl Iterator<Item = &'a [u8]>,
        max: usize,
    ) -> (Vec<String>, Result<String, String>) {
        let (mut splitter, mut seen) = (Splitter::new(max), SeenItems::default());
        for piece in pieces {
            if let Err(Broken::Text(why)) = splitter.feed(piece, &mut seen) {
                return (seen.0, Err(why.to_owned()));
            }
        }
        let rest = splitter.finish().map(|rest| String::from_utf8(rest).unwrap());
        (seen.0, rest.map_err(str::to_owned))
    }

    fn whole(text: &str, max: usize) -> (Vec<String>, Result<String, String>) {
        split([text.as_bytes()].into_iter(), max)
    }

    #[test]
    fn a_list_becomes_its_objects_and_the_rest() {
        let none: &[&str] = &[];
        let table: &[(&str, &[&str], Result<&str, &str>)] = &[
            (r#"{"items":[]}"#, none, Ok(r#"{"items":[]}"#)),
            (r#"{"items":null,"metadata":{}}"#, none, Ok(r#"{"items":null,"metadata":{}}"#)),
            (
                "{\"kind\" : \"L\" , \"items\" : [ {\"a\":1} ,\n{} ] ,\t\"metadata\": {\"continue\":\"a b\"}} \n",
                &["{\"a\":1}", "{}"],
                Ok(r#"{"kind":"L","items":[],"metadata":{"continue":"a b"}}"#),
            ),
            (
                r#"{"items":[{"a":"}],{\"","b":[{"c":"\\"}]},{"d":"[{"}]}"#,
                &[r#"{"a":"}],{\"","b":[{"c":"\\"}]}"#, r#"{"d":"[{"}"#],
                Ok(r#"{"items":[]}"#),
            ),
            // Only the items of the list itself.
            (
                r#"{"metadata":{"items":[{"a":1}]},"x":["items",[{}]],"items":[{}]}"#,
                &["{}"],
                Ok(r#"{"metadata":{"items":[{"a":1}]},"x":["items",[{}]],"items":[]}"#),
            ),
            (r#"{"a":"items","b":[{}]}"#, none, Ok(r#"{"a":"items","b":[{}]}"#)),
            (r#"{"items":1 2}"#, none, Ok(r#"{"items":1 2}"#)),
            (r#"{"items":[1]}"#, none, Err("its items are not a list of objects")),
            (r#"{"items":[{},]}"#, &["{}"], Err("its items are not a list of objects")),
            (r#"{"items":[{}{}]}"#, &["{}"], Err("its items are not a list of objects")),
            (r#"{"items":[,{}]}"#, none, Err("its items are not a list of objects")),
            ("[]", none, Err("it is not a map")),
            ("<html>", none, Err("it is not a map")),
            ("", none, Err("it ends too early")),
            ("{}}", none, Err("it has too many closing brackets")),
        ];
        for (text, objects, rest) in table {
            let expected: Vec<String> = objects.iter().map(|object| (*object).to_owned()).collect();
            let rest = rest.map(str::to_owned).map_err(str::to_owned);
            assert_eq!(whole(text, 100), (expected, rest), "{text}");
        }
        let much = format!(r#"{{"x":"{}","items":[]}}"#, "x".repeat(limits::LIST_REST_BYTES_MAX));
        assert_eq!(whole(&much, 100).1.unwrap_err(), "there is too much beside its items");
    }

    #[test]
    fn an_object_that_is_too_long_is_skipped_and_known_by_its_start() {
        let long = "x".repeat(90);
        let table = [
            (
                format!(r#"{{"metadata":{{"name":"a","namespace":"b","labels":{{"c":"{long}"}}}}}}"#),
                r#"skipped {"metadata":{"name":"a","namespace":"b"}}"#,
            ),
            (
                format!(r#"{{"metadata":{{"name":"a"}},"data":[{{"c":1}},{{"{long}":2}}]}}"#),
                r#"skipped {"metadata":{"name":"a"},"data":[{"c":1}]}"#,
            ),
            (format!(r#"{{"data":"{long}","metadata":{{"name":"a"}}}}"#), "skipped "),
            (format!(r#"{{"data":"{long}{long}{long}\"}}]"}}"#), "skipped "),
        ];
        for (object, head) in table {
            let text = format!(r#"{{"items":[{{"a":1}},{object},{{"b":2}}],"metadata":{{}}}}"#);
            let (seen, rest) = whole(&text, 80);
            assert_eq!(seen, [r#"{"a":1}"#, head, r#"{"b":2}"#], "{object}");
            assert_eq!(rest.unwrap(), r#"{"items":[],"metadata":{}}"#);
        }
        // The limit is exact.
        let text = r#"{"items":[{"a":1}]}"#;
        assert_eq!(whole(text, 7).0, [r#"{"a":1}"#]);
        assert_eq!(whole(text, 6).0, ["skipped "]);
    }

    #[test]
    fn the_whole_part_of_a_start_is_an_object() {
        let text = r#"{"a":{"b":[1,{"c":",]}\",","d":null},[true,[]]],"e":{}},"f":[{"g":1},{"h":2}]}"#;
        let all: Value = serde_json::from_str(text).unwrap();
        let mut last = 0;
        for end in 0..text.len() {
            let Some(part) = whole_part(&text.as_bytes()[..end]) else { continue };
            let value: Value = serde_json::from_slice(&part).unwrap();
            assert_eq!(value["a"]["b"][0], all["a"]["b"][0], "{end}");
            assert!(part.len() + 4 > last, "more text never tells less");
            last = part.len();
        }
        assert_eq!(whole_part(br#"{"a":1,"#).unwrap(), br#"{"a":1}"#);
        assert_eq!(whole_part(&[b'['; 500]), None);
        let deep = format!("{}1,{}", "[".repeat(128), "[".repeat(500));
        assert_eq!(whole_part(deep.as_bytes()).unwrap().len(), 128 + 1 + 128);
    }

    #[test]
    fn a_long_object_is_announced_once() {
        let long = json!({"a": "x".repeat(limits::SHORT_TEXT_BYTES_MAX)}).to_string();
        let text = format!(r#"{{"items":[{{}},{long},{{}},{long}]}}"#);
        for size in [1_000, 70_000, text.len()] {
            let (seen, _) = split(text.as_bytes().chunks(size), 1 << 20);
            let told: Vec<&str> = seen.iter().map(|seen| seen.get(..4).unwrap_or(seen)).collect();
            assert_eq!(told, ["{}", "long", &long[..4], "{}", "long", &long[..4]], "{size}");
        }
    }

    /// Random lists, as a server may write them.
    fn list(random: &mut impl FnMut(usize) -> usize) -> String {
        fn value(random: &mut impl FnMut(usize) -> usize, depth: usize) -> Value {
            const TEXTS: [&str; 8] = ["", "items", "\"", "\\", "}]", "{[", "ä\n,:", "\u{1}\\\""];
            match random(if depth > 4 { 4 } else { 6 }) {
                0 => json!(null),
                1 => json!(random(1_000)),
                2 | 3 => json!(TEXTS[random(TEXTS.len())].repeat(random(4))),
                4 => (0..random(4)).map(|_| value(random, depth + 1)).collect(),
                _ => object(random, depth + 1),
            }
        }
        fn object(random: &mut impl FnMut(usize) -> usize, depth: usize) -> Value {
            let keys = ["items", "a", "\"", "\\", "metadata"];
            let entries = (0..random(4)).map(|n| (keys[n].to_owned(), value(random, depth)));
            Value::Object(entries.collect())
        }
        let items: Vec<Value> = (0..random(5)).map(|_| object(random, 0)).collect();
        let all = json!({"kind": "L", "items": items, "metadata": object(random, 0), "x": value(random, 0)});
        if random(2) == 0 { all.to_string() } else { serde_json::to_string_pretty(&all).unwrap() }
    }

    #[test]
    fn any_split_gives_the_same_objects_and_any_cut_is_an_error() {
        // A generator of Marsaglia: the same lists on each run.
        let mut state = 88_172_645_463_325_252_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % u64::try_from(below).unwrap()).unwrap()
        };
        for _ in 0..300 {
            let text = list(&mut random);
            let parsed: Value = serde_json::from_str(&text).unwrap();
            let max = [20, 60, 10_000][random(3)];
            let (seen, rest) = whole(&text, max);
            assert_eq!(seen.len(), parsed["items"].as_array().unwrap().len(), "{text}");
            for (seen, item) in seen.iter().zip(parsed["items"].as_array().unwrap()) {
                match seen.strip_prefix("skipped ") {
                    None => assert_eq!(&serde_json::from_str::<Value>(seen).unwrap(), item, "{text}"),
                    Some("") => {}
                    Some(head) => assert!(serde_json::from_str::<Value>(head).unwrap().is_object(), "{text}"),
                }
            }
            let mut expected = parsed.clone();
            expected["items"] = json!([]);
            let rest = rest.unwrap();
            assert_eq!(serde_json::from_str::<Value>(&rest).unwrap(), expected, "{text}");
            let mut pieces = Vec::new();
            let mut left = text.as_bytes();
            while !left.is_empty() {
                let (piece, others) = left.split_at((1 + random(7)).min(left.len()));
                pieces.push(piece);
                left = others;
            }
            assert_eq!(split(pieces.into_iter(), max), (seen, Ok(rest)), "{text}");
            let end = text.trim_end().len();
            for cut in 0..end {
                assert!(split([&text.as_bytes()[..cut]].into_iter(), max).1.is_err(), "{cut} of {text}");
            }
        }
    }
}
