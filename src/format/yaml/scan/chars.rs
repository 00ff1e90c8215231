//! The meaning of single bytes for the scanner.

/// A blank: space or tab.
pub(super) const BLANK: u8 = 1;
/// The first byte of a possible line break: CR, LF, or one of the three breaks beyond ASCII.
pub(super) const BREAK: u8 = 2;
/// Cannot begin plain text.
pub(super) const INDICATOR: u8 = 4;
/// Ends plain text within brackets.
pub(super) const FLOW: u8 = 8;
/// May end plain text: `:`.
pub(super) const COLON: u8 = 16;
/// Allowed in the names of anchors: letters, digits, `-` and `_`.
pub(super) const NAME: u8 = 32;
/// Allowed in tags besides those.
pub(super) const URI: u8 = 64;
/// Has a meaning in quoted text.
pub(super) const QUOTED: u8 = 128;

const CLASSES: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0; 256];
    mark(&mut table, b" \t", BLANK);
    mark(&mut table, b"\r\n\xc2\xe2", BREAK);
    mark(&mut table, b"-?:,[]{}#&*!|>'\"%@`", INDICATOR);
    mark(&mut table, b",?[]{}", FLOW);
    mark(&mut table, b":", COLON);
    mark(&mut table, b"-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", NAME);
    mark(&mut table, b";/?:@&=+$,.!~*'()[]%", URI);
    mark(&mut table, b"'\"\\", QUOTED);
    table
}

const fn mark(table: &mut [u8; 256], bytes: &[u8], class: u8) {
    let mut i = 0;
    while i < bytes.len() {
        table[bytes[i] as usize] |= class;
        i += 1;
    }
}

/// Whether a byte belongs to one of the classes.
#[inline(always)] // the innermost of all loops, and what is shipped is built for size
pub(super) fn is(byte: u8, classes: u8) -> bool {
    CLASSES[usize::from(byte)] & classes != 0
}

/// The length in bytes of the line break at the start of a text; 0 if there is none.
pub(super) fn break_len(bytes: &[u8]) -> usize {
    match bytes {
        [b'\r', b'\n', ..] => 2,
        [b'\r' | b'\n', ..] => 1,
        [0xc2, 0x85, ..] => 2,
        [0xe2, 0x80, 0xa8 | 0xa9, ..] => 3,
        _ => 0,
    }
}

/// The position of the first forbidden character: controls, and the last two of the basic plane.
pub(super) fn forbidden(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        if let Some(word) = bytes.get(at..).and_then(|rest| rest.first_chunk())
            && is_plain(u64::from_ne_bytes(*word))
        {
            at += 8;
            continue;
        }
        let end = bytes.len().min(at + 8);
        if let Some(i) = (at..end).find(|i| is_forbidden(&bytes[*i..])) {
            return Some(i);
        }
        at = end;
    }
    None
}

/// Whether eight bytes are all printable ASCII or line feeds.
fn is_plain(word: u64) -> bool {
    const TOP: u64 = each(0x80);
    // With its top bit set, no byte borrows from the next one; the bit stays set unless the byte was smaller.
    let printable = (word | TOP) - each(b' ');
    let other_than = |byte| ((word ^ each(byte)) | TOP) - each(1);
    !word & (printable | !other_than(b'\n')) & other_than(0x7f) & TOP == TOP
}

const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

fn is_forbidden(bytes: &[u8]) -> bool {
    match bytes {
        [b'\t' | b'\n' | b'\r' | 0xc2, 0x85, ..] => false,
        [0xc2, second, ..] => *second < 0xa0,
        [0xef, 0xbf, 0xbe | 0xbf, ..] => true,
        [b'\t' | b'\n' | b'\r', ..] => false,
        [first, ..] => *first < 0x20 || *first == 0x7f,
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_found() {
        for (text, at) in [
            ("a: b\n\tc\r\n", None),
            ("\u{85}\u{a0}\u{d7ff}\u{e000}\u{fffd}\u{feff}\u{10ffff}", None),
            ("abcdefgh\u{7f}", Some(8)),
            ("abcdefg\u{1}h", Some(7)),
            ("ä\n\u{0}", Some(3)),
            ("1234567\u{84}", Some(7)),
            ("1234567\u{9f}", Some(7)),
            ("123456\u{fffe}", Some(6)),
            ("\u{ffff}", Some(0)),
            ("\t\u{1b}", Some(1)),
        ] {
            assert_eq!(forbidden(text), at, "{text:?}");
        }
    }
}
