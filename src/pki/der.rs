//! The little of DER (X.690) that a certificate request is written with.

/// Universal and context tags.
pub(super) const INTEGER: u8 = 0x02;
pub(super) const BIT_STRING: u8 = 0x03;
pub(super) const OCTET_STRING: u8 = 0x04;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const PRINTABLE_STRING: u8 = 0x13;
pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;

/// A value behind its tag and length.
pub(super) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    match (significant, u8::try_from(significant.len())) {
        ([], _) => out.push(0),
        ([short @ 0..=0x7f], _) => out.push(*short),
        // A length has at most eight bytes.
        (long, count) => {
            out.push(0x80 | count.unwrap_or(0));
            out.extend_from_slice(long);
        }
    }
    out.extend_from_slice(content);
    out
}

/// Values one after the other within one of this tag.
pub(super) fn all(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    value(tag, &parts.concat())
}

/// A SET OF: its parts stand in the order of their bytes.
pub(super) fn set_of(mut parts: Vec<Vec<u8>>) -> Vec<u8> {
    parts.sort();
    value(SET, &parts.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

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
            let made = value(OCTET_STRING, &vec![7; bytes]);
            assert_eq!((&made[..head.len()], made.len()), (head, head.len() + bytes));
        }
    }

    #[test]
    fn sets_are_sorted() {
        let parts = vec![value(UTF8_STRING, b"bb"), value(UTF8_STRING, b"a"), value(UTF8_STRING, b"ba")];
        assert_eq!(set_of(parts), b"\x31\x0b\x0c\x01a\x0c\x02ba\x0c\x02bb");
    }
}
