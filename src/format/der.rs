//! The subset of DER (X.690) that keys, certificates and certificate requests need.

/// `TRUE`, as a complete element.
pub(crate) const BOOLEAN_TRUE: [u8; 3] = [0x01, 0x01, 0xff];
/// `NULL`, as a complete element.
pub(crate) const NULL: [u8; 2] = [0x05, 0x00];
/// Tag of a number.
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
/// Tag of bytes.
pub(crate) const OCTET_STRING: u8 = 0x04;
/// Tag of an object identifier.
pub(crate) const OBJECT_IDENTIFIER: u8 = 0x06;
/// Tag of a text.
pub(crate) const UTF8_STRING: u8 = 0x0c;
/// Tag of a text with a restricted character set.
pub(crate) const PRINTABLE_STRING: u8 = 0x13;
/// Tag of a time with two digits of the year.
pub(crate) const UTC_TIME: u8 = 0x17;
/// Tag of a time with four digits of the year.
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
/// Tag of a sequence.
pub(crate) const SEQUENCE: u8 = 0x30;
/// Tag of a set.
pub(crate) const SET: u8 = 0x31;

/// One element: its tag, its length, its content.
pub(crate) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let len = content.len().to_be_bytes();
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => out.push(short),
        // A length has at most eight bytes.
        _ => {
            let digits = &len[len.iter().take_while(|b| **b == 0).count()..];
            out.push(0x80 | u8::try_from(digits.len()).unwrap_or(0));
            out.extend_from_slice(digits);
        }
    }
    out.extend_from_slice(content);
    out
}

/// A sequence of elements.
pub(crate) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    element(SEQUENCE, &parts.concat())
}

/// A SET OF: its parts are sorted by their bytes.
pub(crate) fn set_of(mut parts: Vec<Vec<u8>>) -> Vec<u8> {
    parts.sort();
    element(SET, &parts.concat())
}

/// An object identifier, from its content.
pub(crate) fn oid(content: &[u8]) -> Vec<u8> {
    element(OBJECT_IDENTIFIER, content)
}

/// Text of a name: a PrintableString if the characters allow it, as in Go; else a UTF8String.
pub(crate) fn text(text: &[u8]) -> Vec<u8> {
    let is_printable = |b: &u8| b.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(b);
    element(if text.iter().all(is_printable) { PRINTABLE_STRING } else { UTF8_STRING }, text)
}

/// A number that is not negative, from its bytes.
pub(crate) fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let digits = &bytes[bytes.iter().take_while(|b| **b == 0).count()..];
    match digits.first() {
        Some(first) if *first < 0x80 => element(INTEGER, digits),
        _ => element(INTEGER, &[&[0], digits].concat()),
    }
}

/// A BIT STRING of whole bytes, without unused bits.
pub(crate) fn bit_string(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes].concat())
}

/// Reads elements one after the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DerReader<'a>(&'a [u8]);

impl<'a> DerReader<'a> {
    /// A reader of consecutive elements.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next element: tag and content. `None` at the end, and where the bytes are not an element.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (tag, rest) = self.0.split_first()?;
        let (first, rest) = rest.split_first()?;
        let (len, rest) = if *first < 0x80 {
            (usize::from(*first), rest)
        } else {
            let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            if digits.is_empty() || digits.len() > 3 {
                return None;
            }
            (digits.iter().fold(0, |len, digit| len << 8 | usize::from(*digit)), rest)
        };
        let (content, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((*tag, content))
    }

    /// The content of the next element, if it has this tag.
    pub(crate) fn read(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let (found, content) = ahead.next()?;
        (found == tag).then(|| {
            *self = ahead;
            content
        })
    }

    /// A reader of the content of the next element, if it has this tag.
    pub(crate) fn enter(&mut self, tag: u8) -> Option<Self> {
        self.read(tag).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_as_they_were_written() {
        let long = vec![7; 300];
        let text = sequence(&[&unsigned(&[0, 0, 0x80]), &unsigned(&[]), &element(OCTET_STRING, &long)]);
        assert_eq!(text[..12], [0x30, 0x82, 0x01, 0x37, 2, 2, 0, 0x80, 2, 1, 0, 4]);
        let mut outer = DerReader::new(&text);
        let mut inner = outer.enter(SEQUENCE).unwrap();
        assert!(inner.read(OCTET_STRING).is_none());
        assert_eq!(inner.read(INTEGER), Some(&[0, 0x80][..]));
        assert_eq!(inner.next(), Some((INTEGER, &[0][..])));
        assert_eq!(inner.read(OCTET_STRING), Some(&long[..]));
        assert_eq!((inner.next(), outer.next()), (None, None));
    }

    #[test]
    fn lengths_are_as_short_as_can_be() {
        let table: [(usize, &[u8]); 6] = [
            (0, &[0x04, 0x00]),
            (1, &[0x04, 0x01]),
            (127, &[0x04, 0x7f]),
            (128, &[0x04, 0x81, 0x80]),
            (256, &[0x04, 0x82, 0x01, 0x00]),
            (65_536, &[0x04, 0x83, 0x01, 0x00, 0x00]),
        ];
        for (bytes, head) in table {
            let made = element(OCTET_STRING, &vec![7; bytes]);
            assert_eq!((&made[..head.len()], made.len()), (head, head.len() + bytes));
        }
    }

    #[test]
    fn sets_are_sorted() {
        let utf8 = |text: &[u8]| element(UTF8_STRING, text);
        assert_eq!(
            set_of(vec![utf8(b"bb"), utf8(b"a"), utf8(b"ba")]),
            b"\x31\x0b\x0c\x01a\x0c\x02ba\x0c\x02bb"
        );
    }

    #[test]
    fn texts_are_printable_strings_where_they_can_be() {
        for (shown, tag) in
            [("", 0x13), ("gardener.cloud:system", 0x13), ("a_b", 0x0c), ("a*", 0x0c), ("\u{e4}", 0x0c)]
        {
            assert_eq!(text(shown.as_bytes())[0], tag, "{shown}");
        }
    }

    #[test]
    fn broken_lengths_are_no_elements() {
        for bytes in
            [&[0x30][..], &[0x30, 5, 1], &[0x30, 0x80], &[4, 0x84, 0xff, 0xff, 0xff, 0xff], &[4, 0x82, 1]]
        {
            assert_eq!(DerReader::new(bytes).next(), None, "{bytes:?}");
        }
    }
}
