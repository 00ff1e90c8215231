//! Bytes as hexadecimal digits.

/// Each byte as two lower-case digits.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default();
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_two_digits() {
        assert_eq!(encode(&[]), "");
        assert_eq!(encode(&[0, 1, 0x0a, 0x10, 0x7f, 0xff]), "00010a107fff");
    }
}
