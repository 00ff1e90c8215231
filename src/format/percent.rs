//! Percent encoding in URLs (RFC 3986).

use super::hex;

/// Appends a part of a URL: allowed bytes unchanged, the others as `%XX`.
pub(crate) fn encode(out: &mut String, part: &[u8], may_stand: &dyn Fn(u8) -> bool) {
    for byte in part {
        if may_stand(*byte) {
            out.push(char::from(*byte));
        } else {
            out.push('%');
            out.push_str(&hex::encode(&[*byte]).to_ascii_uppercase());
        }
    }
}

/// Bytes without a special meaning in any part of a URL: `unreserved`.
pub(crate) fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forbidden_bytes_are_encoded() {
        let encoded = |text: &str, may_stand: &dyn Fn(u8) -> bool| {
            let mut out = "/".to_owned();
            encode(&mut out, text.as_bytes(), may_stand);
            out
        };
        assert_eq!(encoded("aZ09-._~", &is_unreserved), "/aZ09-._~");
        assert_eq!(encoded("a b/\u{e4}=%", &is_unreserved), "/a%20b%2F%C3%A4%3D%25");
        assert_eq!(encoded("a/.", &|byte| byte == b'/'), "/%61/%2E");
    }
}
