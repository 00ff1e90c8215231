//! Go's strings: bytes that are nearly always UTF-8.

use std::borrow::Cow;
use std::fmt;
use std::rc::Rc;

/// A Go string: any bytes, nearly always UTF-8. Cheap to clone.
#[derive(Clone)]
pub(crate) struct GoString(Repr);

impl Default for GoString {
    fn default() -> Self {
        Self::from("")
    }
}

#[derive(Clone)]
enum Repr {
    Utf8(Rc<str>),
    Other(Rc<[u8]>),
}

impl GoString {
    /// The bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Repr::Utf8(s) => s.as_bytes(),
            Repr::Other(b) => b,
        }
    }

    /// The text; invalid UTF-8 becomes U+FFFD.
    pub(crate) fn to_str(&self) -> Cow<'_, str> {
        match &self.0 {
            Repr::Utf8(s) => Cow::Borrowed(s),
            Repr::Other(b) => String::from_utf8_lossy(b),
        }
    }

    /// The text as a key of a map.
    pub(crate) fn to_key(&self) -> Rc<str> {
        match &self.0 {
            Repr::Utf8(s) => s.clone(),
            Repr::Other(b) => Rc::from(String::from_utf8_lossy(b)),
        }
    }

    /// The length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.as_bytes().len()
    }

    /// Whether it is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for GoString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.to_str())
    }
}

impl PartialEq for GoString {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for GoString {}

impl From<&str> for GoString {
    fn from(s: &str) -> Self {
        Self(Repr::Utf8(Rc::from(s)))
    }
}

impl From<String> for GoString {
    fn from(s: String) -> Self {
        Self(Repr::Utf8(Rc::from(s)))
    }
}

impl From<Cow<'_, str>> for GoString {
    fn from(s: Cow<'_, str>) -> Self {
        Self(Repr::Utf8(Rc::from(s)))
    }
}

impl From<Rc<str>> for GoString {
    fn from(s: Rc<str>) -> Self {
        Self(Repr::Utf8(s))
    }
}

impl From<Vec<u8>> for GoString {
    fn from(bytes: Vec<u8>) -> Self {
        match String::from_utf8(bytes) {
            Ok(s) => s.into(),
            Err(e) => Self(Repr::Other(Rc::from(e.into_bytes()))),
        }
    }
}

impl From<&[u8]> for GoString {
    fn from(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(s) => s.into(),
            Err(_) => Self(Repr::Other(Rc::from(bytes))),
        }
    }
}
