//! Values that must never reach a log.

use std::fmt;

/// A secret: a token, a key, a password. It formats as `[redacted]`. Only [`Secret::expose`] returns the value.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value itself. Never pass it to anything that formats.
    pub const fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

/// A URL without anything that could be a user or a password. It also accepts text that is not a URL.
pub(crate) fn url(text: &str) -> String {
    let Some((login, rest)) = text.rsplit_once('@') else { return text.to_owned() };
    let scheme = login.split_once("://").map_or("", |(scheme, _)| scheme);
    if scheme.is_empty() { format!("[redacted]@{rest}") } else { format!("{scheme}://[redacted]@{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password() {
        let table = [
            ("https://garden:6443/path", "https://garden:6443/path"),
            ("https://me:hunter2@garden:6443", "https://[redacted]@garden:6443"),
            ("me:hunter2@garden", "[redacted]@garden"),
            ("https://me:hunter2/@:@garden:x:y", "https://[redacted]@garden:x:y"),
            ("hunter2@://garden", "[redacted]@://garden"),
        ];
        for (text, expected) in table {
            assert_eq!(url(text), expected);
        }
    }

    #[test]
    fn no_format_shows_a_secret() {
        let secret = Secret::new("hunter2".to_owned());
        let all = format!("{secret} {secret:?} {secret:#?} {:?}", Some(&secret));
        assert!(!all.contains("hunter2"), "{all}");
        assert_eq!(secret.expose(), "hunter2");
    }
}
