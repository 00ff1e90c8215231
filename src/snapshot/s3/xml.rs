//! The subset of XML in S3's answers: elements, text and entities. A text that is not exactly one whole document of this
//! kind has no elements at all: what lost its end, or anything in the middle, must not look like a shorter answer.

use std::str::Chars;

/// Elements of S3's answers do not nest deeper.
const DEPTH_MAX: usize = 8;
/// The longest entity with its semicolon: `#x10FFFF;`.
const ENTITY_BYTES_MAX: usize = 9;

/// An element.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Element {
    pub(crate) name: String,
    /// The text directly in it.
    pub(crate) text: String,
    /// The elements directly in it.
    pub(crate) children: Vec<Element>,
}

impl Element {
    /// The children with that name, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The text of the only child with that name. `None` if there is none, if there are several, or if it has elements.
    pub fn only(&self, name: &str) -> Option<&str> {
        let mut all = self.children.iter().filter(|child| child.name == name);
        let first = all.next().filter(|first| first.children.is_empty())?;
        all.next().is_none().then_some(first.text.as_str())
    }
}

/// The root of a document. `None` for anything else.
pub fn parse(text: &str) -> Option<Element> {
    let mut rest = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut open: Vec<Element> = Vec::new();
    let mut root = None;
    loop {
        let Some((before, behind)) = rest.split_once('<') else {
            return root.filter(|_| open.is_empty() && is_blank(rest));
        };
        match open.last_mut() {
            Some(element) => element.text += &unescape(before)?,
            None => is_blank(before).then_some(())?,
        }
        rest = if let Some(hint) = behind.strip_prefix('?') {
            hint.split_once("?>")?.1
        } else if let Some(comment) = behind.strip_prefix("!--") {
            comment.split_once("-->")?.1
        } else if let Some(end) = behind.strip_prefix('/') {
            let (name, after) = end.split_once('>')?;
            let element = open.pop().filter(|element| element.name == name.trim_end())?;
            put(element, &mut open, &mut root)?;
            after
        } else {
            let (name, is_empty, after) = tag(behind)?;
            let element = Element { name: name.to_owned(), ..Element::default() };
            if is_empty {
                put(element, &mut open, &mut root)?;
            } else {
                (open.len() < DEPTH_MAX).then(|| open.push(element))?;
            }
            after
        };
    }
}

/// Adds a finished element to the one around it. There is only one without another around it.
fn put(element: Element, open: &mut [Element], root: &mut Option<Element>) -> Option<()> {
    match open.last_mut() {
        Some(outer) => outer.children.push(element),
        None if root.is_none() => *root = Some(element),
        None => return None,
    }
    Some(())
}

/// The name in a start tag, whether it is also the end of its element, and what follows.
fn tag(text: &str) -> Option<(&str, bool, &str)> {
    let (name, mut rest) = word(text)?;
    loop {
        let next = rest.trim_start();
        if let Some(after) = next.strip_prefix("/>") {
            return Some((name, true, after));
        }
        if let Some(after) = next.strip_prefix('>') {
            return Some((name, false, after));
        }
        // An attribute follows a space.
        let (_, value) = (next.len() < rest.len()).then(|| word(next))??;
        let value = value.strip_prefix('=')?;
        let quote = value.chars().next().filter(|quote| matches!(quote, '"' | '\''))?;
        rest = value.get(1..)?.split_once(quote)?.1;
    }
}

/// A name at the start of a text, and what follows.
fn word(text: &str) -> Option<(&str, &str)> {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    let end = text.find(|c| !is_inner(c)).unwrap_or(text.len());
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_').then(|| text.split_at(end))
}

fn is_blank(text: &str) -> bool {
    text.chars().all(|c| matches!(c, ' ' | '\t' | '\r' | '\n'))
}

/// Text, escaped for an element.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn unescape(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        out.push_str(before);
        let end = behind.bytes().take(ENTITY_BYTES_MAX).position(|byte| byte == b';')?;
        out.push(character(behind.get(..end)?)?);
        rest = behind.get(end + 1..)?;
    }
    Some(out + rest)
}

fn character(entity: &str) -> Option<char> {
    match entity {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        _ => {
            let number = entity.strip_prefix('#')?;
            let is_number = |digits: &str, radix| {
                let mut all: Chars<'_> = digits.chars();
                !digits.is_empty() && all.all(|c| c.is_digit(radix))
            };
            let (digits, radix) = number.strip_prefix(['x', 'X']).map_or((number, 10), |digits| (digits, 16));
            let code = is_number(digits, radix).then(|| u32::from_str_radix(digits, radix).ok())??;
            char::from_u32(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_its_elements_and_texts() {
        let list = "\u{feff}<?xml version=\"1.0\"?>\n<!-- <x> --><List xmlns=\"http://s3/\" a='>'>\n<KeyCount>2</KeyCount>\
            <Contents><Key>a&amp;b&#x2F;&#99;</Key><Size>7</Size></Contents><Contents ><Key> x </Key><Size >8</Size >\
            </Contents><Contents/><Empty /><IsTruncated>true</IsTruncated></List>\n";
        let root = parse(list).unwrap();
        assert_eq!((root.name.as_str(), root.text.as_str()), ("List", "\n"));
        let found: Vec<_> =
            root.all("Contents").map(|entry| (entry.only("Key"), entry.only("Size"))).collect();
        assert_eq!(found, [(Some("a&b/c"), Some("7")), (Some(" x "), Some("8")), (None, None)]);
        assert_eq!(root.only("IsTruncated"), Some("true"));
        assert_eq!((root.only("Empty"), root.only("Key"), root.only("Contents")), (Some(""), None, None));
        assert_eq!(escape("\"a\"<&>"), "&quot;a&quot;&lt;&amp;&gt;");
    }

    #[test]
    fn anything_else_is_no_document() {
        let table = [
            "",
            " ",
            "x",
            "<",
            "<a",
            "<a>",
            "<a>x",
            "<a>x</",
            "<a>x</a",
            "<a>x</b>",
            "<a>x</a>x",
            "x<a>x</a>",
            "<a/><b/>",
            "<a></a></a>",
            "</a>",
            "<a><b></a></b>",
            "<a><b></a>",
            "< a/>",
            "<1/>",
            "<a b/>",
            "<a b=c/>",
            "<a b=\"c/>",
            "<ab=\"c\"/>",
            "<a \u{fffd}/>",
            "<a>&;</a>",
            "<a>&x;</a>",
            "<a>&amp</a>",
            "<a>&#xD800;</a>",
            "<a>&#+1;</a>",
            "<a>&#99999999;</a>",
            "<!DOCTYPE html><a/>",
            "<a><![CDATA[x]]></a>",
            "<?xml <a/>",
            "<!-- <a/>",
        ];
        for text in table {
            assert_eq!(parse(text), None, "{text}");
        }
        let nested = |depth: usize| "<a>".repeat(depth) + &"</a>".repeat(depth);
        assert!(parse(&nested(DEPTH_MAX)).is_some() && parse(&nested(DEPTH_MAX + 1)).is_none());
        // The time is linear in the length.
        assert_eq!(parse(&"<a>".repeat(400_000)), None);
        assert_eq!(parse(&("<a ".repeat(400_000) + ">")), None);
        assert_eq!(parse(&format!("<a>{}</a>", "&".repeat(400_000))), None);
        assert_eq!(parse(&format!("<a>{}</a>", "<b/>".repeat(100_000))).unwrap().children.len(), 100_000);
    }
}
