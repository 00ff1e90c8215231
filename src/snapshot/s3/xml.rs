//! The subset of XML in S3's answers: elements without relevant attributes, and text. A server may send anything:
//! elements that are not found count as absent.

/// The longest entity with its semicolon: `#x10FFFF;`.
const ENTITY_BYTES_MAX: usize = 9;

/// The content of each element with that name, in order. Elements of one name do not nest.
pub fn elements<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let (_, behind) = rest.split_once('<')?;
            rest = behind;
            let Some(tail) = behind.strip_prefix(name) else { continue };
            // The name may be longer, or attributes may follow.
            if !tail.starts_with(['>', ' ', '/', '\n', '\t', '\r']) {
                continue;
            }
            let attributes = tail.find('>').and_then(|end| tail.get(..end))?;
            let content = tail.get(attributes.len() + 1..).unwrap_or_default();
            if attributes.ends_with('/') {
                rest = content;
                return Some("");
            }
            let (inner, after) = split_at_end(content, name)?;
            rest = after;
            return Some(inner);
        }
    })
}

fn split_at_end<'a>(content: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    let mut from = 0;
    loop {
        let at = from + content.get(from..)?.find("</")?;
        let tail = content.get(at + 2..)?;
        match tail.strip_prefix(name) {
            Some(tail) if tail.trim_start().starts_with('>') => return Some((content.get(..at)?, tail)),
            _ => from = at + 2,
        }
    }
}

/// The text of the first element with that name.
pub fn text(of: &str, name: &str) -> Option<String> {
    elements(of, name).next().map(|content| unescape(content.trim()))
}

/// Text, escaped for an element.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('&') {
        out.push_str(before);
        let end = behind.bytes().take(ENTITY_BYTES_MAX).position(|byte| byte == b';');
        let entity = end.and_then(|end| Some((character(behind.get(..end)?)?, behind.get(end + 1..)?)));
        match entity {
            Some((character, after)) => {
                out.push(character);
                rest = after;
            }
            None => {
                out.push('&');
                rest = behind;
            }
        }
    }
    out + rest
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
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                None => number.parse().ok()?,
            };
            char::from_u32(code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_found_with_their_text() {
        let list = "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
            <KeyCount>2</KeyCount><Contents><Key>a&amp;b&#x2F;&#99;</Key><Size>7</Size></Contents>\
            <Contents><Key> x </Key><Size >8</Size ></Contents><Contents/><IsTruncated>true</IsTruncated></ListBucketResult>";
        let found: Vec<_> =
            elements(list, "Contents").map(|entry| (text(entry, "Key"), text(entry, "Size"))).collect();
        let pair = |key: &str, size: &str| (Some(key.to_owned()), Some(size.to_owned()));
        assert_eq!(found, [pair("a&b/c", "7"), pair("x", "8"), (None, None)]);
        // `KeyCount` has the prefix `Key`.
        assert_eq!(text(list, "Key").as_deref(), Some("a&b/c"));
        assert_eq!(text(list, "IsTruncated").as_deref(), Some("true"));
        assert_eq!(text(list, "NextContinuationToken"), None);
    }

    #[test]
    fn invalid_xml_has_no_elements() {
        let table = [
            "",
            "<",
            "<Key",
            "<Key>",
            "<Key>x",
            "<Key>x</",
            "<Key>x</Ke>",
            "<Key>x</Keys>",
            "</Key>",
            "<Keys>x</Keys>",
            "x<Key a=\"",
            "\u{fffd}<Key\u{fffd}>",
        ];
        for broken in table {
            assert_eq!(text(broken, "Key"), None, "{broken}");
        }
        let odd = [
            ("<Key>&;&x;&#xD800;&#99999999;&amp</Key>", "&;&x;&#xD800;&#99999999;&amp"),
            ("<Key><Key>x</Key></Key>", "<Key>x"),
        ];
        for (odd, expected) in odd {
            assert_eq!(text(odd, "Key").as_deref(), Some(expected));
        }
        assert_eq!(escape("\"a\"<&>"), "&quot;a&quot;&lt;&amp;&gt;");
        // The time is linear in the length.
        let many = "<Key>".repeat(200_000);
        assert_eq!(elements(&many, "Key").count(), 0);
        assert_eq!(elements(&("<Key".repeat(400_000) + ">"), "Key").count(), 0);
        assert_eq!(
            text(&format!("<Key>{}</Key>", "&".repeat(400_000)), "Key").map(|key| key.len()),
            Some(400_000)
        );
    }
}
