//! The little DER (X.690) that keys and certificates need.

pub(super) const BOOLEAN_TRUE: [u8; 3] = [0x01, 0x01, 0xff];
pub(super) const NULL: [u8; 2] = [0x05, 0x00];
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OID: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const PRINTABLE_STRING: u8 = 0x13;
pub(super) const UTC_TIME: u8 = 0x17;
pub(super) const GENERALIZED_TIME: u8 = 0x18;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// One element: its tag, its length, its content.
pub(super) fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let len = content.len().to_be_bytes();
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => out.push(short),
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
pub(super) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    element(SEQUENCE, &parts.concat())
}

/// A number that is not negative, from its bytes.
pub(super) fn unsigned(bytes: &[u8]) -> Vec<u8> {
    let digits = &bytes[bytes.iter().take_while(|b| **b == 0).count()..];
    match digits.first() {
        Some(first) if *first < 0x80 => element(INTEGER, digits),
        _ => element(INTEGER, &[&[0], digits].concat()),
    }
}

/// A string of whole bytes.
pub(super) fn bit_string(bytes: &[u8]) -> Vec<u8> {
    element(BIT_STRING, &[&[0], bytes].concat())
}

/// Reads elements one after the other.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next element: tag and content. `None` at the end, and where there is no element.
    pub(super) fn next(&mut self) -> Option<(u8, &'a [u8])> {
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
    pub(super) fn read(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let (found, content) = ahead.next()?;
        (found == tag).then(|| {
            *self = ahead;
            content
        })
    }

    /// A reader of what the next element holds, if it has this tag.
    pub(super) fn enter(&mut self, tag: u8) -> Option<Self> {
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
        let mut outer = Reader::new(&text);
        let mut inner = outer.enter(SEQUENCE).unwrap();
        assert!(inner.read(OCTET_STRING).is_none());
        assert_eq!(inner.read(INTEGER), Some(&[0, 0x80][..]));
        assert_eq!(inner.next(), Some((INTEGER, &[0][..])));
        assert_eq!(inner.read(OCTET_STRING), Some(&long[..]));
        assert_eq!((inner.next(), outer.next()), (None, None));
    }

    #[test]
    fn broken_lengths_are_no_elements() {
        for bytes in
            [&[0x30][..], &[0x30, 5, 1], &[0x30, 0x80], &[4, 0x84, 0xff, 0xff, 0xff, 0xff], &[4, 0x82, 1]]
        {
            assert_eq!(Reader::new(bytes).next(), None, "{bytes:?}");
        }
    }
}
